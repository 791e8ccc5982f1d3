/* quant.c - quantised arithmetic: scales and zero points per tensor, per axis or per block. Rounding is to nearest even. */
#include "engine/cpu/int8.h"
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

/* float32 and 8 bits, runs of one scale: what the kernels take. NULL = not for them. */
static const eng_int8_kernels *kernels_of(const eng_op_ctx *c, const scaling *s, pst_dtype wide, int narrow)
{
    bool runs = s->n == 1 || (!s->block && s->inner > 1);
    if (c->plan->opts.no_fusion || wide != PST_F32 || (narrow != PST_U8 && narrow != PST_I8) || !runs)
        return NULL;
    return eng_int8_pick(eng_kernels_pick(c->plan->isa)->isa);
}

/* Numbers in a row that have one scale. */
static int64_t run_of(const scaling *s, int64_t n)
{
    return s->n == 1 ? n : s->inner;
}

int eng_op_quantize(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    scaling s;
    int64_t n = eng_count(&x), out = eng_attr_int(c->node, "output_dtype", 0);
    int t = out ? (int)out : PST_U8;
    if (eng_in(c, 2)) /* a zero point says the type */
        t = (int)eng_in(c, 2)->dtype;
    double lo = 0, hi = 0;
    if ((rc = scaling_of(c, &x, 1, 2, &s)) < 0)
        return rc;
    bool ints = range_of(t, &lo, &hi), saturate = eng_attr_int(c->node, "saturate", 1);
    const eng_int8_kernels *kn = kernels_of(c, &s, eng_in(c, 1)->dtype == PST_F32 ? x.dtype : PST_F64, t);
    if (kn) {
        uint8_t *o = eng_out_typed(c, 0, (pst_dtype)t, &x);
        for (int64_t i = 0, some = run_of(&s, n); o && i < n; i += some) {
            int64_t k = scale_at(&s, i);
            kn->quantise(some, (const float *)x.data + i, (float)s.scale[k], (int)s.zero[k], (int)lo, o + i);
        }
        c->kernel = kn->name;
        return o ? 0 : PST_ELIMIT;
    }
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

/* Bytes to float32 by the kernels; all else by way of doubles, which hold every type that ONNX lets in. */
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
    if (eng_in(c, 2) && eng_in(c, 2)->dtype != x.dtype)
        return eng_op_fail(c, PST_EINVAL, "the zero point is not of the input's type");
    const eng_int8_kernels *kn = kernels_of(c, &s, eng_in(c, 1)->dtype == PST_F32 ? t : PST_F64, x.dtype);
    if (kn) {
        float *o = eng_out_typed(c, 0, t, &x);
        for (int64_t i = 0, some = run_of(&s, n); o && i < n; i += some) {
            int64_t k = scale_at(&s, i);
            kn->dequantise(some, (const uint8_t *)x.data + i, x.dtype == PST_I8, (float)s.scale[k], (int)s.zero[k], o + i);
        }
        c->kernel = kn->name;
        return o ? 0 : PST_ELIMIT;
    }
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
    const eng_int8_kernels *kn = c->plan->opts.no_fusion ? &eng_int8_portable : eng_int8_pick(eng_kernels_pick(c->plan->isa)->isa);
    kn->range(n, x.data, &lo, &hi);
    float scale = (hi - lo) / 255, zero = scale != 0 ? rintf(fmaxf(0, fminf(255, -lo / scale))) : 0;
    uint8_t *o = eng_out_typed(c, 0, PST_U8, &x), *oz = eng_out(c, 2, PST_U8, 0, NULL);
    float *os = eng_out(c, 1, PST_F32, 0, NULL);
    if (!o || !oz || !os)
        return PST_ELIMIT;
    *os = scale;
    *oz = (uint8_t)zero;
    if (scale != 0)
        kn->quantise(n, x.data, scale, (int)zero, 0, o);
    else
        memset(o, 0, (size_t)n);
    c->kernel = kn->name;
    return 0;
}
