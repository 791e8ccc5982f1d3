/* bus_place.c - where a consumer stands: marks, what the open round owes, and the moves: rewinding, seeking, holding. Pausing is in bus_pause.c.
 *
 * The rule that makes exactly once, kept here and asked for by bus_txn.c at every commit:
 *
 *   A round that has sent anything for a record cannot commit without the offset behind that record. pst_txn_send writes down what is owed for
 *   each partition, a mark pays it; whoever moves a partition behind what was sent, or rewinds while the round is open, has spoiled the round,
 *   and its commit is an abort.
 *
 *   A position is where it was put or it is not known. A move that failed, or that could not be made after a round came to nothing, leaves the
 *   consumer astray: every later call says so (PST_ESTATE, FATAL), until a new consumer begins at the committed offsets.
 *
 * Rather than a cure for each way of forgetting a mark: those ways were three, and more would come. */
#include "common/bus/bus_consumer.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"

#include <stdlib.h>
#include <string.h>

#define POSITION_UNKNOWN (-2) /* after a seek to a logical offset; -1 is "nothing was handed out yet" */
#define SEEK_MS          10000

/* ---- marks and debts ---------------------------------------------------------------------------------------------------------------- */

void pst_consumer_mark(pst_consumer *c, const char *topic, int32_t partition, int64_t next_offset)
{
    bus_part *p = bus_part_find(c, topic, partition);
    if (!p || (p->next >= 0 && next_offset > p->next) || (p->next < 0 && c->group)) {
        /* Of a partition that was taken away, or of its earlier life here: those records come again, to whoever has it now. */
        pst_log(PST_LOG_DEBUG, "bus", "event=mark_ignored topic=%s partition=%d offset=%lld", topic, partition, (long long)next_offset);
        return;
    }
    p->marked = next_offset;
}

bus_places *bus_consumer_marked(pst_consumer *c)
{
    bus_places *list = NULL;
    for (size_t i = 0; i < c->n_parts; i++) {
        const bus_part *p = &c->parts[i];
        PST_ASSERT(!c->group || p->next < 0 || p->marked <= p->next); /* never beyond what was handed out */
        if (p->marked < 0)
            continue;
        if (!list)
            list = bus_places_new();
        bus_places_add(list, p->topic, p->partition)->offset = p->marked;
    }
    if (list)
        bus_start_note(c, list);
    return list;
}

void bus_consumer_sign(pst_consumer *c, const char *transactional_id)
{
    free(c->signature);
    c->signature = c->opts.peers && c->opts.instance_id ? pst_strdup(transactional_id) : NULL;
}

void bus_consumer_begin(pst_consumer *c)
{
    c->round = true;
    c->spoiled = NULL;
    for (size_t i = 0; i < c->n_parts; i++)
        c->parts[i].owed = -1;
}

void bus_consumer_end(pst_consumer *c)
{
    c->round = false;
    c->spoiled = NULL;
    for (size_t i = 0; i < c->n_parts; i++)
        c->parts[i].marked = c->parts[i].owed = -1;
}

void bus_consumer_owe(pst_consumer *c, const char *topic, int32_t partition, int64_t offset)
{
    PST_ASSERT(c->round); /* a debt outside of a round would never be asked for */
    bus_part *p = bus_part_find(c, topic, partition);
    if (!p)
        c->spoiled = "something was sent for a record whose partition was taken away";
    else if (p->owed <= offset)
        p->owed = offset + 1;
}

int bus_consumer_covered(const pst_consumer *c, pst_err *err)
{
    if (c->spoiled)
        return pst_err_set(err, PST_ESTATE, PST_CLASS_RETRY, "kafka", 0, "the round cannot be committed: %s", c->spoiled);
    for (size_t i = 0; i < c->n_parts; i++) {
        const bus_part *p = &c->parts[i];
        if (p->owed > p->marked)
            return pst_err_set(err, PST_ESTATE, PST_CLASS_RETRY, "kafka", 0,
                               "the round cannot be committed: something was sent for %s[%d]@%lld, and no offset behind it is marked",
                               p->topic, p->partition, (long long)p->owed - 1);
    }
    return 0;
}

void bus_consumer_committed(pst_consumer *c, const bus_places *offsets)
{
    for (size_t i = 0; offsets && i < offsets->n; i++) {
        bus_part *p = bus_part_find(c, offsets->at[i].topic, offsets->at[i].partition);
        if (p)
            p->committed = offsets->at[i].offset;
    }
}

