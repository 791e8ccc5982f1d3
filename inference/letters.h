/* letters.h - topics of dead letters by the name of a pipeline or of a topic, for `penstock dlq` and for scoring.h.
 *
 *     score_letters w = {0};
 *     rc = score_letters_find(client, "turbine-anomalies", &w, &err);
 *     score_letters_of(&w, &ask);  …  score_letters_done(&w);
 *
 * @thread any */
#ifndef PST_INFERENCE_LETTERS_H
#define PST_INFERENCE_LETTERS_H

#include "inference/dlq/dlq.h"
#include "inference/pipeline/pipeline.h"

typedef struct score_letters {
    pst_pipeline *pipeline; /* NULL: a topic */
    char **topics;
    size_t n_topics;
} score_letters;

int score_letters_find(pst_client *c, const char *name, score_letters *ret, pst_err *err);
int score_letters_load(const char *file, score_letters *ret, pst_err *err); /* a pipeline's file */
void score_letters_topics(score_letters *w);                                /* of its pipeline */
void score_letters_of(const score_letters *w, pst_dlq_ask *to);             /* borrowed */
void score_letters_done(score_letters *w);

#endif
