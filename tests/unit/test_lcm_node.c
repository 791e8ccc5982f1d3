/* test_lcm_node.c - what makes an LCM a node: its id, the nonces of its generations, what it does about a generation that it does not have, what
 * ended generations cost and how long their folders stay. */
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "lcm/lcm_core.h"
#include "lcm/node_id.h"
#include "lcm/retention.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define NONCE "0123456789abcdef0123456789abcdef"
enum { MANY = 20000 };

static lcm_actions step(lcm_core *l, lcm_event e)
{
    lcm_actions a = {0};
    lcm_step(l, &e, &a);
    return a;
}

static void quiet(lcm_core *l, lcm_event e)
{
    lcm_actions a = step(l, e);
    lcm_actions_done(&a);
}

static lcm_event command(pst_lcm_command_kind kind, const char *id, int generation, const char *nonce)
{
    lcm_event e = {.type = PST_LCM_COMMAND,
                   .id = pst_process_id_of(id, generation, NULL),
                   .command = {.kind = kind, .sets = {{"learner", 1, 1, 0, 0}}, .n_sets = 1, .grace_ms = 1000}};
    snprintf(e.command.nonce, sizeof e.command.nonce, "%s", nonce);
    return e;
}

static const lcm_action *report_in(const lcm_actions *a, lcm_report_type report)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->at[i].type == PST_LCM_REPORT && a->at[i].report == report)
            return &a->at[i];
    fail_msg("no report %d among %zu actions", report, a->n);
    return NULL;
}

static void test_node_reports_repeat_the_nonce_of_their_generation(void **unused)
{
    lcm_core *l = lcm_new(0);
    pst_rundir_exit x = {.has_exit_code = true};
    quiet(l, (lcm_event){.type = PST_LCM_RECOVERED});
    quiet(l, command(PST_LCM_DEPLOY, "a", 1, NONCE));
    lcm_actions a = step(l, (lcm_event){.type = PST_LCM_INTENDED, .id = {.training_id = "a", .generation = 1}});
    assert_string_equal(report_in(&a, PST_LCM_REPORT_DEPLOYING)->nonce, NONCE);
    lcm_actions_done(&a);
    quiet(l, command(PST_LCM_DEPLOY, "a", 1, "another")); /* a second DEPLOY of it changes nothing */
    quiet(l, (lcm_event){.type = PST_LCM_NOTICED,
                         .id = pst_process_id_of("a", 1, "learner-1"),
                         .seen = PST_LCM_SEEN_ENDED,
                         .exit = &x,
                         .published = true});
    a = step(l, command(PST_LCM_CHECK, "a", 1, "question")); /* it is here: what has ended is told again, by its own nonce */
    assert_string_equal(report_in(&a, PST_LCM_REPORT_EXITED)->nonce, NONCE);
    lcm_actions_done(&a);
    lcm_free(l);
}

static void test_node_answers_for_what_it_does_not_have_with_the_questions_nonce(void **unused)
{
    lcm_core *l = lcm_new(0);
    quiet(l, (lcm_event){.type = PST_LCM_RECOVERED});
    const pst_lcm_command_kind kinds[] = {PST_LCM_CHECK, PST_LCM_KILL, PST_LCM_HALT};
    for (size_t i = 0; i < 3; i++) {
        lcm_actions a = step(l, command(kinds[i], "gone", 3, "question"));
        assert_int_equal(a.n, 1);
        assert_string_equal(report_in(&a, PST_LCM_REPORT_LOST)->nonce, "question");
        lcm_actions_done(&a);
    }
    lcm_actions a = step(l, (lcm_event){.type = PST_LCM_EXPECTED, .id = {.training_id = "gone", .generation = 3}});
    assert_string_equal(report_in(&a, PST_LCM_REPORT_LOST)->nonce, ""); /* said without proof: the Trainer will ask */
    lcm_actions_done(&a);
    lcm_free(l);
}

static void count_one(void *arg, const char *training_id, int generation)
{
    ++*(int *)arg;
}

