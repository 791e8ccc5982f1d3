/* wire_consumer.c - the consumer: settings, partitions, polling. What it is told and what it gives is told and given inside poll(), on the owner's thread;
 * nothing happens while nobody calls.
 *
 * A run is what one batch of one partition has, read in place. Partitions have their turns, run by run. The end of a partition is told when what was
 * handed out has come to where the last answer says that it ends, and that answer was asked for after the partition was last moved or resumed. */
#include "common/bus/wire/wire_consumer.h"
#include "common/bus/wire/wire_ask.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN_EVERY_US 500 /* while records lie here: answers are taken in so often */
#define SLICE_MS      100
#define TRIED_US      10000 /* what could not be begun is tried again after this, if nothing happens before */
#define LEAVE_WAIT_MS 3000
#define FAULTS_MAX    100

static wire_consumer *consumer_of(bus_handle *h)
{
    return (wire_consumer *)h;
}

/* Whoever uses it last: a consumer is closed on a thread of its own. bus_quiet's thread looks at the same time. */
static void own(wire_consumer *c)
{
    __atomic_store_n(&c->owner, pthread_self(), __ATOMIC_RELAXED);
}

static bool is_owner(const wire_consumer *c)
{
    return pthread_equal(__atomic_load_n(&c->owner, __ATOMIC_RELAXED), pthread_self());
}

/* ---- news ------------------------------------------------------------------------------------------------------------------------------ */

void wire_fault_add(wire_consumer *c, int code, const char *topic, int32_t partition, const char *fmt, ...)
{
    if (c->n_faults >= FAULTS_MAX)
        return; /* nobody polls: the first ones say why */
    wire_fault *f = pst_alloc(sizeof *f);
    const wire_part *p = topic ? wire_part_find(c, topic, partition) : NULL;
    *f = (wire_fault){.code = code, .topic = topic, .partition = partition, .offset = p ? p->next : -1};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, ap);
    va_end(ap);
    *c->faults_end = f;
    c->faults_end = &f->next;
    c->n_faults++;
}

void wire_consumer_die(wire_consumer *c, int code, const char *fmt, ...)
{
    if (c->fatal_code)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->fatal_text, sizeof c->fatal_text, fmt, ap);
    va_end(ap);
    c->fatal_code = code;
}

static int fatal(wire_handle *h, char *text, size_t size)
{
    const wire_consumer *c = (const wire_consumer *)h;
    if (!c->fatal_code)
        return wire_net_fatal(h->net, text, size);
    if (text)
        snprintf(text, size, "%s", c->fatal_text);
    return c->fatal_code;
}

/* ---- partitions -------------------------------------------------------------------------------------------------------------------------- */

const char *wire_topic_name(wire_consumer *c, const char *name, size_t len)
{
    for (size_t i = 0; i < c->n_topics; i++)
        if (!strncmp(c->topics[i], name, len) && !c->topics[i][len])
            return c->topics[i];
    c->topics = pst_array_room(c->topics, c->n_topics, &c->topics_cap, sizeof *c->topics);
    return c->topics[c->n_topics++] = pst_strndup(name, len);
}

wire_part *wire_part_find(wire_consumer *c, const char *topic, int32_t partition)
{
    for (size_t i = 0; i < c->n_parts; i++)
        if (c->parts[i]->partition == partition && !strcmp(c->parts[i]->topic, topic))
            return c->parts[i];
    return NULL;
}

void wire_part_drop(wire_part *p)
{
    PST_ASSERT(p->uses > 0);
    if (--p->uses)
        return;
    PST_ASSERT(!p->first && !p->reading); /* it left the consumer's list, and that cleared it */
    free(p);
}

/* Whoever goes back after a log was cut off may ask for where he stood in the history that is gone: there he would miss what was written instead. */
static int64_t where_it_is_now(const wire_part *p, int64_t offset)
{
    bool lost = p->where == WIRE_AT_OFFSET && offset > p->lost_from && offset <= p->lost_to && offset > p->next;
    return lost ? p->lost_from : offset;
}

