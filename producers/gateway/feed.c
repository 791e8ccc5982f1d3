/* feed.c - what streams and the page show, out of Kafka: one consumer without a group reads the platform's topics from a little before their ends (so that a page that opens
 * shows something) and hands each record, as JSON, to the loop's thread. A full queue pauses the reading, it never grows. */
#include "producers/gateway/gateway.h"
#include "producers/gateway/owners.h"

#include "common/base/retry.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/base/thread.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "schemas/topics.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANGES_MAX = 512, TAIL_RECORDS = 300, LARGE_BYTES = 128 << 10, RETRY_MS = 1000, PING_MS = 2000 };

static const struct {
    pst_topic topic;
    const char *kind;
} sources[] = {{PST_TOPIC_JOBS_EVENTS, "event"}, {PST_TOPIC_LOGS, "log"},     {PST_TOPIC_METRICS, "metric"},
               {PST_TOPIC_JOBS_STATE, "state"},  {PST_TOPIC_MODELS, "model"}, {PST_TOPIC_PIPELINES, "pipeline"},
               {PST_TOPIC_WORKERS, "worker"}};
enum { N_SOURCES = sizeof sources / sizeof *sources };

const char *gw_feed_kind(size_t i, const char **ret_topic)
{
    if (i >= N_SOURCES)
        return NULL;
    *ret_topic = pst_topic_get(sources[i].topic)->suffix;
    return sources[i].kind;
}

struct gw_feed {
    gw_state *g;
    pthread_t thread;
    _Atomic bool stop;
    _Atomic int64_t lag;
    _Atomic int64_t records, polled_us; /* taken so far; when it last came back from Kafka (pst_mono_us) */
    bool away;                          /* what the hub was told last */
    int64_t asked_us;                   /* when Kafka was asked last whether it is there (pst_mono_us) */
};

typedef struct post {
    gw_state *g;
    const char *kind;
    char *key, *id, *json, *owner; /* json NULL: too large to be taken apart; owner NULL: it proves none */
    size_t len;
} post;

static void post_free(post *p)
{
    free(p->key);
    free(p->id);
    free(p->json);
    free(p->owner);
    free(p);
}

/* @thread loop */
static void deliver(void *arg)
{
    post *p = arg;
    if (p->owner)
        gw_owners_learn(p->g->owners, p->key, p->owner);
    gw_hub_send(p->g->hub, p->kind, p->key, p->id, p->json, p->json ? strlen(p->json) : p->len);
    post_free(p);
}

bool gw_post(gw_state *g, void (*fn)(void *arg), void *arg, const _Atomic bool *stop)
{
    PST_ASSERT(!pst_loop_is_current(g->loop)); /* it would wait for itself */
    while (pst_loop_post(g->loop, fn, arg) < 0) {
        if (stop && *stop)
            return false;
        pst_sleep_ms(10);
    }
    return true;
}

static const char *kind_of(const gw_feed *f, const char *topic)
{
    for (size_t i = 0; i < N_SOURCES; i++)
        if (!strcmp(pst_client_topic(f->g->client, sources[i].topic), topic))
            return sources[i].kind;
    return "other";
}

/* Of a state: not what the page does not show and should not carry. Of heartbeats: those of scorers, and what they say of their pipeline.
 * Returns false when nothing is left. */
static bool reduce(const char *kind, json_t *j)
{
    if (!strcmp(kind, "state")) {
        json_object_del(j, "manifest");
        json_object_del(j, "requests");
        return true;
    }
    if (strcmp(kind, "worker") != 0)
        return true;
    static const char *const shown[] = {"worker_id", "kind", "time", "state", "version", "details"};
    const char *key;
    json_t *v;
    void *next;
    json_object_foreach_safe(j, next, key, v)
    {
        bool keep = false;
        for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
            keep |= !strcmp(key, shown[i]);
        if (!keep)
            json_object_del(j, key);
    }
    return !strcmp(pst_json_str(j, "kind", ""), "scorer");
}

