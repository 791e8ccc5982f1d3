/* score_round.h - what one round (one transaction) has done so far, told to the statistics only once it is committed: a round that was thrown
 * away has not happened. @thread one owner. */
#ifndef PST_INFERENCE_RUN_SCORE_ROUND_H
#define PST_INFERENCE_RUN_SCORE_ROUND_H

#include "common/base/map.h"
#include "inference/core/score_core.h"
#include "inference/run/score_report.h"
#include "inference/run/score_stats.h"
#include "inference/state/budget.h"

enum { PST_ROUND_TIMES_MAX = 65536, PST_ROUND_REASONS_MAX = 32, PST_ROUND_FEATURES_MAX = 200, PST_ROUND_VERSIONS_MAX = 8 };

typedef struct score_round_agreement { /* of one shadow's version with the primary; the same of the canary, where it is that version */
    int version;
    bool canary;
    uint64_t equal, different, unjudged;
    double difference;
} score_round_agreement;

typedef struct score_round {
    bool open;
    score_reports *reports; /* borrowed; NULL = none. Told what became of each round */
    int64_t begun_us;
    uint64_t records, scored, tombstones, skipped, dead, missing, anomalies, shadowed, disagreed, shadow_skipped, non_finite;
    pst_cost canary;        /* what its present version has cost */
    uint64_t canary_failed; /* of any version */
    score_round_agreement agreements[PST_ROUND_VERSIONS_MAX];
    size_t n_agreements;
    pst_metric_spread scores;
    pst_map features;  /* field → score_round_missing; keeps its entries from round to round */
    int64_t newest_ms; /* timestamp of its newest record; 0 = none has one */
    uint64_t row;      /* dead letters in a row at the end of this round */
    bool row_is_new;   /* something was scored in this round, so that the row began in it */
    uint64_t row_kept; /* the same, of what is committed */
    size_t bytes;
    int64_t *times; /* timestamps of records, ms */
    size_t n_times;
    struct {
        const char *stage, *reason; /* static texts */
        uint64_t n;
    } reasons[PST_ROUND_REASONS_MAX];
    size_t n_reasons;
    struct score_round_end {
        char *topic;
        int32_t partition;
        int64_t next;
    } * ends; /* per partition: the offset after the last record */
    size_t n_ends, last_end;
} score_round;

void score_round_done(score_round *r);
void score_round_clear(score_round *r); /* keeps memory */
void score_round_record(score_round *r, const pst_record *rec);
void score_round_dead(score_round *r, const char *stage, const char *reason);
void score_round_scored(score_round *r);
/* What the primary or the canary said of it, and which features it lacked. */
void score_round_seen(score_round *r, const pst_fate *f);
/* What it says of the canary and of the shadow; canary: the version in use, the later one where two are; 0 = none. */
void score_round_compared(score_round *r, const pst_fate *f, int canary);
/* Dead letters without a scored record among them, this round's included. */
uint64_t score_round_dead_row(const score_round *r);
/* The last record's place; NULL = there is none. */
const struct score_round_end *score_round_last(const score_round *r);
/* Committed at now_us: counts go to the statistics, positions to the core. */
void score_round_commit(score_round *r, pst_score_core *core, score_stats *s, int64_t now_us);

#endif
