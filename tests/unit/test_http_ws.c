/* test_http_ws.c - websockets through raw sockets: the handshake and its refusals, frames, pings, how each side ends it, slow and silent clients. Beside
 * them what came with them: routes that take multipart alone, and problems in another form. */
#include "common/loop/http.h"
#include "tests/unit/test.h"

#include "common/base/clock.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static pst_loop *loop;
static pst_http *http;
static pthread_t thread;
static pst_http_stream *stream;
static atomic_int opened, closed;

static void on_close(void *arg)
{
    stream = NULL;
    closed++;
}

static void follow(void *arg, pst_http_req *r)
{
    if (!pst_http_ws_wanted(r)) {
        pst_http_reply_text(r, 200, "plain");
        return;
    }
    stream = pst_http_ws_open(r, "ws", on_close, NULL);
    if (!stream)
        return;
    pst_http_stream_write(stream, "first\n", 6);
    opened++;
}

static void take(void *arg, pst_http_req *r)
{
    pst_http_reply_text(r, 200, "%zu bytes", pst_http_body(r).len);
}

static bool problem(void *arg, pst_http_req *r, int status, const char *detail)
{
    const char *path = pst_http_path(r);
    if (!path || strcmp(path, "/form"))
        return false;
    pst_http_reply_text(r, status, "own form of %d", status);
    return true;
}

static const pst_http_route routes[] = {
    {"GET", "/follow", follow, 0, 0, NULL}, {"POST", "/form", take, 100, PST_HTTP_MULTIPART, NULL}, {"POST", "/json", take, 100, 0, NULL}};
static const char *const types[] = {"application/json", NULL};

static void *run(void *arg)
{
    pst_loop_run(loop);
    return NULL;
}

static int set_up(void **state)
{
    pst_err err = {0};
    opened = closed = 0;
    assert_int_equal(pst_loop_new(&loop, &err), 0);
    assert_int_equal(
        pst_http_new(loop, &(pst_http_conf){.types = types, .heartbeat_ms = 100, .stream_backlog_max = 100000, .write_timeout_ms = 20000},
                     &http, &err),
        0);
    pst_http_add_routes(http, routes, 3, NULL);
    pst_http_set_problem(http, problem, NULL);
    return pthread_create(&thread, NULL, run, NULL);
}

static int tear_down(void **state)
{
    pst_loop_stop(loop);
    pthread_join(thread, NULL);
    pst_http_free(http);
    pst_loop_free(loop);
    return 0;
}

static int dial(const char *text)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)pst_http_port(http)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    return fd;
}

/* Reads until the text stands in what came; everything so far. Fails when it does not come. */
static void await_bytes(int fd, pst_buf *got, const char *text, size_t len)
{
    char piece[4096];
    while (!memmem(got->data ? got->data : "", got->len, text, len)) {
        struct pollfd p = {fd, POLLIN, 0};
        assert_int_equal(poll(&p, 1, 60000), 1);
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n <= 0)
            fail_msg("ended before what was awaited: %.*s", (int)got->len, got->data ? got->data : "");
        pst_buf_add(got, piece, (size_t)n);
    }
}

static void await_end(int fd)
{
    char piece[4096];
    struct pollfd p = {fd, POLLIN, 0};
    ssize_t n = 1;
    while (n > 0) {
        assert_int_equal(poll(&p, 1, 60000), 1);
        n = recv(fd, piece, sizeof piece, 0);
    }
}

static void await(atomic_int *what, int n)
{
    for (int i = 0; i < 60000 && *what < n; i++)
        pst_sleep_ms(1);
    assert_int_equal(*what, n);
}

#define HEAD  "GET /follow HTTP/1.1\r\nHost: localhost\r\n"
#define SHAKE "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define OPEN  HEAD SHAKE "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat, ws\r\nOrigin: http://elsewhere.example/\r\n\r\n"
#define FIRST  \
    "\x81\x06" \
    "first\n"
#define SAY(fd, bytes)     assert_int_equal(send(fd, bytes, sizeof bytes - 1, MSG_NOSIGNAL), sizeof bytes - 1)
#define HEAR(fd, b, bytes) await_bytes(fd, b, bytes, sizeof bytes - 1)

static void refused(const char *request, const char *status, const char *part)
{
    pst_buf b = {0};
    int fd = dial(request);
    await_bytes(fd, &b, status, strlen(status));
    await_bytes(fd, &b, part, strlen(part));
    close(fd);
    pst_buf_done(&b);
}

