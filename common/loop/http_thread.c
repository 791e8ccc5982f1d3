/* http_thread.c - a server with a loop and a thread of its own: /metrics, /health and /state for services whose main thread polls Kafka. It can
 * tell of a main thread that is stuck, which a server on that thread could not. */
#include "common/base/thread.h"
#include "common/loop/http.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATE_MS = 2000 };

struct pst_http_thread {
    pst_loop *loop;
    pst_http *server;
    pthread_t thread;
    bool started;
    pst_metrics *set;
    int (*health)(void *arg, pst_buf *why);
    void *health_arg;
    _Atomic(pst_dump *) dump; /* set after token_path */
    char *token_path;
};

int pst_http_listen_parse(const char *option, const char *text, char ret_host[PST_HTTP_HOST_MAX], int *ret_port, pst_err *err)
{
    const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
    size_t len = colon ? (size_t)(colon - text) : 0;
    char *end;
    long number = strtol(port, &end, 10);
    if (!isdigit((unsigned char)*port) || *end || number > 65535 || len >= PST_HTTP_HOST_MAX || (colon && !len))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--%s %.80s: expected PORT or ADDRESS:PORT", option, text);
    snprintf(ret_host, PST_HTTP_HOST_MAX, "%.*s", colon ? (int)len : (int)strlen("127.0.0.1"), colon ? text : "127.0.0.1");
    *ret_port = (int)number;
    return 0;
}

static void *run(void *arg)
{
    pst_http_thread *t = arg;
    pst_loop_run(t->loop);
    return NULL;
}

static int start(pst_http_thread *t, const pst_http_conf *conf, const pst_http_route *routes, size_t n, void *arg, pst_err *err)
{
    int rc = pst_loop_new(&t->loop, err);
    if (rc < 0)
        return rc;
    pst_loop_ignore_stop(t->loop);
    rc = pst_http_new(t->loop, conf, &t->server, err);
    if (rc < 0)
        return rc;
    pst_http_add_routes(t->server, routes, n, arg);
    sigset_t all, old; /* signals are for the main thread */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pst_thread_start(&t->thread, "http", run, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed)
        return pst_err_sys(err, failed, "starting the HTTP thread");
    t->started = true;
    return PST_OK;
}

int pst_http_thread_start(const pst_http_conf *conf, const pst_http_route *routes, size_t n, void *arg, pst_http_thread **ret_thread,
                          pst_err *err)
{
    pst_http_thread *t = pst_alloc(sizeof *t);
    int rc = start(t, conf, routes, n, arg, err);
    if (rc < 0) {
        pst_http_thread_stop(t);
        return rc;
    }
    *ret_thread = t;
    return PST_OK;
}

static void get_metrics(void *arg, pst_http_req *req)
{
    pst_http_thread *t = arg;
    pst_http_reply_metrics(req, t->set);
}

static void get_health(void *arg, pst_http_req *req)
{
    pst_http_thread *t = arg;
    pst_buf why = {0};
    int rc = t->health ? t->health(t->health_arg, &why) : 0;
    json_t *j = json_object();
    json_object_set_new(j, "status", json_string(rc == 0 ? "ok" : "failing"));
    if (why.len) {
        json_t *text = json_string(why.data);
        json_object_set_new(j, "detail", text ? text : json_string("(text that is not UTF-8)"));
    }
    pst_http_reply_json(req, rc == 0 ? 200 : 503, j);
    pst_buf_done(&why);
}

static void get_state(void *arg, pst_http_req *req)
{
    pst_http_thread *t = arg;
    pst_dump *d = atomic_load(&t->dump);
    if (!d)
        pst_http_problem(req, 404, "no-state", NULL, "this service does not tell its state");
    else if (pst_http_asks_token(req, t->token_path))
        pst_http_reply_dump(req, pst_dump_ask(d, STATE_MS));
}

static const pst_http_route routes[] = {
    {"GET", "/metrics", get_metrics, 0, 0, "Prometheus text."},
    {"GET", "/health", get_health, 0, 0, "200, or 503 and why."},
    {"GET", "/state", get_state, 0, 0,
     "What the service holds at this moment, for who shows the token; 503 when its loop does not come round."}};
enum { N_ROUTES = sizeof routes / sizeof *routes };
const pst_http_routes pst_http_thread_routes = {routes, N_ROUTES};

int pst_http_thread_metrics(const pst_http_conf *conf, pst_metrics *set, int (*health)(void *arg, pst_buf *why), void *arg,
                            pst_http_thread **ret_thread, pst_err *err)
{
    pst_http_thread *t = pst_alloc(sizeof *t);
    t->set = set;
    t->health = health;
    t->health_arg = arg;
    int rc = start(t, conf, routes, N_ROUTES, t, err);
    if (rc < 0) {
        pst_http_thread_stop(t);
        return rc;
    }
    *ret_thread = t;
    return PST_OK;
}

void pst_http_thread_set_dump(pst_http_thread *t, pst_dump *d, const char *token_path)
{
    PST_ASSERT(!atomic_load(&t->dump)); /* token_path is written once, before the server's thread can see dump */
    t->token_path = pst_strdup(token_path);
    atomic_store(&t->dump, d);
}

int pst_http_thread_port(const pst_http_thread *t)
{
    return pst_http_port(t->server);
}

void pst_http_thread_stop(pst_http_thread *t)
{
    if (!t)
        return;
    if (t->started) {
        pst_loop_stop(t->loop);
        pthread_join(t->thread, NULL);
    }
    pst_http_free(t->server);
    pst_loop_free(t->loop);
    free(t->token_path);
    free(t);
}
