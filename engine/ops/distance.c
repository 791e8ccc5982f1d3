/* distance.c - com.microsoft.CDist: the distances of all rows of one matrix to all rows of another, as nearest neighbours and kernels ask for them.
 * By differences and not by products (a² + b² - 2ab), which is faster but loses all digits where two rows are nearly the same. */
#include "engine/ops/kernels.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 }; /* sums side by side: the order of additions does not depend on the instruction set */

#define DEF_SQUARES(NAME, T)                                                                              \
    static T NAME(const T *a, const T *b, int64_t k)                                                      \
    {                                                                                                     \
        T sums[LANES] = {0};                                                                              \
        int64_t p = 0;                                                                                    \
        for (; p + LANES <= k; p += LANES)                                                                \
            for (int q = 0; q < LANES; q++)                                                               \
                sums[q] += (a[p + q] - b[p + q]) * (a[p + q] - b[p + q]);                                 \
        for (; p < k; p++)                                                                                \
            sums[p % LANES] += (a[p] - b[p]) * (a[p] - b[p]);                                             \
        return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7])); \
    }
DEF_SQUARES(squares_f32, float)
DEF_SQUARES(squares_f64, double)

static void row_f32(const float *a, const float *b, float *o, int64_t n, int64_t k, bool root)
{
    for (int64_t j = 0; j < n; j++)
        o[j] = squares_f32(a, b + j * k, k);
    for (int64_t j = 0; j < n && root; j++)
        o[j] = sqrtf(o[j]);
}

static void row_f64(const double *a, const double *b, double *o, int64_t n, int64_t k, bool root)
{
    for (int64_t j = 0; j < n; j++)
        o[j] = squares_f64(a, b + j * k, k);
    for (int64_t j = 0; j < n && root; j++)
        o[j] = sqrt(o[j]);
}

int eng_op_cdist(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    if (rc < 0)
        return rc;
    pst_tensor a = *eng_in(c, 0), b = *eng_in(c, 1);
    const char *metric = eng_attr_str(c->node, "metric", "sqeuclidean");
    bool root = !strcmp(metric, "euclidean");
    if (!root && strcmp(metric, "sqeuclidean") != 0)
        return eng_op_fail(c, PST_EUNSUPPORTED, "metric %.40s: euclidean and sqeuclidean are covered", metric);
    if (a.rank != 2 || b.rank != 2 || a.dims[1] != b.dims[1] || a.dims[1] < 1)
        return eng_op_fail(c, PST_EINVAL, "two matrices with rows of one length are needed");
    if (a.dtype != b.dtype || (a.dtype != PST_F32 && a.dtype != PST_F64))
        return eng_op_type(c, a.dtype);
    int64_t n = b.dims[0], k = a.dims[1], dims[2] = {a.dims[0], n};
    void *o = eng_out(c, 0, a.dtype, 2, dims);
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0; i < a.dims[0]; i++) {
        if ((rc = eng_op_pause(c)) < 0)
            return rc;
        if (a.dtype == PST_F32)
            row_f32((const float *)a.data + i * k, b.data, (float *)o + i * n, n, k, root);
        else
            row_f64((const double *)a.data + i * k, b.data, (double *)o + i * n, n, k, root);
    }
    return 0;
}
