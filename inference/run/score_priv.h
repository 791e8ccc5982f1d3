/* score_priv.h - the inside of the running scorer, shared by score_run.c (models, rounds, loop), score_host.c (registry, topics, Kafka) and
 * score_emit.c (records out). One thread owns all of it. */
#ifndef PST_INFERENCE_RUN_SCORE_PRIV_H
#define PST_INFERENCE_RUN_SCORE_PRIV_H

#include "common/platform/client.h"
#include "inference/run/score_follow.h"
#include "inference/run/score_round.h"
#include "inference/run/score_run.h"
#include "inference/run/score_slot.h"
#include "inference/run/score_stats.h"
#include "inference/run/score_work.h"

enum {
    PST_SCHEMA_WAIT_MS = 2100, /* the registry client remembers a negative answer for 2 s */
    PST_SCHEMAS_UNKNOWN_MAX = 4096
};

typedef struct pst_unknown_schema {
    int32_t id;
    int tries;
    int64_t asked_us, verdict_us; /* verdict 0 = still open */
} pst_unknown_schema;

typedef struct pst_input_topic {
    const char *name;
    int partitions;
    char *dlq;
} pst_input_topic;

typedef struct pst_scorer {
    const pst_settings *settings;
    const pst_pipeline *p;
    const pst_score_run_opts *opts;
    pst_client *client;
    pst_bus_conf *conf;
    pst_core *core;
    pst_stats *stats;
    pst_follow *follow;
    pst_model_news held[3]; /* models that wait for an earlier change to be concluded */
    pst_slot slot;
    int next_slot;
    char *worker, *group, *txn_id, *instance_id;
    pst_consumer *consumer;
    pst_txn *txn;
    pst_input_topic *inputs;
    int output_partitions;
    int partitions_least; /* of the inputs: a record of another partition says that its topic has grown */
    pst_round round;
    pst_reports *reports;
    int64_t reports_silent_us; /* since when it may not write to the topic of models; 0 = it may */
    uint64_t assignment;       /* pst_consumer_epoch: which of its lives the reports speak of */
    pst_fate *fates;
    pst_record *rest; /* of a batch: what is to be done beside a partition that waits */
    pst_work *work;
    pst_pace pace;
    pst_buf value, shadow_value, texts;
    pst_header_room headers;
    size_t score_bytes_max;  /* the largest score that its topic takes */
    int64_t shadow_waits_us; /* since when the shadow's schema cannot be registered; 0 = it can */
    uint64_t shadow_skipped; /* in a row */
    pst_unknown_schema *unknown;
    size_t n_unknown;
    uint64_t done; /* records committed */
    uint64_t dead; /* of them dead-lettered */
    int again;     /* rounds in a row that were thrown away at their commit */
    int64_t told_waiting_us, fenced_us;
    pst_err err;
} pst_scorer;

/* score_host.c. What the core asks for (arg = the scorer). */
int pst_scorer_schema(void *arg, int32_t id, const pst_schema **ret_schema, pst_err *err);
int pst_scorer_output_id(void *arg, const char *schema_text, bool shadow, int32_t *ret_id, pst_err *err);
/* The errors of these and of pst_scorer_emit are in s->err. */
int pst_scorer_configure(pst_scorer *s);    /* Kafka properties: defaults of score, the pipeline's, -X above them */
int pst_scorer_await_topics(pst_scorer *s); /* waits for inputs, makes outputs; PST_ESTOPPED */
int pst_scorer_take_slot(pst_scorer *s);
int pst_scorer_open(pst_scorer *s); /* slot, consumer, transactions */
/* Records have come: have the topics grown? RETRY: that cannot be found out now. */
int pst_scorer_meet(pst_scorer *s, const pst_record *records, size_t n);
/* Consumer and producer again, under the same id: what is not committed comes again. */
int pst_scorer_reopen(pst_scorer *s);
void pst_scorer_close(pst_scorer *s);
/* Told that somebody has our id: closes and opens again, by and by under another one. */
int pst_scorer_after_fencing(pst_scorer *s);
/* Tells whoever asks what the stream waits for; NULL = it flows. */
void pst_scorer_waits(pst_scorer *s, const pst_err *why);
void pst_scorer_idle_ms(int ms); /* sleeps, ready to stop */

/* What this round tells about models goes into it, before its commit; and after a commit that failed. */
int pst_scorer_may_report(pst_scorer *s); /* asks the registry what reports need, so that no round waits for it later. RETRY */
void pst_scorer_report(pst_scorer *s);
void pst_scorer_report_failed(pst_scorer *s);

/* score_emit.c: one record's fate goes out. PST_EAGAIN: the producer's queue stays full; class RETRY: wait; class DATA: errors.tolerance. */
int pst_scorer_emit(pst_scorer *s, const pst_record *r, const pst_fate *f, int64_t now_us);

#endif
