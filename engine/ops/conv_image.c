/* conv_image.c - the input once with its border, so that kernels have no edge to think of. With stride 2, even and odd columns are laid apart:
 * a kernel then reads neighbours at every stride. Border and gaps are zeros that are written anew with each image. */
#include "engine/ops/conv_image.h"

#include <string.h>

bool eng_conv_image_plan(const eng_window *w, int64_t channels, bool split, eng_conv_image *g)
{
    bool two = w->n == 2;
    int y = 0, x = two ? 1 : 0;
    if (w->n > 2)
        return false;
    int64_t sh = two ? w->stride[y] : 1, sw = w->stride[x];
    *g = (eng_conv_image){.in_h = two ? w->in[y] : 1,
                          .in_w = w->in[x],
                          .out_h = two ? w->out[y] : 1,
                          .out_w = w->out[x],
                          .kh = two ? w->k[y] : 1,
                          .kw = w->k[x],
                          .sh = split ? sh : 1,
                          .sw = split ? sw : 1,
                          .dh = two ? w->dil[y] : 1,
                          .dw = w->dil[x],
                          .pt = two ? w->pad[y] : 0,
                          .pl = w->pad[x]};
    int64_t reach_h = (g->kh - 1) * g->dh + 1, reach_w = (g->kw - 1) * g->dw + 1;
    /* what the last output reaches; windows that would need more of these are left to the general way */
    if (sh > 8 || sw > 8 || reach_h > 1 << 15 || reach_w > 1 << 15 || g->out_h > 1 << 20 || g->out_w > 1 << 20)
        return false;
    int64_t need_h = (g->out_h - 1) * sh + reach_h, need_w = (g->out_w - 1) * sw + reach_w;
    g->qh = (need_h + g->sh - 1) / g->sh;
    g->qw = (need_w + g->sw - 1) / g->sw;
    /* An odd number of cache lines per channel: with powers of two all channels would fall on the same sets. */
    if (g->qh * g->qw > INT32_MAX / 128)
        return false;
    g->channel = (g->qh * g->qw * g->sh * g->sw + 15) / 16 | 1;
    g->channel *= 16;
    return !__builtin_mul_overflow(g->channel, channels, &g->image) && g->image < INT32_MAX / 2;
}

void eng_conv_image_offsets(const eng_conv_image *g, int64_t channels, int32_t *off)
{
    int64_t n = g->kh * g->kw;
    for (int64_t k = 0; k < n && channels; k++) {
        int64_t y = k / g->kw * g->dh, x = k % g->kw * g->dw, phase = y % g->sh * g->sw + x % g->sw;
        off[k] = (int32_t)(phase * g->qh * g->qw + y / g->sh * g->qw + x / g->sw);
    }
    for (int64_t k = n; k < n * channels; k++)
        off[k] = off[k - n] + (int32_t)g->channel;
}

/* Rows of n numbers, ldfrom and ldto apart. As blocks of which the last overlaps: rows are short, a call for each would cost more than
 * the copy. */
static void copy_rows(int64_t rows, int64_t n, const float *from, int64_t ldfrom, float *to, int64_t ldto)
{
    enum { BLOCK = 4 };
    for (int64_t r = 0; r < rows; r++, from += ldfrom, to += ldto) {
        if (n < BLOCK) {
            for (int64_t i = 0; i < n; i++)
                to[i] = from[i];
            continue;
        }
        for (int64_t i = 0; i < n - BLOCK; i += BLOCK)
            memcpy(to + i, from + i, BLOCK * sizeof *to);
        memcpy(to + n - BLOCK, from + n - BLOCK, BLOCK * sizeof *to);
    }
}

/* The same of every step-th number. */
static void pick_rows(int64_t rows, int64_t n, const float *from, int64_t ldfrom, int64_t step, float *to, int64_t ldto)
{
    for (int64_t r = 0; r < rows; r++, from += ldfrom, to += ldto)
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i * step];
}

bool eng_conv_takes(const eng_epilogue *e, int64_t images, int64_t m, const eng_window *w)
{
    const pst_tensor *a = e ? e->add : NULL;
    return e && (!a || (a->rank == w->n + 2 && eng_count(a) == images * m * w->out_count && a->dims[1] == m &&
                        !memcmp(a->dims + 2, w->out, (size_t)w->n * sizeof *w->out)));
}