/* @thread loop */
static void deliver_place(void *arg)
{
    post *p = arg;
    gw_hub_pass(p->g->hub, p->id);
    post_free(p);
}

/* Streams do not show it; where they stand moves on all the same. */
static void pass(gw_feed *f, const pst_record *r)
{
    post *p = pst_alloc(sizeof *p);
    *p = (post){.g = f->g, .id = pst_sprintf("%s/%d/%lld", r->topic, r->partition, (long long)r->offset)};
    if (!gw_post(f->g, deliver_place, p, &f->stop))
        post_free(p);
}

typedef struct beginning {
    gw_hub *hub;
    gw_places from;
} beginning;

static void beginning_free(beginning *b)
{
    gw_places_done(&b->from);
    free(b);
}

/* @thread loop */
static void begin(void *arg)
{
    beginning *b = arg;
    gw_hub_begin(b->hub, &b->from);
    beginning_free(b);
}

static void hand_over(gw_feed *f, const pst_record *r)
{
    json_t *j = NULL;
    int32_t id;
    pst_err err = {0};
    int rc = !r->value ? 0 : pst_codec_to_json_within(f->g->client->codec, r->value, r->value_len, PST_GATEWAY_RECORD_ROOM, &j, &id, &err);
    if (rc < 0 && rc != PST_ELIMIT) {
        pst_log(PST_LOG_DEBUG, "gateway", "event=undecodable topic=%s partition=%d offset=%lld reason=\"%s\"", r->topic, r->partition,
                (long long)r->offset, err.text);
        pass(f, r);
        return;
    }
    const char *kind = kind_of(f, r->topic);
    if (json_is_object(j) ? !reduce(kind, j) : !strcmp(kind, "worker") && rc != PST_ELIMIT) {
        json_decref(j);
        pass(f, r);
        return;
    }
    post *p = pst_alloc(sizeof *p);
    *p = (post){.g = f->g,
                .kind = kind,
                .key = pst_strndup(r->key ? r->key : "", r->key ? r->key_len : 0),
                .id = pst_sprintf("%s/%d/%lld", r->topic, r->partition, (long long)r->offset),
                .len = r->value_len,
                .owner = json_is_object(j) ? gw_owner_of_record(kind, j) : NULL,
                .json = rc == PST_ELIMIT ? NULL
                        : j              ? pst_json_text(j)
                                         : pst_strdup("null")};
    json_decref(j);
    if (rc == PST_ELIMIT || r->value_len > LARGE_BYTES) /* what its parts took is given back at once */
        malloc_trim(0);
    if (!gw_post(f->g, deliver, p, &f->stop))
        post_free(p);
}

typedef struct word {
    gw_hub *hub;
    char *away;
} word;

/* @thread loop */
static void pass_on(void *arg)
{
    word *w = arg;
    gw_hub_kafka(w->hub, w->away);
    free(w->away);
    free(w);
}

/* Who watches is told that nothing comes because nothing can: why NULL = it does. */
static void tell(gw_feed *f, const char *why)
{
    if (!why && !f->away)
        return;
    f->away = why != NULL;
    word *w = pst_alloc(sizeof *w);
    *w = (word){f->g->hub, pst_strdup(why)};
    if (!gw_post(f->g, pass_on, w, &f->stop)) {
        free(w->away);
        free(w);
    }
}

/* An outage is no error of a poll, and its end is seen there only when records come: where one is in sight, Kafka itself is asked, now and then. One
 * broker of several that is away is none. */
static void look(gw_feed *f, const pst_batch *b, bool complaint)
{
    if (b->n) {
        tell(f, NULL);
        return;
    }
    if ((!complaint && !f->away) || pst_mono_us() - f->asked_us < PING_MS * 1000LL)
        return;
    pst_err err = {0};
    char *cluster = NULL;
    int brokers = 0;
    bool answers = pst_admin_ping(f->g->client->bus, PING_MS, &cluster, &brokers, &err) >= 0;
    tell(f, answers ? NULL : err.text);
    free(cluster);
    f->asked_us = pst_mono_us();
}

