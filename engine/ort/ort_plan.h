/* ort_plan.h - plans that run in ONNX Runtime; what plan.c, exec.c and explain.c call. */
#ifndef PST_ENGINE_ORT_PLAN_H
#define PST_ENGINE_ORT_PLAN_H

#include "engine/ort/ort.h"
#include "engine/plan.h"

/* Whether p is to run there from the start: its model has operators that are not the engine's own, or its options say so.
 * PST_EINVAL: no such backend; PST_EUNSUPPORTED: the options ask for the engine, which cannot. */
int eng_ort_wanted(const pst_plan *p, bool *ret_ort, pst_err *err);
/* Makes p, which is empty but for model and options, a plan that runs there. */
int eng_ort_take_plan(pst_plan *p, pst_err *err);
/* The engine said PST_EUNSUPPORTED (a type, most often), in p's making or in a run: lets ONNX Runtime have p if that is allowed and
 * possible, and then clears err. Otherwise PST_EUNSUPPORTED, and err says in addition why not. */
int eng_ort_take_over(pst_plan *p, bool in_run, pst_err *err);
/* What pst_plan_explain and pst_model_explain say of such a plan; free() it. NULL = no memory. */
char *eng_ort_explain(const pst_plan *p);
char *eng_ort_explain_json(const pst_plan *p);

#endif
