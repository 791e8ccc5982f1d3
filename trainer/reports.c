/* reports.c - what LCMs and supervisors observed. Reporters state facts about processes; what follows from them is ending.c's.
 *
 * A report counts if it is of the present generation of a live job, comes from where that was given to, and tells a later state than the one
 * known; the rest (repeated, overtaken, of a fenced generation) is counted and ignored. */
#include "common/base/clock.h"
#include "schemas/deploy_digest.h"
#include "schemas/job_state.h"
#include "trainer/core_state.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_EVERY_US = 5000000, NO_ANSWER_US = 60000000 }; /* a deployment that nobody took up for this long is remarked on */

/* The reporter's text, or NULL where it said nothing. */
static const char *said(const char *text)
{
    return text && *text ? text : NULL;
}

/* ---- one process ------------------------------------------------------------------------------------------------------------- */

static const struct step {
    enum pst_report_type report;
    pst_job_process_state state;
    enum pst_job_event_type event;
} steps[] = {
    {PST_REPORT_TYPE_STARTED, PST_JOB_PROCESS_STATE_STARTED, PST_JOB_EVENT_TYPE_PROCESS_STARTED},
    {PST_REPORT_TYPE_DOWNLOADING, PST_JOB_PROCESS_STATE_DOWNLOADING, PST_JOB_EVENT_TYPE_PROCESS_DOWNLOADING},
    {PST_REPORT_TYPE_RUNNING, PST_JOB_PROCESS_STATE_RUNNING, PST_JOB_EVENT_TYPE_PROCESS_READY},
    {PST_REPORT_TYPE_STORING, PST_JOB_PROCESS_STATE_STORING, PST_JOB_EVENT_TYPE_STORING},
    {PST_REPORT_TYPE_EXITED, PST_JOB_PROCESS_STATE_EXITED, PST_JOB_EVENT_TYPE_PROCESS_EXITED},
    {PST_REPORT_TYPE_LOST, PST_JOB_PROCESS_STATE_LOST, PST_JOB_EVENT_TYPE_PROCESS_EXITED},
};

/* The public state follows the gang: it only ever goes forward. */
static pst_job_public_state public_state(const trainer_job *j)
{
    int all = (int)j->s.n_processes, learners = j->s.learners;
    pst_job_public_state now = j->s.state, then = now;
    if (trainer_count_from(j, PST_JOB_PROCESS_STATE_STORING, true) == learners &&
        trainer_count_from(j, PST_JOB_PROCESS_STATE_EXITED, true) < learners)
        then = PST_JOB_PUBLIC_STATE_STORING;
    else if (trainer_count_from(j, PST_JOB_PROCESS_STATE_RUNNING, false) == all)
        then = PST_JOB_PUBLIC_STATE_PROCESSING;
    else if (trainer_count_from(j, PST_JOB_PROCESS_STATE_DOWNLOADING, false) > 0)
        then = PST_JOB_PUBLIC_STATE_DOWNLOADING;
    return then > now ? then : now;
}

/* "learner-2 was ended by signal 9 (KILL)" */
static char *end_text(const pst_process_report *r, const char *process)
{
    if (said(r->reason))
        return pst_sprintf("%s: %s", process, r->reason);
    if (r->type == PST_REPORT_TYPE_LOST)
        return pst_sprintf("%s was lost: its supervisor is gone and its processes were ended", process);
    if (r->has_signal && r->signal) {
        const char *name = sigabbrev_np(r->signal);
        return pst_sprintf("%s was ended by signal %d (%s)", process, r->signal, name ? name : "unknown");
    }
    if (!r->has_exit_code)
        return pst_sprintf("%s ended without an exit status", process);
    return pst_sprintf("%s exited with status %d", process, r->exit_code);
}

/* The work is done, and something lives on: parameter servers are ended at once, workers under a chief and evaluators have the grace time to
 * end by themselves, since they may be at their last lines. */
