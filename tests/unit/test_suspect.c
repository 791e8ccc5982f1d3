/* test_suspect.c - the record that a topic refuses is found among many, and nothing else is blamed for it. */
#include "inference/state/suspect.h"
#include "inference/state/takes.h"
#include "tests/unit/test.h"

#include <string.h>

static pst_record record(int64_t offset)
{
    return (pst_record){.topic = "in", .partition = 0, .offset = offset};
}

static pst_suspect_stage stage_of(const pst_suspects *x, const pst_record *r)
{
    const pst_suspect *s = pst_suspects_find(x, r);
    return s ? s->stage : PST_SUSPECT_NONE;
}

/* Rounds of what is left of 0..n, as the scorer plays them, where the topic refuses `bad` until it goes out as a letter. */
static int play(pst_suspects *x, int64_t n, int64_t bad, pst_suspect_stage cured, pst_suspect_stage *ret_stage)
{
    int rounds = 0;
    for (int64_t at = 0; at < n; rounds++) {
        assert_true(rounds < 200);
        int64_t most = x->most && (int64_t)x->most < n - at ? (int64_t)x->most : n - at;
        pst_record r = record(bad);
        bool refuses = at <= bad && bad < at + most && stage_of(x, &r) < cured;
        if (refuses) {
            pst_suspects_refused(x, (uint64_t)most, "in", 0, at + most - 1, false, "topic out: no key");
            continue;
        }
        for (int64_t i = at; i < at + most; i++) {
            pst_record each = record(i);
            assert_true(i == bad || !stage_of(x, &each)); /* nobody else */
        }
        if (at <= bad && bad < at + most)
            *ret_stage = stage_of(x, &r);
        at += most;
        pst_suspects_passed(x, (uint64_t)most);
        pst_suspects_passed_to(x, "in", 0, at);
    }
    return rounds;
}

static void test_suspect_one_of_many_is_found_in_few_rounds(void **state)
{
    for (int64_t bad = 0; bad < 1000; bad += 37) {
        pst_suspects x = {0};
        pst_suspect_stage stage = PST_SUSPECT_NONE;
        int rounds = play(&x, 1000, bad, PST_SUSPECT_LETTER, &stage);
        assert_int_equal(stage, PST_SUSPECT_LETTER);
        assert_true(rounds < 40);
        pst_suspects_done(&x);
    }
}

static void test_suspect_a_letter_loses_its_time_and_then_waits(void **state)
{
    pst_suspects x = {0};
    pst_record r = record(7);
    for (int i = 0; i < 2; i++)
        pst_suspects_refused(&x, 1, "in", 0, 7, true, "first");
    assert_int_equal(stage_of(&x, &r), PST_SUSPECT_NO_SHADOW);
    for (int i = 0; i < 2; i++)
        pst_suspects_refused(&x, 1, "in", 0, 7, false, "second");
    assert_int_equal(stage_of(&x, &r), PST_SUSPECT_LETTER);
    assert_string_equal(pst_suspects_find(&x, &r)->why, "first");
    pst_suspects_refused(&x, 1, "in", 0, 7, false, "third");
    assert_int_equal(stage_of(&x, &r), PST_SUSPECT_LETTER); /* once proves nothing */
    pst_suspects_refused(&x, 1, "in", 0, 7, false, "third");
    assert_int_equal(stage_of(&x, &r), PST_SUSPECT_LETTER_NOW);
    for (int i = 0; i < 2; i++)
        pst_suspects_refused(&x, 1, "in", 0, 7, false, "fourth");
    assert_int_equal(stage_of(&x, &r), PST_SUSPECT_WAITS);
    pst_suspects_waited(&x, &r);
    assert_int_equal(stage_of(&x, &r), PST_SUSPECT_LETTER);
    pst_suspects_passed_to(&x, "in", 0, 7);
    assert_int_equal(stage_of(&x, &r), PST_SUSPECT_LETTER);
    pst_suspects_passed_to(&x, "in", 0, 8);
    assert_int_equal(stage_of(&x, &r), PST_SUSPECT_NONE);
    pst_suspects_done(&x);
}

