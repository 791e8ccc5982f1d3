/* test_trace.c - a traceparent is taken by the letter of W3C's recommendation, and each step has a parent id of its own in the same trace. */
#include "common/platform/trace.h"
#include "tests/unit/test.h"
#include "trainer/traces.h"

#include <stdlib.h>
#include <string.h>

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define SPAN  "b7ad6b7169203331"
#define ZERO4 "0000"
#define ZERO  ZERO4 ZERO4 ZERO4 ZERO4

static void test_trace_takes_what_the_recommendation_allows_and_nothing_else(void **state)
{
    const struct {
        const char *text;
        bool good;
    } cases[] = {{"00-" TRACE "-" SPAN "-01", true},
                 {"00-" TRACE "-" SPAN "-00", true},
                 {"00-" TRACE "-" SPAN "-01-more", false},
                 {"cc-" TRACE "-" SPAN "-01-more", true}, /* a later version may go on */
                 {"cc-" TRACE "-" SPAN "-01", true},
                 {"cc-" TRACE "-" SPAN "-01.more", false},
                 {"ff-" TRACE "-" SPAN "-01", false},
                 {"00-" TRACE "-" SPAN "-0", false},
                 {"00-" TRACE "-" SPAN "-0g", false},
                 {"00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01", false},
                 {"00-" ZERO ZERO "-" SPAN "-01", false},
                 {"00-" TRACE "-" ZERO "-01", false},
                 {"00-" TRACE "_" SPAN "-01", false},
                 {"0-" TRACE "-" SPAN "-011", false},
                 {"", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_trace t;
        assert_int_equal(pst_trace_parse(cases[i].text, strlen(cases[i].text), &t), cases[i].good);
        assert_string_equal(t.text + (cases[i].good ? 2 : 0), cases[i].good ? strndupa(cases[i].text + 2, 53) : "");
    }
    pst_trace none;
    assert_false(pst_trace_parse(NULL, 0, &none));
    const char line[] = "00-" TRACE "-" SPAN "-01\r\nX: y";
    assert_false(pst_trace_parse(line, strlen(line), &none));
}

static void test_trace_steps_keep_the_trace_and_have_their_own_parent_id(void **state)
{
    const char *text = "00-" TRACE "-" SPAN "-00";
    pst_trace came, first, second, fresh, other, again;
    assert_true(pst_trace_parse(text, strlen(text), &came));
    pst_trace_child(&came, &first);
    second = first;
    pst_trace_child(&second, &second);
    assert_memory_equal(first.text, "00-" TRACE "-", 36);
    assert_memory_equal(second.text, "00-" TRACE "-", 36);
    assert_string_equal(first.text + 52, "-00"); /* whoever does not sample is not overruled */
    assert_int_not_equal(memcmp(first.text + 36, came.text + 36, 16), 0);
    assert_int_not_equal(memcmp(first.text + 36, second.text + 36, 16), 0);
    pst_trace_child(NULL, &fresh);
    pst_trace_child(&(pst_trace){0}, &other);
    assert_true(pst_trace_parse(fresh.text, strlen(fresh.text), &again));
    assert_int_not_equal(memcmp(fresh.text, other.text, 36), 0);
}

static void test_trace_of_the_environment_is_checked_as_well(void **state)
{
    pst_trace t;
    unsetenv("TRACEPARENT");
    pst_trace_of_environment(&t);
    assert_string_equal(t.text, "");
    setenv("TRACEPARENT", "00-" TRACE "-" SPAN "-01", 1);
    pst_trace_of_environment(&t);
    assert_string_equal(t.text, "00-" TRACE "-" SPAN "-01");
    setenv("TRACEPARENT", "nonsense", 1);
    pst_trace_of_environment(&t);
    assert_string_equal(t.text, "");
    unsetenv("TRACEPARENT");
}

static const char other[] = "00-11111111111111111111111111111111-2222222222222222-01";

static bool is_of(const pst_trace *t, const char *text)
{
    return *t->text && !memcmp(t->text, text, 36);
}

/* A halt goes on with the trace of whoever asked for it; what another job's end leads to does not carry the other's. */
static void test_trace_of_a_job_is_that_of_its_submission(void **state)
{
    const char *text = "00-" TRACE "-" SPAN "-01";
    trainer_traces t = {0};
    pst_trace own, of_other, next;
    pst_trace_parse(text, PST_TRACE_LEN, &own);
    pst_trace_parse(other, PST_TRACE_LEN, &of_other);
    trainer_cause about_a = {.trace = of_other, .training_id = "a"}, about_b = {.trace = of_other, .training_id = "b"}, about_none = {0};
    trainer_traces_keep(&t, "a", &own);
    trainer_traces_keep(&t, "a", &of_other); /* submitted once more */
    trainer_traces_keep(&t, "c", &(pst_trace){0});
    trainer_traces_next(&t, "a", false, NULL, &next);
    assert_true(is_of(&next, text));
    assert_string_not_equal(next.text, text);
    trainer_traces_next(&t, "a", false, &about_b, &next);
    assert_true(is_of(&next, text));
    trainer_traces_next(&t, "a", false, &about_a, &next);
    assert_true(is_of(&next, other));
    trainer_traces_next(&t, "a", true, &about_a, &next); /* its state is where the next Trainer finds it */
    assert_true(is_of(&next, text));
    trainer_traces_next(&t, "c", false, &about_b, &next);
    assert_string_equal(next.text, "");
    trainer_traces_next(&t, "c", true, &(trainer_cause){.trace = of_other, .training_id = "c"}, &next);
    assert_true(is_of(&next, other));
    trainer_traces_next(&t, "a", false, &about_none, &next);
    assert_true(is_of(&next, text));
    trainer_traces_drop(&t, "a");
    trainer_traces_next(&t, "a", false, NULL, &next);
    assert_string_equal(next.text, "");
    trainer_traces_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace_takes_what_the_recommendation_allows_and_nothing_else),
        cmocka_unit_test(test_trace_steps_keep_the_trace_and_have_their_own_parent_id),
        cmocka_unit_test(test_trace_of_a_job_is_that_of_its_submission),
        cmocka_unit_test(test_trace_of_the_environment_is_checked_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
