/* test_trainer_core.c - the Trainer's decisions one by one: what a request or a report leads to, and how it is said. */
#include "common/platform/client.h"
#include "trainer/job_fsm.h"
#include "trainer/memory.h"
#include "trainer/times.h"
#include "trainer/trainer_core.h"
#include "schemas/training_id.h"
#include "schemas/avro.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND 1000000
static const char simple[] = "name: one\ncpus: 1\nmemory: 256 MiB\nframework: {name: custom, version: 1, command: run}\n";

typedef struct bench {
    tcore *core;
    trainer_actions out;
    int64_t now;
} bench;

static bench start(void)
{
    trainer_policy policy = PST_TRAINER_POLICY_DEFAULT;
    policy.operators = "carol, bob";
    return (bench){.core = tcore_new(&policy), .now = 1700000000LL * SECOND};
}

static void done(bench *b)
{
    trainer_actions_done(&b->out);
    tcore_free(b->core);
}

/* Each step shows its own actions only. */
static void feed(bench *b, trainer_in in)
{
    b->now += 1000;
    trainer_actions_clear(&b->out);
    tcore_step(b->core, &in, b->now, &b->out);
}

static void lcm(bench *b, const char *state, double cpus)
{
    pst_worker_state w = {
        .kind = (char *)"lcm", .site = (char *)"local", .state = (char *)state, .cpus = cpus, .memory_bytes = (int64_t)8 << 30, .gpus = 1};
    feed(b, (trainer_in){.kind = PST_TRAINER_WORKER, .worker = &w, .seen_us = b->now});
}

static const char *submit_as(bench *b, const char *request_id, const char *manifest, pst_job_code *code, const char *stored_sha256)
{
    static char id[64];
    pst_job_request r = {.request_id = (char *)request_id,
                         .user = (char *)"ann",
                         .action = PST_JOB_ACTION_SUBMIT,
                         .manifest = (char *)manifest,
                         .code = code};
    feed(b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r, .code_uri = "file:/objects/code/x", .code_sha256 = stored_sha256});
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
    feed(b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
}

static void told(bench *b, const char *id, int generation, const char *process, pst_report_type type, int exit_code, const char *code)
{
    pst_produced_model made = {(char *)"ae", 3, (char *)"abc"};
    pst_process_report r = {.training_id = (char *)id,
                            .generation = generation,
                            .process = (char *)process,
                            .type = type,
                            .time = b->now,
                            .reporter = (char *)"supervisor:h",
                            .host = (char *)"h",
                            .has_exit_code = type == PST_REPORT_TYPE_EXITED,
                            .exit_code = exit_code,
                            .model = type == PST_REPORT_TYPE_RESULT_STORED ? &made : NULL,
                            .reason_code = (char *)code};
    feed(b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
}

static void tick(bench *b, int64_t after_s, bool caught_up)
{
    b->now += after_s * SECOND;
    feed(b, (trainer_in){.kind = PST_TRAINER_TICK, .caught_up = caught_up});
}

/* "RECEIVED ADMITTED | DEPLOY": events, then commands, then +STATE and +TOMBSTONE marks. */
static const char *shown(const bench *b)
{
    static char text[600];
    char commands[200] = "", marks[100] = "";
    *text = '\0';
    for (size_t i = 0; i < b->out.n; i++) {
        const trainer_action *a = &b->out.at[i];
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
    const pst_job_state *s = tcore_job(b->core, id);
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
    assert_true(tcore_used(b.core, "local", used));
    assert_int_equal(used[0], 0);
    assert_int_equal(tcore_counts(b.core)->completed, 1);
    done(&b);
}

static void test_core_model_is_remembered_even_when_told_late(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    const char *id = submit(&b, "r1", simple);
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_EXITED, 0, NULL);
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_RESULT_STORED, 0, NULL);
    const pst_job_event *e = event(&b, PST_JOB_EVENT_TYPE_RESULT_STORED);
    assert_string_equal(pst_str_map_get(e->details, e->n_details, "version"), "3");
    assert_string_equal(tcore_job(b.core, id)->model->name, "ae");
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_RESULT_STORED, 0, NULL);
    assert_string_equal(shown(&b), "");
    done(&b);
}

