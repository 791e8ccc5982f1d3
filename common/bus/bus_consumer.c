/* bus_consumer.c - polling into batches of borrowed views, committing.
 *
 * The client gives runs: records of one partition, in order. They are read into the consumer's array in place, and kept until the next poll. */
#include "common/bus/bus_consumer.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_MS           100 /* how often a wait looks whether it was told to stop */
#define COMMIT_WAIT_MS     10000
#define CLOSE_WAIT_MS      10000
#define CLOSE_FORCED_MS    1000
#define JOIN_WAIT_MS       20000 /* a leaver waits so long for the others whom its join waits for */
#define MUTE_WAIT_MS       10000 /* and so long for a coordinator that does not say whether it is a member at all */
#define INFLIGHT_DEFAULT   (64u << 20)
#define QUIET_MS           5000
#define UNREADABLE_SAID_US (600 * 1000000LL)

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

static void copy_opts(pst_consumer *c, const pst_consumer_opts *opts)
{
    c->opts = *opts;
    c->group = pst_strdup(opts->group);
    c->opts.group = c->group;
    c->opts.instance_id = pst_strdup(opts->instance_id);
    c->opts.peers = pst_strdup(opts->peers);
    char **topics = opts->n_topics ? pst_alloc(opts->n_topics * sizeof *topics) : NULL;
    for (size_t i = 0; i < opts->n_topics; i++)
        topics[i] = pst_strdup(opts->topics[i]);
    c->opts.topics = (const char *const *)topics;
    pst_range *ranges = opts->n_ranges ? pst_alloc(opts->n_ranges * sizeof *ranges) : NULL;
    for (size_t i = 0; i < opts->n_ranges; i++) {
        ranges[i] = opts->ranges[i];
        ranges[i].topic = pst_strdup(ranges[i].topic);
    }
    c->opts.ranges = ranges;
}

static void clear_batch(pst_consumer *c)
{
    if (c->n)
        c->link.lib->consumer->release(c->link.h, c->records, c->n);
    c->n = c->bytes = 0;
}

/* The other partitions flow, and nothing is wrong with the broker: so this is no outage, nor a silence that a new consumer would end. */
static void take_unreadable(pst_consumer *c, const bus_run *run)
{
    bus_part *p = bus_part_find(c, run->topic, run->partition);
    int64_t now = pst_mono_us();
    if (!p || (p->unreadable_us && now - p->unreadable_us < UNREADABLE_SAID_US))
        return;
    p->unreadable_us = now;
    int64_t offset = p->next >= 0 ? p->next : run->offset;
    const char *why = run->reason ? run->reason : bus_code_text(run->code);
    pst_log(PST_LOG_ERROR, "bus", "event=unreadable group=%s topic=%s partition=%d offset=%lld why=\"%s\"", c->group ? c->group : "-",
            p->topic, p->partition, (long long)offset, why);
    if (c->opts.on_unreadable) {
        c->opts.on_unreadable(c->opts.arg, p->topic, p->partition, offset, why);
        return;
    }
    pst_err_clear(&c->health.last);
    pst_err_set(&c->health.last, PST_EINVAL, PST_CLASS_DATA, "kafka", run->code, "%s", why);
}

static void take_fault(pst_consumer *c, const bus_run *run)
{
    if (run->code == BUS_ERR_INVALID_MSG && run->topic) {
        take_unreadable(c, run);
        return;
    }
    if (run->code == BUS_ERR__MAX_POLL_EXCEEDED || run->code == BUS_ERR__AUTO_OFFSET_RESET)
        c->lost = true;
    if (run->code == BUS_ERR_UNKNOWN_TOPIC_OR_PART && run->topic) {
        pst_err_clear(&c->health.last);
        pst_err_set(&c->health.last, PST_ENOTFOUND, PST_CLASS_RETRY, "kafka", run->code, "topic %s does not exist (yet)", run->topic);
        return;
    }
    bus_health_note(&c->health, run->code, run->reason);
}

static void serve_join(pst_consumer *c)
{
    pst_record unread;
    bus_run run;
    c->link.lib->consumer->poll(c->link.h, 20, &unread, 1, 1, &run);
    if (run.kind == BUS_RUN_FAULT)
        take_fault(c, &run);
    if (run.kind == BUS_RUN_RECORDS)
        c->link.lib->consumer->release(c->link.h, &unread, run.n);
}

