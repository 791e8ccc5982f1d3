/* jobs.c - /v1/jobs: submit, list, show, halt, resume, terminate, delete, hold, release, reprioritise. What changes a job is published as a request and answered when the broker
 * has it: the Trainer decides, and its answer is an event. So this file checks what needs no knowledge of other jobs (the manifest), and holds no
 * state of its own. Lists and single jobs come from the store, which follows jobs.state. */
#include "producers/gateway/gateway.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/settings.h"
#include "producers/gateway/after.h"
#include "producers/gateway/caller.h"
#include "producers/gateway/jobs.h"
#include "producers/gateway/routes.h"
#include "schemas/avro.h"
#include "schemas/manifest.h"
#include "schemas/training_id.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    BODY_MAX = 128 << 20,
    TEXT_MAX = 16 << 20,
    LIST_MAX = 1000,
    STORE_PAGE = 1000 /* the store gives no more at once */,
    LOOKED_MAX = 4000
};

static void unknown_job(pst_http_req *req)
{
    pst_http_problem(req, 404, "unknown-job", NULL,
                     "there is no job of this id (a job just submitted appears once the Trainer has seen it)");
}

/* ---- submit ---- */

/* Answers a manifest that cannot run with all that is wrong with it, so that nobody mends it one message at a time. */
bool gw_manifest_refuse(pst_http_req *req, const char *manifest)
{
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    bool bad = pst_manifest_parse(manifest, strlen(manifest), &m, &errors, &warnings) < 0;
    if (bad) { /* what the Trainer would say beside it, too */
        pst_manifest_check_served(&m, &errors);
        json_t *list = json_array();
        for (size_t i = 0; i < errors.n; i++)
            json_array_append_new(
                list, json_pack("{s:s, s:i, s:s}", "field", errors.at[i].field, "line", errors.at[i].line, "detail", errors.at[i].text));
        json_t *problem = json_pack("{s:s, s:s, s:i, s:s, s:s, s:o}", "type", "about:blank", "title", "Bad Request", "status", 400, "code",
                                    "invalid-manifest", "detail", "the manifest cannot run; every violation is listed", "violations", list);
        char *text = pst_json_text(problem);
        pst_http_reply(req, 400, "application/problem+json", text, strlen(text));
        free(text);
        json_decref(problem);
    }
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    pst_manifest_done(&m);
    return bad;
}

static int request_of_json(pst_slice body, pst_job_request *ret, pst_err *err)
{
    json_t *j = NULL;
    int rc = pst_json_parse(body.data, body.len, "the body", &j, err);
    if (!rc && !json_is_object(j))
        rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "http", 0, "the body must be an object with `manifest`, or a YAML manifest");
    if (!rc) {
        if (!json_object_get(j, "request_id"))
            json_object_set_new(j, "request_id", json_string(""));
        if (!json_object_get(j, "action"))
            json_object_set_new(j, "action", json_string("SUBMIT"));
        rc = pst_event_from_json(&pst_job_request_type, j, ret, err);
    }
    json_decref(j);
    return rc;
}

/* The body is a manifest, or JSON with one. Either way *ret must be cleared. */
static int request_of(pst_http_req *req, pst_job_request *ret, pst_err *err)
{
    pst_slice body = pst_http_body(req);
    const char *type = pst_http_header(req, "Content-Type"), *text = body.data; /* a NUL follows it */
    size_t skip = strspn(text, " \t\r\n");
    if ((type && strcasestr(type, "json")) || text[skip] == '{')
        return request_of_json(body, ret, err);
    *ret = (pst_job_request){.request_id = pst_strdup(""), .user = pst_strdup("anonymous"), .manifest = pst_strndup(text, body.len)};
    return 0;
}

static void text_set(char **to, const char *value)
{
    free(*to);
    *to = pst_strdup(value);
}

