/* net.c - the built-in learner's network, forward and back. Matrix products by the engine's pst_sgemm; everything else is plain loops over rows. */
#include "trainer/learner/net.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "engine/cpu/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct layer {
    int in, out;
    size_t at; /* of w in the parameters; b follows */
} layer;

struct learn_net {
    int n, rows_max;
    layer *layers;
    pst_activation act;
    pst_loss loss;
    size_t n_params;
    int64_t steps;
    float *values, *gradient, *m, *v;
    float **out;     /* out[l] (rows_max, layers[l].out): after the activation */
    float *delta[2]; /* (rows_max, widest): loss by pre-activation, ping and pong */
};

learn_net *learn_net_new(const int *widths, int n_widths, pst_activation act, pst_loss loss, int rows_max)
{
    PST_ASSERT(n_widths >= 2 && rows_max > 0);
    learn_net *n = pst_alloc(sizeof *n);
    *n = (learn_net){.n = n_widths - 1, .rows_max = rows_max, .act = act, .loss = loss};
    n->layers = pst_alloc((size_t)n->n * sizeof *n->layers);
    n->out = pst_alloc((size_t)n->n * sizeof *n->out);
    int widest = 0;
    for (int l = 0; l < n->n; l++) {
        layer *y = &n->layers[l];
        *y = (layer){widths[l], widths[l + 1], n->n_params};
        PST_ASSERT(y->in > 0 && y->out > 0);
        n->n_params += (size_t)y->in * (size_t)y->out + (size_t)y->out;
        n->out[l] = pst_alloc((size_t)rows_max * (size_t)y->out * sizeof(float));
        widest = y->out > widest ? y->out : widest;
    }
    float **arrays[] = {&n->values, &n->gradient, &n->m, &n->v};
    for (size_t i = 0; i < 4; i++)
        *arrays[i] = pst_alloc(n->n_params * sizeof(float));
    for (int i = 0; i < 2; i++)
        n->delta[i] = pst_alloc((size_t)rows_max * (size_t)widest * sizeof(float));
    return n;
}

void learn_net_free(learn_net *n)
{
    if (!n)
        return;
    for (int l = 0; l < n->n; l++)
        free(n->out[l]);
    float *arrays[] = {n->values, n->gradient, n->m, n->v, n->delta[0], n->delta[1]};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
    free(n->out);
    free(n->layers);
    free(n);
}

void learn_net_init(learn_net *n, learn_rng *rng)
{
    for (int l = 0; l < n->n; l++) {
        const layer *y = &n->layers[l];
        bool he = l + 1 < n->n && n->act != PST_ACTIVATION_TANH && n->act != PST_ACTIVATION_SIGMOID;
        double deviation = sqrt(2.0 / (he ? y->in : y->in + y->out));
        size_t weights = (size_t)y->in * (size_t)y->out;
        for (size_t i = 0; i < weights; i++)
            n->values[y->at + i] = (float)(deviation * learn_rng_normal(rng));
        memset(n->values + y->at + weights, 0, (size_t)y->out * sizeof(float));
    }
    memset(n->m, 0, n->n_params * sizeof(float));
    memset(n->v, 0, n->n_params * sizeof(float));
    n->steps = 0;
}

/* ---- forward ----------------------------------------------------------------------------------------------------------------- */

static void activate(pst_activation act, float *y, size_t n)
{
    switch (act) {
    case PST_ACTIVATION_RELU:
        for (size_t i = 0; i < n; i++)
            y[i] = y[i] > 0 ? y[i] : 0;
        break;
    case PST_ACTIVATION_TANH:
        for (size_t i = 0; i < n; i++)
            y[i] = tanhf(y[i]);
        break;
    case PST_ACTIVATION_SIGMOID:
        for (size_t i = 0; i < n; i++)
            y[i] = 1 / (1 + expf(-y[i]));
        break;
    case PST_ACTIVATION_ELU:
        for (size_t i = 0; i < n; i++)
            y[i] = y[i] > 0 ? y[i] : expm1f(y[i]);
        break;
    case PST_ACTIVATION_LEAKY_RELU:
        for (size_t i = 0; i < n; i++)
            y[i] = y[i] > 0 ? y[i] : PST_LEAKY_SLOPE * y[i];
        break;
    }
}

