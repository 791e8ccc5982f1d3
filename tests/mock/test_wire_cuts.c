/* Our own client through a proxy that breaks off, once, behind each byte of what goes through it, or stalls there, or hands on one byte at a time: every record
 * comes once and in order, every record that is sent is kept once. The broker is a stub (tests/bench/wire/stub.h), a thread of this program. */
#include "common/base/clock.h"
#include "common/bus/wire/wire.h"
#include "tests/bench/wire/stub.h"
#include "tests/unit/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RECORDS = 24, IN_BATCH = 8, GIVE_UP_S = 30 };
enum { DOWN = 0, UP = 1 };

/* ---- the proxy ------------------------------------------------------------------------------------------------------------------- */

typedef enum { NOTHING, CUT, STALL, DRIBBLE } fault;

static _Atomic int kind, way;     /* what happens, and to what comes down or goes up */
static _Atomic int64_t at;        /* behind so many bytes; then it has happened */
static _Atomic int64_t passed[2]; /* bytes, since the last case began */
static _Atomic int happened;
static int proxy_port, stub_port;

static void no_delay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static bool send_all(int fd, const char *data, ssize_t n)
{
    for (ssize_t sent; n > 0; data += sent, n -= sent)
        if ((sent = send(fd, data, (size_t)n, MSG_NOSIGNAL)) <= 0)
            return false;
    return true;
}

/* Hands on what came; false = the connection is over. */
static bool hand_on(int from, int to, int direction)
{
    char bytes[4096];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);
    if (n <= 0)
        return false;
    int64_t before = passed[direction];
    passed[direction] += n;
    if (kind == DRIBBLE) {
        for (ssize_t i = 0; i < n; i++)
            if (!send_all(to, bytes + i, 1))
                return false;
        return true;
    }
    bool here = kind != NOTHING && direction == way && !happened && before + n > at;
    if (!here)
        return send_all(to, bytes, n);
    ssize_t first = at > before ? (ssize_t)(at - before) : 0;
    happened = 1;
    if (!send_all(to, bytes, first) || kind == CUT)
        return false;
    nanosleep(&(struct timespec){0, 3000000}, NULL);
    return send_all(to, bytes + first, n - first);
}

static void *pump(void *arg)
{
    int client = (int)(intptr_t)arg, broker = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)stub_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (!connect(broker, (struct sockaddr *)&to, sizeof to)) {
        no_delay(broker);
        no_delay(client);
        struct pollfd fds[2] = {{client, POLLIN, 0}, {broker, POLLIN, 0}};
        bool on = true;
        while (on && poll(fds, 2, -1) > 0) {
            if (fds[0].revents)
                on = hand_on(client, broker, UP);
            if (on && fds[1].revents)
                on = hand_on(broker, client, DOWN);
        }
    }
    close(client);
    close(broker);
    return NULL;
}

_Noreturn static void *run_proxy(void *arg)
{
    for (;;) {
        int fd = accept((int)(intptr_t)arg, NULL, NULL);
        pthread_t thread;
        if (fd >= 0 && !pthread_create(&thread, NULL, pump, (void *)(intptr_t)fd))
            pthread_detach(thread);
    }
}

static const stub_conf stub = {.records = RECORDS, .in_batch = IN_BATCH, .value_bytes = 8};

_Noreturn static void *run_stub(void *arg)
{
    stub_serve((int)(intptr_t)arg, proxy_port, &stub);
}

static int start(void **state)
{
    pthread_t thread;
    int broker = stub_listen(&stub, &stub_port), proxy = stub_listen(&stub, &proxy_port);
    return pthread_create(&thread, NULL, run_stub, (void *)(intptr_t)broker) ||
           pthread_create(&thread, NULL, run_proxy, (void *)(intptr_t)proxy);
}

static void begin_case(int what, int direction, int64_t behind)
{
    kind = NOTHING;
    passed[DOWN] = passed[UP] = 0;
    happened = 0;
    at = behind;
    way = direction;
    kind = what;
}

/* ---- the clients ----------------------------------------------------------------------------------------------------------------- */

static int64_t delivered, refused, again;

static void on_fault(void *owner, int code, const char *reason)
{
}

static void on_moved(void *owner)
{
}

static void on_rebalance(void *owner, bus_change change, bus_places *list, bool incremental)
{
}

static void on_delivered(void *owner, const bus_delivered *d)
{
    delivered++;
    refused += d->code != 0;
}

static const bus_listener listener = {.fault = on_fault, .moved = on_moved, .rebalance = on_rebalance, .delivered = on_delivered};

static pst_bus_conf *impatient(void)
{
    static const char *const props[][2] = {{"reconnect.backoff.ms", "1"},
                                           {"reconnect.backoff.max.ms", "5"},
                                           {"retry.backoff.ms", "1"},
                                           {"fetch.wait.max.ms", "5"},
                                           {"fetch.error.backoff.ms", "1"}};
    char bootstrap[40];
    pst_err err = {0};
    snprintf(bootstrap, sizeof bootstrap, "127.0.0.1:%d", proxy_port);
    pst_bus_conf *c = pst_bus_conf_new(bootstrap, "cuts");
    for (size_t i = 0; i < sizeof props / sizeof *props; i++)
        if (pst_bus_conf_set(c, props[i][0], props[i][1], "test", &err) < 0)
            fail_msg("%s", err.text);
    return c;
}

