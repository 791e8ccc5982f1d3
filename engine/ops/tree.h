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
    PST_TREE_LEAF
} pst_tree_mode;
typedef enum { PST_POST_NONE, PST_POST_SOFTMAX, PST_POST_LOGISTIC, PST_POST_SOFTMAX_ZERO, PST_POST_PROBIT } pst_post;
typedef enum { PST_AGG_AVERAGE, PST_AGG_SUM, PST_AGG_MIN, PST_AGG_MAX } pst_aggregate;

typedef struct pst_tree_node {
    double split;
    int32_t feature;
    int32_t yes, no; /* next node; ~leaf when negative */
    uint8_t mode;
    bool missing_yes;      /* NaN takes the yes side */
    int32_t set_at, set_n; /* MEMBER: values in sets */
} pst_tree_node;

typedef struct pst_tree_leaf {
    int32_t at, n; /* weights */
} pst_tree_leaf;

typedef struct pst_tree_weight {
    int32_t target;
    double value;
} pst_tree_weight;

typedef struct pst_forest {
    pst_tree_node *nodes;
    int32_t n_nodes;
    pst_tree_leaf *leaves;
    int32_t n_leaves;
    pst_tree_weight *weights;
    int64_t n_weights;
    double *sets;
    int32_t *roots; /* ~leaf for a tree that is one leaf */
    int32_t n_trees;
    int32_t n_targets, n_features; /* features: 1 + the largest index used */
    double *base;
    int32_t n_base;
    pst_aggregate aggregate;
    pst_post post;
    bool one_mode; /* every split is `mode` and compares floats: the short loop serves */
    uint8_t mode;
    struct pst_forest_fast *fast; /* the vector form; NULL when the forest does not fit it */
} pst_forest;

/* Sums (or other aggregates) of all trees for rows of x: out (rows, n_targets), has (rows, n_targets) or NULL tells which targets got a weight.
 * x is float or double. Base values and post transform are not applied. */
void pst_forest_eval_f(const pst_forest *f, const float *x, int64_t rows, int64_t cols, double *out, uint8_t *has);
void pst_forest_eval_d(const pst_forest *f, const double *x, int64_t rows, int64_t cols, double *out, uint8_t *has);

/* The vector form (tree_fast.c), built when the forest fits it: every split an ordering, at most 255 thresholds per feature and 256
 * leaves per tree. Gives the same leaves and, summed in the same order in double, the same scores. */
#define PST_FOREST_RANKED_ROWS 20 /* fewer rows are quicker walked down */
void pst_forest_fast_new(pst_op_ctx *c, pst_forest *f);
int pst_forest_fast_run(pst_op_ctx *c, const pst_forest *f, const float *x, int64_t rows, int64_t cols, double *out, uint8_t *has);

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
