/* test_gateway_hub.c - event streams: one large event stands for itself by name, slow clients cost little and are told what they missed,
 * resuming goes on where the client was. */
#include "producers/gateway/gateway.h"
#include "tests/unit/test.h"

#include "common/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static pst_loop *loop;
static pst_http *http;
static gw_hub *hub;

static void attach(void *arg, pst_http_req *req)
{
    gw_hub_attach(hub, req, pst_http_query(req, "kinds"), pst_http_query(req, "key"), pst_http_query(req, "only"));
}

static const pst_http_route routes[] = {{"GET", "/events/stream", attach, 0, 0, NULL}};

static int setup(void **state)
{
    pst_err err = {0};
    hub = gw_hub_new();
    assert_int_equal(pst_loop_new(&loop, &err), 0);
    assert_int_equal(pst_http_new(loop, &(pst_http_conf){.name = "test"}, &http, &err), 0);
    pst_http_add_routes(http, routes, 1, NULL);
    return 0;
}

static int teardown(void **state)
{
    pst_http_free(http);
    pst_loop_free(loop); /* output buffers end with it: they hold pieces that the hub counts */
    gw_hub_free(hub);
    return 0;
}

static void turn(int ms)
{
    pst_loop_run_for(loop, ms);
}

static int dial_for(const char *only, const char *last_id)
{
    char text[300];
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)pst_http_port(http)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    int n = snprintf(text, sizeof text, "GET /events/stream%s%s HTTP/1.1\r\nHost: localhost\r\n%s%s%s\r\n", only ? "?only=" : "",
                     only ? only : "", last_id ? "Last-Event-ID: " : "", last_id ? last_id : "", last_id ? "\r\n" : "");
    assert_int_equal(write(fd, text, (size_t)n), n);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    size_t before = gw_hub_streams(hub);
    for (int i = 0; i < 100 && gw_hub_streams(hub) == before; i++)
        turn(10);
    assert_int_equal(gw_hub_streams(hub), before + 1);
    return fd;
}

static int dial(const char *last_id)
{
    return dial_for(NULL, last_id);
}

/* Reads until the word came, or the time is over; adds to b. */
static bool hear(int fd, pst_buf *b, const char *word)
{
    char part[65536];
    for (int64_t end = pst_mono_us() + 20 * 1000000; pst_mono_us() < end;) {
        ssize_t n = read(fd, part, sizeof part);
        size_t seen = b->len > strlen(word) ? b->len - strlen(word) : 0;
        if (n > 0)
            pst_buf_add(b, part, (size_t)n);
        if (b->len && memmem(b->data + seen, b->len - seen, word, strlen(word)))
            return true;
        if (n == 0)
            return false;
        turn(n > 0 ? 0 : 1);
    }
    return false;
}

static void hang_up(int fd)
{
    size_t before = gw_hub_streams(hub);
    close(fd);
    for (int i = 0; i < 200 && gw_hub_streams(hub) == before; i++)
        turn(10);
}

static void send_text(const char *kind, const char *id, char fill, size_t len)
{
    char *json = pst_alloc(len + 3);
    memset(json, fill, len + 2);
    json[0] = json[len + 1] = '"';
    gw_hub_send(hub, kind, "key", id, json, len + 2);
    free(json);
}

static void test_hub_large_event_is_named_not_sent(void **state)
{
    pst_buf b = {0};
    int fd = dial(NULL);
    send_text("pipeline", "p/0/1", 'x', 1900000);
    gw_hub_send(hub, "pipeline", "key", "p/0/2", NULL, 900000); /* one that could not be taken apart */
    send_text("event", "e/0/1", 'y', 10);
    assert_true(hear(fd, &b, "yyyyyyyyyy"));
    assert_non_null(strstr(b.data, "id: p/0/1;p/0:2\nevent: skipped\ndata: {\"kind\":\"pipeline\""));
    assert_non_null(strstr(b.data, "id: p/0/2;p/0:3\nevent: skipped\n"));
    assert_null(strstr(b.data, "xxxx"));
    hang_up(fd);
    /* A client that comes later, and one that was at the large event, go on behind it. */
    for (int resumes = 0; resumes < 2; resumes++) {
        pst_buf_clear(&b);
        fd = dial(resumes ? "p/0/1;p/0:2" : NULL);
        assert_true(hear(fd, &b, "yyyyyyyyyy"));
        assert_int_equal(strstr(b.data, "event: reset") != NULL, !resumes);
        assert_int_equal(strstr(b.data, "id: p/0/1;") != NULL, !resumes);
        hang_up(fd);
    }
    pst_buf_done(&b);
}