static const char bad_manifest[] = "name: bad\nlearners: -1\nmemory: 3 parsecs\ngpus: many\nframework: {name: custom}\n";

static void test_core_bad_manifest_is_rejected_once_with_all_reasons(void **unused)
{
    bench b = start();
    const char *id = submit(&b, "r1", bad_manifest);
    assert_string_equal(shown(&b), "REJECTED");
    const pst_job_event *e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_string_equal(e->reason_code, "C101");
    assert_string_equal(e->training_id, id);
    assert_int_equal(e->seq, 1);
    assert_int_equal(e->state, PST_JOB_PUBLIC_STATE_REJECTED);
    assert_int_equal(e->n_details, 5);
    assert_non_null(pst_str_map_get(e->details, e->n_details, "framework.command"));
    submit(&b, "r1", bad_manifest);
    assert_string_equal(shown(&b), ""); /* answered before */
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_REJECTED);
    assert_string_equal(tcore_job(b.core, id)->reason_code, "C101");
    assert_string_equal(tcore_job(b.core, id)->manifest, "");
    submit(&b, "r1", simple); /* mended, but under the same id */
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "REQUEST_ID_REUSED");
    submit(&b, "r1", simple);
    assert_string_equal(shown(&b), "");
    ask(&b, "t1", PST_JOB_ACTION_TERMINATE, id);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "WRONG_STATE");
    ask(&b, "d1", PST_JOB_ACTION_DELETE, id);
    assert_string_equal(shown(&b), "DELETED tombstone");
    submit(&b, "", simple);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "BAD_REQUEST");
    done(&b);
}

static void test_core_what_overtakes_its_submission_waits_for_it(void **unused)
{
    bench b = start(), c = start();
    char id[64];
    pst_training_id("ann", "r1", id);
    ask(&b, "h1", PST_JOB_ACTION_HALT, id);
    ask(&b, "r1", PST_JOB_ACTION_RESUME, id);
    ask(&b, "t1", PST_JOB_ACTION_TERMINATE, id);
    assert_int_equal(b.out.n, 1);
    assert_int_equal(b.out.at[0].kind, PST_DO_STATE);
    assert_string_equal(b.out.at[0].state->manifest, ""); /* no text of it is NULL: the one who publishes it seals the manifest */
    assert_null(tcore_job(b.core, id));
    /* another Trainer goes on from what was published */
    tcore_load(c.core, b.out.at[0].state);
    tcore_loaded(c.core);
    assert_true(tcore_equal(b.core, c.core));
    lcm(&c, "running", 4);
    submit(&c, "r1", simple);
    assert_string_equal(shown(&c), "RECEIVED ADMITTED HALTED RESUMED TERMINATED");
    assert_int_equal(state(&c, id), PST_JOB_PUBLIC_STATE_TERMINATED);
    assert_string_equal(event(&c, PST_JOB_EVENT_TYPE_TERMINATED)->request_id, "t1");
    ask(&c, "t1", PST_JOB_ACTION_TERMINATE, id); /* once */
    assert_string_equal(shown(&c), "");
    /* one that had no submission is none of a job that comes later */
    submit(&b, "other", simple);
    tick(&b, 6, true);
    assert_string_equal(shown(&b), "REJECTED REJECTED REJECTED tombstone");
    assert_true(b.out.at[b.out.n - 1].expired);
    tcore_drop(c.core, "training-late", 0);
    submit(&b, "r1", simple);
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_QUEUED);
    done(&b);
    done(&c);
}

