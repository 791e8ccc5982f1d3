/* job_owner.c - may this caller see, or change, the job of {id}? Asked by every handler with such a path, before it does anything. What is not shown is
 * answered exactly as what is not there. */
#include "producers/gateway/gateway.h"

#include "common/base/json.h"
#include "producers/gateway/after.h"
#include "producers/gateway/caller.h"

static void refuse(pst_http_req *req, bool seen, const pst_err *err)
{
    if (err->code && err->code != PST_ENOTFOUND)
        pst_http_problem_err(req, err);
    else if (seen)
        pst_http_problem(req, 403, "not-yours", NULL, "the job belongs to another user: you may look at it, and change nothing");
    else
        pst_http_problem(req, 404, "unknown-job", NULL,
                         "there is no job of this id (a job just submitted appears once the Trainer has seen it)");
}

bool gw_job_allowed(gw_state *g, pst_http_req *req, bool touches)
{
    pst_err err = {0};
    json_t *doc = NULL;
    if (!gw_caller_name(req) ||
        (gw_caller_sees_all(req) && !touches)) /* who asks nobody, or sees all, is told by the handler what there is */
        return true;
    pst_store *s = gw_store_lock(g, &err);
    if (s)
        pst_store_get(s, "jobs", pst_http_param(req, "id"), &doc, &err);
    gw_store_unlock(g);
    const char *owner = pst_json_str(doc, "user", NULL);
    if (!doc && err.code == PST_ENOTFOUND) /* submitted here a moment ago, it is its submitter's before the store shows it */
        owner = gw_after_owner(g, pst_http_param(req, "id"));
    bool seen = (doc || owner) && gw_caller_sees(req, owner), may = seen && (!touches || gw_caller_touches(req, owner));
    if (!may)
        refuse(req, seen, &err);
    json_decref(doc);
    return may;
}
