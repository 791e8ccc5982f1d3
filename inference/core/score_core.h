/* score_core.h - a batch of records → their fates: scored, tombstone, skipped, bad (with stage and reason), or to wait for. No Kafka calls, no
 * clock, no threads: schemas and the ids of output schemas come from the host, time comes in as data.
 *
 *     pst_score_core_offer(core, PST_VARIANT_PRIMARY, binding, NULL, 0);
 *     pst_score_core_run(core, records, n, fates, &usable, &err);
 *     for (i < usable) pst_score_core_encode(core, &records[i], &fates[i], false, now, &out, &err);
 *     pst_score_core_committed(core, …);
 *
 * Every role (primary, canary, shadow) has one model in use and at most one that is to follow it from given offsets on; a record's offset
 * alone decides between the two, so that a replay gives the same scores. One bad record never harms its batch: when a run of the model
 * fails, the batch is halved until the culprits are alone.
 *
 *   record ── envelope ── schema ── decode ── map ── infer ── fate SCORED
 *               │           │         │        │       │
 *            bad-envelope unknown-  limits  bad-input bad-input          fate BAD (dead letter), the rest of the batch unharmed
 *                         schema    bad-input
 *                         or WAIT (registry away)
 * @thread one at a time. */
#ifndef PST_INFERENCE_CORE_SCORE_CORE_H
#define PST_INFERENCE_CORE_SCORE_CORE_H

#include "inference/core/decoder.h"
#include "inference/core/output.h"

typedef struct pst_score_core pst_score_core;
typedef struct pst_lane pst_lane; /* one model in one role */

typedef struct pst_score_core_host {
    void *arg;
    /* Class RETRY: ask again later (PST_EAGAIN: this id is not known yet; anything else: the registry is away). DATA: there is no such id. */
    int (*schema)(void *arg, int32_t id, const pst_schema **ret_schema, pst_err *err);
    /* Registers an output schema. RETRY: ask again later; DATA: it is refused, and so are the records that need it. */
    int (*output_id)(void *arg, const char *schema_text, bool shadow, int32_t *ret_id, pst_err *err);
    bool unframed; /* values are Avro bodies without framing, all of schema id 0 (files) */
} pst_score_core_host;

typedef enum { PST_FATE_SCORED = 0, PST_FATE_TOMBSTONE, PST_FATE_SKIP, PST_FATE_BAD } pst_fate_kind;

typedef struct pst_fate {
    pst_fate_kind kind;
    pst_lane *lane; /* SCORED */
    uint32_t row;
    pst_lane *shadow; /* NULL = none, or the shadow model failed on it */
    uint32_t shadow_row;
    pst_lane *by;               /* the model that had the record, also where the record is bad; NULL = none came to see it */
    const char *stage, *reason; /* BAD */
    size_t message;             /* BAD: by pst_score_core_message */
} pst_fate;

typedef struct pst_effective { /* from this offset on */
    char *topic;
    int32_t partition;
    int64_t offset;
} pst_effective;

pst_score_core *pst_score_core_new(const pst_pipeline *p, const pst_score_core_host *host); /* p borrowed */
void pst_score_core_free(pst_score_core *c);
/* A model for a role, from these offsets on (copied); none = from the next batch on. Takes the binding. Returns PST_EAGAIN, and takes nothing,
 * while an earlier change of that role is still under way. */
int pst_score_core_offer(pst_score_core *c, pst_variant role, pst_binding *take, const pst_effective *from, size_t n);
/* Would this model take what the one in use takes? Asked before an offer: every writer schema seen so far is bound to it, and one record of each
 * is run through it. PST_E…/DATA: which schema, and why not; the model in use had better stay. */
int pst_score_core_fits(pst_score_core *c, pst_variant role, pst_binding *b, pst_err *err);
/* Gives up waiting for the offsets of a change: its model counts everywhere from now on. */
void pst_score_core_hurry(pst_score_core *c, pst_variant role);
/* The partitions that are ours now (ret_from = position): a change whose offsets lie elsewhere, or behind, is concluded. */
void pst_score_core_assigned(pst_score_core *c, pst_variant role, const pst_range *assignment, size_t n);
void pst_score_core_drop(pst_score_core *c, pst_variant role);                        /* no model in this role any more (canary, shadow) */
const pst_binding *pst_score_core_binding(const pst_score_core *c, pst_variant role); /* newest; NULL = none */

/* Decodes and runs. fates: n. ret_usable < n: the record there must wait, err (RETRY) says why; use those before it.
 * < 0: PST_ESTATE the model fails on every record (class RETRY: another model may cure it); the rest FATAL. n ≤ batching.count. */
int pst_score_core_run(pst_score_core *c, const pst_record *records, size_t n, pst_fate *ret_fates, size_t *ret_usable, pst_err *err);
/* Appends the framed value of a SCORED record. RETRY as output_id; DATA: the registry refuses the schema of this record's score (asked again
 * after half a minute). */
int pst_score_core_encode(pst_score_core *c, const pst_record *r, const pst_fate *f, bool shadow, int64_t now_us, pst_buf *out,
                          pst_err *err);
const char *pst_score_core_message(const pst_score_core *c, const pst_fate *f);
/* Of a SCORED record, borrowed until the next run. missing: one byte a feature. ret_features may be NULL. */
size_t pst_score_core_score(const pst_score_core *c, const pst_fate *f, bool shadow, const double **ret_scores, const char **ret_label);
const pst_feature *pst_score_core_missing(const pst_score_core *c, const pst_fate *f, const uint8_t **ret_missing, size_t *ret_n);
/* SCORED: no NaN, nothing infinite among the scores, and no finite number of the record was too large for the model's input. */
bool pst_score_core_finite(const pst_score_core *c, const pst_fate *f);
const pst_binding *pst_score_core_fate_binding(const pst_fate *f, bool shadow);
/* A lane lives until the next change of models: its role, its model, and the offset from which it was to count on a partition (-1 = none). */
pst_variant pst_score_core_lane_variant(const pst_lane *l);
const pst_binding *pst_score_core_lane_binding(const pst_lane *l);
int64_t pst_score_core_lane_from(const pst_lane *l, const char *topic, int32_t partition);
/* Everything before `offset` of this partition is committed: changes of model that lie behind are concluded. */
void pst_score_core_committed(pst_score_core *c, const char *topic, int32_t partition, int64_t offset);
/* The decode plan of records of this schema (NULL = JSON) for the primary model; free(). */
int pst_score_core_explain(pst_score_core *c, const pst_schema *schema, char **ret_text, pst_err *err);

#endif
