/* pipeline_keys.h - every key of a pipeline file, with its limits, default and meaning: what the reader goes by, and what
 * docs/reference/pipeline.md is printed from. A key that is not here is refused. @thread any. */
#ifndef PST_INFERENCE_PIPELINE_PIPELINE_KEYS_H
#define PST_INFERENCE_PIPELINE_PIPELINE_KEYS_H

#include "common/base/keys.h"

/* The section of the keys at the top is "pipeline". */
extern const pst_keys pst_pipeline_keys;

extern const char *const pipeline_score_type_words[]; /* in the order of pst_score_type */
extern const char *const pipeline_bus_words[];
extern const char *const pipeline_missing_words[];
extern const char *const pipeline_window_words[];  /* in the order of pst_window_of */
extern const char *const pipeline_unknown_words[]; /* in the order of pst_unknown_word */

#endif
