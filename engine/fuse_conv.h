/* fuse_conv.h - what a fused convolution is made of (fuse_conv.c), for those who take it in. Not installed. */
#ifndef PST_ENGINE_FUSE_CONV_H
#define PST_ENGINE_FUSE_CONV_H

#include "engine/plan.h"

/* Inputs of the node: x, weights, and the residual if there is one. */
typedef struct eng_fused_conv {
    const eng_node *conv; /* the node as the file has it */
    eng_val weights, bias;
    bool own_weights, has_bias; /* own: with factors in them, the model's (share.h) */
    bool has_add;
    eng_fused_act act;
    const eng_node *pool; /* NULL = none */
} eng_fused_conv;

/* Of a fused convolution's node; NULL: it is none. */
const eng_fused_conv *eng_fused_conv_of(const eng_node *n);

#endif
