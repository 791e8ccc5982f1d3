/* wire_group_classic.c - the classic group protocol: JoinGroup (versions 5 to 9), SyncGroup (3 to 5), Heartbeat (3, 4), LeaveGroup (3 to 5).
 *
 * Static membership is KIP-345, the id that a coordinator gives before it counts a member KIP-394, what a leader may skip KIP-814, the reason of a leave
 * KIP-800. The leader shares out by wire_share.c once it knows how many partitions there are, looks at that number again each second, and joins anew where
 * it has changed: so a topic that grows, or comes into being, is shared out without anybody being asked. */
#include "common/bus/wire/wire_group.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_MS   30000
#define KNOWN_US    (5 * 1000000LL) /* a topic of which nothing is heard for so long is shared out without */
#define WATCH_US    1000000
#define GRACE_MS    5000 /* a JoinGroup is answered within max.poll.interval.ms, and this */
#define MEMBERS_MAX 10000

enum { MEMBER_ID_REQUIRED = 79 };

static const wire_api join_api = {.key = 11, .min = 5, .max = 9, .flexible = 6, .name = "JoinGroup"};
static const wire_api sync_api = {.key = 14, .min = 3, .max = 5, .flexible = 4, .name = "SyncGroup"};
static const wire_api beat_api = {.key = 12, .min = 3, .max = 4, .flexible = 4, .name = "Heartbeat"};
static const wire_api leave_api = {.key = 13, .min = 3, .max = 5, .flexible = 4, .name = "LeaveGroup"};

static const char *strategy(const wire_group *g)
{
    return g->sticky ? "cooperative-sticky" : "range";
}

void wire_classic_clear(wire_group *g)
{
    for (size_t i = 0; i < g->n_members; i++)
        wire_member_done(&g->members[i]);
    free(g->members);
    g->members = NULL;
    g->n_members = 0;
    wire_block_drop(g->block);
    g->block = NULL;
}

/* ---- SyncGroup ---------------------------------------------------------------------------------------------------------------------------- */

static void put_sync(void *owner, wire_call *call, int16_t version, wire_out *o)
{
    wire_group *g = owner;
    wire_put_str(o, g->of->name);
    wire_put_i32(o, g->generation);
    wire_put_str(o, g->member);
    wire_put_str(o, g->of->instance);
    if (version >= 5) {
        wire_put_str(o, "consumer");
        wire_put_str(o, g->protocol);
    }
    bool shares = g->leads && !g->skips;
    wire_put_count(o, shares ? g->n_members : 0);
    for (size_t i = 0; shares && i < g->n_members; i++) {
        pst_buf bytes = {0};
        char *id = wire_str_dup(g->members[i].id);
        wire_assignment_put(&bytes, g->members[i].share, g->members[i].n_share);
        wire_put_str(o, id ? id : "");
        wire_put_blob(o, bytes.data, bytes.len);
        wire_put_tags(o);
        free(id);
        pst_buf_done(&bytes);
    }
    wire_put_tags(o);
}

typedef struct given {
    wire_group *g;
    bus_places target;
} given;

static void add_given(void *arg, wire_str topic, int32_t partition)
{
    given *x = arg;
    const char *name = wire_topic_name(x->g->of, topic.at, topic.len);
    if (!wire_places_has(&x->target, name, partition))
        wire_places_add(&x->target, name, partition);
}

static void on_sync(void *owner, wire_call *call, const wire_answer *a)
{
    wire_group *g = owner;
    wire_in in = a->body;
    g->call = NULL;
    wire_classic_clear(g);
    if (g->state == WIRE_LEFT)
        return;
    int code = a->code;
    wire_str share = {0};
    if (!code) {
        wire_get_i32(&in); /* throttled */
        code = wire_get_i16(&in);
        if (a->version >= 5) {
            wire_get_str(&in);
            wire_get_str(&in);
        }
        share = wire_get_blob(&in);
        wire_get_tags(&in);
        if (in.bad)
            code = BUS_ERR__TRANSPORT;
    }
    given x = {.g = g};
    if (!code && wire_assignment_read((const uint8_t *)share.at, share.len, add_given, &x) < 0)
        code = BUS_ERR__TRANSPORT;
    if (code) {
        wire_places_clear(&x.target);
        g->state = WIRE_OUT;
        wire_group_failed(g, "SyncGroup", code);
        return;
    }
    g->state = WIRE_STABLE;
    g->beat_us = pst_mono_us() + g->of->conf->heartbeat_ms * 1000LL;
    g->fault_code = 0;
    wire_group_given(g, &x.target);
}

