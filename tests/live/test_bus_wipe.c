/* test_bus_wipe.c - what Kafka 4.1 to 4.3 forgets of an aborted transaction (KAFKA-20734) does not come back to life. Three brokers of its own, through
 * deploy/kafka/kafka, in a temporary directory: a topic whose only replica is on one of them has no leader while that one is dead. */
#include "common/bus/bus_admin.h"
#include "common/bus/bus_txn.h"
#include "common/bus/rdkafka/rdk.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOPIC "wiped"

static pst_bus_conf *conf;
static char dir[64];

static int script(const char *args, const char *after)
{
    char command[500];
    snprintf(command, sizeof command, "PENSTOCK_KAFKA_BROKER_SESSION_MS=3000 deploy/kafka/kafka %s --dir %s >>%s.log 2>&1 %s", args, dir,
             dir, after);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void ok(int rc, const pst_err *err, const char *what)
{
    if (rc)
        fail_msg("%s: %s %s", what, pst_code_name(rc), err->text);
}

/* On broker 2 and nowhere else. */
static void create(void)
{
    bus_admin a;
    pst_err err = {0};
    char text[200];
    int32_t on = 2;
    ok(bus_admin_open(&a, conf, true, NULL, 30000, &err), &err, "admin");
    rd_kafka_NewTopic_t *topic = rd_kafka_NewTopic_new(TOPIC, 1, -1, text, sizeof text);
    assert_non_null(topic);
    assert_int_equal(rd_kafka_NewTopic_set_replica_assignment(topic, 0, &on, 1, text, sizeof text), 0);
    assert_int_equal(rd_kafka_NewTopic_set_config(topic, "min.insync.replicas", "1"), 0);
    rd_kafka_queue_t *q = rd_kafka_queue_new(rdk_of(a.link.h)->rk);
    rd_kafka_CreateTopics(rdk_of(a.link.h)->rk, &topic, 1, NULL, q);
    rd_kafka_event_t *ev = rd_kafka_queue_poll(q, 30000);
    assert_non_null(ev);
    size_t n = 0;
    const rd_kafka_topic_result_t **rows = rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(ev), &n);
    assert_int_equal(n, 1);
    if (rd_kafka_topic_result_error(rows[0]))
        fail_msg("create: %s", rd_kafka_topic_result_error_string(rows[0]));
    rd_kafka_event_destroy(ev);
    rd_kafka_queue_destroy(q);
    rd_kafka_NewTopic_destroy(topic);
    bus_admin_close(&a);
}

static bool has_leader(rd_kafka_t *rk)
{
    const rd_kafka_metadata_t *m = NULL;
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, TOPIC, NULL);
    bool has = true;
    if (rd_kafka_metadata(rk, 0, rkt, &m, 5000) == 0) {
        has = m->topic_cnt == 1 && m->topics[0].partition_cnt == 1 && m->topics[0].partitions[0].leader >= 0;
        rd_kafka_metadata_destroy(m);
    }
    rd_kafka_topic_destroy(rkt);
    return has;
}

static void send_one(pst_txn *t, const char *text)
{
    pst_err err = {0};
    ok(pst_txn_begin(t, &err), &err, "begin");
    ok(pst_txn_send(t, &(pst_out){.topic = TOPIC, .partition = 0, .value = text, .value_len = strlen(text)}, &err), &err, "send");
    ok(pst_producer_flush(t->p, 30000, &err), &err, "flush");
}

/* What a reader of committed records sees, one word after the other. */
static void read_all(char *ret, size_t size)
{
    pst_range range = {TOPIC, 0, PST_OFFSET_BEGINNING, -1};
    pst_consumer *c;
    pst_err err = {0};
    pst_batch b = {0};
    *ret = 0;
    ok(pst_consumer_new(conf, &(pst_consumer_opts){.ranges = &range, .n_ranges = 1, .report_eof = true}, &c, &err), &err, "reader");
    for (int64_t until = pst_mono_us() + 30000000; !b.eof && pst_mono_us() < until;) {
        ok(pst_consumer_poll(c, &(pst_poll){.timeout_ms = 500}, &b, &err), &err, "poll");
        for (size_t i = 0; i < b.n; i++)
            snprintf(ret + strlen(ret), size - strlen(ret), "%.*s ", (int)b.records[i].value_len, (const char *)b.records[i].value);
    }
    pst_consumer_free(c);
}

static void test_live_an_aborted_record_stays_aborted_where_its_partition_had_no_leader(void **state)
{
    pst_err err = {0};
    pst_txn *t;
    create();
    ok(pst_txn_new(conf, "t-wipe", PST_TXN_EXACTLY_ONCE, NULL, &t, &err), &err, "txn");
    send_one(t, "first");
    ok(pst_txn_commit(t, &err), &err, "commit");
    send_one(t, "lost");
    assert_int_equal(script("kill 2", ""), 0);
    for (int64_t until = pst_mono_us() + 60000000; has_leader(rdk_of(t->p->link.h)->rk) && pst_mono_us() < until;)
        pst_sleep_ms(100);
    assert_false(has_leader(rdk_of(t->p->link.h)->rk));
    assert_int_equal(script("start 2", "&"), 0);
    ok(pst_txn_abort(t, &err), &err, "abort");
    for (int64_t until = pst_mono_us() + 120000000; !has_leader(rdk_of(t->p->link.h)->rk) && pst_mono_us() < until;)
        pst_sleep_ms(100);
    send_one(t, "kept");
    ok(pst_txn_commit(t, &err), &err, "commit");
    char seen[200];
    read_all(seen, sizeof seen);
    assert_string_equal(seen, "first kept ");
    pst_txn_free(t);
}

static int stop(void **state)
{
    char command[300];
    script("stop", "");
    snprintf(command, sizeof command, "rm -rf %s %s.log", dir, dir);
    return system(command) != 0;
}

int main(void)
{
    char args[200];
    snprintf(dir, sizeof dir, "/tmp/penstock-bus-wipe-%d", (int)getpid());
    if (getenv("PENSTOCK_TEST_VERBOSE"))
        pst_log_set_level(PST_LOG_DEBUG);
    int rc = -1, port = 0;
    for (int i = 0; i < 3 && rc && rc != 69; i++) { /* another program may have taken the ports */
        port = 16000 + (int)((pst_now_us() / 1000 + getpid() * 41) % 330) * 12;
        snprintf(args, sizeof args, "start --brokers 3 --port %d", port);
        rc = script(args, "");
    }
    if (rc) {
        printf("skipped: no three brokers; cure: see why \"deploy/kafka/kafka start\" fails (it needs Java 17 and, once, Maven and the "
               "network)\n");
        stop(NULL);
        return rc == 69 ? 77 : 1;
    }
    snprintf(args, sizeof args, "127.0.0.1:%d", port); /* the first broker; it names the others */
    conf = pst_bus_conf_new(args, "test");
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_live_an_aborted_record_stays_aborted_where_its_partition_had_no_leader)};
    int failed = cmocka_run_group_tests(tests, NULL, stop);
    pst_bus_conf_free(conf);
    return failed;
}
