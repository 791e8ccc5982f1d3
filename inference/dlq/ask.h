/* ask.h - the options of a verb of `penstock dlq` as a filter, and the topic that it goes through. */
#ifndef PST_INFERENCE_DLQ_ASK_H
#define PST_INFERENCE_DLQ_ASK_H

#include "inference/dlq/dlq.h"
#include "inference/dlq/ledger.h"
#include "inference/dlq/letter.h"

int dlq_ask_filter(const pst_dlq_ask *ask, dlq_filter *ret, pst_err *err);
/* With its ends; pst_topic_info_done. */
int dlq_ask_topic(const pst_verb_run *v, const char *topic, pst_topic_info *ret, pst_err *err);
/* It was read and holds no dead letter: says so. */
int dlq_ask_none(const char *topic, int64_t records, pst_err *err);
/* What was replayed is not known: says why, frees the ledger, gives NULL. Counting and showing go on without. */
dlq_ledger *dlq_ask_distrust(dlq_ledger *l, const pst_err *why);
/* A line of --json, to whoever wants it. */
void dlq_ask_row(const pst_dlq_ask *ask, json_t *take);
/* A stranger's text in one line of a message or table. */
void dlq_ask_quote(pst_buf *to, pst_slice text, size_t most);

#endif
