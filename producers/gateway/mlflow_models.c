/* mlflow_models.c - MLflow's model registry in front of penstock's. A registered model is a name on `models`, a version one that penstock's own commands and
 * scorers see: its artefact is a file that the engine reads (ONNX, XGBoost, LightGBM) among a run's artifacts, copied into the registry with its digest, and
 * its run is the event's training id. An alias that a client moves is the ALIAS_SET that scorers follow. Stages, which MLflow has given up, are the aliases
 * `staging` and `production`. What MLflow says beyond that (descriptions, tags, a name without versions) are facts on `tracking`.
 *
 * Registering and moving read the topic and wait for the broker: a thread each, a few at once. The answer comes once the view shows it. */
#include "producers/gateway/mlflow.h"

#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/settings.h"
#include "common/base/thread.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { WORKS_MAX = 8 };

/* ---- shapes ---------------------------------------------------------------------------------------------------------------- */

static char *version_subject(const char *name, int version)
{
    return pst_sprintf("version:%s:%d", name, version);
}

bool gw_mlflow_has_alias(const char *aliases, const char *alias)
{
    size_t n = strlen(alias);
    for (const char *p = aliases; p && *p; p += strspn(p, ", ")) {
        size_t len = strcspn(p, ", ");
        if (len == n && !strncmp(p, alias, n))
            return true;
        p += len;
    }
    return false;
}

static json_t *alias_list(const char *aliases)
{
    json_t *list = json_array();
    for (const char *p = aliases; p && *p; p += strspn(p, ", ")) {
        size_t len = strcspn(p, ", ");
        json_array_append_new(list, json_stringn(p, len));
        p += len;
    }
    return list;
}

static const char *stage_of(const char *aliases)
{
    if (gw_mlflow_has_alias(aliases, "production"))
        return "Production";
    return gw_mlflow_has_alias(aliases, "staging") ? "Staging" : "None";
}

static void add_tag(json_t *tags, const char *key, const char *value)
{
    json_array_append_new(tags, json_pack("{s:s, s:s}", "key", key, "value", value));
}

json_t *gw_mlflow_version_json(gw_tracking *t, const pst_model_event *v, const char *aliases)
{
    char *subject = version_subject(v->name, v->version);
    const gw_model_note *n = gw_tracking_note(t, subject);
    free(subject);
    int64_t ms = v->time / 1000;
    json_t *tags = n ? gw_mlflow_pairs(n->tags) : json_array();
    add_tag(tags, "penstock.digest", v->digest);
    add_tag(tags, "penstock.format", v->format);
    json_t *j = json_pack(
        "{s:s, s:o, s:I, s:I, s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:o, s:o}", "name", v->name, "version", json_sprintf("%d", v->version),
        "creation_timestamp", (json_int_t)ms, "last_updated_timestamp", (json_int_t)(n && n->updated_ms > ms ? n->updated_ms : ms),
        "user_id", v->actor, "current_stage", stage_of(aliases), "description",
        n && *n->description ? n->description
        : v->reason          ? v->reason
                             : "",
        "source", n && *n->source ? json_string(n->source) : json_sprintf("mlflow-artifacts:/models/%s/%d", v->name, v->version), "run_id",
        v->training_id ? v->training_id : "", "status", "READY", "status_message", "", "tags", tags, "aliases", alias_list(aliases));
    return j;
}

typedef struct family {
    gw_tracking *t;
    int want; /* 0: the highest */
    json_t *version, *aliases;
    char *names; /* of the version's */
} family;

static void take_version(void *arg, const pst_model_event *v, const char *aliases)
{
    family *f = arg;
    json_t *names = alias_list(aliases), *name;
    size_t i;
    json_array_foreach(names, i, name)
        json_array_append_new(f->aliases, json_pack("{s:O, s:o}", "alias", name, "version", json_sprintf("%d", v->version)));
    json_decref(names);
    if (f->want && v->version != f->want)
        return;
    json_decref(f->version);
    f->version = gw_mlflow_version_json(f->t, v, aliases);
}

/* version 0: the highest; NULL: there is none. The aliases are those of the whole model; both the caller's. */
static json_t *find_version(gw_tracking *t, const char *name, int version, json_t **ret_aliases)
{
    family f = {.t = t, .want = version, .aliases = json_array()};
    pst_models_each(t->models, name, take_version, &f);
    if (ret_aliases)
        *ret_aliases = f.aliases;
    else
        json_decref(f.aliases);
    return f.version;
}

