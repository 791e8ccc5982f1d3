/* rdk_consumer.c - librdkafka's consumer: records one at a time, partitions, the group.
 *
 * One record is taken at a time: its batch calls skip or repeat records around seek, pause and rebalance in 2.0.2. The views point into
 * rd_kafka_message_t objects, which the record's `native` keeps until it is released. */
#include "common/bus/rdkafka/rdk.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

struct rdk_rebalance {
    rd_kafka_resp_err_t code;
    rd_kafka_topic_partition_list_t *list;
    bool incremental;
    void *membership; /* of ASSIGN: the one in which they are given */
    size_t membership_size;
    rdk_rebalance *next;
};

static void rebalance_free(rdk *h, rdk_rebalance *r)
{
    rd_kafka_topic_partition_list_destroy(r->list);
    rd_kafka_mem_free(h->rk, r->membership);
    free(r);
}

/* The list and the membership are those of now: both may be others when it is reported. */
static rdk_rebalance *rebalance_new(rdk *h, rd_kafka_resp_err_t code, const rd_kafka_topic_partition_list_t *list)
{
    const char *protocol = rd_kafka_rebalance_protocol(h->rk);
    rdk_rebalance *r = pst_alloc(sizeof *r);
    *r = (rdk_rebalance){.code = code,
                         .list = list ? rd_kafka_topic_partition_list_copy(list) : rd_kafka_topic_partition_list_new(0),
                         .incremental = protocol && !strcmp(protocol, "COOPERATIVE")};
    rd_kafka_consumer_group_metadata_t *group =
        code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS ? rd_kafka_consumer_group_metadata(h->rk) : NULL;
    if (group) {
        r->membership = rdk_membership(group, &r->membership_size);
        rd_kafka_consumer_group_metadata_destroy(group);
    }
    return r;
}

static void tell_rebalance(rdk *h, rdk_rebalance *r)
{
    bus_change change = r->code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS   ? BUS_ASSIGNED
                        : r->code == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS ? BUS_REVOKED
                                                                          : BUS_LOST;
    bus_places places = {.n = (size_t)r->list->cnt};
    places.at = pst_alloc((places.n + 1) * sizeof *places.at);
    for (size_t i = 0; i < places.n; i++) {
        places.at[i] = (bus_place){.topic = r->list->elems[i].topic, .partition = r->list->elems[i].partition};
        rdk_place_set(&places.at[i], &r->list->elems[i]);
    }
    if (r->code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        rd_kafka_mem_free(h->rk, h->given);
        h->given = r->membership;
        h->given_size = r->membership_size;
        r->membership = NULL;
    }
    pst_log(PST_LOG_DEBUG, "kafka", "event=rebalance client=%s code=%s lost=%d", rd_kafka_name(h->rk), rd_kafka_err2name(r->code),
            rd_kafka_assignment_lost(h->rk));
    h->to.rebalance(h->to.owner, change, &places, r->incremental);
    for (size_t i = 0; i < places.n; i++)
        free(places.at[i].note);
    free(places.at);
    rebalance_free(h, r);
}

/* More than one can be kept: when a topic grows librdkafka joins again without waiting for the answer to the one before. */
static void on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t *list, void *opaque)
{
    rdk *h = opaque;
    rdk_rebalance *r = rebalance_new(h, code, list), **last = &h->kept;
    if (!h->stays) {
        tell_rebalance(h, r);
        return;
    }
    while (*last)
        last = &(*last)->next;
    *last = r;
    pst_log(PST_LOG_DEBUG, "kafka", "event=rebalance_waits client=%s code=%s", rd_kafka_name(rk), rd_kafka_err2name(code));
}

void rdk_tell_kept(rdk *h)
{
    for (rdk_rebalance *r; (r = h->kept);) {
        h->kept = r->next;
        tell_rebalance(h, r);
    }
}

void rdk_kept_free(rdk *h)
{
    for (rdk_rebalance *r; (r = h->kept);) {
        h->kept = r->next;
        rebalance_free(h, r);
    }
    rd_kafka_mem_free(h->rk, h->given);
    h->given = NULL;
}

bool rdk_keeps_assign(const rdk *h)
{
    const rdk_rebalance *r = h->kept;
    while (r && r->code != RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS)
        r = r->next;
    return r != NULL;
}

