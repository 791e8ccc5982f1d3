/* test_registry_core.c - the registry's core by vectors: request → status, error_code, and what the topic gets; replay; hostile records. */
#include "deploy/registry/registry_canon.h"
#include "deploy/registry/registry_core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define V1  "{\"type\":\"record\",\"name\":\"T\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"}]}"
#define V1S " { \"name\" : \"T\", \"type\" : \"record\", \"fields\" : [ { \"type\" : {\"type\":\"int\"}, \"name\" : \"a\" } ] } "
#define V1D "{\"type\":\"record\",\"name\":\"T\",\"fields\":[{\"name\":\"a\",\"type\":\"int\",\"default\":3}]}"
#define V2                                                                                                                                \
    "{\"type\":\"record\",\"name\":\"T\",\"fields\":[{\"name\":\"a\",\"type\":\"long\"},{\"name\":\"b\",\"type\":\"string\",\"default\":" \
    "\"x\"}]}"
#define BAD "{\"type\":\"record\",\"name\":\"T\",\"fields\":[{\"name\":\"a\",\"type\":\"string\"}]}"

typedef struct log_record {
    char *key, *value;
} log_record;

typedef struct world {
    rcore *core;
    log_record *log; /* the topic, as written */
    size_t n;
    rcore_reply last;
} world;

static int set_up(void **state)
{
    world *w = pst_alloc(sizeof *w);
    w->core = rcore_new();
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    world *w = *state;
    for (size_t i = 0; i < w->n; i++) {
        free(w->log[i].key);
        free(w->log[i].value);
    }
    free(w->log);
    rcore_reply_done(&w->last);
    rcore_free(w->core);
    free(w);
    return 0;
}

static int apply(rcore *core, const char *key, const char *value)
{
    pst_err err = {0};
    return rcore_apply(core, key, strlen(key), value, value ? strlen(value) : 0, &err);
}

/* Asks, writes what is to be written, and returns status * 100000 + error_code. */
static int ask(world *w, rcore_request q)
{
    rcore_reply_done(&w->last);
    if (!q.limit)
        q.limit = -1;
    q.body_len = q.body ? strlen(q.body) : 0;
    rcore_handle(w->core, &q, &w->last);
    for (size_t i = 0; i < w->last.n_writes; i++) {
        const rcore_write *r = &w->last.writes[i];
        w->log = pst_realloc(w->log, (w->n + 1) * sizeof *w->log);
        w->log[w->n++] = (log_record){pst_strdup(r->key), pst_strdup(r->value)};
        assert_int_equal(apply(w->core, r->key, r->value), 0);
    }
    return w->last.status * 100000 + w->last.error_code;
}

#define OK       20000000
#define ASK(...) ask(w, (rcore_request){__VA_ARGS__})

static char *body_of(const char *schema)
{
    static char *last;
    free(last);
    pst_buf b = {0};
    pst_buf_adds(&b, "{\"schema\":");
    pst_json_quote(&b, schema, strlen(schema));
    pst_buf_addc(&b, '}');
    return last = pst_buf_steal(&b);
}

static int post(world *w, rcore_op op, const char *subject, const char *schema)
{
    return ASK(.op = op, .subject = subject, .body = body_of(schema));
}

static int64_t id_of(const world *w)
{
    return pst_json_int(w->last.body, "id", -1);
}

