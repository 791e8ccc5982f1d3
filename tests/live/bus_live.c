/* bus_live.c - what the tests of common/bus on a real Kafka share: names that are fresh, records by number, consumers and transactions that fail the
 * test, and the main function. */
#include "bus_live.h"
#include "common/bus/bus_admin.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

pst_bus_conf *conf;
static char unique[32];

/* A fresh name per run, so that runs do not meet. */
const char *name(const char *base)
{
    static char names[128][64];
    static int n;
    assert_true(n < 128);
    snprintf(names[n], sizeof names[n], "bus-%s-%s", base, unique);
    return names[n++];
}

void ok(int rc, const pst_err *err, const char *what)
{
    if (rc)
        fail_msg("%s: %s %s", what, pst_code_name(rc), err->text);
}

const char *topic_named(const char *t, int partitions)
{
    pst_err err = {0};
    ok(pst_admin_create_topics(conf, &(pst_topic_spec){.name = t, .partitions = partitions, .replication = -1}, 1, NET_MS, &err), &err,
       "create");
    return t;
}

const char *topic(const char *base, int partitions)
{
    return topic_named(name(base), partitions);
}

void publish_n(const char *to, int32_t partition, int from, int n)
{
    pst_producer *p;
    pst_err err = {0};
    ok(pst_producer_new(conf, &(pst_producer_opts){.linger_ms = 5}, &p, &err), &err, "producer");
    for (int i = from; i < from + n; i++) {
        char text[16];
        int len = snprintf(text, sizeof text, "%d", i);
        ok(pst_producer_send(
               p, &(pst_out){.topic = to, .partition = partition, .key = text, .key_len = len, .value = text, .value_len = len}, &err),
           &err, "send");
    }
    ok(pst_producer_flush(p, NET_MS, &err), &err, "flush");
    pst_producer_free(p);
}

const pst_poll quick = {.records_max = 100, .timeout_ms = 200, .age_max_us = 1000};

pst_batch poll_some(pst_consumer *c, size_t max)
{
    pst_batch b = {0};
    pst_err err = {0};
    bool lost = false; /* told once, and perhaps before there are records */
    int64_t until = pst_mono_us() + NET_US;
    while (!b.n && pst_mono_us() < until) {
        ok(pst_consumer_poll(c, &(pst_poll){.records_max = max, .timeout_ms = 500, .age_max_us = 1000}, &b, &err), &err, "poll");
        lost |= b.lost;
    }
    b.lost = lost;
    return b;
}

/* Reads a topic from its beginning to its end without a group; returns how many times value v (0 ≤ v < max) was seen in seen[v]. */
int read_all(const char *from, bool uncommitted, int *seen, int max)
{
    pst_consumer *c;
    pst_err err = {0};
    int n = 0;
    pst_batch b = {0};
    ok(pst_consumer_new(conf, &(pst_consumer_opts){.topics = &from, .n_topics = 1, .report_eof = true, .read_uncommitted = uncommitted}, &c,
                        &err),
       &err, "reader");
    int64_t until = pst_mono_us() + NET_US;
    while (!b.eof && pst_mono_us() < until) {
        ok(pst_consumer_poll(c, &quick, &b, &err), &err, "poll");
        for (size_t i = 0; i < b.n; i++) {
            char text[32];
            snprintf(text, sizeof text, "%.*s", (int)b.records[i].value_len, (const char *)b.records[i].value);
            int v = atoi(text);
            if (seen && v >= 0 && v < max)
                seen[v]++;
            n++;
        }
    }
    assert_true(b.eof);
    pst_consumer_free(c);
    return n;
}

void assert_visible(const char *in, int n)
{
    int seen = 0;
    for (int64_t until = pst_mono_us() + NET_US; (seen = read_all(in, false, NULL, 0)) < n && pst_mono_us() < until;)
        pst_sleep_ms(50);
    assert_int_equal(seen, n);
}

pst_consumer *member(const char *group, const char *from)
{
    pst_consumer *c;
    pst_err err = {0};
    ok(pst_consumer_new(conf, &(pst_consumer_opts){.group = group, .topics = &from, .n_topics = 1}, &c, &err), &err, "consumer");
    return c;
}

void copy_batch(pst_txn *t, pst_consumer *c, const pst_batch *b, const char *to)
{
    pst_err err = {0};
    for (size_t i = 0; i < b->n; i++) {
        const pst_record *r = &b->records[i];
        ok(pst_txn_send(
               t,
               &(pst_out){.topic = to, .partition = -1, .key = r->key, .key_len = r->key_len, .value = r->value, .value_len = r->value_len},
               &err),
           &err, "txn_send");
        pst_consumer_mark(c, r->topic, r->partition, r->offset + 1);
    }
}

pst_txn *txn(const char *id, pst_txn_mode mode, pst_consumer *c)
{
    pst_txn *t;
    pst_err err = {0};
    ok(pst_txn_new(conf, id, mode, c, &t, &err), &err, "txn");
    return t;
}

int64_t committed(const char *group, const char *of, int32_t partition)
{
    pst_group_lag *rows;
    size_t n;
    pst_err err = {0};
    int64_t at = -1;
    ok(pst_admin_lag(conf, group, &rows, &n, NET_MS, &err), &err, "lag");
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(rows[i].topic, of) && rows[i].partition == partition)
            at = rows[i].committed;
    }
    pst_group_lag_free(rows, n);
    return at;
}

static int start(void **state)
{
    pst_err err = {0};
    ok(pst_admin_ping(conf, NET_MS, NULL, NULL, &err), &err, "PENSTOCK_TEST_BOOTSTRAP");
    return 0;
}

int bus_live_main(const char *group, const struct CMUnitTest *tests, size_t n)
{
    const char *bootstrap = getenv("PENSTOCK_TEST_BOOTSTRAP");
    if (!bootstrap || !*bootstrap) {
        printf("skipped: PENSTOCK_TEST_BOOTSTRAP is not set; cure: PENSTOCK_TEST_BOOTSTRAP=$(deploy/kafka/kafka start)\n");
        return 77;
    }
    if (getenv("PENSTOCK_TEST_VERBOSE"))
        pst_log_set_level(PST_LOG_DEBUG);
    if (getenv("PENSTOCK_TEST_ONLY"))
        cmocka_set_test_filter(getenv("PENSTOCK_TEST_ONLY"));
    snprintf(unique, sizeof unique, "%llx", (unsigned long long)pst_now_us() % 0xffffffffff);
    conf = pst_bus_conf_new(bootstrap, "test");
    pst_err err = {0};
    if (pst_bus_conf_client(conf, "auto", &err) < 0) { /* PENSTOCK_BUS=wire: the same by our own client */
        printf("%s\n", err.text);
        return 1;
    }
    printf("%s, %s at %s\n", pst_bus_conf_client_name(conf), pst_bus_version(), bootstrap);
    int failed = _cmocka_run_group_tests(group, tests, n, start, NULL);
    pst_bus_conf_free(conf);
    return failed;
}