/* What happened six seconds apart where it was seen took six seconds, whenever we hear of it and whatever the clock there. */
static void test_core_times_are_the_observers(void **unused)
{
    static const int64_t off[] = {0, 600 * (int64_t)SECOND, -600 * (int64_t)SECOND, -40 * (int64_t)365 * 86400 * SECOND};
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        bench b = start();
        lcm(&b, "running", 4);
        const char *id = submit(&b, "r1", simple);
        pst_process_report r = {
            .training_id = (char *)id, .generation = 1, .process = (char *)"learner-1", .reporter = (char *)"supervisor:h"};
        int64_t began = b.now + 50000;
        r.type = PST_REPORT_TYPE_RUNNING;
        r.time = began + off[i];
        b.now += 400000;
        feed(&b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &r, .published_us = r.time + 2000, .live = true});
        if (!off[i])
            assert_int_equal(event(&b, PST_JOB_EVENT_TYPE_PROCESS_READY)->time, began);
        else
            assert_in_range(event(&b, PST_JOB_EVENT_TYPE_PROCESS_READY)->time, began, b.now);
        b.now += 9500000;
        r.type = PST_REPORT_TYPE_EXITED;
        r.has_exit_code = true;
        r.time = began + off[i] + 6 * SECOND;
        feed(&b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &r, .published_us = r.time + 3500000, .live = true});
        assert_non_null(strstr(event(&b, PST_JOB_EVENT_TYPE_COMPLETED)->reason, "exited with 0 after 6.0 s"));
        const pst_job_state *s = tcore_job(b.core, id);
        assert_true(s->ended_at >= s->started_at && s->started_at >= s->submitted_at && s->ended_at <= b.now);
        done(&b);
    }
}

/* Another Trainer goes on with another clock: deadlines wait until it is known whose is right, and no pause lasts for ever. */
static void test_core_a_clock_that_jumped_ends_and_holds_up_nothing(void **unused)
{
    for (int sign = -1; sign <= 1; sign += 2) {
        bench b = start(), c = start();
        lcm(&b, "running", 4);
        char id[64], other[64];
        strcpy(id, submit(&b, "r1", "name: d\ncpus: 1\nframework: {name: custom, version: 1, command: run}\npenstock: {deadline: 1m}\n"));
        told(&b, id, 1, "learner-1", PST_REPORT_TYPE_RUNNING, 0, NULL);
        strcpy(other, submit(&b, "r2", "name: r\ncpus: 1\nframework: {name: custom, version: 1, command: run}\npenstock: {retries: 3}\n"));
        told(&b, other, 1, "learner-1", PST_REPORT_TYPE_EXITED, 3, NULL);
        assert_string_equal(shown(&b), "PROCESS_EXITED RETRYING QUEUED");
        c.now = b.now + sign * 3600 * (int64_t)SECOND;
        tcore_load(c.core, tcore_job(b.core, id));
        tcore_load(c.core, tcore_job(b.core, other));
        tcore_loaded(c.core);
        lcm(&c, "running", 4);
        feed(&c, (trainer_in){.kind = PST_TRAINER_TICK, .unsettled = true});
        assert_int_equal(state(&c, id), PST_JOB_PUBLIC_STATE_PROCESSING);
        assert_null(tcore_job(c.core, id)->reason_code);
        assert_int_equal(state(&c, other), PST_JOB_PUBLIC_STATE_PENDING);
        done(&b);
        done(&c);
    }
}

static void test_times_the_clock_in_the_middle_is_taken_once(void **unused)
{
    static const struct {
        int64_t own, node, client, want;
    } cases[] = {{0, 0, 0, 0},    {-600, 0, 0, 0}, {600, 0, 0, 0},    {0, 600, 0, 0},
                 {0, 0, -600, 0}, {-600, 1, 0, 0}, {-600, 600, 0, 0}, {3600, 0, 7200, 3600}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trainer_times t;
        int64_t mono = 5 * SECOND, real = 1700000000LL * SECOND;
        trainer_times_start(&t, real + cases[i].own * SECOND, mono);
        mono += SECOND;
        real += SECOND;
        assert_int_equal(trainer_times_now(&t, mono), real + cases[i].own * SECOND);
        trainer_times_heard(&t, PST_TIMES_NODE, real + cases[i].node * SECOND, mono);
        trainer_times_heard(&t, PST_TIMES_CLIENT, real + cases[i].client * SECOND, mono);
        assert_true(t.settled);
        assert_true(labs(trainer_times_now(&t, mono) - (real + cases[i].want * SECOND)) <= SECOND);
        trainer_times_heard(&t, PST_TIMES_NODE, real + 9000 * (int64_t)SECOND, mono); /* jumps later on move nothing */
        assert_true(labs(trainer_times_now(&t, mono) - (real + cases[i].want * SECOND)) <= SECOND);
    }
}

