/* tree_fast.c - the vector form of a forest: ranks (tree_ranks.c), programs (tree_code.c), a form for walking (tree_walk.c). tree_fast_run.c
 * runs it: 64 rows at a time through the programs, trees that do not fit a byte (more than 256 leaves) walked down, by blocks of rows too, so
 * that a tree's nodes are fetched once a block; few rows are walked through all trees. */
#include "engine/heap.h"
#include "engine/ops/kernels.h"
#include "engine/ops/tree_fast.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 160, FEATURES_MAX = 30000 };

/* The largest float at or below d: x <= d and x <= that are the same for every float x. */
static double float_floor(double d)
{
    float f = (float)d;
    return (double)((double)f > d ? nextafterf(f, -INFINITY) : f);
}

static bool as_split(const eng_forest *f, const eng_tree_node *n, eng_fast_split *s)
{
    *s =
        (eng_fast_split){.feature = n->feature, .yes = n->yes, .no = n->no, .missing_yes = n->missing_yes, .zero_missing = n->zero_missing};
    if (n->mode == ENG_TREE_BITS) {
        s->set = true;
        return true;
    }
    bool below = n->mode == ENG_TREE_LT || n->mode == ENG_TREE_GTE;
    if (n->mode > ENG_TREE_GT || isnan(n->split) || (below && n->split == -INFINITY)) /* nothing lies below -infinity */
        return false;
    bool swap = n->mode == ENG_TREE_GTE || n->mode == ENG_TREE_GT;
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

bool eng_fast_splits(const eng_forest *f, eng_fast_split *ret, bool *ret_plain)
{
    bool ok = true;
    *ret_plain = true;
    for (int32_t i = 0; i < f->n_nodes && ok; i++) {
        ok = as_split(f, &f->nodes[i], &ret[i]);
        *ret_plain &= !ret[i].set && !ret[i].zero_missing;
    }
    return ok;
}

/* One number a leaf, all for one target: a row's sum needs no lists. */
static void keep_values(eng_op_ctx *c, const eng_forest *f, eng_forest_fast *q)
{
    if (f->lines)
        return;
    for (int32_t i = 0; i < f->n_leaves; i++)
        if (f->leaves[i].n != 1 || f->weights[f->leaves[i].at].target != f->weights[f->leaves[0].at].target)
            return;
    q->values = eng_op_keep(c, (size_t)f->n_leaves * sizeof *q->values + 8);
    for (int32_t i = 0; i < f->n_leaves; i++)
        q->values[i] = f->weights[f->leaves[i].at].value;
    q->values_target = f->n_leaves ? f->weights[f->leaves[0].at].target : 0;
}

/* A tree that is listed twice: all trees together may then be larger than their nodes, without a bound. */
static bool listed_twice(const eng_forest *f)
{
    uint8_t *seen = eng_heap_alloc((size_t)f->n_nodes);
    bool twice = false;
    for (int32_t t = 0; t < f->n_trees && !twice; t++)
        if (f->roots[t] >= 0)
            twice = seen[f->roots[t]]++;
    eng_heap_free(seen);
    return twice;
}

void eng_forest_fast_new(eng_op_ctx *c, eng_forest *f)
{
    if ((f->aggregate != ENG_AGG_SUM && f->aggregate != ENG_AGG_AVERAGE) || !f->n_nodes || f->n_features > FEATURES_MAX || listed_twice(f))
        return;
    eng_forest_fast *q = eng_op_keep(c, sizeof *q);
    eng_fast_split *splits = eng_heap_alloc((size_t)f->n_nodes * sizeof *splits);
    bool plain;
    q->kernels = eng_kernels_pick(c->plan->isa);
    if (eng_fast_splits(f, splits, &plain)) {
        q->trees = eng_op_keep(c, ((size_t)f->n_trees + 1) * sizeof *q->trees);
        for (int32_t t = 0; t < f->n_trees; t++)
            q->trees[t].root = f->roots[t];
        if (plain)
            eng_fast_walk_new(c, f, q, splits);
        eng_fast_programs(c, f, q, splits, eng_fast_columns(c, f, q, splits));
        keep_values(c, f, q);
        f->fast = q;
    }
    eng_heap_free(splits);
}

void eng_forest_describe(eng_op_ctx *c, const eng_forest *f)
{
    bool asked = c->plan->opts.no_fusion;
    const eng_forest_fast *q = asked ? NULL : f->fast;
    char *kernel = eng_op_keep(c, TEXT_BYTES), *note = eng_op_keep(c, TEXT_BYTES);
    int32_t walked = q ? f->n_trees - q->n_ranked : 0;
    c->kernel = kernel;
    if (q && q->n_ranked)
        snprintf(kernel, TEXT_BYTES, "%d tree%s as ranked bytes, %s, %d column%s", q->n_ranked, q->n_ranked == 1 ? "" : "s",
                 q->kernels->isa, q->n_columns, q->n_columns == 1 ? "" : "s");
    else
        snprintf(kernel, TEXT_BYTES, "%d tree%s, %s", f->n_trees, f->n_trees == 1 ? "" : "s",
                 q ? "walked, 64 rows at a time" : "reference walk");
    if (walked) {
        snprintf(note, TEXT_BYTES, "%d tree%s walked down: more than 256 leaves, leaves of different targets, or too many columns", walked,
                 walked == 1 ? " is" : "s are");
        c->note = note;
    } else if (!q && f->n_nodes && !asked) {
        c->note =
            "the reference walk serves: some split is neither an ordering nor a set, what is wanted is no sum, or a tree is listed twice";
    }
}
