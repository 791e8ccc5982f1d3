/* ring_inside.h - what joining (ring_join.c) leaves and moving bytes (ring.c) needs. Nobody else's. */
#ifndef PST_LEARNER_RING_INSIDE_H
#define PST_LEARNER_RING_INSIDE_H

#include "trainer/learner/ring.h"
#include "trainer/learner/ring_wire.h"

enum { LEARN_ALIVE_US = 1000000 };

typedef struct learn_line { /* one direction of the ring */
    int fd, peer;           /* its rank */
    uint64_t session, sequence;
    size_t len, at;  /* sending: bytes of the message at hand, and how many are gone; hearing: how many have come */
    int64_t last_us; /* when something moved */
    uint8_t bytes[LEARN_FRAME_HEAD + LEARN_FRAME_MAX];
} learn_line;

struct learn_ring {
    learn_ring_opts o;
    learn_place *places;
    learn_run run;
    learn_line out, in;
};

int learn_ring_connect_all(learn_ring *r, pst_err *err); /* opens both lines; ring_join.c */
int64_t learn_join_us(int64_t timeout_us);               /* how long others are waited for */

#endif
