/* asker.h - asks the data stores of jobs that are not admitted before those have answered, on threads of its own: the Trainer's rounds go on meanwhile.
 * Private to trainer/'s shell. @thread the service's main thread. */
#ifndef PST_TRAINER_ASKER_H
#define PST_TRAINER_ASKER_H

#include "schemas/events.h"

#include <stdbool.h>

typedef struct trainer_asker trainer_asker;

/* allowed: which servers may be asked (pst_s3_allowed); borrowed. */
trainer_asker *trainer_asker_new(const char *allowed);
/* Waits for those that are being asked, a second or so. */
void trainer_asker_free(trainer_asker *a);
/* Asks for this job unless it does already, or has an answer that was not taken. manifest: copied. Full: a later call will do. */
void trainer_asker_ask(trainer_asker *a, const char *training_id, const char *manifest);
/* An answer, if there is one: it stays until it is dropped, since the round that acts on it may fail. *ret_refused: NULL = they can be used. Borrowed. */
bool trainer_asker_answer(trainer_asker *a, size_t at, const char **ret_training_id, const char **ret_refused);
/* The first n answers were acted on, for good. */
void trainer_asker_drop(trainer_asker *a, size_t n);

#endif