static void test_core_other_peoples_jobs_are_not_touched(void **unused)
{
    static const pst_job_action all[] = {PST_JOB_ACTION_HALT,   PST_JOB_ACTION_RESUME,       PST_JOB_ACTION_TERMINATE,
                                         PST_JOB_ACTION_DELETE, PST_JOB_ACTION_REPRIORITISE, PST_JOB_ACTION_HOLD,
                                         PST_JOB_ACTION_RELEASE};
    bench b = start();
    lcm(&b, "running", 4);
    const char *id = submit(&b, "r1", simple);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char request[16];
        sprintf(request, "m%zu", i);
        pst_job_request r = {.request_id = request, .user = (char *)"bo", .action = all[i], .training_id = (char *)id};
        feed(&b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
        assert_string_equal(shown(&b), "REJECTED");
        assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "NOT_YOURS");
        assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_PENDING);
    }
    ask(&b, "t1", PST_JOB_ACTION_TERMINATE, id); /* bob is an operator */
    assert_string_equal(shown(&b), "TERMINATING | KILL");
    done(&b);
}

static void test_core_what_was_done_wins_over_what_was_asked(void **unused)
{
    static const pst_job_action actions[] = {PST_JOB_ACTION_HALT, PST_JOB_ACTION_TERMINATE, PST_JOB_ACTION_DELETE};
    for (int i = 0; i < 3; i++) {
        bench b = start();
        lcm(&b, "running", 4);
        const char *id = submit(&b, "r1", simple);
        told(&b, id, 1, "learner-1", PST_REPORT_TYPE_RUNNING, 0, NULL);
        ask(&b, "w1", actions[i], id);
        told(&b, id, 1, "learner-1", PST_REPORT_TYPE_STORING, 0, NULL); /* it was done before it heard of that */
        told(&b, id, 1, "learner-1", PST_REPORT_TYPE_EXITED, 0, NULL);
        assert_string_equal(shown(&b), i < 2 ? "PROCESS_EXITED COMPLETED" : "PROCESS_EXITED COMPLETED DELETED | CLEAN tombstone");
        assert_non_null(strstr(event(&b, PST_JOB_EVENT_TYPE_COMPLETED)->reason, "before it could be"));
        if (i == 0)
            assert_int_equal(tcore_job(b.core, id)->stop_action, PST_JOB_STOP_ACTION_NONE);
        done(&b);
    }
}

static void test_core_parameter_servers_take_no_gpu(void **unused)
{
    bench b = start();
    int64_t used[3];
    lcm(&b, "running", 4); /* one GPU */
    submit(&b, "r1",
           "name: g\ncpus: 1\nmemory: 256 MiB\ngpus: 1\nframework: {name: custom, version: 1, command: run}\n"
           "penstock: {roles: {ps: 1}}\n");
    assert_string_equal(shown(&b), "RECEIVED ADMITTED QUEUED DEPLOYING | DEPLOY");
    tcore_used(b.core, "local", used);
    assert_int_equal(used[2], 1);
    done(&b);
}

