/* door.h - how two processes of a generation come to a connection that both believe in (ring_wire.h): one has a door, the other dials. Neither blocks
 * longer than it is told to. @thread any, one owner. */
#ifndef PST_LEARNER_DOOR_H
#define PST_LEARNER_DOOR_H

#include "trainer/learner/ring_wire.h"

typedef struct learn_place {
    char address[64]; /* numeric */
    int port;
} learn_place;

typedef struct learn_met { /* a connection after its handshake: non-blocking, without delay */
    int fd;
    uint32_t from; /* who called */
    uint64_t session;
} learn_met;

typedef struct learn_door learn_door;
/* run is borrowed; me: what callers must ask for. */
int learn_door_open(const learn_place *at, const learn_run *run, uint32_t me, learn_door **ret_door, pst_err *err);
/* 1: somebody has proved to be `from`, for which wants() is true; 0: not yet. Strangers are sent away. */
int learn_door_look(learn_door *d, int wait_ms, bool (*wants)(void *arg, uint32_t from), void *arg, learn_met *ret_met, pst_err *err);
void learn_door_close(learn_door *d); /* NULL-safe */

typedef struct learn_dial learn_dial;
learn_dial *learn_dial_new(const learn_place *at, const learn_run *run, uint32_t me, uint32_t whom); /* at and run are borrowed */
/* 1: connected; 0: not yet, and it is tried again and again; PST_EFENCED: it is of a later generation. */
int learn_dial_look(learn_dial *d, int wait_ms, learn_met *ret_met, pst_err *err);
const char *learn_dial_why(const learn_dial *d); /* why not yet */
void learn_dial_free(learn_dial *d);             /* NULL-safe */

#endif
