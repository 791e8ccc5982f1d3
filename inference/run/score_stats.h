/* score_stats.h - what a scorer says about itself: Prometheus' /metrics and /healthz, a MetricPoint a second on penstock.metrics, a heartbeat
 * on penstock.workers. All of it on threads of its own: an outage of the registry or the broker never holds the stream.
 *
 * Threads: the scorer's thread counts (atomics only); start and stop from it as well. */
#ifndef PST_INFERENCE_RUN_SCORE_STATS_H
#define PST_INFERENCE_RUN_SCORE_STATS_H

#include "common/base/dump.h"
#include "common/base/map.h"
#include "common/base/metrics.h"
#include "common/base/settings.h"
#include "common/loop/http.h"
#include "inference/pipeline/pipeline.h"
#include "inference/state/waits.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PST_LATENCY_BUCKETS = 320 }; /* 8 a power of two, from 1 µs to some months */

typedef struct score_drift_value {
    const char *name;
    double psi;
} score_drift_value;

typedef struct score_stats {
    pst_metrics *set;
    const char *pipeline;
    _Atomic uint64_t records, scored, tombstones, skipped, dead_letters, missing_records, anomalies, batches, batch_records, commits,
        aborts;
    _Atomic int64_t lag;       /* -1 = not known */
    _Atomic int64_t newest_ms; /* timestamp of the newest record that is committed; 0 = none */
    _Atomic int model_version;
    _Atomic bool ready; /* a model is there and partitions are assigned or may be */
    _Atomic bool waits; /* the stream, or a part of it, stands still */
    pthread_mutex_t wait_lock;
    pst_waits *waiting; /* @locks wait_lock */
    int refused_version;
    char refused[480];                         /* the model version that an alias names and that is not in use; "" = none */
    char *wait_file;                           /* the same for `penstock status`, while it waits */
    _Atomic uint64_t compared, agreed, judged; /* shadow and primary */
    double difference;                         /* sum of `compared`. @locks wait_lock */
    pst_map drift;                             /* feature → its gauge, score_stats.c; of the last window. @locks wait_lock */
    bool drift_told;
    char drift_worst[480]; /* in a line, or why there is none. @locks wait_lock */
    char canary_why[480];  /* why the canary rests; "" = it does not. @locks wait_lock */
    _Atomic uint64_t latency[PST_LATENCY_BUCKETS], scores[PST_METRIC_SPREAD];
    pst_metric *e2e, *decode, *emit, *commit, *lag_gauge, *waiting_gauge, *scored_total, *swaps, *swap_failures, *load_seconds, *loaded,
        *consumed, *missing_total, *anomalies_total, *commits_ok, *aborts_total, *shadow_scored, *shadow_disagree, *shadow_skipped,
        *state_keys, *state_bytes, *state_forgotten, *window_cut, *non_finite, *canary_failed, *canary_stopped, *tombstones_total,
        *device_lost, *score, *lag_seconds;
    pst_dump *dump; /* asked by GET /state; NULL = not there; set before start */
    struct pst_stats_threads *threads;
} score_stats;

score_stats *score_stats_new(const char *pipeline);
void score_stats_free(score_stats *s);
/* listen: "PORT", "HOST:PORT", NULL = no HTTP. worker_id: of the heartbeat. */
extern const pst_http_routes pst_stats_routes; /* of --metrics-listen */
int score_stats_start(score_stats *s, const pst_settings *settings, const char *worker_id, const char *listen, pst_err *err);
int score_stats_port(const score_stats *s); /* of /metrics; 0 = none */
void score_stats_stop(score_stats *s);      /* last points, last heartbeat; bounded in time */

/* The stream stands still, and for what ("model", "topics", "registry", "kafka", "paused" …) and why; what NULL = this one waits no more, whatever
 * the others do. /readyz, heartbeats and `penstock status` say so. Cheap when nothing changes. @thread the scorer's */
void score_stats_wait(score_stats *s, pst_waiter who, const char *what, const char *why);
/* The partition of this record stands at it; until it, or a later one, is used, or the partition is not ours any more (keep). */
void score_stats_wait_record(score_stats *s, const pst_record *r, const char *what, const char *why);
void score_stats_used_record(score_stats *s, const pst_record *r);
void score_stats_wait_keep(score_stats *s, const pst_range *ours, size_t n);
/* What it waits for, and why, of all waits that stand; what "" = it flows. Replaces ret_why. @thread any */
void score_stats_waits_now(score_stats *s, char ret_what[32], pst_buf *ret_why);
/* An alias names a version that cannot be used here, so that another is kept; name NULL = all is as it should be,
 * unless version is the one that was refused. */
void score_stats_refused(score_stats *s, const char *name, int version, const char *why);
void score_stats_dead_letter(score_stats *s, const char *stage, const char *reason);
void score_stats_model(score_stats *s, const char *name, int version, const char *digest, const char *variant);
/* Of a round that is committed: for the points of the next second. */
void score_stats_scores(score_stats *s, const pst_metric_spread *of);
/* Of a round that is committed: what this version, as SHADOW or CANARY, said beside the primary. */
void score_stats_agreement(score_stats *s, const char *variant, int version, uint64_t equal, uint64_t different, uint64_t unjudged,
                           double difference);
/* A window is full; n = 0: another model, worst then says what is known of it. */
void score_stats_drift(score_stats *s, const score_drift_value *at, size_t n, const char *worst);
/* The canary rests, and why: heartbeats, /metrics and `penstock status` say so; /readyz does not change. */
void score_stats_canary_stopped(score_stats *s, const char *why);
/* n records of that age (from their timestamp to their commit). */
void score_stats_latency(score_stats *s, int64_t us, uint64_t n);

#endif
