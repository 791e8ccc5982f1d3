/* ml.c - the other operators of ai.onnx.ml: linear models, preprocessing, labels. Attributes are lists whose lengths files get wrong, so each is held
 * against the columns before a row is looked at. LabelEncoder sorts its keys once a plan, when it is prepared, and looks them up by halves. */
#include "engine/ops/kernels.h"
#include "engine/ops/tree.h"

#include "engine/cpu/gemm.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- linear models ---- */

static int linear_scores(eng_op_ctx *c, int n, int64_t *ret_rows, float **ret)
{
    size_t n_coef, n_icept;
    const float *coef = eng_attr_floats(c->node, "coefficients", &n_coef), *icept = eng_attr_floats(c->node, "intercepts", &n_icept);
    int64_t rows, cols;
    const float *x = eng_in_rows(c, 0, &rows, &cols);
    if (!x)
        return PST_EINVAL;
    if (n < 1 || (int64_t)n_coef != n * cols || (n_icept && n_icept != (size_t)n) || rows > INT_MAX || cols > INT_MAX)
        return eng_op_fail(c, PST_EINVAL, "%zu coefficients do not fit %d outputs of %lld features", n_coef, n, (long long)cols);
    float *s = eng_op_scratch(c, (size_t)rows * (size_t)n * sizeof *s);
    if (!s)
        return PST_ELIMIT;
    for (int64_t i = 0; i < rows * n; i++)
        s[i] = n_icept ? icept[i % n] : 0;
    pst_sgemm(false, true, (int)rows, n, (int)cols, 1, x, (int)cols, coef, (int)cols, 1, s, n);
    *ret_rows = rows;
    *ret = s;
    return 0;
}

int eng_op_linear_regressor(eng_op_ctx *c)
{
    int64_t targets = eng_attr_int(c->node, "targets", 1), rows;
    float *s;
    int rc = targets < 1 || targets > 1000000 ? eng_op_fail(c, PST_EINVAL, "bad targets") : linear_scores(c, (int)targets, &rows, &s);
    if (rc < 0)
        return rc;
    eng_post post = eng_post_of(eng_attr_str(c->node, "post_transform", "NONE"));
    float *o = eng_out(c, 0, PST_F32, 2, (int64_t[]){rows, targets});
    if (!o)
        return PST_ELIMIT;
    memcpy(o, s, (size_t)(rows * targets) * sizeof *s);
    for (int64_t r = 0; r < rows; r++)
        eng_post_row(post, o + r * targets, (int)targets);
    return 0;
}

int eng_op_linear_classifier(eng_op_ctx *c)
{
    eng_labels l;
    size_t n_icept, n_coef;
    eng_labels_of(c->node, &l);
    eng_attr_floats(c->node, "intercepts", &n_icept);
    eng_attr_floats(c->node, "coefficients", &n_coef);
    const pst_tensor *x = eng_in(c, 0);
    int64_t cols = x && x->rank ? x->dims[x->rank - 1] : 1, rows;
    int n = (int)n_icept; /* how many sums: one an intercept; without them one a row of coefficients */
    if (!n_icept && cols)
        n = (int)((int64_t)n_coef / cols);
    float *s;
    int rc = linear_scores(c, n, &rows, &s);
    if (rc < 0)
        return rc;
    eng_post post = eng_post_of(eng_attr_str(c->node, "post_transform", "NONE"));
    bool pair = n == 1 && l.n == 2; /* one score for two classes */
    int n_out = pair ? 2 : n;
    void *labels = eng_labels_out(c, &l, rows);
    float *z = eng_out(c, 1, PST_F32, 2, (int64_t[]){rows, n_out});
    if (!labels || !z)
        return PST_ELIMIT;
    for (int64_t r = 0; r < rows; r++) {
        float *v = s + r * n, *o = z + r * n_out;
        int best = 0;
        for (int i = 1; i < n; i++)
            best = v[i] > v[best] ? i : best;
        eng_label_put(&l, labels, r, n == 1 ? v[0] > 0 : best);
        if (!pair) {
            memcpy(o, v, (size_t)n * sizeof *v);
            eng_post_row(post, o, n);
            continue;
        }
        o[1] = post == ENG_POST_LOGISTIC ? eng_logistic(v[0]) : post == ENG_POST_PROBIT ? eng_probit(v[0]) : v[0];
        o[0] = post == ENG_POST_LOGISTIC ? eng_logistic(-v[0]) : 1 - o[1];
    }
    return 0;
}

