/* ledger.h - which dead letters were put back already: a topic beside the dead letters, <topic>.replays, whose records are written in the same
 * transactions as what was put back.
 *
 *     dlq_ledger *l = dlq_ledger_new("in.dlq");
 *     dlq_ledger_read(l, client, false, &err);                 // all of it, or what came since
 *     if (!dlq_ledger_has(l, partition, offset)) …      // put it back, and note it in the same transaction:
 *     dlq_ledger_note(l, record);  …  while (dlq_ledger_entry(l, &key, &value)) pst_txn_send(…);
 *
 * Committed offsets of a group would say less: a replay takes what its filter takes, and leaves others before and behind for another day. Each
 * entry is a JSON text of runs of offsets of one partition, and the check sum of its last dead letter, by which it is noticed that the topic was deleted and
 * made anew: its offsets begin again then, and would be taken for replayed ones. Memory: 24 bytes a run. @thread any, one owner. */
#ifndef PST_INFERENCE_DLQ_LEDGER_H
#define PST_INFERENCE_DLQ_LEDGER_H

#include "common/bus/bus.h"
#include "common/platform/client.h"

typedef struct dlq_ledger dlq_ledger;

dlq_ledger *dlq_ledger_new(const char *dead_letters);
void dlq_ledger_free(dlq_ledger *l);
const char *dlq_ledger_topic(const dlq_ledger *l);
/* Is this the name of a ledger? And has a topic one: are others' dead letters noted beside it? Who may not see that is told that there is none. */
bool dlq_ledger_is(const char *topic);
int dlq_ledger_beside(const char *topic, const pst_client *c, bool *ret_beside, pst_err *err);
/* Takes in what came since the last time. made: it is there, by dlq_ledger_make(), and one that is gone is PST_ESTATE; else 0 where there is none yet. An entry that cannot be read is an error: not to know what was put
 * back is no leave to do it again. */
int dlq_ledger_read(dlq_ledger *l, const pst_client *c, bool made, pst_err *err);
/* Makes the topic where it is missing. */
int dlq_ledger_make(dlq_ledger *l, const pst_client *c, pst_err *err);
/* One record of it. DATA where it is no entry. */
int dlq_ledger_add(dlq_ledger *l, const void *value, size_t len, pst_err *err);
/* To be called behind the last of them: has and check look into what is settled. */
void dlq_ledger_settle(dlq_ledger *l);
bool dlq_ledger_has(const dlq_ledger *l, int32_t partition, int64_t offset);
/* Is this still the topic that the entries speak of? By a dead letter at hand, and by its ends. PST_ESTATE with the cure. */
int dlq_ledger_check(const dlq_ledger *l, const pst_record *r, pst_err *err);
int dlq_ledger_check_ends(const dlq_ledger *l, const pst_topic_info *info, pst_err *err);

/* A round: what is put back in one transaction. */
void dlq_ledger_begin(dlq_ledger *l);
void dlq_ledger_note(dlq_ledger *l, const pst_record *r);
/* The next entry of the round, one a partition; false = there is none left. */
bool dlq_ledger_entry(dlq_ledger *l, const char *to, pst_buf *ret_key, pst_buf *ret_value);

#endif
