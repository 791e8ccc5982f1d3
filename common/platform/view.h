/* view.h - the view writer: reads jobs.state (and models) from the topics and keeps the store equal to them; rebuilds an emptied store.
 * Runs in a thread of the trainer for sqlite: and mongodb: URLs; a gateway on memory: runs its own. */
#ifndef PST_COMMON_PLATFORM_VIEW_H
#define PST_COMMON_PLATFORM_VIEW_H

#include "common/platform/client.h"
#include "common/store/store.h"

typedef struct pst_view pst_view;

int pst_view_start(pst_client *client, const char *store_url, pst_view **ret_view, pst_err *err); /* starts the thread */
void pst_view_stop(pst_view *v);
int64_t pst_view_lag(pst_view *v); /* records not applied yet; -1 = not known */
/* The writer's own store for a gateway that runs its view in-process; access only between lock and unlock. */
pst_store *pst_view_lock(pst_view *v);
void pst_view_unlock(pst_view *v);

#endif