/* NULL: there is none of this name. */
json_t *gw_mlflow_model_json(gw_tracking *t, const char *name)
{
    char *subject = pst_sprintf("model:%s", name);
    const gw_model_note *n = gw_tracking_note(t, subject);
    free(subject);
    json_t *aliases, *newest = find_version(t, name, 0, &aliases);
    if (!newest && !(n && n->created)) {
        json_decref(aliases);
        return NULL;
    }
    const pst_model_event *first = pst_models_resolve(t->models, name, NULL, 1);
    const int64_t *time = pst_map_get(&t->model_times, name);
    int64_t updated = time ? *time / 1000 : 0, created = n && n->created ? n->created_ms : first ? first->time / 1000 : updated;
    if (n && n->updated_ms > updated)
        updated = n->updated_ms;
    json_t *versions = json_array();
    if (newest)
        json_array_append_new(versions, newest);
    return json_pack("{s:s, s:I, s:I, s:s, s:o, s:o, s:o}", "name", name, "creation_timestamp", (json_int_t)created,
                     "last_updated_timestamp", (json_int_t)updated, "description", n ? n->description : "", "latest_versions", versions,
                     "tags", n ? gw_mlflow_pairs(n->tags) : json_array(), "aliases", aliases);
}

static void no_model(pst_http_req *req, const char *name)
{
    gw_mlflow_fail(req, "RESOURCE_DOES_NOT_EXIST", "Registered Model with name=%.200s not found", name);
}

static void no_version(pst_http_req *req, const char *name, int version)
{
    gw_mlflow_fail(req, "RESOURCE_DOES_NOT_EXIST", "Model Version (name=%.200s, version=%d) not found", name, version);
}

static bool name_ok(pst_http_req *req, const char *what, const char *name)
{
    if (pst_model_name_ok(name))
        return true;
    gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Invalid %s \"%.80s\": letters, digits, dot, dash and underscore, 1 to 200 of them",
                   what, name);
    return false;
}

/* The name of a body, and its version where one is wanted; false: req is answered. */
static bool target(pst_http_req *req, const json_t *body, const char **ret_name, int *ret_version)
{
    const char *name = gw_mlflow_want(req, body, "name");
    int64_t version = 0;
    if (!name || !name_ok(req, "model name", name))
        return false;
    if (ret_version && (!gw_mlflow_int(body, "version", &version) || version < 1 || version > INT_MAX)) {
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Invalid value for parameter 'version': a number from 1 on");
        return false;
    }
    *ret_name = name;
    if (ret_version)
        *ret_version = (int)version;
    return true;
}

static bool is_there(gw_state *g, const char *name, int version)
{
    gw_tracking *t = gw_mlflow_lock_again(g);
    json_t *j = version ? find_version(t, name, version, NULL) : gw_mlflow_model_json(t, name);
    gw_mlflow_unlock(g);
    json_decref(j);
    return j != NULL;
}

/* The same of what is to be there; false: req is answered. */
static bool expects(gw_state *g, pst_http_req *req, const char *name, int version)
{
    if (is_there(g, name, version))
        return true;
    if (version)
        no_version(req, name, version);
    else
        no_model(req, name);
    return false;
}

/* The body once the view is known; NULL: req is answered, or kept. */
static json_t *begin(gw_state *g, pst_http_req *req, pst_http_handler handler)
{
    if (!gw_mlflow_lock(g, req, handler))
        return NULL;
    gw_mlflow_unlock(g);
    return gw_mlflow_body(req);
}

/* ---- answers --------------------------------------------------------------------------------------------------------------- */

static void reply_model(gw_state *g, pst_http_req *req, const char *name)
{
    json_t *j = gw_mlflow_model_json(gw_mlflow_lock_again(g), name);
    gw_mlflow_unlock(g);
    if (j)
        gw_mlflow_reply(req, json_pack("{s:o}", "registered_model", j));
    else
        no_model(req, name);
}

static void reply_number(gw_state *g, pst_http_req *req, const char *name, int version)
{
    json_t *j = find_version(gw_mlflow_lock_again(g), name, version, NULL);
    gw_mlflow_unlock(g);
    if (j)
        gw_mlflow_reply(req, json_pack("{s:o}", "model_version", j));
    else
        no_version(req, name, version);
}

