/* test_score_core.c - records in, fates out: decoding, mapping, scores, the output record, bad records, model changes at offsets. */
#include "tests/unit/core_kit.h"

#include "common/base/clock.h"
#include "common/base/stop.h"

#include <pthread.h>
#include <unistd.h>

#include "inference/offline/ocf.h"

static const char full_pipeline[] =
    "name: p\ninput: {topics: [in]}\nmodel: {name: line}\noutput: {topic: out, passthrough: [host, cpu, tag, nope]}\n"
    "features:\n"
    "  - {field: cpu.user, scale: 2, offset: 1, missing: value, value: 5}\n"
    "  - {field: cpu.sys, missing: nan}\n"
    "  - {field: n, clip: [0, 10]}\n"
    "  - {field: on}\n"
    "  - {field: mode, vocabulary: {idle: 1, busy: 2}, missing: value, value: 100}\n"
    "batching: {count: 8}\n";

static void test_core_scores_and_encodes_the_whole_record(void **state)
{
    world w = {0};
    pst_pipeline *p = kit_pipeline(full_pipeline);
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(5, 1, digits, NULL), 3));
    pst_buf v[3] = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"cpu\":{\"user\":3,\"sys\":0.5},\"n\":4,\"on\":true,\"mode\":\"busy\",\"tag\":\"t\"}", &v[0]);
    kit_value(w.schema, 1, "{\"host\":\"b\",\"cpu\":{\"user\":null,\"sys\":2},\"n\":400,\"on\":false,\"mode\":\"odd\",\"tag\":null}",
              &v[1]);
    kit_value(w.schema, 1, "{\"host\":\"c\",\"cpu\":null,\"n\":-4,\"on\":false,\"mode\":\"idle\"}", &v[2]);
    pst_record r[3] = {rec(10, &v[0]), rec(11, &v[1]), rec(12, &v[2])};
    pst_fate f[3];
    size_t usable;
    pst_err err = {0};
    assert_int_equal(score(c, &w, r, 3, f, &usable, &err), 0);
    assert_int_equal(usable, 3);
    for (size_t i = 0; i < 3; i++)
        if (f[i].kind != PST_FATE_SCORED)
            fail_msg("record %zu: %s", i, pst_score_core_message(c, &f[i]));
    json_t *j = encoded(c, &w, &f[0], false);
    assert_true(fabs(score_of(j) - (7 + 5 + 400 + 1000 + 20000)) < 1e-3);
    assert_true(json_is_null(json_object_get(j, "label")));
    json_t *model = json_object_get(j, "model"), *source = json_object_get(j, "source"), *record = json_object_get(j, "record");
    assert_string_equal(json_string_value(json_object_get(model, "name")), "line");
    assert_int_equal(json_integer_value(json_object_get(model, "version")), 3);
    assert_int_equal(json_string_length(json_object_get(model, "digest")), 64);
    assert_string_equal(json_string_value(json_object_get(model, "backend")), "cpu");
    assert_string_equal(json_string_value(json_object_get(source, "topic")), "in");
    assert_int_equal(json_integer_value(json_object_get(source, "partition")), 2);
    assert_int_equal(json_integer_value(json_object_get(source, "offset")), 10);
    assert_string_equal(json_string_value(json_object_get(j, "variant")), "PRIMARY");
    assert_int_equal(json_array_size(json_object_get(j, "missing")), 0);
    assert_string_equal(json_string_value(json_object_get(record, "host")), "a");
    assert_true(json_number_value(json_object_get(json_object_get(record, "cpu"), "user")) == 3);
    assert_string_equal(json_string_value(json_object_get(record, "tag")), "t");
    assert_null(json_object_get(record, "nope")); /* the writer has no such field */
    json_decref(j);

    j = encoded(c, &w, &f[1], false); /* user null → 5·2+1, clip 10, "odd" is no word → 100 */
    assert_true(fabs(score_of(j) - (11 + 20 + 1000 + 0 + 1000000)) < 1e-1);
    json_t *missing = json_object_get(j, "missing");
    assert_int_equal(json_array_size(missing), 2);
    assert_string_equal(json_string_value(json_array_get(missing, 0)), "cpu.user");
    assert_string_equal(json_string_value(json_array_get(missing, 1)), "mode");
    assert_true(json_is_null(json_object_get(json_object_get(j, "record"), "tag")));
    json_decref(j);

    const double *scores;
    const char *label;
    assert_int_equal(pst_score_core_score(&f[2], false, &scores, &label), 1);
    assert_true(isnan(scores[0])); /* cpu.sys is missing: nan */
    j = encoded(c, &w, &f[2], false);
    assert_true(json_is_null(json_object_get(json_object_get(j, "record"), "cpu")));
    json_decref(j);
    for (size_t i = 0; i < 3; i++)
        pst_buf_done(&v[i]);
    end_world(&w, c, p);
}

