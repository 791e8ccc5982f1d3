/* trainer_core.c - see trainer_core.h. This file: jobs in memory, the one setter of their state, and the step that dispatches. What a
 * request does is in requests.c, what a report means in reports.c, who runs next in queue.c. */
#include "trainer/trainer_core.h"

#include "common/platform/client.h"
#include "trainer/core_state.h"
#include "schemas/training_id.h"

#include <stdlib.h>
#include <string.h>

/* ---- actions ----------------------------------------------------------------------------------------------------------------- */

static trainer_action *add_action(tcore *c, pst_action_kind kind, const char *key)
{
    trainer_actions *a = c->out;
    if (a->n == a->cap) {
        a->cap = a->cap ? a->cap * 2 : 16;
        a->at = pst_realloc(a->at, a->cap * sizeof *a->at);
    }
    trainer_action *x = &a->at[a->n++];
    *x = (trainer_action){.kind = kind, .key = pst_strdup(key)};
    return x;
}

void trainer_actions_clear(trainer_actions *a)
{
    for (size_t i = 0; i < a->n; i++) {
        free(a->at[i].key);
        pst_event_clear(&pst_job_event_type, &a->at[i].event);
        pst_event_clear(&pst_job_command_type, &a->at[i].command);
        pst_event_clear(&pst_worker_state_type, &a->at[i].worker);
    }
    a->n = 0;
}

void trainer_actions_done(trainer_actions *a)
{
    trainer_actions_clear(a);
    free(a->at);
    *a = (trainer_actions){0};
}

/* ---- jobs -------------------------------------------------------------------------------------------------------------------- */

void tcore_set_text(char **text, const char *value)
{
    char *copy = pst_strdup(value);
    free(*text);
    *text = copy;
}

static void job_free(void *p)
{
    trainer_job *j = p;
    if (!j)
        return;
    pst_event_clear(&pst_job_state_type, &j->s);
    free(j);
}

/* What the state does not say itself. A manifest in a state was valid when it was admitted; should rules have become stricter since, what
 * could be read counts and the rest takes defaults: a running job is not hurt by an upgrade. */
void tcore_read_manifest(trainer_job *j)
{
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    pst_manifest_parse(j->s.manifest, strlen(j->s.manifest), &m, &errors, &warnings);
    j->retries = m.retries;
    j->parameter_servers = m.parameter_servers;
    j->deadline_us = m.deadline_us;
    j->grace_us = m.grace_us;
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    j->needs = trainer_needs_of(j->s.learners, j->parameter_servers, j->s.cpus, j->s.memory_bytes, j->s.gpus);
}

trainer_job *tcore_adopt(tcore *c, pst_job_state *take)
{
    trainer_job *j = pst_alloc(sizeof *j);
    j->s = *take;
    *take = (pst_job_state){0};
    if (!pst_job_state_is_ended(j->s.state)) /* most jobs have ended long ago; a resume reads it then */
        tcore_read_manifest(j);
    char **texts[] = {&j->s.node, &j->s.checkpoint_node, &j->s.nonce_sha256, &j->s.claim_sha256, &j->s.spec_sha256};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        *texts[i] = *texts[i] ? *texts[i] : pst_strdup("");
    j->site = tcore_site(c, j->s.site);
    PST_ASSERT(!pst_map_put(&c->jobs, j->s.training_id, j));
    c->by_state[j->s.state]++;
    return j;
}

static void live_add(tcore *c, trainer_job *j)
{
    if (j->live_at)
        return;
    if (c->n_live == c->cap_live) {
        c->cap_live = c->cap_live ? c->cap_live * 2 : 64;
        c->live = pst_realloc(c->live, c->cap_live * sizeof *c->live);
    }
    c->live[c->n_live++] = j;
    j->live_at = c->n_live;
}

static void live_remove(tcore *c, trainer_job *j)
{
    if (!j->live_at)
        return;
    trainer_job *last = c->live[--c->n_live];
    c->live[j->live_at - 1] = last;
    last->live_at = j->live_at;
    j->live_at = 0;
}

