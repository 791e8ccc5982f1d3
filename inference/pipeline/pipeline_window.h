/* pipeline_window.h - `window:` of a feature and the section `state:`. Inside of inference/pipeline. @thread any, one owner. */
#ifndef PST_INFERENCE_PIPELINE_PIPELINE_WINDOW_H
#define PST_INFERENCE_PIPELINE_PIPELINE_WINDOW_H

#include "inference/pipeline/pipeline.h"
#include "inference/pipeline/pipeline_reader.h"

/* After the other keys of the feature. PST_EINVAL with file:line, as the others. */
int pipeline_window_read(pipeline_reader *r, const json_t *feature, pst_feature *f);
int pipeline_state_read(pipeline_reader *r, const json_t *root, pst_pipeline *p);
/* When all sections are there: what windows and state ask of the others; numbers windows and series. */
int pipeline_state_check(pipeline_reader *r, const json_t *root, pst_pipeline *p);

#endif
