/* test_wire_net.c - connections of our own client against a peer that does as it is told: requests and answers, versions, logins, time-outs, and brokers that lie or go away at
 * any byte. No clock decides: what must happen is waited for, with a net. */
#include "wire_peer.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/bus/wire/wire_conf.h"
#include "common/bus/wire/wire_meta.h"
#include "common/bus/wire/wire_sasl.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define NET_US 60000000LL

static const wire_api echo = {.key = 12, .max = 4, .flexible = 4, .name = "Heartbeat", .throttle_elsewhere = true};

static peer p;
static wire_conf *conf;
static wire_net *net;
static int faults, downs, auths;
static char fault_text[300];

static void on_fault(void *owner, int code, const char *reason)
{
    faults++;
    downs += code == BUS_ERR__ALL_BROKERS_DOWN;
    auths += code == BUS_ERR__AUTHENTICATION;
    if (code != BUS_ERR__ALL_BROKERS_DOWN)
        snprintf(fault_text, sizeof fault_text, "%s", reason);
}

static const char *host = "127.0.0.1";

static void open_net(const char *const *kv)
{
    char at[40];
    snprintf(at, sizeof at, "%s:%d", host, p.port);
    pst_bus_conf *c = pst_bus_conf_new(at, "me");
    bus_kv forced[16] = {{"reconnect.backoff.ms", "0"}, {"retry.backoff.ms", "1"}, {"retry.backoff.max.ms", "20"}};
    for (int i = 3; kv && *kv; kv += 2, i++)
        forced[i] = (bus_kv){kv[0], kv[1]};
    pst_err err = {0};
    if (wire_conf_read(c, BUS_PROP_BOTH, NULL, forced, &conf, &err) || wire_net_open(conf, &(bus_listener){.fault = on_fault}, &net, &err))
        fail_msg("%s", err.text);
    pst_bus_conf_free(c);
    faults = downs = auths = 0;
    *fault_text = 0;
}

static void close_net(void)
{
    wire_net_free(net);
    wire_conf_free(conf);
    net = NULL;
    conf = NULL;
}

static int begin(void **state)
{
    peer_open(&p);
    return 0;
}

static int end(void **state)
{
    if (net)
        close_net();
    peer_close(&p);
    return 0;
}

static void step(void)
{
    wire_net_turn(net, 1);
    peer_serve(&p);
}

