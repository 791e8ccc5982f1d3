/* wire_group.c - a member of a group, whatever its protocol: what it was given and is told of it, commits that were refused, leaving.
 *
 * The protocol runs on whenever the net is turned; the owner hears of it in poll() alone. What he is to hear waits in order (events), and as long as anything
 * waits the group is not joined anew, but kept alive by heartbeats: so he may be in the middle of a transaction, whose offsets the coordinator takes as long
 * as the membership stands. A membership that is ahead of what was told is seen by wire_group_gave(). */
#include "common/bus/wire/wire_group.h"
#include "common/bus/wire/wire_ask.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdlib.h>
#include <string.h>

#define FAULT_EVERY_US (10 * 1000000LL)
#define WATCH_US       1000000
#define REFUSED_MS     1000

enum { GROUP_MAX_SIZE_REACHED = 81, FENCED_MEMBER_EPOCH = 110, STALE_MEMBER_EPOCH = 113 };

/* ---- places ---------------------------------------------------------------------------------------------------------------------------- */

void wire_places_add(bus_places *list, const char *topic, int32_t partition)
{
    list->at = pst_array_room(list->at, list->n, &list->cap, sizeof *list->at);
    list->at[list->n++] = (bus_place){.topic = (char *)topic, .partition = partition, .offset = BUS_OFFSET_NONE};
}

void wire_places_clear(bus_places *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->at[i].note);
    free(list->at);
    *list = (bus_places){0};
}

bool wire_places_has(const bus_places *list, const char *topic, int32_t partition)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].partition == partition && !strcmp(list->at[i].topic, topic))
            return true;
    return false;
}

/* ---- events ------------------------------------------------------------------------------------------------------------------------------ */

void wire_group_queue(wire_group *g, bus_change change, const bus_places *list, bool incremental)
{
    wire_consumer *c = g->of;
    wire_event *e = pst_alloc(sizeof *e);
    *e = (wire_event){.change = change, .incremental = incremental, .generation = g->generation, .member = pst_strdup(g->member)};
    for (size_t i = 0; i < list->n; i++)
        wire_places_add(&e->places, list->at[i].topic, list->at[i].partition);
    *c->events_end = e;
    c->events_end = &e->next;
}

static void event_free(wire_event *e)
{
    wire_places_clear(&e->places);
    free(e->member);
    free(e);
}

void wire_group_tell(wire_consumer *c)
{
    wire_group *g = c->member;
    for (wire_event *e; !g->telling && (e = c->events);) {
        c->events = e->next;
        if (!e->next)
            c->events_end = &c->events;
        if (e->change == BUS_ASSIGNED) {
            free(g->told_member);
            g->told_member = e->member;
            e->member = NULL;
            g->told_generation = e->generation;
            g->told = true;
        }
        pst_log(PST_LOG_DEBUG, "kafka", "event=rebalance group=%s change=%d partitions=%zu generation=%d", c->name, (int)e->change,
                e->places.n, e->generation);
        g->telling = true;
        c->h.to.rebalance(c->h.to.owner, e->change, &e->places, e->incremental);
        g->telling = false;
        event_free(e);
    }
}

/* ---- what it has --------------------------------------------------------------------------------------------------------------------------- */

static void own_all(wire_group *g, const bus_places *list)
{
    wire_places_clear(&g->owned);
    for (size_t i = 0; i < list->n; i++)
        wire_places_add(&g->owned, list->at[i].topic, list->at[i].partition);
    g->owned_generation = g->generation;
}

static void list_missing(const bus_places *of, const bus_places *in, bus_places *ret)
{
    for (size_t i = 0; i < of->n; i++)
        if (!wire_places_has(in, of->at[i].topic, of->at[i].partition))
            wire_places_add(ret, of->at[i].topic, of->at[i].partition);
}

/* Eagerly everything was given back before, and all of it is news; cooperatively what differs is. Each generation is told, if with an empty list: offsets are
 * sent under it. */
void wire_group_given(wire_group *g, bus_places *target)
{
    bus_places more = {0}, less = {0};
    list_missing(target, &g->owned, &more);
    list_missing(&g->owned, target, &less);
    bool bit_by_bit = g->sticky || g->next;
    if (less.n)
        wire_group_queue(g, BUS_REVOKED, bit_by_bit ? &less : &g->owned, bit_by_bit);
    wire_group_queue(g, BUS_ASSIGNED, bit_by_bit ? &more : target, bit_by_bit);
    own_all(g, target);
    if (g->sticky && less.n)
        wire_group_rejoin(g); /* somebody waits for what was given back */
    wire_places_clear(&more);
    wire_places_clear(&less);
    wire_places_clear(target);
}

