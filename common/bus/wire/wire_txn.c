/* wire_txn.c - transactions: the calls that the shared part makes (bus_txn_call.c), on a thread that may be left behind.
 *
 *     NONE ──init──▶ READY ──begin──▶ OPEN ──offsets, commit or abort──▶ READY
 *
 * Each call turns the net until what it wants has come, or its time is over: then it says so as something that may be called again, and goes on where it
 * stood. What the brokers do with a lost request is found out by asking again; an end that was perhaps asked for twice is counted (ends_sent), since in
 * the older protocol the second may hit the next transaction. In KIP-890's each has an epoch of its own, and it cannot.
 *
 * A commit asks for the end only when every record is acknowledged. An abort drops what waits, awaits what is under way, so that nothing is written behind
 * the end, and takes a new epoch where something was sent whose fate nobody knows. */
#include "common/bus/wire/wire_producer.h"
#include "common/base/clock.h"
#include "common/base/stop.h"

#include <stdio.h>

#define ABORTABLE         120 /* TRANSACTION_ABORTABLE, KIP-890 */
#define STALE_MEMBER      113 /* KIP-848 */
#define UNKNOWN_SUBSCRIBE 111
#define NOT_ATTEMPTED     55
#define THROTTLED         89

wire_severity wire_txn_severity(int code)
{
    switch (code) {
    case BUS_ERR__TRANSPORT:
    case BUS_ERR__TIMED_OUT:
    case BUS_ERR__TIMED_OUT_QUEUE:
    case BUS_ERR__RESOLVE:
    case BUS_ERR__ALL_BROKERS_DOWN:
    case BUS_ERR__WAIT_COORD:
    case BUS_ERR_UNKNOWN_TOPIC_OR_PART:
    case BUS_ERR_LEADER_NOT_AVAILABLE:
    case BUS_ERR_NOT_LEADER_FOR_PARTITION:
    case BUS_ERR_REQUEST_TIMED_OUT:
    case BUS_ERR_BROKER_NOT_AVAILABLE:
    case BUS_ERR_NETWORK_EXCEPTION:
    case BUS_ERR_COORDINATOR_LOAD_IN_PROGRESS:
    case BUS_ERR_COORDINATOR_NOT_AVAILABLE:
    case BUS_ERR_NOT_COORDINATOR:
    case BUS_ERR_NOT_ENOUGH_REPLICAS:
    case BUS_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
    case BUS_ERR_CONCURRENT_TRANSACTIONS:
    case BUS_ERR_KAFKA_STORAGE_ERROR:
    case BUS_ERR_UNSTABLE_OFFSET_COMMIT:
    case THROTTLED: return WIRE_PASSING;
    case BUS_ERR_TOPIC_AUTHORIZATION_FAILED:
    case BUS_ERR_GROUP_AUTHORIZATION_FAILED:
    case BUS_ERR_ILLEGAL_GENERATION:
    case BUS_ERR_UNKNOWN_MEMBER_ID:
    case BUS_ERR_REBALANCE_IN_PROGRESS:
    case BUS_ERR_FENCED_INSTANCE_ID:
    case BUS_ERR_INVALID_GROUP_ID:
    case BUS_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER:
    case BUS_ERR_UNKNOWN_PRODUCER_ID:
    case NOT_ATTEMPTED:
    case STALE_MEMBER:
    case UNKNOWN_SUBSCRIBE:
    case ABORTABLE: return WIRE_ABORT;
    default: return WIRE_FATAL; /* another producer takes over, and what became of the round is looked up */
    }
}

static const char *text_of(int code, const char *text)
{
    return text && *text ? text : pst_wire_client.common->code_text(code);
}

void wire_txn_fail(wire_producer *p, int code, const char *what)
{
    wire_txn *t = &p->txn;
    if (!t->error.code) {
        t->error = (bus_said){.code = code, .abortable = true};
        snprintf(t->error.text, sizeof t->error.text, "%.180s: %.100s", what, text_of(code, NULL));
    }
}

/* ---- what every call looks at ----------------------------------------------------------------------------------------------------- */

static void say(bus_said *ret, int code, bool fatal, bool retriable, const char *text)
{
    *ret = (bus_said){.code = code, .fatal = fatal, .retriable = retriable};
    snprintf(ret->text, sizeof ret->text, "%s", text_of(code, text));
}

