/* score_load.h - the model of a pipeline, loaded and bound at once: for the verbs that do not follow aliases. */
#ifndef PST_INFERENCE_RUN_SCORE_LOAD_H
#define PST_INFERENCE_RUN_SCORE_LOAD_H

#include "common/base/settings.h"
#include "inference/core/binding.h"

/* model.file. Name = the file's base name, version 0. PST_ENOTFOUND if it is not there. */
int pst_score_load_file(const pst_pipeline *p, const char *path, pst_binding **ret_binding, pst_err *err);
/* The same for the model of one variant. */
int pst_score_load_choice(const pst_settings *settings, const pst_pipeline *p, const pst_model_choice *choice, pst_binding **ret_binding,
                          pst_err *err);
/* Of the primary: model.file, or the version that name and alias mean now (reads penstock.models and the object store). */
int pst_score_load_model(const pst_settings *settings, const pst_pipeline *p, pst_binding **ret_binding, pst_err *err);

#endif
