/* rate.c - a table of SETS sets of WAYS users each, found by a hash of the name: no growth, no sweeping, and what a request costs does not depend on how many users
 * there are. A user is one time: when the requests sent so far would all be over, were they sent at the even pace. He who runs further ahead of the clock than his
 * burst is told to wait. Two users never share a place, so that none pays for another. */
#include "producers/gateway/rate.h"

#include "common/base/buf.h"
#include "common/base/hash.h"
#include "producers/gateway/caller.h"

#include <stdlib.h>
#include <string.h>

enum { SETS = 256, WAYS = 8 };

typedef struct place {
    char name[GW_NAME_MAX + 1];
    int64_t over_us; /* 0 for a place that nobody has */
} place;

struct gw_rate {
    int64_t step_us, ahead_us;
    place at[SETS][WAYS];
};

gw_rate *gw_rate_new(int per_second, int burst)
{
    PST_ASSERT(per_second > 0 && per_second <= 1000000 && burst > 0);
    gw_rate *r = pst_alloc(sizeof *r);
    r->step_us = 1000000 / per_second;
    r->ahead_us = r->step_us * burst;
    return r;
}

void gw_rate_free(gw_rate *r)
{
    free(r);
}

/* His place; else that of who has been quiet for longest, for him. */
static place *place_of(gw_rate *r, const char *name)
{
    uint8_t sum[32];
    pst_sha256_sum(name, strlen(name), sum);
    place *set = r->at[sum[0] % SETS], *quiet = set;
    for (int i = 0; i < WAYS; i++) {
        if (!strcmp(set[i].name, name))
            return &set[i];
        if (set[i].over_us < quiet->over_us)
            quiet = &set[i];
    }
    memset(quiet, 0, sizeof *quiet);
    PST_ASSERT(strlen(name) < sizeof quiet->name);
    memcpy(quiet->name, name, strlen(name));
    return quiet;
}

int gw_rate_take(gw_rate *r, const char *name, int64_t now_us)
{
    if (!r)
        return 0;
    place *p = place_of(r, name);
    int64_t from_us = p->over_us > now_us ? p->over_us : now_us;
    int64_t wait_us = from_us + r->step_us - r->ahead_us - now_us;
    if (wait_us > 0)
        return (int)((wait_us + 999999) / 1000000);
    p->over_us = from_us + r->step_us;
    return 0;
}
