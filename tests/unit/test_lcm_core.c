/* test_lcm_core.c - what the LCM decides: each rule by itself, then all of them against a simulated world with crashes, duplicates,
 * lost supervisors and random orders, seeded. */
#include "lcm/lcm_core.h"
#include "lcm/process_fsm.h"

#include "common/base/array.h"
#include "common/base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID "training-a"

static lcm_actions run(lcm_core *l, lcm_event e)
{
    lcm_actions a = {0};
    if (!*e.id.training_id)
        strcpy(e.id.training_id, ID);
    lcm_step(l, &e, &a);
    return a;
}

static lcm_event command(pst_lcm_command_kind kind, int generation, int learners, int64_t now_us)
{
    return (lcm_event){.type = PST_LCM_COMMAND,
                       .now_us = now_us,
                       .id = {.generation = generation},
                       .command = {.kind = kind, .sets = {{"learner", 1, learners, 0, 0}}, .n_sets = 1, .grace_ms = 1000}};
}

static int count(const lcm_actions *a, lcm_action_type type)
{
    int n = 0;
    for (size_t i = 0; i < a->n; i++)
        n += a->at[i].type == type;
    return n;
}

static const lcm_action *find(const lcm_actions *a, lcm_action_type type, lcm_report_type what)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->at[i].type == type && (!what || a->at[i].report == what))
            return &a->at[i];
    return NULL;
}

/* Steps and drops the actions, checking how many of a type there were. */
static void expect(lcm_core *l, lcm_event e, lcm_action_type type, int n)
{
    lcm_actions a = run(l, e);
    if (count(&a, type) != n)
        fail_msg("event %d: %d actions of type %d, wanted %d", e.type, count(&a, type), type, n);
    lcm_actions_done(&a);
}

static lcm_core *fresh(void)
{
    lcm_core *l = lcm_new(2);
    expect(l, (lcm_event){.type = PST_LCM_RECOVERED}, PST_LCM_REPORT, 0);
    return l;
}

static void deploy(lcm_core *l, int generation, int learners)
{
    lcm_actions a = run(l, command(PST_LCM_DEPLOY, generation, learners, 0));
    assert_int_equal(a.n, 1);
    assert_int_equal(a.at[0].type, PST_LCM_INTEND); /* nothing starts and nothing is said before the intent is on disk */
    lcm_actions_done(&a);
}

static lcm_event intended(int generation)
{
    return (lcm_event){.type = PST_LCM_INTENDED, .id = {.generation = generation}};
}

static lcm_event noticed(int generation, const char *process, pst_lcm_seen seen, const pst_rundir_exit *exit, bool published)
{
    return (lcm_event){
        .type = PST_LCM_NOTICED, .id = pst_process_id_of(ID, generation, process), .seen = seen, .exit = exit, .published = published};
}

static void test_lcm_deploy_writes_intent_then_reports_then_starts_all(void **state)
{
    lcm_core *l = fresh();
    deploy(l, 1, 3);
    lcm_actions a = run(l, intended(1));
    assert_int_equal(a.n, 4);
    assert_int_equal(a.at[0].type, PST_LCM_REPORT);
    assert_int_equal(a.at[0].report, PST_LCM_REPORT_DEPLOYING);
    assert_string_equal(a.at[3].id.process, "learner-3");
    lcm_actions_done(&a);
    expect(l, command(PST_LCM_DEPLOY, 1, 3, 0), PST_LCM_START, 0); /* the same command again */
    expect(l, intended(1), PST_LCM_START, 0);
    lcm_free(l);
}

static void test_lcm_failed_intent_is_reported_and_nothing_starts(void **state)
{
    lcm_core *l = fresh();
    deploy(l, 1, 1);
    lcm_actions a = run(l, (lcm_event){.type = PST_LCM_INTENT_FAILED, .id = {.generation = 1}, .text = "disk full"});
    assert_int_equal(count(&a, PST_LCM_START), 0);
    const lcm_action *r = find(&a, PST_LCM_REPORT, PST_LCM_REPORT_DEPLOY_FAILED);
    assert_non_null(r);
    assert_string_equal(r->exit.reason, "disk full");
    lcm_actions_done(&a);
    lcm_free(l);
}

