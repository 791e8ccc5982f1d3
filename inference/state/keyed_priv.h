/* keyed_priv.h - the inside of keyed.h: keyed.c (keys, rounds) and keyed_bytes.c (the changelog's records). */
#ifndef PST_INFERENCE_STATE_KEYED_PRIV_H
#define PST_INFERENCE_STATE_KEYED_PRIV_H

#include "inference/state/keyed.h"

typedef struct keyed_entry {
    struct keyed_entry *chain;         /* of its bucket */
    struct keyed_entry *newer, *older; /* by use */
    uint64_t hash;
    int64_t newest_ms; /* its time; -1 = no record had one */
    int64_t offset;    /* of its last record */
    bool dirty;        /* changed since the last settle */
    uint32_t key_len;
    char *key;
    pst_series series[]; /* of the plan */
} keyed_entry;

/* Appends. */
void keyed_put(const pst_keyed_plan *plan, const keyed_entry *e, pst_buf *out);
/* Into an entry whose series are empty. */
int keyed_get(const pst_keyed_plan *plan, pst_slice value, keyed_entry *e, pst_err *err);

#endif
