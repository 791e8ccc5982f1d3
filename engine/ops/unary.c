/* unary.c - operators of one input, element by element. Floats of all widths and, where ONNX defines it, integers.
 * The plain libm forms are the reference; the hot activations use the vector kernels of this CPU unless fusion is off. */
#include "engine/ops/kernels.h"

#include "engine/cpu/isa.h"

#include <math.h>
#include <string.h>

typedef struct unary_args {
    double alpha, beta;
} unary_args;

#define DEF_UNARY(NAME, F32_EXPR, F64_EXPR)                                      \
    static void NAME##_f32(const float *px, float *o, int64_t n, unary_args u)   \
    {                                                                            \
        const float alpha = (float)u.alpha, beta = (float)u.beta;                \
        (void)alpha, (void)beta;                                                 \
        for (int64_t i = 0; i < n; i++) {                                        \
            float x = px[i];                                                     \
            o[i] = F32_EXPR;                                                     \
        }                                                                        \
    }                                                                            \
    static void NAME##_f64(const double *px, double *o, int64_t n, unary_args u) \
    {                                                                            \
        const double alpha = u.alpha, beta = u.beta;                             \
        (void)alpha, (void)beta;                                                 \
        for (int64_t i = 0; i < n; i++) {                                        \
            double x = px[i];                                                    \
            o[i] = F64_EXPR;                                                     \
        }                                                                        \
    }

static float sigmoid_f(float x)
{
    return x >= 0 ? 1 / (1 + expf(-x)) : expf(x) / (1 + expf(x));
}

static double sigmoid_d(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static double softplus_d(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

DEF_UNARY(sqrt, sqrtf(x), sqrt(x))
DEF_UNARY(exp, expf(x), exp(x))
DEF_UNARY(log, logf(x), log(x))
DEF_UNARY(erf, erff(x), erf(x))
DEF_UNARY(reciprocal, 1 / x, 1 / x)
DEF_UNARY(floor, floorf(x), floor(x))
DEF_UNARY(ceil, ceilf(x), ceil(x))
DEF_UNARY(round, rintf(x), rint(x)) /* the mode is to nearest even */
DEF_UNARY(sin, sinf(x), sin(x))
DEF_UNARY(cos, cosf(x), cos(x))
DEF_UNARY(tan, tanf(x), tan(x))
DEF_UNARY(asin, asinf(x), asin(x))
DEF_UNARY(acos, acosf(x), acos(x))
DEF_UNARY(atan, atanf(x), atan(x))
DEF_UNARY(sinh, sinhf(x), sinh(x))
DEF_UNARY(cosh, coshf(x), cosh(x))
DEF_UNARY(asinh, asinhf(x), asinh(x))
DEF_UNARY(acosh, acoshf(x), acosh(x))
DEF_UNARY(atanh, atanhf(x), atanh(x))
DEF_UNARY(tanh, tanhf(x), tanh(x))
DEF_UNARY(relu, x < 0 ? 0 : x, x < 0 ? 0 : x)
DEF_UNARY(leakyrelu, x < 0 ? alpha * x : x, x < 0 ? alpha * x : x)
DEF_UNARY(thresholdedrelu, x > alpha ? x : 0, x > alpha ? x : 0)
DEF_UNARY(elu, x < 0 ? alpha * expm1f(x) : x, x < 0 ? alpha * expm1(x) : x)
DEF_UNARY(selu, x > 0 ? beta * x : beta * (alpha * expf(x) - alpha), x > 0 ? beta * x : beta * (alpha * exp(x) - alpha))
DEF_UNARY(celu, fmaxf(0, x) + fminf(0, alpha *expm1f(x / alpha)), fmax(0, x) + fmin(0, alpha *expm1(x / alpha)))
DEF_UNARY(sigmoid, sigmoid_f(x), sigmoid_d(x))
DEF_UNARY(hardsigmoid, fmaxf(0, fminf(1, alpha *x + beta)), fmax(0, fmin(1, alpha *x + beta)))
DEF_UNARY(hardswish, x *fmaxf(0, fminf(1, x / 6 + 0.5f)), x *fmax(0, fmin(1, x / 6 + 0.5)))
DEF_UNARY(softplus, (float)softplus_d((double)x), softplus_d(x))
DEF_UNARY(softsign, x / (1 + fabsf(x)), x / (1 + fabs(x)))
DEF_UNARY(mish, (float)((double)x *tanh(softplus_d((double)x))), x *tanh(softplus_d(x)))
DEF_UNARY(swish, x *sigmoid_f(alpha *x), x *sigmoid_d(alpha *x))
DEF_UNARY(shrink, x<-beta ? x + alpha : x> beta ? x - alpha : 0, x<-beta ? x + alpha : x> beta ? x - alpha : 0)
DEF_UNARY(gelu, 0.5f * x * (1 + erff(x * 0.70710678f)), 0.5 * x * (1 + erf(x * M_SQRT1_2)))
DEF_UNARY(gelu_tanh, 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x))),
          0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))))

