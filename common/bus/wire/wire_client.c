/* wire_client.c - the table of what this client brings.
 *
 * Its administration is librdkafka's, on handles of librdkafka's own, which these common operations must never see: whoever asks about the cluster opens a
 * client for it (bus_admin.c), and takes that one's table with it. */
#include "common/bus/wire/wire.h"
#include "common/bus/wire/wire_conf.h"

const bus_client pst_wire_client = {
    .name = "wire",
    .conf = &wire_conf_ops,
    .common = &wire_common_ops,
    .consumer = &wire_consumer_ops,
    .producer = &wire_producer_ops,
};
