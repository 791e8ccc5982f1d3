/* tree_fast.c - building the vector form of a forest: byte-ranked features, 64 rows at a time. tree_fast_run.c runs it.
 *
 * Every feature value becomes its rank among the forest's thresholds of that feature: one byte, and x <= t is rank(x) <= rank(t)
 * exactly. Then all splits of a tree are computed for 64 rows, children first, each a byte comparison and a blend of two leaf
 * numbers; what the root gives is the leaf. No branch depends on the data. A missing value is rank 0 where splits send it to
 * yes and rank 255 where they send it to no: a feature used both ways has two columns. A feature with more than 255 thresholds has a
 * column for each 255 of them, where ranks beyond are cut off: x <= t_k is min(rank(x) - from, 255) <= k - from all the same. A split by
 * a set of categories has a column that says member or not. Trees that do not fit a byte (more than 256 leaves) are walked down, by
 * blocks of rows too, so that a tree's nodes are fetched once a block.
 * After: Lucchese et al., "QuickScorer" (2015), for evaluating all nodes; Asadi et al., VPred (2014), for predication. */
#include "engine/heap.h"
#include "engine/ops/kernels.h"
#include "engine/ops/tree_fast.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TELL_BYTES = 160, RANKS = PST_FAST_RANKS, LEAVES = PST_FAST_LEAVES, COLUMNS_MAX = 16384 };
#define SET_BYTES_MAX    ((int64_t)32 << 20) /* all sets at their feature's width */
#define TABLE_FLOATS_MAX ((int64_t)16 << 20)

/* The largest float at or below d: x <= d and x <= that are the same for every float x. */
static double float_floor(double d)
{
    float f = (float)d;
    return (double)((double)f > d ? nextafterf(f, -INFINITY) : f);
}

/* A split as "x <= t ? yes : no" (or member ? yes : no), whatever its mode says. */
typedef struct split {
    double t;
    int32_t feature, yes, no;
    bool missing_yes, zero_missing, set;
    int32_t column, rank;
} split;

typedef struct fast_builder {
    pst_op_ctx *c;
    const pst_forest *f;
    pst_forest_fast *q;
    split *splits;
    double **t; /* by feature: its thresholds, sorted, distinct */
    int32_t *n_t;
    int32_t *order; /* node numbers by feature, then by what makes a column */
    float *tables_f;
    double *tables_d;
    int64_t n_tables, tables_cap;
    bool no_floats;
} fast_builder;

static bool as_split(const pst_forest *f, const pst_tree_node *n, split *s)
{
    *s = (split){.feature = n->feature, .yes = n->yes, .no = n->no, .missing_yes = n->missing_yes, .zero_missing = n->zero_missing};
    if (n->mode == PST_TREE_BITS) {
        s->set = true;
        return true;
    }
    bool below = n->mode == PST_TREE_LT || n->mode == PST_TREE_GTE;
    if (n->mode > PST_TREE_GT || isnan(n->split) || (below && n->split == -INFINITY)) /* nothing lies below -infinity */
        return false;
    bool swap = n->mode == PST_TREE_GTE || n->mode == PST_TREE_GT;
    s->t = f->wide ? n->split : float_floor(n->split);
    if (below && s->t == n->split) /* x < t is x <= the number before t */
        s->t = f->wide ? nextafter(s->t, -INFINITY) : (double)nextafterf((float)s->t, -INFINITY);
    if (swap) {
        s->yes = n->no;
        s->no = n->yes;
        s->missing_yes = !n->missing_yes;
    }
    return true;
}

