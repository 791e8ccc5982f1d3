/* pipeline_published.h - what a pipeline may ask for that came over penstock.pipelines instead of from a file on the scorer's own host.
 *
 * Whoever may write that topic is not thereby allowed to run programs, read files, learn secrets or choose brokers on the hosts of the
 * scorers. So `kafka:` there takes names from a list of tuning properties and nothing else: a property that nobody has looked at yet is
 * refused, not passed on. ${NAME} sees variables whose names begin with PENSTOCK_PIPELINE_, since a pipeline's texts end up in names of
 * topics, in logs and in dead letters. A model is a registered one: whether a file of the scorer's host is there and what it holds is nobody's
 * business who may only write the topic. The platform's own topics are no input: requests hold what users keep secret. Memory has an upper
 * end. @thread any. */
#ifndef PST_INFERENCE_PIPELINE_PIPELINE_PUBLISHED_H
#define PST_INFERENCE_PIPELINE_PIPELINE_PUBLISHED_H

#include "inference/pipeline/pipeline.h"

#define PST_PUBLISHED_ENV      "PENSTOCK_PIPELINE_"
#define PST_PUBLISHED_NAME_MAX 120

/* Names consumer or producer tuning, by librdkafka's name or Java's. Exact: no other case, no spaces, no prefix of a topic. */
bool pipeline_published_property(const char *key);
/* The list itself, for references: its i-th row, NULL behind the last. */
const char *pst_published_tuning(size_t i);
/* The most that a property may be set to there, where it is memory of the scorer's host; 0 = what librdkafka allows. */
int64_t pipeline_published_most(const char *key);
#define PST_PUBLISHED_INFLIGHT_MAX (1ll << 30)   /* limits.inflight_bytes */
#define PST_PUBLISHED_MODEL_MAX    (512ll << 20) /* limits.model_bytes: a published pipeline may lower it */
#define PST_PUBLISHED_ARENA_MAX    (1ll << 30)   /* limits.arena_bytes, likewise */
/* May ${name} be read by a published pipeline? */
bool pipeline_published_variable(const char *name, size_t len);

#endif
