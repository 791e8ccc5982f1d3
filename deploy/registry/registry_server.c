/* registry_server.c - the registry as a running thing: HTTP in, the core decides, the log writes and reads. Everything here runs on the loop's thread.
 *
 * A request that needs a write: its records are produced, and it is answered once our own reader has seen them (read your writes, and what is
 * answered is what a restart will find). One at a time; others queue. A write whose outcome is unknown (no broker) is answered with 503 and 50002,
 * and before the next one a NOOP is written and awaited, so that ids are never chosen from a state that may still change behind our back.
 *
 * Two registries on one topic would give one id to two schemas. So each start writes a NOOP marked "<instance> claim"; a living instance that
 * reads a foreign claim after its own answers "alive", and the newcomer leaves, unless it came with --force: then the old one leaves. */
#include "deploy/registry/registry_server.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "deploy/registry/registry_core.h"
#include "deploy/registry/registry_log.h"
#include "deploy/registry/registry_routes.h"
#include "schemas/metric_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_MAX 256
#define DRAIN_US  1500000 /* what writes under way get when the service stops */

typedef struct waiter {
    struct waiter *next;
    pst_http_req *req; /* NULL: answered already (too late), or the barrier */
    rcore_reply reply;
    size_t acks_left;
    bool failed;
    int64_t offset; /* of its last record, once acknowledged */
    int64_t until_us;
} waiter;

struct rserver {
    pst_loop *loop;
    pst_http *http;
    rlog *log;
    rcore *core;
    pst_metrics *metrics;
    pst_metric *m_requests, *m_writes, *m_failures, *m_subjects, *m_schemas;
    pst_timer *tick;
    void (*fatal)(void *arg);
    void *fatal_arg;
    pst_err failure, trouble;
    char *user, *password;
    char instance[37];
    char *token_path;
    pst_dump *dump;
    bool force, embedded, topic_ready, ready, claim_seen, barrier_needed, draining;
    int64_t applied; /* offset of the last record that went through apply */
    int64_t write_timeout_us, alive_us;
    uint64_t token; /* of the write under way */
    waiter *current;
    waiter *first, **last;
    size_t queued;
};

static void next_write(rserver *s);

/* ---- answers --------------------------------------------------------------------------------------------------------------- */

static void answer(rserver *s, pst_http_req *req, const rcore_reply *r)
{
    pst_buf b = {0};
    if (r->text)
        pst_buf_adds(&b, r->text);
    else
        pst_json_add(&b, r->body);
    if (r->status == 503)
        pst_http_add_header(req, "Retry-After", "2");
    pst_http_reply(req, r->status, PST_REGISTRY_MEDIA_TYPE, b.data, b.len);
    pst_buf_done(&b);
}

static void answer_away(rserver *s, pst_http_req *req, const char *what)
{
    rcore_reply r = {0};
    pst_metric_add(s->m_failures, 1);
    if (s->trouble.code)
        rcore_reply_error(&r, 503, 50002, "%s: %s", what, s->trouble.text);
    else
        rcore_reply_error(&r, 503, 50002, "%s", what);
    answer(s, req, &r);
    rcore_reply_done(&r);
}

static void waiter_free(waiter *w)
{
    rcore_reply_done(&w->reply);
    free(w);
}

static void fail(rserver *s, const pst_err *err)
{
    if (s->failure.code)
        return;
    s->failure = *err;
    s->fatal(s->fatal_arg);
}

/* ---- one write at a time --------------------------------------------------------------------------------------------------- */

/* Answers the write under way, if its client still waits. After a failure the state may yet change behind our back: a barrier comes next. */
static void finish(rserver *s)
{
    waiter *w = s->current;
    PST_ASSERT(w && !w->acks_left);
    s->current = NULL;
    s->token++;
    if (w->failed)
        s->barrier_needed = true;
    if (w->req && w->failed)
        answer_away(s, w->req, "the write was not acknowledged by the broker");
    else if (w->req)
        answer(s, w->req, &w->reply);
    waiter_free(w);
}