int bus_consumer_astray(pst_consumer *c, const pst_err *why, pst_err *err)
{
    pst_err e = {0};
    pst_err_set(&e, PST_ESTATE, PST_CLASS_FATAL, "kafka", why->native,
                "the position of this consumer%s%s is not known any more, it has to be opened again: %.300s", c->group ? " of group " : "",
                c->group ? c->group : "", why->text);
    c->spoiled = "the consumer's position is not known";
    char text[300];
    int dead = c->link.h ? bus_fatal(c->link, text, sizeof text) : 0;
    if (dead) /* what moved or read it is only the first to notice */
        bus_health_note(&c->health, dead, text);
    if (!c->health.fatal.code) {
        c->health.fatal = e;
        c->health.fatal_code = BUS_ERR__STATE;
    }
    if (err && !err->code)
        *err = c->health.fatal;
    return c->health.fatal.code;
}

/* ---- moves -------------------------------------------------------------------------------------------------------------------------- */

/* Seeks what is in the list; partitions whose fetching has not begun yet are told by a new assignment instead of waited for. */
static int seek_list(pst_consumer *c, bus_places *list, pst_err *err)
{
    if (!list->n)
        return 0;
    pst_err why = {0};
    char text[300];
    int code = c->link.lib->consumer->seek(c->link.h, list, SEEK_MS, text, sizeof text);
    if (code)
        bus_err(&why, c->conf, code, text, "cannot seek");
    for (size_t i = 0; i < list->n && !why.code; i++) {
        const bus_place *tp = &list->at[i];
        if (tp->code && tp->code != BUS_ERR__UNKNOWN_PARTITION) /* unknown: taken away meanwhile */
            bus_err(&why, c->conf, tp->code, NULL, "cannot seek %s[%d] to %lld", tp->topic, tp->partition, (long long)tp->offset);
    }
    return why.code ? bus_consumer_astray(c, &why, err) : 0;
}

int bus_seek_one(pst_consumer *c, const bus_part *p, int64_t offset, pst_err *err)
{
    bus_places *one = bus_places_new();
    bus_places_add(one, p->topic, p->partition)->offset = offset;
    int rc = seek_list(c, one, err);
    bus_places_free(one);
    return rc;
}

/* Committed offsets of the assignment into list (BUS_OFFSET_NONE = none). */
static int fetch_committed(pst_consumer *c, bus_places *list, pst_err *err)
{
    bus_wait w = {.what = "committed_offsets"};
    int rc = 0;
    while (rc == 0) {
        int code = bus_committed(c->link, list, BUS_STEP_MS);
        if (!code)
            break;
        rc = bus_wait_more(c, &w, code, err);
    }
    bus_wait_over(c, &w);
    return rc;
}

/* Puts the partitions of `list` (their committed offsets) back; done when the seek is. */
static int rewind_list(pst_consumer *c, const bus_places *list, bus_places *seeks, pst_err *err)
{
    for (size_t i = 0; i < list->n; i++) {
        const bus_place *tp = &list->at[i];
        bus_part *p = bus_part_find(c, tp->topic, tp->partition);
        PST_ASSERT(p); /* the list is of our partitions, and only a poll takes any away */
        int64_t target = c->group ? tp->offset : -1;
        p->marked = -1;
        if (target >= 0)
            p->committed = target;
        else
            target = p->base; /* nothing committed: where this life of the partition began, wherever "latest" is by now */
        if (p->next == -1 || target < 0 || p->next == target)
            continue; /* nothing was handed out since it was assigned: it stands where it should */
        bus_places_add(seeks, tp->topic, tp->partition)->offset = target;
    }
    int rc = seek_list(c, seeks, err);
    for (size_t i = 0; !rc && i < seeks->n; i++) {
        bus_part *p = bus_part_find(c, seeks->at[i].topic, seeks->at[i].partition);
        p->next = seeks->at[i].offset;
        p->heard_us = pst_mono_us();
        if (p->base > p->next)
            p->base = p->next;
        if (p->done && p->next < p->to) { /* it was paused for good */
            p->done = false;
            bus_pause(c, p, false);
        }
        p->eof = p->done;
    }
    return rc;
}

int pst_consumer_rewind(pst_consumer *c, pst_err *err)
{
    if (c->round)
        c->spoiled = "the consumer was rewound while the round was open";
    bus_places *list = bus_places_new(), *seeks = bus_places_new();
    for (size_t i = 0; i < c->n_parts; i++)
        bus_places_add(list, c->parts[i].topic, c->parts[i].partition);
    pst_err why = {0};
    int rc = c->group && list->n ? fetch_committed(c, list, &why) : 0;
    if (rc < 0) {
        pst_err astray = {0};
        bus_consumer_astray(c, &why, &astray);
        if (rc != PST_ESTOPPED) {
            rc = astray.code;
            why = astray;
        }
        if (err && !err->code)
            *err = why;
    } else {
        rc = rewind_list(c, list, seeks, err);
    }
    bus_places_free(seeks);
    bus_places_free(list);
    return rc;
}

