/* test_trainer_core.c - the Trainer's decisions one by one: what a request or a report leads to, and how it is said. */
#include "common/client/client.h"
#include "trainer/job_fsm.h"
#include "trainer/trainer_core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND 1000000
static const char simple[] = "name: one\ncpus: 1\nmemory: 256 MiB\nframework: {name: custom, version: 1, command: run}\n";

typedef struct bench {
    pst_trainer_core *core;
    pst_actions out;
    int64_t now;
} bench;

static bench start(void)
{
    pst_trainer_policy policy = PST_TRAINER_POLICY_DEFAULT;
    return (bench){.core = pst_trainer_core_new(&policy), .now = 1700000000LL * SECOND};
}

static void done(bench *b)
{
    pst_actions_done(&b->out);
    pst_trainer_core_free(b->core);
}

/* Each step shows its own actions only. */
static void feed(bench *b, pst_trainer_in in)
{
    b->now += 1000;
    pst_actions_clear(&b->out);
    pst_trainer_core_step(b->core, &in, b->now, &b->out);
}

static void lcm(bench *b, const char *state, double cpus)
{
    pst_worker_state w = {
        .kind = (char *)"lcm", .site = (char *)"local", .state = (char *)state, .cpus = cpus, .memory_bytes = (int64_t)8 << 30, .gpus = 1};
    feed(b, (pst_trainer_in){.kind = PST_TRAINER_WORKER, .worker = &w, .seen_us = b->now});
}

static const char *submit_as(bench *b, const char *request_id, const char *manifest, pst_job_code *code, const char *stored_sha256)
{
    static char id[64];
    pst_job_request r = {.request_id = (char *)request_id,
                         .user = (char *)"ann",
                         .action = PST_JOB_ACTION_SUBMIT,
                         .manifest = (char *)manifest,
                         .code = code};
    feed(b, (pst_trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r, .code_uri = "file:/objects/code/x", .code_sha256 = stored_sha256});
    pst_training_id("ann", request_id, id);
    return id;
}

static const char *submit(bench *b, const char *request_id, const char *manifest)
{
    return submit_as(b, request_id, manifest, NULL, NULL);
}

