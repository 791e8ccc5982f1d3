/* test_budget.c - a canary's budget: judged over enough records and not before, the two windows apart, and begun anew once judged. */
#include "inference/state/budget.h"
#include "tests/unit/test.h"

#include <string.h>

static char why[300];

static bool adds(pst_budget *b, pst_cost cost)
{
    pst_budget_add(b, &cost);
    bool beyond = pst_budget_exceeded(b, why, sizeof why);
    pst_budget_turn(b);
    return beyond;
}

static void test_budget_judges_errors_over_enough(void **state)
{
    pst_budget b = {.errors = 0.01, .disagreement = -1, .over = 1000};
    assert_false(adds(&b, (pst_cost){.records = 999, .failed = 500}));
    assert_true(adds(&b, (pst_cost){.records = 1}));
    assert_non_null(strstr(why, "500 of 1000"));
    assert_false(adds(&b, (pst_cost){.records = 1000, .failed = 10})); /* just met */
    assert_true(adds(&b, (pst_cost){.records = 1000, .failed = 11}));
}

static void test_budget_begins_anew(void **state)
{
    pst_budget b = {.errors = 0.01, .disagreement = -1, .over = 100};
    for (int i = 0; i < 50; i++)
        assert_false(adds(&b, (pst_cost){.records = 100, .failed = 1}));
    assert_false(adds(&b, (pst_cost){.records = 99, .failed = 90}));
    assert_true(adds(&b, (pst_cost){.records = 1}));
}

static void test_budget_judges_disagreement_apart(void **state)
{
    pst_budget b = {.errors = -1, .disagreement = 0.05, .over = 100};
    assert_false(adds(&b, (pst_cost){.records = 5000, .failed = 5000, .compared = 99, .differed = 99}));
    assert_true(adds(&b, (pst_cost){.compared = 1}));
    assert_non_null(strstr(why, "disagreement: 99 of 100"));
}

static void test_budget_judges_latency(void **state)
{
    pst_budget b = {.errors = -1, .disagreement = -1, .latency_us = 50, .over = 10};
    assert_false(adds(&b, (pst_cost){.records = 10, .us = 500}));
    assert_true(adds(&b, (pst_cost){.records = 10, .us = 501}));
    assert_non_null(strstr(why, "latency: "));
}

static void test_budget_none(void **state)
{
    pst_budget b = {.errors = 0, .disagreement = 0, .latency_us = 1};
    assert_false(adds(&b, (pst_cost){1000, 1000, 1000, 1000, 1000000}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget_judges_errors_over_enough),
        cmocka_unit_test(test_budget_begins_anew),
        cmocka_unit_test(test_budget_judges_disagreement_apart),
        cmocka_unit_test(test_budget_judges_latency),
        cmocka_unit_test(test_budget_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
