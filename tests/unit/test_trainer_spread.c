/* test_trainer_spread.c - gangs over several nodes, as the Trainer sees them: all or nothing, one DEPLOY to each node, the list of members made once, reports
 * that count from their own node only, a node given up, a halt that waits for both. */
#include "common/base/isolation.h"
#include "common/objects/members.h"
#include "schemas/deploy_digest.h"
#include "schemas/training_id.h"
#include "trainer/trainer_core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND  1000000
#define COMMAND "memory: 256 MiB\nframework: {name: custom, version: 1, command: run}\n"
static const char pair[] = "name: pair\nlearners: 2\ncpus: 3\n" COMMAND; /* a node has 4 */

typedef struct bench {
    tcore *core;
    trainer_actions out;
    int64_t now;
    char id[64], nonce[40];
    int requests;
    struct {
        char id[64], nonce[40];
    } given[100]; /* of the last deployments */
    size_t n_given;
} bench;

static trainer_policy policy(void)
{
    trainer_policy p = PST_TRAINER_POLICY_DEFAULT;
    memset(p.nonce_key, 7, sizeof p.nonce_key);
    p.operators = "ann";
    return p;
}

static void feed(bench *b, trainer_in in)
{
    b->now += 1000;
    trainer_actions_clear(&b->out);
    tcore_step(b->core, &in, b->now, &b->out);
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.at[i].kind == PST_DO_COMMAND && b->out.at[i].command.command == PST_JOB_COMMAND_TYPE_DEPLOY) {
            const pst_job_command *c = &b->out.at[i].command;
            size_t at = b->n_given++ % 100;
            snprintf(b->nonce, sizeof b->nonce, "%s", c->nonce);
            snprintf(b->given[at].id, sizeof b->given[at].id, "%s", c->training_id);
            snprintf(b->given[at].nonce, sizeof b->given[at].nonce, "%s", c->nonce);
        }
}

static void beat_on(bench *b, const char *node, const char *host, const char *address, const char *computer, const char *floor)
{
    pst_str_pair details[3];
    size_t n = 0;
    if (address)
        details[n++] = (pst_str_pair){(char *)PST_ADDRESS_DETAIL, (char *)address};
    if (computer)
        details[n++] = (pst_str_pair){(char *)PST_COMPUTER_DETAIL, (char *)computer};
    if (floor)
        details[n++] = (pst_str_pair){(char *)PST_ISOLATION_DETAIL, (char *)floor};
    pst_worker_state w = {.worker_id = (char *)"w",
                          .kind = (char *)"lcm",
                          .site = (char *)"local",
                          .host = (char *)host,
                          .node = (char *)node,
                          .state = (char *)"running",
                          .cpus = 4,
                          .memory_bytes = (int64_t)8 << 30,
                          .details = details,
                          .n_details = n};
    feed(b, (trainer_in){.kind = PST_TRAINER_WORKER, .worker = &w, .seen_us = b->now});
}

static void beat_at(bench *b, const char *node, const char *host, const char *address)
{
    beat_on(b, node, host, address, NULL, NULL);
}

static void beat(bench *b)
{
    beat_at(b, "a", "ha", "10.0.0.1");
    beat_at(b, "b", "hb", "10.0.0.2");
}

static bench start(void)
{
    trainer_policy p = policy();
    return (bench){.core = tcore_new(&p), .now = 1700000000LL * SECOND};
}

static void done(bench *b)
{
    trainer_actions_done(&b->out);
    tcore_free(b->core);
}

