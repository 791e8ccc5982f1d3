/* sample.c - operators that take images apart and together: sampling at given places, regions of interest, columns, crops. */
#include "engine/ops/kernels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define SPACE_MAX 3 /* dimensions of space */
#define FAR       1e9f

/* ---- GridSample ---- */

typedef enum { PAD_ZEROS, PAD_BORDER, PAD_REFLECTION } padding;
typedef enum { NEAREST, LINEAR, CUBIC } interpolation;

typedef struct sampler {
    int n; /* dimensions of space */
    const int64_t *dims;
    interpolation how;
    padding pad;
    bool align;
    /* of one place: per dimension up to four neighbours with their weights; -1 = outside */
    int taps;
    int64_t at[SPACE_MAX][4];
    float weight[SPACE_MAX][4];
} sampler;

static float reflect(float x, float lo, float hi)
{
    float range = hi - lo;
    if (!(range > 0))
        return lo;
    if (x >= lo && x <= hi)
        return x;
    float beyond = x < lo ? lo - x : x - hi, turns = floorf(beyond / range), rest = beyond - turns * range;
    bool from_low = (x < lo) == (fmodf(turns, 2) == 0);
    return from_low ? lo + rest : hi - rest;
}

static int64_t neighbour(const sampler *s, int i, float x)
{
    int64_t d = s->dims[i], at = (int64_t)x;
    if (s->pad == PAD_ZEROS)
        return at >= 0 && at < d ? at : -1;
    if (s->pad == PAD_REFLECTION)
        at = (int64_t)reflect((float)at, s->align ? 0 : -0.5f, s->align ? (float)(d - 1) : (float)d - 0.5f);
    return at < 0 ? 0 : at >= d ? d - 1 : at;
}

