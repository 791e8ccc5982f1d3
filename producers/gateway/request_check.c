/* request_check.c - is a request one that the Trainer can answer? One whose id or user it does not take belongs to no job, and its refusal is an event that
 * nobody looks for, so it is refused here, before it is published. So is a submission under a request id that stands for something else: the Trainer
 * answers it with an event of the first job, which whoever sends it would take for its own. Where the store does not know yet, the Trainer decides. */
#include "producers/gateway/jobs.h"

#include "common/base/json.h"
#include "schemas/training_id.h"

#include <stdlib.h>
#include <string.h>

static bool is_wrong(pst_http_req *req, const char *field, const char *text)
{
    const char *why = text ? pst_request_text_wrong(text) : NULL;
    if (!why)
        return false;
    char *detail = pst_sprintf("%s %s", field, why);
    pst_http_problem(req, 400, "bad-request", NULL, detail);
    free(detail);
    return true;
}

bool gw_request_refuse(pst_http_req *req, const pst_job_request *r)
{
    char id[64];
    if (is_wrong(req, "request_id (Idempotency-Key)", r->request_id) || is_wrong(req, "user", r->user) ||
        is_wrong(req, "training_id", r->training_id))
        return true;
    if (r->action != PST_JOB_ACTION_SUBMIT || !r->training_id || !*r->training_id)
        return false;
    pst_training_id(r->user, r->request_id, id);
    if (!strcmp(r->training_id, id))
        return false;
    pst_http_problem(req, 400, "bad-request", NULL, "training_id is made from user and request_id; leave it out");
    return true;
}

bool gw_reused_refuse(gw_state *g, pst_http_req *req, const pst_job_request *r)
{
    char id[64], digest[65];
    pst_err err = {0};
    json_t *doc = NULL;
    if (r->code && r->code->content.data && !r->code->sha256) /* the Trainer reckons its digest */
        return false;
    const char *code = NULL;
    if (r->code)
        code = r->code->sha256 ? r->code->sha256 : r->code->uri;
    pst_training_id(r->user, r->request_id, id);
    pst_store *s = gw_store_lock(g, &err);
    if (s)
        pst_store_get(s, "jobs", id, &doc, &err);
    gw_store_unlock(g);
    if (!doc)
        return false;
    pst_submission_digest(r->manifest, code, digest);
    const char *known = pst_json_str(doc, "request_sha256", "");
    bool same = *known ? !strcmp(known, digest) : !strcmp(pst_json_str(doc, "manifest", ""), r->manifest);
    json_decref(doc);
    if (same)
        return false;
    char *detail =
        pst_sprintf("this request id was used before with another manifest or other code, for %s; a new submission needs a new id", id);
    pst_http_problem(req, 409, "request-id-reused", NULL, detail);
    free(detail);
    return true;
}
