/* http_server.c - listening, accepting, draining: the server around its connections (http_conn.c). Who comes beyond a limit, of all or of one peer,
 * gets a 503 and is closed at once: a connection that is not taken costs nothing that a flood of them could use up. Out of descriptors it
 * stops accepting for a moment instead of spinning on a socket that stays readable. */
#include "common/loop/http_priv.h"

#include "common/base/array.h"
#include "common/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BODY_DRAIN_MS 10000 /* what a body that is on its way gets when the server ends */

static void peer_text(const struct sockaddr_storage *ss, conn *c)
{
    unsigned port = 0;
    if (ss->ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)ss;
        inet_ntop(AF_INET6, &a->sin6_addr, c->peer, sizeof c->peer);
        port = ntohs(a->sin6_port);
        c->peer_loopback = IN6_IS_ADDR_LOOPBACK(&a->sin6_addr) || !strncmp(c->peer, "::ffff:127.", 11);
        snprintf(c->remote, sizeof c->remote, "[%s]:%u", c->peer, port);
    } else {
        const struct sockaddr_in *a = (const struct sockaddr_in *)ss;
        inet_ntop(AF_INET, &a->sin_addr, c->peer, sizeof c->peer);
        port = ntohs(a->sin_port);
        c->peer_loopback = ntohl(a->sin_addr.s_addr) >> 24 == 127;
        snprintf(c->remote, sizeof c->remote, "%s:%u", c->peer, port);
    }
}

static bool too_many(const pst_http *s, const conn *c)
{
    if (s->n_conns >= s->conf.connections_max)
        return true;
    int same = 0;
    for (const conn *o = s->conns; o && !c->peer_loopback; o = o->next)
        same += !strcmp(o->peer, c->peer);
    return same >= s->conf.connections_per_peer_max;
}

static void add_conn(pst_http *s, int fd, const struct sockaddr_storage *ss)
{
    static const char full[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 2\r\nConnection: close\r\n\r\n";
    conn *c = pst_alloc(sizeof *c);
    peer_text(ss, c);
    if (too_many(s, c)) {
        s->refused++;
        ssize_t sent = send(fd, full, sizeof full - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)sent; /* a courtesy */
        close(fd);
        free(c);
        return;
    }
    int one = 1, quiet_s = 60;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    /* A peer that vanished without a word is noticed where nothing is sent for hours, too: a followed log. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &quiet_s, sizeof quiet_s);
    http_conn_start(s, c, fd);
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    pst_http *s = arg;
    for (int i = 0; i < 16; i++) {
        struct sockaddr_storage ss;
        socklen_t len = sizeof ss;
        int got = accept4(fd, (struct sockaddr *)&ss, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (got >= 0) {
            add_conn(s, got, &ss);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pst_err err = {0};
            pst_err_sys(&err, errno, "accept on %s; waiting for connections to close (raise `ulimit -n`?)", s->url);
            pst_log_err(s->name, &err);
            struct timeval tv = {.tv_usec = 100000};
            event_del(s->accept_ev);
            event_add(s->accept_retry, &tv);
            return;
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

static void on_accept_retry(evutil_socket_t fd, short what, void *arg)
{
    event_add(((pst_http *)arg)->accept_ev, NULL);
}

/* ---- the server ------------------------------------------------------------------------------------------------------------ */

static int parse_address(const char *text, int port, struct sockaddr_storage *ret, socklen_t *ret_len, bool *ret_loopback)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
    memset(ret, 0, sizeof *ret);
    if (!strcmp(text, "localhost"))
        text = "127.0.0.1";
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        *ret_len = sizeof *v4;
        *ret_loopback = ntohl(v4->sin_addr.s_addr) >> 24 == 127;
        return 0;
    }
    char bare[64];
    size_t n = strlen(text);
    if (n >= 2 && n < sizeof bare && text[0] == '[' && text[n - 1] == ']') {
        memcpy(bare, text + 1, n - 2);
        bare[n - 2] = 0;
        text = bare;
    }
    if (inet_pton(AF_INET6, strcmp(text, "*") ? text : "::", &v6->sin6_addr) != 1)
        return PST_EINVAL;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    *ret_len = sizeof *v6;
    *ret_loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    return 0;
}