static bool is_lost(const wire_producer *p, bus_said *ret)
{
    if (p->fatal_code)
        say(ret, p->fatal_code, true, false, p->fatal_text);
    else if (p->txn.error.code)
        *ret = p->txn.error;
    return ret->code != 0;
}

static bool is_wrong_time(const wire_producer *p, wire_txn_state state, bus_said *ret)
{
    if (p->txn.state == state)
        return false;
    say(ret, BUS_ERR__STATE, false, false,
        state == WIRE_TXN_OPEN ? "no transaction is open" : "the transactional id is not initialised, or a transaction is open");
    return true;
}

/* Time is over, or told to stop by force. What happens goes on when the same is called again. */
static bool is_late(int64_t until, const char *what, bus_said *ret)
{
    if (pst_mono_us() < until && !pst_stop_forced())
        return false;
    say(ret, BUS_ERR__TIMED_OUT, false, true, what);
    return true;
}

static void turn_until(wire_producer *p, int64_t until)
{
    int64_t left = (until - pst_mono_us()) / 1000;
    wire_producer_turn(p, left > 100 ? 100 : left > 1 ? (int)left : 1);
}

static int64_t until_of(int timeout_ms)
{
    return pst_mono_us() + (timeout_ms > 0 ? timeout_ms : 1) * 1000LL;
}

/* ---- the calls ------------------------------------------------------------------------------------------------------------------------ */

void wire_txn_init(bus_handle *h, int timeout_ms, bus_said *ret)
{
    wire_producer *p = wire_producer_of(h);
    int64_t until = until_of(timeout_ms);
    *ret = (bus_said){0};
    if (!wire_is_txn(p) || p->txn.state != WIRE_TXN_NONE) {
        is_wrong_time(p, WIRE_TXN_NONE, ret);
        return;
    }
    p->wants_id = !p->has_id;
    while (!p->has_id && !is_lost(p, ret)) {
        if (is_late(until, p->id_code ? NULL : "the transaction's coordinator has not answered yet", ret))
            return;
        turn_until(p, until);
    }
    if (p->has_id && !ret->code)
        p->txn.state = WIRE_TXN_READY;
}

void wire_txn_begin(bus_handle *h, bus_said *ret)
{
    wire_producer *p = wire_producer_of(h);
    wire_txn *t = &p->txn;
    *ret = (bus_said){0};
    if (is_lost(p, ret) || is_wrong_time(p, WIRE_TXN_READY, ret))
        return;
    int level = wire_net_feature(p->handle.net, "transaction.version");
    t->by_produce = level >= 0 ? level >= 2 : t->by_produce;
    t->state = WIRE_TXN_OPEN;
    t->nth++;
    t->touched = t->aborting = false;
    t->grouping = t->offsetting = t->ending = WIRE_STEP_IDLE;
}

void wire_txn_offsets(bus_handle *h, const bus_places *list, const bus_group *g, int timeout_ms, bus_said *ret)
{
    wire_producer *p = wire_producer_of(h);
    wire_txn *t = &p->txn;
    int64_t until = until_of(timeout_ms);
    *ret = (bus_said){0};
    if (is_lost(p, ret) || is_wrong_time(p, WIRE_TXN_OPEN, ret) || !list->n)
        return;
    t->list = list;
    t->group = g;
    while (t->offsetting != WIRE_STEP_DONE && !is_lost(p, ret) &&
           !is_late(until, "the group's coordinator has not taken the offsets yet", ret))
        turn_until(p, until);
    /* What the request is written from goes with the call: one that was not written yet is forgotten. */
    bool asks = t->offsetting == WIRE_STEP_ASKED || t->grouping == WIRE_STEP_ASKED;
    if (asks && t->call && !t->put) {
        wire_txn_forget(p);
        t->offsetting = WIRE_STEP_IDLE;
        t->grouping = t->grouping == WIRE_STEP_ASKED ? WIRE_STEP_IDLE : t->grouping;
    }
    t->list = NULL;
    t->group = NULL;
    if (t->offsetting == WIRE_STEP_DONE)
        t->offsetting = WIRE_STEP_IDLE;
}