/* Offsets and tombstones may be gone: what is read again then is too old, or still remembered. */
static void test_core_nothing_old_runs_again(void **unused)
{
    const int64_t day = (int64_t)86400 * SECOND;
    bench b = start(), c = start();
    char id[64];
    strcpy(id, submit(&b, "r1", simple));
    int64_t published = b.now;
    ask(&b, "d1", PST_JOB_ACTION_DELETE, id);
    assert_string_equal(shown(&b), "TERMINATED DELETED tombstone");
    int64_t deleted = b.now;
    pst_job_request again = {
        .request_id = (char *)"r1", .user = (char *)"ann", .action = PST_JOB_ACTION_SUBMIT, .manifest = (char *)simple};
    trainer_in in = {.kind = PST_TRAINER_REQUEST, .request = &again, .published_us = published};
    tcore_drop(c.core, id, deleted); /* the tombstone, read after a restart */
    c.now += 5 * day;
    tick(&c, 0, true);
    feed(&c, in);
    assert_string_equal(event(&c, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "BAD_REQUEST"); /* deleted */
    done(&c);
    c = start(); /* the tombstone is gone, too */
    c.now += 7 * day;
    feed(&c, in);
    assert_string_equal(event(&c, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "TOO_OLD");
    assert_null(tcore_job(c.core, id));
    feed(&c, in);
    assert_string_equal(shown(&c), "");
    again = (pst_job_request){.request_id = (char *)"x", .user = (char *)"ann", .action = PST_JOB_ACTION_RESUME, .training_id = id};
    feed(&c, in);
    assert_string_equal(event(&c, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "UNKNOWN_JOB"); /* nothing will come for it */
    pst_job_request same = {.request_id = (char *)"r1", .user = (char *)"ann", .action = PST_JOB_ACTION_SUBMIT, .manifest = (char *)simple};
    feed(&c, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &same, .published_us = c.now});
    event(&c, PST_JOB_EVENT_TYPE_RECEIVED); /* published anew, as the answer to the old one says */
    assert_int_equal(state(&c, id), PST_JOB_PUBLIC_STATE_QUEUED);
    strcpy(id, submit(&c, "r9", simple));
    again.training_id = id;
    again.user = (char *)"ann";
    again.request_id = (char *)"y";
    feed(&c, in);
    assert_string_equal(event(&c, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "TOO_OLD"); /* known or not */
    /* rejections are forgotten one by one, by age */
    char old[64];
    strcpy(old, submit(&c, "bad1", bad_manifest));
    c.now += 5 * day;
    strcpy(id, submit(&c, "bad2", bad_manifest));
    c.now += 4 * day;
    tick(&c, 0, true);
    assert_string_equal(shown(&c), " tombstone");
    assert_null(tcore_job(c.core, old));
    assert_non_null(tcore_job(c.core, id));
    done(&b);
    done(&c);
}

static void test_memory_loses_the_oldest_first(void **unused)
{
    trainer_memory m = {0};
    char key[16];
    for (int i = 0; i < 1000; i++) {
        sprintf(key, "k%d", i);
        trainer_memory_put(&m, key, i);
        trainer_memory_forget(&m, INT64_MIN, 100);
    }
    assert_int_equal(trainer_memory_size(&m), 100);
    assert_false(trainer_memory_has(&m, "k899"));
    assert_true(trainer_memory_has(&m, "k900"));
    trainer_memory_take(&m, "k900");
    trainer_memory_put(&m, "k901", 2000);
    trainer_memory_forget(&m, 950, 100);
    assert_int_equal(trainer_memory_size(&m), 51);
    assert_true(trainer_memory_has(&m, "k901"));
    trainer_memory_done(&m);
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
    assert_string_equal(tcore_job(b.core, id)->code->uri, "file:/objects/code/x");
    code = (pst_job_code){.media_type = (char *)"text/plain"};
    submit_as(&b, "r3", simple, &code, NULL);
    e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_int_equal(e->n_details, 2); /* media type, and neither content nor uri */
    done(&b);
}

static void test_core_same_submission_is_one_job(void **unused)
{
    bench b = start();
    const char *id = submit(&b, "r1", simple);
    submit(&b, "r1", simple);
    assert_string_equal(shown(&b), "");
    assert_int_equal(tcore_counts(b.core)->duplicates, 1);
    submit(&b, "r1", "name: two\nframework: {name: custom, version: 1, command: run}\n");
    const pst_job_event *e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_string_equal(e->reason_code, "REQUEST_ID_REUSED");
    assert_int_equal(e->state, PST_JOB_PUBLIC_STATE_QUEUED);
    assert_string_equal(tcore_job(b.core, id)->name, "one");
    done(&b);
}

static void test_core_unknown_job_and_no_event_are_answered(void **unused)
{
    bench b = start();
    ask(&b, "h1", PST_JOB_ACTION_HALT, "training-none");
    assert_string_equal(shown(&b), ""); /* its submission may be on its way */
    ask(&b, "h1", PST_JOB_ACTION_HALT, "training-none");
    tick(&b, 3, true);
    tick(&b, 3, false); /* long enough, but not everything is read */
    assert_string_equal(shown(&b), "");
    tick(&b, 0, true);
    assert_string_equal(shown(&b), "REJECTED tombstone");
    const pst_job_event *e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_string_equal(e->reason_code, "UNKNOWN_JOB");
    assert_string_equal(e->request_id, "h1");
    assert_int_equal(e->state, PST_JOB_PUBLIC_STATE_UNKNOWN);
    ask(&b, "u1", PST_JOB_ACTION_UNKNOWN, NULL);
    e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_string_equal(e->reason_code, "BAD_REQUEST");
    assert_int_equal(e->n_details, 2); /* action and training_id */
    feed(&b, (trainer_in){.kind = PST_TRAINER_BAD_REQUEST, .bad_reason = "the first byte is neither 0 nor {"});
    e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_string_equal(e->reason_code, "BAD_EVENT");
    assert_string_equal(e->training_id, "");
    assert_null(e->request_id);
    feed(&b, (trainer_in){.kind = PST_TRAINER_TOMBSTONE});
    assert_string_equal(shown(&b), "");
    assert_int_equal(tcore_counts(b.core)->tombstones, 1);
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
    assert_int_equal(tcore_job(b.core, id)->generation, 2);
    told(&b, id, 1, "learner-1", PST_REPORT_TYPE_EXITED, 1, NULL); /* of the fenced generation */
    assert_string_equal(shown(&b), "");
    assert_int_equal(tcore_counts(b.core)->reports_stale, 1);
    done(&b);
}

/* The first learner registered its model; the second was still at work when a HALT came. A resumed job must not make a second version. */
static void test_core_a_registered_model_wins_over_a_stop(void **unused)
{
    for (int made = 0; made < 2; made++) {
        bench b = start();
        lcm(&b, "running", 4);
        const char *id = submit(&b, "r1", "name: two\nlearners: 2\nframework: {name: custom, version: 1, command: run}\n");
        told(&b, id, 1, "learner-1", PST_REPORT_TYPE_STORING, 0, NULL);
        ask(&b, "h1", PST_JOB_ACTION_HALT, id);
        if (made)
            told(&b, id, 1, "learner-1", PST_REPORT_TYPE_RESULT_STORED, 0, NULL);
        told(&b, id, 1, "learner-1", PST_REPORT_TYPE_EXITED, 0, NULL);
        told(&b, id, 1, "learner-2", PST_REPORT_TYPE_EXITED, 143, NULL);
        assert_string_equal(shown(&b), made ? "PROCESS_EXITED COMPLETED" : "PROCESS_EXITED HALTED");
        done(&b);
    }
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
    assert_int_equal(tcore_job(b.core, id)->generation, 3);
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
    assert_string_equal(tcore_job(b.core, id)->reason_code, "S104");
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
    assert_int_equal(tcore_job(b.core, id)->platform_attempts, 0);
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
    assert_string_equal(tcore_job(b.core, none)->reason, "no LCM of site local has reported yet");
    lcm(&b, "running", 2);
    assert_string_equal(shown(&b), "DEPLOYING | DEPLOY");
    char wide[64], narrow[64], urgent[64];
    strcpy(wide, submit(&b, "r1", "name: w\ncpus: 2\nframework: {name: custom, version: 1, command: run}\n"));
    assert_string_equal(tcore_job(b.core, wide)->reason, "it waits for 2 CPUs: 1 of 2 free");
    strcpy(narrow, submit(&b, "r2", simple)); /* would fit, but the wide one is first */
    assert_non_null(strstr(tcore_job(b.core, narrow)->reason, "1 job of queue default at site local is ahead"));
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
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_QUEUED);
    assert_non_null(strstr(tcore_job(b.core, id)->reason, "it waits for the site to grow, and fails"));
    const char *small = submit(&b, "r3", simple); /* need not wait behind it */
    assert_int_equal(state(&b, small), PST_JOB_PUBLIC_STATE_PENDING);
    tick(&b, 880, true);
    lcm(&b, "running", 2);
    assert_string_equal(shown(&b), "");
    tick(&b, 30, true);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_FAILED)->reason_code, "INSUFFICIENT_RESOURCES");
    submit(&b, "r2", huge);
    const pst_job_event *e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_string_equal(e->reason_code, "INSUFFICIENT_RESOURCES");
    assert_non_null(strstr(e->reason, "8 CPUs: 2 of 2 free, 1024 GiB of memory"));
    done(&b);
}

