/* mlflow_runs.c - runs: created, shown, ended, tagged, deleted. A platform's job is a run that only the platform starts and ends; clients may tag it and log to it.
 * Its name is a tag, as in MLflow, so that it is one fact. */
#include "producers/gateway/mlflow.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/json.h"

#include <stdlib.h>
#include <string.h>

json_t *gw_mlflow_pairs(const json_t *map)
{
    json_t *list = json_array(), *v;
    const char *key;
    json_object_foreach((json_t *)map, key, v) json_array_append_new(list, json_pack("{s:s, s:O}", "key", key, "value", v));
    return list;
}

static json_t *values(const json_t *map)
{
    json_t *list = json_array(), *v;
    const char *key;
    json_object_foreach((json_t *)map, key, v) json_array_append_new(list, json_deep_copy(v));
    return list;
}

json_t *gw_mlflow_run_json(const gw_run *r)
{
    json_t *info = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:o, s:s}", "run_id", r->id, "run_uuid", r->id, "run_name",
                             pst_json_str(r->tags, "mlflow.runName", ""), "experiment_id", r->experiment_id, "user_id", r->user, "status",
                             r->status, "start_time", (json_int_t)r->start_ms, "artifact_uri",
                             json_sprintf("mlflow-artifacts:/%s/%s/artifacts", r->experiment_id, r->id), "lifecycle_stage",
                             r->deleted ? "deleted" : "active");
    if (r->end_ms)
        json_object_set_new(info, "end_time", json_integer(r->end_ms));
    return json_pack("{s:o, s:{s:o, s:o, s:o}, s:{}}", "info", info, "data", "metrics", values(r->metrics), "params",
                     gw_mlflow_pairs(r->params), "tags", gw_mlflow_pairs(r->tags), "inputs");
}

gw_run *gw_mlflow_find_run(gw_state *g, pst_http_req *req, gw_tracking *t, const char *id, bool any)
{
    gw_run *r = gw_tracking_run(t, id);
    if (r && (any || !r->deleted))
        return r;
    bool deleted = r != NULL;
    gw_mlflow_unlock(g);
    if (deleted)
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "The run %.100s must be in the 'active' state. Current state is deleted.", id);
    else
        gw_mlflow_fail(req, "RESOURCE_DOES_NOT_EXIST", "Run with id=%.100s not found", id);
    return NULL;
}

bool gw_mlflow_key_ok(pst_http_req *req, const char *what, const char *key)
{
    size_t n = strlen(key);
    bool dots = !strncmp(key, "../", 3) || !strcmp(key, "..") || strstr(key, "/../") || (n > 2 && !strcmp(key + n - 3, "/.."));
    const char *why = NULL;
    if (!n)
        why = "is empty";
    else if (n > GW_MLFLOW_KEY_MAX)
        why = "exceeds the maximum length of 250 bytes";
    else if (*key == '/' || dots || strstr(key, "//") || key[n - 1] == '/')
        why = "must be a name that could be a path: no slash at its ends, no .. and no empty part";
    for (size_t i = 0; i < n && !why; i++)
        if ((unsigned char)key[i] < 0x20 || key[i] == 0x7f)
            why = "has a control character";
    if (why)
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Invalid value \"%.60s\" for parameter '%s': it %s", key, what, why);
    return !why;
}

bool gw_mlflow_tag_ok(pst_http_req *req, const char *key, const char *value)
{
    if (!gw_mlflow_key_ok(req, "key", key))
        return false;
    if (strlen(value) <= GW_MLFLOW_TAG_MAX)
        return true;
    gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Tag '%.60s' has a value of %zu bytes; it may have %d", key, strlen(value),
                   GW_MLFLOW_TAG_MAX);
    return false;
}

bool gw_mlflow_add_tags(gw_facts *f, pst_http_req *req, const char *subject, const json_t *tags)
{
    size_t i;
    json_t *tag;
    if (json_array_size(tags) > GW_MLFLOW_BATCH_PARAMS_MAX) {
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "A request has at most %d tags; this one has %zu", GW_MLFLOW_BATCH_PARAMS_MAX,
                       json_array_size(tags));
        return false;
    }
    json_array_foreach((json_t *)tags, i, tag)
    {
        const char *key = gw_mlflow_want(req, tag, "key"), *value = key ? gw_mlflow_value(req, tag) : NULL;
        if (!value || !gw_mlflow_tag_ok(req, key, value))
            return false;
        gw_facts_tag(f, subject, key, value);
    }
    return true;
}

/* ---- create, get ----------------------------------------------------------------------------------------------------------- */

static void reply_run(gw_state *g, pst_http_req *req, const char *id)
{
    gw_tracking *t = gw_mlflow_lock_again(g);
    const gw_run *r = gw_mlflow_find_run(g, req, t, id, true);
    if (!r)
        return;
    json_t *j = json_pack("{s:o}", "run", gw_mlflow_run_json(r));
    gw_mlflow_unlock(g);
    gw_mlflow_reply(req, j);
}

