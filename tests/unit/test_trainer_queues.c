/* test_trainer_queues.c - queues as the Trainer goes by them: which there are, what each may have, whose turn it is, and that a wide job is not
 * starved by narrow ones. */
#include "common/objects/members.h"
#include "schemas/avro.h"
#include "schemas/task_array.h"
#include "schemas/training_id.h"
#include "trainer/trainer_core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND 1000000LL
static const trainer_policy policy = {
    .gpus = -1, .platform_retries = 3, .half_life_us = 3600 * SECOND, .silent_us = 3600 * SECOND, .operators = "carol"};

typedef struct bench {
    tcore *core;
    trainer_actions out;
    int64_t now;
    int n; /* submissions */
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

static char *gpu_type; /* of the nodes that report now; NULL = not known */

static void node_of(bench *b, const char *name, double cpus, int gpus, bool yields)
{
    pst_str_pair details[] = {{(char *)PST_YIELDS_DETAIL, (char *)"yes"}};
    pst_worker_state w = {.kind = (char *)"lcm",
                          .site = (char *)"local",
                          .node = (char *)name,
                          .state = (char *)"running",
                          .cpus = cpus,
                          .memory_bytes = (int64_t)64 << 30,
                          .gpus = gpus,
                          .gpu_types = &gpu_type,
                          .n_gpu_types = gpu_type != NULL,
                          .details = details,
                          .n_details = yields};
    feed(b, (trainer_in){.kind = PST_TRAINER_WORKER, .worker = &w, .seen_us = b->now});
}

static void node(bench *b, const char *name, double cpus, int gpus)
{
    node_of(b, name, cpus, gpus, true);
}

static void define(bench *b, pst_queue_spec spec)
{
    spec.weight = spec.weight > 0 ? spec.weight : 1;
    feed(b, (trainer_in){.kind = PST_TRAINER_QUEUE, .queue_name = spec.name, .queue = &spec});
}

static void undefine(bench *b, const char *name)
{
    feed(b, (trainer_in){.kind = PST_TRAINER_QUEUE, .queue_name = name});
}

typedef struct wanted {
    const char *queue, *user;
    double cpus;
    int gpus, priority;
    const char *node, *liked; /* penstock.gpu_preference */
} wanted;

/* free() it. */
static char *submit(bench *b, wanted w)
{
    char id[64], request_id[32], manifest[400];
    const char *user = w.user ? w.user : "ann";
    snprintf(request_id, sizeof request_id, "r%d", b->n++);
    snprintf(manifest, sizeof manifest,
             "name: j\ncpus: %g\ngpus: %d\nmemory: 1 MiB\nframework: {name: custom, version: 1, command: run}\npenstock:\n  queue: %s\n  "
             "priority: %d\n%s%s\n%s%s\n",
             w.cpus > 0 ? w.cpus : 1, w.gpus, w.queue ? w.queue : "default", w.priority, w.node ? "  node: " : "", w.node ? w.node : "",
             w.liked ? "  gpu_preference: " : "", w.liked ? w.liked : "");
    pst_job_request r = {.request_id = request_id, .user = (char *)(uintptr_t)user, .manifest = manifest};
    feed(b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
    pst_training_id(user, request_id, id);
    return strdup(id);
}

static const char *state(const bench *b, const char *id)
{
    const pst_job_state *s = tcore_job(b->core, id);
    return s ? pst_job_public_state_text(s->state) : "none";
}

static const char *reason(const bench *b, const char *id)
{
    const pst_job_state *s = tcore_job(b->core, id);
    return s && s->reason ? s->reason : "";
}

static void says(const bench *b, const char *id, const char *text)
{
    if (!strstr(reason(b, id), text))
        fail_msg("wanted \"%s\", found \"%s\"", text, reason(b, id));
}

static void report(bench *b, const char *id, pst_report_type type)
{
    const pst_job_state *s = tcore_job(b->core, id);
    char host[64];
    snprintf(host, sizeof host, "%s", s->node);
    pst_process_report r = {.training_id = (char *)(uintptr_t)id,
                            .generation = s->generation,
                            .process = (char *)"learner-1",
                            .type = type,
                            .time = b->now,
                            .reporter = (char *)"supervisor:h",
                            .host = host,
                            .has_exit_code = type == PST_REPORT_TYPE_EXITED};
    feed(b, (trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
}

static void ends(bench *b, const char *id)
{
    report(b, id, PST_REPORT_TYPE_EXITED);
}

/* ---- the tests --------------------------------------------------------------------------------------------------------------------- */

static void test_queues_one_that_does_not_exist_is_named_with_the_nearest(void **unused)
{
    bench b = start();
    node(&b, "", 4, 0);
    char *id = submit(&b, (wanted){.queue = "nightyl"});
    assert_string_equal(state(&b, id), "REJECTED");
    says(&b, id, "penstock.queue: line 7: there is no queue nightyl; there is: default");
    free(id);
    define(&b, (pst_queue_spec){.name = (char *)"nightly"});
    id = submit(&b, (wanted){.queue = "nightyl"});
    says(&b, id, "did you mean nightly?");
    free(id);
    id = submit(&b, (wanted){.queue = "nightly"});
    assert_string_equal(state(&b, id), "PENDING");
    assert_string_equal(tcore_job(b.core, id)->queue, "nightly");
    free(id);
    done(&b);
}

static void test_queues_a_quota_is_kept_and_given_back(void **unused)
{
    bench b = start();
    node(&b, "", 8, 0);
    define(&b, (pst_queue_spec){.name = (char *)"q", .quota = {.has_cpus = true, .cpus = 2}});
    char *wide = submit(&b, (wanted){.queue = "q", .cpus = 3});
    assert_string_equal(state(&b, wide), "REJECTED");
    says(&b, wide,
         "its queue can never run it, even when nothing else of it runs: queue q has 0 of its quota of 2 CPUs in use and the job needs 3");
    char *one = submit(&b, (wanted){.queue = "q"}), *two = submit(&b, (wanted){.queue = "q"}), *three = submit(&b, (wanted){.queue = "q"});
    char *other = submit(&b, (wanted){.cpus = 1});
    assert_string_equal(state(&b, two), "PENDING");
    assert_string_equal(state(&b, three), "QUEUED");
    says(&b, three, "queue q has 2 of its quota of 2 CPUs in use and the job needs 1");
    assert_string_equal(state(&b, other), "PENDING"); /* another queue's is not held up */
    ends(&b, one);
    assert_string_equal(state(&b, three), "PENDING");
    char *ids[] = {wide, one, two, three, other};
    for (size_t i = 0; i < 5; i++)
        free(ids[i]);
    done(&b);
}

static void test_queues_a_limit_for_each_user_lets_others_pass(void **unused)
{
    bench b = start();
    node(&b, "", 8, 0);
    define(&b, (pst_queue_spec){.name = (char *)"q", .has_max_running_per_user = true, .max_running_per_user = 1});
    char *first = submit(&b, (wanted){.queue = "q"}), *second = submit(&b, (wanted){.queue = "q"});
    char *bobs = submit(&b, (wanted){.queue = "q", .user = "bob"});
    assert_string_equal(state(&b, first), "PENDING");
    says(&b, second, "queue q lets 1 job of one user run at a time, and 1 of user ann is running");
    assert_string_equal(state(&b, bobs), "PENDING");
    ends(&b, bobs);
    assert_string_equal(state(&b, second), "QUEUED");
    ends(&b, first);
    assert_string_equal(state(&b, second), "PENDING");
    free(first);
    free(second);
    free(bobs);
    done(&b);
}

static void test_queues_jobs_without_gpus_pass_those_that_wait_for_some(void **unused)
{
    bench b = start();
    node(&b, "", 4, 1);
    define(&b, (pst_queue_spec){.name = (char *)"q", .quota = {.has_gpus = true, .gpus = 1}});
    char *has = submit(&b, (wanted){.queue = "q", .gpus = 1}), *waits = submit(&b, (wanted){.queue = "q", .gpus = 1});
    char *plain = submit(&b, (wanted){.queue = "q"});
    assert_string_equal(state(&b, waits), "QUEUED");
    says(&b, waits, "1 of its quota of 1 GPUs");
    assert_string_equal(state(&b, plain), "PENDING");
    free(has);
    free(waits);
    free(plain);
    done(&b);
}

static void test_queues_what_is_left_in_a_deleted_one_waits_for_it(void **unused)
{
    bench b = start();
    node(&b, "", 1, 0);
    define(&b, (pst_queue_spec){.name = (char *)"q"});
    char *runs = submit(&b, (wanted){.queue = "q"}), *waits = submit(&b, (wanted){.queue = "q"});
    undefine(&b, "q");
    says(&b, waits, "queue q was deleted; `penstock queues apply` brings it back");
    assert_string_equal(state(&b, runs), "PENDING"); /* goes on */
    char *late = submit(&b, (wanted){.queue = "q"});
    assert_string_equal(state(&b, late), "REJECTED");
    ends(&b, runs);
    assert_string_equal(state(&b, waits), "QUEUED");
    define(&b, (pst_queue_spec){.name = (char *)"q"});
    assert_string_equal(state(&b, waits), "PENDING");
    undefine(&b, "default"); /* is always there */
    assert_true(tcore_has_queue(b.core, "default"));
    free(runs);
    free(waits);
    free(late);
    done(&b);
}

/* One place, two queues that always have something to run, every job a second: what each had in the end. */
static void share(bench *b, int seconds, int *ret_a, int *ret_b)
{
    char *runs[3] = {0};
    int had[2] = {0};
    for (int i = 0; i < seconds; i++) {
        for (int k = 0; k < 2; k++)
            free(submit(b, (wanted){.queue = k ? "b" : "a"}));
        b->now += SECOND;
        for (size_t k = 0; k < 3; k++)
            free(runs[k]), runs[k] = NULL;
        size_t n = 0;
        for (int r = 0; r < b->n && n < 3; r++) {
            char id[64], request_id[32];
            snprintf(request_id, sizeof request_id, "r%d", r);
            pst_training_id("ann", request_id, id);
            if (!strcmp(state(b, id), "PENDING"))
                runs[n++] = strdup(id);
        }
        for (size_t k = 0; k < n; k++) {
            had[*tcore_job(b->core, runs[k])->queue == 'b']++;
            ends(b, runs[k]);
        }
    }
    for (size_t k = 0; k < 3; k++)
        free(runs[k]);
    *ret_a = had[0];
    *ret_b = had[1];
}

static void test_queues_share_by_weight(void **unused)
{
    bench b = start();
    int a, c;
    define(&b, (pst_queue_spec){.name = (char *)"a", .weight = 3});
    define(&b, (pst_queue_spec){.name = (char *)"b", .weight = 1});
    node(&b, "", 1, 0);
    share(&b, 200, &a, &c);
    if (a < 2.7 * c || a > 3.3 * c)
        fail_msg("3 to 1 was wanted, %d to %d came", a, c);
    done(&b);
}

static void test_queues_share_by_weight_where_several_places_are_free_at_once(void **unused)
{
    bench b = start();
    define(&b, (pst_queue_spec){.name = (char *)"a", .weight = 3});
    define(&b, (pst_queue_spec){.name = (char *)"b", .weight = 1});
    int had[2] = {0};
    for (int i = 0; i < 16; i++)
        free(submit(&b, (wanted){.queue = i < 8 ? "b" : "a"}));
    node(&b, "", 8, 0); /* all at once */
    for (int i = 0; i < 16; i++) {
        char id[64], request_id[32];
        snprintf(request_id, sizeof request_id, "r%d", i);
        pst_training_id("ann", request_id, id);
        had[i < 8] += !strcmp(state(&b, id), "PENDING");
    }
    assert_int_equal(had[0], 6);
    assert_int_equal(had[1], 2);
    done(&b);
}

/* What was used is known again after a restart: who had much waits. */
static void test_queues_use_is_made_again_from_the_states(void **unused)
{
    bench b = start();
    define(&b, (pst_queue_spec){.name = (char *)"a"});
    node(&b, "", 1, 0);
    for (int i = 0; i < 20; i++) {
        char *id = submit(&b, (wanted){.queue = "a"});
        report(&b, id, PST_REPORT_TYPE_RUNNING);
        b.now += 60 * SECOND;
        ends(&b, id);
        free(id);
    }
    define(&b, (pst_queue_spec){.name = (char *)"b"});
    tcore *next = tcore_new(&policy);
    for (int i = 0; i < 20; i++) {
        char id[64], request_id[32];
        snprintf(request_id, sizeof request_id, "r%d", i);
        pst_training_id("ann", request_id, id);
        tcore_load(next, tcore_job(b.core, id));
    }
    tcore_loaded(next);
    tcore_free(b.core);
    b.core = next;
    define(&b, (pst_queue_spec){.name = (char *)"a"});
    define(&b, (pst_queue_spec){.name = (char *)"b"});
    char *had = submit(&b, (wanted){.queue = "a"}), *had_not = submit(&b, (wanted){.queue = "b"});
    node(&b, "", 1, 0);
    assert_string_equal(state(&b, had), "QUEUED");
    assert_string_equal(state(&b, had_not), "PENDING");
    free(had);
    free(had_not);
    done(&b);
}

/* Narrow jobs come without end; the wide one, which needs the whole node, runs all the same. */
static void test_queues_a_wide_job_is_not_starved_by_narrow_ones(void **unused)
{
    bench b = start();
    node(&b, "", 4, 0);
    char *narrow[4], *wide, *others[64] = {0};
    for (int i = 0; i < 4; i++)
        narrow[i] = submit(&b, (wanted){.priority = 0});
    wide = submit(&b, (wanted){.cpus = 4, .priority = 1});
    define(&b, (pst_queue_spec){.name = (char *)"other"});
    int rounds = 0, ran = 0;
    for (; rounds < 64 && strcmp(state(&b, wide), "PENDING") != 0; rounds++) {
        others[rounds] = submit(&b, (wanted){.queue = "other"});
        b.now += SECOND;
        if (rounds < 4)
            ends(&b, narrow[rounds]);
        for (int i = 0; i + 2 < rounds; i++)
            if (!strcmp(state(&b, others[i]), "PENDING")) {
                ends(&b, others[i]);
                ran++;
            }
    }
    assert_string_equal(state(&b, wide), "PENDING");
    assert_true(rounds < 8 && ran < 4); /* as soon as those have ended that ran before, whoever's turn it was */
    ends(&b, wide);
    assert_string_equal(state(&b, others[0]), "PENDING"); /* they had to leave it the room, and are next */
    for (int i = 0; i < 4; i++)
        free(narrow[i]);
    for (int i = 0; i < 64; i++)
        free(others[i]);
    free(wide);
    done(&b);
}

static void test_queues_others_run_beside_the_room_that_is_kept(void **unused)
{
    bench b = start();
    node(&b, "", 4, 0);
    char *runs = submit(&b, (wanted){.cpus = 2}), *wide = submit(&b, (wanted){.cpus = 3});
    char *beside = submit(&b, (wanted){.cpus = 1}), *too_many = submit(&b, (wanted){.cpus = 1});
    says(&b, wide, "it waits for 3 CPUs: 1 of 4 free");
    assert_string_equal(state(&b, beside), "PENDING"); /* 3 + 1 = 4 */
    assert_string_equal(state(&b, too_many), "QUEUED");
    ends(&b, runs);
    assert_string_equal(state(&b, wide), "PENDING");
    ends(&b, wide);
    assert_string_equal(state(&b, too_many), "PENDING");
    free(runs);
    free(wide);
    free(beside);
    free(too_many);
    done(&b);
}

/* A job that waits for a node that does not exist, and one that the site's only node does not suit: room is kept for the first that could have it. */
static void test_queues_a_hopeless_job_does_not_end_the_keeping_of_room(void **unused)
{
    bench b = start();
    node(&b, "", 4, 0);
    char *narrow[4], *wide, *others[64] = {0};
    for (int i = 0; i < 4; i++)
        narrow[i] = submit(&b, (wanted){.priority = 0});
    char *hopeless = submit(&b, (wanted){.priority = 2, .node = "nosuch"});
    wide = submit(&b, (wanted){.cpus = 4, .priority = 1});
    says(&b, hopeless, "penstock.node asks for node nosuch");
    define(&b, (pst_queue_spec){.name = (char *)"other"});
    int rounds = 0;
    for (; rounds < 64 && strcmp(state(&b, wide), "PENDING") != 0; rounds++) {
        others[rounds] = submit(&b, (wanted){.queue = "other"});
        b.now += SECOND;
        if (rounds < 4)
            ends(&b, narrow[rounds]);
        for (int i = 0; i + 2 < rounds; i++)
            if (!strcmp(state(&b, others[i]), "PENDING"))
                ends(&b, others[i]);
    }
    assert_string_equal(state(&b, wide), "PENDING");
    assert_true(rounds < 40);
    assert_string_equal(state(&b, hopeless), "QUEUED");
    for (int i = 0; i < 4; i++)
        free(narrow[i]);
    for (int i = 0; i < 64; i++)
        free(others[i]);
    free(hopeless);
    free(wide);
    done(&b);
}

/* One user has thousands that have to wait: a pass looks at some of them, and finds another user's behind them all the same. */
static void test_queues_behind_thousands_that_may_not_run_others_are_found(void **unused)
{
    bench b = start();
    node(&b, "", 8, 0);
    define(&b, (pst_queue_spec){.name = (char *)"q", .has_max_running_per_user = true, .max_running_per_user = 1});
    char *first = submit(&b, (wanted){.queue = "q"}), *last = NULL;
    for (int i = 0; i < 9000; i++) {
        free(last);
        last = submit(&b, (wanted){.queue = "q"});
    }
    says(&b, last, "of user ann is running");
    char *bobs = submit(&b, (wanted){.queue = "q", .user = "bob"});
    for (int i = 0; i < 6 && strcmp(state(&b, bobs), "PENDING") != 0; i++)
        node(&b, "", 8, 0);
    assert_string_equal(state(&b, bobs), "PENDING");
    char *next = submit(&b, (wanted){.queue = "q", .user = "carol"}); /* from the front again */
    for (int i = 0; i < 6 && strcmp(state(&b, next), "PENDING") != 0; i++)
        node(&b, "", 8, 0);
    assert_string_equal(state(&b, next), "PENDING");
    ends(&b, first);
    assert_string_equal(state(&b, last), "QUEUED"); /* the oldest of hers runs */
    char *ids[] = {first, last, bobs, next};
    for (size_t i = 0; i < 4; i++)
        free(ids[i]);
    done(&b);
}

/* The kind that is liked best, of those with room; no job waits for one, and one that needs no GPU goes where most is free. */
static void test_queues_kinds_of_gpus_are_liked_in_order(void **unused)
{
    bench b = start();
    static char *types[] = {(char *)"nvidia-TeslaT4", (char *)"nvidia-A100-SXM4-40GB", (char *)"nvidia-NVIDIAH100PCIe"};
    static const char *const names[] = {"n-t4", "n-a100", "n-h100"};
    for (int i = 0; i < 3; i++) {
        gpu_type = types[i];
        node(&b, names[i], 8 - i, 1);
    }
    gpu_type = NULL;
    char *ids[4];
    for (int i = 0; i < 3; i++)
        ids[i] = submit(&b, (wanted){.gpus = 1, .liked = "[h100, a100]"});
    ids[3] = submit(&b, (wanted){.cpus = 1, .liked = "[h100]"});
    assert_string_equal(tcore_job(b.core, ids[0])->node, "n-h100");
    assert_string_equal(tcore_job(b.core, ids[1])->node, "n-a100");
    assert_string_equal(tcore_job(b.core, ids[2])->node, "n-t4");
    assert_string_equal(tcore_job(b.core, ids[3])->node, "n-t4");
    for (int i = 0; i < 4; i++)
        free(ids[i]);
    done(&b);
}

/* ---- pre-emption ------------------------------------------------------------------------------------------------------------------- */

static int events(const bench *b, enum pst_job_event_type type, const char *id)
{
    int n = 0;
    for (size_t i = 0; i < b->out.n; i++)
        n += b->out.at[i].kind == PST_DO_EVENT && b->out.at[i].event.type == type && !strcmp(b->out.at[i].event.training_id, id);
    return n;
}

static int halts(const bench *b)
{
    int n = 0;
    for (size_t i = 0; i < b->out.n; i++)
        n += b->out.at[i].kind == PST_DO_COMMAND && b->out.at[i].command.command == PST_JOB_COMMAND_TYPE_HALT;
    return n;
}

/* Such an LCM finds no stop in the job's state that it knows, and would hold the HALT back for ever. */
static void test_queues_an_older_lcm_is_not_asked_to_give_way(void **unused)
{
    bench b = start();
    node_of(&b, "", 1, 0, false);
    define(&b, (pst_queue_spec){.name = (char *)"urgent", .preempts = true});
    char *runs = submit(&b, (wanted){0}), *urgent = submit(&b, (wanted){.queue = "urgent"});
    assert_int_equal(halts(&b), 0);
    says(&b, urgent, "is of a version that does not know pre-emption");
    node(&b, "", 1, 0); /* upgraded */
    assert_int_equal(halts(&b), 1);
    ends(&b, runs);
    assert_string_equal(state(&b, urgent), "PENDING");
    free(runs);
    free(urgent);
    done(&b);
}

static void test_queues_one_that_preempts_takes_the_place_of_the_youngest(void **unused)
{
    bench b = start();
    node(&b, "", 2, 0);
    define(&b, (pst_queue_spec){.name = (char *)"urgent", .preempts = true});
    char *old = submit(&b, (wanted){0}), *young = submit(&b, (wanted){0}), *waits = submit(&b, (wanted){0});
    char *urgent = submit(&b, (wanted){.queue = "urgent"});
    assert_int_equal(halts(&b), 1);
    assert_int_equal(events(&b, PST_JOB_EVENT_TYPE_HALTING, young), 1);
    says(&b, urgent, "it waits for 1 CPUs: 0 of 2 free; 1 job on node");
    says(&b, young, "of queue urgent, which preempts");
    feed(&b, (trainer_in){.kind = PST_TRAINER_TICK, .caught_up = true});
    assert_int_equal(halts(&b), 0); /* once is enough */
    b.now += SECOND;
    ends(&b, young);
    assert_int_equal(events(&b, PST_JOB_EVENT_TYPE_PREEMPTED, young), 1);
    assert_string_equal(state(&b, young), "QUEUED");
    assert_string_equal(state(&b, urgent), "PENDING");
    assert_string_equal(state(&b, old), "PENDING");
    const pst_job_state *s = tcore_job(b.core, young);
    assert_true(s->attempts == 0 && s->platform_attempts == 0 && s->stop_action == PST_JOB_STOP_ACTION_NONE && !s->reason_code);
    ends(&b, urgent);
    assert_string_equal(state(&b, young), "PENDING"); /* before the one that was submitted after it */
    assert_int_equal(tcore_job(b.core, young)->generation, 2);
    assert_string_equal(state(&b, waits), "QUEUED");
    char *ids[] = {old, young, waits, urgent};
    for (size_t i = 0; i < 4; i++)
        free(ids[i]);
    done(&b);
}

static void test_queues_nobody_is_moved_in_vain_or_by_less(void **unused)
{
    bench b = start();
    node(&b, "", 4, 0);
    define(&b, (pst_queue_spec){.name = (char *)"urgent", .preempts = true, .quota = {.has_cpus = true, .cpus = 4}});
    char *high = submit(&b, (wanted){.priority = 9, .cpus = 2}), *low = submit(&b, (wanted){.cpus = 2});
    char *wide = submit(&b, (wanted){.queue = "urgent", .cpus = 3}); /* the low one alone is not enough */
    assert_int_equal(halts(&b), 0);
    assert_string_equal(state(&b, wide), "QUEUED");
    char *plain = submit(&b, (wanted){.priority = 99}); /* of a queue that does not preempt */
    assert_int_equal(halts(&b), 0);
    define(&b, (pst_queue_spec){.name = (char *)"default",
                                .quota = {.has_cpus = true, .cpus = 1}}); /* over its quota: whatever their priority */
    assert_int_equal(halts(&b), 2);
    ends(&b, low);
    ends(&b, high);
    assert_string_equal(state(&b, wide), "PENDING");
    char *ids[] = {high, low, wide, plain};
    for (size_t i = 0; i < 4; i++)
        free(ids[i]);
    done(&b);
}

static void test_queues_of_several_only_those_go_that_must(void **unused)
{
    bench b = start();
    node(&b, "", 8, 0);
    define(&b, (pst_queue_spec){.name = (char *)"urgent", .preempts = true});
    char *wide = submit(&b, (wanted){.cpus = 6}), *narrow = submit(&b, (wanted){.cpus = 2});
    char *urgent = submit(&b, (wanted){.queue = "urgent", .cpus = 4});
    assert_int_equal(events(&b, PST_JOB_EVENT_TYPE_HALTING, wide), 1);
    assert_int_equal(events(&b, PST_JOB_EVENT_TYPE_HALTING, narrow), 0);
    free(wide);
    free(narrow);
    free(urgent);
    done(&b);
}

/* Victims end one after the other: what the first leaves is not given back to it, or to anybody else, until there is room for the one that preempts. */
static void test_queues_what_victims_leave_stays_free(void **unused)
{
    bench b = start();
    char *plain[9], *bound = NULL;
    node(&b, "", 8, 0);
    define(&b, (pst_queue_spec){.name = (char *)"urgent", .preempts = true});
    define(&b, (pst_queue_spec){.name = (char *)"other"});
    for (int i = 0; i < 9; i++) {
        b.now += SECOND;
        plain[i] = submit(&b, (wanted){0}); /* eight run, one waits */
    }
    bound = submit(&b, (wanted){.queue = "other", .cpus = 8}); /* the first that finds no room: it is kept for it */
    b.now += SECOND;
    char *urgent = submit(&b, (wanted){.queue = "urgent", .cpus = 4});
    assert_int_equal(halts(&b), 4);
    for (int i = 7; i > 3; i--) {
        assert_string_equal(state(&b, urgent), "QUEUED");
        b.now += SECOND;
        ends(&b, plain[i]);
        assert_int_equal(halts(&b), 0); /* nobody else is moved */
        assert_string_equal(state(&b, plain[i]), "QUEUED");
        assert_string_equal(state(&b, plain[8]), "QUEUED");
    }
    assert_string_equal(state(&b, urgent), "PENDING");
    ends(&b, urgent);
    for (int i = 0; i < 9; i++)
        free(plain[i]);
    free(bound);
    free(urgent);
    done(&b);
}

/* Who has to make room learns of its own user's jobs by name, and of nobody else's. */
static void test_queues_a_victim_is_not_told_another_users_job(void **unused)
{
    bench b = start();
    node(&b, "", 2, 0);
    define(&b, (pst_queue_spec){.name = (char *)"urgent", .preempts = true});
    char *bobs = submit(&b, (wanted){.user = "bob"}), *anns = submit(&b, (wanted){0});
    char *urgent = submit(&b, (wanted){.queue = "urgent", .cpus = 2});
    assert_int_equal(halts(&b), 2);
    says(&b, bobs, "its place goes to another user's job of queue urgent");
    assert_null(strstr(reason(&b, bobs), urgent));
    says(&b, anns, urgent);
    free(bobs);
    free(anns);
    free(urgent);
    done(&b);
}

/* A job that claimed a node and wants it no more leaves it to all. */
static void test_queues_a_claim_ends_with_its_job(void **unused)
{
    bench b = start();
    node(&b, "", 2, 0);
    define(&b, (pst_queue_spec){.name = (char *)"urgent", .preempts = true});
    char *one = submit(&b, (wanted){0}), *two = submit(&b, (wanted){0}), *urgent = submit(&b, (wanted){.queue = "urgent", .cpus = 2});
    assert_int_equal(halts(&b), 2);
    ends(&b, two);
    assert_string_equal(state(&b, two), "QUEUED");
    pst_job_request r = {.request_id = (char *)"t", .user = (char *)"ann", .action = PST_JOB_ACTION_TERMINATE, .training_id = urgent};
    feed(&b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
    assert_string_equal(state(&b, urgent), "TERMINATED");
    assert_string_equal(state(&b, two), "PENDING");
    ends(&b, one);
    free(one);
    free(two);
    free(urgent);
    done(&b);
}

static void test_queues_what_is_asked_of_a_job_that_is_moved_counts(void **unused)
{
    bench b = start();
    node(&b, "", 1, 0);
    define(&b, (pst_queue_spec){.name = (char *)"urgent", .preempts = true});
    char *runs = submit(&b, (wanted){0}), *urgent = submit(&b, (wanted){.queue = "urgent"});
    pst_job_request r = {.request_id = (char *)"h", .user = (char *)"ann", .action = PST_JOB_ACTION_HALT, .training_id = runs};
    feed(&b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
    assert_int_equal(tcore_job(b.core, runs)->stop_action, PST_JOB_STOP_ACTION_HALT);
    ends(&b, runs);
    assert_string_equal(state(&b, runs), "HALTED");
    assert_string_equal(state(&b, urgent), "PENDING");
    free(runs);
    free(urgent);
    done(&b);
}

static void test_queues_one_above_a_lowered_quota_holds_up_nobody(void **unused)
{
    bench b = start();
    node(&b, "", 8, 0);
    define(&b, (pst_queue_spec){.name = (char *)"q", .quota = {.has_cpus = true, .cpus = 4}});
    char *runs = submit(&b, (wanted){.queue = "q", .cpus = 4}), *large = submit(&b, (wanted){.queue = "q", .cpus = 3});
    char *small = submit(&b, (wanted){.queue = "q", .cpus = 1});
    define(&b, (pst_queue_spec){.name = (char *)"q", .quota = {.has_cpus = true, .cpus = 2}});
    ends(&b, runs);
    says(&b, large, "can never run it");
    assert_string_equal(state(&b, large), "QUEUED");
    assert_string_equal(state(&b, small), "PENDING");
    define(&b, (pst_queue_spec){.name = (char *)"q", .quota = {.has_cpus = true, .cpus = 4}});
    ends(&b, small);
    assert_string_equal(state(&b, large), "PENDING");
    free(runs);
    free(large);
    free(small);
    done(&b);
}

/* Without the array's halt it would wait again, and come back. */
static void test_queues_the_halt_of_an_array_reaches_tasks_that_are_moved(void **unused)
{
    bench b = start();
    char id[64], task[80];
    node(&b, "", 1, 0);
    define(&b, (pst_queue_spec){.name = (char *)"urgent", .preempts = true});
    pst_job_request r = {.request_id = (char *)"a", .user = (char *)"ann"};
    r.manifest =
        (char *)"name: j\ncpus: 1\nmemory: 1 MiB\nframework: {name: custom, version: 1, command: run}\npenstock: {array: \"0-1\"}\n";
    feed(&b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
    pst_training_id("ann", "a", id);
    pst_task_id(id, 0, task);
    assert_string_equal(state(&b, task), "PENDING");
    char *urgent = submit(&b, (wanted){.queue = "urgent"});
    assert_int_equal(tcore_job(b.core, task)->stop_action, PST_JOB_STOP_ACTION_PREEMPT);
    r = (pst_job_request){.request_id = (char *)"h", .user = (char *)"ann", .action = PST_JOB_ACTION_HALT, .training_id = id};
    feed(&b, (trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
    assert_int_equal(tcore_job(b.core, task)->stop_action, PST_JOB_STOP_ACTION_HALT);
    ends(&b, task);
    assert_string_equal(state(&b, task), "HALTED");
    assert_string_equal(state(&b, id), "HALTED");
    free(urgent);
    done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queues_one_that_does_not_exist_is_named_with_the_nearest),
        cmocka_unit_test(test_queues_a_quota_is_kept_and_given_back),
        cmocka_unit_test(test_queues_a_limit_for_each_user_lets_others_pass),
        cmocka_unit_test(test_queues_jobs_without_gpus_pass_those_that_wait_for_some),
        cmocka_unit_test(test_queues_what_is_left_in_a_deleted_one_waits_for_it),
        cmocka_unit_test(test_queues_share_by_weight),
        cmocka_unit_test(test_queues_share_by_weight_where_several_places_are_free_at_once),
        cmocka_unit_test(test_queues_use_is_made_again_from_the_states),
        cmocka_unit_test(test_queues_a_wide_job_is_not_starved_by_narrow_ones),
        cmocka_unit_test(test_queues_others_run_beside_the_room_that_is_kept),
        cmocka_unit_test(test_queues_a_hopeless_job_does_not_end_the_keeping_of_room),
        cmocka_unit_test(test_queues_behind_thousands_that_may_not_run_others_are_found),
        cmocka_unit_test(test_queues_an_older_lcm_is_not_asked_to_give_way),
        cmocka_unit_test(test_queues_kinds_of_gpus_are_liked_in_order),
        cmocka_unit_test(test_queues_one_that_preempts_takes_the_place_of_the_youngest),
        cmocka_unit_test(test_queues_what_victims_leave_stays_free),
        cmocka_unit_test(test_queues_a_victim_is_not_told_another_users_job),
        cmocka_unit_test(test_queues_a_claim_ends_with_its_job),
        cmocka_unit_test(test_queues_nobody_is_moved_in_vain_or_by_less),
        cmocka_unit_test(test_queues_of_several_only_those_go_that_must),
        cmocka_unit_test(test_queues_what_is_asked_of_a_job_that_is_moved_counts),
        cmocka_unit_test(test_queues_one_above_a_lowered_quota_holds_up_nobody),
        cmocka_unit_test(test_queues_the_halt_of_an_array_reaches_tasks_that_are_moved),
    };
    return cmocka_run_group_tests_name("trainer_queues", tests, NULL, NULL);
}