static void sync_group(wire_group *g)
{
    int32_t node = wire_net_coordinator(g->of->h.net, WIRE_GROUP, g->of->name, NULL);
    if (node < 0)
        return;
    g->state = WIRE_SYNCING;
    g->call = wire_net_call(g->of->h.net, node, &sync_api, g->of->conf->poll_interval_ms + GRACE_MS, put_sync, on_sync, g);
    wire_call_lane(g->call, WIRE_GROUP_LANE);
}

/* ---- sharing out ----------------------------------------------------------------------------------------------------------------------------- */

static void watch(wire_group *g, wire_str topic)
{
    const char *name = wire_topic_name(g->of, topic.at, topic.len);
    for (size_t i = 0; i < g->n_watched; i++)
        if (g->watched[i].topic == name)
            return;
    g->watched = pst_array_one_more(g->watched, g->n_watched, sizeof *g->watched);
    g->watched[g->n_watched++] = (wire_watched){.topic = name};
}

static int32_t partitions_now(wire_group *g, const char *topic, bool *ret_known)
{
    const wire_topic *t = wire_net_topic(g->of->h.net, topic);
    *ret_known = t != NULL && (!t->code || t->code == BUS_ERR_UNKNOWN_TOPIC_OR_PART || t->code == BUS_ERR_TOPIC_AUTHORIZATION_FAILED);
    return t && !t->code ? t->n : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const wire_watched *)a)->topic, ((const wire_watched *)b)->topic);
}

/* What a leader is told to skip was shared out before: it only watches (KIP-814). */
static void share_out(wire_group *g)
{
    wire_counted *topics = pst_alloc((g->n_watched + 1) * sizeof *topics);
    if (g->n_watched > 1)
        qsort(g->watched, g->n_watched, sizeof *g->watched, by_name);
    for (size_t i = 0; i < g->n_watched; i++) {
        bool known;
        g->watched[i].n = partitions_now(g, g->watched[i].topic, &known);
        topics[i] = (wire_counted){.topic = {g->watched[i].topic, strlen(g->watched[i].topic)}, .n = g->watched[i].n};
    }
    if (g->skips)
        ;
    else if (g->sticky)
        wire_share_sticky(g->members, g->n_members, topics, g->n_watched);
    else
        wire_share_range(g->members, g->n_members, topics, g->n_watched);
    free(topics);
}

/* All topics are known, or it has taken too long. */
static bool may_share(wire_group *g, int64_t now)
{
    bool all = true;
    for (size_t i = 0; i < g->n_watched; i++) {
        bool known;
        partitions_now(g, g->watched[i].topic, &known);
        all = all && known;
    }
    return all || now - g->sharing_us > KNOWN_US;
}

static void check_growth(wire_group *g, int64_t now)
{
    for (size_t i = 0; i < g->n_watched; i++) {
        bool known;
        int32_t n = partitions_now(g, g->watched[i].topic, &known);
        if (!known || n == g->watched[i].n)
            continue;
        pst_log(PST_LOG_INFO, "bus", "event=topic_changed group=%s topic=%s partitions=%d were=%d", g->of->name, g->watched[i].topic, n,
                g->watched[i].n);
        g->watched[i].n = n;
        wire_group_rejoin(g);
        return;
    }
}

/* ---- JoinGroup --------------------------------------------------------------------------------------------------------------------------------- */

