/* bus.h - Kafka, as this platform uses it: batches of borrowed record views in, records and transactions out, a little admin.
 * A client library stands behind it (bus_client.h): librdkafka, 2.0.2 and newer, in rdkafka/.
 *
 *     pst_consumer *c; pst_batch b;
 *     pst_consumer_new(conf, &(pst_consumer_opts){.group = "g", .topics = topics, .n_topics = 1, .start = PST_START_EARLIEST}, &c, &err);
 *     while (!pst_stop_requested()) {
 *         rc = pst_consumer_poll(c, &(pst_poll){.records_max = 512, .age_max_us = 5000, .timeout_ms = 100}, &b, &err);
 *         for (size_t i = 0; i < b.n; i++) use(&b.records[i]);          // views die at the next poll of c
 *         pst_consumer_commit(c, &b, &err);                               // or pst_txn_commit()
 *     }
 *
 * Threads: a consumer and a producer each belong to one thread; delivery reports come from pst_producer_poll() on that thread.
 * Defaults that differ from librdkafka's: read_committed, range assignor, reconnect within 1 s, lz4, murmur2 as Java's clients, records given up
 * after 10 min without a broker (transactions: transaction.timeout.ms, 60 s). On the in-memory broker set fetch.wait.max.ms=10: there an empty
 * fetch sleeps it out. A user's properties win, except those the guarantees rest on (commits, idempotence, acks, ids, the isolation level and
 * where to start): those are ignored with a warning.
 * Errors: class RETRY = outage, go on calling (librdkafka reconnects; nothing exits because brokers are away);
 * FATAL = wrong credentials (PST_EAUTH), unknown property (PST_EINVAL). Fencing is handled inside pst_txn (recycle). */
#ifndef PST_BUS_H
#define PST_BUS_H

#include "common/base/buf.h"
#include "common/base/err.h"

/* ---- configuration: what to say to librdkafka ---------------------------------------------------------------------------- */

typedef struct pst_bus_conf pst_bus_conf; /* a list of librdkafka properties with their origins; immutable once in use */

pst_bus_conf *pst_bus_conf_new(const char *bootstrap, const char *client_id);
pst_bus_conf *pst_bus_conf_copy(const pst_bus_conf *conf);
void pst_bus_conf_free(pst_bus_conf *conf);
/* Unknown property or bad value: PST_EINVAL with the nearest known name. origin ("-X", "client.properties:3", "pipeline.yml:20",
 * "environment") is kept for config explain. Later sets win. Lines of Java clients are translated: sasl.jaas.config (Plain, Scram) →
 * sasl.username/password, ssl.truststore.location (PEM) → ssl.ca.location, …; key.serializer and the like are ignored;
 * schema.registry.* is not for us: returns PST_EAGAIN so that the caller may route it to the registry client. */
int pst_bus_conf_set(pst_bus_conf *conf, const char *key, const char *value, const char *origin, pst_err *err);
const char *pst_bus_conf_get(const pst_bus_conf *conf, const char *key); /* value set by us, or NULL */
/* Calls fn for each property that was set; secrets masked. */
void pst_bus_conf_each(const pst_bus_conf *conf, void (*fn)(void *arg, const char *key, const char *value, const char *origin), void *arg);
/* The client library is opened by the first property or client, or by this: PST_EUNSUPPORTED/FATAL with the cure where it is not there. */
int pst_bus_open(pst_err *err);
int pst_bus_list_properties(void *file, pst_err *err); /* every librdkafka property; file is a FILE * */
const char *pst_bus_version(void);                     /* "librdkafka 2.0.2" of the library loaded at run time */
/* Who carries the records of consumers and producers made of this: "rdkafka", "wire" (our own), or "auto": what PENSTOCK_BUS says, else librdkafka. After
 * the properties: one that it does not have is refused with the cure. Questions about the cluster (pst_bus_topics, …) are librdkafka's in any case. */
