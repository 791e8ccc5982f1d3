/* ffdl.c - what FfDL's REST reads of jobs: GET /v1/models and /v1/models/{id}, in its words and shapes, so that who lists jobs with FfDL's client
 * sees these. Its other operations are not served yet, and answered as any unknown path.
 *
 * Shapes as FfDL's server sends them: keys of scalars without a value are left out, keys of arrays are always there; TERMINATED, which FfDL
 * lacks, is HALTED; dates as Go prints them, which its client parses. A data store's `connection` is not shown: it holds passwords. */
#include "producers/gateway/gateway.h"

#include "producers/gateway/routes.h"
#include "schemas/job_state.h"
#include "schemas/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LIST_MAX = 1000 };

/* FfDL's error object: its client shows `error` and `description`. */
static void fail(pst_http_req *req, int status, const char *error, const char *description)
{
    json_t *j = json_pack("{s:i, s:s, s:s}", "code", status, "error", error, "description", description);
    pst_http_reply_json(req, status, j);
}

/* Whose jobs: the name of basic authentication. A bearer of the token is the operator and sees all; free(). */
static char *caller(const pst_http_req *req)
{
    char *name = gw_who_name(req);
    if (name && !*name) {
        free(name);
        name = NULL;
    }
    return name;
}

/* "2006-01-02 15:04:05.999 +0000 UTC" */
static void set_time(json_t *to, const char *key, const json_t *us)
{
    int64_t at = json_integer_value(us);
    time_t s = (time_t)(at / 1000000);
    struct tm t;
    char text[64];
    if (!at || !gmtime_r(&s, &t))
        return;
    size_t n = strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &t);
    snprintf(text + n, sizeof text - n, ".%03d +0000 UTC", (int)(at / 1000 % 1000));
    json_object_set_new(to, key, json_string(text));
}

static void set_text(json_t *to, const char *key, const char *text)
{
    if (text && *text)
        json_object_set_new(to, key, json_string(text));
}

static void set_number(json_t *to, const char *key, double number)
{
    if (number != 0)
        json_object_set_new(to, key, json_real(number));
}

static json_t *status_of(const json_t *doc)
{
    json_t *s = json_object();
    const char *state = json_string_value(json_object_get(doc, "state"));
    if (state && !strcmp(state, "TERMINATED"))
        state = "HALTED";
    set_text(s, "status", state);
    set_text(s, "status_description", state);
    set_text(s, "status_message", json_string_value(json_object_get(doc, "reason")));
    set_text(s, "error_code", json_string_value(json_object_get(doc, "reason_code")));
    set_time(s, "submitted", json_object_get(doc, "submitted_at"));
    set_time(s, "completed", json_object_get(doc, "ended_at"));
    return s;
}

static json_t *training_of(const json_t *doc, const pst_manifest *m)
{
    json_t *t = json_object(), *in = json_array(), *out = json_array();
    set_text(t, "command", m->command);
    set_number(t, "cpus", m->cpus);
    set_number(t, "gpus", m->gpus);
    set_number(t, "memory", (double)m->memory_bytes / (1 << 20));
    set_text(t, "memory_unit", "MiB");
    json_object_set_new(t, "learners", json_integer(m->learners));
    for (size_t i = 0; i < m->n_stores; i++) {
        const pst_data_store *d = &m->stores[i];
        if (d->input)
            json_array_append_new(in, json_sprintf("%s-input", d->id ? d->id : ""));
        if (d->output)
            json_array_append_new(out, json_sprintf("%s-output", d->id ? d->id : ""));
    }
    json_object_set_new(t, "input_data", in);
    json_object_set_new(t, "output_data", out);
    json_object_set_new(t, "training_status", status_of(doc));
    return t;
}

static json_t *stores_of(const json_t *doc, const pst_manifest *m)
{
    json_t *list = json_array();
    const char *state = json_string_value(json_object_get(doc, "state"));
    pst_job_public_state s = state ? pst_job_public_state_parse(state) : PST_JOB_PUBLIC_STATE_UNKNOWN;
    for (size_t i = 0; i < m->n_stores && !pst_job_state_is_ended(s); i++) /* as FfDL: none once it has ended */
        json_array_append_new(list, json_pack("{s:s, s:s}", "data_store_id", m->stores[i].id ? m->stores[i].id : "", "type",
                                              m->stores[i].type ? m->stores[i].type : ""));
    return list;
}

/* FfDL's Model of a job's document. */
static json_t *model_of(const json_t *doc)
{
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    const char *id = json_string_value(json_object_get(doc, "training_id")), *text = json_string_value(json_object_get(doc, "manifest"));
    pst_manifest_parse(text ? text : "", text ? strlen(text) : 0, &m, &errors, &warnings); /* what cannot be read is left out */
    json_t *model = json_object(), *framework = json_object();
    set_text(model, "model_id", id);
    json_object_set_new(model, "location", json_sprintf("/v1/models/%s", id ? id : ""));
    set_text(model, "name", json_string_value(json_object_get(doc, "name")));
    set_text(model, "description", json_string_value(json_object_get(doc, "description")));
    set_text(framework, "name", m.framework);
    set_text(framework, "version", m.framework_version);
    json_object_set_new(model, "framework", framework);
    json_object_set_new(model, "training", training_of(doc, &m));
    json_object_set_new(model, "data_stores", stores_of(doc, &m));
    json_object_set_new(model, "metrics", json_array());
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    return model;
}

