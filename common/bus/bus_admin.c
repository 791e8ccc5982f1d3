/* bus_admin.c - topics, watermarks, times, group lag. Each call makes a short-lived client: verbs and start-up use them, never a data path. */
#include "common/bus/bus_admin.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_MS 500
#define ASK_MS   10000 /* for calls without a time-out of their own */

int bus_admin_open(bus_admin *a, const pst_bus_conf *conf, rd_kafka_type_t type, const char *group, int timeout_ms, pst_err *err)
{
    const bus_kv defaults[] = {{"topic.metadata.refresh.interval.ms", "-1"}, {NULL, NULL}};
    const bus_kv forced[] = {{"group.id", group}, {"enable.auto.commit", "false"}, {"group.instance.id", NULL}, {NULL, NULL}};
    memset(a, 0, sizeof *a);
    a->health.conf = conf;
    a->until_us = pst_mono_us() + timeout_ms * 1000LL;
    bool consumer = type == RD_KAFKA_CONSUMER;
    rd_kafka_conf_t *k = bus_conf_build(conf, BUS_ADMIN, consumer ? NULL : defaults, consumer ? forced : NULL, a, err);
    a->rk = k ? bus_new(type, k, err) : NULL;
    return a->rk ? 0 : PST_EINVAL;
}

void bus_admin_close(bus_admin *a)
{
    bus_destroy(a->rk);
    a->rk = NULL;
}

static int left_ms(int64_t until_us, int most)
{
    int64_t left = (until_us - pst_mono_us()) / 1000;
    return left < 1 ? 1 : left < most ? (int)left : most;
}

int bus_admin_left_ms(const bus_admin *a, int most)
{
    return left_ms(a->until_us, most);
}

/* Repeats one blocking call until it is answered, refused, or the time is over. */
static bool ask_again(rd_kafka_t *rk, bus_health *h, rd_kafka_resp_err_t code, int64_t until_us)
{
    if (h)
        rd_kafka_poll(rk, 0); /* serves the error callback, which knows about refused logins */
    return bus_is_outage(code) && !(h && h->fatal.code) && pst_mono_us() < until_us && !pst_stop_requested();
}

/* The error of a call that was not answered: what the connection said is worth more than "timed out". */
static int unanswered(const pst_bus_conf *conf, bus_health *h, rd_kafka_resp_err_t code, const char *what, pst_err *err)
{
    if (h && h->fatal.code)
        return bus_health_take(h, err);
    if (h && bus_is_outage(code) && h->last.code) {
        pst_err e = {0};
        bus_health_take(h, &e);
        if (!h->worked)
            e.code = PST_EUNREACH;
        int rc = e.code;
        if (err && !err->code) {
            *err = e;
            pst_err_prefix(err, "%s", what);
        }
        return rc;
    }
    int rc = bus_err(err, conf, code, NULL, "%s", what);
    if (rc == PST_ETIMEDOUT && h && !h->worked) {
        rc = PST_EUNREACH;
        if (err && err->code == PST_ETIMEDOUT)
            err->code = rc;
    }
    return rc;
}

/* ---- metadata ------------------------------------------------------------------------------------------------------------------ */

static int metadata(rd_kafka_t *rk, bus_health *h, const char *topic, int64_t until_us, const struct rd_kafka_metadata **ret, pst_err *err)
{
    rd_kafka_topic_t *rkt = topic ? rd_kafka_topic_new(rk, topic, NULL) : NULL;
    rd_kafka_resp_err_t code;
    do {
        code = rd_kafka_metadata(rk, !topic, rkt, ret, left_ms(until_us, SLICE_MS));
    } while (code && ask_again(rk, h, code, until_us));
    if (rkt)
        rd_kafka_topic_destroy(rkt);
    if (code)
        return unanswered(h ? h->conf : NULL, h, code, "no answer about topics", err);
    if (h)
        bus_health_ok(h);
    return 0;
}

