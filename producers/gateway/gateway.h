/* gateway.h - the parts of `penstock gateway` (HTTP → events, topics → server-sent events, the page).
 *
 *     feed thread ── posts JSON of records ──► hub (loop thread) ── SSE ──► browsers
 *     requests ──► jobs (loop thread) ── producer ──► jobs.requests ── delivery ──► 202 with topic, partition, offset
 *     GET /v1/jobs ──► the store (a view the trainer keeps; a memory: store is kept here)
 *     GET …/logs, /metrics, /events ──► reader threads that read the topic, at most four at once (job_records)
 *
 *     FfDL's REST ──► the same, in its own words and shapes (ffdl.h)
 *
 * routes.h has the table of a noun's paths, openapi.h their description, who.h who may.
 *
 * Everything but feed and readers belongs to the loop's thread. */
#ifndef PST_PRODUCERS_GATEWAY_H
#define PST_PRODUCERS_GATEWAY_H

#include "common/base/metrics.h"
#include "common/platform/client.h"
#include "common/platform/scoring.h"
#include "common/platform/serving.h"
#include "common/loop/http.h"
#include "common/loop/loop.h"
#include "common/store/store.h"
#include "common/platform/view.h"
#include "producers/gateway/places.h"
#include "producers/gateway/who.h"
#include "schemas/events.h"

typedef struct gw_hub gw_hub;
typedef struct gw_feed gw_feed;
typedef struct gw_publisher gw_publisher;
typedef struct gw_awaited gw_awaited;
typedef struct gw_page gw_page;
typedef struct gw_owners gw_owners;
typedef struct gw_recent gw_recent;

/* Memory for one record as JSON: sixteen times the largest event of ours. */
enum { PST_GATEWAY_RECORD_ROOM = 8 << 20 };

typedef struct gw_state {
    pst_client *client;
    pst_loop *loop;
    pst_http *http;
    gw_who *who;
    gw_hub *hub;
    gw_owners *owners; /* owners.h */
    pst_timer *look_again;
    gw_feed *feed;
    gw_publisher *publisher;
    struct gw_audit *audit; /* audit.h; NULL: nobody is told apart */
    pst_store *store;       /* sqlite:, mongodb:; opened at first use, NULL until it is there */
    pst_view *view;         /* memory: only */
    pst_dump *dump;
    const pst_serving_ops *serve;   /* NULL: none */
    const pst_scoring_ops *scoring; /* NULL: none */
    pst_serving *serving;
    char *description; /* openapi.h, as text */
    pst_metrics *metrics;
    pst_metric *submitted, *refused, *streams;
    gw_awaited *awaited;      /* awaited.c */
    gw_recent *recent;        /* after.c; free() */
    struct gw_mlflow *mlflow; /* mlflow.h; NULL until somebody asks */
    struct gw_outbox *mlflow_outbox;
    gw_page *pages_waiting; /* ffdl_pages.c */
    int pages_running, n_pages_waiting;
    int questions; /* of oip.c, not answered yet */
    /* Threads at work for a request, all of which the gateway waits for: of job_records.c, pour.h, uploads of FfDL's, its pages (also those that wait). */
    _Atomic int readers, pours, uploads, pages;
    int tasks, afters; /* the same, of task.h and after.h; the loop's */
    _Atomic int packs; /* of the pours: those that make an archive (ffdl_files.c) */
} gw_state;

/* hub.c: fan-out of events to SSE streams, with a ring of the last ones for Last-Event-ID. @thread loop */
gw_hub *gw_hub_new(void);
void gw_hub_free(gw_hub *h); /* after the loop whose output buffers may still hold its pieces */
/* json NULL: the record could not be taken apart within bounds; it and what is larger than 256 KiB travel as an event `skipped` that names it.
 * kind: "state", "event", "log", "metric", "model", "pipeline"; key: training id, model or pipeline name; id: "<topic>/<partition>/<offset>". */
void gw_hub_send(gw_hub *h, const char *kind, const char *key, const char *id, const char *json, size_t len);
/* A record that streams do not show: only the place moves on. */
void gw_hub_pass(gw_hub *h, const char *id);
/* From where the records of each partition come now, at the start and whenever the feed begins anew; before the first of them. What is gone since the
 * last time every stream is told. */
