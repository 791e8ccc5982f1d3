/* fuse.c - chains of dense layers, constant elementwise steps and activations become one node that runs tile by tile.
 *
 * A chain starts at any value and follows single readers: Gemm (constant B and C, no transA) or MatMul by a constant matrix;
 * Add, Sub, Mul, Div by a constant vector or scalar; Scaler; BatchNormalization of a matrix; activations (Relu, Clip, HardSwish, …),
 * Identity, Dropout. Elementwise steps right behind a layer are folded into its weights; those in front of the first layer (a
 * scaler) are run as they are on the tile: folding (x - mean) into weights cancels digits when the mean is large. */
#include "engine/plan.h"

#include "engine/cpu/isa.h"
#include "engine/share.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUSED_WEIGHTS_MAX ((size_t)4 << 20) /* bytes: beyond this a tile would stream weights from memory; layer by layer is better */
#define CHAIN_MAX         64

typedef struct fused_mlp {
    const eng_cpu_kernels *kernels;
    eng_fused_step *steps;
    int n_steps, width, n_in, n_out;
    int rank_min, rank_max; /* of the input: a Gemm wants a matrix, an operand (1, K) makes one of a vector */
} fused_mlp;

static int prepare_mlp(eng_op_ctx *c)
{
    const fused_mlp *f = c->node->fused;
    char text[64];
    snprintf(text, sizeof text, "fused MLP %s, tile %dx%d", f->kernels->isa, f->kernels->mr, f->kernels->nr);
    char *kept = eng_op_keep(c, sizeof text);
    memcpy(kept, text, sizeof text);
    c->kernel = kept;
    return 0;
}

typedef struct shared_rows {
    const fused_mlp *f;
    const float *x;
    int64_t rows, each; /* each: as many as go through the layers together, several times */
    float *y, *work;
    size_t work_floats;
} shared_rows;

static void some_rows(void *arg, int64_t part, int worker)
{
    const shared_rows *s = arg;
    const fused_mlp *f = s->f;
    int64_t from = part * s->each, n = s->rows - from < s->each ? s->rows - from : s->each;
    f->kernels->mlp(f->steps, f->n_steps, f->width, s->x + from * f->n_in, (size_t)n, s->y + from * f->n_out,
                    s->work + (size_t)worker * s->work_floats);
}

static double products_of(const fused_mlp *f)
{
    double n = 0;
    for (int i = 0; i < f->n_steps; i++)
        if (f->steps[i].kind == ENG_FUSED_DENSE)
            n += (double)f->steps[i].in * (double)f->steps[i].out;
    return n;
}

static int run_mlp(eng_op_ctx *c)
{
    const fused_mlp *f = c->node->fused;
    const pst_tensor *in = eng_in(c, 0);
    if (!in || in->dtype != PST_F32 || in->rank < f->rank_min || in->rank > f->rank_max || in->dims[in->rank - 1] != f->n_in)
        return eng_parts_run(c, (eng_step **)c->state);
    pst_tensor x = *in, o = x;
    o.dims[o.rank - 1] = f->n_out;
    int64_t rows = f->n_in ? eng_count(&x) / f->n_in : 0;
    double products = products_of(f) * (double)rows;
    int workers = eng_op_workers(c, products);
    size_t floats = (eng_mlp_work_floats(f->kernels, f->width) + 15) / 16 * 16;
    float *y = eng_out_like(c, 0, &o), *work = eng_op_scratch(c, (size_t)workers * floats * sizeof(float));
    if (!y || !work)
        return PST_ELIMIT;
    shared_rows s = {.f = f, .x = x.data, .rows = rows, .each = rows, .y = y, .work = work, .work_floats = floats};
    if (workers > 1)
        s.each = 4 * eng_mlp_rows(f->kernels->mr, (f->width + f->kernels->nr - 1) / f->kernels->nr * f->kernels->nr);
    return eng_op_parts(c, rows ? (rows + s.each - 1) / s.each : 0, products, some_rows, &s);
}

