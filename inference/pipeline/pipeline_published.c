/* pipeline_published.c - what a published pipeline may set under `kafka:`, in one table. A row ending in '*' allows every property that goes on from there; such
 * rows stand only where all that librdkafka has, or could sensibly come to have, under that beginning is numbers and switches. Left out on
 * purpose: what names a host, file, program or credential; what decides about loss and order (acks, idempotence, isolation, offsets,
 * assignment); `debug` and callbacks, which write records' bytes to logs; client.id, by which brokers give quotas. */
#include "inference/pipeline/pipeline_published.h"

#include <string.h>

static const char *const tuning[] = {
    /* consumer */
    "fetch.*",
    "queued.*",
    "max.partition.fetch.bytes",
    "check.crcs",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "coordinator.query.interval.ms",
    "client.rack",
    /* producer */
    "queue.buffering.*",
    "batch.*",
    "linger.ms",
    "compression.codec",
    "compression.type",
    "compression.level",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "sticky.partitioning.linger.ms",
    "message.max.bytes",
    "max.request.size",
    "message.copy.max.bytes",
    "message.timeout.ms",
    "delivery.timeout.ms",
    "message.send.max.retries",
    "retries",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "request.timeout.ms",
    "transaction.timeout.ms",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    /* Java's, without meaning here, as they come in copied files */
    "max.poll.records",
    "default.api.timeout.ms",
    "buffer.memory",
    "max.block.ms",
    /* both */
    "receive.message.max.bytes",
    "socket.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "send.buffer.bytes",
    "receive.buffer.bytes",
    "socket.keepalive.enable",
    "socket.nagle.disable",
    "socket.max.fails",
    "connections.max.idle.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "metadata.max.age.ms",
    "topic.metadata.refresh.interval.ms",
    "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.refresh.sparse",
    "topic.metadata.propagation.max.ms",
    "statistics.interval.ms",
};

const char *pst_published_tuning(size_t i)
{
    return i < sizeof(tuning) / sizeof(tuning[0]) ? tuning[i] : NULL;
}

bool pipeline_published_property(const char *key)
{
    for (size_t i = 0; i < sizeof(tuning) / sizeof(tuning[0]); i++) {
        size_t n = strlen(tuning[i]);
        bool open = tuning[i][n - 1] == '*';
        if (open ? !strncmp(key, tuning[i], n - 1) && key[n - 1] : !strcmp(key, tuning[i]))
            return true;
    }
    return false;
}

int64_t pipeline_published_most(const char *key)
{
    static const struct {
        const char *key;
        int64_t most;
    } rows[] = {{"fetch.max.bytes", 256 << 20},
                {"fetch.message.max.bytes", 256 << 20},
                {"max.partition.fetch.bytes", 256 << 20},
                {"receive.message.max.bytes", 256 << 20},
                {"message.max.bytes", 256 << 20},
                {"max.request.size", 256 << 20},
                {"batch.size", 256 << 20},
                {"message.copy.max.bytes", 256 << 20},
                {"queued.max.messages.kbytes", 1 << 20},
                {"queue.buffering.max.kbytes", 1 << 20},
                {"queue.buffering.max.messages", 10000000},
                {"queued.min.messages", 10000000}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!strcmp(key, rows[i].key))
            return rows[i].most;
    return 0;
}

bool pipeline_published_variable(const char *name, size_t len)
{
    size_t n = strlen(PST_PUBLISHED_ENV);
    return len > n && !strncmp(name, PST_PUBLISHED_ENV, n);
}
