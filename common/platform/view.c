/* view.c - the one writer of the document store. The document store follows the topics:
 *
 *     jobs.state  → collection "jobs",    id = training_id, guarded by the job's own seq; a tombstone deletes
 *     models      → collection "models",  id = name:version, the first registration wins; deleted by VERSION_DELETED
 *                   collection "aliases", id = name/alias; guarded by the record's offset
 *
 * Documents and the positions of what was read are written in one transaction, so a crash applies a batch wholly or not at all (MongoDB: at
 * least once, which the guard makes the same). A store that is empty, new, damaged, of another cluster or of another version's schemas is filled
 * from the start.
 * Everything that can go wrong is an outage to this thread: it says so, waits and begins again at the store's own positions. */
#include "common/platform/view.h"

#include "common/base/array.h"
#include "common/base/retry.h"
#include "common/base/seal.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/base/thread.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/events.h"
#include "schemas/topics.h"
#include "schemas/type.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_RECORDS = 500, POLL_MS = 100, CHECK_MS = 1000, PAUSE_MS = 500, PAUSE_MAX_MS = 5000 };

struct pst_view {
    pst_client *client;
    char *url;
    pthread_t thread;
    pthread_mutex_t lock; /* store */
    pst_store *store;     /* NULL until it could be opened */
    atomic_bool stopping;
    atomic_llong lag;
};

static bool ended(void *arg)
{
    pst_view *v = arg;
    return atomic_load(&v->stopping);
}

/* ---- one record ---------------------------------------------------------------------------------------------------------------- */

static int apply_job(pst_view *v, const char *key, const pst_record *r, pst_err *err)
{
    bool applied;
    if (!r->value) {
        json_t *old = NULL;
        pst_err none = {0};
        if (pst_store_get(v->store, "jobs", key, &old, &none) < 0)
            return none.code == PST_ENOTFOUND ? 0 : pst_err_set(err, none.code, none.cls, none.origin, none.native, "%s", none.text);
        int64_t seq = pst_json_int(old, "seq", 0);
        json_decref(old);
        return pst_store_delete(v->store, "jobs", key, seq + 1, err);
    }
    pst_job_state s = {0};
    int rc = pst_codec_decode(v->client->codec, &pst_job_state_type, r->value, r->value_len, r->timestamp_ms, &s, err);
    if (rc < 0)
        return rc;
    if (s.state != PST_JOB_PUBLIC_STATE_UNKNOWN) { /* else requests that wait for their submission: no job yet */
        pst_sealed_mask(s.manifest);
        json_t *doc = pst_event_to_json(&pst_job_state_type, &s);
        rc = pst_store_put(v->store, "jobs", s.training_id, s.seq, doc, &applied, err);
        json_decref(doc);
    }
    pst_event_clear(&pst_job_state_type, &s);
    return rc;
}

static bool is_digest(const char *s)
{
    return strlen(s) == 64 && strspn(s, "0123456789abcdefABCDEF") == 64;
}

static int register_version(pst_view *v, const char *id, int64_t seq, const json_t *doc, pst_err *err)
{
    json_t *old = NULL;
    pst_err none = {0};
    bool applied;
    int rc = pst_store_get(v->store, "models", id, &old, &none);
    json_decref(rc == 0 ? old : NULL);
    if (rc == 0)
        return 0; /* the first one wins */
    if (rc != PST_ENOTFOUND)
        return pst_err_set(err, none.code, none.cls, none.origin, none.native, "%s", none.text);
    return pst_store_put(v->store, "models", id, seq, doc, &applied, err);
}

