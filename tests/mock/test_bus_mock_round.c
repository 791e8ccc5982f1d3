/* test_bus_mock_round.c - a round that has sent anything for a record cannot commit without the offset behind it, and a position is known or the
 * consumer says that it is not: each way in which a mark was once forgotten, with the calls of librdkafka made to fail here. */
#include "common/bus/bus_consumer.h"
#include "common/bus/rdkafka/embedded.h"
#include "common/bus/bus_txn.h"
#include "common/bus/rdkafka/rdk.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <librdkafka/rdkafka_mock.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { PRODUCE = 0, HEARTBEAT = 12 };
#define NET_MS 120000 /* deadlines are nets for what hangs: a test that passes waits for none */
#define NET_US (NET_MS * 1000LL)

static pst_embedded *broker;
static pst_bus_conf *conf;
static rd_kafka_mock_cluster_t *cluster;
static pst_consumer *c;
static pst_txn *t;
static char in[32];

/* ---- calls of librdkafka that fail when told to; main() puts them in the real ones' places ----------------------------------------- */

static int seeks_fail, seeks_late, committed_fails, ends_slow, aborts;
static rd_kafka_t *dead; /* this client has a fatal error */
static struct rdkafka_lib real;

static rd_kafka_error_t *seek_partitions(rd_kafka_t *rk, rd_kafka_topic_partition_list_t *list, int timeout_ms)
{
    if (seeks_fail && seeks_fail--)
        return rd_kafka_error_new(RD_KAFKA_RESP_ERR__STATE, "injected");
    if (seeks_late && seeks_late--) /* long before its time is over */
        return rd_kafka_error_new(RD_KAFKA_RESP_ERR__TIMED_OUT, "injected");
    return real.rd_kafka_seek_partitions_(rk, list, timeout_ms);
}

static rd_kafka_resp_err_t committed(rd_kafka_t *rk, rd_kafka_topic_partition_list_t *list, int timeout_ms)
{
    if (committed_fails && committed_fails--)
        return RD_KAFKA_RESP_ERR__TIMED_OUT;
    return real.rd_kafka_committed_(rk, list, timeout_ms);
}

static rd_kafka_resp_err_t offsets_for_times(rd_kafka_t *rk, rd_kafka_topic_partition_list_t *list, int timeout_ms)
{
    if (__atomic_load_n(&ends_slow, __ATOMIC_RELAXED))
        pst_sleep_ms(4000);
    return real.rd_kafka_offsets_for_times_(rk, list, timeout_ms);
}

static rd_kafka_error_t *abort_transaction(rd_kafka_t *rk, int timeout_ms)
{
    aborts++;
    return real.rd_kafka_abort_transaction_(rk, timeout_ms);
}

static rd_kafka_resp_err_t fatal_error(rd_kafka_t *rk, char *text, size_t size)
{
    if (dead && rk == dead) {
        if (text)
            snprintf(text, size, "injected");
        return RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID;
    }
    return real.rd_kafka_fatal_error_(rk, text, size);
}

/* ---- kit ------------------------------------------------------------------------------------------------------------------------------ */

static int start(void **state)
{
    pst_err err = {0};
    if (getenv("PENSTOCK_TEST_VERBOSE"))
        pst_log_set_level(PST_LOG_DEBUG);
    assert_int_equal(pst_embedded_start(0, &broker, &err), 0);
    cluster = bus_embedded_cluster(broker);
    conf = pst_bus_conf_new(pst_embedded_bootstrap(broker), "test");
    assert_int_equal(pst_bus_conf_set(conf, "fetch.wait.max.ms", "10", "test", &err), 0);
    assert_int_equal(pst_bus_conf_set(conf, "session.timeout.ms", "30000", "test", &err), 0);
    rd_kafka_mock_topic_create(cluster, "out", 1, 1);
    return 0;
}

static int stop(void **state)
{
    pst_bus_conf_free(conf);
    pst_embedded_stop(broker);
    return 0;
}

