/* score_follow.c - aliases and models followed on a thread beside the scorer. The thread has a client of its own, so that a registry that does not answer holds nobody else. */
#include "inference/run/score_follow.h"

#include "common/base/retry.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/base/thread.h"
#include "common/platform/models.h"
#include "common/objects/objects.h"
#include "common/platform/client.h"
#include "common/platform/codec.h"
#include "common/registry/registry.h"
#include "inference/run/score_report.h"
#include "schemas/events.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BACKOFF_FIRST_MS = 500, BACKOFF_MAX_MS = 30000 };
enum { UNKNOWN_WAIT_MS = 2100 }; /* the registry client remembers a negative answer for 2 s */

typedef struct news_node {
    score_model_news news;
    struct news_node *next;
} news_node;

/* One variant of the pipeline and what was last made ready, or found unusable, for it. */
typedef struct target {
    pst_variant variant;
    const pst_model_choice *choice;
    int version;     /* last handed out; 0 = none yet */
    int bad_version; /* could not be used: not tried again until something changes */
    char digest[65];
} target;

struct score_follow {
    const pst_pipeline *p;
    score_stats *stats;
    pst_client *client;
    pst_objects *objects;
    pst_models *models;
    pst_consumer *consumer;
    bool caught_up;
    int64_t unknown_us; /* when "no such schema id" was last believed; 0 = never */
    target targets[3];
    size_t n_targets;
    pthread_t thread;
    pthread_mutex_t lock; /* news, why */
    news_node *first, **last;
    char why[480], stopped_why[480]; /* the second: why the canary rests */
    char spec[65];
    _Atomic bool stop, canary_stopped;
};

static bool stopping(void *arg)
{
    const score_follow *f = arg;
    return f->stop || pst_stop_requested();
}

static void set_why(score_follow *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void set_why(score_follow *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&f->lock);
    vsnprintf(f->why, sizeof(f->why), fmt, ap);
    pthread_mutex_unlock(&f->lock);
    va_end(ap);
}

static void pause_ms(score_follow *f, int ms)
{
    pst_retry_pause(ms, stopping, f);
}

/* ---- making a model ready -------------------------------------------------------------------------------------------------- */

/* The features against the newest schema of each input: another width is known here, before the first record. Fields that are absent there say
 * nothing of the records that come, and an outage says nothing at all. */
static int fits_topics(score_follow *f, pst_binding *b, pst_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && f->p->format == PST_INPUT_AVRO && i < f->p->n_topics; i++) {
        char *subject = pst_sprintf("%s-value", f->p->topics[i]), *text = NULL;
        pst_schema *schema = NULL;
        pst_decoder *d = NULL;
        pst_err e = {0};
        int32_t id = 0;
        if (pst_registry_latest(f->client->registry, subject, &id, NULL, &text, NULL) == 0 &&
            pst_schema_parse(text, strlen(text), &schema, NULL) == 0 && pst_decoder_new(f->p, b, schema, &d, &e) == PST_EINVAL)
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, e.origin, 0, "records of %s (schema id %d): %s", f->p->topics[i], id, e.text);
        pst_decoder_free(d);
        pst_schema_free(schema);
        free(text);
        free(subject);
    }
    return rc;
}

static int load(score_follow *f, const pst_model_event *v, pst_binding **ret, pst_err *err)
{
    pst_buf data = {0};
    pst_model *m = NULL;
    int64_t start = pst_mono_us();
    const pst_model_limits limits = pst_binding_limits(f->p);
    int rc = pst_objects_get(f->objects, v->uri, v->digest, limits.file_bytes_max, &data, err);
    if (rc == 0)
        rc = pst_model_load(data.data ? data.data : "", data.len, NULL, &limits, &m, err);
    if (rc == 0)
        rc = pst_binding_new(f->p, m, v->name, v->version, f->p->batch_count, ret, err);
    if (rc == 0) {
        rc = fits_topics(f, *ret, err);
        if (rc < 0) {
            pst_binding_free(*ret);
            *ret = NULL;
        }
    }
    pst_model_unref(m);
    pst_buf_done(&data);
    pst_metric_set(f->stats->load_seconds, (double)(pst_mono_us() - start) / 1e6);
    return rc;
}

