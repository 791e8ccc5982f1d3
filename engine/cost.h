/* cost.h - how many operations a node's result needs. Not installed. @thread any; pure. */
#ifndef PST_ENGINE_COST_H
#define PST_ENGINE_COST_H

#include "engine/plan.h"

/* in: shapes of its inputs (rank -1: none), data not read; y: of its first result, NULL = none. p: for layers that the plan fused. */
double eng_flops(const pst_plan *p, const eng_node *n, const pst_tensor *in, int n_in, const pst_tensor *y);

#endif
