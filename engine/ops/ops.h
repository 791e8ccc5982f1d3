/* ops.h - what an operator kernel sees, and the table of operators.
 *
 * A kernel is a pure function of its inputs: it checks them (they may come from a hostile model), asks for its outputs by
 * shape and fills them. Kernels never write to inputs: values are shared.
 *
 *     static int relu(eng_op_ctx *c)
 *     {
 *         const pst_tensor *x = eng_in(c, 0);
 *         float *y = eng_out_like(c, 0, x);
 *         if (!y)
 *             return PST_ELIMIT;             // the story is written already
 *         …
 *     }
 *
 * Threads: a context belongs to the plan's thread. */
#ifndef PST_ENGINE_OPS_H
#define PST_ENGINE_OPS_H

#include "engine/cpu/isa.h"
#include "engine/expand.h"
#include "engine/fuse_tile.h"
#include "engine/graph.h"

typedef struct eng_blk eng_blk; /* a counted buffer of the plan's pool */

typedef struct eng_seq eng_seq;

typedef enum { ENG_VAL_NONE, ENG_VAL_TENSOR, ENG_VAL_SEQ } eng_val_kind;

/* A value while it runs. ENG_VAL_NONE: not set, or an empty optional. */
typedef struct eng_val {
    eng_val_kind kind;
    pst_tensor t;
    eng_blk *blk; /* keeps t.data alive; NULL when borrowed (constants, caller's inputs) */
    eng_seq *seq;
} eng_val;

struct eng_seq {
    int refs;
    int64_t n;
    eng_val *items;
    eng_blk *blk; /* where this and the items lie; NULL when lent by a caller */
};

/* What follows on output 0 of a node: + add, then the activation. A kernel that applies it while it writes sets done; if it does
 * not, the plan does it afterwards. With a pool nothing is written unless done is set. */
typedef struct eng_epilogue {
    const pst_tensor *add; /* NULL = none; float32, to be checked against the output's shape */
    eng_act act;
    float alpha, beta;
    const eng_node *pool; /* a MaxPool, then; NULL = none */
    bool done;
} eng_epilogue;

typedef struct eng_op_ctx {
    const eng_node *node;
    pst_plan *plan;
    eng_val **in;
    int n_in;
    eng_val **out; /* never NULL: results nobody wants go to a dummy */
    const bool *wanted;
    int n_out;
    void **state;           /* made once by the operator's prepare, from the plan's zone */
    eng_zone *keep;         /* where eng_op_keep takes from; NULL = the plan's zone */
    const bool *dies;       /* input k has no reader after this step; NULL = none dies */
    eng_epilogue *epilogue; /* NULL = nothing follows */
    /* For `models explain`: which kernel serves and why not a better one. Set by prepare or by the run; static or eng_op_keep(). */
    const char *kernel, *note;
    pst_err *err;
} eng_op_ctx;

typedef int (*eng_op_fn)(eng_op_ctx *c);

enum {
    ENG_OP_HALF = 1,       /* float16 and bfloat16 run through float32: inputs widened, float outputs rounded back */
    ENG_OP_IMPURE = 2,     /* never folded: random, or with nested graphs */
    ENG_OP_SHAPE_ONLY = 4, /* reads the shape of its input, not its data */
    ENG_OP_DRAWS = 8,      /* random numbers: pst_model_info.draws */
};

/* Of the first result, where it follows from the node and the types of its inputs. */
typedef enum { ENG_TYPE_ANY, ENG_TYPE_SAME, ENG_TYPE_BOOL, ENG_TYPE_I64, ENG_TYPE_F32, ENG_TYPE_TO } eng_op_rule;

