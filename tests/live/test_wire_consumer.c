/* test_wire_consumer.c - our own client reads what librdkafka reads, from a real Kafka: librdkafka is the oracle. Both are driven at the seam (bus_client.h), on
 * the same topics, and what they gave is compared as text: offsets, times, keys, values, headers, ends. */
#include "bus_live.h"
#include "common/bus/bus_admin.h"
#include "common/bus/rdkafka/rdk.h"
#include "common/bus/wire/wire.h"
#include "common/bus/wire/wire_conf.h"
#include "common/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const bus_client pst_rdk_client;

/* What is tested: what reads. The table of the whole client has its producer, too. */
static const bus_client wire = {.name = "wire", .conf = &wire_conf_ops, .common = &wire_common_ops, .consumer = &wire_consumer_ops};

#define PARTS 8

typedef struct reader { /* one client, and what it gave */
    const bus_client *lib;
    bus_handle *h;
    pst_buf text[PARTS]; /* of each partition */
    int64_t ends[PARTS]; /* told last; -1 = not */
    int n_ends, n;
    bus_places has;
    int faults, last_fault, assigned, revoked, lost;
    bool gives_none; /* rebalances are answered, nothing is read */
} reader;

static void on_fault(void *owner, int code, const char *reason)
{
    reader *r = owner;
    r->last_fault = code;
}

static void on_delivered(void *owner, const bus_delivered *d)
{
    assert_true(!d->code || bus_is_purge(d->code));
}

static void on_rebalance(void *owner, bus_change change, bus_places *list, bool incremental)
{
    reader *r = owner;
    char why[200];
    r->assigned += change == BUS_ASSIGNED;
    r->revoked += change == BUS_REVOKED;
    r->lost += change == BUS_LOST;
    if (change == BUS_ASSIGNED) {
        if (incremental)
            r->lib->consumer->assign_more(r->h, list, why, sizeof why);
        else
            r->lib->consumer->assign(r->h, list);
        for (size_t i = 0; i < list->n; i++) {
            r->has.at = pst_realloc(r->has.at, (r->has.n + 1) * sizeof *r->has.at);
            r->has.at[r->has.n++] = (bus_place){.partition = list->at[i].partition};
        }
        return;
    }
    if (incremental && change == BUS_REVOKED)
        r->lib->consumer->assign_less(r->h, list);
    else
        r->lib->consumer->assign(r->h, NULL);
    for (size_t i = 0; i < list->n; i++)
        for (size_t k = 0; k < r->has.n; k++)
            if (r->has.at[k].partition == list->at[i].partition) {
                r->has.at[k] = r->has.at[--r->has.n];
                break;
            }
}

static reader *open_reader(const bus_client *lib, const pst_bus_conf *with, const char *group, const char *instance, bool uncommitted)
{
    reader *r = pst_alloc(sizeof *r);
    r->lib = lib;
    for (int p = 0; p < PARTS; p++)
        r->ends[p] = -1;
    const bus_consumer_needs needs = {
        .group = group, .instance_id = instance, .read_uncommitted = uncommitted, .inflight_bytes = 32u << 20, .poll_interval_ms = 300000};
    const bus_listener to = {.owner = r, .fault = on_fault, .rebalance = on_rebalance};
    pst_err err = {0};
    ok(lib->consumer->open(with, &needs, &to, &r->h, &err), &err, lib->name);
    return r;
}

static void close_reader(reader *r)
{
    r->lib->consumer->close(r->h);
    r->lib->common->free(r->h);
    for (int p = 0; p < PARTS; p++)
        pst_buf_done(&r->text[p]);
    free(r->has.at);
    free(r);
}

static void write_record(pst_buf *to, const bus_client *lib, const pst_record *r)
{
    pst_header headers[8];
    size_t n = r->has_headers ? lib->consumer->headers(r, headers, 8) : 0;
    pst_buf_printf(to, "%lld %lld ", (long long)r->offset, (long long)r->timestamp_ms);
    pst_buf_printf(to, r->key ? "k%zu:" : "-", r->key_len);
    pst_buf_add(to, r->key, r->key_len);
    pst_buf_printf(to, r->value ? " v%zu:" : " -", r->value_len);
    pst_buf_add(to, r->value, r->value_len);
    for (size_t i = 0; i < n && i < 8; i++)
        pst_buf_printf(to, " %s=%s%.*s", headers[i].name, headers[i].value ? "" : "(null)", (int)headers[i].len,
                       headers[i].value ? (const char *)headers[i].value : "");
    pst_buf_addc(to, '\n');
}

