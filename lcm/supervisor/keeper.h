/* keeper.h - the process above a supervisor: when the supervisor is gone, however it went, whatever is left below it is ended.
 *
 *     LCM ─▶ keeper ─▶ supervisor ─▶ learner ─▶ …
 *
 * Both are subreapers: what a learner leaves behind becomes the supervisor's child, and when that was killed the keeper's, whether or not it
 * left its session, its environment, its folder. The keeper does nothing else and has nothing that could go wrong. @thread main, before any
 * other. */
#ifndef PST_LCM_SUPERVISOR_KEEPER_H
#define PST_LCM_SUPERVISOR_KEEPER_H

#include "common/base/err.h"

#include <sys/types.h>

/* Forks. Returns 0 in the supervisor, which dies with the keeper; ret_keeper: whose child it is. The keeper does not return: it closes
 * lock_fd, so that the lock is the supervisor's alone, waits, sweeps, and exits with the supervisor's status. */
int sup_keeper_start(int lock_fd, pid_t *ret_keeper, pst_err *err);

#endif
