/* wire_offsets.c - where partitions begin, asked for while everything else goes on; and committing (OffsetCommit, versions 7 to 9).
 *
 * A part that has no offset yet waits for one: what its group has committed, or the place that auto.offset.reset or its owner names. Both are asked for by
 * wire_ask, as many partitions at once as wait. An offset that is held back by an open transaction (UNSTABLE_OFFSET_COMMIT) is asked for again until
 * it is told: the owner sees that in a partition which gives neither a record nor its end (bus_wait.c). */
#include "common/bus/wire/wire_ask.h"
#include "common/bus/wire/wire_consumer.h"
#include "common/base/clock.h"
#include "common/base/stop.h"

#include <stdlib.h>
#include <string.h>

#define ASK_MS         10000
#define FAULT_EVERY_US (10 * 1000000LL)
#define TAIL_ZERO      (-2000LL) /* PST_OFFSET_TAIL(0) */

static const wire_api commit_api = {.key = 8, .min = 7, .max = 9, .flexible = 8, .name = "OffsetCommit"};

/* ---- where partitions begin ----------------------------------------------------------------------------------------------------------- */

typedef struct wire_where_ask { /* one that is under way */
    struct wire_where_ask *next;
    wire_consumer *of;
    wire_ask *ask;
    int32_t node; /* of ListOffsets */
    uint32_t *versions;
} wire_where_ask;

static void where_free(wire_where_ask *w)
{
    wire_where_ask **at = &w->of->wheres;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    for (size_t i = 0; i < w->ask->n; i++)
        wire_part_drop(w->ask->at[i].arg);
    wire_ask_free(w->ask);
    free(w->versions);
    free(w);
}

void wire_offsets_done(wire_consumer *c)
{
    while (c->wheres)
        where_free(c->wheres);
}

static void stand_at(wire_part *p, int64_t offset)
{
    p->where = WIRE_AT_OFFSET;
    p->next = p->fetch = offset;
}

/* Nothing is committed, or it may not be used. */
static void nothing_committed(wire_consumer *c, wire_part *p)
{
    if (!c->reset_error) {
        p->where = WIRE_AT_LOGICAL;
        p->logical = c->reset_to;
        return;
    }
    p->not_before_us = pst_mono_us() + FAULT_EVERY_US;
    wire_fault_add(c, BUS_ERR__AUTO_OFFSET_RESET, p->topic, p->partition, "%s[%d]: nothing is committed, and auto.offset.reset is error",
                   p->topic, p->partition);
}

static void where_failed(wire_consumer *c, wire_part *p, int code, bool committed)
{
    int64_t now = pst_mono_us();
    p->not_before_us = now + c->conf->retry_backoff_ms * 1000LL;
    if (committed && wire_is_passing(code))
        wire_net_coordinator_stale(c->h.net, WIRE_GROUP, c->name);
    else if (wire_is_passing(code))
        wire_net_stale(c->h.net, p->topic);
    if (wire_is_passing(code) || code == BUS_ERR_UNSTABLE_OFFSET_COMMIT)
        return;
    if (p->told_us && now - p->told_us < FAULT_EVERY_US)
        return;
    p->told_us = now;
    wire_fault_add(c, code, p->topic, p->partition, "%s[%d]: the broker does not say where it begins: error %d", p->topic, p->partition,
                   code);
}

static void take_where(wire_consumer *c, wire_part *p, const wire_asked_place *at, int code, bool committed)
{
    if (code) {
        where_failed(c, p, code, committed);
    } else if (committed && at->offset < 0) {
        nothing_committed(c, p);
    } else if (committed || p->logical > TAIL_ZERO) {
        stand_at(p, at->offset < 0 ? 0 : at->offset);
    } else {
        int64_t back =
            TAIL_ZERO - p->logical; /* so many before the end; fewer there are, then the broker says so, and it begins at the first */
        stand_at(p, at->offset > back ? at->offset - back : 0);
    }
}

static void on_where(void *owner, wire_ask *ask)
{
    wire_where_ask *w = owner;
    wire_consumer *c = w->of;
    for (size_t i = 0; i < ask->n; i++) {
        wire_part *p = ask->at[i].arg;
        if (p->gone || p->version != w->versions[i])
            continue;
        p->asking = false;
        take_where(c, p, &ask->at[i], ask->code ? ask->code : ask->at[i].code, ask->group != NULL);
    }
    where_free(w);
}

