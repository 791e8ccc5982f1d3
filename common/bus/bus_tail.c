/* bus_tail.c - where the last records of partitions begin.
 *
 * Offsets are not records: markers of transactions, records of aborted ones and what was compacted away have offsets, too, and no reader is given
 * them. No question to a broker tells them apart, so the end is read: a few offsets at first, which is enough where a marker or two follow the last
 * record, then eight times as many before those, until the records are found or there are no more. */
#include "common/bus/bus_internal.h"
#include "common/base/clock.h"
#include "common/base/stop.h"

#include <stdlib.h>
#include <string.h>

#define WIDER 8

typedef struct look { /* at one partition */
    pst_tail *part;
    int64_t from, to; /* what is read in this round: [from, to); what is behind it was read before */
    int64_t wanted;   /* records that are still to be found */
    int64_t *last;    /* a ring of the offsets of the last `wanted` of the round */
    int64_t seen;     /* in the round */
} look;

/* What is to be read next: before what was read already. */
static void widen(look *l, int64_t width)
{
    int64_t left = l->to - l->part->low;
    l->from = width < left ? l->to - width : l->part->low;
    l->seen = 0;
}

/* After a round: is it known now where this partition's last records begin? */
static bool settle(look *l)
{
    pst_tail *p = l->part;
    if (l->seen >= l->wanted) {
        p->from = l->last[l->seen % l->wanted];
    } else {
        if (l->seen)
            p->from = l->last[0]; /* fewer than are wanted: the ring is not full, and begins with the first */
        l->wanted -= l->seen;
        l->to = l->from;
        if (l->to > p->low)
            return false;
    }
    p->known = true;
    return true;
}

static void note(look *looks, size_t n, const pst_record *r)
{
    for (size_t i = 0; i < n; i++) {
        look *l = &looks[i];
        if (l->part->partition == r->partition && !strcmp(l->part->topic, r->topic)) {
            l->last[l->seen++ % l->wanted] = r->offset;
            return;
        }
    }
}

/* Reads what each of them wants to know, to its end. */
static int read_round(const pst_bus_conf *conf, look *looks, size_t n, bool uncommitted, int64_t until_us, pst_err *err)
{
    pst_consumer *c = NULL;
    pst_range *ranges = pst_alloc(n * sizeof *ranges);
    for (size_t i = 0; i < n; i++)
        ranges[i] = (pst_range){looks[i].part->topic, looks[i].part->partition, looks[i].from, looks[i].to};
    int rc = pst_consumer_new(
        conf, &(pst_consumer_opts){.ranges = ranges, .n_ranges = n, .read_uncommitted = uncommitted, .report_eof = true}, &c, err);
    for (bool over = false; !rc && !over;) {
        pst_batch b;
        pst_err e = {0};
        rc = pst_consumer_poll(c, &(pst_poll){.records_max = 1000, .timeout_ms = 100}, &b, &e);
        for (size_t i = 0; !rc && i < b.n; i++)
            note(looks, n, &b.records[i]);
        over = !rc && b.eof;
        if (!rc && !over && (pst_mono_us() > until_us || pst_stop_requested()))
            rc =
                pst_err_set(&e, PST_ETIMEDOUT, PST_CLASS_RETRY, "kafka", 0, "the last records of %s did not come in time", ranges[0].topic);
        if (rc < 0 && err && !err->code)
            *err = e;
    }
    pst_consumer_free(c);
    free(ranges);
    return rc;
}

int pst_admin_tail(const pst_bus_conf *conf, pst_tail *parts, size_t n, bool uncommitted, int timeout_ms, pst_err *err)
{
    int rc = 0;
    int64_t until = pst_mono_us() + timeout_ms * 1000LL;
    pst_err ignored = {0};
    pst_bus_conf *swift = pst_bus_conf_copy(conf);
    pst_bus_conf_set(swift, "fetch.wait.max.ms", "10", "bus_tail", &ignored); /* an end is told by a fetch that gives nothing */
    look *looks = pst_alloc((n + 1) * sizeof *looks);
    size_t open = 0;
    int64_t width = 0;
    for (size_t i = 0; i < n; i++) {
        pst_tail *p = &parts[i];
        int64_t there = p->end - p->low;
        PST_ASSERT(p->n > 0 && p->low >= 0);
        p->from = p->n > there ? p->low : p->end;
        p->known = p->n > there; /* all of them are wanted, and whether there are any is no question */
        if (p->known)
            continue;
        looks[open++] = (look){.part = p, .to = p->end, .wanted = p->n, .last = pst_alloc((size_t)p->n * sizeof(int64_t))};
        width = p->n > width ? p->n : width;
    }
    for (width += 1; open && !rc; width = width > INT64_MAX / WIDER ? width : width * WIDER) {
        for (size_t i = 0; i < open; i++)
            widen(&looks[i], width);
        rc = read_round(swift, looks, open, uncommitted, until, err);
        for (size_t i = 0; !rc && i < open;) {
            if (settle(&looks[i])) {
                free(looks[i].last);
                looks[i] = looks[--open];
            } else {
                i++;
            }
        }
    }
    while (open)
        free(looks[--open].last);
    free(looks);
    pst_bus_conf_free(swift);
    return rc;
}
