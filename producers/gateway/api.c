/* api.c - /v1/jobs: submit, list, show, halt, resume, terminate, delete; a job's records from the topics. Errors are RFC 9457 objects.
 *
 *     POST   /v1/jobs                       YAML manifest, or JSON {"manifest","request_id","user","code":{…}}; header Idempotency-Key = request_id
 *     GET    /v1/jobs?state=&user=&limit=&after=          GET /v1/jobs/{id}
 *     POST   /v1/jobs/{id}/halt|resume|terminate           DELETE /v1/jobs/{id}
 *     GET    /v1/jobs/{id}/events|logs|metrics?limit=      the last records, oldest first
 */
#include "producers/gateway/gateway.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/platform/follow.h"
#include "schemas/manifest.h"
#include "schemas/training_id.h"
#include "common/base/settings.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/topics.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BODY_MAX = 16 << 20, READERS_MAX = 4, LIMIT_MAX = 5000, READ_BYTES_MAX = 4 << 20, READ_US = 10 * 1000000 };

/* ---- submit ---- */

static bool violations(pst_http_req *req, const char *manifest, size_t len)
{
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    bool bad = pst_manifest_parse(manifest, len, &m, &errors, &warnings) < 0;
    if (bad) {
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

/* Fills the request from the body; event must be cleared. 0, or < 0 after the reply was sent. */
static int request_of(pst_http_req *req, pst_job_request *ret, pst_err *err)
{
    pst_slice body = pst_http_body(req);
    const char *type = pst_http_header(req, "Content-Type"), *text = body.data ? body.data : "";
    size_t skip = strspn(text, " \t\r\n");
    if ((type && strcasestr(type, "json")) || text[skip] == '{') {
        json_t *j = NULL;
        int rc = pst_json_parse(text, body.len, "the body", &j, err);
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
    *ret = (pst_job_request){.request_id = pst_strdup(""), .user = pst_strdup("anonymous"), .manifest = pst_strndup(text, body.len)};
    return 0;
}

static void text_set(char **to, const char *value)
{
    free(*to);
    *to = pst_strdup(value);
}

static void complete(pst_http_req *req, pst_job_request *r)
{
    const char *key = pst_http_header(req, "Idempotency-Key"), *user = pst_http_query(req, "user");
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
    r->time = pst_now_us();
}

static void submit(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    pst_job_request r = {0};
    pst_err err = {0};
    char id[64];
    if (request_of(req, &r, &err) < 0) {
        pst_http_problem_err(req, &err);
        pst_metric_add(g->refused, 1);
    } else if (r.action != PST_JOB_ACTION_SUBMIT || !r.manifest || !*r.manifest) {
        pst_http_problem(req, 400, "no-manifest", NULL,
                         "POST /v1/jobs takes a manifest; other actions have paths of their own, as POST /v1/jobs/{id}/halt");
        pst_metric_add(g->refused, 1);
    } else if (violations(req, r.manifest, strlen(r.manifest)))
        pst_metric_add(g->refused, 1);
    else {
        complete(req, &r);
        pst_training_id(r.user, r.request_id, id);
        gw_publisher_send(g->publisher, req, &r, id, id);
    }
    pst_event_clear(&pst_job_request_type, &r);
}

/* ---- halt, resume, terminate, delete ---- */

static void act(gw_state *g, pst_http_req *req, pst_job_action action)
{
    const char *id = pst_http_param(req, "id");
    pst_job_request r = {.request_id = pst_strdup(""), .user = pst_strdup("anonymous"), .action = action, .training_id = pst_strdup(id)};
    complete(req, &r);
    if (!strcmp(r.user, "anonymous")) /* whoever has the platform's one token acts for the account that runs it */
        text_set(&r.user, pst_account_name(NULL));
    gw_publisher_send(g->publisher, req, &r, id, id);
    pst_event_clear(&pst_job_request_type, &r);
}

static void halt(void *arg, pst_http_req *req)
{
    act(arg, req, PST_JOB_ACTION_HALT);
}

static void resume(void *arg, pst_http_req *req)
{
    act(arg, req, PST_JOB_ACTION_RESUME);
}

static void terminate(void *arg, pst_http_req *req)
{
    act(arg, req, PST_JOB_ACTION_TERMINATE);
}

static void delete (void *arg, pst_http_req *req)
{
    act(arg, req, PST_JOB_ACTION_DELETE);
}

/* ---- list and show: the store ---- */

pst_store *gw_store_lock(gw_state *g, pst_err *err)
{
    if (g->view)
        return pst_view_lock(g->view);
    if (!g->store)
        pst_store_open(pst_setting_full(&g->client->settings->store), true, &g->store, err);
    return g->store;
}

void gw_store_unlock(gw_state *g)
{
    if (g->view)
        pst_view_unlock(g->view);
}

static void list(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    pst_err err = {0};
    json_t *docs = NULL;
    int64_t limit = pst_http_query_int(req, "limit", 100);
    pst_store_query q = {.state = pst_http_query(req, "state"),
                         .user = pst_http_query(req, "user"),
                         .after = pst_http_query(req, "after"),
                         .limit = limit > 0 && limit <= 1000 ? (size_t)limit : 100};
    pst_store *s = gw_store_lock(g, &err);
    int rc = s ? pst_store_list(s, "jobs", &q, &docs, &err) : err.code;
    if (rc == PST_ENOTFOUND && !s) { /* the trainer has not made it yet: there are no jobs */
        docs = json_array();
        rc = 0;
    }
    gw_store_unlock(g);
    if (rc < 0)
        pst_http_problem_err(req, &err);
    else
        pst_http_reply_json(req, 200, json_pack("{s:o}", "jobs", docs));
}

static void show(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    pst_err err = {0};
    json_t *doc = NULL;
    const char *id = pst_http_param(req, "id");
    pst_store *s = gw_store_lock(g, &err);
    int rc = s ? pst_store_get(s, "jobs", id, &doc, &err) : err.code;
    gw_store_unlock(g);
    if (rc == PST_ENOTFOUND)
        pst_http_problem(req, 404, "unknown-job", NULL,
                         "there is no job of this id (a job just submitted appears once the Trainer has seen it)");
    else if (rc < 0)
        pst_http_problem_err(req, &err);
    else
        pst_http_reply_json(req, 200, doc);
}

/* ---- records of a job, read from the topic by a thread ---- */

typedef struct reading {
    gw_state *g;
    pst_http_req *req;
    pst_topic topic;
    char *id;
    size_t limit;
    json_t **ring; /* the last `limit` records: [first, n), each at its number modulo limit */
    size_t *sizes; /* of their values as they stand in the topic */
    size_t first, n, bytes;
    pst_err err;
    int rc;
} reading;

static int keep(void *arg, const pst_record *r, pst_err *err)
{
    reading *d = arg;
    json_t *j = NULL;
    int32_t id;
    int rc = pst_codec_to_json_within(d->g->client->codec, r->value, r->value_len, PST_GATEWAY_RECORD_ROOM, &j, &id, err);
    if (rc == PST_ELIMIT) { /* said in its place */
        j = json_pack("{s:{s:i, s:I, s:I}}", "skipped", "partition", (int)r->partition, "offset", (json_int_t)r->offset, "bytes",
                      (json_int_t)r->value_len);
        pst_err_clear(err);
    } else if (rc < 0)
        return rc;
    while (d->n > d->first && (d->n - d->first == d->limit || d->bytes + r->value_len > READ_BYTES_MAX)) {
        d->bytes -= d->sizes[d->first % d->limit];
        json_decref(d->ring[d->first % d->limit]);
        d->ring[d->first++ % d->limit] = NULL;
    }
    d->bytes += d->sizes[d->n % d->limit] = r->value_len;
    d->ring[d->n++ % d->limit] = j;
    return 0;
}

static void answer(void *arg)
{
    reading *d = arg;
    d->g->readers--;
    if (d->rc < 0)
        pst_http_problem_err(d->req, &d->err);
    else {
        json_t *out = json_array();
        for (size_t i = d->first; i < d->n; i++)
            json_array_append(out, d->ring[i % d->limit]);
        pst_http_reply_json(d->req, 200, json_pack("{s:o, s:I}", "records", out, "total", (json_int_t)d->n));
    }
    for (size_t i = 0; i < d->limit; i++)
        json_decref(d->ring[i]);
    free(d->ring);
    free(d->sizes);
    free(d->id);
    free(d);
}

static void *read_topic(void *arg)
{
    reading *d = arg;
    pst_job_state s = {0};
    d->rc = pst_client_job(d->g->client, d->id, &s, &d->err);
    pst_follow f = {.client = d->g->client,
                    .topic = d->topic,
                    .training_id = d->id,
                    .timeout_us = READ_US,
                    .fn = keep,
                    .arg = d,
                    .since_us = s.submitted_at ? s.submitted_at - 60 * 1000000LL : 0};
    if (!d->rc)
        d->rc = pst_follow_run(&f, &d->err);
    pst_event_clear(&pst_job_state_type, &s);
    pst_loop_post(d->g->loop, answer, d);
    return NULL;
}

static void start_reading(gw_state *g, pst_http_req *req, pst_topic topic)
{
    int64_t limit = pst_http_query_int(req, "limit", 1000);
    if (g->readers >= READERS_MAX) {
        pst_http_add_header(req, "Retry-After", "1");
        pst_http_problem(req, 503, "busy", NULL, "four readers are at work already; ask again in a moment");
        return;
    }
    reading *d = pst_alloc(sizeof *d);
    *d = (reading){.g = g,
                   .req = req,
                   .topic = topic,
                   .id = pst_strdup(pst_http_param(req, "id")),
                   .limit = limit > 0 && limit <= LIMIT_MAX ? (size_t)limit : 1000};
    d->ring = pst_alloc(d->limit * sizeof(json_t *));
    d->sizes = pst_alloc(d->limit * sizeof(size_t));
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    g->readers++;
    if (pthread_create(&thread, &attr, read_topic, d)) {
        d->rc = pst_err_set(&d->err, PST_ENOMEM, PST_CLASS_RETRY, "sys", 0, "no thread to be had");
        answer(d);
    }
    pthread_attr_destroy(&attr);
}

static void read_events(void *arg, pst_http_req *req)
{
    start_reading(arg, req, PST_TOPIC_JOBS_EVENTS);
}

static void read_logs(void *arg, pst_http_req *req)
{
    start_reading(arg, req, PST_TOPIC_LOGS);
}

static void read_metrics(void *arg, pst_http_req *req)
{
    start_reading(arg, req, PST_TOPIC_METRICS);
}

/* ---- health, metrics, stream ---- */

static void health(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    pst_http_reply_json(req, 200,
                        json_pack("{s:s, s:s, s:I, s:I, s:s}", "status", "ok", "version", PST_VERSION, "feed_lag",
                                  (json_int_t)gw_feed_lag(g->feed), "streams", (json_int_t)gw_hub_streams(g->hub), "bootstrap",
                                  g->client->settings->bootstrap.value));
}

static void metrics(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    pst_buf b = {0};
    pst_metric_set(g->streams, (double)gw_hub_streams(g->hub));
    pst_metrics_text(g->metrics, &b);
    pst_http_reply(req, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.len);
    pst_buf_done(&b);
}

static void stream(void *arg, pst_http_req *req)
{
    gw_hub_attach(((gw_state *)arg)->hub, req);
}

static const pst_http_route routes[] = {
    {"POST", "/v1/jobs", submit, BODY_MAX, 0,
     "Submits a job; the answer carries its id and the partition and offset of its event. Body: a manifest (YAML), or JSON with "
     "`manifest`, and `code`, `user`, `request_id` if you like. `Idempotency-Key` is the request id. A manifest that cannot run: 400 with "
     "every violation."},
    {"GET", "/v1/jobs", list, 0, 0, "Jobs, newest first: `{\"jobs\": […]}`. Query: `state`, `user`, `after` (an id), `limit` (100)."},
    {"GET", "/v1/jobs/{id}", show, 0, 0, "One job, as of `JobState`."},
    {"DELETE", "/v1/jobs/{id}", delete, 0, 0, "Ends a job and removes it."},
    {"POST", "/v1/jobs/{id}/halt", halt, 0, 0, "SIGTERM and its grace time; it may be resumed."},
    {"POST", "/v1/jobs/{id}/resume", resume, 0, 0, "Goes on with a halted or failed job, as a new generation."},
    {"POST", "/v1/jobs/{id}/terminate", terminate, 0, 0, "Ends a job for good."},
    {"GET", "/v1/jobs/{id}/events", read_events, 0, 0, "The last `limit` (1000) events of the job, `JobEvent`."},
    {"GET", "/v1/jobs/{id}/logs", read_logs, 0, 0, "The last `limit` (1000) log lines, `LogLine`."},
    {"GET", "/v1/jobs/{id}/metrics", read_metrics, 0, 0, "The last `limit` (1000) evaluations, `MetricPoint`."},
    {"GET", "/health", health, 0, 0, "200 while it serves; version and broker. Asks for no token."},
    {"GET", "/metrics", metrics, 0, 0, "Prometheus text. From loopback it asks for no token."},
    {"GET", "/events/stream", stream, 0, 0,
     "Server-sent events as they come. Query: `kinds` (event, log, metric, state, model, pipeline, worker), `key`. `id:` holds offsets; "
     "`Last-Event-ID` goes on exactly there."},
};

const pst_http_routes pst_gateway_api_routes = {routes, sizeof routes / sizeof *routes};

void gw_routes(gw_state *g)
{
    pst_http_add_routes(g->http, routes, sizeof routes / sizeof *routes, g);
}