static news_node *news_of(const score_follow *f, pst_variant variant, pst_binding *b, const pst_model_event *alias)
{
    news_node *n = pst_alloc(sizeof(*n));
    n->news.variant = variant;
    n->news.binding = b;
    n->news.from = pst_alloc(((alias ? alias->n_effective : 0) + 1) * sizeof(*n->news.from));
    for (size_t i = 0; alias && i < alias->n_effective; i++) {
        const pst_effective_from *e = &alias->effective[i];
        for (size_t t = 0; t < f->p->n_topics; t++)
            if (!strcmp(f->p->topics[t], e->topic))
                n->news.from[n->news.n_from++] = (pst_effective){pst_strdup(e->topic), e->partition, e->offset};
    }
    return n;
}

/* One, or two that are taken together. */
static void post(score_follow *f, news_node *first, news_node *last)
{
    PST_ASSERT(first == last || first->next == last);
    pthread_mutex_lock(&f->lock);
    *f->last = first;
    f->last = &last->next;
    if (last->news.variant == PST_VARIANT_PRIMARY)
        f->why[0] = 0;
    pthread_mutex_unlock(&f->lock);
}

/* Gone for good, or worth another try? */
static bool transient(const pst_err *e)
{
    return e->cls == PST_CLASS_RETRY || e->code == PST_EIO || e->code == PST_ENOTFOUND;
}

/* Loads one version, waiting out outages. 0 ready, < 0 it is of no use (said and counted). */
static int ready(score_follow *f, target *t, const pst_model_event *v, pst_binding **ret)
{
    int ms = BACKOFF_FIRST_MS;
    for (int attempt = 0; !stopping(f); attempt++) {
        pst_err err = {0};
        int rc = load(f, v, ret, &err);
        if (rc == 0)
            return 0;
        const pst_err bare = err;
        pst_err_prefix(&err, "model %s version %d", v->name, v->version);
        if (t->variant == PST_VARIANT_PRIMARY && !t->version)
            set_why(f, "%s", err.text);
        if (!transient(&err) || attempt >= 8) {
            pst_log_limited(PST_LOG_ERROR, "score", "model_refused",
                            "event=model_refused pipeline=%s model=%s version=%d kept=%d error=\"%s\"", f->p->name, v->name, v->version,
                            t->version, err.text);
            pst_metric_add(f->stats->swap_failures, 1);
            score_stats_refused(f->stats, v->name, v->version, bare.text);
            return rc;
        }
        pst_log_err("score", &err);
        pause_ms(f, ms);
        ms = ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : ms * 2;
    }
    return PST_ESTOPPED;
}

static const char *choice_text(const pst_model_choice *c, char *buf, size_t size)
{
    if (c->version)
        snprintf(buf, size, "version %d", c->version);
    else
        snprintf(buf, size, "alias %s", c->alias ? c->alias : "latest");
    return buf;
}

/* A worker that starts behind the offsets from which the alias's last move counts begins with the version of the move before; NULL: there is none,
 * or it is of no use any more. */
static pst_binding *previous(score_follow *f, target *t, const pst_model_event *alias)
{
    const pst_model_event *before = pst_models_alias_back(f->models, alias->name, t->choice->alias, 1);
    const pst_model_event *v = before ? pst_models_resolve(f->models, alias->name, NULL, before->version) : NULL;
    pst_binding *b = NULL;
    if (v && alias->n_effective && before->version != alias->version)
        ready(f, t, v, &b);
    return b;
}

/* A worker that starts while the alias names a version that is of no use here begins with the last one that was, as one that was running then
 * has kept it. */
static void start_with_usable(score_follow *f, target *t)
{
    const pst_model_choice *c = t->choice;
    for (size_t back = 1; c->alias && !c->version; back++) {
        const pst_model_event *before = pst_models_alias_back(f->models, c->name, c->alias, back);
        const pst_model_event *v = before ? pst_models_resolve(f->models, c->name, NULL, before->version) : NULL;
        pst_binding *b = NULL;
        if (!before)
            return;
        if (!v || v->version == t->bad_version || ready(f, t, v, &b) < 0)
            continue;
        pst_log_limited(PST_LOG_WARN, "score", "model_kept", "event=model_kept pipeline=%s model=%s version=%d instead_of=%d", f->p->name,
                        v->name, v->version, t->bad_version);
        t->version = v->version;
        snprintf(t->digest, sizeof(t->digest), "%s", v->digest);
        news_node *n = news_of(f, t->variant, b, NULL);
        n->news.kept = true;
        post(f, n, n);
        return;
    }
}

/* Does this variant's choice name another version than the one handed out last? Then that is made ready and posted. One that is of no use is not tried
 * again until something changes; who has none at all begins with the last one that was of use. */
