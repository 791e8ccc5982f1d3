/* test_trainer_nodes.c - nodes, leases and whom the Trainer believes: where jobs go, what silence means and what it does not, force, a lost node,
 * reports without the nonce of their generation. */
#include "common/base/isolation.h"
#include "common/platform/client.h"
#include "schemas/deploy_digest.h"
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
static const char wide[] = "name: wide\ncpus: 4\nmemory: 256 MiB\nframework: {name: custom, version: 1, command: run}\n";

typedef struct bench {
    tcore *core;
    trainer_actions out;
    int64_t now;
    char nonce[40], node[64]; /* of the last DEPLOY, or KILL, HALT, CHECK */
    int requests;
    bool unread; /* heartbeats of before the start are being read still */
} bench;

static bench start(void)
{
    trainer_policy policy = PST_TRAINER_POLICY_DEFAULT;
    memset(policy.nonce_key, 7, sizeof policy.nonce_key);
    policy.operators = "ann";
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
    in.nodes_unread = b->unread;
    trainer_actions_clear(&b->out);
    tcore_step(b->core, &in, b->now, &b->out);
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.at[i].kind == PST_DO_COMMAND && *b->out.at[i].command.nonce) {
            snprintf(b->nonce, sizeof b->nonce, "%s", b->out.at[i].command.nonce);
            snprintf(b->node, sizeof b->node, "%s", b->out.at[i].command.node);
        }
}

static void beat_with(bench *b, const char *node, const char *state, const char *floor)
{
    pst_str_pair details[] = {{(char *)PST_ISOLATION_DETAIL, (char *)floor}};
    pst_worker_state w = {.worker_id = (char *)"w",
                          .kind = (char *)"lcm",
                          .site = (char *)"local",
                          .node = (char *)node,
                          .state = (char *)state,
                          .cpus = 4,
                          .memory_bytes = (int64_t)8 << 30,
                          .details = details,
                          .n_details = floor != NULL};
    feed(b, (trainer_in){.kind = PST_TRAINER_WORKER, .worker = &w, .seen_us = b->now});
}

static void beat(bench *b, const char *node, const char *state)
{
    beat_with(b, node, state, NULL);
}

static void tick(bench *b)
{
    feed(b, (trainer_in){.kind = PST_TRAINER_TICK});
}

/* Time passes; those named are heard. */
static void pass(bench *b, int seconds, const char *node)
{
    for (int i = 0; i < seconds; i++) {
        b->now += SECOND;
        if (node && i % 5 == 0)
            beat(b, node, "running");
        tick(b);
    }
}

