/* keyed.h - what the keys of one partition have brought so far: the series that windows read (windows.h), bounded, with a way back.
 *
 *     pst_keyed *k = pst_keyed_new(&plan);                          // and pst_keyed_restore for each record of its changelog
 *     pst_keyed_read(k, key, time_ms, x, values);                   // what the record sees, itself among it; changes nothing
 *     pst_keyed_enter(k, key, time_ms, offset, x);                  // it was scored: now it has happened
 *     pst_keyed_undo(k, offset);                                    // … or has not: everything from this offset on is taken back
 *     for (i = 0; pst_keyed_change(k, i, &key, &value); i++) send;  // before the commit
 *     pst_keyed_settle(k);                                          // after it: there is no way back
 *
 * A key's time never goes back: a record that is older than one before it has that one's time. A key that has been silent for longer than `idle` begins
 * anew. Where there are too many keys, or they hold too much, those that were used longest ago are forgotten, and counted. All of it follows from the
 * records of the partition alone, in their order: who plays them again, or reads the changelog, has the same windows.
 * Pure: no clock, no I/O. @thread one owner. */
#ifndef PST_INFERENCE_STATE_KEYED_H
#define PST_INFERENCE_STATE_KEYED_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "inference/state/windows.h"

#define PST_KEYED_SERIES_MAX  64
#define PST_KEYED_KEY_MAX     1024   /* bytes of a key */
#define PST_KEYED_VALUES_MAX  10000  /* values of a series of a key */
#define PST_KEYED_RECORD_MAX  900000 /* bytes of a key in the changelog: a record of it fits into a topic as Kafka makes them */
#define PST_KEYED_VALUE_BYTES 18     /* at most, of one value there */

#define PST_KEYED_TIME_MAX (INT64_C(1) << 53) /* milliseconds; no record has a later time */

typedef struct pst_keyed_plan {
    const pst_window *windows;
    size_t n_windows;
    pst_series_keeps series[PST_KEYED_SERIES_MAX];
    size_t n_series;
    size_t keys_max, bytes_max;
    int64_t idle_ms;      /* 0 = keys do not go idle */
    uint64_t fingerprint; /* of the definition: a changelog of another one is not read */
} pst_keyed_plan;

typedef struct pst_keyed_counts {
    size_t keys, bytes;
    uint64_t forgotten, idle,
        cut; /* keys forgotten for room, begun anew or pushed out after their silence; values that a window would still have had */
} pst_keyed_counts;

typedef struct pst_keyed pst_keyed;

pst_keyed *pst_keyed_new(const pst_keyed_plan *plan); /* borrowed */
void pst_keyed_free(pst_keyed *k);                    /* NULL-safe */

/* x: one value a series, NaN = none. ret_values: one a window, NaN = it has nothing to say. time_ms < 0 = the record has no time: the key's. */
void pst_keyed_read(pst_keyed *k, pst_slice key, int64_t time_ms, const double *x, double *ret_values);
void pst_keyed_enter(pst_keyed *k, pst_slice key, int64_t time_ms, int64_t offset, const double *x);

/* The offset of the last record that entered, -1 = none: one that is not behind it has happened already. */
int64_t pst_keyed_offset(const pst_keyed *k);
void pst_keyed_undo(pst_keyed *k, int64_t from);
void pst_keyed_settle(pst_keyed *k);
/* The i-th change since the last settle, in order, i from 0 without gaps; value.data NULL = the key is gone. Borrowed until the next call. False: there
 * are no more. */
bool pst_keyed_change(pst_keyed *k, size_t i, pst_slice *ret_key, pst_slice *ret_value);
/* A record of the changelog, in order; value.data NULL = gone. PST_EINCOMPAT, PST_EPARSE or PST_ELIMIT, DATA: why it cannot be taken. */
int pst_keyed_restore(pst_keyed *k, pst_slice key, pst_slice value, pst_err *err);
pst_keyed_counts pst_keyed_count(const pst_keyed *k);

#endif
