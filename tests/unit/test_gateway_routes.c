/* test_gateway_routes.c - the description at /openapi.json against the server: every row of the tables is in it as it is, nothing else is, and the
 * server that runs the rows answers as described (methods, who may, bodies) when it is asked through a socket. */
#include "producers/gateway/gateway.h"
#include "producers/gateway/openapi.h"
#include "producers/gateway/routes.h"
#include "tests/unit/test.h"

#include "common/base/json.h"
#include "schemas/metric_list.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKEN "a-token-of-this-test"

static json_t *doc;

static int load(void **state)
{
    doc = pst_gateway_openapi();
    return doc ? 0 : -1;
}

static int unload(void **state)
{
    json_decref(doc);
    return 0;
}

static const json_t *operation_of(const gw_route *r)
{
    char method[16] = "";
    for (size_t i = 0; r->http.method[i] && i < sizeof method - 1; i++)
        method[i] = (char)tolower((unsigned char)r->http.method[i]);
    char *pattern = pst_strdup(r->http.pattern), *rest = strstr(pattern, "*}"); /* {rest*} is described as {rest} */
    if (rest)
        memmove(rest, rest + 1, strlen(rest));
    const json_t *op = json_object_get(json_object_get(json_object_get(doc, "paths"), pattern), method);
    free(pattern);
    return op;
}

static size_t count(void)
{
    size_t n = 0;
    const char *path, *method;
    json_t *operations, *op;
    json_object_foreach(json_object_get(doc, "paths"), path, operations) json_object_foreach(operations, method, op) n++;
    return n;
}

/* ---- rows and description say the same ---- */

static void parameters_agree(const gw_route *r, const json_t *op)
{
    const json_t *all = json_object_get(op, "parameters");
    size_t n = 0;
    for (const gw_param *p = r->params; p && p->name; p++, n++) {
        const json_t *one = json_array_get(all, n);
        assert_string_equal(pst_json_str(one, "name", ""), p->name);
        assert_string_equal(pst_json_str(one, "in", ""), p->in);
        assert_true(json_is_object(json_object_get(one, "schema")));
        if (!strcmp(p->in, "path")) {
            char *brace = pst_sprintf("{%s}", p->name), *rest = pst_sprintf("{%s*}", p->name);
            assert_true(strstr(r->http.pattern, brace) || strstr(r->http.pattern, rest));
            free(brace);
            free(rest);
        }
    }
    assert_int_equal(json_array_size(all), n);
    for (const char *c = r->http.pattern; (c = strchr(c, '{')); c++) { /* and every {part} of a path is a parameter */
        char *name = pst_strndup(c + 1, strcspn(c, "*}") - 1);
        assert_non_null(gw_param_find(r, "path", name));
        free(name);
    }
}

static void bodies_agree(const gw_route *r, const json_t *op)
{
    const json_t *kinds = json_object_get(json_object_get(op, "requestBody"), "content");
    size_t n = 0;
    for (const gw_content *b = r->bodies; b && b->type; b++, n++)
        assert_true(json_is_object(json_object_get(json_object_get(kinds, b->type), "schema")));
    assert_int_equal(json_object_size(kinds), n);
    assert_int_equal(r->bodies != NULL, r->http.body_bytes_max > 0);
}

static void answers_agree(const gw_route *r, const json_t *op)
{
    const json_t *all = json_object_get(op, "responses");
    size_t n = 1 + (r->http.flags & GW_EVERYBODY ? 0 : 1) + (r->bodies ? 2 : 0); /* default; 401; 413 and 415 */
    char status[16];
    for (const gw_answer *a = r->answers; a->status; a++, n++) {
        snprintf(status, sizeof status, "%d", a->status);
        const json_t *one = json_object_get(all, status);
        assert_string_equal(pst_json_str(one, "description", ""), a->doc);
        assert_int_equal(json_object_get(json_object_get(one, "content"), a->type ? a->type : "") != NULL, a->type != NULL);
    }
    bool says_400 = false;
    for (const gw_answer *a = r->answers; a->status; a++)
        says_400 |= a->status == 400;
    n += gw_is_own(r) && !says_400; /* parameters that do not fit */
    assert_int_equal(json_object_size(all), n);
    assert_true(r->answers[0].status >= 200 && r->answers[0].status < 400);
}