static int apply_model(pst_view *v, const pst_record *r, pst_err *err)
{
    if (!r->value)
        return 0;
    pst_model_event e = {0};
    bool applied;
    int rc = pst_codec_decode(v->client->codec, &pst_model_event_type, r->value, r->value_len, r->timestamp_ms, &e, err);
    if (rc < 0)
        return rc;
    json_t *doc = pst_event_to_json(&pst_model_event_type, &e);
    char *version = pst_sprintf("%s:%d", e.name, e.version), *alias = pst_sprintf("%s/%s", e.name, e.alias ? e.alias : "");
    int64_t seq = r->offset + 1;
    switch (e.type) {
    case PST_MODEL_EVENT_TYPE_VERSION_REGISTERED: /* what every other reader refuses is not shown either */
        rc = e.version < 1 || !is_digest(e.digest) ? 0 : register_version(v, version, seq, doc, err);
        break;
    case PST_MODEL_EVENT_TYPE_VERSION_DELETED: rc = pst_store_delete(v->store, "models", version, seq, err); break;
    case PST_MODEL_EVENT_TYPE_ALIAS_SET: /* with a pipeline's name: a scorer's report, which moves nothing */
        if (!e.pipeline)
            rc = pst_store_put(v->store, "aliases", alias, seq, doc, &applied, err);
        break;
    case PST_MODEL_EVENT_TYPE_ALIAS_DELETED: rc = pst_store_delete(v->store, "aliases", alias, seq, err); break;
    default: break;
    }
    free(version);
    free(alias);
    json_decref(doc);
    pst_event_clear(&pst_model_event_type, &e);
    return rc;
}

static int apply(pst_view *v, const pst_record *r, pst_err *err)
{
    pst_err e = {0};
    bool job = !strcmp(r->topic, pst_client_topic(v->client, PST_TOPIC_JOBS_STATE));
    char *key = pst_strndup(r->key ? r->key : "", r->key ? r->key_len : 0);
    int rc = job ? apply_job(v, key, r, &e) : apply_model(v, r, &e);
    free(key);
    if (rc < 0 && e.cls == PST_CLASS_DATA) { /* no document can be made of it: it has no place in the view */
        pst_log_limited(PST_LOG_WARN, "view", "record_ignored", "event=record_ignored topic=%s partition=%d offset=%lld reason=\"%s\"",
                        r->topic, r->partition, (long long)r->offset, e.text);
        return 0;
    }
    if (rc < 0 && err && !err->code)
        *err = e;
    return rc;
}

static int apply_batch(pst_view *v, const pst_batch *b, pst_err *err)
{
    int rc = pst_store_begin(v->store, err);
    if (rc < 0)
        return rc;
    if (pst_store_rebuilt(v->store)) {
        pst_store_rollback(v->store);
        pst_log(PST_LOG_WARN, "view", "event=store_made_anew url=%s: it is filled from the topics", pst_store_kind(v->store));
        return PST_EAGAIN;
    }
    for (size_t i = 0; i < b->n && !rc; i++)
        rc = apply(v, &b->records[i], err);
    for (size_t i = 0; i < b->n && !rc; i++) /* later ones of a partition replace earlier ones */
        rc = pst_store_position_set(v->store, b->records[i].topic, b->records[i].partition, b->records[i].offset + 1, err);
    if (rc == 0)
        return pst_store_commit(v->store, err);
    pst_store_rollback(v->store);
    return rc;
}

/* ---- where to begin ------------------------------------------------------------------------------------------------------------ */

typedef struct ranges {
    pst_range *at;
    size_t n;
    bool ahead; /* the store has read further than the topic goes: the topic is another one */
} ranges;

static int add_topic(pst_view *v, pst_topic t, ranges *to, pst_err *err)
{
    pst_topic_info info = {0};
    const char *topic = pst_client_topic(v->client, t);
    int rc = pst_admin_topic(v->client->bus, topic, &info, 5000, err);
    if (rc < 0) /* not created yet: an outage like any other */
        return rc;
    for (int p = 0; p < info.partitions && !rc; p++) {
        int64_t next = PST_OFFSET_BEGINNING;
        pst_err none = {0};
        rc = pst_store_position_get(v->store, topic, p, &next, &none);
        if (rc < 0 && rc != PST_ENOTFOUND) {
            pst_err_set(err, none.code, none.cls, none.origin, none.native, "%s", none.text);
            break;
        }
        rc = 0;
        to->ahead = to->ahead || next > info.high[p];
        if (next >= 0 && next < info.low[p])
            next = info.low[p];
        to->at = pst_array_one_more(to->at, to->n, sizeof *to->at);
        to->at[to->n++] = (pst_range){topic, p, next, -1};
    }
    pst_topic_info_done(&info);
    return rc;
}

