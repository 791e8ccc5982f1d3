/* tree_fast.c - forests on byte-ranked features, 64 rows at a time.
 *
 * Every feature value becomes its rank among the forest's thresholds of that feature: one byte, and x <= t is rank(x) <= rank(t)
 * exactly. Then all splits of a tree are computed for 64 rows, children first, each a byte comparison and a blend of two leaf
 * numbers; what the root gives is the leaf. No branch depends on the data. A missing value is rank 0 where splits send it to
 * yes and rank 255 where they send it to no: a feature used both ways has two columns.
 * After: Lucchese et al., "QuickScorer" (2015), for evaluating all nodes; Asadi et al., VPred (2014), for predication. */
#include "engine/heap.h"
#include "engine/ops/kernels.h"
#include "engine/ops/tree.h"

#include "engine/cpu/isa.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = PST_TREE_ROWS, RANKS_MAX = 255, LEAVES_MAX = 256 };

typedef struct fast_column {
    int32_t feature;
    bool missing_yes;
    int steps; /* thresholds are padded to 2^steps - 1 with infinity */
    const float *t;
    int same_as; /* an earlier column of this feature: only missing values differ; -1 = none */
} fast_column;

typedef struct fast_tree {
    int32_t code, n;                   /* splits */
    int32_t table, n_targets, targets; /* floats of leaf weights: target-major, 256 each */
    int32_t only;                      /* the leaf of a tree without splits */
} fast_tree;

/* For few rows: nodes of 16 bytes, walked down eight trees at a time so that their loads overlap. A leaf leads to itself, so a walk
 * takes as many steps as its tree is deep, without asking. */
typedef struct walk_node {
    float t;
    uint32_t feature; /* bit 31: missing goes to yes */
    int32_t yes, no;
} walk_node;

typedef struct pst_forest_fast {
    walk_node *walk; /* the forest's nodes, then its leaves */
    int32_t *walk_roots;
    int *depths;
    bool ranked; /* the vector form below is there too */
    const pst_cpu_kernels *kernels;
    fast_column *columns;
    int n_columns;
    pst_tree_code *code;
    fast_tree *trees;
    float *tables;
    int32_t *targets;
    int nodes_max;
} pst_forest_fast;

/* The largest float at or below d: x <= d and x <= that are the same for every float x. */
static float float_floor(double d)
{
    float f = (float)d;
    return (double)f > d ? nextafterf(f, -INFINITY) : f;
}

/* A split as "x <= t ? yes : no", whatever its mode says. */
typedef struct split {
    float t;
    int32_t feature, yes, no;
    bool missing_yes;
} split;

static bool as_split(const pst_tree_node *n, split *s)
{
    if (n->mode > PST_TREE_GT || !isfinite(n->split))
        return false;
    bool swap = n->mode == PST_TREE_GTE || n->mode == PST_TREE_GT;
    s->t = float_floor(n->split);
    if ((n->mode == PST_TREE_LT || n->mode == PST_TREE_GTE) && (double)s->t == n->split)
        s->t = nextafterf(s->t, -INFINITY); /* x < t is x <= the float before t */
    s->feature = n->feature;
    s->yes = swap ? n->no : n->yes;
    s->no = swap ? n->yes : n->no;
    s->missing_yes = swap ? !n->missing_yes : n->missing_yes;
    return true;
}