static void wind_up(tcore *c, trainer_job *j)
{
    bool over = trainer_count_from(j, PST_JOB_PROCESS_STATE_EXITED, false) == (int)j->s.n_processes;
    if (over || j->wound_up || j->s.stop_action != PST_JOB_STOP_ACTION_NONE || trainer_job_is_failing(j) || !trainer_work_is_done(j))
        return;
    if (!j->alone_us || j->alone_us > c->now_us || c->unsettled) /* a clock that is set right must not make them wait */
        j->alone_us = c->now_us;
    if (!trainer_serves_until_ended(j) && c->now_us - j->alone_us < j->grace_us)
        return;
    j->wound_up = true;
    tcore_command(c, j, PST_JOB_COMMAND_TYPE_KILL, NULL, "the work is done; what served it is ended");
}

/* An end is taken down before it is judged: whether it was a fault depends on whether we asked for it, and on what of the gang was done already. */
static void process_over(tcore *c, trainer_job *j, pst_job_process *p, const pst_process_report *r)
{
    PST_ASSERT(pst_job_process_is_ended(p->state));
    p->has_exit_code = r->type == PST_REPORT_TYPE_EXITED && r->has_exit_code;
    p->exit_code = p->has_exit_code ? r->exit_code : 0;
    p->has_signal = r->has_signal && r->signal;
    p->signal = p->has_signal ? r->signal : 0;
    char *text = end_text(r, p->name);
    bool good =
        trainer_has_succeeded(p) && !trainer_is_platform_down(r->reason_code); /* a learner may leave with 0 when it is told to stop */
    bool asked =
        j->s.stop_action != PST_JOB_STOP_ACTION_NONE || trainer_job_is_failing(j); /* we end it: how it takes that is no fault of its own */
    const char *code = p->state == PST_JOB_PROCESS_STATE_LOST ? "S104" : "C201";
    if (said(r->reason_code))
        code = r->reason_code;
    else if (asked)
        code = NULL;
    if (good)
        code = NULL;
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_PROCESS_EXITED, j->s.state,
               &(trainer_say){.actor = r->reporter,
                              .process = p->name,
                              .reason_code = code,
                              .reason = text,
                              .exit_code = p->has_exit_code ? &p->exit_code : NULL,
                              .signal = p->has_signal ? &p->signal : NULL});
    /* Once the work is done, how those that served it end says nothing. */
    bool after_the_work = !trainer_decides(j, p) && trainer_work_is_done(j);
    if (!good && !after_the_work && j->s.stop_action == PST_JOB_STOP_ACTION_NONE)
        tcore_start_failing(c, j, p->name, code, text);
    wind_up(c, j);
    free(text);
}

/* Reports of one process come in any order and more than once: it only ever moves forward, and an end is final. Returns false when the report said
 * nothing new. */
static bool move_process(tcore *c, trainer_job *j, pst_job_process *p, const struct step *step, const pst_process_report *r)
{
    if (pst_job_process_is_ended(p->state) || step->state <= p->state)
        return false;
    if (step->state == PST_JOB_PROCESS_STATE_RUNNING)
        j->ready_us = r->time;
    else if (trainer_is_ranked(p) && (step->state == PST_JOB_PROCESS_STATE_STORING || !p->finished)) /* then it stores its results */
        j->done_us = r->time;
    p->state = step->state;
    p->finished = p->finished || step->state == PST_JOB_PROCESS_STATE_STORING; /* said only by a command that ended by itself, with 0 */
    if (pst_job_process_is_ended(step->state)) {
        process_over(c, j, p, r);
        return true;
    }
    pst_job_public_state to = public_state(j);
    if (!job_fsm_allows(j->s.state, step->event, to)) /* reports were overtaken: each state has one event that leads into it */
        to = j->s.state;
    if (to == PST_JOB_PUBLIC_STATE_PROCESSING && j->s.state != to) {
        j->s.has_started_at = true;
        j->s.started_at = c->said_us > j->s.updated_at ? c->said_us : j->s.updated_at;
    }
    if (j->s.stop_action == PST_JOB_STOP_ACTION_NONE && !trainer_job_is_failing(j))
        tcore_set_text(&j->s.reason, said(r->reason)); /* it moves: a remark on waiting is out of date */
    tcore_emit(c, j, step->event, to,
               &(trainer_say){.actor = r->reporter, .process = p->name, .reason_code = said(r->reason_code), .reason = said(r->reason)});
    return true;
}