int bus_partitions(rd_kafka_t *rk, bus_health *h, const char *topic, int timeout_ms, int *ret_n, pst_err *err)
{
    int64_t until = pst_mono_us() + timeout_ms * 1000LL;
    const struct rd_kafka_metadata *m;
    for (;;) {
        int rc = metadata(rk, h, topic, until, &m, err);
        if (rc < 0)
            return rc;
        rd_kafka_resp_err_t code = m->topic_cnt ? m->topics[0].err : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
        int n = m->topic_cnt ? m->topics[0].partition_cnt : 0;
        rd_kafka_metadata_destroy(m);
        if (!code && n > 0) {
            *ret_n = n;
            return 0;
        }
        if (!bus_is_outage(code) || pst_mono_us() >= until || pst_stop_requested()) {
            if (code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || !code)
                return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_RETRY, "kafka", code, "topic %s does not exist", topic);
            return bus_err(err, h ? h->conf : NULL, code, NULL, "topic %s", topic);
        }
        pst_sleep_ms(50);
    }
}

bool bus_lacks_leader(rd_kafka_t *rk, bus_health *h, const char *topic, int timeout_ms)
{
    const struct rd_kafka_metadata *m;
    pst_err ignored = {0};
    bool lacks = false;
    if (metadata(rk, h, topic, pst_mono_us() + timeout_ms * 1000LL, &m, &ignored) < 0)
        return false;
    for (int i = 0; m->topic_cnt && i < m->topics[0].partition_cnt; i++)
        lacks |= m->topics[0].partitions[i].leader < 0;
    rd_kafka_metadata_destroy(m);
    return lacks;
}

int bus_offsets_at(rd_kafka_t *rk, bus_health *h, rd_kafka_topic_partition_list_t *list, int64_t timestamp_ms, int timeout_ms, pst_err *err)
{
    int64_t until = pst_mono_us() + timeout_ms * 1000LL;
    rd_kafka_resp_err_t code;
    do {
        for (int i = 0; i < list->cnt; i++)
            list->elems[i].offset = timestamp_ms;
        code = rd_kafka_offsets_for_times(rk, list, left_ms(until, SLICE_MS * 4));
        for (int i = 0; !code && i < list->cnt; i++)
            code = list->elems[i].err;
    } while (code && ask_again(rk, h, code, until));
    return code ? unanswered(h ? h->conf : NULL, h, code, "no offsets for a time", err) : 0;
}

int bus_admin_watermarks(bus_admin *a, const char *topic, int32_t partition, int64_t *ret_low, int64_t *ret_high, pst_err *err)
{
    rd_kafka_resp_err_t code;
    do {
        code = rd_kafka_query_watermark_offsets(a->rk, topic, partition, ret_low, ret_high, left_ms(a->until_us, SLICE_MS * 4));
    } while (code && ask_again(a->rk, &a->health, code, a->until_us));
    if (!code)
        return 0;
    char what[300];
    snprintf(what, sizeof what, "%s[%d]: no offsets", topic, partition);
    return unanswered(a->health.conf, &a->health, code, what, err);
}

int pst_admin_ping(const pst_bus_conf *conf, int timeout_ms, char **ret_cluster_id, int *ret_brokers, pst_err *err)
{
    bus_admin a;
    const struct rd_kafka_metadata *m = NULL;
    int rc = bus_admin_open(&a, conf, RD_KAFKA_CONSUMER, NULL, timeout_ms, err);
    if (!rc)
        rc = metadata(a.rk, &a.health, NULL, a.until_us, &m, err);
    if (!rc) {
        char *id = rd_kafka_clusterid(a.rk, left_ms(a.until_us, 1000));
        if (ret_cluster_id)
            *ret_cluster_id = pst_strdup(id ? id : "");
        if (ret_brokers)
            *ret_brokers = m->broker_cnt;
        free(id);
        rd_kafka_metadata_destroy(m);
    }
    bus_admin_close(&a);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const pst_topic_info *)a)->name, ((const pst_topic_info *)b)->name);
}

