/* test_score_waits.c - several waits stand at once: the end of one says nothing of the others, and whoever asks hears of one that still stands. */
#include "inference/run/score_stats.h"
#include "tests/unit/test.h"

#include <string.h>

static const pst_record at7 = {.topic = "in", .partition = 1, .offset = 7}, at8 = {.topic = "in", .partition = 1, .offset = 8},
                        other9 = {.topic = "in", .partition = 2, .offset = 9}, at6 = {.topic = "in", .partition = 1, .offset = 6};

/* "what: why" of now; "" = it flows. */
static const char *now(score_stats *s)
{
    static char text[2000];
    char what[32];
    pst_buf why = {0};
    score_stats_waits_now(s, what, &why);
    snprintf(text, sizeof text, "%s%s%s", what, *what ? ": " : "", *what ? why.data : "");
    pst_buf_done(&why);
    return text;
}

static void test_waits_the_end_of_one_for_kafka_leaves_one_for_the_registry(void **state)
{
    score_stats *s = score_stats_new("p");
    assert_string_equal(now(s), "");
    score_stats_wait_record(s, &at7, "registry", "schema id 9 is not known to the registry yet");
    score_stats_wait(s, PST_WAIT_COORDINATOR, "kafka", "the broker is mute");
    assert_string_equal(now(s), "kafka: the broker is mute; and for registry: schema id 9 is not known to the registry yet");
    score_stats_wait(s, PST_WAIT_COORDINATOR, NULL, NULL);
    assert_true(s->waits);
    assert_string_equal(now(s), "registry: schema id 9 is not known to the registry yet");
    score_stats_used_record(s, &at6); /* the one before it */
    assert_true(s->waits);
    score_stats_used_record(s, &at7);
    assert_false(s->waits);
    assert_string_equal(now(s), "");
    score_stats_free(s);
}

static void test_waits_of_partitions_end_one_by_one(void **state)
{
    score_stats *s = score_stats_new("p");
    score_stats_wait_record(s, &other9, "kafka", "the letters' topic is too small");
    score_stats_wait_record(s, &at7, "registry", "schema id 9 is not known");
    score_stats_wait_record(s, &at7, "registry", "the registry is away"); /* held again, and for something else */
    assert_string_equal(now(s), "kafka: the letters' topic is too small; and for registry: the registry is away");
    score_stats_used_record(s, &other9);
    assert_string_equal(now(s), "registry: the registry is away");
    score_stats_used_record(s, &at8); /* its record is gone from the topic */
    assert_string_equal(now(s), "");
    score_stats_wait_record(s, &other9, "registry", "the registry is away");
    score_stats_wait_record(s, &at7, "registry", "the registry is away");
    assert_string_equal(now(s), "registry: the registry is away"); /* once */
    score_stats_wait_keep(s, &(pst_range){.topic = "in", .partition = 2}, 1);
    score_stats_used_record(s, &other9);
    assert_string_equal(now(s), ""); /* partition 1 is somebody else's */
    score_stats_free(s);
}

static void test_waits_being_opened_anew_outlasts_what_the_coordinator_says(void **state)
{
    score_stats *s = score_stats_new("p");
    score_stats_wait(s, PST_WAIT_REOPENED, "kafka", "fenced");
    score_stats_wait(s, PST_WAIT_COORDINATOR, "kafka", "offsets are pending");
    score_stats_wait(s, PST_WAIT_COORDINATOR, NULL, NULL);
    assert_string_equal(now(s), "kafka: fenced");
    score_stats_wait_record(s, &at7, PST_WAIT_PAUSED, "1000 records in a row");
    assert_string_equal(now(s), "paused: 1000 records in a row; and for kafka: fenced"); /* what a person has to end comes first */
    score_stats_wait_keep(s, NULL, 0);
    assert_string_equal(now(s), "kafka: fenced");
    score_stats_wait(s, PST_WAIT_REOPENED, NULL, NULL);
    assert_false(s->waits);
    score_stats_free(s);
}

static void test_waits_a_long_list_is_told_in_part(void **state)
{
    pst_waits *w = pst_waits_new();
    pst_buf text = {0};
    char why[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(why, sizeof why, "why %d", i);
        assert_true(pst_waits_record(w, "in", i, 5, "registry", why));
        assert_false(pst_waits_record(w, "in", i, 6, "registry", why));
    }
    pst_waits_text(w, "; and for ", &text);
    assert_non_null(strstr(text.data, "why 0; and for registry: why 1; and for "));
    assert_in_range(text.len, 50, 400);
    for (int i = 0; i < 1000; i++)
        assert_true(pst_waits_passed(w, "in", i, 6));
    assert_false(pst_waits_any(w));
    pst_buf_done(&text);
    pst_waits_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits_the_end_of_one_for_kafka_leaves_one_for_the_registry),
        cmocka_unit_test(test_waits_of_partitions_end_one_by_one),
        cmocka_unit_test(test_waits_being_opened_anew_outlasts_what_the_coordinator_says),
        cmocka_unit_test(test_waits_a_long_list_is_told_in_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
