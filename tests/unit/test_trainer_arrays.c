/* test_trainer_arrays.c - job arrays: which indices, tasks admitted lazily and as many at once as the array allows, what becomes of the array when they end,
 * what is asked of it, and a Trainer that comes in the middle. */
#include "schemas/avro.h"
#include "schemas/manifest.h"
#include "schemas/task_array.h"
#include "schemas/training_id.h"
#include "test.h"
#include "trainer/trainer_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000
static const trainer_policy policy = {.gpus = -1, .platform_retries = 3, .silent_us = 30 * SECOND, .operators = "bob"};

typedef struct bench {
    tcore *core;
    trainer_actions out;
    int64_t now;
    char id[64], manifest[300];
    size_t events, deploys; /* of the last step */
} bench;

static void feed(bench *b, trainer_in in)
{
    b->now += 1000;
    trainer_actions_clear(&b->out);
    tcore_step(b->core, &in, b->now, &b->out);
    b->events = b->deploys = 0;
    for (size_t i = 0; i < b->out.n; i++) {
        b->events += b->out.at[i].kind == PST_DO_EVENT;
        b->deploys += b->out.at[i].kind == PST_DO_COMMAND && b->out.at[i].command.command == PST_JOB_COMMAND_TYPE_DEPLOY;
    }
}

static void lcm(bench *b, double cpus)
{
    pst_worker_state w = {
        .kind = (char *)"lcm", .site = (char *)"local", .state = (char *)"running", .cpus = cpus, .memory_bytes = (int64_t)64 << 30};
    feed(b, (trainer_in){.kind = PST_TRAINER_WORKER, .worker = &w, .seen_us = b->now});
}

static bench start(double cpus)
{
    bench b = {.core = tcore_new(&policy), .now = 1700000000LL * SECOND};
    lcm(&b, cpus);
    return b;
}

static void done(bench *b)
{
    trainer_actions_done(&b->out);
    tcore_free(b->core);
}

