/* wire_queue.c - records that wait to be sent: topics, their partitions, and a batch under construction in each.
 *
 * A record is written where it will be sent from. One whose topic is not known yet has no such place: it is copied aside, in order, until brokers tell
 * the topic's partitions, or that there is none (topic.metadata.propagation.max.ms), or its time is over. */
#include "common/bus/wire/wire_producer.h"
#include "common/base/array.h"
#include "common/base/clock.h"

#include <stdlib.h>

#define RECORD_BYTES 64        /* what a record costs beside its key and value, as the queue's limit counts it */
#define SPARE_MAX    64        /* batches kept for use again, with their memory */
#define SPARE_BYTES  (1 << 21) /* but none that is larger */
#define LOOK_US      100000

int64_t wire_queue_now_ms(void)
{
    return pst_now_us() / 1000;
}

/* ---- topics and partitions ---------------------------------------------------------------------------------------------------------- */

/* Takes over how many partitions there are: more of them, never fewer, since a topic that was made anew is asked for by whoever fails there. */
static void sync_topic(wire_producer *p, wire_ptopic *t)
{
    const wire_topic *known = wire_net_topic(p->handle.net, t->name);
    t->looked_us = pst_mono_us();
    if (!known)
        return;
    if (known->code) {
        if (!t->unknown_since_us)
            t->unknown_since_us = t->looked_us;
        return;
    }
    t->unknown_since_us = 0;
    if (known->n <= t->n)
        return;
    while (t->n < known->n) {
        t->parts = pst_array_room(t->parts, (size_t)t->n, &t->parts_cap, sizeof *t->parts);
        wire_ppart *part = pst_alloc(sizeof *part);
        part->topic = t;
        part->index = t->n;
        t->parts[t->n++] = part;
    }
}

wire_ptopic *wire_queue_topic(wire_producer *p, const char *name)
{
    if (p->last_topic && !strcmp(p->last_topic->name, name))
        return p->last_topic;
    wire_ptopic *t = p->topics;
    while (t && strcmp(t->name, name) != 0)
        t = t->next;
    if (!t) {
        t = pst_alloc(sizeof *t);
        t->name = pst_strdup(name);
        t->sticky = -1;
        t->next = p->topics;
        p->topics = t;
        sync_topic(p, t);
    }
    return p->last_topic = t;
}

static uint64_t chance(wire_producer *p)
{
    p->chance ^= p->chance << 13;
    p->chance ^= p->chance >> 7;
    return p->chance ^= p->chance << 17;
}

/* Records without a key stay with one partition until its batch is closed, which makes fewer and larger batches than spreading each (KIP-480). One whose
 * leader is known is preferred. */
static int32_t sticky_of(wire_producer *p, wire_ptopic *t)
{
    for (int tries = 0; t->sticky < 0 && tries < 8; tries++) {
        int32_t at = (int32_t)(chance(p) % (uint64_t)t->n);
        if (tries == 7 || wire_net_leader(p->handle.net, t->name, at) >= 0)
            t->sticky = at;
    }
    return t->sticky;
}

/* NULL: there is no such partition. The topic is known. */
static wire_ppart *part_for(wire_producer *p, wire_ptopic *t, const pst_out *out)
{
    int32_t at = out->partition;
    if (at < 0)
        at = wire_partition_of(p->conf->partitioner, out->key, out->key_len, t->n);
    if (at < 0)
        at = sticky_of(p, t);
    if (at >= t->n)
        sync_topic(p, t);
    return at < t->n ? t->parts[at] : NULL;
}

/* ---- batches -------------------------------------------------------------------------------------------------------------------------- */

