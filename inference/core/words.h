/* words.h - the words of a feature → their numbers: one look-up a record and feature, without heap use.
 *
 *     score_words *w = score_words_new(f->vocabulary, f->n_vocabulary);
 *     if (score_words_text(w, texts[i], &number)) …        // a text, an enum's symbol, "true", "false"
 *     if (score_words_number(w, x, &number)) …             // a number: words that are one, as it is usually written (7, -1, 1.5; not 007, 1e3)
 *
 * Immutable after new: @thread any. */
#ifndef PST_INFERENCE_CORE_WORDS_H
#define PST_INFERENCE_CORE_WORDS_H

#include "inference/pipeline/pipeline.h"

typedef struct score_words score_words;

/* entries: n ≥ 1, borrowed for the table's life; of equal words the first counts. */
score_words *score_words_new(const pst_vocabulary_entry *entries, size_t n);
void score_words_free(score_words *w);
bool score_words_text(const score_words *w, pst_slice text, double *ret);
bool score_words_number(const score_words *w, double x, double *ret);
bool score_words_have_numbers(const score_words *w); /* is any of them a number? */

#endif
