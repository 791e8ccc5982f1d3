/* reduce.c - reductions over any axes and the index forms. Values are walked in output order with the reduced axes inside. */
#include "engine/ops/kernels.h"

#include <math.h>
#include <string.h>

typedef enum { R_SUM, R_MEAN, R_MAX, R_MIN, R_PROD, R_L1, R_L2, R_LOGSUM, R_LOGSUMEXP, R_SUMSQUARE } reduce_kind;

/* Offsets of the elements of one reduction, and of the first element of each. */
typedef struct reduction {
    int64_t n_out, n_in; /* results, elements per result */
    int64_t dims_in[PST_MAX_RANK], strides_in[PST_MAX_RANK], dims_out[PST_MAX_RANK], strides_out[PST_MAX_RANK];
    int rank_in, rank_out;
} reduction;

static int64_t offset_of(int64_t i, int rank, const int64_t *dims, const int64_t *strides)
{
    int64_t at = 0;
    for (int k = rank - 1; k >= 0; k--) {
        at += i % dims[k] * strides[k];
        i /= dims[k];
    }
    return at;
}

#define ABS_OF(v) ((v) < 0 ? -(v) : (v))

/* Floats accumulate in double; the two passes of logsumexp keep it from overflowing. */
static double reduce_floats(const reduction *r, int dtype, const void *x, int64_t base, reduce_kind kind)
{
    double acc = kind == R_PROD ? 1 : kind == R_MAX ? -INFINITY : kind == R_MIN ? INFINITY : 0, top = -INFINITY;
    for (int pass = kind == R_LOGSUMEXP ? 0 : 1; pass < 2; pass++)
        for (int64_t i = 0; i < r->n_in; i++) {
            int64_t at = base + (r->rank_in == 1 ? i * r->strides_in[0] : offset_of(i, r->rank_in, r->dims_in, r->strides_in));
            double v = dtype == PST_F32 ? (double)((const float *)x)[at] : ((const double *)x)[at];
            if (pass == 0) {
                top = v > top ? v : top;
                continue;
            }
            switch (kind) {
            case R_MAX: acc = v > acc || v != v ? v : acc; break;
            case R_MIN: acc = v < acc || v != v ? v : acc; break;
            case R_PROD: acc *= v; break;
            case R_L1: acc += fabs(v); break;
            case R_L2:
            case R_SUMSQUARE: acc += v * v; break;
            case R_LOGSUMEXP: acc += exp(v - (isinf(top) ? 0 : top)); break;
            default: acc += v; break;
            }
        }
    switch (kind) {
    case R_MEAN: return acc / (double)r->n_in;
    case R_L2: return sqrt(acc);
    case R_LOGSUM: return log(acc);
    case R_LOGSUMEXP: return log(acc) + (isinf(top) ? 0 : top);
    default: return acc;
    }
}

static int64_t get_int(int dtype, const void *x, int64_t at)
{
    switch (dtype) {
    case PST_I64:
    case PST_U64: return ((const int64_t *)x)[at];
    case PST_I32: return ((const int32_t *)x)[at];
    case PST_U32: return ((const uint32_t *)x)[at];
    case PST_I16: return ((const int16_t *)x)[at];
    case PST_U16: return ((const uint16_t *)x)[at];
    case PST_I8: return ((const int8_t *)x)[at];
    default: return ((const uint8_t *)x)[at];
    }
}

static int64_t float_to_int(double d)
{
    int64_t v = 0;
    eng_convert(PST_I64, &v, PST_F64, &d, 1, true);
    return v;
}

