/* trees.h - a forest in the form that a device has: one block of bytes, the image, that goes over in one copy, and a head that says where what
 * is in it. Not installed.
 *
 * A split compares bytes: the rank of a feature's value among the forest's thresholds of it (engine/ops/tree_ranks.c), which is exact. Trees
 * stand one after another, level by level, the two children of a split side by side, so that a step is one read and one addition. A leaf
 * leads to itself: all rows of a warp take as many steps as their tree is deep, and none has to ask. Trees are grouped in chunks that fit
 * shared memory; a tree that is larger than a chunk is a chunk of its own and is read where it is.
 *
 * Sums run in tree order, in double from 0 or in float from `start`, as the forest says: what the CPU computes, bit for bit. But
 * NaN is NaN: which of its bit patterns a sum has is the processor's own. */
#ifndef PST_ENGINE_CUDA_TREES_H
#define PST_ENGINE_CUDA_TREES_H

#include "engine/cuda/part.h"

enum {
    ENG_CUDA_CHUNK_PLACES = 2048, /* of 8 bytes, in shared memory */
    ENG_CUDA_ROWS_MAX = 256,      /* of a block: one a thread */
    ENG_CUDA_ROWS_MIN = 32,
    ENG_CUDA_RANK_BYTES =
        24 << 10, /* in shared memory: columns times rows of a block. With a chunk it stays below 48 KiB, which every device has */
};

/* rank(x) <= rank leads to the place `first`, all else to the next one. Places count from the tree's first. */
typedef struct eng_cuda_place {
    uint16_t column;
    uint8_t rank, unused;
    uint32_t first;
} eng_cuda_place;

typedef struct eng_cuda_tree {
    uint32_t at, depth; /* first place, counted from the forest's first */
} eng_cuda_tree;

typedef struct eng_cuda_chunk {
    uint32_t tree, n_trees, at, n; /* at, n: places; n beyond ENG_CUDA_CHUNK_PLACES: one tree, read where it is */
} eng_cuda_chunk;

typedef struct eng_cuda_feature {
    int32_t feature;
    uint32_t column, n_columns;
    uint32_t thresholds, steps; /* 2^steps - 1 of them, filled up with infinities */
    int32_t set_bits;           /* as eng_fast_feature has them */
    uint32_t half_open;
} eng_cuda_feature;

typedef struct eng_cuda_column {
    int32_t from;
    uint32_t set; /* first word, of sets; ENG_CUDA_NO_SET: an ordering */
    uint8_t missing_yes, zero_missing, unused[2];
} eng_cuda_column;
#define ENG_CUDA_NO_SET UINT32_MAX

typedef struct eng_cuda_leaf {
    uint32_t at, n; /* weights */
} eng_cuda_leaf;

typedef struct eng_cuda_weight {
    double value;
    int64_t target;
} eng_cuda_weight;

typedef struct eng_cuda_forest {
    int32_t n_trees, n_targets, n_columns, rows; /* rows: of a block */
    uint32_t wide, floats, average;              /* inputs are double; sums are float; sums are divided by the number of trees */
    int32_t cols_least;                          /* of a row */
    uint64_t bytes;                              /* of the image */
    eng_cuda_part places, trees, chunks, features, columns, sets;
    eng_cuda_part thresholds;               /* double when wide, else float */
    eng_cuda_part start;                    /* float by target; none: 0 */
    eng_cuda_part values;                   /* double by place: one target and one weight a leaf; none: by leaf_of, leaves and weights */
    eng_cuda_part leaf_of, leaves, weights; /* leaf_of: uint32_t by place */
} eng_cuda_forest;

#ifdef __cplusplus
extern "C" {
#endif
/* x (rows, cols), float or double as wide says, and out (rows, n_targets): sums, as eng_forest_eval_f gives them. All pointers but f are the
 * device's. Returns when the work is queued on the stream: 0, or the runtime's error. */
int eng_cuda_trees_run(const eng_cuda_forest *f, const void *image, const void *x, int64_t rows, int64_t cols, double *out, void *stream);
#ifdef __cplusplus
}
#endif

#endif