static int by_float(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

typedef struct fast_builder {
    pst_op_ctx *c;
    const pst_forest *f;
    pst_forest_fast *q;
    split *splits;
    float **t; /* by feature: its thresholds, sorted, distinct */
    int *n_t;
    int *column; /* by feature · 2 + missing_yes: column + 1 */
} fast_builder;

static bool find_thresholds(fast_builder *b)
{
    const pst_forest *f = b->f;
    for (int32_t k = 0; k < f->n_features; k++) {
        b->t[k] = pst_heap_alloc(((size_t)b->n_t[k] + 1) * sizeof(float));
        b->n_t[k] = 0;
    }
    for (int32_t i = 0; i < f->n_nodes; i++)
        b->t[b->splits[i].feature][b->n_t[b->splits[i].feature]++] = b->splits[i].t;
    for (int32_t k = 0; k < f->n_features; k++) {
        int n = 0;
        qsort(b->t[k], (size_t)b->n_t[k], sizeof(float), by_float);
        for (int i = 0; i < b->n_t[k]; i++)
            if (!n || b->t[k][i] != b->t[k][n - 1])
                b->t[k][n++] = b->t[k][i];
        b->n_t[k] = n;
        if (n > RANKS_MAX)
            return false;
    }
    return true;
}

static int column_of(fast_builder *b, const split *s)
{
    int *at = &b->column[2 * s->feature + s->missing_yes], *other = &b->column[2 * s->feature + !s->missing_yes];
    if (*at)
        return *at - 1;
    fast_column *k = &b->q->columns[b->q->n_columns++];
    *k = (fast_column){.feature = s->feature, .missing_yes = s->missing_yes, .same_as = *other - 1};
    *at = b->q->n_columns;
    if (*other) {
        k->t = b->q->columns[*other - 1].t;
        k->steps = b->q->columns[*other - 1].steps;
        return *at - 1;
    }
    int n = b->n_t[s->feature];
    while ((1 << k->steps) - 1 < n)
        k->steps++;
    float *t = pst_keep(b->c, ((size_t)1 << k->steps) * sizeof *t);
    for (int i = 0; i < (1 << k->steps) - 1; i++)
        t[i] = i < n ? b->t[s->feature][i] : INFINITY;
    k->t = t;
    return *at - 1;
}

/* Splits of one tree, children first; the position of each is where its result stands. Iterative: trees may be deep. */
static bool add_tree(fast_builder *b, int32_t root, fast_tree *t, int32_t *n_code, int32_t *stack, int32_t *order, int32_t *slot,
                     int32_t *leaf_no)
{
    int32_t n = 0, top = 0, n_leaves = 0;
    t->code = *n_code;
    if (root < 0) {
        t->only = ~root;
        return true;
    }
    stack[top++] = root;
    while (top) { /* parents before children, then read backwards */
        int32_t at = stack[--top];
        order[n++] = at;
        if (n > LEAVES_MAX)
            return false;
        for (int side = 0; side < 2; side++) {
            int32_t to = side ? b->splits[at].no : b->splits[at].yes;
            if (to >= 0)
                stack[top++] = to;
        }
    }
    t->n = n;
    for (int32_t i = 0; i < n; i++)
        slot[order[n - 1 - i]] = 256 + i;
    for (int32_t i = n; i-- > 0;) {
        const split *s = &b->splits[order[i]];
        int32_t to[2] = {s->yes, s->no};
        for (int side = 0; side < 2; side++)
            if (to[side] < 0) {
                if (n_leaves >= LEAVES_MAX)
                    return false;
                leaf_no[n_leaves] = ~to[side];
                to[side] = n_leaves++;
            } else {
                to[side] = slot[to[side]];
            }
        const float *th = b->t[s->feature], *hit = bsearch(&s->t, th, (size_t)b->n_t[s->feature], sizeof *th, by_float);
        b->q->code[(*n_code)++] = (pst_tree_code){
            .rank = (int8_t)((int)(hit - th) - 128), .col = (uint16_t)column_of(b, s), .yes = (uint16_t)to[0], .no = (uint16_t)to[1]};
    }
    b->q->nodes_max = n > b->q->nodes_max ? n : b->q->nodes_max;
    t->only = -1;
    return true;
}

/* Leaf weights as tables by target; weights that are no floats, or a target twice in a leaf, stay with the plain walk. */
static bool add_tables(fast_builder *b, fast_tree *t, const int32_t *leaf_no, int32_t n_leaves, int32_t *n_tables, int32_t *n_targets,
                       int64_t room)
{
    const pst_forest *f = b->f;
    pst_forest_fast *q = b->q;
    t->table = *n_tables;
    t->targets = *n_targets;
    for (int32_t i = 0; i < n_leaves; i++) {
        const pst_tree_leaf *l = &f->leaves[leaf_no[i]];
        for (int32_t k = 0; k < l->n; k++) {
            const pst_tree_weight *w = &f->weights[l->at + k];
            int32_t at = 0;
            while (at < t->n_targets && q->targets[t->targets + at] != w->target)
                at++;
            if (at == t->n_targets) {
                if (*n_tables >= room)
                    return false;
                q->targets[(*n_targets)++] = w->target;
                t->n_targets++;
                (*n_tables)++;
            }
            float *to = &q->tables[(int64_t)(t->table + at) * 256 + i];
            if ((double)(float)w->value != w->value || *to != 0)
                return false;
            *to = (float)w->value;
        }
    }
    for (int32_t i = 0; i < n_leaves; i++) /* which targets got a weight is then the same for every row */
        if (f->leaves[leaf_no[i]].n != t->n_targets)
            return false;
    return true;
}

static int32_t walk_at(const pst_forest *f, int32_t to)
{
    return to >= 0 ? to : f->n_nodes + ~to;
}

static void build_walk(fast_builder *b)
{
    const pst_forest *f = b->f;
    pst_forest_fast *q = b->q;
    int *depth = pst_heap_alloc(((size_t)f->n_nodes + 1) * sizeof *depth);
    int32_t *stack = pst_heap_alloc(((size_t)f->n_nodes + 2) * sizeof *stack);
    q->walk = pst_keep(b->c, ((size_t)f->n_nodes + (size_t)f->n_leaves + 1) * sizeof *q->walk);
    q->walk_roots = pst_keep(b->c, ((size_t)f->n_trees + 1) * sizeof *q->walk_roots);
    q->depths = pst_keep(b->c, ((size_t)f->n_trees + 1) * sizeof *q->depths);
    for (int32_t i = 0; i < f->n_nodes; i++) {
        const split *s = &b->splits[i];
        q->walk[i] = (walk_node){.t = s->t,
                                 .feature = (uint32_t)s->feature | (s->missing_yes ? UINT32_C(1) << 31 : 0),
                                 .yes = walk_at(f, s->yes),
                                 .no = walk_at(f, s->no)};
    }
    for (int32_t i = 0; i < f->n_leaves; i++)
        q->walk[f->n_nodes + i] = (walk_node){.yes = f->n_nodes + i, .no = f->n_nodes + i};
    for (int32_t t = 0; t < f->n_trees; t++) {
        int32_t top = 0;
        q->walk_roots[t] = walk_at(f, f->roots[t]);
        if (f->roots[t] < 0)
            continue;
        stack[top++] = f->roots[t];
        depth[f->roots[t]] = 1;
        while (top) {
            int32_t at = stack[--top], to[2] = {f->nodes[at].yes, f->nodes[at].no};
            q->depths[t] = depth[at] > q->depths[t] ? depth[at] : q->depths[t];
            for (int side = 0; side < 2; side++)
                if (to[side] >= 0) {
                    depth[to[side]] = depth[at] + 1;
                    stack[top++] = to[side];
                }
        }
    }
    pst_heap_free(depth);
    pst_heap_free(stack);
}

static bool build_ranked(fast_builder *b)
{
    const pst_forest *f = b->f;
    pst_forest_fast *q = b->q;
    int64_t room = (int64_t)f->n_trees * (f->n_targets < 8 ? f->n_targets : 8);
    if (!find_thresholds(b) || room > 65536)
        return false;
    q->columns = pst_keep(b->c, (size_t)(2 * f->n_features + 1) * sizeof *q->columns);
    q->code = pst_keep(b->c, ((size_t)f->n_nodes + 1) * sizeof *q->code);
    q->trees = pst_keep(b->c, ((size_t)f->n_trees + 1) * sizeof *q->trees);
    q->tables = pst_keep(b->c, (size_t)room * 256 * sizeof *q->tables + 4);
    q->targets = pst_keep(b->c, (size_t)room * sizeof *q->targets + 4);
    int32_t n_code = 0, n_tables = 0, n_targets = 0, leaf_no[LEAVES_MAX];
    int32_t *work = pst_heap_alloc(((size_t)f->n_nodes * 3 + 8) * sizeof *work);
    bool ok = true;
    for (int32_t i = 0; i < f->n_trees && ok; i++) {
        fast_tree *t = &q->trees[i];
        ok = add_tree(b, f->roots[i], t, &n_code, work, work + f->n_nodes + 2, work + 2 * f->n_nodes + 4, leaf_no);
        if (ok && t->only >= 0)
            leaf_no[0] = t->only;
        ok = ok && add_tables(b, t, leaf_no, t->only >= 0 ? 1 : t->n + 1, &n_tables, &n_targets, room);
    }
    pst_heap_free(work);
    return ok && q->n_columns < 65536;
}

void pst_forest_fast_new(pst_op_ctx *c, pst_forest *f)
{
    if ((f->aggregate != PST_AGG_SUM && f->aggregate != PST_AGG_AVERAGE) || !f->n_nodes || f->n_features > 30000)
        return;
    fast_builder b = {.c = c, .f = f, .q = pst_keep(c, sizeof(pst_forest_fast))};
    size_t nf = (size_t)f->n_features;
    bool ok = true;
    b.splits = pst_heap_alloc((size_t)f->n_nodes * sizeof *b.splits);
    b.t = pst_heap_alloc(nf * sizeof *b.t);
    b.n_t = pst_heap_alloc(nf * sizeof *b.n_t);
    b.column = pst_heap_alloc(2 * nf * sizeof *b.column);
    b.q->kernels = pst_kernels_pick(c->plan->isa);
    for (int32_t i = 0; i < f->n_nodes && ok; i++) {
        ok = as_split(&f->nodes[i], &b.splits[i]);
        b.n_t[b.splits[i].feature] += ok;
    }
    if (ok) {
        build_walk(&b);
        b.q->ranked = build_ranked(&b);
        f->fast = b.q;
    }
    for (size_t i = 0; i < nf; i++)
        pst_heap_free(b.t[i]);
    pst_heap_free(b.splits);
    pst_heap_free(b.t);
    pst_heap_free(b.n_t);
    pst_heap_free(b.column);
}

/* One row down all trees. */
static void walk_row(const pst_forest *f, const float *x, double *out, uint8_t *has)
{
    enum { AT_ONCE = 8 };
    const pst_forest_fast *q = f->fast;
    memset(out, 0, (size_t)f->n_targets * sizeof *out);
    memset(has, 0, (size_t)f->n_targets);
    for (int32_t t = 0; t < f->n_trees; t += AT_ONCE) {
        int n = f->n_trees - t < AT_ONCE ? f->n_trees - t : AT_ONCE, depth = 0;
        int32_t at[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            at[i] = q->walk_roots[i < n ? t + i : t];
            depth = i < n && q->depths[t + i] > depth ? q->depths[t + i] : depth;
        }
        for (int d = 0; d < depth; d++)
            for (int i = 0; i < AT_ONCE; i++) {
                const walk_node *w = &q->walk[at[i]];
                float v = x[w->feature & INT32_MAX];
                at[i] = (v <= w->t) | ((v != v) & (w->feature >> 31)) ? w->yes : w->no;
            }
        for (int i = 0; i < n; i++) {
            const pst_tree_leaf *leaf = &f->leaves[at[i] - f->n_nodes];
            for (int32_t k = 0; k < leaf->n; k++) {
                out[f->weights[leaf->at + k].target] += f->weights[leaf->at + k].value;
                has[f->weights[leaf->at + k].target] = 1;
            }
        }
    }
    for (int32_t k = 0; k < f->n_targets && f->aggregate == PST_AGG_AVERAGE; k++)
        out[k] /= f->n_trees;
}

/* Ranks of one column for n rows: how many thresholds lie below x, by a search without branches, eight rows side by side. */
static void rank_column(const fast_column *k, const float *x, int64_t cols, int n, int8_t *to)
{
    const float *t = k->t;
    for (int r = 0; r < n; r += 8) {
        float v[8];
        int at[8] = {0};
        for (int i = 0; i < 8; i++)
            v[i] = x[(r + i < n ? r + i : n - 1) * cols + k->feature];
        for (int half = k->steps ? 1 << (k->steps - 1) : 0; half; half >>= 1)
            for (int i = 0; i < 8; i++)
                at[i] += t[at[i] + half - 1] < v[i] ? half : 0;
        for (int i = 0; i < 8; i++)
            to[r + i] = (int8_t)((v[i] != v[i] && !k->missing_yes ? 255 : at[i]) - 128);
    }
}

static void rank_rows(const pst_forest_fast *q, const float *x, int64_t cols, int n, int8_t *ranks)
{
    for (int k = 0; k < q->n_columns; k++) {
        const fast_column *col = &q->columns[k];
        int8_t *to = ranks + (size_t)k * ROWS;
        if (col->same_as < 0) {
            rank_column(col, x, cols, n, to);
            continue;
        }
        memcpy(to, ranks + (size_t)col->same_as * ROWS, ROWS);
        for (int r = 0; r < n; r++)
            if (isnan(x[r * cols + col->feature]))
                to[r] = col->missing_yes ? -128 : 127;
    }
}

/* Up to 64 rows by the vector form. */
static void ranked_rows(const pst_forest *f, const float *x, int64_t cols, int n, int8_t *ranks, int8_t *work, double *acc, double *out)
{
    const pst_forest_fast *q = f->fast;
    int nt = f->n_targets;
    rank_rows(q, x, cols, n, ranks);
    memset(acc, 0, (size_t)nt * ROWS * sizeof *acc);
    for (int32_t t = 0; t < f->n_trees; t++) {
        const fast_tree *tree = &q->trees[t];
        _Alignas(64) uint8_t leaf[ROWS];
        if (tree->only < 0)
            q->kernels->tree(q->code + tree->code, tree->n, ranks, work, leaf);
        else
            memset(leaf, 0, sizeof leaf);
        for (int32_t k = 0; k < tree->n_targets; k++) {
            const float *table = q->tables + (int64_t)(tree->table + k) * 256;
            double *to = acc + (size_t)q->targets[tree->targets + k] * ROWS;
            for (int r = 0; r < ROWS; r++)
                to[r] += (double)table[leaf[r]];
        }
    }
    for (int r = 0; r < n; r++)
        for (int k = 0; k < nt; k++)
            out[r * nt + k] = acc[k * ROWS + r] / (f->aggregate == PST_AGG_AVERAGE ? f->n_trees : 1);
}

int pst_forest_fast_run(pst_op_ctx *c, const pst_forest *f, const float *x, int64_t rows, int64_t cols, double *out, uint8_t *has)
{
    const pst_forest_fast *q = f->fast;
    int nt = f->n_targets;
    int64_t at = 0;
    if (q->ranked && rows >= PST_FOREST_RANKED_ROWS) {
        int8_t *ranks = pst_scratch(c, (size_t)q->n_columns * ROWS), *work = pst_scratch(c, (size_t)(256 + q->nodes_max) * ROWS);
        double *acc = pst_scratch(c, (size_t)nt * ROWS * sizeof *acc);
        if (!ranks || !work || !acc)
            return PST_ELIMIT;
        for (int i = 0; i < 256; i++)
            memset(work + i * ROWS, i, ROWS);
        memset(ranks, 0, (size_t)q->n_columns * ROWS);
        memset(has, 0, (size_t)(rows * nt));
        for (int32_t t = 0; t < f->n_trees; t++)
            for (int32_t k = 0; k < q->trees[t].n_targets; k++)
                has[q->targets[q->trees[t].targets + k]] = 1;
        for (int64_t r = 1; r < rows; r++)
            memcpy(has + r * nt, has, (size_t)nt);
        for (; rows - at >= PST_FOREST_RANKED_ROWS; at += ROWS) {
            int n = rows - at < ROWS ? (int)(rows - at) : ROWS;
            ranked_rows(f, x + at * cols, cols, n, ranks, work, acc, out + at * nt);
        }
    }
    for (; at < rows; at++)
        walk_row(f, x + at * cols, out + at * nt, has + at * nt);
    return 0;
}
