/* test_score_work.c - what a batch may take is learned quickly when it grows, slowly when it falls, and not from a few records. */
#include "inference/run/score_work.h"
#include "tests/unit/test.h"

static void test_pace_that_is_not_known_means_few_records(void **state)
{
    score_pace p = {0};
    assert_int_equal(score_pace_expect_us(&p, 100), -1);
    assert_int_equal(score_pace_batch(&p, 512, 2000000), 32);
    assert_int_equal(score_pace_batch(&p, 8, 2000000), 8);
}

static void test_pace_cuts_the_batches_of_a_slow_model(void **state)
{
    score_pace p = {0};
    score_pace_learn(&p, 32, 32 * 27000); /* 14 s for 512 */
    assert_in_range(score_pace_expect_us(&p, 512), 13000000, 14000000);
    assert_in_range(score_pace_batch(&p, 512, 2000000), 70, 75);
    score_pace_learn(&p, 1, 9000000);
    assert_int_equal(score_pace_batch(&p, 512, 2000000), 1); /* never none */
}

static void test_pace_of_a_quick_model_cuts_nothing(void **state)
{
    score_pace p = {0};
    score_pace_learn(&p, 32, 300);
    assert_int_equal(score_pace_batch(&p, 512, 2000000), 512);
    score_pace_learn(&p, 1, 50000); /* somebody else had the processor */
    assert_true(score_pace_expect_us(&p, 512) < 10000);
    score_pace_learn(&p, 512, 0);
    assert_true(score_pace_expect_us(&p, 512) >= 0); /* known, however quick */
}

static void test_pace_falls_slowly(void **state)
{
    score_pace p = {0};
    score_pace_learn(&p, 100, 100000);
    score_pace_learn(&p, 100, 1000);
    assert_in_range(score_pace_expect_us(&p, 100), 70000, 80000);
}

/* A process that was stopped in the middle of one record takes that for the model's pace, and cuts batches to one record. They are quick, and that has
 * to count although they are few: else it sends a record a transaction for good. */
static void test_pace_recovers_though_batches_were_cut_to_one(void **state)
{
    score_pace p = {0};
    score_pace_learn(&p, 32, 300);
    score_pace_learn(&p, 1, 60000000);
    assert_int_equal(score_pace_batch(&p, 512, 2000000), 1);
    int batches = 0;
    for (; batches < 400 && score_pace_batch(&p, 512, 2000000) < 512; batches++)
        score_pace_learn(&p, score_pace_batch(&p, 512, 2000000), 200);
    assert_true(batches < 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pace_that_is_not_known_means_few_records),     cmocka_unit_test(test_pace_cuts_the_batches_of_a_slow_model),
        cmocka_unit_test(test_pace_of_a_quick_model_cuts_nothing),           cmocka_unit_test(test_pace_falls_slowly),
        cmocka_unit_test(test_pace_recovers_though_batches_were_cut_to_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
