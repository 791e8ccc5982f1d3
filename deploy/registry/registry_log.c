/* registry_log.c - the topic is the registry's only memory, so it is read from its beginning at each start and then for ever: what our own writes
 * and those of another registry became is learned in one way, by reading. Reading blocks, hence a thread; the state belongs to the loop, hence
 * parcels that are handed over in order. A queue of its own stands between, since the loop's may refuse a post while a parcel must not be lost;
 * the reader pauses when the loop is 256 parcels behind. Writing is the loop's: librdkafka's thread does the waiting there. */
#include "deploy/registry/registry_log.h"

#include "common/base/retry.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK_HEADER "penstock-registry"

struct rlog {
    rlog_conf conf;
    char *topic;
    pst_bus_conf *bus;
    pst_producer *producer;
    pthread_t thread;
    bool started, stopping;
    atomic_bool stop;
    pthread_mutex_t lock; /* of the three below */
    struct parcel *first, **last;
    size_t waiting;
};

#define PARCELS_MAX 256 /* batches read ahead of the loop */
#define RETRY_MS    300

typedef struct parcel { /* from the reading thread to the loop: records, an error, or neither = ready */
    struct parcel *next;
    rlog_record *records;
    size_t n;
    pst_err err;
} parcel;

static void parcel_free(parcel *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->records[i].key);
        free(p->records[i].value);
    }
    free(p->records);
    free(p);
}

/* The oldest parcel, or NULL. @thread any @locks lock */
static parcel *take(rlog *l)
{
    pthread_mutex_lock(&l->lock);
    parcel *p = l->first;
    if (p) {
        PST_ASSERT(l->waiting > 0);
        l->first = p->next;
        l->waiting--;
    }
    if (!l->first)
        l->last = &l->first;
    pthread_mutex_unlock(&l->lock);
    return p;
}

/* Hands over all that has come; a post that the loop refused, or that came late, finds nothing left to do. @thread loop */
static void deliver(void *arg)
{
    rlog *l = arg;
    const rlog_conf *c = &l->conf;
    for (parcel *p; (p = take(l));) {
        if (p->err.code)
            c->on_trouble(c->arg, &p->err);
        else if (p->records)
            c->on_records(c->arg, p->records, p->n);
        else
            c->on_ready(c->arg);
        parcel_free(p);
    }
}

/* @thread the reader's */
static void post(rlog *l, parcel *p)
{
    PST_ASSERT(!pst_loop_is_current(l->conf.loop)); /* it would wait for itself */
    pthread_mutex_lock(&l->lock);
    *l->last = p;
    l->last = &p->next;
    size_t n = ++l->waiting;
    pthread_mutex_unlock(&l->lock);
    pst_loop_post(l->conf.loop, deliver, l);
    while (n > PARCELS_MAX && !atomic_load(&l->stop)) { /* the loop is behind: reading pauses */
        pst_sleep_ms(5);
        pthread_mutex_lock(&l->lock);
        n = l->waiting;
        pthread_mutex_unlock(&l->lock);
    }
}

static void post_trouble(rlog *l, const pst_err *err)
{
    parcel *p = pst_alloc(sizeof *p);
    p->err = *err;
    post(l, p);
}

static char *copy_bytes(const void *data, size_t len)
{
    char *out = pst_alloc(len + 1);
    memcpy(out, data ? data : "", data ? len : 0);
    return out;
}

static void read_mark(const pst_record *r, char mark[64])
{
    pst_header h[8];
    size_t n = pst_record_headers(r, h, 8);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(h[i].name, MARK_HEADER) && h[i].value && h[i].len < 64)
            snprintf(mark, 64, "%.*s", (int)h[i].len, (const char *)h[i].value);
}

static void post_batch(rlog *l, const pst_batch *b)
{
    parcel *p = pst_alloc(sizeof *p);
    p->n = b->n;
    p->records = pst_alloc(b->n * sizeof *p->records);
    for (size_t i = 0; i < b->n; i++) {
        const pst_record *r = &b->records[i];
        p->records[i] =
            (rlog_record){.offset = r->offset, .key = copy_bytes(r->key, r->key_len), .key_len = r->key_len, .value_len = r->value_len};
        if (r->value)
            p->records[i].value = copy_bytes(r->value, r->value_len);
        if (!r->value)
            read_mark(r, p->records[i].mark);
    }
    post(l, p);
}