static void ask(bench *b, const char *request_id, pst_job_action action, const char *id)
{
    pst_str_pair options[] = {{(char *)"priority", (char *)"9"}};
    pst_job_request r = {.request_id = (char *)request_id,
                         .user = (char *)"bob",
                         .action = action,
                         .training_id = (char *)id,
                         .options = options,
                         .n_options = action == PST_JOB_ACTION_REPRIORITISE};
    feed(b, (pst_trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
}

static void told(bench *b, const char *id, int generation, const char *process, pst_report_type type, int exit_code, const char *code)
{
    pst_process_report r = {.training_id = (char *)id,
                            .generation = generation,
                            .process = (char *)process,
                            .type = type,
                            .time = b->now,
                            .reporter = (char *)"supervisor:h",
                            .host = (char *)"h",
                            .has_exit_code = type == PST_REPORT_TYPE_EXITED,
                            .exit_code = exit_code,
                            .reason_code = (char *)code};
    feed(b, (pst_trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
}

/* "RECEIVED ADMITTED | DEPLOY": events, then commands, then +STATE and +TOMBSTONE marks. */
static const char *shown(const bench *b)
{
    static char text[600];
    char commands[200] = "", marks[100] = "";
    *text = '\0';
    for (size_t i = 0; i < b->out.n; i++) {
        const pst_action *a = &b->out.at[i];
        if (a->kind == PST_DO_EVENT)
            sprintf(text + strlen(text), "%s%s", *text ? " " : "", pst_job_event_type_text(a->event.type));
        else if (a->kind == PST_DO_COMMAND)
            sprintf(commands + strlen(commands), " %s", pst_job_command_type_text(a->command.command));
        else if (a->kind == PST_DO_TOMBSTONE)
            strcat(marks, " tombstone");
    }
    if (*commands)
        sprintf(text + strlen(text), " |%s", commands);
    strcat(text, marks);
    return text;
}

static const pst_job_event *event(const bench *b, enum pst_job_event_type type)
{
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.at[i].kind == PST_DO_EVENT && b->out.at[i].event.type == type)
            return &b->out.at[i].event;
    fail_msg("no %s among: %s", pst_job_event_type_text(type), shown(b));
    return NULL;
}

static pst_job_public_state state(const bench *b, const char *id)
{
    const pst_job_state *s = pst_trainer_core_job(b->core, id);
    return s ? s->state : PST_JOB_PUBLIC_STATE_UNKNOWN;
}

static void test_core_good_job_goes_through_all_states(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    const char *id = submit(&b, "r1", simple);
    assert_string_equal(shown(&b), "RECEIVED ADMITTED QUEUED DEPLOYING | DEPLOY");
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_RECEIVED)->request_id, "r1");
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_RECEIVED)->actor, "user:ann");
    assert_int_equal(event(&b, PST_JOB_EVENT_TYPE_DEPLOYING)->seq, 4);
    assert_int_equal(event(&b, PST_JOB_EVENT_TYPE_DEPLOYING)->generation, 1);
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_PENDING);
    const struct {
        pst_report_type report;
        const char *events;
        pst_job_public_state state;
    } path[] = {{PST_REPORT_TYPE_DEPLOYING, "", PST_JOB_PUBLIC_STATE_PENDING},
                {PST_REPORT_TYPE_STARTED, "PROCESS_STARTED", PST_JOB_PUBLIC_STATE_PENDING},
                {PST_REPORT_TYPE_STARTED, "", PST_JOB_PUBLIC_STATE_PENDING},
                {PST_REPORT_TYPE_DOWNLOADING, "PROCESS_DOWNLOADING", PST_JOB_PUBLIC_STATE_DOWNLOADING},
                {PST_REPORT_TYPE_RUNNING, "PROCESS_READY", PST_JOB_PUBLIC_STATE_PROCESSING},
                {PST_REPORT_TYPE_CHECKPOINT, "CHECKPOINT_COMMITTED", PST_JOB_PUBLIC_STATE_PROCESSING},
                {PST_REPORT_TYPE_STORING, "STORING", PST_JOB_PUBLIC_STATE_STORING},
                {PST_REPORT_TYPE_EXITED, "PROCESS_EXITED COMPLETED", PST_JOB_PUBLIC_STATE_COMPLETED},
                {PST_REPORT_TYPE_EXITED, "", PST_JOB_PUBLIC_STATE_COMPLETED}};
    for (size_t i = 0; i < sizeof path / sizeof *path; i++) {
        told(&b, id, 1, "learner-1", path[i].report, 0, NULL);
        assert_string_equal(shown(&b), path[i].events);
        assert_int_equal(state(&b, id), path[i].state);
    }
    int64_t used[3];
    assert_true(pst_trainer_core_used(b.core, "local", used));
    assert_int_equal(used[0], 0);
    assert_int_equal(pst_trainer_core_counts(b.core)->completed, 1);
    done(&b);
}

