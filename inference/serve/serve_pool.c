/* serve_pool.c - who waits where, who works on what, and how much of all that there may be. One lock: what is done under it is a few pointers; reading,
 * loading and computing is done without.
 *
 * A worker first serves the model whose first request waits longest, but reads further requests before where they came within the last
 * two milliseconds, so that those of a burst share a run. Beyond its bounds a request is refused at once (429 for its model's line, 503 for all),
 * since one that waits beyond its client's patience costs as much as one that is answered. When its time is over it is answered by the worker that only
 * reads, wherever it is: who holds it may be in the middle of a long run. */
#include "inference/serve/serve.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/stop.h"
#include "common/base/thread.h"
#include "common/platform/models.h"
#include "schemas/metric_list.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELD_FULL "requests that wait hold %u MiB already, which is as much as they may; ask again later"

enum {
    COMPANY_US = 2000,
    UNUSABLE_US = 30 * 1000000,
    OUTAGE_US = 1000000,
    WORKERS_LEAST = 4,
    METERS_MAX = 100,
    GRACE_US = 4000000,
    LOOK_US = 100000,
    KNOWN_US = 5 * 1000000, /* so long a request waits for the registered models to be known */
    MODEL_BYTES_BESIDE = 1 << 20
};

struct serve_pool {
    pst_serving_conf conf;
    serve_source source;
    pthread_mutex_t lock;         /* of all below but stop */
    pthread_cond_t work, reading; /* reading: of the worker that only reads */
    serve_job *first, **last;     /* not read yet */
    size_t raw, jobs, held_jobs;  /* held_jobs: bytes that requests count for */
    serve_job *all;
    int64_t looked_us; /* when the time of all was last looked at */
    serve_model *models;
    size_t n_models, held; /* held: bytes that open models count for */
    pst_map meters;
    pst_metric *open_models, *open_bytes;
    int n_workers;
    struct serve_worker {
        serve_pool *p;
        int number;
        pthread_t thread;
    } workers[SERVE_WORKERS_MAX];
    _Atomic bool stop;
    _Atomic int64_t told_us; /* since when the program is asked to end; 0 = it is not */
};

/* The runs of a program that is to end are given some seconds, as a stream's are: those that go on for longer would hold it up to their own limit. */
static bool is_over(void *arg)
{
    serve_pool *p = arg;
    int64_t none = 0;
    if (p->stop || pst_stop_forced())
        return true;
    if (!pst_stop_requested())
        return false;
    int64_t now = pst_mono_us();
    atomic_compare_exchange_strong(&p->told_us, &none, now);
    return now - p->told_us > GRACE_US;
}

/* ---- counting -------------------------------------------------------------------------------------------------------------- */

/* Of registered models only, so that nobody makes series by asking; beyond METERS_MAX names they share one. With the lock. */
static const serve_meters *meters_of(serve_pool *p, const char *name)
{
    serve_meters *m = pst_map_get(&p->meters, name);
    if (m)
        return m;
    if (p->meters.live >= METERS_MAX && strcmp(name, "other") != 0)
        return meters_of(p, "other");
    m = pst_alloc(sizeof *m);
    pst_metrics *set = p->conf.metrics;
    *m = (serve_meters){.answered = pst_metric_of(set, PST_METRIC_SERVING_REQUESTS, name, "ok", NULL),
                        .refused = pst_metric_of(set, PST_METRIC_SERVING_REQUESTS, name, "refused", NULL),
                        .failed = pst_metric_of(set, PST_METRIC_SERVING_REQUESTS, name, "failed", NULL),
                        .runs = pst_metric_of(set, PST_METRIC_SERVING_RUNS, name, NULL),
                        .rows = pst_metric_of(set, PST_METRIC_SERVING_ROWS, name, NULL),
                        .queue = pst_metric_of(set, PST_METRIC_SERVING_QUEUE, name, NULL),
                        .compute = pst_metric_of(set, PST_METRIC_SERVING_COMPUTE, name, NULL)};
    pst_map_put(&p->meters, name, m);
    return m;
}

