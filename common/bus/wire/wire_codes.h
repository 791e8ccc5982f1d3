/* wire_codes.h - numbers of Kafka's errors that only this client meets (bus_client.h has those that the bus knows), and which of all pass by themselves. */
#ifndef PST_WIRE_CODES_H
#define PST_WIRE_CODES_H

#include "common/bus/bus_client.h"

enum {
    WIRE_ERR_FENCED_LEADER_EPOCH = 74,
    WIRE_ERR_UNKNOWN_LEADER_EPOCH = 75,
    WIRE_ERR_OFFSET_NOT_AVAILABLE = 78,
    WIRE_ERR_UNKNOWN_TOPIC_ID = 100,
};

/* This may be over soon: leaders and coordinators that move, a broker that is away. */
bool wire_is_passing(int code);

#endif
