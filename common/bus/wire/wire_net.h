/* wire_net.h - one client's connections to a cluster: brokers, versions, TLS and SASL, who leads a partition, who coordinates a group or a
 * transactional id, and requests under way. What is in the requests is the business of those who send them.
 *
 *     wire_net_turn()      the only place where anything is sent, received, timed out or called back; the caller's thread, the caller's patience
 *     wire_call_…          a request: begun, written, sent; its answer comes by a callback of a later turn, in the order of its connection
 *
 * There is no thread of its own: a scorer turns its clients while it has nothing else to do, and answers lie in the kernel's buffers meanwhile. So no
 * lock and no hand-over stands between a fetched batch and its use, and a process that scores on one core has one thread busy. The price: whoever
 * computes for long has to turn now and then (pst_consumer_serve), or the group thinks it dead.
 *
 * Every wait is bounded: connects by socket.connection.setup.timeout.ms, requests by their own time-out, reconnects by
 * reconnect.backoff.ms … reconnect.backoff.max.ms. A broker's address is asked of the resolver anew at each connect, all addresses are tried.
 * @thread one net, one thread at a time. */
#ifndef PST_WIRE_NET_H
#define PST_WIRE_NET_H

#include "common/bus/bus_client.h"
#include "common/bus/wire/wire_block.h"
#include "common/bus/wire/wire_bytes.h"

typedef struct wire_net wire_net;
struct wire_conf; /* wire_conf.h: properties, read and checked once */
typedef struct wire_call wire_call;

/* A request that we can speak. The version used is the highest that both have. */
typedef struct wire_api {
    int16_t key, min, max;
    int16_t flexible; /* first flexible version */
    const char *name;
    bool throttle_elsewhere; /* its answers do not begin with throttle_time_ms: whoever reads them says it (wire_call_throttled) */
} wire_api;

/* ---- life ------------------------------------------------------------------------------------------------------------------------ */

/* Connects to nobody yet. Faults of connections, logins and brokers are told to->fault, inside turns. */
int wire_net_open(const struct wire_conf *conf, const bus_listener *to, wire_net **ret, pst_err *err);
void wire_net_free(wire_net *net); /* calls under way are forgotten without a callback */
/* Sends and receives what it can, then waits for up to timeout_ms for something to happen (answers that were told end the wait). How many answers were
 * told. A pst_stop_forced() ends it. */
int wire_net_turn(wire_net *net, int timeout_ms);
/* Sends what can be sent at once: for whoever computes before the next turn. Receives nothing; only calls that cannot be are answered. */
void wire_net_push(wire_net *net);
/* The login is refused, or the properties cannot work with this cluster: for good, until a new client. 0 = it lives. */
int wire_net_fatal(const wire_net *net, char *text, size_t size);

/* ---- who is where: answers at once by what is known; what is not known or stale is asked for by the next turns --------------------------------- */

typedef struct wire_topic { /* borrowed until the next turn */
    const char *name;
    uint8_t id[16];                       /* zero = the broker has none */
    int code;                             /* of the topic: 0, UNKNOWN_TOPIC_OR_PART, TOPIC_AUTHORIZATION_FAILED … */
    int32_t n;                            /* partitions */
    const int32_t *leader, *leader_epoch; /* -1 = none */
    int64_t known_us;                     /* when that was learnt */
} wire_topic;

/* From now on metadata of this topic is kept. NULL = not known yet. */
const wire_topic *wire_net_topic(wire_net *net, const char *name);
const wire_topic *wire_net_topic_by_id(wire_net *net, const uint8_t id[16]);
void wire_net_forget_topic(wire_net *net, const char *name);
int32_t wire_net_leader(wire_net *net, const char *topic, int32_t partition); /* node; -1 = not known (yet) */
/* What it told proved wrong (NOT_LEADER…, a broken connection): look again soon; not more often than retry.backoff.ms allows. */
void wire_net_stale(wire_net *net, const char *topic);
typedef enum { WIRE_GROUP = 0, WIRE_TXN = 1 } wire_coordinator_kind;
/* Node; -1 = asked for. *ret_code (may be NULL): what the last answer said, as GROUP_AUTHORIZATION_FAILED. */
int32_t wire_net_coordinator(wire_net *net, wire_coordinator_kind kind, const char *key, int *ret_code);
void wire_net_coordinator_stale(wire_net *net, wire_coordinator_kind kind, const char *key);
int32_t
wire_net_any(wire_net *net); /* a broker that is connected, else one to try; below -1: one of bootstrap.servers, as good a node as others */
const char *wire_net_cluster_id(const wire_net *net); /* NULL = not known yet */
/* Is it connected, logged in, and does it speak this request? version -1: not connected, or it has no version of it that we have. */
int16_t wire_net_version(wire_net *net, int32_t node, const wire_api *api);
/* Is a feature finalised in the cluster ("transaction.version", "group.version")? Its level, 0 = not, -1 = not known yet. */
int wire_net_feature(const wire_net *net, const char *name);

/* ---- requests ---------------------------------------------------------------------------------------------------------------------- */

typedef struct wire_answer {
    int code; /* 0 = there is one; else BUS_ERR__TRANSPORT, __TIMED_OUT, __UNSUPPORTED_FEATURE …: nothing came, it may have been done all the same */
    const char *reason; /* of a code; NULL = as the code says */
    bool sent;          /* of a code: bytes of it had gone out; false: the broker cannot have seen it */
    int16_t version;
    wire_in body;      /* behind the response header, flexible as the version is */
    wire_block *block; /* that it lies in: wire_block_use() keeps it */
    int32_t node;
    int64_t sent_us; /* monotonic */
} wire_answer;

typedef void (*wire_on_answer)(void *owner, wire_call *call, const wire_answer *a);

/* Begins a request to a node: connects if need be, and waits for that inside later turns. version is chosen when it is written: so a request is written by
 * `put` at the moment when its connection can take it; those of one connection in the order of their calls. put appends the body (no header), may splice
 * blocks, and begins no call. One that nobody of us can speak to that broker is answered by __UNSUPPORTED_FEATURE. A connection that does not come up answers
 * all that wait for it; one that breaks answers what was written on it, the rest waits for it to come up again. timeout_ms counts from here, for waiting
 * and answer together: after it the answer, if it comes at all, is thrown away. */
typedef void (*wire_put_body)(void *owner, wire_call *call, int16_t version, wire_out *out);
wire_call *wire_net_call(wire_net *net, int32_t node, const wire_api *api, int timeout_ms, wire_put_body put, wire_on_answer answered,
                         void *owner);
enum { WIRE_SPLICES = 1024 }; /* of one request, at most */
/* While its body is put: the bytes of the block (a use is taken) follow here, without being copied. */
void wire_call_splice(wire_call *call, wire_block *block);
void wire_call_forget(wire_call *call); /* no callback any more; its answer is thrown away when it comes */
void *wire_call_owner(const wire_call *call);
/* Its answer says that the broker does not read on for so long (KIP-219): nothing is written on that connection meanwhile, so that what is under way is not
 * taken for late. The net sees to it by itself, but of answers where it does not stand first. Inside the callback. */
void wire_call_throttled(const wire_call *call, int32_t ms);
/* Which of a node's connections it takes, `lane` 0…3 (0 where nobody says): fetches that wait must not delay commits. Of this call, before the next turn. */
void wire_call_lane(wire_call *call, int lane);

#endif
