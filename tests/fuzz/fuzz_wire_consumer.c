/* fuzz_wire_consumer.c - all that brokers answer to a consumer in a group: JoinGroup, SyncGroup, Heartbeat, OffsetFetch, ListOffsets, Fetch, LeaveGroup, and
 * KIP-848's heartbeat. The first byte says which protocol; then each request that goes out is answered by the next piece: two bytes of length, one of
 * version or failure, and the bytes. Offsets of a partition rise, and nothing is read that is not there. */
#include "common/bus/wire/wire_consumer.h"
#include "common/base/log.h"

#include <stdlib.h>
#include <string.h>

struct wire_call {
    const wire_api *api;
    wire_put_body put;
    wire_on_answer answered;
    void *owner;
    struct wire_call *next;
};

static struct wire_call *calls, **calls_end = &calls;
static const int32_t leaders[] = {1, 1, 2, -1}, epochs[] = {1, 2, 3, 4};
static const wire_topic the_topic = {.name = "t", .id = {9, 9}, .n = 4, .leader = leaders, .leader_epoch = epochs, .known_us = 1};

int wire_net_open(const wire_conf *conf, const bus_listener *to, wire_net **ret, pst_err *err)
{
    *ret = (wire_net *)&calls;
    return 0;
}
void wire_net_free(wire_net *net)
{
}
void wire_net_push(wire_net *net);
void wire_net_push(wire_net *net)
{
}
int wire_net_turn(wire_net *net, int timeout_ms)
{
    return 0;
}
int wire_net_fatal(const wire_net *net, char *text, size_t size)
{
    return 0;
}
const wire_topic *wire_net_topic(wire_net *net, const char *name)
{
    return strcmp(name, "t") ? NULL : &the_topic;
}
const wire_topic *wire_net_topic_by_id(wire_net *net, const uint8_t id[16])
{
    return memcmp(id, the_topic.id, 16) ? NULL : &the_topic;
}
void wire_net_forget_topic(wire_net *net, const char *name)
{
}
int32_t wire_net_leader(wire_net *net, const char *name, int32_t partition)
{
    return partition >= 0 && partition < the_topic.n ? leaders[partition] : -1;
}
void wire_net_stale(wire_net *net, const char *name)
{
}
int32_t wire_net_coordinator(wire_net *net, wire_coordinator_kind kind, const char *key, int *ret_code)
{
    if (ret_code)
        *ret_code = 0;
    return 1;
}
void wire_net_coordinator_stale(wire_net *net, wire_coordinator_kind kind, const char *key)
{
}
int32_t wire_net_any(wire_net *net)
{
    return 1;
}
const char *wire_net_cluster_id(const wire_net *net)
{
    return NULL;
}
int16_t wire_net_version(wire_net *net, int32_t node, const wire_api *api)
{
    return api->max;
}
int wire_net_feature(const wire_net *net, const char *name)
{
    return 0;
}
wire_call *wire_net_call(wire_net *net, int32_t node, const wire_api *api, int timeout_ms, wire_put_body put, wire_on_answer answered,
                         void *owner)
{
    struct wire_call *c = pst_alloc(sizeof *c);
    *c = (struct wire_call){.api = api, .put = put, .answered = answered, .owner = owner};
    *calls_end = c;
    calls_end = &c->next;
    return c;
}
void wire_call_forget(wire_call *call)
{
    call->answered = NULL;
}
void wire_call_throttled(const wire_call *call, int32_t ms)
{
}
void *wire_call_owner(const wire_call *call)
{
    return call->owner;
}
void wire_call_lane(wire_call *call, int lane)
{
}
void wire_call_splice(wire_call *call, wire_block *block)
{
}

/* ---- one run -------------------------------------------------------------------------------------------------------------------------- */

static bus_handle *the_consumer;

static void on_fault(void *owner, int code, const char *reason)
{
}

static void on_rebalance(void *owner, bus_change change, bus_places *list, bool incremental)
{
    char why[200];
    if (change == BUS_ASSIGNED && incremental)
        wire_consumer_ops.assign_more(the_consumer, list, why, sizeof why);
    else if (change == BUS_ASSIGNED)
        wire_consumer_ops.assign(the_consumer, list);
    else if (change == BUS_REVOKED && incremental)
        wire_consumer_ops.assign_less(the_consumer, list);
    else
        wire_consumer_ops.assign(the_consumer, NULL);
}

