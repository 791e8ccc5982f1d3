/* quant_matmul.c - products of 8-bit matrices: MatMulInteger, QLinearMatMul, ONNX Runtime's MatMulIntegerToFloat and QGemm, and what fuse_qdq.c makes of
 * float products between DequantizeLinear and QuantizeLinear. A side that is a constant is packed once; zero points go into what each sum begins with. What the kernels do not take - a zero point or scale for each row, plans
 * without fusion - is computed by loops. */
#include "engine/ops/quant_matmul.h"

#include "engine/ops/kernels.h"
#include "engine/share.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static bool is_byte(const pst_tensor *t)
{
    return t->dtype == PST_U8 || t->dtype == PST_I8;
}

static int byte_at(const pst_tensor *t, int64_t i)
{
    return t->dtype == PST_U8 ? ((const uint8_t *)t->data)[i] : ((const int8_t *)t->data)[i];
}

/* ---- one product ---- */

int eng_int8_mul_make(eng_op_ctx *c, const eng_int8_right *right, bool left_signed, bool right_signed, int za, const int32_t *zb,
                      int64_t n_zb, const int32_t *bias, eng_int8_mul *ret)
{
    const eng_int8_kernels *kn = right->kernels;
    int n = right->n, columns = eng_int8_columns(kn, n), places = eng_int8_places(kn, right->k), any = 0;
    int rows = kn->mr; /* at a time: 131,072 sums, whole tiles, 96 rows at the most */
    if (n < 1366)
        rows = 96;
    else if (n < 10923)
        rows = 131072 / n / kn->mr * kn->mr;
    int32_t *zeros = eng_op_scratch(c, (size_t)columns * sizeof *zeros), *first = eng_op_scratch(c, (size_t)columns * sizeof *first);
    *ret = (eng_int8_mul){.right = right, .left_signed = left_signed, .zeros = zeros, .first = first, .rows = rows};
    ret->left = eng_op_scratch(c, (size_t)rows * (size_t)(places + 1) * sizeof *ret->left);
    ret->sums = eng_op_scratch(c, (size_t)rows * sizeof *ret->sums);
    if (!zeros || !first || !ret->left || !ret->sums)
        return PST_ELIMIT;
    memset(first, 0, (size_t)columns * sizeof *first);
    for (int j = 0; j < n; j++) {
        zeros[j] = zb[n_zb == 1 ? 0 : j] + eng_int8_shift_right(right_signed);
        any |= zeros[j];
    }
    ret->zb = any ? zeros : NULL;
    eng_int8_mul_zero(ret, za, bias);
    return 0;
}

void eng_int8_mul_zero(const eng_int8_mul *g, int za, const int32_t *bias)
{
    uint32_t z = (uint32_t)(za + eng_int8_shift_left(g->left_signed));
    for (int j = 0; j < g->right->n; j++)
        g->first[j] =
            (int32_t)(z * ((uint32_t)g->right->k * (uint32_t)g->zeros[j] - (uint32_t)g->right->sums[j]) + (bias ? (uint32_t)bias[j] : 0));
}

void eng_int8_mul_left(const eng_int8_mul *g, int m, const int32_t *left, int32_t *c, ptrdiff_t ldc)
{
    eng_int8_product(g->right, m, left, g->first, c, ldc);
    for (int i = 0; i < m && g->zb; i++) {
        uint32_t *row = (uint32_t *)(c + i * ldc), sum = (uint32_t)g->sums[i];
        for (int j = 0; j < g->right->n; j++)
            row[j] -= sum * (uint32_t)g->zb[j];
    }
}

void eng_int8_mul_rows(const eng_int8_mul *g, int m, const uint8_t *a, size_t rs, size_t cs, int32_t *c, ptrdiff_t ldc)
{
    PST_ASSERT(m <= g->rows);
    eng_int8_left(g->right->kernels, m, g->right->k, a, rs, cs, g->left_signed, g->left, g->zb ? g->sums : NULL);
    eng_int8_mul_left(g, m, g->left, c, ldc);
}

/* ---- operands ---- */