/* The node's work without values and buffers around it: they cost half as much as one row of a small network. */
static bool run_direct(pst_plan *p, const pst_tensor *in, pst_tensor *ret_out)
{
    const fused_mlp *f = p->direct.of;
    int64_t rows = in->dims[0];
    if (in->rank != 2 || in->dtype != PST_F32 || in->dims[1] != f->n_in || rows < 1 || rows > p->direct.rows_max ||
        (p->direct.rows >= 0 && rows != p->direct.rows) || p->observing)
        return false;
    f->kernels->mlp(f->steps, f->n_steps, f->width, in->data, (size_t)rows, p->direct.out, p->direct.work);
    ret_out->dtype = PST_F32;
    ret_out->rank = 2;
    ret_out->dims[0] = rows;
    ret_out->dims[1] = f->n_out;
    ret_out->data = p->direct.out;
    return true;
}

static const eng_op fused_op = {
    .domain = "+", .name = "FusedMLP", .min_opset = 1, .cost = ENG_COST_LAYERS, .run = run_mlp, .prepare = prepare_mlp};

typedef struct link {
    size_t at; /* index in the node list */
    enum { LINK_DENSE, LINK_ELT, LINK_BN, LINK_SCALER, LINK_ACT, LINK_PASS } what;
    eng_fused_kind kind;
    eng_fused_act act;
    const float *v; /* operand of an elementwise step */
    int64_t v_n;
    int v_rank;
    int dense_in, dense_out;
} link;

/* A constant that acts per feature: scalar, (K), (1, K); -1 otherwise. */
static int64_t vector_width(const pst_tensor *t)
{
    if (t->rank > 2 || (t->rank == 2 && t->dims[0] != 1))
        return -1;
    return eng_count(t);
}

static bool classify_dense(const eng_fuser *f, const eng_node *n, int in, link *l)
{
    bool gemm = !strcmp(n->op_type, "Gemm");
    if ((!gemm && strcmp(n->op_type, "MatMul")) || n->n_in < 2 || n->in[0] != in)
        return false;
    const pst_tensor *b = eng_fuse_konst(f, n->in[1]);
    bool tb = gemm && eng_attr_int(n, "transB", 0);
    if (!b || b->rank != 2 || (gemm && eng_attr_int(n, "transA", 0)) || b->dims[0] > 65536 || b->dims[1] > 65536 || !b->dims[0] ||
        !b->dims[1])
        return false;
    l->what = LINK_DENSE;
    l->dense_in = (int)b->dims[tb];
    l->dense_out = (int)b->dims[!tb];
    if (gemm && n->n_in > 2 && n->in[2] >= 0) {
        const pst_tensor *c = eng_fuse_konst(f, n->in[2]);
        int64_t w = c ? vector_width(c) : -1;
        if (w != 1 && w != l->dense_out)
            return false;
    }
    return true;
}

/* A Scaler: x - offset, then times scale; lengths 0 and 1 stand for any width. It also takes other types: float32 must be sure. */
static bool classify_scaler(const eng_fuser *f, const eng_node *n, int in, link *l)
{
    size_t n_off, n_scale;
    if (strcmp(n->domain, "ai.onnx.ml") != 0 || strcmp(n->op_type, "Scaler") != 0 || n->n_in != 1 || n->out[0] < 0 ||
        f->types[in] != PST_F32)
        return false;
    eng_attr_floats(n, "offset", &n_off);
    eng_attr_floats(n, "scale", &n_scale);
    if (n_off > 1 && n_scale > 1 && n_off != n_scale)
        return false;
    l->what = LINK_SCALER;
    l->v_n = (int64_t)(n_off > n_scale ? n_off : n_scale);
    return true;
}

