/* test_bus_conf.c - properties: checked, translated from Java's words, masked, split by kind; error codes and classes. */
#include "common/bus/bus_internal.h"
#include "common/bus/rdkafka/rdk.h"
#include "common/base/fs.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static pst_bus_conf *conf;
static pst_err err;

static int setup(void **state)
{
    memset(&err, 0, sizeof err);
    conf = pst_bus_conf_new("b:9092", "me");
    return 0;
}

static int teardown(void **state)
{
    pst_bus_conf_free(conf);
    return 0;
}

static void test_bus_conf_unknown_property_names_the_nearest(void **state)
{
    assert_int_equal(pst_bus_conf_set(conf, "fetch.min.byte", "1", "pipeline.yml:20", &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "pipeline.yml:20"));
    assert_non_null(strstr(err.text, "fetch.min.bytes"));
    assert_int_equal(pst_err_exit(&err), 2);
}

static void test_bus_conf_bad_value_is_refused(void **state)
{
    assert_int_equal(pst_bus_conf_set(conf, "fetch.min.bytes", "many", "-X", &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "fetch.min.bytes"));
}

static void test_bus_conf_later_sets_win_also_by_alias(void **state)
{
    assert_int_equal(pst_bus_conf_set(conf, "metadata.broker.list", "c:1", "-X", &err), 0);
    assert_string_equal(pst_bus_conf_get(conf, "bootstrap.servers"), "c:1");
    assert_int_equal(pst_bus_conf_set(conf, "bootstrap.servers", "d:1", "-X", &err), 0);
    assert_string_equal(pst_bus_conf_get(conf, "metadata.broker.list"), "d:1");
    assert_int_equal(pst_bus_conf_set(conf, "compression.codec", "zstd", "-X", &err), 0);
    assert_string_equal(pst_bus_conf_get(conf, "compression.type"), "zstd");
    assert_null(pst_bus_conf_get(conf, "linger.ms"));
}

static void test_bus_conf_jaas_becomes_user_and_password(void **state)
{
    assert_int_equal(pst_bus_conf_set(conf, "sasl.jaas.config",
                                      "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
                                      "  password=\"p\\\"w username=x\" username=alice;",
                                      "client.properties:3", &err),
                     0);
    assert_string_equal(pst_bus_conf_get(conf, "sasl.username"), "alice");
    assert_string_equal(pst_bus_conf_get(conf, "sasl.password"), "p\"w username=x");

    const char *bad[] = {"com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;",
                         "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"secretly;",
                         "org.apache.kafka.common.security.plain.PlainLoginModule required password=\"hidden\";"};
    for (size_t i = 0; i < 3; i++) {
        pst_err_clear(&err);
        assert_int_equal(pst_bus_conf_set(conf, "sasl.jaas.config", bad[i], "f:1", &err), PST_EINVAL);
        assert_null(strstr(err.text, "hidden"));
        assert_null(strstr(err.text, "secretly"));
        assert_non_null(strstr(err.text, "f:1"));
    }
}

static void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(data, 1, n, f);
    fclose(f);
}

static void test_bus_conf_truststore_by_its_content(void **state)
{
    char pem[64], jks[64];
    snprintf(pem, sizeof pem, "/tmp/pst-conf-%d.pem", (int)getpid());
    snprintf(jks, sizeof jks, "/tmp/pst-conf-%d.jks", (int)getpid());
    write_file(pem, "x\n-----BEGIN CERTIFICATE-----\n", 30);
    write_file(jks, "\xfe\xed\xfe\xed\0\0\0\2", 8);
    assert_int_equal(pst_bus_conf_set(conf, "ssl.truststore.location", pem, "f:1", &err), 0);
    assert_string_equal(pst_bus_conf_get(conf, "ssl.ca.location"), pem);
    assert_int_equal(pst_bus_conf_set(conf, "ssl.keystore.location", pem, "f:1", &err), 0);
    assert_string_equal(pst_bus_conf_get(conf, "ssl.key.location"), pem);
    assert_string_equal(pst_bus_conf_get(conf, "ssl.certificate.location"), pem);
    assert_int_equal(pst_bus_conf_set(conf, "ssl.truststore.location", jks, "f:2", &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "keytool"));
    pst_err_clear(&err);
    assert_int_equal(pst_bus_conf_set(conf, "ssl.truststore.location", "/no/such", "f:2", &err), PST_EINVAL);
    unlink(pem);
    unlink(jks);
}

