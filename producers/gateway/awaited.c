/* awaited.c - read your own writes: a request whose event is in Kafka is answered when the store shows what the Trainer made of it. The store is
 * looked at, not the topic: what is to be true is that the client's next request, which reads the store, sees the same. An end comes in any case: an
 * event that is published is not lost, only its effect not seen yet. */
#include "producers/gateway/gateway.h"

#include "common/base/clock.h"

#include <stdlib.h>

enum { LOOK_US = 40000, AWAIT_US = 7 * 1000000 }; /* FfDL's client gives a request 10 s */

struct gw_awaited {
    gw_state *g;
    pst_http_req *req;
    char *id;
    gw_seen fn;
    pst_timer *timer;
    int64_t until_us;
    gw_awaited *next;
};

static void let_go(gw_awaited *a)
{
    gw_awaited **p = &a->g->awaited;
    while (*p != a)
        p = &(*p)->next;
    *p = a->next;
    pst_timer_free(a->timer);
    free(a->id);
    free(a);
}

static void look(void *arg)
{
    gw_awaited *a = arg;
    json_t *doc = NULL;
    pst_err err = {0};
    bool last = pst_http_gone(a->req) || pst_mono_us() >= a->until_us;
    pst_store *s = gw_store_lock(a->g, &err);
    int rc = s ? pst_store_get(s, "jobs", a->id, &doc, &err) : err.code ? err.code : PST_EAGAIN; /* the view is not open yet */
    gw_store_unlock(a->g);
    bool known = !rc || rc == PST_ENOTFOUND; /* a store that cannot be read says nothing */
    if ((known || last) && a->fn(a->g, a->req, a->id, doc, last))
        let_go(a);
    json_decref(doc);
}

void gw_await(gw_state *g, pst_http_req *req, const char *id, gw_seen fn)
{
    gw_awaited *a = pst_alloc(sizeof *a);
    *a = (gw_awaited){.g = g, .req = req, .id = pst_strdup(id), .fn = fn, .until_us = pst_mono_us() + AWAIT_US, .next = g->awaited};
    g->awaited = a;
    a->timer = pst_timer_new(g->loop, 0, LOOK_US, look, a);
}

void gw_await_end(gw_state *g)
{
    while (g->awaited) {
        gw_awaited *a = g->awaited;
        bool answered = a->fn(g, a->req, a->id, NULL, true);
        PST_ASSERT(answered);
        let_go(a);
    }
}
