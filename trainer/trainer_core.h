/* trainer_core.h - what the Trainer decides: admits, queues, commands, concludes. Pure: no I/O, no clock, no threads.
 *
 *     tcore *c = tcore_new(&policy);
 *     for (each record of jobs.state) tcore_load(c, &state);         // or _drop for a tombstone
 *     tcore_loaded(c);
 *     tcore_step(c, &(trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r}, now_us, &actions);
 *     … publish the actions in order, in one transaction with the input's offset …
 *     trainer_actions_clear(&actions);
 *
 * Invariants (checked by tests/sim/sim_trainer.c): a job's events are numbered from 1 without gaps; at most one generation of a job
 * lives; a generation ends by observed exits, or a person's
 * word on a silent node, only; charged resources never go below zero; every request is answered, once; the states
 * published are enough to go on from (load + step = step). Steps are idempotent: a request or a report twice is once.
 * A request of a job that is not known is kept, in the published states too, until the requests have been read to their end for a while:
 * its submission may stand on another partition. Only then is the job unknown. Submissions that cannot be met are published as states, too
 * (REJECTED), so that they can be found and are answered once. What is remembered of answers, rejections and deletions is forgotten by
 * age, oldest first, later than requests become too old to be taken: no order of restarts and expired offsets runs a request twice.
 * Events carry the time at which the one who observed it says that it happened, as far as that is possible (trainer_in); the times of a
 * job's events never go back. Now must not jump while a core lives (times.h); from one core to the next it may.
 * Time comes in as data and decides only deadlines, retry delays and whether an LCM has gone silent.
 * @thread one owner. */
#ifndef PST_TRAINER_CORE_H
#define PST_TRAINER_CORE_H

#include "schemas/events.h"

#include <stdbool.h>

typedef struct tcore tcore;

typedef struct trainer_policy {
    double cpus; /* capacity of every node in place of what its LCM reports; 0 = as reported */
    int64_t memory_bytes;
    int gpus;              /* -1 = as reported */
    int platform_retries;  /* per job, after lost processes and failed deployments */
    int64_t half_life_us;  /* what queues have had counts half as much after it */
    int64_t silent_us;     /* a node that has not reported for this long is silent: it gets no new jobs */
    uint8_t nonce_key[32]; /* secret: nonces of generations are made from it */
    const char *seal_id;   /* which key seals what is secret: nodes that have the same get their manifests sealed; NULL = none. Borrowed */
    const char *operators; /* names, comma-separated, of those who may touch every job; NULL = none. Borrowed */
    bool trust_gateway_roles; /* a request that is marked as an operator's (PST_REQUEST_ROLE) is one */
} trainer_policy;
typedef enum {
    PST_TRAINER_EARLY_S = 5,              /* a request waits at least this long for its submission */
    PST_TRAINER_TOO_OLD_S = 6 * 86400,    /* a request of an unknown job that was published before this is not taken */
    PST_TRAINER_REMEMBERED_S = 8 * 86400, /* deletions, rejections and answers; tombstones are kept as long (topics.def) */
    PST_TRAINER_REJECTED_KEPT = 10000,    /* rejected submissions that can be found */
    PST_TRAINER_ANSWERED_KEPT = 100000,   /* answers that belong to no job */
    PST_TRAINER_DELETED_KEPT = 1000000
} trainer_core_memory;

#define PST_TRAINER_POLICY_DEFAULT                                                            \
    {                                                                                         \
        .gpus = -1, .platform_retries = 3, .half_life_us = 86400000000, .silent_us = 30000000 \
    }

typedef enum {
    PST_TRAINER_REQUEST,     /* request, code_uri, code_sha256 */
    PST_TRAINER_BAD_REQUEST, /* bad_…: bytes that are no event */
    PST_TRAINER_TOMBSTONE,   /* a request with a null value: counted */
    PST_TRAINER_REPORT,      /* report */
    PST_TRAINER_WORKER,      /* worker, seen_us */
    PST_TRAINER_STORES,      /* training_id, stores_refused: the answer to tcore_stores_awaited */
    PST_TRAINER_QUEUE,       /* queue_name, queue */
    PST_TRAINER_TICK,
    PST_TRAINER_PASS /* nothing came but the end of a round */
} trainer_in_kind;

