/* http_conn.c - connections: their states, limits and deadlines.
 *
 *   HEAD ──whole head──▶ BODY ──whole body──▶ BUSY (handler) ──reply──▶ FLUSH ──sent──▶ HEAD   (kept alive)
 *    │ too large, late,      │ too large, late       └─stream_open─▶ STREAM ──closed──▶ FLUSH └─▶ LINGER ──▶ closed
 *    └────────refuse()───────┴──────────────────────────────────────────────────────────▲
 *
 * Deadlines are absolute (a head has 10 s from its first byte, however lively it trickles in); idle time-outs alone let a client that sends
 * one byte every few seconds hold a connection for ever. */
#include "common/loop/http_priv.h"

#include "common/base/log.h"
#include "common/loop/http_guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_MS        2000
#define LINGER_BYTES_MAX (1 << 20)
#define BODY_RATE_MIN    16384 /* bytes a second below which a body is late */

static void process(conn *c);

void http_conn_deadline(conn *c, int64_t ms)
{
    if (ms < 0) {
        event_del(c->deadline);
        return;
    }
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    event_add(c->deadline, &tv);
}

void http_conn_close(conn *c)
{
    pst_http *s = c->server;
    PST_ASSERT(!c->req || !c->stream); /* the stream took the request's place */
    if (c->stream)
        http_stream_conn_gone(c->stream);
    if (c->req) {
        c->req->conn = NULL;
        if (c->state != CONN_BUSY) /* nobody but us knows it */
            http_req_free(c->req);
        c->req = NULL;
    }
    if (c->prev)
        c->prev->next = c->next;
    else
        s->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    PST_ASSERT(s->n_conns > 0);
    s->n_conns--;
    event_free(c->deadline);
    if (c->hello) {
        event_free(c->hello);
        close(c->fd);
    }
    if (c->bev)
        bufferevent_free(c->bev);
    free(c);
    if (s->draining && !s->n_conns && s->drained) {
        pst_loop_post(s->loop, s->drained, s->drained_arg); /* posted, so that it may free the server */
        s->drained = NULL;
    }
}

void http_conn_replied(conn *c, bool keep)
{
    PST_ASSERT(!c->req && !c->stream);
    c->state = CONN_FLUSH;
    c->close_after = !keep || c->eof;
    http_conn_deadline(c, -1);
    if (!evbuffer_get_length(bufferevent_get_output(c->bev)))
        bufferevent_trigger(c->bev, EV_WRITE, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

/* Answers and ends the connection, because what follows in it cannot be trusted or is not wanted. */
static void refuse(conn *c, int status, const char *why)
{
    pst_http_req *r = c->req ? c->req : http_req_new(c);
    c->server->refused++;
    r->keep = false;
    pst_log(PST_LOG_DEBUG, c->server->name, "event=refused remote=%s status=%d why=\"%s\"", c->remote, status, why);
    pst_http_problem(r, status, "refused", NULL, why);
}

/* The literal address on which the connection came in, where the server listens beyond loopback. */
static const char *own_address(const conn *c, char room[64])
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    if (c->server->loopback || getsockname(bufferevent_getfd(c->bev), (struct sockaddr *)&ss, &len) < 0)
        return NULL;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&ss;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&ss;
    if (ss.ss_family == AF_INET)
        return inet_ntop(AF_INET, &v4->sin_addr, room, 64);
    if (ss.ss_family != AF_INET6)
        return NULL;
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        return inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], room, 64);
    return inet_ntop(AF_INET6, &v6->sin6_addr, room, 64);
}

/* What is refused before anybody asks who it is: see http_guard.h. */
static bool guard(conn *c, const http_head *h)
{
    char room[64];
    const pst_http *s = c->server;
    if (h->host && !http_guard_host(h->host, (const char *const *)s->hosts, own_address(c, room)))
        refuse(c, 421,
               "this server does not answer for that Host: a loopback address, localhost, or a name that it was given (--host NAME)");
    else if (!http_guard_origin(h))
        refuse(c, 403, "a page of another origin may not change anything here");
    else
        return true;
    return false;
}

