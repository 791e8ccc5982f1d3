/* conv_lanes.h - convolutions of few channels with the filters in the lanes, and a maximum pool behind; conv_columns.c has the general way,
 * which is the twin. @thread the plan's */
#ifndef PST_ENGINE_OPS_CONV_LANES_H
#define PST_ENGINE_OPS_CONV_LANES_H

#include "engine/node_backend.h"

#define ENG_CONV_LANES_POOL_MAX 16 /* sizes and strides of a pool's windows */

extern const eng_node_backend eng_conv_lanes_backend;

/* Whether it will be the one that computes a convolution of constant weights (M, C, k…) with a pool behind. */
bool eng_conv_lanes_pools(const eng_cpu_kernels *kn, const pst_tensor *w, int64_t groups);

#endif