/* Ends the write under way once all is acknowledged and our reader has seen the last record of it. */
static void check_current(rserver *s)
{
    waiter *w = s->current;
    if (!w || w->acks_left || (!w->failed && w->offset > s->applied))
        return;
    bool barrier = !w->reply.n_writes, failed = w->failed;
    finish(s);
    if (barrier && !failed) {
        s->barrier_needed = false;
        if (!s->ready) {
            size_t n[3];
            rcore_counts(s->core, n);
            pst_log(PST_LOG_INFO, "registry", "event=ready subjects=%zu versions=%zu schemas=%zu offset=%lld", n[0], n[1], n[2],
                    (long long)s->applied);
        }
        s->ready = true;
    }
    if (!failed) /* else the next tick tries again: no sooner, the broker may be away */
        next_write(s);
}

/* Writes the records of w, or, where it has none, the barrier. */
static void start(rserver *s, waiter *w)
{
    PST_ASSERT(!s->current && s->topic_ready); /* one write at a time: ids are chosen from the state */
    static const rcore_write noop = {(char *)(uintptr_t)PST_RKEY_NOOP, NULL};
    char mark[64];
    bool barrier = !w->reply.n_writes;
    const rcore_write *writes = barrier ? &noop : w->reply.writes;
    size_t n = barrier ? 1 : w->reply.n_writes;
    snprintf(mark, sizeof mark, "%s %s", s->instance, s->force ? "force" : "claim");
    s->current = w;
    w->acks_left = n;
    pst_metric_add(s->m_writes, (double)n);
    for (size_t i = 0; i < n; i++) {
        pst_err err = {0};
        if (rlog_write(s->log, s->token, writes[i].key, writes[i].value, barrier ? mark : NULL, &err) < 0) {
            w->failed = true;
            w->acks_left -= n - i; /* those before are still under way */
            s->trouble = err;
            break;
        }
    }
    pst_timer_again(s->tick, 1000);
}

/* The next waiter whose request still needs a write; those that do not any more are answered on the way. */
static void next_write(rserver *s)
{
    if (!s->topic_ready || s->current)
        return;
    if (s->barrier_needed) {
        waiter *w = pst_alloc(sizeof *w);
        w->until_us = INT64_MAX;
        start(s, w);
        return;
    }
    while (s->first && !s->current) {
        waiter *w = s->first;
        rcore_request q;
        s->first = w->next;
        if (!s->first)
            s->last = &s->first;
        PST_ASSERT(s->queued);
        s->queued--;
        registry_request(w->req, &q);
        rcore_handle(s->core, &q, &w->reply); /* asked again: the write before it may have changed the answer */
        if (w->reply.n_writes) {
            start(s, w);
        } else {
            answer(s, w->req, &w->reply);
            waiter_free(w);
        }
    }
}

static void expire(rserver *s)
{
    int64_t now = pst_mono_us();
    if (s->current && s->current->req && now > s->current->until_us) {
        answer_away(s, s->current->req, "the write did not come through in time; it may still do");
        s->current->req = NULL;
    }
    while (s->first && now > s->first->until_us) { /* all wait equally long, so the first is the oldest */
        waiter *w = s->first;
        s->first = w->next;
        if (!s->first)
            s->last = &s->first;
        PST_ASSERT(s->queued && w->req);
        s->queued--;
        answer_away(s, w->req, "the topic cannot be written at this moment");
        waiter_free(w);
    }
}

static void on_tick(void *arg)
{
    rserver *s = arg;
    if (s->log)
        rlog_poll(s->log);
    check_current(s);
    expire(s);
    next_write(s);
    pst_timer_again(s->tick, s->current ? 2000 : 250000);
}

/* ---- the log's side -------------------------------------------------------------------------------------------------------- */

static void on_topic_ready(void *arg)
{
    rserver *s = arg;
    s->topic_ready = s->barrier_needed = true;
    next_write(s);
}

static void on_ack(void *arg, uint64_t token, int64_t offset, const char *failure)
{
    rserver *s = arg;
    waiter *w = s->current;
    if (!w || token != s->token || !w->acks_left)
        return;
    w->acks_left--;
    if (failure) {
        pst_err err = {0};
        pst_err_set(&err, PST_EUNREACH, PST_CLASS_RETRY, "kafka", 0, "%s", failure);
        s->trouble = err;
        pst_log_err("registry", &err);
        w->failed = true;
    } else if (offset > w->offset) {
        w->offset = offset;
    }
}

