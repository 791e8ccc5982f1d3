/* test_score_round.c - what a round counts, and what becomes of it when the round is committed or thrown away. */
#include "inference/run/score_round.h"
#include "tests/unit/test.h"

static void dead(score_round *r, int64_t offset)
{
    score_round_dead(r, "MAP", "bad-input");
    score_round_record(r, &(pst_record){.topic = "in", .offset = offset, .timestamp_ms = -1});
}

static void test_round_counts_dead_letters_in_a_row_over_rounds(void **state)
{
    score_stats *s = score_stats_new("p");
    score_round r = {0};
    for (int i = 0; i < 3; i++)
        dead(&r, i);
    assert_int_equal(score_round_dead_row(&r), 3);
    score_round_clear(&r); /* thrown away: it has not happened, and the records come again */
    assert_int_equal(score_round_dead_row(&r), 0);
    for (int i = 0; i < 3; i++)
        dead(&r, i);
    score_round_commit(&r, NULL, s, 0);
    assert_int_equal(s->records, 3);
    dead(&r, 3);
    assert_int_equal(score_round_dead_row(&r), 4);
    score_round_scored(&r);
    dead(&r, 5);
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
