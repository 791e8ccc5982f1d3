/* score_core.h - a batch of records → their fates, finished: scored (with the bytes to write), tombstone, skipped, or bad (with stage and reason).
 * No Kafka calls, no clock, no threads, and it asks nobody: what it lacks (a writer schema, the id of an output schema) it names at the door,
 * and a record comes in once its caller has given it that, or refused the record, or keeps it back. Time comes in as data.
 *
 *     pst_score_core_offer(core, PST_VARIANT_PRIMARY, binding, NULL, 0);
 *     pst_score_core_begin(core, now);                                    // the batch before is forgotten
 *     for each record: while ((need = pst_score_core_take(core, record, &id))) give what is needed, or leave the record out;
 *     pst_score_core_run(core, &err);                                     // any thread, nothing else meanwhile
 *     pst_score_core_finish(core, now);
 *     fates = pst_score_core_fates(core, &n);                             // one a record taken, in that order
 *     pst_score_core_committed(core, …);
 *
 *              take                 run                          finish
 *   record ── envelope ── kind │ decode ── map ── infer │ encode ── fate SCORED
 *                │          │  │    │       │       │   │    │
 *          bad-envelope   needs│ limits bad-input bad-  │ output-       fate BAD (dead letter), the rest of the batch unharmed
 *                        schema│ bad-input       input  │ schema
 *
 * A *kind* is what records of one writer schema are to the core; JSON is one kind. Every variant (primary, canary, shadow) has one model in use, its
 * *lane*, and at most one that is to follow it from given offsets on (inference/state/epoch.h). One bad record never harms its batch: when a run
 * of the model fails, the batch is halved until the culprits are alone.
 * @thread one at a time. */
#ifndef PST_INFERENCE_CORE_SCORE_CORE_H
#define PST_INFERENCE_CORE_SCORE_CORE_H

#include "inference/core/decoder.h"
#include "inference/core/output.h"
#include "inference/state/epoch.h"

typedef struct pst_score_core pst_score_core;
typedef struct pst_lane pst_lane;             /* one model of one variant */
typedef struct pst_score_kind pst_score_kind; /* records of one writer schema */

typedef struct pst_score_core_opts {
    bool unframed;             /* values are Avro bodies without framing, all of schema id 0 (files) */
    bool scores_only;          /* nothing is encoded: no output is needed, and finish is not called (files, replays) */
    int64_t (*clock_us)(void); /* measures the canary's runs; NULL = they are not */
    pst_windowed *windowed;    /* what is kept of keys, where several cores share it; NULL = the core's own */
} pst_score_core_opts;

typedef enum { PST_FATE_OPEN = 0, PST_FATE_SCORED, PST_FATE_TOMBSTONE, PST_FATE_SKIP, PST_FATE_BAD } pst_fate_kind;

typedef struct pst_fate {
    pst_fate_kind kind; /* OPEN only between take and run */
    /* SCORED or BAD, by run: a NaN or something infinite is among the scores, or a number of the record was none (NaN, and rejected), or too large for
     * the model's input. SCORED, by run: features are missing; the score is above the threshold. By finish: the shadow's score goes out too, says
     * something else, or has nowhere to go. */
    bool non_finite, missing, above, shadowed, disagrees, shadow_skipped, opened, entered, doubted;
    /* opened: decode began with it; entered: its key's windows have it; doubted: it was bad, but had read of one that was bad, too, and is tried again outside
     * of the windows. shadow_skipped: also by run, when a device failed the shadow's model. */
    const pst_record *record;
    pst_score_kind *of;
    pst_lane *by;     /* the model that had the record, also where the record is bad; NULL = none came to see it */
    pst_lane *shadow; /* NULL = none, or the shadow model failed on it */
    pst_lane *canary; /* whose record it would be, were it of the canary's part; NULL = there is none, or it is off */
    /* By finish, where primary and shadow both scored it. difference: mean of the absolute ones of their numbers. */
    enum { PST_AGREE_UNSEEN = 0, PST_AGREE_EQUAL, PST_AGREE_DIFFERENT, PST_AGREE_UNJUDGED } agreement;
    double difference;
    uint32_t row, shadow_row;
    uint32_t value_len, shadow_len;
    size_t at;                  /* SCORED: of the value, the shadow's follows it. BAD: of the message */
    const char *stage, *reason; /* BAD */
} pst_fate;

pst_score_core *pst_score_core_new(const pst_pipeline *p, const pst_score_core_opts *opts); /* p borrowed; opts may be NULL */
void pst_score_core_free(pst_score_core *c);

/* ---- models ---------------------------------------------------------------------------------------------------------------- */

/* A model for a variant, from these offsets on (copied); none = from the next batch on, whatever was to come before. Takes the binding. With
 * offsets: returns PST_EAGAIN, and takes nothing, while an earlier change of that variant is still under way. */
int pst_score_core_offer(pst_score_core *c, pst_variant variant, pst_binding *take, const pst_effective *from, size_t n);
/* Would this model take what the one in use takes? Asked before an offer: every writer schema seen so far is bound to it, and one record of each
 * is run through it. PST_E…/DATA: which schema, and why not; the model in use had better stay. */
