/* bus_txn.h - the state of pst_txn, shared by bus_txn.c (the rounds), bus_txn_call.c (calls of the client, new producers), bus_txn_fate.c (what
 * became of a round that gave no clear answer) and bus_txn_wipe.c (what a broker forgot of it). The protocol is drawn at the top of bus_txn.c. */
#ifndef PST_BUS_TXN_H
#define PST_BUS_TXN_H

#include "common/bus/bus_internal.h"

#define TXN_STEP_MS      5000 /* one try of send_offsets or commit */
#define TXN_INIT_STEP_MS 2000

typedef struct txn_limit { /* a topic that refused a batch as too large */
    char *topic;
    size_t bytes;
    bool strict; /* it also refused batches cut to that size: single records above it are refused here */
} txn_limit;

/* The calls of the transactional API; see bus_txn_call.c. */
typedef enum { CALL_INIT, CALL_BEGIN, CALL_OFFSETS, CALL_COMMIT, CALL_ABORT, TXN_CALLS } txn_call_kind;

struct pst_txn {
    pst_bus_conf *conf;
    char *id;
    pst_txn_mode mode;
    pst_consumer *consumer; /* borrowed, may be NULL */
    pst_producer *p;
    bool ready;            /* the producer may begin */
    bool starting;         /* the first producer's init was begun by pst_txn_new; `started` is what it said so far, its story in `why` */
    txn_class started;     /* TXN_RETRY: it goes on inside librdkafka */
    struct bus_hand *hand; /* makes the calls */
    bool hung;             /* a call did not come back: its producer was left to it, p is NULL; see txn_guarded */
    bool open;
    txn_class poison; /* TXN_OK, or why the open round is lost already */
    pst_err why;      /* its story */
    uint64_t epoch;
    int64_t begun_us, stopping_us;
    int64_t waits_us;     /* since when a call of this round is repeated; 0 = none is */
    uint64_t outages;     /* of the producer's health at begin */
    bool commit_tried;    /* of the round */
    const pst_record *of; /* what is sent is made of it; NULL = of none */
    uint64_t sends;       /* records taken in the round */
    pst_out reserved;     /* all but its value */
    pst_buf *room;        /* where that is being written; NULL = nothing is reserved */
    size_t room_at;       /* from here */
    bool timed_out;       /* a call of this round was not answered in time */
    int timeout_ms;
    int hang_ms[TXN_CALLS]; /* beyond its own time-out a call is taken for lost; by kind, for tests */
    int refusals;
    txn_fence fence;
    txn_limit *limits;
    size_t n_limits;
    size_t batch_bytes; /* what the next producer is to be told, see txn_learn_limit; 0 = nothing */
    char **topics;      /* where records go: every new producer looks them up before the first record comes */
    size_t n_topics, last_topic;
    uint64_t counts[3];
};

typedef struct txn_call {
    txn_call_kind kind;
    int timeout_ms;
    bus_places *offsets;
    bus_group *group;
    /* The rest is txn_guarded's own. */
    pst_producer *p;
    bus_said said;
    int state; /* atomic: who of the two comes second frees */
} txn_call;

/* Its class; the story goes to why. Sets t->hung if it did not come back: then the producer and what c points to are the call's. */
txn_class txn_guarded(pst_txn *t, txn_call c, pst_err *why);
int txn_make_producer(pst_txn *t, pst_err *err);
/* The first producer; begins to end what a predecessor left open. Does not wait. */
int txn_take_over(pst_txn *t, pst_err *err);
/* A new producer with the same id; waits through outages. */
int txn_renew(pst_txn *t, bool abort_first, pst_err *err);
/* A call is to be repeated: beyond some seconds that is said, and whoever asks the consumer is told; over once a call was answered. */
void txn_waits(pst_txn *t, const pst_err *why);
void txn_waits_over(pst_txn *t);
void txn_stay(pst_txn *t);     /* from every loop that waits: see bus_consumer_stay() */
bool txn_given_up(pst_txn *t); /* told to stop, and long enough ago */
int txn_stopped(const pst_txn *t, pst_err *err);
bool txn_innocent(const pst_txn *t); /* an outage or a time-out of this round explains a fencing */
int txn_fenced(pst_txn *t, pst_err *err);

txn_limit *txn_find_limit(pst_txn *t, const char *topic);
void txn_learn_limit(pst_txn *t);

/* One record that was acknowledged in the round: where to look whether it was committed. */
typedef struct txn_sent {
    char topic[256];
    int32_t partition;
    int64_t offset; /* -1 = none was, -2 = not known */
} txn_sent;

typedef struct txn_fate {
    bool committed;
    bool moved; /* somebody else committed offsets of our partitions */
} txn_fate;

/* Only valid after txn_renew(): the transaction has ended by then, one way or the other. */
int txn_find_fate(pst_txn *t, const bus_places *wanted, const txn_sent *sent, bool end_sent, txn_fate *ret, pst_err *err);

/* Ends whatever the broker may have forgotten to end of a round that was lost in an outage, or now that a partition has no leader; offsets: the
 * round's, NULL = none. After txn_renew(). */
void txn_wipe(pst_txn *t, bool outage, const bus_places *offsets);

#endif