void wire_part_move(wire_consumer *c, wire_part *p, int64_t offset)
{
    int64_t now = pst_mono_us();
    offset = where_it_is_now(p, offset);
    p->end_told = -1;
    p->fresh_us = now;
    if (offset >= 0 && p->where == WIRE_AT_OFFSET && p->next == offset)
        return; /* what was fetched goes on from there */
    p->version++;
    p->asking = false;
    p->not_before_us = 0;
    p->bytes_max = c->conf->partition_fetch_bytes;
    /* What lies before what was read is of the same epoch or an older one, and the leader that has that epoch has it. Of other places nothing is known. */
    if (offset < 0 || p->where != WIRE_AT_OFFSET || offset > p->next)
        p->read_epoch = -1;
    if (offset >= 0) {
        p->where = WIRE_AT_OFFSET;
        p->next = offset;
    } else if (offset == BUS_OFFSET_NONE) {
        p->where = WIRE_AT_COMMITTED;
    } else {
        p->where = WIRE_AT_LOGICAL;
        p->logical = offset;
    }
    wire_part_clear(c, p);
}

static void part_add(wire_consumer *c, const bus_place *place)
{
    wire_part *p = pst_alloc(sizeof *p);
    *p = (wire_part){.uses = 1,
                     .topic = wire_topic_name(c, place->topic, strlen(place->topic)),
                     .partition = place->partition,
                     .where = WIRE_AT_COMMITTED,
                     .next = -1,
                     .fetch = -1,
                     .high = -1,
                     .fetch_epoch = -1,
                     .read_epoch = -1,
                     .replica = -1};
    c->parts = pst_array_room(c->parts, c->n_parts, &c->parts_cap, sizeof *c->parts);
    c->parts[c->n_parts++] = p;
    wire_part_move(c, p, place->offset);
}

static void part_remove(wire_consumer *c, size_t at)
{
    wire_part *p = c->parts[at];
    wire_part_clear(c, p);
    p->gone = true;
    memmove(c->parts + at, c->parts + at + 1, (--c->n_parts - at) * sizeof(void *));
    wire_part_drop(p);
}

static int assign(bus_handle *h, const bus_places *list)
{
    wire_consumer *c = consumer_of(h);
    while (c->n_parts)
        part_remove(c, c->n_parts - 1);
    for (size_t i = 0; list && i < list->n; i++) {
        if (wire_part_find(c, list->at[i].topic, list->at[i].partition))
            return BUS_ERR__CONFLICT;
        part_add(c, &list->at[i]);
    }
    return 0;
}

static int assign_more(bus_handle *h, const bus_places *list, char *why, size_t size)
{
    wire_consumer *c = consumer_of(h);
    for (size_t i = 0; i < list->n; i++) {
        if (wire_part_find(c, list->at[i].topic, list->at[i].partition)) {
            snprintf(why, size, "%s[%d] is assigned already", list->at[i].topic, list->at[i].partition);
            return BUS_ERR__CONFLICT;
        }
        part_add(c, &list->at[i]);
    }
    return 0;
}

static int assign_less(bus_handle *h, const bus_places *list)
{
    wire_consumer *c = consumer_of(h);
    for (size_t i = 0; i < list->n; i++)
        for (size_t k = 0; k < c->n_parts; k++)
            if (c->parts[k]->partition == list->at[i].partition && !strcmp(c->parts[k]->topic, list->at[i].topic)) {
                part_remove(c, k);
                break;
            }
    return 0;
}

/* What lies here of one that stands still may take the room of those that flow. */
static int pause_places(bus_handle *h, bus_places *list, bool pause)
{
    wire_consumer *c = consumer_of(h);
    for (size_t i = 0; i < list->n; i++) {
        wire_part *p = wire_part_find(c, list->at[i].topic, list->at[i].partition);
        list->at[i].code = p ? 0 : BUS_ERR__UNKNOWN_PARTITION;
        if (!p)
            continue;
        p->paused = pause;
        if (!pause) {
            p->end_told = -1;
            p->fresh_us = pst_mono_us();
        } else if (c->chunk_bytes > c->inflight_max / 2 && p->first) {
            p->version++;
            wire_part_clear(c, p);
        }
    }
    return 0;
}

static int seek(bus_handle *h, bus_places *list, int timeout_ms, char *why, size_t size)
{
    wire_consumer *c = consumer_of(h);
    for (size_t i = 0; i < list->n; i++) {
        wire_part *p = wire_part_find(c, list->at[i].topic, list->at[i].partition);
        list->at[i].code = p ? 0 : BUS_ERR__UNKNOWN_PARTITION;
        if (p)
            wire_part_move(c, p, list->at[i].offset);
    }
    return 0;
}