static void submit_with(bench *b, const char *array, const char *own)
{
    snprintf(b->manifest, sizeof b->manifest,
             "name: one\ncpus: 1\nmemory: 256 MiB\nframework: {name: custom, version: 1, command: run}\npenstock: {array: \"%s\"%s}\n",
             array, own);
    pst_job_request r = {.request_id = (char *)"r1", .user = (char *)"ann", .manifest = b->manifest};
    pst_training_id("ann", "r1", b->id);
    feed(b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
}

static void submit(bench *b, const char *array)
{
    submit_with(b, array, "");
}

static const pst_job_state *array(const bench *b)
{
    return tcore_job(b->core, b->id);
}

static const pst_job_state *task(const bench *b, int index)
{
    char id[PST_TASK_ID_LEN];
    pst_task_id(b->id, index, id);
    return tcore_job(b->core, id);
}

static pst_job_public_state task_state(const bench *b, int index)
{
    return task(b, index) ? task(b, index)->state : PST_JOB_PUBLIC_STATE_UNKNOWN;
}

static void report(bench *b, int index, enum pst_report_type type, int exit_code)
{
    char id[PST_TASK_ID_LEN];
    pst_task_id(b->id, index, id);
    pst_process_report r = {.training_id = id,
                            .generation = task(b, index) ? task(b, index)->generation : 1,
                            .process = (char *)"learner-1",
                            .type = type,
                            .time = b->now,
                            .reporter = (char *)"supervisor:h",
                            .host = (char *)"h",
                            .has_exit_code = type == PST_REPORT_TYPE_EXITED,
                            .exit_code = exit_code};
    feed(b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
}

static void ends(bench *b, int index, int exit_code)
{
    report(b, index, PST_REPORT_TYPE_EXITED, exit_code);
}

static void ask_of(bench *b, const char *user, const char *request_id, pst_job_action action, const char *id)
{
    pst_str_pair options[] = {{(char *)"priority", (char *)"5"}};
    pst_job_request r = {.request_id = (char *)request_id,
                         .user = (char *)user,
                         .action = action,
                         .training_id = (char *)id,
                         .options = options,
                         .n_options = action == PST_JOB_ACTION_REPRIORITISE};
    feed(b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
}

static void ask(bench *b, const char *request_id, pst_job_action action)
{
    ask_of(b, "ann", request_id, action, b->id);
}

static void load_one(void *arg, const pst_job_state *s, bool queued, bool charged)
{
    tcore_load(arg, s);
}

/* Another Trainer, that has read what this one published: it must be the same. */
static void restart(bench *b, double cpus)
{
    tcore *next = tcore_new(&policy);
    tcore_each(b->core, load_one, next);
    tcore_loaded(next);
    assert_true(tcore_equal(b->core, next));
    tcore_free(b->core);
    b->core = next;
    lcm(b, cpus);
}

/* ---- indices --------------------------------------------------------------------------------------------------------------------- */

static const char *indices(const char *text)
{
    static char out[600];
    pst_task_array a;
    pst_err err = {0};
    *out = '\0';
    if (pst_task_array_parse(text, &a, &err) < 0)
        return strcpy(out, err.text[0] ? "refused" : "?");
    for (size_t i = 0; i < a.n && i < 30; i++)
        sprintf(out + strlen(out), "%s%d", i ? " " : "", a.at[i]);
    if (a.limit)
        sprintf(out + strlen(out), " of %d", a.limit);
    pst_task_array_done(&a);
    return out;
}

static void test_arrays_indices_are_slurms(void **state)
{
    assert_string_equal(indices("0-3"), "0 1 2 3");
    assert_string_equal(indices("0-9:3"), "0 3 6 9");
    assert_string_equal(indices("1,4,7"), "1 4 7");
    assert_string_equal(indices("7,1-3,2%2"), "1 2 3 7 of 2");
    assert_string_equal(indices("5"), "5");
    assert_string_equal(indices("999999"), "999999");
    const char *const bad[] = {"",    "a",       "-1",       "1-",   "3-1", "0-9:0",   "0-9:",          "1,",
                               ",1",  "0-3%",    "0-3%0",    "0-3 ", " 0",  "1000000", "0-99999999999", "0-3%2%2",
                               "1:2", "0-10000", "0-999999", "0x10", "1;rm"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (strcmp(indices(bad[i]), "refused"))
            fail_msg("\"%s\" is taken: %s", bad[i], indices(bad[i]));
}

static void test_arrays_ids_of_tasks_tell_their_index(void **state)
{
    char id[64], of_task[PST_TASK_ID_LEN];
    pst_training_id("ann", "r1", id);
    pst_task_id(id, 42, of_task);
    assert_int_equal(pst_task_index(of_task), 42);
    assert_int_equal(pst_task_index(id), -1);
    assert_int_equal(pst_task_index("training-a-b"), -1);
    assert_int_equal(pst_task_index(""), -1);
}

static void test_arrays_too_much_of_a_manifest_is_refused(void **state)
{
    pst_buf b = {0};
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    pst_buf_adds(&b, "name: n\nframework: {name: custom, version: 1, command: run}\npenstock: {array: 0-9999}\n#");
    for (int i = 0; i < 1000; i++)
        pst_buf_adds(&b, "0123456789");
    assert_int_equal(pst_manifest_parse(b.data, b.len, &m, &errors, &warnings), PST_EINVAL);
    assert_string_equal(errors.at[0].field, "penstock.array");
    assert_non_null(strstr(errors.at[0].text, "64 MiB are allowed"));
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    pst_buf_done(&b);
}

/* ---- a life ---------------------------------------------------------------------------------------------------------------------- */

static void test_arrays_tasks_are_admitted_lazily_and_in_order(void **state)
{
    bench b = start(4);
    submit(&b, "0-99");
    assert_int_equal(b.deploys, 4);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_PROCESSING);
    assert_int_equal(array(&b)->array->running, 4);
    assert_int_equal(array(&b)->array->waiting, 16);
    assert_int_equal(array(&b)->array->admitted, 20);
    assert_null(task(&b, 20)); /* not yet */
    for (int i = 0; i < 4; i++)
        assert_int_equal(task_state(&b, i), PST_JOB_PUBLIC_STATE_PENDING);
    assert_int_equal(task_state(&b, 4), PST_JOB_PUBLIC_STATE_QUEUED);
    assert_string_equal(task(&b, 7)->array_of, b.id);
    assert_int_equal(task(&b, 7)->array_index, 7);
    assert_string_equal(task(&b, 7)->request_id, "r1");
    for (int i = 0; i < 100; i++) {
        ends(&b, i, 0);
        assert_int_equal(b.deploys, i < 96);
        if (i == 50)
            restart(&b, 4);
    }
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_COMPLETED);
    assert_string_equal(array(&b)->reason, "all 100 tasks are COMPLETED");
    assert_int_equal(array(&b)->array->completed, 100);
    ends(&b, 3, 0); /* told again */
    assert_int_equal(array(&b)->array->completed, 100);
    done(&b);
}

static void test_arrays_no_more_at_once_than_it_says(void **state)
{
    bench b = start(16);
    submit(&b, "1,4,7,10%2");
    assert_int_equal(b.deploys, 2);
    assert_int_equal(array(&b)->array->admitted, 2);
    ends(&b, 4, 0);
    assert_int_equal(task_state(&b, 7), PST_JOB_PUBLIC_STATE_PENDING);
    assert_int_equal(task_state(&b, 10), PST_JOB_PUBLIC_STATE_UNKNOWN);
    done(&b);
}

/* They all wait in the queue at once; no more run for that. */
static void test_arrays_resumed_runs_no_more_at_once_than_it_says(void **state)
{
    bench b = start(16);
    submit(&b, "0-5%2");
    for (int i = 0; i < 6; i++)
        ends(&b, i, 1);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_FAILED);
    ask(&b, "go", PST_JOB_ACTION_RESUME);
    assert_int_equal(array(&b)->array->running, 2);
    for (int i = 0; i < 6; i++) {
        assert_true(array(&b)->array->running <= 2);
        ends(&b, i, 0);
    }
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_COMPLETED);
    done(&b);
}

