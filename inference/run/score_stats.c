/* score_stats.c - counters, /metrics, and a thread that publishes MetricPoints and heartbeats. Losing a point is harmless and losing the
 * stream is not, so everything here gives up quietly: what cannot be encoded or sent is dropped, and the next second brings another. */
#include "inference/run/score_stats.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/base/thread.h"
#include "common/platform/client.h"
#include "common/loop/http.h"
#include "schemas/metric_list.h"
#include "common/platform/codec.h"
#include "inference/run/device.h"
#include "schemas/avro.h"
#include "schemas/events.h"
#include "schemas/topics.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POINT_EVERY_US = 1000000, IDLE_POINT_EVERY = 5, HEARTBEAT_EVERY = 10, STATE_MS = 2000, WHY_BYTES_MAX = 480 };
#define AND_FOR "; and for "

struct pst_stats_threads {
    pst_http_thread *http;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop, changed; /* changed: what it waits for */
    pst_client *client;
    char *worker_id, host[256], *token_path;
    int generation; /* seconds of the start: points are numbered from 0 again in each */
    int64_t rindex;
    uint64_t seen_records, seen_latency[PST_LATENCY_BUCKETS], seen_scores[PST_METRIC_SPREAD], seen_batches, seen_batch_records;
    int64_t seen_us;
    char device_event[160]; /* the newest that a driver told; "" = none */
};

/* Counts without a further label are made here, not where the first is counted: a 0 on /metrics was looked at, what is missing was not. */
score_stats *score_stats_new(const char *pipeline)
{
    score_stats *s = pst_alloc(sizeof(*s));
    s->set = pst_metrics_new();
    s->pipeline = pipeline;
    s->lag = -1;
    pthread_mutex_init(&s->wait_lock, NULL);
    s->waiting = pst_waits_new();
    pst_metrics *m = s->set;
    s->consumed = pst_metric_of(m, PST_METRIC_SCORER_CONSUMED, pipeline, NULL);
    s->tombstones_total = pst_metric_of(m, PST_METRIC_SCORER_TOMBSTONES, pipeline, NULL);
    s->missing_total = pst_metric_of(m, PST_METRIC_SCORER_MISSING, pipeline, NULL);
    s->anomalies_total = pst_metric_of(m, PST_METRIC_SCORER_ANOMALIES, pipeline, NULL);
    s->commits_ok = pst_metric_of(m, PST_METRIC_SCORER_COMMITS, pipeline, "ok", NULL);
    s->aborts_total = pst_metric_of(m, PST_METRIC_SCORER_COMMITS, pipeline, "aborted", NULL);
    s->swaps = pst_metric_of(m, PST_METRIC_SCORER_SWAPS, pipeline, "ok", NULL);
    s->swap_failures = pst_metric_of(m, PST_METRIC_SCORER_SWAPS, pipeline, "refused", NULL);
    s->shadow_scored = pst_metric_of(m, PST_METRIC_SCORER_SHADOW_SCORED, pipeline, NULL);
    s->shadow_disagree = pst_metric_of(m, PST_METRIC_SCORER_SHADOW_DISAGREES, pipeline, NULL);
    s->shadow_skipped = pst_metric_of(m, PST_METRIC_SCORER_SHADOW_SKIPPED, pipeline, NULL);
    s->state_keys = pst_metric_of(m, PST_METRIC_SCORER_STATE_KEYS, pipeline, NULL);
    s->state_bytes = pst_metric_of(m, PST_METRIC_SCORER_STATE_BYTES, pipeline, NULL);
    s->state_forgotten = pst_metric_of(m, PST_METRIC_SCORER_STATE_FORGOTTEN, pipeline, NULL);
    s->window_cut = pst_metric_of(m, PST_METRIC_SCORER_WINDOW_CUT, pipeline, NULL);
    s->non_finite = pst_metric_of(m, PST_METRIC_SCORER_NON_FINITE, pipeline, NULL);
    s->canary_failed = pst_metric_of(m, PST_METRIC_SCORER_CANARY_FAILED, pipeline, NULL);
    s->canary_stopped = pst_metric_of(m, PST_METRIC_SCORER_CANARY_STOPPED, pipeline, NULL);
    s->score = pst_metric_of(m, PST_METRIC_SCORER_SCORE, pipeline, NULL);
    s->lag_seconds = pst_metric_of(m, PST_METRIC_SCORER_LAG_SECONDS, pipeline, NULL);
    s->device_lost = pst_metric_of(m, PST_METRIC_SCORER_DEVICE_LOST, pipeline, NULL);
    s->waiting_gauge = pst_metric_of(m, PST_METRIC_SCORER_WAITING, pipeline, NULL);
    s->lag_gauge = pst_metric_of(m, PST_METRIC_SCORER_LAG, pipeline, NULL);
    s->load_seconds = pst_metric_of(m, PST_METRIC_SCORER_MODEL_LOAD, pipeline, NULL);
    s->e2e = pst_metric_of(m, PST_METRIC_SCORER_E2E, pipeline, NULL);
    s->decode = pst_metric_of(m, PST_METRIC_SCORER_STAGE, pipeline, "score", NULL);
    s->emit = pst_metric_of(m, PST_METRIC_SCORER_STAGE, pipeline, "produce", NULL);
    s->commit = pst_metric_of(m, PST_METRIC_SCORER_STAGE, pipeline, "commit", NULL);
    return s;
}

