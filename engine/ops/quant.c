/* quant.c - quantised arithmetic: scales and zero points per tensor, per axis or per block. Rounding is to nearest even. */
#include "engine/ops/kernels.h"

#include <math.h>
#include <string.h>

static bool range_of(int t, double *lo, double *hi)
{
    switch (t) {
    case PST_U8: *lo = 0, *hi = 255; return true;
    case PST_I8: *lo = -128, *hi = 127; return true;
    case PST_U16: *lo = 0, *hi = 65535; return true;
    case PST_I16: *lo = -32768, *hi = 32767; return true;
    case PST_I32: *lo = -2147483648.0, *hi = 2147483647.0; return true;
    case ENG_U4: *lo = 0, *hi = 15; return true;
    case ENG_I4: *lo = -8, *hi = 7; return true;
    case ENG_U2: *lo = 0, *hi = 3; return true;
    case ENG_I2: *lo = -2, *hi = 1; return true;
    default: return false;
    }
}

/* Which scale serves element i of x: one, one per position of the axis, or one per block along it. */
typedef struct scaling {
    double *scale, *zero;
    int64_t n, d, inner, block, blocks;
} scaling;

static int64_t scale_at(const scaling *s, int64_t i)
{
    if (s->n == 1)
        return 0;
    int64_t k = i / s->inner % s->d;
    if (!s->block)
        return k;
    return (i / s->inner / s->d * s->blocks + k / s->block) * s->inner + i % s->inner;
}

static int scaling_of(eng_op_ctx *c, const pst_tensor *x, int scale_in, int zero_in, scaling *s)
{
    const pst_tensor *sc = eng_in(c, scale_in), *z = eng_in(c, zero_in);
    int64_t n = eng_count(sc), block = eng_attr_int(c->node, "block_size", 0);
    int axis = 0, rc;
    *s = (scaling){.n = n, .block = block, .inner = 1, .d = 1};
    if (z && eng_count(z) != n)
        return eng_op_fail(c, PST_EINVAL, "scale and zero point differ in shape");
    if (n != 1 || sc->rank == 1) {
        rc = x->rank ? eng_op_axis(c, eng_attr_int(c->node, "axis", 1), x->rank, &axis) : 0;
        if (rc < 0 && n != 1) /* one scale for all needs no axis */
            return rc;
        if (n != 1) {
            s->d = x->rank ? x->dims[axis] : 1;
            for (int k = axis + 1; k < x->rank; k++)
                s->inner *= x->dims[k];
            s->blocks = block > 0 ? (s->d + block - 1) / block : 0;
            int64_t want = s->d;
            if (block > 0) /* a scale for each block of the axis, wherever else one stands */
                want = s->d && s->inner ? eng_count(x) / s->d / s->inner * s->blocks * s->inner : 0;
            if (n != want || block < 0)
                return eng_op_fail(c, PST_EINVAL, "%lld scales do not fit the axis or its blocks", (long long)n);
        }
    }
    s->scale = eng_op_scratch(c, (size_t)n * 8);
    s->zero = eng_op_scratch(c, (size_t)n * 8);
    if (!s->scale || !s->zero)
        return PST_ELIMIT;
    memset(s->zero, 0, (size_t)n * 8);
    if (eng_convert(PST_F64, s->scale, sc->dtype, sc->data, n, true) < 0 ||
        (z && eng_convert(PST_F64, s->zero, z->dtype, z->data, n, true) < 0))
        return eng_op_type(c, sc->dtype);
    return 0;
}

int eng_op_quantize(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    scaling s;
    int64_t n = eng_count(&x), out = eng_attr_int(c->node, "output_dtype", 0);
    int t = eng_in(c, 2) ? (int)eng_in(c, 2)->dtype : out ? (int)out : PST_U8;
    double lo = 0, hi = 0;
    if ((rc = scaling_of(c, &x, 1, 2, &s)) < 0)
        return rc;
    bool ints = range_of(t, &lo, &hi), saturate = eng_attr_int(c->node, "saturate", 1);
    double *v = eng_op_scratch(c, (size_t)n * 8);
    if (!ints && !eng_dtype_is_narrow(t))
        return eng_op_type(c, t);
    void *o = eng_out_typed(c, 0, (pst_dtype)t, &x);
    if (!v || !o)
        return PST_ELIMIT;
    if (eng_convert(PST_F64, v, x.dtype, x.data, n, true) < 0)
        return eng_op_type(c, x.dtype);
    bool single = x.dtype != PST_F64; /* the division is defined in the type of x: in float, ties fall as the specification's do */
    for (int64_t i = 0; i < n; i++) {
        int64_t k = scale_at(&s, i);
        double q = single ? (double)((float)v[i] / (float)s.scale[k]) : v[i] / s.scale[k];
        if (ints) {
            q = rint(q) + s.zero[k];
            v[i] = q < lo || isnan(q) ? lo : q > hi ? hi : q;
        } else {
            v[i] = q + s.zero[k];
        }
    }
    return eng_convert(t, o, PST_F64, v, n, saturate);
}