static void test_description_has_every_route_and_nothing_else(void **state)
{
    size_t n = 0;
    for (const gw_noun *const *noun = gw_nouns; *noun; noun++)
        for (size_t i = 0; i < (*noun)->n; i++, n++) {
            const gw_route *r = &(*noun)->routes[i];
            const json_t *op = operation_of(r);
            if (!op)
                fail_msg("%s %s is not described", r->http.method, r->http.pattern);
            assert_string_equal(pst_json_str(op, "description", ""), r->http.doc);
            assert_string_equal(json_string_value(json_array_get(json_object_get(op, "tags"), 0)), (*noun)->name);
            parameters_agree(r, op);
            bodies_agree(r, op);
            answers_agree(r, op);
        }
    assert_int_equal(n, count());
}

static void test_description_names_operations_once(void **state)
{
    json_t *seen = json_object();
    for (const gw_noun *const *noun = gw_nouns; *noun; noun++)
        for (size_t i = 0; i < (*noun)->n; i++)
            json_object_set_new(seen, (*noun)->routes[i].name, json_true());
    assert_int_equal(json_object_size(seen), count());
    json_decref(seen);
}

/* Every $ref leads somewhere; every schema of the components is led to. */
static void follow(const json_t *j, json_t *used)
{
    static const char at[] = "#/components/schemas/";
    const char *key;
    json_t *v;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)j, key, v)
    {
        if (!strcmp(key, "$ref")) {
            const char *to = json_string_value(v);
            assert_int_equal(strncmp(to, at, strlen(at)), 0);
            if (!json_object_get(json_object_get(json_object_get(doc, "components"), "schemas"), to + strlen(at)))
                fail_msg("%s leads nowhere", to);
            json_object_set_new(used, to, json_true());
        }
        follow(v, used);
    }
    json_array_foreach(j, i, v) follow(v, used);
}

static void test_references_lead_somewhere(void **state)
{
    json_t *used = json_object();
    follow(doc, used);
    assert_int_equal(json_object_size(used), json_object_size(json_object_get(json_object_get(doc, "components"), "schemas")));
    json_decref(used);
}

static void test_event_schemas_follow_avro(void **state)
{
    const json_t *s =
        json_object_get(json_object_get(json_object_get(json_object_get(doc, "components"), "schemas"), "JobState"), "properties");
    assert_string_equal(pst_json_str(json_object_get(s, "training_id"), "type", ""), "string");
    assert_int_equal(json_array_size(json_object_get(json_object_get(s, "reason"), "anyOf")), 2);
    assert_string_equal(pst_json_str(json_object_get(s, "submitted_at"), "format", ""), "int64");
    assert_true(json_is_array(json_object_get(json_object_get(s, "state"), "enum")));
}

/* ---- the server does what is described ---- */

static gw_state g;

/* Rows whose handlers are reached without a token need something to show. */
static int serve(void **state)
{
    pst_err err = {0};
    static const char *const types[] = {"application/json", "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", NULL};
    assert_int_equal(pst_loop_new(&g.loop, &err), 0);
    assert_int_equal(pst_http_new(g.loop, &(pst_http_conf){.name = "test", .types = types}, &g.http, &err), 0);
    g.who = gw_who_new(TOKEN);
    gw_who_guard(g.who, g.http);
    g.hub = gw_hub_new();
    g.metrics = pst_metrics_new();
    g.streams = pst_metric_of(g.metrics, PST_METRIC_GATEWAY_STREAMS, NULL);
    gw_routes_add(g.http, &g);
    return load(state);
}

static int close_all(void **state)
{
    pst_http_free(g.http);
    gw_who_free(g.who);
    pst_metrics_free(g.metrics);
    pst_loop_free(g.loop);
    gw_hub_free(g.hub);
    return unload(state);
}

/* The status of the answer to one request; the head of the answer goes to head. */
static int ask(const char *method, const char *path, const char *more, char head[2048])
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)pst_http_port(g.http)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char text[1024];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    size_t len = 0;
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    int n = snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", method, path, more);
    assert_int_equal(write(fd, text, (size_t)n), n);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 1000 && !memmem(head, len, "\r\n\r\n", 4); i++) {
        pst_loop_run_for(g.loop, 5);
        for (ssize_t got = 1; got > 0; len += got > 0 ? (size_t)got : 0) /* a small answer comes whole */
            got = read(fd, head + len, 2047 - len);
    }
    close(fd);
    head[len] = 0;
    assert_non_null(memmem(head, len, "\r\n\r\n", 4));
    return atoi(head + strlen("HTTP/1.1 "));
}

