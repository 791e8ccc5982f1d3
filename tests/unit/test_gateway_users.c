/* test_gateway_users.c - who may, under --users: the file and what is refused of it, sessions, and every route asked by every role through a socket.
 * A row here says who may use a route; one that is not here, or says otherwise than the route's own, is an error. */
#include "producers/gateway/caller.h"
#include "producers/gateway/gateway.h"
#include "producers/gateway/login.h"
#include "producers/gateway/owners.h"
#include "producers/gateway/routes.h"
#include "producers/gateway/session.h"
#include "producers/gateway/users.h"
#include "producers/gateway/verifier.h"
#include "tests/unit/test.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/password.h"
#include "schemas/avro.h"
#include "schemas/job_state.h"
#include "schemas/metric_list.h"
#include "schemas/task_array.h"
#include "schemas/training_id.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN "a-token-of-this-test"

static char dir[] = "/tmp/penstock-users-XXXXXX", path[64];
static char *hash; /* of "right" */

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

static void put(const char *text, mode_t mode)
{
    unlink(path);
    assert_int_equal(pst_fs_write_atomic(path, text, strlen(text), mode, NULL), 0);
    assert_int_equal(chmod(path, mode), 0);
}

/* ---- the file ---- */

static void test_users_file_is_read_whole(void **state)
{
    pst_err err = {0};
    gw_users *u = NULL;
    char *text = pst_sprintf("# who may\n\nann:%s:user\r\n  bob:%s:viewer,user\nci@build.example:*:operator", hash, hash);
    put(text, 0600);
    assert_int_equal(gw_users_open(path, &u, &err), 0);
    assert_int_equal(gw_users_find(u, "ann")->roles, GW_ROLE_USER);
    assert_int_equal(gw_users_find(u, "bob")->roles, GW_ROLE_USER | GW_ROLE_VIEWER);
    assert_int_equal(gw_users_find(u, "ci@build.example")->roles, GW_ROLE_OPERATOR);
    assert_true(pst_password_is(gw_users_find(u, "ann")->secret, "right"));
    assert_false(pst_password_is(gw_users_find(u, "ann")->secret, "wrong"));
    assert_false(pst_password_is("*", "*"));
    assert_null(gw_users_find(u, "eve"));
    assert_null(gw_users_find(u, ""));
    assert_string_equal(gw_users_decoy(u), hash);
    gw_users_free(u);
    free(text);
}

static void refused(const char *text, mode_t mode, const char *word)
{
    pst_err err = {0};
    gw_users *u = NULL;
    put(text, mode);
    if (gw_users_open(path, &u, &err) == 0)
        fail_msg("taken: %s (mode %o)", text, mode);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not say \"%s\"", err.text, word);
    if (strstr(err.text, hash))
        fail_msg("a hash is told: %s", err.text);
}

