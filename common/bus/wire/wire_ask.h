/* wire_ask.h - questions about offsets: ListOffsets and OffsetFetch as objects that are asked and call back, and the questions of bus_common_ops, which turn
 * the net until they are answered. */
#ifndef PST_WIRE_ASK_H
#define PST_WIRE_ASK_H

#include "common/bus/wire/wire.h"
#include "common/bus/wire/wire_codes.h"

/* Of one broker (ListOffsets) or a group's coordinator (OffsetFetch), about any number of partitions. */
typedef struct wire_ask wire_ask;
typedef struct wire_asked_place { /* topic borrowed: for as long as the ask lives */
    const char *topic;
    int32_t partition;
    int64_t offset; /* asked: a time, PST_OFFSET_BEGINNING, PST_OFFSET_END; answered: the offset, -1 = none */
    int code;       /* BUS_ERR__WAIT_CACHE = not answered */
    char *note;     /* of OffsetFetch; the ask's */
    void *arg;      /* the asker's */
} wire_asked_place;

struct wire_ask {
    wire_net *net;
    wire_call *call;
    const char *group; /* NULL = ListOffsets */
    bool read_uncommitted;
    wire_asked_place *at; /* asked one topic after the other, best in order of topics */
    size_t n, cap;
    int code; /* of the whole; 0 = look at each */
    bool done;
    void (*answered)(void *owner, wire_ask *ask);
    void *owner;
};

wire_ask *wire_ask_new(const wire_handle *h, const char *group, void (*answered)(void *owner, wire_ask *ask), void *owner);
wire_asked_place *wire_ask_add(wire_ask *ask, const char *topic, int32_t partition, int64_t offset, void *arg);
void wire_ask_send(wire_ask *ask, int32_t node, int timeout_ms);
void wire_ask_free(wire_ask *ask); /* also one that is under way; NULL-safe */

/* bus_common_ops */
int wire_ask_topic(wire_handle *h, const char *name, int timeout_ms, bus_topic *ret);
int wire_ask_offsets(wire_handle *h, bus_places *list, int timeout_ms);
int wire_ask_watermarks(wire_handle *h, const char *topic, int32_t partition, int timeout_ms, int64_t *ret_low, int64_t *ret_high);
int wire_ask_committed(wire_handle *h, bus_places *list, int timeout_ms);
char *wire_ask_cluster_id(wire_handle *h, int timeout_ms);
/* Turns once, serves meanwhile; false = the time is over, or the process is told to stop at once. */
bool wire_ask_turn(wire_handle *h, int64_t until_us);

#endif
