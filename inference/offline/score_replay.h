/* score_replay.h - a part of a pipeline's input scored again, each record by the version that scored it then: the one that the recorded effective
 * offsets name (score_report.h). @thread any */
#ifndef PST_INFERENCE_OFFLINE_SCORE_REPLAY_H
#define PST_INFERENCE_OFFLINE_SCORE_REPLAY_H

#include "common/base/settings.h"
#include "inference/pipeline/pipeline.h"

/* from, to: offsets of every input partition, or times (2026-01-31T12:00:00Z); to is exclusive. out: JSON lines, "-" = stdout: those of a dry
 * run, with source, model and variant. Returns the exit status: 3 when some records could not be scored. */
int pst_score_replay(const pst_settings *settings, pst_pipeline *p, const char *from, const char *to, const char *out);

#endif
