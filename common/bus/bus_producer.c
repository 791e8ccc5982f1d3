/* bus_producer.c - records out: an idempotent producer with delivery reports on the caller's thread, and pst_publish for verbs.
 *
 * message.timeout.ms is 10 minutes by default (librdkafka: 5; transactions: the transaction's time-out): a broker may be away that long before
 * a queued record is given up and reported. A client that declares itself dead (fatal) is replaced at the next send, poll or flush, and what it had
 * not sent goes out with the next one (bus_carry.c). */
#include "common/bus/bus_internal.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_MS               100
#define QUEUE_FULL_WAIT_MS     10000
#define MESSAGE_TIMEOUT_MS     600000
#define TRANSACTION_TIMEOUT_MS 60000
#define REPORTS_MS             2000
#define RECORD_OVERHEAD        70 /* batch header and the record's own lengths: an upper bound */

/* ---- news --------------------------------------------------------------------------------------------------------------------- */

static void on_fault(void *producer, int code, const char *reason)
{
    bus_health_note(&((pst_producer *)producer)->health, code, reason);
}

static void note_done(pst_producer *p, const bus_delivered *d)
{
    bus_health_ok(&p->health);
    if (strcmp(p->done_topic, d->topic) != 0) /* once a record: a comparison is much cheaper than printing */
        snprintf(p->done_topic, sizeof p->done_topic, "%s", d->topic);
    p->done_partition = d->partition;
    p->done_offset = d->offset;
}

static void note_failed(pst_producer *p, const bus_delivered *d, pst_err *ret_err)
{
    bus_err(ret_err, p->conf, d->code, d->reason, "topic %s: record not delivered", d->topic);
    if (bus_is_outage(d->code) && p->health.last.code) { /* "timed out" alone does not say why */
        size_t n = strlen(ret_err->text);
        snprintf(ret_err->text + n, sizeof ret_err->text - n, "; %.200s", p->health.last.text);
    }
    if (!p->failed.code || bus_is_purge(p->failed_code) ||
        p->failed_code == BUS_ERR__INVALID_DIFFERENT_RECORD) { /* what was dropped in consequence explains nothing */
        p->failed = *ret_err;
        p->failed_code = d->code;
        snprintf(p->failed_topic, sizeof p->failed_topic, "%s", d->topic);
    }
}

void bus_producer_delivered(void *producer, const bus_delivered *d)
{
    pst_producer *p = producer;
    pst_err e = {0};
    PST_ASSERT(p->pending > 0);
    p->pending--;
    if (d->unsent && !p->transactional_id && !p->ending && bus_code(d->code, NULL) != PST_EAUTH) {
        bus_carry(p, d);
        return;
    }
    if (d->code)
        note_failed(p, d, &e);
    else
        note_done(p, d);
    if (p->opts.on_delivery) {
        pst_delivery report = {.opaque = d->opaque,
                               .code = e.code,
                               .topic = d->topic,
                               .partition = d->partition,
                               .offset = d->offset,
                               .text = e.code ? e.text : NULL};
        p->opts.on_delivery(p->opts.arg, &report);
    }
}

/* ---- life ---------------------------------------------------------------------------------------------------------------------- */

int bus_producer_open(pst_producer *p, pst_err *err)
{
    const bus_producer_needs needs = {.transactional_id = p->transactional_id,
                                      .transaction_timeout_ms =
                                          p->opts.transaction_timeout_ms > 0 ? p->opts.transaction_timeout_ms : TRANSACTION_TIMEOUT_MS,
                                      .message_timeout_ms = p->message_timeout_ms ? p->message_timeout_ms : MESSAGE_TIMEOUT_MS,
                                      .impatient = p->message_timeout_ms != 0, /* pst_publish: an unknown topic is said early */
                                      .linger_ms = p->opts.linger_ms,
                                      .batch_bytes = p->batch_bytes};
    const bus_listener to = {.owner = p, .fault = on_fault, .delivered = bus_producer_delivered};
    PST_ASSERT(!p->link.h);
    p->pending = 0;
    memset(&p->health.fatal, 0, sizeof p->health.fatal);
    p->health.fatal_code = 0;
    p->link.lib = bus_client_of(p->conf);
    return p->link.lib->producer->open(p->conf, &needs, &to, &p->link.h, err);
}

void bus_producer_close(pst_producer *p)
{
    if (!p->link.h)
        return;
    p->link.lib->producer->settle(p->link.h);
    bus_destroy(p->link);
    p->link.h = NULL;
    p->pending = 0;
}

