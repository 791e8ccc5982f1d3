/* bus_lag.c - how far consumer groups are behind. Ends are what a read_committed reader may read (last stable offset). */
#include "common/bus/bus_admin.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/stop.h"

#include <limits.h>
#include <stdio.h>
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
    char why[300] = "";
    int code = a->link.lib->admin->groups(a->link.h, bus_admin_left_ms(a, INT_MAX), ret, why, sizeof why);
    return bus_admin_said(a, code, why, "cannot list the groups", err);
}

static int group_offsets(bus_admin *a, const char *group, rows *r, pst_err *err)
{
    char why[300] = "", what[300];
    bus_places *list = bus_places_new();
    int code = a->link.lib->admin->group_offsets(a->link.h, group, false, bus_admin_left_ms(a, INT_MAX), list, why, sizeof why);
    snprintf(what, sizeof what, "cannot read the offsets of group %.200s", group);
    int rc = bus_admin_said(a, code, why, what, err);
    for (size_t p = 0; !rc && p < list->n; p++)
        add(r, group, list->at[p].topic, list->at[p].partition, list->at[p].offset);
    bus_places_free(list);
    return rc;
}

/* A coordinator that was elected a moment ago is still reading its log: it is asked again while there is time. */
static int group_offsets_in_time(bus_admin *a, const char *group, rows *r, pst_err *err)
{
    int rc;
    while ((rc = group_offsets(a, group, r, err)) < 0 &&
           (err->native == BUS_ERR_COORDINATOR_LOAD_IN_PROGRESS || err->native == BUS_ERR_COORDINATOR_NOT_AVAILABLE ||
            err->native == BUS_ERR_NOT_COORDINATOR) &&
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
    rc = bus_admin_open(&a, conf, false, group, timeout_ms, err);
    bus_places *list = bus_places_new();
    for (size_t t = 0; t < n; t++) {
        for (int p = 0; p < topics[t].partitions; p++)
            bus_places_add(list, topics[t].name, p);
        pst_topic_info_done(&topics[t]);
    }
    free(topics);
    int code = rc || !list->n ? 0 : a.link.lib->common->committed(a.link.h, list, bus_admin_left_ms(&a, 5000));
    if (code)
        rc = bus_err(err, conf, code, NULL, "group %s", group);
    for (size_t i = 0; i < list->n && !rc; i++) {
        if (list->at[i].offset >= 0)
            add(r, group, list->at[i].topic, list->at[i].partition, list->at[i].offset);
    }
    bus_places_free(list);
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
    int rc = bus_admin_open(&a, conf, false, NULL, timeout_ms, &e);
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