/* One poll; releases what it gave. */
static bus_run poll_once(reader *r, int timeout_ms, size_t max)
{
    static pst_record room[1000];
    bus_run run;
    r->lib->consumer->poll(r->h, timeout_ms, room, max, 1u << 20, &run);
    if (run.kind == BUS_RUN_FAULT) {
        r->faults++;
        r->last_fault = run.code;
    } else if (run.kind == BUS_RUN_END) {
        assert_in_range(run.partition, 0, PARTS - 1);
        r->n_ends += r->ends[run.partition] < 0;
        r->ends[run.partition] = run.offset;
    } else if (run.kind == BUS_RUN_RECORDS) {
        assert_in_range(run.n, 1, max);
        for (size_t i = 0; i < run.n; i++) {
            assert_int_equal(room[i].partition, run.partition);
            write_record(&r->text[run.partition], r->lib, &room[i]);
        }
        r->n += (int)run.n;
        r->lib->consumer->release(r->h, room, run.n);
    }
    return run;
}

static void read_to_end(reader *r, const char *from, int parts, int64_t at)
{
    bus_place places[PARTS];
    bus_places list = {.at = places, .n = (size_t)parts};
    for (int p = 0; p < parts; p++)
        places[p] = (bus_place){.topic = (char *)from, .partition = p, .offset = at};
    assert_int_equal(r->lib->consumer->assign(r->h, &list), 0);
    for (int64_t until = pst_mono_us() + NET_US; r->n_ends < parts && pst_mono_us() < until;)
        poll_once(r, 100, 1000);
    assert_int_equal(r->n_ends, parts);
}

static void assert_same(const reader *a, const reader *b, int parts)
{
    for (int p = 0; p < parts; p++) {
        assert_int_equal(a->ends[p], b->ends[p]);
        assert_int_equal(a->text[p].len, b->text[p].len);
        if (a->text[p].len)
            assert_memory_equal(a->text[p].data, b->text[p].data, a->text[p].len);
    }
    assert_int_equal(a->n, b->n);
}

/* Reads from the same place with both, and compares; how many records there were. */
static int both_read(const char *from, int parts, int64_t at, bool uncommitted)
{
    reader *a = open_reader(&wire, conf, NULL, NULL, uncommitted), *b = open_reader(&pst_rdk_client, conf, NULL, NULL, uncommitted);
    read_to_end(a, from, parts, at);
    read_to_end(b, from, parts, at);
    assert_same(a, b, parts);
    int n = a->n;
    close_reader(a);
    close_reader(b);
    return n;
}

static void fill(const char *to, const char *codec, int parts, int n)
{
    pst_producer *p;
    pst_err err = {0};
    pst_bus_conf *mine = pst_bus_conf_copy(conf);
    ok(pst_bus_conf_set(mine, "compression.type", codec, "test", &err), &err, codec);
    ok(pst_producer_new(mine, &(pst_producer_opts){.linger_ms = 20}, &p, &err), &err, "producer");
    char value[700];
    for (int i = 0; i < n; i++) {
        const pst_header headers[] = {{"a", "first", 5}, {"empty", "", 0}, {"a", "second", 6}};
        size_t len = (size_t)(i * 7919 % 700);
        memset(value, 'a' + i % 26, sizeof value);
        pst_out out = {.topic = to, .partition = i % parts, .key = codec, .key_len = strlen(codec), .value = value, .value_len = len};
        out.key = i % 3 ? out.key : NULL;
        out.value = i % 11 ? value : NULL;
        out.headers = headers;
        out.n_headers = i % 5 ? 0 : (size_t)(i % 4);
        ok(pst_producer_send(p, &out, &err), &err, "send");
    }
    ok(pst_producer_flush(p, NET_MS, &err), &err, "flush");
    pst_producer_free(p);
    pst_bus_conf_free(mine);
}

