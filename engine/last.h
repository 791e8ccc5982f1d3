/* last.h - a part of a graph that is computed with the channels last: images as (H, W, C) between the (N, C, H, W) that go in and come out.
 * fuse_last.c finds such parts, last_weights.c packs what they multiply by, last_run.c runs them. Not installed.
 *
 *     x (N, C, H, W) ─ turned ─▶ conv ▶ conv ▶ pool ▶ … ─ turned ─▶ y (N, M, H', W')
 *
 * @thread the plan's */
#ifndef PST_ENGINE_LAST_H
#define PST_ENGINE_LAST_H

#include "engine/plan.h"

enum { ENG_LAST_INPUTS = 4 };

typedef enum {
    ENG_LAST_LAYER, /* a convolution of all channels */
    ENG_LAST_DEPTH, /* one filter a channel */
    ENG_LAST_POOL,
    ENG_LAST_MEAN, /* of all pixels */
    ENG_LAST_ACT,
    ENG_LAST_ADD,
    ENG_LAST_MUL
} eng_last_kind;

/* In the kernels' order: panels of (kh, kw, C) × M for a layer, (kh · kw, ld) for one filter a channel; bias up to whole panels. For
 * ADD and MUL: w (ld), a constant of each channel. */
typedef struct eng_last_weights {
    const float *w, *bias;
} eng_last_weights;

/* Values are numbered: what goes in first, then one for each step. */
typedef struct eng_last_step {
    eng_last_kind kind;
    const eng_node *node; /* of the window: a convolution or a pool */
    int a, b;             /* b: a residual, a second operand; -1 = none (or constants) */
    eng_fused_act act;
    int64_t channels; /* of the result */
    /* As the file has them, float32; of_model: w outlives the plan. made: the value of the graph that the step gives. */
    const pst_tensor *w, *bias;
    bool of_model;
    int made;
    const eng_last_weights *packed;
} eng_last_step;

typedef struct eng_last_part {
    eng_last_step *steps;
    int n_steps, n_in, out; /* out: the value that comes out */
    double *flops;          /* of one image, once a run has shown its size */
} eng_last_part;

void eng_fuse_last(eng_fuser *f);
extern const eng_op eng_last_op;
int eng_last_pack(pst_plan *p, eng_last_step *s);
/* Floats of a pixel of so many channels. Few channels of what goes in lie close together: only convolutions that gather read them. */
int64_t eng_last_ld(const eng_cpu_kernels *kn, int64_t channels, bool goes_in);

#endif
