/* bus_assign.c - which partitions a consumer has: rebalances, assignment without a group. Where it stands in each is in bus_place.c.
 *
 * The rule that keeps commits right: offsets are sent only for partitions that are assigned now, and never beyond what was handed out since
 * they were assigned. A partition that was taken away and given back starts afresh. */
#include "common/bus/bus_consumer.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdlib.h>
#include <string.h>

#define CHECK_EVERY_US (3 * 1000000LL)

/* A record of ours has the very name that the partition has. */
static bool is_part(const bus_part *p, const char *topic, int32_t partition)
{
    return p->partition == partition && (p->name == topic || !strcmp(p->topic, topic));
}

bus_part *bus_part_find(pst_consumer *c, const char *topic, int32_t partition)
{
    if (c->last_part < c->n_parts && is_part(&c->parts[c->last_part], topic, partition)) /* records come in runs of one partition */
        return &c->parts[c->last_part];
    for (size_t i = 0; i < c->n_parts; i++) {
        if (is_part(&c->parts[i], topic, partition)) {
            c->last_part = i;
            return &c->parts[i];
        }
    }
    return NULL;
}

/* Its place among the topics, or among the ranges, that the consumer was opened with. */
static const char *listed_topic(const pst_consumer *c, const char *topic, uint32_t *ret_index)
{
    for (size_t i = 0; i < c->opts.n_topics + c->opts.n_ranges; i++) {
        const char *name = c->opts.n_topics ? c->opts.topics[i] : c->opts.ranges[i].topic;
        if (!strcmp(name, topic)) {
            *ret_index = (uint32_t)i;
            return name;
        }
    }
    *ret_index = UINT32_MAX;
    return NULL;
}

bus_part *bus_part_add(pst_consumer *c, const char *topic, int32_t partition)
{
    c->parts = pst_array_one_more(c->parts, c->n_parts, sizeof *c->parts);
    bus_part *p = &c->parts[c->n_parts++];
    *p = (bus_part){.topic = pst_strdup(topic),
                    .partition = partition,
                    .base = -1,
                    .next = -1,
                    .to = -1,
                    .marked = -1,
                    .owed = -1,
                    .committed = -1,
                    .from = -1,
                    .assigned_us = pst_mono_us()};
    p->heard_us = p->turn_us = p->assigned_us;
    p->name = listed_topic(c, topic, &p->topic_index);
    return p;
}

void bus_part_remove(pst_consumer *c, const char *topic, int32_t partition)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        bus_part *p = &c->parts[i];
        if (p->partition != partition || strcmp(p->topic, topic))
            continue;
        free(p->topic);
        memmove(p, p + 1, (--c->n_parts - i) * sizeof *p);
        return;
    }
}

void bus_parts_clear(pst_consumer *c)
{
    for (size_t i = 0; i < c->n_parts; i++)
        free(c->parts[i].topic);
    c->n_parts = 0;
}

/* ---- rebalance --------------------------------------------------------------------------------------------------------------- */

/* Records of this very poll whose partition went away while it gathered them: the new owner reads them. */
static void drop_gathered(pst_consumer *c)
{
    if (c->serving)
        return; /* somebody reads them; what was made of them is thrown away, since the batch is lost */
    size_t kept = 0;
    c->bytes = 0;
    for (size_t i = 0; i < c->n; i++) {
        const pst_record *r = &c->records[i];
        if (!bus_part_find(c, r->topic, r->partition)) {
            c->link.lib->consumer->release(c->link.h, r, 1);
            continue;
        }
        c->bytes += r->key_len + r->value_len;
        c->records[kept++] = *r;
    }
    c->n = kept;
}

static void clear_parts(pst_consumer *c)
{
    for (size_t i = 0; i < c->n_parts; i++)
        bus_pause(c, &c->parts[i], false); /* librdkafka remembers beyond the assignment */
    bus_parts_clear(c);
    c->release_us = c->rest_us = 0;
}

/* Where nothing is committed, the places are looked up and committed before the client hears of them. It begins to fetch with assign(), so whatever
 * has to be known of a partition before its first record comes is found out above that line. */
