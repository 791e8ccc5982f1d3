/* norm2.c - normalisations over axes and channels: Layer, RMS, Instance, Group, Lp, LRN, MeanVariance. Statistics in double. */
#include "engine/ops/kernels.h"

#include <math.h>
#include <string.h>

/* Input i as doubles; NULL after an error. */
static double *doubles(eng_op_ctx *c, int i)
{
    const pst_tensor *t = eng_in(c, i);
    int64_t n = eng_count(t);
    double *d = eng_op_scratch(c, (size_t)n * 8);
    if (d && eng_convert(PST_F64, d, t->dtype, t->data, n, true) < 0) {
        eng_op_type(c, t->dtype);
        return NULL;
    }
    return d;
}

/* Normalises rows of n elements; scale and bias broadcast to the normalised shape. */
static int layer_norm(eng_op_ctx *c, bool rms)
{
    int rc = eng_op_need(c, 2), axis;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), sc = *eng_in(c, 1), stat = x;
    if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", -1), x.rank, &axis)) < 0)
        return rc;
    double eps = (double)eng_attr_float(c->node, "epsilon", 1e-5f);
    int64_t n = 1, rows = 1;
    for (int k = 0; k < x.rank; k++) {
        if (k < axis)
            rows *= x.dims[k];
        else
            n *= x.dims[k];
        stat.dims[k] = k < axis ? x.dims[k] : 1;
    }
    const pst_tensor *bias = rms ? NULL : eng_in(c, 2);
    if (sc.rank > x.rank || (bias && bias->rank > x.rank))
        return eng_op_fail(c, PST_EINVAL, "scale or bias do not broadcast to the input");
    int64_t ss[PST_MAX_RANK], sb[PST_MAX_RANK] = {0};
    for (int p = 0; p < 2; p++) {
        const pst_tensor *t = p ? bias : &sc;
        for (int k = 0; t && k < t->rank; k++)
            if (t->dims[k] != 1 && t->dims[k] != x.dims[x.rank - t->rank + k])
                return eng_op_fail(c, PST_EINVAL, "scale or bias do not broadcast to the input");
    }
    eng_broadcast_strides(&sc, x.rank, ss);
    if (bias)
        eng_broadcast_strides(bias, x.rank, sb);
    double *v = doubles(c, 0), *s = doubles(c, 1), *b = bias ? doubles(c, 2) : NULL;
    char *o = eng_out_like(c, 0, &x);
    float *mean = !rms && c->n_out > 1 ? eng_out_typed(c, 1, PST_F32, &stat) : NULL,
          *inv = !rms && c->n_out > 2 ? eng_out_typed(c, 2, PST_F32, &stat) : NULL;
    if (!v || !s || !o || (bias && !b))
        return PST_ELIMIT;
    for (int64_t r = 0; r < rows; r++) {
        double *row = v + r * n, m = 0, q = 0;
        for (int64_t i = 0; i < n && !rms; i++)
            m += row[i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            q += (row[i] - m) * (row[i] - m) / (double)n;
        double by = 1 / sqrt(q + eps);
        if (mean)
            mean[r] = (float)m;
        if (inv)
            inv[r] = (float)by;
        for (int64_t i = 0; i < n; i++) {
            int64_t as = 0, ab = 0, rest = r * n + i;
            for (int k = x.rank - 1; k >= 0; k--) {
                as += rest % x.dims[k] * ss[k];
                ab += rest % x.dims[k] * sb[k];
                rest /= x.dims[k];
            }
            row[i] = (row[i] - m) * by * s[as] + (b ? b[ab] : 0);
        }
    }
    return eng_convert(x.dtype, o, PST_F64, v, rows * n, true);
}

int eng_op_layer_norm(eng_op_ctx *c)
{
    return layer_norm(c, false);
}

int eng_op_rms_norm(eng_op_ctx *c)
{
    return layer_norm(c, true);
}

/* Channels in groups share statistics over their pixels; one group per channel = instance normalisation. */
static int group_norm(eng_op_ctx *c, int64_t groups)
{
    int rc = eng_op_need(c, 3);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    int64_t ch = x.rank > 1 ? x.dims[1] : 1, n = eng_count(&x), batch = x.rank ? x.dims[0] : 1;
    groups = groups ? groups : ch;
    double eps = (double)eng_attr_float(c->node, "epsilon", 1e-5f);
    int64_t n_scale = eng_count(eng_in(c, 1));
    if (groups < 1 || ch % groups || (n_scale != ch && n_scale != groups) || eng_count(eng_in(c, 2)) != n_scale || !batch || !ch)
        return eng_op_fail(c, PST_EINVAL, "scale and bias do not fit the channels");
    double *v = doubles(c, 0), *s = doubles(c, 1), *b = doubles(c, 2);
    void *o = eng_out_like(c, 0, &x);
    if (!v || !s || !b || !o)
        return PST_ELIMIT;
    int64_t len = n / batch / groups, inner = n / batch / ch;
    for (int64_t g = 0; g < batch * groups; g++) {
        double *p = v + g * len, m = 0, q = 0;
        for (int64_t i = 0; i < len; i++)
            m += p[i] / (double)len;
        for (int64_t i = 0; i < len; i++)
            q += (p[i] - m) * (p[i] - m) / (double)len;
        double by = 1 / sqrt(q + eps);
        for (int64_t i = 0; i < len; i++) {
            int64_t k = g % groups * (ch / groups) + i / inner;
            k = n_scale == ch ? k : g % groups;
            p[i] = (p[i] - m) * by * s[k] + b[k];
        }
    }
    return eng_convert(x.dtype, o, PST_F64, v, n, true);
}

