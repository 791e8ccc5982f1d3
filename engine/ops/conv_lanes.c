/* conv_lanes.c - convolutions of few channels with the filters in the lanes, and a maximum pool behind.
 *
 * Some rows of the image at a time: convolved into a chunk that stays in L1, pixel by pixel with all filters of a pixel side by side
 * (eng_cpu_kernels.conv_rows); bias and Relu are applied in registers. Pooled there (pool_rows), then turned into the planes of the
 * result (turn). With the filters in the lanes no lane is lost to the width of the image, nothing is computed between rows, and a pool
 * needs no shuffles. It pays while the weights of a tile stay in L1: conv_fast.c is for deeper sums. */
#include "engine/ops/conv_lanes.h"

#include "engine/cpu/gemm.h"
#include "engine/ops/conv_fast.h"
#include "engine/ops/conv_image.h"
#include "engine/plan.h"
#include "engine/share.h"

#include <math.h>
#include <string.h>

enum { DEPTH_MAX = 320, FILTERS_MAX = 64, CHUNK_FLOATS = 4096, ROW_FLOATS_MAX = 1 << 16, TURNED = 8 };

static const char *const kernel_names[] = {"filters in the lanes", "filters in the lanes, pooled"};

/* Thirds of a product for each kernel position of a pixel. A last vector on its own takes a third longer: it loads a pixel for every
 * product. */
static int64_t thirds_of(const eng_cpu_kernels *kn, int64_t m)
{
    int64_t rest = m % kn->nr, whole = 3 * (m - rest);
    if (rest == 0)
        return whole;
    return whole + (rest > kn->lanes ? 3 * kn->nr : 4 * kn->lanes);
}

/* Kernels of 16 lanes follow the rule of those of 8: measured there, they take 0.6 to 0.9 of their time wherever it says yes, even
 * with a third of the lanes empty, as long as 8 do not hold all filters. */
static int64_t thirtieths(const eng_cpu_kernels *kn, const pst_tensor *w)
{
    int64_t m = w->dims[0];
    return 10 * thirds_of(kn->lanes > 8 ? eng_kernels_pick("avx2") : kn, m) * (eng_count(w) / m);
}

/* The kernels, kn or narrower ones, for constant weights (M, C, k…); NULL = they do not suit. */
static const eng_cpu_kernels *kernels_of(const eng_cpu_kernels *kn, const pst_tensor *w, int64_t groups)
{
    int64_t n = eng_count(w), m = w->rank ? w->dims[0] : 0;
    if (n <= 0 || w->dtype != PST_F32 || w->rank < 3 || w->rank > 4 || groups != 1 || m > FILTERS_MAX || n / m > DEPTH_MAX)
        return NULL;
    const eng_cpu_kernels *narrow = kn->lanes > 8 ? eng_kernels_pick("avx2") : NULL;
    return narrow && m <= narrow->lanes ? narrow : kn;
}

bool eng_conv_lanes_pools(const eng_cpu_kernels *kn, const pst_tensor *w, int64_t groups)
{
    return kernels_of(kn, w, groups) && thirtieths(kn, w) <= eng_conv_fast_thirtieths(w, true);
}

/* Packed weights and the data they were made from. */
typedef struct lanes_weights {
    eng_packed packed;
    const void *of;
} lanes_weights;

static bool supports(const eng_op_ctx *c)
{
    const pst_tensor *w = eng_in(c, 1);
    return !c->plan->opts.no_fusion && w && kernels_of(eng_kernels_pick(c->plan->isa), w, eng_attr_int(c->node, "group", 1));
}

static eng_node_cost cost(const eng_op_ctx *c)
{
    return (eng_node_cost){.place_ns = eng_conv_ns(c, thirtieths(eng_kernels_pick(c->plan->isa), eng_in(c, 1)))};
}

static int pack(eng_op_ctx *c, void *made)
{
    const pst_tensor *w = eng_in(c, 1);
    const eng_cpu_kernels *kn = kernels_of(eng_kernels_pick(c->plan->isa), w, 1);
    int m = (int)w->dims[0], depth = (int)(eng_count(w) / m);
    lanes_weights *kept = made;
    kept->of = w->data;
    eng_sgemm_pack(kn, true, m, depth, w->data, depth, eng_op_keep(c, eng_packed_floats(kn, m, depth) * sizeof(float)), &kept->packed);
    return 0;
}

