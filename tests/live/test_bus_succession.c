/* test_bus_succession.c - kill -9 in the middle of a transaction: the successor under the same names gets its first record within seconds, not after
 * transaction.timeout.ms, without having begun anything itself. The victim is this program once more, with the argument "victim".
 * PENSTOCK_TEST_BOOTSTRAP names the broker (deploy/kafka/kafka start prints it). */
#include "common/bus/bus_txn.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define RECORDS     20
#define PATIENCE_US (120 * 1000000LL)
#define OPEN_MS     "600000" /* what the victim left would stay open that long: nobody who waited for that is in time */

static pst_bus_conf *conf;
static char in[64], out[64], id[64];

static void ok(int rc, const pst_err *err, const char *what)
{
    if (rc)
        fail_msg("%s: %s %s", what, pst_code_name(rc), err->text);
}

/* Static membership, as our services have it: the successor takes the place of the dead member at once. */
static pst_consumer *member(pst_err *err)
{
    const char *topic = in;
    pst_consumer *c = NULL;
    ok(pst_consumer_new(conf, &(pst_consumer_opts){.group = id, .topics = &topic, .n_topics = 1, .instance_id = "slot-0"}, &c, err), err,
       "consumer");
    return c;
}

static pst_batch first_records(pst_consumer *c, int64_t until)
{
    pst_batch b = {0};
    pst_err err = {0};
    while (!b.n && pst_mono_us() < until)
        ok(pst_consumer_poll(c, &(pst_poll){.records_max = RECORDS, .timeout_ms = 200}, &b, &err), &err, "poll");
    return b;
}

/* Leaves records and offsets in an open transaction, says so, and waits for its end. Not under cmocka: it reports by its exit status. */
static int victim(void)
{
    pst_err err = {0};
    const char *topic = in;
    pst_consumer *c;
    pst_txn *t;
    if (pst_consumer_new(conf, &(pst_consumer_opts){.group = id, .topics = &topic, .n_topics = 1, .instance_id = "slot-0"}, &c, &err) ||
        pst_txn_new(conf, id, PST_TXN_EXACTLY_ONCE, c, &t, &err))
        return 1;
    pst_batch b = {0};
    for (int64_t until = pst_mono_us() + PATIENCE_US; !b.n && pst_mono_us() < until;) {
        if (pst_consumer_poll(c, &(pst_poll){.records_max = RECORDS, .timeout_ms = 200}, &b, &err))
            return 2;
    }
    if (!b.n || pst_txn_begin(t, &err))
        return 3;
    for (size_t i = 0; i < b.n; i++) {
        if (pst_txn_send(t, &(pst_out){.topic = out, .partition = 0, .value = "lost", .value_len = 4}, &err))
            return 4;
        pst_consumer_mark(c, in, 0, b.records[i].offset + 1);
    }
    if (pst_producer_flush(t->p, 120000, &err))
        return 5;
    bus_link l = bus_consumer_link(c);
    bus_said said;
    t->p->link.lib->producer->offsets(t->p->link.h, bus_consumer_marked(c), l.lib->consumer->group(l.h), 120000, &said);
    if (said.code)
        return 6;
    printf("open\n");
    fflush(stdout);
    for (;;)
        pause();
}

static void kill_a_victim(void)
{
    char command[300], line[64] = "";
    snprintf(command, sizeof command, "exec /proc/%d/exe victim %s %s %s", (int)getpid(), in, out, id);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(pipes[1], 1);
        close(pipes[0]);
        close(pipes[1]);
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(127);
    }
    close(pipes[1]);
    FILE *f = fdopen(pipes[0], "r");
    while (fgets(line, sizeof line, f) && strcmp(line, "open\n") != 0) {
    }
    kill(pid, SIGKILL);
    int status;
    waitpid(pid, &status, 0);
    fclose(f);
    if (strcmp(line, "open\n") != 0)
        fail_msg("the victim ended with status %#x", status);
}

