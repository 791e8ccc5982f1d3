/* test_wire_conf.c - properties of our own client: what is taken, what is refused, and that librdkafka's words are known. librdkafka is the oracle for
 * names, ranges and defaults. */
#include "common/bus/wire/wire_conf.h"
#include "common/bus/bus_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <librdkafka/rdkafka.h>

/* Not by pst_bus_conf_set(): that asks the client library which is the default. */
static pst_bus_conf *conf_of(const char *const *kv)
{
    pst_bus_conf *conf = pst_bus_conf_new("localhost:9092", "me");
    for (; kv && *kv; kv += 2) {
        conf->props = pst_realloc(conf->props, (conf->n + 1) * sizeof *conf->props);
        conf->props[conf->n++] = (bus_prop){pst_strdup(kv[0]), pst_strdup(kv[1]), pst_strdup("test.properties:3")};
    }
    return conf;
}

static wire_conf *read_ok(const char *const *kv, bus_prop_scope kind)
{
    pst_bus_conf *conf = conf_of(kv);
    wire_conf *c = NULL;
    pst_err err = {0};
    if (wire_conf_read(conf, kind, NULL, NULL, &c, &err))
        fail_msg("%s", err.text);
    pst_bus_conf_free(conf);
    return c;
}

static void refused(const char *const *kv, bus_prop_scope kind, const char *says)
{
    pst_bus_conf *conf = conf_of(kv);
    wire_conf *c = NULL;
    pst_err err = {0};
    assert_int_equal(wire_conf_read(conf, kind, NULL, NULL, &c, &err), PST_EINVAL);
    assert_null(c);
    assert_int_equal(err.cls, PST_CLASS_FATAL);
    if (!strstr(err.text, says))
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
    assert_null(strstr(err.text, "hush"));
    pst_bus_conf_free(conf);
}

static void test_wire_conf_values_and_defaults(void **state)
{
    const char *kv[] = {"security.protocol",
                        "SASL_SSL",
                        "sasl.mechanism",
                        "scram-sha-512",
                        "sasl.username",
                        "u",
                        "sasl.password",
                        "hush",
                        "fetch.wait.max.ms",
                        "7",
                        "auto.offset.reset",
                        "smallest",
                        "acks",
                        "-1",
                        "partition.assignment.strategy",
                        "cooperative-sticky",
                        "socket.keepalive.enable",
                        "false",
                        NULL};
    wire_conf *c = read_ok(kv, BUS_PROP_CONSUMER);
    assert_string_equal(c->bootstrap, "localhost:9092");
    assert_string_equal(c->client_id, "me");
    assert_int_equal(c->security, WIRE_SASL_TLS);
    assert_int_equal(c->mechanism, WIRE_SCRAM_512);
    assert_string_equal(c->password, "hush");
    assert_int_equal(c->fetch_wait_ms, 7);
    assert_int_equal(c->offset_reset, WIRE_EARLIEST);
    assert_int_equal(c->assignor, WIRE_COOPERATIVE);
    assert_int_equal(c->acks, -1);
    assert_false(c->keepalive);
    assert_int_equal(c->verify_host, 1);
    assert_true(c->verify_peer);
    assert_int_equal(c->heartbeat_ms, 3000);
    assert_null(c->ca_location);
    assert_int_equal(c->isolation, WIRE_READ_COMMITTED);
    wire_conf_free(c);
    wire_conf_free(NULL);
}

static void test_wire_conf_what_we_have_not_is_refused_with_the_cure(void **state)
{
    refused((const char *[]){"sasl.kerberos.service.name", "kafka", NULL}, BUS_PROP_CONSUMER, "bus: rdkafka");
    refused((const char *[]){"statistics.interval.ms", "1000", NULL}, BUS_PROP_PRODUCER, "bus: rdkafka");
    refused((const char *[]){"partition.assignment.strategy", "roundrobin", NULL}, BUS_PROP_CONSUMER, "test.properties:3");
    refused((const char *[]){"security.protocol", "sasl_plaintext", NULL}, BUS_PROP_CONSUMER, "sasl.mechanism");
    refused((const char *[]){"security.protocol", "sasl_plaintext", "sasl.mechanism", "GSSAPI", NULL}, BUS_PROP_CONSUMER, "bus: rdkafka");
    refused((const char *[]){"security.protocol", "sasl_plaintext", "sasl.mechanism", "PLAIN", "sasl.password", "hush", NULL},
            BUS_PROP_CONSUMER, "sasl.username");
    refused((const char *[]){"security.protocol", "sasl_plaintext", "sasl.mechanism", "OAUTHBEARER", NULL}, BUS_PROP_CONSUMER,
            "needs a token");
    refused((const char *[]){"security.protocol", "sasl_plaintext", "sasl.mechanism", "OAUTHBEARER", "sasl.oauthbearer.method", "oidc",
                             "sasl.oauthbearer.token.endpoint.url", "https://id.example/token", NULL},
            BUS_PROP_CONSUMER, "bus: rdkafka");
    refused((const char *[]){"security.protocol", "ssl", "ssl.certificate.location", "c.pem", NULL}, BUS_PROP_PRODUCER, "ssl.key.location");
    refused((const char *[]){"ssl.ca.location", "ca.pem", NULL}, BUS_PROP_PRODUCER, "set security.protocol=ssl");
    refused((const char *[]){"security.protocol", "ssl", "sasl.username", "u", "sasl.password", "p", NULL}, BUS_PROP_CONSUMER,
            "set security.protocol=sasl_ssl");
    refused((const char *[]){"session.timeout.ms", "1000", "heartbeat.interval.ms", "1000", NULL}, BUS_PROP_CONSUMER, "session.timeout.ms");
    refused((const char *[]){"retries", "3", NULL}, BUS_PROP_PRODUCER, "bus: rdkafka");
    refused((const char *[]){"message.send.max.retries", "0", NULL}, BUS_PROP_PRODUCER, "bus: rdkafka");
    refused((const char *[]){"queued.min.messages", "7", NULL}, BUS_PROP_CONSUMER, "bus: rdkafka");
    refused((const char *[]){"receive.message.max.bytes", "1000000", NULL}, BUS_PROP_CONSUMER, "fetch.max.bytes");
}

