/* memory.c - a map for finding and a list for ageing. The list is linked both ways, so that an entry that is taken out early leaves no hole
 * which a scan for the oldest would have to step over. */
#include "trainer/memory.h"

#include "common/base/buf.h"
#include "common/base/err.h"

#include <stdlib.h>

struct trainer_memory_entry {
    char *key;
    int64_t time_us;
    trainer_memory_entry *before, *after;
};

static void unlink_entry(trainer_memory *m, trainer_memory_entry *e)
{
    *(e->before ? &e->before->after : &m->first) = e->after;
    *(e->after ? &e->after->before : &m->last) = e->before;
    free(e->key);
    free(e);
}

void trainer_memory_take(trainer_memory *m, const char *key)
{
    trainer_memory_entry *e = pst_map_take(&m->at, key);
    if (e)
        unlink_entry(m, e);
}

void trainer_memory_put(trainer_memory *m, const char *key, int64_t time_us)
{
    trainer_memory_take(m, key);
    trainer_memory_entry *e = pst_alloc(sizeof *e);
    *e = (trainer_memory_entry){.key = pst_strdup(key), .time_us = time_us, .before = m->last};
    *(m->last ? &m->last->after : &m->first) = e;
    m->last = e;
    pst_map_put(&m->at, key, e);
}

bool trainer_memory_has(const trainer_memory *m, const char *key)
{
    return pst_map_get(&m->at, key);
}

size_t trainer_memory_size(const trainer_memory *m)
{
    return m->at.live;
}

const char *trainer_memory_outdated(const trainer_memory *m, int64_t before_us, size_t keep)
{
    return m->first && (m->at.live > keep || m->first->time_us < before_us) ? m->first->key : NULL;
}

void trainer_memory_forget(trainer_memory *m, int64_t before_us, size_t keep)
{
    while (trainer_memory_outdated(m, before_us, keep)) {
        trainer_memory_entry *e = pst_map_take(&m->at, m->first->key);
        PST_ASSERT(e == m->first);
        unlink_entry(m, e);
    }
}

void trainer_memory_done(trainer_memory *m)
{
    pst_map_done(&m->at, NULL);
    while (m->first)
        unlink_entry(m, m->first);
}
