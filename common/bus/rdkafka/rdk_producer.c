/* rdk_producer.c - librdkafka's producer: records and their reports, the calls of a transaction.
 *
 * A reserved record is written into room of ours and copied once, when it is sent: the same copy that librdkafka makes of any value, since its own
 * memory cannot be written before a record is produced.
 *
 * librdkafka empties the queues of a client that died one by one, the last first: what it had not sent comes back in another order than it went in.
 * So each record has a ticket with its number, but in transactions, whose rounds are played again. */
#include "common/bus/rdkafka/rdk.h"
#include "common/base/clock.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KAFKA_END_TXN 26
#define ANSWERS_MS    2000

/* ---- tickets: a record's number and whatever its sender wants back. Records are sent and reported on one thread. ------------------------------ */

enum { TICKETS_A_BLOCK = 256 };

struct rdk_ticket {
    uint64_t nth;
    void *opaque;
    rdk_ticket *next; /* of those that are free; of blocks, in their first ticket */
};

static rdk_ticket *take_ticket(rdk *h, void *opaque)
{
    if (!h->free_tickets) {
        rdk_ticket *block = pst_alloc((TICKETS_A_BLOCK + 1) * sizeof *block);
        block->next = h->ticket_blocks;
        h->ticket_blocks = block;
        for (size_t i = 1; i <= TICKETS_A_BLOCK; i++) {
            block[i].next = h->free_tickets;
            h->free_tickets = &block[i];
        }
    }
    rdk_ticket *t = h->free_tickets;
    h->free_tickets = t->next;
    *t = (rdk_ticket){.nth = ++h->sent, .opaque = opaque};
    return t;
}

static void give_ticket_back(rdk *h, rdk_ticket *t)
{
    t->next = h->free_tickets;
    h->free_tickets = t;
}

void rdk_tickets_free(rdk *h)
{
    for (rdk_ticket *block = h->ticket_blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
}

/* ---- callbacks ---------------------------------------------------------------------------------------------------------------- */

/* librdkafka does not tell the time of a record that failed, though it knows it: so it is asked as if this one had not. */
static int64_t time_of(const rd_kafka_message_t *m)
{
    rd_kafka_timestamp_type_t type;
    rd_kafka_message_t *mine = (rd_kafka_message_t *)m; /* nobody else has it during the report */
    rd_kafka_resp_err_t code = m->err;
    mine->err = RD_KAFKA_RESP_ERR_NO_ERROR;
    int64_t ms = rd_kafka_message_timestamp(m, &type);
    mine->err = code;
    return ms > 0 ? ms : 0;
}

/* The record as it was handed over; free() *ret_headers. */
static pst_out as_given(const rd_kafka_message_t *m, void *opaque, pst_header **ret_headers)
{
    rd_kafka_headers_t *native = NULL;
    pst_out out = {.topic = rd_kafka_topic_name(m->rkt),
                   .partition = m->partition,
                   .key = m->key,
                   .key_len = m->key_len,
                   .value = m->payload,
                   .value_len = m->len,
                   .timestamp_ms = time_of(m),
                   .opaque = opaque};
    if (rd_kafka_message_headers(m, &native) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        out.n_headers = rd_kafka_header_cnt(native);
        out.headers = *ret_headers = pst_alloc((out.n_headers + 1) * sizeof **ret_headers);
        for (size_t i = 0; i < out.n_headers; i++)
            rd_kafka_header_get_all(native, i, &(*ret_headers)[i].name, &(*ret_headers)[i].value, &(*ret_headers)[i].len);
    }
    return out;
}

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    rdk *h = opaque;
    PST_ASSERT(h->pending > 0);
    h->pending--;
    rdk_ticket *ticket = h->transactional ? NULL : m->_private;
    bus_delivered d = {.code = m->err,
                       .topic = m->rkt ? rd_kafka_topic_name(m->rkt) : "",
                       .partition = m->partition,
                       .offset = m->err ? -1 : m->offset,
                       .opaque = ticket ? ticket->opaque : m->_private};
    char reason[300];
    if (m->err) { /* not rd_kafka_message_errstr(): of a produced record that is its payload */
        snprintf(reason, sizeof reason, "%s", rd_kafka_err2str(m->err));
        d.reason = reason;
    }
    /* Purged because the producer died: tell why it died. Or the very ones of which it died: a broker that calls a sequence out of order does not write
     * it, and has not before: it knows its last five batches and calls those duplicates. (But one that was started anew in between knows the last one only:
     * of several that it had written unanswered the first may be called out of order. Then it comes twice; nothing is lost.) */
    pst_out unsent;
    pst_header *headers = NULL;
    bool refused = !h->transactional && m->err == RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
    if (m->err == RD_KAFKA_RESP_ERR__PURGE_QUEUE || m->err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT || m->err == RD_KAFKA_RESP_ERR__FATAL ||
        refused) {
        rd_kafka_resp_err_t why = rd_kafka_fatal_error(rk, reason, sizeof reason);
        d.code = why ? why : m->err;
        if (why && (refused || rd_kafka_message_status(m) == RD_KAFKA_MSG_STATUS_NOT_PERSISTED)) {
            unsent = as_given(m, d.opaque, &headers);
            d.unsent = &unsent;
            d.nth = ticket ? ticket->nth : 0;
        }
    }
    if (ticket)
        give_ticket_back(h, ticket);
    h->to.delivered(h->to.owner, &d);
    free(headers);
}