/* After a restart a small node may be heard first: what is too wide for it waits for the others. */
static void test_core_nothing_is_too_wide_while_nodes_are_being_read(void **unused)
{
    bench b = start();
    static const char wide[] = "name: w\ncpus: 4\nframework: {name: custom, version: 1, command: run}\n";
    char id[64];
    pst_job_request r = {.request_id = (char *)"w1", .user = (char *)"ann", .action = PST_JOB_ACTION_SUBMIT, .manifest = (char *)wide};
    pst_training_id("ann", "w1", id);
    lcm(&b, "running", 2);
    feed(&b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r, .nodes_unread = true});
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_QUEUED);
    lcm(&b, "running", 4);
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_PENDING);
    done(&b);
}

/* Refused before it became a job's, then mended: the same request id is not poisoned, and each is answered once. */
static void test_core_a_mended_request_is_answered(void **unused)
{
    bench b = start();
    char id[64];
    pst_job_request r = {.request_id = (char *)"m1",
                         .user = (char *)"ann",
                         .action = PST_JOB_ACTION_SUBMIT,
                         .training_id = (char *)"training-mine",
                         .manifest = (char *)simple};
    trainer_in in = {.kind = PST_TRAINER_REQUEST, .request = &r};
    pst_training_id("ann", "m1", id);
    feed(&b, in);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "BAD_REQUEST");
    feed(&b, in);
    assert_string_equal(shown(&b), "");
    r.training_id = NULL;
    feed(&b, in);
    event(&b, PST_JOB_EVENT_TYPE_RECEIVED);
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_QUEUED);
    done(&b);
}