/* Keys' cubic convolution with a = -0.75. */
static void cubic_weights(float t, float *w)
{
    const float a = -0.75f;
    float u = 1 - t;
    w[0] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
    w[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
    w[2] = ((a + 2) * u - (a + 3)) * u * u + 1;
    w[3] = ((a * (u + 1) - 5 * a) * (u + 1) + 8 * a) * (u + 1) - 4 * a;
}

static void locate(sampler *s, int i, float normal)
{
    float d = (float)s->dims[i], lo = s->align ? 0 : -0.5f, hi = s->align ? d - 1 : d - 0.5f;
    float x = s->align ? (normal + 1) / 2 * (d - 1) : ((normal + 1) * d - 1) / 2;
    x = !(x > -FAR) ? -FAR : x > FAR ? FAR : x; /* NaN is far away too */
    if (s->how == NEAREST)
        x = rintf(x);
    if ((x < lo || x > hi) && s->pad == PAD_BORDER)
        x = x < 0 ? 0 : x > d - 1 ? d - 1 : x;
    else if ((x < lo || x > hi) && s->pad == PAD_REFLECTION)
        x = reflect(x, lo, hi);
    float base = floorf(x), t = x - base;
    float *w = s->weight[i];
    if (s->how == NEAREST) {
        w[0] = 1;
        s->at[i][0] = neighbour(s, i, x);
        return;
    }
    if (s->how == CUBIC)
        cubic_weights(t, w);
    else
        w[0] = 1 - t, w[1] = t;
    for (int k = 0; k < s->taps; k++)
        s->at[i][k] = neighbour(s, i, base + (float)(s->how == CUBIC ? k - 1 : k));
}

static float sample(const sampler *s, const float *x)
{
    int total = 1;
    float sum = 0;
    for (int i = 0; i < s->n; i++)
        total *= s->taps;
    for (int k = 0; k < total; k++) {
        int64_t at = 0;
        float w = 1;
        for (int i = 0, rest = k; i < s->n && at >= 0; i++, rest /= s->taps) {
            int q = rest % s->taps;
            at = s->at[i][q] < 0 ? -1 : at * s->dims[i] + s->at[i][q];
            w *= s->weight[i][q];
        }
        if (at >= 0)
            sum += w * x[at];
    }
    return sum;
}

static int sampler_of(eng_op_ctx *c, const pst_tensor *x, sampler *s)
{
    const char *how = eng_attr_str(c->node, "mode", "linear"), *pad = eng_attr_str(c->node, "padding_mode", "zeros");
    *s = (sampler){.n = x->rank - 2, .dims = x->dims + 2, .align = eng_attr_int(c->node, "align_corners", 0)};
    s->how = !strcmp(how, "nearest") ? NEAREST : strstr(how, "cubic") ? CUBIC : LINEAR;
    s->pad = !strcmp(pad, "border") ? PAD_BORDER : !strcmp(pad, "reflection") ? PAD_REFLECTION : PAD_ZEROS;
    s->taps = s->how == NEAREST ? 1 : s->how == CUBIC ? 4 : 2;
    for (int i = 0; i < s->n; i++)
        if (s->dims[i] < 1 || s->dims[i] > 1 << 24) /* beyond, float coordinates cannot tell neighbours apart */
            return eng_op_fail(c, PST_EINVAL, "an image of size %" PRId64, s->dims[i]);
    return 0;
}

int eng_op_grid_sample(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), g = *eng_in(c, 1);
    int n = x.rank - 2;
    sampler s;
    if (x.dtype != PST_F32 || g.dtype != PST_F32)
        return eng_op_type(c, x.dtype);
    if (n < 1 || n > SPACE_MAX || g.rank != x.rank || g.dims[0] != x.dims[0] || g.dims[g.rank - 1] != n)
        return eng_op_fail(c, PST_EINVAL, "images (N, C, D…) of up to %d dimensions and a grid (N, …, %d) are needed", SPACE_MAX, n);
    int64_t dims[PST_MAX_RANK] = {x.dims[0], x.dims[1]}, places = 1, size = 1;
    for (int i = 0; i < n; i++) {
        dims[2 + i] = g.dims[1 + i];
        places *= g.dims[1 + i];
        size *= x.dims[2 + i];
    }
    float *y = eng_out(c, 0, PST_F32, x.rank, dims);
    if (!y)
        return PST_ELIMIT;
    if (!x.dims[0] || !x.dims[1] || !places)
        return 0;
    if ((rc = sampler_of(c, &x, &s)) < 0 || (rc = eng_op_work(c, (double)(x.dims[0] * x.dims[1]) * (double)places * pow(s.taps, n))) < 0)
        return rc;
    for (int64_t b = 0; b < x.dims[0]; b++)
        for (int64_t p = 0; p < places; p++) {
            const float *where = (const float *)g.data + (b * places + p) * n;
            for (int i = 0; i < n; i++)
                locate(&s, i, where[n - 1 - i]); /* a grid names the last dimension first */
            for (int64_t ch = 0; ch < x.dims[1]; ch++)
                y[(b * x.dims[1] + ch) * places + p] = sample(&s, (const float *)x.data + (b * x.dims[1] + ch) * size);
        }
    return 0;
}

/* ---- AffineGrid ---- */

static float grid_at(int64_t i, int64_t dim, bool align)
{
    if (!align)
        return (2 * (float)i + 1) / (float)dim - 1;
    return dim > 1 ? -1 + 2 * (float)i / (float)(dim - 1) : -1;
}

int eng_op_affine_grid(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2), n;
    int64_t size[5], dims[5], places = 1;
    if (rc < 0 || (n = eng_in_ints(c, 1, size, 5) - 2) < 0)
        return PST_EINVAL;
    pst_tensor t = *eng_in(c, 0);
    bool align = eng_attr_int(c->node, "align_corners", 0);
    if (t.dtype != PST_F32)
        return eng_op_type(c, t.dtype);
    if (n < 2 || n > 3 || t.rank != 3 || t.dims[0] != size[0] || t.dims[1] != n || t.dims[2] != n + 1)
        return eng_op_fail(c, PST_EINVAL, "theta (N, 2, 3) with 4 sizes, or (N, 3, 4) with 5, are needed");
    dims[0] = size[0];
    for (int i = 0; i < n; i++)
        dims[1 + i] = size[2 + i];
    dims[1 + n] = n;
    float *y = eng_out(c, 0, PST_F32, n + 2, dims);
    if (!y)
        return PST_ELIMIT;
    for (int i = 0; i < n; i++)
        places *= dims[1 + i];
    for (int64_t b = 0; b < size[0] && places; b++)
        for (int64_t p = 0; p < places; p++, y += n) {
            float at[4] = {0};
            int64_t rest = p;
            for (int i = n - 1; i >= 0; i--) { /* the last dimension is x, the first of a place */
                at[n - 1 - i] = grid_at(rest % dims[1 + i], dims[1 + i], align);
                rest /= dims[1 + i];
            }
            at[n] = 1;
            for (int r = 0; r < n; r++) {
                const float *row = (const float *)t.data + (b * n + r) * (n + 1);
                y[r] = 0;
                for (int k = 0; k <= n; k++)
                    y[r] += row[k] * at[k];
            }
        }
    return 0;
}