static void look(score_follow *f, target *t)
{
    const pst_model_choice *c = t->choice;
    char how[256];
    if (t->variant == PST_VARIANT_CANARY && f->canary_stopped)
        return;
    const pst_model_event *v = pst_models_resolve(f->models, c->name, c->alias, c->version);
    const pst_model_event *alias = c->version || !c->alias ? NULL : pst_models_alias(f->models, c->name, c->alias);
    if (!v) {
        if (t->variant == PST_VARIANT_PRIMARY && !t->version)
            set_why(f, "model %s has no %s yet", c->name, choice_text(c, how, sizeof(how)));
        return;
    }
    if ((v->version == t->version && !strcmp(v->digest, t->digest)) || v->version == t->bad_version) {
        if (v->version == t->version)
            score_stats_refused(f->stats, NULL, v->version, NULL); /* the pipeline itself may have refused it since */
        return;
    }
    pst_binding *before = !t->version && alias ? previous(f, t, alias) : NULL, *b = NULL;
    if (ready(f, t, v, &b) < 0) {
        pst_binding_free(before);
        t->bad_version = v->version;
        if (!t->version && !stopping(f))
            start_with_usable(f, t);
        return;
    }
    const char *job = pst_log_job(v->training_id); /* that made it */
    pst_log(PST_LOG_INFO, "score", "event=model_ready pipeline=%s model=%s version=%d digest=%.12s %s by=%s", f->p->name, v->name,
            v->version, v->digest, choice_text(c, how, sizeof(how)), alias && *alias->actor ? alias->actor : "-");
    pst_log_job(job);
    t->version = v->version;
    t->bad_version = 0;
    snprintf(t->digest, sizeof(t->digest), "%s", v->digest);
    /* Together: a worker that had only the one before would go on with it beyond the offsets from which this one counts. */
    news_node *n = news_of(f, t->variant, b, alias), *first = before ? news_of(f, t->variant, before, NULL) : n;
    if (first != n)
        first->next = n;
    post(f, first, n);
}

/* ---- the topic ------------------------------------------------------------------------------------------------------------- */

/* Connects; tries again until it works. */
static void connect(score_follow *f)
{
    const char *topic = pst_client_topic(f->client, PST_TOPIC_MODELS);
    int ms = BACKOFF_FIRST_MS;
    while (!stopping(f) && !f->consumer) {
        pst_err err = {0};
        pst_consumer_opts o = {.topics = &topic, .n_topics = 1, .report_eof = true, .inflight_bytes_max = 4 << 20};
        if (pst_consumer_new(f->client->bus, &o, &f->consumer, &err) == 0)
            break;
        f->consumer = NULL;
        set_why(f, "the topic %s cannot be read: %s", topic, err.text);
        pst_log_err("score", &err);
        pause_ms(f, ms);
        ms = ms * 2 > BACKOFF_MAX_MS / 6 ? BACKOFF_MAX_MS / 6 : ms * 2;
    }
}

static void hear_stop(score_follow *f, const pst_model_event *e)
{
    if (!f->p->has_canary || f->canary_stopped || !pst_score_report_is_stop(e, f->p, f->spec))
        return;
    pthread_mutex_lock(&f->lock);
    snprintf(f->stopped_why, sizeof f->stopped_why, "%.400s (said by %.60s)", e->reason ? e->reason : "", e->actor);
    pthread_mutex_unlock(&f->lock);
    f->canary_stopped = true;
}

/* Applies one record; an unreachable registry is waited out, since a record that is skipped is an alias move that never happens. */
static void apply(score_follow *f, const pst_record *r)
{
    int ms = BACKOFF_FIRST_MS;
    for (int tries = 1; r->value && !stopping(f); tries++) {
        pst_model_event e;
        pst_err err = {0};
        if (pst_codec_decode(f->client->codec, &pst_model_event_type, r->value, r->value_len, r->timestamp_ms, &e, &err) == 0) {
            pst_models_apply(f->models, &e);
            hear_stop(f, &e);
            pst_event_clear(&pst_model_event_type, &e);
            return;
        }
        if (pst_codec_unusable(&f->unknown_us, &err, tries)) {
            pst_log_limited(PST_LOG_WARN, "score", "model_event_skipped",
                            "event=model_event_skipped topic=%s partition=%d offset=%lld error=\"%s\"", r->topic, r->partition,
                            (long long)r->offset, err.text);
            return;
        }
        set_why(f, "%s", err.text);
        pst_log_err("score", &err);
        pause_ms(f, err.code == PST_ENOTFOUND ? UNKNOWN_WAIT_MS : ms);
        ms = ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : ms * 2;
    }
}

