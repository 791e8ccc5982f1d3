/* test_http_guard.c - tables of what is let in and what is not: Host, Origin and Sec-Fetch-Site, types of bodies. */
#include "common/loop/http_guard.h"
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_http_guard_hosts(void **state)
{
    static const char *const good[] = {"localhost",       "LocalHost:8080", "127.0.0.1",  "127.0.0.1:1",          "127.8.9.10:65535",
                                       "127.0.0.1:",      "[::1]",          "[::1]:8080", "[0:0:0:0:0:0:0:1]:80", "box.example",
                                       "Box.Example:443", "10.1.2.3:8080"};
    static const char *const bad[] = {"127.evil.example",
                                      "127.0.0.1.nip.io",
                                      "evil.example:8080",
                                      "localhost.evil.example",
                                      "evil.localhost",
                                      "localhost.",
                                      "127.0.0.1.",
                                      "0x7f.1",
                                      "0x7f.0.0.1",
                                      "2130706433",
                                      "127.1",
                                      "127.0.0.01",
                                      "0177.0.0.1",
                                      "0.0.0.0",
                                      "[::ffff:127.0.0.1]",
                                      "[::]",
                                      "[127.0.0.1]",
                                      "[10.1.2.3]",
                                      "[box.example]",
                                      "::1",
                                      "localhost@evil.example",
                                      "evil.example@localhost",
                                      "user:pw@127.0.0.1",
                                      "127.0.0.1:80:80",
                                      "",
                                      "127.0.0.1 ",
                                      "[::1",
                                      "localhost:123456",
                                      "10.1.2.4",
                                      "128.0.0.1",
                                      "box.example.evil.example",
                                      "xbox.example"};
    static const char *const names[] = {"box.example", NULL};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!http_guard_host(good[i], names, "10.1.2.3"))
            fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (http_guard_host(bad[i], names, "10.1.2.3"))
            fail_msg("let in: %s", bad[i]);
    assert_false(http_guard_host("10.1.2.3", names, NULL));
    assert_false(http_guard_host("box.example", NULL, NULL));
}

/* fields: name and value by turns, NULL at the end. */
static bool check(const char *method, const char *const *fields, const char *const *types)
{
    char text[2000];
    int n = snprintf(text, sizeof text, "%s / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n", method);
    for (; *fields; fields += 2)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s: %s\r\n", fields[0], fields[1]);
    n += snprintf(text + n, sizeof text - (size_t)n, "\r\n");
    http_head h;
    const char *why = NULL;
    assert_int_equal(http_head_parse(text, (size_t)n, &h, &why), 0);
    return types ? http_guard_type(&h, types) : http_guard_origin(&h);
}

static void test_http_guard_origins(void **state)
{
    static const struct {
        bool ok;
        const char *method, *fields[7];
    } rows[] = {{true, "POST", {NULL}},
                {true, "POST", {"Origin", "http://127.0.0.1:8080", NULL}},
                {true, "DELETE", {"Origin", "https://127.0.0.1:8080", "Sec-Fetch-Site", "same-origin", NULL}},
                {true, "PUT", {"Sec-Fetch-Site", "none", NULL}},
                {true, "GET", {"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site", NULL}},
                {false, "POST", {"Origin", "http://evil.example", NULL}},
                {false, "POST", {"Origin", "null", NULL}},
                {false, "POST", {"Origin", "", NULL}},
                {false, "POST", {"Origin", "http://127.0.0.1", NULL}},
                {false, "POST", {"Origin", "http://127.0.0.1:8081", NULL}},
                {false, "POST", {"Origin", "http://localhost:8080", NULL}},
                {false, "POST", {"Origin", "http://127.0.0.1:8080.evil.example", NULL}},
                {false, "POST", {"Origin", "http://127.0.0.1:8080@evil.example", NULL}},
                {false, "POST", {"Origin", "file://127.0.0.1:8080", NULL}},
                {false, "POST", {"Origin", "http://127.0.0.1:8080", "Origin", "http://evil.example", NULL}},
                {false, "POST", {"Sec-Fetch-Site", "cross-site", NULL}},
                {false, "DELETE", {"Sec-Fetch-Site", "same-site", NULL}},
                {false, "PATCH", {"Sec-Fetch-Site", "", NULL}},
                {false, "POST", {"Origin", "http://127.0.0.1:8080", "Sec-Fetch-Site", "cross-site", NULL}},
                {false, "BREW", {"Origin", "http://evil.example", NULL}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (check(rows[i].method, rows[i].fields, NULL) != rows[i].ok)
            fail_msg("row %zu: %s %s %s", i, rows[i].method, rows[i].fields[0], rows[i].fields[1]);
}

static void test_http_guard_types(void **state)
{
    static const char *const json[] = {"application/json", "application/yaml", NULL};
    static const struct {
        bool ok;
        const char *method, *fields[7];
    } rows[] = {{true, "POST", {NULL}},
                {true, "POST", {"Content-Length", "0", NULL}},
                {true, "POST", {"Content-Length", "2", "Content-Type", "application/json", NULL}},
                {true, "POST", {"Content-Length", "2", "Content-Type", "Application/JSON; charset=utf-8", NULL}},
                {true, "GET", {"Content-Type", "text/plain", NULL}},
                {false, "POST", {"Content-Length", "2", NULL}},
                {false, "POST", {"Transfer-Encoding", "chunked", NULL}},
                {false, "POST", {"Content-Type", "text/plain", NULL}},
                {false, "POST", {"Content-Length", "0", "Content-Type", "application/x-www-form-urlencoded", NULL}},
                {false, "POST", {"Content-Length", "2", "Content-Type", "multipart/form-data; boundary=x", NULL}},
                {false, "POST", {"Content-Length", "2", "Content-Type", "text/plain; application/json", NULL}},
                {false, "POST", {"Content-Length", "2", "Content-Type", "application/jsonx", NULL}},
                {false, "POST", {"Content-Length", "2", "Content-Type", "", NULL}},
                {false, "POST", {"Content-Length", "2", "Content-Type", "application/json", "Content-Type", "text/plain", NULL}},
                {false, "DELETE", {"Content-Length", "2", "Content-Type", "text/plain", NULL}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (check(rows[i].method, rows[i].fields, json) != rows[i].ok)
            fail_msg("row %zu: %s %s", i, rows[i].method, rows[i].fields[0] ? rows[i].fields[1] : "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_http_guard_hosts), cmocka_unit_test(test_http_guard_origins),
                                       cmocka_unit_test(test_http_guard_types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
