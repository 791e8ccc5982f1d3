/* test_score_windows.c - windows on a record's way: which records enter them, whose they are, what a file may ask for. */
#include "tests/unit/core_kit.h"

#define HEAD  "name: p\ninput: {format: json}\nmodel: {name: line}\nguarantee: exactly_once\nscore: {non_finite: dead_letter}\n"
#define STATE "state: {key: card, time: at}\n"

static const float weights[] = {10, 1}; /* the record's n tenfold, and what the window says */

static pst_score_core *core_of(const pst_pipeline *p)
{
    pst_score_core *c = pst_score_core_new(p, &(pst_score_core_opts){.scores_only = true});
    assert_int_equal(pst_score_core_offer(c, PST_VARIANT_PRIMARY, kit_bind(p, kit_linear(2, 1, weights, NULL), 1), NULL, 0), 0);
    return c;
}

/* A batch of JSON records, NULL ends it; wanted: the scores, NAN = a dead letter of this reason. */
static int64_t next_offset;
static void batch(pst_score_core *c, int32_t partition, const char *const *texts, const double *wanted, const char *reason)
{
    pst_record r[16];
    size_t n = 0;
    int32_t id;
    pst_err err = {0};
    const double *scores;
    const char *label;
    pst_score_core_begin(c, 0);
    for (; texts[n]; n++)
        r[n] = (pst_record){.topic = "in",
                            .partition = partition,
                            .offset = next_offset++,
                            .timestamp_ms = 5000,
                            .value = texts[n],
                            .value_len = strlen(texts[n])};
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pst_score_core_take(c, &r[i], &id), PST_NEEDS_NOTHING);
    assert_int_equal(pst_score_core_run(c, &err), 0);
    const pst_fate *f = pst_score_core_fates(c, &n);
    for (size_t i = 0; i < n; i++) {
        if (isnan(wanted[i])) {
            assert_int_equal(f[i].kind, PST_FATE_BAD);
            assert_string_equal(f[i].reason, reason);
            continue;
        }
        if (f[i].kind != PST_FATE_SCORED)
            fail_msg("%zu: %s", i, pst_score_core_message(c, &f[i]));
        pst_score_core_score(&f[i], false, &scores, &label);
        if (scores[0] != wanted[i])
            fail_msg("%zu: %g, not %g", i, scores[0], wanted[i]);
    }
}

#define TEXTS(...)  ((const char *const[]){__VA_ARGS__, NULL})
#define SCORES(...) ((const double[]){__VA_ARGS__})

static void test_a_dead_letter_enters_no_window_wherever_it_became_one(void **state)
{
    (void)state;
    pst_pipeline *p = kit_pipeline(HEAD STATE "features: [{field: n}, {field: n, window: {last: 3, of: sum}}]\n");
    pst_score_core *c = core_of(p);
    batch(c, 0, TEXTS("{\"card\":\"a\",\"at\":1,\"n\":1}", "{\"card\":\"a\",\"at\":2,\"n\":2}"), SCORES(11, 23), NULL);
    /* the model's number is infinite: found when the records behind it have been mapped already */
    batch(c, 0, TEXTS("{\"card\":\"a\",\"at\":3,\"n\":3e38}", "{\"card\":\"a\",\"at\":4,\"n\":4}", "{\"card\":\"b\",\"at\":4,\"n\":1}"),
          SCORES(NAN, 47, 11), PST_REASON_NON_FINITE);
    batch(c, 0, TEXTS("{\"card\":\"a\",\"at\":5,\"n\":\"x\"}", "{\"card\":\"a\",\"at\":5}"), SCORES(NAN, NAN), "bad-input");
    batch(c, 0, TEXTS("no JSON"), SCORES(NAN), "bad-envelope");
    batch(c, 0, TEXTS("{\"card\":\"a\",\"at\":5,\"n\":5}"), SCORES(50 + 2 + 4 + 5), NULL);
    pst_score_core_free(c);
    pst_pipeline_free(p);
}

/* 2^124: tenfold it fits into a float, and with 3e38 in the window it does not. */
#define LARGE "2.1267647932558654e37"

