/* test_bus_mock_txn.c - what pst_txn makes of every broker error of the transaction protocol, injected into librdkafka's in-memory cluster by
 * request kind. The cluster stores neither transactional offsets nor markers, so only the behaviour is proved here: commits, aborts, recycles,
 * refusals. That nothing is lost or doubled is proved on a real Kafka (test_bus_live). */
#include "common/bus/bus_txn.h"
#include "common/bus/bus_consumer.h"
#include "common/bus/rdkafka/embedded.h"
#include "common/bus/rdkafka/rdk.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <pthread.h>
#include <librdkafka/rdkafka_mock.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { PRODUCE = 0, INIT = 22, ADD_PARTITIONS = 24, ADD_OFFSETS = 25, END_TXN = 26, TXN_OFFSET_COMMIT = 28 };

static pst_embedded *broker;
static pst_bus_conf *conf;
static pst_consumer *consumer;
static rd_kafka_mock_cluster_t *cluster;

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
    assert_int_equal(pst_bus_conf_set(conf, "retry.backoff.ms", "20", "test", &err), 0);
    rd_kafka_mock_topic_create(cluster, "in", 1, 1);
    rd_kafka_mock_topic_create(cluster, "out", 1, 1);
    for (int i = 0; i < 200; i++)
        assert_int_equal(
            pst_publish(conf, &(pst_out){.topic = "in", .partition = 0, .value = "x", .value_len = 1}, 120000, NULL, NULL, &err), 0);
    const char *topic = "in";
    assert_int_equal(pst_consumer_new(conf, &(pst_consumer_opts){.group = "g", .topics = &topic, .n_topics = 1}, &consumer, &err), 0);
    return 0;
}

static int stop(void **state)
{
    pst_consumer_free(consumer);
    pst_bus_conf_free(conf);
    pst_embedded_stop(broker);
    return 0;
}

/* One round of one record; returns what commit (or begin) returned. */
static int run_round(pst_txn *t, pst_err *err)
{
    pst_batch b = {0};
    int64_t until = pst_mono_us() + 120000000;
    pst_err_clear(err);
    while (!b.n && pst_mono_us() < until)
        assert_int_equal(pst_consumer_poll(consumer, &(pst_poll){.records_max = 1, .timeout_ms = 200}, &b, NULL), 0);
    assert_int_equal(b.n, 1);
    int rc = pst_txn_begin(t, err);
    if (rc)
        return rc;
    assert_int_equal(pst_txn_send(t, &(pst_out){.topic = "out", .partition = 0, .value = "y", .value_len = 1}, err), 0);
    pst_consumer_mark(consumer, "in", 0, b.records[0].offset + 1);
    return pst_txn_commit(t, err);
}

typedef struct row {
    const char *what;
    int request;
    int errors[4]; /* injected, 0 ends */
    int want;      /* of the round with the error: 0, PST_EAGAIN or another */
    bool recycled; /* a new producer was taken by the time the next round is done */
} row;

