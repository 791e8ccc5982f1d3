/* conv_fast.h - convolutions of one and two dimensions by register tiles; conv.c has the general way, which is the twin. @thread the plan's */
#ifndef PST_ENGINE_OPS_CONV_FAST_H
#define PST_ENGINE_OPS_CONV_FAST_H

#include "engine/cpu/isa.h"
#include "engine/ops/window.h"
#include "engine/plan.h"

/* Weights (M, C/groups, k…) in the order of the tiles; of: the data they were made from. packed NULL = not made. */
typedef struct eng_conv_weights {
    const float *packed;
    const void *of;
} eng_conv_weights;

/* For constant weights, into the plan's memory. */
int eng_conv_fast_prepare(eng_op_ctx *c, const eng_cpu_kernels *kn, const pst_tensor *w, int64_t groups, eng_conv_weights *ret);
/* y (N, M, out…) of x (N, C, in…). Takes the epilogue too. 0, an error, or 1 = not for this geometry: nothing was done. */
int eng_conv_fast(eng_op_ctx *c, const eng_cpu_kernels *kn, const eng_conv_weights *kept, const pst_tensor *x, const pst_tensor *wt,
                  const float *bias, const eng_window *w, float *y);

#endif