static char *submit(bench *b, const char *manifest)
{
    char id[64], request_id[16];
    snprintf(request_id, sizeof request_id, "r%d", ++b->requests);
    pst_job_request r = {.request_id = request_id, .user = (char *)"ann", .action = PST_JOB_ACTION_SUBMIT, .manifest = (char *)manifest};
    feed(b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
    pst_training_id("ann", request_id, id);
    return strdup(id);
}

static void ask(bench *b, pst_job_action action, const char *id, const char *key, const char *value)
{
    char request_id[16];
    pst_str_pair option = {(char *)key, (char *)value};
    snprintf(request_id, sizeof request_id, "r%d", ++b->requests);
    pst_job_request r = {.request_id = request_id,
                         .user = (char *)"ann",
                         .action = action,
                         .training_id = (char *)id,
                         .options = &option,
                         .n_options = key != NULL};
    feed(b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
}

static void told(bench *b, const char *id, pst_report_type type, const char *node, const char *nonce)
{
    pst_process_report r = {.training_id = (char *)id,
                            .generation = tcore_job(b->core, id)->generation,
                            .process = (char *)"learner-1",
                            .type = type,
                            .time = b->now,
                            .reporter = (char *)"supervisor:h",
                            .host = (char *)"h",
                            .node = (char *)node,
                            .nonce = (char *)nonce,
                            .has_exit_code = type == PST_REPORT_TYPE_EXITED};
    feed(b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
}

static const pst_job_state *job(const bench *b, const char *id)
{
    return tcore_job(b->core, id);
}

static const pst_job_command *command(const bench *b, enum pst_job_command_type type)
{
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.at[i].kind == PST_DO_COMMAND && b->out.at[i].command.command == type)
            return &b->out.at[i].command;
    return NULL;
}

static const pst_job_event *event(const bench *b, enum pst_job_event_type type)
{
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.at[i].kind == PST_DO_EVENT && b->out.at[i].event.type == type)
            return &b->out.at[i].event;
    return NULL;
}

static void test_nodes_of_a_site_have_capacities_of_their_own(void **unused)
{
    bench b = start();
    beat(&b, "a", "running");
    beat(&b, "b", "running");
    char *one = submit(&b, simple), *two = submit(&b, wide), *three = submit(&b, wide);
    assert_string_not_equal(job(&b, one)->node, job(&b, two)->node);
    assert_int_equal(job(&b, three)->state, PST_JOB_PUBLIC_STATE_QUEUED); /* 3 CPUs are free in sum, on no node 4 */
    assert_non_null(strstr(job(&b, three)->reason, "one of the 2 nodes"));
    const char *huge = "name: huge\ncpus: 8\nmemory: 256 MiB\nframework: {name: custom, version: 1, command: run}\n";
    char *four = submit(&b, huge);
    assert_int_equal(job(&b, four)->state, PST_JOB_PUBLIC_STATE_REJECTED); /* two nodes of 4 CPUs are not one of 8 */
    free(one), free(two), free(three), free(four);
    done(&b);
}

/* An LCM of before nodes had ids starts whatever is for its site: beside it a job for another node would run twice. */
static void test_nodes_beside_an_old_lcm_get_nothing(void **unused)
{
    bench b = start();
    beat(&b, "a", "running");
    beat(&b, "", "running"); /* the old one, named by its worker id */
    char *one = submit(&b, wide), *two = submit(&b, wide);
    assert_string_equal(job(&b, one)->node, "w");
    assert_int_equal(job(&b, two)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    beat(&b, "", "stopped");
    beat(&b, "a", "running");
    tick(&b);
    assert_string_equal(job(&b, two)->node, "a");
    free(one), free(two);
    done(&b);
}

/* What an older Trainer gave to a whole site, and nobody there could start without starting it twice, goes to a node. */
static void test_nodes_what_nobody_took_up_is_given_to_one(void **unused)
{
    bench b = start();
    pst_job_state s = {.generation = 1,
                       .seq = 3,
                       .learners = 1,
                       .cpus = 1,
                       .memory_bytes = 1 << 28,
                       .state = PST_JOB_PUBLIC_STATE_PENDING,
                       .since = b.now,
                       .submitted_at = b.now};
    char **texts[] = {&s.request_id, &s.description, &s.stop_by, &s.request_sha256, &s.framework};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        *texts[i] = (char *)"";
    s.training_id = (char *)"training-old";
    s.name = (char *)"one";
    s.user = (char *)"ann";
    s.queue = (char *)"default";
    s.site = (char *)"local";
    s.manifest = (char *)simple;
    tcore_load(b.core, &s);
    tcore_loaded(b.core);
    pass(&b, 50, "a");
    assert_int_equal(job(&b, "training-old")->generation, 1);
    pass(&b, 60, "a");
    assert_int_equal(job(&b, "training-old")->generation, 2);
    assert_string_equal(job(&b, "training-old")->node, "a");
    done(&b);
}

static void test_nodes_a_deploy_stands_in_the_state(void **unused)
{
    bench b = start();
    char hex[65];
    beat(&b, "a", "running");
    char *id = submit(&b, simple);
    const pst_job_command *c = command(&b, PST_JOB_COMMAND_TYPE_DEPLOY);
    assert_string_equal(c->node, "a");
    assert_int_equal(strlen(c->nonce), 32);
    pst_deploy_digest(c, hex);
    assert_string_equal(hex, job(&b, id)->spec_sha256);
    pst_nonce_digest(c->nonce, hex);
    assert_string_equal(hex, job(&b, id)->nonce_sha256);
    json_t *j = pst_event_to_json(&pst_job_state_type, job(&b, id)); /* what everybody may read does not have it */
    char *text = json_dumps(j, 0);
    assert_null(strstr(text, c->nonce));
    free(text);
    json_decref(j);
    free(id);
    done(&b);
}

static void test_nodes_a_strangers_report_ends_nothing(void **unused)
{
    bench b = start();
    beat(&b, "a", "running");
    char *id = submit(&b, simple), nonce[40];
    strcpy(nonce, b.nonce);
    told(&b, id, PST_REPORT_TYPE_RUNNING, "a", nonce);
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_PROCESSING);
    const pst_report_type types[] = {PST_REPORT_TYPE_EXITED,  PST_REPORT_TYPE_LOST,       PST_REPORT_TYPE_DEPLOY_FAILED,
                                     PST_REPORT_TYPE_STORING, PST_REPORT_TYPE_CHECKPOINT, PST_REPORT_TYPE_RESULT_STORED};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        told(&b, id, types[i], "", "");
        told(&b, id, types[i], "a", "00000000000000000000000000000000");
        told(&b, id, types[i], "b", nonce); /* known, but not from where the generation is */
    }
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_PROCESSING);
    assert_int_equal(tcore_counts(b.core)->reports_untrusted, 3 * 6);
    told(&b, id, PST_REPORT_TYPE_EXITED, "a", nonce);
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_COMPLETED);
    free(id);
    done(&b);
}