/* ---- the end of a request -------------------------------------------------------------------------------------------------- */

static void job_free(serve_job *job)
{
    pst_buf_done(&job->body);
    oip_request_free(job->request);
    free(job->inputs);
    free(job->name);
    free(job->alias);
    free(job);
}

static void count(const serve_meters *m, const serve_job *job, int status)
{
    if (m && job->what == PST_SERVING_INFER)
        pst_metric_add(status < 400 ? m->answered : status < 500 ? m->refused : m->failed, 1);
}

/* m NULL: none was found for it. Without the lock. */
static void finish(serve_pool *p, const serve_meters *m, serve_job *job, pst_serving_answer *take)
{
    pthread_mutex_lock(&p->lock);
    bool late = job->answered;
    job->answered = true;
    *(job->before ? &job->before->after : &p->all) = job->after;
    if (job->after)
        job->after->before = job->before;
    pthread_mutex_unlock(&p->lock);
    if (late) {
        pst_buf_done(&take->body);
    } else {
        count(m, job, take->status);
        job->fn(job->arg, take);
    }
    size_t held = job->held;
    job_free(job);
    pthread_mutex_lock(&p->lock);
    PST_ASSERT(p->jobs > 0 && p->held_jobs >= held);
    p->jobs--;
    p->held_jobs -= held;
    pthread_mutex_unlock(&p->lock);
}

static void unlink_job(serve_job **first, serve_job ***last, const serve_job *job)
{
    while (*first != job)
        first = &(*first)->next;
    *first = job->next;
    if (!*first)
        *last = first;
}

/* Out of the line in which it stands. With the lock. */
static void leave_line(serve_pool *p, serve_job *job)
{
    if (job->place == SERVE_RAW) {
        unlink_job(&p->first, &p->last, job);
        p->raw--;
    } else {
        unlink_job(&job->model->first, &job->model->last, job);
        job->model->waiting--;
    }
    job->place = SERVE_TAKEN;
    job->next = NULL;
}

static void answer_late(pst_serving_answer *ret)
{
    serve_answer_error(504, 0, ret, "the request's time was over before the model had computed it");
}

/* The first of the requests whose time is over. One that stands in a line goes at once, with all that it holds; one that a worker has is answered, and
 * freed by the worker. With the lock, which it lets go of for the answer. */
static bool answer_overdue(serve_pool *p)
{
    int64_t now = pst_mono_us();
    for (serve_job *job = p->all; job; job = job->after) {
        if (job->answered || job->deadline_us > now)
            continue;
        pst_serving_answer a;
        answer_late(&a);
        if (job->place != SERVE_TAKEN) {
            leave_line(p, job);
            pthread_mutex_unlock(&p->lock);
            finish(p, job->meters, job, &a);
            pthread_mutex_lock(&p->lock);
            return true;
        }
        pst_serving_answered fn = job->fn;
        void *arg = job->arg;
        job->answered = true;
        count(job->meters, job, 504);
        pthread_mutex_unlock(&p->lock); /* from here on the job may be gone */
        fn(arg, &a);
        pthread_mutex_lock(&p->lock);
        return true;
    }
    return false;
}

/* With the lock, which it lets go of. */
static void look_at_the_time(serve_pool *p)
{
    if (pst_mono_us() - p->looked_us < LOOK_US)
        return;
    while (answer_overdue(p))
        ;
    p->looked_us = pst_mono_us();
}

static void finish_err(serve_pool *p, const serve_meters *m, serve_job *job, const pst_err *err)
{
    pst_serving_answer a;
    serve_answer_err(err, &a);
    finish(p, m, job, &a);
}

typedef struct worker_model {
    serve_pool *p;
    serve_model *m;
} worker_model;

static void answer(void *arg, serve_job *job, pst_serving_answer *take)
{
    worker_model *w = arg;
    finish(w->p, w->m->meters, job, take);
}

/* ---- reading --------------------------------------------------------------------------------------------------------------- */

