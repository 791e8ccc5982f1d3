/* quant_matmul.h - one product of an 8-bit left side with a packed right side, its zero points taken out. @thread the plan's */
#ifndef PST_ENGINE_OPS_QUANT_MATMUL_H
#define PST_ENGINE_OPS_QUANT_MATMUL_H

#include "engine/cpu/int8.h"
#include "engine/ops/ops.h"

/* Of a product that stands for nodes of floats between DequantizeLinear and QuantizeLinear (fuse_qdq.c): eng_node.fused. */
typedef struct eng_int8_fused {
    const int32_t *sums_bias; /* added to the sums, one for each column; NULL = none */
    const float *bias;        /* added to results that stay floats */
    int lo, hi;               /* bytes that results are cut to */
} eng_int8_fused;

/* Operators of such nodes: (a, its scale, its zero point, b, its scale, its zero point[, the result's scale, its zero point]). */
int eng_prepare_quantised_matmul(eng_op_ctx *c);
int eng_op_quantised_matmul(eng_op_ctx *c);
int eng_prepare_quantised_conv(eng_op_ctx *c);
int eng_op_quantised_conv(eng_op_ctx *c);

/* y[i] cut to lo … hi, bytes of a type that begins at type_lo. */
void eng_int8_cut(const eng_int8_fused *f, int type_lo, int64_t n, uint8_t *y);

/* c[i][j] = first[j] + Σ a[i]·b[j] - rest of the zero points: Σ (a - za)(b - zb[j]) + bias[j]. */
typedef struct eng_int8_mul {
    const eng_int8_right *right;
    bool left_signed;
    const int32_t *zeros; /* of each column */
    const int32_t *zb;    /* the same; NULL = all zero */
    int32_t *first;       /* up to whole panels */
    int32_t *left, *sums; /* work for so many rows */
    int rows;
} eng_int8_mul;

/* zero points as they stand in the file; zb: one for each column or for all (n_zb); bias: for each column, NULL = none. 0 or an error. */
int eng_int8_mul_make(eng_op_ctx *c, const eng_int8_right *right, bool left_signed, bool right_signed, int za, const int32_t *zb,
                      int64_t n_zb, const int32_t *bias, eng_int8_mul *ret);
/* Another zero point of the left side, and the bias again. */
void eng_int8_mul_zero(const eng_int8_mul *g, int za, const int32_t *bias);
/* Rows that lie in left already, and their sums in sums where zb is set. */
void eng_int8_mul_left(const eng_int8_mul *g, int m, const int32_t *left, int32_t *c, ptrdiff_t ldc);
/* At most ret->rows rows: a[i·rs + p·cs] → c, rows ldc apart. */
void eng_int8_mul_rows(const eng_int8_mul *g, int m, const uint8_t *a, size_t rs, size_t cs, int32_t *c, ptrdiff_t ldc);

#endif
