/* bus_txn.c - consume → state → produce in one transaction, with a producer that is recycled after every uncertain step.
 *
 *              begin                send…                 commit
 *   RECYCLE ──────────► OPEN ──────────────────► OPEN ───────────────► READY      one EndTxn sent, answered: clean
 *      ▲   new producer,   │ librdkafka refuses    │                     └─► begin
 *      │   init (aborts    ▼                       │ answered, but EndTxn sent twice: committed, RECYCLE before the next begin
 *      │   what is open) POISONED ──commit──►──────┤
 *      │                                           ▼ abortable, fatal, fenced, no answer within transaction.timeout.ms + 30 s
 *      └──────── renew now: init ends the old transaction either way; then look: were our offsets (or a record of ours) committed?
 *                yes → 0, as if the commit had answered          no → the consumer is rewound, PST_EAGAIN
 *
 * Why: librdkafka speaks the older transaction protocol, in which a delayed or re-sent EndTxn can end a LATER transaction of the same
 * producer epoch. A new producer means a new epoch, which the stale request cannot touch. It costs one round trip. */
#include "common/bus/bus_txn.h"
#include "common/bus/bus_hand.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRANSACTION_TIMEOUT_MS 60000
#define GRACE_MS               30000 /* beyond the transaction's own time-out, then its fate is looked up */
#define REFUSALS_IN_A_ROW      3
#define HANG_MS                15000
#define TOPICS_MAX             64

int pst_txn_new(const pst_bus_conf *conf, const char *transactional_id, pst_txn_mode mode, pst_consumer *consumer, pst_txn **ret_txn,
                pst_err *err)
{
    if (!transactional_id || !*transactional_id)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "kafka", 0, "a transaction needs an id");
    pst_txn *t = pst_alloc(sizeof *t);
    t->conf = pst_bus_conf_copy(conf);
    t->id = pst_strdup(transactional_id);
    t->mode = mode;
    t->consumer = consumer;
    if (consumer && mode == PST_TXN_EXACTLY_ONCE)
        bus_consumer_sign(consumer, transactional_id);
    t->timeout_ms = (int)bus_conf_number(conf, "transaction.timeout.ms", TRANSACTION_TIMEOUT_MS);
    for (int i = 0; i < TXN_CALLS; i++)
        t->hang_ms[i] = HANG_MS;
    int rc = mode == PST_TXN_EXACTLY_ONCE ? txn_take_over(t, err) : 0;
    if (rc < 0) {
        pst_txn_free(t);
        return rc;
    }
    *ret_txn = t;
    return 0;
}

void pst_txn_counts(const pst_txn *t, uint64_t ret_counts[3])
{
    memcpy(ret_counts, t->counts, sizeof t->counts);
}

void pst_txn_free(pst_txn *t)
{
    if (!t)
        return;
    pst_err ignored = {0};
    if (t->open && t->mode == PST_TXN_EXACTLY_ONCE && t->p && t->p->link.h && !t->timed_out && !pst_stop_forced()) {
        /* Left open it would hold back every read_committed reader until the broker times it out. */
        t->p->link.lib->producer->drop(t->p->link.h, true);
        txn_guarded(t, (txn_call){.kind = CALL_ABORT, .timeout_ms = TXN_INIT_STEP_MS}, &ignored);
    }
    pst_producer_free(t->p);
    bus_hand_free(t->hand);
    for (size_t i = 0; i < t->n_topics; i++)
        free(t->topics[i]);
    free(t->topics);
    for (size_t i = 0; i < t->n_limits; i++)
        free(t->limits[i].topic);
    free(t->limits);
    free(t->id);
    pst_bus_conf_free(t->conf);
    free(t);
}

/* ---- begin and send ------------------------------------------------------------------------------------------------------------ */

/* A producer that has begun. */
static int begin(pst_txn *t, pst_err *err)
{
    int rc = 0;
    if (t->mode == PST_TXN_AT_LEAST_ONCE)
        return t->p ? 0 : txn_make_producer(t, err);
    for (;;) {
        if (!t->ready)
            rc = txn_renew(t, false, err);
        if (rc < 0)
            return rc;
        txn_class c = txn_guarded(t, (txn_call){.kind = CALL_BEGIN}, &t->why);
        if (c == TXN_OK)
            return 0;
        t->ready = false;
        if (c == TXN_REFUSED) {
            if (err && !err->code)
                *err = t->why;
            return t->why.code;
        }
        t->begun_us = 0;
        if (c == TXN_FENCED && txn_fence_add(&t->fence, pst_mono_us(), txn_innocent(t), false))
            return txn_fenced(t, err);
        if (pst_stop_requested())
            return txn_stopped(t, err);
    }
}