/* ---- RoiAlign ---- */

typedef struct roi {
    float x, y, bin_w, bin_h; /* where it begins, and the size of an output's share */
    int64_t grid_w, grid_h;   /* samples of an output */
} roi;

/* Weights and places of the four pixels around (y, x); false outside. */
static bool around(float y, float x, int64_t height, int64_t width, int64_t *at, float *w)
{
    if (!(y >= -1 && y <= (float)height && x >= -1 && x <= (float)width))
        return false;
    y = y > 0 ? y : 0;
    x = x > 0 ? x : 0;
    int64_t y0 = (int64_t)y, x0 = (int64_t)x, y1 = y0 + 1, x1 = x0 + 1;
    if (y0 >= height - 1)
        y = (float)(y0 = y1 = height - 1);
    if (x0 >= width - 1)
        x = (float)(x0 = x1 = width - 1);
    float ly = y - (float)y0, lx = x - (float)x0, hy = 1 - ly, hx = 1 - lx;
    at[0] = y0 * width + x0, at[1] = y0 * width + x1, at[2] = y1 * width + x0, at[3] = y1 * width + x1;
    w[0] = hy * hx, w[1] = hy * lx, w[2] = ly * hx, w[3] = ly * lx;
    return true;
}

static float roi_value(const roi *r, const float *x, int64_t height, int64_t width, int64_t oy, int64_t ox, bool max)
{
    float sum = 0, most = 0;
    bool first = true;
    for (int64_t iy = 0; iy < r->grid_h; iy++)
        for (int64_t ix = 0; ix < r->grid_w; ix++) {
            float yy = r->y + (float)oy * r->bin_h + ((float)iy + 0.5f) * r->bin_h / (float)r->grid_h;
            float xx = r->x + (float)ox * r->bin_w + ((float)ix + 0.5f) * r->bin_w / (float)r->grid_w;
            int64_t at[4] = {0};
            float w[4] = {0}, top = -INFINITY;
            around(yy, xx, height, width, at, w);
            for (int k = 0; k < 4; k++) {
                float v = w[k] * x[at[k]];
                sum += v;
                top = v > top ? v : top;
            }
            most = first || top > most ? top : most;
            first = false;
        }
    int64_t count = r->grid_h * r->grid_w;
    return max ? most : sum / (float)(count > 0 ? count : 1);
}

static int roi_of(eng_op_ctx *c, const float *box, float scale, bool half, int64_t oh, int64_t ow, int64_t ratio, roi *ret)
{
    float offset = half ? 0.5f : 0, x0 = box[0] * scale - offset, y0 = box[1] * scale - offset;
    float width = box[2] * scale - offset - x0, height = box[3] * scale - offset - y0;
    if (!half) { /* as before version 16: at least one pixel */
        width = width > 1 ? width : 1;
        height = height > 1 ? height : 1;
    }
    *ret = (roi){.x = x0, .y = y0, .bin_w = width / (float)ow, .bin_h = height / (float)oh, .grid_w = ratio, .grid_h = ratio};
    if (!(fabsf(ret->bin_w) < 1e6f) || !(fabsf(ret->bin_h) < 1e6f) || !(fabsf(x0) < FAR) || !(fabsf(y0) < FAR))
        return eng_op_fail(c, PST_EINVAL, "a region of interest without bounds");
    if (ratio <= 0) {
        ret->grid_w = ret->bin_w > 0 ? (int64_t)ceilf(ret->bin_w) : 0;
        ret->grid_h = ret->bin_h > 0 ? (int64_t)ceilf(ret->bin_h) : 0;
    }
    return 0;
}