static void test_arrays_a_failed_task_is_no_matter_of_the_others(void **state)
{
    bench b = start(2);
    submit(&b, "0-3");
    ends(&b, 0, 1);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_PROCESSING);
    assert_null(array(&b)->reason_code);
    assert_non_null(strstr(array(&b)->reason, "1 of 4 tasks have ended (1 FAILED)"));
    for (int i = 1; i < 4; i++)
        ends(&b, i, i == 2);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_FAILED);
    assert_string_equal(array(&b)->reason_code, "TASKS_FAILED");
    assert_string_equal(array(&b)->reason, "2 of 4 tasks are FAILED: index 0, 2");
    ask(&b, "go", PST_JOB_ACTION_RESUME); /* those alone */
    assert_int_equal(b.deploys, 2);
    restart(&b, 2);
    ends(&b, 0, 0);
    ends(&b, 2, 0);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_COMPLETED);
    assert_int_equal(task(&b, 1)->generation, 1);
    assert_int_equal(task(&b, 2)->generation, 2);
    done(&b);
}

static void test_arrays_one_task_resumed_takes_its_array_along(void **state)
{
    bench b = start(2);
    char id[PST_TASK_ID_LEN];
    submit(&b, "0-1");
    ends(&b, 0, 0);
    ends(&b, 1, 3);
    pst_task_id(b.id, 1, id);
    ask_of(&b, "ann", "go", PST_JOB_ACTION_RESUME, id);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_PROCESSING);
    ends(&b, 1, 0);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_COMPLETED);
    done(&b);
}

/* ---- what is asked of it --------------------------------------------------------------------------------------------------------- */

static void test_arrays_terminate_reaches_every_task(void **state)
{
    bench b = start(2);
    submit(&b, "0-99");
    ask_of(&b, "mallory", "m1", PST_JOB_ACTION_TERMINATE, b.id);
    assert_int_equal(array(&b)->array->terminated, 0);
    ask(&b, "t1", PST_JOB_ACTION_TERMINATE);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_PROCESSING); /* two run still */
    assert_int_equal(array(&b)->array->terminated, 16);
    restart(&b, 2);
    ends(&b, 0, 143);
    assert_int_equal(task_state(&b, 0), PST_JOB_PUBLIC_STATE_TERMINATED);
    assert_null(task(&b, 18)); /* nothing new is admitted */
    ends(&b, 1, 143);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_TERMINATED);
    ask(&b, "d1", PST_JOB_ACTION_DELETE);
    assert_null(array(&b));
    for (int i = 0; i < 18; i++)
        assert_null(task(&b, i));
    done(&b);
}

static void test_arrays_delete_while_tasks_run(void **state)
{
    bench b = start(2);
    submit(&b, "0-9");
    ends(&b, 0, 0);
    ask(&b, "d1", PST_JOB_ACTION_DELETE);
    assert_null(task(&b, 0));
    assert_null(task(&b, 5));
    assert_non_null(task(&b, 1)); /* until its process has ended */
    ends(&b, 1, 143);
    assert_non_null(array(&b));
    ends(&b, 2, 143);
    assert_null(array(&b));
    assert_null(task(&b, 1));
    done(&b);
}

