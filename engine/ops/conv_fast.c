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

#include <string.h>

enum { CHUNK_FLOATS = 16384, CHUNK_LARGE = 65536, DEPTH_MAX = 1 << 20 };

typedef struct geometry {
    int64_t in_h, in_w, out_h, out_w, kh, kw, sh, sw, dh, dw, pt, pl;
    int64_t qh, qw;         /* of one phase of the padded image */
    int64_t channel, image; /* floats */
} geometry;

static bool plan_geometry(const pst_window *w, int64_t channels, geometry *g)
{
    bool two = w->n == 2;
    int y = 0, x = two ? 1 : 0;
    if (w->n > 2)
        return false;
    *g = (geometry){.in_h = two ? w->in[y] : 1,
                    .in_w = w->in[x],
                    .out_h = two ? w->out[y] : 1,
                    .out_w = w->out[x],
                    .kh = two ? w->k[y] : 1,
                    .kw = w->k[x],
                    .sh = two ? w->stride[y] : 1,
                    .sw = w->stride[x],
                    .dh = two ? w->dil[y] : 1,
                    .dw = w->dil[x],
                    .pt = two ? w->pad[y] : 0,
                    .pl = w->pad[x]};
    int64_t reach_h = (g->kh - 1) * g->dh + 1, reach_w = (g->kw - 1) * g->dw + 1, phases;
    /* what the last output reaches; windows that would need more of these are left to the general way */
    if (g->sh > 8 || g->sw > 8 || reach_h > 1 << 15 || reach_w > 1 << 15 || g->out_h > 1 << 20 || g->out_w > 1 << 20)
        return false;
    int64_t need_h = (g->out_h - 1) * g->sh + reach_h, need_w = (g->out_w - 1) * g->sw + reach_w;
    g->qh = (need_h + g->sh - 1) / g->sh;
    g->qw = (need_w + g->sw - 1) / g->sw;
    phases = g->sh * g->sw;
    /* An odd number of cache lines per channel: with powers of two all channels would fall on the same sets. */
    if (g->qh * g->qw > INT32_MAX / 128)
        return false;
    g->channel = (g->qh * g->qw * phases + 15) / 16 | 1;
    g->channel *= 16;
    return !__builtin_mul_overflow(g->channel, channels, &g->image) && g->image < INT32_MAX / 2;
}

/* Offsets of all kernel positions, in the order of the weights: channel, ky, kx. */
static void fill_offsets(const geometry *g, int64_t channels, int32_t *off)
{
    for (int64_t c = 0; c < channels; c++)
        for (int64_t ky = 0; ky < g->kh; ky++)
            for (int64_t kx = 0; kx < g->kw; kx++) {
                int64_t y = ky * g->dh, x = kx * g->dw, phase = y % g->sh * g->sw + x % g->sw;
                *off++ = (int32_t)(c * g->channel + phase * g->qh * g->qw + y / g->sh * g->qw + x / g->sw);
            }
}

/* One phase row: every sw-th number of a padded row, from column `first` (without padding) on. */
static void copy_row(const float *from, int64_t in_w, int64_t first, int64_t sw, float *to, int64_t n)
{
    int64_t i = 0, x = first;
    for (; i < n && x < 0; i++, x += sw)
        to[i] = 0;
    int64_t inside = x < in_w ? (in_w - 1 - x) / sw + 1 : 0, end = i + inside < n ? i + inside : n;
    if (sw == 1 && end > i) {
        memcpy(to + i, from + x, (size_t)(end - i) * sizeof *to);
    } else if (sw == 2) {
        const float *at = from + x;
        for (int64_t k = 0; k < end - i; k++)
            to[i + k] = at[2 * k];
    } else {
        for (int64_t k = 0; k < end - i; k++)
            to[i + k] = from[x + k * sw];
    }
    i = end > i ? end : i;
    if (i < n)
        memset(to + i, 0, (size_t)(n - i) * sizeof *to);
}

/* Some kernel position reads this phase. */
static bool wanted(int64_t phase, int64_t k, int64_t dil, int64_t stride)
{
    for (int64_t i = 0; i < k; i++)
        if (i * dil % stride == phase)
            return true;
    return false;
}

static void pad_image(const geometry *g, const float *x, int64_t channels, float *to)
{
    for (int64_t py = 0; py < g->sh; py++)
        for (int64_t px = 0; px < g->sw; px++) {
            if (!wanted(py, g->kh, g->dh, g->sh) || !wanted(px, g->kw, g->dw, g->sw))
                continue;
            for (int64_t c = 0; c < channels; c++) {
                float *at = to + c * g->channel + (py * g->sw + px) * g->qh * g->qw;
                const float *plane = x + c * g->in_h * g->in_w;
                for (int64_t r = 0; r < g->qh; r++, at += g->qw) {
                    int64_t y = r * g->sh + py - g->pt;
                    if (y < 0 || y >= g->in_h)
                        memset(at, 0, (size_t)g->qw * sizeof *at);
                    else
                        copy_row(plane + y * g->in_w, g->in_w, px - g->pl, g->sw, at, g->qw);
                }
            }
        }
}

typedef struct job {
    const pst_cpu_kernels *kn;
    const geometry *g;
    const float *a; /* packed weights of the group */
    const int32_t *off;
    int m, depth;
    const float *image, *bias, *add;
    bool relu;
    float *chunk, *y;
    int64_t chunk_rows, ldc;
} job;

