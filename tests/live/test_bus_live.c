/* test_bus_live.c - what common/bus promises, on a real Kafka: nothing here can be proved on librdkafka's in-memory cluster. Where a group begins, and
 * what it waits for, is in test_bus_begin.c. */
#include "bus_live.h"
#include "common/bus/bus_admin.h"
#include "common/bus/rdkafka/rdk.h"
#include "common/base/clock.h"

#include <stdlib.h>
#include <string.h>

/* ---- plain ------------------------------------------------------------------------------------------------------------------- */

static void test_live_publish_consume_lag_and_commit(void **state)
{
    const char *t = topic("plain", 3), *g = name("g-plain");
    pst_err err = {0};
    publish_n(t, -1, 0, 300);
    int seen[300] = {0};
    assert_int_equal(read_all(t, false, seen, 300), 300);
    for (int i = 0; i < 300; i++)
        assert_int_equal(seen[i], 1);
    pst_consumer *c = member(g, t);
    int n = 0;
    pst_batch b;
    while (n < 300) {
        b = poll_some(c, 50);
        assert_true(b.n > 0);
        n += (int)b.n;
        ok(pst_consumer_commit(c, &b, &err), &err, "commit");
        if (n == 50)
            assert_true(pst_consumer_lag(c) != 0); /* -1 or more */
    }
    for (int64_t until = pst_mono_us() + NET_US; pst_consumer_lag(c) != 0 && pst_mono_us() < until;)
        ok(pst_consumer_poll(c, &quick, &b, &err), &err, "poll");
    assert_int_equal(pst_consumer_lag(c), 0);
    pst_consumer_free(c);
    pst_group_lag *rows;
    size_t rows_n;
    ok(pst_admin_lag(conf, g, &rows, &rows_n, NET_MS, &err), &err, "lag");
    assert_int_equal(rows_n, 3);
    int64_t sum = 0;
    for (size_t i = 0; i < rows_n; i++) {
        assert_int_equal(rows[i].committed, rows[i].end);
        sum += rows[i].end;
    }
    assert_int_equal(sum, 300);
    pst_group_lag_free(rows, rows_n);
    ok(pst_admin_lag(conf, NULL, &rows, &rows_n, NET_MS, &err), &err, "lag of all");
    bool found = false;
    for (size_t i = 0; i < rows_n; i++)
        found |= !strcmp(rows[i].group, g);
    assert_true(found);
    pst_group_lag_free(rows, rows_n);
}

static void test_live_publish_to_a_topic_that_is_not_there(void **state)
{
    pst_err err = {0};
    int64_t start = pst_mono_us();
    int rc =
        pst_publish(conf, &(pst_out){.topic = name("nowhere"), .partition = -1, .value = "x", .value_len = 1}, NET_MS, NULL, NULL, &err);
    assert_int_equal(rc, PST_ENOTFOUND);
    assert_non_null(strstr(err.text, "nowhere"));
    assert_true(pst_mono_us() - start < NET_US / 2); /* said as soon as it is known, not when the time is over */
    pst_err_clear(&err);
    const char *t = name("nowhere2");
    pst_consumer *c;
    assert_int_equal(pst_consumer_new(conf, &(pst_consumer_opts){.topics = &t, .n_topics = 1}, &c, &err), PST_ENOTFOUND);
    pst_err_clear(&err);
    pst_topic_info info;
    assert_int_equal(pst_admin_topic(conf, t, &info, NET_MS, &err), PST_ENOTFOUND);

    /* A range or a group waits for it, and says so. */
    pst_range range = {t, 0, 0, 10};
    const char *real = topic("small", 1);
    pst_range no_partition = {real, 7, 0, 10};
    pst_consumer_opts ways[] = {{.ranges = &range, .n_ranges = 1},
                                {.ranges = &no_partition, .n_ranges = 1},
                                {.group = name("g-nowhere"), .topics = &t, .n_topics = 1}};
    for (int w = 0; w < 3; w++) {
        pst_err_clear(&err);
        ok(pst_consumer_new(conf, &ways[w], &c, &err), &err, "consumer");
        bool told = false;
        for (int64_t until = pst_mono_us() + NET_US; !told && pst_mono_us() < until;) {
            pst_batch b;
            pst_err_clear(&err);
            assert_int_equal(pst_consumer_poll(c, &quick, &b, &err), 0);
            told = err.code == PST_ENOTFOUND && err.cls == PST_CLASS_RETRY;
        }
        assert_true(told);
        if (w == 2) { /* it is made: the group gets it without being told */
            publish_n(topic_named(t, 1), 0, 0, 5);
            pst_batch b = poll_some(c, 5);
            assert_true(b.n > 0);
        }
        pst_consumer_free(c);
    }
}

