/* trainer_core.c - the step: takes one input to whoever knows what it means, lets the queue run, and publishes each state that was touched, once.
 * Beside it start, rebuilding from `jobs.state`, and what others may look at. The parts below it stand in core_state.h, lowest first. */
#include "trainer/trainer_core.h"

#include "trainer/core_state.h"
#include "schemas/training_id.h"

#include <stdlib.h>
#include <string.h>

/* ---- what a step produces ---------------------------------------------------------------------------------------------------- */

/* Now may have jumped with this step: what is measured within this core's life begins anew. */
static void clock_was_set(tcore *c)
{
    for (size_t i = 0; i < c->early.n; i++)
        if (c->early.at[i].key)
            ((trainer_early *)c->early.at[i].value)->seen_us = c->now_us;
    for (size_t i = 0; i < c->jobs.n; i++)
        if (c->jobs.at[i].key)
            ((trainer_job *)c->jobs.at[i].value)->never_us = 0;
}

/* When did it happen? The requester's or reporter's own word, unless it cannot be: a clock that is ahead, or behind although the record came
 * at once, is set right by the time that the record took from being written about to being published, which its own clock knows. */
static int64_t said_time(const trainer_in *in, int64_t now_us)
{
    const int64_t day_us = (int64_t)86400 * 1000000, ahead_us = 2000000, behind_us = 10000000;
    int64_t said = in->kind == PST_TRAINER_REQUEST  ? in->request->time
                   : in->kind == PST_TRAINER_REPORT ? in->report->time
                   : in->kind == PST_TRAINER_WORKER ? in->worker->time
                                                    : 0;
    /* A clock that may be wrong by any amount rules nothing out; that by which the report was published can. */
    int64_t around_us = in->unsettled && in->kind == PST_TRAINER_REPORT && in->published_us ? in->published_us : now_us;
    if (said <= around_us - 7 * day_us || said >= around_us + day_us)
        return around_us;
    if (in->unsettled || !in->published_us)
        return in->unsettled || said < now_us ? said : now_us;
    int64_t waited_us = in->published_us > said ? in->published_us - said : 0;
    int64_t latest = now_us - waited_us;
    bool wrong = said > latest + ahead_us || (in->live && said < latest - behind_us);
    return wrong ? latest : said;
}

/* What holds of every job whenever a step is over, however odd the state that was read for it: only what this core keeps by itself. */
static void assert_sound(const trainer_job *j)
{
    bool live = pst_job_state_is_live(j->s.state);
    PST_ASSERT(j->queued == (j->s.state == PST_JOB_PUBLIC_STATE_QUEUED)); /* who waits stands in a queue, and nobody else */
    bool runs = live && !j->s.array;                                      /* an array's tasks do */
    PST_ASSERT(j->charged == runs && (j->live_at > 0) == runs);           /* a node is charged while a generation lives, and no longer */
}

void tcore_step(tcore *c, const trainer_in *in, int64_t now_us, trainer_actions *ret_actions)
{
    c->now_us = now_us;
    c->said_us = said_time(in, now_us);
    if (c->unsettled && !in->unsettled)
        clock_was_set(c);
    c->unsettled = in->unsettled;
    c->nodes_unread = in->nodes_unread;
    char *old = in->kind == PST_TRAINER_REQUEST ? trainer_request_too_old(c, in) : NULL;
    c->too_old = old;
    free(old);
    c->out = ret_actions;
    switch (in->kind) {
    case PST_TRAINER_REQUEST: tcore_request(c, in); break;
    case PST_TRAINER_BAD_REQUEST: tcore_bad_request(c, in); break;
    case PST_TRAINER_TOMBSTONE: c->counts.tombstones++; break;
    case PST_TRAINER_REPORT: tcore_report(c, in->report); break;
    case PST_TRAINER_WORKER: tcore_worker(c, in->worker, in->seen_us); break;
    case PST_TRAINER_STORES: trainer_stores_answered(c, in->training_id, in->stores_refused); break;
    case PST_TRAINER_QUEUE: tcore_queue_defined(c, in->queue_name, in->queue); break;
    case PST_TRAINER_PASS: break;
    case PST_TRAINER_TICK:
        tcore_attend(c);
        tcore_deadlines(c);
        tcore_silences(c);
        trainer_answers_tick(c, in->caught_up);
        break;
    }
    /* Heartbeats of the past (read again after a restart) open no site: without this each one would be another remark on every queued job. */
    if (in->kind == PST_TRAINER_WORKER && now_us - in->seen_us > c->policy.silent_us)
        return;
    if (in->more)
        return;
    trainer_queue_run(c);
    for (size_t i = 0; i < c->n_dirty; i++) {
        trainer_job *j = c->dirty[i];
        if (!j) /* deleted in this step */
            continue;
        j->dirty = false;
        assert_sound(j);
        tcore_publish(c, &j->s);
    }
    c->n_dirty = 0;
    c->out = NULL;
}

