/* records.c - producing through outages. A source reads something that does not wait for Kafka, so each decides what a full queue means: the reader of
 * a file waits, the sampler of this computer loses a record and counts it. What librdkafka retries by itself is left to it; what it hands back as
 * "again later" is tried each half second, with the reason in the log once in a while. */
#include "common/base/retry.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "producers/sources/sources.h"
#include "common/platform/client.h"

#include <stdio.h>
#include <string.h>

enum { ADMIN_TIMEOUT_MS = 10000, POLL_MS = 50, RETRY_MS = 500 };

bool source_feed_wait(pst_err *e)
{
    return pst_retry("source", e, RETRY_MS);
}

static void on_delivery(void *arg, const pst_delivery *d)
{
    source_feed *f = arg;
    if (!d->code)
        f->delivered++;
    else if (!f->lost++)
        snprintf(f->why, sizeof f->why, "%s", d->text ? d->text : "not acknowledged");
}

int source_feed_open(source_feed *f, pst_client *client, const char *topic, int partitions, pst_err *err)
{
    *f = (source_feed){.client = client, .topic = topic};
    const pst_topic_spec spec = {topic, partitions, -1, NULL};
    for (;;) {
        pst_err e = {0};
        int rc = pst_admin_create_topics(client->bus, &spec, 1, ADMIN_TIMEOUT_MS, &e);
        if (!rc)
            break;
        if (e.cls != PST_CLASS_RETRY) {
            *err = e;
            return rc;
        }
        if (!source_feed_wait(&e))
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "source", 0, "stopped");
    }
    return pst_producer_new(client->bus, &(pst_producer_opts){.linger_ms = 5, .on_delivery = on_delivery, .arg = f}, &f->producer, err);
}

int source_feed_send(source_feed *f, const void *key, size_t key_len, const void *value, size_t len, int64_t timestamp_ms, bool wait,
                     pst_err *err)
{
    const pst_out out = {
        .topic = f->topic, .partition = -1, .key = key, .key_len = key_len, .value = value, .value_len = len, .timestamp_ms = timestamp_ms};
    for (;;) {
        pst_err e = {0};
        int rc = pst_producer_send(f->producer, &out, &e);
        if (!rc) {
            f->sent++;
            return 0;
        }
        if (e.cls == PST_CLASS_RETRY && !wait) {
            if (!f->lost++)
                snprintf(f->why, sizeof f->why, "%.190s", e.text);
            pst_log_err("source", &e);
            return 0;
        }
        if (e.cls != PST_CLASS_RETRY) {
            *err = e;
            return rc;
        }
        if (!source_feed_wait(&e))
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "source", 0, "stopped");
    }
}

int source_feed_flush(source_feed *f, int timeout_ms, pst_err *err)
{
    return f->producer ? pst_producer_flush(f->producer, timeout_ms, err) : 0;
}

void source_feed_close(source_feed *f)
{
    pst_producer_free(f->producer);
    f->producer = NULL;
}

bool source_feed_until(source_feed *f, int64_t mono_us)
{
    pst_producer_poll(f->producer, 0);
    for (int64_t left; !pst_stop_requested() && (left = mono_us - pst_mono_us()) > 0;) {
        if (left > 2000)
            pst_producer_poll(f->producer, left > POLL_MS * 1000 ? POLL_MS : (int)(left / 1000));
        else
            pst_sleep_ms(1);
    }
    return !pst_stop_requested();
}
