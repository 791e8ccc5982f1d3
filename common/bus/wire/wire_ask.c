/* wire_ask.c - questions: where offsets are (ListOffsets, versions 4 to 6), what a group has committed (OffsetFetch, 7 to 9), who leads a topic.
 *
 * OffsetFetch 7 has require_stable (KIP-447): asked so, a coordinator answers UNSTABLE_OFFSET_COMMIT while offsets of the partition lie in an open transaction,
 * and a reader that is to go on behind that transaction waits instead of reading twice; 8 and 9 ask for several groups at once (KIP-709), and we ask for
 * one. A reader of uncommitted records does not wait.
 *
 * What bus_common_ops asks turns the net until the answer is there. What passes (a leader that moves) is asked again within the caller's time. */
#include "common/bus/wire/wire_ask.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/stop.h"

#include <stdlib.h>
#include <string.h>

#define SLICE_MS 100
#define AGAIN_US 50000

static const wire_api list_api = {.key = 2, .min = 4, .max = 6, .flexible = 6, .name = "ListOffsets"};
static const wire_api committed_api = {.key = 9, .min = 7, .max = 9, .flexible = 6, .name = "OffsetFetch"};

/* ---- one question -------------------------------------------------------------------------------------------------------------------- */

wire_ask *wire_ask_new(const wire_handle *h, const char *group, void (*answered)(void *owner, wire_ask *ask), void *owner)
{
    wire_ask *ask = pst_alloc(sizeof *ask);
    *ask = (wire_ask){.net = h->net, .group = group, .read_uncommitted = h->read_uncommitted, .answered = answered, .owner = owner};
    return ask;
}

wire_asked_place *wire_ask_add(wire_ask *ask, const char *topic, int32_t partition, int64_t offset, void *arg)
{
    ask->at = pst_array_room(ask->at, ask->n, &ask->cap, sizeof *ask->at);
    wire_asked_place *p = &ask->at[ask->n++];
    *p = (wire_asked_place){.topic = topic, .partition = partition, .offset = offset, .code = BUS_ERR__WAIT_CACHE, .arg = arg};
    return p;
}

void wire_ask_free(wire_ask *ask)
{
    if (!ask)
        return;
    if (ask->call)
        wire_call_forget(ask->call);
    for (size_t i = 0; i < ask->n; i++)
        free(ask->at[i].note);
    free(ask->at);
    free(ask);
}

/* How many from here on are of one topic. */
static size_t topic_run(const wire_ask *ask, size_t from)
{
    size_t n = 1;
    while (from + n < ask->n && !strcmp(ask->at[from + n].topic, ask->at[from].topic))
        n++;
    return n;
}

static size_t topic_runs(const wire_ask *ask)
{
    size_t runs = 0;
    for (size_t i = 0; i < ask->n; i += topic_run(ask, i))
        runs++;
    return runs;
}

static void put_list(const wire_ask *ask, wire_out *o)
{
    wire_put_i32(o, -1); /* we are no replica */
    wire_put_i8(o, ask->read_uncommitted ? 0 : 1);
    wire_put_count(o, topic_runs(ask));
    for (size_t i = 0; i < ask->n;) {
        size_t n = topic_run(ask, i);
        wire_put_str(o, ask->at[i].topic);
        wire_put_count(o, n);
        for (size_t end = i + n; i < end; i++) {
            wire_put_i32(o, ask->at[i].partition);
            wire_put_i32(o, -1); /* whatever its leader's epoch */
            wire_put_i64(o, ask->at[i].offset);
            wire_put_tags(o);
        }
        wire_put_tags(o);
    }
    wire_put_tags(o);
}

static void put_topics(const wire_ask *ask, wire_out *o)
{
    wire_put_count(o, topic_runs(ask));
    for (size_t i = 0; i < ask->n;) {
        size_t n = topic_run(ask, i);
        wire_put_str(o, ask->at[i].topic);
        wire_put_count(o, n);
        for (size_t end = i + n; i < end; i++)
            wire_put_i32(o, ask->at[i].partition);
        wire_put_tags(o);
    }
}

static void put_committed(const wire_ask *ask, int16_t version, wire_out *o)
{
    if (version >= 8)
        wire_put_count(o, 1);
    wire_put_str(o, ask->group);
    if (version >= 9) { /* as somebody who is no member: those of a KIP-848 group would be fenced by their epoch */
        wire_put_str(o, NULL);
        wire_put_i32(o, -1);
    }
    put_topics(ask, o);
    if (version >= 8)
        wire_put_tags(o);
    wire_put_bool(o, !ask->read_uncommitted);
    wire_put_tags(o);
}

