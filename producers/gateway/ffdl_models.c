/* ffdl_models.c - FfDL's jobs: POST, GET, PATCH and DELETE of /v1/models. What changes a job is published as by every other way; but FfDL's client asks
 * and sees at once, so a submission is answered when the store shows it (or that the Trainer refused it), a deletion when it shows it no more. A
 * manifest is weighed as POST /v1/jobs weighs it, and by what FfDL asks beyond that: one data store, and code. The upload, up to 128 MiB, is looked
 * through and put away by a thread of its own. PATCH halts, which FfDL's only noted down. */
#include "producers/gateway/ffdl.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/settings.h"
#include "common/base/thread.h"
#include "common/loop/multipart.h"
#include "common/platform/code.h"
#include "producers/gateway/caller.h"
#include "producers/gateway/jobs.h"
#include "schemas/job_state.h"
#include "schemas/manifest.h"
#include "schemas/training_id.h"

#include <stdlib.h>
#include <string.h>

enum { LIST_MAX = 50000, STORE_PAGE = 1000, LIST_TURN_US = 1000, BODY_MAX = 128 << 20, PATCH_MAX = 4096, PARTS_MAX = 8, UPLOADS_MAX = 4 };

/* ---- POST ------------------------------------------------------------------------------------------------------------------ */

static void created(pst_http_req *req, const char *id)
{
    char *location = pst_sprintf("/v1/models/%s", id);
    pst_http_add_header(req, "Location", location);
    pst_http_reply_json(req, 201, json_pack("{s:s, s:s}", "model_id", id, "location", location));
    free(location);
}

/* It is published, so its event cannot be lost: where no Trainer says anything in time, it is created all the same. */
static bool submission_seen(gw_state *g, pst_http_req *req, const char *id, const json_t *doc, bool last)
{
    if (!doc && !last)
        return false;
    const char *state = pst_json_str(doc, "state", "");
    if (!last && !strcmp(state, "QUEUED") && !strcmp(pst_json_str(doc, "reason_code", ""), "STORES_ASKED"))
        return false; /* not admitted yet */
    if (!strcmp(state, "REJECTED"))
        gw_ffdl_fail(req, 400, pst_json_str(doc, "reason", "the Trainer refused it"));
    else
        created(req, id);
    return true;
}

static void submission_published(gw_state *g, pst_http_req *req, const char *id)
{
    gw_await(g, req, id, submission_seen);
}

/* True: the manifest can run. Else err has all that is wrong with it, so that nobody mends it one message at a time. */
static bool manifest_runs(const char *text, pst_err *err)
{
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    pst_manifest_parse(text, strlen(text), &m, &errors, &warnings);
    pst_manifest_check_served(&m, &errors);
    if (m.n_stores > 1)
        pst_complain(&errors, "data_stores", m.stores[1].line, "there are %zu; FfDL's interface takes one (POST /v1/jobs takes more)",
                     m.n_stores);
    bool runs = !errors.n;
    if (!runs) {
        char *all = pst_complaints_text(&errors);
        pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "manifest", 0, "the manifest cannot run: %s", all);
        free(all);
    }
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    pst_manifest_done(&m);
    return runs;
}

typedef struct upload {
    gw_state *g;
    pst_http_req *req;
    pst_slice zip; /* in the request's body */
    pst_job_request request;
    pst_job_code code;
    pst_err err;
} upload;

/* @thread loop */
static void send_upload(void *arg)
{
    upload *u = arg;
    gw_state *g = u->g;
    char id[64];
    PST_ASSERT(g->uploads > 0);
    g->uploads--;
    u->request.code = &u->code;
    pst_training_id(u->request.user, u->request.request_id, id);
    if (!u->err.code)
        gw_publisher_send(g->publisher, u->req, &u->request, id, id, submission_published);
    else {
        pst_metric_add(g->refused, 1);
        gw_ffdl_fail(u->req, u->err.cls == PST_CLASS_DATA ? 400 : 503, u->err.text);
    }
    u->request.code = NULL;
    pst_code_done(&u->code);
    pst_event_clear(&pst_job_request_type, &u->request);
    free(u);
}

static void *put_away(void *arg)
{
    upload *u = arg;
    gw_code_put_away(u->g, "model_definition", u->zip, "application/zip", &u->code, &u->err);
    gw_post(u->g, send_upload, u, NULL);
    return NULL;
}

