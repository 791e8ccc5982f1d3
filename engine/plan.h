/* plan.h - the inside of a plan: steps over values, a pool of buffers. Not installed. One thread at a time. */
#ifndef PST_ENGINE_PLAN_H
#define PST_ENGINE_PLAN_H

#include "engine/graph.h"
#include "engine/ops/ops.h"

struct pst_blk {
    size_t cap;
    int refs;
    struct pst_blk *next; /* in the free list of its class, or in the scratch list */
    _Alignas(64) unsigned char data[];
};

/* Free buffers by power-of-two class: a released buffer serves the next value of its size, so a run of shapes seen before
 * takes nothing from the heap. */
typedef struct pst_pool {
    pst_blk *free[48];
    size_t bytes, bytes_max;
} pst_pool;

typedef struct pst_step {
    const pst_node *node;
    pst_op_fn run;
    void *state;
    pst_val **in, **out, *dummy;
    bool *wanted;
    int n_in, n_out;
    int *kill, n_kill; /* values that die here */
    bool half;         /* run through float32 */
} pst_step;

typedef struct pst_prog {
    const pst_graph *graph;
    pst_step *steps;
    size_t n_steps;
    int *locals, n_locals; /* values made here that outlive the steps: inputs and outputs */
} pst_prog;

struct pst_plan {
    pst_model *m;
    pst_plan_opts opts;
    const char *isa;
    pst_zone zone;
    pst_pool pool;
    pst_val *vals;
    bool *folded;    /* by value id: constant in this plan */
    pst_prog *progs; /* [0] is the main graph */
    size_t n_progs, progs_cap;
    pst_blk *scratch; /* of the step that runs */
    struct pst_text_chunk *texts, *text_at;
    size_t text_bytes;   /* made in this run; bounded like the pool */
    uint64_t steps_left; /* against endless loops of hostile models */
    int depth;
    pst_buf explain;
};

/* Values, pool (exec.c). */
pst_blk *pst_blk_new(pst_plan *p, size_t bytes, pst_err *err);
void pst_blk_unref(pst_plan *p, pst_blk *b);
void pst_plan_texts_reset(pst_plan *p);
int pst_prog_run(pst_plan *p, const pst_prog *g, pst_err *err);
int pst_step_run(pst_plan *p, const pst_step *s, pst_err *err);
void pst_prog_clear(pst_plan *p, const pst_prog *g);
/* The general form of pst_plan_run: any kind of value in and out. out[i] is borrowed from the plan until its next run. */
int pst_plan_run_vals(pst_plan *p, const pst_val *in, size_t n_in, const pst_val **ret_out, size_t n_out, pst_err *err);

/* Fusion (fuse.c): replaces chains of the node list by fused nodes. Called before steps are made. */
typedef struct pst_node_ref {
    const pst_node *node;
    bool dead;
} pst_node_ref;
void pst_fuse_mlp(pst_plan *p, pst_node_ref *nodes, size_t n);

#endif