static pst_batch poll_some(size_t n)
{
    pst_batch b = {0};
    for (int64_t until = pst_mono_us() + NET_US; !b.n && pst_mono_us() < until;)
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = n, .age_max_us = NET_US, .timeout_ms = 200}, &b, NULL), 0);
    assert_int_equal(b.n, n);
    return b;
}

/* A topic of its own with 10 records in each of two partitions, a consumer and a transaction. */
static int each(void **state)
{
    static int number;
    pst_err err = {0};
    snprintf(in, sizeof in, "in-%d", ++number);
    rd_kafka_mock_topic_create(cluster, in, 2, 1);
    for (int i = 0; i < 20; i++)
        assert_int_equal(
            pst_publish(conf, &(pst_out){.topic = in, .partition = i % 2, .value = "x", .value_len = 1}, NET_MS, NULL, NULL, &err), 0);
    const char *topic = in;
    assert_int_equal(pst_consumer_new(conf, &(pst_consumer_opts){.group = in, .topics = &topic, .n_topics = 1}, &c, &err), 0);
    assert_int_equal(pst_txn_new(conf, in, PST_TXN_EXACTLY_ONCE, c, &t, &err), 0);
    return 0;
}

/* The linker puts it between the bus and the clock. */
int64_t __real_pst_mono_us(void);
int64_t __wrap_pst_mono_us(void);
static int64_t ahead_us;

int64_t __wrap_pst_mono_us(void)
{
    return __real_pst_mono_us() + __atomic_load_n(&ahead_us, __ATOMIC_RELAXED);
}

static int each_done(void **state)
{
    seeks_fail = seeks_late = committed_fails = ends_slow = 0;
    /* Threads wait by the true clock: as long beyond their time as this one is ahead, should a close of librdkafka hang. */
    __atomic_store_n(&ahead_us, 0, __ATOMIC_RELAXED);
    dead = NULL;
    pst_txn_free(t);
    pst_consumer_free(c);
    return 0;
}

static void begin_and_send(const pst_record *r)
{
    pst_err err = {0};
    if (!t->open)
        assert_int_equal(pst_txn_begin(t, &err), 0);
    pst_txn_of(t, r);
    assert_int_equal(pst_txn_send(t, &(pst_out){.topic = "out", .partition = 0, .value = "y", .value_len = 1}, &err), 0);
}

static void mark(const pst_record *r)
{
    pst_consumer_mark(c, r->topic, r->partition, r->offset + 1);
}

static int64_t first_of(const pst_batch *b, int32_t partition)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->records[i].partition == partition)
            return b->records[i].offset;
    return -1;
}

static void assert_astray(void)
{
    pst_batch b;
    pst_err err = {0};
    assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 1, .timeout_ms = 200}, &b, &err), PST_ESTATE);
    assert_int_equal(err.cls, PST_CLASS_FATAL);
    assert_int_equal(b.n, 0);
    assert_non_null(strstr(err.text, "opened again"));
}

/* ---- what is owed --------------------------------------------------------------------------------------------------------------------- */

static void test_round_that_owes_a_mark_is_not_committed(void **state)
{
    pst_err err = {0};
    pst_batch b = poll_some(20);
    begin_and_send(&b.records[0]);
    assert_int_equal(pst_txn_commit(t, &err), PST_EAGAIN);
    assert_non_null(strstr(err.text, "cannot be committed"));
    b = poll_some(20); /* all of it comes again */
    assert_int_equal(first_of(&b, 0), 0);
    assert_int_equal(first_of(&b, 1), 0);
    begin_and_send(&b.records[0]);
    mark(&b.records[0]);
    pst_err_clear(&err);
    assert_int_equal(pst_txn_commit(t, &err), 0);
}

static void test_seek_keeps_what_was_marked_before_its_target(void **state)
{
    pst_err err = {0};
    pst_batch b = poll_some(20);
    for (size_t i = 0; i < 3; i++) {
        begin_and_send(&b.records[i]);
        mark(&b.records[i]);
    }
    const pst_record *r = &b.records[3];
    assert_int_equal(pst_consumer_seek(c, r->topic, r->partition, r->offset, &err), 0);
    size_t n;
    const bus_part *p = bus_consumer_parts(c, &n);
    for (size_t i = 0; i < n; i++)
        assert_true(p[i].owed == p[i].marked);
    assert_int_equal(pst_txn_commit(t, &err), 0);
}

