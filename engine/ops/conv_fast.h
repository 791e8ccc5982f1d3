/* conv_fast.h - convolutions of one and two dimensions by register tiles; conv_columns.c has the general way, which is the twin. @thread the plan's */
#ifndef PST_ENGINE_OPS_CONV_FAST_H
#define PST_ENGINE_OPS_CONV_FAST_H

#include "engine/node_backend.h"

extern const eng_node_backend eng_conv_fast_backend;

/* What these tiles take for a place of the result, in thirtieths of a product in a full lane: the measure of all convolutions. */
int64_t eng_conv_fast_thirtieths(const pst_tensor *w, bool pooled);
/* The same as time, on the kernels of c's plan. */
double eng_conv_ns(const eng_op_ctx *c, int64_t thirtieths);
/* Of c's convolution; 1 where its weights are not known. */
double eng_conv_fast_place_ns(const eng_op_ctx *c);

#endif