static wire_pbatch *open_batch(wire_producer *p, wire_ppart *part)
{
    wire_pbatch *b = p->spare;
    if (b) {
        p->spare = b->next;
        p->n_spare--;
        *b = (wire_pbatch){.build = b->build, .marks = b->marks, .marks_cap = b->marks_cap};
    } else {
        b = pst_alloc(sizeof *b);
    }
    wire_build_begin(&b->build);
    b->part = part;
    if (part->last)
        part->last->next = b;
    else
        part->first = b;
    part->last = b;
    if (!part->active) {
        part->active = true;
        part->next_active = p->active;
        p->active = part;
    }
    return b;
}

void wire_queue_close(wire_producer *p, wire_pbatch *b)
{
    if (b->closed)
        return;
    b->closed = true;
    p->ready = true;
    if (b->part->topic->sticky == b->part->index)
        b->part->topic->sticky = -1;
}

void wire_queue_take(wire_pbatch *b)
{
    wire_ppart *part = b->part;
    wire_pbatch **at = &part->first, *before = NULL;
    while (*at != b) {
        PST_ASSERT(*at);
        before = *at;
        at = &before->next;
    }
    *at = b->next;
    if (part->last == b)
        part->last = before;
    b->next = NULL;
}

static void free_batch(wire_pbatch *b)
{
    wire_block_drop(b->block);
    wire_build_done(&b->build);
    free(b->marks);
    free(b);
}

static void reuse_batch(wire_producer *p, wire_pbatch *b)
{
    wire_block_drop(b->block);
    b->block = NULL;
    if (p->n_spare >= SPARE_MAX || b->build.bytes.cap > SPARE_BYTES) {
        free_batch(b);
        return;
    }
    b->next = p->spare;
    p->spare = b;
    p->n_spare++;
}

static wire_pbatch *batch_for(wire_producer *p, wire_ppart *part, size_t cost)
{
    wire_pbatch *b = part->last;
    if (b && !b->closed && b->n && (b->build.bytes.len + cost > p->batch_bytes || (int)b->n >= p->conf->batch_records))
        wire_queue_close(p, b);
    return b && !b->closed ? b : open_batch(p, part);
}

static size_t bytes_of(const pst_out *out)
{
    return RECORD_BYTES + out->key_len + out->value_len;
}

static void mark(wire_producer *p, wire_pbatch *b, const pst_out *out, uint64_t nth)
{
    if (!b->n)
        b->born_us = pst_mono_us();
    b->marks = pst_array_room(b->marks, b->n, &b->marks_cap, sizeof *b->marks);
    b->marks[b->n++] = (wire_mark){.opaque = out->opaque, .nth = nth};
    b->bytes += bytes_of(out);
    if (b->build.bytes.len >= p->batch_bytes)
        wire_queue_close(p, b);
}

static void add_to(wire_producer *p, wire_ppart *part, const pst_out *out, uint64_t nth)
{
    wire_pbatch *b = batch_for(p, part, wire_build_cost(out));
    pst_out timed = *out;
    if (!timed.timestamp_ms)
        timed.timestamp_ms = wire_queue_now_ms();
    wire_build_add(&b->build, &timed);
    mark(p, b, out, nth);
}

/* ---- records whose topic is not known yet --------------------------------------------------------------------------------------------- */

static void *put(char **at, const void *data, size_t len)
{
    if (!data)
        return NULL;
    char *to = *at;
    if (len)
        memcpy(to, data, len);
    *at += len;
    return to;
}

