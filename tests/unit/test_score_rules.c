/* test_score_rules.c - what the core does with output schemas that are refused, models that do not fit, scores that are no numbers, nulls in arrays. */
#include "inference/core/decoder.h"
#include "tests/unit/core_kit.h"

static void test_core_a_refused_output_schema_is_said_of_each_record_and_asked_for_once(void **state)
{
    world w = {0};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\noutput: {topic: out}\nfeatures: [n]\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, digits, NULL), 1));
    pst_buf good = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":4}", &good);
    pst_record r[2] = {rec(0, &good), rec(1, &good)};
    pst_fate f[2];
    size_t usable = 9;
    pst_err err = {0};
    w.refuse = PST_EUNREACH; /* an outage is asked about again each time */
    for (int i = 0; i < 2; i++) {
        pst_err_clear(&err);
        assert_int_equal(score(c, &w, r, 2, f, &usable, &err), 0);
        assert_int_equal(usable, 0);
        assert_int_equal(err.code, PST_EUNREACH);
        assert_int_equal(err.cls, PST_CLASS_RETRY);
    }
    assert_int_equal(w.offered, 2);
    w.refuse = PST_EINCOMPAT;
    assert_int_equal(score_at(c, &w, r, 2, 1000, f, &usable, &err), 0);
    assert_int_equal(usable, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(f[i].kind, PST_FATE_BAD);
        assert_string_equal(f[i].stage, "ENCODE");
        assert_string_equal(f[i].reason, "output-schema");
        assert_string_equal(pst_score_core_message(c, &f[i]), "no such thing");
    }
    assert_int_equal(w.offered, 3);
    w.refuse = 0; /* after half a minute it may have been mended */
    assert_int_equal(score_at(c, &w, r, 1, 29000000, f, &usable, &err), 0);
    assert_int_equal(f[0].kind, PST_FATE_BAD);
    assert_int_equal(score_at(c, &w, r, 1, 32000000, f, &usable, &err), 0);
    assert_int_equal(f[0].kind, PST_FATE_SCORED);
    assert_int_equal(w.offered, 4);
    pst_buf_done(&good);
    end_world(&w, c, p);
}

/* An array with one null scores alike whichever format it comes in: its slot is what the policy says, the others are there. */
static void test_core_a_null_in_an_array_means_the_same_in_avro_and_json(void **state)
{
    static const float w3[] = {1, 10, 100};
    static const char *const policies[] = {"value, value: 7", "nan", "reject"};
    for (int i = 0; i < 3; i++) {
        for (int json = 0; json < 2; json++) {
            world w = {0};
            char text[300];
            snprintf(text, sizeof(text), "name: p\ninput: {format: %s}\nmodel: {name: line}\nfeatures: [{field: v, missing: %s}]\n",
                     json ? "json" : "avro", policies[i]);
            pst_pipeline *p = kit_pipeline(text);
            pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(3, 1, w3, NULL), 1));
            pst_schema_free(w.schema);
            w.schema = kit_schema("{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"v\",\"type\":{\"type\":\"array\","
                                  "\"items\":[\"null\",\"double\"]}}]}");
            pst_buf b = {0};
            if (json)
                pst_buf_adds(&b, "{\"v\":[1,null,3]}");
            else
                kit_value(w.schema, 1, "{\"v\":[1,null,3]}", &b);
            pst_record r = rec(0, &b);
            pst_fate f;
            size_t usable = 0;
            pst_err err = {0};
            const double *scores;
            const char *label;
            assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
            assert_int_equal(f.kind, i == 2 ? PST_FATE_BAD : PST_FATE_SCORED);
            if (i < 2) {
                assert_int_equal(pst_score_core_score(&f, false, &scores, &label), 1);
                assert_true(i == 0 ? scores[0] == 371 : isnan(scores[0]));
            }
            pst_buf_done(&b);
            end_world(&w, c, p);
        }
    }
}

