/* serving.h - models that answer requests, as whoever has the network side sees them: the gateway asks, inference/serve answers. Services never
 * include each other, so they meet in this table, and verbs.c hands it over.
 *
 *     rc = ops->open(&(pst_serving_conf){.settings = s, .metrics = m, .bytes_max = 1 << 30, .ms_max = 30000}, &serving, &err);
 *     if (!ops->ask(serving, &(pst_serving_ask){.what = PST_SERVING_INFER, .model = "fraud@champion", .body = body}, answered, req, &now))
 *         send `now`, clear it                       // refused at once: too much is waiting
 *     …                                              // else answered(req, &answer) is called once, on some thread
 *     ops->close(serving);                           // every ask has been answered when it returns
 *
 * Answers are those of the Open Inference Protocol v2 (JSON, or JSON and raw tensors behind it). @thread ask, dump, ready: any. */
#ifndef PST_COMMON_PLATFORM_SERVING_H
#define PST_COMMON_PLATFORM_SERVING_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/json.h"
#include "common/base/metrics.h"

struct pst_settings;

typedef struct pst_serving pst_serving;

typedef struct pst_serving_conf {
    const struct pst_settings *settings; /* borrowed for its life, as metrics is */
    pst_metrics *metrics;
    size_t bytes_max; /* of the models held open */
    int ms_max;       /* a request, from its being asked to its answer */
} pst_serving_conf;

typedef enum { PST_SERVING_METADATA, PST_SERVING_READY, PST_SERVING_INFER } pst_serving_what;

#define PST_SERVING_ALL_JSON SIZE_MAX

typedef struct pst_serving_ask {
    pst_serving_what what;
    const char *model; /* NAME or NAME@ALIAS; copied */
    int version;       /* 0 = the alias's, without one the highest */
    pst_buf body;      /* taken, whatever becomes of it */
    size_t json_len;   /* the body's JSON, before raw tensors; PST_SERVING_ALL_JSON: all of it */
} pst_serving_ask;

typedef struct pst_serving_answer {
    int status;
    pst_buf body;
    size_t json_len;   /* binary: so many bytes are JSON */
    bool binary;       /* raw tensors follow the JSON */
    int retry_after_s; /* 0 = not said */
} pst_serving_answer;

typedef void (*pst_serving_answered)(void *arg, pst_serving_answer *answer); /* answer is the receiver's: it clears its body */

typedef struct pst_serving_ops {
    int (*open)(const pst_serving_conf *conf, pst_serving **ret_serving, pst_err *err);
    /* False: *ret_now is the answer, and fn is not called. */
    bool (*ask)(pst_serving *s, const pst_serving_ask *ask, pst_serving_answered fn, void *arg, pst_serving_answer *ret_now);
    bool (*ready)(pst_serving *s, char *ret_why, size_t size); /* are the registered models known? Begins to read them */
    void (*dump)(pst_serving *s, json_t *to);
    void (*close)(pst_serving *s); /* NULL-safe */
} pst_serving_ops;

#endif
