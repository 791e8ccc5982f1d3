/* ffdl_pages.c - GET /v1/logs/{id}/loglines and …/emetrics: a page of a job's lines or evaluations, by number (pos 1 is the first), from the end (pos -1 is
 * the newest page, -k the one that ends with the k-th last record) or from a time on, which has precedence. FfDL's client walks by times and, following,
 * asks without a pause; so a request waits for its turn where a fifth would read at once, and is refused only behind sixty-four others. Nothing is kept
 * between requests: the topic is read from the job's submission to where the page ends. A page from the end is read twice, counted first, so that no
 * page, however far from the end, takes more memory than itself. */
#include "producers/gateway/ffdl.h"

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/thread.h"
#include "common/platform/codec.h"
#include "common/platform/follow.h"
#include "schemas/avro.h"

#include <stdlib.h>
#include <string.h>

enum { RUNNING_MAX = 4, WAITING_MAX = 64, PAGE_DEFAULT = 10, PAGE_MAX = 5000, PAGE_BYTES_MAX = 4 << 20, READ_US = 30 * 1000000 };

struct gw_page {
    gw_state *g;
    pst_http_req *req;
    gw_ffdl_kind kind;
    char *id, *user;
    int64_t since_us;           /* the job's records begin there */
    int64_t size, pos, from_ms; /* as asked; from_ms 0 = none */
    int64_t first;              /* number of the page's first record */
    bool counts_only;
    gw_ffdl_count at;
    json_t *models;
    size_t bytes;
    char *text; /* the answer */
    pst_err err;
    gw_page *next;
};

/* ---- the thread ------------------------------------------------------------------------------------------------------------ */

static bool wanted(const gw_page *p)
{
    if (p->counts_only)
        return false;
    return p->from_ms ? p->at.last_ms >= p->from_ms : p->at.n >= p->first;
}

/* 1: the page is full. */
static int add(gw_page *p, json_t *record, size_t bytes)
{
    json_array_append_new(p->models, record);
    p->bytes += bytes;
    return (int64_t)json_array_size(p->models) >= p->size || p->bytes > PAGE_BYTES_MAX;
}

static int on_line(gw_page *p, const pst_record *r, pst_err *err)
{
    pst_log_line l = {0};
    int rc = pst_codec_decode(p->g->client->codec, &pst_log_line_type, r->value, r->value_len, r->timestamp_ms, &l, err);
    if (rc < 0)
        return rc;
    gw_ffdl_count_in(&p->at, l.time, r->timestamp_ms);
    if (wanted(p))
        rc = add(p, gw_ffdl_line(&l, p->user, &p->at), r->value_len);
    pst_event_clear(&pst_log_line_type, &l);
    return rc;
}

static int on_metric(gw_page *p, const pst_record *r, pst_err *err)
{
    pst_metric_point m = {0};
    int rc = pst_codec_decode(p->g->client->codec, &pst_metric_point_type, r->value, r->value_len, r->timestamp_ms, &m, err);
    if (rc < 0)
        return rc;
    gw_ffdl_count_in(&p->at, m.time, r->timestamp_ms);
    if (wanted(p))
        rc = add(p, gw_ffdl_emetric(&m, p->user, &p->at), r->value_len);
    pst_event_clear(&pst_metric_point_type, &m);
    return rc;
}

static int on_record(void *arg, const pst_record *r, pst_err *err)
{
    gw_page *p = arg;
    return p->kind == GW_FFDL_LINES ? on_line(p, r, err) : on_metric(p, r, err);
}

static int read_topic(gw_page *p)
{
    pst_follow f = {.client = p->g->client,
                    .topic = gw_ffdl_topic(p->kind),
                    .training_id = p->id,
                    .timeout_us = READ_US,
                    .since_us = p->since_us,
                    .fn = on_record,
                    .arg = p};
    p->at = (gw_ffdl_count){0};
    return pst_follow_run(&f, &p->err);
}

/* Where a page from the end begins, once it is known how many records there are. A page that would begin before the first one is shorter. */
static void place(gw_page *p)
{
    int64_t last = p->at.n + p->pos + 1;
    p->first = last - p->size + 1;
    if (p->first < 1)
        p->first = 1;
    p->size = last >= p->first ? last - p->first + 1 : 0;
}

static int fill(gw_page *p)
{
    int rc = 0;
    p->first = p->pos > 0 ? p->pos : 1;
    if (p->pos < 0 && !p->from_ms) {
        p->counts_only = true;
        rc = read_topic(p);
        p->counts_only = false;
        place(p);
    }
    return rc || !p->size ? rc : read_topic(p);
}

static void finish(void *arg);

static void *run(void *arg)
{
    gw_page *p = arg;
    p->models = json_array();
    int rc = fill(p);
    json_t *all = json_pack("{s:o}", "models", p->models);
    p->models = NULL;
    if (rc >= 0)
        p->text = pst_json_text(all);
    json_decref(all);
    gw_post(p->g, finish, p, NULL);
    return NULL;
}

/* ---- the loop -------------------------------------------------------------------------------------------------------------- */

static void begin(gw_page *p)
{
    p->g->pages_running++;
    if (pst_thread_detached("gateway-page", run, p)) {
        pst_err_set(&p->err, PST_EAGAIN, PST_CLASS_RETRY, "sys", 0, "no thread to be had; ask again later");
        finish(p);
    }
}

static void finish(void *arg)
{
    gw_page *p = arg;
    gw_state *g = p->g;
    PST_ASSERT(g->pages > 0 && g->pages_running > 0);
    g->pages--;
    g->pages_running--;
    if (p->text)
        pst_http_reply(p->req, 200, "application/json", p->text, strlen(p->text));
    else
        pst_http_problem_err(p->req, &p->err);
    free(p->text);
    free(p->id);
    free(p->user);
    free(p);
    p = g->pages_waiting;
    if (!p)
        return;
    g->pages_waiting = p->next;
    g->n_pages_waiting--;
    begin(p);
}

