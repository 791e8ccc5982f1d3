/* test_trainer_gang.c - jobs of several kinds of processes: what they are charged, whose end is the job's, after which end another generation comes. */
#include "schemas/manifest.h"
#include "schemas/job_state.h"
#include "schemas/training_id.h"
#include "trainer/trainer_core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND 1000000
#define HEAD   "name: g\ncpus: 1\nmemory: 256 MiB\nframework: {name: custom, version: 1, command: run}\n"
static const char all_roles[] =
    HEAD "penstock: {grace: 10s, roles: {chief: {cpus: 2}, worker: {count: 2, memory: 512 MiB}, ps: {cpus: 0.5}, evaluator: {}}}\n";

typedef struct bench {
    tcore *core;
    trainer_actions out;
    int64_t now;
    char id[64];
} bench;

static void feed(bench *b, trainer_in in)
{
    b->now += 1000;
    trainer_actions_clear(&b->out);
    tcore_step(b->core, &in, b->now, &b->out);
}

static void beat(bench *b)
{
    pst_worker_state w = {
        .kind = (char *)"lcm", .site = (char *)"local", .state = (char *)"running", .cpus = 8, .memory_bytes = (int64_t)8 << 30, .gpus = 1};
    feed(b, (trainer_in){.kind = PST_TRAINER_WORKER, .worker = &w, .seen_us = b->now});
}

static bench start(const char *manifest)
{
    trainer_policy policy = PST_TRAINER_POLICY_DEFAULT;
    bench b = {.core = tcore_new(&policy), .now = 1700000000LL * SECOND};
    pst_job_request r = {.request_id = (char *)"r", .user = (char *)"ann", .action = PST_JOB_ACTION_SUBMIT, .manifest = (char *)manifest};
    beat(&b);
    feed(&b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
    pst_training_id("ann", "r", b.id);
    return b;
}

static void done(bench *b)
{
    trainer_actions_done(&b->out);
    tcore_free(b->core);
}

static const pst_job_state *job(const bench *b)
{
    return tcore_job(b->core, b->id);
}

static void told(bench *b, const char *process, pst_report_type type, int exit_code, int signal, const char *reason)
{
    pst_process_report r = {.training_id = b->id,
                            .generation = job(b)->generation,
                            .process = (char *)process,
                            .type = type,
                            .time = b->now,
                            .reporter = (char *)"supervisor:h",
                            .has_exit_code = type == PST_REPORT_TYPE_EXITED && !signal,
                            .exit_code = exit_code,
                            .has_signal = signal,
                            .signal = signal,
                            .reason_code = (char *)(signal || exit_code ? "C201" : NULL),
                            .reason = (char *)reason};
    feed(b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
}

static void ended(bench *b, const char *process, int exit_code)
{
    told(b, process, PST_REPORT_TYPE_EXITED, exit_code, 0, NULL);
}

static void tick(bench *b, int64_t after_s)
{
    b->now += after_s * SECOND;
    feed(b, (trainer_in){.kind = PST_TRAINER_TICK, .caught_up = true});
}

static int commands(const bench *b, enum pst_job_command_type type)
{
    int n = 0;
    for (size_t i = 0; i < b->out.n; i++)
        n += b->out.at[i].kind == PST_DO_COMMAND && b->out.at[i].command.command == type;
    return n;
}

/* The core made anew from the states that it published, as after a restart of the Trainer. */
static void restart(bench *b)
{
    trainer_policy policy = PST_TRAINER_POLICY_DEFAULT;
    tcore *fresh = tcore_new(&policy);
    tcore_load(fresh, job(b));
    tcore_loaded(fresh);
    tcore_free(b->core);
    b->core = fresh;
    beat(b);
}

static void test_gang_is_charged_role_by_role(void **unused)
{
    static const char *const names[] = {"chief-1", "worker-1", "worker-2", "ps-1", "evaluator-1"};
    bench b = start(all_roles);
    int64_t used[3];
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_PENDING);
    assert_int_equal(job(&b)->n_processes, 5);
    assert_int_equal(job(&b)->learners, 3);
    for (int i = 0; i < 5; i++)
        assert_string_equal(job(&b)->processes[i].name, names[i]);
    assert_true(tcore_used(b.core, "local", used));
    assert_int_equal(used[0], 5500);
    assert_int_equal(used[1], (int64_t)(3 * 256 + 2 * 512) << 20);
    restart(&b);
    assert_true(tcore_used(b.core, "local", used));
    assert_int_equal(used[0], 5500);
    done(&b);
}

/* Workers and evaluators have the grace time for their last lines, parameter servers would serve for ever. */
static void test_gang_ends_with_its_chief(void **unused)
{
    for (int again = 0; again < 2; again++) {
        bench b = start(all_roles);
        ended(&b, "chief-1", 0);
        assert_int_equal(commands(&b, PST_JOB_COMMAND_TYPE_KILL), 0);
        if (again)
            restart(&b);
        tick(&b, 5);
        assert_int_equal(commands(&b, PST_JOB_COMMAND_TYPE_KILL), 0);
        ended(&b, "worker-1", 1); /* what the others make of it is no failure of the job's any more */
        assert_null(job(&b)->reason_code);
        tick(&b, 11);
        assert_int_equal(commands(&b, PST_JOB_COMMAND_TYPE_KILL), 1);
        tick(&b, 11);
        assert_int_equal(commands(&b, PST_JOB_COMMAND_TYPE_KILL), 0); /* once */
        told(&b, "worker-2", PST_REPORT_TYPE_EXITED, 0, 15, NULL);
        told(&b, "evaluator-1", PST_REPORT_TYPE_EXITED, 0, 15, NULL);
        told(&b, "ps-1", PST_REPORT_TYPE_EXITED, 0, 9, NULL);
        assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_COMPLETED);
        assert_non_null(strstr(job(&b)->reason, "the chief exited with 0"));
        done(&b);
    }
}

