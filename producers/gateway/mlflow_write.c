/* mlflow_write.c - what a request says, as records: facts to `tracking`, points to `metrics`. The request is answered when the broker has all of them and the
 * view has read the last fact: who is told that something was logged finds it from then on, whichever connection asks, and a gateway that is killed after
 * the answer has lost nothing. Facts say what is, not what changes, so a request that was cut in the middle may be sent again as it is.
 * @thread loop */
#include "producers/gateway/mlflow.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"

#include <stdlib.h>
#include <string.h>

enum { POLL_US = 2000, RECORDS_MAX = 20000, SEEN_US = 10 * 1000000, END_MS = 5000 };

typedef struct item {
    pst_topic topic;
    char *key;
    pst_buf value;
    bool tombstone;
} item;

struct gw_facts {
    gw_state *g;
    pst_http_req *req;
    char *actor, *id;
    int64_t now_us;
    item *items;
    size_t n, cap, under_way;
    bool opened; /* all of them were handed to the producer, or refused */
    int64_t offset, models_offset, until_us;
    pst_err err;
    gw_facts_written written;
    bool (*until)(const gw_tracking *t, const char *id);
    gw_facts *next; /* of those that wait for the view */
};

typedef struct gw_outbox {
    gw_state *g;
    pst_producer *producer;
    pst_timer *timer;
    size_t under_way;
    gw_facts *waiting; /* for the view */
} gw_outbox;

/* ---- making ---------------------------------------------------------------------------------------------------------------- */

char *gw_mlflow_actor(const pst_http_req *req)
{
    char *name = gw_who_name(req);
    return name ? name : pst_strdup("");
}

gw_facts *gw_facts_new(gw_state *g, pst_http_req *req)
{
    gw_facts *f = pst_alloc(sizeof *f);
    *f = (gw_facts){.g = g, .req = req, .actor = gw_mlflow_actor(req), .now_us = pst_now_us(), .offset = -1, .models_offset = -1};
    return f;
}

void gw_facts_drop(gw_facts *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->items[i].key);
        pst_buf_done(&f->items[i].value);
    }
    free(f->items);
    free(f->actor);
    free(f->id);
    free(f);
}

static item *one_more(gw_facts *f, pst_topic topic, char *take_key)
{
    f->items = pst_array_room(f->items, f->n, &f->cap, sizeof *f->items);
    f->items[f->n] = (item){.topic = topic, .key = take_key};
    return &f->items[f->n++];
}

static void encode(gw_facts *f, item *i, const pst_type *type, const void *event)
{
    pst_client *c = f->g->client;
    if (!f->err.code)
        pst_codec_encode(c->codec, type, pst_client_topic(c, i->topic), event, &i->value, &f->err);
}

static char *key_of(const char *subject, pst_tracking_kind kind, const char *name)
{
    return pst_sprintf("%s/%s/%s", subject, pst_tracking_kind_text(kind), name);
}

void gw_facts_add(gw_facts *f, pst_tracking_record e)
{
    /* What was not set is said, not left out: the generated texts are never NULL. */
    char **texts[] = {&e.name, &e.value, &e.experiment_id, &e.sha256};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!*texts[i])
            *texts[i] = (char *)"";
    e.actor = f->actor;
    e.time = f->now_us;
    encode(f, one_more(f, PST_TOPIC_TRACKING, key_of(e.subject, e.kind, e.name)), &pst_tracking_record_type, &e);
}

void gw_facts_tag(gw_facts *f, const char *subject, const char *key, const char *value)
{
    gw_facts_add(
        f, (pst_tracking_record){.subject = (char *)subject, .kind = PST_TRACKING_KIND_TAG, .name = (char *)key, .value = (char *)value});
}

void gw_facts_remove(gw_facts *f, const char *subject, pst_tracking_kind kind, const char *name)
{
    one_more(f, PST_TOPIC_TRACKING, key_of(subject, kind, name))->tombstone = true;
}

void gw_facts_point(gw_facts *f, const pst_metric_point *p)
{
    encode(f, one_more(f, PST_TOPIC_METRICS, pst_strdup(p->training_id)), &pst_metric_point_type, p);
}

/* ---- sending --------------------------------------------------------------------------------------------------------------- */

static void answer(gw_facts *f)
{
    if (f->err.code) {
        pst_metric_add(f->g->refused, 1);
        gw_mlflow_fail_err(f->req, &f->err);
    } else {
        pst_metric_add(f->g->submitted, f->n);
        if (f->written)
            f->written(f->g, f->req, f->id);
        else
            gw_mlflow_reply(f->req, json_object());
    }
    gw_facts_drop(f);
}

void gw_facts_until(gw_facts *f, bool (*fn)(const gw_tracking *t, const char *id))
{
    f->until = fn;
}

void gw_facts_after(gw_facts *f, int64_t models_offset)
{
    f->models_offset = models_offset;
}

static bool is_seen(const gw_facts *f)
{
    bool seen = (f->offset < 0 || gw_mlflow_has(f->g, PST_TOPIC_TRACKING, f->offset)) &&
                (f->models_offset < 0 || gw_mlflow_has(f->g, PST_TOPIC_MODELS, f->models_offset));
    if (seen && f->until) {
        seen = f->until(gw_mlflow_lock_again(f->g), f->id);
        gw_mlflow_unlock(f->g);
    }
    return seen;
}

