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

/* Types that only casts and quantisation know; kept one byte per element, the value in the low bits. Numbers are ONNX's. */
enum {
    PST_C64 = 14,
    PST_C128 = 15,
    PST_F8E4M3FN = 17,
    PST_F8E4M3FNUZ = 18,
    PST_F8E5M2 = 19,
    PST_F8E5M2FNUZ = 20,
    PST_U4 = 21,
    PST_I4 = 22,
    PST_F4E2M1 = 23,
    PST_F8E8M0 = 24,
    PST_U2 = 25,
    PST_I2 = 26,
    PST_DTYPE_END
};

/* Memory that is freed all at once; zeroed, 64-byte aligned. */
typedef struct pst_zone {
    struct pst_zone_chunk *chunks;
} pst_zone;
void *pst_zone_alloc(pst_zone *z, size_t bytes); /* never NULL: a failure unwinds (heap.h) */
void *pst_zone_try(pst_zone *z, size_t bytes);   /* NULL on failure: for places that hold something else */
char *pst_zone_strdup(pst_zone *z, const char *s, size_t len);
size_t pst_zone_bytes(const pst_zone *z); /* handed out */
void pst_zone_done(pst_zone *z);

typedef enum {
    PST_ATTR_FLOAT = 1,
    PST_ATTR_INT = 2,
    PST_ATTR_STRING = 3,
    PST_ATTR_TENSOR = 4,
    PST_ATTR_GRAPH = 5,
    PST_ATTR_FLOATS = 6,
    PST_ATTR_INTS = 7,
    PST_ATTR_STRINGS = 8,
    PST_ATTR_TENSORS = 9,
    PST_ATTR_TYPE = 13
} pst_attr_type;

struct pst_graph;
typedef struct pst_attr {
    const char *name;
    pst_attr_type type;
    float f;
    int64_t i;     /* PST_ATTR_TYPE: the element dtype */
    const char *s; /* NUL-terminated */
    size_t n;      /* of floats, ints, strings, tensors */
    const float *floats;
    const int64_t *ints;
    const char *const *strings;
    const pst_tensor *t; /* TENSOR, TENSORS */
    struct pst_graph *graph;
} pst_attr;

struct pst_op;
typedef struct pst_node {
    const char *domain, *op_type, *name;
    int64_t opset; /* of its domain, as imported */
    const struct pst_op *op;
    int *in, n_in; /* value ids; -1 = not given */
    int *out, n_out;
    pst_attr *attrs;
    int n_attrs;
    const void *fused;                   /* of nodes the plan compiler made: what the kernel runs, */
    const struct pst_node *const *parts; /* and the nodes it stands for, in order */
    int n_parts;
} pst_node;

typedef struct pst_graph {
    int *in, n_in;
    int *out, n_out;
    pst_node *nodes;
    size_t n_nodes;
    size_t weight; /* nodes in it and in graphs nested in it */
} pst_graph;

typedef struct pst_value_def {
    const char *name;
    const pst_tensor *konst; /* initializer or sub-graph constant; NULL otherwise */
} pst_value_def;

typedef enum { PST_KIND_TENSOR, PST_KIND_SEQ, PST_KIND_OPT, PST_KIND_MAPS } pst_kind;

struct pst_model {
    int refs;      /* atomic */
    pst_heap heap; /* owns all that the load allocated */
    pst_model_limits limits;
    pst_model_info info;
    struct PstOnnx__ModelProto *proto; /* names and raw data are borrowed from it; NULL for models that were built in memory */
    pst_zone zone;
    pst_graph graph;
    pst_value_def *values;
    int n_values;
    const pst_kind *in_kinds, *out_kinds;
    bool foreign;        /* has operators that are not the engine's own: only ort can run it */
    struct pst_ort *ort; /* atomic: its session in ONNX Runtime, made when first needed (ort/ort.h); NULL = none */
    bool ort_refused;    /* atomic: it was asked for in vain, and is not asked again */
};

/* Product of dims, checked: negative dims and overflow give -1. */
int64_t pst_dims_count(const int64_t *dims, int rank);
static inline int64_t pst_count(const pst_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}
const pst_attr *pst_attr_find(const pst_node *n, const char *name);
int64_t pst_attr_int(const pst_node *n, const char *name, int64_t def);
float pst_attr_float(const pst_node *n, const char *name, float def);
const char *pst_attr_str(const pst_node *n, const char *name, const char *def);
const int64_t *pst_attr_ints(const pst_node *n, const char *name, size_t *ret_n); /* NULL and 0 if absent */
const float *pst_attr_floats(const pst_node *n, const char *name, size_t *ret_n);
const char *const *pst_attr_strings(const pst_node *n, const char *name, size_t *ret_n);

/* Scalar conversions (dtype.c). */
float pst_half_to_float(uint16_t h);
uint16_t pst_float_to_half(float f);
static inline float pst_bf16_to_float(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    __builtin_memcpy(&f, &u, 4);
    return f;
}
uint16_t pst_float_to_bf16(float f);
float pst_narrow_to_float(int dtype, uint8_t v);
uint8_t pst_float_to_narrow(int dtype, float f, bool saturate);
bool pst_dtype_is_float(int t); /* f16, bf16, f32, f64 */
bool pst_dtype_is_int(int t);   /* 8 to 64 bits, not bool */
bool pst_dtype_is_narrow(int t);
/* n elements; numbers, bool, half and narrow types (not strings). Out-of-range floats go to integers as x86 does, defined everywhere. */
int pst_convert(int to, void *dst, int from, const void *src, int64_t n, bool saturate);

#endif
