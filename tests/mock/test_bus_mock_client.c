/* test_bus_mock_client.c - the seam below the bus (bus_client.h) with a second client behind it: librdkafka's records, handed out in runs of many, as
 * one does that reads fetched batches in place; partitions taken away and records released are counted. What is shared has to hold for it, too. */
#include "common/bus/bus_consumer.h"
#include "common/bus/rdkafka/embedded.h"
#include "common/bus/rdkafka/rdk.h"
#include "common/base/clock.h"

#include <librdkafka/rdkafka_mock.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { PER_RUN = 7, WAIT_US = 120000000 };

static pst_embedded *broker;
static pst_bus_conf *conf;

static int setup(void **state)
{
    pst_err err = {0};
    assert_int_equal(pst_embedded_start(0, &broker, &err), 0);
    conf = pst_bus_conf_new(pst_embedded_bootstrap(broker), "test");
    assert_int_equal(pst_bus_conf_set(conf, "fetch.wait.max.ms", "10", "test", &err), 0);
    return 0;
}

static int teardown(void **state)
{
    pst_bus_conf_free(conf);
    pst_embedded_stop(broker);
    return 0;
}

/* ---- the second client ------------------------------------------------------------------------------------------------------ */

static size_t given, released, longest;
static bus_run kept; /* a run of something else, which ended the one before */
static pst_record kept_record;
static char kept_topic[64];
static pst_consumer *losing; /* a partition of it is taken away inside a poll; NULL = it was */
static int32_t lost;
static void take_away(void);

static void poll_runs(bus_handle *h, int timeout_ms, pst_record *room, size_t max, size_t bytes, bus_run *ret)
{
    size_t n = 0;
    if (losing)
        take_away();
    if (kept.kind != BUS_RUN_NONE) {
        *ret = kept;
        kept.kind = BUS_RUN_NONE;
        if (ret->kind != BUS_RUN_RECORDS)
            return;
        room[n++] = kept_record;
    } else {
        pst_rdk_client.consumer->poll(h, timeout_ms, room, 1, bytes, ret);
        if (ret->kind != BUS_RUN_RECORDS)
            return;
        n = 1;
    }
    ret->topic = room[0].topic;
    while (n < max && n < PER_RUN) {
        bus_run next;
        pst_rdk_client.consumer->poll(h, 20, &room[n], 1, bytes, &next);
        if (next.kind == BUS_RUN_RECORDS && next.partition == ret->partition && !strcmp(next.topic, ret->topic)) {
            n++;
            continue;
        }
        kept = next;
        if (next.kind == BUS_RUN_RECORDS)
            kept_record = room[n];
        if (next.topic)
            snprintf(kept_topic, sizeof kept_topic, "%s", next.topic);
        kept.topic = next.topic ? kept_topic : NULL;
        break;
    }
    ret->n = n;
    given += n;
    longest = n > longest ? n : longest;
}

static void release_counted(bus_handle *h, const pst_record *records, size_t n)
{
    released += n;
    pst_rdk_client.consumer->release(h, records, n);
}

static bus_consumer_ops ops;
static bus_client client;

static pst_consumer *open_client(const pst_consumer_opts *opts)
{
    pst_consumer *c;
    pst_err err = {0};
    given = released = longest = 0;
    kept.kind = BUS_RUN_NONE;
    if (pst_consumer_new(conf, opts, &c, &err))
        fail_msg("%s", err.text);
    ops = *c->link.lib->consumer;
    ops.poll = poll_runs;
    ops.release = release_counted;
    client = *c->link.lib;
    client.consumer = &ops;
    c->link.lib = &client;
    return c;
}

static void close_client(pst_consumer *c)
{
    if (kept.kind == BUS_RUN_RECORDS)
        pst_rdk_client.consumer->release(c->link.h, &kept_record, 1);
    pst_consumer_free(c);
    assert_int_equal(released, given);
}

/* ---- records ------------------------------------------------------------------------------------------------------------------- */

static void publish_n(const char *topic, int32_t partition, int n, const pst_header *header)
{
    pst_producer *p;
    pst_err err = {0};
    assert_int_equal(pst_producer_new(conf, &(pst_producer_opts){.linger_ms = 5}, &p, &err), 0);
    for (int i = 0; i < n; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", i);
        pst_out out = {
            .topic = topic, .partition = partition, .value = text, .value_len = strlen(text), .headers = header, .n_headers = !!header};
        assert_int_equal(pst_producer_send(p, &out, &err), 0);
    }
    assert_int_equal(pst_producer_flush(p, 60000, &err), 0);
    pst_producer_free(p);
}

