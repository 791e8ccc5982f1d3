/* mlflow_artifacts.c - mlflow-artifacts: files of runs, put, shown, listed, deleted. A path is a name in the topic and never one of a file system: the bytes lie
 * in the object store under their digest, so no path can lead anywhere, whatever it holds. Paths that could not be files' names are refused all the same,
 * since clients write them to their own disks. The same bytes are stored once. Deleting takes the name back; the bytes stay, others may have them. */
#include "producers/gateway/mlflow.h"
#include "producers/gateway/pour.h"

#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/settings.h"
#include "common/base/thread.h"
#include "common/objects/objects.h"

#include <stdlib.h>
#include <string.h>

enum { UPLOADS_MAX = 8, PIECE_BYTES = 64 << 10 };

/* ---- paths ----------------------------------------------------------------------------------------------------------------- */

static bool segment_ok(const char *s, size_t n)
{
    if (!n || (n == 1 && *s == '.') || (n == 2 && s[0] == '.' && s[1] == '.'))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f || s[i] == '\\' || s[i] == '%')
            return false;
    return true;
}

/* Each part is a name: no .., no empty part, no backslash, no control, nothing that a further decoding would change. */
static bool path_ok(pst_http_req *req, const char *path)
{
    bool ok = *path && strlen(path) <= GW_MLFLOW_PATH_MAX;
    for (const char *p = path; ok; p++) {
        size_t n = strcspn(p, "/");
        ok = segment_ok(p, n);
        p += n;
        if (!*p)
            break;
    }
    json_t *utf8 = ok ? json_string(path) : NULL;
    if (!utf8)
        gw_mlflow_fail(
            req, "INVALID_PARAMETER_VALUE",
            "Invalid path: it has parts between single slashes, none of them . or .., no backslash, percent sign or control character, "
            "%d bytes of UTF-8 at most",
            GW_MLFLOW_PATH_MAX);
    json_decref(utf8);
    return utf8 != NULL;
}

/* All behind artifacts/; NULL: req is answered. */
static const char *path_of(pst_http_req *req)
{
    static const char root[] = GW_MLFLOW_ARTIFACTS "/artifacts/";
    const char *path = pst_http_path(req);
    PST_ASSERT(!strncmp(path, root, sizeof root - 1));
    path += sizeof root - 1;
    return path_ok(req, path) ? path : NULL;
}

/* What is registered is not written by a path. */
static bool path_writable(pst_http_req *req, const char *path)
{
    if (strcmp(path, "models") != 0 && strncmp(path, "models/", 7) != 0)
        return true;
    gw_mlflow_fail(req, "PERMISSION_DENIED", "models/ has the registered versions; register a version instead (model-versions/create)");
    return false;
}

char *gw_mlflow_artifact_path(gw_tracking *t, const char *uri)
{
    static const char proxy[] = "mlflow-artifacts:", runs[] = "runs:/";
    if (!strncmp(uri, runs, sizeof runs - 1)) {
        const char *id = uri + sizeof runs - 1;
        char *run_id = pst_strndup(id, strcspn(id, "/"));
        const gw_run *r = gw_tracking_run(t, run_id);
        const char *rest = id + strlen(run_id);
        char *path = r ? pst_sprintf("%s/%s/artifacts%s", r->experiment_id, run_id, rest) : NULL;
        free(run_id);
        return path;
    }
    if (strncmp(uri, proxy, sizeof proxy - 1) != 0)
        return NULL;
    const char *p = uri + sizeof proxy - 1;
    if (!strncmp(p, "//", 2)) { /* with a host */
        p += 2;
        p += strcspn(p, "/");
        static const char api[] = "/api/2.0/mlflow-artifacts/artifacts";
        if (!strncmp(p, api, sizeof api - 1))
            p += sizeof api - 1;
    }
    return *p == '/' && p[1] ? pst_strdup(p + 1) : NULL;
}

/* ---- list ------------------------------------------------------------------------------------------------------------------ */

static int by_path(const void *a, const void *b)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    return strcmp(pst_json_str(x, "path", ""), pst_json_str(y, "path", ""));
}

static json_t *sorted(json_t *take)
{
    size_t n = json_array_size(take);
    json_t **all = pst_alloc((n + 1) * sizeof(json_t *)), *list = json_array();
    for (size_t i = 0; i < n; i++)
        all[i] = json_array_get(take, i);
    qsort(all, n, sizeof *all, by_path);
    for (size_t i = 0; i < n; i++)
        json_array_append(list, all[i]);
    free(all);
    json_decref(take);
    return list;
}

