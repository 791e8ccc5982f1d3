/* test_gateway_ffdl.c - FfDL's words without a broker: a job's records in its shapes and count, its error object, preflights, and who may read logs
 * without a credential. */
#include "producers/gateway/ffdl.h"
#include "tests/unit/test.h"

#include "common/base/json.h"

#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void test_ffdl_times_are_each_records_own_and_never_ahead(void **state)
{
    static const struct {
        int64_t event_us, record_ms, n, ms;
    } rows[] = {{1000500, 1001, 1, 1000},
                {1000600, 1001, 2, 1001},
                {1000700, 1001, 3, 1002},
                {2000000, 2000, 4, 2000},
                {1500000, 2100, 5, 2001}, /* of the past: not before the one before */
                {9000000000000, 3000, 6, 3000} /* of the future: when the topic got it */,
                {0, 3100, 7, 3100},
                {-5, 0, 8, 3101}};
    gw_ffdl_count c = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gw_ffdl_count_in(&c, rows[i].event_us, rows[i].record_ms);
        assert_int_equal(c.n, rows[i].n);
        assert_int_equal(c.last_ms, rows[i].ms);
    }
}

static void test_ffdl_records_have_numbers_and_texts_where_its_client_wants_them(void **state)
{
    char id[] = "training-a", line[] = "a \"line\"", loss[] = "loss", big[] = "big", none[] = "none", ever[] = "ever", group[] = "train";
    gw_ffdl_count c = {.n = 7, .last_ms = 1234};
    pst_log_line l = {.training_id = id, .text = line};
    json_t *j = gw_ffdl_line(&l, "fia", &c);
    char *text = pst_json_text(j);
    assert_string_equal(
        text, "{\"meta\":{\"training_id\":\"training-a\",\"user_id\":\"fia\",\"time\":1234,\"rindex\":7},\"line\":\"a \\\"line\\\"\"}");
    free(text);
    json_decref(j);
    pst_dbl_pair values[] = {{loss, 0.1}, {big, 1e300}, {none, NAN}, {ever, -INFINITY}};
    pst_metric_point m = {
        .training_id = id, .group = group, .has_step = true, .step = 3, .has_epoch = true, .epoch = 0.5, .values = values, .n_values = 4};
    j = gw_ffdl_emetric(&m, "fia", &c);
    text = pst_json_text(json_object_get(j, "etimes"));
    assert_string_equal(text, "{\"iteration\":{\"type\":\"INT\",\"value\":\"3\"},\"epoch\":{\"type\":\"FLOAT\",\"value\":\"0.5\"}}");
    free(text);
    text = pst_json_text(json_object_get(j, "values"));
    assert_string_equal(text, "{\"loss\":{\"type\":\"FLOAT\",\"value\":\"0.1\"},\"big\":{\"type\":\"FLOAT\",\"value\":\"1e+300\"},"
                              "\"none\":{\"type\":\"FLOAT\",\"value\":\"NaN\"},\"ever\":{\"type\":\"FLOAT\",\"value\":\"-Infinity\"}}");
    free(text);
    json_decref(j);
}

typedef struct told {
    size_t frames, values, longest;
} told;

static bool hear(void *arg, const char *text, size_t len)
{
    told *t = arg;
    json_t *j = json_loadb(text, len, 0, NULL);
    assert_non_null(j);
    assert_int_equal(json_object_size(j), 4);
    assert_int_equal(pst_json_int(j, "iteration", -1), 9);
    assert_string_equal(pst_json_str(j, "timestamp", ""), "1970-01-01T00:00:01.000000Z");
    t->frames++;
    t->values += json_object_size(json_object_get(j, "Values"));
    t->longest = len > t->longest ? len : t->longest;
    json_decref(j);
    return true;
}

static void test_ffdl_evaluation_never_exceeds_what_its_client_reads_at_once(void **state)
{
    enum { N = 300 };
    static pst_dbl_pair values[N];
    told t = {0};
    char group[] = "train";
    for (int i = 0; i < N; i++)
        values[i] = (pst_dbl_pair){pst_sprintf("%0*d\"\"\"\"\"\"\"\"\"\"", 60, i), -1.0 / 3};
    pst_metric_point m = {.group = group, .time = 1000000, .has_step = true, .step = 9, .values = values, .n_values = N};
    assert_true(gw_ffdl_metric(&m, hear, &t));
    assert_int_equal(t.values, N);
    assert_true(t.frames > 1 && t.longest <= 8192);
    t = (told){0};
    m.n_values = 0;
    assert_true(gw_ffdl_metric(&m, hear, &t)); /* a point without values is one, too */
    assert_int_equal(t.frames, 1);
    for (int i = 0; i < N; i++)
        free(values[i].key);
}

/* ---- through a server -------------------------------------------------------------------------------------------------------- */

static gw_who *who;
static pst_loop *loop;
static pst_http *http;

static void ok(void *arg, pst_http_req *req)
{
    pst_http_reply_text(req, 200, "in");
}

static const pst_http_route routes[] = {{"GET", "/v1/models/{id}", ok, 0, GW_FFDL, NULL},
                                        {"GET", "/v1/models/{id}/logs", ok, 0, GW_FFDL | GW_GRANTED, NULL},
                                        {"GET", "/v1/modelsx", ok, 0, 0, NULL}};