static void producer_free(pst_producer *p)
{
    bus_carry_done(p);
    pst_bus_conf_free(p->conf);
    free(p->transactional_id);
    free(p);
}

static void destroy_and_free(void *arg)
{
    pst_producer *p = arg;
    if (p->link.h) {
        p->link.lib->producer->settle(p->link.h);
        p->link.lib->common->free(p->link.h);
    }
    producer_free(p);
}

int pst_producer_new(const pst_bus_conf *conf, const pst_producer_opts *opts, pst_producer **ret_producer, pst_err *err)
{
    pst_producer *p = pst_alloc(sizeof *p);
    p->conf = pst_bus_conf_copy(conf);
    p->health.conf = p->conf;
    p->opts = *opts;
    p->transactional_id = pst_strdup(opts->transactional_id);
    p->opts.transactional_id = p->transactional_id;
    p->bytes_max = (size_t)bus_conf_number(conf, "message.max.bytes", 1000000);
    p->done_offset = -1;
    int rc = bus_producer_open(p, err);
    if (rc < 0) {
        producer_free(p);
        return rc;
    }
    *ret_producer = p;
    return 0;
}

void pst_producer_free(pst_producer *p)
{
    if (!p)
        return;
    p->opts.on_delivery = NULL;
    p->ending = true;
    bus_bounded(destroy_and_free, p, pst_stop_forced() ? 1000 : 5000, "producer");
}

/* ---- send ------------------------------------------------------------------------------------------------------------------------ */

size_t bus_out_bytes(const pst_out *out)
{
    size_t n = RECORD_OVERHEAD + out->key_len + out->value_len;
    for (size_t i = 0; i < out->n_headers; i++)
        n += strlen(out->headers[i].name) + out->headers[i].len + 10;
    return n;
}

int bus_produce(pst_producer *p, const pst_out *out, size_t n)
{
    size_t sent;
    int code = p->link.lib->producer->send(p->link.h, out, n, &sent);
    p->pending += sent;
    return code;
}

int bus_produce_reserved(pst_producer *p)
{
    int code = p->link.lib->producer->send_reserved(p->link.h);
    p->pending += !code;
    return code;
}

/* Dead producer: refused for good (auth), else gone, so that another can be had. */
static int revive(pst_producer *p, pst_err *err)
{
    char why[300] = "";
    int code = bus_fatal(p->link, why, sizeof why);
    bus_serve(p->link, 0);
    if (bus_code(code, NULL) == PST_EAUTH || p->transactional_id)
        return bus_err(err, p->conf, code, why, "the producer was refused");
    pst_log(PST_LOG_DEBUG, "bus", "event=producer_replaced code=%s why=\"%s\"", bus_code_name(code), why);
    p->link.lib->producer->drop(p->link.h, true);
    int64_t until = pst_mono_us() + REPORTS_MS * 1000LL;
    while (p->pending && pst_mono_us() < until) /* reports of what was lost with it */
        bus_serve(p->link, SLICE_MS);
    if (p->pending && !p->failed.code) {
        p->failed_code = code;
        bus_err(&p->failed, p->conf, code, why, "%zu records: the client died and did not say what became of them", p->pending);
    }
    bus_producer_close(p);
    return 0;
}

/* Its client died, or could not be had before: another takes over what was not sent. */
static int look_after(pst_producer *p, pst_err *err)
{
    int rc = p->link.h && bus_fatal(p->link, NULL, 0) ? revive(p, err) : 0;
    if (rc < 0 || p->link.h)
        return rc;
    rc = bus_producer_open(p, err);
    if (rc == 0)
        bus_carry_on(p);
    return rc;
}

int pst_producer_send(pst_producer *p, const pst_out *out, pst_err *err)
{
    size_t bytes = bus_out_bytes(out);
    if (bytes > p->bytes_max)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "kafka", BUS_ERR_MSG_SIZE_TOO_LARGE,
                           "topic %s: a record of %zu bytes is larger than message.max.bytes=%zu", out->topic, bytes, p->bytes_max);
    int rc = look_after(p, err);
    if (rc < 0)
        return rc;
    int64_t until = 0; /* the clock is asked only when the queue is full */
    int code;
    while ((code = bus_produce(p, out, 1)) == BUS_ERR__QUEUE_FULL) {
        if (!until)
            until = pst_mono_us() + QUEUE_FULL_WAIT_MS * 1000LL;
        if (p->health.fatal.code)
            return bus_health_take(&p->health, err);
        if (pst_mono_us() >= until || pst_stop_forced())
            return pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "kafka", code,
                               "topic %s: %zu records wait to be sent and the queue is full%s%.200s", out->topic, p->pending,
                               p->health.last.code ? ": " : "", p->health.last.text);
        bus_serve(p->link, SLICE_MS);
    }
    return code ? bus_err(err, p->conf, code, NULL, "topic %s: cannot send", out->topic) : 0;
}

