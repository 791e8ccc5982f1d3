/* wire_calls.c - requests: they wait in one list of the net until their connection can take them, are written in the order in which they were made, and answered in the order
 * of their connection, as brokers do. Callbacks may begin and forget calls, and may turn the net again: so lists are
 * whole before anybody is told, and a call is out of all lists when its owner is.
 *
 * A request that is late is told so, and keeps its place on the connection, since its answer may still come; a connection that has not answered its first
 * request for socket.timeout.ms is given up with all that are on it. */
#include "common/bus/wire/wire_conn.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wire_calls_add(wire_calls *l, wire_call *c)
{
    c->next = NULL;
    if (l->last)
        l->last->next = c;
    else
        l->first = c;
    l->last = c;
    l->n++;
}

static wire_call *take_first(wire_calls *l)
{
    wire_call *c = l->first;
    l->first = c->next;
    if (!l->first)
        l->last = NULL;
    l->n--;
    return c;
}

void wire_calls_forget_all(wire_calls *l)
{
    while (l->first)
        free(take_first(l));
}

wire_call *wire_net_call(wire_net *net, int32_t node, const wire_api *api, int timeout_ms, wire_put_body put, wire_on_answer answered,
                         void *owner)
{
    wire_call *c = pst_alloc(sizeof *c);
    c->net = net;
    c->node = node;
    c->api = api;
    c->put = put;
    c->answered = answered;
    c->owner = owner;
    c->timeout_ms = timeout_ms;
    c->deadline_us = pst_mono_us() + timeout_ms * 1000LL;
    wire_calls_add(&net->waiting, c);
    return c;
}

void wire_call_lane(wire_call *call, int lane)
{
    PST_ASSERT(lane >= 0 && lane < WIRE_LANES && !call->written_us);
    call->lane = lane;
}

void wire_call_forget(wire_call *call)
{
    call->forgotten = true;
}

void *wire_call_owner(const wire_call *call)
{
    return call->owner;
}

/* ---- throttling (KIP-219) -------------------------------------------------------------------------------------------------------------------- */

enum { MUTE_MAX_MS = 30000, MUTE_SAID_US = 60000000 };

/* Calls that wait for it are not late before it reads on. */
static void hold_back(wire_conn *c, int32_t ms)
{
    int64_t now = pst_mono_us(), us = (ms < MUTE_MAX_MS ? ms : MUTE_MAX_MS) * 1000LL;
    if (ms <= 0)
        return;
    c->mute_us = now + us;
    for (wire_call *call = c->calls.first; call; call = call->next)
        call->deadline_us += us;
    for (wire_call *call = c->net->waiting.first; call; call = call->next)
        if (call->node == c->node->id && call->lane == c->lane)
            call->deadline_us += us;
    if (c->mute_said_us && now - c->mute_said_us < MUTE_SAID_US)
        return;
    c->mute_said_us = now;
    pst_log(PST_LOG_WARN, "bus", "event=throttled broker=%s:%d ms=%d why=\"a quota of this user or client.id is used up\"", c->node->host,
            c->node->port, (int)ms);
}

void wire_call_throttled(const wire_call *call, int32_t ms)
{
    wire_node *node = wire_node_find(call->net, call->node);
    wire_conn *c = node ? node->lanes[call->lane] : NULL;
    if (c && c->state == WIRE_UP)
        hold_back(c, ms);
}

static bool is_mute(wire_conn *c, int64_t now)
{
    if (c->mute_us && now >= c->mute_us)
        c->mute_us = 0;
    return c->mute_us != 0;
}

/* ---- telling ------------------------------------------------------------------------------------------------------------------------ */

static void tell(wire_call *call, const wire_answer *a)
{
    if (call->forgotten)
        return;
    call->forgotten = true;
    call->net->told++;
    call->answered(call->owner, call, a);
}

static void tell_code(wire_call *call, int code, const char *reason, bool sent)
{
    tell(call,
         &(wire_answer){
             .code = code, .reason = reason, .sent = sent, .version = call->version, .node = call->node, .sent_us = call->written_us});
}

void wire_calls_lost(wire_conn *c, int code, const char *reason)
{
    wire_calls lost = c->calls;
    c->calls = (wire_calls){0};
    uint64_t sent = c->sent; /* a callback may turn: the connection may be another by then */
    while (lost.first) {
        wire_call *call = take_first(&lost);
        tell_code(call, code, reason, call->begins < sent);
        free(call);
    }
}

