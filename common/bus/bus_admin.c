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

static void on_fault(void *admin, int code, const char *reason)
{
    bus_health_note(&((bus_admin *)admin)->health, code, reason);
}

static bool gives_up(void *admin)
{
    const bus_admin *a = admin;
    return a->health.fatal.code || (a->leaving ? pst_stop_forced() : pst_stop_requested());
}

int bus_admin_open(bus_admin *a, const pst_bus_conf *conf, bool may_create, const char *group, int timeout_ms, pst_err *err)
{
    memset(a, 0, sizeof *a);
    a->health.conf = conf;
    a->until_us = pst_mono_us() + timeout_ms * 1000LL;
    a->link.lib = bus_client_default();
    const bus_listener to = {.owner = a, .fault = on_fault, .give_up = gives_up};
    return a->link.lib->admin->open(conf, group, may_create, &to, &a->link.h, err);
}

void bus_admin_close(bus_admin *a)
{
    bus_destroy(a->link);
    a->link.h = NULL;
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
static bool ask_again(bus_link l, bus_health *h, int code, int64_t until_us)
{
    if (h)
        bus_serve(l, 0); /* news of the connection, which knows about refused logins */
    return bus_is_outage(code) && !(h && h->fatal.code) && pst_mono_us() < until_us && !pst_stop_requested();
}

/* The error of a call that was not answered: what the connection said is worth more than "timed out". */
static int unanswered(const pst_bus_conf *conf, bus_health *h, int code, const char *what, pst_err *err)
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

static int ask_topic(bus_link l, bus_health *h, const char *topic, int64_t until_us, bus_topic *ret, pst_err *err)
{
    int code;
    do {
        code = l.lib->common->topic(l.h, topic, left_ms(until_us, SLICE_MS), ret);
    } while (code && ask_again(l, h, code, until_us));
    if (code)
        return unanswered(h ? h->conf : NULL, h, code, "no answer about topics", err);
    if (h)
        bus_health_ok(h);
    return 0;
}

static int ask_topics(bus_admin *a, pst_topic_info **ret_topics, size_t *ret_n, int *ret_brokers, pst_err *err)
{
    int code;
    do {
        code = a->link.lib->admin->topics(a->link.h, left_ms(a->until_us, SLICE_MS), ret_topics, ret_n, ret_brokers);
    } while (code && ask_again(a->link, &a->health, code, a->until_us));
    if (code)
        return unanswered(a->health.conf, &a->health, code, "no answer about topics", err);
    bus_health_ok(&a->health);
    return 0;
}

int bus_partitions(bus_link l, bus_health *h, const char *topic, int timeout_ms, int *ret_n, pst_err *err)
{
    int64_t until = pst_mono_us() + timeout_ms * 1000LL;
    for (;;) {
        bus_topic t;
        int rc = ask_topic(l, h, topic, until, &t, err), code = t.code;
        if (rc < 0)
            return rc;
        if (!code && t.partitions > 0) {
            *ret_n = t.partitions;
            return 0;
        }
        if (!bus_is_outage(code) || pst_mono_us() >= until || pst_stop_requested()) {
            if (code == BUS_ERR_UNKNOWN_TOPIC_OR_PART || !code)
                return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_RETRY, "kafka", code, "topic %s does not exist", topic);
            return bus_err(err, h ? h->conf : NULL, code, NULL, "topic %s", topic);
        }
        pst_sleep_ms(50);
    }
}

bool bus_lacks_leader(bus_link l, bus_health *h, const char *topic, int timeout_ms)
{
    bus_topic t;
    pst_err ignored = {0};
    return ask_topic(l, h, topic, pst_mono_us() + timeout_ms * 1000LL, &t, &ignored) == 0 && t.lacks_leader;
}

int bus_offsets_at(bus_link l, bus_health *h, bus_places *list, int64_t timestamp_ms, int timeout_ms, pst_err *err)
{
    int64_t until = pst_mono_us() + timeout_ms * 1000LL;
    int code;
    do {
        for (size_t i = 0; i < list->n; i++)
            list->at[i].offset = timestamp_ms;
        code = l.lib->common->offsets_at(l.h, list, left_ms(until, SLICE_MS * 4));
        if (!code)
            code = bus_places_code(list);
    } while (code && ask_again(l, h, code, until));
    return code ? unanswered(h ? h->conf : NULL, h, code, "no offsets for a time", err) : 0;
}