static void consume_all(void)
{
    pst_err err = {0};
    bus_handle *h;
    pst_bus_conf *conf = impatient();
    if (wire_consumer_ops.open(conf, &(bus_consumer_needs){.inflight_bytes = 1 << 20, .poll_interval_ms = 300000}, &listener, &h, &err) < 0)
        fail_msg("%s", err.text);
    bus_place place = {.topic = (char[]){"bench"}};
    assert_int_equal(wire_consumer_ops.assign(h, &(bus_places){.at = &place, .n = 1, .cap = 1}), 0);
    int64_t n = 0, give_up = pst_mono_us() + GIVE_UP_S * 1000000LL;
    while (n < RECORDS) {
        pst_record room[5];
        bus_run run;
        wire_consumer_ops.poll(h, 20, room, 5, 1 << 20, &run);
        if (pst_mono_us() > give_up)
            fail_msg("fault %d behind byte %lld (%s): %lld of %d records came in %d s", kind, (long long)at, way == UP ? "up" : "down",
                     (long long)n, RECORDS, GIVE_UP_S);
        if (run.kind != BUS_RUN_RECORDS)
            continue;
        for (size_t i = 0; i < run.n; i++, n++) {
            assert_int_equal(room[i].offset, n);
            assert_int_equal(room[i].timestamp_ms, 1700000000000 + n % IN_BATCH);
            assert_int_equal(room[i].value_len, 8);
        }
        wire_consumer_ops.release(h, room, run.n);
    }
    assert_int_equal(n, RECORDS);
    wire_consumer_ops.assign(h, NULL);
    wire_consumer_ops.close(h);
    pst_wire_client.common->free(h);
    pst_bus_conf_free(conf);
}

static void produce_all(void)
{
    pst_err err = {0};
    bus_handle *h;
    pst_bus_conf *conf = impatient();
    stub_forget();
    delivered = refused = 0;
    if (wire_producer_ops.open(conf, &(bus_producer_needs){.message_timeout_ms = 60000, .linger_ms = 0}, &listener, &h, &err) < 0)
        fail_msg("%s", err.text);
    int64_t give_up = pst_mono_us() + GIVE_UP_S * 1000000LL;
    for (int i = 0; i < RECORDS;) {
        char value[24];
        snprintf(value, sizeof value, "%08d", i);
        size_t sent = 0;
        pst_out out = {.topic = "bench", .partition = 0, .value = value, .value_len = 8, .timestamp_ms = 1700000000000 + i};
        wire_producer_ops.send(h, &out, 1, &sent);
        i += (int)sent;
        if (i % 5 == 0)
            pst_wire_client.common->serve(h, 1);
        assert_true(pst_mono_us() < give_up);
    }
    while (delivered < RECORDS) {
        wire_producer_ops.flush(h, 20);
        pst_wire_client.common->serve(h, 0);
        if (pst_mono_us() > give_up)
            fail_msg("fault %d behind byte %lld (%s): %lld of %d records were acknowledged in %d s", kind, (long long)at,
                     way == UP ? "up" : "down", (long long)delivered, RECORDS, GIVE_UP_S);
    }
    pst_wire_client.common->free(h);
    pst_bus_conf_free(conf);
    stub_log log = stub_seen();
    again += log.again;
    assert_int_equal(refused, 0);
    assert_int_equal(log.records, RECORDS);
    assert_int_equal(log.wrong, 0);
}

/* How many bytes go each way without a fault; then every `step`th of them in turn. */
static void break_behind(void (*client)(void), int what, int64_t step)
{
    begin_case(NOTHING, DOWN, 0);
    client();
    int64_t all[2] = {passed[DOWN], passed[UP]}, cases = 0, struck = 0;
    for (int direction = DOWN; direction <= UP; direction++)
        for (int64_t i = 0; i < all[direction]; i += step) {
            begin_case(what, direction, i);
            client();
            cases++, struck += happened;
        }
    /* how records fall into requests varies with the time they have, and with it how many bytes there are: not so what a client begins with */
    assert_true(all[DOWN] > 300 && all[UP] > 100);
    assert_true(cases * step >= all[DOWN] && struck * step > 300);
}

static void test_wire_cuts_at_each_byte_lose_no_record_read(void **state)
{
    break_behind(consume_all, CUT, 1);
}

static void test_wire_cuts_at_each_byte_lose_no_record_sent(void **state)
{
    again = 0;
    break_behind(produce_all, CUT, 1);
    assert_true(again > 10); /* batches whose acknowledgement was lost were sent again, and known */
}

static void test_wire_cuts_stalls_change_nothing(void **state)
{
    break_behind(consume_all, STALL, 3);
    break_behind(produce_all, STALL, 3);
}

static void test_wire_cuts_single_bytes_make_the_same_messages(void **state)
{
    begin_case(DRIBBLE, DOWN, 0);
    consume_all();
    produce_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire_cuts_at_each_byte_lose_no_record_read),
        cmocka_unit_test(test_wire_cuts_at_each_byte_lose_no_record_sent),
        cmocka_unit_test(test_wire_cuts_stalls_change_nothing),
        cmocka_unit_test(test_wire_cuts_single_bytes_make_the_same_messages),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
