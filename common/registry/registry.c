/* registry.c - schemas by id and ids by schema, each asked for once. Ids never change their meaning, so what was learnt once is kept; only "no such id" is forgotten again after
 * two seconds (the registry's reader may lag behind its writer). The cache has its own lock: a request under way, which may take seconds
 * while the registry is away, does not hold up those who find what they need in the cache. */
#include "common/registry/registry.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/http/fetch.h"
#include "common/registry/registry_http.h"

#include <pthread.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#define MISSING_US  2000000
#define MISSING_MAX 1024 /* ids in hostile records must not fill our memory */

typedef struct missing {
    int32_t id;
    int64_t until_us;
} missing;

struct pst_registry {
    registry_http *http;
    pthread_mutex_t lock; /* of the three below */
    pst_map texts;        /* "7" → schema text */
    pst_map ids;          /* subject, newline, digest of the text → id + 1 */
    missing absent[MISSING_MAX];
};

int pst_registry_new(const pst_registry_conf *conf, pst_registry **ret_registry, pst_err *err)
{
    registry_http *http = NULL;
    int rc = registry_http_new(conf, &http, err);
    if (rc < 0)
        return rc;
    pst_registry *r = pst_alloc(sizeof *r);
    r->http = http;
    pthread_mutex_init(&r->lock, NULL);
    *ret_registry = r;
    return PST_OK;
}

void pst_registry_free(pst_registry *r)
{
    if (!r)
        return;
    registry_http_free(r->http);
    pst_map_done(&r->texts, free);
    pst_map_done(&r->ids, NULL);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

const char *pst_registry_url(const pst_registry *r)
{
    return registry_http_url(r->http);
}

/* ---- schema by id ---------------------------------------------------------------------------------------------------------- */

static const char *cached_text(pst_registry *r, const char *key, int32_t id, bool *ret_absent)
{
    pthread_mutex_lock(&r->lock);
    const char *text = pst_map_get(&r->texts, key);
    const missing *m = &r->absent[(uint32_t)id % MISSING_MAX];
    *ret_absent = m->id == id && pst_mono_us() < m->until_us;
    pthread_mutex_unlock(&r->lock);
    return text;
}

/* Text of an answer that holds a schema; refuses what our Avro reader could not use. */
static int answer_text(const json_t *j, const char *what, const char **ret_text, pst_err *err)
{
    const char *type = pst_json_str(j, "schemaType", "AVRO");
    const char *text = pst_json_str(j, "schema", NULL);
    if (!text)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "registry", 0, "%s: the registry's answer has no \"schema\"", what);
    if (strcmp(type, "AVRO"))
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "registry", 0, "%s is a %s schema; only Avro is understood here", what,
                           type);
    if (json_array_size(json_object_get(j, "references")))
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "registry", 0,
                           "%s refers to other subjects; register it with the referenced types written out", what);
    *ret_text = text;
    return PST_OK;
}

int pst_registry_schema(pst_registry *r, int32_t id, const char **ret_text, pst_err *err)
{
    /* A text is never freed before the registry: callers keep the pointer. So the first answer stays, whatever comes later. */
    char key[16], path[48], what[32];
    bool absent = false;
    snprintf(key, sizeof key, "%d", id);
    snprintf(what, sizeof what, "schema id %d", id);
    if (id < 0)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "registry", 40403, "%s is negative: not a schema id", what);
    const char *text = cached_text(r, key, id, &absent);
    if (text) {
        *ret_text = text;
        return PST_OK;
    }
    if (absent)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "registry", 40403, "%s is not known to the registry at %s", what,
                           pst_registry_url(r));
    snprintf(path, sizeof path, "/schemas/ids/%d", id);
    json_t *j = NULL;
    pst_err why = {0};
    int rc = registry_http_call(r->http, "GET", path, NULL, &j, &why);
    if (rc == PST_OK)
        rc = answer_text(j, what, &text, &why);
    else if (why.cls == PST_CLASS_DATA && rc != PST_ENOTFOUND)
        why.cls = PST_CLASS_RETRY; /* a redirection, a proxy's 400: nothing was said of the schema */
    if (rc < 0)
        pst_err_set(err, rc, why.cls, why.origin, why.native, "%s", why.text);
    pthread_mutex_lock(&r->lock);
    if (rc == PST_ENOTFOUND) {
        r->absent[(uint32_t)id % MISSING_MAX] = (missing){id, pst_mono_us() + MISSING_US};
    } else if (rc == PST_OK) {
        const char *had = pst_map_get(&r->texts, key); /* another thread may have been faster; its pointer is in use already */
        if (!had) {
            char *copy = pst_strdup(text);
            pst_map_put(&r->texts, key, copy);
            had = copy;
        }
        PST_ASSERT(had);
        *ret_text = had;
    }
    pthread_mutex_unlock(&r->lock);
    json_decref(j);
    return rc;
}

/* ---- by subject and text --------------------------------------------------------------------------------------------------- */

static char *request_body(const char *schema_text)
{
    pst_buf b = {0};
    pst_buf_adds(&b, "{\"schemaType\":\"AVRO\",\"schema\":");
    pst_json_quote(&b, schema_text, strlen(schema_text));
    pst_buf_addc(&b, '}');
    return pst_buf_steal(&b);
}

