/* shell.h - between the Trainer's pure core and Kafka: records in, actions out. Private to trainer/.
 *
 * A round: poll → decode and step each record, encoding what it leads to into the outbox → one transaction that holds the outbox and the
 * input's offsets. Whatever goes wrong on the way, the round is dropped as a whole: the state is read again from jobs.state (which is what the
 * last commit left) and the consumer stands where that commit left it.
 * @thread the service's main thread. */
#ifndef PST_TRAINER_SHELL_H
#define PST_TRAINER_SHELL_H

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/metrics.h"
#include "common/base/seal.h"
#include "common/platform/client.h"
#include "trainer/times.h"
#include "trainer/traces.h"
#include "trainer/trainer_core.h"
#include "common/bus/bus.h"
#include "common/objects/objects.h"

typedef struct trainer_shell_metrics {
    pst_metrics *set;
    pst_metric *rounds, *again, *rebuilds, *decode_errors, *step_seconds;
    pst_metric *jobs[PST_JOB_PUBLIC_STATE_REJECTED + 1];
    pst_metric *requests, *rejected, *duplicates, *reports_ignored;
    size_t n_queues; /* of which there are metrics */
} trainer_shell_metrics;

/* On a tombstone of jobs.state: nothing was deleted; what stood there was no job (requests that waited for one), or a rejection of long ago. */
#define PST_EXPIRED_HEADER "penstock-expired"

typedef struct trainer_outbox trainer_outbox;

typedef struct trainer_shell {
    pst_client *client;
    pst_objects *objects;
    pst_seal_key key;
    char seal_id[PST_SEAL_ID_MAX];
    tcore *core;
    pst_consumer *inputs; /* requests and reports; NULL while standing by */
    pst_txn *txn;
    trainer_outbox *outbox;
    struct trainer_code_sweep *codes;
    struct trainer_asker *asker;
    size_t answers; /* of data stores, that the core has and no commit yet */
    trainer_actions actions;
    trainer_traces traces;
    trainer_shell_metrics metrics;
    trainer_times times;
    bool nodes_unread;     /* heartbeats of before the start are not all read */
    bool caught_up;        /* the last poll found the inputs read to their end */
    bool live;             /* the records of this round were published just now */
    bool stale;            /* the core's state is not that of the topics: read it again before the next round */
    int64_t tick_us;       /* monotonic: of the next tick */
    pst_consumer *queues;  /* queue_watch.c; NULL = not open */
    int64_t queues_due_us; /* monotonic: when it may be opened again */
    int64_t queues_offset; /* what stands before it on `queues` is known */
    bool queues_fresh;     /* they were read to their end in this round */
    bool queues_changed;   /* since the last pass */
} trainer_shell;

static inline int64_t trainer_shell_now(const trainer_shell *s)
{
    return trainer_times_now(&s->times, pst_mono_us());
}

/* keep_code_us: how long code archives stay that no job can use any more; 0 = for ever. stores: which servers jobs may name (pst_s3_allowed). */
int trainer_shell_open(trainer_shell *s, pst_client *client, const trainer_policy *policy, int64_t keep_code_us, const char *stores,
                       pst_err *err);
void trainer_shell_close(trainer_shell *s);
/* state_dump.c: what it holds. */
void trainer_shell_dump(const trainer_shell *s, json_t *to);
/* Joins the inputs' group and makes the transactional producer; state is read at the first round. */
int trainer_shell_activate(trainer_shell *s, pst_err *err);
void trainer_shell_deactivate(trainer_shell *s);
/* Static membership of this host and state folder: an instance that was killed and started again takes its place in the group at once,
 * without waiting for the old session to time out. free() it. */
char *trainer_shell_instance(const pst_client *client);
/* One round over what inputs have and over heartbeats (records of `workers`, borrowed; live: they were published just now). *ret_took: the
 * heartbeats were taken into account; else give them again.
 * 0; PST_EFENCED: another instance took over; PST_ESTOPPED; else FATAL. Outages are waited for inside. */
int trainer_shell_round(trainer_shell *s, const pst_batch *heartbeats, bool live, bool *ret_took, pst_err *err);

/* ---- outbox.c: encoded actions waiting for their transaction */

/* key: states are published with the secrets of their manifests sealed by it (copied). */
trainer_outbox *trainer_outbox_new(pst_client *client, const pst_seal_key *key);
void trainer_outbox_free(trainer_outbox *o);
void trainer_outbox_clear(trainer_outbox *o);
size_t trainer_outbox_size(const trainer_outbox *o);
/* RETRY: the registry is away. */
int trainer_outbox_add(trainer_outbox *o, const trainer_actions *actions, trainer_traces *traces, const trainer_cause *cause, pst_err *err);
int trainer_outbox_send(const trainer_outbox *o, pst_txn *txn, pst_err *err);
void trainer_outbox_log(const trainer_outbox *o, pst_metrics *counted); /* once it is committed: what became of which job */

/* ---- queue_watch.c: the queues that are defined */
/* All of them, from the beginning to the present end: before the first step. */
int trainer_queues_begin(trainer_shell *s, pst_err *err);
int trainer_queues_read(trainer_shell *s, pst_err *err);
/* What has come since; at each round. */
void trainer_queues_follow(trainer_shell *s);
/* Reads to the end where the request names a queue that is not known. */
int trainer_queues_for(trainer_shell *s, const pst_job_request *r, pst_err *err);

/* ---- inputs.c: records to steps */
/* Why the content of submitted code cannot be an archive; NULL. */
const char *trainer_code_problem(const pst_job_code *code);
/* Steps the core with one record. PST_EAGAIN with class RETRY: the registry or the object store is away, the record is to come again. */
int trainer_input_request(trainer_shell *s, const pst_record *r, pst_err *err);
int trainer_input_report(trainer_shell *s, const pst_record *r, pst_err *err);
/* What data stores have answered. *ret_n: how many answers. */
int trainer_input_stores(trainer_shell *s, size_t *ret_n, pst_err *err);
int trainer_input_worker(trainer_shell *s, const pst_record *r, bool live, pst_err *err);
/* The batch in order of time across its partitions, each partition's own order kept: a halt published after its submission is read after it,
 * though it lies in another partition. ret_order: b->n indexes. */
void trainer_input_order(const pst_batch *b, size_t *ret_order);

#endif
