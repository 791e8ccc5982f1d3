/* epoch.c - a list of partitions with the offset from which on a model counts there; searched, since only what is there during a change of models
 * is asked. */
#include "inference/state/epoch.h"

#include <stdlib.h>
#include <string.h>

struct pst_epoch {
    pst_effective *from;
    bool *passed; /* [i]: everything before from[i] is committed */
    size_t n;
};

pst_epoch *pst_epoch_new(const pst_effective *from, size_t n)
{
    pst_epoch *e = pst_alloc(sizeof(*e));
    e->from = pst_alloc((n + 1) * sizeof(*e->from));
    e->passed = pst_alloc(n + 1);
    for (; e->n < n; e->n++)
        e->from[e->n] = (pst_effective){pst_strdup(from[e->n].topic), from[e->n].partition, from[e->n].offset};
    return e;
}

void pst_epoch_free(pst_epoch *e)
{
    if (!e)
        return;
    for (size_t i = 0; i < e->n; i++)
        free(e->from[i].topic);
    free(e->from);
    free(e->passed);
    free(e);
}

static bool is_of(const pst_effective *f, const char *topic, int32_t partition)
{
    return f->partition == partition && !strcmp(f->topic, topic);
}

int64_t pst_epoch_from(const pst_epoch *e, const char *topic, int32_t partition)
{
    for (size_t i = 0; i < e->n; i++)
        if (is_of(&e->from[i], topic, partition))
            return e->from[i].offset;
    return -1;
}

bool pst_epoch_covers(const pst_epoch *e, const pst_record *r)
{
    return r->offset >= pst_epoch_from(e, r->topic, r->partition);
}

bool pst_epoch_committed(pst_epoch *e, const char *topic, int32_t partition, int64_t offset)
{
    bool all = true;
    for (size_t i = 0; i < e->n; i++) {
        e->passed[i] |= offset >= e->from[i].offset && is_of(&e->from[i], topic, partition);
        all &= e->passed[i];
    }
    return all;
}

bool pst_epoch_assigned(const pst_epoch *e, const pst_range *ours, size_t n)
{
    for (size_t i = 0; i < e->n; i++)
        for (size_t k = 0; k < n && !e->passed[i]; k++)
            if (ours[k].from < e->from[i].offset && is_of(&e->from[i], ours[k].topic, ours[k].partition))
                return false;
    return true;
}
