/* lightgbm.c - LightGBM's text model files (v2 to v4) → a native model.
 *
 * A header of key=value lines, then blocks "Tree=i" of key=value lines up to "end of trees"; of what follows, the names of categories are of
 * use, which the library's Python package writes as its last line (pandas_categorical), and the parameter that says which features have them.
 * decision_type: bit 0 categorical, bit 1 missing goes left, bits 2-3 how missing values are marked: 0 not at all (NaN is
 * 0), 1 zero and NaN, 2 NaN. The library sets values within 1e-35 of 0 to 0 before it compares; thresholds there are moved so that the
 * comparison alone does the same. Numbers are compared and added up in double. */
#include "engine/heap.h"
#include "engine/native/categories.h"
#include "engine/native/draft.h"
#include "engine/native/native.h"
#include "engine/native/pull.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MISSING_NONE, MISSING_ZERO, MISSING_NAN };
#define LEAVES_MAX    (1 << 24)
#define OBJECTIVE_MAX 200
#define NUMBER_CHARS  64

/* The lines of one tree that matter. */
enum {
    NUM_LEAVES,
    NUM_CAT,
    SPLIT_FEATURE,
    THRESHOLD,
    DECISION_TYPE,
    LEFT_CHILD,
    RIGHT_CHILD,
    LEAF_VALUE,
    CAT_BOUNDARIES,
    CAT_THRESHOLD,
    IS_LINEAR,
    LEAF_CONST,
    NUM_FEATURES,
    LEAF_FEATURES,
    LEAF_COEFF,
    N_KEYS
};
static const char *const keys[N_KEYS] = {"num_leaves", "num_cat",     "split_feature", "threshold",      "decision_type",
                                         "left_child", "right_child", "leaf_value",    "cat_boundaries", "cat_threshold",
                                         "is_linear",  "leaf_const",  "num_features",  "leaf_features",  "leaf_coeff"};

typedef struct span {
    const char *at, *end;
} span;

typedef struct lgbm {
    eng_draft d;
    eng_native *n;
    eng_zone *zone;
    pst_err *err;
    locale_t c_locale;
    const char *begin, *at, *end;
    span tree[N_KEYS];
    long long num_class, per_iteration, max_feature, n_sizes;
    bool average, ended;
    span names, objective, version, infos;
    span categorical, pandas; /* behind the trees: which features, and their names */
} lgbm;