static void test_seek_behind_what_was_sent_spoils_the_round(void **state)
{
    pst_err err = {0};
    pst_batch b = poll_some(20);
    begin_and_send(&b.records[0]);
    mark(&b.records[0]);
    assert_int_equal(pst_consumer_seek(c, in, b.records[0].partition, b.records[0].offset, &err), 0);
    assert_int_equal(pst_txn_commit(t, &err), PST_EAGAIN);
    b = poll_some(20);
}

static void test_seek_forward_in_a_round_is_refused(void **state)
{
    pst_err err = {0};
    pst_batch b = poll_some(20);
    begin_and_send(&b.records[0]);
    mark(&b.records[0]);
    assert_int_equal(pst_consumer_seek(c, in, 0, 50, &err), PST_ESTATE);
}

static void test_rewind_in_a_round_spoils_it(void **state)
{
    pst_err err = {0};
    pst_batch b = poll_some(20);
    begin_and_send(&b.records[0]);
    mark(&b.records[0]);
    assert_int_equal(pst_consumer_rewind(c, &err), 0);
    assert_int_equal(pst_txn_commit(t, &err), PST_EAGAIN);
}

/* The coordinator asks offsets from nobody for no generation: a member that was thrown out, and has not been polled since, must not send any. */
static void test_member_that_was_thrown_out_commits_nothing(void **state)
{
    pst_err err = {0};
    pst_batch b = poll_some(20);
    for (size_t i = 0; i < b.n; i++) {
        begin_and_send(&b.records[i]);
        mark(&b.records[i]);
    }
    rd_kafka_mock_push_request_errors(cluster, HEARTBEAT, 1, RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID);
    bool out = false;
    for (int64_t until = pst_mono_us() + NET_US; !out && pst_mono_us() < until; pst_sleep_ms(50)) {
        char *id = rd_kafka_memberid(rdk_of(c->link.h)->rk);
        out = !id || !*id;
        if (id)
            rd_kafka_mem_free(rdk_of(c->link.h)->rk, id);
    }
    assert_true(out);
    assert_int_equal(pst_txn_commit(t, &err), PST_EAGAIN);
    assert_non_null(strstr(err.text, "the group has gone on without this member"));
}

/* An abort while a commit may be under way ends the process by and by: not asked for. */
static void test_nothing_is_aborted_after_a_commit_was_tried(void **state)
{
    pst_err err = {0};
    pst_batch b = poll_some(20);
    begin_and_send(&b.records[0]);
    mark(&b.records[0]);
    aborts = 0;
    rd_kafka_mock_push_request_errors(cluster, PRODUCE, 1, RD_KAFKA_RESP_ERR_INVALID_RECORD);
    assert_int_equal(pst_txn_commit(t, &err), PST_EAGAIN);
    assert_true(t->counts[2] > 0);
    assert_int_equal(aborts, 0);
    b = poll_some(20);
    begin_and_send(&b.records[0]);
    pst_err_clear(&err);
    assert_int_equal(pst_txn_abort(t, &err), 0); /* nothing under way: the quick end */
    assert_int_equal(aborts, 1);
}

/* ---- positions ------------------------------------------------------------------------------------------------------------------------ */

static void test_seek_that_fails_is_no_position(void **state)
{
    pst_err err = {0};
    pst_batch b = poll_some(20);
    begin_and_send(&b.records[0]);
    mark(&b.records[0]);
    seeks_fail = 1;
    assert_int_equal(pst_consumer_seek(c, in, 1, 5, &err), PST_ESTATE);
    assert_int_equal(err.cls, PST_CLASS_FATAL);
    pst_err_clear(&err);
    assert_true(pst_txn_commit(t, &err) != 0); /* whatever becomes of it, the scores are not committed */
    assert_astray();
}

static void test_seek_has_its_whole_time(void **state)
{
    pst_batch b = poll_some(4);
    int32_t partition = b.records[0].partition;
    int64_t offset = b.records[0].offset;
    seeks_late = 2;
    assert_int_equal(pst_consumer_seek(c, in, partition, offset, NULL), 0);
    assert_int_equal(seeks_late, 0);
    assert_int_equal(c->health.fatal.code, 0);
}