int pst_bus_conf_client(pst_bus_conf *conf, const char *name, pst_err *err);
const char *pst_bus_conf_client_name(const pst_bus_conf *conf);
/* NULL, or one sentence on why this configuration cannot work with the loaded librdkafka (SCRAM before 2.6.1 on Kafka 4) and the cure. */
const char *pst_bus_conf_warning(const pst_bus_conf *conf);

/* ---- records ------------------------------------------------------------------------------------------------------------- */

typedef struct pst_header {
    const char *name;
    const void *value; /* may be NULL */
    size_t len;
} pst_header;

/* A borrowed view of one consumed record. */
typedef struct pst_record {
    const char *topic;
    uint32_t topic_index; /* of it among the consumer's topics, or of the first range of it among its ranges */
    int32_t partition;
    int64_t offset;
    int64_t timestamp_ms; /* -1 = none */
    const void *key;      /* NULL = no key */
    size_t key_len;
    const void *value; /* NULL = tombstone */
    size_t value_len;
    bool has_headers;
    const struct bus_client *client; /* who read it; for pst_record_headers */
    void *native;                    /* what that one knows it by */
} pst_record;

typedef struct pst_batch {
    const pst_record *records;
    size_t n;
    size_t bytes; /* keys and values */
    bool eof;     /* every assigned partition was at its end when the poll returned (only with opts.report_eof) */
    bool lost;    /* partitions were revoked or lost, or positions reset, since the last poll: records polled earlier and not
                              committed will come again; drop state that depends on them */
} pst_batch;

/* Fills up to max headers, returns how many there are. Borrowed like the record. */
size_t pst_record_headers(const pst_record *r, pst_header *ret_headers, size_t max);
/* Room for headers, which grows with what records bring; {0} to begin with. */
typedef struct pst_header_room {
    pst_header *at;
    size_t cap;
} pst_header_room;
/* All headers of a record into room->at, with place for `spare` more behind them; returns how many. */
size_t pst_record_headers_all(const pst_record *r, pst_header_room *room, size_t spare);
void pst_header_room_done(pst_header_room *room);

/* ---- consumer ------------------------------------------------------------------------------------------------------------ */

typedef enum { PST_START_EARLIEST = 0, PST_START_LATEST, PST_START_TIMESTAMP } pst_start;

typedef struct pst_range { /* one partition, [from, to) */
    const char *topic;
    int32_t partition;
    int64_t from; /* offset; PST_OFFSET_BEGINNING, PST_OFFSET_END, or PST_OFFSET_TAIL(n) */
    int64_t to;   /* exclusive; -1 = no end */
} pst_range;
#define PST_OFFSET_BEGINNING (-2)
#define PST_OFFSET_END       (-1)
#define PST_OFFSET_TAIL(n)   (-2000 - (int64_t)(n))

typedef struct pst_consumer_opts {
    const char *group; /* NULL: no group, ranges or all partitions of topics are assigned */
    const char *const *topics;
    size_t n_topics;
    const pst_range *ranges; /* instead of topics (only without group) */
    size_t n_ranges;
    pst_start start;       /* where to begin with no committed offset */
    int64_t start_ms;      /* PST_START_TIMESTAMP */
    bool read_uncommitted; /* default read_committed */
    bool report_eof;
    const char *instance_id; /* static membership; NULL = dynamic */
    /* A static member whose transactional id is a prefix and its instance id. How those of its peers in the group begin; then what a killed one left
     * open is ended as soon as it has left the group, instead of after its time-out. NULL = there are none. */
    const char *peers;
    size_t inflight_bytes_max; /* librdkafka's queue; 0 = 64 MiB */
    /* The coordinator keeps the consumer waiting (why), and has answered (NULL). On the consumer's thread, inside its calls; may be NULL. */
    void (*on_wait)(void *arg, const char *why);
    /* What lies at this offset can never be read (a damaged batch), and its partition stands there alone until somebody mends it: said once, and again every
     * ten minutes. The first record at or behind it says that it is over. As on_wait; NULL: the poll's error says it. */
    void (*on_unreadable)(void *arg, const char *topic, int32_t partition, int64_t offset, const char *why);
    void *arg;
} pst_consumer_opts;