static int prepare(eng_op_ctx *c, void **ret_state)
{
    const eng_share_key key = {.what = "conv lanes", .of = eng_in(c, 1)->data, .variant = eng_in(c, 1)->dims[0]};
    c->kernel = kernel_names[c->epilogue && c->epilogue->pool];
    return eng_op_share(c, &key, eng_of_model(c, 1), sizeof(lanes_weights), pack, ret_state);
}

typedef struct job {
    const eng_cpu_kernels *kn;
    eng_conv_image g;
    eng_conv_rows rows;
    const eng_window *pool;
    int64_t stride, pixel;                    /* of the convolution, downwards; floats */
    int64_t out_h, out_w, kh, sh, pt, kw, sw; /* of the pool; a window of one if there is none */
    int64_t left, width;                      /* pixels of a row of the chunk: in front of the convolution's, and in all */
    int64_t step;                             /* rows of results made from a chunk */
    float *image, *chunk, *pooled;
    bool relu; /* behind a residual */
} job;

/* The pool's windows over the convolution's results. Padding to the sides is -infinity in the chunk; rows are clipped. False: windows
 * that might be empty, or that this file has no chunk for. */
static bool plan_pool(const eng_window *w, job *j)
{
    const eng_window *p = j->pool;
    if (!p) {
        j->out_h = j->g.out_h;
        j->out_w = j->width = j->g.out_w;
        j->kh = j->sh = j->kw = j->sw = 1;
        return true;
    }
    if (p->n != 2 || w->n != 2 || !p->out_count)
        return false;
    for (int i = 0; i < 2; i++)
        if (p->k[i] > ENG_CONV_LANES_POOL_MAX || p->stride[i] > ENG_CONV_LANES_POOL_MAX || p->dil[i] != 1 || p->pad[i] >= p->k[i] ||
            p->pad_end[i] >= p->k[i])
            return false;
    j->out_h = p->out[0];
    j->out_w = p->out[1];
    j->kh = p->k[0];
    j->sh = p->stride[0];
    j->pt = p->pad[0];
    j->kw = p->k[1];
    j->sw = p->stride[1];
    j->left = p->pad[1];
    int64_t reach = (j->out_w - 1) * j->sw + j->kw, all = j->left + w->out[1];
    j->width = reach > all ? reach : all;
    return true;
}

/* Sizes; false for what is left to others. */
static bool plan_job(const eng_op_ctx *c, const eng_window *w, int64_t channels, int64_t m, job *j)
{
    if (!w->out_count || !eng_conv_image_plan(w, channels, false, &j->g) || !plan_pool(w, j))
        return false;
    j->stride = w->n == 2 ? w->stride[0] : 1;
    j->pixel = (m + j->kn->lanes - 1) / j->kn->lanes * j->kn->lanes;
    if (j->width * j->pixel > ROW_FLOATS_MAX || (uint64_t)j->g.image > c->plan->m->limits.tensor_bytes_max / sizeof(float))
        return false;
    int64_t fit = CHUNK_FLOATS / (j->width * j->pixel); /* rows of the convolution */
    j->step = fit > j->kh ? (fit - j->kh) / j->sh + 1 : 1;
    j->step = j->step < j->out_h ? j->step : j->out_h;
    return true;
}

/* Buffers, offsets and the bias. */
static int make_room(eng_op_ctx *c, const eng_packed *weights, int64_t channels, const float *bias, const eng_window *w, job *j)
{
    int64_t chunk = ((j->step - 1) * j->sh + j->kh) * j->width * j->pixel, pooled = j->pool ? j->step * j->out_w * j->pixel : 0,
            more = TURNED * j->pixel, padded = (weights->n + j->kn->nr - 1) / j->kn->nr * j->kn->nr;
    float *room = eng_op_scratch(c, (size_t)(chunk + more + pooled + more + padded) * sizeof *room),
          *image = eng_op_scratch(c, (size_t)j->g.image * sizeof *image);
    int32_t *off = eng_op_scratch(c, (size_t)weights->k * sizeof *off);
    if (!room || !image || !off)
        return PST_ELIMIT;
    j->image = image;
    j->chunk = room;
    j->pooled = room + chunk + more;
    float *b = j->pooled + pooled + more;
    for (int64_t i = 0; i < padded; i++)
        b[i] = bias && i < weights->n ? bias[i] : 0;
    if (j->width > j->g.out_w)
        for (int64_t i = 0; i < chunk; i++)
            room[i] = -INFINITY;
    memset(image, 0, (size_t)j->g.image * sizeof *image);
    eng_conv_image_offsets(&j->g, channels, off);
    j->rows = (eng_conv_rows){.n = (int)j->g.out_w,
                              .m = weights->n,
                              .k = weights->k,
                              .ldx = j->stride * j->g.qw,
                              .step = w->stride[w->n - 1],
                              .off = off,
                              .w = weights->data,
                              .bias = b,
                              .ldy = j->width * j->pixel};
    return 0;
}

