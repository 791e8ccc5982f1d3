/* why.c - why a job is where it is. Everything is taken from three topics, jobs.state, workers and queues, so that a verb, the gateway and whoever else asks say
 * the same without a way into the Trainer; what only the Trainer knows (a pause before a retry, stores that are asked) stands in the state's reason, which is
 * told beside it. The order of a queue is the Trainer's (trainer/places.c): priority, then submission; what is held or waits for other jobs has no place.
 * What a queue's rules allow is computed by the same code as `penstock queues` (schemas/queue_spec.h). A manifest is read once an answer, however many nodes there are.
 * Nothing is decided here: should the two ever differ, the Trainer is right, and its sentence stands below ours. */
#include "common/platform/why.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "common/platform/queues.h"
#include "schemas/avro.h"
#include "schemas/events.h"
#include "schemas/job_state.h"
#include "schemas/manifest.h"

#include <stdlib.h>
#include <string.h>

enum { SILENT_US = 30 * 1000000, AHEAD_NAMED = 10, CPU_UNIT = 1000 }; /* CPUs in thousandths: sums stay exact */

typedef struct needs {
    int64_t cpu, memory, gpus;
} needs;

typedef struct node {
    char *name; /* its id, or of an old LCM its key */
    pst_worker_state s;
    int64_t seen_us;
    needs used; /* by what runs there; of the present answer */
} node;

typedef struct job {
    pst_job_state s; /* the manifest as it is: nothing of it is told */
    bool read;       /* the following are made of it */
    needs *each;     /* by process, in their order */
    int n;
} job;

struct pst_why {
    pst_map jobs;      /* id → job */
    pst_map nodes;     /* "site/name" → node */
    pst_queues queues; /* those that are defined */
};

typedef struct telling { /* one answer in the making */
    const pst_why *w;
    const pst_job_state *s;
    const char *viewer;
    int64_t now_us;
    json_t *told;
    pst_buf text;
} telling;

/* ---- what is there ------------------------------------------------------------------------------------------------------------- */

static void job_free(void *p)
{
    job *j = p;
    if (!j)
        return;
    pst_event_clear(&pst_job_state_type, &j->s);
    free(j->each);
    free(j);
}

static void node_free(void *p)
{
    node *n = p;
    if (!n)
        return;
    pst_event_clear(&pst_worker_state_type, &n->s);
    free(n->name);
    free(n);
}

pst_why *pst_why_new(void)
{
    return pst_alloc(sizeof(pst_why));
}

void pst_why_free(pst_why *w)
{
    if (!w)
        return;
    pst_map_done(&w->jobs, job_free);
    pst_map_done(&w->nodes, node_free);
    pst_queues_done(&w->queues);
    free(w);
}

void pst_why_job(pst_why *w, pst_job_state *take)
{
    job *j = pst_alloc(sizeof *j);
    j->s = *take;
    *take = (pst_job_state){0};
    if (j->s.state != PST_JOB_PUBLIC_STATE_UNKNOWN) { /* else only requests that wait for their submission */
        job_free(pst_map_put(&w->jobs, j->s.training_id, j));
        return;
    }
    job_free(pst_map_take(&w->jobs, j->s.training_id));
    job_free(j);
}

void pst_why_queue(pst_why *w, pst_queue_spec *take)
{
    w->queues.at = pst_array_one_more(w->queues.at, w->queues.n, sizeof *w->queues.at);
    w->queues.at[w->queues.n++] = *take;
    *take = (pst_queue_spec){0};
}

/* The one of the map at that place, or NULL. */
static job *job_at(const pst_why *w, size_t i)
{
    return w->jobs.at[i].key ? w->jobs.at[i].value : NULL;
}

void pst_why_node(pst_why *w, pst_worker_state *take, int64_t seen_us)
{
    node *n = pst_alloc(sizeof *n);
    n->s = *take;
    *take = (pst_worker_state){0};
    n->name = pst_strdup(n->s.node && *n->s.node ? n->s.node : n->s.worker_id);
    n->seen_us = !strcmp(n->s.state, "lost") ? n->s.time : seen_us; /* that record is the Trainer's */
    char *key = pst_sprintf("%s/%s", n->s.site, n->name);
    node_free(strcmp(n->s.kind, "lcm") ? n : pst_map_put(&w->nodes, key, n));
    free(key);
}

typedef struct reading {
    pst_client *client;
    pst_why *w;
} reading;

