/* conv_fast.c - convolutions of one and two dimensions without gathered columns.
 *
 * An image is copied once into a padded buffer, split by stride: with stride 2 the even and the odd columns (and rows) lie apart, so that
 * what one kernel position reads for neighbouring outputs lies side by side whatever the stride. Outputs are numbered over the
 * padded width; then kernel position (channel, ky, kx) of output j is at base[off] + j with one offset per position, and the product
 * of weights and columns needs no columns: the register tile takes b through a table of offsets. Numbers between the rows are computed
 * and dropped; for usual sizes that is less than a tenth. A second pass over what the cache still holds adds bias and residual
 * and applies the activation. One channel per group (depthwise) is the same with tiles of one row. */
#include "engine/ops/conv_fast.h"

#include "engine/cpu/gemm.h"
#include "engine/ops/conv_image.h"
#include "engine/plan.h"
#include "engine/share.h"

#include <string.h>

enum { CHUNK_FLOATS = 16384, CHUNK_LARGE = 65536, DEPTH_MAX = 1 << 20 };

typedef struct job {
    const eng_cpu_kernels *kn;
    const eng_conv_image *g;
    const float *a; /* packed weights of the group */
    const int32_t *off;
    int m, depth;
    const float *image, *bias, *add;
    bool relu;
    float *chunk, *y; /* chunk: m · ldc for each worker */
    int64_t chunk_rows, ldc;
} job;

/* Some rows of the outputs of one group of one image. */
static void run_rows(void *arg, int64_t part, int worker)
{
    const job *j = arg;
    const eng_conv_image *g = j->g;
    int64_t row = part * j->chunk_rows, rows = g->out_h - row < j->chunk_rows ? g->out_h - row : j->chunk_rows;
    float *chunk = j->chunk + worker * j->m * j->ldc;
    eng_block b = {.m = j->m, .k = j->depth, .a = j->a, .off = j->off, .c = chunk, .ldc = j->ldc};
    b.n = (int)((rows - 1) * g->qw + g->out_w);
    b.b = j->image + row * g->qw;
    j->kn->conv(&b);
    for (int64_t c = 0; c < j->m; c++) {
        int64_t at = (c * g->out_h + row) * g->out_w;
        j->kn->plane((int)rows, (int)g->out_w, chunk + c * j->ldc, g->qw, j->bias ? j->bias[c] : 0, j->add ? j->add + at : NULL, j->relu,
                     j->y + at, g->out_w);
    }
}

/* Weights (M, C/groups, k…) in the order of the tiles; of: the data they were made from, which is none where they are not constant. */
typedef struct fast_weights {
    const float *packed;
    const void *of;
} fast_weights;

static bool supports(const eng_op_ctx *c)
{
    return !c->plan->opts.no_fusion;
}

/* Numbers between the rows cost a tenth, but kernels of one position have nothing between the rows and no columns to shift. A pool that is
 * not taken in costs as much as 24 positions. */
int64_t eng_conv_fast_thirtieths(const pst_tensor *w, bool pooled)
{
    int64_t m = w->dims[0], depth = eng_count(w) / m;
    if (pooled)
        return 33 * m * (depth + 24);
    return (depth > w->dims[1] ? 33 : 29) * m * depth;
}

double eng_conv_ns(const eng_op_ctx *c, int64_t thirtieths)
{
    enum { PRODUCTS_NS = 6 }; /* two vectors a cycle at 3 GHz */
    return (double)thirtieths / 30 / (PRODUCTS_NS * eng_kernels_pick(c->plan->isa)->lanes);
}

double eng_conv_fast_place_ns(const eng_op_ctx *c)
{
    const pst_tensor *w = eng_in(c, 1);
    bool pooled = c->epilogue && c->epilogue->pool, known = w && w->rank > 2 && eng_count(w) > 0 && w->dims[0] > 0;
    return known ? eng_conv_ns(c, eng_conv_fast_thirtieths(w, pooled)) : 1;
}

static eng_node_cost cost(const eng_op_ctx *c)
{
    return (eng_node_cost){.place_ns = eng_conv_fast_place_ns(c)};
}

static int pack(eng_op_ctx *c, void *made)
{
    const pst_tensor *w = eng_in(c, 1);
    const eng_cpu_kernels *kn = eng_kernels_pick(c->plan->isa);
    int64_t groups = eng_attr_int(c->node, "group", 1), n = eng_count(w), depth = n / w->dims[0], mg = w->dims[0] / groups;
    float *to = eng_op_keep(c, (size_t)n * sizeof *to);
    for (int64_t i = 0; i < groups; i++)
        eng_sgemm_pack_left(kn, (int)mg, (int)depth, (const float *)w->data + i * mg * depth, (int)depth, to + i * mg * depth);
    *(fast_weights *)made = (fast_weights){.packed = to, .of = w->data};
    return 0;
}