static void test_core_one_bad_record_never_harms_its_batch(void **state)
{
    world w = {0};
    pst_pipeline *p = kit_pipeline(
        "name: p\ninput: {topics: [in]}\nmodel: {name: line}\noutput: {topic: out}\nfeatures: [cpu.user, n]\nbatching: {count: 16}\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(2, 1, digits, NULL), 1));
    pst_buf good = {0}, null_user = {0}, unknown = {0}, cut = {0}, text = {0}, tail = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"cpu\":{\"user\":3,\"sys\":1},\"n\":4}", &good);
    kit_value(w.schema, 1, "{\"host\":\"a\",\"cpu\":null,\"n\":4}", &null_user);
    kit_value(w.schema, 5, "{\"host\":\"a\",\"cpu\":null,\"n\":4}", &unknown);
    pst_buf_add(&cut, good.data, good.len - 3);
    pst_buf_adds(&text, "not avro at all");
    pst_buf_add(&tail, good.data, good.len);
    pst_buf_adds(&tail, "more");
    pst_record r[8] = {rec(0, &good), rec(1, &null_user), rec(2, &unknown), rec(3, &cut),
                       rec(4, &text), rec(5, &tail),      rec(6, &good),    rec(7, &good)};
    r[6].value = NULL;
    r[6].value_len = 0;
    static const char *const reasons[] = {NULL, "bad-input", "unknown-schema", "bad-input", "bad-envelope", "bad-input"};
    static const char *const stages[] = {NULL, "MAP", "DECODE", "DECODE", "DECODE", "DECODE"};
    pst_fate f[8];
    size_t usable;
    pst_err err = {0};
    assert_int_equal(score(c, &w, r, 8, f, &usable, &err), 0);
    assert_int_equal(usable, 8);
    assert_int_equal(f[0].kind, PST_FATE_SCORED);
    for (int i = 1; i < 6; i++) {
        assert_int_equal(f[i].kind, PST_FATE_BAD);
        assert_string_equal(f[i].reason, reasons[i]);
        assert_string_equal(f[i].stage, stages[i]);
        assert_true(*pst_score_core_message(c, &f[i]));
    }
    assert_non_null(strstr(pst_score_core_message(c, &f[1]), "cpu.user"));
    assert_int_equal(f[6].kind, PST_FATE_TOMBSTONE);
    assert_int_equal(f[7].kind, PST_FATE_SCORED);
    json_t *j = encoded(c, &w, &f[7], false);
    assert_true(score_of(j) == 43);
    json_decref(j);
    pst_buf_done(&good), pst_buf_done(&null_user), pst_buf_done(&unknown), pst_buf_done(&cut), pst_buf_done(&text), pst_buf_done(&tail);
    end_world(&w, c, p);
}

static void test_core_waits_for_what_is_away_and_uses_what_is_before(void **state)
{
    world w = {0};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [n]\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, digits, NULL), 1));
    pst_buf good = {0}, young = {0}, away = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":4}", &good);
    kit_value(w.schema, 9, "{\"host\":\"a\",\"n\":4}", &young);
    kit_value(w.schema, 7, "{\"host\":\"a\",\"n\":4}", &away);
    pst_record r[4] = {rec(0, &good), rec(1, &young), rec(2, &good), rec(3, &young)};
    pst_fate f[4];
    size_t usable = 99;
    pst_err err = {0};
    assert_int_equal(score(c, &w, r, 4, f, &usable, &err), 0);
    assert_int_equal(usable, 1);
    assert_int_equal(err.code, PST_EAGAIN);
    assert_int_equal(err.cls, PST_CLASS_RETRY);
    assert_int_equal(w.asked, 1);
    assert_int_equal(f[0].kind, PST_FATE_SCORED);
    w.registry_away = true;
    pst_err_clear(&err);
    r[0] = rec(0, &away);
    assert_int_equal(score(c, &w, r, 4, f, &usable, &err), 0);
    assert_int_equal(usable, 0);
    assert_int_equal(err.code, PST_EUNREACH);
    pst_buf_done(&good), pst_buf_done(&young), pst_buf_done(&away);
    end_world(&w, c, p);
}

static void test_core_null_values_go_by_policy(void **state)
{
    static const char *const policies[] = {"pass", "skip", "dead_letter"};
    static const pst_fate_kind kinds[] = {PST_FATE_TOMBSTONE, PST_FATE_SKIP, PST_FATE_BAD};
    for (size_t i = 0; i < 3; i++) {
        world w = {0};
        char text[200];
        snprintf(text, sizeof(text), "name: p\nmodel: {name: line}\nfeatures: [n]\nerrors: {\"null\": %s}\n", policies[i]);
        pst_pipeline *p = kit_pipeline(text);
        pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, digits, NULL), 1));
        pst_record r = {.topic = "in"};
        pst_fate f;
        size_t usable;
        pst_err err = {0};
        assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
        assert_int_equal(f.kind, kinds[i]);
        if (i == 2)
            assert_string_equal(f.reason, "null-value");
        end_world(&w, c, p);
    }
}

static void test_core_refuses_a_schema_that_cannot_fit(void **state)
{
    world w = {0};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [host]\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, digits, NULL), 1));
    pst_buf v = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":4}", &v);
    pst_record r = rec(0, &v);
    pst_fate f;
    size_t usable;
    pst_err err = {0};
    assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
    assert_int_equal(f.kind, PST_FATE_BAD);
    assert_string_equal(f.reason, "schema-mismatch");
    assert_non_null(strstr(pst_score_core_message(c, &f), "host"));
    pst_buf_done(&v);
    end_world(&w, c, p);
    memset(&w, 0, sizeof(w));
    p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [not.there]\n");
    c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, digits, NULL), 1));
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":4}", &v);
    r = rec(0, &v);
    assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
    assert_string_equal(f.reason, "schema-mismatch");
    assert_non_null(strstr(pst_score_core_message(c, &f), "not.there"));
    pst_buf_done(&v);
    end_world(&w, c, p);
}

