/* workers.h - a plan's own threads, where pst_plan_opts.threads asks for more than one: few large runs (a large net on one row) are cut in parts. Off by default: a service
 * that has many plans in many threads has no use for it. Not installed.
 *
 *     eng_workers_run(p->workers, parts, compute, &job);    // compute(&job, part, worker) for each part, on any of the threads
 *
 * How work is cut follows from shapes only where the cut can be seen in the result; a part is computed by one thread and in one order. So results are the same bits whatever
 * the number of threads, and however parts meet threads. What runs so: products with a packed right side (by columns), attention (by heads and rows), convolutions
 * (by rows of pixels), fused layers and trees (by rows). All else stays with the caller.
 *
 * Workers sleep while nothing is to be done; nobody spins. They allocate nothing (heap.h) and never unwind: rooms are taken before.
 * @thread the plan's, but for compute */
#ifndef PST_ENGINE_WORKERS_H
#define PST_ENGINE_WORKERS_H

#include "common/base/err.h"

enum { ENG_WORKERS_MAX = 64 };

typedef struct eng_workers eng_workers;

/* CPUs that this process may use: its affinity, and the quota of its control groups rounded up. At least 1. */
int eng_workers_allowed(void);
/* So many threads with the caller, 2 to ENG_WORKERS_MAX. PST_EIO (RETRY): the system gives no thread. */
int eng_workers_new(int threads, eng_workers **ret, pst_err *err);
void eng_workers_free(eng_workers *w); /* NULL-safe; nothing runs */
/* With the caller; 1 where there are none (NULL). */
int eng_workers_count(const eng_workers *w);
/* Worth a wake-up of the others (some 20 µs): so many multiplications are to come. */
bool eng_workers_worth(const eng_workers *w, double products);

/* worker: 0 to eng_workers_count() - 1, nobody else has it at the same time. */
typedef void (*eng_part_fn)(void *arg, int64_t part, int worker);
void eng_workers_run(eng_workers *w, int64_t parts, eng_part_fn compute, void *arg);

/* For tests: CPUs that are said to be allowed, and then all work is worth it; 0 = as they are. */
void eng_workers_test_allow(int n);

#endif