static int prepare(eng_op_ctx *c, void **ret_state)
{
    const pst_tensor *w = eng_in(c, 1);
    int64_t groups = eng_attr_int(c->node, "group", 1), n = w ? eng_count(w) : 0, m = n && w->rank ? w->dims[0] : 0;
    if (!n || w->dtype != PST_F32 || w->rank < 3 || w->rank > 4 || groups < 1 || m % groups || n / m > DEPTH_MAX)
        return 0;
    const eng_share_key key = {
        .what = "conv tiles", .of = w->data, .variant = m << 31 | groups}; /* a view of the data may have another shape */
    return eng_op_share(c, &key, eng_of_model(c, 1), sizeof(fast_weights), pack, ret_state);
}

static int submit(eng_op_ctx *c, void *state, const eng_node_call *call)
{
    const eng_cpu_kernels *kn = eng_kernels_pick(c->plan->isa);
    const fast_weights *kept = state;
    const pst_tensor *x = call->x, *wt = call->w;
    const eng_window *w = call->window;
    const float *bias = call->bias;
    float *y = call->y;
    int64_t groups = eng_attr_int(c->node, "group", 1), m = wt->dims[0], cg = wt->dims[1], mg = m / groups, depth = cg * w->k_count,
            n = eng_count(wt);
    eng_conv_image g;
    if (call->pool || !w->out_count || !n || depth > DEPTH_MAX || mg > DEPTH_MAX || !eng_conv_image_plan(w, cg, true, &g))
        return 1;
    int64_t slack = 8 * kn->nr,
            rows = (n / groups > 32768 ? CHUNK_LARGE : CHUNK_FLOATS) / (mg * g.qw); /* large weights should pass few times */
    double products = (double)mg * (double)depth * (double)w->out_count;
    int workers = eng_op_workers(c, products);
    if (workers > 1 && rows > g.out_h / (2 * workers)) /* something for each to do */
        rows = g.out_h / (2 * workers);
    rows = rows < 1 ? 1 : rows > g.out_h ? g.out_h : rows;
    int64_t ldc = ((rows - 1) * g.qw + g.out_w + 4 * kn->nr - 1) / (4 * kn->nr) * 4 * kn->nr + kn->nr;
    size_t max = c->plan->m->limits.tensor_bytes_max / sizeof(float);
    if ((uint64_t)g.image > max || (uint64_t)(workers * mg * ldc) > max)
        return 1;
    const float *a = kept && kept->of == wt->data ? kept->packed : NULL;
    float *image = eng_op_scratch(c, (size_t)(g.image + slack) * sizeof *image),
          *chunk = eng_op_scratch(c, (size_t)(workers * mg * ldc) * sizeof *chunk),
          *own = a ? NULL : eng_op_scratch(c, (size_t)n * sizeof *own);
    int32_t *off = eng_op_scratch(c, (size_t)depth * sizeof *off);
    if (!image || !chunk || !off || (!a && !own))
        return PST_ELIMIT;
    for (int64_t i = 0; own && i < groups; i++)
        eng_sgemm_pack_left(kn, (int)mg, (int)depth, (const float *)wt->data + i * mg * depth, (int)depth, own + i * mg * depth);
    a = a ? a : own;
    PST_ASSERT(g.channel * cg <= g.image && rows >= 1 && rows <= g.out_h && ldc >= (rows - 1) * g.qw + g.out_w);
    memset(image, 0, (size_t)(g.image + slack) * sizeof *image);
    eng_conv_image_offsets(&g, cg, off);
    eng_epilogue *e = c->epilogue;
    const float *add = NULL;
    bool relu = false;
    if (eng_conv_takes(e, x->dims[0], m, w)) {
        add = e->add ? e->add->data : NULL;
        relu = e->act == ENG_ACT_RELU;
        e->done = true;
    }
    job j = {.kn = kn,
             .g = &g,
             .off = off,
             .m = (int)mg,
             .depth = (int)depth,
             .image = image,
             .relu = relu,
             .chunk = chunk,
             .chunk_rows = rows,
             .ldc = ldc};
    for (int64_t i = 0; i < x->dims[0]; i++)
        for (int64_t k = 0; k < groups; k++) {
            eng_conv_image_fill(&g, (const float *)x->data + (i * x->dims[1] + k * cg) * w->in_count, cg, image);
            j.a = a + k * mg * depth;
            j.bias = bias ? bias + k * mg : NULL;
            j.y = y + (i * m + k * mg) * w->out_count;
            j.add = add ? add + (i * m + k * mg) * w->out_count : NULL;
            int rc = eng_op_parts(c, (g.out_h + rows - 1) / rows, products, run_rows, &j);
            if (rc < 0)
                return rc;
        }
    if (e && e->done && e->act != ENG_ACT_NONE && !relu)
        kn->act(e->act, e->alpha, e->beta, y, y, (size_t)(x->dims[0] * m * w->out_count));
    c->kernel = cg == 1 && mg == 1 ? "depthwise tiles" : "convolution tiles";
    return 0;
}

const eng_node_backend eng_conv_fast_backend = {
    .name = "convolution tiles", .op = "Conv", .supports = supports, .cost = cost, .prepare = prepare, .submit = submit};
