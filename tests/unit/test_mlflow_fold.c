/* test_mlflow_fold.c - facts, jobs, points and model events into what MLflow's clients see: whatever their order, read once or twice, and what is taken back. */
#include "producers/gateway/mlflow.h"
#include "tests/unit/test.h"

#include "common/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fact(gw_tracking *t, const char *key, pst_tracking_record e)
{
    if (!e.value)
        e.value = (char *)"";
    if (!e.experiment_id)
        e.experiment_id = (char *)"";
    if (!e.sha256)
        e.sha256 = (char *)"";
    gw_tracking_fact(t, key, &e, 1000000);
}

static void test_facts_come_in_any_order(void **state)
{
    gw_tracking *t = gw_tracking_new();
    fact(t, "run:a/TAG/x/y", (pst_tracking_record){.value = (char *)"1"});
    assert_null(gw_tracking_run(t, "a")); /* nobody has created it */
    fact(t, "run:a/METRIC/loss", (pst_tracking_record){.number = 0.5, .step = 3, .timestamp = 5, .points = 4});
    fact(t, "run:a/STATUS/", (pst_tracking_record){.value = (char *)"FAILED", .timestamp = 77});
    fact(t, "run:a/CREATED/", (pst_tracking_record){.value = (char *)"ada", .experiment_id = (char *)"7", .timestamp = 42});
    for (int turn = 0; turn < 2; turn++) {
        const gw_run *r = gw_tracking_run(t, "a");
        assert_non_null(r);
        assert_string_equal(r->user, "ada");
        assert_string_equal(r->experiment_id, "7");
        assert_string_equal(r->status, "FAILED");
        assert_int_equal(r->start_ms, 42);
        assert_int_equal(r->end_ms, 77);
        assert_int_equal(r->points, 4);
        assert_string_equal(pst_json_str(r->tags, "x/y", ""), "1");
        fact(t, "run:a/CREATED/", (pst_tracking_record){.value = (char *)"ada", .experiment_id = (char *)"7", .timestamp = 42});
    }
    gw_tracking_fact(t, "run:a/TAG/x/y", NULL, 1);
    assert_null(json_object_get(gw_tracking_run(t, "a")->tags, "x/y"));
    static const char *const strange[] = {"", "run:a", "run:a/TAG", "nobody/TAG/x", "/", "//", "run:a/NONE/x", "artifacts/TAG/x"};
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        fact(t, strange[i], (pst_tracking_record){.value = (char *)"v"});
        gw_tracking_fact(t, strange[i], NULL, 1);
    }
    gw_tracking_free(t);
}

static double metric(gw_tracking *t, const char *id, const char *key)
{
    return gw_tracking_number(json_object_get(gw_tracking_run(t, id)->metrics, key));
}

static void test_newest_point_counts(void **state)
{
    gw_tracking *t = gw_tracking_new();
    fact(t, "run:a/CREATED/", (pst_tracking_record){.timestamp = 1});
    fact(t, "run:a/METRIC/m", (pst_tracking_record){.number = 1, .step = 5, .timestamp = 10});
    fact(t, "run:a/METRIC/m", (pst_tracking_record){.number = 2, .step = 4, .timestamp = 99});
    assert_true(metric(t, "a", "m") == 1);
    fact(t, "run:a/METRIC/m", (pst_tracking_record){.number = 3, .step = 5, .timestamp = 11});
    assert_true(metric(t, "a", "m") == 3);
    fact(t, "run:a/METRIC/m", (pst_tracking_record){.number = NAN, .step = 6, .timestamp = 11});
    assert_true(isnan(metric(t, "a", "m")));
    fact(t, "run:a/METRIC/m", (pst_tracking_record){.number = -INFINITY, .step = 7});
    assert_true(metric(t, "a", "m") == -INFINITY);
    fact(t, "run:a/METRIC/m", (pst_tracking_record){.step = INT64_MAX, .timestamp = INT64_MIN, .points = INT64_MAX});
    assert_int_equal(gw_tracking_run(t, "a")->points, 0); /* a stranger's: nothing is counted on from there */
    gw_tracking_free(t);
}