/* ---- columns ---- */

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void find_thresholds(fast_builder *b)
{
    const pst_forest *f = b->f;
    for (int32_t i = 0; i < f->n_nodes; i++)
        b->n_t[b->splits[i].feature] += !b->splits[i].set;
    for (int32_t k = 0; k < f->n_features; k++) {
        b->t[k] = pst_heap_alloc(((size_t)b->n_t[k] + 1) * sizeof(double));
        b->n_t[k] = 0;
    }
    for (int32_t i = 0; i < f->n_nodes; i++)
        if (!b->splits[i].set)
            b->t[b->splits[i].feature][b->n_t[b->splits[i].feature]++] = b->splits[i].t;
    for (int32_t k = 0; k < f->n_features; k++) {
        int32_t n = 0;
        qsort(b->t[k], (size_t)b->n_t[k], sizeof(double), by_number);
        for (int32_t i = 0; i < b->n_t[k]; i++)
            if (!n || b->t[k][i] != b->t[k][n - 1])
                b->t[k][n++] = b->t[k][i];
        b->n_t[k] = n;
    }
    for (int32_t i = 0; i < f->n_nodes; i++) {
        split *s = &b->splits[i];
        const double *t = b->t[s->feature];
        s->rank = s->set ? 0 : (int32_t)((const double *)bsearch(&s->t, t, (size_t)b->n_t[s->feature], sizeof *t, by_number) - t);
    }
}

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Nodes that stand together share a feature; nodes that compare equal share a column. */
static int by_column(const void *va, const void *vb, void *arg)
{
    const fast_builder *b = arg;
    int32_t ia = *(const int32_t *)va, ib = *(const int32_t *)vb;
    const split *x = &b->splits[ia], *y = &b->splits[ib];
    const pst_tree_node *nx = &b->f->nodes[ia], *ny = &b->f->nodes[ib];
    int k = compare(x->feature, y->feature);
    if (!k)
        k = compare(x->set, y->set);
    if (!k && !x->set)
        k = compare(x->rank / RANKS, y->rank / RANKS);
    if (!k)
        k = compare(x->missing_yes * 2 + x->zero_missing, y->missing_yes * 2 + y->zero_missing);
    if (!k && x->set)
        k = compare(nx->set_n, ny->set_n);
    if (!k && x->set)
        k = memcmp(b->f->bits + nx->set_at, b->f->bits + ny->set_at, (size_t)nx->set_n * 4);
    return k;
}

/* Counts columns; false when they are too many to be worth it. */
static bool count_columns(fast_builder *b)
{
    const pst_forest *f = b->f;
    int64_t columns = 0, sets = 0, words = 0, set_bytes = 0, of_feature = 0;
    for (int32_t i = 0; i < f->n_nodes; i++)
        b->order[i] = i;
    qsort_r(b->order, (size_t)f->n_nodes, sizeof *b->order, by_column, b);
    for (int32_t i = 0; i < f->n_nodes; i++) {
        const split *s = &b->splits[b->order[i]], *before = i ? &b->splits[b->order[i - 1]] : NULL;
        bool fresh = !i || by_column(&b->order[i], &b->order[i - 1], b), turn = before && before->feature != s->feature;
        if (turn) {
            set_bytes += of_feature * (words + 1) * 4;
            of_feature = words = 0;
        }
        columns += fresh;
        if (s->set) {
            sets += fresh;
            of_feature += fresh;
            words = f->nodes[b->order[i]].set_n > words ? f->nodes[b->order[i]].set_n : words;
        }
    }
    set_bytes += of_feature * (words + 1) * 4;
    b->q->n_columns = (int32_t)columns;
    b->q->n_sets = (int32_t)sets;
    /* A column of a set costs about what a walk through one tree costs. */
    return columns <= COLUMNS_MAX && sets <= 8 * (int64_t)f->n_trees + 64 && set_bytes <= SET_BYTES_MAX;
}

static void open_feature(fast_builder *b, pst_fast_feature *ft, int32_t from)
{
    const pst_forest *f = b->f;
    int32_t feature = b->splits[b->order[from]].feature, words = 0;
    *ft = (pst_fast_feature){.feature = feature, .column = b->q->n_columns};
    for (int32_t i = from; i < f->n_nodes && b->splits[b->order[i]].feature == feature; i++) {
        const pst_tree_node *n = &f->nodes[b->order[i]];
        if (n->mode == PST_TREE_BITS) {
            words = n->set_n > words ? n->set_n : words;
            ft->half_open = n->split < 0;
            ft->set_bits = 1;
        }
    }
    ft->set_bits *= words * 32 + (words == 0);
    int32_t n = b->n_t[feature];
    if (!n)
        return;
    while ((1 << ft->steps) - 1 < n)
        ft->steps++;
    double *t = pst_keep(b->c, ((size_t)1 << ft->steps) * sizeof *t);
    for (int32_t i = 0; i < (1 << ft->steps) - 1; i++)
        t[i] = i < n ? b->t[feature][i] : (double)INFINITY;
    ft->t = t;
}