/* A binding of another width than the pipeline's two features; pst_score_core_fits says what of it. */
static void test_core_says_whether_another_model_would_fit(void **state)
{
    static const float seven[7] = {1, 1, 1, 1, 1, 1, 1};
    static const char *const heads[] = {"", "input: {format: json}\n"};
    for (int json = 0; json < 2; json++) {
        world w = {0};
        char text[300];
        snprintf(text, sizeof(text), "name: p\n%smodel: {name: line}\noutput: {topic: out}\nfeatures: [n, on]\n", heads[json]);
        pst_pipeline *p = kit_pipeline(text);
        pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(2, 1, digits, NULL), 1));
        pst_binding *wide = kit_bind(p, kit_linear(7, 1, seven, NULL), 2), *same = kit_bind(p, kit_linear(2, 1, digits, NULL), 3);
        pst_err err = {0};
        assert_int_equal(pst_score_core_fits(c, PST_VARIANT_PRIMARY, wide, &err), 0); /* nothing has been seen that it would not take */
        pst_buf good = {0};
        if (json)
            pst_buf_adds(&good, "{\"n\":4,\"on\":true}");
        else
            kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":4,\"on\":true}", &good);
        pst_record r = rec(0, &good);
        pst_fate f;
        size_t usable = 0;
        assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
        assert_int_equal(f.kind, PST_FATE_SCORED);
        assert_true(pst_score_core_fits(c, PST_VARIANT_PRIMARY, wide, &err) < 0);
        assert_int_equal(err.cls, PST_CLASS_DATA);
        assert_non_null(strchr(err.text, '7'));
        pst_err_clear(&err);
        assert_int_equal(pst_score_core_fits(c, PST_VARIANT_PRIMARY, same, &err), 0);
        assert_int_equal(pst_score_core_offer(c, PST_VARIANT_PRIMARY, same, NULL, 0), 0); /* being asked has not worn it */
        assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
        json_t *j = encoded(c, &w, &f, false);
        assert_true(score_of(j) == 14);
        json_decref(j);
        pst_binding_free(wide);
        pst_buf_done(&good);
        end_world(&w, c, p);
    }
}

/* Means and zeros in place of every field would make one score of all records: a model for other records is not taken for this one's. */
static void test_core_a_model_of_which_the_records_have_no_field_does_not_fit(void **state)
{
    world w = {0};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [n]\n");
    pst_pipeline *some = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [n, {field: gone, missing: value, value: 1}]\n");
    pst_pipeline *none = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [{field: gone, missing: value, value: 1}]\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, digits, NULL), 1));
    pst_buf b = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":4}", &b);
    pst_record r = rec(0, &b);
    pst_fate f;
    size_t usable = 0;
    pst_err err = {0};
    assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
    assert_int_equal(f.kind, PST_FATE_SCORED);
    pst_binding *fits = kit_bind(some, kit_linear(2, 1, digits, NULL), 2), *other = kit_bind(none, kit_linear(1, 1, digits, NULL), 3);
    assert_int_equal(pst_score_core_fits(c, PST_VARIANT_PRIMARY, fits, &err), 0);
    assert_int_equal(pst_score_core_fits(c, PST_VARIANT_PRIMARY, other, &err), PST_EINCOMPAT);
    assert_int_equal(err.cls, PST_CLASS_DATA);
    assert_non_null(strstr(err.text, "gone"));
    pst_binding_free(fits);
    pst_binding_free(other);
    pst_pipeline_free(some);
    pst_pipeline_free(none);
    pst_buf_done(&b);
    end_world(&w, c, p);
}