static void test_core_reads_json_by_the_same_paths(void **state)
{
    world w = {0};
    pst_pipeline *p = kit_pipeline(
        "name: p\ninput: {topics: [in], format: json}\nmodel: {name: line}\noutput: {topic: out, passthrough: [host, cpu, q]}\n"
        "features: [{field: cpu.user}, {field: a.b}, {field: on, missing: value, value: 1}, {field: mode, vocabulary: [idle, busy]}]\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(4, 1, digits, NULL), 1));
    static const char *const texts[] = {"{\"cpu\":{\"user\":1},\"a.b\":2,\"on\":true,\"mode\":\"busy\",\"host\":\"h\",\"q\":2.5}",
                                        "{\"cpu\":{\"user\":1},\"a\":{\"b\":3},\"mode\":\"idle\",\"host\":7}",
                                        "{\"cpu\":{\"user\":\"x\"},\"a.b\":2,\"mode\":\"busy\"}",
                                        "{\"a.b\":2,\"mode\":\"busy\"}",
                                        "[1]",
                                        "{\"cpu\":",
                                        "{\"cpu\":{\"user\":1},\"a.b\":2,\"mode\":\"strange\"}"};
    static const char *const reasons[] = {NULL, NULL, "bad-input", "bad-input", "bad-input", "bad-envelope", "bad-input"};
    pst_record r[7];
    pst_fate f[7];
    for (size_t i = 0; i < 7; i++)
        r[i] = (pst_record){.topic = "in", .offset = (int64_t)i, .value = texts[i], .value_len = strlen(texts[i])};
    size_t usable;
    pst_err err = {0};
    assert_int_equal(score(c, &w, r, 7, f, &usable, &err), 0);
    assert_int_equal(usable, 7);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(f[i].kind, reasons[i] ? PST_FATE_BAD : PST_FATE_SCORED);
        if (reasons[i])
            assert_string_equal(f[i].reason, reasons[i]);
    }
    json_t *j = encoded(c, &w, &f[0], false);
    assert_true(score_of(j) == 1 + 20 + 100 + 1000);
    json_t *record = json_object_get(j, "record");
    assert_string_equal(json_string_value(json_object_get(record, "host")), "h");
    assert_true(json_number_value(json_object_get(record, "q")) == 2.5);
    assert_string_equal(json_string_value(json_object_get(record, "cpu")), "{\"user\":1}");
    json_decref(j);
    j = encoded(c, &w, &f[1], false);
    assert_true(score_of(j) == 1 + 30 + 100 + 0);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "record"), "host")), 7);
    assert_true(json_is_null(json_object_get(json_object_get(j, "record"), "q")));
    assert_string_equal(json_string_value(json_array_get(json_object_get(j, "missing"), 0)), "on");
    json_decref(j);
    end_world(&w, c, p);
}

static void test_core_slim_output_is_the_score_alone(void **state)
{
    world w = {0};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [n]\noutput: {topic: o, format: slim}\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 2, digits, NULL), 1));
    pst_buf v = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":4}", &v);
    pst_record r = rec(0, &v);
    pst_fate f;
    size_t usable;
    pst_err err = {0};
    assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
    json_t *j = encoded(c, &w, &f, false);
    assert_int_equal(json_object_size(j), 1);
    assert_int_equal(json_array_size(json_object_get(j, "score")), 2);
    assert_true(score_of(j) == 4);
    json_decref(j);
    pst_buf_done(&v);
    end_world(&w, c, p);
}

static void test_core_takes_mapping_means_and_score_from_the_model(void **state)
{
    world w = {0};
    static const float identity[] = {1, 0, 0, 1};
    static const char *const meta[] = {
        "penstock.features",
        "[{\"field\":\"n\",\"scale\":0.5,\"missing\":\"mean\",\"mean\":8},{\"field\":\"cpu.user\",\"missing\":\"mean\",\"mean\":3}]",
        "penstock.score",
        "reconstruction_error",
        "penstock.threshold",
        "0.25",
        NULL};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\n");
    pst_binding *b = kit_bind(p, kit_linear(2, 2, identity, meta), 1);
    double threshold;
    assert_int_equal(pst_binding_score_type(b), PST_SCORE_RECONSTRUCTION);
    assert_true(pst_binding_threshold(b, &threshold) && threshold == 0.25);
    pst_score_core *c = make_core(&w, p, b);
    pst_buf v = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":4}", &v);
    pst_record r = rec(0, &v);
    pst_fate f;
    size_t usable;
    pst_err err = {0};
    assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
    json_t *j = encoded(c, &w, &f, false);
    assert_true(score_of(j) == 0); /* the identity reconstructs */
    assert_true(json_number_value(json_object_get(j, "threshold")) == 0.25);
    json_decref(j);
    end_world(&w, c, p);
    /* Twice the input: the error is mean(x²); the file's mapping borrows the mean. */
    static const float twice[] = {2, 0, 0, 2};
    memset(&w, 0, sizeof(w));
    p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [{field: n}, {field: cpu.user, missing: mean, scale: 2}]\nscore: {type: "
                     "reconstruction_error}\n");
    c = make_core(&w, p, kit_bind(p, kit_linear(2, 2, twice, meta), 1));
    assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
    j = encoded(c, &w, &f, false);
    assert_true(fabs(score_of(j) - (4 * 4 + 6 * 6) / 2.0) < 1e-6);
    json_decref(j);
    pst_buf_done(&v);
    end_world(&w, c, p);
}

static void test_binding_says_what_does_not_fit(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {{"name: p\nmodel: {name: line}\n", "carries no feature mapping"},
                 {"name: p\nmodel: {name: line}\nfeatures: [a, b, c]\n", "input has 2 slots, the features fill 3"},
                 {"name: p\nmodel: {name: line}\nfeatures: [{field: a, missing: mean}, b]\n", "holds no mean of it"}};
    for (size_t i = 0; i < 3; i++) {
        pst_pipeline *p = kit_pipeline(cases[i].text);
        pst_model *m = kit_linear(2, 1, digits, NULL);
        pst_binding *b = NULL;
        pst_err err = {0};
        assert_true(pst_binding_new(p, m, "line", 1, 4, &b, &err) < 0);
        if (!strstr(err.text, cases[i].want))
            fail_msg("%s", err.text);
        pst_model_unref(m);
        pst_pipeline_free(p);
    }
}