#define UNTIL(what)                                            \
    do {                                                       \
        int64_t net_us = pst_mono_us() + NET_US;               \
        while (!(what)) {                                      \
            step();                                            \
            if (pst_mono_us() > net_us)                        \
                fail_msg("never: %s (%s)", #what, fault_text); \
        }                                                      \
    } while (0)

/* The same, while nobody turns the net. */
#define UNTIL_PEER(what)                                                       \
    do {                                                                       \
        for (int64_t net_us = pst_mono_us() + NET_US; !(what); peer_serve(&p)) \
            assert_true(pst_mono_us() < net_us);                               \
        peer_serve(&p);                                                        \
    } while (0)

/* ---- calls -------------------------------------------------------------------------------------------------------------------------------- */

typedef struct asked {
    char text[32];
    const void *block; /* a wire_block that is spliced in */
    bool told, sent, same;
    int code, order;
    wire_call *call;
} asked;

static int order;

static void put_text(void *owner, wire_call *call, int16_t version, wire_out *out)
{
    asked *a = owner;
    wire_put_bytes(out, a->text, 4);
    if (a->block)
        wire_call_splice(call, (wire_block *)a->block);
    wire_put_bytes(out, a->text + 4, strlen(a->text + 4));
}

static void on_echo(void *owner, wire_call *call, const wire_answer *r)
{
    asked *a = owner;
    assert_false(a->told);
    assert_ptr_equal(wire_call_owner(call), a);
    a->told = true;
    a->order = ++order;
    a->code = r->code;
    a->sent = r->sent;
    if (r->code)
        return;
    assert_int_equal(r->version, 4);
    const wire_block *b = a->block;
    size_t len = strlen(a->text), mid = b ? b->len : 0;
    assert_int_equal(wire_in_left(&r->body), len + mid);
    a->same = !memcmp(r->body.at, a->text, 4) && (!b || !memcmp(r->body.at + 4, b->data, mid)) &&
              !memcmp(r->body.at + 4 + mid, a->text + 4, len - 4);
}

static void ask(asked *a, const char *text, int lane, int timeout_ms)
{
    memset(a, 0, sizeof *a);
    snprintf(a->text, sizeof a->text, "%s", text);
    a->call = wire_net_call(net, 1, &echo, timeout_ms, put_text, on_echo, a);
    wire_call_lane(a->call, lane);
}

static void know(void)
{
    UNTIL(wire_net_cluster_id(net));
}

/* Lane 0 of broker 1. */
static void bring_up(void)
{
    asked a;
    ask(&a, "it is up", 0, 60000);
    UNTIL(a.told);
    assert_int_equal(a.code, 0);
}

/* ---- versions, metadata ---------------------------------------------------------------------------------------------------------------------- */

static void learns_all(void)
{
    wire_net_topic(net, "t");
    wire_net_coordinator(net, WIRE_TXN, "x", NULL);
    UNTIL(wire_net_topic(net, "t") && wire_net_coordinator(net, WIRE_TXN, "x", NULL) == 1);
    const wire_topic *t = wire_net_topic(net, "t");
    assert_int_equal(t->n, 3);
    assert_int_equal(t->leader[2], 1);
    assert_int_equal(t->leader_epoch[0], 5);
    assert_int_equal(t->id[0], 7);
    assert_ptr_equal(wire_net_topic_by_id(net, t->id), t);
    assert_int_equal(wire_net_leader(net, "t", 3), -1);
    assert_int_equal(wire_net_leader(net, "t", -1), -1);
    assert_string_equal(wire_net_cluster_id(net), "cluster");
    assert_int_equal(wire_net_version(net, 1, &echo), 4);
    assert_int_equal(wire_net_any(net), 1);
}

static void test_wire_net_versions_of_any_broker(void **state)
{
    const int offered[] = {4, 3, 2, 0};
    for (int i = 0; i < 4; i++) {
        p.versions_max = offered[i];
        open_net(NULL);
        assert_int_equal(wire_net_feature(net, "transaction.version"), -1);
        learns_all();
        assert_int_equal(wire_net_feature(net, "transaction.version"), offered[i] >= 3 ? 2 : 0);
        assert_int_equal(faults, 0);
        close_net();
    }
    assert_string_equal(p.log[0].client, "me");
}

static void test_wire_net_answers_byte_by_byte(void **state)
{
    p.drip = 1;
    open_net(NULL);
    learns_all();
    asked a;
    ask(&a, "some text", 0, 60000);
    UNTIL(a.told);
    assert_true(a.same);
    assert_int_equal(faults, 0);
}

/* By the resolver's thread; where localhost is ::1 as well nobody listens there, and the other address is taken. */
static void test_wire_net_finds_a_name(void **state)
{
    host = "localhost";
    open_net(NULL);
    host = "127.0.0.1";
    learns_all();
    close_net();
    host = "localhost";
    open_net((const char *[]){"broker.address.family", "v4", NULL});
    host = "127.0.0.1";
    wire_net_turn(net, 0);
    close_net(); /* while it is being looked for */
}

/* Whatever byte is the last before the broker goes, nothing is told wrongly, and all is well afterwards. */
static void test_wire_net_cut_at_every_byte(void **state)
{
    for (size_t n = 0; n < 260; n++) {
        p.cut_after = n;
        open_net(NULL);
        learns_all();
        asked a;
        ask(&a, "some text", 0, 60000);
        UNTIL(a.told);
        if (a.code) {
            assert_int_equal(a.code, BUS_ERR__TRANSPORT);
            ask(&a, "some text", 0, 60000);
            UNTIL(a.told);
        }
        assert_int_equal(a.code, 0);
        assert_true(a.same);
        close_net();
        p.cut_after = SIZE_MAX;
        peer_cut(&p);
        for (int i = 0; i < p.n_log; i++)
            pst_buf_done(&p.log[i].body);
        p.n_log = 0;
    }
}

static void test_wire_net_an_older_leader_does_not_come_back(void **state)
{
    open_net(NULL);
    wire_net_topic(net, "t");
    UNTIL(wire_net_leader(net, "t", 0) == 1);
    p.leader = 3;
    p.epoch = 4; /* of a broker that is behind */
    int asks = peer_count(&p, 3);
    wire_net_stale(net, "t");
    UNTIL(peer_count(&p, 3) >= asks + 1);
    int64_t known = wire_net_topic(net, "t")->known_us;
    UNTIL(wire_net_topic(net, "t")->known_us > known);
    assert_int_equal(wire_net_leader(net, "t", 0), 1);
    p.epoch = 6;
    wire_net_stale(net, "t");
    UNTIL(wire_net_leader(net, "t", 0) == 3);
    p.epoch = 0; /* deleted, and made again */
    p.topic_id = 9;
    p.leader = 1;
    wire_net_stale(net, "t");
    UNTIL(wire_net_leader(net, "t", 0) == 1);
}

static void test_wire_net_asks_again_for_what_is_not_there(void **state)
{
    p.topic_code = BUS_ERR_UNKNOWN_TOPIC_OR_PART;
    open_net(NULL);
    UNTIL(wire_net_topic(net, "t"));
    assert_int_equal(wire_net_topic(net, "t")->code, BUS_ERR_UNKNOWN_TOPIC_OR_PART);
    assert_int_equal(wire_net_topic(net, "t")->n, 0);
    p.topic_code = 0;
    p.leader = -1; /* none is elected yet */
    UNTIL(wire_net_topic(net, "t")->n == 3);
    assert_int_equal(wire_net_leader(net, "t", 0), -1);
    p.leader = 1;
    p.epoch = 6;
    UNTIL(wire_net_leader(net, "t", 0) == 1);
    char long_name[400];
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = 0;
    assert_int_equal(wire_net_topic(net, long_name)->code, BUS_ERR_TOPIC_EXCEPTION);
    wire_net_forget_topic(net, long_name);
    wire_net_forget_topic(net, "never heard of");
}

/* ---- requests ------------------------------------------------------------------------------------------------------------------------------------ */

static void test_wire_net_answers_in_order_with_blocks(void **state)
{
    enum { N = 200 };
    static asked a[N];
    wire_block *big = wire_block_new(3000000);
    big->len = 3000000;
    for (size_t i = 0; i < big->len; i++)
        big->data[i] = (uint8_t)(i * 7);
    open_net((const char *[]){"max.in.flight.requests.per.connection", "3", NULL});
    know();
    order = 0;
    for (int i = 0; i < N; i++) {
        ask(&a[i], "abcdefgh", 0, 60000);
        a[i].block = i % 50 == 7 ? big : NULL;
    }
    UNTIL(a[N - 1].told);
    for (int i = 0; i < N; i++) {
        assert_true(a[i].same);
        assert_int_equal(a[i].order, i + 1);
    }
    assert_int_equal(big->uses, 1);
    wire_block_drop(big);
}

static void test_wire_net_lanes_are_connections_of_their_own(void **state)
{
    asked a, b, c;
    open_net(NULL);
    know();
    p.hold_key = -1;
    ask(&a, "lane zero", 0, 60000);
    UNTIL(a.told);
    int used = p.log[p.n_log - 1].conn;
    ask(&b, "lane one", 1, 60000);
    UNTIL(b.told);
    assert_int_not_equal(p.log[p.n_log - 1].conn, used);
    used = p.log[p.n_log - 1].conn;
    ask(&c, "lane one again", 1, 60000);
    UNTIL(c.told);
    assert_int_equal(p.log[p.n_log - 1].conn, used);
}

static void test_wire_net_late_and_lost(void **state)
{
    asked a, b, c, d;
    open_net((const char *[]){"socket.timeout.ms", "300", NULL});
    know();
    bring_up();
    p.hold_key = 12;
    ask(&a, "never answered", 0, 5);
    wire_net_push(net); /* out before its time is over, however slow this computer is */
    ask(&b, "nor this", 0, 60000);
    UNTIL(a.told);
    assert_int_equal(a.code, BUS_ERR__TIMED_OUT);
    assert_true(a.sent);
    assert_false(b.told);
    ask(&c, "forgotten", 0, 60000);
    UNTIL(peer_count(&p, 12) == 4);
    wire_call_forget(c.call);
    peer_cut(&p);
    UNTIL(b.told);
    assert_int_equal(b.code, BUS_ERR__TRANSPORT);
    assert_true(b.sent);
    assert_false(c.told);
    /* a first one that is not answered for its own time-out takes the connection with it */
    p.hold_key = -1;
    bring_up();
    p.hold_key = 12;
    int before = faults;
    ask(&d, "hangs", 0, 400);
    wire_net_push(net);
    UNTIL(d.told);
    assert_int_equal(d.code, BUS_ERR__TIMED_OUT);
    UNTIL(faults > before);
    assert_non_null(strstr(fault_text, "socket.timeout.ms"));
    p.hold_key = -1;
    ask(&d, "answered", 0, 60000);
    UNTIL(d.told);
    assert_true(d.same);
}

/* Whoever computes for long turns late; the answer was there in time. */
static void test_wire_net_an_answer_that_lay_there_is_not_late(void **state)
{
    asked a;
    open_net((const char *[]){"socket.timeout.ms", "50", NULL});
    know();
    bring_up();
    int before = peer_count(&p, 12);
    ask(&a, "text", 0, 50);
    wire_net_push(net); /* it goes out without a turn */
    UNTIL_PEER(peer_count(&p, 12) > before);
    pst_sleep_ms(80);
    while (!a.told)
        wire_net_turn(net, 0);
    assert_int_equal(a.code, 0);
    assert_true(a.same);
    assert_int_equal(faults, 0);
}

static void test_wire_net_unsent_and_unknown(void **state)
{
    static const wire_api newer = {.key = 12, .min = 9, .max = 11, .flexible = 9, .name = "Heartbeat"},
                          unheard = {.key = 99, .min = 0, .max = 1, .flexible = 1, .name = "Unheard"},
                          beyond = {.key = 500, .min = 0, .max = 1, .flexible = 1, .name = "Beyond"};
    asked a = {.text = "text"}, b = a, c = a, d = a;
    open_net(NULL);
    know();
    wire_net_call(net, 1, &newer, 60000, put_text, on_echo, &a);
    wire_net_call(net, 1, &unheard, 60000, put_text, on_echo, &b);
    wire_net_call(net, 1, &beyond, 60000, put_text, on_echo, &c);
    wire_net_call(net, 4711, &echo, 60000, put_text, on_echo, &d);
    UNTIL(a.told && b.told && c.told && d.told);
    assert_int_equal(a.code, BUS_ERR__UNSUPPORTED_FEATURE);
    assert_int_equal(b.code, BUS_ERR__UNSUPPORTED_FEATURE);
    assert_int_equal(c.code, BUS_ERR__UNSUPPORTED_FEATURE);
    assert_int_equal(d.code, BUS_ERR__TRANSPORT);
    assert_false(a.sent || b.sent || c.sent || d.sent);
    /* what waits and is forgotten, late, or freed with the net */
    p.hold_key = 18;
    ask(&a, "late", 2, 5);
    ask(&b, "forgotten", 2, 60000);
    ask(&c, "freed", 2, 60000);
    wire_call_forget(b.call);
    UNTIL(a.told);
    assert_int_equal(a.code, BUS_ERR__TIMED_OUT);
    assert_false(a.sent);
    close_net();
    assert_false(b.told || c.told);
}

static asked inner[8];
static int inner_n;

static void again(void *owner, wire_call *call, const wire_answer *r)
{
    if (inner_n == 8)
        return;
    asked *a = &inner[inner_n++];
    ask(a, "inside", 0, 60000);
    for (int i = 0; i < 20; i++) { /* a turn inside a turn's callback */
        wire_net_turn(net, 0);
        peer_serve(&p);
    }
}

static void test_wire_net_callbacks_may_turn_and_ask(void **state)
{
    static asked outer = {.text = "outer"};
    inner_n = 0;
    open_net(NULL);
    know();
    for (int i = 0; i < 8; i++)
        wire_net_call(net, 1, &echo, 60000, put_text, again, &outer);
    UNTIL(inner_n == 8 && inner[7].told);
    for (int i = 0; i < 8; i++)
        assert_true(inner[i].same);
}

/* ---- brokers that lie, move, go away --------------------------------------------------------------------------------------------------------------- */

/* KIP-219: the broker does not read on for a while; nothing is written to it, and nothing is late for it. */
static void test_wire_net_keeps_still_while_it_is_throttled(void **state)
{
    static const wire_api throttled = {.key = 12, .max = 4, .flexible = 4, .name = "Heartbeat"};
    asked first, second;
    open_net(NULL);
    know();
    bring_up();
    memset(&first, 0, sizeof first);
    snprintf(first.text, sizeof first.text, "days of throttle_time_ms"); /* its first four bytes, of which 30 s are believed */
    first.call = wire_net_call(net, 1, &throttled, 60000, put_text, on_echo, &first);
    UNTIL(first.told);
    int seen = peer_count(&p, 12);
    ask(&second, "held back", 0, 60000);
    for (int i = 0; i < 200; i++)
        step();
    assert_int_equal(peer_count(&p, 12), seen);
    assert_false(second.told);
    ask(&first, "of another connection", 1, 60000);
    UNTIL(first.told);
    assert_int_equal(first.code, 0);
    assert_int_equal(faults, 0);
}

static void test_wire_net_a_broker_that_lies(void **state)
{
    const uint32_t lengths[] = {0, 3, 0x7fffffff, 0xffffffff, 0x80000000, 100000001};
    asked a;
    open_net(NULL);
    know();
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        p.lie_key = 12;
        p.lie_len = lengths[i];
        ask(&a, "text", 0, 60000);
        UNTIL(a.told);
        assert_int_equal(a.code, BUS_ERR__TRANSPORT);
        assert_non_null(strstr(fault_text, "announced"));
    }
    p.lie_key = -1;
    p.wrong_id_key = 12;
    ask(&a, "text", 0, 60000);
    UNTIL(a.told);
    assert_int_equal(a.code, BUS_ERR__TRANSPORT);
    p.wrong_id_key = -1;
    p.lie_key = 18; /* before it is up a megabyte is too much */
    p.lie_len = (1 << 20) + 1;
    peer_cut(&p);
    ask(&a, "text", 0, 60000);
    UNTIL(a.told);
    assert_int_equal(a.code, BUS_ERR__TRANSPORT);
    p.lie_key = -1;
    ask(&a, "text", 0, 60000);
    UNTIL(a.told);
    assert_true(a.same);
}