static void test_wire_reads_what_librdkafka_reads(void **state)
{
    static const char *const codecs[] = {"none", "gzip", "snappy", "lz4", "zstd"};
    const char *t = topic("same", 3);
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        fill(t, codecs[i], 3, 2000);
    assert_int_equal(both_read(t, 3, PST_OFFSET_BEGINNING, false), 10000);
    assert_int_equal(both_read(t, 3, 777, false), 10000 - 3 * 777);
    assert_int_equal(both_read(t, 3, PST_OFFSET_TAIL(100), false), 300);
    assert_int_equal(both_read(t, 3, PST_OFFSET_END, false), 0);
    assert_int_equal(both_read(topic("none", 2), 2, PST_OFFSET_BEGINNING, false), 0);
}

/* One transaction of n records; how it ends: 'c'ommitted, 'a'borted, 'o'pen. The producer is left to the caller. */
static bus_handle *transact(const char *id, const char *to, int parts, int from, int n, char how)
{
    const bus_producer_ops *ops = pst_rdk_client.producer;
    const bus_producer_needs needs = {.transactional_id = id, .transaction_timeout_ms = 60000, .message_timeout_ms = 50000, .linger_ms = 1};
    static reader nobody;
    const bus_listener to_nobody = {.fault = on_fault, .owner = &nobody, .delivered = on_delivered};
    bus_handle *h;
    bus_said said = {0};
    pst_err err = {0};
    ok(ops->open(conf, &needs, &to_nobody, &h, &err), &err, "producer");
    ops->init(h, NET_MS, &said);
    assert_int_equal(said.code, 0);
    ops->begin(h, &said);
    for (int i = from; i < from + n; i++) {
        char text[24];
        size_t sent;
        int len = snprintf(text, sizeof text, "%s-%d", id + strlen(id) - 4, i);
        pst_out out = {.topic = to, .partition = i % parts, .value = text, .value_len = (size_t)len};
        assert_int_equal(ops->send(h, &out, 1, &sent), 0);
    }
    ops->flush(h, NET_MS);
    if (how == 'c')
        ops->commit(h, NET_MS, &said);
    else if (how == 'a')
        ops->abort(h, NET_MS, &said);
    assert_int_equal(said.code, 0);
    return h;
}

static void end_producer(bus_handle *h)
{
    pst_rdk_client.producer->drop(h, true);
    pst_rdk_client.common->free(h);
}

static void test_wire_hides_what_was_aborted(void **state)
{
    const char *t = topic("aborted", 2), *x = name("tx-x"), *y = name("tx-y");
    publish_n(t, 0, 0, 5);
    end_producer(transact(x, t, 2, 0, 40, 'c'));
    end_producer(transact(x, t, 2, 40, 40, 'a'));
    bus_handle *long_one = transact(y, t, 2, 1000, 10, 'o');
    end_producer(transact(x, t, 2, 80, 40, 'a'));
    end_producer(transact(x, t, 2, 120, 40, 'c'));
    publish_n(t, 1, 5, 5);
    assert_int_equal(both_read(t, 2, PST_OFFSET_BEGINNING, false), 45); /* the open one holds the rest back */
    assert_int_equal(both_read(t, 2, PST_OFFSET_BEGINNING, true), 180);
    bus_said said = {0};
    pst_rdk_client.producer->abort(long_one, NET_MS, &said);
    assert_int_equal(said.code, 0);
    end_producer(long_one);
    pst_sleep_ms(500); /* its markers are written after the answer */
    assert_int_equal(both_read(t, 2, PST_OFFSET_BEGINNING, false), 90);
    assert_int_equal(both_read(t, 2, 50, false), 45);
}

static bus_run poll_for(reader *r, bus_run_kind kind)
{
    bus_run run = {0};
    for (int64_t until = pst_mono_us() + NET_US; pst_mono_us() < until;) {
        run = poll_once(r, 50, 100);
        if (run.kind == kind)
            return run;
    }
    fail_msg("no run of kind %d", kind);
    return run;
}