static int64_t reduce_ints(const reduction *r, int dtype, const void *x, int64_t base, reduce_kind kind)
{
    bool big = dtype == PST_U64;
    uint64_t acc = kind == R_PROD ? 1 : 0;
    for (int64_t i = 0; i < r->n_in; i++) {
        int64_t v = get_int(dtype, x, base + offset_of(i, r->rank_in, r->dims_in, r->strides_in)), a = (int64_t)acc;
        switch (kind) {
        case R_MAX:
            if (!i || (big ? (uint64_t)v > acc : v > a))
                acc = (uint64_t)v;
            break;
        case R_MIN:
            if (!i || (big ? (uint64_t)v < acc : v < a))
                acc = (uint64_t)v;
            break;
        case R_PROD: acc *= (uint64_t)v; break;
        case R_L1: acc += v < 0 && !big ? 0 - (uint64_t)v : (uint64_t)v; break;
        case R_L2:
        case R_SUMSQUARE: acc += (uint64_t)v * (uint64_t)v; break;
        default: acc += (uint64_t)v; break;
        }
    }
    switch (kind) {
    case R_MEAN: return r->n_in ? (int64_t)acc / r->n_in : 0;
    case R_L2: return float_to_int(sqrt((double)(int64_t)acc));
    case R_LOGSUM: return float_to_int(log((double)(int64_t)acc));
    default: return (int64_t)acc;
    }
}

/* Which axes: an attribute, or input 1 from opset 13 (ReduceSum) and 18 (the others); none = all, unless noop_with_empty_axes. */
static int axes_of(eng_op_ctx *c, int rank, int since, bool *ret_set, bool *ret_noop)
{
    int64_t list[PST_MAX_RANK];
    size_t n_attr;
    const int64_t *attr = eng_attr_ints(c->node, "axes", &n_attr);
    int n = 0;
    if (c->node->opset >= since) {
        if (eng_in(c, 1) && (n = eng_in_ints(c, 1, list, PST_MAX_RANK)) < 0)
            return PST_EINVAL;
    } else {
        if (n_attr > PST_MAX_RANK)
            return eng_op_fail(c, PST_EINVAL, "too many axes");
        n = (int)n_attr;
        for (int i = 0; i < n; i++)
            list[i] = attr[i];
    }
    *ret_noop = !n && c->node->opset >= since && eng_attr_int(c->node, "noop_with_empty_axes", 0);
    for (int i = 0; i < rank; i++)
        ret_set[i] = !n && !*ret_noop;
    for (int i = 0; i < n; i++) {
        int at, rc = eng_op_axis(c, list[i], rank, &at);
        if (rc < 0)
            return rc;
        ret_set[at] = true;
    }
    return 0;
}

static void plan_reduction(const pst_tensor *x, const bool *set, reduction *r)
{
    int64_t strides[PST_MAX_RANK];
    *r = (reduction){.n_out = 1, .n_in = 1};
    eng_strides(x->dims, x->rank, strides);
    for (int k = 0; k < x->rank; k++) {
        bool joins = k && set[k] == set[k - 1]; /* neighbours are one dimension */
        if (set[k]) {
            r->rank_in -= joins;
            r->dims_in[r->rank_in] = x->dims[k] * (joins ? r->dims_in[r->rank_in] : 1);
            r->strides_in[r->rank_in++] = strides[k];
            r->n_in *= x->dims[k];
        } else {
            r->rank_out -= joins;
            r->dims_out[r->rank_out] = x->dims[k] * (joins ? r->dims_out[r->rank_out] : 1);
            r->strides_out[r->rank_out++] = strides[k];
            r->n_out *= x->dims[k];
        }
    }
}

/* Sums of float32 over one dimension: of rows that lie together, or of many columns at once. */
#define SUMS(NAME, TERM)                                                                          \
    static double row_##NAME(const float *x, int64_t n)                                           \
    {                                                                                             \
        double acc[4] = {0};                                                                      \
        int64_t i = 0;                                                                            \
        for (; i + 4 <= n; i += 4)                                                                \
            for (int k = 0; k < 4; k++) {                                                         \
                double v = (double)x[i + k];                                                      \
                acc[k] += TERM;                                                                   \
            }                                                                                     \
        for (; i < n; i++) {                                                                      \
            double v = (double)x[i];                                                              \
            acc[0] += TERM;                                                                       \
        }                                                                                         \
        return (acc[0] + acc[1]) + (acc[2] + acc[3]);                                             \
    }                                                                                             \
    static void columns_##NAME(const float *x, int64_t n, int64_t stride, int64_t m, double *acc) \
    {                                                                                             \
        for (int64_t i = 0; i < n; i++, x += stride)                                              \
            for (int64_t k = 0; k < m; k++) {                                                     \
                double v = (double)x[k];                                                          \
                acc[k] += TERM;                                                                   \
            }                                                                                     \
    }