static void test_wire_net_moves_with_its_broker(void **state)
{
    peer q;
    peer_open(&q);
    asked a;
    open_net(NULL);
    know();
    ask(&a, "here", 0, 60000);
    UNTIL(a.told);
    p.metadata_port = q.port;
    wire_net_topic(net, "t"); /* asks */
    UNTIL(wire_net_topic(net, "t"));
    ask(&a, "there", 0, 60000);
    int64_t until = pst_mono_us() + NET_US;
    while (!a.told && pst_mono_us() < until) {
        step();
        peer_serve(&q);
    }
    assert_true(a.same);
    assert_int_equal(peer_count(&q, 12), 1);
    peer_close(&q);
}

static void test_wire_net_down_is_told_once_and_again(void **state)
{
    asked a;
    open_net((const char *[]){"reconnect.backoff.ms", "5", NULL});
    know();
    peer_close(&p);
    ask(&a, "nobody there", 0, 60000);
    UNTIL(downs == 1 && a.told);
    for (int i = 0; i < 100; i++)
        wire_net_turn(net, 1);
    assert_int_equal(downs, 1);
    ask(&a, "nobody there", 0, 60000);
    UNTIL(a.told);
    assert_int_equal(a.code, BUS_ERR__TRANSPORT);
    assert_false(a.sent);
    peer_open(&p); /* elsewhere: only so that end() has one to close */
}