static void test_arrays_halt_and_resume_go_on_where_it_stood(void **state)
{
    bench b = start(2);
    submit(&b, "0-29");
    ends(&b, 0, 0);
    ask(&b, "h1", PST_JOB_ACTION_HALT);
    ends(&b, 1, 143);
    ends(&b, 2, 143);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_HALTED);
    assert_int_equal(array(&b)->array->completed, 1);
    restart(&b, 2);
    assert_int_equal(array(&b)->array->running, 0);
    ask(&b, "g1", PST_JOB_ACTION_RESUME);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_PROCESSING);
    for (int i = 1; i < 30; i++)
        ends(&b, i, 0);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_COMPLETED);
    assert_int_equal(array(&b)->array->completed, 30);
    done(&b);
}

static void test_arrays_terminated_while_halted_takes_its_tasks_along(void **state)
{
    bench b = start(1);
    submit(&b, "0-1");
    ask(&b, "h1", PST_JOB_ACTION_HALT);
    ends(&b, 0, 143);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_HALTED);
    ask(&b, "t1", PST_JOB_ACTION_TERMINATE);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_TERMINATED);
    assert_int_equal(task_state(&b, 0), PST_JOB_PUBLIC_STATE_TERMINATED);
    done(&b);
}

static void test_arrays_wait_held_without_any_task(void **state)
{
    bench b = start(4);
    submit_with(&b, "0-9", ", hold: true");
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    assert_null(task(&b, 0));
    ask(&b, "p1", PST_JOB_ACTION_REPRIORITISE);
    ask(&b, "r1", PST_JOB_ACTION_RELEASE);
    assert_int_equal(b.deploys, 4);
    assert_int_equal(task(&b, 0)->priority, 5);
    assert_null(task(&b, 0)->held_by);
    done(&b);
}

static void test_arrays_that_can_never_run_say_so(void **state)
{
    bench b = start(0.5);
    submit(&b, "0-9");
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_REJECTED);
    done(&b);
}

/* As of a single job: those that can be resumed come back with it. */
static void test_arrays_reprioritise_reaches_what_can_be_resumed(void **state)
{
    bench b = start(4);
    char id[PST_TASK_ID_LEN];
    submit(&b, "0-3");
    ends(&b, 0, 0);
    ends(&b, 1, 3);
    pst_task_id(b.id, 2, id);
    ask_of(&b, "ann", "h2", PST_JOB_ACTION_HALT, id);
    ends(&b, 2, 143);
    ask(&b, "p1", PST_JOB_ACTION_REPRIORITISE);
    assert_int_equal(task_state(&b, 1), PST_JOB_PUBLIC_STATE_FAILED);
    assert_int_equal(task_state(&b, 2), PST_JOB_PUBLIC_STATE_HALTED);
    assert_int_equal(task(&b, 0)->priority, 0);
    for (int i = 1; i < 4; i++)
        assert_int_equal(task(&b, i)->priority, 5);
    done(&b);
}

/* Whoever may write reports says something of an array that lives: no generation of it is on any node, and it has no nonce that could be checked. */
static void test_arrays_no_report_is_about_one(void **state)
{
    bench b = start(2);
    static const enum pst_report_type types[] = {PST_REPORT_TYPE_EXITED,     PST_REPORT_TYPE_LOST,          PST_REPORT_TYPE_DEPLOY_FAILED,
                                                 PST_REPORT_TYPE_CHECKPOINT, PST_REPORT_TYPE_RESULT_STORED, PST_REPORT_TYPE_OTHER,
                                                 PST_REPORT_TYPE_REACHABLE};
    submit(&b, "0-9");
    int64_t seq = array(&b)->seq;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        pst_produced_model m = {(char *)"planted", 1, (char *)"d"};
        pst_process_report r = {.training_id = b.id,
                                .process = (char *)"learner-1",
                                .type = types[i],
                                .time = b.now,
                                .reporter = (char *)"mallory",
                                .reason = (char *)"planted",
                                .model = types[i] == PST_REPORT_TYPE_RESULT_STORED ? &m : NULL};
        feed(&b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
        assert_int_equal(b.events, 0);
    }
    assert_int_equal(array(&b)->seq, seq);
    assert_null(array(&b)->model);
    assert_string_equal(array(&b)->checkpoint_node, "");
    done(&b);
}

/* Of another version, or damaged: what cannot be read was not done. */
static void test_arrays_whose_indices_cannot_be_read_are_not_completed(void **state)
{
    bench b = start(4);
    pst_job_state s;
    submit_with(&b, "0-9", ", hold: true");
    pst_event_copy(&pst_job_state_type, array(&b), &s);
    free(s.array->indices);
    s.array->indices = strdup("first to last");
    tcore *next = tcore_new(&policy);
    tcore_load(next, &s);
    tcore_loaded(next);
    tcore_free(b.core);
    b.core = next;
    pst_event_clear(&pst_job_state_type, &s);
    lcm(&b, 4);
    ask(&b, "r1", PST_JOB_ACTION_RELEASE);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_FAILED);
    assert_string_equal(array(&b)->reason_code, "TASKS_MISSING");
    done(&b);
}

