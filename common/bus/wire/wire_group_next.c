/* wire_group_next.c - the consumer rebalance protocol of KIP-848: ConsumerGroupHeartbeat (versions 0, 1), Kafka 4.0 and newer.
 *
 * The coordinator shares out and tells each member what it should have; the member says what it has. One heartbeat carries both. What is to be given back is
 * given back first, when the owner has heard of it, and acknowledged; then the coordinator gives it to others. The member's id is made here (KIP-1082), its epoch
 * is what offsets are committed under. A static member that restarts says so by epoch -2, and keeps its place. */
#include "common/bus/wire/wire_group.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"

#include <stdlib.h>
#include <string.h>

#define LANE      0 /* nothing is held back in this protocol */
#define ANSWER_MS 30000

enum { UNRELEASED_INSTANCE_ID = 111, UNSUPPORTED_ASSIGNOR = 112 };

static const wire_api beat_api = {.key = 68, .min = 0, .max = 1, .flexible = 0, .name = "ConsumerGroupHeartbeat"};

/* 128 random bits as Kafka writes ids: 22 characters of base64url. */
static char *new_member_id(void)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t random[22];
    char *id = pst_alloc(sizeof random + 1);
    pst_random(random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        id[i] = digits[random[i] & 63];
    return id;
}

/* ---- the request -------------------------------------------------------------------------------------------------------------------------- */

static void put_owned(const wire_group *g, wire_out *o)
{
    size_t topics = 0;
    for (size_t t = 0; t < g->n_topics; t++)
        topics += wire_net_topic(g->of->h.net, g->topics[t]) != NULL;
    wire_put_count(o, topics);
    for (size_t t = 0; t < g->n_topics; t++) {
        const wire_topic *topic = wire_net_topic(g->of->h.net, g->topics[t]);
        size_t n = 0;
        if (!topic)
            continue;
        for (size_t i = 0; i < g->owned.n; i++)
            n += !strcmp(g->owned.at[i].topic, g->topics[t]);
        wire_put_uuid(o, topic->id);
        wire_put_count(o, n);
        for (size_t i = 0; i < g->owned.n; i++)
            if (!strcmp(g->owned.at[i].topic, g->topics[t]))
                wire_put_i32(o, g->owned.at[i].partition);
        wire_put_tags(o);
    }
}

static void put_null_array(wire_out *o)
{
    wire_put_uvarint(o, 0);
}

/* What did not change is left out, but where the coordinator knows nothing yet, or may have missed it. */
static void put_beat(void *owner, wire_call *call, int16_t version, wire_out *o)
{
    wire_group *g = owner;
    wire_consumer *c = g->of;
    bool all = g->whole || g->generation <= 0;
    wire_put_str(o, c->name);
    wire_put_str(o, g->member);
    wire_put_i32(o, g->generation < 0 ? 0 : g->generation);
    wire_put_str(o, c->instance);
    wire_put_str(o, all ? c->conf->rack : NULL);
    wire_put_i32(o, all ? c->conf->poll_interval_ms : -1);
    if (all) {
        wire_put_count(o, g->n_topics);
        for (size_t i = 0; i < g->n_topics; i++)
            wire_put_str(o, g->topics[i]);
    } else {
        put_null_array(o);
    }
    if (version >= 1)
        wire_put_str(o, NULL); /* topics by a pattern */
    wire_put_str(o, all ? c->conf->remote_assignor : NULL);
    /* What is to be given back is ours until the owner has heard of it: so nothing is said of partitions while news wait for him. */
    bool may_say = !c->events && !g->telling, says = all || g->acknowledge;
    if (g->generation <= 0)
        wire_put_count(o, 0); /* it joins: with nothing */
    else if (says && may_say)
        put_owned(g, o);
    else
        put_null_array(o);
    wire_put_tags(o);
    g->acknowledge = says && !may_say && g->generation > 0;
    g->whole = false;
}

/* ---- the answer ------------------------------------------------------------------------------------------------------------------------------ */

/* An id that is not known yet is no topic of ours, or metadata has not come: then the assignment is not complete. */
static bool get_target(wire_group *g, wire_in *in, bus_places *target)
{
    bool complete = true;
    size_t topics = wire_get_count(in, 18, NULL);
    for (size_t t = 0; t < topics && !in->bad; t++) {
        uint8_t id[16];
        wire_get_uuid(in, id);
        const wire_topic *topic = in->bad ? NULL : wire_net_topic_by_id(g->of->h.net, id);
        const char *name = topic ? wire_topic_name(g->of, topic->name, strlen(topic->name)) : NULL;
        size_t n = wire_get_count(in, 4, NULL);
        for (size_t i = 0; i < n && !in->bad; i++) {
            int32_t partition = wire_get_i32(in);
            if (name && !in->bad && !wire_places_has(target, name, partition))
                wire_places_add(target, name, partition);
        }
        wire_get_tags(in);
        complete = complete && name;
    }
    return complete;
}

