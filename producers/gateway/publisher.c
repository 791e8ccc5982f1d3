/* publisher.c - from a request to the topic and back. One idempotent producer; a request is answered when its delivery report is in, never before:
 * 202 means that the event cannot be lost any more. Reports are fetched by a timer of 2 ms that runs only while somebody waits, since librdkafka's
 * thread may not touch the loop's requests. */
#include "producers/gateway/after.h"
#include "producers/gateway/caller.h"

#include "common/base/log.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAITING_MAX = 10000, POLL_US = 2000, END_MS = 5000 };

struct gw_publisher {
    gw_state *g;
    pst_producer *producer;
    pst_timer *timer;
    size_t waiting;
};

typedef struct pending {
    gw_publisher *p;
    pst_http_req *req;
    gw_published published;
    char *request_id, *training_id, *user;
    bool submits;
    pst_trace trace;
} pending;

static void answer_position(pending *w, const pst_delivery *d)
{
    char *location = pst_sprintf("/v1/jobs/%s", w->training_id);
    pst_http_add_header(w->req, "Location", location);
    pst_http_reply_json(w->req, 202,
                        json_pack("{s:s, s:s, s:s, s:i, s:I}", "training_id", w->training_id, "request_id", w->request_id, "topic",
                                  d->topic, "partition", (int)d->partition, "offset", (json_int_t)d->offset));
    free(location);
}

/* The one place where a published request is answered and let go: librdkafka reports each record exactly once, failed ones too. */
static void on_delivery(void *arg, const pst_delivery *d)
{
    pending *w = d->opaque;
    if (!w)
        return;
    PST_ASSERT(w->p == arg);
    const char *before = pst_log_job(w->training_id);
    gw_caller_note(w->req, w->request_id, w->training_id);
    if (d->code) {
        pst_log_limited(PST_LOG_WARN, "gateway", "not_published", "event=not_published request_id=%.100s trace_id=%.*s reason=\"%s\"",
                        w->request_id, PST_TRACE_ID_LEN, w->trace.text + PST_TRACE_ID_AT, d->text ? d->text : "");
        pst_http_add_header(w->req, "Retry-After", "2");
        pst_http_problem(w->req, 503, "not-published", NULL,
                         d->text ? d->text : "the broker did not take the event; ask again with the same request_id");
        pst_metric_add(w->p->g->refused, 1);
    } else {
        char *at = pst_sprintf("%d:%lld", d->partition, (long long)d->offset);
        pst_http_add_header(w->req, "X-Position", at);
        pst_http_add_header(w->req, "traceresponse", w->trace.text);
        if (w->submits)
            gw_after_note(w->p->g, d->partition, d->offset, w->training_id, w->user);
        if (w->published)
            w->published(w->p->g, w->req, w->training_id);
        else
            answer_position(w, d);
        pst_metric_add(w->p->g->submitted, 1);
        pst_log(PST_LOG_INFO, "gateway", "event=published request_id=%.100s trace_id=%.*s partition=%d offset=%lld", w->request_id,
                PST_TRACE_ID_LEN, w->trace.text + PST_TRACE_ID_AT, d->partition, (long long)d->offset);
        free(at);
    }
    pst_log_job(before);
    PST_ASSERT(w->p->waiting > 0);
    w->p->waiting--;
    free(w->request_id);
    free(w->training_id);
    free(w->user);
    free(w);
}

static void serve(void *arg)
{
    gw_publisher *p = arg;
    pst_producer_poll(p->producer, 0);
    if (!p->waiting)
        pst_timer_stop(p->timer);
}

int gw_publisher_new(gw_state *g, gw_publisher **ret_publisher, pst_err *err)
{
    gw_publisher *p = pst_alloc(sizeof *p);
    p->g = g;
    int rc =
        pst_producer_new(g->client->bus, &(pst_producer_opts){.linger_ms = 0, .on_delivery = on_delivery, .arg = p}, &p->producer, err);
    if (rc < 0) {
        free(p);
        return rc;
    }
    p->timer = pst_timer_new(g->loop, POLL_US, POLL_US, serve, p);
    pst_timer_stop(p->timer);
    *ret_publisher = p;
    return 0;
}

void gw_publisher_dump(const gw_publisher *p, json_t *to)
{
    json_object_set_new(to, "publisher", json_pack("{s:I}", "waiting", (json_int_t)p->waiting));
}

void gw_publisher_free(gw_publisher *p)
{
    if (!p)
        return;
    pst_producer_flush(p->producer, END_MS, NULL);
    pst_producer_free(p->producer);
    pst_timer_free(p->timer);
    free(p);
}

/* Answers the request itself on failure; else w belongs to the producer until on_delivery. The value is copied by the producer. */
void gw_publisher_send(gw_publisher *p, pst_http_req *req, const pst_job_request *request, const char *key, const char *training_id,
                       gw_published published)
{
    pst_client *c = p->g->client;
    pst_buf value = {0};
    pst_err err = {0};
    if (p->waiting >= WAITING_MAX) {
        pst_http_add_header(req, "Retry-After", "2");
        pst_http_problem(req, 503, "busy", NULL, "10,000 requests wait for the broker already");
        return;
    }
    const char *topic = pst_client_topic(c, PST_TOPIC_JOBS_REQUESTS);
    int rc = pst_codec_encode(c->codec, &pst_job_request_type, topic, request, &value, &err);
    pending *w = pst_alloc(sizeof *w);
    *w = (pending){.p = p,
                   .req = req,
                   .published = published,
                   .submits = request->action == PST_JOB_ACTION_SUBMIT,
                   .request_id = pst_strdup(request->request_id),
                   .training_id = pst_strdup(training_id),
                   .user = pst_strdup(request->user)};
    if (!rc) {
        const char *came = pst_http_header(req, PST_TRACE_HEADER);
        pst_header header;
        pst_out out;
        pst_trace_parse(came, came ? strlen(came) : 0, &w->trace);
        pst_trace_child(&w->trace, &w->trace);
        pst_trace_out(&w->trace, topic, key, &value, &header, &out);
        out.opaque = w;
        rc = pst_producer_send(p->producer, &out, &err);
    }
    pst_buf_done(&value);
    if (rc < 0) {
        free(w->request_id);
        free(w->training_id);
        free(w->user);
        free(w);
        pst_metric_add(p->g->refused, 1);
        pst_http_problem_err(req, &err);
        return;
    }
    p->waiting++;
    pst_timer_again(p->timer, 0);
}
