/* wire_fetch.c - Fetch: records of assigned partitions, from their brokers into chunks, and out of chunks in order.
 *
 * Versions 11 to 16 (Kafka 2.6 … 4.x): fetch sessions (KIP-227), the replica of one's own rack (KIP-392), leader epochs (KIP-320: a metadata that is behind is
 * told by the broker), topic ids from 13 on (KIP-516). One session has one request under way. The answer's block is not copied: chunks are places in
 * it, and what was handed out keeps it until it is released.
 *
 * Each broker has two sessions, see wire_source: partitions that are known to have more are asked for with no wait, those at their end with
 * fetch.wait.max.ms. A partition may be fetched again while chunks of it lie here, as far as its share of queued.max.messages.kbytes goes, so that
 * the next answer is under way while the last is used. What comes of the answers is read in wire_read.c. */
#include "common/bus/wire/wire_codes.h"
#include "common/bus/wire/wire_consumer.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANE_FLOW      1
#define LANE_WAIT      3
#define ROOM_MIN       (64u << 10)
#define REPLICA_US     (300 * 1000000LL)
#define FAULT_EVERY_US (10 * 1000000LL)
#define EMPTY_MS       10 /* it says that there is more, and brings nothing: so long until it is asked again */
#define ANSWER_MS      30000
#define TAG_DIVERGING  0

enum { /* of Fetch alone */
       OFFSET_OUT_OF_RANGE = 1,
       FETCH_SESSION_ID_NOT_FOUND = 70,
       INVALID_FETCH_SESSION_EPOCH = 71,
       INCONSISTENT_TOPIC_ID = 103,
       FETCH_SESSION_TOPIC_ID_ERROR = 106,
};

static const wire_api fetch_api = {.key = 1, .min = 11, .max = 16, .flexible = 12, .name = "Fetch"};
static const wire_api fetch_by_name_api = {.key = 1, .min = 11, .max = 12, .flexible = 12, .name = "Fetch"}; /* topics without an id */

/* ---- who is asked for what ---------------------------------------------------------------------------------------------------------- */

/* Two answers' worth lie ready at most: more would be memory, and no sooner. */
static size_t part_share(const wire_consumer *c)
{
    size_t share = c->inflight_max / (2 * (c->n_parts + 1)), enough = 2 * (size_t)c->conf->partition_fetch_bytes;
    share = share < enough ? share : enough;
    return share > 1 ? share : 1;
}

static bool is_wanted(const wire_consumer *c, const wire_part *p, int64_t now)
{
    return !p->gone && !p->paused && p->where == WIRE_AT_OFFSET && p->asked != p->version + 1 && now >= p->not_before_us &&
           p->bytes < part_share(c);
}

/* At its end, and heard of it since that counts. */
static bool at_end(const wire_part *p)
{
    return p->high >= 0 && p->fetch >= p->high && p->ended_us >= p->fresh_us;
}

static void tell_topic(wire_consumer *c, wire_part *p, int code, int64_t now)
{
    if (p->told_us && now - p->told_us < FAULT_EVERY_US)
        return;
    p->told_us = now;
    wire_fault_add(c, code, p->topic, p->partition, "%s[%d]: the broker answers with error %d", p->topic, p->partition, code);
}

/* The broker to ask; -1 = not known, and asked for. */
static int32_t node_of(wire_consumer *c, wire_part *p, int64_t now)
{
    if (p->replica >= 0 && now < p->replica_until_us)
        return p->replica;
    p->replica = -1;
    const wire_topic *t = wire_net_topic(c->h.net, p->topic);
    if (!t)
        return -1;
    if (t->code) {
        tell_topic(c, p, t->code, now);
        p->not_before_us = now + c->conf->fetch_error_backoff_ms * 1000LL;
        wire_net_stale(c->h.net, p->topic);
        return -1;
    }
    int32_t node = p->partition >= 0 && p->partition < t->n ? t->leader[p->partition] : -1;
    if (node < 0) {
        wire_net_stale(c->h.net, p->topic);
        p->not_before_us = now + c->conf->fetch_error_backoff_ms * 1000LL;
    }
    return node;
}

static wire_source *source_of(wire_consumer *c, int32_t node, bool waits)
{
    for (size_t i = 0; i < c->n_sources; i++)
        if (c->sources[i]->node == node && c->sources[i]->waits == waits)
            return c->sources[i];
    wire_source *s = pst_alloc(sizeof *s);
    *s = (wire_source){.of = c, .node = node, .waits = waits};
    c->sources = pst_array_room(c->sources, c->n_sources, &c->sources_cap, sizeof *c->sources);
    c->sources[c->n_sources++] = s;
    return s;
}