/* How much a box costs stands in the box (an adaptive grid): the work is charged against the limits box by box, before it is done. */
int eng_op_roi_align(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 3);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), rois = *eng_in(c, 1), batch = *eng_in(c, 2);
    int64_t oh = eng_attr_int(c->node, "output_height", 1), ow = eng_attr_int(c->node, "output_width", 1),
            ratio = eng_attr_int(c->node, "sampling_ratio", 0), n = rois.dims[0];
    float scale = eng_attr_float(c->node, "spatial_scale", 1);
    const char *mode = eng_attr_str(c->node, "mode", "avg"),
               *where = eng_attr_str(c->node, "coordinate_transformation_mode", c->node->opset >= 16 ? "half_pixel" : "output_half_pixel");
    bool max = !strcmp(mode, "max");
    if (x.dtype != PST_F32 || rois.dtype != PST_F32)
        return eng_op_type(c, x.dtype);
    if (x.rank != 4 || rois.rank != 2 || rois.dims[1] != 4 || batch.dtype != PST_I64 || batch.rank != 1 || batch.dims[0] != n || oh < 1 ||
        ow < 1 || oh > 1 << 20 || ow > 1 << 20 || ratio > 1 << 20 || x.dims[2] < 1 || x.dims[3] < 1)
        return eng_op_fail(c, PST_EINVAL, "images (N, C, H, W), boxes (R, 4) and batch indices (R) are needed");
    float *y = eng_out(c, 0, PST_F32, 4, (int64_t[]){n, x.dims[1], oh, ow});
    if (!y)
        return PST_ELIMIT;
    for (int64_t r = 0; r < n; r++) {
        int64_t b = ((const int64_t *)batch.data)[r];
        roi at;
        if (b < 0 || b >= x.dims[0])
            return eng_op_fail(c, PST_EINVAL, "batch index %" PRId64 " of %" PRId64 " images", b, x.dims[0]);
        if ((rc = roi_of(c, (const float *)rois.data + 4 * r, scale, !strcmp(where, "half_pixel"), oh, ow, ratio, &at)) < 0 ||
            (rc = eng_op_work(c, (double)x.dims[1] * (double)(oh * ow) * (double)at.grid_h * (double)at.grid_w * 4)) < 0)
            return rc;
        for (int64_t ch = 0; ch < x.dims[1]; ch++)
            for (int64_t p = 0; p < oh * ow; p++)
                *y++ = roi_value(&at, (const float *)x.data + (b * x.dims[1] + ch) * x.dims[2] * x.dims[3], x.dims[2], x.dims[3], p / ow,
                                 p % ow, max);
    }
    return 0;
}

/* ---- CenterCropPad ---- */