/* A broker reads no request of a connection before it has answered the one before, and answers a JoinGroup when all members have come: a
 * LeaveGroup behind it is not heard for so long, and librdkafka gives it up after 5 s. Nor does a member leave that was not told its id yet. So
 * a join that is under way ends before the group is left. A coordinator that does not say whether we are a member is asked again: one that is
 * slow has our request all the same. */
static void end_join(pst_consumer *c)
{
    int64_t begun = pst_mono_us();
    bus_membership is = BUS_MEMBER_PERHAPS;
    while (!c->assigned && !c->health.fatal.code && !pst_stop_forced()) {
        if (is == BUS_MEMBER_PERHAPS)
            is = bus_peers_has_us(c);
        if (is == BUS_NO_MEMBER)
            return;
        if (pst_mono_us() - begun > (is == BUS_MEMBER ? JOIN_WAIT_MS : MUTE_WAIT_MS) * 1000LL) {
            pst_log(PST_LOG_WARN, "bus",
                    "event=left_unheard group=%s member=%s why=\"%s: what this one would be given waits for its session.timeout.ms\"",
                    c->group, c->opts.instance_id,
                    is == BUS_MEMBER ? "the group is being rebalanced and waits for another member"
                                     : "the group's coordinator does not answer");
            return;
        }
        serve_join(c);
    }
}

/* Runs on its own thread when the group must be left, since that may block: owns c. */
static void close_and_free(void *arg)
{
    pst_consumer *c = arg;
    const bus_client *lib = c->link.lib;
    if (c->link.h && c->group && !bus_fatal(c->link, NULL, 0)) { /* one that is dead does not speak to the group again */
        if (c->leaves) {
            end_join(c);
            lib->consumer->leave(c->link.h);
        }
        lib->consumer->close(c->link.h); /* calls bus_rebalance here */
    }
    if (c->link.h && bus_quiet_done(c))
        lib->common->free(c->link.h);
    bus_parts_clear(c);
    free(c->parts);
    free(c->records);
    for (size_t i = 0; i < c->opts.n_topics; i++)
        free((char *)c->opts.topics[i]);
    for (size_t i = 0; i < c->opts.n_ranges; i++)
        free((char *)c->opts.ranges[i].topic);
    free((void *)c->opts.topics);
    free((void *)c->opts.ranges);
    free((char *)c->opts.instance_id);
    free((char *)c->opts.peers);
    bus_peers_done(c);
    bus_growth_done(c);
    free(c->signature);
    free(c->group);
    pst_bus_conf_free(c->conf);
    free(c);
}

void pst_consumer_leave(pst_consumer *c)
{
    if (c)
        c->leaves = true;
}

/* librdkafka 2.0.2, closed while it joins, may wait for ever for its own thread inside rd_kafka_assign(): that thread, with its client, is left behind
 * then, and what the member had waits for its session. */
void pst_consumer_free(pst_consumer *c)
{
    if (!c)
        return;
    char group[256];
    snprintf(group, sizeof group, "%s", c->group ? c->group : "");
    clear_batch(c); /* a client waits for records that are still in use */
    c->closing = true;
    bool leaves = c->group && c->leaves;
    /* Who opens anew does not wait for a broker that is mute. Who leaves does: one that is merely slow has to hear it. */
    bool brief = pst_stop_forced() || (!leaves && bus_quiet_is_mute(c));
    int wait_ms = CLOSE_WAIT_MS + (leaves ? JOIN_WAIT_MS : 0);
    if (!bus_bounded(close_and_free, c, brief ? CLOSE_FORCED_MS : wait_ms, "consumer_close") && !brief)
        pst_log(PST_LOG_WARN, "bus",
                "event=close_left_behind group=%s why=\"the Kafka client did not come back from its close within %d s; what this member "
                "had may "
                "wait for its session.timeout.ms\"",
                group, wait_ms / 1000);
}

static void on_fault(void *consumer, int code, const char *reason)
{
    bus_health_note(&((pst_consumer *)consumer)->health, code, reason);
}

static void on_moved(void *consumer)
{
    __atomic_add_fetch(&((pst_consumer *)consumer)->health.resets, 1, __ATOMIC_RELEASE);
}