static void test_rewind_that_fails_is_no_round_again(void **state)
{
    pst_err err = {0};
    pst_batch b = poll_some(20);
    begin_and_send(&b.records[0]);
    seeks_fail = 1;
    assert_int_equal(pst_txn_commit(t, &err), PST_ESTATE);
    assert_int_equal(err.cls, PST_CLASS_FATAL);
    assert_astray();
}

static void test_abort_whose_rewind_fails_is_no_round_again(void **state)
{
    pst_err err = {0};
    pst_batch b = poll_some(20);
    begin_and_send(&b.records[0]);
    seeks_fail = 1;
    assert_int_equal(pst_txn_abort(t, &err), PST_ESTATE);
    assert_astray();
}

static int waits_told, waits_over;
static void on_wait(void *arg, const char *why)
{
    if (why)
        waits_told++;
    else
        waits_over++;
}

static void test_dead_consumer_is_not_asked_for_ever(void **state)
{
    pst_err err = {0};
    poll_some(20);
    committed_fails = 1000000;
    dead = rdk_of(c->link.h)->rk;
    int64_t begun = pst_mono_us();
    assert_true(pst_consumer_rewind(c, &err) < 0);
    assert_int_equal(err.cls, PST_CLASS_FATAL);
    assert_true(pst_mono_us() - begun < NET_US);
    pst_batch b; /* and it says so itself: what asked it is only the first to notice */
    pst_err_clear(&err);
    assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 1, .timeout_ms = 200}, &b, &err), PST_EFENCED);
    assert_int_equal(err.cls, PST_CLASS_FATAL);
    assert_int_equal(b.n, 0);
    dead = NULL;
}

/* librdkafka is told behind our back not to fetch: to us it looks as if there were nothing. */
static void test_partition_that_is_not_fetched_is_noticed(void **state)
{
    pst_err err = {0};
    poll_some(20);
    waits_told = waits_over = 0;
    c->opts.on_wait = on_wait;
    c->quiet_ms = 100;
    rd_kafka_topic_partition_list_t *one = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(one, in, 1);
    assert_int_equal(rd_kafka_pause_partitions(rdk_of(c->link.h)->rk, one), 0);
    rd_kafka_topic_partition_list_destroy(one);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pst_publish(conf, &(pst_out){.topic = in, .partition = i, .value = "x", .value_len = 1}, 5000, NULL, NULL, &err),
                         0);
    pst_batch b = {0};
    int rc = 0;
    for (int64_t until = pst_mono_us() + 20000000; !rc && pst_mono_us() < until; pst_err_clear(&err))
        rc = pst_consumer_poll(c, &(pst_poll){.records_max = 5, .timeout_ms = 50}, &b, &err);
    assert_int_equal(rc, PST_ESTATE);
    assert_true(waits_told > 0);
    assert_astray();
    assert_non_null(strstr(c->health.fatal.text, "has records up to 10"));
}

static void test_partitions_at_their_ends_are_left_alone(void **state)
{
    pst_err err = {0};
    poll_some(20);
    waits_told = 0;
    c->opts.on_wait = on_wait;
    c->quiet_ms = 50;
    pst_batch b = {0};
    for (int64_t until = pst_mono_us() + 1500000; pst_mono_us() < until;)
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 5, .timeout_ms = 50}, &b, &err), 0);
    assert_int_equal(waits_told, 0);
    assert_true(c->quiet_check_us > 0);
}

/* A broker that is frozen keeps its connections: librdkafka says nothing of it for a minute. */
static void test_broker_that_does_not_answer_is_told(void **state)
{
    pst_err err = {0};
    poll_some(20);
    waits_told = waits_over = 0;
    c->opts.on_wait = on_wait;
    c->quiet_ms = 50;
    ends_slow = 1;
    pst_batch b = {0};
    for (int64_t until = pst_mono_us() + 20000000; !waits_over && pst_mono_us() < until;) {
        int64_t begun = pst_mono_us();
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 5, .timeout_ms = 50}, &b, &err), 0);
        assert_in_range(pst_mono_us() - begun, 0, 2000000); /* nobody waits for the answer */
        if (waits_told)
            __atomic_store_n(&ends_slow, 0, __ATOMIC_RELAXED);
    }
    assert_true(waits_told > 0);
    assert_int_equal(waits_over, 1);
}

