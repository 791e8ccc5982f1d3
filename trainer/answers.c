/* answers.c - which requests are answered, when, and to whom: those that came before their submission, those that were answered before, those
 * that are too old, and those of somebody else.
 *
 * A submission is keyed by its request id, what follows by the training id: two partitions, without an order between them. So a request
 * of a job that is not known is kept until the submission comes, or until the Trainer has read all requests and some seconds have passed.
 * It is kept as a state UNKNOWN under the job's key, for a restarted Trainer reads its states and not its requests again. */
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/platform/client.h"
#include "trainer/core_state.h"
#include "schemas/training_id.h"

#include <stdlib.h>
#include <string.h>

enum { EARLY_JOBS_MAX = 10000, EARLY_REQUESTS_MAX = 16, EARLY_S_MAX = 600, SECOND_US = 1000000 };

/* ---- before the submission --------------------------------------------------------------------------------------------------- */

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
    e->s.early = pst_realloc(e->s.early, (e->s.n_early + 1) * sizeof *e->s.early);
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

/* ---- a request id twice -------------------------------------------------------------------------------------------------------- */

void trainer_submit_digest(const trainer_in *in, char *ret)
{
    const pst_job_request *r = in->request;
    const char *code = !r->code ? NULL : in->code_sha256 ? in->code_sha256 : r->code->sha256 ? r->code->sha256 : r->code->uri;
    pst_submission_digest(r->manifest, code, ret);
}

void trainer_submit_again(tcore *c, trainer_job *j, const trainer_in *in, const char *digest)
{
    const pst_job_request *r = in->request;
    bool known = *j->s.request_sha256; /* else it is of an older Trainer */
    bool same = known ? !strcmp(j->s.request_sha256, digest) : r->manifest && !strcmp(j->s.manifest, r->manifest);
    char *mark = pst_sprintf("SUBMIT:%s:%.16s", r->request_id, digest);
    for (size_t i = 0; i < j->s.n_requests; i++)
        same = same || !strcmp(j->s.requests[i], mark);
    if (same) {
        c->counts.duplicates++;
    } else {
        char *actor = pst_sprintf("user:%s", r->user);
        char *reason =
            pst_sprintf("request id %.200s was used before with another manifest or other code, for %s, which is %s; use a new one",
                        r->request_id, j->s.training_id, pst_job_public_state_text(j->s.state));
        pst_complaints details = {0};
        pst_complain(&details, "request_id", 0, "%s", reason);
        tcore_remember(j, mark);
        tcore_reject(c, j, j->s.training_id, r->request_id,
                     &(trainer_say){.actor = actor, .reason_code = "REQUEST_ID_REUSED", .reason = reason, .details = &details});
        pst_complaints_done(&details);
        free(reason);
        free(actor);
    }
    free(mark);
}

/* ---- too old, not yours ------------------------------------------------------------------------------------------------------- */

char *trainer_request_too_old(const tcore *c, const trainer_in *in)
{
    char then[32];
    int64_t age_us = in->published_us ? c->now_us - in->published_us : 0;
    if (age_us <= (int64_t)PST_TRAINER_TOO_OLD_S * SECOND_US)
        return NULL;
    return pst_sprintf(
        "it was published at %s, more than %d days ago: whether it was answered then is not remembered; publish it anew if it "
        "is still wanted",
        pst_time_text(in->published_us, then), PST_TRAINER_TOO_OLD_S / 86400);
}

/* "ann,bob" holds "bob" */
static bool is_listed(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *s = names; s && n; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL) {
        s += strspn(s, " ");
        if (!strncmp(s, name, n) && (!s[n] || s[n] == ',' || s[n] == ' '))
            return true;
    }
    return false;
}

bool trainer_request_of_operator(const tcore *c, const pst_job_request *r)
{
    return is_listed(c->policy.operators, r->user);
}

/* Who writes to the requests' topic is believed its name: who may do so is Kafka's to say (ACLs), and the gateway's. */
bool trainer_request_allowed(const tcore *c, const trainer_job *j, const pst_job_request *r)
{
    return !strcmp(j->s.user, r->user) || trainer_request_of_operator(c, r);
}

/* ---- time ---------------------------------------------------------------------------------------------------------------------- */

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
