/* times.c - whose clock the Trainer believes. Of three clocks the one in the middle is wrong only if two are; with two that differ nobody knows: ours stays
 * until a third is heard, or for a minute; then the node's is taken, since it is nodes that say when a job's processes began. */
#include "trainer/times.h"

enum { ALONE_US = 60000000, TOLERATED_US = 2000000 }; /* delivery takes its time, and computers' clocks differ a little */

void trainer_times_start(trainer_times *t, int64_t now_us, int64_t mono_us)
{
    *t = (trainer_times){.base_us = now_us - mono_us, .start_us = mono_us};
}

int64_t trainer_times_now(const trainer_times *t, int64_t mono_us)
{
    return mono_us + t->base_us + t->shift_us;
}

static int64_t middle(int64_t a, int64_t b, int64_t c)
{
    int64_t low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

bool trainer_times_heard(trainer_times *t, pst_times_who who, int64_t record_us, int64_t mono_us)
{
    if (t->settled || (t->start_us && mono_us - t->start_us >= 2 * (int64_t)ALONE_US))
        return false;
    t->ahead_us[who] = record_us - (mono_us + t->base_us);
    t->heard[who] = true;
    bool agrees = t->ahead_us[who] > -TOLERATED_US && t->ahead_us[who] < TOLERATED_US;
    bool both = t->heard[PST_TIMES_NODE] && t->heard[PST_TIMES_CLIENT];
    bool alone = who == PST_TIMES_NODE && mono_us - t->start_us > ALONE_US;
    if (!agrees && !both && !alone)
        return false;
    t->settled = true;
    if (agrees)
        return false;
    t->shift_us = both ? middle(0, t->ahead_us[PST_TIMES_NODE], t->ahead_us[PST_TIMES_CLIENT]) : t->ahead_us[PST_TIMES_NODE];
    return t->shift_us != 0;
}

bool trainer_times_unsettled(const trainer_times *t, int64_t mono_us)
{
    return !t->settled && mono_us - t->start_us < 2 * (int64_t)ALONE_US;
}
