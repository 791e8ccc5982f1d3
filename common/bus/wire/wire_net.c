/* wire_net.c - turns: whatever is due is done, then poll(2) waits for the first thing to happen. poll and not epoll: a client has a handful of connections, the list is made anew
 * in less time than the call takes, and no registration can be forgotten. Nothing here has a thread; the resolver has one, for it is the only thing
 * that cannot be asked not to wait.
 *
 * Callbacks may turn the net again: a connection that has ended is freed when the outermost turn is over. */
#include "common/bus/wire/wire_conn.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/stop.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LOOK_MS = 100, DEFAULT_PORT = 9092 }; /* how often a wait looks whether the stop was forced */

/* ---- nodes -------------------------------------------------------------------------------------------------------------------------- */

wire_node *wire_node_find(wire_net *net, int32_t id)
{
    for (size_t i = 0; i < net->n_nodes; i++) {
        if (net->nodes[i]->id == id)
            return net->nodes[i];
    }
    return NULL;
}

static void end_lanes(wire_node *node)
{
    for (int i = 0; i < WIRE_LANES; i++) {
        wire_conn *c = node->lanes[i];
        if (!c)
            continue;
        wire_conn_bury(c);
        if (c->state != WIRE_DOWN)
            wire_conn_fail(c, 0, "the broker has another address now");
    }
}

wire_node *wire_node_put(wire_net *net, int32_t id, const char *host, int port, const char *rack)
{
    wire_node *node = wire_node_find(net, id);
    if (!node) {
        if (net->n_nodes == WIRE_NODES)
            return NULL;
        node = pst_alloc(sizeof *node);
        node->id = id;
        net->nodes = pst_array_room(net->nodes, net->n_nodes, &net->nodes_cap, sizeof *net->nodes);
        net->nodes[net->n_nodes++] = node;
    }
    bool moved = node->host && (strcmp(node->host, host) != 0 || node->port != port);
    if (!node->host || moved) {
        free(node->host);
        node->host = pst_strdup(host);
        node->port = port;
        node->versions_known = false;
    }
    char *of = pst_strdup(rack);
    free(node->rack);
    node->rack = of;
    if (moved)
        end_lanes(node);
    return node;
}

/* NULL, or how this server is to be spoken to other than security.protocol says: the wish of a name that asks for TLS is not left aside. */
static const char *other_protocol(const char *text, int security)
{
    static const char *const names[] = {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"};
    const char *proto = strstr(text, "://");
    size_t len = proto ? (size_t)(proto - text) : 0;
    return !proto || (strlen(names[security]) == len && !strncasecmp(text, names[security], len)) ? NULL : names[security];
}

static bool parse_server(const char *text, char *host, size_t size, int *ret_port)
{
    const char *proto = strstr(text, "://");
    if (proto)
        text = proto + 3;
    const char *end, *port = NULL;
    if (*text == '[') {
        end = strchr(++text, ']');
        if (!end || (end[1] && end[1] != ':'))
            return false;
        port = end[1] ? end + 2 : NULL;
    } else {
        const char *colon = strrchr(text, ':');
        bool bare_v6 = colon && memchr(text, ':', (size_t)(colon - text));
        end = colon && !bare_v6 ? colon : text + strlen(text);
        port = colon && !bare_v6 ? colon + 1 : NULL;
    }
    size_t len = (size_t)(end - text);
    if (!len || len >= size || len > 255)
        return false;
    memcpy(host, text, len);
    host[len] = 0;
    char *rest = NULL;
    long n = port ? strtol(port, &rest, 10) : DEFAULT_PORT;
    *ret_port = (int)n;
    return n > 0 && n < 65536 && (!port || (rest != port && !*rest));
}

static int put_servers(wire_net *net, pst_err *err)
{
    char *list = pst_strdup(net->conf->bootstrap), *save = NULL;
    int32_t id = -2;
    int rc = 0;
    for (char *one = strtok_r(list, ", ", &save); one && rc >= 0; one = strtok_r(NULL, ", ", &save)) {
        char host[256];
        int port;
        const char *is = other_protocol(one, net->conf->security);
        if (is)
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                             "bootstrap.servers: \"%.200s\" names another protocol than security.protocol, which says %s", one, is);
        else if (!parse_server(one, host, sizeof host, &port))
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "bootstrap.servers: \"%.200s\" is not HOST:PORT", one);
        else
            wire_node_put(net, id--, host, port, NULL)->listed = true;
    }
    if (rc >= 0 && id == -2)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "bootstrap.servers names no broker");
    free(list);
    return rc;
}

/* ---- life --------------------------------------------------------------------------------------------------------------------------- */

int wire_net_open(const wire_conf *conf, const bus_listener *to, wire_net **ret, pst_err *err)
{
    wire_net *net = pst_alloc(sizeof *net);
    uint32_t r;
    pst_random(&r, sizeof r);
    net->conf = conf;
    net->to = *to;
    net->features_epoch = -1;
    net->next_any = r;
    int rc = put_servers(net, err);
    bool tls = conf->security == WIRE_TLS || conf->security == WIRE_SASL_TLS, sasl = conf->security >= WIRE_SASL_PLAINTEXT;
    if (rc >= 0 && tls)
        rc = wire_tls_ctx_new(conf, &net->tls, err);
    if (rc >= 0 && sasl)
        rc = wire_sasl_open(conf, err);
    if (rc < 0) {
        wire_net_free(net);
        return rc;
    }
    *ret = net;
    return 0;
}

static void free_graves(wire_net *net)
{
    for (size_t i = 0; i < net->n_graves; i++)
        wire_conn_free(net->graves[i]);
    net->n_graves = 0;
}

