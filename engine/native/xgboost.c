/* xgboost.c - XGBoost's model files (JSON and UBJSON, layouts of 1.0 to 3.2) → a native model.
 *
 * The document's keys are taken in whatever order they come: what belongs together (base scores and objective, groups and trees) meets at
 * the end. Keys that do not change predictions are passed over. In a tree, a node whose left child is -1 is a leaf; its value stands in
 * split_conditions, or, for trees with a vector a leaf, in leaf_weights at right_children[node] (since 3.2) or in base_weights (before). A
 * categorical split sends members of its set to the right. Predictions are made as the library's Booster.predict does with its defaults:
 * with all trees. A best_iteration that early stopping left is reported (native.remark): XGBModel.predict, of the scikit-learn face, would stop there. */
#include "engine/heap.h"
#include "engine/native/categories.h"
#include "engine/native/draft.h"
#include "engine/native/native.h"
#include "engine/native/pull.h"
#include "engine/native/xgboost_objective.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CATEGORY_END (1 << 24) /* XGBoost's own limit: whole numbers a float holds */

typedef struct ints {
    int64_t *at;
    size_t n, cap;
} ints;

typedef struct floats {
    float *at;
    size_t n, cap;
} floats;

/* The lists of one tree, used again for the next. */
typedef struct xgb_tree {
    ints left, right, feature, default_left, split_type, cat, cat_nodes, cat_segments, cat_sizes;
    floats condition, base_weights, leaf_weights;
    int64_t leaf_size;
} xgb_tree;

typedef struct xgb {
    eng_pull p;
    eng_draft d;
    eng_native *n;
    eng_zone *zone;
    pst_err *err;
    xgb_tree tree;
    ints tree_info;
    floats weight_drop, weights, base_score;
    int64_t num_feature, num_class, num_target, leaf_size;
    int64_t best_iteration; /* -1 = none */
    bool has_model, is_linear, is_dart, has_trees;
    int64_t version[3];
    const char **names;
    size_t n_names, cap_names;
    eng_categories categories;
    ints cat_offsets, cat_values; /* of the list at hand */
    size_t n_cats;                /* lists, empty ones too: as many as features, or none */
    bool cut_names;               /* one of them could not be used */
    size_t far_tree;              /* where the largest feature number stands */
    int32_t far_node, far_feature;
} xgb;

/* ---- lists and numbers ---- */

static int expect(xgb *x, const eng_pull_token *t, eng_pull_kind kind, const char *what)
{
    return t->kind == kind ? 0
                           : eng_pull_fail(&x->p, PST_EPARSE, "%s is %s where XGBoost writes %s", what, eng_pull_kind_name(t->kind),
                                           eng_pull_kind_name(kind));
}

static int read_ints(xgb *x, const char *what, ints *to)
{
    eng_pull_token t;
    int rc = eng_pull_next(&x->p, &t);
    if (rc < 0 || (rc = expect(x, &t, ENG_PULL_ARRAY, what)) < 0)
        return rc;
    for (to->n = 0; (rc = eng_pull_next(&x->p, &t)) == 0 && t.kind != ENG_PULL_ARRAY_END;) {
        if (t.kind != ENG_PULL_INT && t.kind != ENG_PULL_BOOL)
            return eng_pull_fail(&x->p, PST_EPARSE, "tree %zu: %s[%zu] is %s, not a whole number", x->d.n_trees, what, to->n,
                                 eng_pull_kind_name(t.kind));
        if ((rc = eng_draft_grow(&x->d, &to->at, to->n, &to->cap, 1, sizeof *to->at)) < 0)
            return rc;
        to->at[to->n++] = t.i;
    }
    return rc;
}

static int read_floats(xgb *x, const char *what, floats *to)
{
    eng_pull_token t;
    int rc = eng_pull_next(&x->p, &t);
    if (rc < 0 || (rc = expect(x, &t, ENG_PULL_ARRAY, what)) < 0)
        return rc;
    for (to->n = 0; (rc = eng_pull_next(&x->p, &t)) == 0 && t.kind != ENG_PULL_ARRAY_END;) {
        if (t.kind != ENG_PULL_INT && t.kind != ENG_PULL_REAL)
            return eng_pull_fail(&x->p, PST_EPARSE, "tree %zu: %s[%zu] is %s, not a number", x->d.n_trees, what, to->n,
                                 eng_pull_kind_name(t.kind));
        if ((rc = eng_draft_grow(&x->d, &to->at, to->n, &to->cap, 1, sizeof *to->at)) < 0)
            return rc;
        to->at[to->n++] = t.f;
    }
    return rc;
}

