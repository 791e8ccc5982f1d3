/* tree_fast_run.c - running the vector form of a forest: ranks of 64 rows, tree after tree, sums in tree order; see tree_fast.h. */
#include "engine/ops/tree_fast.h"

#include <math.h>
#include <string.h>

enum { ROWS = ENG_FAST_ROWS };

/* What runs needs besides the forest. x: at the rows at hand. */
typedef struct run {
    const eng_forest *f;
    const eng_forest_fast *q;
    int64_t cols;
    int8_t *ranks, *work;
    double *acc; /* sums of a block, 64 a target; float32 sums in acc_f */
    float *acc_f;
    int32_t *leaf; /* max of n_trees and 64 */
    void *walk;    /* rows as the walk wants them; NULL = as they are */
} run;

static const void *row_at(const run *k, const void *x, int64_t r)
{
    return k->f->wide ? (const void *)((const double *)x + r * k->cols) : (const void *)((const float *)x + r * k->cols);
}

/* Whole parts as places in sets; what no set can hold goes to the place behind the last. */
static int32_t set_place(const eng_fast_feature *k, double v)
{
    bool in = (k->half_open ? v > -1 : v >= 0) && v < (double)k->set_bits;
    return in ? (int32_t)v : k->set_bits;
}

/* Columns of one feature, whose 64 numbers are v. */
#define FILL(NAME, T)                                                                                            \
    static void fill_##NAME(const run *k, const eng_fast_feature *ft, const T *x, int n)                         \
    {                                                                                                            \
        T v[ROWS];                                                                                               \
        int32_t rank[ROWS], place[ROWS];                                                                         \
        bool nan = true;                                                                                         \
        for (int r = 0; r < ROWS; r++)                                                                           \
            v[r] = x[(r < n ? r : n - 1) * k->cols];                                                             \
        if (ft->table.t##NAME)                                                                                   \
            nan = k->q->kernels->rank_##NAME(&ft->table, v, rank);                                               \
        for (int r = 0; ft->set_bits && r < ROWS; r++)                                                           \
            place[r] = set_place(ft, (double)v[r]);                                                              \
        for (int32_t i = ft->column; i < ft->column + ft->n_columns; i++) {                                      \
            const eng_fast_column *c = &k->q->columns[i];                                                        \
            int8_t *to = k->ranks + (size_t)i * ROWS, side = c->missing_yes ? -128 : 127;                        \
            if (!c->set)                                                                                         \
                k->q->kernels->rank_bytes(rank, c->from, to);                                                    \
            for (int r = 0; c->set && r < ROWS; r++)                                                             \
                to[r] = c->set[place[r] >> 5] >> (place[r] & 31) & 1 ? -128 : 127;                               \
            for (int r = 0; (nan || c->zero_missing) && r < ROWS; r++)                                           \
                to[r] = v[r] != v[r] || (c->zero_missing && fabs((double)v[r]) <= ENG_TREE_ZERO) ? side : to[r]; \
        }                                                                                                        \
    }
FILL(f, float)
FILL(d, double)

static void fill_columns(const run *k, const void *x, int n)
{
    for (int32_t i = 0; i < k->q->n_features; i++) {
        const eng_fast_feature *ft = &k->q->features[i];
        if (k->f->wide)
            fill_d(k, ft, (const double *)x + ft->feature, n);
        else
            fill_f(k, ft, (const float *)x + ft->feature, n);
    }
}

static double weight_of(const run *k, int32_t leaf, const eng_tree_weight *w, const void *row)
{
    if (!k->f->lines)
        return w->value;
    return k->f->wide ? eng_forest_line_d(k->f, leaf, row) : eng_forest_line_f(k->f, leaf, row);
}

/* Adds what a leaf gives to one row's sums. */
static void add_leaf(const run *k, int32_t leaf, const void *row, double *to, uint8_t *has)
{
    const eng_tree_leaf *l = &k->f->leaves[leaf];
    for (int32_t i = 0; i < l->n; i++) {
        const eng_tree_weight *w = &k->f->weights[l->at + i];
        double v = weight_of(k, leaf, w, row), *sum = &to[w->target];
        *sum = k->f->start ? (double)((float)*sum + (float)v) : *sum + v;
        if (has)
            has[w->target] = 1;
    }
}

/* The same in a block, where the sums of a target stand together. */
static void add_leaf_at(const run *k, int32_t leaf, const void *row, int r, uint8_t *has)
{
    const eng_tree_leaf *l = &k->f->leaves[leaf];
    for (int32_t i = 0; i < l->n; i++) {
        const eng_tree_weight *w = &k->f->weights[l->at + i];
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
static void add_table(const run *k, const eng_fast_tree *tree, const uint8_t *leaf)
{
    for (int32_t i = 0; i < tree->n_targets; i++) {
        size_t target = (size_t)k->q->targets[tree->targets + i];
        int64_t at = tree->table + (int64_t)i * tree->n_leaves;
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

/* walk: the rows as the walk wants them. */
static void walk_tree(const run *k, const eng_fast_tree *tree, const void *x, const void *walk, int64_t stride, int n, uint8_t *has)
{
    if (k->q->walk_leaf)
        eng_fast_walk_tree(k->q, tree, walk, stride, n, k->leaf);
    else
        for (int r = 0; r < n; r++) {
            const void *row = row_at(k, x, r);
            k->leaf[r] = k->f->wide ? eng_forest_leaf_d(k->f, tree->root, row) : eng_forest_leaf_f(k->f, tree->root, row);
        }
    if (k->q->values) {
        size_t at = (size_t)k->q->values_target * ROWS;
        for (int r = 0; k->acc_f && r < n; r++)
            k->acc_f[at + (size_t)r] += (float)k->q->values[k->leaf[r]];
        for (int r = 0; k->acc && r < n; r++)
            k->acc[at + (size_t)r] += k->q->values[k->leaf[r]];
    }
    for (int r = 0; r < n && !k->q->values; r++)
        add_leaf_at(k, k->leaf[r], row_at(k, x, r), r, has ? has + r * k->f->n_targets : NULL);
}

/* What the walk compares of n rows, and how far apart they are. */
static const void *walk_rows(const run *k, const void *x, int n, int64_t *ret_stride)
{
    *ret_stride = k->cols;
    if (!k->walk)
        return x;
    *ret_stride = 2 * k->q->n_walk;
    eng_fast_walk_rows(k->f, x, k->cols, n, k->walk);
    return k->walk;
}

/* Up to 64 rows, tree after tree. */
static void run_block(const run *k, const void *x, int n, double *out, uint8_t *has)
{
    const eng_forest *f = k->f;
    int nt = f->n_targets;
    if (k->q->n_ranked)
        fill_columns(k, x, n);
    for (int i = 0; k->acc_f && i < nt; i++)
        for (int r = 0; r < ROWS; r++)
            k->acc_f[i * ROWS + r] = f->start[i];
    if (k->acc)
        memset(k->acc, 0, (size_t)nt * ROWS * sizeof *k->acc);
    int64_t stride = 0;
    const void *walk = k->q->n_ranked < f->n_trees ? walk_rows(k, x, n, &stride) : NULL;
    for (int32_t t = 0; t < f->n_trees; t++) {
        const eng_fast_tree *tree = &k->q->trees[t];
        _Alignas(64) uint8_t leaf[ROWS] = {0};
        if (tree->walked) {
            walk_tree(k, tree, x, walk, stride, n, has);
            continue;
        }
        if (tree->split)
            k->q->kernels->tree(&tree->program, k->ranks, k->work, leaf);
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
    const eng_forest *f = k->f;
    for (int i = 0; i < f->n_targets; i++)
        out[i] = f->start ? (double)f->start[i] : 0;
    if (has)
        memset(has, 0, (size_t)f->n_targets);
    int64_t stride;
    const void *walk = walk_rows(k, x, 1, &stride);
    if (k->q->walk_leaf && k->q->values) {
        int target = k->q->values_target;
        out[target] = eng_fast_walk_sum(f, walk, out[target]);
        if (has)
            has[target] = f->n_trees > 0;
        return;
    }
    if (k->q->walk_leaf)
        eng_fast_walk_row(f, walk, k->leaf);
    else
        for (int32_t t = 0; t < f->n_trees; t++)
            k->leaf[t] = f->wide ? eng_forest_leaf_d(f, f->roots[t], x) : eng_forest_leaf_f(f, f->roots[t], x);
    for (int32_t t = 0; t < f->n_trees; t++)
        add_leaf(k, k->leaf[t], x, out, has);
}

/* A ranked tree gives every row the same targets; walked ones mark theirs row by row. */
static void mark_targets(const run *k, int64_t rows, uint8_t *has)
{
    const eng_forest *f = k->f;
    size_t nt = (size_t)f->n_targets;
    memset(has, 0, (size_t)rows * nt);
    for (int32_t t = 0; t < f->n_trees; t++)
        for (int32_t i = 0; i < k->q->trees[t].n_targets; i++)
            has[k->q->targets[k->q->trees[t].targets + i]] = 1;
    if (k->q->values && f->n_trees)
        has[k->q->values_target] = 1;
    for (int64_t r = 1; r < rows; r++)
        memcpy(has + (size_t)r * nt, has, nt);
}

typedef struct shared_blocks {
    const run *runs; /* one for each worker */
    const void *x;
    int64_t rows, blocks;
    double *out;
    uint8_t *has;
} shared_blocks;

enum { BLOCKS_OF_PART = 4 };

static void some_blocks(void *arg, int64_t part, int worker)
{
    const shared_blocks *s = arg;
    const run *k = &s->runs[worker];
    int nt = k->f->n_targets;
    for (int64_t i = part * BLOCKS_OF_PART; i < s->blocks && i < (part + 1) * BLOCKS_OF_PART; i++) {
        int64_t at = i * ROWS;
        run_block(k, row_at(k, s->x, at), s->rows - at < ROWS ? (int)(s->rows - at) : ROWS, s->out + at * nt,
                  s->has ? s->has + at * nt : NULL);
    }
}

/* Room of one worker. */
static int run_make(eng_op_ctx *c, const eng_forest *f, int64_t rows, int64_t cols, run *k)
{
    const eng_forest_fast *q = f->fast;
    *k = (run){.f = f, .q = q, .cols = cols};
    k->leaf = eng_op_scratch(c, (size_t)(f->n_trees > ROWS ? f->n_trees : ROWS) * sizeof *k->leaf);
    bool copied = q->walk_features != NULL;
    if (copied)
        k->walk = eng_op_scratch(c, 2 * (size_t)q->n_walk * (rows < ENG_FOREST_RANKED_ROWS ? 1 : ROWS) *
                                        (f->wide ? sizeof(double) : sizeof(float)));
    if (!k->leaf || (copied && !k->walk))
        return PST_ELIMIT;
    if (rows < ENG_FOREST_RANKED_ROWS)
        return 0;
    k->ranks = eng_op_scratch(c, (size_t)q->n_columns * ROWS + 64);
    k->work = eng_op_scratch(c, (size_t)(256 + q->places_max) * ROWS);
    void *acc = eng_op_scratch(c, (size_t)f->n_targets * ROWS * sizeof *k->acc);
    if (!k->ranks || !k->work || !acc)
        return PST_ELIMIT;
    k->acc_f = f->start ? acc : NULL;
    k->acc = f->start ? NULL : acc;
    for (int i = 0; i < 256; i++)
        memset(k->work + i * ROWS, i, ROWS);
    return 0;
}

/* Blocks of rows by ranked comparison as long as enough rows are left, the rest row by row. All scratch is asked for before: behind it
 * nothing fails but a run that is to end. */
int eng_forest_fast_run(eng_op_ctx *c, const eng_forest *f, const void *x, int64_t rows, int64_t cols, double *out, uint8_t *has)
{
    enum { TREE_PRODUCTS = 8 }; /* a tree of a row takes as long as so many multiplications, about */
    int nt = f->n_targets, rc = 0;
    int64_t blocks = rows >= ENG_FOREST_RANKED_ROWS ? (rows - ENG_FOREST_RANKED_ROWS) / ROWS + 1 : 0;
    double products = blocks > BLOCKS_OF_PART ? (double)rows * f->n_trees * TREE_PRODUCTS : 0;
    int workers = eng_op_workers(c, products);
    run *k = eng_op_scratch(c, (size_t)workers * sizeof *k);
    if (!k)
        return PST_ELIMIT;
    for (int i = 0; i < workers; i++)
        if ((rc = run_make(c, f, rows, cols, &k[i])) < 0)
            return rc;
    if (has && blocks)
        mark_targets(k, rows, has);
    shared_blocks s = {.runs = k, .x = x, .rows = rows, .blocks = blocks, .out = out, .has = has};
    if ((rc = eng_op_parts(c, (blocks + BLOCKS_OF_PART - 1) / BLOCKS_OF_PART, products, some_blocks, &s)) < 0)
        return rc;
    for (int64_t at = blocks * ROWS; at < rows; at++)
        run_row(k, row_at(k, x, at), out + at * nt, has ? has + at * nt : NULL);
    for (int64_t i = 0; i < rows * nt && f->aggregate == ENG_AGG_AVERAGE && f->n_trees; i++)
        out[i] /= f->n_trees;
    return 0;
}
