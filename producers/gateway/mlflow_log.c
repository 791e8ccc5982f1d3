/* mlflow_log.c - what a run logs: points of metrics, parameters, tags, one by one or in batches. Everything of a request is looked at before anything of it is
 * published, so a refusal has left nothing behind. Points of one step and time are one MetricPoint, as those of platform jobs are; the newest point of
 * each metric is a fact as well, since `metrics` is kept for a week and runs are kept for ever. */
#include "producers/gateway/mlflow.h"

#include "common/base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIME_MS_MAX INT64_C(9000000000000000)

typedef struct point {
    const char *key;
    double value;
    int64_t ms, step;
} point;

/* A run's, as it stands while a batch is looked at. */
typedef struct batch {
    gw_state *g;
    pst_http_req *req;
    gw_run *run; /* under the lock */
    gw_facts *facts;
    char *subject;
    point *points;
    size_t n_points;
    json_t *params;             /* of this batch */
    json_t *metrics, *tags;     /* keys of this batch that the run has not yet */
    size_t n_metrics, n_params; /* that the run has, that this batch adds */
} batch;

static bool number_of(const json_t *v, double *ret)
{
    const char *text = json_string_value(v);
    char *end = NULL;
    if (json_is_number(v)) {
        *ret = json_number_value(v);
        return true;
    }
    if (!text || !*text)
        return false;
    *ret = strtod(text, &end); /* NaN, Infinity, -Infinity, and numbers that came as text */
    return !*end;
}

/* Not the word for a server that is short of something: clients would ask for minutes whether it still is. */
static bool too_many(batch *b, const char *what, size_t n)
{
    gw_mlflow_fail(b->req, "INVALID_PARAMETER_VALUE", "A run can have at most %d %s; run '%.60s' has %zu, and this request would add more",
                   GW_MLFLOW_KEYS_MAX, what, b->run->id, n);
    return false;
}

static bool take_point(batch *b, const json_t *j)
{
    point *p = &b->points[b->n_points];
    *p = (point){.key = pst_json_str(j, "key", "")};
    if (!gw_mlflow_key_ok(b->req, "key", p->key))
        return false;
    if (!number_of(json_object_get(j, "value"), &p->value)) {
        gw_mlflow_fail(b->req, "INVALID_PARAMETER_VALUE",
                       "Invalid value for parameter 'value' of metric '%.60s': a number, \"NaN\", \"Infinity\" or \"-Infinity\"", p->key);
        return false;
    }
    if (!gw_mlflow_int(j, "timestamp", &p->ms) || !json_object_get(j, "timestamp") || p->ms < 0 || p->ms > TIME_MS_MAX) {
        gw_mlflow_fail(b->req, "INVALID_PARAMETER_VALUE",
                       "Invalid value for parameter 'timestamp' of metric '%.60s': milliseconds since 1970", p->key);
        return false;
    }
    if (!gw_mlflow_int(j, "step", &p->step)) {
        gw_mlflow_fail(b->req, "INVALID_PARAMETER_VALUE", "Invalid value for parameter 'step' of metric '%.60s': a whole number", p->key);
        return false;
    }
    if (!gw_tracking_knows(b->run, p->key)) {
        json_object_set_new(b->metrics, p->key, json_true());
        if (b->n_metrics + json_object_size(b->metrics) > GW_MLFLOW_KEYS_MAX)
            return too_many(b, "metrics", b->n_metrics);
    }
    b->n_points++;
    return true;
}

/* Written once; the same again is fine. */
static bool take_param(batch *b, const json_t *j)
{
    const char *key = pst_json_str(j, "key", ""), *value = gw_mlflow_value(b->req, j);
    if (!value || !gw_mlflow_key_ok(b->req, "key", key))
        return false;
    if (strlen(value) > GW_MLFLOW_PARAM_MAX) {
        gw_mlflow_fail(b->req, "INVALID_PARAMETER_VALUE", "Param '%.60s' has a value of %zu bytes; it may have %d", key, strlen(value),
                       GW_MLFLOW_PARAM_MAX);
        return false;
    }
    const char *old = json_string_value(json_object_get(b->run->params, key)), *twin = json_string_value(json_object_get(b->params, key));
    if ((old && strcmp(old, value) != 0) || (twin && strcmp(twin, value) != 0)) {
        gw_mlflow_fail(
            b->req, "INVALID_PARAMETER_VALUE",
            "Changing param values is not allowed. Param with key='%.60s' was already logged with value='%.100s' for run ID='%.60s'. "
            "Attempted logging new value '%.100s'.",
            key, old ? old : twin, b->run->id, value);
        return false;
    }
    b->n_params += !old && !twin;
    if (!old && json_object_size(b->run->params) + b->n_params > GW_MLFLOW_KEYS_MAX)
        return too_many(b, "parameters", json_object_size(b->run->params));
    json_object_set_new(b->params, key, json_string(value));
    if (!old && !twin)
        gw_facts_add(b->facts, (pst_tracking_record){
                                   .subject = b->subject, .kind = PST_TRACKING_KIND_PARAM, .name = (char *)key, .value = (char *)value});
    return true;
}

