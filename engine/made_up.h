/* made_up.h - inputs for a run that nobody has rows for: to see shapes and memory, or to measure. Not installed. @thread any; below a eng_heap_run */
#ifndef PST_ENGINE_MADE_UP_H
#define PST_ENGINE_MADE_UP_H

#include "engine/graph.h"

#define ENG_MADE_UP_SEED UINT64_C(88172645463325252)

/* The next number of a series with mean 0 and deviation 1, near enough to normal: the same from the same state, which is not 0 (xorshift64). */
double eng_made_up_number(uint64_t *state);

/* Tensors for every input, data from eng_heap_…: the first free dimension of each is batch, its other free ones `other`. */
int eng_made_up_inputs(const pst_model *m, int64_t batch, int64_t other, pst_tensor *ret, pst_err *err);

#endif