static void put_aside(wire_producer *p, wire_ptopic *t, const pst_out *o)
{
    size_t size = sizeof(wire_waiting) + o->n_headers * sizeof(pst_header) + o->key_len + o->value_len;
    for (size_t i = 0; i < o->n_headers; i++)
        size += strlen(o->headers[i].name) + 1 + o->headers[i].len;
    wire_waiting *w = pst_alloc(size);
    pst_header *headers = (pst_header *)(w + 1);
    char *at = (char *)(headers + o->n_headers);
    w->out = *o;
    w->out.topic = t->name;
    w->out.headers = headers;
    w->out.key = put(&at, o->key, o->key_len);
    w->out.value = put(&at, o->value, o->value_len);
    for (size_t i = 0; i < o->n_headers; i++) {
        headers[i].name = put(&at, o->headers[i].name, strlen(o->headers[i].name) + 1);
        headers[i].value = put(&at, o->headers[i].value, o->headers[i].len);
        headers[i].len = o->headers[i].len;
    }
    if (!w->out.timestamp_ms)
        w->out.timestamp_ms = wire_queue_now_ms();
    w->nth = p->nth;
    w->born_us = pst_mono_us();
    w->bytes = bytes_of(o);
    if (t->last_waiting)
        t->last_waiting->next = w;
    else
        t->first_waiting = w;
    t->last_waiting = w;
}

static wire_waiting *next_waiting(wire_ptopic *t)
{
    wire_waiting *w = t->first_waiting;
    t->first_waiting = w->next;
    if (!w->next)
        t->last_waiting = NULL;
    return w;
}

static void tell(wire_producer *p, const bus_delivered *d)
{
    p->told++;
    p->handle.to.delivered(p->handle.to.owner, d);
}

/* A record that lies in no batch. Its round is lost with it, or the commit would carry the offsets of a record that was never written. */
static void fail_waiting(wire_producer *p, wire_ptopic *t, int code, const char *reason)
{
    wire_waiting *w = next_waiting(t);
    if (wire_is_txn(p))
        wire_txn_fail(p, code, "a record's topic cannot be written to");
    p->records--;
    p->bytes -= w->bytes;
    const bus_delivered d = {.code = code,
                             .reason = reason,
                             .topic = t->name,
                             .partition = w->out.partition,
                             .offset = -1,
                             .opaque = w->out.opaque,
                             .unsent = p->fatal_code ? &w->out : NULL,
                             .nth = w->nth};
    tell(p, &d);
    free(w);
}

/* Its partitions are known now: in their order, to where they belong. */
static void place_waiting(wire_producer *p, wire_ptopic *t)
{
    while (t->first_waiting) {
        wire_ppart *part = part_for(p, t, &t->first_waiting->out);
        if (!part) {
            fail_waiting(p, t, BUS_ERR__UNKNOWN_PARTITION, NULL);
            continue;
        }
        wire_waiting *w = next_waiting(t);
        add_to(p, part, &w->out, w->nth);
        free(w);
    }
}

/* Neither its records nor those that lie in batches of it will get anywhere. */
static void give_up_topic(wire_producer *p, wire_ptopic *t, int code, const char *reason)
{
    while (t->first_waiting)
        fail_waiting(p, t, code, reason);
}

static void look_at_topic(wire_producer *p, wire_ptopic *t, int64_t now)
{
    if (t->first_waiting || now - t->looked_us >= 10 * LOOK_US)
        sync_topic(p, t);
    if (!t->first_waiting)
        return;
    if (t->n) {
        place_waiting(p, t);
        return;
    }
    const wire_topic *known = wire_net_topic(p->handle.net, t->name);
    int code = known ? known->code : 0;
    if (code == BUS_ERR_TOPIC_AUTHORIZATION_FAILED || code == BUS_ERR_TOPIC_EXCEPTION)
        give_up_topic(p, t, code, NULL);
    else if (t->unknown_since_us && now - t->unknown_since_us >= p->conf->metadata_propagation * 1000LL)
        give_up_topic(p, t, code == BUS_ERR_UNKNOWN_TOPIC_OR_PART || !code ? BUS_ERR__UNKNOWN_TOPIC : code, NULL);
    while (t->first_waiting && p->delivery_us && now - t->first_waiting->born_us >= p->delivery_us)
        fail_waiting(p, t, BUS_ERR__MSG_TIMED_OUT, NULL);
}

/* ---- records in ------------------------------------------------------------------------------------------------------------------------ */