#define E(x) RD_KAFKA_RESP_ERR_##x
static const row rows[] = {
    {"end: fenced", END_TXN, {E(PRODUCER_FENCED)}, PST_EAGAIN, true},
    {"end: epoch", END_TXN, {E(INVALID_PRODUCER_EPOCH)}, PST_EAGAIN, true},
    {"end: state", END_TXN, {E(INVALID_TXN_STATE)}, PST_EAGAIN, true},
    {"end: coordinator loads", END_TXN, {E(COORDINATOR_LOAD_IN_PROGRESS)}, 0, true}, /* hidden retry: EndTxn was sent twice */
    {"end: connection cut", END_TXN, {E(_TRANSPORT)}, 0, true},
    {"end: unknown producer id", END_TXN, {E(UNKNOWN_PRODUCER_ID)}, PST_EAGAIN, true},
    {"offsets: generation", TXN_OFFSET_COMMIT, {E(ILLEGAL_GENERATION)}, PST_EAGAIN, true},
    {"offsets: member", TXN_OFFSET_COMMIT, {E(UNKNOWN_MEMBER_ID)}, PST_EAGAIN, true},
    {"offsets: instance", TXN_OFFSET_COMMIT, {E(FENCED_INSTANCE_ID)}, PST_EAGAIN, true},
    {"offsets: rebalance", TXN_OFFSET_COMMIT, {E(REBALANCE_IN_PROGRESS)}, PST_EAGAIN, true},
    {"offsets: group right, once", TXN_OFFSET_COMMIT, {E(GROUP_AUTHORIZATION_FAILED)}, PST_EAGAIN, true},
    {"offsets: coordinator loads", TXN_OFFSET_COMMIT, {E(COORDINATOR_LOAD_IN_PROGRESS)}, 0, false},
    {"add offsets: concurrent", ADD_OFFSETS, {E(CONCURRENT_TRANSACTIONS), E(CONCURRENT_TRANSACTIONS)}, 0, false},
    {"add offsets: epoch", ADD_OFFSETS, {E(INVALID_PRODUCER_EPOCH)}, PST_EAGAIN, true},
    {"add partitions: concurrent", ADD_PARTITIONS, {E(CONCURRENT_TRANSACTIONS), E(CONCURRENT_TRANSACTIONS)}, 0, false},
    {"add partitions: epoch", ADD_PARTITIONS, {E(INVALID_PRODUCER_EPOCH)}, PST_EAGAIN, true},
    {"add partitions: topic right, once", ADD_PARTITIONS, {E(TOPIC_AUTHORIZATION_FAILED)}, PST_EAGAIN, true},
    {"produce: topic right, once", PRODUCE, {E(TOPIC_AUTHORIZATION_FAILED)}, PST_EAGAIN, true},
    {"produce: epoch", PRODUCE, {E(INVALID_PRODUCER_EPOCH)}, PST_EAGAIN, true},
    {"produce: unknown producer id", PRODUCE, {E(UNKNOWN_PRODUCER_ID)}, PST_EAGAIN, true},
    {"produce: out of order", PRODUCE, {E(OUT_OF_ORDER_SEQUENCE_NUMBER)}, PST_EAGAIN, true},
    {"produce: too large", PRODUCE, {E(MSG_SIZE_TOO_LARGE)}, PST_EAGAIN, true},
    {"produce: not leader", PRODUCE, {E(NOT_LEADER_FOR_PARTITION), E(NOT_LEADER_FOR_PARTITION)}, 0, false},
    {"produce: replicas", PRODUCE, {E(NOT_ENOUGH_REPLICAS), E(NOT_ENOUGH_REPLICAS)}, 0, false},
    {"produce: storage", PRODUCE, {E(KAFKA_STORAGE_ERROR), E(KAFKA_STORAGE_ERROR)}, 0, false},
    {"init: right", INIT, {E(TRANSACTIONAL_ID_AUTHORIZATION_FAILED)}, PST_EAUTH, false},
    {"init: cluster right", INIT, {E(CLUSTER_AUTHORIZATION_FAILED)}, PST_EAUTH, false},
    {"init: time-out", INIT, {E(INVALID_TRANSACTION_TIMEOUT)}, PST_EINVAL, false},
    {"init: fenced, once", INIT, {E(PRODUCER_FENCED)}, 0, true},
    {"init: concurrent", INIT, {E(CONCURRENT_TRANSACTIONS), E(CONCURRENT_TRANSACTIONS)}, 0, false},
};

static void inject(const row *r)
{
    size_t n = 0;
    rd_kafka_resp_err_t errors[4];
    for (; n < 4 && r->errors[n]; n++)
        errors[n] = r->errors[n];
    rd_kafka_mock_push_request_errors_array(cluster, (int16_t)r->request, n, errors);
}