typedef struct pst_poll {
    size_t records_max; /* 0 = 512 */
    size_t bytes_max;   /* 0 = 1 MiB */
    int64_t age_max_us; /* return once the oldest record of the batch waited this long; 0 = do not wait for more */
    int timeout_ms;     /* wait this long for the first record */
} pst_poll;

typedef struct pst_consumer pst_consumer;

/* Creating does not need a reachable broker (topics → all partitions needs metadata: then up to 10 s, PST_EUNREACH / PST_ENOTFOUND). */
int pst_consumer_new(const pst_bus_conf *conf, const pst_consumer_opts *opts, pst_consumer **ret_consumer, pst_err *err);
/* Returns 0 with ret_batch->n ≥ 0. An outage is not an error here: n = 0 and err filled with class RETRY, return 0, go on polling.
 * < 0: FATAL. Views stay valid until the next poll or free. Stops early when pst_stop_requested(). */
int pst_consumer_poll(pst_consumer *c, const pst_poll *how, pst_batch *ret_batch, pst_err *err);
/* Commits offset+1 of the records of this batch (synchronous). RETRY on outage, PST_EFENCED when the partitions were taken away. */
int pst_consumer_commit(pst_consumer *c, const pst_batch *b, pst_err *err);
/* Marks a single position (offset of the next record to read) in place of whole batches; committed by commit_marked or pst_txn_commit.
 * Ignored for a partition that is not assigned (any more) and beyond what was handed out since it was. */
void pst_consumer_mark(pst_consumer *c, const char *topic, int32_t partition, int64_t next_offset);
int pst_consumer_commit_marked(pst_consumer *c, pst_err *err);
/* Moves. One that fails leaves the position unknown: this and every later call gives PST_ESTATE, FATAL, until the consumer is opened anew. */
int pst_consumer_rewind(pst_consumer *c, pst_err *err); /* back to the committed offsets of the assignment; spoils an open round */
/* All assigned partitions, until false is said and the consumer polled. Serve it meanwhile. */
int pst_consumer_pause(pst_consumer *c, bool pause);
/* Marks behind the target are lowered to it. In a round of pst_txn: never forward (PST_ESTATE), and behind what was sent it spoils the round. */
int pst_consumer_seek(pst_consumer *c, const char *topic, int32_t partition, int64_t offset, pst_err *err);
/* This record cannot be used now: its partition alone stands at it and is paused, for wait_ms, twice as long each time in a row that it is held
 * there, wait_max_ms at most. The others go on. A partition that was taken away meanwhile is left to its new owner. */
int pst_consumer_hold(pst_consumer *c, const char *topic, int32_t partition, int64_t offset, int wait_ms, int wait_max_ms, pst_err *err);
bool pst_consumer_holds(const pst_consumer *c); /* any */
bool pst_consumer_held(pst_consumer *c, const char *topic, int32_t partition);
/* Serves the group while the records of the last poll are still in use; the consumer has to be paused. ret_lost as in pst_batch: what is made of
 * those records must be thrown away. < 0 as pst_consumer_poll. */
int pst_consumer_serve(pst_consumer *c, int timeout_ms, bool *ret_lost, pst_err *err);
/* At its end a static member leaves the group, too: its partitions go to others at once instead of after session.timeout.ms. */
void pst_consumer_leave(pst_consumer *c);
/* Partitions now assigned; ret_ranges[i].from = position. Returns the count. */
size_t pst_consumer_assignment(pst_consumer *c, pst_range *ret_ranges, size_t max);
/* The group has given it its share, if only an empty one. */
bool pst_consumer_joined(const pst_consumer *c);
/* Changes whenever partitions are taken away. */
uint64_t pst_consumer_epoch(const pst_consumer *c);
/* Known lag (high watermark or last stable offset − position) over the assignment; -1 = not known yet. No round trip. */
int64_t pst_consumer_lag(pst_consumer *c);
/* Lag is 0, and every partition has told something since it stood still, as while a commit took long: records that came meanwhile are no part of lag. */
bool pst_consumer_at_end(pst_consumer *c);
void pst_consumer_free(pst_consumer *c); /* leaves the group, bounded in time */