/* Parameters are written as texts ("7"); numbers are taken too. */
static int read_param(xgb *x, const char *what, int64_t max, int64_t *ret)
{
    eng_pull_token t;
    int rc = eng_pull_next(&x->p, &t);
    if (rc < 0)
        return rc;
    int64_t v = t.i;
    if (t.kind == ENG_PULL_TEXT) {
        v = t.n && t.n <= 18 ? 0 : -1;
        for (size_t i = 0; v >= 0 && i < t.n; i++)
            v = t.s[i] >= '0' && t.s[i] <= '9' ? v * 10 + (t.s[i] - '0') : -1;
    } else if (t.kind != ENG_PULL_INT) {
        v = -1;
    }
    if (v < 0 || v > max)
        return eng_pull_fail(&x->p, PST_EPARSE, "%s is \"%.40s\"; a whole number from 0 to %lld was expected", what,
                             t.kind == ENG_PULL_TEXT ? t.s : eng_pull_kind_name(t.kind), (long long)max);
    *ret = v;
    return 0;
}

/* A number, "5E-1" or "[4.58E-1,1E0]": how versions 1, 2 and 3 write it. */
static int read_base_score(xgb *x)
{
    eng_pull_token t;
    int rc = eng_pull_next(&x->p, &t);
    if (rc < 0)
        return rc;
    x->base_score.n = 0;
    if ((rc = eng_draft_grow(&x->d, &x->base_score.at, 0, &x->base_score.cap, 1, sizeof(float))) < 0)
        return rc;
    if (t.kind == ENG_PULL_INT || t.kind == ENG_PULL_REAL) {
        x->base_score.at[x->base_score.n++] = t.f;
        return 0;
    }
    if ((rc = expect(x, &t, ENG_PULL_TEXT, "base_score")) < 0)
        return rc;
    bool list = t.s[0] == '[';
    const char *at = t.s + list;
    for (;;) {
        char *end;
        float v = strtof_l(at, &end, x->p.c_locale);
        if (end == at || !isfinite(v))
            return eng_pull_fail(&x->p, PST_EPARSE, "base_score is \"%.60s\": no finite number at its place %zu", t.s, x->base_score.n);
        if ((rc = eng_draft_grow(&x->d, &x->base_score.at, x->base_score.n, &x->base_score.cap, 1, sizeof(float))) < 0)
            return rc;
        x->base_score.at[x->base_score.n++] = v;
        at = end;
        if (!list || *at != ',')
            break;
        at++;
    }
    if (list ? strcmp(at, "]") != 0 : *at != 0)
        return eng_pull_fail(&x->p, PST_EPARSE, "base_score is \"%.60s\": more behind its numbers", t.s);
    return 0;
}

static const char *kept(xgb *x, const char *s, size_t n)
{
    return eng_zone_strdup(x->zone, s, n);
}

/* ---- objects: a table of keys each ---- */

typedef struct field {
    const char *key;
    int (*read)(xgb *x);
} field;

static int read_fields(xgb *x, const field *fields) /* behind the brace */
{
    eng_pull_token t;
    int rc;
    while ((rc = eng_pull_next(&x->p, &t)) == 0 && t.kind != ENG_PULL_OBJECT_END) {
        const field *f = fields;
        while (f->key && strcmp(f->key, t.s))
            f++;
        if (f->key)
            rc = f->read(x);
        else if ((rc = eng_pull_next(&x->p, &t)) == 0)
            rc = eng_pull_skip(&x->p, &t);
        if (rc < 0)
            return rc;
    }
    return rc;
}

static int read_object(xgb *x, const char *what, const field *fields)
{
    eng_pull_token t;
    int rc = eng_pull_next(&x->p, &t);
    return rc < 0 || (rc = expect(x, &t, ENG_PULL_OBJECT, what)) < 0 ? rc : read_fields(x, fields);
}

#define READ_INTS(NAME, KEY)                     \
    static int read_##NAME(xgb *x)               \
    {                                            \
        return read_ints(x, KEY, &x->tree.NAME); \
    }
#define READ_FLOATS(NAME, KEY)                     \
    static int read_##NAME(xgb *x)                 \
    {                                              \
        return read_floats(x, KEY, &x->tree.NAME); \
    }
READ_INTS(left, "left_children")
READ_INTS(right, "right_children")
READ_INTS(feature, "split_indices")
READ_INTS(default_left, "default_left")
READ_INTS(split_type, "split_type")
READ_INTS(cat, "categories")
READ_INTS(cat_nodes, "categories_nodes")
READ_INTS(cat_segments, "categories_segments")
READ_INTS(cat_sizes, "categories_sizes")
READ_FLOATS(condition, "split_conditions")
READ_FLOATS(base_weights, "base_weights")
READ_FLOATS(leaf_weights, "leaf_weights")

static int read_leaf_size(xgb *x)
{
    return read_param(x, "size_leaf_vector", ENG_NATIVE_GROUPS_MAX, &x->tree.leaf_size);
}

