/* data.h - the learner's records as rows of numbers: collected from a source, then split, standardised and frozen for training.
 *
 *     learn_data d;
 *     learn_data_init(&d, &settings, 256 << 20);
 *     … learn_data_add(&d, numbers, missing, &target, &err) for each record …      // data_topic.c, data_csv.c
 *     learn_prepare(&d, NULL, &ready, &err);                                       // statistics of the training part
 *
 * Which records belong to the validation part depends on the seed and on how many there are, on nothing else.
 * @thread any, one owner. */
#ifndef PST_LEARNER_DATA_H
#define PST_LEARNER_DATA_H

#include "common/base/buf.h"
#include "schemas/learn_settings.h"
#include "trainer/learner/pool.h"
#include "trainer/learner/words.h"

#include <math.h>

typedef struct learn_data_range { /* records of one partition, [from, to) */
    char *topic;
    int32_t partition;
    int64_t from, to;
    int rank; /* whose it is; 0 where one learns alone */
} learn_data_range;

typedef struct learn_target {
    double number;  /* NaN = missing */
    pst_slice text; /* classes with names; data NULL: by the number */
} learn_target;

typedef struct learn_data {
    const pst_learn_settings *settings; /* borrowed */
    learn_pool *pool;                   /* whose records these are a share of; NULL = all there are. Borrowed */
    int columns;                        /* 0 until the features are known */
    size_t rows, cap, bytes_max;
    float *x; /* (rows, columns), after scale and offset; NaN = missing: mean */
    float *y; /* (rows): class, or the target as it is; NULL for an autoencoder */
    learn_data_range *ranges;
    size_t n_ranges;
    bool *present;       /* per feature: a row has it */
    learn_words **words; /* per feature: its words; NULL = it is of numbers */
    int n_words;
    uint32_t *part, part_now;            /* which range each row is from; part_now is for the next one */
    int64_t bad;                         /* records that could not be read */
    int64_t dropped;                     /* records without their target, with an unknown class, or with a missing value that is rejected */
    char why_bad[240], why_dropped[240]; /* of the first one */
    int64_t outside; /* records whose target is none of the classes, where that is an error; the first few of those words */
    struct learn_outside {
        char word[48];
        int64_t n;
    } others[8];
    size_t n_others;
} learn_data;

void learn_data_init(learn_data *d, const pst_learn_settings *s, size_t bytes_max);
void learn_data_done(learn_data *d);
/* Call once the settings' features are known (they may come from the first record). */
void learn_data_set_columns(learn_data *d);
/* One record: numbers of all slots (of a feature of words: its word's number), missing[i] per feature. 0 added, 1 dropped (counted), PST_ELIMIT: more than bytes_max. */
int learn_data_add(learn_data *d, const double *numbers, const uint8_t *missing, const learn_target *target, pst_err *err);
void learn_data_bad(learn_data *d, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* counts a record that could not be read */
/* Rows of several ranges came in any order: brings them into the order of the ranges, so that reading again gives the same rows. */
void learn_data_sort(learn_data *d);
void learn_data_add_range(learn_data *d, const char *topic, int32_t partition, int64_t from, int64_t to);
void learn_data_take_ranges(learn_data *d, learn_data_range *ranges,
                            size_t n); /* in place of its own, which nobody needs once rows are sorted */

typedef struct learn_statistics {
    int columns;
    float *mean, *std; /* per column; std > 0 */
    float *min, *max;
    float target_mean, target_std; /* regression; else 0 and 1 */
} learn_statistics;
void learn_statistics_done(learn_statistics *s);
void learn_statistics_copy(const learn_statistics *s, learn_statistics *ret_copy);

typedef struct learn_ready {
    size_t rows, train;         /* rows [0, train) are for training, the rest for validation */
    size_t all_rows, all_train; /* of all ranks */
    int columns, target_width;
    float *z;      /* (rows, columns), standardised */
    float *target; /* (rows, target_width); z itself for an autoencoder */
    learn_statistics stats;
    float *sample; /* (sample_rows, columns): the first rows as the model will be given them */
    size_t sample_rows;
    uint32_t crc; /* of all rows before the split, of all ranks: the same data gives the same number */
} learn_ready;

/* Moves the rows out of d. With a pool all ranks call it, and statistics are of the records of all. stats: of an earlier generation, NULL = take them from the training part. PST_EINVAL/DATA: too few records. */
int learn_prepare(learn_data *d, const learn_statistics *stats, learn_ready *ret_ready, pst_err *err);
void learn_ready_done(learn_ready *r);

#endif
