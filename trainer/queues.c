/* queues.c - the queues that jobs wait in, as `penstock queues` and the topic `queues` define them: what each may have, what it has, and whose turn it is.
 * Quotas are charged with a job's deployment and given back when its last process was observed to have ended, as nodes are (places.c).
 *
 * Whose turn it is: the queue whose use, divided by its weight, is least. Use is the mean of what its jobs have had, in CPUs, where the past counts
 * half as much with every half-life: a sum that forgets, so that a queue that was idle for long is ahead for a while, not for ever. A GPU counts as
 * GPU_CPUS CPUs and MEMORY_PER_CPU of memory as one; the largest of the three counts. What runs already is counted ahead for as long as jobs have
 * lasted lately, or all that is free at one moment would go to the queue that was behind by a little.
 *
 * Use is not kept on any topic: after a restart it is made again from the states of jobs, by when their last generation began and ended. */
#include "common/base/fs.h"
#include "common/base/log.h"
#include "schemas/job_state.h"
#include "trainer/core_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GPU_CPUS = 8, TYPICAL_US = 10000000, HALF_LIVES_KEPT = 20 };
#define MEMORY_PER_CPU ((int64_t)4 << 30)

/* ---- which there are ----------------------------------------------------------------------------------------------------------------- */

static void take_spec(trainer_queue *q, const pst_queue_spec *spec)
{
    q->known = true;
    q->weight = spec->weight;
    q->preempts = spec->preempts;
    q->has_cpu = spec->quota.has_cpus;
    q->has_memory = spec->quota.has_memory;
    q->has_gpus = spec->quota.has_gpus;
    q->quota.cpu = llround(spec->quota.cpus * PST_CPU_UNIT);
    q->quota.memory = spec->quota.memory;
    q->quota.gpus = spec->quota.gpus;
    q->per_user = spec->has_max_running_per_user ? spec->max_running_per_user : -1;
}

trainer_queue *trainer_queue_named(tcore *c, const char *name)
{
    trainer_queue *q = pst_map_get(&c->queues, name);
    if (!q) {
        q = pst_alloc(sizeof *q);
        q->name = pst_strdup(name);
        q->known = !strcmp(name, PST_QUEUE_DEFAULT);
        q->weight = 1;
        q->per_user = -1;
        pst_map_put(&c->queues, name, q);
    }
    return q;
}

void trainer_queue_free(void *queue)
{
    trainer_queue *q = queue;
    if (!q)
        return;
    pst_map_done(&q->users, NULL);
    free(q->name);
    free(q);
}

void tcore_queue_defined(tcore *c, const char *name, const pst_queue_spec *spec)
{
    pst_queue_spec plain = {.name = (char *)(uintptr_t)name, .weight = 1};
    pst_err err = {0};
    if (spec && pst_queue_spec_check(spec, &err) < 0)
        return; /* the one before stays */
    size_t there = 0;
    for (size_t i = 0; i < c->queues.n; i++)
        there += c->queues.at[i].key && ((trainer_queue *)c->queues.at[i].value)->known;
    trainer_queue *q = pst_map_get(&c->queues, name);
    if (spec && !(q && q->known) && there >= PST_QUEUES_MAX)
        return;
    if (!spec && !q)
        return;
    q = trainer_queue_named(c, name);
    take_spec(q, spec ? spec : &plain);
    q->known = spec || !strcmp(name, PST_QUEUE_DEFAULT);
}

void tcore_queues_forget(tcore *c)
{
    for (size_t i = 0; i < c->queues.n; i++)
        if (c->queues.at[i].key)
            tcore_queue_defined(c, c->queues.at[i].key, NULL);
}

bool tcore_has_queue(const tcore *c, const char *name)
{
    const trainer_queue *q = pst_map_get(&c->queues, name);
    return q ? q->known : !strcmp(name, PST_QUEUE_DEFAULT);
}

/* The sentence, with the nearest name. */
static char *unknown(const tcore *c, const char *name)
{
    const char **names = pst_alloc((c->queues.live + 2) * sizeof *names);
    size_t n = 0;
    pst_buf all = {0};
    names[n++] = PST_QUEUE_DEFAULT;
    for (size_t i = 0; i < c->queues.n; i++) {
        const trainer_queue *q = c->queues.at[i].key ? c->queues.at[i].value : NULL;
        if (q && q->known && strcmp(q->name, PST_QUEUE_DEFAULT) != 0)
            names[n++] = q->name;
    }
    for (size_t i = 0; i < n && i < 20; i++)
        pst_buf_printf(&all, "%s%s", i ? ", " : "", names[i]);
    const char *near = pst_nearest(name, names, n);
    char *text = near ? pst_sprintf("there is no queue %.100s; did you mean %s?", name, near)
                      : pst_sprintf("there is no queue %.100s; there %s: %s", name, n == 1 ? "is" : "are", all.data);
    pst_buf_done(&all);
    free(names);
    return text;
}

