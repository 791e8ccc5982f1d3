/* queue_spec.h - queues as people write them: YAML (JSON is YAML too), one a document, several documents in a file.
 *
 *     name: nightly
 *     weight: 3                                 # beside the weights of the other queues; default 1
 *     quota: {cpus: 16, memory: 64GiB, gpus: 2} # at a time, on all nodes together; what is left out has no limit
 *     max_running_per_user: 4
 *     preempts: false
 *
 * One reader for files, bodies of HTTP and JSON text on the topic. The queue `default` is there whether or not anybody has defined it.
 * @thread any. */
#ifndef PST_SCHEMAS_QUEUE_SPEC_H
#define PST_SCHEMAS_QUEUE_SPEC_H

#include "common/base/err.h"
#include "schemas/events.h"

#include <jansson.h>

#define PST_QUEUE_DEFAULT "default"
enum { PST_QUEUES_MAX = 1000, PST_QUEUE_NAME_MAX = 64 };

/* At least one; none named twice. *ret_specs: an array of *ret_n, to be given to pst_queue_specs_free. "queues.yml:7: weight: must be …" */
int pst_queue_specs_parse(const char *text, size_t len, const char *file, pst_queue_spec **ret_specs, size_t *ret_n, pst_err *err);
void pst_queue_specs_free(pst_queue_spec *specs, size_t n);
/* Values in their ranges, as the reader wants them: for what came as Avro. PST_EINVAL/DATA. */
int pst_queue_spec_check(const pst_queue_spec *q, pst_err *err);
/* {name, weight, quota: {cpus, memory, gpus}, max_running_per_user, preempts, actor, time}; null = no limit. The caller's. */
json_t *pst_queue_spec_json(const pst_queue_spec *q);
/* A document that says the same; what is as by default is left out. free() */
char *pst_queue_spec_yaml(const pst_queue_spec *q);
/* The queue `default` as it is while nobody has defined it: weight 1, no limits. To be cleared. */
pst_queue_spec pst_queue_spec_default(void);

/* ---- what queues have in use, from the states of jobs */

typedef struct pst_queue_use {
    double cpus;
    int64_t memory, gpus;
    int running, waiting, held; /* held: waiting, but for a person or for other jobs, not for room */
    int users_running;          /* of those running: by the user that was asked for */
} pst_queue_use;

/* Adds what one job has or waits for. user NULL: users_running is not counted. Jobs of other queues add nothing. */
void pst_queue_use_add(pst_queue_use *use, const char *queue, const char *user, const pst_job_state *s);
/* Does j stand before k in their queue? By priority, time of submission, id; what is held, or waits for others, comes behind all else. */
bool pst_queue_before(const pst_job_state *j, const pst_job_state *k);
/* What in the queue's rules keeps the job from starting, whatever room there is, as a sentence: "queue q has 4 of its quota of 4 CPUs in use and the job
 * needs 2". NULL: nothing. use: of the queue, with users_running for the job's user. free() */
char *pst_queue_lacks(const pst_queue_spec *q, const pst_queue_use *use, const pst_job_state *s);

#endif