static void test_core_arrays_fill_the_slots_that_are_left(void **state)
{
    static const char schema[] =
        "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"v\",\"type\":{\"type\":\"array\",\"items\":\"double\"}},"
        "{\"name\":\"n\",\"type\":\"int\"}]}";
    world w = {0};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [v, n]\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(4, 1, digits, NULL), 1));
    pst_schema_free(w.schema);
    w.schema = kit_schema(schema);
    pst_buf v[2] = {0};
    kit_value(w.schema, 1, "{\"v\":[1,2,3],\"n\":4}", &v[0]);
    kit_value(w.schema, 1, "{\"v\":[1,2],\"n\":4}", &v[1]);
    pst_record r[2] = {rec(0, &v[0]), rec(1, &v[1])};
    pst_fate f[2];
    size_t usable;
    pst_err err = {0};
    assert_int_equal(score(c, &w, r, 2, f, &usable, &err), 0);
    if (f[0].kind != PST_FATE_SCORED)
        fail_msg("%s", pst_score_core_message(c, &f[0]));
    json_t *j = encoded(c, &w, &f[0], false);
    assert_true(score_of(j) == 4321);
    json_decref(j);
    assert_string_equal(f[1].reason, "bad-input");
    pst_buf_done(&v[0]), pst_buf_done(&v[1]);
    end_world(&w, c, p);
}

static void test_core_classes_have_a_label(void **state)
{
    world w = {0};
    static const float w3[] = {1, 5, 2};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [n]\nscore: {type: class}\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 3, w3, NULL), 1));
    pst_buf v = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":1}", &v);
    pst_record r = rec(0, &v);
    pst_fate f;
    size_t usable;
    pst_err err = {0};
    assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
    json_t *j = encoded(c, &w, &f, false);
    assert_string_equal(json_string_value(json_object_get(j, "label")), "1");
    assert_int_equal(json_array_size(json_object_get(j, "score")), 3);
    json_decref(j);
    pst_buf_done(&v);
    end_world(&w, c, p);
}

/* y = n + code(mode) + 10 · code(tag), both encoded from text by the model. */
static pst_model *text_model(void)
{
    static const char *const modes[] = {"idle", "busy"}, *const tags[] = {"a", "", "7"};
    pst_onnx_builder *b = pst_onnx_new("texts", 17, 8);
    const char *const names[] = {"n", "mode", "tag"};
    for (int i = 0; i < 3; i++)
        pst_onnx_input(b, names[i], i ? PST_STR : PST_F32, 2, (int64_t[]){-1, 1}, "N");
    pst_onnx_node(b, "LabelEncoder", (const char *[]){"mode"}, 1, (const char *[]){"m"}, 1);
    pst_onnx_domain(b, "ai.onnx.ml", 3);
    pst_onnx_attr_strs(b, "keys_strings", modes, 2);
    pst_onnx_attr_floats(b, "values_floats", (const float[]){1, 2}, 2);
    pst_onnx_attr_float(b, "default_float", 5);
    pst_onnx_node(b, "LabelEncoder", (const char *[]){"tag"}, 1, (const char *[]){"t"}, 1);
    pst_onnx_domain(b, "ai.onnx.ml", 3);
    pst_onnx_attr_strs(b, "keys_strings", tags, 3);
    pst_onnx_attr_floats(b, "values_floats", (const float[]){10, 20, 70}, 3);
    pst_onnx_attr_float(b, "default_float", 90);
    pst_onnx_node(b, "Add", (const char *[]){"n", "m"}, 2, (const char *[]){"nm"}, 1);
    pst_onnx_node(b, "Add", (const char *[]){"nm", "t"}, 2, (const char *[]){"y"}, 1);
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 1}, "N");
    return kit_load(b, NULL);
}

static void test_core_feeds_inputs_of_strings(void **state)
{
    world w = {0};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [n, mode, {field: tag, value: \"7\"}]\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, text_model(), 1));
    pst_buf v[4] = {{0}}, longer = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":100,\"mode\":\"busy\",\"tag\":\"a\"}", &v[0]);
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":200,\"mode\":\"odd\",\"tag\":null}", &v[1]);
    pst_buf_adds(&longer, "{\"host\":\"a\",\"tag\":\"");
    for (int i = 0; i < 70000; i++)
        pst_buf_addc(&longer, 'x');
    pst_buf_adds(&longer, "\"}");
    kit_value(w.schema, 1, longer.data, &v[2]);
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":300,\"mode\":\"idle\",\"tag\":\"zz\"}", &v[3]);
    pst_record r[4];
    for (int i = 0; i < 4; i++)
        r[i] = rec(i, &v[i]);
    pst_fate f[4];
    size_t usable;
    pst_err err = {0};
    for (int again = 0; again < 2; again++) { /* texts of an earlier batch leave nothing behind */
        assert_int_equal(score(c, &w, r, 4, f, &usable, &err), 0);
        static const double want[] = {112, 275, 0, 391};
        for (int i = 0; i < 4; i++) {
            if (i == 2) {
                assert_int_equal(f[i].kind, PST_FATE_BAD);
                assert_string_equal(f[i].reason, "limits");
                continue;
            }
            json_t *j = encoded(c, &w, &f[i], false);
            assert_true(score_of(j) == want[i]);
            assert_int_equal(json_array_size(json_object_get(j, "missing")), i == 1);
            json_decref(j);
        }
    }
    for (int i = 0; i < 4; i++)
        pst_buf_done(&v[i]);
    pst_buf_done(&longer);
    end_world(&w, c, p);

    w = (world){0};
    p = kit_pipeline("name: p\nmodel: {name: line}\ninput: {topics: [t], format: json}\n"); /* features by the inputs' names */
    c = make_core(&w, p, kit_bind(p, text_model(), 1));
    pst_buf text = {0};
    pst_buf_adds(&text, "{\"n\":1,\"mode\":\"idle\",\"tag\":7}"); /* a code as number */
    pst_record one = rec(0, &text);
    assert_int_equal(score(c, &w, &one, 1, f, &usable, &err), 0);
    json_t *j = encoded(c, &w, f, false);
    assert_true(score_of(j) == 72);
    json_decref(j);
    pst_buf_done(&text);
    end_world(&w, c, p);

    static const char *const refused[][2] = {
        {"[n, {field: mode, scale: 2}, tag]",
         "feature mode fills an input of strings with its text: scale or offset does not go with that"},
        {"[n, mode, {field: tag, value: 7}]", "a number as value (write a text) does not go with that"},
        {"[{field: n, value: none}, mode, tag]", "feature n fills an input of numbers, its value \"none\" is none"},
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        char yaml[200];
        snprintf(yaml, sizeof(yaml), "name: p\nmodel: {name: line}\nfeatures: %s\n", refused[i][0]);
        p = kit_pipeline(yaml);
        pst_binding *b = NULL;
        pst_model *m = text_model();
        pst_err why = {0};
        assert_int_equal(pst_binding_new(p, m, "texts", 1, 8, &b, &why), PST_EINVAL);
        if (!strstr(why.text, refused[i][1]))
            fail_msg("%s", why.text);
        pst_model_unref(m);
        pst_pipeline_free(p);
    }
}