static void put_join(void *owner, wire_call *call, int16_t version, wire_out *o)
{
    wire_group *g = owner;
    wire_consumer *c = g->of;
    wire_tp *owned = pst_alloc((g->owned.n + 1) * sizeof *owned);
    for (size_t i = 0; i < g->owned.n; i++)
        owned[i] = (wire_tp){{g->owned.at[i].topic, strlen(g->owned.at[i].topic)}, g->owned.at[i].partition};
    pst_buf bytes = {0};
    wire_subscription_put(&bytes, g->topics, g->n_topics, owned, g->owned.n, g->owned.n ? g->owned_generation : -1);
    wire_put_str(o, c->name);
    wire_put_i32(o, c->conf->session_timeout_ms);
    wire_put_i32(o, c->conf->poll_interval_ms);
    wire_put_str(o, g->member);
    wire_put_str(o, c->instance);
    wire_put_str(o, "consumer");
    wire_put_count(o, 1);
    wire_put_str(o, strategy(g));
    wire_put_blob(o, bytes.data, bytes.len);
    wire_put_tags(o);
    if (version >= 8)
        wire_put_str(o, NULL); /* why */
    wire_put_tags(o);
    pst_buf_done(&bytes);
    free(owned);
}

static void get_members(wire_group *g, wire_in *in)
{
    size_t n = wire_get_count(in, 5, NULL);
    if (n > MEMBERS_MAX)
        in->bad = true;
    if (in->bad)
        return;
    g->members = n ? pst_alloc(n * sizeof *g->members) : NULL;
    for (size_t i = 0; i < n && !in->bad; i++) {
        wire_member *m = &g->members[g->n_members];
        m->id = wire_get_str(in);
        m->instance = wire_get_str(in);
        wire_str about = wire_get_blob(in);
        wire_get_tags(in);
        if (in->bad)
            return;
        g->n_members++;
        if (wire_member_read(m, (const uint8_t *)about.at, about.len) < 0)
            pst_log(PST_LOG_WARN, "bus", "event=member_unread group=%s why=\"its subscription is broken: it is given nothing\"",
                    g->of->name);
    }
}

static void take_member_id(wire_group *g, wire_str id)
{
    char *member = wire_str_dup(id);
    free(g->member);
    g->member = member ? member : pst_strdup("");
}

static int get_join(wire_group *g, const wire_answer *a)
{
    wire_in in = a->body;
    wire_get_i32(&in); /* throttled */
    int code = wire_get_i16(&in);
    int32_t generation = wire_get_i32(&in);
    if (a->version >= 7)
        wire_get_str(&in); /* "consumer" */
    char *protocol = wire_str_dup(wire_get_str(&in));
    wire_str leader = wire_get_str(&in);
    bool skips = a->version >= 9 ? wire_get_bool(&in) : false;
    wire_str id = wire_get_str(&in);
    if (!in.bad && (!code || code == MEMBER_ID_REQUIRED))
        take_member_id(g, id);
    if (in.bad || code) {
        free(protocol);
        return in.bad ? BUS_ERR__TRANSPORT : code;
    }
    get_members(g, &in);
    wire_get_tags(&in);
    free(g->protocol);
    g->protocol = protocol;
    g->generation = generation;
    g->leads = leader.at && id.at && leader.len == id.len && !memcmp(leader.at, id.at, id.len);
    g->skips = skips;
    g->n_watched = 0;
    return in.bad ? BUS_ERR__TRANSPORT : 0;
}

static void on_join(void *owner, wire_call *call, const wire_answer *a)
{
    wire_group *g = owner;
    g->call = NULL;
    if (g->state == WIRE_LEFT)
        return;
    wire_classic_clear(g);
    int code = a->code ? a->code : get_join(g, a);
    if (code == MEMBER_ID_REQUIRED) {
        g->state = WIRE_OUT; /* again, with the id that it was given now */
        return;
    }
    if (code) {
        wire_classic_clear(g);
        g->state = WIRE_OUT;
        wire_group_failed(g, "JoinGroup", code);
        return;
    }
    pst_log(PST_LOG_DEBUG, "kafka", "event=joined group=%s member=%s generation=%d leads=%d members=%zu", g->of->name, g->member,
            g->generation, g->leads, g->n_members);
    g->block = wire_block_use(a->block);
    for (size_t i = 0; i < g->n_members; i++)
        for (size_t t = 0; t < g->members[i].n_topics; t++)
            watch(g, g->members[i].topics[t]);
    g->state = WIRE_SHARING;
    g->sharing_us = pst_mono_us();
}

