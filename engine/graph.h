/* graph.h - the engine's inside: a loaded model as values, nodes and graphs. Not installed.
 *
 * Every value of a model (initializers, inputs, results, also those of nested graphs and inlined functions) has one id into
 * one table, so that a nested graph sees the outer values it captures with no lookup at run time. Everything here lies in the
 * model's zone and is immutable after the load; threads: any. */
#ifndef PST_ENGINE_GRAPH_H
#define PST_ENGINE_GRAPH_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "engine/heap.h"
#include "engine/penstock_engine.h"

#include <pthread.h>

/* Types that only casts and quantisation know; kept one byte per element, the value in the low bits. Numbers are ONNX's. */
enum {
    ENG_C64 = 14,
    ENG_C128 = 15,
    ENG_F8E4M3FN = 17,
    ENG_F8E4M3FNUZ = 18,
    ENG_F8E5M2 = 19,
    ENG_F8E5M2FNUZ = 20,
    ENG_U4 = 21,
    ENG_I4 = 22,
    ENG_F4E2M1 = 23,
    ENG_F8E8M0 = 24,
    ENG_U2 = 25,
    ENG_I2 = 26,
    ENG_DTYPE_END
};

/* Memory that is freed all at once; zeroed, 64-byte aligned. */
typedef struct eng_zone {
    struct eng_zone_chunk *chunks;
    size_t chunk; /* bytes taken at a time; 0 = 64 KiB */
} eng_zone;
void *eng_zone_alloc(eng_zone *z, size_t bytes); /* never NULL: a failure unwinds (heap.h) */
void *eng_zone_try(eng_zone *z, size_t bytes);   /* NULL on failure: for places that hold something else */
char *eng_zone_strdup(eng_zone *z, const char *s, size_t len);
size_t eng_zone_bytes(const eng_zone *z); /* handed out */
void eng_zone_done(eng_zone *z);
void eng_zone_disown(eng_zone *z); /* its memory no longer goes with the heap it was taken under, only by eng_zone_done */

typedef enum {
    ENG_ATTR_FLOAT = 1,
    ENG_ATTR_INT = 2,
    ENG_ATTR_STRING = 3,
    ENG_ATTR_TENSOR = 4,
    ENG_ATTR_GRAPH = 5,
    ENG_ATTR_FLOATS = 6,
    ENG_ATTR_INTS = 7,
    ENG_ATTR_STRINGS = 8,
    ENG_ATTR_TENSORS = 9,
    ENG_ATTR_TYPE = 13
} eng_attr_type;

struct eng_graph;
typedef struct eng_attr {
    const char *name;
    eng_attr_type type;
    float f;
    int64_t i;     /* ENG_ATTR_TYPE: the element dtype */
    const char *s; /* NUL-terminated */
    size_t n;      /* of floats, ints, strings, tensors */
    const float *floats;
    const int64_t *ints;
    const char *const *strings;
    const pst_tensor *t; /* TENSOR, TENSORS */
    struct eng_graph *graph;
} eng_attr;

struct eng_op;
typedef struct eng_node {
    const char *domain, *op_type, *name;
    int64_t opset; /* of its domain, as imported */
    const struct eng_op *op;
    int *in, n_in; /* value ids; -1 = not given */
    int *out, n_out;
    eng_attr *attrs;
    int n_attrs;
    const void *fused;                   /* of nodes the plan compiler made: what the kernel runs, */
    const struct eng_node *const *parts; /* and the nodes it stands for, in order */
    int n_parts;
} eng_node;

typedef struct eng_graph {
    int *in, n_in;
    int *out, n_out;
    eng_node *nodes;
    size_t n_nodes;
    size_t weight; /* nodes in it and in graphs nested in it */
} eng_graph;

typedef struct eng_value_def {
    const char *name;
    const pst_tensor *konst; /* initializer or sub-graph constant; NULL otherwise */
} eng_value_def;

typedef enum { ENG_KIND_TENSOR, ENG_KIND_SEQ, ENG_KIND_OPT, ENG_KIND_MAPS } eng_kind;

typedef struct eng_shared eng_shared;
enum { ENG_SHARED_BUCKETS = 64 };

struct pst_model {
    int refs;      /* atomic */
    eng_heap heap; /* owns all that the load allocated */
    pst_model_limits limits;
    pst_model_info info;
    struct PstOnnx__ModelProto *proto; /* names and raw data are borrowed from it; NULL for models that were built in memory */
    eng_zone zone;
    eng_graph graph;
    eng_value_def *values;
    int n_values;
    const eng_kind *in_kinds, *out_kinds;
    bool foreign;        /* has operators that are not the engine's own: only ort can run it */
    struct eng_ort *ort; /* atomic: its session in ONNX Runtime, made when first needed (ort/ort.h); NULL = none */
    bool ort_refused;    /* atomic: it was asked for in vain, and is not asked again */
    /* What its plans share (share.h): all else here does not change after the load. */
    pthread_mutex_t share_lock;
    eng_shared *shared[ENG_SHARED_BUCKETS];
};

/* Product of dims, checked: negative dims and overflow give -1. */
int64_t eng_dims_count(const int64_t *dims, int rank);
static inline int64_t eng_count(const pst_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}
const eng_attr *eng_attr_find(const eng_node *n, const char *name);
int64_t eng_attr_int(const eng_node *n, const char *name, int64_t def);
float eng_attr_float(const eng_node *n, const char *name, float def);
const char *eng_attr_str(const eng_node *n, const char *name, const char *def);
const int64_t *eng_attr_ints(const eng_node *n, const char *name, size_t *ret_n); /* NULL and 0 if absent */
const float *eng_attr_floats(const eng_node *n, const char *name, size_t *ret_n);
const char *const *eng_attr_strings(const eng_node *n, const char *name, size_t *ret_n);

/* Every value that a node reads, also in graphs nested in it; that a graph reads, its own among them (harmless). */
void eng_visit_uses(const eng_node *n, void (*use)(void *arg, int id), void *arg);
void eng_visit_graph(const eng_graph *g, void (*use)(void *arg, int id), void *arg);

/* Scalar conversions (dtype.c). */
float eng_half_to_float(uint16_t h);
uint16_t eng_float_to_half(float f);
static inline float eng_bf16_to_float(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    __builtin_memcpy(&f, &u, 4);
    return f;
}
uint16_t eng_float_to_bf16(float f);
float eng_narrow_to_float(int dtype, uint8_t v);
uint8_t eng_float_to_narrow(int dtype, float f, bool saturate);
bool eng_dtype_is_float(int t); /* f16, bf16, f32, f64 */
bool eng_dtype_is_int(int t);   /* 8 to 64 bits, not bool */
bool eng_dtype_is_narrow(int t);
/* n elements; numbers, bool, half and narrow types (not strings). Out-of-range floats go to integers as x86 does, defined everywhere. */
int eng_convert(int to, void *dst, int from, const void *src, int64_t n, bool saturate);

#endif