static bool is_full(const wire_producer *p, size_t bytes)
{
    size_t most = (size_t)p->conf->queue_max_records; /* 0 = no limit */
    return (most && p->records >= most) || p->bytes + bytes > (size_t)p->conf->queue_max_kbytes * 1024;
}

static void count(wire_producer *p, size_t bytes)
{
    p->records++;
    p->bytes += bytes;
}

/* The topic's partitions, or that it has to wait: false. */
static bool is_known(wire_producer *p, wire_ptopic *t)
{
    if (!t->n)
        sync_topic(p, t);
    if (t->n && t->first_waiting)
        place_waiting(p, t);
    return t->n > 0;
}

int wire_queue_add(wire_producer *p, const pst_out *out)
{
    wire_queue_unreserve(p);
    size_t bytes = bytes_of(out);
    if (is_full(p, bytes))
        return BUS_ERR__QUEUE_FULL;
    wire_ptopic *t = wire_queue_topic(p, out->topic);
    if (!is_known(p, t)) {
        p->nth++;
        put_aside(p, t, out);
        count(p, bytes);
        return 0;
    }
    wire_ppart *part = part_for(p, t, out);
    if (!part)
        return BUS_ERR__UNKNOWN_PARTITION;
    add_to(p, part, out, ++p->nth);
    count(p, bytes);
    return 0;
}

void wire_queue_unreserve(wire_producer *p)
{
    if (p->reserved_in)
        wire_build_unreserve(&p->reserved_in->build);
    p->reserved_in = NULL;
    p->reserving = false;
}

/* Into the batch itself where there is one to write into, else aside: then it is copied once, as by send(). */
pst_buf *wire_queue_reserve(wire_producer *p, const pst_out *head)
{
    wire_queue_unreserve(p);
    p->reserved = *head;
    p->reserved.value = NULL;
    p->reserved.value_len = 0;
    p->reserving = true;
    wire_ptopic *t = wire_queue_topic(p, head->topic);
    wire_ppart *part = is_known(p, t) ? part_for(p, t, head) : NULL;
    if (!part) {
        pst_buf_clear(&p->room);
        pst_buf_reserve(&p->room, 64);
        return &p->room;
    }
    if (!p->reserved.timestamp_ms)
        p->reserved.timestamp_ms = wire_queue_now_ms();
    p->reserved_in = batch_for(p, part, wire_build_cost(&p->reserved));
    pst_buf *room = wire_build_reserve(&p->reserved_in->build, &p->reserved);
    p->reserved_at = room->len;
    return room;
}

/* The value made the batch too large: its record begins the next one. */
static void move_on(wire_producer *p, wire_pbatch *b, size_t at)
{
    pst_buf value = {0};
    pst_buf_add(&value, b->build.bytes.data + at, b->build.bytes.len - at);
    wire_build_unreserve(&b->build);
    wire_queue_close(p, b);
    p->reserved.value = value.data;
    p->reserved.value_len = value.len;
    add_to(p, b->part, &p->reserved, ++p->nth);
    pst_buf_done(&value);
}

/* The queue is full, and a batch that somebody writes in is not sent: so the value waits elsewhere, for as long as whoever wrote it asks again. */
static void put_reserved_aside(wire_producer *p, wire_pbatch *b, size_t at)
{
    pst_buf_clear(&p->room);
    pst_buf_add(&p->room, b->build.bytes.data + at, b->build.bytes.len - at);
    wire_build_unreserve(&b->build);
    p->reserved_in = NULL;
}