static bool take_tag(batch *b, const json_t *j)
{
    const char *key = pst_json_str(j, "key", ""), *value = gw_mlflow_value(b->req, j);
    if (!value || !gw_mlflow_tag_ok(b->req, key, value))
        return false;
    if (!json_object_get(b->run->tags, key)) {
        json_object_set_new(b->tags, key, json_true());
        if (json_object_size(b->run->tags) + json_object_size(b->tags) > GW_MLFLOW_KEYS_MAX)
            return too_many(b, "tags", json_object_size(b->run->tags));
    }
    gw_facts_tag(b->facts, b->subject, key, value);
    return true;
}

/* ---- points out ------------------------------------------------------------------------------------------------------------ */

static bool is_in(const pst_metric_point *p, const char *key)
{
    for (size_t i = 0; i < p->n_values; i++)
        if (!strcmp(p->values[i].key, key))
            return true;
    return false;
}

static void publish_points(batch *b)
{
    pst_dbl_pair *room = pst_alloc((b->n_points + 1) * sizeof *room);
    for (size_t i = 0; i < b->n_points;) {
        const point *first = &b->points[i];
        pst_metric_point p = {.training_id = b->run->id,
                              .generation = 1,
                              .process = (char *)"mlflow",
                              .rindex = b->run->points++,
                              .time = first->ms * 1000,
                              .group = (char *)"train",
                              .step = first->step,
                              .has_step = true,
                              .values = room};
        for (; i < b->n_points && b->points[i].ms == first->ms && b->points[i].step == first->step && !is_in(&p, b->points[i].key); i++)
            room[p.n_values++] = (pst_dbl_pair){(char *)b->points[i].key, b->points[i].value};
        gw_facts_point(b->facts, &p);
    }
    free(room);
}

/* Of the batch's own. */
static bool is_newest(const batch *b, const point *p)
{
    for (size_t i = 0; i < b->n_points; i++)
        if (!strcmp(b->points[i].key, p->key) &&
            gw_tracking_newer(b->points[i].step, b->points[i].ms, b->points[i].value, p->step, p->ms, p->value))
            return false;
    return true;
}

static void publish_newest(batch *b)
{
    for (size_t i = 0; i < b->n_points; i++) {
        const point *own = &b->points[i];
        point newest = *own, *p = &newest;
        if (is_newest(b, own) && gw_tracking_claim(b->run, p->key, &p->step, &p->ms, &p->value))
            gw_facts_add(b->facts, (pst_tracking_record){.subject = b->subject,
                                                         .kind = PST_TRACKING_KIND_METRIC,
                                                         .name = (char *)p->key,
                                                         .number = p->value,
                                                         .step = p->step,
                                                         .timestamp = p->ms,
                                                         .points = b->run->points});
    }
}

/* ---- requests -------------------------------------------------------------------------------------------------------------- */

/* The run of a body, locked; false: req is answered. room: points that may come. */
static bool begin(batch *b, gw_state *g, pst_http_req *req, pst_http_handler handler, json_t **ret_body, size_t room)
{
    gw_run *r = gw_mlflow_body_run(g, req, handler, false, ret_body);
    if (!r)
        return false;
    *b = (batch){.g = g,
                 .req = req,
                 .run = r,
                 .facts = gw_facts_new(g, req),
                 .subject = pst_sprintf("run:%s", r->id),
                 .points = pst_alloc((room + 1) * sizeof(point)),
                 .params = json_object(),
                 .metrics = json_object(),
                 .tags = json_object(),
                 .n_metrics = gw_tracking_metrics(r)};
    return true;
}

/* ok: all of it is good. */
static void end(batch *b, json_t *body, bool ok)
{
    if (ok) {
        publish_points(b);
        publish_newest(b);
    }
    gw_mlflow_unlock(b->g);
    if (ok)
        gw_facts_send(b->facts, NULL, NULL);
    else
        gw_facts_drop(b->facts);
    free(b->subject);
    free(b->points);
    json_decref(b->params);
    json_decref(b->metrics);
    json_decref(b->tags);
    json_decref(body);
}

static void log_metric(void *arg, pst_http_req *req)
{
    batch b;
    json_t *body = NULL;
    if (begin(&b, arg, req, log_metric, &body, 1))
        end(&b, body, take_point(&b, body));
}

static void log_parameter(void *arg, pst_http_req *req)
{
    batch b;
    json_t *body = NULL;
    if (begin(&b, arg, req, log_parameter, &body, 0))
        end(&b, body, take_param(&b, body));
}

static void set_tag(void *arg, pst_http_req *req)
{
    batch b;
    json_t *body = NULL;
    if (begin(&b, arg, req, set_tag, &body, 0))
        end(&b, body, take_tag(&b, body));
}

static bool sizes_ok(pst_http_req *req, size_t metrics, size_t params, size_t tags)
{
    const char *what = NULL;
    if (metrics > GW_MLFLOW_BATCH_MAX || metrics + params + tags > GW_MLFLOW_BATCH_MAX)
        what = "1000 metrics, parameters and tags, all together";
    else if (params > GW_MLFLOW_BATCH_PARAMS_MAX)
        what = "100 parameters";
    else if (tags > GW_MLFLOW_BATCH_PARAMS_MAX)
        what = "100 tags";
    if (what)
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE",
                       "A batch logging request can contain at most %s. Got %zu metrics, %zu parameters, %zu tags; split it", what, metrics,
                       params, tags);
    return !what;
}