/* What a mute broker is still asked holds up nobody who opens anew. */
static void test_consumer_of_a_mute_broker_is_closed_at_once(void **state)
{
    pst_err err = {0};
    poll_some(20);
    c->quiet_ms = 50;
    ends_slow = 1;
    pst_batch b = {0};
    while (!c->look)
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 5, .timeout_ms = 50}, &b, &err), 0);
    pst_txn_free(t);
    t = NULL;
    int64_t begun = pst_mono_us();
    pst_consumer_free(c);
    c = NULL;
    assert_in_range(pst_mono_us() - begun, 0, 2500000);
}

static void test_waiting_for_the_coordinator_is_told(void **state)
{
    pst_err err = {0};
    poll_some(20);
    waits_told = waits_over = 0;
    c->opts.on_wait = on_wait;
    committed_fails = 45; /* a tenth of a second each */
    assert_int_equal(pst_consumer_rewind(c, &err), 0);
    assert_true(waits_told >= 1);
    assert_int_equal(waits_over, 1);
}

static void minutes_pass(void *arg, const char *why)
{
    waits_told += why != NULL;
    __atomic_fetch_add(&ahead_us, INT64_C(150000000), __ATOMIC_RELAXED);
}

/* A coordinator that never tells, to a consumer that nothing else is wrong with: a new one asks anew. */
static void test_waiting_for_the_coordinator_has_an_end(void **state)
{
    pst_err err = {0};
    poll_some(20);
    waits_told = 0;
    c->opts.on_wait = minutes_pass;
    committed_fails = 600; /* a minute of true time: so long a test without an end would take */
    assert_true(pst_consumer_rewind(c, &err) < 0);
    assert_in_range(waits_told, 1, 1);
    assert_non_null(strstr(err.text, "did not come within 120 s"));
    committed_fails = 0;
    assert_astray();
}

/* A scorer that was always busy said for ever that it waited. */
static void test_waiting_for_offsets_is_over_while_records_flow(void **state)
{
    pst_err err = {0};
    poll_some(20);
    waits_told = waits_over = 0;
    c->opts.on_wait = on_wait;
    c->start_wait = (bus_wait){.what = "start_offsets", .begun_us = 1, .reported_us = 1};
    c->start_check_us = 0;
    assert_int_equal(pst_publish(conf, &(pst_out){.topic = in, .partition = 0, .value = "x", .value_len = 1}, NET_MS, NULL, NULL, &err), 0);
    pst_batch b = {0};
    assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 1, .timeout_ms = NET_MS}, &b, &err), 0);
    assert_int_equal(b.n, 1);
    assert_int_equal(waits_told, 0);
    assert_int_equal(waits_over, 1);
}

/* ---- holding -------------------------------------------------------------------------------------------------------------------------- */

static void test_hold_keeps_one_partition_alone(void **state)
{
    enum { HOLD_MS = 6000 }; /* what is published and read meanwhile takes less on any machine */
    pst_err err = {0};
    pst_batch b = poll_some(20);
    int64_t begun = pst_mono_us();
    assert_int_equal(pst_consumer_hold(c, in, 0, 4, HOLD_MS, HOLD_MS, &err), 0);
    assert_true(pst_consumer_held(c, in, 0));
    assert_false(pst_consumer_held(c, in, 1));
    for (int i = 0; i < 5; i++)
        assert_int_equal(pst_publish(conf, &(pst_out){.topic = in, .partition = 1, .value = "z", .value_len = 1}, NET_MS, NULL, NULL, &err),
                         0);
    b = poll_some(5);
    for (size_t i = 0; i < b.n; i++)
        assert_int_equal(b.records[i].partition, 1);
    /* Pausing and resuming all does not let it go. */
    assert_int_equal(pst_consumer_pause(c, true), 0);
    assert_int_equal(pst_consumer_pause(c, false), 0);
    assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 1, .timeout_ms = 200}, &b, &err), 0);
    assert_int_equal(b.n, 0);
    b = poll_some(6);
    assert_in_range(pst_mono_us() - begun, HOLD_MS * 1000, NET_US);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(b.records[i].partition, 0);
        assert_int_equal(b.records[i].offset, 4 + i);
    }
    assert_false(pst_consumer_held(c, in, 0));
}

