/* pipelines.c - /v1/pipelines: the desired scoring deployments, and their dead letters. What may be published is decided by inference (common/platform/
 * scoring.h), by the very functions of `penstock pipelines apply`; what would change is told by comparing what the two files mean, not how they are
 * written, so that a comment or another order of keys is no difference. */
#include "common/base/clock.h"
#include "common/base/yaml.h"
#include "common/bus/bus.h"
#include "producers/gateway/caller.h"
#include "producers/gateway/letters.h"
#include "producers/gateway/routes.h"
#include "producers/gateway/running.h"
#include "producers/gateway/task.h"
#include "schemas/avro.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 20, PUBLISH_MS = 30000, DEPTH_MAX = 32, PATH_MAX_BYTES = 400 };

static int has_scoring(const gw_task *t, pst_err *err)
{
    return t->g->scoring ? 0 : pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "gateway", 0, "this gateway knows no pipelines");
}

/* ---- list and show ---------------------------------------------------------------------------------------------------------------- */

static int read_all(gw_task *t, json_t **ret, pst_err *err)
{
    int rc = has_scoring(t, err);
    return rc ? rc : t->g->scoring->pipelines(t->g->client, ret, err);
}

static json_t *named(const json_t *list, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) if (!strcmp(pst_json_str(one, "name", ""), name)) return one;
    return NULL;
}

static int not_there(const char *name, pst_err *err)
{
    return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "pipelines", 0, "there is no pipeline %.200s; GET /v1/pipelines has all", name);
}

static int read_list(gw_task *t, pst_err *err)
{
    json_t *list = NULL;
    int rc = read_all(t, &list, err);
    if (!rc)
        rc = gw_running_add(t->g->client, list, err);
    if (!rc)
        t->answer = json_pack("{s:O}", "pipelines", list);
    json_decref(list);
    return rc;
}

static int read_one(gw_task *t, pst_err *err)
{
    json_t *list = NULL;
    int rc = read_all(t, &list, err);
    const char *name = pst_http_param(t->req, "pipeline");
    json_t *one = rc ? NULL : json_incref(named(list, name)), *alone = one ? json_pack("[O]", one) : NULL;
    if (alone)
        rc = gw_running_add(t->g->client, alone, err);
    else if (!rc)
        rc = not_there(name, err);
    if (!rc)
        t->answer = json_incref(one);
    json_decref(one);
    json_decref(alone);
    json_decref(list);
    return rc;
}

/* ---- what would change ----------------------------------------------------------------------------------------------------------- */

static void compare(json_t *to, const char *path, const json_t *before, const json_t *after, int depth);

static void compare_keys(json_t *to, const char *path, const json_t *before, const json_t *after, int depth)
{
    const char *key;
    json_t *v;
    char below[PATH_MAX_BYTES];
    json_object_foreach((json_t *)(uintptr_t)before, key, v)
    {
        snprintf(below, sizeof below, "%s%s%s", path, *path ? "." : "", key);
        compare(to, below, v, json_object_get(after, key), depth + 1);
    }
    json_object_foreach((json_t *)(uintptr_t)after, key, v)
    {
        snprintf(below, sizeof below, "%s%s%s", path, *path ? "." : "", key);
        if (!json_object_get(before, key))
            compare(to, below, NULL, v, depth + 1);
    }
}

/* NULL: it is not there. Lists are one value: where an entry was put in, all behind it would else have changed. */
static void compare(json_t *to, const char *path, const json_t *before, const json_t *after, int depth)
{
    if (before && after && json_equal(before, after))
        return;
    if (depth < DEPTH_MAX && json_is_object(before) && json_is_object(after)) {
        compare_keys(to, path, before, after, depth);
        return;
    }
    json_t *one = json_pack("{s:s}", "path", path);
    if (before)
        json_object_set(one, "before", (json_t *)(uintptr_t)before);
    if (after)
        json_object_set(one, "after", (json_t *)(uintptr_t)after);
    json_array_append_new(to, one);
}

