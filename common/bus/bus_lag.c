/* bus_lag.c - how far consumer groups are behind. Ends are what a read_committed reader may read (last stable offset).
 *
 * Kafka tells the offsets that a group has committed, and nothing of partitions on which it has committed none: those are found among the topics of
 * which it has committed something, and in what its members were given. What stands there is behind the group only if it begins at the first
 * record, and that is a setting of its members: the notes of our own groups tell it (bus_start.c), of others it is not known. */
#include "common/bus/bus_admin.h"
#include "common/bus/bus_consumer.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COORDINATOR_STEP_MS 100

#define LOOK_MS 5000 /* at the ends of partitions */

/* What stands for "from the first record on", until that record's offset is known. */
#define FROM_FIRST (-2)

typedef struct rows {
    pst_group_lag *at;
    size_t n, cap;
    pst_topic_info *topics; /* all there are; NULL: not asked for yet */
    size_t n_topics;
} rows;

static void add(rows *r, const char *group, const char *topic, int32_t partition, int64_t committed, int64_t next)
{
    r->at = pst_array_room(r->at, r->n, &r->cap, sizeof *r->at);
    r->at[r->n++] = (pst_group_lag){.group = pst_strdup(group),
                                    .topic = pst_strdup(topic),
                                    .partition = partition,
                                    .committed = committed >= 0 ? committed : -1,
                                    .next = next,
                                    .end = -1,
                                    .lag = -1};
}

/* A partition of which nothing is committed: one of these, of the same group and topic, may say where it is read from. */
static void add_uncommitted(rows *r, const char *group, const bus_places *committed, const char *topic, int32_t partition)
{
    int64_t next = -1;
    for (size_t i = 0; i < committed->n && next == -1; i++)
        if (committed->at[i].offset >= 0 && !strcmp(committed->at[i].topic, topic) && bus_note_reads_all(&committed->at[i], partition))
            next = FROM_FIRST;
    add(r, group, topic, partition, -1, next);
}

/* One group: what it has committed, and the partitions of the same topics and of its members of which it has not. */
static void add_group(rows *r, const char *group, const bus_places *committed, const bus_places *given)
{
    for (size_t i = 0; i < committed->n; i++)
        if (committed->at[i].offset >= 0)
            add(r, group, committed->at[i].topic, committed->at[i].partition, committed->at[i].offset, committed->at[i].offset);
    for (size_t t = 0; t < r->n_topics; t++) {
        const char *topic = r->topics[t].name;
        bool known = false;
        for (size_t i = 0; i < committed->n && !known; i++)
            known = committed->at[i].offset >= 0 && !strcmp(committed->at[i].topic, topic);
        for (size_t i = 0; i < given->n && !known; i++)
            known = !strcmp(given->at[i].topic, topic);
        for (int p = 0; known && p < r->topics[t].partitions; p++) {
            const bus_place *at = bus_places_find(committed, topic, p);
            if (!at || at->offset < 0)
                add_uncommitted(r, group, committed, topic, p);
        }
    }
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
    bus_members members = {0};
    int code = a->link.lib->admin->group_offsets(a->link.h, group, false, bus_admin_left_ms(a, INT_MAX), list, why, sizeof why);
    snprintf(what, sizeof what, "cannot read the offsets of group %.200s", group);
    int rc = bus_admin_said(a, code, why, what, err);
    if (!rc) { /* a group without members, or with none that are consumers, has its offsets all the same */
        a->link.lib->admin->group_members(a->link.h, group, bus_admin_left_ms(a, INT_MAX), &members, why, sizeof why);
        add_group(r, group, list, &members.given);
    }
    bus_members_done(&members);
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
    int rc = bus_admin_open(&a, conf, false, group, timeout_ms, err);
    bus_places *list = bus_places_new();
    for (size_t t = 0; t < r->n_topics; t++)
        for (int p = 0; p < r->topics[t].partitions; p++)
            bus_places_add(list, r->topics[t].name, p);
    int code = rc || !list->n ? 0 : a.link.lib->common->committed(a.link.h, list, bus_admin_left_ms(&a, 5000));
    if (code)
        rc = bus_err(err, conf, code, NULL, "group %s", group);
    if (!rc)
        add_group(r, group, list, &(bus_places){0});
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

/* A topic deleted since: its end stays unknown. Where nothing stands it makes no difference where a group begins. */
static int find_end(bus_admin *a, pst_group_lag *row, int64_t *ret_low, pst_err *err)
{
    int64_t low = -1;
    pst_err missing = {0};
    int rc = bus_admin_watermarks(a, row->topic, row->partition, &low, &row->end, &missing);
    *ret_low = low;
    if (rc < 0 && rc != PST_ENOTFOUND) {
        *err = missing;
        return rc;
    }
    if (row->next == FROM_FIRST || (row->next < 0 && low == row->end))
        row->next = rc < 0 ? -1 : low;
    if (row->next >= 0 && row->end >= row->next) /* a group ahead of the end: the log was cut, and nobody knows what it has read */
        row->lag = row->end - row->next;
    return 0;
}

/* Several groups may be behind at one partition: it is looked at once, as far back as the last of them. */
static void add_tail(pst_tail *tails, size_t *n, const pst_group_lag *row, int64_t low)
{
    int64_t from = row->next > low ? row->next : low;
    for (size_t i = 0; i < *n; i++) {
        pst_tail *t = &tails[i];
        if (t->partition != row->partition || strcmp(t->topic, row->topic))
            continue;
        t->low = from < t->low ? from : t->low;
        t->end = row->end > t->end ? row->end : t->end;
        return;
    }
    tails[(*n)++] = (pst_tail){.topic = row->topic, .partition = row->partition, .low = from, .end = row->end, .n = 1};
}

/* All at once; where that fails, each topic alone, so that one that may not be read leaves only its own unknown. */
static void read_tails(const pst_bus_conf *conf, pst_tail *tails, size_t n, int timeout_ms)
{
    pst_err e = {0};
    int64_t until = pst_mono_us() + timeout_ms * 1000LL;
    if (!n || pst_admin_tail(conf, tails, n, false, timeout_ms, &e) == 0)
        return;
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && !strcmp(tails[to].topic, tails[from].topic);)
            to++;
        int64_t left_ms = (until - pst_mono_us()) / 1000;
        pst_err_clear(&e);
        if (left_ms > 0 && !pst_stop_requested() && pst_admin_tail(conf, tails + from, to - from, false, (int)left_ms, &e) == 0)
            continue;
        pst_log(PST_LOG_DEBUG, "bus", "event=lag_in_offsets topic=%s why=\"%s\"", tails[from].topic, e.text);
        for (size_t i = from; i < to; i++)
            tails[i].known = false;
    }
}

