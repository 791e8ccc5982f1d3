/* mlflow_view.c - what MLflow's clients ask for, read from topics by two threads that begin with the first request. One reads what is the answer's substance
 * (tracking, jobs.state, models) and must have come to the ends that there were before anything is answered; the other reads `metrics`, of which there may be
 * a week of many jobs, behind it: until it has caught up, metrics of jobs are those of earlier points, and nothing waits for it.
 *
 * Requests that come while the view is read for the first time are kept, for ten seconds. Who has written something is told when the view has come beyond
 * its record; the threads then wake the loop. */
#include "producers/gateway/mlflow.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/retry.h"
#include "common/base/thread.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY_MS = 500, RANGES_MAX = 256, KEPT_MAX = 1000, KEPT_US = 10 * 1000000, CHECK_US = 200000, POLL_MS = 100 };

typedef struct gw_mlflow gw_mlflow;

typedef struct reader {
    gw_mlflow *m;
    const pst_topic *topics;
    size_t n_topics;
    const char *name;
    pthread_t thread;
    bool started;
    int64_t ends[RANGES_MAX]; /* of the ranges, when it was opened */
    pst_range ranges[RANGES_MAX];
    size_t n;
    int64_t unknown_us;
} reader;

typedef struct kept {
    pst_http_req *req;
    pst_http_handler handler;
    int64_t until_us;
} kept;

struct gw_mlflow {
    gw_state *g;
    pthread_mutex_t lock; /* the view, why */
    gw_tracking *view;
    char why[512]; /* it is not read yet */
    atomic_bool stop, loaded, waking;
    atomic_int watchers;
    _Atomic int64_t tracking_next, models_next; /* offsets */
    reader facts, points;
    kept *kept;
    size_t n_kept, cap_kept;
    pst_timer *timer;
};

static const pst_topic fact_topics[] = {PST_TOPIC_TRACKING, PST_TOPIC_JOBS_STATE, PST_TOPIC_MODELS}, point_topics[] = {PST_TOPIC_METRICS};

/* ---- the threads ----------------------------------------------------------------------------------------------------------- */

static bool stopped(void *arg)
{
    const reader *r = arg;
    return r->m->stop;
}

static const pst_type *type_of(pst_topic t)
{
    switch (t) {
    case PST_TOPIC_TRACKING: return &pst_tracking_record_type;
    case PST_TOPIC_JOBS_STATE: return &pst_job_state_type;
    case PST_TOPIC_MODELS: return &pst_model_event_type;
    default: return &pst_metric_point_type;
    }
}

typedef union event {
    pst_tracking_record fact;
    pst_job_state state;
    pst_model_event model;
    pst_metric_point point;
} event;

/* e NULL: a tombstone. */
static void fold(gw_mlflow *m, pst_topic t, const char *key, const event *e, const pst_record *r)
{
    pthread_mutex_lock(&m->lock);
    if (t == PST_TOPIC_TRACKING)
        gw_tracking_fact(m->view, key, e ? &e->fact : NULL, r->timestamp_ms);
    else if (t == PST_TOPIC_JOBS_STATE)
        gw_tracking_job(m->view, key, e ? &e->state : NULL);
    else if (e && t == PST_TOPIC_MODELS)
        gw_tracking_model(m->view, &e->model);
    else if (e && t == PST_TOPIC_METRICS)
        gw_tracking_point(m->view, &e->point);
    pthread_mutex_unlock(&m->lock);
}

/* False: the registry is away, the record is to be read again. */
static bool take(reader *rd, const pst_record *r)
{
    gw_mlflow *m = rd->m;
    pst_topic t = rd->topics[0];
    for (size_t i = 0; i < rd->n_topics; i++)
        if (!strcmp(r->topic, pst_client_topic(m->g->client, rd->topics[i])))
            t = rd->topics[i];
    static const char scorer[] = "pipeline:";
    if (t == PST_TOPIC_METRICS && r->key_len >= sizeof scorer - 1 && !memcmp(r->key, scorer, sizeof scorer - 1))
        return true;
    char *key = pst_strndup(r->key ? r->key : "", r->key ? r->key_len : 0);
    event e;
    pst_err err = {0};
    int tries = 0, rc = 0;
    while (r->value && (rc = pst_codec_decode(m->g->client->codec, type_of(t), r->value, r->value_len, r->timestamp_ms, &e, &err)) < 0 &&
           !pst_codec_unusable(&rd->unknown_us, &err, tries++) && !pst_retry_pause(RETRY_MS, stopped, rd))
        pst_err_clear(&err);
    if (!rc) {
        fold(m, t, key, r->value ? &e : NULL, r);
        if (r->value)
            pst_event_clear(type_of(t), &e);
    } else if (!m->stop)
        pst_log_limited(PST_LOG_WARN, "gateway", "record_ignored", "event=record_ignored topic=%s partition=%d offset=%lld reason=\"%s\"",
                        r->topic, r->partition, (long long)r->offset, err.text);
    free(key);
    return !m->stop;
}

