/* wire_common.c - what every handle of this client answers to, and its words for codes. A handle is a consumer's or a producer's: it begins with a wire_handle,
 * which knows its ways. */
#include "common/bus/wire/wire_ask.h"

#include <stdio.h>

static int serve(bus_handle *h, int timeout_ms)
{
    return wire_handle_of(h)->life->serve(wire_handle_of(h), timeout_ms);
}

static int fatal(bus_handle *h, char *text, size_t size)
{
    return wire_handle_of(h)->life->fatal(wire_handle_of(h), text, size);
}

static int topic(bus_handle *h, const char *name, int timeout_ms, bus_topic *ret)
{
    return wire_ask_topic(wire_handle_of(h), name, timeout_ms, ret);
}

static int offsets_at(bus_handle *b, bus_places *list, int timeout_ms)
{
    wire_handle *h = wire_handle_of(b);
    return h->life->offsets_at ? h->life->offsets_at(h, list, timeout_ms) : wire_ask_offsets(h, list, timeout_ms);
}

static int watermarks(bus_handle *h, const char *name, int32_t partition, int timeout_ms, int64_t *ret_low, int64_t *ret_high)
{
    return wire_ask_watermarks(wire_handle_of(h), name, partition, timeout_ms, ret_low, ret_high);
}

static int committed(bus_handle *b, bus_places *list, int timeout_ms)
{
    wire_handle *h = wire_handle_of(b);
    return h->life->committed ? h->life->committed(h, list, timeout_ms) : BUS_ERR__STATE;
}

static char *cluster_id(bus_handle *h, int timeout_ms)
{
    return wire_ask_cluster_id(wire_handle_of(h), timeout_ms);
}

static void free_handle(bus_handle *h)
{
    wire_handle_of(h)->life->free(wire_handle_of(h));
}

/* ---- codes -------------------------------------------------------------------------------------------------------------------------------- */

/* In a few words, where the number's name says less than a person needs; else the name itself. */
static const struct {
    int code;
    const char *text;
} texts[] = {
    {0, "success"},
    {BUS_ERR__TRANSPORT, "the connection to a broker broke"},
    {BUS_ERR__RESOLVE, "the broker's name cannot be resolved"},
    {BUS_ERR__MSG_TIMED_OUT, "the record was not acknowledged in time"},
    {BUS_ERR__UNKNOWN_PARTITION, "there is no such partition"},
    {BUS_ERR__UNKNOWN_TOPIC, "there is no such topic"},
    {BUS_ERR__ALL_BROKERS_DOWN, "no broker can be reached"},
    {BUS_ERR__TIMED_OUT, "nobody answered in time"},
    {BUS_ERR__QUEUE_FULL, "the queue is full"},
    {BUS_ERR__SSL, "TLS failed"},
    {BUS_ERR__WAIT_COORD, "the coordinator is not known yet"},
    {BUS_ERR__STATE, "not possible in this state"},
    {BUS_ERR__AUTHENTICATION, "the login was refused"},
    {BUS_ERR__UNSUPPORTED_FEATURE, "the broker does not support what is needed"},
    {BUS_ERR__FATAL, "the client is dead"},
    {BUS_ERR__FENCED, "another instance has taken over"},
    {BUS_ERR__MAX_POLL_EXCEEDED, "max.poll.interval.ms went by without a poll"},
    {BUS_ERR__AUTO_OFFSET_RESET, "no offset to begin at, and auto.offset.reset is error"},
    {BUS_ERR_UNKNOWN_TOPIC_OR_PART, "the broker has no such topic or partition"},
    {BUS_ERR_LEADER_NOT_AVAILABLE, "the partition has no leader"},
    {BUS_ERR_NOT_LEADER_FOR_PARTITION, "the broker does not lead the partition"},
    {BUS_ERR_REQUEST_TIMED_OUT, "the broker's own time for the request is over"},
    {BUS_ERR_MSG_SIZE_TOO_LARGE, "the broker takes no message of this size"},
    {BUS_ERR_COORDINATOR_LOAD_IN_PROGRESS, "the coordinator is loading"},
    {BUS_ERR_COORDINATOR_NOT_AVAILABLE, "the coordinator is not available"},
    {BUS_ERR_NOT_COORDINATOR, "the broker is not the coordinator"},
    {BUS_ERR_ILLEGAL_GENERATION, "the group has gone on to another generation"},
    {BUS_ERR_INCONSISTENT_GROUP_PROTOCOL, "the group's other members share out in another way"},
    {BUS_ERR_UNKNOWN_MEMBER_ID, "the group does not know this member"},
    {BUS_ERR_INVALID_SESSION_TIMEOUT, "the broker does not allow this session.timeout.ms"},
    {BUS_ERR_REBALANCE_IN_PROGRESS, "the group is being rebalanced"},
    {BUS_ERR_TOPIC_AUTHORIZATION_FAILED, "the topic may not be used by this login"},
    {BUS_ERR_GROUP_AUTHORIZATION_FAILED, "the group may not be used by this login"},
    {BUS_ERR_CLUSTER_AUTHORIZATION_FAILED, "the cluster may not be used so by this login"},
    {BUS_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "the transactional id may not be used by this login"},
    {BUS_ERR_SASL_AUTHENTICATION_FAILED, "the login was refused"},
    {BUS_ERR_FENCED_INSTANCE_ID, "another member has joined with the same group.instance.id"},
    {BUS_ERR_UNSTABLE_OFFSET_COMMIT, "offsets are pending in an open transaction"},
    {BUS_ERR_PRODUCER_FENCED, "another producer with this transactional id has taken over"},
};

static const char *code_name(int code)
{
    switch (code) {
#define X(name, number) \
    case number: return #name;
        BUS_CODES(X)
#undef X
    case 0: return "NO_ERROR";
    default: return "UNLISTED";
    }
}

static const char *code_text(int code)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code)
            return texts[i].text;
    return code_name(code);
}

const bus_common_ops wire_common_ops = {
    .serve = serve,
    .fatal = fatal,
    .topic = topic,
    .offsets_at = offsets_at,
    .watermarks = watermarks,
    .committed = committed,
    .cluster_id = cluster_id,
    .free = free_handle,
    .code_text = code_text,
    .code_name = code_name,
};
