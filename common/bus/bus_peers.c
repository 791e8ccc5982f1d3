/* bus_peers.c - what the group's coordinator tells about its members, and the transactions of those that are gone.
 *
 * A member that is killed leaves a transaction open. Until the coordinator of transactions has timed it out (transaction.timeout.ms, and up to ten
 * seconds more) nobody reads beyond what it had written, and if offsets were in it, its partitions' heirs are not told where to begin. Whoever takes
 * its transactional id over ends it at once. So each offset that a member commits carries the id it was committed under (in its metadata). Whoever
 * is given a partition looks at the last committed offset of it before anything else, asks whether the group still has the member that wrote it, and if
 * not, takes its id over for a moment; on a thread of its own.
 *
 * That makes no harm when the judgement is wrong, as when the member was frozen, or comes back in this very moment: it is no member of the group, so
 * its round could not be committed any more; it is told that it was fenced, once, and goes on with a new producer. An id is only taken over if it
 * begins as those of this consumer's peers do: what stands in metadata may have been written by anybody who may commit. */
#include "common/bus/bus_admin.h"
#include "common/bus/bus_consumer.h"
#include "common/bus/bus_hand.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS    2000
#define INHERIT_MS 300     /* an answer that takes longer is one that is held back: see bus_check_peers */
#define PENDING_US 1000000 /* so long after a rebalance a partition has begun, or its offset is held back */
#define TAKE_MS    5000    /* init waits until the transaction has ended */
#define TIMEOUT_MS 10000   /* of a producer that never begins */

typedef struct errand { /* owned by the thread that runs it */
    pst_bus_conf *conf;
    char *group, *peers, *own;
    bus_places *pending; /* whose offsets may be held back; NULL = none */
    char *names[BUS_PEERS_MAX];
    size_t n;
} errand;

int bus_group_offsets(const pst_bus_conf *conf, const char *group, const bus_places *of, bool stable, bus_places **ret, pst_err *err)
{
    bus_admin a;
    /* With a group of its own: librdkafka (2.0.2 to 2.16, issue 5040) follows no pointer otherwise, where a coordinator answers that it is none. */
    int rc = bus_admin_open(&a, conf, false, group, LOOK_MS, err);
    if (!rc && bus_admin_is_embedded(&a)) {
        rc = pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_RETRY, "kafka", 0, "the in-memory broker does not tell");
    } else if (!rc) {
        char why[300] = "";
        bus_places *list = bus_places_copy(of);
        int code = a.link.lib->admin->group_offsets(a.link.h, group, stable, bus_admin_left_ms(&a, LOOK_MS), list, why, sizeof why);
        rc = bus_admin_said(&a, code, why, "cannot read the group's offsets", err);
        if (!rc && (code = bus_places_code(list)) != 0)
            rc = bus_err(err, conf, code, NULL, "cannot read the offsets of group %s", group);
        if (!rc && ret)
            *ret = list;
        else
            bus_places_free(list);
    }
    bus_admin_close(&a);
    return rc;
}

/* ---- who is there ------------------------------------------------------------------------------------------------------------------ */

/* A transactional id is a prefix, and the member's group.instance.id. */
static bool belongs(const char *transactional_id, const char *instance)
{
    size_t all = strlen(transactional_id), own = instance ? strlen(instance) : 0;
    return own && own <= all && !strcmp(transactional_id + all - own, instance) && (own == all || transactional_id[all - own - 1] == '.');
}

/* Calls fn with the instance id of each static member of the group. False: nobody answered. leaving: as in bus_admin. */
static bool each_instance(const pst_bus_conf *conf, const char *group, bool leaving, void (*fn)(void *arg, const char *instance), void *arg)
{
    bus_admin a;
    pst_err ignored = {0};
    bool answered = false;
    if (bus_admin_open(&a, conf, false, NULL, LOOK_MS, &ignored) == 0) {
        a.leaving = leaving;
        char why[300];
        bus_members members = {0};
        answered = a.link.lib->admin->group_members(a.link.h, group, bus_admin_left_ms(&a, LOOK_MS), &members, why, sizeof why) == 0;
        for (size_t i = 0; i < members.n; i++)
            fn(arg, members.instances[i]);
        bus_members_done(&members);
    }
    bus_admin_close(&a);
    return answered;
}

/* Strikes out those to whom this living member belongs. */
static void strike(void *arg, const char *instance)
{
    errand *w = arg;
    for (size_t i = w->n; i-- > 0;)
        if (belongs(w->names[i], instance)) {
            free(w->names[i]);
            w->names[i] = w->names[--w->n];
        }
}

typedef struct look_for {
    const char *instance;
    bool found;
} look_for;

static void compare(void *arg, const char *instance)
{
    look_for *l = arg;
    l->found |= !strcmp(l->instance, instance);
}

/* Whether a broker that tells has ever answered: the in-memory one never does. */
static bool has_coordinator(const pst_consumer *c)
{
    char *cluster = c->link.lib->common->cluster_id(c->link.h, LOOK_MS);
    bool reached = cluster != NULL;
    free(cluster);
    return reached && !bus_is_embedded(c->link, LOOK_MS);
}

