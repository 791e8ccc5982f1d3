/* xgboost_objective.h - what XGBoost's objectives do to a sum of leaves, and to a base score before. @thread any. */
#ifndef PST_ENGINE_NATIVE_XGBOOST_OBJECTIVE_H
#define PST_ENGINE_NATIVE_XGBOOST_OBJECTIVE_H

#include "engine/native/native.h"

/* PST_EUNSUPPORTED for a name that is not known: what it does to the sums would be a guess. */
int eng_xgb_link(const char *objective, int32_t n_groups, eng_link *ret, pst_err *err);
/* A base score as it stands in the file (a probability, a mean) → what sums begin with. before_1_3: written by a version older than 1.3,
 * where binary:logitraw began to take it as it is. */
int eng_xgb_margin(const char *objective, bool before_1_3, float base_score, float *ret, pst_err *err);

#endif
