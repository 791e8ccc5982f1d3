/* job_records.c - the events, log lines and metrics of one job, out of their topics. No copy of them is kept: a thread reads the topic from shortly
 * before the job was submitted to its end and keeps the last records that fit. That takes long where topics are long, hence a thread of its own,
 * four at once at most, and a limit of time; what a page shows while a job runs comes by the stream (hub.c) instead. */
#include "producers/gateway/gateway.h"

#include "common/base/json.h"
#include "common/base/thread.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "common/platform/follow.h"
#include "producers/gateway/after.h"
#include "producers/gateway/routes.h"
#include "schemas/avro.h"
#include "schemas/topics.h"

#include <pthread.h>
#include <stdlib.h>

enum { READERS_MAX = 4, LIMIT = 1000, LIMIT_MAX = 5000, READ_BYTES_MAX = 4 << 20, READ_US = 10 * 1000000 };

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

/* Takes the record in, and gives up the oldest ones for which there is no room any more. */
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
    else /* where it stands, for `penstock cat` */
        json_object_set_new(
            j, "position",
            json_pack("{s:s, s:i, s:I}", "topic", r->topic, "partition", (int)r->partition, "offset", (json_int_t)r->offset));
    while (d->n > d->first && (d->n - d->first == d->limit || d->bytes + r->value_len > READ_BYTES_MAX)) {
        d->bytes -= d->sizes[d->first % d->limit];
        json_decref(d->ring[d->first % d->limit]);
        d->ring[d->first++ % d->limit] = NULL;
    }
    PST_ASSERT(d->n - d->first < d->limit && !d->ring[d->n % d->limit]);
    d->sizes[d->n % d->limit] = r->value_len;
    d->bytes += r->value_len;
    d->ring[d->n++ % d->limit] = j;
    return 0;
}

/* @thread loop */
static void answer(void *arg)
{
    reading *d = arg;
    PST_ASSERT(d->g->readers > 0);
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
    gw_post(d->g, answer, d, NULL);
    return NULL;
}

static void start_reading(gw_state *g, pst_http_req *req, pst_topic topic)
{
    if (!gw_job_allowed(g, req, false))
        return;
    if (g->readers >= READERS_MAX) {
        pst_http_add_header(req, "Retry-After", "1");
        pst_http_problem(req, 503, "busy", NULL, "four readers are at work already; ask again in a moment");
        return;
    }
    reading *d = pst_alloc(sizeof *d);
    *d = (reading){
        .g = g, .req = req, .topic = topic, .id = pst_strdup(pst_http_param(req, "id")), .limit = gw_limit(req, LIMIT, LIMIT_MAX)};
    d->ring = pst_alloc(d->limit * sizeof(json_t *));
    d->sizes = pst_alloc(d->limit * sizeof(size_t));
    g->readers++;
    if (pst_thread_detached("gateway-reader", read_topic, d)) {
        d->rc = pst_err_set(&d->err, PST_ENOMEM, PST_CLASS_RETRY, "sys", 0, "no thread to be had");
        answer(d);
    }
}

static void read_events_now(void *arg, pst_http_req *req)
{
    start_reading(arg, req, PST_TOPIC_JOBS_EVENTS);
}

static void read_events(void *arg, pst_http_req *req)
{
    if (!gw_after(arg, req, read_events_now))
        read_events_now(arg, req);
}

static void read_logs(void *arg, pst_http_req *req)
{
    start_reading(arg, req, PST_TOPIC_LOGS);
}

static void read_metrics(void *arg, pst_http_req *req)
{
    start_reading(arg, req, PST_TOPIC_METRICS);
}

static const gw_schema schemas[] = {{"Skipped", GW_JSON({
                                         "type" : "object",
                                         "description" : "Stands for a record that is too large to be shown here: penstock cat shows it.",
                                         "required" : ["skipped"],
                                         "properties" : {
                                             "skipped" : {
                                                 "type" : "object",
                                                 "properties" : {
                                                     "partition" : {"type" : "integer"},
                                                     "offset" : {"type" : "integer", "format" : "int64"},
                                                     "bytes" : {"type" : "integer", "format" : "int64"}
                                                 }
                                             }
                                         }
                                     })},
                                    {0}};
static const gw_param params[] = {GW_ID,
                                  {"limit", "query", GW_JSON({"type" : "integer", "minimum" : 1, "maximum" : 5000, "default" : 1000}),
                                   "how many; the records of an answer are 4 MiB together at most"},
                                  {0}};
static const gw_param of_events[] = {GW_ID,
                                     GW_AFTER,
                                     {"limit", "query", GW_JSON({"type" : "integer", "minimum" : 1, "maximum" : 5000, "default" : 1000}),
                                      "how many; the records of an answer are 4 MiB together at most"},
                                     {0}};

/* The answer is the same for the three topics but for the record. */
#define ANSWERS(record)                                                                                                         \
    {                                                                                                                           \
        {200, "the last records, oldest first; `total` is how many the topic has of the job", "application/json",               \
         "{\"type\": \"object\", \"required\": [\"records\", \"total\"], \"properties\": {\"total\": {\"type\": \"integer\"}, " \
         "\"records\": {\"type\": \"array\", \"items\": {\"anyOf\": [{\"$ref\": \"#/components/schemas/" record                 \
         "\"}, {\"$ref\": \"#/components/schemas/Skipped\"}]}}}}"},                                                             \
            {404, "no job has this id", GW_PROBLEM}, {500, "the topic could not be read", GW_PROBLEM},                          \
            {503, "four readers are at work already, or the broker is not reached", GW_PROBLEM},                                \
            {504, "reading took longer than 10 s", GW_PROBLEM},                                                                 \
        {                                                                                                                       \
            0                                                                                                                   \
        }                                                                                                                       \
    }
static const gw_answer events[] = ANSWERS("JobEvent"), logs[] = ANSWERS("LogLine"), metrics[] = ANSWERS("MetricPoint");

static const gw_route routes[] = {
    {{"GET", "/v1/jobs/{id}/events", read_events, 0, GW_ALL, "The last `limit` (1000) events of the job, `JobEvent`."},
     "readEvents",
     of_events,
     NULL,
     events},
    {{"GET", "/v1/jobs/{id}/logs", read_logs, 0, GW_ALL, "The last `limit` (1000) log lines, `LogLine`."}, "readLogs", params, NULL, logs},
    {{"GET", "/v1/jobs/{id}/metrics", read_metrics, 0, GW_ALL, "The last `limit` (1000) evaluations, `MetricPoint`."},
     "readMetrics",
     params,
     NULL,
     metrics},
};

const gw_noun gw_records_noun = {"records", "What a job did, said and measured.", routes, sizeof routes / sizeof *routes, schemas};
