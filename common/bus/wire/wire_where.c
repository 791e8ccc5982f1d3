/* wire_where.c - what a net knows of its cluster: brokers, topics that somebody asked for, coordinators, finalised features. Questions are answered at once from here; what is not
 * known, has proved wrong or is old is asked for by the next turn, one Metadata at a time for all topics that need it, any broker that answers. What
 * is asked again and again waits from retry.backoff.ms up to retry.backoff.max.ms in between.
 *
 * A leader of an older epoch than the one that is known does not replace it (KIP-320): a broker that is behind must not send us back. */
#include "common/bus/wire/wire_conn.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    ASK_MS = 10000,       /* a question waits so long for its broker, */
    ASK_DOWN_MS = 3000,   /* or so long for its connection: then another broker is asked */
    ASK_TOPICS = 1000,    /* a question */
    TOPIC_NAME_MAX = 249, /* Kafka's; a longer one is answered here */
    PROMPT_US = 1000000,  /* a connection that takes longer to come up is no better than one that was not tried */
};

static int backoff_next(const wire_conf *conf, int ms)
{
    ms = ms ? ms * 2 : conf->retry_backoff_ms;
    return ms > conf->retry_backoff_max_ms ? conf->retry_backoff_max_ms : ms;
}

/* ---- topics ------------------------------------------------------------------------------------------------------------------------- */

static wire_known *find_topic(const wire_net *net, const char *name)
{
    for (size_t i = 0; i < net->n_topics; i++) {
        if (!strcmp(net->topics[i]->t.name, name))
            return net->topics[i];
    }
    return NULL;
}

static void free_topic(wire_known *k)
{
    free((void *)k->t.name);
    free((void *)k->t.leader);
    free((void *)k->t.leader_epoch);
    free(k);
}

static wire_known *want_topic(wire_net *net, const char *name)
{
    wire_known *k = find_topic(net, name);
    if (!k) {
        k = pst_alloc(sizeof *k);
        k->t.name = pst_strdup(name);
        k->impossible = k->answered = strlen(name) > TOPIC_NAME_MAX;
        k->t.code = k->impossible ? BUS_ERR_TOPIC_EXCEPTION : 0;
        net->topics = pst_array_room(net->topics, net->n_topics, &net->topics_cap, sizeof *net->topics);
        net->topics[net->n_topics++] = k;
    }
    k->used_us = pst_mono_us();
    return k;
}

const wire_topic *wire_net_topic(wire_net *net, const char *name)
{
    wire_known *k = want_topic(net, name);
    return k->answered ? &k->t : NULL;
}

const wire_topic *wire_net_topic_by_id(wire_net *net, const uint8_t id[16])
{
    static const uint8_t none[16];
    if (!memcmp(id, none, 16))
        return NULL;
    for (size_t i = 0; i < net->n_topics; i++) {
        if (net->topics[i]->answered && !memcmp(net->topics[i]->t.id, id, 16))
            return &net->topics[i]->t;
    }
    return NULL;
}

void wire_net_forget_topic(wire_net *net, const char *name)
{
    for (size_t i = 0; i < net->n_topics; i++) {
        if (strcmp(net->topics[i]->t.name, name) != 0)
            continue;
        free_topic(net->topics[i]);
        net->topics[i] = net->topics[--net->n_topics];
        return;
    }
}

int32_t wire_net_leader(wire_net *net, const char *topic, int32_t partition)
{
    const wire_topic *t = wire_net_topic(net, topic);
    return t && partition >= 0 && partition < t->n ? t->leader[partition] : -1;
}

void wire_net_stale(wire_net *net, const char *topic)
{
    wire_known *k = find_topic(net, topic);
    if (k)
        k->stale = true;
}

/* ---- what the answer says --------------------------------------------------------------------------------------------------------------- */

static void keep_newer(const wire_topic *old, wire_meta_topic *m)
{
    static const uint8_t none[16];
    if (!memcmp(old->id, none, 16) || memcmp(old->id, m->id, 16) != 0)
        return; /* made anew under the same name, or nobody can tell: what is said now holds */
    for (int32_t i = 0; i < m->n && i < old->n; i++) {
        if (old->leader_epoch[i] > m->epoch[i]) {
            m->leader[i] = old->leader[i];
            m->epoch[i] = old->leader_epoch[i];
        }
    }
}

