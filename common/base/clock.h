/* clock.h - wall and monotonic time, and their texts. Cores never call these: time comes to them as data. */
#ifndef PST_BASE_CLOCK_H
#define PST_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

int64_t pst_now_us(void);                     /* since 1970, UTC */
int64_t pst_mono_us(void);                    /* CLOCK_MONOTONIC: for intervals */
int64_t pst_mono_ns(void);                    /* the same, for what takes less than some microseconds */
struct timespec pst_mono_at(int64_t mono_us); /* the same moment for calls that wait until one, as pthread_cond_timedwait does */
void pst_sleep_ms(int ms);                    /* restarts after EINTR */
/* "2026-11-21T01:26:48.123456Z"; buf ≥ 32 bytes; returns buf. */
char *pst_time_text(int64_t us, char buf[32]);
/* RFC 3339 text or a plain number of seconds, milliseconds or microseconds since 1970; returns 0 or PST_EPARSE. */
int pst_time_parse(const char *text, int64_t *ret_us);
/* "350 ms", "4.2 s", "3 min 20 s", "2 h 5 min"; returns buf. */
char *pst_span_text(int64_t us, char buf[32]);

#endif
