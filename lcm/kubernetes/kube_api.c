/* kube_api.c - two threads and two queues. Requests are few and small, and their order is worth more than their number at a time: a pod before its
 * secret, the first of a gang before the second. The watch has a connection of its own, because it never ends by itself. */
#include "lcm/kubernetes/kube_api.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEARD_MAX    4096       /* more wait in the watch's connection */
#define LINE_MAX_    (8u << 20) /* one event; a pod has at most 1.5 MiB in etcd */
#define ANSWER_MAX   (64u << 20)
#define REQUEST_MS   15000
#define WATCH_S      290
#define STALL_S      150 /* bookmarks come about once a minute: so long without a byte, the connection is dead */
#define PAGE         500
#define AGAIN_MIN_MS 200
#define AGAIN_MAX_MS 5000

typedef struct asked {
    int64_t of;
    char *method, *path, *body;
} asked;

struct kube_api {
    const kube_access *access;
    char *watch;
    pthread_t threads[2];
    int n_threads;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping;
    asked *asked;
    size_t n_asked, cap_asked;
    kube_heard *heard;
    size_t first, n_heard, cap_heard; /* heard[first … n_heard) wait */
};

/* ---- between the threads -------------------------------------------------------------------------------------------------------------- */

static bool is_stopping(void *arg);

static void tell(kube_api *api, kube_heard *h)
{
    pthread_mutex_lock(&api->lock);
    while (!api->stopping && h->type != KUBE_ANSWERED && api->n_heard - api->first >= HEARD_MAX)
        pthread_cond_wait(&api->changed, &api->lock);
    api->heard = pst_array_room(api->heard, api->n_heard, &api->cap_heard, sizeof *api->heard);
    api->heard[api->n_heard++] = *h;
    pthread_mutex_unlock(&api->lock);
}

bool kube_api_hear(kube_api *api, kube_heard *ret)
{
    pthread_mutex_lock(&api->lock);
    bool there = api->first < api->n_heard;
    if (there)
        *ret = api->heard[api->first++];
    if (api->first == api->n_heard)
        api->first = api->n_heard = 0;
    pthread_cond_broadcast(&api->changed);
    pthread_mutex_unlock(&api->lock);
    return there;
}

void kube_api_ask(kube_api *api, int64_t of, const char *method, const char *path, json_t *take_body)
{
    asked q = {.of = of, .method = pst_strdup(method), .path = pst_strdup(path), .body = take_body ? pst_json_text(take_body) : NULL};
    json_decref(take_body);
    pthread_mutex_lock(&api->lock);
    api->asked = pst_array_room(api->asked, api->n_asked, &api->cap_asked, sizeof *api->asked);
    api->asked[api->n_asked++] = q;
    pthread_cond_broadcast(&api->changed);
    pthread_mutex_unlock(&api->lock);
}

/* Waits; true: go on. */
static bool pause_ms(kube_api *api, int ms)
{
    struct timespec until = pst_mono_at(pst_mono_us() + (int64_t)ms * 1000);
    int rc = 0;
    pthread_mutex_lock(&api->lock);
    while (!api->stopping && !rc)
        rc = pthread_cond_timedwait(&api->changed, &api->lock, &until);
    bool on = !api->stopping;
    pthread_mutex_unlock(&api->lock);
    return on;
}

static bool is_stopping(void *arg)
{
    kube_api *api = arg;
    pthread_mutex_lock(&api->lock);
    bool stopping = api->stopping;
    pthread_mutex_unlock(&api->lock);
    return stopping;
}

/* ---- requests -------------------------------------------------------------------------------------------------------------------------- */

typedef struct answering {
    kube_api *api;
    pst_buf body;
    int wait_s;
} answering;

static bool take_answer(void *arg, const void *data, size_t len)
{
    answering *a = arg;
    if (a->body.len + len > ANSWER_MAX)
        return false;
    pst_buf_add(&a->body, data, len);
    return true;
}

static void take_header(void *arg, const char *name, const char *value)
{
    answering *a = arg;
    if (!strcasecmp(name, "Retry-After"))
        a->wait_s = atoi(value) > 0 && atoi(value) <= 600 ? atoi(value) : 0;
}

static bool answering_stopped(void *arg)
{
    return is_stopping(((answering *)arg)->api);
}

static void call(kube_api *api, pst_fetch *f, const char *method, const char *path, const char *body, kube_heard *ret)
{
    answering a = {.api = api};
    pst_fetch_answer answer;
    kube_call(
        api->access, f, method, path,
        &(kube_call_as){
            .body = body, .take = take_answer, .header = take_header, .stopped = answering_stopped, .arg = &a, .timeout_ms = REQUEST_MS},
        &answer);
    ret->status = answer.end == PST_FETCH_ANSWERED ? answer.status : 0;
    ret->wait_s = a.wait_s;
    if (ret->status)
        ret->json = a.body.len ? json_loadb(a.body.data, a.body.len, 0, NULL) : NULL;
    else
        snprintf(ret->why, sizeof ret->why, "%s cannot be reached: %.200s", api->access->server, answer.why);
    pst_buf_done(&a.body);
}