/* id: NAME:NUMBER; names have no colon. */
static int split_id(const char *id, char *ret_name, size_t size)
{
    size_t n = strcspn(id, ":");
    snprintf(ret_name, size, "%.*s", (int)n, id);
    return id[n] ? (int)strtol(id + n + 1, NULL, 10) : 0;
}

static void reply_version(gw_state *g, pst_http_req *req, const char *id)
{
    char name[256];
    int version = split_id(id, name, sizeof name);
    reply_number(g, req, name, version);
}

/* ---- models ---------------------------------------------------------------------------------------------------------------- */

static void create_model(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *name;
    json_t *body = begin(g, req, create_model);
    if (body && target(req, body, &name, NULL)) {
        if (is_there(g, name, 0))
            gw_mlflow_fail(req, "RESOURCE_ALREADY_EXISTS", "Registered Model (name=%.200s) already exists.", name);
        else {
            gw_facts *f = gw_facts_new(g, req);
            char *subject = pst_sprintf("model:%s", name);
            const char *text = pst_json_str(body, "description", "");
            gw_facts_add(f, (pst_tracking_record){.subject = subject, .kind = PST_TRACKING_KIND_CREATED});
            if (*text)
                gw_facts_add(f, (pst_tracking_record){.subject = subject, .kind = PST_TRACKING_KIND_DESCRIPTION, .value = (char *)text});
            if (gw_mlflow_add_tags(f, req, subject, json_object_get(body, "tags")))
                gw_facts_send(f, reply_model, name);
            else
                gw_facts_drop(f);
            free(subject);
        }
    }
    json_decref(body);
}

static void get_model(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    if (!gw_mlflow_lock(g, req, get_model))
        return;
    gw_mlflow_unlock(g);
    const char *name = gw_mlflow_want_query(req, "name");
    if (name)
        reply_model(g, req, name);
}

/* Description, tags: facts of a model or of a version. */
static void note(gw_state *g, pst_http_req *req, pst_http_handler handler, bool of_version, pst_tracking_kind kind, bool remove)
{
    const char *name, *key = "", *value;
    int version = 0;
    json_t *body = begin(g, req, handler);
    if (!body)
        return;
    bool ok = target(req, body, &name, of_version ? &version : NULL) && expects(g, req, name, version);
    value = pst_json_str(body, kind == PST_TRACKING_KIND_TAG ? "value" : "description", "");
    if (ok && kind == PST_TRACKING_KIND_TAG)
        ok = (key = gw_mlflow_want(req, body, "key")) && (value = gw_mlflow_value(req, body)) && gw_mlflow_tag_ok(req, key, value);
    if (ok) {
        char *subject = version ? version_subject(name, version) : pst_sprintf("model:%s", name);
        char *id = version ? pst_sprintf("%s:%d", name, version) : pst_strdup(name);
        gw_facts *f = gw_facts_new(g, req);
        if (remove)
            gw_facts_remove(f, subject, kind, key);
        else
            gw_facts_add(f, (pst_tracking_record){.subject = subject, .kind = kind, .name = (char *)key, .value = (char *)value});
        gw_facts_send(f, kind == PST_TRACKING_KIND_TAG ? NULL : version ? reply_version : reply_model, id);
        free(subject);
        free(id);
    }
    json_decref(body);
}

static void update_model(void *arg, pst_http_req *req)
{
    note(arg, req, update_model, false, PST_TRACKING_KIND_DESCRIPTION, false);
}

static void tag_model(void *arg, pst_http_req *req)
{
    note(arg, req, tag_model, false, PST_TRACKING_KIND_TAG, false);
}

static void untag_model(void *arg, pst_http_req *req)
{
    note(arg, req, untag_model, false, PST_TRACKING_KIND_TAG, true);
}

static void update_version(void *arg, pst_http_req *req)
{
    note(arg, req, update_version, true, PST_TRACKING_KIND_DESCRIPTION, false);
}

static void tag_version(void *arg, pst_http_req *req)
{
    note(arg, req, tag_version, true, PST_TRACKING_KIND_TAG, false);
}

static void untag_version(void *arg, pst_http_req *req)
{
    note(arg, req, untag_version, true, PST_TRACKING_KIND_TAG, true);
}