int eng_op_dequantize(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    scaling s;
    int64_t n = eng_count(&x), out = eng_attr_int(c->node, "output_dtype", 0);
    pst_dtype t = out ? (pst_dtype)out : eng_in(c, 1)->dtype;
    if ((rc = scaling_of(c, &x, 1, 2, &s)) < 0)
        return rc;
    double *v = eng_op_scratch(c, (size_t)n * 8);
    void *o = eng_out_typed(c, 0, t, &x);
    if (!v || !o)
        return PST_ELIMIT;
    if (eng_convert(PST_F64, v, x.dtype, x.data, n, true) < 0)
        return eng_op_type(c, x.dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = scale_at(&s, i);
        v[i] = (v[i] - s.zero[k]) * s.scale[k];
    }
    return eng_convert(t, o, PST_F64, v, n, true);
}

int eng_op_dynamic_quantize(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    if (x.dtype != PST_F32)
        return eng_op_type(c, x.dtype);
    float lo = 0, hi = 0;
    int64_t n = eng_count(&x);
    for (int64_t i = 0; i < n; i++) {
        float v = ((const float *)x.data)[i];
        lo = v < lo ? v : lo;
        hi = v > hi ? v : hi;
    }
    float scale = (hi - lo) / 255, zero = scale != 0 ? rintf(fmaxf(0, fminf(255, -lo / scale))) : 0;
    uint8_t *o = eng_out_typed(c, 0, PST_U8, &x), *oz = eng_out(c, 2, PST_U8, 0, NULL);
    float *os = eng_out(c, 1, PST_F32, 0, NULL);
    if (!o || !oz || !os)
        return PST_ELIMIT;
    *os = scale;
    *oz = (uint8_t)zero;
    for (int64_t i = 0; i < n; i++) {
        float q = scale != 0 ? rintf(((const float *)x.data)[i] / scale) + zero : 0;
        o[i] = (uint8_t)(q < 0 || isnan(q) ? 0 : q > 255 ? 255 : q);
    }
    return 0;
}

static bool is_byte(const pst_tensor *t)
{
    return t->dtype == PST_U8 || t->dtype == PST_I8;
}

static int64_t byte_at(const pst_tensor *t, int64_t i)
{
    return t->dtype == PST_U8 ? ((const uint8_t *)t->data)[i] : ((const int8_t *)t->data)[i];
}

/* One value, one per row (of a) or one per column (of b), as double. */
typedef struct per {
    double one[1];
    double *v;
    int64_t n;
} per;

static int per_of(eng_op_ctx *c, int i, double def, per *p)
{
    const pst_tensor *t = eng_in(c, i);
    p->one[0] = def;
    p->n = t ? eng_count(t) : 1;
    if (!p->n)
        return eng_op_fail(c, PST_EINVAL, "input %d is empty", i);
    p->v = t ? eng_op_scratch(c, (size_t)p->n * 8) : NULL;
    if (t && (!p->v || eng_convert(PST_F64, p->v, t->dtype, t->data, p->n, true) < 0))
        return eng_op_type(c, t->dtype);
    return 0;
}

static double per_at(const per *p, int64_t k)
{
    return !p->v ? p->one[0] : p->v[p->n == 1 ? 0 : k % p->n];
}

