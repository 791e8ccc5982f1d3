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
 * producer epoch (reliability.md 1.6). A new producer means a new epoch, which the stale request cannot touch. It costs one round trip. */
#include "common/bus/bus_internal.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRANSACTION_TIMEOUT_MS 60000
#define STEP_MS                5000 /* one try of send_offsets or commit */
#define INIT_STEP_MS           2000
#define GRACE_MS               30000 /* beyond the transaction's own time-out, then its fate is looked up */
#define STOPPING_MS            10000 /* how long an outage is waited for once told to stop */
#define RECYCLES_IN_A_ROW      10
#define REFUSALS_IN_A_ROW      3
#define LINGER_MS              5 /* a commit flushes anyway */

typedef struct limit { /* a topic that refused a batch as too large */
    char *topic;
    size_t bytes;
    bool strict; /* it also refused batches cut to that size: single records above it are refused here */
} limit;

struct pst_txn {
    pst_bus_conf *conf;
    char *id;
    pst_txn_mode mode;
    pst_consumer *consumer; /* borrowed, may be NULL */
    pst_producer *p;
    bool ready; /* the producer may begin */
    bool open;
    txn_class poison; /* TXN_OK, or why the open round is lost already */
    pst_err why;      /* its story */
    uint64_t epoch;
    int64_t begun_us, stopping_us;
    uint64_t outages; /* of the producer's health at begin */
    bool timed_out;   /* a call of this round was not answered in time */
    int timeout_ms;
    int refusals;
    txn_fence fence;
    limit *limits;
    size_t n_limits;
    uint64_t counts[3];
};

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
    t->timeout_ms = (int)bus_conf_number(conf, "transaction.timeout.ms", TRANSACTION_TIMEOUT_MS);
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
    if (t->open && t->mode == PST_TXN_EXACTLY_ONCE && t->p && t->p->rk && !pst_stop_hurry()) {
        /* Left open it would hold back every read_committed reader until the broker times it out. */
        rd_kafka_purge(t->p->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
        rd_kafka_error_destroy(rd_kafka_abort_transaction(t->p->rk, 2000));
    }
    pst_producer_free(t->p);
    for (size_t i = 0; i < t->n_limits; i++)
        free(t->limits[i].topic);
    free(t->limits);
    free(t->id);
    pst_bus_conf_free(t->conf);
    free(t);
}

/* ---- small steps ------------------------------------------------------------------------------------------------------------- */

/* Class of e, which is destroyed; its story goes to why (replacing an older one). */
static txn_class take_error(pst_txn *t, rd_kafka_error_t *e, const char *what, pst_err *why)
{
    if (!e)
        return TXN_OK;
    int code = rd_kafka_error_code(e);
    char reason[300];
    snprintf(reason, sizeof reason, "%s", rd_kafka_error_string(e));
    bool fatal = rd_kafka_error_is_fatal(e);
    txn_class c = txn_classify(fatal, rd_kafka_error_txn_requires_abort(e), rd_kafka_error_is_retriable(e), code);
    rd_kafka_error_destroy(e);
    if (code == RD_KAFKA_RESP_ERR__FATAL) {
        code = rd_kafka_fatal_error(t->p->rk, reason, sizeof reason);
        c = txn_classify(true, false, false, code);
    }
    if (bus_is_outage(code))
        t->timed_out = true;
    pst_err_clear(why);
    bus_err(why, t->conf, code, reason, "transaction %s: %s", t->id, what);
    pst_log(PST_LOG_DEBUG, "bus", "event=txn_error id=%s step=\"%s\" code=%s class=%s text=\"%s\"", t->id, what, rd_kafka_err2name(code),
            txn_class_name(c), reason);
    return c;
}

/* Told to stop: an outage is waited for a little longer, then no more. */
static bool given_up(pst_txn *t)
{
    if (!pst_stop_requested())
        return false;
    if (!t->stopping_us)
        t->stopping_us = pst_mono_us();
    return pst_stop_hurry() || pst_mono_us() - t->stopping_us > STOPPING_MS * 1000LL;
}

static int stopped(const pst_txn *t, pst_err *err)
{
    return pst_err_set(err, PST_ESTOPPED, PST_CLASS_RETRY, "kafka", 0, "transaction %s: told to stop while the broker is away", t->id);
}

static bool innocent(const pst_txn *t)
{
    return t->timed_out || (t->p && t->p->health.outages != t->outages) ||
           (t->begun_us && pst_mono_us() - t->begun_us > t->timeout_ms * 900LL); /* 90 % of its time-out */
}