/* ---- numbers in, numbers out ---- */

static float *float_out(eng_op_ctx *c, const float **ret_x, int64_t *ret_n, int64_t *ret_cols)
{
    const pst_tensor *x = eng_in(c, 0);
    if (!x) {
        eng_op_fail(c, PST_EINVAL, "input 0 is missing");
        return NULL;
    }
    pst_tensor t = *x;
    int64_t n = eng_count(&t);
    *ret_n = n;
    *ret_cols = t.rank ? t.dims[t.rank - 1] : 1;
    *ret_x = t.data;
    if (t.dtype != PST_F32) {
        float *f = eng_op_scratch(c, (size_t)n * 4);
        if (!f)
            return NULL;
        if (eng_convert(PST_F32, f, t.dtype, t.data, n, true) < 0) {
            eng_op_type(c, t.dtype);
            return NULL;
        }
        *ret_x = f;
    }
    return eng_out_typed(c, 0, PST_F32, &t);
}

int eng_op_scaler(eng_op_ctx *c)
{
    size_t n_off, n_scale;
    const float *off = eng_attr_floats(c->node, "offset", &n_off), *scale = eng_attr_floats(c->node, "scale", &n_scale), *x;
    int64_t n, cols;
    float *o = float_out(c, &x, &n, &cols);
    if (!o)
        return PST_EINVAL;
    if ((n_off > 1 && (int64_t)n_off != cols) || (n_scale > 1 && (int64_t)n_scale != cols))
        return eng_op_fail(c, PST_EINVAL, "%zu offsets and %zu scales for %lld features", n_off, n_scale, (long long)cols);
    const float none = 0, once = 1;
    off = n_off ? off : &none;
    scale = n_scale ? scale : &once;
    for (int64_t i = 0; i < n; i += cols)
        for (int64_t k = 0; k < cols; k++) /* one for all, or one a feature */
            o[i + k] = (x[i + k] - off[n_off > 1 ? k : 0]) * scale[n_scale > 1 ? k : 0];
    return 0;
}

int eng_op_normalizer(eng_op_ctx *c)
{
    const char *norm = eng_attr_str(c->node, "norm", "MAX");
    const float *x;
    int64_t n, cols;
    float *o = float_out(c, &x, &n, &cols);
    if (!o)
        return PST_EINVAL;
    for (int64_t r = 0; cols && r < n / cols; r++) {
        const float *v = x + r * cols;
        float by = norm[0] == 'M' ? -INFINITY : 0;
        for (int64_t k = 0; k < cols; k++)
            if (norm[0] == 'M')
                by = v[k] > by ? v[k] : by;
            else
                by += norm[1] == '1' ? fabsf(v[k]) : v[k] * v[k];
        by = norm[0] == 'L' && norm[1] == '2' ? sqrtf(by) : by;
        for (int64_t k = 0; k < cols; k++)
            o[r * cols + k] = by != 0 ? v[k] / by : v[k];
    }
    return 0;
}

int eng_op_binarizer(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    double threshold = (double)eng_attr_float(c->node, "threshold", 0);
    int64_t n = eng_count(&x);
    double *d = eng_op_scratch(c, (size_t)n * 8);
    void *o = eng_out_like(c, 0, &x);
    if (!d || !o)
        return PST_ELIMIT;
    if (eng_convert(PST_F64, d, x.dtype, x.data, n, true) < 0)
        return eng_op_type(c, x.dtype);
    for (int64_t i = 0; i < n; i++)
        d[i] = d[i] > threshold;
    return eng_convert(x.dtype, o, PST_F64, d, n, true);
}

