/* test_wire_fetch.c - Fetch against a net that the test plays itself: what is asked for, and what comes of answers that are right, cut off at every byte, or lie.
 * The functions of wire_net.h that are used are here, so the real ones are not linked. */
#include "common/base/hash.h"
#include "common/bus/wire/wire_consumer.h"
#include "common/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- the net ------------------------------------------------------------------------------------------------------------------------ */

struct wire_call {
    const wire_api *api;
    wire_put_body put;
    wire_on_answer answered;
    void *owner;
    int lane;
    bool live;
};

#define CALLS 16
static struct wire_call calls[CALLS];
static const int32_t leaders[] = {1, 1}, epochs[] = {5, 5};
static const wire_topic the_topic = {.name = "t", .id = {9, 9}, .n = 2, .leader = leaders, .leader_epoch = epochs, .known_us = 1};
static int stale;

int wire_net_open(const wire_conf *conf, const bus_listener *to, wire_net **ret, pst_err *err)
{
    *ret = (wire_net *)calls;
    memset(calls, 0, sizeof calls);
    return 0;
}
void wire_net_free(wire_net *net)
{
}
void wire_net_push(wire_net *net);
void wire_net_push(wire_net *net)
{
}
int wire_net_turn(wire_net *net, int timeout_ms)
{
    return 0;
}
int wire_net_fatal(const wire_net *net, char *text, size_t size)
{
    return 0;
}
const wire_topic *wire_net_topic(wire_net *net, const char *name)
{
    return strcmp(name, "t") ? NULL : &the_topic;
}
const wire_topic *wire_net_topic_by_id(wire_net *net, const uint8_t id[16])
{
    return memcmp(id, the_topic.id, 16) ? NULL : &the_topic;
}
int32_t wire_net_leader(wire_net *net, const char *name, int32_t partition)
{
    return 1;
}
void wire_net_stale(wire_net *net, const char *name)
{
    stale++;
}
int32_t wire_net_coordinator(wire_net *net, wire_coordinator_kind kind, const char *key, int *ret_code)
{
    return -1;
}
void wire_net_coordinator_stale(wire_net *net, wire_coordinator_kind kind, const char *key)
{
}
int32_t wire_net_any(wire_net *net)
{
    return 1;
}
const char *wire_net_cluster_id(const wire_net *net)
{
    return NULL;
}
wire_call *wire_net_call(wire_net *net, int32_t node, const wire_api *api, int timeout_ms, wire_put_body put, wire_on_answer answered,
                         void *owner)
{
    for (int i = 0; i < CALLS; i++)
        if (!calls[i].live) {
            calls[i] = (struct wire_call){.api = api, .put = put, .answered = answered, .owner = owner, .live = true};
            return &calls[i];
        }
    fail_msg("too many calls");
    return NULL;
}
void wire_call_forget(wire_call *call)
{
    call->live = false;
}
void wire_call_lane(wire_call *call, int lane)
{
    call->lane = lane;
}

/* The producer's: linked beside the consumer, and not called. */
void wire_call_splice(wire_call *call, wire_block *block)
{
}
void wire_call_throttled(const wire_call *call, int32_t ms)
{
}
void *wire_call_owner(const wire_call *call)
{
    return call->owner;
}
int16_t wire_net_version(wire_net *net, int32_t node, const wire_api *api)
{
    return -1;
}
int wire_net_feature(const wire_net *net, const char *name)
{
    return 0;
}
void wire_net_forget_topic(wire_net *net, const char *name)
{
}

static wire_call *under_way(void)
{
    for (int i = 0; i < CALLS; i++)
        if (calls[i].live)
            return &calls[i];
    return NULL;
}

/* ---- requests and answers --------------------------------------------------------------------------------------------------------------- */

#define VERSION 13

typedef struct asked { /* what a Fetch said */
    int32_t wait_ms, session, epoch, last;
    size_t topics, forgotten;
    int32_t partition;
    int64_t offset;
} asked;