/* ---- what takes a thread --------------------------------------------------------------------------------------------------- */

typedef enum { REGISTER, MOVE, UNALIAS, STAGE, REMOVE } work_kind;
typedef struct work {
    gw_state *g;
    pst_http_req *req;
    work_kind kind;
    char *name, *alias, *actor, *run_id, *source, *uri, *sha256, *end;
    int version;
    int64_t offset; /* of the last event on `models`; -1: none */
    json_t *body;
    pst_err err;
    int rc;
} work;

static void work_free(work *w)
{
    char *all[] = {w->name, w->alias, w->actor, w->run_id, w->source, w->uri, w->sha256, w->end};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    json_decref(w->body);
    free(w);
}

static bool version_seen(const gw_tracking *t, const char *id)
{
    char name[256];
    int version = split_id(id, name, sizeof name);
    return pst_models_resolve(t->models, name, NULL, version) != NULL;
}

/* What a client says of the version beside its artefact. */
static bool describe(gw_facts *f, const work *w)
{
    char *subject = version_subject(w->name, w->version);
    const char *text = pst_json_str(w->body, "description", "");
    gw_facts_add(f, (pst_tracking_record){.subject = subject, .kind = PST_TRACKING_KIND_CREATED, .value = w->source});
    if (*text)
        gw_facts_add(f, (pst_tracking_record){.subject = subject, .kind = PST_TRACKING_KIND_DESCRIPTION, .value = (char *)text});
    bool ok = gw_mlflow_add_tags(f, w->req, subject, json_object_get(w->body, "tags"));
    free(subject);
    return ok;
}

/* @thread loop */
static void worked(void *arg)
{
    work *w = arg;
    PST_ASSERT(w->g->uploads > 0);
    w->g->uploads--;
    if (w->rc < 0) {
        if (w->err.code == PST_ESTATE)
            gw_mlflow_fail(w->req, "INVALID_STATE", "%s", w->err.text);
        else
            gw_mlflow_fail_err(w->req, &w->err);
        work_free(w);
        return;
    }
    gw_facts *f = gw_facts_new(w->g, w->req);
    char *id = pst_sprintf("%s:%d", w->name, w->version);
    if (w->kind == REGISTER && !describe(f, w)) {
        gw_facts_drop(f);
    } else {
        /* The event itself is waited for, not what it says: somebody else's next one may have changed that. Who registers may have found the version
         * that there was, without an event. */
        if (w->kind == REGISTER)
            gw_facts_until(f, version_seen);
        else
            gw_facts_after(f, w->offset);
        gw_facts_send(f, w->kind == REGISTER || w->kind == STAGE ? reply_version : NULL, id);
    }
    free(id);
    work_free(w);
}

/* The artefact into a file, since the engine looks at files, and then into the registry. */
static int register_version(work *w)
{
    const pst_settings *s = w->g->client->settings;
    pst_objects *o = NULL;
    pst_model_event e = {0};
    char uuid[37];
    pst_uuid7(uuid);
    char *file = pst_sprintf("register-%s.%s", uuid, w->end), *path = pst_fs_join(s->state_dir.value, file);
    int rc = pst_objects_open(pst_setting_full(&s->objects), &o, &w->err);
    if (!rc)
        rc = pst_objects_get_file(o, w->uri, w->sha256, path, &w->err);
    pst_model_draft d = {.name = w->name,
                         .path = path,
                         .training_id = w->run_id && *w->run_id ? w->run_id : NULL,
                         .actor = *w->actor ? w->actor : "mlflow",
                         .reason = NULL};
    if (!rc)
        rc = pst_models_register(w->g->client, o, &d, &e, &w->err);
    if (!rc) {
        w->version = e.version;
        pst_event_clear(&pst_model_event_type, &e);
    }
    unlink(path);
    pst_objects_close(o);
    free(file);
    free(path);
    return rc;
}

/* Into a stage: its alias; out of them: those of the two that are its. */
static int set_stage(work *w)
{
    static const char *const stages[] = {"staging", "production"};
    int rc = 0;
    if (*w->alias)
        return pst_models_set_alias(w->g->client, w->name, w->alias, w->version, w->actor, "a stage of MLflow's", &w->offset, &w->err);
    for (size_t i = 0; i < 2 && !rc; i++)
        if (gw_mlflow_has_alias(w->source, stages[i]))
            rc = pst_models_delete(w->g->client, w->name, 0, stages[i], w->actor, &w->offset, &w->err);
    return rc;
}