/* The value to be replaced may be NaN, which is unequal even to itself: hence the second test. */
int eng_op_imputer(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    int64_t n = eng_count(&x), cols = x.rank ? x.dims[x.rank - 1] : 1;
    size_t nf, ni;
    const float *vf = eng_attr_floats(c->node, "imputed_value_floats", &nf);
    const int64_t *vi = eng_attr_ints(c->node, "imputed_value_int64s", &ni);
    float gone = eng_attr_float(c->node, "replaced_value_float", 0);
    int64_t gone_i = eng_attr_int(c->node, "replaced_value_int64", 0);
    bool ints = x.dtype == PST_I64 || x.dtype == PST_I32;
    size_t have = ints ? ni : nf;
    if (!have || (have > 1 && (int64_t)have != cols))
        return eng_op_fail(c, PST_EINVAL, "%zu imputed values for %lld features", have, (long long)cols);
    void *o = eng_out_like(c, 0, &x);
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0; i < n; i++) {
        size_t k = have == 1 ? 0 : (size_t)(i % cols);
        switch (x.dtype) {
        case PST_F32: {
            float v = ((const float *)x.data)[i];
            ((float *)o)[i] = v == gone || (isnan(v) && isnan(gone)) ? vf[k] : v;
            break;
        }
        case PST_F64: {
            double v = ((const double *)x.data)[i];
            ((double *)o)[i] = v == (double)gone || (isnan(v) && isnan(gone)) ? (double)vf[k] : v;
            break;
        }
        case PST_I64: {
            int64_t v = ((const int64_t *)x.data)[i];
            ((int64_t *)o)[i] = v == gone_i ? vi[k] : v;
            break;
        }
        case PST_I32: {
            int32_t v = ((const int32_t *)x.data)[i];
            ((int32_t *)o)[i] = v == gone_i ? (int32_t)vi[k] : v;
            break;
        }
        default: return eng_op_type(c, x.dtype);
        }
    }
    return 0;
}

/* Categories are those of the input's type (the other list is ignored). A value outside of them is a row of zeros, or an error with
 * zeros=0. */
int eng_op_one_hot_encoder(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    size_t ni, ns;
    const int64_t *ci = eng_attr_ints(c->node, "cats_int64s", &ni);
    const char *const *cs = eng_attr_strings(c->node, "cats_strings", &ns);
    bool zeros = eng_attr_int(c->node, "zeros", 1);
    int64_t n = eng_count(&x), cats = (int64_t)(x.dtype == PST_STR ? ns : ni), dims[PST_MAX_RANK + 1];
    if (x.rank + 1 > PST_MAX_RANK || !cats)
        return eng_op_fail(c, PST_EINVAL, "no categories of the input's type");
    memcpy(dims, x.dims, sizeof x.dims);
    dims[x.rank] = cats;
    float *o = eng_out(c, 0, PST_F32, x.rank + 1, dims);
    int64_t *v = x.dtype == PST_STR ? NULL : eng_op_scratch(c, (size_t)n * 8);
    if (!o || (x.dtype != PST_STR && !v))
        return PST_ELIMIT;
    if (v && eng_convert(PST_I64, v, x.dtype, x.data, n, true) < 0)
        return eng_op_type(c, x.dtype);
    memset(o, 0, (size_t)(n * cats) * sizeof *o);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = 0;
        while (k < cats && (v ? v[i] != ci[k] : strcmp(((const char *const *)x.data)[i], cs[k]) != 0))
            k++;
        if (k < cats)
            o[i * cats + k] = 1;
        else if (!zeros)
            return eng_op_fail(c, PST_EINVAL, "a value is none of the categories (zeros=0)");
    }
    return 0;
}

int eng_op_array_feature_extractor(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), ix = *eng_in(c, 1);
    int64_t n = eng_count(&ix), cols = x.rank ? x.dims[x.rank - 1] : 1, rows = cols ? eng_count(&x) / cols : 0, dims[PST_MAX_RANK];
    if (ix.dtype != PST_I64 || !x.rank)
        return eng_op_fail(c, PST_EINVAL, "int64 indices into the last axis are needed");
    memcpy(dims, x.dims, sizeof dims);
    int rank = x.rank;
    if (rank == 1) {
        dims[0] = 1;
        rank = 2;
    }
    dims[rank - 1] = n;
    char *o = eng_out(c, 0, x.dtype, rank, dims);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(x.dtype);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < n; k++) {
            int64_t at = ((const int64_t *)ix.data)[k];
            if (at < 0 || at >= cols)
                return eng_op_fail(c, PST_EINVAL, "index %lld is outside %lld features", (long long)at, (long long)cols);
            memcpy(o + (size_t)(r * n + k) * size, (const char *)x.data + (size_t)(r * cols + at) * size, size);
        }
    return 0;
}

