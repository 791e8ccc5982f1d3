/* made_up.h - inputs for a run that nobody has rows for: to see shapes and memory, or to measure. Not installed. @thread any; below a eng_heap_run */
#ifndef PST_ENGINE_MADE_UP_H
#define PST_ENGINE_MADE_UP_H

#include "engine/graph.h"

/* Tensors for every input, data from eng_heap_…: the first free dimension of each is batch, its other free ones `other`. */
int eng_made_up_inputs(const pst_model *m, int64_t batch, int64_t other, pst_tensor *ret, pst_err *err);

#endif