static int read_job(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    reading *d = arg;
    pst_job_state s = {0};
    if (!r->value) {
        job_free(pst_map_take(&d->w->jobs, key));
        return 0;
    }
    int rc = pst_client_state(d->client, key, r, &s, err);
    if (!rc)
        pst_why_job(d->w, &s);
    return rc < 0 ? rc : 0;
}

/* What others write there is no node. One that is gone (a tombstone) is known by its key only. */
static int read_node(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    reading *d = arg;
    pst_worker_state s = {0};
    pst_err e = {0};
    for (size_t i = 0; !r->value && i < d->w->nodes.n; i++) {
        const node *n = d->w->nodes.at[i].key ? d->w->nodes.at[i].value : NULL;
        if (n && !strcmp(n->s.worker_id, key)) {
            node_free(pst_map_take(&d->w->nodes, d->w->nodes.at[i].key));
            break;
        }
    }
    int rc = r->value ? pst_codec_decode(d->client->codec, &pst_worker_state_type, r->value, r->value_len, r->timestamp_ms, &s, &e) : 1;
    if (!rc)
        pst_why_node(d->w, &s, r->timestamp_ms * 1000);
    if (rc < 0 && e.cls == PST_CLASS_RETRY)
        *err = e;
    return rc < 0 && e.cls == PST_CLASS_RETRY ? rc : 0;
}

int pst_why_gather(pst_client *c, pst_why **ret_why, pst_err *err)
{
    reading d = {c, pst_why_new()};
    int rc = pst_client_scan(c, PST_TOPIC_JOBS_STATE, NULL, read_job, &d, err);
    if (!rc)
        rc = pst_client_scan(c, PST_TOPIC_WORKERS, NULL, read_node, &d, err);
    if (!rc)
        rc = pst_queues_read(c, &d.w->queues, err);
    if (rc < 0)
        pst_why_free(d.w);
    else
        *ret_why = d.w;
    return rc;
}

/* Is it what such a beginning of an id may mean? That of an array means the array, not each of its tasks, whose ids begin with all of it. */
static bool may_mean(const telling *t, const pst_job_state *s, const char *id)
{
    bool begins = !strncmp(s->training_id, id, strlen(id)) && (!t->viewer || !strcmp(s->user, t->viewer));
    return begins && !(*s->array_of && strlen(id) <= strlen(s->array_of) && pst_map_get(&t->w->jobs, s->array_of));
}

/* The job of this id, or the only one whose id begins so. */
static int find(const telling *t, const char *id, const pst_job_state **ret, pst_err *err)
{
    const pst_job_state *found = pst_map_get(&t->w->jobs, id); /* a job begins with its state */
    size_t n = found != NULL;
    for (size_t i = 0; !n && *id && i < t->w->jobs.n; i++) { /* exact ones first, whatever begins with them */
        const pst_job_state *s = job_at(t->w, i) ? &job_at(t->w, i)->s : NULL;
        bool begins = s && may_mean(t, s, id);
        if (begins && found)
            return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "jobs", 0,
                               "%.80s is the beginning of several jobs' ids: %s, %s; give more of it", id, found->training_id,
                               s->training_id);
        found = begins ? s : found;
    }
    if (!found || (t->viewer && strcmp(found->user, t->viewer) != 0))
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "jobs", 0, "there is no job %.80s; `penstock list` shows what there is", id);
    *ret = found;
    return 0;
}

/* ---- sums ---------------------------------------------------------------------------------------------------------------------- */

static void add(needs *sum, const needs *n)
{
    sum->cpu += n->cpu;
    sum->memory += n->memory;
    sum->gpus += n->gpus;
}

/* What each process needs. The state has one role's size; the manifest has them all. */
static void read_needs(job *j)
{
    const pst_job_state *s = &j->s;
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    char name[32];
    if (j->read)
        return;
    j->read = true;
    pst_manifest_parse(s->manifest, strlen(s->manifest), &m, &errors, &warnings);
    j->n = m.n_roles ? pst_manifest_processes(&m) : s->learners > 0 ? s->learners : 1; /* not readable: as far as this version goes */
    j->each = pst_alloc(((size_t)j->n + 1) * sizeof *j->each);
    for (int i = 0; i < j->n; i++) {
        const pst_role *r = m.n_roles ? pst_manifest_process(&m, i, name) : NULL;
        j->each[i] = r ? (needs){(int64_t)(r->cpus * CPU_UNIT + 0.5), r->memory_bytes, r->gpus}
                       : (needs){(int64_t)(s->cpus * CPU_UNIT + 0.5), s->memory_bytes, s->gpus};
    }
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
}