static void submit(bench *b, const char *manifest)
{
    char request_id[16];
    snprintf(request_id, sizeof request_id, "r%d", ++b->requests);
    pst_job_request r = {.request_id = request_id, .user = (char *)"ann", .action = PST_JOB_ACTION_SUBMIT, .manifest = (char *)manifest};
    feed(b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
    pst_training_id("ann", request_id, b->id);
}

static void ask(bench *b, pst_job_action action, const char *key, const char *value)
{
    char request_id[16];
    pst_str_pair option = {(char *)key, (char *)value};
    snprintf(request_id, sizeof request_id, "r%d", ++b->requests);
    pst_job_request r = {.request_id = request_id,
                         .user = (char *)"ann",
                         .action = action,
                         .training_id = b->id,
                         .options = &option,
                         .n_options = key != NULL};
    feed(b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
}

static const pst_job_state *job(const bench *b)
{
    return tcore_job(b->core, b->id);
}

static void told(bench *b, const char *node, const char *process, pst_report_type type)
{
    pst_str_pair details[] = {{(char *)"host", (char *)"h"},
                              {(char *)"address", (char *)(strcmp(node, "a") ? "10.0.0.2" : "10.0.0.1")},
                              {(char *)"port", (char *)"4000"},
                              {(char *)"master_port", (char *)"4001"},
                              {(char *)"other_port", (char *)"4002"}};
    pst_process_report r = {.training_id = b->id,
                            .generation = job(b)->generation,
                            .process = (char *)process,
                            .type = type,
                            .time = b->now,
                            .reporter = (char *)"supervisor:h",
                            .host = (char *)"h",
                            .node = (char *)node,
                            .nonce = b->nonce,
                            .has_exit_code = type == PST_REPORT_TYPE_EXITED,
                            .details = details,
                            .n_details = type == PST_REPORT_TYPE_REACHABLE ? 5 : 0};
    feed(b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
}

/* "a b": the nodes to which that command goes in this step. */
static const char *sent(const bench *b, enum pst_job_command_type type)
{
    static char text[256];
    *text = 0;
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.at[i].kind == PST_DO_COMMAND && b->out.at[i].command.command == type)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? " " : "", b->out.at[i].command.node);
    return text;
}

static const pst_job_command *deploy(const bench *b, size_t nth)
{
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.at[i].kind == PST_DO_COMMAND && b->out.at[i].command.command == PST_JOB_COMMAND_TYPE_DEPLOY && !nth--)
            return &b->out.at[i].command;
    return NULL;
}

static int events_with(const bench *b, const char *text)
{
    int n = 0;
    for (size_t i = 0; i < b->out.n; i++)
        n += b->out.at[i].kind == PST_DO_EVENT && b->out.at[i].event.reason && strstr(b->out.at[i].event.reason, text);
    return n;
}

static int64_t charged(const bench *b)
{
    int64_t used[3] = {0};
    tcore_used(b->core, "local", used);
    return used[0];
}

/* As after a restart: the published state is enough. */
static void restart(bench *b)
{
    trainer_policy p = policy();
    tcore *fresh = tcore_new(&p);
    tcore_load(fresh, job(b));
    tcore_loaded(fresh);
    assert_true(tcore_equal(b->core, fresh));
    tcore_free(b->core);
    b->core = fresh;
    beat(b);
}

static bench spread(const char *manifest)
{
    bench b = start();
    beat(&b);
    submit(&b, manifest);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_PENDING);
    return b;
}

static void both(bench *b, pst_report_type type)
{
    told(b, "a", "learner-1", type);
    told(b, "b", "learner-2", type);
}

static void test_gang_that_no_node_holds_goes_to_two_with_one_nonce(void **unused)
{
    bench b = spread(pair);
    char hex[65];
    assert_string_equal(sent(&b, PST_JOB_COMMAND_TYPE_DEPLOY), "a b");
    for (size_t i = 0; i < 2; i++) {
        const pst_job_command *c = deploy(&b, i);
        assert_int_equal(c->spec->n_nodes, 2);
        assert_string_equal(c->spec->nodes[0], "a");
        assert_string_equal(c->spec->nodes[1], "b");
        assert_string_equal(c->nonce, b.nonce);
        pst_deploy_digest(c, hex);
        assert_string_equal(hex, job(&b)->spec_sha256);
    }
    assert_string_equal(job(&b)->node, "a");
    assert_string_equal(job(&b)->processes[1].node, "b");
    assert_int_equal(charged(&b), 6000);
    restart(&b);
    assert_int_equal(charged(&b), 6000);
    done(&b);
}