static void test_live_admin(void **state)
{
    pst_err err = {0};
    const char *configs[] = {"cleanup.policy", "compact", "max.message.bytes", "50000", NULL};
    const char *t = name("admin");
    pst_topic_spec spec = {.name = t, .partitions = 2, .replication = 1, .configs = configs};
    ok(pst_admin_create_topics(conf, &spec, 1, NET_MS, &err), &err, "create");
    ok(pst_admin_create_topics(conf, &spec, 1, NET_MS, &err), &err, "create again");
    assert_int_equal(bus_topic_bytes_max(conf, t, NET_MS), 50000);
    const char *bad[] = {"no.such.config", "1", NULL};
    pst_topic_spec wrong = {.name = name("admin-bad"), .partitions = 1, .replication = 1, .configs = bad};
    assert_int_equal(pst_admin_create_topics(conf, &wrong, 1, NET_MS, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "no.such.config"));
    pst_err_clear(&err);
    pst_topic_info info, *list;
    size_t n;
    publish_n(t, 1, 0, 4);
    ok(pst_admin_topic(conf, t, &info, NET_MS, &err), &err, "topic");
    assert_int_equal(info.partitions, 2);
    assert_int_equal(info.high[0], 0);
    assert_int_equal(info.high[1], 4);
    pst_topic_info_done(&info);
    ok(pst_admin_list(conf, &list, &n, NET_MS, &err), &err, "list");
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        found |= !strcmp(list[i].name, t);
        pst_topic_info_done(&list[i]);
    }
    free(list);
    assert_true(found);
    char *id;
    int brokers;
    ok(pst_admin_ping(conf, NET_MS, &id, &brokers, &err), &err, "ping");
    assert_true(brokers >= 1 && strlen(id) > 10);
    free(id);
}

static void test_live_offsets_by_time_and_start_at_time(void **state)
{
    const char *t = topic("time", 1);
    pst_err err = {0};
    for (int i = 0; i < 10; i++) {
        char text[8];
        int len = snprintf(text, sizeof text, "%d", i);
        ok(pst_publish(conf,
                       &(pst_out){.topic = t, .partition = 0, .value = text, .value_len = len, .timestamp_ms = 1700000000000 + i * 1000},
                       NET_MS, NULL, NULL, &err),
           &err, "publish");
    }
    int64_t at;
    ok(pst_admin_offset_at(conf, t, 0, 1700000004500, &at, &err), &err, "offset at");
    assert_int_equal(at, 5);
    ok(pst_admin_offset_at(conf, t, 0, 1, &at, &err), &err, "offset at");
    assert_int_equal(at, 0);
    ok(pst_admin_offset_at(conf, t, 0, 1900000000000, &at, &err), &err, "offset at");
    assert_int_equal(at, 10);
    assert_int_equal(pst_admin_offset_at(conf, t, 3, 1, &at, &err), PST_ENOTFOUND);
    pst_err_clear(&err);

    pst_consumer_opts opts = {.topics = &t, .n_topics = 1, .start = PST_START_TIMESTAMP, .start_ms = 1700000004500};
    for (int grouped = 0; grouped < 2; grouped++) {
        pst_consumer *c;
        opts.group = grouped ? name("g-time") : NULL;
        ok(pst_consumer_new(conf, &opts, &c, &err), &err, "consumer");
        pst_batch b = poll_some(c, 1);
        assert_int_equal(b.n, 1);
        assert_int_equal(b.records[0].offset, 5);
        pst_consumer_free(c);
    }
}

