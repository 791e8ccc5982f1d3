/* net_step.h - a network of a plan as one step of it, which a device may compute in the CPU's place. Not installed. @thread the plan's */
#ifndef PST_ENGINE_CUDA_NET_STEP_H
#define PST_ENGINE_CUDA_NET_STEP_H

#include "engine/cuda/net_lower.h"

/* What the step knows; the plan's. */
typedef struct eng_cuda_net_step {
    eng_prog inside; /* the steps that it stands for */
    int in;          /* value that it reads */
    uint32_t n_in, n_out, n_layers, n_results;
    eng_cuda_net_result results[ENG_CUDA_NET_RESULTS];
    float *centre, *spread; /* by feature: what the scaling in front of the network makes 0, and what it makes 1 of */
} eng_cuda_net_step;

/* One step in the place of those that n was made of, at n->from; it runs them, unless the plan's device has its results (plan.h). *ret: its state. Below
 * a eng_heap_run. */
void eng_cuda_net_step_put(pst_plan *p, const eng_cuda_net_part *n, const eng_cuda_net_step **ret);
bool eng_cuda_net_step_is(const eng_step *s);
/* The network once more, from the steps that it stands for. eng_cuda_net_part_done() what it gives. Below a eng_heap_run. */
int eng_cuda_net_step_lower(const pst_plan *p, const eng_cuda_net_step *n, eng_cuda_net_part *ret, pst_err *err);
/* Whether x is what the network was made for: float32 (rows, n_in), at least one row. */
bool eng_cuda_net_step_takes(const eng_cuda_net_step *n, const pst_tensor *x);

#endif
