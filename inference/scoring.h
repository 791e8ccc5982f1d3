/* scoring.h - what this folder brings: pipelines judged and dead letters looked through, as common/platform/scoring.h says. */
#ifndef PST_INFERENCE_SCORING_H
#define PST_INFERENCE_SCORING_H

#include "common/platform/scoring.h"

extern const pst_scoring_ops pst_score_ops;

#endif
