/* sources.h - `penstock source`: producers of user records, for demonstrations, tests and first steps. */
#ifndef PST_SOURCES_H
#define PST_SOURCES_H

#include "common/base/opt.h"
#include "common/platform/client.h"
#include "common/bus/bus.h"

int source_telemetry(int argc, char **argv); /* argv[0] = "telemetry"; exit status */
int source_file(int argc, char **argv);
extern const pst_usage pst_source_telemetry_usage, pst_source_file_usage;

/* ---- what both have in common (records.c) ---------------------------------------------------------------------------------- */

/* A producer of one topic that lives through outages. @thread one. */
typedef struct source_feed {
    pst_client *client;
    const char *topic;
    pst_producer *producer;
    int64_t sent, delivered, lost; /* lost: given up by librdkafka (message.timeout.ms), or no room left */
    char why[200];                 /* of the first one lost */
    int32_t schema_id;             /* of an own schema; 0 = none */
} source_feed;

/* Creates the topic when it is missing; waits through outages. PST_ESTOPPED when told to stop. The feed must not move. */
int source_feed_open(source_feed *f, pst_client *client, const char *topic, int partitions, pst_err *err);
/* wait: as long as the queue is full; else such a record is lost (and counted). */
int source_feed_send(source_feed *f, const void *key, size_t key_len, const void *value, size_t len, int64_t timestamp_ms, bool wait,
                     pst_err *err);
/* Waits until everything is acknowledged, at most timeout_ms. */
int source_feed_flush(source_feed *f, int timeout_ms, pst_err *err);
void source_feed_close(source_feed *f);
/* Logs an outage and waits half a second; false when told to stop. */
bool source_feed_wait(pst_err *e);
/* Sleeps until this monotonic time; false when told to stop meanwhile. Serves deliveries. */
bool source_feed_until(source_feed *f, int64_t mono_us);

#endif
