/* tree.c - TreeEnsembleClassifier, TreeEnsembleRegressor (ai.onnx.ml 1 to 4) and TreeEnsemble (5).
 * What the specification leaves open (two classes with one score, base values) follows ONNX Runtime's results, which is what
 * exporters of scikit-learn, XGBoost and LightGBM are tested against. Sums are kept in double. */
#include "engine/heap.h"
#include "engine/ops/kernels.h"
#include "engine/ops/tree.h"
#include "engine/share.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- post transforms ---- */

float eng_logistic(float x)
{
    float v = 1 / (1 + expf(-fabsf(x)));
    return x < 0 ? 1 - v : v;
}

/* √2 · erf⁻¹(2x - 1) by Winitzki's approximation, which is what the reference runtimes compute. */
float eng_probit(float x)
{
    float y = 2 * x - 1, l = logf((1 - y) * (1 + y));
    float v = 2 / (3.14159f * 0.147f) + 0.5f * l, w = 1 / 0.147f * l;
    return 1.41421356f * (y < 0 ? -1.0f : 1.0f) * sqrtf(-v + sqrtf(v * v - w));
}

static void softmax(float *v, int n, bool zero_stays)
{
    float top = v[0], sum = 0;
    for (int i = 1; i < n; i++)
        top = v[i] > top ? v[i] : top;
    float of_zero = expf(-top);
    for (int i = 0; i < n; i++) {
        if (zero_stays && fabsf(v[i]) <= 1e-7f) {
            v[i] *= of_zero;
            continue;
        }
        v[i] = expf(v[i] - top);
        sum += v[i];
    }
    for (int i = 0; i < n; i++)
        v[i] /= sum;
}

void eng_post_row(eng_post post, float *v, int n)
{
    if (n && (post == ENG_POST_SOFTMAX || post == ENG_POST_SOFTMAX_ZERO))
        softmax(v, n, post == ENG_POST_SOFTMAX_ZERO);
    for (int i = 0; i < n && post == ENG_POST_LOGISTIC; i++)
        v[i] = eng_logistic(v[i]);
    for (int i = 0; i < n && post == ENG_POST_PROBIT; i++)
        v[i] = eng_probit(v[i]);
}

static void softmax_wide(double *v, int n, bool zero_stays)
{
    double top = v[0], sum = 0;
    for (int i = 1; i < n; i++)
        top = v[i] > top ? v[i] : top;
    double of_zero = exp(-top);
    for (int i = 0; i < n; i++) {
        bool stays = zero_stays && fabs(v[i]) <= 1e-7;
        v[i] = stays ? v[i] * of_zero : exp(v[i] - top);
        sum += stays ? 0 : v[i];
    }
    for (int i = 0; i < n; i++)
        v[i] /= sum;
}

/* eng_post_row for sums that are to stay double. */
static void post_row_wide(eng_post post, double *v, int n)
{
    if (n && (post == ENG_POST_SOFTMAX || post == ENG_POST_SOFTMAX_ZERO))
        softmax_wide(v, n, post == ENG_POST_SOFTMAX_ZERO);
    for (int i = 0; i < n && post == ENG_POST_LOGISTIC; i++)
        v[i] = 1 / (1 + exp(-v[i]));
    for (int i = 0; i < n && post == ENG_POST_PROBIT; i++) /* an approximation good to three digits: no more is lost */
        v[i] = (double)eng_probit((float)v[i]);
}