static void on_assign(pst_consumer *c, bus_places *list, bool incremental)
{
    pst_err err = {0};
    if (!incremental && c->n_parts) { /* a topic grew while a rebalance was under way: nobody was asked to give anything back */
        c->epoch++;
        c->lost = true;
        clear_parts(c);
        drop_gathered(c);
    }
    bus_peers_inherit(c, list);
    int rc = c->opts.start != PST_START_EARLIEST && list->n ? bus_start_places(c, list, &err) : 0;
    if (rc < 0) {
        if (rc != PST_EFENCED || err.cls == PST_CLASS_FATAL)
            bus_consumer_astray(c, &err, NULL);
        const bus_places nothing = {0};
        if (!incremental) /* an answer, unlike NULL, behind which librdkafka would wait for one and hear no rebalance */
            c->link.lib->consumer->assign(c->link.h, &nothing);
        return;
    }
    if (incremental) {
        char why[300];
        int code = c->link.lib->consumer->assign_more(c->link.h, list, why, sizeof why);
        bus_health_note(&c->health, code, why);
    } else {
        bus_health_note(&c->health, c->link.lib->consumer->assign(c->link.h, list), NULL);
    }
    for (size_t i = 0; i < list->n; i++)
        bus_start_noted(bus_part_add(c, list->at[i].topic, list->at[i].partition), &list->at[i]);
    if (c->stands)
        bus_pause_all(c);
    c->assigned = true;
    bus_health_ok(&c->health);
}

static void give_up(pst_consumer *c, const char *topic, int32_t partition)
{
    bus_part *p = bus_part_find(c, topic, partition);
    if (p)
        bus_pause(c, p, false);
    bus_part_remove(c, topic, partition);
}

static void on_revoke(pst_consumer *c, bus_places *list, bool incremental)
{
    for (size_t i = 0; i < list->n; i++)
        give_up(c, list->at[i].topic, list->at[i].partition);
    if (incremental) {
        c->link.lib->consumer->assign_less(c->link.h, list);
    } else {
        clear_parts(c);
        c->link.lib->consumer->assign(c->link.h, NULL);
        c->assigned = false;
    }
    if (list->n)
        c->lost = true;
    drop_gathered(c);
}

/* Who leaves takes its place without reading from it: the join is over, and the group can be left. */
static void on_last_place(pst_consumer *c)
{
    const bus_places nothing = {0};
    c->link.lib->consumer->assign(c->link.h, &nothing);
    c->assigned = true;
}

void bus_rebalance(void *consumer, bus_change change, bus_places *list, bool incremental)
{
    static const char *const names[] = {[BUS_ASSIGNED] = "assign", [BUS_REVOKED] = "revoke", [BUS_LOST] = "lost"};
    pst_consumer *c = consumer;
    if (change != BUS_ASSIGNED)
        c->epoch++;
    pst_log(PST_LOG_DEBUG, "bus", "event=rebalance group=%s kind=%s partitions=%zu", c->group, names[change], list->n);
    c->changing = true;
    if (change == BUS_ASSIGNED && !c->closing) {
        on_assign(c, list, incremental);
    } else if (change == BUS_ASSIGNED && c->leaves && !incremental) {
        on_last_place(c);
    } else if (change == BUS_REVOKED) {
        on_revoke(c, list, incremental);
    } else {
        clear_parts(c);
        drop_gathered(c);
        c->lost = true;
        c->link.lib->consumer->assign(c->link.h, NULL);
    }
    c->changing = false;
}

/* ---- without a group ------------------------------------------------------------------------------------------------------------ */

static int list_topics(pst_consumer *c, bus_places *list, pst_err *err)
{
    int64_t at = c->opts.start == PST_START_LATEST ? PST_OFFSET_END : PST_OFFSET_BEGINNING;
    for (size_t t = 0; t < c->opts.n_topics; t++) {
        int n = 0, rc = bus_partitions(c->link, &c->health, c->opts.topics[t], 10000, &n, err);
        if (rc < 0)
            return rc;
        for (int p = 0; p < n; p++)
            bus_places_add(list, c->opts.topics[t], p)->offset = at;
    }
    return c->opts.start == PST_START_TIMESTAMP ? bus_offsets_at(c->link, &c->health, list, c->opts.start_ms, 10000, err) : 0;
}

