/* bus_txn_wipe.c - after an outage, and where a partition has no leader: a transaction that is only there to be aborted, in every partition that the lost round may have written to.
 *
 * A transaction ends by a marker in each of its partitions. Kafka 4.1 to 4.3 leaves out those of partitions that have no leader in that moment and
 * calls the transaction complete (KAFKA-20734; a broker that was held up for longer than its session and came back is enough). What the aborted
 * round left is open for ever then: readers stop before it, the group's offsets stay "pending in an open transaction", and the next commit of the
 * same producer id, ours, would commit it as well: records scored twice. A marker speaks for all that its producer id has open in a partition, so
 * one more abort that reaches the same partitions ends it. It holds one record for each partition, which nobody who reads committed records sees,
 * and the offsets of the lost round, so that the group's coordinator takes part.
 *
 * Only a round that is known not to be committed may be wiped. It is done as well as it can be: nothing rests on its success that did not before. */
#include "common/bus/bus_txn.h"
#include "common/bus/bus_consumer.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdlib.h>

#define WIPE_MS        60000 /* partitions without a leader get one within the broker's session */
#define WIPE_AGAIN_MS  500
#define PARTITIONS_MAX 4096 /* of all topics of a pipeline; beyond, the rest is left */

/* One record for each partition of the topics that records go to. The number of them, or < 0 if one cannot be sent. */
static int touch(pst_txn *t)
{
    static const char key[] = "penstock", *const no_value = NULL;
    int sent = 0;
    for (size_t i = 0; i < t->n_topics; i++) {
        int n = 0;
        pst_err ignored = {0};
        int rc = bus_partitions(t->p->link, &t->p->health, t->topics[i], TXN_STEP_MS, &n, &ignored);
        if (rc < 0 && rc != PST_ENOTFOUND && ignored.cls == PST_CLASS_RETRY)
            return -1; /* of a topic that is not there, or not ours to write, nothing is open */
        n = n < PARTITIONS_MAX - sent ? n : PARTITIONS_MAX - sent;
        pst_out *outs = pst_alloc((n + 1) * sizeof *outs);
        for (int p = 0; p < n; p++)
            outs[p] = (pst_out){.topic = t->topics[i], .partition = p, .key = key, .key_len = sizeof key - 1, .value = no_value};
        int code = bus_produce(t->p, outs, n);
        free(outs);
        if (code)
            return -1;
        sent += n;
    }
    return sent;
}

/* The coordinator of the group is in the transaction from here on, whether it takes the offsets or not (we may be no member any more). */
static void touch_offsets(pst_txn *t, const bus_places *offsets)
{
    pst_err ignored = {0};
    bus_link l = bus_consumer_link(t->consumer);
    bus_group *group = l.lib->consumer->group(l.h);
    if (!group)
        return;
    bus_places *copy = bus_places_copy(offsets);
    txn_guarded(t, (txn_call){.kind = CALL_OFFSETS, .timeout_ms = TXN_STEP_MS, .offsets = copy, .group = group}, &ignored);
    if (!t->hung) { /* else they belong to the call that did not come back */
        l.lib->consumer->group_free(group);
        bus_places_free(copy);
    }
}

/* 1: done; 0: worth another try; < 0: not with this producer. */
static int wipe_once(pst_txn *t, const bus_places *offsets)
{
    pst_err ignored = {0};
    if (txn_guarded(t, (txn_call){.kind = CALL_BEGIN}, &ignored) != TXN_OK)
        return -1;
    t->p->failed_code = 0;
    bool all = touch(t) >= 0 && pst_producer_flush(t->p, TXN_STEP_MS, &ignored) == 0 && !t->p->failed_code;
    if (offsets && offsets->n)
        touch_offsets(t, offsets);
    pst_err_clear(&ignored);
    if (t->hung || txn_guarded(t, (txn_call){.kind = CALL_ABORT, .timeout_ms = TXN_STEP_MS}, &ignored) != TXN_OK)
        return -1;
    return all;
}

static bool lacks_leader(const pst_txn *t)
{
    for (size_t i = 0; i < t->n_topics; i++)
        if (bus_lacks_leader(t->p->link, &t->p->health, t->topics[i], TXN_INIT_STEP_MS))
            return true;
    return false;
}

void txn_wipe(pst_txn *t, bool outage, const bus_places *offsets)
{
    if (pst_stop_requested() || bus_is_embedded(t->p->link, TXN_STEP_MS)) /* the in-memory cluster shows everybody what was aborted */
        return;
    if (!outage && !lacks_leader(t))
        return;
    int64_t begun = pst_mono_us();
    int done = 0;
    while (!done && !pst_stop_requested() && pst_mono_us() - begun < WIPE_MS * 1000LL) {
        done = wipe_once(t, offsets);
        if (!done)
            pst_sleep_ms(WIPE_AGAIN_MS);
    }
    t->ready = done > 0; /* else a new producer begins the next round */
    pst_log(PST_LOG_DEBUG, "bus", "event=txn_wiped id=%s topics=%zu offsets=%d done=%d after_ms=%lld", t->id, t->n_topics,
            offsets ? (int)offsets->n : 0, done, (long long)((pst_mono_us() - begun) / 1000));
}