static void test_mock_txn_error_classes(void **state)
{
    int wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        pst_txn *t;
        pst_err err = {0};
        char id[32];
        uint64_t counts[3];
        snprintf(id, sizeof id, "t-%zu", i);
        bool init = r->request == INIT; /* pst_txn_new sends it */
        if (init)
            inject(r);
        assert_int_equal(pst_txn_new(conf, id, PST_TXN_EXACTLY_ONCE, consumer, &t, &err), 0);
        if (!init && run_round(t, &err))
            fail_msg("%s: the round before: %s", r->what, err.text);
        if (!init)
            inject(r);
        int rc = run_round(t, &err);
        rd_kafka_mock_clear_request_errors(cluster, (int16_t)r->request);
        char story[sizeof err.text];
        snprintf(story, sizeof story, "%s", err.text);
        int after = rc == 0 || rc == PST_EAGAIN ? run_round(t, &err) : 0; /* life goes on */
        pst_txn_counts(t, counts);
        bool recycled = counts[2] > 0;
        bool good = rc == r->want && after == 0 && recycled == r->recycled && (rc != PST_EAGAIN || counts[1] == 1);
        printf("  %-36s %-12s recycled=%d%s %s\n", r->what, rc ? pst_code_name(rc) : "ok", recycled, good ? "" : "  <- WRONG", story);
        wrong += !good;
        pst_txn_free(t);
    }
    assert_int_equal(wrong, 0);
}

static void test_mock_txn_stops_after_three_refusals(void **state)
{
    pst_txn *t;
    pst_err err = {0};
    assert_int_equal(pst_txn_new(conf, "t-refused", PST_TXN_EXACTLY_ONCE, consumer, &t, &err), 0);
    int want[] = {PST_EAGAIN, PST_EAGAIN, PST_EAUTH};
    for (int i = 0; i < 3; i++) {
        rd_kafka_mock_push_request_errors(cluster, ADD_PARTITIONS, 1, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
        assert_int_equal(run_round(t, &err), want[i]);
    }
    assert_int_equal(err.cls, PST_CLASS_FATAL);
    pst_txn_free(t);

    /* The last round was not taken back, so nothing more is read from beyond it. */
    pst_batch b;
    pst_err_clear(&err);
    assert_int_equal(pst_consumer_poll(consumer, &(pst_poll){.records_max = 1, .timeout_ms = 200}, &b, &err), PST_ESTATE);
    assert_int_equal(err.cls, PST_CLASS_FATAL);
}

static void test_mock_txn_too_large_is_refused_before_it_harms(void **state)
{
    pst_txn *t;
    pst_err err = {0};
    char *big = pst_alloc(1000000);
    assert_int_equal(pst_txn_new(conf, "t-large", PST_TXN_EXACTLY_ONCE, NULL, &t, &err), 0);
    assert_int_equal(pst_txn_begin(t, &err), 0);
    assert_int_equal(pst_txn_send(t, &(pst_out){.topic = "out", .partition = 0, .value = big, .value_len = 1000000}, &err), PST_ELIMIT);
    pst_err_clear(&err);
    assert_int_equal(pst_txn_send(t, &(pst_out){.topic = "out", .partition = 0, .value = "y", .value_len = 1}, &err), 0);
    assert_int_equal(pst_txn_commit(t, &err), 0);
    assert_int_equal(pst_txn_commit(t, &err), PST_ESTATE);
    free(big);
    pst_txn_free(t);
}

static void test_mock_txn_empty_round_commits(void **state)
{
    pst_txn *t;
    pst_err err = {0};
    assert_int_equal(pst_txn_new(conf, "t-empty", PST_TXN_EXACTLY_ONCE, NULL, &t, &err), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pst_txn_begin(t, &err), 0);
        assert_int_equal(pst_txn_commit(t, &err), 0);
    }
    uint64_t counts[3];
    pst_txn_counts(t, counts);
    assert_int_equal(counts[0], 3);
    assert_int_equal(counts[2], 0);
    pst_txn_free(t);
}