static int seek_part(pst_consumer *c, bus_part *p, int64_t offset, pst_err *err)
{
    if (p->owed >= 0 && (offset < 0 || offset < p->owed))
        c->spoiled = "a partition was moved behind what was sent of it";
    int rc = bus_seek_one(c, p, offset, err);
    if (rc < 0)
        return rc;
    p->next = offset >= 0 ? offset : POSITION_UNKNOWN;
    p->heard_us = pst_mono_us();
    if (offset < 0 || p->base > offset)
        p->base = offset >= 0 ? offset : -1;
    if (offset < 0 || p->marked > offset) /* what was marked before the target stays marked: it was used */
        p->marked = offset >= 0 && p->marked >= 0 ? offset : -1;
    p->eof = false;
    return 0;
}

int pst_consumer_seek(pst_consumer *c, const char *topic, int32_t partition, int64_t offset, pst_err *err)
{
    bus_part *p = bus_part_find(c, topic, partition);
    if (!p)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_RETRY, "kafka", 0, "cannot seek %s[%d]: it is not assigned", topic, partition);
    if (c->round && (offset < 0 || (p->next >= 0 && offset > p->next)))
        return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "kafka", 0,
                           "cannot seek %s[%d] to %lld in an open round: it stands at %lld, and what is between would be skipped", topic,
                           partition, (long long)offset, (long long)p->next);
    return seek_part(c, p, offset, err);
}

/* ---- holding ------------------------------------------------------------------------------------------------------------------------ */

int pst_consumer_hold(pst_consumer *c, const char *topic, int32_t partition, int64_t offset, int wait_ms, int wait_max_ms, pst_err *err)
{
    bus_part *p = bus_part_find(c, topic, partition);
    if (!p || p->next < 0)
        return 0; /* taken away since: it is read again by whoever has it now */
    if (offset > p->next) {
        pst_err why = {0};
        pst_err_set(&why, PST_ESTATE, PST_CLASS_FATAL, "kafka", 0, "%s[%d] was to wait at %lld, and stands at %lld", topic, partition,
                    (long long)offset, (long long)p->next);
        return bus_consumer_astray(c, &why, err);
    }
    int code = p->held_until_us ? 0 : bus_pause(c, p, true);
    if (code) {
        pst_err why = {0};
        bus_err(&why, c->conf, code, NULL, "cannot pause %s[%d]", topic, partition);
        return bus_consumer_astray(c, &why, err);
    }
    int rc = seek_part(c, p, offset, err);
    if (rc < 0)
        return rc;
    p->holds = p->hold_offset == offset ? p->holds + 1 : 1;
    p->hold_offset = offset;
    int64_t ms = wait_ms;
    for (int i = 1; i < p->holds && ms < wait_max_ms; i++)
        ms *= 2;
    uint16_t noise = 0;
    if (wait_max_ms > wait_ms) /* many that wait for the same thing do not all ask at once */
        pst_random(&noise, sizeof noise);
    ms = (ms < wait_max_ms ? ms : wait_max_ms) + noise % (ms / 2 + 1);
    p->held_until_us = pst_mono_us() + ms * 1000;
    if (!c->release_us || p->held_until_us < c->release_us)
        c->release_us = p->held_until_us;
    return 0;
}

bool pst_consumer_held(pst_consumer *c, const char *topic, int32_t partition)
{
    const bus_part *p = c->release_us ? bus_part_find(c, topic, partition) : NULL;
    return p && p->held_until_us;
}

bool pst_consumer_holds(const pst_consumer *c)
{
    return c->release_us != 0;
}

void bus_consumer_release(pst_consumer *c)
{
    int64_t now = pst_mono_us();
    if (now < c->release_us)
        return;
    c->release_us = 0;
    for (size_t i = 0; i < c->n_parts; i++) {
        bus_part *p = &c->parts[i];
        if (!p->held_until_us)
            continue;
        if (p->held_until_us <= now) {
            p->held_until_us = 0;
            p->heard_us = now;
            int code = c->stands ? 0 : bus_pause(c, p, false);
            pst_err why = {0};
            if (code && bus_err(&why, c->conf, code, NULL, "cannot resume %s[%d]", p->topic, p->partition) < 0)
                bus_consumer_astray(c, &why, NULL);
        } else if (!c->release_us || p->held_until_us < c->release_us) {
            c->release_us = p->held_until_us;
        }
    }
}
