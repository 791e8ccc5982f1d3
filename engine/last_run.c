/* last_run.c - runs a part of a graph with the channels last (last.h).
 *
 * Shapes, windows and the places of all values in one buffer follow from the shapes of what goes in and are planned when those change. So
 * many images go through at once as keep the largest value within CHUNK_FLOATS: few enough to stay in the cache, and where images are small
 * enough of them that weights are not fetched for each. Layers that read pixels as they lie take blocks of BLOCK_FLOATS of them; others
 * gather such blocks first. Where something does not fit (another type, shapes that broadcast otherwise) the nodes run one by one. */
#include "engine/last.h"

#include "engine/ops/window.h"
#include "engine/workers.h"

#include <limits.h>
#include <string.h>

enum { CHUNK_FLOATS = 256 << 10, BLOCK_FLOATS = 64 << 10, ACT_FLOATS = 8 << 10, SLACK = 32, DIM_MAX = 1 << 15 };

typedef struct last_value {
    int64_t c, h, w, ld;
    int64_t at, floats; /* in the buffer: of all images of a chunk */
    int dies;           /* the last step that reads it */
} last_value;

typedef struct last_state {
    eng_step *parts;
    const eng_cpu_kernels *kn;
    bool known, as_parts;
    int64_t dims[ENG_LAST_INPUTS][4], images, many; /* many: at a time */
    last_value *values;
    eng_window *windows; /* one a step */
    int64_t arena, gathered;
} last_state;