static void learn_topic(wire_net *net, wire_meta_topic *m, int64_t now)
{
    wire_known *k = m->name ? find_topic(net, m->name) : NULL;
    if (!k)
        return; /* not asked for, or forgotten meanwhile */
    bool leaderless = false;
    keep_newer(&k->t, m);
    free((void *)k->t.leader);
    free((void *)k->t.leader_epoch);
    memcpy(k->t.id, m->id, 16);
    k->t.code = m->code;
    k->t.n = m->code ? 0 : m->n;
    k->t.leader = m->leader;
    k->t.leader_epoch = m->epoch;
    k->t.known_us = now;
    for (int32_t i = 0; i < k->t.n; i++)
        leaderless |= m->leader[i] < 0;
    m->leader = m->epoch = NULL; /* moved */
    k->answered = true;
    k->stale = m->code || leaderless; /* look again, ever more seldom */
    if (!k->stale)
        k->backoff_ms = net->conf->retry_backoff_ms;
}

static void learn(wire_net *net, wire_metadata *m, int64_t now)
{
    if (m->n_brokers) {
        for (size_t i = 0; i < net->n_nodes; i++)
            net->nodes[i]->listed = net->nodes[i]->id < -1;
        for (size_t i = 0; i < m->n_brokers; i++) {
            const wire_broker *b = &m->brokers[i];
            wire_node *node = wire_node_put(net, b->id, b->host, b->port, b->rack);
            if (node)
                node->listed = true;
        }
        net->known_us = now;
        net->stale = false;
    }
    if (m->cluster_id) {
        if (net->cluster_id && strcmp(net->cluster_id, m->cluster_id) != 0)
            pst_log(PST_LOG_WARN, "bus", "event=cluster_changed from=%s to=%s", net->cluster_id, m->cluster_id);
        free(net->cluster_id);
        net->cluster_id = m->cluster_id;
        m->cluster_id = NULL;
    }
    for (size_t i = 0; i < m->n_topics; i++)
        learn_topic(net, &m->topics[i], now);
}

static void on_metadata(void *owner, wire_call *call, const wire_answer *a)
{
    wire_net *net = owner;
    wire_metadata m;
    wire_in in = a->body;
    net->asking = false;
    if (a->code)
        return; /* whoever is next is asked */
    if (wire_metadata_get(&in, a->version, &m) < 0) {
        wire_net_told_fault(net, BUS_ERR__TRANSPORT, "an answer to Metadata cannot be read");
        return;
    }
    learn(net, &m, pst_mono_us());
    wire_metadata_clear(&m);
}

/* ---- asking ------------------------------------------------------------------------------------------------------------------------------ */

/* When it is to be asked; INT64_MAX = not of itself. */
static int64_t topic_due(const wire_net *net, const wire_known *k)
{
    if (k->impossible)
        return INT64_MAX;
    if (!k->asked_us)
        return 0;
    int64_t again = k->asked_us + k->backoff_ms * 1000LL;
    if (!k->answered || k->stale)
        return again;
    if (net->conf->metadata_refresh_ms < 0)
        return INT64_MAX;
    return k->t.known_us + net->conf->metadata_refresh_ms * 1000LL;
}

static bool is_due(const wire_net *net, const wire_known *k, int64_t now)
{
    return now >= topic_due(net, k);
}

static void put_metadata(void *owner, wire_call *call, int16_t version, wire_out *out)
{
    wire_net *net = owner;
    const char *names[ASK_TOPICS];
    size_t n = 0;
    int64_t now = pst_mono_us();
    for (size_t i = 0; i < net->n_topics && n < ASK_TOPICS; i++) {
        wire_known *k = net->topics[i];
        if (!is_due(net, k, now))
            continue;
        names[n++] = k->t.name;
        k->asked_us = now;
        k->backoff_ms = backoff_next(net->conf, k->backoff_ms);
    }
    wire_metadata_put(version, names, n, net->conf->auto_create, out);
}

