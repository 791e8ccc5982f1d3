/* hub.c - see gateway.h. The ring keeps the last events as they were sent; the latest state of each job is kept beside it, so that a page
 * that opens knows every job without asking. */
#include "producers/gateway/gateway.h"

#include "common/base/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RING = 8192, RING_BYTES_MAX = 32 << 20, STREAMS_MAX = 500 };

typedef struct item {
    char *kind, *key, *id, *json;
    size_t len;
} item;

typedef struct client {
    pst_hub *hub;
    pst_http_stream *stream;
    char *kinds, *key; /* NULL = all */
    struct client *next;
} client;

struct pst_hub {
    item ring[RING];
    size_t first, n, bytes;
    client *clients;
    size_t n_clients;
};

pst_hub *pst_hub_new(void)
{
    return pst_alloc(sizeof(pst_hub));
}

static void item_done(item *i)
{
    free(i->kind);
    free(i->key);
    free(i->id);
    free(i->json);
    memset(i, 0, sizeof *i);
}

static void client_free(client *c)
{
    free(c->kinds);
    free(c->key);
    free(c);
}

void pst_hub_free(pst_hub *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < RING; i++)
        item_done(&h->ring[i]);
    while (h->clients) { /* their streams were closed with the server */
        client *c = h->clients;
        h->clients = c->next;
        client_free(c);
    }
    free(h);
}

size_t pst_hub_streams(const pst_hub *h)
{
    return h->n_clients;
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

static int send_item(client *c, const item *i)
{
    return wants(c, i) ? pst_http_sse_send(c->stream, i->id, i->kind, i->json, i->len) : 0;
}

static void drop_oldest(pst_hub *h)
{
    h->bytes -= h->ring[h->first].len;
    item_done(&h->ring[h->first]);
    h->first = (h->first + 1) % RING;
    h->n--;
}

void pst_hub_send(pst_hub *h, const char *kind, const char *key, const char *id, const char *json, size_t len)
{
    while (h->n == RING || (h->n && h->bytes + len > RING_BYTES_MAX))
        drop_oldest(h);
    item *i = &h->ring[(h->first + h->n++) % RING];
    *i = (item){pst_strdup(kind), pst_strdup(key), pst_strdup(id), pst_strndup(json, len), len};
    h->bytes += len;
    for (client *c = h->clients, *next; c; c = next) { /* a slow one is dropped by the server and leaves through on_close */
        next = c->next;
        send_item(c, i);
    }
}

static void on_close(void *arg)
{
    client *c = arg;
    for (client **p = &c->hub->clients; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            c->hub->n_clients--;
            break;
        }
    client_free(c);
}

/* Everything after the event with this id; without one (or when it is too old) all that the ring holds, after a `reset`. */
static void replay(pst_hub *h, client *c, const char *last_id)
{
    size_t from = 0;
    bool found = false;
    for (size_t k = 0; last_id && k < h->n && !found; k++)
        if (!strcmp(h->ring[(h->first + k) % RING].id, last_id)) {
            from = k + 1;
            found = true;
        }
    if (!found && pst_http_sse_send(c->stream, NULL, "reset", "{}", 2) < 0)
        return;
    for (size_t k = from; k < h->n; k++)
        if (send_item(c, &h->ring[(h->first + k) % RING]) < 0)
            return;
}

void pst_hub_attach(pst_hub *h, pst_http_req *req)
{
    if (h->n_clients >= STREAMS_MAX) {
        pst_http_add_header(req, "Retry-After", "5");
        pst_http_problem(req, 503, "too-many-streams", NULL,
                         "this gateway serves 500 streams at most; ask again later or run another gateway");
        return;
    }
    const char *kinds = pst_http_query(req, "kinds"), *key = pst_http_query(req, "key"), *last_id = pst_http_last_event_id(req);
    client *c = pst_alloc(sizeof *c);
    *c = (client){.hub = h, .kinds = kinds && *kinds ? pst_strdup(kinds) : NULL, .key = key && *key ? pst_strdup(key) : NULL};
    char *last = pst_strdup(last_id);
    c->stream = pst_http_sse_open(req, on_close, c);
    if (c->stream) {
        c->next = h->clients;
        h->clients = c;
        h->n_clients++;
        replay(h, c, last);
    } else
        client_free(c);
    free(last);
}
