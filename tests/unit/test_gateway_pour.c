/* test_gateway_pour.c - from a thread to a client: a slow one stops the thread, one that goes away ends it, errors before and behind the first byte. */
#include "producers/gateway/pour.h"
#include "tests/unit/test.h"

#include "common/base/clock.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static gw_state g;
static atomic_int put, done;
static atomic_bool was_refused;

/* As many pieces of 1,000 bytes as the address says. */
static int run(void *arg, gw_pour *p, pst_err *err)
{
    long n = (long)(intptr_t)arg;
    char piece[1000];
    for (long i = 0; i < n; i++) {
        memset(piece, 'a' + (int)(i % 26), sizeof piece);
        if (!gw_pour_put(p, piece, sizeof piece)) {
            was_refused = true;
            return 0;
        }
        put++;
    }
    return 0;
}

static int run_fails(void *arg, gw_pour *p, pst_err *err)
{
    if (arg)
        gw_pour_put(p, "first", 5);
    return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "test", 0, "no broker here");
}

static int run_waits(void *arg, gw_pour *p, pst_err *err)
{
    while (gw_pour_pause(p, 60000))
        ;
    return 0;
}

static void count_done(void *arg)
{
    done++;
}

static void start(void *arg, pst_http_req *req)
{
    const char *what = pst_http_param(req, "what");
    gw_source s = {.name = "test-pour", .type = "text/plain", .run = run, .done = count_done};
    if (!strcmp(what, "fails"))
        s.run = run_fails;
    else if (!strcmp(what, "breaks")) {
        s.run = run_fails;
        s.arg = &g;
    } else if (!strcmp(what, "waits")) {
        s.run = run_waits;
        s.at_once = true;
    } else {
        s.arg = (void *)(intptr_t)atol(what);
        s.whole = strchr(what, 'w') != NULL;
    }
    gw_pour_start(&g, req, &s);
}

static const pst_http_route routes[] = {{"GET", "/{what}", start, 0, 0, NULL}};

static int setup(void **state)
{
    pst_err err = {0};
    put = done = 0;
    was_refused = false;
    assert_int_equal(pst_loop_new(&g.loop, &err), 0);
    assert_int_equal(pst_http_new(g.loop, &(pst_http_conf){.name = "test"}, &g.http, &err), 0);
    pst_http_add_routes(g.http, routes, 1, &g);
    return 0;
}

static void turn_until(const atomic_int *what, int n)
{
    for (int i = 0; i < 6000 && *what < n; i++)
        pst_loop_run_for(g.loop, 10);
    assert_int_equal(*what, n);
}

static int teardown(void **state)
{
    for (int i = 0; i < 6000 && g.pours; i++)
        pst_loop_run_for(g.loop, 10);
    assert_int_equal(g.pours, 0);
    pst_loop_run_for(g.loop, 20);
    pst_http_free(g.http);
    pst_loop_free(g.loop);
    return 0;
}

#define WS "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

static int dial(const char *what, const char *more)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)pst_http_port(g.http)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char text[400];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    int n = snprintf(text, sizeof text, "GET /%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", what, more);
    assert_int_equal(write(fd, text, (size_t)n), n);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* All that comes until the server closes. */
static pst_buf hear_all(int fd)
{
    pst_buf b = {0};
    char part[65536];
    ssize_t n = 1;
    for (int64_t end = pst_mono_us() + 60 * 1000000LL; n && pst_mono_us() < end;) {
        n = read(fd, part, sizeof part);
        if (n > 0)
            pst_buf_add(&b, part, (size_t)n);
        pst_loop_run_for(g.loop, n > 0 ? 0 : 1);
    }
    close(fd);
    assert_int_equal(n, 0);
    return b;
}

static size_t letters(const pst_buf *b)
{
    size_t n = 0;
    for (size_t i = 0; i + 10 < b->len; i++) /* pieces are runs of one letter */
        n += b->data[i] >= 'a' && b->data[i] <= 'z' && b->data[i] == b->data[i + 1];
    return n;
}