static int open_consumer(gw_feed *f, pst_consumer **ret_consumer, pst_err *err)
{
    pst_range ranges[RANGES_MAX];
    size_t n = 0;
    pst_client *c = f->g->client;
    beginning *b = pst_alloc(sizeof *b);
    b->hub = f->g->hub;
    for (size_t i = 0; i < N_SOURCES; i++) {
        pst_topic_info info = {0};
        const char *topic = pst_client_topic(c, sources[i].topic);
        int rc = pst_admin_topic(c->bus, topic, &info, 10000, err);
        if (rc < 0) {
            beginning_free(b);
            return rc;
        }
        for (int p = 0; p < info.partitions && n < RANGES_MAX; p++) {
            int64_t from = info.high[p] - TAIL_RECORDS > info.low[p] ? info.high[p] - TAIL_RECORDS : info.low[p];
            ranges[n++] = (pst_range){topic, p, from, -1};
            gw_place *place = gw_places_put(&b->from, topic, p);
            place->from = from;
            place->high = info.high[p];
            place->kind = sources[i].kind;
        }
        pst_topic_info_done(&info);
    }
    int rc = pst_consumer_new(c->bus, &(pst_consumer_opts){.ranges = ranges, .n_ranges = n}, ret_consumer, err);
    if (rc < 0 || !gw_post(f->g, begin, b, &f->stop)) /* before the first record: the loop takes them in this order */
        beginning_free(b);
    return rc;
}

static bool stopped(void *arg)
{
    const gw_feed *f = arg;
    return f->stop;
}

static void *run(void *arg)
{
    gw_feed *f = arg;
    pst_consumer *c = NULL;
    while (!f->stop) {
        pst_err err = {0};
        if (!c && open_consumer(f, &c, &err) < 0) { /* topics or broker not there yet: ask again */
            pst_log_err("gateway", &err);
            tell(f, err.text);
            pst_retry_pause(RETRY_MS, stopped, f);
            continue;
        }
        pst_batch b;
        if (pst_consumer_poll(c, &(pst_poll){.records_max = 500, .timeout_ms = 100}, &b, &err) < 0) {
            pst_log_err("gateway", &err);
            tell(f, err.text);
            pst_consumer_free(c);
            c = NULL;
            pst_retry_pause(RETRY_MS, stopped, f);
            continue;
        }
        for (size_t i = 0; i < b.n && !f->stop; i++)
            hand_over(f, &b.records[i]);
        look(f, &b, err.code != 0);
        f->lag = pst_consumer_lag(c);
        f->records += (int64_t)b.n;
        f->polled_us = pst_mono_us();
    }
    pst_consumer_free(c);
    return NULL;
}

int gw_feed_start(gw_state *g, gw_feed **ret_feed, pst_err *err)
{
    gw_feed *f = pst_alloc(sizeof *f);
    f->g = g;
    f->lag = -1;
    int rc = pst_thread_start(&f->thread, "gateway-feed", run, f);
    if (rc) {
        free(f);
        return pst_err_sys(err, rc, "cannot start the feed thread");
    }
    *ret_feed = f;
    return 0;
}

json_t *gw_feed_lag(const gw_feed *f)
{
    int64_t lag = f ? f->lag : -1;
    return lag >= 0 ? json_integer(lag) : json_null();
}

void gw_feed_dump(const gw_feed *f, json_t *to)
{
    int64_t polled = f ? f->polled_us : 0;
    json_object_set_new(to, "feed",
                        json_pack("{s:o, s:I, s:f}", "lag", gw_feed_lag(f), "records", (json_int_t)(f ? f->records : 0), "polled_s_ago",
                                  polled ? (double)(pst_mono_us() - polled) / 1e6 : -1.0));
}

void gw_feed_stop(gw_feed *f)
{
    if (!f)
        return;
    f->stop = true;
    pthread_join(f->thread, NULL);
    free(f);
}