static void tell_alive(rserver *s)
{
    char mark[64];
    pst_err ignored = {0};
    if (s->draining || pst_mono_us() - s->alive_us < 100000)
        return;
    s->alive_us = pst_mono_us();
    snprintf(mark, sizeof mark, "%s alive", s->instance);
    rlog_write(s->log, 0, PST_RKEY_NOOP, NULL, mark, &ignored);
}

/* Another registry's claim, or an answer to ours: see the top of the file. */
static void on_mark(rserver *s, const char *mark)
{
    const char *word = strchr(mark, ' ');
    if (!word)
        return;
    bool ours = !strncmp(mark, s->instance, 36);
    pst_err err = {0};
    word++;
    if (ours) {
        s->claim_seen |= !strcmp(word, "claim") || !strcmp(word, "force");
    } else if (!s->claim_seen) {
        return; /* history */
    } else if (!strcmp(word, "claim")) {
        tell_alive(s);
    } else if (!strcmp(word, "alive") && !s->force) {
        pst_err_set(&err, PST_EEXIST, PST_CLASS_FATAL, "registry", 0,
                    "another registry is at work on this topic; stop it, use its address, or take over with --force");
        fail(s, &err);
    } else if (!strcmp(word, "force")) {
        pst_err_set(&err, PST_EFENCED, PST_CLASS_FATAL, "registry", 0, "another registry took this topic over with --force");
        fail(s, &err);
    }
}

static void on_records(void *arg, const rlog_record *records, size_t n)
{
    rserver *s = arg;
    for (size_t i = 0; i < n; i++) {
        const rlog_record *r = &records[i];
        pst_err err = {0};
        if (r->offset <= s->applied) {
            pst_log_limited(PST_LOG_WARN, "registry", "topic_began_anew", "event=topic_began_anew offset=%lld had=%lld",
                            (long long)r->offset, (long long)s->applied);
            rcore_clear(s->core);
        }
        s->applied = r->offset;
        if (*r->mark)
            on_mark(s, r->mark);
        if (rcore_apply(s->core, r->key, r->key_len, r->value, r->value_len, &err) < 0)
            pst_log_limited(PST_LOG_WARN, "registry", "record_skipped", "event=record_skipped offset=%lld reason=\"%s\"",
                            (long long)r->offset, err.text);
    }
    s->trouble.code = 0;
    size_t counts[3];
    rcore_counts(s->core, counts);
    pst_metric_set(s->m_subjects, (double)counts[0]);
    pst_metric_set(s->m_schemas, (double)counts[2]);
    if (s->topic_ready)
        rlog_poll(s->log);
    check_current(s);
}

static void on_trouble(void *arg, const pst_err *err)
{
    rserver *s = arg;
    s->trouble = *err;
    if (err->cls == PST_CLASS_FATAL)
        fail(s, err);
    else
        pst_log_err("registry", err);
}

/* ---- HTTP ------------------------------------------------------------------------------------------------------------------ */

static void on_request(void *arg, pst_http_req *req)
{
    rserver *s = arg;
    rcore_request q;
    pst_metric_add(s->m_requests, 1);
    if (!s->ready) {
        answer_away(s, req, s->topic_ready ? "this registry is still reading its topic" : "this registry waits for its broker");
        return;
    }
    waiter *w = pst_alloc(sizeof *w);
    w->req = req;
    w->until_us = pst_mono_us() + s->write_timeout_us;
    registry_request(req, &q);
    rcore_handle(s->core, &q, &w->reply);
    if (!w->reply.n_writes) {
        answer(s, req, &w->reply);
        waiter_free(w);
    } else if (!s->current && !s->first && !s->barrier_needed) {
        start(s, w);
    } else if (s->queued >= QUEUE_MAX) {
        answer_away(s, req, "too many writes are waiting");
        waiter_free(w);
    } else {
        rcore_reply_done(&w->reply);
        *s->last = w;
        s->last = &w->next;
        s->queued++;
        next_write(s);
    }
}