static void prepare(const char *what)
{
    pst_err err = {0};
    unsigned long long now = (unsigned long long)pst_now_us() % 0xffffffffff;
    snprintf(in, sizeof in, "bus-%s-in-%llx", what, now);
    snprintf(out, sizeof out, "bus-%s-out-%llx", what, now);
    snprintf(id, sizeof id, "bus-%s-%llx", what, now);
    pst_topic_spec specs[] = {{.name = in, .partitions = 1, .replication = -1}, {.name = out, .partitions = 1, .replication = -1}};
    ok(pst_admin_create_topics(conf, specs, 2, 120000, &err), &err, "create");
    pst_producer *p;
    ok(pst_producer_new(conf, &(pst_producer_opts){.linger_ms = 5}, &p, &err), &err, "producer");
    for (int i = 0; i < RECORDS; i++)
        ok(pst_producer_send(p, &(pst_out){.topic = in, .partition = 0, .value = "x", .value_len = 1}, &err), &err, "send");
    ok(pst_producer_flush(p, 120000, &err), &err, "flush");
    pst_producer_free(p);
}

static void test_succession_first_record_does_not_wait_for_the_old_transaction(void **state)
{
    pst_err err = {0};
    prepare("heir");
    kill_a_victim();
    int64_t start = pst_mono_us();
    pst_consumer *c = member(&err);
    pst_txn *t;
    ok(pst_txn_new(conf, id, PST_TXN_EXACTLY_ONCE, c, &t, &err), &err, "txn");
    pst_batch b = first_records(c, start + PATIENCE_US);
    printf("  first record after %.1f s\n", (pst_mono_us() - start) / 1e6);
    assert_true(b.n > 0);
    assert_int_equal(b.records[0].offset, 0);
    ok(pst_txn_begin(t, &err), &err, "begin");
    ok(pst_txn_send(t, &(pst_out){.topic = out, .partition = 0, .value = "kept", .value_len = 4}, &err), &err, "send");
    pst_consumer_mark(c, in, 0, b.records[b.n - 1].offset + 1);
    ok(pst_txn_commit(t, &err), &err, "commit");
    uint64_t counts[3];
    pst_txn_counts(t, counts);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], 0);
    pst_txn_free(t);
    pst_consumer_free(c);
}

/* Readers of what the victim was writing are let go by the successor's mere existence as well. */
static void test_succession_readers_of_the_output_are_let_go(void **state)
{
    pst_err err = {0};
    prepare("readers");
    kill_a_victim();
    pst_txn *t;
    ok(pst_txn_new(conf, id, PST_TXN_EXACTLY_ONCE, NULL, &t, &err), &err, "txn");
    ok(pst_publish(conf, &(pst_out){.topic = out, .partition = 0, .value = "after", .value_len = 5}, 120000, NULL, NULL, &err), &err,
       "publish");
    const char *topic = out;
    pst_consumer *c;
    ok(pst_consumer_new(conf, &(pst_consumer_opts){.topics = &topic, .n_topics = 1}, &c, &err), &err, "reader");
    pst_batch b = first_records(c, pst_mono_us() + PATIENCE_US);
    assert_int_equal(b.n, 1);
    assert_int_equal(b.records[0].value_len, 5); /* not the victim's */
    pst_consumer_free(c);
    pst_txn_free(t);
}

int main(int argc, char **argv)
{
    const char *bootstrap = getenv("PENSTOCK_TEST_BOOTSTRAP");
    if (!bootstrap || !*bootstrap) {
        printf("skipped: PENSTOCK_TEST_BOOTSTRAP is not set; cure: PENSTOCK_TEST_BOOTSTRAP=$(deploy/kafka/kafka start)\n");
        return 77;
    }
    if (getenv("PENSTOCK_TEST_VERBOSE"))
        pst_log_set_level(PST_LOG_DEBUG);
    conf = pst_bus_conf_new(bootstrap, "test");
    if (pst_bus_conf_set(conf, "transaction.timeout.ms", OPEN_MS, "test", &(pst_err){0}))
        return 1;
    if (argc == 5 && !strcmp(argv[1], "victim")) {
        snprintf(in, sizeof in, "%s", argv[2]);
        snprintf(out, sizeof out, "%s", argv[3]);
        snprintf(id, sizeof id, "%s", argv[4]);
        return victim();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_succession_first_record_does_not_wait_for_the_old_transaction),
        cmocka_unit_test(test_succession_readers_of_the_output_are_let_go),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pst_bus_conf_free(conf);
    return failed;
}