/* Of the whole gang. */
static needs needs_of(const telling *t, const pst_job_state *s)
{
    job *j = pst_map_get(&t->w->jobs, s->training_id);
    needs all = {0};
    read_needs(j);
    for (int i = 0; i < j->n; i++)
        add(&all, &j->each[i]);
    return all;
}

/* What runs on each node of the site, in one pass over the jobs. */
static void sum_up(const pst_why *w, const char *site)
{
    for (size_t i = 0; i < w->nodes.n; i++)
        if (w->nodes.at[i].key)
            ((node *)w->nodes.at[i].value)->used = (needs){0};
    for (size_t i = 0; i < w->jobs.n; i++) {
        job *j = job_at(w, i);
        if (!j || !pst_job_state_is_live(j->s.state) || j->s.array ||
            strcmp(j->s.site, site) != 0) /* an array's tasks are jobs themselves */
            continue;
        read_needs(j);
        for (int k = 0; k < j->n; k++) {
            const char *at = (size_t)k < j->s.n_processes ? pst_job_process_node(&j->s, &j->s.processes[k]) : j->s.node;
            char *key = pst_sprintf("%s/%s", site, at);
            node *n = pst_map_get(&w->nodes, key);
            if (n)
                add(&n->used, &j->each[k]);
            free(key);
        }
    }
}

static const char *node_state(const node *n, int64_t now_us)
{
    if (!strcmp(n->s.state, "lost") || !strcmp(n->s.state, "stopped"))
        return n->s.state;
    if (now_us - n->seen_us > SILENT_US)
        return "silent";
    return strcmp(n->s.state, "running") ? "draining" : "ready";
}

/* ---- words --------------------------------------------------------------------------------------------------------------------- */

static const char *span(const telling *t, int64_t since_us, char room[32])
{
    return pst_span_text(t->now_us > since_us ? t->now_us - since_us : 0, room);
}

static void add_lack(pst_buf *b, double lacks, const char *unit)
{
    if (lacks > 0)
        pst_buf_printf(b, "%s%.10g %s", b->len ? ", " : "", lacks, unit);
}

static int64_t above(int64_t wants, int64_t has)
{
    return wants > has ? wants - has : 0;
}

/* One node of the site: whether it takes jobs, and what of this one it has no room for. */
static void tell_node(telling *t, const node *n, const needs *wants, json_t *list)
{
    needs has = {(int64_t)(n->s.cpus * CPU_UNIT + 0.5), n->s.memory_bytes, n->s.gpus}, used = n->used;
    needs rest = {above(has.cpu, used.cpu), above(has.memory, used.memory), above(has.gpus, used.gpus)};
    needs lacks = {above(wants->cpu, rest.cpu), above(wants->memory, rest.memory), above(wants->gpus, rest.gpus)};
    const char *state = node_state(n, t->now_us);
    char room[32];
    pst_buf words = {0};
    add_lack(&words, (double)lacks.cpu / CPU_UNIT, "cpus");
    add_lack(&words, (double)((lacks.memory + (1 << 20) - 1) / (1 << 20)), "MiB of memory");
    add_lack(&words, (double)lacks.gpus, "gpus");
    json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:I, s:I, s:{s:f, s:I, s:I}}", "node", n->name, "state", state, "cpus",
                                          (double)lacks.cpu / CPU_UNIT, "memory_bytes", (json_int_t)lacks.memory, "gpus",
                                          (json_int_t)lacks.gpus, "free", "cpus", (double)rest.cpu / CPU_UNIT, "memory_bytes",
                                          (json_int_t)rest.memory, "gpus", (json_int_t)rest.gpus));
    pst_buf_printf(&t->text, "  node %s is %s", n->name, state);
    if (!strcmp(state, "silent") || !strcmp(state, "lost"))
        pst_buf_printf(&t->text, " (last heard %s ago)", span(t, n->seen_us, room));
    if (words.len)
        pst_buf_printf(&t->text, "; missing there: %s (free: %.3g of %.3g cpus, %.1f of %.1f GiB, %lld of %lld gpus)", words.data,
                       (double)rest.cpu / CPU_UNIT, n->s.cpus, (double)rest.memory / (1 << 30), (double)has.memory / (1 << 30),
                       (long long)rest.gpus, (long long)has.gpus);
    else
        pst_buf_printf(&t->text, "; there is room for it");
    pst_buf_printf(&t->text, "\n");
    pst_buf_done(&words);
}