/* The type of a body. A route that takes multipart takes nothing else: a form could send it, so it is the route's own wish. */
static bool guard_type(conn *c, const pst_http_req *r)
{
    static const char *const multipart[] = {"multipart/form-data", NULL}, *const forms[] = {"multipart/form-data",
                                                                                            "application/x-www-form-urlencoded", NULL};
    const pst_http *s = c->server;
    static const char *const bytes[] = {"application/json", "application/octet-stream", "application/vnd.sagemaker-triton.binary+json",
                                        NULL};
    static const char *const form[] = {"application/x-www-form-urlencoded", NULL};
    unsigned flags = r->route ? r->route->flags : 0;
    bool upload = flags & PST_HTTP_MULTIPART;
    if ((flags & PST_HTTP_UPLOAD) && http_guard_type(&r->head, multipart))
        return true;
    if ((flags & PST_HTTP_FORM) && http_guard_type(&r->head, form))
        return true;
    if ((flags & PST_HTTP_ANY_TYPE) && (!http_head_field(&r->head, "Content-Type") || !http_guard_type(&r->head, forms)))
        return true;
    if ((flags & PST_HTTP_BYTES) && (http_guard_type(&r->head, bytes) || !http_head_field(&r->head, "Content-Type")))
        return true;
    if (!(flags & (PST_HTTP_BYTES | PST_HTTP_FORM | PST_HTTP_ANY_TYPE)) &&
        (!s->conf.types || http_guard_type(&r->head, upload ? multipart : s->conf.types)))
        return true;
    refuse(c, 415,
           upload ? "the body must be multipart/form-data here; say so with Content-Type"
                  : "a body of this type, or of none, is not taken here; say what it is with Content-Type (application/json, "
                    "application/yaml)");
    return false;
}

/* ---- from head to handler -------------------------------------------------------------------------------------------------- */

static void dispatch(conn *c)
{
    pst_http_req *r = c->req;
    PST_ASSERT(r && r->route && (c->state == CONN_HEAD || c->state == CONN_BODY || c->state == CONN_BUSY));
    c->state = CONN_BUSY;
    http_conn_deadline(c, -1);
    c->server->requests++;
    r->route->handler(r->route_arg, r);
}

static void answer_unrouted(pst_http *s, pst_http_req *r, int status, const char *allow)
{
    if (status == 405)
        pst_http_add_header(r, "Allow", allow);
    if (s->fallback) {
        s->fallback(s->fallback_arg, r, status);
        return;
    }
    pst_buf text = {0};
    if (status == 405)
        pst_buf_printf(&text, "%s is not possible here; allowed: %s", r->head.method, allow);
    else
        pst_buf_printf(&text, "there is nothing at %s", r->path_text);
    pst_http_problem(r, status, status == 405 ? "method-not-allowed" : "no-such-path", NULL, text.data);
    pst_buf_done(&text);
}

static bool is_place(const char *place, const char *segment)
{
    size_t n = strlen(place);
    return n && place[n - 1] == '*' ? !strncmp(place, segment, n - 1) : !strcmp(place, segment);
}

static void leave_place(const pst_http *s, pst_http_req *r)
{
    http_parts *path = &r->path;
    if (!s->place || !path->n_segments || !is_place(s->place, path->segments[0]))
        return;
    r->place = path->segments[0];
    path->n_segments--;
    for (size_t i = 0; i < path->n_segments; i++) {
        path->segments[i] = path->segments[i + 1];
        path->encoded_slash[i] = path->encoded_slash[i + 1];
    }
}

static void begin_body(conn *c, pst_http_req *r);

static bool has_body(const pst_http_req *r)
{
    return r->head.chunked || r->head.length > 0;
}

/* The filter has nothing against it. */
static void go_on(conn *c, pst_http_req *r)
{
    pst_http *s = c->server;
    if (r->found == 405 && !strcmp(r->head.method, "OPTIONS")) {
        pst_http_add_header(r, "Allow", r->allow);
        pst_http_reply(r, 204, NULL, NULL, 0);
        return;
    }
    if (r->found != ROUTE_FOUND) {
        s->requests++;
        answer_unrouted(s, r, r->found, r->allow);
        return;
    }
    if (s->check && !s->check(s->check_arg, r))
        return;
    r->keep = r->wants_keep;
    r->body_max = r->route->body_bytes_max ? r->route->body_bytes_max : s->conf.body_bytes_max;
    if (has_body(r))
        begin_body(c, r);
    else
        dispatch(c);
}

