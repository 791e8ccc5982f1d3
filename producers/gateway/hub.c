/* hub.c - events to event streams. The ring keeps the last events as they travel, once for all clients. Each client has its place in the ring and is given
 * the next events when it has taken the last ones: one that reads slowly holds a few of them, not all that came meanwhile, and one that falls
 * out of the ring learns what it has missed. So neither many slow clients nor one large event take memory or disturb the others. */
#include "producers/gateway/gateway.h"

#include "common/base/clock.h"
#include "common/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RING = 8192,
    RING_BYTES_MAX = 32 << 20,
    HELD_BYTES_MAX = 16 << 20, /* of events that left the ring and that some slow client has not taken yet */
    STREAMS_MAX = 500,
    WINDOW_BYTES = 64 << 10,
    ITEM_BYTES_MAX = 256 << 10,
    AHEAD_MAX = 10000, /* records that another gateway may have been quicker by */
    AHEAD_US = 10 * 1000000
};
enum { UNKNOWN_US = 3000000 }; /* an event whose owner is not known by then is shown to those alone who see all */

typedef struct item {
    char *kind, *key, *id;
    pst_http_piece *piece;
    char *topic; /* NULL: the id names no record */
    int32_t partition;
    int64_t offset, came_us;
} item;

typedef struct client {
    gw_hub *hub;
    pst_http_stream *stream;
    char *kinds, *key, *only; /* NULL = all */
    uint64_t next;            /* the event it gets next, counted from the hub's first */
    gw_places had;            /* of one that came back, until the ring is where it was: what it has had */
    bool waits;               /* it came before the feed began */
    int64_t came_us;
    struct client *next_client;
} client;

struct gw_hub {
    item ring[RING];
    uint64_t first, end; /* events in the ring: [first, end) */
    size_t bytes, live;  /* of the ring; of all that is in memory */
    client *clients;
    size_t n_clients;
    const char *(*owner_of)(void *arg, const char *training_id);
    void *owner_arg;
    char *away;   /* why the records do not come at present; NULL: they do */
    gw_places at; /* of all that was sent */
    bool begun;   /* at says from where */
};

gw_hub *gw_hub_new(void)
{
    return pst_alloc(sizeof(gw_hub));
}

static void item_done(item *i)
{
    free(i->kind);
    free(i->key);
    free(i->id);
    free(i->topic);
    pst_http_piece_unref(i->piece);
    memset(i, 0, sizeof *i);
}

static void client_free(client *c)
{
    free(c->kinds);
    free(c->key);
    free(c->only);
    gw_places_done(&c->had);
    free(c);
}

void gw_hub_free(gw_hub *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < RING; i++)
        item_done(&h->ring[i]);
    while (h->clients) { /* their streams were closed with the server */
        client *c = h->clients;
        h->clients = c->next_client;
        client_free(c);
    }
    gw_places_done(&h->at);
    free(h->away);
    free(h);
}

size_t gw_hub_streams(const gw_hub *h)
{
    return h->n_clients;
}

void gw_hub_dump(const gw_hub *h, json_t *to)
{
    json_t *streams = json_array();
    for (const client *c = h->clients; c; c = c->next_client)
        json_array_append_new(streams,
                              json_pack("{s:s?, s:s?, s:s?, s:I, s:I}", "kinds", c->kinds, "key", c->key, "user", c->only, "behind",
                                        (json_int_t)(h->end - c->next), "backlog_bytes", (json_int_t)pst_http_stream_backlog(c->stream)));
    json_object_set_new(to, "hub",
                        json_pack("{s:I, s:I, s:I, s:I, s:o}", "first", (json_int_t)h->first, "end", (json_int_t)h->end, "ring_bytes",
                                  (json_int_t)h->bytes, "held_bytes", (json_int_t)(h->live - h->bytes), "streams", streams));
}

typedef enum { SEES_NOT, SEES, SEES_LATER } sight;

/* Models, pipelines and what measures those are everybody's; all else is about one job, and shown only where it is known whose. Topics have no order
 * between them, so that a job's first event may come before the record that says whose it is: LATER, for a while. */
static sight may_see(const client *c, const item *i)
{
    static const char *const shared[] = {"model", "pipeline", "worker"};
    const gw_hub *h = c->hub;
    if (!c->only || (!strcmp(i->kind, "metric") && !strncmp(i->key, "pipeline:", 9)))
        return SEES;
    for (size_t k = 0; k < sizeof shared / sizeof *shared; k++)
        if (!strcmp(i->kind, shared[k]))
            return SEES;
    const char *owner = h->owner_of ? h->owner_of(h->owner_arg, i->key) : NULL;
    if (!owner && *i->key && pst_mono_us() - i->came_us < UNKNOWN_US)
        return SEES_LATER;
    return owner && !strcmp(owner, c->only) ? SEES : SEES_NOT;
}

