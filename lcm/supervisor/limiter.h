/* limiter.h - how much output of a learner becomes events. Plain lines: a token bucket over lines and bytes; what is over is counted, and
 * told once there is room again as one gap record; the last of it is kept for the end. Metric points: a pace, over which the learner waits.
 * Time comes in as data. @thread one owner. */
#ifndef PST_LCM_SUPERVISOR_LIMITER_H
#define PST_LCM_SUPERVISOR_LIMITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PST_LIMITER_TAIL  200         /* lines kept for the end */
#define PST_LIMITER_BYTES (256 << 10) /* of them */

typedef struct pst_kept_line {
    char *text;
    size_t len;
    int stream;
    int64_t time_us;
} pst_kept_line;

typedef struct pst_limiter {
    double lines_per_s, bytes_per_s; /* also the burst: one second's worth */
    double lines, bytes;             /* tokens */
    int64_t last_us;
    int64_t dropped_lines, dropped_bytes; /* since the last gap was told */
    pst_kept_line tail[PST_LIMITER_TAIL]; /* the last of the dropped, a ring */
    int tail_first, tail_n;
    size_t tail_bytes;
} pst_limiter;

void pst_limiter_init(pst_limiter *l, double lines_per_s, double bytes_per_s, int64_t now_us);
/* May a line of len bytes go out? If not it is counted as dropped. */
bool pst_limiter_take(pst_limiter *l, size_t len, int64_t now_us);
/* The line that was just dropped may be the last: remembered for pst_limiter_tail. */
void pst_limiter_keep(pst_limiter *l, int stream, int64_t time_us, const char *text, size_t len);
/* True when lines were dropped and a gap may be told now; resets the counts. at_end: told in any case, without the lines that
 * pst_limiter_tail will give, so *ret_lines may be 0. Else the kept lines are forgotten: they are in the count. */
bool pst_limiter_gap(pst_limiter *l, int64_t now_us, bool at_end, int64_t *ret_lines, int64_t *ret_bytes);
/* The kept lines, oldest first; forgets them. */
void pst_limiter_tail(pst_limiter *l, void (*fn)(void *arg, int stream, int64_t time_us, const char *text, size_t len), void *arg);
void pst_limiter_done(pst_limiter *l);

/* A pace: takes are never refused, but leave a debt that time pays; whoever reads the source waits so long. */
typedef struct pst_pace {
    double per_s, tokens; /* burst: one second's worth */
    int64_t last_us;
} pst_pace;
void pst_pace_init(pst_pace *p, double per_s, int64_t now_us);
void pst_pace_take(pst_pace *p, int64_t now_us);
int64_t pst_pace_wait_us(pst_pace *p, int64_t now_us); /* 0 = no debt */

#endif