static int read_tree_param(xgb *x)
{
    static const field fields[] = {{"size_leaf_vector", read_leaf_size}, {0}};
    return read_object(x, "tree_param", fields);
}

/* ---- one tree ---- */

/* The nodes the root leads to, marked by their place among splits or (as ~place) among leaves; pruned ones stay in the file and are not
 * looked at. */
static int find_nodes(xgb *x, int32_t *place, int32_t *stack, size_t *ret_splits, size_t *ret_leaves)
{
    const xgb_tree *t = &x->tree;
    size_t n = t->left.n, top = 0;
    enum { UNSEEN = INT32_MIN };
    *ret_splits = *ret_leaves = 0;
    for (size_t i = 0; i < n; i++)
        place[i] = UNSEEN;
    stack[top++] = 0;
    place[0] = 0; /* seen; its number comes when it is taken from the stack */
    while (top) {
        int32_t at = stack[--top];
        if (t->left.at[at] < 0) {
            place[at] = ~(int32_t)(*ret_leaves)++;
            continue;
        }
        place[at] = (int32_t)(*ret_splits)++;
        for (int side = 1; side >= 0; side--) {
            int64_t to = side ? t->right.at[at] : t->left.at[at];
            if (to < 0 || (uint64_t)to >= n)
                return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: %s[%d] is %lld; the tree has %zu nodes", x->d.n_trees,
                                      side ? "right_children" : "left_children", at, (long long)to, n);
            if (place[to] != UNSEEN)
                return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: node %lld has two parents or stands above itself", x->d.n_trees,
                                      (long long)to);
            place[to] = 0;
            stack[top++] = (int32_t)to;
        }
    }
    return 0;
}

static int check_lengths(xgb *x)
{
    const xgb_tree *t = &x->tree;
    size_t n = t->left.n;
    const struct {
        const char *key;
        size_t n;
        bool needed;
    } lists[] = {{"right_children", t->right.n, true},       {"split_indices", t->feature.n, true},
                 {"split_conditions", t->condition.n, true}, {"default_left", t->default_left.n, true},
                 {"split_type", t->split_type.n, false},     {"categories_segments", t->cat_segments.n, false}};
    if (!n || n > INT32_MAX / 4)
        return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: left_children has %zu elements", x->d.n_trees, n);
    for (size_t i = 0; i < 5; i++)
        if (lists[i].n != n && (lists[i].needed || lists[i].n))
            return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: %s has %zu elements, left_children has %zu", x->d.n_trees, lists[i].key,
                                  lists[i].n, n);
    if (t->cat_segments.n != t->cat_nodes.n || t->cat_sizes.n != t->cat_nodes.n)
        return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: categories_nodes, _segments and _sizes differ in length", x->d.n_trees);
    if (t->leaf_size > 1 && t->leaf_weights.n % (size_t)t->leaf_size)
        return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: leaf_weights has %zu elements, no multiple of size_leaf_vector %lld",
                              x->d.n_trees, t->leaf_weights.n, (long long)t->leaf_size);
    if (t->leaf_size > 1 && !t->leaf_weights.n && t->base_weights.n != n * (size_t)t->leaf_size)
        return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: base_weights has %zu elements for %zu nodes of %lld values", x->d.n_trees,
                              t->base_weights.n, n, (long long)t->leaf_size);
    return 0;
}

static int add_categories(xgb *x, size_t node, size_t *cat_at, eng_tree_node *to)
{
    const xgb_tree *t = &x->tree;
    while (*cat_at < t->cat_nodes.n && t->cat_nodes.at[*cat_at] < (int64_t)node) /* ascending in the file */
        ++*cat_at;
    if (*cat_at == t->cat_nodes.n || t->cat_nodes.at[*cat_at] != (int64_t)node)
        return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: node %zu is categorical and not in categories_nodes", x->d.n_trees, node);
    int64_t from = t->cat_segments.at[*cat_at], size = t->cat_sizes.at[*cat_at], top = -1;
    if (from < 0 || size < 0 || from > (int64_t)t->cat.n || size > (int64_t)t->cat.n - from)
        return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: the categories of node %zu lie outside its list of %zu", x->d.n_trees, node,
                              t->cat.n);
    for (int64_t i = from; i < from + size; i++) {
        if (t->cat.at[i] < 0 || t->cat.at[i] >= CATEGORY_END)
            return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: node %zu has category %lld; 0 to %d are possible", x->d.n_trees, node,
                                  (long long)t->cat.at[i], CATEGORY_END - 1);
        top = t->cat.at[i] > top ? t->cat.at[i] : top;
    }
    int rc = eng_draft_bits(&x->d, (size_t)(top / 32 + 1), to);
    for (int64_t i = from; i < from + size && rc == 0; i++)
        x->d.bits[to->set_at + t->cat.at[i] / 32] |= UINT32_C(1) << (t->cat.at[i] % 32);
    return rc;
}

