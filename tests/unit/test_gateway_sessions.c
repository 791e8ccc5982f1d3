/* test_gateway_sessions.c - what holds after somebody was let in: streams of every kind end with his session, his logout or his line, those of others go on; how many
 * requests a second he may send; and that the server tells of every answer, which the audit rests on. */
#include "producers/gateway/caller.h"
#include "producers/gateway/gateway.h"
#include "producers/gateway/login.h"
#include "producers/gateway/rate.h"
#include "producers/gateway/routes.h"
#include "producers/gateway/session.h"
#include "producers/gateway/users.h"
#include "tests/unit/test.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/password.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN "a-token-of-this-test"

static char dir[] = "/tmp/penstock-sessions-XXXXXX", path[64], answer[8192];
static char *hash; /* of "right" */
static gw_state g;
static int told[600]; /* answers by status */
static char told_last[200];

static int begin(void **state)
{
    pst_err err = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/users", dir);
    assert_int_equal(pst_password_hash("right", &hash, &err), 0);
    return 0;
}

static int finish(void **state)
{
    free(hash);
    return pst_fs_remove_tree(dir, NULL);
}

/* Lines, in which HASH stands for that of "right". */
static void put(const char *lines)
{
    pst_buf b = {0};
    for (const char *p = lines; *p;) {
        const char *at = strstr(p, "HASH");
        pst_buf_add(&b, p, at ? (size_t)(at - p) : strlen(p));
        if (at)
            pst_buf_adds(&b, hash);
        p = at ? at + 4 : p + strlen(p);
    }
    char *text = pst_buf_steal(&b);
    unlink(path);
    assert_int_equal(pst_fs_write_atomic(path, text, strlen(text), 0600, NULL), 0);
    free(text);
}

/* ---- the server: streams of three kinds ------------------------------------------------------------------------------------ */

static void gone(void *arg)
{
}

static void sse(void *arg, pst_http_req *req)
{
    pst_http_stream *st = pst_http_sse_open(req, gone, NULL);
    if (st)
        pst_http_sse_send(st, "1", "open", "sse", 3);
}

static void chunks(void *arg, pst_http_req *req)
{
    pst_http_stream *st = pst_http_stream_open(req, 200, "text/plain", gone, NULL);
    if (st)
        pst_http_stream_write(st, "open", 4);
}

static void ws(void *arg, pst_http_req *req)
{
    pst_http_stream *st = pst_http_ws_open(req, "ws", gone, NULL);
    if (st)
        pst_http_stream_write(st, "open", 4);
}

static void hello(void *arg, pst_http_req *req)
{
    gw_caller_note(req, "r-1", "training-1");
    pst_http_reply_text(req, 200, "%s", gw_caller_of(req)->via);
}

static const pst_http_route routes[] = {{"GET", "/sse", sse, 0, GW_ALL, NULL},
                                        {"GET", "/chunks", chunks, 0, GW_ALL, NULL},
                                        {"GET", "/ws", ws, 0, GW_ALL, NULL},
                                        {"GET", "/hello", hello, 0, GW_ALL, NULL}};

static void on_reply(void *arg, const pst_http_req *req, int status)
{
    const gw_caller *c = gw_caller_of(req);
    told[status]++;
    snprintf(told_last, sizeof told_last, "%s %s %s %s", c->name, c->via ? c->via : "-", c->request_id ? c->request_id : "-",
             c->training_id ? c->training_id : "-");
}

static int serve(void **state)
{
    pst_err err = {0};
    gw_users *u = NULL;
    gw_bearer *b = NULL;
    put("ann:HASH:user\nbob:HASH:user\nolga:HASH:operator\n");
    memset(&g, 0, sizeof g);
    memset(told, 0, sizeof told);
    assert_int_equal(pst_loop_new(&g.loop, &err), 0);
    assert_int_equal(pst_http_new(g.loop, &(pst_http_conf){.name = "test", .heartbeat_ms = 60000}, &g.http, &err), 0);
    g.who = gw_who_new(TOKEN);
    assert_int_equal(gw_users_open(path, &u, &err), 0);
    assert_int_equal(gw_bearer_new(&(gw_bearer_conf){.roles = GW_ROLE_USER}, &b, &err), 0);
    assert_int_equal(gw_who_use_users(g.who, g.loop, u, b, &err), 0);
    gw_who_guard(g.who, g.http);
    pst_http_set_replied(g.http, on_reply, NULL);
    for (size_t i = 0; i < gw_login_noun.n; i++)
        pst_http_add_routes(g.http, &gw_login_noun.routes[i].http, 1, &g);
    pst_http_add_routes(g.http, routes, sizeof routes / sizeof *routes, &g);
    return 0;
}