static void expect_text(const world *w, const char *expected)
{
    char *text = json_dumps(w->last.body, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(text, expected);
    free(text);
}

static void test_registry_registers_once(void **state)
{
    world *w = *state;
    assert_int_equal(post(w, PST_ROP_REGISTER, "t-value", V1), OK);
    expect_text(w, "{\"id\":1}");
    assert_int_equal(w->n, 1);
    assert_string_equal(w->log[0].key, "{\"keytype\":\"SCHEMA\",\"subject\":\"t-value\",\"version\":1,\"magic\":1}");
    assert_non_null(strstr(w->log[0].value, "{\"subject\":\"t-value\",\"version\":1,\"id\":1,\"schema\":\"{\\\"type\\\":\\\"record\\\""));
    assert_non_null(strstr(w->log[0].value, ",\"deleted\":false}"));
    assert_int_equal(post(w, PST_ROP_REGISTER, "t-value", V1), OK);
    assert_int_equal(id_of(w), 1);
    assert_int_equal(post(w, PST_ROP_REGISTER, "t-value", V1S), OK); /* other spelling, same schema */
    assert_int_equal(id_of(w), 1);
    assert_int_equal(w->n, 1);
    assert_int_equal(post(w, PST_ROP_REGISTER, "other-value", V1), OK); /* same id in another subject */
    assert_int_equal(id_of(w), 1);
    assert_int_equal(post(w, PST_ROP_REGISTER, "t-value", V1D), OK); /* a default is a difference */
    assert_int_equal(id_of(w), 2);
    assert_int_equal(ASK(.op = PST_ROP_REGISTER, .subject = "t-value", .extras = true, .body = body_of(V1D)), OK);
    assert_int_equal(pst_json_int(w->last.body, "version", -1), 2);
}

static void test_registry_reads(void **state)
{
    world *w = *state;
    assert_int_equal(ASK(.op = PST_ROP_SUBJECTS), OK);
    expect_text(w, "[]");
    post(w, PST_ROP_REGISTER, "t-value", V1);
    post(w, PST_ROP_REGISTER, "t-value", V2);
    post(w, PST_ROP_REGISTER, "a-value", V2);
    assert_int_equal(ASK(.op = PST_ROP_SUBJECTS), OK);
    expect_text(w, "[\"a-value\",\"t-value\"]");
    ASK(.op = PST_ROP_SUBJECTS, .prefix = "t");
    expect_text(w, "[\"t-value\"]");
    ASK(.op = PST_ROP_SUBJECTS, .offset = 1, .limit = 1);
    expect_text(w, "[\"t-value\"]");
    ASK(.op = PST_ROP_VERSIONS, .subject = "t-value");
    expect_text(w, "[1,2]");
    ASK(.op = PST_ROP_VERSIONS, .subject = ":.:t-value"); /* the default context, spelt out */
    expect_text(w, "[1,2]");
    assert_int_equal(ASK(.op = PST_ROP_VERSION, .subject = "t-value", .version = "latest"), OK);
    assert_int_equal(pst_json_int(w->last.body, "version", 0), 2);
    assert_string_equal(pst_json_str(w->last.body, "schema", ""), V2);
    ASK(.op = PST_ROP_VERSION, .subject = "t-value", .version = "-1");
    assert_int_equal(id_of(w), 2);
    ASK(.op = PST_ROP_VERSION_TEXT, .subject = "t-value", .version = "1");
    assert_string_equal(w->last.text, V1);
    assert_int_equal(ASK(.op = PST_ROP_ID, .id = "2", .max_id = true), OK);
    assert_string_equal(pst_json_str(w->last.body, "schema", ""), V2);
    assert_int_equal(pst_json_int(w->last.body, "maxId", 0), 2);
    ASK(.op = PST_ROP_ID_TEXT, .id = "1");
    assert_string_equal(w->last.text, V1);
    ASK(.op = PST_ROP_ID_SUBJECTS, .id = "2");
    expect_text(w, "[\"t-value\",\"a-value\"]");
    ASK(.op = PST_ROP_ID_VERSIONS, .id = "1");
    expect_text(w, "[{\"subject\":\"t-value\",\"version\":1}]");
    ASK(.op = PST_ROP_SCHEMAS, .latest_only = true);
    assert_int_equal(json_array_size(w->last.body), 2);
    ASK(.op = PST_ROP_TYPES);
    expect_text(w, "[\"AVRO\"]");
    ASK(.op = PST_ROP_CONTEXTS);
    expect_text(w, "[\".\"]");
    ASK(.op = PST_ROP_REFERENCED, .subject = "t-value", .version = "1");
    expect_text(w, "[]");
    assert_int_equal(post(w, PST_ROP_LOOKUP, "t-value", V1S), OK);
    assert_int_equal(id_of(w), 1);
    size_t counts[3];
    rcore_counts(w->core, counts);
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 3);
    assert_int_equal(counts[2], 2);
}