static void put_ask(void *owner, wire_call *call, int16_t version, wire_out *o)
{
    const wire_ask *ask = owner;
    if (ask->group)
        put_committed(ask, version, o);
    else
        put_list(ask, o);
}

static wire_asked_place *find_place(wire_ask *ask, wire_str topic, int32_t partition)
{
    for (size_t i = 0; i < ask->n; i++)
        if (ask->at[i].partition == partition && wire_str_is(topic, ask->at[i].topic))
            return &ask->at[i];
    return NULL;
}

static void get_list_part(wire_in *in, wire_ask *ask, wire_str topic)
{
    int32_t partition = wire_get_i32(in);
    int code = wire_get_i16(in);
    wire_get_i64(in); /* time */
    int64_t offset = wire_get_i64(in);
    wire_get_i32(in); /* leader epoch */
    wire_get_tags(in);
    wire_asked_place *p = in->bad ? NULL : find_place(ask, topic, partition);
    if (p) {
        p->code = code;
        p->offset = offset < 0 ? -1 : offset;
    }
}

static void get_committed_part(wire_in *in, wire_ask *ask, wire_str topic)
{
    int32_t partition = wire_get_i32(in);
    int64_t offset = wire_get_i64(in);
    wire_get_i32(in); /* leader epoch */
    wire_str note = wire_get_str(in);
    int code = wire_get_i16(in);
    wire_get_tags(in);
    wire_asked_place *p = in->bad ? NULL : find_place(ask, topic, partition);
    if (!p)
        return;
    p->code = code;
    p->offset = offset < 0 ? -1 : offset;
    free(p->note);
    p->note = note.at && note.len ? pst_strndup(note.at, note.len) : NULL;
}

static void get_topics(wire_in *in, wire_ask *ask)
{
    size_t topics = wire_get_count(in, 3, NULL);
    for (size_t t = 0; t < topics && !in->bad; t++) {
        wire_str topic = wire_get_str(in);
        size_t parts = wire_get_count(in, 16, NULL);
        for (size_t i = 0; i < parts && !in->bad; i++) {
            if (ask->group)
                get_committed_part(in, ask, topic);
            else
                get_list_part(in, ask, topic);
        }
        wire_get_tags(in);
    }
}

static int get_answer(wire_ask *ask, const wire_answer *a)
{
    wire_in in = a->body;
    int code = 0;
    wire_get_i32(&in); /* throttled */
    size_t groups = ask->group && a->version >= 8 ? wire_get_count(&in, 5, NULL) : 1;
    for (size_t g = 0; g < groups && !in.bad; g++) {
        if (ask->group && a->version >= 8)
            wire_get_str(&in);
        get_topics(&in, ask);
        if (ask->group)
            code = wire_get_i16(&in);
        if (ask->group && a->version >= 8)
            wire_get_tags(&in);
    }
    wire_get_tags(&in);
    return in.bad ? BUS_ERR__TRANSPORT : code;
}

static void on_answer(void *owner, wire_call *call, const wire_answer *a)
{
    wire_ask *ask = owner;
    ask->call = NULL;
    ask->code = a->code ? a->code : get_answer(ask, a);
    ask->done = true;
    if (ask->answered)
        ask->answered(ask->owner, ask);
}

void wire_ask_send(wire_ask *ask, int32_t node, int timeout_ms)
{
    ask->call = wire_net_call(ask->net, node, ask->group ? &committed_api : &list_api, timeout_ms, put_ask, on_answer, ask);
}

/* ---- waiting for answers ----------------------------------------------------------------------------------------------------------------- */

bool wire_ask_turn(wire_handle *h, int64_t until_us)
{
    int64_t left = until_us - pst_mono_us();
    if (left <= 0 || pst_stop_forced() || wire_net_fatal(h->net, NULL, 0))
        return false;
    if (h->life && h->life->work)
        h->life->work(h);
    wire_net_turn(h->net, left < SLICE_MS * 1000 ? (int)(left + 999) / 1000 : SLICE_MS);
    return true;
}

static int why_not(wire_handle *h)
{
    int code = wire_net_fatal(h->net, NULL, 0);
    return code ? code : BUS_ERR__TIMED_OUT;
}