static int open_consumer(reader *rd, pst_consumer **ret_consumer, pst_err *err)
{
    pst_client *c = rd->m->g->client;
    if (!rd->n)
        for (size_t i = 0; i < rd->n_topics; i++) {
            pst_topic_info info = {0};
            const char *topic = pst_client_topic(c, rd->topics[i]);
            int rc = pst_admin_topic(c->bus, topic, &info, 10000, err);
            if (rc == PST_ENOTFOUND) { /* made by an older version's `up`: it gets what it lacks */
                pst_err_clear(err);
                rc = pst_client_create_topics(c, err);
                if (!rc)
                    rc = pst_admin_topic(c->bus, topic, &info, 10000, err);
            }
            if (rc < 0) {
                rd->n = 0;
                return rc;
            }
            for (int p = 0; p < info.partitions && rd->n < RANGES_MAX; p++) {
                rd->ends[rd->n] = info.high[p];
                rd->ranges[rd->n++] = (pst_range){topic, p, info.low[p], -1};
            }
            pst_topic_info_done(&info);
        }
    return pst_consumer_new(c->bus, &(pst_consumer_opts){.ranges = rd->ranges, .n_ranges = rd->n, .report_eof = true}, ret_consumer, err);
}

static void say_why(gw_mlflow *m, const char *why)
{
    pthread_mutex_lock(&m->lock);
    snprintf(m->why, sizeof m->why, "%s", why);
    pthread_mutex_unlock(&m->lock);
}

/* @thread loop */
static void run_kept(void *arg)
{
    gw_state *g = arg;
    gw_mlflow *m = g->mlflow;
    if (!m)
        return;
    m->waking = false;
    if (m->loaded) {
        kept *all = m->kept;
        size_t n = m->n_kept;
        m->kept = NULL;
        m->n_kept = m->cap_kept = 0;
        m->watchers -= (int)n;
        for (size_t i = 0; i < n; i++)
            all[i].handler(m->g, all[i].req);
        free(all);
    }
    gw_facts_wake(m->g);
}

static void wake(gw_mlflow *m)
{
    if (m->waking || !m->watchers)
        return;
    m->waking = true;
    gw_post(m->g, run_kept, m->g, &m->stop);
}

/* Where it stands; a consumer that is opened again goes on from there. */
static void passed(reader *rd, const pst_record *r)
{
    for (size_t i = 0; i < rd->n; i++)
        if (rd->ranges[i].partition == r->partition && !strcmp(rd->ranges[i].topic, r->topic))
            rd->ranges[i].from = r->offset + 1;
    if (!strcmp(r->topic, pst_client_topic(rd->m->g->client, PST_TOPIC_TRACKING)))
        rd->m->tracking_next = r->offset + 1;
    else if (!strcmp(r->topic, pst_client_topic(rd->m->g->client, PST_TOPIC_MODELS)))
        rd->m->models_next = r->offset + 1;
}

static void *run(void *arg)
{
    reader *rd = arg;
    gw_mlflow *m = rd->m;
    pst_consumer *c = NULL;
    bool facts = rd == &m->facts;
    while (!m->stop) {
        pst_err err = {0};
        pst_batch b = {0};
        if (!facts && !m->loaded) { /* of a job that is not known a point says nothing */
            pst_retry_pause(POLL_MS, stopped, rd);
            continue;
        }
        if ((!c && open_consumer(rd, &c, &err) < 0) ||
            pst_consumer_poll(c, &(pst_poll){.records_max = 2000, .bytes_max = 4 << 20, .timeout_ms = POLL_MS}, &b, &err) < 0) {
            pst_log_err("gateway", &err);
            say_why(m, err.text);
            pst_consumer_free(c);
            c = NULL;
            pst_retry_pause(RETRY_MS, stopped, rd);
            continue;
        }
        for (size_t i = 0; i < b.n && take(rd, &b.records[i]); i++)
            passed(rd, &b.records[i]);
        if (facts && b.eof && !m->loaded) {
            m->loaded = true;
            pst_log(PST_LOG_INFO, "gateway", "event=tracking_read");
        }
        if (facts && m->loaded && (b.n || b.eof))
            wake(m);
    }
    pst_consumer_free(c);
    return NULL;
}

