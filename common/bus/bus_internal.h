/* bus_internal.h - what the files of common/bus share: a client behind its tables, configuration, error classes, what pst_txn sees of a consumer and
 * of a producer. Nobody outside common/bus and its tests includes this file. */
#ifndef PST_BUS_INTERNAL_H
#define PST_BUS_INTERNAL_H

#include "common/bus/bus_client.h"

/* ---- the client behind ---------------------------------------------------------------------------------------------------- */

const bus_client *bus_client_default(void);
/* That of its consumers and producers; questions about the cluster are the default's. */
const bus_client *bus_client_of(const pst_bus_conf *conf);

typedef struct bus_link { /* one client of one library; h NULL = none is open */
    const bus_client *lib;
    bus_handle *h;
} bus_link;

static inline int bus_serve(bus_link l, int timeout_ms)
{
    return l.lib->common->serve(l.h, timeout_ms);
}

/* Why the client is dead for good, 0 = it lives. */
static inline int bus_fatal(bus_link l, char *text, size_t size)
{
    return l.lib->common->fatal(l.h, text, size);
}

/* ---- places ----------------------------------------------------------------------------------------------------------------- */

bus_places *bus_places_new(void);
void bus_places_free(bus_places *list); /* NULL-safe */
void bus_members_done(bus_members *m);  /* what group_members gave */
bus_place *bus_places_add(bus_places *list, const char *topic, int32_t partition);
bus_place *bus_places_find(const bus_places *list, const char *topic, int32_t partition);
bus_places *bus_places_copy(const bus_places *list);
int bus_places_code(const bus_places *list); /* the first that is not 0 */
/* What the group has committed of them, asked for once. The code of the call, or of the first place that has one. */
int bus_committed(bus_link l, bus_places *list, int timeout_ms);

/* ---- configuration ------------------------------------------------------------------------------------------------------- */

bus_prop_scope bus_prop_find(const char *key);

/* What to do with a property written for Java clients. */
typedef enum { BUS_JAVA_NONE, BUS_JAVA_SET, BUS_JAVA_IGNORE, BUS_JAVA_REGISTRY, BUS_JAVA_ERROR } bus_java_verdict;
typedef struct bus_java {
    bus_kv set[3]; /* librdkafka properties to set; key NULL ends */
    char a[1024], b[1024];
    const char *why; /* for ignored ones */
} bus_java;
bus_java_verdict bus_java_translate(const char *key, const char *value, bus_java *ret, pst_err *err);
int64_t bus_conf_number(const pst_bus_conf *conf, const char *key, int64_t otherwise);

/* ---- errors ---------------------------------------------------------------------------------------------------------------- */

typedef struct bus_health {
    const pst_bus_conf *conf; /* for the texts; borrowed */
    bool worked;              /* a broker has answered with something since creation: from then on refusals may be passing */
    bool no_group;            /* a group-less consumer: errors of the group are not its business */
    int64_t refused_since_us; /* first refusal of the running series, 0 = none */
    unsigned resets;          /* atomic: how often a position was moved because its records are gone; librdkafka's threads add */
    uint64_t outages;         /* how many times librdkafka said that a broker is away */
    pst_err last;             /* newest passing error since it was taken */
    pst_err fatal;            /* first fatal one */
    int fatal_code;
} bus_health;

void bus_health_ok(bus_health *h);
void bus_health_note(bus_health *h, int code, const char *reason);
/* The fatal error → its code; else a passing one is moved into err (which may be NULL) and 0 returned. */
int bus_health_take(bus_health *h, pst_err *err);