static void test_core_model_is_remembered_even_when_told_late(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    const char *id = submit(&b, "r1", simple);
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_EXITED, 0, NULL);
    pst_produced_model m = {(char *)"ae", 3, (char *)"abc"};
    pst_process_report r = {.training_id = (char *)id,
                            .generation = 1,
                            .process = (char *)"learner-1",
                            .type = PST_REPORT_TYPE_RESULT_STORED,
                            .reporter = (char *)"supervisor:h",
                            .host = (char *)"",
                            .model = &m};
    feed(&b, (pst_trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
    const pst_job_event *e = event(&b, PST_JOB_EVENT_TYPE_RESULT_STORED);
    assert_string_equal(pst_str_map_get(e->details, e->n_details, "version"), "3");
    assert_string_equal(pst_trainer_core_job(b.core, id)->model->name, "ae");
    feed(&b, (pst_trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
    assert_string_equal(shown(&b), "");
    done(&b);
}

static void test_core_bad_manifest_is_rejected_once_with_all_reasons(void **unused)
{
    bench b = start();
    const char *id = submit(&b, "r1", "name: bad\nlearners: -1\nmemory: 3 parsecs\ngpus: many\nframework: {name: custom}\n");
    assert_string_equal(shown(&b), "REJECTED");
    const pst_job_event *e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_string_equal(e->reason_code, "C101");
    assert_string_equal(e->training_id, id);
    assert_int_equal(e->seq, 0);
    assert_int_equal(e->n_details, 5);
    assert_non_null(pst_str_map_get(e->details, e->n_details, "framework.command"));
    submit(&b, "r1", "name: bad\n");
    assert_string_equal(shown(&b), ""); /* answered before */
    assert_null(pst_trainer_core_job(b.core, id));
    submit(&b, "", simple);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "BAD_REQUEST");
    done(&b);
}

static void test_core_code_is_checked(void **unused)
{
    bench b = start();
    char ones[65], twos[65];
    memset(ones, '1', 64);
    memset(twos, '2', 64);
    ones[64] = twos[64] = '\0';
    pst_job_code code = {.media_type = (char *)"application/zip", .content = {(void *)"PK", 2}, .sha256 = ones};
    submit_as(&b, "r1", simple, &code, twos);
    const pst_job_event *e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_string_equal(e->reason_code, "C102");
    assert_non_null(strstr(pst_str_map_get(e->details, e->n_details, "code.sha256"), twos));
    const char *id = submit_as(&b, "r2", simple, &code, ones);
    assert_string_equal(pst_trainer_core_job(b.core, id)->code->uri, "file:/objects/code/x");
    code = (pst_job_code){.media_type = (char *)"text/plain"};
    submit_as(&b, "r3", simple, &code, NULL);
    e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_int_equal(e->n_details, 2); /* media type, and neither content nor uri */
    done(&b);
}

static void test_core_same_submission_is_one_job(void **unused)
{
    bench b = start();
    submit(&b, "r1", simple);
    submit(&b, "r1", simple);
    assert_string_equal(shown(&b), "");
    assert_int_equal(pst_trainer_core_counts(b.core)->duplicates, 1);
    done(&b);
}

static void test_core_unknown_job_and_no_event_are_answered(void **unused)
{
    bench b = start();
    ask(&b, "h1", PST_JOB_ACTION_HALT, "training-none");
    const pst_job_event *e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_string_equal(e->reason_code, "UNKNOWN_JOB");
    assert_string_equal(e->request_id, "h1");
    assert_int_equal(e->state, PST_JOB_PUBLIC_STATE_UNKNOWN);
    ask(&b, "u1", PST_JOB_ACTION_UNKNOWN, NULL);
    e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_string_equal(e->reason_code, "BAD_REQUEST");
    assert_int_equal(e->n_details, 2); /* action and training_id */
    feed(&b, (pst_trainer_in){.kind = PST_TRAINER_BAD_REQUEST, .bad_reason = "the first byte is neither 0 nor {"});
    e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_string_equal(e->reason_code, "BAD_EVENT");
    assert_string_equal(e->training_id, "");
    assert_null(e->request_id);
    feed(&b, (pst_trainer_in){.kind = PST_TRAINER_TOMBSTONE});
    assert_string_equal(shown(&b), "");
    assert_int_equal(pst_trainer_core_counts(b.core)->tombstones, 1);
    done(&b);
}

static void test_core_halt_waits_for_the_exits_and_resume_is_a_new_generation(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    const char *id = submit(&b, "r1", "name: two\nlearners: 2\nframework: {name: custom, version: 1, command: run}\n");
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_RUNNING, 0, NULL);
    told(&b, id, 1, "learner-2", PST_REPORT_TYPE_RUNNING, 0, NULL);
    ask(&b, "h1", PST_JOB_ACTION_HALT, id);
    assert_string_equal(shown(&b), "HALTING | HALT");
    ask(&b, "h1", PST_JOB_ACTION_HALT, id);
    assert_string_equal(shown(&b), "");
    ask(&b, "h2", PST_JOB_ACTION_HALT, id);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "WRONG_STATE");
    ask(&b, "r2", PST_JOB_ACTION_RESUME, id);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "WRONG_STATE");
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_EXITED, 0, NULL); /* its SIGTERM work is done, exit 0: halted, not completed */
    assert_string_equal(shown(&b), "PROCESS_EXITED");
    told(&b, id, 1, "learner-2", PST_REPORT_TYPE_EXITED, 0, NULL);
    assert_string_equal(shown(&b), "PROCESS_EXITED HALTED");
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_HALTED)->request_id, "h1");
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_HALTED)->reason, "halted by user bob");
    ask(&b, "r3", PST_JOB_ACTION_RESUME, id);
    assert_string_equal(shown(&b), "RESUMED QUEUED DEPLOYING | DEPLOY");
    assert_int_equal(pst_trainer_core_job(b.core, id)->generation, 2);
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_EXITED, 1, NULL); /* of the fenced generation */
    assert_string_equal(shown(&b), "");
    assert_int_equal(pst_trainer_core_counts(b.core)->reports_stale, 1);
    done(&b);
}