static void test_nodes_one_that_lost_its_disk_is_asked_and_answers(void **unused)
{
    bench b = start();
    beat(&b, "a", "running");
    char *id = submit(&b, simple), nonce[40];
    strcpy(nonce, b.nonce);
    told(&b, id, PST_REPORT_TYPE_RUNNING, "a", nonce);
    b.now += 10 * SECOND;
    told(&b, id, PST_REPORT_TYPE_LOST, "a", ""); /* "I do not have it": said without proof */
    assert_non_null(command(&b, PST_JOB_COMMAND_TYPE_CHECK));
    assert_string_equal(command(&b, PST_JOB_COMMAND_TYPE_CHECK)->node, "a");
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_PROCESSING);
    told(&b, id, PST_REPORT_TYPE_LOST, "a", ""); /* a flood of claims asks once */
    assert_null(command(&b, PST_JOB_COMMAND_TYPE_CHECK));
    told(&b, id, PST_REPORT_TYPE_EXITED, "a", b.nonce); /* what the question carries proves no exit */
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_PROCESSING);
    told(&b, id, PST_REPORT_TYPE_LOST, "a", b.nonce);
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    free(id);
    done(&b);
}

static void test_nodes_silence_is_said_and_ends_nothing(void **unused)
{
    bench b = start();
    beat(&b, "a", "running");
    char *id = submit(&b, simple), nonce[40];
    strcpy(nonce, b.nonce);
    told(&b, id, PST_REPORT_TYPE_RUNNING, "a", nonce);
    pass(&b, 100, NULL);
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_PROCESSING);
    assert_non_null(strstr(job(&b, id)->reason, "node a of site local is silent"));
    int64_t seq = job(&b, id)->seq;
    pass(&b, 100, NULL);
    assert_int_equal(job(&b, id)->seq, seq); /* once */
    ask(&b, PST_JOB_ACTION_TERMINATE, id, NULL, NULL);
    ask(&b, PST_JOB_ACTION_TERMINATE, id, NULL, NULL); /* no error */
    assert_null(event(&b, PST_JOB_EVENT_TYPE_REJECTED));
    assert_non_null(command(&b, PST_JOB_COMMAND_TYPE_KILL));
    tick(&b);
    assert_non_null(strstr(job(&b, id)->reason, "terminated by user ann; node a"));
    pass(&b, 10, "a");
    assert_null(strstr(job(&b, id)->reason, "silent"));
    told(&b, id, PST_REPORT_TYPE_EXITED, "a", nonce);
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_TERMINATED);
    assert_string_equal(job(&b, id)->reason, "terminated by user ann");
    free(id);
    done(&b);
}