static int fenced(pst_txn *t, pst_err *err)
{
    return pst_err_set(err, PST_EFENCED, PST_CLASS_FATAL, "kafka", RD_KAFKA_RESP_ERR__FENCED,
                       "transaction %s: another instance with this id keeps taking over; one of the two has to stop", t->id);
}

static int make_producer(pst_txn *t, pst_err *err)
{
    if (t->p) {
        bus_producer_close(t->p);
        return bus_producer_open(t->p, err);
    }
    pst_producer_opts opts = {.linger_ms = LINGER_MS, .transaction_timeout_ms = t->timeout_ms};
    if (t->mode == PST_TXN_EXACTLY_ONCE)
        opts.transactional_id = t->id;
    return pst_producer_new(t->conf, &opts, &t->p, err);
}

/* A new producer with the same id. Its init makes the coordinator end the predecessor's transaction: one still open is aborted, one whose
 * commit was decided is completed first. Waits through outages. */
static int renew(pst_txn *t, bool abort_first, pst_err *err)
{
    t->ready = false;
    if (abort_first) { /* not needed, but quicker: a coordinator that has to abort during init answers half a second later */
        rd_kafka_error_t *e = rd_kafka_abort_transaction(t->p->rk, INIT_STEP_MS);
        if (e)
            rd_kafka_error_destroy(e);
    }
    for (int dead = 0; dead < RECYCLES_IN_A_ROW; dead++) {
        t->counts[2] += t->p != NULL;
        int rc = make_producer(t, err);
        if (rc < 0)
            return rc;
        txn_class c;
        pst_err why = {0};
        do {
            c = take_error(t, rd_kafka_init_transactions(t->p->rk, INIT_STEP_MS), "init", &why);
            rd_kafka_poll(t->p->rk, 0);
            if (t->p->health.fatal.code)
                return bus_health_take(&t->p->health, err);
        } while (c == TXN_RETRY && !pst_stop_requested());
        if (c == TXN_OK) {
            t->ready = true;
            bus_health_ok(&t->p->health);
            return 0;
        }
        if (c == TXN_REFUSED) {
            if (err && !err->code)
                *err = why;
            return why.code;
        }
        if (pst_stop_requested())
            return stopped(t, err);
        if (c == TXN_FENCED && txn_fence_add(&t->fence, pst_mono_us(), false, false))
            return fenced(t, err);
        pst_sleep_ms(100 * (dead + 1));
    }
    return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "kafka", 0, "transaction %s: %d producers in a row could not be initialised",
                       t->id, RECYCLES_IN_A_ROW);
}

/* ---- begin and send ------------------------------------------------------------------------------------------------------------ */

int pst_txn_begin(pst_txn *t, pst_err *err)
{
    if (t->open)
        return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "kafka", 0, "transaction %s is open already", t->id);
    int rc;
    if (t->mode == PST_TXN_AT_LEAST_ONCE) {
        rc = t->p ? 0 : make_producer(t, err);
        if (rc < 0)
            return rc;
    }
    while (t->mode == PST_TXN_EXACTLY_ONCE) {
        if (!t->ready && (rc = renew(t, false, err)) < 0)
            return rc;
        txn_class c = take_error(t, rd_kafka_begin_transaction(t->p->rk), "begin", &t->why);
        if (c == TXN_OK)
            break;
        t->ready = false;
        if (c == TXN_REFUSED) {
            if (err && !err->code)
                *err = t->why;
            return t->why.code;
        }
        t->begun_us = 0;
        if (c == TXN_FENCED && txn_fence_add(&t->fence, pst_mono_us(), innocent(t), false))
            return fenced(t, err);
        if (pst_stop_requested())
            return stopped(t, err);
    }
    t->open = true;
    t->poison = TXN_OK;
    t->timed_out = false;
    pst_err_clear(&t->why);
    t->begun_us = pst_mono_us();
    t->epoch = t->consumer ? bus_consumer_epoch(t->consumer) : 0;
    t->outages = t->p->health.outages;
    __atomic_store_n(t->p->end_requests, 0, __ATOMIC_RELAXED);
    t->p->done_offset = -1;
    t->p->failed_code = 0;
    pst_err_clear(&t->p->failed);
    return 0;
}

static limit *find_limit(pst_txn *t, const char *topic)
{
    for (size_t i = 0; i < t->n_limits; i++) {
        if (!strcmp(t->limits[i].topic, topic))
            return &t->limits[i];
    }
    return NULL;
}

