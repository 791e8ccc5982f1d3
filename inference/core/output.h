/* output.h - the record Score: its schema with the pass-through fields of one kind of input record, and its bytes.
 *
 * Pass-through fields lie under `record`, each nullable whatever the writer's schema says, so that schemas with and without a field stay
 * compatible; dots of a path become underscores. Named types come along, written out, renamed where they would clash with ours.
 * slim = `score` alone. Immutable after new: @thread any. */
#ifndef PST_INFERENCE_CORE_OUTPUT_H
#define PST_INFERENCE_CORE_OUTPUT_H

#include "inference/core/binding.h"
#include "schemas/avro.h"

typedef struct pst_output pst_output;
typedef enum { PST_VARIANT_PRIMARY = 0, PST_VARIANT_CANARY, PST_VARIANT_SHADOW } pst_variant;

/* pass_schemas: one text a pass-through field of p, NULL = the writer has none: left out. PST_EINVAL/DATA: a name that Avro cannot hold. */
int pst_output_new(const pst_pipeline *p, const char *const *pass_schemas, pst_output **ret_output, pst_err *err);
void pst_output_free(pst_output *o);
const char *pst_output_schema(const pst_output *o);

/* What neighbours of one topic and backend have in common, encoded once: of one model only. Zeroed before its first use. */
typedef struct pst_output_head {
    pst_buf bytes; /* no label, model, backend, topic */
    char *topic, *backend;
} pst_output_head;
void pst_output_head_done(pst_output_head *h);

typedef struct pst_score_parts {
    const double *scores;
    size_t n_scores;
    const char *label;   /* NULL = null */
    pst_slice model;     /* by pst_output_model */
    const char *backend; /* pst_binding_backend */
    pst_output_head *head;
    const char *topic;
    int32_t partition;
    int64_t offset, timestamp_ms;
    pst_variant variant;
    int64_t scored_at_us;
    const pst_feature *features; /* names of the missing ones */
    const uint8_t *missing;      /* NULL = none is */
    size_t n_features;
    const pst_slice *pass;   /* one a pass-through field of the pipeline; data NULL = null */
    const double *threshold; /* NULL = null */
} pst_score_parts;

/* Appends the Avro body, without framing. No heap use beyond out's growth. */
void pst_output_put(const pst_output *o, const pst_score_parts *s, pst_buf *out);
/* The bytes of `model` but for its backend, which may change with every run; made once a binding. */
void pst_output_model(const pst_binding *b, pst_buf *ret_bytes);

#endif