static void test_digest_covers_where_processes_go(void **unused)
{
    bench b = spread(pair);
    char *other[] = {(char *)"b", (char *)"a"}, hex[65];
    pst_deploy_spec spec = *deploy(&b, 0)->spec;
    pst_job_command forged = *deploy(&b, 0);
    spec.nodes = other;
    forged.spec = &spec;
    pst_deploy_digest(&forged, hex);
    assert_string_not_equal(hex, job(&b)->spec_sha256);
    done(&b);
}

static void test_gang_that_one_node_could_hold_is_not_spread(void **unused)
{
    bench b = spread("name: busy\ncpus: 2\n" COMMAND);
    submit(&b, "name: other\ncpus: 2\n" COMMAND); /* each on a node of its own */
    submit(&b, "name: four\nlearners: 4\ncpus: 1\n" COMMAND);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    assert_non_null(strstr(job(&b)->reason, "it waits for"));
    assert_int_equal(charged(&b), 4000);
    done(&b);
}

static void test_all_or_nothing(void **unused)
{
    bench b = start();
    beat(&b);
    submit(&b, "name: busy\ncpus: 2\n" COMMAND);
    submit(&b, pair);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    assert_non_null(strstr(job(&b)->reason, "1 of its 2 processes find some"));
    assert_int_equal(charged(&b), 2000);
    done(&b);
}

static void test_roles_fill_nodes_in_runs(void **unused)
{
    bench b = spread("name: cast\ncpus: 1\n" COMMAND "penstock: {roles: {chief: {cpus: 2}, worker: {count: 4}, ps: {cpus: 0.5}}}\n");
    /* the chief's 2 leave room for two workers on a; the others go to b */
    assert_int_equal(job(&b)->n_processes, 6);
    int on_a = 0;
    for (int i = 0; i < 6; i++)
        on_a += !strcmp(job(&b)->processes[i].node, "a");
    assert_int_equal(on_a, 3);
    assert_string_equal(job(&b)->processes[0].node, "a");
    assert_string_equal(job(&b)->processes[2].node, "a");
    assert_string_equal(job(&b)->processes[3].node, "b");
    assert_string_equal(job(&b)->processes[5].node, "b"); /* a is full: the server follows */
    done(&b);
}

static void test_what_all_nodes_together_lack_is_rejected(void **unused)
{
    bench b = start();
    beat(&b);
    submit(&b, "name: three\nlearners: 3\ncpus: 3\n" COMMAND);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_REJECTED);
    assert_non_null(strstr(job(&b)->reason, "2 of its 3 processes"));
    submit(&b, "name: mpi\nlearners: 2\ncpus: 3\nmemory: 256 MiB\nframework: {name: horovod, version: 1, command: run}\n");
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_REJECTED);
    assert_non_null(strstr(job(&b)->reason, "mpirun"));
    submit(&b, "name: large\ncpus: 6\n" COMMAND);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_REJECTED);
    assert_non_null(strstr(job(&b)->reason, "a single process"));
    done(&b);
}

static void test_nodes_that_do_not_reach_each_other_hold_no_gang(void **unused)
{
    bench b = start();
    beat_at(&b, "a", "ha", "127.0.0.1"); /* only processes on ha reach that */
    beat_at(&b, "b", "hb", "10.0.0.2");
    beat_at(&b, "old", "hc", NULL);
    submit(&b, pair);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_REJECTED);
    assert_non_null(strstr(job(&b)->reason, "1 more say no address"));
    beat_at(&b, "c", "ha", "127.0.0.3");
    submit(&b, pair);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_PENDING);
    assert_string_equal(sent(&b, PST_JOB_COMMAND_TYPE_DEPLOY), "a c");
    done(&b);
}

