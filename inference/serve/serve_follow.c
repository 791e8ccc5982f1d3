/* serve_follow.c - which version a name and an alias mean now, followed on a thread of its own from the topic of models; and the bytes of a version from
 * the object store. The topic is first read when somebody first asks: a gateway that serves no models reads none. A request that comes before
 * its end waits for it some seconds; later ones are answered from memory, a moved alias counts from the record on that this thread has seen. */
#include "inference/serve/serve.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/retry.h"
#include "common/base/settings.h"
#include "common/base/stop.h"
#include "common/base/thread.h"
#include "common/bus/bus.h"
#include "common/objects/objects.h"
#include "common/platform/client.h"
#include "common/platform/codec.h"
#include "common/platform/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_MS = 300, MOST_MS = 5000, LOOK_US = 100000 };

struct serve_follow {
    const struct pst_settings *settings;
    pst_client *client;      /* its own: a registry that does not answer holds nobody else */
    pthread_mutex_t opening; /* of objects, which is opened once a model is fetched */
    pst_objects *objects;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows but stop */
    pthread_cond_t known;
    pst_models *models;
    pst_models *fresh;  /* the thread's own: the topic is being read from its beginning; NULL = it is followed */
    int64_t unknown_us; /* the thread's own: when an id was last not known to the registry, after some tries; 0 = never */
    bool started, caught_up;
    char why[480];
    _Atomic bool stop;
};

static bool is_over(void *arg)
{
    return ((serve_follow *)arg)->stop;
}

static void set_why(serve_follow *f, const pst_err *err)
{
    pthread_mutex_lock(&f->lock);
    snprintf(f->why, sizeof f->why, "%s", err->text);
    pthread_mutex_unlock(&f->lock);
}

/* An unreachable registry is waited out: a record that is left out is an alias that never moves. What is no event says nothing. */
static void apply(serve_follow *f, const pst_record *r)
{
    int ms = FIRST_MS;
    for (int tries = 0; r->value && !is_over(f); tries++) {
        pst_model_event e;
        pst_err err = {0};
        if (pst_codec_decode(f->client->codec, &pst_model_event_type, r->value, r->value_len, r->timestamp_ms, &e, &err) == 0) {
            pthread_mutex_lock(&f->lock);
            pst_models_apply(f->fresh ? f->fresh : f->models, &e);
            pthread_mutex_unlock(&f->lock);
            pst_event_clear(&pst_model_event_type, &e);
            return;
        }
        if (pst_codec_unusable(&f->unknown_us, &err, tries)) {
            pst_log_limited(PST_LOG_WARN, "serve", "model_event_skipped",
                            "event=model_event_skipped topic=%s partition=%d offset=%lld error=\"%s\"", r->topic, r->partition,
                            (long long)r->offset, err.text);
            return;
        }
        set_why(f, &err);
        pst_log_limited(PST_LOG_WARN, "serve", "models_not_read", "event=models_not_read topic=%s partition=%d offset=%lld error=\"%s\"",
                        r->topic, r->partition, (long long)r->offset, err.text);
        pst_retry_pause(ms, is_over, f);
        ms = ms * 2 > MOST_MS ? MOST_MS : ms * 2;
    }
}

/* At the topic's end: what was read counts from now on. With the lock. */
static void take_fresh(serve_follow *f)
{
    if (f->fresh) {
        pst_models_free(f->models);
        f->models = f->fresh;
        f->fresh = NULL;
    }
    f->caught_up = true;
    pthread_cond_broadcast(&f->known);
}

/* From its beginning, into a view of its own until its end: in the one that answers, aliases would go back to their first versions meanwhile. */
static void read_topic(serve_follow *f, pst_consumer *c)
{
    pst_models_free(f->fresh);
    f->fresh = pst_models_new();
    while (!is_over(f)) {
        pst_batch b = {0};
        pst_err err = {0};
        if (pst_consumer_poll(c, &(pst_poll){.records_max = 1000, .timeout_ms = 100}, &b, &err) < 0) {
            set_why(f, &err);
            pst_log_err("serve", &err);
            return;
        }
        for (size_t i = 0; i < b.n; i++)
            apply(f, &b.records[i]);
        if (!b.n && err.code) {
            set_why(f, &err);
            pst_log_limited(PST_LOG_WARN, "serve", "models_not_read", "event=models_not_read topic=%s error=\"%s\"",
                            pst_client_topic(f->client, PST_TOPIC_MODELS), err.text);
        }
        if (b.eof) {
            pthread_mutex_lock(&f->lock);
            take_fresh(f);
            pthread_mutex_unlock(&f->lock);
        }
    }
}

static void *run(void *arg)
{
    serve_follow *f = arg;
    const char *topic = pst_client_topic(f->client, PST_TOPIC_MODELS);
    while (!is_over(f)) {
        pst_err err = {0};
        pst_consumer *c = NULL;
        pst_consumer_opts o = {.topics = &topic, .n_topics = 1, .report_eof = true, .inflight_bytes_max = 4 << 20};
        if (pst_consumer_new(f->client->bus, &o, &c, &err) < 0) {
            set_why(f, &err);
            pst_log_err("serve", &err);
        } else {
            read_topic(f, c);
            pst_consumer_free(c);
        }
        pst_retry_pause(FIRST_MS * 2, is_over, f);
    }
    return NULL;
}