/* What the request's address and head say beside its body: id, user and time of the event. false: they cannot be, and req is answered. */
bool gw_request_complete(pst_http_req *req, pst_job_request *r)
{
    const char *key = gw_header(req, "Idempotency-Key"), *user = gw_query(req, "user");
    char uuid[37];
    if (key && *key)
        text_set(&r->request_id, key);
    if (!*r->request_id) {
        pst_uuid7(uuid);
        text_set(&r->request_id, uuid);
    }
    char *known = user && *user ? NULL : gw_who_name(req); /* of basic auth: taken where the request names nobody itself */
    if (user && *user)
        text_set(&r->user, user);
    else if (known && !strcmp(r->user, "anonymous"))
        text_set(&r->user, known);
    free(known);
    gw_caller_sign(req, r);
    r->time = pst_now_us();
    return !gw_request_refuse(req, r);
}

/* True when the request was answered already, because nothing can come of it. */
static bool refuse(pst_http_req *req, const pst_job_request *r)
{
    if (r->action == PST_JOB_ACTION_SUBMIT && r->manifest && *r->manifest)
        return gw_manifest_refuse(req, r->manifest);
    pst_http_problem(req, 400, "no-manifest", NULL,
                     "POST /v1/jobs takes a manifest; other actions have paths of their own, as POST /v1/jobs/{id}/halt");
    return true;
}

static void submit(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    const char *type = pst_http_header(req, "Content-Type");
    if (type && !strncasecmp(type, "multipart/", strlen("multipart/"))) {
        gw_jobs_upload(g, req);
        return;
    }
    if (pst_http_body(req).len > TEXT_MAX) {
        pst_http_problem(req, 413, "limit", NULL,
                         "a manifest, or JSON with one, is 16 MiB at most; code goes as a part of multipart/form-data");
        return;
    }
    pst_job_request r = {0};
    pst_err err = {0};
    char id[64];
    bool refused = true;
    if (request_of(req, &r, &err) < 0)
        pst_http_problem_err(req, &err);
    else
        refused = refuse(req, &r) || !gw_request_complete(req, &r) || gw_reused_refuse(g, req, &r);
    if (refused)
        pst_metric_add(g->refused, 1);
    else {
        pst_training_id(r.user, r.request_id, id);
        gw_publisher_send(g->publisher, req, &r, id, id, NULL);
    }
    pst_event_clear(&pst_job_request_type, &r);
}

/* ---- halt, resume, terminate, delete, hold, release, reprioritise ---- */

/* One that was submitted here a moment ago may not be in the store yet. Before the Trainer has made the store there are none; one
 * that cannot be asked for another reason refuses nothing: the Trainer decides. */
static bool is_unknown(gw_state *g, const char *id)
{
    pst_err err = {0};
    json_t *doc = NULL;
    if (gw_after_knows(g, id))
        return false;
    pst_store *s = gw_store_lock(g, &err);
    int rc = s ? pst_store_get(s, "jobs", id, &doc, &err) : err.code;
    if (s)
        gw_store_unlock(g);
    json_decref(doc);
    return rc == PST_ENOTFOUND;
}

/* The Trainer judges the priority; NULL where the action has none. */
static void act(gw_state *g, pst_http_req *req, pst_job_action action, const char *priority)
{
    const char *id = pst_http_param(req, "id");
    PST_ASSERT(id);
    if (is_unknown(g, id)) {
        unknown_job(req);
        return;
    }
    if (!gw_job_allowed(g, req, true))
        return;
    pst_job_request r = {.request_id = pst_strdup(""), .user = pst_strdup("anonymous"), .action = action, .training_id = pst_strdup(id)};
    if (priority)
        pst_str_map_set(&r.options, &r.n_options, "priority", priority);
    if (gw_request_complete(req, &r)) {
        if (!gw_caller_name(req) &&
            !strcmp(r.user, "anonymous")) /* whoever has the platform's one token acts for the account that runs it */
            text_set(&r.user, pst_account_name(NULL));
        gw_publisher_send(g->publisher, req, &r, id, id, NULL);
    } else
        pst_metric_add(g->refused, 1);
    pst_event_clear(&pst_job_request_type, &r);
}

static void halt(void *arg, pst_http_req *req)
{
    act(arg, req, PST_JOB_ACTION_HALT, NULL);
}

