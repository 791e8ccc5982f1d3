/* registry.c - /v1/registry/models: versions of models, their aliases and their artefacts. Answers come from the topic of models itself, read to its present
 * end, and not from the store: who has just registered a version or moved an alias sees it in the next answer. */
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/settings.h"
#include "common/platform/models.h"
#include "producers/gateway/pour.h"
#include "producers/gateway/routes.h"
#include "producers/gateway/task.h"
#include "schemas/avro.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BODY_MAX = 64 << 10, LIMIT = 100, LIMIT_MAX = 1000 };

static int load(gw_task *t, pst_models **ret, pst_err *err)
{
    *ret = pst_models_new();
    int rc = pst_models_load(*ret, t->g->client, err);
    if (rc == PST_ENOTFOUND) { /* no topic yet: no models yet */
        pst_err_clear(err);
        rc = 0;
    }
    return rc;
}

static int no_model(const char *name, pst_err *err)
{
    return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0, "there is no model %.200s; GET /v1/registry/models has all", name);
}

/* ---- as JSON ----------------------------------------------------------------------------------------------------------------- */

static json_t *version_json(const pst_model_event *v, const char *aliases)
{
    json_t *j = pst_event_to_json(&pst_model_event_type, v), *list = json_array();
    for (const char *a = aliases; *a;) {
        size_t n = strcspn(a, ",");
        json_array_append_new(list, json_stringn(a, n));
        a += n + (a[n] == ',');
    }
    json_object_set_new(j, "aliases", list);
    return j;
}

/* Versions of one name follow each other: they gather in the last model of the list. */
static void add_version(void *arg, const pst_model_event *v, const char *aliases)
{
    json_t *models = arg, *m = json_array_get(models, json_array_size(models) - 1);
    if (!m || strcmp(pst_json_str(m, "name", ""), v->name)) {
        m = json_pack("{s:s, s:{}, s:[]}", "name", v->name, "aliases", "versions");
        json_array_append_new(models, m);
    }
    for (const char *a = aliases; *a;) {
        size_t n = strcspn(a, ",");
        char *alias = pst_strndup(a, n);
        json_object_set_new(json_object_get(m, "aliases"), alias, json_integer(v->version));
        free(alias);
        a += n + (a[n] == ',');
    }
    json_array_append_new(json_object_get(m, "versions"), version_json(v, aliases));
}

/* All models, or the one of that name; a new array. */
static json_t *models_json(const pst_models *m, const char *name)
{
    json_t *list = json_array();
    pst_models_each(m, name, add_version, list);
    return list;
}

/* ---- list and show ------------------------------------------------------------------------------------------------------------- */

/* In a list a model is its newest version, not all of them. */
static json_t *summary(const json_t *model)
{
    const json_t *versions = json_object_get(model, "versions");
    size_t n = json_array_size(versions);
    return json_pack("{s:O, s:O, s:I, s:O}", "name", json_object_get(model, "name"), "aliases", json_object_get(model, "aliases"),
                     "versions", (json_int_t)n, "latest", json_array_get(versions, n - 1));
}

static int read_list(gw_task *t, pst_err *err)
{
    pst_models *m = NULL;
    const char *token = gw_query(t->req, "page_token");
    size_t limit = gw_limit(t->req, LIMIT, LIMIT_MAX), i;
    json_t *page = json_array(), *all = NULL, *one, *next = json_null();
    int rc = load(t, &m, err);
    if (!rc)
        all = models_json(m, NULL);
    json_array_foreach(all, i, one) /* by name, so that a name is the place to go on behind, whatever comes or goes meanwhile */
    {
        if (token && *token && strcmp(pst_json_str(one, "name", ""), token) <= 0)
            continue;
        if (json_array_size(page) == limit) {
            json_decref(next);
            next = json_incref(json_object_get(json_array_get(page, limit - 1), "name"));
            break;
        }
        json_array_append_new(page, summary(one));
    }
    t->answer = json_pack("{s:o, s:o}", "models", page, "next_page_token", next);
    json_decref(all);
    pst_models_free(m);
    return rc;
}

static int read_model(gw_task *t, pst_err *err)
{
    pst_models *m = NULL;
    const char *name = pst_http_param(t->req, "model");
    int rc = load(t, &m, err);
    json_t *found = rc ? NULL : models_json(m, name);
    if (!rc && !json_array_size(found))
        rc = no_model(name, err);
    else if (!rc)
        t->answer = json_incref(json_array_get(found, 0));
    json_decref(found);
    pst_models_free(m);
    return rc;
}

static int read_part(gw_task *t, const char *part, pst_err *err)
{
    int rc = read_model(t, err);
    json_t *whole = t->answer;
    if (!rc)
        t->answer = json_pack("{s:O}", part, json_object_get(whole, part));
    json_decref(rc ? NULL : whole);
    return rc;
}