static void test_nodes_force_ends_where_the_node_is_silent_only(void **unused)
{
    bench b = start();
    beat(&b, "a", "running");
    char *id = submit(&b, simple);
    told(&b, id, PST_REPORT_TYPE_RUNNING, "a", b.nonce);
    ask(&b, PST_JOB_ACTION_TERMINATE, id, "force", "true");
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_PROCESSING); /* it is asked like any other first */
    pass(&b, 20, "a");
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_PROCESSING);
    pass(&b, 60, NULL);
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_TERMINATED);
    int64_t used[3];
    tcore_used(b.core, "local", used);
    assert_int_equal(used[0], 0);
    told(&b, id, PST_REPORT_TYPE_EXITED, "a", b.nonce); /* the zombie */
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_TERMINATED);
    char *two = submit(&b, simple);
    assert_int_equal(job(&b, two)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    beat(&b, "a", "running");
    told(&b, two, PST_REPORT_TYPE_RUNNING, "a", b.nonce);
    pass(&b, 60, NULL);
    ask(&b, PST_JOB_ACTION_DELETE, two, "force", "true");
    assert_null(job(&b, two));
    assert_non_null(command(&b, PST_JOB_COMMAND_TYPE_KILL));
    assert_string_equal(command(&b, PST_JOB_COMMAND_TYPE_KILL)->node, "a");
    assert_string_equal(command(&b, PST_JOB_COMMAND_TYPE_CLEAN)->node, "");
    free(id), free(two);
    done(&b);
}

/* The Trainer itself was away (frozen, or its clock was set): that nobody was heard meanwhile says nothing about others. */
static void test_nodes_own_absence_is_nobodys_silence(void **unused)
{
    bench b = start();
    beat(&b, "a", "running");
    char *id = submit(&b, simple);
    told(&b, id, PST_REPORT_TYPE_RUNNING, "a", b.nonce);
    ask(&b, PST_JOB_ACTION_HALT, id, NULL, NULL);
    tick(&b);
    b.now += 3600LL * SECOND;
    tick(&b);
    assert_null(strstr(job(&b, id)->reason, "silent"));
    pass(&b, 20, NULL);
    assert_null(strstr(job(&b, id)->reason, "silent"));
    b.now -= 7200LL * SECOND;
    pass(&b, 20, NULL);
    assert_null(strstr(job(&b, id)->reason, "silent"));
    free(id);
    done(&b);
}

static void test_nodes_a_lost_ones_jobs_go_on_elsewhere(void **unused)
{
    bench b = start();
    beat(&b, "a", "running");
    char *id = submit(&b, simple), *halting = submit(&b, simple);
    ask(&b, PST_JOB_ACTION_HALT, halting, NULL, NULL);
    beat(&b, "b", "running");
    pass(&b, 60, "b");
    ask(&b, PST_JOB_ACTION_NODE_LOST, NULL, "node", "c");
    assert_string_equal(event(&b, PST_JOB_EVENT_TYPE_REJECTED)->reason_code, "UNKNOWN_NODE");
    ask(&b, PST_JOB_ACTION_NODE_LOST, NULL, "node", "a");
    assert_string_equal(command(&b, PST_JOB_COMMAND_TYPE_KILL)->node, "a");
    assert_int_equal(job(&b, halting)->state, PST_JOB_PUBLIC_STATE_HALTED);
    bool said = false;
    for (size_t i = 0; i < b.out.n; i++)
        said |= b.out.at[i].kind == PST_DO_WORKER && !strcmp(b.out.at[i].worker.state, "lost") && !strcmp(b.out.at[i].worker.node, "a");
    assert_true(said);
    pass(&b, 5, "b");
    assert_string_equal(job(&b, id)->node, "b");
    assert_int_equal(job(&b, id)->generation, 2);
    beat(&b, "a", "lost"); /* our own word, read again */
    char *two = submit(&b, wide);
    assert_int_equal(job(&b, two)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    beat(&b, "a", "running"); /* it is back */
    assert_string_equal(job(&b, two)->node, "a");
    free(id), free(halting), free(two);
    done(&b);
}

static void test_nodes_a_job_with_checkpoints_waits_for_them(void **unused)
{
    bench b = start();
    beat(&b, "a", "running");
    char *id = submit(&b, simple);
    told(&b, id, PST_REPORT_TYPE_RUNNING, "a", b.nonce);
    told(&b, id, PST_REPORT_TYPE_CHECKPOINT, "a", b.nonce);
    ask(&b, PST_JOB_ACTION_HALT, id, NULL, NULL);
    told(&b, id, PST_REPORT_TYPE_LOST, "a", b.nonce); /* the claim of the HALT */
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_HALTED);
    beat(&b, "a", "draining");
    beat(&b, "b", "running");
    ask(&b, PST_JOB_ACTION_RESUME, id, NULL, NULL);
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    assert_non_null(strstr(job(&b, id)->reason, "checkpoints lie on node a"));
    char *other = submit(&b, simple);
    assert_string_equal(job(&b, other)->node, "b"); /* nobody waits behind it */
    beat(&b, "a", "running");
    assert_string_equal(job(&b, id)->node, "a");
    free(id), free(other);
    done(&b);
}