/* delta ·= f'(pre-activation), told from the activation's own output y. */
static void derive(pst_activation act, const float *y, float *delta, size_t n)
{
    switch (act) {
    case PST_ACTIVATION_RELU:
        for (size_t i = 0; i < n; i++)
            delta[i] = y[i] > 0 ? delta[i] : 0;
        break;
    case PST_ACTIVATION_TANH:
        for (size_t i = 0; i < n; i++)
            delta[i] *= 1 - y[i] * y[i];
        break;
    case PST_ACTIVATION_SIGMOID:
        for (size_t i = 0; i < n; i++)
            delta[i] *= y[i] * (1 - y[i]);
        break;
    case PST_ACTIVATION_ELU:
        for (size_t i = 0; i < n; i++)
            delta[i] *= y[i] > 0 ? 1 : y[i] + 1;
        break;
    case PST_ACTIVATION_LEAKY_RELU:
        for (size_t i = 0; i < n; i++)
            delta[i] *= y[i] > 0 ? 1 : PST_LEAKY_SLOPE;
        break;
    }
}

static void softmax(float *y, int rows, int width)
{
    for (float *end = y + (size_t)rows * (size_t)width; y < end; y += width) {
        float top = y[0], sum = 0;
        for (int j = 1; j < width; j++)
            top = y[j] > top ? y[j] : top;
        for (int j = 0; j < width; j++)
            sum += y[j] = expf(y[j] - top);
        for (int j = 0; j < width; j++)
            y[j] /= sum;
    }
}

const float *learn_net_forward(learn_net *n, const float *x, int rows)
{
    PST_ASSERT(rows >= 0 && rows <= n->rows_max);
    for (int l = 0; l < n->n; l++) {
        const layer *y = &n->layers[l];
        const float *w = n->values + y->at, *b = w + (size_t)y->in * (size_t)y->out;
        for (int r = 0; r < rows; r++)
            memcpy(n->out[l] + (size_t)r * (size_t)y->out, b, (size_t)y->out * sizeof(float));
        pst_sgemm(false, true, rows, y->out, y->in, 1, x, y->in, w, y->in, 1, n->out[l], y->out);
        if (l + 1 < n->n)
            activate(n->act, n->out[l], (size_t)rows * (size_t)y->out);
        x = n->out[l];
    }
    if (n->loss == PST_LOSS_CROSS_ENTROPY)
        softmax(n->out[n->n - 1], rows, n->layers[n->n - 1].out);
    return n->out[n->n - 1];
}

const float *learn_net_output(const learn_net *n)
{
    return n->out[n->n - 1];
}

/* ---- loss -------------------------------------------------------------------------------------------------------------------- */

/* Loss of one row; its derivative by the last layer's sums, times scale, into delta if given. */
static double row_loss(const learn_net *n, const float *y, const float *target, float *delta, float scale, int *right)
{
    int width = n->layers[n->n - 1].out;
    double sum = 0;
    if (n->loss == PST_LOSS_MSE) {
        for (int j = 0; j < width; j++) {
            float d = y[j] - target[j];
            sum += (double)d * (double)d;
            if (delta)
                delta[j] = 2 * d * scale / (float)width;
        }
        return sum / width;
    }
    int class = (int)target[0], best = 0;
    for (int j = 0; j < width; j++) {
        best = y[j] > y[best] ? j : best;
        if (delta)
            delta[j] = (y[j] - (j == class ? 1.0f : 0.0f)) * scale; /* softmax and logarithm together */
    }
    *right += best == class;
    double p = (double)y[class];
    return p != p ? p : -log(p > 1e-30 ? p : 1e-30); /* a probability that vanished in float32 costs 69, not infinity */
}

/* The sum over these rows, which are part of a minibatch of `of`. */
static double all_losses(const learn_net *n, const float *y, const float *target, int rows, int64_t of, float *delta, float *ret_rows,
                         int *ret_right)
{
    int width = n->layers[n->n - 1].out, step = n->loss == PST_LOSS_MSE ? width : 1, right = 0;
    double sum = 0;
    for (int r = 0; r < rows; r++) {
        size_t at = (size_t)r * (size_t)width;
        double loss = row_loss(n, y + at, target + (size_t)r * (size_t)step, delta ? delta + at : NULL, 1.0f / (float)of, &right);
        if (ret_rows)
            ret_rows[r] = (float)loss;
        sum += loss;
    }
    if (ret_right)
        *ret_right = right;
    return sum;
}

double learn_net_loss(learn_net *n, const float *x, const float *target, int rows, float *ret_rows, int *ret_right)
{
    double sum = all_losses(n, learn_net_forward(n, x, rows), target, rows, rows, NULL, ret_rows, ret_right);
    return rows ? sum / rows : 0;
}

/* ---- gradient ---------------------------------------------------------------------------------------------------------------- */