int pst_txn_begin(pst_txn *t, pst_err *err)
{
    if (t->open)
        return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "kafka", 0, "transaction %s is open already", t->id);
    uint64_t epoch = t->consumer ? bus_consumer_epoch(t->consumer) : 0; /* of the records in hand */
    int rc = begin(t, err);
    if (rc < 0)
        return rc;
    t->open = true;
    t->of = NULL;
    t->room = NULL;
    if (t->consumer)
        bus_consumer_begin(t->consumer);
    t->poison = TXN_OK;
    t->commit_tried = false;
    t->sends = 0;
    t->timed_out = false;
    pst_err_clear(&t->why);
    t->begun_us = pst_mono_us();
    t->epoch = epoch;
    t->outages = t->p->health.outages;
    t->p->link.lib->producer->ends_sent(t->p->link.h);
    t->p->done_offset = -1;
    t->p->failed_code = 0;
    pst_err_clear(&t->p->failed);
    return 0;
}

/* Known already? The last one, nearly always. */
static bool expected(pst_txn *t, const char *topic)
{
    for (size_t i = 0; i < t->n_topics; i++) {
        size_t at = (t->last_topic + i) % t->n_topics;
        if (!strcmp(t->topics[at], topic)) {
            t->last_topic = at;
            return true;
        }
    }
    return false;
}

void pst_txn_expect(pst_txn *t, const char *topic)
{
    if (!topic || t->n_topics == TOPICS_MAX || expected(t, topic))
        return;
    t->topics = pst_realloc(t->topics, (t->n_topics + 1) * sizeof *t->topics);
    t->topics[t->n_topics++] = pst_strdup(topic);
    if (t->p)
        pst_producer_expect(t->p, topic);
}

/* The topic may have more partitions than this producer has heard of: asks, and gives it the time to take the answer in. */
static bool has_grown(pst_txn *t, const pst_out *out)
{
    int n = 0;
    pst_err ignored = {0};
    bool outdated = out->partition >= 0 && bus_partitions(t->p->link, &t->p->health, out->topic, TXN_STEP_MS, &n, &ignored) == 0 &&
                    out->partition < n && pst_mono_us() - t->begun_us < t->timeout_ms * 500LL;
    if (outdated)
        bus_serve(t->p->link, 50);
    return outdated;
}

void pst_txn_of(pst_txn *t, const pst_record *r)
{
    t->of = r;
}

void pst_txn_owes(pst_txn *t, const pst_record *r)
{
    if (t->open && t->consumer)
        bus_consumer_owe(t->consumer, r->topic, r->partition, r->offset);
}

int pst_txn_timeout_ms(const pst_txn *t)
{
    return t->timeout_ms;
}

/* Could its topic take this record? What was learnt of the topic counts as well as the producer's own limit. */
static int check_size(pst_txn *t, const pst_out *out, pst_err *err)
{
    const txn_limit *l = txn_find_limit(t, out->topic);
    size_t max = l && l->strict && l->bytes < t->p->bytes_max ? l->bytes : t->p->bytes_max, bytes = bus_out_bytes(out);
    if (bytes <= max)
        return 0;
    return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "kafka", BUS_ERR_MSG_SIZE_TOO_LARGE,
                       "topic %s: a record of %zu bytes is larger than %s=%zu", out->topic, bytes,
                       max < t->p->bytes_max ? "the topic's max.message.bytes" : "message.max.bytes", max);
}

/* The client does not take a record: that is the record's fault, or the round is lost and its commit says so. */
static int not_taken(pst_txn *t, const pst_out *out, int code, pst_err *err)
{
    if (code == BUS_ERR__UNKNOWN_TOPIC || code == BUS_ERR__UNKNOWN_PARTITION || code == BUS_ERR__INVALID_ARG)
        return bus_err(err, t->conf, code, NULL, "topic %s[%d]: cannot send", out->topic, out->partition);
    char reason[300] = "";
    int why = bus_fatal(t->p->link, reason, sizeof reason);
    t->poison = why ? txn_classify(true, false, false, why) : TXN_ABORT;
    bus_err(&t->why, t->conf, why ? why : code, *reason ? reason : NULL, "transaction %s: send", t->id);
    return 0;
}

