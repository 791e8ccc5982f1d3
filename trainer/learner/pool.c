/* pool.c - gatherings over the ring, folded in the order of ranks, and the cut of an epoch into minibatches: rank k with n of the N records gives
 * n · (b + 1) / B − n · b / B rows to minibatch b of B, which needs no messages, since all know all n. */
#include "trainer/learner/pool.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = INT32_MAX }; /* of one rank's part: a checkpoint is the largest */

int learn_pool_open(const learn_ring_opts *o, int staleness, learn_pool **ret, pst_err *err)
{
    learn_pool *p = pst_alloc(sizeof *p);
    *p = (learn_pool){.rank = o->rank, .world = o->world, .staleness = o->servers ? staleness : 0};
    p->train = pst_alloc((size_t)o->world * sizeof *p->train);
    p->all = pst_alloc((size_t)o->world * sizeof *p->all);
    int rc = o->world > 1 ? learn_ring_join(o, &p->ring, err) : 0;
    if (!rc && o->servers)
        rc = learn_servers_open(o, &p->servers, err);
    if (rc < 0)
        learn_pool_close(p);
    else
        *ret = p;
    return rc;
}

void learn_pool_alive(learn_pool *p)
{
    if (p->ring)
        learn_ring_alive(p->ring);
}

static void forget(learn_pool *p)
{
    for (int i = 0; i < p->world; i++)
        pst_buf_done(&p->all[i]);
}

void learn_pool_close(learn_pool *p)
{
    if (!p)
        return;
    forget(p);
    learn_ring_leave(p->ring);
    learn_servers_close(p->servers);
    free(p->all);
    free(p->train);
    free(p);
}

int learn_pool_gather(learn_pool *p, const void *mine, size_t len, bool same, const pst_buf **ret, pst_err *err)
{
    forget(p);
    int rc = 0;
    if (p->ring)
        rc = learn_ring_gather(p->ring, mine, len, BYTES_MAX, p->all, err);
    else
        pst_buf_add(&p->all[0], len ? mine : "", len);
    for (int i = 0; !rc && same && i < p->world; i++)
        if (p->all[i].len != len)
            rc = pst_err_set(err, PST_EINCOMPAT, PST_CLASS_FATAL, "learner", 0,
                             "rank %d gave %zu bytes where this rank gave %zu: they train different networks; are the data stores, and the "
                             "penstock programs, of all nodes the same?",
                             i, p->all[i].len, len);
    if (!rc)
        *ret = p->all;
    return rc;
}

int learn_pool_sum(learn_pool *p, double *x, size_t n, pst_err *err)
{
    const pst_buf *all;
    int rc = learn_pool_gather(p, x, n * sizeof *x, true, &all, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        double sum = 0, one;
        for (int rank = 0; rank < p->world; rank++) {
            memcpy(&one, all[rank].data + i * sizeof one, sizeof one);
            sum += one;
        }
        x[i] = sum;
    }
    return 0;
}

int learn_pool_spread(learn_pool *p, pst_buf *b, pst_err *err)
{
    const pst_buf *all;
    int rc = learn_pool_gather(p, b->data, p->rank ? 0 : b->len, false, &all, err);
    if (rc < 0 || !p->rank)
        return rc;
    pst_buf_clear(b);
    pst_buf_add(b, all[0].data, all[0].len);
    return 0;
}

size_t learn_pool_train(const learn_pool *p)
{
    size_t n = 0;
    for (int i = 0; i < p->world; i++)
        n += p->train[i];
    return n;
}

int64_t learn_pool_batches(const learn_pool *p, int size)
{
    return (int64_t)((learn_pool_train(p) + (size_t)size - 1) / (size_t)size);
}

static size_t until(size_t n, int64_t batch, int64_t batches)
{
    uint64_t q = n / (uint64_t)batches, r = n % (uint64_t)batches; /* n · batch alone might be too large a number */
    return (size_t)(q * (uint64_t)batch + r * (uint64_t)batch / (uint64_t)batches);
}

int64_t learn_pool_rows(const learn_pool *p, int64_t batch, int size, size_t *ret_from, size_t *ret_to)
{
    int64_t batches = learn_pool_batches(p, size), rows = 0;
    for (int i = 0; i < p->world; i++)
        rows += (int64_t)(until(p->train[i], batch + 1, batches) - until(p->train[i], batch, batches));
    *ret_from = until(p->train[p->rank], batch, batches);
    *ret_to = until(p->train[p->rank], batch + 1, batches);
    return rows;
}
