/* test_http.c - the HTTP server through raw sockets: what real clients do, and what attackers do. */
#include "common/loop/http.h"

#include "common/base/clock.h"
#include "common/base/secret.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct world {
    pst_loop *loop;
    pst_http *http;
    pthread_t thread;
    int port;
    atomic_int closed, handled, dropped, late_done, asked; /* asked: of /late and /events */
    pst_http_stream *stream;
    pst_http_req *kept;
    pst_timer *timer;
} world;

static world *w;

/* ---- the server under test ------------------------------------------------------------------------------------------------- */

static void echo(void *arg, pst_http_req *r)
{
    w->handled++;
    pst_slice b = pst_http_body(r);
    const char *x = pst_http_param(r, "x"), *q = pst_http_query(r, "q");
    pst_http_add_header(r, "X-Evil", "a\r\nInjected: yes");
    pst_http_reply_text(r, 200, "%s %s x=%s q=%s body=%zu:%.*s", pst_http_method(r), pst_http_path(r), x ? x : "-", q ? q : "-", b.len,
                        (int)(b.len < 20 ? b.len : 20), (const char *)b.data);
}

static void rest(void *arg, pst_http_req *r)
{
    pst_http_reply_text(r, 200, "rest=%s", pst_http_param(r, "path"));
}

static void large(void *arg, pst_http_req *r)
{
    size_t n = 8 << 20;
    char *data = calloc(1, n);
    pst_http_reply(r, 200, "application/octet-stream", data, n);
    free(data);
}

static void reply_kept(void *arg)
{
    pst_http_req *r = w->kept;
    w->kept = NULL;
    pst_http_reply_text(r, 200, pst_http_gone(r) ? "gone" : "late");
    w->late_done++;
}

static void late(void *arg, pst_http_req *r)
{
    w->kept = r;
    w->asked++;
    pst_timer_free(w->timer);
    w->timer = pst_timer_new(w->loop, 50000, 0, reply_kept, NULL);
}

static void on_close(void *arg)
{
    w->closed++;
    w->stream = NULL;
}

static void events(void *arg, pst_http_req *r)
{
    const char *last = pst_http_last_event_id(r);
    char *copy = pst_strdup(last ? last : "none");
    w->stream = pst_http_sse_open(r, on_close, NULL);
    if (w->stream)
        pst_http_sse_send(w->stream, "8", "hello", copy, strlen(copy));
    w->asked++;
    free(copy);
}

static void flood(void *arg)
{
    char line[1000];
    memset(line, 'f', sizeof line);
    for (int i = 0; i < 1000 && w->stream; i++)
        if (pst_http_sse_send(w->stream, NULL, NULL, line, sizeof line) < 0) {
            w->dropped = 1;
            break;
        }
}

static void close_stream(void *arg)
{
    pst_http_stream_close(w->stream);
    w->stream = NULL;
}

static const pst_http_route routes[] = {{"GET", "/echo/{x}", echo, 0, 0, NULL},      {"POST", "/echo/{x}", echo, 0, 0, NULL},
                                        {"PUT", "/small", echo, 10, 0, NULL},        {"GET", "/slash/{x}", echo, 0, PST_HTTP_SLASH, NULL},
                                        {"GET", "/files/{path*}", rest, 0, 0, NULL}, {"GET", "/late", late, 0, 0, NULL},
                                        {"GET", "/events", events, 0, 0, NULL},      {"GET", "/large", large, 0, 0, NULL}};

static bool filter(void *arg, pst_http_req *r)
{
    if (!pst_http_header(r, "X-Refuse"))
        return true;
    pst_http_problem(r, 401, "no-entry", NULL, "not you");
    return false;
}

static void *run(void *arg)
{
    pst_loop_run(w->loop);
    return NULL;
}

static const pst_http_conf plain = {.header_timeout_ms = 400,
                                    .body_timeout_ms = 300,
                                    .idle_timeout_ms = 700,
                                    .stream_backlog_max = 100000,
                                    .connections_max = 20,
                                    .heartbeat_ms = 100,
                                    .bodies_bytes_max = 3 << 20};

