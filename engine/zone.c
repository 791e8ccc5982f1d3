/* zone.c - memory freed all at once, and the lookups on nodes that use it; see graph.h. */
#include "engine/graph.h"
#include "engine/heap.h"

#include <string.h>

enum { ZONE_CHUNK = 64 << 10 };

typedef struct eng_zone_chunk {
    struct eng_zone_chunk *next;
    size_t used, cap;
    _Alignas(64) unsigned char data[];
} eng_zone_chunk;

/* Room for bytes (a multiple of 64) in a fresh chunk. */
static eng_zone_chunk *add_chunk(eng_zone *z, size_t bytes)
{
    eng_zone_chunk *c = z->chunks;
    size_t usual = z->chunk ? z->chunk : ZONE_CHUNK;
    bool own = bytes > usual / 2; /* a big block gets a chunk of its own, behind the one in use */
    size_t cap = own ? bytes : usual;
    eng_zone_chunk *fresh = eng_heap_try64(sizeof *fresh + cap);
    if (!fresh)
        return NULL;
    memset(fresh, 0, sizeof *fresh + cap);
    fresh->cap = cap;
    if (own && c) {
        fresh->next = c->next;
        c->next = fresh;
    } else {
        fresh->next = c;
        z->chunks = fresh;
    }
    return fresh;
}

void *eng_zone_try(eng_zone *z, size_t bytes)
{
    if (bytes > PTRDIFF_MAX - 4096)
        return NULL;
    bytes = (bytes + 63) & ~(size_t)63;
    eng_zone_chunk *c = z->chunks;
    if (!c || c->cap - c->used < bytes)
        c = add_chunk(z, bytes);
    if (!c)
        return NULL;
    void *p = c->data + c->used;
    c->used += bytes;
    PST_ASSERT(c->used <= c->cap && !((uintptr_t)p & 63)); /* kernels read whole vectors, aligned */
    return p;
}

void *eng_zone_alloc(eng_zone *z, size_t bytes)
{
    void *p = eng_zone_try(z, bytes);
    if (!p)
        eng_heap_fail(bytes);
    return p;
}

char *eng_zone_strdup(eng_zone *z, const char *s, size_t len)
{
    char *p = eng_zone_alloc(z, len + 1);
    if (len)
        memcpy(p, s, len);
    return p;
}

size_t eng_zone_bytes(const eng_zone *z)
{
    size_t n = 0;
    for (const eng_zone_chunk *c = z->chunks; c; c = c->next)
        n += c->used;
    return n;
}

void eng_zone_disown(eng_zone *z)
{
    for (eng_zone_chunk *c = z->chunks; c; c = c->next)
        eng_heap_disown(c);
}

void eng_zone_done(eng_zone *z)
{
    for (eng_zone_chunk *c = z->chunks, *next; c; c = next) {
        next = c->next;
        eng_heap_free(c);
    }
    z->chunks = NULL;
}