void score_stats_free(score_stats *s)
{
    if (!s)
        return;
    pst_metrics_free(s->set);
    pst_waits_free(s->waiting);
    pthread_mutex_destroy(&s->wait_lock);
    pst_map_done(&s->drift, free);
    free(s->wait_file);
    free(s);
}

/* ---- waiting --------------------------------------------------------------------------------------------------------------- */

/* Cut to the room that is there, between two characters: these texts travel as UTF-8. */
static void put_text(char *to, size_t room, const char *text)
{
    size_t len = strlen(text), n = len < room ? len : room - 1;
    if (n < len) {
        while (n && (text[n] & 0xc0) == 0x80)
            n--;
    }
    memcpy(to, text, n);
    to[n] = 0;
}

static void add_said(pst_buf *b, const char *key, const char *text)
{
    pst_buf_printf(b, ",\"%s\":", key);
    pst_json_quote(b, text, strlen(text));
}

/* @locks wait_lock */
static void write_wait_file(const score_stats *s)
{
    if (!s->wait_file)
        return;
    if (!s->waits && !*s->refused && !*s->canary_why) {
        unlink(s->wait_file);
        return;
    }
    pst_buf b = {0}, why = {0};
    pst_buf_printf(&b, "{\"since\":%lld", (long long)pst_now_us());
    if (s->waits) {
        pst_waits_text(s->waiting, AND_FOR, &why);
        add_said(&b, "for", pst_waits_what(s->waiting));
        add_said(&b, "why", why.data);
    }
    if (*s->refused)
        add_said(&b, "model_refused", s->refused);
    if (*s->canary_why)
        add_said(&b, "canary_stopped", s->canary_why);
    pst_buf_addc(&b, '}');
    pst_fs_write_atomic(s->wait_file, b.data, b.len, 0600, NULL); /* it is told otherwise, too */
    pst_buf_done(&b);
    pst_buf_done(&why);
}

/* The next heartbeat goes now. */
static void tell_now(score_stats *s)
{
    if (!s->threads)
        return;
    pthread_mutex_lock(&s->threads->lock);
    s->threads->changed = true;
    pthread_cond_signal(&s->threads->wake);
    pthread_mutex_unlock(&s->threads->lock);
}