/* Status and error_code of refusals, as Confluent's registry gives them. */
static void test_registry_refuses_by_the_book(void **state)
{
    world *w = *state;
    post(w, PST_ROP_REGISTER, "t-value", V1);
    assert_int_equal(ASK(.op = PST_ROP_VERSIONS, .subject = "no"), 40440401);
    assert_int_equal(ASK(.op = PST_ROP_VERSION, .subject = "no", .version = "1"), 40440401);
    assert_int_equal(ASK(.op = PST_ROP_VERSION, .subject = "t-value", .version = "7"), 40440402);
    assert_int_equal(ASK(.op = PST_ROP_VERSION, .subject = "t-value", .version = "0"), 42242202);
    assert_int_equal(ASK(.op = PST_ROP_VERSION, .subject = "t-value", .version = "x"), 42242202);
    assert_int_equal(ASK(.op = PST_ROP_VERSION, .subject = "t-value", .version = "99999999999"), 42242202);
    assert_int_equal(ASK(.op = PST_ROP_ID, .id = "99999"), 40440403);
    assert_int_equal(ASK(.op = PST_ROP_ID, .id = "99999999999999"), 40440403);
    assert_int_equal(ASK(.op = PST_ROP_ID, .id = "1", .query_subject = ":.no:s"), 40440403);
    assert_int_equal(ASK(.op = PST_ROP_GUID, .id = "x"), 40440403);
    assert_int_equal(post(w, PST_ROP_LOOKUP, "t-value", V2), 40440403);
    assert_int_equal(post(w, PST_ROP_LOOKUP, "no", V2), 40440401);
    assert_int_equal(post(w, PST_ROP_REGISTER, "t-value", "{\"type\":\"nonsense\"}"), 42242201);
    assert_int_equal(post(w, PST_ROP_REGISTER, "t-value", ""), 42242201);
    assert_int_equal(ASK(.op = PST_ROP_REGISTER, .subject = "t-value", .body = "{}"), 42242201);
    assert_int_equal(ASK(.op = PST_ROP_REGISTER, .subject = "t-value", .body = "{\"schemaType\":\"JSON\",\"schema\":\"{}\"}"), 42242201);
    assert_int_equal(ASK(.op = PST_ROP_REGISTER, .subject = "t-value",
                         .body = "{\"schema\":\"\\\"int\\\"\",\"references\":[{\"name\":\"a\",\"subject\":\"b\",\"version\":1}]}"),
                     42242201);
    assert_int_equal(ASK(.op = PST_ROP_REGISTER, .subject = "t-value", .body = "no json"), 40000400);
    assert_int_equal(ASK(.op = PST_ROP_REGISTER, .subject = "t-value", .body = "[]"), 40000400);
    assert_int_equal(ASK(.op = PST_ROP_REGISTER, .subject = "t\nx", .body = body_of(V1)), 42242208);
    assert_int_equal(ASK(.op = PST_ROP_REGISTER, .subject = "t\xff", .body = body_of(V1)), 42242208);
    assert_int_equal(post(w, PST_ROP_REGISTER, "t-value", BAD), 40900409);
    assert_int_equal(ASK(.op = PST_ROP_CONFIG_GET, .subject = "t-value"), 40440408);
    assert_int_equal(ASK(.op = PST_ROP_MODE_GET, .subject = "t-value"), 40440409);
    assert_int_equal(ASK(.op = PST_ROP_CONFIG_PUT, .body = "{\"compatibility\":\"SIDEWAYS\"}"), 42242203);
    assert_int_equal(ASK(.op = PST_ROP_MODE_PUT, .body = "{\"mode\":\"X\"}"), 42242204);
    assert_int_equal(ASK(.op = PST_ROP_MODE_PUT, .body = "{\"mode\":\"IMPORT\"}"), 42242205);
    assert_int_equal(ASK(.op = PST_ROP_CONFIG_DELETE, .subject = "no"), 40440401);
    assert_int_equal(w->n, 1); /* none of it reached the topic */
}

