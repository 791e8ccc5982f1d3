/* score_offline.h - a pipeline without a stream: dry runs over files, checks, explanations. Exit statuses: pst_exits. */
#ifndef PST_INFERENCE_OFFLINE_SCORE_OFFLINE_H
#define PST_INFERENCE_OFFLINE_SCORE_OFFLINE_H

#include "common/base/settings.h"
#include "inference/core/score_core.h"

/* in: JSON lines or an Avro container file, "-" = stdin; out: JSON lines, "-" = stdout. 3 when some records could not be scored.
 * p: its input format is set to what the file is. */
int pst_score_dry_run(const pst_settings *settings, pst_pipeline *p, const char *in, const char *out);
/* What a line of a dry run says of a record. New reference. */
json_t *pst_score_line(const pst_score_core *core, const pst_fate *f);
/* pst_pipeline_check, told on stdout. verbose: with plans and mapping (score explain). */
int pst_score_check(const pst_settings *settings, const pst_pipeline *p, bool verbose);

#endif