eng_post eng_post_of(const char *name)
{
    static const char *const names[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    for (int i = 0; i < 5; i++)
        if (!strcmp(name, names[i]))
            return (eng_post)i;
    return ENG_POST_NONE;
}

/* ---- labels ---- */

void eng_labels_of(const eng_node *node, eng_labels *ret)
{
    size_t n, k;
    ret->texts = eng_attr_strings(node, "classlabels_strings", &n);
    ret->ints = eng_attr_ints(node, !strncmp(node->op_type, "Tree", 4) ? "classlabels_int64s" : "classlabels_ints", &k);
    ret->n = (int)(n ? n : k);
    if (!n)
        ret->texts = NULL;
}

void *eng_labels_out(eng_op_ctx *c, const eng_labels *l, int64_t rows)
{
    return eng_out(c, 0, l->texts ? PST_STR : PST_I64, 1, &rows);
}

void eng_label_put(const eng_labels *l, void *out, int64_t row, int which)
{
    if (l->texts)
        ((const char **)out)[row] = which < l->n ? l->texts[which] : "";
    else
        ((int64_t *)out)[row] = which < l->n ? l->ints[which] : which;
}

const float *eng_in_rows(eng_op_ctx *c, int i, int64_t *rows, int64_t *cols)
{
    const pst_tensor *x = eng_in(c, i);
    if (!x || x->rank > 2) {
        eng_op_fail(c, PST_EINVAL, "input %d must be (N, C)", i);
        return NULL;
    }
    *rows = x->rank == 2 ? x->dims[0] : 1;
    *cols = x->rank ? x->dims[x->rank - 1] : 1;
    if (x->dtype == PST_F32)
        return x->data;
    int64_t n = eng_count(x);
    float *f = eng_op_scratch(c, (size_t)n * 4);
    if (f && eng_convert(PST_F32, f, x->dtype, x->data, n, true) < 0) {
        eng_op_type(c, x->dtype);
        return NULL;
    }
    return f;
}

/* ---- making a forest ---- */

/* Lists of numbers that may be attributes of floats or a tensor (float or double). */
static const double *numbers(eng_op_ctx *c, const char *name, int64_t *ret_n)
{
    char as_tensor[80];
    size_t n = 0;
    const float *f = eng_attr_floats(c->node, name, &n);
    *ret_n = (int64_t)n;
    if (f && n) {
        double *d = eng_op_keep(c, n * sizeof *d);
        eng_convert(PST_F64, d, PST_F32, f, (int64_t)n, true);
        return d;
    }
    snprintf(as_tensor, sizeof as_tensor, "%s_as_tensor", name);
    const eng_attr *a = eng_attr_find(c->node, as_tensor);
    if (!a)
        a = eng_attr_find(c->node, name);
    if (!a || a->type != ENG_ATTR_TENSOR)
        return NULL;
    *ret_n = eng_count(a->t);
    double *d = eng_op_keep(c, (size_t)*ret_n * sizeof *d + 8);
    return eng_convert(PST_F64, d, a->t->dtype, a->t->data, *ret_n, true) < 0 ? NULL : d;
}

static const int64_t *ints(eng_op_ctx *c, const char *name, int64_t *ret_n)
{
    size_t n;
    const int64_t *v = eng_attr_ints(c->node, name, &n);
    *ret_n = (int64_t)n;
    return v;
}

typedef struct key {
    int64_t tree, node;
    int32_t at;
} key;

static int by_key(const void *va, const void *vb)
{
    const key *a = va, *b = vb;
    if (a->tree != b->tree)
        return a->tree < b->tree ? -1 : 1;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return a->at - b->at;
}

static const key *find_key(const key *keys, int64_t n, int64_t tree, int64_t node)
{
    int64_t lo = 0, hi = n;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (keys[mid].tree < tree || (keys[mid].tree == tree && keys[mid].node < node))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && keys[lo].tree == tree && keys[lo].node == node ? &keys[lo] : NULL;
}

static int mode_of(const char *name)
{
    static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE",    "BRANCH_GT",
                                        "BRANCH_EQ",  "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF"};
    for (int i = 0; i < 8; i++)
        if (!strcmp(name, names[i]))
            return i;
    return -1;
}

void eng_forest_settle(eng_forest *f)
{
    f->one_mode = true;
    f->n_features = 0;
    for (int32_t i = 0; i < f->n_nodes; i++) {
        const eng_tree_node *n = &f->nodes[i];
        f->one_mode &= n->mode == f->nodes[0].mode && n->mode <= ENG_TREE_GT;
        f->n_features = n->feature >= f->n_features ? n->feature + 1 : f->n_features;
    }
    f->mode = f->n_nodes ? f->nodes[0].mode : ENG_TREE_LEQ;
}

/* Depth-first from every root: each node may be reached once only, so a walk always ends. */
static int check_forest(eng_op_ctx *c, eng_forest *f)
{
    uint8_t *seen = eng_heap_alloc((size_t)f->n_nodes + 1);
    int rc = 0;
    for (int32_t i = 0; i < f->n_nodes && rc == 0; i++)
        for (int side = 0; side < 2; side++) {
            int32_t to = side ? f->nodes[i].no : f->nodes[i].yes;
            if (to >= f->n_nodes || (to < 0 && ~to >= f->n_leaves))
                rc = eng_op_fail(c, PST_EINVAL, "a node leads to one that is not there");
            else if (to >= 0 && (seen[to]++ || to == i))
                rc = eng_op_fail(c, PST_EINVAL, "a node has two parents");
        }
    for (int32_t t = 0; t < f->n_trees && rc == 0; t++) {
        int32_t r = f->roots[t];
        if (r >= f->n_nodes || (r < 0 && ~r >= f->n_leaves) || (r >= 0 && seen[r]))
            rc = eng_op_fail(c, PST_EINVAL, "tree %d has no root", t);
    } /* one parent each and roots without any: no path from a root can meet a cycle */
    eng_heap_free(seen);
    eng_forest_settle(f);
    for (int64_t i = 0; i < f->n_weights && rc == 0; i++)
        if (f->weights[i].target < 0 || f->weights[i].target >= f->n_targets)
            rc = eng_op_fail(c, PST_EINVAL, "a weight of target %d; there are %d", f->weights[i].target, f->n_targets);
    return rc;
}