static void test_a_record_is_not_bad_for_what_a_bad_one_before_it_left(void **state)
{
    (void)state;
    const double large = 0x1p124;
    pst_pipeline *p = kit_pipeline(HEAD STATE "features: [{field: n}, {field: n, window: {last: 3, of: sum}}]\n");
    pst_score_core *c = core_of(p);
    batch(c, 0,
          TEXTS("{\"card\":\"a\",\"at\":1,\"n\":3e38}", "{\"card\":\"a\",\"at\":2,\"n\":" LARGE "}", "{\"card\":\"a\",\"at\":3,\"n\":3e38}",
                "{\"card\":\"b\",\"at\":3,\"n\":3e38}", "{\"card\":\"a\",\"at\":4,\"n\":" LARGE "}", "{\"card\":\"b\",\"at\":4,\"n\":2}"),
          SCORES(NAN, 11 * large, NAN, NAN, 12 * large, 22), PST_REASON_NON_FINITE);
    batch(c, 0, TEXTS("{\"card\":\"a\",\"at\":5,\"n\":0}"), SCORES(2 * large), NULL); /* both are in the window, and nothing else */
    pst_score_core_free(c);
    pst_pipeline_free(p);
}

static void test_a_window_is_its_keys_and_its_partitions(void **state)
{
    (void)state;
    pst_pipeline *p = kit_pipeline(HEAD STATE "features: [{field: n}, {field: n, window: {last: 3, of: count}}]\n");
    pst_score_core *c = core_of(p);
    batch(c, 0,
          TEXTS("{\"card\":\"a\",\"at\":1,\"n\":0}", "{\"card\":7,\"at\":1,\"n\":0}", "{\"card\":\"7\",\"at\":1,\"n\":0}",
                "{\"card\":\"a\",\"at\":1,\"n\":0}"),
          SCORES(1, 1, 2, 2), NULL); /* a whole number and its text are one key */
    batch(c, 1, TEXTS("{\"card\":\"a\",\"at\":1,\"n\":0}"), SCORES(1), NULL);
    batch(c, 0, TEXTS("{\"at\":1,\"n\":0}", "{\"card\":null,\"at\":1,\"n\":0}", "{\"card\":1.5,\"at\":1,\"n\":0}"), SCORES(NAN, NAN, NAN),
          "no-key");
    batch(c, 0, TEXTS("{\"card\":\"a\",\"n\":0}", "{\"card\":\"a\",\"at\":-1,\"n\":0}"), SCORES(NAN, NAN), "bad-input");
    batch(c, 0, TEXTS("{\"card\":\"a\",\"at\":9e18,\"n\":0}"), SCORES(NAN), "limits");
    pst_score_core_free(c);
    pst_pipeline_free(p);
}

static void test_seconds_are_of_the_field_that_says_the_time(void **state)
{
    (void)state;
    pst_pipeline *p =
        kit_pipeline(HEAD STATE "features: [{field: n}, {field: n, window: {of: since}, missing: value, value: -1, scale: 2}]\n");
    pst_score_core *c = core_of(p);
    batch(c, 0,
          TEXTS("{\"card\":\"a\",\"at\":1000,\"n\":0}", "{\"card\":\"a\",\"at\":3500,\"n\":0}", "{\"card\":\"a\",\"at\":2000,\"n\":0}"),
          SCORES(-2, 5, 0), NULL); /* the late one has the key's time */
    pst_score_core_free(c);
    pst_pipeline_free(p);
}

