/* tree_fast.h - the vector form of a forest, between the one who builds it (tree_fast.c) and the one who runs it (tree_fast_run.c). */
#ifndef PST_ENGINE_OPS_TREE_FAST_H
#define PST_ENGINE_OPS_TREE_FAST_H

#include "engine/cpu/isa.h"
#include "engine/ops/tree.h"

enum { ENG_FAST_ROWS = ENG_TREE_ROWS, ENG_FAST_RANKS = 255, ENG_FAST_LEAVES = 256 };

/* A column holds one byte a row. Of an ordering: the rank of x among 255 thresholds of its feature, those from `from` on; features with
 * more have several columns, and in each the rank is cut off at both ends. Of a set: 0 = member, 255 = not. */
typedef struct eng_fast_column {
    int32_t from;
    bool missing_yes, zero_missing;
    const uint32_t *set; /* words of a set; NULL = an ordering */
} eng_fast_column;

/* Columns of one feature stand together. */
typedef struct eng_fast_feature {
    int32_t feature;
    eng_rank_table table; /* tf, td NULL: no orderings */
    int32_t column, n_columns;
    int32_t set_bits; /* every set of this feature has room for one more than this; numbers beyond are cut to it; 0 = no sets */
    bool half_open;   /* sets take x > -1, not x >= 0 */
} eng_fast_feature;

typedef struct eng_fast_tree {
    int32_t root, depth; /* root: where the walk begins, or in the forest (~leaf) where there is none */
    bool walked;         /* not ranked: walked down row by row */
    bool split;          /* ranked, and not one leaf */
    eng_tree_program program;
    int32_t ids;   /* ranked: leaf number → leaf of the forest, for lines */
    int64_t table; /* leaf weights, target-major, n_leaves each */
    int32_t n_leaves, n_targets, targets;
} eng_fast_tree;

/* For walking: x <= t leads to `first`, all else and NaN to the one behind it. A leaf's t is NaN and leads to itself, so a walk takes as many
 * steps as its tree is deep, without asking. Places count from the tree's root. Where NaN has to go the other way, -x is compared. */
typedef struct eng_walk_f {
    float t;
    uint32_t feature, first;
} eng_walk_f;

typedef struct eng_walk_d {
    double t;
    uint32_t feature, first;
} eng_walk_d;

typedef struct eng_forest_fast {
    const eng_cpu_kernels *kernels;
    eng_walk_f *walk_f; /* one of the two, by forest->wide; NULL when a split is no plain ordering */
    eng_walk_d *walk_d;
    int32_t *walk_leaf;     /* leaf of the forest, by place */
    int32_t *walk_features; /* what a row is walked on: these numbers, then their negatives; NULL = the row as it is */
    int32_t n_walk;
    int32_t *walk_roots, *walk_depths; /* of trees, to a multiple of eight; of eight trees, the deepest */
    eng_fast_feature *features;
    int32_t n_features;
    eng_fast_column *columns;
    int32_t n_columns;
    eng_fast_tree *trees;
    int32_t *ids;
    float *tables_f; /* one of the two: float where every weight is a float */
    double *tables_d;
    int32_t *targets;
    double *values; /* by leaf, where each leaf has one constant, all for one target; NULL otherwise */
    int32_t values_target;
    int32_t places_max, n_ranked, n_sets;
} eng_forest_fast;

/* Of the building: a split as "x <= t ? yes : no" (or member ? yes : no), whatever its mode says. yes, no: a node, or ~leaf. */
typedef struct eng_fast_split {
    double t;
    int32_t feature, yes, no;
    bool missing_yes, zero_missing, set;
    int32_t column, rank;
} eng_fast_split;

/* f's nodes as splits. False when one of them is neither an ordering nor a set of bits. *ret_plain: all are orderings in which 0 is a number. */
bool eng_fast_splits(const eng_forest *f, eng_fast_split *ret, bool *ret_plain);
/* Ranks and columns (tree_ranks.c): q's features and columns, the splits' column and rank. False when columns are too many to be worth it. */
bool eng_fast_columns(eng_op_ctx *c, const eng_forest *f, eng_forest_fast *q, eng_fast_split *splits);
/* Trees as programs with their tables (tree_code.c); trees that do not fit are marked as walked. */
void eng_fast_programs(eng_op_ctx *c, const eng_forest *f, eng_forest_fast *q, const eng_fast_split *splits, bool ranked);
/* The form for walking (tree_walk.c). */
void eng_fast_walk_new(eng_op_ctx *c, const eng_forest *f, eng_forest_fast *q, const eng_fast_split *splits);

/* n rows down one tree, or one row down all; x as walk_features wants it, stride numbers apart. leaf: leaves of the forest; sum: NULL, or
 * q->values are added up into it in tree order. */
void eng_fast_walk_tree(const eng_forest_fast *q, const eng_fast_tree *tree, const void *x, int64_t stride, int n, int32_t *leaf);
void eng_fast_walk_row(const eng_forest *f, const void *x, int32_t *leaf);
double eng_fast_walk_sum(const eng_forest *f, const void *x, double from);
/* Rows as the walk wants them, n_walk · 2 numbers each. */
void eng_fast_walk_rows(const eng_forest *f, const void *x, int64_t cols, int n, void *to);

#endif