/* A path of the pattern: {id} stands for one that no job has. */
static void path_of(const char *pattern, char room[256])
{
    size_t n = 0;
    for (const char *c = pattern; *c && n < 255; c++) {
        room[n++] = *c == '{' ? 'x' : *c;
        if (*c == '{')
            c = strchr(c, '}');
    }
    room[n] = 0;
}

static void test_token_is_asked_for_as_described(void **state)
{
    char path[256], method[16], head[2048];
    const char *pattern, *name;
    json_t *operations, *op;
    json_object_foreach(json_object_get(doc, "paths"), pattern, operations) json_object_foreach(operations, name, op)
    {
        size_t i = 0;
        bool open = json_object_size(json_array_get(json_object_get(op, "security"), 0)) == 0;
        for (; name[i]; i++)
            method[i] = (char)toupper((unsigned char)name[i]);
        method[i] = 0;
        path_of(pattern, path);
        if (open && !strcmp(path, "/health"))
            continue; /* it tells of a broker, which is not here; tests/live/test_who.py asks it */
        int status = ask(method, path, "", head);
        if ((status == 401) == open)
            fail_msg("%s %s without a token: %d, described as open to %s", method, path, status, pst_json_str(op, "x-who-may", ""));
        assert_int_equal(json_object_get(json_object_get(op, "responses"), "401") != NULL,
                         strcmp(pst_json_str(op, "x-who-may", ""), "everybody") != 0 || !strcmp(path, "/login"));
    }
}

static void test_other_methods_are_refused_and_allow_is_as_described(void **state)
{
    char path[256], head[2048], allow[128];
    const char *pattern, *name;
    json_t *operations, *op;
    json_object_foreach(json_object_get(doc, "paths"), pattern, operations)
    {
        path_of(pattern, path);
        assert_int_equal(ask("LOCK", path, "Authorization: Bearer " TOKEN "\r\n", head), 405);
        const char *line = strcasestr(head, "\r\nAllow: ");
        assert_non_null(line);
        snprintf(allow, sizeof allow, "%.*s", (int)strcspn(line + 9, "\r"), line + 9);
        size_t n = 1; /* OPTIONS */
        json_object_foreach(operations, name, op)
        {
            n += strcmp(name, "get") ? 1 : 2; /* and HEAD */
            assert_non_null(strcasestr(allow, name));
        }
        for (const char *c = allow; (c = strchr(c, ',')); c++)
            n--;
        assert_int_equal(n, 1);
    }
}

static void test_bodies_of_other_types_are_refused_as_described(void **state)
{
    char head[2048], more[256];
    const char *const given[] = {"text/plain", "application/x-www-form-urlencoded", "application/xml"};
    const json_t *post = json_object_get(json_object_get(json_object_get(doc, "paths"), "/v1/jobs"), "post");
    assert_non_null(json_object_get(json_object_get(post, "responses"), "415"));
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        snprintf(more, sizeof more, "Authorization: Bearer " TOKEN "\r\nContent-Type: %s\r\nContent-Length: 1\r\n", given[i]);
        assert_int_equal(ask("POST", "/v1/jobs", more, head), 415);
    }
    assert_non_null(json_object_get(json_object_get(post, "responses"), "413"));
    assert_int_equal(
        ask("POST", "/v1/jobs", "Authorization: Bearer " TOKEN "\r\nContent-Type: text/yaml\r\nContent-Length: 134217729\r\n", head), 413);
}

static void test_paths_that_are_not_described_are_not_there(void **state)
{
    static const char *const paths[] = {"/v1", "/v1/jobs/x/nothing", "/openapi", "/index.html", "/v1/models/x/y", "/state/x"};
    char head[2048];
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_null(json_object_get(json_object_get(doc, "paths"), paths[i]));
        assert_int_equal(ask("GET", paths[i], "Authorization: Bearer " TOKEN "\r\n", head), 404);
        assert_int_equal(ask("GET", paths[i], "", head), 401); /* and strangers do not learn which are */
    }
}