/* Where an operator has what; -1 = it has none of it. */
typedef struct places {
    int a, b, za, zb, sa, sb, bias, sy, zy;
} places;

static const places of_integer = {0, 1, 2, 3, -1, -1, -1, -1, -1}, of_linear = {0, 3, 2, 5, 1, 4, -1, 6, 7},
                    of_float = {0, 1, 4, 5, 2, 3, 6, -1, -1}, of_gemm = {0, 3, 2, 5, 1, 4, 6, 7, 8},
                    of_fused = {0, 3, 2, 5, 1, 4, -1, 6, 7};

static const pst_tensor *in_at(const eng_op_ctx *c, int at)
{
    return at >= 0 ? eng_in(c, at) : NULL;
}

typedef struct product {
    const places *at;
    pst_tensor a, b;
    bool ta, tb, row, column; /* row, column: a side was a vector, and the result has no such dimension */
    int rank;                 /* of the result with both, and its dimensions */
    int64_t dims[PST_MAX_RANK + 2], batches, m, k, n, sa[PST_MAX_RANK], sb[PST_MAX_RANK], st[PST_MAX_RANK];
} product;

static bool counts(const pst_tensor *t, int64_t n)
{
    return !t || eng_count(t) == 1 || (n && eng_count(t) == n);
}

/* Scales are float32, zero points bytes; one of each, or one for each row of the left side and each column of the right one. */
static int check_scales(eng_op_ctx *c, const product *g)
{
    const int scales[] = {g->at->sa, g->at->sb, g->at->sy}, zeros[] = {g->at->za, g->at->zb, g->at->zy};
    for (int i = 0; i < 3; i++) {
        const pst_tensor *s = in_at(c, scales[i]), *z = in_at(c, zeros[i]);
        int64_t n = i == 1 ? g->n : g->m;
        if ((s && s->dtype != PST_F32) || (z && !is_byte(z)))
            return eng_op_fail(c, PST_EINVAL, "scales are float32, zero points of 8 bits");
        if (!counts(s, n) || !counts(z, n))
            return eng_op_fail(c, PST_EINVAL, "scales or zero points fit neither rows nor columns");
    }
    return 0;
}

/* MatMul takes vectors: a row on the left, a column on the right. */
static void widen_vectors(product *g)
{
    g->row = g->a.rank == 1;
    g->column = g->b.rank == 1;
    if (g->row) {
        g->a.rank = 2;
        g->a.dims[1] = g->a.dims[0];
        g->a.dims[0] = 1;
    }
    if (g->column) {
        g->b.rank = 2;
        g->b.dims[1] = 1;
    }
}

/* What DequantizeLinear asks for: a value and its zero point are of one type. */
static int check_types(eng_op_ctx *c, const product *g)
{
    const pst_tensor *za = in_at(c, g->at->za), *zb = in_at(c, g->at->zb);
    if ((za && za->dtype != g->a.dtype) || (zb && zb->dtype != g->b.dtype))
        return eng_op_fail(c, PST_EINVAL, "the zero point is not of the input's type");
    return 0;
}

