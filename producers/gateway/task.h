/* task.h - a request whose answer takes time (topics are read, an event is published and waited for): a thread of its own makes the answer, the loop sends it.
 *
 *     static int read_nodes(gw_task *t, pst_err *err) { return pst_nodes_read(t->g->client, &t->answer, err); }
 *     static void nodes(void *arg, pst_http_req *req) { gw_task_start(arg, req, read_nodes); }
 *
 * The request's texts (parameters, body) may be read on the thread: they stay as they are until it is answered. Sixteen at once; beyond: 503 with Retry-After. */
#ifndef PST_PRODUCERS_GATEWAY_TASK_H
#define PST_PRODUCERS_GATEWAY_TASK_H

#include "producers/gateway/gateway.h"

typedef struct gw_task gw_task;

/* 0: t->answer is sent with t->status. < 0: err is. @thread its own */
typedef int (*gw_task_fn)(gw_task *t, pst_err *err);

struct gw_task {
    gw_state *g;
    pst_http_req *req;
    gw_task_fn run;
    char *actor;        /* in whose name */
    int status;         /* 200 */
    json_t *answer;     /* taken; NULL with 204 */
    json_t *violations; /* of a refusal, taken: what is wrong with what was sent; NULL = there are none to tell */
    pst_err err;
    int rc;
};

enum { GW_TASKS_MAX = 16 };

/* For the answers of a row. */
#define GW_TASK_FAILED                                                                                    \
    {500, "a topic could not be read", GW_PROBLEM},                                                       \
        {503, "the broker or the registry is not reached, or too much is looked up already", GW_PROBLEM}, \
    {                                                                                                     \
        504, "it took too long", GW_PROBLEM                                                               \
    }

/* Takes req. @thread loop */
void gw_task_start(gw_state *g, pst_http_req *req, gw_task_fn run);

#endif
