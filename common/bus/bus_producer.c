/* bus_producer.c - records out: an idempotent producer with delivery reports on the caller's thread, and pst_publish for verbs.
 *
 * message.timeout.ms is 10 minutes by default (librdkafka: 5; transactions: the transaction's time-out): a broker may be away that long before
 * a queued record is given up and reported. A producer that librdkafka declares dead (fatal) is replaced at the next send. */
#include "common/bus/bus_internal.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_MS           100
#define QUEUE_FULL_WAIT_MS 10000
#define MESSAGE_TIMEOUT_MS 600000
#define KAFKA_END_TXN      26
#define ANSWERS_MS         2000
#define RECORD_OVERHEAD    70 /* batch header and the record's own lengths: an upper bound */

/* ---- callbacks ---------------------------------------------------------------------------------------------------------------- */

static void dr_cb(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    pst_producer *p = opaque;
    const char *topic = m->rkt ? rd_kafka_topic_name(m->rkt) : "";
    pst_err e = {0};
    PST_ASSERT(p->pending > 0);
    p->pending--;
    if (!m->err) {
        bus_health_ok(&p->health);
        if (strcmp(p->done_topic, topic) != 0) /* once a record: a comparison is much cheaper than printing */
            snprintf(p->done_topic, sizeof p->done_topic, "%s", topic);
        p->done_partition = m->partition;
        p->done_offset = m->offset;
    } else {
        /* Purged because the producer died: tell why it died. Not rd_kafka_message_errstr(): of a produced record that is its payload. */
        rd_kafka_resp_err_t code = m->err;
        char reason[300];
        snprintf(reason, sizeof reason, "%s", rd_kafka_err2str(code));
        if (bus_is_purge(code) || code == RD_KAFKA_RESP_ERR__FATAL) {
            rd_kafka_resp_err_t why = rd_kafka_fatal_error(rk, reason, sizeof reason);
            code = why ? why : code;
        }
        bus_err(&e, p->conf, code, reason, "topic %s: record not delivered", topic);
        if (bus_is_outage(code) && p->health.last.code) { /* "timed out" alone does not say why */
            size_t n = strlen(e.text);
            snprintf(e.text + n, sizeof e.text - n, "; %.200s", p->health.last.text);
        }
        if (!p->failed.code || bus_is_purge(p->failed_code)) { /* what was dropped in consequence explains nothing */
            p->failed = e;
            p->failed_code = code;
            snprintf(p->failed_topic, sizeof p->failed_topic, "%s", topic);
        }
    }
    if (p->opts.on_delivery) {
        pst_delivery d = {.opaque = m->_private,
                          .code = e.code,
                          .topic = topic,
                          .partition = m->partition,
                          .offset = m->err ? -1 : m->offset,
                          .text = e.code ? e.text : NULL};
        p->opts.on_delivery(p->opts.arg, &d);
    }
}

/* Counts EndTxn requests: librdkafka re-sends them by itself and reports success, and a re-sent one may end a later transaction of the same
 * epoch. More than one → the producer is recycled. Called on librdkafka's broker threads. */