/* What the run was given, checked before anything is read: neither types nor shapes are known to the plan. */
static int operands(eng_op_ctx *c, const places *at, product *g)
{
    int rc;
    if (!in_at(c, at->a) || !in_at(c, at->b))
        return eng_op_fail(c, PST_EINVAL, "a matrix is missing");
    *g = (product){.at = at, .a = *in_at(c, at->a), .b = *in_at(c, at->b)};
    pst_tensor *a = &g->a, *b = &g->b;
    if (at == &of_gemm || at == &of_fused) {
        g->ta = eng_attr_int(c->node, "transA", 0);
        g->tb = eng_attr_int(c->node, "transB", 0);
    }
    if (at == &of_fused) {
        if ((rc = check_types(c, g)) < 0)
            return rc;
        if (eng_attr_find(c->node, "transB") && (a->rank != 2 || b->rank != 2))
            return eng_op_fail(c, PST_EINVAL, "two matrices are needed");
        widen_vectors(g);
    }
    if (!is_byte(a) || !is_byte(b) || a->rank < 2 || b->rank < 2)
        return eng_op_fail(c, PST_EINVAL, "two int8 or uint8 matrices are needed");
    g->m = a->dims[a->rank - 2 + g->ta];
    g->k = a->dims[a->rank - 1 - g->ta];
    g->n = b->dims[b->rank - 1 - g->tb];
    if (b->dims[b->rank - 2 + g->tb] != g->k || g->m > INT_MAX || g->n > INT_MAX / 2 || g->k > INT_MAX / 2)
        return eng_op_fail(c, PST_EINVAL, "inner dimensions differ, or they are too large");
    pst_tensor ba = *a, bb = *b;
    ba.rank -= 2;
    bb.rank -= 2;
    if ((rc = eng_broadcast(c, &ba, &bb, &g->rank, g->dims)) < 0)
        return rc;
    g->batches = eng_dims_count(g->dims, g->rank);
    eng_broadcast_strides(&ba, g->rank, g->sa);
    eng_broadcast_strides(&bb, g->rank, g->sb);
    eng_strides(g->dims, g->rank, g->st);
    g->dims[g->rank++] = g->m;
    g->dims[g->rank++] = g->n;
    if (g->rank > PST_MAX_RANK)
        return eng_op_fail(c, PST_EINVAL, "too many dimensions");
    return check_scales(c, g);
}

/* Matrices of batch p: how many matrices into either side they lie. */
static void batch_at(const product *g, int64_t p, int64_t *ret_a, int64_t *ret_b)
{
    *ret_a = *ret_b = 0;
    for (int q = 0; q < g->rank - 2; q++) {
        *ret_a += p / g->st[q] % g->dims[q] * g->sa[q];
        *ret_b += p / g->st[q] % g->dims[q] * g->sb[q];
    }
}

/* ---- what a sum becomes ---- */

typedef enum { AS_SUMS, AS_FLOATS, AS_BYTES } result_kind;

typedef struct result {
    result_kind kind;
    void *y;
    float *scale; /* of each column, or one */
    int step, zero, lo;
    const float *bias;
    const int32_t *ibias;
    const eng_int8_fused *fused; /* NULL = a node of the file */
} result;

static double scale_at(const pst_tensor *s, int64_t i)
{
    return s ? (double)((const float *)s->data)[eng_count(s) == 1 ? 0 : i] : 1;
}

static int zero_at(const pst_tensor *z, int64_t i)
{
    return z ? byte_at(z, eng_count(z) == 1 ? 0 : i) : 0;
}

/* Factors of columns: the left side's scale times the right one's, by the result's; in float32, as ONNX Runtime has them. */
static int result_of(eng_op_ctx *c, const product *g, float alpha, result *r)
{
    const pst_tensor *sa = in_at(c, g->at->sa), *sb = in_at(c, g->at->sb), *sy = in_at(c, g->at->sy), *zy = in_at(c, g->at->zy),
                     *bias = in_at(c, g->at->bias);
    bool quantised = sy != NULL;
    pst_dtype t = g->at->sa >= 0 ? PST_F32 : PST_I32;
    if (quantised)
        t = zy ? zy->dtype : g->a.dtype;
    *r = (result){.kind = quantised        ? AS_BYTES
                          : g->at->sa >= 0 ? AS_FLOATS
                                           : AS_SUMS,
                  .zero = zero_at(zy, 0),
                  .lo = t == PST_U8 ? 0 : -128};
    int64_t n = sb ? eng_count(sb) : 1;
    r->step = n > 1;
    if (bias && (bias->dtype != (g->at == &of_gemm ? PST_I32 : PST_F32) || eng_count(bias) != g->n ||
                 (bias->rank && bias->dims[bias->rank - 1] != g->n)))
        return eng_op_fail(c, PST_EINVAL, "the bias has not one number for each column");
    if (g->at == &of_gemm)
        r->ibias = bias ? bias->data : NULL;
    else
        r->bias = bias ? bias->data : NULL;
    r->fused = g->at == &of_fused ? c->node->fused : NULL;
    if (r->fused) {
        r->bias = r->fused->bias;
        r->ibias = r->fused->sums_bias;
    }
    r->scale = eng_op_scratch(c, (size_t)(n + 1) * sizeof(float));
    if (!r->scale)
        return PST_ELIMIT;
    for (int64_t j = 0; j < n; j++) {
        r->scale[j] = alpha * (float)scale_at(sa, 0) * (float)scale_at(sb, j);
        r->scale[j] = quantised ? r->scale[j] / (float)scale_at(sy, 0) : r->scale[j];
    }
    int64_t dims[PST_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < g->rank; i++)
        if (!(g->row && i == g->rank - 2) && !(g->column && i == g->rank - 1))
            dims[rank++] = g->dims[i];
    r->y = eng_out(c, 0, t, rank, dims);
    return r->y ? 0 : PST_ELIMIT;
}