/* The topic keeps a metric's last fact: it must say the newest point, whoever writes while that is not read back. */
static void test_points_on_their_way_count(void **state)
{
    gw_tracking *t = gw_tracking_new();
    fact(t, "run:a/CREATED/", (pst_tracking_record){.timestamp = 1});
    gw_run *r = gw_tracking_run(t, "a");
    int64_t step = 10, ms = 5;
    double value = 0.5;
    assert_true(gw_tracking_claim(r, "m", &step, &ms, &value));
    assert_true(gw_tracking_knows(r, "m"));
    assert_int_equal(gw_tracking_metrics(r), 1);
    assert_null(json_object_get(r->metrics, "m")); /* nobody is shown what is not written */
    step = 9, ms = 99, value = 7;
    assert_true(gw_tracking_claim(r, "m", &step, &ms, &value));
    assert_true(step == 10 && ms == 5 && value == 0.5);
    assert_true(gw_tracking_claim(r, "m", &step, &ms, &value)); /* the same again: its sender was not told that it arrived */
    fact(t, "run:a/METRIC/m", (pst_tracking_record){.number = 0.5, .step = 10, .timestamp = 5});
    assert_int_equal(json_object_size(r->sent), 0);
    assert_int_equal(gw_tracking_metrics(r), 1);
    step = 9;
    assert_false(gw_tracking_claim(r, "m", &step, &ms, &value));
    step = 11, value = NAN;
    assert_true(gw_tracking_claim(r, "m", &step, &ms, &value));
    assert_true(step == 11 && isnan(value));
    fact(t, "run:a/METRIC/m", (pst_tracking_record){.number = 0.5, .step = 10, .timestamp = 5});
    assert_int_equal(json_object_size(r->sent), 1);
    gw_tracking_free(t);
}

static void test_what_was_acknowledged_is_kept(void **state)
{
    gw_tracking *t = gw_tracking_new();
    fact(t, "run:a/CREATED/", (pst_tracking_record){.value = (char *)"ada\xff", .timestamp = 1});
    assert_string_equal(gw_tracking_run(t, "a")->user, ""); /* no answer could carry it */
    for (int i = 0; i < GW_MLFLOW_KEYS_MAX + 5; i++) {
        char key[64];
        snprintf(key, sizeof key, "run:a/METRIC/m%d", i);
        fact(t, key, (pst_tracking_record){.number = i});
    }
    assert_int_equal(json_object_size(gw_tracking_run(t, "a")->metrics), GW_MLFLOW_KEYS_MAX + 5);
    gw_tracking_free(t);
}

static pst_job_state job(const char *id, const char *name, pst_job_public_state s)
{
    return (pst_job_state){.training_id = (char *)id,
                           .name = (char *)name,
                           .user = (char *)"ada",
                           .state = s,
                           .queue = (char *)"default",
                           .framework = (char *)"custom",
                           .submitted_at = 5000000,
                           .has_ended_at = s == PST_JOB_PUBLIC_STATE_COMPLETED,
                           .ended_at = 9000000};
}

static void test_jobs_are_runs_of_the_experiment_of_their_name(void **state)
{
    gw_tracking *t = gw_tracking_new();
    char id[24];
    pst_job_state s = job("training-1", "fraud", PST_JOB_PUBLIC_STATE_QUEUED);
    gw_tracking_job(t, "training-1", &s);
    gw_tracking_experiment_id(t, "fraud", id);
    const gw_experiment *e = gw_tracking_experiment_named(t, "fraud");
    assert_non_null(e);
    assert_string_equal(e->id, id);
    assert_string_equal(gw_tracking_run(t, "training-1")->status, "SCHEDULED");
    s = job("training-1", "fraud", PST_JOB_PUBLIC_STATE_COMPLETED);
    gw_tracking_job(t, "training-1", &s);
    gw_tracking_job(t, "training-1", &s);
    assert_int_equal(e->jobs, 1);
    assert_string_equal(gw_tracking_run(t, "training-1")->status, "FINISHED");
    fact(t, "run:training-1/STATUS/", (pst_tracking_record){.value = (char *)"FAILED"}); /* nobody but the platform says so */
    assert_string_equal(gw_tracking_run(t, "training-1")->status, "FINISHED");
    pst_dbl_pair values[] = {{(char *)"loss", 0.5}};
    pst_metric_point p = {.training_id = (char *)"training-1",
                          .process = (char *)"learner-1",
                          .group = (char *)"validation",
                          .time = 7000,
                          .step = 3,
                          .has_step = true,
                          .values = values,
                          .n_values = 1};
    gw_tracking_point(t, &p);
    assert_true(metric(t, "training-1", "validation/loss") == 0.5);
    p.training_id = (char *)"training-unknown";
    gw_tracking_point(t, &p);
    assert_null(gw_tracking_run(t, "training-unknown"));
    gw_tracking_job(t, "training-1", NULL);
    assert_null(gw_tracking_run(t, "training-1"));
    assert_null(gw_tracking_experiment_named(t, "fraud"));
    gw_tracking_free(t);
}