static void refuse(gw_state *g, pst_http_req *req, int status, const char *why)
{
    pst_metric_add(g->refused, 1);
    gw_ffdl_fail(req, status, why);
}

/* The two parts; NULL: req is answered. *ret_manifest is free()d by the caller. */
static const pst_part *parts_of(gw_state *g, pst_http_req *req, pst_part parts[PARTS_MAX], char **ret_manifest)
{
    size_t n = 0;
    pst_err err = {0};
    if (pst_multipart_parse(gw_header(req, "Content-Type"), pst_http_body(req), parts, PARTS_MAX, &n, &err) < 0) {
        refuse(g, req, 400, err.text);
        return NULL;
    }
    const pst_part *manifest = pst_part_find(parts, n, "manifest"), *code = pst_part_find(parts, n, "model_definition");
    if (!manifest)
        refuse(g, req, 400, "there is no part `manifest`; it is a file, manifest.yml");
    else if (memchr(manifest->data.data, 0, manifest->data.len))
        refuse(g, req, 400, "the part `manifest` holds a NUL; it is YAML text");
    else if (!code || !code->data.len)
        refuse(g, req, 400, "there is no part `model_definition`, or it is empty; it is a zip archive with the job's code");
    else {
        *ret_manifest = pst_strndup(manifest->data.data, manifest->data.len);
        return code;
    }
    return NULL;
}

/* What the request alone can tell is answered here; what takes time (the archive) goes to a thread, of which there are a few: each holds a body of up to
 * BODY_MAX. The request stays ours until send_upload answers it, also if its client leaves. */
static void submit(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    pst_part parts[PARTS_MAX];
    pst_err err = {0};
    char *manifest = NULL, uuid[37];
    const pst_part *code = parts_of(g, req, parts, &manifest);
    if (!code)
        return;
    if (!manifest_runs(manifest, &err) || g->uploads >= UPLOADS_MAX) {
        if (!err.code)
            pst_http_add_header(req, "Retry-After", "1");
        refuse(g, req, err.code ? 400 : 503, err.code ? err.text : "too many uploads are under way; ask again in a moment");
        free(manifest);
        return;
    }
    char *user = gw_ffdl_user(req);
    upload *u = pst_alloc(sizeof *u);
    pst_uuid7(uuid);
    *u = (upload){.g = g,
                  .req = req,
                  .zip = code->data,
                  .request = {.request_id = pst_strdup(uuid),
                              .user = user ? user : pst_strdup(pst_account_name(NULL)),
                              .manifest = manifest,
                              .time = pst_now_us()}};
    gw_caller_sign(req, &u->request);
    g->uploads++;
    if (pst_thread_detached("gateway-upload", put_away, u)) {
        pst_err_set(&u->err, PST_ENOMEM, PST_CLASS_RETRY, "sys", 0, "no thread to be had");
        send_upload(u);
    }
}

/* ---- PATCH and DELETE ------------------------------------------------------------------------------------------------------ */

static void say_id(pst_http_req *req, int status, const char *id)
{
    pst_http_reply_json(req, status, json_pack("{s:s}", "model_id", id));
}

/* Published as the wish of whom --users knows by name; else as its owner's: whoever is let in as somebody else was refused by gw_ffdl_job, and the token's bearer acts for whose job it is. */
static void ask(gw_state *g, pst_http_req *req, const json_t *doc, pst_job_action action, gw_published published)
{
    const char *id = pst_http_param(req, "id");
    char uuid[37];
    pst_uuid7(uuid);
    pst_job_request r = {.request_id = pst_strdup(uuid),
                         .user = pst_strdup(gw_ffdl_owner(doc)),
                         .action = action,
                         .training_id = pst_strdup(id),
                         .time = pst_now_us()};
    gw_caller_sign(req, &r);
    gw_publisher_send(g->publisher, req, &r, id, id, published);
    pst_event_clear(&pst_job_request_type, &r);
}

static void halt_published(gw_state *g, pst_http_req *req, const char *id)
{
    say_id(req, 202, id);
}

