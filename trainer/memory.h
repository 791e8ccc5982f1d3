/* memory.h - keys that are remembered for a time: what was answered, what was deleted. Oldest first they are forgotten, by age and never
 * more than a number of them at once: a full memory loses its oldest entry, not all.
 *
 *     pst_memory_put(&m, id, now_us);
 *     pst_memory_forget(&m, now_us - week_us, 100000);
 *
 * Invariant: entries stand in the order in which they were put. @thread one owner. */
#ifndef PST_TRAINER_MEMORY_H
#define PST_TRAINER_MEMORY_H

#include "common/base/map.h"

#include <stdbool.h>

typedef struct pst_memory_entry pst_memory_entry;

typedef struct pst_memory {
    pst_map at; /* key → entry */
    pst_memory_entry *first, *last;
} pst_memory;

void pst_memory_put(pst_memory *m, const char *key, int64_t time_us); /* a key that is there moves to the end */
bool pst_memory_has(const pst_memory *m, const char *key);
void pst_memory_take(pst_memory *m, const char *key); /* fine when it is not there */
size_t pst_memory_size(const pst_memory *m);
/* The oldest key, if it is older than before_us or more than keep are there; else NULL. Borrowed until the next change. */
const char *pst_memory_outdated(const pst_memory *m, int64_t before_us, size_t keep);
void pst_memory_forget(pst_memory *m, int64_t before_us, size_t keep);
void pst_memory_done(pst_memory *m);

#endif