static serve_model *model_of(serve_pool *p, serve_found *take)
{
    for (serve_model *m = p->models; m; m = m->next)
        if (m->found.version == take->version && !strcmp(m->found.name, take->name) && !strcmp(m->found.digest, take->digest)) {
            free(take->uri);
            return m;
        }
    return NULL;
}

/* The one that was used longest ago, and that nobody uses. With the lock; to be freed without. */
static serve_model *take_idle(serve_pool *p)
{
    serve_model **oldest = NULL;
    for (serve_model **at = &p->models; *at; at = &(*at)->next)
        if (!(*at)->running && !(*at)->first && (*at)->state != SERVE_OPENING && (!oldest || (*at)->used_us < (*oldest)->used_us))
            oldest = at;
    serve_model *m = oldest ? *oldest : NULL;
    if (!m)
        return NULL;
    *oldest = m->next;
    p->n_models--;
    p->held -= m->charge;
    return m;
}

/* With the lock. NULL: so many models are in use as there may be. */
static serve_model *model_new(serve_pool *p, const serve_found *take)
{
    if (p->n_models >= SERVE_MODELS_MAX) {
        serve_model *idle = take_idle(p);
        if (!idle)
            return NULL;
        serve_model_free(idle);
    }
    serve_model *m = pst_alloc(sizeof *m);
    m->found = *take;
    m->last = &m->first;
    m->used_us = pst_mono_us();
    m->meters = meters_of(p, take->name);
    m->next = p->models;
    p->models = m;
    p->n_models++;
    return m;
}

/* Into its model's line; the answer where that is full. */
static bool line_up(serve_pool *p, serve_job *job, serve_found *take, pst_serving_answer *ret_refusal, const serve_meters **ret_meters)
{
    bool fits = false;
    pthread_mutex_lock(&p->lock);
    if (job->deadline_us <= pst_mono_us()) { /* it would hold what it holds until a worker comes to it */
        *ret_meters = meters_of(p, take->name);
        pthread_mutex_unlock(&p->lock);
        free(take->uri);
        answer_late(ret_refusal);
        return false;
    }
    serve_model *m = model_of(p, take);
    if (!m && !(m = model_new(p, take))) {
        free(take->uri);
        serve_answer_error(503, 2, ret_refusal, "%d models are in use, which is as many as may be open; ask again later", SERVE_MODELS_MAX);
        *ret_meters = NULL;
    } else if (m->waiting >= SERVE_LINE_MAX) {
        *ret_meters = m->meters;
        serve_answer_error(429, 1, ret_refusal, "%zu requests wait for model %s already; ask again later", m->waiting, m->found.name);
    } else {
        job->lined_us = pst_mono_us();
        job->place = SERVE_LINED;
        job->model = m;
        job->meters = m->meters;
        *m->last = job;
        m->last = &job->next;
        m->waiting++;
        fits = true;
        pthread_cond_signal(&p->work);
    }
    pthread_mutex_unlock(&p->lock);
    return fits;
}

/* The body becomes tensors, and counts as them; the request's own time begins to count. */
static int read_body(serve_pool *p, serve_job *job, pst_err *err)
{
    int rc = oip_read((pst_slice){job->body.data ? job->body.data : "", job->body.len}, job->json_len, &job->request, err);
    if (rc < 0)
        return rc;
    size_t len = job->body.len, bytes = oip_request_bytes(job->request);
    pst_buf_done(&job->body);
    pthread_mutex_lock(&p->lock);
    p->held_jobs -= len;
    job->held = bytes;
    if (p->held_jobs + bytes > SERVE_HELD_MAX) {
        job->held = 0;
        rc = pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "serve", 0, HELD_FULL, SERVE_HELD_MAX >> 20);
    }
    p->held_jobs += job->held;
    if (job->request->timeout_us && job->request->timeout_us < job->deadline_us - job->asked_us)
        job->deadline_us = job->asked_us + job->request->timeout_us;
    pthread_mutex_unlock(&p->lock);
    return rc;
}

