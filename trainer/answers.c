/* answers.c - every request is answered once: which were answered before, which come too late or from somebody else, and what every one of them
 * must have. A job remembers the answers to its last requests; what belongs to no job is remembered in memory only. */
#include "common/base/array.h"
#include "common/base/clock.h"
#include "trainer/core_state.h"
#include "schemas/job_state.h"
#include "schemas/training_id.h"

#include <stdlib.h>
#include <string.h>

enum { ID_BYTES_MAX = 256, SECOND_US = 1000000 };

/* ---- once ------------------------------------------------------------------------------------------------------------------------ */

/* A job remembers "ACTION:request_id": a client that uses one id for its submission and its halt is understood too. */
char *trainer_request_mark(const pst_job_request *r)
{
    return pst_sprintf("%s:%s", pst_job_action_text(r->action), r->request_id);
}

bool trainer_is_answered(const trainer_job *j, const char *mark)
{
    for (size_t i = 0; i < j->s.n_requests; i++)
        if (!strcmp(j->s.requests[i], mark))
            return true;
    return false;
}

void tcore_remember(trainer_job *j, const char *mark)
{
    if (j->s.n_requests == PST_REQUESTS_KEPT) { /* the oldest goes */
        free(j->s.requests[0]);
        memmove(j->s.requests, j->s.requests + 1, (PST_REQUESTS_KEPT - 1) * sizeof *j->s.requests);
        j->s.n_requests--;
    }
    j->s.requests = pst_array_one_more(j->s.requests, j->s.n_requests, sizeof *j->s.requests);
    j->s.requests[j->s.n_requests++] = pst_strdup(mark);
}

/* What tells code from other code: its digest, or what is known of it. NULL: there is none. */
static const char *code_mark(const pst_job_code *code)
{
    if (!code)
        return NULL;
    return code->sha256 ? code->sha256 : code->uri;
}

/* With what it asks for: who mends a request that was refused before it became a job's, or publishes an old one anew, is answered again. */
static char *orphan_key(const tcore *c, const pst_job_request *r)
{
    char asked[65];
    pst_submission_digest(r->manifest, code_mark(r->code), asked);
    return pst_sprintf("%s:%s %s %s %.16s%s", pst_job_action_text(r->action), r->request_id, r->user, r->training_id ? r->training_id : "",
                       asked, c->too_old ? " too old" : "");
}

/* Rejections that belong to no job are remembered in memory only: after a restart such a request, published again, is answered again. */
bool tcore_orphan_answered(const tcore *c, const pst_job_request *r)
{
    char *key = orphan_key(c, r);
    bool seen = *r->request_id && trainer_memory_has(&c->answered, key);
    free(key);
    return seen;
}

void tcore_remember_orphan(tcore *c, const pst_job_request *r)
{
    char *key = orphan_key(c, r);
    trainer_memory_put(&c->answered, key, c->now_us);
    free(key);
}

void tcore_reject_orphan(tcore *c, const pst_job_request *r, const char *training_id, const trainer_say *say)
{
    tcore_remember_orphan(c, r);
    tcore_reject(c, NULL, training_id, r->request_id, say);
}

/* ---- a request id twice ---------------------------------------------------------------------------------------------------------- */

void trainer_submit_digest(const trainer_in *in, char *ret)
{
    const pst_job_request *r = in->request;
    const char *code = code_mark(r->code);
    if (r->code && in->code_sha256) /* reckoned of the archive that came with the request */
        code = in->code_sha256;
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

/* ---- well formed, too old, not yours --------------------------------------------------------------------------------------------- */

/* "user bar", "user bar: too slow" */
char *trainer_asked_by(const pst_job_request *r)
{
    const char *why = pst_str_map_get(r->options, r->n_options, "reason");
    return why && *why ? pst_sprintf("user %.100s: %.200s", r->user, why) : pst_sprintf("user %.100s", r->user);
}

void trainer_check_text(pst_complaints *bad, const char *field, const char *text, bool needed)
{
    if (needed && !*text)
        pst_complain(bad, field, 0, "is missing");
    if (strlen(text) > ID_BYTES_MAX)
        pst_complain(bad, field, 0, "is %zu bytes long, at most %d are allowed", strlen(text), ID_BYTES_MAX);
    for (const char *s = text; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) {
            pst_complain(bad, field, 0, "must not contain control characters");
            break;
        }
}

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

/* Listed, or let in as one by the gateway (--users), which takes the mark off what clients send. Whoever else may write the topic could set it himself, so
 * it counts only where the Trainer was told that the gateway alone may. */
bool trainer_request_of_operator(const tcore *c, const pst_job_request *r)
{
    const char *role = pst_str_map_get(r->options, r->n_options, PST_REQUEST_ROLE);
    return is_listed(c->policy.operators, r->user) || (c->policy.trust_gateway_roles && role && !strcmp(role, "operator"));
}

/* Who writes to the requests' topic is believed its name: who may do so is Kafka's to say (ACLs), and the gateway's. */
bool trainer_request_allowed(const tcore *c, const trainer_job *j, const pst_job_request *r)
{
    return !strcmp(j->s.user, r->user) || trainer_request_of_operator(c, r);
}
