/* test_trainer_queue.c - what waits at a site, and what is said of it: held, released, given another priority, waiting for other
 * jobs. */
#include "common/platform/client.h"
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
static const trainer_policy policy = {.gpus = -1, .platform_retries = 3, .silent_us = 30 * SECOND, .operators = "carol, bob"};

typedef struct bench {
    tcore *core;
    trainer_actions out;
    int64_t now;
} bench;

static bench start(void)
{
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
        .kind = (char *)"lcm", .site = (char *)"local", .state = (char *)state, .cpus = cpus, .memory_bytes = (int64_t)8 << 30};
    feed(b, (trainer_in){.kind = PST_TRAINER_WORKER, .worker = &w, .seen_us = b->now});
}

static const char *submit(bench *b, const char *request_id, const char *manifest)
{
    static char id[64];
    pst_job_request r = {.request_id = (char *)request_id, .user = (char *)"ann", .manifest = (char *)manifest};
    feed(b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
    pst_training_id("ann", request_id, id);
    return id;
}

static void ends(bench *b, const char *id)
{
    pst_process_report r = {.training_id = (char *)id,
                            .generation = 1,
                            .process = (char *)"learner-1",
                            .type = PST_REPORT_TYPE_EXITED,
                            .time = b->now,
                            .reporter = (char *)"supervisor:h",
                            .host = (char *)"h",
                            .has_exit_code = true};
    feed(b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
}

static void tick(bench *b, int64_t after_s)
{
    b->now += after_s * SECOND;
    feed(b, (trainer_in){.kind = PST_TRAINER_TICK, .caught_up = true});
}

/* "RECEIVED ADMITTED | DEPLOY": events, then commands. */
static const char *shown(const bench *b)
{
    static char text[600];
    char commands[200] = "";
    *text = '\0';
    for (size_t i = 0; i < b->out.n; i++) {
        const trainer_action *a = &b->out.at[i];
        if (a->kind == PST_DO_EVENT)
            sprintf(text + strlen(text), "%s%s", *text ? " " : "", pst_job_event_type_text(a->event.type));
        else if (a->kind == PST_DO_COMMAND)
            sprintf(commands + strlen(commands), " %s", pst_job_command_type_text(a->command.command));
    }
    if (*commands)
        sprintf(text + strlen(text), " |%s", commands);
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

static void ask_with(bench *b, const char *user, const char *request_id, pst_job_action action, const char *id, const char *priority)
{
    pst_str_pair options[] = {{(char *)"priority", (char *)priority}};
    pst_job_request r = {.request_id = (char *)request_id,
                         .user = (char *)user,
                         .action = action,
                         .training_id = (char *)id,
                         .options = options,
                         .n_options = priority != NULL};
    feed(b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
}

static void ask_as(bench *b, const char *user, const char *request_id, pst_job_action action, const char *id)
{
    ask_with(b, user, request_id, action, id, NULL);
}

/* A core that has read what the other published, and knows its node. */
static void restart(bench *b, const char *const ids[], size_t n)
{
    tcore *next = tcore_new(&policy);
    for (size_t i = 0; i < n; i++)
        tcore_load(next, tcore_job(b->core, ids[i]));
    tcore_loaded(next);
    tcore_free(b->core);
    b->core = next;
}

#define HELD_MANIFEST "name: h\ncpus: 1\nframework: {name: custom, version: 1, command: run}\npenstock: {hold: true, priority: 7}\n"

static void test_queue_a_job_submitted_with_hold_waits_for_its_release(void **unused)
{
    bench b = start();
    char held[64], other[64];
    lcm(&b, "running", 4);
    strcpy(held, submit(&b, "r1", HELD_MANIFEST));
    assert_string_equal(shown(&b), "RECEIVED ADMITTED QUEUED");
    assert_string_equal(tcore_job(b.core, held)->held_by, "ann");
    char *why = pst_sprintf("user ann holds it; `penstock release %s` lets it start", held);
    assert_string_equal(tcore_job(b.core, held)->reason, why);
    strcpy(other, submit(&b, "r2", simple)); /* of less priority; nothing is ahead of it */
    assert_int_equal(state(&b, other), PST_JOB_PUBLIC_STATE_PENDING);
    ask_with(&b, "bob", "p1", PST_JOB_ACTION_REPRIORITISE, held, "9"); /* does not let it go, and keeps the reason */
    assert_string_equal(shown(&b), "REPRIORITISED");
    assert_string_equal(tcore_job(b.core, held)->reason, why);
    restart(&b, (const char *[]){held, other}, 2);
    lcm(&b, "running", 4);
    tick(&b, 10000); /* nor does time */
    assert_string_equal(tcore_job(b.core, held)->reason, why);
    assert_int_equal(state(&b, held), PST_JOB_PUBLIC_STATE_QUEUED);
    lcm(&b, "running", 4);
    ask_as(&b, "ann", "u1", PST_JOB_ACTION_RELEASE, held);
    assert_string_equal(shown(&b), "RELEASED QUEUED DEPLOYING | DEPLOY");
    assert_null(tcore_job(b.core, held)->held_by);
    ask_as(&b, "ann", "u1", PST_JOB_ACTION_RELEASE, held); /* repeated */
    assert_string_equal(shown(&b), "");
    ask_as(&b, "ann", "u2", PST_JOB_ACTION_RELEASE, held);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason, "the job is PENDING and nobody holds it");
    free(why);
    done(&b);
}

static void test_queue_hold_is_for_what_waits_and_says_what_to_do_otherwise(void **unused)
{
    bench b = start();
    char runs[64], waits[64];
    lcm(&b, "running", 1);
    strcpy(runs, submit(&b, "r1", simple));
    strcpy(waits, submit(&b, "r2", simple));
    ask_as(&b, "ann", "h1", PST_JOB_ACTION_HOLD, runs);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason,
                        "the job is PENDING: what has been started cannot be held back; halt stops it so that it can be resumed");
    ask_as(&b, "ann", "h2", PST_JOB_ACTION_HOLD, waits);
    assert_string_equal(shown(&b), "HELD");
    assert_string_equal(tcore_job(b.core, waits)->reason, "held by user ann");
    ask_as(&b, "ann", "h3", PST_JOB_ACTION_HOLD, waits);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason, "the job is held already, by user ann");
    ends(&b, runs);
    assert_int_equal(state(&b, runs), PST_JOB_PUBLIC_STATE_COMPLETED);
    assert_int_equal(state(&b, waits), PST_JOB_PUBLIC_STATE_QUEUED); /* there is room, and it is held */
    ask_as(&b, "ann", "h4", PST_JOB_ACTION_HOLD, runs);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason, "the job is COMPLETED and does not wait: there is nothing to hold");
    ask_as(&b, "ann", "t1", PST_JOB_ACTION_TERMINATE, waits);
    assert_string_equal(shown(&b), "TERMINATED");
    ask_as(&b, "ann", "u1", PST_JOB_ACTION_RELEASE, waits);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "WRONG_STATE");
    done(&b);
}