/* After a change of what it waits for. @locks wait_lock, given back */
static void waits_changed(score_stats *s, bool changed)
{
    if (changed) {
        s->waits = pst_waits_any(s->waiting);
        write_wait_file(s);
        pst_metric_set(s->waiting_gauge, s->waits);
    }
    pthread_mutex_unlock(&s->wait_lock);
    if (changed)
        tell_now(s);
}

void score_stats_wait(score_stats *s, pst_waiter who, const char *what, const char *why)
{
    char text[WHY_BYTES_MAX];
    if (!what && !s->waits)
        return;
    put_text(text, sizeof text, what ? why : "");
    pthread_mutex_lock(&s->wait_lock);
    waits_changed(s, pst_waits_for(s->waiting, who, what, text));
}

void score_stats_wait_record(score_stats *s, const pst_record *r, const char *what, const char *why)
{
    char text[WHY_BYTES_MAX];
    put_text(text, sizeof text, why);
    pthread_mutex_lock(&s->wait_lock);
    waits_changed(s, pst_waits_record(s->waiting, r->topic, r->partition, r->offset, what, text));
}

void score_stats_used_record(score_stats *s, const pst_record *r)
{
    if (!s->waits)
        return;
    pthread_mutex_lock(&s->wait_lock);
    waits_changed(s, pst_waits_passed(s->waiting, r->topic, r->partition, r->offset));
}

void score_stats_wait_keep(score_stats *s, const pst_range *ours, size_t n)
{
    if (!s->waits)
        return;
    pthread_mutex_lock(&s->wait_lock);
    waits_changed(s, pst_waits_keep(s->waiting, ours, n));
}

void score_stats_waits_now(score_stats *s, char ret_what[32], pst_buf *ret_why)
{
    pthread_mutex_lock(&s->wait_lock);
    put_text(ret_what, 32, pst_waits_what(s->waiting));
    pst_waits_text(s->waiting, AND_FOR, ret_why);
    pthread_mutex_unlock(&s->wait_lock);
}

void score_stats_refused(score_stats *s, const char *name, int version, const char *why)
{
    char *text = name ? pst_sprintf("%s version %d is not used: %s", name, version, why) : NULL;
    pthread_mutex_lock(&s->wait_lock);
    bool changed = text || (*s->refused && (!version || version != s->refused_version));
    if (!changed)
        goto out;
    s->refused_version = text ? version : 0;
    put_text(s->refused, sizeof(s->refused), text ? text : "");
    write_wait_file(s);
out:
    pthread_mutex_unlock(&s->wait_lock);
    free(text);
    if (changed)
        tell_now(s);
}

typedef struct drift_gauge {
    pst_metric *metric;
    double psi; /* NaN = not of this model */
} drift_gauge;

void score_stats_drift(score_stats *s, const score_drift_value *at, size_t n, const char *worst)
{
    pthread_mutex_lock(&s->wait_lock);
    for (size_t i = 0; !n && i < s->drift.n; i++) {
        drift_gauge *g = s->drift.at[i].value;
        pst_metric_set(g->metric, g->psi = NAN);
    }
    for (size_t i = 0; i < n; i++) {
        drift_gauge *g = pst_map_get(&s->drift, at[i].name);
        if (!g) {
            g = pst_alloc(sizeof *g);
            g->metric = pst_metric_of(s->set, PST_METRIC_SCORER_DRIFT, s->pipeline, at[i].name, NULL);
            pst_map_put(&s->drift, at[i].name, g);
        }
        pst_metric_set(g->metric, g->psi = at[i].psi);
    }
    s->drift_told = n == 0;
    put_text(s->drift_worst, sizeof(s->drift_worst), worst);
    pthread_mutex_unlock(&s->wait_lock);
}

void score_stats_canary_stopped(score_stats *s, const char *why)
{
    pthread_mutex_lock(&s->wait_lock);
    put_text(s->canary_why, sizeof(s->canary_why), why);
    write_wait_file(s);
    pthread_mutex_unlock(&s->wait_lock);
    pst_metric_set(s->canary_stopped, 1);
    tell_now(s);
}