/* Its first result's shape, as a guess before a run (estimate.c); kernels decide, and a run shows it (shape_observe.c says why). */
typedef enum {
    ENG_SHAPE_WIDEST, /* that of the largest input */
    ENG_SHAPE_PRODUCT,
    ENG_SHAPE_CONV,
    ENG_SHAPE_POOL,
    ENG_SHAPE_POOL_WHOLE, /* (N, C, 1 …) */
    ENG_SHAPE_TURNED,
    ENG_SHAPE_RESHAPED,
    ENG_SHAPE_SQUEEZED,
    ENG_SHAPE_UNSQUEEZED,
    ENG_SHAPE_FLAT,
    ENG_SHAPE_REDUCED,
    ENG_SHAPE_GATHERED,
    ENG_SHAPE_JOINED,
    ENG_SHAPE_RECURRENT,
    ENG_SHAPE_ROWS, /* one number a row */
} eng_shape_rule;

/* How many operations its result takes (cost.c). */
typedef enum {
    ENG_COST_RESULT, /* one for each number of it */
    ENG_COST_INPUT,  /* one for each number of the first input */
    ENG_COST_MOVE,   /* none: it moves data, or runs nodes that count themselves */
    ENG_COST_VIEW,   /* none, and its result may be its input's data */
    ENG_COST_GEMM,
    ENG_COST_CONV,
    ENG_COST_CONV_TURNED, /* ConvTranspose */
    ENG_COST_RNN,
    ENG_COST_ATTENTION,
    ENG_COST_TREES,
    ENG_COST_NATIVE, /* a model of XGBoost or LightGBM */
    ENG_COST_LINEAR,
    ENG_COST_WINDOW, /* pools */
    ENG_COST_NORM,
    ENG_COST_SOFTMAX,
    ENG_COST_LAYERS, /* fused dense layers */
    ENG_COST_LAST,   /* a part with the channels last: it knows after a run (last.h) */
    ENG_COST_PARTS,  /* fused elementwise nodes: one for each number and part */
} eng_op_cost;

/* Its loop in elementwise groups; attrs: 1 = it has an attribute alpha, 2 = and beta; these are their defaults. */
typedef struct eng_op_as_tile {
    eng_tile_code code;
    int attrs;
    float alpha, beta;
} eng_op_as_tile;

typedef struct eng_op {
    const char *domain, *name;
    int min_opset, max_opset; /* max 0 = open */
    eng_op_fn run;
    eng_op_fn prepare; /* once per plan: constant inputs are set, the others are NONE; NULL = none */
    int flags;
    eng_op_rule type;
    eng_op_cost cost;
    eng_shape_rule shape;
    eng_act act;                /* what it is behind a layer or a convolution; NONE = nothing */
    eng_fused_kind layer;       /* ADD, SUB, MUL, DIV: it can go into a layer's weights; DENSE = not */
    const eng_op_as_tile *tile; /* NULL = no part of elementwise groups */
    const char *kernel, *plain; /* for explain, where the kernel says nothing; NULL = "plain C" */
    eng_expand_fn made_of;      /* the loader puts other nodes in its place; then nothing else but the name is set */
} eng_op;

extern const eng_op eng_op_table[];
extern const size_t eng_op_count;
const eng_op *eng_op_find(const char *domain, const char *name, int64_t opset);

/* Input i as a tensor; NULL when it is not given (or is no tensor). */
static inline const pst_tensor *eng_in(const eng_op_ctx *c, int i)
{
    return i < c->n_in && c->in[i] && c->in[i]->kind == ENG_VAL_TENSOR ? &c->in[i]->t : NULL;
}
/* Required inputs: an error unless inputs 0..n-1 are tensors. */
int eng_op_need(eng_op_ctx *c, int n);
/* A dense output of this shape, uninitialised; NULL after an error (limits). Zero elements give a valid pointer. */
void *eng_out(eng_op_ctx *c, int i, pst_dtype dtype, int rank, const int64_t *dims);
void *eng_out_like(eng_op_ctx *c, int i, const pst_tensor *shape);
/* Output i of input j's type and shape for a kernel that reads element k of input j before it writes element k: takes over the
 * buffer of an input that dies here (then in[j] is gone: copy its pst_tensor first). */
