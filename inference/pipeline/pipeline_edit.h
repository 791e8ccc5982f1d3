/* pipeline_edit.h - the section `rollout` of a pipeline's text replaced where it stands: verbs change what operators wrote, and all else stays byte for
 * byte. What cannot be edited so (a file that is one flow mapping) is refused, never guessed.
 *
 *     json_t *rollout = NULL;                                  // as written, ${NAME} and all; an empty object where there is none
 *     rc = pst_pipeline_rollout(text, "name", &rollout, &err);
 *     rc = pst_pipeline_edit_rollout(text, "name", rollout, &edited, &err);
 *
 * @thread any */
#ifndef PST_INFERENCE_PIPELINE_PIPELINE_EDIT_H
#define PST_INFERENCE_PIPELINE_PIPELINE_EDIT_H

#include "common/base/err.h"

#include <jansson.h>

int pst_pipeline_rollout(const char *text, const char *file, json_t **ret_rollout, pst_err *err);
/* An empty object takes the section away. Nothing changes where it says the same already: ret_text is then a copy. */
int pst_pipeline_edit_rollout(const char *text, const char *file, const json_t *rollout, char **ret_text, pst_err *err);

#endif