void score_stats_agreement(score_stats *s, const char *variant, int version, uint64_t equal, uint64_t different, uint64_t unjudged,
                           double difference)
{
    const struct {
        const char *name;
        uint64_t n;
    } results[] = {{"equal", equal}, {"different", different}, {"unjudged", unjudged}};
    char text[16];
    snprintf(text, sizeof(text), "%d", version);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].n)
            pst_metric_add(pst_metric_of(s->set, PST_METRIC_SCORER_COMPARED, s->pipeline, variant, text, results[i].name, NULL),
                           (double)results[i].n);
    pst_metric_add(pst_metric_of(s->set, PST_METRIC_SCORER_DIFFERENCE, s->pipeline, variant, text, NULL), difference);
    if (strcmp(variant, "SHADOW") != 0)
        return;
    s->compared += equal + different + unjudged;
    s->judged += equal + different;
    s->agreed += equal;
    pthread_mutex_lock(&s->wait_lock);
    s->difference += difference;
    pthread_mutex_unlock(&s->wait_lock);
}

/* A predecessor that was killed left its file behind. */
static void open_wait_file(score_stats *s, const pst_settings *settings)
{
    char *dir = pst_fs_join(settings->state_dir.value, "waits");
    if (pst_fs_mkdirs(dir, 0700, NULL) == 0) {
        char *name = pst_sprintf("%s.%d", s->pipeline, (int)getpid());
        s->wait_file = pst_fs_join(dir, name);
        free(name);
        unlink(s->wait_file);
    }
    free(dir);
}

void score_stats_dead_letter(score_stats *s, const char *stage, const char *reason)
{
    s->dead_letters++;
    pst_metric_add(pst_metric_of(s->set, PST_METRIC_SCORER_DEAD_LETTERS, s->pipeline, stage, reason, NULL), 1);
}

void score_stats_model(score_stats *s, const char *name, int version, const char *digest, const char *variant)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", version);
    if (!strcmp(variant, "PRIMARY")) {
        if (s->loaded)
            pst_metric_set(s->loaded, 0);
        s->loaded = pst_metric_of(s->set, PST_METRIC_SCORER_MODEL, s->pipeline, name, text, digest, NULL);
        pst_metric_set(s->loaded, 1);
        s->model_version = version;
        s->scored_total = pst_metric_of(s->set, PST_METRIC_SCORER_SCORED, s->pipeline, name, text, NULL);
    }
    pst_metric_add(s->swaps, 1);
}

static size_t latency_bucket(int64_t us)
{
    if (us < 8)
        return us < 0 ? 0 : (size_t)us;
    int top = 63 - __builtin_clzll((unsigned long long)us);
    size_t b = (size_t)(top - 2) * 8 + (size_t)((us >> (top - 3)) & 7);
    return b < PST_LATENCY_BUCKETS ? b : PST_LATENCY_BUCKETS - 1;
}

/* Upper edge of a bucket in microseconds. */
static double latency_edge(size_t b)
{
    return b < 8 ? (double)b : (double)((8 + b % 8 + 1) * (1ull << (b / 8 - 1)));
}

void score_stats_latency(score_stats *s, int64_t us, uint64_t n)
{
    s->latency[latency_bucket(us)] += n;
}

void score_stats_scores(score_stats *s, const pst_metric_spread *of)
{
    for (size_t i = 0; i < PST_METRIC_SPREAD; i++)
        if (of->n[i])
            s->scores[i] += of->n[i];
}

/* ---- points ---------------------------------------------------------------------------------------------------------------- */

static double quantile_ms(const uint64_t *counts, uint64_t total, double q)
{
    uint64_t want = (uint64_t)(q * (double)total), at = 0;
    for (size_t b = 0; b < PST_LATENCY_BUCKETS; b++) {
        at += counts[b];
        if (at > want || (at == total && at))
            return latency_edge(b) / 1000;
    }
    return 0;
}