static void test_core_silent_or_stopping_lcm_gets_nothing(void **unused)
{
    bench b = start();
    lcm(&b, "draining", 4);
    const char *id = submit(&b, "r1", simple);
    assert_non_null(strstr(tcore_job(b.core, id)->reason, "is stopping"));
    lcm(&b, "running", 4);
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_PENDING);
    b.now += 40 * SECOND;
    id = submit(&b, "r2", simple);
    assert_non_null(strstr(tcore_job(b.core, id)->reason, "has not reported since 2023-11-14T"));
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
    feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
    assert_string_equal(shown(&b), "");
    b.now += 31 * SECOND;
    feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
    assert_string_equal(shown(&b), "OTHER | KILL");
    feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
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
    feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
    assert_non_null(strstr(event(&b, PST_JOB_EVENT_TYPE_OTHER)->reason, "no process has started yet"));
    feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
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
    assert_null(tcore_job(b.core, id));
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
        tcore_load(c.core, tcore_job(b.core, ids[i]));
    tcore_loaded(c.core);
    char *x = tcore_dump(b.core), *y = tcore_dump(c.core);
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
    for (int from = 0; from <= PST_JOB_PUBLIC_STATE_REJECTED; from++)
        for (int e = 0; e <= PST_JOB_EVENT_TYPE_OTHER; e++)
            for (int to = 0; to <= PST_JOB_PUBLIC_STATE_REJECTED; to++) {
                bool allowed = job_fsm_allows((pst_job_public_state)from, (enum pst_job_event_type)e, (pst_job_public_state)to);
                if (from == PST_JOB_PUBLIC_STATE_COMPLETED || from == PST_JOB_PUBLIC_STATE_REJECTED ||
                    from == PST_JOB_PUBLIC_STATE_TERMINATED)
                    assert_true(!allowed || from == to);
                if (to == PST_JOB_PUBLIC_STATE_UNKNOWN)
                    assert_true(!allowed || e == PST_JOB_EVENT_TYPE_REJECTED);
            }
    assert_false(job_fsm_allows(PST_JOB_PUBLIC_STATE_QUEUED, PST_JOB_EVENT_TYPE_COMPLETED, PST_JOB_PUBLIC_STATE_COMPLETED));
    pst_buf text = {0};
    job_fsm_markdown(&text);
    assert_non_null(strstr(text.data, "| DEPLOYING | QUEUED | PENDING |"));
    pst_buf_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_core_good_job_goes_through_all_states),
        cmocka_unit_test(test_core_model_is_remembered_even_when_told_late),
        cmocka_unit_test(test_core_bad_manifest_is_rejected_once_with_all_reasons),
        cmocka_unit_test(test_core_what_overtakes_its_submission_waits_for_it),
        cmocka_unit_test(test_core_times_are_the_observers),
        cmocka_unit_test(test_core_a_clock_that_jumped_ends_and_holds_up_nothing),
        cmocka_unit_test(test_times_the_clock_in_the_middle_is_taken_once),
        cmocka_unit_test(test_core_other_peoples_jobs_are_not_touched),
        cmocka_unit_test(test_core_what_was_done_wins_over_what_was_asked),
        cmocka_unit_test(test_core_parameter_servers_take_no_gpu),
        cmocka_unit_test(test_core_nothing_old_runs_again),
        cmocka_unit_test(test_memory_loses_the_oldest_first),
        cmocka_unit_test(test_core_code_is_checked),
        cmocka_unit_test(test_core_same_submission_is_one_job),
        cmocka_unit_test(test_core_unknown_job_and_no_event_are_answered),
        cmocka_unit_test(test_core_halt_waits_for_the_exits_and_resume_is_a_new_generation),
        cmocka_unit_test(test_core_a_registered_model_wins_over_a_stop),
        cmocka_unit_test(test_core_failure_ends_the_gang_then_retries_then_fails),
        cmocka_unit_test(test_core_lost_processes_have_their_own_budget),
        cmocka_unit_test(test_core_platform_down_uses_up_no_retry),
        cmocka_unit_test(test_core_failed_deployment_is_tried_again),
        cmocka_unit_test(test_core_parameter_servers_are_ended_when_the_learners_are_done),
        cmocka_unit_test(test_core_queue_is_by_priority_then_time_and_says_why),
        cmocka_unit_test(test_core_more_than_the_site_has_is_rejected_at_once),
        cmocka_unit_test(test_core_nothing_is_too_wide_while_nodes_are_being_read),
        cmocka_unit_test(test_core_a_mended_request_is_answered),
        cmocka_unit_test(test_core_silent_or_stopping_lcm_gets_nothing),
        cmocka_unit_test(test_core_deadline_ends_a_job_for_good),
        cmocka_unit_test(test_core_unanswered_deployment_is_remarked_on_once),
        cmocka_unit_test(test_core_delete_ends_what_runs_and_leaves_a_tombstone),
        cmocka_unit_test(test_core_loaded_from_states_goes_on),
        cmocka_unit_test(test_fsm_table_has_no_way_out_of_what_is_final),
    };
    return cmocka_run_group_tests_name("trainer_core", tests, NULL, NULL);
}