static int consumer_open(pst_consumer *c, pst_err *err)
{
    const bus_consumer_needs needs = {.group = c->group,
                                      .instance_id = c->opts.instance_id,
                                      .read_uncommitted = c->opts.read_uncommitted,
                                      .latest = c->opts.start == PST_START_LATEST,
                                      .inflight_bytes = c->opts.inflight_bytes_max ? c->opts.inflight_bytes_max : INFLIGHT_DEFAULT,
                                      .poll_interval_ms = BUS_POLL_INTERVAL_MS};
    const bus_listener to = {.owner = c, .fault = on_fault, .moved = on_moved, .rebalance = bus_rebalance};
    return c->link.lib->consumer->open(c->conf, &needs, &to, &c->link.h, err);
}

static int subscribe(pst_consumer *c, pst_err *err)
{
    int code = c->link.lib->consumer->subscribe(c->link.h, c->opts.topics, c->opts.n_topics);
    return code ? bus_err(err, c->conf, code, NULL, "cannot subscribe group %s", c->group) : 0;
}

int pst_consumer_new(const pst_bus_conf *conf, const pst_consumer_opts *opts, pst_consumer **ret_consumer, pst_err *err)
{
    if (!opts->n_topics == !opts->n_ranges || (opts->group && opts->n_ranges))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "kafka", 0, "a consumer reads topics, or ranges without a group");
    pst_consumer *c = pst_alloc(sizeof *c);
    c->conf = pst_bus_conf_copy(conf);
    c->health.conf = c->conf;
    c->health.no_group = !opts->group;
    c->last_part = SIZE_MAX;
    c->quiet_ms = QUIET_MS;
    copy_opts(c, opts);
    c->link.lib = bus_client_of(c->conf);
    int rc = consumer_open(c, err);
    if (!rc) {
        rc = c->group ? subscribe(c, err) : bus_assign_all(c, err);
        c->check_us = pst_mono_us() + 1000000; /* most answer within this */
    }
    if (rc < 0) {
        pst_consumer_free(c);
        return rc;
    }
    *ret_consumer = c;
    return 0;
}

/* ---- poll -------------------------------------------------------------------------------------------------------------------- */

static bool all_eof(const pst_consumer *c)
{
    if (!c->assigned)
        return false;
    for (size_t i = 0; i < c->n_parts; i++) {
        if (!c->parts[i].eof)
            return false;
    }
    return true;
}

/* The range ends here: nothing more is fetched. */
static void finish_part(pst_consumer *c, bus_part *p)
{
    p->eof = p->done = true;
    bus_pause(c, p, true);
}

/* Records of a run become records of the batch. */
static void adopt(pst_consumer *c, const bus_part *p, pst_record *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        PST_ASSERT(i == 0 || at[i].offset > at[i - 1].offset);
        at[i].topic_index = p->topic_index;
        at[i].client = c->link.lib;
        if (p->name)
            at[i].topic = p->name;
        c->bytes += at[i].key_len + at[i].value_len;
    }
    c->n += n;
}

/* The run's records lie behind those of the batch; true if any was added to it. What is of no use is released: of a partition that was taken away
 * meanwhile, or behind the end of its range. */
static bool take(pst_consumer *c, const bus_run *run)
{
    if (run->kind == BUS_RUN_FAULT) {
        take_fault(c, run);
        return false;
    }
    bus_health_ok(&c->health);
    pst_record *at = c->records + c->n;
    size_t n = run->kind == BUS_RUN_RECORDS ? run->n : 0, kept = n;
    int64_t first = n ? at[0].offset : run->offset;
    bus_part *p = bus_part_find(c, run->topic, run->partition);
    if (!p || p->done || (p->to >= 0 && first >= p->to)) {
        if (p && !p->done)
            finish_part(c, p);
        c->link.lib->consumer->release(c->link.h, at, n);
        return false;
    }
    if (p->base < 0)
        p->base = first;
    p->heard_us = p->turn_us = pst_mono_us();
    p->behind_us = p->unreadable_us = 0;
    p->unheard = false;
    if (c->rest_us) { /* the turn is over; one that gave records was not in vain, and the next partition may have its own at once */
        c->rest_us = 1;
        if (run->kind == BUS_RUN_RECORDS)
            c->turn_us = 1;
    }
    p->eof = run->kind == BUS_RUN_END; /* the end, for now */
    if (p->eof) {
        p->next = run->offset;
        return false;
    }
    while (p->to >= 0 && at[kept - 1].offset >= p->to)
        kept--;
    PST_ASSERT(kept > 0);
    p->next = at[kept - 1].offset + 1;
    if (kept < n)
        c->link.lib->consumer->release(c->link.h, at + kept, n - kept);
    adopt(c, p, at, kept);
    if (kept < n || (p->to >= 0 && p->next >= p->to))
        finish_part(c, p);
    return true;
}

