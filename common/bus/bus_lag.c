/* bus_lag.c - how far consumer groups are behind. Ends are what a read_committed reader may read (last stable offset). */
#include "common/bus/bus_admin.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/stop.h"

#include <stdlib.h>
#include <string.h>

#define COORDINATOR_STEP_MS 100

typedef struct rows {
    pst_group_lag *at;
    size_t n, cap;
} rows;

static void add(rows *r, const char *group, const char *topic, int32_t partition, int64_t committed)
{
    r->at = pst_array_room(r->at, r->n, &r->cap, sizeof *r->at);
    r->at[r->n++] = (pst_group_lag){.group = pst_strdup(group),
                                    .topic = pst_strdup(topic),
                                    .partition = partition,
                                    .committed = committed >= 0 ? committed : -1,
                                    .end = -1};
}

void pst_group_lag_free(pst_group_lag *list, size_t n)
{
    for (size_t i = 0; list && i < n; i++) {
        free(list[i].group);
        free(list[i].topic);
    }
    free(list);
}

/* The names of all groups, NULL-terminated. */
static int list_groups(bus_admin *a, char ***ret, pst_err *err)
{
    rd_kafka_queue_t *q = rd_kafka_queue_new(a->rk);
    rd_kafka_ListConsumerGroups(a->rk, NULL, q);
    rd_kafka_event_t *ev = bus_admin_answer(a, q, "cannot list the groups", err);
    rd_kafka_queue_destroy(q);
    if (!ev)
        return err->code;
    size_t n = 0;
    const rd_kafka_ConsumerGroupListing_t **list =
        rd_kafka_ListConsumerGroups_result_valid(rd_kafka_event_ListConsumerGroups_result(ev), &n);
    char **names = pst_alloc((n + 1) * sizeof *names);
    for (size_t i = 0; i < n; i++)
        names[i] = pst_strdup(rd_kafka_ConsumerGroupListing_group_id(list[i]));
    rd_kafka_event_destroy(ev);
    *ret = names;
    return 0;
}

static int group_offsets(bus_admin *a, const char *group, rows *r, pst_err *err)
{
    rd_kafka_queue_t *q = rd_kafka_queue_new(a->rk);
    rd_kafka_ListConsumerGroupOffsets_t *ask = rd_kafka_ListConsumerGroupOffsets_new(group, NULL);
    rd_kafka_ListConsumerGroupOffsets(a->rk, &ask, 1, NULL, q);
    rd_kafka_event_t *ev = bus_admin_answer(a, q, "cannot read a group's offsets", err);
    rd_kafka_ListConsumerGroupOffsets_destroy(ask);
    rd_kafka_queue_destroy(q);
    if (!ev)
        return err->code;
    size_t n = 0;
    const rd_kafka_group_result_t **results =
        rd_kafka_ListConsumerGroupOffsets_result_groups(rd_kafka_event_ListConsumerGroupOffsets_result(ev), &n);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        const rd_kafka_error_t *e = rd_kafka_group_result_error(results[i]);
        const rd_kafka_topic_partition_list_t *list = rd_kafka_group_result_partitions(results[i]);
        if (e)
            rc = bus_err(err, a->health.conf, rd_kafka_error_code(e), rd_kafka_error_string(e), "group %s", group);
        for (int p = 0; list && p < list->cnt && !rc; p++)
            add(r, group, list->elems[p].topic, list->elems[p].partition, list->elems[p].offset);
    }
    rd_kafka_event_destroy(ev);
    return rc;
}

/* A coordinator that was elected a moment ago is still reading its log: it is asked again while there is time. */
static int group_offsets_in_time(bus_admin *a, const char *group, rows *r, pst_err *err)
{
    int rc;
    while ((rc = group_offsets(a, group, r, err)) < 0 &&
           (err->native == RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS || err->native == RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE ||
            err->native == RD_KAFKA_RESP_ERR_NOT_COORDINATOR) &&
           pst_mono_us() < a->until_us && !pst_stop_requested()) {
        pst_err_clear(err);
        pst_sleep_ms(COORDINATOR_STEP_MS);
    }
    return rc;
}

/* For a broker without these calls (the in-memory one): asks for every partition there is, as a member would. */
static int group_offsets_by_member(const pst_bus_conf *conf, const char *group, rows *r, int timeout_ms, pst_err *err)
{
    bus_admin a;
    pst_topic_info *topics = NULL;
    size_t n = 0;
    int rc = pst_admin_list(conf, &topics, &n, timeout_ms, err);
    if (rc < 0)
        return rc;
    rc = bus_admin_open(&a, conf, RD_KAFKA_CONSUMER, group, timeout_ms, err);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(16);
    for (size_t t = 0; t < n; t++) {
        for (int p = 0; p < topics[t].partitions; p++)
            rd_kafka_topic_partition_list_add(list, topics[t].name, p);
        pst_topic_info_done(&topics[t]);
    }
    free(topics);
    rd_kafka_resp_err_t code = rc || !list->cnt ? 0 : rd_kafka_committed(a.rk, list, bus_admin_left_ms(&a, 5000));
    if (code)
        rc = bus_err(err, conf, code, NULL, "group %s", group);
    for (int i = 0; i < list->cnt && !rc; i++) {
        if (list->elems[i].offset >= 0)
            add(r, group, list->elems[i].topic, list->elems[i].partition, list->elems[i].offset);
    }
    rd_kafka_topic_partition_list_destroy(list);
    bus_admin_close(&a);
    return rc;
}

static int by_place(const void *x, const void *y)
{
    const pst_group_lag *a = x, *b = y;
    int d = strcmp(a->group, b->group);
    if (!d)
        d = strcmp(a->topic, b->topic);
    return d ? d : a->partition - b->partition;
}

int pst_admin_lag(const pst_bus_conf *conf, const char *group, pst_group_lag **ret_rows, size_t *ret_n, int timeout_ms, pst_err *err)
{
    bus_admin a;
    rows r = {0};
    pst_err e = {0};
    char **names = NULL;
    int rc = bus_admin_open(&a, conf, RD_KAFKA_CONSUMER, NULL, timeout_ms, &e);
    if (rc < 0)
        goto out;
    bool embedded = bus_admin_is_embedded(&a);
    if (!group && embedded) {
        rc = pst_err_set(&e, PST_EUNSUPPORTED, PST_CLASS_FATAL, "kafka", 0, "the in-memory broker cannot list groups: name one");
    } else if (!group) {
        rc = list_groups(&a, &names, &e);
        for (size_t i = 0; !rc && names[i]; i++)
            rc = group_offsets_in_time(&a, names[i], &r, &e);
    } else {
        rc = embedded ? group_offsets_by_member(conf, group, &r, timeout_ms, &e) : group_offsets_in_time(&a, group, &r, &e);
    }
    for (size_t i = 0; i < r.n && !rc; i++) {
        int64_t low;
        pst_err missing = {0};
        int got = bus_admin_watermarks(&a, r.at[i].topic, r.at[i].partition, &low, &r.at[i].end, &missing);
        if (got < 0 && got != PST_ENOTFOUND) { /* a topic deleted since: its end stays unknown */
            rc = got;
            e = missing;
        }
    }
out:
    for (size_t i = 0; names && names[i]; i++)
        free(names[i]);
    free(names);
    bus_admin_close(&a);
    if (rc < 0) {
        pst_group_lag_free(r.at, r.n);
        if (err && !err->code)
            *err = e;
        return rc;
    }
    if (r.n)
        qsort(r.at, r.n, sizeof *r.at, by_place);
    *ret_rows = r.at;
    *ret_n = r.n;
    return 0;
}
