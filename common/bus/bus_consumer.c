/* bus_consumer.c - polling into batches of borrowed views, committing.
 *
 * One record is taken at a time from librdkafka: its batch calls skip or repeat records around seek, pause and rebalance in 2.0.2. The views
 * point into rd_kafka_message_t objects which are kept until the next poll. */
#include "common/bus/bus_consumer.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLICE_MS         100 /* how often a wait looks whether it was told to stop */
#define COMMIT_WAIT_MS   10000
#define CLOSE_WAIT_MS    10000
#define CLOSE_HURRY_MS   1000
#define JOIN_WAIT_MS     20000 /* a leaver waits so long for the others whom its join waits for */
#define INFLIGHT_DEFAULT (64u << 20)
#define QUIET_MS         5000

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

static void copy_opts(pst_consumer *c, const pst_consumer_opts *opts)
{
    c->opts = *opts;
    c->group = pst_strdup(opts->group);
    c->opts.group = c->group;
    c->opts.instance_id = pst_strdup(opts->instance_id);
    c->opts.peers = pst_strdup(opts->peers);
    char **topics = opts->n_topics ? pst_alloc(opts->n_topics * sizeof *topics) : NULL;
    for (size_t i = 0; i < opts->n_topics; i++)
        topics[i] = pst_strdup(opts->topics[i]);
    c->opts.topics = (const char *const *)topics;
    pst_range *ranges = opts->n_ranges ? pst_alloc(opts->n_ranges * sizeof *ranges) : NULL;
    for (size_t i = 0; i < opts->n_ranges; i++) {
        ranges[i] = opts->ranges[i];
        ranges[i].topic = pst_strdup(ranges[i].topic);
    }
    c->opts.ranges = ranges;
}

static void clear_batch(pst_consumer *c)
{
    for (size_t i = 0; i < c->n; i++)
        rd_kafka_message_destroy(c->records[i].native);
    c->n = c->bytes = 0;
}

static void on_error(pst_consumer *c, const rd_kafka_message_t *m)
{
    rd_kafka_resp_err_t code = m->err;
    const char *topic = m->rkt ? rd_kafka_topic_name(m->rkt) : NULL;
    char reason[400];
    if (code == RD_KAFKA_RESP_ERR__FATAL)
        code = rd_kafka_fatal_error(c->rk, reason, sizeof reason);
    else
        snprintf(reason, sizeof reason, "%s", rd_kafka_message_errstr(m));
    if (code == RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED || code == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET)
        c->lost = true;
    if (code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART && topic) {
        pst_err_clear(&c->health.last);
        pst_err_set(&c->health.last, PST_ENOTFOUND, PST_CLASS_RETRY, "kafka", code, "topic %s does not exist (yet)", topic);
        return;
    }
    bus_health_note(&c->health, code, reason);
}

/* A broker reads no request of a connection before it has answered the one before, and answers a JoinGroup when all members have come: a
 * LeaveGroup behind it is not heard for so long, and librdkafka gives it up after 5 s. Nor does a member leave that was not told its id yet. So
 * a join that is under way ends before the group is left. */
