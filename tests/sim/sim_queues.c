/* sim_queues.c - the Trainer's core as a scheduler, in a seeded world of nodes, queues and gangs, beside a model that knows only what was submitted, what
 * was deployed where, and what has ended there. The model is asked after every round, and has its own sums: it shares nothing with the core but the
 * manifests. It holds that
 *
 *     no node ever has more than it has             a generation is given out whole, each process once, in one round
 *     no queue has more than its quota allowed      no user more jobs than the queue lets run
 *     who is first in a queue and may run does so   queues that always want get what their weights say
 *
 * Users submit faster than the nodes can run; operators change quotas, drain and lose nodes; the Trainer restarts and goes on from what it published. At
 * the end all of it has run. Then the same core is given thousands of nodes, for the time that takes.
 *
 *     sim_queues [SEEDS] [FIRST] [-v]       default 200 seeds from 1 (ctest runs 60)
 *     sim_queues 0 0 NODES JOBS             the large world alone (default 5000 and 10000) */
#define SIM_NAME "sim_queues"
#include "common/base/map.h"
#include "common/base/buf.h"
#include "common/objects/members.h"
#include "schemas/avro.h"
#include "schemas/job_state.h"
#include "schemas/training_id.h"
#include "sim_seed.h"
#include "trainer/trainer_core.h"

#include <string.h>
#include <sys/resource.h>

#define SECOND INT64_C(1000000)
enum {
    QUEUES = 3,
    USERS = 3,
    GANG_MAX = 8,
    NODES_MAX = 8,
    ROUNDS = 1000,
    LASTS_S = 20, /* a generation, at most */
    PATIENCE = 4, /* as many times that may the first of a queue wait, times what its weight is of all */
    GRACE_S = 5,
    HALF_LIFE_S = 600
};

typedef struct size {
    int64_t cpu, gpus; /* CPUs in thousandths */
} size;

typedef struct snode {
    char name[16];
    size has, used;
    bool draining, lost;
} snode;

typedef struct squeue {
    char name[16];
    double weight;
    bool has_quota, preempts;
    size quota, used;
    int per_user, running[USERS]; /* per_user -1: any number */
    double had;                   /* CPU seconds */
} squeue;

typedef struct sjob {
    char id[64], nonce[40];
    int queue, user, priority, processes, n;
    size each;
    int generation, node[GANG_MAX];
    bool over[GANG_MAX], runs, ended, told_running;
    int64_t ends_us, waited_us, submitted_us;
} sjob;

static struct world {
    tcore *core;
    int64_t now_us;
    int n_nodes, n_queues, kind;
    snode *nodes;
    squeue queues[QUEUES];
    sjob *jobs;
    size_t n_jobs;
    size_t *going, n_going;         /* places of those that have not ended */
    pst_map by_id, by_name, states; /* id → number + 1; name of a node → the same; id → pst_job_state */
    int deployed, preempted, spread, restarts;
    int64_t longest_us;
} w;

enum { FAIR, LIMITS, PREEMPTING, BREAKING, KINDS };

static trainer_policy policy(void)
{
    trainer_policy p = PST_TRAINER_POLICY_DEFAULT;
    memset(p.nonce_key, 7, sizeof p.nonce_key);
    p.operators = "op";
    p.half_life_us = HALF_LIFE_S * SECOND;
    p.silent_us = INT64_C(1) << 60; /* nodes are lost by a person's word here; silence is sim_trainer's */
    return p;
}

/* ---- the model ------------------------------------------------------------------------------------------------------------------- */

static void add(size *to, const size *n, int sign)
{
    to->cpu += sign * n->cpu;
    to->gpus += sign * n->gpus;
}

static size all_of(const sjob *j)
{
    return (size){j->each.cpu * j->processes, j->each.gpus * j->processes};
}

static sjob *job_of(const char *id)
{
    size_t at = (size_t)(uintptr_t)pst_map_get(&w.by_id, id);
    if (!at)
        broken("a job that nobody submitted: %s", id);
    return &w.jobs[at - 1];
}