static int known_end(bus_handle *h, const char *topic, int32_t partition, int64_t *ret_end)
{
    const wire_part *p = wire_part_find(consumer_of(h), topic, partition);
    if (!p || p->high < 0)
        return BUS_ERR__UNKNOWN_PARTITION;
    *ret_end = p->high;
    return 0;
}

/* ---- polling ------------------------------------------------------------------------------------------------------------------------------ */

static void work(wire_handle *h)
{
    wire_consumer *c = (wire_consumer *)h;
    int64_t now = pst_mono_us();
    if (c->member && !c->fatal_code)
        wire_group_work(c, now);
    wire_offsets_work(c, now);
    wire_fetch_work(c, now);
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Sends what is due, takes in what has come, waits for more if it may. */
static void turn(wire_consumer *c, int64_t now, int64_t until)
{
    work(&c->h);
    int64_t due = min64(wire_fetch_due_us(c), wire_offsets_due_us(c));
    if (c->member)
        due = min64(due, wire_group_due_us(c));
    if (due <= now) /* it was tried just now, and waits for something else: a leader, a coordinator, an answer */
        due = now + TRIED_US;
    due = min64(due, min64(until, now + SLICE_MS * 1000));
    wire_net_turn(c->h.net, due > now ? (int)((due - now + 999) / 1000) : 0);
    c->turned_us = pst_mono_us();
    work(&c->h);
    wire_net_push(c->h.net); /* the next fetch goes out while this one's records are used */
}

static bool next_fault(wire_consumer *c, bus_run *ret)
{
    free(c->told);
    c->told = NULL;
    if (!c->fatal_told && fatal(&c->h, NULL, 0)) {
        c->fatal_told = true;
        c->told = pst_alloc(sizeof *c->told);
        ret->kind = BUS_RUN_FAULT;
        ret->code = fatal(&c->h, c->told->text, sizeof c->told->text);
        ret->reason = c->told->text;
        return true;
    }
    wire_fault *f = c->faults;
    if (!f)
        return false;
    c->faults = f->next;
    if (!f->next)
        c->faults_end = &c->faults;
    c->n_faults--;
    c->told = f;
    *ret = (bus_run){.kind = BUS_RUN_FAULT,
                     .topic = f->topic,
                     .partition = f->partition,
                     .offset = f->offset,
                     .code = f->code,
                     .reason = *f->text ? f->text : NULL};
    return true;
}

static bool is_end(const wire_part *p)
{
    return !p->paused && p->where == WIRE_AT_OFFSET && !p->first && p->high >= 0 && p->next >= p->high && p->ended_us >= p->fresh_us &&
           p->end_told != p->next && p->ended_us;
}

static bool give(wire_consumer *c, pst_record *room, size_t max, size_t bytes, bus_run *ret)
{
    for (size_t tried = 0; tried < c->n_parts; tried++) {
        wire_part *p = c->parts[(c->turn + tried) % c->n_parts];
        size_t n = p->paused || !p->first ? 0 : wire_part_read(c, p, room, max, bytes);
        if (!n && !is_end(p))
            continue;
        *ret =
            (bus_run){.kind = n ? BUS_RUN_RECORDS : BUS_RUN_END, .n = n, .topic = p->topic, .partition = p->partition, .offset = p->next};
        if (!n)
            p->end_told = p->next;
        c->turn = (c->turn + tried + 1) % c->n_parts;
        return true;
    }
    return false;
}

static void poll_until(wire_consumer *c, int64_t until, bool tell, pst_record *room, size_t max, size_t bytes, bus_run *ret)
{
    *ret = (bus_run){.kind = BUS_RUN_NONE};
    own(c);
    for (bool turned = false;;) {
        int64_t now = pst_mono_us();
        if (turned || now - c->turned_us >= TURN_EVERY_US) {
            turn(c, now, turned ? until : now);
            turned = true;
        }
        if (tell && c->member)
            wire_group_tell(c);
        if (next_fault(c, ret) || (max && give(c, room, max, bytes, ret)))
            return;
        if (turned && (pst_mono_us() >= until || pst_stop_forced()))
            return;
        turned = true;
    }
}

static void consumer_poll(bus_handle *h, int timeout_ms, pst_record *room, size_t max, size_t bytes, bus_run *ret)
{
    poll_until(consumer_of(h), pst_mono_us() + timeout_ms * 1000LL, true, room, max, bytes, ret);
}

static void stay(bus_handle *h, pst_record *room, bus_run *ret)
{
    poll_until(consumer_of(h), 0, false, room, 1, 1, ret);
}

static int serve(wire_handle *h, int timeout_ms)
{
    wire_consumer *c = (wire_consumer *)h;
    if (!is_owner(c))
        return 0;
    work(h);
    return wire_net_turn(h->net, timeout_ms);
}

/* Records are released in the order in which they were given, mostly; the block of one is found by its address. */
static void release(bus_handle *h, const pst_record *records, size_t n)
{
    wire_consumer *c = consumer_of(h);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *at = records[i].native;
        size_t tried = 0, k = c->last_held;
        for (; tried < c->n_held; tried++, k++) {
            if (k >= c->n_held)
                k = 0;
            const wire_block *b = c->held[k].block;
            if (at >= b->data && at <= b->data + b->len)
                break;
        }
        PST_ASSERT(tried < c->n_held); /* nobody gives back what he was not given */
        c->last_held = k;
        if (--c->held[k].n)
            continue;
        wire_block_drop(c->held[k].block);
        memmove(c->held + k, c->held + k + 1, (--c->n_held - k) * sizeof *c->held);
    }
}