/* What a node says of the whole generation it says of what is there. */
static bool concerns(const trainer_job *j, const pst_job_process *p, const pst_process_report *r)
{
    if (r->process)
        return !strcmp(r->process, p->name);
    return !r->node || !*r->node || !strcmp(r->node, pst_job_process_node(&j->s, p));
}

static void about_processes(tcore *c, trainer_job *j, const struct step *step, const pst_process_report *r)
{
    bool news = false, found = false;
    for (size_t i = 0; i < j->s.n_processes; i++) {
        pst_job_process *p = &j->s.processes[i];
        if (!concerns(j, p, r))
            continue;
        found = true;
        news = move_process(c, j, p, step, r) || news;
    }
    if (!found)
        c->counts.reports_unknown++;
    else if (!news)
        c->counts.reports_repeated++;
    else
        tcore_conclude(c, j);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------------------- */

/* The LCM could not start the generation: what never started counts as lost, what did start is ended and waited for. */
static void deploy_failed(tcore *c, trainer_job *j, const pst_process_report *r)
{
    bool news = false;
    char *reason = pst_sprintf("the deployment failed: %s", said(r->reason) ? r->reason : "no reason was given");
    const char *code = said(r->reason_code) ? r->reason_code : "S101";
    for (size_t i = 0; i < j->s.n_processes; i++) {
        pst_job_process *p = &j->s.processes[i];
        if (p->state == PST_JOB_PROCESS_STATE_WAITING && concerns(j, p, r)) {
            p->state = PST_JOB_PROCESS_STATE_LOST;
            news = true;
        }
    }
    if (news) {
        tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state,
                   &(trainer_say){.actor = r->reporter, .process = r->process, .reason_code = code, .reason = reason});
        if (j->s.stop_action == PST_JOB_STOP_ACTION_NONE)
            tcore_start_failing(c, j, r->process, code, reason);
        tcore_conclude(c, j);
    } else {
        c->counts.reports_repeated++;
    }
    free(reason);
}

static void result_stored(tcore *c, trainer_job *j, const pst_process_report *r)
{
    const pst_produced_model *m = r->model, *old = j->s.model;
    bool known = m ? old && !strcmp(m->name, old->name) && m->version == old->version : r->time <= j->result_us;
    if (known) {
        c->counts.reports_repeated++;
        return;
    }
    j->result_us = m ? j->result_us : r->time;
    pst_complaints details = {0};
    if (m) {
        pst_complain(&details, "model", 0, "%s", m->name);
        pst_complain(&details, "version", 0, "%d", m->version);
        pst_complain(&details, "digest", 0, "%s", m->digest);
        if (old)
            pst_event_clear(&pst_produced_model_type, j->s.model);
        else
            j->s.model = pst_alloc(sizeof *j->s.model);
        pst_event_copy(&pst_produced_model_type, m, j->s.model);
    }
    for (size_t i = 0; i < r->n_details; i++)
        pst_complain(&details, r->details[i].key, 0, "%s", r->details[i].value);
    char *reason = m ? pst_sprintf("model %s version %d is registered", m->name, m->version) : pst_strdup(r->reason);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_RESULT_STORED, j->s.state,
               &(trainer_say){.actor = r->reporter, .process = r->process, .reason = reason, .details = &details});
    pst_complaints_done(&details);
    free(reason);
}

/* Of which process is it? n_processes = of none in particular. */
static size_t process_at(const trainer_job *j, const pst_process_report *r)
{
    size_t at = 0;
    while (at < j->s.n_processes && !(r->process && !strcmp(r->process, j->s.processes[at].name)))
        at++;
    return at;
}

/* Is that node the one of a process that stands before this one? */
static bool is_of_an_earlier(const trainer_job *j, size_t at, const char *node)
{
    for (size_t i = 0; i < at && i < j->s.n_processes; i++)
        if (!strcmp(pst_job_process_node(&j->s, &j->s.processes[i]), node))
            return true;
    return false;
}

/* Of a gang over several nodes the first process that has checkpoints says where the gang's lie, not whoever spoke last: that would be told by the clocks
 * and the pace of different computers. Where the others' lie is known all the same: each goes back to where it was (spread.c). */