static asked read_request(wire_call *call)
{
    pst_buf b = {0};
    asked q = {.offset = -1};
    call->put(call->owner, call, VERSION, &(wire_out){.to = &b, .flexible = true});
    wire_in in = wire_in_of(b.data, b.len, true);
    assert_int_equal(wire_get_i32(&in), -1);
    q.wait_ms = wire_get_i32(&in);
    wire_get_i32(&in);
    assert_true(wire_get_i32(&in) > 0);
    assert_int_equal(wire_get_i8(&in), 1);
    q.session = wire_get_i32(&in);
    q.epoch = wire_get_i32(&in);
    q.topics = wire_get_count(&in, 1, NULL);
    for (size_t i = 0; i < q.topics; i++) {
        uint8_t id[16];
        wire_get_uuid(&in, id);
        assert_memory_equal(id, the_topic.id, 16);
        assert_int_equal(wire_get_count(&in, 1, NULL), 1);
        q.partition = wire_get_i32(&in);
        assert_int_equal(wire_get_i32(&in), 5);
        q.offset = wire_get_i64(&in);
        q.last = wire_get_i32(&in);
        wire_get_i64(&in);
        wire_get_i32(&in);
        wire_get_tags(&in);
        wire_get_tags(&in);
    }
    q.forgotten = wire_get_count(&in, 1, NULL);
    for (size_t i = 0; i < q.forgotten; i++) {
        uint8_t id[16];
        wire_get_uuid(&in, id);
        assert_int_equal(wire_get_count(&in, 1, NULL), 1);
        wire_get_i32(&in);
        wire_get_tags(&in);
    }
    wire_get_str(&in);
    wire_get_tags(&in);
    assert_true(wire_in_done(&in));
    pst_buf_done(&b);
    return q;
}

/* Its memory is as long as it is, so that a look behind it is seen. */
static void answer(wire_call *call, const void *bytes, size_t len, int code)
{
    wire_block *block = wire_block_new(len ? len : 1);
    memcpy(block->data, bytes, len);
    block->len = len;
    call->live = false;
    const wire_answer a = {
        .code = code, .version = VERSION, .body = wire_in_of(block->data, len, true), .block = block, .node = 1, .sent_us = pst_mono_us()};
    call->answered(call->owner, call, &a);
    wire_block_drop(block);
}

typedef struct told { /* of one partition */
    int code;
    int64_t high, stable;
    int64_t aborted_by, aborted_from; /* 0 = none */
    const pst_buf *records;
    int64_t ends_at; /* its history, of the epoch ends_epoch; 0 = it is the reader's */
    int32_t ends_epoch;
} told;

static void put_answer(pst_buf *to, int code, int32_t session, const told *t)
{
    wire_out o = {.to = to, .flexible = true};
    wire_put_i32(&o, 0);
    wire_put_i16(&o, (int16_t)code);
    wire_put_i32(&o, session);
    wire_put_count(&o, t ? 1 : 0);
    if (t) {
        wire_put_uuid(&o, the_topic.id);
        wire_put_count(&o, 1);
        wire_put_i32(&o, 0);
        wire_put_i16(&o, (int16_t)t->code);
        wire_put_i64(&o, t->high);
        wire_put_i64(&o, t->stable);
        wire_put_i64(&o, 0);
        wire_put_count(&o, t->aborted_by ? 1 : 0);
        if (t->aborted_by) {
            wire_put_i64(&o, t->aborted_by);
            wire_put_i64(&o, t->aborted_from);
            wire_put_tags(&o);
        }
        wire_put_i32(&o, -1);
        if (t->records)
            wire_put_blob(&o, t->records->data, t->records->len);
        else
            wire_put_uvarint(&o, 0);
        if (t->ends_at) {
            wire_put_uvarint(&o, 1);
            wire_put_uvarint(&o, 0);
            wire_put_uvarint(&o, 13);
            wire_put_i32(&o, t->ends_epoch);
            wire_put_i64(&o, t->ends_at);
        }
        wire_put_tags(&o);
        wire_put_tags(&o);
    }
    wire_put_tags(&o);
}

/* The leader's, in which the first batch was written: the sum does not include it. */
static void put_epoch(pst_buf *records, uint8_t epoch)
{
    const uint8_t bytes[] = {0, 0, 0, epoch};
    memcpy(records->data + 12, bytes, sizeof bytes);
}

