/* node_backend.h - what computes one node of the engine's own plans, where more than one can. Not installed.
 *
 *     ops/conv.c ─ eng_node_run ─ node_choice.c ─ node_backends.c ─┬ dnnl/dnnl_conv.c   oneDNN
 *                                                                 ├ ops/conv_lanes.c   filters in the lanes
 *                                                                 ├ ops/conv_fast.c    register tiles
 *                                                                 └ ops/conv_columns.c columns and gemm: takes everything
 *
 * The operator checks its operands and makes room for the result; a backend only computes. Which one does is decided by cost: an estimate
 * that is affine in the places of a result (pixels of an image), so that the choice for a size is a comparison of a few sums and the
 * plan knows, before it has seen a size, who can ever be the cheapest: only those prepare, since packed weights are memory. One that gives 1 in
 * submit is followed by the next cheapest. Backends of whole plans are in backend.h.
 *
 * Results of two backends may differ by rounding: a changed estimate changes last bits. @thread the plan's */
#ifndef PST_ENGINE_NODE_BACKEND_H
#define PST_ENGINE_NODE_BACKEND_H

#include "engine/ops/window.h"

/* Operands, checked: x (N, …), w, both float32. */
typedef struct eng_node_call {
    const pst_tensor *x, *w;
    const float *bias;        /* one for each filter; NULL = none */
    const eng_window *window; /* of a convolution */
    const eng_window *pool;   /* of the MaxPool in the epilogue, then y is its result; NULL = none */
    float *y;
} eng_node_call;

/* Of one item of the batch: item_ns + place_ns · places of its result. Of this core, to a factor of two; relations matter. */
typedef struct eng_node_cost {
    double item_ns, place_ns;
} eng_node_cost;

typedef struct eng_node_backend {
    const char *name;
    const char *op; /* of ONNX's own domain */
    /* Whether it can compute c's node, as far as the node, its constant inputs, the epilogue and the plan say. */
    bool (*supports)(const eng_op_ctx *c);
    eng_node_cost (*cost)(const eng_op_ctx *c); /* of what it supports */
    /* *ret_state: memory of the plan's life, without anything that needs free yet. NULL = it keeps nothing. Not called for one that
     * is never the cheapest: submit gets NULL then. */
    int (*prepare)(eng_op_ctx *c, void **ret_state);
    /* Computes; over when it returns. Takes of the epilogue what it can (e->done). 0, an error, or 1 = not this one: nothing was done. */
    int (*submit)(eng_op_ctx *c, void *state, const eng_node_call *call);
    void (*free)(void *state); /* what submit took outside of the plan's memory; NULL = nothing */
} eng_node_backend;

extern const eng_node_backend *const eng_node_backends[];
extern const size_t eng_node_backend_count;

/* In an operator's prepare: *c->state becomes the choice. */
int eng_node_prepare(eng_op_ctx *c);
/* 0, an error, or 1 = nobody computes this. */
int eng_node_run(eng_op_ctx *c, const eng_node_call *call);

#endif