static void *run_work(void *arg)
{
    work *w = arg;
    pst_client *c = w->g->client;
    switch (w->kind) {
    case REGISTER: w->rc = register_version(w); break;
    case MOVE:
        w->rc = pst_models_set_alias(c, w->name, w->alias, w->version, w->actor, "moved by an MLflow client", &w->offset, &w->err);
        break;
    case UNALIAS: w->rc = pst_models_delete(c, w->name, 0, w->alias, w->actor, &w->offset, &w->err); break;
    case STAGE: w->rc = set_stage(w); break;
    case REMOVE: w->rc = pst_models_delete(c, w->name, w->version, NULL, w->actor, &w->offset, &w->err); break;
    }
    gw_post(w->g, worked, w, NULL);
    return NULL;
}

static void start(gw_state *g, work draft, json_t *take_body)
{
    work *w = pst_alloc(sizeof *w);
    *w = draft;
    w->g = g;
    w->offset = -1;
    w->body = take_body;
    w->actor = gw_mlflow_actor(w->req);
    g->uploads++;
    if (g->uploads > WORKS_MAX)
        w->rc = pst_err_set(&w->err, PST_EAGAIN, PST_CLASS_RETRY, "gateway", 0,
                            "%d registrations and uploads are under way; ask again in a moment", WORKS_MAX);
    else if (pst_thread_detached("gateway-models", run_work, w))
        w->rc = pst_err_set(&w->err, PST_ENOMEM, PST_CLASS_RETRY, "sys", 0, "no thread to be had");
    if (w->rc)
        worked(w);
}

/* ---- versions -------------------------------------------------------------------------------------------------------------- */

/* How likely a file of a model's folder is the model; 0: it is none that the engine reads. */
static int rank_of(const char *path)
{
    static const char *const ends[] = {".txt", ".lgb", ".json", ".xgb", ".ubj", ".onnx"};
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path, *dot = strrchr(file, '.');
    if (!dot || strstr(file, "example") || !strncmp(file, "requirements", 12))
        return 0;
    for (int i = 0; i < 6; i++)
        if (!strcasecmp(dot, ends[i]))
            return i + 1;
    return 0;
}

static const gw_artifact *best_file(const gw_tracking *t, const char *path, const char **ret_file)
{
    const gw_artifact *a = pst_map_get(&t->artifacts, path);
    size_t n = strlen(path);
    int best = 0;
    *ret_file = path;
    for (size_t i = 0; !a && n && i < t->artifacts.n; i++) {
        const char *at = t->artifacts.at[i].key;
        if (at && !strncmp(at, path, n) && at[n] == '/' && rank_of(at) > best) {
            best = rank_of(at);
            *ret_file = at;
        }
    }
    return a ? a : best ? pst_map_get(&t->artifacts, *ret_file) : NULL;
}

/* models:/NAME/NUMBER, models:/NAME@ALIAS: that version's file. */
static char *path_of_model(const gw_tracking *t, const char *uri)
{
    char name[256];
    const char *p = uri + strlen("models:/");
    size_t n = strcspn(p, "/@");
    snprintf(name, sizeof name, "%.*s", (int)n, p);
    const pst_model_event *v = NULL;
    if (p[n] == '@')
        v = pst_models_resolve(t->models, name, p + n + 1, 0);
    else if (p[n])
        v = pst_models_resolve(t->models, name, NULL, (int)strtol(p + n + 1, NULL, 10));
    return v ? pst_sprintf("models/%s/%d", v->name, v->version) : NULL;
}

/* Only the last part's letters and digits: it becomes the end of a file's name. */
static char *end_of(const char *file)
{
    const char *dot = strrchr(file, '.');
    size_t n = 0;
    while (dot && isalnum((unsigned char)dot[1 + n]) && n < 8)
        n++;
    return n ? pst_strndup(dot + 1, n) : pst_strdup("model");
}

