/* why.h - why a job is where it is, computed when asked: from the states of all jobs, the heartbeats of all nodes and the queues, as their topics tell them now. The
 * reason in a state is what the Trainer said when it looked last; this is what holds at the moment.
 *
 *     pst_why *w = NULL;
 *     rc = pst_why_gather(client, &w, &err);
 *     if (!rc) rc = pst_why_tell(w, id, NULL, pst_now_us(), &told, &err);   // told: an object; its "text" is for people
 *     pst_why_free(w);
 *
 * @thread any, one owner. */
#ifndef PST_COMMON_PLATFORM_WHY_H
#define PST_COMMON_PLATFORM_WHY_H

#include "common/base/json.h"
#include "common/platform/client.h"

typedef struct pst_why pst_why;

/* Reads the topics to their present end. */
int pst_why_gather(pst_client *c, pst_why **ret_why, pst_err *err);
/* The same by hand. Both move in; a later one of the same id replaces it. seen_us: when the heartbeat was published. */
pst_why *pst_why_new(void);
void pst_why_job(pst_why *w, pst_job_state *take);
void pst_why_node(pst_why *w, pst_worker_state *take, int64_t seen_us);
void pst_why_queue(pst_why *w, pst_queue_spec *take); /* none is given twice */
void pst_why_free(pst_why *w);
/* id: a training id, or what is unique of one's beginning. viewer: who asks and may see no job but their own (others are counted, not named), or NULL.
 * ret_told: {training_id, state, reason_code, reason, since, queue, site; of a job that waits: position, waiting, ahead, queue_lacks, missing, after,
 * held_by; of one that runs: node; text}. PST_ENOTFOUND; PST_EINVAL: the id is the beginning of several. */
int pst_why_tell(const pst_why *w, const char *id, const char *viewer, int64_t now_us, json_t **ret_told, pst_err *err);

#endif
