/* proc_stat.h - this computer's counters from /proc, and what two readings a while apart say.
 *
 *     source_proc_sample a, b;
 *     source_proc_read("/proc", &a, &err); … later … source_proc_read("/proc", &b, &err);
 *     source_proc_rates(&a, &b, &rates);
 *
 * The kernel counts CPU time in ticks of 10 ms, so shares over less than some hundred milliseconds are steps: take samples far enough
 * apart (source_proc_window keeps a sliding one). Source: proc(5). @thread any, one owner. */
#ifndef PST_SOURCES_PROC_STAT_H
#define PST_SOURCES_PROC_STAT_H

#include "common/base/err.h"

typedef struct source_proc_sample {
    int64_t mono_us;
    double user, system, iowait, idle; /* ticks of all CPUs */
    double context_switches, interrupts;
    int running, blocked;
    double load1;
    double memory_total, memory_available, memory_cached; /* kB */
    bool has_disk, has_network;
    double sectors_read, sectors_written; /* of whole disks */
    double rx_bytes, tx_bytes;            /* of all interfaces but lo */
} source_proc_sample;

typedef struct source_proc_rates {
    double user, system, iowait, idle;                                                      /* shares, 0 to 1 */
    double context_switches, interrupts, sectors_read, sectors_written, rx_bytes, tx_bytes; /* per second */
} source_proc_rates;

/* proc: "/proc", or a folder with the same files for tests (then sys is "sys" beside them). mono_us is the caller's. */
int source_proc_read(const char *proc, int64_t mono_us, source_proc_sample *ret_sample, pst_err *err);
/* Counters that went backwards (a hot-plugged disk) count as still. */
void source_proc_rates_of(const source_proc_sample *from, const source_proc_sample *to, source_proc_rates *ret_rates);

enum { PST_PROC_WINDOW_MAX = 4096 };
typedef struct source_proc_window {
    int64_t window_us;
    size_t n, first;
    source_proc_sample at[PST_PROC_WINDOW_MAX]; /* a ring */
} source_proc_window;
/* Adds a sample. true: *ret_from is the newest one at least window_us, and a tick of CPU time, older than it. */
bool source_proc_window_add(source_proc_window *w, const source_proc_sample *s, source_proc_sample *ret_from);

#endif
