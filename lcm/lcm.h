/* lcm.h - the Lifecycle Manager of one site (a host, a cluster): deploys, halts, ends the processes of jobs as the Trainer commands.
 *
 * Rules: intent before act, observation after; deterministic run directories; after a crash what lives is adopted by
 * (pid, start time) and nothing is started twice; generation n+1 starts only once no process of n lives; it reports facts, it concludes
 * nothing about jobs. Learners and their supervisors outlive it.
 *
 *   lcm_core.c        what to do: step(state, event) → actions; pure
 *   lcm_shell.c       does it: intents, reports and offsets in one transaction, then starts and signals
 *   lcm_main.c        the verb: settings, lock, loop, drain
 *   rundirs.c         remembers what it decided
 *   launcher.h        how processes are created, watched, deleted; launchers.c: which ways there are; local/: on this computer;
 *                     kubernetes/: as pods of a cluster */
#ifndef PST_LCM_H
#define PST_LCM_H

#include "common/base/opt.h"

extern const pst_verb pst_lcm_verb; /* penstock lcm [--site local] */

#endif