static wire_where_ask *where_new(wire_consumer *c, bool committed)
{
    wire_where_ask *w = pst_alloc(sizeof *w);
    *w = (wire_where_ask){.next = c->wheres, .of = c};
    w->ask = wire_ask_new(&c->h, committed ? c->name : NULL, on_where, w);
    w->versions = pst_alloc((c->n_parts + 1) * sizeof *w->versions);
    c->wheres = w;
    return w;
}

static void where_add(wire_where_ask *w, wire_part *p, int64_t time)
{
    w->versions[w->ask->n] = p->version;
    wire_ask_add(w->ask, p->topic, p->partition, time, wire_part_use(p));
    p->asking = true;
}

static bool is_due(const wire_part *p, wire_where where, int64_t now)
{
    return p->where == where && !p->asking && !p->gone && now >= p->not_before_us;
}

static void ask_committed(wire_consumer *c, int64_t now)
{
    wire_where_ask *w = NULL;
    int refused = 0;
    int32_t node = -1;
    for (size_t i = 0; i < c->n_parts; i++) {
        wire_part *p = c->parts[i];
        if (!is_due(p, WIRE_AT_COMMITTED, now))
            continue;
        if (!c->name) {
            nothing_committed(c, p);
            continue;
        }
        if (node < 0 && (node = wire_net_coordinator(c->h.net, WIRE_GROUP, c->name, &refused)) < 0) {
            if (refused && !wire_is_passing(refused))
                where_failed(c, p, refused, true);
            return;
        }
        if (!w)
            w = where_new(c, true);
        where_add(w, p, -1);
    }
    if (w)
        wire_ask_send(w->ask, node, ASK_MS);
}

static void ask_logical(wire_consumer *c, int64_t now)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        wire_part *first = c->parts[i];
        int32_t node = is_due(first, WIRE_AT_LOGICAL, now) ? wire_net_leader(c->h.net, first->topic, first->partition) : -1;
        if (node < 0 && is_due(first, WIRE_AT_LOGICAL, now)) {
            const wire_topic *t = wire_net_topic(c->h.net, first->topic);
            if (t && t->code)
                where_failed(c, first, t->code, false);
            else if (t)
                wire_net_stale(c->h.net, first->topic);
        }
        if (node < 0)
            continue;
        wire_where_ask *w = where_new(c, false);
        for (size_t k = i; k < c->n_parts; k++) {
            wire_part *p = c->parts[k];
            if (is_due(p, WIRE_AT_LOGICAL, now) && wire_net_leader(c->h.net, p->topic, p->partition) == node)
                where_add(w, p, p->logical <= TAIL_ZERO ? PST_OFFSET_END : p->logical);
        }
        wire_ask_send(w->ask, node, ASK_MS);
    }
}

void wire_offsets_work(wire_consumer *c, int64_t now)
{
    ask_committed(c, now);
    ask_logical(c, now);
}

int64_t wire_offsets_due_us(const wire_consumer *c)
{
    int64_t due = INT64_MAX;
    for (size_t i = 0; i < c->n_parts; i++) {
        const wire_part *p = c->parts[i];
        if (p->where != WIRE_AT_OFFSET && !p->asking && p->not_before_us < due)
            due = p->not_before_us;
    }
    return due;
}

/* ---- commit ------------------------------------------------------------------------------------------------------------------------------ */

typedef struct committing { /* while its caller waits */
    const char *group;
    const bus_group *as;
    const bus_places *list;
    wire_call *call;
    int code;
    bool done;
} committing;

static size_t topic_run(const bus_places *list, size_t from)
{
    size_t n = 1;
    while (from + n < list->n && !strcmp(list->at[from + n].topic, list->at[from].topic))
        n++;
    return n;
}

