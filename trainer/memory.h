/* memory.h - keys that are remembered for a time: what was answered, what was deleted. Oldest first they are forgotten, by age and never
 * more than a number of them at once: a full memory loses its oldest entry, not all.
 *
 *     trainer_memory_put(&m, id, now_us);
 *     trainer_memory_forget(&m, now_us - week_us, 100000);
 *
 * Invariant: entries stand in the order in which they were put. @thread one owner. */
#ifndef PST_TRAINER_MEMORY_H
#define PST_TRAINER_MEMORY_H

#include "common/base/map.h"

#include <stdbool.h>

typedef struct trainer_memory_entry trainer_memory_entry;

typedef struct trainer_memory {
    pst_map at; /* key → entry */
    trainer_memory_entry *first, *last;
} trainer_memory;

void trainer_memory_put(trainer_memory *m, const char *key, int64_t time_us); /* a key that is there moves to the end */
bool trainer_memory_has(const trainer_memory *m, const char *key);
void trainer_memory_take(trainer_memory *m, const char *key); /* fine when it is not there */
size_t trainer_memory_size(const trainer_memory *m);
/* The oldest key, if it is older than before_us or more than keep are there; else NULL. Borrowed until the next change. */
const char *trainer_memory_outdated(const trainer_memory *m, int64_t before_us, size_t keep);
void trainer_memory_forget(trainer_memory *m, int64_t before_us, size_t keep);
void trainer_memory_done(trainer_memory *m);

#endif