static void test_lcm_older_generations_commands_are_ignored(void **state)
{
    lcm_core *l = fresh();
    deploy(l, 3, 1);
    expect(l, intended(3), PST_LCM_START, 1);
    lcm_actions a = run(l, command(PST_LCM_DEPLOY, 2, 1, 0));
    assert_int_equal(a.n, 0);
    lcm_actions_done(&a);
    a = run(l, command(PST_LCM_KILL, 2, 0, 0));
    assert_int_equal(a.n, 0);
    lcm_actions_done(&a);
    assert_int_equal(lcm_generation(l, ID), 3);
    lcm_free(l);
}

static void test_lcm_next_generation_waits_until_the_last_process_of_the_old_is_gone(void **state)
{
    lcm_core *l = fresh();
    pst_rundir_exit x = {.has_signal = true, .signal = 15};
    deploy(l, 1, 2);
    expect(l, intended(1), PST_LCM_START, 2);
    deploy(l, 2, 1);
    lcm_actions a = run(l, intended(2));
    assert_int_equal(count(&a, PST_LCM_STOP), 2);
    assert_int_equal(count(&a, PST_LCM_START), 0);
    lcm_actions_done(&a);
    expect(l, noticed(1, "learner-1", PST_LCM_SEEN_ENDED, &x, true), PST_LCM_START, 0);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 1}, PST_LCM_START, 0);
    expect(l, noticed(1, "learner-2", PST_LCM_SEEN_VANISHED, NULL, false), PST_LCM_END, 1);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 2}, PST_LCM_START, 0);
    expect(l, (lcm_event){.type = PST_LCM_EMPTIED, .published = true, .id = pst_process_id_of(ID, 1, "learner-2")}, PST_LCM_START, 1);
    lcm_free(l);
}

static void test_lcm_halt_stops_once_then_uses_force_after_grace_and_margin(void **state)
{
    lcm_core *l = fresh();
    deploy(l, 1, 1);
    expect(l, intended(1), PST_LCM_START, 1);
    lcm_actions a = run(l, command(PST_LCM_HALT, 1, 0, 0));
    assert_int_equal(a.n, 1);
    assert_int_equal(a.at[0].type, PST_LCM_STOP);
    assert_int_equal(a.at[0].stop_reason, PST_STOP_REASON_HALT);
    lcm_actions_done(&a);
    a = run(l, command(PST_LCM_HALT, 1, 0, 0)); /* again: nothing more */
    assert_int_equal(a.n, 0);
    lcm_actions_done(&a);
    a = run(l, command(PST_LCM_KILL, 1, 0, 0)); /* stronger: goes on record */
    assert_int_equal(a.n, 1);
    assert_int_equal(a.at[0].stop_reason, PST_STOP_REASON_KILL);
    lcm_actions_done(&a);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 1000000 + PST_LCM_MARGIN_US - 1}, PST_LCM_END, 0);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 1000000 + PST_LCM_MARGIN_US}, PST_LCM_END, 1);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 1000001 + PST_LCM_MARGIN_US}, PST_LCM_END, 1); /* until confirmed */
    a = run(l, (lcm_event){.type = PST_LCM_EMPTIED, .published = true, .id = pst_process_id_of(ID, 1, "learner-1")});
    const lcm_action *r = find(&a, PST_LCM_REPORT, PST_LCM_REPORT_LOST);
    assert_non_null(r);
    assert_non_null(strstr(r->exit.reason, "force"));
    assert_int_equal(count(&a, PST_LCM_MARK_ENDED), 1);
    lcm_actions_done(&a);
    lcm_free(l);
}