void bus_consumer_news(pst_consumer *c, const bus_run *run)
{
    PST_ASSERT(run->kind == BUS_RUN_END || run->kind == BUS_RUN_FAULT);
    take(c, run);
}

/* One run into the room behind the batch. A rebalance, which comes inside the client's poll, may have thrown records of the batch out meanwhile:
 * then what it gave closes up. */
static bool gather(pst_consumer *c, int timeout_ms, size_t records_max, size_t bytes_max, bool *ret_took)
{
    bus_run run;
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 512;
        c->records = pst_realloc(c->records, c->cap * sizeof *c->records);
    }
    size_t was = c->n, room = c->cap - c->n, left = records_max - c->n;
    c->link.lib->consumer->poll(c->link.h, timeout_ms, c->records + was, room < left ? room : left, bytes_max - c->bytes, &run);
    *ret_took = false;
    if (run.kind == BUS_RUN_NONE)
        return false;
    PST_ASSERT(run.kind != BUS_RUN_RECORDS || (run.n && run.n <= room));
    if (run.kind == BUS_RUN_RECORDS && c->n != was)
        memmove(c->records + c->n, c->records + was, run.n * sizeof *c->records);
    *ret_took = take(c, &run);
    return true;
}

static int min_int(int64_t a, int64_t b)
{
    return (int)(a < b ? a : b);
}

/* How long may the next wait be? < 0: return now. */
static int wait_ms(const pst_consumer *c, const pst_poll *how, int64_t start_us, int64_t oldest_us)
{
    if (c->n && how->age_max_us <= 0)
        return 0;
    int64_t now = pst_mono_us();
    int64_t until = c->n ? oldest_us + how->age_max_us : start_us + how->timeout_ms * 1000LL;
    if (until <= now)
        return c->n ? -1 : 0;
    return min_int((until - now + 999) / 1000, SLICE_MS);
}

/* Gathers until the batch is full, its oldest record is old enough, or every partition is at its end. What comes while nothing comes (checks of ranges,
 * peers, starts and silence) is done here, on the caller's thread, and each of them asks at its own pace. */
int pst_consumer_poll(pst_consumer *c, const pst_poll *how, pst_batch *ret_batch, pst_err *err)
{
    size_t records_max = how->records_max ? how->records_max : 512, bytes_max = how->bytes_max ? how->bytes_max : 1u << 20;
    int64_t start = pst_mono_us(), oldest = 0;
    bool was_eof = all_eof(c);
    clear_batch(c);
    if (c->health.fatal.code) { /* nothing that it could give would be from where it should be */
        *ret_batch = (pst_batch){.lost = true};
        return bus_health_take(&c->health, err);
    }
    bus_flow(c);
    if (c->release_us)
        bus_consumer_release(c);
    memset(&c->health.last, 0, sizeof c->health.last);
    while (c->n < records_max && c->bytes < bytes_max) {
        int ms = wait_ms(c, how, start, oldest);
        if (ms < 0)
            break;
        if (c->rest_us)
            bus_flow(c);
        bool took, came = gather(c, ms, records_max, bytes_max, &took);
        if (came) {
            if (took && !oldest)
                oldest = pst_mono_us();
            if (c->health.fatal.code)
                break;
            if (!c->opts.report_eof || !all_eof(c))
                continue;
        }
        bool ended = c->opts.report_eof && all_eof(c) && (c->n || !was_eof);
        bool waited = c->n ? how->age_max_us <= 0 : pst_mono_us() - start >= how->timeout_ms * 1000LL;
        if (ended || (!came && (waited || pst_stop_requested())))
            break;
    }
    c->polled_us = pst_mono_us();
    if (__atomic_load_n(&c->health.resets, __ATOMIC_ACQUIRE) != c->resets) {
        c->resets = __atomic_load_n(&c->health.resets, __ATOMIC_ACQUIRE);
        c->lost = true;
    }
    *ret_batch = (pst_batch){.records = c->records, .n = c->n, .bytes = c->bytes, .eof = c->opts.report_eof && all_eof(c), .lost = c->lost};
    c->lost = false;
    if (!c->n && !c->group && !c->checked && !ret_batch->eof)
        bus_check_ranges(c);
    if (c->group && c->n_parts && !c->paused)
        bus_check_peers(c);
    if (c->group && !c->paused)
        bus_check_growth(c);
    if (c->group && c->n_parts && !c->paused && (!c->n || c->start_wait.begun_us))
        bus_check_start(c);
    if (c->n)
        bus_quiet_over(c);
    else if (c->group && !c->paused)
        bus_check_quiet(c);
    if (c->n)
        return 0; /* an error, if there is one, is told by the next poll: it stays in health.fatal or repeats itself */
    return bus_health_take(&c->health, err);
}