static void test_core_failure_ends_the_gang_then_retries_then_fails(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    const char *id =
        submit(&b, "r1", "name: two\nlearners: 2\nframework: {name: custom, version: 1, command: run}\npenstock: {retries: 1}\n");
    told(&b, id, 1, "learner-2", PST_REPORT_TYPE_EXITED, 3, NULL);
    assert_string_equal(shown(&b), "PROCESS_EXITED | KILL");
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_EXITED, 143, NULL);
    assert_string_equal(shown(&b), "PROCESS_EXITED RETRYING QUEUED");
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_RETRYING)->reason_code, "C201");
    b.now += SECOND;
    lcm(&b, "running", 4);
    assert_string_equal(shown(&b), "DEPLOYING | DEPLOY");
    told(&b, id, 2, "learner-1", PST_REPORT_TYPE_EXITED, 4, NULL);
    told(&b, id, 2, "learner-2", PST_REPORT_TYPE_EXITED, 0, NULL);
    assert_string_equal(shown(&b), "PROCESS_EXITED FAILED");
    const pst_job_event *e = event(&b, PST_JOB_EVENT_TYPE_FAILED);
    assert_string_equal(e->reason_code, "C201");
    assert_string_equal(e->reason, "learner-1 exited with status 4 (after 1 retry)");
    ask(&b, "r2", PST_JOB_ACTION_RESUME, id);
    assert_int_equal(pst_trainer_core_job(b.core, id)->generation, 3);
    done(&b);
}

static void test_core_lost_processes_have_their_own_budget(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    const char *id = submit(&b, "r1", simple);
    for (int g = 1; g <= 4; g++) {
        told(&b, id, g, "learner-1", PST_REPORT_TYPE_LOST, 0, NULL);
        assert_string_equal(shown(&b), g < 4 ? "PROCESS_EXITED RETRYING QUEUED" : "PROCESS_EXITED FAILED");
        b.now += 10 * SECOND;
        lcm(&b, "running", 4);
    }
    assert_string_equal(pst_trainer_core_job(b.core, id)->reason_code, "S104");
    done(&b);
}

static void test_core_platform_down_uses_up_no_retry(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    const char *id = submit(&b, "r1", simple);
    for (int g = 1; g <= 6; g++) {
        told(&b, id, g, "learner-1", PST_REPORT_TYPE_EXITED, 0, "PLATFORM_DOWN");
        assert_string_equal(shown(&b), g == 1 ? "PROCESS_EXITED RETRYING QUEUED DEPLOYING | DEPLOY"
                                              : "PROCESS_EXITED RETRYING QUEUED DEPLOYING | DEPLOY");
    }
    assert_int_equal(pst_trainer_core_job(b.core, id)->platform_attempts, 0);
    done(&b);
}

static void test_core_failed_deployment_is_tried_again(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    const char *id = submit(&b, "r1", simple);
    told(&b, id, 1, NULL, PST_REPORT_TYPE_DEPLOY_FAILED, 0, NULL);
    assert_string_equal(shown(&b), "OTHER RETRYING QUEUED");
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_RETRYING)->reason_code, "S101");
    done(&b);
}

static void test_core_parameter_servers_are_ended_when_the_learners_are_done(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    const char *id = submit(&b, "r1", "name: p\nframework: {name: custom, version: 1, command: run}\npenstock: {roles: {ps: 1}}\n");
    told(&b, id, 1, "ps-1", PST_REPORT_TYPE_RUNNING, 0, NULL);
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_RUNNING, 0, NULL);
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_PROCESSING);
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_EXITED, 0, NULL);
    assert_string_equal(shown(&b), "PROCESS_EXITED | KILL");
    told(&b, id, 1, "ps-1", PST_REPORT_TYPE_EXITED, 143, NULL);
    assert_string_equal(shown(&b), "PROCESS_EXITED COMPLETED");
    done(&b);
}

static void test_core_queue_is_by_priority_then_time_and_says_why(void **unused)
{
    bench b = start();
    const char *none = submit(&b, "r0", simple);
    assert_string_equal(pst_trainer_core_job(b.core, none)->reason, "no LCM of site local has reported yet");
    lcm(&b, "running", 2);
    assert_string_equal(shown(&b), "DEPLOYING | DEPLOY");
    char wide[64], narrow[64], urgent[64];
    strcpy(wide, submit(&b, "r1", "name: w\ncpus: 2\nframework: {name: custom, version: 1, command: run}\n"));
    assert_string_equal(pst_trainer_core_job(b.core, wide)->reason, "it waits for 2 CPUs: 1 of 2 free");
    strcpy(narrow, submit(&b, "r2", simple)); /* would fit, but the wide one is first */
    assert_non_null(strstr(pst_trainer_core_job(b.core, narrow)->reason, "1 job of site local is ahead"));
    strcpy(urgent, submit(&b, "r3", "name: u\ncpus: 1\nframework: {name: custom, version: 1, command: run}\npenstock: {priority: 5}\n"));
    assert_int_equal(state(&b, urgent), PST_JOB_PUBLIC_STATE_PENDING);
    ask(&b, "p1", PST_JOB_ACTION_REPRIORITISE, narrow);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REPRIORITISED)->reason, "priority 9, was 0, by user bob");
    told(&b, urgent, 1, "learner-1", PST_REPORT_TYPE_EXITED, 0, NULL);
    assert_int_equal(state(&b, narrow), PST_JOB_PUBLIC_STATE_PENDING);
    assert_int_equal(state(&b, wide), PST_JOB_PUBLIC_STATE_QUEUED);
    done(&b);
}