/* The broker knows nothing of it any more, or we do not know what it knows. */
static void session_end(wire_source *s)
{
    for (size_t i = 0; i < s->n; i++) {
        wire_part *p = s->has[i].part;
        if (p->asked == s->has[i].version + 1)
            p->asked = 0;
        wire_part_drop(p);
    }
    s->n = 0;
    s->session = s->epoch = 0;
}

static wire_asked *session_find(wire_source *s, const wire_part *p)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->has[i].part == p)
            return &s->has[i];
    return NULL;
}

/* ---- the request ---------------------------------------------------------------------------------------------------------------------- */

static void put_topic(wire_out *o, int16_t version, const wire_part *p, const uint8_t id[16])
{
    if (version >= 13)
        wire_put_uuid(o, id);
    else
        wire_put_str(o, p->topic);
}

/* The leader compares it with its own history (KIP-320 by the means of KIP-595). A follower's may be behind. */
static int32_t last_of(const wire_part *p)
{
    return p->replica < 0 ? p->fetch_epoch : -1;
}

static void put_part(wire_out *o, int16_t version, const wire_part *p, int32_t epoch, int64_t offset)
{
    wire_put_count(o, 1);
    wire_put_i32(o, p->partition);
    wire_put_i32(o, epoch);
    wire_put_i64(o, offset);
    if (version >= 12)
        wire_put_i32(o, last_of(p));
    wire_put_i64(o, -1); /* log start offset: followers' */
    wire_put_i32(o, p->bytes_max);
    wire_put_tags(o);
}

/* The leader's, where it is asked: it refuses a reader who knows less, or more. */
static int32_t epoch_of(const wire_part *p, const wire_topic *t)
{
    return t && p->partition >= 0 && p->partition < t->n && p->replica < 0 ? t->leader_epoch[p->partition] : -1;
}

/* What the session has to hold for this request: what is wanted of this broker in this way. What was in it and is not is marked, and forgotten. */
static size_t list_wanted(wire_source *s, bool by_id, wire_part **fresh, wire_asked *gone, size_t *ret_gone)
{
    wire_consumer *c = s->of;
    int64_t now = pst_mono_us();
    size_t n_fresh = 0, n_gone = 0, kept = 0;
    for (size_t i = 0; i < s->n; i++)
        s->has[i].listed = false;
    for (size_t i = 0; i < c->n_parts; i++) {
        wire_part *p = c->parts[i];
        if (!is_wanted(c, p, now) || at_end(p) != s->waits || node_of(c, p, now) != s->node)
            continue;
        const wire_topic *t = wire_net_topic(c->h.net, p->topic);
        wire_asked *a = session_find(s, p);
        if (a && by_id && t && memcmp(a->id, t->id, sizeof a->id) != 0)
            a = NULL; /* the topic was made anew: to the broker this is another partition */
        if (a)
            a->listed = true;
        if (!a || a->offset != p->fetch || a->version != p->version || a->epoch != epoch_of(p, t) || a->last != last_of(p))
            fresh[n_fresh++] = p;
        p->asked = p->version + 1;
    }
    for (size_t i = 0; i < s->n; i++) {
        if (s->has[i].listed)
            s->has[kept++] = s->has[i];
        else
            gone[n_gone++] = s->has[i];
    }
    s->n = kept;
    *ret_gone = n_gone;
    return n_fresh;
}

