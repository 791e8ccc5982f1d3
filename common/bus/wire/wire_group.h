/* wire_group.h - a consumer as a member of a group: what wire_group.c (events, leaving), wire_group_classic.c (JoinGroup …) and wire_group_next.c (KIP-848) share.
 *
 *     OUT ──JoinGroup──▶ JOINING ──▶ (leader: SHARING) ──SyncGroup──▶ SYNCING ──▶ STABLE ──Heartbeat…──▶ rebalance: OUT again
 *
 * Nothing is joined again before the owner has heard, and answered, what he was to give back. */
#ifndef PST_WIRE_GROUP_H
#define PST_WIRE_GROUP_H

#include "common/bus/wire/wire_consumer.h"
#include "common/bus/wire/wire_share.h"

#define WIRE_GROUP_LANE 2 /* a broker that holds a JoinGroup back reads nothing else of its connection */

typedef enum { WIRE_OUT, WIRE_JOINING, WIRE_SHARING, WIRE_SYNCING, WIRE_STABLE, WIRE_LEFT } wire_group_state;

typedef struct wire_watched { /* a topic that the leader shared out */
    const char *topic;
    int32_t n;
} wire_watched;

struct wire_group {
    wire_consumer *of;
    const char **topics; /* the consumer's names */
    size_t n_topics;
    wire_group_state state;
    bool sticky;  /* cooperative: what stays is not given back */
    bool next;    /* KIP-848 */
    char *member; /* "" = none yet */
    int32_t generation;
    bus_places owned; /* what was told to the owner, or waits to be; topics are the consumer's names */
    int32_t owned_generation;
    /* the membership in which partitions were told */
    bool telling; /* the owner is answering: what he does meanwhile turns the net, and must not join */
    bool told;
    char *told_member;
    int32_t told_generation;
    wire_call *call, *beat;
    int64_t beat_us, not_before_us, watch_us;
    /* the leader's: what JoinGroup's answer told, until it is shared out */
    wire_block *block;
    wire_member *members;
    size_t n_members;
    bool leads, skips;
    char *protocol;
    int64_t sharing_us;
    wire_watched *watched;
    size_t n_watched;
    struct wire_told_topic { /* an error of a subscribed topic, said now and then */
        int code;
        int64_t said_us;
    } * topic_errors;
    int64_t fault_us; /* when an error of the group was told last */
    int fault_code;
    /* KIP-848 */
    int32_t interval_ms;
    bool acknowledge, whole;
};

/* wire_group.c */
void wire_group_queue(wire_group *g, bus_change change, const bus_places *list, bool incremental);
void wire_group_lose(wire_group *g);          /* what it had is gone already */
void wire_group_forget_member(wire_group *g); /* the broker knows no such member */
void wire_group_rejoin(wire_group *g);        /* a rebalance is due */
void wire_group_back_off(wire_group *g);
void wire_group_failed(wire_group *g, const char *what,
                       int code);                         /* an error of the group's own requests, all that is said of it in one place */
void wire_group_given(wire_group *g, bus_places *target); /* the assignment; empties target */
void wire_places_add(bus_places *list, const char *topic, int32_t partition);
void wire_places_clear(bus_places *list);
bool wire_places_has(const bus_places *list, const char *topic, int32_t partition);

/* wire_group_classic.c */
void wire_classic_work(wire_group *g, int64_t now_us);
void wire_classic_clear(wire_group *g); /* what the leader remembers of the members */
/* LeaveGroup; *ret_done is set when its answer has come */
wire_call *wire_classic_leave(wire_group *g, bool *ret_done);

/* wire_group_next.c */
void wire_next_work(wire_group *g, int64_t now_us);
wire_call *wire_next_leave(wire_group *g, bool for_good, bool *ret_done);

#endif
