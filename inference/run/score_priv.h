/* score_priv.h - the inside of the running scorer, shared by score_run.c (models, rounds, loop), score_host.c (topics, its place in the group),
 * score_door.c (records in, the registry) and score_emit.c (records out). One thread owns all of it. */
#ifndef PST_INFERENCE_RUN_SCORE_PRIV_H
#define PST_INFERENCE_RUN_SCORE_PRIV_H

#include "common/base/dump.h"
#include "common/platform/client.h"
#include "inference/core/drift.h"
#include "inference/run/score_follow.h"
#include "inference/run/score_note.h"
#include "inference/run/score_round.h"
#include "inference/run/score_run.h"
#include "inference/run/score_slot.h"
#include "inference/run/score_stats.h"
#include "inference/run/score_work.h"
#include "inference/state/budget.h"
#include "inference/state/suspect.h"
#include "inference/state/takes.h"
#include "inference/state/unknown.h"

enum { PST_SCHEMA_WAIT_MS = 2100 }; /* the registry client remembers a negative answer for 2 s */

typedef struct score_input_topic {
    const char *name;
    int partitions;
    char *dlq;
    pst_takes dlq_takes;
    int64_t dlq_asked_us;
} score_input_topic;

/* Of the batch in hand: this record cannot be used now, and neither can those of its partition behind it. */
typedef struct score_stop {
    const pst_record *at;
    pst_err why;
} score_stop;

typedef struct scorer {
    const pst_settings *settings;
    const pst_pipeline *p;
    const pst_score_run_opts *opts;
    pst_client *client;
    pst_bus_conf *conf;
    pst_score_core *core;
    score_stats *stats;
    pst_dump *dump;
    score_follow *follow;
    score_model_news held[3]; /* models that wait for an earlier change to be concluded */
    score_slot slot;
    score_note *note;
    int next_slot;
    char *worker, *group, *txn_id, *instance_id;
    pst_consumer *consumer;
    pst_txn *txn;
    score_input_topic *inputs;
    int output_partitions;
    int partitions_least; /* of the inputs: a record of another partition says that its topic has grown */
    score_round round;
    score_reports *reports;
    pst_drift *drift; /* of the primary's input; NULL = it has no training statistics, or nobody asks */
    const pst_binding *drift_of;
    int drift_version;   /* its: memory is used again */
    pst_budget budget;   /* of the canary: what is committed */
    int budget_of;       /* the version that it counts */
    bool canary_stopped; /* it rests until the spec changes */
    char canary_why[480];
    int64_t reports_silent_us; /* since when it may not write to the topic of models; 0 = it may */
    uint64_t assignment;       /* pst_consumer_epoch: which of its lives the reports speak of */
    score_stop *stops;         /* one a partition */
    size_t n_stops, cap_stops;
    score_work *work;
    score_pace pace;
    pst_buf texts;
    pst_header_room headers;
    size_t score_bytes_max;  /* the largest score that its topic takes */
    int64_t shadow_waits_us; /* since when the shadow's schema cannot be registered; 0 = it can */
    uint64_t shadow_skipped; /* in a row */
    pst_err shadow_why;      /* why they are */
    pst_unknown *unknown;
    pst_suspects suspects;         /* the records that a topic refuses */
    pst_takes takes, shadow_takes; /* and what it says that it does not take */
    int64_t takes_asked_us, shadow_rests_us;
    int state_partitions;          /* of the topic of the state */
    uint64_t state_epoch;          /* pst_consumer_epoch: which of its lives the windows belong to */
    bool state_lost;               /* partitions were taken away while windows were read */
    pst_keyed_counts state_counts; /* as they were told last */
    struct score_place {
        int32_t partition;
        int64_t offset;
    } * too_large; /* records whose scores their topic does not take: they are to be dead letters before windows have them */
    size_t n_too_large;
    uint64_t done; /* records committed */
    uint64_t dead; /* of them dead-lettered */
    int again;     /* rounds in a row that were thrown away at their commit */
    int64_t waiting_logged_us, fenced_us;
    bool reopened;        /* the group has not taken it in again yet */
    bool waits_unsettled; /* partitions were taken away: some that wait may not be ours any more */
    pst_err err;
} scorer;

/* score_door.c: a batch's records go into the core; one that lacks something stops its partition. */
int scorer_take(scorer *s, const pst_record *records, size_t n);
/* The same for one that cannot be sent now. */
void scorer_stop_at(scorer *s, const pst_record *r, const pst_err *why);
/* It is, or is behind, one that stopped its partition. */
bool scorer_is_stopped(const scorer *s, const pst_record *r);
bool scorer_retriable(int rc, const pst_err *e);