static rd_kafka_conf_t *configure(const pst_bus_conf *conf, const bus_consumer_needs *needs, rdk *h, pst_err *err)
{
    char kbytes[24], made_up[64], poll_ms[24];
    snprintf(poll_ms, sizeof poll_ms, "%d", needs->poll_interval_ms);
    snprintf(kbytes, sizeof kbytes, "%zu", needs->inflight_bytes >= 1024 ? needs->inflight_bytes / 1024 : 1);
    /* It asks for a group in any case; one that is made up it never joins. */
    snprintf(made_up, sizeof made_up, "penstock-reader-%d-%llx", (int)getpid(), (unsigned long long)pst_mono_us());
    const char *isolation = needs->read_uncommitted ? "read_uncommitted" : "read_committed";
    const char *reset = needs->latest ? "latest" : "earliest", *user_reset = rdk_conf_get(conf, "auto.offset.reset");
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
        {"group.id", needs->group ? needs->group : made_up},
        {"enable.auto.commit", "false"}, /* offsets are committed after the effect, or in its transaction */
        {"enable.auto.offset.store", "false"},
        {"enable.partition.eof", "true"},
        {"group.instance.id", needs->instance_id}, /* NULL = a user's is ignored: two commands may share one client.properties */
        {"isolation.level", isolation},            /* what was aborted is no entry, no state and no score, whoever reads it */
    };
    /* A client.properties often says "latest": nobody must skip records for that. To ask for an error is fine. */
    bool force_reset = !user_reset || strcmp(user_reset, "error") != 0;
    if (force_reset && needs->group)
        forced[6] = (bus_kv){"auto.offset.reset", reset};
    rd_kafka_conf_t *k = rdk_conf_build(conf, RDK_CONSUMER, defaults, forced, h, err);
    if (k && force_reset && !needs->group) /* it counts only where records are gone: not worth a warning from each verb */
        rd_kafka_conf_set(k, "auto.offset.reset", reset, NULL, 0);
    if (k)
        rd_kafka_conf_set_rebalance_cb(k, on_rebalance);
    return k;
}

static int consumer_open(const pst_bus_conf *conf, const bus_consumer_needs *needs, const bus_listener *to, bus_handle **ret, pst_err *err)
{
    rdk *h = pst_alloc(sizeof *h);
    h->to = *to;
    rd_kafka_conf_t *k = configure(conf, needs, h, err);
    if (!k || rdk_new(RD_KAFKA_CONSUMER, k, h, err) < 0) {
        free(h);
        return PST_EINVAL;
    }
    rd_kafka_poll_set_consumer(h->rk);
    h->is_static = needs->instance_id != NULL;
    *ret = (bus_handle *)h;
    return 0;
}

/* ---- records --------------------------------------------------------------------------------------------------------------- */

static void tell_fault(rdk *h, const rd_kafka_message_t *m, bus_run *ret)
{
    ret->kind = BUS_RUN_FAULT;
    ret->code = m->err;
    if (m->err == RD_KAFKA_RESP_ERR__FATAL)
        ret->code = rd_kafka_fatal_error(h->rk, h->reason, sizeof h->reason);
    else
        snprintf(h->reason, sizeof h->reason, "%s", rd_kafka_message_errstr(m));
    ret->reason = h->reason;
}

/* A run of one: see the top. Headers are parsed here if there are any; asking a record without them costs reading one length. */
static void poll_one(rdk *h, int timeout_ms, pst_record *room, bus_run *ret)
{
    if (h->news) {
        rd_kafka_message_destroy(h->news);
        h->news = NULL;
    }
    rd_kafka_message_t *m = rd_kafka_consumer_poll(h->rk, timeout_ms);
    if (!m) {
        ret->kind = BUS_RUN_NONE;
        return;
    }
    ret->topic = m->rkt ? rd_kafka_topic_name(m->rkt) : NULL;
    ret->partition = m->partition;
    if (m->err) {
        h->news = m;
        if (m->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            tell_fault(h, m, ret);
            return;
        }
        ret->kind = BUS_RUN_END;
        ret->offset = m->offset;
        return;
    }
    ret->kind = BUS_RUN_RECORDS;
    ret->n = 1;
    rd_kafka_timestamp_type_t type;
    rd_kafka_headers_t *headers;
    int64_t timestamp = rd_kafka_message_timestamp(m, &type);
    *room = (pst_record){.topic = ret->topic,
                         .partition = m->partition,
                         .offset = m->offset,
                         .timestamp_ms = type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE ? -1 : timestamp,
                         .key = m->key,
                         .key_len = m->key ? m->key_len : 0,
                         .value = m->payload,
                         .value_len = m->payload ? m->len : 0,
                         .has_headers = rd_kafka_message_headers(m, &headers) == 0,
                         .native = m};
}

static void consumer_poll(bus_handle *b, int timeout_ms, pst_record *room, size_t max, size_t bytes, bus_run *ret)
{
    rdk_tell_kept(rdk_of(b));
    poll_one(rdk_of(b), timeout_ms, room, ret);
}

