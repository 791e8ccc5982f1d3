/* score_report.h - from which input offset on which model version has scored, written down as it happens: ALIAS_SET events with `effective` and the
 * pipeline's name on the topic of models, in the very transaction that holds the first scores of that version. So the record and the scores
 * are there together or not at all, whoever is killed when, and a worker whose partitions were taken away says nothing any more.
 *
 *     score_reports_record(reports, fate);                // of each record that is sent
 *     score_reports_send(reports, txn, client, worker, &err);      // before the commit
 *     score_reports_committed(reports);                            // or _forget: what was not committed was not said
 *
 * Of each partition the first record since it was given to this worker is told too: the last word on it may be another worker's. A worker says only
 * what it has scored itself, and per partition offsets never go back, so that of all these events the last one at or below an offset names the
 * version that scored it, whatever offsets a mover meant.
 * @thread one owner. */
#ifndef PST_INFERENCE_RUN_SCORE_REPORT_H
#define PST_INFERENCE_RUN_SCORE_REPORT_H

#include "common/platform/client.h"
#include "inference/core/score_core.h"

typedef struct score_reports score_reports;

typedef struct score_report_line { /* from this offset on this version */
    pst_variant variant;
    const char *topic; /* borrowed until score_reports_free */
    int32_t partition;
    int64_t offset;
    int version;
    bool published; /* in an event already */
} score_report_line;

score_reports *score_reports_new(const pst_pipeline *p); /* borrowed */
void score_reports_free(score_reports *r);
void score_reports_record(score_reports *r, const pst_fate *f);
/* The pipeline follows an alias, so that there is something to tell. */
bool score_reports_wanted(const score_reports *r);
/* What is to be told of the round in hand, in the order of its records; good until the next call. */
const score_report_line *score_reports_lines(const score_reports *r, size_t *ret_n);
/* Sends what is to be told of the round in hand; nothing to tell is fine. actor: the worker. */
int score_reports_send(score_reports *r, pst_txn *txn, pst_client *c, const char *actor, pst_err *err);
bool score_reports_sent(const score_reports *r); /* in the round in hand */
void score_reports_committed(score_reports *r);
void score_reports_forget(score_reports *r); /* the round was thrown away, or partitions were taken or given */

#endif