static void mark_dirty(tcore *c, trainer_job *j)
{
    if (j->dirty)
        return;
    if (c->n_dirty == c->cap_dirty) {
        c->cap_dirty = c->cap_dirty ? c->cap_dirty * 2 : 64;
        c->dirty = pst_realloc(c->dirty, c->cap_dirty * sizeof *c->dirty);
    }
    c->dirty[c->n_dirty++] = j;
    j->dirty = true;
}

static void forget(tcore *c, trainer_job *j)
{
    trainer_queue_remove(c, j);
    tcore_release(c, j);
    live_remove(c, j);
    c->by_state[j->s.state]--;
    for (size_t i = 0; j->dirty && i < c->n_dirty; i++)
        if (c->dirty[i] == j)
            c->dirty[i] = NULL;
    trainer_memory_take(&c->rejected, j->s.training_id);
    pst_map_take(&c->jobs, j->s.training_id);
    job_free(j);
}

void tcore_remove(tcore *c, trainer_job *j)
{
    add_action(c, PST_DO_TOMBSTONE, j->s.training_id);
    trainer_memory_put(&c->deleted, j->s.training_id, c->now_us);
    forget(c, j);
}

void tcore_expire(tcore *c, const char *training_id)
{
    trainer_action *a = add_action(c, PST_DO_TOMBSTONE, training_id); /* copies the id, which may end with the job */
    trainer_job *j = pst_map_get(&c->jobs, training_id);
    a->expired = true;
    trainer_memory_take(&c->rejected, a->key);
    if (j)
        forget(c, j);
}

void tcore_publish(tcore *c, const pst_job_state *s)
{
    add_action(c, PST_DO_STATE, s->training_id)->state = s;
}

/* ---- what a step produces ---------------------------------------------------------------------------------------------------- */

static void add_details(pst_job_event *e, const pst_complaints *details)
{
    for (size_t i = 0; details && i < details->n; i++) {
        const char *there = pst_str_map_get(e->details, e->n_details, details->at[i].field);
        char *both = there ? pst_sprintf("%s; %s", there, details->at[i].text) : NULL;
        pst_str_map_set(&e->details, &e->n_details, details->at[i].field, both ? both : details->at[i].text);
        free(both);
    }
}

static pst_job_event *add_event(tcore *c, const char *key, enum pst_job_event_type type, const trainer_say *say)
{
    pst_job_event *e = &add_action(c, PST_DO_EVENT, key)->event;
    e->type = type;
    e->time = c->said_us;
    e->training_id = pst_strdup("");
    e->actor = pst_strdup(say->actor ? say->actor : "trainer");
    e->process = pst_strdup(say->process);
    e->reason_code = pst_strdup(say->reason_code);
    e->reason = pst_strdup(say->reason);
    e->has_exit_code = say->exit_code;
    e->exit_code = say->exit_code ? *say->exit_code : 0;
    e->has_signal = say->signal;
    e->signal = say->signal ? *say->signal : 0;
    add_details(e, say->details);
    return e;
}

pst_job_event *tcore_emit(tcore *c, trainer_job *j, enum pst_job_event_type type, pst_job_public_state to, const trainer_say *say)
{
    static const trainer_say nothing = {0};
    say = say ? say : &nothing;
    PST_ASSERT(job_fsm_allows(j->s.state, type, to));
    int64_t at_us = c->said_us > j->s.updated_at ? c->said_us : j->s.updated_at;
    if (to != j->s.state) {
        c->by_state[j->s.state]--;
        c->by_state[to]++;
        j->s.state = to;
        j->s.since = at_us;
        j->s.has_ended_at = pst_job_state_is_ended(to);
        j->s.ended_at = j->s.has_ended_at ? at_us : 0;
        if (pst_job_state_is_live(to))
            live_add(c, j);
        else
            live_remove(c, j);
    }
    j->s.seq++;
    j->s.updated_at = at_us;
    mark_dirty(c, j);
    pst_job_event *e = add_event(c, j->s.training_id, type, say);
    e->time = at_us;
    tcore_set_text(&e->training_id, j->s.training_id);
    e->request_id = pst_strdup(say->request_id ? say->request_id : j->s.request_id);
    e->generation = j->s.generation;
    e->seq = j->s.seq;
    e->state = to;
    return e;
}