static void test_members_are_concluded_once(void **unused)
{
    bench b = spread(pair);
    both(&b, PST_REPORT_TYPE_STARTED);
    told(&b, "a", "learner-1", PST_REPORT_TYPE_REACHABLE);
    assert_int_equal(events_with(&b, "members"), 0);
    restart(&b);
    told(&b, "b", "learner-2", PST_REPORT_TYPE_REACHABLE);
    assert_int_equal(events_with(&b, "its 2 members"), 1);
    told(&b, "b", "learner-2", PST_REPORT_TYPE_REACHABLE);
    assert_int_equal(b.out.n, 0);
    assert_string_equal(job(&b)->processes[1].address, "10.0.0.2");
    done(&b);
}

static void test_reports_count_from_the_node_of_their_process(void **unused)
{
    bench b = spread(pair);
    told(&b, "b", "learner-1", PST_REPORT_TYPE_STARTED);
    told(&b, "c", "learner-1", PST_REPORT_TYPE_STARTED);
    assert_int_equal(job(&b)->processes[0].state, PST_JOB_PROCESS_STATE_WAITING);
    assert_int_equal(tcore_counts(b.core)->reports_untrusted, 2);
    told(&b, "b", NULL, PST_REPORT_TYPE_LOST); /* what a node says of all it says of its own */
    assert_int_equal(job(&b)->processes[0].state, PST_JOB_PROCESS_STATE_WAITING);
    assert_int_equal(job(&b)->processes[1].state, PST_JOB_PROCESS_STATE_LOST);
    assert_string_equal(sent(&b, PST_JOB_COMMAND_TYPE_KILL), "a b");
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_PENDING); /* the other part may live */
    told(&b, "a", NULL, PST_REPORT_TYPE_LOST);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    assert_int_equal(charged(&b), 0);
    done(&b);
}

static void test_halt_is_over_when_every_node_is(void **unused)
{
    bench b = spread(pair);
    both(&b, PST_REPORT_TYPE_RUNNING);
    ask(&b, PST_JOB_ACTION_HALT, NULL, NULL);
    assert_string_equal(sent(&b, PST_JOB_COMMAND_TYPE_HALT), "a b");
    told(&b, "b", "learner-2", PST_REPORT_TYPE_EXITED);
    restart(&b);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_PROCESSING);
    assert_int_equal(charged(&b), 6000);
    told(&b, "a", "learner-1", PST_REPORT_TYPE_LOST);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_HALTED);
    assert_int_equal(charged(&b), 0);
    done(&b);
}

static void test_lost_node_ends_the_others_before_the_next_generation(void **unused)
{
    bench b = spread(pair);
    both(&b, PST_REPORT_TYPE_RUNNING);
    ask(&b, PST_JOB_ACTION_NODE_LOST, "node", "b");
    assert_int_equal(job(&b)->processes[1].state, PST_JOB_PROCESS_STATE_LOST);
    assert_int_equal(job(&b)->processes[0].state, PST_JOB_PROCESS_STATE_RUNNING);
    assert_non_null(strchr(sent(&b, PST_JOB_COMMAND_TYPE_KILL), 'a'));
    assert_non_null(strchr(sent(&b, PST_JOB_COMMAND_TYPE_KILL), 'b')); /* fenced, should it come back */
    assert_int_equal(job(&b)->generation, 1);
    told(&b, "a", "learner-1", PST_REPORT_TYPE_EXITED);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    b.now += 2 * SECOND;
    beat(&b); /* b is back */
    feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
    assert_int_equal(job(&b)->generation, 2);
    int64_t stale = (int64_t)tcore_counts(b.core)->reports_stale;
    pst_process_report late = {.training_id = b.id,
                               .generation = 1,
                               .process = (char *)"learner-2",
                               .type = PST_REPORT_TYPE_RUNNING,
                               .reporter = (char *)"supervisor:h",
                               .node = (char *)"b",
                               .nonce = (char *)"old"};
    feed(&b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &late});
    assert_int_equal(tcore_counts(b.core)->reports_stale, stale + 1);
    done(&b);
}

