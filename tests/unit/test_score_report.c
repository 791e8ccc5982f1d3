/* test_score_report.c - what a worker says of the versions that scored: its own records and nothing else, whatever offsets a mover meant. */
#include "inference/run/score_report.h"
#include "tests/unit/core_kit.h"

typedef struct desk {
    world w;
    pst_pipeline *p;
    pst_score_core *core;
    score_reports *reports;
    pst_buf value;
} desk;

static const float one[] = {1};

static pst_binding *version(const desk *d, int n)
{
    return kit_bind(d->p, kit_linear(1, 1, one, NULL), n);
}

/* A worker that has just been given its partition, with this version. */
static void sit_down(desk *d, int n)
{
    d->p = kit_pipeline("name: p\ninput: {topics: [in]}\nmodel: {name: line, alias: champion}\noutput: {topic: out}\nfeatures: [n]\n");
    d->core = make_core(&d->w, d->p, version(d, n));
    d->reports = score_reports_new(d->p);
    kit_value(d->w.schema, 1, "{\"host\":\"a\",\"n\":4}", &d->value);
}

static void get_up(desk *d)
{
    score_reports_free(d->reports);
    pst_buf_done(&d->value);
    end_world(&d->w, d->core, d->p);
}

static void meant(desk *d, int n, int64_t from)
{
    assert_int_equal(pst_score_core_offer(d->core, PST_VARIANT_PRIMARY, version(d, n), &(pst_effective){(char *)"in", 2, from}, 1), 0);
}

/* One round of these records, committed. Says what it told, "offset:version …". */
static const char *round_of(desk *d, int64_t first, int64_t last)
{
    static char said[200];
    said[0] = 0;
    for (int64_t offset = first; offset <= last; offset++) {
        const pst_record r = rec(offset, &d->value);
        pst_fate f;
        size_t n;
        pst_err err = {0};
        assert_int_equal(score(d->core, &d->w, &r, 1, &f, &n, &err), 0);
        score_reports_record(d->reports, &f, NULL);
    }
    size_t n;
    const score_report_line *l = score_reports_lines(d->reports, &n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(l[i].topic, "in");
        assert_int_equal(l[i].partition, 2);
        snprintf(said + strlen(said), sizeof said - strlen(said), "%s%lld:%d", i ? " " : "", (long long)l[i].offset, l[i].version);
    }
    score_reports_committed(d->reports);
    pst_score_core_committed(d->core, "in", 2, last + 1);
    return said;
}

static void test_report_says_the_first_record_and_each_change(void **state)
{
    desk d = {0};
    sit_down(&d, 1);
    assert_string_equal(round_of(&d, 100, 105), "100:1");
    assert_string_equal(round_of(&d, 106, 108), "");
    meant(&d, 2, 110);
    assert_string_equal(round_of(&d, 109, 112), "110:2");
    score_reports_forget(d.reports);
    assert_string_equal(round_of(&d, 113, 114), "113:2");
    get_up(&d);
}

/* A partition that begins with a record that nobody can read: a replay must know that it was looked at, or it could not tell what windows hold. */
static void test_report_tells_of_a_bad_record_who_would_have_had_it(void **state)
{
    desk d = {0};
    sit_down(&d, 1);
    const pst_record none = {.topic = "in", .partition = 2, .offset = 7, .value = "no frame", .value_len = 8};
    pst_fate f;
    size_t n;
    pst_err err = {0};
    assert_int_equal(score(d.core, &d.w, &none, 1, &f, &n, &err), 0);
    assert_true(f.kind == PST_FATE_BAD && !f.by);
    score_reports_record(d.reports, &f, pst_score_core_primary_of(d.core, &none));
    assert_string_equal(round_of(&d, 8, 9), "7:1");
    get_up(&d);
}

/* Before it came, somebody else may have scored from there on, with the very version that was meant: seen as 82 scores of version 3 that a replay gave
 * to version 2, after the worker that had scored them was killed and the next one heard of the move after its first records. */
static void test_report_says_nothing_of_what_was_before_it(void **state)
{
    desk d = {0};
    sit_down(&d, 2);
    assert_string_equal(round_of(&d, 3366, 3369), "3366:2");
    meant(&d, 3, 3284);
    assert_string_equal(round_of(&d, 3370, 3371), "3370:3");
    get_up(&d);
}

