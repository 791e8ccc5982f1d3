/* quant_conv.c - convolutions of bytes as products: an image is turned so that the channels of a pixel lie side by side, the windows of some pixels
 * become the rows of a left side, filters are the right side. A filter for each channel by itself (depthwise) is summed without a product. Sums are
 * rounded to bytes while they are in the cache. */
#include "engine/ops/quant_conv.h"

#include "engine/ops/kernels.h"
#include "engine/ops/quant_matmul.h"
#include "engine/share.h"

#include <limits.h>
#include <string.h>

typedef struct filters {
    const void *of;
    eng_int8_right *groups;
} filters;

static const eng_int8_kernels *kernels_of(const eng_op_ctx *c)
{
    return eng_int8_pick(eng_kernels_pick(c->plan->isa)->isa);
}

static bool is_depthwise(const pst_tensor *w, int64_t groups)
{
    return w->dims[1] == 1 && w->dims[0] == groups;
}

static int64_t depth_of(const pst_tensor *w)
{
    return w->dims[0] ? eng_count(w) / w->dims[0] : 0;
}

/* Filters of group g, positions outside and channels inside; turned: room of one group's filters. */
static void pack_group(const eng_int8_kernels *kn, const pst_tensor *w, int64_t groups, int64_t g, uint8_t *turned, void *room,
                       eng_int8_right *ret)
{
    int64_t mg = w->dims[0] / groups, cg = w->dims[1], depth = depth_of(w), k = depth / cg;
    const uint8_t *from = (const uint8_t *)w->data + g * mg * depth;
    for (int64_t j = 0; j < mg; j++)
        for (int64_t ch = 0; ch < cg; ch++)
            for (int64_t p = 0; p < k; p++)
                turned[j * depth + p * cg + ch] = from[j * depth + ch * k + p];
    eng_int8_pack(kn, (int)mg, (int)depth, turned, 1, (size_t)depth, w->dtype == PST_I8, room, ret);
}

static int64_t groups_of(const eng_op_ctx *c)
{
    return eng_attr_int(c->node, "group", 1);
}

static int filters_at(const eng_op_ctx *c)
{
    return strcmp(c->node->op_type, "ConvInteger") == 0 ? 1 : 3;
}

static int pack_all(eng_op_ctx *c, void *made)
{
    const pst_tensor *w = eng_in(c, filters_at(c));
    const eng_int8_kernels *kn = kernels_of(c);
    filters *f = made;
    int64_t groups = groups_of(c), mg = w->dims[0] / groups;
    uint8_t *turned = eng_op_scratch(c, (size_t)(mg * depth_of(w)));
    if (!turned)
        return PST_ELIMIT;
    f->of = w->data;
    f->groups = eng_op_keep(c, (size_t)groups * sizeof *f->groups);
    for (int64_t g = 0; g < groups; g++)
        pack_group(kn, w, groups, g, turned, eng_op_keep(c, eng_int8_right_bytes(kn, (int)mg, (int)depth_of(w))), &f->groups[g]);
    return 0;
}

int eng_int8_conv_prepare(eng_op_ctx *c, int at)
{
    const pst_tensor *w = eng_in(c, at);
    int64_t groups = groups_of(c);
    if (!w || (w->dtype != PST_U8 && w->dtype != PST_I8) || w->rank < 3 || c->plan->opts.no_fusion || !eng_count(w) || groups < 1 ||
        w->dims[0] % groups || is_depthwise(w, groups) || eng_count(w) > INT_MAX / 4)
        return 0;
    const eng_int8_kernels *kn = kernels_of(c);
    if (!eng_plan_room_take(c->plan, (size_t)groups * eng_int8_right_bytes(kn, (int)(w->dims[0] / groups), (int)depth_of(w))))
        return 0;
    const eng_share_key key = {.what = "int8 filters",
                               .of = w->data,
                               .by = (const void *)(uintptr_t)w->dims[1], /* a view of the data may have another shape */
                               .variant = w->dims[0] << 31 | groups << 1 | (w->dtype == PST_I8)};
    return eng_op_share(c, &key, eng_of_model(c, at), sizeof(filters), pack_all, c->state);
}