/* ai.onnx.ml 1 to 4: parallel lists keyed by tree and node id. prefix: "class" or "target". */
typedef struct lists {
    const int64_t *tree, *node, *feature, *yes, *no, *track;
    const double *value;
    const char *const *mode;
    const int64_t *w_tree, *w_node, *w_id;
    const double *weight;
    int64_t n, n_w, n_track;
} lists;

static int read_lists(eng_op_ctx *c, const char *prefix, lists *l)
{
    char name[40];
    int64_t n[8];
    size_t n_mode;
    l->tree = ints(c, "nodes_treeids", &l->n);
    l->node = ints(c, "nodes_nodeids", &n[0]);
    l->feature = ints(c, "nodes_featureids", &n[1]);
    l->yes = ints(c, "nodes_truenodeids", &n[2]);
    l->no = ints(c, "nodes_falsenodeids", &n[3]);
    l->value = numbers(c, "nodes_values", &n[4]);
    l->mode = eng_attr_strings(c->node, "nodes_modes", &n_mode);
    l->track = ints(c, "nodes_missing_value_tracks_true", &l->n_track);
    for (int i = 0; i < 5; i++)
        if (n[i] != l->n)
            return eng_op_fail(c, PST_EINVAL, "its node lists differ in length");
    if ((int64_t)n_mode != l->n || (l->n_track && l->n_track != l->n) || l->n > INT32_MAX / 4 || !l->n)
        return eng_op_fail(c, PST_EINVAL, "its node lists differ in length or are empty");
    snprintf(name, sizeof name, "%s_treeids", prefix);
    l->w_tree = ints(c, name, &l->n_w);
    snprintf(name, sizeof name, "%s_nodeids", prefix);
    l->w_node = ints(c, name, &n[0]);
    snprintf(name, sizeof name, "%s_ids", prefix);
    l->w_id = ints(c, name, &n[1]);
    snprintf(name, sizeof name, "%s_weights", prefix);
    l->weight = numbers(c, name, &n[2]);
    if (n[0] != l->n_w || n[1] != l->n_w || n[2] != l->n_w)
        return eng_op_fail(c, PST_EINVAL, "its weight lists differ in length");
    return 0;
}

static int by_place(const void *va, const void *vb)
{
    const key *a = va, *b = vb; /* node: the leaf; at: the order in the file */
    return a->node != b->node ? (a->node < b->node ? -1 : 1) : a->at - b->at;
}

static int add_weights(eng_op_ctx *c, eng_forest *f, const lists *l, const key *keys, const int32_t *place)
{
    key *order = eng_heap_alloc(((size_t)l->n_w + 1) * sizeof *order);
    int64_t n = 0;
    for (int64_t i = 0; i < l->n_w; i++) {
        const key *k = find_key(keys, l->n, l->w_tree[i], l->w_node[i]);
        if (!k) {
            eng_heap_free(order);
            return eng_op_fail(c, PST_EINVAL, "a weight belongs to a node that is not there");
        }
        if (place[k->at] < 0) /* weights on inner nodes are never reached */
            order[n++] = (key){.node = ~place[k->at], .at = (int32_t)i};
    }
    qsort(order, (size_t)n, sizeof *order, by_place);
    f->weights = eng_op_keep(c, ((size_t)n + 1) * sizeof *f->weights);
    f->n_weights = n;
    for (int64_t i = 0; i < n; i++) {
        eng_tree_leaf *leaf = &f->leaves[order[i].node];
        if (!leaf->n++)
            leaf->at = (int32_t)i;
        int64_t id = l->w_id[order[i].at];
        f->weights[i] = (eng_tree_weight){.target = id < 0 || id > INT32_MAX ? -1 : (int32_t)id, .value = l->weight[order[i].at]};
    }
    eng_heap_free(order);
    return 0;
}