/* ---- logins ------------------------------------------------------------------------------------------------------------------------------------------- */

#define PLAIN_LOGIN "security.protocol", "sasl_plaintext", "sasl.mechanism", "PLAIN", "sasl.username", "u", "sasl.password", "hush"

static void test_wire_net_logs_in_and_again(void **state)
{
    asked a[50];
    p.lifetime_ms = 100;
    open_net((const char *[]){PLAIN_LOGIN, NULL});
    know();
    int conn = -1;
    for (int i = 0; i < p.n_log; i++) {
        if (p.log[i].key == 36) {
            assert_int_equal(p.log[i].body.len, 9); /* length + 1, "\0u\0hush", no tags */
            assert_memory_equal(p.log[i].body.data + 1, "\0u\0hush", 7);
        }
    }
    ask(&a[0], "first", 0, 60000);
    UNTIL(a[0].told);
    conn = p.log[p.n_log - 1].conn;
    int logins = p.logins;
    UNTIL(p.logins >= logins + 3); /* the same connection again and again */
    for (int i = 0; i < 50; i++) {
        ask(&a[i], "while it goes on", 0, 60000);
        UNTIL(a[i].told);
        assert_true(a[i].same);
    }
    for (int i = p.n_log - 1; i >= 0; i--) {
        if (p.log[i].key == 12) {
            assert_int_equal(p.log[i].conn, conn);
            break;
        }
    }
    assert_int_equal(faults, 0);
}