/* A topic that the first record brings is looked up by librdkafka's one-second timer; one that was named before is looked up as soon as a
 * broker is connected. */
void pst_producer_expect(pst_producer *p, const char *topic)
{
    if (p->link.h)
        p->link.lib->producer->expect(p->link.h, topic);
}

int pst_producer_poll(pst_producer *p, int timeout_ms)
{
    int served = p->link.h ? bus_serve(p->link, timeout_ms) : 0;
    if (p->n_carried)
        look_after(p, NULL); /* what cannot be now is told by the next send or flush */
    return served;
}

size_t pst_producer_pending(const pst_producer *p)
{
    return p->pending + p->n_carried;
}

/* A record that failed is told before one that is still waiting, and what the connection says before "not acknowledged". In slices, so that being told
 * to stop by force is heard. */
int pst_producer_flush(pst_producer *p, int timeout_ms, pst_err *err)
{
    int64_t until = pst_mono_us() + timeout_ms * 1000LL;
    while (pst_producer_pending(p)) {
        int64_t left = (until - pst_mono_us()) / 1000;
        if (left <= 0 || pst_stop_forced())
            break;
        if (p->n_carried && look_after(p, err) < 0)
            break;
        if (p->health.fatal.code)
            break;
        p->link.lib->producer->flush(p->link.h, left < SLICE_MS ? (int)left : SLICE_MS);
    }
    if (p->link.h)
        bus_serve(p->link, 0);
    if (p->failed.code) {
        pst_err failed = p->failed;
        memset(&p->failed, 0, sizeof p->failed);
        if (err && !err->code)
            *err = failed;
        return failed.code;
    }
    int rc = bus_health_take(&p->health, NULL);
    if (rc < 0 && pst_producer_pending(p))
        return bus_health_take(&p->health, err);
    if (!pst_producer_pending(p))
        return 0;
    return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_RETRY, "kafka", BUS_ERR__TIMED_OUT, "%zu records are not acknowledged after %d ms",
                       pst_producer_pending(p), timeout_ms);
}

/* ---- one record --------------------------------------------------------------------------------------------------------------------- */

typedef struct published {
    bool done;
    int32_t partition;
    int64_t offset;
} published;

static void on_published(void *arg, const pst_delivery *d)
{
    published *r = arg;
    r->done = !d->code;
    r->partition = d->partition;
    r->offset = d->offset;
}

int pst_publish(const pst_bus_conf *conf, const pst_out *out, int timeout_ms, int32_t *ret_partition, int64_t *ret_offset, pst_err *err)
{
    published result = {0};
    pst_producer *p = pst_alloc(sizeof *p);
    p->conf = pst_bus_conf_copy(conf);
    p->health.conf = p->conf;
    p->opts = (pst_producer_opts){.on_delivery = on_published, .arg = &result};
    p->bytes_max = (size_t)bus_conf_number(conf, "message.max.bytes", 1000000);
    p->message_timeout_ms = timeout_ms > 100 ? timeout_ms : 100;
    int rc = bus_producer_open(p, err);
    if (rc < 0) {
        producer_free(p);
        return rc;
    }
    pst_producer_expect(p, out->topic);
    rc = pst_producer_send(p, out, err);
    /* librdkafka's own time-out tells more than ours: give it the time to do so. */
    if (!rc)
        rc = pst_producer_flush(p, timeout_ms + 1000, err);
    if (!rc && !result.done)
        rc = pst_err_set(err, PST_EIO, PST_CLASS_RETRY, "kafka", 0, "topic %s: no acknowledgement", out->topic);
    if (rc == PST_ETIMEDOUT && err && err->code == rc && p->health.outages && !p->health.worked)
        err->code = rc = PST_EUNREACH; /* no broker ever answered */
    if (!rc) {
        if (ret_partition)
            *ret_partition = result.partition;
        if (ret_offset)
            *ret_offset = result.offset;
    }
    pst_producer_free(p);
    return rc;
}