/* One topic entry a partition: a topic may stand there more than once. */
static void put_fetch(void *owner, wire_call *call, int16_t version, wire_out *o)
{
    wire_source *s = owner;
    wire_consumer *c = s->of;
    wire_part **fresh = pst_alloc((c->n_parts + 1) * sizeof(void *));
    wire_asked *gone = pst_alloc((s->n + 1) * sizeof *gone);
    size_t n_gone = 0, n_fresh = list_wanted(s, version >= 13, fresh, gone, &n_gone);
    if (version < 15)
        wire_put_i32(o, -1); /* we are no replica */
    wire_put_i32(o, s->waits ? c->conf->fetch_wait_ms : 0);
    wire_put_i32(o, s->waits ? c->conf->fetch_min_bytes : 0);
    wire_put_i32(o, (int32_t)s->room);
    wire_put_i8(o, c->h.read_uncommitted ? 0 : 1);
    wire_put_i32(o, s->session);
    wire_put_i32(o, s->epoch);
    wire_put_count(o, n_fresh);
    for (size_t i = 0; i < n_fresh; i++) {
        wire_part *p = fresh[i];
        const wire_topic *t = wire_net_topic(c->h.net, p->topic);
        wire_asked *a = session_find(s, p);
        if (!a) {
            s->has = pst_array_room(s->has, s->n, &s->cap, sizeof *s->has);
            a = &s->has[s->n++];
            *a = (wire_asked){.part = wire_part_use(p)};
        }
        a->version = p->version;
        a->offset = p->fetch;
        a->epoch = epoch_of(p, t);
        a->last = last_of(p);
        if (t)
            memcpy(a->id, t->id, sizeof a->id);
        put_topic(o, version, p, a->id);
        put_part(o, version, p, a->epoch, a->offset);
        wire_put_tags(o);
    }
    bool whole = s->session == 0;
    wire_put_count(o, whole ? 0 : n_gone);
    for (size_t i = 0; i < n_gone && !whole; i++) {
        put_topic(o, version, gone[i].part, gone[i].id);
        wire_put_count(o, 1);
        wire_put_i32(o, gone[i].part->partition);
        wire_put_tags(o);
    }
    wire_put_str(o, c->conf->rack ? c->conf->rack : "");
    wire_put_tags(o);
    for (size_t i = 0; i < n_gone; i++)
        wire_part_drop(gone[i].part);
    free(fresh);
    free(gone);
}

/* ---- the answer -------------------------------------------------------------------------------------------------------------------------- */

/* The position is not there any more. */
static void out_of_range(wire_consumer *c, wire_part *p, int32_t said_by, int64_t now)
{
    if (p->replica >= 0 ||
        said_by != wire_net_leader(c->h.net, p->topic, p->partition)) { /* a follower may be behind: the leader decides */
        p->replica = -1;
        return;
    }
    if (p->first) { /* what lies here is given first: it is there */
        p->not_before_us = now + c->conf->fetch_error_backoff_ms * 1000LL;
        return;
    }
    if (c->reset_error) {
        p->not_before_us = now + FAULT_EVERY_US;
        wire_fault_add(c, BUS_ERR__AUTO_OFFSET_RESET, p->topic, p->partition,
                       "%s[%d] has no offset %lld any more, and auto.offset.reset is error", p->topic, p->partition, (long long)p->fetch);
        return;
    }
    pst_log(PST_LOG_WARN, "bus", "event=position_reset topic=%s partition=%d offset=%lld to=%s", p->topic, p->partition,
            (long long)p->fetch, c->reset_to == PST_OFFSET_END ? "latest" : "earliest");
    wire_part_move(c, p, c->reset_to);
    if (c->h.to.moved)
        c->h.to.moved(c->h.to.owner);
}

static void part_failed(wire_consumer *c, wire_part *p, int32_t said_by, int code, int64_t now)
{
    p->not_before_us = now + c->conf->fetch_error_backoff_ms * 1000LL;
    switch (code) {
    case OFFSET_OUT_OF_RANGE:
        p->not_before_us = now;
        out_of_range(c, p, said_by, now);
        return;
    case BUS_ERR_UNKNOWN_TOPIC_OR_PART:
    case BUS_ERR_LEADER_NOT_AVAILABLE:
    case BUS_ERR_NOT_LEADER_FOR_PARTITION:
    case BUS_ERR_REPLICA_NOT_AVAILABLE:
    case BUS_ERR_KAFKA_STORAGE_ERROR:
    case WIRE_ERR_FENCED_LEADER_EPOCH:
    case WIRE_ERR_UNKNOWN_LEADER_EPOCH:
    case WIRE_ERR_OFFSET_NOT_AVAILABLE:
    case WIRE_ERR_UNKNOWN_TOPIC_ID:
    case INCONSISTENT_TOPIC_ID:
        p->replica = -1;
        wire_net_stale(c->h.net, p->topic);
        return;
    default: tell_topic(c, p, code, now);
    }
}

/* How far do these bytes go? Heads alone are looked at; what is broken is found when it is read. */
static int64_t end_of(wire_str records, int64_t from, int32_t *epoch)
{
    wire_in in = wire_in_of(records.at, records.len, false);
    wire_batch_head head;
    int64_t end = from;
    while (wire_batch_next(&in, false, &head, NULL) == 1)
        if (head.last_offset >= end) {
            end = head.last_offset + 1;
            *epoch = head.leader_epoch;
        }
    return end;
}