static void resume(void *arg, pst_http_req *req)
{
    act(arg, req, PST_JOB_ACTION_RESUME, NULL);
}

static void terminate(void *arg, pst_http_req *req)
{
    act(arg, req, PST_JOB_ACTION_TERMINATE, NULL);
}

static void delete (void *arg, pst_http_req *req)
{
    act(arg, req, PST_JOB_ACTION_DELETE, NULL);
}

static void hold(void *arg, pst_http_req *req)
{
    act(arg, req, PST_JOB_ACTION_HOLD, NULL);
}

static void release(void *arg, pst_http_req *req)
{
    act(arg, req, PST_JOB_ACTION_RELEASE, NULL);
}

static void reprioritise(void *arg, pst_http_req *req)
{
    const char *priority = gw_query(req, "priority");
    act(arg, req, PST_JOB_ACTION_REPRIORITISE, priority ? priority : "");
}

/* ---- list and show ---- */

/* A page token is TIME.ID.MARK: where the last job that was looked at stands in the list, which holds when that job has been deleted meanwhile, and a
 * mark of the filters: with others it would begin anywhere. */
typedef struct place {
    int64_t time; /* "submitted_at" */
    char *id;     /* NULL: the list's beginning */
} place;

static void mark_of(const pst_http_req *req, const char *where, char ret[17])
{
    static const char *const filters[] = {"state", "user", "queue", "name"};
    pst_buf text = {0};
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        const char *value = pst_http_query(req, filters[i]);
        pst_buf_printf(&text, "%zu %s ", value ? strlen(value) : 0, value ? value : "");
    }
    pst_buf_adds(&text, where);
    char hex[65];
    pst_sha256_hex(text.data, text.len, hex);
    snprintf(ret, 17, "%.16s", hex);
    pst_buf_done(&text);
}

static bool place_parse(const char *text, place *ret)
{
    char *end = NULL;
    long long time = strtoll(text, &end, 10);
    if (end == text || *end != '.' || !end[1])
        return false;
    *ret = (place){time, pst_strdup(end + 1)};
    return true;
}

/* The place in the request's page token; false: it is none of ours. */
static bool place_of_token(const pst_http_req *req, place *ret)
{
    const char *token = gw_query(req, "page_token"), *dot = token ? strrchr(token, '.') : NULL;
    char mark[17] = "";
    if (!token || !*token)
        return true;
    char *where = dot ? pst_strndup(token, (size_t)(dot - token)) : NULL;
    if (where)
        mark_of(req, where, mark);
    bool ours = where && strcmp(mark, dot + 1) == 0 && place_parse(where, ret);
    free(where);
    return ours;
}

static const char *filter(const pst_http_req *req, const char *name)
{
    const char *value = gw_query(req, name);
    return value && *value ? value : NULL;
}

static bool is_wanted(const pst_http_req *req, const json_t *doc)
{
    const char *queue = filter(req, "queue"), *name = filter(req, "name");
    return (!queue || !strcmp(pst_json_str(doc, "queue", ""), queue)) && (!name || !fnmatch(name, pst_json_str(doc, "name", ""), 0));
}

/* Adds those of a page of the store that are wanted, up to limit, and returns how many it has looked at. *last: where the last one of them stands. */
static size_t add_page(const pst_http_req *req, const json_t *docs, size_t limit, json_t *to, place *last)
{
    size_t i;
    json_t *doc;
    json_array_foreach(docs, i, doc)
    {
        if (json_array_size(to) == limit)
            return i;
        free(last->id);
        *last = (place){pst_json_int(doc, "submitted_at", 0), pst_strdup(pst_json_str(doc, "training_id", ""))};
        if (is_wanted(req, doc))
            json_array_append(to, doc);
    }
    return json_array_size(docs);
}

static void reply_list(pst_http_req *req, json_t *jobs, const place *last, bool more)
{
    char mark[17];
    json_t *token = json_null();
    if (more && last->id) {
        char *where = pst_sprintf("%lld.%s", (long long)last->time, last->id);
        mark_of(req, where, mark);
        token = json_sprintf("%s.%s", where, mark);
        free(where);
    }
    pst_http_reply_json(req, 200, json_pack("{s:o, s:o}", "jobs", jobs, "next_page_token", token));
}