static void read_job(serve_pool *p, serve_job *job)
{
    pst_err err = {0};
    serve_found found = {0};
    pst_serving_answer a;
    const serve_meters *meters = NULL;
    int64_t known_us = job->asked_us + KNOWN_US < job->deadline_us ? job->asked_us + KNOWN_US : job->deadline_us;
    int rc = p->source.find(p->source.arg, job->name, job->alias, job->version, known_us, &found, &err);
    if (rc == 0 && job->what == PST_SERVING_INFER) {
        rc = read_body(p, job, &err);
        if (rc < 0) {
            free(found.uri);
            pthread_mutex_lock(&p->lock);
            meters = meters_of(p, found.name);
            pthread_mutex_unlock(&p->lock);
        }
    }
    if (rc < 0) {
        finish_err(p, meters, job, &err);
        return;
    }
    if (!line_up(p, job, &found, &a, &meters))
        finish(p, meters, job, &a);
}

/* ---- opening --------------------------------------------------------------------------------------------------------------- */

/* Makes room for so many bytes. Without the lock. */
static int make_room(serve_pool *p, serve_model *m, size_t bytes, pst_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&p->lock);
    while (rc == 0 && p->held + bytes > p->conf.bytes_max) {
        serve_model *idle = bytes <= p->conf.bytes_max ? take_idle(p) : NULL;
        if (idle) {
            pst_log(PST_LOG_INFO, "serve", "event=model_closed model=%s version=%d for=%s", idle->found.name, idle->found.version,
                    m->found.name);
            serve_model_free(idle);
        } else if (bytes > p->conf.bytes_max) {
            rc = pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "serve", 0,
                             "model %s version %d counts for %zu MiB, more than the gateway may hold open (--models-mib %zu)",
                             m->found.name, m->found.version, bytes >> 20, p->conf.bytes_max >> 20);
        } else {
            rc =
                pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "serve", 0,
                            "the memory for models (--models-mib %zu) is taken by models in use; ask again later", p->conf.bytes_max >> 20);
        }
    }
    if (rc == 0) {
        m->charge = bytes;
        p->held += bytes;
    }
    pthread_mutex_unlock(&p->lock);
    return rc;
}

static int open_model(serve_pool *p, serve_model *m, pst_err *err)
{
    pst_buf data = {0};
    int64_t begin = pst_mono_us();
    int rc = p->source.fetch(p->source.arg, &m->found, p->conf.bytes_max / 2, &data, err);
    if (rc == 0)
        rc = make_room(p, m, 2 * data.len + MODEL_BYTES_BESIDE, err);
    if (rc == 0)
        rc = serve_model_load(m, &data, p->conf.bytes_max, err);
    pst_buf_done(&data);
    if (rc == 0)
        pst_log(PST_LOG_INFO, "serve", "event=model_opened model=%s version=%d ms=%lld", m->found.name, m->found.version,
                (long long)(pst_mono_us() - begin) / 1000);
    else
        pst_log_err("serve", err);
    return rc;
}

/* With the lock, which it lets go of meanwhile. */
static void settle(serve_pool *p, serve_model *m)
{
    if (m->state == SERVE_OPEN || (m->state == SERVE_UNUSABLE && pst_mono_us() < m->again_us))
        return;
    pst_err err = {0};
    m->state = SERVE_OPENING;
    pthread_mutex_unlock(&p->lock);
    int rc = open_model(p, m, &err);
    pthread_mutex_lock(&p->lock);
    if (rc < 0) {
        p->held -= m->charge;
        m->charge = 0;
        m->unusable = err;
        m->again_us = pst_mono_us() + (err.cls == PST_CLASS_DATA ? UNUSABLE_US : OUTAGE_US);
    }
    m->state = rc < 0 ? SERVE_UNUSABLE : SERVE_OPEN;
    pst_metric_set(p->open_bytes, (double)p->held);
    size_t n = 0;
    for (const serve_model *o = p->models; o; o = o->next)
        n += o->state == SERVE_OPEN;
    pst_metric_set(p->open_models, (double)n);
    pthread_cond_broadcast(&p->work);
}

/* ---- running --------------------------------------------------------------------------------------------------------------- */