static int add_split(xgb *x, size_t i, const int32_t *place, size_t *cat_at, eng_tree_node *to)
{
    const xgb_tree *t = &x->tree;
    int64_t feature = t->feature.at[i];
    bool categorical = t->split_type.n && t->split_type.at[i] == 1;
    if (feature < 0 || feature >= ENG_NATIVE_FEATURES_MAX)
        return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: node %zu splits by feature %lld", x->d.n_trees, i, (long long)feature);
    if (t->split_type.n && (t->split_type.at[i] < 0 || t->split_type.at[i] > 1))
        return eng_draft_fail(&x->d, PST_EUNSUPPORTED, "tree %zu: node %zu has split_type %lld; 0 and 1 are known", x->d.n_trees, i,
                              (long long)t->split_type.at[i]);
    if (!categorical && isnan(t->condition.at[i]))
        return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: node %zu compares with NaN", x->d.n_trees, i);
    if (feature >= x->far_feature) {
        x->far_feature = (int32_t)feature;
        x->far_tree = x->d.n_trees;
        x->far_node = (int32_t)i;
    }
    bool left = t->default_left.at[i] != 0;
    *to = (eng_tree_node){.feature = (int32_t)feature,
                          .mode = ENG_TREE_LT,
                          .split = (double)t->condition.at[i],
                          .yes = place[t->left.at[i]],
                          .no = place[t->right.at[i]],
                          .missing_yes = left};
    if (!categorical)
        return 0;
    to->mode = ENG_TREE_BITS; /* members go to the right */
    to->split = 0;
    to->yes = place[t->right.at[i]];
    to->no = place[t->left.at[i]];
    to->missing_yes = !left;
    return add_categories(x, i, cat_at, to);
}

static int add_leaf(xgb *x, size_t i, int32_t place)
{
    const xgb_tree *t = &x->tree;
    size_t k = t->leaf_size > 1 ? (size_t)t->leaf_size : 1;
    const float *from = &t->condition.at[i];
    if (k > 1 && t->leaf_weights.n) {
        int64_t at = t->right.at[i];
        if (at < 0 || (uint64_t)at >= t->leaf_weights.n / k)
            return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: leaf %zu takes vector %lld of leaf_weights; there are %zu", x->d.n_trees, i,
                                  (long long)at, t->leaf_weights.n / k);
        from = &t->leaf_weights.at[(size_t)at * k];
    } else if (k > 1) {
        from = &t->base_weights.at[i * k];
    }
    int rc = eng_draft_grow(&x->d, &x->d.weights, x->d.n_weights, &x->d.cap_weights, k, sizeof *x->d.weights);
    if (rc < 0)
        return rc;
    x->d.leaves[x->d.n_leaves + (size_t)~place] = (eng_tree_leaf){.at = (int32_t)x->d.n_weights, .n = (int32_t)k};
    for (size_t q = 0; q < k; q++)
        x->d.weights[x->d.n_weights++] = (eng_tree_weight){.target = (int32_t)q, .value = (double)from[q]};
    return 0;
}

/* A tree counts in the draft (n_nodes, n_leaves) when all of it is there: places of splits and leaves are offsets from these until then. */
static int finish_tree(xgb *x)
{
    const xgb_tree *t = &x->tree;
    eng_draft *d = &x->d;
    size_t n = t->left.n, splits = 0, leaves = 0, cat_at = 0;
    int32_t *place = NULL;
    int rc = check_lengths(x);
    if (rc < 0)
        return rc;
    if (d->n_trees && (t->leaf_size > 1 ? t->leaf_size : 1) != x->leaf_size)
        return eng_draft_fail(d, PST_EPARSE, "tree %zu: size_leaf_vector is %lld, that of the trees before is %lld", d->n_trees,
                              (long long)t->leaf_size, (long long)x->leaf_size);
    x->leaf_size = t->leaf_size > 1 ? t->leaf_size : 1;
    place = eng_heap_alloc((2 * n + 2) * sizeof *place);
    if ((rc = find_nodes(x, place, place + n, &splits, &leaves)) < 0 ||
        (rc = eng_draft_grow(d, &d->nodes, d->n_nodes, &d->cap_nodes, splits, sizeof *d->nodes)) < 0 ||
        (rc = eng_draft_grow(d, &d->leaves, d->n_leaves, &d->cap_leaves, leaves, sizeof *d->leaves)) < 0)
        goto out;
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (place[i] == INT32_MIN)
            continue;
        rc = place[i] >= 0 ? add_split(x, i, place, &cat_at, &d->nodes[d->n_nodes + (size_t)place[i]]) : add_leaf(x, i, place[i]);
    }
    if (rc < 0)
        goto out;
    d->n_nodes += splits;
    d->n_leaves += leaves;
    rc = eng_draft_tree(d, splits, leaves);
