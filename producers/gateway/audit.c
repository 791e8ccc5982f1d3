/* audit.c - one look at every answer, in the server and not in handlers: none can forget it, and none can say more than the row and the caller do. The producer is its
 * own, so that nobody who waits for a submission waits for these. */
#include "producers/gateway/audit.h"

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "producers/gateway/caller.h"
#include "producers/gateway/routes.h"
#include "schemas/metric_list.h"

#include <stdlib.h>
#include <string.h>

enum { WAITING_MAX = 5000, POLL_US = 100000, END_MS = 3000, TARGET_MAX = 512, DENIED_PER_S = 10 };

struct gw_audit {
    gw_state *g;
    pst_producer *producer;
    pst_timer *timer;
    pst_metric *lost;
    int64_t second; /* in which so many */
    int denied;     /* were recorded */
    int64_t missed;
};

static bool is_safe(const char *method)
{
    return !strcmp(method, "GET") || !strcmp(method, "HEAD") || !strcmp(method, "OPTIONS");
}

/* POST that changes nothing, or that says a number of the thousands that a run has (they stand on `tracking`, with who said them). A dry run is one where the
 * row has it: elsewhere the word means nothing, and whoever adds it changes something all the same. */
static bool is_passed_over(const pst_http_req *req)
{
    static const char *const ends[] = {"/infer",     "/search",        "/get-latest-versions", "/log-metric",
                                       "/log-batch", "/log-parameter", "/log-inputs"};
    const char *pattern = pst_http_pattern(req);
    size_t n = strlen(pattern);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t k = strlen(ends[i]);
        if (n >= k && !strcmp(pattern + n - k, ends[i]))
            return true;
    }
    const gw_route *route = (const gw_route *)(const void *)pst_http_route_of(req);
    return route && gw_param_find(route, "query", "dry_run") && pst_http_query_bool(req, "dry_run");
}

static bool is_denied(int status)
{
    return status == 401 || status == 403 || status == 421 || status == 429;
}

static bool is_wanted(const pst_http_req *req, int status)
{
    if (!pst_http_path(req)) /* its head was never whole */
        return false;
    if (!is_safe(pst_http_method(req)) && !is_passed_over(req))
        return true;
    return is_denied(status) && (*gw_caller_of(req)->name || pst_http_header(req, "Authorization"));
}

/* Strangers, and who goes on asking though the pace is used up, could fill the topic as fast as they can ask. */
static bool has_room(gw_audit *a, const pst_http_req *req, int status)
{
    if (!is_denied(status) || (gw_caller_of(req)->roles && status != 429))
        return true;
    int64_t now = pst_mono_us() / 1000000;
    if (now != a->second) {
        a->second = now;
        a->denied = 0;
    }
    if (a->denied++ < DENIED_PER_S)
        return true;
    a->missed++;
    return false;
}

/* The path as it was decoded may hold any bytes, and be long. */
static char *target_of(const pst_http_req *req)
{
    char *text = pst_strndup(pst_http_path(req), TARGET_MAX);
    json_t *j = json_string(text); /* NULL: no UTF-8 */
    bool whole = j != NULL;
    json_decref(j);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f || (!whole && (unsigned char)*p > 0x7f))
            *p = '?';
    return text;
}

static int send_event(gw_audit *a, const pst_audit_event *e)
{
    pst_err err = {0};
    pst_buf value = {0};
    const char *topic = pst_client_topic(a->g->client, PST_TOPIC_AUDIT), *key = e->user ? e->user : e->address;
    int rc = pst_producer_pending(a->producer) >= WAITING_MAX
                 ? pst_err_set(&err, PST_EAGAIN, PST_CLASS_RETRY, "gateway", 0, "%d events wait for the broker already", WAITING_MAX)
                 : pst_codec_encode(a->g->client->codec, &pst_audit_event_type, topic, e, &value, &err);
    pst_out out = {.topic = topic, .partition = -1, .key = key, .key_len = strlen(key), .value = value.data, .value_len = value.len};
    if (!rc)
        rc = pst_producer_send(a->producer, &out, &err);
    if (rc < 0) {
        pst_metric_add(a->lost, 1);
        pst_log_limited(PST_LOG_WARN, "gateway", "audit_lost", "event=audit_lost user=%s operation=%s status=%d reason=\"%s\"",
                        e->user ? e->user : "", e->operation, e->status, err.text);
    }
    pst_buf_done(&value);
    return rc;
}

static void on_reply(void *arg, const pst_http_req *req, int status)
{
    gw_audit *a = arg;
    if (!is_wanted(req, status) || !has_room(a, req, status))
        return;
    const gw_caller *c = gw_caller_of(req);
    const gw_route *route = (const gw_route *)(const void *)pst_http_route_of(req); /* http is a row's first member */
    char *roles = gw_roles_text(c->roles), *target = target_of(req), *address = pst_strdup(pst_http_remote(req));
    char *port = strrchr(address, ':');
    if (port)
        *port = 0;
    pst_audit_event e = {.time = pst_now_us(),
                         .user = *c->name ? (char *)(uintptr_t)c->name : NULL,
                         .roles = roles,
                         .via = (char *)(uintptr_t)(c->via ? c->via : ""),
                         .address = address,
                         .method = (char *)(uintptr_t)pst_http_method(req),
                         .operation = (char *)(uintptr_t)(route ? route->name : ""),
                         .target = target,
                         .outcome = is_denied(status) ? PST_AUDIT_OUTCOME_DENIED
                                    : status >= 400   ? PST_AUDIT_OUTCOME_FAILED
                                                      : PST_AUDIT_OUTCOME_DONE,
                         .status = status,
                         .request_id = c->request_id,
                         .training_id = c->training_id,
                         .missed = a->missed};
    if (send_event(a, &e) == 0)
        a->missed = 0;
    free(address);
    free(target);
    free(roles);
}

static void on_delivery(void *arg, const pst_delivery *d)
{
    gw_audit *a = arg;
    if (!d->code)
        return;
    pst_metric_add(a->lost, 1);
    pst_log_limited(PST_LOG_WARN, "gateway", "audit_lost", "event=audit_lost reason=\"%s\"",
                    d->text ? d->text : "the broker did not take it");
}

static void serve(void *arg)
{
    gw_audit *a = arg;
    pst_producer_poll(a->producer, 0);
}

int gw_audit_start(gw_state *g, gw_audit **ret_audit, pst_err *err)
{
    gw_audit *a = pst_alloc(sizeof *a);
    a->g = g;
    int rc =
        pst_producer_new(g->client->bus, &(pst_producer_opts){.linger_ms = 50, .on_delivery = on_delivery, .arg = a}, &a->producer, err);
    if (rc < 0) {
        free(a);
        return rc;
    }
    pst_producer_expect(a->producer, pst_client_topic(g->client, PST_TOPIC_AUDIT));
    a->lost = pst_metric_of(g->metrics, PST_METRIC_GATEWAY_AUDIT_LOST, NULL);
    a->timer = pst_timer_new(g->loop, POLL_US, POLL_US, serve, a);
    pst_http_set_replied(g->http, on_reply, a);
    *ret_audit = a;
    return 0;
}

void gw_audit_free(gw_audit *a)
{
    if (!a)
        return;
    pst_http_set_replied(a->g->http, NULL, NULL);
    pst_producer_flush(a->producer, END_MS, NULL);
    pst_producer_free(a->producer);
    pst_timer_free(a->timer);
    free(a);
}
