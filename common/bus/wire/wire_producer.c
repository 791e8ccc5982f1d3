/* wire_producer.c - our own producer behind bus_producer_ops: its life, records in, and the turns in which all else happens.
 *
 * Nothing is sent or received but in a turn: of serve(), flush() and the transactional calls, and once a batch is full the next serve(0) is one. A serve(0)
 * with nothing to do costs a look at the clock, since the shared part makes one for each record. Reports are told from within those calls. */
#include "common/bus/wire/wire_producer.h"
#include "common/base/clock.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>

#define TURN_US    500 /* between two turns that nobody waits for */
#define LOOK_MS    100 /* and between two looks at what may be late, while there is anything */
#define ANSWERS_MS 2000
#define ROOM_BYTES 128 /* of a batch: its head, and lengths that are still to come */

/* ---- turns ------------------------------------------------------------------------------------------------------------------------ */

void wire_producer_die(wire_producer *p, int code, const char *text)
{
    if (p->fatal_code)
        return;
    p->fatal_code = code;
    snprintf(p->fatal_text, sizeof p->fatal_text, "%s", text && *text ? text : pst_wire_client.common->code_text(code));
}

/* All that it has not sent is told, so that another client can take it over. */
static void bury(wire_producer *p)
{
    wire_txn_forget(p);
    wire_produce_forget(p);
    if (p->records)
        wire_queue_drop(p, true);
}

void wire_producer_turn(wire_producer *p, int timeout_ms)
{
    int64_t now = pst_mono_us();
    char why[300] = "";
    int code = wire_net_fatal(p->handle.net, why, sizeof why);
    if (code)
        wire_producer_die(p, code, why);
    wire_queue_look(p, now);
    wire_id_tick(p, now);
    wire_txn_tick(p, now);
    wire_produce_tick(p, now);
    int wait = timeout_ms;
    if (wait > LOOK_MS)
        wait = LOOK_MS;
    if (p->wake_us < now + wait * 1000LL)
        wait = p->wake_us <= now ? 0 : (int)((p->wake_us - now + 999) / 1000);
    wire_net_turn(p->handle.net, p->fatal_code ? 0 : wait);
    if (p->fatal_code)
        bury(p);
    p->turned_us = pst_mono_us();
}

static int serve(wire_handle *h, int timeout_ms)
{
    wire_producer *p = (wire_producer *)h;
    int64_t now = pst_mono_us(), until = now + timeout_ms * 1000LL;
    p->told = 0;
    if (timeout_ms <= 0) {
        if (p->ready || now - p->turned_us >= TURN_US)
            wire_producer_turn(p, 0);
        return p->told;
    }
    do {
        wire_producer_turn(p, (int)((until - now + 999) / 1000));
        now = pst_mono_us();
    } while (!p->told && now < until && !p->fatal_code && !pst_stop_forced());
    return p->told;
}

static void flush(bus_handle *b, int timeout_ms)
{
    wire_producer *p = wire_producer_of(b);
    int64_t now = pst_mono_us(), until = now + timeout_ms * 1000LL;
    wire_queue_unreserve(p);
    p->flushing = true;
    while (p->records && now < until && !pst_stop_forced()) {
        wire_producer_turn(p, (int)((until - now + 999) / 1000));
        now = pst_mono_us();
    }
    p->flushing = false;
}

static int fatal(wire_handle *h, char *text, size_t size)
{
    wire_producer *p = (wire_producer *)h;
    if (p->fatal_code && text)
        snprintf(text, size, "%s", p->fatal_text);
    return p->fatal_code;
}

/* ---- life -------------------------------------------------------------------------------------------------------------------------- */

static void free_producer(wire_handle *h)
{
    wire_producer *p = (wire_producer *)h;
    wire_txn_forget(p);
    if (p->id_call)
        wire_call_forget(p->id_call);
    wire_produce_done(p);
    wire_queue_done(p);
    wire_net_free(p->handle.net);
    wire_conf_free(p->conf);
    free(p);
}

static const wire_life producer_life = {.serve = serve, .fatal = fatal, .free = free_producer};