static void *run(void *arg)
{
    score_follow *f = arg;
    connect(f);
    while (!stopping(f) && f->consumer) {
        pst_batch b = {0};
        pst_err err = {0};
        if (pst_consumer_poll(f->consumer, &(pst_poll){.records_max = 1000, .timeout_ms = 200}, &b, &err) < 0) {
            set_why(f, "%s", err.text);
            pst_log_err("score", &err);
            pst_consumer_free(f->consumer);
            f->consumer = NULL;
            pause_ms(f, BACKOFF_FIRST_MS * 4);
            connect(f); /* from the beginning: applying an event twice changes nothing */
            continue;
        }
        for (size_t i = 0; i < b.n; i++)
            apply(f, &b.records[i]);
        bool first = b.eof && !f->caught_up;
        f->caught_up |= b.eof;
        for (size_t i = 0; f->caught_up && (first || b.n) && i < f->n_targets && !stopping(f); i++)
            look(f, &f->targets[i]);
        if (!b.n && err.code && !f->caught_up)
            set_why(f, "%s", err.text);
    }
    pst_consumer_free(f->consumer);
    f->consumer = NULL;
    return NULL;
}

int score_follow_start(const pst_settings *settings, const pst_pipeline *p, score_stats *stats, score_follow **ret_follow, pst_err *err)
{
    score_follow *f = pst_alloc(sizeof(*f));
    f->p = p;
    f->stats = stats;
    f->last = &f->first;
    f->models = pst_models_new();
    pst_score_report_spec(p, f->spec);
    pthread_mutex_init(&f->lock, NULL);
    snprintf(f->why, sizeof(f->why), "the topic of model versions is being read");
    f->targets[f->n_targets++] = (target){.variant = PST_VARIANT_PRIMARY, .choice = &p->model};
    if (p->has_canary)
        f->targets[f->n_targets++] = (target){.variant = PST_VARIANT_CANARY, .choice = &p->canary};
    if (p->has_shadow)
        f->targets[f->n_targets++] = (target){.variant = PST_VARIANT_SHADOW, .choice = &p->shadow};
    int rc = pst_client_open(settings, "penstock-score-models", &f->client, err);
    if (rc == 0)
        rc = pst_objects_open(settings->objects.value, &f->objects, err);
    if (rc == 0 && pst_thread_start(&f->thread, "score-models", run, f))
        rc = pst_err_set(err, PST_EIO, PST_CLASS_FATAL, "sys", 0, "cannot start the thread that follows models");
    if (rc < 0) {
        pst_objects_close(f->objects);
        pst_client_close(f->client);
        pst_models_free(f->models);
        free(f);
        return rc;
    }
    *ret_follow = f;
    return 0;
}

bool score_follow_take(score_follow *f, score_model_news *ret_news)
{
    pthread_mutex_lock(&f->lock);
    news_node *n = f->first;
    if (n) {
        f->first = n->next;
        if (!f->first)
            f->last = &f->first;
    }
    pthread_mutex_unlock(&f->lock);
    if (!n)
        return false;
    *ret_news = n->news;
    free(n);
    return true;
}

void score_model_news_done(score_model_news *n)
{
    for (size_t i = 0; i < n->n_from; i++)
        free(n->from[i].topic);
    free(n->from);
    pst_binding_free(n->binding);
    memset(n, 0, sizeof(*n));
}

void score_follow_why(score_follow *f, char *ret_text, size_t size)
{
    pthread_mutex_lock(&f->lock);
    snprintf(ret_text, size, "%s", f->why);
    pthread_mutex_unlock(&f->lock);
}

bool score_follow_canary_stopped(score_follow *f, char *ret_why, size_t size)
{
    if (!f->canary_stopped)
        return false;
    pthread_mutex_lock(&f->lock);
    snprintf(ret_why, size, "%s", f->stopped_why);
    pthread_mutex_unlock(&f->lock);
    return true;
}

void score_follow_stop(score_follow *f)
{
    if (!f)
        return;
    f->stop = true;
    pthread_join(f->thread, NULL);
    score_model_news n;
    while (score_follow_take(f, &n))
        score_model_news_done(&n);
    pst_objects_close(f->objects);
    pst_client_close(f->client);
    pst_models_free(f->models);
    pthread_mutex_destroy(&f->lock);
    free(f);
}
