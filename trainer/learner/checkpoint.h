/* checkpoint.h - where a training stood: everything that a new generation needs to go on as if nothing had happened.
 *
 * File <dir>/learner-<generation, 6 digits>-<steps, 12 digits>.ckpt, little-endian:
 *
 *     "PSTLEARN"  u32 version (1)  u32 bytes of the header  header (JSON)  float32 arrays  u32 CRC-32C of all before it
 *
 * The header has settings' digest, features, ranges of the data, progress; the arrays are mean, std, min, max (columns each), parameters and
 * Adam's two moments, and the best epoch's parameters if kept. Written atomically; the last 3 stay. A generation never touches a later
 * one's files. Reading trusts nothing: sizes, counts and the checksum are checked before anything is believed. @thread any. */
#ifndef PST_LEARNER_CHECKPOINT_H
#define PST_LEARNER_CHECKPOINT_H

#include "trainer/learner/training.h"

#define PST_CHECKPOINT_KEEP      3
#define PST_CHECKPOINT_BYTES_MAX ((size_t)2 << 30)

typedef struct pst_checkpoint {
    char *settings_digest, *training_id;
    int generation;
    char **fields; /* of the features, in order */
    int n_fields;
    pst_statistics stats;
    pst_data_range *ranges;
    size_t n_ranges;
    int64_t data_rows;
    uint32_t data_crc;
    pst_progress progress;
    int64_t steps;
    size_t n_params;
    float *values, *m, *v, *best; /* best NULL = not kept */
} pst_checkpoint;

/* Copies what t and d know. */
void pst_checkpoint_take(const pst_training *t, const pst_data *d, const char *training_id, int generation, pst_checkpoint *ret_checkpoint);
/* Puts parameters, moments and progress into a fresh training. PST_EINCOMPAT/DATA when it was another network. */
int pst_checkpoint_restore(const pst_checkpoint *c, pst_training *t, pst_err *err);
int pst_checkpoint_write(const char *dir, const pst_checkpoint *c, pst_err *err);
/* The newest that can be read. 1 found, 0 none; each one passed over is told to skipped (file name, why), which may be NULL. */
int pst_checkpoint_read_last(const char *dir, pst_checkpoint *ret_checkpoint, void (*skipped)(void *arg, const char *file, const char *why),
                             void *arg);
int pst_checkpoint_decode(const void *bytes, size_t len, pst_checkpoint *ret_checkpoint, pst_err *err); /* PST_EPARSE/DATA */
void pst_checkpoint_encode(const pst_checkpoint *c, pst_buf *out);
void pst_checkpoint_done(pst_checkpoint *c);

#endif