/* What came meanwhile waits in the input buffer; nobody else looks at it before the request is answered. */
void pst_http_resume(pst_http_req *r)
{
    conn *c = r->conn;
    if (!c || !r->server) {
        http_req_free(r);
        return;
    }
    PST_ASSERT(c->req == r && c->state == CONN_BUSY);
    bool reads_on = r->found == ROUTE_FOUND && has_body(r);
    go_on(c, r); /* a handler may end the connection */
    if (reads_on)
        process(c);
}

/* Finds the route and lets the filter speak. True when the request goes on. */
static bool admit(conn *c, pst_http_req *r)
{
    pst_http *s = c->server;
    const char *why = NULL;
    if (!strcmp(r->head.target, "*")) {
        pst_http_add_header(r, "Allow", "GET, HEAD, POST, PUT, DELETE, OPTIONS");
        r->keep &= !has_body(r);
        pst_http_reply(r, 204, NULL, NULL, 0);
        return false;
    }
    r->found = http_route_find(s, r, r->allow, &why);
    if (r->found == 400) {
        refuse(c, 400, why);
        return false;
    }
    if (!guard_type(c, r))
        return false;
    r->wants_keep = r->keep;
    r->keep &= !has_body(r); /* an answer before the body was read ends the connection */
    c->state = CONN_BUSY;    /* filter and fallback may keep it for later */
    if (!s->filter || s->filter(s->filter_arg, r))
        return true;
    if (c->state == CONN_BUSY) /* it is kept: the head is whole, and what takes long now is ours */
        http_conn_deadline(c, -1);
    return false;
}

static bool count_body(pst_http_req *r, size_t bytes)
{
    pst_http *s = r->server;
    if (s->bodies_bytes + bytes > s->conf.bodies_bytes_max)
        return false; /* what a request has counted goes back when it is freed */
    s->bodies_bytes += bytes;
    r->counted += bytes;
    return true;
}

static void begin_body(conn *c, pst_http_req *r)
{
    const http_head *h = &r->head;
    PST_ASSERT(c->req == r && !r->body.len && !r->counted);
    if (h->length > r->body_max) {
        refuse(c, 413, "the body is larger than allowed here");
        return;
    }
    if (!count_body(r, (size_t)h->length)) {
        pst_http_add_header(r, "Retry-After", "2");
        refuse(c, 503, "too many bodies are being received at this moment");
        return;
    }
    c->state = CONN_BODY;
    c->chunks = (http_chunks){0};
    int64_t most = (int64_t)(h->chunked ? r->body_max : h->length);
    http_conn_deadline(c, c->server->conf.body_timeout_ms + most * 1000 / BODY_RATE_MIN);
    if (h->expect_continue && !evbuffer_get_length(bufferevent_get_input(c->bev)))
        evbuffer_add_printf(bufferevent_get_output(c->bev), "HTTP/1.1 100 Continue\r\n\r\n");
}

/* The whole head is in r->raw. */
static void begin_request(conn *c, pst_http_req *r, size_t len)
{
    const char *why = NULL;
    int rc = http_head_parse(r->raw, len, &r->head, &why);
    if (rc < 0) {
        refuse(c, -rc, why);
        return;
    }
    const http_head *h = &r->head;
    if (c->plain) {
        refuse(c, 400, "this port speaks TLS: ask for https:// in place of http://; what was sent here could be read by others on its way");
        return;
    }
    r->head_only = !strcmp(h->method, "HEAD");
    r->target = pst_strdup(h->target);
    r->keep = h->minor == 1 ? !h->close : h->keep_alive && !h->close;
    size_t n = strlen(h->target);
    r->room = pst_alloc(n + 2);
    if (h->target[0] == '/') {
        rc = http_path_parse(h->target, r->room, &r->path, &why);
        if (rc < 0) {
            refuse(c, -rc, why);
            return;
        }
    }
    leave_place(c->server, r);
    pst_buf text = {0};
    for (size_t i = 0; i < r->path.n_segments; i++)
        pst_buf_printf(&text, "/%s", r->path.segments[i]);
    r->path_text = text.len ? pst_buf_steal(&text) : pst_strdup("/");
    if (guard(c, h) && admit(c, r))
        go_on(c, r);
}

