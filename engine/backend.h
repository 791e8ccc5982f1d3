/* backend.h - what computes a plan. Not installed. The engine's own kernels and ONNX Runtime are backends; a device is one more.
 *
 *     plan.c ─ chooses ─ backends.c ─┬ cpu_backend.c ─ lower.c, fuse*.c, compile.c, exec.c
 *                                    ├ cuda/cuda_backend.c ─ the CPU's plan, its trees on a device
 *                                    └ ort/ort_plan.c ─ a session of the model, made from the file's own nodes
 *
 * A plan has one backend at a time. Unless one is named (pst_plan_opts.backend), the cheapest of those that support the model takes it; when
 * one says PST_EUNSUPPORTED in prepare or in a run, those behind it are asked to take over. A backend that computes node by node
 * starts from eng_lower(): constants folded, dead nodes gone, nothing fused yet, because fused nodes hold state of the CPU's kernels.
 *
 * What a device needs of this and where it stands:
 *   - a run may be asynchronous: submit may return when the work is queued, wait ends it. Inputs must stay as they are until wait; outputs
 *     are valid until the plan's next submit. One run of a plan is under way at a time: two streams are two plans of one model.
 *   - where a value lives is said by its buffer (eng_blk.place); pst_tensor, which the ABI freezes, always points to what the host can read.
 *   - memory of a device is asked for in prepare, against a budget that the backend keeps for the process, so that a model which does not
 *     fit is refused when it is loaded and not in its first run.
 *   - sizes of batches are the backend's matter: it may prepare a few and fill up rows (buckets), since results of rows do not depend on others.
 *   - a failed allocation of the engine unwinds over frames (heap.h): no call of a device library may be open across one.
 *
 * @thread the plan's, for all of it; supports, cost and prepare of several plans of one model may run at once. */
#ifndef PST_ENGINE_BACKEND_H
#define PST_ENGINE_BACKEND_H

#include "engine/plan.h"

typedef struct eng_backend {
    const char *name; /* as pst_plan_opts.backend names it */
    /* Whether it can compute p's model, as far as can be known before prepare. 0, or PST_EUNSUPPORTED and why. */
    int (*supports)(const pst_plan *p, pst_err *err);
    /* An estimate of a run of so many rows, in nanoseconds, of what it supports: from the file (estimate.h), before anything is made. It need
     * not be better than to a factor of two, but a device counts what its host has to give it and wait for. 0 or an error. */
    int (*cost)(const pst_plan *p, int64_t rows, double *ret_ns, pst_err *err);
    /* Makes p, which is empty but for model and options, a plan of this backend. PST_EUNSUPPORTED: it cannot after all. */
    int (*prepare)(pst_plan *p, pst_err *err);
    /* In place of another that said PST_EUNSUPPORTED, which stands in err: in prepare (p is to be emptied) or, in_run, in a run. 0 and err
     * cleared, or PST_EUNSUPPORTED and err says in addition why not. NULL = it never does. */
    int (*take_over)(pst_plan *p, bool in_run, pst_err *err);
    /* Begins a run; the inputs were checked. */
    int (*submit)(pst_plan *p, const eng_val *in, size_t n_in, size_t n_out, pst_err *err);
    /* Ends it: what ret_out points to is valid until the next submit. */
    int (*wait)(pst_plan *p, const eng_val **ret_out, size_t n_out, pst_err *err);
    /* "ONNX Runtime 1.22.0 (…): …", as long as the model lives; NULL = the plan has steps, and they are explained. */
    const char *(*served_by)(const pst_plan *p);
    char *(*explain)(const pst_plan *p); /* for pst_plan_explain, free() it; goes with served_by */
    void (*free)(pst_plan *p);           /* NULL-safe in p->of_backend; NULL = nothing to free */
} eng_backend;

extern const eng_backend eng_cpu_backend;

/* The CPU's, for one that computes some of a compiled plan's steps elsewhere: what begins a run, its results made the plan's own, and both
 * within the plan's heap. */
void eng_cpu_begin(pst_plan *p, const eng_val *in);
int eng_cpu_own_results(pst_plan *p, size_t n_out, pst_err *err);
int eng_cpu_within(pst_plan *p, int (*body)(void *arg, pst_err *err), void *arg, pst_err *err);

/* Gives p, which is empty but for model and options, its backend, prepared: of those that support the model the cheapest. */
int eng_backend_choose(pst_plan *p, pst_err *err);
/* After PST_EUNSUPPORTED of p's backend in a run: the next one that takes over. */
int eng_backend_next(pst_plan *p, pst_err *err);

#endif
