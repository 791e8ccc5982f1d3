/* map.c - an ordered array of entries with an open-addressing index beside it: order comes from the array, speed from the index, and neither
 * depends on addresses, so two runs iterate alike. A removed key leaves a hole in the array and a mark in the index; both go at the next
 * growth, which is the only time that entries move. */
#include "common/base/map.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/hash.h"

#include <stdlib.h>
#include <string.h>

#define GONE UINT32_MAX

/* Ends because an index slot is always free: at most half of them are ever used (rebuild, pst_map_put). */
static size_t find(const pst_map *m, const char *key, uint64_t hash)
{
    if (!m->index_cap)
        return SIZE_MAX;
    for (size_t i = hash & (m->index_cap - 1);; i = (i + 1) & (m->index_cap - 1)) {
        uint32_t at = m->index[i];
        if (!at)
            return SIZE_MAX;
        if (at != GONE && m->at[at - 1].hash == hash && !strcmp(m->at[at - 1].key, key))
            return i;
    }
}

/* Drops the holes and sizes the index for twice the live entries. */
static void rebuild(pst_map *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++)
        if (m->at[i].key)
            m->at[n++] = m->at[i];
    PST_ASSERT(n == m->live);
    m->n = n;
    if (n * 2 >= m->cap) {
        m->cap = m->cap ? m->cap * 2 : 16;
        PST_ASSERT(m->cap < GONE); /* the index holds positions in 32 bits, GONE is none of them */
        m->at = pst_realloc(m->at, m->cap * sizeof *m->at);
    }
    m->index_cap = 32;
    while (m->index_cap < m->cap * 2)
        m->index_cap *= 2;
    free(m->index);
    m->index = pst_alloc(m->index_cap * sizeof *m->index);
    for (size_t k = 0; k < n; k++) {
        size_t i = m->at[k].hash & (m->index_cap - 1);
        while (m->index[i])
            i = (i + 1) & (m->index_cap - 1);
        m->index[i] = (uint32_t)k + 1;
    }
}

void *pst_map_get(const pst_map *m, const char *key)
{
    size_t i = find(m, key, pst_fnv1a(key, strlen(key)));
    return i == SIZE_MAX ? NULL : m->at[m->index[i] - 1].value;
}

void *pst_map_put(pst_map *m, const char *key, void *value)
{
    uint64_t hash = pst_fnv1a(key, strlen(key));
    size_t i = find(m, key, hash);
    if (i != SIZE_MAX) {
        pst_map_entry *e = &m->at[m->index[i] - 1];
        void *old = e->value;
        e->value = value;
        return old;
    }
    if (m->n == m->cap)
        rebuild(m);
    PST_ASSERT(m->n < m->cap && m->index_cap >= 2 * m->cap);
    m->at[m->n] = (pst_map_entry){pst_strdup(key), value, hash};
    m->n++;
    m->live++;
    for (i = hash & (m->index_cap - 1); m->index[i] && m->index[i] != GONE;)
        i = (i + 1) & (m->index_cap - 1);
    m->index[i] = (uint32_t)m->n;
    return NULL;
}

void *pst_map_take(pst_map *m, const char *key)
{
    size_t i = find(m, key, pst_fnv1a(key, strlen(key)));
    if (i == SIZE_MAX)
        return NULL;
    PST_ASSERT(m->live);
    pst_map_entry *e = &m->at[m->index[i] - 1];
    void *value = e->value;
    free(e->key);
    *e = (pst_map_entry){0};
    m->index[i] = GONE;
    m->live--;
    return value;
}

void pst_map_done(pst_map *m, void (*free_value)(void *))
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++)
        if (m->at[i].key) {
            free(m->at[i].key);
            if (free_value)
                free_value(m->at[i].value);
        }
    free(m->at);
    free(m->index);
    memset(m, 0, sizeof *m);
}
