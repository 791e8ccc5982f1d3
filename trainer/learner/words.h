/* words.h - features that are words: numbers while the records are read, one-hot columns once all are there.
 *
 *     learn_words *w = learn_words_new(&settings.features[i]);     // a list of words, or none yet where they are learnt
 *     learn_words_number(w, text, &x, &err)                        // what stands in the feature's one column meanwhile
 *     learn_words_settle(&data, &settings, &err)                   // which words there are is decided; each gets its column
 *
 * Where words are learnt, the `words_max` most frequent ones of all ranks are taken, of equally frequent ones those that come first as bytes, and they
 * stand in the order of their bytes: neither the order in which records were read nor who read them changes the model. A word as text is what the
 * scorer takes for it (`one_hot` of a pipeline's features): a number is written as it is usually written. @thread any, one owner. */
#ifndef PST_LEARNER_WORDS_H
#define PST_LEARNER_WORDS_H

#include "common/base/buf.h"
#include "schemas/learn_settings.h"

#define LEARN_WORDS_DISTINCT_MAX 65536 /* of one feature while its words are learnt: more are names of things, not kinds of them */
#define LEARN_WORD_BYTES_MAX     256   /* a longer one is unknown */

#define LEARN_WORD_UNKNOWN (-1.0) /* in the place of a word's number */
#define LEARN_WORD_MISSING (-2.0)

typedef struct learn_words learn_words;
struct learn_data;

learn_words *learn_words_new(const pst_learn_feature *f); /* NULL for a feature of numbers; f is borrowed */
void learn_words_free(learn_words *w);                    /* NULL-safe */
/* From 0 on, or LEARN_WORD_UNKNOWN. PST_ELIMIT/DATA: more different words than can be learnt. */
int learn_words_number(learn_words *w, pst_slice text, double *ret_number, pst_err *err);
/* Different words of the records of all ranks, known once they are settled; of a list, those of its words that a record has. */
size_t learn_words_seen(const learn_words *w);
/* The text of a number where words are wanted: the shortest that reads back as it. */
pst_slice learn_words_text(double x, char buf[40]);
/* After the last record and before learn_prepare(): columns of words become one column a word. All ranks call it. Nothing to do where no feature is of
 * words. PST_ELIMIT/DATA: the rows do not fit any more; PST_EINVAL/DATA: no record has a word to learn, or any of those that are listed. */
int learn_words_settle(struct learn_data *d, pst_learn_settings *s, pst_err *err);

#endif