static const char *owner; /* of every job; NULL = not known yet */

static const char *owner_of(void *arg, const char *training_id)
{
    return owner;
}

/* A user's own event waits until it is known whose it is, and is not passed over; another's is, and holds nobody up. */
static void test_hub_an_owner_who_comes_late(void **state)
{
    pst_buf b = {0};
    owner = NULL;
    gw_hub_set_owners(hub, owner_of, NULL);
    int ann = dial_for("ann", NULL), bob = dial_for("bob", NULL);
    send_text("event", "e/0/1", 'y', 10);
    send_text("model", "m/0/1", 'z', 10);
    turn(100);
    gw_hub_again(hub);
    owner = "ann";
    gw_hub_again(hub);
    assert_true(hear(ann, &b, "zzzzzzzzzz"));
    assert_non_null(strstr(b.data, "yyyyyyyyyy"));
    pst_buf_clear(&b);
    assert_true(hear(bob, &b, "zzzzzzzzzz"));
    assert_null(strstr(b.data, "yyyyyyyyyy"));
    owner = NULL; /* one that nobody ever hears of holds nobody up for long */
    send_text("event", "e/0/2", 'q', 10);
    send_text("model", "m/0/2", 'w', 10);
    int64_t began = pst_mono_us();
    pst_buf_clear(&b);
    for (int i = 0; i < 60 && (!b.len || !strstr(b.data, "wwwwwwwwww")); i++) {
        char part[4096];
        turn(100);
        gw_hub_again(hub);
        ssize_t n = read(ann, part, sizeof part);
        if (n > 0)
            pst_buf_add(&b, part, (size_t)n);
        pst_buf_addc(&b, 0);
        b.len--;
    }
    assert_non_null(strstr(b.data, "wwwwwwwwww"));
    assert_null(strstr(b.data, "qqqqqqqqqq"));
    assert_true(pst_mono_us() - began > 2000000);
    gw_hub_set_owners(hub, NULL, NULL);
    hang_up(ann);
    hang_up(bob);
    pst_buf_done(&b);
}

/* Who watches is told when Kafka goes away and when it is back, once each; who comes while it is away too. No record: the place in the stream stays. */
static void test_hub_says_when_kafka_is_away(void **state)
{
    pst_buf b = {0};
    int fd = dial(NULL);
    send_text("event", "e/0/1", 'y', 10);
    assert_true(hear(fd, &b, "yyyyyyyyyy"));
    assert_null(strstr(b.data, "event: kafka"));
    gw_hub_kafka(hub, "no \"broker\" answers");
    gw_hub_kafka(hub, "no \"broker\" answers");
    assert_true(hear(fd, &b, "event: kafka\ndata: {\"reached\":false,\"why\":\"no \\\"broker\\\" answers\"}\n"));
    pst_buf late = {0};
    int other = dial("e/0/1;e/0:2");
    assert_true(hear(other, &late, "\"reached\":false"));
    assert_null(strstr(late.data, "id:"));
    gw_hub_kafka(hub, NULL);
    assert_true(hear(fd, &b, "\"reached\":true"));
    assert_true(hear(other, &late, "\"reached\":true"));
    int told = 0;
    for (const char *at = b.data; (at = strstr(at, "event: kafka")) != NULL; at++)
        told++;
    assert_int_equal(told, 2);
    hang_up(other);
    hang_up(fd);
    pst_buf_done(&late);
    pst_buf_done(&b);
}