int bus_assign_all(pst_consumer *c, pst_err *err)
{
    bus_places *list = bus_places_new();
    int rc = 0;
    if (c->opts.n_ranges) {
        for (size_t i = 0; i < c->opts.n_ranges; i++) {
            const pst_range *r = &c->opts.ranges[i];
            bus_part *p = bus_part_find(c, r->topic, r->partition);
            if (p) {
                rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "kafka", 0, "%s[%d] is named by two ranges", r->topic, r->partition);
                goto out;
            }
            p = bus_part_add(c, r->topic, r->partition);
            p->to = r->to;
            p->from = r->from;
            if (r->to >= 0 && r->from >= 0 && r->from >= r->to)
                p->eof = p->done = true; /* an empty range: nothing to fetch */
            else
                bus_places_add(list, r->topic, r->partition)->offset = p->from;
        }
    } else {
        rc = list_topics(c, list, err);
        if (rc < 0)
            goto out;
        for (size_t i = 0; i < list->n; i++)
            bus_part_add(c, list->at[i].topic, list->at[i].partition)->from = list->at[i].offset;
    }
    int code = list->n ? c->link.lib->consumer->assign(c->link.h, list) : 0;
    if (code)
        rc = bus_err(err, c->conf, code, NULL, "cannot assign partitions");
    c->assigned = !rc;
out:
    bus_places_free(list);
    return rc;
}

/* librdkafka says nothing about ranges of a topic that is not there or may not be read: asks, until all are known to be there. */
void bus_check_ranges(pst_consumer *c)
{
    int64_t now = pst_mono_us();
    if (c->checked || now < c->check_us)
        return;
    c->check_us = now + CHECK_EVERY_US;
    const char *topic = NULL;
    int n = 0;
    for (size_t i = 0; i < c->n_parts; i++) {
        const bus_part *p = &c->parts[i];
        pst_err e = {0};
        if (p->next >= 0 || p->done)
            continue;
        if (!topic || strcmp(topic, p->topic)) {
            topic = p->topic;
            if (bus_partitions(c->link, &c->health, topic, 300, &n, &e) < 0) {
                if (e.cls == PST_CLASS_FATAL && !c->health.fatal.code)
                    c->health.fatal = e;
                else if (e.cls != PST_CLASS_FATAL)
                    c->health.last = e;
                return;
            }
        }
        if (p->partition >= n) {
            pst_err_clear(&c->health.last);
            pst_err_set(&c->health.last, PST_ENOTFOUND, PST_CLASS_RETRY, "kafka", 0, "topic %s has no partition %d, only 0 to %d", topic,
                        p->partition, n - 1);
            return;
        }
    }
    c->checked = true;
}

/* ---- looking ------------------------------------------------------------------------------------------------------------------------- */

size_t pst_consumer_assignment(pst_consumer *c, pst_range *ret_ranges, size_t max)
{
    for (size_t i = 0; i < c->n_parts && i < max; i++) {
        const bus_part *p = &c->parts[i];
        ret_ranges[i] = (pst_range){.topic = p->topic, .partition = p->partition, .from = p->next < 0 ? -1 : p->next, .to = p->to};
    }
    return c->n_parts;
}

bool pst_consumer_joined(const pst_consumer *c)
{
    return c->assigned;
}

int64_t pst_consumer_lag(pst_consumer *c)
{
    int64_t lag = 0;
    if (!c->assigned)
        return -1;
    for (size_t i = 0; i < c->n_parts; i++) {
        const bus_part *p = &c->parts[i];
        int64_t high;
        if (p->eof)
            continue;
        if (c->link.lib->consumer->known_end(c->link.h, p->topic, p->partition, &high) || high < 0 || p->next < 0)
            return -1;
        if (p->to >= 0 && high > p->to)
            high = p->to;
        lag += high > p->next ? high - p->next : 0;
    }
    return lag;
}

bool pst_consumer_at_end(pst_consumer *c)
{
    for (size_t i = 0; i < c->n_parts; i++)
        if (c->parts[i].unheard)
            return false;
    return pst_consumer_lag(c) == 0;
}