/* The convolution's rows that result `row` is made from. */
static int64_t first_row(const job *j, int64_t row)
{
    int64_t at = row * j->sh - j->pt;
    return at < 0 ? 0 : at;
}

static int64_t end_row(const job *j, int64_t row)
{
    int64_t at = row * j->sh - j->pt + j->kh;
    return at < j->g.out_h ? at : j->g.out_h;
}

/* All results of one image. */
static void run_image(const job *j, const float *add, float *y)
{
    const eng_conv_image *g = &j->g;
    eng_conv_rows c = j->rows;
    int64_t row_floats = j->width * j->pixel, begin = 0, have = 0, planes = j->out_h * j->out_w;
    for (int64_t row = 0; row < j->out_h; row += j->step) {
        int64_t rows = j->out_h - row < j->step ? j->out_h - row : j->step, first = first_row(j, row), end = end_row(j, row + rows - 1);
        const float *result = j->chunk;
        int64_t from = have > first ? have : first;
        if (from > first) /* windows overlap: the last chunk's rows are needed again */
            memmove(j->chunk, j->chunk + (first - begin) * row_floats, (size_t)((have - first) * row_floats) * sizeof(float));
        c.rows = (int)(end - from);
        c.x = j->image + from * j->stride * g->qw;
        c.y = j->chunk + (from - first) * row_floats + j->left * j->pixel;
        if (c.rows > 0)
            j->kn->conv_rows(&c);
        begin = first;
        have = end;
        for (int64_t i = 0; i < rows && j->pool; i++) {
            int64_t top = first_row(j, row + i);
            j->kn->pool_rows((int)j->out_w, (int)j->pixel, j->chunk + (top - first) * row_floats, row_floats,
                             (int)(end_row(j, row + i) - top), (int)j->kw, (int)j->sw, j->pooled + i * j->out_w * j->pixel);
            result = j->pooled;
        }
        int64_t at = row * j->out_w;
        j->kn->turn((int)(rows * j->out_w), c.m, result, j->pixel, add ? add + at : NULL, j->relu, y + at, planes);
    }
}

/* Returns 1 when the packed weights are not those of this call, or the shape does not fit: then another way computes it. Relu and a
 * residual are applied as results are written, other activations in a pass behind. */
static int submit(eng_op_ctx *c, void *state, const eng_node_call *call)
{
    const lanes_weights *kept = state;
    if (!kept || kept->of != call->w->data)
        return 1;
    const pst_tensor *x = call->x;
    const eng_window *w = call->window;
    const eng_packed *weights = &kept->packed;
    float *y = call->y;
    job j = {.kn = weights->kernels, .pool = call->pool};
    int64_t channels = x->dims[1], images = x->dims[0], m = weights->n, results;
    if (!plan_job(c, w, channels, m, &j))
        return 1;
    int rc = make_room(c, weights, channels, call->bias, w, &j);
    if (rc < 0)
        return rc;
    eng_epilogue *e = c->epilogue;
    const float *add = NULL;
    if (eng_conv_takes(e, images, m, w)) {
        add = e->add ? e->add->data : NULL;
        *(add ? &j.relu : &j.rows.relu) = e->act == ENG_ACT_RELU;
        e->done = true;
    }
    results = m * j.out_h * j.out_w;
    for (int64_t i = 0; i < images; i++) {
        if ((rc = eng_op_pause(c)) < 0)
            return rc;
        eng_conv_image_fill(&j.g, (const float *)x->data + i * channels * w->in_count, channels, j.image);
        run_image(&j, add ? add + i * results : NULL, y + i * results);
    }
    if (e && e->done && e->act > ENG_ACT_RELU)
        j.kn->act(e->act, e->alpha, e->beta, y, y, (size_t)(images * results));
    c->kernel = kernel_names[call->pool != NULL];
    return 0;
}

const eng_node_backend eng_conv_lanes_backend = {
    .name = "filters in the lanes", .op = "Conv", .supports = supports, .cost = cost, .prepare = prepare, .submit = submit};