/* An array without `slots` takes the length that the model leaves it: the records seen say whether a successor leaves it the same. */
static void test_core_a_model_that_wants_another_length_of_an_array_does_not_fit(void **state)
{
    static const float w3[] = {1, 10, 100}, w2[] = {1, 10};
    for (int json = 0; json < 2; json++) {
        world w = {0};
        char text[200];
        snprintf(text, sizeof(text), "name: p\ninput: {format: %s}\nmodel: {name: line}\nfeatures: [v]\n", json ? "json" : "avro");
        pst_pipeline *p = kit_pipeline(text);
        pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(3, 1, w3, NULL), 1));
        pst_schema_free(w.schema);
        w.schema = kit_schema(
            "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"v\",\"type\":{\"type\":\"array\",\"items\":\"double\"}}]}");
        pst_buf b = {0};
        if (json)
            pst_buf_adds(&b, "{\"v\":[1,2,3]}");
        else
            kit_value(w.schema, 1, "{\"v\":[1,2,3]}", &b);
        pst_record r = rec(0, &b);
        pst_fate f;
        size_t usable = 0;
        pst_err err = {0};
        assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
        assert_int_equal(f.kind, PST_FATE_SCORED);
        pst_binding *other = kit_bind(p, kit_linear(2, 1, w2, NULL), 2), *same = kit_bind(p, kit_linear(3, 1, w3, NULL), 3);
        assert_true(pst_score_core_fits(c, PST_VARIANT_PRIMARY, other, &err) < 0);
        assert_non_null(strstr(err.text, "2 "));
        pst_err_clear(&err);
        assert_int_equal(pst_score_core_fits(c, PST_VARIANT_PRIMARY, same, &err), 0);
        pst_binding_free(other);
        pst_binding_free(same);
        pst_buf_done(&b);
        end_world(&w, c, p);
    }
}

static void test_core_scores_that_are_no_numbers_go_by_policy(void **state)
{
    for (int dead = 0; dead < 2; dead++) {
        world w = {0};
        pst_pipeline *p = kit_pipeline(
            dead ? "name: p\nmodel: {name: line}\nfeatures: [{field: cpu.user, missing: nan}]\nscore: {non_finite: dead_letter}\n"
                 : "name: p\nmodel: {name: line}\nfeatures: [{field: cpu.user, missing: nan}]\n");
        pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, digits, NULL), 1));
        pst_buf good = {0}, null = {0};
        kit_value(w.schema, 1, "{\"host\":\"a\",\"cpu\":{\"user\":3,\"sys\":1},\"n\":4}", &good);
        kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":4}", &null);
        pst_record r[2] = {rec(0, &good), rec(1, &null)};
        pst_fate f[2];
        size_t usable = 0;
        pst_err err = {0};
        assert_int_equal(score(c, &w, r, 2, f, &usable, &err), 0);
        assert_int_equal(f[0].kind, PST_FATE_SCORED);
        assert_false(f[0].non_finite);
        assert_int_equal(f[1].kind, dead ? PST_FATE_BAD : PST_FATE_SCORED);
        assert_true(f[1].non_finite); /* counted, whatever policy makes of it */
        if (dead) {
            assert_string_equal(f[1].stage, "INFER");
            assert_string_equal(f[1].reason, "non-finite");
        }
        pst_buf_done(&good), pst_buf_done(&null);
        end_world(&w, c, p);
    }
}

