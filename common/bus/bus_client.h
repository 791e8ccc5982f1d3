/* bus_client.h - the seam below the bus: what a library that speaks Kafka has to bring. librdkafka stands behind it in rdkafka/; bus_client.c is the
 * table of those there are.
 *
 *     bus.h                      what services see: consumers, producers, transactions, admin
 *     bus_*.c                    shared: where a consumer stands, marks, debts, holds, starts, waits; rounds and their fate; classes of errors
 *     bus_client.h   (here)      ──▶ calls down by these tables, news up by bus_listener
 *     rdkafka/                   one library's words, work-arounds and defaults; calls nothing of the bus
 *
 * What must hold of a client, because the shared part rests on it:
 *   - Records of a partition are handed out in the order of their offsets, none twice and none left out, from where it was assigned or moved to.
 *   - A run is of one partition; one that is read in place from a fetched batch is as long as the batch. What a run's records point to stays until
 *     they are released. The end of a partition is told once each time it is reached.
 *   - A code is the protocol's number, or one of those below zero here; whoever has more to say gives a text with it.
 *   - A call with a time-out may be late, but then does nothing any more after it has returned. The transactional calls are the exception: they are
 *     made on a thread that may be left behind with its handle (bus_txn_call.c), and a handle that was left is only freed.
 *   - Listeners are called inside poll() and serve() on the caller's thread; only moved() may come from any thread.
 * @thread one handle, one thread; fatal() and free() also from another once the owner has let go. */
#ifndef PST_BUS_CLIENT_H
#define PST_BUS_CLIENT_H

#include "common/bus/bus.h"

/* ---- codes ------------------------------------------------------------------------------------------------------------------ */

/* Below zero: what a client says by itself, by the numbers that librdkafka made common. Above: the protocol's. */
#define BUS_CODES(X)                             \
    X(_TRANSPORT, -195)                          \
    X(_RESOLVE, -193)                            \
    X(_MSG_TIMED_OUT, -192)                      \
    X(_PARTITION_EOF, -191)                      \
    X(_UNKNOWN_PARTITION, -190)                  \
    X(_UNKNOWN_TOPIC, -188)                      \
    X(_ALL_BROKERS_DOWN, -187)                   \
    X(_INVALID_ARG, -186)                        \
    X(_TIMED_OUT, -185)                          \
    X(_QUEUE_FULL, -184)                         \
    X(_SSL, -181)                                \
    X(_WAIT_COORD, -180)                         \
    X(_ASSIGN_PARTITIONS, -175)                  \
    X(_REVOKE_PARTITIONS, -174)                  \
    X(_CONFLICT, -173)                           \
    X(_STATE, -172)                              \
    X(_NOT_IMPLEMENTED, -170)                    \
    X(_AUTHENTICATION, -169)                     \
    X(_TIMED_OUT_QUEUE, -166)                    \
    X(_UNSUPPORTED_FEATURE, -165)                \
    X(_WAIT_CACHE, -164)                         \
    X(_PURGE_QUEUE, -152)                        \
    X(_PURGE_INFLIGHT, -151)                     \
    X(_FATAL, -150)                              \
    X(_INCONSISTENT, -149)                       \
    X(_MAX_POLL_EXCEEDED, -147)                  \
    X(_FENCED, -144)                             \
    X(_ASSIGNMENT_LOST, -142)                    \
    X(_AUTO_OFFSET_RESET, -140)                  \
    X(UNKNOWN, -1)                               \
    X(INVALID_MSG, 2)                            \
    X(UNKNOWN_TOPIC_OR_PART, 3)                  \
    X(LEADER_NOT_AVAILABLE, 5)                   \
    X(NOT_LEADER_FOR_PARTITION, 6)               \
    X(REQUEST_TIMED_OUT, 7)                      \
    X(BROKER_NOT_AVAILABLE, 8)                   \
    X(REPLICA_NOT_AVAILABLE, 9)                  \
    X(MSG_SIZE_TOO_LARGE, 10)                    \
    X(NETWORK_EXCEPTION, 13)                     \
    X(COORDINATOR_LOAD_IN_PROGRESS, 14)          \
    X(COORDINATOR_NOT_AVAILABLE, 15)             \
    X(NOT_COORDINATOR, 16)                       \
    X(TOPIC_EXCEPTION, 17)                       \
    X(RECORD_LIST_TOO_LARGE, 18)                 \
    X(NOT_ENOUGH_REPLICAS, 19)                   \
    X(NOT_ENOUGH_REPLICAS_AFTER_APPEND, 20)      \
    X(ILLEGAL_GENERATION, 22)                    \
    X(INCONSISTENT_GROUP_PROTOCOL, 23)           \
    X(INVALID_GROUP_ID, 24)                      \
    X(UNKNOWN_MEMBER_ID, 25)                     \
    X(INVALID_SESSION_TIMEOUT, 26)               \
    X(REBALANCE_IN_PROGRESS, 27)                 \
    X(TOPIC_AUTHORIZATION_FAILED, 29)            \
    X(GROUP_AUTHORIZATION_FAILED, 30)            \
    X(CLUSTER_AUTHORIZATION_FAILED, 31)          \
    X(INVALID_TIMESTAMP, 32)                     \
    X(UNSUPPORTED_SASL_MECHANISM, 33)            \
    X(ILLEGAL_SASL_STATE, 34)                    \
    X(UNSUPPORTED_VERSION, 35)                   \
    X(TOPIC_ALREADY_EXISTS, 36)                  \
    X(INVALID_PARTITIONS, 37)                    \
    X(INVALID_REPLICATION_FACTOR, 38)            \
    X(INVALID_REPLICA_ASSIGNMENT, 39)            \
    X(INVALID_CONFIG, 40)                        \
    X(NOT_CONTROLLER, 41)                        \
    X(INVALID_REQUEST, 42)                       \
    X(POLICY_VIOLATION, 44)                      \
    X(OUT_OF_ORDER_SEQUENCE_NUMBER, 45)          \
    X(INVALID_PRODUCER_EPOCH, 47)                \
    X(INVALID_TXN_STATE, 48)                     \
    X(INVALID_TRANSACTION_TIMEOUT, 50)           \
    X(CONCURRENT_TRANSACTIONS, 51)               \
    X(TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 53) \
    X(SECURITY_DISABLED, 54)                     \
    X(KAFKA_STORAGE_ERROR, 56)                   \
    X(SASL_AUTHENTICATION_FAILED, 58)            \
    X(UNKNOWN_PRODUCER_ID, 59)                   \
    X(FENCED_INSTANCE_ID, 82)                    \
    X(INVALID_RECORD, 87)                        \
    X(UNSTABLE_OFFSET_COMMIT, 88)                \
    X(PRODUCER_FENCED, 90)
