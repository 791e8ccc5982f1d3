/* fuse_tile.inc.h - the loops of fuse_tile.h, written once for the vectoriser and compiled per instruction set. The including
 * file defines ISA_NAME and KERNELS. Every function is branch-free in the loop, so that it becomes vector code. */
#include "engine/fuse_tile.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define FORCE static inline __attribute__((always_inline))

FORCE float from_bits(int32_t i)
{
    float f;
    memcpy(&f, &i, 4);
    return f;
}

/* e^x = 2^n · what this gives: x = n·ln 2 + r, a polynomial on |r| <= ln 2 / 2 (the constants of Cephes' expf). */
FORCE float exp_parts(float x, int32_t *ret_n)
{
    float magic = 12582912.0f, t = x * 1.44269504088896341f + magic, n = t - magic;
    float r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    *ret_n = (int32_t)n;
    return y * (r * r) + r + 1.0f;
}

/* The exponent in two halves so that n may be 128. Below -87.3 the result is 0 (libm's is less than the smallest normal number), above
 * 88.72 infinite. */
FORCE float exp_of(float x)
{
    float in = x > 88.722839f ? 88.722839f : x < -87.33f ? -87.33f : x != x ? 0 : x;
    int32_t n;
    float y = exp_parts(in, &n);
    y = y * from_bits((n + 126) << 23) * 2.0f;
    y = x < -87.33f ? 0 : y;
    y = x > 88.722839f ? INFINITY : y;
    return x != x ? x : y;
}

/* Below 1 an odd polynomial, above 1 - e^(-t·q(t)); both fitted at Chebyshev nodes, together within 3 ulp. */
FORCE float erf_of(float x)
{
    float a = fabsf(x), s = x * x, t = a < 4.0f ? a : 4.0f, p = 7.882497448e-05f, q = -2.376086599e-07f;
    s = s < 1.0f ? s : 1.0f;
    p = p * s - 8.018855006e-04f;
    p = p * s + 5.189312156e-03f;
    p = p * s - 2.685432881e-02f;
    p = p * s + 1.128359735e-01f;
    p = p * s - 3.761262596e-01f;
    p = p * s + 1.128379107e+00f;
    q = q * t + 3.659136837e-06f;
    q = q * t - 5.208505627e-06f;
    q = q * t - 3.144046932e-04f;
    q = q * t + 3.785536624e-03f;
    q = q * t - 2.424274199e-02f;
    q = q * t + 1.069255620e-01f;
    q = q * t + 6.346751451e-01f;
    q = q * t + 1.128778219e+00f;
    int32_t n; /* of -17 to 0 there is nothing to cut off */
    float e = exp_parts(-q * t, &n) * from_bits((n + 127) << 23);
    float y = a < 1.0f ? p * x : copysignf(1.0f - e, x);
    return x != x ? x : y;
}

FORCE float tanh_of(float x)
{
    float a = fabsf(x), z = x * x, big = 1.0f - 2.0f / (exp_of(2.0f * a) + 1.0f), p = -5.70498872745e-3f;
    z = z < 1.0f ? z : 1.0f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    big = x < 0 ? -big : big;
    float y = a < 0.625f ? p * z * x + x : big;
    return x != x ? x : y;
}

FORCE float sigmoid_of(float x)
{
    return 1.0f / (1.0f + exp_of(-x));
}

FORCE float pow_of(float a, float b)
{
    return b == 2.0f ? a * a : powf(a, b);
}

#define BINARY(NAME, EXPR)                                                                   \
    static void do_##NAME(const float *pa, int sa, const float *pb, int sb, float *o, int n) \
    {                                                                                        \
        if (sa && sb) {                                                                      \
            for (int i = 0; i < n; i++) {                                                    \
                float a = pa[i], b = pb[i];                                                  \
                o[i] = EXPR;                                                                 \
            }                                                                                \
        } else if (sa) {                                                                     \
            float b = *pb;                                                                   \
            for (int i = 0; i < n; i++) {                                                    \
                float a = pa[i];                                                             \
                o[i] = EXPR;                                                                 \
            }                                                                                \
        } else {                                                                             \
            float a = *pa;                                                                   \
            for (int i = 0; i < n; i++) {                                                    \
                float b = pb[i * sb];                                                        \
                o[i] = EXPR;                                                                 \
            }                                                                                \
        }                                                                                    \
    }
BINARY(ADD, a + b)
BINARY(SUB, a - b)
BINARY(MUL, a *b)
BINARY(DIV, a / b)
BINARY(MIN, a < b || a != a ? a : b)
BINARY(MAX, a > b || a != a ? a : b)
BINARY(PRELU, a < 0 ? a * b : a)
BINARY(POW, pow_of(a, b))

#define UNARY(NAME, EXPR)                                                                    \
    static void do_##NAME(const float *pa, int sa, float *o, int n, float alpha, float beta) \
    {                                                                                        \
        (void)alpha, (void)beta;                                                             \
        if (!sa) {                                                                           \
            float x = *pa, y = EXPR;                                                         \
            for (int i = 0; i < n; i++)                                                      \
                o[i] = y;                                                                    \
            return;                                                                          \
        }                                                                                    \
        for (int i = 0; i < n; i++) {                                                        \
            float x = pa[i];                                                                 \
            o[i] = EXPR;                                                                     \
        }                                                                                    \
    }