/* Per axis the smaller of both lengths is copied from the middle to the middle; of an odd difference the larger half lies behind. */
int eng_op_center_crop_pad(eng_op_ctx *c)
{
    int64_t want[PST_MAX_RANK], dims[PST_MAX_RANK], from[PST_MAX_RANK] = {0}, to[PST_MAX_RANK] = {0}, both[PST_MAX_RANK];
    int rc = eng_op_need(c, 2), n;
    if (rc < 0 || (n = eng_in_ints(c, 1, want, PST_MAX_RANK)) < 0)
        return PST_EINVAL;
    pst_tensor x = *eng_in(c, 0);
    size_t n_axes = 0, size = pst_dtype_size(x.dtype);
    const int64_t *axes = eng_attr_ints(c->node, "axes", &n_axes);
    if ((axes ? (int)n_axes : x.rank) != n || n > x.rank)
        return eng_op_fail(c, PST_EINVAL, "%d sizes for %d axes", n, axes ? (int)n_axes : x.rank);
    memcpy(dims, x.dims, sizeof dims);
    for (int i = 0; i < n; i++) {
        int k = i;
        if (axes && (rc = eng_op_axis(c, axes[i], x.rank, &k)) < 0)
            return rc;
        if (want[i] < 0)
            return eng_op_fail(c, PST_EINVAL, "size %" PRId64, want[i]);
        dims[k] = want[i];
    }
    char *y = eng_out(c, 0, x.dtype, x.rank, dims);
    if (!y)
        return PST_ELIMIT;
    int64_t total = eng_dims_count(dims, x.rank), rows = 1;
    memset(y, 0, (size_t)total * size);
    if (x.dtype == PST_STR)
        for (int64_t i = 0; i < total; i++)
            ((const char **)y)[i] = "";
    for (int i = 0; i < x.rank; i++) {
        both[i] = x.dims[i] < dims[i] ? x.dims[i] : dims[i];
        from[i] = (x.dims[i] - both[i]) / 2;
        to[i] = (dims[i] - both[i]) / 2;
        rows *= i < x.rank - 1 ? both[i] : 1;
    }
    int last = x.rank - 1;
    if (last < 0)
        memcpy(y, x.data, size);
    for (int64_t r = 0; r < rows && last >= 0 && both[last]; r++) {
        int64_t src = 0, dst = 0, rest = r, src_step = x.dims[last], dst_step = dims[last];
        for (int i = last - 1; i >= 0; i--) {
            int64_t q = rest % both[i];
            rest /= both[i];
            src += (from[i] + q) * src_step;
            dst += (to[i] + q) * dst_step;
            src_step *= x.dims[i];
            dst_step *= dims[i];
        }
        memcpy(y + (size_t)(dst + to[last]) * size, (const char *)x.data + (size_t)(src + from[last]) * size, (size_t)both[last] * size);
    }
    return 0;
}

/* ---- Col2Im ---- */

typedef struct columns {
    int n;
    int64_t image[PST_MAX_RANK], block[PST_MAX_RANK], places[PST_MAX_RANK], stride[PST_MAX_RANK], dil[PST_MAX_RANK], pad[PST_MAX_RANK];
    int64_t image_count, block_count, place_count;
} columns;

static int64_t attr_at(const eng_op_ctx *c, const char *name, int i, int64_t def)
{
    size_t n;
    const int64_t *v = eng_attr_ints(c->node, name, &n);
    return v && (size_t)i < n ? v[i] : def;
}

static int columns_of(eng_op_ctx *c, columns *k)
{
    *k = (columns){.image_count = 1, .block_count = 1, .place_count = 1};
    k->n = eng_in_ints(c, 1, k->image, PST_MAX_RANK - 2);
    if (k->n < 1 || eng_in_ints(c, 2, k->block, PST_MAX_RANK - 2) != k->n)
        return eng_op_fail(c, PST_EINVAL, "image_shape and block_shape must be of one length");
    for (int i = 0; i < k->n; i++) {
        int64_t end = attr_at(c, "pads", k->n + i, 0);
        k->stride[i] = attr_at(c, "strides", i, 1);
        k->dil[i] = attr_at(c, "dilations", i, 1);
        k->pad[i] = attr_at(c, "pads", i, 0);
        const int64_t all[] = {k->image[i], k->block[i], k->stride[i], k->dil[i]};
        for (int q = 0; q < 4; q++)
            if (all[q] < 1 || all[q] > INT32_MAX)
                return eng_op_fail(c, PST_EINVAL, "a shape, stride or dilation of %" PRId64, all[q]);
        if (k->pad[i] < 0 || end < 0 || k->pad[i] > INT32_MAX || end > INT32_MAX)
            return eng_op_fail(c, PST_EINVAL, "bad pads");
        int64_t room = k->image[i] + k->pad[i] + end - (k->dil[i] * (k->block[i] - 1) + 1);
        k->places[i] = room < 0 ? 0 : room / k->stride[i] + 1;
        if (__builtin_mul_overflow(k->image_count, k->image[i], &k->image_count) ||
            __builtin_mul_overflow(k->block_count, k->block[i], &k->block_count) ||
            __builtin_mul_overflow(k->place_count, k->places[i], &k->place_count))
            return eng_op_fail(c, PST_ELIMIT, "too large");
    }
    return 0;
}

