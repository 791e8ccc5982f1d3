/* ending.c - how a generation ends: when every process of it was observed to have ended, and not before. Then either what a user asked for is
 * carried out, or the job is complete, is tried again, or has failed; this is decided here and nowhere else. What happened wins over what
 * was asked: commands that were done in time, or a model that was registered, make a job COMPLETED. */
#include "common/base/clock.h"
#include "schemas/job_state.h"
#include "trainer/core_state.h"

#include <stdlib.h>
#include <string.h>

bool trainer_job_is_failing(const trainer_job *j)
{
    return pst_job_state_is_live(j->s.state) && j->s.reason_code;
}

/* ---- stops ----------------------------------------------------------------------------------------------------------------------- */

void tcore_delete_now(tcore *c, trainer_job *j, const char *actor, const char *request_id, const char *reason)
{
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_DELETED, j->s.state, &(trainer_say){.actor = actor, .request_id = request_id, .reason = reason});
    if (j->s.generation > 0)
        tcore_command(c, j, PST_JOB_COMMAND_TYPE_CLEAN, request_id, reason);
    tcore_remove(c, j);
}

/* It waits again where it waited before; that nobody's fault cost it a retry would be unjust. */
static void preempted(tcore *c, trainer_job *j)
{
    char *reason = pst_sprintf("pre-empted: %s", j->s.reason ? j->s.reason : "its place was needed");
    j->s.stop_action = PST_JOB_STOP_ACTION_NONE;
    c->counts.preempted++;
    tcore_set_text(&j->s.reason_code, NULL);
    tcore_set_text(&j->s.reason, reason);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_PREEMPTED, PST_JOB_PUBLIC_STATE_QUEUED, &(trainer_say){.reason = reason});
    trainer_queue_add(c, j);
    free(reason);
}

void tcore_carry_out_stop(tcore *c, trainer_job *j)
{
    if (j->s.stop_action == PST_JOB_STOP_ACTION_PREEMPT) {
        preempted(c, j);
        return;
    }
    PST_ASSERT(j->s.stop_action != PST_JOB_STOP_ACTION_NONE);
    pst_job_stop_action action = j->s.stop_action;
    char *actor = pst_sprintf("user:%s", j->s.stop_by);
    char *request_id = pst_strdup(j->s.stop_request_id), *reason = pst_strdup(j->s.reason);
    j->s.stop_action = PST_JOB_STOP_ACTION_NONE;
    j->s.stop_force = false;
    tcore_set_text(&j->s.stop_by, "");
    tcore_set_text(&j->s.stop_request_id, NULL);
    tcore_set_text(&j->s.reason_code, NULL);
    bool halted = action == PST_JOB_STOP_ACTION_HALT;
    *(halted ? &c->counts.halted : &c->counts.terminated) += 1;
    tcore_emit(c, j, halted ? PST_JOB_EVENT_TYPE_HALTED : PST_JOB_EVENT_TYPE_TERMINATED,
               halted ? PST_JOB_PUBLIC_STATE_HALTED : PST_JOB_PUBLIC_STATE_TERMINATED,
               &(trainer_say){.actor = actor, .request_id = request_id, .reason = reason});
    if (action == PST_JOB_STOP_ACTION_DELETE)
        tcore_delete_now(c, j, actor, request_id, reason);
    free(actor);
    free(request_id);
    free(reason);
}

void tcore_drop_stop(tcore *c, trainer_job *j)
{
    pst_job_stop_action action = j->s.stop_action;
    char *actor = pst_sprintf("user:%s", j->s.stop_by);
    char *request_id = pst_strdup(j->s.stop_request_id);
    j->s.stop_action = PST_JOB_STOP_ACTION_NONE;
    j->s.stop_force = false;
    tcore_set_text(&j->s.stop_by, "");
    tcore_set_text(&j->s.stop_request_id, NULL);
    if (action == PST_JOB_STOP_ACTION_DELETE) {
        char *reason = pst_sprintf("deleted by %s", actor);
        tcore_delete_now(c, j, actor, request_id, reason);
        free(reason);
    }
    free(actor);
    free(request_id);
}