static void test_bus_conf_java_lines(void **state)
{
    const char *ignored[] = {"key.serializer", "value.deserializer", "max.poll.records", "default.api.timeout.ms", "ssl.keystore.type"};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(pst_bus_conf_set(conf, ignored[i], "x", "f", &err), 0);
    assert_int_equal(pst_bus_conf_set(conf, "schema.registry.url", "http://r", "f", &err), PST_EAGAIN);
    assert_int_equal(pst_bus_conf_set(conf, "basic.auth.user.info", "a:b", "f", &err), PST_EAGAIN);
    assert_int_equal(err.code, 0);
    assert_int_equal(pst_bus_conf_set(conf, "acks", "all", "f", &err), 0);
    assert_int_equal(pst_bus_conf_set(conf, "auto.offset.reset", "latest", "f", &err), 0);
    assert_int_equal(pst_bus_conf_set(conf, "max.request.size", "2000000", "f", &err), 0);
    assert_string_equal(pst_bus_conf_get(conf, "message.max.bytes"), "2000000");
    assert_int_equal(pst_bus_conf_set(conf, "fetch.max.wait.ms", "50", "f", &err), 0);
    assert_string_equal(pst_bus_conf_get(conf, "fetch.wait.max.ms"), "50");
    assert_int_equal(pst_bus_conf_set(conf, "ssl.endpoint.identification.algorithm", "", "f", &err), 0);
    assert_string_equal(pst_bus_conf_get(conf, "ssl.endpoint.identification.algorithm"), "none");
    assert_int_equal(
        pst_bus_conf_set(conf, "partition.assignment.strategy",
                         "[org.apache.kafka.clients.consumer.RoundRobinAssignor, org.apache.kafka.clients.consumer.RangeAssignor]", "f",
                         &err),
        0);
    assert_string_equal(pst_bus_conf_get(conf, "partition.assignment.strategy"), "roundrobin");
    assert_int_equal(pst_bus_conf_set(conf, "partition.assignment.strategy", "org.apache.kafka.clients.consumer.StickyAssignor", "f", &err),
                     PST_EINVAL);
}

static void see(void *arg, const char *key, const char *value, const char *origin)
{
    if (!strcmp(key, "sasl.password")) {
        assert_string_equal(value, "********");
        assert_string_equal(origin, "env");
        ++*(int *)arg;
    }
    assert_null(strstr(value, "topsecret"));
}

static void test_bus_conf_secrets_are_masked(void **state)
{
    int seen = 0;
    assert_int_equal(pst_bus_conf_set(conf, "sasl.password", "topsecret", "env", &err), 0);
    assert_int_equal(pst_bus_conf_set(conf, "ssl.key.password", "topsecret", "env", &err), 0);
    pst_bus_conf *copy = pst_bus_conf_copy(conf);
    pst_bus_conf_each(copy, see, &seen);
    assert_int_equal(seen, 1);
    pst_bus_conf_free(copy);
}

static char *built(rdk_kind kind, const bus_kv *defaults, const bus_kv *forced, const char *key)
{
    static char value[256];
    size_t n = sizeof value;
    rdk h = {0};
    rd_kafka_conf_t *k = rdk_conf_build(conf, kind, defaults, forced, &h, &err);
    assert_non_null(k);
    assert_int_equal(rd_kafka_conf_get(k, key, value, &n), RD_KAFKA_CONF_OK);
    rd_kafka_conf_destroy(k);
    return value;
}