static int serve(void **state)
{
    pst_err err = {0};
    who = gw_who_new("a-token");
    assert_int_equal(pst_loop_new(&loop, &err), 0);
    assert_int_equal(pst_http_new(loop, &(pst_http_conf){.name = "test"}, &http, &err), 0);
    pst_http_add_routes(http, routes, 3, NULL);
    gw_who_guard(who, http);
    return 0;
}

static int end(void **state)
{
    pst_http_free(http);
    pst_loop_free(loop);
    gw_who_free(who);
    return 0;
}

static char answer[4096];

static int ask(const char *request_line, const char *more)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)pst_http_port(http)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char text[1024];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    size_t len = 0;
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    int n = snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", request_line, more);
    assert_int_equal(write(fd, text, (size_t)n), n);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    ssize_t got = 1;
    for (int i = 0; i < 5000 && got; i++) {
        pst_loop_run_for(loop, 2);
        got = read(fd, answer + len, sizeof answer - 1 - len);
        len += got > 0 ? (size_t)got : 0;
    }
    answer[len] = 0;
    close(fd);
    return len > 9 ? atoi(answer + 9) : 0;
}

#define USER(u) "X-Watson-Userinfo: x=1; bluemix-instance-id=" u "\r\n"

static void test_ffdl_logs_without_a_credential_for_who_was_let_in_just_now(void **state)
{
    assert_int_equal(ask("GET /v1/models/training-a/logs", USER("fia")), 401);
    gw_who_grant(who, "127.0.0.1", "fia", "training-a");
    gw_who_grant(who, "10.0.0.1", "tom", "training-a");
    assert_int_equal(ask("GET /v1/models/training-a/logs", USER("fia")), 200);
    assert_int_equal(ask("GET /v1/models/training-a/logs", ""), 401);
    assert_int_equal(ask("GET /v1/models/training-a/logs", USER("eve")), 401);
    assert_int_equal(ask("GET /v1/models/training-a/logs", USER("tom")), 401); /* from another address */
    assert_int_equal(ask("GET /v1/models/training-b/logs", USER("fia")), 401);
    assert_int_equal(ask("GET /v1/models/training-a", USER("fia")), 401); /* logs alone */
    assert_int_equal(ask("GET /v1/models/training-a/logs", USER("fia") "Authorization: Bearer wrong\r\n"), 401);
    assert_int_equal(ask("GET /v1/models/training-a/logs", USER("fia") "Origin: http://evil.example\r\n"), 401);
    assert_int_equal(ask("GET /v1/models/training-a/logs", USER("fia") "Sec-Fetch-Site: cross-site\r\n"), 401);
    for (int i = 0; i < 300; i++) { /* others push it out: the table does not grow */
        char id[40];
        snprintf(id, sizeof id, "training-%d", i);
        gw_who_grant(who, "127.0.0.1", "fia", id);
    }
    assert_int_equal(ask("GET /v1/models/training-a/logs", USER("fia")), 401);
    assert_int_equal(ask("GET /v1/models/training-299/logs", USER("fia")), 200);
}

static void test_ffdl_refusals_are_its_error_object_on_its_paths_alone(void **state)
{
    assert_int_equal(ask("GET /v1/models/training-a", ""), 401);
    assert_non_null(strstr(answer, "\r\nContent-Type: application/json\r\n"));
    assert_non_null(strstr(answer, "\r\nAccess-Control-Allow-Origin: *\r\n"));
    assert_non_null(strstr(answer, "{\"code\":401,\"error\":\"Unauthorized\",\"description\":\""));
    assert_int_equal(ask("GET /v1/modelsx", ""), 401);
    assert_non_null(strstr(answer, "application/problem+json"));
    assert_null(strstr(answer, "Access-Control"));
    assert_int_equal(ask("PUT /v1/models/training-a", "Authorization: Bearer a-token\r\n"), 405);
    assert_non_null(strstr(answer, "{\"code\":405,"));
}

static void test_ffdl_preflights_need_no_credential(void **state)
{
    assert_int_equal(ask("OPTIONS /v1/models/training-a", "Origin: http://board.example\r\nAccess-Control-Request-Method: DELETE\r\n"),
                     200);
    assert_non_null(strstr(answer, "\r\nAccess-Control-Allow-Methods: PUT, GET, POST, DELETE"));
    assert_non_null(strstr(answer, "x-watson-userinfo"));
    assert_int_equal(ask("OPTIONS /v1/models/training-a", ""), 401);
    assert_int_equal(ask("OPTIONS /v1/modelsx", "Origin: http://board.example\r\nAccess-Control-Request-Method: GET\r\n"), 401);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ffdl_times_are_each_records_own_and_never_ahead),
        cmocka_unit_test(test_ffdl_records_have_numbers_and_texts_where_its_client_wants_them),
        cmocka_unit_test(test_ffdl_evaluation_never_exceeds_what_its_client_reads_at_once),
        cmocka_unit_test_setup_teardown(test_ffdl_logs_without_a_credential_for_who_was_let_in_just_now, serve, end),
        cmocka_unit_test_setup_teardown(test_ffdl_refusals_are_its_error_object_on_its_paths_alone, serve, end),
        cmocka_unit_test_setup_teardown(test_ffdl_preflights_need_no_credential, serve, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