out:
    eng_heap_free(place);
    return rc;
}

static void clear_tree(xgb_tree *t)
{
    t->left.n = t->right.n = t->feature.n = t->default_left.n = t->split_type.n = 0;
    t->cat.n = t->cat_nodes.n = t->cat_segments.n = t->cat_sizes.n = 0;
    t->condition.n = t->base_weights.n = t->leaf_weights.n = 0;
    t->leaf_size = 1;
}

static int read_trees(xgb *x)
{
    static const field fields[] = {{"left_children", read_left},
                                   {"right_children", read_right},
                                   {"split_indices", read_feature},
                                   {"split_conditions", read_condition},
                                   {"default_left", read_default_left},
                                   {"split_type", read_split_type},
                                   {"categories", read_cat},
                                   {"categories_nodes", read_cat_nodes},
                                   {"categories_segments", read_cat_segments},
                                   {"categories_sizes", read_cat_sizes},
                                   {"base_weights", read_base_weights},
                                   {"leaf_weights", read_leaf_weights},
                                   {"tree_param", read_tree_param},
                                   {0}};
    eng_pull_token t;
    int rc = eng_pull_next(&x->p, &t);
    if (rc < 0 || (rc = expect(x, &t, ENG_PULL_ARRAY, "trees")) < 0)
        return rc;
    if (x->has_trees)
        return eng_pull_fail(&x->p, PST_EPARSE, "a second list of trees");
    x->has_trees = true;
    while ((rc = eng_pull_next(&x->p, &t)) == 0 && t.kind != ENG_PULL_ARRAY_END) {
        clear_tree(&x->tree);
        if ((rc = expect(x, &t, ENG_PULL_OBJECT, "a tree")) < 0 || (rc = read_fields(x, fields)) < 0 || (rc = finish_tree(x)) < 0)
            return rc;
    }
    return rc;
}

/* ---- the rest of the document ---- */

static int read_tree_info(xgb *x)
{
    return read_ints(x, "tree_info", &x->tree_info);
}

static int read_weights(xgb *x)
{
    return read_floats(x, "weights", &x->weights);
}

static int read_cat_offsets(xgb *x)
{
    return read_ints(x, "cats.enc offsets", &x->cat_offsets);
}

static int read_cat_values(xgb *x)
{
    return read_ints(x, "cats.enc values", &x->cat_values);
}

/* The names of one feature's categories: whole numbers, or texts as the bytes of all and where each begins. None for a feature of numbers. Where there are
 * letters beyond ASCII, XGBoost (3.1, 3.2, of a pandas table) counts characters where it cuts bytes, so that these names and those behind them are not what
 * they were; nothing in the file tells it from one that is right, so none of them is used. */
static int take_names_of(xgb *x)
{
    const ints *offsets = &x->cat_offsets, *values = &x->cat_values;
    eng_categories_begin(&x->categories);
    for (size_t i = 0; !offsets->n && i < values->n; i++)
        eng_categories_number(&x->categories, values->at[i]);
    char *bytes = eng_heap_alloc(values->n + 1);
    bool ascii = true;
    for (size_t i = 0; offsets->n && i < values->n; i++) {
        bytes[i] = (char)values->at[i];
        ascii &= values->at[i] >= 0 && values->at[i] < 0x80;
    }
    int rc = 0;
    x->cut_names |= !ascii;
    for (size_t i = 0; rc == 0 && ascii && i + 1 < offsets->n; i++) {
        int64_t from = offsets->at[i], to = offsets->at[i + 1];
        if (from < 0 || to < from || (uint64_t)to > values->n)
            rc = eng_draft_fail(&x->d, PST_EPARSE, "cats.enc[%zu]: name %zu lies outside its %zu bytes", x->n_cats, i, values->n);
        else
            eng_categories_text(&x->categories, bytes + from, (size_t)(to - from));
    }
    eng_heap_free(bytes);
    eng_categories_end(&x->categories, (int64_t)x->n_cats++);
    return rc;
}

/* Since 3.1, of data that had names (a table's categorical columns). */
static int read_enc(xgb *x)
{
    static const field fields[] = {{"offsets", read_cat_offsets}, {"values", read_cat_values}, {0}};
    eng_pull_token t;
    int rc = eng_pull_next(&x->p, &t);
    if (rc < 0 || (rc = expect(x, &t, ENG_PULL_ARRAY, "cats.enc")) < 0)
        return rc;
    while ((rc = eng_pull_next(&x->p, &t)) == 0 && t.kind != ENG_PULL_ARRAY_END) {
        x->cat_offsets.n = x->cat_values.n = 0;
        if ((rc = expect(x, &t, ENG_PULL_OBJECT, "an element of cats.enc")) < 0 || (rc = read_fields(x, fields)) < 0 ||
            (rc = take_names_of(x)) < 0)
            return rc;
        if (x->n_cats > ENG_NATIVE_FEATURES_MAX)
            return eng_draft_fail(&x->d, PST_ELIMIT, "cats.enc has more than %d elements", ENG_NATIVE_FEATURES_MAX);
    }
    return rc;
}