static int prepare_last(eng_op_ctx *c)
{
    const eng_last_part *t = c->node->fused;
    last_state *s = eng_op_keep(c, sizeof *s);
    *c->state = s;
    s->kn = eng_kernels_pick(c->plan->isa);
    s->values = eng_op_keep(c, (size_t)(t->n_in + t->n_steps) * sizeof *s->values);
    s->windows = eng_op_keep(c, (size_t)t->n_steps * sizeof *s->windows);
    c->kernel = "channels last";
    for (int i = 0; i < t->n_steps; i++) {
        int rc = eng_last_pack(c->plan, &t->steps[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- planning ---- */

static bool same_image(const last_value *a, const last_value *b)
{
    return a->h == b->h && a->w == b->w;
}

static bool is_window(const eng_last_step *s)
{
    return s->kind == ENG_LAST_LAYER || s->kind == ENG_LAST_DEPTH || s->kind == ENG_LAST_POOL;
}

/* The step's window over x; 1: none that the kernels have. */
static int plan_window(eng_op_ctx *c, const eng_last_step *s, const last_value *x, eng_window *w)
{
    eng_op_ctx k = *c;
    pst_tensor t = {.dtype = PST_F32, .rank = 4, .dims = {1, x->c, x->h, x->w}};
    k.node = s->node;
    int rc = eng_window_of(&k, &t, s->w ? s->w->dims + 2 : NULL, w);
    if (rc < 0)
        return rc;
    for (int i = 0; i < 2; i++)
        if (w->out[i] < 1 || w->out[i] > DIM_MAX ||
            (s->kind == ENG_LAST_POOL && (w->dil[i] != 1 || w->pad[i] >= w->k[i] || w->pad_end[i] >= w->k[i])))
            return 1;
    return 0;
}

/* The result's shape; 1: the nodes one by one. */
static int plan_step(eng_op_ctx *c, const eng_last_step *s, last_value *v, eng_window *w, last_value *y)
{
    const last_value *a = &v[s->a], *b = s->b >= 0 ? &v[s->b] : NULL;
    int rc = 0;
    *y = (last_value){.c = s->channels, .h = a->h, .w = a->w};
    if (is_window(s)) {
        rc = plan_window(c, s, a, w);
        y->h = w->out[0];
        y->w = w->out[1];
    } else if (s->kind == ENG_LAST_MEAN) {
        y->h = y->w = 1;
    } else if (b && a->h == 1 && a->w == 1) {
        y->h = b->h;
        y->w = b->w;
    }
    if (rc == 0 && b && !same_image(b, y) && (is_window(s) || b->h != 1 || b->w != 1))
        return 1;
    return rc;
}

/* A place for a value while it lives: the lowest that no value in use overlaps. */
static void place(last_state *s, int n_values, int n_in, int id)
{
    int64_t at = 0;
    last_value *v = s->values, *y = &v[id];
    int now = id - n_in; /* the step that makes it; what goes in is there from the beginning */
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < id && i < n_values; i++)
            if (v[i].dies >= now && at < v[i].at + v[i].floats && v[i].at < at + y->floats) {
                at = v[i].at + v[i].floats;
                moved = true;
            }
    }
    y->at = at;
    s->arena = at + y->floats > s->arena ? at + y->floats : s->arena;
}

static int64_t depth_of(const eng_last_step *s)
{
    return s->w->dims[1] * s->w->dims[2] * s->w->dims[3];
}

/* Pixels as they lie are the columns of the product. */
static bool as_it_lies(const eng_window *w)
{
    return w->k_count == 1 && w->stride[0] == 1 && w->stride[1] == 1 && w->in[0] == w->out[0] && w->in[1] == w->out[1] && !w->pad[0] &&
           !w->pad[1];
}

static int64_t gather_ld(const eng_cpu_kernels *kn, int64_t depth)
{
    int64_t ld = eng_last_ld(kn, depth, false);
    return ld % 256 ? ld : ld + 16; /* rows a power of two apart would meet in the same cache sets */
}

static int64_t block_rows(const eng_cpu_kernels *kn, int64_t ld)
{
    int64_t rows = BLOCK_FLOATS / ld / kn->mr * kn->mr;
    return rows < 2 * kn->mr ? 2 * kn->mr : rows;
}

/* Places and sizes; false: too large. */
static bool plan_memory(const eng_op_ctx *c, const eng_last_part *t, last_state *s)
{
    int n = t->n_in + t->n_steps;
    int64_t most = 1;
    double flops = 0;
    for (int i = 0; i < n; i++) {
        last_value *v = &s->values[i];
        v->ld = eng_last_ld(s->kn, v->c, i < t->n_in);
        most = v->h * v->w * v->ld > most ? v->h * v->w * v->ld : most;
        v->dies = i < t->n_in ? 0 : i - t->n_in;
    }
    s->many = CHUNK_FLOATS / most;
    s->many = s->many < 1 ? 1 : s->many > s->images ? s->images : s->many;
    s->arena = s->gathered = 0;
    for (int i = 0; i < t->n_steps; i++) {
        const eng_last_step *k = &t->steps[i];
        s->values[k->a].dies = i;
        if (k->b >= 0)
            s->values[k->b].dies = i;
    }
    s->values[t->out].dies = t->n_steps;
    for (int i = 0; i < n; i++) {
        last_value *v = &s->values[i];
        v->floats = (s->many * v->h * v->w * v->ld + 8 * v->ld + SLACK + 15) / 16 * 16;
        if (v->floats > INT32_MAX / 4)
            return false;
        place(s, n, t->n_in, i);
    }
    for (int i = 0; i < t->n_steps; i++) {
        const eng_last_step *k = &t->steps[i];
        const last_value *y = &s->values[t->n_in + i];
        double pixels = (double)(y->h * y->w);
        if (k->kind == ENG_LAST_LAYER && !as_it_lies(&s->windows[i])) {
            int64_t ld = gather_ld(s->kn, depth_of(k)), rows = block_rows(s->kn, ld), all = s->many * y->h * y->w;
            int64_t room = (rows < all ? rows : all) * ld + SLACK;
            s->gathered = room > s->gathered ? room : s->gathered;
        }
        flops += is_window(k) && k->w ? 2 * pixels * (double)eng_count(k->w) : pixels * (double)y->c;
    }
    *t->flops = flops;
    return (uint64_t)(s->arena + eng_workers_count(c->plan->workers) * s->gathered) * sizeof(float) <= c->plan->m->limits.tensor_bytes_max;
}

static int plan_part(eng_op_ctx *c, const eng_last_part *t, last_state *s)
{
    s->known = s->as_parts = true;
    s->images = s->dims[0][0];
    for (int i = 0; i < t->n_in; i++) {
        const int64_t *d = s->dims[i];
        if (d[0] != s->images || d[0] < 1 || d[1] < 1 || d[2] < 1 || d[3] < 1 || d[2] > DIM_MAX || d[3] > DIM_MAX)
            return 0;
        s->values[i] = (last_value){.c = d[1], .h = d[2], .w = d[3]};
    }
    for (int i = 0; i < t->n_steps; i++) {
        const eng_last_step *k = &t->steps[i];
        int64_t wanted = k->kind == ENG_LAST_LAYER ? k->w->dims[1] : k->channels;
        if (s->values[k->a].c != wanted)
            return 0;
        int rc = plan_step(c, k, s->values, &s->windows[i], &s->values[t->n_in + i]);
        if (rc != 0)
            return rc < 0 ? rc : 0;
    }
    s->as_parts = !plan_memory(c, t, s);
    return 0;
}

/* ---- running ---- */

typedef struct last_job {
    eng_op_ctx *c;
    const eng_last_part *t;
    const last_state *s;
    float *arena, *gathered;
    int64_t images; /* of this chunk */
} last_job;

/* In registers, behind the sum; the others are applied to many results at once. */
static bool ends_inside(eng_act act)
{
    return act == ENG_ACT_NONE || act == ENG_ACT_RELU || act == ENG_ACT_CLIP || act == ENG_ACT_HARDSWISH || act == ENG_ACT_HARDSIGMOID;
}

static eng_last_end end_of(const eng_fused_act *a)
{
    return (eng_last_end){.act = ends_inside(a->act) ? a->act : ENG_ACT_NONE, .alpha = a->alpha, .beta = a->beta};
}

static void act_outside(const last_job *j, const eng_fused_act *a, float *y, int64_t n)
{
    if (!ends_inside(a->act))
        j->s->kn->act(a->act, a->alpha, a->beta, y, y, (size_t)n);
}

static eng_last_window window_of(const last_job *j, int step)
{
    const eng_last_step *k = &j->t->steps[step];
    const eng_window *w = &j->s->windows[step];
    const last_value *x = &j->s->values[k->a];
    return (eng_last_window){.in_h = (int)x->h,
                             .in_w = (int)x->w,
                             .out_w = (int)w->out[1],
                             .kh = (int)w->k[0],
                             .kw = (int)w->k[1],
                             .sh = (int)w->stride[0],
                             .sw = (int)w->stride[1],
                             .dh = (int)w->dil[0],
                             .dw = (int)w->dil[1],
                             .pt = (int)w->pad[0],
                             .pl = (int)w->pad[1],
                             .pb = (int)w->pad_end[0],
                             .pr = (int)w->pad_end[1],
                             .to = (int)w->out[0],
                             .ld = x->ld,
                             .x = j->arena + x->at,
                             .end = end_of(&k->act)};
}

/* A layer over all pixels of the chunk, some at a time; each worker gathers in room of its own. */
typedef struct last_layer_job {
    const last_job *j;
    int step;
    bool lies;
    int64_t pixels, rows, ld, block;
    eng_last_window g;
} last_layer_job;

static void layer_part(void *arg, int64_t part, int worker)
{
    const last_layer_job *r = arg;
    const last_job *j = r->j;
    const eng_last_step *k = &j->t->steps[r->step];
    const last_value *x = &j->s->values[k->a], *y = &j->s->values[j->t->n_in + r->step];
    int64_t at = part * r->block;
    float *gathered = j->gathered + worker * j->s->gathered;
    eng_last_layer l = {.m = (int)(r->rows - at < r->block ? r->rows - at : r->block),
                        .n = (int)k->channels,
                        .k = (int)depth_of(k),
                        .a = r->lies ? j->arena + x->at + at * r->ld : gathered,
                        .lda = r->ld,
                        .w = k->packed->w,
                        .bias = k->packed->bias,
                        .c = j->arena + y->at + at * y->ld,
                        .ldc = y->ld,
                        .add = k->b >= 0 ? j->arena + j->s->values[k->b].at + at * y->ld : NULL,
                        .end = r->g.end};
    if (!r->lies)
        j->s->kn->last_gather(&r->g, &(eng_last_gather){.from = at,
                                                        .to = at + l.m,
                                                        .out_count = (int)r->pixels,
                                                        .channels = (int)x->c,
                                                        .image = x->h * x->w * x->ld,
                                                        .y = gathered,
                                                        .ldy = r->ld});
    j->s->kn->last_layer(&l);
    act_outside(j, &k->act, l.c, l.m * y->ld);
}

static int run_layer(const last_job *j, int step)
{
    const eng_last_step *k = &j->t->steps[step];
    const last_value *x = &j->s->values[k->a], *y = &j->s->values[j->t->n_in + step];
    bool lies = as_it_lies(&j->s->windows[step]);
    int64_t pixels = y->h * y->w, ld = lies ? x->ld : gather_ld(j->s->kn, depth_of(k));
    last_layer_job r = {.j = j,
                        .step = step,
                        .lies = lies,
                        .pixels = pixels,
                        .rows = j->images * pixels,
                        .ld = ld,
                        .block = block_rows(j->s->kn, ld),
                        .g = window_of(j, step)};
    double products = (double)r.rows * (double)eng_count(k->w);
    int workers = eng_op_workers(j->c, products), mr = j->s->kn->mr;
    int64_t even = (r.rows / (2 * workers) + mr - 1) / mr * mr; /* something for each to do */
    if (workers > 1 && even > 0 && even < r.block)
        r.block = even;
    return eng_op_parts(j->c, (r.rows + r.block - 1) / r.block, products, layer_part, &r);
}

/* Filters of one channel, and pools, of all images of the chunk; some rows at a time where an activation follows. */
typedef struct last_windows_job {
    const last_job *j;
    int step;
    int64_t rows, parts; /* of an image */
    eng_last_window g;
} last_windows_job;

static void windows_part(void *arg, int64_t part, int worker)
{
    const last_windows_job *r = arg;
    const last_job *j = r->j;
    const eng_last_step *k = &j->t->steps[r->step];
    const last_value *x = &j->s->values[k->a], *y = &j->s->values[j->t->n_in + r->step];
    int64_t image = part / r->parts, row = part % r->parts * r->rows;
    eng_last_window g = r->g;
    g.x += image * x->h * x->w * x->ld;
    g.y = j->arena + y->at + image * y->h * y->w * y->ld;
    g.from = (int)row;
    g.to = (int)(row + r->rows < y->h ? row + r->rows : y->h);
    (k->kind == ENG_LAST_DEPTH ? j->s->kn->last_depth : j->s->kn->last_pool)(&g);
    act_outside(j, &k->act, g.y + row * y->w * y->ld, (g.to - row) * y->w * y->ld);
}

static int run_windows(const last_job *j, int step)
{
    const eng_last_step *k = &j->t->steps[step];
    const last_value *y = &j->s->values[j->t->n_in + step];
    last_windows_job r = {.j = j, .step = step, .rows = ACT_FLOATS / (y->w * y->ld) + 1, .g = window_of(j, step)};
    r.parts = (y->h + r.rows - 1) / r.rows;
    r.g.max = k->kind == ENG_LAST_POOL && !strcmp(k->node->op_type, "MaxPool");
    r.g.whole = k->kind == ENG_LAST_POOL && eng_attr_int(k->node, "count_include_pad", 0);
    if (k->packed) {
        r.g.w = k->packed->w;
        r.g.bias = k->packed->bias;
    }
    double places = (double)(j->images * y->h * y->w * y->ld) * (double)j->s->windows[step].k_count;
    return eng_op_parts(j->c, j->images * r.parts, places, windows_part, &r);
}

/* Sums and products of two images, or of an image and a number for each channel. */
static void run_pair(const last_job *j, int step)
{
    const eng_last_step *k = &j->t->steps[step];
    const last_value *y = &j->s->values[j->t->n_in + step], *a = &j->s->values[k->a], *b = k->b >= 0 ? &j->s->values[k->b] : NULL;
    const eng_last_end none = {0};
    if (b && !same_image(a, y)) {
        const last_value *other = a;
        a = b;
        b = other;
    }
    bool one = !b || !same_image(b, y);
    for (int64_t i = 0; i < j->images; i++) {
        const float *with = b ? j->arena + b->at + i * b->h * b->w * b->ld : k->packed->w;
        int64_t at = i * y->h * y->w * y->ld;
        j->s->kn->last_mix(k->kind == ENG_LAST_MUL, y->h * y->w, y->ld, j->arena + a->at + at, with, one, &none, j->arena + y->at + at);
    }
}

static void run_mean(const last_job *j, int step)
{
    const last_value *x = &j->s->values[j->t->steps[step].a], *y = &j->s->values[j->t->n_in + step];
    for (int64_t i = 0; i < j->images; i++)
        j->s->kn->last_mean(x->h * x->w, x->ld, j->arena + x->at + i * x->h * x->w * x->ld, j->arena + y->at + i * y->ld);
}

static void run_act(const last_job *j, int step)
{
    const eng_last_step *k = &j->t->steps[step];
    const last_value *x = &j->s->values[k->a], *y = &j->s->values[j->t->n_in + step];
    j->s->kn->act(k->act.act, k->act.alpha, k->act.beta, j->arena + x->at, j->arena + y->at, (size_t)(j->images * y->h * y->w * y->ld));
}

static int run_step(const last_job *j, int step)
{
    const eng_last_step *k = &j->t->steps[step];
    const last_value *y = &j->s->values[j->t->n_in + step];
    int rc = eng_op_pause(j->c);
    if (rc == 0 && is_window(k))
        rc = eng_op_work(j->c, (double)(j->images * y->h * y->w) * (double)(k->w ? eng_count(k->w) : j->s->windows[step].k_count * y->c));
    if (rc < 0)
        return rc;
    switch (k->kind) {
    case ENG_LAST_LAYER: return run_layer(j, step);
    case ENG_LAST_DEPTH:
    case ENG_LAST_POOL: return run_windows(j, step);
    case ENG_LAST_MEAN: run_mean(j, step); break;
    case ENG_LAST_ACT: run_act(j, step); break;
    case ENG_LAST_ADD:
    case ENG_LAST_MUL: run_pair(j, step); break;
    }
    return 0;
}

/* Planes to pixels. The kernel reads whole vectors: beyond the caller's last number there may be nothing. */
static void turn_in(const last_job *j, const last_value *v, const float *x, float *to)
{
    int64_t pixels = v->h * v->w;
    if (v->ld > v->c)
        memset(to, 0, (size_t)(pixels * v->ld) * sizeof *to);
    if (v->c >= 8 && pixels % 4 == 0) {
        j->s->kn->turn((int)v->c, (int)pixels, x, pixels, NULL, false, to, v->ld);
        return;
    }
    for (int64_t i = 0; i < pixels; i++)
        for (int64_t ch = 0; ch < v->c; ch++)
            to[i * v->ld + ch] = x[ch * pixels + i];
}

static int run_chunk(last_job *j, int64_t from, float *out)
{
    const eng_last_part *t = j->t;
    const last_state *s = j->s;
    for (int i = 0; i < t->n_in; i++) {
        const last_value *v = &s->values[i];
        int64_t in = v->c * v->h * v->w, own = v->h * v->w * v->ld;
        for (int64_t k = 0; k < j->images; k++)
            turn_in(j, v, (const float *)eng_in(j->c, i)->data + (from + k) * in, j->arena + v->at + k * own);
    }
    for (int i = 0; i < t->n_steps; i++) {
        int rc = run_step(j, i);
        if (rc < 0)
            return rc;
    }
    const last_value *y = &s->values[t->out];
    int64_t pixels = y->h * y->w;
    for (int64_t k = 0; k < j->images; k++)
        s->kn->turn((int)pixels, (int)y->c, j->arena + y->at + k * pixels * y->ld, y->ld, NULL, false, out + (from + k) * y->c * pixels,
                    pixels);
    return 0;
}

/* The plan of the last shapes is kept: batches of one size pay for it once. What only the tensors tell (another type or rank, shapes that do not
 * suit) goes to the nodes that the part is made of, which say what is wrong themselves. */
static int run_last(eng_op_ctx *c)
{
    const eng_last_part *t = c->node->fused;
    last_state *s = *c->state;
    bool same = s->known;
    for (int i = 0; i < t->n_in; i++) {
        const pst_tensor *x = eng_in(c, i);
        if (!x || x->dtype != PST_F32 || x->rank != 4) {
            c->note = "no images of float32: node by node";
            return eng_parts_run(c, &s->parts);
        }
        same = same && !memcmp(s->dims[i], x->dims, sizeof s->dims[i]);
        memcpy(s->dims[i], x->dims, sizeof s->dims[i]);
    }
    int rc = same ? 0 : plan_part(c, t, s);
    if (rc < 0)
        return rc;
    if (s->as_parts) {
        c->note = "shapes that do not suit: node by node";
        return eng_parts_run(c, &s->parts);
    }
    const last_value *y = &s->values[t->out];
    const int64_t dims[4] = {s->images, y->c, y->h, y->w};
    int workers = eng_workers_count(c->plan->workers);
    float *out = eng_out(c, 0, PST_F32, 4, dims), *arena = eng_op_scratch(c, (size_t)(s->arena + workers * s->gathered) * sizeof *arena);
    if (!out || !arena)
        return PST_ELIMIT;
    last_job j = {.c = c, .t = t, .s = s, .arena = arena, .gathered = arena + s->arena};
    for (int64_t at = 0; at < s->images && rc == 0; at += j.images) {
        j.images = s->images - at < s->many ? s->images - at : s->many;
        rc = run_chunk(&j, at, out);
    }
    return rc;
}

const eng_op eng_last_op = {
    .domain = "+", .name = "ChannelsLast", .min_opset = 1, .cost = ENG_COST_LAST, .run = run_last, .prepare = prepare_last};
