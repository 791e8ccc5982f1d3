/* test_bus_security.c - logins, TLS and permissions on a real Kafka: what works, and that what is refused is said as such, at once, with the cure.
 * Starts a broker of its own with SASL and TLS listeners through deploy/kafka/kafka, in a temporary directory, and removes it. */
#include "common/bus/bus_internal.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define NET_MS 120000 /* deadlines are nets for what hangs; what is refused is told long before */

static char dir[64];
static int port;
enum { PLAINTEXT = 0, SASL = 2, TLS = 3, MTLS = 4, SASL_TLS = 5 }; /* offsets of the listeners' ports */

static int script(const char *args)
{
    char command[300];
    snprintf(command, sizeof command, "deploy/kafka/kafka %s --dir %s >%s.log 2>&1", args, dir, dir);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void set(pst_bus_conf *conf, const char *key, const char *value)
{
    pst_err err = {0};
    if (pst_bus_conf_set(conf, key, value, "test", &err))
        fail_msg("%s", err.text);
}

static pst_bus_conf *at(int listener, const char *mechanism, const char *user, const char *password)
{
    char address[32], path[100];
    snprintf(address, sizeof address, "127.0.0.1:%d", port + listener);
    snprintf(path, sizeof path, "%s/tls/ca.pem", dir);
    pst_bus_conf *conf = pst_bus_conf_new(address, "test");
    bool tls = listener == TLS || listener == MTLS || listener == SASL_TLS;
    set(conf, "security.protocol", mechanism ? tls ? "SASL_SSL" : "SASL_PLAINTEXT" : tls ? "SSL" : "PLAINTEXT");
    if (tls)
        set(conf, "ssl.ca.location", path);
    if (mechanism) {
        set(conf, "sasl.mechanism", mechanism);
        set(conf, "sasl.username", user);
        set(conf, "sasl.password", password);
    }
    return conf;
}

static int ping(pst_bus_conf *conf, pst_err *err)
{
    memset(err, 0, sizeof *err);
    int rc = pst_admin_ping(conf, NET_MS, NULL, NULL, err);
    if (rc)
        printf("  %s: %s\n", pst_code_name(rc), err->text);
    return rc;
}

static void test_security_plain(void **state)
{
    pst_err err;
    int listeners[] = {SASL, SASL_TLS};
    for (int i = 0; i < 2; i++) {
        pst_bus_conf *conf = at(listeners[i], "PLAIN", "admin", "admin-secret");
        assert_int_equal(ping(conf, &err), 0);
        pst_bus_conf_free(conf);
    }
}

static void test_security_wrong_password_is_said_at_once(void **state)
{
    pst_err err = {0};
    pst_bus_conf *conf = at(SASL, "PLAIN", "admin", "wrong-secret");
    int64_t start = pst_mono_us();
    assert_int_equal(ping(conf, &err), PST_EAUTH);
    assert_true(pst_mono_us() - start < NET_MS * 500LL);
    assert_int_equal(pst_err_exit(&err), 6);
    assert_null(strstr(err.text, "wrong-secret"));
    assert_non_null(strstr(err.text, "sasl.password"));
    pst_err_clear(&err);
    assert_int_equal(pst_publish(conf, &(pst_out){.topic = "t", .partition = -1, .value = "v", .value_len = 1}, NET_MS, NULL, NULL, &err),
                     PST_EAUTH);
    pst_err_clear(&err);
    pst_consumer *c;
    const char *topic = "t";
    assert_int_equal(pst_consumer_new(conf, &(pst_consumer_opts){.group = "g", .topics = &topic, .n_topics = 1}, &c, &err), 0);
    pst_batch b;
    int rc = 0;
    for (int i = 0; i < NET_MS / 500 && !rc; i++)
        rc = pst_consumer_poll(c, &(pst_poll){.timeout_ms = 500}, &b, &err);
    assert_int_equal(rc, PST_EAUTH);
    pst_consumer_free(c);
    pst_err_clear(&err);
    pst_txn *t;
    assert_int_equal(pst_txn_new(conf, "x", PST_TXN_EXACTLY_ONCE, NULL, &t, &err), 0);
    assert_int_equal(pst_txn_begin(t, &err), PST_EAUTH);
    pst_txn_free(t);
    pst_bus_conf_free(conf);
}

static void test_security_scram_works_or_names_the_cure(void **state)
{
    pst_err err;
    const char *mechanisms[] = {"SCRAM-SHA-256", "SCRAM-SHA-512"}, *kafka = getenv("PENSTOCK_KAFKA_VERSION");
    bool strict = !kafka || atoi(kafka) >= 4; /* Kafka 3 lets the nonce that old librdkafka sends twice pass */
    for (int i = 0; i < 2; i++) {
        pst_bus_conf *conf = at(SASL, mechanisms[i], "admin", "admin-secret");
        int rc = ping(conf, &err);
        if (pst_bus_conf_warning(conf) && strict) {
            assert_int_equal(rc, PST_EAUTH);
            assert_non_null(strstr(err.text, "LD_LIBRARY_PATH"));
        } else {
            assert_int_equal(rc, 0);
        }
        pst_bus_conf_free(conf);
    }
}

static void test_security_tls(void **state)
{
    pst_err err;
    char path[100];
    pst_bus_conf *conf = at(TLS, NULL, NULL, NULL);
    assert_int_equal(ping(conf, &err), 0);
    pst_bus_conf_free(conf);

    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", port + TLS);
    conf = pst_bus_conf_new(address, "test");
    set(conf, "security.protocol", "SSL");
    assert_int_equal(ping(conf, &err), PST_EAUTH);
    assert_non_null(strstr(err.text, "ssl.ca.location"));
    pst_bus_conf_free(conf);

    conf = at(MTLS, NULL, NULL, NULL);
    assert_true(ping(conf, &err) < 0);
    assert_non_null(strstr(err.text, "certificate"));
    snprintf(path, sizeof path, "%s/tls/client.pem", dir);
    set(conf, "ssl.certificate.location", path);
    snprintf(path, sizeof path, "%s/tls/client.key", dir);
    set(conf, "ssl.key.location", path);
    assert_int_equal(ping(conf, &err), 0);
    pst_bus_conf_free(conf);
}

static void test_security_java_properties_log_in(void **state)
{
    pst_err err;
    char address[32], path[100];
    snprintf(address, sizeof address, "127.0.0.1:%d", port + SASL_TLS);
    snprintf(path, sizeof path, "%s/tls/ca.pem", dir);
    pst_bus_conf *conf = pst_bus_conf_new(NULL, "test");
    set(conf, "bootstrap.servers", address);
    set(conf, "security.protocol", "SASL_SSL");
    set(conf, "sasl.mechanism", "PLAIN");
    set(conf, "sasl.jaas.config",
        "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"admin\" password=\"admin-secret\";");
    set(conf, "ssl.truststore.location", path);
    set(conf, "ssl.truststore.type", "PEM");
    assert_int_equal(ping(conf, &err), 0);
    pst_bus_conf_free(conf);
}

static void test_security_permissions(void **state)
{
    pst_err err = {0};
    pst_bus_conf *open = at(PLAINTEXT, NULL, NULL, NULL), *bob = at(SASL, "PLAIN", "bob", "bob-secret");
    assert_int_equal(pst_admin_create_topics(open, &(pst_topic_spec){.name = "mine", .partitions = 1, .replication = 1}, 1, NET_MS, &err),
                     0);
    assert_int_equal(
        pst_publish(open, &(pst_out){.topic = "mine", .partition = -1, .value = "v", .value_len = 1}, NET_MS, NULL, NULL, &err), 0);

    assert_int_equal(pst_publish(bob, &(pst_out){.topic = "mine", .partition = -1, .value = "v", .value_len = 1}, NET_MS, NULL, NULL, &err),
                     PST_EAUTH);
    printf("  publish: %s\n", err.text);
    assert_int_equal(pst_err_exit(&err), 6);
    pst_err_clear(&err);
    assert_int_equal(pst_admin_create_topics(bob, &(pst_topic_spec){.name = "his", .partitions = 1, .replication = 1}, 1, NET_MS, &err),
                     PST_EAUTH);
    printf("  create: %s\n", err.text);
    pst_err_clear(&err);

    pst_consumer *c;
    const char *topic = "mine";
    pst_batch b;
    int rc = pst_consumer_new(bob, &(pst_consumer_opts){.topics = &topic, .n_topics = 1}, &c, &err);
    assert_int_equal(rc, PST_EAUTH);
    printf("  read: %s\n", err.text);
    pst_err_clear(&err);
    pst_range range = {"mine", 0, 0, -1};
    pst_consumer_opts ways[] = {{.group = "bob-g", .topics = &topic, .n_topics = 1}, {.ranges = &range, .n_ranges = 1}};
    for (int w = 0; w < 2; w++) {
        assert_int_equal(pst_consumer_new(bob, &ways[w], &c, &err), 0);
        rc = 0;
        for (int i = 0; i < NET_MS / 500 && !rc; i++)
            rc = pst_consumer_poll(c, &(pst_poll){.timeout_ms = 500}, &b, &err);
        printf("  read: %s\n", err.text);
        assert_int_equal(rc, PST_EAUTH);
        pst_consumer_free(c);
        pst_err_clear(&err);
    }
    pst_txn *t;
    assert_int_equal(pst_txn_new(bob, "bob-t", PST_TXN_EXACTLY_ONCE, NULL, &t, &err), 0);
    assert_int_equal(pst_txn_begin(t, &err), PST_EAUTH);
    printf("  begin: %s\n", err.text);
    pst_txn_free(t);
    pst_err_clear(&err);

    /* With the rights on one topic, reading a range of it without any right on a group works: no group is ever joined. */
    assert_int_equal(script("acl --add --allow-principal User:bob --operation Read --operation Write --topic mine"), 0);
    for (int i = 0; i < NET_MS / 200; i++) {
        pst_err_clear(&err);
        rc = pst_publish(bob, &(pst_out){.topic = "mine", .partition = -1, .value = "w", .value_len = 1}, NET_MS, NULL, NULL, &err);
        if (!rc)
            break;
        pst_sleep_ms(200);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(pst_consumer_new(bob, &ways[1], &c, &err), 0);
    size_t n = 0;
    for (int i = 0; i < NET_MS / 500 && n < 2; i++) {
        assert_int_equal(pst_consumer_poll(c, &(pst_poll){.timeout_ms = 500}, &b, &err), 0);
        n += b.n;
    }
    assert_int_equal(n, 2);
    pst_consumer_free(c);
    pst_bus_conf_free(bob);
    pst_bus_conf_free(open);
}

/* The first of a row of ports. Tests that run side by side have a range each (tests/run). */
static int free_port(void)
{
    int low = 20000, high = 31000;
    uint32_t r;
    const char *ports = getenv("PENSTOCK_TEST_PORTS");
    if (ports && sscanf(ports, "%d-%d", &low, &high) != 2)
        fail_msg("PENSTOCK_TEST_PORTS is LOW-HIGH, not %s", ports);
    pst_random(&r, sizeof r);
    return low + (int)(r % (unsigned)((high - low) / 12 - 1)) * 12;
}

static int stop(void **state)
{
    script("wipe");
    rmdir(dir);
    char log[80];
    snprintf(log, sizeof log, "%s.log", dir);
    unlink(log);
    return 0;
}

int main(void)
{
    char args[64];
    snprintf(dir, sizeof dir, "/tmp/penstock-bus-security-%d", (int)getpid());
    if (getenv("PENSTOCK_TEST_VERBOSE"))
        pst_log_set_level(PST_LOG_DEBUG);
    int rc = -1;
    for (int i = 0; i < 3 && rc; i++) { /* another program may have taken the ports */
        port = free_port();
        snprintf(args, sizeof args, "start --sasl --tls --port %d", port);
        rc = script(args);
        if (rc == 69)
            break;
    }
    if (rc) {
        printf("skipped: no Kafka with SASL and TLS; cure: see why \"deploy/kafka/kafka start --sasl --tls\" fails (it needs Java 17, "
               "openssl and, "
               "once, Maven and the network)\n");
        stop(NULL);
        return rc == 69 ? 77 : 1;
    }
    printf("%s\n", pst_bus_version());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_security_plain),
        cmocka_unit_test(test_security_wrong_password_is_said_at_once),
        cmocka_unit_test(test_security_scram_works_or_names_the_cure),
        cmocka_unit_test(test_security_tls),
        cmocka_unit_test(test_security_java_properties_log_in),
        cmocka_unit_test(test_security_permissions),
    };
    return cmocka_run_group_tests(tests, NULL, stop);
}