int pst_admin_list(const pst_bus_conf *conf, pst_topic_info **ret_topics, size_t *ret_n, int timeout_ms, pst_err *err)
{
    bus_admin a;
    const struct rd_kafka_metadata *m = NULL;
    int rc = bus_admin_open(&a, conf, RD_KAFKA_CONSUMER, NULL, timeout_ms, err);
    if (!rc)
        rc = metadata(a.rk, &a.health, NULL, a.until_us, &m, err);
    if (!rc) {
        pst_topic_info *list = pst_alloc((m->topic_cnt + 1) * sizeof *list);
        size_t n = 0;
        for (int i = 0; i < m->topic_cnt; i++)
            list[n++] = (pst_topic_info){.name = pst_strdup(m->topics[i].topic), .partitions = m->topics[i].partition_cnt};
        rd_kafka_metadata_destroy(m);
        qsort(list, n, sizeof *list, by_name);
        *ret_topics = list;
        *ret_n = n;
    }
    bus_admin_close(&a);
    return rc;
}

int pst_admin_topic(const pst_bus_conf *conf, const char *topic, pst_topic_info *ret_info, int timeout_ms, pst_err *err)
{
    bus_admin a;
    pst_topic_info info = {0};
    int rc = bus_admin_open(&a, conf, RD_KAFKA_CONSUMER, NULL, timeout_ms, err);
    if (!rc)
        rc = bus_partitions(a.rk, &a.health, topic, timeout_ms, &info.partitions, err);
    if (!rc) {
        info.name = pst_strdup(topic);
        info.low = pst_alloc(info.partitions * sizeof *info.low);
        info.high = pst_alloc(info.partitions * sizeof *info.high);
        for (int p = 0; p < info.partitions && !rc; p++)
            rc = bus_admin_watermarks(&a, topic, p, &info.low[p], &info.high[p], err);
    }
    bus_admin_close(&a);
    if (rc < 0)
        pst_topic_info_done(&info);
    else
        *ret_info = info;
    return rc;
}

void pst_topic_info_done(pst_topic_info *t)
{
    if (!t)
        return;
    free(t->name);
    free(t->low);
    free(t->high);
    memset(t, 0, sizeof *t);
}

int pst_admin_offset_at(const pst_bus_conf *conf, const char *topic, int32_t partition, int64_t timestamp_ms, int64_t *ret_offset,
                        pst_err *err)
{
    bus_admin a;
    int n = 0, rc = bus_admin_open(&a, conf, RD_KAFKA_CONSUMER, NULL, ASK_MS, err);
    if (!rc)
        rc = bus_partitions(a.rk, &a.health, topic, ASK_MS, &n, err);
    if (!rc && (partition < 0 || partition >= n))
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "kafka", 0, "topic %s has no partition %d, only 0 to %d", topic, partition,
                         n - 1);
    if (!rc) {
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(list, topic, partition);
        rc = bus_offsets_at(a.rk, &a.health, list, timestamp_ms, ASK_MS, err);
        int64_t offset = list->elems[0].offset, low;
        rd_kafka_topic_partition_list_destroy(list);
        if (!rc && offset < 0) /* nothing that young: the end, as a number */
            rc = bus_admin_watermarks(&a, topic, partition, &low, &offset, err);
        if (!rc)
            *ret_offset = offset;
    }
    bus_admin_close(&a);
    return rc;
}

/* ---- create -------------------------------------------------------------------------------------------------------------------------- */

rd_kafka_event_t *bus_admin_answer(bus_admin *a, rd_kafka_queue_t *q, const char *what, pst_err *err)
{
    rd_kafka_event_t *ev = NULL;
    while (!(ev = rd_kafka_queue_poll(q, 50))) {
        rd_kafka_poll(a->rk, 0);
        if (a->health.fatal.code || pst_mono_us() > a->until_us + 1000000 || pst_stop_requested()) {
            unanswered(a->health.conf, &a->health, RD_KAFKA_RESP_ERR__TIMED_OUT, what, err);
            return NULL;
        }
    }
    rd_kafka_resp_err_t code = rd_kafka_event_error(ev);
    if (!code)
        return ev;
    rd_kafka_poll(a->rk, 0);
    if (bus_is_outage(code))
        unanswered(a->health.conf, &a->health, code, what, err);
    else
        bus_err(err, a->health.conf, code, rd_kafka_event_error_string(ev), "%s", what);
    rd_kafka_event_destroy(ev);
    return NULL;
}

