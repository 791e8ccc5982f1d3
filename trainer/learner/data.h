/* data.h - the learner's records as rows of numbers: collected from a source, then split, standardised and frozen for training.
 *
 *     pst_data d;
 *     pst_data_init(&d, &settings, 256 << 20);
 *     … pst_data_add(&d, numbers, missing, &target, &err) for each record …      // data_topic.c, data_csv.c
 *     pst_prepare(&d, NULL, &ready, &err);                                       // statistics of the training part
 *
 * Which records belong to the validation part depends on the seed and on how many there are, on nothing else.
 * @thread any, one owner. */
#ifndef PST_LEARNER_DATA_H
#define PST_LEARNER_DATA_H

#include "common/base/buf.h"
#include "schemas/learn_settings.h"

#include <math.h>

typedef struct pst_data_range { /* records of one partition, [from, to) */
    char *topic;
    int32_t partition;
    int64_t from, to;
} pst_data_range;

typedef struct pst_target {
    double number;  /* NaN = missing */
    pst_slice text; /* classes with names; data NULL: by the number */
} pst_target;

typedef struct pst_data {
    const pst_learn_settings *settings; /* borrowed */
    int columns;                        /* 0 until the features are known */
    size_t rows, cap, bytes_max;
    float *x; /* (rows, columns), after scale and offset; NaN = missing: mean */
    float *y; /* (rows): class, or the target as it is; NULL for an autoencoder */
    pst_data_range *ranges;
    size_t n_ranges;
    uint32_t *part, part_now;            /* which range each row is from; part_now is for the next one */
    int64_t bad;                         /* records that could not be read */
    int64_t dropped;                     /* records without their target, with an unknown class, or with a missing value that is rejected */
    char why_bad[240], why_dropped[240]; /* of the first one */
    int64_t outside; /* records whose target is none of the classes, where that is an error; the first few of those words */
    struct pst_outside {
        char word[48];
        int64_t n;
    } others[8];
    size_t n_others;
} pst_data;

void pst_data_init(pst_data *d, const pst_learn_settings *s, size_t bytes_max);
void pst_data_done(pst_data *d);
/* Call once the settings' features are known (they may come from the first record). */
void pst_data_set_columns(pst_data *d);
/* One record: numbers of all slots, missing[i] per feature. 0 added, 1 dropped (counted), PST_ELIMIT: more than bytes_max. */
int pst_data_add(pst_data *d, const double *numbers, const uint8_t *missing, const pst_target *target, pst_err *err);
void pst_data_bad(pst_data *d, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* counts a record that could not be read */
/* Rows of several ranges came in any order: brings them into the order of the ranges, so that reading again gives the same rows. */
void pst_data_sort(pst_data *d);
void pst_data_add_range(pst_data *d, const char *topic, int32_t partition, int64_t from, int64_t to);

typedef struct pst_statistics {
    int columns;
    float *mean, *std; /* per column; std > 0 */
    float *min, *max;
    float target_mean, target_std; /* regression; else 0 and 1 */
} pst_statistics;
void pst_statistics_done(pst_statistics *s);
void pst_statistics_copy(const pst_statistics *s, pst_statistics *ret_copy);

typedef struct pst_ready {
    size_t rows, train; /* rows [0, train) are for training, the rest for validation */
    int columns, target_width;
    float *z;      /* (rows, columns), standardised */
    float *target; /* (rows, target_width); z itself for an autoencoder */
    pst_statistics stats;
    float *sample; /* (sample_rows, columns): the first rows as the model will be given them */
    size_t sample_rows;
    uint32_t crc; /* of all rows before the split: the same data gives the same number */
} pst_ready;

/* Moves the rows out of d. stats: of an earlier generation, NULL = take them from the training part. PST_EINVAL/DATA: too few records. */
int pst_prepare(pst_data *d, const pst_statistics *stats, pst_ready *ret_ready, pst_err *err);
void pst_ready_done(pst_ready *r);

#endif