size_t pst_record_headers(const pst_record *r, pst_header *ret_headers, size_t max)
{
    return r->has_headers ? r->client->consumer->headers(r, ret_headers, max) : 0;
}

size_t pst_record_headers_all(const pst_record *r, pst_header_room *room, size_t spare)
{
    size_t n = r->has_headers ? pst_record_headers(r, room->at, room->cap) : 0;
    if (n + spare <= room->cap)
        return n;
    room->cap = n + spare + 16;
    room->at = pst_realloc(room->at, room->cap * sizeof *room->at);
    return pst_record_headers(r, room->at, room->cap);
}

void pst_header_room_done(pst_header_room *room)
{
    free(room->at);
    *room = (pst_header_room){0};
}

/* ---- commit -------------------------------------------------------------------------------------------------------------------- */

int bus_consumer_commit(pst_consumer *c, const bus_places *offsets, pst_err *err)
{
    if (!c->group)
        return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "kafka", 0, "a consumer without a group has nowhere to commit to");
    int code = c->link.lib->consumer->commit(c->link.h, offsets, COMMIT_WAIT_MS);
    if (code)
        return bus_err(err, c->conf, code, NULL, "cannot commit offsets of group %s", c->group);
    bus_consumer_committed(c, offsets);
    bus_health_ok(&c->health);
    return 0;
}

int pst_consumer_commit(pst_consumer *c, const pst_batch *b, pst_err *err)
{
    if (!b->n)
        return 0;
    bus_places *list = bus_places_new();
    bus_place *tp = NULL;
    int rc = 0;
    for (size_t i = 0; i < b->n && !rc; i++) {
        const pst_record *r = &b->records[i];
        if (!tp || tp->partition != r->partition || strcmp(tp->topic, r->topic)) {
            tp = bus_places_find(list, r->topic, r->partition);
            if (!tp) {
                tp = bus_places_add(list, r->topic, r->partition);
                tp->offset = 0;
            }
            bus_part *p = bus_part_find(c, r->topic, r->partition);
            if (!p)
                rc = pst_err_set(err, PST_EFENCED, PST_CLASS_RETRY, "kafka", 0, "%s[%d] was taken away from this member", r->topic,
                                 r->partition);
        }
        if (tp->offset < r->offset + 1)
            tp->offset = r->offset + 1;
    }
    bus_start_note(c, list);
    if (!rc)
        rc = bus_consumer_commit(c, list, err);
    bus_places_free(list);
    return rc;
}

int pst_consumer_commit_marked(pst_consumer *c, pst_err *err)
{
    bus_places *list = bus_consumer_marked(c);
    if (!list)
        return 0;
    int rc = bus_consumer_commit(c, list, err);
    bus_places_free(list);
    for (size_t i = 0; !rc && i < c->n_parts; i++)
        c->parts[i].marked = -1;
    return rc;
}

/* ---- for pst_txn ----------------------------------------------------------------------------------------------------------------- */

bus_link bus_consumer_link(const pst_consumer *c)
{
    return c->link;
}

uint64_t pst_consumer_epoch(const pst_consumer *c)
{
    return bus_consumer_epoch(c);
}

uint64_t bus_consumer_epoch(const pst_consumer *c)
{
    return c->epoch;
}

bool bus_consumer_in_group(const pst_consumer *c)
{
    return c->group != NULL;
}

bus_part *bus_consumer_parts(pst_consumer *c, size_t *ret_n)
{
    *ret_n = c->n_parts;
    return c->parts;
}