static void test_decoder_json_tells_whether_the_fields_fill_the_model(void **state)
{
    static const struct {
        const char *features, *json;
        int rc;
        const char *says;
    } rows[] = {
        {"a, b, c, d", "{\"a\":1,\"b\":2,\"c\":3,\"d\":4}", 0, ""},
        {"a, b, c, d", "{\"a\":1,\"b\":\"word\"}", 0, ""}, /* not what is in them */
        {"a, b, c", "{\"a\":1,\"b\":2,\"c\":3}", PST_EINCOMPAT, "fill 3 slots, the model's input has 4"},
        {"a, v", "{\"a\":1,\"v\":[1,2,3]}", 0, ""},
        {"a, v", "{\"a\":1,\"v\":[1,2]}", PST_EINCOMPAT, "field v has 2 elements, 3 are wanted"},
        {"a, v", "{\"a\":1,\"w\":[1,2,3]}", PST_EINCOMPAT, "no field v"},
        {"a, {field: v, slots: 3}", "{\"a\":1,\"v\":7}", PST_EINCOMPAT, "field v is one number"},
        {"a, {field: v, slots: 3}", "{\"a\":1}", 0, ""},
        {"a, {field: m, vocabulary: [x, y]}, b, c", "{\"a\":1,\"m\":\"x\",\"b\":1,\"c\":1}", 0, ""},
        {"a, b, c, d", "[1]", PST_EINVAL, "no object"},
        {"a, b, c, d", "{", PST_EPARSE, "no JSON"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[200];
        snprintf(text, sizeof(text), "name: p\ninput: {format: json}\nmodel: {name: line}\nfeatures: [%s]\n", rows[i].features);
        pst_pipeline *p = kit_pipeline(text);
        pst_binding *b = kit_bind(p, kit_linear(4, 1, digits, NULL), 1);
        pst_decoder *d = NULL;
        pst_err err = {0};
        assert_int_equal(pst_decoder_new(p, b, NULL, &d, &err), 0);
        int rc = pst_decoder_json_fills(d, rows[i].json, strlen(rows[i].json), &err);
        if (rc != rows[i].rc || !strstr(err.text, rows[i].says))
            fail_msg("%s with %s: %d %s", rows[i].features, rows[i].json, rc, err.text);
        pst_decoder_free(d);
        pst_binding_free(b);
        pst_pipeline_free(p);
    }
}

/* A field that was to be the array and is not there: its name is what helps, not a count of slots. */
static void test_decoder_avro_names_an_array_field_that_the_schema_lacks(void **state)
{
    static const char *const policies[] = {"reject", "nan"};
    for (int i = 0; i < 2; i++) {
        char text[200];
        snprintf(text, sizeof(text), "name: p\nmodel: {name: line}\nfeatures: [n, {field: vec, missing: %s}]\n", policies[i]);
        pst_pipeline *p = kit_pipeline(text);
        pst_binding *b = kit_bind(p, kit_linear(4, 1, digits, NULL), 1);
        pst_schema *s = kit_schema("{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"n\",\"type\":\"int\"}]}");
        pst_decoder *d = NULL;
        pst_err err = {0};
        assert_int_equal(pst_decoder_new(p, b, s, &d, &err), PST_EINCOMPAT);
        if (!strstr(err.text, "no field vec"))
            fail_msg("%s", err.text);
        pst_schema_free(s);
        pst_binding_free(b);
        pst_pipeline_free(p);
    }
}

/* What the check runs for one row of zeros finds a score that the model's outputs can never make. */
static void test_binding_probe_finds_an_output_that_makes_no_such_score(void **state)
{
    static const char *const types[] = {"raw", "reconstruction_error"};
    for (int i = 0; i < 2; i++) {
        char text[200];
        snprintf(text, sizeof(text), "name: p\nmodel: {name: line}\nfeatures: [a, b, c, d]\nscore: {type: %s}\n", types[i]);
        pst_pipeline *p = kit_pipeline(text);
        pst_binding *b = kit_bind(p, kit_linear(4, 1, digits, NULL), 1);
        pst_err err = {0};
        assert_int_equal(pst_binding_probe(b, &err), i ? PST_EINCOMPAT : 0);
        if (i)
            assert_non_null(strstr(err.text, "as wide as the input (4)"));
        pst_binding_free(b);
        pst_pipeline_free(p);
    }
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [a, b, c, {field: d, input: z}]\n");
    pst_model *m = kit_linear(4, 1, digits, NULL);
    pst_binding *none = NULL;
    pst_err err = {0};
    assert_int_equal(pst_binding_new(p, m, "line", 1, 1, &none, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "input z, its only input is x"));
    pst_model_unref(m);
    pst_pipeline_free(p);
}

/* What is passed on is read by others, who would stumble over it. */
static void test_core_a_string_that_is_no_text_is_not_passed_on(void **state)
{
    world w = {0};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [cpu.user]\noutput: {topic: o, passthrough: [host]}\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, digits, NULL), 1));
    pst_buf good = {0}, bad = {0};
    kit_value(w.schema, 1, "{\"host\":\"zwei und f\u00fcnfzig\",\"cpu\":{\"user\":3,\"sys\":1},\"n\":4}", &good);
    pst_buf_add(&bad, good.data, good.len);
    char *at = memmem(bad.data, bad.len, "zwei", 4);
    assert_non_null(at);
    at[0] = (char)0xff;
    pst_record r[2] = {rec(0, &good), rec(1, &bad)};
    pst_fate f[2];
    size_t usable = 0;
    pst_err err = {0};
    assert_int_equal(score(c, &w, r, 2, f, &usable, &err), 0);
    assert_int_equal(f[0].kind, PST_FATE_SCORED);
    assert_int_equal(f[1].kind, PST_FATE_BAD);
    assert_string_equal(f[1].stage, "DECODE");
    assert_non_null(strstr(pst_score_core_message(c, &f[1]), "UTF-8"));
    pst_buf_done(&good), pst_buf_done(&bad);
    end_world(&w, c, p);
}