/* A whole number between lo and hi, or def where it is not given. */
static bool number(const pst_http_req *req, const char *name, int64_t def, int64_t lo, int64_t hi, int64_t *ret)
{
    const char *text = gw_query(req, name);
    char *end;
    if (!text || !*text) {
        *ret = def;
        return true;
    }
    long long n = strtoll(text, &end, 10);
    *ret = n;
    return !*end && strspn(text, "-0123456789") == strlen(text) && n >= lo && n <= hi;
}

/* Milliseconds since 1970, as FfDL's client sends them, or a date. */
static bool since_time(const pst_http_req *req, int64_t *ret_ms)
{
    const char *text = gw_query(req, "since_time");
    int64_t us;
    if (number(req, "since_time", 0, 0, INT64_MAX / 1000, ret_ms))
        return true;
    bool date = text && strspn(text, "-0123456789") != strlen(text) && pst_time_parse(text, &us) == 0;
    if (date)
        *ret_ms = us / 1000;
    return date;
}

static void start(gw_state *g, pst_http_req *req, gw_ffdl_kind kind)
{
    gw_page asked = {.g = g, .req = req, .kind = kind};
    json_t *doc = gw_ffdl_job(g, req);
    if (!doc)
        return;
    const char *wrong = NULL;
    if (!number(req, "pagesize", PAGE_DEFAULT, 0, INT32_MAX, &asked.size))
        wrong = "pagesize must be a whole number, 0 or more";
    else if (!number(req, "pos", 0, -INT32_MAX, INT32_MAX, &asked.pos))
        wrong = "pos must be a whole number: 1 is the first record, -1 the newest page";
    else if (!since_time(req, &asked.from_ms))
        wrong = "since_time must be milliseconds since 1970, or a date as 2026-01-31T12:00:00Z";
    else if (g->n_pages_waiting >= WAITING_MAX)
        pst_http_add_header(req, "Retry-After", "1");
    if (wrong)
        gw_ffdl_fail(req, 400, wrong);
    else if (g->n_pages_waiting >= WAITING_MAX)
        gw_ffdl_fail(req, 503, "too many pages are being read already; ask again in a moment");
    else {
        gw_page *p = pst_alloc(sizeof *p);
        *p = asked;
        if (p->size == 0)
            p->size = PAGE_DEFAULT;
        if (p->size > PAGE_MAX)
            p->size = PAGE_MAX;
        p->id = pst_strdup(pst_http_param(req, "id"));
        p->user = pst_strdup(gw_ffdl_owner(doc));
        p->since_us = gw_ffdl_since_us(doc);
        g->pages++; /* also while it waits: the gateway does not end before its answer */
        gw_page **last = &g->pages_waiting;
        while (*last)
            last = &(*last)->next;
        if (g->pages_running < RUNNING_MAX)
            begin(p);
        else {
            *last = p;
            g->n_pages_waiting++;
        }
    }
    json_decref(doc);
}

static void loglines(void *arg, pst_http_req *req)
{
    start(arg, req, GW_FFDL_LINES);
}

static void emetrics(void *arg, pst_http_req *req)
{
    start(arg, req, GW_FFDL_METRICS);
}

static const gw_param params[] = {
    GW_ID,
    {"pagesize", "query", GW_JSON({"type" : "integer", "minimum" : 0, "default" : 10}),
     "how many, 5,000 and 4 MiB of records at most; 0 = 10"},
    {"pos", "query", GW_JSON({"type" : "integer"}),
     "the number of the first record, from 1; -k: the page that ends with the k-th last record"},
    {"since_time", "query", GW_JSON({"type" : "string"}),
     "milliseconds since 1970 or a date: the first records that are not older, whatever `pos` is"},
    {"searchType", "query", GW_JSON({"type" : "string"}), "not looked at: all is searched by TERM, as by FfDL"},
    GW_FFDL_VERSION,
    GW_FFDL_USERINFO,
    {0}};

#define ANSWERS(schema)                                                                                                            \
    {                                                                                                                              \
        {200, "the page, oldest record first", "application/json", schema}, {400, "a parameter that is no number", GW_FFDL_ERROR}, \
            {404, "no job has this id", GW_FFDL_ERROR}, {500, "the store or the topic could not be read", GW_FFDL_ERROR},          \
            {503, "too many are being read already, or the broker is not reached", GW_FFDL_ERROR},                                 \
            {504, "reading took longer than 30 s", GW_FFDL_ERROR},                                                                 \
        {                                                                                                                          \
            0                                                                                                                      \
        }                                                                                                                          \
    }
static const gw_answer to_lines[] = ANSWERS("FfdlLogLines"), to_metrics[] = ANSWERS("FfdlEMetrics");

static const gw_route routes[] = {
    {{"GET", "/v1/logs/{id}/loglines", loglines, 0, GW_FFDL | GW_ALL,
      "A page of the job's log lines, each with a number and a time of its own."},
     "pageLogLines",
     params,
     NULL,
     to_lines},
    {{"GET", "/v1/logs/{id}/emetrics", emetrics, 0, GW_FFDL | GW_ALL, "A page of the job's evaluations, the same way."},
     "pageEMetrics",
     params,
     NULL,
     to_metrics},
};

const gw_noun gw_ffdl_pages_noun = {"ffdl-pages", "What a job said, by pages, as FfDL has it.", routes, sizeof routes / sizeof *routes,
                                    gw_ffdl_schemas};
