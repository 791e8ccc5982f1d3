/* client.h - what every verb and service opens first: settings → Kafka configuration, registry, codec, object store.
 *
 *     pst_client *c;
 *     if (pst_client_open(&settings, "penstock-trainer", &c, &err) < 0) …
 *     pst_consumer_new(c->bus, …); pst_codec_decode(c->codec, …); topic = pst_client_topic(c, PST_TOPIC_JOBS_EVENTS);
 *
 * @thread members are as thread-safe as their headers say; the struct itself is read-only after open. */
#ifndef PST_COMMON_PLATFORM_CLIENT_H
#define PST_COMMON_PLATFORM_CLIENT_H

#include "common/base/err.h"
#include "common/platform/trace.h"
#include "schemas/events.h"
#include "schemas/topics.h"

/* Of the headers that a caller of their functions includes itself: base/settings.h, bus/bus.h, registry/registry.h, platform/codec.h. */
struct pst_settings;
struct pst_bus_conf;
struct pst_record;
struct pst_registry;
struct pst_codec;
struct pst_map;

typedef struct pst_client {
    const struct pst_settings *settings; /* borrowed */
    struct pst_bus_conf *bus;
    struct pst_registry *registry;
    struct pst_codec *codec;
    char *topics[PST_TOPIC_COUNT]; /* full names */
    pst_trace trace;               /* what this program is a part of: the environment's, until its owner sets another; or none */
} pst_client;

int pst_client_bus_conf(const struct pst_settings *settings, const char *client_id, struct pst_bus_conf **ret_conf, pst_err *err);
int pst_client_open(const struct pst_settings *settings, const char *client_id, pst_client **ret_client,
                    pst_err *err); /* connects to nothing */
void pst_client_close(pst_client *c);
const char *pst_client_topic(const pst_client *c, pst_topic t);
/* Encodes and publishes one event, with a step of the client's trace (none: of a new one), waits for its acknowledgement: for verbs. ret_partition/ret_offset may be NULL. */
int pst_client_publish(pst_client *c, pst_topic t, const pst_type *type, const char *key, const void *event, int timeout_ms,
                       int32_t *ret_partition, int64_t *ret_offset, pst_err *err);
/* Creates the platform's topics (those missing); registers all schemas of topics.def. */
int pst_client_create_topics(pst_client *c, pst_err *err);
int pst_client_register_schemas(pst_client *c, pst_err *err);

/* Reads a topic from the beginning to its present end (key NULL: all partitions; else only the partition of that key), calling fn for
 * every record (borrowed; key is NUL-terminated text). fn returns 0 to go on, 1 to stop, < 0 to fail. For verbs that answer from topics. */
typedef int (*pst_record_fn)(void *arg, const char *key, const struct pst_record *r, pst_err *err);
int pst_client_scan(pst_client *c, pst_topic t, const char *key, pst_record_fn fn, void *arg, pst_err *err);
/* The same for the records of a key that are not older than since_ms (Unix, by the records' timestamps). */
int pst_client_scan_since(pst_client *c, pst_topic t, const char *key, int64_t since_ms, pst_record_fn fn, void *arg, pst_err *err);
/* The JobState in a record of jobs.state. 1: there is none, somebody else wrote there; said on the log and left out, as the Trainer does. */
int pst_client_state(pst_client *c, const char *key, const struct pst_record *r, pst_job_state *ret_state, pst_err *err);
/* The latest JobState of every job, by its id, secrets masked; what only waits for its submission is no job. */
int pst_client_jobs(pst_client *c, struct pst_map *ret_jobs, pst_err *err);
void pst_client_jobs_done(struct pst_map *jobs);
/* The latest JobState of one job; PST_ENOTFOUND. */
int pst_client_job(pst_client *c, const char *training_id, pst_job_state *ret_state, pst_err *err);

#endif
