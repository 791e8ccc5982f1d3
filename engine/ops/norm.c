/* norm.c - softmax and its kin, batch normalisation, dropout. Sums in double: these are short rows where it costs little. */
#include "engine/ops/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { SOFTMAX, LOGSOFTMAX, HARDMAX } softmax_kind;

/* One row of n elements, stride apart. */
#define SOFTMAX_ROW(T, EXP, LOG)                                                        \
    static void row_##T(const T *x, T *o, int64_t n, int64_t stride, softmax_kind kind) \
    {                                                                                   \
        T top = x[0];                                                                   \
        int64_t best = 0;                                                               \
        double sum = 0;                                                                 \
        for (int64_t i = 1; i < n; i++)                                                 \
            if (x[i * stride] > top) {                                                  \
                top = x[i * stride];                                                    \
                best = i;                                                               \
            }                                                                           \
        if (kind == HARDMAX) {                                                          \
            for (int64_t i = 0; i < n; i++)                                             \
                o[i * stride] = i == best;                                              \
            return;                                                                     \
        }                                                                               \
        for (int64_t i = 0; i < n; i++) {                                               \
            T e = EXP(x[i * stride] - top);                                             \
            sum += (double)e;                                                           \
            o[i * stride] = e;                                                          \
        }                                                                               \
        if (kind == SOFTMAX) {                                                          \
            T by = (T)(1 / sum);                                                        \
            for (int64_t i = 0; i < n; i++)                                             \
                o[i * stride] *= by;                                                    \
        } else {                                                                        \
            T ls = (T)LOG(sum);                                                         \
            for (int64_t i = 0; i < n; i++)                                             \
                o[i * stride] = x[i * stride] - top - ls;                               \
        }                                                                               \
    }
SOFTMAX_ROW(float, expf, log)
SOFTMAX_ROW(double, exp, log)

/* Up to opset 12 the tensor is flattened to two dimensions at axis (default 1); from 13 one axis (default -1) is normalised. */
static int softmax(eng_op_ctx *c, softmax_kind kind)
{
    int rc = eng_op_need(c, 1), axis;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    bool flat = c->node->opset < 13;
    if (x.dtype != PST_F32 && x.dtype != PST_F64)
        return eng_op_type(c, x.dtype);
    if (!x.rank)
        x.rank = 1, x.dims[0] = 1;
    if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", flat ? 1 : -1), x.rank, &axis)) < 0)
        return rc;
    void *o = eng_out_like(c, 0, eng_in(c, 0));
    if (!o)
        return PST_ELIMIT;
    int64_t outer = 1, n = 1, inner = 1;
    for (int k = 0; k < x.rank; k++) {
        if (k < axis)
            outer *= x.dims[k];
        else if (k == axis || flat)
            n *= x.dims[k];
        else
            inner *= x.dims[k];
    }
    for (int64_t i = 0; n && i < outer * inner; i++) {
        int64_t at = i / inner * n * inner + i % inner;
        if (x.dtype == PST_F32)
            row_float((const float *)x.data + at, (float *)o + at, n, inner, kind);
        else
            row_double((const double *)x.data + at, (double *)o + at, n, inner, kind);
    }
    return 0;
}

int eng_op_softmax(eng_op_ctx *c)
{
    return softmax(c, SOFTMAX);
}

int eng_op_logsoftmax(eng_op_ctx *c)
{
    return softmax(c, LOGSOFTMAX);
}

int eng_op_hardmax(eng_op_ctx *c)
{
    return softmax(c, HARDMAX);
}

