/* tree_code.c - trees as programs over byte-ranked columns; trees.inc.h runs them.
 *
 * All splits of a tree are computed for 64 rows, children first, each a byte comparison and a blend of two leaf numbers; what the
 * root gives is the leaf. No branch depends on the data. Where a subtree is complete, or nearly so, its results never leave the
 * registers and its leaves are counted, not fetched: a bush. One that is nearly complete is filled up with splits that always say yes.
 * After: Lucchese et al., "QuickScorer" (2015), for evaluating all nodes; Asadi et al., VPred (2014), for predication. */
#include "engine/heap.h"
#include "engine/ops/kernels.h"
#include "engine/ops/tree_fast.h"

#include <string.h>

enum { LEAVES = ENG_FAST_LEAVES, LEVELS = 3 };
#define TABLE_FLOATS_MAX ((int64_t)16 << 20)

/* Half cycles for 64 rows, measured on Zen 3: a split of results, and bushes by levels. */
static const int split_cost = 11, bush_cost[LEVELS + 1] = {0, 7, 13, 24};

typedef struct code_builder {
    eng_op_ctx *c;
    const eng_forest *f;
    eng_forest_fast *q;
    const eng_fast_split *splits;
    eng_tree_bush *bushes;
    eng_tree_code *code;
    int64_t n_bushes, n_code;
    size_t bushes_cap, code_cap;
    double *tables_d;
    int32_t *targets;
    int64_t n_tables, n_targets;
    size_t tables_cap, targets_cap;
    bool no_floats;
    /* of the tree at hand */
    int32_t order[LEAVES], n; /* its splits, level by level */
    int32_t *place;           /* by node: where in order, later where its result stands */
    int32_t cost[LEAVES], size[LEAVES];
    uint8_t height[LEAVES], levels[LEAVES]; /* levels: of the bush that begins here; 0 = a split of results */
    int32_t leaf_no[LEAVES], n_leaves;
} code_builder;

/* ---- programs ---- */

static bool order_tree(code_builder *b, int32_t root)
{
    b->n = 0;
    b->order[b->n++] = root;
    for (int32_t i = 0; i < b->n; i++) {
        int32_t to[2] = {b->splits[b->order[i]].yes, b->splits[b->order[i]].no};
        b->place[b->order[i]] = i;
        for (int side = 0; side < 2; side++)
            if (to[side] >= 0) {
                if (b->n + 1 >= LEAVES)
                    return false;
                b->order[b->n++] = to[side];
            }
    }
    return true;
}

/* What is a bush and what is not, from the leaves up; returns the leaf numbers that takes. Without padding bushes are complete trees. */
static int32_t choose(code_builder *b, bool padding)
{
    int32_t leaves[LEAVES];
    for (int32_t i = b->n; i-- > 0;) {
        int32_t to[2] = {b->splits[b->order[i]].yes, b->splits[b->order[i]].no};
        b->cost[i] = split_cost;
        b->size[i] = 1;
        b->height[i] = 1;
        b->levels[i] = 0;
        leaves[i] = 0;
        for (int side = 0; side < 2; side++) {
            int32_t k = to[side] < 0 ? -1 : b->place[to[side]];
            leaves[i] += k < 0 ? 1 : leaves[k];
            if (k < 0)
                continue;
            b->cost[i] += b->cost[k];
            b->size[i] += b->size[k];
            b->height[i] = b->height[k] + 1 > b->height[i] ? (uint8_t)(b->height[k] + 1) : b->height[i];
        }
        for (int levels = 1; levels <= LEVELS; levels++)
            if (b->height[i] <= levels && (padding || b->size[i] == (1 << levels) - 1) && bush_cost[levels] < b->cost[i]) {
                b->cost[i] = bush_cost[levels];
                b->levels[i] = (uint8_t)levels;
                leaves[i] = 1 << levels;
            }
    }
    return leaves[0];
}

static int32_t new_leaf(code_builder *b, int32_t to)
{
    b->leaf_no[b->n_leaves] = ~to;
    return b->n_leaves++;
}

