/* conv_lanes.h - convolutions of few channels with the filters in the lanes, and a maximum pool behind; conv.c has the general way, which
 * is the twin. @thread the plan's */
#ifndef PST_ENGINE_OPS_CONV_LANES_H
#define PST_ENGINE_OPS_CONV_LANES_H

#include "engine/cpu/gemm.h"
#include "engine/cpu/isa.h"
#include "engine/ops/window.h"
#include "engine/plan.h"

#define ENG_CONV_LANES_POOL_MAX 16 /* sizes and strides of a pool's windows */

/* The kernels, kn or narrower ones, with which this way is the faster one for constant weights (M, C, k…), with a pool behind or without;
 * NULL = with none. */
const eng_cpu_kernels *eng_conv_lanes_kernels(const eng_cpu_kernels *kn, const pst_tensor *w, int64_t groups, bool pooled);
/* Into the plan's memory; ret->data NULL = they do not suit. */
void eng_conv_lanes_prepare(eng_op_ctx *c, const eng_cpu_kernels *kn, const pst_tensor *w, int64_t groups, eng_packed *ret);
/* y (N, M, out…) of x (N, C, in…), or, with pool, y (N, M, out… of pool). Takes the epilogue too. 0, an error, or 1 = not for this
 * geometry: nothing was done. */
int eng_conv_lanes(eng_op_ctx *c, const eng_packed *weights, const pst_tensor *x, const float *bias, const eng_window *w,
                   const eng_window *pool, float *y);

#endif