static void test_what_a_file_may_not_ask_for_is_refused_with_the_cure(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {HEAD "features: [{field: n, window: {last: 3, of: mean}}]\n", "say so by state: {}"},
        {HEAD STATE "features: [n]\n", "no feature has a window"},
        {"name: p\nmodel: {name: m}\n" STATE "features: [{field: n, window: {last: 3, of: mean}}]\n", "needs guarantee: exactly_once"},
        {"name: p\ninput: {topics: [a, b]}\nmodel: {name: m}\nguarantee: exactly_once\n" STATE
         "features: [{field: n, window: {last: 3, of: mean}}]\n",
         "write a pipeline for each"},
        {HEAD STATE "features: [{field: n, window: {last: 3, seconds: 4, of: mean}}]\n", "one of them"},
        {HEAD STATE "features: [{field: n, window: {of: mean}}]\n", "one of them"},
        {HEAD STATE "features: [{field: n, window: {last: 3}}]\n", "of is missing"},
        {HEAD STATE "features: [{field: n, window: {last: 3, of: median}}]\n", "none of count"},
        {HEAD STATE "features: [{field: n, window: {lats: 3, of: mean}}]\n", "did you mean \"last\"?"},
        {HEAD STATE "features: [{field: n, window: {last: 3, of: rate}}]\n", "needs seconds"},
        {HEAD STATE "features: [{field: n, window: {seconds: 3, of: lag}, missing: nan}]\n", "needs last"},
        {HEAD STATE "features: [{field: n, window: {last: 3, of: lag}}]\n", "say missing: value, nan or mean"},
        {HEAD STATE "features: [{field: n, window: {last: 3, of: mean, self: false}}]\n", "say missing: value, nan or mean"},
        {HEAD STATE "features: [{field: n, window: {last: 3, of: lag, self: true}, missing: nan}]\n", "leave self out"},
        {HEAD STATE "features: [{field: n, window: {last: 3, of: mean}, missing: mean}]\n", "needs mean: NUMBER"},
        {HEAD STATE "features: [{field: n, one_hot: [a], window: {last: 3, of: mean}}]\n", "one_hot does not go with it"},
        {HEAD STATE "features: [{field: n, window: {last: 3000, of: mean}}]\n", "raise state.values_max"},
        {HEAD "state: {values_max: 10000}\nfeatures: [{field: n, window: {last: 3, of: mean}}, {field: a, window: {last: 3, of: mean}}, "
              "{field: b, window: {last: 3, of: "
              "mean}}, {field: c, window: {last: 3, of: mean}}, {field: d, window: {last: 3, of: mean}}, {field: e, window: {last: 3, of: "
              "mean}}]\n",
         "set it to 8333"},
        {HEAD "output: {topic: o}\nstate: {topic: o}\nfeatures: [{field: n, window: {last: 3, of: mean}}]\n", "is the output too"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_pipeline *p = NULL;
        pst_err err = {0};
        int rc = pst_pipeline_parse(rows[i].text, strlen(rows[i].text), "test.yml", &p, &err);
        if (rc == 0 || !strstr(err.text, rows[i].says))
            fail_msg("%zu: %s: %s", i, rows[i].says, rc ? err.text : "taken");
        assert_non_null(strstr(err.text, "test.yml:"));
    }
}

/* With Avro, by the record's own key, in rounds: what has no way out enters no window, and a round that did not happen is in none. */
static void test_rounds_are_taken_back_and_records_without_a_way_out_stay_outside(void **state)
{
    (void)state;
    world w = {0};
    pst_pipeline *p = kit_pipeline("name: p\nmodel: {name: line}\noutput: {topic: out}\nguarantee: exactly_once\nstate: {}\n"
                                   "features: [{field: n}, {field: n, window: {last: 9, of: count}}]\n");
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(2, 1, weights, NULL), 1));
    pst_keyed *k = pst_windowed_add(pst_score_core_windowed(c), 2);
    pst_buf b = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"n\":1}", &b);
    pst_record r[3] = {rec(0, &b), rec(1, &b), rec(2, &b)};
    pst_fate f[3];
    size_t usable = 0;
    pst_err err = {0};
    w.refuse = PST_EINCOMPAT;
    assert_int_equal(score_at(c, &w, r, 1, 1, f, &usable, &err), 0);
    assert_string_equal(f[0].reason, "output-schema");
    assert_int_equal(pst_keyed_offset(k), -1);
    w.refuse = 0;
    assert_int_equal(score_at(c, &w, r + 1, 2, 40000000, f, &usable, &err), 0);
    json_t *j = encoded(c, &w, &f[1], false);
    assert_true(score_of(j) == 12);
    json_decref(j);
    assert_int_equal(pst_keyed_offset(k), 2);
    pst_windowed_undo(pst_score_core_windowed(c));
    assert_int_equal(pst_keyed_offset(k), -1);
    assert_int_equal(score(c, &w, r + 2, 1, f, &usable, &err), 0);
    j = encoded(c, &w, &f[0], false);
    assert_true(score_of(j) == 11);
    json_decref(j);
    pst_buf_done(&b);
    end_world(&w, c, p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_dead_letter_enters_no_window_wherever_it_became_one),
        cmocka_unit_test(test_a_record_is_not_bad_for_what_a_bad_one_before_it_left),
        cmocka_unit_test(test_a_window_is_its_keys_and_its_partitions),
        cmocka_unit_test(test_seconds_are_of_the_field_that_says_the_time),
        cmocka_unit_test(test_rounds_are_taken_back_and_records_without_a_way_out_stay_outside),
        cmocka_unit_test(test_what_a_file_may_not_ask_for_is_refused_with_the_cure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
