/* dtype.c - names, sizes and conversions of element types.
 * Narrow floats follow the ONNX technical notes "float stored in 8 bits" and "4 bit types": round to nearest even. */
#include "engine/graph.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t size;
} dtypes[ENG_DTYPE_END] = {
    [PST_F32] = {"float32", 4},
    [PST_U8] = {"uint8", 1},
    [PST_I8] = {"int8", 1},
    [PST_U16] = {"uint16", 2},
    [PST_I16] = {"int16", 2},
    [PST_I32] = {"int32", 4},
    [PST_I64] = {"int64", 8},
    [PST_STR] = {"string", sizeof(char *)},
    [PST_BOOL] = {"bool", 1},
    [PST_F16] = {"float16", 2},
    [PST_F64] = {"float64", 8},
    [PST_U32] = {"uint32", 4},
    [PST_U64] = {"uint64", 8},
    [ENG_C64] = {"complex64", 8},
    [ENG_C128] = {"complex128", 16},
    [PST_BF16] = {"bfloat16", 2},
    [ENG_F8E4M3FN] = {"float8e4m3fn", 1},
    [ENG_F8E4M3FNUZ] = {"float8e4m3fnuz", 1},
    [ENG_F8E5M2] = {"float8e5m2", 1},
    [ENG_F8E5M2FNUZ] = {"float8e5m2fnuz", 1},
    [ENG_U4] = {"uint4", 1},
    [ENG_I4] = {"int4", 1},
    [ENG_F4E2M1] = {"float4e2m1", 1},
    [ENG_F8E8M0] = {"float8e8m0", 1},
    [ENG_U2] = {"uint2", 1},
    [ENG_I2] = {"int2", 1},
};

size_t pst_dtype_size(pst_dtype t)
{
    return (unsigned)t < ENG_DTYPE_END ? dtypes[t].size : 0;
}

const char *pst_dtype_name(pst_dtype t)
{
    return (unsigned)t < ENG_DTYPE_END && dtypes[t].name ? dtypes[t].name : "undefined";
}

bool eng_dtype_is_float(int t)
{
    return t == PST_F32 || t == PST_F64 || t == PST_F16 || t == PST_BF16;
}

bool eng_dtype_is_int(int t)
{
    return (t >= PST_U8 && t <= PST_I64) || t == PST_U32 || t == PST_U64;
}

bool eng_dtype_is_narrow(int t)
{
    return t >= ENG_F8E4M3FN && t <= ENG_I2;
}

float eng_half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 1023, u;
    float f;
    if (exp == 31) {
        u = sign | 0x7f800000 | man << 13;
    } else if (exp) {
        u = sign | (exp + 112) << 23 | man << 13;
    } else { /* zero or subnormal: exact in float */
        f = (float)man * 0x1p-24f;
        return sign ? -f : f;
    }
    memcpy(&f, &u, 4);
    return f;
}

uint16_t eng_float_to_half(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    u &= 0x7fffffff;
    if (u > 0x7f800000)
        return sign | 0x7e00;
    if (u >= 0x47800000) /* 65536 and above, infinity */
        return sign | 0x7c00;
    if (u < 0x38800000) { /* below 2^-14: subnormal; adding 0.5 aligns the bits and rounds to even */
        float a;
        memcpy(&a, &u, 4);
        a += 0.5f;
        memcpy(&u, &a, 4);
        return (uint16_t)(sign | (u - 0x3f000000));
    }
    u += 0xc8000fffu + (u >> 13 & 1); /* rebias by -112, round to nearest even; carries into the exponent, up to infinity */
    return (uint16_t)(sign | u >> 13);
}

uint16_t eng_float_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Exponent bits, mantissa bits, bias, and how the top codes are used. */
typedef struct narrow_format {
    int exp_bits, man_bits, bias;
    bool ieee; /* top exponent = infinity and NaN */
    bool fnuz; /* 0x80 = NaN, no infinity, no negative zero */
    float max;
} narrow_format;

static const narrow_format *narrow_of(int dtype)
{
    static const narrow_format e4m3fn = {4, 3, 7, false, false, 448.0f}, e4m3fnuz = {4, 3, 8, false, true, 240.0f},
                               e5m2 = {5, 2, 15, true, false, 57344.0f}, e5m2fnuz = {5, 2, 16, false, true, 57344.0f},
                               e2m1 = {2, 1, 1, false, false, 6.0f};
    switch (dtype) {
    case ENG_F8E4M3FN: return &e4m3fn;
    case ENG_F8E4M3FNUZ: return &e4m3fnuz;
    case ENG_F8E5M2: return &e5m2;
    case ENG_F8E5M2FNUZ: return &e5m2fnuz;
    case ENG_F4E2M1: return &e2m1;
    default: return NULL;
    }
}