enum {
    BUS_ERR_NO_ERROR = 0,
#define X(name, number) BUS_ERR_##name = (number),
    BUS_CODES(X)
#undef X
        BUS_ERR__INVALID_DIFFERENT_RECORD = -138, /* newer than 2.0.2: another record of its batch was refused */
};

/* ---- places ----------------------------------------------------------------------------------------------------------------- */

#define BUS_OFFSET_NONE (-1001) /* of a place: nothing is known or committed */

typedef struct bus_place {
    char *topic;
    int32_t partition;
    int64_t offset; /* or PST_OFFSET_…, BUS_OFFSET_NONE */
    char *note;     /* the metadata of a committed offset; NULL = none */
    int code;       /* what came of it */
} bus_place;

typedef struct bus_places {
    bus_place *at;
    size_t n, cap;
} bus_places;

/* ---- what is configured ------------------------------------------------------------------------------------------------------ */

typedef struct bus_prop {
    char *key, *value, *origin;
} bus_prop;

struct pst_bus_conf {
    bus_prop *props;
    size_t n;
    const struct bus_client *client; /* of consumers and producers; NULL = bus_client_default() */
};

typedef struct bus_kv {
    const char *key, *value;
} bus_kv;

typedef enum { BUS_PROP_UNKNOWN = 0, BUS_PROP_CONSUMER = 1, BUS_PROP_PRODUCER = 2, BUS_PROP_BOTH = 3 } bus_prop_scope;

/* What of a client's library concerns properties; any thread. */
typedef struct bus_conf_ops {
    int (*open)(pst_err *err); /* the library is there from now on, or FATAL with the cure; before find, names, check and list */
    bus_prop_scope (*find)(const char *key);
    const char *const *(*names)(size_t *ret_n);
    /* Does it take this value? 0, or PST_EINVAL and why. */
    int (*check)(const char *key, const char *value, char *why, size_t size);
    void (*list)(void *file);                         /* prints them all; a FILE * */
    const char *(*warning)(const pst_bus_conf *conf); /* why this cannot work with the library that is loaded; NULL = it can */
    const char *(*version)(void);
} bus_conf_ops;

/* ---- news -------------------------------------------------------------------------------------------------------------------- */

typedef struct bus_handle bus_handle; /* one client; each library makes of it what it likes */

/* Partitions come (LOST: are gone already, to somebody else) and go. */
typedef enum { BUS_ASSIGNED, BUS_REVOKED, BUS_LOST } bus_change;