static rd_kafka_NewTopic_t *new_topic(const pst_topic_spec *spec, pst_err *err)
{
    char why[300];
    rd_kafka_NewTopic_t *t = rd_kafka_NewTopic_new(spec->name, spec->partitions > 0 ? spec->partitions : -1,
                                                   spec->replication > 0 ? spec->replication : -1, why, sizeof why);
    if (!t) {
        pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "kafka", 0, "cannot create topic %.100s: %s", spec->name, why);
        return NULL;
    }
    for (const char *const *kv = spec->configs; kv && kv[0] && kv[1]; kv += 2)
        rd_kafka_NewTopic_set_config(t, kv[0], kv[1]);
    return t;
}

/* A broker without CreateTopics makes a topic when it is asked about by a client that allows it. */
static int create_by_asking(const pst_bus_conf *conf, const pst_topic_spec *topics, size_t n, int timeout_ms, pst_err *err)
{
    bus_admin a;
    int rc = bus_admin_open(&a, conf, RD_KAFKA_PRODUCER, NULL, timeout_ms, err);
    for (size_t i = 0; i < n && !rc; i++) {
        int partitions;
        pst_err e = {0};
        do { /* the first answer may still say that there is none */
            pst_err_clear(&e);
            rc = bus_partitions(a.rk, &a.health, topics[i].name, left_ms(a.until_us, timeout_ms), &partitions, &e);
        } while (rc == PST_ENOTFOUND && pst_mono_us() < a.until_us && !pst_stop_requested() && (pst_sleep_ms(50), true));
        if (rc < 0 && err && !err->code)
            *err = e;
    }
    bus_admin_close(&a);
    return rc;
}

static int check_created(bus_admin *a, rd_kafka_event_t *ev, bool *ret_unsupported, pst_err *err)
{
    size_t n = 0;
    const rd_kafka_topic_result_t **results = rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(ev), &n);
    for (size_t i = 0; i < n; i++) {
        rd_kafka_resp_err_t code = rd_kafka_topic_result_error(results[i]);
        if (!code || code == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
            continue;
        *ret_unsupported = code == RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE;
        return bus_err(err, a->health.conf, code, rd_kafka_topic_result_error_string(results[i]), "cannot create topic %s",
                       rd_kafka_topic_result_name(results[i]));
    }
    return 0;
}

bool bus_is_embedded(rd_kafka_t *rk, int timeout_ms)
{
    char *id = rd_kafka_clusterid(rk, timeout_ms);
    bool yes = id && !strncmp(id, "mockCluster", 11);
    free(id);
    return yes;
}

bool bus_admin_is_embedded(bus_admin *a)
{
    return bus_is_embedded(a->rk, left_ms(a->until_us, 5000));
}

/* Created is not yet known everywhere: wait until metadata lists them all, so that a producer started next finds them. */
static int await_topics(bus_admin *a, const pst_topic_spec *topics, size_t n, pst_err *err)
{
    for (size_t i = 0; i < n; i++) {
        int rc, partitions;
        pst_err e = {0};
        do {
            pst_err_clear(&e);
            rc = bus_partitions(a->rk, &a->health, topics[i].name, left_ms(a->until_us, 10000), &partitions, &e);
        } while (rc == PST_ENOTFOUND && pst_mono_us() < a->until_us && !pst_stop_requested() && (pst_sleep_ms(20), true));
        if (rc < 0) {
            if (err && !err->code)
                *err = e;
            return rc;
        }
    }
    return 0;
}