/* Where the window of result o touches the image, -1 in the padding; two dimensions without a division for each. */
static void window_places(const eng_window *w, int64_t o, int64_t *ret)
{
    if (w->n != 2) {
        for (int64_t k = 0; k < w->k_count; k++)
            ret[k] = eng_window_at(w, o, k);
        return;
    }
    int64_t top = o / w->out[1] * w->stride[0] - w->pad[0], left = o % w->out[1] * w->stride[1] - w->pad[1];
    for (int64_t a = 0; a < w->k[0]; a++) {
        int64_t row = top + a * w->dil[0];
        for (int64_t b = 0; b < w->k[1]; b++) {
            int64_t col = left + b * w->dil[1];
            *ret++ = row < 0 || row >= w->in[0] || col < 0 || col >= w->in[1] ? -1 : row * w->in[1] + col;
        }
    }
}

/* Work of one convolution. The image is turned and of unsigned bytes: those of the other kind are moved by 128. */
typedef struct work {
    const eng_int8_kernels *kernels;
    uint8_t *image, *rows; /* rows: windows, where the kernels do not take them as they are; then bytes of results */
    int64_t *places;
    int32_t *sums;
    uint8_t zero; /* of the image */
} work;

/* Sums of some pixels (n, wide), the filters from `first` on, to their planes, from pixel o on. */
static void to_planes(const eng_int8_conv *g, const work *k, int64_t image, int64_t first, int64_t wide, int64_t o, int64_t n)
{
    int64_t plane = g->window->out_count, at = (image * g->w->dims[0] + first) * plane + o;
    if (g->y) {
        for (int64_t j = 0; j < wide; j++)
            for (int64_t i = 0; i < n; i++)
                g->y[at + j * plane + i] = k->sums[i * wide + j];
        return;
    }
    for (int64_t i = 0; i < n; i++)
        k->kernels->requantise(wide, k->sums + i * wide, g->scale + first, 1, g->zero, g->lo, k->rows + i * wide);
    if (g->fused)
        eng_int8_cut(g->fused, g->lo, n * wide, k->rows);
    k->kernels->turn(n, wide, k->rows, wide, 0, g->bytes + at, plane);
}

/* A row of a window whose pixels lie side by side in the image: cols pixels from `col` on, which may lie outside. */
static uint8_t *gather_row(const uint8_t *row, int64_t col, int64_t cols, int64_t in, int64_t channels, uint8_t zero, uint8_t *to)
{
    int64_t from = 0, end = in - col < cols ? in - col : cols;
    if (col < 0)
        from = -col < cols ? -col : cols;
    end = end > from ? end : from;
    if (from)
        memset(to, zero, (size_t)(from * channels));
    if (end > from)
        memcpy(to + from * channels, row + (col + from) * channels, (size_t)((end - from) * channels));
    if (cols > end)
        memset(to + end * channels, zero, (size_t)((cols - end) * channels));
    return to + cols * channels;
}

/* The window of result o, the channels of one group: depth bytes. */
static void gather(const eng_int8_conv *g, const work *k, int64_t group, int64_t o, uint8_t *to)
{
    const eng_window *w = g->window;
    int64_t channels = g->x->dims[1], cg = g->w->dims[1];
    if (w->n == 2 && w->dil[1] == 1 && g->groups == 1) {
        int64_t top = o / w->out[1] * w->stride[0] - w->pad[0], left = o % w->out[1] * w->stride[1] - w->pad[1];
        for (int64_t a = 0; a < w->k[0]; a++) {
            int64_t row = top + a * w->dil[0];
            bool outside = row < 0 || row >= w->in[0]; /* then all columns are, too */
            to = gather_row(outside ? k->image : k->image + row * w->in[1] * channels, outside ? w->in[1] : left, w->k[1], w->in[1],
                            channels, k->zero, to);
        }
        return;
    }
    window_places(w, o, k->places);
    for (int64_t p = 0; p < w->k_count; p++, to += cg)
        if (k->places[p] < 0)
            memset(to, k->zero, (size_t)cg);
        else
            memcpy(to, k->image + k->places[p] * channels + group * cg, (size_t)cg);
}