/* ---- conclusions ----------------------------------------------------------------------------------------------------------------- */

/* An operator stopped the platform: nobody's fault, so the job is tried again without using up a retry. */
bool trainer_is_platform_down(const char *code)
{
    return code && !strcmp(code, "PLATFORM_DOWN");
}

/* FfDL's codes: S1… and S2… are the platform's (no resources, deployment, lost processes, connections) and worth another try. C… and S3… (what
 * the job brings along could not be loaded or stored) would most likely happen again: the manifest's retries decide. */
static bool is_platform_fault(const char *code)
{
    return !strncmp(code, "S1", 2) || !strncmp(code, "S2", 2) || trainer_is_platform_down(code);
}

static bool matches(const pst_retry_rule *rule, const trainer_job *j, const pst_job_process *p)
{
    switch (rule->kind) {
    case PST_RETRY_EXIT: return p && p->has_exit_code && p->exit_code == rule->number;
    case PST_RETRY_SIGNAL: return p && p->has_signal && p->signal == rule->number;
    case PST_RETRY_LOST: return p ? p->state == PST_JOB_PROCESS_STATE_LOST : !strcmp(j->s.reason_code, "S104");
    case PST_RETRY_OOM: return p && j->s.reason && strstr(j->s.reason, PST_REASON_OOM);
    }
    return false;
}

/* Does the manifest want another try after this failure? How the process ended that failed first decides; the others were ended by us. */
static bool is_worth_a_retry(const trainer_job *j)
{
    const pst_job_process *first = NULL;
    for (size_t i = 0; i < j->s.n_processes && *j->s.failed_process; i++)
        if (!strcmp(j->s.processes[i].name, j->s.failed_process))
            first = &j->s.processes[i];
    bool wanted = !j->n_retry_on && !is_platform_fault(j->s.reason_code);
    for (size_t i = 0; i < j->n_retry_on; i++)
        wanted = wanted || matches(&j->retry_on[i], j, first);
    return wanted;
}

static void retry(tcore *c, trainer_job *j, int used, int budget)
{
    PST_ASSERT(j->s.reason_code && !j->charged); /* something failed, and nothing of it is left */
    char *reason = pst_sprintf("try %d of %d follows: %s", used + 1, budget + 1, j->s.reason);
    char *code = pst_strdup(j->s.reason_code);
    c->counts.retried++;
    tcore_set_text(&j->s.reason_code, NULL);
    tcore_set_text(&j->s.reason, reason);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_RETRYING, PST_JOB_PUBLIC_STATE_QUEUED, &(trainer_say){.reason_code = code, .reason = reason});
    trainer_queue_add(c, j);
    free(code);
    free(reason);
}

static void fail(tcore *c, trainer_job *j)
{
    PST_ASSERT(j->s.reason_code && !j->charged);
    int retries = j->s.attempts + j->s.platform_attempts;
    if (retries) {
        char *reason = pst_sprintf("%s (after %d %s)", j->s.reason, retries, retries == 1 ? "retry" : "retries");
        tcore_set_text(&j->s.reason, reason);
        free(reason);
    }
    c->counts.failed++;
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_FAILED, PST_JOB_PUBLIC_STATE_FAILED,
               &(trainer_say){.reason_code = j->s.reason_code, .reason = j->s.reason});
}

/* "all 2 learners exited with 0 after 9.5 s", "model m version 3 was registered" */
static char *achievement(const trainer_job *j)
{
    char span[32];
    if (!trainer_work_is_done(j) && trainer_has_registered(j))
        return pst_sprintf("model %s version %d was registered", j->s.model->name, j->s.model->version);
    const char *first = j->s.n_processes ? j->s.processes[0].name : "";
    char *who = pst_process_is_of(first, "chief") ? pst_strdup("the chief")
                : j->s.learners == 1              ? pst_strdup("the learner")
                                                  : pst_sprintf("all %d learners", j->s.learners);
    char *reason;
    int64_t from_us = j->ready_us ? j->ready_us : j->s.started_at;
    if (j->s.has_started_at && j->done_us >= from_us)
        reason = pst_sprintf("%s exited with 0 after %s", who, pst_span_text(j->done_us - from_us, span));
    else
        reason = pst_sprintf("%s exited with 0", who);
    free(who);
    return reason;
}