/* The same record, wherever it stands in its batch and whatever stands beside it, gets the same score of a model that draws random numbers. */
static void test_core_models_that_draw_give_a_record_one_score(void **state)
{
    pst_onnx_builder *o = pst_onnx_new("noisy", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, 2}, "N");
    pst_onnx_node(o, "RandomNormalLike", (const char *[]){"x"}, 1, (const char *[]){"r"}, 1);
    pst_onnx_node(o, "Add", (const char *[]){"x", "r"}, 2, (const char *[]){"y"}, 1);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 2}, "N");
    pst_pipeline *p =
        kit_pipeline("name: t\ninput: {topics: [in], format: json}\noutput: {topic: out}\nmodel: {file: m.onnx}\nfeatures: [a, b]\n");
    pst_binding *b = kit_bind(p, kit_load(o, NULL), 1);
    pst_err err = {0};
    assert_non_null(strstr(pst_binding_remark(b), "random"));
    double *x = pst_binding_scratch(b, 2), noise[2] = {0};
    for (size_t i = 0; i < 8; i++) {
        x[0] = (double)i;
        x[1] = -(double)i;
        pst_binding_put(b, i, x);
    }
    for (size_t round = 0; round < 2; round++) {
        assert_int_equal(pst_binding_run(b, round, 8, &err), 0);
        for (size_t i = round; i < 8; i++) {
            const double *scores;
            assert_int_equal(pst_binding_score(b, i, &scores, &(const char *){NULL}), 2);
            noise[0] = i || round ? noise[0] : scores[0];
            noise[1] = i || round ? noise[1] : scores[1];
            assert_true(fabs(scores[0] - (double)i - noise[0]) < 1e-5 && fabs(scores[1] + (double)i - noise[1]) < 1e-5);
        }
    }
    assert_true(noise[0] != 0 && noise[0] != noise[1]);
    pst_binding_free(b);
    pst_pipeline_free(p);
}

/* limits.model_bytes is a bound of the file, limits.arena_bytes of what a run takes. */
static void test_core_limits_of_the_pipeline_hold_for_its_model(void **state)
{
    enum { WIDE = 100000 };
    static const struct {
        const char *limits, *says;
        int load, run;
    } cases[] = {{"limits: {model_bytes: 100KiB}", "102400", PST_ELIMIT, 0},
                 {"limits: {arena_bytes: 1MiB}", "1048576", 0, PST_ELIMIT},
                 {"", "", 0, 0}};
    char path[] = "/tmp/penstock-limits-XXXXXX", text[300];
    int fd = mkstemp(path);
    float *w = calloc(WIDE, sizeof *w);
    pst_buf file = {0};
    pst_onnx_builder *o = pst_onnx_new("wide", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, 1}, "N");
    pst_onnx_floats(o, "w", 2, (int64_t[]){1, WIDE}, w);
    pst_onnx_node(o, "MatMul", (const char *[]){"x", "w"}, 2, (const char *[]){"y"}, 1);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, WIDE}, "N");
    pst_onnx_write(o, &file);
    pst_onnx_free(o);
    assert_int_equal(write(fd, file.data, file.len), (ssize_t)file.len);
    close(fd);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_binding *b = NULL;
        pst_err err = {0};
        snprintf(text, sizeof text,
                 "name: t\ninput: {topics: [in], format: json}\noutput: {topic: out}\nmodel: {file: m.onnx}\nfeatures: [a]\n%s\n",
                 cases[i].limits);
        pst_pipeline *p = kit_pipeline(text);
        const pst_model_limits limits = pst_binding_limits(p);
        pst_model *m = NULL;
        int rc = pst_model_load_file(path, &limits, &m, &err);
        rc = rc == 0 ? pst_binding_new(p, m, "wide", 0, 8, &b, &err) : rc;
        pst_model_unref(m);
        assert_int_equal(rc, cases[i].load);
        if (rc == 0) {
            double zero = 0;
            for (size_t r = 0; r < 8; r++)
                pst_binding_put(b, r, &zero);
            assert_int_equal(pst_binding_run(b, 0, 8, &err), cases[i].run);
        }
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s", err.text);
        pst_binding_free(b);
        pst_pipeline_free(p);
    }
    unlink(path);
    pst_buf_done(&file);
    free(w);
}

