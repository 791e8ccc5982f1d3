/* pool.h - the ranks that train one model together, as the rest of the learner sees them: what each knows becomes what all know. Every call is made by
 * all ranks, in the same order. NULL stands for a learner that is alone, where a pool is a member of something. @thread any, one owner. */
#ifndef PST_LEARNER_POOL_H
#define PST_LEARNER_POOL_H

#include "trainer/learner/servers.h"

typedef struct learn_pool {
    int rank, world;
    learn_ring *ring;       /* NULL: a world of one, with parameter servers */
    learn_servers *servers; /* who take the steps; NULL = all do */
    int staleness;          /* with servers: minibatches that a rank may be ahead of the slowest */
    size_t *train;          /* records that each rank trains on; filled by learn_prepare() */
    pst_buf *all;           /* of the last gathering */
} learn_pool;

int learn_pool_open(const learn_ring_opts *o, int staleness, learn_pool **ret_pool,
                    pst_err *err);    /* when all are there; as learn_ring_join() */
void learn_pool_alive(learn_pool *p); /* often, by whatever takes long */
void learn_pool_close(learn_pool *p); /* NULL-safe */

/* ret_all[k]: what rank k gave, until the next call. same: all are as long as this rank's, or it is PST_EINCOMPAT. */
int learn_pool_gather(learn_pool *p, const void *mine, size_t len, bool same, const pst_buf **ret_all, pst_err *err);
/* Every x[i] becomes the sum over the ranks, added up in their order: the same bits everywhere, every time. For few numbers. */
int learn_pool_sum(learn_pool *p, double *x, size_t n, pst_err *err);
/* What rank 0 has in b, all have afterwards. */
int learn_pool_spread(learn_pool *p, pst_buf *b, pst_err *err);
/* Rows of one rank in minibatch `batch` of an epoch with minibatches of about `size`: [*ret_from, *ret_to) of its order. Every record of every rank is in
 * one minibatch of the epoch. Returns how many rows the minibatch has over all ranks, which may be none when minibatches are smaller than the
 * number of ranks. */
int64_t learn_pool_rows(const learn_pool *p, int64_t batch, int size, size_t *ret_from, size_t *ret_to);
int64_t learn_pool_batches(const learn_pool *p, int size); /* of an epoch */
size_t learn_pool_train(const learn_pool *p);              /* records that all train on */

#endif