static void complete(tcore *c, trainer_job *j)
{
    PST_ASSERT(!j->charged); /* nothing of it is left */
    char *reason = achievement(j);
    if (j->s.stop_action != PST_JOB_STOP_ACTION_NONE) {
        static const char *const words[] = {[PST_JOB_STOP_ACTION_HALT] = "halted",
                                            [PST_JOB_STOP_ACTION_TERMINATE] = "terminated",
                                            [PST_JOB_STOP_ACTION_DELETE] = "terminated",
                                            [PST_JOB_STOP_ACTION_PREEMPT] = "pre-empted"};
        char *both = pst_sprintf("%s, before it could be %s", reason, words[j->s.stop_action]);
        free(reason);
        reason = both;
    }
    c->counts.completed++;
    tcore_set_text(&j->s.reason, reason);
    tcore_set_text(&j->s.reason_code, NULL);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_COMPLETED, PST_JOB_PUBLIC_STATE_COMPLETED, &(trainer_say){.reason = reason});
    free(reason);
    tcore_drop_stop(c, j);
}

/* Called after every change of a process; does nothing while one of them lives. The order of the questions is the rule: work that was done counts
 * whatever was asked; a stop that was asked for counts more than a failure that it may itself have caused; a deadline is never tried again,
 * a stop of the platform always, the platform's faults and what the manifest's retries name each as often as their budget says. j may be freed (a deletion). */
void tcore_conclude(tcore *c, trainer_job *j)
{
    if (trainer_count_from(j, PST_JOB_PROCESS_STATE_EXITED, false) < (int)j->s.n_processes)
        return;
    tcore_release(c, j);
    if (j->s.stop_action != PST_JOB_STOP_ACTION_NONE && (trainer_work_has_finished(j) || trainer_has_registered(j))) {
        complete(c, j);
    } else if (j->s.stop_action != PST_JOB_STOP_ACTION_NONE) {
        tcore_carry_out_stop(c, j);
    } else if (!trainer_job_is_failing(j)) {
        complete(c, j);
    } else if (!strcmp(j->s.reason_code, "DEADLINE")) {
        fail(c, j);
    } else if (trainer_is_platform_down(j->s.reason_code)) {
        retry(c, j, j->s.platform_attempts, c->policy.platform_retries);
    } else if (is_platform_fault(j->s.reason_code) && j->s.platform_attempts < c->policy.platform_retries) {
        j->s.platform_attempts++;
        retry(c, j, j->s.platform_attempts, c->policy.platform_retries);
    } else if (is_worth_a_retry(j) && j->s.attempts < j->retries) {
        j->s.attempts++;
        retry(c, j, j->s.attempts, j->retries);
    } else {
        fail(c, j);
    }
}

/* The first failure of a generation decides its reason; the rest of the gang is ended. */
void tcore_start_failing(tcore *c, trainer_job *j, const char *process, const char *code, const char *reason)
{
    if (trainer_job_is_failing(j))
        return;
    PST_ASSERT(code && pst_job_state_is_live(j->s.state));
    tcore_set_text(&j->s.reason_code, code);
    tcore_set_text(&j->s.reason, reason);
    tcore_set_text(&j->s.failed_process, process ? process : "");
    bool all_over = trainer_count_from(j, PST_JOB_PROCESS_STATE_EXITED, false) == (int)j->s.n_processes;
    if (!all_over && j->s.stop_action == PST_JOB_STOP_ACTION_NONE)
        tcore_command(c, j, PST_JOB_COMMAND_TYPE_KILL, NULL, reason);
}