/* x goes round 2^62 times and comes out as it was. */
static pst_model *endless_model(void)
{
    pst_onnx_builder *body = pst_onnx_new("body", 17, 8), *b = pst_onnx_new("endless", 17, 8);
    const int64_t trips = (int64_t)1 << 62;
    pst_onnx_input(body, "i", PST_I64, 0, NULL, NULL);
    pst_onnx_input(body, "go", PST_BOOL, 0, NULL, NULL);
    pst_onnx_input(body, "s", PST_F32, 2, (int64_t[]){-1, 2}, "N");
    pst_onnx_node(body, "Identity", (const char *[]){"go"}, 1, (const char *[]){"on"}, 1);
    pst_onnx_node(body, "Neg", (const char *[]){"s"}, 1, (const char *[]){"t"}, 1);
    pst_onnx_output(body, "on", PST_BOOL, 0, NULL, NULL);
    pst_onnx_output(body, "t", PST_F32, 2, (int64_t[]){-1, 2}, "N");
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 2}, "N");
    pst_onnx_ints(b, "trips", 0, NULL, &trips);
    pst_onnx_node(b, "Loop", (const char *[]){"trips", "", "x"}, 3, (const char *[]){"y"}, 1);
    pst_onnx_attr_graph(b, "body", body);
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 2}, "N");
    pst_model *m = kit_load(b, NULL);
    pst_onnx_free(body);
    return m;
}

static void *tell_twice(void *arg)
{
    usleep(300000);
    pst_stop_request();
    pst_stop_request();
    return NULL;
}

static void test_core_models_without_an_end_are_told_and_can_be_stopped(void **state)
{
    pst_pipeline *p =
        kit_pipeline("name: t\ninput: {topics: [in], format: json}\noutput: {topic: out}\nmodel: {file: m.onnx}\nfeatures: [a, b]\n");
    pst_binding *b = kit_bind(p, endless_model(), 1);
    pst_err err = {0};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, tell_twice, NULL), 0);
    double *x = pst_binding_scratch(b, 2);
    x[0] = x[1] = 1;
    for (size_t i = 0; i < 8; i++)
        pst_binding_put(b, i, x);
    int64_t from = pst_mono_us();
    assert_int_equal(pst_binding_run(b, 0, 8, &err), PST_ESTOPPED);
    assert_int_equal(err.cls, PST_CLASS_RETRY);
    assert_true(pst_mono_us() - from < 100000000);
    pthread_join(t, NULL);
    pst_stop_reset();
    pst_err_clear(&err);
    from = pst_mono_us();
    assert_int_equal(pst_binding_probe(b, &err), PST_ELIMIT);
    assert_int_equal(err.cls, PST_CLASS_DATA);
    assert_non_null(strstr(err.text, "without an end"));
    assert_true(pst_mono_us() - from < 100000000);
    pst_binding_free(b);
    pst_pipeline_free(p);
}

static void test_core_changes_models_at_exact_offsets(void **state)
{
    world w = {0};
    static const float one[] = {1}, two[] = {2}, three[] = {3};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [n]\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, one, NULL), 1));
    pst_effective from[] = {{(char *)"in", 2, 5}};
    assert_int_equal(pst_score_core_offer(c, PST_VARIANT_PRIMARY, kit_bind(p, kit_linear(1, 1, two, NULL), 2), from, 1), 0);
    pst_binding *third = kit_bind(p, kit_linear(1, 1, three, NULL), 3);
    assert_int_equal(pst_score_core_offer(c, PST_VARIANT_PRIMARY, third, from, 1), PST_EAGAIN);
    pst_buf v = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":1}", &v);
    pst_record r[4] = {rec(3, &v), rec(4, &v), rec(5, &v), rec(6, &v)};
    pst_fate f[4];
    size_t usable;
    pst_err err = {0};
    for (int again = 0; again < 2; again++) { /* a replay gives the same scores */
        assert_int_equal(score(c, &w, r, 4, f, &usable, &err), 0);
        static const double want[] = {1, 1, 2, 2};
        for (size_t i = 0; i < 4; i++) {
            json_t *j = encoded(c, &w, &f[i], false);
            assert_true(score_of(j) == want[i]);
            assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "model"), "version")), (int)want[i]);
            json_decref(j);
        }
    }
    pst_score_core_committed(c, "in", 2, 5);
    assert_int_equal(pst_score_core_offer(c, PST_VARIANT_PRIMARY, third, NULL, 0), 0);
    assert_int_equal(score(c, &w, r, 4, f, &usable, &err), 0);
    json_t *j = encoded(c, &w, &f[0], false);
    assert_true(score_of(j) == 3);
    json_decref(j);
    pst_buf_done(&v);
    end_world(&w, c, p);
}

/* Version 2 counts from the ends of two partitions on, and only one of them gets records. Version 1 is to come back: an idle partition must not keep
 * version 2 at work on the other one, and a change without offsets waits for nothing. */
static void test_core_a_change_is_not_held_up_by_an_idle_partition(void **state)
{
    world w = {0};
    static const float one[] = {1}, two[] = {2}, three[] = {3};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [n]\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, one, NULL), 1));
    pst_effective ends[] = {{(char *)"in", 1, 9}, {(char *)"in", 2, 5}};
    assert_int_equal(pst_score_core_offer(c, PST_VARIANT_PRIMARY, kit_bind(p, kit_linear(1, 1, two, NULL), 2), ends, 2), 0);
    pst_score_core_committed(c, "in", 2, 7);
    pst_effective back[] = {{(char *)"in", 1, 9}, {(char *)"in", 2, 7}};
    pst_binding *again = kit_bind(p, kit_linear(1, 1, one, NULL), 1);
    const pst_range unknown[] = {{"in", 1, -1, -1}, {"in", 2, 7, -1}}, known[] = {{"in", 1, 9, -1}, {"in", 2, 7, -1}};
    pst_score_core_assigned(c, PST_VARIANT_PRIMARY, unknown, 2);
    assert_int_equal(pst_score_core_offer(c, PST_VARIANT_PRIMARY, again, back, 2), PST_EAGAIN);
    pst_score_core_assigned(c, PST_VARIANT_PRIMARY, known, 2);
    assert_int_equal(pst_score_core_offer(c, PST_VARIANT_PRIMARY, again, back, 2), 0);
    assert_int_equal(pst_score_core_offer(c, PST_VARIANT_PRIMARY, kit_bind(p, kit_linear(1, 1, three, NULL), 3), NULL, 0), 0);
    pst_buf v = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":1}", &v);
    pst_record r[] = {rec(5, &v), rec(7, &v)};
    pst_fate f[2];
    size_t usable;
    pst_err err = {0};
    assert_int_equal(score(c, &w, r, 2, f, &usable, &err), 0);
    for (size_t i = 0; i < 2; i++) {
        json_t *j = encoded(c, &w, &f[i], false);
        assert_true(score_of(j) == 3);
        json_decref(j);
    }
    pst_buf_done(&v);
    end_world(&w, c, p);
}