/* Another partition's rounds that pass between two refusals acquit nobody, and a refused round of many blames nobody. */
static void test_suspect_is_acquitted_by_its_own_round_alone(void **state)
{
    pst_suspects x = {0};
    pst_record r = record(7), same_offset = {.topic = "in", .partition = 1, .offset = 7};
    pst_suspects_refused(&x, 1, "in", 0, 7, false, "no key");
    pst_suspects_passed(&x, 1);
    pst_suspects_refused(&x, 2, "in", 1, 9, false, "no key");
    assert_int_equal(stage_of(&x, &r), PST_SUSPECT_NONE);
    assert_int_equal(x.most, 1);
    pst_suspects_refused(&x, 1, "in", 0, 7, false, "no key");
    assert_int_equal(stage_of(&x, &r), PST_SUSPECT_LETTER);
    assert_int_equal(stage_of(&x, &same_offset), PST_SUSPECT_NONE);
    for (int i = 0; i < 2; i++)
        pst_suspects_refused(&x, 1, "in", 1, 3, false, "no key");
    assert_int_equal(stage_of(&x, &r), PST_SUSPECT_LETTER);   /* another partition's takes nothing from it */
    pst_suspects_refused(&x, 1, "in", 0, 3, false, "no key"); /* one before it, after a move: the partition's suspect is that one now */
    assert_int_equal(stage_of(&x, &r), PST_SUSPECT_NONE);
    pst_suspects_done(&x);
}

/* Rounds grow again, but not by rounds that were small of themselves. */
static void test_suspect_rounds_grow_again(void **state)
{
    pst_suspects x = {0};
    pst_suspects_refused(&x, 100, "in", 0, 99, false, "no key");
    assert_int_equal(x.most, 50);
    pst_suspects_passed(&x, 3);
    assert_int_equal(x.most, 50);
    pst_suspects_passed(&x, 50);
    assert_int_equal(x.most, 100);
    for (int i = 0; i < 10 && x.most; i++)
        pst_suspects_passed(&x, x.most);
    assert_int_equal(x.most, 0);
    pst_suspects_passed(&x, 5);
    assert_int_equal(x.most, 0);
    pst_suspects_done(&x);
}

/* What a topic says, by its settings in Kafka 4's, 3's and 2's words. */
static void test_takes_what_the_settings_say(void **state)
{
    enum { MINUTE = 60000, NOW = 1700000000 };
    const int64_t now_ms = NOW * 1000LL, us = 5;
    pst_record r = {.topic = "in", .timestamp_ms = now_ms + 70 * MINUTE};
    pst_takes t = {0};
    assert_true(pst_takes_is_old(&t, us));
    assert_int_equal(pst_takes_says(&t, &r, us, now_ms), PST_TAKES_IT);
    pst_takes_learn(&t, (const char *const[]){"delete", "CreateTime", "9223372036854775807", "3600000", NULL}, us);
    assert_int_equal(pst_takes_says(&t, &r, us, now_ms), PST_TAKES_NO_SUCH_TIME);
    r.timestamp_ms = now_ms + 60 * MINUTE + 1000; /* by the broker's clock it may be in time */
    assert_int_equal(pst_takes_says(&t, &r, us, now_ms), PST_TAKES_IT);
    r.timestamp_ms = 1;
    assert_int_equal(pst_takes_says(&t, &r, us, now_ms), PST_TAKES_IT);
    pst_takes_learn(&t, (const char *const[]){"compact,delete", "CreateTime", NULL, NULL, "3600000"}, us);
    assert_int_equal(pst_takes_says(&t, &r, us, now_ms), PST_TAKES_NO_KEYLESS);
    r.key = (const uint8_t *)"";
    assert_int_equal(pst_takes_says(&t, &r, us, now_ms), PST_TAKES_NO_SUCH_TIME);
    assert_int_equal(pst_takes_says(&t, &r, us + 61000000, now_ms), PST_TAKES_IT); /* not believed for ever */
    assert_true(pst_takes_is_old(&t, us + 61000000));
    pst_takes_learn(&t, (const char *const[]){"delete", "LogAppendTime", "1", "1", "1"}, us);
    assert_int_equal(pst_takes_says(&t, &r, us, now_ms), PST_TAKES_IT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suspect_one_of_many_is_found_in_few_rounds),
        cmocka_unit_test(test_suspect_a_letter_loses_its_time_and_then_waits),
        cmocka_unit_test(test_suspect_is_acquitted_by_its_own_round_alone),
        cmocka_unit_test(test_suspect_rounds_grow_again),
        cmocka_unit_test(test_takes_what_the_settings_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