/* Two moves, the second meant for an offset before that at which the first was heard of. */
static void test_report_says_nothing_of_a_change_that_came_late(void **state)
{
    desk d = {0};
    sit_down(&d, 1);
    assert_string_equal(round_of(&d, 3200, 3249), "3200:1");
    meant(&d, 2, 3210);
    assert_string_equal(round_of(&d, 3250, 3255), "3250:2");
    meant(&d, 3, 3240);
    assert_string_equal(round_of(&d, 3256, 3257), "3256:3");
    get_up(&d);
}

/* Of the canary: who had its part, from when on, that nobody had it, and that it was stopped; so that a replay splits as was split then. */
static void test_report_tells_who_had_the_canarys_part(void **state)
{
    desk d = {0};
    d.p = kit_pipeline("name: p\ninput: {topics: [in]}\nmodel: {name: line, alias: champion}\noutput: {topic: out}\nfeatures: [n]\n"
                       "rollout: {canary: {alias: rival, percent: 50}}\n");
    d.core = make_core(&d.w, d.p, version(&d, 1));
    d.reports = score_reports_new(d.p);
    kit_value(d.w.schema, 1, "{\"host\":\"a\",\"n\":4}", &d.value);
    assert_string_equal(round_of(&d, 100, 110), "100:1 100:0"); /* its model is not there yet */
    assert_int_equal(pst_score_core_offer(d.core, PST_VARIANT_CANARY, version(&d, 2), NULL, 0), 0);
    assert_string_equal(round_of(&d, 111, 120), "111:2");
    assert_string_equal(round_of(&d, 121, 130), "");
    pst_score_core_canary(d.core, 0);
    assert_string_equal(round_of(&d, 131, 140), "131:0");
    get_up(&d);
}

/* Nobody else says that a canary has ended: seen as 102 of 400 scores of a primary that is pinned, which a replay gave to the canary that had been beside it. */
static void test_report_of_a_pinned_primary_says_that_there_is_no_canary(void **state)
{
    desk d = {0};
    d.p = kit_pipeline("name: p\ninput: {topics: [in]}\nmodel: {name: line, version: 1}\noutput: {topic: out}\nfeatures: [n]\n");
    d.core = make_core(&d.w, d.p, version(&d, 1));
    d.reports = score_reports_new(d.p);
    assert_true(score_reports_wanted(d.reports));
    kit_value(d.w.schema, 1, "{\"host\":\"a\",\"n\":4}", &d.value);
    assert_string_equal(round_of(&d, 100, 110), "100:1");
    get_up(&d);
}

static void test_report_tells_a_stop(void **state)
{
    desk d = {0};
    d.p = kit_pipeline("name: p\ninput: {topics: [in]}\nmodel: {name: line, alias: champion}\noutput: {topic: out}\nfeatures: [n]\n"
                       "rollout: {canary: {alias: rival, percent: 50}}\n");
    d.reports = score_reports_new(d.p);
    char spec[65], other[65];
    pst_score_report_spec(d.p, spec);
    memcpy(other, spec, sizeof other);
    other[0] = other[0] == '0' ? '1' : '0';
    pst_model_event e = {.type = PST_MODEL_EVENT_TYPE_ALIAS_SET, .pipeline = (char *)"p", .digest = spec};
    assert_true(pst_score_report_is_stop(&e, d.p, spec));
    assert_false(pst_score_report_is_stop(&e, d.p, other)); /* of a spec that has changed since */
    e.version = 2;
    assert_false(pst_score_report_is_stop(&e, d.p, spec));
    e.version = 0, e.pipeline = (char *)"q";
    assert_false(pst_score_report_is_stop(&e, d.p, spec));
    e.pipeline = NULL;
    assert_false(pst_score_report_is_stop(&e, d.p, spec));
    score_reports_rests_from(d.reports, "in", 2, 77);
    size_t n;
    const score_report_line *l = score_reports_lines(d.reports, &n);
    assert_true(n == 1 && l[0].version == 0 && l[0].offset == 77 && l[0].variant == PST_VARIANT_CANARY);
    score_reports_rests_from(d.reports, "in", 2, 78); /* it is said already */
    score_reports_lines(d.reports, &n);
    assert_int_equal(n, 1);
    score_reports_free(d.reports);
    pst_pipeline_free(d.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_report_says_the_first_record_and_each_change),
        cmocka_unit_test(test_report_tells_of_a_bad_record_who_would_have_had_it),
        cmocka_unit_test(test_report_says_nothing_of_what_was_before_it),
        cmocka_unit_test(test_report_says_nothing_of_a_change_that_came_late),
        cmocka_unit_test(test_report_tells_who_had_the_canarys_part),
        cmocka_unit_test(test_report_of_a_pinned_primary_says_that_there_is_no_canary),
        cmocka_unit_test(test_report_tells_a_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