/* An answer that belongs to no job: sequence 0. */
static void reject_orphan(tcore *c, const char *training_id, const char *request_id, const trainer_say *say)
{
    const char *key = training_id && *training_id ? training_id : request_id;
    pst_job_event *e = add_event(c, key, PST_JOB_EVENT_TYPE_REJECTED, say);
    tcore_set_text(&e->training_id, training_id ? training_id : "");
    e->request_id = pst_strdup(request_id);
    e->state = PST_JOB_PUBLIC_STATE_UNKNOWN;
}

void tcore_reject(tcore *c, trainer_job *j, const char *training_id, const char *request_id, const trainer_say *say)
{
    c->counts.rejected++;
    if (j) {
        trainer_say answer = *say;
        answer.request_id = request_id;
        tcore_emit(c, j, PST_JOB_EVENT_TYPE_REJECTED, j->s.state, &answer);
    } else {
        reject_orphan(c, training_id, request_id, say);
    }
}

void tcore_answer(tcore *c, const char *request_id, const trainer_say *say)
{
    pst_job_event *e = add_event(c, request_id, PST_JOB_EVENT_TYPE_OTHER, say);
    e->request_id = pst_strdup(request_id);
    e->state = PST_JOB_PUBLIC_STATE_UNKNOWN;
}

static void fill_spec(trainer_job *j, pst_deploy_spec *spec)
{
    spec->name = pst_strdup(j->s.name);
    spec->user = pst_strdup(j->s.user);
    spec->manifest = pst_strdup(j->s.manifest);
    spec->learners = j->s.learners;
    spec->cpus = j->s.cpus;
    spec->gpus = j->s.gpus;
    spec->memory_bytes = j->s.memory_bytes;
    spec->grace_ms = (int32_t)(j->grace_us / 1000);
    if (j->s.code) {
        spec->code = pst_alloc(sizeof *spec->code);
        pst_event_copy(&pst_code_ref_type, j->s.code, spec->code);
    }
}

void tcore_command(tcore *c, trainer_job *j, enum pst_job_command_type command, const char *request_id, const char *reason)
{
    trainer_action *a = add_action(c, PST_DO_COMMAND, j->s.training_id);
    pst_job_command *cmd = &a->command;
    a->seal = tcore_node(c, j->s.site, j->s.node)->opens;
    cmd->training_id = pst_strdup(j->s.training_id);
    cmd->generation = j->s.generation;
    cmd->site = pst_strdup(j->s.site);
    cmd->command = command;
    cmd->time = c->now_us;
    cmd->request_id = pst_strdup(request_id ? request_id : j->s.request_id);
    cmd->reason = pst_strdup(reason);
    if (command == PST_JOB_COMMAND_TYPE_DEPLOY) {
        cmd->spec = pst_alloc(sizeof *cmd->spec);
        fill_spec(j, cmd->spec);
    }
    tcore_sign(c, j, cmd);
    mark_dirty(c, j);
}

void tcore_command_node(tcore *c, const trainer_node *n, enum pst_job_command_type command, const char *request_id, const char *reason)
{
    pst_job_command *cmd = &add_action(c, PST_DO_COMMAND, n->name)->command;
    cmd->training_id = pst_strdup("");
    cmd->site = pst_strdup(n->site->name);
    cmd->node = pst_strdup(n->name);
    cmd->epoch = n->epoch;
    cmd->nonce = pst_strdup("");
    cmd->command = command;
    cmd->time = c->now_us;
    cmd->request_id = pst_strdup(request_id);
    cmd->reason = pst_strdup(reason);
}