int wire_ask_topic(wire_handle *h, const char *name, int timeout_ms, bus_topic *ret)
{
    int64_t begun = pst_mono_us(), until = begun + timeout_ms * 1000LL;
    const wire_topic *t = wire_net_topic(h->net, name);
    if (t)
        wire_net_stale(h->net, name); /* what was learnt before may be old */
    while (!(t = wire_net_topic(h->net, name)) || t->known_us < begun)
        if (!wire_ask_turn(h, until))
            return why_not(h);
    *ret = (bus_topic){.code = t->code, .partitions = t->n};
    for (int32_t i = 0; i < t->n; i++)
        ret->lacks_leader |= t->leader[i] < 0;
    return 0;
}

char *wire_ask_cluster_id(wire_handle *h, int timeout_ms)
{
    int64_t until = pst_mono_us() + timeout_ms * 1000LL;
    const char *id;
    wire_net_any(h->net);
    while (!(id = wire_net_cluster_id(h->net)))
        if (!wire_ask_turn(h, until))
            return NULL;
    return pst_strdup(id);
}

/* ---- ListOffsets, for as long as it takes -------------------------------------------------------------------------------------------------- */

typedef struct question { /* a place that is asked for, and of whom */
    int64_t time;
    int32_t node; /* -1 = not sent */
    int code;
    bool known;
} question;

static void topic_is_bad(wire_handle *h, const bus_place *p, question *q)
{
    const wire_topic *t = wire_net_topic(h->net, p->topic);
    if (!t)
        return;
    int code = t->code ? t->code : p->partition >= t->n || p->partition < 0 ? BUS_ERR__UNKNOWN_PARTITION : 0;
    if (code && !wire_is_passing(code)) {
        q->code = code;
        q->known = true;
    } else {
        q->code = code ? code : BUS_ERR_LEADER_NOT_AVAILABLE;
        wire_net_stale(h->net, p->topic);
    }
}

/* One ask for each broker that leads any of them; NULL = none can be sent. */
static wire_ask *next_ask(wire_handle *h, bus_places *list, question *q)
{
    wire_ask *ask = NULL;
    int32_t node = -1;
    for (size_t i = 0; i < list->n; i++) {
        if (q[i].known || q[i].node >= 0)
            continue;
        const bus_place *p = &list->at[i];
        int32_t leads = wire_net_leader(h->net, p->topic, p->partition);
        if (leads < 0) {
            topic_is_bad(h, p, &q[i]);
            continue;
        }
        if (node >= 0 && leads != node)
            continue;
        node = leads;
        if (!ask)
            ask = wire_ask_new(h, NULL, NULL, NULL);
        wire_ask_add(ask, p->topic, p->partition, q[i].time, (void *)i);
        q[i].node = node;
    }
    return ask;
}

static void take_ask(wire_handle *h, bus_places *list, question *q, const wire_ask *ask)
{
    for (size_t i = 0; i < ask->n; i++) {
        size_t at = (size_t)ask->at[i].arg;
        int code = ask->code ? ask->code : ask->at[i].code;
        q[at].node = -1;
        q[at].code = code;
        q[at].known = !wire_is_passing(code);
        if (!code)
            list->at[at].offset = ask->at[i].offset;
        else if (!q[at].known)
            wire_net_stale(h->net, list->at[at].topic);
    }
}

static bool all_known(const question *q, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!q[i].known)
            return false;
    return true;
}

#define ASKS_MAX 64 /* brokers that are asked at the same time */

int wire_ask_offsets(wire_handle *h, bus_places *list, int timeout_ms)
{
    int64_t until = pst_mono_us() + timeout_ms * 1000LL, again = 0;
    question *q = pst_alloc((list->n + 1) * sizeof *q);
    wire_ask *asks[ASKS_MAX];
    size_t n = 0;
    int code = 0;
    for (size_t i = 0; i < list->n; i++)
        q[i] = (question){.time = list->at[i].offset, .node = -1};
    while (!all_known(q, list->n)) {
        for (wire_ask *ask; pst_mono_us() >= again && n < ASKS_MAX && (ask = next_ask(h, list, q)); n++) {
            asks[n] = ask;
            wire_ask_send(ask, q[(size_t)ask->at[0].arg].node, timeout_ms);
        }
        for (size_t i = 0; i < n;) {
            if (!asks[i]->done) {
                i++;
                continue;
            }
            take_ask(h, list, q, asks[i]);
            wire_ask_free(asks[i]);
            asks[i] = asks[--n];
            again = pst_mono_us() + AGAIN_US;
        }
        if (all_known(q, list->n))
            break;
        if (!wire_ask_turn(h, until)) {
            code = why_not(h);
            break;
        }
    }
    for (size_t i = 0; i < list->n && code == BUS_ERR__TIMED_OUT; i++)
        if (!q[i].known && q[i].code) /* what it waited for says more */
            code = q[i].code;
    for (size_t i = 0; i < n; i++)
        wire_ask_free(asks[i]);
    for (size_t i = 0; i < list->n; i++)
        list->at[i].code = q[i].known || q[i].code ? q[i].code : code;
    free(q);
    return code;
}

