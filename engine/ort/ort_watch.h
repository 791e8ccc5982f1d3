/* ort_watch.h - an evaluation in ONNX Runtime within the bounds of its plan. @thread the plan's */
#ifndef PST_ENGINE_ORT_WATCH_H
#define PST_ENGINE_ORT_WATCH_H

#include "engine/ort/ort_lib.h"
#include "engine/plan.h"

/* options: of the run; NULL = none. It may allocate nothing of the engine's. */
typedef int (*ort_run_fn)(void *arg, const void *options, pst_err *err);
/* Calls run; ends it with PST_ETIMEDOUT or PST_ESTOPPED when watch says so. */
int ort_run_watched(const ort_lib *lib, const eng_watch *watch, ort_run_fn run, void *arg, pst_err *err);

#endif