/* What is sent for a record is written down as owed before anything else can happen. */
static int send_one(pst_txn *t, const pst_out *out, bool reserved, pst_err *err)
{
    int code, rc = check_size(t, out, err);
    if (rc < 0)
        return rc;
    pst_txn_expect(t, out->topic);
    while ((code = reserved ? bus_produce_reserved(t->p) : bus_produce(t->p, out, 1)) == BUS_ERR__QUEUE_FULL ||
           (code == BUS_ERR__UNKNOWN_PARTITION && has_grown(t, out))) {
        bus_serve(t->p->link, 100);
        txn_stay(t);
        if (txn_given_up(t) || pst_mono_us() - t->begun_us > (t->timeout_ms + GRACE_MS) * 1000LL)
            break;
    }
    bus_serve(t->p->link, 0);
    if (code)
        return not_taken(t, out, code, err);
    t->sends++;
    if (t->of && t->consumer)
        bus_consumer_owe(t->consumer, t->of->topic, t->of->partition, t->of->offset);
    return 0;
}

static int not_open(const pst_txn *t, pst_err *err)
{
    return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "kafka", 0, "transaction %s is not open", t->id);
}

int pst_txn_send(pst_txn *t, const pst_out *out, pst_err *err)
{
    if (!t->open)
        return not_open(t, err);
    t->room = NULL;
    return t->poison ? 0 : send_one(t, out, false, err); /* the round is lost: the commit says so */
}

int pst_txn_reserve(pst_txn *t, const pst_out *head, pst_buf **ret_value, pst_err *err)
{
    if (!t->open)
        return not_open(t, err);
    PST_ASSERT(t->p && t->p->link.h);
    t->reserved = *head;
    t->room = t->p->link.lib->producer->reserve(t->p->link.h, head);
    t->room_at = t->room->len;
    *ret_value = t->room;
    return 0;
}

int pst_txn_send_reserved(pst_txn *t, pst_err *err)
{
    if (!t->open || !t->room)
        return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "kafka", 0, "transaction %s: nothing is reserved", t->id);
    PST_ASSERT(t->room->len >= t->room_at);
    t->reserved.value = t->room->data;
    t->reserved.value_len = t->room->len - t->room_at;
    t->room = NULL;
    return t->poison ? 0 : send_one(t, &t->reserved, true, err);
}

/* The round has not happened: its marks and debts are void, and its records come again. */
static int go_back(pst_txn *t, pst_err *err)
{
    bus_consumer_end(t->consumer);
    return pst_consumer_rewind(t->consumer, err);
}

/* Never after a call that may still be under way inside librdkafka: a late answer to it meets a state machine that has gone on to "aborting", and
 * librdkafka ends the process ("Invalid transaction state transition", 2.0.2). The next producer's init ends the transaction as well. */
static bool may_abort(const pst_txn *t)
{
    return !t->commit_tried && !t->timed_out;
}

/* The round ended without a clear yes. Takes a new producer, finds out, and goes on as if it had been clear. */
static int settle(pst_txn *t, txn_class c, const bus_places *wanted, pst_err *err)
{
    PST_ASSERT(!t->open && t->hung == !t->p);
    txn_sent sent = {.offset = -2};
    pst_err failed = t->why;
    bool excuse = txn_innocent(t), no_right = bus_code(t->why.native, NULL) == PST_EAUTH;
    if (!t->hung) { /* else its producer belongs to the call that did not come back */
        pst_producer *p = t->p;
        bus_serve(p->link, 0); /* deliveries and errors that wait */
        excuse = txn_innocent(t);
        sent.partition = p->done_partition;
        sent.offset = p->done_offset;
        snprintf(sent.topic, sizeof sent.topic, "%s", p->done_topic);
        if (p->failed_code == BUS_ERR_MSG_SIZE_TOO_LARGE)
            txn_learn_limit(t);
        no_right |= bus_code(p->failed_code, NULL) == PST_EAUTH;
        /* A record's own failure says more than the commit's "aborted because of an error", unless it is itself a consequence. */
        if (!failed.code || (p->failed.code && !bus_is_purge(p->failed_code) && !bus_is_outage(p->failed_code)))
            failed = p->failed;
    }
    t->refusals += no_right;
    int rc = txn_renew(t, c == TXN_ABORT && may_abort(t), err);
    txn_fate f = {0};
    if (!rc && !t->commit_tried) /* before the fate: what was forgotten holds the answer back */
        txn_wipe(t, excuse, wanted);
    if (!rc && (t->commit_tried || c == TXN_FENCED))
        rc = txn_find_fate(t, wanted, &sent, t->commit_tried, &f, err);
    if (rc < 0)
        return rc;
    if (t->commit_tried && !f.committed)
        txn_wipe(t, excuse, wanted);
    bool give_up = c == TXN_FENCED && txn_fence_add(&t->fence, pst_mono_us(), excuse, f.moved);
    pst_log(PST_LOG_DEBUG, "bus", "event=txn_settled id=%s class=%s tried=%d committed=%d moved=%d innocent=%d", t->id, txn_class_name(c),
            t->commit_tried, f.committed, f.moved, excuse);
    if (f.committed) {
        t->counts[0]++;
        return 0;
    }
    t->counts[1]++;
    if (give_up)
        return txn_fenced(t, err);
    if (t->refusals >= REFUSALS_IN_A_ROW || c == TXN_REFUSED) {
        if (err && !err->code)
            *err = failed;
        return failed.code ? failed.code : PST_EAUTH;
    }
    rc = t->consumer ? go_back(t, err) : 0;
    if (rc < 0)
        return rc;
    return pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "kafka", failed.native, "aborted, will be done again: %.400s", failed.text);
}

