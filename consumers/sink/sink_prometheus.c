/* sink_prometheus.c - the latest values of jobs and pipelines on one page that Prometheus reads (OpenMetrics).
 *
 * Series are bounded, because a job's names are its user's: of one job the first --job-series are shown, so that nobody pushes out what others have; of all
 * at most --series, where the one that was longest without a new value goes first; and a job's are dropped some time after its end. Metric families are fixed; what a user names is a label's value, never a name. Nothing is kept on disk:
 * after a start the states are read anew, and points from the last --since. */
#include "consumers/sink/sink.h"

#include "common/base/clock.h"
#include "common/base/map.h"
#include "common/base/thread.h"
#include "common/loop/http.h"
#include "schemas/job_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_MAX = 200 }; /* bytes of a label's value */

typedef struct prom_opts {
    sink_opts all;
    const char *listen;
    pst_opt_list hosts;
    int64_t series, job_series, keep_us, since_us;
} prom_opts;
static const pst_opt prom_options[] = {
    SINK_OPTS(prom_opts, "jobs.state,metrics"),
    {"listen", 0, PST_OPT_STR, offsetof(prom_opts, listen), "ADDRESS:PORT", "127.0.0.1:9110", "where /metrics is served"},
    {"host", 0, PST_OPT_LIST, offsetof(prom_opts, hosts), "NAME", NULL, "accept this name in the Host header too; repeat for more"},
    {"series", 0, PST_OPT_INT, offsetof(prom_opts, series), "N 1..1000000", "10000",
     "at most so many values; the ones longest without a new one go"},
    {"job-series", 0, PST_OPT_INT, offsetof(prom_opts, job_series), "N 0..1000000", "0",
     "of one job or pipeline at most so many, the first ones; 0: a tenth of all"},
    {"keep", 0, PST_OPT_SPAN, offsetof(prom_opts, keep_us), "T", "15m", "how long the values of a job stay after its end"},
    {"since", 0, PST_OPT_SPAN, offsetof(prom_opts, since_us), "T", "1h", "at a start points are read from so long ago on"},
};
extern const pst_usage sink_prometheus_usage;
const pst_usage sink_prometheus_usage = {
    "sink prometheus",
    NULL,
    "Serve the latest metrics of jobs and pipelines to Prometheus.",
    "GET /metrics: penstock_jobs (by state), penstock_job_value and penstock_job_step (labels training_id, job_name, user, process, group, "
    "name); of scorers "
    "training_id is pipeline:NAME. /health says OK. No token is asked: listen beyond loopback only where everybody may read them.",
    "penstock sink prometheus\npenstock sink prometheus --listen 0.0.0.0:9110 --host metrics.example.org",
    prom_options,
    sizeof prom_options / sizeof *prom_options,
    false};

typedef struct prom_job {
    char *name, *user;
    pst_job_public_state state;
    int64_t ended_us; /* 0 = it has not */
} prom_job;

typedef struct prom_value {
    char *id, *process, *group, *name;
    double value, step; /* step NaN = none */
    int64_t time_us, seen_us;
} prom_value;

typedef struct prom {
    pthread_mutex_t lock; /* of all below; the page is made by the server's thread */
    pst_map jobs, values; /* training id → prom_job; id, process, group and name → prom_value */
    pst_map counts;       /* training id → how many values it has, as a size_t * */
    json_t *places;       /* "topic partition" → next offset; the reading thread's alone */
    int64_t dropped, keep_us;
    size_t series_max, job_series_max;
    pst_client *client;
    int64_t since_ms;
    pst_http_thread *http;
} prom;

static void job_free(void *p)
{
    prom_job *j = p;
    free(j->name);
    free(j->user);
    free(j);
}

static void value_free(void *p)
{
    prom_value *v = p;
    free(v->id);
    free(v->process);
    free(v->group);
    free(v->name);
    free(v);
}

/* ---- what comes in ---- */

/* Takes it out. */
static void drop(prom *p, const char *key)
{
    prom_value *v = pst_map_take(&p->values, key);
    size_t *count = pst_map_get(&p->counts, v->id);
    if (--*count == 0)
        free(pst_map_take(&p->counts, v->id));
    value_free(v);
}