static void end_join(pst_consumer *c)
{
    if (c->assigned || !bus_peers_has_us(c))
        return;
    for (int64_t until = pst_mono_us() + JOIN_WAIT_MS * 1000LL; !c->assigned && !c->health.fatal.code && !pst_stop_hurry();) {
        if (pst_mono_us() > until) {
            pst_log(PST_LOG_WARN, "bus",
                    "event=left_unheard group=%s member=%s why=\"the group is being rebalanced and waits for another member: what this one "
                    "would be given waits for its session.timeout.ms\"",
                    c->group, c->opts.instance_id);
            return;
        }
        rd_kafka_message_t *m = rd_kafka_consumer_poll(c->rk, 20);
        if (m && m->err && m->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
            on_error(c, m);
        if (m)
            rd_kafka_message_destroy(m);
    }
}

/* Runs on its own thread when the group must be left, since that may block: owns c. */
static void close_and_free(void *arg)
{
    pst_consumer *c = arg;
    if (c->rk && c->group && rd_kafka_fatal_error(c->rk, NULL, 0)) { /* it will not speak to the group again */
        if (bus_quiet_done(c))
            rd_kafka_destroy_flags(c->rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    } else if (c->rk) {
        if (c->group && c->leaves) {
            end_join(c);
            pst_rdk_leave(c->rk);
        }
        if (c->group)
            rd_kafka_consumer_close(c->rk); /* calls bus_rebalance_cb here */
        if (bus_quiet_done(c))
            rd_kafka_destroy(c->rk);
    }
    bus_parts_clear(c);
    free(c->parts);
    free(c->records);
    for (size_t i = 0; i < c->opts.n_topics; i++)
        free((char *)c->opts.topics[i]);
    for (size_t i = 0; i < c->opts.n_ranges; i++)
        free((char *)c->opts.ranges[i].topic);
    free((void *)c->opts.topics);
    free((void *)c->opts.ranges);
    free((char *)c->opts.instance_id);
    free((char *)c->opts.peers);
    bus_peers_done(c);
    free(c->signature);
    free(c->group);
    pst_bus_conf_free(c->conf);
    free(c);
}

void pst_consumer_leave(pst_consumer *c)
{
    if (c)
        c->leaves = true;
}

void pst_consumer_free(pst_consumer *c)
{
    if (!c)
        return;
    clear_batch(c); /* a message that is kept would make rd_kafka_destroy wait for ever */
    c->closing = true;
    /* A broker that is mute does not hear that we leave either: who opens anew does not wait for it. */
    bool hurry = pst_stop_hurry() || bus_quiet_is_mute(c);
    int wait_ms = CLOSE_WAIT_MS + (c->group && c->leaves ? JOIN_WAIT_MS : 0);
    bus_bounded(close_and_free, c, hurry ? CLOSE_HURRY_MS : wait_ms, "consumer_close");
}

static rd_kafka_conf_t *configure(pst_consumer *c, pst_err *err)
{
    char kbytes[24], made_up[64], poll_ms[24];
    snprintf(poll_ms, sizeof poll_ms, "%d", BUS_POLL_INTERVAL_MS);
    size_t inflight = c->opts.inflight_bytes_max ? c->opts.inflight_bytes_max : INFLIGHT_DEFAULT;
    snprintf(kbytes, sizeof kbytes, "%zu", inflight >= 1024 ? inflight / 1024 : 1);
    snprintf(made_up, sizeof made_up, "penstock-reader-%d-%llx", (int)getpid(), (unsigned long long)pst_mono_us());
    const char *isolation = c->opts.read_uncommitted ? "read_uncommitted" : "read_committed";
    const char *reset = c->opts.start == PST_START_LATEST ? "latest" : "earliest",
               *user_reset = pst_bus_conf_get(c->conf, "auto.offset.reset");
    const bus_kv defaults[] = {
        {"isolation.level", isolation},
        {"auto.offset.reset", reset},
        {"partition.assignment.strategy", "range"}, /* cooperative-sticky has five bugs in 2.0.2 that would touch us */
        {"session.timeout.ms", "10000"},
        {"max.poll.interval.ms", poll_ms},
        {"check.crcs", "true"},
        {"fetch.wait.max.ms", "100"},
        {"fetch.error.backoff.ms", "100"},
        {"queued.max.messages.kbytes", kbytes},
        {"topic.metadata.refresh.interval.ms", "10000"}, /* a topic created later is seen within this */
        {NULL, NULL},
    };
    bus_kv forced[8] = {
        {"group.id", c->group ? c->group : made_up},
        {"enable.auto.commit", "false"}, /* offsets are committed after the effect, or in its transaction */
        {"enable.auto.offset.store", "false"},
        {"enable.partition.eof", "true"},
        {"group.instance.id", c->opts.instance_id}, /* NULL = a user's is ignored: two commands may share one client.properties */
    };
    size_t f = 5;
    if (c->group) { /* a client.properties often says "latest": a service must not skip records for that. To ask for an error is fine. */
        forced[f++] = (bus_kv){"isolation.level", isolation};
        if (!user_reset || strcmp(user_reset, "error"))
            forced[f++] = (bus_kv){"auto.offset.reset", reset};
    }
    rd_kafka_conf_t *k = bus_conf_build(c->conf, BUS_CONSUMER, defaults, forced, c, err);
    if (k)
        rd_kafka_conf_set_rebalance_cb(k, bus_rebalance_cb);
    return k;
}

static int subscribe(pst_consumer *c, pst_err *err)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)c->opts.n_topics);
    for (size_t i = 0; i < c->opts.n_topics; i++)
        rd_kafka_topic_partition_list_add(list, c->opts.topics[i], RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t code = rd_kafka_subscribe(c->rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    return code ? bus_err(err, c->conf, code, NULL, "cannot subscribe group %s", c->group) : 0;
}

int pst_consumer_new(const pst_bus_conf *conf, const pst_consumer_opts *opts, pst_consumer **ret_consumer, pst_err *err)
{
    if (!opts->n_topics == !opts->n_ranges || (opts->group && opts->n_ranges))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "kafka", 0, "a consumer reads topics, or ranges without a group");
    pst_consumer *c = pst_alloc(sizeof *c);
    c->conf = pst_bus_conf_copy(conf);
    c->health.conf = c->conf;
    c->health.no_group = !opts->group;
    c->last_part = SIZE_MAX;
    c->quiet_ms = QUIET_MS;
    copy_opts(c, opts);
    rd_kafka_conf_t *k = configure(c, err);
    int rc = k ? 0 : PST_EINVAL;
    if (!rc) {
        c->rk = bus_new(RD_KAFKA_CONSUMER, k, err);
        rc = c->rk ? 0 : PST_EINVAL;
    }
    if (!rc) {
        rd_kafka_poll_set_consumer(c->rk);
        rc = c->group ? subscribe(c, err) : bus_assign_all(c, err);
        c->check_us = pst_mono_us() + 1000000; /* most answer within this */
    }
    if (rc < 0) {
        pst_consumer_free(c);
        return rc;
    }
    *ret_consumer = c;
    return 0;
}