static void test_core_canary_and_shadow(void **state)
{
    world w = {0};
    static const float one[] = {1}, two[] = {2}, three[] = {3};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [n]\nbatching: {count: 1000}\n"
                                   "rollout: {canary: {alias: c, percent: 25}, shadow: {alias: s, topic: t}}\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, one, NULL), 1));
    pst_score_core_offer(c, PST_VARIANT_CANARY, kit_bind(p, kit_linear(1, 1, two, NULL), 2), NULL, 0);
    pst_score_core_offer(c, PST_VARIANT_SHADOW, kit_bind(p, kit_linear(1, 1, three, NULL), 3), NULL, 0);
    pst_buf v = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":1}", &v);
    static pst_record r[1000];
    static pst_fate f[1000];
    static char keys[1000][8];
    size_t usable, canaries = 0;
    pst_err err = {0};
    for (int i = 0; i < 1000; i++) {
        r[i] = rec(i, &v);
        r[i].key_len = (size_t)snprintf(keys[i], sizeof(keys[i]), "k%d", i);
        r[i].key = keys[i];
    }
    assert_int_equal(score(c, &w, r, 1000, f, &usable, &err), 0);
    for (int i = 0; i < 1000; i++) {
        json_t *j = encoded(c, &w, &f[i], false);
        bool canary = !strcmp(json_string_value(json_object_get(j, "variant")), "CANARY");
        assert_true(score_of(j) == (canary ? 2 : 1));
        canaries += canary;
        json_decref(j);
        j = encoded(c, &w, &f[i], true);
        assert_string_equal(json_string_value(json_object_get(j, "variant")), "SHADOW");
        assert_true(score_of(j) == 3);
        json_decref(j);
    }
    assert_in_range(canaries, 200, 300);
    pst_score_core_canary(c, 0); /* it rests: all records are the primary's */
    assert_int_equal(score(c, &w, r, 1000, f, &usable, &err), 0);
    for (int i = 0; i < 1000; i++)
        assert_true(!f[i].canary && pst_score_core_lane_variant(f[i].by) == PST_VARIANT_PRIMARY);
    pst_buf_done(&v);
    end_world(&w, c, p);
}

/* The shadow gives 3 where the primary gives 1; the canary's records are not the primary's, so they say nothing. */
static void agreement(const char *more, int want, double difference)
{
    world w = {0};
    static const float one[] = {1}, two[] = {2}, three[] = {3};
    char *text = pst_sprintf("name: p\nmodel: {name: line}\nfeatures: [n]\nbatching: {count: 100}\n%s}}\n", more);
    pst_pipeline *p = kit_pipeline(text);
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, one, NULL), 1));
    pst_score_core_offer(c, PST_VARIANT_CANARY, kit_bind(p, kit_linear(1, 1, two, NULL), 2), NULL, 0);
    pst_score_core_offer(c, PST_VARIANT_SHADOW, kit_bind(p, kit_linear(1, 1, three, NULL), 3), NULL, 0);
    pst_buf v = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":1}", &v);
    static pst_record r[100];
    static pst_fate f[100];
    static char keys[100][8];
    size_t usable, canaries = 0;
    pst_err err = {0};
    for (int i = 0; i < 100; i++) {
        r[i] = rec(i, &v);
        r[i].key_len = (size_t)snprintf(keys[i], sizeof(keys[i]), "k%d", i);
        r[i].key = keys[i];
    }
    assert_int_equal(score(c, &w, r, 100, f, &usable, &err), 0);
    for (int i = 0; i < 100; i++) {
        bool canary = pst_score_core_lane_variant(f[i].by) == PST_VARIANT_CANARY;
        canaries += canary;
        assert_int_equal(f[i].agreement, canary ? PST_AGREE_UNSEEN : want);
        assert_int_equal(f[i].disagrees, !canary && want == PST_AGREE_DIFFERENT);
        if (!canary)
            assert_true(fabs(f[i].difference - difference) < 1e-9);
    }
    assert_in_range(canaries, 10, 90);
    pst_buf_done(&v);
    free(text);
    end_world(&w, c, p);
}

#define ROLLOUT "rollout: {canary: {alias: c, percent: 50}, shadow: {alias: s, topic: t"

static void test_core_compares_shadow_and_primary(void **state)
{
    agreement(ROLLOUT, PST_AGREE_UNJUDGED, 2);
    agreement(ROLLOUT ", tolerance: 2", PST_AGREE_EQUAL, 2);
    agreement(ROLLOUT ", tolerance: 1.9", PST_AGREE_DIFFERENT, 2);
    agreement("score: {threshold: 2}\n" ROLLOUT, PST_AGREE_DIFFERENT, 2);
    agreement("score: {threshold: 5}\n" ROLLOUT, PST_AGREE_EQUAL, 2);
}

