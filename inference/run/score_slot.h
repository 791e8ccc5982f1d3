/* score_slot.h - who this worker is among the workers of a pipeline: stable over restarts, never shared by two that live.
 *
 * A worker that comes back under the same transactional.id aborts what its predecessor left open at once, and under the same
 * group.instance.id gets its partitions back without a rebalance. Two living workers under one id would fence each other for ever. So the
 * first free slot of this host is taken by a lock on a file in the state folder, which the kernel frees however the process ends.
 * @thread one owner. */
#ifndef PST_INFERENCE_RUN_SCORE_SLOT_H
#define PST_INFERENCE_RUN_SCORE_SLOT_H

#include "common/base/err.h"

typedef struct score_slot {
    int fd; /* -1: nothing is locked (the number was given, or the folder cannot be written) */
    int number;
    char id[200]; /* "<pipeline>.<host>-<6 hex>.<number>", or "<pipeline>.<number>" when the number was given */
} score_slot;

/* wanted ≥ 0: that number, unlocked: whoever gives numbers keeps them apart. from: the first number to try. */
int score_slot_take(const char *state_dir, const char *pipeline, int wanted, int from, score_slot *ret_slot, pst_err *err);
void score_slot_release(score_slot *s);

#endif