/* Counts EndTxn requests: librdkafka re-sends them by itself and reports success. Called on its broker threads. */
static rd_kafka_resp_err_t on_request_sent(rd_kafka_t *rk, int fd, const char *broker, int32_t id, int16_t api, int16_t version,
                                           int32_t corr, size_t size, void *opaque)
{
    rdk *h = opaque;
    if (api == KAFKA_END_TXN)
        __atomic_add_fetch(&h->ends_sent, 1, __ATOMIC_RELAXED);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t on_new(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *opaque, char *errstr, size_t size)
{
    return rd_kafka_interceptor_add_on_request_sent(rk, "penstock", on_request_sent, opaque);
}

static int ends_sent(bus_handle *h)
{
    return __atomic_exchange_n(&rdk_of(h)->ends_sent, 0, __ATOMIC_RELAXED);
}

/* ---- life ---------------------------------------------------------------------------------------------------------------------- */

static rd_kafka_conf_t *configure(const pst_bus_conf *conf, const bus_producer_needs *needs, rdk *h, pst_err *err)
{
    char message_timeout[16], txn_timeout[16], linger[16], batch[24];
    snprintf(message_timeout, sizeof message_timeout, "%d", needs->message_timeout_ms);
    snprintf(txn_timeout, sizeof txn_timeout, "%d", needs->transaction_timeout_ms);
    snprintf(linger, sizeof linger, "%d", needs->linger_ms);
    snprintf(batch, sizeof batch, "%zu", needs->batch_bytes);
    bus_kv defaults[10] = {{"partitioner", "murmur2_random"}, {"compression.type", "lz4"}};
    bus_kv forced[8] = {{"enable.idempotence", "true"},
                        {"acks", "all"},
                        {"delivery.report.only.error", "false"},
                        {"transactional.id", needs->transactional_id}};
    size_t d = 2, f = 4;
    if (needs->linger_ms >= 0)
        defaults[d++] = (bus_kv){"linger.ms", linger};
    if (needs->transactional_id)
        defaults[d++] = (bus_kv){"transaction.timeout.ms", txn_timeout};
    else
        defaults[d++] = (bus_kv){"message.timeout.ms", message_timeout};
    if (needs->impatient)
        defaults[d++] = (bus_kv){"topic.metadata.propagation.max.ms", needs->message_timeout_ms < 4000 ? "1000" : "2000"};
    if (needs->transactional_id)
        forced[f++] = (bus_kv){"message.timeout.ms", NULL}; /* a user's may be longer than the transaction's: librdkafka sets it */
    if (needs->batch_bytes)
        forced[f++] = (bus_kv){"batch.size", batch};
    rd_kafka_conf_t *k = rdk_conf_build(conf, RDK_PRODUCER, defaults, forced, h, err);
    if (!k)
        return NULL;
    rd_kafka_conf_set_dr_msg_cb(k, on_report);
    rd_kafka_conf_interceptor_add_on_new(k, "penstock", on_new, h);
    return k;
}

static int producer_open(const pst_bus_conf *conf, const bus_producer_needs *needs, const bus_listener *to, bus_handle **ret, pst_err *err)
{
    rdk *h = pst_alloc(sizeof *h);
    h->to = *to;
    h->transactional = needs->transactional_id != NULL;
    rd_kafka_conf_t *k = configure(conf, needs, h, err);
    if (!k || rdk_new(RD_KAFKA_PRODUCER, k, h, err) < 0) {
        free(h);
        return PST_EINVAL;
    }
    *ret = (bus_handle *)h;
    return 0;
}

static void drop(bus_handle *h, bool inflight)
{
    rd_kafka_purge(rdk_of(h)->rk, inflight ? RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT : RD_KAFKA_PURGE_F_QUEUE);
}

/* Drops what waits, and gives the requests under way a moment to be answered.
 *
 * rd_kafka_destroy() of a transactional producer (2.0.2 to 2.12 at least) frees the text of its transaction's error while the broker threads still
 * run; a Produce answer that says "fenced" in that moment frees it once more, and the program dies of a broken heap. A producer that was fenced
 * has often a second such answer on its way: so it is not destroyed under it. */
static void settle(bus_handle *b)
{
    rdk *h = rdk_of(b);
    rd_kafka_purge(h->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING);
    int64_t until = pst_mono_us() + ANSWERS_MS * 1000LL;
    while (h->transactional && h->pending && pst_mono_us() < until && !pst_stop_forced())
        rd_kafka_poll(h->rk, 10);
    rd_kafka_purge(h->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

/* ---- records ---------------------------------------------------------------------------------------------------------------- */

static void expect(bus_handle *h, const char *topic)
{
    rd_kafka_topic_t *t = rd_kafka_topic_new(rdk_of(h)->rk, topic, NULL);
    if (t)
        rd_kafka_topic_destroy(t);
}

static rd_kafka_topic_t *find_topic(rdk *h, const char *name)
{
    if (h->topic && !strcmp(rd_kafka_topic_name(h->topic), name))
        return h->topic;
    if (h->topic)
        rd_kafka_topic_destroy(h->topic);
    return h->topic = rd_kafka_topic_new(h->rk, name, NULL);
}

static int produce(rdk *h, const pst_out *out)
{
    rd_kafka_headers_t *headers = NULL;
    rd_kafka_topic_t *topic = find_topic(h, out->topic);
    if (!topic)
        return rd_kafka_last_error();
    if (out->n_headers) {
        headers = rd_kafka_headers_new(out->n_headers);
        for (size_t i = 0; i < out->n_headers; i++)
            rd_kafka_header_add(headers, out->headers[i].name, -1, out->headers[i].value, (ssize_t)out->headers[i].len);
    }
    rdk_ticket *ticket = h->transactional ? NULL : take_ticket(h, out->opaque);
    rd_kafka_resp_err_t code =
        rd_kafka_producev(h->rk, RD_KAFKA_V_RKT(topic), RD_KAFKA_V_PARTITION(out->partition), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                          RD_KAFKA_V_KEY(out->key, out->key_len), RD_KAFKA_V_VALUE((void *)out->value, out->value_len),
                          RD_KAFKA_V_TIMESTAMP(out->timestamp_ms), RD_KAFKA_V_OPAQUE(ticket ? (void *)ticket : out->opaque),
                          RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
    if (code && headers)
        rd_kafka_headers_destroy(headers); /* librdkafka takes them only with the record */
    if (code && ticket)
        give_ticket_back(h, ticket);
    h->pending += !code;
    return code;
}

static int send_all(bus_handle *h, const pst_out *out, size_t n, size_t *ret_sent)
{
    int code = 0;
    size_t i = 0;
    while (i < n && (code = produce(rdk_of(h), &out[i])) == 0)
        i++;
    *ret_sent = i;
    return code;
}

static pst_buf *reserve(bus_handle *b, const pst_out *head)
{
    rdk *h = rdk_of(b);
    h->head = *head;
    pst_buf_clear(&h->room);
    return &h->room;
}

static int send_reserved(bus_handle *b)
{
    rdk *h = rdk_of(b);
    h->head.value = h->room.data;
    h->head.value_len = h->room.len;
    return produce(h, &h->head);
}

static void flush(bus_handle *h, int timeout_ms)
{
    rd_kafka_flush(rdk_of(h)->rk, timeout_ms);
}

/* ---- transactions --------------------------------------------------------------------------------------------------------------- */

static void say(rdk *h, rd_kafka_error_t *e, bus_said *ret)
{
    *ret = (bus_said){0};
    if (!e)
        return;
    ret->code = rd_kafka_error_code(e);
    ret->fatal = rd_kafka_error_is_fatal(e);
    ret->abortable = rd_kafka_error_txn_requires_abort(e);
    ret->retriable = rd_kafka_error_is_retriable(e);
    snprintf(ret->text, sizeof ret->text, "%s", rd_kafka_error_string(e));
    rd_kafka_error_destroy(e);
    if (ret->code == RD_KAFKA_RESP_ERR__FATAL) {
        ret->code = rd_kafka_fatal_error(h->rk, ret->text, sizeof ret->text);
        ret->fatal = true;
    }
}

static void txn_init(bus_handle *h, int timeout_ms, bus_said *ret)
{
    say(rdk_of(h), rd_kafka_init_transactions(rdk_of(h)->rk, timeout_ms), ret);
}

static void txn_begin(bus_handle *h, bus_said *ret)
{
    say(rdk_of(h), rd_kafka_begin_transaction(rdk_of(h)->rk), ret);
}

static void txn_offsets(bus_handle *h, const bus_places *places, const bus_group *g, int timeout_ms, bus_said *ret)
{
    rd_kafka_topic_partition_list_t *list = rdk_list(places);
    say(rdk_of(h), rd_kafka_send_offsets_to_transaction(rdk_of(h)->rk, list, (const rd_kafka_consumer_group_metadata_t *)g, timeout_ms),
        ret);
    rd_kafka_topic_partition_list_destroy(list);
}

static void txn_commit(bus_handle *h, int timeout_ms, bus_said *ret)
{
    say(rdk_of(h), rd_kafka_commit_transaction(rdk_of(h)->rk, timeout_ms), ret);
}

static void txn_abort(bus_handle *h, int timeout_ms, bus_said *ret)
{
    say(rdk_of(h), rd_kafka_abort_transaction(rdk_of(h)->rk, timeout_ms), ret);
}

const bus_producer_ops rdk_producer_ops = {
    .open = producer_open,
    .expect = expect,
    .send = send_all,
    .reserve = reserve,
    .send_reserved = send_reserved,
    .flush = flush,
    .drop = drop,
    .settle = settle,
    .ends_sent = ends_sent,
    .init = txn_init,
    .begin = txn_begin,
    .offsets = txn_offsets,
    .commit = txn_commit,
    .abort = txn_abort,
};
