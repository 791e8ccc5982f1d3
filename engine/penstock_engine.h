/* penstock_engine.h - models: load an ONNX file, look at it, run batches. The one header of libpenstock-engine.
 *
 *     pst_err err = {0};
 *     pst_model *m = NULL;
 *     pst_plan *p = NULL;
 *     if (pst_model_load_file("model.onnx", NULL, &m, &err) < 0 || pst_plan_new(m, NULL, &p, &err) < 0) …
 *     pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {n, 30}, .data = rows}, out[1];
 *     if (pst_plan_run(p, &in, 1, out, 1, &err) < 0) …          // out[0].data (n, k): valid until the next run of p
 *     pst_plan_free(p); pst_model_unref(m);
 *
 * A model is immutable and may be shared by threads; a plan belongs to one thread at a time (it owns the arena).
 * Model files are untrusted: every size, count and depth is checked against pst_model_limits; class DATA on refusal.
 * Functions return 0 or a negative PST_E…, outputs untouched; err (may be NULL) gets a sentence if it was empty before.
 * Out of memory is PST_ENOMEM from the load, the plan and the run; nothing leaks, and the same call may be made again.
 * Structs that callers fill have reserved words: zero, as every initialiser leaves them. The ABI's rules: engine/README.md.
 * Source of the format: ONNX IR version 3 to 13, onnx.proto field numbers. */
#ifndef PENSTOCK_ENGINE_H
#define PENSTOCK_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err_type.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PST_MAX_RANK 8

/* Values are ONNX's TensorProto.DataType. */
typedef enum {
    PST_F32 = 1,
    PST_U8 = 2,
    PST_I8 = 3,
    PST_U16 = 4,
    PST_I16 = 5,
    PST_I32 = 6,
    PST_I64 = 7,
    PST_STR = 8,
    PST_BOOL = 9,
    PST_F16 = 10,
    PST_F64 = 11,
    PST_U32 = 12,
    PST_U64 = 13,
    PST_BF16 = 16
} pst_dtype;

/* Row-major and dense. PST_STR: data is const char *const *. Strings and data are borrowed. */
typedef struct pst_tensor {
    pst_dtype dtype;
    int rank;
    int64_t dims[PST_MAX_RANK];
    void *data;
} pst_tensor;

typedef struct pst_model pst_model;
typedef struct pst_plan pst_plan;

/* What may run a model. ONNX Runtime's shared library is opened at run time where it is installed (environment PENSTOCK_ONNXRUNTIME:
 * its file, or "off"); steps_max does not hold for what it runs, and its memory has one limit for all models of the process. */
enum {
    PST_BACKENDS_ANY = 0, /* the engine, and ONNX Runtime for models with operators or types that the engine does not cover */
    PST_BACKENDS_OWN = 1  /* the engine alone: for models of strangers */
};

/* 0 in a field means its default. New fields take words of reserved; a word that is not 0 and not known is PST_EINVAL. */
typedef struct pst_model_limits {
    size_t file_bytes_max;   /* 512 MiB */
    size_t nodes_max;        /* 100,000 */
    size_t tensor_bytes_max; /* 512 MiB, one tensor */
    size_t arena_bytes_max;  /* 1 GiB, all activations of one run */
    int depth_max;           /* 16 nested subgraphs */
    uint64_t steps_max;      /* 200,000,000: nodes run in one evaluation, counting every round of every loop */
    uint64_t backends;       /* PST_BACKENDS_… */
    uint64_t reserved[5];
} pst_model_limits;

/* One input or output. dims: -1 = free (the batch or a named dimension). */
typedef struct pst_value_info {
    const char *name;
    pst_dtype dtype;
    int rank; /* -1 = not given */
    int64_t dims[PST_MAX_RANK];
    uint64_t reserved[2];
} pst_value_info;

/* Made by the library only; later versions add fields at its end. */
typedef struct pst_model_info {
    const pst_value_info *inputs; /* initializers not counted */
    size_t n_inputs;
    const pst_value_info *outputs;
    size_t n_outputs;
    size_t n_nodes, n_parameters; /* parameters: scalars in initializers */
    int64_t opset;                /* of the default domain */
    const char *producer;
    const char *const *meta_keys; /* metadata_props */
    const char *const *meta_values;
    size_t n_meta;
    char digest[65]; /* sha256 of the file, hex */
    size_t file_bytes;
    const char *format; /* "onnx", "xgboost-json", "xgboost-ubj", "lightgbm-text" */
    /* It draws random numbers (RandomNormal, Bernoulli, …): the same in each run, by a node's seed or, without one, its place in the model;
     * but not the same for each row of a run. To have rows that do not depend on their neighbours give each a run of its own. */
    bool draws;
} pst_model_info;

