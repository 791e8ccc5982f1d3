/* pipelines_watch.h - follows penstock.pipelines and keeps one scorer service for each pipeline there is: the newest version of it that passed
 * `penstock score check`. A version that does not is reported in up.json ("pipelines_refused") and in the log, and what ran goes on.
 * @thread of the up process. */
#ifndef PST_DEPLOY_PIPELINES_WATCH_H
#define PST_DEPLOY_PIPELINES_WATCH_H

#include "common/platform/client.h"
#include "deploy/local/services.h"

typedef struct local_pipelines_watch local_pipelines_watch;

int local_pipelines_watch_new(pst_client *client, local_pipelines_watch **ret_watch, pst_err *err);
/* Waits up to timeout_ms for news; starts, restarts (the file changed) or stops scorers named "score:<pipeline>". */
void local_pipelines_watch_step(local_pipelines_watch *w, local_services *services, int timeout_ms);
void local_pipelines_watch_free(local_pipelines_watch *w);

#endif
