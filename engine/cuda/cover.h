/* cover.h - which models a device computes: by the file, by the compiled plan, by the rows of a run. Whatever it does not compute is told by node and reason.
 * Not installed. @thread the plan's */
#ifndef PST_ENGINE_CUDA_COVER_H
#define PST_ENGINE_CUDA_COVER_H

#include "engine/cuda/task.h"

/* By the file's own nodes, before anything is folded. 0, or PST_EUNSUPPORTED. */
int eng_cuda_covers_file(const pst_model *m, pst_err *err);
/* p is compiled for the CPU. Its trees, or a network, which is put into the place of its steps: *ret, at step *ret_at. Nothing is changed
 * by PST_EUNSUPPORTED. Below a eng_heap_run. */
int eng_cuda_find_task(pst_plan *p, eng_cuda_task *ret, size_t *ret_at, pst_err *err);
/* Whether x, which step s of the task is given, is of a type that its kernel takes. */
int eng_cuda_judge_type(const eng_cuda_task *t, const eng_step *s, const pst_tensor *x, pst_err *err);
/* Whether it has rows, and of the width that the kernel wants; else the step's own operator is to say what it thinks of it. */
bool eng_cuda_rows_fit(const eng_cuda_task *t, const pst_tensor *x);

/* One row where x is a vector. */
static inline int64_t eng_cuda_rows_in(const pst_tensor *x)
{
    return x->rank == 2 ? x->dims[0] : 1;
}
static inline int64_t eng_cuda_cols_in(const pst_tensor *x)
{
    return x->rank ? x->dims[x->rank - 1] : 1;
}

#endif
