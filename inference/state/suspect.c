/* suspect.c - halving and doubling. Only a round of one record proves anything, and only when it was refused twice: the first time may have been
 * the fate of somebody else's batch. The limit doubles with each round that passes, so that one bad record among many costs a logarithm. */
#include "inference/state/suspect.h"

#include "common/base/array.h"
#include "common/base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROOF = 2, AT_EASE = 4096 /* a limit that is no limit any more */ };

void pst_suspects_done(pst_suspects *x)
{
    for (size_t i = 0; i < x->n; i++)
        free(x->at[i].topic);
    free(x->at);
    *x = (pst_suspects){0};
}

static pst_suspect *of_partition(const pst_suspects *x, const char *topic, int32_t partition)
{
    for (size_t i = 0; i < x->n; i++)
        if (x->at[i].partition == partition && !strcmp(x->at[i].topic, topic))
            return &x->at[i];
    return NULL;
}

/* The partition's suspect is this record from now on. */
static pst_suspect *suspect(pst_suspects *x, const char *topic, int32_t partition, int64_t offset, const char *why)
{
    pst_suspect *s = of_partition(x, topic, partition);
    if (s && s->offset == offset)
        return s;
    if (!s) {
        x->at = pst_array_one_more(x->at, x->n, sizeof(*x->at));
        s = &x->at[x->n++];
        *s = (pst_suspect){.topic = pst_strdup(topic), .partition = partition};
    }
    s->offset = offset;
    s->refusals = 0;
    s->stage = PST_SUSPECT_NONE;
    snprintf(s->why, sizeof(s->why), "%s", why);
    return s;
}

static void next_stage(pst_suspect *s, bool shadowed)
{
    if (s->stage == PST_SUSPECT_NONE && !shadowed)
        s->stage = PST_SUSPECT_NO_SHADOW;
    if (s->stage < PST_SUSPECT_WAITS)
        s->stage++;
    s->refusals = 0;
}

void pst_suspects_refused(pst_suspects *x, uint64_t records, const char *topic, int32_t partition, int64_t offset, bool shadowed,
                          const char *why)
{
    PST_ASSERT(records > 0);
    x->most = records > 1 ? records / 2 : 1;
    if (records > 1)
        return;
    pst_suspect *s = suspect(x, topic, partition, offset, why);
    if (++s->refusals >= PROOF)
        next_stage(s, shadowed);
}

void pst_suspects_passed(pst_suspects *x, uint64_t records)
{
    if (x->most && records >= x->most) /* a smaller round proves nothing of a larger one */
        x->most *= 2;
    if (x->most >= AT_EASE)
        x->most = 0;
}

void pst_suspects_passed_to(pst_suspects *x, const char *topic, int32_t partition, int64_t next)
{
    pst_suspect *s = x->n ? of_partition(x, topic, partition) : NULL;
    if (!s || s->offset >= next)
        return;
    free(s->topic);
    *s = x->at[--x->n];
}

const pst_suspect *pst_suspects_of_partition(const pst_suspects *x, const char *topic, int32_t partition)
{
    return x->n ? of_partition(x, topic, partition) : NULL;
}

const pst_suspect *pst_suspects_find(const pst_suspects *x, const pst_record *r)
{
    const pst_suspect *s = x->n ? of_partition(x, r->topic, r->partition) : NULL;
    return s && s->stage && s->offset == r->offset ? s : NULL;
}

void pst_suspects_waited(pst_suspects *x, const pst_record *r)
{
    pst_suspect *s = of_partition(x, r->topic, r->partition);
    PST_ASSERT(s && s->stage == PST_SUSPECT_WAITS);
    s->stage = PST_SUSPECT_LETTER;
}