/* ---- start, rebuild, looking in ---------------------------------------------------------------------------------------------- */

tcore *tcore_new(const trainer_policy *policy)
{
    tcore *c = pst_alloc(sizeof *c);
    c->policy = *policy;
    c->policy.half_life_us = policy->half_life_us > 0 ? policy->half_life_us : 1; /* then only what runs counts */
    c->use_unread = true;
    return c;
}

void tcore_reset(tcore *c)
{
    pst_map_done(&c->jobs, trainer_job_free);
    for (size_t i = 0; i < c->sites.n; i++)
        if (c->sites.at[i].key) {
            trainer_site *site = c->sites.at[i].value;
            for (size_t k = 0; k < site->n_lanes; k++) {
                site->lanes[k]->n = site->lanes[k]->n_unsaid = 0;
                site->lanes[k]->head = NULL;
            }
            site->n_queue = 0;
            free(site->kept_id);
            site->kept_id = NULL;
        }
    for (size_t i = 0; i < c->nodes.n; i++)
        if (c->nodes.at[i].key)
            ((trainer_node *)c->nodes.at[i].value)->used = (trainer_needs){0};
    tcore_queues_reset(c);
    trainer_memory_done(&c->answered);
    trainer_memory_done(&c->deleted);
    trainer_memory_done(&c->rejected);
    pst_map_done(&c->early, trainer_early_free);
    pst_map_done(&c->asking, NULL);
    pst_map_done(&c->arrays, NULL);
    c->n_live = c->n_dirty = 0;
    memset(c->by_state, 0, sizeof c->by_state);
}

void tcore_free(tcore *c)
{
    if (!c)
        return;
    tcore_reset(c);
    pst_map_done(&c->sites, trainer_site_free);
    pst_map_done(&c->nodes, trainer_node_free);
    pst_map_done(&c->queues, trainer_queue_free);
    free(c->live);
    free(c->dirty);
    free(c);
}

void tcore_load(tcore *c, const pst_job_state *s)
{
    trainer_job *old = pst_map_get(&c->jobs, s->training_id);
    if (old)
        tcore_forget(c, old);
    trainer_memory_take(&c->deleted, s->training_id);
    trainer_early_drop(c, s->training_id);
    if (s->state == PST_JOB_PUBLIC_STATE_UNKNOWN) { /* no job yet */
        trainer_early_load(c, s);
        return;
    }
    pst_job_state copy;
    pst_event_copy(&pst_job_state_type, s, &copy);
    trainer_job *j = tcore_adopt(c, &copy, NULL);
    if (j->s.state == PST_JOB_PUBLIC_STATE_REJECTED)
        trainer_memory_put(&c->rejected, j->s.training_id, j->s.updated_at);
    if (j->s.submitted_at > c->submitted_us)
        c->submitted_us = j->s.submitted_at;
}

void tcore_drop(tcore *c, const char *training_id, int64_t deleted_us)
{
    trainer_job *old = pst_map_get(&c->jobs, training_id);
    if (old)
        tcore_forget(c, old);
    trainer_early_drop(c, training_id);
    if (deleted_us)
        trainer_memory_put(&c->deleted, training_id, deleted_us);
}

void tcore_loaded(tcore *c)
{
    for (size_t i = 0; i < c->jobs.n; i++) {
        trainer_job *j = c->jobs.at[i].key ? c->jobs.at[i].value : NULL;
        if (!j)
            continue;
        if (j->s.array && pst_job_state_is_live(j->s.state)) {
            pst_map_put(&c->arrays, j->s.training_id, j);
        } else if (pst_job_state_is_live(j->s.state)) {
            tcore_live_add(c, j);
            tcore_charge(c, j);
        } else if (j->s.state == PST_JOB_PUBLIC_STATE_QUEUED) {
            trainer_queue_add(c, j);
            trainer_queue_said(j);
            trainer_stores_loaded(c, j);
        }
    }
}

