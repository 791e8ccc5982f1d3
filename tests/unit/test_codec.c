/* test_codec.c - framing, ids, caching and JSON text, with a registry that this test plays itself. */
#include "avro_kit.h"

#include "common/platform/codec.h"

#include <pthread.h>

/* ---- the registry, played ------------------------------------------------------------------------------------------------------ */

static struct {
    const char *texts[8]; /* by id */
    int n, asked, registered, away;
    char subject[128];
} reg;

int pst_registry_schema(pst_registry *r, int32_t id, const char **ret_text, pst_err *err)
{
    __atomic_add_fetch(&reg.asked, 1, __ATOMIC_RELAXED);
    if (reg.away)
        return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "registry", 0, "the registry does not answer");
    if (id < 0 || id >= reg.n)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "registry", 404, "not found");
    *ret_text = reg.texts[id];
    return 0;
}

int pst_registry_register(pst_registry *r, const char *subject, const char *schema_text, int32_t *ret_id, pst_err *err)
{
    __atomic_add_fetch(&reg.registered, 1, __ATOMIC_RELAXED);
    if (reg.away)
        return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "registry", 0, "the registry does not answer");
    snprintf(reg.subject, sizeof reg.subject, "%s", subject);
    reg.texts[reg.n] = schema_text;
    *ret_id = reg.n++;
    return 0;
}

static int set_up(void **state)
{
    memset(&reg, 0, sizeof reg);
    reg.texts[0] = "\"string\"";
    reg.texts[1] = "{\"type\":\"record\",\"name\":\"PipelineSpec\",\"fields\":[{\"name\":\"spec\",\"type\":\"string\"},{\"name\":\"name\","
                   "\"type\":\"string\"},"
                   "{\"name\":\"extra\",\"type\":\"int\"}]}";
    reg.texts[2] = "{\"type\":\"nonsense";
    reg.n = 3;
    *state = pst_codec_new(NULL);
    return 0;
}

static int tear_down(void **state)
{
    pst_codec_free(*state);
    return 0;
}

/* ---- tests --------------------------------------------------------------------------------------------------------------------- */

static void test_codec_encode_then_decode(void **state)
{
    pst_codec *c = *state;
    pst_log_line l = {.training_id = pst_strdup("t1"),
                      .process = pst_strdup("learner-1"),
                      .text = pst_strdup("hello"),
                      .rindex = 9,
                      .time = 5},
                 got;
    pst_buf b = {0};
    pst_err err = {0};
    assert_int_equal(pst_codec_encode(c, &pst_log_line_type, "penstock.logs", &l, &b, &err), 0);
    assert_string_equal(reg.subject, "penstock.logs-value");
    assert_memory_equal(b.data, "\0\0\0\0\3", 5);
    size_t first = b.len;
    assert_int_equal(pst_codec_encode(c, &pst_log_line_type, "penstock.logs", &l, &b, &err), 0);
    assert_int_equal(b.len, 2 * first);
    assert_int_equal(reg.registered, 1); /* the id is known now */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pst_codec_decode(c, &pst_log_line_type, b.data, first, 77, &got, &err), 0);
        assert_true(pst_event_equal(&pst_log_line_type, &l, &got));
        pst_event_clear(&pst_log_line_type, &got);
    }
    assert_int_equal(reg.asked, 1); /* the plan is known now */
    pst_event_clear(&pst_log_line_type, &l);
    pst_buf_done(&b);
}