static int node_of(const char *name)
{
    size_t at = (size_t)(uintptr_t)pst_map_get(&w.by_name, name);
    if (!at)
        broken("a node that there is not: %s", name);
    return (int)at - 1;
}

/* Would its queue's rules let it start, as the model has them? */
static bool is_allowed(const sjob *j)
{
    const squeue *q = &w.queues[j->queue];
    size all = all_of(j);
    if (q->has_quota && (q->used.cpu + all.cpu > q->quota.cpu || (all.gpus && q->used.gpus + all.gpus > q->quota.gpus)))
        return false;
    return q->per_user < 0 || q->running[j->user] < q->per_user;
}

static void deployed(const pst_job_command *c)
{
    sjob *j = job_of(c->training_id);
    const pst_deploy_spec *s = c->spec;
    if (c->generation == j->generation) { /* the same, to another of its nodes */
        if (!j->runs || !s->n_nodes)
            broken("%s: generation %d is deployed twice", j->id, c->generation);
        return;
    }
    if (j->runs || j->ended)
        broken("%s: generation %d is deployed while %d %s", j->id, c->generation, j->generation, j->runs ? "lives" : "was the last");
    if (!is_allowed(j))
        broken("%s is deployed against the rules of queue %s", j->id, w.queues[j->queue].name);
    if (s->n_nodes && s->n_nodes != (size_t)j->processes)
        broken("%s: %zu of its %d processes have a node", j->id, s->n_nodes, j->processes);
    j->generation = c->generation;
    snprintf(j->nonce, sizeof j->nonce, "%s", c->nonce);
    for (int i = 0; i < j->processes; i++) {
        snode *n = &w.nodes[j->node[i] = node_of(s->n_nodes ? s->nodes[i] : c->node)];
        add(&n->used, &j->each, 1);
        if (n->used.cpu > n->has.cpu || n->used.gpus > n->has.gpus)
            broken("%s: node %s has more than it has: %lld of %lld CPUs/1000, %lld of %lld GPUs", j->id, n->name, (long long)n->used.cpu,
                   (long long)n->has.cpu, (long long)n->used.gpus, (long long)n->has.gpus);
        if (n->draining || n->lost)
            broken("%s is given to node %s, which takes nothing", j->id, n->name);
        j->over[i] = false;
    }
    size all = all_of(j);
    add(&w.queues[j->queue].used, &all, 1);
    w.queues[j->queue].running[j->user]++;
    j->runs = true;
    j->told_running = false;
    j->ends_us = w.now_us + SECOND + below(LASTS_S * SECOND - SECOND);
    w.longest_us = j->waited_us > w.longest_us ? j->waited_us : w.longest_us;
    j->waited_us = 0;
    w.deployed++;
    w.spread += s->n_nodes > 0;
    if (verbose)
        printf("%9.3f %s of %s: %d x %lld on %s%s\n", (double)(w.now_us % (1000000 * SECOND)) / 1e6, j->id, w.queues[j->queue].name,
               j->processes, (long long)j->each.cpu, w.nodes[j->node[0]].name, s->n_nodes ? " …" : "");
}

/* Nothing of the generation is left. */
static void is_over(sjob *j)
{
    size all = all_of(j);
    for (int i = 0; i < j->processes; i++)
        if (!j->over[i])
            return;
    add(&w.queues[j->queue].used, &all, -1);
    w.queues[j->queue].running[j->user]--;
    j->runs = false;
}

static void process_over(sjob *j, int i)
{
    j->over[i] = true;
    add(&w.nodes[j->node[i]].used, &j->each, -1);
}

/* ---- the world ------------------------------------------------------------------------------------------------------------------- */

static void free_state(void *p)
{
    pst_event_clear(&pst_job_state_type, p);
    free(p);
}

