/* dlq.h - `penstock dlq`: dead letters counted, shown, and put back where they came from.
 *
 *     pst_dlq_ask ask = {.topics = &topic, .n_topics = 1};
 *     rc = pst_dlq_list(&v, &ask, &v.err);
 *
 * The verb (dlq_verb.c) finds the topics; each call here does one thing with them. @thread main. */
#ifndef PST_INFERENCE_DLQ_DLQ_H
#define PST_INFERENCE_DLQ_DLQ_H

#include "common/base/json.h"
#include "common/platform/verb.h"

typedef struct pst_dlq_ask {
    const char *const *topics; /* of dead letters */
    size_t n_topics;
    const char *const *inputs; /* a pipeline's: what else its dead letters name is left out; n_inputs 0 = no pipeline was named */
    size_t n_inputs;
    const char *pipeline;
    const char *reason, *stage, *source, *partition, *since, *until; /* filters; NULL = any */
    const char *by;                                                  /* list: what is counted apart, "source,stage,reason" */
    const char *place;                                               /* show: "PARTITION:OFFSET" */
    bool full;                                                       /* show: all bytes of a value that does not decode */
    const char *to;                                                  /* replay: instead of where they came from */
    bool dry_run, yes;
    void (*row)(void *arg, json_t *take); /* is given what --json would print; NULL: it is printed */
    void *arg;
} pst_dlq_ask;

int pst_dlq_list(pst_verb_run *v, const pst_dlq_ask *ask, pst_err *err);
int pst_dlq_show(pst_verb_run *v, const pst_dlq_ask *ask, pst_err *err);
/* *ret_left: dead letters that were asked for and cannot be put back. */
int pst_dlq_replay(pst_verb_run *v, const pst_dlq_ask *ask, size_t *ret_left, pst_err *err);

#endif
