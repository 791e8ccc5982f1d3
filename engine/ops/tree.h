/* tree.h - a forest in one form, whatever operator or file it came from. Shared by the plans of a model; immutable after it is made. */
#ifndef PST_ENGINE_OPS_TREE_H
#define PST_ENGINE_OPS_TREE_H

#include "engine/ops/ops.h"

typedef enum {
    ENG_TREE_LEQ,
    ENG_TREE_LT,
    ENG_TREE_GTE,
    ENG_TREE_GT,
    ENG_TREE_EQ,
    ENG_TREE_NEQ,
    ENG_TREE_MEMBER,
    ENG_TREE_LEAF,
    ENG_TREE_BITS /* of native files: the whole part of x is a member of a set of bits; split: 0 = x >= 0 only, -1 = x > -1 */
} eng_tree_mode;
typedef enum { ENG_POST_NONE, ENG_POST_SOFTMAX, ENG_POST_LOGISTIC, ENG_POST_SOFTMAX_ZERO, ENG_POST_PROBIT } eng_post;
typedef enum { ENG_AGG_AVERAGE, ENG_AGG_SUM, ENG_AGG_MIN, ENG_AGG_MAX } eng_aggregate;

typedef struct eng_tree_node {
    double split;
    int32_t feature;
    int32_t yes, no; /* next node; ~leaf when negative */
    uint8_t mode;
    bool missing_yes;      /* NaN takes the yes side */
    bool zero_missing;     /* so do values within ENG_TREE_ZERO of 0 (or the no side, when missing does) */
    int32_t set_at, set_n; /* MEMBER: values in sets; BITS: words in bits */
} eng_tree_node;

#define ENG_TREE_ZERO ((double)1e-35f) /* LightGBM's kZeroThreshold */

typedef struct eng_tree_leaf {
    int32_t at, n; /* weights */
} eng_tree_leaf;

typedef struct eng_tree_weight {
    int32_t target;
    double value;
} eng_tree_weight;

/* A leaf that is a linear function (LightGBM's linear trees): constant + Σ factors · features; its weight stands in when one is NaN. */
typedef struct eng_tree_line {
    double constant;
    int32_t at, n; /* in line_features and line_factors */
} eng_tree_line;

typedef struct eng_forest {
    eng_tree_node *nodes;
    int32_t n_nodes;
    eng_tree_leaf *leaves;
    int32_t n_leaves;
    eng_tree_weight *weights;
    int64_t n_weights;
    double *sets;
    uint32_t *bits;
    eng_tree_line *lines; /* one a leaf, of one weight each; NULL = leaves are constants */
    int32_t *line_features;
    double *line_factors;
    int32_t *roots; /* ~leaf for a tree that is one leaf */
    int32_t n_trees;
    int32_t n_targets, n_features; /* features: 1 + the largest index used */
    double *base;
    int32_t n_base;
    eng_aggregate aggregate;
    eng_post post;
    bool wide;          /* inputs are double: thresholds are kept as double in the vector form too */
    const float *start; /* n_targets: sums are float32, begin here and run in tree order, as XGBoost's do; NULL = double from 0 */
    bool one_mode;      /* every split is `mode` and compares floats: the short loop serves */
    uint8_t mode;
    struct eng_forest_fast *fast; /* the vector form; NULL when the forest does not fit it */
} eng_forest;

/* What is known of all nodes: one_mode, mode, n_features. */
void eng_forest_settle(eng_forest *f);
/* Sums (or other aggregates) of all trees for rows of x: out (rows, n_targets), has (rows, n_targets) or NULL tells which targets got a weight.
 * x is float or double. Base values and post transform are not applied. */
void eng_forest_eval_f(const eng_forest *f, const float *x, int64_t rows, int64_t cols, double *out, uint8_t *has);
void eng_forest_eval_d(const eng_forest *f, const double *x, int64_t rows, int64_t cols, double *out, uint8_t *has);
/* The leaf of one tree, from node or ~leaf `at` downwards. */
int32_t eng_forest_leaf_f(const eng_forest *f, int32_t at, const float *x);
int32_t eng_forest_leaf_d(const eng_forest *f, int32_t at, const double *x);
/* What a leaf of lines gives for row x. */
double eng_forest_line_f(const eng_forest *f, int32_t leaf, const float *x);
double eng_forest_line_d(const eng_forest *f, int32_t leaf, const double *x);

/* The vector form (tree_fast.c): trees of at most 256 leaves on byte-ranked features, deeper ones walked down 64 rows at a time. Gives the
 * same leaves and, summed in the same order and precision, the same scores. Built when every split is an ordering or a set of bits and sums
 * are wanted; f->fast stays NULL otherwise. */
#define ENG_FOREST_RANKED_ROWS 20 /* fewer rows are quicker walked down */
void eng_forest_fast_new(eng_op_ctx *c, eng_forest *f);
/* x: float, or double when f->wide. has: NULL = not wanted. */
int eng_forest_fast_run(eng_op_ctx *c, const eng_forest *f, const void *x, int64_t rows, int64_t cols, double *out, uint8_t *has);
/* Tells `models explain` what was built: the context's kernel and note. */
void eng_forest_describe(eng_op_ctx *c, const eng_forest *f);

/* ai.onnx.ml post transforms on one row. */
void eng_post_row(eng_post post, float *v, int n);
float eng_logistic(float x);
float eng_probit(float x);
eng_post eng_post_of(const char *name);

/* Class labels of a classifier's attributes. */
typedef struct eng_labels {
    const char *const *texts;
    const int64_t *ints;
    int n;
} eng_labels;
void eng_labels_of(const eng_node *node, eng_labels *ret);
/* Output 0 of a classifier. */
void *eng_labels_out(eng_op_ctx *c, const eng_labels *l, int64_t rows);
void eng_label_put(const eng_labels *l, void *out, int64_t row, int which);

/* Input i as float32 (rows, cols): 1-D inputs are one row. NULL after an error. */
const float *eng_in_rows(eng_op_ctx *c, int i, int64_t *rows, int64_t *cols);

#endif