static void create_version(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *name, *file = "", *source;
    json_t *body = begin(g, req, create_version);
    if (!body)
        return;
    if (!target(req, body, &name, NULL) || !(source = gw_mlflow_want(req, body, "source")) || !expects(g, req, name, 0)) {
        json_decref(body);
        return;
    }
    gw_tracking *t = gw_mlflow_lock_again(g);
    char *path = !strncmp(source, "models:/", 8) ? path_of_model(t, source) : gw_mlflow_artifact_path(t, source);
    const gw_artifact *a = path ? best_file(t, path, &file) : NULL;
    work w = {.req = req, .kind = REGISTER};
    if (a)
        w = (work){.req = req,
                   .kind = REGISTER,
                   .name = pst_strdup(name),
                   .source = pst_strdup(source),
                   .run_id = pst_strdup(pst_json_str(body, "run_id", "")),
                   .uri = pst_strdup(a->uri),
                   .sha256 = pst_strdup(a->sha256),
                   .end = end_of(file)};
    gw_mlflow_unlock(g);
    free(path);
    if (a) {
        start(g, w, body);
        return;
    }
    gw_mlflow_fail(
        req, "INVALID_PARAMETER_VALUE",
        "Invalid model version source: '%.200s'. It is an artifact of a run (mlflow-artifacts:/…, runs:/…) or a registered version "
        "(models:/…), and is, or holds, a file that penstock's engine reads: .onnx, XGBoost's .ubj or .json, LightGBM's .txt",
        source);
    json_decref(body);
}

static bool query_version(pst_http_req *req, const char **ret_name, int *ret_version)
{
    const char *name = gw_mlflow_want_query(req, "name"), *version = name ? gw_mlflow_want_query(req, "version") : NULL;
    if (!version)
        return false;
    *ret_name = name;
    *ret_version = (int)strtol(version, NULL, 10);
    if (*ret_version >= 1 && strspn(version, "0123456789") == strlen(version) && strlen(version) < 10)
        return true;
    gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Invalid value for parameter 'version': a number from 1 on");
    return false;
}

static void get_version(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *name;
    int version;
    if (!gw_mlflow_lock(g, req, get_version))
        return;
    gw_mlflow_unlock(g);
    if (query_version(req, &name, &version))
        reply_number(g, req, name, version);
}

/* Where clients fetch it: the folder that was registered, if it still lies among the artifacts; else the one file that the registry has. */
static void download_uri(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *name, *file;
    int version;
    gw_tracking *t = gw_mlflow_lock(g, req, download_uri);
    if (!t)
        return;
    gw_mlflow_unlock(g);
    if (!query_version(req, &name, &version))
        return;
    t = gw_mlflow_lock_again(g);
    json_t *v = find_version(t, name, version, NULL);
    const char *source = pst_json_str(v, "source", "");
    char *path = v ? gw_mlflow_artifact_path(t, source) : NULL;
    bool folder = path && !pst_map_get(&t->artifacts, path) && best_file(t, path, &file); /* clients fetch folders */
    json_t *j = folder ? json_sprintf("mlflow-artifacts:/%s", path) : json_sprintf("mlflow-artifacts:/models/%s/%d", name, version);
    gw_mlflow_unlock(g);
    if (v)
        gw_mlflow_reply(req, json_pack("{s:o}", "artifact_uri", j));
    else {
        no_version(req, name, version);
        json_decref(j);
    }
    json_decref(v);
    free(path);
}

static void delete_version(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *name;
    int version;
    json_t *body = begin(g, req, delete_version);
    if (body && target(req, body, &name, &version) && expects(g, req, name, version))
        start(g, (work){.req = req, .kind = REMOVE, .name = pst_strdup(name), .version = version}, json_incref(body));
    json_decref(body);
}

static void delete_model(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *name;
    json_t *body = begin(g, req, delete_model);
    if (body && target(req, body, &name, NULL) && expects(g, req, name, 0)) {
        json_t *newest = find_version(gw_mlflow_lock_again(g), name, 0, NULL);
        gw_mlflow_unlock(g);
        json_decref(newest);
        if (newest)
            gw_mlflow_fail(req, "INVALID_STATE", "Registered Model %.200s has versions, which scorers may follow; delete them first", name);
        else {
            char *subject = pst_sprintf("model:%s", name);
            gw_facts *f = gw_facts_new(g, req);
            gw_facts_remove(f, subject, PST_TRACKING_KIND_CREATED, "");
            gw_facts_send(f, NULL, NULL);
            free(subject);
        }
    }
    json_decref(body);
}

