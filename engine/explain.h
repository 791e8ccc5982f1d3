/* explain.h - what `models explain` says of a plan, gathered by explain.c and written by explain_out.c. Not installed. */
#ifndef PST_ENGINE_EXPLAIN_H
#define PST_ENGINE_EXPLAIN_H

#include "engine/shape_observe.h"

typedef struct eng_explained {
    pst_plan *p;
    const char *file;      /* NULL = not given */
    int64_t batch;         /* rows of the run that was observed; 1 when nothing is free */
    int64_t other;         /* what other free dimensions were set to; 0 = there are none */
    const char *elsewhere; /* another backend serves every node: which and why; NULL = the engine */
    bool has_batch, observed, measured;
    char why[512];              /* not observed: the story */
    size_t peak, peak_one;      /* bytes of values alive at once: at batch, at one row */
    size_t reserved;            /* taken from the heap for them */
    size_t weights, plan_bytes; /* constants of the model; what the plan keeps, and what it shares with other plans: packed copies */
    double flops, moved;        /* per row */
    double ns_row;              /* measured */
} eng_explained;

/* Text of the kernel that serves a step. */
const char *eng_explain_kernel(const pst_plan *p, const eng_step *s);
/* "f32 (N, 30)" with the batch as N where two probes show it; "" when nothing was seen. */
void eng_explain_shape(const eng_explained *e, const eng_step *s, char *ret, size_t size);
/* Dimension k of a step's output: a number, or -1 and "N", "8N", "2N+1" in ret. */
int64_t eng_explain_dim(const eng_explained *e, const eng_step *s, int k, char *ret, size_t size);
void eng_explain_text(const eng_explained *e, eng_heap_text *t);
void eng_explain_json(const eng_explained *e, eng_heap_text *t);

#endif