static int set_up(void **state)
{
    pst_err err = {0};
    w = pst_alloc(sizeof *w);
    assert_int_equal(pst_loop_new(&w->loop, &err), 0);
    assert_int_equal(pst_http_new(w->loop, &plain, &w->http, &err), 0);
    pst_http_add_routes(w->http, routes, sizeof routes / sizeof *routes, NULL);
    pst_http_set_filter(w->http, filter, NULL);
    pst_http_set_place(w->http, "place-7");
    w->port = pst_http_port(w->http);
    pthread_create(&w->thread, NULL, run, NULL);
    return 0;
}

static int tear_down(void **state)
{
    pst_loop_stop(w->loop);
    pthread_join(w->thread, NULL);
    pst_http_free(w->http);
    pst_timer_free(w->timer);
    if (w->kept)
        reply_kept(NULL); /* after its server: must do no harm */
    pst_loop_free(w->loop);
    free(w);
    return 0;
}

/* ---- raw clients ----------------------------------------------------------------------------------------------------------- */

static int dial(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)w->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void say_n(int fd, const char *text, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* the server has had enough; what it answered is what counts */
        text += sent;
        n -= (size_t)sent;
    }
}

static void say(int fd, const char *text)
{
    say_n(fd, text, strlen(text));
}

enum { NET_MS = 60000 }; /* nothing is concluded from its end but that what was awaited never came */

static void await(atomic_int *what, int n)
{
    for (int i = 0; i < NET_MS && *what < n; i++)
        pst_sleep_ms(1);
    assert_int_equal(*what, n);
}

/* What comes until the other side closes, or wait_ms of silence after something came. */
static char *hear(int fd, int wait_ms)
{
    pst_buf b = {0};
    struct pollfd p = {fd, POLLIN, 0};
    char piece[65536];
    while (poll(&p, 1, b.len ? wait_ms : NET_MS) > 0) {
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n <= 0)
            break;
        pst_buf_add(&b, piece, (size_t)n);
    }
    return pst_buf_steal(&b);
}

static bool is_closed(int fd, int wait_ms)
{
    struct pollfd p = {fd, POLLIN, 0};
    char c;
    return poll(&p, 1, wait_ms) > 0 && recv(fd, &c, 1, 0) <= 0;
}

/* One request on a connection of its own; the text of the answer in a static buffer. */
static const char *talk(const char *request)
{
    static char *last;
    free(last);
    int fd = dial();
    say(fd, request);
    last = hear(fd, 150);
    close(fd);
    return last;
}

static int status_of(const char *answer)
{
    return !strncmp(answer, "HTTP/1.1 ", 9) ? atoi(answer + 9) : 0;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)); p += strlen(word))
        n++;
    return n;
}

#define H "Host: localhost\r\n"

static void expect(const char *request, int status, const char *part)
{
    const char *got = talk(request);
    if (status_of(got) != status || (part && !strstr(got, part)))
        fail_msg("%s\n→ %s\nwanted %d %s", request, got, status, part ? part : "");
}

/* ---- cases ----------------------------------------------------------------------------------------------------------------- */