static void test_lcm_supervisor_that_only_publishes_is_left_alone(void **state)
{
    lcm_core *l = fresh();
    pst_rundir_exit x = {.has_exit_code = true};
    deploy(l, 1, 1);
    expect(l, intended(1), PST_LCM_START, 1);
    expect(l, command(PST_LCM_HALT, 1, 0, 0), PST_LCM_STOP, 1);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 60000000}, PST_LCM_END, 1);
    expect(l, noticed(1, "learner-1", PST_LCM_SEEN_FLUSHING, NULL, false), PST_LCM_REPORT, 0);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 600000000}, PST_LCM_END, 0);
    /* It does not count as living: the next generation may start. */
    deploy(l, 2, 1);
    expect(l, intended(2), PST_LCM_START, 1);
    expect(l, noticed(1, "learner-1", PST_LCM_SEEN_ENDED, &x, true), PST_LCM_REPORT, 0);
    lcm_free(l);
}

static void test_lcm_unpublished_end_starts_a_publisher_with_back_off(void **state)
{
    lcm_core *l = fresh();
    pst_rundir_exit x = {.has_exit_code = true};
    deploy(l, 1, 1);
    expect(l, intended(1), PST_LCM_START, 1);
    expect(l, noticed(1, "learner-1", PST_LCM_SEEN_ENDED, &x, false), PST_LCM_START, 1);
    expect(l, noticed(1, "learner-1", PST_LCM_SEEN_ENDED, &x, false), PST_LCM_START, 0);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 999999}, PST_LCM_START, 0);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 1000000}, PST_LCM_START, 1);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 9000000}, PST_LCM_START, 0); /* it runs */
    expect(l, noticed(1, "learner-1", PST_LCM_SEEN_ENDED, &x, true), PST_LCM_START, 0);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 900000000}, PST_LCM_START, 0);
    assert_true(lcm_idle(l));
    lcm_free(l);
}

static void test_lcm_halt_of_what_is_not_here_is_answered(void **state)
{
    lcm_core *l = fresh();
    lcm_actions a = run(l, command(PST_LCM_HALT, 4, 0, 0));
    assert_int_equal(a.n, 1);
    assert_int_equal(a.at[0].report, PST_LCM_REPORT_LOST);
    assert_string_equal(a.at[0].id.process, "");
    assert_int_equal(a.at[0].id.generation, 4);
    lcm_actions_done(&a);
    expect(l, (lcm_event){.type = PST_LCM_EXPECTED, .id = {.generation = 4}}, PST_LCM_REPORT, 1);
    deploy(l, 5, 1);
    expect(l, (lcm_event){.type = PST_LCM_EXPECTED, .id = {.generation = 5}}, PST_LCM_REPORT, 0);
    lcm_free(l);
}

static void test_lcm_halt_before_the_start_ends_it_on_record(void **state)
{
    lcm_core *l = fresh();
    deploy(l, 1, 2);
    lcm_actions a = run(l, command(PST_LCM_HALT, 1, 0, 0)); /* the intent is not even on disk */
    assert_int_equal(count(&a, PST_LCM_REPORT), 2);
    assert_int_equal(count(&a, PST_LCM_MARK_ENDED), 2);
    lcm_actions_done(&a);
    expect(l, intended(1), PST_LCM_START, 0);
    expect(l, command(PST_LCM_HALT, 1, 0, 0), PST_LCM_REPORT, 2); /* asked again: told again */
    lcm_free(l);
}

