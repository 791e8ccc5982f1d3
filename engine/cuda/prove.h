/* prove.h - what was never seen to compute as the CPU does is not believed. Not installed. @thread the plan's */
#ifndef PST_ENGINE_CUDA_PROVE_H
#define PST_ENGINE_CUDA_PROVE_H

#include "engine/cuda/lane.h"

/* Rows made up for p's task, through l and through the CPU: sums of trees are to be equal bit for bit, results of a network within
 * ENG_CUDA_NET_TOLERANCE. PST_EUNSUPPORTED: they are not, and by how much. p's run, if one has begun, is lost. Below a eng_heap_run. */
int eng_cuda_prove(pst_plan *p, eng_cuda_lane *l, pst_err *err);

#endif