/* ---- by loops ---- */

static void loops(eng_op_ctx *c, const product *g, const result *r, float alpha)
{
    const pst_tensor *za = in_at(c, g->at->za), *zb = in_at(c, g->at->zb), *sa = in_at(c, g->at->sa), *sb = in_at(c, g->at->sb),
                     *sy = in_at(c, g->at->sy), *zy = in_at(c, g->at->zy);
    for (int64_t at = 0, total = g->batches * g->m * g->n; at < total; at++) {
        int64_t oa, ob, i = at / g->n % g->m, j = at % g->n;
        batch_at(g, at / g->n / g->m, &oa, &ob);
        uint32_t s = r->ibias ? (uint32_t)r->ibias[j] : 0;
        for (int64_t q = 0; q < g->k; q++) {
            int64_t ia = oa * g->m * g->k + (g->ta ? q * g->m + i : i * g->k + q),
                    ib = ob * g->k * g->n + (g->tb ? j * g->k + q : q * g->n + j);
            s += (uint32_t)((byte_at(&g->a, ia) - zero_at(za, i)) * (byte_at(&g->b, ib) - zero_at(zb, j)));
        }
        float by = alpha * (float)scale_at(sa, i) * (float)scale_at(sb, j), v = (float)(int32_t)s * by + (r->bias ? r->bias[j] : 0);
        if (r->kind == AS_SUMS)
            ((int32_t *)r->y)[at] = (int32_t)s;
        else if (r->kind == AS_FLOATS)
            ((float *)r->y)[at] = v;
        else {
            double q = rint((double)((float)(int32_t)s * (by / (float)scale_at(sy, i)))) + zero_at(zy, i);
            ((uint8_t *)r->y)[at] = (uint8_t)(int)(q > r->lo ? q < r->lo + 255 ? q : r->lo + 255 : r->lo);
        }
    }
}

/* ---- by kernels ---- */

typedef struct packed_right {
    eng_int8_right b;
    const void *of;
} packed_right;

static bool turned(const eng_op_ctx *c)
{
    bool may = c->node->fused || !strcmp(c->node->op_type, "QGemm");
    return may && eng_attr_int(c->node, "transB", 0);
}

static const places *places_of(const eng_op_ctx *c)
{
    const char *op = c->node->op_type;
    return c->node->fused                 ? &of_fused
           : !strcmp(op, "QGemm")         ? &of_gemm
           : !strcmp(op, "QLinearMatMul") ? &of_linear
           : !strcmp(op, "MatMulInteger") ? &of_integer
                                          : &of_float;
}

static int pack(eng_op_ctx *c, void *made)
{
    const pst_tensor *b = in_at(c, places_of(c)->b);
    const eng_int8_kernels *kn = eng_int8_pick(eng_kernels_pick(c->plan->isa)->isa);
    bool tb = turned(c);
    int k = (int)b->dims[tb], n = (int)b->dims[!tb];
    size_t ld = (size_t)b->dims[1];
    packed_right *s = made;
    eng_int8_pack(kn, n, k, b->data, tb ? 1 : ld, tb ? ld : 1, b->dtype == PST_I8, eng_op_keep(c, eng_int8_right_bytes(kn, n, k)), &s->b);
    s->of = b->data;
    return 0;
}