typedef struct bus_delivered {
    int code; /* 0 = acknowledged */
    const char *reason;
    const char *topic;
    int32_t partition;
    int64_t offset;
    void *opaque;
    const pst_out *unsent; /* the client died, and this record was not written: as it was given, until the call returns; NULL = else */
    uint64_t nth;          /* of an unsent record: its place among what this client was given, since reports come in any order */
} bus_delivered;

typedef struct bus_listener {
    void *owner;
    void (*fault)(void *owner, int code, const char *reason); /* of the connection, a broker, the login; reason NULL = as the code says */
    void (*moved)(void *owner);                               /* a position was moved, because its records are gone; any thread */
    /* The owner answers by assign(). Of ASSIGNED the places may be changed: where to begin, and the note. incremental: the list is what changes. */
    void (*rebalance)(void *owner, bus_change change, bus_places *list, bool incremental);
    void (*delivered)(void *owner, const bus_delivered *d);
    bool (*give_up)(void *owner); /* a wait for an answer need not go on; NULL = it must */
} bus_listener;

/* ---- every client -------------------------------------------------------------------------------------------------------------- */

typedef struct bus_topic {
    int code; /* what the broker says of the topic */
    int partitions;
    bool lacks_leader; /* one of them does */
} bus_topic;

/* Questions are asked once, for timeout_ms at most; who wants to ask again does so. They return a code. */
typedef struct bus_common_ops {
    int (*serve)(bus_handle *h, int timeout_ms); /* news, how many; of a consumer that was given partitions none: they come with its poll */
    int (*fatal)(bus_handle *h, char *text, size_t size); /* the client is dead and why; 0 = it lives */
    int (*topic)(bus_handle *h, const char *name, int timeout_ms, bus_topic *ret);
    /* First offset at or after the time that stands in each place's offset, PST_OFFSET_END = none; for PST_OFFSET_END itself the end. */
    int (*offsets_at)(bus_handle *h, bus_places *list, int timeout_ms);
    int (*watermarks)(bus_handle *h, const char *topic, int32_t partition, int timeout_ms, int64_t *ret_low, int64_t *ret_high);
    int (*committed)(bus_handle *h, bus_places *list, int timeout_ms); /* of its group; offset, note, code of each */
    char *(*cluster_id)(bus_handle *h, int timeout_ms);                /* free(); NULL = nobody answers */
    void (*free)(bus_handle *h);                                       /* may block while a broker is away */
    const char *(*code_text)(int code);
    const char *(*code_name)(int code);
} bus_common_ops;

/* ---- consumer ------------------------------------------------------------------------------------------------------------------ */

typedef struct bus_consumer_needs {
    const char *group, *instance_id; /* NULL = none */
    bool read_uncommitted, latest;   /* latest: where nothing is committed */
    size_t inflight_bytes;
    int poll_interval_ms;
} bus_consumer_needs;

typedef enum { BUS_RUN_NONE, BUS_RUN_RECORDS, BUS_RUN_END, BUS_RUN_FAULT } bus_run_kind;

typedef struct bus_run {
    bus_run_kind kind;
    size_t n;          /* RECORDS: so many lie in the room, of one partition, in order */
    const char *topic; /* valid until the next poll; FAULT: or NULL */
    int32_t partition;
    int64_t offset; /* END: where it is */
    int code;       /* FAULT */
    const char *reason;
} bus_run;

typedef struct bus_group bus_group; /* a membership, as a transaction sends it */

typedef struct bus_consumer_ops {
    int (*open)(const pst_bus_conf *conf, const bus_consumer_needs *needs, const bus_listener *to, bus_handle **ret, pst_err *err);
    int (*subscribe)(bus_handle *h, const char *const *topics, size_t n);
    int (*assign)(bus_handle *h, const bus_places *list); /* NULL = nothing */
    int (*assign_more)(bus_handle *h, const bus_places *list, char *why, size_t size);
    int (*assign_less)(bus_handle *h, const bus_places *list);
    /* Whether the records may be used now is the owner's affair: room is for `max` of them, bytes is a hint. */
    void (*poll)(bus_handle *h, int timeout_ms, pst_record *room, size_t max, size_t bytes, bus_run *ret);
    /* Polls without waiting, with room for one record. Rebalances that come are told by the next poll(), and not answered before. */
    void (*stay)(bus_handle *h, pst_record *room, bus_run *ret);
    void (*release)(bus_handle *h, const pst_record *records, size_t n);
    size_t (*headers)(const pst_record *r, pst_header *ret, size_t max); /* how many there are */
    int (*pause)(bus_handle *h, bus_places *list, bool pause);           /* a code for each, too */
    int (*seek)(bus_handle *h, bus_places *list, int timeout_ms, char *why, size_t size);
    int (*commit)(bus_handle *h, const bus_places *list, int timeout_ms);
    int (*known_end)(bus_handle *h, const char *topic, int32_t partition, int64_t *ret_end); /* without a question */
    bus_group *(*group)(bus_handle *h);              /* as the client knows it now, which may be ahead of what it has told */
    bool (*gave)(bus_handle *h, const bus_group *g); /* the partitions that it has told were given in this very membership */
    void (*group_free)(bus_group *g);
    void (*leave)(bus_handle *h); /* also a static member; before close */
    void (*close)(bus_handle *h); /* gives the partitions back */
} bus_consumer_ops;