static void test_users_file_that_is_not_sound_is_refused_with_its_line(void **state)
{
    static const struct {
        const char *format, *word;
    } rows[] = {{"ann:%s:user\nbob:%s\n", ":2: a line is name:hash:role"},
                {"ann:%s:user:%s\n", ":1: a line is"},
                {"ann:%s:admin\n", "\"admin\" is no role"},
                {"ann:%s:\n", "\"\" is no role"},
                {"ann:%s:user,\n", "\"\" is no role"},
                {"ann:%s:user\nann:%s:operator\n", ":2: ann is there twice"},
                {"ann smith:%s:user\n", "a name has"},
                {":%s:user\n", "a name has"},
                {"../ann:%s:user\n", "a name has"},
                {"ann:secret:user\n", "no hash"},
                {"ann::user\n", "no hash"},
                {"ann:ab1CdEfGhIjKl:user\n", "no hash"}, /* DES, or a password as it is */
                {"ann:$9$nonsense:user\n", "no hash"},
                {"# nobody\n", "names no user"},
                {"", "names no user"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_buf b = {0};
        for (const char *p = rows[i].format; *p; p++)
            if (p[0] == '%' && p[1] == 's') {
                pst_buf_adds(&b, hash);
                p++;
            } else
                pst_buf_addc(&b, *p);
        refused(b.data ? b.data : "", 0600, rows[i].word);
        pst_buf_done(&b);
    }
}

static void test_users_file_that_others_may_write_is_refused(void **state)
{
    char *text = pst_sprintf("ann:%s:user\n", hash);
    refused(text, 0620, "others than its owner may write");
    refused(text, 0602, "others than its owner may write");
    assert_int_equal(chmod(dir, 0777), 0);
    refused(text, 0600, "in the place of");
    assert_int_equal(chmod(dir, 01777), 0); /* sticky, as /tmp */
    pst_err err = {0};
    gw_users *u = NULL;
    put(text, 0640);
    assert_int_equal(gw_users_open(path, &u, &err), 0);
    gw_users_free(u);
    assert_int_equal(chmod(dir, 0700), 0);
    free(text);
}

static void test_users_file_is_read_again_and_a_broken_one_changes_nothing(void **state)
{
    pst_err err = {0};
    gw_users *u = NULL;
    char *one = pst_sprintf("ann:%s:user\n", hash), *two = pst_sprintf("bob:%s:operator\n", hash);
    put(one, 0600);
    assert_int_equal(gw_users_open(path, &u, &err), 0);
    assert_int_equal(gw_users_again(u, &err), 0);
    put("ann:half", 0600);
    assert_true(gw_users_again(u, &err) < 0);
    assert_int_equal(gw_users_again(u, &err), 0); /* said once */
    assert_non_null(gw_users_find(u, "ann"));
    put(two, 0666);
    assert_true(gw_users_again(u, &err) < 0);
    assert_null(gw_users_find(u, "bob"));
    chmod(path, 0600);
    assert_int_equal(gw_users_again(u, &err), 1);
    assert_non_null(gw_users_find(u, "bob"));
    assert_null(gw_users_find(u, "ann"));
    unlink(path);
    assert_true(gw_users_again(u, &err) < 0);
    assert_non_null(gw_users_find(u, "bob"));
    gw_users_free(u);
    free(one);
    free(two);
}

static void test_users_file_that_could_not_be_read_is_tried_again_as_it_is(void **state)
{
    pst_err err = {0};
    gw_users *u = NULL;
    char *one = pst_sprintf("ann:%s:user\n", hash), *two = pst_sprintf("bob:%s:operator\n", hash);
    put(one, 0600);
    assert_int_equal(gw_users_open(path, &u, &err), 0);
    put(two, 0600);
    assert_int_equal(chmod(dir, 0777), 0);
    assert_true(gw_users_again(u, &err) < 0);
    assert_int_equal(gw_users_again(u, &err), 0); /* said once */
    assert_non_null(gw_users_find(u, "ann"));
    assert_int_equal(chmod(dir, 0700), 0); /* the file itself is as it was */
    assert_int_equal(gw_users_again(u, &err), 1);
    assert_null(gw_users_find(u, "ann"));
    assert_int_equal(gw_users_again(u, &err), 0);
    put(one, 0600);
    struct rlimit was, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = was;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0); /* EMFILE */
    int rc = gw_users_again(u, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_true(rc < 0);
    assert_int_equal(gw_users_again(u, &err), 1);
    assert_non_null(gw_users_find(u, "ann"));
    gw_users_free(u);
    free(one);
    free(two);
}

/* ---- sessions, forms, signatures ---- */

static void test_session_is_its_users_until_its_time_or_a_change(void **state)
{
    gw_session_key key, other;
    gw_session_key_make("one secret", &key);
    gw_session_key_make("another", &other);
    char *value = gw_session_make(&key, "ann.b@c", "$y$hash", 1000), *name = gw_session_name(value);
    assert_string_equal(name, "ann.b@c");
    assert_true(gw_session_is(&key, value, "$y$hash", 999));
    assert_false(gw_session_is(&key, value, "$y$hash", 1000));
    assert_false(gw_session_is(&key, value, "$y$hash2", 999));
    assert_false(gw_session_is(&other, value, "$y$hash", 999));
    for (size_t i = 0; i < strlen(value); i++) { /* no letter of it may be another */
        char *bad = pst_strdup(value);
        bad[i] = bad[i] == '9' ? '8' : '9';
        assert_false(gw_session_is(&key, bad, "$y$hash", 999));
        free(bad);
    }
    static const char *const none[] = {"", "1", "1.", "1..ann", "99999999999999999999.aa.ann", ".", "x.y.z"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_null(gw_session_name(none[i]));
        assert_false(gw_session_is(&key, none[i], "", 0));
    }
    assert_false(gw_session_is(&key, NULL, "", 0));
    char *a = gw_session_place(&key, "ann"), *b = gw_session_place(&key, "bob");
    assert_int_equal(strlen(a), 32);
    assert_string_not_equal(a, b);
    free(a);
    free(b);
    free(name);
    free(value);
}

static void field_is(const char *body, const char *name, const char *wanted)
{
    char *v = gw_form_field((pst_slice){body, strlen(body)}, name);
    if (wanted)
        assert_string_equal(v, wanted);
    else
        assert_null(v);
    free(v);
}

static void test_form_fields_are_decoded_once(void **state)
{
    field_is("name=ann&password=a%2Bb+c%25", "password", "a+b c%");
    field_is("name=ann&password=a%2Bb+c%25", "name", "ann");
    field_is("name=&x=1", "name", "");
    field_is("surname=x", "name", NULL);
    field_is("name=a&name=b", "name", NULL);
    field_is("name=a%00b", "name", NULL);
    field_is("name=%4", "name", "%4");
    field_is("name=%zz%", "name", "%zz%");
    field_is("", "name", NULL);
    field_is("name", "name", NULL);
    field_is("&&=&name=x&", "name", "x");
}

static void test_owner_is_who_the_first_event_proves(void **state)
{
    char id[64];
    pst_training_id("ann", "r1", id);
    json_t *e = json_pack("{s:s, s:s, s:s}", "training_id", id, "actor", "user:ann", "request_id", "r1");
    char *owner = gw_owner_of_record("event", e);
    assert_string_equal(owner, "ann");
    free(owner);
    json_object_set_new(e, "actor", json_string("user:bob")); /* a request about it by somebody else */
    assert_null(gw_owner_of_record("event", e));
    json_object_set_new(e, "actor", json_string("trainer"));
    assert_null(gw_owner_of_record("event", e));
    json_decref(e);
    json_t *s = json_pack("{s:s, s:s}", "user", "ann", "state", "QUEUED");
    owner = gw_owner_of_record("state", s);
    assert_string_equal(owner, "ann");
    free(owner);
    json_object_set_new(s, "state", json_string("UNKNOWN"));
    assert_null(gw_owner_of_record("state", s));
    assert_null(gw_owner_of_record("log", s));
    json_decref(s);
}

static void test_owner_of_a_task_is_its_arrays(void **state)
{
    char id[64], task[PST_TASK_ID_LEN];
    gw_state none = {0}; /* without a store: whoever asks it has not looked at the array */
    gw_owners *o = gw_owners_new(&none);
    pst_training_id("ann", "r1", id);
    pst_task_id(id, 17, task);
    gw_owners_learn(o, id, "ann");
    assert_string_equal(gw_owners_of(o, task), "ann");
    gw_owners_free(o);
}

/* ---- every route, asked by everybody ---- */

static const struct {
    const char *method, *pattern, *who; /* e everybody, l loopback; v u: those roles; an operator always */
} table[] = {
    {"GET", "/health", "e"},
    {"GET", "/metrics", "lvu"},
    {"GET", "/openapi.json", "vu"},
    {"GET", "/state", ""},
    {"GET", "/", "vu"},
    {"GET", "/web/style.css", "vu"},
    {"GET", "/web/{file}", "vu"},
    {"POST", "/login", "e"},
    {"POST", "/logout", "vu"},
    {"GET", "/v1/me", "vu"},
    {"GET", "/events/stream", "vu"},
    {"POST", "/v1/jobs", "u"},
    {"GET", "/v1/jobs", "vu"},
    {"GET", "/v1/jobs/{id}", "vu"},
    {"DELETE", "/v1/jobs/{id}", "u"},
    {"POST", "/v1/jobs/{id}/halt", "u"},
    {"POST", "/v1/jobs/{id}/resume", "u"},
    {"POST", "/v1/jobs/{id}/terminate", "u"},
    {"POST", "/v1/jobs/{id}/hold", "u"},
    {"POST", "/v1/jobs/{id}/release", "u"},
    {"POST", "/v1/jobs/{id}/reprioritise", "u"},
    {"GET", "/v1/jobs/{id}/why", "vu"},
    {"GET", "/v1/registry/models", "vu"},
    {"GET", "/v1/registry/models/{model}", "vu"},
    {"GET", "/v1/registry/models/{model}/versions", "vu"},
    {"GET", "/v1/registry/models/{model}/versions/{version}", "vu"},
    {"DELETE", "/v1/registry/models/{model}/versions/{version}", ""},
    {"GET", "/v1/registry/models/{model}/versions/{version}/download", "vu"},
    {"GET", "/v1/registry/models/{model}/aliases", "vu"},
    {"GET", "/v1/registry/models/{model}/aliases/{alias}", "vu"},
    {"GET", "/v1/registry/models/{model}/aliases/{alias}/download", "vu"},
    {"PUT", "/v1/registry/models/{model}/aliases/{alias}", "u"},
    {"DELETE", "/v1/registry/models/{model}/aliases/{alias}", ""},
    {"GET", "/v1/topics", "vu"},
    {"GET", "/v1/topics/{topic}", "vu"},
    {"GET", "/v1/topics/{topic}/records", "v"},
    {"GET", "/v1/nodes", "vu"},
    {"GET", "/v1/nodes/{node}", "vu"},
    {"POST", "/v1/nodes/{node}/drain", ""},
    {"POST", "/v1/nodes/{node}/resume", ""},
    {"POST", "/v1/nodes/{node}/lost", ""},
    {"GET", "/v1/queues", "vu"},
    {"GET", "/v1/queues/{queue}", "vu"},
    {"PUT", "/v1/queues/{queue}", ""},
    {"DELETE", "/v1/queues/{queue}", ""},
    {"GET", "/v1/pipelines", "vu"},
    {"POST", "/v1/pipelines", "u"},
    {"GET", "/v1/pipelines/{pipeline}", "vu"},
    {"PUT", "/v1/pipelines/{pipeline}", "u"},
    {"DELETE", "/v1/pipelines/{pipeline}", ""},
    {"GET", "/v1/pipelines/{pipeline}/dead-letters", "v"},
    {"POST", "/v1/pipelines/{pipeline}/dead-letters/replay", ""},
    {"GET", "/v1/topics/{topic}/dead-letters", "v"},
    {"GET", "/v1/topics/{topic}/dead-letters/{partition}/{offset}", "v"},
    {"POST", "/v1/topics/{topic}/dead-letters/replay", ""},
    {"GET", "/v1/jobs/{id}/events", "vu"},
    {"GET", "/v1/jobs/{id}/logs", "vu"},
    {"GET", "/v1/jobs/{id}/metrics", "vu"},
    {"POST", "/v1/models", "u"},
    {"GET", "/v1/models", "vu"},
    {"GET", "/v1/models/{id}", "vu"},
    {"PATCH", "/v1/models/{id}", "u"},
    {"DELETE", "/v1/models/{id}", "u"},
    {"GET", "/v1/models/{id}/logs", "vu"},
    {"GET", "/v1/models/{id}/metrics", "vu"},
    {"GET", "/v1/models/{id}/definition", "vu"},
    {"GET", "/v1/models/{id}/trained_model", "vu"},
    {"GET", "/v1/logs/{id}/loglines", "vu"},
    {"GET", "/v1/logs/{id}/emetrics", "vu"},
    {"GET", "/v2", "vu"},
    {"GET", "/v2/health/live", "vu"},
    {"GET", "/v2/health/ready", "vu"},
    {"GET", "/v2/models/{model}", "vu"},
    {"GET", "/v2/models/{model}/ready", "vu"},
    {"GET", "/v2/models/{model}/versions/{version}", "vu"},
    {"GET", "/v2/models/{model}/versions/{version}/ready", "vu"},
    {"POST", "/v2/models/{model}/infer", "u"},
    {"POST", "/v2/models/{model}/versions/{version}/infer", "u"},
    /* MLflow's runs are shown to nobody by his own name yet */
    {"POST", "/api/2.0/mlflow/experiments/create", ""},
    {"GET", "/api/2.0/mlflow/experiments/get", ""},
    {"GET", "/api/2.0/mlflow/experiments/get-by-name", ""},
    {"POST", "/api/2.0/mlflow/experiments/search", ""},
    {"GET", "/api/2.0/mlflow/experiments/search", ""},
    {"GET", "/api/2.0/mlflow/experiments/list", ""},
    {"POST", "/api/2.0/mlflow/experiments/update", ""},
    {"POST", "/api/2.0/mlflow/experiments/delete", ""},
    {"POST", "/api/2.0/mlflow/experiments/restore", ""},
    {"POST", "/api/2.0/mlflow/experiments/set-experiment-tag", ""},
    {"POST", "/api/2.0/mlflow/experiments/delete-experiment-tag", ""},
    {"POST", "/api/2.0/mlflow/runs/create", ""},
    {"GET", "/api/2.0/mlflow/runs/get", ""},
    {"POST", "/api/2.0/mlflow/runs/update", ""},
    {"POST", "/api/2.0/mlflow/runs/search", ""},
    {"POST", "/api/2.0/mlflow/runs/delete", ""},
    {"POST", "/api/2.0/mlflow/runs/restore", ""},
    {"POST", "/api/2.0/mlflow/runs/delete-tag", ""},
    {"POST", "/api/2.0/mlflow/runs/log-metric", ""},
    {"POST", "/api/2.0/mlflow/runs/log-batch", ""},
    {"POST", "/api/2.0/mlflow/runs/log-parameter", ""},
    {"POST", "/api/2.0/mlflow/runs/set-tag", ""},
    {"POST", "/api/2.0/mlflow/runs/log-inputs", ""},
    {"POST", "/api/2.0/mlflow/runs/outputs", ""},
    {"POST", "/api/2.0/mlflow/logged-models/search", ""},
    {"POST", "/api/2.0/mlflow/logged-models", ""},
    {"GET", "/api/2.0/mlflow/metrics/get-history", ""},
    {"GET", "/api/2.0/mlflow/artifacts/list", ""},
    {"GET", "/api/2.0/mlflow-artifacts/artifacts", ""},
    {"PUT", "/api/2.0/mlflow-artifacts/artifacts/{experiment}/{path*}", ""},
    {"GET", "/api/2.0/mlflow-artifacts/artifacts/{experiment}/{path*}", ""},
    {"DELETE", "/api/2.0/mlflow-artifacts/artifacts/{experiment}/{path*}", ""},
    {"POST", "/api/2.0/mlflow/registered-models/create", ""},
    {"GET", "/api/2.0/mlflow/registered-models/get", ""},
    {"GET", "/api/2.0/mlflow/registered-models/search", ""},
    {"PATCH", "/api/2.0/mlflow/registered-models/update", ""},
    {"DELETE", "/api/2.0/mlflow/registered-models/delete", ""},
    {"POST", "/api/2.0/mlflow/registered-models/get-latest-versions", ""},
    {"POST", "/api/2.0/mlflow/registered-models/set-tag", ""},
    {"DELETE", "/api/2.0/mlflow/registered-models/delete-tag", ""},
    {"POST", "/api/2.0/mlflow/registered-models/alias", ""},
    {"GET", "/api/2.0/mlflow/registered-models/alias", ""},
    {"DELETE", "/api/2.0/mlflow/registered-models/alias", ""},
    {"POST", "/api/2.0/mlflow/model-versions/create", ""},
    {"GET", "/api/2.0/mlflow/model-versions/get", ""},
    {"GET", "/api/2.0/mlflow/model-versions/get-download-uri", ""},
    {"GET", "/api/2.0/mlflow/model-versions/search", ""},
    {"PATCH", "/api/2.0/mlflow/model-versions/update", ""},
    {"DELETE", "/api/2.0/mlflow/model-versions/delete", ""},
    {"POST", "/api/2.0/mlflow/model-versions/transition-stage", ""},
    {"POST", "/api/2.0/mlflow/model-versions/set-tag", ""},
    {"DELETE", "/api/2.0/mlflow/model-versions/delete-tag", ""},
};
enum { N_TABLE = sizeof table / sizeof *table };

static void test_every_route_says_who_may(void **state)
{
    size_t n = 0;
    for (const gw_noun *const *noun = gw_nouns; *noun; noun++)
        for (size_t i = 0; i < (*noun)->n; i++, n++) {
            const pst_http_route *r = &(*noun)->routes[i].http;
            size_t k = 0;
            while (k < N_TABLE && (strcmp(table[k].method, r->method) || strcmp(table[k].pattern, r->pattern)))
                k++;
            if (k == N_TABLE)
                fail_msg("%s %s: decide who may, in the route's row and in this table", r->method, r->pattern);
            const char *who = table[k].who;
            unsigned flags = (strchr(who, 'e') ? GW_EVERYBODY : 0) | (strchr(who, 'l') ? GW_LOOPBACK : 0) |
                             (strchr(who, 'v') ? GW_VIEWER : 0) | (strchr(who, 'u') ? GW_USER : 0);
            if ((r->flags & (GW_EVERYBODY | GW_LOOPBACK | GW_VIEWER | GW_USER)) != flags)
                fail_msg("%s %s: the row says otherwise than the table, \"%s\"", r->method, r->pattern, who);
        }
    assert_int_equal(n, N_TABLE);
}

/* The same routes with a handler that says who came. */
static gw_state g;
static pst_http_route routes[N_TABLE];
static char answer[8192];
static int came_n;

static void came(void *arg, pst_http_req *req)
{
    const gw_caller *c = gw_caller_of(req);
    came_n++;
    pst_http_reply_text(req, 200, "in as %s, %u, ann's: %d %d", c->name, c->roles, gw_caller_sees(req, "ann"),
                        gw_caller_touches(req, "ann"));
}

static int serve(void **state)
{
    static const char *const types[] = {"application/json", NULL};
    pst_err err = {0};
    gw_users *u = NULL;
    size_t n = 0;
    char *text = pst_sprintf("vera:%s:viewer\nann:%s:user\nbob:%s:user\nboth:%s:viewer,user\nolga:%s:operator\nci:*:operator\n", hash, hash,
                             hash, hash, hash);
    put(text, 0600);
    free(text);
    memset(&g, 0, sizeof g);
    assert_int_equal(pst_loop_new(&g.loop, &err), 0);
    assert_int_equal(pst_http_new(g.loop, &(pst_http_conf){.name = "test", .types = types}, &g.http, &err), 0);
    g.who = gw_who_new(TOKEN);
    assert_int_equal(gw_users_open(path, &u, &err), 0);
    gw_bearer *b = NULL;
    assert_int_equal(gw_bearer_new(&(gw_bearer_conf){.roles = GW_ROLE_USER}, &b, &err), 0);
    assert_int_equal(gw_who_use_users(g.who, g.loop, u, b, &err), 0);
    gw_who_guard(g.who, g.http);
    for (const gw_noun *const *noun = gw_nouns; *noun; noun++)
        for (size_t i = 0; i < (*noun)->n; i++) {
            routes[n] = (*noun)->routes[i].http;
            if (strcmp(routes[n].pattern, "/login") != 0 && strcmp(routes[n].pattern, "/logout") != 0)
                routes[n].handler = came;
            n++;
        }
    pst_http_add_routes(g.http, routes, n, &g);
    return 0;
}

static int close_all(void **state)
{
    gw_who_free(g.who);
    pst_http_free(g.http);
    pst_loop_free(g.loop);
    return 0;
}

static int dial(const char *method, const char *at, const char *more)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)pst_http_port(g.http)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char *text = pst_sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s", method, at, more);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    free(text);
    return fd;
}

