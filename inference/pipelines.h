/* pipelines.h - published pipelines read from their topic, and the judgement of one that is to be published; for the verb and for scoring.h.
 *
 *     pst_map all = {0};
 *     rc = score_pipelines_read(client, &all, &err);
 *     score_pipelines_done(&all);
 *     rc = score_pipelines_judge(client, p, stderr, &err);
 *
 * @thread any */
#ifndef PST_INFERENCE_PIPELINES_H
#define PST_INFERENCE_PIPELINES_H

#include "common/base/map.h"
#include "common/platform/client.h"
#include "inference/pipeline/pipeline.h"

#include <stdio.h>

/* name → pst_pipeline_spec *, the latest of each; what somebody wrote there that is none is left out. */
int score_pipelines_read(pst_client *c, pst_map *ret_all, pst_err *err);
void score_pipelines_done(pst_map *all);
/* The specs sorted by name, NULL behind the last; free() the array alone. */
pst_pipeline_spec **score_pipelines_sorted(const pst_map *all);
/* The group that its scorers join, as they say it themselves (score_run.c); free() */
char *score_pipelines_group(const pst_client *c, const pst_pipeline *p);
/* May it run, by itself and beside those that are published? report NULL = nothing is told. */
int score_pipelines_judge(pst_client *c, const pst_pipeline *p, FILE *report, pst_err *err);

#endif
