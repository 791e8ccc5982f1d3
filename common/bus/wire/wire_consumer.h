/* wire_consumer.h - a consumer's state, shared by wire_consumer.c (polling, partitions), wire_fetch.c (records), wire_offsets.c (where a partition
 * begins, what a group has committed) and wire_group*.c (who has what).
 *
 *     assign ──▶ part: where it begins is asked for (wire_offsets) ──▶ fetched (wire_fetch) ──▶ chunks ──▶ runs ──▶ released
 *
 * A part that was moved has a new `version`: what was asked before is of no use when it comes. Nothing here is told to the owner but inside poll();
 * what comes at other times waits in `events`, `faults` and chunks. */
#ifndef PST_WIRE_CONSUMER_H
#define PST_WIRE_CONSUMER_H

#include "common/bus/wire/wire.h"
#include "common/bus/wire/wire_batch.h"
#include "common/bus/wire/wire_conf.h"

#include <pthread.h>

/* ---- partitions ----------------------------------------------------------------------------------------------------------------- */

typedef struct wire_abort { /* a transaction that came to nothing: from first on, until its marker */
    int64_t producer_id, first;
    bool over;
} wire_abort;

typedef struct wire_chunk { /* what one answer brought of a partition */
    struct wire_chunk *next;
    wire_block *block;
    wire_in left; /* batches that were not begun */
    wire_abort *aborts;
    size_t n_aborts;
    int64_t end; /* offset behind it */
    size_t bytes;
} wire_chunk;

typedef enum { WIRE_AT_COMMITTED, WIRE_AT_LOGICAL, WIRE_AT_OFFSET } wire_where;

typedef struct wire_part {
    uint32_t uses;     /* of those who asked for something of it, and its place in the consumer's list */
    uint32_t version;  /* it was moved */
    const char *topic; /* the consumer's, for as long as that lives */
    int32_t partition;
    bool gone, paused;
    bool asking; /* where it begins is being asked for */
    wire_where where;
    int64_t logical;  /* WIRE_AT_LOGICAL: PST_OFFSET_…, or TAIL */
    int64_t next;     /* to be handed out; WIRE_AT_OFFSET from here on */
    int64_t fetch;    /* to be fetched: behind what lies in chunks */
    int64_t high;     /* where it ends, as the last answer told; -1 = not known */
    int64_t end_told; /* the end was told here; -1 = not since it was moved */
    int64_t fresh_us; /* an end counts if it was asked for since */
    int64_t ended_us; /* when an answer that told the end was asked for; 0 = none was */
    int64_t not_before_us;
    int64_t told_us; /* when a fault of it was told last */
    /* KIP-320: leader's epochs of the last batch that was fetched, and of the last that was read; -1 = not known */
    int32_t fetch_epoch, read_epoch;
    int64_t lost_from, lost_to; /* offsets that were read, and of which another history is there now; lost_to 0 = none */
    int64_t broken_at;          /* where it could not be read, and how often in a row */
    unsigned broken_times;
    uint32_t asked; /* version + 1 in which it is being fetched; 0 = it is not */
    int32_t bytes_max;
    int32_t replica; /* KIP-392; -1 = the leader */
    int64_t replica_until_us;
    wire_chunk *first, *last;
    size_t bytes; /* of its chunks */
    bool reading; /* `records` stands in a batch of the first chunk */
    wire_records records;
} wire_part;

static inline wire_part *wire_part_use(wire_part *p)
{
    p->uses++;
    return p;
}
void wire_part_drop(wire_part *p);

/* ---- who is fetched from ---------------------------------------------------------------------------------------------------------- */

typedef struct wire_asked { /* a partition in a fetch session, or in a fetch */
    wire_part *part;
    uint32_t version;
    int64_t offset;
    int32_t epoch;  /* of its leader, as it was told */
    int32_t last;   /* epoch of what was fetched last, likewise */
    uint8_t id[16]; /* of the topic, as it was asked for */
    bool listed;    /* scratch */
} wire_asked;

/* One fetch session (KIP-227) with one broker. There are two: one for partitions that are known to have more, which is answered at once, and one for those
 * at their end, whose answer the broker holds back until something comes. In one, what was read up would wait for what has nothing. */
typedef struct wire_source {
    struct wire_consumer *of;
    int32_t node;
    bool waits;
    wire_call *call;
    int32_t session, epoch;
    wire_asked *has; /* what the session holds */
    size_t n, cap;
    size_t room; /* bytes that its answer may have */
    int64_t not_before_us;
} wire_source;

typedef struct wire_held { /* a block that handed-out records point into */
    wire_block *block;
    size_t n;
} wire_held;

/* ---- news that wait for poll() ----------------------------------------------------------------------------------------------------- */

