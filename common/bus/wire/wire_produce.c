/* wire_produce.c - Produce requests: what goes out when, what its answers mean, and what is sent again.
 *
 *     Produce (0)  versions 7 … 11, of transactions by KIP-890 12; flexible from 9. 7: zstd (KIP-110). 8: errors of single records (KIP-467).
 *                  10: the new leader in the answer (KIP-951), which we skip: metadata tell it. 12: a partition joins its transaction by it (KIP-890).
 *                  13 names topics by id and is left aside: a name is what we were given.
 *
 * One request to a broker carries a batch of each partition at most (the protocol's rule since version 3), so several batches of one partition are
 * several requests, in order on one connection. A batch is sent again as it was, byte for byte: the broker knows its number and writes it once.
 *
 * A broker that says "out of order" of a batch whose predecessors are all acknowledged has forgotten our numbers, and has not written it: like a
 * batch behind a gap it goes out under a new producer id. */
#include "common/base/hash.h"
#include "common/bus/wire/wire_codes.h"
#include "common/bus/wire/wire_producer.h"
#include "common/base/array.h"
#include "common/base/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define DUPLICATE_SEQUENCE 46
#define INVALID_ID_MAPPING 49
#define ABORTABLE          120
#define THROTTLED          89

#define NO_LEADER_US 100000

static const wire_api api_produce = {.key = 0, .min = 7, .max = 11, .flexible = 9, .name = "Produce", .throttle_elsewhere = true};
static const wire_api api_produce_2 = {.key = 0, .min = 12, .max = 12, .flexible = 9, .name = "Produce", .throttle_elsewhere = true};

struct wire_preq { /* one request */
    wire_producer *p;
    wire_preq *next, *before;
    wire_call *call;
    int32_t node;
    bool put; /* its bytes were handed to a connection */
    int64_t made_us;
    size_t bytes, n, cap;
    wire_pbatch **batches; /* NULL: was told about already */
};

/* ---- requests as objects ------------------------------------------------------------------------------------------------------------ */

static wire_preq *take_request(wire_producer *p, int32_t node, int64_t now)
{
    wire_preq *r = p->spare_requests;
    if (r)
        p->spare_requests = r->next;
    else
        r = pst_alloc(sizeof *r);
    *r = (wire_preq){.p = p, .node = node, .made_us = now, .batches = r->batches, .cap = r->cap, .next = p->requests};
    if (r->next)
        r->next->before = r;
    return p->requests = r;
}

static void give_request_back(wire_preq *r)
{
    wire_producer *p = r->p;
    if (r->next)
        r->next->before = r->before;
    if (r->before)
        r->before->next = r->next;
    else
        p->requests = r->next;
    r->next = p->spare_requests;
    p->spare_requests = r;
}

static void add_batch(wire_preq *r, wire_pbatch *b)
{
    r->batches = pst_array_room(r->batches, r->n, &r->cap, sizeof *r->batches);
    r->batches[r->n++] = b;
    r->bytes += b->block->len;
    b->under_way = true;
    b->part->under_way++;
}

/* It waits again. perhaps: its bytes may have reached the broker. */
static void back(wire_producer *p, wire_pbatch *b, int code, bool perhaps, int64_t pause_us)
{
    b->under_way = false;
    b->perhaps |= perhaps;
    b->last_code = code;
    b->part->under_way--;
    b->part->again = true;
    b->part->not_before_us = pst_mono_us() + pause_us;
    p->txn.dirty |= perhaps;
}

void wire_produce_forget(wire_producer *p)
{
    for (wire_preq *r = p->requests, *next; r; r = next) {
        next = r->next;
        if (r->call)
            wire_call_forget(r->call);
        for (size_t i = 0; i < r->n; i++)
            if (r->batches[i])
                back(p, r->batches[i], r->batches[i]->last_code, r->put, 0);
        give_request_back(r);
    }
}

bool wire_produce_under_way(const wire_producer *p)
{
    return p->requests != NULL;
}

void wire_produce_done(wire_producer *p)
{
    wire_produce_forget(p);
    for (wire_preq *r = p->spare_requests, *next; r; r = next) {
        next = r->next;
        free(r->batches);
        free(r);
    }
    p->spare_requests = NULL;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------------------------ */

static void put_number(uint8_t *at, int64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)((uint64_t)v >> (8 * (bytes - 1 - i)));
}

