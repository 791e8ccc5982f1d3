/* score_report.h - from which input offset on which model version has scored, written down as it happens: ALIAS_SET events with `effective` and the
 * pipeline's name on the topic of models, in the very transaction that holds the first scores of that version. So the record and the scores
 * are there together or not at all, whoever is killed when, and a worker whose partitions were taken away says nothing any more.
 *
 *     pst_reports_record(reports, fate, record);                 // of each record that is sent
 *     pst_reports_send(reports, txn, client, worker, &err);      // before the commit
 *     pst_reports_committed(reports);                            // or _forget: what was not committed was not said
 *
 * Of each partition the first record since it was given to this worker is told too: the last word on it may be another worker's. Per partition
 * offsets never go back, so that of all events the last one at or below an offset names the version that scored it. A move that came with
 * offsets which had been passed before anybody heard of it is corrected by an event for the version that did score them.
 * @thread one owner. */
#ifndef PST_INFERENCE_RUN_SCORE_REPORT_H
#define PST_INFERENCE_RUN_SCORE_REPORT_H

#include "common/platform/client.h"
#include "inference/core/score_core.h"

typedef struct pst_reports pst_reports;

pst_reports *pst_reports_new(const pst_pipeline *p); /* borrowed */
void pst_reports_free(pst_reports *r);
void pst_reports_record(pst_reports *r, const pst_fate *f, const pst_record *rec);
/* The pipeline follows an alias, so that there is something to tell. */
bool pst_reports_wanted(const pst_reports *r);
/* Sends what is to be told of the round in hand; nothing to tell is fine. actor: the worker. */
int pst_reports_send(pst_reports *r, pst_txn *txn, pst_client *c, const char *actor, pst_err *err);
bool pst_reports_sent(const pst_reports *r); /* in the round in hand */
void pst_reports_committed(pst_reports *r);
void pst_reports_forget(pst_reports *r); /* the round was thrown away, or partitions were taken or given */

#endif