/* Labels are short, and end with a whole character: a page with half a one is refused as a whole. */
static char *label(const char *text)
{
    size_t n = strlen(text);
    if (n > LABEL_MAX)
        for (n = LABEL_MAX; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80; n--)
            ;
    return pst_sprintf("%.*s", (int)n, text);
}

static void drop_values_of(prom *p, const char *id)
{
    for (size_t i = 0; i < p->values.n; i++) {
        prom_value *v = p->values.at[i].key ? p->values.at[i].value : NULL;
        if (v && !strcmp(v->id, id))
            drop(p, p->values.at[i].key);
    }
}

static void take_state(prom *p, const sink_doc *d)
{
    char *id = pst_strndup(d->record->key ? d->record->key : "", d->record->key_len);
    int state = pst_job_public_state_parse(pst_json_str(d->value, "state", ""));
    prom_job *j = pst_map_get(&p->jobs, id);
    if (!d->record->value) {
        if (j)
            job_free(pst_map_take(&p->jobs, id));
        drop_values_of(p, id);
    } else if (state > PST_JOB_PUBLIC_STATE_UNKNOWN) {
        if (!j)
            pst_map_put(&p->jobs, id, j = pst_alloc(sizeof *j));
        free(j->name);
        free(j->user);
        j->name = label(pst_json_str(d->value, "name", ""));
        j->user = label(pst_json_str(d->value, "user", ""));
        j->state = (pst_job_public_state)state;
        int64_t ended_us = pst_json_int(d->value, "ended_at", 0);
        j->ended_us = !pst_job_state_is_ended(j->state) ? 0 : ended_us ? ended_us : d->record->timestamp_ms * 1000;
    }
    free(id);
}

/* The one that was longest without a new value. */
static void drop_oldest(prom *p)
{
    size_t oldest = SIZE_MAX;
    int64_t seen_us = INT64_MAX;
    for (size_t i = 0; i < p->values.n; i++)
        if (p->values.at[i].key && ((prom_value *)p->values.at[i].value)->seen_us < seen_us) {
            oldest = i;
            seen_us = ((prom_value *)p->values.at[i].value)->seen_us;
        }
    if (oldest != SIZE_MAX)
        drop(p, p->values.at[oldest].key);
    p->dropped++;
}

/* A point that is older than what is shown (another partition's, a resumed reading) changes nothing. */
static void take_value(prom *p, const json_t *point, const char *name, const json_t *value)
{
    char *id = label(pst_json_str(point, "training_id", "")), *process = label(pst_json_str(point, "process", ""));
    char *group = label(pst_json_str(point, "group", "")), *metric = label(name);
    char *key = pst_sprintf("%s\n%s\n%s\n%s", id, process, group, metric);
    int64_t time_us = pst_json_int(point, "time", 0);
    prom_value *v = pst_map_get(&p->values, key);
    size_t *count = pst_map_get(&p->counts, id);
    if (!v && count && *count >= p->job_series_max) {
        p->dropped++;
        free(id), free(process), free(group), free(metric), free(key);
        return;
    }
    if (!v) {
        while (p->values.live >= p->series_max)
            drop_oldest(p);
        if (!(count = pst_map_get(&p->counts, id)))
            pst_map_put(&p->counts, id, count = pst_alloc(sizeof *count));
        ++*count;
        v = pst_alloc(sizeof *v);
        *v = (prom_value){.id = id, .process = process, .group = group, .name = metric, .time_us = INT64_MIN};
        pst_map_put(&p->values, key, v);
    } else {
        free(id), free(process), free(group), free(metric);
    }
    if (time_us >= v->time_us) {
        const json_t *step = json_object_get(point, "step");
        v->value = sink_number(value);
        v->step = json_is_integer(step) ? (double)json_integer_value(step) : (double)NAN;
        v->time_us = time_us;
        v->seen_us = pst_mono_us();
    }
    free(key);
}