int pst_txn_send(pst_txn *t, const pst_out *out, pst_err *err)
{
    if (!t->open)
        return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "kafka", 0, "transaction %s is not open", t->id);
    if (t->poison)
        return 0; /* the round is lost: the commit says so */
    const limit *l = find_limit(t, out->topic);
    size_t max = l && l->strict && l->bytes < t->p->bytes_max ? l->bytes : t->p->bytes_max, bytes = bus_out_bytes(out);
    if (bytes > max)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "kafka", RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
                           "topic %s: a record of %zu bytes is larger than %s=%zu", out->topic, bytes,
                           max < t->p->bytes_max ? "the topic's max.message.bytes" : "message.max.bytes", max);
    rd_kafka_resp_err_t code;
    while ((code = bus_produce(t->p, out)) == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
        rd_kafka_poll(t->p->rk, 100);
        if (given_up(t) || pst_mono_us() - t->begun_us > (t->timeout_ms + GRACE_MS) * 1000LL)
            break;
    }
    rd_kafka_poll(t->p->rk, 0);
    if (!code)
        return 0;
    if (code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC || code == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION || code == RD_KAFKA_RESP_ERR__INVALID_ARG)
        return bus_err(err, t->conf, code, NULL, "topic %s[%d]: cannot send", out->topic, out->partition);
    char reason[300] = "";
    rd_kafka_resp_err_t why = rd_kafka_fatal_error(t->p->rk, reason, sizeof reason);
    t->poison = why ? txn_classify(true, false, false, why) : TXN_ABORT;
    bus_err(&t->why, t->conf, why ? why : code, *reason ? reason : NULL, "transaction %s: send", t->id);
    return 0;
}

/* ---- the fate of a transaction that gave no clear answer ------------------------------------------------------------------------- */

/* Is the record that was acknowledged in the round visible to a read_committed reader? 1, 0, or < 0 if that cannot be found out. */
static int probe(pst_txn *t)
{
    const pst_producer *p = t->p;
    char topic[sizeof p->done_topic];
    snprintf(topic, sizeof topic, "%s", p->done_topic);
    pst_range range = {.topic = topic, .partition = p->done_partition, .from = p->done_offset, .to = p->done_offset + 1};
    pst_consumer *c = NULL;
    pst_err err = {0};
    int rc = pst_consumer_new(t->conf, &(pst_consumer_opts){.ranges = &range, .n_ranges = 1, .report_eof = true}, &c, &err);
    int visible = rc < 0 ? rc : -1;
    int64_t until = pst_mono_us() + 30000000;
    while (rc == 0 && pst_mono_us() < until && !given_up(t)) {
        pst_batch b;
        pst_err_clear(&err);
        rc = pst_consumer_poll(c, &(pst_poll){.records_max = 1, .timeout_ms = 500}, &b, &err);
        if (rc == 0 && (b.n || b.eof)) {
            visible = b.n > 0;
            break;
        }
    }
    pst_consumer_free(c);
    return visible;
}

typedef struct fate {
    bool committed;
    bool moved; /* somebody else committed offsets of our partitions */
} fate;

/* Asks the group coordinator: are the offsets of this round there? Only valid after renew(): the transaction has ended by then. */
static int look_at_offsets(pst_txn *t, const rd_kafka_topic_partition_list_t *wanted, fate *ret, bool *ret_telling, pst_err *err)
{
    rd_kafka_topic_partition_list_t *now = rd_kafka_topic_partition_list_copy(wanted);
    rd_kafka_resp_err_t code;
    int rc = 0;
    for (;;) {
        code = rd_kafka_committed(bus_consumer_native(t->consumer), now, INIT_STEP_MS);
        for (int i = 0; !code && i < now->cnt; i++)
            code = now->elems[i].err;
        pst_err_class cls;
        if (!code || (bus_code(code, &cls) && cls == PST_CLASS_FATAL) || pst_stop_requested())
            break;
        pst_sleep_ms(100);
    }
    if (code) {
        rc = pst_stop_requested() ? stopped(t, err)
                                  : bus_err(err, t->conf, code, NULL, "transaction %s: cannot read committed offsets", t->id);
        goto out;
    }
    ret->committed = true;
    *ret_telling = false;
    size_t n;
    const bus_part *parts = bus_consumer_parts(t->consumer, &n);
    for (int i = 0; i < now->cnt; i++) {
        const rd_kafka_topic_partition_t *tp = &now->elems[i];
        int64_t want = wanted->elems[i].offset, before = -1;
        for (size_t j = 0; j < n; j++) {
            if (parts[j].partition == tp->partition && !strcmp(parts[j].topic, tp->topic))
                before = parts[j].committed >= 0 ? parts[j].committed : parts[j].base;
        }
        ret->committed &= tp->offset == want;
        ret->moved |= tp->offset >= 0 && tp->offset != want && before >= 0 && tp->offset > before;
        *ret_telling |= want != before; /* the same offset as before tells nothing */
    }
out:
    rd_kafka_topic_partition_list_destroy(now);
    return rc;
}