/* With the lock. */
static void begin(serve_follow *f)
{
    if (f->started)
        return;
    snprintf(f->why, sizeof f->why, "the topic of models is being read");
    if (pst_thread_start(&f->thread, "serve-models", run, f))
        snprintf(f->why, sizeof f->why, "no thread to be had to read the topic of models");
    else
        f->started = true;
}

bool serve_follow_ready(serve_follow *f, char *ret_why, size_t size)
{
    pthread_mutex_lock(&f->lock);
    begin(f);
    bool ready = f->caught_up;
    snprintf(ret_why, size, "%s", ready ? "" : f->why);
    pthread_mutex_unlock(&f->lock);
    return ready;
}

static int no_such(const serve_follow *f, const char *name, const char *alias, int version, pst_err *err)
{
    if (!pst_model_name_ok(name) || !pst_models_resolve(f->models, name, NULL, 0))
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0,
                           "there is no model %.200s; penstock models list shows what there is", name);
    if (alias)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0,
                           "model %s has no alias %.200s; penstock models alias %s ALIAS VERSION sets one", name, alias, name);
    return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0,
                       "model %s has no version %d; penstock models list %s shows what there is", name, version, name);
}

/* Looks up now and then: a program that is to end is not held up by what is not known. */
static int find(void *arg, const char *name, const char *alias, int version, int64_t until_us, serve_found *ret_found, pst_err *err)
{
    serve_follow *f = arg;
    int rc = 0;
    pthread_mutex_lock(&f->lock);
    begin(f);
    for (int64_t now; !f->caught_up && !is_over(f) && !pst_stop_requested() && (now = pst_mono_us()) < until_us;) {
        struct timespec until = pst_mono_at(until_us - now < LOOK_US ? until_us : now + LOOK_US);
        pthread_cond_timedwait(&f->known, &f->lock, &until);
    }
    const pst_model_event *v = f->caught_up && pst_model_name_ok(name) ? pst_models_resolve(f->models, name, alias, version) : NULL;
    if (!f->caught_up)
        rc = pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "models", 0, "the registered models are not known yet: %s", f->why);
    else if (!v)
        rc = no_such(f, name, alias, version, err);
    else {
        *ret_found = (serve_found){.version = v->version, .uri = pst_strdup(v->uri)};
        snprintf(ret_found->name, sizeof ret_found->name, "%s", v->name);
        snprintf(ret_found->digest, sizeof ret_found->digest, "%s", v->digest);
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

/* One that is not there is said to who asks for a model, and tried again then: all else of the gateway goes on. */
static int open_objects(serve_follow *f, pst_err *err)
{
    pst_err why = {0};
    int rc = 0;
    pthread_mutex_lock(&f->opening);
    if (!f->objects)
        rc = pst_objects_open(f->settings->objects.value, &f->objects, &why);
    if (rc < 0)
        f->objects = NULL;
    pthread_mutex_unlock(&f->opening);
    if (rc == 0)
        return 0;
    pst_log_err("serve", &why); /* it names folders, which a client has no use for */
    return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "models", 0, "the object store cannot be opened; the gateway's log says why");
}

static int fetch(void *arg, const serve_found *found, size_t bytes_max, pst_buf *ret_data, pst_err *err)
{
    serve_follow *f = arg;
    int rc = open_objects(f, err);
    if (rc < 0)
        return rc;
    rc = pst_objects_get(f->objects, found->uri, found->digest, bytes_max, ret_data, err);
    if (rc == PST_ENOTFOUND && err) { /* not the client's: the version is registered */
        pst_log_err("serve", err);    /* it names folders, which a client has no use for */
        pst_err_clear(err);
        return pst_err_set(err, PST_EIO, PST_CLASS_FATAL, "models", 0, "its artefact is not in the object store");
    }
    return rc;
}

static void add_version(void *arg, const pst_model_event *v, const char *aliases)
{
    (void)aliases;
    json_array_append_new(arg, json_sprintf("%d", v->version));
}

static json_t *versions(void *arg, const char *name)
{
    serve_follow *f = arg;
    json_t *all = json_array();
    pthread_mutex_lock(&f->lock);
    pst_models_each(f->models, name, add_version, all);
    pthread_mutex_unlock(&f->lock);
    return all;
}

int serve_follow_new(const struct pst_settings *settings, serve_follow **ret_follow, pst_err *err)
{
    serve_follow *f = pst_alloc(sizeof *f);
    f->settings = settings;
    f->models = pst_models_new();
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_init(&f->opening, NULL);
    pst_cond_init(&f->known);
    int rc = pst_client_open(settings, "penstock-serve-models", &f->client, err);
    if (rc < 0) {
        serve_follow_free(f);
        return rc;
    }
    *ret_follow = f;
    return 0;
}

serve_source serve_follow_source(serve_follow *f)
{
    return (serve_source){find, fetch, versions, f};
}

void serve_follow_free(serve_follow *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_cond_broadcast(&f->known);
    bool started = f->started;
    pthread_mutex_unlock(&f->lock);
    if (started)
        pthread_join(f->thread, NULL);
    pst_objects_close(f->objects);
    pst_client_close(f->client);
    pst_models_free(f->fresh);
    pst_models_free(f->models);
    pthread_mutex_destroy(&f->opening);
    pthread_cond_destroy(&f->known);
    pthread_mutex_destroy(&f->lock);
    free(f);
}