static int prepare(eng_op_ctx *c)
{
    const places *at = places_of(c);
    const pst_tensor *b = in_at(c, at->b);
    if (!b || !is_byte(b) || b->rank != 2 || c->plan->opts.no_fusion || !eng_count(b) || b->dims[0] > 1 << 20 || b->dims[1] > 1 << 20)
        return 0;
    bool tb = turned(c);
    const eng_int8_kernels *kn = eng_int8_pick(eng_kernels_pick(c->plan->isa)->isa);
    if (!eng_plan_room_take(c->plan, eng_int8_right_bytes(kn, (int)b->dims[!tb], (int)b->dims[tb])))
        return 0;
    const eng_share_key key = {.what = "int8 right side", .of = b->data, .variant = b->dims[0] << 2 | (b->dtype == PST_I8) << 1 | tb};
    return eng_op_share(c, &key, eng_of_model(c, at->b), sizeof(packed_right), pack, c->state);
}

void eng_int8_cut(const eng_int8_fused *f, int type_lo, int64_t n, uint8_t *y)
{
    if (f->lo == type_lo && f->hi == type_lo + 255)
        return;
    uint8_t flip = type_lo ? 128 : 0, lo = (uint8_t)f->lo ^ flip, hi = (uint8_t)f->hi ^ flip;
    for (int64_t i = 0; i < n; i++) {
        uint8_t v = y[i] ^ flip;
        v = v > lo ? v : lo;
        y[i] = (v < hi ? v : hi) ^ flip;
    }
}

static void row_out(const eng_int8_kernels *kn, const result *r, int64_t n, const int32_t *sums, int64_t at)
{
    if (r->kind == AS_FLOATS)
        kn->floats(n, sums, r->scale, r->step, r->bias, (float *)r->y + at);
    else
        kn->requantise(n, sums, r->scale, r->step, r->zero, r->lo, (uint8_t *)r->y + at);
    if (r->kind == AS_BYTES && r->fused)
        eng_int8_cut(r->fused, r->lo, n, (uint8_t *)r->y + at);
}

/* Rows of one left matrix, or of all of them, with one right matrix. */
static int rows_out(eng_op_ctx *c, const product *g, const eng_int8_mul *mul, const result *r, int64_t rows, const uint8_t *a, int64_t at)
{
    size_t rs = g->ta ? 1 : (size_t)g->k, cs = g->ta ? (size_t)g->m : 1;
    int32_t *work = r->kind == AS_SUMS ? NULL : eng_op_scratch(c, (size_t)mul->rows * (size_t)g->n * sizeof *work);
    int rc = r->kind == AS_SUMS || work ? 0 : PST_ELIMIT;
    for (int64_t i = 0; i < rows && rc == 0; i += mul->rows, rc = eng_op_pause(c)) {
        int some = (int)(rows - i < mul->rows ? rows - i : mul->rows);
        int32_t *to = work ? work : (int32_t *)r->y + at + i * g->n;
        eng_int8_mul_rows(mul, some, a + (size_t)i * rs, rs, cs, to, g->n);
        for (int q = 0; q < some && work; q++)
            row_out(mul->right->kernels, r, g->n, work + q * g->n, at + (i + q) * g->n);
    }
    return rc;
}