/* x (N, C, …). Training mode also gives the running statistics. Parameters may be wider than x. */
int eng_op_batchnorm(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 5);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    int64_t ch = x.rank > 1 ? x.dims[1] : 1, n = x.rank ? x.dims[0] : 1, inner = 1;
    bool train = eng_attr_int(c->node, "training_mode", 0);
    double eps = (double)eng_attr_float(c->node, "epsilon", 1e-5f), momentum = (double)eng_attr_float(c->node, "momentum", 0.9f), *p[4];
    if (x.dtype != PST_F32 && x.dtype != PST_F64)
        return eng_op_type(c, x.dtype);
    for (int k = 2; k < x.rank; k++)
        inner *= x.dims[k];
    for (int k = 0; k < 4; k++) { /* scale, bias, mean, variance */
        const pst_tensor *t = eng_in(c, k + 1);
        if (eng_count(t) != ch)
            return eng_op_fail(c, PST_EINVAL, "input %d must have one value per channel (%lld)", k + 1, (long long)ch);
        p[k] = eng_op_scratch(c, (size_t)ch * 8);
        if (!p[k])
            return PST_ELIMIT;
        if (eng_convert(PST_F64, p[k], t->dtype, t->data, ch, true) < 0)
            return eng_op_type(c, t->dtype);
    }
    pst_dtype stat_type = eng_in(c, 3)->dtype;
    if (train) {
        double *running[2] = {eng_op_scratch(c, (size_t)ch * 8), eng_op_scratch(c, (size_t)ch * 8)};
        if (!running[0] || !running[1])
            return PST_ELIMIT;
        for (int64_t k = 0; k < ch; k++) {
            double s = 0, q = 0, cnt = (double)(n * inner);
            for (int pass = 0; pass < 2; pass++)
                for (int64_t i = 0; i < n * inner; i++) {
                    int64_t at = (i / inner * ch + k) * inner + i % inner;
                    double v = x.dtype == PST_F32 ? (double)((const float *)x.data)[at] : ((const double *)x.data)[at];
                    if (pass == 0)
                        s += v / cnt;
                    else
                        q += (v - s) * (v - s) / cnt;
                }
            running[0][k] = p[2][k] * momentum + s * (1 - momentum);
            running[1][k] = p[3][k] * momentum + q * (1 - momentum);
            p[2][k] = s;
            p[3][k] = q;
        }
        for (int k = 0; k < 2; k++)
            if (c->n_out > 1 + k) {
                void *r = eng_out(c, 1 + k, stat_type, 1, &ch);
                if (!r)
                    return PST_ELIMIT;
                eng_convert(stat_type, r, PST_F64, running[k], ch, true);
            }
    }
    void *o = eng_out_like(c, 0, &x);
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < ch; k++) {
            double by = p[0][k] / sqrt(p[3][k] + eps), add = p[1][k] - p[2][k] * by;
            int64_t at = (i * ch + k) * inner;
            for (int64_t q = at; q < at + inner; q++) {
                if (x.dtype == PST_F32)
                    ((float *)o)[q] = (float)((double)((const float *)x.data)[q] * by + add);
                else
                    ((double *)o)[q] = ((const double *)x.data)[q] * by + add;
            }
        }
    return 0;
}

/* Inference passes x through; training mode with a ratio above 0 is random and belongs to a trainer. */
int eng_op_dropout(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    double ratio = (double)eng_attr_float(c->node, "ratio", 0.5f), train = 0;
    if (c->node->opset >= 12) {
        ratio = 0.5;
        if ((eng_in(c, 1) && (rc = eng_in_scalar(c, 1, &ratio)) < 0) || (eng_in(c, 2) && (rc = eng_in_scalar(c, 2, &train)) < 0))
            return rc;
    }
    if (train != 0 && ratio > 0)
        return eng_op_fail(c, PST_EUNSUPPORTED, "training mode is not covered: export the model for inference");
    pst_tensor x = *eng_in(c, 0);
    eng_out_share(c, 0, c->in[0]);
    if (c->n_out > 1 && eng_op_wanted(c, 1)) {
        uint8_t *mask = eng_out_typed(c, 1, PST_BOOL, &x);
        if (!mask)
            return PST_ELIMIT;
        memset(mask, 1, (size_t)eng_count(&x));
    }
    return 0;
}
