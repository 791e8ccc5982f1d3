/* wire_producer.h - what the files of our own producer share.
 *
 *     wire_producer.c     the table (bus_producer_ops): records in, serve, flush, drop
 *     wire_partition.c    which partition a key belongs to; pure
 *     wire_queue.c        topics, partitions, batches under construction; reports
 *     wire_produce.c      Produce requests, answers, what is sent again
 *     wire_produce_id.c   InitProducerId: who we are to the brokers
 *     wire_txn.c          transactions; wire_txn_wire.c: their requests
 *
 * A record is written once, into the batch that goes out: nothing is allocated for it and no lock taken. A batch's way:
 *
 *     open ──full, lingered, flushed──▶ waits ──numbered, sealed──▶ under way ──▶ acknowledged: reported, used again
 *                                          ▲                             │ an error that passes, no answer
 *                                          └────── the same bytes ───────┘
 *
 * Batches of a partition are sent in their order with rising sequence numbers, at most five under way (a broker remembers the last five). Where one must
 * be sent again, it waits until no other of its partition is under way. Where a number will never be filled (a record was refused or given up while later
 * ones were numbered), nothing new is numbered until all that was is settled; then a new producer id begins at 0 and takes what the broker refused for the
 * gap. In transactions such an error ends the round instead. */
#ifndef PST_WIRE_PRODUCER_H
#define PST_WIRE_PRODUCER_H

#include "common/bus/wire/wire.h"
#include "common/bus/wire/wire_batch.h"
#include "common/bus/wire/wire_conf.h"

#define WIRE_UNDER_WAY_MAX 5 /* batches of a partition: as many as a broker remembers the numbers of */

typedef struct wire_producer wire_producer;
typedef struct wire_ptopic wire_ptopic;
typedef struct wire_ppart wire_ppart;
typedef struct wire_preq wire_preq;

typedef struct wire_mark { /* what is kept of a record beside its bytes */
    void *opaque;
    uint64_t nth;
} wire_mark;

typedef struct wire_pbatch {
    struct wire_pbatch *next;
    wire_ppart *part;
    wire_build build;  /* until it is sealed */
    wire_block *block; /* from then on */
    wire_mark *marks;
    size_t marks_cap;
    uint32_t n;
    size_t bytes; /* of its records, as the queue's limit counts them */
    int64_t born_us;
    int32_t sequence;
    uint32_t sealed_for; /* wire_producer.id_nth; 0 = not numbered */
    uint64_t place;      /* among the numbered ones of its partition */
    bool closed;         /* takes no further records */
    bool under_way;
    bool perhaps;  /* it went out and was not answered: it may be there */
    bool refused;  /* the broker did not write it, for a gap before it */
    int last_code; /* why it was not written the last time */
} wire_pbatch;

struct wire_ppart {
    wire_ptopic *topic;
    int32_t index;
    wire_pbatch *first, *last; /* in the order of their records */
    unsigned under_way;
    int32_t next_sequence;
    uint32_t numbered_for; /* wire_producer.id_nth that next_sequence counts in */
    uint64_t places;
    bool again; /* something is to be sent again: nothing is, until all under way is answered */
    bool gap;   /* a number will not be filled */
    int64_t not_before_us;
    uint64_t joined; /* wire_txn.nth that it was added to (AddPartitionsToTxn); 0 = none */
    bool joining;
    bool active; /* in wire_producer.active: it has batches */
    wire_ppart *next_active;
};

typedef struct wire_waiting { /* a record whose topic is not known yet */
    struct wire_waiting *next;
    pst_out out; /* what it points to lies behind it */
    uint64_t nth;
    int64_t born_us;
    size_t bytes;
} wire_waiting;

struct wire_ptopic {
    char *name;
    int32_t n;
    wire_ppart **parts;
    size_t parts_cap;
    int32_t sticky; /* where records without a key go now; -1 = to be chosen */
    wire_waiting *first_waiting, *last_waiting;
    int64_t unknown_since_us; /* that brokers say that there is none; 0 = they do not */
    int64_t looked_us;        /* when n was last compared with what the net knows */
    wire_ptopic *next;
};

typedef enum { WIRE_TXN_NONE, WIRE_TXN_READY, WIRE_TXN_OPEN } wire_txn_state;
typedef enum { WIRE_STEP_IDLE, WIRE_STEP_ASKED, WIRE_STEP_DONE } wire_step;

typedef struct wire_txn {
    wire_txn_state state;
    bool by_produce; /* KIP-890: partitions join by Produce, EndTxn gives the next epoch */
    bool touched;    /* the coordinator may know of it */
    bool dirty;      /* something went out that was never answered: numbers cannot go on */
    bool aborting;
    uint64_t nth;
    bus_said error; /* ends the round */
    /* the request under way, one at a time */
    wire_call *call;
    bool put;              /* its bytes were written: the coordinator may have got it */
    int64_t not_before_us; /* the next one */
    wire_step grouping, offsetting, ending;
    bool commit;            /* what is being ended, and how */
    const bus_places *list; /* of offsets(), while it runs */
    const bus_group *group;
    int ends_sent;
} wire_txn;