/* What the store cannot search for is looked for here, in so many jobs that the loop is not held up: a page may hold fewer than asked for, or none, and its
 * token still leads on. The store is asked for one more than the page holds, to know whether there is another page. */
static void list_now(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    pst_err err = {0};
    size_t limit = gw_limit(req, 100, LIST_MAX), looked = 0;
    bool searches = filter(req, "queue") || filter(req, "name"), room = true, more = false;
    place last = {0};
    if (!place_of_token(req, &last)) {
        pst_http_problem(req, 400, "foreign-page-token", NULL,
                         "this page_token belongs to another list; take `next_page_token` of the page before, and the same filters");
        return;
    }
    json_t *jobs = json_array();
    const char *user = filter(req, "user");
    int rc = 0;
    if (!gw_caller_sees_all(req)) { /* of another user there is nothing to see */
        room = !user || !strcmp(user, gw_caller_of(req)->name);
        user = gw_caller_of(req)->name;
    }
    while (!rc && room && looked < LOOKED_MAX) {
        json_t *docs = NULL;
        size_t asked = searches || limit >= STORE_PAGE ? STORE_PAGE : limit + 1;
        pst_store_query q = {.state = filter(req, "state"), .user = user, .after = last.id, .after_time = last.time, .limit = asked};
        pst_store *s = gw_store_lock(g, &err);
        rc = s ? pst_store_list(s, "jobs", &q, &docs, &err) : err.code;
        gw_store_unlock(g);
        if (rc == PST_ENOTFOUND && !s) { /* the trainer has not made it yet: there are no jobs */
            docs = json_array();
            rc = 0;
        }
        size_t n = json_array_size(docs), used = add_page(req, docs, limit, jobs, &last);
        looked += used;
        more = used < n || n == asked;
        room = n == asked && json_array_size(jobs) < limit;
        json_decref(docs);
    }
    if (rc < 0)
        pst_http_problem_err(req, &err);
    else
        reply_list(req, json_incref(jobs), &last, more);
    json_decref(jobs);
    free(last.id);
}

static void show_now(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    pst_err err = {0};
    json_t *doc = NULL;
    const char *id = pst_http_param(req, "id");
    pst_store *s = gw_store_lock(g, &err);
    int rc = s ? pst_store_get(s, "jobs", id, &doc, &err) : err.code;
    gw_store_unlock(g);
    if (rc == PST_ENOTFOUND || (doc && !gw_caller_sees(req, pst_json_str(doc, "user", NULL)))) {
        json_decref(doc);
        unknown_job(req);
    } else if (rc < 0)
        pst_http_problem_err(req, &err);
    else
        pst_http_reply_json(req, 200, doc);
}

static void list(void *arg, pst_http_req *req)
{
    if (!gw_after(arg, req, list_now))
        list_now(arg, req);
}

static void show(void *arg, pst_http_req *req)
{
    if (!gw_after(arg, req, show_now))
        show_now(arg, req);
}

/* ---- routes ---- */

#define PUBLISHED                                                        \
    {                                                                    \
        202, "the broker has the event", "application/json", "Published" \
    }
#define NOT_PUBLISHED                                                                                                               \
    {403, "a page of another origin, or a right on the cluster that is missing", GW_PROBLEM},                                       \
        {409, "the registry does not take the event's schema, or the request id stands for another submission", GW_PROBLEM},        \
        {500, "it could not be published", GW_PROBLEM},                                                                             \
    {                                                                                                                               \
        503, "the broker or the registry is not reached, or too many requests wait; ask again with the same request id", GW_PROBLEM \
    }
#define STORE_FAILED                                  \
    {500, "the store could not be read", GW_PROBLEM}, \
    {                                                 \
        503, "the store is not reached", GW_PROBLEM   \
    }
#define USER                                                                                                          \
    {                                                                                                                 \
        "user", "query", GW_JSON({"type" : "string"}), "whose request this is; else the name of basic authentication" \
    }