/* before NULL: there is none. */
static json_t *difference(const char *before, const char *after)
{
    pst_yaml was = {0}, will = {0};
    pst_err ignored = {0};
    json_t *list = json_array(), *none = json_object();
    bool old = before && pst_yaml_parse(before, strlen(before), "before", &was, &ignored) == 0;
    bool parsed = pst_yaml_parse(after, strlen(after), "after", &will, &ignored) == 0;
    if (parsed)
        compare(list, "", old ? was.root : none, will.root, 0);
    if (old)
        pst_yaml_done(&was);
    if (parsed)
        pst_yaml_done(&will);
    json_decref(none);
    return list;
}

/* ---- apply ------------------------------------------------------------------------------------------------------------------------ */

static int publish(gw_task *t, const char *name, char *text, json_t *to, pst_err *err)
{
    pst_pipeline_spec s = {.name = (char *)(uintptr_t)name, .spec = text, .actor = t->actor, .time = pst_now_us()};
    int32_t partition = 0;
    int64_t offset = 0;
    int rc = pst_client_publish(t->g->client, PST_TOPIC_PIPELINES, &pst_pipeline_spec_type, name, &s, PUBLISH_MS, &partition, &offset, err);
    json_object_set_new(to, "topic", json_string(pst_client_topic(t->g->client, PST_TOPIC_PIPELINES)));
    json_object_set_new(to, "partition", json_integer(partition));
    json_object_set_new(to, "offset", json_integer(offset));
    return rc;
}

/* "pipeline:7: unknown key …" → its line too. */
static void complain(gw_task *t, const pst_err *why)
{
    json_t *one = json_pack("{s:s}", "detail", why->text);
    int line = 0;
    if (sscanf(why->text, "pipeline:%d:", &line) == 1)
        json_object_set_new(one, "line", json_integer(line));
    t->violations = json_pack("[o]", one);
}

/* The name that the path has, where it has one, is the file's. */
static int check_name(const gw_task *t, const char *name, pst_err *err)
{
    const char *wanted = pst_http_param(t->req, "pipeline");
    if (!wanted || !name || !strcmp(wanted, name))
        return 0;
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "pipelines", 0, "the file's name is %.120s, and the address says %.120s", name,
                       wanted);
}

/* What stands there already is its author's, where users are told apart. */
static bool may_replace(const gw_task *t, const json_t *old)
{
    const char *name = gw_caller_name(t->req);
    return !name || gw_caller_is_operator(t->req) || !strcmp(pst_json_str(old, "actor", ""), name);
}

static int settle(gw_task *t, const pst_pipeline_verdict *v, char *text, pst_err *err)
{
    json_t *list = NULL;
    bool dry = pst_http_query_bool(t->req, "dry_run");
    int rc = check_name(t, v->name, err);
    if (rc)
        complain(t, err);
    if (!rc)
        rc = read_all(t, &list, err);
    if (rc)
        return rc;
    const json_t *old = named(list, v->name);
    if (old && !dry && !may_replace(t, old)) {
        rc = pst_err_set(err, PST_EAUTH, PST_CLASS_DATA, "pipelines", 0,
                         "pipeline %.120s was applied by %.120s: only that user or an operator may replace it", v->name,
                         pst_json_str(old, "actor", "somebody else"));
        json_decref(list);
        return rc;
    }
    json_t *changes = difference(pst_json_str(old, "spec", NULL), text);
    const char *action = !old ? "create" : json_array_size(changes) ? "change" : "none";
    t->answer = json_pack("{s:s, s:s, s:b, s:o, s:s}", "name", v->name, "action", action, "dry_run", (int)dry, "difference", changes,
                          "report", v->report ? v->report : "");
    json_decref(list);
    return dry ? 0 : publish(t, v->name, text, t->answer, err);
}

static int apply_file(gw_task *t, pst_err *err)
{
    pst_slice body = pst_http_body(t->req);
    pst_pipeline_verdict v = {0};
    int rc = has_scoring(t, err);
    if (rc)
        return rc;
    if (!body.len || memchr(body.data, 0, body.len))
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "pipelines", 0, "the body is a pipeline file, YAML text; it %s",
                         body.len ? "holds a NUL" : "is empty");
    else
        rc = t->g->scoring->judge(t->g->client, body.data, body.len, &v, err);
    char *text = pst_strndup(body.data ? body.data : "", body.len);
    if (!rc)
        rc = settle(t, &v, text, err);
    else if (err->cls != PST_CLASS_RETRY && rc != PST_EAUTH)
        complain(t, err);
    free(text);
    free(v.name);
    free(v.report);
    return rc;
}

