/* queue.c - who runs next, and why the others wait. One queue per site, by priority, then time of submission. The first that is ready runs
 * when the whole gang fits; one that does not fit blocks those behind it, or a wide job would starve behind narrow ones. Resources are
 * charged when a generation is deployed and released when its last process was observed to have ended. */
#include "trainer/core_state.h"

#include <stdlib.h>
#include <string.h>

enum { RETRY_DELAY_US = 500000, RETRY_DELAY_MAX_US = 60000000, NEVER_S = 900, CLOCK_DIFFERS_US = 10000000 };

/* ---- running it -------------------------------------------------------------------------------------------------------------- */

static void say_queued(tcore *c, trainer_job *j, const char *reason)
{
    if (!j->unsaid && j->s.reason && !strcmp(j->s.reason, reason))
        return;
    j->site->n_unsaid -= j->unsaid;
    j->unsaid = false;
    tcore_set_text(&j->s.reason, reason);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_QUEUED, j->s.state, &(trainer_say){.reason = reason});
}

static void make_processes(trainer_job *j)
{
    for (size_t i = 0; i < j->s.n_processes; i++)
        pst_event_clear(&pst_job_process_type, &j->s.processes[i]);
    free(j->s.processes);
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    pst_manifest_parse(j->s.manifest, strlen(j->s.manifest), &m, &errors, &warnings);
    j->s.n_processes = (size_t)pst_manifest_processes(&m);
    j->s.processes = pst_alloc((j->s.n_processes + 1) * sizeof *j->s.processes);
    for (size_t i = 0; i < j->s.n_processes; i++) {
        char name[32];
        pst_manifest_process(&m, (int)i, name);
        j->s.processes[i].name = pst_strdup(name);
        j->s.processes[i].host = pst_strdup("");
        j->s.processes[i].address = pst_strdup("");
        j->s.processes[i].state = PST_JOB_PROCESS_STATE_WAITING;
    }
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
}

static void deploy(tcore *c, trainer_job *j, const trainer_node *node)
{
    PST_ASSERT(j->queued && !j->charged && !j->barred); /* it waits, and nothing of an earlier generation lives on a node */
    if (j->unsaid) {
        char *reason = pst_sprintf("it is next, and site %s has room", j->site->name);
        say_queued(c, j, reason);
        free(reason);
    }
    if (j->s.array) {
        trainer_array_open(c, j);
        return;
    }
    trainer_queue_remove(c, j);
    tcore_set_text(&j->s.node, node->name);
    tcore_charge(c, j);
    make_processes(j);
    j->checkpoint_us = j->result_us = j->ready_us = j->done_us = j->alone_us = j->meet_us = 0;
    j->wound_up = false;
    j->s.generation++;
    j->s.has_started_at = false;
    j->s.started_at = 0;
    tcore_set_text(&j->s.reason, NULL);
    tcore_set_text(&j->s.reason_code, NULL);
    tcore_set_text(&j->s.failed_process, "");
    c->counts.deployed++;
    char *reason = pst_sprintf("generation %d goes to node %s of site %s", j->s.generation, node->name, j->site->name);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_DEPLOYING, PST_JOB_PUBLIC_STATE_PENDING, &(trainer_say){.reason = reason});
    tcore_command(c, j, PST_JOB_COMMAND_TYPE_DEPLOY, NULL, reason);
    free(reason);
}

/* A retry waits 0.5 s, 1 s, 2 s, …, a minute at most: a fault that repeats at once must not spin. */
static int64_t ready_at(const tcore *c, const trainer_job *j)
{
    int used = j->s.attempts + j->s.platform_attempts;
    if (!used || j->s.since > c->now_us + CLOCK_DIFFERS_US) /* another Trainer's clock said since when: it was waited long enough */
        return 0;
    int64_t delay = used > 10 ? RETRY_DELAY_MAX_US : (int64_t)RETRY_DELAY_US << (used - 1);
    return j->s.since + (delay < RETRY_DELAY_MAX_US ? delay : RETRY_DELAY_MAX_US);
}