static void test_gang_without_a_chief_ends_with_all_that_are_ranked(void **unused)
{
    bench b = start(HEAD "penstock: {roles: {worker: {count: 2}, own: {}, ps: 1}}\n");
    ended(&b, "worker-1", 0);
    ended(&b, "own-1", 0);
    assert_int_equal(commands(&b, PST_JOB_COMMAND_TYPE_KILL), 0);
    ended(&b, "worker-2", 0);
    assert_int_equal(commands(&b, PST_JOB_COMMAND_TYPE_KILL), 1); /* only the parameter server is left */
    told(&b, "ps-1", PST_REPORT_TYPE_EXITED, 0, 15, NULL);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_COMPLETED);
    done(&b);
}

/* A role is what stands before a process's last `-`: names that only begin as known ones are roles of their own. */
static void test_gang_of_roles_that_begin_as_known_ones(void **unused)
{
    bench b = start(HEAD "penstock: {grace: 1s, roles: {ps-gpu: {count: 2}, chief-a: {}, evaluator-eu: {}}}\n");
    tick(&b, 5);
    assert_int_equal(commands(&b, PST_JOB_COMMAND_TYPE_KILL), 0);
    assert_int_equal(job(&b)->learners, 4);
    static const char *const all[] = {"chief-a-1", "evaluator-eu-1", "ps-gpu-1", "ps-gpu-2"};
    for (int i = 0; i < 4; i++) {
        assert_true(pst_job_state_is_live(job(&b)->state));
        ended(&b, all[i], 0);
        tick(&b, 5);
        assert_int_equal(commands(&b, PST_JOB_COMMAND_TYPE_KILL), 0);
    }
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_COMPLETED);
    done(&b);
}

static void test_gang_member_that_fails_ends_all_and_is_named(void **unused)
{
    static const char *const members[] = {"chief-1", "worker-2", "ps-1", "evaluator-1"};
    for (int i = 0; i < 4; i++) {
        bench b = start(all_roles);
        ended(&b, members[i], 1);
        assert_int_equal(commands(&b, PST_JOB_COMMAND_TYPE_KILL), 1);
        assert_string_equal(job(&b)->failed_process, members[i]);
        for (int k = 0; k < 5; k++) {
            bool lives = strcmp(members[i], job(&b)->processes[k].name) != 0;
            if (lives)
                assert_int_not_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_FAILED);
            told(&b, job(&b)->processes[k].name, PST_REPORT_TYPE_EXITED, 0, 15, NULL);
        }
        assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_FAILED);
        assert_non_null(strstr(job(&b)->reason, members[i]));
        done(&b);
    }
}