static int listen_on(pst_http *s, pst_err *err)
{
    struct sockaddr_storage ss;
    socklen_t len;
    int one = 1, zero = 0, port = s->conf.port;
    if (port < 0 || port > 65535 || parse_address(s->listen_text, port, &ss, &len, &s->loopback) < 0)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "http", 0,
                           "cannot listen on %s port %d: give an IPv4 or IPv6 address, or *, and a port up to 65535", s->listen_text, port);
    s->fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd < 0 && !strcmp(s->listen_text, "*")) { /* a kernel without IPv6 */
        parse_address("0.0.0.0", port, &ss, &len, &s->loopback);
        s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    }
    if (s->fd < 0)
        return pst_err_sys(err, errno, "socket for %s", s->listen_text);
    setsockopt(s->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (ss.ss_family == AF_INET6)
        setsockopt(s->fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(s->fd, (struct sockaddr *)&ss, len) < 0 || listen(s->fd, 256) < 0) {
        if (errno == EADDRINUSE)
            return pst_err_set(err, PST_EEXIST, PST_CLASS_FATAL, "http", errno,
                               "port %d on %s is taken by another program; choose another one (0 = any free port)", port, s->listen_text);
        return pst_err_sys(err, errno, "listening on %s port %d", s->listen_text, port);
    }
    len = sizeof ss;
    getsockname(s->fd, (struct sockaddr *)&ss, &len);
    s->port = ntohs(ss.ss_family == AF_INET ? ((struct sockaddr_in *)&ss)->sin_port : ((struct sockaddr_in6 *)&ss)->sin6_port);
    const char *host = s->listen_text;
    if (!strcmp(host, "*") || !strcmp(host, "::") || !strcmp(host, "0.0.0.0"))
        host = "localhost";
    const char *scheme = s->tls ? "https" : "http";
    s->url = pst_sprintf(strchr(host, ':') && host[0] != '[' ? "%s://[%s]:%d" : "%s://%s:%d", scheme, host, s->port);
    return 0;
}

/* conf's texts are copied: a caller's may end before the server. Zero in a number means its default, so a limit cannot be switched off. */
static void fill_conf(pst_http *s, const pst_http_conf *conf)
{
    pst_http_conf *c = &s->conf;
    *c = *conf;
    s->name = pst_strdup(conf->name ? conf->name : "http");
    s->listen_text = pst_strdup(conf->listen && *conf->listen ? conf->listen : "127.0.0.1");
    size_t n = 0;
    while (conf->hosts && conf->hosts[n])
        n++;
    if (n) {
        s->hosts = pst_alloc((n + 1) * sizeof *s->hosts);
        for (size_t i = 0; i < n; i++)
            s->hosts[i] = pst_strdup(conf->hosts[i]);
    }
    c->name = c->listen = c->tls_cert = c->tls_key = NULL;
    c->hosts = NULL;
#define DEFAULT(field, value) \
    if (!c->field)            \
    c->field = value
    DEFAULT(header_bytes_max, 16384);
    DEFAULT(body_bytes_max, 1 << 20);
    DEFAULT(bodies_bytes_max, 256u << 20);
    DEFAULT(stream_backlog_max, 1 << 20);
    DEFAULT(connections_max, 1024);
    DEFAULT(connections_per_peer_max, 32);
    DEFAULT(header_timeout_ms, 10000);
    DEFAULT(body_timeout_ms, 10000);
    DEFAULT(idle_timeout_ms, 60000);
    DEFAULT(write_timeout_ms, 30000);
    DEFAULT(heartbeat_ms, 15000);
#undef DEFAULT
}

int pst_http_new(pst_loop *l, const pst_http_conf *conf, pst_http **ret_server, pst_err *err)
{
    pst_http *s = pst_alloc(sizeof *s);
    s->loop = l;
    s->fd = -1;
    fill_conf(s, conf);
    int rc = conf->tls_cert || conf->tls_key ? http_tls_new(l, s->name, conf->tls_cert, conf->tls_key, &s->tls, err) : 0;
    if (!rc)
        rc = listen_on(s, err);
    if (rc < 0) {
        pst_http_free(s);
        return rc;
    }
    s->accept_ev = event_new(loop_base(l), s->fd, EV_READ | EV_PERSIST, on_accept, s);
    s->accept_retry = event_new(loop_base(l), -1, 0, on_accept_retry, s);
    PST_ASSERT(s->accept_ev && s->accept_retry);
    event_add(s->accept_ev, NULL);
    *ret_server = s;
    return PST_OK;
}