static void create(const char *topic, int partitions)
{
    assert_int_equal(rd_kafka_mock_topic_create(bus_embedded_cluster(broker), topic, partitions, 1), 0);
}

static void test_client_long_runs_are_cut_where_they_must(void **state)
{
    create("cut", 2);
    publish_n("cut", 0, 40, NULL);
    publish_n("cut", 1, 10, NULL);
    const pst_range ranges[] = {{"cut", 0, 3, 31}, {"cut", 1, 0, -1}};
    pst_consumer *c = open_client(&(pst_consumer_opts){.ranges = ranges, .n_ranges = 2, .report_eof = true});
    int64_t next[2] = {3, 0}, until = pst_mono_us() + WAIT_US;
    pst_batch b = {0};
    while (!b.eof && pst_mono_us() < until) {
        pst_err err = {0};
        size_t bytes = 0;
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 5, .timeout_ms = 200, .age_max_us = 20000}, &b, &err), 0);
        assert_true(b.n <= 5);
        for (size_t i = 0; i < b.n; i++) {
            const pst_record *r = &b.records[i];
            assert_int_equal(r->offset, next[r->partition]);
            assert_int_equal(r->topic_index, 0); /* the first range of that topic */
            next[r->partition] = r->offset + 1;
            bytes += r->value_len;
        }
        assert_int_equal(b.bytes, bytes);
    }
    assert_true(b.eof);
    assert_int_equal(next[0], 31); /* a run that reached beyond the end of the range was cut there */
    assert_int_equal(next[1], 10);
    assert_true(longest > 1);
    close_client(c);
}

static void test_client_records_tell_their_topic_and_headers(void **state)
{
    const pst_header header = {"h", "v", 1};
    const char *topics[] = {"with", "without", "nothing"};
    for (int i = 0; i < 3; i++)
        create(topics[i], 1);
    publish_n("with", 0, 3, &header);
    publish_n("without", 0, 3, NULL);
    pst_consumer *c = open_client(&(pst_consumer_opts){.topics = topics, .n_topics = 3});
    int seen[3] = {0};
    for (int64_t until = pst_mono_us() + WAIT_US; seen[0] + seen[1] < 6 && pst_mono_us() < until;) {
        pst_batch b;
        pst_err err = {0};
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.timeout_ms = 200}, &b, &err), 0);
        for (size_t i = 0; i < b.n; i++) {
            const pst_record *r = &b.records[i];
            pst_header got[2];
            assert_in_range(r->topic_index, 0, 1);
            assert_string_equal(r->topic, topics[r->topic_index]);
            assert_int_equal(r->has_headers, r->topic_index == 0);
            assert_int_equal(pst_record_headers(r, got, 2), r->has_headers);
            seen[r->topic_index]++;
        }
    }
    assert_int_equal(seen[0], 3);
    assert_int_equal(seen[1], 3);
    close_client(c);
}

/* ---- a rebalance inside a poll ------------------------------------------------------------------------------------------------- */

/* The partition of the first record is taken away while the rest of its batch is gathered. */
static void take_away(void)
{
    if (!losing->n)
        return;
    bus_places nothing = {0};
    lost = losing->records[0].partition;
    bus_part_remove(losing, "gone", lost);
    bus_rebalance(losing, BUS_REVOKED, &nothing, true);
    losing = NULL;
}

/* What was gathered of it is thrown out, and what the client writes behind it in that very poll closes up. */
static void test_client_rebalance_while_a_batch_is_gathered(void **state)
{
    create("gone", 2);
    publish_n("gone", 0, 4, NULL);
    publish_n("gone", 1, 4, NULL);
    const char *topics[] = {"gone"};
    pst_consumer *c = losing = open_client(&(pst_consumer_opts){.topics = topics, .n_topics = 1});
    int64_t next = 0;
    for (int64_t until = pst_mono_us() + WAIT_US; (next < 4 || losing) && pst_mono_us() < until;) {
        pst_batch b;
        pst_err err = {0};
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 100, .timeout_ms = 200, .age_max_us = 2000000}, &b, &err), 0);
        for (size_t i = 0; i < b.n; i++) {
            assert_int_equal(b.records[i].partition, 1 - lost);
            assert_int_equal(b.records[i].offset, next++);
        }
    }
    assert_null(losing);
    assert_int_equal(next, 4);
    close_client(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_long_runs_are_cut_where_they_must),
        cmocka_unit_test(test_client_records_tell_their_topic_and_headers),
        cmocka_unit_test(test_client_rebalance_while_a_batch_is_gathered),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