bool trainer_queue_check(const tcore *c, const pst_manifest *m, pst_complaints *of_manifest)
{
    if (!m->queue || tcore_has_queue(c, m->queue))
        return true;
    char *text = unknown(c, m->queue);
    pst_complain(of_manifest, "penstock.queue", m->queue_line, "%s", text);
    free(text);
    return false;
}

/* ---- what it may have ---------------------------------------------------------------------------------------------------------------- */

static void lack(pst_buf *b, const char *name, const char *thing, double used, double quota, double needs, const char *unit)
{
    if (!b->len)
        pst_buf_printf(b, "queue %s has", name);
    else
        pst_buf_printf(b, " and");
    pst_buf_printf(b, " %.6g of its quota of %.6g%s %s in use and the job needs %.6g", used, quota, unit, thing, needs);
}

/* By how much the job is too many for what the quota has left; used: of the queue, or nothing. ret_why NULL: the sentence is not wanted, which is most
 * of what there is to do here. */
static trainer_lack over_quota(const trainer_queue *q, const trainer_needs *used, const trainer_needs *needs, char **ret_why)
{
    const double gib = (double)((int64_t)1 << 30);
    pst_buf b = {0};
    bool cpu = q->has_cpu && needs->cpu && used->cpu + needs->cpu > q->quota.cpu;
    bool memory = q->has_memory && needs->memory && used->memory + needs->memory > q->quota.memory;
    bool gpus = q->has_gpus && needs->gpus && used->gpus + needs->gpus > q->quota.gpus;
    if (cpu && ret_why)
        lack(&b, q->name, "CPUs", (double)used->cpu / PST_CPU_UNIT, (double)q->quota.cpu / PST_CPU_UNIT, (double)needs->cpu / PST_CPU_UNIT,
             "");
    if (memory && ret_why)
        lack(&b, q->name, "of memory", (double)used->memory / gib, (double)q->quota.memory / gib, (double)needs->memory / gib, " GiB");
    if (gpus && ret_why)
        lack(&b, q->name, "GPUs", (double)used->gpus, (double)q->quota.gpus, (double)needs->gpus, "");
    if (ret_why)
        *ret_why = b.len ? pst_buf_steal(&b) : NULL;
    return cpu || memory ? TRAINER_LACKS_QUOTA : gpus ? TRAINER_LACKS_GPU_QUOTA : TRAINER_LACKS_NOTHING;
}

char *trainer_queue_exceeds(const trainer_queue *q, const trainer_needs *needs)
{
    static const trainer_needs nothing = {0};
    char *over = NULL;
    if (q)
        over_quota(q, &nothing, needs, &over);
    char *text = over ? pst_sprintf("its queue can never run it, even when nothing else of it runs: %s", over) : NULL;
    free(over);
    return text;
}

int trainer_queue_running_of(const trainer_queue *q, const char *user)
{
    return (int)(uintptr_t)pst_map_get(&q->users, user);
}

trainer_lack trainer_queue_lacking(const trainer_job *j, char **ret_why)
{
    const trainer_queue *q = j->queue;
    if (ret_why)
        *ret_why = NULL;
    if (!q->known) {
        if (ret_why)
            *ret_why = pst_sprintf("queue %s was deleted; `penstock queues apply` brings it back", q->name);
        return TRAINER_LACKS_QUOTA;
    }
    trainer_lack lack = over_quota(q, &q->used, &j->needs, ret_why);
    if (lack != TRAINER_LACKS_NOTHING)
        return lack;
    int running = q->per_user >= 0 ? trainer_queue_running_of(q, j->s.user) : 0;
    if (q->per_user < 0 || running < q->per_user)
        return TRAINER_LACKS_NOTHING;
    if (ret_why)
        *ret_why = pst_sprintf("queue %s lets %d job%s of one user run at a time, and %d of user %.100s %s running", q->name, q->per_user,
                               q->per_user == 1 ? "" : "s", running, j->s.user, running == 1 ? "is" : "are");
    return TRAINER_LACKS_USER;
}

bool trainer_queue_is_over(const trainer_queue *q)
{
    return !q->known || (q->has_cpu && q->used.cpu > q->quota.cpu) || (q->has_memory && q->used.memory > q->quota.memory) ||
           (q->has_gpus && q->used.gpus > q->quota.gpus);
}

/* ---- what it has had ----------------------------------------------------------------------------------------------------------------- */

static double in_cpus(const trainer_needs *n)
{
    double cpu = (double)n->cpu / PST_CPU_UNIT, gpus = (double)n->gpus * GPU_CPUS, memory = (double)n->memory / (double)MEMORY_PER_CPU;
    double most = cpu > gpus ? cpu : gpus;
    return most > memory ? most : memory;
}