static void test_hold_keeps_the_marks_of_the_round(void **state)
{
    pst_err err = {0};
    pst_batch b = poll_some(20);
    for (size_t i = 0; i < 20; i++) {
        const pst_record *r = &b.records[i];
        if (r->partition == 0 && r->offset >= 4)
            continue;
        begin_and_send(r);
        mark(r);
    }
    assert_int_equal(pst_consumer_hold(c, in, 0, 4, 60000, 60000, &err), 0);
    assert_int_equal(pst_txn_commit(t, &err), 0);
    size_t n;
    const bus_part *p = bus_consumer_parts(c, &n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(p[i].committed, p[i].partition == 0 ? 4 : 10);
}

static void test_serving_gives_no_records_and_loses_none(void **state)
{
    pst_err err = {0};
    bool lost = true;
    pst_batch b = poll_some(7);
    int64_t next[2] = {0, 0};
    for (size_t i = 0; i < b.n; i++)
        next[b.records[i].partition]++;
    assert_int_equal(pst_consumer_pause(c, true), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(pst_consumer_serve(c, 50, &lost, &err), 0);
    assert_false(lost);
    assert_int_equal(b.records[6].value_len, 1); /* still there */
    assert_int_equal(pst_consumer_pause(c, false), 0);
    b = poll_some(13);
    for (size_t i = 0; i < b.n; i++)
        assert_int_equal(b.records[i].offset, next[b.records[i].partition]++);
}

/* What came while everything stood still is not passed over: nobody takes the end that was known before for the end. */
static void test_end_is_not_known_after_a_standstill(void **state)
{
    pst_err err = {0};
    bool lost;
    pst_batch b = {0};
    poll_some(20);
    for (int64_t until = pst_mono_us() + NET_US; !(c->parts[0].eof && c->parts[1].eof) && pst_mono_us() < until;)
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 5, .timeout_ms = 50}, &b, &err), 0);
    assert_int_equal(pst_consumer_lag(c), 0);
    assert_true(pst_consumer_at_end(c));
    assert_int_equal(pst_consumer_pause(c, true), 0);
    assert_int_equal(pst_consumer_serve(c, 50, &lost, &err), 0);
    assert_int_equal(pst_publish(conf, &(pst_out){.topic = in, .partition = 1, .value = "x", .value_len = 1}, 5000, NULL, NULL, &err), 0);
    assert_int_equal(pst_consumer_pause(c, false), 0);
    for (int64_t until = pst_mono_us() + NET_US; !b.n && pst_mono_us() < until;) {
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 5}, &b, &err), 0);
        assert_false(!b.n && pst_consumer_at_end(c)); /* or the record would be passed over */
    }
    assert_int_equal(b.n, 1);
    for (int64_t until = pst_mono_us() + NET_US; !pst_consumer_at_end(c) && pst_mono_us() < until;)
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 5, .timeout_ms = 50}, &b, &err), 0);
    assert_true(pst_consumer_at_end(c)); /* the other partition has said again that it is at its end */
}

/* A pause throws away what was fetched, and what is fetched first gives the next batch: with a model that takes its time over each, every partition
 * has its turn all the same, and none is taken for lost because it had to wait. */
