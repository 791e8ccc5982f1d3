/* draft.c - lists that grow while a file is read, within one budget of bytes for all: sizes in a file are claims. A tree is checked when
 * it is complete, since nodes may name children that come later; only then may a kernel walk it without looking. */
#include "engine/native/draft.h"

#include "engine/heap.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void eng_draft_init(eng_draft *d, const pst_model_limits *limits, pst_err *err)
{
    *d = (eng_draft){.err = err, .bytes_max = limits->tensor_bytes_max, .trees_max = limits->nodes_max};
}

void eng_draft_done(eng_draft *d)
{
    eng_heap_free(d->nodes);
    eng_heap_free(d->leaves);
    eng_heap_free(d->weights);
    eng_heap_free(d->bits);
    eng_heap_free(d->lines);
    eng_heap_free(d->line_features);
    eng_heap_free(d->line_factors);
    eng_heap_free(d->roots);
    eng_heap_free(d->weight_at);
    eng_heap_free(d->seen);
    *d = (eng_draft){0};
}

int eng_draft_fail(eng_draft *d, int code, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_err_set(d->err, code, PST_CLASS_DATA, "model", 0, "%s", text);
}

int eng_draft_grow(eng_draft *d, void *list, size_t n, size_t *cap, size_t more, size_t elem)
{
    void **at = list;
    PST_ASSERT(n <= *cap && elem);
    if (more <= *cap - n)
        return 0;
    size_t was = *cap;
    if (n + more > INT32_MAX / 4 || d->bytes + (n + more - *cap) * elem > d->bytes_max)
        return eng_draft_fail(d, PST_ELIMIT, "tree %zu: the trees need more than %zu bytes (tensor_bytes_max)", d->n_trees, d->bytes_max);
    *at = eng_heap_room(*at, n, more, cap, elem);
    d->bytes += (*cap - was) * elem;
    return 0;
}

int eng_draft_bits(eng_draft *d, size_t words, eng_tree_node *node)
{
    int rc = eng_draft_grow(d, &d->bits, d->n_bits, &d->cap_bits, words, sizeof *d->bits);
    if (rc < 0)
        return rc;
    if (words)
        memset(d->bits + d->n_bits, 0, words * sizeof *d->bits);
    node->set_at = (int32_t)d->n_bits;
    node->set_n = (int32_t)words;
    d->n_bits += words;
    return 0;
}

/* Marks each node and leaf when something leads to it. Every one but the root has exactly one parent and the root has none: with one
 * parent each, a cycle could only hang together without the root, and then the walk from the root does not reach all. */
static int check_tree(eng_draft *d, size_t n_nodes, size_t n_leaves)
{
    size_t tree = d->n_trees, need = n_nodes + n_leaves + n_nodes + 1;
    int rc = eng_draft_grow(d, &d->seen, 0, &d->cap_seen, need, sizeof *d->seen);
    if (rc < 0)
        return rc;
    int32_t *leaf_seen = d->seen + n_nodes, *stack = leaf_seen + n_leaves;
    size_t top = 0, reached = 0, leaves = 0;
    PST_ASSERT(n_nodes <= d->n_nodes && n_leaves <= d->n_leaves); /* they are the last ones of the draft */
    memset(d->seen, 0, (n_nodes + n_leaves) * sizeof *d->seen);
    if (!n_nodes)
        return n_leaves == 1 ? 0 : eng_draft_fail(d, PST_EPARSE, "tree %zu: %zu leaves and no split", tree, n_leaves);
    const eng_tree_node *nodes = &d->nodes[d->n_nodes - n_nodes];
    d->seen[0] = 1;
    stack[top++] = 0;
    while (top) {
        int32_t at = stack[--top];
        reached++;
        for (int side = 0; side < 2; side++) {
            int32_t to = side ? nodes[at].no : nodes[at].yes;
            if (to >= 0 ? (size_t)to >= n_nodes : (size_t)~to >= n_leaves)
                return eng_draft_fail(d, PST_EPARSE, "tree %zu: node %d leads to %s %d, which is not there", tree, at,
                                      to >= 0 ? "node" : "leaf", to >= 0 ? to : ~to);
            int32_t *seen = to >= 0 ? &d->seen[to] : &leaf_seen[~to];
            if (*seen)
                return eng_draft_fail(d, PST_EPARSE, "tree %zu: %s %d has two parents or stands above itself", tree,
                                      to >= 0 ? "node" : "leaf", to >= 0 ? to : ~to);
            *seen = 1;
            PST_ASSERT(top <= n_nodes); /* each is put there once */
            if (to >= 0)
                stack[top++] = to;
            else
                leaves++;
        }
    }
    if (reached != n_nodes || leaves != n_leaves)
        return eng_draft_fail(d, PST_EPARSE, "tree %zu: %zu of %zu nodes and %zu of %zu leaves hang together with the root", tree, reached,
                              n_nodes, leaves, n_leaves);
    return 0;
}

