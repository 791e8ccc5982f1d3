/* ffdl_files.c - GET /v1/models/{id}/definition and …/trained_model: the zip as it was submitted, and a zip of the results. Both are files before the first
 * byte is sent (the code is checked by its digest, the results are packed), so that what could go wrong is an answer and not an archive that breaks
 * off. The results folder was the learner's: it is opened without following a link in its place, and packed without links (archive.c). */
#include "producers/gateway/ffdl.h"
#include "producers/gateway/pour.h"

#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/settings.h"
#include "common/base/stop.h"
#include "common/objects/objects.h"
#include "common/platform/results.h"
#include "schemas/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RESULTS_BYTES_MAX ((size_t)4 << 30)
enum { PIECE_BYTES = 64 << 10, PACKS_MAX = 4 };

typedef struct download {
    gw_state *g;
    json_t *doc; /* the job's */
} download;

static void download_done(void *arg)
{
    download *d = arg;
    json_decref(d->doc);
    free(d);
}

/* @thread its own */
static int send_definition(void *arg, gw_pour *p, pst_err *err)
{
    download *d = arg;
    const pst_settings *s = d->g->client->settings;
    const json_t *code = json_object_get(d->doc, "code");
    char uuid[37];
    pst_uuid7(uuid);
    char *name = pst_sprintf("download-%s", uuid), *path = pst_fs_join(s->state_dir.value, name);
    pst_objects *o = NULL;
    int fd = -1, rc = pst_objects_open(pst_setting_full(&s->objects), &o, err);
    if (!rc)
        rc = pst_objects_get_file(o, pst_json_str(code, "uri", ""), pst_json_str(code, "sha256", NULL), path, err);
    if (!rc) {
        fd = open(path, O_RDONLY | O_CLOEXEC);
        rc = fd < 0 ? pst_err_sys(err, errno, "cannot read %s", path) : 0;
        unlink(path);
    }
    pst_objects_close(o);
    free(name);
    free(path);
    return rc ? rc : gw_pour_file(p, fd, err);
}

static int no_results(const download *d, const char *dir, int code, pst_err *err)
{
    const char *id = pst_json_str(d->doc, "training_id", ""), *node = pst_json_str(d->doc, "node", "");
    if (code == ELOOP || code == ENOTDIR)
        return pst_err_set(err, PST_EIO, PST_CLASS_DATA, "results", code, "%s is a link, or no folder; it is not followed", dir);
    if (code != ENOENT)
        return pst_err_sys(err, code, "cannot read the results of %s in %s", id, dir);
    return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "results", 0,
                       "%s has no results on the gateway's computer: it has not begun, they were removed, or they are in %s on node %s", id,
                       dir, *node ? node : "(none yet)");
}

