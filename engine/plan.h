/* plan.h - the inside of a plan: steps over values, a pool of buffers. Not installed. One thread at a time. */
#ifndef PST_ENGINE_PLAN_H
#define PST_ENGINE_PLAN_H

#include "engine/graph.h"
#include "engine/heap.h"
#include "engine/ops/ops.h"

/* Where a buffer's payload lies. Kernels of the CPU see HOST and PINNED only: a device's backend brings to the host what they read. */
typedef enum {
    ENG_PLACE_HOST,
    ENG_PLACE_PINNED, /* host memory that a device reads and writes by itself */
    ENG_PLACE_DEVICE, /* data is an address of the device */
} eng_place;

struct eng_blk {
    size_t cap;
    int refs;
    eng_place place;
    unsigned char *data;
    bool pinned;                         /* of a folded constant: lives as long as the plan */
    struct eng_blk *next;                /* in the free list of its class, or in the scratch list */
    struct eng_blk *all_next, *all_prev; /* of everything the pool has taken from the heap */
};

/* Free buffers by size class: a released buffer serves the next value of its size, so a run of shapes seen before takes nothing
 * from the heap. */
#define ENG_POOL_CLASSES 232
typedef struct eng_pool {
    eng_blk *free[ENG_POOL_CLASSES], *all;
    size_t bytes, bytes_max; /* taken from the heap, texts included */
    size_t live, peak;       /* in use now, and at most since peak was last set */
} eng_pool;

/* What bounds the run in progress besides its steps (watch.c). */
typedef struct eng_watch {
    pst_run_limits limits;
    bool on;
    int64_t began_ns, looked_ns;
    uint32_t every, to_clock; /* looks between two at the clock; how many are left */
} eng_watch;
void eng_watch_begin(eng_watch *w);
/* PST_ESTOPPED, PST_ETIMEDOUT, 0. Kernels call eng_op_pause. */
int eng_watch_look(eng_watch *w, pst_err *err);
static inline int eng_watch_check(eng_watch *w, pst_err *err)
{
    return w->on ? eng_watch_look(w, err) : 0;
}
/* Steps of one evaluation. */
uint64_t eng_plan_steps_max(const struct pst_plan *p);

struct eng_seen;
typedef struct eng_step {
    const eng_node *node;
    eng_op_fn run;
    void *state;
    eng_val **in, **out, *dummy;
    bool *wanted, *dies;
    int n_in, n_out;
    int *kill, n_kill;         /* values that die here */
    bool half;                 /* run through float32 */
    const char *kernel, *note; /* what the kernel says of itself */
    struct eng_seen *seen;     /* observed runs; NULL = not asked for */
} eng_step;

typedef struct eng_prog {
    const eng_graph *graph;
    eng_step *steps;
    size_t n_steps;
    int *locals, n_locals;                        /* values made here that outlive the steps: inputs and outputs */
    size_t n_nodes, n_folded, n_dropped, n_fused; /* n_fused: nodes that became parts of others */
} eng_prog;

