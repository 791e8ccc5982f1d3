/* status.h - where a run stands, for whoever looks into a supervisor that does not do what it should: at SIGUSR1 it writes it to its log
 * (common/base/dump.h). A supervisor has no port, so that is its only way of asking.
 *
 *     sup_status_open(&spec, run_dir, &status, &err);
 *     sup_status_phase(status, SUP_PHASE_DOWNLOADING);
 *     sup_status_trouble(status, &err);                 // an outage that is waited through; the next phase forgets it
 *     sup_status_close(status);
 *
 * Questions are answered by a thread of its own: the steps of a run wait, for a download, a disk or a broker, and one that waits is the one that
 * is looked into. All calls are NULL-safe, so that a run in a test needs none. @thread any; @locks its own, held for a copy */
#ifndef PST_LCM_SUPERVISOR_STATUS_H
#define PST_LCM_SUPERVISOR_STATUS_H

#include "common/base/json.h"
#include "common/objects/rundir.h"
#include "lcm/supervisor/outlet.h"

#include <sys/types.h>

/* In the order in which a run goes through them; a run whose end is on disk begins with the last, one whose model was being registered with STORING. */
typedef enum {
    SUP_PHASE_STARTING,
    SUP_PHASE_DOWNLOADING,
    SUP_PHASE_MEETING,
    SUP_PHASE_RUNNING,
    SUP_PHASE_STORING,
    SUP_PHASE_PUBLISHING
} sup_phase;

/* The learner, as its watcher saw it last. */
typedef struct sup_learner_view {
    pid_t pid;                /* 0 = not started */
    int64_t lines, bytes;     /* of output, both streams, read so far; points and checkpoints are among the lines */
    int64_t points, left_out; /* metric points; lines beyond the limits */
    bool held;                /* it waits at its pipe: points come too fast, or the broker takes less than comes */
    bool stopping, leader_gone;
    int64_t deadline_us; /* monotonic: then SIGKILL; 0 = none */
} sup_learner_view;

typedef struct sup_status sup_status;

int sup_status_open(const pst_rundir_spec *spec, const char *run_dir, sup_status **ret_status, pst_err *err);
void sup_status_close(sup_status *s);
/* outlet: borrowed; NULL before it is closed. */
void sup_status_outlet(sup_status *s, sup_outlet *outlet);
void sup_status_phase(sup_status *s, sup_phase phase);
void sup_status_learner(sup_status *s, const sup_learner_view *v);
void sup_status_trouble(sup_status *s, const pst_err *why);
/* What a dump has beyond what all have. */
void sup_status_fill(sup_status *s, json_t *to);

#endif
