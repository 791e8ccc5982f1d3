/* serve.h - models that answer requests: the parts, and how they hang together.
 *
 *     ask ─► raw ─► a worker reads it (oip.h) and finds its version ─► the model's own line ─► a worker takes what waits there,
 *     one run for all of it ─► answers
 *
 * serve_source: which version a name means, and its bytes (serve_follow.c: penstock.models and the object store; tests: files).
 * serve_pool.c: lines, workers, limits.  serve_shelf.c: which models are open.  serve_batch.c: one run for several requests.
 *
 * Several requests share a run where a worker finds several waiting: those that came while the workers computed, or while others were still being read.
 * Nobody waits for company when a worker is free. A model is trusted with it only after runs of its own showed that a row's numbers are the same alone
 * and among others, up to the rounding that the stream path has as well; until then, and where they are not, each request has its own run.
 *
 * A request is answered when its time is over, whoever holds it. One worker only reads, and of the others one is kept from any single model: a slow model delays its own requests. */
#ifndef PST_INFERENCE_SERVE_SERVE_H
#define PST_INFERENCE_SERVE_SERVE_H

#include "common/base/metrics.h"
#include "common/platform/serving.h"
#include "engine/penstock_engine.h"
#include "inference/serve/oip.h"
#include "inference/serve/serve_ops.h"

#include <pthread.h>

enum {
    SERVE_WORKERS_MAX = 16,
    SERVE_JOBS_MAX = 2000,  /* asked and not answered */
    SERVE_LINE_MAX = 512,   /* of them for one model */
    SERVE_BATCH_MAX = 256,  /* requests of a run */
    SERVE_ROWS_MAX = 1024,  /* rows of a run that several requests share */
    SERVE_MODELS_MAX = 256, /* held open */
    SERVE_TRIALS = 3,       /* before a model is trusted with shared runs */
    SERVE_TRIAL_MOST = 8,   /* requests of a trial: each has a run of its own as well */
    SERVE_TRIAL_EVERY = 256 /* shared runs of a trusted model, one is tried again */
};

#define SERVE_HELD_MAX (256u << 20) /* bytes of requests, as bodies and as tensors, from being asked until nobody needs them */

typedef struct serve_found {
    char name[201], digest[65];
    int version;
    char *uri; /* free() */
} serve_found;

typedef struct serve_source {
    /* PST_ENOTFOUND, DATA: which of name, alias, version it is; RETRY: not known yet, which it waits for until until_us (pst_mono_us) at most. */
    int (*find)(void *arg, const char *name, const char *alias, int version, int64_t until_us, serve_found *ret_found, pst_err *err);
    int (*fetch)(void *arg, const serve_found *found, size_t bytes_max, pst_buf *ret_data, pst_err *err);
    json_t *(*versions)(void *arg, const char *name); /* ["1", "2"] */
    void *arg;
} serve_source;

typedef struct serve_meters {
    pst_metric *answered, *refused, *failed, *runs, *rows, *queue, *compute;
} serve_meters;

typedef enum { SERVE_TAKEN, SERVE_RAW, SERVE_LINED } serve_place; /* who has a job: a worker, the line of those to read, its model's */

typedef struct serve_job {
    struct serve_job *next;
    struct serve_job *before, *after; /* of all that are not over; @locks pool, as all up to meters, and deadline_us */
    serve_place place;
    struct serve_model *model;  /* SERVE_LINED: whose line */
    size_t held;                /* bytes that it counts for */
    bool answered;              /* its time was over: what a worker still makes of it is thrown away */
    const serve_meters *meters; /* NULL = its model is not found yet */
    pst_serving_what what;
    char *name, *alias; /* alias NULL = none */
    int version;
    pst_buf body; /* until it was read */
    size_t json_len;
    pst_serving_answered fn;
    void *arg;
    int64_t asked_us, deadline_us, lined_us; /* lined: since when it is in its model's line */
    oip_request *request;
    pst_tensor *inputs; /* in the model's order; borrowed from request */
} serve_job;

typedef enum { SERVE_NEW, SERVE_OPENING, SERVE_OPEN, SERVE_UNUSABLE } serve_state;

/* A version that is or was asked for. What @locks pool is the pool's; the rest is set once when it is opened, but trials and mixing, which are atomic. */
typedef struct serve_model {
    struct serve_model *next; /* @locks pool, as all up to unusable */
    serve_found found;
    serve_state state;
    serve_job *first, **last;
    size_t waiting;
    int running; /* workers at it */
    int64_t used_us;
    pst_err unusable;
    int64_t again_us; /* when what was unusable is tried again */
    size_t charge;    /* bytes it counts for */
    const serve_meters *meters;
    pst_model *m;
    const pst_model_info *info;
    pst_plan *plans[SERVE_WORKERS_MAX]; /* each of one worker */
    bool batches;                       /* all inputs and outputs begin with a free dimension, nothing is drawn */
    bool grown[SERVE_WORKERS_MAX];      /* each of one worker: its plan is not kept, its buffers are large */
    _Atomic int trials;
    _Atomic unsigned shared; /* runs, since it is trusted */
    _Atomic bool mixing;     /* a row's result depends on its neighbours */
} serve_model;

/* serve_shelf.c */
/* Loads it. @thread worker, state is SERVE_OPENING */
int serve_model_load(serve_model *m, const pst_buf *data, size_t arena_max, pst_err *err);
void serve_model_free(serve_model *m);

/* serve_batch.c: runs n jobs of a model, whose inputs are matched, and answers and frees them. @thread worker */
typedef struct serve_run {
    serve_model *model;
    int worker;
    bool (*stop)(void *arg);
    void *stop_arg;
    void (*answer)(void *arg, serve_job *job, pst_serving_answer *take); /* takes job */
    void *arg;
} serve_run;
void serve_batch_run(const serve_run *run, serve_job **jobs, size_t n);
void serve_answer_err(const pst_err *err, pst_serving_answer *ret);
void serve_answer_error(int status, int retry_after_s, pst_serving_answer *ret, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* serve_pool.c */
typedef struct serve_pool serve_pool;
int serve_pool_new(const pst_serving_conf *conf, const serve_source *source, serve_pool **ret_pool, pst_err *err);
bool serve_pool_ask(serve_pool *p, const pst_serving_ask *ask, pst_serving_answered fn, void *arg, pst_serving_answer *ret_now);
void serve_pool_dump(serve_pool *p, json_t *to);
void serve_pool_free(serve_pool *p); /* answers what is left; NULL-safe */

/* serve_follow.c */
typedef struct serve_follow serve_follow;
int serve_follow_new(const struct pst_settings *settings, serve_follow **ret_follow, pst_err *err);
serve_source serve_follow_source(serve_follow *f);
bool serve_follow_ready(serve_follow *f, char *ret_why, size_t size); /* starts to read, the first time */
void serve_follow_free(serve_follow *f);                              /* NULL-safe */

#endif
