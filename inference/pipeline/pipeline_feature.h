/* pipeline_feature.h - one element of `features` → pst_feature. Inside of inference/pipeline: the pipeline file and the mapping that a model
 * brings are read by the same function. @thread any, one owner. */
#ifndef PST_INFERENCE_PIPELINE_PIPELINE_FEATURE_H
#define PST_INFERENCE_PIPELINE_PIPELINE_FEATURE_H

#include "inference/pipeline/pipeline.h"
#include "inference/pipeline/pipeline_reader.h"

/* o: a mapping of keys, or a field's name. line: in the file; 0 = it comes from a model. f: zeroed; to be ended by pst_feature_done in any case.
 * PST_EINVAL with file:line. */
int pipeline_feature_read(pipeline_reader *r, const json_t *o, int line, pst_feature *f);

#endif