static int read_cats(xgb *x)
{
    static const field fields[] = {{"enc", read_enc}, {0}};
    return read_object(x, "cats", fields);
}

static int read_model(xgb *x)
{
    static const field fields[] = {
        {"trees", read_trees}, {"tree_info", read_tree_info}, {"weights", read_weights}, {"cats", read_cats}, {0}};
    return read_object(x, "gradient_booster.model", fields);
}

static int read_booster_name(xgb *x)
{
    eng_pull_token t;
    int rc = eng_pull_next(&x->p, &t);
    if (rc < 0 || (rc = expect(x, &t, ENG_PULL_TEXT, "gradient_booster.name")) < 0)
        return rc;
    x->is_linear = !strcmp(t.s, "gblinear");
    x->is_dart = !strcmp(t.s, "dart");
    if (!x->is_linear && !x->is_dart && strcmp(t.s, "gbtree"))
        return eng_draft_fail(&x->d, PST_EUNSUPPORTED, "the booster is \"%.60s\"; gbtree, dart and gblinear are covered", t.s);
    x->n->booster = kept(x, t.s, t.n);
    return 0;
}

static int read_weight_drop(xgb *x)
{
    return read_floats(x, "weight_drop", &x->weight_drop);
}

static int read_inner_booster(xgb *x) /* dart holds a gbtree */
{
    static const field fields[] = {{"model", read_model}, {0}};
    return read_object(x, "gradient_booster.gbtree", fields);
}

static int read_booster(xgb *x)
{
    static const field fields[] = {
        {"model", read_model}, {"name", read_booster_name}, {"gbtree", read_inner_booster}, {"weight_drop", read_weight_drop}, {0}};
    x->has_model = true;
    return read_object(x, "learner.gradient_booster", fields);
}

static int read_num_feature(xgb *x)
{
    return read_param(x, "num_feature", ENG_NATIVE_FEATURES_MAX, &x->num_feature);
}

static int read_num_class(xgb *x)
{
    return read_param(x, "num_class", ENG_NATIVE_GROUPS_MAX, &x->num_class);
}

static int read_num_target(xgb *x)
{
    return read_param(x, "num_target", ENG_NATIVE_GROUPS_MAX, &x->num_target);
}

static int read_learner_param(xgb *x)
{
    static const field fields[] = {{"base_score", read_base_score},
                                   {"num_class", read_num_class},
                                   {"num_feature", read_num_feature},
                                   {"num_target", read_num_target},
                                   {0}};
    return read_object(x, "learner_model_param", fields);
}

static int read_objective_name(xgb *x)
{
    eng_pull_token t;
    int rc = eng_pull_next(&x->p, &t);
    if (rc < 0 || (rc = expect(x, &t, ENG_PULL_TEXT, "objective.name")) < 0)
        return rc;
    x->n->objective = kept(x, t.s, t.n);
    return 0;
}

static int read_objective(xgb *x)
{
    static const field fields[] = {{"name", read_objective_name}, {0}};
    return read_object(x, "learner.objective", fields);
}

static int read_names(xgb *x)
{
    eng_pull_token t;
    int rc = eng_pull_next(&x->p, &t);
    if (rc < 0 || (rc = expect(x, &t, ENG_PULL_ARRAY, "feature_names")) < 0)
        return rc;
    for (x->n_names = 0; (rc = eng_pull_next(&x->p, &t)) == 0 && t.kind != ENG_PULL_ARRAY_END;) {
        if ((rc = expect(x, &t, ENG_PULL_TEXT, "a name in feature_names")) < 0 ||
            (rc = eng_draft_grow(&x->d, &x->names, x->n_names, &x->cap_names, 1, sizeof *x->names)) < 0)
            return rc;
        if (x->n_names >= ENG_NATIVE_NAMES_MAX)
            return eng_draft_fail(&x->d, PST_ELIMIT, "more than %d feature names", ENG_NATIVE_NAMES_MAX);
        x->names[x->n_names++] = kept(x, t.s, t.n);
    }
    return rc;
}

/* What early stopping left: the library keeps it as text. */
static int read_best_iteration(xgb *x)
{
    eng_pull_token t;
    int rc = eng_pull_next(&x->p, &t);
    if (rc < 0 || t.kind == ENG_PULL_INT || t.kind == ENG_PULL_REAL || (rc = expect(x, &t, ENG_PULL_TEXT, "attributes.best_iteration")) < 0)
        return rc;
    char *end;
    long long best = strtoll(t.s, &end, 10);
    if (end != t.s && !*end && best >= 0) /* anybody may set any attribute: what is no number is nobody's iteration */
        x->best_iteration = best;
    return 0;
}