static bool may_enter(void *arg, pst_http_req *req)
{
    rserver *s = arg;
    char *user = NULL, *password = NULL;
    if (!s->user || !strcmp(pst_http_pattern(req), "/health"))
        return true;
    bool ok = pst_http_basic(req, &user, &password) == PST_OK && (!*s->user || pst_secret_equal(user, s->user)) &&
              pst_secret_equal(password, s->password);
    free(user);
    free(password);
    if (ok)
        return true;
    rcore_reply r = {0};
    rcore_reply_error(&r, 401, 401, "Unauthorized: this registry asks for a user and a password");
    pst_http_add_header(req, "WWW-Authenticate", "Basic realm=\"schema registry\"");
    answer(s, req, &r);
    rcore_reply_done(&r);
    return false;
}

static void on_unrouted(void *arg, pst_http_req *req, int status)
{
    rcore_reply r = {0};
    rcore_reply_error(&r, status, status, "HTTP %d %s", status, pst_http_status_text(status));
    answer(arg, req, &r);
    rcore_reply_done(&r);
}

static void on_health(void *arg, pst_http_req *req)
{
    rserver *s = arg;
    json_t *j = json_object();
    json_object_set_new(j, "status", json_string(s->ready ? "ok" : "starting"));
    json_object_set_new(j, "offset", json_integer(s->applied));
    if (s->trouble.code)
        json_object_set_new(j, "trouble", json_string(s->trouble.text));
    pst_http_reply_json(req, s->ready ? 200 : 503, j);
}

static void on_metrics(void *arg, pst_http_req *req)
{
    rserver *s = arg;
    pst_http_reply_metrics(req, s->metrics);
}

/* Who has the password may; where none is asked for, who has the token. */
static void on_state(void *arg, pst_http_req *req)
{
    rserver *s = arg;
    if (!s->dump || !s->token_path)
        pst_http_problem(req, 404, "no-state", NULL, "this registry does not tell its state");
    else if (s->user || pst_http_asks_token(req, s->token_path))
        pst_http_reply_dump(req, pst_dump_now(s->dump));
}

static const pst_http_route own_routes[] = {
    {"GET", "/health", on_health, 0, 0, "200 once its topic is read."},
    {"GET", "/metrics", on_metrics, 0, 0, "Prometheus text."},
    {"GET", "/state", on_state, 0, 0,
     "What the registry holds at this moment, for who has its password; where it has none, for who shows the state folder's token."}};
enum { N_OWN_ROUTES = sizeof own_routes / sizeof *own_routes };
const pst_http_routes pst_registry_own_routes = {own_routes, N_OWN_ROUTES};

void rserver_dump(void *arg, json_t *to)
{
    const rserver *s = arg;
    size_t n[3];
    rcore_counts(s->core, n);
    json_object_set_new(to, "ready", json_boolean(s->ready));
    json_object_set_new(to, "topic_ready", json_boolean(s->topic_ready));
    json_object_set_new(to, "applied_offset", json_integer(s->applied));
    json_object_set_new(to, "subjects", json_integer((json_int_t)n[0]));
    json_object_set_new(to, "versions", json_integer((json_int_t)n[1]));
    json_object_set_new(to, "schemas", json_integer((json_int_t)n[2]));
    json_object_set_new(to, "writes_waiting", json_integer((json_int_t)s->queued));
    json_object_set_new(to, "barrier_needed", json_boolean(s->barrier_needed));
    json_object_set_new(to, "trouble", s->trouble.code ? json_string(s->trouble.text) : json_null());
    json_object_set_new(to, "write",
                        s->current ? json_pack("{s:I, s:I, s:b}", "acknowledgements_left", (json_int_t)s->current->acks_left, "offset",
                                               (json_int_t)s->current->offset, "failed", s->current->failed)
                                   : json_null());
    pst_http_dump(s->http, to);
}

void rserver_set_dump(rserver *s, pst_dump *d)
{
    s->dump = d;
    pst_loop_set_dump(s->loop, d);
}

