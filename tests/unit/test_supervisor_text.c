/* test_supervisor_text.c - what a learner writes → lines, metrics, gaps. */
#include "common/base/clock.h"
#include "lcm/supervisor/limiter.h"
#include "lcm/supervisor/lines.h"
#include "lcm/supervisor/metric_line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct got {
    char *lines[200];
    size_t n;
} got;

static void take(void *arg, const char *text, size_t len)
{
    got *g = arg;
    assert_true(g->n < 200);
    assert_int_equal(strlen(text), len);
    g->lines[g->n++] = pst_strndup(text, len);
}

static void done(got *g)
{
    for (size_t i = 0; i < g->n; i++)
        free(g->lines[i]);
    g->n = 0;
}

/* Feeds in pieces of every size: the result must be the same. */
static void check(const char *data, size_t len, const char *const *wanted, size_t n)
{
    for (size_t piece = 1; piece <= len; piece++) {
        got g = {0};
        sup_lines l = {.line = take, .arg = &g};
        for (size_t at = 0; at < len; at += piece)
            sup_lines_feed(&l, data + at, len - at < piece ? len - at : piece);
        sup_lines_end(&l);
        assert_int_equal(g.n, n);
        for (size_t i = 0; i < n; i++)
            assert_string_equal(g.lines[i], wanted[i]);
        done(&g);
    }
}

static void test_lines_are_the_same_however_the_bytes_come(void **state)
{
    check("a\nbb\n\nccc", 9, (const char *const[]){"a", "bb", "", "ccc"}, 4);
    check("a\r\nb\r\n", 6, (const char *const[]){"a", "b"}, 2);
    check("10%\r50%\r100%\nend\n", 17, (const char *const[]){"100%", "end"}, 2);
    check("\n", 1, (const char *const[]){""}, 1);
}