SUMS(plain, v)
SUMS(squares, v *v)

static float finished(const reduction *r, reduce_kind kind, double acc)
{
    return (float)(kind == R_MEAN ? acc / (double)r->n_in : kind == R_L2 ? sqrt(acc) : acc);
}

/* The same numbers as reduce_floats, but for the order of their sums. False: another kind, or not one dimension. */
static bool reduce_sums(const reduction *r, const float *x, float *o, reduce_kind kind)
{
    enum { COLUMNS = 256 };
    bool squares = kind == R_SUMSQUARE || kind == R_L2;
    int64_t m = r->rank_out ? r->dims_out[r->rank_out - 1] : 1;
    if ((kind != R_SUM && kind != R_MEAN && !squares) || r->rank_in != 1)
        return false;
    if (r->strides_in[0] == 1) {
        for (int64_t i = 0; i < r->n_out; i++) {
            const float *row = x + offset_of(i, r->rank_out, r->dims_out, r->strides_out);
            o[i] = finished(r, kind, squares ? row_squares(row, r->n_in) : row_plain(row, r->n_in));
        }
        return true;
    }
    if (!r->rank_out || r->strides_out[r->rank_out - 1] != 1)
        return false;
    for (int64_t i = 0; i < r->n_out; i += m)
        for (int64_t at = 0; at < m; at += COLUMNS) {
            double acc[COLUMNS] = {0};
            int64_t n = m - at < COLUMNS ? m - at : COLUMNS;
            const float *from = x + offset_of(i, r->rank_out, r->dims_out, r->strides_out) + at;
            if (squares)
                columns_squares(from, r->n_in, r->strides_in[0], n, acc);
            else
                columns_plain(from, r->n_in, r->strides_in[0], n, acc);
            for (int64_t k = 0; k < n; k++)
                o[i + at + k] = finished(r, kind, acc[k]);
        }
    return true;
}

/* The lowest or the highest number of a type of integers, in its low bytes. */
static uint64_t end_of(pst_dtype t, bool lowest)
{
    bool sign = t == PST_I8 || t == PST_I16 || t == PST_I32 || t == PST_I64;
    uint64_t half = UINT64_C(1) << (pst_dtype_size(t) * 8 - 1);
    if (sign)
        return lowest ? half : half - 1;
    if (lowest)
        return 0;
    return t == PST_BOOL ? 1 : UINT64_MAX;
}

static int reduce(eng_op_ctx *c, reduce_kind kind, int since)
{
    int rc = eng_op_need(c, 1), rank = 0;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    bool set[PST_MAX_RANK], noop, keep = eng_attr_int(c->node, "keepdims", 1);
    if ((rc = axes_of(c, x.rank, since, set, &noop)) < 0)
        return rc;
    reduction r;
    plan_reduction(&x, set, &r);
    int64_t dims[PST_MAX_RANK];
    for (int k = 0; k < x.rank; k++)
        if (!set[k] || keep)
            dims[rank++] = set[k] ? 1 : x.dims[k];
    char *o = eng_out(c, 0, x.dtype, rank, dims);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(x.dtype);
    bool floats = x.dtype == PST_F32 || x.dtype == PST_F64, logic = x.dtype == PST_BOOL && (kind == R_MAX || kind == R_MIN);
    if (!floats && !logic && !eng_dtype_is_int(x.dtype))
        return eng_op_type(c, x.dtype);
    if (!floats && kind == R_LOGSUMEXP)
        return eng_op_type(c, x.dtype);
    if (!r.n_in && !floats && (kind == R_MAX || kind == R_MIN)) { /* nothing to compare: the type's own end */
        uint64_t v = end_of(x.dtype, kind == R_MAX);
        for (int64_t i = 0; i < r.n_out; i++)
            memcpy(o + (size_t)i * size, &v, size);
        return 0;
    }
    if (x.dtype == PST_F32 && !c->plan->opts.no_fusion && reduce_sums(&r, x.data, (float *)o, kind))
        return 0;
    for (int64_t i = 0; i < r.n_out; i++) {
        int64_t base = offset_of(i, r.rank_out, r.dims_out, r.strides_out);
        if (floats) {
            double v = reduce_floats(&r, x.dtype, x.data, base, kind);
            if (x.dtype == PST_F32)
                ((float *)o)[i] = (float)v;
            else
                ((double *)o)[i] = v;
        } else {
            int64_t v = reduce_ints(&r, x.dtype, x.data, base, kind);
            memcpy(o + (size_t)i * size, &v, size); /* little endian: the low bytes */
        }
    }
    return 0;
}