static void transition(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *name, *stage, *alias = NULL;
    int version;
    json_t *body = begin(g, req, transition);
    if (!body)
        return;
    if (target(req, body, &name, &version) && (stage = gw_mlflow_want(req, body, "stage")) && expects(g, req, name, version)) {
        if (!strcasecmp(stage, "production") || !strcasecmp(stage, "staging"))
            alias = strcasecmp(stage, "staging") ? "production" : "staging";
        else if (!strcasecmp(stage, "none") || !strcasecmp(stage, "archived"))
            alias = "";
        if (!alias)
            gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE",
                           "Invalid Model Version stage: %.40s. It is None, Staging, Production or Archived", stage);
        else {
            json_t *v = find_version(gw_mlflow_lock_again(g), name, version, NULL);
            gw_mlflow_unlock(g);
            pst_buf has = {0};
            for (size_t i = 0; i < json_array_size(json_object_get(v, "aliases")); i++)
                pst_buf_printf(&has, "%s,", json_string_value(json_array_get(json_object_get(v, "aliases"), i)));
            json_decref(v);
            start(g,
                  (work){.req = req,
                         .kind = STAGE,
                         .name = pst_strdup(name),
                         .version = version,
                         .alias = pst_strdup(alias),
                         .source = pst_buf_steal(&has)},
                  json_incref(body));
        }
    }
    json_decref(body);
}

/* ---- aliases --------------------------------------------------------------------------------------------------------------- */

static void set_alias(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *name, *alias;
    int version;
    json_t *body = begin(g, req, set_alias);
    if (body && target(req, body, &name, &version) && (alias = gw_mlflow_want(req, body, "alias")) && name_ok(req, "alias", alias) &&
        expects(g, req, name, version))
        start(g, (work){.req = req, .kind = MOVE, .name = pst_strdup(name), .alias = pst_strdup(alias), .version = version},
              json_incref(body));
    json_decref(body);
}

/* The version that an alias means; 0: none. */
static int version_of(gw_state *g, const char *name, const char *alias)
{
    const pst_model_event *v = pst_models_resolve(gw_mlflow_lock_again(g)->models, name, alias, 0);
    int version = v ? v->version : 0;
    gw_mlflow_unlock(g);
    return version;
}

static void no_alias(pst_http_req *req, const char *name, const char *alias)
{
    gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Registered model alias %.200s not found of %.200s.", alias, name);
}

static void get_alias(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    if (!gw_mlflow_lock(g, req, get_alias))
        return;
    gw_mlflow_unlock(g);
    const char *name = gw_mlflow_want_query(req, "name"), *alias = name ? gw_mlflow_want_query(req, "alias") : NULL;
    if (!alias || !expects(g, req, name, 0))
        return;
    int version = version_of(g, name, alias);
    if (version)
        reply_number(g, req, name, version);
    else
        no_alias(req, name, alias);
}

static void delete_alias(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *name, *alias;
    json_t *body = begin(g, req, delete_alias);
    if (body && target(req, body, &name, NULL) && (alias = gw_mlflow_want(req, body, "alias")) && name_ok(req, "alias", alias) &&
        expects(g, req, name, 0)) {
        if (!strcmp(alias, "latest") || !version_of(g, name, alias))
            no_alias(req, name, alias);
        else
            start(g, (work){.req = req, .kind = UNALIAS, .name = pst_strdup(name), .alias = pst_strdup(alias)}, json_incref(body));
    }
    json_decref(body);
}

/* ---- the highest version ---------------------------------------------------------------------------------------------------------- */

static void latest_versions(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *name;
    json_t *body = begin(g, req, latest_versions);
    if (body && target(req, body, &name, NULL)) {
        json_t *m = gw_mlflow_model_json(gw_mlflow_lock_again(g), name);
        gw_mlflow_unlock(g);
        const json_t *stages = json_object_get(body, "stages");
        json_t *list = !m                        ? NULL
                       : json_array_size(stages) ? gw_mlflow_of_stages(g, req, name, stages)
                                                 : json_incref(json_object_get(m, "latest_versions"));
        if (list)
            gw_mlflow_reply(req, json_pack("{s:o}", "model_versions", list));
        else if (!m)
            no_model(req, name);
        json_decref(m);
    }
    json_decref(body);
}