static void fail_never(tcore *c, trainer_job *j, const char *reason)
{
    trainer_queue_remove(c, j);
    c->counts.failed++;
    tcore_set_text(&j->s.reason, reason);
    tcore_set_text(&j->s.reason_code, "INSUFFICIENT_RESOURCES");
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_FAILED, PST_JOB_PUBLIC_STATE_FAILED,
               &(trainer_say){.reason_code = "INSUFFICIENT_RESOURCES", .reason = reason});
}

static char *behind(const trainer_site *s, size_t place)
{
    PST_ASSERT(place > 0 && place < s->n_queue); /* of the first it was said why it waits */
    return pst_sprintf("%zu job%s of site %s %s ahead; the first, %s, says: %s", place, place == 1 ? "" : "s", s->name,
                       place == 1 ? "is" : "are", s->queue[0]->s.training_id, s->queue[0]->s.reason ? s->queue[0]->s.reason : "it is next");
}

/* Where it may go now; else why it waits. What nodes said before we came is read first: of one that has stopped the word before its last would be
 * taken for its last, and what was given to it would wait for it. */
static const trainer_node *find_place(tcore *c, trainer_job *j, char **ret_reason, bool *ret_bound)
{
    if (!c->nodes_unread)
        return trainer_site_place(c, j, ret_reason, ret_bound);
    *ret_reason = pst_sprintf("the Trainer has just begun and reads which nodes of site %s there are", j->s.site);
    return NULL;
}

/* It says nothing of a queue before it is in it for good: its state has the reason. */
static bool is_not_admitted(trainer_job *j)
{
    bool awaited = trainer_stores_awaited(j);
    if (awaited) {
        j->site->n_unsaid -= j->unsaid;
        j->unsaid = false;
    }
    return awaited;
}

/* Deploys from the front until one that is ready does not fit; jobs that pause before a retry are passed over, those that are barred stand behind
 * all others. */
static void deploy_what_fits(tcore *c, trainer_site *s)
{
    size_t at = 0;
    while (at < s->n_queue && !s->queue[at]->barred) {
        trainer_job *j = s->queue[at];
        if (is_not_admitted(j)) { /* a server of its own is no reason for others to wait */
            at++;
            continue;
        }
        char *never = c->nodes_unread ? NULL : trainer_queue_never(s, &j->needs);
        char *reason = NULL;
        bool bound = false;
        const trainer_node *node = never ? NULL : find_place(c, j, &reason, &bound);
        bool waits_for_retry = ready_at(c, j) > c->now_us;
        if (!never || c->unsettled)
            j->never_us = 0;
        else if (!j->never_us)
            j->never_us = c->now_us;
        if (never && j->never_us && c->now_us - j->never_us >= NEVER_S * (int64_t)1000000) {
            fail_never(c, j, never);
        } else if (never) { /* an LCM may have come back with less than it had: others need not wait for what it lost */
            char *text = pst_sprintf("%s; it waits for the site to grow, and fails when that has lasted %d minutes", never, NEVER_S / 60);
            say_queued(c, j, text);
            free(text);
            at++;
        } else if (waits_for_retry) {
            char *text = pst_sprintf("it is tried again after a pause: %s", j->s.reason ? j->s.reason : "");
            if (j->unsaid)
                say_queued(c, j, text);
            free(text);
            at++;
        } else if (reason) {
            say_queued(c, j, reason);
            at += bound; /* those behind it may well run elsewhere */
        } else {
            deploy(c, j, node);
        }
        free(never);
        bool blocks = reason && !waits_for_retry && !bound;
        free(reason);
        if (blocks)
            return;
    }
}

static void run_site(tcore *c, trainer_site *s)
{
    deploy_what_fits(c, s);
    for (size_t i = s->n_queue; i-- > 0 && s->n_unsaid;) /* those that came now mostly stand at the end */
        if (s->queue[i]->unsaid && !is_not_admitted(s->queue[i])) {
            char *reason = s->queue[i]->barred ? trainer_barred_text(s->queue[i]) : behind(s, i);
            say_queued(c, s->queue[i], reason);
            free(reason);
        }
}

void trainer_queue_run(tcore *c)
{
    do {
        tcore_after_run(c);
        for (size_t i = 0; i < c->sites.n; i++)
            if (c->sites.at[i].key && ((trainer_site *)c->sites.at[i].value)->n_queue)
                run_site(c, c->sites.at[i].value);
    } while (tcore_arrays_run(c));
}