/* ---- poll -------------------------------------------------------------------------------------------------------------------- */

static bool all_eof(const pst_consumer *c)
{
    if (!c->assigned)
        return false;
    for (size_t i = 0; i < c->n_parts; i++) {
        if (!c->parts[i].eof)
            return false;
    }
    return true;
}

/* The range ends here: nothing more is fetched. */
static void finish_part(pst_consumer *c, bus_part *p)
{
    p->eof = p->done = true;
    rd_kafka_topic_partition_list_t *one = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(one, p->topic, p->partition);
    rd_kafka_pause_partitions(c->rk, one);
    rd_kafka_topic_partition_list_destroy(one);
}

/* Takes the message; true if a record was added to the batch. */
static bool take(pst_consumer *c, rd_kafka_message_t *m)
{
    if (m->err && m->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        on_error(c, m);
        rd_kafka_message_destroy(m);
        return false;
    }
    bus_health_ok(&c->health);
    const char *topic = rd_kafka_topic_name(m->rkt);
    bus_part *p = bus_part_find(c, topic, m->partition);
    if (!p || p->done || (p->to >= 0 && m->offset >= p->to)) {
        if (p && !p->done)
            finish_part(c, p);
        rd_kafka_message_destroy(m);
        return false;
    }
    if (p->base < 0)
        p->base = m->offset;
    p->heard_us = pst_mono_us();
    p->behind_us = 0;
    if (m->err) { /* the end, for now */
        p->next = m->offset;
        p->eof = true;
        rd_kafka_message_destroy(m);
        return false;
    }
    p->eof = false;
    p->next = m->offset + 1;
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 512;
        c->records = pst_realloc(c->records, c->cap * sizeof *c->records);
    }
    rd_kafka_timestamp_type_t type;
    int64_t timestamp = rd_kafka_message_timestamp(m, &type);
    c->records[c->n++] = (pst_record){.topic = topic,
                                      .partition = m->partition,
                                      .offset = m->offset,
                                      .timestamp_ms = type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE ? -1 : timestamp,
                                      .key = m->key,
                                      .key_len = m->key ? m->key_len : 0,
                                      .value = m->payload,
                                      .value_len = m->payload ? m->len : 0,
                                      .native = m};
    c->bytes += m->key_len + m->len;
    if (p->to >= 0 && p->next >= p->to)
        finish_part(c, p);
    return true;
}