int wire_queue_add_reserved(wire_producer *p)
{
    PST_ASSERT(p->reserving);
    wire_pbatch *b = p->reserved_in;
    if (!b) {
        p->reserved.value = p->room.data;
        p->reserved.value_len = p->room.len;
        int code = wire_queue_add(p, &p->reserved);
        p->reserving = code != 0; /* whoever is told that the queue is full may ask again */
        return code;
    }
    size_t at = p->reserved_at;
    PST_ASSERT(b->build.bytes.len >= at);
    p->reserved.value_len = b->build.bytes.len - at;
    size_t bytes = bytes_of(&p->reserved);
    if (is_full(p, bytes)) {
        put_reserved_aside(p, b, at);
        return BUS_ERR__QUEUE_FULL;
    }
    p->reserved_in = NULL;
    p->reserving = false;
    size_t more = wire_build_cost(&p->reserved) - p->reserved.key_len - p->reserved.value_len; /* headers and lengths, still to be put in */
    if (b->n && b->build.bytes.len + more > p->batch_bytes) {
        move_on(p, b, at);
    } else {
        wire_build_commit(&b->build);
        mark(p, b, &p->reserved, ++p->nth);
    }
    count(p, bytes);
    return 0;
}

/* ---- records out --------------------------------------------------------------------------------------------------------------------------- */

/* The records of a batch as they were given: they are read back from it, which costs something, but only where a client died. */
static void report_unsent(wire_producer *p, wire_pbatch *b, int code, const char *reason)
{
    const wire_seal seal = {.producer_id = -1, .producer_epoch = -1, .base_sequence = -1, .codec = WIRE_NONE, .level = -1};
    wire_batch_head head;
    wire_records r = {0};
    wire_block *unpacked = NULL;
    pst_err ignored = {0};
    pst_header headers[64], *many = NULL;
    uint32_t told = 0;
    bool readable = b->block || wire_build_close(&b->build, &seal, &b->block, &ignored) == 0;
    if (readable) {
        wire_in in = wire_in_of(b->block->data, b->block->len, false);
        readable = wire_batch_next(&in, false, &head, &ignored) == 1;
    }
    if (readable && head.codec != WIRE_NONE)
        readable = wire_unpack(head.codec, head.records, head.records_len, WIRE_BATCH_MAX, &unpacked, &ignored) == 0;
    bool begun = readable && wire_records_begin(&head, unpacked ? unpacked : b->block, &r, &ignored) == 0;
    pst_record rec = {0};
    while (begun && told < b->n && wire_records_next(&r, &rec, 1, &ignored) == 1) {
        pst_out out = {.topic = b->part->topic->name,
                       .partition = b->part->index,
                       .key = rec.key,
                       .key_len = rec.key_len,
                       .value = rec.value,
                       .value_len = rec.value_len,
                       .timestamp_ms = rec.timestamp_ms,
                       .opaque = b->marks[told].opaque};
        if (rec.has_headers) {
            out.n_headers = wire_record_headers(&rec, headers, 64);
            out.headers = headers;
            if (out.n_headers > 64) {
                out.headers = many = pst_alloc(out.n_headers * sizeof *many);
                wire_record_headers(&rec, many, out.n_headers);
            }
        }
        const bus_delivered d = {.code = code,
                                 .reason = reason,
                                 .topic = out.topic,
                                 .partition = out.partition,
                                 .offset = -1,
                                 .opaque = out.opaque,
                                 .unsent = &out,
                                 .nth = b->marks[told].nth};
        told++;
        tell(p, &d);
        free(many);
        many = NULL;
    }
    PST_ASSERT(told == b->n); /* we have written them ourselves */
    if (begun)
        wire_records_done(&r);
    wire_block_drop(unpacked);
}

void wire_queue_report(wire_producer *p, wire_pbatch *b, int code, const char *reason, int64_t base_offset, bool unsent)
{
    p->records -= b->n;
    p->bytes -= b->bytes;
    if (unsent && b->n) {
        report_unsent(p, b, code, reason);
    } else {
        bus_delivered d = {.code = code, .reason = reason, .topic = b->part->topic->name, .partition = b->part->index, .offset = -1};
        for (uint32_t i = 0; i < b->n; i++) {
            d.offset = !code && base_offset >= 0 ? base_offset + i : -1;
            d.opaque = b->marks[i].opaque;
            tell(p, &d);
        }
    }
    reuse_batch(p, b);
}