static json_t *problem_of(const char *path)
{
    char head[2048];
    json_t *problem = NULL;
    assert_int_equal(ask("GET", path, "Authorization: Bearer " TOKEN "\r\n", head), 400);
    assert_non_null(strstr(head, "application/problem+json"));
    problem = json_loads(strstr(head, "\r\n\r\n") + 4, 0, NULL);
    assert_non_null(problem);
    return problem;
}

/* The description is the check: each row's schemas decide, and all that is wrong is said at once. */
static void test_parameters_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *path, *field, *detail;
    } rows[] = {{"/v1/jobs?limit=-1", "limit", "wanted a whole number from 1 to 1000"},
                {"/v1/jobs?limit=0", "limit", "wanted a whole number from 1 to 1000"},
                {"/v1/jobs?limit=", "limit", "wanted a whole number from 1 to 1000"},
                {"/v1/jobs?limit=1e2", "limit", "wanted a whole number from 1 to 1000"},
                {"/v1/jobs?limit=99999999999999999999", "limit", "wanted a whole number from 1 to 1000"},
                {"/v1/jobs?lmit=5", "lmit", "there is no such parameter here; did you mean limit?"},
                {"/v1/jobs?limit=5&limit=6", "limit", "is there twice"},
                {"/v1/jobs?state=RUNNING", "state", "wanted one of QUEUED, PENDING,"},
                {"/v1/nodes?x=1", "x", "there is no such parameter here"},
                {"/v1/registry/models/m/versions/0", "version", "wanted a whole number from 1 to 2147483647"},
                {"/v1/registry/models/m/versions/one", "version", "wanted a whole number from 1 to 2147483647"},
                {"/v1/topics?internal=maybe", "internal", "wanted true or false"},
                {"/v1/topics/t/records?partition=-1", "partition", "wanted a whole number from 0 to 2147483647"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *problem = problem_of(rows[i].path), *one = json_array_get(json_object_get(problem, "violations"), 0);
        assert_string_equal(pst_json_str(problem, "code", ""), "invalid-parameter");
        assert_int_equal(json_array_size(json_object_get(problem, "violations")), 1);
        assert_string_equal(pst_json_str(one, "field", ""), rows[i].field);
        if (strncmp(pst_json_str(one, "detail", ""), rows[i].detail, strlen(rows[i].detail)) != 0)
            fail_msg("%s: %s", rows[i].path, pst_json_str(one, "detail", ""));
        json_decref(problem);
    }
    json_t *problem = problem_of("/v1/jobs?limit=-1&lmit=2&state=x");
    assert_int_equal(json_array_size(json_object_get(problem, "violations")), 3);
    json_decref(problem);
}

/* A token of nobody, of another list, and one that was changed. */
static void test_foreign_page_tokens_are_refused(void **state)
{
    static const char *const rows[] = {"/v1/jobs?page_token=x", "/v1/jobs?page_token=training-x.0123456789abcdef", "/v1/jobs?page_token=.",
                                       "/v1/jobs?page_token=%00"};
    char head[2048];
    for (size_t i = 0; i < 3; i++) {
        json_t *problem = problem_of(rows[i]);
        assert_string_equal(pst_json_str(problem, "code", ""), "foreign-page-token");
        json_decref(problem);
    }
    assert_int_equal(ask("GET", rows[3], "Authorization: Bearer " TOKEN "\r\n", head), 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_description_has_every_route_and_nothing_else, load, unload),
        cmocka_unit_test_setup_teardown(test_description_names_operations_once, load, unload),
        cmocka_unit_test_setup_teardown(test_references_lead_somewhere, load, unload),
        cmocka_unit_test_setup_teardown(test_event_schemas_follow_avro, load, unload),
        cmocka_unit_test_setup_teardown(test_token_is_asked_for_as_described, serve, close_all),
        cmocka_unit_test_setup_teardown(test_other_methods_are_refused_and_allow_is_as_described, serve, close_all),
        cmocka_unit_test_setup_teardown(test_bodies_of_other_types_are_refused_as_described, serve, close_all),
        cmocka_unit_test_setup_teardown(test_paths_that_are_not_described_are_not_there, serve, close_all),
        cmocka_unit_test_setup_teardown(test_parameters_that_do_not_fit_are_refused, serve, close_all),
        cmocka_unit_test_setup_teardown(test_foreign_page_tokens_are_refused, serve, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