static bool some_are_lost(void)
{
    for (int i = 0; i < w.n_nodes; i++)
        if (w.nodes[i].lost)
            return true;
    return false;
}

static void take(const trainer_action *a)
{
    if (a->kind == PST_DO_EVENT && (a->event.type == PST_JOB_EVENT_TYPE_FAILED || a->event.type == PST_JOB_EVENT_TYPE_COMPLETED))
        job_of(a->event.training_id)->ended = true;
    if (a->kind == PST_DO_EVENT && a->event.type == PST_JOB_EVENT_TYPE_REJECTED) {
        if (!some_are_lost()) /* those do not count where the others are too small */
            broken("%s is rejected: %s", a->event.training_id, a->event.reason);
        job_of(a->event.training_id)->ended = true;
    }
    w.preempted += a->kind == PST_DO_EVENT && a->event.type == PST_JOB_EVENT_TYPE_PREEMPTED;
    if (a->kind == PST_DO_COMMAND && a->command.command == PST_JOB_COMMAND_TYPE_DEPLOY)
        deployed(&a->command);
    bool ends =
        a->kind == PST_DO_COMMAND && (a->command.command == PST_JOB_COMMAND_TYPE_HALT || a->command.command == PST_JOB_COMMAND_TYPE_KILL);
    sjob *j = ends && *a->command.training_id ? job_of(a->command.training_id) : NULL;
    if (j && j->runs && j->generation == a->command.generation && j->ends_us > w.now_us + GRACE_S * SECOND)
        j->ends_us = w.now_us + below(GRACE_S * SECOND);
    if (a->kind == PST_DO_STATE) {
        pst_job_state *copy = pst_alloc(sizeof *copy), *old;
        pst_event_copy(&pst_job_state_type, a->state, copy);
        if ((old = pst_map_put(&w.states, a->key, copy)))
            free_state(old);
    }
}

static void step(trainer_in in)
{
    trainer_actions out = {0};
    in.more = in.kind != PST_TRAINER_PASS && in.kind != PST_TRAINER_TICK;
    tcore_step(w.core, &in, w.now_us, &out);
    for (size_t i = 0; i < out.n; i++)
        take(&out.at[i]);
    trainer_actions_done(&out);
}

static void beat(int i)
{
    snode *n = &w.nodes[i];
    char address[24];
    snprintf(address, sizeof address, "10.%d.%d.%d", 1 + i / 60000, i / 250 % 240, 1 + i % 250);
    pst_str_pair details[] = {{(char *)PST_ADDRESS_DETAIL, address}, {(char *)PST_YIELDS_DETAIL, (char *)"yes"}};
    pst_worker_state s = {.worker_id = n->name,
                          .kind = (char *)"lcm",
                          .site = (char *)"local",
                          .host = n->name,
                          .node = n->name,
                          .state = (char *)(n->draining ? "draining" : "running"),
                          .cpus = (double)n->has.cpu / 1000,
                          .memory_bytes = INT64_C(1) << 40,
                          .gpus = (int)n->has.gpus,
                          .details = details,
                          .n_details = 2};
    step((trainer_in){.kind = PST_TRAINER_WORKER, .worker = &s, .seen_us = w.now_us});
}

static void define(const squeue *q)
{
    pst_queue_spec s = {.name = (char *)(uintptr_t)q->name, .weight = q->weight, .preempts = q->preempts};
    s.has_max_running_per_user = q->per_user >= 0;
    s.max_running_per_user = q->per_user >= 0 ? q->per_user : 0;
    s.quota.has_cpus = s.quota.has_gpus = q->has_quota;
    s.quota.cpus = (double)q->quota.cpu / 1000;
    s.quota.gpus = (int)q->quota.gpus;
    step((trainer_in){.kind = PST_TRAINER_QUEUE, .queue_name = q->name, .queue = &s});
}