/* Taking over happens while nobody begins, also when the broker is away at first. */
static void test_mock_txn_takes_over_by_itself(void **state)
{
    pst_err err = {0};
    pst_txn *t;
    rd_kafka_mock_broker_set_down(cluster, -1);
    assert_int_equal(pst_txn_new(conf, "t-heir", PST_TXN_EXACTLY_ONCE, NULL, &t, &err), 0);
    assert_true(t->starting);
    assert_int_equal(t->started, TXN_RETRY);
    rd_kafka_mock_broker_set_up(cluster, -1);
    assert_int_equal(pst_txn_begin(t, &err), 0);
    assert_int_equal(pst_txn_commit(t, &err), 0);
    uint64_t counts[3];
    pst_txn_counts(t, counts);
    assert_int_equal(counts[2], 0); /* by the very producer that began it */
    pst_txn_free(t);
    rd_kafka_mock_broker_set_down(cluster, -1);
    assert_int_equal(pst_txn_new(conf, "t-heir", PST_TXN_EXACTLY_ONCE, NULL, &t, &err), 0);
    pst_txn_free(t); /* before anything came of it */
    rd_kafka_mock_broker_set_up(cluster, -1);
}

static void *bring_up(void *arg)
{
    pst_sleep_ms(7000);
    rd_kafka_mock_broker_set_up(cluster, -1);
    return NULL;
}

static void test_mock_txn_survives_an_outage_during_commit(void **state)
{
    pst_txn *t;
    pst_err err = {0};
    assert_int_equal(pst_txn_new(conf, "t-outage", PST_TXN_EXACTLY_ONCE, NULL, &t, &err), 0);
    assert_int_equal(pst_txn_begin(t, &err), 0);
    assert_int_equal(pst_txn_send(t, &(pst_out){.topic = "out", .partition = 0, .value = "y", .value_len = 1}, &err), 0);
    rd_kafka_mock_broker_set_down(cluster, -1);
    pthread_t up;
    assert_int_equal(pthread_create(&up, NULL, bring_up, NULL), 0);
    int rc = pst_txn_commit(t, &err);
    pthread_join(up, NULL);
    if (rc)
        fail_msg("%s", err.text);
    pst_txn_free(t);
}

/* The real call waits without a time-out of its own and was seen never to come back. This one stands in its place (main()): armed, it comes back
 * only when it is let go. */
static struct rdkafka_lib real;
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_opens = PTHREAD_COND_INITIALIZER;
static bool gate_armed, gate_open;
static int offsets_take_ms; /* the next ones */

static rd_kafka_error_t *send_offsets(rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *offsets,
                                      const rd_kafka_consumer_group_metadata_t *group, int timeout_ms)
{
    pthread_mutex_lock(&gate_lock);
    bool wait = gate_armed;
    gate_armed = false;
    while (wait && !gate_open)
        pthread_cond_wait(&gate_opens, &gate_lock);
    int take_ms = offsets_take_ms;
    offsets_take_ms = 0;
    pthread_mutex_unlock(&gate_lock);
    pst_sleep_ms(take_ms);
    return real.rd_kafka_send_offsets_to_transaction_(rk, offsets, group, timeout_ms);
}

static int32_t generation; /* that the client is in by now; 0 = what it says */

static rd_kafka_consumer_group_metadata_t *group_metadata(rd_kafka_t *rk)
{
    rd_kafka_consumer_group_metadata_t *said = real.rd_kafka_consumer_group_metadata_(rk);
    if (!generation)
        return said;
    rd_kafka_consumer_group_metadata_destroy(said);
    char *id = rd_kafka_memberid(rk);
    said = rd_kafka_consumer_group_metadata_new_with_genid("g", generation, id, NULL);
    rd_kafka_mem_free(rk, id);
    return said;
}

