/* bus_txn_call.c - calls of a client's transactional API under a watchdog, and producers that replace one another. */
#include "common/bus/bus_txn.h"
#include "common/bus/bus_consumer.h"
#include "common/bus/bus_hand.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STOPPING_MS       10000 /* how long an outage is waited for once told to stop */
#define RECYCLES_IN_A_ROW 10
#define LINGER_MS         5    /* a commit flushes anyway */
#define PATIENCE_MS       3000 /* then it is said that a call is waited for */

/* Its class; the story goes to why (replacing an older one). */
static txn_class take_said(pst_txn *t, const bus_said *said, const char *what, pst_err *why)
{
    if (!said->code)
        return TXN_OK;
    txn_class c = txn_classify(said->fatal, said->abortable, said->retriable, said->code);
    if (bus_is_outage(said->code))
        t->timed_out = true;
    pst_err_clear(why);
    bus_err(why, t->conf, said->code, said->text, "transaction %s: %s", t->id, what);
    pst_log(PST_LOG_DEBUG, "bus", "event=txn_error id=%s step=\"%s\" code=%s class=%s text=\"%s\"", t->id, what, bus_code_name(said->code),
            txn_class_name(c), said->text);
    return c;
}

/* ---- waiting ------------------------------------------------------------------------------------------------------------------------- */

static void say(pst_txn *t, const char *why)
{
    if (t->consumer && bus_consumer_in_group(t->consumer))
        bus_quiet_tell(t->consumer, why);
}

void txn_waits(pst_txn *t, const pst_err *why)
{
    int64_t now = pst_mono_us();
    if (!t->waits_us)
        t->waits_us = now;
    if (now - t->waits_us > PATIENCE_MS * 1000LL)
        say(t, why->code ? why->text : "the transaction's coordinator does not answer");
}

void txn_waits_over(pst_txn *t)
{
    if (t->waits_us && t->consumer)
        bus_quiet_over(t->consumer);
    t->waits_us = 0;
}

/* One call of the transactional API, under a watchdog.
 *
 * These calls take a time-out, yet rd_kafka_send_offsets_to_transaction() waits for its own reply without one: after an outage it was seen to
 * sleep for ever (librdkafka 2.16.0; 2.1.1 has a report of begin_transaction, issue 4420), and one that waits for a broker that is away comes
 * back only after socket.timeout.ms. So they run on another thread; one that is late is left there with its producer, which nobody else
 * touches again, and a new producer takes over: its init ends the old transaction, and what became of that is looked up. Should the call come
 * back after all, its thread throws both away. */
enum { CALL_RUNS, CALL_BACK, CALL_LEFT };

static void run_call(void *arg)
{
    txn_call *c = arg;
    const bus_producer_ops *ops = c->p->link.lib->producer;
    bus_handle *h = c->p->link.h;
    switch (c->kind) {
    case CALL_INIT: ops->init(h, c->timeout_ms, &c->said); break;
    case CALL_BEGIN: ops->begin(h, &c->said); break;
    case CALL_OFFSETS: ops->offsets(h, c->offsets, c->group, c->timeout_ms, &c->said); break;
    case CALL_COMMIT: ops->commit(h, c->timeout_ms, &c->said); break;
    case CALL_ABORT: ops->abort(h, c->timeout_ms, &c->said); break;
    case TXN_CALLS: break;
    }
    if (__atomic_exchange_n(&c->state, CALL_BACK, __ATOMIC_ACQ_REL) != CALL_LEFT)
        return;
    bus_places_free(c->offsets);
    if (c->group)
        c->p->link.lib->consumer->group_free(c->group);
    pst_producer_free(c->p);
    free(c);
}

static const char *const call_names[] = {"init", "begin", "send offsets", "commit", "abort"};

void txn_stay(pst_txn *t)
{
    if (t->consumer)
        bus_consumer_stay(t->consumer);
}

static void stay(void *txn)
{
    txn_stay(txn);
}

static bool await(pst_txn *t, int timeout_ms)
{
    return bus_hand_wait_doing(t->hand, timeout_ms, stay, t);
}

/* True: it has come back within limit_ms. Some do not mind their time-out while the broker is away: long before the limit it is said what is waited for. */
static bool carried_out(pst_txn *t, txn_call *c, int limit_ms)
{
    if (!t->hand)
        t->hand = bus_hand_new();
    if (!t->hand) {
        run_call(c); /* no thread to be had: unbounded rather than not at all */
        return true;
    }
    bus_hand_start(t->hand, run_call, c);
    bool back = await(t, limit_ms < PATIENCE_MS ? limit_ms : PATIENCE_MS);
    if (!back && limit_ms > PATIENCE_MS) {
        char why[300];
        snprintf(why, sizeof why, "transaction %.200s: %s is not answered", t->id, call_names[c->kind]);
        if (!t->waits_us)
            t->waits_us = pst_mono_us() - PATIENCE_MS * 1000LL;
        say(t, why);
        back = await(t, limit_ms - PATIENCE_MS);
    }
    if (!back) {
        bus_hand_free(t->hand);
        t->hand = NULL;
    }
    return back;
}