static void over(wire_producer *p)
{
    wire_txn *t = &p->txn;
    t->state = WIRE_TXN_READY;
    t->touched = t->aborting = false;
    t->ending = WIRE_STEP_IDLE;
    t->error = (bus_said){0};
    p->flushing = false;
}

/* An end that did not go out is not on its way while nobody waits for it: it is asked for again. */
static void take_back(wire_producer *p)
{
    wire_txn *t = &p->txn;
    if (t->ending != WIRE_STEP_ASKED || !t->call || t->put)
        return;
    wire_txn_forget(p);
    t->ending = WIRE_STEP_IDLE;
}

void wire_txn_commit(bus_handle *h, int timeout_ms, bus_said *ret)
{
    wire_producer *p = wire_producer_of(h);
    wire_txn *t = &p->txn;
    int64_t until = until_of(timeout_ms);
    *ret = (bus_said){0};
    if (is_lost(p, ret) || is_wrong_time(p, WIRE_TXN_OPEN, ret))
        return;
    wire_queue_unreserve(p);
    p->flushing = true;
    t->commit = true;
    while (t->ending != WIRE_STEP_DONE && !is_lost(p, ret)) { /* a round that is lost must not be asked to be committed, either */
        bool sent = !p->records && !p->requests && !t->call;
        if (sent && !t->touched) {
            t->ending = WIRE_STEP_DONE; /* nobody knows of it */
            break;
        }
        if (sent)
            wire_txn_ask_end(p, pst_mono_us());
        if (is_late(until, p->records ? "records are not acknowledged yet" : "the coordinator has not answered the commit yet", ret))
            break;
        turn_until(p, until);
    }
    take_back(p);
    if (t->ending == WIRE_STEP_DONE) {
        t->dirty = false; /* all is acknowledged */
        over(p);
    }
    p->flushing = false;
}

/* The epoch of the transaction is used up: in the older protocol another must be asked for, or numbers that went astray would be missed. */
static bool needs_epoch(const wire_producer *p)
{
    return p->txn.dirty || p->drain;
}

/* One step of an abort; true: it is over. */
static bool abort_step(wire_producer *p)
{
    wire_txn *t = &p->txn;
    if (wire_produce_under_way(p) || t->call)
        return false;
    wire_queue_drop(p, false); /* what came back meanwhile, too */
    if (t->ending == WIRE_STEP_IDLE && t->touched) {
        wire_txn_ask_end(p, pst_mono_us());
        return false;
    }
    t->touched = false; /* ended, as far as the coordinator is concerned */
    if (needs_epoch(p)) {
        p->has_id = false;
        p->wants_id = true;
        return false;
    }
    return p->has_id;
}

void wire_txn_abort(bus_handle *h, int timeout_ms, bus_said *ret)
{
    wire_producer *p = wire_producer_of(h);
    wire_txn *t = &p->txn;
    int64_t until = until_of(timeout_ms);
    *ret = (bus_said){0};
    t->error = (bus_said){0};
    if (is_lost(p, ret) || is_wrong_time(p, WIRE_TXN_OPEN, ret))
        return;
    t->aborting = true;
    t->commit = false;
    wire_queue_drop(p, false);
    while (!abort_step(p)) {
        t->error = t->error.fatal ? t->error : (bus_said){0}; /* of what is aborted */
        if (is_lost(p, ret) || is_late(until, "the coordinator has not answered the abort yet", ret)) {
            take_back(p);
            return;
        }
        turn_until(p, until);
    }
    over(p);
}

/* In KIP-890's protocol a repeated end is harmless: no new epoch is wanted for it. */
int wire_txn_ends_sent(bus_handle *h)
{
    wire_producer *p = wire_producer_of(h);
    int n = p->txn.ends_sent;
    p->txn.ends_sent = 0;
    return p->txn.by_produce && n > 1 ? 1 : n;
}

void wire_txn_tick(wire_producer *p, int64_t now)
{
    wire_txn *t = &p->txn;
    if (t->state != WIRE_TXN_OPEN || t->error.code || p->fatal_code || t->aborting)
        return;
    if (!t->by_produce)
        wire_txn_ask_join(p, now);
    if (t->list && t->offsetting == WIRE_STEP_IDLE)
        wire_txn_ask_offsets(p, now);
}
