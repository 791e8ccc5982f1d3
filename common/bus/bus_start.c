/* bus_start.c - where a group begins that has nothing committed and was told `latest` or a time.
 *
 * librdkafka's own "latest" is the end at the moment at which a partition is fetched from for the first time, anew at each start until something
 * is committed: what was written between the group's beginning and that moment is skipped, and so is what a partition holds that was added to the
 * topic later, although all of it was written after the beginning. Here the place is looked up once, and committed before a record is read. With
 * each offset goes a note (its metadata), how many partitions the topic had at the beginning; a partition beyond that number is read from its
 * first record. Every later commit carries the note on. */
#include "common/bus/bus_consumer.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTE  "penstock"
#define BEGUN " begun="
#define BY    " by="

/* What follows this key in the note, up to the next blank. */
static char *note_word(const rd_kafka_topic_partition_t *tp, const char *key)
{
    size_t n = strlen(NOTE);
    if (!tp->metadata || tp->metadata_size <= n || memcmp(tp->metadata, NOTE, n))
        return NULL;
    char *text = pst_strndup(tp->metadata, tp->metadata_size), *at = strstr(text, key), *word = NULL;
    if (at) {
        at += strlen(key);
        word = pst_strndup(at, strcspn(at, " "));
    }
    free(text);
    return word;
}

static int note_of(const rd_kafka_topic_partition_t *tp)
{
    char *word = note_word(tp, BEGUN);
    long begun = word ? strtol(word, NULL, 10) : -1;
    free(word);
    return begun > 0 && begun < 100000000 ? (int)begun : -1;
}

char *bus_note_by(const rd_kafka_topic_partition_t *tp)
{
    return note_word(tp, BY);
}

static void put_note(rd_kafka_topic_partition_t *tp, int begun, const char *by)
{
    char number[24] = "";
    if (begun > 0)
        snprintf(number, sizeof number, BEGUN "%d", begun);
    free(tp->metadata); /* librdkafka's are malloc's, too */
    tp->metadata = pst_sprintf(NOTE "%s%s%s", number, by ? BY : "", by ? by : "");
    tp->metadata_size = strlen(tp->metadata);
}

static void set_note(rd_kafka_topic_partition_t *tp, int begun)
{
    put_note(tp, begun, NULL);
}

void bus_start_note(pst_consumer *c, rd_kafka_topic_partition_list_t *list)
{
    for (int i = 0; i < list->cnt; i++) {
        const bus_part *p = bus_part_find(c, list->elems[i].topic, list->elems[i].partition);
        if (p && (p->begun > 0 || c->signature))
            put_note(&list->elems[i], p->begun, c->signature);
    }
}

void bus_start_noted(bus_part *p, const rd_kafka_topic_partition_t *tp)
{
    p->begun = note_of(tp);
}

/* Every partition of the topics in list, with what is committed. */
static rd_kafka_resp_err_t look_at_topics(pst_consumer *c, const rd_kafka_topic_partition_list_t *list,
                                          rd_kafka_topic_partition_list_t *all)
{
    for (int i = 0; i < list->cnt; i++) {
        const char *topic = list->elems[i].topic;
        pst_err e = {0};
        int n = 0;
        if (rd_kafka_topic_partition_list_find(all, topic, 0))
            continue;
        if (bus_partitions(c->rk, NULL, topic, BUS_STEP_MS, &n, &e) < 0)
            return e.native ? (rd_kafka_resp_err_t)e.native : RD_KAFKA_RESP_ERR__TIMED_OUT;
        rd_kafka_topic_partition_list_add_range(all, topic, 0, n - 1);
    }
    for (int i = 0; i < list->cnt; i++) /* the group's leader may have heard of more than we were told just now */
        if (!rd_kafka_topic_partition_list_find(all, list->elems[i].topic, list->elems[i].partition))
            rd_kafka_topic_partition_list_add(all, list->elems[i].topic, list->elems[i].partition);
    rd_kafka_resp_err_t code = rd_kafka_committed(c->rk, all, BUS_STEP_MS);
    for (int i = 0; !code && i < all->cnt; i++)
        code = all->elems[i].err;
    return code;
}