static void join(wire_group *g)
{
    wire_consumer *c = g->of;
    int refused = 0;
    int32_t node = wire_net_coordinator(c->h.net, WIRE_GROUP, c->name, &refused);
    if (node < 0) {
        if (refused)
            wire_group_failed(g, "FindCoordinator", refused);
        return;
    }
    g->state = WIRE_JOINING;
    g->call = wire_net_call(c->h.net, node, &join_api, c->conf->poll_interval_ms + GRACE_MS, put_join, on_join, g);
    wire_call_lane(g->call, WIRE_GROUP_LANE);
}

/* ---- Heartbeat ---------------------------------------------------------------------------------------------------------------------------------- */

static void put_beat(void *owner, wire_call *call, int16_t version, wire_out *o)
{
    const wire_group *g = owner;
    wire_put_str(o, g->of->name);
    wire_put_i32(o, g->generation);
    wire_put_str(o, g->member);
    wire_put_str(o, g->of->instance);
    wire_put_tags(o);
}

/* In STABLE it may be told that a rebalance is due; while something waits to be given back it is told so again. */
static void on_beat(void *owner, wire_call *call, const wire_answer *a)
{
    wire_group *g = owner;
    g->beat = NULL;
    if (g->state == WIRE_LEFT)
        return;
    wire_in in = a->body;
    int code = a->code;
    if (!code) {
        wire_get_i32(&in);
        code = wire_get_i16(&in);
        if (in.bad)
            code = BUS_ERR__TRANSPORT;
    }
    if (!code)
        return;
    if (g->state == WIRE_STABLE || (g->state == WIRE_OUT && code != BUS_ERR_REBALANCE_IN_PROGRESS && !g->call))
        wire_group_failed(g, "Heartbeat", code);
}

static void beat(wire_group *g, int64_t now)
{
    wire_consumer *c = g->of;
    int32_t node = wire_net_coordinator(c->h.net, WIRE_GROUP, c->name, NULL);
    if (node < 0)
        return;
    g->beat_us = now + c->conf->heartbeat_ms * 1000LL;
    g->beat = wire_net_call(c->h.net, node, &beat_api, c->conf->session_timeout_ms, put_beat, on_beat, g);
    wire_call_lane(g->beat, WIRE_GROUP_LANE);
}

/* ---- LeaveGroup ------------------------------------------------------------------------------------------------------------------------------------ */

typedef struct leaving {
    wire_group *g;
    bool *done;
} leaving;

static void put_leave(void *owner, wire_call *call, int16_t version, wire_out *o)
{
    const leaving *l = owner;
    wire_put_str(o, l->g->of->name);
    wire_put_count(o, 1);
    wire_put_str(o, l->g->member);
    wire_put_str(o, l->g->of->instance);
    if (version >= 5)
        wire_put_str(o, NULL);
    wire_put_tags(o);
    wire_put_tags(o);
}

static void on_left(void *owner, wire_call *call, const wire_answer *a)
{
    leaving *l = owner;
    *l->done = true;
}

/* On the connection of commits: the group's own may be held back by a join. Its owner waits, so that `leaving` may lie here. */
wire_call *wire_classic_leave(wire_group *g, bool *ret_done)
{
    static _Thread_local leaving l;
    l = (leaving){.g = g, .done = ret_done};
    int32_t node = wire_net_coordinator(g->of->h.net, WIRE_GROUP, g->of->name, NULL);
    return node < 0 ? NULL : wire_net_call(g->of->h.net, node, &leave_api, ANSWER_MS, put_leave, on_left, &l);
}

/* ---- work ---------------------------------------------------------------------------------------------------------------------------------------------- */

void wire_classic_work(wire_group *g, int64_t now)
{
    wire_consumer *c = g->of;
    bool is_member = g->generation >= 0 && *g->member && g->state != WIRE_JOINING && g->state != WIRE_SYNCING;
    if (is_member && !g->beat && now >= g->beat_us)
        beat(g, now);
    if (g->state == WIRE_OUT && !g->call && !c->events && !g->telling && now >= g->not_before_us)
        join(g);
    if (g->state == WIRE_SHARING && !g->leads) {
        sync_group(g);
    } else if (g->state == WIRE_SHARING && may_share(g, now)) {
        share_out(g);
        sync_group(g);
    } else if (g->state == WIRE_STABLE && g->leads && now - g->sharing_us >= WATCH_US) {
        g->sharing_us = now;
        check_growth(g, now);
    }
}