static void make_columns(fast_builder *b)
{
    const pst_forest *f = b->f;
    pst_forest_fast *q = b->q;
    q->columns = pst_keep(b->c, ((size_t)q->n_columns + 1) * sizeof *q->columns);
    q->features = pst_keep(b->c, ((size_t)f->n_features + 1) * sizeof *q->features);
    q->n_columns = 0;
    for (int32_t i = 0; i < f->n_nodes; i++) {
        split *s = &b->splits[b->order[i]];
        const pst_tree_node *n = &f->nodes[b->order[i]];
        if (!i || b->splits[b->order[i - 1]].feature != s->feature)
            open_feature(b, &q->features[q->n_features++], i);
        pst_fast_feature *ft = &q->features[q->n_features - 1];
        if (!i || by_column(&b->order[i], &b->order[i - 1], b)) {
            pst_fast_column *c = &q->columns[q->n_columns++];
            *c = (pst_fast_column){.from = s->rank / RANKS * RANKS, .missing_yes = s->missing_yes, .zero_missing = s->zero_missing};
            if (s->set) { /* widened to the feature's width and one word of nothing */
                uint32_t *set = pst_keep(b->c, ((size_t)ft->set_bits / 32 + 1) * sizeof *set);
                memcpy(set, f->bits + n->set_at, (size_t)n->set_n * sizeof *set);
                c->set = set;
            }
            ft->n_columns++;
        }
        s->column = q->n_columns - 1;
    }
    for (int32_t i = 0; i < f->n_nodes; i++) /* only now: the loop above compares ranks of the whole feature */
        b->splits[i].rank -= q->columns[b->splits[i].column].from;
}

/* ---- trees ---- */

typedef struct tree_work {
    int32_t *stack, *order, *slot;
    int32_t leaf_no[LEAVES];
} tree_work;

/* Splits of one tree, children first; the position of each is where its result stands. Iterative: trees may be deep. */
static bool add_code(fast_builder *b, int32_t root, pst_fast_tree *t, int32_t *n_code, tree_work *w)
{
    int32_t n = 0, top = 0, n_leaves = 0, code = *n_code;
    t->code = code;
    if (root < 0) {
        w->leaf_no[0] = ~root;
        return true;
    }
    w->stack[top++] = root;
    while (top) { /* parents before children, then read backwards */
        int32_t at = w->stack[--top];
        w->order[n++] = at;
        if (n >= LEAVES)
            return false;
        for (int side = 0; side < 2; side++) {
            int32_t to = side ? b->splits[at].no : b->splits[at].yes;
            if (to >= 0)
                w->stack[top++] = to;
        }
    }
    for (int32_t i = 0; i < n; i++)
        w->slot[w->order[n - 1 - i]] = 256 + i;
    for (int32_t i = n; i-- > 0;) {
        const split *s = &b->splits[w->order[i]];
        int32_t to[2] = {s->yes, s->no};
        for (int side = 0; side < 2; side++)
            if (to[side] < 0) {
                w->leaf_no[n_leaves] = ~to[side];
                to[side] = n_leaves++;
            } else {
                to[side] = w->slot[to[side]];
            }
        b->q->code[code++] =
            (pst_tree_code){.rank = (int8_t)(s->rank - 128), .col = (uint16_t)s->column, .yes = (uint16_t)to[0], .no = (uint16_t)to[1]};
    }
    t->n = n;
    *n_code = code;
    return true;
}

/* Leaf weights as tables by target; leaves of one tree with different targets, or one twice, stay with the walk. */
static bool add_tables(fast_builder *b, pst_fast_tree *t, const int32_t *leaf_no, int32_t *n_targets)
{
    const pst_forest *f = b->f;
    int32_t *targets = b->q->targets + *n_targets, n = f->leaves[leaf_no[0]].n, n_leaves = t->n + 1;
    int64_t need = (int64_t)n * n_leaves;
    if (b->n_tables + need > TABLE_FLOATS_MAX)
        return false;
    for (int32_t k = 0; k < n; k++)
        targets[k] = f->weights[f->leaves[leaf_no[0]].at + k].target;
    for (int32_t k = 1; k < n; k++)
        if (targets[k] <= targets[k - 1])
            return false;
    for (int32_t i = 0; i < n_leaves; i++) {
        const pst_tree_leaf *l = &f->leaves[leaf_no[i]];
        if (l->n != n)
            return false;
        for (int32_t k = 0; k < n; k++)
            if (f->weights[l->at + k].target != targets[k])
                return false;
    }
    if (b->n_tables + need > b->tables_cap) {
        b->tables_cap = 2 * b->tables_cap > b->n_tables + need ? 2 * b->tables_cap : b->n_tables + need;
        b->tables_d = pst_heap_realloc(b->tables_d, (size_t)b->tables_cap * sizeof *b->tables_d);
    }
    for (int32_t i = 0; i < n_leaves; i++)
        for (int32_t k = 0; k < n; k++) {
            double v = f->weights[f->leaves[leaf_no[i]].at + k].value;
            b->tables_d[b->n_tables + (int64_t)k * n_leaves + i] = v;
            b->no_floats |= (double)(float)v != v;
        }
    t->table = b->n_tables;
    t->targets = *n_targets;
    t->n_targets = n;
    b->n_tables += need;
    *n_targets += n;
    return true;
}

