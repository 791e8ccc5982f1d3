/* running.c - the state of pipelines: each scorer's newest heartbeat (topic workers) and newest point (topic metrics), put together. Both are read when
 * somebody asks, from as far back as they can still mean something, so that two gateways say the same and one that has just started says all of it.
 *
 * The worst of its scorers is the pipeline's state: one that waits holds partitions that nobody else reads. What is not known is null and never 0: a lag
 * that nobody measured is no sign of health. */
#include "producers/gateway/running.h"

#include "common/base/clock.h"
#include "common/base/map.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "common/platform/models.h"
#include "schemas/events.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Heartbeats come every 10 s, points every 5 s at least. One that is silent for longer is remembered for a while, so that it is said. */
enum { HEARD_US = 30 * 1000000, REMEMBERED_US = 600 * 1000000, POINTS_US = 20 * 1000000 };

typedef struct scorer {
    pst_worker_state w;
    int64_t seen_us;
    pst_metric_point point; /* newest; process NULL = none */
} scorer;

typedef struct gather {
    pst_client *client;
    pst_map scorers; /* by worker_id */
    int64_t now_us;
} gather;

static void scorer_free(void *p)
{
    scorer *s = p;
    if (!s)
        return;
    pst_event_clear(&pst_worker_state_type, &s->w);
    pst_event_clear(&pst_metric_point_type, &s->point);
    free(s);
}

static const char *said(const scorer *s, const char *key)
{
    return pst_str_map_get(s->w.details, s->w.n_details, key);
}

/* 0; 1: what others write there is no heartbeat, and is left out. */
static int decode(const gather *g, const pst_type *type, const pst_record *r, void *to, pst_err *err)
{
    int rc = pst_codec_decode(g->client->codec, type, r->value, r->value_len, r->timestamp_ms, to, err);
    if (rc == 0 || err->cls == PST_CLASS_RETRY)
        return rc;
    pst_err_clear(err);
    return 1;
}

/* One that said that it stops is none any more. */
static int take_heartbeat(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    gather *g = arg;
    int64_t seen_us = r->timestamp_ms * 1000;
    if (!r->value || g->now_us - seen_us > REMEMBERED_US) {
        scorer_free(pst_map_take(&g->scorers, key));
        return 0;
    }
    scorer *s = pst_alloc(sizeof *s);
    int rc = decode(g, &pst_worker_state_type, r, &s->w, err);
    if (rc) {
        free(s);
        return rc < 0 ? rc : 0;
    }
    s->seen_us = seen_us;
    bool lives = !strcmp(s->w.kind, "scorer") && said(s, "pipeline") && strcmp(s->w.state, "stopped") != 0;
    scorer_free(lives ? pst_map_put(&g->scorers, key, s) : pst_map_take(&g->scorers, key));
    if (!lives)
        scorer_free(s);
    return 0;
}

/* Points of a partition come in order, so the last is the newest. */
static int take_point(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    gather *g = arg;
    if (!r->value || strncmp(key, "pipeline:", strlen("pipeline:")) != 0 || g->now_us - r->timestamp_ms * 1000 > POINTS_US)
        return 0;
    pst_metric_point m = {0};
    int rc = decode(g, &pst_metric_point_type, r, &m, err);
    if (rc)
        return rc < 0 ? rc : 0;
    scorer *s = pst_map_get(&g->scorers, m.process);
    if (s && !strcmp(said(s, "pipeline"), key + strlen("pipeline:"))) {
        pst_event_clear(&pst_metric_point_type, &s->point);
        s->point = m;
    } else {
        pst_event_clear(&pst_metric_point_type, &m);
    }
    return 0;
}

static double value(const scorer *s, const char *name)
{
    for (size_t i = 0; s->point.process && i < s->point.n_values; i++)
        if (!strcmp(s->point.values[i].key, name))
            return s->point.values[i].value;
    return NAN;
}

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *text(const char *s)
{
    return s && *s ? json_string(s) : json_null();
}

static json_t *scorer_json(const scorer *s)
{
    const char *version = said(s, "model_version");
    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:o}", "scorer", s->w.worker_id, "host", s->w.host, "state", s->w.state,
                     "seen_at", (json_int_t)s->seen_us, "waits_for", text(said(s, "waits_for")), "why", text(said(s, "why")),
                     "model_refused", text(said(s, "model_refused")), "model_version",
                     version && atoi(version) > 0 ? json_integer(atoi(version)) : json_null());
}

/* ---- all scorers of one pipeline together ------------------------------------------------------------------------------------------ */

/* What is summed and what is the worst of all; a sum is known only where all have said theirs. */
static const struct {
    const char *name;
    bool sum;
} measures[] = {{"records_per_s", true},      {"lag", true},          {"scored_total", true},
                {"dead_letters_total", true}, {"lag_seconds", false}, {"latency_p50_ms", false},
                {"latency_p99_ms", false},    {"score_p10", false},   {"score_p50", false},
                {"score_p90", false}};
enum { N_MEASURES = sizeof measures / sizeof *measures };

typedef struct whole {
    json_t *scorers;
    const scorer *waits, *newest; /* one that waits or is paused; the one heard last */
    size_t heard;
    double sum[N_MEASURES];
    size_t known[N_MEASURES];
    int version; /* of the model, of one that is heard; 0: none said it */
} whole;

