/* verbs.h - the verbs that the folders bring; each folder defines its own, verbs.c lists them. */
#ifndef PST_VERBS_H
#define PST_VERBS_H

#include "common/base/opt.h"

/* producers/ */
extern const pst_verb pst_submit_verb, pst_halt_verb, pst_resume_verb, pst_terminate_verb, pst_delete_verb, pst_source_verb, pst_nodes_verb,
    pst_user_verb;
extern const pst_verb pst_hold_verb, pst_release_verb, pst_reprioritise_verb, pst_queues_verb;
/* consumers/ */
extern const pst_verb pst_list_verb, pst_show_verb, pst_why_verb, pst_events_verb, pst_logs_verb, pst_metrics_verb, pst_cat_verb,
    pst_lag_verb, pst_sink_verb;
/* trainer/, trainer/learner/, lcm/, common/registry/ */
extern const pst_verb pst_trainer_verb, pst_learn_verb, pst_lcm_verb, pst_registry_verb;
/* inference/ */
extern const pst_verb pst_score_verb, pst_dlq_verb, pst_models_verb, pst_pipelines_verb;

/* All of them, in the order of `penstock --help`. */
extern const pst_verb *const pst_verbs[];
extern const size_t pst_n_verbs;

#endif