static void test_wire_seeks_pauses_and_tells_each_end(void **state)
{
    const char *t = topic("seek", 1);
    publish_n(t, 0, 0, 100);
    reader *r = open_reader(&wire, conf, NULL, NULL, false);
    read_to_end(r, t, 1, PST_OFFSET_BEGINNING);
    assert_int_equal(r->n, 100);
    assert_int_equal(r->ends[0], 100);
    for (int i = 0; i < 5; i++)
        assert_int_equal(poll_once(r, 150, 100).kind, BUS_RUN_NONE); /* once, however often it is asked for */
    bus_place at = {.topic = (char *)t, .offset = 40};
    bus_places list = {.at = &at, .n = 1};
    char why[200];
    assert_int_equal(r->lib->consumer->seek(r->h, &list, 1000, why, sizeof why), 0);
    while (r->n < 160)
        poll_for(r, BUS_RUN_RECORDS);
    assert_int_equal(poll_for(r, BUS_RUN_END).offset, 100);
    assert_int_equal(r->lib->consumer->pause(r->h, &list, true), 0);
    publish_n(t, 0, 100, 10);
    for (int i = 0; i < 5; i++)
        assert_int_equal(poll_once(r, 100, 100).kind, BUS_RUN_NONE);
    assert_int_equal(r->lib->consumer->pause(r->h, &list, false), 0);
    while (r->n < 170)
        poll_for(r, BUS_RUN_RECORDS);
    assert_int_equal(poll_for(r, BUS_RUN_END).offset, 110);
    int64_t end;
    assert_int_equal(r->lib->consumer->known_end(r->h, t, 0, &end), 0);
    assert_int_equal(end, 110);
    at.offset = 110; /* where it stands: the end is told again */
    assert_int_equal(r->lib->consumer->seek(r->h, &list, 1000, why, sizeof why), 0);
    assert_int_equal(poll_for(r, BUS_RUN_END).offset, 110);
    at.offset = 100000; /* beyond: as auto.offset.reset says, from the first */
    r->n = 0;
    assert_int_equal(r->lib->consumer->seek(r->h, &list, 1000, why, sizeof why), 0);
    while (r->n < 110)
        poll_for(r, BUS_RUN_RECORDS);
    at.partition = 7;
    assert_int_equal(r->lib->consumer->seek(r->h, &list, 1000, why, sizeof why), 0);
    assert_int_equal(at.code, BUS_ERR__UNKNOWN_PARTITION);
    int64_t low, high;
    assert_int_equal(r->lib->common->watermarks(r->h, t, 0, 10000, &low, &high), 0);
    assert_int_equal(low, 0);
    assert_int_equal(high, 110);
    bus_topic about;
    assert_int_equal(r->lib->common->topic(r->h, t, 10000, &about), 0);
    assert_int_equal(about.partitions, 1);
    close_reader(r);
}

static size_t poll_all(reader **r, size_t n, int ms)
{
    size_t has = 0;
    for (size_t i = 0; i < n; i++) {
        if (!r[i])
            continue;
        poll_once(r[i], ms, 100);
        has += r[i]->has.n;
    }
    return has;
}

/* Until each partition is somebody's, and everybody has so many. */
static void settle(reader **r, size_t n, size_t parts, size_t least)
{
    for (int64_t until = pst_mono_us() + NET_US; pst_mono_us() < until;) {
        bool even = poll_all(r, n, 20) == parts;
        for (size_t i = 0; i < n; i++)
            even = even && (!r[i] || r[i]->has.n >= least);
        bool has[PARTS] = {false};
        for (size_t i = 0; even && i < n; i++)
            for (size_t k = 0; r[i] && k < r[i]->has.n; k++) {
                assert_false(has[r[i]->has.at[k].partition]);
                has[r[i]->has.at[k].partition] = true;
            }
        if (even)
            return;
    }
    for (size_t i = 0; i < n; i++)
        print_message("member %zu: %zu partitions, fault %d\n", i, r[i] ? r[i]->has.n : 0, r[i] ? r[i]->last_fault : 0);
    fail_msg("the group did not settle");
}

static void commit_one(reader *r, const char *t, int32_t partition, int64_t offset, const char *note)
{
    bus_place at = {.topic = (char *)t, .partition = partition, .offset = offset, .note = (char *)note};
    const bus_places list = {.at = &at, .n = 1};
    int code = r->lib->consumer->commit(r->h, &list, 10000);
    if (code)
        fail_msg("commit: %d", code);
}