static void count(whole *w, const scorer *s, int64_t now_us)
{
    if (!w->newest || s->seen_us > w->newest->seen_us)
        w->newest = s;
    json_array_append_new(w->scorers, scorer_json(s));
    if (now_us - s->seen_us > HEARD_US)
        return;
    w->heard++;
    if (said(s, "waits_for") && (!w->waits || !strcmp(s->w.state, "paused")))
        w->waits = s;
    if (said(s, "model_version") && atoi(said(s, "model_version")) > w->version)
        w->version = atoi(said(s, "model_version"));
    for (size_t i = 0; i < N_MEASURES; i++) {
        double v = value(s, measures[i].name);
        if (!isfinite(v))
            continue;
        double with = measures[i].sum ? w->sum[i] + v : fmax(w->sum[i], v);
        w->sum[i] = w->known[i]++ ? with : v;
    }
}

static const char *state_of(const whole *w, const char **ret_why)
{
    *ret_why = NULL;
    if (!w->newest) {
        *ret_why = "no scorer was heard within the last 10 minutes";
        return "absent";
    }
    if (!w->heard) {
        *ret_why = "its scorers are silent: no heartbeat for more than 30 s";
        return "silent";
    }
    if (w->waits) {
        *ret_why = said(w->waits, "why");
        return !strcmp(w->waits->w.state, "paused") ? "paused" : "waiting";
    }
    return !strcmp(w->newest->w.state, "running") ? "running" : "waiting";
}

static json_t *whole_json(const whole *w)
{
    const char *why, *state = state_of(w, &why);
    json_t *j = json_pack("{s:s, s:o, s:o, s:o, s:O}", "state", state, "why", text(why), "waits_for",
                          w->waits ? text(said(w->waits, "waits_for")) : json_null(), "model_version",
                          w->version ? json_integer(w->version) : json_null(), "scorers", w->scorers);
    for (size_t i = 0; i < N_MEASURES; i++)
        json_object_set_new(j, measures[i].name,
                            w->known[i] && (!measures[i].sum || w->known[i] == w->heard) ? number(w->sum[i]) : json_null());
    return j;
}

/* ---- which versions answer, with which share ---------------------------------------------------------------------------------------- */

/* running: what the scorers say that they use; 0 = they do not say, and what the alias names now is told. */
static json_t *serves(const pst_models *models, const char *role, const json_t *choice, double share, int running)
{
    const char *name = pst_json_str(choice, "name", NULL), *alias = pst_json_str(choice, "alias", NULL);
    int pinned = (int)json_integer_value(json_object_get(choice, "version"));
    const pst_model_event *v = name ? pst_models_resolve(models, name, alias, pinned) : NULL;
    int version = running ? running : v ? v->version : pinned;
    return json_pack("{s:s, s:f, s:o, s:o, s:o}", "role", role, "share", share, "name", text(name), "alias", text(alias), "version",
                     version ? json_integer(version) : json_null());
}

static json_t *serving(const pst_models *models, const json_t *pipeline, int running)
{
    const json_t *canary = json_object_get(pipeline, "canary"), *shadow = json_object_get(pipeline, "shadow");
    double percent = canary ? json_number_value(json_object_get(canary, "percent")) : 0;
    json_t *list = json_array();
    if (json_object_get(pipeline, "model"))
        json_array_append_new(list, serves(models, "primary", json_object_get(pipeline, "model"), 100 - percent, running));
    if (canary)
        json_array_append_new(list, serves(models, "canary", canary, percent, 0));
    if (shadow)
        json_array_append_new(list, serves(models, "shadow", shadow, 100, 0));
    return list;
}

/* ---- the list ------------------------------------------------------------------------------------------------------------------------ */

static void add(const gather *g, const pst_models *models, json_t *pipeline)
{
    const char *name = pst_json_str(pipeline, "name", "");
    whole w = {.scorers = json_array()};
    for (size_t i = 0; i < g->scorers.n; i++) {
        const scorer *s = g->scorers.at[i].key ? g->scorers.at[i].value : NULL;
        if (s && !strcmp(said(s, "pipeline"), name))
            count(&w, s, g->now_us);
    }
    json_object_set_new(pipeline, "running", whole_json(&w));
    json_object_set_new(pipeline, "serving", serving(models, pipeline, w.version));
    json_decref(w.scorers);
}

/* A topic that is not there yet holds nothing. */
static int scan(gather *g, pst_topic t, const char *key, int64_t back_us, pst_record_fn fn, pst_err *err)
{
    int rc = pst_client_scan_since(g->client, t, key, (g->now_us - back_us) / 1000, fn, g, err);
    if (rc != PST_ENOTFOUND)
        return rc;
    pst_err_clear(err);
    return 0;
}

int gw_running_add(pst_client *c, json_t *list, pst_err *err)
{
    gather g = {.client = c, .now_us = pst_now_us()};
    pst_models *models = pst_models_new();
    const char *name = json_array_size(list) == 1 ? pst_json_str(json_array_get(list, 0), "name", NULL) : NULL;
    char *key = name ? pst_sprintf("pipeline:%s", name) : NULL;
    size_t i;
    json_t *one;
    int rc = json_array_size(list) ? scan(&g, PST_TOPIC_WORKERS, NULL, REMEMBERED_US, take_heartbeat, err) : 0;
    if (!rc && g.scorers.n)
        rc = scan(&g, PST_TOPIC_METRICS, key, POINTS_US, take_point, err);
    if (!rc && json_array_size(list))
        rc = pst_models_load(models, c, err);
    if (!rc)
        json_array_foreach(list, i, one) add(&g, models, one);
    pst_map_done(&g.scorers, scorer_free);
    pst_models_free(models);
    free(key);
    return rc;
}
