/* jobs.c - the jobs in memory, the one setter of their state, and the one place where a step's results are written down. tcore_emit looks into the
 * table of transitions and aborts on what is not in it, numbers the event, and marks the state for publishing: so no event is without its
 * state, and no state changes without an event. */
#include "common/base/array.h"
#include "schemas/job_state.h"
#include "trainer/core_state.h"

#include <stdlib.h>
#include <string.h>

static trainer_action *add_action(tcore *c, pst_action_kind kind, const char *key)
{
    trainer_actions *a = c->out;
    a->at = pst_array_room(a->at, a->n, &a->cap, sizeof *a->at);
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

/* ---- jobs in memory -------------------------------------------------------------------------------------------------------------- */

void trainer_job_free(void *p)
{
    trainer_job *j = p;
    if (!j)
        return;
    pst_event_clear(&pst_job_state_type, &j->s);
    free(j->retry_on);
    pst_task_array_done(&j->tasks);
    free(j->gang);
    free(j->parts);
    free(j->committed_us);
    free(j);
}

/* What the state does not say itself. */
static void take_manifest(trainer_job *j, pst_manifest *m)
{
    j->retries = m->retries;
    free(j->retry_on);
    j->retry_on = m->retry_on; /* moves over */
    j->n_retry_on = m->n_retry_on;
    m->retry_on = NULL;
    m->n_retry_on = 0;
    j->deadline_us = m->deadline_us;
    j->grace_us = m->grace_us;
    j->isolation = trainer_isolation_of(m);
    free(j->gang);
    j->gang = trainer_gang_of(m);
    j->needs = j->gang->all;
}

/* A manifest in a state was valid when it was admitted; should rules have become stricter since, what
 * could be read counts and the rest takes defaults: a running job is not hurt by an upgrade. */
void tcore_read_manifest(trainer_job *j)
{
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    pst_manifest_parse(j->s.manifest, strlen(j->s.manifest), &m, &errors, &warnings);
    take_manifest(j, &m);
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
}

trainer_job *tcore_adopt(tcore *c, pst_job_state *take, pst_manifest *m)
{
    trainer_job *j = pst_alloc(sizeof *j);
    j->s = *take;
    *take = (pst_job_state){0};
    if (m)
        take_manifest(j, m);
    else if (!pst_job_state_is_ended(j->s.state)) /* most jobs have ended long ago; a resume reads it then */
        tcore_read_manifest(j);
    char **texts[] = {&j->s.node,        &j->s.checkpoint_node, &j->s.nonce_sha256, &j->s.claim_sha256,
                      &j->s.spec_sha256, &j->s.failed_process,  &j->s.array_of};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        *texts[i] = *texts[i] ? *texts[i] : pst_strdup("");
    j->site = tcore_site(c, j->s.site);
    j->queue = trainer_queue_named(c, j->s.queue);
    PST_ASSERT(!pst_map_put(&c->jobs, j->s.training_id, j));
    c->by_state[j->s.state]++;
    return j;
}

void tcore_live_add(tcore *c, trainer_job *j)
{
    if (j->live_at)
        return;
    c->live = pst_array_room(c->live, c->n_live, &c->cap_live, sizeof *c->live);
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

void tcore_changed(tcore *c, trainer_job *j)
{
    if (j->dirty)
        return;
    c->dirty = pst_array_room(c->dirty, c->n_dirty, &c->cap_dirty, sizeof *c->dirty);
    c->dirty[c->n_dirty++] = j;
    j->dirty = true;
}

void tcore_forget(tcore *c, trainer_job *j)
{
    trainer_queue_remove(c, j);
    tcore_release(c, j);
    live_remove(c, j);
    c->by_state[j->s.state]--;
    for (size_t i = 0; j->dirty && i < c->n_dirty; i++)
        if (c->dirty[i] == j)
            c->dirty[i] = NULL;
    c->after_due = true;
    trainer_memory_take(&c->rejected, j->s.training_id);
    pst_map_take(&c->arrays, j->s.training_id);
    pst_map_take(&c->jobs, j->s.training_id);
    trainer_job_free(j);
}

void tcore_remove(tcore *c, trainer_job *j)
{
    add_action(c, PST_DO_TOMBSTONE, j->s.training_id);
    trainer_memory_put(&c->deleted, j->s.training_id, c->now_us);
    tcore_forget(c, j);
}

void tcore_expire(tcore *c, const char *training_id)
{
    trainer_action *a = add_action(c, PST_DO_TOMBSTONE, training_id); /* copies the id, which may end with the job */
    trainer_job *j = pst_map_get(&c->jobs, training_id);
    a->expired = true;
    trainer_memory_take(&c->rejected, a->key);
    if (j)
        tcore_forget(c, j);
}

void tcore_publish(tcore *c, const pst_job_state *s)
{
    add_action(c, PST_DO_STATE, s->training_id)->state = s;
}

/* ---- events and answers ---------------------------------------------------------------------------------------------------------- */

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

static int32_t *task_count(pst_job_array *a, pst_job_public_state state)
{
    switch (state) {
    case PST_JOB_PUBLIC_STATE_QUEUED: return &a->waiting;
    case PST_JOB_PUBLIC_STATE_COMPLETED: return &a->completed;
    case PST_JOB_PUBLIC_STATE_FAILED: return &a->failed;
    case PST_JOB_PUBLIC_STATE_HALTED: return &a->halted;
    case PST_JOB_PUBLIC_STATE_TERMINATED: return &a->terminated;
    default: return pst_job_state_is_live(state) ? &a->running : NULL;
    }
}

/* A task has moved: its array's state says so, in the same step. What follows is decided by arrays.c. */
static void count_task(tcore *c, const trainer_job *task, pst_job_public_state from, pst_job_public_state to)
{
    trainer_job *array = *task->s.array_of ? pst_map_get(&c->jobs, task->s.array_of) : NULL;
    if (!array || !array->s.array)
        return;
    int32_t *before = task_count(array->s.array, from), *after = task_count(array->s.array, to);
    if (before && *before > 0)
        --*before;
    if (after)
        ++*after;
    array->task_ended |= pst_job_state_is_ended(to);
    pst_map_put(&c->arrays, array->s.training_id, array);
    tcore_changed(c, array);
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
        count_task(c, j, j->s.state, to);
        j->s.state = to;
        j->s.since = at_us;
        j->s.has_ended_at = pst_job_state_is_ended(to);
        j->s.ended_at = j->s.has_ended_at ? at_us : 0;
        c->after_due |= j->s.has_ended_at;
        if (pst_job_state_is_live(to) && !j->s.array) /* an array runs nothing itself */
            tcore_live_add(c, j);
        else
            live_remove(c, j);
    }
    j->s.seq++;
    j->s.updated_at = at_us;
    tcore_changed(c, j);
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

/* ---- commands -------------------------------------------------------------------------------------------------------------------- */

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
    if (pst_job_is_spread(&j->s)) {
        spec->nodes = pst_alloc(j->s.n_processes * sizeof *spec->nodes);
        for (size_t i = 0; i < j->s.n_processes; i++)
            spec->nodes[spec->n_nodes++] = pst_strdup(j->s.processes[i].node);
    }
    if (j->s.code) {
        spec->code = pst_alloc(sizeof *spec->code);
        pst_event_copy(&pst_code_ref_type, j->s.code, spec->code);
    }
}

void tcore_command_to(tcore *c, trainer_job *j, const char *node, enum pst_job_command_type command, const char *request_id,
                      const char *reason)
{
    trainer_action *a = add_action(c, PST_DO_COMMAND, j->s.training_id);
    pst_job_command *cmd = &a->command;
    a->seal = tcore_node(c, j->s.site, node)->opens;
    cmd->training_id = pst_strdup(j->s.training_id);
    cmd->generation = j->s.generation;
    cmd->site = pst_strdup(j->s.site);
    cmd->node = pst_strdup(command == PST_JOB_COMMAND_TYPE_CLEAN ? "" : node); /* each node may hold folders of it */
    cmd->command = command;
    cmd->time = c->now_us;
    cmd->request_id = pst_strdup(request_id ? request_id : j->s.request_id);
    cmd->reason = pst_strdup(reason);
    if (command == PST_JOB_COMMAND_TYPE_DEPLOY) {
        cmd->spec = pst_alloc(sizeof *cmd->spec);
        fill_spec(j, cmd->spec);
    }
    tcore_sign(c, j, tcore_node(c, j->s.site, node), cmd);
    tcore_changed(c, j);
}

void tcore_command(tcore *c, trainer_job *j, enum pst_job_command_type command, const char *request_id, const char *reason)
{
    size_t n;
    const char **nodes = trainer_job_nodes(j, &n);
    if (command == PST_JOB_COMMAND_TYPE_CLEAN) /* one, to all of the site */
        n = 1;
    for (size_t i = 0; i < n; i++)
        tcore_command_to(c, j, nodes[i], command, request_id, reason);
    free(nodes);
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
