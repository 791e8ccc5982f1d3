/* takes.c - the rules of Kafka's LogValidator that depend on a topic's settings alone. message.timestamp.difference.max.ms is the name before
 * Kafka 3.6 and unknown since 4.0, …before.max.ms and …after.max.ms are its heirs; the smaller one rules. */
#include "inference/state/takes.h"

#include <stdlib.h>
#include <string.h>

enum { BELIEVED_US = 60000000, CLOCKS_DIFFER_MS = 60000 };
enum { POLICY, TIME_TYPE, BEFORE, AFTER, DIFFERENCE };

const char *const pst_takes_settings[] = {"cleanup.policy",
                                          "message.timestamp.type",
                                          "message.timestamp.before.max.ms",
                                          "message.timestamp.after.max.ms",
                                          "message.timestamp.difference.max.ms",
                                          NULL};

static int64_t limit(const char *value, int64_t other)
{
    long long v = value ? strtoll(value, NULL, 10) : INT64_MAX;
    return v >= 0 && v < other ? v : other;
}

void pst_takes_learn(pst_takes *x, const char *const *values, int64_t now_us)
{
    bool own_time = values[TIME_TYPE] && !strcmp(values[TIME_TYPE], "LogAppendTime");
    int64_t both = own_time ? INT64_MAX : limit(values[DIFFERENCE], INT64_MAX);
    *x = (pst_takes){.asked_us = now_us,
                     .keys_only = values[POLICY] && strstr(values[POLICY], "compact"),
                     .before_ms = own_time ? INT64_MAX : limit(values[BEFORE], both),
                     .after_ms = own_time ? INT64_MAX : limit(values[AFTER], both)};
}

bool pst_takes_is_old(const pst_takes *x, int64_t now_us)
{
    return !x->asked_us || now_us - x->asked_us > BELIEVED_US;
}

static bool beyond(int64_t distance, int64_t most)
{
    return most < INT64_MAX - CLOCKS_DIFFER_MS && distance > most + CLOCKS_DIFFER_MS;
}

pst_takes_verdict pst_takes_says(const pst_takes *x, const pst_record *r, int64_t now_us, int64_t now_ms)
{
    if (pst_takes_is_old(x, now_us))
        return PST_TAKES_IT;
    if (x->keys_only && !r->key)
        return PST_TAKES_NO_KEYLESS;
    if (r->timestamp_ms > 0 && (beyond(now_ms - r->timestamp_ms, x->before_ms) || beyond(r->timestamp_ms - now_ms, x->after_ms)))
        return PST_TAKES_NO_SUCH_TIME;
    return PST_TAKES_IT;
}
