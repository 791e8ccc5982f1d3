/* bus_carry.c - records that a producer took and did not send before its client was declared dead: the next client sends them.
 *
 * An idempotent client dies of an answer that leaves it no way to go on without a gap or a double, as brokers give after an outage; what waited for the end
 * of the outage dies with it, though nothing is wrong with it. Only what was not written is carried over (never sent, or refused as out of
 * order, which may err by a double: rdk_producer.c), in the order in which the client was given it, whatever the order of its reports; what was under way may be there, and is reported as failed.
 * Not in transactions: there the round is played again. */
#include "common/bus/bus_internal.h"
#include "common/base/array.h"

#include <stdlib.h>
#include <string.h>

struct bus_carried {
    uint64_t nth;
    pst_out out; /* all it points to lies behind it, in one piece */
};

static void *put(char **at, const void *data, size_t len)
{
    if (!data)
        return NULL;
    char *to = *at;
    memcpy(to, data, len);
    *at += len;
    return to;
}

static bus_carried *copy_of(const pst_out *o, uint64_t nth)
{
    size_t size = sizeof(bus_carried) + o->n_headers * sizeof(pst_header) + strlen(o->topic) + 1 + o->key_len + o->value_len;
    for (size_t i = 0; i < o->n_headers; i++)
        size += strlen(o->headers[i].name) + 1 + o->headers[i].len;
    bus_carried *c = pst_alloc(size);
    pst_header *headers = (pst_header *)(c + 1);
    char *at = (char *)(headers + o->n_headers);
    c->nth = nth;
    c->out = *o;
    c->out.headers = o->n_headers ? headers : NULL;
    c->out.topic = put(&at, o->topic, strlen(o->topic) + 1);
    c->out.key = put(&at, o->key, o->key_len);
    c->out.value = put(&at, o->value, o->value_len);
    for (size_t i = 0; i < o->n_headers; i++) {
        headers[i].name = put(&at, o->headers[i].name, strlen(o->headers[i].name) + 1);
        headers[i].value = put(&at, o->headers[i].value, o->headers[i].len);
        headers[i].len = o->headers[i].len;
    }
    PST_ASSERT(at == (char *)c + size);
    return c;
}

void bus_carry(pst_producer *p, const bus_delivered *unsent)
{
    p->carried = pst_array_room(p->carried, p->n_carried, &p->carried_cap, sizeof(*p->carried));
    p->carried[p->n_carried++] = copy_of(unsent->unsent, unsent->nth);
}

static int by_nth(const void *a, const void *b)
{
    const bus_carried *x = *(bus_carried *const *)a, *y = *(bus_carried *const *)b;
    PST_ASSERT(x == y || x->nth != y->nth);
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

void bus_carry_on(pst_producer *p)
{
    bus_carried **all = p->carried;
    size_t n = p->n_carried;
    p->carried = NULL;
    p->n_carried = p->carried_cap = 0;
    if (n)
        qsort(all, n, sizeof *all, by_nth);
    for (size_t i = 0; i < n; i++) {
        const pst_out *o = &all[i]->out;
        int code = bus_produce(p, o, 1);
        if (code) { /* reported, as one that the client took and failed to deliver */
            p->pending++;
            bus_producer_delivered(p, &(bus_delivered){.code = code,
                                                       .reason = bus_code_text(code),
                                                       .topic = o->topic,
                                                       .partition = o->partition,
                                                       .offset = -1,
                                                       .opaque = o->opaque});
        }
        free(all[i]);
    }
    free(all);
}

void bus_carry_done(pst_producer *p)
{
    for (size_t i = 0; i < p->n_carried; i++)
        free(p->carried[i]);
    free(p->carried);
    p->carried = NULL;
    p->n_carried = p->carried_cap = 0;
}