static int close_all(void **state)
{
    gw_who_stop(g.who);
    gw_who_free(g.who);
    pst_http_free(g.http);
    pst_loop_free(g.loop);
    return 0;
}

/* ---- clients --------------------------------------------------------------------------------------------------------------- */

static int dial(const char *method, const char *at, const char *more)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)pst_http_port(g.http)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char *text = pst_sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, at, more);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    free(text);
    return fd;
}

/* Until the word came (true), or the other side closed. NULL: until it closes. */
static bool hear(int fd, const char *word)
{
    size_t len = 0;
    answer[0] = 0;
    for (int64_t end = pst_mono_us() + 60000000; pst_mono_us() < end;) {
        pst_loop_run_for(g.loop, 2);
        ssize_t got = read(fd, answer + len, sizeof answer - 1 - len);
        len += got > 0 ? (size_t)got : 0;
        answer[len] = 0;
        if (word && strstr(answer, word))
            return true;
        if (got == 0)
            return !word;
    }
    return false;
}

static int ask(const char *method, const char *at, const char *more)
{
    char *all = pst_sprintf("Connection: close\r\n%s%s", more, strstr(more, "\r\n\r\n") ? "" : "\r\n");
    int fd = dial(method, at, all);
    hear(fd, NULL);
    close(fd);
    free(all);
    return strlen(answer) > 9 ? atoi(answer + 9) : 0;
}

static char *basic(const char *name)
{
    char *pair = pst_sprintf("%s:right", name), *text = pst_base64(pair, strlen(pair)),
         *line = pst_sprintf("Authorization: Basic %s\r\n", text);
    free(text);
    free(pair);
    return line;
}

static char *header_of(const char *name)
{
    const char *at = strcasestr(answer, name);
    return at ? pst_strndup(at + strlen(name) + 2, strcspn(at + strlen(name) + 2, ";\r")) : NULL;
}