static const char *tag_of(const json_t *body, const char *wanted)
{
    size_t i;
    json_t *tag;
    json_array_foreach(json_object_get(body, "tags"), i, tag)
    {
        if (!strcmp(pst_json_str(tag, "key", ""), wanted))
            return pst_json_str(tag, "value", NULL);
    }
    return NULL;
}

/* Of a new run: what is said, or the words of its id, since a page shows runs by their names. */
static char *name_of(const json_t *body, const char *id)
{
    const char *name = pst_json_str(body, "run_name", NULL);
    if (!name || !*name)
        name = tag_of(body, "mlflow.runName");
    return name && *name ? pst_strdup(name) : pst_sprintf("run-%.8s", id);
}

static void send_new_run(gw_state *g, pst_http_req *req, const json_t *body, const char *experiment_id)
{
    uint8_t random[16];
    char id[33];
    int64_t start_ms = pst_now_us() / 1000;
    pst_random(random, sizeof random);
    pst_hex(random, sizeof random, id);
    if (!gw_mlflow_int(body, "start_time", &start_ms)) {
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Invalid value for parameter 'start_time': milliseconds since 1970");
        return;
    }
    char *name = name_of(body, id), *subject = pst_sprintf("run:%s", id), *actor = gw_mlflow_actor(req);
    const char *user = pst_json_str(body, "user_id", ""), *of_tag = tag_of(body, "mlflow.user");
    gw_facts *f = gw_facts_new(g, req);
    if (!*user)
        user = of_tag && *of_tag ? of_tag : actor;
    gw_facts_add(f, (pst_tracking_record){.subject = subject,
                                          .kind = PST_TRACKING_KIND_CREATED,
                                          .value = (char *)user,
                                          .experiment_id = (char *)experiment_id,
                                          .timestamp = start_ms});
    bool ok = gw_mlflow_add_tags(f, req, subject, json_object_get(body, "tags")) && gw_mlflow_tag_ok(req, "mlflow.runName", name);
    if (ok) {
        gw_facts_tag(f, subject, "mlflow.runName", name);
        gw_facts_send(f, reply_run, id);
    } else
        gw_facts_drop(f);
    free(actor);
    free(name);
    free(subject);
}

static void create(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    gw_tracking *t = gw_mlflow_lock(g, req, create);
    if (!t)
        return;
    json_t *body = gw_mlflow_body(req);
    const char *id = pst_json_str(body, "experiment_id", GW_MLFLOW_DEFAULT);
    const gw_experiment *e = gw_tracking_experiment(t, *id ? id : GW_MLFLOW_DEFAULT);
    bool there = e != NULL, deleted = e && e->deleted;
    gw_mlflow_unlock(g);
    if (body && !there)
        gw_mlflow_fail(req, "RESOURCE_DOES_NOT_EXIST", "No Experiment with id=%.80s exists", id);
    else if (body && deleted)
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "The experiment %.80s must be in the 'active' state. Current state is deleted.", id);
    else if (body)
        send_new_run(g, req, body, *id ? id : GW_MLFLOW_DEFAULT);
    json_decref(body);
}

static void get(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    if (!gw_mlflow_lock(g, req, get))
        return;
    gw_mlflow_unlock(g);
    const char *id = gw_query(req, "run_id"), *old = gw_query(req, "run_uuid");
    if (!id || !*id)
        id = old;
    reply_run(g, req, id ? id : "");
}

/* ---- changes --------------------------------------------------------------------------------------------------------------- */

gw_run *gw_mlflow_body_run(gw_state *g, pst_http_req *req, pst_http_handler handler, bool any, json_t **ret_body)
{
    gw_tracking *t = gw_mlflow_lock(g, req, handler);
    if (!t)
        return NULL;
    json_t *body = gw_mlflow_body(req);
    const char *id = pst_json_str(body, "run_id", pst_json_str(body, "run_uuid", ""));
    gw_run *r = NULL;
    if (!body)
        gw_mlflow_unlock(g);
    else
        r = gw_mlflow_find_run(g, req, t, id, any);
    if (r)
        *ret_body = body;
    else
        json_decref(body);
    return r;
}

static void reply_info(gw_state *g, pst_http_req *req, const char *id)
{
    gw_tracking *t = gw_mlflow_lock_again(g);
    const gw_run *r = gw_mlflow_find_run(g, req, t, id, true);
    if (!r)
        return;
    json_t *whole = gw_mlflow_run_json(r), *j = json_pack("{s:O}", "run_info", json_object_get(whole, "info"));
    gw_mlflow_unlock(g);
    json_decref(whole);
    gw_mlflow_reply(req, j);
}

