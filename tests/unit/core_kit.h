/* core_kit.h - a core with a registry of one schema, and its output read back: for the tests of the scorer's core. */
#ifndef PST_TESTS_CORE_KIT_H
#define PST_TESTS_CORE_KIT_H

#include "tests/unit/score_kit.h"

static const char record_schema[] =
    "{\"type\":\"record\",\"name\":\"Reading\",\"namespace\":\"mill\",\"fields\":["
    "{\"name\":\"host\",\"type\":\"string\"},"
    "{\"name\":\"cpu\",\"type\":[\"null\",{\"type\":\"record\",\"name\":\"Cpu\",\"fields\":[{\"name\":\"user\",\"type\":[\"null\","
    "\"double\"],\"default\":null},"
    "{\"name\":\"sys\",\"type\":\"float\"}]}],\"default\":null},"
    "{\"name\":\"n\",\"type\":\"int\",\"default\":0},"
    "{\"name\":\"on\",\"type\":\"boolean\",\"default\":false},"
    "{\"name\":\"mode\",\"type\":{\"type\":\"enum\",\"name\":\"Mode\",\"symbols\":[\"idle\",\"busy\",\"odd\"]},\"default\":\"idle\"},"
    "{\"name\":\"tag\",\"type\":[\"string\",\"null\"],\"default\":\"\"}]}";

typedef struct world {
    pst_schema *schema;
    char *output_schema;
    int asked; /* how often schema 9 was asked for */
    bool registry_away;
    int refuse;  /* PST_E…: the answer to an output schema; 0 = it is taken */
    int offered; /* how often an output schema was offered */
} world;

static int find_schema(world *w, int32_t id, pst_err *err)
{
    if (id == 1)
        return 0;
    if (id == 7 && w->registry_away)
        return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "registry", 0, "away");
    if (id == 9) {
        w->asked++;
        return pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "registry", 404, "not yet");
    }
    return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "registry", 404, "schema id %d is unknown", id);
}

static int register_output(world *w, const char *text, pst_err *err)
{
    w->offered++;
    if (w->refuse)
        return pst_err_set(err, w->refuse, w->refuse == PST_EINCOMPAT ? PST_CLASS_DATA : PST_CLASS_RETRY, "registry", 409, "no such thing");
    free(w->output_schema);
    w->output_schema = pst_strdup(text);
    return 0;
}

static pst_score_core *make_core(world *w, const pst_pipeline *p, pst_binding *b)
{
    w->schema = kit_schema(record_schema);
    pst_score_core *c = pst_score_core_new(p, NULL);
    assert_int_equal(pst_score_core_offer(c, PST_VARIANT_PRIMARY, b, NULL, 0), 0);
    return c;
}

static void end_world(world *w, pst_score_core *c, pst_pipeline *p)
{
    pst_score_core_free(c);
    pst_pipeline_free(p);
    pst_schema_free(w->schema);
    free(w->output_schema);
}

/* One record through the door, by this registry: 0, or why it has to wait. */
static int take(pst_score_core *c, world *w, const pst_record *r, int64_t now_us, pst_err *err)
{
    int32_t id;
    pst_score_need need;
    while ((need = pst_score_core_take(c, r, &id)) != PST_NEEDS_NOTHING) {
        bool schema = need == PST_NEEDS_SCHEMA, shadow = need == PST_NEEDS_SHADOW;
        pst_err e = {0};
        int rc = schema ? find_schema(w, id, &e) : register_output(w, pst_score_core_output_schema(c, id), &e);
        if (rc < 0 && e.cls != PST_CLASS_DATA) {
            *err = e;
            return rc;
        }
        if (schema && rc < 0) {
            pst_score_core_refuse(c, r, "DECODE", "unknown-schema", e.text);
            return 0;
        }
        if (schema)
            pst_score_core_schema(c, id, w->schema);
        else if (rc < 0)
            pst_score_core_no_output(c, id, shadow, e.text, now_us + 30000000);
        else
            pst_score_core_output(c, id, shadow, 42);
    }
    return 0;
}

/* A batch on its whole way, as far as the first record that has to wait. */
static int score_at(pst_score_core *c, world *w, const pst_record *records, size_t n, int64_t now_us, pst_fate *ret_fates, size_t *ret_n,
                    pst_err *err)
{
    size_t i = 0;
    pst_score_core_begin(c, now_us);
    while (i < n && take(c, w, &records[i], now_us, err) == 0)
        i++;
    int rc = pst_score_core_run(c, err);
    if (rc < 0)
        return rc;
    pst_score_core_finish(c, 1234567);
    const pst_fate *fates = pst_score_core_fates(c, ret_n);
    assert_int_equal(*ret_n, i);
    memcpy(ret_fates, fates, i * sizeof(*fates));
    return 0;
}

static int score(pst_score_core *c, world *w, const pst_record *records, size_t n, pst_fate *ret_fates, size_t *ret_n, pst_err *err)
{
    return score_at(c, w, records, n, 1, ret_fates, ret_n, err);
}

/* The output record of a fate as JSON, decoded by the schema that was registered for it. */
static inline json_t *encoded(pst_score_core *c, world *w, const pst_fate *f, bool shadow)
{
    pst_err err = {0};
    int32_t id;
    pst_slice body;
    json_t *j = NULL;
    if (f->kind != PST_FATE_SCORED)
        fail_msg("%s", pst_score_core_message(c, f));
    pst_slice out = pst_score_core_value(c, f, shadow);
    assert_int_equal(pst_frame_get(out.data, out.len, &id, &body, &err), 0);
    assert_int_equal(id, 42);
    pst_schema *s = kit_schema(w->output_schema);
    if (pst_avro_to_json(s, body.data, body.len, &j, &err) < 0)
        fail_msg("%s\n%s", err.text, w->output_schema);
    pst_schema_free(s);
    return j;
}

static inline double score_of(const json_t *j)
{
    return json_number_value(json_array_get(json_object_get(j, "score"), 0));
}

static pst_record rec(int64_t offset, const pst_buf *v)
{
    return (pst_record){.topic = "in",
                        .partition = 2,
                        .offset = offset,
                        .timestamp_ms = 1000 + offset,
                        .key = "k",
                        .key_len = 1,
                        .value = v->data,
                        .value_len = v->len};
}

static const float digits[] = {1, 10, 100, 1000, 10000};

#endif
