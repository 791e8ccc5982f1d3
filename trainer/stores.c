/* stores.c - jobs whose data stores are asked before they are admitted. The core asks nobody: such a job is RECEIVED and waits in its queue, passed over,
 * until the shell brings the answer. That it waits for one is in its published state (reason_code), so a Trainer that comes next asks again; what is
 * asked of it meanwhile (halt, terminate, delete) is done as of any queued job, and an answer that comes after is of no use to anybody. */
#include "trainer/core_state.h"

#include <stdlib.h>
#include <string.h>

bool trainer_stores_needed(const pst_manifest *m)
{
    for (size_t i = 0; i < m->n_stores; i++)
        if (m->stores[i].s3)
            return true;
    return false;
}

bool trainer_stores_unasked(const trainer_job *j)
{
    return j->s.reason_code && !strcmp(j->s.reason_code, PST_TRAINER_STORES_ASKED);
}

bool trainer_stores_awaited(const trainer_job *j)
{
    return j->s.state == PST_JOB_PUBLIC_STATE_QUEUED && trainer_stores_unasked(j);
}

void trainer_stores_await(tcore *c, trainer_job *j)
{
    tcore_set_text(&j->s.reason_code, PST_TRAINER_STORES_ASKED);
    tcore_set_text(&j->s.reason, "its data stores are asked before it is admitted");
    pst_map_put(&c->asking, j->s.training_id, c);
}

void trainer_stores_loaded(tcore *c, trainer_job *j)
{
    if (trainer_stores_awaited(j))
        pst_map_put(&c->asking, j->s.training_id, c);
}

/* Remarks on the manifest are said when it is admitted, as of any other. */
static void admit(tcore *c, trainer_job *j)
{
    pst_manifest m = {0};
    pst_complaints errors = {0}, warnings = {0};
    pst_manifest_parse(j->s.manifest, strlen(j->s.manifest), &m, &errors, &warnings);
    tcore_set_text(&j->s.reason_code, NULL);
    tcore_set_text(&j->s.reason, NULL);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_ADMITTED, j->s.state,
               &(trainer_say){.reason = warnings.n ? "admitted, with remarks on the manifest" : NULL, .details = &warnings});
    trainer_queue_remove(c, j); /* its place is the same; why it waits from now on is to be said */
    trainer_queue_add(c, j);
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
}

static void reject(tcore *c, trainer_job *j, const char *why)
{
    pst_complaints details = {0};
    char *reason = pst_sprintf("the request cannot be met: bad data store credentials/bucket: %.1500s", why),
         *id = pst_strdup(j->s.training_id);
    pst_complain(&details, "data_stores", 0, "%s", why);
    trainer_queue_remove(c, j);
    tcore_set_text(&j->s.manifest, ""); /* what was refused need not be kept, only known again */
    tcore_set_text(&j->s.reason_code, "C103");
    tcore_set_text(&j->s.reason, reason);
    c->counts.rejected++;
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_REJECTED, PST_JOB_PUBLIC_STATE_REJECTED,
               &(trainer_say){.reason_code = "C103", .reason = reason, .details = &details});
    trainer_memory_put(&c->rejected, id, c->now_us);
    pst_complaints_done(&details);
    free(reason);
    free(id);
}

void trainer_stores_answered(tcore *c, const char *training_id, const char *refused)
{
    trainer_job *j = pst_map_get(&c->jobs, training_id);
    pst_map_take(&c->asking, training_id);
    if (!j || !trainer_stores_awaited(j))
        return;
    if (refused)
        reject(c, j, refused);
    else
        admit(c, j);
}

void tcore_stores_awaited(tcore *c, void (*tell)(void *arg, const pst_job_state *s), void *arg)
{
    for (size_t i = 0; i < c->asking.n && c->asking.live; i++) {
        const trainer_job *j = c->asking.at[i].key ? pst_map_get(&c->jobs, c->asking.at[i].key) : NULL;
        if (j && trainer_stores_awaited(j))
            tell(arg, &j->s);
    }
}
