/* wire_txn_wire.c - what a transaction asks its coordinators, and what their answers mean.
 *
 *     AddPartitionsToTxn (24)  versions 0 … 3, flexible from 3 (4 and 5 are the brokers' own). Before a partition's first record; not in KIP-890's.
 *     AddOffsetsToTxn (25)     versions 0 … 4, flexible from 3. Before the first offsets; not in KIP-890's.
 *     TxnOffsetCommit (28)     versions 3 … 4, in KIP-890's 5; flexible from 3. To the group's coordinator. 3: with the membership (KIP-447).
 *     EndTxn (26)              versions 0 … 4, in KIP-890's 5, which answers with the epoch of the next transaction; flexible from 3.
 *
 * KIP-890's (transaction.version 2, the safe ones): each transaction has an epoch of its own, so a request that comes late cannot touch a later one.
 * One request at a time. An error is passing (the same is asked again after a pause), ends the round, or the producer (wire_txn_severity). What a
 * broker did though its answer was lost is asked again like what it did not do: all of these may be repeated within their transaction. */
#include "common/bus/wire/wire_producer.h"
#include "common/base/clock.h"

#include <stdio.h>

#define CONCURRENT_US 20000

static const wire_api api_join = {.key = 24, .min = 0, .max = 3, .flexible = 3, .name = "AddPartitionsToTxn"};
static const wire_api api_group = {.key = 25, .min = 0, .max = 4, .flexible = 3, .name = "AddOffsetsToTxn"};
static const wire_api api_offsets = {.key = 28, .min = 3, .max = 4, .flexible = 3, .name = "TxnOffsetCommit"};
static const wire_api api_offsets_2 = {.key = 28, .min = 5, .max = 5, .flexible = 3, .name = "TxnOffsetCommit"};
static const wire_api api_end = {.key = 26, .min = 0, .max = 4, .flexible = 3, .name = "EndTxn"};
static const wire_api api_end_2 = {.key = 26, .min = 5, .max = 5, .flexible = 3, .name = "EndTxn"};

/* ---- one request at a time ------------------------------------------------------------------------------------------------------- */

/* Which coordinator, or -1: it is being looked for. */
static int32_t node_of(wire_producer *p, wire_coordinator_kind kind, const char *key)
{
    int code = 0;
    int32_t node = wire_net_coordinator(p->handle.net, kind, key, &code);
    if (node >= 0 || !code)
        return node;
    switch (wire_txn_severity(code)) {
    case WIRE_PASSING: break;
    case WIRE_ABORT: wire_txn_fail(p, code, "the group's coordinator is not told"); break;
    case WIRE_FATAL: wire_producer_die(p, code, NULL); break;
    }
    return -1;
}

static bool may_ask(const wire_producer *p, int64_t now)
{
    return !p->txn.call && !p->fatal_code && now >= p->txn.not_before_us;
}

static void ask(wire_producer *p, int32_t node, const wire_api *api, wire_put_body put, wire_on_answer answered)
{
    p->txn.put = false;
    p->txn.call = wire_net_call(p->handle.net, node, api, p->conf->socket_timeout_ms, put, answered, p);
}

void wire_txn_forget(wire_producer *p)
{
    if (p->txn.call)
        wire_call_forget(p->txn.call);
    p->txn.call = NULL;
}

static bool is_astray(int code)
{
    return code == BUS_ERR_NOT_COORDINATOR || code == BUS_ERR_COORDINATOR_NOT_AVAILABLE || code < 0;
}

/* What an answer's code means for the transaction. True: it is done. */
static bool settle(wire_producer *p, int code, const char *what, wire_coordinator_kind kind, const char *key)
{
    if (!code)
        return true;
    switch (wire_txn_severity(code)) {
    case WIRE_PASSING:
        if (is_astray(code))
            wire_net_coordinator_stale(p->handle.net, kind, key);
        p->txn.not_before_us =
            pst_mono_us() + (code == BUS_ERR_CONCURRENT_TRANSACTIONS ? CONCURRENT_US : p->conf->retry_backoff_ms * 1000LL);
        break;
    case WIRE_ABORT: wire_txn_fail(p, code, what); break;
    case WIRE_FATAL: wire_producer_die(p, code, NULL); break;
    }
    return false;
}

static void put_head(wire_producer *p, wire_out *out)
{
    p->txn.put = true;
    p->txn.touched = true;
    wire_put_str(out, p->conf->transactional_id);
    wire_put_i64(out, p->id);
    wire_put_i16(out, p->epoch);
}

