/* test_score_round.c - what a round counts, and what becomes of it when the round is committed or thrown away. */
#include "inference/run/score_round.h"
#include "tests/unit/core_kit.h"

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

/* What a scorer of one feature in three says of three records, the second without that feature. */
static void test_round_tells_scores_and_missing_features_once_committed(void **state)
{
    world w = {0};
    pst_pipeline *p = kit_pipeline("name: p\ninput: {topics: [in]}\nmodel: {name: line}\noutput: {topic: out}\n"
                                   "features: [{field: cpu.user, missing: value, value: 7}, {field: n}]\nbatching: {count: 8}\n");
    static const float weights[] = {0.1f, 0};
    pst_score_core *c = make_core(&w, p, kit_bind(p, kit_linear(2, 1, weights, NULL), 1));
    pst_buf v[3] = {0};
    kit_value(w.schema, 1, "{\"host\":\"a\",\"cpu\":{\"user\":3,\"sys\":0.5},\"n\":4}", &v[0]);
    kit_value(w.schema, 1, "{\"host\":\"b\",\"cpu\":null,\"n\":4}", &v[1]);
    kit_value(w.schema, 1, "{\"host\":\"c\",\"cpu\":{\"user\":-9,\"sys\":0.5},\"n\":4}", &v[2]);
    pst_record r[3];
    for (int i = 0; i < 3; i++)
        r[i] = rec(i, &v[i]);
    score_stats *s = score_stats_new("p");
    score_round round = {0};
    pst_fate f[3];
    size_t usable;
    pst_err err = {0};
    assert_int_equal(score(c, &w, r, 3, f, &usable, &err), 0);
    for (int again = 0; again < 2; again++) { /* thrown away the first time: it has not happened */
        for (int i = 0; i < 3; i++) {
            assert_int_equal(f[i].kind, PST_FATE_SCORED);
            score_round_scored(&round);
            score_round_seen(&round, &f[i]);
            score_round_record(&round, &r[i]);
        }
        if (!again)
            score_round_clear(&round);
    }
    score_round_commit(&round, NULL, s, 0);
    score_round_clear(&round); /* an empty round adds nothing */
    score_round_commit(&round, NULL, s, 0);
    pst_buf text = {0};
    pst_metrics_text(s->set, &text);
    assert_non_null(strstr(text.data, "penstock_scorer_feature_missing_total{pipeline=\"p\",feature=\"cpu.user\"} 1\n"));
    assert_null(strstr(text.data, "feature=\"n\""));
    assert_non_null(strstr(text.data, "penstock_scorer_records_with_missing_total{pipeline=\"p\"} 1\n"));
    assert_non_null(strstr(text.data, "penstock_scorer_score_bucket{pipeline=\"p\",le=\"0\"} 1\n")); /* -0.9 */
    assert_non_null(strstr(text.data, "penstock_scorer_score_bucket{pipeline=\"p\",le=\"0.6\"} 2\n"));
    assert_non_null(strstr(text.data, "penstock_scorer_score_bucket{pipeline=\"p\",le=\"0.8\"} 3\n"));
    assert_non_null(strstr(text.data, "penstock_scorer_score_count{pipeline=\"p\"} 3\n"));
    assert_int_equal(s->newest_ms, 1002);
    for (int i = 0; i < 3; i++)
        pst_buf_done(&v[i]);
    pst_buf_done(&text);
    score_round_done(&round);
    score_stats_free(s);
    end_world(&w, c, p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_counts_dead_letters_in_a_row_over_rounds),
        cmocka_unit_test(test_round_tells_scores_and_missing_features_once_committed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