static int prom_take(void *sink, const sink_doc *d, pst_err *err)
{
    prom *p = sink;
    const pst_record *r = d->record;
    char *place = pst_sprintf("%s %d", r->topic, r->partition);
    const char *name;
    json_t *value;
    json_object_set_new(p->places, place, json_integer(r->offset + 1));
    free(place);
    pthread_mutex_lock(&p->lock);
    int rc = 0;
    if (!d->error && d->platform && !strcmp(d->platform, "jobs.state"))
        take_state(p, d);
    else if (json_is_object(json_object_get(d->value, "values")) && json_is_string(json_object_get(d->value, "training_id"))) {
        json_object_foreach(json_object_get(d->value, "values"), name, value) take_value(p, d->value, name, value);
    } else if (r->value)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "sink", 0, "it is neither a MetricPoint nor a JobState%s%s", d->error ? ": " : "",
                         d->error ? d->error : "");
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/* Points of the last while; states from their beginning. */
static int64_t prom_place(void *sink, const char *topic, int32_t partition)
{
    prom *p = sink;
    pst_err e = {0};
    char *place = pst_sprintf("%s %d", topic, partition);
    int64_t at = pst_json_int(p->places, place, -1);
    free(place);
    if (at < 0 && strcmp(topic, pst_client_topic(p->client, PST_TOPIC_JOBS_STATE)) != 0 &&
        pst_admin_offset_at(p->client->bus, topic, partition, p->since_ms, &at, &e) < 0)
        at = -1; /* all of it, then */
    if (at < 0 && !e.code && strcmp(topic, pst_client_topic(p->client, PST_TOPIC_JOBS_STATE)) != 0)
        at = INT64_MAX; /* nothing is that young: the end */
    return at;
}

/* ---- the page ---- */

static void add_label(pst_buf *b, const char *name, const char *value, char before)
{
    pst_buf_printf(b, "%c%s=\"", before, name);
    for (const char *c = value; *c; c++)
        if (*c == '"' || *c == '\\')
            pst_buf_printf(b, "\\%c", *c);
        else if (*c == '\n')
            pst_buf_adds(b, "\\n");
        else
            pst_buf_addc(b, *c);
    pst_buf_addc(b, '"');
}

static void add_number(pst_buf *b, double v)
{
    if (isnan(v))
        pst_buf_adds(b, " NaN\n");
    else if (isinf(v))
        pst_buf_adds(b, v > 0 ? " +Inf\n" : " -Inf\n");
    else
        pst_buf_printf(b, " %.17g\n", v);
}

static void add_values(pst_buf *b, const prom *p, const char *family, const char *help, bool steps)
{
    pst_buf_printf(b, "# TYPE %s gauge\n# HELP %s %s\n", family, family, help);
    for (size_t i = 0; i < p->values.n; i++) {
        const prom_value *v = p->values.at[i].key ? p->values.at[i].value : NULL;
        if (!v || (steps && isnan(v->step)))
            continue;
        const prom_job *j = pst_map_get(&p->jobs, v->id);
        pst_buf_adds(b, family);
        add_label(b, "training_id", v->id, '{');
        add_label(b, "job_name", j ? j->name : "", ',');
        add_label(b, "user", j ? j->user : "", ',');
        add_label(b, "process", v->process, ',');
        add_label(b, "group", v->group, ',');
        add_label(b, "name", v->name, ',');
        pst_buf_addc(b, '}');
        add_number(b, steps ? v->step : v->value);
    }
}

static void drop_ended(prom *p)
{
    int64_t now_us = pst_now_us();
    for (size_t i = 0; i < p->values.n; i++) {
        prom_value *v = p->values.at[i].key ? p->values.at[i].value : NULL;
        const prom_job *j = v ? pst_map_get(&p->jobs, v->id) : NULL;
        if (j && j->ended_us && now_us - j->ended_us > p->keep_us)
            drop(p, p->values.at[i].key);
    }
}

