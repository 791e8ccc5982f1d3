/* tree_walk.c - a forest laid out for walking, and the walks: one row down all trees, or rows down one tree; see tree_fast.h.
 *
 * Trees lie one behind the other, each level by level, the two children of a split side by side: one number tells where they are, and the
 * comparison's carry which of them. */
#include "engine/heap.h"
#include "engine/ops/kernels.h"
#include "engine/ops/tree_fast.h"

#include <math.h>
#include <string.h>

/* Rows, or trees, that go down side by side; trees in larger groups as long as there are so many. */
enum { AT_ONCE = 8, MANY = 24 };

typedef struct walk_builder {
    const eng_forest *f;
    eng_forest_fast *q;
    const eng_fast_split *splits;
    int32_t *number; /* by feature: in walk_features */
    int32_t *queue;  /* of the tree at hand: nodes and ~leaves by place */
} walk_builder;

static void put(eng_forest_fast *q, bool wide, int64_t at, double t, uint32_t feature, uint32_t first)
{
    if (wide)
        q->walk_d[at] = (eng_walk_d){.t = t, .feature = feature, .first = first};
    else
        q->walk_f[at] = (eng_walk_f){.t = (float)t, .feature = feature, .first = first};
}

/* -x <= what this gives, and x > t, are the same; NaN where no x is beyond t. */
static double mirrored(double t, bool wide)
{
    if (t == INFINITY)
        return NAN;
    return wide ? nextafter(-t, -INFINITY) : (double)nextafterf((float)-t, -INFINITY);
}

static int64_t lay_tree(walk_builder *b, int32_t root, int64_t from, int32_t *depth)
{
    eng_forest_fast *q = b->q;
    int64_t n = 0, level_ends = 1;
    b->queue[n++] = root;
    *depth = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t at = b->queue[i];
        if (i == level_ends) {
            level_ends = n;
            ++*depth;
        }
        q->walk_leaf[from + i] = at < 0 ? ~at : 0;
        if (at < 0) {
            put(q, b->f->wide, from + i, NAN, 0, (uint32_t)(from + i - 1));
            continue;
        }
        const eng_fast_split *s = &b->splits[at];
        bool mirror = s->missing_yes;
        uint32_t feature = (uint32_t)s->feature;
        if (q->walk_features)
            feature = (uint32_t)(b->number[s->feature] + (mirror ? q->n_walk : 0));
        put(q, b->f->wide, from + i, mirror ? mirrored(s->t, b->f->wide) : s->t, feature, (uint32_t)(from + n));
        b->queue[n++] = mirror ? s->no : s->yes;
        b->queue[n++] = mirror ? s->yes : s->no;
    }
    return n;
}

/* Numbers the features that splits use; only where some split sends NaN to yes is there need of negatives, and of copied rows. */
static void list_features(walk_builder *b, eng_op_ctx *c)
{
    const eng_forest *f = b->f;
    bool mirror = false;
    for (int32_t i = 0; i < f->n_nodes; i++)
        mirror |= b->splits[i].missing_yes;
    if (!mirror)
        return;
    b->q->walk_features = eng_op_keep(c, (size_t)f->n_features * sizeof *b->q->walk_features);
    for (int32_t i = 0; i < f->n_nodes; i++)
        b->number[b->splits[i].feature] = 1;
    for (int32_t k = 0; k < f->n_features; k++)
        if (b->number[k]) {
            b->number[k] = b->q->n_walk;
            b->q->walk_features[b->q->n_walk++] = k;
        }
}

