/* score_round.h - what one round (one transaction) has done so far, told to the statistics only once it is committed: a round that was thrown
 * away has not happened. @thread one owner. */
#ifndef PST_INFERENCE_RUN_SCORE_ROUND_H
#define PST_INFERENCE_RUN_SCORE_ROUND_H

#include "inference/core/score_core.h"
#include "inference/run/score_report.h"
#include "inference/run/score_stats.h"

enum { PST_ROUND_TIMES_MAX = 65536, PST_ROUND_REASONS_MAX = 32 };

typedef struct pst_round {
    bool open;
    pst_reports *reports; /* borrowed; NULL = none. Told what became of each round */
    int64_t begun_us;
    uint64_t records, scored, tombstones, skipped, dead, missing, anomalies, shadowed, disagreed, shadow_skipped, non_finite;
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
    struct pst_round_end {
        char *topic;
        int32_t partition;
        int64_t next;
    } * ends; /* per partition: the offset after the last record */
    size_t n_ends, last_end;
} pst_round;

void pst_round_done(pst_round *r);
void pst_round_clear(pst_round *r); /* keeps memory */
void pst_round_record(pst_round *r, const pst_record *rec);
void pst_round_dead(pst_round *r, const char *stage, const char *reason);
void pst_round_scored(pst_round *r);
/* Dead letters without a scored record among them, this round's included. */
uint64_t pst_round_dead_row(const pst_round *r);
/* Committed at now_us: counts go to the statistics, positions to the core. */
void pst_round_commit(pst_round *r, pst_core *core, pst_stats *s, int64_t now_us);

#endif
