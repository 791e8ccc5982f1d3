/* sink_group.c - tries and offsets of sinks that have a group.
 *
 * While a target is away the consumer is paused and served: it stays a member however long that lasts, and hears when its partitions go to another, who will
 * read the same records. Waits double from a fifth of a second to half a minute and waver, so that several sinks do not come back in one moment. */
#include "consumers/sink/sink_group.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/stop.h"

#include <stdio.h>

enum { WAIT_FIRST_MS = 200, WAIT_MAX_MS = 30000, SERVE_MS = 100, SAY_US = 10000000 };

/* Half to all of wait_ms. */
static int serve_for(sink_group_round *r, int wait_ms, pst_err *err)
{
    unsigned short dice = 0;
    pst_random(&dice, sizeof dice);
    int64_t end = pst_mono_us() + (wait_ms / 2 + dice % (wait_ms / 2 + 1)) * 1000LL;
    int rc = pst_consumer_pause(r->consumer, true);
    while (rc >= 0 && !r->lost && pst_mono_us() < end && !pst_stop_requested()) {
        pst_err e = {0}; /* an outage of the broker: it goes on by itself */
        rc = pst_consumer_serve(r->consumer, SERVE_MS, &r->lost, &e);
        if (rc < 0)
            *err = e;
    }
    if (rc >= 0)
        rc = pst_consumer_pause(r->consumer, false);
    return rc < 0 ? rc : 0;
}

static int commit(sink_group_round *r, pst_err *err)
{
    for (size_t i = 0; i < r->upto; i++) {
        const pst_record *record = &r->batch->records[i];
        pst_consumer_mark(r->consumer, record->topic, record->partition, record->offset + 1);
    }
    pst_err e = {0};
    int rc = pst_consumer_commit_marked(r->consumer, &e);
    if (rc == PST_EFENCED || e.cls == PST_CLASS_RETRY) /* the next commit covers it, or another member sends the same once more */
        return 0;
    if (rc < 0)
        *err = e;
    return rc;
}

int sink_group_settle(sink_group_round *r, pst_err *err)
{
    int64_t said_us = 0;
    for (int wait_ms = WAIT_FIRST_MS;; wait_ms = wait_ms * 2 > WAIT_MAX_MS ? WAIT_MAX_MS : wait_ms * 2) {
        pst_err e = {0};
        int rc = r->ops->settle(r->sink, false, &e);
        if (!rc)
            return commit(r, err);
        if (e.cls != PST_CLASS_RETRY) {
            *err = e;
            return rc;
        }
        if (pst_stop_requested()) {
            fprintf(stderr, "penstock sink: %s; what was not stored is read again at the next start\n", e.text);
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "sink", 0, "stopped");
        }
        if (!said_us || pst_mono_us() - said_us > SAY_US) {
            said_us = pst_mono_us();
            fprintf(stderr, "penstock sink: %s; it is tried again\n", e.text);
        }
        rc = serve_for(r, wait_ms, err);
        if (rc < 0)
            return rc;
        if (r->lost) {
            r->ops->drop(r->sink);
            return 0;
        }
    }
}

void sink_group_end(pst_consumer *consumer)
{
    pst_err err = {0};
    if (pst_consumer_commit_marked(consumer, &err) < 0)
        fprintf(stderr, "penstock sink: the last offsets could not be committed, and their records are sent again at the next start: %s\n",
                err.text);
}