static void test_force_ends_what_is_silent_and_waits_for_the_rest(void **unused)
{
    bench b = spread(pair);
    both(&b, PST_REPORT_TYPE_RUNNING);
    for (int i = 0; i < 40; i++) { /* b falls silent */
        b.now += SECOND;
        beat_at(&b, "a", "ha", "10.0.0.1");
        feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
    }
    assert_non_null(strstr(job(&b)->reason, "node b of site local is silent"));
    ask(&b, PST_JOB_ACTION_TERMINATE, "force", "true");
    assert_int_equal(job(&b)->processes[1].state, PST_JOB_PROCESS_STATE_LOST);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_PROCESSING);
    told(&b, "a", "learner-1", PST_REPORT_TYPE_EXITED);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_TERMINATED);
    done(&b);
}

static void test_gang_that_does_not_meet_names_who_is_missing_and_where(void **unused)
{
    bench b = spread(pair);
    told(&b, "a", "learner-1", PST_REPORT_TYPE_REACHABLE);
    bool said = false;
    for (int i = 0; i < 310 && job(&b)->state == PST_JOB_PUBLIC_STATE_PENDING && !job(&b)->reason_code; i++) {
        b.now += SECOND;
        beat(&b);
        feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
        said |= events_with(&b, "waits for the addresses of learner-2 on node b") > 0;
    }
    assert_true(said);
    assert_string_equal(job(&b)->reason_code, "S101");
    assert_non_null(strstr(job(&b)->reason, "did not meet within"));
    assert_non_null(strstr(job(&b)->reason, "learner-2 on node b"));
    done(&b);
}

/* The clock of b goes a minute behind that of a. */
static void test_gang_each_process_has_its_checkpoints_told(void **unused)
{
    bench b = start();
    beat(&b);
    submit(&b, pair);
    both(&b, PST_REPORT_TYPE_RUNNING);
    told(&b, "a", "learner-1", PST_REPORT_TYPE_CHECKPOINT);
    assert_string_equal(job(&b)->checkpoint_node, "a");
    b.now -= 60 * SECOND;
    told(&b, "b", "learner-2", PST_REPORT_TYPE_CHECKPOINT);
    assert_string_equal(job(&b)->checkpoint_node, "a"); /* of the first process, whoever spoke last */
    assert_int_equal(tcore_counts(b.core)->reports_repeated, 0);
    b.now -= 60 * SECOND; /* older than its last: a repetition */
    told(&b, "b", "learner-2", PST_REPORT_TYPE_CHECKPOINT);
    assert_int_equal(tcore_counts(b.core)->reports_repeated, 1);
    b.now += 120 * SECOND;
    done(&b);
}

static void test_gang_goes_back_to_where_its_checkpoints_lie(void **unused)
{
    bench b = start();
    beat(&b);
    beat_at(&b, "c", "hc", "10.0.0.3");
    submit(&b, pair);
    both(&b, PST_REPORT_TYPE_RUNNING);
    told(&b, "b", "learner-2", PST_REPORT_TYPE_CHECKPOINT);
    assert_string_equal(job(&b)->checkpoint_node, "b");
    both(&b, PST_REPORT_TYPE_LOST);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    b.now += 40 * SECOND; /* b is silent, c is there */
    beat_at(&b, "a", "ha", "10.0.0.1");
    beat_at(&b, "c", "hc", "10.0.0.3");
    feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
    assert_int_equal(job(&b)->generation, 1);
    assert_non_null(strstr(job(&b)->reason, "its checkpoints lie on node b"));
    beat(&b);
    feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
    assert_int_equal(job(&b)->generation, 2);
    assert_string_equal(job(&b)->processes[0].node, "a"); /* each where it was: what learner-2 saved is on b */
    assert_string_equal(job(&b)->processes[1].node, "b");
    done(&b);
}

