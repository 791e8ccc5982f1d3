/* wire_read.c - what was fetched of a partition: chunks, and the records in them, in order.
 *
 * Read-committed (KIP-98): a chunk comes with the transactions in it that were aborted. One is over with its marker, a control batch, so data of a producer is
 * skipped from its first offset on until there; control batches are never handed out.
 *
 * Unpacked batches are counted until the last of their records is released. While they take as much as may lie here at all
 * (queued.max.messages.kbytes), no further one is unpacked, or a writer of a few small batches that unpack to a hundred megabytes each, in
 * many partitions, would have all the memory there is. So it is that much, and one batch.
 *
 * A batch that cannot be read is fetched again, since it may have been broken on the way. One that is broken again at the same place is broken in the
 * broker's log: its partition stands there, alone, is tried more and more seldom, and its owner is told where and what helps. It is never skipped. */
#include "common/bus/wire/wire_consumer.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdlib.h>
#include <string.h>

#define BROKEN_MS     1000  /* broken bytes are fetched again */
#define BROKEN_MAX_MS 60000 /* twice as long each time */

/* ---- chunks ----------------------------------------------------------------------------------------------------------------------- */

static void chunk_pop(wire_consumer *c, wire_part *p)
{
    wire_chunk *k = p->first;
    p->first = k->next;
    if (!p->first)
        p->last = NULL;
    p->bytes -= k->bytes;
    c->chunk_bytes -= k->bytes;
    wire_block_drop(k->block);
    free(k->aborts);
    free(k);
}

static void stop_reading(wire_part *p)
{
    if (p->reading)
        wire_records_done(&p->records);
    p->reading = false;
}

void wire_part_clear(wire_consumer *c, wire_part *p)
{
    stop_reading(p);
    while (p->first)
        chunk_pop(c, p);
    p->fetch = p->next;
    p->fetch_epoch = p->read_epoch;
}