/* Of the scores since the last point: what a tenth, half, nine tenths of them are not above, as finely as the buckets tell. */
static void fill_scores(score_stats *s, struct pst_stats_threads *t, pst_metric_point *m)
{
    static const struct {
        const char *name;
        double q;
    } told[] = {{"score_p10", 0.1}, {"score_p50", 0.5}, {"score_p90", 0.9}};
    pst_metric_spread now = {0};
    uint64_t n = 0;
    for (size_t i = 0; i < PST_METRIC_SPREAD; i++) {
        uint64_t c = s->scores[i];
        n += now.n[i] = c - t->seen_scores[i];
        t->seen_scores[i] = c;
    }
    for (size_t k = 0; n && k < sizeof told / sizeof *told; k++)
        pst_dbl_map_set(&m->values, &m->n_values, told[k].name, pst_metric_spread_quantile(&now, told[k].q));
}

/* How far behind, in time: as old as what is done is what comes next, at least. */
static double lag_seconds(const score_stats *s)
{
    if (s->lag < 0 || (s->lag && !s->newest_ms))
        return NAN;
    double behind = (double)(pst_now_us() / 1000 - s->newest_ms) / 1e3;
    return s->lag && behind > 0 ? behind : 0;
}

static void set_lag(score_stats *s)
{
    pst_metric_set(s->lag_gauge, s->lag < 0 ? NAN : (double)s->lag);
    pst_metric_set(s->lag_seconds, lag_seconds(s));
}

/* Of all since the start: a shadow is looked at over hours. */
static void fill_agreement(score_stats *s, pst_metric_point *m)
{
    uint64_t compared = s->compared, judged = s->judged;
    pthread_mutex_lock(&s->wait_lock);
    double difference = s->difference;
    bool stopped = *s->canary_why;
    pthread_mutex_unlock(&s->wait_lock);
    if (compared) {
        pst_dbl_map_set(&m->values, &m->n_values, "shadow_compared_total", (double)compared);
        pst_dbl_map_set(&m->values, &m->n_values, "shadow_difference_mean", difference / (double)compared);
    }
    if (judged)
        pst_dbl_map_set(&m->values, &m->n_values, "shadow_agreement", (double)s->agreed / (double)judged);
    if (stopped)
        pst_dbl_map_set(&m->values, &m->n_values, "canary_stopped", 1);
}

static void fill_values(score_stats *s, struct pst_stats_threads *t, pst_metric_point *m)
{
    int64_t now = pst_mono_us();
    uint64_t records = s->records, batches = s->batches, batch_records = s->batch_records, window[PST_LATENCY_BUCKETS], total = 0;
    for (size_t b = 0; b < PST_LATENCY_BUCKETS; b++) {
        uint64_t c = s->latency[b];
        window[b] = c - t->seen_latency[b];
        total += window[b];
        t->seen_latency[b] = c;
    }
    double seconds = (double)(now - t->seen_us) / 1e6;
    pst_dbl_map_set(&m->values, &m->n_values, "records_per_s", seconds > 0 ? (double)(records - t->seen_records) / seconds : 0);
    pst_dbl_map_set(&m->values, &m->n_values, "records_total", (double)records);
    pst_dbl_map_set(&m->values, &m->n_values, "scored_total", (double)s->scored);
    pst_dbl_map_set(&m->values, &m->n_values, "dead_letters_total", (double)s->dead_letters);
    pst_dbl_map_set(&m->values, &m->n_values, "above_threshold_total", (double)s->anomalies);
    if (s->lag >= 0) /* not known is not said */
        pst_dbl_map_set(&m->values, &m->n_values, "lag", (double)s->lag);
    if (!isnan(lag_seconds(s)))
        pst_dbl_map_set(&m->values, &m->n_values, "lag_seconds", lag_seconds(s));
    fill_scores(s, t, m);
    fill_agreement(s, m);
    if (total) {
        pst_dbl_map_set(&m->values, &m->n_values, "latency_p50_ms", quantile_ms(window, total, 0.50));
        pst_dbl_map_set(&m->values, &m->n_values, "latency_p99_ms", quantile_ms(window, total, 0.99));
    }
    if (batches > t->seen_batches)
        pst_dbl_map_set(&m->values, &m->n_values, "batch_size",
                        (double)(batch_records - t->seen_batch_records) / (double)(batches - t->seen_batches));
    pst_dbl_map_set(&m->values, &m->n_values, "model_version", s->model_version);
    pthread_mutex_lock(&s->wait_lock);
    pst_dbl_map_set(&m->values, &m->n_values, "waiting", s->waits || !s->ready);
    pst_dbl_map_set(&m->values, &m->n_values, "paused", !strcmp(pst_waits_what(s->waiting), PST_WAIT_PAUSED));
    pthread_mutex_unlock(&s->wait_lock);
    t->seen_records = records;
    t->seen_batches = batches;
    t->seen_batch_records = batch_records;
    t->seen_us = now;
}

