/* nodes.c - /v1/nodes: the computers that jobs run on, and what an operator says of one, as `penstock nodes` has both (common/platform/nodes.h). A word about
 * a node is answered when the Trainer has answered it, since it may be refused: who drains a node that there is not would else be told 202. */
#include "common/platform/nodes.h"

#include "producers/gateway/caller.h"
#include "producers/gateway/routes.h"
#include "producers/gateway/task.h"

#include <string.h>

static int read_all(gw_task *t, pst_err *err)
{
    json_t *nodes = NULL;
    int rc = pst_nodes_read(t->g->client, &nodes, err);
    if (rc < 0 && rc != PST_ENOTFOUND)
        return rc;
    pst_err_clear(err); /* no topic yet: no LCM has reported yet */
    t->answer = json_pack("{s:o}", "nodes", nodes ? nodes : json_array());
    return 0;
}

static int read_one(gw_task *t, pst_err *err)
{
    const char *name = pst_http_param(t->req, "node");
    json_t *nodes = NULL, *n;
    size_t i;
    int rc = pst_nodes_read(t->g->client, &nodes, err);
    json_array_foreach(nodes, i, n) if (!strcmp(pst_json_str(n, "node", ""), name)) t->answer = json_incref(n);
    json_decref(nodes);
    if (!rc && !t->answer)
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "nodes", 0, "no LCM has reported as node %.120s; GET /v1/nodes has all", name);
    return rc;
}

static void list(void *arg, pst_http_req *req)
{
    gw_task_start(arg, req, read_all);
}

static void show(void *arg, pst_http_req *req)
{
    gw_task_start(arg, req, read_one);
}

static int tell(gw_task *t, pst_job_action action, pst_err *err)
{
    pst_node_word word = {.action = action,
                          .node = pst_http_param(t->req, "node"),
                          .user = t->actor,
                          .reason = gw_query(t->req, "reason"),
                          .is_operator = gw_caller_is_operator(t->req)};
    pst_node_said said;
    int rc = pst_nodes_tell(t->g->client, &word, &said, err);
    if (!rc)
        t->answer = json_pack("{s:s, s:s, s:s, s:s, s:i, s:I}", "node", word.node, "answer", said.text, "request_id", said.request_id,
                              "topic", pst_client_topic(t->g->client, PST_TOPIC_JOBS_REQUESTS), "partition", (int)said.partition, "offset",
                              (json_int_t)said.offset);
    return rc;
}

static int tell_drain(gw_task *t, pst_err *err)
{
    return tell(t, PST_JOB_ACTION_NODE_DRAIN, err);
}

static int tell_resume(gw_task *t, pst_err *err)
{
    return tell(t, PST_JOB_ACTION_NODE_RESUME, err);
}

static int tell_lost(gw_task *t, pst_err *err)
{
    return tell(t, PST_JOB_ACTION_NODE_LOST, err);
}

static void drain(void *arg, pst_http_req *req)
{
    gw_task_start(arg, req, tell_drain);
}

static void resume(void *arg, pst_http_req *req)
{
    gw_task_start(arg, req, tell_resume);
}

static void lost(void *arg, pst_http_req *req)
{
    gw_task_start(arg, req, tell_lost);
}

/* ---- routes ---------------------------------------------------------------------------------------------------------------- */

static const gw_schema schemas[] = {
    {"Node", GW_JSON({
         "type" : "object",
         "description" : "An LCM, as it last reported; `free` is what no job has been given.",
         "required" : [ "node", "site", "state", "cpus", "memory_bytes", "gpus", "free", "processes", "seen_at" ],
         "properties" : {
             "node" : {"type" : "string"},
             "site" : {"type" : "string"},
             "state" : {"enum" : [ "ready", "draining", "silent", "stopped", "lost" ]},
             "host" : {"type" : "string"},
             "cpus" : {"type" : "number"},
             "memory_bytes" : {"type" : "integer", "format" : "int64"},
             "gpus" : {"type" : "integer"},
             "free" : {
                 "type" : "object",
                 "properties" : {
                     "cpus" : {"type" : "number"},
                     "memory_bytes" : {"type" : "integer", "format" : "int64"},
                     "gpus" : {"type" : "integer"}
                 }
             },
             "processes" : {"type" : "integer"},
             "seen_at" : {"type" : "integer", "format" : "int64", "description" : "microseconds since 1970"},
             "epoch" : {"type" : "integer", "format" : "int64"}
         }
     })},
    {"NodeList", GW_JSON({
         "type" : "object",
         "required" : ["nodes"],
         "properties" : {"nodes" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/Node"}}}
     })},
    {"NodeAnswer", GW_JSON({
         "type" : "object",
         "description" : "What the Trainer said of it, and where the request stands.",
         "required" : [ "node", "answer", "request_id", "topic", "partition", "offset" ],
         "properties" : {
             "node" : {"type" : "string"},
             "answer" : {"type" : "string"},
             "request_id" : {"type" : "string"},
             "topic" : {"type" : "string"},
             "partition" : {"type" : "integer"},
             "offset" : {"type" : "integer", "format" : "int64"}
         }
     })},
    {0}};
#define NODE                                                                                 \
    {                                                                                        \
        "node", "path", GW_JSON({"type" : "string", "maxLength" : 300}), "the node's own id" \
    }
static const gw_param of_node[] = {NODE, {0}},
                      of_word[] = {NODE, {"reason", "query", GW_JSON({"type" : "string", "maxLength" : 500}), "kept with the event"}, {0}};
static const gw_answer to_list[] = {{200, "in the order in which they were first heard of", "application/json", "NodeList"},
                                    GW_TASK_FAILED,
                                    {0}},
                       to_show[] = {{200, "the node", "application/json", "Node"},
                                    {404, "no LCM has reported under this name", GW_PROBLEM},
                                    GW_TASK_FAILED,
                                    {0}},
                       to_word[] = {{200, "the Trainer took it", "application/json", "NodeAnswer"},
                                    {403, "a page of another origin, or a right on the cluster that is missing", GW_PROBLEM},
                                    {404, "there is no such node", GW_PROBLEM},
                                    {409, "the Trainer refused it: the detail says why", GW_PROBLEM},
                                    GW_TASK_FAILED,
                                    {0}};

static const gw_route routes[] = {
    {{"GET", "/v1/nodes", list, 0, GW_ALL, "The computers that jobs run on, with what is free on each."}, "listNodes", NULL, NULL, to_list},
    {{"GET", "/v1/nodes/{node}", show, 0, GW_ALL, "One of them."}, "showNode", of_node, NULL, to_show},
    {{"POST", "/v1/nodes/{node}/drain", drain, 0, 0, "It takes no new jobs. Answered when the Trainer has answered, 10 s at most."},
     "drainNode",
     of_word,
     NULL,
     to_word},
    {{"POST", "/v1/nodes/{node}/resume", resume, 0, 0, "It takes jobs again."}, "resumeNode", of_word, NULL, to_word},
    {{"POST", "/v1/nodes/{node}/lost", lost, 0, 0,
      "Your word that a silent node will not come back with its processes: its jobs go on elsewhere, or end."},
     "loseNode",
     of_word,
     NULL,
     to_word},
};

const gw_noun gw_nodes_noun = {"nodes", "The computers that jobs run on.", routes, sizeof routes / sizeof *routes, schemas};