static void test_live_range_over_control_records_ends(void **state)
{
    const char *t = topic("ctl", 1);
    pst_err err = {0};
    pst_txn *x = txn(name("t-ctl"), PST_TXN_EXACTLY_ONCE, NULL);
    for (int i = 0; i < 3; i++) { /* offsets 0 data, 1 marker, 2 data, 3 marker, 4, 5 */
        ok(pst_txn_begin(x, &err), &err, "begin");
        ok(pst_txn_send(x, &(pst_out){.topic = t, .partition = 0, .value = "1", .value_len = 1}, &err), &err, "send");
        ok(pst_txn_commit(x, &err), &err, "commit");
    }
    pst_txn_free(x);
    for (int64_t to = 3; to <= 6; to++) {
        pst_range range = {t, 0, 0, to};
        pst_consumer *c;
        ok(pst_consumer_new(conf, &(pst_consumer_opts){.ranges = &range, .n_ranges = 1, .report_eof = true}, &c, &err), &err, "consumer");
        pst_batch b = {0};
        size_t n = 0;
        for (int64_t until = pst_mono_us() + NET_US; !b.eof && pst_mono_us() < until;) {
            ok(pst_consumer_poll(c, &quick, &b, &err), &err, "poll");
            n += b.n;
        }
        assert_true(b.eof);
        assert_int_equal(n, to <= 4 ? 2 : 3);
        assert_int_equal(pst_consumer_lag(c), 0);
        pst_consumer_free(c);
    }
}

static void one_round(pst_txn *x, const char *to, bool commit)
{
    pst_err err = {0};
    ok(pst_txn_begin(x, &err), &err, "begin");
    ok(pst_txn_send(x, &(pst_out){.topic = to, .partition = 0, .value = "1", .value_len = 1}, &err), &err, "send");
    if (commit)
        ok(pst_txn_commit(x, &err), &err, "commit");
    else
        ok(pst_producer_flush(x->p, NET_MS, &err), &err, "flush"); /* an abort takes back what is not sent yet */
    if (!commit)
        ok(pst_txn_abort(x, &err), &err, "abort");
}

static int64_t lag_of(const char *group)
{
    pst_err err = {0};
    pst_group_lag *rows;
    size_t n;
    ok(pst_admin_lag(conf, group, &rows, &n, NET_MS, &err), &err, "lag");
    assert_int_equal(n, 1);
    int64_t lag = rows[0].lag;
    pst_group_lag_free(rows, n);
    return lag;
}

/* Where the last n records begin; with = uncommitted ones, too. */
static int64_t tail_of(const char *of, int64_t n, bool with)
{
    pst_err err = {0};
    pst_topic_info info;
    ok(pst_admin_topic(conf, of, &info, NET_MS, &err), &err, "topic");
    pst_tail tail = {.topic = of, .low = info.low[0], .end = info.high[0], .n = n};
    pst_topic_info_done(&info);
    ok(pst_admin_tail(conf, &tail, 1, with, NET_MS, &err), &err, "tail");
    assert_true(tail.known);
    return tail.from;
}

