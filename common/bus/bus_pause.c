/* bus_pause.c - partitions that give nothing for now, and the group, which is served meanwhile.
 *
 * Everything is paused while the owner uses what it was given (pst_consumer_pause: a model that computes) or the thread waits for something else
 * (bus_consumer_stay: a commit); one partition alone while it is held at a record, or when its range is done. What is true of the client is kept in
 * `off`: in librdkafka 2.0.2 to resume what is not paused throws away what was fetched and begins anew where it was last started, sought or paused.
 *
 * A pause throws away what was fetched, too, and whichever partition is fetched first afterwards gives the next batch. With a model slower than a
 * fetch that would be the same one each time, and the others would give nothing for as long as it has records. So each partition has its turn: the
 * one that has given nothing for longest flows alone for a moment before the others follow. */
#include "common/bus/bus_consumer.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define WAKE_MS  200
#define STAY_US  1000000 /* max.poll.interval.ms is no less than session.timeout.ms, and that, as brokers allow it, no less than 6 s */
#define TURN_US  2000000 /* who has given nothing for so long is due; and so long after a turn in vain is no other */
#define LOOK_US  200000  /* alone for so long: nothing is known to be there, and a fetch of nothing takes fetch.wait.max.ms, which is 100 */
#define FETCH_US 500000  /* something is */

/* ---- one partition ------------------------------------------------------------------------------------------------------------------ */

static bool may_flow(const bus_part *p)
{
    return !p->done && !p->held_until_us;
}

static bool is_among(const bus_part *p, const bus_part *only)
{
    return only ? p == only : may_flow(p);
}

/* One call for all: each waits for the client's thread. only: NULL = all that may flow. A code. */
static int set_off(pst_consumer *c, const bus_part *only, bool off)
{
    bus_places *list = bus_places_new();
    for (size_t i = 0; i < c->n_parts; i++)
        if (is_among(&c->parts[i], only) && c->parts[i].off != off)
            bus_places_add(list, c->parts[i].topic, c->parts[i].partition);
    int code = list->n ? c->link.lib->consumer->pause(c->link.h, list, off) : 0;
    for (size_t i = 0; i < list->n && !code; i++) {
        if (list->at[i].code && list->at[i].code != BUS_ERR__UNKNOWN_PARTITION) /* unknown: taken away meanwhile */
            code = list->at[i].code;
        else
            bus_part_find(c, list->at[i].topic, list->at[i].partition)->off = off;
    }
    bus_places_free(list);
    return code;
}

int bus_pause(pst_consumer *c, const bus_part *p, bool pause)
{
    return set_off(c, p, pause);
}

/* ---- all of them -------------------------------------------------------------------------------------------------------------------- */

int bus_pause_all(pst_consumer *c)
{
    return set_off(c, NULL, true);
}

/* Everything stands still. A code. */
static int stand(pst_consumer *c)
{
    if (!c->stands)
        c->paused_us = pst_mono_us();
    c->stands = true;
    if (c->rest_us) /* a turn is cut short: it was none */
        c->turn_us = 1;
    c->rest_us = 0;
    return bus_pause_all(c);
}

/* As far as its last fetch has told. */
static bool has_more(pst_consumer *c, const bus_part *p)
{
    int64_t end;
    return p->next < 0 || c->link.lib->consumer->known_end(c->link.h, p->topic, p->partition, &end) || end < 0 || end > p->next;
}

/* Whose turn is it? Who has waited for longest, four times as long if nothing is known to be there. NULL: nobody for long, or all may flow at once. */
static bus_part *find_due(pst_consumer *c, int64_t now, bool *ret_more)
{
    bus_part *due = NULL;
    size_t n = 0;
    int64_t longest = 0;
    for (size_t i = 0; i < c->n_parts; i++) {
        bus_part *p = &c->parts[i];
        n += may_flow(p);
        int64_t waited = c->paused_us - p->turn_us;
        if (!may_flow(p) || waited <= TURN_US)
            continue;
        bool more = has_more(c, p);
        waited *= more ? 4 : 1;
        if (waited <= longest)
            continue;
        longest = waited;
        due = p;
        *ret_more = more;
    }
    return n > 1 && now - c->turn_us > TURN_US ? due : NULL;
}