static int by_topic(const void *x, const void *y)
{
    return strcmp(((const pst_tail *)x)->topic, ((const pst_tail *)y)->topic);
}

/* Where no record stands between a group and the end, it is not behind. What may not be read, or does not come, is counted in offsets. */
static void forgive_markers(const pst_bus_conf *conf, rows *r, const int64_t *lows, int timeout_ms)
{
    pst_tail *tails = pst_alloc((r->n + 1) * sizeof *tails);
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->at[i].lag > 0)
            add_tail(tails, &n, &r->at[i], lows[i]);
    qsort(tails, n, sizeof *tails, by_topic);
    read_tails(conf, tails, n, timeout_ms);
    for (size_t i = 0; i < r->n; i++)
        for (size_t t = 0; t < n && r->at[i].lag > 0; t++)
            if (tails[t].known && tails[t].partition == r->at[i].partition && !strcmp(tails[t].topic, r->at[i].topic) &&
                (tails[t].from < r->at[i].next || tails[t].from == tails[t].end))
                r->at[i].lag = 0;
    free(tails);
}

/* Every group's. Their offsets are asked for by a client that has a group: one without crashes where a coordinator moves meanwhile (librdkafka,
 * issue 5040). Which group it is makes no difference, since it does not join. */
static int every_group(bus_admin *a, const pst_bus_conf *conf, rows *r, int timeout_ms, pst_err *err)
{
    char **names = NULL;
    int rc = list_groups(a, &names, err);
    if (!rc && names[0]) {
        bus_admin_close(a);
        rc = bus_admin_open(a, conf, false, names[0], timeout_ms, err);
    }
    for (size_t i = 0; !rc && names[i]; i++)
        rc = group_offsets_in_time(a, names[i], r, err);
    for (size_t i = 0; names && names[i]; i++)
        free(names[i]);
    free(names);
    return rc;
}

/* Committed offsets first, ends after: a lag is never less than it was when the group was asked. Of the
 * in-memory broker, which lists no groups, only a group that is named can be asked, by a member of it. */
int pst_admin_lag(const pst_bus_conf *conf, const char *group, pst_group_lag **ret_rows, size_t *ret_n, int timeout_ms, pst_err *err)
{
    bus_admin a;
    rows r = {0};
    pst_err e = {0};
    int64_t *lows = NULL;
    int rc = bus_admin_open(&a, conf, false, group, timeout_ms, &e);
    if (rc < 0 || (rc = pst_admin_list(conf, &r.topics, &r.n_topics, timeout_ms, &e)) < 0)
        goto out;
    bool embedded = bus_admin_is_embedded(&a);
    if (!group && embedded) {
        rc = pst_err_set(&e, PST_EUNSUPPORTED, PST_CLASS_FATAL, "kafka", 0, "the in-memory broker cannot list groups: name one");
    } else if (!group) {
        rc = every_group(&a, conf, &r, timeout_ms, &e);
    } else {
        rc = embedded ? group_offsets_by_member(conf, group, &r, timeout_ms, &e) : group_offsets_in_time(&a, group, &r, &e);
    }
    lows = pst_alloc((r.n + 1) * sizeof *lows);
    for (size_t i = 0; i < r.n && !rc; i++)
        rc = find_end(&a, &r.at[i], &lows[i], &e);
    if (!rc)
        forgive_markers(conf, &r, lows, bus_admin_left_ms(&a, LOOK_MS));
out:
    free(lows);
    for (size_t t = 0; t < r.n_topics; t++)
        pst_topic_info_done(&r.topics[t]);
    free(r.topics);
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
