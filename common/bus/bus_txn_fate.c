/* bus_txn_fate.c - what became of a transaction whose commit gave no clear answer, and what a topic's refusal of a large batch teaches. */
#include "common/bus/bus_txn.h"
#include "common/bus/bus_consumer.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_MS 30000

/* Is this record visible to a read_committed reader? 1, 0, or < 0 if that cannot be found out. */
static int probe(pst_txn *t, const txn_sent *sent)
{
    pst_range range = {.topic = sent->topic, .partition = sent->partition, .from = sent->offset, .to = sent->offset + 1};
    pst_consumer *c = NULL;
    pst_err err = {0};
    int rc = pst_consumer_new(t->conf, &(pst_consumer_opts){.ranges = &range, .n_ranges = 1, .report_eof = true}, &c, &err);
    int visible = rc < 0 ? rc : -1;
    int64_t until = pst_mono_us() + PROBE_MS * 1000LL;
    while (rc == 0 && pst_mono_us() < until && !txn_given_up(t)) {
        pst_batch b;
        pst_err_clear(&err);
        rc = pst_consumer_poll(c, &(pst_poll){.records_max = 1, .timeout_ms = 500}, &b, &err);
        if (rc == 0 && (b.n || b.eof)) {
            visible = b.n > 0;
            break;
        }
        txn_stay(t);
    }
    pst_consumer_free(c);
    return visible;
}

/* Asks the group coordinator: are the offsets of this round there? Only valid after txn_renew(): the transaction has ended by then. */
static int look_at_offsets(pst_txn *t, const bus_places *wanted, txn_fate *ret, bool *ret_telling, pst_err *err)
{
    bus_places *now = bus_places_copy(wanted);
    int code;
    bus_wait w = {.what = "fate_of_transaction"};
    int rc = 0;
    while (rc == 0) {
        code = bus_committed(bus_consumer_link(t->consumer), now, TXN_INIT_STEP_MS);
        if (!code)
            break;
        rc = bus_wait_more(t->consumer, &w, code, err);
    }
    bus_wait_over(t->consumer, &w);
    if (rc < 0) {
        pst_err_prefix(err, "transaction %s", t->id);
        goto out;
    }
    ret->committed = true;
    *ret_telling = false;
    size_t n;
    const bus_part *parts = bus_consumer_parts(t->consumer, &n);
    for (size_t i = 0; i < now->n; i++) {
        const bus_place *tp = &now->at[i];
        int64_t want = wanted->at[i].offset, before = -1;
        for (size_t j = 0; j < n; j++) {
            if (parts[j].partition == tp->partition && !strcmp(parts[j].topic, tp->topic))
                before = parts[j].committed >= 0 ? parts[j].committed : parts[j].base;
        }
        ret->committed &= tp->offset == want;
        ret->moved |= tp->offset >= 0 && tp->offset != want && before >= 0 && tp->offset > before;
        *ret_telling |= want != before; /* the same offset as before tells nothing */
    }
out:
    bus_places_free(now);
    return rc;
}

int txn_find_fate(pst_txn *t, const bus_places *wanted, const txn_sent *sent, bool end_sent, txn_fate *ret, pst_err *err)
{
    bool telling = false;
    *ret = (txn_fate){0};
    if (wanted) {
        int rc = look_at_offsets(t, wanted, ret, &telling, err);
        if (rc < 0)
            return rc;
    }
    if (!end_sent)
        ret->committed = false; /* nobody was asked to commit */
    if (!end_sent || telling)
        return 0;
    if (!t->sends) {
        ret->committed = true; /* it changed nothing: either way the same */
        return 0;
    }
    if (sent->offset == -1) {
        ret->committed = false; /* records were sent and none was acknowledged: a commit is not even asked for before that */
        return 0;
    }
    int visible = sent->offset < 0 ? -1 : probe(t, sent);
    if (visible < 0)
        pst_log(PST_LOG_WARN, "bus", "event=txn_fate_unknown id=%s topic=%s why=\"cannot read it back: records may be sent twice\"", t->id,
                sent->topic);
    ret->committed = visible == 1;
    return 0;
}

/* A topic refused a batch: smaller batches from now on, and after a second refusal no larger record. */
void txn_learn_limit(pst_txn *t)
{
    const char *topic = t->p->failed_topic;
    txn_limit *l = txn_find_limit(t, topic);
    if (l) {
        l->strict = true;
        return;
    }
    int64_t bytes = bus_topic_bytes_max(t->conf, topic, TXN_STEP_MS);
    t->limits = pst_realloc(t->limits, (t->n_limits + 1) * sizeof *t->limits);
    l = &t->limits[t->n_limits++];
    *l = (txn_limit){.topic = pst_strdup(topic), .bytes = bytes > 0 ? (size_t)bytes : t->p->bytes_max};
    if (!t->batch_bytes || l->bytes < t->batch_bytes)
        t->batch_bytes = l->bytes;
    pst_log(PST_LOG_DEBUG, "bus", "event=batch_cut topic=%s bytes=%zu", topic, l->bytes);
}

void pst_txn_forget_limit(pst_txn *t, const char *topic)
{
    txn_limit *l = txn_find_limit(t, topic);
    if (!l)
        return;
    free(l->topic);
    *l = t->limits[--t->n_limits];
}

txn_limit *txn_find_limit(pst_txn *t, const char *topic)
{
    for (size_t i = 0; i < t->n_limits; i++) {
        if (!strcmp(t->limits[i].topic, topic))
            return &t->limits[i];
    }
    return NULL;
}