/* 1e300 is a number in the record and would be infinite, or another one, in the model. */
static void test_core_numbers_beyond_the_models_type_go_by_policy(void **state)
{
    static const char *const texts[] = {"{\"a\": 1e300}", "{\"a\": -3.5e38}", "{\"a\": 3.4e38}", "{\"a\": 2}"};
    for (int dead = 0; dead < 2; dead++) {
        world w = {0};
        pst_pipeline *p = kit_pipeline(
            dead ? "name: p\ninput: {topics: [in], format: json}\nmodel: {name: line}\nfeatures: [a]\nscore: {non_finite: dead_letter}\n"
                 : "name: p\ninput: {topics: [in], format: json}\nmodel: {name: line}\nfeatures: [a]\n");
        static const float small[] = {1e-6f, 0};
        pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, small, NULL), 1));
        for (size_t i = 0; i < 4; i++) {
            bool finite = i >= 2;
            pst_record r = {.topic = "in", .offset = (int64_t)i, .value = texts[i], .value_len = strlen(texts[i])};
            pst_fate f;
            size_t usable = 0;
            pst_err err = {0};
            assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
            assert_int_equal(usable, 1);
            assert_int_equal(f.kind, dead && !finite ? PST_FATE_BAD : PST_FATE_SCORED);
            assert_int_equal(f.non_finite, !finite);
            if (f.kind == PST_FATE_SCORED)
                continue;
            assert_string_equal(f.stage, "MAP");
            assert_string_equal(f.reason, "non-finite");
            assert_non_null(strstr(pst_score_core_message(c, &f), "field a: "));
        }
        end_world(&w, c, p);
    }
}

/* Avro has numbers that are none. One is kept out by `missing: reject`, one goes on to the model; either is told alike, and counted. */
static void test_core_features_that_are_no_numbers_are_told_alike(void **state)
{
    static const struct {
        double x;
        const char *kept_out, *stage; /* with non_finite: pass, and with dead_letter */
    } rows[] = {{(double)NAN, "MAP", "MAP"}, {(double)INFINITY, NULL, "INFER"}, {-1e300, NULL, "MAP"}, {2, NULL, NULL}};
    for (int dead = 0; dead < 2; dead++) {
        world w = {0};
        pst_pipeline *p = kit_pipeline(dead ? "name: p\nmodel: {name: line}\nfeatures: [a]\nscore: {non_finite: dead_letter}\n"
                                            : "name: p\nmodel: {name: line}\nfeatures: [a]\n");
        pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(1, 1, digits, NULL), 1));
        pst_schema_free(w.schema);
        w.schema = kit_schema("{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"a\",\"type\":\"double\"}]}");
        for (size_t i = 0; i < 4; i++) {
            const char *stage = dead ? rows[i].stage : rows[i].kept_out;
            pst_buf b = {0};
            pst_frame_put(&b, 1);
            pst_avro_put_double(&b, rows[i].x);
            pst_record r = rec((int64_t)i, &b);
            pst_fate f;
            size_t usable = 0;
            pst_err err = {0};
            assert_int_equal(score(c, &w, &r, 1, &f, &usable, &err), 0);
            assert_int_equal(f.kind, stage ? PST_FATE_BAD : PST_FATE_SCORED);
            assert_int_equal(f.non_finite, i < 3);
            if (stage) {
                assert_string_equal(f.stage, stage);
                assert_string_equal(f.reason, "non-finite");
            }
            if (!i)
                assert_non_null(strstr(pst_score_core_message(c, &f), "field a is NaN"));
            pst_buf_done(&b);
        }
        end_world(&w, c, p);
    }
}