float eng_narrow_to_float(int dtype, uint8_t v)
{
    const narrow_format *nf = narrow_of(dtype);
    switch (dtype) {
    case ENG_U4: return v & 15;
    case ENG_I4: return (float)((v & 15) >= 8 ? (v & 15) - 16 : v & 15);
    case ENG_U2: return v & 3;
    case ENG_I2: return (float)((v & 3) >= 2 ? (v & 3) - 4 : v & 3);
    case ENG_F8E8M0: return v == 255 ? NAN : ldexpf(1.0f, v - 127);
    default: break;
    }
    if (!nf)
        return NAN;
    int bits = nf->exp_bits + nf->man_bits;
    bool neg = v >> bits & 1;
    int code = v & ((1 << bits) - 1), exp = code >> nf->man_bits, man = code & ((1 << nf->man_bits) - 1);
    if (nf->fnuz && neg && !code)
        return NAN;
    if (nf->ieee && exp == (1 << nf->exp_bits) - 1)
        return man ? NAN : neg ? -INFINITY : INFINITY;
    if (dtype == ENG_F8E4M3FN && code == 0x7f)
        return NAN;
    float m =
        exp ? ldexpf((float)(man | 1 << nf->man_bits), exp - nf->bias - nf->man_bits) : ldexpf((float)man, 1 - nf->bias - nf->man_bits);
    return neg ? -m : m;
}

static uint8_t float_to_e8m0(float f, bool saturate)
{
    if (isnan(f))
        return 255;
    f = fabsf(f);
    if (isinf(f))
        return saturate ? 254 : 255;
    uint32_t u;
    memcpy(&u, &f, 4);
    int exp = (int)(u >> 23); /* round half up in value: the default mode "up" of Cast is applied by the caller of the operator */
    return (uint8_t)exp;
}

uint8_t eng_float_to_narrow(int dtype, float f, bool saturate)
{
    const narrow_format *nf = narrow_of(dtype);
    if (dtype == ENG_F8E8M0)
        return float_to_e8m0(f, saturate);
    if (!nf)
        return 0;
    int bits = nf->exp_bits + nf->man_bits;
    uint8_t sign = signbit(f) ? (uint8_t)(1 << bits) : 0, nan = nf->fnuz ? 0x80 : (uint8_t)((1 << bits) - 1);
    uint8_t top = dtype == ENG_F8E4M3FN ? 0x7e : dtype == ENG_F8E5M2 ? 0x7b : (uint8_t)((1 << bits) - 1);
    if (isnan(f))
        return dtype == ENG_F4E2M1 ? 8 : nf->fnuz ? nan : sign | nan; /* e2m1 has no NaN: negative zero stands for it */
    float a = fabsf(f);
    if (isinf(a)) {
        if (saturate || dtype == ENG_F4E2M1)
            return sign | top;
        return nf->ieee ? sign | 0x7c : nf->fnuz ? nan : sign | nan;
    }
    int exp = 0;
    uint8_t code = 0;
    if (a > 0) {
        frexpf(a, &exp); /* a = m · 2^exp, m in [0.5, 1) */
        int e = exp - 1 < 1 - nf->bias ? 1 - nf->bias : exp - 1;
        float q = rintf(ldexpf(a, nf->man_bits - e)); /* the mode is to nearest even */
        if (q >= (float)(2 << nf->man_bits)) {
            q = (float)(1 << nf->man_bits);
            e++;
        }
        float value = ldexpf(q, e - nf->man_bits);
        if (value > nf->max) {
            if (saturate || dtype == ENG_F4E2M1)
                return sign | top;
            return nf->ieee ? sign | 0x7c : nf->fnuz ? nan : sign | nan;
        }
        int m = (int)q;
        code = m < (1 << nf->man_bits) ? (uint8_t)m : (uint8_t)((e + nf->bias) << nf->man_bits | (m - (1 << nf->man_bits)));
    }
    if (!code && nf->fnuz)
        return 0; /* no negative zero there */
    return sign | code;
}

/* Float to a 64-bit integer, defined for every input: NaN and what does not fit become the smallest integer, as cvttsd2si does. */
static int64_t to_i64(double d)
{
    return d >= -0x1p63 && d < 0x1p63 ? (int64_t)d : INT64_MIN;
}

static uint64_t to_u64(double d)
{
    if (d >= 0x1p63 && d < 0x1p64)
        return (uint64_t)d;
    return (uint64_t)to_i64(d);
}

