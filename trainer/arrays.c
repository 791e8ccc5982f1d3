/* arrays.c - job arrays: one submission, many tasks. An array waits in its queue like any job; when there is room for one task it is opened, and from then on
 * its tasks are jobs of their own, with ids made of its id (schemas/task_array.h). They are admitted lazily: so many as keep WAITING_MAX of them in the
 * queue, or its own limit at once, so that ten thousand tasks are a line in the array's state and not ten thousand jobs that wait. What has become of
 * them is counted in the array's state whenever one moves (jobs.c), in the same step and so in the same transaction: nothing is counted twice or forgotten.
 *
 * As in Slurm, a task that fails is no matter of the others. The array has ended when all tasks have: FAILED where one failed, else HALTED or TERMINATED where one was,
 * else COMPLETED, and that only with every task; so whoever waits for the array (penstock.after) waits for all of them. What is asked of it reaches its tasks (control.c). */
#include "trainer/core_state.h"

#include <stdlib.h>

enum { WAITING_MAX = 16, NAMED_MAX = 10 };

const pst_task_array *trainer_array_tasks(trainer_job *j)
{
    if (!j->tasks.n && pst_task_array_parse(j->s.array->indices, &j->tasks, NULL) < 0)
        j->tasks.n = 0; /* of another version: it has no tasks that we could admit */
    return &j->tasks;
}

trainer_job *trainer_array_task(const tcore *c, trainer_job *array, size_t i)
{
    char id[PST_TASK_ID_LEN];
    const pst_task_array *tasks = trainer_array_tasks(array);
    if (i >= tasks->n)
        return NULL;
    pst_task_id(array->s.training_id, tasks->at[i], id);
    return pst_map_get(&c->jobs, id);
}

static int ended(const pst_job_array *a)
{
    return a->completed + a->failed + a->halted + a->terminated;
}

/* "37 of 100 tasks have ended (2 FAILED), 3 run, 16 wait" */
static char *progress(const pst_job_array *a)
{
    const struct {
        int n;
        const char *word;
    } bad[] = {{a->failed, "FAILED"}, {a->halted, "HALTED"}, {a->terminated, "TERMINATED"}};
    pst_buf b = {0}, ends = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (bad[i].n)
            pst_buf_printf(&ends, "%s%d %s", ends.len ? ", " : " (", bad[i].n, bad[i].word);
    pst_buf_printf(&b, "%d of %d tasks have ended%s%s, %d run, %d wait", ended(a), a->tasks, ends.len ? ends.data : "", ends.len ? ")" : "",
                   a->running, a->waiting);
    pst_buf_done(&ends);
    return pst_buf_steal(&b);
}

/* ---- tasks ----------------------------------------------------------------------------------------------------------------------- */

void trainer_array_open(tcore *c, trainer_job *j)
{
    char *reason = progress(j->s.array);
    PST_ASSERT(j->s.array && j->s.state == PST_JOB_PUBLIC_STATE_QUEUED);
    trainer_queue_remove(c, j);
    tcore_set_text(&j->s.reason, reason);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_DEPLOYING, PST_JOB_PUBLIC_STATE_PENDING,
               &(trainer_say){.reason = "its tasks are admitted, a few at a time"});
    pst_map_put(&c->arrays, j->s.training_id, j);
    free(reason);
}

/* It has everything of its array but what is the array's alone. Its place in the queue is right behind the array's, in the order of indices. */
static void admit_task(tcore *c, trainer_job *array, int index)
{
    char id[PST_TASK_ID_LEN];
    pst_job_state s = array->s, copy;
    pst_task_id(array->s.training_id, index, id);
    s.training_id = id;
    s.array_of = array->s.training_id;
    s.array_index = index;
    s.array = NULL;
    s.state = PST_JOB_PUBLIC_STATE_UNKNOWN;
    s.seq = 0;
    s.reason = s.reason_code = s.held_by = s.stop_request_id = NULL;
    s.n_after = s.n_requests = s.n_processes = s.n_early = 0;
    s.submitted_at += array->s.array->admitted;
    s.since = c->said_us;
    s.has_started_at = s.has_ended_at = false;
    s.started_at = s.ended_at = 0;
    array->s.array->admitted++;
    if (pst_map_get(&c->jobs, id)) /* cannot be: ids of tasks are nobody else's */
        return;
    pst_event_copy(&pst_job_state_type, &s, &copy);
    trainer_job *j = tcore_adopt(c, &copy, NULL);
    char *actor = pst_sprintf("user:%s", j->s.user);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_RECEIVED, PST_JOB_PUBLIC_STATE_QUEUED, &(trainer_say){.actor = actor});
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_ADMITTED, j->s.state, NULL);
    trainer_queue_add(c, j);
    free(actor);
}

/* True when some were. */
static bool admit_tasks(tcore *c, trainer_job *j)
{
    pst_job_array *a = j->s.array;
    const pst_task_array *tasks = trainer_array_tasks(j);
    bool some = false;
    while (j->s.stop_action == PST_JOB_STOP_ACTION_NONE && pst_job_state_is_live(j->s.state) && (size_t)a->admitted < tasks->n &&
           a->waiting < WAITING_MAX && (!tasks->limit || a->waiting + a->running < tasks->limit) && j->site->n_queue < PST_QUEUE_MAX) {
        admit_task(c, j, tasks->at[a->admitted]);
        some = true;
    }
    return some;
}

/* ---- its own state --------------------------------------------------------------------------------------------------------------- */