void eng_fast_walk_new(eng_op_ctx *c, const eng_forest *f, eng_forest_fast *q, const eng_fast_split *splits)
{
    walk_builder b = {.f = f, .q = q, .splits = splits};
    size_t places = 2 * (size_t)f->n_nodes + (size_t)f->n_trees + 1;
    int64_t at = 0;
    b.number = eng_heap_alloc((size_t)f->n_features * sizeof *b.number);
    b.queue = eng_heap_alloc(places * sizeof *b.queue);
    list_features(&b, c);
    q->walk_leaf = eng_op_keep(c, places * sizeof *q->walk_leaf);
    if (f->wide)
        q->walk_d = eng_op_keep(c, places * sizeof *q->walk_d);
    else
        q->walk_f = eng_op_keep(c, places * sizeof *q->walk_f);
    q->walk_roots = eng_op_keep(c, ((size_t)f->n_trees + AT_ONCE) * sizeof *q->walk_roots);
    q->walk_depths = eng_op_keep(c, ((size_t)f->n_trees / AT_ONCE + 1) * sizeof *q->walk_depths);
    for (int32_t t = 0; t < f->n_trees; t++) {
        eng_fast_tree *tree = &q->trees[t];
        tree->root = q->walk_roots[t] = (int32_t)at;
        at += lay_tree(&b, f->roots[t], at, &tree->depth);
        q->walk_depths[t / AT_ONCE] = tree->depth > q->walk_depths[t / AT_ONCE] ? tree->depth : q->walk_depths[t / AT_ONCE];
    }
    for (int32_t t = f->n_trees; t % AT_ONCE; t++)
        q->walk_roots[t] = q->walk_roots[0];
    eng_heap_free(b.queue);
    eng_heap_free(b.number);
}

/* Eight walks side by side, so that their loads overlap; ROW: the numbers that walk i compares. Now and then it is asked whether all have
 * arrived, for trees with a few deep leaves. */
#define STEPS(NAME, N, ROW)                                      \
    for (int left = depth; left > 0; left -= 8) {                \
        for (int d = left < 8 ? left : 8; d > 0; d--)            \
            ENG_UNROLLED (i, 0, N) {                             \
                const eng_walk_##NAME *w = &walk[at[i]];         \
                at[i] = w->first + !((ROW)[w->feature] <= w->t); \
            }                                                    \
        uint32_t away = 0;                                       \
        for (int i = 0; i < N; i++)                              \
            away |= at[i] - 1 - walk[at[i]].first;               \
        if (!away)                                               \
            break;                                               \
    }

