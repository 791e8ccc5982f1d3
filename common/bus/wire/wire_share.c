/* wire_share.c - see wire_share.h. What members and brokers send is read with bounds, and a member that sends nonsense gets nothing. */
#include "common/bus/wire/wire_share.h"
#include "common/base/array.h"
#include "common/base/err.h"

#include <stdlib.h>

/* ---- bytes ---------------------------------------------------------------------------------------------------------------------------- */

static bool str_eq(wire_str a, wire_str b)
{
    return a.len == b.len && (!a.len || !memcmp(a.at, b.at, a.len));
}

static int str_order(wire_str a, wire_str b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int cmp = n ? memcmp(a.at, b.at, n) : 0;
    return cmp ? cmp : (a.len > b.len) - (a.len < b.len);
}

static int tp_order(const void *a, const void *b)
{
    const wire_tp *x = a, *y = b;
    int topics = str_order(x->topic, y->topic);
    return topics ? topics : (x->partition > y->partition) - (x->partition < y->partition);
}

static void put_tps(wire_out *o, const wire_tp *tps, size_t n)
{
    size_t topics = 0;
    for (size_t i = 0; i < n; i++)
        topics += i == 0 || !str_eq(tps[i].topic, tps[i - 1].topic);
    wire_put_count(o, topics);
    for (size_t i = 0, run; i < n; i += run) {
        for (run = 1; i + run < n && str_eq(tps[i + run].topic, tps[i].topic);)
            run++;
        wire_put_i16(o, (int16_t)tps[i].topic.len);
        wire_put_bytes(o, tps[i].topic.at, tps[i].topic.len);
        wire_put_count(o, run);
        for (size_t k = 0; k < run; k++)
            wire_put_i32(o, tps[i + k].partition);
    }
}

static int get_tps(wire_in *in, void (*fn)(void *arg, wire_str topic, int32_t partition), void *arg)
{
    size_t topics = wire_get_count(in, 6, NULL);
    for (size_t t = 0; t < topics && !in->bad; t++) {
        wire_str topic = wire_get_str(in);
        size_t n = wire_get_count(in, 4, NULL);
        for (size_t i = 0; i < n && !in->bad; i++) {
            int32_t partition = wire_get_i32(in);
            if (!in->bad && topic.at)
                fn(arg, topic, partition);
        }
    }
    return in->bad ? PST_EINVAL : 0;
}

/* Version 2: with what one has, and since which generation. The user data says the generation once more, for assignors that look there. */
void wire_subscription_put(pst_buf *to, const char *const *topics, size_t n, const wire_tp *owned, size_t n_owned, int32_t generation)
{
    wire_out o = {.to = to};
    wire_put_i16(&o, 2);
    wire_put_count(&o, n);
    for (size_t i = 0; i < n; i++)
        wire_put_str(&o, topics[i]);
    wire_put_i32(&o, 4);
    wire_put_i32(&o, generation);
    put_tps(&o, owned, n_owned);
    wire_put_i32(&o, generation);
}

void wire_assignment_put(pst_buf *to, const wire_tp *share, size_t n)
{
    wire_out o = {.to = to};
    wire_put_i16(&o, 0);
    put_tps(&o, share, n);
    wire_put_i32(&o, -1); /* no user data */
}

int wire_assignment_read(const uint8_t *bytes, size_t len, void (*fn)(void *arg, wire_str topic, int32_t partition), void *arg)
{
    wire_in in = wire_in_of(bytes, len, false);
    if (!len)
        return 0; /* nothing was given: a member without partitions */
    wire_get_i16(&in);
    return get_tps(&in, fn, arg);
}

static void own(void *arg, wire_str topic, int32_t partition)
{
    wire_member *m = arg;
    m->owned = pst_array_one_more(m->owned, m->n_owned, sizeof *m->owned);
    m->owned[m->n_owned++] = (wire_tp){topic, partition};
}

int wire_member_read(wire_member *m, const uint8_t *bytes, size_t len)
{
    wire_in in = wire_in_of(bytes, len, false);
    m->generation = -1;
    int version = wire_get_i16(&in);
    size_t n = wire_get_count(&in, 2, NULL);
    m->topics = n ? pst_alloc(n * sizeof *m->topics) : NULL;
    for (size_t i = 0; i < n; i++)
        m->topics[i] = wire_get_str(&in);
    m->n_topics = n;
    wire_get_blob(&in); /* user data */
    if (version >= 1)
        get_tps(&in, own, m);
    if (version >= 2)
        m->generation = wire_get_i32(&in);
    if (!in.bad)
        return 0;
    m->n_topics = m->n_owned = 0;
    return PST_EINVAL;
}

void wire_member_done(wire_member *m)
{
    free(m->topics);
    free(m->owned);
    free(m->share);
}

/* ---- who reads what -------------------------------------------------------------------------------------------------------------------- */

static bool subscribes(const wire_member *m, wire_str topic)
{
    for (size_t i = 0; i < m->n_topics; i++)
        if (str_eq(m->topics[i], topic))
            return true;
    return false;
}