static int by_producer(const void *a, const void *b)
{
    const wire_abort *x = a, *y = b;
    if (x->producer_id != y->producer_id)
        return x->producer_id < y->producer_id ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

/* The aborted transaction of this producer that began last before the offset. */
static wire_abort *find_abort(const wire_chunk *k, int64_t producer_id, int64_t offset)
{
    size_t low = 0, high = k->n_aborts;
    const wire_abort key = {.producer_id = producer_id, .first = offset};
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (by_producer(&k->aborts[mid], &key) <= 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low && k->aborts[low - 1].producer_id == producer_id ? &k->aborts[low - 1] : NULL;
}

void wire_chunk_add(wire_consumer *c, wire_part *p, const wire_answer *a, wire_str records, int64_t end, wire_abort *aborts, size_t n)
{
    wire_chunk *k = pst_alloc(sizeof *k);
    *k = (wire_chunk){.block = wire_block_use(a->block),
                      .left = wire_in_of(records.at, records.len, false),
                      .aborts = aborts,
                      .n_aborts = n,
                      .end = end,
                      .bytes = records.len};
    if (n > 1)
        qsort(aborts, n, sizeof *aborts, by_producer);
    if (p->last)
        p->last->next = k;
    else
        p->first = k;
    p->last = k;
    p->bytes += k->bytes;
    c->chunk_bytes += k->bytes;
    p->fetch = end;
}

/* ---- what cannot be read ----------------------------------------------------------------------------------------------------------------- */

void wire_part_broken(wire_consumer *c, wire_part *p, const pst_err *why)
{
    p->broken_times = p->broken_at == p->next ? p->broken_times + 1 : 1;
    p->broken_at = p->next;
    int64_t wait_ms = (int64_t)BROKEN_MS << (p->broken_times < 8 ? p->broken_times - 1 : 7);
    wire_part_clear(c, p);
    p->version++;
    p->not_before_us = pst_mono_us() + (wait_ms < BROKEN_MAX_MS ? wait_ms : BROKEN_MAX_MS) * 1000;
    if (why->code == PST_EUNSUPPORTED)
        wire_fault_add(c, BUS_ERR__UNSUPPORTED_FEATURE, p->topic, p->partition, "%s[%d]@%lld cannot be read: %.200s", p->topic,
                       p->partition, (long long)p->next, why->text);
    else if (p->broken_times > 1)
        wire_fault_add(
            c, BUS_ERR_INVALID_MSG, p->topic, p->partition,
            "%.100s[%d]@%lld cannot be read: %.150s. The partition stands there, others go on. Cure: have its leader take it from "
            "a whole replica; or give up what lies there: stop the group, and kafka-consumer-groups.sh --reset-offsets "
            "--to-offset behind it",
            p->topic, p->partition, (long long)p->next, why->text);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------------------------- */

static void hold(wire_consumer *c, wire_block *block, size_t n)
{
    if (c->n_held && c->held[c->n_held - 1].block == block) {
        c->held[c->n_held - 1].n += n;
        return;
    }
    c->held = pst_array_room(c->held, c->n_held, &c->held_cap, sizeof *c->held);
    c->held[c->n_held++] = (wire_held){.block = wire_block_use(block), .n = n};
}

/* May one more be unpacked? A partition that stands still must not have the room of those that flow: its batch is fetched again. */
static bool may_unpack(wire_consumer *c)
{
    for (size_t i = 0; c->unpacked >= c->inflight_max && i < c->n_parts; i++) {
        wire_part *p = c->parts[i];
        if (!p->paused || !p->reading || !p->records.block->counted)
            continue;
        p->version++;
        wire_part_clear(c, p);
    }
    return c->unpacked < c->inflight_max;
}

static bool is_abort_marker(const wire_batch_head *head, wire_block *block)
{
    wire_records r;
    pst_record one;
    if (wire_records_begin(head, block, &r, NULL) < 0)
        return false;
    bool is = wire_records_next(&r, &one, 1, NULL) == 1 && wire_control_type(&one) == 0;
    wire_records_done(&r);
    return is;
}

/* Is this batch none of the reader's business? What a marker says is noted. */
static bool is_hidden(const wire_consumer *c, wire_chunk *k, const wire_batch_head *head)
{
    wire_abort *a = head->transactional && !c->h.read_uncommitted ? find_abort(k, head->producer_id, head->last_offset) : NULL;
    if (head->control) {
        if (a && is_abort_marker(head, k->block))
            a->over = true;
        return true;
    }
    return a && !a->over;
}

/* The next batch that has something for the reader. 1, 0 = all is read, PST_EINVAL. */
static int next_batch(wire_consumer *c, wire_part *p, pst_err *err)
{
    while (p->first) {
        wire_batch_head head;
        int rc = wire_batch_next(&p->first->left, c->conf->check_crcs, &head, err);
        if (rc < 0)
            return rc;
        if (!rc) {
            if (p->next < p->first->end)
                p->next = p->first->end;
            chunk_pop(c, p);
            continue;
        }
        if (head.last_offset < p->next)
            continue;
        if (!is_hidden(c, p->first, &head) && head.n) {
            rc = wire_records_begin(&head, p->first->block, &p->records, err);
            p->reading = !rc;
            if (!rc && p->records.block != p->first->block)
                wire_block_count(p->records.block, &c->unpacked);
            return rc < 0 ? rc : 1;
        }
        p->next = head.last_offset + 1;
        p->read_epoch = head.leader_epoch;
    }
    return 0;
}

/* Those before the position are no news: a batch is fetched whole. */
static size_t skip_old(const wire_part *p, pst_record *room, size_t n)
{
    size_t old = 0;
    while (old < n && room[old].offset < p->next)
        old++;
    if (old)
        memmove(room, room + old, (n - old) * sizeof *room);
    return n - old;
}

static size_t at_most(const wire_records *r, size_t max, size_t bytes)
{
    size_t each = r->head.n ? r->head.records_len / r->head.n + 1 : 1, fit = bytes / each + 1;
    return fit < max ? fit : max;
}

size_t wire_part_read(wire_consumer *c, wire_part *p, pst_record *room, size_t max, size_t bytes)
{
    for (;;) {
        pst_err err = {0};
        if (!p->reading && !may_unpack(c))
            return 0;
        int rc = p->reading ? 1 : next_batch(c, p, &err);
        if (rc < 0)
            wire_part_broken(c, p, &err);
        if (rc <= 0)
            return 0;
        int n = wire_records_next(&p->records, room, at_most(&p->records, max, bytes), &err);
        if (n < 0) {
            wire_part_broken(c, p, &err);
            return 0;
        }
        p->read_epoch = p->records.head.leader_epoch;
        if (!n) {
            if (p->next <= p->records.head.last_offset)
                p->next = p->records.head.last_offset + 1;
            stop_reading(p);
            continue;
        }
        size_t got = skip_old(p, room, (size_t)n);
        if (!got)
            continue;
        for (size_t i = 0; i < got; i++) {
            room[i].topic = p->topic;
            room[i].partition = p->partition;
        }
        hold(c, p->records.block, got);
        p->next = room[got - 1].offset + 1;
        if (!p->records.left && p->records.in.at == p->records.in.end) { /* all is handed out: what is released is free then */
            p->next = p->records.head.last_offset + 1;
            stop_reading(p);
        }
        return got;
    }
}
