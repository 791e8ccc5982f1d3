/* demo_watch.c - the scores that the demonstration shows. Its numbers come from the topics, as any other consumer would see them. */
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/stop.h"
#include "common/base/term.h"
#include "deploy/local/demo.h"
#include "common/bus/bus.h"
#include "common/platform/client.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- scores ---- */

enum { LATENCIES_MAX = 200000 };

typedef struct tally {
    double *latency_ms;
    size_t n, cap;
    double sum, max;
    local_score_stats last;
} tally;

struct local_score_watch {
    pst_client *client;
    pst_consumer *consumer;
    tally total;
};

int local_score_watch_new(pst_client *c, const char *topic, local_score_watch **ret_watch, pst_err *err)
{
    local_score_watch *w = pst_alloc(sizeof *w);
    w->client = c;
    pst_topic_info info = {0};
    pst_range ranges[64];
    int rc = pst_admin_topic(c->bus, topic, &info, 10000, err), n = 0;
    for (; !rc && n < info.partitions && n < 64; n++)
        ranges[n] = (pst_range){topic, n, info.high[n], -1};
    if (!rc)
        rc = pst_consumer_new(c->bus, &(pst_consumer_opts){.ranges = ranges, .n_ranges = (size_t)n}, &w->consumer, err);
    pst_topic_info_done(&info);
    if (rc < 0)
        local_score_watch_free(w);
    else
        *ret_watch = w;
    return rc;
}

void local_score_watch_free(local_score_watch *w)
{
    if (!w)
        return;
    pst_consumer_free(w->consumer);
    free(w->total.latency_ms);
    free(w);
}

static void count(tally *t, double score, double latency_ms)
{
    if (t->n >= LATENCIES_MAX)
        return;
    t->latency_ms = pst_array_room(t->latency_ms, t->n, &t->cap, sizeof(double));
    t->latency_ms[t->n++] = latency_ms;
    t->sum += score;
    if (t->n == 1 || score > t->max)
        t->max = score;
}

static void one_score(local_score_watch *w, tally *t, const pst_record *r)
{
    json_t *j = NULL;
    int32_t id;
    if (!r->value || pst_codec_to_json(w->client->codec, r->value, r->value_len, &j, &id, NULL) < 0)
        return;
    const json_t *model = json_object_get(j, "model"), *source = json_object_get(j, "source");
    double score = json_number_value(json_array_get(json_object_get(j, "score"), 0));
    double latency_ms = (double)(pst_now_us() - pst_json_int(source, "timestamp", r->timestamp_ms * 1000)) / 1e3;
    if (isfinite(score)) {
        count(t, score, latency_ms);
        count(&w->total, score, latency_ms);
    }
    local_score_stats *s = &t->last;
    s->model_version = (int)pst_json_int(model, "version", 0);
    snprintf(s->model_name, sizeof s->model_name, "%s", pst_json_str(model, "name", ""));
    snprintf(s->digest, sizeof s->digest, "%s", pst_json_str(model, "digest", ""));
    w->total.last = *s;
    json_decref(j);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void summarise(const tally *t, local_score_stats *ret)
{
    *ret = t->last;
    ret->records = (int64_t)t->n;
    ret->mean = t->n ? t->sum / (double)t->n : 0;
    ret->max = t->max;
    if (!t->n)
        return;
    double *sorted = pst_alloc(t->n * sizeof *sorted);
    memcpy(sorted, t->latency_ms, t->n * sizeof *sorted);
    qsort(sorted, t->n, sizeof *sorted, by_value);
    ret->p50_ms = sorted[(size_t)(0.50 * (double)(t->n - 1))];
    ret->p99_ms = sorted[(size_t)(0.99 * (double)(t->n - 1))];
    free(sorted);
}

int local_score_watch_for(local_score_watch *w, int64_t duration_us, int64_t until, local_score_stats *ret_stats, pst_err *err)
{
    tally t = {0};
    int rc = 0;
    for (int64_t end = pst_mono_us() + duration_us; !rc && pst_mono_us() < end && (!until || (int64_t)t.n < until);) {
        pst_batch b;
        rc = pst_stop_requested() ? pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "demo", 0, "stopped")
                                  : pst_consumer_poll(w->consumer, &(pst_poll){.records_max = 1000, .timeout_ms = 50}, &b, err);
        for (size_t i = 0; !rc && i < b.n; i++)
            one_score(w, &t, &b.records[i]);
    }
    summarise(&t, ret_stats);
    free(t.latency_ms);
    return rc;
}

void local_score_watch_total(const local_score_watch *w, local_score_stats *ret_stats)
{
    summarise(&w->total, ret_stats);
}

/* ---- one job ---- */

typedef struct follow {
    pst_client *c;
    const char *id;
    local_job_outcome *o;
    int64_t published_us;
    bool color, ended;
} follow;