/* The offset behind a group's last record is that of the marker, and so it stays: nobody is behind by markers and aborted records. */
static void test_live_markers_are_no_lag_and_no_last_records(void **state)
{
    const char *in = topic("marks", 1), *g = name("g-marks"), *other = name("g-marks-other");
    pst_err err = {0};
    pst_txn *x = txn(name("t-marks"), PST_TXN_EXACTLY_ONCE, NULL);
    for (int i = 0; i < 3; i++)
        one_round(x, in, true); /* 0 record, 1 marker, 2, 3, 4, 5 */
    const char *groups[] = {g, other};
    for (int i = 0; i < 2; i++) {
        pst_consumer *c = member(groups[i], in);
        pst_batch b = {0};
        for (int n = 0; n < 3 - i; n += (int)b.n) {
            b = poll_some(c, 1);
            ok(pst_consumer_commit(c, &b, &err), &err, "commit");
        }
        pst_consumer_free(c);
    }
    assert_int_equal(committed(g, in, 0), 5);
    assert_int_equal(lag_of(g), 0);
    assert_int_equal(committed(other, in, 0), 3);
    assert_int_equal(lag_of(other), 3);
    assert_int_equal(tail_of(in, 1, false), 4);
    assert_int_equal(tail_of(in, 2, false), 2);
    assert_int_equal(tail_of(in, 3, false), 0);
    assert_int_equal(tail_of(in, 100, false), 0);
    for (int i = 0; i < 10; i++)
        one_round(x, in, false);
    assert_int_equal(lag_of(g), 0);
    assert_int_equal(tail_of(in, 1, false), 4);
    assert_true(tail_of(in, 1, true) > 20);
    one_round(x, in, true);
    assert_true(lag_of(g) > 0);
    assert_int_equal(tail_of(in, 2, false), 4);
    pst_txn_free(x);
}

static void test_live_seek_pause_rewind(void **state)
{
    const char *t = topic("seek", 1), *g = name("g-seek");
    pst_err err = {0};
    publish_n(t, 0, 0, 40);
    pst_consumer *c = member(g, t);
    pst_batch b = poll_some(c, 10);
    assert_int_equal(b.n, 10);
    ok(pst_consumer_commit(c, &b, &err), &err, "commit");
    b = poll_some(c, 20);
    assert_int_equal(pst_consumer_pause(c, true), 0);
    ok(pst_consumer_rewind(c, &err), &err, "rewind");
    ok(pst_consumer_poll(c, &(pst_poll){.timeout_ms = 300}, &b, &err), &err, "poll");
    assert_int_equal(b.n, 0);
    assert_int_equal(pst_consumer_pause(c, false), 0);
    b = poll_some(c, 5);
    assert_int_equal(b.records[0].offset, 10);
    ok(pst_consumer_seek(c, t, 0, 33, &err), &err, "seek");
    b = poll_some(c, 5);
    assert_int_equal(b.records[0].offset, 33);
    ok(pst_consumer_seek(c, t, 0, PST_OFFSET_BEGINNING, &err), &err, "seek");
    b = poll_some(c, 5);
    assert_int_equal(b.records[0].offset, 0);
    pst_consumer_free(c);
}

static void test_live_static_member_comes_back_without_losing_its_partitions(void **state)
{
    const char *t = topic("static", 2), *g = name("g-static");
    pst_err err = {0};
    publish_n(t, -1, 0, 20);
    pst_consumer *c;
    for (int i = 0; i < 2; i++) {
        ok(pst_consumer_new(conf, &(pst_consumer_opts){.group = g, .topics = &t, .n_topics = 1, .instance_id = "slot-0"}, &c, &err), &err,
           "new");
        pst_batch b = poll_some(c, 20);
        assert_true(b.n > 0);
        assert_int_equal(pst_consumer_assignment(c, NULL, 0), 2);
        pst_consumer_free(c);
    }
}

static void delete_records(const char *t, int64_t before)
{
    rdk client = {0};
    assert_int_equal(rdk_new(RD_KAFKA_PRODUCER, rdk_conf_build(conf, RDK_ADMIN, NULL, NULL, &client, NULL), &client, NULL), 0);
    rd_kafka_t *rk = client.rk;
    rd_kafka_queue_t *q = rd_kafka_queue_new(rk);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, t, 0)->offset = before;
    rd_kafka_DeleteRecords_t *request = rd_kafka_DeleteRecords_new(list);
    rd_kafka_DeleteRecords(rk, &request, 1, NULL, q);
    rd_kafka_event_t *ev = rd_kafka_queue_poll(q, NET_MS);
    assert_non_null(ev);
    assert_int_equal(rd_kafka_event_error(ev), 0);
    rd_kafka_event_destroy(ev);
    rd_kafka_DeleteRecords_destroy(request);
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_queue_destroy(q);
    rd_kafka_destroy(rk);
}

