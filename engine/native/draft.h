/* draft.h - a forest while a model file is read: growing lists, checked tree by tree, moved into the model's zone at the end.
 * @thread any, one owner. */
#ifndef PST_ENGINE_NATIVE_DRAFT_H
#define PST_ENGINE_NATIVE_DRAFT_H

#include "engine/ops/tree.h"

typedef struct eng_draft {
    pst_err *err;
    size_t bytes, bytes_max; /* of all lists */
    eng_tree_node *nodes;
    size_t n_nodes, cap_nodes;
    eng_tree_leaf *leaves;
    size_t n_leaves, cap_leaves;
    eng_tree_weight *weights;
    size_t n_weights, cap_weights;
    uint32_t *bits;
    size_t n_bits, cap_bits;
    eng_tree_line *lines; /* as many as leaves, or none */
    size_t n_lines, cap_lines;
    int32_t *line_features;
    size_t n_line_features, cap_line_features;
    double *line_factors;
    size_t n_line_factors, cap_line_factors;
    int32_t *roots;
    size_t n_trees, cap_trees, trees_max;
    size_t *weight_at; /* by tree: where its weights begin; one more than trees */
    size_t n_weight_at, cap_weight_at;
    int32_t *seen; /* of the check of one tree */
    size_t cap_seen;
} eng_draft;

void eng_draft_init(eng_draft *d, const pst_model_limits *limits, pst_err *err);
void eng_draft_done(eng_draft *d);
/* An error of class DATA; returns code. */
int eng_draft_fail(eng_draft *d, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Makes room for n more elements of one list; `elem` bytes each. */
int eng_draft_grow(eng_draft *d, void *list, size_t n, size_t *cap, size_t more, size_t elem);

/* One tree. Its nodes have just been appended with children numbered inside the tree (node, or ~leaf), its leaves and weights too; the
 * first node is the root, no node means one leaf. Checks that every node and leaf is reached from the root exactly once, then renumbers
 * children into the whole. n_nodes, n_leaves: how many were appended. */
int eng_draft_tree(eng_draft *d, size_t n_nodes, size_t n_leaves);
/* A set of whole numbers as words of bits: words zeroed words for the node. */
int eng_draft_bits(eng_draft *d, size_t words, eng_tree_node *node);
/* The finished forest; its lists move to zone. n_targets and what is not lists are the caller's. */
void eng_draft_finish(eng_draft *d, eng_zone *zone, eng_forest *f);

#endif