/* A batch of n records of so many bytes that pack well. */
static void put_packed(pst_buf *to, int64_t at, int n, size_t bytes)
{
    wire_build b = {0};
    wire_block *block;
    pst_err err = {0};
    char *value = calloc(1, bytes);
    wire_build_begin(&b);
    for (int i = 0; i < n; i++)
        wire_build_add(&b, &(pst_out){.value = value, .value_len = bytes, .timestamp_ms = 1});
    const wire_seal seal = {.producer_id = -1, .producer_epoch = -1, .base_sequence = -1, .codec = WIRE_GZIP, .level = -1};
    assert_int_equal(wire_build_close(&b, &seal, &block, &err), 0);
    assert_true(block->len < bytes);
    for (int i = 0; i < 8; i++)
        block->data[i] = (uint8_t)((uint64_t)at >> (56 - 8 * i));
    pst_buf_add(to, block->data, block->len);
    wire_block_drop(block);
    wire_build_done(&b);
    free(value);
}

/* A batch of n records from this offset; producer 0 = none. control: n = 1, a marker that says abort. */
static void put_batch(pst_buf *to, int64_t at, int n, int64_t producer, bool control)
{
    static const uint8_t abort_key[] = {0, 0, 0, 0};
    wire_build b = {0};
    wire_block *block;
    pst_err err = {0};
    wire_build_begin(&b);
    for (int i = 0; i < n; i++) {
        char text[24];
        int len = snprintf(text, sizeof text, "value-%lld", (long long)at + i);
        wire_build_add(&b, &(pst_out){.key = control ? abort_key : NULL,
                                      .key_len = control ? sizeof abort_key : 0,
                                      .value = text,
                                      .value_len = (size_t)len,
                                      .timestamp_ms = 1000 + i});
    }
    const wire_seal seal = {
        .producer_id = producer ? producer : -1, .producer_epoch = 0, .base_sequence = 0, .transactional = producer != 0};
    assert_int_equal(wire_build_close(&b, &seal, &block, &err), 0);
    for (int i = 0; i < 8; i++)
        block->data[i] = (uint8_t)((uint64_t)at >> (56 - 8 * i));
    if (control)
        block->data[22] |= 0x20;
    uint32_t crc = pst_crc32c(0, block->data + 21, block->len - 21);
    for (int i = 0; i < 4; i++)
        block->data[17 + i] = (uint8_t)(crc >> (24 - 8 * i));
    pst_buf_add(to, block->data, block->len);
    wire_block_drop(block);
    wire_build_done(&b);
}

/* ---- a consumer ---------------------------------------------------------------------------------------------------------------------------- */

static int faults, moved;
static void on_fault(void *owner, int code, const char *reason)
{
    faults++;
}
static void on_moved(void *owner)
{
    moved++;
}

static bus_handle *open_at(int64_t offset)
{
    bus_handle *h;
    pst_err err = {0};
    pst_bus_conf *conf = pst_bus_conf_new("nobody:1", "test");
    const bus_consumer_needs needs = {.inflight_bytes = 8u << 20, .poll_interval_ms = 300000};
    const bus_listener to = {.fault = on_fault, .moved = on_moved};
    faults = moved = 0;
    assert_int_equal(wire_consumer_ops.open(conf, &needs, &to, &h, &err), 0);
    pst_bus_conf_free(conf);
    bus_place at = {.topic = (char *)"t", .offset = offset};
    assert_int_equal(wire_consumer_ops.assign(h, &(bus_places){.at = &at, .n = 1}), 0);
    return h;
}

static void free_consumer(bus_handle *h)
{
    wire_handle_of(h)->life->free(wire_handle_of(h));
}

static bus_run poll_once(bus_handle *h, pst_record *room, size_t max)
{
    bus_run run;
    ((wire_consumer *)h)->turned_us = 0; /* it turns at once */
    wire_consumer_ops.poll(h, 0, room, max, 1u << 20, &run);
    return run;
}