static int from_lists(eng_op_ctx *c, eng_forest *f, const char *prefix)
{
    lists l;
    int rc = read_lists(c, prefix, &l);
    if (rc < 0)
        return rc;
    key *keys = eng_heap_alloc((size_t)l.n * sizeof *keys);
    int32_t *place = eng_heap_alloc((size_t)l.n * sizeof *place); /* file position → node, or ~leaf */
    uint8_t *child = eng_heap_alloc((size_t)l.n);
    f->nodes = eng_op_keep(c, (size_t)l.n * sizeof *f->nodes);
    f->leaves = eng_op_keep(c, (size_t)l.n * sizeof *f->leaves);
    f->roots = eng_op_keep(c, (size_t)l.n * sizeof *f->roots);
    for (int64_t i = 0; i < l.n; i++) {
        keys[i] = (key){l.tree[i], l.node[i], (int32_t)i};
        int mode = mode_of(l.mode[i]);
        if (mode < 0 || mode == ENG_TREE_MEMBER) {
            rc = eng_op_fail(c, PST_EUNSUPPORTED, "node mode %s is not covered", l.mode[i]);
            goto out;
        }
        place[i] = mode == ENG_TREE_LEAF ? ~f->n_leaves++ : f->n_nodes++;
    }
    qsort(keys, (size_t)l.n, sizeof *keys, by_key);
    for (int64_t i = 1; i < l.n; i++)
        if (keys[i].tree == keys[i - 1].tree && keys[i].node == keys[i - 1].node) {
            rc = eng_op_fail(c, PST_EINVAL, "a node id is used twice in one tree");
            goto out;
        }
    for (int64_t i = 0; i < l.n; i++) {
        if (place[i] < 0)
            continue;
        const key *yes = find_key(keys, l.n, l.tree[i], l.yes[i]), *no = find_key(keys, l.n, l.tree[i], l.no[i]);
        if (!yes || !no || l.feature[i] < 0 || l.feature[i] > INT32_MAX - 1) {
            rc = eng_op_fail(c, PST_EINVAL, "a node has no child or a bad feature");
            goto out;
        }
        child[yes->at] = child[no->at] = 1;
        f->nodes[place[i]] = (eng_tree_node){.split = l.value[i],
                                             .feature = (int32_t)l.feature[i],
                                             .yes = place[yes->at],
                                             .no = place[no->at],
                                             .mode = (uint8_t)mode_of(l.mode[i]),
                                             .missing_yes = l.n_track && l.track[i]};
    }
    for (int64_t i = 0; i < l.n; i++) /* the order of trees in the file is the order of summation */
        if (!child[i])
            f->roots[f->n_trees++] = place[i];
    rc = add_weights(c, f, &l, keys, place);
out:
    eng_heap_free(keys);
    eng_heap_free(place);
    eng_heap_free(child);
    return rc;
}

