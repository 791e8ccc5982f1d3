/* replay.h - plays what is recorded on the topics into a core and says what it decides now, beside what was decided then. Writes to no topic.
 *
 * What the topics do not tell, and how it is taken: between records the core gets its ticks; heartbeats that were compacted away were like the
 * node's next one. Nonces come from a key that a Trainer throws away when it ends: those of the recording are exchanged for the core's own.
 * Jobs that were submitted before the recording begins are left out. */
#ifndef PST_TRAINER_REPLAY_H
#define PST_TRAINER_REPLAY_H

#include "common/base/opt.h"
#include "trainer/recording.h"
#include "trainer/trainer_core.h"

#include <stdio.h>

typedef struct trainer_replay_result {
    size_t records;   /* that the core was given */
    size_t same;      /* events as jobs.events has them */
    size_t different; /* another one stands there, or none does, or the core did not come to it */
    size_t older;     /* events of jobs that were submitted before the recording begins */
} trainer_replay_result;

/* job NULL = all; else only lines about that one are printed and only its events compared. */
void trainer_replay(const trainer_recording *r, const trainer_policy *policy, const char *job, FILE *out, trainer_replay_result *ret);

extern const pst_usage trainer_replay_usage;
int trainer_replay_run(int argc, char **argv); /* penstock trainer replay; argv[0] is "replay" */

#endif