#define WALK(NAME, T)                                                                                                                    \
    static inline __attribute__((always_inline)) void walk_group_##NAME(const eng_forest_fast *q, const T *x, int32_t t, const int many, \
                                                                        uint32_t *at)                                                    \
    {                                                                                                                                    \
        const eng_walk_##NAME *walk = q->walk_##NAME;                                                                                    \
        int depth = 0;                                                                                                                   \
        for (int i = t / AT_ONCE; i < (t + many) / AT_ONCE; i++)                                                                         \
            depth = q->walk_depths[i] > depth ? q->walk_depths[i] : depth;                                                               \
        ENG_UNROLLED (i, 0, many)                                                                                                        \
            at[i] = (uint32_t)q->walk_roots[t + i];                                                                                      \
        STEPS(NAME, many, x)                                                                                                             \
    }                                                                                                                                    \
    /* The next trees from t on; returns how many. */                                                                                    \
    static inline int walk_next_##NAME(const eng_forest *f, const T *x, int32_t t, uint32_t *at)                                         \
    {                                                                                                                                    \
        int n = f->n_trees - t;                                                                                                          \
        if (n >= MANY) {                                                                                                                 \
            walk_group_##NAME(f->fast, x, t, MANY, at);                                                                                  \
            return MANY;                                                                                                                 \
        }                                                                                                                                \
        walk_group_##NAME(f->fast, x, t, AT_ONCE, at);                                                                                   \
        return n < AT_ONCE ? n : AT_ONCE;                                                                                                \
    }                                                                                                                                    \
    static void walk_row_##NAME(const eng_forest *f, const T *x, int32_t *leaf)                                                          \
    {                                                                                                                                    \
        uint32_t at[MANY];                                                                                                               \
        for (int32_t t = 0, n; t < f->n_trees; t += n) {                                                                                 \
            n = walk_next_##NAME(f, x, t, at);                                                                                           \
            for (int i = 0; i < n; i++)                                                                                                  \
                leaf[t + i] = f->fast->walk_leaf[at[i]];                                                                                 \
        }                                                                                                                                \
    }                                                                                                                                    \
    static double walk_sum_##NAME(const eng_forest *f, const T *x, double from)                                                          \
    {                                                                                                                                    \
        uint32_t at[MANY];                                                                                                               \
        const double *values = f->fast->values;                                                                                          \
        float from_f = (float)from;                                                                                                      \
        for (int32_t t = 0, n; t < f->n_trees; t += n) {                                                                                 \
            n = walk_next_##NAME(f, x, t, at);                                                                                           \
            for (int i = 0; i < n && f->start; i++)                                                                                      \
                from_f += (float)values[f->fast->walk_leaf[at[i]]];                                                                      \
            for (int i = 0; i < n && !f->start; i++)                                                                                     \
                from += values[f->fast->walk_leaf[at[i]]];                                                                               \
        }                                                                                                                                \
        return f->start ? (double)from_f : from;                                                                                         \
    }                                                                                                                                    \
    static void walk_tree_##NAME(const eng_walk_##NAME *walk, const eng_fast_tree *tree, const T *x, int64_t stride, int n,              \
                                 const int32_t *leaf_of, int32_t *leaf)                                                                  \
    {                                                                                                                                    \
        for (int r = 0; r < n; r += AT_ONCE) {                                                                                           \
            const T *row[AT_ONCE];                                                                                                       \
            uint32_t at[AT_ONCE];                                                                                                        \
            int depth = tree->depth;                                                                                                     \
            for (int i = 0; i < AT_ONCE; i++) {                                                                                          \
                row[i] = x + (r + i < n ? r + i : r) * stride;                                                                           \
                at[i] = (uint32_t)tree->root;                                                                                            \
            }                                                                                                                            \
            STEPS(NAME, AT_ONCE, row[i])                                                                                                 \
            for (int i = 0; i < AT_ONCE && r + i < n; i++)                                                                               \
                leaf[r + i] = leaf_of[at[i]];                                                                                            \
        }                                                                                                                                \
    }                                                                                                                                    \
    static void copy_rows_##NAME(const eng_forest_fast *q, const T *x, int64_t cols, int n, T *to)                                       \
    {                                                                                                                                    \
        for (int r = 0; r < n; r++, x += cols, to += 2 * q->n_walk)                                                                      \
            for (int i = 0; i < q->n_walk; i++) {                                                                                        \
                to[i] = x[q->walk_features[i]];                                                                                          \
                to[q->n_walk + i] = -x[q->walk_features[i]];                                                                             \
            }                                                                                                                            \
    }
WALK(f, float)
WALK(d, double)

void eng_fast_walk_tree(const eng_forest_fast *q, const eng_fast_tree *tree, const void *x, int64_t stride, int n, int32_t *leaf)
{
    if (q->walk_d)
        walk_tree_d(q->walk_d, tree, x, stride, n, q->walk_leaf, leaf);
    else
        walk_tree_f(q->walk_f, tree, x, stride, n, q->walk_leaf, leaf);
}

void eng_fast_walk_row(const eng_forest *f, const void *x, int32_t *leaf)
{
    if (f->wide)
        walk_row_d(f, x, leaf);
    else
        walk_row_f(f, x, leaf);
}

double eng_fast_walk_sum(const eng_forest *f, const void *x, double from)
{
    return f->wide ? walk_sum_d(f, x, from) : walk_sum_f(f, x, from);
}

void eng_fast_walk_rows(const eng_forest *f, const void *x, int64_t cols, int n, void *to)
{
    if (f->wide)
        copy_rows_d(f->fast, x, cols, n, to);
    else
        copy_rows_f(f->fast, x, cols, n, to);
}
