/* plan.h - the inside of a plan: steps over values, a pool of buffers. Not installed. One thread at a time. */
#ifndef PST_ENGINE_PLAN_H
#define PST_ENGINE_PLAN_H

#include "engine/graph.h"
#include "engine/heap.h"
#include "engine/ops/ops.h"

struct pst_blk {
    size_t cap;
    int refs;
    bool pinned;                         /* of a folded constant: lives as long as the plan */
    struct pst_blk *next;                /* in the free list of its class, or in the scratch list */
    struct pst_blk *all_next, *all_prev; /* of everything the pool has taken from the heap */
    _Alignas(64) unsigned char data[];
};

/* Free buffers by size class: a released buffer serves the next value of its size, so a run of shapes seen before takes nothing
 * from the heap. */
#define PST_POOL_CLASSES 232
typedef struct pst_pool {
    pst_blk *free[PST_POOL_CLASSES], *all;
    size_t bytes, bytes_max; /* taken from the heap, texts included */
    size_t live, peak;       /* in use now, and at most since peak was last set */
} pst_pool;

/* What bounds the run in progress besides its steps (watch.c). */
typedef struct pst_watch {
    pst_run_limits limits;
    bool on;
    int64_t began_ns, looked_ns;
    uint32_t every, to_clock; /* looks between two at the clock; how many are left */
} pst_watch;
void pst_watch_begin(pst_watch *w);
/* PST_ESTOPPED, PST_ETIMEDOUT, 0. Kernels call pst_op_pause. */
int pst_watch_look(pst_watch *w, pst_err *err);
static inline int pst_watch_check(pst_watch *w, pst_err *err)
{
    return w->on ? pst_watch_look(w, err) : 0;
}
/* Steps of one evaluation. */
uint64_t pst_plan_steps_max(const struct pst_plan *p);

struct pst_seen;
typedef struct pst_step {
    const pst_node *node;
    pst_op_fn run;
    void *state;
    pst_val **in, **out, *dummy;
    bool *wanted, *dies;
    int n_in, n_out;
    int *kill, n_kill;         /* values that die here */
    bool half;                 /* run through float32 */
    const char *kernel, *note; /* what the kernel says of itself */
    struct pst_seen *seen;     /* observed runs; NULL = not asked for */
} pst_step;

typedef struct pst_prog {
    const pst_graph *graph;
    pst_step *steps;
    size_t n_steps;
    int *locals, n_locals;                        /* values made here that outlive the steps: inputs and outputs */
    size_t n_nodes, n_folded, n_dropped, n_fused; /* n_fused: nodes that became parts of others */
} pst_prog;

struct pst_plan {
    pst_model *m;
    pst_heap heap; /* owns everything below; a plan is freed by releasing it */
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
    size_t text_bytes;   /* made in this run */
    bool text_over;      /* a text of this run did not fit */
    char no_text[8];     /* what is handed out then */
    uint64_t steps_left; /* against endless loops of hostile models */
    pst_watch watch;
    size_t out_bytes_max, fold_bytes; /* of one result: less while constants are folded; what folding has read and written */
    int depth;
    size_t fold_text_bytes, fused_bytes; /* the plan's own copies of texts and weights, bounded by arena_bytes_max */
    pst_val *io_in;
    const pst_val **io_out; /* of pst_plan_run */
    bool observing;
    struct pst_ort_run *ort; /* runs this plan in the engine's place (ort/ort_plan.h); NULL = the engine runs it */
    /* A plan that is one fused network: small batches go straight from the caller's rows to a buffer of the plan's own (fuse.c).
     * run gives false when the generic way must be taken. */
    struct {
        bool (*run)(struct pst_plan *p, const pst_tensor *in, pst_tensor *ret_out);
        const void *of;
        int64_t rows, rows_max; /* rows: the only count allowed, or -1 */
        float *out, *work;
    } direct;
    struct pst_owned *owned; /* what libraries gave, freed with the plan */
};