static void test_lcm_recovery_adopts_starts_ends_and_publishes(void **state)
{
    lcm_core *l = lcm_new(2);
    pst_rundir_exit x = {.has_exit_code = true, .exit_code = 3};
    lcm_event g = {.type = PST_LCM_FOUND_GANG,
                   .id = {.generation = 2},
                   .command = {.kind = PST_LCM_DEPLOY, .sets = {{"learner", 1, 5, 0, 0}}, .n_sets = 1, .grace_ms = 1}};
    expect(l, g, PST_LCM_START, 0);
    lcm_event p = {.type = PST_LCM_FOUND_PROCESS, .id = pst_process_id_of(ID, 2, "learner-1"), .seen = PST_LCM_SEEN_ALIVE};
    expect(l, p, PST_LCM_START, 0);
    strcpy(p.id.process, "learner-2");
    p.seen = PST_LCM_SEEN_ABSENT;
    expect(l, p, PST_LCM_START, 0);
    strcpy(p.id.process, "learner-3");
    p.seen = PST_LCM_SEEN_VANISHED;
    expect(l, p, PST_LCM_END, 1);
    strcpy(p.id.process, "learner-4");
    p.seen = PST_LCM_SEEN_ENDED;
    p.exit = &x;
    expect(l, p, PST_LCM_START, 1);
    strcpy(p.id.process, "learner-5");
    p.published = true;
    expect(l, p, PST_LCM_START, 0);
    lcm_actions a = run(l, (lcm_event){.type = PST_LCM_RECOVERED});
    assert_int_equal(a.n, 1);
    assert_int_equal(a.at[0].type, PST_LCM_START);
    assert_string_equal(a.at[0].id.process, "learner-2");
    lcm_actions_done(&a);
    a = run(l, command(PST_LCM_DEPLOY, 2, 5, 0)); /* redelivered: known, and what had ended is told again */
    assert_int_equal(a.n, 1);
    assert_int_equal(a.at[0].report, PST_LCM_REPORT_EXITED);
    assert_int_equal(a.at[0].exit.exit_code, 3);
    lcm_actions_done(&a);
    lcm_free(l);
}

static void test_lcm_gpus_are_given_once_and_waited_for(void **state)
{
    lcm_core *l = fresh();
    lcm_event e = command(PST_LCM_DEPLOY, 1, 3, 0);
    e.command.sets[0].gpus = 1;
    expect(l, e, PST_LCM_INTEND, 1);
    lcm_actions a = run(l, intended(1));
    assert_int_equal(count(&a, PST_LCM_START), 2);
    assert_int_equal(a.at[1].devices.n, 1);
    assert_int_equal(a.at[2].devices.n, 1);
    assert_int_equal(a.at[1].devices.at[0], 0);
    assert_int_equal(a.at[2].devices.at[0], 1);
    lcm_actions_done(&a);
    pst_rundir_exit x = {.has_exit_code = true};
    a = run(l, noticed(1, "learner-2", PST_LCM_SEEN_ENDED, &x, true));
    assert_int_equal(count(&a, PST_LCM_START), 1);
    assert_int_equal(a.at[0].devices.n, 1);
    assert_int_equal(a.at[0].devices.at[0], 1); /* the one that was given back */
    lcm_actions_done(&a);
    e = command(PST_LCM_DEPLOY, 1, 1, 0);
    strcpy(e.id.training_id, "training-b");
    e.command.sets[0].gpus = 3;
    expect(l, e, PST_LCM_INTEND, 1);
    e = intended(1);
    strcpy(e.id.training_id, "training-b");
    a = run(l, e);
    assert_int_equal(count(&a, PST_LCM_START), 0);
    assert_non_null(find(&a, PST_LCM_REPORT, PST_LCM_REPORT_DEPLOY_FAILED));
    lcm_actions_done(&a);
    lcm_free(l);
}

static void test_lcm_stop_site_ends_all_with_its_reason_and_becomes_idle(void **state)
{
    lcm_core *l = fresh();
    pst_rundir_exit x = {.has_signal = true, .signal = 15, .stop_reason = PST_STOP_REASON_PLATFORM_DOWN};
    deploy(l, 1, 2);
    expect(l, intended(1), PST_LCM_START, 2);
    lcm_actions a = run(l, (lcm_event){.type = PST_LCM_STOP_SITE, .now_us = 5});
    assert_int_equal(count(&a, PST_LCM_STOP), 2);
    assert_int_equal(a.at[0].stop_reason, PST_STOP_REASON_PLATFORM_DOWN);
    lcm_actions_done(&a);
    assert_false(lcm_idle(l));
    expect(l, noticed(1, "learner-1", PST_LCM_SEEN_ENDED, &x, true), PST_LCM_START, 0);
    assert_false(lcm_idle(l));
    /* The other one cannot publish (no broker): abandoned, and left to the next start. */
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 60000000}, PST_LCM_END, 1);
    lcm_event flushing = noticed(1, "learner-2", PST_LCM_SEEN_FLUSHING, NULL, false);
    flushing.now_us = 61000000;
    expect(l, flushing, PST_LCM_START, 0);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 80000000}, PST_LCM_ABANDON, 1);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 80000001}, PST_LCM_ABANDON, 0);
    expect(l, (lcm_event){.type = PST_LCM_TICK, .now_us = 99000000}, PST_LCM_END, 1); /* it hangs: force */
    expect(l, noticed(1, "learner-2", PST_LCM_SEEN_ENDED, &x, false), PST_LCM_START, 0);
    assert_true(lcm_idle(l));
    lcm_free(l);
}