static void test_wire_conf_scopes_defaults_and_forced(void **state)
{
    const char *kv[] = {"linger.ms", "77", "auto.offset.reset", "error", "enable.auto.commit", "true", "fetch.wait.max.ms", "8", NULL};
    const bus_kv defaults[] = {{"fetch.wait.max.ms", "100"}, {"session.timeout.ms", "10000"}, {NULL, NULL}};
    const bus_kv forced[] = {{"auto.offset.reset", "latest"}, {"enable.auto.commit", "false"}, {"group.instance.id", NULL}, {NULL, NULL}};
    pst_bus_conf *conf = conf_of(kv);
    wire_conf *c;
    pst_err err = {0};
    assert_int_equal(wire_conf_read(conf, BUS_PROP_CONSUMER, defaults, forced, &c, &err), 0);
    assert_int_equal(c->offset_reset, WIRE_LATEST);
    assert_int_equal(c->fetch_wait_ms, 8);
    assert_int_equal(c->session_timeout_ms, 10000);
    assert_int_equal(c->linger_ms, 5);
    wire_conf_free(c);
    const bus_kv wrong[] = {{"group.protocol", "none of them"}, {NULL, NULL}};
    assert_int_equal(wire_conf_read(conf, BUS_PROP_CONSUMER, defaults, wrong, &c, &err), PST_EINVAL);
    pst_bus_conf_free(conf);

    pst_err none = {0};
    conf = pst_bus_conf_new(NULL, NULL);
    assert_int_equal(wire_conf_read(conf, BUS_PROP_CONSUMER, NULL, NULL, &c, &none), PST_EINVAL);
    assert_non_null(strstr(none.text, "--bootstrap-server"));
    pst_bus_conf_free(conf);
}

/* What librdkafka refuses is refused, and what it takes of the names that we have is taken, at both ends of each range. */
static void test_wire_conf_agrees_with_librdkafka(void **state)
{
    static const char *const newer[] = {"group.protocol", "group.remote.assignor", "retry.backoff.max.ms", "client.dns.lookup"};
    size_t n;
    const char *const *ours = wire_conf_ops.names(&n), *values[] = {"-2",         "-1",   "0", "1",   "2147483647", "2147483648",
                                                                    "1000000001", "true", "f", "all", "x",          "99999999999999999999"};
    rd_kafka_conf_t *k = rd_kafka_conf_new();
    char why[256], text[256];
    for (size_t i = 0; i < n; i++) {
        bool skip = !strcmp(ours[i], "acks") ||
                    strstr(ours[i], "oauthbearer"); /* ours has 0, 1 and all, theirs any number; their build may have no OIDC */
        for (size_t j = 0; j < sizeof newer / sizeof *newer; j++)
            skip |= !strcmp(newer[j], ours[i]);
        size_t size = sizeof text;
        if (skip || !rd_kafka_conf_get(k, ours[i], text, &size)) {
            skip |= rd_kafka_conf_set(k, ours[i], "", why, sizeof why) == RD_KAFKA_CONF_UNKNOWN;
        }
        for (size_t v = 0; !skip && v < sizeof values / sizeof *values; v++) {
            if (wire_conf_ops.check(ours[i], values[v], why, sizeof why) == 0 &&
                rd_kafka_conf_set(k, ours[i], values[v], text, sizeof text) != RD_KAFKA_CONF_OK && !strstr(ours[i], "location") &&
                !strstr(ours[i], "pem") && !strstr(ours[i], "keystore")) /* we take a file's name when it is read */
                fail_msg("%s=%s is taken by us, and not by librdkafka: %s", ours[i], values[v], text);
        }
    }
    rd_kafka_conf_destroy(k);
    const char *const *theirs = bus_client_default()->conf->names(&n);
    for (size_t i = 0; i < n && rd_kafka_version() < 0x02010000; i++) {
        if (wire_conf_ops.find(theirs[i]) == BUS_PROP_UNKNOWN)
            fail_msg("librdkafka has %s: we neither take nor refuse it", theirs[i]);
    }
    assert_int_equal(wire_conf_ops.find("no.such.thing"), BUS_PROP_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire_conf_values_and_defaults),
        cmocka_unit_test(test_wire_conf_what_we_have_not_is_refused_with_the_cure),
        cmocka_unit_test(test_wire_conf_scopes_defaults_and_forced),
        cmocka_unit_test(test_wire_conf_agrees_with_librdkafka),
    };
    pst_err err = {0};
    if (pst_bus_open(&err)) {
        printf("%s\n", err.text);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