static void test_pour_gives_all_by_chunks_and_by_frames(void **state)
{
    pst_buf b = hear_all(dial("3000", ""));
    assert_non_null(memmem(b.data, b.len, "200 OK", 6));
    assert_true(letters(&b) > 3000 * 990);
    assert_non_null(memmem(b.data + b.len - 5, 5, "0\r\n\r\n", 5));
    pst_buf_done(&b);
    b = hear_all(dial("3000", WS));
    assert_non_null(memmem(b.data, b.len, "101 Switching", 13));
    assert_int_equal(put, 6000);
    assert_memory_equal(b.data + b.len - 4, "\x88\x02\x03\xe8", 4);
    pst_buf_done(&b);
    turn_until(&done, 2);
}

static void test_pour_slow_client_stops_the_thread_and_gets_all(void **state)
{
    int fd = dial("20000", ""), before = -1;
    for (int i = 0; i < 300 && (before != put || !put); i++) { /* until nothing moves any more: buffers and queue are full */
        before = put;
        for (int k = 0; k < 20; k++)
            pst_loop_run_for(g.loop, 10);
    }
    assert_true(put < 20000);
    pst_buf b = hear_all(fd);
    assert_int_equal(put, 20000);
    assert_true(letters(&b) > 20000 * 990);
    pst_buf_done(&b);
}

static void test_pour_client_goes_away_and_the_thread_ends(void **state)
{
    int fd = dial("10000000", "");
    for (int i = 0; i < 6000 && !put; i++)
        pst_loop_run_for(g.loop, 10);
    close(fd);
    turn_until(&done, 1);
    assert_true(was_refused);
    fd = dial("waits", WS);
    for (int i = 0; i < 20; i++)
        pst_loop_run_for(g.loop, 10);
    assert_int_equal(g.pours, 1);
    close(fd);
    turn_until(&done, 2);
}

static void test_pour_errors_are_answers_before_the_first_byte_and_break_off_behind_it(void **state)
{
    pst_buf b = hear_all(dial("fails", ""));
    assert_non_null(memmem(b.data, b.len, "503 Service", 11));
    assert_non_null(memmem(b.data, b.len, "no broker here", 14));
    pst_buf_done(&b);
    b = hear_all(dial("breaks", ""));
    assert_true(!b.len || !memmem(b.data, b.len, "0\r\n\r\n", 5)); /* not ended as a whole body is, whatever of it was sent */
    pst_buf_done(&b);
    b = hear_all(dial("breaks", WS));
    assert_non_null(memmem(b.data, b.len, "\x88\x02\x03\xf3", 4)); /* 1011 */
    pst_buf_done(&b);
}

static void test_pour_there_are_so_many_and_no_more(void **state)
{
    int fds[GW_POURS_MAX];
    for (int i = 0; i < GW_POURS_MAX; i++)
        fds[i] = dial("waits", "");
    for (int i = 0; i < 600 && g.pours < GW_POURS_MAX; i++)
        pst_loop_run_for(g.loop, 10);
    assert_int_equal(g.pours, GW_POURS_MAX);
    pst_buf b = hear_all(dial("waits", ""));
    assert_non_null(memmem(b.data, b.len, "503 Service", 11));
    assert_non_null(memmem(b.data, b.len, "Retry-After", 11));
    pst_buf_done(&b);
    for (int i = 0; i < GW_POURS_MAX; i++)
        close(fds[i]);
    turn_until(&done, GW_POURS_MAX + 1);
}

static void cut_short(const char *what, bool whole)
{
    int fd = dial(what, "");
    for (int i = 0; i < 6000 && put < 100; i++)
        pst_loop_run_for(g.loop, 10);
    pst_http_drain(g.http, NULL, NULL);
    pst_buf b = hear_all(fd);
    assert_true(b.len > 1000);
    assert_int_equal(memmem(b.data + b.len - 5, 5, "0\r\n\r\n", 5) != NULL, !whole);
    pst_buf_done(&b);
    turn_until(&done, 1);
}

/* A server that ends says so to who follows a log; of a file it may not look as if that were all. */
static void test_pour_log_that_is_cut_short_ends_properly(void **state)
{
    cut_short("10000000", false);
}

static void test_pour_file_that_is_cut_short_does_not_look_whole(void **state)
{
    cut_short("10000000w", true);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_pour_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(gives_all_by_chunks_and_by_frames),
        T(slow_client_stops_the_thread_and_gets_all),
        T(client_goes_away_and_the_thread_ends),
        T(errors_are_answers_before_the_first_byte_and_break_off_behind_it),
        T(there_are_so_many_and_no_more),
        T(log_that_is_cut_short_ends_properly),
        T(file_that_is_cut_short_does_not_look_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
