/* linalg.c - matrix products. float32 goes to the packed kernel; other types to readable loops. */
#include "engine/ops/kernels.h"

#include "engine/cpu/gemm.h"
#include "engine/cpu/isa.h"
#include "engine/share.h"

#include <limits.h>
#include <string.h>

/* c (m,n) += a · b for a batch element, any number type; integers wrap. */
#define REF_PRODUCT(D, T)                                                                                       \
    case D:                                                                                                     \
        for (int64_t i = 0; i < m; i++)                                                                         \
            for (int64_t j = 0; j < n; j++) {                                                                   \
                ACC(T) s = 0;                                                                                   \
                for (int64_t p = 0; p < k; p++)                                                                 \
                    s += (ACC(T))((const T *)a)[i * ras + p * cas] * (ACC(T))((const T *)b)[p * rbs + j * cbs]; \
                ((T *)o)[i * n + j] = (T)s;                                                                     \
            }                                                                                                   \
        break;
#define ACC(T) __typeof__(_Generic((T)0, float : 0.0, double : 0.0, default : (uint64_t)0))

static int ref_product(int dtype, const void *a, int64_t ras, int64_t cas, const void *b, int64_t rbs, int64_t cbs, void *o, int64_t m,
                       int64_t n, int64_t k)
{
    switch (dtype) {
        ENG_FOR_NUMBERS(REF_PRODUCT)
    default: return PST_EUNSUPPORTED;
    }
    return 0;
}

/* A constant right side, packed once: products of any number of rows read it in the order the tiles want. */
typedef struct right_side {
    eng_packed b;
    const void *of;
} right_side; /* NULL = not packed */

static bool is_turned(const eng_op_ctx *c)
{
    return strcmp(c->node->op_type, "MatMul") != 0 && eng_attr_int(c->node, "transB", 0);
}

static int pack_right(eng_op_ctx *c, void *made)
{
    const pst_tensor *b = eng_in(c, 1);
    const eng_cpu_kernels *kn = eng_kernels_pick(c->plan->isa);
    bool tb = is_turned(c);
    int k = (int)b->dims[tb], n = (int)b->dims[!tb];
    right_side *s = made;
    eng_sgemm_pack(kn, tb, n, k, b->data, (int)b->dims[1], eng_op_keep(c, eng_packed_floats(kn, n, k) * sizeof(float)), &s->b);
    s->of = b->data;
    return 0;
}

static int prepare_right(eng_op_ctx *c)
{
    enum { SMALL = 1 << 12 }; /* a few panels are read where they lie as fast */
    const pst_tensor *b = eng_in(c, 1);
    if (!b || b->dtype != PST_F32 || b->rank != 2 || c->plan->opts.no_fusion || eng_count(b) < SMALL || b->dims[0] > 1 << 20 ||
        b->dims[1] > 1 << 20)
        return 0;
    bool tb = is_turned(c);
    if (!eng_plan_room_take(c->plan,
                            eng_packed_floats(eng_kernels_pick(c->plan->isa), (int)b->dims[!tb], (int)b->dims[tb]) * sizeof(float)))
        return 0;
    c->kernel = "packed GEMM";
    const eng_share_key key = {.what = "right side", .of = b->data, .variant = b->dims[0] << 1 | tb};
    return eng_op_share(c, &key, eng_of_model(c, 1), sizeof(right_side), pack_right, c->state);
}

int eng_prepare_matmul(eng_op_ctx *c)
{
    return prepare_right(c);
}

int eng_prepare_gemm(eng_op_ctx *c)
{
    return prepare_right(c);
}

int eng_prepare_fused_matmul(eng_op_ctx *c)
{
    return prepare_right(c);
}

/* Rows of a large product between two looks at whether the run is to end: about a second's work at most. */
static int64_t rows_at_once(int64_t n, int64_t k, bool fast)
{
    double rows = (fast ? 4e9 : 2e8) / ((double)n * (double)k + 1);
    return rows < 1e6 ? (int64_t)rows / 192 * 192 + (fast ? 192 : 1) : 1000000;
}

/* How the last two dimensions of both sides lie: turned or not; and a factor. */
typedef struct form {
    bool ta, tb;
    float alpha;
} form;

typedef struct shared_product {
    const eng_packed *b;
    int m, lda, ldc, columns, parts; /* the last part takes what is left over, too */
    float alpha, beta;
    const float *a;
    float *c;
} shared_product;

static void some_columns(void *arg, int64_t part, int worker)
{
    const shared_product *g = arg;
    eng_packed b = *g->b;
    int from = (int)part * g->columns;
    b.n = part == g->parts - 1 ? b.n - from : g->columns;
    b.data += from / b.kernels->nr * b.stride;
    eng_sgemm_packed(&b, g->m, g->alpha, g->a, g->lda, g->beta, g->c + from, g->ldc);
}

/* eng_sgemm_packed, columns shared out: every sum is made as it is without. In how many sums an output is made, and how
 * rows are cut into tiles, rests on whether there are four panels and columns enough for the left side to be packed: so no part has fewer. */