static void asked_done(asked *q)
{
    if (q->body)
        explicit_bzero(q->body, strlen(q->body)); /* of a secret */
    free(q->body);
    free(q->method);
    free(q->path);
}

static bool next_asked(kube_api *api, asked *ret)
{
    pthread_mutex_lock(&api->lock);
    while (!api->n_asked && !api->stopping)
        pthread_cond_wait(&api->changed, &api->lock);
    bool there = !api->stopping;
    if (there) {
        *ret = api->asked[0];
        memmove(api->asked, api->asked + 1, --api->n_asked * sizeof *api->asked);
    }
    pthread_mutex_unlock(&api->lock);
    return there;
}

static void *run_asks(void *arg)
{
    kube_api *api = arg;
    pst_fetch *f = NULL;
    asked q;
    if (pst_fetch_open(&f, NULL) < 0) /* it was opened before: kube_api_open() */
        return NULL;
    while (next_asked(api, &q)) {
        kube_heard h = {.type = KUBE_ANSWERED, .of = q.of};
        call(api, f, q.method, q.path, q.body, &h);
        asked_done(&q);
        tell(api, &h);
    }
    pst_fetch_close(f);
    return NULL;
}

/* ---- the watch ------------------------------------------------------------------------------------------------------------------------- */

typedef struct watching {
    kube_api *api;
    pst_fetch *fetch;
    pst_buf line;
    char version[128]; /* resourceVersion; "" = a list comes first */
    bool heard;        /* anything in this connection */
    int again_ms;
    char said[300]; /* of what keeps us from watching */
} watching;

static void unreachable(watching *w, const char *why)
{
    if (!strcmp(w->said, why))
        return;
    kube_heard h = {.type = KUBE_UNREACHABLE};
    snprintf(h.why, sizeof h.why, "%s", why);
    snprintf(w->said, sizeof w->said, "%s", why);
    tell(w->api, &h);
}

static void set_version(watching *w, const json_t *meta)
{
    const char *v = pst_json_str(meta, "resourceVersion", "");
    if (*v && strlen(v) < sizeof w->version && strspn(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(v))
        snprintf(w->version, sizeof w->version, "%s", v);
}

/* All pages, or nothing. */
static bool list(watching *w)
{
    json_t *all = json_array();
    char *next = pst_strdup("");
    bool ok = true;
    do {
        kube_heard page = {0};
        char *coded = pst_fetch_escape(next, ""), why[300];
        char *path = pst_sprintf("%s&limit=%d%s%s", w->api->watch, PAGE, *coded ? "&continue=" : "", coded);
        call(w->api, w->fetch, "GET", path, NULL, &page);
        free(coded);
        free(path);
        free(next);
        const json_t *meta = json_object_get(page.json, "metadata");
        next = pst_strdup(pst_json_str(meta, "continue", ""));
        ok = page.status == 200 && json_is_array(json_object_get(page.json, "items"));
        if (ok) {
            json_array_extend(all, json_object_get(page.json, "items"));
            set_version(w, meta);
        } else {
            snprintf(why, sizeof why, "pods cannot be listed: %.100s%.150s", page.status ? "" : page.why,
                     page.status ? pst_json_str(page.json, "message", "the answer is no list") : "");
            unreachable(w, why);
        }
        json_decref(page.json);
    } while (ok && *next && !is_stopping(w->api));
    free(next);
    ok = ok && *w->version;
    if (ok)
        tell(w->api, &(kube_heard){.type = KUBE_LISTED, .json = all});
    else
        json_decref(all);
    return ok;
}

/* An ERROR event is a Status (410: what we ask to go on from is forgotten); after any of them only a list is known to be true. Takes the object. */
static void take_event(watching *w, const char *type, json_t *object)
{
    bool deleted = !strcmp(type, "DELETED"), of_pod = deleted || !strcmp(type, "ADDED") || !strcmp(type, "MODIFIED");
    if (!strcmp(type, "ERROR"))
        *w->version = 0;
    else
        set_version(w, json_object_get(object, "metadata"));
    if (of_pod)
        tell(w->api, &(kube_heard){.type = deleted ? KUBE_DELETED : KUBE_CHANGED, .json = object});
    else
        json_decref(object);
}

static void take_line(watching *w)
{
    json_t *event = json_loadb(w->line.data, w->line.len, 0, NULL);
    pst_buf_clear(&w->line);
    char type[16] = "";
    json_t *object = json_incref(json_object_get(event, "object"));
    snprintf(type, sizeof type, "%s", pst_json_str(event, "type", ""));
    json_decref(event); /* before the object goes to another thread */
    if (object) {
        w->heard = true;
        take_event(w, type, object);
    }
}

static bool take_stream(void *arg, const void *data, size_t len)
{
    watching *w = arg;
    for (const char *p = data, *end = p + len; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl ? nl : end) - p);
        if (w->line.len + n > LINE_MAX_)
            return false;
        pst_buf_add(&w->line, p, n);
        if (nl && w->line.len)
            take_line(w);
        p += n + (nl != NULL);
    }
    return true;
}