static void test_http_routes_and_views(void **state)
{
    expect("GET /echo/w%20x?q=1%2B2 HTTP/1.1\r\n" H "\r\n", 200, "GET /echo/w x x=w x q=1+2 body=0:");
    expect("GET /echo/a/ HTTP/1.1\r\n" H "\r\n", 200, "x=a");
    expect("POST /echo/p HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello", 200, "body=5:hello");
    expect("POST /echo/p HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", 200, "body=5:hello");
    expect("GET /files/a/b%20c HTTP/1.1\r\n" H "\r\n", 200, "rest=a/b c");
    expect("GET /files HTTP/1.1\r\n" H "\r\n", 200, "rest=");
    expect("GET /late HTTP/1.1\r\n" H "\r\n", 200, "late");
    expect("GET /slash/a%2fb HTTP/1.1\r\n" H "\r\n", 200, "x=a/b");
    expect("POST /echo/p HTTP/1.1\r\n" H "Origin: http://localhost\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 5\r\n\r\nhello", 200,
           "body=5:hello");
    expect("GET /echo/p HTTP/1.1\r\n" H "Origin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\n\r\n", 200, "x=p");
    expect("GET /nowhere HTTP/1.1\r\n" H "\r\n", 404, "application/problem+json");
    expect("GET /place-7/echo/a HTTP/1.1\r\n" H "\r\n", 200, "x=a"); /* the place is taken off, once */
    expect("GET /place-7/place-7/echo/a HTTP/1.1\r\n" H "\r\n", 404, "");
    expect("GET /place-8/echo/a HTTP/1.1\r\n" H "\r\n", 404, "");
    expect("GET /place-7/slash/a%2Fb HTTP/1.1\r\n" H "\r\n", 200, "x=a/b");
    expect("DELETE /echo/a HTTP/1.1\r\n" H "\r\n", 405, "Allow: GET, HEAD, POST, OPTIONS");
    expect("OPTIONS /echo/a HTTP/1.1\r\n" H "\r\n", 204, "Allow: GET, HEAD, POST, OPTIONS");
    expect("OPTIONS * HTTP/1.1\r\n" H "\r\n", 204, NULL);
    expect("GET /echo/a HTTP/1.0\r\n\r\n", 200, "Connection: close");
    expect("GET /echo/a HTTP/1.1\r\n" H "X-Refuse: 1\r\n\r\n", 401, "not you");
    assert_null(strstr(talk("GET /echo/a HTTP/1.1\r\n" H "\r\n"), "\r\nInjected"));
    assert_null(strstr(talk("HEAD /echo/a HTTP/1.1\r\n" H "\r\n"), "body="));
    assert_non_null(strstr(talk("HEAD /echo/a HTTP/1.1\r\n" H "\r\n"), "Content-Length: "));
}

