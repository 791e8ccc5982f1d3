/* resize.c - Resize and Upsample: every axis gets a table of taps (which inputs, with which weights); axes are applied one
 * after the other. Coordinate modes, cubic kernel (Keys 1981) and antialiasing as the ONNX specification defines them. */
#include "engine/ops/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct axis_spec {
    int64_t in, out;
    double scale;      /* out / in, as given */
    double start, end; /* region of interest, tf_crop_and_resize */
} axis_spec;

typedef struct modes {
    const char *mode, *coord, *nearest;
    double cubic_a;
    bool exclude_outside, antialias;
} modes;

static double coordinate(const axis_spec *a, const char *how, double x)
{
    double in = (double)a->in, out = (double)a->out, length = a->scale * in;
    if (!strcmp(how, "asymmetric"))
        return x / a->scale;
    if (!strcmp(how, "align_corners"))
        return length <= 1 ? 0 : x * (in - 1) / (length - 1);
    if (!strcmp(how, "pytorch_half_pixel"))
        return out > 1 ? (x + 0.5) / a->scale - 0.5 : -0.5;
    if (!strcmp(how, "tf_crop_and_resize"))
        return out > 1 ? a->start * (in - 1) + x * (a->end - a->start) * (in - 1) / (out - 1) : 0.5 * (a->start + a->end) * (in - 1);
    if (!strcmp(how, "half_pixel_symmetric")) {
        double adjust = out / length, center = in / 2;
        return center * (1 - adjust) + (x + 0.5) / a->scale - 0.5;
    }
    return (x + 0.5) / a->scale - 0.5;
}

static double nearest_of(double x, const char *how)
{
    if (!strcmp(how, "floor"))
        return floor(x);
    if (!strcmp(how, "ceil"))
        return ceil(x);
    return !strcmp(how, "round_prefer_ceil") ? floor(x + 0.5) : ceil(x - 0.5);
}