/* Can they share a run, as far as their requests tell? */
static bool goes_with(const serve_job *a, const serve_job *b)
{
    if (a->what != PST_SERVING_INFER || b->what != PST_SERVING_INFER)
        return a->what == b->what;
    const oip_request *x = a->request, *y = b->request;
    if (x->n_inputs != y->n_inputs)
        return false;
    for (size_t k = 0; k < x->n_inputs; k++) {
        const pst_tensor *s = &x->inputs[k].t, *t = &y->inputs[k].t;
        if (s->dtype != t->dtype || s->rank != t->rank || s->rank < 1 || strcmp(x->inputs[k].name, y->inputs[k].name) != 0 ||
            memcmp(&s->dims[1], &t->dims[1], (size_t)(s->rank - 1) * sizeof s->dims[0]) != 0)
            return false;
    }
    return true;
}

/* The first, and what can share its run: others are left to other workers. all: whatever waits. */
static size_t take_waiting(serve_model *m, serve_job **ret, size_t most, bool all)
{
    size_t n = 0;
    serve_job **at = &m->first;
    while (*at && n < most) {
        serve_job *job = *at;
        if (!all && n && !goes_with(ret[0], job)) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        job->next = NULL;
        job->place = SERVE_TAKEN;
        ret[n++] = job;
        m->waiting--;
    }
    if (!*at)
        m->last = at;
    return n;
}

static size_t take_for_run(serve_model *m, serve_job **ret)
{
    if (m->state != SERVE_OPEN)
        return take_waiting(m, ret, SERVE_BATCH_MAX, true);
    size_t most = !m->batches || m->mixing ? 1 : m->trials < SERVE_TRIALS ? SERVE_TRIAL_MOST : SERVE_BATCH_MAX;
    return take_waiting(m, ret, most, false);
}

static void tell(serve_pool *p, serve_model *m, serve_job *job)
{
    pst_serving_answer a = {.status = 200};
    if (job->what == PST_SERVING_METADATA) {
        json_t *doc = oip_metadata(m->found.name, p->source.versions(p->source.arg, m->found.name), m->info);
        pst_json_add(&a.body, doc);
        json_decref(doc);
    } else {
        pst_buf_printf(&a.body, "{\"name\":\"%s\",\"ready\":true}", m->found.name);
    }
    finish(p, m->meters, job, &a);
}

/* What can be answered without a run is; the others stay, matched. */
static size_t prepare(serve_pool *p, serve_model *m, const pst_err *unusable, serve_job **jobs, size_t n)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        serve_job *job = jobs[i];
        pst_err err = {0};
        if (unusable->code) {
            pst_serving_answer a;
            bool outage = unusable->cls == PST_CLASS_RETRY;
            int status = outage ? 503 : unusable->cls == PST_CLASS_DATA ? 422 : 500;
            serve_answer_error(status, outage ? 2 : 0, &a, "model %s version %d cannot be served: %s", m->found.name, m->found.version,
                               unusable->text);
            finish(p, m->meters, job, &a);
            continue;
        }
        if (job->deadline_us <= pst_mono_us()) {
            pst_err_set(&err, PST_ETIMEDOUT, PST_CLASS_DATA, "serve", 0, "the request's time was over before model %s could run",
                        m->found.name);
            finish_err(p, m->meters, job, &err);
            continue;
        }
        if (job->what != PST_SERVING_INFER) {
            tell(p, m, job);
            continue;
        }
        pst_metric_observe(m->meters->queue, (double)(pst_mono_us() - job->asked_us) / 1e6);
        job->inputs = pst_alloc((m->info->n_inputs + 1) * sizeof *job->inputs);
        if (oip_match(job->request, m->info, job->inputs, &err) < 0)
            finish_err(p, m->meters, job, &err);
        else
            jobs[left++] = job;
    }
    return left;
}

