/* map.h - text key → pointer; insertion order is kept, so iteration is deterministic (cores depend on that).
 *
 *     pst_map m = {0};
 *     pst_map_put(&m, id, job);                       // returns the pointer it replaced, or NULL
 *     for (size_t i = 0; i < m.n; i++) if (m.at[i].key) use(m.at[i].value);
 *     pst_map_done(&m, free_job);
 *
 * Keys are copied. Removal leaves a hole (key NULL) until the next growth. @thread any, one owner. */
#ifndef PST_BASE_MAP_H
#define PST_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct pst_map_entry {
    char *key;
    void *value;
    uint64_t hash;
} pst_map_entry;

typedef struct pst_map {
    pst_map_entry *at; /* n used (with holes), cap allocated */
    size_t n, cap;
    size_t live;     /* entries that are there */
    uint32_t *index; /* open addressing into at, +1; 0 = empty, UINT32_MAX = removed */
    size_t index_cap;
} pst_map;

void *pst_map_get(const pst_map *m, const char *key);
void *pst_map_put(pst_map *m, const char *key, void *value);
void *pst_map_take(pst_map *m, const char *key); /* removes; the pointer moves out */
void pst_map_done(pst_map *m, void (*free_value)(void *));

#endif
