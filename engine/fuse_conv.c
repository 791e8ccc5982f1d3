/* fuse_conv.c - a convolution and what follows it become one node: BatchNormalization, or a constant per channel that is multiplied or
 * added, goes into weights and bias; a residual that is added and an activation go into the epilogue (eng_epilogue in ops/ops.h),
 * which the kernel applies while it writes or this file afterwards, in place.
 *
 * Folding changes sums by rounding only: factors are computed in double and must be finite. Input, weights and residual must be
 * float32 and the residual must have the result's shape; otherwise the nodes run as they were. */
#include "engine/fuse_conv.h"

#include "engine/share.h"

#include "engine/ops/conv_lanes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARTS_MAX = 8 };

typedef struct conv_state {
    eng_step *parts;
    void *inner; /* of the convolution's kernel */
} conv_state;

/* The context the convolution's kernel sees: its own node, folded weights. */
static eng_op_ctx inner_ctx(eng_op_ctx *c, const eng_fused_conv *f, conv_state *s, eng_val **in, eng_epilogue *e)
{
    eng_op_ctx k = *c;
    in[0] = c->in[0];
    in[1] = f->own_weights ? (eng_val *)&f->weights : c->in[1];
    in[2] = f->has_bias ? (eng_val *)&f->bias : NULL;
    k.node = f->conv;
    k.in = in;
    k.n_in = 3;
    k.state = &s->inner;
    k.dies = NULL;
    k.epilogue = e;
    return k;
}

static int prepare_conv(eng_op_ctx *c)
{
    const eng_fused_conv *f = c->node->fused;
    conv_state *s = eng_op_keep(c, sizeof *s);
    eng_val *in[3];
    *c->state = s;
    if (!f->conv->op->prepare)
        return 0;
    eng_epilogue e = {.act = f->act.act, .alpha = f->act.alpha, .beta = f->act.beta, .pool = f->pool};
    eng_op_ctx k = inner_ctx(c, f, s, in, &e);
    int rc = f->conv->op->prepare(&k);
    c->kernel = k.kernel;
    c->note = k.note;
    return rc;
}

static bool same_shape(const pst_tensor *a, const pst_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims);
}

static void finish(const eng_op_ctx *c, const eng_epilogue *e, pst_tensor *y)
{
    float *o = y->data;
    int64_t n = eng_count(y);
    if (e->add) {
        const float *r = e->add->data;
        for (int64_t i = 0; i < n; i++)
            o[i] += r[i];
    }
    if (e->act != ENG_ACT_NONE)
        eng_kernels_pick(c->plan->isa)->act(e->act, e->alpha, e->beta, o, o, (size_t)n);
}

static int run_conv(eng_op_ctx *c)
{
    const eng_fused_conv *f = c->node->fused;
    conv_state *s = *c->state;
    const pst_tensor *x = eng_in(c, 0), *w = eng_in(c, 1), *add = f->has_add ? eng_in(c, 2) : NULL;
    eng_val *in[3];
    if (!x || x->dtype != PST_F32 || !w || w->dtype != PST_F32 || (f->has_add && (!add || add->dtype != PST_F32)))
        return eng_parts_run(c, &s->parts);
    eng_epilogue e = {.add = add, .act = f->act.act, .alpha = f->act.alpha, .beta = f->act.beta, .pool = f->pool};
    eng_op_ctx k = inner_ctx(c, f, s, in, &e);
    int rc = f->conv->op->run(&k);
    c->kernel = k.kernel;
    c->note = k.note;
    if (rc < 0 || e.done)
        return rc;
    if (f->pool) {
        c->note = "no kernel pools such windows at once: node by node";
        return eng_parts_run(c, &s->parts);
    }
    pst_tensor *y = &c->out[0]->t;
    if (add && !same_shape(add, y)) {
        c->note = "what is added has another shape: node by node";
        return eng_parts_run(c, &s->parts);
    }
    finish(c, &e, y);
    return 0;
}

static const eng_op fused_op = {.domain = "+",
                                .name = "FusedConv",
                                .min_opset = 1,
                                .run = run_conv,
                                .prepare = prepare_conv,
                                .cost = ENG_COST_CONV,
                                .kernel = "columns and gemm",
                                .plain = "columns and gemm"};

const eng_fused_conv *eng_fused_conv_of(const eng_node *n)
{
    return n->op == &fused_op ? n->fused : NULL;
}

/* ---- building ---- */

typedef struct builder {
    eng_fuser *f;
    const eng_node *conv;
    const pst_tensor *w;
    int64_t m;         /* output channels */
    double *mul, *add; /* of the convolution's result, per channel */
    bool scaled, shifted;
    int folded; /* value behind the last node whose factors are in mul and add */
} builder;

static bool finite_all(const double *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return false;
    return true;
}

