/* rate.h - how many requests a second one user may send, and how many at once after a pause. The memory is the same however many users there are: who has sent
 * nothing for longest makes room, and starts anew. Source: GCRA (ITU-T I.371), the leaky bucket as one time a user. @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_RATE_H
#define PST_PRODUCERS_GATEWAY_RATE_H

#include <stdint.h>

typedef struct gw_rate gw_rate;

/* per_second 1 to 1,000,000; burst ≥ 1: requests that may come at once. */
gw_rate *gw_rate_new(int per_second, int burst);
void gw_rate_free(gw_rate *r); /* NULL-safe */
/* 0: this request is let in and counted. Else not, and in so many seconds (1 or more) one will be. r NULL: all are. now_us: monotonic. */
int gw_rate_take(gw_rate *r, const char *name, int64_t now_us);

#endif
