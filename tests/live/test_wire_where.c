/* test_wire_where.c - our own client's connections on a real Kafka: who is where, by every way in; what is refused is said at once, as such, and once.
 * Starts a broker of its own with SASL and TLS listeners, in a temporary directory, and removes it. PENSTOCK_TEST_WIRE_DIR names one that runs already. */
#include "common/bus/wire/wire.h"
#include "common/bus/wire/wire_conf.h"
#include "common/bus/wire/wire_meta.h"
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

#define NET_MS 120000 /* a net for what hangs */

static char dir[100];
static int port;
enum { PLAINTEXT = 0, SASL = 2, TLS = 3, MTLS = 4, SASL_TLS = 5 }; /* offsets of the listeners' ports */

static int script(const char *args)
{
    char command[300];
    snprintf(command, sizeof command, "deploy/kafka/kafka %s --dir %s >>%s.log 2>&1", args, dir, dir);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

typedef struct seen {
    wire_conf *conf;
    wire_net *net;
    int faults, auth, down;
    char text[300];
} seen;

static void on_fault(void *owner, int code, const char *reason)
{
    seen *s = owner;
    s->faults++;
    s->auth += code == BUS_ERR__AUTHENTICATION;
    s->down += code == BUS_ERR__ALL_BROKERS_DOWN;
    if (code != BUS_ERR__ALL_BROKERS_DOWN)
        snprintf(s->text, sizeof s->text, "%s", reason ? reason : "");
}

static const char *in_dir(const char *name)
{
    static char paths[8][200];
    static int n;
    char *p = paths[n++ % 8];
    snprintf(p, sizeof paths[0], "%s/tls/%s", dir, name);
    return p;
}

static int open_at(seen *s, int listener, const char *const *kv, pst_err *err)
{
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", port + listener);
    pst_bus_conf *conf = pst_bus_conf_new(address, "test");
    bool tls = listener == TLS || listener == MTLS || listener == SASL_TLS, sasl = listener == SASL || listener == SASL_TLS;
    bus_kv forced[12] = {{"security.protocol", sasl ? tls ? "SASL_SSL" : "SASL_PLAINTEXT" : tls ? "SSL" : "PLAINTEXT"}, {NULL, NULL}};
    for (int i = 1; kv && *kv; kv += 2, i++) {
        forced[i] = (bus_kv){kv[0], kv[1]};
        forced[i + 1] = (bus_kv){NULL, NULL};
    }
    memset(s, 0, sizeof *s);
    int rc = wire_conf_read(conf, BUS_PROP_BOTH, NULL, forced, &s->conf, err);
    pst_bus_conf_free(conf);
    bus_listener to = {.owner = s, .fault = on_fault};
    if (rc == 0)
        rc = wire_net_open(s->conf, &to, &s->net, err);
    return rc;
}

static void done(seen *s)
{
    wire_net_free(s->net);
    wire_conf_free(s->conf);
}

static bool knows(seen *s)
{
    int64_t until = pst_mono_us() + NET_MS * 1000LL;
    while (!wire_net_cluster_id(s->net) && !wire_net_fatal(s->net, NULL, 0) && pst_mono_us() < until)
        wire_net_turn(s->net, 1000);
    return wire_net_cluster_id(s->net) != NULL;
}

static void get_in(int listener, const char *const *kv)
{
    seen s;
    pst_err err = {0};
    if (open_at(&s, listener, kv, &err) < 0)
        fail_msg("%s", err.text);
    if (!knows(&s))
        fail_msg("listener +%d: %s", listener, s.text);
    assert_int_equal(s.faults, 0);
    done(&s);
}

static void test_wire_who_is_where(void **state)
{
    seen s;
    pst_err err = {0};
    if (open_at(&s, PLAINTEXT, NULL, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(wire_net_feature(s.net, "transaction.version"), -1);
    assert_null(wire_net_topic(s.net, "no-such-topic"));
    assert_int_equal(wire_net_coordinator(s.net, WIRE_GROUP, "g", NULL), -1);
    assert_true(knows(&s));
    int64_t until = pst_mono_us() + NET_MS * 1000LL;
    const wire_topic *t;
    while ((!(t = wire_net_topic(s.net, "__consumer_offsets")) || t->code || t->leader[0] < 0 ||
            wire_net_coordinator(s.net, WIRE_GROUP, "g", NULL) < 0 || wire_net_coordinator(s.net, WIRE_TXN, "x", NULL) < 0 ||
            !wire_net_topic(s.net, "no-such-topic")) &&
           pst_mono_us() < until)
        wire_net_turn(s.net, 1000);
    assert_non_null(t);
    assert_int_equal(t->code, 0);
    assert_true(t->n >= 1);
    int32_t leader = wire_net_leader(s.net, "__consumer_offsets", 0);
    assert_true(leader >= 0);
    assert_int_equal(wire_net_leader(s.net, "__consumer_offsets", 5000), -1);
    assert_ptr_equal(wire_net_topic_by_id(s.net, t->id), t);
    assert_int_equal(wire_net_topic(s.net, "no-such-topic")->code, BUS_ERR_UNKNOWN_TOPIC_OR_PART);
    assert_int_equal(wire_net_coordinator(s.net, WIRE_GROUP, "g", NULL), leader);
    assert_int_equal(wire_net_coordinator(s.net, WIRE_TXN, "x", NULL), leader);
    wire_net_coordinator_stale(s.net, WIRE_GROUP, "g");
    assert_int_equal(wire_net_coordinator(s.net, WIRE_GROUP, "g", NULL), -1);
    const char *kafka = getenv("PENSTOCK_KAFKA_VERSION");
    assert_int_equal(wire_net_feature(s.net, "transaction.version"), kafka && atoi(kafka) < 4 ? 0 : 2);
    assert_int_equal(wire_net_feature(s.net, "no.such.feature"), 0);
    assert_true(wire_net_version(s.net, wire_net_any(s.net), &wire_api_metadata) >= 12);
    assert_int_equal(wire_net_version(s.net, 4711, &wire_api_metadata), -1);
    assert_int_equal(s.faults, 0);
    done(&s);
}

static void test_wire_sasl_lets_in(void **state)
{
    const char *mechanisms[] = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"};
    for (int i = 0; i < 3; i++) {
        get_in(SASL, (const char *[]){"sasl.mechanism", mechanisms[i], "sasl.username", "admin", "sasl.password", "admin-secret", NULL});
        get_in(SASL_TLS, (const char *[]){"sasl.mechanism", mechanisms[i], "sasl.username", "admin", "sasl.password", "admin-secret",
                                          "ssl.ca.location", in_dir("ca.pem"), NULL});
    }
}

static void test_wire_tls_lets_in(void **state)
{
    get_in(TLS, (const char *[]){"ssl.ca.location", in_dir("ca.pem"), NULL});
    get_in(TLS, (const char *[]){"enable.ssl.certificate.verification", "false", NULL});
    get_in(MTLS, (const char *[]){"ssl.ca.location", in_dir("ca.pem"), "ssl.certificate.location", in_dir("client.pem"), "ssl.key.location",
                                  in_dir("client.key"), NULL});
}

static void kept_out(int listener, const char *const *kv, bool for_good, const char *says)
{
    seen s;
    pst_err err = {0};
    int rc = open_at(&s, listener, kv, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
    int64_t until = pst_mono_us() + NET_MS * 1000LL;
    while (!s.faults && pst_mono_us() < until)
        wire_net_turn(s.net, 1000);
    if (!strstr(s.text, says))
        fail_msg("\"%s\" does not say \"%s\"", s.text, says);
    assert_null(strstr(s.text, "secret"));
    assert_null(wire_net_cluster_id(s.net));
    assert_int_equal(wire_net_fatal(s.net, NULL, 0), for_good ? BUS_ERR__AUTHENTICATION : 0);
    if (for_good) {
        wire_net_turn(s.net, 500);
        assert_int_equal(s.auth, 1); /* it does not try again, and be locked out */
    }
    done(&s);
}

static void test_wire_refusals_are_said(void **state)
{
    const char *mechanisms[] = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"};
    for (int i = 0; i < 3; i++)
        kept_out(SASL, (const char *[]){"sasl.mechanism", mechanisms[i], "sasl.username", "admin", "sasl.password", "wrong-secret", NULL},
                 true, "uthentication failed");
    kept_out(SASL,
             (const char *[]){"sasl.mechanism", "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt", "true", "sasl.oauthbearer.config",
                              "principal=x", NULL},
             true, "PLAIN");
    kept_out(TLS, NULL, false, "verif");
    kept_out(MTLS, (const char *[]){"ssl.ca.location", in_dir("ca.pem"), NULL}, false, "certificate");
}

static void test_wire_wrong_protocol_is_said(void **state)
{
    seen s;
    pst_err err = {0};
    for (int listener = TLS; listener >= PLAINTEXT; listener -= TLS) { /* plain text to TLS, and TLS to plain text */
        char address[64];
        snprintf(address, sizeof address, "127.0.0.1:%d", port + listener);
        pst_bus_conf *conf = pst_bus_conf_new(address, "test");
        memset(&s, 0, sizeof s);
        bus_kv forced[] = {{"security.protocol", listener == TLS ? "plaintext" : "ssl"}, {NULL, NULL}};
        assert_int_equal(wire_conf_read(conf, BUS_PROP_BOTH, NULL, forced, &s.conf, &err), 0);
        assert_int_equal(wire_net_open(s.conf, &(bus_listener){.owner = &s, .fault = on_fault}, &s.net, &err), 0);
        int64_t until = pst_mono_us() + NET_MS * 1000LL;
        while (s.faults < 2 && pst_mono_us() < until)
            wire_net_turn(s.net, 1000);
        printf("  %s\n", s.text);
        assert_non_null(strstr(s.text, listener == TLS ? "security.protocol" : "TLS"));
        assert_int_equal(s.down, 1);
        pst_bus_conf_free(conf);
        done(&s);
    }
}

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
    char log[120];
    script("wipe");
    rmdir(dir);
    snprintf(log, sizeof log, "%s.log", dir);
    unlink(log);
    return 0;
}

static int leave(void **state)
{
    return 0;
}

int main(void)
{
    char args[64];
    const char *there = getenv("PENSTOCK_TEST_WIRE_DIR"); /* DIR:PORT */
    if (getenv("PENSTOCK_TEST_VERBOSE"))
        pst_log_set_level(PST_LOG_DEBUG);
    if (there && sscanf(there, "%99[^:]:%d", dir, &port) != 2)
        return 2;
    if (!there)
        snprintf(dir, sizeof dir, "/tmp/penstock-wire-%d", (int)getpid());
    int rc = there ? 0 : -1;
    for (int i = 0; i < 3 && rc; i++) { /* another program may have taken the ports */
        port = free_port();
        snprintf(args, sizeof args, "start --sasl --tls --port %d", port);
        rc = script(args);
        if (rc == 69)
            break;
    }
    if (rc) {
        printf("skipped: no Kafka with SASL and TLS; cure: see why \"deploy/kafka/kafka start --sasl --tls\" fails\n");
        stop(NULL);
        return rc == 69 ? 77 : 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire_who_is_where),
        cmocka_unit_test(test_wire_sasl_lets_in),
        cmocka_unit_test(test_wire_tls_lets_in),
        cmocka_unit_test(test_wire_refusals_are_said),
        cmocka_unit_test(test_wire_wrong_protocol_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, there ? leave : stop);
}