/* Where element b of a block at place p lies in the image; -1 in the padding. */
static int64_t column_at(const columns *k, int64_t b, int64_t p)
{
    int64_t at = 0, step = 1;
    for (int i = k->n - 1; i >= 0; i--) {
        int64_t v = p % k->places[i] * k->stride[i] + b % k->block[i] * k->dil[i] - k->pad[i];
        if (v < 0 || v >= k->image[i])
            return -1;
        at += v * step;
        step *= k->image[i];
        p /= k->places[i];
        b /= k->block[i];
    }
    return at;
}

int eng_op_col2im(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 3);
    columns k;
    if (rc < 0 || (rc = columns_of(c, &k)) < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    if (x.dtype != PST_F32)
        return eng_op_type(c, x.dtype);
    if (x.rank != 3 || x.dims[1] % k.block_count || x.dims[2] != k.place_count)
        return eng_op_fail(c, PST_EINVAL, "columns (N, C × %" PRId64 ", %" PRId64 ") are needed", k.block_count, k.place_count);
    int64_t channels = x.dims[1] / k.block_count, dims[PST_MAX_RANK] = {x.dims[0], channels};
    memcpy(dims + 2, k.image, (size_t)k.n * sizeof *dims);
    float *y = eng_out(c, 0, PST_F32, k.n + 2, dims);
    if (!y)
        return PST_ELIMIT;
    memset(y, 0, (size_t)eng_dims_count(dims, k.n + 2) * sizeof *y);
    const float *from = x.data;
    for (int64_t ch = 0; ch < x.dims[0] * channels && k.place_count; ch++)
        for (int64_t b = 0; b < k.block_count; b++)
            for (int64_t p = 0; p < k.place_count; p++, from++) {
                int64_t at = column_at(&k, b, p);
                if (at >= 0)
                    y[ch * k.image_count + at] += *from;
            }
    return 0;
}

/* ---- Det ---- */

/* By elimination with the largest pivot; a is destroyed. */
static double determinant(double *a, int64_t n)
{
    double det = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; i++)
            pivot = fabs(a[i * n + k]) > fabs(a[pivot * n + k]) ? i : pivot;
        if (a[pivot * n + k] == 0)
            return 0;
        for (int64_t j = k; j < n && pivot != k; j++) {
            double swap = a[k * n + j];
            a[k * n + j] = a[pivot * n + j];
            a[pivot * n + j] = swap;
        }
        det *= (pivot != k ? -1 : 1) * a[k * n + k];
        for (int64_t i = k + 1; i < n; i++) {
            double f = a[i * n + k] / a[k * n + k];
            for (int64_t j = k; j < n; j++)
                a[i * n + j] -= f * a[k * n + j];
        }
    }
    return det;
}

int eng_op_det(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    if (x.dtype != PST_F32 && x.dtype != PST_F64)
        return eng_op_type(c, x.dtype);
    if (x.rank < 2 || x.dims[x.rank - 1] != x.dims[x.rank - 2])
        return eng_op_fail(c, PST_EINVAL, "square matrices are needed");
    int64_t n = x.dims[x.rank - 1], count = eng_dims_count(x.dims, x.rank - 2);
    size_t size = pst_dtype_size(x.dtype);
    char *y = eng_out(c, 0, x.dtype, x.rank - 2, x.dims);
    double *a = eng_op_scratch(c, (size_t)(n * n) * sizeof *a);
    if (!y || !a)
        return PST_ELIMIT;
    if ((rc = eng_op_work(c, (double)count * (double)n * (double)n * (double)n)) < 0)
        return rc;
    for (int64_t i = 0; i < count; i++) {
        eng_convert(PST_F64, a, x.dtype, (const char *)x.data + (size_t)(i * n * n) * size, n * n, true);
        double det = determinant(a, n);
        eng_convert(x.dtype, y + (size_t)i * size, PST_F64, &det, 1, true);
    }
    return 0;
}