static int packed_product(eng_op_ctx *c, const eng_packed *b, int m, float alpha, const float *a, int lda, float beta, float *to, int ldc)
{
    enum { PART = 1 << 20 }; /* multiplications */
    double each = (double)m * (double)b->k, all = each * (double)b->n;
    int step = (ENG_PACKS_LEFT_FROM + 4 * b->kernels->nr - 1) / (4 * b->kernels->nr) * 4 * b->kernels->nr, columns = b->n;
    if (eng_op_workers(c, all) > 1) {
        double most = PART / (each + 1) / step;
        columns = most < 1 ? step : most > (double)b->n / step ? columns : step * (int)most;
    }
    shared_product g = {b, m, lda, ldc, columns, columns && b->n > columns ? b->n / columns : 1, alpha, beta, a, to};
    return eng_op_parts(c, g.parts, all, some_columns, &g);
}

/* o (m, n) = alpha · a (m, k) · b (k, n), rows as they come. packed: b once more, or NULL. */
static int product(eng_op_ctx *c, const eng_cpu_kernels *kn, const eng_packed *packed, pst_dtype type, form f, int64_t m, int64_t n,
                   int64_t k, const char *a, const char *b, char *o)
{
    size_t size = pst_dtype_size(type);
    int rc = 0;
    for (int64_t at = 0, some = rows_at_once(n, k, kn != NULL); at < m && rc == 0; at += some, rc = rc < 0 ? rc : eng_op_pause(c)) {
        int64_t rows = m - at < some ? m - at : some;
        const char *pa = a + (size_t)(f.ta ? at : at * k) * size;
        char *po = o + (size_t)(at * n) * size;
        if (type == PST_F32 && kn && packed && !f.ta)
            rc = packed_product(c, packed, (int)rows, f.alpha, (const float *)(const void *)pa, (int)k, 0, (float *)(void *)po, (int)n);
        else if (type == PST_F32 && kn)
            eng_sgemm_isa(kn, f.ta, f.tb, (int)rows, (int)n, (int)k, f.alpha, (const float *)(const void *)pa, (int)(f.ta ? m : k),
                          (const float *)(const void *)b, (int)(f.tb ? k : n), 0, (float *)(void *)po, (int)n);
        else if (ref_product(type, pa, f.ta ? 1 : k, f.ta ? m : 1, b, f.tb ? 1 : n, f.tb ? k : 1, po, rows, n, k) < 0)
            return eng_op_type(c, type);
        for (int64_t i = 0; i < rows * n && !kn && f.alpha != 1; i++)
            ((float *)(void *)po)[i] *= f.alpha;
    }
    return rc;
}

static int matmul(eng_op_ctx *c, form f)
{
    int rc = eng_op_need(c, 2), rank;
    if (rc < 0)
        return rc;
    pst_tensor a = *eng_in(c, 0), b = *eng_in(c, 1);
    bool va = a.rank == 1, vb = b.rank == 1;
    f.ta &= !va;
    f.tb &= !vb;
    if (!a.rank || !b.rank || a.dtype != b.dtype)
        return eng_op_fail(c, PST_EINVAL, "two tensors of one type and at least one dimension are needed");
    if (va) { /* a row */
        a.rank = 2;
        a.dims[1] = a.dims[0];
        a.dims[0] = 1;
    }
    if (vb) { /* a column */
        b.rank = 2;
        b.dims[1] = 1;
    }
    int64_t m = a.dims[a.rank - 2 + f.ta], k = a.dims[a.rank - 1 - f.ta], n = b.dims[b.rank - 1 - f.tb], kb = b.dims[b.rank - 2 + f.tb],
            dims[PST_MAX_RANK];
    if (kb != k)
        return eng_op_fail(c, PST_EINVAL, "(%lld, %lld) does not multiply (%lld, %lld)", (long long)m, (long long)k, (long long)kb,
                           (long long)n);
    if (m > INT_MAX || n > INT_MAX || k > INT_MAX)
        return eng_op_fail(c, PST_ELIMIT, "a dimension above 2^31");
    pst_tensor ba = a, bb = b;
    ba.rank -= 2;
    bb.rank -= 2;
    if ((rc = eng_broadcast(c, &ba, &bb, &rank, dims)) < 0)
        return rc;
    int64_t sa[PST_MAX_RANK], sb[PST_MAX_RANK], st[PST_MAX_RANK], batches = eng_dims_count(dims, rank);
    eng_broadcast_strides(&ba, rank, sa);
    eng_broadcast_strides(&bb, rank, sb);
    eng_strides(dims, rank, st);
    int64_t out_dims[PST_MAX_RANK];
    int out_rank = rank;
    memcpy(out_dims, dims, sizeof dims);
    if (!va)
        out_dims[out_rank++] = m;
    if (!vb)
        out_dims[out_rank++] = n;
    char *o = eng_out(c, 0, a.dtype, out_rank, out_dims);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(a.dtype);
    const eng_cpu_kernels *kn = c->plan->opts.no_fusion ? NULL : eng_kernels_pick(c->plan->isa);
    const right_side *packed = *c->state;
    if (a.dtype == PST_F32 && batches > 1 && eng_count(&bb) == 1 && eng_count(&ba) == batches && m * batches <= INT_MAX && !f.ta) {
        m *= batches; /* one matrix on the right: all rows at once */
        batches = 1;
    }
    for (int64_t i = 0; i < batches; i++) {
        int64_t oa = 0, ob = 0;
        for (int q = 0; q < rank && batches > 1; q++) {
            oa += i / st[q] % dims[q] * sa[q];
            ob += i / st[q] % dims[q] * sb[q];
        }
        const char *pa = (const char *)a.data + (size_t)(oa * m * k) * size, *pb = (const char *)b.data + (size_t)(ob * k * n) * size;
        if ((rc = product(c, kn, packed && packed->of == pb ? &packed->b : NULL, a.dtype, f, m, n, k, pa, pb, o)) < 0)
            return rc;
        o += (size_t)(m * n) * size;
    }
    return 0;
}

