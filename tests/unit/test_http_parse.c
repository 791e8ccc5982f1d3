/* test_http_parse.c - request heads, paths and chunks by vectors, each also fed one byte at a time. */
#include "common/loop/http_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Status of a head: 0 = good, -1 = incomplete. step = bytes that arrive at once. */
static int weigh(const char *text, size_t len, size_t step, http_head *head, char **ret_copy)
{
    size_t scanned = 0;
    const char *why = NULL;
    for (size_t have = step < len ? step : len;; have = have + step < len ? have + step : len) {
        long n = http_head_find(text, have, 16384, &scanned, &why);
        if (n < 0)
            return (int)-n;
        if (n > 0) {
            char *copy = malloc((size_t)n + 1);
            memcpy(copy, text, (size_t)n);
            copy[n] = 0;
            int rc = http_head_parse(copy, (size_t)n, head, &why);
            if (rc < 0)
                assert_non_null(why);
            if (ret_copy)
                *ret_copy = copy;
            else
                free(copy);
            return -rc;
        }
        if (have == len)
            return -1;
    }
}

#define GET "GET / HTTP/1.1\r\nHost: x\r\n"

static void test_http_parse_heads(void **state)
{
    static const struct {
        const char *text;
        int status;
    } rows[] = {
        {GET "\r\n", 0},
        {"GET / HTTP/1.0\r\n\r\n", 0},
        {GET "Content-Length: 5\r\n\r\n", 0},
        {GET "Transfer-Encoding: Chunked\r\n\r\n", 0},
        {GET "X:\r\n\r\n", 0},
        {GET "X: caf\xc3\xa9 \t\r\n\r\n", 0},
        {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 0},
        {"GET / HTTP/1.1\r\n\r\n", 400}, /* no Host */
        {GET "Host: y\r\n\r\n", 400},
        {"GET / HTTP/1.1\nHost: x\n\n", 400}, /* bare LF */
        {"GET / HTTP/1.1\r\nHost: x\n\r\n", 400},
        {"GET / HTTP/1.1\rX\r\nHost: x\r\n\r\n", 400}, /* bare CR */
        {GET " folded: x\r\n\r\n", 400},
        {GET "\tfolded: x\r\n\r\n", 400},
        {GET "X: a\x01b\r\n\r\n", 400},
        {GET "X: a\x7f\r\n\r\n", 400},
        {GET "Bad Name: a\r\n\r\n", 400},
        {GET "Name : a\r\n\r\n", 400},
        {GET ": a\r\n\r\n", 400},
        {GET "no colon\r\n\r\n", 400},
        {GET "Transfer-Encoding : chunked\r\n\r\n", 400}, /* smuggling by a space */
        {GET "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400},
        {GET "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400},
        {GET "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {GET "Content-Length: +3\r\n\r\n", 400},
        {GET "Content-Length: -3\r\n\r\n", 400},
        {GET "Content-Length: 0x5\r\n\r\n", 400},
        {GET "Content-Length: 5, 5\r\n\r\n", 400},
        {GET "Content-Length:\r\n\r\n", 400},
        {GET "Content-Length: 99999999999999999999\r\n\r\n", 413},
        {GET "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {GET "Transfer-Encoding: identity\r\n\r\n", 501},
        {GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {GET "Expect: the-unexpected\r\n\r\n", 417},
        {"GET / HTTP/1.9\r\nHost: x\r\n\r\n", 505},
        {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
        {"GET / HTTP/1.1 \r\nHost: x\r\n\r\n", 505},
        {"GET / http/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET /\r\nHost: x\r\n\r\n", 400},
        {"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400}, /* absolute form */
        {"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"G(T / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"AVERYLONGMETHODNAMEINDEED / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400}, /* the server drops leading empty lines before */
        {GET, -1},
        {"GET / HTTP/1.1\r\nHost: x\r", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t step = 1; step < 2000; step = step == 1 ? 7 : 10000) {
            http_head h;
            int got = weigh(rows[i].text, strlen(rows[i].text), step, &h, NULL);
            if (got != rows[i].status)
                fail_msg("%s: got %d, wanted %d", rows[i].text, got, rows[i].status);
        }
    static const char nul[] = "GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n";
    http_head h;
    assert_int_equal(weigh(nul, sizeof nul - 1, 100, &h, NULL), 400);
}

static void test_http_parse_limits(void **state)
{
    char *big = malloc(40000);
    http_head h;
    memset(big, 'a', 40000);
    memcpy(big, GET "X: ", strlen(GET "X: "));
    assert_int_equal(weigh(big, 40000, 1000, &h, NULL), 431);
    size_t n = 0;
    n += (size_t)sprintf(big, GET);
    for (int i = 0; i < 64; i++)
        n += (size_t)sprintf(big + n, "A%d: x\r\n", i);
    n += (size_t)sprintf(big + n, "\r\n");
    assert_int_equal(weigh(big, n, n, &h, NULL), 431);
    memset(big, 'a', 40000);
    memcpy(big, "GET /", 5);
    memcpy(big + 8300, " HTTP/1.1\r\nHost: x\r\n\r\n", 23);
    assert_int_equal(weigh(big, 8323, 8323, &h, NULL), 414);
    free(big);
}

static void test_http_parse_head_values(void **state)
{
    http_head h;
    char *copy = NULL;
    static const char text[] =
        "POST /a?b HTTP/1.1\r\nhost: H:1\r\nCONTENT-length: 12\r\nConnection: Foo, close\r\nExpect: 100-continue\r\nX-Y: \t v w \r\n\r\n";
    assert_int_equal(weigh(text, sizeof text - 1, 3, &h, &copy), 0);
    assert_string_equal(h.method, "POST");
    assert_string_equal(h.target, "/a?b");
    assert_string_equal(h.host, "H:1");
    assert_int_equal(h.length, 12);
    assert_true(h.close);
    assert_true(h.expect_continue);
    assert_string_equal(http_head_field(&h, "x-y"), "v w");
    assert_null(http_head_field(&h, "absent"));
    free(copy);
}

static void test_http_parse_hosts(void **state)
{
    static const struct {
        const char *host, *name; /* NULL = refused */
    } rows[] = {{"localhost", "localhost"},
                {"LOCALHOST:80", "localhost"},
                {"[::1]:8080", "::1"},
                {"10.0.0.1", "10.0.0.1"},
                {"", NULL},
                {":80", NULL},
                {"a b", NULL},
                {"a/b", NULL},
                {"a@b", NULL},
                {"a:b", NULL},
                {"a:123456", NULL},
                {"[::1", NULL},
                {"[]", NULL},
                {"a,b", NULL},
                {"[::1]x", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[256];
        assert_int_equal(http_host_parse(rows[i].host, name), rows[i].name != NULL);
        if (rows[i].name)
            assert_string_equal(name, rows[i].name);
    }
}

static int path(const char *target, http_parts *p, char **room)
{
    const char *why = NULL;
    *room = malloc(strlen(target) + 2);
    return -http_path_parse(target, *room, p, &why);
}

static void test_http_parse_paths(void **state)
{
    static const struct {
        const char *target;
        int status;
        size_t segments;
    } rows[] = {
        {"/", 0, 0},          {"/a/b", 0, 2},
        {"/a/b/", 0, 2},      {"/a//b", 0, 3},
        {"/%61", 0, 1},       {"/a%2fb", 0, 1},
        {"/a%20b?x=1", 0, 1}, {"/..", 400, 0},
        {"/a/../b", 400, 0},  {"/%2e%2e/etc", 400, 0},
        {"/.%2E/x", 400, 0},  {"/./x", 400, 0},
        {"/a%00b", 400, 0},   {"/a%2f..%2fb", 400, 0},
        {"/a;b", 400, 0},     {"/a\\b", 400, 0},
        {"/a%5cb", 400, 0},   {"/%", 400, 0},
        {"/%4", 400, 0},      {"/%zz", 400, 0},
        {"/a#b", 400, 0},     {"/?%zz=1", 400, 0},
        {"/?a=%00", 400, 0},  {"/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21/22/23/24/25/26/27/28/29/30/31/32/33", 414, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        http_parts p;
        char *room;
        int got = path(rows[i].target, &p, &room);
        if (got != rows[i].status || (!got && p.n_segments != rows[i].segments))
            fail_msg("%s: got %d and %zu segments", rows[i].target, got, p.n_segments);
        free(room);
    }
    http_parts p;
    char *room;
    assert_int_equal(path("/a%2Fb/%2525?x=1+2&&y&z=%26%3D=&=v", &p, &room), 0);
    assert_string_equal(p.segments[0], "a/b");
    assert_true(p.encoded_slash[0]);
    assert_string_equal(p.segments[1], "%25"); /* decoded once */
    assert_int_equal(p.n_queries, 4);
    assert_string_equal(p.queries[0].value, "1 2");
    assert_string_equal(p.queries[1].name, "y");
    assert_string_equal(p.queries[1].value, "");
    assert_string_equal(p.queries[2].value, "&==");
    assert_string_equal(p.queries[3].name, "");
    free(room);
}

typedef struct sink {
    char data[256];
    size_t n;
} sink;

static void add(void *arg, const char *data, size_t len)
{
    sink *s = arg;
    memcpy(s->data + s->n, data, len);
    s->n += len;
}

static int chunks(const char *text, size_t step, sink *s, size_t *ret_used)
{
    http_chunks c = {0};
    bool done = false;
    const char *why = NULL;
    size_t len = strlen(text), at = 0;
    *s = (sink){0};
    while (at < len && !done) {
        size_t n = len - at < step ? len - at : step;
        long used = http_chunks_feed(&c, text + at, n, 100, add, s, &done, &why);
        if (used < 0)
            return (int)-used;
        at += (size_t)used;
        if ((size_t)used < n)
            break;
    }
    *ret_used = at;
    return done ? 0 : -1;
}

static void test_http_parse_chunks(void **state)
{
    static const struct {
        const char *text;
        int status;
        const char *body;
        size_t left; /* bytes of the next request */
    } rows[] = {{"0\r\n\r\n", 0, "", 0},
                {"5\r\nhello\r\n0\r\n\r\n", 0, "hello", 0},
                {"5;x=\"y\"\r\nhello\r\n1 \r\n!\r\n00\r\nTrailer: x\r\nY: z\r\n\r\nGET", 0, "hello!", 3},
                {"5\r\nhello", -1, NULL, 0},
                {"5\r\nhello6", 400, NULL, 0},
                {"5\r\nhello\r\nx\r\n", 400, NULL, 0},
                {"5\nhello\r\n0\r\n\r\n", 400, NULL, 0},
                {"-5\r\nhello\r\n", 400, NULL, 0},
                {"0x5\r\nhello\r\n", 400, NULL, 0},
                {"\r\n", 400, NULL, 0},
                {"ffffffffffffffff\r\n", 413, NULL, 0},
                {"65\r\n", 413, NULL, 0}, /* 101 bytes */
                {"fffffffffffffff\r\n", 413, NULL, 0},
                {"0\r\n\x01: x\r\n\r\n", 400, NULL, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t step = 1; step < 200; step = step == 1 ? 3 : 1000) {
            sink s;
            size_t used = 0;
            int got = chunks(rows[i].text, step, &s, &used);
            if (got != rows[i].status)
                fail_msg("%s (step %zu): got %d, wanted %d", rows[i].text, step, got, rows[i].status);
            if (rows[i].body) {
                assert_int_equal(s.n, strlen(rows[i].body));
                assert_memory_equal(s.data, rows[i].body, s.n);
                assert_int_equal(strlen(rows[i].text) - used, rows[i].left);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_http_parse_heads),       cmocka_unit_test(test_http_parse_limits),
                                       cmocka_unit_test(test_http_parse_head_values), cmocka_unit_test(test_http_parse_hosts),
                                       cmocka_unit_test(test_http_parse_paths),       cmocka_unit_test(test_http_parse_chunks)};
    return cmocka_run_group_tests_name("http_parse", tests, NULL, NULL);
}
