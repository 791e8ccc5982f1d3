/* net.h - a chain of dense layers: forward, loss, gradient, Adam. Pure arithmetic on float32, no I/O, no clock.
 *
 *     learn_net *n = learn_net_new((int[]){10, 8, 4, 8, 10}, 5, PST_ACTIVATION_TANH, PST_LOSS_MSE, 16);
 *     learn_net_init(n, &rng);
 *     double loss = learn_net_step(n, x, target, rows, &(learn_adam){.rate = 1e-3}, &right);     // one minibatch
 *     const float *y = learn_net_forward(n, x, rows);                                         // (rows, out): valid until the next call
 *
 * Hidden layers have the activation, the last one is linear; with PST_LOSS_CROSS_ENTROPY learn_net_forward gives probabilities (softmax).
 * Parameters lie in one array, layer after layer: w (out,in) row-major, then b (out). rows ≤ rows_max of learn_net_new.
 * Sources: backpropagation as in Goodfellow et al., "Deep Learning" (2016) 6.5; Adam: Kingma and Ba (2015), algorithm 1; decoupled weight
 * decay: Loshchilov and Hutter (2019), algorithm 2; initial weights: He et al. (2015) for the relu family, Glorot and Bengio (2010) else.
 * @thread any, one owner. The same calls give the same bits on the same CPU. */
#ifndef PST_LEARNER_NET_H
#define PST_LEARNER_NET_H

#include "schemas/learn_settings.h"
#include "trainer/learner/random.h"

#include <stdbool.h>

#define PST_LEAKY_SLOPE 0.01f

typedef struct learn_adam {
    double rate;
    double weight_decay; /* of weights, not of biases */
} learn_adam;

typedef struct learn_net learn_net;

/* widths: n_widths ≥ 2, input first. */
learn_net *learn_net_new(const int *widths, int n_widths, pst_activation act, pst_loss loss, int rows_max);
void learn_net_free(learn_net *n); /* NULL-safe */
void learn_net_init(learn_net *n, learn_rng *rng);

/* x (rows,in) → y (rows,out). */
const float *learn_net_forward(learn_net *n, const float *x, int rows);
const float *learn_net_output(const learn_net *n); /* of the last forward, also as a part of what follows */
/* Mean loss of these rows without changing anything; each row's own in ret_rows (NULL: not wanted). target: (rows,out) for MSE, class
 * numbers (rows) for cross-entropy. ret_right: how many rows have their class as the most probable one (0 with MSE); may be NULL. */
double learn_net_loss(learn_net *n, const float *x, const float *target, int rows, float *ret_rows, int *ret_right);
/* The same and the gradient of the mean loss by every parameter, readable in learn_net_gradient(). */
double learn_net_backward(learn_net *n, const float *x, const float *target, int rows, int *ret_right);
/* For rows that are a part of a minibatch of `of` rows: their share of that gradient, so that the shares add up to it. Returns the sum of their
 * losses, not the mean. rows may be 0. */
double learn_net_backward_part(learn_net *n, const float *x, const float *target, int rows, int64_t of, int *ret_right);
void learn_net_adam(learn_net *n, const float *gradient, const learn_adam *adam); /* one step */
/* The same of parameters [from, to) alone; gradient: theirs. */
void learn_net_adam_part(learn_net *n, const float *gradient, size_t from, size_t to, const learn_adam *adam);
/* backward, then one step of Adam. Leaves the parameters alone when the loss is not finite. */
double learn_net_step(learn_net *n, const float *x, const float *target, int rows, const learn_adam *adam, int *ret_right);

int learn_net_layers(const learn_net *n);
int learn_net_width(const learn_net *n, int layer); /* 0 = input … layers = output */
pst_activation learn_net_activation(const learn_net *n);
pst_loss learn_net_loss_kind(const learn_net *n);
const float *learn_net_weights(const learn_net *n, int layer); /* (out,in) of layer 0 … layers − 1 */
const float *learn_net_biases(const learn_net *n, int layer);

/* What a checkpoint holds: parameters, both moments of Adam, steps taken. All arrays have learn_net_parameters() floats. */
size_t learn_net_parameters(const learn_net *n);
float *learn_net_values(learn_net *n);
const float *learn_net_gradient(const learn_net *n);
float *learn_net_moments(learn_net *n, int which); /* 1 = mean, 2 = uncentred variance */
int64_t learn_net_steps(const learn_net *n);
void learn_net_set_steps(learn_net *n, int64_t steps);

#endif