typedef struct trainer_in {
    trainer_in_kind kind;
    const pst_job_request *request;
    const char *code_uri, *code_sha256;      /* of request->code->content, where the shell has stored it; NULL when there is none */
    const char *code_error;                  /* why it could not be taken (not an archive, not there); NULL */
    const char *bad_request_id, *bad_reason; /* the id if one could be made out, else NULL */
    const pst_process_report *report;
    const pst_worker_state *worker;
    const char *training_id;    /* STORES */
    const char *stores_refused; /* STORES: why one of them cannot be used; NULL = they can */
    const char *queue_name;
    const pst_queue_spec *queue; /* NULL = deleted */
    bool more;            /* further inputs of this round follow: who runs next is asked, and states are told, at its end (PASS, TICK) */
    int64_t seen_us;      /* when the heartbeat was published */
    int64_t published_us; /* REQUEST, REPORT: the record's timestamp; 0 = now */
    bool live;            /* REQUEST, REPORT: it was published just now */
    bool unsettled;       /* our own clock has not been compared with others' yet: it may be the wrong one */
    bool nodes_unread;    /* what nodes said before we came is being read still: a site may be wider than is known */
    bool caught_up;       /* TICK: all requests have been read that were there a moment ago */
} trainer_in;

typedef enum { PST_DO_EVENT, PST_DO_STATE, PST_DO_COMMAND, PST_DO_TOMBSTONE, PST_DO_WORKER } pst_action_kind;

typedef struct trainer_action {
    pst_action_kind kind;
    char *key;                  /* of the record; NULL = none */
    bool expired;               /* TOMBSTONE: of something that was no job or is forgotten; says nothing about a deletion */
    pst_job_event event;        /* EVENT */
    pst_job_command command;    /* COMMAND */
    bool seal;                  /* COMMAND: its node can open what is sealed */
    pst_worker_state worker;    /* WORKER */
    const pst_job_state *state; /* STATE: borrowed until the next step */
} trainer_action;

typedef struct trainer_actions {
    trainer_action *at;
    size_t n, cap;
} trainer_actions;
void trainer_actions_clear(trainer_actions *a); /* keeps the array */
void trainer_actions_done(trainer_actions *a);

/* Since start; for /metrics and tests. */
typedef struct trainer_counts {
    uint64_t requests, duplicates, rejected, tombstones;
    uint64_t reports, reports_stale, reports_repeated, reports_unknown, reports_untrusted;
    uint64_t deployed, completed, failed, halted, terminated, retried, preempted;
} trainer_counts;

tcore *tcore_new(const trainer_policy *policy);
void tcore_free(tcore *c);
/* Forgets all jobs; what LCMs reported and the counts stay. Then load again. */
void tcore_reset(tcore *c);
void tcore_load(tcore *c, const pst_job_state *s);                      /* copied; a later one of the same id replaces it */
void tcore_drop(tcore *c, const char *training_id, int64_t deleted_us); /* 0 = it had only expired */
void tcore_loaded(tcore *c);                                            /* after the last load: queues and charges are made from the jobs */
/* Appends to ret_actions. Never fails: what is wrong with an input is answered or counted. */
void tcore_step(tcore *c, const trainer_in *in, int64_t now_us, trainer_actions *ret_actions);

/* NULL = unknown. Borrowed until the next step. */
const pst_job_state *tcore_job(const tcore *c, const char *training_id);
/* Would this SUBMIT be news? Spares the shell from storing the code of a duplicate. */
bool tcore_is_new(const tcore *c, const pst_job_request *r);
/* Tells of the code of every job that runs, or still could: that is queued, can be tried again, or resumed. */
void tcore_codes(const tcore *c, void (*tell)(void *arg, const pst_code_ref *code), void *arg);
/* Tells of every job that is not admitted before its data stores were asked. tell must not step the core. */
#define PST_TRAINER_STORES_ASKED "STORES_ASKED" /* its reason_code while that lasts */
void tcore_stores_awaited(tcore *c, void (*tell)(void *arg, const pst_job_state *s), void *arg);
const trainer_counts *tcore_counts(const tcore *c);
size_t tcore_jobs(const tcore *c, pst_job_public_state state); /* how many are in that state */
/* Charged at a site: CPUs in thousandths, bytes, GPUs. False: unknown site. */
bool tcore_used(const tcore *c, const char *site, int64_t ret_used[3]);
/* All but `default` are taken as deleted, until they are told again. */
void tcore_queues_forget(tcore *c);
/* Is the queue there that jobs may name? */
bool tcore_has_queue(const tcore *c, const char *name);
typedef struct trainer_queue_facts {
    const char *name;
    bool known;
    size_t running, waiting;
    double cpus;
    int64_t memory, gpus;
    double use; /* CPUs, the mean that forgets */
} trainer_queue_facts;
void tcore_each_queue(const tcore *c, void (*fn)(void *arg, const trainer_queue_facts *f), void *arg);
/* Every job, in no order. fn must not step the core. */
void tcore_each(const tcore *c, void (*fn)(void *arg, const pst_job_state *s, bool queued, bool charged), void *arg);
/* The same jobs in the same states, queued and charged alike? */
bool tcore_equal(const tcore *a, const tcore *b);
/* Every job's state as canonical text, for a person who compares two. free() it. */
char *tcore_dump(const tcore *c);

#endif