static void test_lines_are_valid_utf8_whatever_comes(void **state)
{
    check("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\n", 15,
          (const char *const[]){"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"}, 1);
    check("a\xff"
          "b\xc3\n",
          5,
          (const char *const[]){"a\xef\xbf\xbd"
                                "b\xef\xbf\xbd"},
          1);
    check("\xc0\xaf\n", 3, (const char *const[]){"\xef\xbf\xbd\xef\xbf\xbd"}, 1);                 /* overlong */
    check("\xed\xa0\x80\n", 4, (const char *const[]){"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, 1); /* surrogate */
    check("x\0y\n", 4, (const char *const[]){"x\xef\xbf\xbdy"}, 1);
}

static void test_lines_too_long_come_in_marked_pieces(void **state)
{
    size_t len = 3 * PST_LINE_MAX;
    char *data = malloc(len + 1);
    memset(data, 'x', len);
    memcpy(data + PST_LINE_MAX - 1, "\xc3\xa4", 2); /* a character across the limit stays whole */
    data[len] = '\n';
    for (size_t piece = 1000; piece < len; piece += 77777) {
        got g = {0};
        sup_lines l = {.line = take, .arg = &g};
        for (size_t at = 0; at < len + 1; at += piece)
            sup_lines_feed(&l, data + at, len + 1 - at < piece ? len + 1 - at : piece);
        sup_lines_feed(&l, "next\n", 5);
        sup_lines_end(&l);
        assert_in_range(g.n, 4, 5);
        size_t total = 0;
        for (size_t i = 0; i + 1 < g.n; i++) {
            assert_true(strlen(g.lines[i]) <= PST_LINE_MAX + 64);
            assert_null(strstr(g.lines[i], "\xef\xbf\xbd"));
            for (const char *p = g.lines[i]; *p; p++)
                total += *p == 'x';
            assert_int_equal(!strncmp(g.lines[i], "[continued] ", 12), i > 0);
        }
        assert_int_equal(total, len - 2);
        assert_string_equal(g.lines[g.n - 1], "next");
        done(&g);
    }
    free(data);
}

static double value(const pst_metric_point *p, const char *key)
{
    for (size_t i = 0; i < p->n_values; i++)
        if (!strcmp(p->values[i].key, key))
            return p->values[i].value;
    fail_msg("no value %s", key);
    return 0;
}

static void test_metric_line_takes_numbers_and_the_four_named_fields(void **state)
{
    pst_metric_point p;
    const char *text =
        "{\"penstock\":\"metrics\",\"step\":7,\"epoch\":1.5,\"group\":\"validation\",\"time\":\"2026-11-21T00:00:00Z\",\"loss\":0.25,"
        "\"n\":3,\"note\":\"x\",\"ok\":true,\"none\":null}";
    assert_int_equal(sup_metric_line(text, strlen(text), 5, &p), 1);
    assert_true(p.has_step && p.step == 7 && p.has_epoch && p.epoch == 1.5);
    assert_string_equal(p.group, "validation");
    int64_t wanted;
    assert_int_equal(pst_time_parse("2026-11-21T00:00:00Z", &wanted), 0);
    assert_true(p.time == wanted);
    assert_int_equal(p.n_values, 2);
    assert_true(value(&p, "loss") == 0.25 && value(&p, "n") == 3);
    pst_event_clear(&pst_metric_point_type, &p);
    text = "  {\"penstock\": \"metrics\", \"loss\": NaN, \"a\": -Infinity, \"b\": Infinity, \"s\": \"NaN in text \\\" NaN\"}";
    assert_int_equal(sup_metric_line(text, strlen(text), 5, &p), 1);
    assert_true(isnan(value(&p, "loss")) && isinf(value(&p, "a")) && value(&p, "a") < 0 && value(&p, "b") > 0);
    assert_int_equal(p.n_values, 3);
    assert_string_equal(p.group, "train");
    assert_true(p.time == 5 && !p.has_step && !p.has_epoch);
    pst_event_clear(&pst_metric_point_type, &p);
}

static void test_metric_line_leaves_other_lines_alone(void **state)
{
    static const char *const others[] = {"",
                                         "loss 0.5",
                                         "{\"loss\":1}",
                                         "{\"penstock\":\"other\",\"loss\":1}",
                                         "{\"penstock\":\"metrics\"",
                                         "[\"penstock\"]",
                                         "{\"x\":\"\\\"penstock\\\"\"}",
                                         "{\"penstock\":\"metrics\",}"};
    pst_metric_point p;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(sup_metric_line(others[i], strlen(others[i]), 0, &p), 0);
}

static void test_checkpoint_line_keeps_short_scalars(void **state)
{
    const char *text =
        "{\"penstock\":\"checkpoint\",\"time\":1700000000,\"step\":40,\"file\":\"a.pt\",\"best\":true,\"deep\":{\"x\":1},\"loss\":0.1}";
    pst_process_report r;
    assert_int_equal(sup_checkpoint_line(text, strlen(text), 5, &r), 1);
    assert_int_equal(r.type, PST_REPORT_TYPE_CHECKPOINT);
    assert_true(r.time == 1700000000000000);
    assert_string_equal(r.reason, "checkpoint of step 40");
    assert_int_equal(r.n_details, 4);
    assert_string_equal(pst_str_map_get(r.details, r.n_details, "loss"), "0.1");
    assert_string_equal(pst_str_map_get(r.details, r.n_details, "best"), "true");
    pst_event_clear(&pst_process_report_type, &r);
    pst_buf many = {0};
    pst_buf_adds(&many, "{\"penstock\":\"checkpoint\",\"long\":\"");
    for (int i = 0; i < 301; i++)
        pst_buf_addc(&many, 'x');
    pst_buf_addc(&many, '"');
    for (int i = 0; i < 100; i++)
        pst_buf_printf(&many, ",\"k%d\":%d", i, i);
    pst_buf_addc(&many, '}');
    assert_int_equal(sup_checkpoint_line(many.data, many.len, 5, &r), 1);
    assert_string_equal(r.reason, "checkpoint");
    assert_true(r.n_details == PST_CHECKPOINT_DETAILS_MAX && r.time == 5);
    assert_null(pst_str_map_get(r.details, r.n_details, "long"));
    pst_event_clear(&pst_process_report_type, &r);
    pst_buf_done(&many);
    assert_int_equal(sup_checkpoint_line("{\"penstock\":\"metrics\"}", 22, 5, &r), 0);
}

static void test_emetrics_line_as_ffdl_writes_it(void **state)
{
    pst_metric_point p;
    const char *why;
    const char *text =
        "{\"meta\":{\"training_id\":\"t\",\"time\":\"1700000000000\",\"rindex\":3},\"grouplabel\":\"test\",\"etimes\":{\"iteration\":"
        "{\"type\":1,\"value\":\"300\"},\"epoch\":{\"value\":2}},\"values\":{\"accuracy\":{\"type\":2,\"value\":\"0.9\"},\"w\":{\"type\":0,"
        "\"value\":\"text\"},\"bare\":4}}";
    assert_int_equal(sup_emetrics_line(text, strlen(text), 5, &p, &why), 1);
    assert_string_equal(p.group, "test");
    assert_true(p.has_step && p.step == 300 && p.has_epoch && p.epoch == 2);
    assert_true(value(&p, "accuracy") == 0.9 && value(&p, "bare") == 4);
    assert_int_equal(p.n_values, 2);
    assert_true(p.time == 1700000000000000);
    pst_event_clear(&pst_metric_point_type, &p);
    assert_int_equal(sup_emetrics_line("not json", 8, 5, &p, &why), 0);
    assert_int_equal(sup_emetrics_line("{}", 2, 5, &p, &why), 0);
    assert_non_null(strstr(why, "values"));
}

static void test_limiter_counts_what_it_leaves_out_and_tells_once(void **state)
{
    sup_limiter l;
    int64_t lines, bytes, now = 1000000;
    sup_limiter_init(&l, 100, 1e6, now);
    int passed = 0, total = 0;
    int64_t told = 0, told_bytes = 0;
    int gaps = 0;
    for (int ms = 0; ms < 10000; ms++, now += 1000) /* 1,000 lines a second for ten seconds */
        for (int i = 0; i < 1; i++, total++) {
            if (sup_limiter_gap(&l, now, false, &lines, &bytes)) {
                told += lines;
                told_bytes += bytes;
                gaps++;
            }
            passed += sup_limiter_take(&l, 10, now);
        }
    if (sup_limiter_gap(&l, now, true, &lines, &bytes)) {
        told += lines;
        told_bytes += bytes;
    }
    assert_int_equal(passed + told, total);
    assert_int_equal(told_bytes, told * 10);
    assert_in_range(passed, 950, 1110);
    assert_in_range(gaps, 50, 110);
    assert_false(sup_limiter_gap(&l, now, true, &lines, &bytes));
    /* Bytes bound it too, and one line larger than the whole budget still passes in the end. */
    sup_limiter_init(&l, 1e9, 1000, now);
    assert_true(sup_limiter_take(&l, 1000, now));
    assert_false(sup_limiter_take(&l, 1, now));
    now += 2000000;
    assert_true(sup_limiter_gap(&l, now, false, &lines, &bytes));
    assert_true(sup_limiter_take(&l, 5000, now));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_the_same_however_the_bytes_come),
        cmocka_unit_test(test_lines_are_valid_utf8_whatever_comes),
        cmocka_unit_test(test_lines_too_long_come_in_marked_pieces),
        cmocka_unit_test(test_metric_line_takes_numbers_and_the_four_named_fields),
        cmocka_unit_test(test_metric_line_leaves_other_lines_alone),
        cmocka_unit_test(test_checkpoint_line_keeps_short_scalars),
        cmocka_unit_test(test_emetrics_line_as_ffdl_writes_it),
        cmocka_unit_test(test_limiter_counts_what_it_leaves_out_and_tells_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