static int bad(lgbm *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int bad(lgbm *g, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return eng_draft_fail(&g->d, PST_EPARSE, "%s (before byte %zu of the file)", text, (size_t)(g->at - g->begin));
}

/* ---- numbers ---- */

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The next word of a list; false at its end. */
static bool next_word(span *s, span *word)
{
    while (s->at < s->end && blank(*s->at))
        s->at++;
    word->at = s->at;
    while (s->at < s->end && !blank(*s->at))
        s->at++;
    word->end = s->at;
    return word->end > word->at;
}

static bool to_double(const lgbm *g, span w, double *ret)
{
    char copy[NUMBER_CHARS], *end;
    size_t n = (size_t)(w.end - w.at);
    if (!n || n >= sizeof copy)
        return false;
    memcpy(copy, w.at, n);
    copy[n] = 0;
    *ret = strtod_l(copy, &end, g->c_locale);
    return *end == 0;
}

static bool to_int(span w, long long *ret)
{
    bool minus = w.at < w.end && *w.at == '-';
    long long v = 0;
    w.at += minus;
    if (w.at == w.end || w.end - w.at > 17)
        return false;
    for (; w.at < w.end; w.at++) {
        if (*w.at < '0' || *w.at > '9')
            return false;
        v = v * 10 + (*w.at - '0');
    }
    *ret = minus ? -v : v;
    return true;
}

static int tree_double(lgbm *g, int key, span *s, size_t i, double *ret)
{
    span w;
    if (!next_word(s, &w) || !to_double(g, w, ret))
        return bad(g, "tree %zu: %s has no number at its place %zu", g->d.n_trees, keys[key], i);
    return 0;
}

static int tree_int(lgbm *g, int key, span *s, size_t i, long long lo, long long hi, long long *ret)
{
    span w;
    if (!next_word(s, &w) || !to_int(w, ret))
        return bad(g, "tree %zu: %s has no whole number at its place %zu", g->d.n_trees, keys[key], i);
    if (*ret < lo || *ret > hi)
        return bad(g, "tree %zu: %s[%zu] is %lld; %lld to %lld are possible", g->d.n_trees, keys[key], i, *ret, lo, hi);
    return 0;
}

static int at_end(lgbm *g, int key, span s)
{
    span w;
    return next_word(&s, &w) ? bad(g, "tree %zu: %s has more numbers than the tree has places for them", g->d.n_trees, keys[key]) : 0;
}

/* ---- one tree ---- */

/* As the library compares after it has set tiny values to 0: 0 <= t for all of them or for none. */
static double threshold_beyond_zero(double t)
{
    if (t < -ENG_TREE_ZERO || t > ENG_TREE_ZERO)
        return t;
    return t >= 0 ? ENG_TREE_ZERO : nextafter(-ENG_TREE_ZERO, -INFINITY);
}

static int add_set(lgbm *g, size_t i, double threshold, long long num_cat, const uint32_t *words, const long long *bounds,
                   eng_tree_node *to)
{
    if (!(threshold >= 0 && threshold < (double)num_cat))
        return bad(g, "tree %zu: node %zu takes category set %g; there are %lld", g->d.n_trees, i, threshold, num_cat);
    size_t k = (size_t)threshold, n = (size_t)(bounds[k + 1] - bounds[k]);
    int rc = eng_draft_bits(&g->d, n, to);
    if (rc == 0 && n)
        memcpy(g->d.bits + to->set_at, words + bounds[k], n * sizeof *words);
    to->mode = ENG_TREE_BITS;
    to->split = -1; /* -0.5 is category 0, as in C */
    to->missing_yes = false;
    to->zero_missing = false;
    return rc;
}

static int read_sets(lgbm *g, long long num_cat, long long **ret_bounds, uint32_t **ret_words)
{
    span s = g->tree[CAT_BOUNDARIES];
    long long *bounds = *ret_bounds = eng_heap_alloc(((size_t)num_cat + 2) * sizeof *bounds);
    int rc = 0;
    for (long long i = 0; i <= num_cat && rc == 0; i++)
        rc = tree_int(g, CAT_BOUNDARIES, &s, (size_t)i, i ? bounds[i - 1] : 0, i ? LEAVES_MAX : 0, &bounds[i]);
    if (rc < 0 || (rc = at_end(g, CAT_BOUNDARIES, s)) < 0)
        return rc;
    s = g->tree[CAT_THRESHOLD];
    if (bounds[num_cat] > (s.end - s.at) / 2 + 1)
        return bad(g, "tree %zu: cat_threshold is too short for %lld words", g->d.n_trees, bounds[num_cat]);
    uint32_t *words = *ret_words = eng_heap_alloc(((size_t)bounds[num_cat] + 1) * sizeof *words);
    for (long long i = 0, v; i < bounds[num_cat] && rc == 0; i++) {
        rc = tree_int(g, CAT_THRESHOLD, &s, (size_t)i, 0, UINT32_MAX, &v);
        words[i] = (uint32_t)v;
    }
    return rc < 0 ? rc : at_end(g, CAT_THRESHOLD, s);
}

static int add_nodes(lgbm *g, size_t n_nodes, long long num_cat, const long long *bounds, const uint32_t *words)
{
    span feature = g->tree[SPLIT_FEATURE], threshold = g->tree[THRESHOLD], type = g->tree[DECISION_TYPE], left = g->tree[LEFT_CHILD],
         right = g->tree[RIGHT_CHILD];
    long long f, t, l, r, children = (long long)n_nodes;
    double v;
    int rc = eng_draft_grow(&g->d, &g->d.nodes, g->d.n_nodes, &g->d.cap_nodes, n_nodes, sizeof *g->d.nodes);
    for (size_t i = 0; i < n_nodes && rc == 0; i++) {
        if ((rc = tree_int(g, SPLIT_FEATURE, &feature, i, 0, g->max_feature, &f)) < 0 ||
            (rc = tree_double(g, THRESHOLD, &threshold, i, &v)) < 0 || (rc = tree_int(g, DECISION_TYPE, &type, i, 0, 15, &t)) < 0 ||
            (rc = tree_int(g, LEFT_CHILD, &left, i, -children - 1, children - 1, &l)) < 0 ||
            (rc = tree_int(g, RIGHT_CHILD, &right, i, -children - 1, children - 1, &r)) < 0)
            return rc;
        if (isnan(v))
            return bad(g, "tree %zu: node %zu compares with NaN", g->d.n_trees, i);
        if (t >> 2 > MISSING_NAN)
            return bad(g, "tree %zu: node %zu has decision_type %lld", g->d.n_trees, i, t);
        bool to_left = t & 2;
        double zero = threshold_beyond_zero(v);
        eng_tree_node *n = &g->d.nodes[g->d.n_nodes];
        *n = (eng_tree_node){.feature = (int32_t)f, .mode = ENG_TREE_LEQ, .split = zero, .yes = (int32_t)l, .no = (int32_t)r};
        n->missing_yes = t >> 2 == MISSING_NONE ? 0 <= v : to_left;
        /* Where zero goes to its side of the threshold anyway, the plain comparison serves. */
        n->zero_missing = t >> 2 == MISSING_ZERO && to_left != (0 <= v);
        if (t & 1)
            rc = add_set(g, i, v, num_cat, words, bounds, n);
        g->d.n_nodes++;
    }
    const int used[] = {SPLIT_FEATURE, THRESHOLD, DECISION_TYPE, LEFT_CHILD, RIGHT_CHILD};
    const span rest[] = {feature, threshold, type, left, right};
    for (size_t i = 0; i < 5 && rc == 0; i++)
        rc = at_end(g, used[i], rest[i]);
    return rc;
}

static int add_leaves(lgbm *g, size_t n)
{
    eng_draft *d = &g->d;
    span s = g->tree[LEAF_VALUE];
    int rc = eng_draft_grow(d, &d->leaves, d->n_leaves, &d->cap_leaves, n, sizeof *d->leaves);
    if (rc == 0)
        rc = eng_draft_grow(d, &d->weights, d->n_weights, &d->cap_weights, n, sizeof *d->weights);
    int32_t target = (int32_t)(d->n_trees % (size_t)g->per_iteration);
    for (size_t i = 0; i < n && rc == 0; i++) {
        double v = 0;
        rc = tree_double(g, LEAF_VALUE, &s, i, &v);
        d->leaves[d->n_leaves++] = (eng_tree_leaf){.at = (int32_t)d->n_weights, .n = 1};
        d->weights[d->n_weights++] = (eng_tree_weight){.target = target, .value = v};
    }
    return rc < 0 ? rc : at_end(g, LEAF_VALUE, s);
}

/* Leaves without a line of their own become constants: linear and plain trees stand in one model. */
static int pad_lines(eng_draft *d, size_t n_leaves)
{
    int rc = d->n_lines < n_leaves ? eng_draft_grow(d, &d->lines, d->n_lines, &d->cap_lines, n_leaves - d->n_lines, sizeof *d->lines) : 0;
    for (; rc == 0 && d->n_lines < n_leaves; d->n_lines++)
        d->lines[d->n_lines] = (eng_tree_line){.constant = d->weights[d->leaves[d->n_lines].at].value, .at = (int32_t)d->n_line_features};
    return rc;
}

/* linear_tree: a leaf is constant + sum of factor * feature. The features and factors of all leaves stand in one line of the file each,
 * leaf behind leaf, so the spans are read on from where the last leaf ended, and each must be at its end after the last. */
static int add_lines(lgbm *g, size_t n_leaves)
{
    eng_draft *d = &g->d;
    span constant = g->tree[LEAF_CONST], count = g->tree[NUM_FEATURES], feature = g->tree[LEAF_FEATURES], factor = g->tree[LEAF_COEFF];
    int rc = pad_lines(d, d->n_leaves - n_leaves);
    if (rc == 0)
        rc = eng_draft_grow(d, &d->lines, d->n_lines, &d->cap_lines, n_leaves, sizeof *d->lines);
    for (size_t i = 0; i < n_leaves && rc == 0; i++) {
        eng_tree_line line = {.at = (int32_t)d->n_line_features};
        long long n = 0, f;
        if ((rc = tree_double(g, LEAF_CONST, &constant, i, &line.constant)) < 0 ||
            (rc = tree_int(g, NUM_FEATURES, &count, i, 0, g->max_feature + 1, &n)) < 0 ||
            (rc = eng_draft_grow(d, &d->line_features, d->n_line_features, &d->cap_line_features, (size_t)n, sizeof *d->line_features)) <
                0 ||
            (rc = eng_draft_grow(d, &d->line_factors, d->n_line_factors, &d->cap_line_factors, (size_t)n, sizeof *d->line_factors)) < 0)
            return rc;
        for (long long k = 0; k < n && rc == 0; k++) {
            double v = 0;
            rc = tree_int(g, LEAF_FEATURES, &feature, (size_t)k, 0, g->max_feature, &f);
            if (rc == 0)
                rc = tree_double(g, LEAF_COEFF, &factor, (size_t)k, &v);
            if (rc < 0)
                return rc;
            d->line_features[d->n_line_features++] = (int32_t)f;
            d->line_factors[d->n_line_factors++] = v;
        }
        line.n = (int32_t)n;
        d->lines[d->n_lines++] = line;
    }
    if (rc == 0 && (rc = at_end(g, LEAF_CONST, constant)) == 0 && (rc = at_end(g, NUM_FEATURES, count)) == 0 &&
        (rc = at_end(g, LEAF_FEATURES, feature)) == 0)
        rc = at_end(g, LEAF_COEFF, factor);
    return rc;
}

static int one_int(lgbm *g, int key, long long def, long long hi, long long *ret)
{
    span s = g->tree[key];
    *ret = def;
    return s.at ? tree_int(g, key, &s, 0, 0, hi, ret) : 0;
}

static int finish_tree(lgbm *g)
{
    long long n_leaves, num_cat, linear, *bounds = NULL;
    uint32_t *words = NULL;
    int rc;
    if (!g->tree[NUM_LEAVES].at)
        return bad(g, "tree %zu has no num_leaves", g->d.n_trees);
    if ((rc = one_int(g, NUM_LEAVES, 0, LEAVES_MAX, &n_leaves)) < 0 || (rc = one_int(g, NUM_CAT, 0, LEAVES_MAX, &num_cat)) < 0 ||
        (rc = one_int(g, IS_LINEAR, 0, 1, &linear)) < 0)
        return rc;
    span values = g->tree[LEAF_VALUE], cats = g->tree[CAT_BOUNDARIES];
    if (!n_leaves || n_leaves > (values.end - values.at) / 2 + 1) /* what is promised must fit into the line */
        return bad(g, "tree %zu: num_leaves is %lld and leaf_value has not as many", g->d.n_trees, n_leaves);
    if (num_cat > (cats.end - cats.at) / 2 + 1)
        return bad(g, "tree %zu: num_cat is %lld and cat_boundaries has not as many", g->d.n_trees, num_cat);
    size_t n_nodes = (size_t)n_leaves - 1;
    if (num_cat)
        rc = read_sets(g, num_cat, &bounds, &words);
    if (rc == 0 && n_nodes)
        rc = add_nodes(g, n_nodes, num_cat, bounds, words);
    if (rc == 0)
        rc = add_leaves(g, (size_t)n_leaves);
    if (rc == 0 && linear)
        rc = add_lines(g, (size_t)n_leaves);
    if (rc == 0)
        rc = eng_draft_tree(&g->d, n_nodes, (size_t)n_leaves);
    eng_heap_free(bounds);
    eng_heap_free(words);
    return rc;
}

/* ---- the file ---- */

static bool next_line(lgbm *g, span *line)
{
    if (g->at >= g->end)
        return false;
    const char *nl = memchr(g->at, '\n', (size_t)(g->end - g->at));
    line->at = g->at;
    line->end = nl ? nl : g->end;
    g->at = nl ? nl + 1 : g->end;
    if (line->end > line->at && line->end[-1] == '\r')
        line->end--;
    return true;
}

static bool is_text(span s, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(s.end - s.at) == n && !memcmp(s.at, text, n);
}

/* "key=value": the value, or at = NULL. */
static span value_of(span line, span *ret_key)
{
    const char *eq = memchr(line.at, '=', (size_t)(line.end - line.at));
    *ret_key = (span){line.at, eq ? eq : line.end};
    return eq ? (span){eq + 1, line.end} : (span){0};
}

static int header_int(lgbm *g, span key, span v, long long lo, long long hi, long long *ret)
{
    span w, more = v;
    if (!next_word(&more, &w) || !to_int(w, ret) || *ret < lo || *ret > hi)
        return bad(g, "%.*s is \"%.*s\"; %lld to %lld are possible", (int)(key.end - key.at), key.at,
                   (int)(v.end - v.at < 40 ? v.end - v.at : 40), v.at, lo, hi);
    return 0;
}

static int header_line(lgbm *g, span line)
{
    span key, v = value_of(line, &key), w;
    if (is_text(key, "average_output"))
        g->average = true;
    if (!v.at)
        return 0;
    if (is_text(key, "num_class"))
        return header_int(g, key, v, 1, ENG_NATIVE_GROUPS_MAX, &g->num_class);
    if (is_text(key, "num_tree_per_iteration"))
        return header_int(g, key, v, 1, ENG_NATIVE_GROUPS_MAX, &g->per_iteration);
    if (is_text(key, "max_feature_idx"))
        return header_int(g, key, v, 0, ENG_NATIVE_FEATURES_MAX - 1, &g->max_feature);
    if (is_text(key, "objective"))
        g->objective = v;
    else if (is_text(key, "feature_names"))
        g->names = v;
    else if (is_text(key, "version"))
        g->version = v;
    else if (is_text(key, "feature_infos"))
        g->infos = v;
    else if (is_text(key, "tree_sizes"))
        for (g->n_sizes = 0; next_word(&v, &w);)
            g->n_sizes++;
    return 0;
}

static int end_header(lgbm *g)
{
    if (g->max_feature < 0)
        return bad(g, "no LightGBM model: it has no max_feature_idx");
    if (g->version.at && !is_text(g->version, "v4") && !is_text(g->version, "v3") && !is_text(g->version, "v2"))
        return eng_draft_fail(&g->d, PST_EUNSUPPORTED, "the file's version is \"%.*s\"; v2, v3 and v4 are covered",
                              (int)(g->version.end - g->version.at < 20 ? g->version.end - g->version.at : 20), g->version.at);
    if (!g->per_iteration)
        g->per_iteration = g->num_class;
    return 0;
}

static bool begins_with(span s, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(s.end - s.at) >= n && !memcmp(s.at, text, n);
}

/* Behind the trees: importances, which are not for us, parameters, names of categories. */
static void read_rest(lgbm *g)
{
    static const char of[] = "[categorical_feature: ", names[] = "pandas_categorical:";
    span line;
    while (next_line(g, &line)) {
        if (begins_with(line, of) && line.end[-1] == ']')
            g->categorical = (span){line.at + sizeof of - 1, line.end - 1};
        else if (begins_with(line, names))
            g->pandas = (span){line.at + sizeof names - 1, line.end};
    }
}

/* Keys of a tree may come in any order: a tree is finished when the next one begins. */
static int read_file(lgbm *g)
{
    span line, key, v;
    bool in_tree = false, header = true;
    int rc = 0;
    while (rc == 0 && !g->ended && next_line(g, &line)) {
        v = value_of(line, &key);
        bool begins = v.at && is_text(key, "Tree");
        g->ended = is_text(line, "end of trees") || is_text(line, "feature importances:") || is_text(line, "feature_importances:");
        if ((begins || g->ended) && header) {
            header = false;
            rc = end_header(g);
        }
        if (rc == 0 && (begins || g->ended) && in_tree)
            rc = finish_tree(g);
        if (begins) {
            memset(g->tree, 0, sizeof g->tree);
            in_tree = true;
        } else if (rc == 0 && header) {
            rc = header_line(g, line);
        } else {
            for (int i = 0; v.at && i < N_KEYS; i++)
                if (is_text(key, keys[i]))
                    g->tree[i] = v;
        }
    }
    if (rc == 0 && !g->ended)
        rc = bad(g, "the file ends before its \"end of trees\"");
    if (rc == 0 && g->n_sizes >= 0 && (size_t)g->n_sizes != g->d.n_trees)
        rc = bad(g, "tree_sizes lists %lld trees, the file has %zu", g->n_sizes, g->d.n_trees);
    if (rc == 0 && g->d.n_trees % (size_t)g->per_iteration)
        rc = bad(g, "%zu trees are no whole number of iterations of %lld", g->d.n_trees, g->per_iteration);
    return rc;
}

/* ---- objective ---- */

static const struct objective {
    const char *name;
    eng_link link;
    bool square; /* "sqrt" behind it counts */
} objectives[] = {
    {"regression", ENG_LINK_NONE, true},
    {"regression_l1", ENG_LINK_NONE, true},
    {"huber", ENG_LINK_NONE, false},
    {"fair", ENG_LINK_NONE, true},
    {"quantile", ENG_LINK_NONE, true},
    {"mape", ENG_LINK_NONE, true},
    {"poisson", ENG_LINK_EXP, false},
    {"gamma", ENG_LINK_EXP, false},
    {"tweedie", ENG_LINK_EXP, false},
    {"binary", ENG_LINK_SIGMOID, false},
    {"multiclass", ENG_LINK_SOFTMAX, false},
    {"multiclassova", ENG_LINK_SIGMOID, false},
    {"cross_entropy", ENG_LINK_SIGMOID, false},
    {"xentropy", ENG_LINK_SIGMOID, false},
    {"cross_entropy_lambda", ENG_LINK_LOG1P_EXP, false},
    {"xentlambda", ENG_LINK_LOG1P_EXP, false},
    {"lambdarank", ENG_LINK_NONE, false},
    {"rank_xendcg", ENG_LINK_NONE, false},
    {"custom", ENG_LINK_NONE, false},
    {"none", ENG_LINK_NONE, false},
};

static int take_objective(lgbm *g)
{
    eng_native *n = g->n;
    span s = g->objective, w;
    n->objective = "custom";
    n->link = ENG_LINK_NONE;
    n->scale = 1;
    if (!next_word(&s, &w)) /* trained with a function of the user's own: sums as they are */
        return 0;
    size_t i = 0;
    while (i < sizeof objectives / sizeof *objectives && !is_text(w, objectives[i].name))
        i++;
    if (i == sizeof objectives / sizeof *objectives)
        return eng_draft_fail(&g->d, PST_EUNSUPPORTED,
                              "the objective \"%.*s\" is not known, so neither is what it makes of the sums; export the model as ONNX",
                              (int)(w.end - w.at < 60 ? w.end - w.at : 60), w.at);
    n->objective = objectives[i].name;
    n->link = objectives[i].link;
    while (next_word(&s, &w)) {
        if (is_text(w, "sqrt") && objectives[i].square)
            n->link = ENG_LINK_SQUARE;
        if (w.end - w.at > 8 && !memcmp(w.at, "sigmoid:", 8)) {
            w.at += 8;
            if (!to_double(g, w, &n->scale) || !(n->scale > 0) || !isfinite(n->scale))
                return bad(g, "objective: sigmoid is no number above 0");
        }
    }
    return 0;
}

static int take_names(lgbm *g)
{
    eng_native *n = g->n;
    span s = g->names, w;
    const char **names = NULL;
    size_t cap = 0;
    int rc = 0;
    while (rc == 0 && next_word(&s, &w)) {
        if (n->n_names >= ENG_NATIVE_NAMES_MAX)
            rc = eng_draft_fail(&g->d, PST_ELIMIT, "more than %d feature names", ENG_NATIVE_NAMES_MAX);
        else if ((rc = eng_draft_grow(&g->d, &names, n->n_names, &cap, 1, sizeof *names)) == 0)
            names[n->n_names++] = eng_zone_strdup(g->zone, w.at, (size_t)(w.end - w.at));
    }
    if (rc == 0 && n->n_names && n->n_names != (size_t)n->n_features)
        rc = bad(g, "feature_names has %zu names for %d features", n->n_names, n->n_features);
    const char **kept = eng_zone_alloc(g->zone, (n->n_names + 1) * sizeof *kept);
    if (n->n_names)
        memcpy(kept, names, n->n_names * sizeof *kept);
    n->names = kept;
    eng_heap_free(names);
    return rc;
}

/* ---- names of categories ---- */

/* The next list of pandas_categorical, as it stands; at = NULL: none that names can be taken from. *ret_n: its elements. false at the end. */
static bool next_list(eng_pull *p, span *ret, size_t *ret_n)
{
    eng_pull_token t;
    bool plain = true;
    if (eng_pull_next(p, &t) < 0 || t.kind != ENG_PULL_ARRAY)
        return false;
    *ret = (span){(const char *)p->at - 1, NULL};
    for (*ret_n = 0; eng_pull_next(p, &t) == 0; ++*ret_n) {
        if (t.kind == ENG_PULL_ARRAY_END) {
            ret->end = (const char *)p->at;
            ret->at = plain && *ret_n ? ret->at : NULL;
            return true;
        }
        plain &= t.kind == ENG_PULL_INT || t.kind == ENG_PULL_BOOL || (t.kind == ENG_PULL_REAL && isfinite(t.f)) ||
                 (t.kind == ENG_PULL_TEXT && !memchr(t.s, 0, t.n));
        if (eng_pull_skip(p, &t) < 0)
            return false;
    }
    return false;
}

/* feature_infos, read on from list to list. */
typedef struct infos {
    span rest;
    long long next; /* the feature whose word comes next */
} infos;

/* Does the feature have categories, none of them beyond the list? "[min:max]" is of numbers, "-1:0:3" of categories, "none" of neither. */
static bool infos_allow(infos *f, long long feature, size_t n_names)
{
    span w;
    for (; next_word(&f->rest, &w); f->next++) {
        if (f->next < feature)
            continue;
        f->next++;
        for (const char *at = w.at, *colon; at < w.end; at = colon + 1) {
            long long code;
            colon = memchr(at, ':', (size_t)(w.end - at));
            colon = colon ? colon : w.end;
            if (to_int((span){at, colon}, &code) && code >= (long long)n_names)
                return false;
        }
        return *w.at != '[';
    }
    return false;
}

/* The lists stand in the order of the table's columns of type category, the features in that of the model. They belong together one by one where
 * each feature has a list; an ordered category has a list too, but is no such feature, and then nothing says which list is whose. */
static bool pair_lists(lgbm *g, eng_categories *c, size_t *ret_lists, size_t *ret_features)
{
    span s = g->categorical, list = {0};
    infos told = {g->infos, 0};
    eng_pull p;
    eng_pull_token t;
    pst_err none = {0};
    long long feature, before = -1;
    size_t n_names;
    bool fits = true;
    eng_pull_init(&p, ENG_PULL_JSON, g->pandas.at, (size_t)(g->pandas.end - g->pandas.at), 3, &none);
    bool lists = eng_pull_next(&p, &t) == 0 && t.kind == ENG_PULL_ARRAY;
    *ret_lists = *ret_features = 0;
    while (lists && next_list(&p, &list, &n_names)) {
        const char *comma = s.at < s.end ? memchr(s.at, ',', (size_t)(s.end - s.at)) : NULL;
        span number = {s.at, comma ? comma : s.end};
        ++*ret_lists;
        if (s.at == s.end || !to_int(number, &feature) || feature <= before || feature > g->max_feature ||
            !infos_allow(&told, feature, n_names))
            fits = false;
        else if (list.at)
            eng_categories_json(c, feature, list.at, (size_t)(list.end - list.at));
        before = fits ? feature : before;
        *ret_features += s.at < s.end;
        s.at = comma ? comma + 1 : s.end;
    }
    for (span w = s; w.at < w.end; w.at++) /* features left over */
        *ret_features += w.at == s.at || *w.at == ',';
    eng_pull_done(&p);
    return fits && *ret_lists == *ret_features;
}

static void take_categories(lgbm *g)
{
    eng_categories c = {0};
    size_t n_lists = 0, n_features = 0;
    char text[300];
    if (!g->pandas.at)
        return;
    bool paired = pair_lists(g, &c, &n_lists, &n_features);
    const char *json = eng_categories_take(&c, g->zone);
    if (paired)
        g->n->categories = json;
    if (paired || !n_lists)
        return;
    snprintf(text, sizeof text,
             "its file has %zu lists of category names for %zu categorical features, so that it is not known which is whose (an ordered "
             "category has a list and is none of them): give fields of text a vocabulary",
             n_lists, n_features);
    g->n->remark = eng_zone_strdup(g->zone, text, strlen(text));
}

static int finish(lgbm *g)
{
    eng_native *n = g->n;
    n->library = "LightGBM";
    n->booster = g->average ? "rf" : g->d.n_lines ? "gbdt, linear trees" : "gbdt";
    n->version = eng_zone_strdup(g->zone, g->version.at ? g->version.at : "", (size_t)(g->version.end - g->version.at));
    n->n_features = (int32_t)(g->max_feature + 1);
    n->n_groups = n->n_outputs = (int32_t)g->per_iteration;
    if (g->average)
        n->divisor = (int32_t)(g->d.n_trees / (size_t)g->per_iteration);
    int rc = take_objective(g);
    if (rc == 0)
        rc = take_names(g);
    if (rc == 0)
        take_categories(g);
    if (rc == 0 && g->d.n_lines)
        rc = pad_lines(&g->d, g->d.n_leaves);
    if (rc == 0)
        eng_draft_finish(&g->d, g->zone, &n->forest);
    n->forest.n_targets = n->n_groups;
    n->forest.wide = true;
    return rc;
}

int eng_native_lightgbm(const void *data, size_t len, const pst_model_limits *limits, eng_zone *zone, eng_native *n, pst_err *err)
{
    lgbm g = {.n = n, .zone = zone, .err = err, .begin = data, .at = data, .end = (const char *)data + len, .num_class = 1};
    g.max_feature = -1;
    g.n_sizes = -1;
    g.c_locale = eng_c_locale();
    eng_draft_init(&g.d, limits, err);
    int rc = read_file(&g);
    if (rc == 0) {
        read_rest(&g);
        rc = finish(&g);
    }
    eng_draft_done(&g.d);
    return rc;
}