void wire_group_lose(wire_group *g)
{
    bool had = g->owned.n || g->told;
    if (had)
        wire_group_queue(g, BUS_LOST, &g->owned, false);
    wire_places_clear(&g->owned);
    g->told = false;
}

void wire_group_forget_member(wire_group *g)
{
    wire_group_lose(g);
    g->generation = -1;
    g->state = WIRE_OUT;
}

void wire_group_back_off(wire_group *g)
{
    g->not_before_us = pst_mono_us() + g->of->conf->retry_backoff_ms * 1000LL;
}

void wire_group_rejoin(wire_group *g)
{
    if (g->state == WIRE_LEFT || g->state == WIRE_OUT || g->state == WIRE_JOINING)
        return;
    if (!g->sticky && !g->next && g->owned.n) {
        wire_group_queue(g, BUS_REVOKED, &g->owned, false);
        wire_places_clear(&g->owned);
    }
    g->state = WIRE_OUT;
}

/* ---- errors ---------------------------------------------------------------------------------------------------------------------------------- */

static void tell_group(wire_group *g, const char *what, int code)
{
    int64_t now = pst_mono_us();
    g->not_before_us = now + REFUSED_MS * 1000;
    if (g->fault_code == code && now - g->fault_us < FAULT_EVERY_US)
        return;
    g->fault_us = now;
    g->fault_code = code;
    wire_fault_add(g->of, code, NULL, -1, "group %.100s: the coordinator refuses %s: error %d", g->of->name, what, code);
}

void wire_group_failed(wire_group *g, const char *what, int code)
{
    wire_consumer *c = g->of;
    pst_log(PST_LOG_DEBUG, "kafka", "event=group_error group=%s request=%s code=%d generation=%d", c->name, what, code, g->generation);
    switch (code) {
    case BUS_ERR_REBALANCE_IN_PROGRESS: wire_group_rejoin(g); return;
    case BUS_ERR_UNKNOWN_MEMBER_ID:
        wire_group_forget_member(g);
        if (!g->next) {
            free(g->member);
            g->member = pst_strdup("");
        }
        return;
    case BUS_ERR_ILLEGAL_GENERATION:
    case FENCED_MEMBER_EPOCH: wire_group_forget_member(g); return;
    case BUS_ERR_FENCED_INSTANCE_ID:
        wire_group_lose(g);
        g->state = WIRE_LEFT;
        wire_consumer_die(c, code, "group %.100s: fenced: another member has joined with the instance id %.100s", c->name,
                          c->instance ? c->instance : "");
        return;
    default: break;
    }
    if (!wire_is_passing(code)) {
        tell_group(g, what, code);
        return;
    }
    wire_net_coordinator_stale(c->h.net, WIRE_GROUP, c->name);
    wire_group_back_off(g);
}

int wire_group_commit_code(wire_consumer *c, int code)
{
    wire_group *g = c->member;
    if (!g || g->state != WIRE_STABLE)
        return code == STALE_MEMBER_EPOCH || code == FENCED_MEMBER_EPOCH ? BUS_ERR_ILLEGAL_GENERATION : code;
    switch (code) {
    case BUS_ERR_REBALANCE_IN_PROGRESS:
    case BUS_ERR_UNKNOWN_MEMBER_ID:
    case BUS_ERR_ILLEGAL_GENERATION:
    case BUS_ERR_FENCED_INSTANCE_ID: wire_group_failed(g, "OffsetCommit", code); return code;
    case FENCED_MEMBER_EPOCH: wire_group_failed(g, "OffsetCommit", code); return BUS_ERR_ILLEGAL_GENERATION;
    case STALE_MEMBER_EPOCH: return BUS_ERR_ILLEGAL_GENERATION; /* the next heartbeat brings the new one */
    default: return code;
    }
}

/* ---- looking ----------------------------------------------------------------------------------------------------------------------------------- */

bool wire_group_has(const wire_consumer *c)
{
    const wire_group *g = c->member;
    return g && g->generation >= 0 && *g->member && g->state != WIRE_LEFT;
}

bus_group *wire_group_now(wire_consumer *c)
{
    const wire_group *g = c->member;
    bus_group *now = pst_alloc(sizeof *now);
    *now = (bus_group){.group = pst_strdup(c->name ? c->name : ""),
                       .member = pst_strdup(g ? g->member : ""),
                       .instance = pst_strdup(c->instance),
                       .generation = g ? g->generation : -1};
    return now;
}