static void test_registry_record_too_large(void **state)
{
    world *w = *state;
    pst_buf b = {0};
    pst_buf_adds(&b, "{\"type\":\"record\",\"name\":\"T\",\"doc\":\"");
    for (int i = 0; i < 100000; i++)
        pst_buf_adds(&b, "0123456789");
    pst_buf_adds(&b, "\",\"fields\":[]}");
    assert_int_equal(post(w, PST_ROP_REGISTER, "t-value", b.data), 42242209);
    assert_int_equal(w->n, 0);
    pst_buf_done(&b);
}

static bool says_compatible(world *w, const char *subject, const char *version, const char *schema)
{
    assert_int_equal(ASK(.op = PST_ROP_COMPATIBLE, .subject = subject, .version = version, .verbose = true, .body = body_of(schema)), OK);
    bool yes = pst_json_bool(w->last.body, "is_compatible", false);
    assert_int_equal(json_array_size(json_object_get(w->last.body, "messages")) == 0, yes);
    return yes;
}

static void set_level(world *w, const char *subject, const char *level)
{
    char *body = pst_sprintf("{\"compatibility\":\"%s\"}", level);
    assert_int_equal(ASK(.op = PST_ROP_CONFIG_PUT, .subject = subject, .body = body), OK);
    assert_string_equal(pst_json_str(w->last.body, "compatibility", ""), level);
    free(body);
}

static void test_registry_compatibility_levels(void **state)
{
    static const struct {
        const char *level;
        bool widen, back; /* int → long + defaulted field; and the reverse */
    } rows[] = {{"BACKWARD", true, false},
                {"FORWARD", false, true},
                {"FULL", false, false},
                {"NONE", true, true},
                {"BACKWARD_TRANSITIVE", true, false},
                {"FORWARD_TRANSITIVE", false, true},
                {"FULL_TRANSITIVE", false, false}};
    world *w = *state;
    post(w, PST_ROP_REGISTER, "one", V1);
    post(w, PST_ROP_REGISTER, "two", V2);
    assert_true(says_compatible(w, "one", "latest", V2)); /* BACKWARD is the default */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        set_level(w, NULL, rows[i].level);
        assert_int_equal(says_compatible(w, "one", "latest", V2), rows[i].widen);
        assert_int_equal(says_compatible(w, "two", "1", V1), rows[i].back);
        assert_int_equal(says_compatible(w, "two", NULL, V1), rows[i].back);
    }
    assert_int_equal(ASK(.op = PST_ROP_CONFIG_PUT, .subject = "two", .body = "{\"compatibility\":\"full\"}"), OK);
    expect_text(w, "{\"compatibility\":\"FULL\"}");
    assert_int_equal(ASK(.op = PST_ROP_CONFIG_DELETE, .subject = "two"), OK);
    assert_true(says_compatible(w, "never-seen", "latest", V1));
    assert_int_equal(ASK(.op = PST_ROP_COMPATIBLE, .subject = "one", .version = "9", .body = body_of(V1)), 40440402);
    set_level(w, "one", "NONE");
    assert_int_equal(post(w, PST_ROP_REGISTER, "one", BAD), OK);
    assert_int_equal(ASK(.op = PST_ROP_CONFIG_GET, .subject = "one"), OK);
    expect_text(w, "{\"compatibilityLevel\":\"NONE\"}");
    ASK(.op = PST_ROP_CONFIG_GET, .subject = "two", .default_to_global = true);
    expect_text(w, "{\"compatibilityLevel\":\"FULL_TRANSITIVE\"}");
    assert_int_equal(ASK(.op = PST_ROP_CONFIG_DELETE, .subject = "one"), OK);
    assert_int_equal(ASK(.op = PST_ROP_CONFIG_DELETE), OK);
    ASK(.op = PST_ROP_CONFIG_GET);
    expect_text(w, "{\"compatibilityLevel\":\"BACKWARD\"}");
}