/* A session: its field, and its place in room. */
static char *log_in(const char *name, char room[128])
{
    char *body = pst_sprintf("name=%s&password=right", name);
    char *more = pst_sprintf("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    assert_int_equal(ask("POST", "/login", more), 303);
    char *cookie = header_of("Set-Cookie"), *place = header_of("Location"), *line = pst_sprintf("Cookie: %s\r\n", cookie);
    snprintf(room, 128, "%.100s", place);
    free(place);
    free(cookie);
    free(more);
    free(body);
    return line;
}

static const char ws_fields[] =
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/* Opens one that says that it is open. who: a field. */
static int open_one(const char *place, const char *what, const char *who)
{
    char *at = pst_sprintf("%s%s", place, what), *more = pst_sprintf("%s%s\r\n", who, strcmp(what, "ws") ? "" : ws_fields);
    int fd = dial("GET", at, more);
    assert_true(hear(fd, !strcmp(what, "sse") ? "data: sse" : "open"));
    free(more);
    free(at);
    return fd;
}

/* It is open still: what the loop does in two of its looks does not end it. */
static bool goes_on(int fd)
{
    char c;
    for (int i = 0; i < 220; i++)
        pst_loop_run_for(g.loop, 10);
    return read(fd, &c, 1) < 0 && errno == EAGAIN;
}

/* ---- cases ----------------------------------------------------------------------------------------------------------------- */

static void test_streams_end_with_a_logout(void **state)
{
    char anns[128], bobs[128], at[160];
    char *ann = log_in("ann", anns), *second = log_in("ann", anns), *bob = log_in("bob", bobs), *word = basic("ann");
    int a = open_one(anns, "sse", ann), b = open_one(anns, "chunks", ann), c = open_one(anns, "ws", ann), d = open_one(anns, "sse", second);
    int by_word = open_one("/", "sse", word), his = open_one(bobs, "ws", bob);
    snprintf(at, sizeof at, "%slogout", anns);
    assert_int_equal(ask("POST", at, ann), 204);
    assert_true(hear(a, "logged out"));
    assert_true(hear(b, NULL) && hear(c, NULL) && hear(d, NULL));
    assert_true(goes_on(by_word));
    assert_true(goes_on(his));
    snprintf(at, sizeof at, "%shello", anns);
    assert_int_equal(ask("GET", at, ann), 401); /* a cookie that was kept opens nothing more */
    assert_int_equal(ask("GET", at, second), 401);
    snprintf(at, sizeof at, "%shello", bobs);
    assert_int_equal(ask("GET", at, bob), 200);
    char *again = log_in("ann", anns);
    snprintf(at, sizeof at, "%shello", anns);
    assert_int_equal(ask("GET", at, again), 200);
    int fds[] = {a, b, c, d, by_word, his};
    for (size_t i = 0; i < 6; i++)
        close(fds[i]);
    free(again);
    free(word);
    free(bob);
    free(second);
    free(ann);
}

static void test_streams_end_when_the_session_does(void **state)
{
    gw_session_key key;
    gw_session_key_make(TOKEN, &key);
    char *place = gw_session_place(&key, "ann"), *value = gw_session_make(&key, "ann", hash, pst_now_us() / 1000000 + 2);
    char *at = pst_sprintf("/page-%s/", place), *line = pst_sprintf("Cookie: penstock_%d=%s\r\n", pst_http_port(g.http), value);
    int a = open_one(at, "sse", line), b = open_one(at, "ws", line), c = open_one(at, "chunks", line);
    assert_true(hear(a, "log in again"));
    assert_true(hear(b, NULL) && hear(c, NULL));
    close(a);
    close(b);
    close(c);
    free(line);
    free(at);
    free(value);
    free(place);
}

static void test_streams_end_with_their_users_line_alone(void **state)
{
    char *ann = basic("ann"), *bob = basic("bob"), *olga = basic("olga");
    int a = open_one("/", "ws", ann), b = open_one("/", "chunks", bob), c = open_one("/", "sse", olga);
    put("ann:HASH:user\nbob:HASH:user\nolga:HASH:operator\nnew:*:user\n");
    assert_true(goes_on(a)); /* somebody came: that is nobody's end */
    assert_true(goes_on(b));
    put("ann:HASH:user,viewer\nolga:HASH:operator\n");
    assert_true(hear(a, NULL)); /* other roles */
    assert_true(hear(b, NULL)); /* none any more */
    assert_true(goes_on(c));
    put("olga:HASH:viewer\n");
    assert_true(hear(c, "log in again"));
    close(a);
    close(b);
    close(c);
    free(olga);
    free(bob);
    free(ann);
}

static void test_a_user_may_send_so_many(void **state)
{
    gw_who_limit(g.who, 2, 5);
    char *ann = basic("ann"), *bob = basic("bob");
    int let_in = 0, refused = 0;
    for (int i = 0; i < 9; i++) {
        int status = ask("GET", "/hello", ann);
        let_in += status == 200;
        refused += status == 429;
        if (status == 429 && (!strstr(answer, "Retry-After: 1\r\n") || !strstr(answer, "too-many-requests")))
            fail_msg("%s", answer);
    }
    assert_int_equal(let_in + refused, 9);
    assert_true(let_in >= 5 && refused >= 1);
    assert_int_equal(ask("GET", "/hello", bob), 200);
    gw_who_limit(g.who, 0, 1);
    for (int i = 0; i < 20; i++)
        assert_int_equal(ask("GET", "/hello", ann), 200);
    free(bob);
    free(ann);
}

static void test_every_answer_is_told_with_who_asked(void **state)
{
    char *ann = basic("ann"), place[128];
    assert_int_equal(ask("GET", "/hello", ann), 200);
    assert_string_equal(told_last, "ann password r-1 training-1");
    assert_int_equal(ask("GET", "/hello", ""), 401);
    assert_string_equal(told_last, " - - -");
    assert_int_equal(ask("GET", "/nothing", ann), 404);
    char *wrong = pst_sprintf("Authorization: Basic YW5uOndyb25n\r\n"); /* ann:wrong */
    assert_int_equal(ask("GET", "/hello", wrong), 401);
    assert_string_equal(told_last, "ann password - -");
    char *session = log_in("ann", place);
    assert_string_equal(told_last, "ann password - -");
    int fd = open_one(place, "ws", session);
    assert_string_equal(told_last, "ann session - -");
    assert_int_equal(told[101], 1);
    assert_int_equal(told[401], 2);
    assert_int_equal(ask("POST", "/login", "Origin: http://evil.example\r\nContent-Length: 0\r\n\r\n"), 403);
    assert_string_equal(told_last, " - - -");
    close(fd);
    free(session);
    free(wrong);
    free(ann);
}

/* A browser that is challenged for a password asks for it in a window of its own, also where a script of the page asked: the page would learn nothing. */
static void test_a_page_is_not_challenged_for_a_password(void **state)
{
    assert_int_equal(ask("GET", "/hello", ""), 401);
    assert_non_null(strstr(answer, "WWW-Authenticate: Basic"));
    assert_int_equal(ask("GET", "/hello", "Sec-Fetch-Site: same-origin\r\n"), 401);
    assert_null(strstr(answer, "Basic"));
    assert_int_equal(ask("GET", "/page-0123456789abcdef0123456789abcdef/hello", ""), 401);
    assert_null(strstr(answer, "Basic"));
    assert_non_null(strstr(answer, "WWW-Authenticate: Bearer"));
}

/* ---- the pace, by itself ---- */

static void test_rate_is_a_pace_with_a_burst(void **state)
{
    gw_rate *r = gw_rate_new(10, 3);
    int64_t now = 5000000;
    for (int i = 0; i < 3; i++)
        assert_int_equal(gw_rate_take(r, "ann", now), 0);
    assert_int_equal(gw_rate_take(r, "ann", now), 1);
    assert_int_equal(gw_rate_take(r, "bob", now), 0);
    assert_int_equal(gw_rate_take(r, "ann", now + 99999), 1);
    assert_int_equal(gw_rate_take(r, "ann", now + 100000), 0); /* a tenth of a second is one more */
    assert_int_equal(gw_rate_take(r, "ann", now + 100000), 1);
    int let_in = 0;
    for (int ms = 1000; ms < 11000; ms++)
        let_in += !gw_rate_take(r, "ann", now + ms * 1000);
    assert_true(let_in >= 100 && let_in <= 103);
    gw_rate_free(r);
    assert_int_equal(gw_rate_take(NULL, "ann", 0), 0);
    r = gw_rate_new(1, 1);
    assert_int_equal(gw_rate_take(r, "ann", 1), 0);
    assert_int_equal(gw_rate_take(r, "ann", 1), 1);
    gw_rate_free(r);
}

/* Names without end neither take memory nor free those who ask at this moment. */
static void test_rate_of_many_names(void **state)
{
    gw_rate *r = gw_rate_new(1, 2);
    char name[GW_NAME_MAX + 1];
    int refused = 0;
    for (int i = 0; i < 100000; i++) {
        snprintf(name, sizeof name, "user-%d", i);
        assert_int_equal(gw_rate_take(r, name, 1000000 + i), 0);
        refused += gw_rate_take(r, "ann", 1000000 + i) > 0;
    }
    assert_true(refused > 0);
    memset(name, 'x', GW_NAME_MAX);
    name[GW_NAME_MAX] = 0;
    assert_int_equal(gw_rate_take(r, name, 2000000), 0);
    gw_rate_free(r);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, serve, close_all)
    const struct CMUnitTest tests[] = {
        T(streams_end_with_a_logout),
        T(streams_end_when_the_session_does),
        T(streams_end_with_their_users_line_alone),
        T(a_user_may_send_so_many),
        T(every_answer_is_told_with_who_asked),
        T(a_page_is_not_challenged_for_a_password),
        cmocka_unit_test(test_rate_is_a_pace_with_a_burst),
        cmocka_unit_test(test_rate_of_many_names),
    };
    return cmocka_run_group_tests(tests, begin, finish);
}