/* The other is lost, and cannot have its own back. */
static void test_gang_begins_where_the_checkpoints_are_that_are_left(void **unused)
{
    bench b = start();
    beat(&b);
    beat_at(&b, "c", "hc", "10.0.0.3");
    submit(&b, pair);
    both(&b, PST_REPORT_TYPE_RUNNING);
    told(&b, "b", "learner-2", PST_REPORT_TYPE_CHECKPOINT);
    assert_string_equal(job(&b)->checkpoint_node, "b");
    both(&b, PST_REPORT_TYPE_LOST);
    ask(&b, PST_JOB_ACTION_NODE_LOST, "node", "a");
    b.now += 40 * SECOND;
    beat_at(&b, "b", "hb", "10.0.0.2");
    beat_at(&b, "c", "hc", "10.0.0.3");
    feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
    assert_int_equal(job(&b)->generation, 2);
    assert_string_equal(job(&b)->processes[0].node, "b");
    assert_string_equal(job(&b)->processes[1].node, "c");
    told(&b, "b", "learner-1", PST_REPORT_TYPE_CHECKPOINT);
    restart(&b); /* what was told before is forgotten; whose node it is stands in the state */
    told(&b, "c", "learner-2", PST_REPORT_TYPE_CHECKPOINT);
    assert_string_equal(job(&b)->checkpoint_node, "b");
    done(&b);
}

static void test_gang_says_why_the_node_of_its_checkpoints_is_shut(void **unused)
{
    bench b = start();
    beat(&b);
    beat_at(&b, "c", "hc", "10.0.0.3");
    submit(&b, "name: pair\nlearners: 2\ncpus: 3\n" COMMAND "penstock: {isolation: none}\n");
    both(&b, PST_REPORT_TYPE_RUNNING);
    told(&b, "a", "learner-1", PST_REPORT_TYPE_CHECKPOINT);
    both(&b, PST_REPORT_TYPE_LOST);
    b.now += 20 * SECOND;
    beat_on(&b, "a", "ha", "10.0.0.1", NULL, "sandbox"); /* its operator has changed his mind */
    beat_at(&b, "b", "hb", "10.0.0.2");
    beat_at(&b, "c", "hc", "10.0.0.3");
    feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
    assert_int_equal(job(&b)->generation, 1); /* though b and c would take it */
    assert_non_null(
        strstr(job(&b)->reason, "its checkpoints lie on node a: penstock.isolation: none is weaker than the operator of node a"));
    done(&b);
}

static void test_job_says_why_the_node_of_its_checkpoints_is_shut(void **unused)
{
    bench b = start();
    beat_at(&b, "a", "ha", "10.0.0.1");
    submit(&b, "name: one\ncpus: 3\n" COMMAND "penstock: {isolation: none}\n");
    told(&b, "a", "learner-1", PST_REPORT_TYPE_CHECKPOINT);
    told(&b, "a", "learner-1", PST_REPORT_TYPE_LOST);
    b.now += 20 * SECOND;
    beat_on(&b, "a", "ha", "10.0.0.1", NULL, "sandbox");
    beat_at(&b, "b", "hb", "10.0.0.2");
    feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
    assert_int_equal(job(&b)->generation, 1);
    assert_non_null(strstr(job(&b)->reason, "its checkpoints lie on node a: penstock.isolation: none is weaker"));
    done(&b);
}

static void test_nodes_called_localhost_are_one_computer_only_where_they_say_so(void **unused)
{
    bench b = start();
    beat_at(&b, "a", "localhost", "127.0.0.1"); /* older LCMs */
    beat_at(&b, "b", "localhost", "127.0.0.1");
    submit(&b, pair);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_REJECTED);
    beat_on(&b, "a", "localhost", "127.0.0.1", "boot-1/4026531840", NULL);
    beat_on(&b, "b", "localhost", "127.0.0.1", "boot-2/4026531840", NULL);
    submit(&b, pair);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_REJECTED);
    beat_on(&b, "b", "otherwise", "127.0.0.1", "boot-1/4026531840", NULL);
    submit(&b, pair);
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_PENDING);
    done(&b);
}