static bool wants_kind(const client *c, const char *kind)
{
    for (const char *p = c->kinds; p && *p;) {
        size_t n = strcspn(p, ",");
        if (n == strlen(kind) && !strncmp(p, kind, n))
            return true;
        p += n + (p[n] == ',');
    }
    return !c->kinds;
}

static bool wants(const client *c, const item *i)
{
    return (!c->key || !strcmp(c->key, i->key)) && wants_kind(c, i->kind);
}

/* Records from..to-1 of this partition are not sent, or sent again: to -1: it is not known how many. Without an id. */
static void tell_gap(client *c, const gw_place *p, int64_t from, int64_t to, const char *why)
{
    if (p->kind && !wants_kind(c, p->kind))
        return;
    json_t *j = json_pack("{s:s, s:i, s:I, s:o, s:s}", "topic", p->topic, "partition", (int)p->partition, "from", (json_int_t)from, "to",
                          to < 0 ? json_null() : json_integer((json_int_t)to), "why", why);
    char *text = pst_json_text(j);
    pst_http_sse_send(c->stream, NULL, "gap", text, strlen(text));
    free(text);
    json_decref(j);
}

static const char gone[] = "this gateway does not have these records any more; read them from the topic: penstock cat";
static const char renewed[] = "the topic has no such offset: it was made anew, or the id is another platform's; what there is follows";

static void report_missed(client *c)
{
    char text[80];
    PST_ASSERT(c->next < c->hub->first);
    int n = snprintf(text, sizeof text, "{\"missed\":%llu,\"why\":\"this client reads too slowly\"}",
                     (unsigned long long)(c->hub->first - c->next));
    c->next = c->hub->first;
    pst_http_sse_send(c->stream, NULL, "missed", text, (size_t)n);
}

/* Did a client that came back have this record? An offset that is written only now was, in the topic that it knew, another record. */
static bool had(client *c, const item *i)
{
    gw_place *p = i->topic && c->had.n ? gw_places_find(&c->had, i->topic, i->partition) : NULL;
    if (!p || i->offset >= p->next)
        return false;
    const gw_place *at = gw_places_find(&c->hub->at, i->topic, i->partition);
    if (i->offset < at->high || i->came_us - c->came_us < AHEAD_US)
        return true;
    tell_gap(c, at, p->next, -1, renewed);
    p->next = i->offset;
    return false;
}

/* The event, with an id that says what this client has had, until the ring is where it was: then every client's id is the same. */
static int give(client *c, const item *i)
{
    gw_places v;
    if (!c->had.n || !gw_places_parse(i->id, &v))
        return pst_http_stream_send(c->stream, i->piece);
    bool behind = false;
    for (size_t k = 0; k < c->had.n; k++) {
        const gw_place *p = &c->had.all[k];
        gw_place *mine = gw_places_put(&v, p->topic, p->partition);
        behind |= p->next > mine->next;
        mine->next = p->next > mine->next ? p->next : mine->next;
    }
    char *id = gw_places_id(&v, i->id);
    pst_http_piece *piece = behind ? pst_http_piece_as(i->piece, id, &c->hub->live) : NULL;
    int rc = pst_http_stream_send(c->stream, piece ? piece : i->piece);
    if (!behind)
        gw_places_done(&c->had);
    pst_http_piece_unref(piece);
    gw_places_done(&v);
    free(id);
    return rc;
}

/* Gives the client what comes next, as much as its window takes. */
static void advance(client *c)
{
    gw_hub *h = c->hub;
    if (c->waits)
        return;
    if (c->next < h->first && pst_http_stream_backlog(c->stream) < WINDOW_BYTES)
        report_missed(c);
    while (c->next >= h->first && c->next < h->end && pst_http_stream_backlog(c->stream) < WINDOW_BYTES) {
        const item *i = &h->ring[c->next % RING];
        sight sees = had(c, i) || !wants(c, i) ? SEES_NOT : may_see(c, i);
        if (sees == SEES_LATER)
            return;
        c->next++;
        if (sees == SEES && give(c, i) < 0)
            return; /* it is being closed; on_close follows */
    }
}

void gw_hub_again(gw_hub *h)
{
    for (client *c = h->clients; c; c = c->next_client)
        if (c->only)
            advance(c);
}

static void on_drained(void *arg)
{
    advance(arg);
}

