/* early.c - requests that came before their submission. A submission is keyed by its request id, what follows by the training id: two partitions,
 * without an order between them. So a request of a job that is not known is kept until the submission comes, or until the Trainer has read
 * all requests and some seconds have passed (control.c answers it). It is kept as a state UNKNOWN under the job's key, for a restarted
 * Trainer reads its states and not its requests again. */
#include "trainer/core_state.h"

#include "common/base/array.h"

#include <stdlib.h>
#include <string.h>

enum { EARLY_JOBS_MAX = 10000, EARLY_REQUESTS_MAX = 16 };

void trainer_early_free(void *early)
{
    trainer_early *e = early;
    if (!e)
        return;
    pst_event_clear(&pst_job_state_type, &e->s);
    free(e);
}

static bool matches(const pst_early_request *e, const pst_job_request *r)
{
    return !strcmp(e->request_id, r->request_id) && !strcmp(e->action, pst_job_action_text(r->action)) && !strcmp(e->user, r->user);
}

bool trainer_early_has(const tcore *c, const pst_job_request *r)
{
    const trainer_early *e = pst_map_get(&c->early, r->training_id);
    for (size_t i = 0; e && i < e->s.n_early; i++)
        if (matches(&e->s.early[i], r))
            return true;
    return false;
}

static trainer_early *early_new(const char *training_id, int64_t now_us)
{
    trainer_early *e = pst_alloc(sizeof *e);
    pst_job_state empty = {.training_id = (char *)training_id};
    pst_event_copy(&pst_job_state_type, &empty, &e->s); /* no text is NULL in a state that travels */
    e->seen_us = now_us;
    return e;
}

bool trainer_early_keep(tcore *c, const pst_job_request *r)
{
    trainer_early *e = pst_map_get(&c->early, r->training_id);
    if (e ? e->s.n_early >= EARLY_REQUESTS_MAX : c->early.live >= EARLY_JOBS_MAX)
        return false;
    if (!e)
        pst_map_put(&c->early, r->training_id, e = early_new(r->training_id, c->now_us));
    pst_early_request kept = {.request_id = r->request_id,
                              .action = (char *)pst_job_action_text(r->action),
                              .user = r->user,
                              .time = r->time,
                              .options = r->options,
                              .n_options = r->n_options};
    e->s.early = pst_array_one_more(e->s.early, e->s.n_early, sizeof *e->s.early);
    pst_event_copy(&pst_early_request_type, &kept, &e->s.early[e->s.n_early++]);
    e->s.updated_at = c->now_us;
    e->seen_us = c->now_us;
    tcore_publish(c, &e->s);
    return true;
}

void trainer_early_load(tcore *c, const pst_job_state *s)
{
    if (!s->n_early)
        return;
    trainer_early *e = pst_alloc(sizeof *e);
    pst_event_copy(&pst_job_state_type, s, &e->s);
    e->seen_us = 0; /* its time begins with the first tick */
    pst_map_put(&c->early, s->training_id, e);
}

void trainer_early_drop(tcore *c, const char *training_id)
{
    trainer_early_free(pst_map_take(&c->early, training_id));
}
