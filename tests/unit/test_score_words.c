/* test_score_words.c - words of records → numbers and one-hot slots: which word fills which slot, and what becomes of missing and unknown ones, in
 * Avro and in JSON alike. */
#include "tests/unit/score_kit.h"

#include "inference/core/decoder.h"
#include "inference/core/words.h"

static const char schema_text[] =
    "{\"type\":\"record\",\"name\":\"R\",\"fields\":["
    "{\"name\":\"kind\",\"type\":[\"null\",\"string\"],\"default\":null},"
    "{\"name\":\"gear\",\"type\":{\"type\":\"enum\",\"name\":\"Gear\",\"symbols\":[\"low\",\"high\",\"park\"]}},"
    "{\"name\":\"zone\",\"type\":[\"null\",\"int\"],\"default\":null},"
    "{\"name\":\"id\",\"type\":\"long\"},"
    "{\"name\":\"on\",\"type\":\"boolean\"},"
    "{\"name\":\"mix\",\"type\":[\"string\",\"long\",\"boolean\",\"double\"]},"
    "{\"name\":\"raw\",\"type\":\"bytes\"},"
    "{\"name\":\"x\",\"type\":\"double\"}]}";

/* What a record holds that the case does not speak of. */
static json_t *whole(const char *some)
{
    json_t *j = json_loads("{\"kind\":\"car\",\"gear\":\"low\",\"zone\":1,\"id\":7,\"on\":true,\"mix\":\"car\",\"raw\":\"car\",\"x\":0.5}",
                           0, NULL);
    json_t *o = json_loads(some, 0, NULL);
    assert_non_null(o);
    json_object_update(j, o);
    json_decref(o);
    return j;
}

/* The row of one record as text, "1 0 0.5"; or the message; ret_missing as of the first feature. The model's results are its inputs. */
static void row_by(const pst_pipeline *p, pst_binding *b, bool avro, const char *record, char *ret, size_t cap, bool *ret_missing)
{
    pst_schema *s = kit_schema(schema_text);
    pst_decoder *d = NULL;
    pst_err err = {0};
    pst_decode_fault fault = {0};
    pst_buf bytes = {0}, framed = {0}, arena = {0};
    uint8_t missing[8] = {0};
    json_t *j = whole(record);
    char *dump = json_dumps(j, 0);
    kit_value(s, 1, dump, &framed);
    if (avro)
        pst_buf_add(&bytes, framed.data + PST_FRAME_BYTES, framed.len - PST_FRAME_BYTES);
    else
        pst_buf_adds(&bytes, dump);
    int rc = pst_decoder_new(p, b, avro ? s : NULL, &d, &err);
    for (int round = 0; rc == 0 && round < 2; round++) /* twice: nothing of an earlier record may stay */
        rc = pst_decoder_run(d, bytes.data, bytes.len, 0, missing, NULL, &arena, &fault, &err);
    if (rc == 0)
        rc = pst_binding_run(b, 0, 1, &err);
    if (rc == 0) {
        const double *scores;
        const char *label;
        size_t n = pst_binding_score(b, 0, &scores, &label), at = 0;
        ret[0] = 0;
        for (size_t i = 0; i < n; i++)
            at += (size_t)snprintf(ret + at, cap - at, "%s%g", i ? " " : "", scores[i]);
    } else {
        snprintf(ret, cap, "%s", err.text);
    }
    *ret_missing = missing[0];
    free(dump);
    json_decref(j);
    pst_buf_done(&framed);
    pst_buf_done(&bytes);
    pst_buf_done(&arena);
    pst_decoder_free(d);
    pst_schema_free(s);
}

static void row_of(const char *features, size_t width, bool avro, const char *record, char *ret, size_t cap, bool *ret_missing)
{
    float identity[8 * 8] = {0};
    char text[600];
    for (size_t i = 0; i < width; i++)
        identity[i * width + i] = 1;
    snprintf(text, sizeof text, "name: p\ninput: {format: %s}\nmodel: {name: line}\nfeatures: [%s]\nbatching: {count: 2}\n",
             avro ? "avro" : "json", features);
    pst_pipeline *p = kit_pipeline(text);
    pst_binding *b = kit_bind(p, kit_linear((int64_t)width, (int64_t)width, identity, NULL), 1);
    row_by(p, b, avro, record, ret, cap, ret_missing);
    pst_binding_free(b);
    pst_pipeline_free(p);
}

