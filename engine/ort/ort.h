/* ort.h - ONNX Runtime, opened at run time, for models that the engine does not cover. Not installed.
 *
 * Which models: those with an operator or a type that the engine refuses with PST_EUNSUPPORTED, and any model when a plan asks for
 * it (pst_plan_opts.backend = "onnxruntime": the comparison tests do). Where the library is looked for: PENSTOCK_ONNXRUNTIME (a
 * file, or a folder with one in it; "off" = never use it), else libonnxruntime.so.1 and libonnxruntime.so as the dynamic linker
 * finds them. Nothing is searched beyond that, so that what runs is what somebody chose.
 *
 * What is given to it: the model as our own loader has read and limited it, written again: no unknown fields, external data
 * (checked to lie in the model's folder) inside, so that the runtime opens no file on a model's behalf. One session per model,
 * shared by its plans, one thread, no telemetry; the memory of all sessions of a process lies in one arena of bounded size. What
 * is not bounded there: texts. A run of limited time gets a thread that ends it (ort_watch.h).
 *
 * Threads: a eng_ort belongs to a model and may be shared; a eng_ort_run belongs to one thread at a time, as plans do. */
#ifndef PST_ENGINE_ORT_H
#define PST_ENGINE_ORT_H

#include "engine/heap.h"
#include "engine/ops/ops.h"

/* Opens m's session, once, and logs one line saying so and why. PST_EUNSUPPORTED with the cure when there is no library, the
 * model's limits forbid it or the model is no ONNX file. @locks one of the process */
int eng_ort_serve(pst_model *m, const char *why, pst_err *err);
void eng_ort_close(struct eng_ort *o); /* NULL-safe */

typedef struct eng_ort_run eng_ort_run;
/* The session must be open. @thread the plan's */
int eng_ort_run_new(const pst_model *m, eng_ort_run **ret, pst_err *err);
void eng_ort_run_free(eng_ort_run *r); /* NULL-safe */
/* A run; the inputs were checked. It is over when this returns; the results are valid until the next one. */
struct eng_watch;
int eng_ort_run_begin(eng_ort_run *r, const struct eng_watch *watch, const eng_val *in, size_t n_in, size_t n_out, pst_err *err);
void eng_ort_run_results(const eng_ort_run *r, const eng_val **ret_out, size_t n_out);
/* "ONNX Runtime 1.22.0 (/usr/lib/…): operators … are not the engine's own". Lives as long as the model. */
const char *eng_ort_describe(const pst_model *m);

#endif