int wire_ask_watermarks(wire_handle *h, const char *topic, int32_t partition, int timeout_ms, int64_t *ret_low, int64_t *ret_high)
{
    int64_t until = pst_mono_us() + timeout_ms * 1000LL, *ret[] = {ret_low, ret_high};
    const int64_t at[] = {PST_OFFSET_BEGINNING, PST_OFFSET_END};
    for (int i = 0; i < 2; i++) {
        bus_place one = {.topic = (char *)topic, .partition = partition, .offset = at[i]};
        bus_places list = {.at = &one, .n = 1, .cap = 1};
        int64_t left = (until - pst_mono_us()) / 1000;
        int code = wire_ask_offsets(h, &list, left > 0 ? (int)left : 0);
        if (code || one.code)
            return code ? code : one.code;
        *ret[i] = one.offset;
    }
    return 0;
}

/* ---- OffsetFetch --------------------------------------------------------------------------------------------------------------------------- */

static int place_order(const void *a, const void *b)
{
    const bus_place *x = *(bus_place *const *)a, *y = *(bus_place *const *)b;
    int topics = strcmp(x->topic, y->topic);
    return topics ? topics : (x->partition > y->partition) - (x->partition < y->partition);
}

static wire_ask *ask_all(wire_handle *h, bus_places *list)
{
    bus_place **order = pst_alloc((list->n + 1) * sizeof(void *));
    for (size_t i = 0; i < list->n; i++)
        order[i] = &list->at[i];
    if (list->n)
        qsort(order, list->n, sizeof(void *), place_order);
    wire_ask *ask = wire_ask_new(h, h->group, NULL, NULL);
    for (size_t i = 0; i < list->n; i++)
        wire_ask_add(ask, order[i]->topic, order[i]->partition, -1, order[i]);
    free(order);
    return ask;
}

static int committed_once(wire_handle *h, bus_places *list, int64_t until)
{
    int32_t node;
    int refused = 0;
    while ((node = wire_net_coordinator(h->net, WIRE_GROUP, h->group, &refused)) < 0) {
        if (refused && !wire_is_passing(refused))
            return refused;
        if (!wire_ask_turn(h, until))
            return wire_net_fatal(h->net, NULL, 0) ? why_not(h) : BUS_ERR__WAIT_COORD;
    }
    int64_t left_ms = (until - pst_mono_us()) / 1000;
    wire_ask *ask = ask_all(h, list);
    wire_ask_send(ask, node, left_ms > 1 ? (int)left_ms : 1);
    while (!ask->done && wire_ask_turn(h, until))
        ;
    int code = ask->done ? ask->code : why_not(h);
    for (size_t i = 0; i < ask->n && !code; i++) {
        bus_place *p = ask->at[i].arg;
        p->code = ask->at[i].code;
        p->offset = ask->at[i].offset < 0 ? BUS_OFFSET_NONE : ask->at[i].offset;
        free(p->note);
        p->note = ask->at[i].note;
        ask->at[i].note = NULL;
    }
    wire_ask_free(ask);
    if (wire_is_passing(code))
        wire_net_coordinator_stale(h->net, WIRE_GROUP, h->group);
    return code;
}

int wire_ask_committed(wire_handle *h, bus_places *list, int timeout_ms)
{
    if (!h->group)
        return BUS_ERR__STATE;
    int64_t until = pst_mono_us() + timeout_ms * 1000LL, again = 0;
    for (;;) {
        int code = committed_once(h, list, until);
        if (!wire_is_passing(code) || pst_mono_us() >= until)
            return code;
        for (again = pst_mono_us() + AGAIN_US; pst_mono_us() < again;)
            if (!wire_ask_turn(h, again < until ? again : until))
                break;
        if (pst_mono_us() >= until || pst_stop_forced() || wire_net_fatal(h->net, NULL, 0))
            return code;
    }
}
