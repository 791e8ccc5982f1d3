/* test_bus_begin.c - where a group begins to read on a real Kafka ("latest", a time), and who is named while its offsets are waited for. */
#include "bus_live.h"
#include "common/bus/bus_admin.h"
#include "common/bus/rdkafka/rdk.h"
#include "common/base/clock.h"

#include <stdio.h>
#include <string.h>

static bool deaf; /* no consumer is told its committed offsets */

static struct rdkafka_lib real;

static rd_kafka_resp_err_t committed_or_deaf(rd_kafka_t *rk, rd_kafka_topic_partition_list_t *list, int timeout_ms)
{
    return deaf ? RD_KAFKA_RESP_ERR__TIMED_OUT : real.rd_kafka_committed_(rk, list, timeout_ms);
}

static int take_all(pst_consumer *c, int want)
{
    int n = 0;
    pst_err err = {0};
    for (int64_t until = pst_mono_us() + NET_US; n < want && pst_mono_us() < until;) {
        pst_batch b;
        ok(pst_consumer_poll(c, &quick, &b, &err), &err, "poll");
        n += (int)b.n;
    }
    return n;
}

static pst_consumer *late_member(const char *group, const char *from, pst_start start)
{
    pst_consumer *c;
    pst_err err = {0};
    pst_bus_conf *mine = pst_bus_conf_copy(conf);
    ok(pst_bus_conf_set(mine, "topic.metadata.refresh.interval.ms", "1000", "test", &err), &err, "set");
    pst_consumer_opts opts = {.group = group, .topics = &from, .n_topics = 1, .start = start, .start_ms = pst_now_us() / 1000 + 3600000};
    ok(pst_consumer_new(mine, &opts, &c, &err), &err, "consumer");
    pst_bus_conf_free(mine);
    return c;
}

/* Polls until the group's beginning stands for every partition (it is committed); returns how many records came meanwhile. */
static int take_until_begun(pst_consumer *c, const char *group, const char *of, int partitions, int64_t at)
{
    int n = 0, begun = 0;
    pst_err err = {0};
    for (int64_t until = pst_mono_us() + NET_US; begun < partitions && pst_mono_us() < until;) {
        pst_batch b;
        ok(pst_consumer_poll(c, &quick, &b, &err), &err, "poll");
        n += (int)b.n;
        begun = 0;
        for (int p = 0; p < partitions; p++)
            begun += committed(group, of, p) == at;
    }
    assert_int_equal(begun, partitions);
    return n;
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
    int n = 0; /* the controller has said yes; the broker hears of it a moment later */
    for (int64_t until = pst_mono_us() + NET_US; n < partitions && pst_mono_us() < until;)
        ok(bus_partitions(a.link, &a.health, t, NET_MS, &n, &err), &err, "partitions");
    assert_int_equal(n, partitions);
    bus_admin_close(&a);
}

/* "Latest" is the end when the group began, whatever comes until something is committed; what a new partition holds is later. */
static void test_live_latest_loses_nothing(void **state)
{
    const char *in = topic("late", 2), *out = topic("lateout", 1), *g = name("g-late");
    pst_err err = {0};
    pst_batch b;
    publish_n(in, 0, 0, 10), publish_n(in, 1, 0, 10);
    pst_consumer *c = late_member(g, in, PST_START_LATEST);
    assert_int_equal(take_until_begun(c, g, in, 2, 10), 0);
    pst_consumer_free(c); /* it has committed nothing of its own */
    publish_n(in, 0, 10, 5), publish_n(in, 1, 10, 5);
    c = late_member(g, in, PST_START_LATEST);
    pst_txn *t = txn(name("t-late"), PST_TXN_EXACTLY_ONCE, c);
    for (int n = 0; n < 10; n += (int)b.n) {
        b = poll_some(c, 10);
        assert_true(b.n > 0 && b.n <= 10);
        ok(pst_txn_begin(t, &err), &err, "begin");
        copy_batch(t, c, &b, out);
        ok(pst_txn_commit(t, &err), &err, "commit");
    }
    for (int i = 0; i < NET_MS / 100 && committed(g, in, 0) != 15; i++) /* the marker is written after the answer */
        pst_sleep_ms(100);
    assert_int_equal(committed(g, in, 0), 15);
    grow(in, 4);
    publish_n(in, 2, 0, 7), publish_n(in, 3, 0, 7);
    assert_int_equal(take_all(c, 14), 14);
    pst_txn_free(t);
    pst_consumer_free(c);
}

