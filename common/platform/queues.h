/* queues.h - the topic `queues`: which queues there are, and what each has in use. Whoever lists, judges or explains them reads them here.
 *
 *     pst_queues q;
 *     if (pst_queues_read(client, &q, &err) < 0) …
 *     const pst_queue_spec *one = pst_queues_find(&q, "nightly");   // NULL: there is none
 *     pst_queues_done(&q);
 *
 * `default` is always among them. @thread any. */
#ifndef PST_COMMON_PLATFORM_QUEUES_H
#define PST_COMMON_PLATFORM_QUEUES_H

#include "common/platform/client.h"
#include "schemas/queue_spec.h"

typedef struct pst_queues {
    pst_queue_spec *at; /* by name */
    size_t n;
} pst_queues;

/* Reads the topic to its present end. No topic yet: `default` alone. */
int pst_queues_read(pst_client *c, pst_queues *ret_queues, pst_err *err);
void pst_queues_done(pst_queues *q);
const pst_queue_spec *pst_queues_find(const pst_queues *q, const char *name);
/* "there is no queue nigthly; did you mean nightly?", with the names there are where none is near. free() */
char *pst_queues_unknown(const pst_queues *q, const char *name);
/* A record of the topic; its value is not null. DATA: it is no queue, or not the one that its key says. To be cleared. */
int pst_queue_of_record(pst_client *c, const char *key, const struct pst_record *r, pst_queue_spec *ret_spec, pst_err *err);
/* NULL = deleted. Waits for the broker's acknowledgement. */
int pst_queue_publish(pst_client *c, const char *name, const pst_queue_spec *spec, pst_err *err);
/* What each of q has in use, in its order, by the states of all jobs; to be free()d. user: for users_running, or NULL. */
int pst_queues_in_use(pst_client *c, const pst_queues *q, const char *user, pst_queue_use **ret_uses, pst_err *err);
/* The queue with its use: pst_queue_spec_json and running, waiting, held, used {cpus, memory, gpus}. The caller's. */
json_t *pst_queue_json(const pst_queue_spec *q, const pst_queue_use *use);
/* May it go? PST_EEXIST/DATA with the sentence: it is `default`, or jobs wait or run in it. PST_ENOTFOUND: it is not there. */
int pst_queue_deletable(pst_client *c, const char *name, pst_err *err);

#endif