static void keep_tables(fast_builder *b)
{
    pst_forest_fast *q = b->q;
    if (b->no_floats) {
        q->tables_d = pst_keep(b->c, (size_t)b->n_tables * sizeof *q->tables_d + 8);
        if (b->n_tables)
            memcpy(q->tables_d, b->tables_d, (size_t)b->n_tables * sizeof *q->tables_d);
    } else {
        q->tables_f = pst_keep(b->c, (size_t)b->n_tables * sizeof *q->tables_f + 8);
        for (int64_t i = 0; i < b->n_tables; i++)
            q->tables_f[i] = (float)b->tables_d[i];
    }
    pst_heap_free(b->tables_d);
}

static void build_trees(fast_builder *b, bool ranked)
{
    const pst_forest *f = b->f;
    pst_forest_fast *q = b->q;
    int64_t n_targets_max = 0;
    for (int32_t i = 0; i < f->n_leaves; i++) /* a tree has as many as its leaves */
        n_targets_max += f->leaves[i].n;
    tree_work w;
    w.stack = pst_heap_alloc(((size_t)f->n_nodes * 3 + 8) * sizeof *w.stack);
    w.order = w.stack + f->n_nodes + 2;
    w.slot = w.order + f->n_nodes + 2;
    q->code = pst_keep(b->c, ((size_t)f->n_nodes + 1) * sizeof *q->code);
    q->targets = pst_keep(b->c, ((size_t)n_targets_max + 1) * sizeof *q->targets);
    q->ids = f->lines ? pst_keep(b->c, ((size_t)f->n_leaves + 1) * sizeof *q->ids) : NULL;
    int32_t n_code = 0, n_targets = 0, n_ids = 0;
    for (int32_t i = 0; i < f->n_trees; i++) {
        pst_fast_tree *t = &q->trees[i];
        int32_t code = n_code;
        t->walked = !ranked || !add_code(b, f->roots[i], t, &n_code, &w) || !add_tables(b, t, w.leaf_no, &n_targets);
        if (t->walked) {
            n_code = code;
            continue;
        }
        q->n_ranked++;
        q->nodes_max = t->n > q->nodes_max ? t->n : q->nodes_max;
        t->ids = n_ids;
        for (int32_t k = 0; f->lines && k <= t->n; k++)
            q->ids[n_ids++] = w.leaf_no[k];
    }
    pst_heap_free(w.stack);
    keep_tables(b);
}

/* ---- the short nodes for walking ---- */

/* One target, one number a leaf: a row's sum needs no lists. */
static void keep_values(fast_builder *b)
{
    const pst_forest *f = b->f;
    if (f->n_targets != 1 || f->lines)
        return;
    double *values = pst_keep(b->c, (size_t)f->n_leaves * sizeof *values + 8);
    for (int32_t i = 0; i < f->n_leaves; i++) {
        if (f->leaves[i].n != 1)
            return;
        values[i] = f->weights[f->leaves[i].at].value;
    }
    b->q->values = values;
}

static int32_t walk_at(const pst_forest *f, int32_t to)
{
    return to >= 0 ? to : f->n_nodes + ~to;
}