int pst_admin_create_topics(const pst_bus_conf *conf, const pst_topic_spec *topics, size_t n, int timeout_ms, pst_err *err)
{
    if (!n)
        return 0;
    bus_admin a;
    pst_err e = {0}; /* an unsupported call is not the end of it */
    bool unsupported = false;
    rd_kafka_NewTopic_t **list = pst_alloc(n * sizeof *list);
    rd_kafka_queue_t *q = NULL;
    rd_kafka_AdminOptions_t *options = NULL;
    rd_kafka_event_t *ev = NULL;
    int rc = bus_admin_open(&a, conf, RD_KAFKA_CONSUMER, NULL, timeout_ms, &e);
    for (size_t i = 0; i < n && !rc; i++) {
        list[i] = new_topic(&topics[i], &e);
        rc = list[i] ? 0 : PST_EINVAL;
    }
    if (rc < 0)
        goto out;
    unsupported = bus_admin_is_embedded(&a);
    if (unsupported)
        goto out;
    q = rd_kafka_queue_new(a.rk);
    options = rd_kafka_AdminOptions_new(a.rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    char ignored[100];
    rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, ignored, sizeof ignored);
    rd_kafka_AdminOptions_set_operation_timeout(options, timeout_ms, ignored, sizeof ignored);
    rd_kafka_CreateTopics(a.rk, list, n, options, q);
    ev = bus_admin_answer(&a, q, "cannot create topics", &e);
    unsupported = !ev && e.native == RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE;
    rc = ev ? check_created(&a, ev, &unsupported, &e) : e.code;
    if (!rc)
        rc = await_topics(&a, topics, n, &e);
out:
    if (ev)
        rd_kafka_event_destroy(ev);
    if (options)
        rd_kafka_AdminOptions_destroy(options);
    if (q)
        rd_kafka_queue_destroy(q);
    for (size_t i = 0; i < n; i++) {
        if (list[i])
            rd_kafka_NewTopic_destroy(list[i]);
    }
    free(list);
    bus_admin_close(&a);
    if (unsupported)
        return create_by_asking(conf, topics, n, timeout_ms, err);
    if (rc < 0 && err && !err->code)
        *err = e;
    return rc;
}

/* All settings of the topic are asked for, since Kafka tells defaults too: a key that is not among them does not exist. */
int pst_admin_topic_config(const pst_bus_conf *conf, const char *topic, const char *key, char **ret_value, int timeout_ms, pst_err *err)
{
    bus_admin a;
    int rc = bus_admin_open(&a, conf, RD_KAFKA_CONSUMER, NULL, timeout_ms, err);
    if (rc == 0 && bus_admin_is_embedded(&a))
        rc = pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "kafka", 0, "the in-memory broker has no topic configuration");
    if (rc < 0) {
        bus_admin_close(&a);
        return rc;
    }
    rd_kafka_ConfigResource_t *resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic);
    rd_kafka_queue_t *q = rd_kafka_queue_new(a.rk);
    rd_kafka_DescribeConfigs(a.rk, &resource, 1, NULL, q);
    pst_err e = {0};
    rd_kafka_event_t *ev = bus_admin_answer(&a, q, "topic configuration", &e);
    size_t n = 0, m = 0;
    const rd_kafka_ConfigResource_t **found =
        ev ? rd_kafka_DescribeConfigs_result_resources(rd_kafka_event_DescribeConfigs_result(ev), &n) : NULL;
    rd_kafka_resp_err_t code = n ? rd_kafka_ConfigResource_error(found[0]) : 0;
    const rd_kafka_ConfigEntry_t **entries = n && !code ? rd_kafka_ConfigResource_configs(found[0], &m) : NULL;
    const char *value = NULL;
    for (size_t i = 0; i < m && !value; i++) {
        if (!strcmp(rd_kafka_ConfigEntry_name(entries[i]), key))
            value = rd_kafka_ConfigEntry_value(entries[i]);
    }
    if (!ev)
        rc = e.code;
    else if (code)
        rc = bus_err(&e, conf, code, rd_kafka_ConfigResource_error_string(found[0]), "topic %s: cannot read its configuration", topic);
    else if (!value)
        rc = pst_err_set(&e, PST_ENOTFOUND, PST_CLASS_FATAL, "kafka", 0, "topic %s has no setting %s", topic, key);
    else
        *ret_value = pst_strdup(value);
    if (rc < 0 && err && !err->code)
        *err = e;
    if (ev)
        rd_kafka_event_destroy(ev);
    rd_kafka_ConfigResource_destroy(resource);
    rd_kafka_queue_destroy(q);
    bus_admin_close(&a);
    return rc;
}

int64_t bus_topic_bytes_max(const pst_bus_conf *conf, const char *topic, int timeout_ms)
{
    char *value = NULL;
    if (pst_admin_topic_config(conf, topic, "max.message.bytes", &value, timeout_ms, NULL) < 0)
        return -1;
    int64_t bytes = strtoll(value, NULL, 10);
    free(value);
    return bytes;
}