static void test_rdk_conf_build_defaults_user_forced(void **state)
{
    const bus_kv defaults[] = {{"fetch.min.bytes", "7"}, {NULL, NULL}}, forced[] = {{"enable.auto.commit", "false"}, {NULL, NULL}};
    assert_string_equal(built(RDK_CONSUMER, defaults, forced, "fetch.min.bytes"), "7");
    assert_int_equal(pst_bus_conf_set(conf, "fetch.min.bytes", "9", "-X", &err), 0);
    assert_int_equal(pst_bus_conf_set(conf, "enable.auto.commit", "true", "-X", &err), 0);
    assert_int_equal(pst_bus_conf_set(conf, "compression.type", "gzip", "-X", &err), 0);
    assert_string_equal(built(RDK_CONSUMER, defaults, forced, "fetch.min.bytes"), "9");
    assert_string_equal(built(RDK_CONSUMER, defaults, forced, "enable.auto.commit"), "false");
    assert_string_equal(built(RDK_CONSUMER, defaults, forced, "compression.type"), "none"); /* a producer's: not for a consumer */
    assert_string_equal(built(RDK_PRODUCER, NULL, NULL, "compression.type"), "gzip");
    assert_string_equal(built(RDK_PRODUCER, NULL, NULL, "reconnect.backoff.max.ms"), "1000");
}

static void assert_of_consumer(const bus_consumer_needs *needs, const char *key, const char *want)
{
    char value[64];
    size_t n = sizeof value;
    bus_handle *h;
    assert_int_equal(rdk_consumer_ops.open(conf, needs, &(bus_listener){0}, &h, &err), 0);
    assert_int_equal(rd_kafka_conf_get(rd_kafka_conf(rdk_of(h)->rk), key, value, &n), RD_KAFKA_CONF_OK);
    assert_string_equal(value, want);
    pst_rdk_client.common->free(h);
}

/* What is read, and from where, is the caller's word, in a group or not: a ledger of what is done must not take what was aborted for done. */
static void test_rdk_consumer_reads_what_the_caller_says(void **state)
{
    assert_int_equal(pst_bus_conf_set(conf, "isolation.level", "read_uncommitted", "client.properties:1", &err), 0);
    assert_int_equal(pst_bus_conf_set(conf, "auto.offset.reset", "latest", "client.properties:2", &err), 0);
    for (int i = 0; i < 2; i++) {
        const bus_consumer_needs committed = {.group = i ? "g" : NULL, .poll_interval_ms = 300000, .inflight_bytes = 1 << 20};
        bus_consumer_needs all = committed;
        all.read_uncommitted = all.latest = true;
        assert_of_consumer(&committed, "isolation.level", "read_committed");
        assert_of_consumer(&committed, "auto.offset.reset", "smallest");
        assert_of_consumer(&all, "isolation.level", "read_uncommitted");
        assert_of_consumer(&all, "auto.offset.reset", "largest");
    }
    assert_int_equal(pst_bus_conf_set(conf, "isolation.level", "read_committed", "client.properties:1", &err), 0);
    assert_int_equal(pst_bus_conf_set(conf, "auto.offset.reset", "error", "client.properties:2", &err), 0);
    const bus_consumer_needs all = {.read_uncommitted = true, .poll_interval_ms = 300000, .inflight_bytes = 1 << 20};
    assert_of_consumer(&all, "isolation.level", "read_uncommitted");
    assert_of_consumer(&all, "auto.offset.reset", "error"); /* to ask for an error is the user's right */
}

static void test_bus_conf_without_brokers_says_so(void **state)
{
    pst_bus_conf *none = pst_bus_conf_new(NULL, NULL);
    assert_null(rdk_conf_build(none, RDK_PRODUCER, NULL, NULL, NULL, &err));
    assert_non_null(strstr(err.text, "--bootstrap-server"));
    pst_bus_conf_free(none);
}

static void test_bus_conf_scram_warning_names_the_cure(void **state)
{
    assert_null(pst_bus_conf_warning(conf));
    assert_int_equal(pst_bus_conf_set(conf, "sasl.mechanism", "PLAIN", "f", &err), 0);
    assert_null(pst_bus_conf_warning(conf));
    assert_int_equal(pst_bus_conf_set(conf, "sasl.mechanisms", "SCRAM-SHA-512", "f", &err), 0);
    const char *warning = pst_bus_conf_warning(conf);
    bool old = rd_kafka_version() < 0x020601ff;
    assert_int_equal(warning != NULL, old);
    bus_err(&err, conf, RD_KAFKA_RESP_ERR__AUTHENTICATION, "invalid credentials", "Kafka");
    assert_int_equal(err.code, PST_EAUTH);
    if (old)
        assert_non_null(strstr(err.text, "2.6.1"));
}

