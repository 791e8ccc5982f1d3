/* share.h - what all plans of a model have in common beside the model: weights in the order of the kernels, forests in their vector form. Not installed.
 *
 * The first plan that wants such a thing makes it, in memory that then belongs to the model and goes with it; a plan holds a reference of
 * its model, so whatever it was given outlives it. Two plans that make the same at the same moment both do, and the first one's stays: no
 * lock is held while anything is made, which may take long and may unwind (heap.h). What was given is never changed again.
 *
 * What a key stands for must follow from the model and the key alone. Weights that a plan has folded by itself lie in that plan's memory:
 * their address says nothing to another plan, and after the plan's end something else may lie there. eng_of_model() tells.
 *
 * A device's backend keeps its copies of weights in the same way: `of`, its own word, and how they are given back. @thread a plan's, below a
 * eng_heap_run; @locks the model's */
#ifndef PST_ENGINE_SHARE_H
#define PST_ENGINE_SHARE_H

#include "engine/ops/ops.h"

typedef struct eng_share_key {
    const char *what;    /* whose: one word for one form */
    const void *of, *by; /* addresses in the model */
    int64_t variant;
    void (*release)(void *made); /* what is not memory, once nobody can use it any more; from any thread. NULL = nothing */
} eng_share_key;

/* Fills made, zeroed, with what it takes from zone; 0 or an error. */
typedef int (*eng_share_make)(void *arg, eng_zone *zone, void *made);
/* *ret: what there is for this key and the plan's kernels; if there is nothing, `size` bytes filled by make. An error is make's. */
int eng_share(pst_plan *p, const eng_share_key *key, size_t size, eng_share_make make, void *arg, const void **ret);
/* The same with a kernel's context: what make takes by eng_op_keep is shared too. Not shared, but the plan's own, when of_model is false. */
int eng_op_share(eng_op_ctx *c, const eng_share_key *key, bool of_model, size_t size, int (*make)(eng_op_ctx *c, void *made), void *ret);
/* In prepare: input i is a constant of the model (or what was shared), not the plan's. */
static inline bool eng_of_model(const eng_op_ctx *c, int i)
{
    return i < c->n_in && c->in[i] && !c->in[i]->blk;
}

/* When the last reference to the model goes. */
void eng_share_free(pst_model *m);
size_t eng_share_bytes(pst_model *m); /* all of it */

#endif