static void add_bush(code_builder *b, int32_t root, int levels)
{
    eng_tree_bush *to = &b->bushes[b->n_bushes++];
    int32_t at[(1 << (LEVELS + 1)) - 1] = {root}, n = (1 << levels) - 1;
    *to = (eng_tree_bush){.leaf = (uint8_t)b->n_leaves};
    for (int32_t i = 0; i < n; i++) {
        const eng_fast_split *s = at[i] >= 0 ? &b->splits[at[i]] : NULL;
        to->rank[i] = s ? (int8_t)(s->rank - 128) : INT8_MAX; /* no rank is beyond that */
        to->col[i] = s ? (uint16_t)s->column : to->col[0];
        at[2 * i + 1] = s ? s->yes : at[i];
        at[2 * i + 2] = s ? s->no : at[i];
    }
    for (int32_t i = n; i <= 2 * n; i++)
        new_leaf(b, at[i]);
}

static int32_t operand(code_builder *b, int32_t to)
{
    return to < 0 ? new_leaf(b, to) : b->place[to];
}

/* False when the tree does not fit. Offsets stand in the program until keep_programs. */
static bool add_program(code_builder *b, int32_t root, eng_fast_tree *t)
{
    b->n_leaves = 0;
    t->split = root >= 0;
    if (root < 0) {
        new_leaf(b, root);
        t->n_leaves = 1;
        return true;
    }
    if (!order_tree(b, root))
        return false;
    if (choose(b, true) > LEAVES)
        choose(b, false);
    bool live[LEAVES] = {true}; /* not inside a bush */
    for (int32_t i = 0; i < b->n; i++) {
        int32_t to[2] = {b->splits[b->order[i]].yes, b->splits[b->order[i]].no};
        for (int side = 0; side < 2; side++)
            if (to[side] >= 0)
                live[b->place[to[side]]] = live[i] && !b->levels[i];
    }
    b->bushes = eng_heap_room(b->bushes, (size_t)b->n_bushes, (size_t)b->n, &b->bushes_cap, sizeof *b->bushes);
    b->code = eng_heap_room(b->code, (size_t)b->n_code, (size_t)b->n, &b->code_cap, sizeof *b->code);
    int32_t place = 256;
    eng_tree_program *p = &t->program;
    for (int levels = 1; levels <= LEVELS; levels++)
        for (int32_t i = b->n; i-- > 0;)
            if (live[i] && b->levels[i] == levels) {
                add_bush(b, b->order[i], levels);
                b->place[b->order[i]] = place++;
                p->n_bushes[levels - 1]++;
            }
    for (int32_t i = b->n; i-- > 0;)
        if (live[i] && !b->levels[i]) {
            const eng_fast_split *s = &b->splits[b->order[i]];
            uint16_t yes = (uint16_t)operand(b, s->yes), no = (uint16_t)operand(b, s->no);
            b->code[b->n_code++] = (eng_tree_code){.rank = (int8_t)(s->rank - 128), .col = (uint16_t)s->column, .yes = yes, .no = no};
            b->place[b->order[i]] = place++;
            p->n++;
        }
    t->n_leaves = b->n_leaves;
    b->q->places_max = place - 256 > b->q->places_max ? place - 256 : b->q->places_max;
    return true;
}

static void keep_programs(code_builder *b)
{
    eng_tree_bush *bushes = eng_op_keep(b->c, (size_t)b->n_bushes * sizeof *bushes + 8);
    eng_tree_code *code = eng_op_keep(b->c, (size_t)b->n_code * sizeof *code + 8);
    if (b->n_bushes)
        memcpy(bushes, b->bushes, (size_t)b->n_bushes * sizeof *bushes);
    if (b->n_code)
        memcpy(code, b->code, (size_t)b->n_code * sizeof *code);
    for (int32_t i = 0; i < b->f->n_trees; i++) {
        eng_tree_program *p = &b->q->trees[i].program;
        p->bushes = bushes;
        p->code = code;
        bushes += p->n_bushes[0] + p->n_bushes[1] + p->n_bushes[2];
        code += p->n;
    }
    eng_heap_free(b->bushes);
    eng_heap_free(b->code);
}

/* ---- tables ---- */