UNARY(SQRT, sqrtf(x))
UNARY(EXP, exp_of(x))
UNARY(LOG, logf(x))
UNARY(ERF, erf_of(x))
UNARY(RECIPROCAL, 1 / x)
UNARY(FLOOR, floorf(x))
UNARY(CEIL, ceilf(x))
UNARY(ROUND, rintf(x))
UNARY(NEG, -x)
UNARY(ABS, fabsf(x))
UNARY(RELU, x < 0 ? 0 : x)
UNARY(LEAKY, x < 0 ? alpha * x : x)
UNARY(ELU, x < 0 ? alpha * (exp_of(x) - 1.0f) : x)
UNARY(SIGMOID, sigmoid_of(x))
UNARY(TANH, tanh_of(x))
UNARY(HARDSIGMOID, fmaxf(0, fminf(1, alpha *x + beta)))
UNARY(HARDSWISH, x *fmaxf(0, fminf(1, x / 6 + 0.5f)))
UNARY(SOFTSIGN, x / (1 + fabsf(x)))
UNARY(SOFTPLUS, (x > 0 ? x : 0) + log1pf(expf(-fabsf(x))))
UNARY(SWISH, x *sigmoid_of(alpha *x))
UNARY(GELU, 0.5f * x * (1 + erf_of(x * 0.70710678f)))
UNARY(GELU_TANH, 0.5f * x * (1 + tanh_of(0.79788456f * (x + 0.044715f * x * x * x))))
UNARY(CLIP, (x < alpha ? alpha : x) > beta ? beta : (x < alpha ? alpha : x))
UNARY(SQUARE, x *x)
UNARY(CUBE, x *x *x)

static void op(eng_tile_code code, const float *a, int sa, const float *b, int sb, float *o, int n, float alpha, float beta)
{
    switch (code) {
#define X(NAME, COST) \
    case ENG_TILE_##NAME: do_##NAME(a, sa, b, sb, o, n); break;
        ENG_TILE_BINARY(X)
#undef X
#define X(NAME, COST) \
    case ENG_TILE_##NAME: do_##NAME(a, sa, o, n, alpha, beta); break;
        ENG_TILE_UNARY(X)
#undef X
    default: break;
    }
}

enum { LANES = 16 };

/* Σ of n floats, in independent double sums. */
static double sum_of(const float *x, int64_t n)
{
    double acc[LANES] = {0}, s = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            acc[k] += (double)x[i + k];
    for (; i < n; i++)
        s += (double)x[i];
    for (int k = 0; k < LANES; k++)
        s += acc[k];
    return s;
}

static double square_sum(const float *x, double mean, int64_t n)
{
    double acc[LANES] = {0}, s = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            double d = (double)x[i + k] - mean;
            acc[k] += d * d;
        }
    for (; i < n; i++)
        s += ((double)x[i] - mean) * ((double)x[i] - mean);
    for (int k = 0; k < LANES; k++)
        s += acc[k];
    return s;
}

static void layer_norm(const float *x, const float *scale, const float *bias, double eps, float *o, int64_t n)
{
    double mean = sum_of(x, n) / (double)n, by = 1 / sqrt(square_sum(x, mean, n) / (double)n + eps);
    for (int64_t i = 0; i < n; i++)
        o[i] = (float)(((double)x[i] - mean) * by);
    if (scale)
        for (int64_t i = 0; i < n; i++)
            o[i] *= scale[i];
    if (bias)
        for (int64_t i = 0; i < n; i++)
            o[i] += bias[i];
}

static float top_of(const float *x, int64_t n)
{
    float tops[LANES], top = x[0];
    int64_t i = 0;
    if (n >= LANES) {
        for (int k = 0; k < LANES; k++)
            tops[k] = x[0];
        for (; i + LANES <= n; i += LANES)
            for (int k = 0; k < LANES; k++)
                tops[k] = x[i + k] > tops[k] ? x[i + k] : tops[k];
        for (int k = 0; k < LANES; k++)
            top = tops[k] > top ? tops[k] : top;
    }
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

/* Short rows take the exponential together: one call of it fills its vectors. */
static void softmax_rows(const float *x, float *o, int64_t rows, int64_t n)
{
    int64_t together = n < ENG_TILE ? ENG_TILE / n : 1;
    for (int64_t r = 0; r < rows; r += together) {
        int64_t few = rows - r < together ? rows - r : together;
        const float *from = x + r * n;
        float *to = o + r * n;
        for (int64_t k = 0; k < few; k++) {
            float top = top_of(from + k * n, n);
            for (int64_t i = 0; i < n; i++)
                to[k * n + i] = from[k * n + i] - top;
        }
        for (int64_t i = 0; i < few * n; i++)
            to[i] = exp_of(to[i]);
        for (int64_t k = 0; k < few; k++) {
            float by = (float)(1 / sum_of(to + k * n, n));
            for (int64_t i = 0; i < n; i++)
                to[k * n + i] *= by;
        }
    }
}

static void softmax(const float *x, float *o, int64_t n)
{
    softmax_rows(x, o, 1, n);
}

const eng_tile_kernels KERNELS = {.isa = ISA_NAME, .op = op, .layer_norm = layer_norm, .softmax = softmax, .softmax_rows = softmax_rows};