/* ---- the group --------------------------------------------------------------------------------------------------------------------------------- */

static int subscribe(bus_handle *h, const char *const *topics, size_t n)
{
    wire_consumer *c = consumer_of(h);
    PST_ASSERT(!c->member && c->name);
    return wire_group_new(c, topics, n, &c->member);
}

static int commit(bus_handle *h, const bus_places *list, int timeout_ms)
{
    own(consumer_of(h));
    return wire_offsets_commit(consumer_of(h), list, timeout_ms);
}

static bus_group *group(bus_handle *h)
{
    return wire_group_now(consumer_of(h));
}

static bool gave(bus_handle *h, const bus_group *g)
{
    return wire_group_gave(consumer_of(h), g);
}

static void group_free(bus_group *g)
{
    if (!g)
        return;
    free(g->group);
    free(g->member);
    free(g->instance);
    free(g);
}

static void leave(bus_handle *h)
{
    own(consumer_of(h));
    if (consumer_of(h)->member)
        wire_group_leave(consumer_of(h), true, LEAVE_WAIT_MS);
}

/* A static member stays in the group (KIP-345), so that a restart costs no rebalance. */
static void close_consumer(bus_handle *h)
{
    own(consumer_of(h));
    if (consumer_of(h)->member)
        wire_group_leave(consumer_of(h), false, LEAVE_WAIT_MS);
}

/* ---- life ------------------------------------------------------------------------------------------------------------------------------------------ */

static void no_fault(void *owner, int code, const char *reason)
{
}

static int committed(wire_handle *h, bus_places *list, int timeout_ms)
{
    return wire_ask_committed(h, list, timeout_ms);
}

/* Asks on the thread that calls: the owner's with its own net, any other with the one aside. */
static int ask_offsets(wire_handle *h, bus_places *list, int timeout_ms)
{
    wire_consumer *c = (wire_consumer *)h;
    if (is_owner(c))
        return wire_ask_offsets(h, list, timeout_ms);
    static const bus_listener nobody = {.fault = no_fault};
    pthread_mutex_lock(&c->side_lock);
    int code = 0;
    if (!c->side.net) {
        c->side = (wire_handle){.conf = c->conf, .read_uncommitted = h->read_uncommitted};
        code = wire_net_open(c->conf, &nobody, &c->side.net, NULL) < 0 ? BUS_ERR__TRANSPORT : 0;
    }
    if (!code)
        code = wire_ask_offsets(&c->side, list, timeout_ms);
    pthread_mutex_unlock(&c->side_lock);
    return code;
}

static void consumer_free(wire_handle *h)
{
    wire_consumer *c = (wire_consumer *)h;
    wire_group_free(c->member);
    while (c->n_parts)
        part_remove(c, c->n_parts - 1);
    wire_offsets_done(c);
    wire_fetch_done(c);
    for (size_t i = 0; i < c->n_held; i++)
        wire_block_drop(c->held[i].block);
    for (wire_fault *f; (f = c->faults);) {
        c->faults = f->next;
        free(f);
    }
    free(c->told);
    wire_net_free(h->net);
    wire_net_free(c->side.net);
    for (size_t i = 0; i < c->n_topics; i++)
        free(c->topics[i]);
    free(c->topics);
    free(c->parts);
    free(c->held);
    free(c->name);
    free(c->instance);
    wire_conf_free(c->conf);
    pthread_mutex_destroy(&c->side_lock);
    free(c);
}