struct pst_plan {
    pst_model *m;
    eng_heap heap; /* owns everything below; a plan is freed by releasing it */
    pst_plan_opts opts;
    const char *isa;
    eng_zone zone;
    eng_pool pool;
    eng_val *vals;
    bool *folded;    /* by value id: constant in this plan */
    eng_prog *progs; /* [0] is the main graph */
    size_t n_progs, progs_cap;
    eng_blk *scratch; /* of the step that runs */
    struct eng_text_chunk *texts, *text_at;
    size_t text_bytes;   /* made in this run */
    bool text_over;      /* a text of this run did not fit */
    char no_text[8];     /* what is handed out then */
    uint64_t runs;       /* begun */
    uint64_t steps_left; /* against endless loops of hostile models */
    eng_watch watch;
    size_t out_bytes_max, fold_bytes; /* of one result: less while constants are folded; what folding has read and written */
    int depth;
    size_t fold_text_bytes, fused_bytes; /* the plan's own copies of texts and weights, bounded by arena_bytes_max */
    size_t shared_bytes;                 /* of what it uses of the model's (share.h) */
    eng_val *io_in;
    const eng_val **io_out; /* of pst_plan_run */
    bool observing;
    struct eng_workers *workers;       /* NULL = the caller alone (workers.h) */
    const struct eng_backend *backend; /* backend.h */
    void *of_backend;                  /* what it keeps of this plan */
    /* What a device computes in the CPU's place, for the rows that the backend's submit took: the operator asks for it. sums: of a forest, ret_has may be
     * NULL; results: of a network, ret (rows, n_out). */
    struct {
        const void *of; /* an eng_forest, or the state of a network's step; NULL = nothing */
        int (*sums)(struct pst_plan *p, const pst_tensor *x, double *ret_sums, uint8_t *ret_has, pst_err *err);
        int (*results)(struct pst_plan *p, const pst_tensor *x, float *ret, pst_err *err);
    } device;
    bool device_may;                      /* backend "auto": a device where it is cheaper, and the CPU takes over from it */
    int device_left;                      /* the code of the error for which the CPU took over from a device, 0 = it did not */
    char computes[16], computes_why[240]; /* "cuda:0", "cpu"; and why it is that one, where there was a choice */
    /* A plan that is one fused network: small batches go straight from the caller's rows to a buffer of the plan's own (fuse.c).
     * run gives false when the generic way must be taken. */
    struct {
        bool (*run)(struct pst_plan *p, const pst_tensor *in, pst_tensor *ret_out);
        const void *of;
        int64_t rows, rows_max; /* rows: the only count allowed, or -1 */
        float *out, *work;
    } direct;
    struct eng_owned *owned; /* what libraries gave, freed with the plan */
};

/* Values, pool (values.c). */
eng_blk *eng_blk_new(pst_plan *p, size_t bytes, pst_err *err);
void eng_blk_unref(pst_plan *p, eng_blk *b);
void eng_pool_drop(eng_pool *pool); /* what is cached goes back to the heap */
void eng_plan_texts_reset(pst_plan *p);
/* After a run that an allocation failure unwound: every value and buffer but the constants is given back. */
void eng_plan_reset(pst_plan *p);

/* Room for copied weights of the plan's life; NULL when the plan has had its share (then: do not fuse). */
void *eng_plan_room(pst_plan *p, size_t bytes);
/* Only counts it: for copies that plans share, so that what a plan fuses does not depend on the plans before it. */
bool eng_plan_room_take(pst_plan *p, size_t bytes);

/* As it was before a backend took it. */
void eng_plan_empty(pst_plan *p);

/* Running (exec.c). */
int eng_prog_run(pst_plan *p, const eng_prog *g, pst_err *err);
/* Its steps [from, to). */
int eng_prog_run_part(pst_plan *p, const eng_prog *g, size_t from, size_t to, pst_err *err);
int eng_step_run(pst_plan *p, const eng_step *s, pst_err *err);
void eng_scratch_free(pst_plan *p, eng_blk *until); /* what was asked for after until */
void eng_prog_clear(pst_plan *p, const eng_prog *g);
/* The general form of pst_plan_run: any kind of value in and out. out[i] is borrowed from the plan until its next run. */
int eng_plan_run_vals(pst_plan *p, const eng_val *in, size_t n_in, const eng_val **ret_out, size_t n_out, pst_err *err);

/* release(what) is called when the plan is freed, before its memory goes. To be called before anything is put into what. */
void eng_plan_own(pst_plan *p, void *what, void (*release)(void *what));
void eng_plan_disown(pst_plan *p); /* releases all of it */

/* ---- before a backend ---- */

typedef struct eng_node_ref {
    const eng_node *node;
    bool dead;
} eng_node_ref;

/* What is left of a graph: the nodes that are not dead. nodes: eng_heap_free(). */
typedef struct eng_lowered {
    const eng_graph *graph;
    eng_node_ref *nodes;
    size_t n, n_folded, n_left;
} eng_lowered;

/* Values that became constants are marked in p->folded. @thread the plan's, below a eng_heap_run */
int eng_lower(pst_plan *p, const eng_graph *g, eng_lowered *ret, pst_err *err);
/* The CPU's steps of all graphs; plan is a pst_plan. Below a eng_heap_run. */
int eng_compile(void *plan, pst_err *err);

/* Steps of a node (step.c): with the operator's prepare, for fused nodes that may have to run their parts. */
int eng_step_make(pst_plan *p, const eng_node *n, eng_step *s, pst_err *err);

/* ---- fusion: replaces groups of the node list by fused nodes, before steps are made ---- */