/* A node that refused a DEPLOY (too much waits there, or it reads the state otherwise) says nothing that counts: it is asked. */
static void test_nodes_one_that_takes_nothing_up_is_asked(void **unused)
{
    bench b = start();
    beat(&b, "a", "running");
    char *id = submit(&b, simple);
    bool asked = false;
    for (int i = 0; i < 70 && !asked; i++) {
        pass(&b, 1, "a");
        asked = command(&b, PST_JOB_COMMAND_TYPE_CHECK);
    }
    assert_true(asked);
    assert_string_equal(command(&b, PST_JOB_COMMAND_TYPE_CHECK)->node, "a");
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_PENDING);
    asked = false; /* the question may have been refused, too */
    for (int i = 0; i < 70 && !asked; i++) {
        pass(&b, 1, "a");
        asked = command(&b, PST_JOB_COMMAND_TYPE_CHECK);
    }
    assert_true(asked);
    told(&b, id, PST_REPORT_TYPE_LOST, "a", b.nonce);
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    pass(&b, 2, "a");
    assert_int_equal(job(&b, id)->generation, 2);
    free(id);
    done(&b);
}

/* What a Trainer of before nodes had ids has written, and an LCM that knows no nonce, go on as they did. */
static void test_nodes_older_programs_are_understood(void **unused)
{
    bench b = start();
    beat(&b, NULL, "running");
    char *id = submit(&b, simple);
    assert_string_equal(job(&b, id)->nonce_sha256, "");
    told(&b, id, PST_REPORT_TYPE_RUNNING, NULL, NULL);
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_PROCESSING);
    pst_job_state old;
    pst_event_copy(&pst_job_state_type, job(&b, id), &old);
    free(old.node);
    old.node = strdup("");
    tcore_reset(b.core);
    tcore_load(b.core, &old);
    tcore_loaded(b.core);
    pst_event_clear(&pst_job_state_type, &old);
    beat(&b, "new", "running");
    pass(&b, 100, "new");
    told(&b, id, PST_REPORT_TYPE_EXITED, "new", "");
    assert_int_equal(job(&b, id)->state, PST_JOB_PUBLIC_STATE_COMPLETED);
    free(id);
    done(&b);
}

