/* score_report.h - from which input offset on which model version has scored, written down as it happens: ALIAS_SET events with `effective` and the
 * pipeline's name on the topic of models, in the very transaction that holds the first scores of that version. So the record and the scores
 * are there together or not at all, whoever is killed when, and a worker whose partitions were taken away says nothing any more.
 *
 *     score_reports_record(reports, fate, NULL);          // of each record that is sent
 *     score_reports_send(reports, txn, client, worker, &err);      // before the commit
 *     score_reports_committed(reports);                            // or _forget: what was not committed was not said
 *
 * Of a pipeline with a canary each partition is told which version had the canary's part, and how large that was, or that it had none (version 0),
 * so that a replay splits the records as they were split then. Of each partition the first record since it was given to this worker is told too: the last word on it may be another worker's. A worker says only
 * what it has scored itself, and per partition offsets never go back, so that of all these events the last one at or below an offset names the
 * version that scored it, whatever offsets a mover meant.
 * @thread one owner. */
#ifndef PST_INFERENCE_RUN_SCORE_REPORT_H
#define PST_INFERENCE_RUN_SCORE_REPORT_H

#include "common/platform/client.h"
#include "inference/core/score_core.h"
#include "schemas/events.h"

typedef struct score_reports score_reports;

typedef struct score_report_line { /* from this offset on this version */
    pst_variant variant;
    const char *topic; /* borrowed until score_reports_free */
    int32_t partition;
    int64_t offset;
    int version;    /* 0: the canary had no record from here on */
    bool published; /* in an event already */
} score_report_line;

score_reports *score_reports_new(const pst_pipeline *p); /* borrowed */
void score_reports_free(score_reports *r);
/* otherwise: of a record that was bad before anybody had it, who would have had it, so that a replay knows of the partition's first records, too, that
 * they were looked at; NULL = nobody. */
void score_reports_record(score_reports *r, const pst_fate *f, const pst_lane *otherwise);
/* The pipeline follows an alias, so that there is something to tell. */
bool score_reports_wanted(const score_reports *r);
/* What is to be told of the round in hand, in the order of its records; good until the next call. */
const score_report_line *score_reports_lines(const score_reports *r, size_t *ret_n);
/* Sends what is to be told of the round in hand; nothing to tell is fine. actor: the worker. */
int score_reports_send(score_reports *r, pst_txn *txn, pst_client *c, const char *actor, pst_err *err);
bool score_reports_sent(const score_reports *r); /* in the round in hand */
void score_reports_committed(score_reports *r);
void score_reports_forget(score_reports *r); /* the round was thrown away, or partitions were taken or given */

/* The canary rests, and why (copied), from these offsets on, of which the round in hand tells; every later word on a partition without a canary says so,
 * too, by which the other workers of the pipeline, and the next ones, hear of it. NULL: it does not. */
void score_reports_stopped(score_reports *r, const char *why);
void score_reports_rests_from(score_reports *r, const char *topic, int32_t partition, int64_t offset);
/* SHA-256 of the spec's text: a stop is of the spec under which it was decided. */
void pst_score_report_spec(const pst_pipeline *p, char ret[65]);
/* Says that the canary of this very spec is stopped? */
bool pst_score_report_is_stop(const pst_model_event *e, const pst_pipeline *p, const char *spec);

/* What an event of a pipeline's own tells of, beside its version: in `metrics`, whose names these are. */
#define SCORE_REPORT_CANARY    "canary" /* 1: of the canary, which had this `percent` */
#define SCORE_REPORT_PERCENT   "percent"
#define SCORE_REPORT_NO_CANARY "no_canary" /* 1: of the primary, while the pipeline has no canary */
#define SCORE_REPORT_SHADOW    "shadow"    /* 1: of the shadow */

#endif