json_t *gw_mlflow_list_files(const gw_tracking *t, const char *folder, const char *prefix)
{
    json_t *list = json_array();
    pst_map folders = {0};
    static char seen;
    size_t n = strlen(folder);
    for (size_t i = 0; i < t->artifacts.n && json_array_size(list) <= GW_MLFLOW_LISTED_MAX; i++) {
        const char *path = t->artifacts.at[i].key;
        if (!path || strncmp(path, folder, n) != 0 || (n && path[n] != '/'))
            continue;
        const char *rest = path + n + (n ? 1 : 0);
        size_t end = strcspn(rest, "/");
        char *name = pst_strndup(rest, end);
        const gw_artifact *a = t->artifacts.at[i].value;
        if (!rest[end])
            json_array_append_new(list, json_pack("{s:o, s:b, s:I}", "path", json_sprintf("%s%s", prefix, name), "is_dir", 0, "file_size",
                                                  (json_int_t)a->bytes));
        else if (!pst_map_get(&folders, name)) {
            pst_map_put(&folders, name, &seen);
            json_array_append_new(list, json_pack("{s:o, s:b}", "path", json_sprintf("%s%s", prefix, name), "is_dir", 1));
        }
        free(name);
    }
    pst_map_done(&folders, NULL);
    if (json_array_size(list) > GW_MLFLOW_LISTED_MAX) {
        json_decref(list);
        return NULL;
    }
    return sorted(list);
}

/* In part it would be taken for the whole. */
static void too_many(pst_http_req *req, const char *folder)
{
    gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE",
                   "the folder '%.200s' has more than %d files and folders; list those below it one by one, or put them into folders",
                   folder, GW_MLFLOW_LISTED_MAX);
}

static void list_proxy(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *path = gw_query(req, "path");
    if (path && *path && !path_ok(req, path))
        return;
    gw_tracking *t = gw_mlflow_lock(g, req, list_proxy);
    if (!t)
        return;
    json_t *files = gw_mlflow_list_files(t, path ? path : "", "");
    gw_mlflow_unlock(g);
    if (files)
        gw_mlflow_reply(req, json_pack("{s:o}", "files", files));
    else
        too_many(req, path ? path : "");
}

/* Of a run, as clients ask that know no artifact repository: paths are relative to the run's. */
static void list_of_run(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *id = gw_query(req, "run_id"), *path = gw_query(req, "path");
    if (path && *path && !path_ok(req, path))
        return;
    gw_tracking *t = gw_mlflow_lock(g, req, list_of_run);
    if (!t)
        return;
    const gw_run *r = gw_mlflow_find_run(g, req, t, id ? id : "", true);
    if (!r)
        return;
    bool below = path && *path;
    char *root = pst_sprintf("%s/%s/artifacts%s%s", r->experiment_id, r->id, below ? "/" : "", below ? path : "");
    char *prefix = pst_sprintf("%s%s", below ? path : "", below ? "/" : "");
    json_t *files = gw_mlflow_list_files(t, root, prefix),
           *uri = json_sprintf("mlflow-artifacts:/%s/%s/artifacts", r->experiment_id, r->id);
    gw_mlflow_unlock(g);
    if (files)
        gw_mlflow_reply(req, json_pack("{s:O, s:o}", "root_uri", uri, "files", files));
    else
        too_many(req, root);
    json_decref(uri);
    free(root);
    free(prefix);
}

/* ---- put ------------------------------------------------------------------------------------------------------------------- */

typedef struct upload {
    gw_state *g;
    pst_http_req *req;
    char *path, *uri, sha256[65];
    pst_err err;
    int rc;
} upload;

/* @thread loop */
static void stored(void *arg)
{
    upload *u = arg;
    PST_ASSERT(u->g->uploads > 0);
    u->g->uploads--;
    if (u->rc < 0)
        gw_mlflow_fail_err(u->req, &u->err);
    else {
        gw_facts *f = gw_facts_new(u->g, u->req);
        gw_facts_add(f, (pst_tracking_record){.subject = (char *)"artifacts",
                                              .kind = PST_TRACKING_KIND_ARTIFACT,
                                              .name = u->path,
                                              .value = u->uri,
                                              .sha256 = u->sha256,
                                              .bytes = (int64_t)pst_http_body(u->req).len});
        gw_facts_send(f, NULL, NULL);
    }
    free(u->path);
    free(u->uri);
    free(u);
}