/* Some kernel position reads this phase. */
static bool wanted(int64_t phase, int64_t k, int64_t dil, int64_t stride)
{
    for (int64_t i = 0; i < k; i++)
        if (i * dil % stride == phase)
            return true;
    return false;
}

/* Of q numbers whose i-th is input i·stride + first: those inside [0, in). */
static void inside(int64_t first, int64_t stride, int64_t in, int64_t q, int64_t *from, int64_t *to)
{
    *from = first < 0 ? (-first + stride - 1) / stride : 0;
    *to = in > first ? (in - 1 - first) / stride + 1 : 0;
    *to = *to < q ? *to : q;
}

typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));

/* Rows of n pairs: their first numbers, their second numbers. */
static void split_rows(int64_t rows, int64_t n, const float *from, int64_t ldfrom, float *first, float *second, int64_t ldto)
{
    enum { BLOCK = 4 };
    for (int64_t r = 0; r < rows; r++, from += ldfrom, first += ldto, second += ldto) {
        for (int64_t i = 0; i < n && n < BLOCK; i++) {
            first[i] = from[2 * i];
            second[i] = from[2 * i + 1];
        }
        for (int64_t i = 0; i < n && n >= BLOCK; i += BLOCK) {
            i = n - i < BLOCK ? n - BLOCK : i; /* the last block overlaps */
            v4 a = *(const v4 *)(from + 2 * i), b = *(const v4 *)(from + 2 * i + BLOCK);
            *(v4 *)(first + i) = __builtin_shufflevector(a, b, 0, 2, 4, 6);
            *(v4 *)(second + i) = __builtin_shufflevector(a, b, 1, 3, 5, 7);
        }
    }
}

/* Rows of one channel, stride 2: both phases of the columns at once. to: row 0 of the first phase. */
static void fill_both(const eng_conv_image *g, int64_t rows, const float *from, float *to)
{
    int64_t phase = g->qh * g->qw, ld = g->sh * g->in_w, at = g->pl / 2, at2 = (g->pl + 1) / 2, n = (g->in_w + 1) / 2, n2 = g->in_w / 2;
    float *first = to + (g->pl % 2) * phase + at, *second = to + (1 - g->pl % 2) * phase + at2;
    n = n < g->qw - at ? n : g->qw - at;
    n2 = n2 < g->qw - at2 ? n2 : g->qw - at2;
    split_rows(rows, n2, from, ld, first, second, g->qw);
    if (n2 >= 0 && n > n2) /* by one at most */
        pick_rows(rows, n - n2, from + 2 * n2, ld, 2, first + n2, g->qw);
}

/* Rows of one channel that one phase of the columns takes. */
static void fill_phase(const eng_conv_image *g, int64_t px, int64_t rows, const float *from, float *to)
{
    int64_t col, end;
    inside(px - g->pl, g->sw, g->in_w, g->qw, &col, &end);
    from += col * g->sw + px - g->pl;
    to += px * g->qh * g->qw + col;
    if (g->sw == 1 && col < end)
        copy_rows(rows, end - col, from, g->sh * g->in_w, to, g->qw);
    else if (col < end)
        pick_rows(rows, end - col, from, g->sh * g->in_w, g->sw, to, g->qw);
}

void eng_conv_image_fill(const eng_conv_image *g, const float *x, int64_t channels, float *to)
{
    bool both = g->sw == 2 && wanted(0, g->kw, g->dw, 2) && wanted(1, g->kw, g->dw, 2);
    for (int64_t py = 0; py < g->sh; py++) {
        int64_t row, end;
        inside(py - g->pt, g->sh, g->in_h, g->qh, &row, &end);
        if (row >= end || !wanted(py, g->kh, g->dh, g->sh))
            continue;
        for (int64_t c = 0; c < channels; c++) {
            const float *from = x + (c * g->in_h + row * g->sh + py - g->pt) * g->in_w;
            float *at = to + c * g->channel + py * g->sw * g->qh * g->qw + row * g->qw;
            for (int64_t px = 0; px < g->sw && !both; px++)
                if (wanted(px, g->kw, g->dw, g->sw))
                    fill_phase(g, px, end - row, from, at);
            if (both)
                fill_both(g, end - row, from, at);
        }
    }
}