/* ---- producer ------------------------------------------------------------------------------------------------------------ */

typedef struct pst_delivery {
    void *opaque;
    int code; /* 0 or PST_E… */
    const char *topic;
    int32_t partition;
    int64_t offset;
    const char *text; /* of the error */
} pst_delivery;

typedef struct pst_producer_opts {
    const char *transactional_id;                          /* NULL: idempotent, no transactions */
    int transaction_timeout_ms;                            /* 0 = 60000: longer than the longest outage to survive */
    int linger_ms;                                         /* -1 = librdkafka's; 0 for commands */
    void (*on_delivery)(void *arg, const pst_delivery *d); /* from pst_producer_poll/flush, on the caller's thread; may be NULL */
    void *arg;
} pst_producer_opts;

typedef struct pst_out {
    const char *topic;
    int32_t partition; /* -1: by key (murmur2, as Java's) */
    const void *key;   /* NULL = none */
    size_t key_len;
    const void *value; /* NULL = tombstone; copied */
    size_t value_len;
    int64_t timestamp_ms; /* 0 = now */
    const pst_header *headers;
    size_t n_headers;
    void *opaque; /* comes back in pst_delivery */
} pst_out;

typedef struct pst_producer pst_producer;

int pst_producer_new(const pst_bus_conf *conf, const pst_producer_opts *opts, pst_producer **ret_producer, pst_err *err);
/* Queues a copy. Full queue: serves deliveries up to timeout 10 s, then PST_EAGAIN/RETRY. PST_ELIMIT/DATA: larger than message.max.bytes. */
int pst_producer_send(pst_producer *p, const pst_out *out, pst_err *err);
/* Records for this topic will come: its partitions are looked up now, so that the first record does not wait a second for it. */
void pst_producer_expect(pst_producer *p, const char *topic);
int pst_producer_poll(pst_producer *p, int timeout_ms); /* deliveries served */
/* Waits until all is acknowledged; reports the first failed delivery since the last flush. PST_ETIMEDOUT/RETRY when still waiting. */
int pst_producer_flush(pst_producer *p, int timeout_ms, pst_err *err);
size_t pst_producer_pending(const pst_producer *p);
void pst_producer_free(pst_producer *p);
/* One record, acknowledged, or an error: for verbs. ret_partition/ret_offset may be NULL. */
int pst_publish(const pst_bus_conf *conf, const pst_out *out, int timeout_ms, int32_t *ret_partition, int64_t *ret_offset, pst_err *err);

/* ---- consume → state → produce, in one transaction ------------------------------------------------------------------------ */

/* Owns a transactional producer and recycles it after any uncertain step (bus_txn.c says why): aborted, timed out,
 * fenced although alone, more than one EndTxn sent. In plain mode (embedded broker, at_least_once) the same calls send, flush and commit.
 *
 *     pst_txn_new(conf, "penstock.trainer", PST_TXN_EXACTLY_ONCE, consumer, &t, &err)
 *     loop: poll → pst_txn_begin → pst_txn_send… → pst_txn_commit(t, &err)
 *       0            effects and offsets are durable: apply state, acknowledge
 *       PST_EAGAIN   nothing happened: everything since begin was aborted and the consumer is rewound to its committed offsets;
 *                    drop in-memory effects of the round and go on
 *       PST_EFENCED  another instance with this id was seen twice to take over: stop (service exits, standby waits)
 *       PST_ESTATE   the consumer's position is not known any more: open both anew
 *       PST_ESTOPPED told to stop while the broker is away: the fate is found out by the next start
 *       other        FATAL (authorisation) */
