/* ffdl_words.c - FfDL's words: who asks for what, and its Model of a job. What its server sends is sent as its client parses it: keys of scalars without a
 * value are left out, keys of arrays are always there; TERMINATED, which FfDL lacks, is HALTED; dates as Go prints them. A data store's `connection`
 * is not shown: it holds passwords. Whose a job is, is weighed here for every path with an id. */
#include "producers/gateway/ffdl.h"

#include "producers/gateway/caller.h"
#include "schemas/job_state.h"
#include "schemas/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- who asks, and for what ------------------------------------------------------------------------------------------------ */

char *gw_ffdl_user(const pst_http_req *req)
{
    const char *caller = gw_caller_name(req); /* under --users all else that a request says of it is a client's word */
    if (caller)
        return gw_caller_sees_all(req) ? NULL : pst_strdup(caller);
    char *name = gw_who_name(req);
    return name || pst_http_header(req, "Authorization") ? name : gw_ffdl_userinfo(req);
}

json_t *gw_ffdl_find(gw_state *g, const char *id, pst_err *err)
{
    json_t *doc = NULL;
    pst_store *s = gw_store_lock(g, err);
    int rc = s ? pst_store_get(s, "jobs", id, &doc, err) : err->code;
    gw_store_unlock(g);
    return rc < 0 ? NULL : doc;
}

json_t *gw_ffdl_job(gw_state *g, pst_http_req *req)
{
    pst_err err = {0};
    const char *id = pst_http_param(req, "id");
    char *user = gw_caller_name(req) ? pst_strdup(gw_caller_name(req)) : gw_ffdl_user(req);
    json_t *doc = gw_ffdl_find(g, id, &err);
    const char *owner = json_string_value(json_object_get(doc, "user"));
    bool touches = strcmp(pst_http_method(req), "GET") != 0 && strcmp(pst_http_method(req), "HEAD") != 0, may = doc != NULL;
    if (gw_caller_name(req))
        may = may && (touches ? gw_caller_touches(req, owner) : gw_caller_sees(req, owner));
    else
        may = may && (!user || (owner && !strcmp(user, owner)));
    if (doc && !strcmp(pst_json_str(doc, "state", ""), "REJECTED")) { /* FfDL knows none: what was refused never was */
        json_decref(doc);
        doc = NULL;
        may = false;
        err.code = PST_ENOTFOUND;
    }
    if (!doc && err.code == PST_ENOTFOUND)
        gw_ffdl_fail(req, 404, "no job has this id");
    else if (!doc)
        gw_ffdl_fail(req, 500, err.text);
    else if (!may)
        gw_ffdl_fail(req, 401, "the job belongs to another user");
    else if (user && pst_http_header(req, "Authorization"))
        gw_who_grant(g->who, pst_http_peer(req), user, id);
    free(user);
    if (may)
        return doc;
    json_decref(doc);
    return NULL;
}

const char *gw_ffdl_owner(const json_t *doc)
{
    return pst_json_str(doc, "user", "anonymous");
}

/* ---- Model ----------------------------------------------------------------------------------------------------------------- */

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

json_t *gw_ffdl_model(const json_t *doc)
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

/* ---- shapes, described ----------------------------------------------------------------------------------------------------- */

const gw_schema gw_ffdl_schemas[] = {
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
    {"FfdlId", GW_JSON({"type" : "object", "required" : ["model_id"], "properties" : {"model_id" : {"type" : "string"}}})},
    {"FfdlCreated", GW_JSON({
         "type" : "object",
         "required" : [ "model_id", "location" ],
         "properties" : {"model_id" : {"type" : "string"}, "location" : {"type" : "string"}}
     })},
    {"FfdlMeta", GW_JSON({
         "type" : "object",
         "required" : [ "training_id", "user_id", "time", "rindex" ],
         "properties" : {
             "training_id" : {"type" : "string"},
             "user_id" : {"type" : "string"},
             "time" : {"type" : "integer", "description" : "milliseconds since 1970; each record's is later than the one's before"},
             "rindex" : {"type" : "integer", "description" : "its number among the job's records that the topic has, from 1"}
         }
     })},
    {"FfdlLogLine", GW_JSON({
         "type" : "object",
         "required" : [ "meta", "line" ],
         "properties" : {"meta" : {"$ref" : "#/components/schemas/FfdlMeta"}, "line" : {"type" : "string"}}
     })},
    {"FfdlLogLines", GW_JSON({
         "type" : "object",
         "required" : ["models"],
         "properties" : {"models" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/FfdlLogLine"}}}
     })},
    {"FfdlAny", GW_JSON({
         "type" : "object",
         "required" : [ "type", "value" ],
         "properties" : {"type" : {"enum" : [ "STRING", "JSONSTRING", "INT", "FLOAT" ]}, "value" : {"type" : "string"}}
     })},
    {"FfdlEMetric", GW_JSON({
         "type" : "object",
         "required" : [ "meta", "grouplabel", "etimes", "values" ],
         "properties" : {
             "meta" : {"$ref" : "#/components/schemas/FfdlMeta"},
             "grouplabel" : {"type" : "string"},
             "etimes" : {"type" : "object", "additionalProperties" : {"$ref" : "#/components/schemas/FfdlAny"}},
             "values" : {"type" : "object", "additionalProperties" : {"$ref" : "#/components/schemas/FfdlAny"}}
         }
     })},
    {"FfdlEMetrics", GW_JSON({
         "type" : "object",
         "required" : ["models"],
         "properties" : {"models" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/FfdlEMetric"}}}
     })},
    {0}};