/* ---- producer ------------------------------------------------------------------------------------------------------------------ */

typedef struct bus_producer_needs {
    const char *transactional_id;
    int transaction_timeout_ms;
    int message_timeout_ms;
    bool impatient;     /* an unknown topic is said early */
    int linger_ms;      /* < 0 = the library's */
    size_t batch_bytes; /* 0 = the library's */
} bus_producer_needs;

typedef struct bus_said { /* by a transactional call; all zero = done */
    int code;
    bool fatal, abortable, retriable;
    char text[300];
} bus_said;

typedef struct bus_producer_ops {
    int (*open)(const pst_bus_conf *conf, const bus_producer_needs *needs, const bus_listener *to, bus_handle **ret, pst_err *err);
    void (*expect)(bus_handle *h, const char *topic);
    /* Copies. A code, and how many went before it: _QUEUE_FULL is passing. */
    int (*send)(bus_handle *h, const pst_out *out, size_t n, size_t *ret_sent);
    /* Room for the value of one record, whose rest is known (what it points to stays until then): it is written at the end of the buffer, and
     * send_reserved() sends what was added. A second reserve() forgets the first. */
    pst_buf *(*reserve)(bus_handle *h, const pst_out *head);
    int (*send_reserved)(bus_handle *h);
    void (*flush)(bus_handle *h, int timeout_ms);
    void (*drop)(bus_handle *h, bool inflight); /* what waits, and what is under way */
    void (*settle)(bus_handle *h);              /* before free(): nothing waits any more */
    /* EndTxn requests that went out since it was last asked: a client may repeat them by itself. */
    int (*ends_sent)(bus_handle *h);
    void (*init)(bus_handle *h, int timeout_ms, bus_said *ret);
    void (*begin)(bus_handle *h, bus_said *ret);
    void (*offsets)(bus_handle *h, const bus_places *list, const bus_group *g, int timeout_ms, bus_said *ret);
    void (*commit)(bus_handle *h, int timeout_ms, bus_said *ret);
    void (*abort)(bus_handle *h, int timeout_ms, bus_said *ret);
} bus_producer_ops;

/* ---- admin: never on a data path --------------------------------------------------------------------------------------------------- */

typedef struct bus_members {
    char **instances; /* of those that have an instance id; free() each */
    size_t n;
    bus_places given; /* to any of them: partitions, without offsets */
    bool stable;      /* no rebalance is under way */
} bus_members;

/* Questions to a cluster: a code, and a text where it has more to say. Waits end with timeout_ms or when the listener gives up. */
typedef struct bus_admin_ops {
    int (*open)(const pst_bus_conf *conf, const char *group, bool may_create, const bus_listener *to, bus_handle **ret, pst_err *err);
    int (*topics)(bus_handle *h, int timeout_ms, pst_topic_info **ret_topics, size_t *ret_n, int *ret_brokers);
    /* Those that exist are fine. The first that failed is named in ret_topic, one of `topics`; where all did, it is left alone. */
    int (*create)(bus_handle *h, const pst_topic_spec *topics, size_t n, int timeout_ms, const char **ret_topic, char *why, size_t size);
    int (*topic_config)(bus_handle *h, const char *topic, const char *key, int timeout_ms, char **ret_value, char *why, size_t size);
    int (*groups)(bus_handle *h, int timeout_ms, char ***ret_names, char *why, size_t size); /* NULL at the end */
    /* Of all its partitions if `list` is empty, else of those. stable: none that an open transaction holds back. */
    int (*group_offsets)(bus_handle *h, const char *group, bool stable, int timeout_ms, bus_places *list, char *why, size_t size);
    int (*group_members)(bus_handle *h, const char *group, int timeout_ms, bus_members *ret, char *why, size_t size);
} bus_admin_ops;

typedef struct bus_client {
    const char *name;
    const bus_conf_ops *conf;
    const bus_common_ops *common;
    const bus_consumer_ops *consumer;
    const bus_producer_ops *producer;
    const bus_admin_ops *admin;
} bus_client;

#endif
