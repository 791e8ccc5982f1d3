/* tree_fast_run.c - running the vector form of a forest: ranks of 64 rows, tree after tree, sums in tree order; see tree_fast.h. */
#include "engine/ops/tree_fast.h"

#include <math.h>
#include <string.h>

enum { ROWS = PST_FAST_ROWS };

/* One row down all trees, eight trees at a time so that their loads overlap. leaf: n_trees. */
#define WALK(NAME, T)                                                                                                            \
    static void walk_row_##NAME(const pst_forest *f, const T *x, int32_t *leaf)                                                  \
    {                                                                                                                            \
        enum { AT_ONCE = 8 };                                                                                                    \
        const pst_forest_fast *q = f->fast;                                                                                      \
        for (int32_t t = 0; t < f->n_trees; t += AT_ONCE) {                                                                      \
            int n = f->n_trees - t < AT_ONCE ? f->n_trees - t : AT_ONCE, depth = 0;                                              \
            int32_t at[AT_ONCE];                                                                                                 \
            for (int i = 0; i < AT_ONCE; i++) {                                                                                  \
                const pst_fast_tree *tree = &q->trees[i < n ? t + i : t];                                                        \
                at[i] = tree->root;                                                                                              \
                depth = tree->depth > depth ? tree->depth : depth;                                                               \
            }                                                                                                                    \
            for (int d = 0; d < depth; d++)                                                                                      \
                for (int i = 0; i < AT_ONCE; i++) {                                                                              \
                    const pst_walk_##NAME *w = &q->walk_##NAME[at[i]];                                                           \
                    T v = x[w->feature & INT32_MAX];                                                                             \
                    at[i] = (v <= w->t) | ((v != v) & (w->feature >> 31)) ? w->yes : w->no;                                      \
                }                                                                                                                \
            for (int i = 0; i < n; i++)                                                                                          \
                leaf[t + i] = at[i] - f->n_nodes;                                                                                \
        }                                                                                                                        \
    }                                                                                                                            \
    /* n ≤ 64 rows down one tree, eight rows at a time: its nodes stay in the cache. */                                        \
    static void walk_tree_##NAME(const pst_forest *f, const pst_fast_tree *tree, const T *x, int64_t cols, int n, int32_t *leaf) \
    {                                                                                                                            \
        enum { AT_ONCE = 8 };                                                                                                    \
        const pst_forest_fast *q = f->fast;                                                                                      \
        for (int r = 0; r < n; r += AT_ONCE) {                                                                                   \
            const T *row[AT_ONCE];                                                                                               \
            int32_t at[AT_ONCE];                                                                                                 \
            for (int i = 0; i < AT_ONCE; i++) {                                                                                  \
                row[i] = x + (r + i < n ? r + i : r) * cols;                                                                     \
                at[i] = tree->root;                                                                                              \
            }                                                                                                                    \
            for (int d = 0; d < tree->depth; d++)                                                                                \
                for (int i = 0; i < AT_ONCE; i++) {                                                                              \
                    const pst_walk_##NAME *w = &q->walk_##NAME[at[i]];                                                           \
                    T v = row[i][w->feature & INT32_MAX];                                                                        \
                    at[i] = (v <= w->t) | ((v != v) & (w->feature >> 31)) ? w->yes : w->no;                                      \
                }                                                                                                                \
            for (int i = 0; i < AT_ONCE; i++)                                                                                    \
                leaf[r + i] = at[i] - f->n_nodes;                                                                                \
        }                                                                                                                        \
    }                                                                                                                            \
    static void gather_##NAME(const T *x, int64_t cols, int n, double *to)                                                       \
    {                                                                                                                            \
        for (int r = 0; r < ROWS; r++)                                                                                           \
            to[r] = (double)x[(r < n ? r : n - 1) * cols];                                                                       \
    }
WALK(f, float)
WALK(d, double)