static void test_core_survives_damaged_records(void **state)
{
    world w = {0};
    pst_pipeline *p = kit_pipeline(full_pipeline);
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(5, 1, digits, NULL), 3));
    pst_buf v = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"cpu\":{\"user\":3,\"sys\":0.5},\"n\":4,\"on\":true,\"mode\":\"busy\",\"tag\":\"t\"}", &v);
    unsigned seed = 7;
    size_t scored = 0;
    for (int round = 0; round < 20000; round++) {
        char *copy = malloc(v.len); /* exact size: the sanitizer sees one byte beyond */
        memcpy(copy, v.data, v.len);
        for (int k = rand_r(&seed) % 4; k >= 0; k--)
            copy[5 + (size_t)rand_r(&seed) % (v.len - 5)] = (char)rand_r(&seed);
        pst_record r = {.topic = "in", .offset = round, .value = copy, .value_len = v.len - (size_t)rand_r(&seed) % 3};
        pst_fate f;
        size_t usable;
        pst_err err = {0};
        if (score(c, &w, &r, 1, &f, &usable, &err) < 0)
            fail_msg("round %d: %s", round, err.text);
        if (f.kind == PST_FATE_SCORED) {
            assert_true(pst_score_core_value(c, &f, false).len > PST_FRAME_BYTES);
            scored++;
        }
        free(copy);
    }
    assert_true(scored > 100);
    pst_buf_done(&v);
    end_world(&w, c, p);
}

static void test_ocf_refuses_what_is_no_file(void **state)
{
    score_ocf *f = NULL;
    pst_err err = {0};
    assert_true(score_ocf_open("hello", 5, "x", &f, &err) < 0);
    pst_err_clear(&err);
    assert_true(score_ocf_open("Obj\x01\x02", 5, "x", &f, &err) < 0);
    assert_non_null(strstr(err.text, "cut off"));
}

/* Scores of versions that did not say what computed them are read, and theirs read ours. */
static void test_core_the_schema_of_before_goes_both_ways(void **state)
{
    static const char before[] =
        "{\"type\":\"record\",\"name\":\"Score\",\"namespace\":\"penstock\",\"fields\":["
        "{\"name\":\"score\",\"type\":{\"type\":\"array\",\"items\":\"double\"}},"
        "{\"name\":\"label\",\"type\":[\"null\",\"string\"],\"default\":null},"
        "{\"name\":\"model\",\"type\":{\"type\":\"record\",\"name\":\"ScoreModel\",\"fields\":["
        "{\"name\":\"name\",\"type\":\"string\"},{\"name\":\"version\",\"type\":\"int\"},{\"name\":\"digest\",\"type\":\"string\"}]}},"
        "{\"name\":\"source\",\"type\":{\"type\":\"record\",\"name\":\"ScoreSource\",\"fields\":["
        "{\"name\":\"topic\",\"type\":\"string\"},{\"name\":\"partition\",\"type\":\"int\"},{\"name\":\"offset\",\"type\":\"long\"},"
        "{\"name\":\"timestamp\",\"type\":{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}}]}},"
        "{\"name\":\"variant\",\"type\":{\"type\":\"enum\",\"name\":\"ScoreVariant\",\"symbols\":[\"PRIMARY\",\"CANARY\",\"SHADOW\"],"
        "\"default\":\"PRIMARY\"},\"default\":\"PRIMARY\"},"
        "{\"name\":\"scored_at\",\"type\":{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}},"
        "{\"name\":\"missing\",\"type\":{\"type\":\"array\",\"items\":\"string\"},\"default\":[]},"
        "{\"name\":\"threshold\",\"type\":[\"null\",\"double\"],\"default\":null}]}";
    pst_output *o = NULL;
    pst_err err = {0};
    pst_buf why = {0};
    pst_pipeline *p = kit_pipeline("name: p\ninput: {topics: [in]}\nmodel: {name: line}\noutput: {topic: out}\n");
    assert_int_equal(pst_output_new(p, NULL, &o, &err), 0);
    pst_schema *old = kit_schema(before), *now = kit_schema(pst_output_schema(o));
    if (!pst_schema_can_read(now, old, &why) || !pst_schema_can_read(old, now, &why))
        fail_msg("%.*s", (int)why.len, why.data);
    pst_buf_done(&why);
    pst_schema_free(old);
    pst_schema_free(now);
    pst_output_free(o);
    pst_pipeline_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_core_scores_and_encodes_the_whole_record),
        cmocka_unit_test(test_core_one_bad_record_never_harms_its_batch),
        cmocka_unit_test(test_core_waits_for_what_is_away_and_uses_what_is_before),
        cmocka_unit_test(test_core_null_values_go_by_policy),
        cmocka_unit_test(test_core_refuses_a_schema_that_cannot_fit),
        cmocka_unit_test(test_core_reads_json_by_the_same_paths),
        cmocka_unit_test(test_core_slim_output_is_the_score_alone),
        cmocka_unit_test(test_core_takes_mapping_means_and_score_from_the_model),
        cmocka_unit_test(test_binding_says_what_does_not_fit),
        cmocka_unit_test(test_core_arrays_fill_the_slots_that_are_left),
        cmocka_unit_test(test_core_classes_have_a_label),
        cmocka_unit_test(test_core_feeds_inputs_of_strings),
        cmocka_unit_test(test_core_models_that_draw_give_a_record_one_score),
        cmocka_unit_test(test_core_limits_of_the_pipeline_hold_for_its_model),
        cmocka_unit_test(test_core_models_without_an_end_are_told_and_can_be_stopped),
        cmocka_unit_test(test_core_changes_models_at_exact_offsets),
        cmocka_unit_test(test_core_a_change_is_not_held_up_by_an_idle_partition),
        cmocka_unit_test(test_core_canary_and_shadow),
        cmocka_unit_test(test_core_compares_shadow_and_primary),
        cmocka_unit_test(test_core_survives_damaged_records),
        cmocka_unit_test(test_core_the_schema_of_before_goes_both_ways),
        cmocka_unit_test(test_ocf_refuses_what_is_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