/* The folder with the results, or an error. Only its own name may not be a link: what is above it is the user's manifest's, or ours. */
static int open_results(const download *d, int *ret_dir, pst_err *err)
{
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    const char *text = pst_json_str(d->doc, "manifest", "");
    char *bucket = NULL, *dir = NULL;
    pst_manifest_parse(text, strlen(text), &m, &errors, &warnings);
    pst_results_place(d->g->client->settings->state_dir.value, pst_json_str(d->doc, "training_id", ""), &m, &bucket, &dir);
    int above = open(bucket, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = above < 0 ? -1 : openat(above, strrchr(dir, '/') + 1, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc = fd < 0 ? no_results(d, dir, errno, err) : 0;
    if (above >= 0)
        close(above);
    *ret_dir = fd;
    free(bucket);
    free(dir);
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    return rc;
}

static bool stops(void *arg)
{
    return atomic_load(gw_pour_gone(arg)) || pst_stop_requested();
}

/* Packing takes a core and room in the state folder: a few at a time. */
static int pack(gw_state *g, gw_pour *p, int dir, int fd, pst_err *err)
{
    int rc;
    if (g->packs++ < PACKS_MAX) {
        rc = pst_archive_pack_folder(dir, fd, RESULTS_BYTES_MAX, stops, p, err);
    } else {
        rc = pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "gateway", 0, "%d archives of results are being made already; ask again later",
                         PACKS_MAX);
        close(dir);
    }
    g->packs--;
    return rc;
}

/* @thread its own */
static int send_results(void *arg, gw_pour *p, pst_err *err)
{
    const download *d = arg;
    const char *room = d->g->client->settings->state_dir.value;
    int dir = -1, rc = open_results(d, &dir, err);
    if (rc)
        return rc;
    int fd = open(room, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600); /* without a name: nothing is left, however this ends */
    if (fd < 0) {
        rc = pst_err_sys(err, errno, "no room for the archive in %s", room);
        close(dir);
        return rc;
    }
    rc = pack(d->g, p, dir, fd, err);
    if (!rc && lseek(fd, 0, SEEK_SET) < 0)
        rc = pst_err_sys(err, errno, "cannot read the archive");
    if (!rc)
        return gw_pour_file(p, fd, err);
    close(fd);
    return rc;
}

static void start(gw_state *g, pst_http_req *req, json_t *take_doc, const char *name, int (*run)(void *arg, gw_pour *p, pst_err *err))
{
    download *d = pst_alloc(sizeof *d);
    *d = (download){g, take_doc};
    char *disposition = pst_sprintf("attachment; filename=\"%s-%s.zip\"", pst_json_str(take_doc, "training_id", "job"), name);
    pst_http_add_header(req, "Content-Disposition", disposition);
    free(disposition);
    gw_pour_start(
        g, req,
        &(gw_source){
            .name = "gateway-file", .type = "application/octet-stream", .whole = true, .run = run, .done = download_done, .arg = d});
}

static void definition(void *arg, pst_http_req *req)
{
    json_t *doc = gw_ffdl_job(arg, req);
    if (!doc)
        return;
    if (json_is_object(json_object_get(doc, "code"))) {
        start(arg, req, doc, "definition", send_definition);
        return;
    }
    gw_ffdl_fail(req, 404, "the job was submitted without code");
    json_decref(doc);
}

static void trained_model(void *arg, pst_http_req *req)
{
    json_t *doc = gw_ffdl_job(arg, req);
    if (doc)
        start(arg, req, doc, "trainedmodel", send_results);
}

static const gw_param params[] = {GW_ID, GW_FFDL_VERSION, GW_FFDL_USERINFO, {0}};
#define ANSWERS(what)                                                                                                     \
    {                                                                                                                     \
        {200, what, "application/octet-stream", GW_JSON({"type" : "string"})},                                            \
            {404,                                                                                                         \
             "no job has "                                                                                                \
             "this id, "                                                                                                  \
             "or it has "                                                                                                 \
             "nothing of "                                                                                                \
             "that kind "                                                                                                 \
             "here",                                                                                                      \
             GW_FFDL_ERROR},                                                                                              \
            {413, "the archive would be larger than 4 GiB", GW_FFDL_ERROR}, {500, "it could not be read", GW_FFDL_ERROR}, \
            {503, "too much is being read already, or it changed while it was packed; ask again", GW_FFDL_ERROR},         \
        {                                                                                                                 \
            0                                                                                                             \
        }                                                                                                                 \
    }
static const gw_answer to_definition[] = ANSWERS("the archive, byte for byte as it was submitted"),
                       to_model[] = ANSWERS("a zip of RESULT_DIR as it is now: files of the learner, and its logs below learner-N/");

static const gw_route routes[] = {
    {{"GET", "/v1/models/{id}/definition", definition, 0, GW_FFDL | GW_ALL, "The code that was submitted with the job."},
     "downloadDefinition",
     params,
     NULL,
     to_definition},
    {{"GET", "/v1/models/{id}/trained_model", trained_model, 0, GW_FFDL | GW_ALL, "The job's results as a zip archive, 4 GiB at most."},
     "downloadTrainedModel",
     params,
     NULL,
     to_model},
};

const gw_noun gw_ffdl_files_noun = {"ffdl-files", "What went into a job and what came out, as FfDL hands it out.", routes,
                                    sizeof routes / sizeof *routes, gw_ffdl_schemas};
