/* test_registry_client.c - the registry's client against servers that misbehave: what is tried again, what is remembered, what is refused. */
#include "common/registry/registry.h"

#include "common/base/clock.h"
#include "common/loop/http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define V1 "{\"type\":\"record\",\"name\":\"T\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"}]}"

static pst_registry *client(const char *url)
{
    pst_registry *r = NULL;
    pst_err err = {0};
    assert_int_equal(pst_registry_new(&(pst_registry_conf){.url = url, .timeout_ms = 8000}, &r, &err), 0);
    return r;
}

static atomic_int asked;

static void broken(void *arg, pst_http_req *req)
{
    const char *kind = pst_http_param(req, "kind");
    int n = ++asked;
    if (!strcmp(kind, "flaky") && n < 2)
        pst_http_reply_text(req, 503, "{\"error_code\":50004,\"message\":\"no leader\"}");
    else if (!strcmp(kind, "busy") && n < 2)
        pst_http_reply_text(req, 429, "later");
    else if (!strcmp(kind, "down"))
        pst_http_reply_text(req, 500, "<html>oops</html>");
    else if (!strcmp(kind, "page"))
        pst_http_reply_text(req, 200, "<html>hello</html>");
    else if (!strcmp(kind, "refused"))
        pst_http_reply_text(req, 403, "{}");
    else if (!strcmp(kind, "proxy"))
        pst_http_reply_text(req, 404, "<html>no such page</html>");
    else if (!strcmp(kind, "moved")) {
        pst_http_add_header(req, "Location", "/flaky/schemas/types");
        pst_http_reply_text(req, 302, "moved");
    } else if (!strcmp(kind, "odd"))
        pst_http_reply_text(req, 400, "<html>bad request</html>");
    else if (!strcmp(kind, "endless")) {
        size_t len = 9u << 20;
        char *text = malloc(len);
        memset(text, ' ', len);
        pst_http_reply(req, 200, "application/json", text, len);
        free(text);
    } else
        pst_http_reply_text(req, 200, "[\"AVRO\"]");
}

static void schemas(void *arg, pst_http_req *req)
{
    static const char *const answers[] = {"{}",
                                          "{\"schema\":7}",
                                          "{\"schema\":\"x\",\"schemaType\":\"PROTOBUF\"}",
                                          "{\"schema\":\"\\\"int\\\"\",\"references\":[{\"name\":\"n\"}]}",
                                          "[]",
                                          "{\"schema\":\"\\\"int\\\"\"}"};
    asked++;
    int id = atoi(pst_http_param(req, "id"));
    if (id >= (int)(sizeof answers / sizeof *answers))
        pst_http_reply_text(req, 404, "{\"error_code\":40403,\"message\":\"not found\"}");
    else
        pst_http_reply_text(req, 200, "%s", answers[id]);
}

static void versions(void *arg, pst_http_req *req)
{
    asked++;
    pst_http_reply_text(req, 200, "{\"id\":-7}");
}

static const pst_http_route routes[] = {{"GET", "/{kind}/schemas/types", broken, 0, 0, NULL},
                                        {"GET", "/ok/schemas/ids/{id}", schemas, 0, 0, NULL},
                                        {"GET", "/{kind}/schemas/ids/{id}", broken, 0, 0, NULL},
                                        {"POST", "/ok/subjects/{s}/versions", versions, 0, 0, NULL}};

static int start_fake(void **state)
{
    pst_err err = {0};
    asked = 0;
    return pst_http_thread_start(&(pst_http_conf){0}, routes, sizeof routes / sizeof *routes, NULL, (pst_http_thread **)state, &err);
}

static int stop_fake(void **state)
{
    pst_http_thread_stop(*state);
    return 0;
}

static pst_registry *fake_client(void **state, const char *kind)
{
    char *url = pst_sprintf("http://127.0.0.1:%d/%s/", pst_http_thread_port(*state), kind);
    pst_registry *r = client(url);
    free(url);
    return r;
}

