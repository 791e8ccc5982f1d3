/* tree_fast.h - the vector form of a forest, between the one who builds it (tree_fast.c) and the one who runs it (tree_fast_run.c). */
#ifndef PST_ENGINE_OPS_TREE_FAST_H
#define PST_ENGINE_OPS_TREE_FAST_H

#include "engine/cpu/isa.h"
#include "engine/ops/tree.h"

enum { PST_FAST_ROWS = PST_TREE_ROWS, PST_FAST_RANKS = 255, PST_FAST_LEAVES = 256 };

/* A column holds one byte a row. Of an ordering: the rank of x among 255 thresholds of its feature, those from `from` on; features with
 * more have several columns, and in each the rank is cut off at both ends. Of a set: 0 = member, 255 = not. */
typedef struct pst_fast_column {
    int32_t from;
    bool missing_yes, zero_missing;
    const uint32_t *set; /* words of a set; NULL = an ordering */
} pst_fast_column;

/* Columns of one feature stand together. */
typedef struct pst_fast_feature {
    int32_t feature;
    int steps; /* thresholds are padded to 2^steps - 1 with infinity */
    const double *t;
    int32_t column, n_columns;
    int32_t set_bits; /* every set of this feature has room for one more than this; numbers beyond are cut to it; 0 = no sets */
    bool half_open;   /* sets take x > -1, not x >= 0 */
} pst_fast_feature;

typedef struct pst_fast_tree {
    int32_t root, depth; /* root: in the short nodes where there are such, else in the forest (~leaf) */
    bool walked;         /* not ranked: walked down row by row */
    int32_t code, n;     /* ranked: splits */
    int32_t ids;         /* ranked: leaf number → leaf of the forest, for lines */
    int64_t table;       /* leaf weights, target-major, n + 1 each */
    int32_t n_targets, targets;
} pst_fast_tree;

/* For walking: a leaf leads to itself, so a walk takes as many steps as its tree is deep, without asking. */
typedef struct pst_walk_f {
    float t;
    uint32_t feature; /* bit 31: missing goes to yes */
    int32_t yes, no;
} pst_walk_f;

typedef struct pst_walk_d {
    double t;
    uint32_t feature;
    int32_t yes, no;
} pst_walk_d;

typedef struct pst_forest_fast {
    const pst_cpu_kernels *kernels;
    pst_walk_f *walk_f; /* the forest's nodes, then its leaves; one of the two, by forest->wide; NULL when a split is no plain ordering */
    pst_walk_d *walk_d;
    pst_fast_feature *features;
    int32_t n_features;
    pst_fast_column *columns;
    int32_t n_columns;
    pst_tree_code *code;
    pst_fast_tree *trees;
    int32_t *ids;
    float *tables_f; /* one of the two: float where every weight is a float */
    double *tables_d;
    int32_t *targets;
    double *values; /* by leaf, where each leaf has one constant for the only target; NULL otherwise */
    int32_t nodes_max, n_ranked, n_sets;
} pst_forest_fast;

#endif