/* Takes what there is; offsets into seen, which must rise. How many. */
static int take(bus_handle *h, int64_t *seen, int max, int64_t *ret_end)
{
    pst_record room[16];
    int n = 0;
    for (int none = 0; none < 2;) {
        bus_run run = poll_once(h, room, 16);
        none += run.kind == BUS_RUN_NONE;
        faults += run.kind == BUS_RUN_FAULT;
        if (run.kind == BUS_RUN_END)
            *ret_end = run.offset;
        for (size_t i = 0; run.kind == BUS_RUN_RECORDS && i < run.n; i++) {
            assert_true(n < max);
            assert_true(n == 0 || room[i].offset > seen[n - 1]);
            seen[n++] = room[i].offset;
        }
        if (run.kind == BUS_RUN_RECORDS)
            wire_consumer_ops.release(h, room, run.n);
    }
    return n;
}

static wire_call *next_fetch(bus_handle *h)
{
    pst_record room[1];
    for (int i = 0; i < 400 && !under_way(); i++) {
        wire_consumer_ops.poll(h, 0, room, 0, 0, &(bus_run){0});
        pst_sleep_ms(5); /* a step back may be under way */
    }
    assert_non_null(under_way());
    return under_way();
}

static void put_history(pst_buf *to)
{
    put_batch(to, 0, 3, 0, false); /* 0 1 2 */
    put_batch(to, 3, 3, 7, false); /* aborted */
    put_batch(to, 6, 1, 7, true);  /* its marker */
    put_batch(to, 8, 2, 7, false); /* 8 9: the same producer again; 7 was compacted away */
    put_batch(to, 10, 1, 8, true); /* somebody else's marker */
}

static void test_fetch_hides_aborts_markers_and_gaps(void **state)
{
    pst_buf records = {0}, bytes = {0};
    put_history(&records);
    put_answer(&bytes, 0, 77, &(told){.high = 11, .stable = 11, .aborted_by = 7, .aborted_from = 3, .records = &records});
    bus_handle *h = open_at(0);
    asked q = read_request(next_fetch(h));
    assert_int_equal(q.session, 0);
    assert_int_equal(q.epoch, 0);
    assert_int_equal(q.offset, 0);
    assert_int_equal(q.wait_ms, 0); /* nothing is known yet: it is answered at once */
    answer(under_way(), bytes.data, bytes.len, 0);
    int64_t seen[20], end = -1;
    assert_int_equal(take(h, seen, 20, &end), 5);
    static const int64_t expected[] = {0, 1, 2, 8, 9};
    assert_memory_equal(seen, expected, sizeof expected);
    assert_int_equal(end, 11);
    q = read_request(next_fetch(h)); /* at its end: held back by the broker, in a session of its own */
    assert_int_equal(q.wait_ms, 100);
    assert_int_equal(q.session, 0);
    assert_int_equal(q.offset, 11);
    free_consumer(h);
    pst_buf_done(&records);
    pst_buf_done(&bytes);
}

/* From the middle of a batch; and one of which only what is uncommitted lies there. */
static void test_fetch_begins_in_the_middle_of_a_batch(void **state)
{
    pst_buf records = {0}, bytes = {0};
    put_batch(&records, 0, 10, 0, false);
    put_answer(&bytes, 0, 77, &(told){.high = 10, .stable = 10, .records = &records});
    bus_handle *h = open_at(6);
    read_request(next_fetch(h));
    answer(under_way(), bytes.data, bytes.len, 0);
    int64_t seen[20], end = -1;
    assert_int_equal(take(h, seen, 20, &end), 4);
    assert_int_equal(seen[0], 6);
    assert_int_equal(end, 10);
    free_consumer(h);
    pst_buf_done(&records);
    pst_buf_done(&bytes);
}