static void test_bus_codes_and_classes(void **state)
{
    const struct {
        int native, code;
        pst_err_class cls;
    } rows[] = {
        {RD_KAFKA_RESP_ERR__TRANSPORT, PST_EUNREACH, PST_CLASS_RETRY},
        {RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, PST_EUNREACH, PST_CLASS_RETRY},
        {RD_KAFKA_RESP_ERR__TIMED_OUT, PST_ETIMEDOUT, PST_CLASS_RETRY},
        {RD_KAFKA_RESP_ERR__AUTHENTICATION, PST_EAUTH, PST_CLASS_FATAL},
        {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, PST_EAUTH, PST_CLASS_FATAL},
        {RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, PST_EAUTH, PST_CLASS_FATAL},
        {RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, PST_EAUTH, PST_CLASS_FATAL},
        {RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, PST_ENOTFOUND, PST_CLASS_RETRY},
        {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, PST_ELIMIT, PST_CLASS_DATA},
        {RD_KAFKA_RESP_ERR_INVALID_RECORD, PST_EINVAL, PST_CLASS_DATA},
        {RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION, PST_EFENCED, PST_CLASS_RETRY},
        {RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, PST_EUNREACH, PST_CLASS_RETRY},
        {RD_KAFKA_RESP_ERR_UNKNOWN, PST_EIO, PST_CLASS_RETRY},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_err_class cls;
        assert_int_equal(bus_code(rows[i].native, &cls), rows[i].code);
        assert_int_equal(cls, rows[i].cls);
    }
}

/* A newer librdkafka names the record that a topic refused and calls the others of its batch refused for that: what it names is what is said. */
static void test_bus_producer_keeps_the_cause(void **state)
{
    static const int codes[] = {BUS_ERR__INVALID_DIFFERENT_RECORD, RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, BUS_ERR__INVALID_DIFFERENT_RECORD};
    char id[] = "t";
    pst_producer p = {.conf = conf, .transactional_id = id, .pending = 3};
    for (int i = 0; i < 3; i++)
        bus_producer_delivered(&p, &(bus_delivered){.code = codes[i], .topic = "dated", .reason = "no"});
    assert_int_equal(p.failed_code, RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP);
    assert_int_equal(p.failed.native, RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP);
    assert_true(pst_bus_refuses_record(&p.failed));
    assert_int_equal(p.pending, 0);
}

static void test_bus_refusal_after_success_is_given_time(void **state)
{
    bus_health h = {.conf = conf};
    bus_health_note(&h, RD_KAFKA_RESP_ERR__AUTHENTICATION, "no");
    assert_int_equal(bus_health_take(&h, &err), PST_EAUTH); /* never worked: at once */
    pst_err_clear(&err);
    bus_health again = {.conf = conf};
    bus_health_ok(&again);
    bus_health_note(&again, RD_KAFKA_RESP_ERR__AUTHENTICATION, "no");
    assert_int_equal(bus_health_take(&again, &err), 0);
    assert_int_equal(err.cls, PST_CLASS_RETRY);
    again.refused_since_us -= 31 * 1000000;
    bus_health_note(&again, RD_KAFKA_RESP_ERR__AUTHENTICATION, "no");
    assert_int_equal(bus_health_take(&again, NULL), PST_EAUTH);
}