/* BACKWARD looks at the latest version alone, BACKWARD_TRANSITIVE at all. */
static void test_registry_transitive_looks_at_all_versions(void **state)
{
    static const char with_x[] = "{\"type\":\"record\",\"name\":\"T\",\"fields\":[{\"name\":\"x\",\"type\":\"int\"}]}";
    static const char without[] = "{\"type\":\"record\",\"name\":\"T\",\"fields\":[]}";
    static const char x_text[] = "{\"type\":\"record\",\"name\":\"T\",\"fields\":[{\"name\":\"x\",\"type\":\"string\",\"default\":\"\"}]}";
    world *w = *state;
    post(w, PST_ROP_REGISTER, "s", with_x);
    assert_int_equal(post(w, PST_ROP_REGISTER, "s", without), OK);
    assert_true(says_compatible(w, "s", NULL, x_text));
    set_level(w, "s", "BACKWARD_TRANSITIVE");
    assert_false(says_compatible(w, "s", NULL, x_text));
    assert_true(says_compatible(w, "s", "2", x_text)); /* asked of one version: that one */
    assert_int_equal(post(w, PST_ROP_REGISTER, "s", x_text), 40900409);
    ASK(.op = PST_ROP_DELETE_VERSION, .subject = "s", .version = "1");
    assert_int_equal(post(w, PST_ROP_REGISTER, "s", x_text), OK); /* deleted versions do not count */
}

static void test_registry_delete(void **state)
{
    world *w = *state;
    post(w, PST_ROP_REGISTER, "s", V1);
    post(w, PST_ROP_REGISTER, "s", V2);
    assert_int_equal(ASK(.op = PST_ROP_DELETE_SUBJECT, .subject = "no"), 40440401);
    assert_int_equal(ASK(.op = PST_ROP_DELETE_VERSION, .subject = "s", .version = "2", .permanent = true), 40440407);
    assert_int_equal(ASK(.op = PST_ROP_DELETE_VERSION, .subject = "s", .version = "2"), OK);
    expect_text(w, "2");
    assert_int_equal(ASK(.op = PST_ROP_DELETE_VERSION, .subject = "s", .version = "2"), 40440406);
    assert_int_equal(ASK(.op = PST_ROP_VERSION, .subject = "s", .version = "2"), 40440402);
    assert_int_equal(ASK(.op = PST_ROP_VERSION, .subject = "s", .version = "2", .deleted = true), OK);
    assert_int_equal(ASK(.op = PST_ROP_ID, .id = "2"), OK); /* soft-deleted ids stay readable */
    assert_int_equal(post(w, PST_ROP_REGISTER, "s", V2), OK);
    assert_int_equal(id_of(w), 2);
    ASK(.op = PST_ROP_VERSIONS, .subject = "s");
    expect_text(w, "[1,3]"); /* deleted versions are counted */
    assert_int_equal(ASK(.op = PST_ROP_DELETE_VERSION, .subject = "s", .version = "2", .permanent = true), OK);
    assert_null(w->log[w->n - 1].value);
    assert_int_equal(ASK(.op = PST_ROP_ID, .id = "2"), OK); /* version 3 has it */
    set_level(w, "s", "NONE");
    assert_int_equal(ASK(.op = PST_ROP_DELETE_SUBJECT, .subject = "s", .permanent = true), 40440405);
    assert_int_equal(ASK(.op = PST_ROP_DELETE_SUBJECT, .subject = "s"), OK);
    expect_text(w, "[1,3]");
    assert_string_equal(w->log[w->n - 2].key, "{\"keytype\":\"DELETE_SUBJECT\",\"subject\":\"s\",\"magic\":0}");
    assert_string_equal(w->log[w->n - 2].value, "{\"subject\":\"s\",\"version\":3}");
    assert_string_equal(w->log[w->n - 1].key, "{\"keytype\":\"CONFIG\",\"subject\":\"s\",\"magic\":0}");
    assert_int_equal(ASK(.op = PST_ROP_DELETE_SUBJECT, .subject = "s"), 40440404);
    assert_int_equal(ASK(.op = PST_ROP_VERSIONS, .subject = "s"), 40440401);
    assert_int_equal(ASK(.op = PST_ROP_SUBJECTS), OK);
    expect_text(w, "[]");
    ASK(.op = PST_ROP_SUBJECTS, .deleted = true);
    expect_text(w, "[\"s\"]");
    ASK(.op = PST_ROP_SUBJECTS, .deleted_only = true);
    expect_text(w, "[\"s\"]");
    assert_int_equal(ASK(.op = PST_ROP_DELETE_SUBJECT, .subject = "s", .permanent = true), OK);
    expect_text(w, "[1,3]");
    assert_int_equal(ASK(.op = PST_ROP_ID, .id = "1"), 40440403);
    assert_int_equal(post(w, PST_ROP_REGISTER, "n", BAD), OK);
    assert_int_equal(id_of(w), 3); /* ids of the dead are not given again */
}