static void drop_oldest(gw_hub *h)
{
    PST_ASSERT(h->first < h->end);
    item *i = &h->ring[h->first++ % RING];
    PST_ASSERT(h->bytes >= pst_http_piece_size(i->piece));
    h->bytes -= pst_http_piece_size(i->piece);
    gw_place *p = i->topic ? gw_places_find(&h->at, i->topic, i->partition) : NULL;
    if (p && p->from <= i->offset)
        p->from = i->offset + 1;
    item_done(i);
}

/* The client that is furthest behind holds what nobody else does. */
static void drop_slowest(gw_hub *h)
{
    client *slowest = h->clients;
    PST_ASSERT(slowest);
    for (client *c = h->clients; c; c = c->next_client)
        if (c->next < slowest->next)
            slowest = c;
    pst_http_stream_abort(slowest->stream);
}

/* What stands for an event that is too large for a stream: the reader learns that it is there and where. */
static pst_http_piece *stand_in(const char *kind, const char *key, const char *id, size_t len, size_t *live)
{
    json_t *j = json_object(), *k = json_string(key);
    json_object_set_new(j, "kind", json_string(kind));
    json_object_set_new(j, "key", k ? k : json_null());
    char *record = pst_strndup(id, strcspn(id, ";"));
    json_object_set_new(j, "position", json_string(record));
    free(record);
    json_object_set_new(j, "bytes", json_integer((json_int_t)len));
    json_object_set_new(j, "why",
                        json_string("larger than 256 KiB, or than can be taken apart here; read it from its topic: penstock cat"));
    char *text = pst_json_text(j);
    pst_http_piece *p = pst_http_piece_new(id, "skipped", text, strlen(text), live);
    free(text);
    json_decref(j);
    return p;
}

/* False: it was sent before; a feed that begins anew reads some records again. What is no record has no place. */
static bool take_place(gw_hub *h, const char *record, item *ret)
{
    if (!gw_places_record(record, &ret->topic, &ret->partition, &ret->offset))
        return true;
    gw_place *p = gw_places_find(&h->at, ret->topic, ret->partition);
    if (!p) {
        p = gw_places_put(&h->at, ret->topic, ret->partition);
        p->from = p->high = ret->offset;
    }
    bool fresh = ret->offset >= p->next;
    if (fresh)
        p->next = ret->offset + 1;
    else
        free(ret->topic);
    return fresh;
}

void gw_hub_pass(gw_hub *h, const char *record)
{
    item i = {0};
    if (take_place(h, record, &i))
        free(i.topic);
}

/* Invariants: the ring holds at most RING events and RING_BYTES_MAX bytes; events that left it and that slow clients still hold are bounded, too,
 * by closing the slowest ones. */
void gw_hub_send(gw_hub *h, const char *kind, const char *key, const char *record, const char *json, size_t len)
{
    item i = {0};
    if (!take_place(h, record, &i))
        return;
    bool whole = json && len <= ITEM_BYTES_MAX;
    char *id = gw_places_id(&h->at, record);
    pst_http_piece *piece = whole ? pst_http_piece_new(id, kind, json, len, &h->live) : stand_in(kind, key, id, len, &h->live);
    while (h->end - h->first == RING || (h->end > h->first && h->bytes + pst_http_piece_size(piece) > RING_BYTES_MAX))
        drop_oldest(h);
    PST_ASSERT(h->end - h->first < RING);
    h->ring[h->end++ % RING] = (item){pst_strdup(kind), pst_strdup(key), id, piece, i.topic, i.partition, i.offset, pst_mono_us()};
    h->bytes += pst_http_piece_size(piece);
    PST_ASSERT(h->live >= h->bytes); /* the ring is part of what is in memory: the difference below is no wrap-around */
    for (client *c = h->clients; c; c = c->next_client)
        advance(c);
    while (h->live - h->bytes > HELD_BYTES_MAX && h->clients)
        drop_slowest(h);
}

/* No record and without an id: it changes no client's place in the stream. */
static void tell_kafka(const gw_hub *h, client *c)
{
    json_t *j = json_pack("{s:b, s:s?}", "reached", !h->away, "why", h->away);
    char *text = pst_json_text(j);
    pst_http_sse_send(c->stream, NULL, "kafka", text, strlen(text));
    free(text);
    json_decref(j);
}

void gw_hub_kafka(gw_hub *h, const char *away)
{
    bool changed = !h->away != !away;
    free(h->away);
    h->away = pst_strdup(away);
    for (client *c = h->clients; changed && c; c = c->next_client)
        if (pst_http_stream_backlog(c->stream) < WINDOW_BYTES) /* a slow one has it from what does not come */
            tell_kafka(h, c);
}

