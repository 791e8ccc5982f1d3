/* test_score_round.c - what a round counts, and what becomes of it when the round is committed or thrown away. */
#include "inference/run/score_round.h"
#include "tests/unit/test.h"

static void test_round_counts_dead_letters_in_a_row_over_rounds(void **state)
{
    score_stats *s = score_stats_new("p");
    score_round r = {0};
    for (int i = 0; i < 3; i++)
        score_round_dead(&r, "MAP", "bad-input");
    assert_int_equal(score_round_dead_row(&r), 3);
    score_round_clear(&r); /* thrown away: it has not happened */
    assert_int_equal(score_round_dead_row(&r), 0);
    for (int i = 0; i < 3; i++)
        score_round_dead(&r, "MAP", "bad-input");
    score_round_commit(&r, NULL, s, 0);
    score_round_dead(&r, "MAP", "bad-input");
    assert_int_equal(score_round_dead_row(&r), 4);
    score_round_scored(&r);
    score_round_dead(&r, "MAP", "bad-input");
    assert_int_equal(score_round_dead_row(&r), 1);
    score_round_clear(&r);
    assert_int_equal(score_round_dead_row(&r), 3);
    score_round_done(&r);
    score_stats_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_counts_dead_letters_in_a_row_over_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