/* Topics by their names, as they stand in the contract; a name that there is not is no empty stream. */
static void test_stream_topics_are_kinds(void **state)
{
    static const char *const bad[] = {"", "logs,", ",logs", "log", "penstock.logs", "logs, metrics", "jobs.requests", "LOGS", "\xff\n"};
    char *why = NULL, *kinds = gw_stream_kinds("logs,jobs.events,pipelines", &why);
    assert_string_equal(kinds, "log,event,pipeline");
    assert_null(why);
    free(kinds);
    const char *name, *kind;
    for (size_t i = 0; (kind = gw_feed_kind(i, &name)) != NULL; i++) {
        kinds = gw_stream_kinds(name, &why);
        assert_string_equal(kinds, kind);
        free(kinds);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(gw_stream_kinds(bad[i], &why));
        assert_non_null(strstr(why, "there are jobs.events, logs, metrics, jobs.state, models, pipelines, workers"));
        assert_null(strpbrk(why, "\xff\n")); /* it goes into JSON */
        free(why);
    }
}

static void begin(int64_t e0, int64_t e0_high, int64_t e1, int64_t e1_high)
{
    gw_places v = {0};
    gw_place *p = gw_places_put(&v, "e", 1);
    p->from = e1;
    p->high = e1_high;
    p->kind = "event";
    p = gw_places_put(&v, "e", 0);
    p->from = e0;
    p->high = e0_high;
    p->kind = "event";
    gw_hub_begin(hub, &v);
    gw_places_done(&v);
}

static void send_events(int partition, int from, int to)
{
    for (int i = from; i < to; i++) {
        char id[40];
        snprintf(id, sizeof id, "e/%d/%d", partition, i);
        gw_hub_send(hub, "event", "key", id, "1", 1);
    }
}

static int count(const pst_buf *b, const char *word)
{
    int n = 0;
    for (const char *at = b->data; at && (at = strstr(at, word)) != NULL; at++)
        n++;
    return n;
}

/* Which event came, and the id that the client would come back with. */
static char *last_id(const pst_buf *b)
{
    const char *found = NULL;
    for (const char *at = b->data; (at = strstr(at, "\nid: ")) != NULL; at++)
        found = at + 5;
    assert_non_null(found);
    return pst_strndup(found, strcspn(found, "\n"));
}

/* Another gateway reads the partitions in another order: a client that goes on there, and breaks off in the midst of it, has each record once. */
static void test_hub_resumes_exactly_at_another_gateway(void **state)
{
    pst_buf b = {0};
    begin(0, 0, 0, 0);
    int fd = dial(NULL);
    send_events(0, 0, 3);
    send_events(1, 0, 5);
    assert_true(hear(fd, &b, "id: e/1/4;e/0:3/1:5\n"));
    hang_up(fd);
    for (int stop = 4; stop <= 7; stop++) { /* one or two new ones in each */
        teardown(NULL);
        setup(NULL);
        char word[40], *id = last_id(&b);
        fd = dial(id); /* before the gateway has anything */
        begin(0, stop, 0, stop + 2);
        send_events(0, 0, stop);
        gw_hub_send(hub, "event", "key", "e/0/2", "1", 1); /* read again */
        snprintf(word, sizeof word, "id: e/0/%d;", stop - 1);
        assert_true(hear(fd, &b, word));
        if (stop % 2) { /* it breaks off before the other partition is there, and comes again */
            hang_up(fd);
            free(id);
            id = last_id(&b);
            fd = dial(id);
        }
        send_events(1, 0, stop + 2);
        snprintf(word, sizeof word, "id: e/1/%d;", stop + 1);
        assert_true(hear(fd, &b, word));
        hang_up(fd);
        free(id);
    }
    for (int i = 0; i < 9; i++) {
        char word[40];
        snprintf(word, sizeof word, "id: e/0/%d;", i);
        assert_int_equal(count(&b, word), i < 7);
        snprintf(word, sizeof word, "id: e/1/%d;", i);
        assert_int_equal(count(&b, word), 1);
    }
    assert_int_equal(count(&b, "event: gap"), 0);
    assert_int_equal(count(&b, "event: reset"), 1); /* the first one, without an id */
    pst_buf_done(&b);
}