static void test_wire_net_a_refused_login_is_for_good(void **state)
{
    asked a;
    char text[300];
    p.sasl_code = BUS_ERR_SASL_AUTHENTICATION_FAILED;
    open_net((const char *[]){PLAIN_LOGIN, NULL});
    UNTIL(wire_net_fatal(net, text, sizeof text));
    assert_int_equal(wire_net_fatal(net, NULL, 0), BUS_ERR__AUTHENTICATION);
    assert_non_null(strstr(text, "no such user"));
    assert_null(strstr(text, "hush"));
    assert_int_equal(auths, 1);
    ask(&a, "text", 0, 60000);
    UNTIL(a.told);
    assert_int_equal(a.code, BUS_ERR__AUTHENTICATION);
    for (int i = 0; i < 50; i++)
        step();
    assert_int_equal(p.logins, 1);
}

static void test_wire_net_a_refusal_after_it_has_worked_may_pass(void **state)
{
    asked a;
    open_net((const char *[]){PLAIN_LOGIN, NULL});
    know();
    p.sasl_code = BUS_ERR_SASL_AUTHENTICATION_FAILED;
    peer_cut(&p);
    ask(&a, "text", 0, 60000);
    UNTIL(a.told);
    assert_int_equal(a.code, BUS_ERR__AUTHENTICATION);
    assert_int_equal(wire_net_fatal(net, NULL, 0), 0);
    p.sasl_code = 0;
    ask(&a, "text", 0, 60000);
    UNTIL(a.told);
    assert_true(a.same);
}