static void test_codec_reads_another_writer(void **state)
{
    pst_pipeline_spec p;
    pst_err err = {0};
    if (pst_codec_decode(*state, &pst_pipeline_spec_type, "\0\0\0\0\1\2s\2n\4", 10, 1234, &p, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(p.spec, "s");
    assert_string_equal(p.name, "n");
    assert_string_equal(p.actor, "");
    assert_true(p.time == 1234000); /* 0 in the data: the record's timestamp */
    pst_event_clear(&pst_pipeline_spec_type, &p);
}

static void test_codec_json_text(void **state)
{
    static const char text[] = "{\"name\":\"p\",\"spec\":\"x: y\"}\n",
                      line[] = "{\"training_id\":\"t\",\"rindex\":1,\"time\":1,\"stream\":\"STDOUT\",\"text\":\"x\"}";
    pst_pipeline_spec p;
    pst_log_line l;
    pst_err err = {0};
    assert_int_equal(pst_codec_decode(*state, &pst_pipeline_spec_type, text, sizeof text - 1, 5, &p, &err), 0);
    assert_string_equal(p.spec, "x: y");
    assert_true(p.time == 5000);
    pst_event_clear(&pst_pipeline_spec_type, &p);
    assert_int_equal(pst_codec_decode(*state, &pst_pipeline_spec_type, "{\"name\":", 8, 5, &p, &err), PST_EPARSE);
    err = (pst_err){0};
    assert_int_equal(pst_codec_decode(*state, &pst_log_line_type, line, sizeof line - 1, 5, &l, &err), PST_EPARSE);
    assert_non_null(strstr(err.text, "bad envelope"));
    assert_int_equal(reg.asked, 0);
}

static void check_bad(pst_codec *c, const void *value, size_t len, int code, pst_err_class cls)
{
    pst_pipeline_spec p, zero = {0};
    pst_err err = {0};
    memset(&p, 0x55, sizeof p);
    int rc = pst_codec_decode(c, &pst_pipeline_spec_type, value, len, 5, &p, &err);
    if (rc != code || err.cls != cls)
        fail_msg("%d %d \"%s\"", rc, err.cls, err.text);
    assert_memory_equal(&p, &zero, sizeof p);
}

static void test_codec_bad_values(void **state)
{
    check_bad(*state, NULL, 0, PST_EINVAL, PST_CLASS_DATA);
    check_bad(*state, "", 0, PST_EPARSE, PST_CLASS_DATA);
    check_bad(*state, "hello", 5, PST_EPARSE, PST_CLASS_DATA);
    check_bad(*state, "\0\0\0\0\x63xx", 7, PST_ENOTFOUND, PST_CLASS_DATA);     /* unknown id */
    check_bad(*state, "\0\xff\xff\xff\xff", 5, PST_ENOTFOUND, PST_CLASS_DATA); /* negative id */
    check_bad(*state, "\0\0\0\0\0\2s", 7, PST_EINCOMPAT, PST_CLASS_DATA);      /* a string */
    check_bad(*state, "\0\0\0\0\2", 5, PST_EPARSE, PST_CLASS_DATA);            /* the schema itself is no schema */
    check_bad(*state, "\0\0\0\0\1\2s", 7, PST_EPARSE, PST_CLASS_DATA);         /* truncated */
    int asked = reg.asked;
    check_bad(*state, "\0\0\0\0\0\2s", 7, PST_EINCOMPAT, PST_CLASS_DATA);
    check_bad(*state, "\0\0\0\0\2", 5, PST_EPARSE, PST_CLASS_DATA);
    assert_int_equal(reg.asked, asked); /* bad ids are remembered */
}

static void test_codec_outage_is_retried_not_remembered(void **state)
{
    pst_pipeline_spec p = {0};
    pst_buf b = {0};
    pst_err err = {0};
    reg.away = 1;
    check_bad(*state, "\0\0\0\0\1\2s\2n\4", 10, PST_EUNREACH, PST_CLASS_RETRY);
    assert_int_equal(pst_codec_encode(*state, &pst_pipeline_spec_type, "t", &p, &b, &err), PST_EUNREACH);
    assert_int_equal(b.len, 0);
    reg.away = 0;
    assert_int_equal(pst_codec_decode(*state, &pst_pipeline_spec_type, "\0\0\0\0\1\2s\2n\4", 10, 1, &p, NULL), 0);
    pst_event_clear(&pst_pipeline_spec_type, &p);
    assert_int_equal(pst_codec_encode(*state, &pst_pipeline_spec_type, "t", &p, &b, NULL), 0);
    pst_buf_done(&b);
}

static void test_codec_any_value_to_json(void **state)
{
    json_t *j = NULL;
    int32_t id = 0;
    pst_err err = {0};
    assert_int_equal(pst_codec_to_json(*state, "\0\0\0\0\0\4hi", 8, &j, &id, &err), 0);
    assert_json(j, "'hi'");
    assert_int_equal(id, 0);
    json_decref(j);
    assert_int_equal(pst_codec_to_json(*state, " [1,2]", 6, &j, &id, &err), 0);
    assert_json(j, "[1,2]");
    assert_int_equal(id, -1);
    json_decref(j);
    assert_true(pst_codec_to_json(*state, "words", 5, &j, &id, &err) < 0);
    assert_true(pst_codec_to_json(*state, NULL, 0, &j, &id, NULL) < 0);
}

static void *decode_much(void *arg)
{
    for (int i = 0; i < 200; i++) {
        pst_pipeline_spec p;
        json_t *j = NULL;
        int32_t id;
        if (pst_codec_decode(arg, &pst_pipeline_spec_type, "\0\0\0\0\1\2s\2n\4", 10, 1, &p, NULL) < 0 || strcmp(p.name, "n"))
            return arg;
        pst_event_clear(&pst_pipeline_spec_type, &p);
        if (pst_codec_to_json(arg, "\0\0\0\0\0\4hi", 8, &j, &id, NULL) < 0)
            return arg;
        json_decref(j);
        if (pst_codec_decode(arg, &pst_pipeline_spec_type, "\0\0\0\0\2", 5, 1, &p, NULL) != PST_EPARSE)
            return arg;
    }
    return NULL;
}

static void test_codec_from_many_threads(void **state)
{
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, decode_much, *state), 0);
    for (int i = 0; i < 4; i++) {
        void *failed = *state;
        pthread_join(t[i], &failed);
        assert_null(failed);
    }
    assert_true(reg.asked <= 12); /* three ids, at most once per thread */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_codec_encode_then_decode, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_codec_reads_another_writer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_codec_json_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_codec_bad_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_codec_outage_is_retried_not_remembered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_codec_any_value_to_json, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_codec_from_many_threads, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
