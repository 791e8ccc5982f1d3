/* pipeline_published.h - what a pipeline may ask for that came over penstock.pipelines instead of from a file on the scorer's own host.
 *
 * Whoever may write that topic is not thereby allowed to run programs, read files, learn secrets or choose brokers on the hosts of the
 * scorers. So `kafka:` there takes names from a list of tuning properties and nothing else: a property that nobody has looked at yet is
 * refused, not passed on. ${NAME} sees variables whose names begin with PENSTOCK_PIPELINE_, since a pipeline's texts end up in names of
 * topics, in logs and in dead letters. A model's file must be given by its whole path: beside what would it be looked for? @thread any. */
#ifndef PST_INFERENCE_PIPELINE_PIPELINE_PUBLISHED_H
#define PST_INFERENCE_PIPELINE_PIPELINE_PUBLISHED_H

#include "inference/pipeline/pipeline.h"

#define PST_PUBLISHED_ENV      "PENSTOCK_PIPELINE_"
#define PST_PUBLISHED_NAME_MAX 120

/* Names consumer or producer tuning, by librdkafka's name or Java's. Exact: no other case, no spaces, no prefix of a topic. */
bool pst_published_property(const char *key);
/* May ${name} be read by a published pipeline? */
bool pst_published_variable(const char *name, size_t len);

#endif