/* What is left after a span. */
static double kept(const tcore *c, int64_t span_us)
{
    return exp2(-(double)span_us / (double)c->policy.half_life_us);
}

/* Up to now. A clock that was set back begins anew: nothing is forgotten, and nothing counted twice. */
static void settle(const tcore *c, trainer_queue *q)
{
    int64_t span = c->now_us - q->settled_us;
    if (span > 0 && q->settled_us) {
        double k = kept(c, span);
        q->use = q->use * k + in_cpus(&q->used) * (1 - k);
    }
    q->settled_us = c->now_us;
}

double tcore_queue_share(const tcore *c, trainer_queue *q)
{
    settle(c, q);
    double ahead = in_cpus(&q->used) * (1 - kept(c, c->typical_us ? c->typical_us : TYPICAL_US));
    return (q->use + ahead) / q->weight;
}

static void add(trainer_queue *q, const trainer_job *j, int sign)
{
    q->used.cpu += sign * j->needs.cpu;
    q->used.memory += sign * j->needs.memory;
    q->used.gpus += sign * j->needs.gpus;
    int running = trainer_queue_running_of(q, j->s.user) + sign;
    PST_ASSERT(running >= 0 && q->used.cpu >= 0 && q->used.memory >= 0 && q->used.gpus >= 0);
    if (running)
        pst_map_put(&q->users, j->s.user, (void *)(uintptr_t)running);
    else
        pst_map_take(&q->users, j->s.user);
    q->running = (size_t)((int64_t)q->running + sign);
}

void tcore_queue_charge(tcore *c, trainer_job *j)
{
    settle(c, j->queue);
    add(j->queue, j, 1);
    j->charged_us = c->now_us;
}

void tcore_queue_release(tcore *c, trainer_job *j)
{
    int64_t lasted_us = c->now_us - j->charged_us;
    settle(c, j->queue);
    add(j->queue, j, -1);
    if (lasted_us > 0 && j->charged_us)
        c->typical_us = c->typical_us ? (9 * c->typical_us + lasted_us) / 10 : lasted_us;
}

/* One generation's part: a mean that forgets, of a constant that lasted from a to b. */
static void add_past(const tcore *c, trainer_job *j)
{
    bool live = pst_job_state_is_live(j->s.state);
    int64_t from = j->s.has_started_at ? j->s.started_at
                   : live              ? j->s.since
                                       : 0,
            to = live                ? c->now_us
                 : j->s.has_ended_at ? j->s.ended_at
                                     : 0;
    if (j->s.array || !from || to > c->now_us || to <= from || c->now_us - to > HALF_LIVES_KEPT * c->policy.half_life_us)
        return;
    trainer_needs n = j->needs;
    if (!n.cpu && !n.memory) /* one that has ended: its manifest is not read; roles are taken as so many learners */
        n = (trainer_needs){llround(j->s.learners * j->s.cpus * PST_CPU_UNIT), j->s.learners * j->s.memory_bytes,
                            (int64_t)j->s.learners * j->s.gpus};
    j->queue->use += in_cpus(&n) * (kept(c, c->now_us - to) - kept(c, c->now_us - from));
    if (live)
        j->charged_us = from;
}

void tcore_queues_read_past(tcore *c)
{
    if (!c->use_unread || c->unsettled) /* by a clock that may be wrong nothing is measured */
        return;
    c->use_unread = false;
    for (size_t i = 0; i < c->queues.n; i++)
        if (c->queues.at[i].key) {
            trainer_queue *q = c->queues.at[i].value;
            q->use = 0;
            q->settled_us = c->now_us;
        }
    for (size_t i = 0; i < c->jobs.n; i++)
        if (c->jobs.at[i].key)
            add_past(c, c->jobs.at[i].value);
}

void tcore_queues_reset(tcore *c)
{
    for (size_t i = 0; i < c->queues.n; i++) {
        trainer_queue *q = c->queues.at[i].key ? c->queues.at[i].value : NULL;
        if (!q)
            continue;
        q->used = (trainer_needs){0};
        q->running = q->waiting = 0;
        pst_map_done(&q->users, NULL);
    }
    c->use_unread = true;
}

/* ---- looking in ---------------------------------------------------------------------------------------------------------------------- */

void tcore_each_queue(const tcore *c, void (*fn)(void *arg, const trainer_queue_facts *f), void *arg)
{
    for (size_t i = 0; i < c->queues.n; i++) {
        const trainer_queue *q = c->queues.at[i].key ? c->queues.at[i].value : NULL;
        if (q)
            fn(arg, &(trainer_queue_facts){q->name, q->known, q->running, q->waiting, (double)q->used.cpu / PST_CPU_UNIT, q->used.memory,
                                           q->used.gpus, q->use});
    }
}