/* Of input i in the result; a width that cannot be is none. */
static int64_t width_of(const int64_t *want, size_t n_want, int i, int64_t own)
{
    bool given = want && (size_t)i < n_want && want[i] >= 0 && want[i] < 1000000;
    return given ? want[i] : own;
}

/* inputdimensions is how wide each input is to be: what is narrower is filled with 0, what is wider is cut. */
int eng_op_feature_vectorizer(eng_op_ctx *c)
{
    int rc = eng_op_need(c, c->n_in ? c->n_in : 1);
    if (rc < 0)
        return rc;
    size_t n_dims;
    const int64_t *want = eng_attr_ints(c->node, "inputdimensions", &n_dims);
    int64_t rows = -1, total = 0, r, cols, at = 0;
    for (int i = 0; i < c->n_in; i++) {
        const pst_tensor *x = eng_in(c, i);
        r = x->rank == 2 ? x->dims[0] : 1;
        cols = x->rank ? x->dims[x->rank - 1] : 1;
        if ((rows >= 0 && r != rows) || x->rank > 2)
            return eng_op_fail(c, PST_EINVAL, "inputs of different rows");
        rows = r;
        total += width_of(want, n_dims, i, cols);
    }
    float *o = eng_out(c, 0, PST_F32, 2, (int64_t[]){rows, total});
    if (!o)
        return PST_ELIMIT;
    memset(o, 0, (size_t)(rows * total) * sizeof *o);
    for (int i = 0; i < c->n_in; i++) {
        const float *x = eng_in_rows(c, i, &r, &cols);
        if (!x)
            return PST_EINVAL;
        int64_t w = width_of(want, n_dims, i, cols), take = cols < w ? cols : w;
        for (int64_t k = 0; k < rows; k++)
            memcpy(o + k * total + at, x + k * cols, (size_t)take * sizeof *o);
        at += w;
    }
    return 0;
}

/* A sequence of maps class → probability becomes the tensor it was made from: (N, classes), columns in the order of the labels. */
int eng_op_zipmap(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    eng_out_share(c, 0, c->in[0]);
    return 0;
}

/* ---- LabelEncoder, CategoryMapper ---- */

/* One side of the mapping: texts, integers or numbers. */
typedef struct side {
    pst_dtype type; /* PST_STR, PST_I64, PST_F64 */
    const char *const *texts;
    const int64_t *ints;
    const double *numbers;
    int64_t n;
    pst_dtype as; /* element type of an output made from it */
} side;

typedef struct encoder {
    side from, to;
    int64_t *order; /* keys sorted: binary search */
    const char *default_text;
    int64_t default_int;
    double default_number;
} encoder;

/* One side of the table, from whichever attribute has it. Numbers are widened to int64 or double, so that one comparison serves all; `as`
 * remembers the type that a result made from it has. */