static void test_core_more_than_the_site_has_is_rejected_at_once(void **unused)
{
    bench b = start();
    static const char huge[] = "name: h\ncpus: 8\nmemory: 1 TiB\nframework: {name: custom, version: 1, command: run}\n";
    const char *id = submit(&b, "r1", huge); /* nobody knows the site yet: it waits */
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_QUEUED);
    lcm(&b, "running", 2);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_FAILED)->reason_code, "INSUFFICIENT_RESOURCES");
    submit(&b, "r2", huge);
    const pst_job_event *e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_string_equal(e->reason_code, "INSUFFICIENT_RESOURCES");
    assert_non_null(strstr(e->reason, "8 CPUs: 2 of 2 free, 1024 GiB of memory"));
    done(&b);
}

static void test_core_silent_or_stopping_lcm_gets_nothing(void **unused)
{
    bench b = start();
    lcm(&b, "draining", 4);
    const char *id = submit(&b, "r1", simple);
    assert_non_null(strstr(pst_trainer_core_job(b.core, id)->reason, "is stopping"));
    lcm(&b, "running", 4);
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_PENDING);
    b.now += 40 * SECOND;
    id = submit(&b, "r2", simple);
    assert_non_null(strstr(pst_trainer_core_job(b.core, id)->reason, "has not reported since 2023-11-14T"));
    done(&b);
}

static void test_core_deadline_ends_a_job_for_good(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    const char *id =
        submit(&b, "r1", "name: d\nframework: {name: custom, version: 1, command: run}\npenstock: {deadline: 1m, retries: 5}\n");
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_RUNNING, 0, NULL);
    b.now += 30 * SECOND;
    feed(&b, (pst_trainer_in){.kind = PST_TRAINER_TICK});
    assert_string_equal(shown(&b), "");
    b.now += 31 * SECOND;
    feed(&b, (pst_trainer_in){.kind = PST_TRAINER_TICK});
    assert_string_equal(shown(&b), "OTHER | KILL");
    feed(&b, (pst_trainer_in){.kind = PST_TRAINER_TICK});
    assert_string_equal(shown(&b), "");
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_EXITED, 143, NULL);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_FAILED)->reason_code, "DEADLINE");
    done(&b);
}

static void test_core_unanswered_deployment_is_remarked_on_once(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    submit(&b, "r1", simple);
    b.now += 61 * SECOND;
    feed(&b, (pst_trainer_in){.kind = PST_TRAINER_TICK});
    assert_non_null(strstr(event(&b, PST_JOB_EVENT_TYPE_OTHER)->reason, "no process has started yet"));
    feed(&b, (pst_trainer_in){.kind = PST_TRAINER_TICK});
    assert_string_equal(shown(&b), "");
    done(&b);
}

static void test_core_delete_ends_what_runs_and_leaves_a_tombstone(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    const char *id = submit(&b, "r1", simple);
    ask(&b, "d1", PST_JOB_ACTION_DELETE, id);
    assert_string_equal(shown(&b), "TERMINATING | KILL");
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_EXITED, 143, NULL);
    assert_string_equal(shown(&b), "PROCESS_EXITED TERMINATED DELETED | CLEAN tombstone");
    assert_null(pst_trainer_core_job(b.core, id));
    submit(&b, "r1", simple);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "BAD_REQUEST");
    id = submit(&b, "r2", "name: q\ncpus: 4\nframework: {name: custom, version: 1, command: run}\n");
    char running[64];
    strcpy(running, id);
    id = submit(&b, "r3", simple);
    ask(&b, "d2", PST_JOB_ACTION_DELETE, id);
    assert_string_equal(shown(&b), "TERMINATED DELETED tombstone"); /* it was queued */
    ask(&b, "t1", PST_JOB_ACTION_TERMINATE, running);
    told(&b, running, 1, "learner-1", PST_REPORT_TYPE_EXITED, 0, NULL);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_TERMINATED)->reason, "terminated by user bob");
    ask(&b, "t2", PST_JOB_ACTION_TERMINATE, running);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "WRONG_STATE");
    done(&b);
}