static void test_lcm_clean_ends_what_lives_then_removes(void **state)
{
    lcm_core *l = fresh();
    pst_rundir_exit x = {.has_exit_code = true};
    deploy(l, 1, 1);
    expect(l, intended(1), PST_LCM_START, 1);
    lcm_actions a = run(l, command(PST_LCM_CLEAN, 1, 0, 0));
    assert_int_equal(count(&a, PST_LCM_STOP), 1);
    assert_int_equal(count(&a, PST_LCM_REMOVE), 0);
    lcm_actions_done(&a);
    a = run(l, noticed(1, "learner-1", PST_LCM_SEEN_ENDED, &x, true));
    assert_int_equal(count(&a, PST_LCM_REMOVE), 1);
    assert_non_null(find(&a, PST_LCM_REPORT, PST_LCM_REPORT_CLEANED));
    lcm_actions_done(&a);
    assert_int_equal(lcm_generation(l, ID), 0);
    a = run(l, command(PST_LCM_CLEAN, 1, 0, 0)); /* unknown here: says so at once */
    assert_int_equal(count(&a, PST_LCM_REMOVE), 1);
    lcm_actions_done(&a);
    lcm_free(l);
}

/* ---- the table of states -------------------------------------------------------------------------------------------------------- */

static bool leads(lcm_state from, lcm_state to)
{
    for (int c = 0; c < LCM_N_CAUSES; c++)
        if (lcm_fsm_allows(from, (lcm_cause)c, to))
            return true;
    return false;
}

static void test_lcm_fsm_lets_nothing_start_twice(void **state)
{
    bool reached[LCM_N_STATES] = {[LCM_STATE_WAITING] = true};
    for (int from = 0; from < LCM_N_STATES; from++) {
        assert_false(leads((lcm_state)from, LCM_STATE_WAITING));
        assert_int_equal(leads((lcm_state)from, LCM_STATE_ALIVE), from == LCM_STATE_WAITING);
        assert_true(from == LCM_STATE_ENDED || leads((lcm_state)from, LCM_STATE_ENDED)); /* nothing is stuck */
        for (int to = 0; to < LCM_N_STATES; to++)
            reached[to] |= leads((lcm_state)from, (lcm_state)to);
        assert_false(from != LCM_STATE_DRAINING && leads(LCM_STATE_ENDED, (lcm_state)from));
    }
    for (int s = 0; s < LCM_N_STATES; s++)
        assert_true(reached[s]);
    assert_true(lcm_fsm_allows(LCM_STATE_KILLING, LCM_CAUSE_EMPTIED, LCM_STATE_ENDED)); /* the only way out by force */
    assert_false(lcm_fsm_allows(LCM_STATE_KILLING, LCM_CAUSE_NOT_STARTED, LCM_STATE_ENDED));
}

/* An answer that was overtaken says nothing any more. */
static void test_lcm_late_failure_to_start_is_no_end(void **state)
{
    lcm_core *l = fresh();
    deploy(l, 1, 1);
    expect(l, intended(1), PST_LCM_START, 1);
    expect(l, noticed(1, "learner-1", PST_LCM_SEEN_VANISHED, NULL, false), PST_LCM_END, 1);
    lcm_event failed = {.type = PST_LCM_START_FAILED, .id = pst_process_id_of(ID, 1, "learner-1"), .text = "no memory"};
    expect(l, failed, PST_LCM_REPORT, 0); /* whether something of it lives, only the answer to END tells */
    assert_false(lcm_idle(l));
    expect(l, (lcm_event){.type = PST_LCM_EMPTIED, .published = true, .id = failed.id}, PST_LCM_REPORT, 1);
    expect(l, failed, PST_LCM_REPORT, 0);
    assert_true(lcm_idle(l));
    lcm_free(l);
}

