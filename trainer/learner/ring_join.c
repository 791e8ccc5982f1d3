/* ring_join.c - how a ring closes: every rank has a door for the one before it and dials the one after it, both at once, since no order among them would
 * end. As soon as the rank before has proved itself the door is shut: nobody listens any more. */
#include "trainer/learner/ring_inside.h"

#include "common/base/clock.h"

#include <stdio.h>

enum { JOIN_LEAST_US = 120000000, TICK_MS = 10 };

static bool is_before(void *arg, uint32_t from)
{
    const learn_ring *r = arg;
    return from == (uint32_t)r->in.peer && r->in.fd < 0;
}

static int nobody_came(const learn_ring *r, int64_t began_us, const learn_dial *d, pst_err *err)
{
    char span[32];
    const learn_place *p = &r->places[r->out.peer];
    pst_span_text(pst_mono_us() - began_us, span);
    if (r->out.fd < 0)
        return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "ring", 0, "rank %d does not answer at %s port %d after %s: %s", r->out.peer,
                           p->address, p->port, span, learn_dial_why(d));
    return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_RETRY, "ring", 0, "rank %d has not called after %s", r->in.peer, span);
}

static int look_both_ways(learn_ring *r, learn_door *door, learn_dial *d, pst_err *err)
{
    learn_met met;
    int rc = r->in.fd < 0 ? learn_door_look(door, TICK_MS, is_before, r, &met, err) : 0;
    if (rc > 0) {
        r->in.fd = met.fd;
        r->in.session = met.session;
    }
    if (rc < 0 || r->out.fd >= 0)
        return rc;
    rc = learn_dial_look(d, r->in.fd < 0 ? 0 : TICK_MS, &met, err);
    if (rc > 0) {
        r->out.fd = met.fd;
        r->out.session = met.session;
    }
    return rc;
}

int64_t learn_join_us(int64_t timeout_us)
{
    return 2 * timeout_us > JOIN_LEAST_US ? 2 * timeout_us : JOIN_LEAST_US;
}

int learn_ring_connect_all(learn_ring *r, pst_err *err)
{
    learn_door *door = NULL;
    int64_t began_us = pst_mono_us(), wait_us = learn_join_us(r->o.timeout_us);
    int rc = learn_door_open(&r->places[r->o.rank], &r->run, (uint32_t)r->o.rank, &door, err);
    learn_dial *d = learn_dial_new(&r->places[r->out.peer], &r->run, (uint32_t)r->o.rank, (uint32_t)r->out.peer);
    while (rc >= 0 && (r->in.fd < 0 || r->out.fd < 0)) {
        rc = look_both_ways(r, door, d, err);
        if (r->in.fd >= 0) {
            learn_door_close(door);
            door = NULL;
        }
        if (rc >= 0 && r->o.stopped && r->o.stopped(r->o.arg))
            rc = PST_ESTOPPED;
        else if (rc >= 0 && (r->in.fd < 0 || r->out.fd < 0) && pst_mono_us() - began_us > wait_us)
            rc = nobody_came(r, began_us, d, err);
    }
    learn_door_close(door);
    learn_dial_free(d);
    return rc < 0 ? rc : 0;
}