static void submit(int queue, int processes, size each, int priority)
{
    static const char *const users[USERS] = {"ann", "bob", "eve"};
    char request_id[24], manifest[300];
    if (w.n_jobs % 1024 == 0)
        w.jobs = pst_realloc(w.jobs, (w.n_jobs + 1024) * sizeof *w.jobs);
    if (w.n_jobs % 1024 == 0)
        w.going = pst_realloc(w.going, (w.n_jobs + 1024) * sizeof *w.going);
    w.going[w.n_going++] = w.n_jobs;
    sjob *j = &w.jobs[w.n_jobs++];
    *j = (sjob){.queue = queue, .user = below(USERS), .priority = priority, .processes = processes, .each = each, .submitted_us = w.now_us};
    snprintf(request_id, sizeof request_id, "r%zu", w.n_jobs);
    pst_training_id(users[j->user], request_id, j->id);
    pst_map_put(&w.by_id, j->id, (void *)(uintptr_t)w.n_jobs);
    snprintf(
        manifest, sizeof manifest,
        "name: j\nlearners: %d\ncpus: %g\ngpus: %d\nmemory: 1 MiB\nframework: {name: custom, version: 1, command: run}\npenstock: {queue: "
        "%s, priority: %d, retries: 3}\n",
        processes, (double)each.cpu / 1000, (int)each.gpus, w.queues[queue].name, priority);
    pst_job_request r = {.request_id = request_id, .user = (char *)(uintptr_t)users[j->user], .manifest = manifest};
    step((trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
}

static void report(const sjob *j, int i, pst_report_type type, int exit_code)
{
    char process[24];
    snprintf(process, sizeof process, "learner-%d", i + 1);
    pst_process_report r = {.training_id = (char *)(uintptr_t)j->id,
                            .generation = j->generation,
                            .process = process,
                            .type = type,
                            .time = w.now_us,
                            .reporter = (char *)"supervisor:h",
                            .host = (char *)"h",
                            .node = w.nodes[j->node[i]].name,
                            .nonce = (char *)(uintptr_t)j->nonce,
                            .has_exit_code = type == PST_REPORT_TYPE_EXITED,
                            .exit_code = exit_code};
    step((trainer_in){.kind = PST_TRAINER_REPORT, .report = &r});
}

/* Processes of a generation end one by one, within a moment of each other. */
static void go_on(sjob *j)
{
    const pst_job_state *s = tcore_job(w.core, j->id);
    for (int i = 0; i < j->processes && !j->told_running; i++)
        report(j, i, PST_REPORT_TYPE_RUNNING, 0);
    j->told_running = true;
    if (j->ends_us > w.now_us)
        return;
    bool stops = s->stop_action != PST_JOB_STOP_ACTION_NONE || s->reason_code;
    int code = stops ? 143 : chance(5) && w.kind == BREAKING ? 1 : 0;
    for (int i = 0; i < j->processes; i++)
        if (!j->over[i] && !w.nodes[j->node[i]].lost && (j->processes == 1 || chance(70))) {
            process_over(j, i); /* first: what is free may be given away by the answer */
            report(j, i, PST_REPORT_TYPE_EXITED, code);
        }
    is_over(j);
}

/* ---- what the model holds, over time ----------------------------------------------------------------------------------------------- */

static bool is_before(const sjob *a, const sjob *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    const pst_job_state *x = tcore_job(w.core, a->id), *y = tcore_job(w.core, b->id);
    return x->submitted_at != y->submitted_at ? x->submitted_at < y->submitted_at : strcmp(a->id, b->id) < 0;
}

/* Who is first in a queue, and may run by its rules, waits for room only: not for ever. One that is tried again waits for its pause, too. */
static void check_heads(int64_t passed_us)
{
    sjob *head[QUEUES] = {0};
    double weights = 0;
    for (int q = 0; q < w.n_queues; q++)
        weights += w.queues[q].weight;
    for (size_t i = 0; i < w.n_going; i++) {
        sjob *j = &w.jobs[w.going[i]];
        if (!j->runs && !j->ended && (!head[j->queue] || is_before(j, head[j->queue])))
            head[j->queue] = j;
    }
    for (int q = 0; q < w.n_queues; q++) {
        if (!head[q] || !is_allowed(head[q]))
            continue;
        head[q]->waited_us += passed_us;
        double limit_s = PATIENCE * LASTS_S * weights / w.queues[q].weight;
        if (w.kind != PREEMPTING && (double)head[q]->waited_us / 1e6 > limit_s)
            broken("%s of queue %s, %d processes of %lld CPUs/1000 and %lld GPUs, is the first and waits for %lld s: %s", head[q]->id,
                   w.queues[q].name, head[q]->processes, (long long)head[q]->each.cpu, (long long)head[q]->each.gpus,
                   (long long)(head[q]->waited_us / SECOND), tcore_job(w.core, head[q]->id)->reason);
    }
}

static void check_sums(void)
{
    int64_t used[3] = {0};
    size all = {0};
    for (int q = 0; q < w.n_queues; q++) /* a gang's places are given back when the last of it has ended */
        add(&all, &w.queues[q].used, 1);
    tcore_used(w.core, "local", used);
    if (used[0] != all.cpu || used[2] != all.gpus)
        broken("charged are %lld CPUs/1000 and %lld GPUs; by the model %lld and %lld run", (long long)used[0], (long long)used[2],
               (long long)all.cpu, (long long)all.gpus);
}

/* Who always wants has what its weight says. */
static void check_shares(void)
{
    double had = 0, weights = 0;
    for (int q = 0; q < w.n_queues; q++) {
        had += w.queues[q].had;
        weights += w.queues[q].weight;
    }
    for (int q = 0; q < w.n_queues; q++) {
        double got = w.queues[q].had / had, due = w.queues[q].weight / weights;
        if (got < 0.85 * due || got > 1.15 * due)
            broken("queue %s of weight %g had %.3f of all, and %.3f is its due", w.queues[q].name, w.queues[q].weight, got, due);
    }
}

/* ---- what happens ------------------------------------------------------------------------------------------------------------------- */

static void restart(void)
{
    trainer_policy p = policy();
    tcore *next = tcore_new(&p);
    for (size_t i = 0; i < w.states.n; i++)
        if (w.states.at[i].key)
            tcore_load(next, w.states.at[i].value);
    tcore_loaded(next);
    if (!tcore_equal(w.core, next))
        broken("a rebuilt core differs from the live one");
    tcore_free(w.core);
    w.core = next;
    w.restarts++;
    for (size_t i = 0; i < w.n_going; i++) /* for how long one was the first is on no topic */
        w.jobs[w.going[i]].waited_us = 0;
    for (int q = 0; q < w.n_queues; q++)
        define(&w.queues[q]);
    for (int i = 0; i < w.n_nodes; i++)
        if (!w.nodes[i].lost)
            beat(i);
}

/* How many such processes all nodes together hold. */
static int held_by_all(const size *each)
{
    int64_t n = 0;
    for (int i = 0; i < w.n_nodes; i++)
        n += w.nodes[i].has.cpu / each->cpu;
    return (int)n;
}

static void users_act(void)
{
    int waiting[QUEUES] = {0};
    for (size_t i = 0; i < w.n_going; i++)
        waiting[w.jobs[w.going[i]].queue] += !w.jobs[w.going[i]].runs;
    for (int q = 0; q < w.n_queues; q++) {
        bool urgent = w.queues[q].preempts;
        while (waiting[q] < (urgent ? chance(4) : 6)) {
            bool gang = chance(20);
            size each = {(1 + below(gang ? 3 : 2)) * 1000, 0};
            if (w.kind != FAIR && chance(15))
                each.gpus = 1;
            int most = held_by_all(&each), processes = gang && !each.gpus ? 2 + below(3) : 1;
            submit(q, processes < most ? processes : most, each, w.kind == FAIR ? 0 : below(2));
            waiting[q]++;
        }
    }
}

static void lose(int i)
{
    pst_str_pair option = {(char *)"node", w.nodes[i].name};
    char request_id[24];
    static int n;
    snprintf(request_id, sizeof request_id, "lost%d", n++);
    w.nodes[i].lost = true;
    for (size_t k = 0; k < w.n_going; k++) { /* fenced: what runs there counts no more */
        sjob *j = &w.jobs[w.going[k]];
        for (int p = 0; j->runs && p < j->processes; p++)
            if (j->node[p] == i && !j->over[p])
                process_over(j, p);
        if (j->runs)
            is_over(j);
    }
    pst_job_request r = {
        .request_id = request_id, .user = (char *)"op", .action = PST_JOB_ACTION_NODE_LOST, .options = &option, .n_options = 1};
    step((trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r});
}

static void operators_act(void)
{
    int i = below(w.n_nodes), q = below(w.n_queues);
    if (w.kind == BREAKING && chance(2) && !w.nodes[i].lost) {
        w.nodes[i].draining = !w.nodes[i].draining;
        beat(i);
    }
    if (w.kind == BREAKING && chance(1) && !w.nodes[i].lost)
        lose(i);
    for (int k = 0; k < w.n_nodes && w.kind == BREAKING; k++)
        if ((w.nodes[k].lost || w.nodes[k].draining) && chance(10)) {
            w.nodes[k].lost = w.nodes[k].draining = false;
            beat(k);
        }
    if (w.kind == LIMITS && chance(2)) { /* never below what the widest job needs */
        w.queues[q].quota.cpu = (12 + below(8)) * 1000;
        define(&w.queues[q]);
    }
}

static void build(int nodes)
{
    trainer_policy p = policy();
    w.now_us = 1700000000 * SECOND;
    w.core = tcore_new(&p);
    w.n_nodes = nodes;
    w.n_queues = QUEUES;
    w.nodes = pst_alloc((size_t)nodes * sizeof *w.nodes);
    for (int q = 0; q < QUEUES; q++) {
        squeue *x = &w.queues[q];
        snprintf(x->name, sizeof x->name, "q%d", q);
        x->weight = 1 + below(4);
        x->per_user = -1;
        if (w.kind == LIMITS) {
            x->has_quota = chance(70);
            x->quota = (size){(12 + below(8)) * 1000, 1 + below(2)};
            x->per_user = chance(40) ? 1 + below(3) : -1;
        }
        x->preempts = w.kind == PREEMPTING && !q;
        define(x);
    }
    for (int i = 0; i < nodes; i++) {
        snprintf(w.nodes[i].name, sizeof w.nodes[i].name, "n%d", i);
        w.nodes[i].has = (size){(2 + below(3)) * 2000, below(2) || !i ? 1 : 0};
        pst_map_put(&w.by_name, w.nodes[i].name, (void *)(uintptr_t)(i + 1));
        beat(i);
    }
}

static void world_done(void)
{
    tcore_free(w.core);
    pst_map_done(&w.by_id, NULL);
    pst_map_done(&w.by_name, NULL);
    pst_map_done(&w.states, free_state);
    free(w.jobs);
    free(w.going);
    free(w.nodes);
    struct world all = w;
    memset(&w, 0, sizeof w);
    w.deployed = all.deployed;
    w.preempted = all.preempted;
    w.spread = all.spread;
    w.restarts = all.restarts;
    w.longest_us = all.longest_us;
}

static void a_round(int64_t passed_us)
{
    w.now_us += passed_us;
    for (int q = 0; q < w.n_queues; q++)
        w.queues[q].had += (double)w.queues[q].used.cpu / 1000 * (double)passed_us / 1e6;
    size_t left = 0;
    for (size_t i = 0; i < w.n_going; i++) {
        sjob *j = &w.jobs[w.going[i]];
        if (j->runs)
            go_on(j);
        if (!j->ended)
            w.going[left++] = w.going[i];
    }
    w.n_going = left;
    step((trainer_in){.kind = chance(20) ? PST_TRAINER_TICK : PST_TRAINER_PASS});
    check_sums();
    check_heads(passed_us);
}

static void run(uint64_t seed)
{
    seed_now = rng_state = seed;
    w.kind = (int)(seed % KINDS);
    build(3 + below(NODES_MAX - 3));
    for (int i = 0; i < ROUNDS; i++) {
        users_act();
        operators_act();
        a_round(1 + below(2 * SECOND));
        if (chance(1) && chance(40)) /* between rounds: what one had not published would be done again */
            restart();
    }
    if (w.kind == FAIR)
        check_shares();
    for (int i = 0; i < w.n_nodes; i++) {
        w.nodes[i].lost = w.nodes[i].draining = false;
        beat(i);
    }
    for (int i = 0; w.n_going; i++) { /* nobody submits any more: all of it runs */
        a_round(SECOND);
        if (i > 5000)
            broken("%zu jobs do not come to their end, %s among them: %s", w.n_going, w.jobs[w.going[0]].id,
                   tcore_job(w.core, w.jobs[w.going[0]].id)->reason);
    }
}

/* ---- the large world ----------------------------------------------------------------------------------------------------------------- */

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6;
}

/* Thousands of nodes; more jobs than they hold, gangs among them; then as many end as a second brings, and others take their places. */
static void large(int nodes, int jobs)
{
    double begin = cpu_seconds();
    seed_now = rng_state = 1;
    w.kind = FAIR;
    w.deployed = w.spread = 0;
    build(nodes);
    double built = cpu_seconds();
    for (int i = 0; i < jobs; i++) {
        bool gang = i % 20 == 0;
        submit(i % QUEUES, gang ? 2 + below(GANG_MAX - 1) : 1, (size){(1 + below(4)) * 1000, 0}, 0);
        if (i % 1000 == 999)
            step((trainer_in){.kind = PST_TRAINER_PASS});
    }
    double full = cpu_seconds();
    int rounds = 0;
    for (; rounds < 30; rounds++) {
        w.now_us += SECOND / 10;
        for (int i = 0; i < nodes / 50; i++)
            beat(below(nodes));
        for (size_t i = 0, ended = 0; i < w.n_jobs && ended < 100; i++)
            if (w.jobs[i].runs && w.jobs[i].ends_us <= w.now_us + LASTS_S * SECOND) {
                w.jobs[i].ends_us = w.now_us;
                go_on(&w.jobs[i]);
                ended++;
            }
        step((trainer_in){.kind = rounds % 5 ? PST_TRAINER_PASS : PST_TRAINER_TICK});
    }
    check_sums();
    double end = cpu_seconds();
    printf("%d nodes, %d jobs: %d generations (%d over several nodes); CPU seconds: %.2f to hear of the nodes, %.2f to admit and place, "
           "%.2f for %d "
           "rounds\n",
           nodes, jobs, w.deployed, w.spread, built - begin, full - built, end - full, rounds);
    if (!w.deployed || !w.spread)
        broken("nothing was deployed");
    world_done();
}

int main(int argc, char **argv)
{
    uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 200, first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    verbose = argc > 3 && !strcmp(argv[3], "-v");
    for (uint64_t s = first; s < first + seeds; s++) {
        run(s);
        world_done();
    }
    printf("%llu seeds from %llu: %d generations, %d over several nodes, %d pre-empted, %d restarts; the first of a queue waited %lld s at "
           "most\n",
           (unsigned long long)seeds, (unsigned long long)first, w.deployed, w.spread, w.preempted, w.restarts,
           (long long)(w.longest_us / SECOND));
    if (!verbose)
        large(argc > 3 ? atoi(argv[3]) : 5000, argc > 4 ? atoi(argv[4]) : 10000);
    return 0;
}