/* ---- commit ------------------------------------------------------------------------------------------------------------------------ */

/* Repeats one resumable call while the broker is away. No answer in time: its fate is looked up. */
static txn_class persist(pst_txn *t, txn_class c)
{
    if (!t->hung)
        bus_serve(t->p->link, 0);
    if (c != TXN_RETRY)
        return c;
    if (txn_given_up(t) || pst_mono_us() - t->begun_us > (t->timeout_ms + GRACE_MS) * 1000LL)
        return TXN_RECYCLE;
    txn_waits(t, &t->why);
    txn_stay(t);
    pst_sleep_ms(20);
    return TXN_RETRY;
}

/* A client is ahead of what it has told: it may have been thrown out (it was frozen, say) and have no id, and the coordinator takes offsets from
 * nobody for those of a consumer without a group; or it may have joined a new generation because a topic grew, and the coordinator would take the
 * offsets for that one's. In both cases it would commit what the partitions' new owner has scored as well, so the membership that goes with the
 * offsets is the one in which the partitions were given, or none. A retry has to pass the very same list and membership. */
static txn_class send_offsets(pst_txn *t, const bus_places *offsets)
{
    bus_link l = bus_consumer_link(t->consumer);
    bus_group *group = l.lib->consumer->group(l.h);
    if (!group)
        return TXN_RECYCLE;
    if (!l.lib->consumer->gave(l.h, group)) {
        l.lib->consumer->group_free(group);
        pst_err_set(&t->why, PST_EFENCED, PST_CLASS_RETRY, "kafka", BUS_ERR_UNKNOWN_MEMBER_ID,
                    "transaction %s: the group has gone on without this member during the round", t->id);
        return TXN_ABORT;
    }
    bus_places *copy = bus_places_copy(offsets);
    txn_class c;
    do
        c = persist(t,
                    txn_guarded(t, (txn_call){.kind = CALL_OFFSETS, .timeout_ms = TXN_STEP_MS, .offsets = copy, .group = group}, &t->why));
    while (c == TXN_RETRY);
    if (!t->hung) {
        l.lib->consumer->group_free(group);
        bus_places_free(copy);
    }
    return c;
}

static int commit_exactly_once(pst_txn *t, pst_err *err)
{
    bus_places *offsets = NULL;
    txn_class c = t->poison;
    if (t->consumer && bus_consumer_in_group(t->consumer)) {
        offsets = bus_consumer_marked(t->consumer);
        if (!c && t->epoch != bus_consumer_epoch(t->consumer)) {
            /* What was sent rests on records that are somebody else's now. */
            c = TXN_ABORT;
            pst_err_set(&t->why, PST_EFENCED, PST_CLASS_RETRY, "kafka", 0, "transaction %s: partitions were taken away during the round",
                        t->id);
        }
    }
    if (!c && offsets)
        c = send_offsets(t, offsets);
    /* A transaction that had failed by itself before its offsets came (a topic refused us) tells the reason to commit alone, which cannot
     * succeed any more; its fate is looked up all the same. */
    if (!c || (c == TXN_ABORT && t->why.native == BUS_ERR__STATE)) {
        t->commit_tried = true;
        do
            c = persist(t, txn_guarded(t, (txn_call){.kind = CALL_COMMIT, .timeout_ms = TXN_STEP_MS}, &t->why));
        while (c == TXN_RETRY);
    }
    int rc = 0;
    if (c == TXN_OK) {
        t->counts[0]++;
        if (t->p->link.lib->producer->ends_sent(t->p->link.h) > 1)
            t->ready = false; /* committed, but a second EndTxn may still be on its way: a new epoch before the next round */
    } else {
        rc = settle(t, c, offsets, err);
    }
    if (!rc) {
        t->refusals = 0;
        if (t->consumer)
            bus_consumer_committed(t->consumer, offsets);
    }
    if (offsets)
        bus_places_free(offsets);
    return rc;
}