/* What runs needs besides the forest. x: at the rows at hand. */
typedef struct run {
    const pst_forest *f;
    const pst_forest_fast *q;
    int64_t cols;
    int8_t *ranks, *work;
    double *acc; /* sums of a block, 64 a target; float32 sums in acc_f */
    float *acc_f;
    int32_t *leaf; /* max of n_trees and 64 */
} run;

static const void *row_at(const run *k, const void *x, int64_t r)
{
    return k->f->wide ? (const void *)((const double *)x + r * k->cols) : (const void *)((const float *)x + r * k->cols);
}

/* Ranks of one feature: how many thresholds lie below x, by a search without branches, eight rows side by side. */
static void rank_rows(const pst_fast_feature *k, const double *v, uint16_t *rank)
{
    const double *t = k->t;
    for (int r = 0; r < ROWS; r += 8) {
        int at[8] = {0};
        for (int half = k->steps ? 1 << (k->steps - 1) : 0; half; half >>= 1)
            for (int i = 0; i < 8; i++)
                at[i] += t[at[i] + half - 1] < v[r + i] ? half : 0;
        for (int i = 0; i < 8; i++)
            rank[r + i] = (uint16_t)at[i];
    }
}

/* Whole parts as places in sets; what no set can hold goes to the place behind the last. */
static void set_places(const pst_fast_feature *k, const double *v, int32_t *place)
{
    for (int r = 0; r < ROWS; r++) {
        bool in = (k->half_open ? v[r] > -1 : v[r] >= 0) && v[r] < (double)k->set_bits;
        place[r] = in ? (int32_t)v[r] : k->set_bits;
    }
}

static void fill_column(const pst_fast_column *c, const double *v, const uint16_t *rank, const int32_t *place, int8_t *to)
{
    uint8_t missing[ROWS];
    unsigned any = 0;
    for (int r = 0; r < ROWS; r++) {
        missing[r] = (v[r] != v[r]) | (c->zero_missing & (fabs(v[r]) <= PST_TREE_ZERO));
        any |= missing[r];
    }
    if (c->set)
        for (int r = 0; r < ROWS; r++)
            to[r] = c->set[place[r] >> 5] >> (place[r] & 31) & 1 ? -128 : 127;
    else
        for (int r = 0; r < ROWS; r++) {
            int k = (int)rank[r] - c->from;
            to[r] = (int8_t)((k < 0 ? 0 : k > 255 ? 255 : k) - 128);
        }
    int8_t side = c->missing_yes ? -128 : 127;
    for (int r = 0; any && r < ROWS; r++)
        to[r] = missing[r] ? side : to[r];
}

static void fill_columns(const run *k, const void *x, int n)
{
    double v[ROWS];
    uint16_t rank[ROWS];
    int32_t place[ROWS];
    for (int32_t i = 0; i < k->q->n_features; i++) {
        const pst_fast_feature *ft = &k->q->features[i];
        if (k->f->wide)
            gather_d((const double *)x + ft->feature, k->cols, n, v);
        else
            gather_f((const float *)x + ft->feature, k->cols, n, v);
        if (ft->t)
            rank_rows(ft, v, rank);
        if (ft->set_bits)
            set_places(ft, v, place);
        for (int32_t c = ft->column; c < ft->column + ft->n_columns; c++)
            fill_column(&k->q->columns[c], v, rank, place, k->ranks + (size_t)c * ROWS);
    }
}

static double weight_of(const run *k, int32_t leaf, const pst_tree_weight *w, const void *row)
{
    if (!k->f->lines)
        return w->value;
    return k->f->wide ? pst_forest_line_d(k->f, leaf, row) : pst_forest_line_f(k->f, leaf, row);
}

/* Adds what a leaf gives to one row's sums. */
static void add_leaf(const run *k, int32_t leaf, const void *row, double *to, uint8_t *has)
{
    const pst_tree_leaf *l = &k->f->leaves[leaf];
    for (int32_t i = 0; i < l->n; i++) {
        const pst_tree_weight *w = &k->f->weights[l->at + i];
        double v = weight_of(k, leaf, w, row), *sum = &to[w->target];
        *sum = k->f->start ? (double)((float)*sum + (float)v) : *sum + v;
        if (has)
            has[w->target] = 1;
    }
}