/* Every address is known, and b's LCM cannot write the list: its supervisor says so every half minute. */
static void test_gang_of_which_one_gets_no_list_ends(void **unused)
{
    bench b = spread(pair);
    both(&b, PST_REPORT_TYPE_STARTED);
    both(&b, PST_REPORT_TYPE_REACHABLE);
    told(&b, "a", "learner-1", PST_REPORT_TYPE_RUNNING);
    told(&b, "b", "learner-2", PST_REPORT_TYPE_DOWNLOADING);
    told(&b, "b", "learner-2", PST_REPORT_TYPE_REACHABLE); /* delivered twice: no complaint */
    for (int i = 0; i < 1000; i++) {                       /* it may prepare itself for as long as it takes */
        b.now += SECOND;
        beat(&b);
        feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
    }
    assert_null(job(&b)->reason_code);
    int seconds = 0;
    for (; seconds < 400 && !job(&b)->reason_code; seconds++) {
        b.now += SECOND;
        beat(&b);
        if (seconds % 30 == 0)
            told(&b, "b", "learner-2", PST_REPORT_TYPE_REACHABLE);
        feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
    }
    assert_true(seconds > 290 && seconds < 310);
    assert_string_equal(job(&b)->reason_code, "S101");
    assert_non_null(strstr(job(&b)->reason, "learner-2 on node b has had no list of the gang's members"));
    done(&b);
}