static void test_a_name_that_was_given_away_gets_another_id(void **state)
{
    gw_tracking *t = gw_tracking_new();
    char one[24], two[24];
    gw_tracking_experiment_id(t, "a", one);
    char *key = pst_sprintf("experiment:%s/CREATED/", one), *name = pst_sprintf("experiment:%s/NAME/", one);
    fact(t, key, (pst_tracking_record){.value = (char *)"a"});
    gw_tracking_experiment_id(t, "a", two);
    assert_string_equal(one, two); /* who creates it at the same time creates the same */
    fact(t, name, (pst_tracking_record){.value = (char *)"b"});
    gw_tracking_experiment_id(t, "a", two);
    assert_string_not_equal(one, two);
    assert_null(gw_tracking_experiment_named(t, "a"));
    assert_non_null(gw_tracking_experiment_named(t, "b"));
    assert_non_null(gw_tracking_experiment(t, "0"));
    free(key);
    free(name);
    gw_tracking_free(t);
}

static void test_artifacts_are_listed_by_folders(void **state)
{
    gw_tracking *t = gw_tracking_new();
    static const char *const paths[] = {"1/r/artifacts/b", "1/r/artifacts/a/x", "1/r/artifacts/a/y", "1/r2/artifacts/z",
                                        "1/r/artifacts/ab"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char *key = pst_sprintf("artifacts/ARTIFACT/%s", paths[i]);
        fact(t, key, (pst_tracking_record){.value = (char *)"file:/o/k", .bytes = 3});
        free(key);
    }
    json_t *list = gw_mlflow_list_files(t, "1/r/artifacts", "");
    assert_int_equal(json_array_size(list), 3);
    assert_string_equal(pst_json_str(json_array_get(list, 0), "path", ""), "a");
    assert_true(pst_json_bool(json_array_get(list, 0), "is_dir", false));
    assert_string_equal(pst_json_str(json_array_get(list, 1), "path", ""), "ab");
    json_decref(list);
    list = gw_mlflow_list_files(t, "1/r/artifacts/a", "a/");
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(pst_json_str(json_array_get(list, 0), "path", ""), "a/x");
    json_decref(list);
    gw_tracking_fact(t, "artifacts/ARTIFACT/1/r/artifacts/b", NULL, 1);
    list = gw_mlflow_list_files(t, "1/r/artifacts", "");
    assert_int_equal(json_array_size(list), 2);
    json_decref(list);
    gw_tracking_free(t);
}

static void test_a_folder_is_listed_whole_or_not(void **state)
{
    gw_tracking *t = gw_tracking_new();
    for (int i = 0; i <= GW_MLFLOW_LISTED_MAX; i++) {
        json_t *list = i == GW_MLFLOW_LISTED_MAX ? gw_mlflow_list_files(t, "1/r/artifacts", "") : NULL;
        assert_int_equal(json_array_size(list), i == GW_MLFLOW_LISTED_MAX ? GW_MLFLOW_LISTED_MAX : 0);
        json_decref(list);
        char key[64];
        snprintf(key, sizeof key, "artifacts/ARTIFACT/1/r/artifacts/f%d", i);
        fact(t, key, (pst_tracking_record){.value = (char *)"file:/o/k", .bytes = 3});
    }
    assert_null(gw_mlflow_list_files(t, "1/r/artifacts", ""));
    gw_tracking_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_facts_come_in_any_order),
                                       cmocka_unit_test(test_newest_point_counts),
                                       cmocka_unit_test(test_points_on_their_way_count),
                                       cmocka_unit_test(test_what_was_acknowledged_is_kept),
                                       cmocka_unit_test(test_jobs_are_runs_of_the_experiment_of_their_name),
                                       cmocka_unit_test(test_a_name_that_was_given_away_gets_another_id),
                                       cmocka_unit_test(test_artifacts_are_listed_by_folders),
                                       cmocka_unit_test(test_a_folder_is_listed_whole_or_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