/* ---- the loop's side ------------------------------------------------------------------------------------------------------- */

/* Those that have been kept for too long are told why. */
static void check(void *arg)
{
    gw_mlflow *m = arg;
    int64_t now = pst_mono_us();
    size_t left = 0;
    char why[sizeof m->why];
    pthread_mutex_lock(&m->lock);
    snprintf(why, sizeof why, "%s", m->why);
    pthread_mutex_unlock(&m->lock);
    for (size_t i = 0; i < m->n_kept; i++)
        if (m->kept[i].until_us > now && !m->stop)
            m->kept[left++] = m->kept[i];
        else {
            gw_mlflow_fail(m->kept[i].req, "TEMPORARILY_UNAVAILABLE", "experiments and runs are not read yet%s%s", *why ? ": " : "", why);
            m->watchers--;
        }
    m->n_kept = left;
    gw_facts_wake(m->g);
}

static void start(reader *rd, gw_mlflow *m, const char *name, const pst_topic *topics, size_t n)
{
    rd->m = m;
    rd->topics = topics;
    rd->n_topics = n;
    rd->name = name;
    rd->started = !pst_thread_start(&rd->thread, name, run, rd);
    if (!rd->started)
        say_why(m, "no thread to be had");
}

static gw_mlflow *mlflow_of(gw_state *g)
{
    if (g->mlflow)
        return g->mlflow;
    gw_mlflow *m = pst_alloc(sizeof *m);
    m->g = g;
    m->view = gw_tracking_new();
    pthread_mutex_init(&m->lock, NULL);
    m->timer = pst_timer_new(g->loop, CHECK_US, CHECK_US, check, m);
    g->mlflow = m;
    start(&m->facts, m, "gateway-facts", fact_topics, sizeof fact_topics / sizeof *fact_topics);
    start(&m->points, m, "gateway-points", point_topics, 1);
    return m;
}

static void keep(gw_mlflow *m, pst_http_req *req, pst_http_handler handler)
{
    if (m->n_kept >= KEPT_MAX || m->stop) {
        gw_mlflow_fail(req, "TEMPORARILY_UNAVAILABLE", "experiments and runs are not read yet; ask again in a moment");
        return;
    }
    m->kept = pst_array_room(m->kept, m->n_kept, &m->cap_kept, sizeof *m->kept);
    m->kept[m->n_kept++] = (kept){req, handler, pst_mono_us() + KEPT_US};
    m->watchers++;
}

/* A name that is no UTF-8 would stay in records for ever, and no answer could carry it; false: req is answered. */
static bool name_ok(pst_http_req *req)
{
    char *name = gw_mlflow_actor(req);
    json_t *text = json_string(name);
    bool ok = text != NULL;
    if (!ok)
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "the user's name of basic authentication is no UTF-8; send it as UTF-8");
    json_decref(text);
    free(name);
    return ok;
}

gw_tracking *gw_mlflow_lock(gw_state *g, pst_http_req *req, pst_http_handler handler)
{
    gw_mlflow *m = mlflow_of(g);
    PST_ASSERT(pst_loop_is_current(g->loop));
    if (!name_ok(req))
        return NULL;
    if (!m->loaded) {
        keep(m, req, handler);
        return NULL;
    }
    pthread_mutex_lock(&m->lock);
    return m->view;
}

gw_tracking *gw_mlflow_lock_again(gw_state *g)
{
    PST_ASSERT(g->mlflow && g->mlflow->loaded);
    pthread_mutex_lock(&g->mlflow->lock);
    return g->mlflow->view;
}

void gw_mlflow_unlock(gw_state *g)
{
    pthread_mutex_unlock(&g->mlflow->lock);
}

bool gw_mlflow_has(gw_state *g, pst_topic topic, int64_t offset)
{
    return (topic == PST_TOPIC_TRACKING ? g->mlflow->tracking_next : g->mlflow->models_next) > offset;
}

void gw_mlflow_watch(gw_state *g, bool on)
{
    g->mlflow->watchers += on ? 1 : -1;
}

void gw_mlflow_stop(gw_state *g)
{
    gw_mlflow *m = g->mlflow;
    if (!m)
        return;
    m->stop = true;
    check(m);
    pst_timer_free(m->timer);
    if (m->facts.started)
        pthread_join(m->facts.thread, NULL);
    if (m->points.started)
        pthread_join(m->points.thread, NULL);
    gw_tracking_free(m->view);
    pthread_mutex_destroy(&m->lock);
    free(m->kept);
    g->mlflow = NULL;
    free(m);
}