static void on_close(void *arg)
{
    client *c = arg;
    for (client **p = &c->hub->clients; *p; p = &(*p)->next_client)
        if (*p == c) {
            *p = c->next_client;
            c->hub->n_clients--;
            break;
        }
    client_free(c);
}

/* What a client had, as far as the ring can go on from there; the rest it is told. A partition that it does not name had no record then. */
static void settle(client *c)
{
    gw_hub *h = c->hub;
    gw_places had = c->had;
    c->had = (gw_places){0};
    c->next = h->first;
    c->waits = false;
    for (size_t k = 0; k < h->at.n; k++) {
        const gw_place *at = &h->at.all[k], *mine = gw_places_find(&had, at->topic, at->partition);
        int64_t next = mine ? mine->next : 0, end = at->next > at->high ? at->next : at->high;
        if (next < at->from)
            tell_gap(c, at, next, at->from, gone);
        else if (next > end + AHEAD_MAX)
            tell_gap(c, at, next, -1, renewed);
        gw_places_put(&c->had, at->topic, at->partition)->next = next < at->from || next > end + AHEAD_MAX ? at->from : next;
    }
    gw_places_done(&had);
}

/* What the client with this id has not had; without one all that the ring holds, after a `reset`. An id that says too little is no error: a page
 * that was open meanwhile would never come again. */
static void place(gw_hub *h, client *c, const char *last_id)
{
    c->came_us = pst_mono_us();
    c->next = h->first;
    if (last_id && gw_places_parse(last_id, &c->had)) {
        c->waits = !h->begun && !h->at.n;
        if (!c->waits)
            settle(c);
        return;
    }
    static const char unusable[] =
        "{\"why\":\"Last-Event-ID does not say where each partition was; what this gateway has follows, and may be known or "
        "not go on where you were\"}";
    if (last_id)
        pst_http_sse_send(c->stream, NULL, "gap", unusable, sizeof unusable - 1);
    pst_http_sse_send(c->stream, NULL, "reset", "{}", 2);
}

/* The partition goes on elsewhere than it ended: every stream is told, and one that came back has had nothing of what comes now. */
static void jump(gw_hub *h, gw_place *p, const gw_place *to)
{
    bool anew = to->high < p->next;
    if (!anew && to->from <= p->next)
        return;
    while (anew && h->first < h->end) /* its offsets mean other records */
        drop_oldest(h);
    for (client *c = h->clients; c; c = c->next_client) {
        tell_gap(c, p, p->next, anew ? -1 : to->from, anew ? renewed : gone);
        gw_place *mine = gw_places_find(&c->had, p->topic, p->partition);
        if (mine)
            mine->next = to->from;
    }
    p->next = p->from = to->from;
}

void gw_hub_begin(gw_hub *h, const gw_places *from)
{
    for (size_t i = 0; i < from->n; i++) {
        const gw_place *to = &from->all[i];
        gw_place *p = gw_places_find(&h->at, to->topic, to->partition);
        if (p)
            jump(h, p, to);
        else {
            p = gw_places_put(&h->at, to->topic, to->partition);
            p->next = p->from = to->from;
        }
        p->high = to->high;
        p->kind = to->kind;
    }
    h->begun = true;
    for (client *c = h->clients; c; c = c->next_client)
        if (c->waits) {
            settle(c);
            advance(c);
        }
}

void gw_hub_set_owners(gw_hub *h, const char *(*owner_of)(void *arg, const char *training_id), void *arg)
{
    h->owner_of = owner_of;
    h->owner_arg = arg;
}

void gw_hub_attach(gw_hub *h, pst_http_req *req, const char *kinds, const char *key, const char *only)
{
    if (h->n_clients >= STREAMS_MAX) {
        pst_http_add_header(req, "Retry-After", "5");
        pst_http_problem(req, 503, "too-many-streams", NULL,
                         "this gateway serves 500 streams at most; ask again later or run another gateway");
        return;
    }
    const char *last_id = pst_http_last_event_id(req);
    client *c = pst_alloc(sizeof *c);
    *c = (client){.hub = h,
                  .kinds = kinds && *kinds ? pst_strdup(kinds) : NULL,
                  .key = key && *key ? pst_strdup(key) : NULL,
                  .only = only ? pst_strdup(only) : NULL};
    char *last = pst_strdup(last_id);
    c->stream = pst_http_sse_open(req, on_close, c);
    if (c->stream) {
        c->next_client = h->clients;
        h->clients = c;
        h->n_clients++;
        pst_http_stream_on_drained(c->stream, on_drained);
        place(h, c, last);
        if (h->away)
            tell_kafka(h, c);
        advance(c);
    } else
        client_free(c);
    free(last);
}