static void test_wire_net_tokens_of_a_file(void **state)
{
    char path[] = "/tmp/wire-token-XXXXXX", url[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "aaa.bbb.ccc\n", 12), 12);
    close(fd);
    snprintf(url, sizeof url, "file://%s", path);
    const char *kv[] = {"security.protocol",
                        "sasl_plaintext",
                        "sasl.mechanism",
                        "OAUTHBEARER",
                        "sasl.oauthbearer.method",
                        "oidc",
                        "sasl.oauthbearer.token.endpoint.url",
                        url,
                        "sasl.oauthbearer.extensions",
                        "logicalCluster=lkc,pool=p",
                        NULL};
    open_net(kv);
    know();
    static const char first[] = "n,,\x01"
                                "auth=Bearer aaa.bbb.ccc\x01logicalCluster=lkc\x01pool=p\x01\x01";
    bool found = false;
    for (int i = 0; i < p.n_log; i++)
        found |= p.log[i].key == 36 && memmem(p.log[i].body.data, p.log[i].body.len, first, sizeof first - 1);
    assert_true(found);
    close_net();
    /* refused: the broker says why in JSON, wants a byte, and then says no */
    p.sasl_answers[0] = "{\"status\":\"invalid_token\"}";
    p.sasl_code = BUS_ERR_SASL_AUTHENTICATION_FAILED;
    open_net(kv);
    UNTIL(wire_net_fatal(net, NULL, 0));
    assert_int_equal(p.log[p.n_log - 1].body.len, 3);
    assert_int_equal(p.log[p.n_log - 1].body.data[1], 1);
    close_net();
    assert_int_equal(truncate(path, 0), 0);
    open_net(kv);
    UNTIL(wire_net_fatal(net, fault_text, sizeof fault_text));
    assert_non_null(strstr(fault_text, "is empty"));
    close_net();
    unlink(path);
    open_net(kv);
    UNTIL(wire_net_fatal(net, fault_text, sizeof fault_text));
    assert_non_null(strstr(fault_text, path));
}