/* Returns false when more bytes are needed. */
static bool read_head(conn *c, struct evbuffer *in)
{
    pst_http *s = c->server;
    const char *why = NULL;
    char two[2];
    while (!c->head_begun && evbuffer_copyout(in, two, 2) == 2 && !memcmp(two, "\r\n", 2) && c->lingered++ < 4)
        evbuffer_drain(in, 2); /* RFC 9112 2.2: empty lines before a request line, a few */
    size_t len = evbuffer_get_length(in);
    if (!len)
        return false;
    if (!c->head_begun) {
        c->head_begun = true;
        c->scanned = 0;
        http_conn_deadline(c, s->conf.header_timeout_ms);
    }
    size_t window = len < s->conf.header_bytes_max + 1 ? len : s->conf.header_bytes_max + 1;
    const char *data = (const char *)evbuffer_pullup(in, (ev_ssize_t)window);
    long n = http_head_find(data, window, s->conf.header_bytes_max, &c->scanned, &why);
    if (n == 0)
        return false;
    if (n < 0) {
        refuse(c, (int)-n, why);
        return true;
    }
    c->head_begun = false;
    c->lingered = 0;
    pst_http_req *r = http_req_new(c);
    r->raw = pst_strndup(data, (size_t)n);
    evbuffer_drain(in, (size_t)n);
    begin_request(c, r, (size_t)n);
    return true;
}

static void add_body(void *arg, const char *data, size_t len)
{
    pst_buf_add(&((pst_http_req *)arg)->body, data, len);
}

static bool read_chunked(conn *c, struct evbuffer *in)
{
    pst_http_req *r = c->req;
    bool done = false;
    while (!done && evbuffer_get_length(in)) {
        size_t n = evbuffer_get_contiguous_space(in);
        const char *data = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
        const char *why = NULL;
        size_t before = r->body.len;
        long used = http_chunks_feed(&c->chunks, data, n, r->body_max, add_body, r, &done, &why);
        if (used >= 0 && !count_body(r, r->body.len - before)) {
            why = "too many bodies are being received at this moment";
            used = -503;
        }
        if (used < 0) {
            refuse(c, (int)-used, why);
            return true;
        }
        evbuffer_drain(in, (size_t)used);
    }
    if (done)
        dispatch(c);
    return done;
}

static bool read_body(conn *c, struct evbuffer *in)
{
    pst_http_req *r = c->req;
    if (r->head.chunked)
        return read_chunked(c, in);
    PST_ASSERT(r->body.len <= (size_t)r->head.length);
    size_t wanted = (size_t)r->head.length - r->body.len, len = evbuffer_get_length(in);
    size_t n = len < wanted ? len : wanted;
    pst_buf_reserve(&r->body, n); /* grows with what came, not with what was promised */
    evbuffer_remove(in, r->body.data + r->body.len, n);
    r->body.len += n;
    r->body.data[r->body.len] = 0;
    if (n < wanted)
        return false;
    dispatch(c);
    return true;
}

static void process(conn *c)
{
    /* A step reads what is there and says whether there may be more to do. A reply only fills the output buffer: the next request is begun by
     * on_written, so requests of one connection never nest. */
    struct evbuffer *in = bufferevent_get_input(c->bev);
    bool go = true;
    while (go) {
        if (c->state == CONN_HEAD) {
            go = read_head(c, in);
        } else if (c->state == CONN_BODY) {
            go = read_body(c, in);
        } else if (c->state == CONN_STREAM && c->stream->ws) {
            http_ws_read(c); /* may have ended it and the connection */
            return;
        } else if (c->state == CONN_LINGER) {
            size_t n = evbuffer_get_length(in);
            c->lingered += n;
            evbuffer_drain(in, n);
            if (c->lingered > LINGER_BYTES_MAX)
                http_conn_close(c);
            return;
        } else {
            return; /* a pipelined request waits, bounded by the read high-water mark */
        }
    }
}

/* ---- libevent's callbacks -------------------------------------------------------------------------------------------------- */

static void on_read(struct bufferevent *bev, void *arg)
{
    process(arg);
}