static int remove_one(gw_task *t, pst_err *err)
{
    const char *name = pst_http_param(t->req, "pipeline"), *topic = pst_client_topic(t->g->client, PST_TOPIC_PIPELINES);
    json_t *list = NULL;
    int32_t partition = 0;
    int64_t offset = 0;
    int rc = read_all(t, &list, err);
    if (!rc && !named(list, name))
        rc = not_there(name, err);
    json_decref(list);
    if (!rc)
        rc = pst_publish(t->g->client->bus, &(pst_out){.topic = topic, .partition = -1, .key = name, .key_len = strlen(name)}, PUBLISH_MS,
                         &partition, &offset, err);
    if (!rc)
        t->answer =
            json_pack("{s:s, s:s, s:i, s:I}", "name", name, "topic", topic, "partition", (int)partition, "offset", (json_int_t)offset);
    return rc;
}

/* ---- routes -------------------------------------------------------------------------------------------------------------------------- */

#define HANDLER(name, run)                         \
    static void name(void *arg, pst_http_req *req) \
    {                                              \
        gw_task_start(arg, req, run);              \
    }
HANDLER(list, read_list)
HANDLER(show, read_one)
HANDLER(apply, apply_file)
HANDLER(delete_one, remove_one)

static const gw_schema schemas[] = {
    {"Pipeline", GW_JSON({
         "type" : "object",
         "description" : "A PipelineSpec and what its file says; `refused`: why no scorer runs it.",
         "required" : [ "name", "spec", "actor", "time" ],
         "properties" : {
             "name" : {"type" : "string"},
             "spec" : {"type" : "string", "description" : "the file, YAML"},
             "actor" : {"type" : "string"},
             "time" : {"type" : "integer", "format" : "int64", "description" : "microseconds since 1970"},
             "inputs" : {"type" : "array", "items" : {"type" : "string"}},
             "output" : {"type" : [ "string", "null" ]},
             "group" : {"type" : "string"},
             "model" : {
                 "type" : "object",
                 "properties" : {
                     "name" : {"type" : [ "string", "null" ]},
                     "alias" : {"type" : [ "string", "null" ]},
                     "version" : {"type" : [ "integer", "null" ]}
                 }
             },
             "dead_letters" : {"type" : "array", "items" : {"type" : "string"}, "description" : "topics"},
             "canary" : {"type" : "object", "description" : "name, alias, version, percent"},
             "shadow" : {"type" : "object", "description" : "name, alias, version, topic"},
             "running" : {"$ref" : "#/components/schemas/Running"},
             "serving" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/Serving"}},
             "refused" : {"type" : "string"}
         }
     })},
    {"PipelineList", GW_JSON({
         "type" : "object",
         "required" : ["pipelines"],
         "properties" : {"pipelines" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/Pipeline"}}}
     })},
    {"Applied", GW_JSON({
         "type" : "object",
         "description" : "What changes, or would; without dry_run also where the event stands.",
         "required" : [ "name", "action", "dry_run", "difference", "report" ],
         "properties" : {
             "name" : {"type" : "string"},
             "action" : {"enum" : [ "create", "change", "none" ]},
             "dry_run" : {"type" : "boolean"},
             "difference" : {
                 "type" : "array",
                 "items" : {
                     "type" : "object",
                     "description" : "Of a key of the file. No `before`: it is new; no `after`: it is left out.",
                     "required" : ["path"],
                     "properties" : {"path" : {"type" : "string"}, "before" : {}, "after" : {}}
                 }
             },
             "report" : {"type" : "string", "description" : "what was looked at and found"},
             "topic" : {"type" : "string"},
             "partition" : {"type" : "integer"},
             "offset" : {"type" : "integer", "format" : "int64"}
         }
     })},
    {"Removed", GW_JSON({
         "type" : "object",
         "required" : [ "name", "topic", "partition", "offset" ],
         "properties" : {
             "name" : {"type" : "string"},
             "topic" : {"type" : "string"},
             "partition" : {"type" : "integer"},
             "offset" : {"type" : "integer", "format" : "int64"}
         }
     })},
    GW_LETTER_SCHEMAS,
    GW_RUNNING_SCHEMAS,
    {0}};
#define NAME                                                                                       \
    {                                                                                              \
        "pipeline", "path", GW_JSON({"type" : "string", "maxLength" : 300}), "the pipeline's name" \
    }
#define DRY                                                                                                                              \
    {                                                                                                                                    \
        "dry_run", "query", GW_JSON({"type" : "boolean", "default" : false}), "only say what would change, or all that is wrong with it" \
    }
static const gw_param of_post[] = {DRY, {0}}, of_put[] = {NAME, DRY, {0}}, of_one[] = {NAME, {0}},
                      of_count[] = {NAME, GW_LETTER_FILTERS, GW_LETTER_BY, {0}},
                      of_replay[] = {NAME, GW_LETTER_FILTERS, GW_LETTER_DRY, {0}};
static const gw_content file[] = {{"application/yaml", GW_JSON({"type" : "string"})},
                                  {"application/x-yaml", GW_JSON({"type" : "string"})},
                                  {"text/yaml", GW_JSON({"type" : "string"})},
                                  {"text/x-yaml", GW_JSON({"type" : "string"})},
                                  {0}};
#define NO_PIPELINE                                  \
    {                                                \
        404, "there is no such pipeline", GW_PROBLEM \
    }
#define NO_RIGHT                                                                               \
    {                                                                                          \
        403, "a page of another origin, or a right on the cluster that is missing", GW_PROBLEM \
    }
static const gw_answer to_list[] = {{200, "by name", "application/json", "PipelineList"}, GW_TASK_FAILED, {0}},
                       to_show[] = {{200, "the pipeline", "application/json", "Pipeline"}, NO_PIPELINE, GW_TASK_FAILED, {0}},
                       to_apply[] = {{200, "it can run; published, or with dry_run not", "application/json", "Applied"},
                                     {400, "it cannot run: `violations`, as `penstock pipelines apply` says them", GW_PROBLEM},
                                     NO_RIGHT,
                                     GW_TASK_FAILED,
                                     {0}},
                       to_delete[] = {{200, "its tombstone is published: its scorer stops", "application/json", "Removed"},
                                      NO_RIGHT,
                                      NO_PIPELINE,
                                      GW_TASK_FAILED,
                                      {0}},
                       to_count[] = GW_LETTER_COUNTED, to_replay[] = GW_LETTER_REPLAYED;

static const gw_route routes[] = {
    {{"GET", "/v1/pipelines", list, 0, GW_ALL, "The pipelines that are to run."}, "listPipelines", NULL, NULL, to_list},
    {{"POST", "/v1/pipelines", apply, FILE_MAX, GW_USER,
      "Publishes a pipeline file once it was checked as `penstock pipelines apply` does; a running platform starts a scorer for it, or "
      "changes the one "
      "that runs. With dry_run nothing is published."},
     "applyPipeline",
     of_post,
     file,
     to_apply},
    {{"GET", "/v1/pipelines/{pipeline}", show, 0, GW_ALL, "One pipeline."}, "showPipeline", of_one, NULL, to_show},
    {{"PUT", "/v1/pipelines/{pipeline}", apply, FILE_MAX, GW_USER, "The same as POST for a file of this name."},
     "putPipeline",
     of_put,
     file,
     to_apply},
    {{"DELETE", "/v1/pipelines/{pipeline}", delete_one, 0, 0, "Removes a pipeline; its scorer stops."},
     "deletePipeline",
     of_one,
     NULL,
     to_delete},
    {{"GET", "/v1/pipelines/{pipeline}/dead-letters", gw_letters_count, 0, GW_VIEWER,
      "Its dead letters, counted by kind, with the newest error of each."},
     "countPipelineLetters",
     of_count,
     NULL,
     to_count},
    {{"POST", "/v1/pipelines/{pipeline}/dead-letters/replay", gw_letters_replay, 0, 0,
      "Puts its dead letters back on the topics that they came from, each once, as `penstock dlq replay`."},
     "replayPipelineLetters",
     of_replay,
     NULL,
     to_replay},
};

const gw_noun gw_pipelines_noun = {"pipelines", "Scoring deployments: apply, see, delete; their dead letters.", routes,
                                   sizeof routes / sizeof *routes, schemas};
