/* jobs_upload.c - POST /v1/jobs with the job's code: multipart/form-data with the parts `manifest` and `code`. What the request alone can tell is answered on
 * the loop; the archive is looked through and put away by a thread, of which there are a few, as each holds a body. What an archive is its first bytes
 * say, not its sender: browsers and libraries name types as they like. */
#include "producers/gateway/jobs.h"

#include "common/base/settings.h"
#include "common/base/thread.h"
#include "common/loop/multipart.h"
#include "common/objects/objects.h"
#include "common/platform/code.h"
#include "producers/gateway/routes.h"
#include "schemas/avro.h"
#include "schemas/training_id.h"

#include <stdlib.h>
#include <string.h>

enum { PARTS_MAX = 8, UPLOADS_MAX = 4, TAR_MAGIC_AT = 257, MANIFEST_MAX = 16 << 20 };

typedef struct upload {
    gw_state *g;
    pst_http_req *req;
    pst_slice archive; /* in the request's body; len 0: none */
    const char *media_type;
    pst_job_request request;
    pst_job_code code;
    pst_err err;
} upload;

static const char *type_of(pst_slice a)
{
    if (a.len >= 4 && !memcmp(a.data, "PK\3\4", 4))
        return "application/zip";
    if (a.len >= 2 && !memcmp(a.data, "\x1f\x8b", 2))
        return "application/gzip";
    if (a.len >= TAR_MAGIC_AT + 5 && !memcmp((const char *)a.data + TAR_MAGIC_AT, "ustar", 5))
        return "application/x-tar";
    return NULL;
}

/* @thread loop */
static void send_upload(void *arg)
{
    upload *u = arg;
    gw_state *g = u->g;
    char id[64];
    PST_ASSERT(g->uploads > 0);
    g->uploads--;
    u->request.code = u->archive.len ? &u->code : NULL;
    pst_training_id(u->request.user, u->request.request_id, id);
    bool refused = u->err.code || gw_reused_refuse(g, u->req, &u->request);
    if (u->err.code)
        pst_http_problem_err(u->req, &u->err);
    if (refused)
        pst_metric_add(g->refused, 1);
    else
        gw_publisher_send(g->publisher, u->req, &u->request, id, id, NULL);
    u->request.code = NULL;
    pst_code_done(&u->code);
    pst_event_clear(&pst_job_request_type, &u->request);
    free(u);
}

void gw_code_put_away(const gw_state *g, const char *part, pst_slice archive, const char *media_type, pst_job_code *ret_code, pst_err *err)
{
    pst_err why = {0};
    int rc = pst_archive_check(archive.data, archive.len, &why);
    if (rc == 0)
        pst_code_attach(pst_setting_full(&g->client->settings->objects), archive, media_type, false, ret_code, err);
    else if (why.cls == PST_CLASS_DATA)
        pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "archive", 0, "the part `%s`: %s", part, why.text);
    else
        *err = why;
}

static void *put_away(void *arg)
{
    upload *u = arg;
    gw_code_put_away(u->g, "code", u->archive, u->media_type, &u->code, &u->err);
    gw_post(u->g, send_upload, u, NULL);
    return NULL;
}

static bool is_known(const char *name)
{
    return !strcmp(name, "manifest") || !strcmp(name, "code") || !strcmp(name, "model_definition");
}

/* The manifest, free(), and the archive (len 0: none); NULL: err says why. */
static char *parts_of(const pst_http_req *req, pst_slice *ret_archive, pst_err *err)
{
    pst_part parts[PARTS_MAX];
    size_t n = 0;
    if (pst_multipart_parse(pst_http_header(req, "Content-Type"), pst_http_body(req), parts, PARTS_MAX, &n, err) < 0)
        return NULL;
    const pst_part *manifest = pst_part_find(parts, n, "manifest"), *code = pst_part_find(parts, n, "code");
    if (!code)
        code = pst_part_find(parts, n, "model_definition"); /* as FfDL's clients name it */
    for (size_t i = 0; i < n; i++)
        if (!is_known(parts[i].name)) {
            pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "http", 0, "there is no part `%s`; wanted `manifest` and `code`", parts[i].name);
            return NULL;
        }
    if (!manifest || !manifest->data.len)
        pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "http", 0, "there is no part `manifest`, or it is empty; it is YAML text");
    else if (manifest->data.len > MANIFEST_MAX || memchr(manifest->data.data, 0, manifest->data.len))
        pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "http", 0,
                    "the part `manifest` holds a NUL or is larger than 16 MiB; it is YAML text");
    else if (code && !type_of(code->data))
        pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "http", 0, "the part `code` is no archive: zip, tar or gzip");
    if (err->code)
        return NULL;
    if (code)
        *ret_archive = code->data;
    return pst_strndup(manifest->data.data, manifest->data.len);
}

/* Everything that can be refused is, before the archive is written: an upload that ends in 400 leaves nothing behind. Writing it is a task of its own, since
 * a disk may be slow and the loop serves everybody; so their number is limited: each holds its body in memory. */
void gw_jobs_upload(gw_state *g, pst_http_req *req)
{
    pst_err err = {0};
    pst_slice archive = {0};
    char *manifest = parts_of(req, &archive, &err);
    bool refused = !manifest;
    if (!manifest)
        pst_http_problem_err(req, &err);
    else if (g->uploads >= UPLOADS_MAX) {
        refused = true;
        pst_http_add_header(req, "Retry-After", "1");
        pst_http_problem(req, 503, "busy", NULL, "too many uploads are under way; ask again in a moment");
    } else
        refused = gw_manifest_refuse(req, manifest);
    if (refused) {
        pst_metric_add(g->refused, 1);
        free(manifest);
        return;
    }
    upload *u = pst_alloc(sizeof *u);
    *u = (upload){.g = g,
                  .req = req,
                  .archive = archive,
                  .media_type = type_of(archive),
                  .request = {.request_id = pst_strdup(""), .user = pst_strdup("anonymous"), .manifest = manifest}};
    if (!gw_request_complete(req, &u->request)) {
        pst_metric_add(g->refused, 1);
        pst_event_clear(&pst_job_request_type, &u->request);
        free(u);
        return;
    }
    g->uploads++;
    if (!archive.len)
        send_upload(u);
    else if (pst_thread_detached("gateway-upload", put_away, u)) {
        pst_err_set(&u->err, PST_EAGAIN, PST_CLASS_RETRY, "sys", 0, "no thread to be had; ask again later");
        send_upload(u);
    }
}
