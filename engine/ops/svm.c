/* svm.c - SVMClassifier and SVMRegressor: libsvm's decision functions (Chang and Lin, "LIBSVM: A Library for Support Vector
 * Machines", 2011); pairwise probabilities coupled by the second method of Wu, Lin and Weng (2004). */
#include "engine/ops/kernels.h"
#include "engine/ops/tree.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct svm {
    const char *kernel;
    double gamma, coef0, degree;
    const float *coef, *sv, *rho, *proba, *probb;
    size_t n_coef, n_sv_floats, n_rho, n_proba, n_probb;
    const int64_t *per_class;
    size_t n_per_class;
    int64_t n_sv, cols;
} svm;

static void read_svm(eng_op_ctx *c, svm *s)
{
    size_t n;
    const float *params = eng_attr_floats(c->node, "kernel_params", &n);
    *s = (svm){.kernel = eng_attr_str(c->node, "kernel_type", "LINEAR")};
    s->gamma = n > 0 ? (double)params[0] : 0;
    s->coef0 = n > 1 ? (double)params[1] : 0;
    s->degree = n > 2 ? (double)params[2] : 0;
    s->coef = eng_attr_floats(c->node, "coefficients", &s->n_coef);
    s->sv = eng_attr_floats(c->node, "support_vectors", &s->n_sv_floats);
    s->rho = eng_attr_floats(c->node, "rho", &s->n_rho);
    s->proba = eng_attr_floats(c->node, "prob_a", &s->n_proba);
    s->probb = eng_attr_floats(c->node, "prob_b", &s->n_probb);
    s->per_class = eng_attr_ints(c->node, "vectors_per_class", &s->n_per_class);
}

static double kernel(const svm *s, const float *a, const float *b, int64_t n)
{
    double d = 0;
    if (s->kernel[0] == 'R') {
        for (int64_t i = 0; i < n; i++) {
            double e = (double)a[i] - (double)b[i];
            d += e * e;
        }
        return exp(-s->gamma * d);
    }
    for (int64_t i = 0; i < n; i++)
        d += (double)a[i] * (double)b[i];
    return s->kernel[0] == 'P' ? pow(s->gamma * d + s->coef0, s->degree) : s->kernel[0] == 'S' ? tanh(s->gamma * d + s->coef0) : d;
}

int eng_op_svm_regressor(eng_op_ctx *c)
{
    svm s;
    int64_t rows, cols;
    read_svm(c, &s);
    const float *x = eng_in_rows(c, 0, &rows, &cols);
    if (!x)
        return PST_EINVAL;
    s.n_sv = eng_attr_int(c->node, "n_supports", 0);
    bool linear = s.n_sv <= 0, one_class = eng_attr_int(c->node, "one_class", 0);
    if (!s.n_rho || (linear ? s.n_coef != (size_t)cols
                            : s.n_sv > 100000000 || s.n_coef != (size_t)s.n_sv || s.n_sv_floats != (size_t)s.n_sv * (size_t)cols))
        return eng_op_fail(c, PST_EINVAL, "its lists do not fit %lld features", (long long)cols);
    eng_post post = eng_post_of(eng_attr_str(c->node, "post_transform", "NONE"));
    float *o = eng_out(c, 0, PST_F32, 2, (int64_t[]){rows, 1});
    if (!o)
        return PST_ELIMIT;
    for (int64_t r = 0; r < rows; r++) {
        double sum = (double)s.rho[0];
        if (linear)
            sum += kernel(&s, x + r * cols, s.coef, cols);
        for (int64_t k = 0; !linear && k < s.n_sv; k++)
            sum += (double)s.coef[k] * kernel(&s, x + r * cols, s.sv + k * cols, cols);
        o[r] = one_class ? (sum > 0 ? 1.0f : -1.0f) : (float)sum;
        eng_post_row(post, o + r, 1);
    }
    return 0;
}

/* Class probabilities p from pairwise r (k × k): minimises the sum over pairs of (r_ji p_i - r_ij p_j)². */
static void couple(int k, const double *r, double *q, double *qp, double *p)
{
    for (int t = 0; t < k; t++) {
        p[t] = 1.0 / k;
        q[t * k + t] = 0;
        for (int j = 0; j < k; j++)
            if (j != t) {
                q[t * k + t] += r[j * k + t] * r[j * k + t];
                q[t * k + j] = -r[j * k + t] * r[t * k + j];
            }
    }
    for (int iter = 0; iter < 100; iter++) {
        double pqp = 0, worst = 0;
        for (int t = 0; t < k; t++) {
            qp[t] = 0;
            for (int j = 0; j < k; j++)
                qp[t] += q[t * k + j] * p[j];
            pqp += p[t] * qp[t];
        }
        for (int t = 0; t < k; t++)
            worst = fmax(worst, fabs(qp[t] - pqp));
        if (worst < 0.005 / k)
            break;
        for (int t = 0; t < k; t++) {
            double d = (pqp - qp[t]) / q[t * k + t];
            p[t] += d;
            pqp = (pqp + d * (d * q[t * k + t] + 2 * qp[t])) / (1 + d) / (1 + d);
            for (int j = 0; j < k; j++) {
                qp[j] = (qp[j] + d * q[t * k + j]) / (1 + d);
                p[j] /= 1 + d;
            }
        }
    }
}

