/* unknown.c - a bounded list of ids. It is searched: ids that nobody knows are rare, and where they come by the thousand they are rubbish, of which the
 * older half is forgotten when the list is full. */
#include "inference/state/unknown.h"

#include "common/base/err.h"
#include "common/base/buf.h"

#include <stdlib.h>
#include <string.h>

enum { IDS_MAX = 4096, FORGET_US = 60000000 };

typedef struct entry {
    int32_t id;
    int tries;
    int64_t asked_us, verdict_us; /* verdict 0 = still open */
} entry;

struct pst_unknown {
    int64_t every_us;
    size_t n;
    entry at[IDS_MAX];
};

pst_unknown *pst_unknown_new(int64_t every_us)
{
    pst_unknown *u = pst_alloc(sizeof(*u));
    u->every_us = every_us;
    return u;
}

void pst_unknown_free(pst_unknown *u)
{
    free(u);
}

static entry *find(pst_unknown *u, int32_t id)
{
    for (size_t i = 0; i < u->n; i++)
        if (u->at[i].id == id)
            return &u->at[i];
    return NULL;
}

bool pst_unknown_believed(pst_unknown *u, int32_t id, int64_t now_us)
{
    entry *e = find(u, id);
    if (e && e->verdict_us && now_us - e->verdict_us > FORGET_US)
        *e = (entry){.id = id};
    return e && e->verdict_us;
}

static entry *add(pst_unknown *u, int32_t id)
{
    if (u->n == IDS_MAX) {
        u->n = IDS_MAX / 2;
        memmove(u->at, u->at + IDS_MAX / 2, u->n * sizeof(*u->at));
    }
    PST_ASSERT(u->n < IDS_MAX);
    u->at[u->n] = (entry){.id = id};
    return &u->at[u->n++];
}

bool pst_unknown_said(pst_unknown *u, int32_t id, int64_t now_us)
{
    entry *e = find(u, id);
    if (!e)
        e = add(u, id);
    if (!e->verdict_us && (!e->tries || now_us - e->asked_us >= u->every_us)) {
        e->tries++;
        e->asked_us = now_us;
    }
    if (e->tries >= PST_UNKNOWN_TRIES && !e->verdict_us)
        e->verdict_us = now_us;
    return e->verdict_us != 0;
}

void pst_unknown_is_known(pst_unknown *u, int32_t id)
{
    entry *e = find(u, id);
    if (e)
        *e = u->at[--u->n];
}

size_t pst_unknown_count(const pst_unknown *u)
{
    return u->n;
}