static void test_queue_what_an_operator_holds_its_owner_cannot_release(void **unused)
{
    bench b = start();
    char id[64];
    strcpy(id, submit(&b, "r1", simple)); /* no node yet */
    ask_as(&b, "ann", "h0", PST_JOB_ACTION_HOLD, id);
    ask_as(&b, "bob", "h1", PST_JOB_ACTION_HOLD, id); /* in the place of the owner's, who could release it */
    assert_string_equal(shown(&b), "HELD");
    ask_as(&b, "carol", "h2", PST_JOB_ACTION_HOLD, id);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason, "the job is held already, by user bob");
    ask_as(&b, "ann", "u1", PST_JOB_ACTION_RELEASE, id);
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "NOT_YOURS");
    ask_as(&b, "ann", "x1", PST_JOB_ACTION_HALT, id); /* nor by halting and resuming it */
    ask_as(&b, "ann", "x2", PST_JOB_ACTION_RESUME, id);
    assert_string_equal(shown(&b), "RESUMED QUEUED");
    lcm(&b, "running", 4);
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_QUEUED);
    restart(&b, (const char *[]){id}, 1);
    lcm(&b, "running", 4);
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_QUEUED);
    ask_as(&b, "carol", "u2", PST_JOB_ACTION_RELEASE, id); /* another operator */
    assert_int_equal(state(&b, id), PST_JOB_PUBLIC_STATE_PENDING);
    done(&b);
}

/* What the gateway says of a role is believed where the Trainer was told so, and nowhere else: others may write that topic, too. */
static void test_queue_a_mark_of_an_operator_counts_only_where_the_gateway_is_trusted(void **unused)
{
    for (int trusted = 0; trusted < 2; trusted++) {
        trainer_policy p = policy;
        p.operators = NULL;
        p.trust_gateway_roles = trusted;
        bench b = {.core = tcore_new(&p), .now = 1700000000LL * SECOND};
        pst_str_pair mark[] = {{(char *)"role", (char *)"operator"}};
        const char *id = submit(&b, "r1", simple);
        pst_job_request r = {.request_id = (char *)"t1",
                             .user = (char *)"eve",
                             .action = PST_JOB_ACTION_TERMINATE,
                             .training_id = (char *)id,
                             .options = mark,
                             .n_options = 1};
        feed(&b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
        if (trusted)
            assert_string_equal(shown(&b), "TERMINATED");
        else
            assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "NOT_YOURS");
        done(&b);
    }
}