static void test_node_ended_jobs_cost_nothing(void **unused)
{
    lcm_core *l = lcm_new(0);
    pst_rundir_exit x = {.has_exit_code = true};
    char id[32];
    for (int i = 0; i < MANY; i++) {
        snprintf(id, sizeof id, "job-%d", i);
        lcm_event found = command(PST_LCM_DEPLOY, id, 1, "");
        found.type = PST_LCM_FOUND_GANG;
        quiet(l, found);
        quiet(l, (lcm_event){.type = PST_LCM_FOUND_PROCESS,
                             .id = pst_process_id_of(id, 1, "learner-1"),
                             .seen = i % 5000 ? PST_LCM_SEEN_ENDED : PST_LCM_SEEN_ALIVE,
                             .exit = &x,
                             .published = true});
    }
    quiet(l, (lcm_event){.type = PST_LCM_RECOVERED});
    int living = 0, counts[3];
    lcm_each_living(l, count_one, &living);
    lcm_counts(l, counts);
    assert_int_equal(living, MANY / 5000);
    assert_int_equal(counts[1], MANY / 5000);
    assert_int_equal(counts[0], MANY);
    assert_true(lcm_is_busy(l, "job-5000"));
    assert_false(lcm_is_busy(l, "job-5001"));
    int64_t begun = pst_mono_us();
    for (int i = 0; i < 10000; i++)
        quiet(l, (lcm_event){.type = PST_LCM_TICK, .now_us = i});
    int64_t each_ns = (pst_mono_us() - begun) / 10;
    assert_true(each_ns < 50000); /* 20,000 jobs one by one take some 500 µs */
    lcm_forget(l, "job-5000", 1); /* lives: stays */
    lcm_forget(l, "job-5001", 1);
    lcm_forget(l, "job-5002", 2); /* another generation than the one that is gone */
    lcm_counts(l, counts);
    assert_int_equal(counts[0], MANY - 1);
    lcm_free(l);
}

/* ---- on disk ----------------------------------------------------------------------------------------------------------------- */