/* ai.onnx.ml 5: nodes and leaves by position; tensors carry the type. */
static int from_tensors(eng_op_ctx *c, eng_forest *f)
{
    int64_t n, n_feature, n_yes, n_no, n_yl, n_nl, n_roots, n_ids, n_w, n_modes, n_member = 0, n_track;
    const int64_t *feature = ints(c, "nodes_featureids", &n_feature), *yes = ints(c, "nodes_truenodeids", &n_yes),
                  *no = ints(c, "nodes_falsenodeids", &n_no), *yl = ints(c, "nodes_trueleafs", &n_yl),
                  *nl = ints(c, "nodes_falseleafs", &n_nl), *roots = ints(c, "tree_roots", &n_roots),
                  *ids = ints(c, "leaf_targetids", &n_ids), *track = ints(c, "nodes_missing_value_tracks_true", &n_track);
    const double *split = numbers(c, "nodes_splits", &n), *w = numbers(c, "leaf_weights", &n_w),
                 *modes = numbers(c, "nodes_modes", &n_modes), *member = numbers(c, "membership_values", &n_member);
    if (!split || !w || !modes || n_feature != n || n_yes != n || n_no != n || n_yl != n || n_nl != n || n_modes != n || n_ids != n_w ||
        (n_track && n_track != n) || n > INT32_MAX / 4 || n_w > INT32_MAX / 4 || n_roots > INT32_MAX / 4 || !n_w)
        return eng_op_fail(c, PST_EINVAL, "its node and leaf lists differ in length");
    f->n_nodes = (int32_t)n;
    f->n_leaves = (int32_t)n_w;
    f->n_weights = n_w;
    f->n_trees = (int32_t)n_roots;
    f->nodes = eng_op_keep(c, (size_t)n * sizeof *f->nodes + 1);
    f->leaves = eng_op_keep(c, (size_t)n_w * sizeof *f->leaves);
    f->weights = eng_op_keep(c, (size_t)n_w * sizeof *f->weights);
    f->roots = eng_op_keep(c, (size_t)n_roots * sizeof *f->roots + 1);
    f->sets = (double *)member;
    int64_t set = 0;
    for (int64_t i = 0; i < n; i++) {
        eng_tree_node *t = &f->nodes[i];
        if (yes[i] < 0 || no[i] < 0 || yes[i] > INT32_MAX - 1 || no[i] > INT32_MAX - 1 || feature[i] < 0 || feature[i] > INT32_MAX - 1 ||
            modes[i] < 0 || modes[i] > ENG_TREE_MEMBER)
            return eng_op_fail(c, PST_EINVAL, "node %lld is bad", (long long)i);
        *t = (eng_tree_node){
            .split = split[i], .feature = (int32_t)feature[i], .mode = (uint8_t)modes[i], .missing_yes = n_track && track[i]};
        t->yes = yl[i] ? ~(int32_t)yes[i] : (int32_t)yes[i];
        t->no = nl[i] ? ~(int32_t)no[i] : (int32_t)no[i];
        if (t->mode == ENG_TREE_MEMBER) { /* sets stand in node order, each ended by a NaN */
            t->set_at = (int32_t)set;
            while (set < n_member && !isnan(member[set]))
                set++;
            t->set_n = (int32_t)(set - t->set_at);
            set++;
        }
    }
    for (int64_t i = 0; i < n_w; i++) {
        f->leaves[i] = (eng_tree_leaf){.at = (int32_t)i, .n = 1};
        f->weights[i] = (eng_tree_weight){.target = ids[i] < 0 || ids[i] > INT32_MAX ? -1 : (int32_t)ids[i], .value = w[i]};
    }
    for (int64_t i = 0; i < n_roots; i++) { /* a root whose two sides are the same leaf is a tree of one leaf */
        if (roots[i] < 0 || roots[i] >= n)
            return eng_op_fail(c, PST_EINVAL, "a root is not there");
        f->roots[i] = (int32_t)roots[i];
    }
    return 0;
}

/* ---- evaluation ---- */

static bool bit_of(const eng_forest *f, const eng_tree_node *n, double v)
{
    if (!(n->split < 0 ? v > -1 : v >= 0) || v >= 2147483648.0)
        return false;
    uint32_t at = (uint32_t)v;
    return at >> 5 < (uint32_t)n->set_n && f->bits[n->set_at + (int32_t)(at >> 5)] >> (at & 31) & 1;
}

static bool goes_yes(const eng_forest *f, const eng_tree_node *n, double v)
{
    bool yes = false;
    if (isnan(v) || (n->zero_missing && v >= -ENG_TREE_ZERO && v <= ENG_TREE_ZERO)) {
        if (n->missing_yes || n->zero_missing)
            return n->missing_yes;
    }
    switch (n->mode) {
    case ENG_TREE_LEQ: return v <= n->split;
    case ENG_TREE_LT: return v < n->split;
    case ENG_TREE_GTE: return v >= n->split;
    case ENG_TREE_GT: return v > n->split;
    case ENG_TREE_EQ: return v == n->split;
    case ENG_TREE_NEQ: return v != n->split;
    case ENG_TREE_BITS: return bit_of(f, n, v);
    default:
        for (int32_t i = 0; i < n->set_n && !yes; i++)
            yes = v == f->sets[n->set_at + i];
        return yes;
    }
}

static void add_weight(const eng_forest *f, const eng_tree_weight *w, double value, double *out, bool first)
{
    double *to = &out[w->target];
    if (f->start)
        *to = (double)((float)*to + (float)value);
    else if (f->aggregate == ENG_AGG_MIN)
        *to = first || value < *to ? value : *to;
    else if (f->aggregate == ENG_AGG_MAX)
        *to = first || value > *to ? value : *to;
    else
        *to += value;
}