/* The first code that is not 0, of answers with a code for each partition; each is shown to `see` as well. */
static int codes(wire_producer *p, const wire_answer *a, void (*see)(wire_producer *p, wire_str topic, int32_t partition, int code))
{
    wire_in in = a->body;
    int first = 0;
    wire_get_i32(&in); /* throttled */
    for (size_t topics = wire_get_count(&in, 3, NULL); topics && !in.bad; topics--) {
        wire_str name = wire_get_str(&in);
        for (size_t n = wire_get_count(&in, 6, NULL); n && !in.bad; n--) {
            int32_t partition = wire_get_i32(&in);
            int code = wire_get_i16(&in);
            wire_get_tags(&in);
            if (see && !in.bad)
                see(p, name, partition, code);
            /* "not attempted, for another's sake" (55) explains nothing */
            if (code && (!first || first == 55))
                first = code;
        }
        wire_get_tags(&in);
    }
    wire_get_tags(&in);
    return in.bad ? BUS_ERR_NETWORK_EXCEPTION : first;
}

/* ---- partitions -------------------------------------------------------------------------------------------------------------------- */

static bool joins(const wire_producer *p, const wire_ptopic *t, int32_t i)
{
    return t->parts[i]->joining && t->parts[i]->joined != p->txn.nth;
}

static size_t joins_of(const wire_producer *p, const wire_ptopic *t)
{
    size_t n = 0;
    for (int32_t i = 0; i < t->n; i++)
        n += joins(p, t, i);
    return n;
}

static void put_join(void *owner, wire_call *call, int16_t version, wire_out *out)
{
    wire_producer *p = owner;
    size_t topics = 0;
    for (const wire_ptopic *t = p->topics; t; t = t->next)
        topics += joins_of(p, t) > 0;
    put_head(p, out);
    wire_put_count(out, topics);
    for (const wire_ptopic *t = p->topics; t; t = t->next) {
        size_t n = joins_of(p, t);
        if (!n)
            continue;
        wire_put_str(out, t->name);
        wire_put_count(out, n);
        for (int32_t i = 0; i < t->n; i++)
            if (joins(p, t, i))
                wire_put_i32(out, i);
        wire_put_tags(out);
    }
    wire_put_tags(out);
}

static void joined(wire_producer *p, wire_str topic, int32_t partition, int code)
{
    for (wire_ptopic *t = p->topics; t && !code; t = t->next) {
        if (!wire_str_is(topic, t->name) || partition < 0 || partition >= t->n)
            continue;
        t->parts[partition]->joined = p->txn.nth;
        t->parts[partition]->joining = false;
    }
}

static void on_join(void *owner, wire_call *call, const wire_answer *a)
{
    wire_producer *p = owner;
    p->txn.call = NULL;
    settle(p, a->code ? a->code : codes(p, a, joined), "partitions cannot join the transaction", WIRE_TXN, p->conf->transactional_id);
}

void wire_txn_ask_join(wire_producer *p, int64_t now)
{
    bool any = false;
    for (const wire_ppart *part = p->active; part && !any; part = part->next_active)
        any = part->joining && part->joined != p->txn.nth;
    int32_t node = any && may_ask(p, now) ? node_of(p, WIRE_TXN, p->conf->transactional_id) : -1;
    if (node >= 0)
        ask(p, node, &api_join, put_join, on_join);
}

/* ---- offsets ------------------------------------------------------------------------------------------------------------------------ */

static void put_group(void *owner, wire_call *call, int16_t version, wire_out *out)
{
    wire_producer *p = owner;
    put_head(p, out);
    wire_put_str(out, p->txn.group->group);
    wire_put_tags(out);
}

static void on_group(void *owner, wire_call *call, const wire_answer *a)
{
    wire_producer *p = owner;
    wire_in in = a->body;
    p->txn.call = NULL;
    int code = a->code;
    if (!code) {
        wire_get_i32(&in);
        code = wire_get_i16(&in);
        wire_get_tags(&in);
        code = in.bad ? BUS_ERR_NETWORK_EXCEPTION : code;
    }
    bool done = settle(p, code, "the group cannot join the transaction", WIRE_TXN, p->conf->transactional_id);
    p->txn.grouping = done ? WIRE_STEP_DONE : WIRE_STEP_IDLE;
}