/* ---- rows ------------------------------------------------------------------------------------------------------------------ */

#define TEXT(name, doc)                                  \
    {                                                    \
        name, "query", GW_JSON({"type" : "string"}), doc \
    }
static const gw_param of_name[] = {TEXT("name", "the model"), {0}},
                      of_version[] = {TEXT("name", "the model"), TEXT("version", "a number"), {0}},
                      of_alias[] = {TEXT("name", "the model"), TEXT("alias", "the alias"), {0}},
                      of_search[] = {TEXT("filter", "as MLflow's search syntax"),
                                     TEXT("order_by", "one, as MLflow's"),
                                     TEXT("max_results", "how many"),
                                     TEXT("page_token", "next_page_token of the page before"),
                                     {0}};
#define CHANGE(method, path, fn, name, doc)                                                                                      \
    {                                                                                                                            \
        {method, GW_MLFLOW_ROOT "/" path, fn, GW_MLFLOW_BODY_MAX, GW_MLFLOW, doc}, name, NULL, gw_mlflow_json, gw_mlflow_answers \
    }
#define GET(path, fn, name, params, doc)                                                               \
    {                                                                                                  \
        {"GET", GW_MLFLOW_ROOT "/" path, fn, 0, GW_MLFLOW, doc}, name, params, NULL, gw_mlflow_answers \
    }
static const gw_route routes[] = {
    CHANGE("POST", "registered-models/create", create_model, "mlflowCreateModel",
           "A name for versions to come: `name`, `description`, `tags`."),
    GET("registered-models/get", get_model, "mlflowGetModel", of_name, "A registered model with its aliases and highest version."),
    GET("registered-models/search", gw_mlflow_search_models, "mlflowSearchModels", of_search, "Registered models."),
    CHANGE("PATCH", "registered-models/update", update_model, "mlflowUpdateModel", "Its description."),
    CHANGE("DELETE", "registered-models/delete", delete_model, "mlflowDeleteModel", "A name without versions."),
    CHANGE("POST", "registered-models/get-latest-versions", latest_versions, "mlflowLatestVersions",
           "The highest version, or of each of `stages` the one that is in it."),
    CHANGE("POST", "registered-models/set-tag", tag_model, "mlflowSetModelTag", "A tag of a model."),
    CHANGE("DELETE", "registered-models/delete-tag", untag_model, "mlflowDeleteModelTag", "Removes it."),
    CHANGE("POST", "registered-models/alias", set_alias, "mlflowSetAlias",
           "Moves an alias: an event `ALIAS_SET`, which scorers follow: `name`, `alias`, `version`."),
    GET("registered-models/alias", get_alias, "mlflowGetVersionByAlias", of_alias, "The version that an alias means."),
    CHANGE("DELETE", "registered-models/alias", delete_alias, "mlflowDeleteAlias", "Removes an alias."),
    CHANGE("POST", "model-versions/create", create_version, "mlflowCreateVersion",
           "Registers an artifact of a run, which is a model that the engine reads: `name`, `source`, `run_id`."),
    GET("model-versions/get", get_version, "mlflowGetVersion", of_version, "A version; `run_id` is the job or run that it comes from."),
    GET("model-versions/get-download-uri", download_uri, "mlflowDownloadUri", of_version, "Where its files are."),
    GET("model-versions/search", gw_mlflow_search_versions, "mlflowSearchVersions", of_search, "Versions, the newest first."),
    CHANGE("PATCH", "model-versions/update", update_version, "mlflowUpdateVersion", "Its description."),
    CHANGE("DELETE", "model-versions/delete", delete_version, "mlflowDeleteVersion", "Removes a version that no alias means."),
    CHANGE("POST", "model-versions/transition-stage", transition, "mlflowTransitionStage",
           "A stage: `Staging` and `Production` are the aliases `staging` and `production`."),
    CHANGE("POST", "model-versions/set-tag", tag_version, "mlflowSetVersionTag", "A tag of a version."),
    CHANGE("DELETE", "model-versions/delete-tag", untag_version, "mlflowDeleteVersionTag", "Removes it."),
};
const gw_noun gw_mlflow_models_noun = {"mlflow models", "MLflow's model registry in front of penstock's.", routes,
                                       sizeof routes / sizeof *routes, gw_mlflow_schemas};