static void *store(void *arg)
{
    upload *u = arg;
    pst_slice body = pst_http_body(u->req);
    pst_objects *o = NULL;
    const void *data = body.data ? body.data : "";
    pst_sha256_hex(data, body.len, u->sha256);
    char *key = pst_sprintf("artifacts/%s", u->sha256);
    u->rc = pst_objects_open(pst_setting_full(&u->g->client->settings->objects), &o, &u->err);
    if (!u->rc)
        u->rc = pst_objects_put(o, key, data, body.len, &u->uri, &u->err);
    pst_objects_close(o);
    free(key);
    gw_post(u->g, stored, u, NULL);
    return NULL;
}

static void put(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *path = path_of(req);
    if (!path || !path_writable(req, path) || !gw_mlflow_lock(g, req, put))
        return;
    gw_mlflow_unlock(g);
    if (g->uploads >= UPLOADS_MAX) {
        gw_mlflow_fail(req, "TEMPORARILY_UNAVAILABLE", "%d uploads are under way; ask again in a moment", UPLOADS_MAX);
        return;
    }
    upload *u = pst_alloc(sizeof *u);
    *u = (upload){.g = g, .req = req, .path = pst_strdup(path)};
    g->uploads++;
    if (pst_thread_detached("gateway-upload", store, u)) {
        u->rc = pst_err_set(&u->err, PST_ENOMEM, PST_CLASS_RETRY, "sys", 0, "no thread to be had");
        stored(u);
    }
}

/* ---- get, delete ----------------------------------------------------------------------------------------------------------- */

typedef struct download {
    gw_state *g;
    char *uri, *sha256;
    int64_t bytes;
} download;

static void download_done(void *arg)
{
    download *d = arg;
    free(d->uri);
    free(d->sha256);
    free(d);
}

/* Read as a whole and held against its digest before the first byte goes out. @thread its own */
static int send_bytes(void *arg, gw_pour *p, pst_err *err)
{
    const download *d = arg;
    pst_objects *o = NULL;
    pst_buf data = {0};
    int rc = pst_objects_open(pst_setting_full(&d->g->client->settings->objects), &o, err);
    if (!rc)
        rc = pst_objects_get(o, d->uri, d->sha256, (size_t)d->bytes, &data, err);
    pst_objects_close(o);
    for (size_t at = 0; !rc && at < data.len; at += PIECE_BYTES)
        if (!gw_pour_put(p, data.data + at, data.len - at < PIECE_BYTES ? data.len - at : PIECE_BYTES))
            rc = pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "gateway", 0, "the client has gone, or the gateway ends");
    pst_buf_done(&data);
    return rc;
}

static void get(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *path = path_of(req);
    gw_tracking *t = path ? gw_mlflow_lock(g, req, get) : NULL;
    if (!t)
        return;
    const gw_artifact *a = pst_map_get(&t->artifacts, path);
    download *d = NULL;
    if (a) {
        d = pst_alloc(sizeof *d);
        *d = (download){g, pst_strdup(a->uri), pst_strdup(a->sha256), a->bytes};
    }
    gw_mlflow_unlock(g);
    if (!d) {
        gw_mlflow_fail(req, "RESOURCE_DOES_NOT_EXIST", "there is no artifact %.300s", path);
        return;
    }
    pst_http_add_header(req, "X-Content-Type-Options", "nosniff");
    pst_http_add_header(req, "Content-Disposition", "attachment");
    if (d->bytes) {
        gw_pour_start(g, req,
                      &(gw_source){.name = "gateway-file",
                                   .type = "application/octet-stream",
                                   .whole = true,
                                   .run = send_bytes,
                                   .done = download_done,
                                   .arg = d});
        return;
    }
    download_done(d);
    pst_http_reply(req, 200, "application/octet-stream", "", 0);
}