static void test_http_keeps_alive_and_pipelines(void **state)
{
    int fd = dial();
    say(fd, "\r\nGET /echo/1 HTTP/1.1\r\n" H "\r\nPOST /echo/2 HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabcGET /late HTTP/1.1\r\n" H
            "\r\nGET /echo/4 HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    char *got = hear(fd, NET_MS);
    assert_int_equal(count(got, "HTTP/1.1 200"), 4);
    assert_true(strstr(got, "x=1") < strstr(got, "x=2") && strstr(got, "x=2") < strstr(got, "late") &&
                strstr(got, "late") < strstr(got, "x=4"));
    assert_true(is_closed(fd, NET_MS));
    free(got);
    close(fd);
}

static void test_http_hostile_requests(void **state)
{
    static const struct {
        const char *text;
        int status;
    } rows[] = {{"GET /echo/a HTTP/1.1\r\n\r\n", 400},
                {"GET /echo/a HTTP/1.1\nHost: localhost\n\n", 400},
                {"GET /echo/a HTTP/1.9\r\n" H "\r\n", 505},
                {"FOO /echo/a HTTP/1.1\r\n" H "\r\n", 405},
                {"GET http://localhost/echo/a HTTP/1.1\r\n" H "\r\n", 400},
                {"GET /echo/a HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421},
                {"GET /echo/a HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 421},
                {"GET /echo/a HTTP/1.1\r\nHost: lo cal\r\n\r\n", 421},
                {"GET /echo/a HTTP/1.1\r\nHost: 127.evil.example\r\n\r\n", 421},
                {"GET /echo/a HTTP/1.1\r\nHost: evil.localhost:80\r\n\r\n", 421},
                {"POST /echo/a HTTP/1.1\r\n" H "Origin: http://evil.example\r\nContent-Length: 0\r\n\r\n", 403},
                {"POST /echo/a HTTP/1.1\r\n" H "Origin: http://localhost:81\r\nContent-Length: 0\r\n\r\n", 403},
                {"POST /echo/a HTTP/1.1\r\n" H "Origin: null\r\nContent-Length: 0\r\n\r\n", 403},
                {"POST /echo/a HTTP/1.1\r\n" H "Sec-Fetch-Site: same-site\r\nContent-Length: 0\r\n\r\n", 403},
                {"GET /../../etc/passwd%00.x HTTP/1.1\r\n" H "\r\n", 400},
                {"GET /files/..%2f..%2fetc/passwd HTTP/1.1\r\n" H "\r\n", 400},
                {"GET /files/%2e%2e/x HTTP/1.1\r\n" H "\r\n", 400},
                {"GET /echo/a%2fb HTTP/1.1\r\n" H "\r\n", 400},
                {"GET /echo/a;b HTTP/1.1\r\n" H "\r\n", 400},
                {"PUT /small HTTP/1.1\r\n" H "Content-Length: 11\r\n\r\nhello world", 413},
                {"PUT /small HTTP/1.1\r\n" H "Content-Length: 99999999999999999999\r\n\r\n", 413},
                {"PUT /small HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n", 413},
                {"PUT /small HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400},
                {"POST /echo/a HTTP/1.1\r\n" H "Content-Length: 3000000\r\n\r\n", 413},
                {"POST /echo/a HTTP/1.1\r\n" H "Content-Length: 0\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
                {"\x16\x03\x01\x02\x01\x01", 408}}; /* a TLS hello: no end of line, so it waits for its deadline */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect(rows[i].text, rows[i].status, NULL);
}

/* Two lengths: whatever one of them calls a body must never be run as a second request. */
static void test_http_no_smuggling(void **state)
{
    static const char *const heads[] = {"Content-Length: 4\r\nContent-Length: 44\r\n",
                                        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
                                        "Content-Length: 4\r\nTransfer-Encoding : chunked\r\n",
                                        "Content-Length: 4\r\n Transfer-Encoding: chunked\r\n",
                                        "Transfer-Encoding: xchunked\r\n",
                                        "Content-Length: 4\nTransfer-Encoding: chunked\r\n"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        char *text = pst_sprintf("POST /echo/a HTTP/1.1\r\n" H "%s\r\n0\r\n\r\nGET /echo/smuggled HTTP/1.1\r\n" H "\r\n", heads[i]);
        w->handled = 0;
        const char *got = talk(text);
        assert_int_equal(count(got, "HTTP/1.1 "), 1);
        assert_true(status_of(got) >= 400);
        assert_int_equal(w->handled, 0);
        free(text);
    }
}

static void test_http_huge_headers_cost_nothing(void **state)
{
    int fd = dial();
    char *junk = malloc(1 << 20);
    memset(junk, 'a', 1 << 20);
    say(fd, "GET /echo/a HTTP/1.1\r\n" H "X: ");
    say_n(fd, junk, 1 << 20);
    char *got = hear(fd, 300);
    assert_int_equal(status_of(got), 431);
    free(got);
    free(junk);
    close(fd);
}

static void test_http_slow_head_has_a_deadline(void **state)
{
    int fd = dial();
    int64_t from = pst_mono_us();
    say(fd, "GET /echo/a HTTP/1.1\r\nX: ");
    struct pollfd p = {fd, POLLIN, 0};
    while (pst_mono_us() - from < NET_MS * 1000 && poll(&p, 1, 50) == 0) /* never idle, never done */
        say(fd, "a");
    assert_in_range(pst_mono_us() - from, 300000, NET_MS * 1000);
    char *got = hear(fd, 300);
    assert_int_equal(status_of(got), 408);
    assert_true(is_closed(fd, NET_MS));
    free(got);
    close(fd);
}

static void test_http_slow_body_has_a_deadline(void **state)
{
    int fd = dial();
    say(fd, "POST /echo/a HTTP/1.1\r\n" H "Content-Length: 100\r\n\r\nabc");
    char *got = hear(fd, 1000);
    assert_int_equal(status_of(got), 408);
    free(got);
    close(fd);
}

static void test_http_idle_connection_is_closed(void **state)
{
    int silent = dial(), fd = dial();
    say(fd, "GET /echo/a HTTP/1.1\r\n" H "\r\n");
    char *got = hear(fd, 100);
    assert_int_equal(status_of(got), 200);
    assert_false(is_closed(fd, 200));
    assert_true(is_closed(fd, NET_MS));
    assert_true(is_closed(silent, NET_MS));
    free(got);
    close(fd);
    close(silent);
}

static void test_http_connections_are_limited(void **state)
{
    int fds[25];
    for (int i = 0; i < 25; i++)
        fds[i] = dial();
    char *got = hear(fds[24], 300);
    assert_int_equal(status_of(got), 503);
    free(got);
    for (int i = 0; i < 25; i++)
        close(fds[i]);
    for (int i = 0; i < 50 && status_of(talk("GET /echo/a HTTP/1.1\r\n" H "\r\n")) != 200; i++)
        pst_sleep_ms(10);
    expect("GET /echo/a HTTP/1.1\r\n" H "\r\n", 200, NULL);
}

static void test_http_bodies_together_are_limited(void **state)
{
    int fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = dial();
        say(fds[i], "POST /echo/a HTTP/1.1\r\n" H "Content-Length: 1000000\r\n\r\n");
    }
    pst_sleep_ms(50);
    expect("POST /echo/a HTTP/1.1\r\n" H "Content-Length: 1000000\r\n\r\n", 503, "Retry-After");
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    pst_sleep_ms(50);
    expect("POST /echo/a HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nab", 200, NULL); /* and are given back */
}

static void test_http_continue(void **state)
{
    int fd = dial();
    say(fd, "POST /echo/a HTTP/1.1\r\n" H "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    char *got = hear(fd, 100);
    assert_string_equal(got, "HTTP/1.1 100 Continue\r\n\r\n");
    free(got);
    say(fd, "ab");
    got = hear(fd, 100);
    assert_int_equal(status_of(got), 200);
    free(got);
    close(fd);
    expect("PUT /small HTTP/1.1\r\n" H "Content-Length: 20\r\nExpect: 100-continue\r\n\r\n", 413, NULL);
}

static void test_http_large_reply_and_half_close(void **state)
{
    int fd = dial();
    say(fd, "GET /large HTTP/1.1\r\n" H "\r\n");
    shutdown(fd, SHUT_WR); /* as `nc -N` does: said all, still listening */
    size_t total = 0;
    char piece[65536];
    for (ssize_t n; (n = recv(fd, piece, sizeof piece, 0)) > 0;)
        total += (size_t)n;
    assert_true(total > (8 << 20));
    close(fd);
}

static void test_http_client_leaves_before_the_reply(void **state)
{
    for (int i = 0; i < 20; i++) {
        int fd = dial(), before = w->late_done;
        struct linger hard = {1, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        say(fd, i % 2 ? "GET /late HTTP/1.1\r\n" H "\r\n" : "GET /large HTTP/1.1\r\n" H "\r\n");
        pst_sleep_ms(i % 2 ? 20 : 2);
        close(fd);
        for (int k = 0; i % 2 && k < 500 && w->late_done == before; k++) /* a request that was reset before it was read is never handled */
            pst_sleep_ms(k < 100 ? 2 : 10);
    }
    int status = 0;
    for (int i = 0; i < 20 && status != 200; i++) /* a slow machine may still be busy with the large replies */
        status = status_of(talk("GET /echo/a HTTP/1.1\r\n" H "\r\n"));
    assert_int_equal(status, 200);
}

static void test_http_events_stream(void **state)
{
    int fd = dial();
    say(fd, "GET /events HTTP/1.1\r\n" H "Last-Event-ID: 7\r\n\r\n");
    pst_sleep_ms(280);
    pst_loop_post(w->loop, close_stream, NULL);
    char *got = hear(fd, 200);
    assert_non_null(strstr(got, "Content-Type: text/event-stream"));
    assert_non_null(strstr(got, "Transfer-Encoding: chunked"));
    assert_non_null(strstr(got, "id: 8\nevent: hello\ndata: 7\n\n"));
    assert_true(count(got, ": still here\n") >= 1);
    assert_non_null(strstr(got, "\r\n0\r\n\r\n"));
    assert_int_equal(w->closed, 0); /* we closed it */
    free(got);
    say(fd, "GET /echo/again HTTP/1.1\r\n" H "\r\n"); /* the connection is still good */
    got = hear(fd, 100);
    assert_int_equal(status_of(got), 200);
    free(got);
    close(fd);
}

static void test_http_stream_of_a_client_that_left(void **state)
{
    int fd = dial();
    say(fd, "GET /events HTTP/1.1\r\n" H "\r\n");
    await(&w->asked, 1);
    close(fd);
    await(&w->closed, 1);
}

static void test_http_slow_stream_client_is_dropped(void **state)
{
    int fd = dial();
    say(fd, "GET /events HTTP/1.1\r\n" H "\r\n");
    await(&w->asked, 1);
    for (int i = 0; i < 3000 && !w->dropped; i++) { /* reads nothing; megabytes fit into the kernel's buffers first */
        pst_loop_post(w->loop, flood, NULL);
        pst_sleep_ms(20);
    }
    assert_true(w->dropped);
    char *got = hear(fd, NET_MS); /* now it reads: the last words are there */
    assert_non_null(strstr(got, ": dropped: this client reads too slowly"));
    await(&w->closed, 1);
    free(got);
    close(fd);
}

static void drained(void *arg)
{
    *(atomic_int *)arg = 1;
}

static void begin_drain(void *arg)
{
    pst_http_drain(w->http, drained, arg);
}

static void test_http_drain_lets_requests_end(void **state)
{
    atomic_int done = 0;
    int idle = dial(), busy = dial(), stream = dial();
    say(busy, "GET /late HTTP/1.1\r\n" H "\r\n");
    say(stream, "GET /events HTTP/1.1\r\n" H "\r\n");
    await(&w->asked, 2);
    pst_loop_post(w->loop, begin_drain, &done);
    char *got = hear(busy, NET_MS), *last = hear(stream, NET_MS);
    assert_non_null(strstr(got, "late"));
    assert_non_null(strstr(got, "Connection: close"));
    assert_non_null(strstr(last, ": the server is shutting down"));
    assert_true(is_closed(idle, NET_MS));
    close(busy);
    close(stream);
    close(idle);
    await(&done, 1);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)w->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), -1);
    close(fd);
    free(got);
    free(last);
}

static void test_http_taken_port_says_so(void **state)
{
    pst_err err = {0};
    pst_http *second = NULL;
    assert_int_equal(pst_http_new(w->loop, &(pst_http_conf){.port = w->port}, &second, &err), PST_EEXIST);
    assert_non_null(strstr(err.text, "taken"));
    memset(&err, 0, sizeof err);
    assert_int_equal(pst_http_new(w->loop, &(pst_http_conf){.listen = "nonsense"}, &second, &err), PST_EINVAL);
    memset(&err, 0, sizeof err);
    assert_int_equal(pst_http_new(w->loop, &(pst_http_conf){.port = 70000}, &second, &err), PST_EINVAL);
}

static int unwell(void *arg, pst_buf *why)
{
    pst_buf_adds(why, "no broker");
    return *(int *)arg;
}

static void test_http_where_to_listen_is_read(void **state)
{
    char host[PST_HTTP_HOST_MAX];
    int port = -1;
    pst_err err = {0};
    assert_int_equal(pst_http_listen_parse("listen", "9110", host, &port, &err), 0);
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(port, 9110);
    assert_int_equal(pst_http_listen_parse("listen", "[::1]:0", host, &port, &err), 0);
    assert_string_equal(host, "[::1]");
    assert_int_equal(port, 0);
    assert_int_equal(pst_http_listen_parse("listen", "*:80", host, &port, &err), 0);
    assert_string_equal(host, "*");
    const char *const wrong[] = {"", ":", ":80", "a:", "65536", "-1", "+1", " 1", "80x", "1.2.3.4:99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (pst_err){0};
        assert_int_equal(pst_http_listen_parse("metrics-listen", wrong[i], host, &port, &err), PST_EINVAL);
        assert_non_null(strstr(err.text, "--metrics-listen"));
    }
}

static void test_http_thread_serves_metrics(void **state)
{
    pst_metrics *set = pst_metrics_new();
    pst_metric_add(pst_metric_counter(set, "penstock_things_total", "Things.", NULL), 3);
    pst_http_thread *t = NULL;
    pst_err err = {0};
    int sick = 0, port = w->port;
    assert_int_equal(pst_http_thread_metrics(&plain, set, unwell, &sick, &t, &err), 0);
    w->port = pst_http_thread_port(t);
    expect("GET /metrics HTTP/1.1\r\n" H "\r\n", 200, "penstock_things_total 3");
    expect("GET /health HTTP/1.1\r\n" H "\r\n", 200, "\"ok\"");
    sick = -1;
    expect("GET /health HTTP/1.1\r\n" H "\r\n", 503, "no broker");
    pst_http_thread_stop(t);
    w->port = port;
    pst_metrics_free(set);
}

static atomic_bool rounds_over;

static void fill(void *arg, json_t *to)
{
    json_object_set_new(to, "waiting", json_integer(*(int *)arg));
}

static void *come_round(void *arg)
{
    for (int i = 0; i < 2000 && !atomic_load(&rounds_over); i++) {
        pst_dump_serve(arg);
        pst_sleep_ms(2);
    }
    return NULL;
}

/* /state of a service whose own thread polls Kafka: there for who shows the token, and stuck when that thread is. */
static void test_http_thread_tells_state_to_who_may(void **state)
{
    pst_metrics *set = pst_metrics_new();
    pst_http_thread *t = NULL;
    pst_dump *d = NULL;
    pst_err err = {0};
    pthread_t owner;
    int waiting = 7, port = w->port;
    char dir[] = "/tmp/pst-http-XXXXXX", *token = NULL, *asks = NULL;
    assert_non_null(mkdtemp(dir));
    char *path = pst_token_path(dir);
    assert_int_equal(pst_http_thread_metrics(&plain, set, NULL, NULL, &t, &err), 0);
    w->port = pst_http_thread_port(t);
    expect("GET /state HTTP/1.1\r\n" H "\r\n", 404, "no-state");
    assert_int_equal(pst_dump_new("test", fill, &waiting, &d, &err), 0);
    pst_http_thread_set_dump(t, d, path);
    expect("GET /state HTTP/1.1\r\n" H "Authorization: Bearer x\r\n\r\n", 403, "no-token");
    assert_int_equal(pst_token_make(dir, "a-token-for-this-test-alone-0123456789", &token, &err), 0);
    expect("GET /state HTTP/1.1\r\n" H "\r\n", 401, "token-wanted");
    expect("GET /state HTTP/1.1\r\n" H "Authorization: Bearer of-that-test\r\n\r\n", 401, "token-wanted");
    asks = pst_sprintf("GET /state HTTP/1.1\r\n" H "Authorization: Bearer %s\r\n\r\n", token);
    expect(asks, 503, "did not come round"); /* nobody serves d yet */
    assert_int_equal(pthread_create(&owner, NULL, come_round, d), 0);
    expect(asks, 200, "\"waiting\":7");
    atomic_store(&rounds_over, true);
    pthread_join(owner, NULL);
    pst_http_thread_stop(t);
    pst_dump_free(d);
    w->port = port;
    pst_metrics_free(set);
    unlink(path);
    rmdir(dir);
    free(path);
    free(token);
    free(asks);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_http_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {T(routes_and_views),
                                       T(keeps_alive_and_pipelines),
                                       T(hostile_requests),
                                       T(no_smuggling),
                                       T(huge_headers_cost_nothing),
                                       T(slow_head_has_a_deadline),
                                       T(slow_body_has_a_deadline),
                                       T(idle_connection_is_closed),
                                       T(connections_are_limited),
                                       T(bodies_together_are_limited),
                                       T(continue),
                                       T(large_reply_and_half_close),
                                       T(client_leaves_before_the_reply),
                                       T(events_stream),
                                       T(stream_of_a_client_that_left),
                                       T(slow_stream_client_is_dropped),
                                       T(drain_lets_requests_end),
                                       T(taken_port_says_so),
                                       T(thread_serves_metrics),
                                       T(where_to_listen_is_read),
                                       T(thread_tells_state_to_who_may)};
    return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