static double get_f(int t, const void *src, int64_t i)
{
    switch (t) {
    case PST_F32: return ((const float *)src)[i];
    case PST_F64: return ((const double *)src)[i];
    case PST_F16: return eng_half_to_float(((const uint16_t *)src)[i]);
    case PST_BF16: return eng_bf16_to_float(((const uint16_t *)src)[i]);
    case PST_U64: return (double)((const uint64_t *)src)[i];
    default: return eng_narrow_to_float(t, ((const uint8_t *)src)[i]);
    }
}

static int64_t get_i(int t, const void *src, int64_t i)
{
    switch (t) {
    case PST_U8: return ((const uint8_t *)src)[i];
    case PST_I8: return ((const int8_t *)src)[i];
    case PST_U16: return ((const uint16_t *)src)[i];
    case PST_I16: return ((const int16_t *)src)[i];
    case PST_I32: return ((const int32_t *)src)[i];
    case PST_U32: return ((const uint32_t *)src)[i];
    case PST_BOOL: return ((const uint8_t *)src)[i] != 0;
    case PST_U64: return (int64_t)((const uint64_t *)src)[i];
    case PST_I64: return ((const int64_t *)src)[i];
    default: return (int64_t)eng_narrow_to_float(t, ((const uint8_t *)src)[i]);
    }
}

static void put_i(int t, void *dst, int64_t i, int64_t v)
{
    switch (t) {
    case PST_U8: ((uint8_t *)dst)[i] = (uint8_t)v; break;
    case PST_I8: ((int8_t *)dst)[i] = (int8_t)v; break;
    case PST_U16: ((uint16_t *)dst)[i] = (uint16_t)v; break;
    case PST_I16: ((int16_t *)dst)[i] = (int16_t)v; break;
    case PST_I32: ((int32_t *)dst)[i] = (int32_t)v; break;
    case PST_U32: ((uint32_t *)dst)[i] = (uint32_t)v; break;
    case ENG_U4: ((uint8_t *)dst)[i] = (uint8_t)v & 15; break;
    case ENG_I4: ((uint8_t *)dst)[i] = (uint8_t)v & 15; break;
    case ENG_U2: ((uint8_t *)dst)[i] = (uint8_t)v & 3; break;
    case ENG_I2: ((uint8_t *)dst)[i] = (uint8_t)v & 3; break;
    default: ((int64_t *)dst)[i] = v; break;
    }
}

static void put_f(int t, void *dst, int64_t i, double d, bool saturate)
{
    switch (t) {
    case PST_F32: ((float *)dst)[i] = (float)d; break;
    case PST_F64: ((double *)dst)[i] = d; break;
    case PST_F16: ((uint16_t *)dst)[i] = eng_float_to_half((float)d); break;
    case PST_BF16: ((uint16_t *)dst)[i] = eng_float_to_bf16((float)d); break;
    default: ((uint8_t *)dst)[i] = eng_float_to_narrow(t, (float)d, saturate); break;
    }
}

static bool int_like(int t)
{
    return eng_dtype_is_int(t) || t == PST_BOOL || t == ENG_U4 || t == ENG_I4 || t == ENG_U2 || t == ENG_I2;
}

int eng_convert(int to, void *dst, int from, const void *src, int64_t n, bool saturate)
{
    bool bad_from = !pst_dtype_size((pst_dtype)from) || from == PST_STR || from == ENG_C64 || from == ENG_C128;
    if (bad_from || !pst_dtype_size((pst_dtype)to) || to == PST_STR || to == ENG_C64 || to == ENG_C128)
        return PST_EUNSUPPORTED;
    if (to == from) {
        if (n)
            memcpy(dst, src, (size_t)n * pst_dtype_size((pst_dtype)to));
        return 0;
    }
    if (to == PST_F32 && from == PST_F16) { /* the two that are hot */
        for (int64_t i = 0; i < n; i++)
            ((float *)dst)[i] = eng_half_to_float(((const uint16_t *)src)[i]);
        return 0;
    }
    if (to == PST_F16 && from == PST_F32) {
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = eng_float_to_half(((const float *)src)[i]);
        return 0;
    }
    bool fi = int_like(from), ti = int_like(to);
    for (int64_t i = 0; i < n; i++) {
        if (to == PST_BOOL) {
            ((uint8_t *)dst)[i] = fi ? get_i(from, src, i) != 0 : get_f(from, src, i) != 0;
        } else if (fi && ti) {
            put_i(to, dst, i, get_i(from, src, i));
        } else if (to == PST_U64) {
            ((uint64_t *)dst)[i] = to_u64(get_f(from, src, i));
        } else if (ti) {
            put_i(to, dst, i, to_i64(get_f(from, src, i)));
        } else {
            put_f(to, dst, i, fi && from != PST_U64 ? (double)get_i(from, src, i) : get_f(from, src, i), saturate);
        }
    }
    return 0;
}