static const char *submit_after(bench *b, const char *request_id, const char *first, const char *second)
{
    char *manifest = pst_sprintf("name: a\ncpus: 1\nframework: {name: custom, version: 1, command: run}\npenstock: {after: [%s%s%s]}\n",
                                 first, second ? ", " : "", second ? second : "");
    const char *id = submit(b, request_id, manifest);
    free(manifest);
    return id;
}

static void test_queue_a_job_waits_until_others_are_completed(void **unused)
{
    bench b = start();
    char one[64], two[64], last[64], free_one[64];
    lcm(&b, "running", 3);
    strcpy(one, submit(&b, "r1", simple));
    strcpy(two, submit(&b, "r2", simple));
    strcpy(last, submit_after(&b, "r3", one, two));
    assert_string_equal(shown(&b), "RECEIVED ADMITTED QUEUED");
    char *why = pst_sprintf("it waits until %s and 1 more are COMPLETED (penstock.after)", one);
    assert_string_equal(tcore_job(b.core, last)->reason, why);
    strcpy(free_one, submit(&b, "r4", simple)); /* need not wait behind it */
    assert_int_equal(state(&b, free_one), PST_JOB_PUBLIC_STATE_PENDING);
    ends(&b, one);
    assert_int_equal(state(&b, last), PST_JOB_PUBLIC_STATE_QUEUED);
    assert_int_equal(tcore_job(b.core, last)->n_after, 1);
    ask_as(&b, "ann", "d1", PST_JOB_ACTION_DELETE, one); /* it was COMPLETED: nobody waits for it any more */
    assert_int_equal(state(&b, last), PST_JOB_PUBLIC_STATE_QUEUED);
    restart(&b, (const char *[]){two, last, free_one}, 3);
    lcm(&b, "running", 3);
    ends(&b, two);
    assert_int_equal(state(&b, last), PST_JOB_PUBLIC_STATE_PENDING);
    free(why);
    done(&b);
}

static void test_queue_a_job_fails_when_what_it_waits_for_ends_otherwise(void **unused)
{
    bench b = start();
    char one[64], two[64], three[64], gone[64];
    strcpy(one, submit(&b, "r1", simple)); /* no node yet */
    strcpy(two, submit_after(&b, "r2", one, NULL));
    strcpy(three, submit_after(&b, "r3", two, NULL));
    ask_as(&b, "ann", "t1", PST_JOB_ACTION_HALT, one);
    assert_int_equal(state(&b, two), PST_JOB_PUBLIC_STATE_QUEUED);
    ask_as(&b, "ann", "t2", PST_JOB_ACTION_TERMINATE, one);
    assert_int_equal(state(&b, two), PST_JOB_PUBLIC_STATE_FAILED); /* and what waits for this one, with it */
    assert_int_equal(state(&b, three), PST_JOB_PUBLIC_STATE_FAILED);
    char *why = pst_sprintf("%s, for which it waited (penstock.after), is TERMINATED", one);
    assert_string_equal(tcore_job(b.core, two)->reason, why);
    assert_string_equal(tcore_job(b.core, two)->reason_code, "AFTER");
    free(why);
    strcpy(gone, submit(&b, "r4", simple));
    strcpy(two, submit_after(&b, "r5", gone, NULL));
    ask_as(&b, "ann", "d1", PST_JOB_ACTION_DELETE, gone);
    assert_int_equal(state(&b, two), PST_JOB_PUBLIC_STATE_FAILED);
    submit_after(&b, "r6", gone, NULL);
    assert_string_equal(shown(&b), "REJECTED");
    assert_non_null(strstr(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason, "any more: it was deleted"));
    submit_after(&b, "r7", "training-nobody", NULL);
    assert_non_null(strstr(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason, "penstock.after: line 4: no job has the id training-nobody"));
    char bad[64];
    pst_training_id("ann", "r7", bad);
    submit_after(&b, "r8", bad, NULL);
    assert_non_null(strstr(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason, "was REJECTED"));
    done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queue_a_job_submitted_with_hold_waits_for_its_release),
        cmocka_unit_test(test_queue_hold_is_for_what_waits_and_says_what_to_do_otherwise),
        cmocka_unit_test(test_queue_a_mark_of_an_operator_counts_only_where_the_gateway_is_trusted),
        cmocka_unit_test(test_queue_what_an_operator_holds_its_owner_cannot_release),
        cmocka_unit_test(test_queue_a_job_waits_until_others_are_completed),
        cmocka_unit_test(test_queue_a_job_fails_when_what_it_waits_for_ends_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