static void give(wire_member *m, wire_str topic, int32_t partition)
{
    m->share = pst_array_room(m->share, m->n_share, &m->share_cap, sizeof *m->share);
    m->share[m->n_share++] = (wire_tp){topic, partition};
}

/* Static members by the name that stays, so that a restart changes nothing. */
static int member_order(const void *a, const void *b)
{
    const wire_member *x = *(wire_member *const *)a, *y = *(wire_member *const *)b;
    if (x->instance.len && y->instance.len)
        return str_order(x->instance, y->instance);
    if (x->instance.len || y->instance.len)
        return x->instance.len ? -1 : 1;
    return str_order(x->id, y->id);
}

static wire_member **in_order(wire_member *members, size_t n)
{
    wire_member **order = pst_alloc((n + 1) * sizeof(void *));
    for (size_t i = 0; i < n; i++)
        order[i] = &members[i];
    if (n > 1)
        qsort(order, n, sizeof(void *), member_order);
    return order;
}

void wire_share_range(wire_member *members, size_t n, const wire_counted *topics, size_t n_topics)
{
    wire_member **order = in_order(members, n);
    for (size_t t = 0; t < n_topics; t++) {
        int32_t readers = 0, nth = 0, next = 0;
        for (size_t i = 0; i < n; i++)
            readers += subscribes(order[i], topics[t].topic);
        for (size_t i = 0; i < n; i++) {
            if (!subscribes(order[i], topics[t].topic))
                continue;
            int32_t take = topics[t].n / readers + (nth < topics[t].n % readers);
            for (int32_t k = 0; k < take; k++)
                give(order[i], topics[t].topic, next++);
            nth++;
        }
    }
    free(order);
}

/* ---- cooperative-sticky ------------------------------------------------------------------------------------------------------------------ */

typedef struct seat { /* a partition, who has it, and who gets it; -1 = nobody */
    wire_tp tp;
    int32_t had, gets;
    int32_t generation; /* of who had it */
} seat;

static seat *seats_of(const wire_counted *topics, size_t n_topics, size_t *ret_n)
{
    size_t n = 0, at = 0;
    for (size_t t = 0; t < n_topics; t++)
        n += topics[t].n > 0 ? (size_t)topics[t].n : 0;
    seat *seats = pst_alloc((n + 1) * sizeof *seats);
    for (size_t t = 0; t < n_topics; t++)
        for (int32_t p = 0; p < topics[t].n; p++)
            seats[at++] = (seat){.tp = {topics[t].topic, p}, .had = -1, .gets = -1};
    qsort(seats, n, sizeof *seats, tp_order); /* a seat begins with its partition */
    *ret_n = n;
    return seats;
}

/* Two that claim one: the later generation has it; of the same one neither is believed. */
static void claim(seat *s, int32_t who, int32_t generation)
{
    if (s->had == -1 || generation > s->generation) {
        s->had = who;
        s->generation = generation;
    } else if (generation == s->generation) {
        s->had = -2;
    }
}

static int32_t least_loaded(wire_member *const *order, size_t n, const size_t *load, wire_str topic)
{
    int32_t best = -1;
    for (size_t i = 0; i < n; i++)
        if (subscribes(order[i], topic) && (best < 0 || load[i] < load[best]))
            best = (int32_t)i;
    return best;
}

/* Nobody has two more than another who could have one of them. Each move makes it more even, so it ends. */
static void level(seat *seats, size_t n_seats, wire_member *const *order, size_t n, size_t *load)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < n_seats; i++) {
            seat *s = &seats[i];
            int32_t least = s->gets < 0 ? -1 : least_loaded(order, n, load, s->tp.topic);
            if (least < 0 || load[s->gets] <= load[least] + 1)
                continue;
            load[s->gets]--;
            load[least]++;
            s->gets = least;
            moved = true;
        }
    }
}

void wire_share_sticky(wire_member *members, size_t n, const wire_counted *topics, size_t n_topics)
{
    wire_member **order = in_order(members, n);
    size_t n_seats, *load = pst_alloc((n + 1) * sizeof *load);
    seat *seats = seats_of(topics, n_topics, &n_seats);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < order[i]->n_owned; k++) {
            seat *s = bsearch(&order[i]->owned[k], seats, n_seats, sizeof *seats, tp_order);
            if (s && subscribes(order[i], s->tp.topic))
                claim(s, (int32_t)i, order[i]->generation);
        }
    for (size_t i = 0; i < n_seats; i++)
        if (seats[i].had >= 0)
            load[seats[i].gets = seats[i].had]++;
    for (size_t i = 0; i < n_seats; i++)
        if (seats[i].gets < 0 && (seats[i].gets = least_loaded(order, n, load, seats[i].tp.topic)) >= 0)
            load[seats[i].gets]++;
    level(seats, n_seats, order, n, load);
    for (size_t i = 0; i < n_seats; i++) /* what another has still is his until he has given it back */
        if (seats[i].gets >= 0 && (seats[i].had < 0 || seats[i].had == seats[i].gets))
            give(order[seats[i].gets], seats[i].tp.topic, seats[i].tp.partition);
    free(seats);
    free(load);
    free(order);
}
