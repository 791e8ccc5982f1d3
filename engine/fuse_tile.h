/* fuse_tile.h - the loops of fused elementwise groups and row normalisations, one table per instruction set.
 *
 * A loop handles one tile of at most ENG_TILE floats that lies in the first-level cache. Arithmetic, comparisons and square roots give
 * the bits the plain kernels give; exponentials and what rests on them are within 3 units in the last place of libm and, unlike
 * the activations of dense layers, go to 0 and infinity where e^x does. Threads: any, pure functions. */
#ifndef PST_ENGINE_FUSE_TILE_H
#define PST_ENGINE_FUSE_TILE_H

#include <stdint.h>

#define ENG_TILE 512

/* X(NAME, cost in operations per element). Two operands first, then one. */
#define ENG_TILE_BINARY(X) X(ADD, 1) X(SUB, 1) X(MUL, 1) X(DIV, 4) X(MIN, 1) X(MAX, 1) X(PRELU, 1) X(POW, 40)
#define ENG_TILE_UNARY(X) \
    X(SQRT, 4)            \
    X(EXP, 12)            \
    X(LOG, 20)            \
    X(ERF, 24)            \
    X(RECIPROCAL, 4)      \
    X(FLOOR, 1)           \
    X(CEIL, 1)            \
    X(ROUND, 1)           \
    X(NEG, 1)             \
    X(ABS, 1)             \
    X(RELU, 1)            \
    X(LEAKY, 1)           \
    X(ELU, 14)            \
    X(SIGMOID, 16)        \
    X(TANH, 24)           \
    X(HARDSIGMOID, 3)     \
    X(HARDSWISH, 5)       \
    X(SOFTSIGN, 5)        \
    X(SOFTPLUS, 40)       \
    X(SWISH, 17)          \
    X(GELU, 28)           \
    X(GELU_TANH, 32)      \
    X(CLIP, 2)            \
    X(SQUARE, 1)          \
    X(CUBE, 2)

typedef enum {
#define X(NAME, COST) ENG_TILE_##NAME,
    ENG_TILE_BINARY(X) ENG_TILE_UNARY(X)
#undef X
        ENG_TILE_CODES,
    ENG_TILE_BINARY_CODES = ENG_TILE_SQRT /* those below have two operands */
} eng_tile_code;

typedef struct eng_tile_kernels {
    const char *isa;
    /* o[i] = code(a[i·sa], b[i·sb]) for i < n; sa and sb are 0 (one value for all) or 1; b is not read by codes of one operand.
     * alpha, beta: parameters of LEAKY, ELU, HARDSIGMOID, SWISH; bounds of CLIP. o may be a or b. */
    void (*op)(eng_tile_code code, const float *a, int sa, const float *b, int sb, float *o, int n, float alpha, float beta);
    /* One row: o = (x - mean) / sqrt(var + eps) · scale + bias; scale and bias (n) or NULL; o may be x. Sums in double. */
    void (*layer_norm)(const float *x, const float *scale, const float *bias, double eps, float *o, int64_t n);
    /* One row: o = e^(x - max) / Σ; o may be x. */
    void (*softmax)(const float *x, float *o, int64_t n);
    /* The same of many rows of n > 0: short ones share their vectors. */
    void (*softmax_rows)(const float *x, float *o, int64_t rows, int64_t n);
} eng_tile_kernels;

extern const eng_tile_kernels eng_tile_portable, eng_tile_avx2, eng_tile_avx512;
/* isa: one that eng_isa_pick() has given (cpu/isa.c). */
const eng_tile_kernels *eng_tile_pick(const char *isa);

#endif