static void delete_it(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *path = path_of(req);
    gw_tracking *t = path && path_writable(req, path) ? gw_mlflow_lock(g, req, delete_it) : NULL;
    if (!t)
        return;
    size_t n = strlen(path), found = 0;
    gw_facts *f = gw_facts_new(g, req);
    for (size_t i = 0; i < t->artifacts.n; i++) { /* a folder is all that lies below it */
        const char *at = t->artifacts.at[i].key;
        if (!at || strncmp(at, path, n) != 0 || (at[n] && at[n] != '/'))
            continue;
        gw_facts_remove(f, "artifacts", PST_TRACKING_KIND_ARTIFACT, at);
        found++;
    }
    gw_mlflow_unlock(g);
    if (found)
        gw_facts_send(f, NULL, NULL);
    else {
        gw_facts_drop(f);
        gw_mlflow_fail(req, "RESOURCE_DOES_NOT_EXIST", "there is no artifact %.300s", path);
    }
}

static const gw_param of_file[] = {{"experiment", "path", GW_JSON({"type" : "string"}),
                                    "an experiment's id; `models` for registered versions"},
                                   {"path", "path", GW_JSON({"type" : "string"}),
                                    "RUN/artifacts/…, as a run's `artifact_uri` has it; slashes and all"},
                                   {0}},
                      of_list[] = {{"path", "query", GW_JSON({"type" : "string"}), "a folder; none: the uppermost"}, {0}},
                      of_run[] = {{"run_id", "query", GW_JSON({"type" : "string"}), "the run"},
                                  {"path", "query", GW_JSON({"type" : "string"}), "a folder of it"},
                                  {"page_token", "query", GW_JSON({"type" : "string"}), "none is ever given"},
                                  {0}};
static const gw_content bytes[] = {{"application/octet-stream", GW_JSON({"type" : "string"})}, {0}};
static const gw_answer change[] = {{200, "done", "application/json", "MlflowObject"},
                                   {400, "a path that cannot be", GW_MLFLOW_ERROR},
                                   {403, "below models/, which has the registered versions", GW_MLFLOW_ERROR},
                                   {404, "there is no such artifact", GW_MLFLOW_ERROR},
                                   {500, "it could not be stored", GW_MLFLOW_ERROR},
                                   {503, "not now: `Retry-After` says when to ask again", GW_MLFLOW_ERROR},
                                   {0}},
                       file[] = {{200, "its bytes", "application/octet-stream", GW_JSON({"type" : "string"})},
                                 {400, "a path that cannot be", GW_MLFLOW_ERROR},
                                 {404, "there is no such artifact", GW_MLFLOW_ERROR},
                                 {500, "it could not be read", GW_MLFLOW_ERROR},
                                 {503, "too much is being read already; `Retry-After`", GW_MLFLOW_ERROR},
                                 {0}};
static const gw_route routes[] = {
    {{"GET", GW_MLFLOW_ROOT "/artifacts/list", list_of_run, 0, GW_MLFLOW, "The files of a run."},
     "mlflowListArtifacts",
     of_run,
     NULL,
     gw_mlflow_answers},
    {{"GET", GW_MLFLOW_ARTIFACTS "/artifacts", list_proxy, 0, GW_MLFLOW, "The files and folders of a folder."},
     "mlflowListFiles",
     of_list,
     NULL,
     gw_mlflow_answers},
    {{"PUT", GW_MLFLOW_ARTIFACTS "/artifacts/{experiment}/{path*}", put, GW_MLFLOW_ARTIFACT_MAX,
      GW_MLFLOW | PST_HTTP_SLASH | PST_HTTP_ANY_TYPE, "Stores a file of a run, 128 MiB at most; one of that name is replaced."},
     "mlflowPutFile",
     of_file,
     bytes,
     change},
    {{"GET", GW_MLFLOW_ARTIFACTS "/artifacts/{experiment}/{path*}", get, 0, GW_MLFLOW | PST_HTTP_SLASH, "A file."},
     "mlflowGetFile",
     of_file,
     NULL,
     file},
    {{"DELETE", GW_MLFLOW_ARTIFACTS "/artifacts/{experiment}/{path*}", delete_it, 0, GW_MLFLOW | PST_HTTP_SLASH,
      "Removes a file, or a folder's files."},
     "mlflowDeleteFile",
     of_file,
     NULL,
     change},
};
const gw_noun gw_mlflow_artifacts_noun = {"mlflow artifacts", "Files of MLflow's runs.", routes, sizeof routes / sizeof *routes,
                                          gw_mlflow_schemas};
