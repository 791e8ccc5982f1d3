/* ops.h - what an operator kernel sees, and the table of operators.
 *
 * A kernel is a pure function of its inputs: it checks them (they may come from a hostile model), asks for its outputs by
 * shape and fills them. Kernels never write to inputs: values are shared.
 *
 *     static int relu(pst_op_ctx *c)
 *     {
 *         const pst_tensor *x = pst_in(c, 0);
 *         float *y = pst_out_like(c, 0, x);
 *         if (!y)
 *             return PST_ELIMIT;             // the story is written already
 *         …
 *     }
 *
 * Threads: a context belongs to the plan's thread. */
#ifndef PST_ENGINE_OPS_H
#define PST_ENGINE_OPS_H

#include "engine/cpu/isa.h"
#include "engine/graph.h"

typedef struct pst_blk pst_blk; /* a counted buffer of the plan's pool */

typedef struct pst_seq pst_seq;

typedef enum { PST_VAL_NONE, PST_VAL_TENSOR, PST_VAL_SEQ } pst_val_kind;

/* A value while it runs. PST_VAL_NONE: not set, or an empty optional. */
typedef struct pst_val {
    pst_val_kind kind;
    pst_tensor t;
    pst_blk *blk; /* keeps t.data alive; NULL when borrowed (constants, caller's inputs) */
    pst_seq *seq;
} pst_val;

struct pst_seq {
    int refs;
    int64_t n;
    pst_val *items;
    pst_blk *blk; /* where this and the items lie; NULL when lent by a caller */
};

/* What follows on output 0 of a node: + add, then the activation. A kernel that applies it while it writes sets done; if it does
 * not, the plan does it afterwards. With a pool nothing is written unless done is set. */
typedef struct pst_epilogue {
    const pst_tensor *add; /* NULL = none; float32, to be checked against the output's shape */
    pst_act act;
    float alpha;
    const pst_node *pool; /* a MaxPool, then; NULL = none */
    bool done;
} pst_epilogue;

typedef struct pst_op_ctx {
    const pst_node *node;
    pst_plan *plan;
    pst_val **in;
    int n_in;
    pst_val **out; /* never NULL: results nobody wants go to a dummy */
    const bool *wanted;
    int n_out;
    void **state;           /* made once by the operator's prepare, from the plan's zone */
    const bool *dies;       /* input k has no reader after this step; NULL = none dies */
    pst_epilogue *epilogue; /* NULL = nothing follows */
    /* For `models explain`: which kernel serves and why not a better one. Set by prepare or by the run; static or pst_keep(). */
    const char *kernel, *note;
    pst_err *err;
} pst_op_ctx;

typedef int (*pst_op_fn)(pst_op_ctx *c);

enum {
    PST_OP_HALF = 1,       /* float16 and bfloat16 run through float32: inputs widened, float outputs rounded back */
    PST_OP_IMPURE = 2,     /* never folded: random, or with nested graphs */
    PST_OP_SHAPE_ONLY = 4, /* reads the shape of its input, not its data */
};

typedef struct pst_op {
    const char *domain, *name;
    int min_opset, max_opset; /* max 0 = open */
    pst_op_fn run;
    pst_op_fn prepare; /* once per plan: constant inputs are set, the others are NONE; NULL = none */
    int flags;
} pst_op;

extern const pst_op pst_op_table[];
extern const size_t pst_op_count;
const pst_op *pst_op_find(const char *domain, const char *name, int64_t opset);

/* Input i as a tensor; NULL when it is not given (or is no tensor). */
static inline const pst_tensor *pst_in(const pst_op_ctx *c, int i)
{
    return i < c->n_in && c->in[i] && c->in[i]->kind == PST_VAL_TENSOR ? &c->in[i]->t : NULL;
}
/* Required inputs: an error unless inputs 0..n-1 are tensors. */
int pst_need(pst_op_ctx *c, int n);
/* A dense output of this shape, uninitialised; NULL after an error (limits). Zero elements give a valid pointer. */
void *pst_out(pst_op_ctx *c, int i, pst_dtype dtype, int rank, const int64_t *dims);
void *pst_out_like(pst_op_ctx *c, int i, const pst_tensor *shape);
/* Output i of input j's type and shape for a kernel that reads element k of input j before it writes element k: takes over the
 * buffer of an input that dies here (then in[j] is gone: copy its pst_tensor first). */
