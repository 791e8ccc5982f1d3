/* estimate.h - what a run of a model is going to ask of whoever computes it, before anything of it is made. Not installed.
 *
 * From the file alone, in microseconds: shapes are guessed node by node from the rule in each operator's row (ops/op_table.def, column SHAPE; without
 * one a result is like its largest input). Within a few per cent for networks and trees whose weights are in the file; what depends on data, and
 * nested graphs, is not counted. Good enough to tell backends apart that differ by factors; `models explain` observes a run instead.
 * @thread the plan's */
#ifndef PST_ENGINE_ESTIMATE_H
#define PST_ENGINE_ESTIMATE_H

#include "engine/plan.h"

typedef struct eng_work {
    double dense, visits, other; /* operations: of products; nodes of trees on the way down; all else */
    double moved;                /* bytes that nodes read and write, weights among them */
    double in, out, weights;     /* bytes: what a device would have to be given, and gives back */
    size_t nodes;
} eng_work;

/* Of a run of so many rows: every free dimension that an input begins with. Other free dimensions count as 1. 0 or PST_ENOMEM. */
int eng_estimate(const pst_plan *p, int64_t rows, eng_work *ret, pst_err *err);

/* The rows that a backend is chosen for. */
int64_t eng_estimate_rows(const pst_model *m);

#endif
