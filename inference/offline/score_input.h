/* score_input.h - records of a file, one after the other: JSON lines, or an Avro container file.
 *
 *     score_input in;
 *     if (score_input_open(&in, "records.jsonl", &err) == 0)
 *         while ((rc = score_input_next(&in, &body, &err)) > 0) …     // body: valid until the next call
 *     score_input_done(&in);                                          // whatever open said
 *
 * @thread one owner. */
#ifndef PST_INFERENCE_OFFLINE_SCORE_INPUT_H
#define PST_INFERENCE_OFFLINE_SCORE_INPUT_H

#include "inference/offline/ocf.h"

typedef struct score_input {
    score_ocf *ocf; /* NULL = JSON lines */
    pst_buf file;
    size_t at; /* JSON: read so far */
    const char *name;
} score_input;

/* name: "-" = stdin; borrowed. PST_EINVAL for a file of another kind, which is named. */
int score_input_open(score_input *d, const char *name, pst_err *err);
/* 1 with a record, 0 at the end, < 0 broken. */
int score_input_next(score_input *d, pst_slice *ret, pst_err *err);
void score_input_done(score_input *d);

#endif