static const struct row_case {
    const char *features;
    size_t width;
    const char *record, *want; /* the row, or a part of the message */
    bool missing;
} cases[] = {
    /* as get_dummies and OneHotEncoder(handle_unknown="ignore"): zeros for what is not there */
    {"{field: kind, one_hot: [bus, car, van], missing: zeros}, x", 4, "{\"kind\":\"car\"}", "0 1 0 0.5", false},
    {"{field: kind, one_hot: [bus, car, van], missing: zeros}, x", 4, "{\"kind\":\"van\"}", "0 0 1 0.5", false},
    {"{field: kind, one_hot: [bus, car, van], missing: zeros}, x", 4, "{\"kind\":null}", "0 0 0 0.5", true},
    {"{field: kind, one_hot: [bus, car, van], missing: zeros}, x", 4, "{\"kind\":\"Car\"}", "0 0 0 0.5", true},
    {"{field: kind, one_hot: [bus, car, van], missing: zeros}, x", 4, "{\"kind\":\"\"}", "0 0 0 0.5", true},
    {"{field: kind, one_hot: [\"\", car]}, x", 3, "{\"kind\":\"\"}", "1 0 0.5", false},
    {"x, {field: kind, one_hot: [bus, car, van]}", 4, "{\"kind\":\"bus\"}", "0.5 1 0 0", false},
    /* nothing said: a dead letter that names the word */
    {"{field: kind, one_hot: [bus, car]}, x", 3, "{\"kind\":\"tram\"}", "field kind holds \"tram\", which is none of its 2 words", false},
    {"{field: kind, one_hot: [bus, car]}, x", 3, "{\"kind\":null}", "field kind is null or absent and its missing policy is reject", false},
    {"kind, x, x", 3, "{\"kind\":\"tram\"}", "a field of words needs one_hot: [word", false},
    {"{field: kind, one_hot: [bus, car]}, x", 3, "{\"kind\":\"a\\tb\\n\\\"\u00fc\"}", "field kind holds \"a^Ib^J\\\"ü\",", false},
    {"{field: kind, one_hot: [bus, car], missing: zeros, unknown: reject}, x", 3, "{\"kind\":\"tram\"}", "its unknown policy is reject",
     false},
    {"{field: kind, one_hot: [bus, car], missing: zeros, unknown: reject}, x", 3, "{\"kind\":null}", "0 0 0.5", true},
    {"{field: kind, one_hot: [bus, car], unknown: zeros}, x", 3, "{\"kind\":\"tram\"}", "0 0 0.5", true},
    {"{field: kind, one_hot: [bus, car], unknown: zeros}, x", 3, "{\"kind\":null}", "missing policy is reject", false},
    /* a slot for the rest; get_dummies(dummy_na=True), a null category; drop_first */
    {"{field: kind, one_hot: [bus, car], unknown: other}, x", 4, "{\"kind\":\"tram\"}", "0 0 1 0.5", false},
    {"{field: kind, one_hot: [bus, car], unknown: other, missing: zeros}, x", 4, "{\"kind\":null}", "0 0 0 0.5", true},
    {"{field: kind, one_hot: [bus, car, null], unknown: zeros}, x", 4, "{\"kind\":null}", "0 0 1 0.5", true},
    {"{field: kind, one_hot: [bus, car, null], unknown: zeros}, x", 4, "{\"kind\":\"tram\"}", "0 0 0 0.5", true},
    {"{field: kind, one_hot: [bus, null, car], unknown: other}, x", 5, "{\"kind\":\"tram\"}", "0 0 0 1 0.5", false},
    {"{field: kind, one_hot: [bus, null, car], unknown: missing}, x", 4, "{\"kind\":\"tram\"}", "0 1 0 0.5", true},
    {"{field: kind, one_hot: [bus, car, van], drop_first: true}, x", 3, "{\"kind\":\"bus\"}", "0 0 0.5", false},
    {"{field: kind, one_hot: [bus, car, van], drop_first: true}, x", 3, "{\"kind\":\"van\"}", "0 1 0.5", false},
    {"{field: kind, one_hot: [bus, car, van], drop_first: true, unknown: other}, x", 4, "{\"kind\":\"tram\"}", "0 0 1 0.5", false},
    {"{field: kind, one_hot: [bus, car, van, null], drop_first: true, unknown: zeros}, x", 4, "{\"kind\":null}", "0 0 1 0.5", true},
    {"{field: kind, one_hot: [bus, car], missing: value, value: car}, x", 3, "{\"kind\":null}", "0 1 0.5", true},
    {"{field: kind, one_hot: [bus, car], value: car}, x", 3, "{\"kind\":\"tram\"}", "0 1 0.5", true},
    {"{field: kind, one_hot: [bus, car], drop_first: true, value: bus}, x", 2, "{\"kind\":null}", "0 0.5", true},
    {"{field: kind, one_hot: [bus, car], missing: mean, mean: [0.25, 0.75]}, x", 3, "{\"kind\":null}", "0.25 0.75 0.5", true},
    {"{field: kind, one_hot: [bus, car], scale: 2, offset: -1}, x", 3, "{\"kind\":\"car\"}", "-1 1 0.5", false},
    /* other types than text */
    {"{field: gear, one_hot: [low, high], unknown: zeros}, x", 3, "{\"gear\":\"high\"}", "0 1 0.5", false},
    {"{field: gear, one_hot: [low, high], unknown: zeros}, x", 3, "{\"gear\":\"park\"}", "0 0 0.5", true},
    {"{field: zone, one_hot: [-1, 1, 20]}, x", 4, "{\"zone\":20}", "0 0 1 0.5", false},
    {"{field: zone, one_hot: [-1, 1, 20]}, x", 4, "{\"zone\":-1}", "1 0 0 0.5", false},
    {"{field: zone, one_hot: [\"1\", \"20\"]}, x", 3, "{\"zone\":20}", "0 1 0.5", false},
    {"{field: kind, one_hot: [bus, car]}, x", 3, "{\"kind\":\"Größe \\\"東京\\\"\\n\\u202e\"}",
     "field kind holds \"Größe \\\"東京\\\"^J<U+202E>\", which is none of its 2 words", false},
    {"{field: zone, one_hot: [1, 20]}, x", 3, "{\"zone\":2}", "field zone holds \"2\", which is none of its 2 words", false},
    {"{field: zone, one_hot: [0, 20]}, x", 3, "{\"zone\":null}", "is null or absent", false},
    {"{field: id, one_hot: [\"7\", \"007\"]}, x", 3, "{\"id\":7}", "1 0 0.5", false},
    {"{field: id, one_hot: [7, \"9007199254740992\"]}, x", 3, "{\"id\":9007199254740993}", "holds \"9007199254740992\"", false},
    {"{field: on, one_hot: [false, true]}, x", 3, "{\"on\":true}", "0 1 0.5", false},
    {"{field: on, one_hot: [false, true]}, x", 3, "{\"on\":false}", "1 0 0.5", false},
    {"{field: mix, one_hot: [\"1\", car, true, 2]}, x", 5, "{\"mix\":1}", "1 0 0 0 0.5", false},
    {"{field: mix, one_hot: [\"1\", car, true, 2]}, x", 5, "{\"mix\":\"1\"}", "1 0 0 0 0.5", false},
    {"{field: mix, one_hot: [\"1\", car, true, 2]}, x", 5, "{\"mix\":true}", "0 0 1 0 0.5", false},
    {"{field: mix, one_hot: [\"1\", car, true, 2]}, x", 5, "{\"mix\":2.0}", "0 0 0 1 0.5", false},
    {"{field: mix, one_hot: [\"1\", car, true, 2], missing: zeros}, x", 5, "{\"mix\":2.5}", "0 0 0 0 0.5", true},
    {"{field: raw, one_hot: [car, bus]}, x", 3, "{\"raw\":\"bus\"}", "0 1 0.5", false},
    /* vocabularies: one slot, the same words and policies */
    {"{field: zone, vocabulary: {1: 5, 20: 6}}, x", 2, "{\"zone\":20}", "6 0.5", false},
    {"{field: kind, vocabulary: [bus, car], missing: value, value: -1, unknown: reject}, x", 2, "{\"kind\":\"tram\"}",
     "unknown policy is reject", false},
    {"{field: kind, vocabulary: [bus, car], missing: value, value: -1}, x", 2, "{\"kind\":\"tram\"}", "-1 0.5", true},
    {"{field: kind, vocabulary: [bus, car]}, x", 2, "{\"kind\":\"car\"}", "1 0.5", false},
};