static void test_registry_retries_what_may_pass_only(void **state)
{
    static const struct {
        const char *kind;
        int code;
        pst_err_class cls;
        int asked;
    } rows[] = {{"flaky", 0, PST_CLASS_NONE, 2},
                {"busy", 0, PST_CLASS_NONE, 2},
                {"down", PST_EUNREACH, PST_CLASS_RETRY, 2},
                {"page", PST_EPARSE, PST_CLASS_RETRY, 1},
                {"refused", PST_EAUTH, PST_CLASS_FATAL, 1},
                {"proxy", PST_EUNREACH, PST_CLASS_RETRY, 2},
                {"moved", PST_EINVAL, PST_CLASS_DATA, 1},
                {"endless", PST_EPARSE, PST_CLASS_RETRY, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_err err = {0};
        pst_registry *r = fake_client(state, rows[i].kind);
        asked = 0;
        int rc = pst_registry_ping(r, &err);
        if (rc != rows[i].code || err.cls != rows[i].cls || asked != rows[i].asked)
            fail_msg("%s: %d class %d after %d requests: %s", rows[i].kind, rc, err.cls, (int)asked, err.text);
        pst_registry_free(r);
    }
}

/* What a proxy says is no word on a schema: believed, it would cost the records that have it. */
static void test_registry_a_proxy_says_nothing_of_a_schema(void **state)
{
    static const struct {
        const char *kind;
        int code;
    } rows[] = {{"proxy", PST_EUNREACH}, {"odd", PST_EINVAL}, {"moved", PST_EINVAL}, {"refused", PST_EAUTH}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_err err = {0};
        const char *text = NULL;
        pst_registry *r = fake_client(state, rows[i].kind);
        for (int k = 0; k < 2; k++) { /* and it is asked again */
            pst_err_clear(&err);
            asked = 0;
            assert_int_equal(pst_registry_schema(r, 7, &text, &err), rows[i].code);
            assert_int_not_equal(err.cls, PST_CLASS_DATA);
            assert_int_not_equal(asked, 0);
        }
        pst_registry_free(r);
    }
}

static void test_registry_odd_answers_are_refused(void **state)
{
    static const int codes[] = {PST_EPARSE, PST_EPARSE, PST_EUNSUPPORTED, PST_EUNSUPPORTED, PST_EPARSE, 0, PST_ENOTFOUND};
    pst_registry *r = fake_client(state, "ok");
    const char *text = NULL;
    for (int i = 0; i < 7; i++) {
        pst_err err = {0};
        assert_int_equal(pst_registry_schema(r, i, &text, &err), codes[i]);
    }
    pst_err err = {0};
    int32_t id = 0;
    assert_int_equal(pst_registry_register(r, "s", V1, &id, &err), PST_EPARSE);
    pst_err_clear(&err);
    assert_int_equal(pst_registry_schema(r, -3, &text, &err), PST_ENOTFOUND);
    pst_registry_free(r);
}

static void test_registry_answers_are_remembered(void **state)
{
    pst_registry *r = fake_client(state, "ok");
    pst_err err = {0};
    const char *a = NULL, *b = NULL;
    assert_int_equal(pst_registry_schema(r, 5, &a, &err), 0);
    assert_int_equal(pst_registry_schema(r, 5, &b, &err), 0);
    assert_ptr_equal(a, b);
    assert_int_equal(asked, 1);
    for (int i = 0; i < 5; i++)
        pst_registry_schema(r, 50, &a, &err);
    assert_int_equal(asked, 2); /* "no such id", for two seconds */
    pst_sleep_ms(2100);
    pst_registry_schema(r, 50, &a, &err);
    assert_int_equal(asked, 3);
    pst_registry_free(r);
}

static void test_registry_tries_every_address(void **state)
{
    char *url = pst_sprintf("http://127.0.0.1:1, http://127.0.0.1:%d/good", pst_http_thread_port(*state));
    pst_registry *r = client(url);
    pst_err err = {0};
    assert_int_equal(pst_registry_ping(r, &err), 0);
    assert_string_equal(pst_registry_url(r), "http://127.0.0.1:1");
    pst_registry_free(r);
    free(url);
    r = client("http://127.0.0.1:1");
    assert_int_equal(pst_registry_ping(r, &err), PST_EUNREACH);
    assert_int_equal(err.cls, PST_CLASS_RETRY);
    pst_registry_free(r);
}

static void test_registry_bad_addresses(void **state)
{
    static const char *const urls[] = {"",        " ",           "localhost:8081", "ftp://x",
                                       "http://", "http://u:p@", "http://:8081",   "file:///etc/passwd"};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        pst_err err = {0};
        pst_registry *r = NULL;
        assert_int_equal(pst_registry_new(&(pst_registry_conf){.url = urls[i]}, &r, &err), PST_EINVAL);
        assert_null(r);
    }
}

int main(void)
{
#define FAKE(name) cmocka_unit_test_setup_teardown(test_registry_##name, start_fake, stop_fake)
    const struct CMUnitTest fakes[] = {FAKE(retries_what_may_pass_only), FAKE(a_proxy_says_nothing_of_a_schema),
                                       FAKE(odd_answers_are_refused),    FAKE(answers_are_remembered),
                                       FAKE(tries_every_address),        cmocka_unit_test(test_registry_bad_addresses)};
    return cmocka_run_group_tests_name("registry client", fakes, NULL, NULL);
}