static double cubic(double x, double a)
{
    x = fabs(x);
    return x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/* Taps of output position o: first input position and weights; returns how many. */
static int taps(const axis_spec *a, const modes *m, double x, int64_t *ret_first, double *w, int max)
{
    if (m->mode[0] == 'n') {
        *ret_first = (int64_t)nearest_of(x, m->nearest);
        w[0] = 1;
        return 1;
    }
    bool cub = m->mode[0] == 'c';
    double scale = m->antialias && a->scale < 1 ? a->scale : 1, reach = (cub ? 2 : 1) / scale, base = floor(x), sum = 0;
    int64_t first = (int64_t)(base + floor(-reach) + 1);
    int n = (int)(2 * ceil(reach));
    n = n > max ? max : n;
    for (int i = 0; i < n; i++) {
        double d = ((double)(first + i) - x) * scale;
        w[i] = cub ? cubic(d, m->cubic_a) : fmax(0, 1 - fabs(d));
        if (m->exclude_outside && (first + i < 0 || first + i >= a->in))
            w[i] = 0;
        sum += w[i];
    }
    for (int i = 0; i < n && sum != 0; i++)
        w[i] /= sum;
    *ret_first = first;
    return n;
}

/* One axis: v (outer, in, inner) → r (outer, out, inner). */
static int apply_axis(eng_op_ctx *c, const axis_spec *a, const modes *m, const double *v, double *r, int64_t outer, int64_t inner)
{
    int max = (int)fmin(1 << 20, 2 * ceil(2 / (a->scale < 1 ? fmax(a->scale, 1e-5) : 1)) + 4);
    double *w = eng_op_scratch(c, (size_t)max * sizeof *w);
    if (!w)
        return PST_ELIMIT;
    for (int64_t o = 0; o < a->out; o++) {
        int64_t first;
        double x = coordinate(a, m->coord, (double)o);
        if (!(fabs(x) < 1e15))
            return eng_op_fail(c, PST_EINVAL, "bad scale");
        int n = taps(a, m, x, &first, w, max);
        for (int64_t p = 0; p < outer; p++)
            for (int64_t q = 0; q < inner; q++) {
                double s = 0;
                for (int i = 0; i < n; i++) {
                    int64_t at = first + i;
                    at = at < 0 ? 0 : at >= a->in ? a->in - 1 : at;
                    s += w[i] * v[(p * a->in + at) * inner + q];
                }
                r[(p * a->out + o) * inner + q] = s;
            }
    }
    return 0;
}

static int run(eng_op_ctx *c, axis_spec *axes, const modes *m, double extrapolation)
{
    pst_tensor x = *eng_in(c, 0), y = x;
    int64_t n = eng_count(&x);
    for (int k = 0; k < x.rank; k++) {
        y.dims[k] = axes[k].out;
        if (!x.dims[k] && axes[k].out)
            return eng_op_fail(c, PST_EINVAL, "an empty axis cannot grow");
    }
    void *o = eng_out_like(c, 0, &y);
    double *v = eng_op_scratch(c, (size_t)n * 8);
    if (!o || !v)
        return PST_ELIMIT;
    if (!eng_count(&y)) /* its other dimensions may be as large as they like */
        return 0;
    if (eng_convert(PST_F64, v, x.dtype, x.data, n, true) < 0)
        return eng_op_type(c, x.dtype);
    pst_tensor t = x;
    bool crop = !strcmp(m->coord, "tf_crop_and_resize");
    for (int k = 0; k < x.rank; k++) {
        if (axes[k].in == axes[k].out && axes[k].scale == 1 && !crop)
            continue;
        int64_t outer = 1, inner = 1;
        for (int q = 0; q < x.rank; q++) {
            if (q < k)
                outer *= t.dims[q];
            else if (q > k)
                inner *= t.dims[q];
        }
        t.dims[k] = axes[k].out;
        int64_t count = eng_dims_count(t.dims, t.rank);
        if (count < 0 || (uint64_t)count > c->plan->m->limits.tensor_bytes_max / 8)
            return eng_op_fail(c, PST_ELIMIT, "too large");
        double *r = eng_op_scratch(c, (size_t)count * 8);
        int rc = r ? apply_axis(c, &axes[k], m, v, r, outer, inner) : PST_ELIMIT;
        if (rc < 0)
            return rc;
        v = r;
    }
    int64_t total = eng_count(&y);
    for (int64_t i = 0; i < total && crop; i++) {
        int64_t rest = i;
        for (int k = x.rank - 1; k >= 0; k--) {
            double at = coordinate(&axes[k], m->coord, (double)(rest % y.dims[k]));
            if (at < 0 || at > (double)(x.dims[k] - 1))
                v[i] = extrapolation;
            rest /= y.dims[k];
        }
    }
    if (eng_dtype_is_int(x.dtype))
        for (int64_t i = 0; i < total; i++)
            v[i] = rint(v[i]);
    return eng_convert(x.dtype, o, PST_F64, v, total, true);
}

static int numbers(eng_op_ctx *c, int i, double *ret, int max)
{
    const pst_tensor *t = eng_in(c, i);
    int64_t n = t ? eng_count(t) : 0;
    if (n > max || (n && eng_convert(PST_F64, ret, t->dtype, t->data, n, true) < 0)) {
        eng_op_fail(c, PST_EINVAL, "input %d is bad", i);
        return -1;
    }
    return (int)n;
}

/* Scales, or sizes; for all axes, or for those that are named. keep_aspect_ratio_policy makes one scale of the sizes: the smallest of their
 * scales (not_larger) or the largest (not_smaller). */
int eng_op_resize(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    bool old = c->node->opset < 11;
    modes m = {.mode = eng_attr_str(c->node, "mode", "nearest"),
               .coord = eng_attr_str(c->node, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel"),
               .nearest = eng_attr_str(c->node, "nearest_mode", old ? "floor" : "round_prefer_floor"),
               .cubic_a = (double)eng_attr_float(c->node, "cubic_coeff_a", -0.75f),
               .exclude_outside = eng_attr_int(c->node, "exclude_outside", 0),
               .antialias = eng_attr_int(c->node, "antialias", 0)};
    double roi[2 * PST_MAX_RANK], scales[PST_MAX_RANK], sizes[PST_MAX_RANK];
    int n_roi = old ? 0 : numbers(c, 1, roi, 2 * PST_MAX_RANK), n_scales = numbers(c, old ? 1 : 2, scales, PST_MAX_RANK),
        n_sizes = old ? 0 : numbers(c, 3, sizes, PST_MAX_RANK), which[PST_MAX_RANK];
    if (n_roi < 0 || n_scales < 0 || n_sizes < 0)
        return PST_EINVAL;
    size_t n_attr;
    const int64_t *attr = eng_attr_ints(c->node, "axes", &n_attr);
    int n = attr ? (int)n_attr : x.rank;
    if (n > x.rank || (n_scales ? n_scales != n : n_sizes != n) || (n_roi && n_roi != 2 * n))
        return eng_op_fail(c, PST_EINVAL, "scales, sizes or roi do not fit %d axes", n);
    axis_spec axes[PST_MAX_RANK];
    for (int k = 0; k < x.rank; k++)
        axes[k] = (axis_spec){.in = x.dims[k], .out = x.dims[k], .scale = 1, .end = 1};
    const char *policy = eng_attr_str(c->node, "keep_aspect_ratio_policy", "stretch");
    double common = 0;
    for (int i = 0; i < n; i++) {
        if ((rc = eng_op_axis(c, attr ? attr[i] : i, x.rank, &which[i])) < 0)
            return rc;
        int64_t in = x.dims[which[i]];
        double s = in ? sizes[i] / (double)in : 1;
        if (n_scales)
            s = scales[i];
        bool counts = !strcmp(policy, "not_larger") ? s < common : s > common;
        common = !i || counts ? s : common;
    }
    bool keep = !n_scales && strcmp(policy, "stretch") != 0;
    for (int i = 0; i < n; i++) {
        axis_spec *a = &axes[which[i]];
        double out = 0;
        if (n_scales) {
            a->scale = scales[i];
            out = floor((double)a->in * a->scale);
        } else if (keep) {
            a->scale = common;
            out = floor((double)a->in * common + 0.5);
        } else {
            out = sizes[i];
            a->scale = a->in ? out / (double)a->in : 1;
        }
        if (!(out >= 0 && out < 1e12))
            return eng_op_fail(c, PST_EINVAL, "bad scale or size");
        a->out = (int64_t)out;
        if (n_roi) {
            a->start = roi[i];
            a->end = roi[n + i];
        }
        if (a->out && !(a->scale > 0))
            return eng_op_fail(c, PST_EINVAL, "bad scale");
    }
    return run(c, axes, &m, (double)eng_attr_float(c->node, "extrapolation_value", 0));
}

int eng_op_upsample(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1), n;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    modes m = {.mode = eng_attr_str(c->node, "mode", "nearest"), .coord = "asymmetric", .nearest = "floor", .cubic_a = -0.75};
    double scales[PST_MAX_RANK];
    axis_spec axes[PST_MAX_RANK];
    if (c->node->opset >= 9) {
        n = numbers(c, 1, scales, PST_MAX_RANK);
    } else {
        size_t got;
        const float *f = eng_attr_floats(c->node, "scales", &got);
        n = (int)(got > PST_MAX_RANK ? 0 : got);
        for (int i = 0; i < n; i++)
            scales[i] = (double)f[i];
    }
    if (n != x.rank)
        return eng_op_fail(c, PST_EINVAL, "one scale per axis is needed");
    for (int k = 0; k < n; k++) {
        double out = floor((double)x.dims[k] * scales[k]);
        if (!(out >= 0 && out < 1e12) || !(scales[k] > 0))
            return eng_op_fail(c, PST_EINVAL, "bad scale");
        axes[k] = (axis_spec){.in = x.dims[k], .out = (int64_t)out, .scale = scales[k], .end = 1};
    }
    return run(c, axes, &m, 0);
}