txn_class txn_guarded(pst_txn *t, txn_call c, pst_err *why)
{
    PST_ASSERT(!t->hung && t->p && t->p->link.h); /* a producer that was left to a call is nobody else's */
    txn_call *heap = pst_alloc(sizeof *heap);
    *heap = c;
    heap->p = t->p;
    heap->state = CALL_RUNS;
    if (carried_out(t, heap, c.timeout_ms + t->hang_ms[c.kind]) ||
        __atomic_exchange_n(&heap->state, CALL_LEFT, __ATOMIC_ACQ_REL) == CALL_BACK) { /* back in the last moment */
        bus_said said = heap->said;
        free(heap);
        return take_said(t, &said, call_names[c.kind], why);
    }
    pst_log(PST_LOG_WARN, "bus", "event=producer_abandoned id=%s why=\"%s of librdkafka did not come back\"", t->id, call_names[c.kind]);
    t->p = NULL;
    t->hung = t->timed_out = true;
    pst_err_clear(why);
    pst_err_set(why, PST_ETIMEDOUT, PST_CLASS_RETRY, "kafka", BUS_ERR__TIMED_OUT, "transaction %s: %s did not come back", t->id,
                call_names[c.kind]);
    return TXN_RECYCLE;
}

/* Told to stop: an outage is waited for a little longer, then no more. */
bool txn_given_up(pst_txn *t)
{
    if (!pst_stop_requested())
        return false;
    if (!t->stopping_us)
        t->stopping_us = pst_mono_us();
    return pst_stop_forced() || pst_mono_us() - t->stopping_us > STOPPING_MS * 1000LL;
}

int txn_stopped(const pst_txn *t, pst_err *err)
{
    return pst_err_set(err, PST_ESTOPPED, PST_CLASS_RETRY, "kafka", 0, "transaction %s: told to stop while the broker is away", t->id);
}

bool txn_innocent(const pst_txn *t)
{
    return t->timed_out || (t->p && t->p->health.outages != t->outages) ||
           (t->begun_us && pst_mono_us() - t->begun_us > t->timeout_ms * 900LL); /* 90 % of its time-out */
}

int txn_fenced(pst_txn *t, pst_err *err)
{
    return pst_err_set(err, PST_EFENCED, PST_CLASS_FATAL, "kafka", BUS_ERR__FENCED,
                       "transaction %s: another instance with this id keeps taking over; one of the two has to stop", t->id);
}

static int open_producer(pst_txn *t, pst_err *err)
{
    t->hung = false;
    if (t->p) {
        bus_producer_close(t->p);
        t->p->batch_bytes = t->batch_bytes;
        return bus_producer_open(t->p, err);
    }
    pst_producer_opts opts = {.linger_ms = LINGER_MS, .transaction_timeout_ms = t->timeout_ms};
    if (t->mode == PST_TXN_EXACTLY_ONCE)
        opts.transactional_id = t->id;
    int rc = pst_producer_new(t->conf, &opts, &t->p, err);
    if (!rc && t->batch_bytes) {
        t->p->batch_bytes = t->batch_bytes;
        bus_producer_close(t->p);
        rc = bus_producer_open(t->p, err);
    }
    return rc;
}

int txn_make_producer(pst_txn *t, pst_err *err)
{
    int rc = open_producer(t, err);
    for (size_t i = 0; !rc && i < t->n_topics; i++)
        pst_producer_expect(t->p, t->topics[i]);
    return rc;
}

/* Init goes on inside librdkafka when its time-out is over, so a moment is enough to set it going; the first begin asks what came of it. */
int txn_take_over(pst_txn *t, pst_err *err)
{
    int rc = txn_make_producer(t, err);
    if (rc < 0)
        return rc;
    t->started = txn_guarded(t, (txn_call){.kind = CALL_INIT, .timeout_ms = 1}, &t->why);
    t->starting = !t->hung;
    return 0;
}

/* A new producer with the same id. Its init makes the coordinator end the predecessor's transaction: one still open is aborted, one whose
 * commit was decided is completed first. Waits through outages. */
int txn_renew(pst_txn *t, bool abort_first, pst_err *err)
{
    t->ready = false;
    pst_err ignored = {0};
    if (abort_first && !t->hung) /* not needed, but quicker: a coordinator that has to abort during init answers half a second later */
        txn_guarded(t, (txn_call){.kind = CALL_ABORT, .timeout_ms = TXN_INIT_STEP_MS}, &ignored);
    for (int dead = 0; dead < RECYCLES_IN_A_ROW; dead++) {
        txn_class c = t->starting ? t->started : TXN_RETRY;
        pst_err why = t->starting ? t->why : (pst_err){0};
        if (!t->starting) {
            t->counts[2] += t->p || t->hung;
            int rc = txn_make_producer(t, err);
            if (rc < 0)
                return rc;
        }
        t->starting = false;
        for (bool first = true; c == TXN_RETRY && (first || !pst_stop_requested()); first = false) {
            c = txn_guarded(t, (txn_call){.kind = CALL_INIT, .timeout_ms = TXN_INIT_STEP_MS}, &why);
            if (t->hung)
                break;
            bus_serve(t->p->link, 0);
            if (c == TXN_RETRY)
                txn_waits(t, &why);
            txn_stay(t);
            if (t->p->health.fatal.code)
                return bus_health_take(&t->p->health, err);
        }
        if (c == TXN_OK) {
            t->ready = true;
            txn_waits_over(t);
            bus_health_ok(&t->p->health);
            return 0;
        }
        if (c == TXN_REFUSED) {
            if (err && !err->code)
                *err = why;
            return why.code;
        }
        if (pst_stop_requested())
            return txn_stopped(t, err);
        if (c == TXN_FENCED && txn_fence_add(&t->fence, pst_mono_us(), false, false))
            return txn_fenced(t, err);
        pst_sleep_ms(100 * (dead + 1));
    }
    return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "kafka", 0, "transaction %s: %d producers in a row could not be initialised",
                       t->id, RECYCLES_IN_A_ROW);
}