int eng_op_instance_norm(eng_op_ctx *c)
{
    return group_norm(c, 0);
}

int eng_op_group_norm(eng_op_ctx *c)
{
    return group_norm(c, eng_attr_int(c->node, "num_groups", 1));
}

int eng_op_lp_norm(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1), axis;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    int64_t p = eng_attr_int(c->node, "p", 2), inner = 1, n = eng_count(&x);
    if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", -1), x.rank, &axis)) < 0)
        return rc;
    for (int k = axis + 1; k < x.rank; k++)
        inner *= x.dims[k];
    double *v = doubles(c, 0);
    void *o = eng_out_like(c, 0, &x);
    if (!v || !o)
        return PST_ELIMIT;
    int64_t d = x.dims[axis];
    for (int64_t line = 0; d && line < n / d; line++) {
        double *at = v + line / inner * d * inner + line % inner, s = 0;
        for (int64_t k = 0; k < d; k++)
            s += p == 1 ? fabs(at[k * inner]) : at[k * inner] * at[k * inner];
        s = p == 1 ? s : sqrt(s);
        for (int64_t k = 0; k < d; k++)
            at[k * inner] = s != 0 ? at[k * inner] / s : 0;
    }
    return eng_convert(x.dtype, o, PST_F64, v, n, true);
}

int eng_op_lrn(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    int64_t size = eng_attr_int(c->node, "size", 1), ch = x.rank > 1 ? x.dims[1] : 0, n = eng_count(&x);
    double alpha = (double)eng_attr_float(c->node, "alpha", 1e-4f), beta = (double)eng_attr_float(c->node, "beta", 0.75f),
           bias = (double)eng_attr_float(c->node, "bias", 1);
    if (x.rank < 2 || size < 1 || size > 100000 || !ch)
        return eng_op_fail(c, PST_EINVAL, "(N, C, …) and a size of at least 1 are needed");
    double *v = doubles(c, 0), *y = eng_op_scratch(c, (size_t)n * 8);
    void *o = eng_out_like(c, 0, &x);
    if (!v || !y || !o)
        return PST_ELIMIT;
    int64_t inner = x.dims[0] ? n / x.dims[0] / ch : 0, lo = (size - 1) / 2, hi = size - 1 - lo;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i / inner % ch, from = k - lo < 0 ? 0 : k - lo, to = k + hi >= ch ? ch - 1 : k + hi;
        double s = 0;
        for (int64_t q = from; q <= to; q++)
            s += v[i + (q - k) * inner] * v[i + (q - k) * inner];
        y[i] = v[i] / pow(bias + alpha / (double)size * s, beta);
    }
    return eng_convert(x.dtype, o, PST_F64, y, n, true);
}

/* Two passes in double: the specification has E[x^2] - E[x]^2, which cancels where the mean is large. 1e-9 is its own, added to the
 * deviation. */
int eng_op_mvn(eng_op_ctx *c)
{
    static const int64_t usual[] = {0, 2, 3};
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    size_t n_axes;
    const int64_t *axes = eng_attr_ints(c->node, "axes", &n_axes);
    if (!axes) {
        axes = usual;
        n_axes = 3;
    }
    bool set[PST_MAX_RANK] = {0};
    for (size_t i = 0; i < n_axes; i++) {
        int at;
        if ((rc = eng_op_axis(c, axes[i], x.rank, &at)) < 0)
            return rc;
        set[at] = true;
    }
    int64_t n = eng_count(&x), groups = 1, per[PST_MAX_RANK];
    for (int k = x.rank - 1; k >= 0; k--) {
        per[k] = set[k] ? 0 : groups;
        groups *= set[k] ? 1 : x.dims[k];
    }
    double *v = doubles(c, 0), *m = eng_op_scratch(c, (size_t)groups * 8), *q = eng_op_scratch(c, (size_t)groups * 8);
    int64_t *of = eng_op_scratch(c, (size_t)n * 8);
    void *o = eng_out_like(c, 0, &x);
    if (!v || !m || !q || !of || !o)
        return PST_ELIMIT;
    double count = groups ? (double)n / (double)groups : 1;
    memset(m, 0, (size_t)groups * 8);
    memset(q, 0, (size_t)groups * 8);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i;
        of[i] = 0;
        for (int k = x.rank - 1; k >= 0; k--) {
            of[i] += rest % x.dims[k] * per[k];
            rest /= x.dims[k];
        }
        m[of[i]] += v[i] / count;
    }
    for (int64_t i = 0; i < n; i++)
        q[of[i]] += (v[i] - m[of[i]]) * (v[i] - m[of[i]]) / count;
    for (int64_t i = 0; i < n; i++)
        v[i] = (v[i] - m[of[i]]) / (sqrt(q[of[i]]) + 1e-9);
    return eng_convert(x.dtype, o, PST_F64, v, n, true);
}