void bus_consumer_event(pst_consumer *c, rd_kafka_message_t *m)
{
    take(c, m);
}

static int min_int(int64_t a, int64_t b)
{
    return (int)(a < b ? a : b);
}

/* How long may the next wait be? < 0: return now. */
static int wait_ms(const pst_consumer *c, const pst_poll *how, int64_t start_us, int64_t oldest_us)
{
    if (c->n && how->age_max_us <= 0)
        return 0;
    int64_t now = pst_mono_us();
    int64_t until = c->n ? oldest_us + how->age_max_us : start_us + how->timeout_ms * 1000LL;
    if (until <= now)
        return c->n ? -1 : 0;
    return min_int((until - now + 999) / 1000, SLICE_MS);
}

int pst_consumer_poll(pst_consumer *c, const pst_poll *how, pst_batch *ret_batch, pst_err *err)
{
    size_t records_max = how->records_max ? how->records_max : 512, bytes_max = how->bytes_max ? how->bytes_max : 1u << 20;
    int64_t start = pst_mono_us(), oldest = 0;
    bool was_eof = all_eof(c);
    clear_batch(c);
    if (c->health.fatal.code) { /* nothing that it could give would be from where it should be */
        *ret_batch = (pst_batch){.lost = true};
        return bus_health_take(&c->health, err);
    }
    if (c->release_us)
        bus_consumer_release(c);
    memset(&c->health.last, 0, sizeof c->health.last);
    while (c->n < records_max && c->bytes < bytes_max) {
        int ms = wait_ms(c, how, start, oldest);
        if (ms < 0)
            break;
        rd_kafka_message_t *m = rd_kafka_consumer_poll(c->rk, ms);
        if (m) {
            if (take(c, m) && c->n == 1)
                oldest = pst_mono_us();
            if (c->health.fatal.code)
                break;
            if (!c->opts.report_eof || !all_eof(c))
                continue;
        }
        bool ended = c->opts.report_eof && all_eof(c) && (c->n || !was_eof);
        bool waited = c->n ? how->age_max_us <= 0 : pst_mono_us() - start >= how->timeout_ms * 1000LL;
        if (ended || (!m && (waited || pst_stop_requested())))
            break;
    }
    if (__atomic_load_n(&c->health.resets, __ATOMIC_ACQUIRE) != c->resets) {
        c->resets = __atomic_load_n(&c->health.resets, __ATOMIC_ACQUIRE);
        c->lost = true;
    }
    *ret_batch = (pst_batch){.records = c->records, .n = c->n, .bytes = c->bytes, .eof = c->opts.report_eof && all_eof(c), .lost = c->lost};
    c->lost = false;
    if (!c->n && !c->group && !c->checked && !ret_batch->eof)
        bus_check_ranges(c);
    if (c->group && c->n_parts && !c->paused)
        bus_check_peers(c);
    if (!c->n && c->group && c->n_parts && !c->paused)
        bus_check_start(c);
    if (c->n)
        bus_quiet_over(c);
    else if (c->group && !c->paused)
        bus_check_quiet(c);
    if (c->n)
        return 0; /* an error, if there is one, is told by the next poll: it stays in health.fatal or repeats itself */
    return bus_health_take(&c->health, err);
}

size_t pst_record_headers(const pst_record *r, pst_header *ret_headers, size_t max)
{
    rd_kafka_headers_t *headers;
    if (!r->native || rd_kafka_message_headers(r->native, &headers))
        return 0;
    size_t n = rd_kafka_header_cnt(headers);
    for (size_t i = 0; i < n && i < max; i++)
        rd_kafka_header_get_all(headers, i, &ret_headers[i].name, &ret_headers[i].value, &ret_headers[i].len);
    return n;
}