const pst_job_state *tcore_job(const tcore *c, const char *training_id)
{
    const trainer_job *j = pst_map_get(&c->jobs, training_id);
    return j ? &j->s : NULL;
}

bool tcore_is_new(const tcore *c, const pst_job_request *r)
{
    char training_id[64];
    pst_training_id(r->user, r->request_id, training_id);
    return !pst_map_get(&c->jobs, training_id) && !trainer_memory_has(&c->deleted, training_id);
}

void tcore_codes(const tcore *c, void (*tell)(void *arg, const pst_code_ref *code), void *arg)
{
    for (size_t i = 0; i < c->jobs.n; i++) {
        const trainer_job *j = c->jobs.at[i].key ? c->jobs.at[i].value : NULL;
        if (j && j->s.code &&
            (!pst_job_state_is_ended(j->s.state) || job_fsm_allows(j->s.state, PST_JOB_EVENT_TYPE_RESUMED, PST_JOB_PUBLIC_STATE_QUEUED)))
            tell(arg, j->s.code);
    }
}

const trainer_counts *tcore_counts(const tcore *c)
{
    return &c->counts;
}

size_t tcore_jobs(const tcore *c, pst_job_public_state state)
{
    return c->by_state[state];
}

bool tcore_used(const tcore *c, const char *site, int64_t ret_used[3])
{
    const trainer_site *s = pst_map_get(&c->sites, site);
    if (!s)
        return false;
    ret_used[0] = ret_used[1] = ret_used[2] = 0;
    for (size_t i = 0; i < s->n_nodes; i++) {
        ret_used[0] += s->nodes[i]->used.cpu;
        ret_used[1] += s->nodes[i]->used.memory;
        ret_used[2] += s->nodes[i]->used.gpus;
    }
    return true;
}

bool tcore_equal(const tcore *a, const tcore *b)
{
    bool equal = a->jobs.live == b->jobs.live && a->early.live == b->early.live;
    for (size_t i = 0; i < a->jobs.n && equal; i++) {
        const trainer_job *x = a->jobs.at[i].key ? a->jobs.at[i].value : NULL;
        const trainer_job *y = x ? pst_map_get(&b->jobs, x->s.training_id) : NULL;
        equal = !x || (y && x->queued == y->queued && x->charged == y->charged && pst_event_equal(&pst_job_state_type, &x->s, &y->s));
    }
    for (size_t i = 0; i < a->early.n && equal; i++) {
        const trainer_early *x = a->early.at[i].key ? a->early.at[i].value : NULL,
                            *y = x ? pst_map_get(&b->early, a->early.at[i].key) : NULL;
        equal = !x || (y && pst_event_equal(&pst_job_state_type, &x->s, &y->s));
    }
    return equal;
}

void tcore_each(const tcore *c, void (*fn)(void *arg, const pst_job_state *s, bool queued, bool charged), void *arg)
{
    for (size_t i = 0; i < c->jobs.n; i++) {
        const trainer_job *j = c->jobs.at[i].key ? c->jobs.at[i].value : NULL;
        if (j)
            fn(arg, &j->s, j->queued, j->charged);
    }
}

static int by_id(const void *a, const void *b)
{
    const trainer_job *const *x = a, *const *y = b;
    return strcmp((*x)->s.training_id, (*y)->s.training_id);
}

char *tcore_dump(const tcore *c)
{
    pst_buf b = {0};
    size_t n = 0;
    const trainer_job **jobs = pst_alloc((c->jobs.live + 1) * sizeof *jobs);
    for (size_t i = 0; i < c->jobs.n; i++)
        if (c->jobs.at[i].key)
            jobs[n++] = c->jobs.at[i].value;
    qsort(jobs, n, sizeof *jobs, by_id);
    for (size_t i = 0; i < n; i++) {
        json_t *json = pst_event_to_json(&pst_job_state_type, &jobs[i]->s);
        char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
        pst_buf_printf(&b, "%s%s%s\n", text, jobs[i]->queued ? " queued" : "", jobs[i]->charged ? " charged" : "");
        free(text);
        json_decref(json);
    }
    free(jobs);
    return pst_buf_steal(&b);
}
