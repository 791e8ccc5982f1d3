/* Our own producer on a real Kafka, held beside librdkafka: what it writes librdkafka reads, keys go to the same partitions, rounds are seen or not. */
#include "bus_live.h"
#include "common/base/clock.h"
#include "common/bus/wire/wire.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static pst_bus_conf *wired(const char *key, const char *value)
{
    pst_err err = {0};
    pst_bus_conf *c = pst_bus_conf_copy(conf);
    if (key)
        ok(pst_bus_conf_set(c, key, value, "test", &err), &err, key);
    ok(pst_bus_conf_client(c, "wire", &err), &err, "client");
    return c;
}

typedef struct seen { /* of each number: how often, where, with what */
    int times, partition, headers, key_len;
    size_t value_len;
} seen;

/* By librdkafka. */
static int read_numbers(const char *from, seen *ret, int max)
{
    pst_consumer *c;
    pst_err err = {0};
    pst_batch b = {0};
    int n = 0, last[16];
    memset(last, -1, sizeof last);
    ok(pst_consumer_new(conf, &(pst_consumer_opts){.topics = &from, .n_topics = 1, .report_eof = true}, &c, &err), &err, "reader");
    for (int64_t until = pst_mono_us() + NET_US; !b.eof && pst_mono_us() < until;) {
        ok(pst_consumer_poll(c, &(pst_poll){.records_max = 5000, .timeout_ms = 200, .age_max_us = 1000}, &b, &err), &err, "poll");
        for (size_t i = 0; i < b.n; i++) {
            const pst_record *r = &b.records[i];
            pst_header headers[8];
            int32_t v = -1;
            assert_true(r->value_len >= 4);
            memcpy(&v, r->value, 4);
            assert_true(v >= 0 && v < max);
            assert_true(v > last[r->partition]); /* in the order in which they were given */
            last[r->partition] = v;
            ret[v].times++;
            ret[v].partition = r->partition;
            ret[v].headers = (int)pst_record_headers(r, headers, 8);
            ret[v].key_len = r->key ? (int)r->key_len : -1;
            ret[v].value_len = r->value_len;
            n++;
        }
    }
    pst_consumer_free(c);
    return n;
}

/* Keys of many lengths, none, headers, values from some bytes to some thousands. */
static void write_numbers(pst_producer *p, const char *to, int n)
{
    static char value[5000];
    static const pst_header headers[] = {{"a", "1", 1}, {"", NULL, 0}, {"c", "", 0}};
    pst_err err = {0};
    for (int32_t i = 0; i < n; i++) {
        char key[64];
        memset(key, 'k', sizeof key);
        snprintf(key, sizeof key, "%d-key", i);
        memcpy(value, &i, 4);
        pst_out o = {.topic = to, .partition = -1, .value = value, .value_len = 4 + (size_t)(i % 100 == 0 ? i % 4900 : i % 50)};
        o.key = key;
        o.key_len = (size_t)(i % 40);
        o.headers = i % 5 ? NULL : headers;
        o.n_headers = i % 5 ? 0 : 3;
        ok(pst_producer_send(p, &o, &err), &err, "send");
        if (i % 1000 == 0)
            pst_producer_poll(p, 0);
    }
    ok(pst_producer_flush(p, NET_MS, &err), &err, "flush");
    assert_int_equal(pst_producer_pending(p), 0);
}

