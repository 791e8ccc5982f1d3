/* wire_produce_id.c - who a producer is to the brokers: an id and an epoch, under which its batches are numbered.
 *
 *     InitProducerId (22)  versions 0 … 5; flexible from 2. 3: with the old id and epoch it asks for the next epoch (KIP-360).
 *                          4: a fenced producer is told so (KIP-588). 5: TRANSACTION_ABORTABLE (KIP-890).
 *
 * Without transactions any broker gives one; a producer that has lost count takes a new one. With a transactional id its coordinator gives the id's
 * next epoch, after it has ended what a predecessor left open: until then it answers "concurrent transactions". */
#include "common/bus/wire/wire_producer.h"
#include "common/base/clock.h"

#include <stdio.h>

#define CONCURRENT_US 50000

static const wire_api api_init = {.key = 22, .min = 0, .max = 5, .flexible = 2, .name = "InitProducerId"};

void wire_id_set(wire_producer *p, int64_t id, int16_t epoch)
{
    p->id = id;
    p->epoch = epoch;
    p->id_nth += p->id_nth == UINT32_MAX ? 2 : 1;
    p->has_id = true;
    p->wants_id = p->drain = p->txn.dirty = false;
}

static void put_init(void *owner, wire_call *call, int16_t version, wire_out *out)
{
    wire_producer *p = owner;
    bool next = wire_is_txn(p) && p->id >= 0;
    wire_put_str(out, p->conf->transactional_id);
    wire_put_i32(out, wire_is_txn(p) ? p->conf->transaction_timeout_ms : INT32_MAX);
    if (version >= 3) {
        wire_put_i64(out, next ? p->id : -1);
        wire_put_i16(out, next ? p->epoch : -1);
    }
    wire_put_tags(out);
}

static void passing(wire_producer *p, int code)
{
    int64_t pause_us = code == BUS_ERR_CONCURRENT_TRANSACTIONS ? CONCURRENT_US : p->conf->retry_backoff_ms * 1000LL;
    if (wire_is_txn(p) && code != BUS_ERR_CONCURRENT_TRANSACTIONS && code != BUS_ERR_COORDINATOR_LOAD_IN_PROGRESS)
        wire_net_coordinator_stale(p->handle.net, WIRE_TXN, p->conf->transactional_id);
    p->id_not_before_us = pst_mono_us() + pause_us;
}

static void on_init(void *owner, wire_call *call, const wire_answer *a)
{
    wire_producer *p = owner;
    p->id_call = NULL;
    int code = a->code;
    int64_t id = -1;
    int16_t epoch = -1;
    if (!code) {
        wire_in in = a->body;
        wire_get_i32(&in); /* throttled */
        code = wire_get_i16(&in);
        id = wire_get_i64(&in);
        epoch = wire_get_i16(&in);
        wire_get_tags(&in);
        if (in.bad || (!code && (id < 0 || epoch < 0)))
            code = BUS_ERR_NETWORK_EXCEPTION; /* what cannot be read is asked for again */
    }
    p->id_code = code;
    if (!code) {
        wire_id_set(p, id, epoch);
        return;
    }
    if (wire_txn_severity(code) == WIRE_PASSING)
        passing(p, code);
    else
        wire_producer_die(p, code, a->reason);
}

void wire_id_tick(wire_producer *p, int64_t now)
{
    if (!p->wants_id || p->has_id || p->id_call || p->fatal_code || now < p->id_not_before_us)
        return;
    int code = 0;
    int32_t node =
        wire_is_txn(p) ? wire_net_coordinator(p->handle.net, WIRE_TXN, p->conf->transactional_id, &code) : wire_net_any(p->handle.net);
    if (node < 0) {
        p->id_code = code;
        if (code && wire_txn_severity(code) != WIRE_PASSING)
            wire_producer_die(p, code, NULL);
        return;
    }
    p->id_call = wire_net_call(p->handle.net, node, &api_init, p->conf->socket_timeout_ms, put_init, on_init, p);
}