/* Results o … o + n of a group. */
static void group_sums(const eng_int8_conv *g, const work *k, const eng_int8_mul *mul, int64_t group, int64_t o, int64_t n)
{
    int64_t depth = depth_of(g->w), pitch = 4 * eng_int8_places(k->kernels, (int)depth);
    if (k->kernels->depth != 4) { /* bytes become numbers of 16 bits */
        for (int64_t i = 0; i < n; i++)
            gather(g, k, group, o + i, k->rows + i * depth);
        eng_int8_mul_rows(mul, (int)n, k->rows, (size_t)depth, 1, k->sums, mul->right->n);
        return;
    }
    uint8_t *row = (uint8_t *)mul->left;
    for (int64_t i = 0; i < n; i++, row += pitch) {
        memset(row + pitch - 4, 0, 4); /* beyond the window */
        gather(g, k, group, o + i, row);
        uint32_t sum = 0;
        for (int64_t p = 0; p < depth && mul->zb; p++)
            sum += row[p];
        mul->sums[i] = (int32_t)sum;
    }
    eng_int8_mul_left(mul, (int)n, mul->left, k->sums, mul->right->n);
}

static int group_out(eng_op_ctx *c, const eng_int8_conv *g, work *k, const eng_int8_right *right, int64_t group, int64_t image)
{
    int64_t mg = g->w->dims[0] / g->groups, out = g->window->out_count, depth = depth_of(g->w), wide = mg > depth ? mg : depth;
    eng_int8_mul mul;
    PST_ASSERT(right->n == mg && right->k == depth); /* what is shared was packed for this shape */
    /* the image is unsigned: its zero point is, too */
    int rc = eng_int8_mul_make(c, right, false, g->w->dtype == PST_I8, k->zero, g->zw + (g->n_zw == 1 ? 0 : group * mg),
                               g->n_zw == 1 ? 1 : mg, g->bias ? g->bias + group * mg : NULL, &mul);
    if (rc < 0)
        return rc;
    k->rows = eng_op_scratch(c, (size_t)mul.rows * (size_t)wide);
    k->sums = eng_op_scratch(c, (size_t)mul.rows * (size_t)mg * sizeof *k->sums);
    if (!k->rows || !k->sums)
        return PST_ELIMIT;
    for (int64_t o = 0; o < out && rc == 0; o += mul.rows, rc = eng_op_pause(c)) {
        int64_t n = out - o < mul.rows ? out - o : mul.rows;
        group_sums(g, k, &mul, group, o, n);
        to_planes(g, k, image, group * mg, mg, o, n);
    }
    return rc;
}

/* A filter for each channel: w (positions, channels) with the zero points taken out. */
static int depthwise_out(eng_op_ctx *c, const eng_int8_conv *g, const work *k, const int16_t *w, int64_t image)
{
    enum { SOME = 64 };
    int64_t channels = g->x->dims[1], out = g->window->out_count;
    int rc = 0;
    for (int64_t o = 0; o < out && rc == 0; o += SOME, rc = eng_op_pause(c)) {
        int64_t n = out - o < SOME ? out - o : SOME;
        for (int64_t i = 0; i < n; i++) {
            int32_t *sum = k->sums + i * channels;
            for (int64_t ch = 0; ch < channels; ch++)
                sum[ch] = g->bias ? g->bias[ch] : 0;
            window_places(g->window, o + i, k->places);
            for (int64_t p = 0; p < g->window->k_count; p++)
                if (k->places[p] >= 0)
                    k->kernels->add_products(channels, k->image + k->places[p] * channels, k->zero, w + p * channels, sum);
        }
        to_planes(g, k, image, 0, channels, o, n);
    }
    return rc;
}

