/* code_sweep.h - archives of submitted code (objects/code/<sha256>) go once they have not been put for a while and no job can use them any more:
 * none that runs, waits, may be tried again or may be resumed. Only the Trainer knows that, so only it sweeps.
 *
 * Nothing is lost between an upload and its SUBMIT: putting an archive, and submitting a job that names one, makes it new again, and the time
 * for which it is kept is longer than a request may be old (PST_TRAINER_TOO_OLD_S). One pass in small steps. @thread one. */
#ifndef PST_TRAINER_CODE_SWEEP_H
#define PST_TRAINER_CODE_SWEEP_H

#include "common/objects/objects.h"
#include "trainer/trainer_core.h"

typedef struct trainer_code_sweep trainer_code_sweep;

trainer_code_sweep *trainer_code_sweep_new(int64_t keep_us); /* 0: nothing is swept */
void trainer_code_sweep_free(trainer_code_sweep *s);
/* Between rounds, when all requests have been read. mono_us decides when the next pass begins, wall_us how old things are. */
void trainer_code_sweep_step(trainer_code_sweep *s, pst_objects *objects, const tcore *core, int64_t mono_us, int64_t wall_us);

#endif