bus_membership bus_peers_has_us(const pst_consumer *c)
{
    look_for l = {.instance = c->opts.instance_id};
    if (!l.instance || !has_coordinator(c))
        return BUS_NO_MEMBER;
    if (!each_instance(c->conf, c->group, true, compare, &l))
        return BUS_MEMBER_PERHAPS;
    return l.found ? BUS_MEMBER : BUS_NO_MEMBER;
}

/* ---- ending what they left --------------------------------------------------------------------------------------------------------- */

/* The names under which these offsets were committed are added, each once. */
static size_t add_names(const char *peers, const char *own, const bus_places *list, char **names, size_t n)
{
    for (size_t i = 0; i < list->n && n < BUS_PEERS_MAX; i++) {
        char *by = bus_note_by(&list->at[i]);
        bool no = !by || strncmp(by, peers, strlen(peers)) != 0 || !strcmp(by, own);
        for (size_t k = 0; !no && k < n; k++)
            no = !strcmp(names[k], by);
        if (no)
            free(by);
        else
            names[n++] = by;
    }
    return n;
}

static void take_over(const errand *w, const char *id)
{
    pst_producer *p = NULL;
    pst_err err = {0};
    int64_t begun = pst_mono_us();
    pst_producer_opts opts = {.transactional_id = id, .transaction_timeout_ms = TIMEOUT_MS, .linger_ms = 0};
    bus_said said = {0};
    if (pst_producer_new(w->conf, &opts, &p, &err) == 0)
        p->link.lib->producer->init(p->link.h, TAKE_MS, &said);
    if (said.code)
        bus_err(&err, w->conf, said.code, said.text, "cannot take it over");
    pst_producer_free(p);
    pst_log(PST_LOG_INFO, "bus", "event=transaction_ended id=%s group=%s after_ms=%lld why=\"its worker has left the group\"%s%s%s", id,
            w->group, (long long)((pst_mono_us() - begun) / 1000), err.code ? " error=\"" : "", err.text, err.code ? "\"" : "");
}

static void run_errand(void *arg)
{
    errand *w = arg;
    bus_places *last = NULL;
    pst_err held = {0}, ignored = {0};
    if (w->pending && bus_group_offsets(w->conf, w->group, w->pending, true, NULL, &held) < 0 &&
        bus_group_offsets(w->conf, w->group, w->pending, false, &last, &ignored) == 0)
        w->n = add_names(w->peers, w->own, last, w->names, w->n);
    if (last)
        bus_places_free(last);
    if (w->n && each_instance(w->conf, w->group, false, strike, w))
        for (size_t i = 0; i < w->n; i++)
            take_over(w, w->names[i]);
    for (size_t i = 0; i < w->n; i++)
        free(w->names[i]);
    if (w->pending)
        bus_places_free(w->pending);
    pst_bus_conf_free(w->conf);
    free(w->group);
    free(w->peers);
    free(w->own);
    free(w);
}

void bus_peers_inherit(pst_consumer *c, const bus_places *list)
{
    if (!c->signature || !list->n)
        return;
    bus_places *last = bus_places_copy(list);
    if (c->link.lib->common->committed(c->link.h, last, INHERIT_MS) == 0)
        c->n_heirlooms = add_names(c->opts.peers, c->signature, last, c->heirlooms, c->n_heirlooms);
    bus_places_free(last);
}

void bus_peers_end(pst_consumer *c, const bus_places *pending)
{
    if (!c->signature || !bus_hand_need(&c->peers_hand) || !bus_hand_wait(c->peers_hand, 0))
        return;
    errand *w = pst_alloc(sizeof *w);
    w->conf = pst_bus_conf_copy(c->conf);
    w->group = pst_strdup(c->group);
    w->peers = pst_strdup(c->opts.peers);
    w->own = pst_strdup(c->signature);
    w->pending = pending ? bus_places_copy(pending) : NULL;
    memcpy(w->names, c->heirlooms, sizeof w->names);
    w->n = c->n_heirlooms;
    c->n_heirlooms = 0;
    bus_hand_start(c->peers_hand, run_errand, w);
}

void bus_check_peers(pst_consumer *c)
{
    if (c->n_heirlooms)
        bus_peers_end(c, NULL);
    if (!c->signature || c->peers_epoch == c->epoch + 1)
        return;
    int64_t youngest = 0, now = pst_mono_us();
    for (size_t i = 0; i < c->n_parts; i++)
        youngest = c->parts[i].assigned_us > youngest ? c->parts[i].assigned_us : youngest;
    if (now - youngest < PENDING_US || (c->peers_hand && !bus_hand_wait(c->peers_hand, 0)))
        return;
    c->peers_epoch = c->epoch + 1;
    bus_places *list = bus_consumer_unbegun(c, now);
    if (list->n)
        bus_peers_end(c, list);
    bus_places_free(list);
}

void bus_peers_done(pst_consumer *c)
{
    bus_hand_free(c->peers_hand);
    for (size_t i = 0; i < c->n_heirlooms; i++)
        free(c->heirlooms[i]);
}