static void patch(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    pst_err err = {0};
    json_t *body = NULL, *doc = NULL;
    pst_slice text = pst_http_body(req);
    const char *wanted = NULL;
    if (pst_json_parse(text.data, text.len, "the body", &body, &err) == 0)
        wanted = json_string_value(json_object_get(body, "status"));
    doc = gw_ffdl_job(g, req); /* who is told of a job's state is its owner */
    const char *state = pst_json_str(doc, "state", "");
    if (!doc)
        ;
    else if (!wanted || strcmp(wanted, "halt"))
        gw_ffdl_fail(req, 400, err.code ? err.text : "the one status that may be set is \"halt\"");
    else if (!strcmp(state, "HALTED"))
        say_id(req, 202, pst_http_param(req, "id")); /* what was asked for is so */
    else if (pst_job_state_is_ended(pst_job_public_state_parse(state))) {
        char *why = pst_sprintf("the job has ended already: it is %s", state);
        gw_ffdl_fail(req, 400, why);
        free(why);
    } else
        ask(g, req, doc, PST_JOB_ACTION_HALT, halt_published);
    json_decref(doc);
    json_decref(body);
}

/* A job that still runs is ended first, which takes its grace time: then the answer is sooner. */
static bool deletion_seen(gw_state *g, pst_http_req *req, const char *id, const json_t *doc, bool last)
{
    if (doc && !last)
        return false;
    say_id(req, 200, id);
    return true;
}

static void deletion_published(gw_state *g, pst_http_req *req, const char *id)
{
    gw_await(g, req, id, deletion_seen);
}

static void delete (void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    json_t *doc = gw_ffdl_job(g, req);
    if (doc)
        ask(g, req, doc, PST_JOB_ACTION_DELETE, deletion_published);
    json_decref(doc);
}

/* ---- GET ------------------------------------------------------------------------------------------------------------------- */

/* FfDL's list has no pages: it is all jobs. They come from the store by pages, one a turn of the loop, so that nobody else waits for a long list. */
typedef struct listing {
    gw_state *g;
    pst_http_req *req;
    char *user, *last; /* last: the id that the page before ended with */
    int64_t last_time;
    json_t *models;
    pst_timer *timer;
} listing;

static void listing_end(listing *l)
{
    PST_ASSERT(l->g->afters > 0);
    l->g->afters--;
    pst_timer_free(l->timer);
    json_decref(l->models);
    free(l->user);
    free(l->last);
    free(l);
}

/* How many the page had; < 0: err. That the Trainer has not made the store yet is a page without jobs. */
static int take_page(listing *l, pst_err *err)
{
    json_t *docs = NULL, *doc;
    size_t i;
    pst_store_query q = {.user = l->user, .after = l->last, .after_time = l->last_time, .limit = STORE_PAGE};
    pst_store *s = gw_store_lock(l->g, err);
    int rc = s ? pst_store_list(s, "jobs", &q, &docs, err) : err->code;
    gw_store_unlock(l->g);
    json_array_foreach(docs, i, doc) if (strcmp(pst_json_str(doc, "state", ""), "REJECTED")) /* FfDL knows none */
        json_array_append_new(l->models, gw_ffdl_model(doc));
    size_t n = json_array_size(docs);
    if (n) {
        free(l->last);
        l->last = pst_strdup(pst_json_str(json_array_get(docs, n - 1), "training_id", ""));
        l->last_time = pst_json_int(json_array_get(docs, n - 1), "submitted_at", 0);
    }
    json_decref(docs);
    return rc < 0 && rc != PST_ENOTFOUND ? rc : (int)n;
}

static void list_on(void *arg)
{
    listing *l = arg;
    pst_err err = {0};
    int n = pst_http_gone(l->req) ? 0 : take_page(l, &err);
    if (n == STORE_PAGE && json_array_size(l->models) < LIST_MAX)
        return;
    if (n < 0)
        gw_ffdl_fail(l->req, 500, err.text);
    else if (n == STORE_PAGE)
        gw_ffdl_fail(l->req, 500, "there are more jobs than fit into one list; GET /v1/jobs gives them by pages");
    else
        pst_http_reply_json(l->req, 200, json_pack("{s:O}", "models", l->models));
    listing_end(l);
}

static void list(void *arg, pst_http_req *req)
{
    listing *l = pst_alloc(sizeof *l);
    *l = (listing){.g = arg, .req = req, .user = gw_ffdl_user(req), .models = json_array()};
    l->g->afters++;
    l->timer = pst_timer_new(l->g->loop, 0, LIST_TURN_US, list_on, l);
}

static void show(void *arg, pst_http_req *req)
{
    json_t *doc = gw_ffdl_job(arg, req);
    if (doc)
        pst_http_reply_json(req, 200, gw_ffdl_model(doc));
    json_decref(doc);
}

