/* mlflow_history.c - GET metrics/get-history: the points of one metric of a run, out of `metrics`. A thread reads the run's partition from the run's beginning,
 * as for the records of a job (job_records.c), of which four are at work at once. The same point sent twice (a client that did not get its answer) is one
 * point, as in MLflow's own store. What the topic keeps no more is gone but for the newest point, which is a fact of the run. */
#include "producers/gateway/mlflow.h"

#include "common/base/array.h"
#include "common/base/json.h"
#include "common/base/thread.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "common/platform/follow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { READERS_MAX = 4, POINTS_MAX = 1000000, RESULTS_MAX = 25000, READ_US = 30 * 1000000 };

typedef struct point {
    int64_t ms, step;
    double value;
} point;

typedef struct reading {
    gw_state *g;
    pst_http_req *req;
    char *run_id, *key;
    int64_t since_us;
    size_t n, from; /* of the page */
    json_t *newest; /* of the view; NULL */
    point *points;
    size_t n_points, cap;
    pst_err err;
    int rc;
} reading;

static int keep(void *arg, const pst_record *r, pst_err *err)
{
    reading *d = arg;
    pst_metric_point p;
    char room[600];
    int rc = pst_codec_decode(d->g->client->codec, &pst_metric_point_type, r->value, r->value_len, r->timestamp_ms, &p, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < p.n_values; i++) {
        if (strcmp(gw_tracking_metric(&p, p.values[i].key, room, sizeof room), d->key) != 0)
            continue;
        if (d->n_points == POINTS_MAX) {
            pst_event_clear(&pst_metric_point_type, &p);
            return pst_err_set(err, PST_ELIMIT, PST_CLASS_FATAL, "gateway", 0,
                               "the metric has more than %d points; read the topic itself (penstock cat metrics -k %s)", POINTS_MAX,
                               d->run_id);
        }
        d->points = pst_array_room(d->points, d->n_points, &d->cap, sizeof *d->points);
        d->points[d->n_points++] = (point){p.time / 1000, p.has_step ? p.step : 0, p.values[i].value};
    }
    pst_event_clear(&pst_metric_point_type, &p);
    return 0;
}

static int compare(const void *a, const void *b)
{
    const point *x = a, *y = b;
    if (x->ms != y->ms)
        return x->ms < y->ms ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (isnan(x->value) || isnan(y->value))
        return isnan(x->value) - isnan(y->value);
    return (x->value > y->value) - (x->value < y->value);
}

static void sort_and_merge(reading *d)
{
    size_t n = 0;
    if (d->n_points)
        qsort(d->points, d->n_points, sizeof *d->points, compare);
    for (size_t i = 0; i < d->n_points; i++)
        if (!n || compare(&d->points[n - 1], &d->points[i]) != 0)
            d->points[n++] = d->points[i];
    d->n_points = n;
}

/* @thread loop */
static void answer(void *arg)
{
    reading *d = arg;
    PST_ASSERT(d->g->readers > 0);
    d->g->readers--;
    if (d->rc < 0)
        gw_mlflow_fail_err(d->req, &d->err);
    else {
        json_t *list = json_array(), *j = json_pack("{s:o}", "metrics", list);
        for (size_t i = d->from; i < d->n_points && i - d->from < d->n; i++)
            json_array_append_new(list, json_pack("{s:s, s:o, s:I, s:I}", "key", d->key, "value", pst_json_real(d->points[i].value),
                                                  "timestamp", (json_int_t)d->points[i].ms, "step", (json_int_t)d->points[i].step));
        if (!d->n_points && d->newest && !d->from)
            json_array_append(list, d->newest);
        gw_mlflow_next_page(j, d->from, d->n, d->n_points);
        gw_mlflow_reply(d->req, j);
    }
    json_decref(d->newest);
    free(d->points);
    free(d->run_id);
    free(d->key);
    free(d);
}

static void *read_points(void *arg)
{
    reading *d = arg;
    pst_follow f = {.client = d->g->client,
                    .topic = PST_TOPIC_METRICS,
                    .training_id = d->run_id,
                    .timeout_us = READ_US,
                    .fn = keep,
                    .arg = d,
                    .since_us = d->since_us};
    d->rc = pst_follow_run(&f, &d->err);
    if (!d->rc)
        sort_and_merge(d);
    gw_post(d->g, answer, d, NULL);
    return NULL;
}

static void start(gw_state *g, reading *take)
{
    g->readers++;
    if (pst_thread_detached("gateway-reader", read_points, take)) {
        take->rc = pst_err_set(&take->err, PST_ENOMEM, PST_CLASS_RETRY, "sys", 0, "no thread to be had");
        answer(take);
    }
}

void gw_mlflow_history(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    size_t n, from;
    const char *id = gw_query(req, "run_id"), *old = gw_query(req, "run_uuid"), *max = gw_query(req, "max_results");
    gw_tracking *t = gw_mlflow_lock(g, req, gw_mlflow_history);
    if (!t)
        return;
    const gw_run *r = gw_mlflow_find_run(g, req, t, id && *id ? id : old ? old : "", true);
    if (!r)
        return;
    reading *d = pst_alloc(sizeof *d);
    *d = (reading){.g = g, .req = req, .run_id = pst_strdup(r->id), .since_us = r->since_us};
    const char *key = gw_query(req, "metric_key");
    d->newest = key ? json_deep_copy(json_object_get(r->metrics, key)) : NULL;
    d->key = pst_strdup(key);
    gw_mlflow_unlock(g);
    const char *limit = max && *max ? max : "25000";
    if (!key || !*key)
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Missing value for required parameter 'metric_key'");
    else if (!gw_mlflow_page(req, limit, gw_query(req, "page_token"), RESULTS_MAX, &n, &from))
        ;
    else if (!d->newest) /* it was never logged: an empty list, as MLflow says */
        gw_mlflow_reply(req, json_pack("{s:[]}", "metrics"));
    else if (g->readers >= READERS_MAX)
        gw_mlflow_fail(req, "TEMPORARILY_UNAVAILABLE", "four readers are at work already; ask again in a moment");
    else {
        d->n = n;
        d->from = from;
        start(g, d);
        return;
    }
    json_decref(d->newest);
    free(d->run_id);
    free(d->key);
    free(d);
}