/* Whoever comes too late is told so. One that was never sent leaves no trace; the number of one that was is missing from now on. */
static void expire(wire_producer *p, wire_ppart *part, int64_t now)
{
    wire_pbatch *b;
    while ((b = part->first) && b->n && !b->under_way && now - b->born_us >= p->delivery_us) {
        if (b == p->reserved_in)
            wire_queue_unreserve(p);
        int code = b->last_code ? b->last_code : BUS_ERR__MSG_TIMED_OUT;
        if (b->sealed_for && !b->refused) {
            part->gap = true;
            p->drain = true;
        }
        wire_queue_take(b);
        if (wire_is_txn(p) && b->n)
            wire_txn_fail(p, BUS_ERR__MSG_TIMED_OUT, "records were not acknowledged in time");
        wire_queue_report(p, b, b->perhaps ? BUS_ERR__MSG_TIMED_OUT : code, NULL, -1, false);
    }
}

void wire_queue_look(wire_producer *p, int64_t now)
{
    if (now - p->expired_us < LOOK_US)
        return;
    p->expired_us = now;
    for (wire_ptopic *t = p->topics; t; t = t->next)
        look_at_topic(p, t, now);
    for (wire_ppart *part = p->active; part && p->delivery_us; part = part->next_active)
        expire(p, part, now);
}

/* Why a record that is dropped was not sent: the client's death, or somebody's wish. */
static int why_dropped(const wire_producer *p, const wire_pbatch *b)
{
    if (p->fatal_code)
        return p->fatal_code;
    return b && b->perhaps ? BUS_ERR__PURGE_INFLIGHT : BUS_ERR__PURGE_QUEUE;
}

void wire_queue_drop(wire_producer *p, bool under_way)
{
    wire_queue_unreserve(p);
    for (wire_ptopic *t = p->topics; t; t = t->next) {
        give_up_topic(p, t, why_dropped(p, NULL), p->fatal_code ? p->fatal_text : NULL);
        for (int32_t i = 0; i < t->n; i++) {
            wire_ppart *part = t->parts[i];
            wire_pbatch *keep = NULL, *b = part->first, *all = b;
            while (b && b->under_way && !under_way) { /* they are the first: what waits comes behind */
                keep = b;
                b = b->next;
            }
            if (!b)
                continue;
            if (keep) {
                keep->next = NULL;
                part->last = keep;
                all = b;
            } else {
                part->first = part->last = NULL;
            }
            for (wire_pbatch *next; all; all = next) {
                next = all->next;
                all->next = NULL;
                if (all->perhaps && !all->refused) { /* its number is used, and nobody knows */
                    part->gap = p->drain = true;
                    p->txn.dirty = true;
                } else if (all->sealed_for) {
                    part->gap = p->drain = true;
                }
                wire_queue_report(p, all, why_dropped(p, all), p->fatal_code ? p->fatal_text : NULL, -1,
                                  p->fatal_code && !wire_is_txn(p) && (!all->perhaps || all->refused));
            }
        }
    }
}

static void free_topic(wire_ptopic *t)
{
    for (wire_waiting *w = t->first_waiting, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    for (int32_t i = 0; i < t->n; i++) {
        for (wire_pbatch *b = t->parts[i]->first, *next; b; b = next) {
            next = b->next;
            free_batch(b);
        }
        free(t->parts[i]);
    }
    free(t->parts);
    free(t->name);
    free(t);
}

void wire_queue_done(wire_producer *p)
{
    for (wire_ptopic *t = p->topics, *next; t; t = next) {
        next = t->next;
        free_topic(t);
    }
    for (wire_pbatch *b = p->spare, *next; b; b = next) {
        next = b->next;
        free_batch(b);
    }
    p->topics = p->last_topic = NULL;
    p->spare = NULL;
    pst_buf_done(&p->room);
}