static void send_event(struct pst_stats_threads *t, pst_producer *p, pst_topic topic, const pst_type *type, const char *key,
                       const void *event)
{
    pst_buf value = {0};
    pst_err err = {0};
    const char *name = pst_client_topic(t->client, topic);
    if (pst_codec_encode(t->client->codec, type, name, event, &value, &err) == 0)
        pst_producer_send(
            p, &(pst_out){.topic = name, .partition = -1, .key = key, .key_len = strlen(key), .value = value.data, .value_len = value.len},
            &err);
    if (err.code)
        pst_log(PST_LOG_DEBUG, "score", "event=metrics_dropped error=\"%s\"", err.text);
    pst_buf_done(&value);
}

/* A window makes one point, in a group of its own: feature → PSI. */
static void send_drift(score_stats *s, pst_producer *p)
{
    struct pst_stats_threads *t = s->threads;
    pst_metric_point m = {.generation = t->generation, .time = pst_now_us(), .has_step = true, .step = (int64_t)s->records};
    pthread_mutex_lock(&s->wait_lock);
    bool news = !s->drift_told;
    for (size_t i = 0; news && i < s->drift.n; i++) {
        const drift_gauge *g = s->drift.at[i].value;
        if (s->drift.at[i].key && !isnan(g->psi))
            pst_dbl_map_set(&m.values, &m.n_values, s->drift.at[i].key, g->psi);
    }
    s->drift_told = true;
    pthread_mutex_unlock(&s->wait_lock);
    if (!m.n_values)
        return;
    m.rindex = t->rindex++;
    m.training_id = pst_sprintf("pipeline:%s", s->pipeline);
    m.process = pst_strdup(t->worker_id);
    m.group = pst_strdup("drift");
    send_event(t, p, PST_TOPIC_METRICS, &pst_metric_point_type, m.training_id, &m);
    pst_event_clear(&pst_metric_point_type, &m);
}

static void send_point(score_stats *s, pst_producer *p)
{
    struct pst_stats_threads *t = s->threads;
    pst_metric_point m = {.training_id = pst_sprintf("pipeline:%s", s->pipeline),
                          .generation = t->generation,
                          .process = pst_strdup(t->worker_id),
                          .rindex = t->rindex++,
                          .time = pst_now_us(),
                          .group = pst_strdup("scorer"),
                          .has_step = true,
                          .step = (int64_t)s->records};
    fill_values(s, t, &m);
    send_event(t, p, PST_TOPIC_METRICS, &pst_metric_point_type, m.training_id, &m);
    pst_event_clear(&pst_metric_point_type, &m);
    send_drift(s, p);
}