static int find_fate(pst_txn *t, const rd_kafka_topic_partition_list_t *wanted, bool end_sent, fate *ret, pst_err *err)
{
    bool telling = false;
    *ret = (fate){0};
    if (wanted) {
        int rc = look_at_offsets(t, wanted, ret, &telling, err);
        if (rc < 0)
            return rc;
    }
    if (!end_sent)
        ret->committed = false; /* nobody was asked to commit */
    if (!end_sent || telling)
        return 0;
    if (t->p->done_offset < 0) {
        ret->committed = true; /* it changed nothing: either way the same */
        return 0;
    }
    int visible = probe(t);
    if (visible < 0)
        pst_log(PST_LOG_WARN, "bus", "event=txn_fate_unknown id=%s topic=%s why=\"cannot read it back: records may be sent twice\"", t->id,
                t->p->done_topic);
    ret->committed = visible == 1;
    return 0;
}

/* A topic refused a batch: smaller batches from now on, and after a second refusal no larger record. */
static void learn_limit(pst_txn *t)
{
    const char *topic = t->p->failed_topic;
    limit *l = find_limit(t, topic);
    if (l) {
        l->strict = true;
        return;
    }
    int64_t bytes = bus_topic_bytes_max(t->conf, topic, STEP_MS);
    t->limits = pst_realloc(t->limits, (t->n_limits + 1) * sizeof *t->limits);
    l = &t->limits[t->n_limits++];
    *l = (limit){.topic = pst_strdup(topic), .bytes = bytes > 0 ? (size_t)bytes : t->p->bytes_max};
    if (!t->p->batch_bytes || l->bytes < t->p->batch_bytes)
        t->p->batch_bytes = l->bytes;
    pst_log(PST_LOG_DEBUG, "bus", "event=batch_cut topic=%s bytes=%zu", topic, l->bytes);
}

/* The round ended without a clear yes. Takes a new producer, finds out, and goes on as if it had been clear. */
static int settle(pst_txn *t, txn_class c, const rd_kafka_topic_partition_list_t *wanted, pst_err *err)
{
    rd_kafka_poll(t->p->rk, 0); /* deliveries and errors that wait */
    bool end_sent = __atomic_load_n(t->p->end_requests, __ATOMIC_RELAXED) > 0, excuse = innocent(t);
    int native = t->why.native;
    if (t->p->failed_code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
        learn_limit(t);
    bool no_right = bus_code(native, NULL) == PST_EAUTH || bus_code(t->p->failed_code, NULL) == PST_EAUTH;
    if (no_right)
        t->refusals++;
    /* A record's own failure says more than the commit's "aborted because of an error", unless it is itself a consequence. */
    bool record = t->p->failed.code && !bus_is_purge(t->p->failed_code) && !bus_is_outage(t->p->failed_code);
    pst_err failed = record || !t->why.code ? t->p->failed : t->why;
    int rc = renew(t, c == TXN_ABORT, err);
    fate f = {0};
    if (!rc && (end_sent || c == TXN_FENCED))
        rc = find_fate(t, wanted, end_sent, &f, err);
    if (rc < 0)
        return rc;
    bool give_up = c == TXN_FENCED && txn_fence_add(&t->fence, pst_mono_us(), excuse, f.moved);
    pst_log(PST_LOG_DEBUG, "bus", "event=txn_settled id=%s class=%s end_sent=%d committed=%d moved=%d innocent=%d", t->id,
            txn_class_name(c), end_sent, f.committed, f.moved, excuse);
    if (f.committed) {
        t->counts[0]++;
        return 0;
    }
    t->counts[1]++;
    if (give_up)
        return fenced(t, err);
    if (t->refusals >= REFUSALS_IN_A_ROW || c == TXN_REFUSED) {
        if (err && !err->code)
            *err = failed;
        return failed.code ? failed.code : PST_EAUTH;
    }
    if (t->consumer && (rc = pst_consumer_rewind(t->consumer, err)) < 0)
        return rc;
    return pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "kafka", native, "aborted, will be done again: %.400s", failed.text);
}

/* ---- commit ------------------------------------------------------------------------------------------------------------------------ */

