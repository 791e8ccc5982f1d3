/* test_score_round.c - what a round counts, and what becomes of it when the round is committed or thrown away. */
#include "inference/run/score_round.h"
#include "tests/unit/test.h"

static void test_round_counts_dead_letters_in_a_row_over_rounds(void **state)
{
    pst_stats *s = pst_stats_new("p");
    pst_round r = {0};
    for (int i = 0; i < 3; i++)
        pst_round_dead(&r, "MAP", "bad-input");
    assert_int_equal(pst_round_dead_row(&r), 3);
    pst_round_clear(&r); /* thrown away: it has not happened */
    assert_int_equal(pst_round_dead_row(&r), 0);
    for (int i = 0; i < 3; i++)
        pst_round_dead(&r, "MAP", "bad-input");
    pst_round_commit(&r, NULL, s, 0);
    pst_round_dead(&r, "MAP", "bad-input");
    assert_int_equal(pst_round_dead_row(&r), 4);
    pst_round_scored(&r);
    pst_round_dead(&r, "MAP", "bad-input");
    assert_int_equal(pst_round_dead_row(&r), 1);
    pst_round_clear(&r);
    assert_int_equal(pst_round_dead_row(&r), 3);
    pst_round_done(&r);
    pst_stats_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_counts_dead_letters_in_a_row_over_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