/* score_host.c. The errors of these, of scorer_take and of scorer_emit are in s->err. */
int scorer_configure(scorer *s);    /* Kafka properties: defaults of score, the pipeline's, -X above them */
int scorer_await_topics(scorer *s); /* waits for inputs, makes outputs; PST_ESTOPPED */
int scorer_take_slot(scorer *s);
int scorer_open(scorer *s); /* slot, consumer, transactions */
/* Records have come: have the topics grown? RETRY: that cannot be found out now. */
int scorer_meet(scorer *s, const pst_record *records, size_t n);
/* Consumer and producer again, under the same id: what is not committed comes again. */
int scorer_reopen(scorer *s);
/* Has the group taken it in? Then it is ready again. */
void scorer_rejoined(scorer *s);
void scorer_close(scorer *s);
/* Told that somebody has our id: closes and opens again, by and by under another one. */
int scorer_after_fencing(scorer *s);
/* Tells whoever asks what the partition of this record waits for. */
void scorer_waits(scorer *s, const pst_record *r, const pst_err *why);
/* After partitions were taken away: what is not ours any more waits for nothing here. Cheap; to be called between two polls. */
void scorer_waits_settle(scorer *s);
void scorer_idle_ms(int ms); /* sleeps, ready to stop */

/* What this round tells about models goes into it, before its commit; and after a commit that failed. */
int scorer_may_report(scorer *s); /* asks the registry what reports need, so that no round waits for it later. RETRY */
void scorer_report(scorer *s);
void scorer_report_failed(scorer *s);

/* score_state.c: what is kept of keys. All do nothing where the pipeline has no windows. */
int scorer_state_topic(scorer *s); /* makes it, and looks at it */
/* Partitions were taken away. True: the round has to be thrown away first; else what was kept is forgotten. */
bool scorer_state_is_old(scorer *s);
/* Some of these wait for windows that have to be read, which no transaction should be open for. */
bool scorer_state_lacks(const scorer *s, const pst_record *records, size_t n);
/* The windows of the record's partition are there, or are read now, which takes its time (s->state_lost afterwards: what is in hand is void). RETRY: not now,
 * and why. */
int scorer_state_ready(scorer *s, const pst_record *r, pst_err *err);
void scorer_state_undo_from(scorer *s, const pst_record *r); /* it, and those of its partition behind it, have not happened */
bool scorer_state_too_large(const scorer *s, const pst_record *r);
void scorer_state_note_too_large(scorer *s, const pst_record *r);
int scorer_state_send(scorer *s);       /* the round's changes, before its commit */
void scorer_state_committed(scorer *s); /* or: */
void scorer_state_undo(scorer *s);
void scorer_state_forget(scorer *s); /* the consumer is another one */

/* score_refused.c. After a commit that failed, the round not cleared yet: is one of its records what a topic does not take? Then it is looked for. */
bool scorer_was_refused(scorer *s);
void scorer_was_taken(scorer *s); /* the round, not cleared yet, was committed */
/* The output topic does not take this record; why. */
bool scorer_is_refused(scorer *s, const pst_record *r, char *why, size_t size);
bool scorer_shadow_is_refused(const scorer *s, const pst_record *r);
/* Is its dead letter to have the time of its writing? RETRY: its topic takes it neither way, and it waits. */
int scorer_letter_own_time(scorer *s, const pst_record *r, score_input_topic *in, bool *ret_own_time);

/* score_canary.c: the canary's budget. */
void scorer_canary_begin(scorer *s);
void scorer_canary_hear(scorer *s);                               /* between two batches: does another worker say that it is stopped? */
void scorer_canary_had(scorer *s, const pst_fate *f);             /* a record that went out */
bool scorer_canary_judge(scorer *s);                              /* before a commit. True: the round goes beyond the budget, and says so */
void scorer_canary_commit(scorer *s, bool stops, bool committed); /* with what was judged */
/* Its model fails on every record, so that a round cannot even be computed. True: it rests, and the records may come again. */
bool scorer_canary_gives_up(scorer *s, const pst_err *why);

/* score_drift.c */
void scorer_drift_had(scorer *s, const pst_fate *f); /* a record that went out */
void scorer_drift_end(scorer *s);

/* score_dump.c: what it holds (common/base/dump.h); arg is the scorer. */
void scorer_dump(void *arg, json_t *to);

/* score_emit.c: one record's fate, finished, goes out. PST_EAGAIN: the producer's queue stays full; class RETRY: wait; class DATA: errors.tolerance. */
int scorer_emit(scorer *s, const pst_fate *f);

#endif
