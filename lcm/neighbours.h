/* neighbours.h - which other LCMs a site has, by their heartbeats. Only asked where a Trainer of before nodes had ids gives jobs to sites.
 * @thread one. */
#ifndef PST_LCM_NEIGHBOURS_H
#define PST_LCM_NEIGHBOURS_H

#include "common/platform/client.h"

typedef struct lcm_neighbours {
    pst_client *client;
    const char *site, *node; /* ours; borrowed */
    int64_t since_us;        /* monotonic: since when our own heartbeats can be seen; 0 = not yet */
    int64_t asked_us;        /* of the last look */
    bool alone;
} lcm_neighbours;

/* 1: nobody else is heard; 0: somebody is; -1: not known yet (too young for others to have seen us, or the broker is away). */
int lcm_neighbours_alone(lcm_neighbours *n);

#endif