/* state NULL: found from what the scorer does now; else the last word of one that ends. */
static void send_heartbeat(score_stats *s, pst_producer *p, const char *state)
{
    struct pst_stats_threads *t = s->threads;
    char version[16];
    snprintf(version, sizeof(version), "%d", s->model_version);
    pst_worker_state w = {.worker_id = pst_strdup(t->worker_id),
                          .kind = pst_strdup("scorer"),
                          .site = pst_strdup("local"),
                          .host = pst_strdup(t->host),
                          .time = pst_now_us(),
                          .cpus = 1,
                          .version = pst_strdup(PST_VERSION)};
    pst_str_map_set(&w.details, &w.n_details, "pipeline", s->pipeline);
    pst_str_map_set(&w.details, &w.n_details, "model_version", version);
    char what[32];
    pst_buf why = {0};
    score_stats_waits_now(s, what, &why);
    if (!state && !strcmp(what, PST_WAIT_PAUSED))
        state = "paused";
    else if (!state)
        state = *what || !s->ready ? "waiting" : "running";
    w.state = pst_strdup(state);
    if (*what) {
        pst_str_map_set(&w.details, &w.n_details, "waits_for", what);
        pst_str_map_set(&w.details, &w.n_details, "why", why.data);
    }
    pst_buf_done(&why);
    if (*t->device_event)
        pst_str_map_set(&w.details, &w.n_details, "device_event", t->device_event);
    pthread_mutex_lock(&s->wait_lock);
    if (*s->refused)
        pst_str_map_set(&w.details, &w.n_details, "model_refused", s->refused);
    if (*s->canary_why)
        pst_str_map_set(&w.details, &w.n_details, "canary_stopped", s->canary_why);
    if (*s->drift_worst)
        pst_str_map_set(&w.details, &w.n_details, "drift", s->drift_worst);
    pthread_mutex_unlock(&s->wait_lock);
    send_event(t, p, PST_TOPIC_WORKERS, &pst_worker_state_type, t->worker_id, &w);
    pst_event_clear(&pst_worker_state_type, &w);
}

/* Waits for the next second; true when it is time to end. */
static bool wait_second(struct pst_stats_threads *t, bool *ret_changed)
{
    struct timespec until = pst_mono_at(pst_mono_us() + POINT_EVERY_US);
    pthread_mutex_lock(&t->lock);
    if (!t->stop && !t->changed)
        pthread_cond_timedwait(&t->wake, &t->lock, &until);
    bool stop = t->stop;
    *ret_changed = t->changed;
    t->changed = false;
    pthread_mutex_unlock(&t->lock);
    return stop;
}

static void *run(void *arg)
{
    score_stats *s = arg;
    struct pst_stats_threads *t = s->threads;
    pst_producer *p = NULL;
    pst_err err = {0};
    if (pst_producer_new(t->client->bus, &(pst_producer_opts){.linger_ms = 50}, &p, &err) < 0) {
        pst_log_err("score", &err);
        return NULL;
    }
    t->seen_us = pst_mono_us();
    bool stop = false, changed = true;
    for (unsigned tick = 0; !stop; tick++) {
        if (changed || tick % HEARTBEAT_EVERY == 0)
            send_heartbeat(s, p, NULL);
        stop = wait_second(t, &changed);
        set_lag(s);
        changed |= score_device_events(s->set, s->pipeline, t->device_event, sizeof t->device_event);
        if (stop || changed || s->records != t->seen_records || tick % IDLE_POINT_EVERY == 0)
            send_point(s, p);
        pst_producer_poll(p, 0);
    }
    send_heartbeat(s, p, "stopped");
    pst_producer_flush(p, 2000, NULL);
    pst_producer_free(p);
    return NULL;
}

/* ---- HTTP ------------------------------------------------------------------------------------------------------------------ */

