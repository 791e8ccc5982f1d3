/* tree_ranks.c - ranks of feature values among a forest's thresholds, and the columns of bytes that trees compare.
 *
 * Every feature value becomes its rank among the forest's thresholds of that feature: one byte, and x <= t is rank(x) <= rank(t)
 * exactly. A missing value is rank 0 where splits send it to yes and rank 255 where they send it to no: a feature used both ways has two
 * columns. A feature with more than 255 thresholds has a column for each 255 of them, where ranks beyond are cut off: x <= t_k is
 * min(rank(x) - from, 255) <= k - from all the same. A split by a set of categories has a column that says member or not. */
#include "engine/heap.h"
#include "engine/ops/kernels.h"
#include "engine/ops/tree_fast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = ENG_FAST_RANKS, COLUMNS_MAX = 16384, BUCKETS_MIN = 16, BUCKETS_MAX = 4096 };
#define SET_BYTES_MAX ((int64_t)32 << 20) /* all sets at their feature's width */

typedef struct rank_builder {
    eng_op_ctx *c;
    const eng_forest *f;
    eng_forest_fast *q;
    eng_fast_split *splits;
    double **t; /* by feature: its thresholds, sorted, distinct */
    int32_t *n_t;
    int32_t *order; /* node numbers by feature, then by what makes a column */
} rank_builder;

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void find_thresholds(rank_builder *b)
{
    const eng_forest *f = b->f;
    for (int32_t i = 0; i < f->n_nodes; i++)
        b->n_t[b->splits[i].feature] += !b->splits[i].set;
    for (int32_t k = 0; k < f->n_features; k++) {
        b->t[k] = eng_heap_alloc(((size_t)b->n_t[k] + 1) * sizeof(double));
        b->n_t[k] = 0;
    }
    for (int32_t i = 0; i < f->n_nodes; i++)
        if (!b->splits[i].set)
            b->t[b->splits[i].feature][b->n_t[b->splits[i].feature]++] = b->splits[i].t + 0.0; /* -0 as 0: buckets tell them apart */
    for (int32_t k = 0; k < f->n_features; k++) {
        int32_t n = 0;
        qsort(b->t[k], (size_t)b->n_t[k], sizeof(double), by_number);
        for (int32_t i = 0; i < b->n_t[k]; i++)
            if (!n || b->t[k][i] != b->t[k][n - 1])
                b->t[k][n++] = b->t[k][i];
        b->n_t[k] = n;
    }
    for (int32_t i = 0; i < f->n_nodes; i++) {
        eng_fast_split *s = &b->splits[i];
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
    const rank_builder *b = arg;
    int32_t ia = *(const int32_t *)va, ib = *(const int32_t *)vb;
    const eng_fast_split *x = &b->splits[ia], *y = &b->splits[ib];
    const eng_tree_node *nx = &b->f->nodes[ia], *ny = &b->f->nodes[ib];
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
static bool count_columns(rank_builder *b)
{
    const eng_forest *f = b->f;
    int64_t columns = 0, sets = 0, words = 0, set_bytes = 0, of_feature = 0;
    for (int32_t i = 0; i < f->n_nodes; i++)
        b->order[i] = i;
    qsort_r(b->order, (size_t)f->n_nodes, sizeof *b->order, by_column, b);
    for (int32_t i = 0; i < f->n_nodes; i++) {
        const eng_fast_split *s = &b->splits[b->order[i]], *before = i ? &b->splits[b->order[i - 1]] : NULL;
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

/* ---- buckets: as bucket() of trees.inc.h, number by number ---- */

static int32_t bucket_of(const eng_rank_table *k, double t)
{
    float x = (float)t;
    if (k->by_bits) {
        int32_t bits;
        memcpy(&bits, &x, sizeof bits);
        x = (float)(bits ^ (bits >> 31 & INT32_MAX));
    }
    float at = (x - k->from) * k->scale;
    at = at > 0 ? at : 0;
    return at < (float)k->last ? (int32_t)at : k->last;
}

/* Numbers between the first threshold and the last in even buckets; steps is what the fullest needs. False where the numbers do not allow it. */
static bool spread(eng_rank_table *k, const double *t, int32_t n, int32_t buckets, bool by_bits)
{
    *k = (eng_rank_table){.by_bits = by_bits};
    float ends[2] = {(float)t[0], (float)t[n - 1]};
    for (int i = 0; i < 2 && by_bits; i++) {
        int32_t bits;
        memcpy(&bits, &ends[i], sizeof bits);
        ends[i] = (float)(bits ^ (bits >> 31 & INT32_MAX));
    }
    k->from = ends[0];
    k->scale = (float)(buckets - 1) / (ends[1] - ends[0]);
    k->last = buckets - 1;
    if (!isfinite(k->from) || !isfinite(k->scale) || k->scale <= 0)
        return false;
    int32_t most = 0;
    for (int32_t i = 0, from = 0; i < n; i++) {
        if (bucket_of(k, t[i]) != bucket_of(k, t[from]))
            from = i;
        most = i - from + 1 > most ? i - from + 1 : most;
    }
    while ((1 << k->steps) - 1 < most)
        k->steps++;
    return true;
}

/* Evenly by value or by the logarithm, whichever needs fewer steps; all in one bucket where neither serves. */
static void make_table(rank_builder *b, eng_rank_table *k, const double *t, int32_t n)
{
    int32_t buckets = BUCKETS_MIN;
    while (buckets < BUCKETS_MAX && buckets < 2 * n)
        buckets *= 2;
    *k = (eng_rank_table){0};
    while ((1 << k->steps) - 1 < n)
        k->steps++;
    for (int by_bits = 0; by_bits < 2 && n > 1 && n < UINT16_MAX; by_bits++) {
        eng_rank_table one;
        if (spread(&one, t, n, buckets, by_bits) && one.steps < k->steps)
            *k = one;
    }
    uint16_t *below = eng_op_keep(b->c, ((size_t)k->last + 1) * sizeof *below);
    for (int32_t i = 0, j = 0; i <= k->last; i++) {
        while (k->last && j < n && bucket_of(k, t[j]) < i)
            j++;
        below[i] = (uint16_t)j;
    }
    k->below = below;
    size_t room = (size_t)n + ((size_t)1 << k->steps);
    float *tf = b->f->wide ? NULL : eng_op_keep(b->c, room * sizeof *tf);
    double *td = b->f->wide ? eng_op_keep(b->c, room * sizeof *td) : NULL;
    for (size_t i = 0; i < room; i++)
        if (tf)
            tf[i] = i < (size_t)n ? (float)t[i] : INFINITY;
        else
            td[i] = i < (size_t)n ? t[i] : (double)INFINITY;
    k->tf = tf;
    k->td = td;
}

static void open_feature(rank_builder *b, eng_fast_feature *ft, int32_t from)
{
    const eng_forest *f = b->f;
    int32_t feature = b->splits[b->order[from]].feature, words = 0;
    *ft = (eng_fast_feature){.feature = feature, .column = b->q->n_columns};
    for (int32_t i = from; i < f->n_nodes && b->splits[b->order[i]].feature == feature; i++) {
        const eng_tree_node *n = &f->nodes[b->order[i]];
        if (n->mode == ENG_TREE_BITS) {
            words = n->set_n > words ? n->set_n : words;
            ft->half_open = n->split < 0;
            ft->set_bits = 1;
        }
    }
    ft->set_bits *= words * 32 + (words == 0);
    if (b->n_t[feature])
        make_table(b, &ft->table, b->t[feature], b->n_t[feature]);
}

static void make_columns(rank_builder *b)
{
    const eng_forest *f = b->f;
    eng_forest_fast *q = b->q;
    q->columns = eng_op_keep(b->c, ((size_t)q->n_columns + 1) * sizeof *q->columns);
    q->features = eng_op_keep(b->c, ((size_t)f->n_features + 1) * sizeof *q->features);
    q->n_columns = 0;
    for (int32_t i = 0; i < f->n_nodes; i++) {
        eng_fast_split *s = &b->splits[b->order[i]];
        const eng_tree_node *n = &f->nodes[b->order[i]];
        if (!i || b->splits[b->order[i - 1]].feature != s->feature)
            open_feature(b, &q->features[q->n_features++], i);
        eng_fast_feature *ft = &q->features[q->n_features - 1];
        if (!i || by_column(&b->order[i], &b->order[i - 1], b)) {
            eng_fast_column *c = &q->columns[q->n_columns++];
            *c = (eng_fast_column){.from = s->rank / RANKS * RANKS, .missing_yes = s->missing_yes, .zero_missing = s->zero_missing};
            if (s->set) { /* widened to the feature's width and one word of nothing */
                uint32_t *set = eng_op_keep(b->c, ((size_t)ft->set_bits / 32 + 1) * sizeof *set);
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

bool eng_fast_columns(eng_op_ctx *c, const eng_forest *f, eng_forest_fast *q, eng_fast_split *splits)
{
    rank_builder b = {.c = c, .f = f, .q = q, .splits = splits};
    b.order = eng_heap_alloc((size_t)f->n_nodes * sizeof *b.order);
    b.t = eng_heap_alloc((size_t)f->n_features * sizeof *b.t);
    b.n_t = eng_heap_alloc((size_t)f->n_features * sizeof *b.n_t);
    find_thresholds(&b);
    bool ok = count_columns(&b);
    if (ok)
        make_columns(&b);
    for (int32_t i = 0; i < f->n_features; i++)
        eng_heap_free(b.t[i]);
    eng_heap_free(b.order);
    eng_heap_free(b.t);
    eng_heap_free(b.n_t);
    return ok;
}