/* A topic has grown while a rebalance waits to be told: librdkafka is in the next generation, and what the round rests on was given in the one before. */
static void test_mock_txn_offsets_of_another_generation_are_not_sent(void **state)
{
    pst_txn *t;
    pst_err err = {0};
    assert_int_equal(pst_txn_new(conf, "t-generation", PST_TXN_EXACTLY_ONCE, consumer, &t, &err), 0);
    assert_int_equal(run_round(t, &err), 0);
    generation = 77;
    assert_int_equal(run_round(t, &err), PST_EAGAIN);
    assert_non_null(strstr(err.text, "the group has gone on without this member"));
    generation = 0;
    pst_err_clear(&err);
    assert_int_equal(run_round(t, &err), 0);
    uint64_t counts[3];
    pst_txn_counts(t, counts);
    assert_int_equal(counts[0], 2);
    pst_txn_free(t);
}

static void test_mock_txn_call_that_does_not_come_back_is_left_behind(void **state)
{
    pst_txn *t;
    pst_err err = {0};
    assert_int_equal(pst_txn_new(conf, "t-hang", PST_TXN_EXACTLY_ONCE, consumer, &t, &err), 0);
    assert_int_equal(run_round(t, &err), 0);
    gate_armed = true;
    t->hang_ms[CALL_OFFSETS] = 0; /* only for the call that is sure to hang: a slow computer may take its time for every other */
    assert_int_equal(run_round(t, &err), PST_EAGAIN);
    t->hang_ms[CALL_OFFSETS] = 60000;
    assert_non_null(strstr(err.text, "did not come back"));
    assert_int_equal(run_round(t, &err), 0);
    uint64_t counts[3];
    pst_txn_counts(t, counts);
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 1);
    assert_int_equal(counts[2], 1);
    pst_txn_free(t);
    /* It comes back after all, when nobody waits any more: it takes its producer with it. */
    int alive = rd_kafka_thread_cnt();
    pthread_mutex_lock(&gate_lock);
    gate_open = true;
    pthread_cond_broadcast(&gate_opens);
    pthread_mutex_unlock(&gate_lock);
    for (int i = 0; i < 600 && rd_kafka_thread_cnt() >= alive; i++)
        pst_sleep_ms(100);
    assert_true(rd_kafka_thread_cnt() < alive);
}

/* ---- the group during a long commit ------------------------------------------------------------------------------------------------ */

static pst_consumer *member(const char *topic, const char *session_ms, const char *poll_interval_ms)
{
    pst_err err = {0};
    pst_consumer *c;
    pst_bus_conf *brisk = pst_bus_conf_copy(conf);
    assert_int_equal(pst_bus_conf_set(brisk, "session.timeout.ms", session_ms, "test", &err), 0);
    assert_int_equal(pst_bus_conf_set(brisk, "max.poll.interval.ms", poll_interval_ms, "test", &err), 0);
    assert_int_equal(pst_consumer_new(brisk, &(pst_consumer_opts){.group = topic, .topics = &topic, .n_topics = 1}, &c, &err), 0);
    pst_bus_conf_free(brisk);
    return c;
}

static void create_two(const char *topic)
{
    pst_err err = {0};
    rd_kafka_mock_topic_create(cluster, topic, 2, 1);
    for (int i = 0; i < 8; i++)
        assert_int_equal(
            pst_publish(conf, &(pst_out){.topic = topic, .partition = i % 2, .value = "x", .value_len = 1}, 120000, NULL, NULL, &err), 0);
}

/* A round over one record that has polled it. */
static pst_txn *open_round(pst_consumer *c, const char *id, pst_batch *b)
{
    pst_txn *t;
    pst_err err = {0};
    assert_int_equal(pst_txn_new(conf, id, PST_TXN_EXACTLY_ONCE, c, &t, &err), 0);
    for (int64_t until = pst_mono_us() + 120000000; !b->n && pst_mono_us() < until;)
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 1, .timeout_ms = 200}, b, NULL), 0);
    assert_int_equal(b->n, 1);
    assert_int_equal(pst_txn_begin(t, &err), 0);
    pst_txn_of(t, &b->records[0]);
    assert_int_equal(pst_txn_send(t, &(pst_out){.topic = "out", .partition = 0, .value = "y", .value_len = 1}, &err), 0);
    pst_txn_of(t, NULL);
    pst_consumer_mark(c, b->records[0].topic, b->records[0].partition, b->records[0].offset + 1);
    return t;
}

