/* quant_conv.h - convolutions of 8-bit images with exact 32-bit sums, by the kernels of cpu/int8.h. @thread the plan's */
#ifndef PST_ENGINE_OPS_QUANT_CONV_H
#define PST_ENGINE_OPS_QUANT_CONV_H

#include "engine/ops/window.h"

/* Operands, checked: x (N, C, …) and w (M, C / groups, …) of bytes; zw: one for all filters or one for each (n_zw); bias: for each, NULL = none. The result
 * (N, M, …) is sums, or bytes: sums times scale (one for each filter), rounded, plus zero. */
typedef struct eng_int8_conv {
    const pst_tensor *x, *w;
    const eng_window *window;
    int zx;
    const int32_t *zw;
    int64_t n_zw, groups;
    const int32_t *bias;
    int32_t *y; /* NULL = bytes */
    uint8_t *bytes;
    const float *scale;
    int zero, lo;
    const struct eng_int8_fused *fused; /* NULL = nothing is cut */
} eng_int8_conv;

/* Once a plan: filters that are a constant at input `at` are packed, *c->state keeps them. */
int eng_int8_conv_prepare(eng_op_ctx *c, int at);
int eng_int8_conv_run(eng_op_ctx *c, const eng_int8_conv *g);

#endif