static void scram_says(const char *first, const char *second, const char *why)
{
    const bus_kv forced[] = {{"security.protocol", "sasl_plaintext"},
                             {"sasl.mechanism", "SCRAM-SHA-256"},
                             {"sasl.username", "a=b,c"},
                             {"sasl.password", "hush"},
                             {NULL, NULL}};
    pst_bus_conf *c = pst_bus_conf_new("h", NULL);
    wire_conf *wc;
    pst_err err = {0};
    assert_int_equal(wire_conf_read(c, BUS_PROP_BOTH, NULL, forced, &wc, &err), 0);
    assert_int_equal(wire_sasl_open(wc, &err), 0);
    wire_sasl *s = wire_sasl_new(wc);
    pst_buf out = {0}, theirs = {0};
    assert_int_equal(wire_sasl_step(s, NULL, 0, &out, &err), 1);
    assert_int_equal(strncmp(out.data, "n,,n=a=3Db=2Cc,r=", 17), 0);
    const char *nonce = strstr(first, "%s"); /* where ours goes */
    if (nonce) {
        pst_buf_add(&theirs, first, (size_t)(nonce - first));
        pst_buf_printf(&theirs, "r=%s", out.data + 17);
    }
    pst_buf_adds(&theirs, nonce ? nonce + 2 : first);
    pst_buf_clear(&out);
    int rc = wire_sasl_step(s, theirs.data, theirs.len, &out, &err);
    if (second) {
        assert_int_equal(rc, 1);
        assert_int_equal(strncmp(out.data, "c=biws,r=", 9), 0);
        assert_null(strstr(out.data, "hush"));
        rc = wire_sasl_step(s, second, strlen(second), &out, &err);
    }
    assert_int_equal(rc, PST_EAUTH);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    wire_sasl_free(s);
    pst_buf_done(&out);
    pst_buf_done(&theirs);
    wire_conf_free(wc);
    pst_bus_conf_free(c);
}