/* ---- a simulated site ------------------------------------------------------------------------------------------------------- */

#define GENS  6
#define LEARN 3

typedef struct sim_process {
    bool supervisor, learner, exit, told, lost_marked;
    pst_rundir_stop_reason stop_reason;
    int starts, ends_reported;
} sim_process;

typedef struct sim {
    bool intent[GENS + 1], deployed_reported[GENS + 1];
    sim_process p[GENS + 1][LEARN];
    lcm_action *deferred; /* waiting for a commit; lost in a crash */
    size_t n_deferred, cap;
    lcm_event *answers; /* of the launcher, that wait for a poll; in order, and lost in a crash */
    size_t n_answers, cap_answers;
    lcm_core *l;
    int64_t now;
    unsigned seed;
    int highest;
} sim;

static unsigned rnd(sim *s, unsigned n)
{
    s->seed = s->seed * 1103515245u + 12345u;
    return (s->seed >> 16) % n;
}

static void feed(sim *s, lcm_event e);

static void answer(sim *s, lcm_event e)
{
    s->answers = pst_array_room(s->answers, s->n_answers, &s->cap_answers, sizeof *s->answers);
    s->answers[s->n_answers++] = e;
}

static void poll_launcher(sim *s)
{
    for (size_t i = 0; i < s->n_answers; i++)
        feed(s, s->answers[i]);
    s->n_answers = 0;
}

static sim_process *at(sim *s, const lcm_action *a)
{
    int i = atoi(a->id.process + 8) - 1;
    assert_true(i >= 0 && i < LEARN);
    return &s->p[a->id.generation][i];
}

static pst_lcm_seen observe(const sim_process *p)
{
    return p->exit         ? p->supervisor ? PST_LCM_SEEN_FLUSHING : PST_LCM_SEEN_ENDED
           : p->supervisor ? PST_LCM_SEEN_ALIVE
           : p->starts     ? PST_LCM_SEEN_VANISHED
                           : PST_LCM_SEEN_ABSENT;
}

static void perform(sim *s, const lcm_action *a)
{
    sim_process *p = *a->id.process ? at(s, a) : NULL;
    static const pst_rundir_exit killed = {.has_signal = true, .signal = 9};
    switch (a->type) {
    case PST_LCM_START:
        assert_false(p->supervisor);
        p->supervisor = true;
        if (rnd(s, 16) == 0) {
            p->supervisor = false;
            answer(s, (lcm_event){.type = PST_LCM_START_FAILED, .id = a->id, .text = "cannot fork"});
            break;
        }
        if (p->exit)
            break; /* a publisher */
        if (++p->starts > 1)
            fail_msg("seed: a process was started twice (generation %d %s)", a->id.generation, a->id.process);
        p->learner = true;
        for (int g = 1; g <= GENS; g++)
            for (int i = 0; g != a->id.generation && i < LEARN; i++)
                if (s->p[g][i].learner)
                    fail_msg("generation %d started while one of %d lives", a->id.generation, g);
        break;
    case PST_LCM_STOP: p->stop_reason = a->stop_reason; break;
    case PST_LCM_ABANDON:
        if (p->supervisor && p->exit) {
            p->supervisor = false;
            answer(s, noticed(a->id.generation, a->id.process, PST_LCM_SEEN_ENDED, &killed, p->told));
        }
        break;
    case PST_LCM_END:
        if (p->supervisor && p->exit && !a->force) {
            answer(s, noticed(a->id.generation, a->id.process, PST_LCM_SEEN_FLUSHING, NULL, false));
        } else if (rnd(s, 2)) {
            p->supervisor = p->learner = false;
            answer(s, (lcm_event){.type = PST_LCM_EMPTIED, .published = true, .id = a->id});
            if (p->exit)
                answer(s, noticed(a->id.generation, a->id.process, PST_LCM_SEEN_ENDED, &killed, p->told));
        }
        break;
    case PST_LCM_MARK_ENDED: p->exit = p->told = true; break;
    default: break;
    }
}

