/* bus_start.c - where a group begins that has nothing committed and was told `latest` or a time.
 *
 * librdkafka's own "latest" is the end at the moment at which a partition is fetched from for the first time, anew at each start until something
 * is committed: what was written between the group's beginning and that moment is skipped, and so is what a partition holds that was added to the
 * topic later, although all of it was written after the beginning. Here the place is looked up once, and committed before a record is read. With
 * each offset goes a note (its metadata), how many partitions the topic had at the beginning; a partition beyond that number is read from its
 * first record. Every later commit carries the note on. A group that reads everything says that there, so that its lag is known on partitions of
 * which nothing is committed yet (bus_lag.c). */
#include "common/bus/bus_consumer.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTE  "penstock"
#define BEGUN " begun="
#define BY    " by="
#define ALL   " start=earliest"

/* What follows this key in the note, up to the next blank. */
static char *note_word(const bus_place *tp, const char *key)
{
    size_t n = strlen(NOTE);
    if (!tp->note || strlen(tp->note) <= n || memcmp(tp->note, NOTE, n))
        return NULL;
    const char *at = strstr(tp->note, key);
    if (!at)
        return NULL;
    at += strlen(key);
    return pst_strndup(at, strcspn(at, " "));
}

static int note_of(const bus_place *tp)
{
    char *word = note_word(tp, BEGUN);
    long begun = word ? strtol(word, NULL, 10) : -1;
    free(word);
    return begun > 0 && begun < 100000000 ? (int)begun : -1;
}

char *bus_note_by(const bus_place *tp)
{
    return note_word(tp, BY);
}

bool bus_note_reads_all(const bus_place *tp, int32_t partition)
{
    char *start = note_word(tp, " start=");
    bool all = start && !strcmp(start, "earliest");
    free(start);
    int begun = note_of(tp);
    return all || (begun > 0 && partition >= begun);
}

static void put_note(bus_place *tp, int begun, const char *by, bool all)
{
    char number[24] = "";
    if (begun > 0)
        snprintf(number, sizeof number, BEGUN "%d", begun);
    free(tp->note);
    tp->note = pst_sprintf(NOTE "%s%s%s%s", number, by ? BY : "", by ? by : "", all ? ALL : "");
}

static void set_note(bus_place *tp, int begun)
{
    put_note(tp, begun, NULL, false);
}

void bus_start_note(pst_consumer *c, bus_places *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const bus_part *p = bus_part_find(c, list->at[i].topic, list->at[i].partition);
        if (p && (p->begun > 0 || c->signature))
            put_note(&list->at[i], p->begun, c->signature, c->opts.start == PST_START_EARLIEST);
    }
}

void bus_start_noted(bus_part *p, const bus_place *tp)
{
    p->begun = note_of(tp);
}

/* Every partition of the topics in list, with what is committed. */
static int look_at_topics(pst_consumer *c, const bus_places *list, bus_places *all)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *topic = list->at[i].topic;
        pst_err e = {0};
        int n = 0;
        if (bus_places_find(all, topic, 0))
            continue;
        if (bus_partitions(c->link, NULL, topic, BUS_STEP_MS, &n, &e) < 0)
            return e.native ? e.native : BUS_ERR__TIMED_OUT;
        for (int p = 0; p < n; p++)
            bus_places_add(all, topic, p);
    }
    for (size_t i = 0; i < list->n; i++) /* the group's leader may have heard of more than we were told just now */
        if (!bus_places_find(all, list->at[i].topic, list->at[i].partition))
            bus_places_add(all, list->at[i].topic, list->at[i].partition);
    return bus_committed(c->link, all, BUS_STEP_MS);
}

/* With how many partitions the topic began, as its committed offsets tell; -1 = none does. *ret_now: how many there are. */
static int begun_with(const bus_places *all, const char *topic, bool *ret_committed, int *ret_now)
{
    int begun = -1;
    *ret_committed = false;
    *ret_now = 0;
    for (size_t i = 0; i < all->n; i++) {
        const bus_place *tp = &all->at[i];
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
static int place(pst_consumer *c, bus_place *tp, int begun)
{
    int64_t low = 0, high = 0;
    int code = c->link.lib->common->watermarks(c->link.h, tp->topic, tp->partition, BUS_STEP_MS, &low, &high);
    if (code)
        return code;
    tp->offset = begun > 0 && tp->partition >= begun ? low : high;
    if (c->opts.start != PST_START_TIMESTAMP)
        return 0;
    bus_places *one = bus_places_new();
    bus_places_add(one, tp->topic, tp->partition);
    pst_err e = {0};
    if (bus_offsets_at(c->link, NULL, one, c->opts.start_ms, BUS_STEP_MS, &e) < 0)
        code = e.native ? e.native : BUS_ERR__TIMED_OUT;
    else
        tp->offset = one->at[0].offset >= 0 ? one->at[0].offset : high;
    bus_places_free(one);
    return code;
}

/* One try. The offsets go into list; those that are new are in fresh as well. */
static int find_places(pst_consumer *c, bus_places *list, bus_places *fresh)
{
    bus_places *all = bus_places_new();
    int code = look_at_topics(c, list, all);
    for (size_t i = 0; !code && i < list->n; i++) {
        bus_place *tp = &list->at[i];
        const bus_place *was = bus_places_find(all, tp->topic, tp->partition);
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
        bus_place *f = bus_places_add(fresh, tp->topic, tp->partition);
        f->offset = tp->offset;
        if (note_of(tp) > 0)
            set_note(f, note_of(tp));
    }
    bus_places_free(all);
    return code;
}

int bus_start_places(pst_consumer *c, bus_places *list, pst_err *err)
{
    bus_wait w = {.what = "start_offsets", .about = list};
    int rc = 0;
    for (bool done = false; rc == 0 && !done;) {
        bus_places *fresh = bus_places_new();
        int code = find_places(c, list, fresh);
        pst_err e = {0};
        if (!code && fresh->n && bus_consumer_commit(c, fresh, &e) < 0) {
            if (e.code == PST_EFENCED) { /* the group goes on without us: its next generation asks anew */
                *err = e;
                rc = PST_EFENCED;
            }
            code = e.native ? e.native : BUS_ERR__TIMED_OUT;
        }
        done = !code;
        for (size_t i = 0; done && i < fresh->n; i++)
            pst_log(PST_LOG_DEBUG, "bus", "event=group_begins group=%s topic=%s partition=%d offset=%lld", c->group, fresh->at[i].topic,
                    fresh->at[i].partition, (long long)fresh->at[i].offset);
        bus_places_free(fresh);
        if (!done && !rc)
            rc = bus_wait_more(c, &w, code, err);
    }
    bus_wait_over(c, &w);
    return rc;
}
