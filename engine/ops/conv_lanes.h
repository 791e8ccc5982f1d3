/* conv_lanes.h - convolutions of few channels with the filters in the lanes, and a maximum pool behind; conv.c has the general way, which
 * is the twin. @thread the plan's */
#ifndef PST_ENGINE_OPS_CONV_LANES_H
#define PST_ENGINE_OPS_CONV_LANES_H

#include "engine/cpu/gemm.h"
#include "engine/cpu/isa.h"
#include "engine/ops/window.h"
#include "engine/plan.h"

#define PST_CONV_LANES_POOL_MAX 16 /* sizes and strides of a pool's windows */

/* The kernels, kn or narrower ones, with which this way is the faster one for constant weights (M, C, k…), with a pool behind or without;
 * NULL = with none. */
const pst_cpu_kernels *pst_conv_lanes_kernels(const pst_cpu_kernels *kn, const pst_tensor *w, int64_t groups, bool pooled);
/* Into the plan's memory; ret->data NULL = they do not suit. */
void pst_conv_lanes_prepare(pst_op_ctx *c, const pst_cpu_kernels *kn, const pst_tensor *w, int64_t groups, pst_packed *ret);
/* y (N, M, out…) of x (N, C, in…), or, with pool, y (N, M, out… of pool). Takes the epilogue too. 0, an error, or 1 = not for this
 * geometry: nothing was done. */
int pst_conv_lanes(pst_op_ctx *c, const pst_packed *weights, const pst_tensor *x, const float *bias, const pst_window *w,
                   const pst_window *pool, float *y);

#endif