/* What bounds one run, and the making of a plan. 0 or NULL in a field: no such bound. A bound is looked at between nodes, between the
 * rounds of loops and inside large products, so a run ends some time later than it says. After it the plan may be run again. */
typedef struct pst_run_limits {
    uint64_t ms_max;         /* milliseconds; beyond them PST_ETIMEDOUT, class DATA */
    uint64_t steps_max;      /* as pst_model_limits.steps_max, which holds as well; PST_ELIMIT */
    bool (*stop)(void *arg); /* true: end with PST_ESTOPPED, class RETRY. Asked often and from another thread too: cheap, thread-safe */
    void *stop_arg;
    uint64_t reserved[4];
} pst_run_limits;

typedef struct pst_plan_opts {
    const char *isa;           /* "portable", "avx2", "avx512"; NULL = what PENSTOCK_ISA names in the environment, else best of this CPU */
    bool no_fusion;            /* run the reference kernels node by node: the twin every fused kernel is compared with */
    const char *backend;       /* NULL = as pst_model_limits.backends says; "engine", "onnxruntime", "cuda" = no other; "auto" */
    const pst_run_limits *run; /* of the plan's making and of its runs; copied; NULL = none */
    uint64_t rows_most;        /* of the largest run there is going to be, where "auto" chooses; 0 = not known */
    uint64_t
        threads; /* for one run, the caller's with them: large runs only are shared out; 0, 1 = the caller alone. No more than the CPUs that this
                                  process may use are taken (pst_plan_explain tells). The results are the same bits whatever their number. */
    uint64_t reserved[2];
} pst_plan_opts;

/* @thread any. limits NULL = defaults. PST_EUNSUPPORTED names the operators that are not covered and the cure. */
int pst_model_load_file(const char *path, const pst_model_limits *limits, pst_model **ret_model, pst_err *err);
/* base_dir: where external data may lie (only inside it); NULL = external data refused. data is copied where needed. */
int pst_model_load(const void *data, size_t len, const char *base_dir, const pst_model_limits *limits, pst_model **ret_model, pst_err *err);
pst_model *pst_model_ref(pst_model *m);
void pst_model_unref(pst_model *m); /* NULL-safe */
const pst_model_info *pst_model_info_get(const pst_model *m);
const char *pst_model_meta(const pst_model *m, const char *key); /* NULL if absent */

int pst_plan_new(pst_model *m, const pst_plan_opts *opts, pst_plan **ret_plan, pst_err *err); /* takes its own ref of m */
/* Other bounds for the runs to come; copied; NULL = none. */
int pst_plan_limit(pst_plan *p, const pst_run_limits *limits, pst_err *err);
void pst_plan_free(pst_plan *p);
/* in: n_in tensors in the order of info->inputs; ret_out: n_out ≤ info->n_outputs tensors, data owned by the plan until
 * its next run. Wrong shapes: PST_EINVAL naming input, wanted and given shape. No heap use in the steady state for fused MLPs. */
int pst_plan_run(pst_plan *p, const pst_tensor *in, size_t n_in, pst_tensor *ret_out, size_t n_out, pst_err *err);
/* What was fused and which kernel serves each node, as text; free() it. NULL when memory ran out. */
char *pst_plan_explain(const pst_plan *p);

typedef struct pst_explain_opts {
    const char *file; /* to be named in the text; NULL = not */
    size_t batch;     /* rows of the run that memory and cost are given for; 0 = 64 */
    size_t free_dim;  /* size of free dimensions after an input's first; 0 = the first of 8, 32, 224, 64, 1, 5 the model takes */
    bool json;        /* exact numbers, one line */
    bool measure;     /* also time it: a third of a second */
    uint64_t reserved[6];
} pst_explain_opts;
/* Compiles a plan, runs it on made-up rows, and tells the model, every step with its shape, cost, memory and kernel, and the totals. A
 * model that does not run on made-up rows is described without shapes. what NULL = defaults. *ret_text: free() it. Without opts->run
 * a run may take 5 seconds; one that takes longer ends it with PST_ETIMEDOUT. */
int pst_model_explain(pst_model *m, const pst_plan_opts *opts, const pst_explain_opts *what, char **ret_text, pst_err *err);

size_t pst_dtype_size(pst_dtype t); /* bytes; PST_STR: sizeof(char *); 0 = unknown */
const char *pst_dtype_name(pst_dtype t);
const char *pst_engine_isa(void); /* "avx512", "avx2", "portable": what plans get by default */
/* NULL, or a sentence: an instruction set of this CPU whose kernels did not give what the portable ones give; it is not used. */
const char *pst_engine_warning(void);
const char *pst_engine_version(void); /* "0.1.0": of the library that runs, not of this header */

#ifdef __cplusplus
}
#endif
#endif
