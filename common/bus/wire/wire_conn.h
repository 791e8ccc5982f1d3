/* wire_conn.h - one connection to one broker, and what net, connections and their parts share. Only the files of connections include this.
 *
 *   wire_net.c      turns: whom to connect to, waits, time-outs
 *   wire_calls.c    requests: their writing, and the answers to them
 *   wire_where.c    what is known of the cluster, and asking for it
 *   wire_conn.c     bytes: addresses, sockets, what is to be sent, what has come
 *   wire_login.c    versions, then SASL, then again when the session ends
 *
 *   DOWN ─▶ RESOLVING ─▶ CONNECTING ─▶ [SECURING] ─▶ ASKING ─▶ [NAMING ─▶ LOGIN] ─▶ UP
 *     ▲ back-off with jitter              TLS         versions    mechanism  tokens │ and again NAMING ─▶ LOGIN before a session ends (KIP-368)
 *     └────────────── anything that fails, of any state, tells all calls on it ◀────┘ */
#ifndef PST_WIRE_CONN_H
#define PST_WIRE_CONN_H

#include "common/base/map.h"
#include "common/bus/wire/wire_conf.h"
#include "common/bus/wire/wire_meta.h"
#include "common/bus/wire/wire_net.h"
#include "common/bus/wire/wire_resolve.h"
#include "common/bus/wire/wire_sasl.h"
#include "common/bus/wire/wire_tls.h"

enum {
    WIRE_LANES = 4,
    WIRE_IN = 16384,                 /* read ahead of an answer */
    WIRE_OUT_AHEAD = 65536,          /* bytes that wait for the socket before further requests are written */
    WIRE_NODES = 10000,              /* brokers kept */
    WIRE_ANSWERS_A_TURN = 64,        /* of one connection, so that each has its turn */
    WIRE_LOGIN_ANSWER_MAX = 1 << 20, /* of versions and tokens: nobody has logged in yet */
};

typedef enum { WIRE_DOWN, WIRE_RESOLVING, WIRE_CONNECTING, WIRE_SECURING, WIRE_ASKING, WIRE_NAMING, WIRE_LOGIN, WIRE_UP } wire_conn_state;
extern const char *const wire_conn_states[];

typedef struct wire_conn wire_conn;
typedef struct wire_node wire_node;

typedef struct wire_splice {
    size_t at; /* in the request's own bytes: the block goes before that one */
    wire_block *block;
} wire_splice;

struct wire_call {
    wire_call *next; /* in the list of those that wait, or of its connection's that are under way */
    wire_net *net;
    int32_t node;
    int lane;
    const wire_api *api;
    wire_put_body put;
    wire_on_answer answered;
    void *owner;
    bool forgotten;
    int64_t deadline_us;
    int timeout_ms;
    /* once written */
    int32_t id;
    int16_t version;
    int64_t written_us;
    uint64_t begins; /* where in all that the connection ever sent */
};

typedef struct wire_calls {
    wire_call *first, *last;
    size_t n;
} wire_calls;

typedef struct wire_seg {
    wire_block *block;
    size_t at, end;
} wire_seg;

struct wire_conn {
    wire_net *net;
    wire_node *node;
    int lane;
    wire_conn_state state;
    bool failing; /* the last attempt did not come up */
    bool dead;    /* nobody is to use it any more; freed when no turn is under way */
    int64_t since_us, used_us;
    int64_t deadline_us; /* of coming up, or of this address */
    int64_t setup_end_us;
    int64_t retry_us;
    int fails;
    wire_resolve *resolve;
    wire_address addresses[WIRE_ADDRESSES];
    int n_addresses, address;
    int fd;
    wire_tls *tls;
    bool tls_wants_write, more; /* more: there may be more to read without the socket saying so */
    /* out */
    wire_seg *out;
    size_t out_first, out_n, out_cap;
    uint64_t queued, sent; /* bytes, of this connection's whole life */
    /* in */
    uint8_t *in;
    size_t in_at, in_len;
    wire_block *answer; /* being received */
    size_t answer_len;
    /* requests */
    wire_calls calls;
    int32_t next_id;
    int32_t login_id; /* -1 = none is under way */
    wire_sasl *sasl;
    bool logged_in;     /* this is a login again */
    int64_t relogin_us; /* 0 = never */
    int64_t mute_us;    /* the broker reads nothing before; 0 = it does */
    int64_t mute_said_us;
    int16_t versions_asked;
};

struct wire_node {
    int32_t id; /* below -1: one of bootstrap.servers */
    char *host;
    int port;
    char *rack;
    bool listed; /* in the last Metadata, or it is a bootstrap server */
    bool versions_known;
    wire_versions versions;
    wire_conn *lanes[WIRE_LANES];
};

typedef struct wire_coordinator {
    wire_coordinator_kind kind;
    char *key;
    int32_t node; /* -1 */
    int code;
    bool asking, stale;
    int64_t asked_us;
    int backoff_ms;
} wire_coordinator;