static rserver *alloc(pst_loop *l, const rserver_conf *conf)
{
    rserver *s = pst_alloc(sizeof *s);
    s->loop = l;
    s->force = conf->force;
    s->embedded = conf->embedded;
    s->last = &s->first;
    s->token = 1;
    s->applied = -1;
    s->write_timeout_us = (int64_t)(conf->write_timeout_ms ? conf->write_timeout_ms : 5000) * 1000;
    s->user = pst_strdup(conf->user);
    s->password = pst_strdup(conf->password ? conf->password : "");
    s->token_path = pst_strdup(conf->token_path);
    s->core = rcore_new();
    s->metrics = pst_metrics_new();
    s->m_requests = pst_metric_of(s->metrics, PST_METRIC_REGISTRY_REQUESTS, NULL);
    s->m_writes = pst_metric_of(s->metrics, PST_METRIC_REGISTRY_WRITES, NULL);
    s->m_failures = pst_metric_of(s->metrics, PST_METRIC_REGISTRY_FAILURES, NULL);
    s->m_subjects = pst_metric_of(s->metrics, PST_METRIC_REGISTRY_SUBJECTS, NULL);
    s->m_schemas = pst_metric_of(s->metrics, PST_METRIC_REGISTRY_SCHEMAS, NULL);
    pst_uuid7(s->instance);
    s->tick = pst_timer_new(l, 250000, 0, on_tick, s);
    return s;
}

/* Listens first and reads after, so that whoever starts beside us finds the port taken before two registries write one topic. */
int rserver_new(pst_loop *l, const rserver_conf *conf, void (*fatal)(void *arg), void *arg, rserver **ret_server, pst_err *err)
{
    rserver *s = alloc(l, conf);
    s->fatal = fatal;
    s->fatal_arg = arg;
    static const char *const types[] = {"application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json",
                                        NULL};
    pst_http_conf hc = {
        .listen = conf->listen, .port = conf->port, .name = "registry", .body_bytes_max = 4u << 20, .types = types, .hosts = conf->hosts};
    int rc = pst_http_new(l, &hc, &s->http, err);
    if (rc == PST_OK && !pst_http_is_loopback(s->http) && !s->user)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "registry", 0,
                         "a registry that others can reach must ask for a password: --password @FILE, or -F FILE with "
                         "basic.auth.user.info=user:password; or "
                         "listen on 127.0.0.1");
    if (rc == PST_OK) {
        pst_http_add_routes(s->http, own_routes, N_OWN_ROUTES, s);
        registry_add_routes(s->http, on_request, s);
        pst_http_set_filter(s->http, may_enter, s);
        pst_http_set_fallback(s->http, on_unrouted, s);
        rlog_conf lc = {
            conf->bus, conf->topic ? conf->topic : "_schemas", conf->embedded, l, on_topic_ready, on_records, on_ack, on_trouble, s};
        rc = rlog_start(&lc, &s->log, err);
    }
    if (rc < 0) {
        rserver_free(s);
        return rc;
    }
    *ret_server = s;
    return PST_OK;
}

const char *rserver_url(const rserver *s)
{
    return pst_http_url(s->http);
}

bool rserver_ready(const rserver *s)
{
    return s->ready;
}

const pst_err *rserver_failure(const rserver *s)
{
    return s->failure.code ? &s->failure : NULL;
}

void rserver_drain(rserver *s, void (*done)(void *arg), void *arg)
{
    int64_t until = pst_mono_us() + DRAIN_US;
    s->draining = true;
    if (s->current && s->current->until_us > until)
        s->current->until_us = until;
    for (waiter *w = s->first; w; w = w->next)
        w->until_us = until < w->until_us ? until : w->until_us;
    pst_http_drain(s->http, done, arg);
}

void rserver_free(rserver *s)
{
    if (!s)
        return;
    rlog_stop(s->log);
    pst_http_free(s->http);
    pst_timer_free(s->tick);
    if (s->current) {
        waiter *w = s->current;
        w->next = s->first;
        s->first = w;
    }
    for (waiter *w; (w = s->first);) {
        s->first = w->next;
        if (w->req)
            answer_away(s, w->req, "shutting down");
        waiter_free(w);
    }
    rcore_free(s->core);
    pst_metrics_free(s->metrics);
    free(s->user);
    free(s->password);
    free(s->token_path);
    free(s);
}