static void test_registry_modes(void **state)
{
    world *w = *state;
    post(w, PST_ROP_REGISTER, "s", V1);
    assert_int_equal(ASK(.op = PST_ROP_MODE_PUT, .subject = "s", .body = "{\"mode\":\"READONLY\"}"), OK);
    assert_string_equal(w->log[w->n - 1].key, "{\"keytype\":\"MODE\",\"subject\":\"s\",\"magic\":0}");
    assert_string_equal(w->log[w->n - 1].value, "{\"subject\":\"s\",\"mode\":\"READONLY\"}");
    assert_int_equal(post(w, PST_ROP_REGISTER, "s", V2), 42242205);
    assert_int_equal(ASK(.op = PST_ROP_DELETE_SUBJECT, .subject = "s"), 42242205);
    assert_int_equal(post(w, PST_ROP_REGISTER, "other", V2), OK);
    assert_int_equal(ASK(.op = PST_ROP_MODE_DELETE, .subject = "s"), OK);
    assert_int_equal(post(w, PST_ROP_REGISTER, "s", V2), OK);
    assert_int_equal(ASK(.op = PST_ROP_REGISTER, .subject = "new", .body = "{\"schema\":\"\\\"int\\\"\",\"id\":50}"), 42242205);
    assert_int_equal(ASK(.op = PST_ROP_MODE_PUT, .subject = "new", .body = "{\"mode\":\"IMPORT\"}"), OK);
    assert_int_equal(ASK(.op = PST_ROP_REGISTER, .subject = "new", .body = "{\"schema\":\"\\\"int\\\"\",\"id\":50,\"version\":4}"), OK);
    assert_int_equal(id_of(w), 50);
    assert_int_equal(ASK(.op = PST_ROP_REGISTER, .subject = "new", .body = "{\"schema\":\"\\\"long\\\"\",\"id\":50,\"version\":5}"),
                     42242207);
    assert_int_equal(ASK(.op = PST_ROP_VERSION, .subject = "new", .version = "4"), OK);
    assert_int_equal(ASK(.op = PST_ROP_MODE_PUT, .force = true, .body = "{\"mode\":\"READONLY_OVERRIDE\"}"), OK);
    assert_int_equal(post(w, PST_ROP_REGISTER, "any", V1), 42242205);
    ASK(.op = PST_ROP_MODE_GET, .subject = "any", .default_to_global = true);
    expect_text(w, "{\"mode\":\"READONLY_OVERRIDE\"}");
}

static void test_registry_contexts_have_own_ids(void **state)
{
    world *w = *state;
    post(w, PST_ROP_REGISTER, "s", V1);
    post(w, PST_ROP_REGISTER, "s", V2);
    assert_int_equal(post(w, PST_ROP_REGISTER, ":.lab:s", V2), OK);
    assert_int_equal(id_of(w), 1);
    assert_int_equal(ASK(.op = PST_ROP_ID, .id = "1", .query_subject = ":.lab:s"), OK);
    assert_string_equal(pst_json_str(w->last.body, "schema", ""), V2);
    ASK(.op = PST_ROP_ID, .id = "1");
    assert_string_equal(pst_json_str(w->last.body, "schema", ""), V1);
    ASK(.op = PST_ROP_CONTEXTS);
    expect_text(w, "[\".\",\".lab\"]");
}