/* What rdk_consumer.c sets: the same words mean the same with both clients. */
static int read_conf(wire_consumer *c, const pst_bus_conf *conf, const bus_consumer_needs *needs, pst_err *err)
{
    char kbytes[24], poll_ms[24];
    snprintf(poll_ms, sizeof poll_ms, "%d", needs->poll_interval_ms);
    snprintf(kbytes, sizeof kbytes, "%zu", needs->inflight_bytes >= 1024 ? needs->inflight_bytes / 1024 : 1);
    const char *isolation = needs->read_uncommitted ? "read_uncommitted" : "read_committed", *user_reset = NULL;
    const char *reset = needs->latest ? "latest" : "earliest";
    for (size_t i = 0; i < conf->n; i++)
        if (!strcmp(conf->props[i].key, "auto.offset.reset"))
            user_reset = conf->props[i].value;
    const bus_kv defaults[] = {
        {"isolation.level", isolation},
        {"auto.offset.reset", reset},
        {"partition.assignment.strategy", "range"},
        {"session.timeout.ms", "10000"},
        {"max.poll.interval.ms", poll_ms},
        {"check.crcs", "true"},
        {"fetch.wait.max.ms", "100"},
        {"fetch.error.backoff.ms", "100"},
        {"queued.max.messages.kbytes", kbytes},
        {"topic.metadata.refresh.interval.ms", "10000"},
        {NULL, NULL},
    };
    bool force_reset = !user_reset || strcmp(user_reset, "error") != 0;
    bus_kv forced[] = {
        {"group.id", needs->group},
        {"group.instance.id", needs->instance_id}, /* NULL: a user's is put aside */
        {"enable.auto.commit", "false"},
        {"enable.auto.offset.store", "false"},
        {"isolation.level", isolation},
        {force_reset ? "auto.offset.reset" : NULL, reset},
        {NULL, NULL},
    };
    return wire_conf_read(conf, BUS_PROP_CONSUMER, defaults, forced, &c->conf, err);
}

static const wire_life consumer_life;

static int consumer_open(const pst_bus_conf *conf, const bus_consumer_needs *needs, const bus_listener *to, bus_handle **ret, pst_err *err)
{
    wire_consumer *c = pst_alloc(sizeof *c);
    c->faults_end = &c->faults;
    c->events_end = &c->events;
    own(c);
    pthread_mutex_init(&c->side_lock, NULL);
    int rc = read_conf(c, conf, needs, err);
    if (!rc)
        rc = wire_net_open(c->conf, to, &c->h.net, err);
    if (rc < 0) {
        wire_conf_free(c->conf);
        free(c);
        return rc;
    }
    c->name = pst_strdup(needs->group);
    c->instance = pst_strdup(needs->instance_id);
    c->h.life = &consumer_life;
    c->h.to = *to;
    c->h.conf = c->conf;
    c->h.group = c->name;
    c->h.read_uncommitted = c->conf->isolation == WIRE_READ_UNCOMMITTED;
    c->reset_error = c->conf->offset_reset == WIRE_RESET_ERROR;
    c->reset_to = c->conf->offset_reset == WIRE_LATEST ? PST_OFFSET_END : PST_OFFSET_BEGINNING;
    c->inflight_max = (size_t)c->conf->queued_max_kbytes * 1024;
    *ret = (bus_handle *)c;
    return 0;
}

static const wire_life consumer_life = {
    .serve = serve,
    .fatal = fatal,
    .free = consumer_free,
    .work = work,
    .offsets_at = ask_offsets,
    .committed = committed,
};

const bus_consumer_ops wire_consumer_ops = {
    .open = consumer_open,
    .subscribe = subscribe,
    .assign = assign,
    .assign_more = assign_more,
    .assign_less = assign_less,
    .poll = consumer_poll,
    .stay = stay,
    .release = release,
    .headers = wire_record_headers,
    .pause = pause_places,
    .seek = seek,
    .commit = commit,
    .known_end = known_end,
    .group = group,
    .gave = gave,
    .group_free = group_free,
    .leave = leave,
    .close = close_consumer,
};
