/* rdk.h - librdkafka (2.0.2 and newer) behind the bus: what the files of common/bus/rdkafka share. rdkafka.h is included here (by rdkafka_lib.h) and nowhere else.
 *
 *     rdk_conf.c       its properties, and a configuration made of ours
 *     rdk_client.c     what every client has; the table of what it brings (bus_client.h)
 *     rdk_consumer.c   polling, partitions; rdk_group.c: the group
 *     rdk_producer.c   sending, transactions                rdk_admin.c   questions to a cluster
 *     rdk_tsan.c       its threads under ThreadSanitizer    embedded.c       its in-memory cluster, for tests and `penstock broker`
 *
 * Every instance has an rdk as its opaque. Errors of the connection come from its error callback, on the thread that polls; its log goes to
 * pst_log(DEBUG) from any thread. The folder calls nothing of the bus: what it has to tell, it tells the listener. */
#ifndef PST_BUS_RDK_H
#define PST_BUS_RDK_H

#include "common/bus/bus_client.h"
#include "common/bus/rdkafka/rdkafka_lib.h" /* rdkafka.h, by pointers: the library is opened by rdk_conf_build(), and by what asks for properties */

typedef struct rdk_ticket rdk_ticket;
typedef struct rdk_rebalance rdk_rebalance;

typedef struct rdk { /* what a bus_handle is here */
    rd_kafka_t *rk;
    bus_listener to;
    char reason[400];         /* of the last fault */
    rd_kafka_message_t *news; /* the last end or fault that a poll gave: its topic's name is good until the next poll */
    bool gives_records;       /* a consumer: news and records share a queue */
    bool has_partitions;
    bool is_static;      /* a member with an instance id */
    bool stays;          /* a rebalance that comes now is kept */
    rdk_rebalance *kept; /* the first; NULL = none is */
    void *given;         /* the membership in which its partitions were given, as librdkafka writes it down; NULL = none were */
    size_t given_size;
    /* of a producer */
    bool transactional;
    rd_kafka_topic_t *topic; /* of the last record: to look it up takes a lock that its threads want, too */
    size_t pending;
    uint64_t sent;
    rdk_ticket *free_tickets, *ticket_blocks;
    int ends_sent; /* atomic: counted on librdkafka's threads */
    pst_buf room;  /* what was reserved */
    pst_out head;
} rdk;

static inline rdk *rdk_of(bus_handle *h)
{
    return (rdk *)h;
}

extern const bus_client pst_rdk_client;
extern const bus_conf_ops rdk_conf_ops;
extern const bus_consumer_ops rdk_consumer_ops;
extern const bus_producer_ops rdk_producer_ops;
extern const bus_admin_ops rdk_admin_ops;

/* ---- configuration ------------------------------------------------------------------------------------------------------- */

typedef enum { RDK_CONSUMER = 1, RDK_PRODUCER = 2, RDK_ADMIN = 4 } rdk_kind;

/* Defaults, then the user's properties that fit the kind, then `forced` (what the bus's guarantees rest on: a user's differing value is
 * ignored with a warning). Lists end with key NULL. Callbacks for errors and logs are set. */
rd_kafka_conf_t *rdk_conf_build(const pst_bus_conf *conf, rdk_kind kind, const bus_kv *defaults, const bus_kv *forced, rdk *h,
                                pst_err *err);
const char *rdk_conf_get(const pst_bus_conf *conf, const char *key);
/* rd_kafka_new with an error that names the property. Takes kconf in every case; fills h->rk. */
int rdk_new(rd_kafka_type_t type, rd_kafka_conf_t *kconf, rdk *h, pst_err *err);
void rdk_tsan(void);
void rdk_tell_kept(rdk *h); /* rebalances that were kept, in their order */
void rdk_kept_free(rdk *h);
bool rdk_keeps_assign(const rdk *h);                                                     /* one of them gives partitions */
void *rdk_membership(const rd_kafka_consumer_group_metadata_t *group, size_t *ret_size); /* written down; rd_kafka_mem_free() */

/* ---- lists --------------------------------------------------------------------------------------------------------------------- */

rd_kafka_topic_partition_list_t *rdk_list(const bus_places *places);           /* the caller's */
void rdk_list_back(rd_kafka_topic_partition_list_t *list, bus_places *places); /* what came of it, place by place; frees list */
void rdk_place_set(bus_place *place, const rd_kafka_topic_partition_t *tp);    /* offset, note, code */

/* ---- the group, of rdk_consumer_ops ------------------------------------------------------------------------------------------------ */

int rdk_commit(bus_handle *h, const bus_places *places, int timeout_ms);
bool rdk_gave(bus_handle *h, const bus_group *g);
bus_group *rdk_group(bus_handle *h);
void rdk_group_free(bus_group *g);
void rdk_leave(bus_handle *h);
void rdk_close(bus_handle *h);

void rdk_tickets_free(rdk *h); /* a producer's; its client is gone */

/* ---- every client ------------------------------------------------------------------------------------------------------------------ */

void rdk_free(bus_handle *h);
int rdk_fatal(bus_handle *h, char *text, size_t size);
/* What an error object says; destroys it. */
int rdk_error(rd_kafka_error_t *e, char *text, size_t size);

#endif