/* The topic, replayed whole and compacted, gives the same registry. */
static void test_registry_replay_gives_the_same_state(void **state)
{
    world *w = *state;
    post(w, PST_ROP_REGISTER, "s", V1);
    post(w, PST_ROP_REGISTER, "s", V2);
    post(w, PST_ROP_REGISTER, "gone", V1);
    ASK(.op = PST_ROP_DELETE_SUBJECT, .subject = "gone");
    ASK(.op = PST_ROP_DELETE_SUBJECT, .subject = "gone", .permanent = true);
    ASK(.op = PST_ROP_DELETE_VERSION, .subject = "s", .version = "1");
    post(w, PST_ROP_REGISTER, "soft", BAD);
    ASK(.op = PST_ROP_DELETE_SUBJECT, .subject = "soft");
    post(w, PST_ROP_REGISTER, "soft", V1);
    set_level(w, "s", "FULL");
    set_level(w, NULL, "NONE");
    ASK(.op = PST_ROP_SCHEMAS, .deleted = true);
    char *expected = json_dumps(w->last.body, JSON_COMPACT);
    for (int compacted = 0; compacted < 2; compacted++) {
        world other = {.core = rcore_new()};
        for (size_t i = 0; i < w->n; i++) {
            bool last = true;
            for (size_t k = i + 1; compacted && k < w->n; k++)
                last &= strcmp(w->log[i].key, w->log[k].key) != 0;
            if (last)
                assert_int_equal(apply(other.core, w->log[i].key, w->log[i].value), 0);
        }
        world *o = &other;
        ask(o, (rcore_request){.op = PST_ROP_SCHEMAS, .deleted = true});
        expect_text(o, expected);
        ask(o, (rcore_request){.op = PST_ROP_CONFIG_GET, .subject = "s"});
        expect_text(o, "{\"compatibilityLevel\":\"FULL\"}");
        rcore_reply_done(&other.last);
        rcore_free(other.core);
    }
    free(expected);
}

/* Records as Confluent's servers write them: more fields, null subjects, other types, key types of the future. */
static void test_registry_reads_foreign_records(void **state)
{
    world *w = *state;
    assert_int_equal(
        apply(w->core, "{\"keytype\":\"CONFIG\",\"subject\":null,\"magic\":0}", "{\"subject\":null,\"compatibilityLevel\":\"FORWARD\"}"),
        0);
    assert_int_equal(
        apply(
            w->core, "{\"keytype\":\"SCHEMA\",\"subject\":\"p\",\"version\":1,\"magic\":1}",
            "{\"version\":1,\"id\":9,\"md5\":\"x\",\"schemaType\":\"PROTOBUF\",\"schema\":\"syntax = \\\"proto3\\\";\",\"deleted\":false}"),
        0);
    assert_int_equal(apply(w->core, "{\"keytype\":\"CLEAR_SUBJECT\",\"subject\":\"p\",\"magic\":0}", "{}"), 0);
    assert_int_equal(apply(w->core, PST_RKEY_NOOP, NULL), 0);
    ASK(.op = PST_ROP_CONFIG_GET);
    expect_text(w, "{\"compatibilityLevel\":\"FORWARD\"}");
    assert_int_equal(ASK(.op = PST_ROP_ID, .id = "9"), OK);
    assert_string_equal(pst_json_str(w->last.body, "schemaType", ""), "PROTOBUF");
    assert_int_equal(post(w, PST_ROP_REGISTER, "p", V1), 40900409); /* cannot be compared */
    assert_int_equal(post(w, PST_ROP_REGISTER, "q", V1), OK);
    assert_int_equal(id_of(w), 10);
}