static int read_attributes(xgb *x)
{
    static const field fields[] = {{"best_iteration", read_best_iteration}, {0}};
    return read_object(x, "learner.attributes", fields);
}

static int read_learner(xgb *x)
{
    static const field fields[] = {
        {"attributes", read_attributes}, {"gradient_booster", read_booster}, {"learner_model_param", read_learner_param},
        {"objective", read_objective},   {"feature_names", read_names},      {0}};
    return read_object(x, "learner", fields);
}

static int read_version(xgb *x)
{
    ints v = {0};
    int rc = read_ints(x, "version", &v);
    for (size_t i = 0; rc == 0 && i < v.n && i < 3; i++)
        x->version[i] = v.at[i];
    eng_heap_free(v.at);
    return rc;
}

static int read_document(xgb *x)
{
    static const field fields[] = {{"learner", read_learner}, {"version", read_version}, {0}};
    eng_pull_token t;
    int rc = read_object(x, "the document", fields);
    if (rc == 0)
        rc = eng_pull_next(&x->p, &t); /* the end, and nothing behind it */
    if (rc == 0 && (!x->has_model || !x->n->objective || !x->n->booster || !x->base_score.n))
        rc = eng_draft_fail(&x->d, PST_EPARSE,
                            "no XGBoost model: it has no %s; Booster.save_model writes model files, dump_model and save_config do not",
                            !x->has_model      ? "learner.gradient_booster"
                            : !x->n->booster   ? "learner.gradient_booster.name"
                            : !x->n->objective ? "learner.objective.name"
                                               : "learner.learner_model_param.base_score");
    return rc;
}

/* ---- putting it together ---- */

static int give_groups(xgb *x)
{
    eng_draft *d = &x->d;
    size_t n = d->n_trees;
    if (x->leaf_size > 1 && x->leaf_size != x->n->n_groups)
        return eng_draft_fail(d, PST_EPARSE, "leaves have %lld values, the model has %d outputs", (long long)x->leaf_size, x->n->n_groups);
    if (x->tree_info.n != n)
        return eng_draft_fail(d, PST_EPARSE, "tree_info has %zu elements for %zu trees", x->tree_info.n, n);
    if (x->is_dart && x->weight_drop.n != n)
        return eng_draft_fail(d, PST_EPARSE, "weight_drop has %zu elements for %zu trees", x->weight_drop.n, n);
    for (size_t t = 0; t < n; t++) {
        int64_t group = x->tree_info.at[t];
        if (group < 0 || group >= x->n->n_groups)
            return eng_draft_fail(d, PST_EPARSE, "tree_info[%zu] is %lld; the model has %d outputs", t, (long long)group, x->n->n_groups);
        for (size_t i = d->weight_at[t]; i < d->weight_at[t + 1]; i++) {
            eng_tree_weight *w = &d->weights[i];
            if (x->leaf_size == 1)
                w->target = (int32_t)group;
            if (x->is_dart) /* the product is rounded to float32 as the library rounds it */
                w->value = (double)((float)w->value * x->weight_drop.at[t]);
        }
    }
    return 0;
}

static int take_linear(xgb *x)
{
    eng_native *n = x->n;
    size_t want = ((size_t)n->n_features + 1) * (size_t)n->n_groups;
    if (x->weights.n != want)
        return eng_draft_fail(&x->d, PST_EPARSE, "weights has %zu elements; %d features and %d outputs need %zu", x->weights.n,
                              n->n_features, n->n_groups, want);
    float *w = eng_zone_alloc(x->zone, want * sizeof *w + 4);
    memcpy(w, x->weights.at, want * sizeof *w);
    n->weights = w;
    return 0;
}

