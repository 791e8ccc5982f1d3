/* native_op.c - the one node of a native model: forest (or linear sums), then the objective's transform as the library computes it. */
#include "engine/native/native.h"

#include "engine/plan.h"
#include "engine/share.h"

#include <math.h>
#include <string.h>

/* ---- transforms on one row ---- */

/* The library's own formula, in float32: results are the same to the last bit where the exponential is. */
static float sigmoid_f(float x)
{
    float e = expf(-x < 88.7f ? -x : 88.7f);
    return 1.0f / (e + 1.0f + 1e-16f);
}

static void softmax_f(float *v, int n)
{
    float top = v[0];
    double sum = 0;
    for (int i = 1; i < n; i++)
        top = fmaxf(v[i], top);
    for (int i = 0; i < n; i++) {
        v[i] = expf(v[i] - top);
        sum += (double)v[i];
    }
    for (int i = 0; i < n; i++)
        v[i] /= (float)sum;
}

static void softmax_d(double *v, int n)
{
    double top = v[0], sum = 0;
    for (int i = 1; i < n; i++)
        top = v[i] > top ? v[i] : top;
    for (int i = 0; i < n; i++) {
        v[i] = exp(v[i] - top);
        sum += v[i];
    }
    for (int i = 0; i < n; i++)
        v[i] /= sum;
}

static int class_of(const float *v, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = v[i] > v[best] ? i : best;
    return best;
}

/* Sums in float32 (XGBoost): v has n_groups, what stays are n_outputs. */
static void finish_f(const eng_native *n, float *v)
{
    int k = n->n_groups;
    switch (n->link) {
    case ENG_LINK_SIGMOID_F:
        for (int i = 0; i < k; i++)
            v[i] = sigmoid_f(v[i]);
        break;
    case ENG_LINK_EXP_F:
        for (int i = 0; i < k; i++)
            v[i] = expf(v[i]);
        break;
    case ENG_LINK_EXP: /* survival:aft, by the double exponential */
        for (int i = 0; i < k; i++)
            v[i] = (float)exp((double)v[i]);
        break;
    case ENG_LINK_SOFTMAX_F: softmax_f(v, k); break;
    case ENG_LINK_ARGMAX_F: v[0] = (float)class_of(v, k); break;
    case ENG_LINK_STEP_F:
        for (int i = 0; i < k; i++)
            v[i] = v[i] > 0 ? 1 : 0;
        break;
    default: break;
    }
}

/* Sums in double (LightGBM). */
static void finish_d(const eng_native *n, double *v)
{
    int k = n->n_groups;
    for (int i = 0; i < k && n->divisor; i++)
        v[i] /= n->divisor;
    if (n->link == ENG_LINK_SOFTMAX) {
        softmax_d(v, k);
        return;
    }
    for (int i = 0; i < k; i++)
        switch (n->link) {
        case ENG_LINK_SQUARE: v[i] = v[i] < 0 ? -v[i] * v[i] : v[i] * v[i]; break;
        case ENG_LINK_SIGMOID: v[i] = 1 / (1 + exp(-n->scale * v[i])); break;
        case ENG_LINK_EXP: v[i] = exp(v[i]); break;
        case ENG_LINK_LOG1P_EXP: v[i] = log1p(exp(v[i])); break;
        default: break;
        }
}

/* ---- running ---- */

/* bias + base, then features in order; missing ones are passed over, as the library's sparse rows do not have them. */
static void linear_row(const eng_native *n, const float *x, float *v)
{
    const float *w = n->weights, *bias = w + (size_t)n->n_features * (size_t)n->n_groups;
    for (int g = 0; g < n->n_groups; g++) {
        float sum = bias[g] + n->start[g];
        for (int i = 0; i < n->n_features; i++)
            if (!isnan(x[i]))
                sum += x[i] * w[(size_t)i * (size_t)n->n_groups + (size_t)g];
        v[g] = sum;
    }
}

static int sums_of(eng_op_ctx *c, const eng_native *n, const pst_tensor *x, double *sums)
{
    const eng_forest *f = *c->state;
    int64_t rows = x->dims[0], cols = x->dims[1];
    if (c->plan->device.of == f)
        return c->plan->device.sums(c->plan, x, sums, NULL, c->err);
    if (f->fast && !c->plan->opts.no_fusion)
        return eng_forest_fast_run(c, f, x->data, rows, cols, sums, NULL);
    if (f->wide)
        eng_forest_eval_d(f, x->data, rows, cols, sums, NULL);
    else
        eng_forest_eval_f(f, x->data, rows, cols, sums, NULL);
    return 0;
}

/* XGBoost's result of a row, in float. */
static void finish_row_f(const eng_native *n, const float *x, const double *s, float *v)
{
    if (n->weights)
        linear_row(n, x, v);
    for (int i = 0; i < n->n_groups && !n->weights; i++)
        v[i] = (float)s[i];
    finish_f(n, v);
}

/* What LightGBM computes in double stays double to the result. */
static int run(eng_op_ctx *c)
{
    const eng_native *n = c->node->fused;
    const pst_tensor *x = eng_in(c, 0);
    bool wide = n->forest.wide;
    pst_dtype want = wide ? PST_F64 : PST_F32;
    if (!x || x->rank != 2 || x->dtype != want || x->dims[1] != n->n_features)
        return eng_op_fail(c, PST_EINVAL, "a %s tensor (N, %d) is needed", pst_dtype_name(want), n->n_features);
    int64_t rows = x->dims[0];
    size_t each = (size_t)n->n_outputs;
    void *y = eng_out(c, 0, want, 2, (int64_t[]){rows, n->n_outputs});
    double *sums = eng_op_scratch(c, (size_t)rows * (size_t)n->n_groups * sizeof *sums + 8);
    float *v = eng_op_scratch(c, (size_t)n->n_groups * sizeof *v);
    if (!y || !sums || !v)
        return PST_ELIMIT;
    int rc = n->weights ? 0 : sums_of(c, n, x, sums);
    for (int64_t r = 0; r < rows && rc == 0; r++) {
        double *s = sums + r * n->n_groups;
        if (wide) {
            finish_d(n, s);
            memcpy((double *)y + (size_t)r * each, s, each * sizeof *s);
        } else {
            finish_row_f(n, (const float *)x->data + r * n->n_features, s, v);
            memcpy((float *)y + (size_t)r * each, v, each * sizeof *v);
        }
    }
    return rc;
}

/* The model's forest with its vector form. */
static int make_forest(eng_op_ctx *c, void *made)
{
    eng_forest *f = made;
    *f = ((const eng_native *)c->node->fused)->forest;
    eng_forest_fast_new(c, f);
    return 0;
}

static int prepare(eng_op_ctx *c)
{
    const eng_native *n = c->node->fused;
    if (n->weights) {
        c->kernel = "linear sums";
        return 0;
    }
    const eng_share_key key = {.what = "native forest", .of = n};
    int rc = eng_op_share(c, &key, true, sizeof(eng_forest), make_forest, c->state);
    if (rc == 0)
        eng_forest_describe(c, *c->state);
    return rc;
}

const eng_op eng_native_op = {
    .domain = "native", .name = "Native", .min_opset = 1, .cost = ENG_COST_NATIVE, .run = run, .prepare = prepare};