/* How the first one ended decides; that we ended the others with a signal says nothing. */
static void test_gang_is_tried_again_by_rule(void **unused)
{
    static const struct {
        const char *on;
        int exit_code, signal;
        const char *reason;
        bool again;
    } cases[] = {{"exit:3", 3, 0, NULL, true},
                 {"exit:3", 4, 0, NULL, false},
                 {"signal:9, exit:137", 0, 9, NULL, true},
                 {"signal:9, exit:137", 137, 0, NULL, true},
                 {"signal:15", 0, 9, NULL, false},
                 {"lost", 1, 0, NULL, false},
                 {"oom", 0, 9, "the command was ended by signal 9 (KILL): out of memory: it wanted more", true},
                 {"oom", 0, 9, "the command was ended by signal 9 (KILL)", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int restarted = 0; restarted < 2; restarted++) {
            char *text = pst_sprintf("%slearners: 2\npenstock: {retries: {max: 1, on: [%s]}}\n", HEAD, cases[i].on);
            bench b = start(text);
            told(&b, "learner-2", PST_REPORT_TYPE_EXITED, cases[i].exit_code, cases[i].signal, cases[i].reason);
            if (restarted)
                restart(&b);
            told(&b, "learner-1", PST_REPORT_TYPE_EXITED, 0, 15, NULL);
            if (job(&b)->state != (cases[i].again ? PST_JOB_PUBLIC_STATE_QUEUED : PST_JOB_PUBLIC_STATE_FAILED))
                fail_msg("on [%s] after %d/%d: %s", cases[i].on, cases[i].exit_code, cases[i].signal,
                         pst_job_public_state_text(job(&b)->state));
            if (cases[i].again) {
                tick(&b, 1);
                assert_int_equal(job(&b)->generation, 2);
                assert_string_equal(job(&b)->failed_process, "");
            }
            done(&b);
            free(text);
        }
}

/* Lost processes have the platform's tries first, and those of the manifest where it says so. */
static void test_gang_lost_is_a_rule(void **unused)
{
    for (int named = 0; named < 2; named++) {
        bench b = start(named ? HEAD "penstock: {retries: {max: 1, on: [lost]}}\n" : HEAD "penstock: {retries: {max: 1, on: [exit:1]}}\n");
        int tries = 0;
        for (; job(&b)->state != PST_JOB_PUBLIC_STATE_FAILED && tries < 20; tries++) {
            told(&b, "learner-1", PST_REPORT_TYPE_LOST, 0, 0, NULL);
            beat(&b);
            tick(&b, 20);
        }
        assert_int_equal(tries, named ? 5 : 4);
        done(&b);
    }
}

static void reachable(bench *b, const char *process, const char *address, const char *port)
{
    pst_str_pair details[] = {{(char *)"host", (char *)"h"},
                              {(char *)"address", (char *)address},
                              {(char *)"port", (char *)port},
                              {(char *)"master_port", (char *)"4001"},
                              {(char *)"other_port", (char *)"4002"}};
    pst_process_report r = {.training_id = b->id,
                            .generation = job(b)->generation,
                            .process = (char *)process,
                            .type = PST_REPORT_TYPE_REACHABLE,
                            .time = b->now,
                            .reporter = (char *)"supervisor:h",
                            .details = details,
                            .n_details = sizeof details / sizeof *details};
    feed(b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
}

/* Whoever asks why it does not start is told for whom it waits, also after a restart; what is no address is none. */
static void test_gang_says_whose_addresses_it_waits_for(void **unused)
{
    static const struct {
        const char *process, *address, *port;
    } bad[] = {{"worker-1", "not-numeric", "4000"}, {"worker-1", "127.0.0.1 evil", "4000"},
               {"worker-1", "127.0.0.1", "0"},      {"worker-1", "127.0.0.1", "65536"},
               {"worker-1", "127.0.0.1", "40x"},    {"worker-1", "", "4000"},
               {"worker-9", "127.0.0.1", "4000"},   {NULL, "127.0.0.1", "4000"}};
    bench b = start(all_roles);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        reachable(&b, bad[i].process, bad[i].address, bad[i].port);
    for (size_t i = 0; i < job(&b)->n_processes; i++)
        assert_string_equal(job(&b)->processes[i].address, "");
    tick(&b, 5);
    assert_null(job(&b)->reason); /* none has said anything: perhaps they are of a version that does not */
    reachable(&b, "chief-1", "127.0.0.1", "4000");
    reachable(&b, "chief-1", "127.0.0.1", "4000");
    reachable(&b, "ps-1", "::1", "4000");
    tick(&b, 1);
    assert_null(job(&b)->reason);
    tick(&b, 3);
    assert_string_equal(job(&b)->reason, "waits for the addresses of worker-1 and 2 others");
    restart(&b);
    assert_string_equal(job(&b)->processes[0].address, "127.0.0.1");
    assert_int_equal(job(&b)->processes[0].port, 4000);
    reachable(&b, "worker-1", "127.0.0.1", "4000");
    reachable(&b, "evaluator-1", "127.0.0.1", "4000");
    tick(&b, 1);
    tick(&b, 3);
    assert_string_equal(job(&b)->reason, "waits for the addresses of worker-2");
    reachable(&b, "worker-2", "127.0.0.1", "4000");
    tick(&b, 1);
    assert_null(job(&b)->reason);
    for (int i = 0; i < 40; i++) {
        beat(&b);
        tick(&b, 10);
    }
    assert_null(job(&b)->reason_code); /* it has met: downloads may last */
    done(&b);
}

static void test_gang_that_does_not_meet_ends_with_a_sentence(void **unused)
{
    bench b = start(HEAD "learners: 2\n");
    reachable(&b, "learner-1", "127.0.0.1", "4000");
    int seconds = 0;
    for (; !job(&b)->reason_code && seconds < 1000; seconds += 10) {
        beat(&b);
        tick(&b, 10);
    }
    assert_in_range(seconds, 290, 320);
    assert_string_equal(job(&b)->failed_process, "learner-2");
    assert_non_null(strstr(job(&b)->reason, "learner-2"));
    assert_int_equal(commands(&b, PST_JOB_COMMAND_TYPE_KILL), 1);
    told(&b, "learner-1", PST_REPORT_TYPE_EXITED, 0, 15, NULL);
    told(&b, "learner-2", PST_REPORT_TYPE_LOST, 0, 0, NULL);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_QUEUED); /* the platform's fault, and its try */
    beat(&b);
    tick(&b, 5);
    assert_int_equal(job(&b)->generation, 2);
    assert_string_equal(job(&b)->processes[0].address, ""); /* of its own */
    done(&b);
}

/* What starts while it is not known whose clock is right starts when its reporter says, however wrong ours is: its deadline is its own. */
static void test_gang_deadline_begins_by_its_reporters_clock_while_ours_is_in_doubt(void **unused)
{
    (void)unused;
    for (int sign = -1; sign <= 1; sign += 2) {
        bench b = start(HEAD "penstock: {deadline: 1m}\n");
        int64_t began = b.now + 300LL * SECOND, day_us = 86400LL * SECOND;
        pst_process_report r = {.training_id = b.id,
                                .generation = 1,
                                .process = (char *)"learner-1",
                                .reporter = (char *)"supervisor:h",
                                .type = PST_REPORT_TYPE_RUNNING,
                                .time = began};
        b.now = began + sign * 8 * day_us;
        feed(&b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &r, .published_us = began, .unsettled = true});
        assert_true(job(&b)->started_at == began);
        b.now = began + 30LL * SECOND;
        feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
        assert_null(job(&b)->reason_code);
        b.now = began + 61LL * SECOND;
        feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
        assert_string_equal(job(&b)->reason_code, "DEADLINE");
        done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gang_is_charged_role_by_role),
                                       cmocka_unit_test(test_gang_ends_with_its_chief),
                                       cmocka_unit_test(test_gang_without_a_chief_ends_with_all_that_are_ranked),
                                       cmocka_unit_test(test_gang_of_roles_that_begin_as_known_ones),
                                       cmocka_unit_test(test_gang_member_that_fails_ends_all_and_is_named),
                                       cmocka_unit_test(test_gang_is_tried_again_by_rule),
                                       cmocka_unit_test(test_gang_lost_is_a_rule),
                                       cmocka_unit_test(test_gang_says_whose_addresses_it_waits_for),
                                       cmocka_unit_test(test_gang_that_does_not_meet_ends_with_a_sentence),
                                       cmocka_unit_test(test_gang_deadline_begins_by_its_reporters_clock_while_ours_is_in_doubt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