static void test_live_records_deleted_under_a_reader_are_told(void **state)
{
    const char *t = topic("gone", 1), *g = name("g-gone");
    pst_err err = {0};
    publish_n(t, 0, 0, 100);
    pst_consumer *c = member(g, t);
    pst_batch b = poll_some(c, 10);
    assert_int_equal(b.records[0].offset, 0);
    ok(pst_consumer_commit(c, &b, &err), &err, "commit");
    pst_consumer_free(c);
    delete_records(t, 60);
    c = member(g, t);
    b = poll_some(c, 10);
    assert_int_equal(b.records[0].offset, 60);
    assert_true(b.lost);
    pst_consumer_free(c);
    pst_topic_info info;
    ok(pst_admin_topic(conf, t, &info, NET_MS, &err), &err, "topic");
    assert_int_equal(info.low[0], 60);
    pst_topic_info_done(&info);
}

/* ---- transactions -------------------------------------------------------------------------------------------------------------- */

static void test_live_transaction_commits_offsets_and_records_together(void **state)
{
    const char *in = topic("in", 1), *out = topic("out", 1), *g = name("g-eos");
    pst_err err = {0};
    publish_n(in, 0, 0, 60);
    pst_consumer *c = member(g, in);
    pst_txn *t = txn(name("t-eos"), PST_TXN_EXACTLY_ONCE, c);
    for (int n = 0; n < 60;) {
        pst_batch b = poll_some(c, 20);
        ok(pst_txn_begin(t, &err), &err, "begin");
        copy_batch(t, c, &b, out);
        ok(pst_txn_commit(t, &err), &err, "commit");
        n += (int)b.n;
        for (int i = 0; i < NET_MS / 100 && committed(g, in, 0) != n;
             i++) /* older brokers write the group's marker a moment after the commit */
            pst_sleep_ms(100);
        assert_int_equal(committed(g, in, 0), n);
    }
    uint64_t counts[3];
    pst_txn_counts(t, counts);
    assert_true(counts[0] >= 3);
    assert_int_equal(counts[1], 0);
    assert_int_equal(counts[2], 0);
    pst_txn_free(t);
    pst_consumer_free(c);
    int seen[60] = {0};
    assert_int_equal(read_all(out, false, seen, 60), 60);
}

static void test_live_abort_hides_records_and_rewinds(void **state)
{
    const char *in = topic("ain", 1), *out = topic("aout", 1), *g = name("g-abort");
    pst_err err = {0};
    publish_n(in, 0, 0, 10);
    pst_consumer *c = member(g, in);
    pst_txn *t = txn(name("t-abort"), PST_TXN_EXACTLY_ONCE, c);
    pst_batch b = poll_some(c, 10);
    ok(pst_txn_begin(t, &err), &err, "begin");
    copy_batch(t, c, &b, out);
    size_t first = b.n;
    ok(pst_txn_abort(t, &err), &err, "abort");
    assert_int_equal(read_all(out, false, NULL, 0), 0);
    assert_int_equal(committed(g, in, 0), -1);
    b = poll_some(c, 10);
    assert_int_equal(b.records[0].offset, 0);
    ok(pst_txn_begin(t, &err), &err, "begin");
    copy_batch(t, c, &b, out);
    ok(pst_txn_commit(t, &err), &err, "commit");
    assert_int_equal(read_all(out, false, NULL, 0), b.n);
    uint64_t counts[3];
    pst_txn_counts(t, counts);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], 1);
    assert_int_equal(counts[2], 1);
    assert_true(first > 0);
    pst_txn_free(t);
    pst_consumer_free(c);
}