static void turn_image(const eng_int8_conv *g, const work *k, int64_t image)
{
    int64_t channels = g->x->dims[1], in = g->window->in_count;
    k->kernels->turn(channels, in, (const uint8_t *)g->x->data + image * channels * in, in, g->x->dtype == PST_I8 ? 128 : 0, k->image,
                     channels);
}

static int depthwise(eng_op_ctx *c, const eng_int8_conv *g, work *k)
{
    int64_t channels = g->x->dims[1], positions = g->window->k_count;
    int16_t *w = eng_op_scratch(c, (size_t)(channels * positions) * sizeof *w);
    k->sums = eng_op_scratch(c, (size_t)(64 * channels) * sizeof *k->sums);
    k->rows = eng_op_scratch(c, (size_t)(64 * channels));
    if (!w || !k->sums || !k->rows)
        return PST_ELIMIT;
    for (int64_t i = 0; i < channels * positions; i++) {
        int v = g->w->dtype == PST_I8 ? ((const int8_t *)g->w->data)[i] : ((const uint8_t *)g->w->data)[i];
        w[i % positions * channels + i / positions] = (int16_t)(v - g->zw[g->n_zw == 1 ? 0 : i / positions]);
    }
    int rc = 0;
    for (int64_t n = 0; n < g->x->dims[0] && rc == 0; n++) {
        turn_image(g, k, n);
        rc = depthwise_out(c, g, k, w, n);
    }
    return rc;
}

/* The filters of a group: those that were packed, or packed now. NULL = no memory. */
static const eng_int8_right *right_of(eng_op_ctx *c, const eng_int8_conv *g, int64_t group, eng_int8_right *now)
{
    const filters *kept = *c->state;
    if (kept && kept->of == g->w->data)
        return &kept->groups[group];
    const eng_int8_kernels *kn = kernels_of(c);
    int64_t mg = g->w->dims[0] / g->groups, depth = depth_of(g->w);
    uint8_t *turned = eng_op_scratch(c, (size_t)(mg * depth));
    void *room = turned ? eng_op_scratch(c, eng_int8_right_bytes(kn, (int)mg, (int)depth)) : NULL;
    if (!room)
        return NULL;
    pack_group(kn, g->w, g->groups, group, turned, room, now);
    return now;
}

int eng_int8_conv_run(eng_op_ctx *c, const eng_int8_conv *g)
{
    int64_t channels = g->x->dims[1], in = g->window->in_count;
    work k = {.kernels = kernels_of(c),
              .image = eng_op_scratch(c, (size_t)(channels * in) + 1),
              .places = eng_op_scratch(c, (size_t)g->window->k_count * sizeof *k.places),
              .zero = (uint8_t)(g->zx + eng_int8_shift_left(g->x->dtype == PST_I8))};
    if (!k.image || !k.places)
        return PST_ELIMIT;
    c->kernel = k.kernels->name;
    if (is_depthwise(g->w, g->groups))
        return depthwise(c, g, &k);
    int rc = 0;
    for (int64_t n = 0; n < g->x->dims[0] && rc == 0; n++) {
        turn_image(g, &k, n);
        for (int64_t group = 0; group < g->groups && rc == 0; group++) {
            eng_blk *mark = c->plan->scratch;
            eng_int8_right now;
            const eng_int8_right *right = right_of(c, g, group, &now);
            rc = right ? group_out(c, g, &k, right, group, n) : PST_ELIMIT;
            eng_scratch_free(c->plan, mark);
        }
    }
    return rc;
}
