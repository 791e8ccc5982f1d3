/* rdk_group.c - librdkafka's consumer as a member of a group: committing, leaving, closing.
 *
 * Its static members do not leave when they are closed (KIP-345), so that a restart costs no rebalance; those that unsubscribe do. The partitions
 * are given back by the rebalance callback, the request follows by itself, and closing waits for its answer. */
#include "common/bus/rdkafka/rdk.h"
#include "common/base/clock.h"
#include "common/base/stop.h"

#include <string.h>

#define SLICE_MS      100 /* how often a wait looks whether it was told to stop */
#define LEAVE_WAIT_MS 3000

int rdk_commit(bus_handle *h, const bus_places *places, int timeout_ms)
{
    rd_kafka_queue_t *q = rd_kafka_queue_new(rdk_of(h)->rk);
    rd_kafka_topic_partition_list_t *offsets = rdk_list(places);
    rd_kafka_resp_err_t code = rd_kafka_commit_queue(rdk_of(h)->rk, offsets, q, NULL, NULL);
    int64_t until = pst_mono_us() + timeout_ms * 1000LL;
    rd_kafka_event_t *ev = NULL;
    while (!code && !(ev = rd_kafka_queue_poll(q, SLICE_MS))) {
        if (pst_mono_us() > until || pst_stop_forced())
            code = RD_KAFKA_RESP_ERR__TIMED_OUT;
    }
    if (ev) {
        code = rd_kafka_event_error(ev);
        const rd_kafka_topic_partition_list_t *result = rd_kafka_event_topic_partition_list(ev);
        for (int i = 0; !code && result && i < result->cnt; i++)
            code = result->elems[i].err;
        rd_kafka_event_destroy(ev);
    }
    rd_kafka_topic_partition_list_destroy(offsets);
    rd_kafka_queue_destroy(q);
    return code;
}

void *rdk_membership(const rd_kafka_consumer_group_metadata_t *group, size_t *ret_size)
{
    void *bytes = NULL;
    if (rdk_error(rd_kafka_consumer_group_metadata_write(group, &bytes, ret_size), (char[100]){0}, 100))
        return NULL;
    return bytes;
}

static bool is_member(bus_handle *h)
{
    char *id = rd_kafka_memberid(rdk_of(h)->rk);
    bool is = id && *id;
    if (id)
        rd_kafka_mem_free(rdk_of(h)->rk, id);
    return is;
}

bool rdk_gave(bus_handle *h, const bus_group *g)
{
    rdk *r = rdk_of(h);
    size_t size = 0;
    if (!is_member(h) ||
        rdk_keeps_assign(r)) /* nobody's offsets are taken without a question; what was given since is another generation's */
        return false;
    void *now = rdk_membership((const rd_kafka_consumer_group_metadata_t *)g, &size);
    bool same = now && r->given && size == r->given_size && !memcmp(now, r->given, size);
    rd_kafka_mem_free(r->rk, now);
    return same;
}

bus_group *rdk_group(bus_handle *h)
{
    return (bus_group *)rd_kafka_consumer_group_metadata(rdk_of(h)->rk);
}

void rdk_group_free(bus_group *g)
{
    rd_kafka_consumer_group_metadata_destroy((rd_kafka_consumer_group_metadata_t *)g);
}

/* The id is given up when the request goes out. Closed before that, as in the middle of a rebalance, a static member would stay. */
void rdk_leave(bus_handle *b)
{
    rdk *h = rdk_of(b);
    if (rd_kafka_unsubscribe(h->rk))
        return;
    rdk_tell_kept(h); /* not before: it would join again, and the group does not hear it leave behind that */
    for (int64_t until = pst_mono_us() + LEAVE_WAIT_MS * 1000LL; (h->has_partitions || is_member(b)) && pst_mono_us() < until;) {
        rd_kafka_message_t *m = rd_kafka_consumer_poll(h->rk, 20);
        if (m)
            rd_kafka_message_destroy(m);
    }
}

void rdk_close(bus_handle *b)
{
    rdk *h = rdk_of(b);
    if (h->kept && !h->is_static) /* as in rdk_leave(); a static member is to stay in the group */
        rd_kafka_unsubscribe(h->rk);
    rdk_tell_kept(h);               /* it waits for the answer */
    rd_kafka_consumer_close(h->rk); /* calls the rebalance callback here */
}