#define EVAL(NAME, T)                                                                                                   \
    int32_t eng_forest_leaf_##NAME(const eng_forest *f, int32_t at, const T *x)                                         \
    {                                                                                                                   \
        while (at >= 0) {                                                                                               \
            const eng_tree_node *n = &f->nodes[at];                                                                     \
            at = goes_yes(f, n, (double)x[n->feature]) ? n->yes : n->no;                                                \
        }                                                                                                               \
        return ~at;                                                                                                     \
    }                                                                                                                   \
    double eng_forest_line_##NAME(const eng_forest *f, int32_t leaf, const T *x)                                        \
    {                                                                                                                   \
        const eng_tree_line *l = &f->lines[leaf];                                                                       \
        double sum = l->constant;                                                                                       \
        for (int32_t i = l->at; i < l->at + l->n; i++) {                                                                \
            double v = (double)x[f->line_features[i]];                                                                  \
            if (isnan(v))                                                                                               \
                return f->weights[f->leaves[leaf].at].value;                                                            \
            sum += f->line_factors[i] * (v >= -ENG_TREE_ZERO && v <= ENG_TREE_ZERO ? 0 : v);                            \
        }                                                                                                               \
        return sum;                                                                                                     \
    }                                                                                                                   \
    void eng_forest_eval_##NAME(const eng_forest *f, const T *x, int64_t rows, int64_t cols, double *out, uint8_t *has) \
    {                                                                                                                   \
        for (int64_t r = 0; r < rows; r++) {                                                                            \
            double *o = out + r * f->n_targets;                                                                         \
            uint8_t *h = has ? has + r * f->n_targets : NULL; /* MIN and MAX are asked for with it */                   \
            for (int32_t k = 0; k < f->n_targets; k++)                                                                  \
                o[k] = f->start ? (double)f->start[k] : 0;                                                              \
            if (h)                                                                                                      \
                memset(h, 0, (size_t)f->n_targets);                                                                     \
            for (int32_t t = 0; t < f->n_trees; t++) {                                                                  \
                int32_t at = eng_forest_leaf_##NAME(f, f->roots[t], x + r * cols);                                      \
                const eng_tree_leaf *leaf = &f->leaves[at];                                                             \
                for (int32_t k = 0; k < leaf->n; k++) {                                                                 \
                    const eng_tree_weight *w = &f->weights[leaf->at + k];                                               \
                    double value = f->lines ? eng_forest_line_##NAME(f, at, x + r * cols) : w->value;                   \
                    add_weight(f, w, value, o, h && !h[w->target]);                                                     \
                    if (h)                                                                                              \
                        h[w->target] = 1;                                                                               \
                }                                                                                                       \
            }                                                                                                           \
            for (int32_t k = 0; k < f->n_targets && f->aggregate == ENG_AGG_AVERAGE && f->n_trees; k++)                 \
                o[k] /= f->n_trees;                                                                                     \
        }                                                                                                               \
    }
EVAL(f, float)
EVAL(d, double)

/* Evaluates input 0 whatever its type; scores and has are scratch. */
static int eval(eng_op_ctx *c, const eng_forest *f, int64_t *ret_rows, double **ret_scores, uint8_t **ret_has)
{
    const pst_tensor *x = eng_in(c, 0);
    if (!x || x->rank < 1 || x->rank > 2)
        return eng_op_fail(c, PST_EINVAL, "input must be (N, C)");
    int64_t rows = x->rank == 2 ? x->dims[0] : 1, cols = x->dims[x->rank - 1];
    if (cols < f->n_features && rows)
        return eng_op_fail(c, PST_EINVAL, "%lld features; the trees read %d", (long long)cols, f->n_features);
    double *scores = eng_op_scratch(c, (size_t)rows * (size_t)f->n_targets * sizeof *scores);
    uint8_t *has = eng_op_scratch(c, (size_t)rows * (size_t)f->n_targets);
    if (!scores || !has)
        return PST_ELIMIT;
    if (c->plan->device.of == f) {
        int rc = c->plan->device.sums(c->plan, x, scores, has, c->err);
        if (rc < 0)
            return rc;
    } else if (x->dtype == PST_F32 && f->fast && !c->plan->opts.no_fusion) {
        int rc = eng_forest_fast_run(c, f, x->data, rows, cols, scores, has);
        if (rc < 0)
            return rc;
    } else if (x->dtype == PST_F32) {
        eng_forest_eval_f(f, x->data, rows, cols, scores, has);
    } else {
        double *d = eng_op_scratch(c, (size_t)eng_count(x) * sizeof *d);
        if (!d)
            return PST_ELIMIT;
        if (eng_convert(PST_F64, d, x->dtype, x->data, eng_count(x), true) < 0)
            return eng_op_type(c, x->dtype);
        eng_forest_eval_d(f, d, rows, cols, scores, has);
    }
    *ret_rows = rows;
    *ret_scores = scores;
    *ret_has = has;
    return 0;
}