/* Batched integer product with zero points; out by callback of the operator. */
static int product(eng_op_ctx *c, int at_a, int at_b, int at_za, int at_zb, int64_t *dims, int *ret_rank, int64_t **ret)
{
    pst_tensor a = *eng_in(c, at_a), b = *eng_in(c, at_b);
    per za, zb;
    int rc;
    const pst_tensor *tza = eng_in(c, at_za), *tzb = eng_in(c, at_zb);
    if (!is_byte(&a) || !is_byte(&b) || a.rank < 2 || b.rank < 2 || (tza && !is_byte(tza)) || (tzb && !is_byte(tzb)))
        return eng_op_fail(c, PST_EINVAL, "two int8 or uint8 matrices are needed, and zero points of these types");
    if ((rc = per_of(c, at_za, 0, &za)) < 0 || (rc = per_of(c, at_zb, 0, &zb)) < 0)
        return rc;
    int64_t m = a.dims[a.rank - 2], k = a.dims[a.rank - 1], n = b.dims[b.rank - 1], sa[PST_MAX_RANK], sb[PST_MAX_RANK], st[PST_MAX_RANK];
    pst_tensor ba = a, bb = b;
    ba.rank -= 2;
    bb.rank -= 2;
    if (b.dims[b.rank - 2] != k)
        return eng_op_fail(c, PST_EINVAL, "inner dimensions differ");
    if ((rc = eng_broadcast(c, &ba, &bb, ret_rank, dims)) < 0)
        return rc;
    int rank = *ret_rank;
    int64_t batches = eng_dims_count(dims, rank);
    eng_broadcast_strides(&ba, rank, sa);
    eng_broadcast_strides(&bb, rank, sb);
    eng_strides(dims, rank, st);
    dims[rank] = m;
    dims[rank + 1] = n;
    *ret_rank = rank + 2;
    int64_t total = eng_dims_count(dims, *ret_rank);
    if (total < 0 || (uint64_t)total > c->plan->m->limits.tensor_bytes_max / 8)
        return eng_op_fail(c, PST_ELIMIT, "too large");
    int64_t *o = eng_op_scratch(c, (size_t)total * 8);
    if (!o)
        return PST_ELIMIT;
    *ret = o;
    for (int64_t p = 0; p < batches && total; p++) {
        int64_t oa = 0, ob = 0;
        for (int q = 0; q < rank; q++) {
            oa += p / st[q] % dims[q] * sa[q];
            ob += p / st[q] % dims[q] * sb[q];
        }
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                int64_t s = 0, z = (int64_t)per_at(&za, i), y = (int64_t)per_at(&zb, j);
                for (int64_t q = 0; q < k; q++)
                    s += (byte_at(&a, (oa * m + i) * k + q) - z) * (byte_at(&b, (ob * k + q) * n + j) - y);
                *o++ = s;
            }
    }
    return 0;
}

int eng_op_matmul_integer(eng_op_ctx *c)
{
    int64_t dims[PST_MAX_RANK + 2], *s;
    int rank, rc = eng_op_need(c, 2);
    if (rc < 0 || (rc = product(c, 0, 1, 2, 3, dims, &rank, &s)) < 0)
        return rc;
    int32_t *o = eng_out(c, 0, PST_I32, rank, dims);
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0, n = eng_dims_count(dims, rank); i < n; i++)
        o[i] = (int32_t)s[i];
    return 0;
}

int eng_op_qlinear_matmul(eng_op_ctx *c)
{
    int64_t dims[PST_MAX_RANK + 2], *s;
    int rank, rc = eng_op_need(c, 8);
    per sa, sb, sy, zy;
    if (rc < 0 || (rc = product(c, 0, 3, 2, 5, dims, &rank, &s)) < 0 || (rc = per_of(c, 1, 1, &sa)) < 0 ||
        (rc = per_of(c, 4, 1, &sb)) < 0 || (rc = per_of(c, 6, 1, &sy)) < 0 || (rc = per_of(c, 7, 0, &zy)) < 0)
        return rc;
    pst_dtype t = eng_in(c, 7)->dtype;
    double lo, hi;
    if (!range_of(t, &lo, &hi))
        return eng_op_type(c, t);
    int64_t n = eng_dims_count(dims, rank), cols = dims[rank - 1], rows = dims[rank - 2];
    void *o = eng_out(c, 0, t, rank, dims);
    double *v = eng_op_scratch(c, (size_t)n * 8);
    if (!o || !v)
        return PST_ELIMIT;
    for (int64_t i = 0; i < n; i++) {
        int64_t r = i / cols % rows, k = i % cols;
        double q = rint((double)s[i] * (per_at(&sa, r) * per_at(&sb, k) / per_at(&sy, r))) + per_at(&zy, r);
        v[i] = q < lo || isnan(q) ? lo : q > hi ? hi : q;
    }
    return eng_convert(t, o, PST_F64, v, n, true);
}