/* All of it has its fate. */
static void published(gw_outbox *o, gw_facts *f)
{
    if (f->err.code || is_seen(f)) {
        answer(f);
        return;
    }
    f->until_us = pst_mono_us() + SEEN_US;
    f->next = o->waiting;
    o->waiting = f;
    gw_mlflow_watch(f->g, true);
}

void gw_facts_wake(gw_state *g)
{
    gw_outbox *o = g->mlflow_outbox;
    int64_t now = pst_mono_us();
    gw_facts *ready = NULL;
    for (gw_facts **at = o ? &o->waiting : NULL; at && *at;) {
        gw_facts *f = *at;
        bool seen = is_seen(f);
        if (!seen && now < f->until_us) {
            at = &f->next;
            continue;
        }
        if (!seen)
            pst_err_set(&f->err, PST_ETIMEDOUT, PST_CLASS_RETRY, "gateway", 0,
                        "it is written (offset %lld), and could not be read back within 10 s; ask again", (long long)f->offset);
        *at = f->next;
        gw_mlflow_watch(g, false);
        f->next = ready; /* answers may send further facts: the list is left alone meanwhile */
        ready = f;
    }
    while (ready) {
        gw_facts *f = ready;
        ready = f->next;
        answer(f);
    }
}

static void on_delivery(void *arg, const pst_delivery *d)
{
    gw_outbox *o = arg;
    gw_facts *f = d->opaque;
    if (!f)
        return;
    PST_ASSERT(f->under_way && o->under_way);
    f->under_way--;
    o->under_way--;
    if (d->code)
        pst_err_set(&f->err, d->code, PST_CLASS_RETRY, "kafka", 0, "%s",
                    d->text ? d->text : "the broker did not take the event; send it again");
    else if (!strcmp(d->topic, pst_client_topic(f->g->client, PST_TOPIC_TRACKING)) && d->offset > f->offset)
        f->offset = d->offset;
    if (!f->under_way && f->opened)
        published(o, f);
}

static void serve(void *arg)
{
    gw_outbox *o = arg;
    pst_producer_poll(o->producer, 0);
    if (!o->under_way)
        pst_timer_stop(o->timer);
}

static gw_outbox *outbox_of(gw_state *g, pst_err *err)
{
    if (g->mlflow_outbox)
        return g->mlflow_outbox;
    gw_outbox *o = pst_alloc(sizeof *o);
    o->g = g;
    if (pst_producer_new(g->client->bus, &(pst_producer_opts){.linger_ms = 0, .on_delivery = on_delivery, .arg = o}, &o->producer, err) <
        0) {
        free(o);
        return NULL;
    }
    pst_producer_expect(o->producer, pst_client_topic(g->client, PST_TOPIC_TRACKING));
    o->timer = pst_timer_new(g->loop, POLL_US, POLL_US, serve, o);
    pst_timer_stop(o->timer);
    return g->mlflow_outbox = o;
}

void gw_facts_send(gw_facts *f, gw_facts_written written, const char *id)
{
    gw_outbox *o = f->err.code ? NULL : outbox_of(f->g, &f->err);
    f->written = written;
    f->id = pst_strdup(id);
    if (o && o->under_way + f->n > RECORDS_MAX)
        pst_err_set(&f->err, PST_EAGAIN, PST_CLASS_RETRY, "gateway", 0, "%d records wait for the broker already; send it again",
                    RECORDS_MAX);
    for (size_t i = 0; i < f->n && !f->err.code; i++) {
        item *it = &f->items[i];
        pst_out out = {.topic = pst_client_topic(f->g->client, it->topic),
                       .partition = -1,
                       .key = it->key,
                       .key_len = strlen(it->key),
                       .value = it->tombstone ? NULL : it->value.data,
                       .value_len = it->value.len,
                       .opaque = f};
        f->under_way++; /* sending may serve deliveries, this one's too */
        o->under_way++;
        if (pst_producer_send(o->producer, &out, &f->err) < 0) {
            f->under_way--;
            o->under_way--;
        }
    }
    f->opened = true;
    if (f->under_way)
        pst_timer_again(o->timer, 0);
    else if (o)
        published(o, f); /* there was nothing to send, or the deliveries came meanwhile */
    else
        answer(f);
}

void gw_facts_end(gw_state *g)
{
    gw_outbox *o = g->mlflow_outbox;
    if (!o)
        return;
    pst_producer_flush(o->producer, END_MS, NULL);
    for (gw_facts *f = o->waiting; f; f = o->waiting) {
        o->waiting = f->next;
        gw_mlflow_watch(g, false);
        pst_err_set(&f->err, PST_EAGAIN, PST_CLASS_RETRY, "gateway", 0, "it is written; the gateway ends before it has read it back");
        answer(f);
    }
    pst_producer_free(o->producer);
    pst_timer_free(o->timer);
    free(o);
    g->mlflow_outbox = NULL;
}