/* ---- regressor and TreeEnsemble ---- */

static eng_aggregate aggregate_of(const char *name)
{
    return !strcmp(name, "AVERAGE") ? ENG_AGG_AVERAGE
           : !strcmp(name, "MIN")   ? ENG_AGG_MIN
           : !strcmp(name, "MAX")   ? ENG_AGG_MAX
                                    : ENG_AGG_SUM;
}

static int targets_of(eng_op_ctx *c, int64_t n, eng_forest *f)
{
    if (n < 1 || n > 1000000)
        return eng_op_fail(c, PST_EINVAL, "%lld targets", (long long)n);
    f->n_targets = (int32_t)n;
    return 0;
}

static int base_of(eng_op_ctx *c, eng_forest *f)
{
    int64_t n;
    f->base = (double *)numbers(c, "base_values", &n);
    f->n_base = f->base ? (int32_t)n : 0;
    return !n || n == f->n_targets || n == 1 ? 0
                                             : eng_op_fail(c, PST_EINVAL, "%lld base values for %d targets", (long long)n, f->n_targets);
}

/* A forest follows from the node's attributes alone: plans of a model share it. */
static int prepare_forest(eng_op_ctx *c, const char *what, size_t size, int (*make)(eng_op_ctx *c, void *made))
{
    const eng_share_key whose = {.what = what, .of = c->node->attrs};
    int rc = eng_op_share(c, &whose, c->node->n_attrs > 0, size, make, c->state);
    if (rc == 0)
        eng_forest_describe(c, *c->state);
    return rc;
}

static int make_regressor(eng_op_ctx *c, void *made)
{
    eng_forest *f = made;
    int rc = targets_of(c, eng_attr_int(c->node, "n_targets", 1), f);
    if (rc < 0 || (rc = from_lists(c, f, "target")) < 0 || (rc = base_of(c, f)) < 0)
        return rc;
    f->aggregate = aggregate_of(eng_attr_str(c->node, "aggregate_function", "SUM"));
    f->post = eng_post_of(eng_attr_str(c->node, "post_transform", "NONE"));
    if ((rc = check_forest(c, f)) < 0)
        return rc;
    eng_forest_fast_new(c, f);
    return 0;
}

int eng_prepare_tree_regressor(eng_op_ctx *c)
{
    return prepare_forest(c, "regressor", sizeof(eng_forest), make_regressor);
}

static int make_ensemble(eng_op_ctx *c, void *made)
{
    static const eng_aggregate aggregates[] = {ENG_AGG_AVERAGE, ENG_AGG_SUM, ENG_AGG_MIN, ENG_AGG_MAX};
    eng_forest *f = made;
    int rc = targets_of(c, eng_attr_int(c->node, "n_targets", 1), f);
    if (rc < 0 || (rc = from_tensors(c, f)) < 0)
        return rc;
    int64_t agg = eng_attr_int(c->node, "aggregate_function", 1), post = eng_attr_int(c->node, "post_transform", 0);
    if (agg < 0 || agg > 3 || post < 0 || post > 4)
        return eng_op_fail(c, PST_EINVAL, "unknown aggregate function or post transform");
    f->aggregate = aggregates[agg];
    f->post = (eng_post)post;
    if ((rc = check_forest(c, f)) < 0)
        return rc;
    eng_forest_fast_new(c, f);
    return 0;
}

int eng_prepare_tree_ensemble(eng_op_ctx *c)
{
    return prepare_forest(c, "ensemble", sizeof(eng_forest), make_ensemble);
}

int eng_op_tree_regressor(eng_op_ctx *c)
{
    const eng_forest *f = *c->state;
    int64_t rows;
    double *s;
    uint8_t *has;
    int rc = eval(c, f, &rows, &s, &has), n = f->n_targets;
    if (rc < 0)
        return rc;
    bool wide = c->node->opset >= 5 && eng_in(c, 0)->dtype == PST_F64;
    int64_t dims[2] = {rows, n};
    void *o = eng_out(c, 0, wide ? PST_F64 : PST_F32, 2, dims);
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0; i < rows * n && f->n_base; i++)
        s[i] += f->base[f->n_base == 1 ? 0 : i % n];
    for (int64_t r = 0; r < rows; r++) {
        double *from = s + r * n;
        if (wide) {
            post_row_wide(f->post, from, n);
            memcpy((double *)o + r * n, from, (size_t)n * sizeof *from);
            continue;
        }
        float *y = (float *)o + r * n;
        for (int k = 0; k < n; k++)
            y[k] = (float)from[k];
        eng_post_row(f->post, y, n);
    }
    return 0;
}

