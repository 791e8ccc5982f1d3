/* gateway_verb.h - `penstock gateway`, for whoever puts the program together: who serves models and knows pipelines comes from there (verbs.c), since services do not
 * know each other. */
#ifndef PST_PRODUCERS_GATEWAY_VERB_H
#define PST_PRODUCERS_GATEWAY_VERB_H

#include "common/base/opt.h"
#include "common/platform/scoring.h"
#include "common/platform/serving.h"

extern const pst_usage pst_gateway_usage;
/* serving NULL: models answer no requests; scoring NULL: no pipelines are known. Returns the exit status. */
int pst_gateway_run(int argc, char **argv, const pst_serving_ops *serving, const pst_scoring_ops *scoring);

#endif