/* What cannot be gone on with is said: records that are gone, offsets of another topic, ids that say nothing. */
static void test_hub_tells_gaps(void **state)
{
    static const char *const bad[] = {
        "e/0/3",   "x",       "e/0/-3;e/0:-3", "e/0/1;e/0:99999999999999999999", "e/0/1;e/0:1/0:2", "e/0/1;",
        "e/0/1;;", "e/0/1;e", "e/0/1;e/0:",    "e/0/1;e/4294967296:1",           "e/0/1;e/0:1junk", "/0/1;e/0:1"};
    begin(10, 12, 0, 2);
    send_events(0, 10, 12);
    send_events(1, 0, 2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pst_buf b = {0};
        int fd = dial(bad[i]);
        assert_true(hear(fd, &b, "id: e/1/1;"));
        assert_non_null(strstr(b.data, "event: gap\ndata: {\"why\":\"Last-Event-ID does not say"));
        assert_int_equal(count(&b, "event: event"), 4);
        hang_up(fd);
        pst_buf_done(&b);
    }
    pst_buf b = {0};
    int fd = dial("e/0/3;e/0:4/1:1;other/7:100");
    assert_true(hear(fd, &b, "id: e/1/1;e/0:12/1:2\n"));
    assert_non_null(strstr(b.data, "\"from\":4"));
    assert_non_null(strstr(b.data, "\"to\":10"));
    assert_int_equal(count(&b, "event: gap"), 1);
    assert_int_equal(count(&b, "event: event"), 3);
    begin(20, 25, 2, 2); /* the feed begins anew, and some are gone */
    send_events(0, 20, 21);
    assert_true(hear(fd, &b, "id: e/0/20;"));
    assert_non_null(strstr(b.data, "\"to\":20"));
    hang_up(fd);
    pst_buf_clear(&b);
    fd = dial("e/0/3;e/0:999999999999/1:2"); /* of another platform */
    assert_true(hear(fd, &b, "id: e/0/20;"));
    assert_non_null(strstr(b.data, "\"from\":999999999999"));
    hang_up(fd);
    pst_buf_done(&b);
}

static void test_hub_new_client_gets_a_ring_of_many_megabytes(void **state)
{
    pst_buf b = {0};
    char id[40];
    for (int i = 0; i < 200; i++) { /* 20 MB: far beyond what a stream may lag behind */
        snprintf(id, sizeof id, "l/0/%d", i);
        send_text("log", id, 'z', 100000);
    }
    int fd = dial(NULL);
    assert_true(hear(fd, &b, "id: l/0/199;"));
    for (int i = 0; i < 200; i++) {
        snprintf(id, sizeof id, "id: l/0/%d;", i);
        assert_non_null(memmem(b.data, b.len, id, strlen(id)));
    }
    pst_buf_done(&b);
    close(fd);
}

static void test_hub_slow_clients_cost_little(void **state)
{
    enum { CLIENTS = 200 };
    int fds[CLIENTS];
    char id[40];
    for (int i = 0; i < CLIENTS; i++)
        fds[i] = dial(NULL);
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < 1000; i++) { /* 100 MB pass by; nobody reads */
        snprintf(id, sizeof id, "m/0/%d", i);
        send_text("log", id, 'w', 100000);
        turn(0);
    }
    struct mallinfo2 after = mallinfo2();
    size_t grown = after.uordblks + after.hblkhd > before.uordblks + before.hblkhd
                       ? after.uordblks + after.hblkhd - before.uordblks - before.hblkhd
                       : 0;
    assert_in_range(grown, 0, 56 << 20); /* the ring's 32 MiB, 16 of what slow clients hold, and a little for each client */
    pst_buf b = {0};
    hang_up(fds[0]);
    fds[0] = dial("m/0/999;m/0:1000"); /* one that keeps up for a while, */
    for (int i = 0; i < 500; i++)
        send_text("event", "x", 'v', 100000); /* is late, */
    gw_hub_send(hub, "event", "key", "last", "1", 1);
    assert_true(hear(fds[0], &b, "id: last;")); /* and is told what it has missed */
    assert_non_null(memmem(b.data, b.len, "event: missed\n", 14));
    pst_buf_done(&b);
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
    for (int i = 0; i < 200 && gw_hub_streams(hub); i++)
        turn(10);
    assert_int_equal(gw_hub_streams(hub), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_hub_large_event_is_named_not_sent, setup, teardown),
                                       cmocka_unit_test(test_stream_topics_are_kinds),
                                       cmocka_unit_test_setup_teardown(test_hub_resumes_exactly_at_another_gateway, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_hub_tells_gaps, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_hub_an_owner_who_comes_late, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_hub_says_when_kafka_is_away, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_hub_new_client_gets_a_ring_of_many_megabytes, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_hub_slow_clients_cost_little, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