/* An operation with a constant vector or scalar. */
static bool classify_elt(const eng_fuser *f, const eng_node *n, int in, link *l)
{
    eng_fused_kind kind = n->op->layer;
    if (kind == ENG_FUSED_DENSE || n->n_in != 2 || n->opset < 7)
        return false;
    bool commutes = kind == ENG_FUSED_ADD || kind == ENG_FUSED_MUL;
    const pst_tensor *t = eng_fuse_konst(f, n->in[0] == in ? n->in[1] : n->in[0]);
    if (!t || (n->in[0] != in && !commutes) || vector_width(t) < 1)
        return false;
    l->what = LINK_ELT;
    l->kind = kind;
    l->v = t->data;
    l->v_n = vector_width(t);
    l->v_rank = t->rank;
    return true;
}

/* What node n does to the value in, or false when the chain ends before it. */
static bool classify(const eng_fuser *f, const eng_node *n, int in, link *l)
{
    if (classify_scaler(f, n, in, l))
        return true;
    if (!eng_fuse_is(n, n->op_type))
        return false;
    if (classify_dense(f, n, in, l))
        return true;
    if (n->op->act != ENG_ACT_NONE) {
        l->what = LINK_ACT;
        return n->in[0] == in && eng_fuse_act(f, n, &l->act);
    }
    if (!strcmp(n->op_type, "Identity") || (!strcmp(n->op_type, "Dropout") && n->n_in == 1)) {
        l->what = LINK_PASS;
        return n->n_in == 1;
    }
    if (!strcmp(n->op_type, "BatchNormalization") && n->n_in == 5 && n->in[0] == in && !eng_attr_int(n, "training_mode", 0) &&
        n->opset >= 9) {
        l->what = LINK_BN;
        l->v_n = -1;
        for (int i = 1; i < 5; i++) {
            const pst_tensor *t = eng_fuse_konst(f, n->in[i]);
            if (!t || t->rank != 1 || (i > 1 && t->dims[0] != l->v_n))
                return false;
            l->v_n = t->dims[0];
        }
        return true;
    }
    return classify_elt(f, n, in, l);
}

/* Widths must agree along the chain; cut it where they do not. Returns the number of links kept, and the widths. */
static int fit_chain(link *l, int n, int *ret_in, size_t *ret_bytes)
{
    int width = -1, dense = 0, last = 0;
    for (int i = 0; i < n && width < 0; i++) /* the width in front of the first layer is the layer's */
        if (l[i].what == LINK_DENSE)
            width = l[i].dense_in;
    *ret_in = width;
    *ret_bytes = 0;
    for (int i = 0; i < n; i++) {
        if (l[i].what == LINK_DENSE) {
            size_t bytes = (size_t)l[i].dense_in * (size_t)l[i].dense_out * sizeof(float);
            if (l[i].dense_in != width || *ret_bytes + bytes > FUSED_WEIGHTS_MAX)
                break;
            *ret_bytes += bytes;
            width = l[i].dense_out;
            dense++;
        } else if ((l[i].what == LINK_ELT && l[i].v_n != 1 && l[i].v_n != width) || (l[i].what == LINK_BN && l[i].v_n != width) ||
                   (l[i].what == LINK_SCALER && l[i].v_n > 1 && l[i].v_n != width)) {
            break;
        }
        last = i + 1;
    }
    return dense ? last : 0;
}

static float *padded(eng_zone *z, int nr, int width, const float *v, int64_t n, float pad)
{
    int ld = (width + nr - 1) / nr * nr;
    float *to = eng_zone_alloc(z, (size_t)ld * sizeof *to);
    for (int i = 0; i < width && v; i++)
        to[i] = v[n == 1 ? 0 : i];
    for (int i = width; i < ld; i++)
        to[i] = pad;
    return to;
}