int eng_op_tree_ensemble(eng_op_ctx *c)
{
    return eng_op_tree_regressor(c);
}

/* ---- classifier ---- */

typedef struct tree_classifier {
    eng_forest f; /* first: eng_forest_describe sees the forest */
    eng_labels labels;
    bool one_score; /* two classes, weights for one only: the other's score follows from it */
    bool all_positive;
} tree_classifier;

static int make_classifier(eng_op_ctx *c, void *made)
{
    tree_classifier *k = made;
    eng_labels_of(c->node, &k->labels);
    int rc = targets_of(c, k->labels.n, &k->f);
    if (rc < 0 || (rc = from_lists(c, &k->f, "class")) < 0 || (rc = base_of(c, &k->f)) < 0 || (rc = check_forest(c, &k->f)) < 0)
        return rc;
    k->f.aggregate = ENG_AGG_SUM;
    eng_forest_fast_new(c, &k->f);
    k->f.post = eng_post_of(eng_attr_str(c->node, "post_transform", "NONE"));
    k->all_positive = true;
    bool same = true;
    for (int64_t i = 0; i < k->f.n_weights; i++) {
        same &= k->f.weights[i].target == k->f.weights[0].target;
        k->all_positive &= k->f.weights[i].value >= 0;
    }
    k->one_score = k->labels.n == 2 && same;
    return 0;
}

int eng_prepare_tree_classifier(eng_op_ctx *c)
{
    return prepare_forest(c, "classifier", sizeof(tree_classifier), make_classifier);
}

/* Two classes. One score s > threshold means the second class; the pair of probabilities is made from it. */
static int two_classes(const tree_classifier *k, const double *s, const uint8_t *has, float *z)
{
    const eng_forest *f = &k->f;
    double a = s[0], b = s[1];
    bool has_b = has[1];
    if (f->n_base == 2) {
        if (has_b) {
            a += f->base[0];
            b += f->base[1];
        } else {
            b = f->base[1] + a;
            a = -b;
            has_b = true;
        }
    } else if (f->n_base == 1) {
        a += f->base[0];
        if (has_b)
            b += f->base[0];
    }
    float pos = (float)(has_b ? b : a); /* ties are judged as float: sums in float tie where double does not */
    bool second = k->one_score && k->all_positive ? pos > 0.5f : pos > 0;
    if (!k->one_score)
        second = has_b ? (float)b > (float)a : a > 0;
    if (has_b) {
        z[0] = (float)a;
        z[1] = (float)b;
        eng_post_row(f->post, z, 2);
    } else if (k->one_score && k->all_positive) {
        z[1] = (float)a;
        z[0] = 1 - z[1];
    } else if (f->post == ENG_POST_LOGISTIC) {
        z[1] = eng_logistic((float)a);
        z[0] = eng_logistic((float)-a);
    } else {
        z[1] = (float)a;
        z[0] = (float)-a;
    }
    return second;
}

/* Two classes have rules of their own, since many files give one score for both. Of equal scores the first class wins. */
int eng_op_tree_classifier(eng_op_ctx *c)
{
    const tree_classifier *k = *c->state;
    const eng_forest *f = &k->f;
    int64_t rows;
    double *s;
    uint8_t *has;
    int rc = eval(c, f, &rows, &s, &has), n = f->n_targets;
    if (rc < 0)
        return rc;
    int64_t dims[2] = {rows, n};
    void *labels = eng_labels_out(c, &k->labels, rows);
    float *z = eng_out(c, 1, PST_F32, 2, dims);
    if (!labels || !z)
        return PST_ELIMIT;
    for (int64_t r = 0; r < rows; r++) {
        int best = 0;
        double *v = s + r * n;
        if (n == 2) {
            eng_label_put(&k->labels, labels, r, two_classes(k, v, has + r * n, z + r * n));
            continue;
        }
        for (int i = 0; i < n; i++) {
            double base = 0;
            if (f->n_base)
                base = f->base[f->n_base == 1 ? 0 : i];
            v[i] += base;
            z[r * n + i] = (float)v[i];
            best = z[r * n + i] > z[r * n + best] ? i : best;
        }
        eng_post_row(f->post, z + r * n, n);
        eng_label_put(&k->labels, labels, r, best);
    }
    return 0;
}