void wire_calls_fail_waiting(wire_net *net, int32_t node, int lane, int code, const char *reason)
{
    wire_calls all = net->waiting, out = {0};
    net->waiting = (wire_calls){0};
    while (all.first) {
        wire_call *call = take_first(&all);
        wire_calls_add(call->node == node && call->lane == lane ? &out : &net->waiting, call);
    }
    while (out.first) {
        wire_call *call = take_first(&out);
        tell_code(call, code, reason, false);
        free(call);
    }
}

void wire_calls_late(wire_conn *c, int64_t now)
{
    char text[200];
    for (wire_call *call = c->calls.first; call;) {
        if (call->forgotten || now < call->deadline_us) {
            call = call->next;
            continue;
        }
        snprintf(text, sizeof text, "%s:%d: no answer to %s within %d ms", c->node->host, c->node->port, call->api->name, call->timeout_ms);
        tell_code(call, BUS_ERR__TIMED_OUT, text, call->begins < c->sent);
        call = c->calls.first; /* a callback may have changed everything */
    }
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------------- */

void wire_call_splice(wire_call *call, wire_block *block)
{
    wire_net *net = call->net;
    PST_ASSERT(net->putting == call && net->n_splices < WIRE_SPLICES);
    net->splices[net->n_splices++] = (wire_splice){net->scratch.len, wire_block_use(block)};
}

static void put_head(wire_conn *c, const wire_api *api, int16_t version, int32_t id)
{
    pst_buf *b = &c->net->scratch;
    pst_buf_clear(b);
    wire_out plain = {b, false}, flexible = {b, version >= api->flexible};
    wire_put_i32(&plain, 0); /* the length, later */
    wire_put_i16(&plain, api->key);
    wire_put_i16(&plain, version);
    wire_put_i32(&plain, id);
    wire_put_str(&plain, c->net->conf->client_id); /* never compact */
    wire_put_tags(&flexible);
}

/* Queues the request in scratch, with the blocks that were spliced in. */
static void queue_request(wire_conn *c)
{
    wire_net *net = c->net;
    size_t len = net->scratch.len, all = len, at = 0;
    for (size_t i = 0; i < net->n_splices; i++)
        all += net->splices[i].block->len;
    PST_ASSERT(all - 4 <= INT_MAX);
    wire_block *own = wire_block_new(len);
    own->len = len;
    memcpy(own->data, net->scratch.data, len);
    uint32_t size = (uint32_t)(all - 4);
    for (int i = 0; i < 4; i++)
        own->data[i] = (uint8_t)(size >> (24 - 8 * i));
    for (size_t i = 0; i < net->n_splices; i++) {
        wire_splice *s = &net->splices[i];
        wire_conn_queue(c, own, at, s->at);
        wire_conn_queue(c, s->block, 0, s->block->len);
        wire_block_drop(s->block);
        at = s->at;
    }
    wire_conn_queue(c, own, at, len);
    wire_block_drop(own);
    net->n_splices = 0;
}

static void write_call(wire_conn *c, wire_call *call, int16_t version, int64_t now)
{
    wire_net *net = c->net;
    call->id = c->next_id;
    c->next_id = c->next_id == INT_MAX ? 0 : c->next_id + 1;
    call->version = version;
    call->written_us = now;
    call->begins = c->queued;
    put_head(c, call->api, version, call->id);
    wire_out o = {&net->scratch, version >= call->api->flexible};
    net->putting = call;
    call->put(call->owner, call, version, &o);
    net->putting = NULL;
    queue_request(c);
    c->used_us = now;
    wire_calls_add(&c->calls, call);
}

int32_t wire_calls_put_login(wire_conn *c, const wire_api *api, int16_t version, void (*put)(wire_conn *c, int16_t version, wire_out *out))
{
    int32_t id = c->next_id;
    c->next_id = c->next_id == INT_MAX ? 0 : c->next_id + 1;
    put_head(c, api, version, id);
    wire_out o = {&c->net->scratch, version >= api->flexible};
    put(c, version, &o);
    queue_request(c);
    explicit_bzero(c->net->scratch.data, c->net->scratch.len); /* may be a password */
    return id;
}

/* ---- turns ----------------------------------------------------------------------------------------------------------------------------- */

typedef enum { WAITS, WRITTEN, LATE, GONE, NOBODY, NO_VERSION, REFUSED } fate;

static fate try_one(wire_net *net, wire_call *call, int64_t now)
{
    if (call->forgotten)
        return GONE;
    if (net->fatal)
        return REFUSED;
    wire_node *node = wire_node_find(net, call->node);
    if (!node)
        return NOBODY;
    if (now >= call->deadline_us)
        return LATE;
    wire_conn *c = wire_conn_of(node, call->lane, net);
    if (is_mute(c, now) || c->state != WIRE_UP || c->calls.n >= (size_t)net->conf->inflight_max || c->queued - c->sent > WIRE_OUT_AHEAD)
        return WAITS;
    int16_t version = wire_versions_best(&node->versions, call->api);
    if (version < 0)
        return NO_VERSION;
    write_call(c, call, version, now);
    return WRITTEN;
}

static void tell_fate(wire_net *net, wire_call *call, fate f)
{
    char text[300];
    wire_node *node = wire_node_find(net, call->node);
    switch (f) {
    case LATE:
        snprintf(text, sizeof text, "%s:%d: %s waited for the connection for %d ms", node ? node->host : "?", node ? node->port : 0,
                 call->api->name, call->timeout_ms);
        tell_code(call, BUS_ERR__TIMED_OUT, text, false);
        break;
    case NOBODY:
        snprintf(text, sizeof text, "broker %d is not known (any more)", (int)call->node);
        tell_code(call, BUS_ERR__TRANSPORT, text, false);
        break;
    case NO_VERSION:
        snprintf(text, sizeof text, "%s:%d: the broker has no version of %s from %d to %d", node ? node->host : "?", node ? node->port : 0,
                 call->api->name, call->api->min, call->api->max);
        tell_code(call, BUS_ERR__UNSUPPORTED_FEATURE, text, false);
        break;
    case REFUSED: tell_code(call, net->fatal, net->fatal_text, false); break;
    default: break;
    }
}

static void start_connections(wire_net *net, int64_t now)
{
    for (wire_call *call = net->waiting.first; call; call = call->next) {
        wire_node *node = wire_node_find(net, call->node);
        wire_conn *c = node ? node->lanes[call->lane] : NULL;
        if (!c || !wire_conn_wants(c, now))
            continue;
        wire_conn_start(c, now);
        if (c->state == WIRE_DOWN)
            return; /* it failed at once, and its callbacks may have changed the list; the others have their turn in the next one */
    }
}

void wire_calls_dispatch(wire_net *net, int64_t now)
{
    wire_calls all = net->waiting, over = {0};
    net->waiting = (wire_calls){0};
    while (all.first) {
        wire_call *call = take_first(&all);
        fate f = try_one(net, call, now);
        if (f == WAITS)
            wire_calls_add(&net->waiting, call);
        else if (f == GONE)
            free(call);
        else if (f != WRITTEN) {
            call->id = f; /* it has no other yet */
            wire_calls_add(&over, call);
        }
    }
    while (over.first) {
        wire_call *call = take_first(&over);
        tell_fate(net, call, (fate)call->id);
        free(call);
    }
    start_connections(net, now);
}

int64_t wire_calls_next(const wire_net *net)
{
    int64_t next = INT64_MAX;
    for (const wire_call *call = net->waiting.first; call; call = call->next) {
        wire_node *node = wire_node_find((wire_net *)net, call->node);
        const wire_conn *c = node ? node->lanes[call->lane] : NULL;
        int64_t at = c && c->state == WIRE_DOWN && c->retry_us < call->deadline_us ? c->retry_us : call->deadline_us;
        if (c && c->mute_us && c->mute_us < at)
            at = c->mute_us;
        if (at < next)
            next = at;
    }
    return next;
}

void wire_calls_answer(wire_conn *c, wire_block *block)
{
    wire_call *call = c->calls.first;
    wire_in in = wire_in_of(block->data, block->len, false);
    int32_t id = wire_get_i32(&in);
    if (call && call->id == id) {
        take_first(&c->calls);
    } else if (!call && c->login_id >= 0 && c->login_id == id) {
        wire_login_answer(c, block);
        return;
    } else {
        wire_conn_fail(c, BUS_ERR__TRANSPORT, "an answer came to request %d, which is not the next one", (int)id);
        return;
    }
    c->used_us = pst_mono_us();
    in.flexible = call->version >= call->api->flexible;
    wire_get_tags(&in);
    if (!call->api->throttle_elsewhere) {
        wire_in first = in;
        hold_back(c, wire_get_i32(&first));
    }
    tell(call, &(wire_answer){
                   .version = call->version, .body = in, .block = block, .node = call->node, .sent = true, .sent_us = call->written_us});
    free(call);
}