static void tell_missing(telling *t)
{
    json_t *list = json_array();
    needs wants = needs_of(t, t->s);
    sum_up(t->w, t->s->site);
    bool bound = false, spread = pst_job_is_spread(t->s); /* over several nodes, that one among them */
    for (size_t i = 0; !spread && *t->s->checkpoint_node && i < t->w->nodes.n;
         i++) { /* it goes where its checkpoints lie, unless that node is lost */
        const node *n = t->w->nodes.at[i].key ? t->w->nodes.at[i].value : NULL;
        bound |= n && !strcmp(n->s.site, t->s->site) && !strcmp(n->name, t->s->checkpoint_node) && strcmp(n->s.state, "lost");
    }
    pst_buf_printf(&t->text, "  it needs %.3g cpus, %.0f MiB of memory, %lld gpus%s%s\n", (double)wants.cpu / CPU_UNIT,
                   (double)wants.memory / (1 << 20), (long long)wants.gpus, bound ? ", on the node that has its checkpoints: " : "",
                   bound ? t->s->checkpoint_node : "");
    size_t nodes = 0;
    for (size_t i = 0; i < t->w->nodes.n; i++) {
        const node *n = t->w->nodes.at[i].key ? t->w->nodes.at[i].value : NULL;
        if (!n || strcmp(n->s.site, t->s->site) || (bound && strcmp(n->name, t->s->checkpoint_node) != 0))
            continue;
        nodes++;
        tell_node(t, n, &wants, list);
    }
    if (!nodes)
        pst_buf_printf(&t->text, "  no LCM of site %s has reported yet: `penstock lcm --site %s` makes a computer its node\n", t->s->site,
                       t->s->site);
    json_object_set_new(t->told, "missing", list);
}

static bool is_barred(const pst_job_state *s)
{
    return s->held_by || s->n_after;
}

static bool is_before(const pst_job_state *a, const pst_job_state *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (a->submitted_at != b->submitted_at)
        return a->submitted_at < b->submitted_at;
    return strcmp(a->training_id, b->training_id) < 0;
}

static int in_order(const void *a, const void *b)
{
    const pst_job_state *x = *(const pst_job_state *const *)a, *y = *(const pst_job_state *const *)b;
    return is_before(x, y) ? -1 : is_before(y, x);
}

/* Those ahead, the next to run first: names of the first few, and how many there are in all. */
static void tell_ahead(telling *t, const pst_job_state **ahead, size_t n)
{
    json_t *list = json_array();
    size_t named = 0;
    char room[32];
    qsort(ahead, n, sizeof *ahead, in_order);
    for (size_t i = 0; i < n && named < AHEAD_NAMED; i++) {
        const pst_job_state *s = ahead[i];
        if (t->viewer && strcmp(s->user, t->viewer) != 0)
            continue;
        named++;
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:i, s:I}", "training_id", s->training_id, "name", s->name, "user", s->user,
                                              "priority", s->priority, "since", (json_int_t)s->since));
        pst_buf_printf(&t->text, "  ahead: %s (%s of user %s, priority %d, for %s)\n", s->training_id, s->name, s->user, s->priority,
                       span(t, s->since, room));
    }
    if (n > named)
        pst_buf_printf(&t->text, "  ahead: %zu %s\n", n - named, named ? "more" : "of other users");
    json_object_set_new(t->told, "ahead", list);
}

/* Within its queue at its site. */
static void tell_position(telling *t)
{
    const pst_job_state *s = t->s;
    const pst_job_state **ahead = pst_alloc((t->w->jobs.live + 1) * sizeof *ahead);
    size_t n = 0, waiting = 0;
    for (size_t i = 0; i < t->w->jobs.n; i++) {
        const pst_job_state *o = job_at(t->w, i) ? &job_at(t->w, i)->s : NULL;
        if (!o || o->state != PST_JOB_PUBLIC_STATE_QUEUED || is_barred(o) || strcmp(o->site, s->site) || strcmp(o->queue, s->queue))
            continue;
        waiting++;
        if (is_before(o, s))
            ahead[n++] = o;
    }
    pst_buf_printf(&t->text, "  place %zu of %zu in queue %s at site %s, priority %d\n", n + 1, waiting, s->queue, s->site, s->priority);
    json_object_set_new(t->told, "position", json_integer((json_int_t)n + 1));
    json_object_set_new(t->told, "waiting", json_integer((json_int_t)waiting));
    tell_ahead(t, ahead, n);
    free(ahead);
}