/* With the lock, which it lets go of meanwhile; m->running holds the model. */
static void serve_line(serve_pool *p, serve_model *m, int worker)
{
    serve_job *jobs[SERVE_BATCH_MAX];
    m->running++;
    settle(p, m);
    pst_err unusable = {0};
    if (m->state == SERVE_UNUSABLE)
        unusable = m->unusable;
    size_t n = take_for_run(m, jobs);
    if (m->first)
        pthread_cond_signal(&p->work); /* for another worker */
    pthread_mutex_unlock(&p->lock);
    worker_model w = {p, m};
    n = prepare(p, m, &unusable, jobs, n);
    serve_batch_run(&(serve_run){m, worker, is_over, p, answer, &w}, jobs, n);
    pthread_mutex_lock(&p->lock);
    m->running--;
    m->used_us = pst_mono_us();
    if (m->first)
        pthread_cond_signal(&p->work);
}

static serve_model *longest_waiting(const serve_pool *p)
{
    serve_model *best = NULL;
    int most = p->n_workers > 2 ? p->n_workers - 2 : 1; /* one only reads, one is kept for the others */
    for (serve_model *m = p->models; m; m = m->next)
        if (m->first && m->state != SERVE_OPENING && m->running < most && (!best || m->first->lined_us < best->first->lined_us))
            best = m;
    return best;
}