#define KEY                                                                                                             \
    {                                                                                                                   \
        "Idempotency-Key", "header", GW_JSON({"type" : "string"}), "the request id: the same request sent twice is one" \
    }

#define TRACE                                                                                                                            \
    {                                                                                                                                    \
        "traceparent", "header", GW_JSON({"type" : "string"}),                                                                           \
            "W3C Trace Context: the trace that the request, and what comes of it, are a part of; without a valid one a new trace begins" \
    }

static const gw_schema schemas[] = {{"Published", GW_JSON({
                                         "type" : "object",
                                         "description" : "Where the event of a request stands.",
                                         "required" : [ "training_id", "request_id", "topic", "partition", "offset" ],
                                         "properties" : {
                                             "training_id" : {"type" : "string"},
                                             "request_id" : {"type" : "string"},
                                             "topic" : {"type" : "string"},
                                             "partition" : {"type" : "integer"},
                                             "offset" : {"type" : "integer", "format" : "int64"}
                                         }
                                     })},
                                    {"Submission", GW_JSON({
                                         "type" : "object",
                                         "description" : "A JobRequest of which all but the manifest may be left out.",
                                         "required" : ["manifest"],
                                         "properties" : {
                                             "manifest" : {"type" : "string", "description" : "YAML text"},
                                             "request_id" : {"type" : "string"},
                                             "user" : {"type" : "string"},
                                             "action" : {"const" : "SUBMIT"},
                                             "code" : {"$ref" : "#/components/schemas/Code"},
                                             "options" : {"type" : "object", "additionalProperties" : {"type" : "string"}}
                                         }
                                     })},
                                    {"Upload", GW_JSON({
                                         "type" : "object",
                                         "required" : ["manifest"],
                                         "properties" : {
                                             "manifest" : {"type" : "string", "description" : "YAML text"},
                                             "code" : {"type" : "string", "format" : "binary", "description" : "zip, tar or gzip"}
                                         }
                                     })},
                                    {"Code", GW_JSON({
                                         "type" : [ "object", "null" ],
                                         "description" : "The archive with the job's code.",
                                         "properties" : {
                                             "media_type" : {"enum" : [ "application/zip", "application/x-tar", "application/gzip" ]},
                                             "content" : {"type" : [ "string", "null" ], "contentEncoding" : "base64"},
                                             "uri" : {"type" : [ "string", "null" ]},
                                             "sha256" : {"type" : [ "string", "null" ]}
                                         }
                                     })},
                                    {"JobList", GW_JSON({
                                         "type" : "object",
                                         "required" : [ "jobs", "next_page_token" ],
                                         "properties" : {
                                             "jobs" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/JobState"}},
                                             "next_page_token" : {"type" : [ "string", "null" ], "description" : "null: there are no more"}
                                         }
                                     })},
                                    {0}};
#define GW_JOB_STATES                                                                                                                  \
    GW_JSON({                                                                                                                          \
        "enum" :                                                                                                                       \
            [ "QUEUED", "PENDING", "DOWNLOADING", "PROCESSING", "STORING", "COMPLETED", "FAILED", "HALTED", "TERMINATED", "REJECTED" ] \
    })

static const gw_param of_submit[] = {KEY, USER, TRACE, {0}}, of_job[] = {GW_ID, GW_AFTER, {0}},
                      of_action[] = {GW_ID, KEY, USER, TRACE, {0}},
                      of_priority[] = {GW_ID,
                                       KEY,
                                       USER,
                                       TRACE,
                                       {"priority", "query", GW_JSON({"type" : "integer", "minimum" : -1000000, "maximum" : 1000000}),
                                        "required; higher runs first"},
                                       {0}},
                      of_list[] = {
                          {"state", "query", GW_JOB_STATES, "jobs in this state"},
                          {"user", "query", GW_JSON({"type" : "string", "maxLength" : 300}), "jobs of this user"},
                          {"queue", "query", GW_JSON({"type" : "string", "maxLength" : 300}), "jobs in this queue"},
                          {"name", "query", GW_JSON({"type" : "string", "maxLength" : 300}),
                           "jobs of this name; *, ? and [a-z] as in a shell"},
                          GW_AFTER,
                          {"page_token", "query", GW_JSON({"type" : "string", "maxLength" : 300}),
                           "`next_page_token` of the page before; with the same filters"},
                          {"limit", "query", GW_JSON({"type" : "integer", "minimum" : 1, "maximum" : 1000, "default" : 100}), "how many"},
                          {0}};