/* What a store was filled from, as it is remembered among the positions: the cluster, its topics (another prefix is another platform), and the
 * schemas whose JSON the documents are. A version that names a field otherwise, or has one more, makes the documents anew, so that no reader
 * meets two forms. */
static char *origin_key(const pst_view *v, const char *cluster)
{
    uint32_t form = pst_crc32c(0, pst_job_state_type.schema, strlen(pst_job_state_type.schema));
    form = pst_crc32c(form, pst_model_event_type.schema, strlen(pst_model_event_type.schema));
    return pst_sprintf("cluster %s, topic %s, documents %08x", cluster, pst_client_topic(v->client, PST_TOPIC_JOBS_STATE), (unsigned)form);
}

/* Has the store any document? */
static int is_filled(pst_view *v, bool *ret, pst_err *err)
{
    static const char *const collections[] = {"jobs", "models", "aliases"};
    bool filled = false;
    for (size_t i = 0; i < sizeof collections / sizeof *collections && !filled; i++) {
        json_t *docs = NULL;
        int rc = pst_store_list(v->store, collections[i], &(pst_store_query){.limit = 1}, &docs, err);
        if (rc < 0)
            return rc;
        filled = json_array_size(docs) > 0;
        json_decref(docs);
    }
    *ret = filled;
    return 0;
}

/* Whoever looks at a store that has become empty, or shorter, must find out why; a new one is empty anyway. */
static int empty(pst_view *v, const char *why, const char *cluster, pst_err *err)
{
    bool filled = false;
    int rc = is_filled(v, &filled, err);
    if (rc == 0)
        rc = pst_store_wipe(v->store, err);
    if (rc == 0 && filled)
        pst_log(PST_LOG_WARN, "view", "event=store_emptied store=%s reason=\"%s\": it is filled anew from %s and %s of cluster %s",
                pst_store_kind(v->store), why, pst_client_topic(v->client, PST_TOPIC_JOBS_STATE),
                pst_client_topic(v->client, PST_TOPIC_MODELS), cluster);
    return rc;
}

/* A store that was filled from another cluster or other topics, or by another version's schemas, is emptied: 1. */
static int check_origin(pst_view *v, bool ahead, pst_err *err)
{
    char *cluster = NULL;
    int64_t known;
    pst_err none = {0};
    int rc = pst_admin_ping(v->client->bus, 5000, &cluster, NULL, err);
    if (rc < 0)
        return rc;
    PST_ASSERT(cluster);
    char *key = origin_key(v, cluster);
    rc = pst_store_position_get(v->store, key, 0, &known, &none);
    if (rc == PST_ENOTFOUND || (rc == 0 && ahead)) {
        rc = empty(
            v,
            ahead ? "it has read further than the topics go, which were made anew"
                  : "it does not say that it was filled from these topics by this version's schemas: those of another cluster, prefix or "
                    "version, or its note of them is gone",
            cluster, err);
        if (!rc)
            rc = pst_store_position_set(v->store, key, 0, 1, err);
        if (!rc)
            rc = 1;
    } else if (rc < 0) {
        rc = pst_err_set(err, none.code, none.cls, none.origin, none.native, "%s", none.text);
    }
    free(key);
    free(cluster);
    return rc;
}

static int open_consumer(pst_view *v, pst_consumer **ret_consumer, pst_err *err)
{
    ranges r = {0};
    pthread_mutex_lock(&v->lock);
    int rc = check_origin(v, false, err);
    for (int tries = 0; rc >= 0 && tries < 2; tries++) {
        r.n = 0;
        r.ahead = false;
        rc = add_topic(v, PST_TOPIC_JOBS_STATE, &r, err);
        if (!rc)
            rc = add_topic(v, PST_TOPIC_MODELS, &r, err);
        if (rc < 0 || !r.ahead)
            break;
        rc = check_origin(v, true, err);
    }
    pthread_mutex_unlock(&v->lock);
    if (rc >= 0)
        rc = pst_consumer_new(v->client->bus, &(pst_consumer_opts){.ranges = r.at, .n_ranges = r.n, .report_eof = true}, ret_consumer, err);
    free(r.at);
    return rc < 0 ? rc : 0;
}

