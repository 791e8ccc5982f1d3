/* rollout.h - what `penstock pipelines canary|shadow|promote|rollback` do: a change of the published spec, or a move of the primary's alias, or both.
 * Each says what it did, does nothing the second time, and is refused where `penstock score check` refuses the spec that would come of it. */
#ifndef PST_INFERENCE_ROLLOUT_H
#define PST_INFERENCE_ROLLOUT_H

#include "common/platform/verb.h"
#include "inference/pipelines.h"

typedef struct score_rollout_opts {
    const char *alias, *topic, *errors, *disagreement, *reason;
    int64_t version, over;
    double percent, tolerance; /* < 0 = not given */
    bool off, dry_run, promotion;
} score_rollout_opts;

int score_rollout_canary(pst_verb_run *v, const pst_pipeline_spec *s, const score_rollout_opts *o);
int score_rollout_shadow(pst_verb_run *v, const pst_pipeline_spec *s, const score_rollout_opts *o);
/* The canary's version becomes what the primary's alias means, from the input's present ends on, and the canary ends. */
int score_rollout_promote(pst_verb_run *v, const pst_pipeline_spec *s, const score_rollout_opts *o);
/* The canary ends; with o->promotion the last promotion is undone. */
int score_rollout_back(pst_verb_run *v, const pst_pipeline_spec *s, const score_rollout_opts *o);
/* Who has which part, and whether the canary rests, in lines on f. Outages are passed over: what is shown is more than was asked for. */
void score_rollout_tell(pst_client *c, const pst_pipeline_spec *s, FILE *f);
/* What its scorers say of drift, a line each; nothing where none does. */
void score_drift_tell(pst_client *c, const char *pipeline, FILE *f);

#endif