static void test_fetch_keeps_to_its_session(void **state)
{
    pst_buf bytes = {0}, records = {0};
    put_batch(&records, 0, 2, 0, false);
    put_answer(&bytes, 0, 77, &(told){.high = 100, .stable = 100, .records = &records});
    bus_handle *h = open_at(0);
    int64_t seen[20], end = -1;
    read_request(next_fetch(h));
    answer(under_way(), bytes.data, bytes.len, 0);
    assert_int_equal(take(h, seen, 20, &end), 2);
    asked q = read_request(next_fetch(h));
    assert_int_equal(q.session, 77);
    assert_int_equal(q.epoch, 1);
    assert_int_equal(q.topics, 1); /* its offset moved */
    assert_int_equal(q.offset, 2);
    pst_buf_clear(&bytes);
    put_answer(&bytes, 0, 77, NULL); /* nothing is new */
    answer(under_way(), bytes.data, bytes.len, 0);
    q = read_request(next_fetch(h));
    assert_int_equal(q.epoch, 2);
    assert_int_equal(q.topics, 0); /* the session knows */
    pst_buf_clear(&bytes);
    put_answer(&bytes, 71, 0, NULL); /* INVALID_FETCH_SESSION_EPOCH: all anew */
    answer(under_way(), bytes.data, bytes.len, 0);
    q = read_request(next_fetch(h));
    assert_int_equal(q.session, 0);
    assert_int_equal(q.epoch, 0);
    assert_int_equal(q.offset, 2);
    answer(under_way(), "", 0, BUS_ERR__TRANSPORT);
    q = read_request(next_fetch(h));
    assert_int_equal(q.session, 0);
    assert_int_equal(q.topics, 1);
    assert_int_equal(faults, 0);
    assert_true(stale > 0);
    free_consumer(h);
    pst_buf_done(&records);
    pst_buf_done(&bytes);
}

/* It was moved while the answer was under way: what comes is of the place where it stood. */
static void test_fetch_throws_away_what_it_was_moved_from(void **state)
{
    pst_buf records = {0}, bytes = {0};
    put_batch(&records, 0, 10, 0, false);
    put_answer(&bytes, 0, 77, &(told){.high = 10, .stable = 10, .records = &records});
    bus_handle *h = open_at(0);
    read_request(next_fetch(h));
    bus_place at = {.topic = (char *)"t", .offset = 5};
    char why[100];
    assert_int_equal(wire_consumer_ops.seek(h, &(bus_places){.at = &at, .n = 1}, 0, why, sizeof why), 0);
    answer(under_way(), bytes.data, bytes.len, 0);
    int64_t seen[20], end = -1;
    assert_int_equal(take(h, seen, 20, &end), 0);
    assert_int_equal(end, -1);
    assert_int_equal(read_request(next_fetch(h)).offset, 5);
    answer(under_way(), bytes.data, bytes.len, 0);
    assert_int_equal(take(h, seen, 20, &end), 5);
    assert_int_equal(seen[0], 5);
    free_consumer(h);
    pst_buf_done(&records);
    pst_buf_done(&bytes);
}

static void test_fetch_out_of_range_begins_where_it_is_told_to(void **state)
{
    pst_buf bytes = {0};
    put_answer(&bytes, 0, 77, &(told){.code = 1, .high = -1, .stable = -1});
    bus_handle *h = open_at(500);
    read_request(next_fetch(h));
    answer(under_way(), bytes.data, bytes.len, 0);
    assert_int_equal(moved, 1);
    assert_string_equal(next_fetch(h)->api->name, "ListOffsets");
    free_consumer(h);
    pst_buf_done(&bytes);
}

static void no_step_back(bus_handle *h)
{
    wire_consumer *c = (wire_consumer *)h;
    for (size_t p = 0; p < c->n_parts; p++)
        c->parts[p]->not_before_us = 0;
    for (size_t s = 0; s < c->n_sources; s++)
        c->sources[s]->not_before_us = 0;
}

