/* demo.h - the demonstration's parts: what it watches (demo_watch.c) and how it makes the computer busy (demo_load.c). */
#ifndef PST_DEPLOY_DEMO_H
#define PST_DEPLOY_DEMO_H

#include "common/platform/client.h"

/* Threads that compute and yield until told to stop: CPU, run queue and context switches rise. */
typedef struct pst_load pst_load;
pst_load *pst_load_start(int threads);
void pst_load_stop(pst_load *l);

/* What the scores said over a while. Milliseconds from the input record's timestamp until this consumer had the score. */
typedef struct pst_score_stats {
    int64_t records;
    double mean, max; /* of the score */
    double p50_ms, p99_ms;
    int model_version;
    char model_name[64], digest[65];
} pst_score_stats;
typedef struct pst_score_watch pst_score_watch;
int pst_score_watch_new(pst_client *c, const char *topic, pst_score_watch **ret_watch, pst_err *err); /* from the topic's end on */
/* Collects for duration_us (or until `until` scores came, 0 = no such end); stats of that while, and into the whole. */
int pst_score_watch_for(pst_score_watch *w, int64_t duration_us, int64_t until, pst_score_stats *ret_stats, pst_err *err);
void pst_score_watch_total(const pst_score_watch *w, pst_score_stats *ret_stats);
void pst_score_watch_free(pst_score_watch *w);

/* Follows one job from its topics: prints an epoch line for each metric event, returns when the job has ended. */
typedef struct pst_job_outcome {
    char state[24], reason[300];
    int epochs;
    double first_loss, last_loss, last_validation;
    char model_name[64], digest[65];
    int model_version;
    int64_t running_us; /* from publishing until it ran */
} pst_job_outcome;
int pst_demo_follow(pst_client *c, const char *training_id, int64_t published_us, int64_t timeout_us, bool color,
                    pst_job_outcome *ret_outcome, pst_err *err);

#endif