static void test_slow_batches_starve_no_partition(void **state)
{
    enum { PARTITIONS = 4, EACH = 20, BATCH = 1, ROUNDS = 8 };
    pst_err err = {0};
    rd_kafka_mock_topic_create(cluster, "slow", PARTITIONS, 1);
    for (int i = 0; i < PARTITIONS * EACH; i++)
        assert_int_equal(pst_publish(conf, &(pst_out){.topic = "slow", .partition = i % PARTITIONS, .value = "x", .value_len = 1}, 120000,
                                     NULL, NULL, &err),
                         0);
    const char *topic = "slow";
    pst_consumer *slow;
    assert_int_equal(pst_consumer_new(conf, &(pst_consumer_opts){.group = "slow", .topics = &topic, .n_topics = 1}, &slow, &err), 0);
    slow->quiet_ms = 500;
    int64_t next[PARTITIONS] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        pst_batch b = {0};
        for (int64_t until = pst_mono_us() + 120000000; !b.n && pst_mono_us() < until;)
            if (pst_consumer_poll(slow, &(pst_poll){.records_max = BATCH, .timeout_ms = 100, .age_max_us = 5000}, &b, &err) < 0)
                fail_msg("round %d: %s", round, err.text);
        for (size_t i = 0; i < b.n; i++)
            assert_int_equal(b.records[i].offset, next[b.records[i].partition]++); /* none is skipped or comes twice */
        bool lost = false;
        assert_int_equal(pst_consumer_pause(slow, true), 0);
        for (int64_t until = pst_mono_us() + 2200000; pst_mono_us() < until;)
            assert_int_equal(pst_consumer_serve(slow, 100, &lost, &err), 0);
        assert_int_equal(pst_consumer_pause(slow, false), 0);
        assert_false(lost);
    }
    for (int i = 0; i < PARTITIONS; i++)
        if (!next[i])
            fail_msg("partition %d had no turn: %lld %lld %lld %lld", i, (long long)next[0], (long long)next[1], (long long)next[2],
                     (long long)next[3]);
    pst_consumer_free(slow);
}

static void stand_in(void)
{
    assert_int_equal(rdkafka_lib_open(NULL), 0);
    real = rdkafka_lib;
    rdkafka_lib.rd_kafka_seek_partitions_ = seek_partitions;
    rdkafka_lib.rd_kafka_committed_ = committed;
    rdkafka_lib.rd_kafka_offsets_for_times_ = offsets_for_times;
    rdkafka_lib.rd_kafka_abort_transaction_ = abort_transaction;
    rdkafka_lib.rd_kafka_fatal_error_ = fatal_error;
}

int main(void)
{
    stand_in();
#define EACH(test) cmocka_unit_test_setup_teardown(test, each, each_done)
    const struct CMUnitTest tests[] = {
        EACH(test_round_that_owes_a_mark_is_not_committed),
        EACH(test_seek_keeps_what_was_marked_before_its_target),
        EACH(test_seek_behind_what_was_sent_spoils_the_round),
        EACH(test_seek_forward_in_a_round_is_refused),
        EACH(test_rewind_in_a_round_spoils_it),
        EACH(test_member_that_was_thrown_out_commits_nothing),
        EACH(test_nothing_is_aborted_after_a_commit_was_tried),
        EACH(test_seek_that_fails_is_no_position),
        EACH(test_seek_has_its_whole_time),
        EACH(test_rewind_that_fails_is_no_round_again),
        EACH(test_abort_whose_rewind_fails_is_no_round_again),
        EACH(test_dead_consumer_is_not_asked_for_ever),
        EACH(test_partition_that_is_not_fetched_is_noticed),
        EACH(test_partitions_at_their_ends_are_left_alone),
        EACH(test_broker_that_does_not_answer_is_told),
        EACH(test_consumer_of_a_mute_broker_is_closed_at_once),
        EACH(test_waiting_for_the_coordinator_is_told),
        EACH(test_waiting_for_the_coordinator_has_an_end),
        EACH(test_waiting_for_offsets_is_over_while_records_flow),
        EACH(test_hold_keeps_one_partition_alone),
        EACH(test_hold_keeps_the_marks_of_the_round),
        EACH(test_serving_gives_no_records_and_loses_none),
        EACH(test_end_is_not_known_after_a_standstill),
        EACH(test_slow_batches_starve_no_partition),
    };
    if (getenv("PENSTOCK_TEST_ONLY"))
        cmocka_set_test_filter(getenv("PENSTOCK_TEST_ONLY"));
    return cmocka_run_group_tests(tests, start, stop);
}