void gw_hub_begin(gw_hub *h, const gw_places *from);
/* Opens a stream for the request; kinds "state,log", key "training-…"; NULL or "" = all. Goes on where Last-Event-ID was (places.h) from what the ring
 * has, each record once; what it has not is told by events `gap`: {"topic", "partition", "from", "to", "why"}.
 * only: what is about a job is shown where the job is this user's; NULL = of everybody. */
void gw_hub_attach(gw_hub *h, pst_http_req *req, const char *kinds, const char *key, const char *only);
/* Whose a job is (NULL: not known), for streams with `only`; without it they show no job at all. */
/* From time to time: events whose owner was not known are looked at again. */
void gw_hub_again(gw_hub *h);
void gw_hub_set_owners(gw_hub *h, const char *(*owner_of)(void *arg, const char *training_id), void *arg);
/* Records come (away NULL, as at first), or why they do not: each client is told when that changes, and a new one while it is so, as an event
 * `kafka` of {"reached", "why"}, whatever its kinds. */
void gw_hub_kafka(gw_hub *h, const char *away);
/* A client that falls out of the ring gets an event `missed` with the number of events it did not get. */
size_t gw_hub_streams(const gw_hub *h);
void gw_hub_dump(const gw_hub *h, json_t *to);

/* feed.c: the consumer thread. */
int gw_feed_start(gw_state *g, gw_feed **ret_feed, pst_err *err);
void gw_feed_stop(gw_feed *f);
json_t *gw_feed_lag(const gw_feed *f);           /* records behind, null = not known; the caller's; NULL-safe */
void gw_feed_dump(const gw_feed *f, json_t *to); /* NULL-safe */
/* The i-th topic that streams show, by its name without the prefix, and the kind of its events; NULL behind the last one. */
const char *gw_feed_kind(size_t i, const char **ret_topic);

/* stream.c: "logs,jobs.events" as the hub's kinds, "log,event"; NULL and what is wrong with it where there is no such topic. free() both. */
char *gw_stream_kinds(const char *topics, char **ret_why);

/* publisher.c: requests → jobs.requests; answers 202 or a problem when the broker has decided. Takes req. @thread loop */
int gw_publisher_new(gw_state *g, gw_publisher **ret_publisher, pst_err *err);
void gw_publisher_dump(const gw_publisher *p, json_t *to);
void gw_publisher_free(gw_publisher *p); /* waits a moment for what is under way */
/* The broker has it: answers req, now or later. */
typedef void (*gw_published)(gw_state *g, pst_http_req *req, const char *training_id);
/* published NULL: 202 with where the event stands. request, key and training_id are borrowed for the call. */
void gw_publisher_send(gw_publisher *p, pst_http_req *req, const pst_job_request *request, const char *key, const char *training_id,
                       gw_published published);

/* awaited.c: asks fn every few milliseconds what the store has of the job (doc; NULL: nothing), until it has answered req and returns true. last: it
 * must answer now; after 7 s, when the client has gone, and when the gateway ends. @thread loop */
typedef bool (*gw_seen)(gw_state *g, pst_http_req *req, const char *id, const json_t *doc, bool last);
void gw_await(gw_state *g, pst_http_req *req, const char *id, gw_seen fn);
void gw_await_end(gw_state *g);

/* mlflow_write.c, mlflow_view.c: answer who waits for them, and end. */
void gw_facts_end(gw_state *g);
void gw_mlflow_stop(gw_state *g);

/* service.c: what all of it holds, for dumps (dump.h). @thread loop */
void gw_dump(void *arg, json_t *to);

/* job_store.c: the store of jobs, or NULL; between the two nobody else uses it. @thread loop */
pst_store *gw_store_lock(gw_state *g, pst_err *err);
void gw_store_unlock(gw_state *g);

/* job_owner.c: may the caller see (touches: change) the job of {id}? false: req is answered. @thread loop */
bool gw_job_allowed(gw_state *g, pst_http_req *req, bool touches);

/* Runs fn on the loop's thread; waits while its queue is full, unless *stop (NULL = never) becomes true: false then. @thread any but the loop's */
bool gw_post(gw_state *g, void (*fn)(void *arg), void *arg, const _Atomic bool *stop);

#endif