typedef struct fetched { /* of one partition, as it stands in the answer */
    int32_t partition, replica;
    int code;
    int64_t high, stable;
    wire_abort *aborts;
    size_t n_aborts;
    wire_str records;
    bool diverges; /* its log has another history: of this epoch it goes up to this offset */
    int32_t diverging_epoch;
    int64_t diverging_end;
} fetched;

/* Of the tagged fields one is ours. */
static void get_part_tags(wire_in *in, fetched *ret)
{
    for (uint32_t n = in->flexible ? wire_get_uvarint(in) : 0; n && !in->bad; n--) {
        uint32_t tag = wire_get_uvarint(in), len = wire_get_uvarint(in);
        const uint8_t *at = wire_get_bytes(in, len);
        if (!at || tag != TAG_DIVERGING)
            continue;
        wire_in d = wire_in_of(at, len, true);
        ret->diverging_epoch = wire_get_i32(&d);
        ret->diverging_end = wire_get_i64(&d);
        ret->diverges = !d.bad && ret->diverging_end >= 0;
    }
}

static void get_part(wire_in *in, fetched *ret)
{
    *ret = (fetched){.partition = wire_get_i32(in), .code = wire_get_i16(in)};
    ret->high = wire_get_i64(in);
    ret->stable = wire_get_i64(in);
    wire_get_i64(in); /* where the log begins */
    size_t n = wire_get_count(in, 16, NULL);
    ret->aborts = n ? pst_alloc(n * sizeof *ret->aborts) : NULL;
    ret->n_aborts = n;
    for (size_t i = 0; i < n; i++) {
        ret->aborts[i].producer_id = wire_get_i64(in);
        ret->aborts[i].first = wire_get_i64(in);
        wire_get_tags(in);
    }
    ret->replica = wire_get_i32(in);
    ret->records = wire_get_blob(in);
    get_part_tags(in, ret);
}

/* Records that were handed out are gone, as after an election of a replica that did not have them: another history begins at `at`. */
static void cut_off(wire_consumer *c, wire_part *p, int32_t epoch, int64_t at)
{
    int64_t stood = p->next > p->lost_to ? p->next : p->lost_to;
    if (c->reset_error) {
        p->not_before_us = pst_mono_us() + FAULT_EVERY_US;
        wire_fault_add(c, BUS_ERR__AUTO_OFFSET_RESET, p->topic, p->partition,
                       "%s[%d]: the log was cut off at offset %lld, and records up to %lld were read; auto.offset.reset is error", p->topic,
                       p->partition, (long long)at, (long long)p->next - 1);
        return;
    }
    pst_log(
        PST_LOG_WARN, "bus",
        "event=log_cut_off topic=%s partition=%d offset=%lld to=%lld why=\"a leader was elected that does not have what was read: records "
        "up to there are gone, and what was written instead is read\"",
        p->topic, p->partition, (long long)p->next, (long long)at);
    wire_part_move(c, p, at);
    p->fetch_epoch = p->read_epoch = epoch;
    p->lost_from = at;
    p->lost_to = stood;
    if (c->h.to.moved)
        c->h.to.moved(c->h.to.owner);
}

/* The leader's log does not have what was fetched last (KIP-320). What lies here, and was not handed out, is fetched anew. */
static void diverged(wire_consumer *c, wire_part *p, const fetched *f)
{
    bool ahead = p->fetch > p->next;
    wire_part_clear(c, p);
    if (p->next > f->diverging_end)
        cut_off(c, p, f->diverging_epoch, f->diverging_end);
    else if (p->read_epoch > f->diverging_epoch || !ahead)
        p->fetch_epoch = p->read_epoch = f->diverging_epoch; /* nobody can say more of it: what follows is of this history */
}