typedef struct eng_fuser {
    pst_plan *p;
    const eng_graph *graph;
    eng_node_ref *nodes;
    size_t n;
    int *readers;   /* by value: how often it is read, here and in nested graphs; graph outputs count twice */
    int *reader;    /* by value: index of the last node that reads it */
    int *maker;     /* by value: index of the node that makes it; -1 = input, constant, another graph */
    int *origin;    /* the same, also of constants that a node made */
    uint8_t *types; /* by value: dtype where it is sure, 0 = not known */
} eng_fuser;

void eng_fuse_all(pst_plan *p, const eng_graph *g, eng_node_ref *nodes, size_t n);
void eng_fuse_mlp(eng_fuser *f);     /* fuse.c: dense layers */
void eng_fuse_direct(pst_plan *p);   /* fuse.c: sets p->direct if it can be */
void eng_fuse_int8(eng_fuser *f);    /* fuse_int8.c: products of bytes and the scaling of their sums */
void eng_fuse_qdq(eng_fuser *f);     /* fuse_qdq.c: what lies between DequantizeLinear and QuantizeLinear */
void eng_fuse_spelled(eng_fuser *f); /* fuse_spelled.c: activations that are spelled out */
void eng_fuse_conv(eng_fuser *f);    /* fuse_conv.c: convolution, normalisation, residual, activation */
void eng_fuse_norm(eng_fuser *f);    /* fuse_norm.c: layer normalisation, softmax */
void eng_fuse_elts(eng_fuser *f);    /* fuse_elt.c: elementwise groups */
/* A constant tensor of any type, or NULL; id -1 has none. */
const pst_tensor *eng_fuse_folded(const eng_fuser *f, int id);
/* A float32 constant, or NULL. */
const pst_tensor *eng_fuse_konst(const eng_fuser *f, int id);
const eng_node *eng_fuse_maker(const eng_fuser *f, int id, size_t *ret_at); /* NULL: not made by a live node here */
bool eng_fuse_is(const eng_node *n, const char *op_type);                   /* of ONNX's own domain, with one wanted result */
/* What n does behind a layer or a convolution; false: it is no activation, or its bounds are no constants. */
typedef struct eng_fused_act {
    eng_act act;
    float alpha, beta;
} eng_fused_act;
bool eng_fuse_act(const eng_fuser *f, const eng_node *n, eng_fused_act *ret);
/* The bounds of a Clip: attributes, the float32 constants of its second and third input (NULL: none is known), or infinite where there is none. */
bool eng_clip_bounds(const eng_node *n, const pst_tensor *least, const pst_tensor *most, float *ret_from, float *ret_to);
/* The same, with the float32 constants of the graph that is fused. */
bool eng_fuse_bounds(const eng_fuser *f, const eng_node *n, float *ret_from, float *ret_to);
/* Numbers as bytes: (byte - zero) · scale, by the constants of a DequantizeLinear or QuantizeLinear. */
typedef struct eng_bytes {
    const eng_node *node;
    size_t at;
    int id, scale_id, zero_id;      /* values; zero_id -1 = zero */
    const pst_tensor *scale, *zero; /* zero: NULL = zero */
    pst_dtype type;                 /* PST_U8, PST_I8 */
} eng_bytes;
/* The bytes that the float32 value id is made of, by one scale or one for each place of an axis; of a constant, too. */
bool eng_fuse_wide(const eng_fuser *f, int id, eng_bytes *ret);
/* What the node at `at` makes of float32 numbers by one scale; ret->id: its result. */
bool eng_fuse_narrow(const eng_fuser *f, size_t at, eng_bytes *ret);
/* DequantizeLinear whose result nobody reads any more. */
void eng_fuse_drop_wide(eng_fuser *f);
/* A scalar constant of any number type; false otherwise. */
bool eng_fuse_scalar(const eng_fuser *f, int id, double *ret);
/* For a fused operator whose assumption does not hold: runs the nodes it stands for. *parts (NULL at first) keeps their steps. */
int eng_parts_run(eng_op_ctx *c, eng_step **parts);
/* A node in the place of parts[0..n): they die, it stands where the last of them stood. op and state as given, inputs are copied. */
eng_node *eng_fuse_replace(eng_fuser *f, const size_t *parts, int n, const eng_op *op, const void *state, const int *in, int n_in, int out,
                           const char *text);

#endif
