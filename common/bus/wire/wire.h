/* wire.h - our own client behind bus_client.h: what the files of common/bus/wire share. It serves the scorer's data path; librdkafka stays the client of
 * every other component and the oracle of this one (its administration is librdkafka's, too).
 *
 *     wire_bytes, wire_block, wire_batch, wire_build, wire_pack      bytes: pure
 *     wire_conf, wire_net, wire_conn, wire_tls, wire_sasl, wire_meta   connections, and who is where
 *     wire_consumer, wire_fetch, wire_offsets, wire_group(_classic, _848)   reading in order, the group
 *     wire_producer, wire_produce, wire_txn                          sending in order, transactions
 *     wire_client.c                                                  the table of what it brings (bus_client.h)
 *
 * Requests are written and read beside those who use them: each says its versions, and the KIP that they come from. README.md in this folder lists them. */
#ifndef PST_BUS_WIRE_H
#define PST_BUS_WIRE_H

#include "common/bus/bus_client.h"
#include "common/bus/wire/wire_net.h"

extern const bus_client pst_wire_client;
extern const bus_common_ops wire_common_ops;
extern const bus_consumer_ops wire_consumer_ops;
extern const bus_producer_ops wire_producer_ops;

/* ---- what every handle begins with --------------------------------------------------------------------------------------------- */

typedef struct wire_handle wire_handle;

/* What a consumer and a producer do each in their way; the rest of bus_common_ops needs the net alone and is wire_ask.c's. */
typedef struct wire_life {
    int (*serve)(wire_handle *h, int timeout_ms);
    int (*fatal)(wire_handle *h, char *text, size_t size);
    void (*free)(wire_handle *h); /* all of it, the net too */
    /* While a question is waited for on the owner's thread: the group is served, what is due is sent; nothing is told. NULL = nothing is due. */
    void (*work)(wire_handle *h);
    int (*offsets_at)(wire_handle *h, bus_places *list,
                      int timeout_ms); /* NULL = wire_ask_offsets(); a consumer is asked from other threads, too */
    int (*committed)(wire_handle *h, bus_places *list, int timeout_ms); /* NULL = it has no group */
} wire_life;

struct wire_handle { /* the first member of a consumer and of a producer: their bus_handle * is one of these */
    const wire_life *life;
    wire_net *net;
    bus_listener to;
    const struct wire_conf *conf;
    const char *group;     /* whose committed offsets are asked for; NULL = none */
    bool read_uncommitted; /* how far "the end" is */
};

static inline wire_handle *wire_handle_of(bus_handle *h)
{
    return (wire_handle *)h;
}

/* ---- a membership, as transactions send it --------------------------------------------------------------------------------------- */

struct bus_group { /* one that never joined: generation -1, member "" */
    char *group, *member;
    char *instance;     /* NULL = not static */
    int32_t generation; /* KIP-848: the member's epoch */
};

#endif