/* A request of a task that is not there must not lie in wait for it. */
static void test_arrays_a_task_that_is_not_admitted_is_unknown_at_once(void **state)
{
    bench b = start(1);
    char id[PST_TASK_ID_LEN], array_id[64];
    pst_training_id("ann", "r1", array_id);
    pst_task_id(array_id, 1, id);
    ask_of(&b, "ann", "h0", PST_JOB_ACTION_TERMINATE, id); /* before its array */
    assert_int_equal(b.events, 1);
    submit(&b, "0-99");
    pst_task_id(array_id, 50, id);
    ask_of(&b, "ann", "h1", PST_JOB_ACTION_TERMINATE, id);
    assert_int_equal(b.events, 1);
    assert_string_equal(b.out.at[0].event.reason_code, "UNKNOWN_JOB");
    b.now += 60 * (int64_t)SECOND;
    feed(&b, (trainer_in){.kind = PST_TRAINER_TICK, .caught_up = true});
    lcm(&b, 1);
    for (int i = 0; i < 100; i++)
        ends(&b, i, 0);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_COMPLETED);
    done(&b);
}

static void test_arrays_a_deleted_task_is_not_missed(void **state)
{
    bench b = start(1);
    char id[PST_TASK_ID_LEN];
    submit(&b, "0-2");
    ends(&b, 0, 9);
    pst_task_id(b.id, 0, id);
    ask_of(&b, "ann", "d0", PST_JOB_ACTION_DELETE, id);
    pst_task_id(b.id, 2, id);
    ask_of(&b, "ann", "d2", PST_JOB_ACTION_DELETE, id); /* it waits */
    ends(&b, 1, 0);
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_FAILED);
    ask(&b, "g1", PST_JOB_ACTION_RESUME); /* nothing is left that could be */
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_FAILED);
    assert_int_equal(array(&b)->array->terminated, 1);
    done(&b);
}

/* Every task of a large array ends once, whatever restarts in between. */
static void test_arrays_of_ten_thousand(void **state)
{
    bench b = start(64);
    submit(&b, "0-9999");
    for (int i = 0; i < 10000; i++) {
        ends(&b, i, i % 1000 == 999);
        if (i % 4000 == 1)
            restart(&b, 64);
    }
    assert_int_equal(array(&b)->state, PST_JOB_PUBLIC_STATE_FAILED);
    assert_int_equal(array(&b)->array->completed, 9990);
    assert_int_equal(array(&b)->array->failed, 10);
    ask(&b, "d1", PST_JOB_ACTION_DELETE);
    assert_null(array(&b));
    assert_int_equal(tcore_jobs(b.core, PST_JOB_PUBLIC_STATE_COMPLETED), 0);
    done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrays_indices_are_slurms),
        cmocka_unit_test(test_arrays_ids_of_tasks_tell_their_index),
        cmocka_unit_test(test_arrays_too_much_of_a_manifest_is_refused),
        cmocka_unit_test(test_arrays_tasks_are_admitted_lazily_and_in_order),
        cmocka_unit_test(test_arrays_no_more_at_once_than_it_says),
        cmocka_unit_test(test_arrays_resumed_runs_no_more_at_once_than_it_says),
        cmocka_unit_test(test_arrays_a_failed_task_is_no_matter_of_the_others),
        cmocka_unit_test(test_arrays_one_task_resumed_takes_its_array_along),
        cmocka_unit_test(test_arrays_terminate_reaches_every_task),
        cmocka_unit_test(test_arrays_delete_while_tasks_run),
        cmocka_unit_test(test_arrays_halt_and_resume_go_on_where_it_stood),
        cmocka_unit_test(test_arrays_terminated_while_halted_takes_its_tasks_along),
        cmocka_unit_test(test_arrays_wait_held_without_any_task),
        cmocka_unit_test(test_arrays_that_can_never_run_say_so),
        cmocka_unit_test(test_arrays_reprioritise_reaches_what_can_be_resumed),
        cmocka_unit_test(test_arrays_no_report_is_about_one),
        cmocka_unit_test(test_arrays_whose_indices_cannot_be_read_are_not_completed),
        cmocka_unit_test(test_arrays_a_task_that_is_not_admitted_is_unknown_at_once),
        cmocka_unit_test(test_arrays_a_deleted_task_is_not_missed),
        cmocka_unit_test(test_arrays_of_ten_thousand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