static struct wire_call *pop_call(void)
{
    struct wire_call *c = calls;
    if (!c)
        return NULL;
    calls = c->next;
    if (!calls)
        calls_end = &calls;
    return c;
}

/* The request is written, and answered by what the input says. False: the input is at its end. */
static bool answer_one(struct wire_call *c, const uint8_t **at, const uint8_t *end)
{
    if (end - *at < 3)
        return false;
    size_t len = (size_t)((*at)[0] << 8 | (*at)[1]), left = (size_t)(end - *at) - 3;
    int how = (*at)[2];
    len = len < left ? len : left;
    wire_block *block = wire_block_new(len ? len : 1);
    memcpy(block->data, *at + 3, len);
    block->len = len;
    *at += 3 + len;
    int16_t version = (int16_t)(c->api->min + how % (c->api->max - c->api->min + 1));
    bool flexible = version >= c->api->flexible;
    pst_buf request = {0};
    if (c->answered)
        c->put(c->owner, c, version, &(wire_out){.to = &request, .flexible = flexible});
    pst_buf_done(&request);
    const wire_answer a = {.code = how >= 250 ? BUS_ERR__TRANSPORT : 0,
                           .version = version,
                           .body = wire_in_of(block->data, len, flexible),
                           .block = block,
                           .node = 1,
                           .sent_us = 1};
    if (c->answered)
        c->answered(c->owner, c, &a);
    wire_block_drop(block);
    return true;
}

static void poll_some(void)
{
    pst_record room[16];
    wire_consumer *c = (wire_consumer *)the_consumer;
    c->turned_us = 0;
    if (c->member) { /* nothing steps back here */
        for (size_t p = 0; p < c->n_parts; p++)
            c->parts[p]->not_before_us = 0;
        for (size_t s = 0; s < c->n_sources; s++)
            c->sources[s]->not_before_us = 0;
    }
    for (int i = 0; i < 6; i++) {
        bus_run run;
        wire_consumer_ops.poll(the_consumer, 0, room, 16, 4096, &run);
        if (run.kind != BUS_RUN_RECORDS)
            continue;
        for (size_t k = 0; k < run.n; k++) {
            pst_header headers[4];
            PST_ASSERT(k == 0 || room[k].offset > room[k - 1].offset);
            PST_ASSERT(room[k].partition == run.partition && !strcmp(room[k].topic, run.topic));
            if (room[k].has_headers)
                wire_consumer_ops.headers(&room[k], headers, 4);
        }
        wire_consumer_ops.release(the_consumer, room, run.n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const topics[] = {"t"};
    if (!size)
        return 0;
    pst_log_set_level(PST_LOG_ERROR);
    pst_bus_conf conf = {0};
    bus_prop props[] = {{(char *)"group.protocol", (char *)(data[0] & 1 ? "consumer" : "classic"), (char *)""},
                        {(char *)"partition.assignment.strategy", (char *)(data[0] & 2 ? "cooperative-sticky" : "range"), (char *)""},
                        {(char *)"bootstrap.servers", (char *)"nobody:1", (char *)""}};
    conf.props = props;
    conf.n = 3;
    const bus_consumer_needs needs = {
        .group = "g", .instance_id = data[0] & 4 ? "i" : NULL, .inflight_bytes = 1u << 20, .poll_interval_ms = 300000};
    const bus_listener to = {.fault = on_fault, .rebalance = on_rebalance};
    pst_err err = {0};
    PST_ASSERT(wire_consumer_ops.open(&conf, &needs, &to, &the_consumer, &err) == 0);
    PST_ASSERT(wire_consumer_ops.subscribe(the_consumer, topics, 1) == 0);
    const uint8_t *at = data + 1;
    bool more = true;
    struct wire_call *unanswered = NULL;
    for (int i = 0; i < 64 && more; i++) {
        poll_some();
        struct wire_call *c = pop_call();
        if (!c)
            break;
        more = answer_one(c, &at, data + size);
        if (more)
            free(c);
        else
            unanswered = c; /* it is under way for ever */
    }
    poll_some();
    wire_handle *h = wire_handle_of(the_consumer);
    h->life->free(h);
    free(unanswered);
    for (struct wire_call *c; (c = pop_call());)
        free(c);
    return 0;
}