static double value_of(const pst_metric_point *m, const char *name, double def)
{
    for (size_t i = 0; i < m->n_values; i++)
        if (!strcmp(m->values[i].key, name))
            return m->values[i].value;
    return def;
}

static void metric(follow *f, const pst_record *r)
{
    pst_metric_point m;
    if (pst_codec_decode(f->c->codec, &pst_metric_point_type, r->value, r->value_len, r->timestamp_ms, &m, NULL) < 0)
        return;
    double loss = value_of(&m, "loss", NAN);
    if (!strcmp(m.group, "train") && isfinite(loss)) {
        local_job_outcome *o = f->o;
        o->epochs++;
        if (o->epochs == 1)
            o->first_loss = loss;
        o->last_loss = loss;
        int bars = (int)lrint(20 * fmin(1, loss / (o->first_loss > 0 ? o->first_loss : 1)));
        char bar[20 * 3 + 1] = "";
        for (int i = 0; i < bars; i++)
            memcpy(bar + 3 * i, "█", 4);
        if (o->epochs <= 3 || o->epochs % 5 == 0)
            printf("      epoch %-3.0f loss %-9.5f %s%s%s\n", m.has_epoch ? m.epoch : o->epochs, loss, f->color ? pst_tint(36) : "", bar,
                   f->color ? pst_tint(0) : "");
        fflush(stdout);
    } else if (!strcmp(m.group, "validation") && isfinite(loss))
        f->o->last_validation = loss;
    pst_event_clear(&pst_metric_point_type, &m);
}

static void event(follow *f, const pst_record *r)
{
    pst_job_event e;
    if (pst_codec_decode(f->c->codec, &pst_job_event_type, r->value, r->value_len, r->timestamp_ms, &e, NULL) < 0)
        return;
    local_job_outcome *o = f->o;
    snprintf(o->state, sizeof o->state, "%s", pst_job_public_state_text(e.state));
    if (e.type == PST_JOB_EVENT_TYPE_PROCESS_READY && !o->running_us)
        o->running_us = e.time - f->published_us;
    if (e.type == PST_JOB_EVENT_TYPE_RESULT_STORED) {
        const char *version = pst_str_map_get(e.details, e.n_details, "version"), *name = pst_str_map_get(e.details, e.n_details, "model");
        o->model_version = version ? atoi(version) : 0;
        snprintf(o->model_name, sizeof o->model_name, "%s", name ? name : "");
        const char *digest = pst_str_map_get(e.details, e.n_details, "digest");
        snprintf(o->digest, sizeof o->digest, "%s", digest ? digest : "");
    }
    if (e.reason)
        snprintf(o->reason, sizeof o->reason, "%s", e.reason);
    f->ended = e.type == PST_JOB_EVENT_TYPE_REJECTED || e.state == PST_JOB_PUBLIC_STATE_COMPLETED ||
               e.state == PST_JOB_PUBLIC_STATE_FAILED || e.state == PST_JOB_PUBLIC_STATE_HALTED ||
               e.state == PST_JOB_PUBLIC_STATE_TERMINATED;
    pst_event_clear(&pst_job_event_type, &e);
}

int local_demo_follow(pst_client *c, const char *training_id, int64_t published_us, int64_t timeout_us, bool color,
                      local_job_outcome *ret_outcome, pst_err *err)
{
    memset(ret_outcome, 0, sizeof *ret_outcome);
    follow f = {c, training_id, ret_outcome, published_us, color, false};
    const char *topics[] = {pst_client_topic(c, PST_TOPIC_JOBS_EVENTS), pst_client_topic(c, PST_TOPIC_METRICS)};
    pst_consumer *consumer = NULL;
    int rc = pst_consumer_new(c->bus, &(pst_consumer_opts){.topics = topics, .n_topics = 2, .start = PST_START_EARLIEST}, &consumer, err);
    int64_t end = pst_mono_us() + timeout_us, quiet_until = 0;
    while (!rc && (!f.ended || pst_mono_us() < quiet_until)) {
        pst_batch b;
        if (pst_stop_requested())
            rc = pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "demo", 0, "stopped");
        else if (pst_mono_us() > end)
            rc = pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_FATAL, "demo", 0, "%s has not ended in time; it is %s: %s", training_id,
                             *ret_outcome->state ? ret_outcome->state : "not seen yet", ret_outcome->reason);
        else
            rc = pst_consumer_poll(consumer, &(pst_poll){.records_max = 500, .timeout_ms = 50}, &b, err);
        for (size_t i = 0; !rc && i < b.n; i++) {
            const pst_record *r = &b.records[i];
            if (!r->value || r->key_len != strlen(training_id) || memcmp(r->key, training_id, r->key_len))
                continue;
            if (!strcmp(r->topic, topics[0])) {
                event(&f, r);
                if (f.ended) /* the last metric events may still be on their way */
                    quiet_until = pst_mono_us() + 500000;
            } else
                metric(&f, r);
        }
    }
    pst_consumer_free(consumer);
    return rc;
}
