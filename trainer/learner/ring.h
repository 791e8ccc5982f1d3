/* ring.h - the ranks of a gang as a ring: sums and gatherings that give every rank the same bits, from run to run.
 *
 *     learn_ring *r;
 *     learn_ring_join(&(learn_ring_opts){.rank = 1, .world = 3, .at = places, …}, &r, &err);   // when all have joined
 *     learn_ring_sum(r, gradient, n, &err);                                                      // every rank has the sum of all
 *     learn_ring_leave(r);
 *
 * Rank r sends to r + 1 and hears from r − 1, over TCP. A sum goes twice around (reduce-scatter, then all-gather): 2 (n − 1) / n of the vector leaves each
 * rank, and every part of it is added up in one fixed order of ranks, whatever comes first. A rank that waits, or is busy elsewhere and calls
 * learn_ring_alive(), says so; one from which nothing comes for as long as the time-out is an error, as is one that closes. There is no way on
 * from an error but a new generation. Sources: Patarasuk and Yuan (2009), "Bandwidth optimal all-reduce algorithms".
 * @thread any, one owner. */
#ifndef PST_LEARNER_RING_H
#define PST_LEARNER_RING_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "trainer/learner/door.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct learn_ring_opts {
    int rank, world;       /* world from 1; of a parameter server: world + its index */
    int servers;           /* parameter servers (servers.h); 0 = none, and the world is from 2 */
    const learn_place *at; /* of every rank, then of every server */
    const char *training_id;
    int generation;
    const char *secret; /* of the generation, known to its ranks only */
    int64_t timeout_us; /* silence of a neighbour */
    void *arg;
    bool (*stopped)(void *arg); /* asked while waiting for neighbours to come */
} learn_ring_opts;

typedef struct learn_ring learn_ring;

/* 0; PST_ESTOPPED; PST_EFENCED: this generation is over; PST_ETIMEDOUT, PST_EUNREACH/RETRY: somebody did not come. Strangers at the port are sent
 * away, and the waiting goes on. */
int learn_ring_join(const learn_ring_opts *o, learn_ring **ret_ring, pst_err *err);
void learn_ring_leave(learn_ring *r); /* NULL-safe */

/* x := the sum over all ranks. All give the same n. */
int learn_ring_sum(learn_ring *r, float *x, size_t n, pst_err *err);
/* ret_all[k]: what rank k gave, of at most bytes_max; pst_buf_done() each, also on failure. */
int learn_ring_gather(learn_ring *r, const void *mine, size_t len, size_t bytes_max, pst_buf *ret_all, pst_err *err);
/* For who works long without either: tells the next rank that this one lives, at most every few seconds. A failure shows in the next call. */
void learn_ring_alive(learn_ring *r);

#endif