static void *work(void *arg)
{
    struct serve_worker *me = arg;
    serve_pool *p = me->p;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        if (!me->number)
            look_at_the_time(p);
        if (p->stop) /* asked behind what lets go of the lock: who is told to stop meanwhile would not be woken again */
            break;
        serve_model *m = me->number ? longest_waiting(p) : NULL;
        if (p->first && (!m || pst_mono_us() - m->first->lined_us < COMPANY_US)) {
            serve_job *job = p->first;
            p->first = job->next;
            if (!p->first)
                p->last = &p->first;
            job->next = NULL;
            job->place = SERVE_TAKEN;
            p->raw--;
            pthread_mutex_unlock(&p->lock);
            read_job(p, job);
            pthread_mutex_lock(&p->lock);
        } else if (m) {
            serve_line(p, m, me->number);
        } else if (me->number || !p->jobs) {
            pthread_cond_wait(me->number ? &p->work : &p->reading, &p->lock);
        } else {
            struct timespec until = pst_mono_at(pst_mono_us() + LOOK_US);
            pthread_cond_timedwait(&p->reading, &p->lock, &until);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- from outside ---------------------------------------------------------------------------------------------------------- */

int serve_pool_new(const pst_serving_conf *conf, const serve_source *source, serve_pool **ret_pool, pst_err *err)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int wanted = cpus + 2 < WORKERS_LEAST ? WORKERS_LEAST : cpus + 2 > SERVE_WORKERS_MAX ? SERVE_WORKERS_MAX : (int)cpus + 2;
    serve_pool *p = pst_alloc(sizeof *p);
    p->conf = *conf;
    p->source = *source;
    p->last = &p->first;
    pthread_mutex_init(&p->lock, NULL);
    pst_cond_init(&p->work);
    pst_cond_init(&p->reading);
    p->open_models = pst_metric_of(conf->metrics, PST_METRIC_SERVING_MODELS, NULL);
    p->open_bytes = pst_metric_of(conf->metrics, PST_METRIC_SERVING_BYTES, NULL);
    pthread_mutex_lock(&p->lock); /* n_workers is looked at by the first of them */
    for (int i = 0; i < wanted; i++) {
        p->workers[i] = (struct serve_worker){.p = p, .number = i};
        if (pst_thread_start(&p->workers[i].thread, i ? "serve" : "serve-read", work, &p->workers[i]))
            break;
        p->n_workers++;
    }
    int n = p->n_workers;
    pthread_mutex_unlock(&p->lock);
    if (n < 2) {
        serve_pool_free(p);
        return pst_err_set(err, PST_EIO, PST_CLASS_FATAL, "sys", 0, "cannot start the threads that serve models");
    }
    *ret_pool = p;
    return 0;
}

/* Called by the event loop: nothing is read or looked up here. The body's bytes are counted from now on until the job is freed, whoever answers it. */
bool serve_pool_ask(serve_pool *p, const pst_serving_ask *ask, pst_serving_answered fn, void *arg, pst_serving_answer *ret_now)
{
    const char *at = strchr(ask->model, '@');
    pst_buf body = ask->body;
    if (at && (ask->version || !at[1])) {
        pst_buf_done(&body);
        serve_answer_error(400, 0, ret_now,
                           ask->version ? "%.200s names an alias, and the path a version: one of them is enough"
                                        : "%.200s names no alias behind its @",
                           ask->model);
        return false;
    }
    serve_job *job = pst_alloc(sizeof *job);
    *job = (serve_job){.what = ask->what, .version = ask->version, .body = body, .json_len = ask->json_len, .fn = fn, .arg = arg};
    job->name = at ? pst_strndup(ask->model, (size_t)(at - ask->model)) : pst_strdup(ask->model);
    job->alias = at ? pst_strdup(at + 1) : NULL;
    job->asked_us = pst_mono_us();
    job->deadline_us = job->asked_us + (int64_t)p->conf.ms_max * 1000;
    pthread_mutex_lock(&p->lock);
    bool room = p->held_jobs + body.len <= SERVE_HELD_MAX, fits = room && p->jobs < SERVE_JOBS_MAX && !p->stop;
    if (fits) {
        job->place = SERVE_RAW;
        job->held = body.len;
        p->held_jobs += body.len;
        *p->last = job;
        p->last = &job->next;
        p->raw++;
        p->jobs++;
        job->after = p->all;
        if (p->all)
            p->all->before = job;
        p->all = job;
        pthread_cond_signal(&p->work);
        pthread_cond_signal(&p->reading);
    }
    pthread_mutex_unlock(&p->lock);
    if (!fits) {
        job_free(job);
        if (!room)
            serve_answer_error(503, 1, ret_now, HELD_FULL, SERVE_HELD_MAX >> 20);
        else
            serve_answer_error(503, 1, ret_now, "so many requests wait already as there may be (%d); ask again later", SERVE_JOBS_MAX);
    }
    return fits;
}

void serve_pool_dump(serve_pool *p, json_t *to)
{
    json_t *models = json_array();
    pthread_mutex_lock(&p->lock);
    for (const serve_model *m = p->models; m; m = m->next)
        json_array_append_new(models,
                              json_pack("{s:s, s:i, s:b, s:I, s:i, s:I, s:b}", "model", m->found.name, "version", m->found.version, "open",
                                        m->state == SERVE_OPEN, "waiting", (json_int_t)m->waiting, "running", m->running, "bytes",
                                        (json_int_t)m->charge, "batches", m->state == SERVE_OPEN && m->batches && !m->mixing));
    json_object_set_new(to, "serving",
                        json_pack("{s:I, s:I, s:I, s:i, s:o}", "requests", (json_int_t)p->jobs, "request_bytes", (json_int_t)p->held_jobs,
                                  "unread", (json_int_t)p->raw, "workers", p->n_workers, "models", models));
    pthread_mutex_unlock(&p->lock);
}

/* Workers first: what they hold they finish themselves; then what nobody took is answered, so that every request is, once. */
void serve_pool_free(serve_pool *p)
{
    if (!p)
        return;
    pst_err over = {0};
    pst_err_set(&over, PST_ESTOPPED, PST_CLASS_RETRY, "serve", 0, "the gateway ends; ask again");
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_cond_broadcast(&p->reading);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_workers; i++)
        pthread_join(p->workers[i].thread, NULL);
    for (serve_job *job = p->first, *next; job; job = next) {
        next = job->next;
        finish_err(p, NULL, job, &over);
    }
    for (serve_model *m = p->models, *after; m; m = after) {
        after = m->next;
        serve_job *jobs[SERVE_BATCH_MAX];
        for (size_t n; (n = take_waiting(m, jobs, SERVE_BATCH_MAX, true)) > 0;)
            for (size_t i = 0; i < n; i++)
                finish_err(p, NULL, jobs[i], &over);
        serve_model_free(m);
    }
    PST_ASSERT(!p->jobs);
    pst_map_done(&p->meters, free);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->reading);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