typedef struct wire_event { /* a rebalance */
    struct wire_event *next;
    bus_change change;
    bool incremental;
    bus_places places;
    int32_t generation; /* of the membership in which they are given */
    char *member;
} wire_event;

typedef struct wire_fault {
    struct wire_fault *next;
    int code;
    const char *topic; /* or NULL */
    int32_t partition;
    int64_t offset;
    char text[600];
} wire_fault;

/* ---- the group's ways ---------------------------------------------------------------------------------------------------------------- */

typedef struct wire_group wire_group;

typedef struct wire_consumer {
    wire_handle h;
    wire_conf *conf;
    char *name; /* of the group; NULL = none */
    char *instance;
    /* settings */
    bool reset_error;
    int64_t reset_to;    /* PST_OFFSET_BEGINNING or PST_OFFSET_END */
    size_t inflight_max; /* queued.max.messages.kbytes */
    /* partitions */
    wire_part **parts;
    size_t n_parts, parts_cap, turn; /* turn: whose it is to give */
    char **topics;                   /* every topic there ever was; their names live as long as the consumer */
    size_t n_topics, topics_cap;
    wire_source **sources;
    size_t n_sources, sources_cap;
    wire_held *held;
    size_t n_held, held_cap, last_held;
    size_t chunk_bytes, fetch_room; /* what lies in chunks; what fetches under way may bring */
    size_t unpacked;                /* bytes of unpacked batches: read, or handed out and not released */
    /* positions that are asked for */
    struct wire_where_ask *wheres; /* under way */
    /* the group */
    wire_group *member; /* NULL = none */
    wire_event *events, **events_end;
    wire_fault *faults, **faults_end;
    wire_fault *told; /* the one that was told last: what the run says lies here */
    size_t n_faults;
    int64_t turned_us;
    int fatal_code;
    char fatal_text[300];
    bool fatal_told;
    /* bus_quiet asks from a thread of its own: on a net of its own, opened by the first such question */
    pthread_t owner;
    pthread_mutex_t side_lock;
    wire_handle side;
} wire_consumer;

const char *wire_topic_name(wire_consumer *c, const char *name, size_t len);
wire_part *wire_part_find(wire_consumer *c, const char *topic, int32_t partition);
/* It stands here from now on: >= 0, logical, or BUS_OFFSET_NONE for what is committed. */
void wire_part_move(wire_consumer *c, wire_part *p, int64_t offset);
void wire_fault_add(wire_consumer *c, int code, const char *topic, int32_t partition, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void wire_consumer_die(wire_consumer *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* wire_fetch.c */
void wire_fetch_work(wire_consumer *c, int64_t now_us); /* sends what is due */
void wire_fetch_done(wire_consumer *c);
int64_t wire_fetch_due_us(const wire_consumer *c); /* when wire_fetch_work has to be called again; INT64_MAX = when something comes */

/* wire_read.c */
void wire_part_clear(wire_consumer *c, wire_part *p); /* what was fetched of it */
/* Takes over the list of aborts; records lie in the answer's block, and go up to `end`. */
void wire_chunk_add(wire_consumer *c, wire_part *p, const wire_answer *a, wire_str records, int64_t end, wire_abort *aborts, size_t n);
/* Records of this part, up to max; 0 = none is there, or they wait until others are released. A fault was added where its bytes are broken. */
size_t wire_part_read(wire_consumer *c, wire_part *p, pst_record *room, size_t max, size_t bytes);
void wire_part_broken(wire_consumer *c, wire_part *p, const pst_err *why); /* what stands at ->next cannot be read */

/* wire_offsets.c */
void wire_offsets_work(wire_consumer *c, int64_t now_us);
void wire_offsets_done(wire_consumer *c);
int64_t wire_offsets_due_us(const wire_consumer *c);
int wire_offsets_commit(wire_consumer *c, const bus_places *list, int timeout_ms);

/* wire_group.c */
int wire_group_new(wire_consumer *c, const char *const *topics, size_t n, wire_group **ret);
void wire_group_free(wire_group *g);
void wire_group_work(wire_consumer *c, int64_t now_us);
int64_t wire_group_due_us(const wire_consumer *c);
void wire_group_tell(wire_consumer *c); /* rebalances that wait are told, and answered by the owner inside */
void wire_group_leave(wire_consumer *c, bool for_good, int wait_ms);
int wire_group_commit_code(wire_consumer *c, int code); /* a commit was refused: what that means for the membership */
bus_group *wire_group_now(wire_consumer *c);
bool wire_group_gave(wire_consumer *c, const bus_group *g);
bool wire_group_has(const wire_consumer *c); /* it is a member */

#endif