static int hear(int fd)
{
    size_t len = 0;
    ssize_t got = 1;
    for (int64_t end = pst_mono_us() + 20000000; got && pst_mono_us() < end;) {
        pst_loop_run_for(g.loop, 2);
        got = read(fd, answer + len, sizeof answer - 1 - len);
        len += got > 0 ? (size_t)got : 0;
    }
    answer[len] = 0;
    close(fd);
    return len > 9 ? atoi(answer + 9) : 0;
}

/* more: header lines; a blank line and a body may follow. */
static int ask(const char *method, const char *at, const char *more)
{
    char *all = strstr(more, "\r\n\r\n") ? pst_strdup(more) : pst_sprintf("%s\r\n", more);
    int fd = dial(method, at, all);
    free(all);
    return hear(fd);
}

static char *basic(const char *name, const char *password)
{
    char *pair = pst_sprintf("%s:%s", name, password), *text = pst_base64(pair, strlen(pair));
    char *line = pst_sprintf("Authorization: Basic %s\r\n", text);
    free(text);
    free(pair);
    return line;
}

static int ask_as(const char *name, const char *password, const char *method, const char *at)
{
    char *line = basic(name, password);
    int status = ask(method, at, line);
    free(line);
    return status;
}

static void path_of(const char *pattern, char room[128])
{
    size_t n = 0;
    for (const char *c = pattern; *c && n < 127; c++) {
        room[n++] = *c == '{' ? '1' : *c;
        if (*c == '{')
            c = strchr(c, '}');
    }
    room[n] = 0;
}