/* Somebody initialises the same id between our rounds, then is gone: we recycle, nothing is lost or doubled, and we go on. */
static void test_live_fenced_though_alone_recovers(void **state)
{
    const char *in = topic("zin", 1), *out = topic("zout", 1), *g = name("g-zombie"), *id = name("t-zombie");
    pst_err err = {0};
    publish_n(in, 0, 0, 30);
    pst_consumer *c = member(g, in);
    pst_txn *t = txn(id, PST_TXN_EXACTLY_ONCE, c);
    int done = 0, again = 0;
    for (int round = 0; done < 30 && round < 20; round++) {
        pst_batch b = poll_some(c, 10);
        ok(pst_txn_begin(t, &err), &err, "begin");
        copy_batch(t, c, &b, out);
        if (round == 1) {
            pst_txn *other = txn(id, PST_TXN_EXACTLY_ONCE, NULL);
            ok(pst_txn_begin(other, &err), &err, "other begin");
            ok(pst_txn_send(other, &(pst_out){.topic = out, .partition = 0, .value = "99", .value_len = 2}, &err), &err, "other send");
            ok(pst_txn_commit(other, &err), &err, "other commit");
            pst_txn_free(other);
        }
        pst_err e = {0};
        int rc = pst_txn_commit(t, &e);
        if (rc == PST_EAGAIN)
            again++;
        else
            ok(rc, &e, "commit");
        if (!rc)
            done += (int)b.n;
    }
    assert_int_equal(done, 30);
    assert_int_equal(again, 1);
    pst_txn_free(t);
    pst_consumer_free(c);
    int seen[100] = {0};
    assert_int_equal(read_all(out, false, seen, 100), 31);
    for (int i = 0; i < 30; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(committed(g, in, 0), 30);
}

/* Two instances with one id that both go on: one of them is told to stop, and does. */
static void test_live_two_instances_one_stops(void **state)
{
    const char *out = topic("two", 1), *id = name("t-two");
    pst_txn *t[2] = {txn(id, PST_TXN_EXACTLY_ONCE, NULL), txn(id, PST_TXN_EXACTLY_ONCE, NULL)};
    int stopped = -1;
    for (int round = 0; round < 100 && stopped < 0; round++) {
        pst_err err = {0};
        pst_txn *x = t[round % 2];
        int rc = pst_txn_begin(x, &err);
        if (!rc) {
            pst_txn_send(x, &(pst_out){.topic = out, .partition = 0, .value = "1", .value_len = 1}, &err);
            rc = pst_txn_commit(x, &err);
        }
        if (rc == PST_EFENCED)
            stopped = round % 2;
        else
            assert_true(rc == 0 || rc == PST_EAGAIN);
    }
    assert_true(stopped >= 0);
    pst_txn_free(t[0]);
    pst_txn_free(t[1]);
}

/* Until the broker has written its marker behind what was sent. */
static void wait_for_abort(pst_txn *t, const char *out)
{
    pst_err err = {0};
    ok(pst_producer_flush(t->p, NET_MS, &err), &err, "flush");
    int64_t first = -1, high = -1;
    for (int64_t until = pst_mono_us() + NET_US; high <= first && pst_mono_us() < until; pst_sleep_ms(200)) {
        pst_topic_info info;
        ok(pst_admin_topic(conf, out, &info, NET_MS, &err), &err, "topic");
        high = info.high[0];
        first = first < 0 ? high : first;
        pst_topic_info_done(&info);
    }
    assert_true(high > first);
}

/* The round takes longer than transaction.timeout.ms: the broker aborts it (its scan runs every 10 s) and calls the producer fenced. */
static void test_live_transaction_older_than_its_timeout_is_done_again(void **state)
{
    const char *in = topic("oin", 1), *out = topic("oout", 1), *g = name("g-old");
    pst_err err = {0};
    publish_n(in, 0, 0, 20);
    pst_consumer *c = member(g, in);
    pst_bus_conf *mine = pst_bus_conf_copy(conf);
    ok(pst_bus_conf_set(mine, "transaction.timeout.ms", "2000", "test", &err), &err, "set");
    pst_txn *t;
    ok(pst_txn_new(mine, name("t-old"), PST_TXN_EXACTLY_ONCE, c, &t, &err), &err, "txn");
    int done = 0, again = 0;
    for (int round = 0; done < 20 && round < 50; round++) {
        pst_batch b = poll_some(c, 10);
        ok(pst_txn_begin(t, &err), &err, "begin");
        copy_batch(t, c, &b, out);
        if (round == 1)
            wait_for_abort(t, out);
        pst_err e = {0};
        int rc = pst_txn_commit(t, &e);
        again += rc == PST_EAGAIN;
        if (rc != PST_EAGAIN)
            ok(rc, &e, "commit");
        done += rc ? 0 : (int)b.n;
    }
    assert_int_equal(done, 20);
    assert_true(again >= 1); /* more often where a round takes two seconds anyway */
    uint64_t counts[3];
    pst_txn_counts(t, counts);
    assert_true(counts[2] >= 1);
    pst_txn_free(t);
    pst_bus_conf_free(mine);
    pst_consumer_free(c);
    int seen[20] = {0};
    assert_int_equal(read_all(out, false, seen, 20), 20);
    for (int i = 0; i < 20; i++)
        assert_int_equal(seen[i], 1);
}

static void test_live_partitions_taken_during_a_round_abort_it(void **state)
{
    const char *in = topic("rin", 2), *out = topic("rout", 1), *g = name("g-reb");
    pst_err err = {0};
    publish_n(in, -1, 0, 40);
    pst_consumer *c1 = member(g, in);
    pst_txn *t = txn(name("t-reb"), PST_TXN_EXACTLY_ONCE, c1);
    pst_batch b = poll_some(c1, 40);
    ok(pst_txn_begin(t, &err), &err, "begin");
    copy_batch(t, c1, &b, out);
    pst_consumer *c2 = member(g, in);
    bool lost = false;
    int64_t until = pst_mono_us() + NET_US;
    while (!lost && pst_mono_us() < until) {
        ok(pst_consumer_poll(c1, &quick, &b, &err), &err, "poll");
        lost |= b.lost;
        ok(pst_consumer_poll(c2, &quick, &b, &err), &err, "poll");
    }
    assert_true(lost);
    assert_int_equal(pst_txn_commit(t, &err), PST_EAGAIN);
    assert_int_equal(read_all(out, false, NULL, 0), 0);
    pst_consumer_free(c2);
    pst_txn_free(t);
    pst_consumer_free(c1);
}

static void test_live_record_larger_than_the_topic_allows(void **state)
{
    const char *in = topic("lin", 1), *out = name("lout"), *g = name("g-large");
    const char *configs[] = {"max.message.bytes", "20000", NULL};
    pst_err err = {0};
    ok(pst_admin_create_topics(conf, &(pst_topic_spec){.name = out, .partitions = 1, .replication = -1, .configs = configs}, 1, NET_MS,
                               &err),
       &err, "create");
    publish_n(in, 0, 0, 10);
    pst_consumer *c = member(g, in);
    pst_txn *t = txn(name("t-large"), PST_TXN_EXACTLY_ONCE, c);
    char *big = pst_alloc(50000);
    unsigned x = 1;
    for (int i = 0; i < 50000; i++) { /* not to be compressed */
        x = x * 1664525 + 1013904223;
        big[i] = (char)(x >> 24);
    }
    int done = 0, again = 0, limited = 0;
    for (int round = 0; done < 10 && round < 10; round++) {
        pst_batch b = poll_some(c, 10);
        ok(pst_txn_begin(t, &err), &err, "begin");
        copy_batch(t, c, &b, out);
        pst_err e = {0};
        int rc = pst_txn_send(t, &(pst_out){.topic = out, .partition = 0, .value = big, .value_len = 50000}, &e);
        if (rc == PST_ELIMIT) {
            assert_int_equal(e.cls, PST_CLASS_DATA);
            limited++;
        } else {
            ok(rc, &e, "send");
        }
        pst_err_clear(&e);
        rc = pst_txn_commit(t, &e);
        again += rc == PST_EAGAIN;
        if (rc != PST_EAGAIN)
            ok(rc, &e, "commit");
        done += rc ? 0 : (int)b.n;
    }
    assert_int_equal(done, 10);
    assert_true(again >= 1); /* one refusal that comes after the round has failed of it teaches nothing: twice, or three times */
    assert_int_equal(limited, 1);
    free(big);
    pst_txn_free(t);
    pst_consumer_free(c);
    assert_visible(out, 10);
}

static void test_live_at_least_once_mode(void **state)
{
    const char *in = topic("pin", 1), *out = topic("pout", 1), *g = name("g-alo");
    pst_err err = {0};
    publish_n(in, 0, 0, 20);
    pst_consumer *c = member(g, in);
    pst_txn *t = txn(name("t-alo"), PST_TXN_AT_LEAST_ONCE, c);
    for (int n = 0; n < 20;) {
        pst_batch b = poll_some(c, 10);
        ok(pst_txn_begin(t, &err), &err, "begin");
        copy_batch(t, c, &b, out);
        ok(pst_txn_commit(t, &err), &err, "commit");
        n += (int)b.n;
        assert_int_equal(committed(g, in, 0), n);
    }
    pst_txn_free(t);
    pst_consumer_free(c);
    assert_int_equal(read_all(out, false, NULL, 0), 20);
}

static void test_live_read_committed_waits_uncommitted_sees(void **state)
{
    const char *out = topic("iso", 1);
    pst_err err = {0};
    pst_txn *t = txn(name("t-iso"), PST_TXN_EXACTLY_ONCE, NULL);
    ok(pst_txn_begin(t, &err), &err, "begin");
    ok(pst_txn_send(t, &(pst_out){.topic = out, .partition = 0, .value = "1", .value_len = 1}, &err), &err, "send");
    int n = 0;
    for (int64_t until = pst_mono_us() + NET_US; !n && pst_mono_us() < until;) {
        pst_producer_poll(t->p, 100); /* our own client sends while it is called, and has no thread for it */
        n = read_all(out, true, NULL, 0);
    }
    assert_int_equal(n, 1);
    assert_int_equal(read_all(out, false, NULL, 0), 0);
    ok(pst_txn_commit(t, &err), &err, "commit");
    assert_visible(out, 1);
    pst_txn_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live_publish_consume_lag_and_commit),
        cmocka_unit_test(test_live_publish_to_a_topic_that_is_not_there),
        cmocka_unit_test(test_live_admin),
        cmocka_unit_test(test_live_offsets_by_time_and_start_at_time),
        cmocka_unit_test(test_live_range_over_control_records_ends),
        cmocka_unit_test(test_live_markers_are_no_lag_and_no_last_records),
        cmocka_unit_test(test_live_seek_pause_rewind),
        cmocka_unit_test(test_live_static_member_comes_back_without_losing_its_partitions),
        cmocka_unit_test(test_live_records_deleted_under_a_reader_are_told),
        cmocka_unit_test(test_live_transaction_commits_offsets_and_records_together),
        cmocka_unit_test(test_live_abort_hides_records_and_rewinds),
        cmocka_unit_test(test_live_fenced_though_alone_recovers),
        cmocka_unit_test(test_live_two_instances_one_stops),
        cmocka_unit_test(test_live_transaction_older_than_its_timeout_is_done_again),
        cmocka_unit_test(test_live_partitions_taken_during_a_round_abort_it),
        cmocka_unit_test(test_live_record_larger_than_the_topic_allows),
        cmocka_unit_test(test_live_at_least_once_mode),
        cmocka_unit_test(test_live_read_committed_waits_uncommitted_sees),
    };
    return bus_live_main("bus_live", tests, sizeof tests / sizeof *tests);
}