static void group_of(const pst_bus_conf *with, const bus_client *other, bool third)
{
    const char *t = topic("group", 6), *g = name("g");
    for (int p = 0; p < 6; p++)
        publish_n(t, p, 0, 50);
    reader *r[3] = {open_reader(&wire, with, g, NULL, false)};
    assert_int_equal(r[0]->lib->consumer->subscribe(r[0]->h, &t, 1), 0);
    settle(r, 1, 6, 6);
    while (r[0]->n < 300)
        poll_once(r[0], 100, 1000);
    commit_one(r[0], t, 3, 50, "a note");
    bus_group *now = r[0]->lib->consumer->group(r[0]->h);
    assert_true(r[0]->lib->consumer->gave(r[0]->h, now));
    r[1] = open_reader(other, with, g, NULL, false);
    assert_int_equal(r[1]->lib->consumer->subscribe(r[1]->h, &t, 1), 0);
    settle(r, 2, 6, 3);
    assert_false(r[0]->lib->consumer->gave(r[0]->h, now));
    r[0]->lib->consumer->group_free(now);
    bus_place at = {.topic = (char *)t, .partition = 3};
    bus_places list = {.at = &at, .n = 1};
    for (int i = 0; i < 2; i++) { /* both clients say the same of it */
        assert_int_equal(r[i]->lib->common->committed(r[i]->h, &list, 10000), 0);
        assert_int_equal(at.code, 0);
        assert_int_equal(at.offset, 50);
        assert_string_equal(at.note, "a note");
    }
    at.partition = 4;
    assert_int_equal(r[0]->lib->common->committed(r[0]->h, &list, 10000), 0);
    assert_int_equal(at.offset, BUS_OFFSET_NONE);
    free(at.note);
    if (third) {
        r[2] = open_reader(&wire, with, g, NULL, false);
        assert_int_equal(r[2]->lib->consumer->subscribe(r[2]->h, &t, 1), 0);
        settle(r, 3, 6, 2);
        assert_int_equal(r[2]->lost, 0);
    }
    assert_int_equal(r[0]->lost, 0);
    close_reader(r[1]); /* it leaves: nobody waits for its session */
    r[1] = NULL;
    int64_t begun = pst_mono_us();
    settle(r, 3, 6, third ? 3 : 6);
    assert_in_range(pst_mono_us() - begun, 0, 9000000);
    close_reader(r[0]);
    r[0] = NULL;
    if (!third)
        return;
    settle(r, 3, 6, 6);
    close_reader(r[2]);
}

static pst_bus_conf *with_prop(const char *key, const char *value)
{
    pst_bus_conf *mine = pst_bus_conf_copy(conf);
    pst_err err = {0};
    ok(pst_bus_conf_set(mine, key, value, "test", &err), &err, key);
    return mine;
}

static void test_wire_shares_a_group_with_librdkafka(void **state)
{
    group_of(conf, &pst_rdk_client, true);
}

static void test_wire_members_share_bit_by_bit(void **state)
{
    pst_bus_conf *mine = with_prop("partition.assignment.strategy", "cooperative-sticky");
    group_of(mine, &wire, false);
    pst_bus_conf_free(mine);
}

static void grow(const char *t, int partitions)
{
    bus_admin a;
    pst_err err = {0};
    char text[200];
    ok(bus_admin_open(&a, conf, true, NULL, NET_MS, &err), &err, "admin");
    rd_kafka_NewPartitions_t *more = rd_kafka_NewPartitions_new(t, (size_t)partitions, text, sizeof text);
    rd_kafka_queue_t *q = rd_kafka_queue_new(rdk_of(a.link.h)->rk);
    rd_kafka_CreatePartitions(rdk_of(a.link.h)->rk, &more, 1, NULL, q);
    rd_kafka_event_t *ev = rd_kafka_queue_poll(q, NET_MS);
    assert_non_null(ev);
    assert_int_equal(rd_kafka_event_error(ev), 0);
    rd_kafka_event_destroy(ev);
    rd_kafka_queue_destroy(q);
    rd_kafka_NewPartitions_destroy(more);
    bus_admin_close(&a);
}

