/* limiter.h - how much output of a learner becomes events. Plain lines: a token bucket over lines and bytes; what is over is counted, and
 * published once there is room again as one gap record; the last of it is kept for the end. Metric points: a pace, over which the learner waits.
 * Time comes in as data. @thread one owner. */
#ifndef PST_LCM_SUPERVISOR_LIMITER_H
#define PST_LCM_SUPERVISOR_LIMITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PST_LIMITER_TAIL  200         /* lines kept for the end */
#define PST_LIMITER_BYTES (256 << 10) /* of them */

typedef struct sup_kept_line {
    char *text;
    size_t len;
    int stream;
    int64_t time_us;
} sup_kept_line;

typedef struct sup_limiter {
    double lines_per_s, bytes_per_s; /* also the burst: one second's worth */
    double lines, bytes;             /* tokens */
    int64_t last_us;
    int64_t dropped_lines, dropped_bytes; /* since the last gap was published */
    sup_kept_line tail[PST_LIMITER_TAIL]; /* the last of the dropped, a ring */
    int tail_first, tail_n;
    size_t tail_bytes;
} sup_limiter;

void sup_limiter_init(sup_limiter *l, double lines_per_s, double bytes_per_s, int64_t now_us);
/* May a line of len bytes go out? If not it is counted as dropped. */
bool sup_limiter_take(sup_limiter *l, size_t len, int64_t now_us);
/* The line that was just dropped may be the last: remembered for sup_limiter_tail. */
void sup_limiter_keep(sup_limiter *l, int stream, int64_t time_us, const char *text, size_t len);
/* True when lines were dropped and a gap may be published now; resets the counts. at_end: published in any case, without the lines that
 * sup_limiter_tail will give, so *ret_lines may be 0. Else the kept lines are forgotten: they are in the count. */
bool sup_limiter_gap(sup_limiter *l, int64_t now_us, bool at_end, int64_t *ret_lines, int64_t *ret_bytes);
/* The kept lines, oldest first; forgets them. */
void sup_limiter_tail(sup_limiter *l, void (*fn)(void *arg, int stream, int64_t time_us, const char *text, size_t len), void *arg);
void sup_limiter_done(sup_limiter *l);

/* A pace: takes are never refused, but leave a debt that time pays; whoever reads the source waits so long. */
typedef struct sup_pace {
    double per_s, tokens; /* burst: one second's worth */
    int64_t last_us;
} sup_pace;
void sup_pace_init(sup_pace *p, double per_s, int64_t now_us);
void sup_pace_take(sup_pace *p, int64_t now_us);
int64_t sup_pace_wait_us(sup_pace *p, int64_t now_us); /* 0 = no debt */

#endif
