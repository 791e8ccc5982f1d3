/* limiter.h - how much output of a learner becomes events: a token bucket over lines and bytes; what is over is counted, and told once
 * there is room again as one gap record. Time comes in as data. @thread one owner. */
#ifndef PST_SUPERVISOR_LIMITER_H
#define PST_SUPERVISOR_LIMITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pst_limiter {
    double lines_per_s, bytes_per_s; /* also the burst: one second's worth */
    double lines, bytes;             /* tokens */
    int64_t last_us;
    int64_t dropped_lines, dropped_bytes; /* since the last gap was told */
} pst_limiter;

void pst_limiter_init(pst_limiter *l, double lines_per_s, double bytes_per_s, int64_t now_us);
/* May a line of len bytes go out? If not it is counted as dropped. */
bool pst_limiter_take(pst_limiter *l, size_t len, int64_t now_us);
/* True when lines were dropped and a gap may be told now; resets the counts. force: at the end of the output. */
bool pst_limiter_gap(pst_limiter *l, int64_t now_us, bool force, int64_t *ret_lines, int64_t *ret_bytes);

#endif