static int read_versions(gw_task *t, pst_err *err)
{
    return read_part(t, "versions", err);
}

static int read_aliases(gw_task *t, pst_err *err)
{
    return read_part(t, "aliases", err);
}

/* The version that the path names, by number, by alias, or `latest`. Borrowed from m. */
static int find_version(const pst_models *m, const pst_http_req *req, const pst_model_event **ret, pst_err *err)
{
    const char *name = pst_http_param(req, "model"), *version = pst_http_param(req, "version"), *alias = pst_http_param(req, "alias");
    int n = version ? atoi(version) : 0; /* check.c has looked at it */
    *ret = pst_models_resolve(m, name, alias, n);
    if (*ret)
        return 0;
    if (!pst_models_resolve(m, name, NULL, 0))
        return no_model(name, err);
    return alias ? pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0, "model %.200s has no alias %.200s", name, alias)
                 : pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0, "model %.200s has no version %d", name, n);
}

static json_t *with_aliases(const pst_models *m, const pst_model_event *v)
{
    json_t *models = models_json(m, v->name), *found = NULL, *one;
    size_t i;
    json_array_foreach(json_object_get(json_array_get(models, 0), "versions"), i, one) if (pst_json_int(one, "version", 0) == v->version)
        found = json_incref(one);
    json_decref(models);
    return found ? found : version_json(v, "");
}

static int read_version(gw_task *t, pst_err *err)
{
    pst_models *m = NULL;
    const pst_model_event *v = NULL;
    int rc = load(t, &m, err);
    if (!rc)
        rc = find_version(m, t->req, &v, err);
    if (!rc)
        t->answer = with_aliases(m, v);
    pst_models_free(m);
    return rc;
}

/* ---- changes --------------------------------------------------------------------------------------------------------------------- */

static int read_wish(gw_task *t, int *ret_version, char **ret_reason, pst_err *err)
{
    pst_slice body = pst_http_body(t->req);
    json_t *j = NULL;
    int rc = pst_json_parse(body.data, body.len, "the body", &j, err);
    const json_t *version = json_object_get(j, "version"), *reason = json_object_get(j, "reason");
    bool whole = json_is_integer(version) && json_integer_value(version) > 0 && json_integer_value(version) <= INT32_MAX;
    if (!rc && (!json_is_object(j) || !whole))
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "models", 0, "the body must be an object with `version`, a number from 1 on");
    else if (!rc && reason && !json_is_string(reason) && !json_is_null(reason))
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "models", 0, "`reason` must be a text");
    if (!rc) {
        *ret_version = (int)json_integer_value(version);
        *ret_reason = json_is_string(reason) ? pst_strdup(json_string_value(reason)) : NULL;
    }
    json_decref(j);
    return rc;
}

static int set_alias(gw_task *t, pst_err *err)
{
    const char *name = pst_http_param(t->req, "model"), *alias = pst_http_param(t->req, "alias");
    int version = 0;
    char *reason = NULL;
    int rc = read_wish(t, &version, &reason, err);
    if (!rc)
        rc = pst_models_set_alias(t->g->client, name, alias, version, t->actor, reason, NULL, err);
    free(reason);
    return rc ? rc : read_version(t, err);
}

static int delete_alias(gw_task *t, pst_err *err)
{
    t->status = 204;
    return pst_models_delete(t->g->client, pst_http_param(t->req, "model"), 0, pst_http_param(t->req, "alias"), t->actor, NULL, err);
}

static int delete_version(gw_task *t, pst_err *err)
{
    t->status = 204;
    return pst_models_delete(t->g->client, pst_http_param(t->req, "model"), atoi(pst_http_param(t->req, "version")), NULL, t->actor, NULL,
                             err);
}

/* ---- download ---------------------------------------------------------------------------------------------------------------------- */

typedef struct download {
    gw_state *g;
    char *name, *alias;
    int version;
} download;

static void download_done(void *arg)
{
    download *d = arg;
    free(d->name);
    free(d->alias);
    free(d);
}

/* @thread its own */
static int send_artefact(void *arg, gw_pour *p, pst_err *err)
{
    download *d = arg;
    pst_models *m = pst_models_new();
    pst_objects *o = NULL;
    char uuid[37];
    pst_uuid7(uuid);
    char *name = pst_sprintf("download-%s", uuid), *path = pst_fs_join(d->g->client->settings->state_dir.value, name);
    int fd = -1, rc = pst_models_load(m, d->g->client, err);
    const pst_model_event *v = rc ? NULL : pst_models_resolve(m, d->name, d->alias, d->version);
    if (!rc && !v)
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0, "there is no such version of model %.200s", d->name);
    if (!rc)
        rc = pst_objects_open(pst_setting_full(&d->g->client->settings->objects), &o, err);
    if (!rc)
        rc = pst_objects_get_file(o, v->uri, v->digest, path, err);
    if (!rc) {
        fd = open(path, O_RDONLY | O_CLOEXEC);
        rc = fd < 0 ? pst_err_sys(err, errno, "cannot read %s", path) : 0;
        unlink(path);
    }
    pst_objects_close(o);
    pst_models_free(m);
    free(name);
    free(path);
    return rc ? rc : gw_pour_file(p, fd, err);
}