/* librdkafka is the oracle: the same records by both, read back by it. */
static void both_write_the_same(void **state)
{
    enum { N = 20000 };
    static const char *const codecs[] = {"none", "gzip", "snappy", "lz4", "zstd"};
    pst_err err = {0};
    seen *theirs = pst_alloc(N * sizeof *theirs);
    const char *t = topic("oracle", 7);
    pst_producer *p;
    ok(pst_producer_new(conf, &(pst_producer_opts){.linger_ms = 5}, &p, &err), &err, "producer");
    write_numbers(p, t, N);
    pst_producer_free(p);
    assert_int_equal(read_numbers(t, theirs, N), N);
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        seen *ours = pst_alloc(N * sizeof *ours);
        t = topic(codecs[i], 7);
        pst_bus_conf *c = wired("compression.type", codecs[i]);
        ok(pst_producer_new(c, &(pst_producer_opts){.linger_ms = 5}, &p, &err), &err, codecs[i]);
        write_numbers(p, t, N);
        pst_producer_free(p);
        pst_bus_conf_free(c);
        assert_int_equal(read_numbers(t, ours, N), N);
        for (int k = 0; k < N; k++)
            if (memcmp(&ours[k], &theirs[k], sizeof *ours) != 0)
                fail_msg("%s: record %d: times %d partition %d headers %d key %d value %zu, by librdkafka %d %d %d %d %zu", codecs[i], k,
                         ours[k].times, ours[k].partition, ours[k].headers, ours[k].key_len, ours[k].value_len, theirs[k].times,
                         theirs[k].partition, theirs[k].headers, theirs[k].key_len, theirs[k].value_len);
        free(ours);
    }
    free(theirs);
}

static void one_record_is_published(void **state)
{
    const char *t = topic("publish", 3);
    pst_bus_conf *c = wired(NULL, NULL);
    pst_err err = {0};
    int32_t partition = -1, v = 5;
    int64_t offset = -1;
    for (int i = 0; i < 3; i++) {
        ok(pst_publish(c, &(pst_out){.topic = t, .partition = 2, .value = &v, .value_len = 4}, NET_MS, &partition, &offset, &err), &err,
           "publish");
        assert_int_equal(partition, 2);
        assert_int_equal(offset, i);
    }
    assert_int_equal(
        pst_publish(c, &(pst_out){.topic = "bus-none-such", .partition = 0, .value = &v, .value_len = 4}, 5000, NULL, NULL, &err),
        PST_ENOTFOUND);
    pst_err_clear(&err);
    assert_int_equal(pst_publish(c, &(pst_out){.topic = t, .partition = 9, .value = &v, .value_len = 4}, 5000, NULL, NULL, &err),
                     PST_ENOTFOUND);
    pst_bus_conf_free(c);
}

static void nobody_is_there(void **state)
{
    pst_bus_conf *c = pst_bus_conf_new("127.0.0.1:1", "test");
    pst_err err = {0};
    int v = 1;
    ok(pst_bus_conf_client(c, "wire", &err), &err, "client");
    assert_int_equal(pst_publish(c, &(pst_out){.topic = "x", .partition = 0, .value = &v, .value_len = 4}, 1000, NULL, NULL, &err),
                     PST_EUNREACH);
    pst_bus_conf_free(c);
}

/* A topic takes less than the producer sends in a batch: smaller ones go, and nothing else is lost. */
static void a_batch_that_is_too_large(void **state)
{
    const char *t = name("small");
    pst_err err = {0};
    const pst_topic_spec spec = {
        .name = t, .partitions = 1, .replication = -1, .configs = (const char *const[]){"max.message.bytes", "10000", NULL}};
    ok(pst_admin_create_topics(conf, &spec, 1, NET_MS, &err), &err, "create");
    static char value[9000];
    unsigned x = 1;
    for (size_t i = 0; i < sizeof value; i++) { /* not to be compressed */
        x = x * 1664525 + 1013904223;
        value[i] = (char)(x >> 24);
    }
    pst_bus_conf *c = wired("batch.size", "100000");
    pst_producer *p;
    ok(pst_producer_new(c, &(pst_producer_opts){.linger_ms = 50}, &p, &err), &err, "producer");
    for (int i = 0; i < 20; i++)
        ok(pst_producer_send(p, &(pst_out){.topic = t, .partition = 0, .value = value, .value_len = i < 10 ? sizeof value : 10}, &err),
           &err, "send");
    assert_int_equal(pst_producer_flush(p, NET_MS, &err), PST_ELIMIT);
    pst_err_clear(&err);
    for (int i = 0; i < 20; i++)
        ok(pst_producer_send(p, &(pst_out){.topic = t, .partition = 0, .value = value, .value_len = 10}, &err), &err, "send");
    ok(pst_producer_flush(p, NET_MS, &err), &err, "flush");
    pst_producer_free(p);
    pst_bus_conf_free(c);
}