/* What its queue's rules say against it, whatever room there is. */
static void tell_queue(telling *t)
{
    const pst_job_state *s = t->s;
    const pst_queue_spec *q = pst_queues_find(&t->w->queues, s->queue);
    pst_queue_use use = {0};
    if (!q && !strcmp(s->queue, PST_QUEUE_DEFAULT)) /* it has no rules while nobody gave it some */
        return;
    for (size_t i = 0; q && i < t->w->jobs.n; i++)
        if (job_at(t->w, i))
            pst_queue_use_add(&use, q->name, s->user, &job_at(t->w, i)->s);
    char *lacks = q ? pst_queue_lacks(q, &use, s) : pst_sprintf("queue %s was deleted; `penstock queues apply` brings it back", s->queue);
    if (lacks) {
        json_object_set_new(t->told, "queue_lacks", json_string(lacks));
        pst_buf_printf(&t->text, "  its queue holds it back, whatever room there is: %s\n", lacks);
    }
    free(lacks);
}

static void tell_after(telling *t)
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->s->n_after; i++) {
        const pst_job_state *o = pst_map_get(&t->w->jobs, t->s->after[i]);
        const char *state = o ? pst_job_public_state_text(o->state) : "deleted";
        json_array_append_new(list, json_pack("{s:s, s:s}", "training_id", t->s->after[i], "state", state));
        pst_buf_printf(&t->text, "  it waits until %s is COMPLETED (penstock.after): that is %s\n", t->s->after[i], state);
    }
    json_object_set_new(t->told, "after", list);
}

static void tell_waiting(telling *t)
{
    const pst_job_state *s = t->s;
    if (s->held_by) {
        json_object_set_new(t->told, "held_by", json_string(s->held_by));
        pst_buf_printf(&t->text, "  user %s holds it; `penstock release %s` lets it start\n", s->held_by, s->training_id);
    }
    if (s->n_after)
        tell_after(t);
    if (!is_barred(s)) {
        tell_position(t);
        tell_queue(t);
        tell_missing(t);
    }
}

/* An array runs nothing itself. */
static void tell_array(telling *t)
{
    const pst_job_array *a = t->s->array;
    json_t *j = pst_event_to_json(&pst_job_array_type, a);
    pst_buf_printf(&t->text, "  of %d tasks %d run, %d wait, %d are to come; %d COMPLETED, %d FAILED, %d HALTED, %d TERMINATED\n", a->tasks,
                   a->running, a->waiting, a->tasks - a->admitted, a->completed, a->failed, a->halted, a->terminated);
    pst_buf_printf(&t->text, "  `penstock list --array %s` lists them; `penstock why` of one that waits tells what it lacks\n",
                   t->s->training_id);
    if (t->s->stop_action != PST_JOB_STOP_ACTION_NONE)
        pst_buf_printf(&t->text, "  user %s asked for %s; it is done once no task runs\n", t->s->stop_by,
                       pst_job_stop_action_text(t->s->stop_action));
    json_object_set_new(t->told, "array", j);
}

/* Of one of the nodes that it was given to: is it heard? Returns its place in the answer. */
static json_t *tell_node_of(telling *t, const char *name)
{
    const pst_job_state *s = t->s;
    char *key = pst_sprintf("%s/%s", s->site, name), room[32];
    const node *n = pst_map_get(&t->w->nodes, key);
    const char *state = n ? node_state(n, t->now_us) : "unknown";
    size_t ended = 0, all = 0;
    for (size_t i = 0; i < s->n_processes; i++) {
        bool there = !strcmp(pst_job_process_node(s, &s->processes[i]), name);
        all += there;
        ended += there && pst_job_process_is_ended(s->processes[i].state);
    }
    pst_buf_printf(&t->text, "  generation %d on node %s, which is %s", s->generation, name, state);
    if (n)
        pst_buf_printf(&t->text, " (heard %s ago)", span(t, n->seen_us, room));
    pst_buf_printf(&t->text, "; %zu of %zu processes have ended\n", ended, all);
    if (!strcmp(state, "silent") || !strcmp(state, "unknown"))
        pst_buf_printf(
            &t->text,
            "  What becomes of it is not known until that node is heard; `penstock terminate --force %s` ends it without, `penstock "
            "nodes lost %s` gives the node up.\n",
            s->training_id, name);
    free(key);
    return json_pack("{s:s, s:s, s:I}", "node", name, "state", state, "seen_at", (json_int_t)(n ? n->seen_us : 0));
}