/* Eight batches of a few kilobytes, of 2 MiB each when they are unpacked: as many as fit into the 8 MiB of the consumer lie there at once. */
static void test_fetch_counts_what_is_unpacked(void **state)
{
    pst_buf records = {0}, bytes = {0};
    for (int i = 0; i < 8; i++)
        put_packed(&records, i, 1, 2u << 20);
    put_answer(&bytes, 0, 77, &(told){.high = 8, .stable = 8, .records = &records});
    bus_handle *h = open_at(0);
    read_request(next_fetch(h));
    answer(under_way(), bytes.data, bytes.len, 0);
    pst_record room[8];
    size_t n = 0, most = 0;
    for (int round = 0, none = 0; none < 20 && n < 8; round++) {
        bus_run run = poll_once(h, room + n, 8 - n);
        none = run.kind == BUS_RUN_NONE ? none + 1 : 0;
        n += run.kind == BUS_RUN_RECORDS ? run.n : 0;
        most = n > most ? n : most;
    }
    assert_in_range(most, 2, 5);
    wire_consumer_ops.release(h, room, n);
    int64_t seen[20], end = -1;
    assert_int_equal(n + (size_t)take(h, seen, 20, &end), 8);
    assert_int_equal(end, 8);
    assert_int_equal(faults, 0);
    free_consumer(h);
    pst_buf_done(&records);
    pst_buf_done(&bytes);
}

/* What cannot be read is no outage: it is told with its place once it is sure, what lies before it comes, and nothing behind it. */
static void test_fetch_tells_what_can_never_be_read(void **state)
{
    pst_buf records = {0}, bytes = {0};
    put_batch(&records, 0, 3, 0, false);
    size_t at = records.len;
    put_batch(&records, 3, 3, 0, false);
    records.data[at + 70] ^= 1;
    put_batch(&records, 6, 3, 0, false);
    put_answer(&bytes, 0, 77, &(told){.high = 20, .stable = 20, .records = &records});
    bus_handle *h = open_at(0);
    int n = 0, told_it = 0, others = 0;
    for (int i = 0; i < 3; i++) {
        no_step_back(h);
        read_request(next_fetch(h));
        answer(under_way(), bytes.data, bytes.len, 0);
        for (int k = 0; k < 4; k++) {
            pst_record room[16];
            bus_run run = poll_once(h, room, 16);
            if (run.kind == BUS_RUN_RECORDS) {
                n += (int)run.n;
                wire_consumer_ops.release(h, room, run.n);
            }
            if (run.kind != BUS_RUN_FAULT)
                continue;
            bool it = run.code == BUS_ERR_INVALID_MSG && run.topic && run.offset == 3 && strstr(run.reason, "CRC");
            told_it += it;
            others += !it;
        }
        assert_int_equal(told_it, i); /* the first time it may have been broken on the way */
    }
    assert_int_equal(n, 3);
    assert_int_equal(others, 0);
    free_consumer(h);
    pst_buf_done(&records);
    pst_buf_done(&bytes);
}

/* KIP-320: a replica was elected that does not have what was read. It is read on from where the histories part, also by whoever goes back to where he was. */
static void test_fetch_goes_on_where_a_log_was_cut_off(void **state)
{
    pst_buf records = {0}, bytes = {0};
    put_batch(&records, 0, 10, 0, false);
    put_epoch(&records, 4);
    put_answer(&bytes, 0, 77, &(told){.high = 20, .stable = 20, .records = &records});
    bus_handle *h = open_at(0);
    int64_t seen[20], end = -1;
    assert_int_equal(read_request(next_fetch(h)).last, -1);
    answer(under_way(), bytes.data, bytes.len, 0);
    assert_int_equal(take(h, seen, 20, &end), 10);
    no_step_back(h);
    asked q = read_request(next_fetch(h));
    assert_int_equal(q.offset, 10);
    assert_int_equal(q.last, 4);
    pst_buf_clear(&bytes);
    put_answer(&bytes, 0, 77, &(told){.high = -1, .stable = -1, .ends_at = 7, .ends_epoch = 3});
    answer(under_way(), bytes.data, bytes.len, 0);
    assert_int_equal(take(h, seen, 20, &end), 0);
    assert_int_equal(moved, 1);
    bus_place at = {.topic = (char *)"t", .offset = 10};
    char why[100];
    wire_consumer_ops.seek(h, &(bus_places){.at = &at, .n = 1}, 0, why, sizeof why);
    no_step_back(h);
    q = read_request(next_fetch(h));
    assert_int_equal(q.offset, 7);
    pst_buf_clear(&bytes);
    pst_buf_clear(&records);
    put_batch(&records, 7, 5, 0, false);
    put_epoch(&records, 5);
    put_answer(&bytes, 0, 77, &(told){.high = 20, .stable = 20, .records = &records});
    answer(under_way(), bytes.data, bytes.len, 0);
    assert_int_equal(take(h, seen, 20, &end), 5);
    assert_int_equal(seen[0], 7);
    assert_int_equal(moved, 1);
    assert_int_equal(faults, 0);
    at.offset = 9; /* read anew: now it is what it says */
    wire_consumer_ops.seek(h, &(bus_places){.at = &at, .n = 1}, 0, why, sizeof why);
    no_step_back(h);
    q = read_request(next_fetch(h));
    assert_int_equal(q.offset, 9);
    assert_int_equal(q.last, 5);
    free_consumer(h);
    pst_buf_done(&records);
    pst_buf_done(&bytes);
}