bool wire_group_gave(wire_consumer *c, const bus_group *as)
{
    const wire_group *g = c->member;
    if (!wire_group_has(c) || !g->told)
        return false;
    for (const wire_event *e = c->events; e; e = e->next)
        if (e->change == BUS_ASSIGNED)
            return false; /* given since, in another generation */
    return as->generation == g->told_generation && !strcmp(as->member, g->told_member) && !strcmp(as->group, c->name);
}

/* ---- work -------------------------------------------------------------------------------------------------------------------------------------- */

/* Topics that are not there, or may not be read: said now and then, since they may come. */
static void check_topics(wire_group *g, int64_t now)
{
    for (size_t i = 0; i < g->n_topics; i++) {
        const wire_topic *t = wire_net_topic(g->of->h.net, g->topics[i]);
        struct wire_told_topic *told = &g->topic_errors[i];
        if (!t || (t->code == told->code && (!t->code || now - told->said_us < FAULT_EVERY_US)))
            continue;
        told->code = t->code;
        told->said_us = now;
        if (t->code && t->code != BUS_ERR_LEADER_NOT_AVAILABLE)
            wire_fault_add(g->of, t->code, g->topics[i], -1, "topic %.150s: error %d", g->topics[i], t->code);
    }
}

void wire_group_work(wire_consumer *c, int64_t now)
{
    wire_group *g = c->member;
    if (g->state == WIRE_LEFT)
        return;
    if (now - g->watch_us >= WATCH_US) {
        g->watch_us = now;
        check_topics(g, now);
    }
    if (g->next)
        wire_next_work(g, now);
    else
        wire_classic_work(g, now);
}

int64_t wire_group_due_us(const wire_consumer *c)
{
    const wire_group *g = c->member;
    if (g->state == WIRE_LEFT)
        return INT64_MAX;
    int64_t beat = g->generation >= 0 && !g->beat && g->state != WIRE_JOINING ? g->beat_us : INT64_MAX;
    int64_t begin = g->state == WIRE_OUT && !g->call && !c->events && g->not_before_us ? g->not_before_us : INT64_MAX;
    return beat < begin ? beat : begin;
}

/* ---- life ---------------------------------------------------------------------------------------------------------------------------------------- */

int wire_group_new(wire_consumer *c, const char *const *topics, size_t n, wire_group **ret)
{
    wire_group *g = pst_alloc(sizeof *g);
    *g = (wire_group){.of = c,
                      .n_topics = n,
                      .topics = pst_alloc((n + 1) * sizeof(void *)),
                      .topic_errors = pst_alloc((n + 1) * sizeof *g->topic_errors),
                      .sticky = c->conf->assignor == WIRE_COOPERATIVE,
                      .next = c->conf->group_protocol == WIRE_CONSUMER,
                      .member = pst_strdup(""),
                      .generation = -1};
    for (size_t i = 0; i < n; i++) {
        g->topics[i] = wire_topic_name(c, topics[i], strlen(topics[i]));
        wire_net_topic(c->h.net, g->topics[i]);
    }
    *ret = g;
    return 0;
}

/* It gives back what it has, and leaves; a static member stays unless it goes for good. */
void wire_group_leave(wire_consumer *c, bool for_good, int wait_ms)
{
    wire_group *g = c->member;
    bool was_in = g->state != WIRE_LEFT && (*g->member || (c->instance && g->call));
    bool done = false;
    if (g->owned.n)
        wire_group_queue(g, BUS_REVOKED, &g->owned, g->sticky || g->next);
    wire_places_clear(&g->owned);
    g->state = WIRE_LEFT;
    wire_group_tell(c);
    if (!was_in || (c->instance && !for_good && !g->next))
        return;
    wire_call *call = g->next ? wire_next_leave(g, for_good, &done) : wire_classic_leave(g, &done);
    int64_t until = pst_mono_us() + wait_ms * 1000LL;
    while (call && !done && wire_ask_turn(&c->h, until))
        ;
    if (call && !done)
        wire_call_forget(call);
    free(g->member);
    g->member = pst_strdup("");
    g->generation = -1;
}

void wire_group_free(wire_group *g)
{
    if (!g)
        return;
    wire_consumer *c = g->of;
    if (g->call)
        wire_call_forget(g->call);
    if (g->beat)
        wire_call_forget(g->beat);
    for (wire_event *e; (e = c->events);) {
        c->events = e->next;
        event_free(e);
    }
    wire_classic_clear(g);
    wire_places_clear(&g->owned);
    free(g->watched);
    free(g->topic_errors);
    free(g->topics);
    free(g->told_member);
    free(g->protocol);
    free(g->member);
    free(g);
}