/* Constant B (and C) of a Gemm or MatMul as column panels with alpha and beta applied. */
static void pack_dense(const eng_fuser *f, eng_zone *z, const eng_node *n, const link *l, int nr, eng_fused_step *s)
{
    bool gemm = !strcmp(n->op_type, "Gemm"), tb = gemm && eng_attr_int(n, "transB", 0);
    const float *b = eng_fuse_konst(f, n->in[1])->data;
    float alpha = gemm ? eng_attr_float(n, "alpha", 1) : 1, beta = gemm ? eng_attr_float(n, "beta", 1) : 1;
    int in = l->dense_in, out = l->dense_out, panels = (out + nr - 1) / nr;
    float *w = eng_zone_alloc(z, (size_t)panels * (size_t)nr * (size_t)in * sizeof *w);
    for (int p = 0; p < panels; p++)
        for (int i = 0; i < in; i++)
            for (int j = 0; j < nr && p * nr + j < out; j++) {
                size_t col = (size_t)(p * nr + j);
                w[((size_t)p * (size_t)in + (size_t)i) * (size_t)nr + (size_t)j] =
                    alpha * (tb ? b[col * (size_t)in + (size_t)i] : b[(size_t)i * (size_t)out + col]);
            }
    const pst_tensor *c = gemm && n->n_in > 2 ? eng_fuse_konst(f, n->in[2]) : NULL;
    float *bias = padded(z, nr, out, c ? c->data : NULL, c ? eng_count(c) : 0, 0);
    for (int i = 0; i < out; i++)
        bias[i] *= beta;
    *s = (eng_fused_step){.kind = ENG_FUSED_DENSE, .in = in, .out = out, .w = w, .v = bias};
}

/* An elementwise step behind a layer without activation changes the layer's weights instead. */
static bool fold_into(eng_fused_step *s, int nr, eng_fused_kind kind, const float *v, int64_t n)
{
    if (s->kind != ENG_FUSED_DENSE || s->act != ENG_ACT_NONE)
        return false;
    float *bias = (float *)s->v, *w = (float *)s->w;
    for (int j = 0; j < s->out; j++) { /* an infinite or zero factor would turn finite sums into NaN */
        float a = v[n == 1 ? 0 : j];
        if (!isfinite(a) || (kind == ENG_FUSED_DIV && a == 0))
            return false;
    }
    for (int j = 0; j < s->out; j++) {
        float a = v[n == 1 ? 0 : j];
        if (kind == ENG_FUSED_ADD)
            bias[j] += a;
        else if (kind == ENG_FUSED_SUB)
            bias[j] -= a;
        else {
            bias[j] = kind == ENG_FUSED_MUL ? bias[j] * a : bias[j] / a;
            for (int i = 0; i < s->in; i++) {
                float *at = &w[((size_t)(j / nr) * (size_t)s->in + (size_t)i) * (size_t)nr + (size_t)(j % nr)];
                *at = kind == ENG_FUSED_MUL ? *at * a : *at / a;
            }
        }
    }
    return true;
}

static void add_elt(eng_zone *z, eng_fused_step *steps, int *n, int nr, int width, eng_fused_kind kind, const float *v, int64_t v_n)
{
    if (*n && fold_into(&steps[*n - 1], nr, kind, v, v_n))
        return;
    steps[(*n)++] =
        (eng_fused_step){.kind = kind, .in = width, .out = width, .v = padded(z, nr, width, v, v_n, kind == ENG_FUSED_DIV ? 1 : 0)};
}

static void add_batchnorm(const eng_fuser *f, eng_zone *z, const eng_node *n, eng_fused_step *steps, int *n_steps, int nr, int width)
{
    const float *scale = eng_fuse_konst(f, n->in[1])->data, *bias = eng_fuse_konst(f, n->in[2])->data,
                *mean = eng_fuse_konst(f, n->in[3])->data, *var = eng_fuse_konst(f, n->in[4])->data;
    double eps = (double)eng_attr_float(n, "epsilon", 1e-5f);
    float *mul = eng_zone_alloc(z, (size_t)width * sizeof *mul), *add = eng_zone_alloc(z, (size_t)width * sizeof *add);
    for (int i = 0; i < width; i++) {
        double by = (double)scale[i] / sqrt((double)var[i] + eps);
        mul[i] = (float)by;
        add[i] = (float)((double)bias[i] - (double)mean[i] * by);
    }
    add_elt(z, steps, n_steps, nr, width, ENG_FUSED_MUL, mul, width);
    add_elt(z, steps, n_steps, nr, width, ENG_FUSED_ADD, add, width);
}