/* Ended by its node, with the nonce that its deployment had. */
static void ends(bench *b, const char *id)
{
    char nonce[40] = "";
    for (size_t i = 0; i < 100; i++)
        if (!strcmp(b->given[i].id, id))
            snprintf(nonce, sizeof nonce, "%s", b->given[i].nonce);
    const pst_job_state *s = tcore_job(b->core, id);
    pst_process_report r = {.training_id = (char *)(uintptr_t)id,
                            .generation = s->generation,
                            .process = (char *)"learner-1",
                            .type = PST_REPORT_TYPE_EXITED,
                            .time = b->now,
                            .reporter = (char *)"supervisor:h",
                            .node = s->node,
                            .nonce = nonce,
                            .has_exit_code = true};
    feed(b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
}

/* Narrow jobs of another queue come without end; a gang over several nodes runs all the same. */
static void test_gang_is_not_starved_by_narrow_jobs(void **unused)
{
    bench b = start();
    char narrow[64][64], gang[64];
    int n = 0;
    beat(&b);
    for (; n < 8; n++) { /* both nodes are full */
        submit(&b, "name: narrow\ncpus: 1\n" COMMAND);
        snprintf(narrow[n], sizeof narrow[n], "%s", b.id);
    }
    submit(&b, "name: pair\nlearners: 2\ncpus: 3\n" COMMAND "penstock: {priority: 1}\n");
    snprintf(gang, sizeof gang, "%s", b.id);
    pst_queue_spec other = {.name = (char *)"other", .weight = 1};
    feed(&b, (trainer_in){.kind = PST_TRAINER_QUEUE, .queue_name = "other", .queue = &other});
    while (n < 64 && tcore_job(b.core, gang)->state == PST_JOB_PUBLIC_STATE_QUEUED) {
        submit(&b, "name: narrow\ncpus: 1\n" COMMAND "penstock: {queue: other}\n");
        snprintf(narrow[n], sizeof narrow[n], "%s", b.id);
        n++;
        b.now += 2 * SECOND;
        beat(&b);
        for (int i = 0; i < n; i++) /* the oldest that runs */
            if (tcore_job(b.core, narrow[i])->state == PST_JOB_PUBLIC_STATE_PENDING) {
                ends(&b, narrow[i]);
                break;
            }
    }
    assert_int_equal(tcore_job(b.core, gang)->state, PST_JOB_PUBLIC_STATE_PENDING);
    assert_true(n < 24);
    done(&b);
}

static void test_gang_waits_for_a_full_node_that_keeps_its_checkpoints(void **unused)
{
    bench b = start();
    char gang[64], other[64];
    beat(&b);
    beat_at(&b, "c", "hc", "10.0.0.3");
    submit(&b, pair);
    snprintf(gang, sizeof gang, "%s", b.id);
    both(&b, PST_REPORT_TYPE_RUNNING);
    told(&b, "b", "learner-2", PST_REPORT_TYPE_CHECKPOINT);
    submit(&b, "name: one\ncpus: 3\n" COMMAND "penstock: {node: b, priority: 100}\n"); /* takes b as soon as the gang has ended */
    snprintf(other, sizeof other, "%s", b.id);
    snprintf(b.id, sizeof b.id, "%s", gang);
    both(&b, PST_REPORT_TYPE_LOST);
    for (int i = 0; i < 20; i++) { /* past the pause before a retry */
        b.now += 5 * SECOND;
        beat(&b);
        beat_at(&b, "c", "hc", "10.0.0.3");
        feed(&b, (trainer_in){.kind = PST_TRAINER_TICK});
    }
    assert_int_equal(job(&b)->generation, 1); /* though a and c hold it */
    assert_non_null(strstr(job(&b)->reason, "its checkpoints lie on node b"));
    snprintf(b.id, sizeof b.id, "%s", other);
    assert_string_equal(job(&b)->node, "b");
    done(&b);
}

static void test_job_that_names_a_node_waits_for_that(void **unused)
{
    bench b = start();
    beat(&b);
    submit(&b, "name: one\ncpus: 3\n" COMMAND "penstock: {node: b}\n");
    assert_string_equal(sent(&b, PST_JOB_COMMAND_TYPE_DEPLOY), "b");
    submit(&b, "name: two\ncpus: 3\n" COMMAND "penstock: {node: b}\n");
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_QUEUED); /* though a is empty */
    assert_non_null(strstr(job(&b)->reason, "3 CPUs: 1 of 4 free"));
    submit(&b, "name: three\ncpus: 3\n" COMMAND); /* waits behind nobody */
    assert_string_equal(sent(&b, PST_JOB_COMMAND_TYPE_DEPLOY), "a");
    submit(&b, "name: four\ncpus: 1\n" COMMAND "penstock: {node: nobody}\n");
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    assert_non_null(strstr(job(&b)->reason, "node nobody"));
    submit(&b, "name: five\nlearners: 2\ncpus: 3\n" COMMAND "penstock: {node: a}\n"); /* a gang that names one is not spread */
    assert_int_equal(job(&b)->state, PST_JOB_PUBLIC_STATE_REJECTED);
    assert_non_null(strstr(job(&b)->reason, "node a of site local can never run it"));
    done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gang_that_no_node_holds_goes_to_two_with_one_nonce),
        cmocka_unit_test(test_digest_covers_where_processes_go),
        cmocka_unit_test(test_gang_that_one_node_could_hold_is_not_spread),
        cmocka_unit_test(test_all_or_nothing),
        cmocka_unit_test(test_roles_fill_nodes_in_runs),
        cmocka_unit_test(test_what_all_nodes_together_lack_is_rejected),
        cmocka_unit_test(test_nodes_that_do_not_reach_each_other_hold_no_gang),
        cmocka_unit_test(test_members_are_concluded_once),
        cmocka_unit_test(test_reports_count_from_the_node_of_their_process),
        cmocka_unit_test(test_halt_is_over_when_every_node_is),
        cmocka_unit_test(test_lost_node_ends_the_others_before_the_next_generation),
        cmocka_unit_test(test_force_ends_what_is_silent_and_waits_for_the_rest),
        cmocka_unit_test(test_gang_that_does_not_meet_names_who_is_missing_and_where),
        cmocka_unit_test(test_gang_each_process_has_its_checkpoints_told),
        cmocka_unit_test(test_gang_goes_back_to_where_its_checkpoints_lie),
        cmocka_unit_test(test_gang_begins_where_the_checkpoints_are_that_are_left),
        cmocka_unit_test(test_gang_says_why_the_node_of_its_checkpoints_is_shut),
        cmocka_unit_test(test_job_says_why_the_node_of_its_checkpoints_is_shut),
        cmocka_unit_test(test_nodes_called_localhost_are_one_computer_only_where_they_say_so),
        cmocka_unit_test(test_gang_of_which_one_gets_no_list_ends),
        cmocka_unit_test(test_gang_is_not_starved_by_narrow_jobs),
        cmocka_unit_test(test_gang_waits_for_a_full_node_that_keeps_its_checkpoints),
        cmocka_unit_test(test_job_that_names_a_node_waits_for_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