static void test_registry_hostile_records_are_refused(void **state)
{
    static const char *const keys[] = {"",
                                       "{",
                                       "[]",
                                       "\"x\"",
                                       "{\"keytype\":\"SCHEMA\"}",
                                       "{\"keytype\":\"SCHEMA\",\"subject\":\"\",\"version\":1}",
                                       "{\"keytype\":\"SCHEMA\",\"subject\":\"s\",\"version\":-1}",
                                       "{\"keytype\":\"SCHEMA\",\"subject\":\"s\",\"version\":1}",
                                       "{\"keytype\":\"DELETE_SUBJECT\"}",
                                       "{\"keytype\":7}"};
    static const char *const values[] = {"",
                                         "{",
                                         "[]",
                                         "{\"id\":-1,\"schema\":\"x\"}",
                                         "{\"id\":99999999999,\"schema\":\"x\"}",
                                         "{\"id\":1}",
                                         "{\"id\":1,\"schema\":7}",
                                         "{\"id\":1,\"schema\":\"not a schema\"}",
                                         "{\"version\":\"x\"}"};
    world *w = *state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (size_t k = 0; k < sizeof values / sizeof *values; k++)
            apply(w->core, keys[i], values[k]);
    assert_int_equal(apply(w->core, "{\"keytype\":\"SCHEMA\",\"subject\":\"t\",\"version\":1}", "{\"id\":1,\"schema\":\"\\\"int\\\"\"}"),
                     PST_EPARSE);
    assert_int_equal(ASK(.op = PST_ROP_VERSION_TEXT, .subject = "s", .version = "1"), OK);
    assert_string_equal(w->last.text, "not a schema"); /* the first that claimed id 1 is kept */
    rcore_clear(w->core);
    ASK(.op = PST_ROP_SUBJECTS, .deleted = true);
    expect_text(w, "[]");
}

static void test_registry_canon_sees_spelling_only(void **state)
{
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"\"int\"", "{\"type\":\"int\"}", true},
        {"{\"type\":{\"type\":\"int\"}}", " \"int\" ", true},
        {"{\"type\":\"enum\",\"name\":\"E\",\"namespace\":\"n\",\"symbols\":[\"A\"]}",
         "{\"type\":\"enum\",\"name\":\"n.E\",\"symbols\":[\"A\"]}", true},
        {"{\"type\":\"record\",\"name\":\"n.R\",\"fields\":[{\"name\":\"r\",\"type\":[\"null\",\"R\"]}]}",
         "{\"type\":\"record\",\"name\":\"R\",\"namespace\":\"n\",\"fields\":[{\"name\":\"r\",\"type\":[\"null\",\"n.R\"]}]}", true},
        {"{\"type\":\"record\",\"name\":\"R\",\"doc\":\"d\",\"fields\":[]}", "{\"type\":\"record\",\"name\":\"R\",\"fields\":[]}", false},
        {"{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}", "\"long\"", false},
        {"[\"null\",\"int\"]", "[\"int\",\"null\"]", false},
        {"{\"type\":\"map\",\"values\":{\"type\":\"string\"}}", "{\"values\":\"string\",\"type\":\"map\"}", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *a = registry_canon(rows[i].a, strlen(rows[i].a)), *b = registry_canon(rows[i].b, strlen(rows[i].b));
        assert_non_null(a);
        assert_non_null(b);
        assert_int_equal(strcmp(a, b) == 0, rows[i].same);
        free(a);
        free(b);
    }
    assert_null(registry_canon("{", 1));
    pst_buf deep = {0};
    for (int i = 0; i < 200; i++)
        pst_buf_adds(&deep, "{\"type\":\"array\",\"items\":");
    pst_buf_adds(&deep, "\"int\"");
    for (int i = 0; i < 200; i++)
        pst_buf_adds(&deep, "}");
    assert_null(registry_canon(deep.data, deep.len));
    pst_buf_done(&deep);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_registry_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {T(registers_once),
                                       T(reads),
                                       T(refuses_by_the_book),
                                       T(record_too_large),
                                       T(compatibility_levels),
                                       T(transitive_looks_at_all_versions),
                                       T(delete),
                                       T(modes),
                                       T(contexts_have_own_ids),
                                       T(replay_gives_the_same_state),
                                       T(reads_foreign_records),
                                       T(hostile_records_are_refused),
                                       T(canon_sees_spelling_only)};
    int rc = cmocka_run_group_tests_name("registry_core", tests, NULL, NULL);
    return rc;
}