int pst_score_core_fits(pst_score_core *c, pst_variant variant, pst_binding *b, pst_err *err);
/* The partitions that are ours now, and from where on nothing is committed (-1 = not known): a change whose offsets lie elsewhere, or not ahead, is
 * concluded. */
void pst_score_core_assigned(pst_score_core *c, pst_variant variant, const pst_range *assignment, size_t n);
/* Everything before `offset` of this partition is committed: changes of model that lie behind are concluded. */
void pst_score_core_committed(pst_score_core *c, const char *topic, int32_t partition, int64_t offset);
const pst_binding *pst_score_core_binding(const pst_score_core *c, pst_variant variant); /* newest; NULL = none */
/* The canary's part of the records, in place of the pipeline's, from the next batch on; 0 = off: all are the primary's. */
void pst_score_core_canary(pst_score_core *c, double percent);
/* Of the last run: the canary's time, where it is measured. After a run that failed: the variant whose model did. */
int64_t pst_score_core_canary_us(const pst_score_core *c);
pst_variant pst_score_core_failed(const pst_score_core *c);
/* A lane lives until the next change of models: its variant and its model. */
pst_variant pst_score_core_lane_variant(const pst_lane *l);
const pst_binding *pst_score_core_lane_binding(const pst_lane *l);
const pst_lane *pst_score_core_primary_of(const pst_score_core *c,
                                          const pst_record *r); /* who has the primary's part of it by now; NULL = nobody yet */
/* Behind a run: one whose model is computed by another device, or no device any more; said once. NULL = none. */
const pst_lane *pst_score_core_device_changed(pst_score_core *c);
/* Why the shadow's model computes nothing, since a device failed it; "" = it does. */
const char *pst_score_core_shadow_why(const pst_score_core *c);

/* What is kept of keys; NULL = the pipeline has no windows. A partition has to be there before its first record is decoded; with scores_only it comes about,
 * empty, and a batch is final with the next begin. A record enters its key's windows when it is scored, by run; what a caller then does not send, it takes back
 * (pst_keyed_undo). */
pst_windowed *pst_score_core_windowed(const pst_score_core *c);

/* ---- the door -------------------------------------------------------------------------------------------------------------- */

typedef enum {
    PST_NEEDS_NOTHING = 0,
    PST_NEEDS_SCHEMA, /* nothing is known of this schema id: give it, or refuse the record */
    PST_NEEDS_OUTPUT, /* scores of this kind have no registered schema yet: give its id, or why there is none */
    PST_NEEDS_SHADOW  /* the same, for the shadow's topic */
} pst_score_need;

/* A new batch of batching.count records at most. */
void pst_score_core_begin(pst_score_core *c, int64_t now_us);
/* Takes the record (borrowed until the next begin), or says what is missing for ret_id: then the record has not been taken. */
pst_score_need pst_score_core_take(pst_score_core *c, const pst_record *r, int32_t *ret_id);
/* Takes it as a bad one. stage, reason: static texts. */
void pst_score_core_refuse(pst_score_core *c, const pst_record *r, const char *stage, const char *reason, const char *text);
/* What this id means; the schema is borrowed for the core's life. */
void pst_score_core_schema(pst_score_core *c, int32_t id, const pst_schema *schema);
bool pst_score_core_knows(const pst_score_core *c, int32_t id);
/* The schema of scores of this kind; NULL = it has none (no model takes it). */
const char *pst_score_core_output_schema(const pst_score_core *c, int32_t id);
void pst_score_core_output(pst_score_core *c, int32_t id, bool shadow, int32_t output_id);
/* There is none, and why: said of each record (bad, or without its shadow's score) until then, when it is needed again. */
void pst_score_core_no_output(pst_score_core *c, int32_t id, bool shadow, const char *why, int64_t until_us);

/* ---- a batch --------------------------------------------------------------------------------------------------------------- */

/* Decodes and scores what was taken. < 0: PST_ESTATE the model fails on every record (class RETRY: another model may cure it), PST_ESTOPPED;
 * the fates are void then. */
int pst_score_core_run(pst_score_core *c, pst_err *err);
/* Its two halves, for who measures them: rows of records, and scores of rows. */
void pst_score_core_decode(pst_score_core *c);
int pst_score_core_infer(pst_score_core *c, pst_err *err);
/* Encodes: every SCORED record has its bytes, and those of its shadow, afterwards, or is BAD. */
void pst_score_core_finish(pst_score_core *c, int64_t now_us);
/* Borrowed until the next begin, as all below. */
const pst_fate *pst_score_core_fates(const pst_score_core *c, size_t *ret_n);
pst_slice pst_score_core_value(const pst_score_core *c, const pst_fate *f, bool shadow); /* SCORED, after finish; framed */
const char *pst_score_core_message(const pst_score_core *c, const pst_fate *f);
/* Of a SCORED record. missing: one byte a feature. */
size_t pst_score_core_score(const pst_fate *f, bool shadow, const double **ret_scores, const char **ret_label);
const pst_feature *pst_score_core_missing(const pst_fate *f, const uint8_t **ret_missing, size_t *ret_n);

#endif