static bool side_of(eng_op_ctx *c, const char *what, side *s)
{
    char name[40];
    size_t n;
    snprintf(name, sizeof name, "%s_strings", what);
    if ((s->texts = eng_attr_strings(c->node, name, &n)) && n) {
        *s = (side){.type = PST_STR, .as = PST_STR, .texts = s->texts, .n = (int64_t)n};
        return true;
    }
    snprintf(name, sizeof name, "%s_int64s", what);
    if ((s->ints = eng_attr_ints(c->node, name, &n)) && n) {
        *s = (side){.type = PST_I64, .as = PST_I64, .ints = s->ints, .n = (int64_t)n};
        return true;
    }
    snprintf(name, sizeof name, "%s_floats", what);
    const float *f = eng_attr_floats(c->node, name, &n);
    if (f && n) {
        double *d = eng_op_keep(c, n * sizeof *d);
        eng_convert(PST_F64, d, PST_F32, f, (int64_t)n, true);
        *s = (side){.type = PST_F64, .as = PST_F32, .numbers = d, .n = (int64_t)n};
        return true;
    }
    snprintf(name, sizeof name, "%s_tensor", what);
    const eng_attr *a = eng_attr_find(c->node, name);
    if (!a || a->type != ENG_ATTR_TENSOR)
        return false;
    s->n = eng_count(a->t);
    s->as = a->t->dtype;
    if (a->t->dtype == PST_STR) {
        s->type = PST_STR;
        s->texts = a->t->data;
        return true;
    }
    s->type = eng_dtype_is_int(a->t->dtype) ? PST_I64 : PST_F64;
    void *v = eng_op_keep(c, (size_t)s->n * 8 + 8);
    s->ints = v;
    s->numbers = v;
    return eng_convert(s->type, v, a->t->dtype, a->t->data, s->n, true) == 0;
}

/* Keys compare by type; NaN equals NaN and sorts last. */
static int compare_key(const side *s, int64_t a, const char *text, int64_t i, double d)
{
    if (s->type == PST_STR)
        return strcmp(s->texts[a], text);
    if (s->type == PST_I64)
        return (s->ints[a] > i) - (s->ints[a] < i);
    double k = s->numbers[a];
    if (isnan(k) || isnan(d))
        return (int)isnan(k) - (int)isnan(d);
    return (k > d) - (k < d);
}

static int by_order(const void *va, const void *vb, void *arg)
{
    const side *s = arg;
    int64_t a = *(const int64_t *)va, b = *(const int64_t *)vb;
    int cmp = compare_key(s, a, s->texts ? s->texts[b] : NULL, s->type == PST_I64 ? s->ints[b] : 0, s->type == PST_F64 ? s->numbers[b] : 0);
    return cmp ? cmp : (a > b) - (a < b);
}

static int finish_encoder(eng_op_ctx *c, encoder *e)
{
    if (e->from.n != e->to.n)
        return eng_op_fail(c, PST_EINVAL, "%lld keys and %lld values", (long long)e->from.n, (long long)e->to.n);
    e->order = eng_op_keep(c, (size_t)e->from.n * sizeof *e->order + 8);
    for (int64_t i = 0; i < e->from.n; i++)
        e->order[i] = i;
    qsort_r(e->order, (size_t)e->from.n, sizeof *e->order, by_order, &e->from);
    return 0;
}

int eng_prepare_label_encoder(eng_op_ctx *c)
{
    encoder *e = *c->state = eng_op_keep(c, sizeof *e);
    e->default_text = eng_attr_str(c->node, "default_string", c->node->opset < 2 ? "_Unused" : "_Unused");
    e->default_int = eng_attr_int(c->node, "default_int64", -1);
    e->default_number = (double)eng_attr_float(c->node, "default_float", 0);
    if (c->node->opset < 2)
        return 0; /* texts to positions or back: which, the input tells */
    if (!side_of(c, "keys", &e->from) || !side_of(c, "values", &e->to))
        return eng_op_fail(c, PST_EINVAL, "keys or values are missing");
    const eng_attr *d = eng_attr_find(c->node, "default_tensor");
    if (d && d->type == ENG_ATTR_TENSOR && eng_count(d->t) == 1) {
        if (d->t->dtype == PST_STR) {
            e->default_text = *(const char *const *)d->t->data;
        } else {
            eng_convert(PST_I64, &e->default_int, d->t->dtype, d->t->data, 1, true);
            eng_convert(PST_F64, &e->default_number, d->t->dtype, d->t->data, 1, true);
        }
    }
    return finish_encoder(c, e);
}

