/* ffdl_logs.c - a job's log and evaluations as a stream of text: GET /v1/models/{id}/logs and …/metrics, plain to the present end or followed until the job
 * has ended, or by a websocket, which always follows. One thread a reader, since each stands at a place of its own (pour.h bounds them). The model
 * `wstest` is FfDL's self-test for clients: a dated line every two seconds, thirty times. */
#include "producers/gateway/ffdl.h"
#include "producers/gateway/pour.h"

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/platform/codec.h"
#include "common/platform/follow.h"
#include "schemas/avro.h"
#include "schemas/job_state.h"

#include <stdlib.h>
#include <string.h>

enum { TEST_LINES = 30, TEST_MS = 2000 };

typedef struct reading {
    gw_state *g;
    gw_ffdl_kind kind;
    char *id;
    int64_t since_us;
    bool follows;
    gw_pour *pour; /* while it runs */
} reading;

static void reading_done(void *arg)
{
    reading *r = arg;
    free(r->id);
    free(r);
}

static bool put_line(reading *r, const char *text, size_t len)
{
    pst_buf line = {0};
    pst_buf_add(&line, text, len);
    pst_buf_addc(&line, '\n');
    bool goes_on = gw_pour_put(r->pour, line.data, line.len);
    pst_buf_done(&line);
    return goes_on;
}

/* A websocket's frame is the object itself; in plain text it is a line. */
static bool put_metric(void *arg, const char *text, size_t len)
{
    reading *r = arg;
    return gw_pour_is_ws(r->pour) ? gw_pour_put(r->pour, text, len) : put_line(r, text, len);
}

static int on_line(void *arg, const pst_record *rec, pst_err *err)
{
    reading *r = arg;
    pst_log_line l = {0};
    int rc = pst_codec_decode(r->g->client->codec, &pst_log_line_type, rec->value, rec->value_len, rec->timestamp_ms, &l, err);
    if (rc < 0)
        return rc;
    bool goes_on = put_line(r, l.text, strlen(l.text));
    pst_event_clear(&pst_log_line_type, &l);
    return goes_on ? 0 : 1;
}

static int on_metric(void *arg, const pst_record *rec, pst_err *err)
{
    reading *r = arg;
    pst_metric_point m = {0};
    int rc = pst_codec_decode(r->g->client->codec, &pst_metric_point_type, rec->value, rec->value_len, rec->timestamp_ms, &m, err);
    if (rc < 0)
        return rc;
    bool goes_on = gw_ffdl_metric(&m, put_metric, r);
    pst_event_clear(&pst_metric_point_type, &m);
    return goes_on ? 0 : 1;
}

/* @thread its own */
static int read_topic(void *arg, gw_pour *p, pst_err *err)
{
    reading *r = arg;
    r->pour = p;
    pst_follow f = {.client = r->g->client,
                    .topic = gw_ffdl_topic(r->kind),
                    .training_id = r->id,
                    .follow = r->follows,
                    .to_the_end_of_job = r->follows,
                    .since_us = r->since_us,
                    .stop = gw_pour_gone(p),
                    .fn = r->kind == GW_FFDL_LINES ? on_line : on_metric,
                    .arg = r};
    return pst_follow_run(&f, err);
}

static bool is_ended(const json_t *doc)
{
    return pst_job_state_is_ended(pst_job_public_state_parse(pst_json_str(doc, "state", "")));
}

static void start(gw_state *g, pst_http_req *req, gw_ffdl_kind kind)
{
    json_t *doc = gw_ffdl_job(g, req);
    if (!doc)
        return;
    bool follows = pst_http_ws_wanted(req) || pst_http_query_bool(req, "follow");
    reading *r = pst_alloc(sizeof *r);
    *r = (reading){.g = g,
                   .kind = kind,
                   .id = pst_strdup(pst_http_param(req, "id")),
                   .since_us = gw_ffdl_since_us(doc),
                   .follows = follows && !is_ended(doc)}; /* what has ended is read to its end, however long ago its events were removed */
    json_decref(doc);
    gw_pour_start(g, req,
                  &(gw_source){.name = "gateway-follow",
                               .type = "application/octet-stream",
                               .at_once = follows,
                               .run = read_topic,
                               .done = reading_done,
                               .arg = r});
}

/* ---- the self-test --------------------------------------------------------------------------------------------------------- */

static int tell_time(void *arg, gw_pour *p, pst_err *err)
{
    for (int i = 1; i <= TEST_LINES; i++) {
        char time[32], *line = pst_sprintf("%s line %d of %d of the test stream\n", pst_time_text(pst_now_us(), time), i, TEST_LINES);
        bool goes_on = gw_pour_put(p, line, strlen(line)) && (i == TEST_LINES || gw_pour_pause(p, TEST_MS));
        free(line);
        if (!goes_on)
            break;
    }
    return 0;
}

static void nothing_done(void *arg)
{
}

/* ---- routes ---------------------------------------------------------------------------------------------------------------- */

static void logs(void *arg, pst_http_req *req)
{
    if (strcmp(pst_http_param(req, "id"), "wstest"))
        start(arg, req, GW_FFDL_LINES);
    else
        gw_pour_start(
            arg, req,
            &(gw_source){
                .name = "gateway-wstest", .type = "application/octet-stream", .at_once = true, .run = tell_time, .done = nothing_done});
}

static void metrics(void *arg, pst_http_req *req)
{
    start(arg, req, GW_FFDL_METRICS);
}

static const gw_param params[] = {
    GW_ID,
    {"follow", "query", GW_JSON({"type" : "boolean"}), "go on until the job has ended; a websocket always does"},
    {"since_time", "query", GW_JSON({"type" : "string"}), "not looked at, as by FfDL"},
    GW_FFDL_VERSION,
    GW_FFDL_USERINFO,
    {"Sec-WebSocket-Key", "header", GW_JSON({"type" : "string"}), "asks for a websocket (RFC 6455): one frame for each line or object"},
    {0}};
static const gw_answer to_logs[] = {{200, "the lines, as they come", "application/octet-stream", GW_JSON({"type" : "string"})},
                                    {101, "a websocket; closed with 1000 when the job has ended", NULL, NULL},
                                    {400, "a malformed websocket handshake", GW_FFDL_ERROR},
                                    {404, "no job has this id", GW_FFDL_ERROR},
                                    {426, "another version of websockets than 13", GW_FFDL_ERROR},
                                    {500, "the store or the topic could not be read", GW_FFDL_ERROR},
                                    {503, "32 logs are followed already, or the broker is not reached", GW_FFDL_ERROR},
                                    {0}};

static const gw_route routes[] = {
    {{"GET", "/v1/models/{id}/logs", logs, 0, GW_FFDL | GW_GRANTED | GW_ALL,
      "The job's log as text, to its present end or followed (`follow`, a websocket). `{id}` `wstest`: a test stream."},
     "followLogs",
     params,
     NULL,
     to_logs},
    {{"GET", "/v1/models/{id}/metrics", metrics, 0, GW_FFDL | GW_GRANTED | GW_ALL,
      "The job's evaluations the same way: one `{type, timestamp, iteration, Values}` a line or frame."},
     "followMetrics",
     params,
     NULL,
     to_logs},
};

const gw_noun gw_ffdl_logs_noun = {"ffdl-logs", "What a job says, as FfDL streams it.", routes, sizeof routes / sizeof *routes,
                                   gw_ffdl_schemas};