static int answer_id(const json_t *j, const char *what, int32_t *ret_id, pst_err *err)
{
    const json_t *id = json_object_get(j, "id");
    json_int_t n = json_integer_value(id);
    if (!json_is_integer(id) || n < 0 || n > INT32_MAX)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "registry", 0, "%s: the registry's answer has no usable \"id\"", what);
    *ret_id = (int32_t)n;
    return PST_OK;
}

/* POST of a schema to a path made of a format with one %s for the escaped subject. */
static int post_schema(pst_registry *r, const char *format_head, const char *subject, const char *format_tail, const char *text,
                       json_t **ret_json, pst_err *err)
{
    char *escaped = pst_fetch_escape(subject, ""), *body = request_body(text);
    char *path = pst_sprintf("%s%s%s", format_head, escaped, format_tail);
    int rc = registry_http_call(r->http, "POST", path, body, ret_json, err);
    free(path);
    free(body);
    free(escaped);
    return rc;
}

static char *cache_key(const char *subject, const char *text)
{
    char digest[65];
    pst_sha256_hex(text, strlen(text), digest);
    return pst_sprintf("%s\n%s", subject, digest);
}

static int id_by_text(pst_registry *r, const char *tail, const char *subject, const char *text, int32_t *ret_id, pst_err *err)
{
    char *key = cache_key(subject, text);
    pthread_mutex_lock(&r->lock);
    intptr_t known = (intptr_t)pst_map_get(&r->ids, key);
    pthread_mutex_unlock(&r->lock);
    int rc = PST_OK;
    json_t *j = NULL;
    int32_t id = (int32_t)(known - 1);
    if (!known)
        rc = post_schema(r, "/subjects/", subject, tail, text, &j, err);
    if (!known && rc == PST_OK)
        rc = answer_id(j, subject, &id, err);
    if (rc == PST_OK) {
        PST_ASSERT(id >= 0); /* kept as id + 1: NULL means unknown */
        if (!known) {
            pthread_mutex_lock(&r->lock);
            pst_map_put(&r->ids, key, (void *)((intptr_t)id + 1));
            pthread_mutex_unlock(&r->lock);
        }
        *ret_id = id;
    }
    json_decref(j);
    free(key);
    return rc;
}

int pst_registry_register(pst_registry *r, const char *subject, const char *schema_text, int32_t *ret_id, pst_err *err)
{
    return id_by_text(r, "/versions", subject, schema_text, ret_id, err);
}

int pst_registry_lookup(pst_registry *r, const char *subject, const char *schema_text, int32_t *ret_id, pst_err *err)
{
    return id_by_text(r, "", subject, schema_text, ret_id, err);
}

int pst_registry_latest(pst_registry *r, const char *subject, int32_t *ret_id, int *ret_version, char **ret_text, pst_err *err)
{
    char *escaped = pst_fetch_escape(subject, "");
    char *path = pst_sprintf("/subjects/%s/versions/latest", escaped);
    json_t *j = NULL;
    const char *text = NULL;
    int32_t id = 0;
    int rc = registry_http_call(r->http, "GET", path, NULL, &j, err);
    if (rc == PST_OK)
        rc = answer_text(j, subject, &text, err);
    if (rc == PST_OK)
        rc = answer_id(j, subject, &id, err);
    if (rc == PST_OK) {
        if (ret_id)
            *ret_id = id;
        if (ret_version)
            *ret_version = (int)pst_json_int(j, "version", 0);
        if (ret_text)
            *ret_text = pst_strdup(text);
    }
    json_decref(j);
    free(path);
    free(escaped);
    return rc;
}

int pst_registry_compatible(pst_registry *r, const char *subject, const char *schema_text, bool *ret_yes, pst_err *err)
{
    json_t *j = NULL;
    pst_err own = {0};
    int rc = post_schema(r, "/compatibility/subjects/", subject, "/versions/latest", schema_text, &j, &own);
    const json_t *yes = json_object_get(j, "is_compatible");
    if (rc == PST_ENOTFOUND) { /* a subject that does not exist accepts everything */
        *ret_yes = true;
        rc = PST_OK;
    } else if (rc == PST_OK && !json_is_boolean(yes)) {
        rc = pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "registry", 0, "%s: the registry's answer has no \"is_compatible\"", subject);
    } else if (rc == PST_OK) {
        *ret_yes = json_is_true(yes);
    } else {
        pst_err_set(err, own.code, own.cls, "registry", own.native, "%s", own.text);
    }
    json_decref(j);
    return rc;
}

int pst_registry_subjects(pst_registry *r, char ***ret_names, size_t *ret_n, pst_err *err)
{
    json_t *j = NULL, *name;
    size_t i;
    int rc = registry_http_call(r->http, "GET", "/subjects", NULL, &j, err);
    if (rc < 0)
        return rc;
    if (!json_is_array(j)) {
        json_decref(j);
        return pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "registry", 0, "the registry's list of subjects is no JSON array");
    }
    char **names = pst_alloc((json_array_size(j) + 1) * sizeof *names);
    size_t n = 0;
    json_array_foreach(j, i, name) if (json_is_string(name)) names[n++] = pst_strdup(json_string_value(name));
    json_decref(j);
    *ret_names = names;
    *ret_n = n;
    return PST_OK;
}

int pst_registry_ping(pst_registry *r, pst_err *err)
{
    json_t *j = NULL; /* not "/": some registries serve a page there */
    int rc = registry_http_call(r->http, "GET", "/schemas/types", NULL, &j, err);
    json_decref(j);
    return rc;
}