static void test_http_ws_opens_echoes_its_protocol_and_answers_pings(void **state)
{
    pst_buf b = {0};
    int fd = dial(OPEN);
    HEAR(fd, &b, FIRST);
    for (const char *const *p = (const char *const[]){"HTTP/1.1 101 ", "\r\nUpgrade: websocket\r\n", "\r\nConnection: Upgrade\r\n",
                                                      "\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
                                                      "\r\nSec-WebSocket-Protocol: ws\r\n", NULL};
         *p; p++)
        assert_non_null(memmem(b.data, b.len, *p, strlen(*p)));
    assert_null(memmem(b.data, b.len, "Transfer-Encoding", 17));
    assert_null(memmem(b.data, b.len, "Connection: close", 17));
    SAY(fd, "\x89\x82\0\0\0\0hi");
    HEAR(fd, &b, "\x8a\x02hi");
    SAY(fd, "\x88\x82\0\0\0\0\x03\xe8"); /* the client closes: echoed, then the connection ends */
    HEAR(fd, &b, "\x88\x02\x03\xe8");
    await_end(fd);
    await(&closed, 1);
    close(fd);
    pst_buf_done(&b);
}

static void test_http_ws_handshakes_that_are_none_are_refused(void **state)
{
    refused(HEAD "\r\n", "HTTP/1.1 200", "plain");
    refused(HEAD "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n\r\n",
            "HTTP/1.1 400", "16 bytes");
    refused(HEAD SHAKE "Sec-WebSocket-Version: 8\r\n\r\n", "HTTP/1.1 426", "13");
    refused(HEAD SHAKE "\r\n", "HTTP/1.1 426", "13");
    refused(HEAD "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", "HTTP/1.1 400",
            "Upgrade");
    refused(HEAD "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", "HTTP/1.1 400",
            "Connection");
    assert_int_equal(opened, 0);
}

static void test_http_ws_bad_frames_end_it_with_their_code(void **state)
{
    pst_buf b = {0};
    int fd = dial(OPEN);
    HEAR(fd, &b, FIRST);
    SAY(fd, "\x81\x02hi"); /* without a mask */
    HEAR(fd, &b, "\x88\x02\x03\xea");
    await_end(fd);
    await(&closed, 1);
    close(fd);
    pst_buf_done(&b);
}

static void end_it(void *arg)
{
    if (arg)
        pst_http_stream_fail(stream);
    else
        pst_http_stream_close(stream);
    stream = NULL;
}

static void test_http_ws_ends_with_1000_or_1011(void **state)
{
    for (int failing = 0; failing < 2; failing++) {
        pst_buf b = {0};
        int fd = dial(OPEN);
        HEAR(fd, &b, FIRST);
        await(&opened, failing + 1);
        pst_loop_post(loop, end_it, failing ? &opened : NULL);
        await_bytes(fd, &b, failing ? "\x88\x02\x03\xf3" : "\x88\x02\x03\xe8", 4);
        await_end(fd);
        close(fd);
        pst_buf_done(&b);
    }
    assert_int_equal(closed, 0);
}

static void flood(void *arg)
{
    char line[1000];
    memset(line, 'f', sizeof line);
    while (stream && pst_http_stream_write(stream, line, sizeof line) == 0)
        ;
}

/* What a slow client has not taken is bounded: it is dropped, and on_close says so. */
static void test_http_ws_slow_and_silent_clients_are_dropped(void **state)
{
    pst_buf b = {0};
    int fd = dial(OPEN);
    HEAR(fd, &b, FIRST);
    await(&opened, 1);
    for (int i = 0; i < 200 && !closed; i++) { /* until the sockets' buffers are full, too */
        pst_loop_post(loop, flood, NULL);
        pst_sleep_ms(50);
    }
    await(&closed, 1);
    close(fd);
    fd = dial(OPEN); /* reads everything and answers no ping */
    await_end(fd);
    await(&closed, 2);
    close(fd);
    pst_buf_done(&b);
}

static void test_http_ws_client_goes_away_without_a_word(void **state)
{
    pst_buf b = {0};
    int fd = dial(OPEN);
    HEAR(fd, &b, FIRST);
    close(fd);
    await(&closed, 1);
    pst_buf_done(&b);
}

static void test_http_multipart_is_for_routes_that_say_so(void **state)
{
#define BODY(type) "HTTP/1.1\r\nHost: localhost\r\nContent-Type: " type "\r\nContent-Length: 2\r\n\r\n{}"
    refused("POST /form " BODY("multipart/form-data; boundary=x"), "HTTP/1.1 200", "2 bytes");
    refused("POST /form " BODY("application/json"), "HTTP/1.1 415", "own form of 415");
    refused("POST /form HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 200\r\n\r\n",
            "HTTP/1.1 413", "own form of 413");
    refused("POST /json " BODY("multipart/form-data; boundary=x"), "HTTP/1.1 415", "application/problem+json");
    refused("POST /json " BODY("application/json"), "HTTP/1.1 200", "2 bytes");
    refused("GARBAGE\r\n\r\n", "HTTP/1.1 400", "application/problem+json");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_http_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(ws_opens_echoes_its_protocol_and_answers_pings),
        T(ws_handshakes_that_are_none_are_refused),
        T(ws_bad_frames_end_it_with_their_code),
        T(ws_ends_with_1000_or_1011),
        T(ws_slow_and_silent_clients_are_dropped),
        T(ws_client_goes_away_without_a_word),
        T(multipart_is_for_routes_that_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