void *pst_out_over(pst_op_ctx *c, int i, int j);
void *pst_out_typed(pst_op_ctx *c, int i, pst_dtype dtype, const pst_tensor *shape);
/* Output i shares input j's data under another shape of the same count. */
int pst_out_view(pst_op_ctx *c, int i, int j, int rank, const int64_t *dims);
/* Output i is input value j, whatever it is. */
void pst_out_share(pst_op_ctx *c, int i, const pst_val *v);
static inline bool pst_wanted(const pst_op_ctx *c, int i)
{
    return i < c->n_out && c->wanted[i];
}
/* Room that lives until the kernel returns; NULL after an error. */
void *pst_scratch(pst_op_ctx *c, size_t bytes);
/* Texts made by kernels: live until the plan's next run. Beyond the limit the text is empty (writing
 * to what is there, up to its NUL, is safe) and the step fails when the kernel returns. */
char *pst_text(pst_op_ctx *c, const char *s, size_t len);
/* Memory of the plan's life, for prepare. */
void *pst_keep(pst_op_ctx *c, size_t bytes);
/* One more round of a loop that runs no nodes of its own: counts as a step; PST_ELIMIT when the run has had its steps. */
int pst_op_tick(pst_op_ctx *c);
/* Between the parts of a long kernel: 0, or an error when the run is to end. */
int pst_op_pause(pst_op_ctx *c);
/* n multiplications to come, where attributes and not the sizes of tensors decide how many: 65,536 of them count as a step. */
int pst_op_work(pst_op_ctx *c, double n);
int pst_op_fail(pst_op_ctx *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* "type not covered by this operator", PST_EUNSUPPORTED */
int pst_op_type(pst_op_ctx *c, int dtype);

/* Input i read as integers / numbers whatever its type; -1 after an error. At most max. */
int pst_in_ints(pst_op_ctx *c, int i, int64_t *ret, int max);
int pst_in_scalar(pst_op_ctx *c, int i, double *ret);

/* axis in [-rank, rank) → [0, rank); PST_EINVAL otherwise. */
int pst_axis(pst_op_ctx *c, int64_t axis, int rank, int *ret);
/* Multidirectional broadcast of shapes; fails with both shapes in the text. */
int pst_broadcast(pst_op_ctx *c, const pst_tensor *a, const pst_tensor *b, int *rank, int64_t *dims);
/* Element strides of t seen as a tensor of rank and dims (0 along broadcast axes); t must broadcast to it. */
void pst_broadcast_strides(const pst_tensor *t, int rank, int64_t *ret);
void pst_strides(const int64_t *dims, int rank, int64_t *ret);

/* Sequences. */
pst_seq *pst_out_seq(pst_op_ctx *c, int i, int64_t n);           /* items NONE */
void pst_val_set(pst_plan *p, pst_val *dst, const pst_val *src); /* shares src */
void pst_val_clear(pst_plan *p, pst_val *v);

/* Runs a nested graph: in[k] become its inputs; its outputs are moved to out[k]. */
int pst_run_graph(pst_op_ctx *c, const pst_graph *g, pst_val *in, int n_in, pst_val *out, int n_out);

/* X(dtype, C type) */
#define PST_FOR_FLOATS(X) X(PST_F32, float) X(PST_F64, double)
#define PST_FOR_INTS(X) \
    X(PST_I64, int64_t) \
    X(PST_I32, int32_t) \
    X(PST_I16, int16_t) X(PST_I8, int8_t) X(PST_U8, uint8_t) X(PST_U16, uint16_t) X(PST_U32, uint32_t) X(PST_U64, uint64_t)
#define PST_FOR_NUMBERS(X) PST_FOR_FLOATS(X) PST_FOR_INTS(X)

#endif