typedef enum { PST_TXN_EXACTLY_ONCE = 0, PST_TXN_AT_LEAST_ONCE } pst_txn_mode;
typedef struct pst_txn pst_txn;

/* Takes the id over: what a predecessor that was killed left open under it is aborted from here on, in the background, so that neither the
 * consumer (which is not told where to start while the group has offsets in an open transaction) nor readers of its output wait for
 * transaction.timeout.ms. Does not wait for a broker; the first begin does. consumer may be NULL (produce-only transactions); borrowed. */
int pst_txn_new(const pst_bus_conf *conf, const char *transactional_id, pst_txn_mode mode, pst_consumer *consumer, pst_txn **ret_txn,
                pst_err *err);
/* Records for this topic will come: it is looked up now and by every new producer, so that the first record does not wait a second for it. */
void pst_txn_expect(pst_txn *t, const char *topic);
/* Waits through outages (returns PST_ESTOPPED when told to stop). PST_EFENCED and PST_EAUTH as for commit. */
int pst_txn_begin(pst_txn *t, pst_err *err);
/* What is sent from here on is made of this record of the consumer (borrowed; NULL = of none). The round then commits only if a mark behind it
 * is set: nothing is sent twice because an offset was forgotten. */
void pst_txn_of(pst_txn *t, const pst_record *r);
/* What the round sends, as a whole, is made of this record among others: the same debt, for those who send after they have read all of them. */
void pst_txn_owes(pst_txn *t, const pst_record *r);
/* Is this Kafka's word against this consumer or producer (fenced, dead, its position not known), and not one that the next ones would hear as well
 * (no right, a wrong setting, a record too large)? Then both are opened again, and what is not committed comes again. For what polls, rewinds and transactions say. */
bool pst_bus_reopens(int rc, const pst_err *err);
/* Did a topic refuse a record for what it is (no key where it is compacted, a time that it does not take)? Said of the PST_EAGAIN of a commit, too: the
 * same round again will be refused again. */
bool pst_bus_refuses_record(const pst_err *err);
int pst_txn_timeout_ms(const pst_txn *t);                       /* the broker aborts a round that is older */
int pst_txn_send(pst_txn *t, const pst_out *out, pst_err *err); /* PST_ELIMIT/DATA: record too large, the round is unharmed */
/* A value written straight to where the producer keeps it: append it to *ret_value, then send it. Of `head` everything but the value counts, and what
 * it points to stays until then. Whatever else is sent or reserved meanwhile forgets it, so does not sending it. PST_ESTATE: no round is open. */
int pst_txn_reserve(pst_txn *t, const pst_out *head, pst_buf **ret_value, pst_err *err);
int pst_txn_send_reserved(pst_txn *t, pst_err *err); /* as pst_txn_send */
/* What was learnt about the largest record that a topic takes is forgotten: its setting may have been changed. */
void pst_txn_forget_limit(pst_txn *t, const char *topic);
/* Offsets sent: those marked with pst_consumer_mark since begin. */
int pst_txn_commit(pst_txn *t, pst_err *err);
int pst_txn_abort(pst_txn *t, pst_err *err); /* rewinds the consumer */
/* {commits, aborts, recycles} since start, for metrics. */
void pst_txn_counts(const pst_txn *t, uint64_t ret_counts[3]);
void pst_txn_free(pst_txn *t);

/* ---- dead letters --------------------------------------------------------------------------------------------------------- */

typedef struct pst_dead_letter {
    const pst_record *record; /* original key, value, headers are kept as they are */
    const char *component;    /* pipeline or service name → __connect.errors.connector.name */
    const char *stage;        /* DECODE MAP INFER ENCODE PRODUCE → __connect.errors.stage */
    const char *
        reason; /* bad-envelope unknown-schema schema-mismatch limits bad-input null-value too-large … → exception.class.name, x-dlq-reason */
    const char *message; /* cut at 1 kB, no payload → exception.message */
    bool own_time;       /* the letter has the time of its writing, and the record's in x-dlq-timestamp: the topic does not take that one */
} pst_dead_letter;
/* Builds the pst_out (headers in the caller's room, texts in the caller's buffer) to be sent by pst_txn_send / pst_producer_send. Every header
 * of the record is kept, those of an earlier dead letter excepted. */