static void checkpoint(tcore *c, trainer_job *j, const pst_process_report *r)
{
    size_t at = process_at(j, r);
    if (!j->committed_us)
        j->committed_us = pst_alloc((j->s.n_processes + 1) * sizeof *j->committed_us);
    if (r->time <= j->committed_us[at]) {
        c->counts.reports_repeated++;
        return;
    }
    j->committed_us[at] = r->time;
    if (!pst_job_is_spread(&j->s) || !is_of_an_earlier(j, at, j->s.checkpoint_node))
        tcore_set_text(&j->s.checkpoint_node, r->node && *r->node ? r->node : j->s.node);
    pst_complaints details = {0};
    for (size_t i = 0; i < r->n_details; i++)
        pst_complain(&details, r->details[i].key, 0, "%s", r->details[i].value);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_CHECKPOINT_COMMITTED, j->s.state,
               &(trainer_say){.actor = r->reporter, .process = r->process, .reason = r->reason, .details = &details});
    pst_complaints_done(&details);
}

/* About processes that its node does not have: then it knows no nonce but that of the command it answers. */
static bool may_claim(const pst_process_report *r)
{
    return r->type == PST_REPORT_TYPE_LOST || r->type == PST_REPORT_TYPE_DEPLOY_FAILED;
}

/* Was it given to that node? Of one process: was that? */
static bool is_from_its_node(const trainer_job *j, const pst_process_report *r)
{
    if (!r->node || !*r->node || !*j->s.node)
        return true;
    for (size_t i = 0; r->process && i < j->s.n_processes; i++)
        if (!strcmp(r->process, j->s.processes[i].name))
            return !strcmp(r->node, pst_job_process_node(&j->s, &j->s.processes[i]));
    return trainer_is_on(j, r->node);
}

static bool believes(tcore *c, trainer_job *j, const pst_process_report *r)
{
    char hex[65] = "";
    const char *nonce = r->nonce ? r->nonce : "", *node = r->node ? r->node : "";
    if (*nonce)
        pst_nonce_digest(nonce, hex);
    bool here = is_from_its_node(j, r);
    if (here &&
        (!*j->s.nonce_sha256 || !strcmp(hex, j->s.nonce_sha256) || (may_claim(r) && *j->s.claim_sha256 && !strcmp(hex, j->s.claim_sha256))))
        return true;
    c->counts.reports_untrusted++;
    /* Its node may have lost its disk, nonce and all: it is asked, and answers with what the question carries. A stranger cannot. */
    if (may_claim(r) && *node && here && c->now_us - j->checked_us >= CHECK_EVERY_US) {
        char *reason = pst_sprintf("node %s is asked whether it has generation %d: a report without its nonce says that it has not", node,
                                   j->s.generation);
        j->checked_us = c->now_us;
        tcore_command_to(c, j, node, PST_JOB_COMMAND_TYPE_CHECK, NULL, reason);
        tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.reason = reason});
        free(reason);
    }
    return false;
}

/* Nothing follows from it; while processes are only being started it is why that takes long. */
static void remark(tcore *c, trainer_job *j, const pst_process_report *r)
{
    if (j->s.state == PST_JOB_PUBLIC_STATE_PENDING && j->s.stop_action == PST_JOB_STOP_ACTION_NONE && !trainer_job_is_failing(j))
        tcore_set_text(&j->s.reason, r->reason);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state,
               &(trainer_say){.actor = r->reporter, .process = r->process, .reason_code = said(r->reason_code), .reason = r->reason});
}