/* A commit that takes longer than max.poll.interval.ms does not cost the member its partitions, nor the records behind it. */
static void test_mock_txn_a_commit_beyond_the_poll_interval_keeps_its_place(void **state)
{
    create_two("patient");
    pst_err err = {0};
    pst_batch b = {0};
    pst_consumer *c = member("patient", "6000", "6000");
    pst_txn *t = open_round(c, "t-patient", &b);
    uint64_t epoch = pst_consumer_epoch(c);
    offsets_take_ms = 9000;
    if (pst_txn_commit(t, &err))
        fail_msg("%s", err.text);
    size_t got = 1;
    for (int64_t until = pst_mono_us() + 120000000; got < 8 && pst_mono_us() < until;) {
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 8, .timeout_ms = 200}, &b, NULL), 0);
        assert_false(b.lost);
        got += b.n;
    }
    assert_int_equal(got, 8);
    assert_int_equal(pst_consumer_epoch(c), epoch);
    pst_txn_free(t);
    pst_consumer_free(c);
}

static bool joins_end; /* atomic */

static void *join_in(void *arg)
{
    while (!__atomic_load_n(&joins_end, __ATOMIC_ACQUIRE)) {
        pst_batch b;
        pst_consumer_poll(arg, &(pst_poll){.records_max = 1, .timeout_ms = 100}, &b, NULL);
    }
    return NULL;
}

/* Another member joins during the commit, which takes 5 s: the rebalance is kept. */
static pst_consumer *commit_while_another_joins(pst_consumer *first, pst_txn *t, const char *topic, pthread_t *ret_joiner)
{
    pst_err err = {0};
    pst_consumer *second = member(topic, "30000", "60000");
    joins_end = false;
    assert_int_equal(pthread_create(ret_joiner, NULL, join_in, second), 0);
    offsets_take_ms = 5000;
    if (pst_txn_commit(t, &err))
        fail_msg("%s", err.text);
    assert_non_null(((rdk *)first->link.h)->kept);
    return second;
}

static void end_joiner(pthread_t joiner)
{
    __atomic_store_n(&joins_end, true, __ATOMIC_RELEASE);
    pthread_join(joiner, NULL);
}

static void await_partitions(pst_consumer *c, size_t n)
{
    pst_batch b = {0};
    for (int64_t until = pst_mono_us() + 120000000; pst_consumer_assignment(c, NULL, 0) != n && pst_mono_us() < until;)
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 1, .timeout_ms = 200}, &b, NULL), 0);
    assert_int_equal(pst_consumer_assignment(c, NULL, 0), n);
}

/* A rebalance that comes during a commit waits for it, though the client is polled: what is committed rests on the partitions. */
static void test_mock_txn_a_rebalance_waits_for_the_commit(void **state)
{
    create_two("pair");
    pst_batch b = {0};
    pst_consumer *first = member("pair", "30000", "60000");
    pst_txn *t = open_round(first, "t-pair", &b);
    assert_int_equal(pst_consumer_assignment(first, NULL, 0), 2);
    uint64_t epoch = pst_consumer_epoch(first);
    pthread_t joiner;
    pst_consumer *second = commit_while_another_joins(first, t, "pair", &joiner);
    assert_int_equal(pst_consumer_epoch(first), epoch);
    assert_int_equal(pst_consumer_assignment(first, NULL, 0), 2);
    assert_int_equal(pst_consumer_poll(first, &(pst_poll){.records_max = 1, .timeout_ms = 200}, &b, NULL), 0);
    assert_true(b.lost);
    assert_true(pst_consumer_epoch(first) > epoch);
    await_partitions(first, 1);
    end_joiner(joiner);
    pst_txn_free(t);
    pst_consumer_free(second);
    pst_consumer_free(first);
}