static void test_wire_net_scram_believes_nobody(void **state)
{
    scram_says("r=somebodyelses,s=c2FsdA==,i=4096", NULL, "nonce");
    scram_says("%s,s=c2FsdA==,i=4096", NULL, "nonce"); /* nothing of the broker's own behind it */
    scram_says("%sxyz,s=c2FsdA==,i=4095", NULL, "iterations");
    scram_says("%sxyz,s=c2FsdA==,i=999999999", NULL, "iterations");
    scram_says("%sxyz,s=c2FsdA==,i=-1", NULL, "iterations");
    scram_says("%sxyz,s=c2FsdA==,i=4096x", NULL, "none of SCRAM");
    scram_says("%sxyz,s=,i=4096", NULL, "none of SCRAM");
    scram_says("%sxyz,s=***,i=4096", NULL, "none of SCRAM");
    scram_says("m=must,%sxyz,s=c2FsdA==,i=4096", NULL, "SCRAM");
    scram_says("", NULL, "none of SCRAM");
    scram_says("e=unknown-user", NULL, "unknown-user");
    scram_says("%sxyz,s=c2FsdA==,i=4096", "v=AAAA", "does not know the password");
    scram_says("%sxyz,s=c2FsdA==,i=4096", "v=", "does not know the password");
    scram_says("%sxyz,s=c2FsdA==,i=4096", "", "does not know the password");
    scram_says("%sxyz,s=c2FsdA==,i=4096", "e=invalid-proof", "invalid-proof");
}

static void test_wire_net_servers_that_are_none(void **state)
{
    const char *wrong[] = {"host:", "host:0",  "host:65536",      "host:x",          "[::1",      "[::1]9092", ":9092",
                           ",",     "a:1,b:c", "SSL://host:9093", "SASL_SSL://host", "foo://host"};
    const char *right[] = {"host", "host:1", "[::1]:9092", "[::1]", "::1", "PLAINTEXT://h:9092,i", " a:1 , b:2 "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong + sizeof right / sizeof *right; i++) {
        bool ok = i >= sizeof wrong / sizeof *wrong;
        const char *text = ok ? right[i - sizeof wrong / sizeof *wrong] : wrong[i];
        pst_bus_conf *c = pst_bus_conf_new(text, NULL);
        pst_err err = {0};
        assert_int_equal(wire_conf_read(c, BUS_PROP_BOTH, NULL, NULL, &conf, &err), 0);
        if (wire_net_open(conf, &(bus_listener){0}, &net, &err) != (ok ? 0 : PST_EINVAL))
            fail_msg("\"%s\": %s", text, err.text);
        close_net();
        pst_bus_conf_free(c);
    }
}

int main(void)
{
    signal(SIGPIPE, SIG_DFL); /* nothing here may raise it */
#define T(name) cmocka_unit_test_setup_teardown(test_wire_net_##name, begin, end)
    const struct CMUnitTest tests[] = {
        T(versions_of_any_broker),
        T(answers_byte_by_byte),
        T(finds_a_name),
        T(cut_at_every_byte),
        T(an_older_leader_does_not_come_back),
        T(asks_again_for_what_is_not_there),
        T(answers_in_order_with_blocks),
        T(lanes_are_connections_of_their_own),
        T(late_and_lost),
        T(an_answer_that_lay_there_is_not_late),
        T(unsent_and_unknown),
        T(callbacks_may_turn_and_ask),
        T(keeps_still_while_it_is_throttled),
        T(a_broker_that_lies),
        T(moves_with_its_broker),
        T(down_is_told_once_and_again),
        T(logs_in_and_again),
        T(a_refused_login_is_for_good),
        T(a_refusal_after_it_has_worked_may_pass),
        T(tokens_of_a_file),
        T(scram_believes_nobody),
        T(servers_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