/* Repeats one resumable call while the broker is away. No answer in time: its fate is looked up. */
static txn_class persist(pst_txn *t, txn_class c)
{
    rd_kafka_poll(t->p->rk, 0);
    if (c != TXN_RETRY)
        return c;
    if (given_up(t) || pst_mono_us() - t->begun_us > (t->timeout_ms + GRACE_MS) * 1000LL)
        return TXN_RECYCLE;
    pst_sleep_ms(20);
    return TXN_RETRY;
}

static txn_class send_offsets(pst_txn *t, const rd_kafka_topic_partition_list_t *offsets)
{
    /* Fetched now: the generation changes with each rebalance. A retry has to pass the very same list and metadata. */
    rd_kafka_consumer_group_metadata_t *group = rd_kafka_consumer_group_metadata(bus_consumer_native(t->consumer));
    if (!group)
        return TXN_RECYCLE;
    txn_class c;
    do {
        c = persist(t, take_error(t, rd_kafka_send_offsets_to_transaction(t->p->rk, offsets, group, STEP_MS), "send offsets", &t->why));
    } while (c == TXN_RETRY);
    rd_kafka_consumer_group_metadata_destroy(group);
    return c;
}

static int commit_exactly_once(pst_txn *t, pst_err *err)
{
    rd_kafka_topic_partition_list_t *offsets = NULL;
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
    if (!c) {
        do
            c = persist(t, take_error(t, rd_kafka_commit_transaction(t->p->rk, STEP_MS), "commit", &t->why));
        while (c == TXN_RETRY);
    }
    int rc = 0;
    if (c == TXN_OK) {
        t->counts[0]++;
        if (__atomic_load_n(t->p->end_requests, __ATOMIC_RELAXED) > 1)
            t->ready = false; /* committed, but a second EndTxn may still be on its way: a new epoch before the next round */
    } else {
        rc = settle(t, c, offsets, err);
    }
    if (!rc) {
        t->refusals = 0;
        if (t->consumer) {
            bus_consumer_committed(t->consumer, offsets);
            bus_consumer_unmark(t->consumer);
        }
    }
    if (offsets)
        rd_kafka_topic_partition_list_destroy(offsets);
    return rc;
}

static int again(pst_txn *t, const pst_err *why, pst_err *err)
{
    t->counts[1]++;
    int rc = t->consumer ? pst_consumer_rewind(t->consumer, err) : 0;
    return rc < 0 ? rc : pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "kafka", why->native, "will be done again: %.400s", why->text);
}

static int commit_at_least_once(pst_txn *t, pst_err *err)
{
    pst_err e = {0};
    int rc = 0;
    if (t->poison)
        rc = t->why.code;
    else {
        while ((rc = pst_producer_flush(t->p, 1000, &e)) == PST_ETIMEDOUT && t->p->pending && !given_up(t))
            pst_err_clear(&e);
        if (rc == PST_ETIMEDOUT && t->p->pending)
            return stopped(t, err);
    }
    if (rc < 0) {
        const pst_err *why = t->poison ? &t->why : &e;
        if (t->p->failed_code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
            learn_limit(t);
        if (rd_kafka_fatal_error(t->p->rk, NULL, 0) || t->p->failed_code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) {
            t->counts[2]++;
            if (make_producer(t, err) < 0)
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
        if (e.cls != PST_CLASS_RETRY || given_up(t)) {
            if (err && !err->code)
                *err = e;
            return e.cls == PST_CLASS_RETRY ? PST_ESTOPPED : rc;
        }
        pst_sleep_ms(50);
    }
    t->refusals = 0;
    t->counts[0]++;
    return 0;
}

int pst_txn_commit(pst_txn *t, pst_err *err)
{
    if (!t->open)
        return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "kafka", 0, "transaction %s is not open", t->id);
    t->open = false;
    return t->mode == PST_TXN_EXACTLY_ONCE ? commit_exactly_once(t, err) : commit_at_least_once(t, err);
}

int pst_txn_abort(pst_txn *t, pst_err *err)
{
    if (!t->open)
        return 0;
    t->open = false;
    t->counts[1]++;
    /* In plain mode what was sent stays sent; only what still waits can be dropped. */
    if (t->mode == PST_TXN_AT_LEAST_ONCE) {
        rd_kafka_purge(t->p->rk, RD_KAFKA_PURGE_F_QUEUE);
        pst_producer_flush(t->p, 0, NULL);
    } else {
        int rc = renew(t, !t->poison, err);
        if (rc < 0)
            return rc;
    }
    return t->consumer ? pst_consumer_rewind(t->consumer, err) : 0;
}