static void add_scaler(eng_zone *z, const eng_node *n, eng_fused_step *steps, int *n_steps, int nr, int width)
{
    size_t n_off, n_scale;
    const float *off = eng_attr_floats(n, "offset", &n_off), *scale = eng_attr_floats(n, "scale", &n_scale);
    if (n_off)
        add_elt(z, steps, n_steps, nr, width, ENG_FUSED_SUB, off, (int64_t)n_off);
    if (n_scale)
        add_elt(z, steps, n_steps, nr, width, ENG_FUSED_MUL, scale, (int64_t)n_scale);
}

typedef struct chain {
    const eng_fuser *f;
    const link *l;
    int n, n_in, dense; /* dense: layers in it */
} chain;

/* One link's step, and what it asks of the input's rank. */
static void add_link(const chain *c, const link *l, eng_zone *z, fused_mlp *m, int *width)
{
    const eng_node *node = c->f->nodes[l->at].node;
    int nr = m->kernels->nr;
    bool matrix = false;
    switch (l->what) {
    case LINK_DENSE:
        pack_dense(c->f, z, node, l, nr, &m->steps[m->n_steps++]);
        *width = l->dense_out;
        m->width = *width > m->width ? *width : m->width;
        matrix = !strcmp(node->op_type, "Gemm");
        break;
    case LINK_ELT:
        add_elt(z, m->steps, &m->n_steps, nr, *width, l->kind, l->v, l->v_n);
        m->rank_min = l->v_rank > m->rank_min ? l->v_rank : m->rank_min;
        break;
    case LINK_BN:
        add_batchnorm(c->f, z, node, m->steps, &m->n_steps, nr, *width);
        matrix = true;
        break;
    case LINK_SCALER:
        add_scaler(z, node, m->steps, &m->n_steps, nr, *width);
        matrix = true;
        break;
    case LINK_ACT:
        if (!m->n_steps || m->steps[m->n_steps - 1].act != ENG_ACT_NONE)
            m->steps[m->n_steps++] = (eng_fused_step){.kind = ENG_FUSED_ACT, .in = *width, .out = *width};
        m->steps[m->n_steps - 1].act = l->act.act;
        m->steps[m->n_steps - 1].alpha = l->act.alpha;
        m->steps[m->n_steps - 1].beta = l->act.beta;
        break;
    case LINK_PASS: break;
    }
    if (matrix)
        m->rank_min = m->rank_max = 2;
}

static int make_mlp(void *arg, eng_zone *z, void *made)
{
    const chain *c = arg;
    fused_mlp *m = made;
    m->kernels = eng_kernels_pick(c->f->p->isa);
    m->steps = eng_zone_alloc(z, (size_t)(2 * c->n) * sizeof *m->steps);
    m->n_in = m->width = m->n_out = c->n_in;
    m->rank_min = 1;
    m->rank_max = PST_MAX_RANK;
    for (int i = 0; i < c->n; i++)
        add_link(c, &c->l[i], z, m, &m->n_out);
    PST_ASSERT(m->n_steps <= 2 * c->n && m->n_out <= m->width); /* the kernel's tile is as wide as the widest */
    return 0;
}