/* Of one that was given to a node, or to several: are they heard, and what is asked of it? */
static void tell_running(telling *t)
{
    const pst_job_state *s = t->s;
    json_t *others = json_array();
    json_object_set_new(t->told, "node", tell_node_of(t, s->node));
    for (size_t i = 0; i < s->n_processes; i++) {
        const char *name = pst_job_process_node(s, &s->processes[i]);
        bool told = !strcmp(name, s->node);
        for (size_t k = 0; k < i && !told; k++)
            told = !strcmp(name, pst_job_process_node(s, &s->processes[k]));
        if (!told)
            json_array_append_new(others, tell_node_of(t, name));
    }
    if (json_array_size(others))
        json_object_set(t->told, "other_nodes", others);
    json_decref(others);
    if (s->stop_action == PST_JOB_STOP_ACTION_PREEMPT)
        pst_buf_printf(&t->text,
                       "  its place goes to another queue's job; it waits again once nothing of it runs, at no cost of a retry\n");
    else if (s->stop_action != PST_JOB_STOP_ACTION_NONE)
        pst_buf_printf(&t->text, "  user %s asked for %s; it is carried out once nothing of it runs\n", s->stop_by,
                       pst_job_stop_action_text(s->stop_action));
}

static const char *advice(const pst_job_state *s)
{
    switch (s->state) {
    case PST_JOB_PUBLIC_STATE_QUEUED:
        if (s->n_after && !s->held_by)
            return "It starts once they are COMPLETED and there is room, and fails when one of them ends otherwise.";
        if (s->held_by)
            return "`penstock release` lets it start.";
        return "It starts by itself once there is room; `penstock list --state PROCESSING` shows what runs.";
    case PST_JOB_PUBLIC_STATE_PENDING: return "Its processes are being started; `penstock events -f` follows.";
    case PST_JOB_PUBLIC_STATE_FAILED: return "`penstock logs` shows what it said last; `penstock resume` tries again from its checkpoint.";
    case PST_JOB_PUBLIC_STATE_REJECTED: return "It was never a job. Correct it and submit it again, under another request id.";
    case PST_JOB_PUBLIC_STATE_HALTED: return "`penstock resume` goes on from its checkpoint.";
    default: return NULL;
    }
}

int pst_why_tell(const pst_why *w, const char *id, const char *viewer, int64_t now_us, json_t **ret_told, pst_err *err)
{
    telling t = {.w = w, .viewer = viewer, .now_us = now_us};
    char room[32];
    int rc = find(&t, id, &t.s, err);
    if (rc < 0)
        return rc;
    const pst_job_state *s = t.s;
    int64_t since_us = s->since ? s->since : s->updated_at;
    t.told =
        json_pack("{s:s, s:s, s:s?, s:s?, s:I, s:s, s:s}", "training_id", s->training_id, "state", pst_job_public_state_text(s->state),
                  "reason_code", s->reason_code, "reason", s->reason, "since", (json_int_t)since_us, "queue", s->queue, "site", s->site);
    pst_buf_printf(&t.text, "%s is %s for %s%s%s%s%s%s\n", s->training_id, pst_job_public_state_text(s->state), span(&t, since_us, room),
                   s->reason ? ": " : ".", s->reason ? s->reason : "", s->reason_code ? " [" : "", s->reason_code ? s->reason_code : "",
                   s->reason_code ? "]" : "");
    if (s->state == PST_JOB_PUBLIC_STATE_QUEUED)
        tell_waiting(&t);
    else if (pst_job_state_is_live(s->state) && !s->array)
        tell_running(&t);
    if (s->array && (pst_job_state_is_live(s->state) || pst_job_state_is_ended(s->state)))
        tell_array(&t);
    if (advice(s))
        pst_buf_printf(&t.text, "%s\n", advice(s));
    json_object_set_new(t.told, "text", json_string(t.text.data));
    pst_buf_done(&t.text);
    *ret_told = t.told;
    return 0;
}
