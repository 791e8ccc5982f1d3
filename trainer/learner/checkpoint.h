/* checkpoint.h - where a training stood: everything that a new generation needs to go on as if nothing had happened.
 *
 * File <dir>/learner-<generation, 6 digits>-<steps, 12 digits>.ckpt, little-endian:
 *
 *     "PSTLEARN"  u32 version (1)  u32 bytes of the header  header (JSON)  float32 arrays  u32 CRC-32C of all before it
 *
 * The header has settings' digest, features and their words, ranges of the data, progress; the arrays are mean, std, min, max (columns each), parameters and
 * Adam's two moments, and the best epoch's parameters if kept. Written atomically; the last 3 stay. A generation never touches a later
 * one's files. Reading trusts nothing: sizes, counts and the checksum are checked before anything is believed. @thread any. */
#ifndef PST_LEARNER_CHECKPOINT_H
#define PST_LEARNER_CHECKPOINT_H

#include "trainer/learner/training.h"

#define PST_CHECKPOINT_KEEP      3
#define PST_CHECKPOINT_BYTES_MAX ((size_t)2 << 30)

typedef struct learn_checkpoint_words { /* of one feature */
    char **at;
    int n; /* 0: it is of numbers */
    bool learnt, other;
} learn_checkpoint_words;

typedef struct learn_checkpoint {
    char *settings_digest, *training_id;
    int generation;
    int world;     /* ranks that shared the records; their ranges say whose they are */
    char **fields; /* of the features, in order */
    int n_fields;
    learn_checkpoint_words *words; /* per field */
    learn_statistics stats;
    learn_data_range *ranges;
    size_t n_ranges;
    int64_t data_rows;
    uint32_t data_crc;
    learn_progress progress;
    int64_t steps;
    size_t n_params;
    float *values, *m, *v, *best; /* best NULL = not kept */
} learn_checkpoint;

/* Copies what t and d know. */
void learn_checkpoint_take(const learn_training *t, const learn_data *d, const char *training_id, int generation,
                           learn_checkpoint *ret_checkpoint);
/* Puts parameters, moments and progress into a fresh training. PST_EINCOMPAT/DATA when it was another network. */
int learn_checkpoint_restore(const learn_checkpoint *c, learn_training *t, pst_err *err);
int learn_checkpoint_write(const char *dir, const learn_checkpoint *c, pst_err *err);
/* The newest that can be read. 1 found, 0 none; each one passed over is told to skipped (file name, why), which may be NULL. */
int learn_checkpoint_read_last(const char *dir, learn_checkpoint *ret_checkpoint,
                               void (*skipped)(void *arg, const char *file, const char *why), void *arg);
int learn_checkpoint_decode(const void *bytes, size_t len, learn_checkpoint *ret_checkpoint, pst_err *err); /* PST_EPARSE/DATA */
void learn_checkpoint_encode(const learn_checkpoint *c, pst_buf *out);
void learn_checkpoint_done(learn_checkpoint *c);

#endif