/* Leaf weights as tables by target; leaves of one tree with different targets, or one twice, stay with the walk. */
static bool add_tables(code_builder *b, eng_fast_tree *t)
{
    const eng_forest *f = b->f;
    const int32_t *leaf_no = b->leaf_no;
    int32_t n = f->leaves[leaf_no[0]].n, n_leaves = t->n_leaves;
    int64_t need = (int64_t)n * n_leaves;
    if (b->n_tables + need > TABLE_FLOATS_MAX)
        return false;
    b->targets = eng_heap_room(b->targets, (size_t)b->n_targets, (size_t)n, &b->targets_cap, sizeof *b->targets);
    int32_t *targets = b->targets + b->n_targets;
    for (int32_t k = 0; k < n; k++)
        targets[k] = f->weights[f->leaves[leaf_no[0]].at + k].target;
    for (int32_t k = 1; k < n; k++)
        if (targets[k] <= targets[k - 1])
            return false;
    for (int32_t i = 0; i < n_leaves; i++) {
        const eng_tree_leaf *l = &f->leaves[leaf_no[i]];
        if (l->n != n)
            return false;
        for (int32_t k = 0; k < n; k++)
            if (f->weights[l->at + k].target != targets[k])
                return false;
    }
    b->tables_d = eng_heap_room(b->tables_d, (size_t)b->n_tables, (size_t)need, &b->tables_cap, sizeof *b->tables_d);
    for (int32_t i = 0; i < n_leaves; i++)
        for (int32_t k = 0; k < n; k++) {
            double v = f->weights[f->leaves[leaf_no[i]].at + k].value;
            b->tables_d[b->n_tables + (int64_t)k * n_leaves + i] = v;
            b->no_floats |= (double)(float)v != v;
        }
    t->table = b->n_tables;
    t->targets = (int32_t)b->n_targets;
    t->n_targets = n;
    b->n_tables += need;
    b->n_targets += n;
    return true;
}

static void keep_tables(code_builder *b)
{
    eng_forest_fast *q = b->q;
    if (b->no_floats) {
        q->tables_d = eng_op_keep(b->c, (size_t)b->n_tables * sizeof *q->tables_d + 8);
        if (b->n_tables)
            memcpy(q->tables_d, b->tables_d, (size_t)b->n_tables * sizeof *q->tables_d);
    } else {
        q->tables_f = eng_op_keep(b->c, (size_t)b->n_tables * sizeof *q->tables_f + 8);
        for (int64_t i = 0; i < b->n_tables; i++)
            q->tables_f[i] = (float)b->tables_d[i];
    }
    eng_heap_free(b->tables_d);
    q->targets = eng_op_keep(b->c, (size_t)b->n_targets * sizeof *q->targets + 8);
    if (b->n_targets)
        memcpy(q->targets, b->targets, (size_t)b->n_targets * sizeof *q->targets);
    eng_heap_free(b->targets);
}

/* A tree without a program or tables is walked: what it began to add is taken back by the counters, nothing behind them is read. */
void eng_fast_programs(eng_op_ctx *c, const eng_forest *f, eng_forest_fast *q, const eng_fast_split *splits, bool ranked)
{
    code_builder *b = eng_heap_alloc(sizeof *b);
    int32_t n_ids = 0;
    *b = (code_builder){.c = c, .f = f, .q = q, .splits = splits};
    b->place = eng_heap_alloc((size_t)f->n_nodes * sizeof *b->place);
    size_t ids_cap = 0;
    int32_t *ids = NULL;
    for (int32_t i = 0; i < f->n_trees; i++) {
        eng_fast_tree *t = &q->trees[i];
        int64_t bushes = b->n_bushes, code = b->n_code;
        t->walked = !ranked || !add_program(b, f->roots[i], t) || !add_tables(b, t);
        PST_ASSERT(b->n_bushes >= bushes && b->n_code >= code);
        if (t->walked) {
            b->n_bushes = bushes;
            b->n_code = code;
            t->program = (eng_tree_program){0};
            continue;
        }
        q->n_ranked++;
        t->ids = n_ids;
        if (f->lines) {
            ids = eng_heap_room(ids, (size_t)n_ids, (size_t)t->n_leaves, &ids_cap, sizeof *ids);
            memcpy(ids + n_ids, b->leaf_no, (size_t)t->n_leaves * sizeof *ids);
            n_ids += t->n_leaves;
        }
    }
    keep_programs(b);
    keep_tables(b);
    if (ids) {
        q->ids = eng_op_keep(c, (size_t)n_ids * sizeof *ids);
        memcpy(q->ids, ids, (size_t)n_ids * sizeof *ids);
    }
    eng_heap_free(ids);
    eng_heap_free(b->place);
    eng_heap_free(b);
}