void tcore_tell_node(tcore *c, const trainer_node *n, const char *state)
{
    char *key = n->proves ? pst_sprintf("lcm.%s", n->name) : pst_strdup(n->name);
    pst_worker_state *w = &add_action(c, PST_DO_WORKER, key)->worker;
    w->worker_id = key;
    w->kind = pst_strdup("lcm");
    w->site = pst_strdup(n->site->name);
    w->host = pst_strdup("");
    w->time = n->seen_us;
    w->state = pst_strdup(state);
    w->node = pst_strdup(n->proves ? n->name : "");
    w->epoch = n->epoch;
    w->cpus = (double)n->capacity.cpu / PST_CPU_UNIT;
    w->memory_bytes = n->capacity.memory;
    w->gpus = (int32_t)n->capacity.gpus;
    w->version = pst_strdup("");
}

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
    if (said <= now_us - 7 * day_us || said >= now_us + day_us)
        return now_us;
    if (in->unsettled || !in->published_us)
        return in->unsettled || said < now_us ? said : now_us;
    int64_t waited_us = in->published_us > said ? in->published_us - said : 0;
    int64_t latest = now_us - waited_us;
    bool wrong = said > latest + ahead_us || (in->live && said < latest - behind_us);
    return wrong ? latest : said;
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
    trainer_queue_run(c);
    for (size_t i = 0; i < c->n_dirty; i++) {
        trainer_job *j = c->dirty[i];
        if (!j) /* deleted in this step */
            continue;
        j->dirty = false;
        add_action(c, PST_DO_STATE, j->s.training_id)->state = &j->s;
    }
    c->n_dirty = 0;
    c->out = NULL;
}

/* ---- start, rebuild, looking in ---------------------------------------------------------------------------------------------- */

tcore *tcore_new(const trainer_policy *policy)
{
    tcore *c = pst_alloc(sizeof *c);
    c->policy = *policy;
    return c;
}

void tcore_reset(tcore *c)
{
    pst_map_done(&c->jobs, job_free);
    for (size_t i = 0; i < c->sites.n; i++)
        if (c->sites.at[i].key) {
            trainer_site *site = c->sites.at[i].value;
            site->n_queue = site->n_unsaid = 0;
        }
    for (size_t i = 0; i < c->nodes.n; i++)
        if (c->nodes.at[i].key)
            ((trainer_node *)c->nodes.at[i].value)->used = (trainer_needs){0};
    trainer_memory_done(&c->answered);
    trainer_memory_done(&c->deleted);
    trainer_memory_done(&c->rejected);
    pst_map_done(&c->early, trainer_early_free);
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
    free(c->live);
    free(c->dirty);
    free(c);
}

void tcore_load(tcore *c, const pst_job_state *s)
{
    trainer_job *old = pst_map_get(&c->jobs, s->training_id);
    if (old)
        forget(c, old);
    trainer_memory_take(&c->deleted, s->training_id);
    trainer_early_drop(c, s->training_id);
    if (s->state == PST_JOB_PUBLIC_STATE_UNKNOWN) { /* no job yet */
        trainer_early_load(c, s);
        return;
    }
    pst_job_state copy;
    pst_event_copy(&pst_job_state_type, s, &copy);
    trainer_job *j = tcore_adopt(c, &copy);
    if (j->s.state == PST_JOB_PUBLIC_STATE_REJECTED)
        trainer_memory_put(&c->rejected, j->s.training_id, j->s.updated_at);
    if (j->s.submitted_at > c->submitted_us)
        c->submitted_us = j->s.submitted_at;
}

void tcore_drop(tcore *c, const char *training_id, int64_t deleted_us)
{
    trainer_job *old = pst_map_get(&c->jobs, training_id);
    if (old)
        forget(c, old);
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
        if (pst_job_state_is_live(j->s.state)) {
            live_add(c, j);
            tcore_charge(c, j);
        } else if (j->s.state == PST_JOB_PUBLIC_STATE_QUEUED) {
            trainer_queue_add(c, j);
            j->unsaid = false; /* its reason is in the state already */
            j->site->n_unsaid--;
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