static rd_kafka_resp_err_t on_request_sent(rd_kafka_t *rk, int fd, const char *broker, int32_t id, int16_t api, int16_t version,
                                           int32_t corr, size_t size, void *opaque)
{
    if (api == KAFKA_END_TXN)
        __atomic_add_fetch((int *)opaque, 1, __ATOMIC_RELAXED);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t on_new(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *opaque, char *errstr, size_t size)
{
    return rd_kafka_interceptor_add_on_request_sent(rk, "penstock", on_request_sent, opaque);
}

/* ---- life ---------------------------------------------------------------------------------------------------------------------- */

int bus_producer_open(pst_producer *p, pst_err *err)
{
    char message_timeout[16], txn_timeout[16], linger[16], batch[16];
    int transaction_ms = p->opts.transaction_timeout_ms > 0 ? p->opts.transaction_timeout_ms : 60000;
    snprintf(message_timeout, sizeof message_timeout, "%d", p->message_timeout_ms ? p->message_timeout_ms : MESSAGE_TIMEOUT_MS);
    snprintf(txn_timeout, sizeof txn_timeout, "%d", transaction_ms);
    snprintf(linger, sizeof linger, "%d", p->opts.linger_ms);
    snprintf(batch, sizeof batch, "%zu", p->batch_bytes);
    bus_kv defaults[10] = {{"partitioner", "murmur2_random"}, {"compression.type", "lz4"}};
    bus_kv forced[8] = {{"enable.idempotence", "true"},
                        {"acks", "all"},
                        {"delivery.report.only.error", "false"},
                        {"transactional.id", p->transactional_id}};
    size_t d = 2, f = 4;
    if (p->opts.linger_ms >= 0)
        defaults[d++] = (bus_kv){"linger.ms", linger};
    if (p->transactional_id)
        defaults[d++] = (bus_kv){"transaction.timeout.ms", txn_timeout};
    else
        defaults[d++] = (bus_kv){"message.timeout.ms", message_timeout};
    if (p->message_timeout_ms) /* pst_publish: an unknown topic is said early */
        defaults[d++] = (bus_kv){"topic.metadata.propagation.max.ms", p->message_timeout_ms < 4000 ? "1000" : "2000"};
    if (p->transactional_id)
        forced[f++] = (bus_kv){"message.timeout.ms", NULL}; /* a user's may be longer than the transaction's: librdkafka sets it */
    if (p->batch_bytes)
        forced[f++] = (bus_kv){"batch.size", batch};
    rd_kafka_conf_t *k = bus_conf_build(p->conf, BUS_PRODUCER, defaults, forced, p, err);
    if (!k)
        return PST_EINVAL;
    rd_kafka_conf_set_dr_msg_cb(k, dr_cb);
    p->end_requests = pst_alloc(sizeof *p->end_requests);
    rd_kafka_conf_interceptor_add_on_new(k, "penstock", on_new, p->end_requests);
    if (p->tune)
        k = p->tune(k);
    p->pending = 0;
    memset(&p->health.fatal, 0, sizeof p->health.fatal);
    p->health.fatal_code = 0;
    p->rk = bus_new(RD_KAFKA_PRODUCER, k, err);
    if (!p->rk) {
        free(p->end_requests);
        p->end_requests = NULL;
    }
    return p->rk ? 0 : PST_EINVAL;
}

/* Drops what waits, and gives the requests under way a moment to be answered.
 *
 * rd_kafka_destroy() of a transactional producer (2.0.2 to 2.12 at least) frees the text of its transaction's error while the broker threads still
 * run; a Produce answer that says "fenced" in that moment frees it once more, and the program dies of a broken heap. A producer that was fenced
 * has often a second such answer on its way: so it is not destroyed under it. */
static void settle_down(pst_producer *p)
{
    rd_kafka_purge(p->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING);
    int64_t until = pst_mono_us() + ANSWERS_MS * 1000LL;
    while (p->transactional_id && p->pending && pst_mono_us() < until && !pst_stop_hurry())
        rd_kafka_poll(p->rk, 10);
    rd_kafka_purge(p->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

void bus_producer_close(pst_producer *p)
{
    if (!p->rk)
        return;
    settle_down(p);
    if (bus_destroy(p->rk))
        free(p->end_requests); /* else the interceptor may still write there: a few bytes are the price */
    p->end_requests = NULL;
    p->rk = NULL;
    p->pending = 0;
}

static void producer_free(pst_producer *p)
{
    pst_bus_conf_free(p->conf);
    free(p->end_requests);
    free(p->transactional_id);
    free(p);
}

static void destroy_and_free(void *arg)
{
    pst_producer *p = arg;
    if (p->rk) {
        settle_down(p);
        rd_kafka_destroy(p->rk);
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
    bus_bounded(destroy_and_free, p, pst_stop_hurry() ? 1000 : 5000, "producer");
}

/* ---- send ------------------------------------------------------------------------------------------------------------------------ */

size_t bus_out_bytes(const pst_out *out)
{
    size_t n = RECORD_OVERHEAD + out->key_len + out->value_len;
    for (size_t i = 0; i < out->n_headers; i++)
        n += strlen(out->headers[i].name) + out->headers[i].len + 10;
    return n;
}

rd_kafka_resp_err_t bus_produce(pst_producer *p, const pst_out *out)
{
    rd_kafka_headers_t *headers = NULL;
    if (out->n_headers) {
        headers = rd_kafka_headers_new(out->n_headers);
        for (size_t i = 0; i < out->n_headers; i++)
            rd_kafka_header_add(headers, out->headers[i].name, -1, out->headers[i].value, (ssize_t)out->headers[i].len);
    }
    rd_kafka_resp_err_t code = rd_kafka_producev(
        p->rk, RD_KAFKA_V_TOPIC(out->topic), RD_KAFKA_V_PARTITION(out->partition), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
        RD_KAFKA_V_KEY(out->key, out->key_len), RD_KAFKA_V_VALUE((void *)out->value, out->value_len),
        RD_KAFKA_V_TIMESTAMP(out->timestamp_ms), RD_KAFKA_V_OPAQUE(out->opaque), RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
    if (code && headers)
        rd_kafka_headers_destroy(headers); /* librdkafka takes them only with the record */
    if (!code)
        p->pending++;
    return code;
}

/* Dead producer: refused for good (auth), else replaced. */
static int revive(pst_producer *p, pst_err *err)
{
    char why[300] = "";
    rd_kafka_resp_err_t code = rd_kafka_fatal_error(p->rk, why, sizeof why);
    rd_kafka_poll(p->rk, 0);
    if (bus_code(code, NULL) == PST_EAUTH || p->transactional_id)
        return bus_err(err, p->conf, code, why, "the producer was refused");
    pst_log(PST_LOG_DEBUG, "bus", "event=producer_replaced code=%s why=\"%s\"", rd_kafka_err2name(code), why);
    int64_t until = pst_mono_us() + 2000000;
    while (p->pending && pst_mono_us() < until) /* reports of what was lost with it */
        rd_kafka_poll(p->rk, SLICE_MS);
    bus_producer_close(p);
    return bus_producer_open(p, err);
}

int pst_producer_send(pst_producer *p, const pst_out *out, pst_err *err)
{
    size_t bytes = bus_out_bytes(out);
    if (bytes > p->bytes_max)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "kafka", RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
                           "topic %s: a record of %zu bytes is larger than message.max.bytes=%zu", out->topic, bytes, p->bytes_max);
    if (!p->rk || rd_kafka_fatal_error(p->rk, NULL, 0)) {
        int rc = p->rk ? revive(p, err) : bus_producer_open(p, err);
        if (rc < 0)
            return rc;
    }
    int64_t until = 0; /* the clock is asked only when the queue is full */
    rd_kafka_resp_err_t code;
    while ((code = bus_produce(p, out)) == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
        if (!until)
            until = pst_mono_us() + QUEUE_FULL_WAIT_MS * 1000LL;
        if (p->health.fatal.code)
            return bus_health_take(&p->health, err);
        if (pst_mono_us() >= until || pst_stop_hurry())
            return pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "kafka", code,
                               "topic %s: %zu records wait to be sent and the queue is full%s%.200s", out->topic, p->pending,
                               p->health.last.code ? ": " : "", p->health.last.text);
        rd_kafka_poll(p->rk, SLICE_MS);
    }
    return code ? bus_err(err, p->conf, code, NULL, "topic %s: cannot send", out->topic) : 0;
}

/* A topic that the first record brings is looked up by librdkafka's one-second timer; one that was named before is looked up as soon as a
 * broker is connected. */
void pst_producer_expect(pst_producer *p, const char *topic)
{
    rd_kafka_topic_t *t = p->rk ? rd_kafka_topic_new(p->rk, topic, NULL) : NULL;
    if (t)
        rd_kafka_topic_destroy(t);
}

int pst_producer_poll(pst_producer *p, int timeout_ms)
{
    return p->rk ? rd_kafka_poll(p->rk, timeout_ms) : 0;
}

size_t pst_producer_pending(const pst_producer *p)
{
    return p->pending;
}

int pst_producer_flush(pst_producer *p, int timeout_ms, pst_err *err)
{
    int64_t until = pst_mono_us() + timeout_ms * 1000LL;
    while (p->rk && p->pending && !p->health.fatal.code) {
        int64_t left = (until - pst_mono_us()) / 1000;
        if (left <= 0 || pst_stop_hurry())
            break;
        rd_kafka_flush(p->rk, left < SLICE_MS ? (int)left : SLICE_MS);
    }
    if (p->rk)
        rd_kafka_poll(p->rk, 0);
    if (p->failed.code) {
        pst_err failed = p->failed;
        memset(&p->failed, 0, sizeof p->failed);
        if (err && !err->code)
            *err = failed;
        return failed.code;
    }
    int rc = bus_health_take(&p->health, NULL);
    if (rc < 0 && p->pending)
        return bus_health_take(&p->health, err);
    if (!p->pending)
        return 0;
    return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_RETRY, "kafka", RD_KAFKA_RESP_ERR__TIMED_OUT,
                       "%zu records are not acknowledged after %d ms", p->pending, timeout_ms);
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