static bool fold_batchnorm(builder *b, const eng_node *n)
{
    const pst_tensor *p[4];
    if (n->n_in != 5 || eng_attr_int(n, "training_mode", 0) || n->opset < 9)
        return false;
    for (int i = 0; i < 4; i++) {
        p[i] = eng_fuse_konst(b->f, n->in[i + 1]);
        if (!p[i] || eng_count(p[i]) != b->m)
            return false;
    }
    double eps = (double)eng_attr_float(n, "epsilon", 1e-5f);
    double *mul = eng_plan_room(b->f->p, (size_t)b->m * sizeof *mul), *add = eng_plan_room(b->f->p, (size_t)b->m * sizeof *add);
    if (!mul || !add)
        return false;
    for (int64_t i = 0; i < b->m; i++) {
        double by = (double)((const float *)p[0]->data)[i] / sqrt((double)((const float *)p[3]->data)[i] + eps);
        mul[i] = b->mul[i] * by;
        add[i] = (b->add[i] - (double)((const float *)p[2]->data)[i]) * by + (double)((const float *)p[1]->data)[i];
    }
    if (!finite_all(mul, b->m) || !finite_all(add, b->m))
        return false;
    b->mul = mul;
    b->add = add;
    return b->scaled = b->shifted = true;
}

/* A constant with one number per channel, or one for all: (M, 1, …), (1, M, 1, …); the channel's dimension must fall on axis 1. */
static bool per_channel(const builder *b, const pst_tensor *t)
{
    int rank = b->w->rank, axis = t->rank - (rank - 1); /* where the channels are in t */
    if (!t || t->rank > rank)
        return false;
    if (eng_count(t) == 1)
        return true;
    return axis >= 0 && t->dims[axis] == b->m && eng_count(t) == b->m;
}

static bool fold_elt(builder *b, const eng_node *n, int value)
{
    bool mul = eng_fuse_is(n, "Mul"), add = eng_fuse_is(n, "Add");
    if ((!mul && !add) || n->n_in != 2 || n->opset < 7)
        return false;
    const pst_tensor *t = eng_fuse_konst(b->f, n->in[n->in[0] == value]);
    if (!t || !per_channel(b, t))
        return false;
    const float *v = t->data;
    for (int64_t i = 0, one = eng_count(t) == 1; i < b->m; i++)
        if (!isfinite(v[one ? 0 : i]))
            return false;
    for (int64_t i = 0, one = eng_count(t) == 1; i < b->m; i++) {
        double a = (double)v[one ? 0 : i];
        b->mul[i] *= mul ? a : 1;
        b->add[i] = mul ? b->add[i] * a : b->add[i] + a;
    }
    b->scaled |= mul;
    b->shifted = true;
    return true;
}

/* Whether it changes places with a maximum: it never falls. */
static bool never_falls(const eng_fused_act *a)
{
    switch (a->act) {
    case ENG_ACT_HARDSWISH:
    case ENG_ACT_SWISH: return false;
    case ENG_ACT_CLIP: return a->alpha <= a->beta;
    default: return a->alpha >= 0;
    }
}

static int scale_weights(void *arg, eng_zone *zone, void *made)
{
    const builder *b = arg;
    size_t n = (size_t)eng_count(b->w), per = n / (size_t)b->m;
    float *to = made;
    for (size_t i = 0; i < n; i++)
        to[i] = (float)((double)((const float *)b->w->data)[i] * b->mul[i / per]);
    return 0;
}

static bool as_activation(const eng_fuser *f, const eng_node *n, int value, eng_fused_conv *c)
{
    eng_fused_act act;
    if (c->act.act != ENG_ACT_NONE || !eng_fuse_act(f, n, &act) || n->in[0] != value || (c->pool && !never_falls(&act)))
        return false;
    c->act = act;
    return true;
}

/* The weights with the factors in them. They follow from the convolution and the last node that gave a factor, each value having one maker
 * and these no other reader: plans share them. */
static float *scaled_weights(builder *b)
{
    const void *made;
    const eng_share_key key = {.what = "scaled weights", .of = &b->f->p->m->values[b->folded]};
    int rc = eng_share(b->f->p, &key, (size_t)eng_count(b->w) * sizeof(float), scale_weights, b, &made);
    PST_ASSERT(rc == 0); /* a failed allocation does not come back */
    return (float *)made;
}

/* Copies of weights and bias with the factors in them; false when the plan has had its share of copies. */
static bool make_weights(builder *b, eng_fused_conv *c)
{
    size_t n = (size_t)eng_count(b->w), m = (size_t)b->m;
    c->weights = (eng_val){.kind = ENG_VAL_TENSOR, .t = *b->w};
    c->bias = (eng_val){.kind = ENG_VAL_TENSOR, .t = {.dtype = PST_F32, .rank = 1, .dims = {b->m}}};
    if (b->scaled) {
        if (!eng_plan_room_take(b->f->p, n * sizeof(float)))
            return false;
        c->weights.t.data = scaled_weights(b);
        c->own_weights = true;
    }
    if (b->shifted || (b->conv->n_in > 2 && b->conv->in[2] >= 0)) {
        float *v = eng_plan_room(b->f->p, m * sizeof *v);
        if (!v)
            return false;
        for (size_t i = 0; i < m; i++)
            v[i] = (float)b->add[i];
        c->bias.t.data = v;
        c->has_bias = true;
    }
    return true;
}