static const char *status_ok(const char *status)
{
    static const char *const all[] = {"RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i], status))
            return all[i];
    return NULL;
}

static void send_update(gw_state *g, pst_http_req *req, const json_t *body, const char *id, int64_t end_ms)
{
    const char *status = pst_json_str(body, "status", NULL), *name = pst_json_str(body, "run_name", NULL);
    char *subject = pst_sprintf("run:%s", id);
    gw_facts *f = gw_facts_new(g, req);
    bool ok = true;
    if (status && !status_ok(status)) {
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE",
                       "Invalid value \"%.40s\" for parameter 'status': RUNNING, SCHEDULED, FINISHED, FAILED or KILLED", status);
        ok = false;
    } else if (status)
        gw_facts_add(
            f, (pst_tracking_record){.subject = subject, .kind = PST_TRACKING_KIND_STATUS, .value = (char *)status, .timestamp = end_ms});
    if (ok && name && *name && (ok = gw_mlflow_tag_ok(req, "mlflow.runName", name)))
        gw_facts_tag(f, subject, "mlflow.runName", name);
    if (ok)
        gw_facts_send(f, reply_info, id);
    else
        gw_facts_drop(f);
    free(subject);
}

static void update(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    json_t *body = NULL;
    gw_run *r = gw_mlflow_body_run(g, req, update, false, &body);
    if (!r)
        return;
    char *id = pst_strdup(r->id);
    int64_t end_ms = r->end_ms;
    bool job = r->job;
    gw_mlflow_unlock(g);
    if (job && json_object_get(body, "status"))
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE",
                       "%.100s is a job of the platform, which alone says how it stands; halt or terminate it instead", id);
    else if (!gw_mlflow_int(body, "end_time", &end_ms) || end_ms < 0)
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Invalid value for parameter 'end_time': milliseconds since 1970");
    else
        send_update(g, req, body, id, end_ms);
    json_decref(body);
    free(id);
}

static void set_lifecycle(gw_state *g, pst_http_req *req, pst_http_handler handler, const char *lifecycle)
{
    json_t *body = NULL;
    gw_run *r = gw_mlflow_body_run(g, req, handler, true, &body);
    if (!r)
        return;
    char *subject = pst_sprintf("run:%s", r->id);
    gw_mlflow_unlock(g);
    gw_facts *f = gw_facts_new(g, req);
    gw_facts_add(f, (pst_tracking_record){.subject = subject, .kind = PST_TRACKING_KIND_LIFECYCLE, .value = (char *)lifecycle});
    gw_facts_send(f, NULL, NULL);
    json_decref(body);
    free(subject);
}

static void delete_it(void *arg, pst_http_req *req)
{
    set_lifecycle(arg, req, delete_it, "deleted");
}

static void restore(void *arg, pst_http_req *req)
{
    set_lifecycle(arg, req, restore, "active");
}

static void delete_tag(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    json_t *body = NULL;
    gw_run *r = gw_mlflow_body_run(g, req, delete_tag, false, &body);
    if (!r)
        return;
    const char *key = pst_json_str(body, "key", "");
    bool there = json_object_get(r->tags, key) != NULL;
    char *subject = pst_sprintf("run:%s", r->id);
    gw_mlflow_unlock(g);
    if (!there)
        gw_mlflow_fail(req, "RESOURCE_DOES_NOT_EXIST", "No tag with name: %.100s in the run", key);
    else {
        gw_facts *f = gw_facts_new(g, req);
        gw_facts_remove(f, subject, PST_TRACKING_KIND_TAG, key);
        gw_facts_send(f, NULL, NULL);
    }
    json_decref(body);
    free(subject);
}

static const gw_param of_get[] = {{"run_id", "query", GW_JSON({"type" : "string"}), "its id; of a platform's job its training id"},
                                  {"run_uuid", "query", GW_JSON({"type" : "string"}), "the same, as older clients say"},
                                  {0}};
#define POST(path, fn, name, doc)                                                                                                     \
    {                                                                                                                                 \
        {"POST", GW_MLFLOW_ROOT "/runs/" path, fn, GW_MLFLOW_BODY_MAX, GW_MLFLOW, doc}, name, NULL, gw_mlflow_json, gw_mlflow_answers \
    }
static const gw_route routes[] = {
    POST("create", create, "mlflowCreateRun", "Creates a run: `experiment_id`, `run_name`, `start_time`, `tags`."),
    {{"GET", GW_MLFLOW_ROOT "/runs/get", get, 0, GW_MLFLOW, "One run: its state, parameters, tags and newest metrics."},
     "mlflowGetRun",
     of_get,
     NULL,
     gw_mlflow_answers},
    POST("update", update, "mlflowUpdateRun", "State, end and name: `run_id`, `status`, `end_time`, `run_name`."),
    POST("search", gw_mlflow_search_runs, "mlflowSearchRuns",
         "Runs: `experiment_ids`, `filter`, `order_by`, `run_view_type`, `max_results`, `page_token`."),
    POST("delete", delete_it, "mlflowDeleteRun", "Marks it as deleted: `run_id`."),
    POST("restore", restore, "mlflowRestoreRun", "Takes that back."),
    POST("delete-tag", delete_tag, "mlflowDeleteTag", "Removes a tag: `run_id`, `key`."),
};
const gw_noun gw_mlflow_runs_noun = {"mlflow runs", "MLflow's runs; platform jobs are runs under their training ids.", routes,
                                     sizeof routes / sizeof *routes, gw_mlflow_schemas};
