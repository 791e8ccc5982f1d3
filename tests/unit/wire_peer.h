/* wire_peer.h - a broker for tests of connections, in the test's own thread: served between two turns of the net, it answers what it is told to, whole or byte by byte, or not.
 * It is also one that lies: in lengths, ids and versions. */
#pragma once
#include "common/bus/wire/wire_bytes.h"
#include "common/bus/wire/wire_net.h"

enum { PEER_CONNS = 64, PEER_LOG = 4096 };

typedef struct peer_conn {
    int fd;
    pst_buf in, out;
    size_t answered; /* bytes that went out */
    bool held;       /* a request was left without an answer, and so are those behind it */
} peer_conn;

typedef struct peer_seen { /* a request */
    int conn, key, version;
    char client[24];
    pst_buf body;
} peer_seen;

typedef struct peer {
    int fd, port;
    peer_conn conns[PEER_CONNS];
    int n_conns;
    peer_seen log[PEER_LOG];
    int n_log;
    /* how it is */
    int versions_max; /* of ApiVersions */
    size_t drip;      /* bytes a time; 0 = all */
    size_t cut_after; /* the next connection is closed after so many bytes of answers; SIZE_MAX = not */
    int hold_key;     /* requests of this key get no answer, nor does what comes behind on their connection; -1 = none */
    int wrong_id_key; /* their answers have another id */
    int lie_key;      /* their answers announce lie_len bytes */
    uint32_t lie_len;
    bool lose_feature;     /* no features are told */
    int metadata_port;     /* where broker 1 is said to be; 0 = here */
    int32_t leader, epoch; /* of all partitions */
    uint8_t topic_id;
    int topic_code;
    /* SASL */
    int64_t lifetime_ms;
    int sasl_code;
    const char *sasl_answers[4]; /* to each token of a login; NULL = empty */
    int sasl_step, logins;
} peer;

void peer_open(peer *p);
void peer_close(peer *p);
void peer_cut(peer *p); /* all connections */
void peer_serve(peer *p);
int peer_count(const peer *p, int key); /* requests of this key so far */
