/* bulk.h - one thing asked of many jobs: halt, resume, terminate, delete, hold, release without an ID. */
#ifndef PST_PRODUCERS_BULK_H
#define PST_PRODUCERS_BULK_H

#include "common/base/map.h"
#include "common/platform/verb.h"

typedef struct jobs_bulk {
    pst_job_action action;
    const char *user, *state, *queue, *name; /* which jobs; NULL = whatever; user NULL = those of `as`; state: "A,B" */
    const char *as, *reason, *request_id;
    bool force, wait, yes, dry_run;
    int64_t timeout_us;
} jobs_bulk;

/* Chooses, says, asks, publishes, waits for every answer. 0: *ret_status is the exit status (0 all, 3 some, 1 none done); < 0: v->err. */
int jobs_bulk_run(pst_verb_run *v, const jobs_bulk *b, int *ret_status);
/* Those that it is about, the oldest first: borrowed from jobs, free() the array. *ret_others: how many are left out for their user only. */
int jobs_bulk_choose(const jobs_bulk *b, const pst_map *jobs, const pst_job_state ***ret, size_t *ret_n, size_t *ret_others, pst_err *err);

#endif