static int take_start(xgb *x)
{
    eng_native *n = x->n;
    float *start = eng_zone_alloc(x->zone, (size_t)n->n_groups * sizeof *start);
    bool old = x->version[0] == 1 && x->version[1] < 3;
    n->start = start;
    if (x->base_score.n != 1 && x->base_score.n != (size_t)n->n_groups)
        return eng_draft_fail(&x->d, PST_EPARSE, "base_score has %zu numbers for %d outputs", x->base_score.n, n->n_groups);
    for (int32_t i = 0; i < n->n_groups; i++) {
        /* gblinear takes the first for all its outputs, as the library does */
        float base = x->base_score.at[x->base_score.n == 1 || x->is_linear ? 0 : i];
        int rc = eng_xgb_margin(n->objective, old, base, &start[i], x->err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Early stopping, and rounds behind the best one: two predicts of the library differ then, so say which one this is. And names that are no use. */
static void take_remark(xgb *x)
{
    char best[300] = "", text[640];
    if (x->best_iteration >= 0 && !x->is_linear && (int64_t)x->d.n_trees / x->n->n_groups > x->best_iteration + 1)
        snprintf(
            best, sizeof best,
            "best_iteration is %lld, and all %zu trees are used, as Booster.predict does; XGBModel.predict stops at the best one: save "
            "booster[:%lld] to have that here",
            (long long)x->best_iteration, x->d.n_trees, (long long)x->best_iteration + 1);
    snprintf(text, sizeof text, "%s%s%s", best, *best && x->cut_names ? "; " : "",
             x->cut_names
                 ? "some names of categories have letters beyond ASCII, which XGBoost does not store whole, so they are not used: give "
                   "the field a vocabulary, {word: code}"
                 : "");
    if (*text)
        x->n->remark = kept(x, text, strlen(text));
}

/* The parts of a file come in any order: what depends on two of them is checked here, behind its last byte, not where it is read. */
static int finish(xgb *x)
{
    eng_native *n = x->n;
    char version[80];
    n->library = "XGBoost";
    snprintf(version, sizeof version, "%lld.%lld.%lld", (long long)x->version[0], (long long)x->version[1], (long long)x->version[2]);
    n->version = kept(x, version, strlen(version));
    n->n_groups = (int32_t)(x->num_class > x->num_target ? x->num_class : x->num_target);
    n->n_groups = n->n_groups ? n->n_groups : 1;
    n->n_features = (int32_t)x->num_feature;
    int rc = eng_xgb_link(n->objective, n->n_groups, &n->link, x->err);
    if (rc < 0 || (rc = take_start(x)) < 0)
        return rc;
    n->n_outputs = n->link == ENG_LINK_ARGMAX_F ? 1 : n->n_groups;
    if (!n->n_features)
        return eng_draft_fail(&x->d, PST_EPARSE, "num_feature is 0 or not there");
    if (x->is_linear) {
        rc = take_linear(x);
    } else {
        if (!x->has_trees)
            return eng_draft_fail(&x->d, PST_EPARSE, "gradient_booster.model has no trees");
        if (x->d.n_nodes && x->far_feature >= n->n_features)
            return eng_draft_fail(&x->d, PST_EPARSE, "tree %zu: node %d splits by feature %d; the model has %d (num_feature)", x->far_tree,
                                  x->far_node, x->far_feature, n->n_features);
        rc = give_groups(x);
    }
    if (rc < 0)
        return rc;
    take_remark(x);
    eng_draft_finish(&x->d, x->zone, &n->forest);
    n->forest.n_targets = n->n_groups;
    n->forest.start = n->start;
    if (x->n_names && x->n_names != (size_t)n->n_features)
        return eng_draft_fail(&x->d, PST_EPARSE, "feature_names has %zu names for %d features", x->n_names, n->n_features);
    if (x->n_cats && x->n_cats != (size_t)n->n_features)
        return eng_draft_fail(&x->d, PST_EPARSE, "cats.enc has %zu elements for %d features", x->n_cats, n->n_features);
    n->categories = eng_categories_take(&x->categories, x->zone);
    const char **names = eng_zone_alloc(x->zone, (x->n_names + 1) * sizeof *names);
    if (x->n_names)
        memcpy(names, x->names, x->n_names * sizeof *names);
    n->names = names;
    n->n_names = x->n_names;
    return 0;
}

static void done(xgb *x)
{
    xgb_tree *t = &x->tree;
    ints *whole[] = {&t->left,      &t->right,        &t->feature,   &t->default_left, &t->split_type,  &t->cat,
                     &t->cat_nodes, &t->cat_segments, &t->cat_sizes, &x->tree_info,    &x->cat_offsets, &x->cat_values};
    floats *real[] = {&t->condition, &t->base_weights, &t->leaf_weights, &x->weight_drop, &x->weights, &x->base_score};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        eng_heap_free(whole[i]->at);
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        eng_heap_free(real[i]->at);
    eng_heap_free(x->names);
    eng_categories_take(&x->categories, x->zone);
    eng_draft_done(&x->d);
    eng_pull_done(&x->p);
}

int eng_native_xgboost(const void *data, size_t len, bool ubjson, const pst_model_limits *limits, eng_zone *zone, eng_native *n,
                       pst_err *err)
{
    xgb *x = eng_heap_alloc(sizeof *x);
    *x = (xgb){.n = n, .zone = zone, .err = err, .far_feature = -1, .leaf_size = 1, .best_iteration = -1};
    eng_pull_init(&x->p, ubjson ? ENG_PULL_UBJSON : ENG_PULL_JSON, data, len, limits->depth_max, err);
    eng_draft_init(&x->d, limits, err);
    int rc = read_document(x);
    if (rc == 0)
        rc = finish(x);
    done(x);
    eng_heap_free(x);
    return rc;
}