/* All outputs of one group of one image. */
static void run_group(const job *j)
{
    const geometry *g = j->g;
    pst_block b = {.m = j->m, .k = j->depth, .a = j->a, .off = j->off, .c = j->chunk, .ldc = j->ldc};
    for (int64_t row = 0; row < g->out_h; row += j->chunk_rows) {
        int64_t rows = g->out_h - row < j->chunk_rows ? g->out_h - row : j->chunk_rows;
        b.n = (int)((rows - 1) * g->qw + g->out_w);
        b.b = j->image + row * g->qw;
        j->kn->conv(&b);
        for (int64_t c = 0; c < j->m; c++) {
            int64_t at = (c * g->out_h + row) * g->out_w;
            j->kn->plane((int)rows, (int)g->out_w, j->chunk + c * j->ldc, g->qw, j->bias ? j->bias[c] : 0, j->add ? j->add + at : NULL,
                         j->relu, j->y + at, g->out_w);
        }
    }
}

int pst_conv_fast_prepare(pst_op_ctx *c, const pst_cpu_kernels *kn, const pst_tensor *w, int64_t groups, pst_conv_weights *ret)
{
    int64_t n = pst_count(w), m = w->rank ? w->dims[0] : 0, depth = m ? n / m : 0, mg = groups > 0 ? m / groups : 0;
    *ret = (pst_conv_weights){0};
    if (!n || w->dtype != PST_F32 || w->rank < 3 || w->rank > 4 || groups < 1 || m % groups || depth > DEPTH_MAX)
        return 0;
    float *to = pst_keep(c, (size_t)n * sizeof *to);
    for (int64_t i = 0; i < groups; i++)
        pst_sgemm_pack_left(kn, (int)mg, (int)depth, (const float *)w->data + i * mg * depth, (int)depth, to + i * mg * depth);
    ret->packed = to;
    ret->of = w->data;
    return 0;
}

int pst_conv_fast(pst_op_ctx *c, const pst_cpu_kernels *kn, const pst_conv_weights *kept, const pst_tensor *x, const pst_tensor *wt,
                  const float *bias, const pst_window *w, float *y)
{
    int64_t groups = pst_attr_int(c->node, "group", 1), m = wt->dims[0], cg = wt->dims[1], mg = m / groups, depth = cg * w->k_count,
            n = pst_count(wt);
    geometry g;
    if (!w->out_count || !n || depth > DEPTH_MAX || mg > DEPTH_MAX || !plan_geometry(w, cg, &g))
        return 1;
    int64_t slack = 8 * kn->nr,
            rows = (n / groups > 32768 ? CHUNK_LARGE : CHUNK_FLOATS) / (mg * g.qw); /* large weights should pass few times */
    rows = rows < 1 ? 1 : rows > g.out_h ? g.out_h : rows;
    int64_t ldc = ((rows - 1) * g.qw + g.out_w + 4 * kn->nr - 1) / (4 * kn->nr) * 4 * kn->nr + kn->nr;
    size_t max = c->plan->m->limits.tensor_bytes_max / sizeof(float);
    if ((uint64_t)g.image > max || (uint64_t)(mg * ldc) > max)
        return 1;
    const float *a = kept && kept->packed && kept->of == wt->data ? kept->packed : NULL;
    float *image = pst_scratch(c, (size_t)(g.image + slack) * sizeof *image), *chunk = pst_scratch(c, (size_t)(mg * ldc) * sizeof *chunk),
          *own = a ? NULL : pst_scratch(c, (size_t)n * sizeof *own);
    int32_t *off = pst_scratch(c, (size_t)depth * sizeof *off);
    if (!image || !chunk || !off || (!a && !own))
        return PST_ELIMIT;
    for (int64_t i = 0; own && i < groups; i++)
        pst_sgemm_pack_left(kn, (int)mg, (int)depth, (const float *)wt->data + i * mg * depth, (int)depth, own + i * mg * depth);
    a = a ? a : own;
    memset(image + g.image, 0, (size_t)slack * sizeof *image);
    fill_offsets(&g, cg, off);
    pst_epilogue *e = c->epilogue;
    const float *add = NULL;
    bool relu = false;
    if (e && (!e->add || (e->add->rank == x->rank && pst_count(e->add) == x->dims[0] * m * w->out_count && e->add->dims[1] == m &&
                          !memcmp(e->add->dims + 2, w->out, (size_t)w->n * sizeof *w->out)))) {
        add = e->add ? e->add->data : NULL;
        relu = e->act == PST_ACT_RELU;
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
            pad_image(&g, (const float *)x->data + (i * x->dims[1] + k * cg) * w->in_count, cg, image);
            j.a = a + k * mg * depth;
            j.bias = bias ? bias + k * mg : NULL;
            j.y = y + (i * m + k * mg) * w->out_count;
            j.add = add ? add + (i * m + k * mg) * w->out_count : NULL;
            run_group(&j);
        }
    if (e && e->done && e->act != PST_ACT_NONE && !relu)
        kn->act(e->act, e->alpha, y, y, (size_t)(x->dims[0] * m * w->out_count));
    c->kernel = cg == 1 && mg == 1 ? "depthwise tiles" : "convolution tiles";
    return 0;
}
