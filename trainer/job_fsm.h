/* job_fsm.h - the life of a job: public states (FfDL's words), the one table of allowed transitions, and its printed forms.
 *
 *                       ┌────────────── RETRYING ───────────────┐
 *                       ▼                                       │
 *     RECEIVED ──▶ QUEUED ──▶ PENDING ──▶ DOWNLOADING ──▶ PROCESSING ──▶ STORING ──▶ COMPLETED
 *                  ▲    │        │             │              │            │
 *          RESUMED │    └────────┴──────┬──────┴──────────────┴────────────┘
 *                  │                    ▼
 *                  └────── HALTED / FAILED, TERMINATED
 *
 * A submission that cannot be met becomes REJECTED at once: no job, only an answer that can be found, and forgotten after a time.
 *
 * Events that keep a state (a process started, a request refused) are rows too: what has no row does not happen. The core's only
 * setter of a state looks here and aborts on anything else; what comes from outside late or doubled never gets that far: it is counted
 * and ignored. @thread any. */
#ifndef PST_TRAINER_JOB_FSM_H
#define PST_TRAINER_JOB_FSM_H

#include "common/base/buf.h"
#include "schemas/job_state.h"

#include <stdbool.h>

/* May this event take a job from one state to the other? From UNKNOWN: the job does not exist yet. */
bool job_fsm_allows(pst_job_public_state from, enum pst_job_event_type event, pst_job_public_state to);
/* The table as Markdown: `penstock trainer --print-fsm`. */
void job_fsm_markdown(pst_buf *out);

#endif