#define TRACE                                                                                                      \
    {                                                                                                              \
        "traceparent", "header", GW_JSON({"type" : "string"}), "W3C Trace Context: the trace that it is a part of" \
    }
#define NOT_YOURS                                         \
    {404, "no job has this id", GW_FFDL_ERROR},           \
    {                                                     \
        500, "the store could not be read", GW_FFDL_ERROR \
    }
#define NOT_PUBLISHED                                                                                \
    {                                                                                                \
        503, "the broker did not take the event, or too much is under way; ask again", GW_FFDL_ERROR \
    }
static const gw_param of_list[] = {GW_FFDL_VERSION, GW_FFDL_USERINFO, {0}}, of_job[] = {GW_ID, GW_FFDL_VERSION, GW_FFDL_USERINFO, {0}},
                      of_submit[] = {GW_FFDL_VERSION,
                                     GW_FFDL_USERINFO,
                                     TRACE,
                                     {"Content-Type", "header", GW_JSON({"type" : "string"}), "multipart/form-data with its boundary"},
                                     {0}},
                      of_action[] = {GW_ID, GW_FFDL_VERSION, GW_FFDL_USERINFO, TRACE, {0}};
static const gw_content upload_body[] =
    {{"multipart/form-data", GW_JSON({
          "type" : "object",
          "required" : [ "manifest", "model_definition" ],
          "properties" : {
              "manifest" : {"type" : "string", "description" : "manifest.yml"},
              "model_definition" : {"type" : "string", "contentMediaType" : "application/zip", "description" : "the job's code"}
          }
      })},
     {0}},
                        patch_body[] = {
                            {"application/json",
                             GW_JSON({"type" : "object", "required" : ["status"], "properties" : {"status" : {"const" : "halt"}}})},
                            {0}};
static const gw_answer to_list[] = {{200, "newest first, 1,000 at most", "application/json", "FfdlModelList"},
                                    {500, "the store could not be read", GW_FFDL_ERROR},
                                    {0}},
                       to_show[] = {{200, "the job", "application/json", "FfdlModel"}, NOT_YOURS, {0}},
                       to_submit[] =
                           {{201, "submitted: `Location` is where it is shown", "application/json", "FfdlCreated"},
                            {400, "parts that lack, a manifest that cannot run (all that is wrong), an archive that is no zip or hostile",
                             GW_FFDL_ERROR},
                            NOT_PUBLISHED,
                            {0}},
                       to_patch[] = {{202, "it will be halted, or is", "application/json", "FfdlId"},
                                     {400, "another status, or a job that has ended", GW_FFDL_ERROR},
                                     NOT_YOURS,
                                     NOT_PUBLISHED,
                                     {0}},
                       to_delete[] = {{200, "deleted, or being ended for it", "application/json", "FfdlId"}, NOT_YOURS, NOT_PUBLISHED, {0}};

static const gw_route routes[] = {
    {{"POST", "/v1/models", submit, BODY_MAX, PST_HTTP_MULTIPART | GW_FFDL | GW_USER,
      "Submits a job as FfDL's client does: the parts `manifest` and `model_definition` (zip, 128 MiB with all), chunked or not. 201 when "
      "the Trainer has it."},
     "createModel",
     of_submit,
     upload_body,
     to_submit},
    {{"GET", "/v1/models", list, 0, GW_FFDL | GW_ALL,
      "FfDL's list of jobs, newest first: `{\"models\": […]}`. With basic authentication those of its user, with a bearer token all."},
     "listModels",
     of_list,
     NULL,
     to_list},
    {{"GET", "/v1/models/{id}", show, 0, GW_FFDL | GW_ALL, "One job as FfDL's `Model`. 401 also for a job of another user."},
     "showModel",
     of_job,
     NULL,
     to_show},
    {{"PATCH", "/v1/models/{id}", patch, PATCH_MAX, GW_FFDL | GW_USER,
      "`{\"status\": \"halt\"}` halts the job: its processes are stopped, it may be resumed."},
     "haltModel",
     of_action,
     patch_body,
     to_patch},
    {{"DELETE", "/v1/models/{id}", delete, 0, GW_FFDL | GW_USER, "Ends a job and removes it."}, "deleteModel", of_action, NULL, to_delete},
};

const gw_noun gw_ffdl_noun = {"ffdl", "Jobs as FfDL's REST interface has them.", routes, sizeof routes / sizeof *routes, gw_ffdl_schemas};