static int configure(const pst_bus_conf *conf, const bus_producer_needs *needs, wire_conf **ret, pst_err *err)
{
    char message_timeout[16], txn_timeout[16], linger[16], batch[24];
    snprintf(message_timeout, sizeof message_timeout, "%d", needs->message_timeout_ms);
    snprintf(txn_timeout, sizeof txn_timeout, "%d", needs->transaction_timeout_ms);
    snprintf(linger, sizeof linger, "%d", needs->linger_ms);
    snprintf(batch, sizeof batch, "%zu", needs->batch_bytes);
    bus_kv defaults[8] = {{"partitioner", "murmur2_random"}, {"compression.type", "lz4"}};
    bus_kv forced[6] = {{"enable.idempotence", "true"}, {"acks", "all"}};
    size_t d = 2, f = 2;
    if (needs->linger_ms >= 0)
        defaults[d++] = (bus_kv){"linger.ms", linger};
    if (needs->impatient)
        defaults[d++] = (bus_kv){"topic.metadata.propagation.max.ms", needs->message_timeout_ms < 4000 ? "1000" : "2000"};
    if (needs->transactional_id) {
        defaults[d++] = (bus_kv){"transaction.timeout.ms", txn_timeout};
        forced[f++] = (bus_kv){"transactional.id", needs->transactional_id};
        forced[f++] = (bus_kv){"message.timeout.ms", NULL}; /* a user's may be longer than the transaction's */
    } else {
        defaults[d++] = (bus_kv){"message.timeout.ms", message_timeout};
        forced[f++] = (bus_kv){"transactional.id", NULL};
    }
    if (needs->batch_bytes)
        forced[f++] = (bus_kv){"batch.size", batch};
    return wire_conf_read(conf, BUS_PROP_PRODUCER, defaults, forced, ret, err);
}

static int producer_open(const pst_bus_conf *conf, const bus_producer_needs *needs, const bus_listener *to, bus_handle **ret, pst_err *err)
{
    wire_producer *p = pst_alloc(sizeof *p);
    int rc = configure(conf, needs, &p->conf, err);
    if (rc == 0)
        rc = wire_pack_open((wire_codec)p->conf->codec, err);
    if (rc == 0)
        rc = wire_net_open(p->conf, to, &p->handle.net, err);
    if (rc < 0) {
        wire_conf_free(p->conf);
        free(p);
        return rc;
    }
    p->handle.life = &producer_life;
    p->handle.to = *to;
    p->id = -1;
    p->epoch = -1;
    p->wants_id = !needs->transactional_id;
    p->chance = (uint64_t)pst_mono_ns() | 1;
    size_t bytes = (size_t)(p->conf->batch_bytes < p->conf->message_max_bytes ? p->conf->batch_bytes : p->conf->message_max_bytes);
    p->batch_bytes = bytes > 2 * ROOM_BYTES ? bytes - ROOM_BYTES : bytes;
    p->delivery_us = (needs->transactional_id ? p->conf->transaction_timeout_ms : p->conf->message_timeout_ms) * 1000LL;
    *ret = (bus_handle *)p;
    return 0;
}

static void drop(bus_handle *b, bool inflight)
{
    wire_producer *p = wire_producer_of(b);
    if (inflight)
        wire_produce_forget(p);
    wire_queue_drop(p, inflight);
}

/* What is under way gets a moment to be answered, so that the broker's log has no request that came behind the end of its transaction. */
static void settle(bus_handle *b)
{
    wire_producer *p = wire_producer_of(b);
    int64_t until = pst_mono_us() + ANSWERS_MS * 1000LL;
    p->txn.aborting = true; /* nothing more goes out */
    wire_queue_drop(p, false);
    while (wire_is_txn(p) && wire_produce_under_way(p) && pst_mono_us() < until && !pst_stop_forced() && !p->fatal_code)
        wire_producer_turn(p, 10);
    drop(b, true);
}

/* ---- records ------------------------------------------------------------------------------------------------------------------------- */

static void expect(bus_handle *b, const char *topic)
{
    wire_queue_topic(wire_producer_of(b), topic);
}

static int may_send(const wire_producer *p)
{
    if (p->fatal_code)
        return BUS_ERR__FATAL;
    if (wire_is_txn(p) && (p->txn.state != WIRE_TXN_OPEN || p->txn.error.code || p->txn.aborting))
        return BUS_ERR__STATE;
    return 0;
}

static int send_all(bus_handle *b, const pst_out *out, size_t n, size_t *ret_sent)
{
    wire_producer *p = wire_producer_of(b);
    size_t i = 0;
    int code = may_send(p);
    while (!code && i < n && (code = wire_queue_add(p, &out[i])) == 0)
        i++;
    *ret_sent = i;
    return code;
}

static pst_buf *reserve(bus_handle *b, const pst_out *head)
{
    return wire_queue_reserve(wire_producer_of(b), head);
}

static int send_reserved(bus_handle *b)
{
    wire_producer *p = wire_producer_of(b);
    int code = may_send(p);
    return code ? code : wire_queue_add_reserved(p);
}

const bus_producer_ops wire_producer_ops = {
    .open = producer_open,
    .expect = expect,
    .send = send_all,
    .reserve = reserve,
    .send_reserved = send_reserved,
    .flush = flush,
    .drop = drop,
    .settle = settle,
    .ends_sent = wire_txn_ends_sent,
    .init = wire_txn_init,
    .begin = wire_txn_begin,
    .offsets = wire_txn_offsets,
    .commit = wire_txn_commit,
    .abort = wire_txn_abort,
};