/* After whatever came, the right answer gives the rest, each once. */
static void then_all_comes(bus_handle *h, const pst_buf *right, int64_t *seen, int n)
{
    static const int64_t expected[] = {0, 1, 2, 8, 9};
    int64_t end = -1;
    for (int i = 0; i < 3 && n < 5; i++) {
        no_step_back(h);
        read_request(next_fetch(h));
        answer(under_way(), right->data, right->len, 0);
        n += take(h, seen + n, 20 - n, &end);
    }
    assert_int_equal(n, 5);
    assert_memory_equal(seen, expected, sizeof expected);
}

static void test_fetch_survives_every_truncation(void **state)
{
    pst_buf records = {0}, right = {0};
    put_history(&records);
    put_answer(&right, 0, 77, &(told){.high = 11, .stable = 11, .aborted_by = 7, .aborted_from = 3, .records = &records});
    for (size_t n = 0; n < right.len; n++) {
        bus_handle *h = open_at(0);
        int64_t seen[20], end = -1;
        read_request(next_fetch(h));
        answer(under_way(), right.data, n, 0);
        int got = take(h, seen, 20, &end);
        then_all_comes(h, &right, seen, got);
        free_consumer(h);
    }
    pst_buf_done(&records);
    pst_buf_done(&right);
}

/* Each byte another: whatever it says, nothing is read that is not there, offsets rise, and records have passed their checksum. */
static void test_fetch_survives_every_lie(void **state)
{
    pst_buf records = {0}, right = {0};
    put_history(&records);
    put_answer(&right, 0, 77, &(told){.high = 11, .stable = 11, .aborted_by = 7, .aborted_from = 3, .records = &records});
    static const uint8_t lies[] = {0xff, 0x80, 0x7f, 0x01};
    for (size_t i = 0; i < right.len; i++)
        for (size_t k = 0; k < sizeof lies; k++) {
            uint8_t *wrong = malloc(right.len);
            memcpy(wrong, right.data, right.len);
            wrong[i] ^= lies[k];
            bus_handle *h = open_at(0);
            int64_t seen[40], end = -1;
            read_request(next_fetch(h));
            answer(under_way(), wrong, right.len, 0);
            take(h, seen, 40, &end);
            free_consumer(h);
            free(wrong);
        }
    pst_buf_done(&records);
    pst_buf_done(&right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch_hides_aborts_markers_and_gaps),
        cmocka_unit_test(test_fetch_begins_in_the_middle_of_a_batch),
        cmocka_unit_test(test_fetch_keeps_to_its_session),
        cmocka_unit_test(test_fetch_throws_away_what_it_was_moved_from),
        cmocka_unit_test(test_fetch_out_of_range_begins_where_it_is_told_to),
        cmocka_unit_test(test_fetch_counts_what_is_unpacked),
        cmocka_unit_test(test_fetch_tells_what_can_never_be_read),
        cmocka_unit_test(test_fetch_goes_on_where_a_log_was_cut_off),
        cmocka_unit_test(test_fetch_survives_every_truncation),
        cmocka_unit_test(test_fetch_survives_every_lie),
    };
    return cmocka_run_group_tests_name("wire_fetch", tests, NULL, NULL);
}
