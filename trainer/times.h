/* times.h - what time it is for the Trainer. Its clock is the computer's as it stood at the start, carried on by the monotonic one: setting
 * the computer's clock moves nothing here. Once the clocks of a node and of a client have been heard, live, the one in the middle of the three
 * is taken, once: a Trainer whose own clock is wrong says times that agree with everybody else's.
 *
 *     trainer_times_start(&t, pst_now_us(), pst_mono_us());
 *     trainer_times_heard(&t, PST_TIMES_NODE, record_us, pst_mono_us());
 *     now_us = trainer_times_now(&t, pst_mono_us());
 *
 * Pure. @thread one owner. */
#ifndef PST_TRAINER_TIMES_H
#define PST_TRAINER_TIMES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { PST_TIMES_NODE, PST_TIMES_CLIENT } pst_times_who;

typedef struct trainer_times {
    int64_t base_us, shift_us; /* now = monotonic + base + shift */
    int64_t start_us;
    int64_t ahead_us[2];    /* of a node, of a client, when it was last heard */
    bool heard[2], settled; /* settled: the shift does not change any more */
} trainer_times;

void trainer_times_start(trainer_times *t, int64_t now_us, int64_t mono_us);
int64_t trainer_times_now(const trainer_times *t, int64_t mono_us);
/* A record that was published just now by the clock of its producer. Returns true when it moved our clock. */
bool trainer_times_heard(trainer_times *t, pst_times_who who, int64_t record_us, int64_t mono_us);

/* Our clock may still be moved. Not for ever: where nobody else is heard, nobody disagrees. */
bool trainer_times_unsettled(const trainer_times *t, int64_t mono_us);

#endif
