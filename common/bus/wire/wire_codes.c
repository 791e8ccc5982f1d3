/* wire_codes.c - see wire_codes.h. One list for questions and for Produce, which adds its own to it. */
#include "common/bus/wire/wire_codes.h"

bool wire_is_passing(int code)
{
    switch (code) {
    case BUS_ERR__TRANSPORT:
    case BUS_ERR__TIMED_OUT:
    case BUS_ERR__WAIT_CACHE:
    case BUS_ERR_UNKNOWN_TOPIC_OR_PART: /* a broker that has just become its leader */
    case BUS_ERR_LEADER_NOT_AVAILABLE:
    case BUS_ERR_NOT_LEADER_FOR_PARTITION:
    case BUS_ERR_REQUEST_TIMED_OUT:
    case BUS_ERR_BROKER_NOT_AVAILABLE:
    case BUS_ERR_REPLICA_NOT_AVAILABLE:
    case BUS_ERR_NETWORK_EXCEPTION:
    case BUS_ERR_COORDINATOR_LOAD_IN_PROGRESS:
    case BUS_ERR_COORDINATOR_NOT_AVAILABLE:
    case BUS_ERR_NOT_COORDINATOR:
    case BUS_ERR_KAFKA_STORAGE_ERROR:
    case WIRE_ERR_FENCED_LEADER_EPOCH:
    case WIRE_ERR_UNKNOWN_LEADER_EPOCH:
    case WIRE_ERR_OFFSET_NOT_AVAILABLE: return true;
    default: return false;
    }
}