struct wire_producer {
    wire_handle handle; /* first: the bus_handle */
    wire_conf *conf;
    wire_ptopic *topics, *last_topic;
    wire_ppart *active;
    wire_pbatch *spare; /* batches to use again */
    size_t n_spare;
    wire_preq *requests, *spare_requests;
    size_t records, bytes; /* that wait or are under way */
    uint64_t nth;
    int told; /* reports since serve() began */
    size_t batch_bytes;
    int64_t delivery_us; /* so long may a record take; 0 = as long as it takes */
    bool flushing;
    bool ready; /* a batch was closed: it is worth a turn */
    int64_t turned_us, expired_us;
    int64_t wake_us; /* when there is something to do though nothing comes */
    uint64_t chance;
    /* who we are */
    int64_t id;
    int16_t epoch;
    uint32_t id_nth; /* rises with each new id or epoch; numbers begin at 0 then. 0 = there is none yet */
    bool has_id, wants_id, drain;
    wire_call *id_call;
    int64_t id_not_before_us;
    int id_code; /* what the last answer said */
    /* for good */
    int fatal_code;
    char fatal_text[300];
    /* a value that is being written by the caller */
    wire_pbatch *reserved_in; /* NULL = into room */
    pst_buf room;
    pst_out reserved;
    size_t reserved_at; /* where in its batch the value begins */
    bool reserving;
    wire_txn txn;
};

static inline wire_producer *wire_producer_of(bus_handle *h)
{
    return (wire_producer *)h;
}

static inline bool wire_is_txn(const wire_producer *p)
{
    return p->conf->transactional_id != NULL;
}

/* ---- wire_partition.c ------------------------------------------------------------------------------------------------------------ */

uint32_t wire_murmur2(const void *key, size_t len); /* Java's Utils.murmur2 */
/* Of n partitions, for a key by this wire_conf.partitioner; -1: not by the key, any will do. */
int32_t wire_partition_of(int partitioner, const void *key, size_t len, int32_t n);

/* ---- wire_queue.c ---------------------------------------------------------------------------------------------------------------- */

wire_ptopic *wire_queue_topic(wire_producer *p, const char *name);
/* Takes a record, whose nth is given; a code. */
int wire_queue_add(wire_producer *p, const pst_out *out);
pst_buf *wire_queue_reserve(wire_producer *p, const pst_out *head);
int wire_queue_add_reserved(wire_producer *p);
void wire_queue_unreserve(wire_producer *p);
/* Topics that became known, or will not; records that took too long. */
void wire_queue_look(wire_producer *p, int64_t now_us);
/* Ends the batch for further records. */
void wire_queue_close(wire_producer *p, wire_pbatch *b);
void wire_queue_take(wire_pbatch *b); /* out of its partition */
/* Its records are told and it is used again. unsent: they were surely not written, and the client is dead. Its partition has lost it already. */
void wire_queue_report(wire_producer *p, wire_pbatch *b, int code, const char *reason, int64_t base_offset, bool unsent);
/* All that waits, and what is under way (their requests must have been forgotten), is told to have failed. */
void wire_queue_drop(wire_producer *p, bool under_way);
void wire_queue_done(wire_producer *p);
int64_t wire_queue_now_ms(void);

/* ---- wire_produce.c --------------------------------------------------------------------------------------------------------------- */

/* Sends what may be sent now; sets p->wake_us. */
void wire_produce_tick(wire_producer *p, int64_t now_us);
void wire_produce_forget(wire_producer *p); /* all requests under way: their batches wait again, perhaps written */
bool wire_produce_under_way(const wire_producer *p);
void wire_produce_done(wire_producer *p);
/* New head and checksum for a sealed batch. */
void wire_produce_renumber(wire_block *batch, int64_t id, int16_t epoch, int32_t sequence);

/* ---- wire_produce_id.c ------------------------------------------------------------------------------------------------------------- */

void wire_id_tick(wire_producer *p, int64_t now_us);
void wire_id_set(wire_producer *p, int64_t id, int16_t epoch); /* numbers begin at 0 */

/* ---- wire_txn.c ---------------------------------------------------------------------------------------------------------------------- */

typedef enum { WIRE_PASSING, WIRE_ABORT, WIRE_FATAL } wire_severity;
wire_severity wire_txn_severity(int code);
void wire_txn_tick(wire_producer *p, int64_t now_us);
/* The round is lost (the first reason counts), or the producer is. */
void wire_txn_fail(wire_producer *p, int code, const char *what);
void wire_producer_die(wire_producer *p, int code, const char *text);
/* One turn of the net and what follows from it, for up to timeout_ms. */
void wire_producer_turn(wire_producer *p, int timeout_ms);

/* ---- wire_txn_wire.c: what a transaction asks its coordinators. One request at a time; what came of it stands in the steps --------------------- */

void wire_txn_ask_join(wire_producer *p, int64_t now_us);
void wire_txn_ask_offsets(wire_producer *p, int64_t now_us); /* AddOffsetsToTxn before it, where that is wanted */
void wire_txn_ask_end(wire_producer *p, int64_t now_us);
void wire_txn_forget(wire_producer *p); /* the call under way */

/* the calls of bus_producer_ops */
void wire_txn_init(bus_handle *h, int timeout_ms, bus_said *ret);
void wire_txn_begin(bus_handle *h, bus_said *ret);
void wire_txn_offsets(bus_handle *h, const bus_places *list, const bus_group *g, int timeout_ms, bus_said *ret);
void wire_txn_commit(bus_handle *h, int timeout_ms, bus_said *ret);
void wire_txn_abort(bus_handle *h, int timeout_ms, bus_said *ret);
int wire_txn_ends_sent(bus_handle *h);

#endif