/* When the brokers themselves are asked for again, which those that are known already answer. */
static int64_t brokers_due(const wire_net *net)
{
    int64_t again = net->asked_us + net->conf->retry_backoff_max_ms * 1000LL;
    if (net->stale)
        return again;
    int64_t old = net->conf->metadata_refresh_ms < 0 ? INT64_MAX : net->known_us + net->conf->metadata_refresh_ms * 1000LL;
    return old > again ? old : again;
}

static bool metadata_due(const wire_net *net, int64_t now)
{
    if (net->asking)
        return false;
    if (!net->known_us)
        return !net->asked_us || now >= net->asked_us + net->conf->retry_backoff_ms * 1000LL;
    for (size_t i = 0; i < net->n_topics; i++) {
        if (is_due(net, net->topics[i], now))
            return true;
    }
    return now >= brokers_due(net);
}

static void forget_unused(wire_net *net, int64_t now)
{
    for (size_t i = net->n_topics; i-- > 0;) {
        wire_known *k = net->topics[i];
        if (now - k->used_us < net->conf->metadata_max_age_ms * 1000LL)
            continue;
        free_topic(k);
        net->topics[i] = net->topics[--net->n_topics];
    }
}

static int ask_ms(wire_net *net, int32_t node)
{
    int ms = wire_net_version(net, node, &wire_api_metadata) < 0 ? ASK_DOWN_MS : ASK_MS;
    return net->conf->socket_timeout_ms < ms ? net->conf->socket_timeout_ms : ms;
}

/* The lower the sooner. */
static int64_t rank(const wire_conn *c, int64_t now)
{
    if (!c || (c->state == WIRE_DOWN && c->retry_us <= now))
        return 0;
    if (c->state == WIRE_UP)
        return -2;
    if (c->state == WIRE_DOWN)
        return c->retry_us;
    return now - (c->setup_end_us - c->net->conf->setup_timeout_ms * 1000LL) < PROMPT_US ? -1 : now;
}

int32_t wire_net_any(wire_net *net)
{
    const wire_node *best = NULL;
    int64_t now = pst_mono_us(), best_at = INT64_MAX;
    for (size_t i = 0; i < net->n_nodes; i++) {
        const wire_node *node = net->nodes[(net->next_any + i) % net->n_nodes];
        const wire_conn *c = node->lanes[0];
        if (!node->listed)
            continue;
        /* Up first, then whoever may be tried; who was named by the user when all else fails (KIP-899). */
        int64_t at = rank(c, now);
        if (node->id < -1 && net->known_us)
            at = at < 1 ? 1 : at + 1;
        if (at < best_at) {
            best = node;
            best_at = at;
        }
    }
    return best ? best->id : -1;
}

static void put_coordinator(void *owner, wire_call *call, int16_t version, wire_out *out)
{
    const wire_coordinator *k = owner;
    wire_coordinator_put(version, k->kind, k->key, out);
}

static void on_coordinator(void *owner, wire_call *call, const wire_answer *a);

static int64_t coordinator_due(const wire_coordinator *k)
{
    if (k->asking || (k->node >= 0 && !k->stale))
        return INT64_MAX;
    return k->asked_us ? k->asked_us + k->backoff_ms * 1000LL : 0;
}

void wire_where_ask(wire_net *net, int64_t now)
{
    if (net->fatal)
        return;
    forget_unused(net, now);
    if (metadata_due(net, now)) {
        net->asking = true;
        net->asked_us = now;
        net->next_any++;
        int32_t node = wire_net_any(net);
        wire_net_call(net, node, &wire_api_metadata, ask_ms(net, node), put_metadata, on_metadata, net);
    }
    for (size_t i = 0; i < net->n_coordinators; i++) {
        wire_coordinator *k = net->coordinators[i];
        if (!net->known_us || now < coordinator_due(k))
            continue;
        k->asking = true;
        k->asked_us = now;
        k->backoff_ms = backoff_next(net->conf, k->backoff_ms);
        int32_t node = wire_net_any(net);
        wire_net_call(net, node, &wire_api_find_coordinator, ask_ms(net, node), put_coordinator, on_coordinator, k);
    }
}