static void test_words_fill_their_slots(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int avro = 0; avro < 2; avro++) {
            const struct row_case *c = &cases[i];
            char got[600];
            bool missing;
            row_of(c->features, c->width, avro, c->record, got, sizeof got, &missing);
            bool message = c->want[0] > '9';
            if (message ? !strstr(got, c->want) : strcmp(got, c->want) || missing != c->missing)
                fail_msg("%s, %s of %s: \"%s\", missing %d", c->features, avro ? "Avro" : "JSON", c->record, got, missing);
        }
}

static void test_words_are_checked_when_they_are_read(void **state)
{
    static const struct {
        const char *feature, *says;
    } bad[] = {
        {"{field: a, one_hot: []}", "test.yml:3: features: one_hot of a: expected a list of 1 to 1000000 words"},
        {"{field: a, one_hot: {u: 1}}", "expected a list"},
        {"{field: a, one_hot: [u, v, u]}", "\"u\" is there twice, as 0 and as 2"},
        {"{field: a, one_hot: [7, 007]}", "\"7\" is there twice, as 0 and as 1"},
        {"{field: a, one_hot: [true, \"true\"]}", "\"true\" is there twice"},
        {"{field: a, one_hot: [u, 1.5]}", "element 2 is no text"},
        {"{field: a, one_hot: [u, [v]]}", "element 2 is no text"},
        {"{field: a, one_hot: [u, null, null], unknown: zeros}", "element 3 is no text, and null is there already"},
        {"{field: a, one_hot: [null], unknown: zeros}", "no word is left"},
        {"{field: a, one_hot: [u, null]}", "say what an unknown word is"},
        {"{field: a, one_hot: [u, null], unknown: zeros, missing: zeros}", "leave out null, or missing"},
        {"{field: a, one_hot: [u, null], unknown: zeros, value: u}", "leave out null, or missing"},
        {"{field: a, one_hot: [u], drop_first: true}", "no word is left"},
        {"{field: a, one_hot: [null, u], drop_first: true, unknown: zeros}", "put it behind the words"},
        {"{field: a, one_hot: [u, v], drop_first: 1}", "expected true or false"},
        {"{field: a, drop_first: true}", "drop_first of a: is for one_hot"},
        {"{field: a, vocabulary: [u], drop_first: true}", "is for one_hot"},
        {"{field: a, one_hot: [u], vocabulary: [u]}", "leave out one of them"},
        {"{field: a, one_hot: [u, v], value: w}", "expected one of the words"},
        {"{field: a, one_hot: [u, v], missing: value}", "no value: WORD"},
        {"{field: a, one_hot: [u, v], missing: zeros, value: u}", "value is used only with missing: value"},
        {"{field: a, one_hot: [u, v], slots: 3}", "one_hot fills 2 slots, slots says 3"},
        {"{field: a, missing: zeros}", "zeros is for one_hot; write value: 0"},
        {"{field: a, vocabulary: [u], missing: zeros}", "zeros is for one_hot"},
        {"{field: a, vocabulary: [u], unknown: zeros}", "zeros and other are for one_hot"},
        {"{field: a, unknown: zeros}", "zeros and other are for one_hot"},
        {"{field: a, one_hot: [u], unknown: nan}", "is none of missing | reject | zeros | other"},
        {"{field: a, one_hots: [u]}", "did you mean \"one_hot\"?"},
        {"{field: a, vocabulary: [u, null]}", "element 2 is no text"},
        {"{field: a, one_hot: [\"u\\0v\"]}", ""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[300];
        pst_pipeline *p = NULL;
        pst_err err = {0};
        snprintf(text, sizeof text, "name: p\nmodel: {name: m}\nfeatures: [%s]\n", bad[i].feature);
        assert_int_equal(pst_pipeline_parse(text, strlen(text), "test.yml", &p, &err), PST_EINVAL);
        if (!strstr(err.text, bad[i].says))
            fail_msg("%s: %s", bad[i].feature, err.text);
    }
}

/* Words count as slots wherever slots are counted, and a field that can hold none of them is told before the first record. */
static void test_words_are_held_against_model_and_schema(void **state)
{
    static const struct {
        const char *features, *says;
    } bad[] = {
        {"{field: kind, one_hot: [bus, car, van]}, x", "input has 3 slots, the features fill 4"},
        {"{field: zone, one_hot: [bus, car]}, x", "field zone can hold none of its 2 words (the first is \"bus\")"},
        {"{field: on, one_hot: [0, 1]}, x", "field on can hold none of its 2 words"},
        {"{field: on, one_hot: [\"yes\", \"no\"]}, x", "words of a boolean are true and false"},
        {"{field: gear, one_hot: [Low, High]}, x", "field gear can hold none of its 2 words"},
        {"{field: gear, vocabulary: [Low, High]}, x, x", "field gear can hold none of its 2 words"},
        {"{field: none, one_hot: [u, v]}, x", "no field none"},
        {"kind, x, x", "is wanted, but its type is [\"null\",\"string\"]; a field of words needs one_hot: [word"},
        {"kind, x", "a field of words needs one_hot: [word"}, /* named before the slots that are lacking */
        {"gear, x, x", "vocabulary: [word"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[300];
        static const float identity[9] = {1};
        snprintf(text, sizeof text, "name: p\nmodel: {name: line}\nfeatures: [%s]\n", bad[i].features);
        pst_pipeline *p = kit_pipeline(text);
        pst_model *m = kit_linear(3, 3, identity, NULL);
        pst_schema *s = kit_schema(schema_text);
        pst_binding *b = NULL;
        pst_decoder *d = NULL;
        pst_err err = {0};
        int rc = pst_binding_new(p, m, "line", 1, 4, &b, &err);
        rc = rc ? rc : pst_decoder_new(p, b, s, &d, &err);
        assert_true(rc < 0);
        if (!strstr(err.text, bad[i].says))
            fail_msg("%s: %s", bad[i].features, err.text);
        pst_binding_free(b);
        pst_schema_free(s);
        pst_model_unref(m);
        pst_pipeline_free(p);
    }
}

/* A model that knows its categories by name: these are the vocabulary, and one of the pipeline's has to say the same. */
static void test_words_of_the_models_categories(void **state)
{
    static const float identity[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    static const char *const meta[] = {"penstock.categories", "{\"0\": [\"van\", \"car\", \"a\\u0022b\"], \"1\": [20, 1.5, 30, true]}",
                                       NULL};
    static const struct {
        const char *features, *record, *want;
    } rows[] = {
        {"kind, zone, x", "{\"kind\":\"car\",\"zone\":30}", "1 2 0.5"},
        {"kind, zone, x", "{\"kind\":\"a\\\"b\",\"zone\":20}", "2 0 0.5"},
        {"kind, mix, x", "{\"kind\":\"van\",\"mix\":1.5}", "0 1 0.5"},
        {"kind, mix, x", "{\"kind\":\"van\",\"mix\":true}", "0 3 0.5"},
        {"kind, mix, x", "{\"kind\":\"van\",\"mix\":\"20\"}", "0 0 0.5"},
        {"zone, zone, x", "{\"zone\":20}", "20 0 0.5"}, /* names are texts: a number is a code already */
        {"{field: kind, vocabulary: {van: 0, car: 1, 'a\"b': 2, Car: 1}}, zone, x", "{\"kind\":\"Car\",\"zone\":20}", "1 0 0.5"},
        {"kind, {field: zone, categories: codes}, x", "{\"kind\":\"car\",\"zone\":3}", "1 3 0.5"},
        {"{field: zone, scale: 2}, zone, x", "{\"zone\":20}", "40 0 0.5"},
        {"{field: kind, value: 9}, {field: zone, value: -1}, x", "{\"kind\":\"tram\",\"zone\":null}", "9 -1 0.5"},
        {"kind, zone, x", "{\"kind\":\"tram\",\"zone\":20}",
         "holds \"tram\", which is none of its 3 words, and its missing policy is reject"},
        {"kind, zone, x", "{\"kind\":\"car\",\"zone\":2}", "field zone holds \"2\""},
        {"{field: kind, missing: nan, unknown: reject}, zone, x", "{\"kind\":\"tram\",\"zone\":20}", "its unknown policy is reject"},
        {"{field: kind, vocabulary: {van: 1, car: 0}}, zone, x", "{}", "has \"van\" as 1, the model as category 0"},
        {"{field: kind, vocabulary: [van, car]}, zone, x", "{}", "lacks \"a\"b\", which the model knows as category 2"},
        {"{field: kind, vocabulary: {van: 0, car: 1, 'a\"b': 2, tram: 3}}, zone, x", "{}",
         "has \"tram\" as 3, the model has categories 0 to 2"},
        {"{field: kind, vocabulary: {van: 0, car: 1, 'a\"b': 2}, scale: 2}, zone, x", "{}", "scale, offset and clip change its code"},
        {"{field: kind, one_hot: [van]}, zone, x", "{}", "slot 0 of the model holds the code of a category"},
        {"kind, zone, {field: x, unknown: reject}", "{}", "feature x has unknown: reject, which is for words"},
        {"{field: kind, categories: codes}, zone, x", "{\"kind\":\"car\"}", "field kind"}, /* a text is no code */
        {"{field: kind, categories: name}, zone, x", NULL, "is none of names | codes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int avro = 0; avro < 2; avro++) {
            char text[300], got[600] = "";
            pst_pipeline *p = NULL;
            pst_binding *b = NULL;
            pst_err err = {0};
            bool missing;
            snprintf(text, sizeof text, "name: p\ninput: {format: %s}\nmodel: {name: line}\nfeatures: [%s]\nbatching: {count: 2}\n",
                     avro ? "avro" : "json", rows[i].features);
            int rc = pst_pipeline_parse(text, strlen(text), "test.yml", &p, &err);
            if (rc == 0) {
                pst_model *m = kit_linear(3, 3, identity, meta);
                rc = pst_binding_new(p, m, "line", 1, 2, &b, &err);
                pst_model_unref(m);
            }
            if (rc == 0)
                row_by(p, b, avro, rows[i].record, got, sizeof got, &missing);
            else
                snprintf(got, sizeof got, "%s", err.text);
            if (rows[i].want[0] <= '9' ? strcmp(got, rows[i].want) : !strstr(got, rows[i].want))
                fail_msg("%s, %s of %s: \"%s\"", rows[i].features, avro ? "Avro" : "JSON", rows[i].record, got);
            pst_binding_free(b);
            pst_pipeline_free(p);
        }
}

static void test_words_a_model_whose_categories_are_no_lists_is_refused(void **state)
{
    static const char *const bad[] = {
        "[1]", "{\"0\": ", "{\"0\": []}", "{\"0\": {\"a\": 1}}", "{\"0\": [\"a\", null]}", "{\"0\": [\"\xc3\"]}"};
    static const float one[1] = {1};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *const meta[] = {"penstock.categories", bad[i], NULL};
        pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\nfeatures: [a]\n");
        pst_model *m = kit_linear(1, 1, one, meta);
        pst_binding *b = NULL;
        pst_err err = {0};
        assert_int_equal(pst_binding_new(p, m, "line", 1, 2, &b, &err), PST_EINVAL);
        assert_non_null(strstr(err.text, "penstock.categories"));
        pst_model_unref(m);
        pst_pipeline_free(p);
    }
}

/* A model's own mapping takes the same words; its explanation says how wide they are. */
static void test_words_of_a_models_own_mapping(void **state)
{
    static const float identity[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    static const char *const meta[] = {"penstock.features",
                                       "[{\"field\":\"kind\",\"one_hot\":[\"car\",null],\"unknown\":\"zeros\"},{\"field\":\"x\"}]", NULL};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\n");
    pst_binding *b = kit_bind(p, kit_linear(3, 3, identity, meta), 1);
    char *text = pst_binding_explain(b);
    if (!strstr(text, "feature 0: kind, one-hot: 1 words in 2 slots, unknown: zeros, × 1 + 0, missing: value (the slot of null)"))
        fail_msg("%s", text);
    free(text);
    pst_binding_free(b);
    pst_pipeline_free(p);
}

/* Many words, all of one length and with a common beginning: each is found, its neighbours are not. */
static void test_words_a_large_table_finds_each_and_no_other(void **state)
{
    enum { N = 50000 };
    pst_vocabulary_entry *e = pst_alloc(N * sizeof *e);
    char word[40];
    double got;
    for (int i = 0; i < N; i++) {
        snprintf(word, sizeof word, "product-category-%08d", 2 * i);
        e[i] = (pst_vocabulary_entry){pst_strdup(word), i};
    }
    score_words *w = score_words_new(e, N);
    for (int i = 0; i < 2 * N; i++) {
        snprintf(word, sizeof word, "product-category-%08d", i);
        bool found = score_words_text(w, (pst_slice){word, strlen(word)}, &got);
        assert_int_equal(found, i % 2 == 0);
        if (found)
            assert_true(got == i / 2);
        assert_false(score_words_text(w, (pst_slice){word, strlen(word) - 1}, &got));
    }
    assert_false(score_words_text(w, (pst_slice){NULL, 0}, &got));
    assert_false(score_words_text(w, (pst_slice){"product-category-00000000\0", 26}, &got)); /* a NUL is a byte like others */
    assert_false(score_words_number(w, 0, &got));
    assert_false(score_words_have_numbers(w));
    score_words_free(w);
    for (int i = 0; i < N; i++)
        free(e[i].text);
    free(e);
}

static void test_words_that_are_numbers(void **state)
{
    static const pst_vocabulary_entry e[] = {{(char *)"7", 1},   {(char *)"-1", 2},  {(char *)"1.5", 3}, {(char *)"0", 4},
                                             {(char *)"007", 5}, {(char *)"1e3", 6}, {(char *)"nan", 7}, {(char *)"9007199254740993", 8},
                                             {(char *)"", 9}};
    static const struct {
        double x, want; /* 0 = not there */
    } rows[] = {{7, 1},        {-1, 2},      {1.5, 3}, {0, 4}, {-0.0, 4}, {1000, 0}, {9007199254740992.0, 0}, {9007199254740994.0, 0},
                {INFINITY, 0}, {7.000001, 0}};
    score_words *w = score_words_new(e, sizeof e / sizeof *e);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double got = 0;
        assert_int_equal(score_words_number(w, rows[i].x, &got), rows[i].want != 0);
        assert_true(got == rows[i].want);
    }
    score_words_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_fill_their_slots),
        cmocka_unit_test(test_words_are_checked_when_they_are_read),
        cmocka_unit_test(test_words_are_held_against_model_and_schema),
        cmocka_unit_test(test_words_of_the_models_categories),
        cmocka_unit_test(test_words_a_model_whose_categories_are_no_lists_is_refused),
        cmocka_unit_test(test_words_of_a_models_own_mapping),
        cmocka_unit_test(test_words_a_large_table_finds_each_and_no_other),
        cmocka_unit_test(test_words_that_are_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