/* ---- rounds --------------------------------------------------------------------------------------------------------------------------------- */

static void send_n(pst_txn *t, const char *to, int n)
{
    pst_err err = {0};
    for (int i = 0; i < n; i++)
        ok(pst_txn_send(t, &(pst_out){.topic = to, .partition = i % 3, .value = &i, .value_len = sizeof i}, &err), &err, "txn_send");
}

static void rounds_are_seen_or_not(void **state)
{
    const char *to = topic("rounds", 3);
    pst_bus_conf *c = wired(NULL, NULL);
    pst_err err = {0};
    pst_txn *t;
    uint64_t counts[3];
    ok(pst_txn_new(c, name("rounds"), PST_TXN_EXACTLY_ONCE, NULL, &t, &err), &err, "txn");
    for (int round = 0; round < 30; round++) {
        ok(pst_txn_begin(t, &err), &err, "begin");
        send_n(t, to, round % 7 * 100);
        ok(round % 3 ? pst_txn_commit(t, &err) : pst_txn_abort(t, &err), &err, "end");
    }
    int expected = 0;
    for (int round = 0; round < 30; round++)
        expected += round % 3 ? round % 7 * 100 : 0;
    assert_visible(to, expected);
    pst_txn_counts(t, counts);
    assert_int_equal(counts[0], 20);
    pst_txn_free(t);
    pst_bus_conf_free(c);
}

/* What a killed one left open is ended by the next, and the one that lives on is fenced. */
static void a_second_one_takes_over(void **state)
{
    const char *to = topic("takeover", 3), *id = name("takeover");
    pst_bus_conf *c = wired(NULL, NULL);
    pst_err err = {0};
    pst_txn *first, *second;
    ok(pst_txn_new(c, id, PST_TXN_EXACTLY_ONCE, NULL, &first, &err), &err, "first");
    ok(pst_txn_begin(first, &err), &err, "begin");
    send_n(first, to, 300);
    ok(pst_txn_new(c, id, PST_TXN_EXACTLY_ONCE, NULL, &second, &err), &err, "second");
    ok(pst_txn_begin(second, &err), &err, "begin");
    send_n(second, to, 60);
    ok(pst_txn_commit(second, &err), &err, "commit");
    assert_int_equal(pst_txn_commit(first, &err), PST_EAGAIN); /* and it has the id again */
    assert_visible(to, 60);
    pst_txn_free(first);
    pst_txn_free(second);
    pst_bus_conf_free(c);
}

/* The same id by librdkafka and by us, in turns: each goes on where the other was. */
static void both_share_an_id(void **state)
{
    const char *to = topic("turns", 3), *id = name("turns");
    pst_err err = {0};
    for (int i = 0; i < 4; i++) {
        pst_bus_conf *c = i % 2 ? pst_bus_conf_copy(conf) : wired(NULL, NULL);
        pst_txn *t;
        ok(pst_txn_new(c, id, PST_TXN_EXACTLY_ONCE, NULL, &t, &err), &err, "txn");
        for (int k = 0; k < 3; k++) {
            ok(pst_txn_begin(t, &err), &err, "begin");
            send_n(t, to, 30);
            ok(pst_txn_commit(t, &err), &err, "commit");
        }
        pst_txn_free(t);
        pst_bus_conf_free(c);
    }
    assert_visible(to, 360);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_write_the_same),       cmocka_unit_test(one_record_is_published), cmocka_unit_test(nobody_is_there),
        cmocka_unit_test(a_batch_that_is_too_large), cmocka_unit_test(rounds_are_seen_or_not),  cmocka_unit_test(a_second_one_takes_over),
        cmocka_unit_test(both_share_an_id),
    };
    return bus_live_main("wire_out", tests, sizeof tests / sizeof *tests);
}
