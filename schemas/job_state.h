/* job_state.h - what a job's and a process's state say by themselves, for whoever reads `penstock.jobs.state`. Which state may follow which is the
 * Trainer's alone (trainer/job_fsm.h). @thread any. */
#ifndef PST_SCHEMAS_JOB_STATE_H
#define PST_SCHEMAS_JOB_STATE_H

#include "schemas/events.h"

#include <stdbool.h>

bool pst_job_state_is_live(pst_job_public_state s);     /* a generation is deployed: PENDING to STORING */
bool pst_job_state_is_ended(pst_job_public_state s);    /* COMPLETED FAILED HALTED TERMINATED REJECTED */
bool pst_job_process_is_ended(pst_job_process_state s); /* EXITED LOST: nothing of it runs any more, as far as the Trainer was told */

bool pst_job_is_spread(const pst_job_state *s); /* its present (last) generation is on several nodes */
/* The node of one of its processes: that of the job, where all are on one. Borrowed. */
const char *pst_job_process_node(const pst_job_state *s, const pst_job_process *p);

/* How the reason of a process begins, behind its name and end, that was ended for the memory it took: penstock.retries.on tells it by this. */
#define PST_REASON_OOM "out of memory: "

/* The option of a request with which the gateway says that who asks is an operator there (`operator`). The Trainer obeys it only when told that the
 * gateway alone writes requests (--trust-gateway-roles). */
#define PST_REQUEST_ROLE "role"

#endif