int eng_op_matmul(eng_op_ctx *c)
{
    return matmul(c, (form){.alpha = 1});
}

/* ONNX Runtime's: the last two dimensions of either side turned, the product times alpha. */
int eng_op_fused_matmul(eng_op_ctx *c)
{
    if (eng_in(c, 0) && eng_in(c, 0)->dtype != PST_F32)
        return eng_op_type(c, eng_in(c, 0)->dtype);
    form f = {.ta = eng_attr_int(c->node, "transA", 0), .tb = eng_attr_int(c->node, "transB", 0)};
    f.alpha = eng_attr_float(c->node, "alpha", 1);
    return matmul(c, f);
}

/* y = alpha·a·b + beta·c for types other than float32. */
#define GEMM_EPILOGUE(D, T)                                                                     \
    case D:                                                                                     \
        for (int64_t i = 0; i < m; i++)                                                         \
            for (int64_t j = 0; j < n; j++) {                                                   \
                T *y = (T *)o + i * n + j;                                                      \
                double s = (double)alpha * (double)*y;                                          \
                if (bias)                                                                       \
                    s += (double)beta * (double)((const T *)bias->data)[i * sc[0] + j * sc[1]]; \
                *y = (T)s;                                                                      \
            }                                                                                   \
        break;

/* float32: C is broadcast into the result first, so that the product only adds to it; other types add it at the end. */
int eng_op_gemm(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    if (rc < 0)
        return rc;
    pst_tensor a = *eng_in(c, 0), b = *eng_in(c, 1), cc = {0};
    const pst_tensor *bias = eng_in(c, 2);
    bool ta = eng_attr_int(c->node, "transA", 0), tb = eng_attr_int(c->node, "transB", 0);
    float alpha = eng_attr_float(c->node, "alpha", 1), beta = eng_attr_float(c->node, "beta", 1);
    if (a.rank != 2 || b.rank != 2 || a.dtype != b.dtype || (bias && bias->dtype != a.dtype))
        return eng_op_fail(c, PST_EINVAL, "two matrices of one type are needed");
    int64_t m = a.dims[ta], k = a.dims[!ta], n = b.dims[!tb], dims[2] = {m, n}, sc[2];
    if (b.dims[tb] != k || m > INT_MAX || n > INT_MAX || k > INT_MAX)
        return eng_op_fail(c, PST_EINVAL, "inner dimensions %lld and %lld differ", (long long)k, (long long)b.dims[tb]);
    if (bias) {
        bool fits = bias->rank <= 2;
        for (int i = 0; fits && i < bias->rank; i++)
            fits = bias->dims[i] == 1 || bias->dims[i] == dims[2 - bias->rank + i];
        if (!fits)
            return eng_op_fail(c, PST_EINVAL, "C does not broadcast to (%lld, %lld)", (long long)m, (long long)n);
        cc = *bias;
        bias = &cc;
        eng_broadcast_strides(bias, 2, sc);
    }
    void *o = eng_out(c, 0, a.dtype, 2, dims);
    if (!o)
        return PST_ELIMIT;
    if (a.dtype == PST_F32 && !c->plan->opts.no_fusion) {
        float *y = o;
        for (int64_t i = 0; i < m && bias; i++)
            for (int64_t j = 0; j < n; j++)
                y[i * n + j] = beta * ((const float *)bias->data)[i * sc[0] + j * sc[1]];
        const right_side *packed = *c->state;
        if (packed && packed->of == b.data && !ta) {
            return packed_product(c, &packed->b, (int)m, alpha, a.data, (int)a.dims[1], bias ? 1 : 0, y, (int)n);
        }
        eng_sgemm_isa(eng_kernels_pick(c->plan->isa), ta, tb, (int)m, (int)n, (int)k, alpha, a.data, (int)a.dims[1], b.data, (int)b.dims[1],
                      bias ? 1 : 0, y, (int)n);
        return 0;
    }
    if (ref_product(a.dtype, a.data, ta ? 1 : k, ta ? m : 1, b.data, tb ? 1 : n, tb ? k : 1, o, m, n, k) < 0)
        return eng_op_type(c, a.dtype);
    switch (a.dtype) {
        ENG_FOR_NUMBERS(GEMM_EPILOGUE)
    default: break;
    }
    return 0;
}
