/* queues.c - /v1/queues: the queues that jobs wait in, as `penstock queues` has them (common/platform/queues.h). A body is a queue as in a file, JSON or YAML,
 * by the same reader: an unknown key is named with its line and the nearest one that is known. Answered when Kafka has it. */
#include "common/platform/queues.h"

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/yaml.h"
#include "producers/gateway/routes.h"
#include "producers/gateway/task.h"

#include <stdlib.h>
#include <string.h>

enum { BODY_MAX = 64 << 10 };

static int read_queues(gw_task *t, const char *name, pst_err *err)
{
    pst_queues q = {0};
    pst_queue_use *uses = NULL;
    int rc = pst_queues_read(t->g->client, &q, err);
    if (!rc)
        rc = pst_queues_in_use(t->g->client, &q, NULL, &uses, err);
    json_t *list = json_array();
    for (size_t i = 0; !rc && i < q.n; i++)
        if (!name || !strcmp(q.at[i].name, name))
            json_array_append_new(list, pst_queue_json(&q.at[i], &uses[i]));
    if (!rc && !name)
        t->answer = json_pack("{s:O}", "queues", list);
    else if (!rc && json_array_size(list))
        t->answer = json_incref(json_array_get(list, 0));
    else if (!rc) {
        char *text = pst_queues_unknown(&q, name);
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "queue", 0, "%s", text);
        free(text);
    }
    json_decref(list);
    free(uses);
    pst_queues_done(&q);
    return rc;
}

static int read_all(gw_task *t, pst_err *err)
{
    return read_queues(t, NULL, err);
}

static int read_one(gw_task *t, pst_err *err)
{
    return read_queues(t, pst_http_param(t->req, "queue"), err);
}

/* The address names the queue; a body without a name is of that one. NULL: it has one, or is nothing that could. */
static char *with_name(pst_slice body, const char *name)
{
    pst_yaml y = {0};
    pst_err unused = {0};
    char *text = NULL;
    if (pst_yaml_parse(body.data, body.len, "body", &y, &unused) < 0)
        return NULL;
    if (json_is_object(y.root) && !json_object_get(y.root, "name")) {
        json_object_set_new(y.root, "name", json_string(name));
        text = pst_json_text(y.root);
    }
    pst_yaml_done(&y);
    return text;
}

static int put_one(gw_task *t, pst_err *err)
{
    const char *name = pst_http_param(t->req, "queue");
    pst_slice body = pst_http_body(t->req);
    pst_queue_spec *specs = NULL;
    size_t n = 0;
    char *named = with_name(body, name);
    int rc = pst_queue_specs_parse(named ? named : body.data, named ? strlen(named) : body.len, "body", &specs, &n, err);
    free(named);
    if (!rc && (n != 1 || strcmp(specs[0].name, name) != 0))
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "queue", 0, "the body is to hold one queue, of the name %.100s, or without one",
                         name);
    if (!rc) {
        free(specs[0].actor);
        specs[0].actor = pst_strdup(t->actor);
        specs[0].time = pst_now_us();
        rc = pst_queue_publish(t->g->client, name, &specs[0], err);
    }
    if (!rc)
        t->answer = pst_queue_spec_json(&specs[0]);
    pst_queue_specs_free(specs, n);
    return rc;
}