/* ---- the thread ---------------------------------------------------------------------------------------------------------------- */

static int follow(pst_view *v, pst_consumer *c, pst_err *err)
{
    int64_t checked = pst_mono_us();
    int rc = 0;
    while (!rc && !ended(v)) {
        pst_batch b;
        pst_err outage = {0};
        rc = pst_consumer_poll(c, &(pst_poll){.records_max = BATCH_RECORDS, .timeout_ms = POLL_MS}, &b, &outage);
        if (rc < 0) {
            *err = outage;
            break;
        }
        bool check = pst_mono_us() - checked > CHECK_MS * 1000LL; /* a store that was deleted is noticed without news, too */
        if (b.n || check) {
            checked = pst_mono_us();
            pthread_mutex_lock(&v->lock);
            rc = apply_batch(v, &b, err);
            pthread_mutex_unlock(&v->lock);
        }
        atomic_store(&v->lag, b.eof ? 0 : pst_consumer_lag(c));
    }
    return rc;
}

static int open_store(pst_view *v, pst_err *err)
{
    pthread_mutex_lock(&v->lock);
    int rc = v->store ? 0 : pst_store_open(v->url, false, &v->store, err);
    if (!rc)
        pst_store_rebuilt(v->store); /* whatever it is, we begin at its positions now */
    pthread_mutex_unlock(&v->lock);
    return rc;
}

static void *run(void *arg)
{
    pst_view *v = arg;
    for (int pause = PAUSE_MS; !ended(v);) {
        pst_err err = {0};
        pst_consumer *c = NULL;
        int rc = open_store(v, &err);
        if (!rc)
            rc = open_consumer(v, &c, &err);
        if (!rc) {
            pause = PAUSE_MS;
            rc = follow(v, c, &err);
        }
        pst_consumer_free(c);
        if (err.code && !ended(v))
            pst_log_err("view", &err);
        if (rc != PST_EAGAIN)
            pst_retry_pause(pause, ended, v);
        pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS;
    }
    return NULL;
}

int pst_view_start(pst_client *client, const char *store_url, pst_view **ret_view, pst_err *err)
{
    pst_view *v = pst_alloc(sizeof *v);
    pst_err e = {0};
    v->client = client;
    v->url = pst_strdup(store_url);
    atomic_store(&v->lag, -1);
    pthread_mutex_init(&v->lock, NULL);
    int rc = open_store(v, &e);
    if (rc < 0 && e.cls == PST_CLASS_FATAL) { /* a wrong address is an error at once; a database that is away is not */
        if (err && !err->code)
            *err = e;
    } else {
        rc = pst_thread_start(&v->thread, "view", run, v);
        rc = rc ? pst_err_sys(err, rc, "cannot start the view's thread") : 0;
    }
    if (rc < 0) {
        pst_store_close(v->store);
        pthread_mutex_destroy(&v->lock);
        free(v->url);
        free(v);
        return rc;
    }
    *ret_view = v;
    return 0;
}

void pst_view_stop(pst_view *v)
{
    if (!v)
        return;
    atomic_store(&v->stopping, true);
    pthread_join(v->thread, NULL);
    pst_store_close(v->store);
    pthread_mutex_destroy(&v->lock);
    free(v->url);
    free(v);
}

int64_t pst_view_lag(pst_view *v)
{
    return atomic_load(&v->lag);
}

pst_store *pst_view_lock(pst_view *v)
{
    pthread_mutex_lock(&v->lock);
    return v->store;
}

void pst_view_unlock(pst_view *v)
{
    pthread_mutex_unlock(&v->lock);
}