/* ---- the reading thread ---------------------------------------------------------------------------------------------------- */

/* A topic that was there before us may be one that forgets: what is deleted from it by age takes schemas along that records still name. Where we
 * may not ask, that is said and it is the operator's affair. */
static int check_policy(rlog *l, pst_err *err)
{
    char *policy = NULL;
    pst_err e = {0};
    int rc = pst_admin_topic_config(l->bus, l->topic, "cleanup.policy", &policy, 10000, &e);
    if (rc < 0 && e.cls == PST_CLASS_RETRY) {
        if (err && !err->code)
            *err = e;
        return rc;
    }
    if (rc < 0) {
        pst_log(PST_LOG_WARN, "registry", "event=policy_unknown topic=%s cure=\"make sure that its cleanup.policy is compact\" why=\"%s\"",
                l->topic, e.text);
        return 0;
    }
    if (strcmp(policy, "compact") != 0)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "registry", 0,
                         "topic %s has cleanup.policy=%s: schemas would be deleted by age; set it to compact (kafka-configs.sh --alter "
                         "--entity-type topics --entity-name %s --add-config cleanup.policy=compact), or choose another --topic",
                         l->topic, policy, l->topic);
    free(policy);
    return rc;
}

static int prepare_topic(rlog *l, pst_err *err)
{
    int brokers = 0;
    char *cluster = NULL;
    int rc = pst_admin_ping(l->bus, 3000, &cluster, &brokers, err);
    free(cluster);
    if (rc < 0)
        return rc;
    static const char *const configs[] = {"cleanup.policy", "compact", NULL};
    pst_topic_spec spec = {l->topic, 1, brokers >= 3 ? 3 : 1, configs};
    rc = pst_admin_create_topics(l->bus, &spec, 1, 10000, err);
    if (rc < 0)
        return rc;
    pst_topic_info info = {0};
    rc = pst_admin_topic(l->bus, l->topic, &info, 10000, err);
    if (rc < 0)
        return rc == PST_ENOTFOUND ? PST_EUNREACH : rc; /* created a moment ago, not everywhere known yet */
    if (info.partitions != 1 && !l->conf.embedded)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "registry", 0,
                         "topic %s has %d partitions; a registry needs exactly one, or its records have no order; choose another --topic",
                         l->topic, info.partitions);
    pst_topic_info_done(&info);
    return rc < 0 || l->conf.embedded ? rc : check_policy(l, err);
}

static bool stopped(void *arg)
{
    rlog *l = arg;
    return atomic_load(&l->stop);
}

static bool wait_for_topic(rlog *l)
{
    while (!atomic_load(&l->stop)) {
        pst_err err = {0};
        int rc = prepare_topic(l, &err);
        if (rc == PST_OK)
            return true;
        if (err.cls == PST_CLASS_NONE)
            pst_err_set(&err, rc, PST_CLASS_RETRY, "kafka", 0, "topic %s is not there yet", l->topic);
        post_trouble(l, &err);
        if (err.cls == PST_CLASS_FATAL)
            return false;
        pst_retry_pause(RETRY_MS, stopped, l);
    }
    return false;
}

static pst_consumer *open_reader(rlog *l)
{
    const pst_range all = {l->topic, 0, PST_OFFSET_BEGINNING, -1};
    pst_consumer_opts opts = {.ranges = &all, .n_ranges = 1, .read_uncommitted = true};
    pst_consumer *c = NULL;
    while (!atomic_load(&l->stop)) {
        pst_err err = {0};
        if (pst_consumer_new(l->bus, &opts, &c, &err) == PST_OK)
            return c;
        post_trouble(l, &err);
        if (err.cls == PST_CLASS_FATAL)
            return NULL;
        pst_retry_pause(RETRY_MS, stopped, l);
    }
    return NULL;
}