/* Positions and texts: LabelEncoder 1 and CategoryMapper give both directions. */
static int by_position(eng_op_ctx *c, const encoder *e, const char *const *texts, const int64_t *ints, int64_t n)
{
    pst_tensor x = *eng_in(c, 0);
    int64_t count = eng_count(&x);
    if (x.dtype == PST_STR) {
        int64_t *o = eng_out_typed(c, 0, PST_I64, &x);
        if (!o)
            return PST_ELIMIT;
        for (int64_t i = 0; i < count; i++) {
            int64_t k = 0;
            while (k < n && strcmp(texts[k], ((const char *const *)x.data)[i]))
                k++;
            o[i] = k < n ? (ints ? ints[k] : k) : e->default_int;
        }
        return 0;
    }
    if (x.dtype != PST_I64)
        return eng_op_type(c, x.dtype);
    const char **o = eng_out_typed(c, 0, PST_STR, &x);
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0; i < count; i++) {
        int64_t v = ((const int64_t *)x.data)[i], k = ints ? 0 : v;
        while (ints && k < n && ints[k] != v)
            k++;
        o[i] = k >= 0 && k < n ? texts[k] : e->default_text;
    }
    return 0;
}

/* The place of a key in the table; -1: it is not there. v: the key, unless it is a text, as the keys' type. */
static int64_t find_key(const encoder *e, const char *text, const void *v)
{
    int64_t number = e->from.type == PST_I64 ? *(const int64_t *)v : 0, lo = 0, hi = e->from.n;
    double real = e->from.type == PST_F64 ? *(const double *)v : 0;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (compare_key(&e->from, e->order[mid], text, number, real) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < e->from.n && !compare_key(&e->from, e->order[lo], text, number, real) ? e->order[lo] : -1;
}

/* What stands beside key k, or the default for k < 0, as element i of the result. */
static void put_label(const encoder *e, void *o, int64_t i, int64_t k)
{
    if (e->to.type == PST_STR) {
        ((const char **)o)[i] = k >= 0 ? e->to.texts[k] : e->default_text;
        return;
    }
    char *to = (char *)o + (size_t)i * pst_dtype_size(e->to.as);
    if (e->to.type == PST_I64)
        eng_convert(e->to.as, to, PST_I64, k >= 0 ? &e->to.ints[k] : &e->default_int, 1, true);
    else
        eng_convert(e->to.as, to, PST_F64, k >= 0 ? &e->to.numbers[k] : &e->default_number, 1, true);
}

/* The keys were sorted with the plan (order), so that each value of a run is a search among them. Version 1 has positions instead of a table. */
int eng_op_label_encoder(eng_op_ctx *c)
{
    const encoder *e = *c->state;
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    if (c->node->opset < 2) {
        size_t n;
        const char *const *texts = eng_attr_strings(c->node, "classes_strings", &n);
        return by_position(c, e, texts, NULL, (int64_t)n);
    }
    pst_tensor x = *eng_in(c, 0);
    int64_t n = eng_count(&x);
    char *v = NULL;
    if ((x.dtype == PST_STR) != (e->from.type == PST_STR))
        return eng_op_fail(c, PST_EINVAL, "input %s does not match the keys", pst_dtype_name(x.dtype));
    if (x.dtype != PST_STR) {
        v = eng_op_scratch(c, (size_t)n * 8);
        if (!v)
            return PST_ELIMIT;
        if (eng_convert(e->from.type, v, x.dtype, x.data, n, true) < 0)
            return eng_op_type(c, x.dtype);
    }
    void *o = eng_out_typed(c, 0, e->to.as, &x);
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0; i < n; i++) {
        PST_ASSERT(v || e->from.type == PST_STR);
        const char *text = v ? NULL : ((const char *const *)x.data)[i];
        put_label(e, o, i, find_key(e, text, v ? v + i * 8 : NULL));
    }
    return 0;
}

int eng_op_category_mapper(eng_op_ctx *c)
{
    size_t n, ni;
    const char *const *texts = eng_attr_strings(c->node, "cats_strings", &n);
    const int64_t *ints = eng_attr_ints(c->node, "cats_int64s", &ni);
    encoder e = {.default_text = eng_attr_str(c->node, "default_string", "_Unused"),
                 .default_int = eng_attr_int(c->node, "default_int64", -1)};
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    if (!n || n != ni)
        return eng_op_fail(c, PST_EINVAL, "%zu texts and %zu integers", n, ni);
    return by_position(c, &e, texts, ints, (int64_t)n);
}