static int fast(eng_op_ctx *c, const product *g, const result *r)
{
    const packed_right *kept = *c->state;
    const eng_int8_kernels *kn = eng_int8_pick(eng_kernels_pick(c->plan->isa)->isa);
    const pst_tensor *tzb = in_at(c, g->at->zb);
    int64_t n_zb = tzb ? eng_count(tzb) : 1, rows = g->m, batches = g->batches;
    int32_t *zb = eng_op_scratch(c, (size_t)n_zb * sizeof *zb);
    void *room = kept && kept->of == g->b.data ? NULL : eng_op_scratch(c, eng_int8_right_bytes(kn, (int)g->n, (int)g->k) + 64);
    if (!zb || (!room && !(kept && kept->of == g->b.data)))
        return PST_ELIMIT;
    for (int64_t j = 0; j < n_zb; j++)
        zb[j] = zero_at(tzb, j);
    bool one_right = eng_count(&g->b) == g->k * g->n;
    if (one_right && !g->ta && eng_count(&g->a) == batches * g->m * g->k && g->m * batches <= INT_MAX) {
        rows *= batches; /* one matrix on the right: all rows at once */
        batches = 1;
    }
    c->kernel = kn->name;
    int rc = 0;
    for (int64_t p = 0; p < batches && rc == 0; p++) {
        int64_t oa, ob;
        eng_int8_right right;
        eng_int8_mul mul;
        eng_blk *mark = c->plan->scratch;
        batch_at(g, p, &oa, &ob);
        if (room)
            eng_int8_pack(kn, (int)g->n, (int)g->k, (const uint8_t *)g->b.data + ob * g->k * g->n, g->tb ? 1 : (size_t)g->n,
                          g->tb ? (size_t)g->k : 1, g->b.dtype == PST_I8, room, &right);
        rc = eng_int8_mul_make(c, room ? &right : &kept->b, g->a.dtype == PST_I8, g->b.dtype == PST_I8, zero_at(in_at(c, g->at->za), 0), zb,
                               n_zb, r->ibias, &mul);
        if (rc == 0)
            rc = rows_out(c, g, &mul, r, rows, (const uint8_t *)g->a.data + oa * g->m * g->k, p * g->m * g->n);
        eng_scratch_free(c->plan, mark);
    }
    return rc;
}

/* One number where the left side or the result might have one for each row. */
static bool row_is_one(const eng_op_ctx *c, const places *at)
{
    const int all[] = {at->sa, at->za, at->sy, at->zy};
    for (int i = 0; i < 4; i++)
        if (in_at(c, all[i]) && eng_count(in_at(c, all[i])) != 1)
            return false;
    return true;
}

static int run(eng_op_ctx *c, const places *at)
{
    product g;
    result r;
    float alpha = at == &of_gemm ? eng_attr_float(c->node, "alpha", 1) : 1;
    int rc = operands(c, at, &g);
    if (rc < 0 || (rc = result_of(c, &g, alpha, &r)) < 0)
        return rc;
    if (!eng_dims_count(g.dims, g.rank))
        return 0;
    if (!c->plan->opts.no_fusion && row_is_one(c, at) && g.k > 0)
        return fast(c, &g, &r);
    if ((rc = eng_op_work(c, (double)g.batches * (double)g.m * (double)g.n * (double)g.k)) < 0)
        return rc;
    loops(c, &g, &r, alpha);
    return 0;
}

int eng_prepare_matmul_integer(eng_op_ctx *c)
{
    return prepare(c);
}

int eng_op_matmul_integer(eng_op_ctx *c)
{
    return run(c, &of_integer);
}

int eng_prepare_qlinear_matmul(eng_op_ctx *c)
{
    return prepare(c);
}

int eng_op_qlinear_matmul(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 8);
    return rc < 0 ? rc : run(c, &of_linear);
}

int eng_prepare_matmul_integer_to_float(eng_op_ctx *c)
{
    return prepare(c);
}

int eng_op_matmul_integer_to_float(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 4);
    return rc < 0 ? rc : run(c, &of_float);
}

int eng_prepare_quantised_matmul(eng_op_ctx *c)
{
    return prepare(c);
}

/* Its scales and zero points are constants that were looked at (fuse_qdq.c). */
int eng_op_quantised_matmul(eng_op_ctx *c)
{
    return run(c, &of_fused);
}

int eng_prepare_qgemm(eng_op_ctx *c)
{
    return prepare(c);
}

/* The sum has its bias before it is scaled; without a scale of the result it is float32. */
int eng_op_qgemm(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 6);
    if (rc == 0 && (eng_in(c, 0)->rank != 2 || eng_in(c, 3)->rank != 2))
        return eng_op_fail(c, PST_EINVAL, "two matrices are needed");
    return rc < 0 ? rc : run(c, &of_gemm);
}