/* A job that asks for less than every node allows is refused, with the place; one that a node allows goes to that node. */
static void test_nodes_isolation_is_never_weaker_than_the_operators(void **unused)
{
    static const char weak[] = "name: weak\ncpus: 1\nframework: {name: custom, version: 1, command: run}\npenstock:\n  isolation: none\n";
    static const char weak_and_wrong[] = "name: weak\ncpus: 1\nlearners: 0\nframework: {name: custom, version: 1, command: "
                                         "run}\npenstock:\n  isolation: none\n  queue: fast\n";
    static const char user[] = "name: user\ncpus: 1\nframework: {name: custom, version: 1, command: run}\npenstock: {isolation: user}\n";
    bench b = start();
    beat_with(&b, "strict", "running", "sandbox");
    char *refused = submit(&b, weak);
    const pst_job_state *s = tcore_job(b.core, refused);
    assert_int_equal(s->state, PST_JOB_PUBLIC_STATE_REJECTED);
    if (!strstr(s->reason, "penstock.isolation: line 5: none is weaker than the operators of site local allow, which is sandbox; leave"))
        fail_msg("%s", s->reason);
    char *both = submit(&b, weak_and_wrong); /* every violation, whoever finds it */
    s = tcore_job(b.core, both);
    assert_int_equal(s->state, PST_JOB_PUBLIC_STATE_REJECTED);
    if (!strstr(s->reason, "learners: line 3: ") || !strstr(s->reason, "penstock.isolation: line 6: ") ||
        !strstr(s->reason, "penstock.queue: "))
        fail_msg("%s", s->reason);
    char *silent = submit(&b, simple);
    assert_int_equal(tcore_job(b.core, silent)->state, PST_JOB_PUBLIC_STATE_PENDING);
    beat_with(&b, "mild", "running", "user");
    char *taken = submit(&b, user);
    assert_int_equal(tcore_job(b.core, taken)->state, PST_JOB_PUBLIC_STATE_PENDING);
    assert_string_equal(tcore_job(b.core, taken)->node, "mild");
    beat_with(&b, "mild", "draining", "user");
    char *waits = submit(&b, user);
    tick(&b);
    assert_int_equal(tcore_job(b.core, waits)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    assert_non_null(strstr(tcore_job(b.core, waits)->reason, "operator of node strict"));
    char *all[] = {refused, both, silent, taken, waits};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    done(&b);
}

/* The last but one word of a node that has stopped is "running": a Trainer that begins must not give it a job on that. */
static void test_nodes_are_given_nothing_before_all_their_words_are_read(void **unused)
{
    bench b = start();
    b.unread = true;
    beat(&b, "gone", "running");
    char *id = submit(&b, simple);
    const pst_job_state *s = tcore_job(b.core, id);
    assert_int_equal(s->state, PST_JOB_PUBLIC_STATE_QUEUED);
    assert_non_null(strstr(s->reason, "reads which nodes"));
    beat(&b, "gone", "stopped");
    beat(&b, "here", "running");
    assert_int_equal(tcore_job(b.core, id)->state, PST_JOB_PUBLIC_STATE_QUEUED);
    b.unread = false;
    tick(&b);
    assert_int_equal(tcore_job(b.core, id)->state, PST_JOB_PUBLIC_STATE_PENDING);
    assert_string_equal(tcore_job(b.core, id)->node, "here");
    free(id);
    done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nodes_are_given_nothing_before_all_their_words_are_read),
                                       cmocka_unit_test(test_nodes_isolation_is_never_weaker_than_the_operators),
                                       cmocka_unit_test(test_nodes_of_a_site_have_capacities_of_their_own),
                                       cmocka_unit_test(test_nodes_beside_an_old_lcm_get_nothing),
                                       cmocka_unit_test(test_nodes_what_nobody_took_up_is_given_to_one),
                                       cmocka_unit_test(test_nodes_a_deploy_stands_in_the_state),
                                       cmocka_unit_test(test_nodes_a_strangers_report_ends_nothing),
                                       cmocka_unit_test(test_nodes_one_that_lost_its_disk_is_asked_and_answers),
                                       cmocka_unit_test(test_nodes_silence_is_said_and_ends_nothing),
                                       cmocka_unit_test(test_nodes_force_ends_where_the_node_is_silent_only),
                                       cmocka_unit_test(test_nodes_own_absence_is_nobodys_silence),
                                       cmocka_unit_test(test_nodes_a_lost_ones_jobs_go_on_elsewhere),
                                       cmocka_unit_test(test_nodes_a_job_with_checkpoints_waits_for_them),
                                       cmocka_unit_test(test_nodes_one_that_takes_nothing_up_is_asked),
                                       cmocka_unit_test(test_nodes_older_programs_are_understood)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