static void stop_accepting(pst_http *s)
{
    if (s->accept_ev)
        event_free(s->accept_ev);
    if (s->accept_retry)
        event_free(s->accept_retry);
    s->accept_ev = s->accept_retry = NULL;
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

void pst_http_drain(pst_http *s, void (*done)(void *arg), void *arg)
{
    PST_ASSERT(!s->draining);
    stop_accepting(s);
    s->draining = true;
    s->drained = done;
    s->drained_arg = arg;
    conn *next;
    for (conn *c = s->conns; c; c = next) {
        next = c->next;
        if (c->state == CONN_STREAM)
            http_stream_drain(c->stream);
        else if (c->state == CONN_BODY)
            http_conn_deadline(c, BODY_DRAIN_MS); /* else a stalled upload would hold up the end for as long as it may take */
        else if (c->state == CONN_LINGER || (c->state == CONN_HEAD && !c->head_begun))
            http_conn_close(c);
    }
    if (!s->n_conns && s->drained) {
        pst_loop_post(s->loop, s->drained, s->drained_arg);
        s->drained = NULL;
    }
}

void pst_http_free(pst_http *s)
{
    if (!s)
        return;
    s->drained = NULL;
    stop_accepting(s);
    while (s->conns)
        http_conn_close(s->conns);
    PST_ASSERT(!s->n_conns && !s->streams_open);
    for (pst_http_req *r = s->reqs; r; r = r->next)
        r->server = NULL;
    http_tls_free(s->tls);
    for (char **h = s->hosts; h && *h; h++)
        free(*h);
    free(s->hosts);
    free(s->place);
    free(s->name);
    free(s->listen_text);
    free(s->url);
    free(s->routes);
    free(s);
}

void pst_http_add_routes(pst_http *s, const pst_http_route *routes, size_t n, void *arg)
{
    for (size_t i = 0; i < n; i++) {
        s->routes = pst_array_one_more(s->routes, s->n_routes, sizeof *s->routes);
        s->routes[s->n_routes++] = (route_entry){&routes[i], arg};
    }
}

void pst_http_set_filter(pst_http *s, bool (*fn)(void *arg, pst_http_req *req), void *arg)
{
    s->filter = fn;
    s->filter_arg = arg;
}

void pst_http_set_check(pst_http *s, bool (*fn)(void *arg, pst_http_req *req), void *arg)
{
    s->check = fn;
    s->check_arg = arg;
}

void pst_http_set_place(pst_http *s, const char *segment)
{
    free(s->place);
    s->place = pst_strdup(segment);
}

void pst_http_set_fallback(pst_http *s, void (*fn)(void *arg, pst_http_req *req, int status), void *arg)
{
    s->fallback = fn;
    s->fallback_arg = arg;
}

void pst_http_set_problem(pst_http *s, bool (*fn)(void *arg, pst_http_req *req, int status, const char *detail), void *arg)
{
    s->problem = fn;
    s->problem_arg = arg;
}

void pst_http_set_replied(pst_http *s, void (*fn)(void *arg, const pst_http_req *req, int status), void *arg)
{
    s->replied = fn;
    s->replied_arg = arg;
}

int pst_http_port(const pst_http *s)
{
    return s->port;
}

const char *pst_http_url(const pst_http *s)
{
    return s->url;
}

bool pst_http_is_loopback(const pst_http *s)
{
    return s->loopback;
}

bool pst_http_is_tls(const pst_http *s)
{
    return s->tls != NULL;
}

void pst_http_counts(const pst_http *s, uint64_t ret_counts[5])
{
    uint64_t counts[5] = {s->requests, s->refused, (uint64_t)s->n_conns, s->streams_open, s->streams_dropped};
    memcpy(ret_counts, counts, sizeof counts);
}