/* The same in a block, where the sums of a target stand together. */
static void add_leaf_at(const run *k, int32_t leaf, const void *row, int r, uint8_t *has)
{
    const pst_tree_leaf *l = &k->f->leaves[leaf];
    for (int32_t i = 0; i < l->n; i++) {
        const pst_tree_weight *w = &k->f->weights[l->at + i];
        double v = weight_of(k, leaf, w, row);
        if (k->f->start)
            k->acc_f[w->target * ROWS + r] += (float)v;
        else
            k->acc[w->target * ROWS + r] += v;
        if (has)
            has[w->target] = 1;
    }
}

/* One tree's weights by leaf number, for 64 rows. Rows beyond n have leaf numbers too: what they get is never read. */
static void add_table(const run *k, const pst_fast_tree *tree, const uint8_t *leaf)
{
    for (int32_t i = 0; i < tree->n_targets; i++) {
        size_t target = (size_t)k->q->targets[tree->targets + i];
        int64_t at = tree->table + (int64_t)i * (tree->n + 1);
        const float *tf = k->q->tables_f ? k->q->tables_f + at : NULL;
        const double *td = k->q->tables_d ? k->q->tables_d + at : NULL;
        double *to = k->acc ? k->acc + target * ROWS : NULL;
        float *to_f = k->acc_f ? k->acc_f + target * ROWS : NULL;
        for (int r = 0; to_f && r < ROWS; r++)
            to_f[r] += tf ? tf[leaf[r]] : (float)td[leaf[r]];
        if (to && tf)
            for (int r = 0; r < ROWS; r++)
                to[r] += (double)tf[leaf[r]];
        else if (to)
            for (int r = 0; r < ROWS; r++)
                to[r] += td[leaf[r]];
    }
}

static void walk_tree(const run *k, const pst_fast_tree *tree, const void *x, int n, uint8_t *has)
{
    if (k->q->walk_d)
        walk_tree_d(k->f, tree, x, k->cols, n, k->leaf);
    else if (k->q->walk_f)
        walk_tree_f(k->f, tree, x, k->cols, n, k->leaf);
    else
        for (int r = 0; r < n; r++) {
            const void *row = row_at(k, x, r);
            k->leaf[r] = k->f->wide ? pst_forest_leaf_d(k->f, tree->root, row) : pst_forest_leaf_f(k->f, tree->root, row);
        }
    for (int r = 0; r < n; r++)
        add_leaf_at(k, k->leaf[r], row_at(k, x, r), r, has ? has + r * k->f->n_targets : NULL);
}

/* Up to 64 rows, tree after tree. */
static void run_block(const run *k, const void *x, int n, double *out, uint8_t *has)
{
    const pst_forest *f = k->f;
    int nt = f->n_targets;
    if (k->q->n_ranked)
        fill_columns(k, x, n);
    for (int i = 0; k->acc_f && i < nt; i++)
        for (int r = 0; r < ROWS; r++)
            k->acc_f[i * ROWS + r] = f->start[i];
    if (k->acc)
        memset(k->acc, 0, (size_t)nt * ROWS * sizeof *k->acc);
    for (int32_t t = 0; t < f->n_trees; t++) {
        const pst_fast_tree *tree = &k->q->trees[t];
        _Alignas(64) uint8_t leaf[ROWS] = {0};
        if (tree->walked) {
            walk_tree(k, tree, x, n, has);
            continue;
        }
        if (tree->n)
            k->q->kernels->tree(k->q->code + tree->code, tree->n, k->ranks, k->work, leaf);
        if (!f->lines)
            add_table(k, tree, leaf);
        for (int r = 0; f->lines && r < n; r++)
            add_leaf_at(k, k->q->ids[tree->ids + leaf[r]], row_at(k, x, r), r, NULL);
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < nt; i++)
            out[r * nt + i] = k->acc_f ? (double)k->acc_f[i * ROWS + r] : k->acc[i * ROWS + r];
}

