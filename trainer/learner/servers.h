/* servers.h - parameter servers: who holds the parameters and takes the steps, where workers only bring gradients and fetch values. Server k of S holds the
 * k-th part of the parameters and of Adam's moments.
 *
 *     worker                                             server
 *     begin   (rank 0) widths, steps, its part  ──▶      ◀── ready
 *     push    loss, right, stop?, its part of the gradient ──▶   all have pushed: summed in the order of ranks, one step
 *                                                        ◀── values  the same summed, its part of the values
 *     pull    (rank 0, for a checkpoint) ──▶             ◀── state   steps, values, both moments
 *     end     (rank 0) ──▶                               exits with 0
 *
 * Synchronously (staleness 0) that is as exact as the ring: the same bits from run to run. With a staleness of s > 0 every push is a step of its own, taken as it
 * comes, and a worker is answered as soon as it is no more than s minibatches ahead of the slowest: faster where ranks are unequal, and never the same twice.
 * Sources: Li et al. (2014), "Scaling distributed machine learning with the parameter server"; Ho et al. (2013), stale synchronous parallel.
 * @thread any, one owner. */
#ifndef PST_LEARNER_SERVERS_H
#define PST_LEARNER_SERVERS_H

#include "schemas/learn_settings.h"
#include "trainer/learner/net.h"
#include "trainer/learner/ring.h"

/* Numbers that travel with a gradient, and are summed with it: loss, rows that were right, whether this rank is to stop, rows. */
enum { LEARN_TAIL_LOSS, LEARN_TAIL_RIGHT, LEARN_TAIL_STOP, LEARN_TAIL_ROWS, LEARN_TAIL };

typedef struct learn_answer_head { /* in front of values and of a state */
    int64_t steps, stop_at;
    float tail[LEARN_TAIL];
} learn_answer_head;

typedef struct learn_servers learn_servers;

/* A worker's: connects to all of them. o->servers > 0. As learn_ring_join(). */
int learn_servers_open(const learn_ring_opts *o, learn_servers **ret_servers, pst_err *err);
void learn_servers_close(learn_servers *v); /* NULL-safe */
/* Rank 0: hands them network, steps, values and moments, and waits until all have them. The others begin after that. */
int learn_servers_begin(learn_servers *v, learn_net *n, pst_err *err);
/* One minibatch: pushes gradient and tail, fetches values into n. io_tail: the sum over the workers (staleness: what was given). *ret_stop_at: the number of the
 * push, from 1, after which all stop, since one of them was told to; 0 = none. */
int learn_servers_step(learn_servers *v, learn_net *n, const float *gradient, float io_tail[LEARN_TAIL], int64_t *ret_stop_at,
                       pst_err *err);
/* Values, moments and steps as the servers have them. */
int learn_servers_pull(learn_servers *v, learn_net *n, pst_err *err);
/* Rank 0: they may exit. */
int learn_servers_end(learn_servers *v, pst_err *err);

/* A server's whole life. o->rank: world + its index. 0 after `end`; PST_ESTOPPED: told to stop, and the workers have gone; class RETRY of origin "ring": a worker
 * is gone. */
int learn_serve(const learn_ring_opts *o, const pst_learn_settings *s, pst_err *err);

/* Of n parameters those of server k: from *ret_from up to, not including, the return value. */
size_t learn_servers_part(size_t n, int servers, int k, size_t *ret_from);
/* What stands in front of a begin, and its check. widths: of the network. */
enum { LEARN_BEGIN_WIDTHS = PST_LEARN_HIDDEN_MAX + 2 };
typedef struct learn_begin {
    uint32_t n_widths, widths[LEARN_BEGIN_WIDTHS];
    int64_t steps;
} learn_begin;
/* PST_EPARSE, PST_ELIMIT: not of a network that is allowed, or not as long as that says. *ret_params: of the whole network. */
int learn_begin_check(const void *bytes, size_t len, int servers, int k, learn_begin *ret_begin, size_t *ret_params, pst_err *err);

#endif