/* The thread: until it is stopped, or something fatal was said. */
static void *read_all(void *arg)
{
    rlog *l = arg;
    pst_consumer *c = wait_for_topic(l) ? open_reader(l) : NULL;
    if (c)
        post(l, pst_alloc(sizeof(parcel)));
    while (c && !atomic_load(&l->stop)) {
        pst_batch b = {0};
        pst_err err = {0};
        int rc = pst_consumer_poll(c, &(pst_poll){.timeout_ms = 100}, &b, &err);
        if (b.n)
            post_batch(l, &b);
        if (err.code)
            post_trouble(l, &err);
        if (rc < 0)
            break;
    }
    pst_consumer_free(c);
    return NULL;
}

/* ---- the loop's side ------------------------------------------------------------------------------------------------------- */

static void on_delivery(void *arg, const pst_delivery *d)
{
    rlog *l = arg;
    uint64_t token = (uint64_t)(uintptr_t)d->opaque;
    const char *failure = d->text ? d->text : "not delivered";
    if (token && !l->stopping)
        l->conf.on_ack(l->conf.arg, token, d->offset, d->code ? failure : NULL);
}

int rlog_start(const rlog_conf *conf, rlog **ret_log, pst_err *err)
{
    rlog *l = pst_alloc(sizeof *l);
    l->conf = *conf;
    l->last = &l->first;
    pthread_mutex_init(&l->lock, NULL);
    l->topic = pst_strdup(conf->topic);
    l->bus = pst_bus_conf_copy(conf->bus);
    int rc = PST_OK;
    /* A write that found no broker for so long is given up; longer than what clients wait, so that short outages pass unnoticed. */
    if (!pst_bus_conf_get(l->bus, "message.timeout.ms") && !pst_bus_conf_get(l->bus, "delivery.timeout.ms"))
        rc = pst_bus_conf_set(l->bus, "message.timeout.ms", "15000", "registry", err);
    if (rc == PST_OK)
        rc = pst_producer_new(l->bus, &(pst_producer_opts){.linger_ms = 0, .on_delivery = on_delivery, .arg = l}, &l->producer, err);
    if (rc == PST_OK) {
        sigset_t all, old; /* signals are for the loop's thread */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        int failed = pst_thread_start(&l->thread, "schemas-reader", read_all, l);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        l->started = failed == 0;
        if (failed)
            rc = pst_err_sys(err, failed, "starting the reader of %s", l->topic);
    }
    if (rc < 0) {
        rlog_stop(l);
        return rc;
    }
    *ret_log = l;
    return PST_OK;
}

int rlog_write(rlog *l, uint64_t token, const char *key, const char *value, const char *mark, pst_err *err)
{
    PST_ASSERT(!mark || strlen(mark) < sizeof(((rlog_record *)0)->mark)); /* else its reader would not see it */
    pst_header h = {MARK_HEADER, mark, mark ? strlen(mark) : 0};
    pst_out out = {.topic = l->topic,
                   .partition = 0,
                   .key = key,
                   .key_len = strlen(key),
                   .value = value,
                   .value_len = value ? strlen(value) : 0,
                   .headers = mark ? &h : NULL,
                   .n_headers = mark ? 1 : 0,
                   .opaque = (void *)(uintptr_t)token};
    return pst_producer_send(l->producer, &out, err);
}

void rlog_poll(rlog *l)
{
    pst_producer_poll(l->producer, 0);
}

void rlog_stop(rlog *l)
{
    if (!l)
        return;
    atomic_store(&l->stop, true);
    l->stopping = true;
    if (l->started)
        pthread_join(l->thread, NULL);
    if (l->producer) {
        pst_err ignored = {0};
        pst_producer_flush(l->producer, 500, &ignored); /* whoever waited for an answer has had one */
    }
    pst_producer_free(l->producer);
    pst_bus_conf_free(l->bus);
    for (parcel *p; (p = take(l));)
        parcel_free(p);
    pthread_mutex_destroy(&l->lock);
    free(l->topic);
    free(l);
}