static char *folder(void)
{
    char *dir = strdup("/tmp/penstock-node-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return dir;
}

static void test_node_id_stays_with_its_folder(void **unused)
{
    char *one = folder(), *two = folder();
    lcm_node_id a, b, c;
    assert_int_equal(lcm_node_id_open(one, "local", NULL, &a, NULL), 0);
    assert_int_equal(lcm_node_id_open(two, "local", NULL, &b, NULL), 0);
    assert_string_not_equal(a.name, b.name);
    assert_int_equal(a.epoch, 1);
    assert_int_equal(lcm_node_id_drain(&a, true, NULL), 0);
    assert_int_equal(lcm_node_id_open(one, "local", NULL, &c, NULL), 0);
    assert_string_equal(a.name, c.name);
    assert_int_equal(c.epoch, 2);
    assert_true(c.draining);
    lcm_node_id_done(&c);
    pst_err err = {0};
    assert_int_equal(lcm_node_id_open(one, "local", "other", &c, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, a.name));
    assert_int_equal(lcm_node_id_open(one, "far", "mine", &c, NULL), 0); /* another site: another node */
    assert_string_equal(c.name, "mine");
    lcm_node_id_done(&a);
    lcm_node_id_done(&b);
    lcm_node_id_done(&c);
    pst_fs_remove_tree(one, NULL);
    pst_fs_remove_tree(two, NULL);
    free(one);
    free(two);
}

static void make_ended(const char *dir, const char *id, int generation, const char *site, int days_old, int kib)
{
    pst_process_id learner = pst_process_id_of(id, generation, "learner-1");
    char *gen = pst_rundir_gen_dir(dir, id, generation), *run = pst_rundir_dir(dir, &learner);
    char *job = pst_rundir_job_dir(dir, id), *results = pst_fs_join(job, "results"), *checkpoints = pst_fs_join(job, "checkpoints");
    char *data = pst_fs_join(run, "data"), *bytes = calloc(1, (size_t)kib * 1024 + 1);
    struct timespec then[2] = {{.tv_sec = time(NULL) - days_old * 86400}, {.tv_sec = time(NULL) - days_old * 86400}};
    pst_rundir_spec spec = {.training_id = (char *)id,
                            .generation = generation,
                            .site = (char *)site,
                            .state_dir = (char *)dir,
                            .manifest = (char *)"x",
                            .learners = 1};
    pst_fs_mkdirs(run, 0700, NULL);
    pst_fs_mkdirs(results, 0700, NULL);
    pst_fs_mkdirs(checkpoints, 0700, NULL);
    assert_int_equal(pst_rundir_intent_write(gen, &spec, NULL), 0);
    assert_int_equal(pst_rundir_nonce_write(dir, id, generation, NONCE, NULL), 0);
    assert_int_equal(pst_fs_write_atomic(data, bytes, (size_t)kib * 1024, 0600, NULL), 0);
    char *all[] = {run, gen};
    for (int i = 0; i < 2; i++)
        utimensat(AT_FDCWD, all[i], then, 0);
    char *intent = pst_fs_join(gen, "intent.json");
    utimensat(AT_FDCWD, intent, then, 0);
    utimensat(AT_FDCWD, gen, then, 0);
    free(intent), free(bytes), free(data), free(checkpoints), free(results), free(job), free(run), free(gen);
}

static bool is_there(const char *dir, const char *path)
{
    char *full = pst_fs_join(dir, path);
    bool there = pst_fs_exists(full);
    free(full);
    return there;
}

static bool needed(void *arg, const char *training_id, int generation)
{
    return !strcmp(training_id, "lives");
}

static void swept(void *arg, const char *training_id, int generation)
{
    ++*(int *)arg;
}

static void pass(const lcm_retention_conf *conf)
{
    lcm_retention *r = lcm_retention_new(conf);
    for (int i = 0; i < 100; i++)
        lcm_retention_step(r, 1, pst_now_us());
    lcm_retention_free(r);
}

static void test_retention_removes_what_is_old_and_never_results(void **unused)
{
    char *dir = folder();
    int n = 0;
    make_ended(dir, "old", 1, "local", 8, 1);
    make_ended(dir, "old", 2, "local", 8, 1);
    make_ended(dir, "new", 1, "local", 6, 1);
    make_ended(dir, "lives", 1, "local", 80, 1);
    make_ended(dir, "other", 1, "far", 80, 1);
    make_ended(dir, "result", 1, "local", 80, 1);
    char *result = pst_fs_join(dir, "jobs/result/results/model.onnx");
    pst_fs_write_atomic(result, "m", 1, 0600, NULL);
    lcm_retention_conf conf = {
        .state_dir = dir, .site = "local", .keep_us = 7 * 86400000000ll, .every_us = 1000000, .needed = needed, .swept = swept, .arg = &n};
    pass(&conf);
    assert_int_equal(n, 3);
    assert_false(is_there(dir, "jobs/old"));
    assert_false(is_there(dir, "nonces/old.1"));
    assert_true(is_there(dir, "jobs/new/gen-1/learner-1/data"));
    assert_true(is_there(dir, "jobs/lives/gen-1/intent.json"));
    assert_true(is_there(dir, "jobs/other/gen-1"));
    assert_true(is_there(dir, "jobs/result/results/model.onnx"));
    assert_false(is_there(dir, "jobs/result/gen-1"));
    assert_false(is_there(dir, "jobs/result/checkpoints")); /* was empty */
    conf.keep_us = 0;
    pass(&conf); /* for ever */
    assert_int_equal(n, 3);
    free(result);
    pst_fs_remove_tree(dir, NULL);
    free(dir);
}

static void test_retention_by_size_takes_the_oldest_first(void **unused)
{
    char *dir = folder();
    int n = 0;
    make_ended(dir, "a", 1, "local", 3, 200);
    make_ended(dir, "b", 1, "local", 1, 200);
    make_ended(dir, "c", 1, "local", 2, 200);
    make_ended(dir, "lives", 1, "local", 80, 400);
    lcm_retention_conf conf = {
        .state_dir = dir, .site = "local", .bytes_max = 300 * 1024, .every_us = 1000000, .needed = needed, .swept = swept, .arg = &n};
    pass(&conf);
    assert_int_equal(n, 2);
    assert_false(is_there(dir, "jobs/a"));
    assert_false(is_there(dir, "jobs/c"));
    assert_true(is_there(dir, "jobs/b/gen-1/learner-1/data"));
    assert_true(is_there(dir, "jobs/lives/gen-1/learner-1/data"));
    pst_fs_remove_tree(dir, NULL);
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_node_reports_repeat_the_nonce_of_their_generation),
                                       cmocka_unit_test(test_node_answers_for_what_it_does_not_have_with_the_questions_nonce),
                                       cmocka_unit_test(test_node_ended_jobs_cost_nothing),
                                       cmocka_unit_test(test_node_id_stays_with_its_folder),
                                       cmocka_unit_test(test_retention_removes_what_is_old_and_never_results),
                                       cmocka_unit_test(test_retention_by_size_takes_the_oldest_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
