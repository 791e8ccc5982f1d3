/* wire.h - our own client behind bus_client.h: what the files of common/bus/wire share. It serves the scorer's data path; librdkafka stays the client of
 * every other component and the oracle of this one (its administration is librdkafka's, too).
 *
 *     wire_bytes, wire_block, wire_batch, wire_pack, wire_crc32c    bytes: pure
 *     wire_conf, wire_net, wire_conn, wire_tls, wire_sasl, wire_meta   connections, and who is where
 *     wire_consumer, wire_fetch, wire_offsets, wire_group(_classic, _848)   reading in order, the group
 *     wire_producer, wire_produce, wire_txn                          sending in order, transactions
 *     wire_client.c                                                  the table of what it brings (bus_client.h)
 *
 * Requests are written and read beside those who use them: each says its versions, and the KIP that they come from. README.md in this folder lists them. */
#ifndef PST_BUS_WIRE_H
#define PST_BUS_WIRE_H

#include "common/bus/bus_client.h"

extern const bus_client pst_wire_client;

#endif
