/* waits.c - a list of waits that stand. It is short (a handful, or as many as there are partitions), and looked at only where something waits, so it is
 * searched. Fixed waiters and partitions are alike but for what names them. */
#include "inference/state/waits.h"

#include "common/base/array.h"
#include "common/base/err.h"

#include <stdlib.h>
#include <string.h>

enum { LISTED_MAX = 8 };

typedef struct wait {
    pst_waiter who; /* PST_WAITERS: a partition */
    char *topic;
    int32_t partition;
    int64_t offset;
    char *what, *why;
} wait;

struct pst_waits {
    wait *at;
    size_t n, cap;
};

pst_waits *pst_waits_new(void)
{
    return pst_alloc(sizeof(pst_waits));
}

static void wait_done(wait *x)
{
    free(x->topic);
    free(x->what);
    free(x->why);
}

void pst_waits_free(pst_waits *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->n; i++)
        wait_done(&w->at[i]);
    free(w->at);
    free(w);
}

static wait *find_fixed(pst_waits *w, pst_waiter who)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->at[i].who == who)
            return &w->at[i];
    return NULL;
}

static wait *find_part(pst_waits *w, const char *topic, int32_t partition)
{
    for (size_t i = 0; i < w->n; i++) {
        wait *x = &w->at[i];
        if (x->who == PST_WAITERS && x->partition == partition && !strcmp(x->topic, topic))
            return x;
    }
    return NULL;
}

static void end(pst_waits *w, wait *x)
{
    PST_ASSERT(x >= w->at && x < w->at + w->n);
    wait_done(x);
    memmove(x, x + 1, (size_t)(w->at + w->n - x - 1) * sizeof(*x)); /* keeps the order in which they began */
    w->n--;
}

static wait *begin(pst_waits *w, wait new)
{
    w->at = pst_array_room(w->at, w->n, &w->cap, sizeof(*w->at));
    w->at[w->n] = new;
    return &w->at[w->n++];
}

static bool say(wait *x, const char *what, const char *why)
{
    if (x->what && !strcmp(x->what, what) && !strcmp(x->why, why))
        return false;
    free(x->what);
    free(x->why);
    x->what = pst_strdup(what);
    x->why = pst_strdup(why);
    return true;
}

bool pst_waits_for(pst_waits *w, pst_waiter who, const char *what, const char *why)
{
    PST_ASSERT(who < PST_WAITERS);
    wait *x = find_fixed(w, who);
    if (what)
        return say(x ? x : begin(w, (wait){.who = who}), what, why ? why : "");
    if (x)
        end(w, x);
    return x != NULL;
}

bool pst_waits_record(pst_waits *w, const char *topic, int32_t partition, int64_t offset, const char *what, const char *why)
{
    wait *x = find_part(w, topic, partition);
    if (!x)
        x = begin(w, (wait){.who = PST_WAITERS, .topic = pst_strdup(topic), .partition = partition});
    x->offset = offset;
    return say(x, what, why);
}

bool pst_waits_passed(pst_waits *w, const char *topic, int32_t partition, int64_t offset)
{
    wait *x = find_part(w, topic, partition);
    if (!x || offset < x->offset)
        return false;
    end(w, x);
    return true;
}

bool pst_waits_keep(pst_waits *w, const pst_range *ours, size_t n)
{
    bool changed = false;
    for (size_t i = w->n; i-- > 0;) {
        wait *x = &w->at[i];
        bool is_ours = x->who != PST_WAITERS;
        for (size_t k = 0; k < n && !is_ours; k++)
            is_ours = ours[k].partition == x->partition && !strcmp(ours[k].topic, x->topic);
        if (!is_ours)
            end(w, x);
        changed |= !is_ours;
    }
    return changed;
}

bool pst_waits_any(const pst_waits *w)
{
    return w->n != 0;
}

/* A pause comes before whatever else stands; then fixed waiters in their order, then partitions in the order in which they began. */
static const wait *first(const pst_waits *w)
{
    const wait *best = NULL;
    for (size_t i = 0; i < w->n; i++) {
        const wait *x = &w->at[i];
        if (!strcmp(x->what, PST_WAIT_PAUSED))
            return x;
        if (!best || x->who < best->who)
            best = x;
    }
    return best;
}

const char *pst_waits_what(const pst_waits *w)
{
    const wait *x = first(w);
    return x ? x->what : "";
}

static bool is_listed(const wait *const *listed, size_t n, const wait *x)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(listed[i]->what, x->what) && !strcmp(listed[i]->why, x->why))
            return true;
    return false;
}

void pst_waits_text(const pst_waits *w, const char *between, pst_buf *ret_text)
{
    const wait *listed[LISTED_MAX] = {first(w)};
    size_t n = 1;
    pst_buf_clear(ret_text);
    if (!listed[0])
        return;
    pst_buf_adds(ret_text, listed[0]->why);
    for (size_t i = 0; i < w->n && n < LISTED_MAX; i++) {
        const wait *x = &w->at[i];
        if (is_listed(listed, n, x))
            continue;
        listed[n++] = x;
        pst_buf_printf(ret_text, "%s%s: %s", between, x->what, x->why);
    }
}