/* Where these stand in RecordBatch v2: checksum 17, of all from 21 on; producer id 43, epoch 51, first number 53. */
void wire_produce_renumber(wire_block *batch, int64_t id, int16_t epoch, int32_t sequence)
{
    PST_ASSERT(batch->len >= WIRE_BATCH_HEAD && batch->uses == 1); /* nobody sends it */
    put_number(batch->data + 43, id, 8);
    put_number(batch->data + 51, epoch, 2);
    put_number(batch->data + 53, sequence, 4);
    put_number(batch->data + 17, pst_crc32c(0, batch->data + 21, batch->len - 21), 4);
}

/* Gives it its number, for good or until a new producer id. False: it cannot be made (the codec's library). */
static bool seal(wire_producer *p, wire_pbatch *b)
{
    wire_ppart *part = b->part;
    if (b->sealed_for == p->id_nth)
        return true;
    if (part->numbered_for != p->id_nth) {
        part->numbered_for = p->id_nth;
        part->next_sequence = 0;
        part->gap = false;
    }
    const wire_seal s = {.producer_id = p->id,
                         .producer_epoch = p->epoch,
                         .base_sequence = part->next_sequence,
                         .transactional = wire_is_txn(p),
                         .codec = (wire_codec)p->conf->codec,
                         .level = p->conf->level};
    pst_err err = {0};
    if (b->block)
        wire_produce_renumber(b->block, s.producer_id, s.producer_epoch, s.base_sequence);
    else if (wire_build_close(&b->build, &s, &b->block, &err) < 0) {
        wire_producer_die(p, BUS_ERR__UNSUPPORTED_FEATURE, err.text);
        return false;
    }
    b->sequence = part->next_sequence;
    b->sealed_for = p->id_nth;
    b->place = ++part->places;
    b->refused = b->perhaps = false;
    part->next_sequence = (int32_t)(((uint32_t)part->next_sequence + b->n) & 0x7fffffffU); /* begins anew at 0 */
    return true;
}

/* ---- answers ------------------------------------------------------------------------------------------------------------------------------- */

/* What passes of any question, and of Produce alone. */
static bool is_passing(int code)
{
    return wire_is_passing(code) || code == BUS_ERR_NOT_ENOUGH_REPLICAS || code == BUS_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND ||
           code == BUS_ERR_CONCURRENT_TRANSACTIONS || code == WIRE_ERR_UNKNOWN_TOPIC_ID || code == THROTTLED;
}

/* Might the broker have written it though it says so? */
static bool is_doubtful(int code)
{
    return code == BUS_ERR_REQUEST_TIMED_OUT || code == BUS_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND || code == BUS_ERR_NETWORK_EXCEPTION ||
           code == BUS_ERR_KAFKA_STORAGE_ERROR;
}

static void acknowledged(wire_producer *p, wire_pbatch *b, int64_t offset)
{
    b->under_way = false;
    b->part->under_way--;
    wire_queue_take(b);
    wire_queue_report(p, b, 0, NULL, offset, false);
}

/* It will not be written. Its number can be given to the next one only where no later one was. */
static void failed(wire_producer *p, wire_pbatch *b, int code, const char *reason)
{
    wire_ppart *part = b->part;
    bool last = !b->next || b->next->sealed_for != p->id_nth;
    b->under_way = false;
    part->under_way--;
    if (last && !b->perhaps && part->numbered_for == b->sealed_for)
        part->next_sequence = b->sequence;
    else
        part->gap = p->drain = true;
    wire_queue_take(b);
    wire_queue_report(p, b, code, reason, -1, false);
}

/* The broker misses numbers before it. */
static void out_of_order(wire_producer *p, wire_pbatch *b, int code, int64_t pause_us)
{
    wire_ppart *part = b->part;
    if (wire_is_txn(p)) {
        if (b != part->first) { /* the one before it is the reason: it will tell */
            back(p, b, code, false, pause_us);
            return;
        }
        wire_txn_fail(p, code, "the broker misses records of this producer");
        failed(p, b, code, NULL);
        return;
    }
    bool behind = b != part->first && !part->gap;
    back(p, b, code, false, behind ? pause_us : 0);
    if (behind)
        return;
    b->refused = true;
    part->gap = p->drain = true;
}