static int unary(eng_op_ctx *c, void (*f32)(const float *, float *, int64_t, unary_args),
                 void (*f64)(const double *, double *, int64_t, unary_args), double alpha, double beta)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    unary_args u = {.alpha = alpha, .beta = beta};
    if (x.dtype != PST_F32 && x.dtype != PST_F64)
        return eng_op_type(c, x.dtype);
    void *o = eng_out_over(c, 0, 0);
    if (!o)
        return PST_ELIMIT;
    if (x.dtype == PST_F32)
        f32(x.data, o, eng_count(&x), u);
    else
        f64(x.data, o, eng_count(&x), u);
    return 0;
}

#define UNARY(NAME, ALPHA, BETA)                                                  \
    int eng_op_##NAME(eng_op_ctx *c)                                              \
    {                                                                             \
        return unary(c, NAME##_f32, NAME##_f64, (double)(ALPHA), (double)(BETA)); \
    }
#define ATTR(NAME, DEF) eng_attr_float(c->node, NAME, DEF)
UNARY(sqrt, 0, 0)
UNARY(exp, 0, 0)
UNARY(log, 0, 0)
UNARY(erf, 0, 0)
UNARY(reciprocal, 0, 0)
UNARY(floor, 0, 0)
UNARY(ceil, 0, 0)
UNARY(round, 0, 0)
UNARY(sin, 0, 0)
UNARY(cos, 0, 0)
UNARY(tan, 0, 0)
UNARY(asin, 0, 0)
UNARY(acos, 0, 0)
UNARY(atan, 0, 0)
UNARY(sinh, 0, 0)
UNARY(cosh, 0, 0)
UNARY(asinh, 0, 0)
UNARY(acosh, 0, 0)
UNARY(atanh, 0, 0)
UNARY(thresholdedrelu, ATTR("alpha", 1.0f), 0)
UNARY(selu, ATTR("alpha", 1.67326319217681884765625f), ATTR("gamma", 1.05070102214813232421875f))
UNARY(celu, ATTR("alpha", 1.0f), 0)
UNARY(softplus, 0, 0)
UNARY(softsign, 0, 0)
UNARY(mish, 0, 0)

int eng_op_gelu(eng_op_ctx *c)
{
    bool t = !strcmp(eng_attr_str(c->node, "approximate", "none"), "tanh");
    return unary(c, t ? gelu_tanh_f32 : gelu_f32, t ? gelu_tanh_f64 : gelu_f64, 0, 0);
}

/* The activations of hidden layers: vector kernels unless the reference is asked for. */
static int activation(eng_op_ctx *c, eng_act act, void (*f32)(const float *, float *, int64_t, unary_args),
                      void (*f64)(const double *, double *, int64_t, unary_args), float alpha, float beta)
{
    const pst_tensor *x = eng_in(c, 0);
    if (!x || x->dtype != PST_F32 || c->plan->opts.no_fusion)
        return unary(c, f32, f64, (double)alpha, (double)beta);
    pst_tensor t = *x;
    float *o = eng_out_over(c, 0, 0);
    if (!o)
        return PST_ELIMIT;
    eng_kernels_pick(c->plan->isa)->act(act, alpha, beta, t.data, o, (size_t)eng_count(&t));
    return 0;
}

/* Relu and the sign-like operators also take integers. */
#define INT_UNARY(NAME, EXPR)                                  \
    static int NAME##_ints(eng_op_ctx *c, const pst_tensor *x) \
    {                                                          \
        pst_tensor t = *x;                                     \
        void *o = eng_out_like(c, 0, &t);                      \
        int64_t n = eng_count(&t);                             \
        if (!o)                                                \
            return PST_ELIMIT;                                 \
        switch (t.dtype) {                                     \
            ENG_FOR_INTS(EXPR)                                 \
        default: return eng_op_type(c, t.dtype);               \
        }                                                      \
        return 0;                                              \
    }
#define EACH(D, T, VALUE)                  \
    case D:                                \
        for (int64_t i = 0; i < n; i++) {  \
            T x1 = ((const T *)t.data)[i]; \
            ((T *)o)[i] = (T)(VALUE);      \
        }                                  \
        break;
#define RELU_CASE(D, T) EACH(D, T, x1 > 0 ? x1 : 0)
#define NEG_CASE(D, T)  EACH(D, T, 0 - (uint64_t)x1)
#define ABS_CASE(D, T)  EACH(D, T, x1 < 0 ? 0 - (uint64_t)x1 : (uint64_t)x1)
#define SIGN_CASE(D, T) EACH(D, T, (x1 > 0) - (x1 < 0))
#define NOT_CASE(D, T)  EACH(D, T, ~(uint64_t)x1)
INT_UNARY(relu, RELU_CASE)
INT_UNARY(neg, NEG_CASE)
INT_UNARY(abs, ABS_CASE)
INT_UNARY(sign, SIGN_CASE)
INT_UNARY(bitnot, NOT_CASE)
DEF_UNARY(neg, -x, -x)
DEF_UNARY(abs, fabsf(x), fabs(x))
DEF_UNARY(sign, (float)((x > 0) - (x < 0)), (double)((x > 0) - (x < 0)))

#define INT_OR_FLOAT(NAME)                             \
    int eng_op_##NAME(eng_op_ctx *c)                   \
    {                                                  \
        const pst_tensor *x = eng_in(c, 0);            \
        if (x && eng_dtype_is_int(x->dtype))           \
            return NAME##_ints(c, x);                  \
        return unary(c, NAME##_f32, NAME##_f64, 0, 0); \
    }
INT_OR_FLOAT(neg)
INT_OR_FLOAT(abs)
INT_OR_FLOAT(sign)

int eng_op_relu(eng_op_ctx *c)
{
    const pst_tensor *x = eng_in(c, 0);
    if (x && eng_dtype_is_int(x->dtype))
        return relu_ints(c, x);
    return activation(c, ENG_ACT_RELU, relu_f32, relu_f64, 0, 0);
}

int eng_op_leakyrelu(eng_op_ctx *c)
{
    return activation(c, ENG_ACT_LEAKY, leakyrelu_f32, leakyrelu_f64, ATTR("alpha", 0.01f), 0);
}

int eng_op_elu(eng_op_ctx *c)
{
    return activation(c, ENG_ACT_ELU, elu_f32, elu_f64, ATTR("alpha", 1.0f), 0);
}

int eng_op_sigmoid(eng_op_ctx *c)
{
    return activation(c, ENG_ACT_SIGMOID, sigmoid_f32, sigmoid_f64, 0, 0);
}

int eng_op_tanh(eng_op_ctx *c)
{
    return activation(c, ENG_ACT_TANH, tanh_f32, tanh_f64, 0, 0);
}

int eng_op_hardsigmoid(eng_op_ctx *c)
{
    return activation(c, ENG_ACT_HARDSIGMOID, hardsigmoid_f32, hardsigmoid_f64, ATTR("alpha", 0.2f), ATTR("beta", 0.5f));
}

int eng_op_hardswish(eng_op_ctx *c)
{
    return activation(c, ENG_ACT_HARDSWISH, hardswish_f32, hardswish_f64, 0, 0);
}

int eng_op_swish(eng_op_ctx *c)
{
    return activation(c, ENG_ACT_SWISH, swish_f32, swish_f64, ATTR("alpha", 1.0f), 0);
}

int eng_op_shrink(eng_op_ctx *c)
{
    double bias = (double)eng_attr_float(c->node, "bias", 0), lambd = (double)eng_attr_float(c->node, "lambd", 0.5f);
    const pst_tensor *x = eng_in(c, 0);
    if (!x || !eng_dtype_is_int(x->dtype))
        return unary(c, shrink_f32, shrink_f64, bias, lambd);
    pst_tensor t = *x;
    int64_t n = eng_count(&t);
    double *d = eng_op_scratch(c, (size_t)n * 8);
    void *o = eng_out_like(c, 0, &t);
    if (!o || !d)
        return PST_ELIMIT;
    eng_convert(PST_F64, d, t.dtype, t.data, n, true);
    shrink_f64(d, d, n, (unary_args){bias, lambd});
    return eng_convert(t.dtype, o, PST_F64, d, n, true);
}

int eng_op_bitnot(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    return rc < 0 ? rc : bitnot_ints(c, eng_in(c, 0));
}

int eng_op_not(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    if (x.dtype != PST_BOOL)
        return eng_op_type(c, x.dtype);
    uint8_t *o = eng_out_like(c, 0, &x);
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0, n = eng_count(&x); i < n; i++)
        o[i] = !((const uint8_t *)x.data)[i];
    return 0;
}

/* IsNaN, IsInf: any float type, also the narrow ones. */
static int classify(eng_op_ctx *c, bool nan)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    bool pos = eng_attr_int(c->node, "detect_positive", 1), neg = eng_attr_int(c->node, "detect_negative", 1);
    int64_t n = eng_count(&x);
    double *d = eng_op_scratch(c, (size_t)n * 8);
    uint8_t *o = eng_out_typed(c, 0, PST_BOOL, &x);
    if (!o || !d)
        return PST_ELIMIT;
    if (eng_convert(PST_F64, d, x.dtype, x.data, n, true) < 0)
        return eng_op_type(c, x.dtype);
    for (int64_t i = 0; i < n; i++)
        o[i] = nan ? isnan(d[i]) : isinf(d[i]) && (d[i] > 0 ? pos : neg);
    return 0;
}