/* Takes over the list of aborts. */
static void take_records(wire_consumer *c, wire_part *p, const wire_answer *a, const fetched *f, int64_t now)
{
    int32_t epoch = p->fetch_epoch;
    int64_t end = end_of(f->records, p->fetch, &epoch);
    if (end > p->fetch || f->records.len > WIRE_BATCH_HEAD) {
        bool cut = end == p->fetch;
        wire_chunk_add(c, p, a, f->records, end, f->aborts, f->n_aborts);
        p->fetch_epoch = epoch;
        if (!cut)
            return;
        if (p->bytes_max >= WIRE_BATCH_MAX && p->first == p->last) {
            const pst_err why = {.code = PST_EINVAL,
                                 .text = "no whole batch comes, however much of it is asked for: its length is not right"};
            wire_part_broken(c, p, &why);
            return;
        }
        /* Not one whole batch: it is larger than what was asked for, or broken. The next answer may bring more of it, and reading tells which. */
        if (p->bytes_max < WIRE_BATCH_MAX)
            p->bytes_max *= 2;
        p->not_before_us = now + EMPTY_MS * 1000;
        return;
    }
    free(f->aborts);
    if (p->fetch < p->high)
        p->not_before_us = now + EMPTY_MS * 1000;
}

/* One partition's answer: its marks and bytes are taken where the position is still the one that was asked for. */
static void take_part(wire_source *s, wire_asked *asked, const wire_answer *a, const fetched *f)
{
    wire_consumer *c = s->of;
    wire_part *p = asked->part;
    int64_t now = pst_mono_us();
    asked->listed = true;
    if (p->gone || p->version != asked->version || p->where != WIRE_AT_OFFSET) {
        free(f->aborts);
        return;
    }
    if (f->code) {
        free(f->aborts);
        part_failed(c, p, s->node, f->code, now);
        return;
    }
    p->told_us = 0;
    if (f->diverges) {
        free(f->aborts);
        diverged(c, p, f);
        return;
    }
    p->high = c->h.read_uncommitted || f->stable < 0 ? f->high : f->stable;
    if (f->replica >= 0 && f->replica != s->node) {
        free(f->aborts);
        p->replica = f->replica;
        p->replica_until_us = now + REPLICA_US;
        return;
    }
    take_records(c, p, a, f, now);
    if (p->fetch >= p->high)
        p->ended_us = a->sent_us;
}

/* The answer names partitions in the order in which they were asked for, mostly: the search goes on where the last one was. */
static wire_asked *find_asked(wire_source *s, size_t *at, const uint8_t *id, wire_str name, int32_t partition)
{
    for (size_t tried = 0; tried < s->n; tried++) {
        wire_asked *a = &s->has[(*at + tried) % s->n];
        if (a->part->partition != partition || (id ? memcmp(a->id, id, 16) != 0 : !wire_str_is(name, a->part->topic)))
            continue;
        *at = (*at + tried + 1) % s->n;
        return a;
    }
    return NULL;
}

static bool take_topics(wire_source *s, const wire_answer *a, wire_in *in)
{
    size_t topics = wire_get_count(in, 5, NULL), at = 0;
    for (size_t t = 0; t < topics && !in->bad; t++) {
        uint8_t id[16] = {0};
        wire_str name = {0};
        if (a->version >= 13)
            wire_get_uuid(in, id);
        else
            name = wire_get_str(in);
        size_t parts = wire_get_count(in, 35, NULL);
        for (size_t i = 0; i < parts && !in->bad; i++) {
            fetched f;
            get_part(in, &f);
            wire_asked *asked = in->bad ? NULL : find_asked(s, &at, a->version >= 13 ? id : NULL, name, f.partition);
            if (asked && !asked->listed)
                take_part(s, asked, a, &f);
            else
                free(f.aborts);
        }
        wire_get_tags(in);
    }
    wire_get_tags(in);
    return !in->bad;
}

static void source_failed(wire_source *s, int64_t now)
{
    wire_consumer *c = s->of;
    for (size_t i = 0; i < s->n; i++) {
        wire_part *p = s->has[i].part;
        if (p->replica == s->node)
            p->replica = -1;
        if (!p->gone)
            wire_net_stale(c->h.net, p->topic);
    }
    session_end(s);
    s->not_before_us = now + c->conf->fetch_error_backoff_ms * 1000LL;
}

