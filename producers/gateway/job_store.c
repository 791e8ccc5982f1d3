/* job_store.c - where lists of jobs and single jobs are looked up: the store that the Trainer keeps, or, where the store is memory:, a view that
 * this process keeps by itself, since another process's memory cannot be read. Opened read-only, and at the first request rather than at the
 * start: a gateway may be up before there is a store. */
#include "producers/gateway/gateway.h"

#include "common/base/settings.h"

pst_store *gw_store_lock(gw_state *g, pst_err *err)
{
    if (g->view)
        return pst_view_lock(g->view);
    if (!g->store)
        pst_store_open(pst_setting_full(&g->client->settings->store), true, &g->store, err);
    return g->store;
}

void gw_store_unlock(gw_state *g)
{
    if (g->view)
        pst_view_unlock(g->view);
}