static void test_core_loaded_from_states_goes_on(void **unused)
{
    bench b = start(), c = start();
    lcm(&b, "running", 2);
    lcm(&c, "running", 2);
    char ids[3][64];
    for (int i = 0; i < 3; i++) {
        char r[16];
        sprintf(r, "r%d", i);
        strcpy(ids[i], submit(&b, r, simple));
    }
    for (int i = 0; i < 3; i++)
        pst_trainer_core_load(c.core, pst_trainer_core_job(b.core, ids[i]));
    pst_trainer_core_loaded(c.core);
    char *x = pst_trainer_core_dump(b.core), *y = pst_trainer_core_dump(c.core);
    assert_string_equal(x, y);
    free(x);
    free(y);
    told(&c, ids[0], 1, "learner-1", PST_REPORT_TYPE_EXITED, 0, NULL);
    assert_string_equal(shown(&c), "PROCESS_EXITED COMPLETED DEPLOYING | DEPLOY");
    done(&b);
    done(&c);
}

static void test_fsm_table_has_no_way_out_of_what_is_final(void **unused)
{
    for (int from = 0; from <= PST_JOB_PUBLIC_STATE_TERMINATED; from++)
        for (int e = 0; e <= PST_JOB_EVENT_TYPE_OTHER; e++)
            for (int to = 0; to <= PST_JOB_PUBLIC_STATE_TERMINATED; to++) {
                bool allowed = pst_job_fsm_allows((pst_job_public_state)from, (enum pst_job_event_type)e, (pst_job_public_state)to);
                if (from == PST_JOB_PUBLIC_STATE_COMPLETED || from == PST_JOB_PUBLIC_STATE_TERMINATED)
                    assert_true(!allowed || from == to);
                if (to == PST_JOB_PUBLIC_STATE_UNKNOWN)
                    assert_true(!allowed || e == PST_JOB_EVENT_TYPE_REJECTED);
            }
    assert_false(pst_job_fsm_allows(PST_JOB_PUBLIC_STATE_QUEUED, PST_JOB_EVENT_TYPE_COMPLETED, PST_JOB_PUBLIC_STATE_COMPLETED));
    pst_buf text = {0};
    pst_job_fsm_markdown(&text);
    assert_non_null(strstr(text.data, "| DEPLOYING | QUEUED | PENDING |"));
    pst_buf_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_core_good_job_goes_through_all_states),
        cmocka_unit_test(test_core_model_is_remembered_even_when_told_late),
        cmocka_unit_test(test_core_bad_manifest_is_rejected_once_with_all_reasons),
        cmocka_unit_test(test_core_code_is_checked),
        cmocka_unit_test(test_core_same_submission_is_one_job),
        cmocka_unit_test(test_core_unknown_job_and_no_event_are_answered),
        cmocka_unit_test(test_core_halt_waits_for_the_exits_and_resume_is_a_new_generation),
        cmocka_unit_test(test_core_failure_ends_the_gang_then_retries_then_fails),
        cmocka_unit_test(test_core_lost_processes_have_their_own_budget),
        cmocka_unit_test(test_core_platform_down_uses_up_no_retry),
        cmocka_unit_test(test_core_failed_deployment_is_tried_again),
        cmocka_unit_test(test_core_parameter_servers_are_ended_when_the_learners_are_done),
        cmocka_unit_test(test_core_queue_is_by_priority_then_time_and_says_why),
        cmocka_unit_test(test_core_more_than_the_site_has_is_rejected_at_once),
        cmocka_unit_test(test_core_silent_or_stopping_lcm_gets_nothing),
        cmocka_unit_test(test_core_deadline_ends_a_job_for_good),
        cmocka_unit_test(test_core_unanswered_deployment_is_remarked_on_once),
        cmocka_unit_test(test_core_delete_ends_what_runs_and_leaves_a_tombstone),
        cmocka_unit_test(test_core_loaded_from_states_goes_on),
        cmocka_unit_test(test_fsm_table_has_no_way_out_of_what_is_final),
    };
    return cmocka_run_group_tests_name("trainer_core", tests, NULL, NULL);
}