static int delete_one(gw_task *t, pst_err *err)
{
    const char *name = pst_http_param(t->req, "queue");
    int rc = pst_queue_deletable(t->g->client, name, err);
    if (!rc)
        rc = pst_queue_publish(t->g->client, name, NULL, err);
    t->status = 204;
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

static void put(void *arg, pst_http_req *req)
{
    gw_task_start(arg, req, put_one);
}

static void delete (void *arg, pst_http_req *req)
{
    gw_task_start(arg, req, delete_one);
}

/* ---- routes ---------------------------------------------------------------------------------------------------------------- */

static const gw_schema schemas[] = {
    {"Queue", GW_JSON({
         "type" : "object",
         "description" : "What jobs of penstock.queue wait in. A limit that is null is none. The last four are what it has at this moment.",
         "required" : [ "name", "weight", "quota", "max_running_per_user", "preempts" ],
         "properties" : {
             "name" : {"type" : "string"},
             "weight" : {"type" : "number"},
             "quota" : {
                 "type" : "object",
                 "properties" : {
                     "cpus" : {"type" : [ "number", "null" ]},
                     "memory" : {"type" : [ "integer", "string", "null" ], "description" : "bytes; 64GiB is taken too"},
                     "gpus" : {"type" : [ "integer", "null" ]}
                 }
             },
             "max_running_per_user" : {"type" : [ "integer", "null" ]},
             "preempts" : {"type" : "boolean"},
             "actor" : {"type" : "string"},
             "time" : {"type" : "integer", "format" : "int64", "description" : "microseconds since 1970"},
             "running" : {"type" : "integer"},
             "waiting" : {"type" : "integer"},
             "held" : {"type" : "integer"},
             "used" : {
                 "type" : "object",
                 "properties" : {"cpus" : {"type" : "number"}, "memory" : {"type" : "integer"}, "gpus" : {"type" : "integer"}}
             }
         }
     })},
    {"QueueBody", GW_JSON({
         "type" : "object",
         "description" : "All may be left out; name is that of the address.",
         "properties" : {
             "name" : {"type" : "string"},
             "weight" : {"type" : "number", "minimum" : 0.001, "maximum" : 1000000},
             "quota" : {"type" : [ "object", "null" ]},
             "max_running_per_user" : {"type" : [ "integer", "null" ]},
             "preempts" : {"type" : [ "boolean", "null" ]}
         }
     })},
    {"QueueList", GW_JSON({
         "type" : "object",
         "required" : ["queues"],
         "properties" : {"queues" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/Queue"}}}
     })},
    {0}};
static const gw_param of_queue[] = {{"queue", "path", GW_JSON({"type" : "string", "maxLength" : 64}), "its name"}, {0}};
static const gw_content bodies[] = {
    {"application/json", "QueueBody"}, {"application/yaml", GW_JSON({"description" : "the same as YAML"})}, {0}};
#define FORBIDDEN                                                                              \
    {                                                                                          \
        403, "a page of another origin, or a right on the cluster that is missing", GW_PROBLEM \
    }
static const gw_answer to_list[] = {{200, "by name; `default` is always there", "application/json", "QueueList"}, GW_TASK_FAILED, {0}},
                       to_show[] = {{200, "the queue", "application/json", "Queue"},
                                    {404, "there is no queue of this name", GW_PROBLEM},
                                    GW_TASK_FAILED,
                                    {0}},
                       to_put[] = {{200, "Kafka has it", "application/json", "Queue"},
                                   {400, "a key or a value is wrong: the detail says where and what", GW_PROBLEM},
                                   FORBIDDEN,
                                   {409, "the registry does not take the event's schema", GW_PROBLEM},
                                   GW_TASK_FAILED,
                                   {0}},
                       to_delete[] = {{204, "it is gone", NULL, NULL},
                                      FORBIDDEN,
                                      {404, "there is no queue of this name", GW_PROBLEM},
                                      {409, "jobs wait or run in it, or it is `default`", GW_PROBLEM},
                                      GW_TASK_FAILED,
                                      {0}};

static const gw_route routes[] = {
    {{"GET", "/v1/queues", list, 0, GW_ALL, "The queues, with what each may have and has in use."}, "listQueues", NULL, NULL, to_list},
    {{"GET", "/v1/queues/{queue}", show, 0, GW_ALL, "One of them."}, "showQueue", of_queue, NULL, to_show},
    {{"PUT", "/v1/queues/{queue}", put, BODY_MAX, 0, "Defines it, or puts this in its place; what runs goes on."},
     "putQueue",
     of_queue,
     bodies,
     to_put},
    {{"DELETE", "/v1/queues/{queue}", delete, 0, 0, "Removes a queue in which no job waits or runs."},
     "deleteQueue",
     of_queue,
     NULL,
     to_delete},
};

const gw_noun gw_queues_noun = {"queues", "The queues that jobs wait in.", routes, sizeof routes / sizeof *routes, schemas};