static void show_metrics(void *arg, pst_http_req *req)
{
    score_stats *s = arg;
    set_lag(s);
    pst_http_reply_metrics(req, s->set);
}

static void show_alive(void *arg, pst_http_req *req)
{
    pst_http_reply_text(req, 200, "ok\n");
}

static void show_ready(void *arg, pst_http_req *req)
{
    score_stats *s = arg;
    char what[32];
    pst_buf why = {0};
    score_stats_waits_now(s, what, &why);
    bool ready = s->ready;
    if (*what)
        pst_http_reply_text(req, 503, "waiting for %s: %s\n", what, why.data);
    else
        pst_http_reply_text(req, ready ? 200 : 503, ready ? "ready\n" : "waiting for the broker\n");
    pst_buf_done(&why);
}

static void show_state(void *arg, pst_http_req *req)
{
    score_stats *s = arg;
    if (!s->dump)
        pst_http_problem(req, 404, "no-state", NULL, "this scorer does not tell its state");
    else if (pst_http_asks_token(req, s->threads->token_path))
        pst_http_reply_dump(req, pst_dump_ask(s->dump, STATE_MS));
}

static const pst_http_route routes[] = {
    {"GET", "/metrics", show_metrics, 0, 0, "Prometheus text."},
    {"GET", "/healthz", show_alive, 0, 0, "200 while it runs."},
    {"GET", "/health", show_alive, 0, 0, "The same."},
    {"GET", "/readyz", show_ready, 0, 0, "200 while it scores; 503 and what it waits for."},
    {"GET", "/state", show_state, 0, 0,
     "What the scorer holds at this moment, for who shows the token; 503 when its loop does not come round."}};
const pst_http_routes pst_stats_routes = {routes, sizeof routes / sizeof *routes};

static int listen_on(score_stats *s, const char *listen, pst_err *err)
{
    char host[PST_HTTP_HOST_MAX];
    int port;
    if (pst_http_listen_parse("metrics-listen", listen, host, &port, err) < 0)
        return err->code;
    pst_http_conf conf = {.listen = host, .port = port, .name = "score"};
    return pst_http_thread_start(&conf, routes, sizeof(routes) / sizeof(routes[0]), s, &s->threads->http, err);
}

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

int score_stats_start(score_stats *s, const pst_settings *settings, const char *worker_id, const char *listen, pst_err *err)
{
    struct pst_stats_threads *t = s->threads = pst_alloc(sizeof(*t));
    t->worker_id = pst_strdup(worker_id);
    t->token_path = pst_token_path(settings->state_dir.value);
    t->generation = (int)(pst_now_us() / 1000000);
    if (gethostname(t->host, sizeof(t->host) - 1))
        snprintf(t->host, sizeof(t->host), "localhost");
    pthread_mutex_init(&t->lock, NULL);
    pst_cond_init(&t->wake);
    open_wait_file(s, settings);
    int rc = listen ? listen_on(s, listen, err) : 0;
    if (rc == 0)
        rc = pst_client_open(settings, "penstock-score-metrics", &t->client, err);
    if (rc == 0 && pst_thread_start(&t->thread, "score-metrics", run, s))
        rc = pst_err_set(err, PST_EIO, PST_CLASS_FATAL, "sys", 0, "cannot start the thread that publishes metrics");
    t->started = rc == 0;
    if (rc < 0)
        score_stats_stop(s);
    return rc;
}

int score_stats_port(const score_stats *s)
{
    return s->threads && s->threads->http ? pst_http_thread_port(s->threads->http) : 0;
}

void score_stats_stop(score_stats *s)
{
    struct pst_stats_threads *t = s->threads;
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    if (t->started)
        pthread_join(t->thread, NULL);
    if (s->wait_file)
        unlink(s->wait_file);
    pst_http_thread_stop(t->http);
    pst_client_close(t->client);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
    free(t->worker_id);
    free(t->token_path);
    free(t);
    s->threads = NULL;
}
