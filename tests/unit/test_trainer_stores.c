/* test_trainer_stores.c - jobs whose data stores are asked before they are admitted. */
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

#define SECOND 1000000LL

static const char simple[] = "name: n\ncpus: 1\nmemory: 1GiB\nframework: {name: custom, version: 1, command: x}\n";

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

static void tick(bench *b, int64_t after_s, bool caught_up)
{
    b->now += after_s * SECOND;
    feed(b, (trainer_in){.kind = PST_TRAINER_TICK, .caught_up = caught_up});
}

static const char *submit(bench *b, const char *request_id, const char *manifest)
{
    static char id[64];
    pst_job_request r = {
        .request_id = (char *)request_id, .user = (char *)"ann", .action = PST_JOB_ACTION_SUBMIT, .manifest = (char *)manifest};
    feed(b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
    pst_training_id("ann", request_id, id);
    return id;
}

#define WITH_BUCKET                                                                                                                     \
    "name: n\nframework: {name: custom, version: 1, command: x}\ndata_stores: [{id: s, type: s3_datastore, training_data: {container: " \
    "b}, "                                                                                                                              \
    "connection: {auth_url: \"http://h\", user_name: u, password: p}}]\n"

static void count_one(void *arg, const pst_job_state *s)
{
    assert_string_equal(s->reason_code, PST_TRAINER_STORES_ASKED);
    assert_non_null(strstr(s->manifest, "http://h"));
    ++*(int *)arg;
}

static int awaited(const bench *b)
{
    int n = 0;
    tcore_stores_awaited(b->core, count_one, &n);
    return n;
}

static void answered(bench *b, const char *id, const char *refused)
{
    feed(b, (trainer_in){.kind = PST_TRAINER_STORES, .training_id = id, .stores_refused = refused});
}

/* A bucket is asked before its job is admitted; others go on, a stop in between is carried out, and a Trainer that comes next asks again. */
static void test_core_stores_are_asked_before_a_job_is_admitted(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    char id[64];
    snprintf(id, sizeof id, "%s", submit(&b, "r1", WITH_BUCKET));
    assert_string_equal(shown(&b), "RECEIVED");
    assert_int_equal(awaited(&b), 1);
    submit(&b, "r2", simple);
    assert_string_equal(shown(&b), "RECEIVED ADMITTED QUEUED DEPLOYING | DEPLOY");
    tick(&b, 1, true);
    assert_string_equal(shown(&b), "");
    tcore *next = tcore_new(&(trainer_policy)PST_TRAINER_POLICY_DEFAULT);
    tcore_load(next, tcore_job(b.core, id));
    tcore_loaded(next);
    bench c = {.core = next, .now = b.now};
    assert_int_equal(awaited(&c), 1);
    done(&c);
    answered(&b, id, NULL);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_ADMITTED)->request_id, "r1");
    assert_int_equal(awaited(&b), 0);
    assert_null(tcore_job(b.core, id)->reason_code);
    answered(&b, id, "late"); /* nobody waits for it any more */
    assert_string_equal(shown(&b), "");

    snprintf(id, sizeof id, "%s", submit(&b, "r3", WITH_BUCKET));
    answered(&b, id, "no such bucket");
    const pst_job_event *e = event(&b, PST_JOB_EVENT_TYPE_REJECTED);
    assert_string_equal(e->reason_code, "C103");
    assert_string_equal(e->request_id, "r3");
    assert_non_null(strstr(e->reason, "no such bucket"));
    assert_int_equal(e->seq, 2);
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_REJECTED);
    assert_string_equal(tcore_job(b.core, id)->manifest, "");
    submit(&b, "r3", WITH_BUCKET); /* the same request: answered already */
    assert_string_equal(shown(&b), "");

    static const struct {
        pst_job_action action;
        pst_job_public_state then;
    } stops[] = {{PST_JOB_ACTION_HALT, PST_JOB_PUBLIC_STATE_HALTED},
                 {PST_JOB_ACTION_TERMINATE, PST_JOB_PUBLIC_STATE_TERMINATED},
                 {PST_JOB_ACTION_DELETE, PST_JOB_PUBLIC_STATE_UNKNOWN}};
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        char request[2][16];
        snprintf(request[0], 16, "s%zu", i);
        snprintf(request[1], 16, "t%zu", i);
        snprintf(id, sizeof id, "%s", submit(&b, request[0], WITH_BUCKET));
        ask(&b, request[1], stops[i].action, id);
        assert_int_equal(state(&b, id), stops[i].then);
        assert_int_equal(awaited(&b), 0);
        answered(&b, id, i ? NULL : "no such bucket");
        assert_string_equal(shown(&b), "");
        assert_int_equal(state(&b, id), stops[i].then);
    }
    done(&b);
}

/* HALT and RESUME are no way round the question; and what was halted unasked and ended then is asked nothing. */
static void test_core_stores_are_asked_after_a_halt(void **unused)
{
    bench b = start();
    lcm(&b, "running", 4);
    char id[64];
    snprintf(id, sizeof id, "%s", submit(&b, "r1", WITH_BUCKET));
    ask(&b, "h1", PST_JOB_ACTION_HALT, id);
    assert_int_equal(awaited(&b), 0);
    tcore *next = tcore_new(&(trainer_policy)PST_TRAINER_POLICY_DEFAULT); /* a Trainer that comes next knows it, too */
    tcore_load(next, tcore_job(b.core, id));
    tcore_loaded(next);
    done(&b);
    b = (bench){.core = next, .now = 1700000000LL * SECOND + SECOND};
    lcm(&b, "running", 4);
    pst_job_request r = {.request_id = (char *)"u1", .user = (char *)"ann", .action = PST_JOB_ACTION_RESUME, .training_id = id};
    feed(&b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
    assert_string_equal(shown(&b), "RESUMED");
    assert_int_equal(awaited(&b), 1);
    tick(&b, 1, true);
    assert_string_equal(shown(&b), "");
    answered(&b, id, "no such bucket");
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_REJECTED);

    snprintf(id, sizeof id, "%s", submit(&b, "r2", WITH_BUCKET));
    r.request_id = (char *)"h2";
    r.action = PST_JOB_ACTION_HALT;
    feed(&b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
    r.request_id = (char *)"t2";
    r.action = PST_JOB_ACTION_TERMINATE;
    feed(&b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_TERMINATED);
    assert_null(tcore_job(b.core, id)->reason_code);
    done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_core_stores_are_asked_before_a_job_is_admitted),
                                       cmocka_unit_test(test_core_stores_are_asked_after_a_halt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