static bool watching_stopped(void *arg)
{
    return is_stopping(((watching *)arg)->api);
}

/* True: go on at once; false: something is wrong, and asking again at once would not help. */
static bool watch(watching *w)
{
    char *path =
        pst_sprintf("%s&watch=1&allowWatchBookmarks=true&timeoutSeconds=%d&resourceVersion=%s", w->api->watch, WATCH_S, w->version);
    char why[300];
    pst_fetch_answer answer;
    w->heard = false;
    pst_buf_clear(&w->line);
    kube_call(w->api->access, w->fetch, "GET", path,
              &(kube_call_as){.take = take_stream, .stopped = watching_stopped, .arg = w, .stall_s = STALL_S}, &answer);
    free(path);
    if (answer.end == PST_FETCH_ANSWERED && answer.status == 200 && w->line.len)
        take_line(w); /* the last one without its end: whole, or no JSON */
    if (answer.status == 410)
        *w->version = 0;
    if (w->heard || answer.status == 410)
        return true;
    if (answer.status != 200) {
        snprintf(why, sizeof why, "pods cannot be watched: %.200s",
                 answer.end == PST_FETCH_ANSWERED ? "the API server refuses it" : answer.why);
        unreachable(w, why);
    }
    return false;
}

static void *run_watch(void *arg)
{
    watching w = {.api = arg, .again_ms = AGAIN_MIN_MS};
    if (pst_fetch_open(&w.fetch, NULL) < 0)
        return NULL;
    while (!is_stopping(w.api)) {
        bool ok = *w.version || list(&w);
        if (ok) {
            *w.said = 0;
            ok = watch(&w);
        }
        w.again_ms = ok ? AGAIN_MIN_MS : w.again_ms * 2;
        if (w.again_ms > AGAIN_MAX_MS)
            w.again_ms = AGAIN_MAX_MS;
        if (!pause_ms(w.api, w.again_ms / 2)) /* also where all went well: a server that hangs up at once is not to be asked in a circle */
            break;
    }
    pst_buf_done(&w.line);
    pst_fetch_close(w.fetch);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------------------------------------------------ */

int kube_api_open(const kube_access *access, const char *watch_path, kube_api **ret_api, pst_err *err)
{
    static void *(*const runs[])(void *) = {run_asks, run_watch};
    static const char *const names[] = {"kube-ask", "kube-watch"};
    pst_fetch *f = NULL;
    int rc = pst_fetch_open(&f, err); /* libcurl is there: the threads need not say it */
    if (rc < 0)
        return rc;
    pst_fetch_close(f);
    kube_api *api = pst_alloc(sizeof *api);
    api->access = access;
    api->watch = pst_strdup(watch_path);
    pthread_mutex_init(&api->lock, NULL);
    pst_cond_init(&api->changed);
    for (; api->n_threads < 2 && !rc; api->n_threads += !rc) {
        int failed = pst_thread_start(&api->threads[api->n_threads], names[api->n_threads], runs[api->n_threads], api);
        if (failed)
            rc = pst_err_sys(err, failed, "cannot start a thread for the API server");
    }
    if (rc < 0) {
        kube_api_close(api);
        return rc;
    }
    *ret_api = api;
    return 0;
}

void kube_api_close(kube_api *api)
{
    if (!api)
        return;
    pthread_mutex_lock(&api->lock);
    api->stopping = true;
    pthread_cond_broadcast(&api->changed);
    pthread_mutex_unlock(&api->lock);
    for (int i = 0; i < api->n_threads; i++)
        pthread_join(api->threads[i], NULL);
    for (size_t i = 0; i < api->n_asked; i++)
        asked_done(&api->asked[i]);
    for (size_t i = api->first; i < api->n_heard; i++)
        json_decref(api->heard[i].json);
    pthread_mutex_destroy(&api->lock);
    pthread_cond_destroy(&api->changed);
    free(api->asked);
    free(api->heard);
    free(api->watch);
    free(api);
}
