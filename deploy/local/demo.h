/* demo.h - the demonstration's parts: what it watches (demo_watch.c) and how it makes the computer busy (demo_load.c). */
#ifndef PST_DEPLOY_DEMO_H
#define PST_DEPLOY_DEMO_H

#include "common/platform/client.h"

/* Threads that compute and yield until told to stop: CPU, run queue and context switches rise. */
typedef struct local_load local_load;
local_load *local_load_start(int threads);
void local_load_stop(local_load *l);

/* What the scores said over a while. Milliseconds from the input record's timestamp until this consumer had the score. */
typedef struct local_score_stats {
    int64_t records;
    double mean, max; /* of the score */
    double p50_ms, p99_ms;
    int model_version;
    char model_name[64], digest[65];
} local_score_stats;
typedef struct local_score_watch local_score_watch;
int local_score_watch_new(pst_client *c, const char *topic, local_score_watch **ret_watch, pst_err *err); /* from the topic's end on */
/* Collects for duration_us (or until `until` scores came, 0 = no such end); stats of that while, and into the whole. */
int local_score_watch_for(local_score_watch *w, int64_t duration_us, int64_t until, local_score_stats *ret_stats, pst_err *err);
void local_score_watch_total(const local_score_watch *w, local_score_stats *ret_stats);
void local_score_watch_free(local_score_watch *w);

/* Follows one job from its topics: prints an epoch line for each metric event, returns when the job has ended. */
typedef struct local_job_outcome {
    char state[24], reason[300];
    int epochs;
    double first_loss, last_loss, last_validation;
    char model_name[64], digest[65];
    int model_version;
    int64_t running_us; /* from publishing until it ran */
} local_job_outcome;
int local_demo_follow(pst_client *c, const char *training_id, int64_t published_us, int64_t timeout_us, bool color,
                      local_job_outcome *ret_outcome, pst_err *err);

#endif
