/* sweep.h - ends what is left of one process of a job on this computer, by everything that can show that it belongs there: the supervisor and
 * its keeper by pid and start time, the tree below the keeper, the control group, the process group, the mark in the environment.
 * @thread the LCM's. */
#ifndef PST_LCM_LOCAL_SWEEP_H
#define PST_LCM_LOCAL_SWEEP_H

#include "common/objects/rundir.h"

/* SIGKILL to all of it; returns how many processes were seen alive: 0 = nothing of it is left. mark: pst_rundir_mark(). */
int host_sweep(const char *run_dir, const char *mark);
/* The supervisor has ended: its keeper has nothing to wait for any more, and if something keeps it from ending it is ended. */
void host_sweep_keeper(const char *run_dir);
/* Children of ours that nobody started (watched answers that): a supervisor and its keeper were killed, and what was below them came to us as the
 * next subreaper. Returns how many. */
int host_sweep_orphans(bool (*watched)(void *arg, pid_t pid), void *arg);

#endif