/* Closed before it could be told: nobody waits for the answer. */
static void test_mock_txn_a_rebalance_that_waits_does_not_hold_up_the_end(void **state)
{
    create_two("gone");
    pst_batch b = {0};
    pst_consumer *first = member("gone", "30000", "60000");
    pst_txn *t = open_round(first, "t-gone", &b);
    pthread_t joiner;
    pst_consumer *second = commit_while_another_joins(first, t, "gone", &joiner);
    pst_txn_free(t);
    int64_t begun = pst_mono_us();
    pst_consumer_free(first);
    assert_true(pst_mono_us() - begun < 20000000); /* before its session is over */
    end_joiner(joiner);
    await_partitions(second, 2);
    pst_consumer_free(second);
}

/* Whoever tries again has to know why it was in vain: what a topic refuses it refuses again, an outage passes. */
static void test_mock_txn_says_that_a_record_was_refused(void **state)
{
    static const struct {
        int code;
        bool refused;
    } says[] = {{RD_KAFKA_RESP_ERR_INVALID_RECORD, true},
                {RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, true},
                {RD_KAFKA_RESP_ERR_INVALID_MSG, true},
                {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, false}};
    pst_txn *t;
    pst_err err = {0};
    assert_int_equal(pst_txn_new(conf, "t-refused-record", PST_TXN_EXACTLY_ONCE, consumer, &t, &err), 0);
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        rd_kafka_mock_push_request_errors(cluster, PRODUCE, 4, says[i].code, says[i].code, says[i].code, says[i].code);
        assert_int_equal(run_round(t, &err), PST_EAGAIN);
        rd_kafka_mock_clear_request_errors(cluster, PRODUCE);
        assert_int_equal(pst_bus_refuses_record(&err), says[i].refused);
        assert_non_null(strstr(err.text, "topic out"));
        assert_int_equal(run_round(t, &err), 0);
    }
    pst_txn_free(t);
}

static void test_mock_plain_mode_sends_and_commits(void **state)
{
    pst_txn *t;
    pst_err err = {0};
    assert_int_equal(pst_txn_new(conf, "t-plain", PST_TXN_AT_LEAST_ONCE, consumer, &t, &err), 0);
    assert_int_equal(run_round(t, &err), 0);
    size_t n;
    const bus_part *p = bus_consumer_parts(consumer, &n);
    assert_int_equal(n, 1);
    int64_t at = p[0].committed;
    assert_true(at > 0);
    assert_int_equal(run_round(t, &err), 0);
    assert_int_equal(bus_consumer_parts(consumer, &n)[0].committed, at + 1);
    rd_kafka_mock_push_request_errors(cluster, PRODUCE, 1, RD_KAFKA_RESP_ERR_INVALID_RECORD);
    assert_int_equal(run_round(t, &err), PST_EAGAIN);
    assert_true(pst_bus_refuses_record(&err));
    assert_int_equal(run_round(t, &err), 0);
    assert_int_equal(bus_consumer_parts(consumer, &n)[0].committed, at + 2);
    pst_txn_free(t);
}

/* The value of the last record of "out". */
static char *last_value(void)
{
    pst_range range = {.topic = "out", .partition = 0, .from = PST_OFFSET_TAIL(1), .to = -1};
    pst_consumer *c;
    pst_err err = {0};
    char *value = NULL;
    assert_int_equal(pst_consumer_new(conf, &(pst_consumer_opts){.ranges = &range, .n_ranges = 1, .read_uncommitted = true}, &c, &err), 0);
    for (int64_t until = pst_mono_us() + 120000000; !value && pst_mono_us() < until;) {
        pst_batch b;
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.records_max = 1, .timeout_ms = 200}, &b, NULL), 0);
        if (b.n)
            value = pst_strndup(b.records[0].value, b.records[0].value_len);
    }
    pst_consumer_free(c);
    return value;
}

static void expect_last(const char *want)
{
    char *got = last_value();
    assert_string_equal(got, want);
    free(got);
}