/* A static member that goes and comes within its session has what it had, without a rebalance; a second one with its name ends it. */
static void test_wire_static_member_keeps_its_place(void **state)
{
    const char *t = topic("static", 4), *g = name("g-static");
    reader *r[2] = {open_reader(&wire, conf, g, "one", false), open_reader(&wire, conf, g, "two", false)};
    for (int i = 0; i < 2; i++)
        assert_int_equal(r[i]->lib->consumer->subscribe(r[i]->h, &t, 1), 0);
    settle(r, 2, 4, 2);
    int rebalances = r[0]->revoked;
    close_reader(r[1]);
    r[1] = open_reader(&wire, conf, g, "two", false);
    assert_int_equal(r[1]->lib->consumer->subscribe(r[1]->h, &t, 1), 0);
    settle(r, 2, 4, 2);
    assert_int_equal(r[0]->revoked, rebalances);
    reader *twin = open_reader(&wire, conf, g, "two", false);
    assert_int_equal(twin->lib->consumer->subscribe(twin->h, &t, 1), 0);
    char text[200];
    for (int64_t until = pst_mono_us() + NET_US; !r[1]->lib->common->fatal(r[1]->h, text, sizeof text) && pst_mono_us() < until;) {
        poll_all(r, 2, 20);
        poll_once(twin, 20, 100);
    }
    assert_int_equal(r[1]->lib->common->fatal(r[1]->h, text, sizeof text), BUS_ERR_FENCED_INSTANCE_ID);
    close_reader(r[1]);
    r[1] = twin;
    settle(r, 2, 4, 2);
    r[1]->lib->consumer->leave(r[1]->h); /* for good: the other has all of it at once */
    close_reader(r[1]);
    r[1] = NULL;
    int64_t begun = pst_mono_us();
    settle(r, 2, 4, 4);
    assert_in_range(pst_mono_us() - begun, 0, 9000000);
    close_reader(r[0]);
}

/* The leader sees a topic grow, and one that was not there come, and shares them out: nobody is asked. */
static void test_wire_group_sees_topics_grow_and_come(void **state)
{
    const char *topics[] = {topic("grow", 1), name("later")}, *g = name("g-grow");
    pst_bus_conf *mine = with_prop("topic.metadata.refresh.interval.ms", "500");
    reader *r = open_reader(&wire, mine, g, NULL, false);
    assert_int_equal(r->lib->consumer->subscribe(r->h, topics, 2), 0);
    settle(&r, 1, 1, 1);
    grow(topics[0], 3);
    settle(&r, 1, 3, 3);
    assert_int_equal(r->last_fault, BUS_ERR_UNKNOWN_TOPIC_OR_PART);
    topic_named(topics[1], 2);
    for (int64_t until = pst_mono_us() + NET_US; r->has.n < 5 && pst_mono_us() < until;)
        poll_once(r, 50, 100);
    assert_int_equal(r->has.n, 5);
    close_reader(r);
    pst_bus_conf_free(mine);
}

static void test_wire_speaks_the_next_protocol(void **state)
{
    bus_topic ignored;
    reader *probe = open_reader(&wire, conf, NULL, NULL, false);
    probe->lib->common->topic(probe->h, topic("probe", 1), 10000, &ignored);
    int level = wire_net_feature(((wire_handle *)probe->h)->net, "group.version");
    close_reader(probe);
    if (level < 1) {
        print_message("this Kafka has no KIP-848 (group.version %d)\n", level);
        skip();
    }
    pst_bus_conf *mine = with_prop("client.id", "next"); /* librdkafka 2.0.2 does not know the property: it is set past its check */
    for (size_t i = 0; i < mine->n; i++)
        if (!strcmp(mine->props[i].key, "client.id")) {
            free(mine->props[i].key);
            free(mine->props[i].value);
            mine->props[i].key = pst_strdup("group.protocol");
            mine->props[i].value = pst_strdup("consumer");
        }
    group_of(mine, &wire, false);
    pst_bus_conf_free(mine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire_reads_what_librdkafka_reads),     cmocka_unit_test(test_wire_hides_what_was_aborted),
        cmocka_unit_test(test_wire_seeks_pauses_and_tells_each_end), cmocka_unit_test(test_wire_shares_a_group_with_librdkafka),
        cmocka_unit_test(test_wire_group_sees_topics_grow_and_come), cmocka_unit_test(test_wire_members_share_bit_by_bit),
        cmocka_unit_test(test_wire_static_member_keeps_its_place),   cmocka_unit_test(test_wire_speaks_the_next_protocol),
    };
    return bus_live_main("wire_consumer", tests, sizeof tests / sizeof *tests);
}