/* PST_E… and class of a librdkafka or broker code. */
int bus_code(int code, pst_err_class *ret_class);
/* Fills err: "<what>: <reason>; <cure>". reason NULL = the library's text. Returns the PST_E… code. */
int bus_err(pst_err *err, const pst_bus_conf *conf, int code, const char *reason, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
const char *bus_code_text(int code);
const char *bus_code_name(int code);
/* Away (broker, coordinator, leader) as opposed to a refusal or a mistake. */
bool bus_is_outage(int code);
/* Dropped from the queue, by us or because the producer died. */
bool bus_is_purge(int code);

/* Runs fn(arg) on its own thread and waits at most timeout_ms (1 s when told to stop twice); false = still running, then it goes on alone (fn owns arg). For
 * freeing a client and leaving a group, which may block for long when a broker is away: they wait for its answer. */
bool bus_bounded(void (*fn)(void *arg), void *arg, int timeout_ms, const char *what);
bool bus_destroy(bus_link l); /* bounded free; also of none; false = it goes on alone */

/* ---- how long things may take ---------------------------------------------------------------------------------------------- */

/* The consumer is polled within max.poll.interval.ms whatever else its thread does, or the group throws it out: long waits do it themselves
 * (bus_consumer_stay). A rebalance that comes meanwhile waits for us, and the group waits for nobody longer than that interval, so waits end before:
 * those for the coordinator after BUS_WAIT_MAX_MS, calls of the transactional API after their own time and HANG_MS more. */
#define BUS_POLL_INTERVAL_MS 300000
#define BUS_WAIT_MAX_MS      120000
_Static_assert(2 * BUS_WAIT_MAX_MS < BUS_POLL_INTERVAL_MS, "the group must not throw out a member that waits for its coordinator");

/* ---- consumer, seen by pst_txn ---------------------------------------------------------------------------------------------- */

typedef struct bus_part {
    char *topic;
    const char *name;     /* the same in the consumer's own list of topics, for as long as the consumer lives; NULL = not there */
    uint32_t topic_index; /* there */
    int32_t partition;
    int64_t base;   /* first offset handed out (or end seen) since assigned; -1 = none yet: where to go back to with nothing committed */
    int64_t next;   /* offset after the last record handed out; -1 = none yet */
    int64_t to;     /* exclusive end of a range; -1 = none */
    int64_t marked; /* offset to commit, -1 = none */
    int64_t owed;   /* offset behind the last record for which the open round sent something, -1 = none */
    int64_t assigned_us, held_until_us, hold_offset; /* held: paused alone at hold_offset until then; 0 = not */
    int holds;                                       /* in a row at hold_offset */
    int64_t heard_us;                                /* when it last gave something or was moved; while nothing flows it stands still */
    int64_t turn_us;                                 /* when it last gave something or had its turn */
    int64_t behind_us;                               /* since when it is known to hold more that does not come; 0 = it does not */
    int64_t committed;                               /* last offset known to be committed, -1 = not known */
    int64_t from;                                    /* where it was told to start (ranges) */
    int begun;                                       /* how many partitions its topic had when the group began, < 1 = not known */
    int64_t unreadable_us;                           /* when it was last said that what lies there can never be read; 0 = it can */
    bool eof, done;                                  /* at its end now; reached `to` for good */
    bool off;                                        /* paused in the client */
    bool unheard;                                    /* it stood still, and has not told since where its end is */
} bus_part;

/* Offsets marked (free them); NULL when nothing is marked. */
bus_places *bus_consumer_marked(pst_consumer *c);
/* A round begins and ends: its marks and debts are forgotten. */
void bus_consumer_begin(pst_consumer *c);
void bus_consumer_end(pst_consumer *c);
/* From a loop that waits for something else (a commit, the coordinator), as often as it likes: the client is polled once a second, so that the
 * group keeps this member. It is given nothing, and a rebalance that comes waits for the next poll: what the thread does rests on its partitions. */
void bus_consumer_stay(pst_consumer *c);
/* Offsets are committed under this transactional id: it goes with them, if the consumer has peers. */
void bus_consumer_sign(pst_consumer *c, const char *transactional_id);
/* Something was sent for this record. */
void bus_consumer_owe(pst_consumer *c, const char *topic, int32_t partition, int64_t offset);
/* 0: every debt is paid by a mark; else why the round cannot be committed (PST_ESTATE, RETRY). */
int bus_consumer_covered(const pst_consumer *c, pst_err *err);
/* The position is not known any more: every later call says so. Returns PST_ESTATE, FATAL. */
int bus_consumer_astray(pst_consumer *c, const pst_err *why, pst_err *err);
/* Remembers that these offsets are committed. */
void bus_consumer_committed(pst_consumer *c, const bus_places *offsets);
bus_link bus_consumer_link(const pst_consumer *c);
/* Changes whenever partitions are taken away: what was made from records of an earlier epoch must not be committed. */
uint64_t bus_consumer_epoch(const pst_consumer *c);
bool bus_consumer_in_group(const pst_consumer *c);
bus_part *bus_consumer_parts(pst_consumer *c, size_t *ret_n);

/* ---- producer, seen by pst_txn ------------------------------------------------------------------------------------------------ */

typedef struct bus_carried bus_carried;

struct pst_producer {
    bus_health health;
    pst_bus_conf *conf;
    pst_producer_opts opts;
    char *transactional_id;
    bus_link link;
    size_t bytes_max;   /* message.max.bytes */
    size_t batch_bytes; /* 0 = librdkafka's; lowered after a topic refused a batch */
    int message_timeout_ms;
    size_t pending;
    pst_err failed; /* first failed delivery since the last flush */
    int failed_code;
    char failed_topic[256];
    char done_topic[256]; /* one record delivered in this round: where to look whether a transaction was committed */
    int32_t done_partition;
    int64_t done_offset;   /* -1 = none */
    bus_carried **carried; /* what a dead client had not sent */
    size_t n_carried, carried_cap;
    bool ending; /* nothing is kept any more */
};

int bus_producer_open(pst_producer *p, pst_err *err); /* fills p->link */
void bus_producer_close(pst_producer *p);             /* drops everything queued and the client */
void bus_producer_delivered(void *producer, const bus_delivered *d);
/* bus_carry.c: kept for the next client; handed to it; forgotten. */
void bus_carry(pst_producer *p, const bus_delivered *unsent);
void bus_carry_on(pst_producer *p);
void bus_carry_done(pst_producer *p);
/* Size on the wire, as far as a limit is concerned. */
size_t bus_out_bytes(const pst_out *out);
/* Hands n records to the client, as far as it takes them; the code as it gives it. */
int bus_produce(pst_producer *p, const pst_out *out, size_t n);
/* The same of the one that was reserved in the client. */
int bus_produce_reserved(pst_producer *p);

/* ---- transactions ------------------------------------------------------------------------------------------------------------- */

typedef enum {
    TXN_OK = 0,
    TXN_RETRY,   /* call the same again with the same arguments */
    TXN_ABORT,   /* the round is lost, the producer is recycled */
    TXN_FENCED,  /* told that someone newer runs: recycle, then check (bus_fence_verdict) */
    TXN_RECYCLE, /* the producer is dead (fatal), its transaction's fate is to be found out */
    TXN_REFUSED  /* authorisation or configuration: stop */
} txn_class;

/* Pure; flags as the client tells them, code 0 = no error. */
txn_class txn_classify(bool fatal, bool abortable, bool retriable, int code);
const char *txn_class_name(txn_class c);

/* When fencings mean that somebody else really runs. Pure; state is the caller's. */
typedef struct txn_fence {
    int64_t first_us; /* of the series */
    int count;
    bool moved; /* somebody else committed offsets of ours meanwhile */
} txn_fence;
/* innocent: an outage, a time-out, or a transaction older than its limit explains it. True = give up (PST_EFENCED). */
bool txn_fence_add(txn_fence *f, int64_t now_us, bool innocent, bool moved);
#define TXN_FENCE_WINDOW_US (30 * 1000000LL)
#define TXN_FENCE_MAX       5

/* ---- admin ---------------------------------------------------------------------------------------------------------------------- */

/* max.message.bytes of a topic, or -1. */
int64_t bus_topic_bytes_max(const pst_bus_conf *conf, const char *topic, int timeout_ms);
/* Partition count; PST_ENOTFOUND when there is no such topic. Uses the client, which has h as its health (NULL = nobody may serve it here). */
int bus_partitions(bus_link l, bus_health *h, const char *topic, int timeout_ms, int *ret_n, pst_err *err);
/* One of its partitions does; false: or nobody answers. */
bool bus_lacks_leader(bus_link l, bus_health *h, const char *topic, int timeout_ms);
bool bus_is_embedded(bus_link l, int timeout_ms); /* librdkafka's in-memory cluster; false where nobody answers */
/* First offset at or after the time; PST_OFFSET_END when there is none. */
int bus_offsets_at(bus_link l, bus_health *h, bus_places *list, int64_t timestamp_ms, int timeout_ms, pst_err *err);

#endif