static void stay(bus_handle *b, pst_record *room, bus_run *ret)
{
    rdk *h = rdk_of(b);
    h->stays = true;
    poll_one(h, 0, room, ret);
    h->stays = false;
}

static void release(bus_handle *h, const pst_record *records, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rd_kafka_message_destroy(records[i].native);
}

static size_t headers(const pst_record *r, pst_header *ret, size_t max)
{
    rd_kafka_headers_t *list;
    if (rd_kafka_message_headers(r->native, &list))
        return 0;
    size_t n = rd_kafka_header_cnt(list);
    for (size_t i = 0; i < n && i < max; i++)
        rd_kafka_header_get_all(list, i, &ret[i].name, &ret[i].value, &ret[i].len);
    return n;
}

/* ---- partitions ------------------------------------------------------------------------------------------------------------ */

static int subscribe(bus_handle *h, const char *const *topics, size_t n)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);
    for (size_t i = 0; i < n; i++)
        rd_kafka_topic_partition_list_add(list, topics[i], RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t code = rd_kafka_subscribe(rdk_of(h)->rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    return code;
}

static int assign(bus_handle *b, const bus_places *places)
{
    rdk *h = rdk_of(b);
    rd_kafka_topic_partition_list_t *list = places ? rdk_list(places) : NULL;
    h->gives_records |= list != NULL;
    int code = rd_kafka_assign(h->rk, list);
    h->has_partitions = list && list->cnt;
    if (list)
        rd_kafka_topic_partition_list_destroy(list);
    return code;
}

static bool has_partitions(rd_kafka_t *rk)
{
    rd_kafka_topic_partition_list_t *list = NULL;
    bool has = rd_kafka_assignment(rk, &list) == RD_KAFKA_RESP_ERR_NO_ERROR && list->cnt > 0;
    if (list)
        rd_kafka_topic_partition_list_destroy(list);
    return has;
}

static int assign_more(bus_handle *h, const bus_places *places, char *why, size_t size)
{
    rd_kafka_topic_partition_list_t *list = rdk_list(places);
    rdk_of(h)->gives_records = true;
    int code = rdk_error(rd_kafka_incremental_assign(rdk_of(h)->rk, list), why, size);
    rdk_of(h)->has_partitions |= !code && list->cnt;
    rd_kafka_topic_partition_list_destroy(list);
    return code;
}

static int assign_less(bus_handle *h, const bus_places *places)
{
    char ignored[100];
    rd_kafka_topic_partition_list_t *list = rdk_list(places);
    int code = rdk_error(rd_kafka_incremental_unassign(rdk_of(h)->rk, list), ignored, sizeof ignored);
    rdk_of(h)->has_partitions = has_partitions(rdk_of(h)->rk);
    rd_kafka_topic_partition_list_destroy(list);
    return code;
}

static int pause_places(bus_handle *h, bus_places *places, bool pause)
{
    rd_kafka_topic_partition_list_t *list = rdk_list(places);
    int code = pause ? rd_kafka_pause_partitions(rdk_of(h)->rk, list) : rd_kafka_resume_partitions(rdk_of(h)->rk, list);
    rdk_list_back(list, places);
    return code;
}

static int seek(bus_handle *h, bus_places *places, int timeout_ms, char *why, size_t size)
{
    rd_kafka_topic_partition_list_t *list = rdk_list(places);
    int64_t until = pst_mono_us() + timeout_ms * 1000LL, left = timeout_ms;
    int code;
    do { /* it was seen to say that its time is out long before it is; to seek once more is to seek to the same place */
        code = rdk_error(rd_kafka_seek_partitions(rdk_of(h)->rk, list, (int)left), why, size);
        left = (until - pst_mono_us()) / 1000;
    } while (code == BUS_ERR__TIMED_OUT && left > 0 && !pst_stop_forced());
    rdk_list_back(list, places);
    return code;
}

static int known_end(bus_handle *h, const char *topic, int32_t partition, int64_t *ret_end)
{
    int64_t low;
    return rd_kafka_get_watermark_offsets(rdk_of(h)->rk, topic, partition, &low, ret_end);
}

const bus_consumer_ops rdk_consumer_ops = {
    .open = consumer_open,
    .subscribe = subscribe,
    .assign = assign,
    .assign_more = assign_more,
    .assign_less = assign_less,
    .poll = consumer_poll,
    .stay = stay,
    .release = release,
    .headers = headers,
    .pause = pause_places,
    .seek = seek,
    .commit = rdk_commit,
    .known_end = known_end,
    .gave = rdk_gave,
    .group = rdk_group,
    .group_free = rdk_group_free,
    .leave = rdk_leave,
    .close = rdk_close,
};
