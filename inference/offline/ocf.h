/* ocf.h - reading Avro object container files, record by record: null and deflate codecs, bounded. For dry runs.
 *
 *     score_ocf_open(bytes, len, "in.avro", &f, &err);
 *     while ((rc = score_ocf_next(f, &body, &err)) > 0) …           // body: one record's Avro bytes, valid until the next call
 *     score_ocf_free(f);
 *
 * Source: Avro 1.11 specification, "Object Container Files"; the codec's name is in the metadata avro.codec. @thread one owner. */
#ifndef PST_INFERENCE_OFFLINE_OCF_H
#define PST_INFERENCE_OFFLINE_OCF_H

#include "schemas/avro.h"

typedef struct score_ocf score_ocf;

bool score_ocf_is(const void *bytes, size_t len); /* begins like one */
/* bytes: the whole file, borrowed. PST_EPARSE/DATA, PST_EUNSUPPORTED/DATA for other codecs. */
int score_ocf_open(const void *bytes, size_t len, const char *name, score_ocf **ret_file, pst_err *err);
const pst_schema *score_ocf_schema(const score_ocf *f);
/* 1 with a record, 0 at the end, < 0 broken file. Records are told apart by walking over them with the schema. */
int score_ocf_next(score_ocf *f, pst_slice *ret_body, pst_err *err);
void score_ocf_free(score_ocf *f);

#endif
