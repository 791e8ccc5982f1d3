/* job_why.c - GET /v1/jobs/{id}/why: what `penstock why` says, to whoever has no terminal. The topics it is computed from are read anew for each answer,
 * by a thread, since that takes as long as jobs.state is; so few at once. */
#include "producers/gateway/gateway.h"

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/platform/why.h"
#include "producers/gateway/caller.h"
#include "producers/gateway/routes.h"

#include <stdlib.h>

enum { READERS_MAX = 4 }; /* together with those of job_records.c */

typedef struct asking {
    gw_state *g;
    pst_http_req *req;
    char *id, *viewer; /* viewer: who sees no job but his own; NULL: all */
    json_t *told;
    pst_err err;
    int rc;
} asking;

/* @thread loop */
static void answer(void *arg)
{
    asking *a = arg;
    PST_ASSERT(a->g->readers > 0);
    a->g->readers--;
    if (a->rc == PST_ENOTFOUND)
        pst_http_problem(a->req, 404, "unknown-job", NULL, a->err.text);
    else if (a->rc < 0)
        pst_http_problem_err(a->req, &a->err);
    else
        pst_http_reply_json(a->req, 200, a->told);
    free(a->id);
    free(a->viewer);
    free(a);
}

static void *compute(void *arg)
{
    asking *a = arg;
    pst_why *w = NULL;
    a->rc = pst_why_gather(a->g->client, &w, &a->err);
    if (!a->rc)
        a->rc = pst_why_tell(w, a->id, a->viewer, pst_now_us(), &a->told, &a->err);
    pst_why_free(w);
    gw_post(a->g, answer, a, NULL);
    return NULL;
}

static void why(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    if (!gw_job_allowed(g, req, false))
        return;
    if (g->readers >= READERS_MAX) {
        pst_http_add_header(req, "Retry-After", "1");
        pst_http_problem(req, 503, "busy", NULL, "four readers are at work already; ask again in a moment");
        return;
    }
    asking *a = pst_alloc(sizeof *a);
    *a = (asking){.g = g, .req = req, .id = pst_strdup(pst_http_param(req, "id"))};
    if (!gw_caller_sees_all(req))
        a->viewer = pst_strdup(gw_caller_of(req)->name);
    g->readers++;
    if (pst_thread_detached("gateway-why", compute, a)) {
        a->rc = pst_err_set(&a->err, PST_ENOMEM, PST_CLASS_RETRY, "sys", 0, "no thread to be had");
        answer(a);
    }
}

static const gw_schema schemas[] = {
    {"Why", GW_JSON({
         "type" : "object",
         "description" : "Why a job is where it is, computed when asked; which fields there are depends on its state.",
         "required" : [ "training_id", "state", "since", "text" ],
         "properties" : {
             "training_id" : {"type" : "string"},
             "state" : {"type" : "string"},
             "reason_code" : {"type" : [ "string", "null" ]},
             "reason" : {"type" : [ "string", "null" ], "description" : "what the Trainer said last"},
             "since" : {"type" : "integer", "format" : "int64", "description" : "microseconds since 1970"},
             "queue" : {"type" : "string"},
             "site" : {"type" : "string"},
             "position" : {"type" : "integer", "description" : "in its queue at its site, from 1"},
             "waiting" : {"type" : "integer", "description" : "how many wait there"},
             "ahead" : {"type" : "array", "items" : {"type" : "object"}},
             "queue_lacks" :
                 {"type" : "string", "description" : "what its queue's rules say against it, whatever room there is; absent: nothing"},
             "missing" : {"type" : "array", "items" : {"type" : "object"}, "description" : "by node"},
             "after" : {"type" : "array", "items" : {"type" : "object"}},
             "held_by" : {"type" : "string"},
             "node" : {"type" : "object"},
             "text" : {"type" : "string", "description" : "the same for people: what `penstock why` prints"}
         }
     })},
    {0}};
static const gw_param params[] = {GW_ID, {0}};
static const gw_answer answers[] = {{200, "why it is where it is", "application/json", "Why"},
                                    {404, "no job has this id", GW_PROBLEM},
                                    {500, "a topic could not be read", GW_PROBLEM},
                                    {503, "four readers are at work already, or the broker is not reached", GW_PROBLEM},
                                    {0}};
static const gw_route routes[] = {
    {{"GET", "/v1/jobs/{id}/why", why, 0, GW_ALL,
      "Why the job is where it is, computed now: place, what is ahead, what its queue's rules say, what is missing on which node."},
     "whyJob",
     params,
     NULL,
     answers},
};

const gw_noun gw_why_noun = {"why", "Why a job is where it is.", routes, sizeof routes / sizeof *routes, schemas};
