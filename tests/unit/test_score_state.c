/* test_score_state.c - what lasts from round to round: from which offsets on a model counts, and which schema ids nobody knows. */
#include "inference/state/epoch.h"
#include "inference/state/unknown.h"
#include "tests/unit/test.h"

static pst_record at(int32_t partition, int64_t offset)
{
    return (pst_record){.topic = "in", .partition = partition, .offset = offset};
}

static void test_epoch_counts_from_its_offsets_and_everywhere_else(void **state)
{
    const pst_effective from[] = {{(char *)"in", 0, 5}, {(char *)"in", 1, 9}};
    pst_epoch *e = pst_epoch_new(from, 2);
    const pst_record before = at(0, 4), first = at(0, 5), other = at(1, 8), unsaid = at(7, 0);
    assert_false(pst_epoch_covers(e, &before));
    assert_true(pst_epoch_covers(e, &first));
    assert_false(pst_epoch_covers(e, &other));
    assert_true(pst_epoch_covers(e, &unsaid)); /* a partition that was added since */
    assert_int_equal(pst_epoch_from(e, "in", 1), 9);
    assert_int_equal(pst_epoch_from(e, "out", 1), -1);
    assert_false(pst_epoch_committed(e, "in", 0, 4));
    assert_false(pst_epoch_committed(e, "in", 0, 5));
    assert_false(pst_epoch_committed(e, "out", 1, 99));
    assert_false(pst_epoch_assigned(e, &(pst_range){.topic = "in", .partition = 1}, 1));
    assert_true(
        pst_epoch_assigned(e, &(pst_range){.topic = "in", .partition = 0}, 1)); /* it has begun there; the other is somebody else's */
    assert_false(pst_epoch_assigned(e, &(pst_range){.topic = "in", .partition = 1, .from = -1}, 1)); /* its place is not known */
    assert_false(pst_epoch_assigned(e, &(pst_range){.topic = "in", .partition = 1, .from = 8}, 1));
    assert_true(pst_epoch_assigned(e, &(pst_range){.topic = "in", .partition = 1, .from = 9}, 1)); /* nothing comes before it there */
    assert_true(pst_epoch_committed(e, "in", 1, 12));
    pst_epoch_free(e);
    e = pst_epoch_new(NULL, 0);
    assert_true(pst_epoch_covers(e, &before));
    pst_epoch_free(e);
}

static void test_unknown_is_believed_after_three_answers_over_seconds_for_a_minute(void **state)
{
    pst_unknown *u = pst_unknown_new(2000000);
    const int64_t s = 1000000;
    assert_false(pst_unknown_believed(u, 7, 1));
    assert_false(pst_unknown_said(u, 7, 1));
    assert_false(pst_unknown_said(u, 7, 1 * s)); /* somebody remembers the first answer */
    assert_false(pst_unknown_said(u, 7, 1 * s + 500000));
    assert_false(pst_unknown_said(u, 7, 3 * s));
    assert_true(pst_unknown_said(u, 7, 6 * s));
    assert_true(pst_unknown_believed(u, 7, 60 * s));
    assert_false(pst_unknown_believed(u, 8, 60 * s));
    assert_false(pst_unknown_believed(u, 7, 67 * s)); /* asked anew */
    assert_false(pst_unknown_said(u, 7, 67 * s));
    assert_int_equal(pst_unknown_count(u), 1);
    pst_unknown_is_known(u, 7);
    assert_int_equal(pst_unknown_count(u), 0);
    for (int i = 0; i < 100000; i++) /* rubbish */
        pst_unknown_said(u, i, s * i);
    assert_in_range(pst_unknown_count(u), 1000, 5000);
    pst_unknown_free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epoch_counts_from_its_offsets_and_everywhere_else),
        cmocka_unit_test(test_unknown_is_believed_after_three_answers_over_seconds_for_a_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