static void run_row(const run *k, const void *x, double *out, uint8_t *has)
{
    const pst_forest *f = k->f;
    for (int i = 0; i < f->n_targets; i++)
        out[i] = f->start ? (double)f->start[i] : 0;
    if (has)
        memset(has, 0, (size_t)f->n_targets);
    if (k->q->walk_d)
        walk_row_d(f, x, k->leaf);
    else if (k->q->walk_f)
        walk_row_f(f, x, k->leaf);
    else
        for (int32_t t = 0; t < f->n_trees; t++)
            k->leaf[t] = f->wide ? pst_forest_leaf_d(f, f->roots[t], x) : pst_forest_leaf_f(f, f->roots[t], x);
    if (!k->q->values) {
        for (int32_t t = 0; t < f->n_trees; t++)
            add_leaf(k, k->leaf[t], x, out, has);
        return;
    }
    double sum = 0;
    float sum_f = (float)out[0];
    for (int32_t t = 0; t < f->n_trees && f->start; t++)
        sum_f += (float)k->q->values[k->leaf[t]];
    for (int32_t t = 0; t < f->n_trees && !f->start; t++)
        sum += k->q->values[k->leaf[t]];
    out[0] = f->start ? (double)sum_f : sum;
    if (has)
        has[0] = f->n_trees > 0;
}

/* A ranked tree gives every row the same targets; walked ones mark theirs row by row. */
static void mark_targets(const run *k, int64_t rows, uint8_t *has)
{
    const pst_forest *f = k->f;
    size_t nt = (size_t)f->n_targets;
    memset(has, 0, (size_t)rows * nt);
    for (int32_t t = 0; t < f->n_trees; t++)
        for (int32_t i = 0; i < k->q->trees[t].n_targets; i++)
            has[k->q->targets[k->q->trees[t].targets + i]] = 1;
    for (int64_t r = 1; r < rows; r++)
        memcpy(has + (size_t)r * nt, has, nt);
}

int pst_forest_fast_run(pst_op_ctx *c, const pst_forest *f, const void *x, int64_t rows, int64_t cols, double *out, uint8_t *has)
{
    const pst_forest_fast *q = f->fast;
    run k = {.f = f, .q = q, .cols = cols};
    int nt = f->n_targets;
    int64_t at = 0;
    k.leaf = pst_scratch(c, (size_t)(f->n_trees > ROWS ? f->n_trees : ROWS) * sizeof *k.leaf);
    if (!k.leaf)
        return PST_ELIMIT;
    if (rows >= PST_FOREST_RANKED_ROWS) {
        k.ranks = pst_scratch(c, (size_t)q->n_columns * ROWS + 64);
        k.work = pst_scratch(c, (size_t)(256 + q->nodes_max) * ROWS);
        void *acc = pst_scratch(c, (size_t)nt * ROWS * sizeof *k.acc);
        if (!k.ranks || !k.work || !acc)
            return PST_ELIMIT;
        k.acc_f = f->start ? acc : NULL;
        k.acc = f->start ? NULL : acc;
        for (int i = 0; i < 256; i++)
            memset(k.work + i * ROWS, i, ROWS);
        if (has)
            mark_targets(&k, rows, has);
        for (; rows - at >= PST_FOREST_RANKED_ROWS; at += ROWS) {
            int n = rows - at < ROWS ? (int)(rows - at) : ROWS;
            run_block(&k, row_at(&k, x, at), n, out + at * nt, has ? has + at * nt : NULL);
        }
    }
    for (; at < rows; at++)
        run_row(&k, row_at(&k, x, at), out + at * nt, has ? has + at * nt : NULL);
    for (int64_t i = 0; i < rows * nt && f->aggregate == PST_AGG_AVERAGE && f->n_trees; i++)
        out[i] /= f->n_trees;
    return 0;
}