/* Values, pool (values.c). */
pst_blk *pst_blk_new(pst_plan *p, size_t bytes, pst_err *err);
void pst_blk_unref(pst_plan *p, pst_blk *b);
void pst_pool_drop(pst_pool *pool); /* what is cached goes back to the heap */
void pst_plan_texts_reset(pst_plan *p);
/* After a run that an allocation failure unwound: every value and buffer but the constants is given back. */
void pst_plan_reset(pst_plan *p);

/* Running (exec.c). */
int pst_prog_run(pst_plan *p, const pst_prog *g, pst_err *err);
int pst_step_run(pst_plan *p, const pst_step *s, pst_err *err);
void pst_scratch_free(pst_plan *p, pst_blk *until); /* what was asked for after until */
void pst_prog_clear(pst_plan *p, const pst_prog *g);
/* The general form of pst_plan_run: any kind of value in and out. out[i] is borrowed from the plan until its next run. */
int pst_plan_run_vals(pst_plan *p, const pst_val *in, size_t n_in, const pst_val **ret_out, size_t n_out, pst_err *err);

/* release(what) is called when the plan is freed, before its memory goes. To be called before anything is put into what. */
void pst_plan_own(pst_plan *p, void *what, void (*release)(void *what));

/* Steps of a node (plan.c): with the operator's prepare, for fused nodes that may have to run their parts. */
int pst_step_make(pst_plan *p, const pst_node *n, pst_step *s, pst_err *err);

/* What a run shows of a step (shape_observe.c): before it, with its inputs still there, and after it. */
void pst_seen_before(pst_step *s);
void pst_seen_after(const pst_plan *p, pst_step *s);

/* ---- fusion: replaces groups of the node list by fused nodes, before steps are made ---- */

typedef struct pst_node_ref {
    const pst_node *node;
    bool dead;
} pst_node_ref;

typedef struct pst_fuser {
    pst_plan *p;
    const pst_graph *graph;
    pst_node_ref *nodes;
    size_t n;
    int *readers;   /* by value: how often it is read, here and in nested graphs; graph outputs count twice */
    int *reader;    /* by value: index of the last node that reads it */
    int *maker;     /* by value: index of the node that makes it; -1 = input, constant, another graph */
    uint8_t *types; /* by value: dtype where it is sure, 0 = not known */
} pst_fuser;

void pst_fuse_all(pst_plan *p, const pst_graph *g, pst_node_ref *nodes, size_t n);
void pst_fuse_mlp(pst_fuser *f);   /* fuse.c: dense layers */
void pst_fuse_direct(pst_plan *p); /* fuse.c: sets p->direct if it can be */
void pst_fuse_conv(pst_fuser *f);  /* fuse_conv.c: convolution, normalisation, residual, activation */
void pst_fuse_norm(pst_fuser *f);  /* fuse_norm.c: layer normalisation, softmax */
void pst_fuse_elts(pst_fuser *f);  /* fuse_elt.c: elementwise groups */
/* A float32 constant, or NULL. */
const pst_tensor *pst_fuse_konst(const pst_fuser *f, int id);
const pst_node *pst_fuse_maker(const pst_fuser *f, int id, size_t *ret_at); /* NULL: not made by a live node here */
bool pst_fuse_is(const pst_node *n, const char *op_type);                   /* of ONNX's own domain, with one wanted result */
/* A scalar constant of any number type; false otherwise. */
bool pst_fuse_scalar(const pst_fuser *f, int id, double *ret);
/* Room for copied weights of the plan's life; NULL when the plan has had its share (then: do not fuse). */
void *pst_fuse_room(pst_plan *p, size_t bytes);
/* Every value a node reads, also in graphs nested in it (plan.c). */
void pst_visit_uses(const pst_node *n, void (*use)(void *arg, int id), void *arg);
/* For a fused operator whose assumption does not hold: runs the nodes it stands for. *parts (NULL at first) keeps their steps. */
int pst_parts_run(pst_op_ctx *c, pst_step **parts);
/* A node in the place of parts[0..n): they die, it stands where the last of them stood. op and state as given, inputs are copied. */
pst_node *pst_fuse_replace(pst_fuser *f, const size_t *parts, int n, const pst_op *op, const void *state, const int *in, int n_in, int out,
                           const char *text);

#endif