/* A value that is written in place: sent whole, forgotten by whatever else is sent, refused like any other. */
static void test_mock_txn_value_in_place(void **state)
{
    pst_txn *t;
    pst_err err = {0};
    pst_buf *value;
    const pst_out head = {.topic = "out", .partition = 0, .key = "k", .key_len = 1};
    assert_int_equal(pst_txn_new(conf, "t-place", PST_TXN_EXACTLY_ONCE, NULL, &t, &err), 0);
    assert_int_equal(pst_txn_reserve(t, &head, &value, &err), PST_ESTATE);
    pst_err_clear(&err);
    assert_int_equal(pst_txn_begin(t, &err), 0);
    assert_int_equal(pst_txn_send_reserved(t, &err), PST_ESTATE); /* nothing is */
    pst_err_clear(&err);
    assert_int_equal(pst_txn_reserve(t, &head, &value, &err), 0);
    pst_buf_adds(value, "in ");
    pst_buf_adds(value, "place");
    assert_int_equal(pst_txn_send_reserved(t, &err), 0);
    assert_int_equal(pst_txn_commit(t, &err), 0);
    expect_last("in place");

    assert_int_equal(pst_txn_begin(t, &err), 0);
    assert_int_equal(pst_txn_reserve(t, &head, &value, &err), 0);
    pst_buf_adds(value, "forgotten");
    assert_int_equal(pst_txn_send(t, &(pst_out){.topic = "out", .partition = 0, .value = "other", .value_len = 5}, &err), 0);
    assert_int_equal(pst_txn_send_reserved(t, &err), PST_ESTATE);
    pst_err_clear(&err);
    assert_int_equal(pst_txn_reserve(t, &head, &value, &err), 0);
    pst_buf_reserve(value, 2000000);
    memset(value->data, 'x', 2000000);
    value->len += 2000000;
    assert_int_equal(pst_txn_send_reserved(t, &err), PST_ELIMIT);
    assert_int_equal(err.cls, PST_CLASS_DATA);
    pst_err_clear(&err);
    assert_int_equal(pst_txn_commit(t, &err), 0); /* the round is unharmed */
    expect_last("other");
    pst_txn_free(t);
}

int main(void)
{
    assert_int_equal(rdkafka_lib_open(NULL), 0);
    real = rdkafka_lib;
    rdkafka_lib.rd_kafka_send_offsets_to_transaction_ = send_offsets;
    rdkafka_lib.rd_kafka_consumer_group_metadata_ = group_metadata;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mock_txn_a_commit_beyond_the_poll_interval_keeps_its_place),
        cmocka_unit_test(test_mock_txn_a_rebalance_waits_for_the_commit),
        cmocka_unit_test(test_mock_txn_a_rebalance_that_waits_does_not_hold_up_the_end),
        cmocka_unit_test(test_mock_txn_says_that_a_record_was_refused),
        cmocka_unit_test(test_mock_plain_mode_sends_and_commits),
        cmocka_unit_test(test_mock_txn_value_in_place),
        cmocka_unit_test(test_mock_txn_error_classes),
        cmocka_unit_test(test_mock_txn_too_large_is_refused_before_it_harms),
        cmocka_unit_test(test_mock_txn_empty_round_commits),
        cmocka_unit_test(test_mock_txn_takes_over_by_itself),
        cmocka_unit_test(test_mock_txn_offsets_of_another_generation_are_not_sent),
        cmocka_unit_test(test_mock_txn_call_that_does_not_come_back_is_left_behind),
        cmocka_unit_test(test_mock_txn_survives_an_outage_during_commit),
        cmocka_unit_test(test_mock_txn_stops_after_three_refusals), /* the last: its consumer is of no use afterwards */
    };
    if (getenv("PENSTOCK_TEST_ONLY"))
        cmocka_set_test_filter(getenv("PENSTOCK_TEST_ONLY"));
    return cmocka_run_group_tests(tests, start, stop);
}
