/* test_avro_event.c - event structs: JSON text, maps, copies, topics. */
#include "avro_kit.h"

#include "schemas/events.h"
#include "schemas/topics.h"
#include "schemas/type.h"

static int request(const char *text, pst_job_request *ret, pst_err *err)
{
    json_t *j = json(text);
    int rc = pst_event_from_json(&pst_job_request_type, j, ret, err);
    json_decref(j);
    return rc;
}

static void test_event_json_text_may_leave_out_what_has_a_default(void **state)
{
    pst_job_request r;
    pst_err err = {0};
    if (request("{'request_id':'r1','action':'SUBMIT'}", &r, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(r.request_id, "r1");
    assert_int_equal(r.action, PST_JOB_ACTION_SUBMIT);
    assert_string_equal(r.user, "anonymous");
    assert_null(r.training_id);
    assert_null(r.code);
    assert_int_equal(r.n_options, 0);
    assert_int_equal(r.time, 0);
    pst_event_clear(&pst_job_request_type, &r);
    assert_null(r.request_id);
    if (request("{'request_id':'r1','action':'SUBMIT','time':'2026-01-02T03:04:05.5Z','code':{'content':'UEsDBA=='},'options':{'priority':'"
                "3'},'manifest':'a: b'}",
                &r, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(r.time == 1767323045500000);
    assert_string_equal(r.code->media_type, "application/zip");
    assert_int_equal(r.code->content.len, 4);
    assert_memory_equal(r.code->content.data, "PK\3\4", 4);
    assert_string_equal(pst_str_map_get(r.options, r.n_options, "priority"), "3");
    pst_event_clear(&pst_job_request_type, &r);
}

static void test_event_json_text_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{'action':'SUBMIT'}", "field request_id is missing"},
        {"{'request_id':'r','action':'SUBMIT','manifst':'x'}", "there is no field manifst; did you mean \"manifest\"?"},
        {"{'request_id':'r','action':'SUBMIT','code':{'contents':'x'}}", "there is no field code.contents; did you mean \"content\"?"},
        {"{'request_id':'r','action':'SUBMTI'}", "\"SUBMTI\" is not a JobAction; did you mean \"SUBMIT\""},
        {"{'request_id':'r','action':'submit'}", "is not a JobAction"},
        {"{'request_id':7,'action':'SUBMIT'}", "field request_id must be text, not a whole number"},
        {"{'request_id':null,'action':'SUBMIT'}", "not null"},
        {"{'request_id':'r','action':'SUBMIT','code':{'content':'***'}}", "code.content must be base64 text"},
        {"{'request_id':'r','action':'SUBMIT','options':{'a':1}}", "options.a must be text"},
        {"{'request_id':'r','action':'SUBMIT','options':[]}", "options must be an object"},
        {"{'request_id':'r','action':'SUBMIT','time':'yesterday'}", "RFC 3339"},
        {"{'request_id':'r','action':'SUBMIT','time':1.5}", "RFC 3339"},
        {"[]", "must be an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_job_request r, zero = {0};
        pst_err err = {0};
        int rc = request(cases[i].text, &r, &err);
        if (rc != PST_EINVAL || err.cls != PST_CLASS_DATA || !strstr(err.text, cases[i].says))
            fail_msg("%s: %d \"%s\"", cases[i].text, rc, err.text);
        assert_memory_equal(&r, &zero, sizeof r);
    }
}

static void test_event_numbers_in_json(void **state)
{
    pst_metric_point m;
    pst_err err = {0};
    json_t *j = json("{'training_id':'t','time':5,'values':{'loss':1,'acc':0.5,'bad':'NaN'},'step':7.0,'epoch':2}");
    if (pst_event_from_json(&pst_metric_point_type, j, &m, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(m.has_step && m.step == 7 && m.has_epoch && m.epoch == 2.0);
    assert_int_equal(m.n_values, 3);
    assert_true(m.values[0].value == 1.0);
    json_decref(j);
    j = pst_event_to_json(&pst_metric_point_type, &m);
    assert_string_equal(json_string_value(json_object_get(json_object_get(j, "values"), "bad")), "NaN");
    pst_event_clear(&pst_metric_point_type, &m);
    json_object_set_new(j, "generation", json_integer(3000000000));
    assert_int_equal(pst_event_from_json(&pst_metric_point_type, j, &m, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "32 bits"));
    json_decref(j);
}

static void test_event_null_strings_encode_as_empty(void **state)
{
    pst_pipeline_spec a = {0}, b = {.name = pst_strdup(""), .spec = pst_strdup(""), .actor = pst_strdup("")};
    pst_buf x = {0}, y = {0};
    pst_event_encode(&pst_pipeline_spec_type, &a, &x);
    pst_event_encode(&pst_pipeline_spec_type, &b, &y);
    assert_int_equal(x.len, 4);
    assert_memory_equal(x.data, y.data, 4);
    assert_true(pst_event_equal(&pst_pipeline_spec_type, &a, &b));
    pst_event_clear(&pst_pipeline_spec_type, &b);
    pst_event_clear(&pst_pipeline_spec_type, NULL);
    pst_buf_done(&x);
    pst_buf_done(&y);
}

static void test_event_text_that_is_not_utf8_is_shown(void **state)
{
    pst_log_line l = {.training_id = pst_strdup("t"), .process = pst_strdup("p"), .text = pst_strdup("a\xff")};
    json_t *j = pst_event_to_json(&pst_log_line_type, &l);
    assert_string_equal(json_string_value(json_object_get(j, "text")), "a\xef\xbf\xbd");
    json_decref(j);
    pst_event_clear(&pst_log_line_type, &l);
}

/* Wherever a text may stand: a field, one that may be null, a record within, both sides of a map, an array's item. */
static void test_event_texts_of_clients_are_looked_at(void **state)
{
    static char good[] = "Größe 日本語",
                bad[] = "a\xff\xfe"
                        "b",
                cut[] = "Gr\xc3";
    pst_job_code code = {.media_type = good};
    pst_str_pair option = {.key = good, .value = good};
    pst_job_request r = {.request_id = good, .user = good, .manifest = good, .code = &code, .options = &option, .n_options = 1};
    pst_err err = {0};
    assert_int_equal(pst_event_check_text(&pst_job_request_type, &r, &err), 0);
    struct {
        char **at;
        const char *field;
    } rows[] = {{&r.request_id, "request_id"},    {&r.user, "user"},  {&r.training_id, "training_id"}, {&r.manifest, "manifest"},
                {&code.media_type, "media_type"}, {&code.uri, "uri"}, {&option.key, "options"},        {&option.value, "options"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < 2; k++) {
            char *before = *rows[i].at;
            *rows[i].at = k ? bad : cut;
            err = (pst_err){0};
            assert_int_equal(pst_event_check_text(&pst_job_request_type, &r, &err), PST_EPARSE);
            assert_non_null(strstr(err.text, rows[i].field));
            assert_int_equal(err.cls, PST_CLASS_DATA);
            *rows[i].at = before;
        }
    char *features[] = {good, bad};
    pst_model_event m = {.name = good, .features = features, .n_features = 2};
    assert_int_equal(pst_event_check_text(&pst_model_event_type, &m, &err), PST_EPARSE);
    m.n_features = 1;
    assert_int_equal(pst_event_check_text(&pst_model_event_type, &m, &err), 0);
}

static void test_event_maps(void **state)
{
    pst_str_pair *m = NULL;
    pst_dbl_pair *d = NULL;
    size_t n = 0, n_d = 0;
    pst_str_map_set(&m, &n, "a", "1");
    pst_str_map_set(&m, &n, "b", "2");
    pst_str_map_set(&m, &n, "a", m[0].value); /* its own text */
    pst_str_map_set(&m, &n, "c", NULL);
    assert_int_equal(n, 2);
    assert_string_equal(pst_str_map_get(m, n, "a"), "1");
    pst_str_map_set(&m, &n, "a", NULL);
    assert_int_equal(n, 1);
    assert_null(pst_str_map_get(m, n, "a"));
    assert_string_equal(pst_str_map_get(m, n, "b"), "2");
    pst_str_map_set(&m, &n, "b", NULL);
    free(m);
    pst_dbl_map_set(&d, &n_d, "x", 1);
    pst_dbl_map_set(&d, &n_d, "x", 2);
    assert_true(n_d == 1 && d[0].value == 2);
    free(d[0].key);
    free(d);
}

static void test_event_enum_names(void **state)
{
    assert_string_equal(pst_job_action_text(PST_JOB_ACTION_REPRIORITISE), "REPRIORITISE");
    assert_int_equal(pst_job_action_parse("HALT"), PST_JOB_ACTION_HALT);
    assert_int_equal(pst_job_action_parse("halt"), -1);
    assert_int_equal(pst_job_action_parse(NULL), -1);
    assert_string_equal(pst_enum_text(&pst_job_action_enum, 99), "?");
    assert_string_equal(pst_job_event_type_text(PST_JOB_EVENT_TYPE_COMPLETED), "COMPLETED");
}

static void test_topics(void **state)
{
    for (int t = 0; t < PST_TOPIC_COUNT; t++) {
        const pst_topic_def *d = pst_topic_get((pst_topic)t);
        assert_non_null(pst_type_find(d->type_name)); /* every topic carries an event of ours */
        assert_true(d->partitions >= 1);
        assert_true(strstr(d->cleanup, "delete") || strstr(d->cleanup, "compact"));
    }
    char *name = pst_topic_name("penstock.", PST_TOPIC_JOBS_REQUESTS);
    assert_string_equal(name, "penstock.jobs.requests");
    free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_event_json_text_may_leave_out_what_has_a_default),
        cmocka_unit_test(test_event_json_text_refused),
        cmocka_unit_test(test_event_numbers_in_json),
        cmocka_unit_test(test_event_null_strings_encode_as_empty),
        cmocka_unit_test(test_event_text_that_is_not_utf8_is_shown),
        cmocka_unit_test(test_event_texts_of_clients_are_looked_at),
        cmocka_unit_test(test_event_maps),
        cmocka_unit_test(test_event_enum_names),
        cmocka_unit_test(test_topics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