void tcore_report(tcore *c, const pst_process_report *r)
{
    c->counts.reports++;
    trainer_job *j = pst_map_get(&c->jobs, r->training_id);
    if (!j) {
        c->counts.reports_unknown++;
        return;
    }
    /* A model registered a moment after the process ended still belongs to the job. */
    bool late_result = r->type == PST_REPORT_TYPE_RESULT_STORED && j->s.state == PST_JOB_PUBLIC_STATE_COMPLETED;
    if (j->s.array) { /* it runs nothing itself: no generation of it was ever given to a node */
        c->counts.reports_unknown++;
        return;
    }
    if (r->generation != j->s.generation || !(pst_job_state_is_live(j->s.state) || late_result)) {
        c->counts.reports_stale++;
        return;
    }
    if (!believes(c, j, r))
        return;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i].report == r->type) {
            about_processes(c, j, &steps[i], r);
            return;
        }
    switch (r->type) {
    case PST_REPORT_TYPE_DEPLOY_FAILED: deploy_failed(c, j, r); break;
    case PST_REPORT_TYPE_RESULT_STORED: result_stored(c, j, r); break;
    case PST_REPORT_TYPE_CHECKPOINT: checkpoint(c, j, r); break;
    case PST_REPORT_TYPE_REACHABLE: tcore_reachable(c, j, r); break;
    case PST_REPORT_TYPE_OTHER:
        if (said(r->reason))
            remark(c, j, r);
        break;
    default: break; /* DEPLOYING: the LCM has the command; CLEANED: the folders are gone. Nothing follows from either. */
    }
}

/* ---- time -------------------------------------------------------------------------------------------------------------------- */

static void check_deadline(tcore *c, trainer_job *j)
{
    char span[32];
    if (c->unsettled || !j->deadline_us || !j->s.has_started_at || j->s.stop_action != PST_JOB_STOP_ACTION_NONE ||
        trainer_job_is_failing(j) || c->now_us - j->s.started_at < j->deadline_us)
        return;
    char *reason = pst_sprintf("the deadline of %s was exceeded", pst_span_text(j->deadline_us, span));
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.reason_code = "DEADLINE", .reason = reason});
    tcore_start_failing(c, j, NULL, "DEADLINE", reason);
    free(reason);
}

static void say_unanswered(tcore *c, trainer_job *j)
{
    char when[32];
    char *reason = j->node && j->node->known ? pst_sprintf("no process has started yet; the LCM of site %s (node %s) last reported at %s",
                                                           j->site->name, j->node->name, pst_time_text(j->node->seen_us, when))
                                             : pst_sprintf("no process has started yet; no LCM of site %s has reported", j->site->name);
    tcore_set_text(&j->s.reason, reason);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.reason = reason});
    free(reason);
}

/* Nothing of what was given to it has started. */
static bool is_idle_on(const trainer_job *j, const char *node)
{
    for (size_t i = 0; i < j->s.n_processes; i++)
        if (j->s.processes[i].state >= PST_JOB_PROCESS_STATE_STARTED && !strcmp(pst_job_process_node(&j->s, &j->s.processes[i]), node))
            return false;
    return true;
}

static bool is_heard(const tcore *c, const trainer_node *n)
{
    return *n->name && !n->lost && c->now_us - n->seen_us <= c->policy.silent_us;
}

/* A node that is heard and starts nothing may have refused the command (flooded, or of another version): asked, it says that it has nothing. */
static void check_answer(tcore *c, trainer_job *j)
{
    bool begins =
        j->s.state == PST_JOB_PUBLIC_STATE_PENDING || (pst_job_is_spread(&j->s) && j->s.state == PST_JOB_PUBLIC_STATE_DOWNLOADING);
    if (!begins || c->now_us - j->s.since < NO_ANSWER_US)
        return;
    bool none = trainer_count_from(j, PST_JOB_PROCESS_STATE_STARTED, false) == 0, asked = false;
    if (none && !j->s.reason)
        say_unanswered(c, j);
    if (c->now_us - j->checked_us < NO_ANSWER_US)
        return;
    size_t n;
    const char **nodes = trainer_job_nodes(j, &n);
    for (size_t i = 0; i < n; i++)
        if (*nodes[i] && is_idle_on(j, nodes[i]) && is_heard(c, tcore_node(c, j->s.site, nodes[i]))) {
            tcore_command_to(c, j, nodes[i], PST_JOB_COMMAND_TYPE_CHECK, NULL, "nothing of it has started: is it there?");
            asked = true;
        }
    free(nodes);
    if (asked)
        j->checked_us = c->now_us;
}

void tcore_deadlines(tcore *c)
{
    for (size_t i = 0; i < c->n_live; i++) {
        check_deadline(c, c->live[i]);
        check_answer(c, c->live[i]);
        wind_up(c, c->live[i]);
        trainer_meeting_tick(c, c->live[i]);
    }
}
