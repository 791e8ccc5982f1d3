/* net_lower.h - which part of a plan is a dense network, and its program (net.h). Not installed. @thread the plan's, below a eng_heap_run. */
#ifndef PST_ENGINE_CUDA_NET_LOWER_H
#define PST_ENGINE_CUDA_NET_LOWER_H

#include "engine/cuda/net_pack.h"
#include "engine/plan.h"

enum { ENG_CUDA_NET_RESULTS = 16 };

/* A value that others than the network want: columns [at, at + width) of its results. */
typedef struct eng_cuda_net_result {
    int id;
    uint32_t at, width;
    int rank; /* 2: (rows, width); 1: (rows) */
} eng_cuda_net_result;

typedef struct eng_cuda_net_part {
    size_t from, to; /* steps that it stands for */
    int in;          /* value: float32 (rows, draft.n_in) */
    uint32_t n_layers, n_results;
    eng_cuda_net_result results[ENG_CUDA_NET_RESULTS];
    const eng_node *end; /* the first that is not covered; NULL: all are */
    const char *why;     /* it is not */
    eng_cuda_net_draft draft;
} eng_cuda_net_part;

/* g: p's main graph, compiled. The first run of its steps that hold dense layers and can be computed as one network; what stands before and behind is
 * not looked at. PST_EUNSUPPORTED: there is none, and *ret_node is in the way (NULL: there are no steps), err says why. */
int eng_cuda_net_lower(const pst_plan *p, const eng_prog *g, eng_cuda_net_part *ret, const eng_node **ret_node, pst_err *err);
/* Gives back what the draft took. */
void eng_cuda_net_part_done(eng_cuda_net_part *n);

#endif
