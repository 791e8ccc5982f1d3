/* net.h - a chain of dense layers: forward, loss, gradient, Adam. Pure arithmetic on float32, no I/O, no clock.
 *
 *     pst_net *n = pst_net_new((int[]){10, 8, 4, 8, 10}, 5, PST_ACTIVATION_TANH, PST_LOSS_MSE, 16);
 *     pst_net_init(n, &rng);
 *     double loss = pst_net_step(n, x, target, rows, &(pst_adam){.rate = 1e-3}, &right);     // one minibatch
 *     const float *y = pst_net_forward(n, x, rows);                                         // (rows, out): valid until the next call
 *
 * Hidden layers have the activation, the last one is linear; with PST_LOSS_CROSS_ENTROPY pst_net_forward gives probabilities (softmax).
 * Parameters lie in one array, layer after layer: w (out,in) row-major, then b (out). rows ≤ rows_max of pst_net_new.
 * Sources: backpropagation as in Goodfellow et al., "Deep Learning" (2016) 6.5; Adam: Kingma and Ba (2015), algorithm 1; decoupled weight
 * decay: Loshchilov and Hutter (2019), algorithm 2; initial weights: He et al. (2015) for the relu family, Glorot and Bengio (2010) else.
 * @thread any, one owner. The same calls give the same bits on the same CPU. */
#ifndef PST_LEARNER_NET_H
#define PST_LEARNER_NET_H

#include "schemas/learn_settings.h"
#include "trainer/learner/random.h"

#include <stdbool.h>

#define PST_LEAKY_SLOPE 0.01f

typedef struct pst_adam {
    double rate;
    double weight_decay; /* of weights, not of biases */
} pst_adam;

typedef struct pst_net pst_net;

/* widths: n_widths ≥ 2, input first. */
pst_net *pst_net_new(const int *widths, int n_widths, pst_activation act, pst_loss loss, int rows_max);
void pst_net_free(pst_net *n); /* NULL-safe */
void pst_net_init(pst_net *n, pst_rng *rng);

/* x (rows,in) → y (rows,out). */
const float *pst_net_forward(pst_net *n, const float *x, int rows);
/* Mean loss of these rows without changing anything; each row's own in ret_rows (NULL: not wanted). target: (rows,out) for MSE, class
 * numbers (rows) for cross-entropy. ret_right: how many rows have their class as the most probable one (0 with MSE); may be NULL. */
double pst_net_loss(pst_net *n, const float *x, const float *target, int rows, float *ret_rows, int *ret_right);
/* The same and the gradient of the mean loss by every parameter, readable in pst_net_gradient(). */
double pst_net_backward(pst_net *n, const float *x, const float *target, int rows, int *ret_right);
/* backward, then one step of Adam. Leaves the parameters alone when the loss is not finite. */
double pst_net_step(pst_net *n, const float *x, const float *target, int rows, const pst_adam *adam, int *ret_right);

int pst_net_layers(const pst_net *n);
int pst_net_width(const pst_net *n, int layer); /* 0 = input … layers = output */
pst_activation pst_net_activation(const pst_net *n);
pst_loss pst_net_loss_kind(const pst_net *n);
const float *pst_net_weights(const pst_net *n, int layer); /* (out,in) of layer 0 … layers − 1 */
const float *pst_net_biases(const pst_net *n, int layer);

/* What a checkpoint holds: parameters, both moments of Adam, steps taken. All arrays have pst_net_parameters() floats. */
size_t pst_net_parameters(const pst_net *n);
float *pst_net_values(pst_net *n);
const float *pst_net_gradient(const pst_net *n);
float *pst_net_moments(pst_net *n, int which); /* 1 = mean, 2 = uncentred variance */
int64_t pst_net_steps(const pst_net *n);
void pst_net_set_steps(pst_net *n, int64_t steps);

#endif