static void put_offsets(void *owner, wire_call *call, int16_t version, wire_out *out)
{
    wire_producer *p = owner;
    const bus_places *list = p->txn.list;
    const bus_group *g = p->txn.group;
    p->txn.put = p->txn.touched = true;
    wire_put_str(out, p->conf->transactional_id);
    wire_put_str(out, g->group);
    wire_put_i64(out, p->id);
    wire_put_i16(out, p->epoch);
    wire_put_i32(out, g->generation);
    wire_put_str(out, g->member ? g->member : "");
    wire_put_str(out, g->instance);
    size_t topics = 0; /* those of one topic that stand together go together */
    for (size_t i = 0; i < list->n; i++)
        topics += !i || strcmp(list->at[i].topic, list->at[i - 1].topic) != 0;
    wire_put_count(out, topics);
    for (size_t i = 0; i < list->n;) {
        size_t n = 1;
        while (i + n < list->n && !strcmp(list->at[i + n].topic, list->at[i].topic))
            n++;
        wire_put_str(out, list->at[i].topic);
        wire_put_count(out, n);
        for (; n; n--, i++) {
            wire_put_i32(out, list->at[i].partition);
            wire_put_i64(out, list->at[i].offset);
            wire_put_i32(out, -1); /* the leader's epoch: not known */
            wire_put_str(out, list->at[i].note ? list->at[i].note : "");
            wire_put_tags(out);
        }
        wire_put_tags(out);
    }
    wire_put_tags(out);
}

static void on_offsets(void *owner, wire_call *call, const wire_answer *a)
{
    wire_producer *p = owner;
    p->txn.call = NULL;
    p->txn.offsetting = WIRE_STEP_IDLE;
    int code = a->code ? a->code : codes(p, a, NULL);
    if (!p->txn.group) { /* nobody waits for it just now: who asks again asks again */
        p->txn.offsetting = code ? WIRE_STEP_IDLE : WIRE_STEP_DONE;
        if (!code || wire_txn_severity(code) == WIRE_PASSING)
            return;
    }
    bool done = settle(p, code, "offsets cannot go with the transaction", WIRE_GROUP, p->txn.group ? p->txn.group->group : "");
    p->txn.offsetting = done ? WIRE_STEP_DONE : WIRE_STEP_IDLE;
}

void wire_txn_ask_offsets(wire_producer *p, int64_t now)
{
    if (!may_ask(p, now))
        return;
    bool first = !p->txn.by_produce && p->txn.grouping != WIRE_STEP_DONE;
    int32_t node = first ? node_of(p, WIRE_TXN, p->conf->transactional_id) : node_of(p, WIRE_GROUP, p->txn.group->group);
    if (node < 0)
        return;
    if (first) {
        p->txn.grouping = WIRE_STEP_ASKED;
        ask(p, node, &api_group, put_group, on_group);
    } else {
        p->txn.offsetting = WIRE_STEP_ASKED;
        ask(p, node, p->txn.by_produce ? &api_offsets_2 : &api_offsets, put_offsets, on_offsets);
    }
}

/* ---- the end ---------------------------------------------------------------------------------------------------------------------------- */

static void put_end(void *owner, wire_call *call, int16_t version, wire_out *out)
{
    wire_producer *p = owner;
    put_head(p, out);
    wire_put_bool(out, p->txn.commit);
    wire_put_tags(out);
    p->txn.ends_sent++;
}

static void on_end(void *owner, wire_call *call, const wire_answer *a)
{
    wire_producer *p = owner;
    p->txn.call = NULL;
    int code = a->code;
    if (!code) {
        wire_in in = a->body;
        wire_get_i32(&in);
        code = wire_get_i16(&in);
        int64_t id = a->version >= 5 ? wire_get_i64(&in) : -1;
        int16_t epoch = a->version >= 5 ? wire_get_i16(&in) : -1;
        wire_get_tags(&in);
        if (in.bad)
            code = BUS_ERR_NETWORK_EXCEPTION;
        else if (!code && id >= 0 && epoch >= 0)
            wire_id_set(p, id, epoch);
    }
    bool done = settle(p, code, "the transaction cannot be ended", WIRE_TXN, p->conf->transactional_id);
    p->txn.ending = done ? WIRE_STEP_DONE : WIRE_STEP_IDLE;
}

void wire_txn_ask_end(wire_producer *p, int64_t now)
{
    int32_t node = may_ask(p, now) ? node_of(p, WIRE_TXN, p->conf->transactional_id) : -1;
    if (node < 0)
        return;
    p->txn.ending = WIRE_STEP_ASKED;
    ask(p, node, p->txn.by_produce ? &api_end_2 : &api_end, put_end, on_end);
}
