/* shape_observe.h - what observed runs show of a plan's steps; see shape_observe.c for why. Not installed. The plan's thread. */
#ifndef PST_ENGINE_SHAPE_OBSERVE_H
#define PST_ENGINE_SHAPE_OBSERVE_H

#include "engine/plan.h"
#include "engine/seen.h"

/* One run; every step's `seen` is of this run. ret_peak: bytes of values alive at once at most. Below a eng_heap_run.
 * What the pool has cached is used: drop it first to see what this run alone reserves. */
int eng_observe_run(pst_plan *p, int64_t batch, int64_t other, size_t *ret_peak, pst_err *err);
void eng_observe_clear(pst_plan *p);
/* Keeps the time of the run just made where it is the least so far. */
void eng_observe_time(pst_plan *p);
/* Keeps the outputs of the run just made as a probe: after batch 2, then after batch 3. */
void eng_observe_probe(pst_plan *p);

#endif