static void feed(sim *s, lcm_event e)
{
    if (!s->l)
        return;
    e.now_us = s->now;
    lcm_actions a = run(s->l, e);
    for (size_t i = 0; i < a.n; i++) {
        lcm_action *x = &a.at[i];
        if (x->type == PST_LCM_INTEND) {
            s->intent[x->id.generation] = true;
            if (s->l)
                feed(s, intended(x->id.generation));
        } else if (x->type == PST_LCM_REPORT && *x->id.process && x->report != PST_LCM_REPORT_DEPLOYING) {
            at(s, x)->ends_reported++;
        } else if (x->type != PST_LCM_REPORT) {
            if (s->n_deferred == s->cap)
                s->deferred = pst_realloc(s->deferred, (s->cap = 2 * s->cap + 8) * sizeof *s->deferred);
            s->deferred[s->n_deferred++] = *x;
        }
    }
    lcm_actions_done(&a);
}

static void commit(sim *s)
{
    for (size_t done = 0; done < s->n_deferred; done++) {
        lcm_action a = s->deferred[done];
        perform(s, &a);
    }
    s->n_deferred = 0;
}

static void crash_and_restart(sim *s)
{
    lcm_free(s->l);
    s->n_deferred = s->n_answers = 0;
    s->l = lcm_new(0);
    for (int g = GENS; g >= 1; g--) {
        if (!s->intent[g])
            continue;
        lcm_event e = {.type = PST_LCM_FOUND_GANG,
                       .id = {.generation = g},
                       .command = {.kind = PST_LCM_DEPLOY, .sets = {{"learner", 1, LEARN, 0, 0}}, .n_sets = 1, .grace_ms = 1}};
        feed(s, e);
        for (int i = 0; i < LEARN; i++) {
            char name[32];
            snprintf(name, sizeof name, "learner-%d", i + 1);
            pst_rundir_exit x = {.has_exit_code = true};
            sim_process *p = &s->p[g][i];
            feed(s, (lcm_event){.type = PST_LCM_FOUND_PROCESS,
                                .id = pst_process_id_of(ID, g, name),
                                .seen = observe(p),
                                .exit = &x,
                                .published = p->told,
                                .stop_reason = p->stop_reason});
        }
    }
    feed(s, (lcm_event){.type = PST_LCM_RECOVERED});
}

/* One process of the world moves by itself. */
static void world(sim *s, int g, int i, bool only_good)
{
    sim_process *p = &s->p[g][i];
    char name[32];
    snprintf(name, sizeof name, "learner-%d", i + 1);
    if (!p->supervisor)
        return;
    unsigned what = rnd(s, only_good ? 2 : 6);
    if (what == 0 && p->learner && (p->stop_reason || only_good || rnd(s, 3) == 0)) {
        p->learner = false;
        p->exit = true;
    } else if (what == 1 && p->exit && !p->learner) {
        p->told = true;
        p->supervisor = false;
        p->ends_reported++;
        feed(s, noticed(g, name, PST_LCM_SEEN_ENDED, &(pst_rundir_exit){.has_exit_code = true}, true));
    } else if (what == 5 && rnd(s, 6) == 0) { /* kill -9 of the supervisor; what it left lives on */
        p->supervisor = false;
        feed(s, noticed(g, name, observe(p), &(pst_rundir_exit){.has_exit_code = true}, false));
    }
}

