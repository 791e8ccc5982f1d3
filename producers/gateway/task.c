/* task.c - requests answered by threads. Each has one of its own, made for it: such requests are few, and wait for a broker most of their time, so a pool
 * would save nothing and could be held up by one that waits. The number is bounded instead, and who is over it is told to come again. */
#include "producers/gateway/task.h"

#include "common/base/settings.h"
#include "common/base/thread.h"
#include "producers/gateway/caller.h"
#include "producers/gateway/routes.h"

#include <stdlib.h>

/* @thread loop */
static void answer(void *arg)
{
    gw_task *t = arg;
    PST_ASSERT(t->g->tasks > 0);
    t->g->tasks--;
    if (t->rc < 0 && t->violations)
        gw_refuse(t->req, "invalid", t->err.text, t->violations);
    else if (t->rc < 0)
        pst_http_problem_err(t->req, &t->err);
    else if (t->answer)
        pst_http_reply_json(t->req, t->status, t->answer);
    else
        pst_http_reply(t->req, t->status, NULL, NULL, 0);
    if (t->rc < 0)
        json_decref(t->answer);
    free(t->actor);
    free(t);
}

static void *run(void *arg)
{
    gw_task *t = arg;
    t->rc = t->run(t, &t->err);
    gw_post(t->g, answer, t, NULL);
    return NULL;
}

void gw_task_start(gw_state *g, pst_http_req *req, gw_task_fn fn)
{
    if (g->tasks >= GW_TASKS_MAX) {
        pst_http_add_header(req, "Retry-After", "1");
        pst_http_problem(req, 503, "busy", NULL, "so many requests are being looked up already as there may be; ask again in a moment");
        return;
    }
    char *name = gw_caller_name(req) ? pst_strdup(gw_caller_name(req)) : gw_who_name(req);
    gw_task *t = pst_alloc(sizeof *t);
    *t = (gw_task){.g = g, .req = req, .run = fn, .status = 200, .actor = name ? name : pst_strdup(pst_account_name(NULL))};
    g->tasks++;
    if (pst_thread_detached("gateway-task", run, t)) {
        t->rc = pst_err_set(&t->err, PST_EAGAIN, PST_CLASS_RETRY, "sys", 0, "no thread to be had; ask again later");
        answer(t);
    }
}