static const gw_content bodies[] = {{"application/yaml", GW_JSON({"type" : "string"})},
                                    {"application/x-yaml", GW_JSON({"type" : "string"})},
                                    {"text/yaml", GW_JSON({"type" : "string"})},
                                    {"text/x-yaml", GW_JSON({"type" : "string"})},
                                    {"application/json", "Submission"},
                                    {"multipart/form-data", "Upload"},
                                    {0}};
static const gw_answer
    to_submit[] = {PUBLISHED, {400, "no manifest, or one that cannot run: `violations`", GW_PROBLEM}, NOT_PUBLISHED, {0}},
    to_action[] = {PUBLISHED, {404, "no job has this id", GW_PROBLEM}, NOT_PUBLISHED, {0}},
    to_list[] = {{200, "newest first; a page may hold fewer than asked for, and its token still leads on", "application/json", "JobList"},
                 STORE_FAILED,
                 {0}},
    to_show[] = {
        {200, "the job", "application/json", "JobState"}, {404, "no job has this id", GW_PROBLEM}, STORE_FAILED, GW_AFTER_FAILED, {0}};

static const gw_route routes[] = {
    {{"POST", "/v1/jobs", submit, BODY_MAX, PST_HTTP_UPLOAD | GW_USER,
      "Submits a job; the answer carries its id and the partition and offset of its event. Body: a manifest (YAML), or JSON with "
      "`manifest`, and `code`, `user`, `request_id` if you like, or multipart/form-data with the parts `manifest` and `code` (zip, tar, "
      "gzip). `Idempotency-Key` is the request id. A manifest that cannot run: 400 with "
      "every violation."},
     "submitJob",
     of_submit,
     bodies,
     to_submit},
    {{"GET", "/v1/jobs", list, 0, GW_ALL,
      "Jobs, newest first, by pages. Query: `state`, `user`, `queue`, `name` (as in a shell), `limit` (100), `page_token`."},
     "listJobs",
     of_list,
     NULL,
     to_list},
    {{"GET", "/v1/jobs/{id}", show, 0, GW_ALL, "One job, as of `JobState`."}, "showJob", of_job, NULL, to_show},
    {{"DELETE", "/v1/jobs/{id}", delete, 0, GW_USER, "Ends a job and removes it."}, "deleteJob", of_action, NULL, to_action},
    {{"POST", "/v1/jobs/{id}/halt", halt, 0, GW_USER, "SIGTERM and its grace time; it may be resumed."},
     "haltJob",
     of_action,
     NULL,
     to_action},
    {{"POST", "/v1/jobs/{id}/resume", resume, 0, GW_USER, "Goes on with a halted or failed job, as a new generation."},
     "resumeJob",
     of_action,
     NULL,
     to_action},
    {{"POST", "/v1/jobs/{id}/terminate", terminate, 0, GW_USER, "Ends a job for good."}, "terminateJob", of_action, NULL, to_action},
    {{"POST", "/v1/jobs/{id}/hold", hold, 0, GW_USER, "Holds a waiting job back until it is released."},
     "holdJob",
     of_action,
     NULL,
     to_action},
    {{"POST", "/v1/jobs/{id}/release", release, 0, GW_USER, "Lets a job go on that is held."}, "releaseJob", of_action, NULL, to_action},
    {{"POST", "/v1/jobs/{id}/reprioritise", reprioritise, 0, GW_USER, "Gives a job another priority. Query: `priority`."},
     "reprioritiseJob",
     of_priority,
     NULL,
     to_action},
};

const gw_noun gw_jobs_noun = {"jobs", "Jobs: submit, see, end.", routes, sizeof routes / sizeof *routes, schemas};