static void answered_one(wire_producer *p, wire_pbatch *b, int code, int64_t offset, const char *reason)
{
    int64_t pause_us = p->conf->retry_backoff_ms * 1000LL;
    if (code == 0 || code == DUPLICATE_SEQUENCE) {
        acknowledged(p, b, code ? -1 : offset);
        return;
    }
    if (is_passing(code)) {
        if (code != BUS_ERR_NOT_ENOUGH_REPLICAS && code != BUS_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND &&
            code != BUS_ERR_CONCURRENT_TRANSACTIONS)
            wire_net_stale(p->handle.net, b->part->topic->name);
        back(p, b, code, is_doubtful(code), pause_us);
        return;
    }
    switch (code) {
    case BUS_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER:
    case BUS_ERR_UNKNOWN_PRODUCER_ID: out_of_order(p, b, code, pause_us); return;
    case BUS_ERR_INVALID_PRODUCER_EPOCH:
    case BUS_ERR_PRODUCER_FENCED:
        if (!wire_is_txn(p)) {
            b->part->gap = true; /* its id is not good any more */
            out_of_order(p, b, code, pause_us);
            return;
        }
        failed(p, b, code, reason);
        wire_producer_die(p, code, "another producer with this transactional.id took over, or the coordinator ended the transaction");
        return;
    default: break;
    }
    if (wire_is_txn(p))
        wire_txn_fail(p, code, reason && *reason ? reason : "a record was refused");
    failed(p, b, code, reason);
}

static wire_pbatch *find_batch(wire_preq *r, wire_str topic, int32_t partition, size_t *hint)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t at = (*hint + i) % r->n;
        wire_pbatch *b = r->batches[at];
        if (b && b->part->index == partition && wire_str_is(topic, b->part->topic->name)) {
            r->batches[at] = NULL; /* answered once */
            *hint = at + 1;
            return b;
        }
    }
    return NULL;
}

static void read_partition(wire_preq *r, wire_in *in, int16_t version, wire_str topic, size_t *hint)
{
    int32_t partition = wire_get_i32(in);
    int code = wire_get_i16(in);
    int64_t offset = wire_get_i64(in);
    wire_get_i64(in); /* the time of appending */
    wire_get_i64(in); /* where the log begins */
    wire_str text = {0};
    if (version >= 8) {
        for (size_t n = wire_get_count(in, 5, NULL); n; n--) { /* which records, and why */
            wire_get_i32(in);
            wire_str why = wire_get_str(in);
            if (!text.at)
                text = why;
            wire_get_tags(in);
        }
        wire_str whole = wire_get_str(in);
        if (whole.at)
            text = whole;
    }
    wire_get_tags(in);
    if (in->bad)
        return; /* what could not be read to its end is not believed */
    wire_pbatch *b = find_batch(r, topic, partition, hint);
    if (!b)
        return;
    char reason[300] = "";
    if (text.at)
        snprintf(reason, sizeof reason, "%.*s", (int)(text.len < 299 ? text.len : 299), text.at);
    answered_one(r->p, b, code, offset, text.at ? reason : NULL);
}

static int32_t read_answer(wire_preq *r, const wire_answer *a)
{
    wire_in in = a->body;
    size_t hint = 0;
    for (size_t topics = wire_get_count(&in, 3, NULL); topics && !in.bad; topics--) {
        wire_str name = wire_get_str(&in);
        for (size_t n = wire_get_count(&in, 4, NULL); n && !in.bad; n--)
            read_partition(r, &in, a->version, name, &hint);
        wire_get_tags(&in);
    }
    return wire_get_i32(&in); /* throttled for so long; 0 of what could not be read */
}

static void on_answer(void *owner, wire_call *call, const wire_answer *a)
{
    wire_preq *r = owner;
    wire_producer *p = r->p;
    r->call = NULL;
    if (!a->code)
        wire_call_throttled(call, read_answer(r, a));
    int64_t pause_us = p->conf->retry_backoff_ms * 1000LL;
    for (size_t i = 0; i < r->n; i++) { /* of which the answer says nothing, or there is none */
        wire_pbatch *b = r->batches[i];
        if (!b)
            continue;
        r->batches[i] = NULL;
        if (a->code == BUS_ERR__UNSUPPORTED_FEATURE && wire_is_txn(p))
            wire_txn_fail(p, a->code, "a broker speaks no Produce of this transaction's protocol");
        wire_net_stale(p->handle.net, b->part->topic->name);
        back(p, b, a->code ? a->code : BUS_ERR_NETWORK_EXCEPTION, !a->code || r->put,
             pause_us); /* what a connection was handed may still go out */
    }
    give_request_back(r);
}