void pst_dead_letter_out(const pst_dead_letter *d, const char *topic, pst_header_room *room, pst_buf *texts, pst_out *ret_out);

/* ---- admin ---------------------------------------------------------------------------------------------------------------- */

typedef struct pst_topic_spec {
    const char *name;
    int partitions;             /* -1 = broker's default */
    int replication;            /* -1 = broker's default */
    const char *const *configs; /* k, v, k, v, … NULL */
} pst_topic_spec;

typedef struct pst_topic_info {
    char *name;
    int partitions;
    int64_t *low, *high; /* per partition; only from pst_admin_topic */
} pst_topic_info;

/* Existing topics are fine. On a broker without admin (embedded) a metadata request creates them. */
int pst_admin_create_topics(const pst_bus_conf *conf, const pst_topic_spec *topics, size_t n, int timeout_ms, pst_err *err);
int pst_admin_list(const pst_bus_conf *conf, pst_topic_info **ret_topics, size_t *ret_n, int timeout_ms, pst_err *err);
int pst_admin_topic(const pst_bus_conf *conf, const char *topic, pst_topic_info *ret_info, int timeout_ms,
                    pst_err *err); /* with watermarks; PST_ENOTFOUND */
void pst_topic_info_done(pst_topic_info *t);
/* One setting of a topic, as the broker applies it ("cleanup.policy" → "compact"); free() it. PST_ENOTFOUND, PST_EAUTH, PST_EUNSUPPORTED (the
 * in-memory broker). */
int pst_admin_topic_config(const pst_bus_conf *conf, const char *topic, const char *key, char **ret_value, int timeout_ms, pst_err *err);
int pst_admin_offset_at(const pst_bus_conf *conf, const char *topic, int32_t partition, int64_t timestamp_ms, int64_t *ret_offset,
                        pst_err *err);
/* Broker answers at all? cluster id (free()) and broker count. */
int pst_admin_ping(const pst_bus_conf *conf, int timeout_ms, char **ret_cluster_id, int *ret_brokers, pst_err *err);
typedef struct pst_group_lag {
    char *group, *topic;
    int32_t partition;
    int64_t committed, end; /* committed -1 = none; end -1 = not known, its topic is gone */
    int64_t next;           /* where the group reads on: from committed; else from its beginning there. -1 = only its members know */
    int64_t
        lag; /* offsets from there to the end; 0 too where they hold no record (bus_tail.c), if the caller may read the topic; -1 = not known */
} pst_group_lag;
typedef struct pst_tail { /* the last n records in [low, end) of a partition */
    const char *topic;
    int32_t partition;
    int64_t low, end;
    int64_t n;    /* > 0; takes 8 bytes each */
    int64_t from; /* told: where they begin, or the first if there are fewer; end = there is none */
    bool known;   /* told: false after an error where it was not found out yet */
} pst_tail;
/* Records as a reader is given them: markers of transactions are none, nor are aborted records unless uncommitted. Reads them; < 0: not allowed, or not in
 * time (PST_ETIMEDOUT, RETRY). No partition twice. */
int pst_admin_tail(const pst_bus_conf *conf, pst_tail *parts, size_t n, bool uncommitted, int timeout_ms, pst_err *err);
/* group NULL = all groups. Of the topics of which a group has committed something, or which its members have: every partition. */
int pst_admin_lag(const pst_bus_conf *conf, const char *group, pst_group_lag **ret_rows, size_t *ret_n, int timeout_ms, pst_err *err);
void pst_group_lag_free(pst_group_lag *rows, size_t n);

#endif