size_t pst_record_headers_all(const pst_record *r, pst_header_room *room, size_t spare)
{
    size_t n = pst_record_headers(r, room->at, room->cap);
    if (n + spare <= room->cap)
        return n;
    room->cap = n + spare + 16;
    room->at = pst_realloc(room->at, room->cap * sizeof *room->at);
    return pst_record_headers(r, room->at, room->cap);
}

void pst_header_room_done(pst_header_room *room)
{
    free(room->at);
    *room = (pst_header_room){0};
}

/* ---- commit -------------------------------------------------------------------------------------------------------------------- */

int bus_consumer_commit(pst_consumer *c, const rd_kafka_topic_partition_list_t *offsets, pst_err *err)
{
    if (!c->group)
        return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "kafka", 0, "a consumer without a group has nowhere to commit to");
    rd_kafka_queue_t *q = rd_kafka_queue_new(c->rk);
    rd_kafka_resp_err_t code = rd_kafka_commit_queue(c->rk, offsets, q, NULL, NULL);
    int64_t until = pst_mono_us() + COMMIT_WAIT_MS * 1000LL;
    rd_kafka_event_t *ev = NULL;
    while (!code && !(ev = rd_kafka_queue_poll(q, SLICE_MS))) {
        if (pst_mono_us() > until || pst_stop_hurry())
            code = RD_KAFKA_RESP_ERR__TIMED_OUT;
    }
    if (ev) {
        code = rd_kafka_event_error(ev);
        const rd_kafka_topic_partition_list_t *result = rd_kafka_event_topic_partition_list(ev);
        for (int i = 0; !code && result && i < result->cnt; i++)
            code = result->elems[i].err;
        rd_kafka_event_destroy(ev);
    }
    rd_kafka_queue_destroy(q);
    if (code)
        return bus_err(err, c->conf, code, NULL, "cannot commit offsets of group %s", c->group);
    bus_consumer_committed(c, offsets);
    bus_health_ok(&c->health);
    return 0;
}

int pst_consumer_commit(pst_consumer *c, const pst_batch *b, pst_err *err)
{
    if (!b->n)
        return 0;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(4);
    rd_kafka_topic_partition_t *tp = NULL;
    int rc = 0;
    for (size_t i = 0; i < b->n && !rc; i++) {
        const pst_record *r = &b->records[i];
        if (!tp || tp->partition != r->partition || strcmp(tp->topic, r->topic)) {
            tp = rd_kafka_topic_partition_list_find(list, r->topic, r->partition);
            if (!tp) {
                tp = rd_kafka_topic_partition_list_add(list, r->topic, r->partition);
                tp->offset = 0;
            }
            bus_part *p = bus_part_find(c, r->topic, r->partition);
            if (!p)
                rc = pst_err_set(err, PST_EFENCED, PST_CLASS_RETRY, "kafka", 0, "%s[%d] was taken away from this member", r->topic,
                                 r->partition);
        }
        if (tp->offset < r->offset + 1)
            tp->offset = r->offset + 1;
    }
    bus_start_note(c, list);
    if (!rc)
        rc = bus_consumer_commit(c, list, err);
    rd_kafka_topic_partition_list_destroy(list);
    return rc;
}

int pst_consumer_commit_marked(pst_consumer *c, pst_err *err)
{
    rd_kafka_topic_partition_list_t *list = bus_consumer_marked(c);
    if (!list)
        return 0;
    int rc = bus_consumer_commit(c, list, err);
    rd_kafka_topic_partition_list_destroy(list);
    for (size_t i = 0; !rc && i < c->n_parts; i++)
        c->parts[i].marked = -1;
    return rc;
}

/* ---- for pst_txn ----------------------------------------------------------------------------------------------------------------- */

rd_kafka_t *bus_consumer_native(pst_consumer *c)
{
    return c->rk;
}

uint64_t pst_consumer_epoch(const pst_consumer *c)
{
    return bus_consumer_epoch(c);
}

uint64_t bus_consumer_epoch(const pst_consumer *c)
{
    return c->epoch;
}

bool bus_consumer_in_group(const pst_consumer *c)
{
    return c->group != NULL;
}

bus_part *bus_consumer_parts(pst_consumer *c, size_t *ret_n)
{
    *ret_n = c->n_parts;
    return c->parts;
}