int eng_draft_tree(eng_draft *d, size_t n_nodes, size_t n_leaves)
{
    int rc = check_tree(d, n_nodes, n_leaves);
    if (rc == 0 && d->n_trees >= d->trees_max)
        rc = eng_draft_fail(d, PST_ELIMIT, "more than %zu trees (nodes_max)", d->trees_max);
    if (rc == 0)
        rc = eng_draft_grow(d, &d->roots, d->n_trees, &d->cap_trees, 1, sizeof *d->roots);
    if (rc == 0)
        rc = eng_draft_grow(d, &d->weight_at, d->n_weight_at, &d->cap_weight_at, 2, sizeof *d->weight_at);
    if (rc < 0)
        return rc;
    int32_t node0 = (int32_t)(d->n_nodes - n_nodes), leaf0 = (int32_t)(d->n_leaves - n_leaves);
    for (size_t i = d->n_nodes - n_nodes; i < d->n_nodes; i++) {
        eng_tree_node *n = &d->nodes[i];
        n->yes = n->yes >= 0 ? n->yes + node0 : ~(~n->yes + leaf0);
        n->no = n->no >= 0 ? n->no + node0 : ~(~n->no + leaf0);
    }
    d->roots[d->n_trees++] = n_nodes ? node0 : ~leaf0;
    if (!d->n_weight_at)
        d->weight_at[d->n_weight_at++] = 0;
    d->weight_at[d->n_weight_at++] = d->n_weights;
    return 0;
}

static void *move(eng_zone *zone, const void *from, size_t n, size_t elem)
{
    void *to = eng_zone_alloc(zone, n * elem + 8);
    if (n)
        memcpy(to, from, n * elem);
    return to;
}

void eng_draft_finish(eng_draft *d, eng_zone *zone, eng_forest *f)
{
    PST_ASSERT(!d->n_trees || d->n_weight_at == d->n_trees + 1);
    f->nodes = move(zone, d->nodes, d->n_nodes, sizeof *d->nodes);
    f->n_nodes = (int32_t)d->n_nodes;
    f->leaves = move(zone, d->leaves, d->n_leaves, sizeof *d->leaves);
    f->n_leaves = (int32_t)d->n_leaves;
    f->weights = move(zone, d->weights, d->n_weights, sizeof *d->weights);
    f->n_weights = (int64_t)d->n_weights;
    f->bits = move(zone, d->bits, d->n_bits, sizeof *d->bits);
    if (d->n_lines) {
        PST_ASSERT(d->n_lines == d->n_leaves);
        f->lines = move(zone, d->lines, d->n_lines, sizeof *d->lines);
        f->line_features = move(zone, d->line_features, d->n_line_features, sizeof *d->line_features);
        f->line_factors = move(zone, d->line_factors, d->n_line_factors, sizeof *d->line_factors);
    }
    f->roots = move(zone, d->roots, d->n_trees, sizeof *d->roots);
    f->n_trees = (int32_t)d->n_trees;
    f->aggregate = ENG_AGG_SUM;
    eng_forest_settle(f);
    for (size_t i = 0; i < d->n_line_features; i++)
        f->n_features = d->line_features[i] >= f->n_features ? d->line_features[i] + 1 : f->n_features;
}
