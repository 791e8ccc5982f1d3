/* decoder.h - records of one writer schema (or JSON texts) → rows of a binding, and the fields that are passed through.
 *
 * A decoder belongs to one (schema, binding) pair: the Avro decode plan fetches the features of the model and the pass-through fields of the
 * pipeline in one walk over the bytes. @thread one at a time (it has scratch memory). */
#ifndef PST_INFERENCE_CORE_DECODER_H
#define PST_INFERENCE_CORE_DECODER_H

#include "inference/core/binding.h"
#include "inference/core/windowed.h"
#include "schemas/avro.h"

typedef struct pst_decoder pst_decoder;

/* writer NULL = JSON texts. p, b: borrowed for the decoder's life; the schema only for this call. PST_EINCOMPAT or PST_EINVAL, DATA: records
 * of this schema can never be scored by this model. */
int pst_decoder_new(const pst_pipeline *p, pst_binding *b, const pst_schema *writer, pst_decoder **ret_decoder, pst_err *err);
void pst_decoder_free(pst_decoder *d);
/* Schema texts of the pass-through fields, in the pipeline's order; NULL = the writer has no such field. For JSON: all NULL. */
const char *pst_decoder_pass_schema(const pst_decoder *d, size_t i);
bool pst_decoder_is_json(const pst_decoder *d);
/* It is known which field lands where: JSON decoders learn it from their first record, which fields of it are arrays. */
bool pst_decoder_is_laid_out(const pst_decoder *d);

/* The schema has none of the model's fields, so that every record would be scored alike. JSON: false, each text is its own. */
bool pst_decoder_has_no_field(const pst_decoder *d);

/* What went wrong, for the dead letter: where (DECODE, MAP) and the stable reason. */
typedef struct pst_decode_fault {
    const char *stage, *reason;
} pst_decode_fault;

/* One record's way past the windows. */
typedef struct pst_decode_windows {
    pst_keyed *keyed; /* of the record's partition; read, not changed */
    const pst_record *record;
    pst_slice key; /* told, as the three below: for pst_keyed_enter, should the record be scored. Borrowed of the record or of this */
    int64_t time_ms;
    double x[PST_KEYED_SERIES_MAX];
    double values[PST_PIPELINE_WINDOWS_MAX];
    char room[PST_KEYED_KEY_MAX];
} pst_decode_windows;

/* What the runs to come read windows from; NULL = nothing is there, each window is 0: to see whether records fit (a check, a model that is to follow). */
void pst_decoder_windows(pst_decoder *d, pst_decode_windows *w);

/* bytes: Avro body without framing, or JSON text. Fills row `row` of the binding. ret_missing: one byte a feature, 1 = missing.
 * ret_pass: one slice a pass-through field, data NULL = null; Avro: raw bytes inside `bytes`; JSON: encoded by pst_decoder_json_pass into arena,
 * data = offset + 1 there. Returns 0 or PST_E…/DATA with ret_fault. 0 with a ret_fault that has a reason: the row is there, but a finite number of
 * the record is beyond what the model's input holds (err says which field); otherwise ret_fault stays as it is. */
int pst_decoder_run(pst_decoder *d, const void *bytes, size_t len, size_t row, uint8_t *ret_missing, pst_slice *ret_pass, pst_buf *arena,
                    pst_decode_fault *ret_fault, pst_err *err);
/* JSON: do the fields of this text fill the model's input, whatever is in them? 0 yes. PST_EINCOMPAT no, and why; PST_EPARSE, PST_EINVAL,
 * PST_ELIMIT: it is no JSON object, so that it tells nothing. Changes nothing in the decoder. */
int pst_decoder_json_fills(const pst_decoder *d, const void *bytes, size_t len, pst_err *err);
char *pst_decoder_explain(const pst_decoder *d); /* free() */

/* The schema of every pass-through field of JSON records: what JSON can hold, objects and lists as JSON text. */
#define PST_JSON_PASS_SCHEMA "[\"null\",\"boolean\",\"long\",\"double\",\"string\"]"

#endif