/* With how many partitions the topic began, as its committed offsets tell; -1 = none does. *ret_now: how many there are. */
static int begun_with(const rd_kafka_topic_partition_list_t *all, const char *topic, bool *ret_committed, int *ret_now)
{
    int begun = -1;
    *ret_committed = false;
    *ret_now = 0;
    for (int i = 0; i < all->cnt; i++) {
        const rd_kafka_topic_partition_t *tp = &all->elems[i];
        if (strcmp(tp->topic, topic))
            continue;
        ++*ret_now;
        *ret_committed |= tp->offset >= 0;
        int here = tp->offset >= 0 ? note_of(tp) : -1;
        begun = here > begun ? here : begun;
    }
    return begun;
}

/* The place of one partition that nothing is committed of. The end is asked for first: a record that comes meanwhile is read, not skipped. */
static rd_kafka_resp_err_t place(pst_consumer *c, rd_kafka_topic_partition_t *tp, int begun)
{
    int64_t low = 0, high = 0;
    rd_kafka_resp_err_t code = rd_kafka_query_watermark_offsets(c->rk, tp->topic, tp->partition, &low, &high, BUS_STEP_MS);
    if (code)
        return code;
    tp->offset = begun > 0 && tp->partition >= begun ? low : high;
    if (c->opts.start != PST_START_TIMESTAMP)
        return 0;
    rd_kafka_topic_partition_list_t *one = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(one, tp->topic, tp->partition);
    pst_err e = {0};
    if (bus_offsets_at(c->rk, NULL, one, c->opts.start_ms, BUS_STEP_MS, &e) < 0)
        code = e.native ? (rd_kafka_resp_err_t)e.native : RD_KAFKA_RESP_ERR__TIMED_OUT;
    else
        tp->offset = one->elems[0].offset >= 0 ? one->elems[0].offset : high;
    rd_kafka_topic_partition_list_destroy(one);
    return code;
}

/* One try. The offsets go into list; those that are new are in fresh as well. */
static rd_kafka_resp_err_t find_places(pst_consumer *c, rd_kafka_topic_partition_list_t *list, rd_kafka_topic_partition_list_t *fresh)
{
    rd_kafka_topic_partition_list_t *all = rd_kafka_topic_partition_list_new(list->cnt);
    rd_kafka_resp_err_t code = look_at_topics(c, list, all);
    for (int i = 0; !code && i < list->cnt; i++) {
        rd_kafka_topic_partition_t *tp = &list->elems[i];
        const rd_kafka_topic_partition_t *was = rd_kafka_topic_partition_list_find(all, tp->topic, tp->partition);
        bool committed;
        int now, begun = begun_with(all, tp->topic, &committed, &now);
        if (was->offset >= 0) {
            tp->offset = was->offset;
            if (note_of(was) > 0)
                set_note(tp, note_of(was));
            continue;
        }
        if ((code = place(c, tp, begun)) != 0)
            break;
        if (begun > 0 || !committed) /* else the group is older than these notes: with how many it began, nobody knows */
            set_note(tp, begun > 0 ? begun : now);
        rd_kafka_topic_partition_t *f = rd_kafka_topic_partition_list_add(fresh, tp->topic, tp->partition);
        f->offset = tp->offset;
        if (note_of(tp) > 0)
            set_note(f, note_of(tp));
    }
    rd_kafka_topic_partition_list_destroy(all);
    return code;
}

int bus_start_places(pst_consumer *c, rd_kafka_topic_partition_list_t *list, pst_err *err)
{
    bus_wait w = {.what = "start_offsets", .about = list};
    int rc = 0;
    for (bool done = false; rc == 0 && !done;) {
        rd_kafka_topic_partition_list_t *fresh = rd_kafka_topic_partition_list_new(list->cnt);
        rd_kafka_resp_err_t code = find_places(c, list, fresh);
        pst_err e = {0};
        if (!code && fresh->cnt && bus_consumer_commit(c, fresh, &e) < 0) {
            if (e.code == PST_EFENCED) { /* the group goes on without us: its next generation asks anew */
                *err = e;
                rc = PST_EFENCED;
            }
            code = e.native ? (rd_kafka_resp_err_t)e.native : RD_KAFKA_RESP_ERR__TIMED_OUT;
        }
        done = !code;
        for (int i = 0; done && i < fresh->cnt; i++)
            pst_log(PST_LOG_DEBUG, "bus", "event=group_begins group=%s topic=%s partition=%d offset=%lld", c->group, fresh->elems[i].topic,
                    fresh->elems[i].partition, (long long)fresh->elems[i].offset);
        rd_kafka_topic_partition_list_destroy(fresh);
        if (!done && !rc)
            rc = bus_wait_more(c, &w, code, err);
    }
    bus_wait_over(c, &w);
    return rc;
}