void *eng_out_over(eng_op_ctx *c, int i, int j);
void *eng_out_typed(eng_op_ctx *c, int i, pst_dtype dtype, const pst_tensor *shape);
/* Output i shares input j's data under another shape of the same count. */
int eng_out_view(eng_op_ctx *c, int i, int j, int rank, const int64_t *dims);
/* Output i is input value j, whatever it is. */
void eng_out_share(eng_op_ctx *c, int i, const eng_val *v);
static inline bool eng_op_wanted(const eng_op_ctx *c, int i)
{
    return i < c->n_out && c->wanted[i];
}
/* Room that lives until the kernel returns; NULL after an error. */
void *eng_op_scratch(eng_op_ctx *c, size_t bytes);
/* Texts made by kernels: live until the plan's next run. Beyond the limit the text is empty (writing
 * to what is there, up to its NUL, is safe) and the step fails when the kernel returns. */
char *eng_op_text(eng_op_ctx *c, const char *s, size_t len);
/* Memory of the plan's life, for prepare. */
void *eng_op_keep(eng_op_ctx *c, size_t bytes);
/* One more round of a loop that runs no nodes of its own: counts as a step; PST_ELIMIT when the run has had its steps. */
int eng_op_tick(eng_op_ctx *c);
/* Between the parts of a long kernel: 0, or an error when the run is to end. */
int eng_op_pause(eng_op_ctx *c);
/* compute(arg, part, worker) for all parts: by the plan's workers where it has some and `products` multiplications in all are worth it, else here, one by one. Neither
 * allocates nor fails; the run may be ended between parts. Room of each worker: eng_op_workers() of them. workers.h says what must hold. */
int eng_op_parts(eng_op_ctx *c, int64_t parts, double products, void (*compute)(void *arg, int64_t part, int worker), void *arg);
int eng_op_workers(const eng_op_ctx *c, double products); /* 1: not worth it */
/* n multiplications to come, where attributes and not the sizes of tensors decide how many: 65,536 of them count as a step. */
int eng_op_work(eng_op_ctx *c, double n);
int eng_op_fail(eng_op_ctx *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* "type not covered by this operator", PST_EUNSUPPORTED */
int eng_op_type(eng_op_ctx *c, int dtype);

/* Input i read as integers / numbers whatever its type; -1 after an error. At most max. */
int eng_in_ints(eng_op_ctx *c, int i, int64_t *ret, int max);
int eng_in_scalar(eng_op_ctx *c, int i, double *ret);

/* axis in [-rank, rank) → [0, rank); PST_EINVAL otherwise. */
int eng_op_axis(eng_op_ctx *c, int64_t axis, int rank, int *ret);
/* Multidirectional broadcast of shapes; fails with both shapes in the text. */
int eng_broadcast(eng_op_ctx *c, const pst_tensor *a, const pst_tensor *b, int *rank, int64_t *dims);
/* Element strides of t seen as a tensor of rank and dims (0 along broadcast axes); t must broadcast to it. */
void eng_broadcast_strides(const pst_tensor *t, int rank, int64_t *ret);
void eng_strides(const int64_t *dims, int rank, int64_t *ret);

/* Sequences. */
eng_seq *eng_out_seq(eng_op_ctx *c, int i, int64_t n);           /* items NONE */
void eng_val_set(pst_plan *p, eng_val *dst, const eng_val *src); /* shares src */
void eng_val_clear(pst_plan *p, eng_val *v);

/* Runs a nested graph: in[k] become its inputs; its outputs are moved to out[k]. */
int eng_run_graph(eng_op_ctx *c, const eng_graph *g, eng_val *in, int n_in, eng_val *out, int n_out);

/* X(dtype, C type) */
#define ENG_FOR_FLOATS(X) X(PST_F32, float) X(PST_F64, double)
#define ENG_FOR_INTS(X) \
    X(PST_I64, int64_t) \
    X(PST_I32, int32_t) \
    X(PST_I16, int16_t) X(PST_I8, int8_t) X(PST_U8, uint8_t) X(PST_U16, uint16_t) X(PST_U32, uint32_t) X(PST_U64, uint64_t)
#define ENG_FOR_NUMBERS(X) ENG_FOR_FLOATS(X) ENG_FOR_INTS(X)

#endif
