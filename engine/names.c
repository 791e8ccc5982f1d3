/* names.c - names to numbers, in the order in which they came. An ordered array with an open-addressing index beside it. */
#include "engine/names.h"

#include "engine/heap.h"

#include <string.h>
#include <sys/random.h>

static uint64_t key(void)
{
    static uint64_t k;
    uint64_t now = __atomic_load_n(&k, __ATOMIC_RELAXED), fresh = 0, none = 0;
    if (now)
        return now;
    if (getrandom(&fresh, sizeof fresh, GRND_NONBLOCK) != sizeof fresh)
        fresh = (uint64_t)(uintptr_t)&k; /* where the program was loaded: better than nothing, early at boot */
    fresh |= 1;
    return __atomic_compare_exchange_n(&k, &none, fresh, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ? fresh : none;
}

static uint32_t hash_of(const char *s)
{
    uint64_t h = key();
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * UINT64_C(0x100000001b3); /* FNV-1a, from our key instead of its constant */
    h ^= h >> 32;
    h *= UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(h >> 32);
}

static uint32_t *place(const eng_names *t, const char *name, uint32_t hash)
{
    size_t mask = 2 * t->cap - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        uint32_t *p = &t->index[i];
        if (!*p || (t->at[*p - 1].hash == hash && !strcmp(t->at[*p - 1].name, name)))
            return p;
    }
}

static void grow(eng_names *t)
{
    size_t cap = t->cap ? 2 * t->cap : 16;
    PST_ASSERT(cap < UINT32_MAX / 2);
    t->at = eng_heap_realloc(t->at, cap * sizeof *t->at);
    eng_heap_free(t->index);
    t->index = NULL;
    t->index = eng_heap_array(2 * cap, sizeof *t->index);
    t->cap = cap;
    for (size_t i = 0; i < t->n; i++) {
        size_t at = t->at[i].hash & (2 * cap - 1);
        while (t->index[at])
            at = (at + 1) & (2 * cap - 1);
        t->index[at] = (uint32_t)i + 1;
    }
}

int eng_names_get(const eng_names *t, const char *name)
{
    if (!t->n)
        return -1;
    uint32_t at = *place(t, name, hash_of(name));
    return at ? t->at[at - 1].value : -1;
}

void eng_names_put(eng_names *t, const char *name, int value)
{
    uint32_t hash = hash_of(name);
    if (t->n == t->cap)
        grow(t);
    uint32_t *p = place(t, name, hash);
    if (*p) {
        t->at[*p - 1].value = value;
        return;
    }
    t->at[t->n] = (eng_name){.name = name, .hash = hash, .value = value};
    *p = (uint32_t)++t->n;
}

void eng_names_done(eng_names *t)
{
    eng_heap_free(t->at);
    eng_heap_free(t->index);
    *t = (eng_names){0};
}