static int again(pst_txn *t, const pst_err *why, pst_err *err)
{
    t->counts[1]++;
    int rc = t->consumer ? go_back(t, err) : 0;
    return rc < 0 ? rc : pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "kafka", why->native, "will be done again: %.400s", why->text);
}

/* Records first, offsets behind them: whatever ends it in between makes records come again, none is lost. */
static int commit_at_least_once(pst_txn *t, pst_err *err)
{
    pst_err e = {0};
    int rc = 0;
    if (t->poison)
        rc = t->why.code;
    else {
        while ((rc = pst_producer_flush(t->p, 1000, &e)) == PST_ETIMEDOUT && t->p->pending && !txn_given_up(t)) {
            txn_waits(t, &e);
            pst_err_clear(&e);
            txn_stay(t);
        }
        if (rc == PST_ETIMEDOUT && t->p->pending)
            return txn_stopped(t, err);
    }
    if (rc < 0) {
        const pst_err *why = t->poison ? &t->why : &e;
        if (t->p->failed_code == BUS_ERR_MSG_SIZE_TOO_LARGE)
            txn_learn_limit(t);
        if (bus_fatal(t->p->link, NULL, 0) || t->p->failed_code == BUS_ERR_MSG_SIZE_TOO_LARGE) {
            t->counts[2]++;
            if (txn_make_producer(t, err) < 0)
                return PST_EINVAL;
        }
        if (why->code == PST_EAUTH && ++t->refusals >= REFUSALS_IN_A_ROW) {
            if (err && !err->code)
                *err = *why;
            return why->code;
        }
        return again(t, why, err);
    }
    while (t->consumer && bus_consumer_in_group(t->consumer)) {
        pst_err_clear(&e);
        rc = pst_consumer_commit_marked(t->consumer, &e);
        if (rc == 0)
            break;
        if (rc == PST_EFENCED)
            return again(t, &e, err);
        if (e.cls != PST_CLASS_RETRY || txn_given_up(t)) {
            if (err && !err->code)
                *err = e;
            return e.cls == PST_CLASS_RETRY ? PST_ESTOPPED : rc;
        }
        txn_waits(t, &e);
        txn_stay(t);
        pst_sleep_ms(50);
    }
    t->refusals = 0;
    t->counts[0]++;
    return 0;
}

/* A round that neither happened nor was taken back leaves the consumer beyond what is committed. */
static int ended(pst_txn *t, int rc, pst_err *err)
{
    txn_waits_over(t);
    if (!t->consumer)
        return rc;
    pst_err why = {0};
    if (rc < 0 && rc != PST_EAGAIN) {
        pst_err_set(&why, rc, PST_CLASS_FATAL, "kafka", err ? err->native : 0, "a round came to no end: %.300s", err ? err->text : "");
        bus_consumer_astray(t->consumer, &why, NULL);
    }
    bus_consumer_end(t->consumer);
    return rc;
}

int pst_txn_commit(pst_txn *t, pst_err *err)
{
    if (!t->open)
        return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "kafka", 0, "transaction %s is not open", t->id);
    t->open = false;
    pst_err why = {0};
    if (t->consumer && !t->poison && bus_consumer_in_group(t->consumer) && bus_consumer_covered(t->consumer, &why) < 0) {
        pst_log_limited(PST_LOG_WARN, "bus", "round_refused", "event=round_refused id=%s why=\"%s\"", t->id, why.text);
        t->poison = TXN_ABORT;
        t->why = why;
    }
    int rc = t->mode == PST_TXN_EXACTLY_ONCE ? commit_exactly_once(t, err) : commit_at_least_once(t, err);
    return ended(t, rc, err);
}

int pst_txn_abort(pst_txn *t, pst_err *err)
{
    if (!t->open)
        return 0;
    t->open = false;
    t->counts[1]++;
    /* In plain mode what was sent stays sent; only what still waits can be dropped. */
    if (t->mode == PST_TXN_AT_LEAST_ONCE) {
        t->p->link.lib->producer->drop(t->p->link.h, false);
        pst_producer_flush(t->p, 0, NULL);
    } else {
        bool outage = txn_innocent(t);
        int rc = txn_renew(t, !t->poison && may_abort(t), err);
        if (rc < 0)
            return ended(t, rc, err);
        txn_wipe(t, outage, NULL);
    }
    return t->consumer ? ended(t, go_back(t, err), err) : 0;
}