static void list(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    pst_err err = {0};
    json_t *docs = NULL, *doc, *models = json_array();
    size_t i;
    char *user = caller(req);
    pst_store *s = gw_store_lock(g, &err);
    int rc = s ? pst_store_list(s, "jobs", &(pst_store_query){.user = user, .limit = LIST_MAX}, &docs, &err) : err.code;
    gw_store_unlock(g);
    json_array_foreach(docs, i, doc) json_array_append_new(models, model_of(doc));
    if (rc < 0 && (s || rc != PST_ENOTFOUND)) { /* no store yet: the Trainer has seen no job */
        fail(req, 500, "Internal server error", err.text);
        json_decref(models);
    } else {
        pst_http_reply_json(req, 200, json_pack("{s:o}", "models", models));
    }
    json_decref(docs);
    free(user);
}

static void show(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    pst_err err = {0};
    json_t *doc = NULL;
    char *user = caller(req);
    pst_store *s = gw_store_lock(g, &err);
    int rc = s ? pst_store_get(s, "jobs", pst_http_param(req, "id"), &doc, &err) : err.code;
    gw_store_unlock(g);
    const char *owner = json_string_value(json_object_get(doc, "user"));
    if (rc == PST_ENOTFOUND)
        fail(req, 404, "Not found", "no job has this id; one just submitted appears once the Trainer has seen it");
    else if (rc < 0)
        fail(req, 500, "Internal server error", err.text);
    else if (user && (!owner || strcmp(user, owner) != 0))
        fail(req, 401, "Unauthorized", "the job belongs to another user");
    else
        pst_http_reply_json(req, 200, model_of(doc));
    json_decref(doc);
    free(user);
}

static const gw_schema schemas[] = {
    {"FfdlError", GW_JSON({
         "type" : "object",
         "description" : "FfDL's error object.",
         "required" : [ "code", "error", "description" ],
         "properties" : {"code" : {"type" : "integer"}, "error" : {"type" : "string"}, "description" : {"type" : "string"}}
     })},
    {"FfdlModelList", GW_JSON({
         "type" : "object",
         "required" : ["models"],
         "properties" : {"models" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/FfdlModel"}}}
     })},
    {"FfdlModel", GW_JSON({
         "type" : "object",
         "description" : "A job in FfDL's words. Keys without a value are left out.",
         "required" : [ "location", "framework", "training", "data_stores", "metrics" ],
         "properties" : {
             "model_id" : {"type" : "string"},
             "location" : {"type" : "string"},
             "name" : {"type" : "string"},
             "description" : {"type" : "string"},
             "framework" : {"type" : "object", "properties" : {"name" : {"type" : "string"}, "version" : {"type" : "string"}}},
             "training" : {
                 "type" : "object",
                 "properties" : {
                     "command" : {"type" : "string"},
                     "cpus" : {"type" : "number"},
                     "gpus" : {"type" : "number"},
                     "memory" : {"type" : "number"},
                     "memory_unit" : {"type" : "string"},
                     "learners" : {"type" : "integer"},
                     "input_data" : {"type" : "array", "items" : {"type" : "string"}},
                     "output_data" : {"type" : "array", "items" : {"type" : "string"}},
                     "training_status" : {"$ref" : "#/components/schemas/FfdlStatus"}
                 }
             },
             "data_stores" : {
                 "type" : "array",
                 "items" : {"type" : "object", "properties" : {"data_store_id" : {"type" : "string"}, "type" : {"type" : "string"}}}
             },
             "metrics" : {"type" : "array", "items" : {"type" : "object"}}
         }
     })},
    {"FfdlStatus", GW_JSON({
         "type" : "object",
         "properties" : {
             "status" : {"type" : "string"},
             "status_description" : {"type" : "string"},
             "status_message" : {"type" : "string"},
             "error_code" : {"type" : "string"},
             "submitted" : {"type" : "string"},
             "completed" : {"type" : "string"}
         }
     })},
    {0}};
#define FFDL_ERROR "application/json", "FfdlError"
static const gw_param of_job[] = {GW_ID, {0}};
static const gw_answer to_list[] = {{200, "newest first, 1,000 at most", "application/json", "FfdlModelList"},
                                    {500, "the store could not be read", FFDL_ERROR},
                                    {0}},
                       to_show[] = {{200, "the job", "application/json", "FfdlModel"},
                                    {404, "no job has this id", FFDL_ERROR},
                                    {500, "the store could not be read", FFDL_ERROR},
                                    {0}};

static const gw_route routes[] = {
    {{"GET", "/v1/models", list, 0, 0,
      "FfDL's list of jobs, newest first: `{\"models\": […]}`. With basic authentication those of its user, with a bearer token all."},
     "listModels",
     NULL,
     NULL,
     to_list},
    {{"GET", "/v1/models/{id}", show, 0, 0, "One job as FfDL's `Model`. 401 also for a job of another user."},
     "showModel",
     of_job,
     NULL,
     to_show},
};

const gw_noun gw_ffdl_noun = {"ffdl", "Jobs as FfDL's REST interface shows them.", routes, sizeof routes / sizeof *routes, schemas};