double learn_net_backward_part(learn_net *n, const float *x, const float *target, int rows, int64_t of, int *ret_right)
{
    if (!rows) {
        memset(n->gradient, 0, n->n_params * sizeof *n->gradient);
        *ret_right = 0;
        return 0;
    }
    const float *y = learn_net_forward(n, x, rows);
    float *delta = n->delta[0], *next = n->delta[1];
    double loss = all_losses(n, y, target, rows, of, delta, NULL, ret_right);
    for (int l = n->n - 1; l >= 0; l--) {
        const layer *at = &n->layers[l];
        const float *in = l ? n->out[l - 1] : x;
        float *dw = n->gradient + at->at, *db = dw + (size_t)at->in * (size_t)at->out;
        pst_sgemm(true, false, at->out, at->in, rows, 1, delta, at->out, in, at->in, 0, dw, at->in); /* deltaᵀ (out,rows) · in (rows,in) */
        memset(db, 0, (size_t)at->out * sizeof(float));
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < at->out; j++)
                db[j] += delta[(size_t)r * (size_t)at->out + (size_t)j];
        if (!l)
            break;
        pst_sgemm(false, false, rows, at->in, at->out, 1, delta, at->out, n->values + at->at, at->in, 0, next, at->in);
        derive(n->act, in, next, (size_t)rows * (size_t)at->in);
        float *t = delta;
        delta = next;
        next = t;
    }
    return loss;
}

double learn_net_backward(learn_net *n, const float *x, const float *target, int rows, int *ret_right)
{
    int right = 0;
    double loss = learn_net_backward_part(n, x, target, rows, rows, &right);
    if (ret_right)
        *ret_right = right;
    return rows ? loss / rows : 0;
}

void learn_net_adam_part(learn_net *n, const float *gradient, size_t from, size_t to, const learn_adam *a)
{
    const double beta1 = 0.9, beta2 = 0.999;
    n->steps++;
    float rate = (float)(a->rate * sqrt(1 - pow(beta2, (double)n->steps)) / (1 - pow(beta1, (double)n->steps)));
    float epsilon = (float)(1e-8 * sqrt(1 - pow(beta2, (double)n->steps))), keep1 = (float)beta1, keep2 = (float)beta2;
    float add1 = (float)(1 - beta1), add2 = (float)(1 - beta2), shrink = (float)(a->rate * a->weight_decay);
    for (int l = 0; l < n->n; l++) {
        const layer *y = &n->layers[l];
        size_t weights = y->at + (size_t)y->in * (size_t)y->out, begin = y->at, end = weights + (size_t)y->out;
        begin = begin < from ? from : begin;
        end = end > to ? to : end;
        for (size_t i = begin; i < end; i++) {
            float g = gradient[i - from];
            n->m[i] = keep1 * n->m[i] + add1 * g;
            n->v[i] = keep2 * n->v[i] + add2 * g * g;
            float decay = i < weights ? shrink * n->values[i] : 0;
            n->values[i] -= rate * n->m[i] / (sqrtf(n->v[i]) + epsilon) + decay;
        }
    }
}

void learn_net_adam(learn_net *n, const float *gradient, const learn_adam *a)
{
    learn_net_adam_part(n, gradient, 0, n->n_params, a);
}

double learn_net_step(learn_net *n, const float *x, const float *target, int rows, const learn_adam *adam, int *ret_right)
{
    double loss = learn_net_backward(n, x, target, rows, ret_right);
    if (isfinite(loss))
        learn_net_adam(n, n->gradient, adam);
    return loss;
}

/* ---- looking in ---------------------------------------------------------------------------------------------------------------- */

int learn_net_layers(const learn_net *n)
{
    return n->n;
}

int learn_net_width(const learn_net *n, int l)
{
    return l ? n->layers[l - 1].out : n->layers[0].in;
}

pst_activation learn_net_activation(const learn_net *n)
{
    return n->act;
}

pst_loss learn_net_loss_kind(const learn_net *n)
{
    return n->loss;
}

const float *learn_net_weights(const learn_net *n, int l)
{
    return n->values + n->layers[l].at;
}

const float *learn_net_biases(const learn_net *n, int l)
{
    return n->values + n->layers[l].at + (size_t)n->layers[l].in * (size_t)n->layers[l].out;
}

size_t learn_net_parameters(const learn_net *n)
{
    return n->n_params;
}

float *learn_net_values(learn_net *n)
{
    return n->values;
}

const float *learn_net_gradient(const learn_net *n)
{
    return n->gradient;
}

float *learn_net_moments(learn_net *n, int which)
{
    return which == 1 ? n->m : n->v;
}

int64_t learn_net_steps(const learn_net *n)
{
    return n->steps;
}

void learn_net_set_steps(learn_net *n, int64_t steps)
{
    n->steps = steps;
}