/* A maximum pool, if the convolution's kernel will be the one that takes it in. Activations change places with a maximum when they never
 * fall; behind a residual there is none. */
static bool as_pool(const builder *b, const eng_node *n, eng_fused_conv *c)
{
    static const struct {
        const char *name;
        int64_t max;
    } sizes[] = {{"kernel_shape", ENG_CONV_LANES_POOL_MAX}, {"strides", ENG_CONV_LANES_POOL_MAX}, {"dilations", 1}};
    const eng_cpu_kernels *kn = eng_kernels_pick(b->f->p->isa);
    if (!eng_fuse_is(n, "MaxPool") || c->has_add || !never_falls(&c->act) || b->w->rank != 4 ||
        !eng_conv_lanes_pools(kn, b->w, eng_attr_int(b->conv, "group", 1)))
        return false;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t many;
        const int64_t *v = eng_attr_ints(n, sizes[i].name, &many);
        for (size_t k = 0; v && k < many; k++)
            if (v[k] > sizes[i].max)
                return false;
    }
    c->pool = n;
    return true;
}

static bool begin(builder *b)
{
    b->w = eng_fuse_konst(b->f, b->conv->in[1]);
    if (!b->w || b->w->rank < 3 || eng_count(b->w) < 1)
        return false;
    b->m = b->w->dims[0];
    bool has_bias = b->conv->n_in > 2 && b->conv->in[2] >= 0;
    const pst_tensor *bias = has_bias ? eng_fuse_konst(b->f, b->conv->in[2]) : NULL;
    if (has_bias && (!bias || eng_count(bias) != b->m))
        return false;
    b->mul = eng_plan_room(b->f->p, (size_t)b->m * sizeof *b->mul);
    b->add = eng_plan_room(b->f->p, (size_t)b->m * sizeof *b->add);
    if (!b->mul || !b->add)
        return false;
    for (int64_t i = 0; i < b->m; i++) {
        b->mul[i] = 1;
        b->add[i] = bias ? (double)((const float *)bias->data)[i] : 0;
    }
    return true;
}

/* Follows the one reader of each value for as long as it can be taken in: factors first, then a residual, then an activation and a pool in
 * either order. */
static void try_conv(eng_fuser *f, size_t at)
{
    builder b = {.f = f, .conv = f->nodes[at].node};
    eng_fused_conv c = {.conv = b.conv};
    size_t parts[PARTS_MAX] = {at};
    int n = 1, value = b.conv->out[0], in[3] = {b.conv->in[0], b.conv->in[1], -1};
    if (f->types[in[0]] && f->types[in[0]] != PST_F32)
        return;
    if (!begin(&b))
        return;
    while (n < PARTS_MAX && f->readers[value] == 1 && (c.act.act == ENG_ACT_NONE || !c.pool)) {
        size_t next = (size_t)f->reader[value];
        const eng_node *q = f->nodes[next].node;
        if (f->nodes[next].dead || *q->domain)
            break;
        bool last = c.act.act != ENG_ACT_NONE || c.pool,
             folds = !last && !c.has_add &&
                     (eng_fuse_is(q, "BatchNormalization") && q->in[0] == value ? fold_batchnorm(&b, q) : fold_elt(&b, q, value));
        if (folds)
            b.folded = q->out[0];
        if (!folds && !as_activation(f, q, value, &c) && !(!c.pool && as_pool(&b, q, &c))) {
            bool add = !last && eng_fuse_is(q, "Add") && q->n_in == 2 && q->opset >= 7 && !c.has_add && q->in[0] != q->in[1];
            int other = add ? q->in[q->in[0] == value] : -1;
            if (other < 0 || f->p->folded[other])
                break;
            c.has_add = true;
            in[2] = other;
        }
        parts[n++] = next;
        value = q->out[0];
    }
    if (n < 2 || !make_weights(&b, &c))
        return;
    eng_fused_conv *kept = eng_zone_alloc(&f->p->zone, sizeof *kept);
    *kept = c;
    char text[96];
    snprintf(text, sizeof text, "%d nodes%s%s%s%s", n, b.scaled || b.shifted ? ", factors in the weights" : "",
             c.has_add ? ", residual" : "", c.act.act != ENG_ACT_NONE ? ", activation" : "", c.pool ? ", max pool" : "");
    eng_fuse_replace(f, parts, n, &fused_op, kept, in, 3, value, text);
}

void eng_fuse_conv(eng_fuser *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (!f->nodes[i].dead && eng_fuse_is(f->nodes[i].node, "Conv") && f->nodes[i].node->n_in >= 2 && f->nodes[i].node->in[0] >= 0 &&
            f->nodes[i].node->in[1] >= 0)
            try_conv(f, i);
}
