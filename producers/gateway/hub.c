/* hub.c - events to event streams. The ring keeps the last events as they travel, once for all clients. Each client has its place in the ring and is given
 * the next events when it has taken the last ones: one that reads slowly holds a few of them, not all that came meanwhile, and one that falls
 * out of the ring learns what it has missed. So neither many slow clients nor one large event take memory or disturb the others. */
#include "producers/gateway/gateway.h"

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
    ITEM_BYTES_MAX = 256 << 10
};

typedef struct item {
    char *kind, *key, *id;
    pst_http_piece *piece;
} item;

typedef struct client {
    gw_hub *hub;
    pst_http_stream *stream;
    char *kinds, *key, *only; /* NULL = all */
    uint64_t next;            /* the event it gets next, counted from the hub's first */
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
    char *away; /* why the records do not come at present; NULL: they do */
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
    pst_http_piece_unref(i->piece);
    memset(i, 0, sizeof *i);
}

static void client_free(client *c)
{
    free(c->kinds);
    free(c->key);
    free(c->only);
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

/* Models, pipelines and what measures those are everybody's; all else is about one job, and shown only where it is known whose. */
static bool may_see(const client *c, const item *i)
{
    static const char *const shared[] = {"model", "pipeline", "worker"};
    const gw_hub *h = c->hub;
    if (!c->only || (!strcmp(i->kind, "metric") && !strncmp(i->key, "pipeline:", 9)))
        return true;
    for (size_t k = 0; k < sizeof shared / sizeof *shared; k++)
        if (!strcmp(i->kind, shared[k]))
            return true;
    const char *owner = h->owner_of ? h->owner_of(h->owner_arg, i->key) : NULL;
    return owner && !strcmp(owner, c->only);
}

static bool wants(const client *c, const item *i)
{
    if (c->key && strcmp(c->key, i->key))
        return false;
    for (const char *p = c->kinds; p && *p;) {
        size_t n = strcspn(p, ",");
        if (n == strlen(i->kind) && !strncmp(p, i->kind, n))
            return true;
        p += n + (p[n] == ',');
    }
    return !c->kinds;
}

static void report_missed(client *c)
{
    char text[80];
    PST_ASSERT(c->next < c->hub->first);
    int n = snprintf(text, sizeof text, "{\"missed\":%llu,\"why\":\"this client reads too slowly\"}",
                     (unsigned long long)(c->hub->first - c->next));
    c->next = c->hub->first;
    pst_http_sse_send(c->stream, NULL, "missed", text, (size_t)n);
}

/* Gives the client what comes next, as much as its window takes. */
static void advance(client *c)
{
    gw_hub *h = c->hub;
    if (c->next < h->first && pst_http_stream_backlog(c->stream) < WINDOW_BYTES)
        report_missed(c);
    while (c->next >= h->first && c->next < h->end && pst_http_stream_backlog(c->stream) < WINDOW_BYTES) {
        const item *i = &h->ring[c->next++ % RING];
        if (wants(c, i) && may_see(c, i) && pst_http_stream_send(c->stream, i->piece) < 0)
            return; /* it is being closed; on_close follows */
    }
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
    json_object_set_new(j, "position", json_string(id));
    json_object_set_new(j, "bytes", json_integer((json_int_t)len));
    json_object_set_new(j, "why",
                        json_string("larger than 256 KiB, or than can be taken apart here; read it from its topic: penstock cat"));
    char *text = pst_json_text(j);
    pst_http_piece *p = pst_http_piece_new(id, "skipped", text, strlen(text), live);
    free(text);
    json_decref(j);
    return p;
}

/* Invariants: the ring holds at most RING events and RING_BYTES_MAX bytes; events that left it and that slow clients still hold are bounded, too,
 * by closing the slowest ones. */
void gw_hub_send(gw_hub *h, const char *kind, const char *key, const char *id, const char *json, size_t len)
{
    bool whole = json && len <= ITEM_BYTES_MAX;
    pst_http_piece *piece = whole ? pst_http_piece_new(id, kind, json, len, &h->live) : stand_in(kind, key, id, len, &h->live);
    while (h->end - h->first == RING || (h->end > h->first && h->bytes + pst_http_piece_size(piece) > RING_BYTES_MAX))
        drop_oldest(h);
    PST_ASSERT(h->end - h->first < RING);
    h->ring[h->end++ % RING] = (item){pst_strdup(kind), pst_strdup(key), pst_strdup(id), piece};
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

/* Everything after the event with this id; without one (or when it is too old) all that the ring holds, after a `reset`. */
static void place(gw_hub *h, client *c, const char *last_id)
{
    c->next = h->first;
    for (uint64_t k = h->end; last_id && k > h->first; k--)
        if (!strcmp(h->ring[(k - 1) % RING].id, last_id)) {
            c->next = k;
            return;
        }
    pst_http_sse_send(c->stream, NULL, "reset", "{}", 2);
}

void gw_hub_set_owners(gw_hub *h, const char *(*owner_of)(void *arg, const char *training_id), void *arg)
{
    h->owner_of = owner_of;
    h->owner_arg = arg;
}

void gw_hub_end_streams(gw_hub *h)
{
    while (h->clients)
        pst_http_stream_abort(h->clients->stream);
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
