/* test_mlflow_filter.c - filters and orders of MLflow's searches: each comparison with what it takes and what it leaves, quoting, limits, and that every text
 * that is no filter is refused with its place. */
#include "producers/gateway/mlflow_filter.h"
#include "tests/unit/test.h"

#include "common/base/buf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gw_attribute attributes[] = {{"status", false}, {"start_time", true}, {0}};

typedef struct thing {
    const char *status, *tag, *param;
    double start, loss;
    bool has_loss;
} thing;

static gw_value value_of(const void *arg, gw_filter_of of, const char *key)
{
    const thing *t = arg;
    if (of == GW_METRIC)
        return (gw_value){t->has_loss && !strcmp(key, "val/loss"), true, t->loss, NULL};
    if (of == GW_PARAM)
        return (gw_value){t->param && !strcmp(key, "batch size"), false, 0, t->param};
    if (of == GW_TAG)
        return (gw_value){t->tag && !strcmp(key, "a.b-c"), false, 0, t->tag};
    if (!strcmp(key, "start_time"))
        return (gw_value){true, true, t->start, NULL};
    return (gw_value){true, false, 0, t->status};
}

static bool takes(const char *text, const thing *t)
{
    gw_filter *f = NULL;
    pst_err err = {0};
    if (gw_filter_parse(text, attributes, &f, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    bool yes = gw_filter_matches(f, value_of, t);
    gw_filter_free(f);
    return yes;
}

static const thing one = {.status = "FINISHED", .tag = "Ada's", .param = "32", .start = 1000, .loss = 0.5, .has_loss = true};
static const thing bare = {.status = "RUNNING", .start = 2000};

static void test_filter_takes_what_it_says(void **state)
{
    static const char *const yes[] = {"",
                                      "  ",
                                      "metrics.`val/loss` < 0.6",
                                      "metric.\"val/loss\" = 5e-1 AND status = 'FINISHED'",
                                      "metrics.val/loss >= .5 and attributes.start_time<=1000",
                                      "params.\"batch size\" = '32'",
                                      "param.`batch size` != '64'",
                                      "tags.a.b-c = 'Ada''s'",
                                      "tag.a.b-c LIKE 'A%s'",
                                      "tags.a.b-c ilike 'ada_s'",
                                      "tags.a.b-c LIKE '%%a%'",
                                      "status IN ('FAILED', 'FINISHED')",
                                      "status IN ('RUNNING', 'FINISHED', 'A', 'FINISHED', 'FAILED')",
                                      "status NOT IN ('FAILED')",
                                      "tags.other IS NULL and tags.a.b-c IS NOT NULL",
                                      "start_time = '1000'",
                                      "STATUS <> \"RUNNING\""};
    static const char *const no[] = {"metrics.`val/loss` > 0.5", "metrics.other = 0.5",  "params.none = '32'",
                                     "params.none != '32'",      "tags.a.b-c LIKE 'a%'", "tags.a.b-c LIKE '_'",
                                     "status IN ('finished')",   "tags.a.b-c is null",   "status = 'FINISHED' AND start_time > 1000"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!takes(yes[i], &one))
            fail_msg("%s does not take it", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (takes(no[i], &one))
            fail_msg("%s takes it", no[i]);
    assert_false(takes("metrics.val/loss != 3", &bare));
    thing nan = one;
    nan.loss = NAN;
    assert_false(takes("metrics.val/loss < 1", &nan));
    assert_true(takes("metrics.val/loss != 1", &nan));
}

static void test_filter_refuses_what_is_none(void **state)
{
    static const char *const bad[] = {"status",
                                      "status =",
                                      "status = FINISHED",
                                      "status = 'FINISHED",
                                      "status > 'A' OR status < 'B'",
                                      "nothing = 'x'",
                                      "metrics.x = 'a'",
                                      "metrics.x LIKE '1'",
                                      "metrics.x = 1x",
                                      "metrics. = 1",
                                      "params.x = 3",
                                      "params.x IN 'a'",
                                      "params.x IN ('a'",
                                      "params.x IN ()",
                                      "params.x IS 'a'",
                                      "params.`x = 'a'",
                                      "(status = 'a')",
                                      "status = 'a' status = 'b'",
                                      "status = 'a' AND",
                                      "= 'a'",
                                      "start_time IN ('1')",
                                      "; DROP TABLE runs"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gw_filter *f = NULL;
        pst_err err = {0};
        if (gw_filter_parse(bad[i], attributes, &f, &err) != PST_EPARSE)
            fail_msg("%s is taken", bad[i]);
        assert_int_equal(err.cls, PST_CLASS_DATA);
        assert_non_null(strstr(err.text, "at byte"));
    }
}

static int parse_repeated(const char *one_more, size_t times, const char *last)
{
    pst_buf b = {0};
    for (size_t i = 0; i < times; i++)
        pst_buf_adds(&b, one_more);
    pst_buf_adds(&b, last);
    gw_filter *f = NULL;
    pst_err err = {0};
    int rc = gw_filter_parse(b.data, attributes, &f, &err);
    if (!rc)
        gw_filter_free(f);
    pst_buf_done(&b);
    return rc;
}

static void test_filter_has_limits(void **state)
{
    assert_int_equal(parse_repeated("status = 'a' AND ", 98, "status = 'a'"), 0);
    assert_int_equal(parse_repeated("status = 'a' AND ", 99, "status = 'a'"), PST_EPARSE);
    assert_int_equal(parse_repeated("x", 40000, ""), PST_EPARSE);
    pst_buf b = {0};
    pst_buf_adds(&b, "status IN ('a'");
    for (int i = 0; i < 1000; i++)
        pst_buf_adds(&b, ",'b'");
    pst_buf_adds(&b, ")");
    assert_int_equal(parse_repeated("", 0, b.data), PST_EPARSE);
    pst_buf_done(&b);
}

static int order_of(const char *text, const thing *a, const thing *b)
{
    gw_order o;
    pst_err err = {0};
    if (gw_order_parse(text, attributes, &o, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    int order = gw_order_compare(&o, value_of, a, b);
    gw_order_done(&o);
    return order;
}

/* Each run's text is gone through once for each byte of it. */
static void test_patterns_have_a_limit(void **state)
{
    for (size_t n = GW_FILTER_PATTERN_MAX; n <= GW_FILTER_PATTERN_MAX + 1; n++) {
        char pattern[GW_FILTER_PATTERN_MAX + 2] = {0};
        memset(pattern, '_', n);
        char *text = pst_sprintf("status ILIKE '%s'", pattern);
        gw_filter *f = NULL;
        pst_err err = {0};
        int rc = gw_filter_parse(text, attributes, &f, &err);
        assert_true((rc == 0) == (n == GW_FILTER_PATTERN_MAX));
        gw_filter_free(f);
        free(text);
    }
}

static void test_order_puts_what_is_not_there_last(void **state)
{
    thing more = one;
    more.loss = 0.75;
    assert_true(order_of("metrics.val/loss", &one, &more) < 0);
    assert_true(order_of("metrics.val/loss DESC", &one, &more) > 0);
    assert_true(order_of("metrics.val/loss ASC", &one, &bare) < 0);
    assert_true(order_of("metrics.val/loss desc", &one, &bare) < 0);
    assert_true(order_of("attributes.start_time", &one, &bare) < 0);
    assert_true(order_of("status", &one, &bare) < 0);
    assert_int_equal(order_of("status", &one, &more), 0);
    static const char *const bad[] = {"", "nothing", "status UP", "status DESC, start_time", "metrics."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gw_order o;
        pst_err err = {0};
        assert_int_equal(gw_order_parse(bad[i], attributes, &o, &err), PST_EPARSE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_filter_takes_what_it_says), cmocka_unit_test(test_filter_refuses_what_is_none),
                                       cmocka_unit_test(test_filter_has_limits), cmocka_unit_test(test_patterns_have_a_limit),
                                       cmocka_unit_test(test_order_puts_what_is_not_there_last)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