/* Plans share the layers: they follow from where the chain begins and ends, since what lies between has one reader each. */
static void build(eng_fuser *f, const link *l, int n, int n_in)
{
    size_t parts[CHAIN_MAX];
    chain c = {.f = f, .l = l, .n = n, .n_in = n_in};
    for (int i = 0; i < n; i++) {
        parts[i] = l[i].at;
        c.dense += l[i].what == LINK_DENSE;
    }
    const eng_node *first = f->nodes[l[0].at].node, *last = f->nodes[l[n - 1].at].node;
    int in = first->in[0]; /* the variable input of an elementwise link may be its second */
    if (first->n_in == 2 && f->p->folded[in])
        in = first->in[1];
    const eng_share_key key = {.what = "layers", .of = &f->p->m->values[in], .by = &f->p->m->values[last->out[0]], .variant = n};
    const void *made;
    int rc = eng_share(f->p, &key, sizeof(fused_mlp), make_mlp, &c, &made);
    PST_ASSERT(rc == 0); /* a failed allocation does not come back */
    const fused_mlp *m = made;
    char text[120];
    snprintf(text, sizeof text, "%d nodes, %d layers, %d -> %d, %s tile %dx%d", n, c.dense, n_in, m->n_out, m->kernels->isa, m->kernels->mr,
             m->kernels->nr);
    eng_fuse_replace(f, parts, n, &fused_op, m, &in, 1, last->out[0], text);
}

static void try_chain(eng_fuser *f, size_t start)
{
    link l[CHAIN_MAX];
    int n = 0;
    const eng_node *node = f->nodes[start].node;
    int in = -1;
    for (int k = 0; k < node->n_in && in < 0; k++)
        if (node->in[k] >= 0 && !f->p->folded[node->in[k]])
            in = node->in[k];
    for (size_t at = start; in >= 0 && n < CHAIN_MAX;) {
        node = f->nodes[at].node;
        l[n] = (link){.at = at};
        if (f->nodes[at].dead || !classify(f, node, in, &l[n]))
            break;
        n++;
        in = node->out[0];
        if (f->readers[in] != 1)
            break;
        at = (size_t)f->reader[in];
    }
    int n_in;
    size_t bytes;
    n = fit_chain(l, n, &n_in, &bytes);
    if (!n || 4 * bytes > f->p->pool.bytes_max - f->p->fused_bytes) /* many chains may share one matrix: copies are bounded */
        return;
    f->p->fused_bytes += 2 * bytes;
    build(f, l, n, n_in);
}

void eng_fuse_direct(pst_plan *p)
{
    enum { ROWS_MAX = 64, FLOATS_MAX = 16384 };
    const eng_prog *g = &p->progs[0];
    const pst_model_info *info = &p->m->info;
    const eng_node *n = g->n_steps == 1 ? g->steps[0].node : NULL;
    if (!n || n->op != &fused_op || info->n_inputs != 1 || info->n_outputs != 1 || n->in[0] != p->m->graph.in[0] ||
        n->out[0] != p->m->graph.out[0] || p->m->in_kinds[0] != ENG_KIND_TENSOR)
        return;
    const fused_mlp *f = n->fused;
    const pst_value_info *w = &info->inputs[0];
    bool fits = (!w->dtype || w->dtype == PST_F32) && (w->rank == -1 || (w->rank == 2 && (w->dims[1] < 0 || w->dims[1] == f->n_in)));
    int64_t rows = FLOATS_MAX / f->n_out;
    if (!fits || f->rank_min > 2 || f->rank_max < 2 || rows < 1)
        return;
    rows = rows < ROWS_MAX ? rows : ROWS_MAX;
    size_t bytes = (size_t)(rows * f->n_out) * sizeof(float);
    if (bytes > p->m->limits.tensor_bytes_max)
        return;
    p->direct.out = eng_plan_room(p, bytes);
    p->direct.work = eng_plan_room(p, eng_mlp_work_floats(f->kernels, f->width) * sizeof(float));
    if (!p->direct.out || !p->direct.work)
        return;
    p->direct.of = f;
    p->direct.rows = w->rank == 2 ? w->dims[0] : -1;
    p->direct.rows_max = rows;
    p->direct.run = run_direct;
}

void eng_fuse_mlp(eng_fuser *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (!f->nodes[i].dead && f->nodes[i].node->domain[0] != '+')
            try_chain(f, i);
}