int64_t wire_where_next(const wire_net *net, int64_t now)
{
    int64_t next = INT64_MAX;
    for (size_t i = 0; i < net->n_coordinators; i++) {
        int64_t at = net->known_us ? coordinator_due(net->coordinators[i]) : INT64_MAX;
        next = at < next ? at : next;
    }
    if (net->asking || net->fatal)
        return net->fatal ? INT64_MAX : next;
    if (!net->known_us) {
        int64_t at = net->asked_us + net->conf->retry_backoff_ms * 1000LL;
        next = at < next ? at : next;
    } else {
        int64_t at = brokers_due(net);
        next = at < next ? at : next;
    }
    for (size_t i = 0; i < net->n_topics; i++) {
        int64_t at = topic_due(net, net->topics[i]);
        next = at < next ? at : next;
    }
    return next < now ? now : next;
}

/* ---- coordinators -------------------------------------------------------------------------------------------------------------------------- */

static wire_coordinator *find_coordinator(const wire_net *net, wire_coordinator_kind kind, const char *key)
{
    for (size_t i = 0; i < net->n_coordinators; i++) {
        if (net->coordinators[i]->kind == kind && !strcmp(net->coordinators[i]->key, key))
            return net->coordinators[i];
    }
    return NULL;
}

static void on_coordinator(void *owner, wire_call *call, const wire_answer *a)
{
    wire_coordinator *k = owner;
    wire_net *net = call->net;
    wire_found f;
    wire_in in = a->body;
    k->asking = false;
    if (a->code)
        return;
    if (wire_coordinator_get(&in, a->version, k->key, &f) < 0) {
        wire_net_told_fault(net, BUS_ERR__TRANSPORT, "an answer to FindCoordinator cannot be read");
        return;
    }
    k->code = f.code;
    if (!f.code && wire_node_put(net, f.at.id, f.at.host, f.at.port, NULL)) {
        k->node = f.at.id;
        k->stale = false;
        k->backoff_ms = 0;
    } else {
        k->node = -1;
    }
    wire_found_clear(&f);
}

int32_t wire_net_coordinator(wire_net *net, wire_coordinator_kind kind, const char *key, int *ret_code)
{
    wire_coordinator *k = find_coordinator(net, kind, key);
    if (!k) {
        k = pst_alloc(sizeof *k);
        k->kind = kind;
        k->key = pst_strdup(key);
        k->node = -1;
        net->coordinators = pst_array_room(net->coordinators, net->n_coordinators, &net->coordinators_cap, sizeof *net->coordinators);
        net->coordinators[net->n_coordinators++] = k;
    }
    if (ret_code)
        *ret_code = k->code;
    return k->stale ? -1 : k->node;
}

void wire_net_coordinator_stale(wire_net *net, wire_coordinator_kind kind, const char *key)
{
    wire_coordinator *k = find_coordinator(net, kind, key);
    if (k)
        k->stale = true;
}

/* ---- the rest ------------------------------------------------------------------------------------------------------------------------------- */

const char *wire_net_cluster_id(const wire_net *net)
{
    return net->cluster_id;
}

int16_t wire_net_version(wire_net *net, int32_t node, const wire_api *api)
{
    const wire_node *n = wire_node_find(net, node);
    for (int l = 0; n && l < WIRE_LANES; l++) {
        if (n->lanes[l] && n->lanes[l]->state == WIRE_UP)
            return wire_versions_best(&n->versions, api);
    }
    return -1;
}

int wire_net_feature(const wire_net *net, const char *name)
{
    for (size_t i = 0; i < net->n_features; i++) {
        if (!strcmp(net->features[i].name, name))
            return net->features[i].level;
    }
    return net->features_known ? 0 : -1;
}

void wire_where_learn_features(wire_net *net, const wire_versions *v)
{
    if (net->features_known && v->epoch < net->features_epoch)
        return; /* of a broker that is behind */
    net->features_known = true;
    net->features_epoch = v->epoch;
    net->n_features = v->n_features;
    memcpy(net->features, v->features, sizeof net->features);
}

void wire_where_free(wire_net *net)
{
    for (size_t i = 0; i < net->n_topics; i++)
        free_topic(net->topics[i]);
    for (size_t i = 0; i < net->n_coordinators; i++) {
        free(net->coordinators[i]->key);
        free(net->coordinators[i]);
    }
    free(net->topics);
    free(net->coordinators);
    free(net->cluster_id);
}