static void on_fetched(void *owner, wire_call *call, const wire_answer *a)
{
    wire_source *s = owner;
    wire_consumer *c = s->of;
    int64_t now = pst_mono_us();
    PST_ASSERT(c->fetch_room >= s->room);
    c->fetch_room -= s->room;
    s->call = NULL;
    if (a->code) {
        if (a->code == BUS_ERR__UNSUPPORTED_FEATURE)
            wire_fault_add(c, a->code, NULL, -1, "broker %d speaks no Fetch that this client has (versions 11 to 16: Kafka 2.6 and newer)",
                           s->node);
        source_failed(s, now);
        return;
    }
    wire_in in = a->body;
    wire_get_i32(&in); /* throttled: the broker has waited already, or its connection is mute for so long */
    int code = wire_get_i16(&in);
    int32_t session = wire_get_i32(&in);
    if (in.bad || code) {
        if (code && code != FETCH_SESSION_ID_NOT_FOUND && code != INVALID_FETCH_SESSION_EPOCH && code != FETCH_SESSION_TOPIC_ID_ERROR)
            wire_fault_add(c, code, NULL, -1, "broker %d refuses to be fetched from: error %d", s->node, code);
        source_failed(s, now);
        return;
    }
    for (size_t i = 0; i < s->n; i++)
        s->has[i].listed = false;
    bool whole = take_topics(s, a, &in);
    for (size_t i = 0; i < s->n; i++) {
        wire_part *p = s->has[i].part;
        if (p->asked == s->has[i].version + 1)
            p->asked = 0;
        if (s->has[i].listed || p->version != s->has[i].version)
            continue;
        if (p->high >= 0 && p->fetch >= p->high) /* not named: nothing is new */
            p->ended_us = a->sent_us;
        else
            p->not_before_us = now + EMPTY_MS * 1000;
    }
    if (!whole) {
        wire_fault_add(c, BUS_ERR__TRANSPORT, NULL, -1, "broker %d: its answer to Fetch ends in the middle", s->node);
        source_failed(s, now);
        return;
    }
    if (!session) {
        session_end(s); /* it keeps none for us: each request is a whole one */
        return;
    }
    s->epoch = s->session == session && s->epoch < INT32_MAX ? s->epoch + 1 : 1;
    s->session = session;
}

/* ---- sending -------------------------------------------------------------------------------------------------------------------------------- */

static bool has_id(wire_consumer *c, const wire_part *p)
{
    static const uint8_t none[16];
    const wire_topic *t = wire_net_topic(c->h.net, p->topic);
    return t && memcmp(t->id, none, sizeof none) != 0;
}

static void send_fetch(wire_consumer *c, wire_source *s, bool ids)
{
    size_t used = c->chunk_bytes + c->fetch_room, most = c->inflight_max / 4;
    size_t left = used < c->inflight_max ? c->inflight_max - used : 0;
    if (left < ROOM_MIN && used)
        return; /* what lies here is used first */
    s->room = (size_t)c->conf->fetch_max_bytes < most ? (size_t)c->conf->fetch_max_bytes : most;
    if (s->room > left)
        s->room = left;
    if (s->room < ROOM_MIN)
        s->room = ROOM_MIN;
    c->fetch_room += s->room;
    s->call = wire_net_call(c->h.net, s->node, ids ? &fetch_api : &fetch_by_name_api, ANSWER_MS + c->conf->fetch_wait_ms, put_fetch,
                            on_fetched, s);
    wire_call_lane(s->call, s->waits ? LANE_WAIT : LANE_FLOW);
}

void wire_fetch_work(wire_consumer *c, int64_t now)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        wire_part *p = c->parts[i];
        if (!is_wanted(c, p, now))
            continue;
        int32_t node = node_of(c, p, now);
        wire_source *s = node < 0 ? NULL : source_of(c, node, at_end(p));
        if (s && !s->call && now >= s->not_before_us)
            send_fetch(c, s, has_id(c, p));
    }
}

int64_t wire_fetch_due_us(const wire_consumer *c)
{
    int64_t due = INT64_MAX;
    for (size_t i = 0; i < c->n_parts; i++)
        if (!c->parts[i]->paused && c->parts[i]->not_before_us && c->parts[i]->not_before_us < due && !c->parts[i]->asked)
            due = c->parts[i]->not_before_us;
    for (size_t i = 0; i < c->n_sources; i++)
        if (c->sources[i]->not_before_us && c->sources[i]->not_before_us < due && !c->sources[i]->call)
            due = c->sources[i]->not_before_us;
    return due;
}

void wire_fetch_done(wire_consumer *c)
{
    for (size_t i = 0; i < c->n_sources; i++) {
        wire_source *s = c->sources[i];
        if (s->call)
            wire_call_forget(s->call);
        session_end(s);
        free(s->has);
        free(s);
    }
    free(c->sources);
    c->sources = NULL;
    c->n_sources = 0;
}