static void test_every_route_lets_in_whom_its_row_names(void **state)
{
    static const struct {
        const char *name;
        char letter; /* 0: an operator */
    } people[] = {{"vera", 'v'}, {"ann", 'u'}, {"olga", 0}};
    char at[128];
    for (size_t i = 0; i < N_TABLE; i++) {
        if (!strcmp(table[i].pattern, "/login") || !strcmp(table[i].pattern, "/logout"))
            continue;
        path_of(table[i].pattern, at);
        bool open = strpbrk(table[i].who, "el"); /* this test comes from loopback */
        int without = ask(table[i].method, at, "");
        if ((without == 200) != open || (!open && without != 401))
            fail_msg("%s %s without a credential: %d", table[i].method, at, without);
        for (size_t k = 0; k < 3; k++) {
            bool may = open || !people[k].letter || strchr(table[i].who, people[k].letter);
            int status = ask_as(people[k].name, "right", table[i].method, at);
            if (status != (may ? 200 : 403))
                fail_msg("%s %s as %s: %d %s", table[i].method, at, people[k].name, status, answer);
        }
    }
    assert_int_equal(ask_as("both", "right", "POST", "/v1/jobs"), 200);
    assert_int_equal(ask_as("both", "right", "GET", "/state"), 403);
    assert_int_equal(ask_as("ann", "right", "GET", "/nothing/there"), 404);
    assert_int_equal(ask("GET", "/nothing/there", ""), 401);
}