/* Fails on numbers beyond 3. */
static pst_model *small_numbers(void)
{
    static const float row[4] = {0};
    pst_onnx_builder *b = pst_onnx_new("small", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 1}, "N");
    pst_onnx_floats(b, "row", 1, (int64_t[]){4}, row);
    kit_node(b, "Cast x > i");
    pst_onnx_attr_int(b, "to", 7); /* int64 */
    kit_node(b, "Gather row i > y");
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 1}, "N");
    return kit_load(b, NULL);
}

/* Seen as 150 of 150 records, one by one, in the topic of dead letters while the log said that none was dead-lettered; and as the primary's half of them
 * beside a canary that worked. */
static void test_core_a_model_that_fails_on_everything_stays_held(void **state)
{
    static const char *const texts[] = {
        "name: p\nmodel: {name: line}\nfeatures: [n]\n",
        "name: p\nmodel: {name: line}\nfeatures: [n]\nrollout: {canary: {alias: c, percent: 50}}\n",
    };
    for (size_t t = 0; t < 2; t++) {
        world w = {0};
        pst_pipeline *p = kit_pipeline(texts[t]);
        pst_score_core *c = make_core(&w, p, kit_bind(p, small_numbers(), 1));
        if (p->has_canary)
            pst_score_core_offer(c, PST_VARIANT_CANARY, kit_bind(p, kit_linear(1, 1, digits, NULL), 2), NULL, 0);
        pst_buf large = {0}, small = {0};
        kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":50}", &large);
        kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":1}", &small);
        int letters = 0;
        for (int64_t offset = 0; offset < 200; offset++) {
            pst_fate f = {0};
            size_t n = 0;
            pst_err err = {0};
            pst_record r = rec(offset, &large);
            int rc = score(c, &w, &r, 1, &f, &n, &err);
            assert_true(rc == 0 || rc == PST_ESTATE);
            letters += rc == 0 && f.kind == PST_FATE_BAD;
        }
        assert_int_equal(letters, 19); /* the twentieth says that it is not the records */
        pst_fate f[2];
        size_t n = 0;
        pst_err err = {0};
        for (int64_t offset = 200; offset < 232; offset++) { /* one that it can: so the other was at fault */
            pst_record r[2] = {rec(offset, &large), rec(offset, &small)};
            assert_int_equal(score(c, &w, r, 2, f, &n, &err), 0);
            if (pst_score_core_lane_variant(f[0].by) != PST_VARIANT_PRIMARY)
                continue;
            assert_int_equal(f[0].kind, PST_FATE_BAD);
            assert_int_equal(f[1].kind, PST_FATE_SCORED);
            break;
        }
        pst_buf_done(&large), pst_buf_done(&small);
        end_world(&w, c, p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_core_a_refused_output_schema_is_said_of_each_record_and_asked_for_once),
        cmocka_unit_test(test_core_a_null_in_an_array_means_the_same_in_avro_and_json),
        cmocka_unit_test(test_core_a_model_that_wants_another_length_of_an_array_does_not_fit),
        cmocka_unit_test(test_binding_probe_finds_an_output_that_makes_no_such_score),
        cmocka_unit_test(test_decoder_avro_names_an_array_field_that_the_schema_lacks),
        cmocka_unit_test(test_decoder_json_tells_whether_the_fields_fill_the_model),
        cmocka_unit_test(test_core_says_whether_another_model_would_fit),
        cmocka_unit_test(test_core_a_model_of_which_the_records_have_no_field_does_not_fit),
        cmocka_unit_test(test_core_scores_that_are_no_numbers_go_by_policy),
        cmocka_unit_test(test_core_numbers_beyond_the_models_type_go_by_policy),
        cmocka_unit_test(test_core_features_that_are_no_numbers_are_told_alike),
        cmocka_unit_test(test_core_a_string_that_is_no_text_is_not_passed_on),
        cmocka_unit_test(test_core_a_model_that_fails_on_everything_stays_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
