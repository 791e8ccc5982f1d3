/* tree.h - a forest in one form, whatever operator or file it came from. Lies in a plan's zone; immutable after it is made. */
#ifndef PST_ENGINE_OPS_TREE_H
#define PST_ENGINE_OPS_TREE_H

#include "engine/ops/ops.h"

typedef enum {
    PST_TREE_LEQ,
    PST_TREE_LT,
    PST_TREE_GTE,
    PST_TREE_GT,
    PST_TREE_EQ,
    PST_TREE_NEQ,
    PST_TREE_MEMBER,
    PST_TREE_LEAF,
    PST_TREE_BITS /* of native files: the whole part of x is a member of a set of bits; split: 0 = x >= 0 only, -1 = x > -1 */
} pst_tree_mode;
typedef enum { PST_POST_NONE, PST_POST_SOFTMAX, PST_POST_LOGISTIC, PST_POST_SOFTMAX_ZERO, PST_POST_PROBIT } pst_post;
typedef enum { PST_AGG_AVERAGE, PST_AGG_SUM, PST_AGG_MIN, PST_AGG_MAX } pst_aggregate;

typedef struct pst_tree_node {
    double split;
    int32_t feature;
    int32_t yes, no; /* next node; ~leaf when negative */
    uint8_t mode;
    bool missing_yes;      /* NaN takes the yes side */
    bool zero_missing;     /* so do values within PST_TREE_ZERO of 0 (or the no side, when missing does) */
    int32_t set_at, set_n; /* MEMBER: values in sets; BITS: words in bits */
} pst_tree_node;

#define PST_TREE_ZERO ((double)1e-35f) /* LightGBM's kZeroThreshold */

typedef struct pst_tree_leaf {
    int32_t at, n; /* weights */
} pst_tree_leaf;

typedef struct pst_tree_weight {
    int32_t target;
    double value;
} pst_tree_weight;

/* A leaf that is a linear function (LightGBM's linear trees): constant + Σ factors · features; its weight stands in when one is NaN. */
typedef struct pst_tree_line {
    double constant;
    int32_t at, n; /* in line_features and line_factors */
} pst_tree_line;

typedef struct pst_forest {
    pst_tree_node *nodes;
    int32_t n_nodes;
    pst_tree_leaf *leaves;
    int32_t n_leaves;
    pst_tree_weight *weights;
    int64_t n_weights;
    double *sets;
    uint32_t *bits;
    pst_tree_line *lines; /* one a leaf, of one weight each; NULL = leaves are constants */
    int32_t *line_features;
    double *line_factors;
    int32_t *roots; /* ~leaf for a tree that is one leaf */
    int32_t n_trees;
    int32_t n_targets, n_features; /* features: 1 + the largest index used */
    double *base;
    int32_t n_base;
    pst_aggregate aggregate;
    pst_post post;
    bool wide;          /* inputs are double: thresholds are kept as double in the vector form too */
    const float *start; /* n_targets: sums are float32, begin here and run in tree order, as XGBoost's do; NULL = double from 0 */
    bool one_mode;      /* every split is `mode` and compares floats: the short loop serves */
    uint8_t mode;
    struct pst_forest_fast *fast; /* the vector form; NULL when the forest does not fit it */
} pst_forest;

/* What is known of all nodes: one_mode, mode, n_features. */
void pst_forest_settle(pst_forest *f);
/* Sums (or other aggregates) of all trees for rows of x: out (rows, n_targets), has (rows, n_targets) or NULL tells which targets got a weight.
 * x is float or double. Base values and post transform are not applied. */
void pst_forest_eval_f(const pst_forest *f, const float *x, int64_t rows, int64_t cols, double *out, uint8_t *has);
void pst_forest_eval_d(const pst_forest *f, const double *x, int64_t rows, int64_t cols, double *out, uint8_t *has);
/* The leaf of one tree, from node or ~leaf `at` downwards. */
int32_t pst_forest_leaf_f(const pst_forest *f, int32_t at, const float *x);
int32_t pst_forest_leaf_d(const pst_forest *f, int32_t at, const double *x);
/* What a leaf of lines gives for row x. */
double pst_forest_line_f(const pst_forest *f, int32_t leaf, const float *x);
double pst_forest_line_d(const pst_forest *f, int32_t leaf, const double *x);

/* The vector form (tree_fast.c): trees of at most 256 leaves on byte-ranked features, deeper ones walked down 64 rows at a time. Gives the
 * same leaves and, summed in the same order and precision, the same scores. Built when every split is an ordering or a set of bits and sums
 * are wanted; f->fast stays NULL otherwise. */
#define PST_FOREST_RANKED_ROWS 20 /* fewer rows are quicker walked down */
void pst_forest_fast_new(pst_op_ctx *c, pst_forest *f);
/* x: float, or double when f->wide. has: NULL = not wanted. */
int pst_forest_fast_run(pst_op_ctx *c, const pst_forest *f, const void *x, int64_t rows, int64_t cols, double *out, uint8_t *has);
/* Tells `models explain` what was built: the context's kernel and note. */
void pst_forest_tell(pst_op_ctx *c, const pst_forest *f);

/* ai.onnx.ml post transforms on one row. */
void pst_post_row(pst_post post, float *v, int n);
float pst_logistic(float x);
float pst_probit(float x);
pst_post pst_post_of(const char *name);

/* Class labels of a classifier's attributes. */
typedef struct pst_labels {
    const char *const *texts;
    const int64_t *ints;
    int n;
} pst_labels;
void pst_labels_of(const pst_node *node, pst_labels *ret);
/* Output 0 of a classifier. */
void *pst_labels_out(pst_op_ctx *c, const pst_labels *l, int64_t rows);
void pst_label_put(const pst_labels *l, void *out, int64_t row, int which);

/* Input i as float32 (rows, cols): 1-D inputs are one row. NULL after an error. */
const float *pst_in_rows(pst_op_ctx *c, int i, int64_t *rows, int64_t *cols);

#endif