/* "2 of 100 tasks are FAILED: 3, 17" */
static char *which(const tcore *c, trainer_job *j, int n, pst_job_public_state state)
{
    pst_buf b = {0};
    size_t named = 0;
    pst_buf_printf(&b, "%d of %d tasks %s %s", n, j->s.array->tasks, n == 1 ? "is" : "are", pst_job_public_state_text(state));
    for (size_t i = 0; i < (size_t)j->s.array->admitted && named < NAMED_MAX; i++) {
        const trainer_job *task = trainer_array_task(c, j, i);
        if (task && task->s.state == state)
            pst_buf_printf(&b, "%s%d", named++ ? ", " : ": index ", task->s.array_index);
    }
    pst_buf_adds(&b, (size_t)n > named && named ? ", …" : "");
    return pst_buf_steal(&b);
}

static void end_as(tcore *c, trainer_job *j, enum pst_job_event_type event, pst_job_public_state state, const char *code, char *take_reason)
{
    tcore_set_text(&j->s.reason, take_reason);
    tcore_set_text(&j->s.reason_code, code);
    tcore_emit(c, j, event, state, &(trainer_say){.reason_code = code, .reason = take_reason});
    free(take_reason);
}

/* No task lives, and none is to come. j may be freed (a deletion). */
static void conclude(tcore *c, trainer_job *j)
{
    const pst_job_array *a = j->s.array;
    if (j->s.stop_action != PST_JOB_STOP_ACTION_NONE && a->completed < a->tasks) {
        tcore_carry_out_stop(c, j);
    } else if (a->failed) {
        c->counts.failed++;
        end_as(c, j, PST_JOB_EVENT_TYPE_FAILED, PST_JOB_PUBLIC_STATE_FAILED, "TASKS_FAILED",
               which(c, j, a->failed, PST_JOB_PUBLIC_STATE_FAILED));
    } else if (a->halted) {
        c->counts.halted++;
        end_as(c, j, PST_JOB_EVENT_TYPE_HALTED, PST_JOB_PUBLIC_STATE_HALTED, NULL, which(c, j, a->halted, PST_JOB_PUBLIC_STATE_HALTED));
    } else if (a->terminated) {
        c->counts.terminated++;
        end_as(c, j, PST_JOB_EVENT_TYPE_TERMINATED, PST_JOB_PUBLIC_STATE_TERMINATED, NULL,
               which(c, j, a->terminated, PST_JOB_PUBLIC_STATE_TERMINATED));
    } else if (a->completed != a->tasks) { /* its indices cannot be read here: a state of another version, or a damaged one */
        c->counts.failed++;
        end_as(c, j, PST_JOB_EVENT_TYPE_FAILED, PST_JOB_PUBLIC_STATE_FAILED, "TASKS_MISSING",
               pst_sprintf("%d of %d tasks are COMPLETED, and no others are to be had from its indices \"%.100s\"", a->completed, a->tasks,
                           a->indices));
    } else {
        c->counts.completed++;
        end_as(c, j, PST_JOB_EVENT_TYPE_COMPLETED, PST_JOB_PUBLIC_STATE_COMPLETED, NULL,
               pst_sprintf("all %d tasks are COMPLETED", a->tasks));
        tcore_drop_stop(c, j);
    }
}

/* A task was resumed by itself after its array had ended: the array goes on with it. */
static void reopen(tcore *c, trainer_job *j)
{
    tcore_set_text(&j->s.reason_code, NULL);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_RESUMED, PST_JOB_PUBLIC_STATE_QUEUED, &(trainer_say){.reason = "one of its tasks was resumed"});
    trainer_array_open(c, j);
}

/* What its counts say of it. j may be freed. */
static void follow(tcore *c, trainer_job *j)
{
    const pst_job_array *a = j->s.array;
    bool can_go_on = j->s.state == PST_JOB_PUBLIC_STATE_FAILED || j->s.state == PST_JOB_PUBLIC_STATE_HALTED;
    bool lives = a->waiting + a->running > 0, all_are_there = (size_t)a->admitted >= trainer_array_tasks(j)->n;
    if (lives && can_go_on && all_are_there) /* else those that were never admitted would come with it, which nobody asked for */
        reopen(c, j);
    if (!pst_job_state_is_live(j->s.state))
        return;
    if (a->running && j->s.state == PST_JOB_PUBLIC_STATE_PENDING) {
        tcore_emit(c, j, PST_JOB_EVENT_TYPE_PROCESS_READY, PST_JOB_PUBLIC_STATE_PROCESSING,
                   &(trainer_say){.reason = "the first of its tasks was given to a node"});
        j->s.has_started_at = true;
        j->s.started_at = j->s.since;
    }
    bool stops = j->s.stop_action != PST_JOB_STOP_ACTION_NONE;
    if (!lives && (stops || all_are_there)) {
        conclude(c, j);
        return;
    }
    char *text = stops ? NULL : progress(a);
    if (text)
        tcore_set_text(&j->s.reason, text);
    if (text && j->task_ended)
        tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.reason = text});
    j->task_ended = false;
    free(text);
}

bool tcore_arrays_run(tcore *c)
{
    bool some = false;
    for (size_t i = 0; i < c->arrays.n && c->arrays.live; i++) {
        trainer_job *j = c->arrays.at[i].key ? c->arrays.at[i].value : NULL;
        if (!j)
            continue;
        bool more = admit_tasks(c, j); /* first, so that an array with tasks to come never looks ended */
        const pst_job_array *a = j->s.array;
        bool starves = pst_job_state_is_live(j->s.state) && j->s.stop_action == PST_JOB_STOP_ACTION_NONE && !a->waiting && !a->running &&
                       a->admitted < a->tasks;
        if (!starves) /* its queue is full, and no task of its own will wake it */
            pst_map_take(&c->arrays, j->s.training_id);
        some |= more;
        follow(c, j);
    }
    return some || c->after_due; /* an array that has ended may be waited for */
}