int eng_op_isnan(eng_op_ctx *c)
{
    return classify(c, true);
}

int eng_op_isinf(eng_op_ctx *c)
{
    return classify(c, false);
}

/* Clip: bounds are attributes up to opset 10, optional scalar inputs after. */
int eng_op_clip(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    const pst_tensor *lo = c->node->opset >= 11 ? eng_in(c, 1) : NULL, *hi = c->node->opset >= 11 ? eng_in(c, 2) : NULL;
    if ((lo && (lo->dtype != x.dtype || eng_count(lo) != 1)) || (hi && (hi->dtype != x.dtype || eng_count(hi) != 1)))
        return eng_op_fail(c, PST_EINVAL, "min and max must be scalars of the input's type");
    bool attrs = c->node->opset < 11;
    float flo = -INFINITY, fhi = INFINITY;
    if (attrs) {
        flo = eng_attr_float(c->node, "min", flo);
        fhi = eng_attr_float(c->node, "max", fhi);
    }
    void *o = eng_out_like(c, 0, &x);
    int64_t n = eng_count(&x);
    if (!o)
        return PST_ELIMIT;
    if (attrs && !eng_dtype_is_float(x.dtype))
        return eng_op_type(c, x.dtype);
    if (x.dtype == PST_F32 && !c->plan->opts.no_fusion) {
        float from = lo ? *(const float *)lo->data : flo, to = hi ? *(const float *)hi->data : fhi;
        eng_kernels_pick(c->plan->isa)->act(ENG_ACT_CLIP, from, to, x.data, o, (size_t)n);
        return 0;
    }
    switch (x.dtype) {
#define CLIP_CASE(D, T)                                                                   \
    case D: {                                                                             \
        T l = lo ? *(const T *)lo->data : (T)flo, h = hi ? *(const T *)hi->data : (T)fhi; \
        for (int64_t i = 0; i < n; i++) {                                                 \
            T v = ((const T *)x.data)[i];                                                 \
            v = v < l ? l : v;                                                            \
            ((T *)o)[i] = v > h ? h : v;                                                  \
        }                                                                                 \
        break;                                                                            \
    }
        ENG_FOR_FLOATS(CLIP_CASE)
#undef CLIP_CASE
#define CLIP_CASE(D, T)                                                         \
    case D: {                                                                   \
        T l = lo ? *(const T *)lo->data : 0, h = hi ? *(const T *)hi->data : 0; \
        for (int64_t i = 0; i < n; i++) {                                       \
            T v = ((const T *)x.data)[i];                                       \
            v = lo && v < l ? l : v;                                            \
            ((T *)o)[i] = hi && v > h ? h : v;                                  \
        }                                                                       \
        break;                                                                  \
    }
        ENG_FOR_INTS(CLIP_CASE)
    default: return eng_op_type(c, x.dtype);
    }
    return 0;
}
