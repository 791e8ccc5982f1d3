/* state_dump.c - what the Trainer holds, for whoever looks into one that does not do what it should (common/base/dump.h): where it stands in its
 * round, and every job that is not over. Ended jobs are counted only: there may be a hundred thousand of them, and nothing waits for them. */
#include "schemas/job_state.h"
#include "trainer/shell.h"

enum { JOBS_MAX = 1000 };

static void add_job(void *arg, const pst_job_state *s, bool queued, bool charged)
{
    json_t *jobs = arg;
    if (pst_job_state_is_ended(s->state) || json_array_size(jobs) >= JOBS_MAX)
        return;
    json_array_append_new(jobs, json_pack("{s:s, s:s, s:i, s:s, s:s?, s:b, s:b}", "training_id", s->training_id, "state",
                                          pst_job_public_state_text(s->state), "generation", (int)s->generation, "node",
                                          s->node ? s->node : "", "reason_code", s->reason_code, "queued", queued, "charged", charged));
}

static json_t *numbers(const tcore *core)
{
    const trainer_counts *c = tcore_counts(core);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests", (json_int_t)c->requests, "duplicates",
                     (json_int_t)c->duplicates, "rejected", (json_int_t)c->rejected, "reports", (json_int_t)c->reports, "reports_stale",
                     (json_int_t)c->reports_stale, "reports_unknown", (json_int_t)c->reports_unknown, "reports_untrusted",
                     (json_int_t)c->reports_untrusted, "retried", (json_int_t)c->retried);
}

void trainer_shell_dump(const trainer_shell *s, json_t *to)
{
    json_t *states = json_object(), *jobs = json_array();
    for (int i = 0; i <= PST_JOB_PUBLIC_STATE_REJECTED; i++)
        json_object_set_new(states, pst_job_public_state_text((pst_job_public_state)i),
                            json_integer((json_int_t)tcore_jobs(s->core, (pst_job_public_state)i)));
    tcore_each(s->core, add_job, jobs);
    json_object_set_new(to, "active", json_boolean(s->inputs != NULL));
    json_object_set_new(to, "caught_up", json_boolean(s->caught_up));
    json_object_set_new(to, "nodes_unread", json_boolean(s->nodes_unread));
    json_object_set_new(to, "state_to_be_read", json_boolean(s->stale));
    json_object_set_new(to, "outbox", json_integer((json_int_t)trainer_outbox_size(s->outbox)));
    json_object_set_new(to, "now", json_integer(trainer_shell_now(s)));
    json_object_set_new(to, "counts", numbers(s->core));
    json_object_set_new(to, "states", states);
    json_object_set_new(to, "jobs", jobs);
}