static int get_beat(wire_group *g, const wire_answer *a)
{
    wire_in in = a->body;
    wire_get_i32(&in); /* throttled */
    int code = wire_get_i16(&in);
    wire_get_str(&in); /* its words */
    wire_str member = wire_get_str(&in);
    int32_t epoch = wire_get_i32(&in);
    int32_t interval = wire_get_i32(&in);
    int8_t has = wire_get_i8(&in);
    bus_places target = {0};
    bool complete = true;
    if (!in.bad && !code && has >= 0) {
        complete = get_target(g, &in, &target);
        wire_get_tags(&in);
    }
    wire_get_tags(&in);
    if (in.bad || code) {
        wire_places_clear(&target);
        return in.bad ? BUS_ERR__TRANSPORT : code;
    }
    if (member.at && !wire_str_is(member, g->member)) {
        free(g->member);
        g->member = wire_str_dup(member);
    }
    if (interval > 0)
        g->interval_ms = interval;
    bool moved = epoch != g->generation;
    g->generation = epoch;
    g->state = WIRE_STABLE;
    g->fault_code = 0;
    if (!complete) { /* told again, when the topics are known */
        for (size_t i = 0; i < g->n_topics; i++)
            wire_net_stale(g->of->h.net, g->topics[i]);
        g->whole = true;
        g->beat_us = pst_mono_us() + g->of->conf->retry_backoff_ms * 1000LL;
        wire_places_clear(&target);
    } else if (has >= 0) {
        g->acknowledge = true;
        wire_group_given(g, &target);
    } else if (moved) {
        const bus_places nothing = {0}; /* the same, under a new epoch */
        wire_group_queue(g, BUS_ASSIGNED, &nothing, true);
    }
    return 0;
}

static void on_beat(void *owner, wire_call *call, const wire_answer *a)
{
    wire_group *g = owner;
    wire_consumer *c = g->of;
    g->beat = NULL;
    if (g->state == WIRE_LEFT)
        return;
    g->beat_us = pst_mono_us() + (g->interval_ms > 0 ? g->interval_ms : c->conf->heartbeat_ms) * 1000LL;
    int code = a->code ? a->code : get_beat(g, a);
    if (!code)
        return;
    g->whole = true; /* it may have missed what was said */
    if (code == BUS_ERR__UNSUPPORTED_FEATURE || code == BUS_ERR_UNSUPPORTED_VERSION) {
        wire_group_lose(g);
        g->state = WIRE_LEFT;
        wire_consumer_die(
            c, BUS_ERR__UNSUPPORTED_FEATURE,
            "group %.100s: the brokers do not speak group.protocol=consumer (Kafka 4.0 and newer do): set group.protocol=classic", c->name);
        return;
    }
    g->beat_us = pst_mono_us() + c->conf->retry_backoff_ms * 1000LL;
    wire_group_failed(g, "ConsumerGroupHeartbeat", code);
    if (code == UNRELEASED_INSTANCE_ID) /* its predecessor still has it, until its session is over */
        g->beat_us = pst_mono_us() + 1000000;
}

static void beat(wire_group *g, int64_t now)
{
    wire_consumer *c = g->of;
    int refused = 0;
    int32_t node = wire_net_coordinator(c->h.net, WIRE_GROUP, c->name, &refused);
    if (node < 0) {
        if (refused) {
            wire_group_failed(g, "FindCoordinator", refused);
            g->beat_us = g->not_before_us;
        }
        return;
    }
    g->beat = wire_net_call(c->h.net, node, &beat_api, ANSWER_MS, put_beat, on_beat, g);
    wire_call_lane(g->beat, LANE);
}

void wire_next_work(wire_group *g, int64_t now)
{
    if (!*g->member) {
        free(g->member);
        g->member = new_member_id();
        g->whole = true;
    }
    bool speaks = now >= g->beat_us || (g->acknowledge && !g->of->events && !g->telling);
    if (!g->beat && speaks && now >= g->not_before_us)
        beat(g, now);
}

/* ---- leaving ---------------------------------------------------------------------------------------------------------------------------------- */

typedef struct leaving {
    wire_group *g;
    bool *done;
    int32_t epoch;
} leaving;

static void put_leave(void *owner, wire_call *call, int16_t version, wire_out *o)
{
    const leaving *l = owner;
    wire_put_str(o, l->g->of->name);
    wire_put_str(o, l->g->member);
    wire_put_i32(o, l->epoch);
    wire_put_str(o, l->g->of->instance);
    wire_put_str(o, NULL);
    wire_put_i32(o, -1);
    put_null_array(o);
    if (version >= 1)
        wire_put_str(o, NULL);
    wire_put_str(o, NULL);
    put_null_array(o);
    wire_put_tags(o);
}

static void on_left(void *owner, wire_call *call, const wire_answer *a)
{
    const leaving *l = owner;
    *l->done = true;
}

/* Its owner waits, so that `leaving` may lie here. */
wire_call *wire_next_leave(wire_group *g, bool for_good, bool *ret_done)
{
    static _Thread_local leaving l;
    l = (leaving){.g = g, .done = ret_done, .epoch = g->of->instance && !for_good ? -2 : -1};
    int32_t node = wire_net_coordinator(g->of->h.net, WIRE_GROUP, g->of->name, NULL);
    return node < 0 || g->generation <= 0 ? NULL : wire_net_call(g->of->h.net, node, &beat_api, ANSWER_MS, put_leave, on_left, &l);
}