/* A consumer that alone is not answered is given up in seconds; where an open transaction holds the offsets, it is waited for and named. */
static void test_live_who_is_at_fault_for_a_wait(void **state)
{
    const char *in = topic("deaf", 1), *g = name("g-deaf");
    pst_err err = {0};
    publish_n(in, 0, 0, 3);
    pst_consumer *c = member(g, in);
    pst_batch b = poll_some(c, 3);
    ok(pst_consumer_commit(c, &b, &err), &err, "commit");
    deaf = true;
    int64_t begun = pst_mono_us();
    assert_true(pst_consumer_rewind(c, &err) < 0);
    deaf = false;
    assert_int_equal(err.cls, PST_CLASS_FATAL);
    assert_non_null(strstr(err.text, "answers others"));
    assert_in_range(pst_mono_us() - begun, 3000000, NET_US);
    pst_consumer_free(c);
}

/* Why it waited, all reasons one after the other: on a busy machine a connection that is slow to come has its word before or after. */
static char waits_for[4000];
static void on_wait(void *arg, const char *why)
{
    size_t n = strlen(waits_for);
    if (why)
        snprintf(waits_for + n, sizeof waits_for - n, "%s\n", why);
}

/* Somebody else's transaction that holds offsets of the group: it is named, waited for, and its end is the end of the wait. */
static void test_live_foreign_transaction_is_named_and_waited_for(void **state)
{
    const char *in = topic("held", 1), *g = name("g-held");
    pst_err err = {0};
    publish_n(in, 0, 0, 3);
    pst_bus_conf *mine = pst_bus_conf_copy(conf);
    ok(pst_bus_conf_client(mine, "rdkafka", &err), &err, "client");
    ok(pst_bus_conf_set(mine, "transaction.timeout.ms", "25000", "test", &err), &err, "set");
    pst_producer *p;
    ok(pst_producer_new(mine, &(pst_producer_opts){.transactional_id = name("t-foreign"), .transaction_timeout_ms = 25000}, &p, &err), &err,
       "producer");
    assert_null(rd_kafka_init_transactions(rdk_of(p->link.h)->rk, NET_MS));
    assert_null(rd_kafka_begin_transaction(rdk_of(p->link.h)->rk));
    rd_kafka_topic_partition_list_t *at = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(at, in, 0)->offset = 2;
    rd_kafka_consumer_group_metadata_t *group = rd_kafka_consumer_group_metadata_new(g);
    assert_null(rd_kafka_send_offsets_to_transaction(rdk_of(p->link.h)->rk, at, group, NET_MS));
    rd_kafka_consumer_group_metadata_destroy(group);
    rd_kafka_topic_partition_list_destroy(at);
    pst_consumer *c;
    ok(pst_consumer_new(conf, &(pst_consumer_opts){.group = g, .topics = &in, .n_topics = 1, .on_wait = on_wait}, &c, &err), &err,
       "consumer");
    int64_t begun = pst_mono_us();
    pst_batch b = {0};
    while (!b.n && pst_mono_us() - begun < 2 * NET_US)
        ok(pst_consumer_poll(c, &quick, &b, &err), &err, "poll");
    assert_int_equal(b.n, 3); /* it was aborted: from the beginning */
    if (!strstr(waits_for, "pending in an open transaction"))
        fail_msg("it waited for something else:\n%s", waits_for);
    pst_consumer_free(c);
    pst_producer_free(p);
    pst_bus_conf_free(mine);
}

/* The beginning is kept for a time that is to come, too: nothing of a topic is as late, and what it holds at the beginning is not read. */
static void test_live_start_at_a_time_is_kept(void **state)
{
    const char *in = topic("timed", 1), *g = name("g-timed");
    publish_n(in, 0, 0, 10);
    pst_consumer *c = late_member(g, in, PST_START_TIMESTAMP);
    assert_int_equal(take_until_begun(c, g, in, 1, 10), 0);
    pst_consumer_free(c);
    publish_n(in, 0, 10, 5);
    c = late_member(g, in, PST_START_TIMESTAMP);
    assert_int_equal(take_all(c, 5), 5);
    pst_consumer_free(c);
}

int main(void)
{
    assert_int_equal(rdkafka_lib_open(NULL), 0);
    real = rdkafka_lib;
    rdkafka_lib.rd_kafka_committed_ = committed_or_deaf;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live_latest_loses_nothing),
        cmocka_unit_test(test_live_start_at_a_time_is_kept),
        cmocka_unit_test(test_live_who_is_at_fault_for_a_wait),
        cmocka_unit_test(test_live_foreign_transaction_is_named_and_waited_for),
    };
    return bus_live_main("bus_begin", tests, sizeof tests / sizeof *tests);
}