static void simulate(unsigned seed)
{
    sim s = {.l = lcm_new(0), .seed = seed};
    feed(&s, (lcm_event){.type = PST_LCM_RECOVERED});
    for (int step = 0; step < 400; step++) {
        s.now += 1 + (int64_t)rnd(&s, 3000000);
        int g = 1 + (int)rnd(&s, GENS);
        switch (rnd(&s, 13)) {
        case 0:
            if (g > s.highest && g <= s.highest + 2)
                s.highest = g;
            if (g <= s.highest)
                feed(&s, command(PST_LCM_DEPLOY, g, LEARN, s.now)); /* old ones and duplicates too */
            break;
        case 1: feed(&s, command(rnd(&s, 2) ? PST_LCM_HALT : PST_LCM_KILL, g, 0, s.now)); break;
        case 2: feed(&s, (lcm_event){.type = PST_LCM_TICK}); break;
        case 3:
            if (rnd(&s, 4) == 0)
                crash_and_restart(&s);
            break;
        case 4:
        case 5: commit(&s); break;
        case 6: poll_launcher(&s); break;
        default: world(&s, g, (int)rnd(&s, LEARN), false); break;
        }
    }
    /* Afterwards everything settles: the site is stopped, and each process that ever was intended has ended and was told. */
    commit(&s);
    feed(&s, (lcm_event){.type = PST_LCM_STOP_SITE});
    for (int round = 0; round < 2000 && !(lcm_idle(s.l) && !s.n_deferred && !s.n_answers); round++) {
        s.now += 1000000;
        commit(&s);
        poll_launcher(&s);
        for (int g = 1; g <= GENS; g++)
            for (int i = 0; i < LEARN; i++)
                world(&s, g, i, true);
        feed(&s, (lcm_event){.type = PST_LCM_TICK});
    }
    if (!lcm_idle(s.l))
        fail_msg("seed %u: the site does not come to rest", seed);
    for (int g = 1; g <= GENS; g++)
        for (int i = 0; s.intent[g] && i < LEARN; i++) {
            const sim_process *p = &s.p[g][i];
            if (p->supervisor || p->learner)
                fail_msg("seed %u: generation %d learner-%d still lives", seed, g, i + 1);
            if (!p->ends_reported && !p->exit)
                fail_msg("seed %u: generation %d learner-%d ended and nobody was told", seed, g, i + 1);
        }
    lcm_free(s.l);
    free(s.deferred);
    free(s.answers);
}

static void test_lcm_simulated_site_never_starts_twice_nor_two_generations(void **state)
{
    const char *text = getenv("PENSTOCK_TEST_SEED");
    unsigned first = text ? (unsigned)atoi(text) : 1, n = text ? 1 : 3000;
    for (unsigned seed = first; seed < first + n; seed++)
        simulate(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lcm_deploy_writes_intent_then_reports_then_starts_all),
        cmocka_unit_test(test_lcm_failed_intent_is_reported_and_nothing_starts),
        cmocka_unit_test(test_lcm_older_generations_commands_are_ignored),
        cmocka_unit_test(test_lcm_next_generation_waits_until_the_last_process_of_the_old_is_gone),
        cmocka_unit_test(test_lcm_halt_stops_once_then_uses_force_after_grace_and_margin),
        cmocka_unit_test(test_lcm_supervisor_that_only_publishes_is_left_alone),
        cmocka_unit_test(test_lcm_unpublished_end_starts_a_publisher_with_back_off),
        cmocka_unit_test(test_lcm_halt_of_what_is_not_here_is_answered),
        cmocka_unit_test(test_lcm_halt_before_the_start_ends_it_on_record),
        cmocka_unit_test(test_lcm_recovery_adopts_starts_ends_and_publishes),
        cmocka_unit_test(test_lcm_gpus_are_given_once_and_waited_for),
        cmocka_unit_test(test_lcm_stop_site_ends_all_with_its_reason_and_becomes_idle),
        cmocka_unit_test(test_lcm_clean_ends_what_lives_then_removes),
        cmocka_unit_test(test_lcm_fsm_lets_nothing_start_twice),
        cmocka_unit_test(test_lcm_late_failure_to_start_is_no_end),
        cmocka_unit_test(test_lcm_simulated_site_never_starts_twice_nor_two_generations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