void wire_net_free(wire_net *net)
{
    if (!net)
        return;
    PST_ASSERT(!net->depth);
    for (size_t i = 0; i < net->n_nodes; i++) {
        wire_node *node = net->nodes[i];
        for (int l = 0; l < WIRE_LANES; l++)
            wire_conn_free(node->lanes[l]);
        free(node->host);
        free(node->rack);
        free(node);
    }
    free(net->nodes);
    free_graves(net);
    free(net->graves);
    wire_calls_forget_all(&net->waiting);
    wire_where_free(net);
    wire_tls_ctx_free(net->tls);
    free(net->polled);
    free(net->polled_conns);
    pst_buf_done(&net->scratch);
    free(net);
}

int wire_net_fatal(const wire_net *net, char *text, size_t size)
{
    if (net->fatal && size)
        snprintf(text, size, "%s", net->fatal_text);
    return net->fatal;
}

void wire_net_told_fault(wire_net *net, int code, const char *reason)
{
    if (net->to.fault)
        net->to.fault(net->to.owner, code, reason);
}

/* Said once, until one of them is up again. */
void wire_net_check_down(wire_net *net)
{
    int tried = 0, failing = 0, up = 0;
    for (size_t i = 0; i < net->n_nodes; i++) {
        const wire_node *node = net->nodes[i];
        for (int l = 0; l < WIRE_LANES; l++) {
            const wire_conn *c = node->lanes[l];
            up += c && (c->state == WIRE_UP || c->logged_in);
        }
        const wire_conn *c = node->lanes[0];
        if (!node->listed)
            continue;
        tried++;
        failing += c && c->failing;
    }
    if (up || failing < tried || net->told_down)
        return;
    char text[80];
    net->told_down = true;
    snprintf(text, sizeof text, "%d/%d brokers are down", failing, tried);
    wire_net_told_fault(net, BUS_ERR__ALL_BROKERS_DOWN, text);
}

/* ---- turns --------------------------------------------------------------------------------------------------------------------------- */

typedef struct polled {
    struct pollfd *fds;
    wire_conn **conns;
    size_t n, cap_fds, cap_conns;
} polled;

static void do_due(wire_net *net)
{
    int64_t now = pst_mono_us();
    wire_where_ask(net, now);
    wire_calls_dispatch(net, now);
    for (size_t i = 0; i < net->n_nodes; i++) {
        for (int l = 0; l < WIRE_LANES; l++) {
            wire_conn *c = i < net->n_nodes ? net->nodes[i]->lanes[l] : NULL;
            if (!c)
                continue;
            wire_conn_flush(c);
            if (now >= wire_conn_next(c))
                wire_conn_on_time(c, now);
        }
    }
}

/* The list for poll, and until when to wait at most. */
static int64_t collect(wire_net *net, polled *p, int64_t end)
{
    int64_t now = pst_mono_us(), next = wire_calls_next(net), where = wire_where_next(net, now);
    p->n = 0;
    next = where < next ? where : next;
    next = end < next ? end : next;
    for (size_t i = 0; i < net->n_nodes; i++) {
        for (int l = 0; l < WIRE_LANES; l++) {
            wire_conn *c = net->nodes[i]->lanes[l];
            if (!c || c->state == WIRE_DOWN)
                continue;
            int64_t at = wire_conn_next(c);
            next = at < next ? at : next;
            p->fds = pst_array_room(p->fds, p->n, &p->cap_fds, sizeof *p->fds);
            p->conns = pst_array_room(p->conns, p->n, &p->cap_conns, sizeof *p->conns);
            p->fds[p->n] = (struct pollfd){.fd = wire_conn_fd(c), .events = wire_conn_events(c)};
            p->conns[p->n++] = c;
        }
    }
    return next;
}

static void wait_and_serve(wire_net *net, polled *p, int64_t until)
{
    int64_t left = until - pst_mono_us();
    int ms = left <= 0 ? 0 : left > LOOK_MS * 1000LL ? LOOK_MS : (int)((left + 999) / 1000);
    int n = poll(p->fds, p->n, ms);
    for (size_t i = 0; i < p->n; i++) {
        wire_conn *c = p->conns[i];
        short events = n > 0 ? p->fds[i].revents : 0;
        if (c->more)
            events |= POLLIN;
        if (events && !c->dead && wire_conn_fd(c) == p->fds[i].fd)
            wire_conn_on_ready(c, events);
    }
}

void wire_net_push(wire_net *net)
{
    net->depth++;
    wire_calls_dispatch(net, pst_mono_us());
    for (size_t i = 0; i < net->n_nodes; i++) {
        for (int l = 0; l < WIRE_LANES; l++) {
            if (net->nodes[i]->lanes[l])
                wire_conn_flush(net->nodes[i]->lanes[l]);
        }
    }
    net->depth--;
}

int wire_net_turn(wire_net *net, int timeout_ms)
{
    int told = net->told;
    int64_t end = pst_mono_us() + timeout_ms * 1000LL;
    polled p = net->depth ? (polled){0} : (polled){net->polled, net->polled_conns, 0, net->polled_cap, net->polled_conns_cap};
    net->depth++;
    do {
        do_due(net);
        int64_t until = collect(net, &p, end);
        wait_and_serve(net, &p, net->told == told ? until : 0);
    } while (net->told == told && pst_mono_us() < end && !pst_stop_forced());
    if (net->told != told)
        do_due(net); /* what the answers led to goes out now */
    if (--net->depth) {
        free(p.fds);
        free(p.conns);
    } else {
        net->polled = p.fds;
        net->polled_conns = p.conns;
        net->polled_cap = p.cap_fds;
        net->polled_conns_cap = p.cap_conns;
        free_graves(net);
    }
    return net->told - told;
}
