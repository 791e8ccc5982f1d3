/* native.h - boosted models in their own libraries' files: XGBoost's JSON and UBJSON, LightGBM's text. Not installed: the public way in is
 * pst_model_load, which looks at the first bytes.
 *
 * A native model is a graph of one node with one input (N, features) and one float32 output (N, k): what the library's predict gives
 * (probabilities, classes of multi:softmax, values, margins of rankers). It runs on the same forest and the same kernels as ONNX's tree
 * ensembles (engine/ops/tree.h) and adds up in the library's own order and precision: XGBoost in float32, LightGBM in double. Inputs are
 * float32 for XGBoost, which turns all data into float32, and double for LightGBM, which compares doubles.
 * The names of categories, where a file has them, become metadata (categories.h); the model itself computes with codes.
 * Sources: XGBoost's doc/model.schema and files written by versions 1.x to 3.2; LightGBM's gbdt_model_text and files of versions v2 to v4.
 * Threads: any; a model being loaded has one owner. */
#ifndef PST_ENGINE_NATIVE_H
#define PST_ENGINE_NATIVE_H

#include "engine/graph.h"
#include "engine/ops/tree.h"

typedef enum { ENG_NATIVE_NONE, ENG_NATIVE_XGB_JSON, ENG_NATIVE_XGB_UBJ, ENG_NATIVE_LGBM } eng_native_kind;

/* From sums to what the library's predict returns. …_F: computed in float32. */
typedef enum {
    ENG_LINK_NONE,
    ENG_LINK_SIGMOID_F,
    ENG_LINK_EXP_F,
    ENG_LINK_SOFTMAX_F,
    ENG_LINK_ARGMAX_F, /* one output: the class */
    ENG_LINK_STEP_F,   /* 1 above 0 */
    ENG_LINK_SQUARE,   /* sign(x) · x² */
    ENG_LINK_SIGMOID,  /* of scale · x */
    ENG_LINK_EXP,
    ENG_LINK_SOFTMAX,
    ENG_LINK_LOG1P_EXP
} eng_link;

/* What a node of a native model runs; in the model's zone. */
typedef struct eng_native {
    eng_forest forest;    /* no trees for a linear model */
    const float *weights; /* linear: (n_features + 1, n_groups), the last row is the bias; NULL for trees */
    const float *start;   /* n_groups: the base scores as sums begin with; NULL = 0 */
    eng_link link;
    double scale;    /* of ENG_LINK_SIGMOID */
    int32_t divisor; /* sums are divided by it (random forests of LightGBM); 0 = not */
    int32_t n_features, n_groups, n_outputs;
    const char *library, *booster, *objective;
    const char *const *names; /* n_names of them: n_features, or 0 */
    size_t n_names;
    const char *categories; /* names by feature, as categories.h has them; NULL = none */
    const char *version;
    const char *remark; /* what a person should know who compares predictions; NULL = nothing */
} eng_native;

/* By the first bytes. */
eng_native_kind eng_native_recognise(const void *data, size_t len);
/* Fills m's graph, values and info; m->limits are set. PST_EUNSUPPORTED names what is not covered. */
int eng_native_load(eng_native_kind kind, const void *data, size_t len, pst_model *m, pst_err *err);

/* The readers: fill n from the bytes, in zone. */
int eng_native_xgboost(const void *data, size_t len, bool ubjson, const pst_model_limits *limits, eng_zone *zone, eng_native *n,
                       pst_err *err);
int eng_native_lightgbm(const void *data, size_t len, const pst_model_limits *limits, eng_zone *zone, eng_native *n, pst_err *err);

/* What the node runs (native_op.c). */
extern const eng_op eng_native_op;

#define ENG_NATIVE_FEATURES_MAX 16777216
#define ENG_NATIVE_GROUPS_MAX   65536
#define ENG_NATIVE_NAMES_MAX    1000000

#endif