static void page(void *arg, pst_http_req *r)
{
    prom *p = arg;
    pst_buf b = {0};
    size_t count[PST_JOB_PUBLIC_STATE_REJECTED + 1] = {0};
    const char *accept = pst_http_header(r, "Accept");
    pthread_mutex_lock(&p->lock);
    drop_ended(p);
    for (size_t i = 0; i < p->jobs.n; i++)
        if (p->jobs.at[i].key)
            count[((prom_job *)p->jobs.at[i].value)->state]++;
    pst_buf_adds(&b, "# TYPE penstock_jobs gauge\n# HELP penstock_jobs Jobs by state.\n");
    for (int s = PST_JOB_PUBLIC_STATE_UNKNOWN + 1; s <= PST_JOB_PUBLIC_STATE_REJECTED; s++)
        pst_buf_printf(&b, "penstock_jobs{state=\"%s\"} %zu\n", pst_job_public_state_text((pst_job_public_state)s), count[s]);
    add_values(&b, p, "penstock_job_value", "The latest value of a metric of a job or pipeline.", false);
    add_values(&b, p, "penstock_job_step", "The step of that value.", true);
    pst_buf_printf(
        &b,
        "# TYPE penstock_sink_series gauge\n# HELP penstock_sink_series Values that are shown.\npenstock_sink_series %zu\n"
        "# TYPE penstock_sink_series_dropped counter\n# HELP penstock_sink_series_dropped Values dropped because there were too many.\n"
        "penstock_sink_series_dropped_total %lld\n# EOF\n",
        p->values.live, (long long)p->dropped);
    pthread_mutex_unlock(&p->lock);
    bool open = accept && strstr(accept, "application/openmetrics-text");
    pst_http_reply(r, 200, open ? "application/openmetrics-text; version=1.0.0; charset=utf-8" : "text/plain; version=0.0.4; charset=utf-8",
                   b.data, b.len);
    pst_buf_done(&b);
}

static void health(void *arg, pst_http_req *r)
{
    (void)arg;
    pst_http_reply_text(r, 200, "OK");
}

static const pst_http_route routes[] = {{"GET", "/metrics", page, 0, 0, "the values"}, {"GET", "/health", health, 0, 0, "OK"}};

/* ---- the sink ---- */

static void prom_close(void *sink)
{
    prom *p = sink;
    pst_http_thread_stop(p->http);
    pst_map_done(&p->jobs, job_free);
    pst_map_done(&p->values, value_free);
    pst_map_done(&p->counts, free);
    json_decref(p->places);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static int prom_open(const void *opts, pst_client *client, void **ret_sink, pst_err *err)
{
    const prom_opts *o = opts;
    char address[PST_HTTP_HOST_MAX];
    int port;
    if (pst_http_listen_parse("listen", o->listen, address, &port, err) < 0)
        return err->code;
    const char **names = pst_alloc((o->hosts.n + 1) * sizeof *names);
    for (size_t i = 0; i < o->hosts.n; i++)
        names[i] = o->hosts.items[i];
    prom *p = pst_alloc(sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    p->client = client;
    p->places = json_object();
    p->keep_us = o->keep_us;
    p->series_max = (size_t)o->series;
    p->job_series_max = o->job_series ? (size_t)o->job_series : p->series_max / 10 ? p->series_max / 10 : 1;
    p->since_ms = (pst_now_us() - o->since_us) / 1000;
    int rc = pst_http_thread_start(&(pst_http_conf){.listen = address, .port = port, .name = "sink", .hosts = names}, routes,
                                   sizeof routes / sizeof *routes, p, &p->http, err);
    free(names);
    free(o->hosts.items);
    if (rc < 0) {
        prom_close(p);
        return rc;
    }
    bool bare = strchr(address, ':') && *address != '[';
    fprintf(stderr, "penstock sink: http://%s%s%s:%d/metrics\n", bare ? "[" : "", address, bare ? "]" : "", pst_http_thread_port(p->http));
    *ret_sink = p;
    return 0;
}

static void prom_forget(void *sink, const char *topic, int32_t partition)
{
    char *place = pst_sprintf("%s %d", topic, partition);
    json_object_del(((prom *)sink)->places, place);
    free(place);
}

static bool prom_full(const void *sink)
{
    (void)sink;
    return false;
}

static int prom_settle(void *sink, bool final, pst_err *err)
{
    (void)sink, (void) final, (void)err;
    return 0;
}

const sink_ops sink_prometheus = {.usage = &sink_prometheus_usage,
                                  .opts_size = sizeof(prom_opts),
                                  .open = prom_open,
                                  .place = prom_place,
                                  .forget = prom_forget,
                                  .take = prom_take,
                                  .full = prom_full,
                                  .settle = prom_settle,
                                  .close = prom_close};