/* ---- requests out ---------------------------------------------------------------------------------------------------------------------------- */

static void put_request(void *owner, wire_call *call, int16_t version, wire_out *out)
{
    wire_preq *r = owner;
    wire_producer *p = r->p;
    r->put = true;
    wire_put_str(out, p->conf->transactional_id);
    wire_put_i16(out, -1);
    wire_put_i32(out, p->conf->request_timeout_ms);
    size_t topics = 0;
    for (size_t i = 0; i < r->n; i++)
        topics += !i || r->batches[i]->part->topic != r->batches[i - 1]->part->topic;
    wire_put_count(out, topics);
    for (size_t i = 0; i < r->n;) {
        const wire_ptopic *t = r->batches[i]->part->topic;
        size_t n = 0;
        while (i + n < r->n && r->batches[i + n]->part->topic == t)
            n++;
        wire_put_str(out, t->name);
        wire_put_count(out, n);
        for (; n; n--, i++) {
            wire_pbatch *b = r->batches[i];
            wire_put_i32(out, b->part->index);
            wire_put_blob_head(out, b->block->len);
            wire_call_splice(call, b->block);
            wire_put_tags(out);
        }
        wire_put_tags(out);
    }
    wire_put_tags(out);
}

static int by_topic(const void *a, const void *b)
{
    const wire_pbatch *x = *(wire_pbatch *const *)a, *y = *(wire_pbatch *const *)b;
    if (x->part->topic != y->part->topic)
        return (uintptr_t)x->part->topic < (uintptr_t)y->part->topic ? -1 : 1;
    return x->part->index < y->part->index ? -1 : x->part->index > y->part->index;
}

/* An answer is waited for as long as the first of its records may take, or the socket's time-out where that is less. */
static int patience(const wire_producer *p, const wire_preq *r, int64_t now)
{
    int64_t ms = p->conf->socket_timeout_ms;
    for (size_t i = 0; i < r->n && p->delivery_us; i++) {
        int64_t left = (r->batches[i]->born_us + p->delivery_us - now) / 1000;
        ms = left < ms ? left : ms;
    }
    return ms < 500 ? 500 : (int)ms;
}

static void fire(wire_producer *p, wire_preq *r, int64_t now)
{
    if (r->n > 1)
        qsort(r->batches, r->n, sizeof *r->batches, by_topic);
    r->call = wire_net_call(p->handle.net, r->node, wire_is_txn(p) && p->txn.by_produce ? &api_produce_2 : &api_produce,
                            patience(p, r, now), put_request, on_answer, r);
}

static void wake_at(wire_producer *p, int64_t at)
{
    if (at < p->wake_us)
        p->wake_us = at;
}

/* A broker remembers the last five: a later one would make it forget the first that is not settled, and then call that out of order though it has it.
 * What is under way says nothing about that, since later ones may be acknowledged while the first goes unanswered. */
static bool would_outrun(const wire_producer *p, const wire_ppart *part)
{
    const wire_pbatch *first = part->first;
    return first->sealed_for == p->id_nth && part->places - first->place >= WIRE_UNDER_WAY_MAX - 1;
}

/* The next batch of the partition that may go now; NULL = none may. */
static wire_pbatch *next_of(wire_producer *p, wire_ppart *part, int64_t now)
{
    if (part->again && part->under_way)
        return NULL;
    part->again = part->again && part->under_way;
    if (part->under_way >= WIRE_UNDER_WAY_MAX)
        return NULL;
    if (now < part->not_before_us) {
        wake_at(p, part->not_before_us);
        return NULL;
    }
    wire_pbatch *b = part->first;
    while (b && (b->under_way || (b->refused && b->sealed_for == p->id_nth)))
        b = b->next;
    if (!b || !b->n || b == p->reserved_in)
        return NULL;
    bool numbered = b->sealed_for == p->id_nth;
    if (!numbered && (p->drain || would_outrun(p, part)))
        return NULL;
    if (!b->closed) {
        int64_t at = b->born_us + p->conf->linger_ms * 1000LL;
        if (!p->flushing && now < at) {
            wake_at(p, at);
            return NULL;
        }
        wire_queue_close(p, b);
    }
    return b;
}