/* Nothing is heard of a partition that is paused: for how long does not count. */
static void skip_pause(pst_consumer *c, int64_t now)
{
    int64_t took = now - c->paused_us;
    for (size_t i = 0; i < c->n_parts; i++) {
        bus_part *p = &c->parts[i];
        p->heard_us += p->heard_us < c->paused_us ? took : 0;
        p->behind_us += p->behind_us ? took : 0;
        p->unheard = !p->done;
    }
}

/* Places of those that stand (only: NULL = all that may flow), as far as it is known where. */
static bus_places *where_they_stand(const pst_consumer *c, const bus_part *only)
{
    bus_places *list = bus_places_new();
    for (size_t i = 0; i < c->n_parts; i++) {
        const bus_part *p = &c->parts[i];
        if (is_among(p, only) && p->off && p->next >= 0)
            bus_places_add(list, p->topic, p->partition)->offset = p->next;
    }
    return list;
}

/* due: alone. NULL = all.
 *
 * librdkafka 2.0.2 does not wake the thread of a partition's broker when it is resumed, so that nothing would be fetched for up to a second; it does
 * for a seek. So they are sought to where they stand, or, if that is not known, others are that still stand; what comes of it does not matter. */
static void resume(pst_consumer *c, const bus_part *due)
{
    pst_err why = {0};
    char ignored[300];
    bus_places *list = where_they_stand(c, due);
    int code = set_off(c, due, false);
    if (code && bus_err(&why, c->conf, code, NULL, "cannot resume partitions of group %s", c->group ? c->group : "") < 0)
        bus_consumer_astray(c, &why, NULL);
    if (!list->n) {
        bus_places_free(list);
        list = where_they_stand(c, NULL);
    }
    if (list->n)
        c->link.lib->consumer->seek(c->link.h, list, WAKE_MS, ignored, sizeof ignored);
    bus_places_free(list);
}

int pst_consumer_pause(pst_consumer *c, bool pause)
{
    c->paused = pause;
    return pause ? bus_code(stand(c), NULL) : 0; /* it is resumed by the next poll: a commit may come before */
}

void bus_flow(pst_consumer *c)
{
    int64_t now = pst_mono_us();
    bool more = false;
    if (c->stands && !c->paused) {
        c->stands = false;
        skip_pause(c, now);
        bus_part *due = find_due(c, now, &more);
        if (due) {
            due->turn_us = c->turn_us = now;
            c->rest_us = now + (more ? FETCH_US : LOOK_US);
        }
        resume(c, due);
    } else if (c->rest_us && now >= c->rest_us) {
        c->rest_us = 0;
        resume(c, NULL);
    }
}

/* ---- the group meanwhile -------------------------------------------------------------------------------------------------------------- */

/* It was on its way when its partition was paused: it is read again. */
static void put_back(pst_consumer *c, const pst_record *r)
{
    const bus_part *p = bus_part_find(c, r->topic, r->partition);
    pst_err why = {0};
    if (p && (p->next < 0 || r->offset >= p->next) && bus_seek_one(c, p, r->offset, &why) < 0)
        bus_consumer_astray(c, &why, NULL);
}

static void take_news(pst_consumer *c, const bus_run *run, const pst_record *unread)
{
    c->polled_us = pst_mono_us();
    if (run->kind == BUS_RUN_RECORDS) {
        put_back(c, unread);
        c->link.lib->consumer->release(c->link.h, unread, run->n);
    } else if (run->kind != BUS_RUN_NONE) {
        bus_consumer_news(c, run);
    }
}

int pst_consumer_serve(pst_consumer *c, int timeout_ms, bool *ret_lost, pst_err *err)
{
    PST_ASSERT(c->paused);
    c->serving = true;
    bus_run run = {.kind = BUS_RUN_NONE};
    pst_record unread;
    if (!c->health.fatal.code)
        c->link.lib->consumer->poll(c->link.h, timeout_ms, &unread, 1, 1, &run);
    c->serving = false;
    take_news(c, &run, &unread);
    *ret_lost = c->lost;
    return bus_health_take(&c->health, err);
}

void bus_consumer_stay(pst_consumer *c)
{
    if (!c->group || c->changing || c->closing || c->health.fatal.code || pst_mono_us() - c->polled_us < STAY_US)
        return;
    if (stand(c)) /* what it would be given could not be refused */
        return;
    bus_run run = {.kind = BUS_RUN_NONE};
    pst_record unread;
    c->link.lib->consumer->stay(c->link.h, &unread, &run);
    take_news(c, &run, &unread);
}