static void build_walk(fast_builder *b)
{
    const pst_forest *f = b->f;
    pst_forest_fast *q = b->q;
    size_t n = (size_t)f->n_nodes + (size_t)f->n_leaves + 1;
    if (f->wide)
        q->walk_d = pst_keep(b->c, n * sizeof *q->walk_d);
    else
        q->walk_f = pst_keep(b->c, n * sizeof *q->walk_f);
    for (int32_t i = 0; i < f->n_nodes + f->n_leaves; i++) {
        const split *s = i < f->n_nodes ? &b->splits[i] : NULL;
        uint32_t feature = s ? (uint32_t)s->feature | (s->missing_yes ? UINT32_C(1) << 31 : 0) : 0;
        int32_t yes = s ? walk_at(f, s->yes) : i, no = s ? walk_at(f, s->no) : i;
        if (f->wide)
            q->walk_d[i] = (pst_walk_d){.t = s ? s->t : 0, .feature = feature, .yes = yes, .no = no};
        else
            q->walk_f[i] = (pst_walk_f){.t = s ? (float)s->t : 0, .feature = feature, .yes = yes, .no = no};
    }
}

static void measure_trees(fast_builder *b, bool walk)
{
    const pst_forest *f = b->f;
    int32_t *depth = pst_heap_alloc(((size_t)f->n_nodes + 1) * sizeof *depth),
            *stack = pst_heap_alloc(((size_t)f->n_nodes + 2) * sizeof *stack);
    for (int32_t t = 0; t < f->n_trees; t++) {
        pst_fast_tree *tree = &b->q->trees[t];
        int32_t top = 0;
        tree->root = walk ? walk_at(f, f->roots[t]) : f->roots[t];
        if (f->roots[t] < 0)
            continue;
        stack[top++] = f->roots[t];
        depth[f->roots[t]] = 1;
        while (top) {
            int32_t at = stack[--top], to[2] = {f->nodes[at].yes, f->nodes[at].no};
            tree->depth = depth[at] > tree->depth ? depth[at] : tree->depth;
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

void pst_forest_fast_new(pst_op_ctx *c, pst_forest *f)
{
    if ((f->aggregate != PST_AGG_SUM && f->aggregate != PST_AGG_AVERAGE) || !f->n_nodes || f->n_features > 30000)
        return;
    fast_builder b = {.c = c, .f = f, .q = pst_keep(c, sizeof(pst_forest_fast))};
    size_t nf = (size_t)f->n_features;
    bool ok = true, plain = true;
    b.splits = pst_heap_alloc((size_t)f->n_nodes * sizeof *b.splits);
    b.order = pst_heap_alloc((size_t)f->n_nodes * sizeof *b.order);
    b.t = pst_heap_alloc(nf * sizeof *b.t);
    b.n_t = pst_heap_alloc(nf * sizeof *b.n_t);
    b.q->kernels = pst_kernels_pick(c->plan->isa);
    for (int32_t i = 0; i < f->n_nodes && ok; i++) {
        ok = as_split(f, &f->nodes[i], &b.splits[i]);
        plain &= !b.splits[i].set && !b.splits[i].zero_missing;
    }
    if (ok) {
        b.q->trees = pst_keep(c, ((size_t)f->n_trees + 1) * sizeof *b.q->trees);
        if (plain)
            build_walk(&b);
        measure_trees(&b, plain);
        find_thresholds(&b);
        bool ranked = count_columns(&b);
        if (ranked)
            make_columns(&b);
        build_trees(&b, ranked);
        keep_values(&b);
        f->fast = b.q;
    }
    for (size_t i = 0; i < nf; i++)
        pst_heap_free(b.t[i]);
    pst_heap_free(b.splits);
    pst_heap_free(b.order);
    pst_heap_free(b.t);
    pst_heap_free(b.n_t);
}

void pst_forest_tell(pst_op_ctx *c, const pst_forest *f)
{
    bool asked = c->plan->opts.no_fusion;
    const pst_forest_fast *q = asked ? NULL : f->fast;
    char *kernel = pst_keep(c, TELL_BYTES), *note = pst_keep(c, TELL_BYTES);
    int32_t walked = q ? f->n_trees - q->n_ranked : 0;
    c->kernel = kernel;
    if (q && q->n_ranked)
        snprintf(kernel, TELL_BYTES, "%d trees as ranked bytes, %s, %d columns", q->n_ranked, q->kernels->isa, q->n_columns);
    else
        snprintf(kernel, TELL_BYTES, "%d trees, %s", f->n_trees, q ? "walked, 64 rows at a time" : "reference walk");
    if (walked) {
        snprintf(note, TELL_BYTES, "%d trees are walked down: more than 256 leaves, leaves of different targets, or too many columns",
                 walked);
        c->note = note;
    } else if (!q && f->n_nodes && !asked) {
        c->note = "the reference walk serves: some split is neither an ordering nor a set, or what is wanted is no sum";
    }
}
