/* process_fsm.h - the life of one process as its LCM sees it: states, the one table of allowed transitions, and its printed form.
 *
 *     WAITING ──START──▶ ALIVE ──STOP──▶ STOPPING ──GRACE_OVER──▶ KILLING ──EMPTIED──▶ ENDED (LOST is reported)
 *        │                 │  VANISHED: no supervisor, no exit.json ─▲ │
 *        │ STOP, NOT_...   │  EXITED, UNPUBLISHED: exit.json is      │ FLUSHING: exit.json is there, the supervisor still publishes
 *        ▼                 ▼  there, no supervisor                   ▼
 *      ENDED             ENDED, or DRAINING when not all            FLUSHING ──EXITED──▶ ENDED
 *                        was published (a supervisor is                 └──UNPUBLISHED──▶ DRAINING
 *                        started again that only publishes)
 *
 * What makes "no process twice" a property of the table: nothing leads back to WAITING, and ALIVE is reached from WAITING only. ENDED is left by
 * LEFT_OUTPUT alone, for a process that was ended by force and whose output waits on disk: nothing of it lives then but a publisher.
 *
 * The core's only setter of a state looks here and aborts on anything else; what comes late or twice never gets that far. @thread any. */
#ifndef PST_LCM_PROCESS_FSM_H
#define PST_LCM_PROCESS_FSM_H

#include "common/base/buf.h"

#include <stdbool.h>

#define LCM_STATES(X) X(WAITING) X(ALIVE) X(STOPPING) X(KILLING) X(FLUSHING) X(DRAINING) X(ENDED)
#define LCM_CAUSES(X) \
    X(START)          \
    X(ADOPT)          \
    X(STOP)           \
    X(NOT_INTENDED) X(NOT_PLACED) X(NOT_STARTED) X(GRACE_OVER) X(VANISHED) X(FLUSH) X(EXITED) X(UNPUBLISHED) X(EMPTIED) X(LEFT_OUTPUT)

#define LCM_STATE_OF(name) LCM_STATE_##name,
#define LCM_CAUSE_OF(name) LCM_CAUSE_##name,
typedef enum { LCM_STATES(LCM_STATE_OF) LCM_N_STATES } lcm_state;
typedef enum { LCM_CAUSES(LCM_CAUSE_OF) LCM_N_CAUSES } lcm_cause;

bool lcm_fsm_allows(lcm_state from, lcm_cause cause, lcm_state to);
const char *lcm_state_name(lcm_state s);
const char *lcm_cause_name(lcm_cause c);
/* The table as Markdown: `penstock lcm --print-fsm`. */
void lcm_fsm_markdown(pst_buf *out);

#endif