static void fetch(void *arg, pst_http_req *req)
{
    const char *version = pst_http_param(req, "version"), *alias = pst_http_param(req, "alias");
    download *d = pst_alloc(sizeof *d);
    *d = (download){.g = arg,
                    .name = pst_strdup(pst_http_param(req, "model")),
                    .alias = alias ? pst_strdup(alias) : NULL,
                    .version = version ? atoi(version) : 0};
    gw_pour_start(arg, req,
                  &(gw_source){.name = "gateway-model",
                               .type = "application/octet-stream",
                               .whole = true,
                               .run = send_artefact,
                               .done = download_done,
                               .arg = d});
}

/* ---- routes ---------------------------------------------------------------------------------------------------------------------- */

#define HANDLER(name, run)                         \
    static void name(void *arg, pst_http_req *req) \
    {                                              \
        gw_task_start(arg, req, run);              \
    }
HANDLER(list, read_list)
HANDLER(show, read_model)
HANDLER(versions, read_versions)
HANDLER(version_of, read_version)
HANDLER(aliases_of, read_aliases)
HANDLER(move, set_alias)
HANDLER(unalias, delete_alias)
HANDLER(remove_version, delete_version)

static const gw_schema schemas[] = {
    {"ModelVersion", GW_JSON({
         "allOf" : [
             {"$ref" : "#/components/schemas/ModelEvent"},
             {"type" : "object", "required" : ["aliases"], "properties" : {"aliases" :
                                                                               {"type" : "array", "items" : {"type" : "string"}}}}
         ]
     })},
    {"ModelAliases",
     GW_JSON(
         {"type" : "object", "description" : "An alias and the version that it means.", "additionalProperties" : {"type" : "integer"}})},
    {"Model", GW_JSON({
         "type" : "object",
         "required" : [ "name", "aliases", "versions" ],
         "properties" : {
             "name" : {"type" : "string"},
             "aliases" : {"$ref" : "#/components/schemas/ModelAliases"},
             "versions" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/ModelVersion"}}
         }
     })},
    {"ModelList", GW_JSON({
         "type" : "object",
         "required" : [ "models", "next_page_token" ],
         "properties" : {
             "models" : {
                 "type" : "array",
                 "items" : {
                     "type" : "object",
                     "required" : [ "name", "aliases", "versions", "latest" ],
                     "properties" : {
                         "name" : {"type" : "string"},
                         "aliases" : {"$ref" : "#/components/schemas/ModelAliases"},
                         "versions" : {"type" : "integer", "description" : "how many"},
                         "latest" : {"$ref" : "#/components/schemas/ModelVersion"}
                     }
                 }
             },
             "next_page_token" : {"type" : [ "string", "null" ]}
         }
     })},
    {"ModelVersions", GW_JSON({
         "type" : "object",
         "required" : ["versions"],
         "properties" : {"versions" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/ModelVersion"}}}
     })},
    {"ModelAliasList",
     GW_JSON({"type" : "object", "required" : ["aliases"], "properties" : {"aliases" : {"$ref" : "#/components/schemas/ModelAliases"}}})},
    {"AliasWish", GW_JSON({
         "type" : "object",
         "required" : ["version"],
         "properties" : {
             "version" : {"type" : "integer", "minimum" : 1, "maximum" : 2147483647},
             "reason" : {"type" : [ "string", "null" ], "description" : "kept with the event"}
         }
     })},
    {0}};
#define MODEL                                                                                \
    {                                                                                        \
        "model", "path", GW_JSON({"type" : "string", "maxLength" : 300}), "the model's name" \
    }
#define ALIAS                                                                         \
    {                                                                                 \
        "alias", "path", GW_JSON({"type" : "string", "maxLength" : 300}), "the alias" \
    }
static const gw_param of_list[] = {{"limit", "query", GW_JSON({"type" : "integer", "minimum" : 1, "maximum" : 1000, "default" : 100}),
                                    "how many"},
                                   {"page_token", "query", GW_JSON({"type" : "string", "maxLength" : 300}),
                                    "`next_page_token` of the page before"},
                                   {0}},
                      of_model[] = {MODEL, {0}},
                      of_version[] = {MODEL,
                                      {"version", "path", GW_JSON({"type" : "integer", "minimum" : 1, "maximum" : 2147483647}),
                                       "the version's number"},
                                      {0}},
                      of_alias[] = {MODEL, ALIAS, {0}};
static const gw_content wish[] = {{"application/json", "AliasWish"}, {0}};
#define NOT_THERE                                                   \
    {                                                               \
        404, "there is no such model, version or alias", GW_PROBLEM \
    }
#define NO_RIGHT                                                                               \
    {                                                                                          \
        403, "a page of another origin, or a right on the cluster that is missing", GW_PROBLEM \
    }
#define OF_A_MODEL(schema)                                                                                 \
    {                                                                                                      \
        {200, "as the topic of models has it now", "application/json", schema}, NOT_THERE, GW_TASK_FAILED, \
        {                                                                                                  \
            0                                                                                              \
        }                                                                                                  \
    }
static const gw_answer to_list[] = {{200, "by name", "application/json", "ModelList"}, GW_TASK_FAILED, {0}},
                       to_show[] = OF_A_MODEL("Model"), to_versions[] = OF_A_MODEL("ModelVersions"),
                       to_version[] = OF_A_MODEL("ModelVersion"), to_aliases[] = OF_A_MODEL("ModelAliasList"),
                       to_move[] = {{200, "the version that the alias means now", "application/json", "ModelVersion"},
                                    {400, "a body that names no version, or a name that no alias can have", GW_PROBLEM},
                                    NO_RIGHT,
                                    NOT_THERE,
                                    {409, "the topic would not take it", GW_PROBLEM},
                                    GW_TASK_FAILED,
                                    {0}},
                       to_delete[] = {{204, "it is gone", NULL, NULL},
                                      NO_RIGHT,
                                      NOT_THERE,
                                      {409, "an alias means this version: move or delete that first", GW_PROBLEM},
                                      GW_TASK_FAILED,
                                      {0}},
                       to_fetch[] = {{200, "the artefact; its digest was checked", "application/octet-stream",
                                      GW_JSON({"type" : "string", "format" : "binary"})},
                                     NOT_THERE,
                                     GW_TASK_FAILED,
                                     {0}};

#define ROOT "/v1/registry/models"
static const gw_route routes[] = {
    {{"GET", ROOT, list, 0, GW_ALL, "Registered models by name, each with its aliases and its newest version."},
     "listRegisteredModels",
     of_list,
     NULL,
     to_list},
    {{"GET", ROOT "/{model}", show, 0, GW_ALL, "A model: all versions, with what they were trained on, and all aliases."},
     "showRegisteredModel",
     of_model,
     NULL,
     to_show},
    {{"GET", ROOT "/{model}/versions", versions, 0, GW_ALL, "Its versions, oldest first."}, "listVersions", of_model, NULL, to_versions},
    {{"GET", ROOT "/{model}/versions/{version}", version_of, 0, GW_ALL, "One version."}, "showVersion", of_version, NULL, to_version},
    {{"DELETE", ROOT "/{model}/versions/{version}", remove_version, 0, 0, "Removes a version that no alias means; its artefact stays."},
     "deleteVersion",
     of_version,
     NULL,
     to_delete},
    {{"GET", ROOT "/{model}/versions/{version}/download", fetch, 0, GW_ALL, "Its artefact, as it was registered."},
     "downloadVersion",
     of_version,
     NULL,
     to_fetch},
    {{"GET", ROOT "/{model}/aliases", aliases_of, 0, GW_ALL, "Its aliases, and the version that each means."},
     "listAliases",
     of_model,
     NULL,
     to_aliases},
    {{"GET", ROOT "/{model}/aliases/{alias}", version_of, 0, GW_ALL, "The version that an alias means. `latest` is the highest."},
     "showAlias",
     of_alias,
     NULL,
     to_version},
    {{"GET", ROOT "/{model}/aliases/{alias}/download", fetch, 0, GW_ALL, "The artefact of the version that an alias means."},
     "downloadAlias",
     of_alias,
     NULL,
     to_fetch},
    {{"PUT", ROOT "/{model}/aliases/{alias}", move, BODY_MAX, GW_USER,
      "Lets an alias mean a version, as `penstock models alias`: scorers that follow it swap without a pause."},
     "setAlias",
     of_alias,
     wish,
     to_move},
    {{"DELETE", ROOT "/{model}/aliases/{alias}", unalias, 0, 0, "Removes an alias."}, "deleteAlias", of_alias, NULL, to_delete},
};

const gw_noun gw_registry_noun = {"models", "Registered models: versions, aliases, artefacts.", routes, sizeof routes / sizeof *routes,
                                  schemas};