static void log_batch(void *arg, pst_http_req *req)
{
    batch b;
    json_t *body = NULL, *one;
    size_t i;
    if (!begin(&b, arg, req, log_batch, &body, GW_MLFLOW_BATCH_MAX))
        return;
    const json_t *metrics = json_object_get(body, "metrics"), *params = json_object_get(body, "params"),
                 *tags = json_object_get(body, "tags");
    bool ok = sizes_ok(req, json_array_size(metrics), json_array_size(params), json_array_size(tags));
    json_array_foreach((json_t *)metrics, i, one) ok = ok && take_point(&b, one);
    json_array_foreach((json_t *)params, i, one) ok = ok && take_param(&b, one);
    json_array_foreach((json_t *)tags, i, one) ok = ok && take_tag(&b, one);
    end(&b, body, ok);
}

/* Data sets and models as inputs or outputs have no place here yet: taking them and showing none would be worse than to say so. */
static void not_kept(void *arg, pst_http_req *req)
{
    gw_mlflow_fail(req, "NOT_IMPLEMENTED", "penstock keeps no inputs and outputs of runs; log them as tags or artifacts");
}

/* MLflow's client from 3 on asks for these whenever it lists the files of a run. There is no way to make one, so there are none. */
static void no_logged_models(void *arg, pst_http_req *req)
{
    json_t *body = gw_mlflow_body(req);
    if (body)
        gw_mlflow_reply(req, json_pack("{s:[]}", "models"));
    json_decref(body);
}

static void no_logged_model(void *arg, pst_http_req *req)
{
    gw_mlflow_fail(req, "NOT_IMPLEMENTED",
                   "penstock keeps no logged models of MLflow 3: log the model's file as an artifact of the run, and register that");
}

static const gw_answer not_kept_answers[] = {{200, "never", NULL, NULL}, {501, "always: what to do instead", GW_MLFLOW_ERROR}, {0}};
static const gw_param of_history[] = {{"run_id", "query", GW_JSON({"type" : "string"}), "the run"},
                                      {"run_uuid", "query", GW_JSON({"type" : "string"}), "the same, as older clients say"},
                                      {"metric_key", "query", GW_JSON({"type" : "string"}), "the metric"},
                                      {"max_results", "query", GW_JSON({"type" : "string"}), "1 to 25,000"},
                                      {"page_token", "query", GW_JSON({"type" : "string"}), "next_page_token of the page before"},
                                      {0}};
#define POST(path, fn, name, answers, doc)                                                                                  \
    {                                                                                                                       \
        {"POST", GW_MLFLOW_ROOT "/runs/" path, fn, GW_MLFLOW_BODY_MAX, GW_MLFLOW, doc}, name, NULL, gw_mlflow_json, answers \
    }
static const gw_route routes[] = {
    POST("log-metric", log_metric, "mlflowLogMetric", gw_mlflow_answers, "One point: `run_id`, `key`, `value`, `timestamp`, `step`."),
    POST("log-batch", log_batch, "mlflowLogBatch", gw_mlflow_answers,
         "`metrics`, `params` and `tags` of a run: 1,000 at most, 100 parameters and 100 tags among them, 1 MiB."),
    POST("log-parameter", log_parameter, "mlflowLogParameter", gw_mlflow_answers, "A parameter, written once: `run_id`, `key`, `value`."),
    POST("set-tag", set_tag, "mlflowSetTag", gw_mlflow_answers, "A tag: `run_id`, `key`, `value`."),
    POST("log-inputs", not_kept, "mlflowLogInputs", not_kept_answers, "Not kept."),
    POST("outputs", not_kept, "mlflowLogOutputs", not_kept_answers, "Not kept."),
    {{"POST", GW_MLFLOW_ROOT "/logged-models/search", no_logged_models, GW_MLFLOW_BODY_MAX, GW_MLFLOW,
      "None: there is no way to make one."},
     "mlflowSearchLoggedModels",
     NULL,
     gw_mlflow_json,
     gw_mlflow_answers},
    {{"POST", GW_MLFLOW_ROOT "/logged-models", no_logged_model, GW_MLFLOW_BODY_MAX, GW_MLFLOW, "Not kept."},
     "mlflowCreateLoggedModel",
     NULL,
     gw_mlflow_json,
     not_kept_answers},
    {{"GET", GW_MLFLOW_ROOT "/metrics/get-history", gw_mlflow_history, 0, GW_MLFLOW,
      "All points of a metric, by time and step, as long as `metrics` keeps them; then the newest."},
     "mlflowGetMetricHistory",
     of_history,
     NULL,
     gw_mlflow_answers},
};
const gw_noun gw_mlflow_log_noun = {"mlflow metrics", "What MLflow's runs log.", routes, sizeof routes / sizeof *routes, gw_mlflow_schemas};
