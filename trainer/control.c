/* control.c - what is asked of a job that is there: halt, resume, terminate, delete, reprioritise, hold, release. A live generation is only told to stop here; the
 * stop is carried out when nothing of it is left (ending.c). What came before its submission is answered here, too, when that has come
 * or was waited for in vain. */
#include "trainer/core_state.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { EARLY_S_MAX = 600, SECOND_US = 1000000, PRIORITY_ABS_MAX = 1000000 };

typedef struct asked {
    tcore *c;
    trainer_job *j;
    const pst_job_request *r;
    char *actor, *by;
} asked;

static void refuse(const asked *a, const char *code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void refuse(const asked *a, const char *code, const char *fmt, ...)
{
    pst_buf reason = {0};
    va_list ap;
    va_start(ap, fmt);
    pst_buf_vprintf(&reason, fmt, ap);
    va_end(ap);
    pst_complaints details = {0};
    pst_complain(&details, "action", 0, "%s", reason.data);
    tcore_reject(a->c, a->j, a->r->training_id, a->r->request_id,
                 &(trainer_say){.actor = a->actor, .reason_code = code, .reason = reason.data, .details = &details});
    pst_complaints_done(&details);
    pst_buf_done(&reason);
}

static void say(const asked *a, enum pst_job_event_type type, pst_job_public_state to, const char *reason)
{
    bool goes_on =
        to == PST_JOB_PUBLIC_STATE_QUEUED || to == PST_JOB_PUBLIC_STATE_HALTED; /* halted, it is still to be asked when resumed */
    if (trainer_stores_unasked(a->j) && !goes_on)                               /* that answer is of no use any more */
        tcore_set_text(&a->j->s.reason_code, NULL);
    tcore_set_text(&a->j->s.reason, reason);
    tcore_emit(a->c, a->j, type, to, &(trainer_say){.actor = a->actor, .request_id = a->r->request_id, .reason = reason});
}

/* A live generation is to stop; what follows is decided when nothing of it is left. */
static void stop(const asked *a, pst_job_stop_action action, enum pst_job_event_type type, enum pst_job_command_type command,
                 const char *verb)
{
    char *reason = pst_sprintf("%s by %s", verb, a->by);
    a->j->s.stop_action = action;
    tcore_set_text(&a->j->s.stop_by, a->r->user);
    tcore_set_text(&a->j->s.stop_request_id, a->r->request_id);
    say(a, type, a->j->s.state, reason);
    tcore_command(a->c, a->j, command, a->r->request_id, reason);
    free(reason);
}

static void halt(const asked *a)
{
    trainer_job *j = a->j;
    if (pst_job_state_is_ended(j->s.state)) {
        refuse(a, "WRONG_STATE", "the job is %s already and cannot be halted", pst_job_public_state_text(j->s.state));
    } else if (j->s.stop_action != PST_JOB_STOP_ACTION_NONE && j->s.stop_action != PST_JOB_STOP_ACTION_PREEMPT) {
        refuse(a, "WRONG_STATE", "the job is being stopped already: %s", j->s.reason ? j->s.reason : "asked before");
    } else if (j->s.state == PST_JOB_PUBLIC_STATE_QUEUED) {
        char *reason = pst_sprintf("halted by %s while it was queued", a->by);
        trainer_queue_remove(a->c, j);
        a->c->counts.halted++;
        say(a, PST_JOB_EVENT_TYPE_HALTED, PST_JOB_PUBLIC_STATE_HALTED, reason);
        free(reason);
    } else {
        stop(a, PST_JOB_STOP_ACTION_HALT, PST_JOB_EVENT_TYPE_HALTING, PST_JOB_COMMAND_TYPE_HALT, "halted");
    }
}

/* What could never run again is refused now, with the cure, in place of waiting for ever: nodes, isolation and queues may have changed since it stopped. */
static void resume(const asked *a)
{
    trainer_job *j = a->j;
    if (j->s.state != PST_JOB_PUBLIC_STATE_HALTED && j->s.state != PST_JOB_PUBLIC_STATE_FAILED) {
        refuse(a, "WRONG_STATE", "the job is %s%s; only a HALTED or FAILED one can be resumed", pst_job_public_state_text(j->s.state),
               j->s.stop_action == PST_JOB_STOP_ACTION_HALT ? " and still being halted" : "");
        return;
    }
    tcore_read_manifest(j);
    char *never = a->c->nodes_unread ? NULL : trainer_queue_never(j->site, j->gang);
    if (!never && !a->c->nodes_unread)
        never = trainer_site_forbids(j->site, j->isolation);
    if (!never)
        never = trainer_queue_exceeds(j->queue, &j->needs);
    if (!never && !j->queue->known)
        never = pst_sprintf("its queue %s was deleted; `penstock queues apply` brings it back", j->queue->name);
    if (never) {
        refuse(a, "INSUFFICIENT_RESOURCES", "%s", never);
        free(never);
        return;
    }
    char *reason = pst_sprintf("resumed by %s", a->by);
    bool unasked = trainer_stores_unasked(j);
    j->s.attempts = j->s.platform_attempts = 0;
    tcore_set_text(&j->s.reason_code, NULL);
    say(a, PST_JOB_EVENT_TYPE_RESUMED, PST_JOB_PUBLIC_STATE_QUEUED, reason);
    if (unasked)
        trainer_stores_await(a->c, j);
    trainer_queue_add(a->c, j);
    free(reason);
}

/* TERMINATE and DELETE with `force`: also without the job's node, once that is silent. */
static bool is_forced(const pst_job_request *r)
{
    const char *force = pst_str_map_get(r->options, r->n_options, "force");
    return force && !strcmp(force, "true");
}

/* Asked once more while it is being stopped: not wrong, and its node hears of it once more. */
static void stop_again(const asked *a, const char *verb)
{
    char *reason = pst_sprintf("%s by %s, as asked before", verb, a->by);
    tcore_emit(a->c, a->j, PST_JOB_EVENT_TYPE_TERMINATING, a->j->s.state,
               &(trainer_say){.actor = a->actor, .request_id = a->r->request_id, .reason = reason});
    tcore_command(a->c, a->j, PST_JOB_COMMAND_TYPE_KILL, a->r->request_id, reason);
    free(reason);
}

static void terminate(const asked *a)
{
    trainer_job *j = a->j;
    bool ended = pst_job_state_is_ended(j->s.state) && j->s.state != PST_JOB_PUBLIC_STATE_HALTED;
    if (ended) {
        refuse(a, "WRONG_STATE", "the job is %s already", pst_job_public_state_text(j->s.state));
    } else if (pst_job_state_is_live(j->s.state)) {
        if (j->s.stop_action == PST_JOB_STOP_ACTION_TERMINATE || j->s.stop_action == PST_JOB_STOP_ACTION_DELETE)
            stop_again(a, "terminated");
        else
            stop(a, PST_JOB_STOP_ACTION_TERMINATE, PST_JOB_EVENT_TYPE_TERMINATING, PST_JOB_COMMAND_TYPE_KILL, "terminated");
        j->s.stop_force |= is_forced(a->r);
        tcore_force(a->c, j);
    } else {
        char *reason = pst_sprintf("terminated by %s", a->by);
        trainer_queue_remove(a->c, j);
        a->c->counts.terminated++;
        say(a, PST_JOB_EVENT_TYPE_TERMINATED, PST_JOB_PUBLIC_STATE_TERMINATED, reason);
        free(reason);
    }
}

static void delete_job(const asked *a)
{
    trainer_job *j = a->j;
    char *reason = pst_sprintf("deleted by %s", a->by);
    if (pst_job_state_is_live(j->s.state)) {
        if (j->s.stop_action == PST_JOB_STOP_ACTION_DELETE)
            stop_again(a, "terminated and deleted");
        else
            stop(a, PST_JOB_STOP_ACTION_DELETE, PST_JOB_EVENT_TYPE_TERMINATING, PST_JOB_COMMAND_TYPE_KILL, "terminated and deleted");
        j->s.stop_force |= is_forced(a->r);
        tcore_force(a->c, j);
    } else {
        if (j->s.state == PST_JOB_PUBLIC_STATE_QUEUED) { /* every accepted job has an end */
            trainer_queue_remove(a->c, j);
            a->c->counts.terminated++;
            say(a, PST_JOB_EVENT_TYPE_TERMINATED, PST_JOB_PUBLIC_STATE_TERMINATED, reason);
        }
        tcore_delete_now(a->c, j, a->actor, a->r->request_id, reason);
    }
    free(reason);
}

static void reprioritise(const asked *a)
{
    trainer_job *j = a->j;
    const char *text = pst_str_map_get(a->r->options, a->r->n_options, "priority");
    char *end = NULL;
    long v = text ? strtol(text, &end, 10) : 0;
    if (!text || end == text || *end || v < -PRIORITY_ABS_MAX || v > PRIORITY_ABS_MAX) {
        refuse(a, "BAD_REQUEST", "options.priority must be a whole number from %d to %d, found %.40s", -PRIORITY_ABS_MAX, PRIORITY_ABS_MAX,
               text ? text : "nothing");
        return;
    }
    if (j->s.state == PST_JOB_PUBLIC_STATE_COMPLETED || j->s.state == PST_JOB_PUBLIC_STATE_TERMINATED ||
        j->s.state == PST_JOB_PUBLIC_STATE_REJECTED) {
        refuse(a, "WRONG_STATE", "the job is %s already", pst_job_public_state_text(j->s.state));
        return;
    }
    char *reason = pst_sprintf("priority %d, was %d, by %s", (int)v, j->s.priority, a->by);
    bool queued = j->queued;
    trainer_queue_remove(a->c, j); /* its place depends on the priority */
    j->s.priority = (int)v;
    tcore_emit(a->c, j, PST_JOB_EVENT_TYPE_REPRIORITISED, j->s.state,
               &(trainer_say){.actor = a->actor, .request_id = a->r->request_id, .reason = reason});
    if (queued)
        trainer_queue_add(a->c, j);
    if (queued && j->barred)
        trainer_queue_said(j);
    free(reason);
}

/* Only what waits can be held: one that runs would go on as if nothing had been said. */
/* An operator's hold takes the place of the owner's, who could release that. */
static void hold(const asked *a)
{
    trainer_job *j = a->j;
    const char *state = pst_job_public_state_text(j->s.state);
    bool owners = j->s.held_by && !strcmp(j->s.held_by, j->s.user);
    bool takes_over = owners && a->r->user && strcmp(a->r->user, j->s.user) != 0 && trainer_request_of_operator(a->c, a->r);
    if (j->s.held_by && !takes_over) {
        refuse(a, "WRONG_STATE", "the job is held already, by user %.100s", j->s.held_by);
    } else if (pst_job_state_is_live(j->s.state)) {
        refuse(a, "WRONG_STATE", "the job is %s: what has been started cannot be held back; halt stops it so that it can be resumed",
               state);
    } else if (j->s.state != PST_JOB_PUBLIC_STATE_QUEUED) {
        refuse(a, "WRONG_STATE", "the job is %s and does not wait: there is nothing to hold", state);
    } else {
        char *reason = pst_sprintf("held by %s", a->by);
        trainer_queue_remove(a->c, j); /* its place depends on it */
        tcore_set_text(&j->s.held_by, a->r->user);
        j->never_us = 0;
        trainer_queue_add(a->c, j);
        trainer_queue_said(j);
        say(a, PST_JOB_EVENT_TYPE_HELD, j->s.state, reason);
        free(reason);
    }
}

/* What an operator holds, its owner cannot let go. A job that was halted while it was held is held still, and can be released. */
static void release(const asked *a)
{
    trainer_job *j = a->j;
    bool others = j->s.held_by && strcmp(j->s.held_by, j->s.user);
    if (!j->s.held_by || (j->s.state != PST_JOB_PUBLIC_STATE_QUEUED && j->s.state != PST_JOB_PUBLIC_STATE_HALTED)) {
        refuse(a, "WRONG_STATE", "the job is %s and nobody holds it", pst_job_public_state_text(j->s.state));
    } else if (others && !trainer_request_of_operator(a->c, a->r)) {
        refuse(a, "NOT_YOURS", "user %.100s, an operator, holds the job: only operators can release it", j->s.held_by);
    } else {
        char *reason = pst_sprintf("released by %s", a->by);
        bool queued = j->queued;
        trainer_queue_remove(a->c, j);
        tcore_set_text(&j->s.held_by, NULL);
        say(a, PST_JOB_EVENT_TYPE_RELEASED, j->s.state, reason);
        if (queued)
            trainer_queue_add(a->c, j);
        free(reason);
    }
}

/* ---- what is asked of an array: it reaches its tasks ------------------------------------------------------------------------------ */

static bool reaches(pst_job_action action, const pst_job_state *task)
{
    bool halted = task->state == PST_JOB_PUBLIC_STATE_HALTED, is_ended = pst_job_state_is_ended(task->state);
    switch (action) {
    case PST_JOB_ACTION_HALT: /* one that is being pre-empted would come back */
        return !is_ended && (task->stop_action == PST_JOB_STOP_ACTION_NONE || task->stop_action == PST_JOB_STOP_ACTION_PREEMPT);
    case PST_JOB_ACTION_RESUME: return halted || task->state == PST_JOB_PUBLIC_STATE_FAILED;
    case PST_JOB_ACTION_TERMINATE: return !is_ended || halted;
    case PST_JOB_ACTION_REPRIORITISE: /* as of a job: one that can be resumed comes back with it */
        return !is_ended || halted || task->state == PST_JOB_PUBLIC_STATE_FAILED;
    default: return action == PST_JOB_ACTION_DELETE;
    }
}

/* The same request, of each task for which it makes sense. */
static void ask_tasks(const asked *a)
{
    for (size_t i = 0; i < (size_t)a->j->s.array->admitted; i++) {
        const trainer_job *task = trainer_array_task(a->c, a->j, i);
        if (!task || !reaches(a->r->action, &task->s))
            continue;
        pst_job_request r = *a->r;
        char *id = pst_strdup(task->s.training_id); /* a deletion frees the task */
        r.training_id = id;
        tcore_control(a->c, &r);
        free(id);
    }
}

/* It ends when its tasks have (arrays.c). */
static void stop_array(const asked *a, pst_job_stop_action action)
{
    bool halts = action == PST_JOB_STOP_ACTION_HALT;
    const char *verb = action == PST_JOB_STOP_ACTION_DELETE ? "terminated and deleted" : "terminated";
    char *reason = pst_sprintf("%s by %s", halts ? "halted" : verb, a->by);
    if (a->j->s.stop_action != PST_JOB_STOP_ACTION_DELETE) /* what goes further stays */
        a->j->s.stop_action = action;
    tcore_set_text(&a->j->s.stop_by, a->r->user);
    tcore_set_text(&a->j->s.stop_request_id, a->r->request_id);
    say(a, halts ? PST_JOB_EVENT_TYPE_HALTING : PST_JOB_EVENT_TYPE_TERMINATING, a->j->s.state, reason);
    pst_map_put(&a->c->arrays, a->j->s.training_id, a->j); /* it may have no task that lives */
    ask_tasks(a);
    free(reason);
}

/* Tasks that did not come about are done again; those that were not admitted yet are then. */
static void resume_array(const asked *a)
{
    resume(a);
    if (a->j->s.state != PST_JOB_PUBLIC_STATE_QUEUED || !a->j->s.array->admitted)
        return;
    trainer_array_open(a->c, a->j); /* its tasks wait in the queue themselves */
    ask_tasks(a);
}

/* False: it is to be done as of any other job. */
static bool of_array(const asked *a)
{
    trainer_job *j = a->j;
    bool live = pst_job_state_is_live(j->s.state);
    switch (a->r->action) {
    case PST_JOB_ACTION_HALT:
        if (!live || j->s.stop_action != PST_JOB_STOP_ACTION_NONE)
            return false;
        stop_array(a, PST_JOB_STOP_ACTION_HALT);
        return true;
    case PST_JOB_ACTION_RESUME: resume_array(a); return true;
    case PST_JOB_ACTION_TERMINATE:
        if (live)
            stop_array(a, PST_JOB_STOP_ACTION_TERMINATE);
        else if (j->s.state == PST_JOB_PUBLIC_STATE_HALTED)
            ask_tasks(a);
        return live;
    case PST_JOB_ACTION_DELETE:
        if (live)
            stop_array(a, PST_JOB_STOP_ACTION_DELETE);
        else
            ask_tasks(a);
        return live;
    case PST_JOB_ACTION_REPRIORITISE: ask_tasks(a); return false;
    default: return false;
    }
}

static void do_it(asked *a)
{
    if (a->j->s.array && of_array(a))
        return;
    switch (a->r->action) {
    case PST_JOB_ACTION_HALT: halt(a); break;
    case PST_JOB_ACTION_RESUME: resume(a); break;
    case PST_JOB_ACTION_TERMINATE: terminate(a); break;
    case PST_JOB_ACTION_DELETE: delete_job(a); break;
    case PST_JOB_ACTION_REPRIORITISE: reprioritise(a); break;
    case PST_JOB_ACTION_HOLD: hold(a); break;
    case PST_JOB_ACTION_RELEASE: release(a); break;
    default: break; /* not here */
    }
}

void tcore_control(tcore *c, const pst_job_request *r)
{
    const char *id = r->training_id ? r->training_id : "";
    char *mark = trainer_request_mark(r);
    trainer_job *j = pst_map_get(&c->jobs, id);
    asked a = {c, j, r, pst_sprintf("user:%s", r->user), trainer_asked_by(r)};
    pst_complaints bad = {0};
    trainer_check_text(&bad, "request_id", r->request_id, true);
    trainer_check_text(&bad, "training_id", id, true);
    trainer_check_text(&bad, "user", r->user, false);
    if (r->action == PST_JOB_ACTION_UNKNOWN)
        pst_complain(&bad, "action", 0, "is none of SUBMIT HALT RESUME TERMINATE DELETE REPRIORITISE HOLD RELEASE");
    bool answered =
        (j && *r->request_id && trainer_is_answered(j, mark)) || tcore_orphan_answered(c, r); /* the latter before it was submitted */
    if (answered) {
        c->counts.duplicates++;
    } else if (bad.n) {
        char *all = pst_complaints_text(&bad);
        trainer_say say_bad = {.actor = a.actor, .reason_code = "BAD_REQUEST", .reason = all, .details = &bad};
        if (j)
            tcore_reject(c, j, id, r->request_id, &say_bad);
        else
            tcore_reject_orphan(c, r, id, &say_bad);
        free(all);
    } else if (!j) {
        pst_complain(&bad, "training_id", 0, "no job has the id %s%s", id,
                     trainer_memory_has(&c->deleted, id) ? " any more: it was deleted" : "");
        tcore_reject_orphan(c, r, id,
                            &(trainer_say){.actor = a.actor, .reason_code = "UNKNOWN_JOB", .reason = bad.at[0].text, .details = &bad});
    } else {
        tcore_remember(j, mark);
        if (trainer_request_allowed(c, j, r))
            do_it(&a);
        else
            refuse(&a, "NOT_YOURS", "the job is not yours: it belongs to user %.100s, and user %.100s is no operator", j->s.user, r->user);
    }
    pst_complaints_done(&bad);
    free(a.actor);
    free(a.by);
    free(mark);
}

/* ---- those that waited for their submission -------------------------------------------------------------------------------------- */

/* The map's entry is taken first: an answer that looks for it must not find it again. */
static void answer_all(tcore *c, trainer_early *e)
{
    for (size_t i = 0; i < e->s.n_early; i++) {
        const pst_early_request *x = &e->s.early[i];
        int action = pst_job_action_parse(x->action);
        pst_job_request r = {.request_id = x->request_id,
                             .action = action < 0 ? PST_JOB_ACTION_UNKNOWN : (pst_job_action)action,
                             .training_id = e->s.training_id,
                             .user = x->user,
                             .time = x->time,
                             .options = x->options,
                             .n_options = x->n_options};
        tcore_control(c, &r);
    }
}

void trainer_early_apply(tcore *c, const char *training_id)
{
    trainer_early *e = pst_map_take(&c->early, training_id);
    if (e)
        answer_all(c, e);
    trainer_early_free(e);
}

static void answer_late_ones(tcore *c, bool caught_up)
{
    for (size_t i = 0; i < c->early.n; i++) {
        trainer_early *e = c->early.at[i].key ? c->early.at[i].value : NULL;
        if (e && (!e->seen_us || e->seen_us > c->now_us || c->unsettled)) /* else a clock that is set right would end its wait */
            e->seen_us = c->now_us;
        int64_t waited_us = e ? c->now_us - e->seen_us : 0;
        if (!e || waited_us < (int64_t)PST_TRAINER_EARLY_S * SECOND_US || (!caught_up && waited_us < (int64_t)EARLY_S_MAX * SECOND_US))
            continue;
        pst_map_take(&c->early, e->s.training_id);
        answer_all(c, e);
        tcore_expire(c, e->s.training_id);
        trainer_early_free(e);
    }
}

void trainer_answers_tick(tcore *c, bool caught_up)
{
    int64_t before_us = c->now_us - (int64_t)PST_TRAINER_REMEMBERED_S * SECOND_US;
    const char *old;
    answer_late_ones(c, caught_up);
    trainer_memory_forget(&c->answered, before_us, PST_TRAINER_ANSWERED_KEPT);
    trainer_memory_forget(&c->deleted, before_us, PST_TRAINER_DELETED_KEPT);
    while ((old = trainer_memory_outdated(&c->rejected, before_us, PST_TRAINER_REJECTED_KEPT)))
        tcore_expire(c, old); /* takes it out of the memory, too */
}