/* One row of a kernel machine: pairwise decisions into dec, votes; returns the class with most votes. */
static int decide(const svm *s, int classes, const float *x, int64_t cols, double *k, double *dec, int *votes)
{
    int64_t start_i = 0;
    int pair = 0, best = 0;
    for (int64_t v = 0; v < s->n_sv; v++)
        k[v] = kernel(s, x, s->sv + v * cols, cols);
    memset(votes, 0, (size_t)classes * sizeof *votes);
    for (int i = 0; i < classes; start_i += s->per_class[i], i++) {
        int64_t start_j = start_i + s->per_class[i];
        for (int j = i + 1; j < classes; start_j += s->per_class[j], j++) {
            double sum = (double)s->rho[pair];
            for (int64_t v = start_i; v < start_i + s->per_class[i]; v++)
                sum += (double)s->coef[(j - 1) * s->n_sv + v] * k[v];
            for (int64_t v = start_j; v < start_j + s->per_class[j]; v++)
                sum += (double)s->coef[i * s->n_sv + v] * k[v];
            dec[pair++] = sum;
            votes[sum > 0 ? i : j]++;
        }
    }
    for (int i = 1; i < classes; i++)
        best = votes[i] > votes[best] ? i : best;
    return best;
}

static void probabilities(const svm *s, int classes, const double *dec, double *work, float *z)
{
    double *r = work, *q = r + classes * classes, *qp = q + classes * classes, *p = qp + classes;
    int pair = 0;
    for (int i = 0; i < classes; i++)
        for (int j = i + 1; j < classes; j++, pair++) {
            double f = dec[pair] * (double)s->proba[pair] + (double)s->probb[pair];
            double v = f >= 0 ? exp(-f) / (1 + exp(-f)) : 1 / (1 + exp(f));
            v = fmin(fmax(v, 1e-7), 1 - 1e-7);
            r[i * classes + j] = v;
            r[j * classes + i] = 1 - v;
        }
    couple(classes, r, q, qp, p);
    for (int i = 0; i < classes; i++)
        z[i] = (float)p[i];
}

/* Without support vectors each class has a row of coefficients: its score is the kernel of row and coefficients, plus rho. */
static int linear_classes(eng_op_ctx *c, const svm *s, const eng_labels *l, const float *x, int64_t rows, int64_t cols)
{
    int64_t n = l->n;
    if (n < 2 || n > INT_MAX || !s->n_rho || s->n_coef % (size_t)n || (int64_t)(s->n_coef / (size_t)n) != cols)
        return eng_op_fail(c, PST_EINVAL, "%zu coefficients and %zu rho do not fit %lld classes of %lld features", s->n_coef, s->n_rho,
                           (long long)n, (long long)cols);
    eng_post post = eng_post_of(eng_attr_str(c->node, "post_transform", "NONE"));
    void *labels = eng_labels_out(c, l, rows);
    float *z = eng_out(c, 1, PST_F32, 2, (int64_t[]){rows, n});
    if (!labels || !z)
        return PST_ELIMIT;
    for (int64_t r = 0; r < rows; r++) {
        float *o = z + r * n;
        int best = 0;
        for (int k = 0; k < n; k++) {
            o[k] = (float)(kernel(s, x + r * cols, s->coef + k * cols, cols) + (double)s->rho[0]);
            best = o[k] > o[best] ? k : best;
        }
        eng_label_put(l, labels, r, best);
        eng_post_row(post, o, (int)n);
    }
    return 0;
}

int eng_op_svm_classifier(eng_op_ctx *c)
{
    svm s;
    eng_labels l;
    int64_t rows, cols;
    read_svm(c, &s);
    eng_labels_of(c->node, &l);
    const float *x = eng_in_rows(c, 0, &rows, &cols);
    if (!x)
        return PST_EINVAL;
    int classes = (int)s.n_per_class, pairs = classes * (classes - 1) / 2;
    if (!classes)
        return linear_classes(c, &s, &l, x, rows, cols);
    bool fits = classes >= 2 && classes <= 1000;
    for (int i = 0; i < classes && fits; i++) {
        fits = s.per_class[i] >= 0 && s.per_class[i] < 100000000;
        s.n_sv += fits ? s.per_class[i] : 0;
    }
    if (!fits || (int64_t)s.n_sv_floats != s.n_sv * cols || (int64_t)s.n_coef != s.n_sv * (classes - 1) || s.n_rho != (size_t)pairs ||
        l.n != classes || (s.n_proba && (s.n_proba != (size_t)pairs || s.n_probb != (size_t)pairs)))
        return eng_op_fail(c, PST_EINVAL, "its lists do not fit %d classes of %lld features", classes, (long long)cols);
    eng_post post = eng_post_of(eng_attr_str(c->node, "post_transform", "NONE"));
    bool proba = s.n_proba;
    int n_out = pairs == 1 ? 2 : pairs;
    if (proba)
        n_out = classes;
    void *labels = eng_labels_out(c, &l, rows);
    float *z = eng_out(c, 1, PST_F32, 2, (int64_t[]){rows, n_out});
    double *work = eng_op_scratch(c, ((size_t)s.n_sv + (size_t)pairs + (size_t)(2 * classes * classes + 2 * classes)) * sizeof *work);
    int *votes = eng_op_scratch(c, (size_t)classes * sizeof *votes);
    if (!labels || !z || !work || !votes)
        return PST_ELIMIT;
    double *dec = work + s.n_sv;
    for (int64_t r = 0; r < rows; r++) {
        float *o = z + r * n_out;
        int best = decide(&s, classes, x + r * cols, cols, work, dec, votes);
        if (proba) {
            probabilities(&s, classes, dec, dec + pairs, o);
        } else if (pairs == 1) { /* one decision value for two classes */
            o[0] = (float)-dec[0];
            o[1] = (float)dec[0];
        } else {
            for (int i = 0; i < pairs; i++)
                o[i] = (float)dec[i];
        }
        eng_label_put(&l, labels, r, best);
        if (!proba || post != ENG_POST_NONE)
            eng_post_row(post, o, n_out);
    }
    return 0;
}