static void test_handlers_are_told_who_comes(void **state)
{
    static const struct {
        const char *name, *says;
    } rows[] = {{"vera", "in as vera, 1, ann's: 1 0"},
                {"ann", "in as ann, 2, ann's: 1 1"},
                {"bob", "in as bob, 2, ann's: 0 0"},
                {"both", "in as both, 3, ann's: 1 0"},
                {"olga", "in as olga, 4, ann's: 1 1"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(ask_as(rows[i].name, "right", "GET", "/v1/jobs"), 200);
        assert_non_null(strstr(answer, rows[i].says));
    }
}

static void test_what_is_not_a_users_password_lets_nobody_in(void **state)
{
    static const struct {
        const char *name, *password;
    } rows[] = {{"ann", "wrong"}, {"ann", ""},    {"eve", "right"}, {"", "right"},  {"ann", TOKEN},
                {"", TOKEN},      {"any", TOKEN}, {"ci", "*"},      {"ci", "right"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (ask_as(rows[i].name, rows[i].password, "GET", "/v1/jobs") != 401)
            fail_msg("%s:%s: %s", rows[i].name, rows[i].password, answer);
    assert_non_null(strstr(answer, "WWW-Authenticate: Basic"));
    assert_int_equal(ask("GET", "/v1/jobs", "Authorization: Bearer " TOKEN "\r\n"), 401);
    assert_int_equal(ask("GET", "/v1/jobs", "Authorization: Bearer right\r\n"), 401);
    assert_int_equal(ask("GET", "/v1/jobs", "Authorization: Basic !!!\r\n"), 401);
    assert_int_equal(ask("GET", "/?token=" TOKEN, ""), 401);
    char *line = pst_sprintf("Authorization: Basic %s\r\n", hash);
    assert_int_equal(ask("GET", "/v1/jobs", line), 401);
    free(line);
    assert_int_equal(ask_as("ann", hash, "GET", "/v1/jobs"), 401); /* the hash is no password */
}

static void test_a_body_is_read_after_the_password_was_looked_at(void **state)
{
    char *line = basic("bob", "right");
    char *more = pst_sprintf("%sContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", line);
    assert_int_equal(ask("POST", "/v1/jobs", more), 200); /* not remembered yet: the other thread is asked */
    assert_int_equal(ask("POST", "/v1/jobs", more), 200);
    free(more);
    more = pst_sprintf("%sContent-Type: application/json\r\nContent-Length: 999999999\r\n\r\n", line);
    assert_int_equal(ask("POST", "/v1/jobs", more), 413);
    free(more);
    free(line);
}

static void test_clients_that_leave_while_their_password_is_looked_at(void **state)
{
    char *line = basic("ann", "wrong"), *more = pst_sprintf("%s\r\n", line);
    for (int i = 0; i < 100; i++) { /* more than may wait: some are told so, all are gone */
        int fd = dial("GET", "/v1/jobs", more);
        pst_loop_run_for(g.loop, 1);
        close(fd);
    }
    assert_int_equal(ask("GET", "/health", ""), 200); /* the loop serves meanwhile */
    free(more);
    free(line);
}

static void test_a_password_that_was_right_at_the_end_is_answered_before_anything_is_freed(void **state)
{
    char *line = basic("ann", "right"), *more = pst_sprintf("%s\r\n", line);
    int fd = dial("GET", "/v1/jobs", more);
    pst_loop_run_for(g.loop, 1);
    usleep(1000000); /* it is looked at, and the loop does not run */
    gw_who_stop(g.who);
    memset(answer, 0, sizeof answer);
    ssize_t n = read(fd, answer, sizeof answer - 1);
    for (int i = 0; n < 0 && i < 50; i++) { /* the handler was asked; what it said is written by the loop */
        assert_true(came_n > 0);
        pst_loop_run_for(g.loop, 5);
        n = read(fd, answer, sizeof answer - 1);
    }
    assert_non_null(strstr(answer, "in as ann"));
    close(fd);
    assert_int_equal(ask_as("bob", "not his", "GET", "/v1/jobs"), 503); /* nothing is looked at any more */
    int before = came_n;
    gw_who_free(g.who);
    g.who = NULL;
    assert_int_equal(came_n, before);
    free(more);
    free(line);
}

/* ---- the thread that looks at passwords ---- */

static int said_right, said_wrong;

static void hear_verified(void *arg, bool right)
{
    *(right ? &said_right : &said_wrong) += 1;
}

static void nothing(void *arg)
{
}

static void wait_for(const int *n, int wanted)
{
    for (int64_t end = pst_mono_us() + 30000000; *n < wanted && pst_mono_us() < end;)
        pst_loop_run_for(g.loop, 2);
    assert_int_equal(*n, wanted);
}

static void test_one_address_does_not_fill_the_queue_of_passwords(void **state)
{
    pst_err err = {0};
    gw_verifier *v = NULL;
    char word[16];
    int taken = 0, again = 0;
    said_right = said_wrong = 0;
    assert_int_equal(pst_loop_new(&g.loop, &err), 0);
    assert_int_equal(gw_verifier_new(g.loop, &v, &err), 0);
    for (int i = 0; i < 100; i++) {
        snprintf(word, sizeof word, "guess %d", i);
        taken += gw_verifier_ask(v, "203.0.113.7", hash, word, hear_verified, NULL);
    }
    assert_int_equal(taken, 4);
    for (int i = 0; i < 10; i++) /* the same question costs nothing more */
        again += gw_verifier_ask(v, "203.0.113.7", hash, "guess 0", hear_verified, NULL);
    assert_int_equal(again, 10);
    for (int i = 0; i < 8; i++) { /* one /64 is one address */
        snprintf(word, sizeof word, "six %d", i);
        char *at = pst_sprintf("2001:db8::%x", i + 1);
        taken += gw_verifier_ask(v, at, hash, word, hear_verified, NULL);
        free(at);
    }
    assert_int_equal(taken, 8);
    for (int i = 0; i < 100; i++) { /* from loopback come many: half the queue */
        snprintf(word, sizeof word, "local %d", i);
        taken += gw_verifier_ask(v, "127.0.0.1", hash, word, hear_verified, NULL);
    }
    assert_int_equal(taken, 8 + 32);
    assert_true(gw_verifier_ask(v, "203.0.113.8", hash, "right", hear_verified, NULL)); /* another one is not kept out */
    wait_for(&said_right, 1);
    assert_int_equal(said_wrong, taken + again);
    assert_true(gw_verifier_ask(v, "203.0.113.7", hash, "guess 0", hear_verified, NULL)); /* answered ones are not counted */
    gw_verifier_free(v);
    assert_int_equal(said_wrong, taken + again + 1);
    pst_loop_free(g.loop);
}

static void test_an_answer_finds_its_way_when_the_loops_queue_was_full(void **state)
{
    pst_err err = {0};
    gw_verifier *v = NULL;
    said_right = said_wrong = 0;
    assert_int_equal(pst_loop_new(&g.loop, &err), 0);
    assert_int_equal(gw_verifier_new(g.loop, &v, &err), 0);
    while (pst_loop_post(g.loop, nothing, NULL) >= 0)
        ;
    assert_true(gw_verifier_ask(v, "203.0.113.7", hash, "right", hear_verified, NULL));
    usleep(1000000);
    wait_for(&said_right, 1);
    while (pst_loop_post(g.loop, nothing, NULL) >= 0)
        ;
    assert_true(gw_verifier_ask(v, "203.0.113.7", hash, "wrong", hear_verified, NULL));
    usleep(500000);
    gw_verifier_free(v); /* full to the end: answered all the same */
    assert_int_equal(said_wrong, 1);
    pst_loop_free(g.loop);
}

static char *header_of(const char *name)
{
    char *mark = pst_sprintf("\r\n%s: ", name), *at = strcasestr(answer, mark);
    char *value = at ? pst_strndup(at + strlen(mark), strcspn(at + strlen(mark), "\r;")) : NULL;
    free(mark);
    return value;
}

static int login(const char *body, const char *more)
{
    char *all = pst_sprintf("%sContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %zu\r\n\r\n%s", more, strlen(body), body);
    int status = ask("POST", "/login", all);
    free(all);
    return status;
}

static void test_login_opens_the_page_for_its_user_alone(void **state)
{
    char at[128];
    assert_int_equal(ask("GET", "/", "Accept: text/html\r\n"), 401);
    assert_non_null(strstr(answer, "<form method=post action=/login>"));
    assert_non_null(strstr(answer, "Content-Security-Policy: default-src 'none'; script-src 'sha256-"));
    assert_int_equal(login("name=ann&password=wrong", ""), 401);
    assert_null(strcasestr(answer, "Set-Cookie"));
    assert_non_null(strstr(answer, "role=alert"));
    assert_int_equal(login("name=ann&password=right", "Origin: http://evil.example\r\n"), 403);
    assert_int_equal(login("name=ann&password=right", "Sec-Fetch-Site: cross-site\r\n"), 403);
    assert_int_equal(login("name=ann&password=right", "Sec-Fetch-Site: same-origin\r\n"), 303);
    assert_non_null(strstr(answer, "HttpOnly; SameSite=Strict"));
    char *cookie = header_of("Set-Cookie"), *place = header_of("Location");
    assert_non_null(cookie);
    char *line = pst_sprintf("Cookie: %s\r\n", cookie);
    snprintf(at, sizeof at, "%sv1/jobs", place);
    assert_int_equal(ask("GET", at, line), 200);
    assert_non_null(strstr(answer, "in as ann, 2"));
    assert_int_equal(ask("GET", "/v1/jobs", line), 401); /* the cookie is for its place */
    assert_int_equal(ask("GET", at, ""), 401);           /* and the place lets nobody in without it */
    assert_int_equal(login("name=bob&password=right", ""), 303);
    char *his = header_of("Location");
    assert_string_not_equal(place, his);
    snprintf(at, sizeof at, "%sv1/jobs", his);
    assert_int_equal(ask("GET", at, line), 401); /* at another one's place it is none */
    snprintf(at, sizeof at, "%slogout", place);
    assert_int_equal(ask("POST", at, line), 204);
    assert_non_null(strstr(answer, "Max-Age=0"));
    free(his);
    free(line);
    free(place);
    free(cookie);
}

static void test_another_password_ends_sessions_and_what_was_remembered(void **state)
{
    pst_err err = {0};
    char *other = NULL, at[128];
    assert_int_equal(login("name=ann&password=right", ""), 303);
    char *cookie = header_of("Set-Cookie"), *place = header_of("Location"), *line = pst_sprintf("Cookie: %s\r\n", cookie);
    snprintf(at, sizeof at, "%sv1/jobs", place);
    assert_int_equal(ask("GET", at, line), 200);
    assert_int_equal(ask_as("ann", "right", "GET", "/v1/jobs"), 200);
    assert_int_equal(pst_password_hash("new one", &other, &err), 0);
    char *text = pst_sprintf("ann:%s:viewer\n", other);
    put(text, 0600);
    for (int i = 0; i < 2500; i++)
        pst_loop_run_for(g.loop, 1);
    assert_int_equal(ask("GET", at, line), 401);
    assert_int_equal(ask_as("ann", "right", "GET", "/v1/jobs"), 401);
    assert_int_equal(ask_as("ann", "new one", "GET", "/v1/jobs"), 200);
    assert_int_equal(ask_as("ann", "new one", "POST", "/v1/jobs"), 403);
    assert_int_equal(ask_as("olga", "right", "GET", "/v1/jobs"), 401); /* she is not in the file any more */
    free(text);
    free(other);
    free(line);
    free(place);
    free(cookie);
}

static void sign(void *arg, pst_http_req *req)
{
    pst_job_request *r = arg;
    gw_caller_sign(req, r);
    pst_http_reply_text(req, 200, "ok");
}

static void test_what_a_client_says_of_who_asks_is_nothing(void **state)
{
    static const struct {
        const char *name, *role;
    } rows[] = {{"ann", NULL}, {"olga", "operator"}};
    static const pst_http_route extra[] = {{"GET", "/sign", sign, 0, GW_ALL, NULL}};
    pst_job_request r = {0};
    pst_http_add_routes(g.http, extra, 1, &r);
    for (size_t i = 0; i < 2; i++) {
        r.user = pst_strdup("somebody else");
        pst_str_map_set(&r.options, &r.n_options, PST_REQUEST_ROLE, "operator");
        pst_str_map_set(&r.options, &r.n_options, "priority", "3");
        assert_int_equal(ask_as(rows[i].name, "right", "GET", "/sign"), 200);
        assert_string_equal(r.user, rows[i].name);
        const char *role = pst_str_map_get(r.options, r.n_options, PST_REQUEST_ROLE);
        if (rows[i].role)
            assert_string_equal(role, rows[i].role);
        else
            assert_null(role);
        assert_string_equal(pst_str_map_get(r.options, r.n_options, "priority"), "3");
        pst_event_clear(&pst_job_request_type, &r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_users_file_is_read_whole),
        cmocka_unit_test(test_users_file_that_is_not_sound_is_refused_with_its_line),
        cmocka_unit_test(test_users_file_that_others_may_write_is_refused),
        cmocka_unit_test(test_users_file_is_read_again_and_a_broken_one_changes_nothing),
        cmocka_unit_test(test_users_file_that_could_not_be_read_is_tried_again_as_it_is),
        cmocka_unit_test(test_session_is_its_users_until_its_time_or_a_change),
        cmocka_unit_test(test_form_fields_are_decoded_once),
        cmocka_unit_test(test_owner_is_who_the_first_event_proves),
        cmocka_unit_test(test_owner_of_a_task_is_its_arrays),
        cmocka_unit_test(test_every_route_says_who_may),
        cmocka_unit_test_setup_teardown(test_every_route_lets_in_whom_its_row_names, serve, close_all),
        cmocka_unit_test_setup_teardown(test_handlers_are_told_who_comes, serve, close_all),
        cmocka_unit_test_setup_teardown(test_what_is_not_a_users_password_lets_nobody_in, serve, close_all),
        cmocka_unit_test_setup_teardown(test_a_body_is_read_after_the_password_was_looked_at, serve, close_all),
        cmocka_unit_test_setup_teardown(test_clients_that_leave_while_their_password_is_looked_at, serve, close_all),
        cmocka_unit_test_setup_teardown(test_a_password_that_was_right_at_the_end_is_answered_before_anything_is_freed, serve, close_all),
        cmocka_unit_test(test_one_address_does_not_fill_the_queue_of_passwords),
        cmocka_unit_test(test_an_answer_finds_its_way_when_the_loops_queue_was_full),
        cmocka_unit_test_setup_teardown(test_login_opens_the_page_for_its_user_alone, serve, close_all),
        cmocka_unit_test_setup_teardown(test_another_password_ends_sessions_and_what_was_remembered, serve, close_all),
        cmocka_unit_test_setup_teardown(test_what_a_client_says_of_who_asks_is_nothing, serve, close_all),
    };
    return cmocka_run_group_tests(tests, begin, finish);
}
