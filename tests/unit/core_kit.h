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

static int host_schema(void *arg, int32_t id, const pst_schema **ret, pst_err *err)
{
    world *w = arg;
    *ret = w->schema;
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

static int host_output_id(void *arg, const char *text, bool shadow, int32_t *ret_id, pst_err *err)
{
    world *w = arg;
    w->offered++;
    if (w->refuse)
        return pst_err_set(err, w->refuse, w->refuse == PST_EINCOMPAT ? PST_CLASS_DATA : PST_CLASS_RETRY, "registry", 409, "no such thing");
    free(w->output_schema);
    w->output_schema = pst_strdup(text);
    *ret_id = 42;
    return 0;
}

static pst_score_core *make_core(world *w, const pst_pipeline *p, pst_binding *b)
{
    w->schema = kit_schema(record_schema);
    pst_score_core_host host = {.arg = w, .schema = host_schema, .output_id = host_output_id};
    pst_score_core *c = pst_score_core_new(p, &host);
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

/* The output record of a fate as JSON, decoded by the schema that was registered for it. */
static json_t *encoded(pst_score_core *c, world *w, const pst_record *r, const pst_fate *f, bool shadow)
{
    pst_buf out = {0};
    pst_err err = {0};
    int32_t id;
    pst_slice body;
    json_t *j = NULL;
    if (pst_score_core_encode(c, r, f, shadow, 1234567, &out, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(pst_frame_get(out.data, out.len, &id, &body, &err), 0);
    assert_int_equal(id, 42);
    pst_schema *s = kit_schema(w->output_schema);
    if (pst_avro_to_json(s, body.data, body.len, &j, &err) < 0)
        fail_msg("%s\n%s", err.text, w->output_schema);
    pst_schema_free(s);
    pst_buf_done(&out);
    return j;
}

static double score_of(const json_t *j)
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