typedef struct wire_known { /* a topic that is looked after */
    wire_topic t;           /* what is handed out; name, leader, leader_epoch are owned */
    bool answered, stale;
    bool impossible; /* no topic can have this name */
    int64_t used_us, asked_us;
    int backoff_ms;
} wire_known;

struct wire_net {
    const wire_conf *conf;
    bus_listener to;
    wire_tls_ctx *tls;
    wire_node **nodes;
    size_t n_nodes, nodes_cap;
    wire_calls waiting;
    wire_conn **graves; /* dead connections */
    size_t n_graves, graves_cap;
    struct pollfd *polled;
    wire_conn **polled_conns;
    size_t polled_cap, polled_conns_cap;
    int depth; /* of turns inside callbacks of turns */
    int told;
    /* what is being written */
    wire_call *putting;
    wire_splice splices[WIRE_SPLICES];
    size_t n_splices;
    pst_buf scratch;
    /* where.c */
    wire_known **topics;
    size_t n_topics, topics_cap;
    wire_coordinator **coordinators;
    size_t n_coordinators, coordinators_cap;
    char *cluster_id;
    bool stale;  /* a connection broke: brokers may be elsewhere */
    bool asking; /* a Metadata is under way */
    int64_t asked_us, known_us;
    size_t next_any;
    int64_t features_epoch;
    bool features_known;
    wire_feature features[WIRE_FEATURES];
    size_t n_features;
    /* health */
    bool worked; /* a connection was up once */
    bool told_down;
    int fatal;
    char fatal_text[300];
};

/* ---- wire_net.c ------------------------------------------------------------------------------------------------------------------ */

wire_node *wire_node_find(wire_net *net, int32_t id);
/* Found or made; host and port are brought up to date, which ends connections to another address. NULL: there are WIRE_NODES. */
wire_node *wire_node_put(wire_net *net, int32_t id, const char *host, int port, const char *rack);
void wire_net_told_fault(wire_net *net, int code, const char *reason);
void wire_net_check_down(wire_net *net); /* are all of them failing? tells it once */

/* ---- wire_calls.c ------------------------------------------------------------------------------------------------------------------ */

void wire_calls_add(wire_calls *l, wire_call *c);
/* Writes what waits and can be written; drops what was forgotten, ends what is late. */
void wire_calls_dispatch(wire_net *net, int64_t now);
int64_t wire_calls_next(const wire_net *net); /* when the next of them is late; INT64_MAX = none */
void wire_calls_answer(wire_conn *c, wire_block *block);
void wire_calls_lost(wire_conn *c, int code,
                     const char *reason); /* all that are under way on it, and those that wait for it when it did not come up */
void wire_calls_fail_waiting(wire_net *net, int32_t node, int lane, int code, const char *reason);
void wire_calls_late(wire_conn *c, int64_t now);
void wire_calls_forget_all(wire_calls *l);
/* Puts a request that net itself makes, of the login, on a connection at once. Its id. */
int32_t wire_calls_put_login(wire_conn *c, const wire_api *api, int16_t version, void (*put)(wire_conn *c, int16_t version, wire_out *out));

/* ---- wire_conn.c ------------------------------------------------------------------------------------------------------------------- */

wire_conn *wire_conn_of(wire_node *node, int lane, wire_net *net); /* made if need be, DOWN then */
bool wire_conn_wants(const wire_conn *c, int64_t now);             /* it is down, and may try now */
void wire_conn_start(wire_conn *c, int64_t now);
short wire_conn_events(const wire_conn *c);
int wire_conn_fd(const wire_conn *c); /* -1 = none to wait for */
int64_t wire_conn_next(const wire_conn *c);
void wire_conn_on_ready(wire_conn *c, short events);
void wire_conn_on_time(wire_conn *c, int64_t now);
void wire_conn_flush(wire_conn *c);
void wire_conn_queue(wire_conn *c, wire_block *block, size_t at, size_t end); /* takes a use */
void wire_conn_up(wire_conn *c);
/* It is over: calls are told, and a fault, if it is one. code 0: nobody is at fault (idle). */
void wire_conn_fail(wire_conn *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void wire_conn_bury(wire_conn *c); /* silently */
void wire_conn_free(wire_conn *c);

/* ---- wire_login.c ------------------------------------------------------------------------------------------------------------------ */

void wire_login_begin(wire_conn *c);                     /* versions first */
void wire_login_again(wire_conn *c);                     /* KIP-368 */
void wire_login_answer(wire_conn *c, wire_block *block); /* of a request of wire_calls_put_login */

/* ---- wire_where.c ------------------------------------------------------------------------------------------------------------------ */

void wire_where_ask(wire_net *net, int64_t now); /* what is missing or stale */
int64_t wire_where_next(const wire_net *net, int64_t now);
void wire_where_learn_features(wire_net *net, const wire_versions *v);
void wire_where_free(wire_net *net);

#endif