static void put_commit(void *owner, wire_call *call, int16_t version, wire_out *o)
{
    const committing *k = owner;
    size_t runs = 0;
    for (size_t i = 0; i < k->list->n; i += topic_run(k->list, i))
        runs++;
    wire_put_str(o, k->group);
    wire_put_i32(o, k->as->generation);
    wire_put_str(o, k->as->member);
    wire_put_str(o, k->as->instance);
    wire_put_count(o, runs);
    for (size_t i = 0; i < k->list->n;) {
        size_t n = topic_run(k->list, i);
        wire_put_str(o, k->list->at[i].topic);
        wire_put_count(o, n);
        for (size_t end = i + n; i < end; i++) {
            const bus_place *p = &k->list->at[i];
            wire_put_i32(o, p->partition);
            wire_put_i64(o, p->offset);
            wire_put_i32(o, -1); /* the leader's epoch: not known */
            wire_put_str(o, p->note ? p->note : "");
            wire_put_tags(o);
        }
        wire_put_tags(o);
    }
    wire_put_tags(o);
}

/* The first error of any partition; one that was asked for and is not answered is none that was committed. */
static int get_commit(const wire_answer *a, size_t asked)
{
    wire_in in = a->body;
    int code = 0;
    size_t told = 0;
    wire_get_i32(&in); /* throttled */
    size_t topics = wire_get_count(&in, 3, NULL);
    for (size_t t = 0; t < topics && !in.bad; t++) {
        wire_get_str(&in);
        size_t parts = wire_get_count(&in, 6, NULL);
        for (size_t i = 0; i < parts && !in.bad; i++, told++) {
            wire_get_i32(&in);
            int one = wire_get_i16(&in);
            wire_get_tags(&in);
            code = code ? code : one;
        }
        wire_get_tags(&in);
    }
    wire_get_tags(&in);
    return in.bad || (!code && told < asked) ? BUS_ERR__TRANSPORT : code;
}

static void on_committed(void *owner, wire_call *call, const wire_answer *a)
{
    committing *k = owner;
    k->call = NULL;
    k->done = true;
    k->code = a->code ? a->code : get_commit(a, k->list->n);
}

static void step_back(wire_consumer *c, int64_t until)
{
    int64_t again = pst_mono_us() + c->conf->retry_backoff_ms * 1000LL;
    while (pst_mono_us() < again && wire_ask_turn(&c->h, again < until ? again : until))
        ;
}

static int commit_once(wire_consumer *c, committing *k, int64_t until)
{
    int refused = 0;
    int32_t node = wire_net_coordinator(c->h.net, WIRE_GROUP, c->name, &refused);
    if (node < 0) {
        if (!refused)
            wire_ask_turn(&c->h, until);
        return refused ? refused : BUS_ERR__WAIT_COORD;
    }
    int64_t left_ms = (until - pst_mono_us()) / 1000;
    *k = (committing){.group = k->group, .as = k->as, .list = k->list};
    k->call = wire_net_call(c->h.net, node, &commit_api, left_ms > 1 ? (int)left_ms : 1, put_commit, on_committed, k);
    while (!k->done && wire_ask_turn(&c->h, until))
        ;
    if (!k->done)
        wire_call_forget(k->call);
    int code = k->done ? k->code : BUS_ERR__TIMED_OUT;
    if (wire_is_passing(code))
        wire_net_coordinator_stale(c->h.net, WIRE_GROUP, c->name);
    return code;
}

int wire_offsets_commit(wire_consumer *c, const bus_places *list, int timeout_ms)
{
    if (!c->name)
        return BUS_ERR__STATE;
    if (!list->n)
        return 0;
    int64_t until = pst_mono_us() + timeout_ms * 1000LL;
    if (c->member && !wire_group_has(c)) /* of an empty group the coordinator would take it, as from somebody who is in none */
        return wire_group_commit_code(c, BUS_ERR_UNKNOWN_MEMBER_ID);
    bus_group *as = wire_group_now(c);
    committing k = {.group = c->name, .as = as, .list = list};
    int code;
    for (;;) {
        code = commit_once(c, &k, until);
        bool again = wire_is_passing(code) || code == BUS_ERR__WAIT_COORD;
        if (!again || pst_mono_us() >= until || pst_stop_forced() || wire_net_fatal(c->h.net, NULL, 0))
            break;
        if (code != BUS_ERR__WAIT_COORD)
            step_back(c, until);
    }
    wire_consumer_ops.group_free(as);
    return wire_group_commit_code(c, code);
}