int bus_admin_watermarks(bus_admin *a, const char *topic, int32_t partition, int64_t *ret_low, int64_t *ret_high, pst_err *err)
{
    int code;
    do {
        code = a->link.lib->common->watermarks(a->link.h, topic, partition, left_ms(a->until_us, SLICE_MS * 4), ret_low, ret_high);
    } while (code && ask_again(a->link, &a->health, code, a->until_us));
    if (!code)
        return 0;
    char what[300];
    snprintf(what, sizeof what, "%s[%d]: no offsets", topic, partition);
    return unanswered(a->health.conf, &a->health, code, what, err);
}

static void free_topics(pst_topic_info *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        pst_topic_info_done(&list[i]);
    free(list);
}

int pst_admin_ping(const pst_bus_conf *conf, int timeout_ms, char **ret_cluster_id, int *ret_brokers, pst_err *err)
{
    bus_admin a;
    pst_topic_info *topics = NULL;
    size_t n = 0;
    int brokers = 0, rc = bus_admin_open(&a, conf, false, NULL, timeout_ms, err);
    if (!rc)
        rc = ask_topics(&a, &topics, &n, &brokers, err);
    if (!rc) {
        char *id = a.link.lib->common->cluster_id(a.link.h, left_ms(a.until_us, 1000));
        if (ret_cluster_id)
            *ret_cluster_id = pst_strdup(id ? id : "");
        if (ret_brokers)
            *ret_brokers = brokers;
        free(id);
        free_topics(topics, n);
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
    int brokers, rc = bus_admin_open(&a, conf, false, NULL, timeout_ms, err);
    if (!rc)
        rc = ask_topics(&a, ret_topics, ret_n, &brokers, err);
    if (!rc && *ret_n)
        qsort(*ret_topics, *ret_n, sizeof **ret_topics, by_name);
    bus_admin_close(&a);
    return rc;
}

int pst_admin_topic(const pst_bus_conf *conf, const char *topic, pst_topic_info *ret_info, int timeout_ms, pst_err *err)
{
    bus_admin a;
    pst_topic_info info = {0};
    int rc = bus_admin_open(&a, conf, false, NULL, timeout_ms, err);
    if (!rc)
        rc = bus_partitions(a.link, &a.health, topic, timeout_ms, &info.partitions, err);
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
    int n = 0, rc = bus_admin_open(&a, conf, false, NULL, ASK_MS, err);
    if (!rc)
        rc = bus_partitions(a.link, &a.health, topic, ASK_MS, &n, err);
    if (!rc && (partition < 0 || partition >= n))
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "kafka", 0, "topic %s has no partition %d, only 0 to %d", topic, partition,
                         n - 1);
    if (!rc) {
        bus_places *list = bus_places_new();
        bus_places_add(list, topic, partition);
        rc = bus_offsets_at(a.link, &a.health, list, timestamp_ms, ASK_MS, err);
        int64_t offset = list->at[0].offset, low;
        bus_places_free(list);
        if (!rc && offset < 0) /* nothing that young: the end, as a number */
            rc = bus_admin_watermarks(&a, topic, partition, &low, &offset, err);
        if (!rc)
            *ret_offset = offset;
    }
    bus_admin_close(&a);
    return rc;
}

/* ---- create -------------------------------------------------------------------------------------------------------------------------- */

int bus_admin_said(bus_admin *a, int code, const char *text, const char *what, pst_err *err)
{
    if (!code)
        return 0;
    if (code < 0 && bus_is_outage(code))
        return unanswered(a->health.conf, &a->health, code, what, err);
    return bus_err(err, a->health.conf, code, text, "%s", what);
}