/* It has been told to the coordinator that the transaction reaches here (KIP-98), or Produce itself does so (KIP-890). */
static bool may_join(wire_producer *p, wire_ppart *part)
{
    if (!wire_is_txn(p))
        return true;
    if (p->txn.state != WIRE_TXN_OPEN || p->txn.error.code || p->txn.aborting)
        return false;
    return p->txn.by_produce || part->joined == p->txn.nth;
}

static wire_preq *request_to(wire_producer *p, wire_preq **now_made, size_t n, int32_t node, size_t more)
{
    for (size_t i = 0; i < n; i++)
        if (now_made[i]->node == node && now_made[i]->n < WIRE_SPLICES && now_made[i]->bytes + more <= (size_t)p->conf->message_max_bytes)
            return now_made[i];
    return NULL;
}

/* One batch of each partition at most. True: there was one. */
static bool gather(wire_producer *p, int64_t now)
{
    wire_preq *made[32];
    size_t n = 0;
    bool any = false;
    for (wire_ppart **at = &p->active, *part; (part = *at);) {
        if (!part->first) {
            *at = part->next_active;
            part->active = false;
            continue;
        }
        at = &part->next_active;
        if (!may_join(p, part) && part->first->n) {
            if (p->flushing || part->first->closed || now >= part->first->born_us + p->conf->linger_ms * 1000LL)
                part->joining = wire_is_txn(p) && p->txn.state == WIRE_TXN_OPEN;
            else
                wake_at(p, part->first->born_us + p->conf->linger_ms * 1000LL);
            continue;
        }
        wire_pbatch *b = next_of(p, part, now);
        if (!b)
            continue;
        int32_t node = wire_net_leader(p->handle.net, part->topic->name, part->index);
        if (node < 0) {
            wire_net_stale(p->handle.net, part->topic->name);
            part->not_before_us = now + NO_LEADER_US;
            wake_at(p, part->not_before_us);
            continue;
        }
        if (!seal(p, b))
            return false;
        wire_preq *r = request_to(p, made, n, node, b->block->len);
        if (!r && n == sizeof made / sizeof *made)
            break; /* the next pass goes on */
        if (!r)
            r = made[n++] = take_request(p, node, now);
        add_batch(r, b);
        p->txn.touched = true;
        any = true;
    }
    for (size_t i = 0; i < n; i++)
        fire(p, made[i], now);
    return any;
}

/* A request that still waits for its connection, though its partitions have another leader by now, would wait in vain. */
static void redirect(wire_producer *p, int64_t now)
{
    for (wire_preq *r = p->requests, *next; r; r = next) {
        next = r->next;
        bool moved = false, late = false;
        for (size_t i = 0; i < r->n && !r->put && now - r->made_us > NO_LEADER_US; i++) {
            int32_t leader = wire_net_leader(p->handle.net, r->batches[i]->part->topic->name, r->batches[i]->part->index);
            moved |= leader >= 0 && leader != r->node;
            late |= p->delivery_us && now - r->batches[i]->born_us >= p->delivery_us;
        }
        if (!moved && !late)
            continue;
        wire_call_forget(r->call);
        for (size_t i = 0; i < r->n; i++)
            back(p, r->batches[i], r->batches[i]->last_code, false, 0);
        give_request_back(r);
    }
}

/* All numbers are settled: what was refused, and all that is new, goes out under another id. */
static bool is_drained(const wire_producer *p)
{
    for (const wire_ppart *part = p->active; part; part = part->next_active)
        for (const wire_pbatch *b = part->first; b; b = b->next)
            if (b->under_way || (b->sealed_for == p->id_nth && !b->refused))
                return false;
    return true;
}

void wire_produce_tick(wire_producer *p, int64_t now)
{
    p->ready = false;
    p->wake_us = INT64_MAX;
    if (p->requests)
        redirect(p, now);
    if (p->drain && !wire_is_txn(p) && p->has_id && is_drained(p)) {
        p->has_id = p->drain = false;
        p->wants_id = true;
    }
    if (!p->has_id || p->fatal_code)
        return;
    while (gather(p, now))
        ;
}