static void on_written(struct bufferevent *bev, void *arg)
{
    conn *c = arg;
    if (evbuffer_get_length(bufferevent_get_output(bev)))
        return;
    if (c->state == CONN_STREAM) {
        http_stream_flushed(c->stream);
        return;
    }
    if (c->state != CONN_FLUSH)
        return;
    if (c->close_after && c->eof) {
        http_conn_close(c);
    } else if (c->close_after) {
        c->state = CONN_LINGER;
        c->lingered = 0;
        if (c->tls)
            http_tls_bye(bev);
        shutdown(bufferevent_getfd(bev), SHUT_WR);
        http_conn_deadline(c, LINGER_MS);
        process(c);
    } else if (c->server->draining) {
        http_conn_close(c);
    } else {
        c->state = CONN_HEAD;
        c->head_begun = false;
        c->lingered = 0;
        http_conn_deadline(c, c->server->conf.idle_timeout_ms);
        process(c);
    }
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    conn *c = arg;
    if (what & BEV_EVENT_CONNECTED)
        return; /* the handshake is done; the deadline for the head goes on */
    /* Under TLS libevent neither reads nor writes any more once the other side has said its last. */
    bool half_closed = (what & BEV_EVENT_EOF) && !c->tls && (c->state == CONN_BUSY || c->state == CONN_FLUSH);
    const char *why = c->tls && (what & BEV_EVENT_ERROR) ? http_tls_why(bev) : NULL;
    if (why)
        pst_log(PST_LOG_DEBUG, c->server->name, "event=tls_ended remote=%s why=\"%s\"", c->remote, why);
    if (half_closed)
        c->eof = true; /* it has said all and may still listen */
    else
        http_conn_close(c);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    conn *c = arg;
    if (c->state == CONN_HEAD && c->head_begun)
        refuse(c, 408, "the request's head did not arrive in time");
    else if (c->state == CONN_BODY)
        refuse(c, 408, "the request's body did not arrive in time");
    else
        http_conn_close(c);
}

static void listen_to(conn *c, struct bufferevent *bev)
{
    const pst_http *s = c->server;
    PST_ASSERT(bev && !c->bev);
    c->bev = bev;
    struct timeval write_tv = {.tv_sec = s->conf.write_timeout_ms / 1000, .tv_usec = s->conf.write_timeout_ms % 1000 * 1000};
    bufferevent_set_timeouts(c->bev, NULL, &write_tv);
    bufferevent_setwatermark(c->bev, EV_READ, 0, s->conf.header_bytes_max + 65536);
    bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

static struct bufferevent *plain_socket(const conn *c, int fd)
{
    return bufferevent_socket_new(loop_base(c->server->loop), fd, BEV_OPT_CLOSE_ON_FREE);
}

/* The first byte tells a handshake from a request in the clear, which is to learn what is wrong in place of an alert that no such client can read. */
static void on_hello(evutil_socket_t fd, short what, void *arg)
{
    conn *c = arg;
    unsigned char first;
    ssize_t n = recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        event_add(c->hello, NULL);
        return;
    }
    struct bufferevent *bev = NULL;
    c->tls = n == 1 && http_tls_is_hello(first);
    c->plain = !c->tls;
    if (n == 1)
        bev = c->tls ? http_tls_accept(c->server->tls, fd) : plain_socket(c, fd);
    if (!bev) {
        http_conn_close(c);
        return;
    }
    event_free(c->hello);
    c->hello = NULL; /* fd is bev's now */
    listen_to(c, bev);
}

void http_conn_start(pst_http *s, conn *c, int fd)
{
    c->server = s;
    c->deadline = event_new(loop_base(s->loop), -1, 0, on_deadline, c);
    PST_ASSERT(c->deadline);
    c->next = s->conns;
    if (c->next)
        c->next->prev = c;
    s->conns = c;
    s->n_conns++;
    http_conn_deadline(c, s->conf.header_timeout_ms); /* with TLS: the handshake, too */
    if (!s->tls) {
        listen_to(c, plain_socket(c, fd));
        return;
    }
    c->fd = fd;
    c->hello = event_new(loop_base(s->loop), fd, EV_READ, on_hello, c);
    PST_ASSERT(c->hello);
    event_add(c->hello, NULL);
}