#define REDUCE(NAME, KIND, SINCE)      \
    int eng_op_##NAME(eng_op_ctx *c)   \
    {                                  \
        return reduce(c, KIND, SINCE); \
    }
REDUCE(reduce_sum, R_SUM, 13)
REDUCE(reduce_mean, R_MEAN, 18)
REDUCE(reduce_max, R_MAX, 18)
REDUCE(reduce_min, R_MIN, 18)
REDUCE(reduce_prod, R_PROD, 18)
REDUCE(reduce_l1, R_L1, 18)
REDUCE(reduce_l2, R_L2, 18)
REDUCE(reduce_logsum, R_LOGSUM, 18)
REDUCE(reduce_logsumexp, R_LOGSUMEXP, 18)
REDUCE(reduce_sumsquare, R_SUMSQUARE, 18)

/* Integers are compared as int64: double has no place for those beyond 2^53. With select_last_index the last of equal ones is taken, and
 * NaN equals nothing. */
static int arg(eng_op_ctx *c, bool max)
{
    int rc = eng_op_need(c, 1), axis, rank = 0;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    bool keep = eng_attr_int(c->node, "keepdims", 1), last = eng_attr_int(c->node, "select_last_index", 0);
    if (!x.rank)
        x.rank = 1, x.dims[0] = 1;
    if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", 0), x.rank, &axis)) < 0)
        return rc;
    int64_t dims[PST_MAX_RANK], n = x.dims[axis], inner = 1, total = 1;
    for (int k = 0; k < x.rank; k++) {
        if (k != axis || keep)
            dims[rank++] = k == axis ? 1 : x.dims[k];
        if (k > axis)
            inner *= x.dims[k];
        if (k != axis)
            total *= x.dims[k];
    }
    if (!n)
        return eng_op_fail(c, PST_EINVAL, "nothing to choose from");
    int64_t count = eng_count(&x), *o = eng_out(c, 0, PST_I64, rank, dims);
    double *d = eng_op_scratch(c, (size_t)count * 8);
    if (!o || !d)
        return PST_ELIMIT;
    bool ints = eng_dtype_is_int(x.dtype);
    if (eng_convert(ints ? PST_I64 : PST_F64, d, x.dtype, x.data, count, true) < 0)
        return eng_op_type(c, x.dtype);
    for (int64_t i = 0; i < total; i++) {
        int64_t base = i / inner * n * inner + i % inner, best = 0;
        for (int64_t k = 1; k < n; k++) {
            int64_t a = base + k * inner, b = base + best * inner;
            int cmp =
                ints ? (((int64_t *)d)[a] > ((int64_t *)d)[b]) - (((int64_t *)d)[a] < ((int64_t *)d)[b]) : (d[a] > d[b]) - (d[a] < d[b]);
            cmp = max ? cmp : -cmp;
            if (cmp > 0 || (!cmp && last && (ints || d[a] == d[b])))
                best = k;
        }
        o[i] = best;
    }
    return 0;
}

int eng_op_argmax(eng_op_ctx *c)
{
    return arg(c, true);
}

int eng_op_argmin(eng_op_ctx *c)
{
    return arg(c, false);
}