static void test_bus_dead_letter_headers(void **state)
{
    pst_record r = {.topic = "in", .partition = 3, .offset = 42, .timestamp_ms = 5, .key = "k", .key_len = 1, .value = "v", .value_len = 1};
    char message[3000];
    memset(message, 'x', sizeof message);
    memcpy(message + 1023, "\xc3\xa4", 2); /* the cut falls into a character */
    message[sizeof message - 1] = 0;
    pst_dead_letter d = {.record = &r, .component = "pipe", .stage = "DECODE", .reason = "bad-envelope", .message = message};
    pst_header_room headers = {0};
    pst_buf texts = {0};
    pst_out out;
    pst_dead_letter_out(&d, "in.dlq", &headers, &texts, &out);
    assert_string_equal(out.topic, "in.dlq");
    assert_ptr_equal(out.value, r.value);
    assert_int_equal(out.n_headers, 8);
    int seen = 0;
    for (size_t i = 0; i < out.n_headers; i++) {
        const pst_header *h = &out.headers[i];
        if (!strcmp(h->name, "__connect.errors.offset")) {
            assert_int_equal(h->len, 2);
            assert_memory_equal(h->value, "42", 2);
            seen++;
        } else if (!strcmp(h->name, "__connect.errors.partition")) {
            assert_int_equal(h->len, 1);
            assert_memory_equal(h->value, "3", 1);
            seen++;
        } else if (!strcmp(h->name, "__connect.errors.exception.message")) {
            assert_int_equal(h->len, 1023);
            seen++;
        } else if (!strcmp(h->name, "x-dlq-reason")) {
            assert_memory_equal(h->value, "bad-envelope", 12);
            seen++;
        }
    }
    assert_int_equal(seen, 4);
    pst_header_room_done(&headers);
    pst_buf_done(&texts);
}

static void test_bus_conf_client_is_chosen(void **state)
{
    unsetenv("PENSTOCK_BUS");
    assert_int_equal(pst_bus_conf_client(conf, "auto", &err), 0);
    assert_string_equal(pst_bus_conf_client_name(conf), "librdkafka");
    assert_int_equal(pst_bus_conf_client(conf, "wire", &err), 0);
    pst_bus_conf *copy = pst_bus_conf_copy(conf);
    assert_string_equal(pst_bus_conf_client_name(copy), "wire");
    assert_int_equal(pst_bus_conf_client(copy, "rdkafka", &err), 0);
    assert_string_equal(pst_bus_conf_client_name(copy), "librdkafka");
    pst_bus_conf_free(copy);
    assert_int_equal(pst_bus_conf_client(conf, "java", &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "auto, rdkafka, wire"));
}

static void test_bus_conf_client_by_the_environment(void **state)
{
    setenv("PENSTOCK_BUS", "wire", 1);
    assert_int_equal(pst_bus_conf_client(conf, "auto", &err), 0);
    assert_string_equal(pst_bus_conf_client_name(conf), "wire");
    assert_int_equal(pst_bus_conf_client(conf, "rdkafka", &err), 0); /* what a file says counts */
    assert_string_equal(pst_bus_conf_client_name(conf), "librdkafka");
    setenv("PENSTOCK_BUS", "wier", 1);
    assert_int_equal(pst_bus_conf_client(conf, "auto", &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "PENSTOCK_BUS=wier"));
    unsetenv("PENSTOCK_BUS");
}

static void test_bus_conf_client_refuses_what_it_has_not(void **state)
{
    assert_int_equal(pst_bus_conf_set(conf, "statistics.interval.ms", "5000", "p.yml:7", &err), 0);
    assert_int_equal(pst_bus_conf_client(conf, "wire", &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "p.yml:7: statistics.interval.ms"));
    assert_non_null(strstr(err.text, "bus: rdkafka"));
    assert_string_equal(pst_bus_conf_client_name(conf), "librdkafka"); /* as before */
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_bus_conf_client_is_chosen),
        T(test_bus_conf_client_by_the_environment),
        T(test_bus_conf_client_refuses_what_it_has_not),
        T(test_bus_conf_unknown_property_names_the_nearest),
        T(test_bus_conf_bad_value_is_refused),
        T(test_bus_conf_later_sets_win_also_by_alias),
        T(test_bus_conf_jaas_becomes_user_and_password),
        T(test_bus_conf_truststore_by_its_content),
        T(test_bus_conf_java_lines),
        T(test_bus_conf_secrets_are_masked),
        T(test_rdk_conf_build_defaults_user_forced),
        T(test_rdk_consumer_reads_what_the_caller_says),
        T(test_bus_conf_without_brokers_says_so),
        T(test_bus_conf_scram_warning_names_the_cure),
        T(test_bus_codes_and_classes),
        T(test_bus_producer_keeps_the_cause),
        T(test_bus_refusal_after_success_is_given_time),
        T(test_bus_dead_letter_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
