/* job_state.c - the questions that every reader of a job's state asks. No default in the switches: a new state does not compile
 * until somebody has said on which side it stands. */
#include "schemas/job_state.h"

bool pst_job_state_is_live(pst_job_public_state s)
{
    switch (s) {
    case PST_JOB_PUBLIC_STATE_PENDING:
    case PST_JOB_PUBLIC_STATE_DOWNLOADING:
    case PST_JOB_PUBLIC_STATE_PROCESSING:
    case PST_JOB_PUBLIC_STATE_STORING: return true;
    case PST_JOB_PUBLIC_STATE_UNKNOWN:
    case PST_JOB_PUBLIC_STATE_QUEUED:
    case PST_JOB_PUBLIC_STATE_COMPLETED:
    case PST_JOB_PUBLIC_STATE_FAILED:
    case PST_JOB_PUBLIC_STATE_HALTED:
    case PST_JOB_PUBLIC_STATE_TERMINATED:
    case PST_JOB_PUBLIC_STATE_REJECTED: return false;
    }
    return false; /* a number that no schema names */
}

bool pst_job_state_is_ended(pst_job_public_state s)
{
    switch (s) {
    case PST_JOB_PUBLIC_STATE_COMPLETED:
    case PST_JOB_PUBLIC_STATE_FAILED:
    case PST_JOB_PUBLIC_STATE_HALTED:
    case PST_JOB_PUBLIC_STATE_TERMINATED:
    case PST_JOB_PUBLIC_STATE_REJECTED: return true;
    case PST_JOB_PUBLIC_STATE_UNKNOWN:
    case PST_JOB_PUBLIC_STATE_QUEUED:
    case PST_JOB_PUBLIC_STATE_PENDING:
    case PST_JOB_PUBLIC_STATE_DOWNLOADING:
    case PST_JOB_PUBLIC_STATE_PROCESSING:
    case PST_JOB_PUBLIC_STATE_STORING: return false;
    }
    return false;
}

bool pst_job_process_is_ended(pst_job_process_state s)
{
    switch (s) {
    case PST_JOB_PROCESS_STATE_EXITED:
    case PST_JOB_PROCESS_STATE_LOST: return true;
    case PST_JOB_PROCESS_STATE_WAITING:
    case PST_JOB_PROCESS_STATE_STARTED:
    case PST_JOB_PROCESS_STATE_DOWNLOADING:
    case PST_JOB_PROCESS_STATE_RUNNING:
    case PST_JOB_PROCESS_STATE_STORING: return false;
    }
    return false;
}

bool pst_job_is_spread(const pst_job_state *s)
{
    return s->n_processes && s->processes[0].node && *s->processes[0].node; /* all have one, or none */
}

const char *pst_job_process_node(const pst_job_state *s, const pst_job_process *p)
{
    return p->node && *p->node ? p->node : s->node;
}
