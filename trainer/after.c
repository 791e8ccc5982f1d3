/* after.c - jobs that wait for others to be COMPLETED (penstock.after). A state names those that are still waited for, so that one which was deleted
 * later counts as done; they are looked at only when some job has ended or gone, not at each record. Who waits so stands at the end of its
 * queue and hinders nobody. Ids must be known when a job is submitted, so that no circle can come about. */
#include "trainer/core_state.h"

#include <stdlib.h>
#include <string.h>

char *trainer_barred_text(const trainer_job *j)
{
    PST_ASSERT(j->s.held_by || j->s.n_after);
    if (j->s.held_by)
        return pst_sprintf("user %.100s holds it; `penstock release %s` lets it start", j->s.held_by, j->s.training_id);
    if (j->s.n_after == 1)
        return pst_sprintf("it waits until %s is COMPLETED (penstock.after)", j->s.after[0]);
    return pst_sprintf("it waits until %s and %zu more are COMPLETED (penstock.after)", j->s.after[0], j->s.n_after - 1);
}

void trainer_after_check(const tcore *c, const pst_manifest *m, pst_complaints *of_manifest)
{
    for (size_t i = 0; i < m->n_after; i++) {
        const trainer_job *j = pst_map_get(&c->jobs, m->after[i]);
        if (!j)
            pst_complain(of_manifest, "penstock.after", m->after_line, "no job has the id %s%s", m->after[i],
                         trainer_memory_has(&c->deleted, m->after[i]) ? " any more: it was deleted" : "");
        else if (j->s.state == PST_JOB_PUBLIC_STATE_REJECTED)
            pst_complain(of_manifest, "penstock.after", m->after_line, "%s was REJECTED and will never be COMPLETED", m->after[i]);
    }
}

void trainer_after_take(const tcore *c, const pst_manifest *m, pst_job_state *s)
{
    if (!m->n_after)
        return;
    s->after = pst_alloc(m->n_after * sizeof *s->after);
    for (size_t i = 0; i < m->n_after; i++) {
        const trainer_job *j = pst_map_get(&c->jobs, m->after[i]);
        if (!j || j->s.state != PST_JOB_PUBLIC_STATE_COMPLETED)
            s->after[s->n_after++] = pst_strdup(m->after[i]);
    }
}

/* Takes what is COMPLETED from the list. Why it can never be met (free()), or NULL. A halted job may be resumed: it is waited for. */
static char *look_after(const tcore *c, trainer_job *j, bool *ret_changed)
{
    size_t kept = 0;
    char *why = NULL;
    for (size_t i = 0; i < j->s.n_after; i++) {
        char *id = j->s.after[i];
        const trainer_job *before = pst_map_get(&c->jobs, id);
        pst_job_public_state state = before ? before->s.state : PST_JOB_PUBLIC_STATE_UNKNOWN;
        if (!before && !why)
            why = pst_sprintf("%s, for which it waited (penstock.after), was deleted before it was COMPLETED", id);
        else if (!why && pst_job_state_is_ended(state) && state != PST_JOB_PUBLIC_STATE_COMPLETED && state != PST_JOB_PUBLIC_STATE_HALTED)
            why = pst_sprintf("%s, for which it waited (penstock.after), is %s", id, pst_job_public_state_text(state));
        if (state == PST_JOB_PUBLIC_STATE_COMPLETED)
            free(id);
        else
            j->s.after[kept++] = id;
    }
    *ret_changed = kept != j->s.n_after;
    j->s.n_after = kept;
    return why;
}

static void fail(tcore *c, trainer_job *j, const char *reason)
{
    trainer_queue_remove(c, j);
    c->counts.failed++;
    tcore_set_text(&j->s.reason, reason);
    tcore_set_text(&j->s.reason_code, "AFTER");
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_FAILED, PST_JOB_PUBLIC_STATE_FAILED, &(trainer_say){.reason_code = "AFTER", .reason = reason});
}

/* What it waits for has become less: the state changes, so an event says it. */
static void went_on(tcore *c, trainer_job *j)
{
    trainer_queue_remove(c, j);
    trainer_queue_add(c, j); /* at its new place; unsaid, and said with the rest of the queue */
    if (!j->barred)
        return;
    char *reason = trainer_barred_text(j);
    trainer_queue_said(j);
    tcore_set_text(&j->s.reason, reason);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_QUEUED, j->s.state, &(trainer_say){.reason = reason});
    free(reason);
}

static void look_at_lane(tcore *c, trainer_lane *l)
{
    size_t at = trainer_lane_barred(l);
    while (at < l->n) {
        trainer_job *j = l->at[at];
        bool changed = false;
        char *why = look_after(c, j, &changed);
        if (why)
            fail(c, j, why); /* the next one moves to its place */
        else
            at++; /* also when it has moved to the front: as many stand before the next as before */
        if (!why && changed)
            went_on(c, j);
        free(why);
    }
}

void tcore_after_run(tcore *c)
{
    while (c->after_due) { /* what fails here may be waited for itself */
        c->after_due = false;
        for (size_t i = 0; i < c->sites.n; i++) {
            trainer_site *s = c->sites.at[i].key ? c->sites.at[i].value : NULL;
            for (size_t k = 0; s && k < s->n_lanes; k++)
                look_at_lane(c, s->lanes[k]);
        }
    }
}