/* A broker without CreateTopics makes a topic when it is asked about by a client that allows it. */
static int create_by_asking(const pst_bus_conf *conf, const pst_topic_spec *topics, size_t n, int timeout_ms, pst_err *err)
{
    bus_admin a;
    int rc = bus_admin_open(&a, conf, true, NULL, timeout_ms, err);
    for (size_t i = 0; i < n && !rc; i++) {
        int partitions;
        pst_err e = {0};
        do { /* the first answer may still say that there is none */
            pst_err_clear(&e);
            rc = bus_partitions(a.link, &a.health, topics[i].name, left_ms(a.until_us, timeout_ms), &partitions, &e);
        } while (rc == PST_ENOTFOUND && pst_mono_us() < a.until_us && !pst_stop_requested() && (pst_sleep_ms(50), true));
        if (rc < 0 && err && !err->code)
            *err = e;
    }
    bus_admin_close(&a);
    return rc;
}

bool bus_is_embedded(bus_link l, int timeout_ms)
{
    char *id = l.lib->common->cluster_id(l.h, timeout_ms);
    bool yes = id && !strncmp(id, "mockCluster", 11);
    free(id);
    return yes;
}

bool bus_admin_is_embedded(bus_admin *a)
{
    return bus_is_embedded(a->link, left_ms(a->until_us, 5000));
}

/* Created is not yet known everywhere: wait until metadata lists them all, so that a producer started next finds them. */
static int await_topics(bus_admin *a, const pst_topic_spec *topics, size_t n, pst_err *err)
{
    for (size_t i = 0; i < n; i++) {
        int rc, partitions;
        pst_err e = {0};
        do {
            pst_err_clear(&e);
            rc = bus_partitions(a->link, &a->health, topics[i].name, left_ms(a->until_us, 10000), &partitions, &e);
        } while (rc == PST_ENOTFOUND && pst_mono_us() < a->until_us && !pst_stop_requested() && (pst_sleep_ms(20), true));
        if (rc < 0) {
            if (err && !err->code)
                *err = e;
            return rc;
        }
    }
    return 0;
}

static int create(bus_admin *a, const pst_topic_spec *topics, size_t n, int timeout_ms, pst_err *err)
{
    char why[300] = "", what[300] = "cannot create topics";
    const char *topic = NULL;
    int code = a->link.lib->admin->create(a->link.h, topics, n, left_ms(a->until_us, timeout_ms), &topic, why, sizeof why);
    if (topic)
        snprintf(what, sizeof what, "cannot create topic %.200s", topic);
    int rc = bus_admin_said(a, code, why, what, err);
    return rc ? rc : await_topics(a, topics, n, err);
}

int pst_admin_create_topics(const pst_bus_conf *conf, const pst_topic_spec *topics, size_t n, int timeout_ms, pst_err *err)
{
    if (!n)
        return 0;
    bus_admin a;
    pst_err e = {0}; /* an unsupported call is not the end of it */
    int rc = bus_admin_open(&a, conf, false, NULL, timeout_ms, &e);
    bool unsupported = !rc && bus_admin_is_embedded(&a);
    if (!rc && !unsupported)
        rc = create(&a, topics, n, timeout_ms, &e);
    unsupported |= rc && e.native == BUS_ERR__UNSUPPORTED_FEATURE;
    bus_admin_close(&a);
    if (unsupported)
        return create_by_asking(conf, topics, n, timeout_ms, err);
    if (rc < 0 && err && !err->code)
        *err = e;
    return rc;
}

int pst_admin_topic_config(const pst_bus_conf *conf, const char *topic, const char *key, char **ret_value, int timeout_ms, pst_err *err)
{
    bus_admin a;
    int rc = bus_admin_open(&a, conf, false, NULL, timeout_ms, err);
    if (rc == 0 && bus_admin_is_embedded(&a))
        rc = pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "kafka", 0, "the in-memory broker has no topic configuration");
    if (rc == 0) {
        char why[300] = "", what[300], *value = NULL;
        int code = a.link.lib->admin->topic_config(a.link.h, topic, key, left_ms(a.until_us, timeout_ms), &value, why, sizeof why);
        snprintf(what, sizeof what, "topic %.200s: cannot read its configuration", topic);
        rc = bus_admin_said(&a, code, why, what, err);
        if (!rc && !value)
            rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_FATAL, "kafka", 0, "topic %s has no setting %s", topic, key);
        if (!rc)
            *ret_value = value;
    }
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
