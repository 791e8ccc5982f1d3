/* wire_conn.c - bytes to and from one broker: addresses tried one after the other, what is to be sent as a row of pieces of blocks (gathered, never copied), answers
 * received straight into the block that they are handed out in. A length that a broker tells is believed up to receive.message.max.bytes, and before
 * the login up to a megabyte; memory is only touched as far as bytes come. */
#include "common/bus/wire/wire_conn.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BACKOFF_MIN_MS = 5 }; /* also where none is asked for: a connect that fails at once must not keep a core busy */

const char *const wire_conn_states[] = {"down",       "resolving", "connecting", "TLS handshake", "asking for versions", "naming the login",
                                        "logging in", "up"};

wire_conn *wire_conn_of(wire_node *node, int lane, wire_net *net)
{
    wire_conn *c = node->lanes[lane];
    if (c)
        return c;
    c = pst_alloc(sizeof *c);
    c->net = net;
    c->node = node;
    c->lane = lane;
    c->fd = -1;
    c->login_id = -1;
    c->in = pst_alloc(WIRE_IN);
    node->lanes[lane] = c;
    return c;
}

/* ---- ends -------------------------------------------------------------------------------------------------------------------------- */

static void drop_out(wire_conn *c)
{
    for (size_t i = 0; i < c->out_n; i++)
        wire_block_drop(c->out[c->out_first + i].block);
    c->out_first = c->out_n = 0;
    c->queued = c->sent; /* nothing of it goes out any more */
}

static void hang_up(wire_conn *c)
{
    wire_tls_free(c->tls);
    c->tls = NULL;
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    wire_resolve_drop(c->resolve);
    c->resolve = NULL;
    wire_sasl_free(c->sasl);
    c->sasl = NULL;
    drop_out(c);
    wire_block_drop(c->answer);
    c->answer = NULL;
    c->in_at = c->in_len = 0;
    c->more = c->tls_wants_write = false;
    c->login_id = -1;
    c->logged_in = false;
    c->relogin_us = c->mute_us = 0;
}

/* The wait doubles from try to try, and is spread by ± 20 %, so that the clients of a broker that was away do not come back together. */
static int64_t backoff_us(const wire_conf *conf, int fails)
{
    int64_t ms = conf->reconnect_backoff_ms > BACKOFF_MIN_MS ? conf->reconnect_backoff_ms : BACKOFF_MIN_MS;
    for (int i = 1; i < fails && ms < conf->reconnect_backoff_max_ms; i++)
        ms *= 2;
    if (ms > conf->reconnect_backoff_max_ms)
        ms = conf->reconnect_backoff_max_ms;
    uint32_t r;
    pst_random(&r, sizeof r);
    return ms * (800 + r % 401);
}

void wire_conn_fail(wire_conn *c, int code, const char *fmt, ...)
{
    char why[300], text[420];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    wire_net *net = c->net;
    bool was_up = c->state == WIRE_UP || c->logged_in;
    snprintf(text, sizeof text, "%s:%d: %s (%s)", c->node->host, c->node->port, why, wire_conn_states[c->state]);
    pst_log(PST_LOG_DEBUG, "kafka", "event=disconnected node=%d lane=%d text=\"%s\"", (int)c->node->id, c->lane, text);
    hang_up(c);
    c->fails = was_up ? 1 : c->fails + 1;
    c->failing = !was_up;
    c->state = WIRE_DOWN;
    c->since_us = pst_mono_us();
    c->retry_us = c->since_us + backoff_us(net->conf, c->fails);
    if (code) {
        net->stale = true;
        wire_net_told_fault(net, code, text);
    }
    wire_calls_lost(c, code ? code : BUS_ERR__TRANSPORT, text);
    if (!was_up)
        wire_calls_fail_waiting(net, c->node->id, c->lane, code ? code : BUS_ERR__TRANSPORT, text);
    wire_net_check_down(net);
}

void wire_conn_bury(wire_conn *c)
{
    wire_net *net = c->net;
    c->dead = true;
    c->node->lanes[c->lane] = NULL;
    net->graves = pst_array_room(net->graves, net->n_graves, &net->graves_cap, sizeof *net->graves);
    net->graves[net->n_graves++] = c;
}

void wire_conn_free(wire_conn *c)
{
    if (!c)
        return;
    hang_up(c);
    wire_calls_forget_all(&c->calls);
    free(c->out);
    free(c->in);
    free(c);
}

/* ---- coming up ----------------------------------------------------------------------------------------------------------------------- */

static void to_state(wire_conn *c, wire_conn_state state)
{
    c->state = state;
    c->since_us = pst_mono_us();
}

bool wire_conn_wants(const wire_conn *c, int64_t now)
{
    return c->state == WIRE_DOWN && !c->dead && now >= c->retry_us && !c->net->fatal;
}

void wire_conn_start(wire_conn *c, int64_t now)
{
    static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
    const wire_conf *conf = c->net->conf;
    to_state(c, WIRE_RESOLVING);
    c->setup_end_us = now + conf->setup_timeout_ms * 1000LL;
    c->deadline_us = c->setup_end_us;
    c->resolve = wire_resolve_start(c->node->host, c->node->port, families[conf->family]);
    wire_conn_on_ready(c, POLLIN); /* a numeric address is there already */
}

static int open_socket(const wire_conf *conf, int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0)
        return -1;
    if (conf->no_nagle)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (conf->keepalive)
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (conf->send_buffer_bytes)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &conf->send_buffer_bytes, sizeof conf->send_buffer_bytes);
    if (conf->receive_buffer_bytes)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &conf->receive_buffer_bytes, sizeof conf->receive_buffer_bytes);
    return fd;
}

static void connected(wire_conn *c)
{
    c->deadline_us = c->setup_end_us;
    if (!c->net->tls) {
        wire_login_begin(c);
        return;
    }
    to_state(c, WIRE_SECURING);
    c->tls = wire_tls_new(c->net->tls, c->fd, c->node->host);
    if (!c->tls)
        wire_conn_fail(c, BUS_ERR__SSL, "no TLS session can be made for this name");
    else
        wire_conn_on_ready(c, POLLIN | POLLOUT);
}

/* The next address; what was wrong with the one before stands in errnum. Each has an even share of the time that is left. */
static void connect_next(wire_conn *c, int errnum)
{
    for (; c->address < c->n_addresses; c->address++) {
        const wire_address *a = &c->addresses[c->address];
        int64_t now = pst_mono_us(), left = c->setup_end_us - now;
        if (left <= 0)
            break;
        if (c->fd >= 0)
            close(c->fd);
        c->fd = open_socket(c->net->conf, a->at.ss_family);
        if (c->fd < 0) {
            errnum = errno;
            continue;
        }
        c->deadline_us = now + left / (c->n_addresses - c->address);
        if (connect(c->fd, (const struct sockaddr *)&a->at, a->len) == 0) {
            connected(c);
            return;
        }
        if (errno == EINPROGRESS || errno == EINTR)
            return;
        errnum = errno;
    }
    wire_conn_fail(c, BUS_ERR__TRANSPORT, "cannot connect: %s%s", strerror(errnum),
                   c->n_addresses > 1 ? ", nor to its other addresses" : "");
}

static void on_resolved(wire_conn *c)
{
    char why[160] = "";
    int n = wire_resolve_take(c->resolve, c->addresses, why, sizeof why);
    if (n < 0)
        return;
    wire_resolve_drop(c->resolve);
    c->resolve = NULL;
    if (n == 0) {
        wire_conn_fail(c, BUS_ERR__RESOLVE, "cannot find the host: %s", why);
        return;
    }
    c->n_addresses = n;
    c->address = 0;
    to_state(c, WIRE_CONNECTING);
    connect_next(c, ETIMEDOUT);
}

static void on_connected(wire_conn *c)
{
    int e = 0;
    socklen_t len = sizeof e;
    struct sockaddr_storage peer;
    socklen_t peer_len = sizeof peer;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
        e = errno;
    if (!e && getpeername(c->fd, (struct sockaddr *)&peer, &peer_len) == 0) {
        connected(c);
    } else if (e) {
        c->address++;
        connect_next(c, e);
    }
}

static void on_hands(wire_conn *c)
{
    int rc = wire_tls_hands(c->tls);
    c->tls_wants_write = rc == WIRE_IO_WRITE;
    if (rc == 1) {
        pst_log(PST_LOG_DEBUG, "kafka", "event=secured node=%d with=\"%s\"", (int)c->node->id, wire_tls_what(c->tls));
        wire_login_begin(c);
    } else if (rc == WIRE_IO_END || rc == WIRE_IO_FAULT) {
        wire_conn_fail(c, BUS_ERR__SSL, "%s", wire_tls_why(c->tls));
    }
}

void wire_conn_up(wire_conn *c)
{
    to_state(c, WIRE_UP);
    c->failing = false;
    c->fails = 0;
    c->used_us = c->since_us;
    c->net->worked = true;
    c->net->told_down = false;
    if (!c->logged_in)
        pst_log(PST_LOG_DEBUG, "kafka", "event=connected node=%d lane=%d at=%s:%d", (int)c->node->id, c->lane, c->node->host,
                c->node->port);
    c->logged_in = true;
}

/* ---- sending --------------------------------------------------------------------------------------------------------------------------- */

void wire_conn_queue(wire_conn *c, wire_block *block, size_t at, size_t end)
{
    if (at == end)
        return;
    if (c->out_first && !c->out_n)
        c->out_first = 0;
    if (c->out_first > 64 && c->out_first > c->out_n) {
        memmove(c->out, c->out + c->out_first, c->out_n * sizeof *c->out);
        c->out_first = 0;
    }
    c->out = pst_array_room(c->out, c->out_first + c->out_n, &c->out_cap, sizeof *c->out);
    c->out[c->out_first + c->out_n++] = (wire_seg){wire_block_use(block), at, end};
    c->queued += end - at;
}

static void sent(wire_conn *c, size_t n)
{
    c->sent += n;
    while (n) {
        wire_seg *s = &c->out[c->out_first];
        size_t of = s->end - s->at < n ? s->end - s->at : n;
        s->at += of;
        n -= of;
        if (s->at < s->end)
            return;
        wire_block_drop(s->block);
        c->out_first++;
        c->out_n--;
    }
}

/* < 0: WIRE_IO_…; a fault's words in why. */
static ssize_t send_some(wire_conn *c, char *why, size_t size)
{
    if (c->tls) {
        const wire_seg *s = &c->out[c->out_first];
        ssize_t n = wire_tls_write(c->tls, s->block->data + s->at, s->end - s->at);
        if (n == WIRE_IO_FAULT || n == WIRE_IO_END)
            snprintf(why, size, "%s", wire_tls_why(c->tls));
        return n == WIRE_IO_END ? WIRE_IO_FAULT : n;
    }
    struct iovec v[64];
    struct msghdr m = {.msg_iov = v};
    for (; m.msg_iovlen < c->out_n && m.msg_iovlen < 64; m.msg_iovlen++) {
        const wire_seg *s = &c->out[c->out_first + m.msg_iovlen];
        v[m.msg_iovlen] = (struct iovec){s->block->data + s->at, s->end - s->at};
    }
    ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL);
    if (n >= 0)
        return n;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return WIRE_IO_WRITE;
    snprintf(why, size, "cannot send: %s", strerror(errno));
    return WIRE_IO_FAULT;
}

void wire_conn_flush(wire_conn *c)
{
    char why[200];
    if (c->state < WIRE_ASKING)
        return;
    while (c->out_n) {
        ssize_t n = send_some(c, why, sizeof why);
        if (n == WIRE_IO_FAULT) {
            wire_conn_fail(c, BUS_ERR__TRANSPORT, "%s", why);
            return;
        }
        if (n < 0)
            return;
        sent(c, (size_t)n);
    }
}

/* ---- receiving ------------------------------------------------------------------------------------------------------------------------- */

static ssize_t receive(wire_conn *c, void *to, size_t room)
{
    if (c->tls)
        return wire_tls_read(c->tls, to, room);
    ssize_t n = recv(c->fd, to, room, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? WIRE_IO_READ : WIRE_IO_FAULT;
    return n;
}

/* One read: into the answer that is being received, else ahead of the next one. > 0 where something came. */
static ssize_t read_some(wire_conn *c)
{
    if (c->answer) {
        ssize_t n = receive(c, c->answer->data + c->answer->len, c->answer_len - c->answer->len);
        if (n > 0)
            c->answer->len += (size_t)n;
        return n;
    }
    if (c->in_at) {
        memmove(c->in, c->in + c->in_at, c->in_len - c->in_at);
        c->in_len -= c->in_at;
        c->in_at = 0;
    }
    ssize_t n = receive(c, c->in + c->in_len, WIRE_IN - c->in_len);
    if (n > 0)
        c->in_len += (size_t)n;
    return n;
}

/* Begins an answer when its length is there, and fills it with what was read ahead. false: the connection failed. */
static bool begin_answer(wire_conn *c)
{
    if (c->answer || c->in_len - c->in_at < 4)
        return true;
    const uint8_t *p = c->in + c->in_at;
    uint32_t len = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    uint32_t max = c->state == WIRE_UP || c->logged_in ? (uint32_t)c->net->conf->receive_max_bytes : WIRE_LOGIN_ANSWER_MAX;
    if (len < 4 || len > max) {
        wire_conn_fail(c, BUS_ERR__TRANSPORT,
                       c->state == WIRE_UP || c->logged_in
                           ? "an answer of %u bytes is announced, which receive.message.max.bytes does not allow"
                           : "an answer of %u bytes is announced: is this a Kafka listener, and is security.protocol right?",
                       len);
        return false;
    }
    c->in_at += 4;
    c->answer = wire_block_new(len);
    c->answer_len = len;
    size_t ahead = c->in_len - c->in_at;
    if (ahead > len)
        ahead = len;
    memcpy(c->answer->data, c->in + c->in_at, ahead);
    c->answer->len = ahead;
    c->in_at += ahead;
    return true;
}

static void hand_out(wire_conn *c)
{
    wire_block *b = c->answer;
    c->answer = NULL;
    wire_calls_answer(c, b);
    wire_block_drop(b);
}

static void on_readable(wire_conn *c)
{
    int answers = 0;
    c->more = false;
    for (;;) {
        int fd = c->fd;
        if (!begin_answer(c))
            return;
        if (c->answer && c->answer->len == c->answer_len) {
            hand_out(c);
            if (c->fd != fd || c->dead || c->state < WIRE_ASKING)
                return; /* it failed, or is a new one */
            if (++answers == WIRE_ANSWERS_A_TURN) {
                c->more = true;
                return;
            }
            continue;
        }
        ssize_t n = read_some(c);
        if (n > 0)
            continue;
        c->tls_wants_write = n == WIRE_IO_WRITE;
        if (n == WIRE_IO_END) {
            bool idle = c->state == WIRE_UP && !c->calls.n && !c->answer;
            wire_conn_fail(c, idle ? 0 : BUS_ERR__TRANSPORT,
                           c->state >= WIRE_NAMING || !c->net->conf->security
                               ? "the broker closed the connection"
                               : "the broker closed the connection: is security.protocol right?");
        } else if (n == WIRE_IO_FAULT) {
            wire_conn_fail(c, BUS_ERR__TRANSPORT, "cannot receive: %s", c->tls ? wire_tls_why(c->tls) : strerror(errno));
        }
        return;
    }
}

/* ---- turns ------------------------------------------------------------------------------------------------------------------------------- */

int wire_conn_fd(const wire_conn *c)
{
    return c->resolve ? wire_resolve_fd(c->resolve) : c->fd;
}

short wire_conn_events(const wire_conn *c)
{
    if (c->state == WIRE_RESOLVING)
        return POLLIN;
    if (c->state == WIRE_CONNECTING)
        return POLLOUT;
    if (c->state == WIRE_SECURING)
        return c->tls_wants_write ? POLLOUT : POLLIN;
    return (short)(POLLIN | (c->out_n || c->tls_wants_write ? POLLOUT : 0));
}

void wire_conn_on_ready(wire_conn *c, short events)
{
    if (!events)
        return;
    switch (c->state) {
    case WIRE_DOWN: return;
    case WIRE_RESOLVING: on_resolved(c); return;
    case WIRE_CONNECTING: on_connected(c); return;
    case WIRE_SECURING: on_hands(c); return;
    default: break;
    }
    int fd = c->fd;
    if (events & POLLOUT)
        wire_conn_flush(c);
    if (c->fd == fd && c->state >= WIRE_ASKING && (events & (POLLIN | POLLHUP | POLLERR) || c->tls))
        on_readable(c);
}

static int64_t hangs_us(const wire_conn *c)
{
    const wire_call *first = c->calls.first;
    int64_t ms = first->timeout_ms > c->net->conf->socket_timeout_ms ? first->timeout_ms : c->net->conf->socket_timeout_ms;
    return first->written_us + ms * 1000LL;
}

static int64_t idle_us(const wire_conn *c)
{
    int64_t ms = c->net->conf->idle_max_ms;
    if (c->state != WIRE_UP || c->calls.n)
        return INT64_MAX;
    /* A bootstrap server is needed until the brokers are known: they are asked under their own names. */
    if (c->node->id < -1 && c->net->known_us)
        return c->used_us + 3000000;
    return ms ? c->used_us + ms * 1000LL : INT64_MAX;
}

int64_t wire_conn_next(const wire_conn *c)
{
    int64_t next = c->state == WIRE_DOWN ? INT64_MAX : c->state < WIRE_UP && !c->logged_in ? c->deadline_us : idle_us(c);
    if (c->state < WIRE_UP && c->logged_in && c->deadline_us < next)
        next = c->deadline_us;
    for (const wire_call *call = c->calls.first; call; call = call->next) {
        if (!call->forgotten && call->deadline_us < next)
            next = call->deadline_us;
    }
    if (c->calls.first && hangs_us(c) < next)
        next = hangs_us(c);
    if (c->state == WIRE_UP && c->relogin_us && c->relogin_us < next)
        next = c->relogin_us;
    return c->more ? 0 : next;
}

void wire_conn_on_time(wire_conn *c, int64_t now)
{
    if (c->state == WIRE_DOWN)
        return;
    /* What has come is looked at before anything is called late: whoever computes for long turns late, and the broker did not. */
    wire_conn_on_ready(c, POLLIN | POLLOUT);
    if (c->state == WIRE_DOWN || c->more)
        return;
    wire_calls_late(c, now);
    if (c->state == WIRE_CONNECTING && now >= c->deadline_us && now < c->setup_end_us) {
        c->address++;
        connect_next(c, ETIMEDOUT);
        return;
    }
    if (c->state < WIRE_UP && now >= c->deadline_us) {
        wire_conn_fail(c, BUS_ERR__TRANSPORT, "not there after %d ms (socket.connection.setup.timeout.ms)", c->net->conf->setup_timeout_ms);
        return;
    }
    if (c->calls.first && now >= hangs_us(c)) {
        wire_conn_fail(c, BUS_ERR__TRANSPORT, "no answer to %s for %lld ms (socket.timeout.ms)", c->calls.first->api->name,
                       (long long)((now - c->calls.first->written_us) / 1000));
        return;
    }
    if (now >= idle_us(c)) {
        wire_conn_fail(c, 0, "not used");
        return;
    }
    if (c->state == WIRE_UP && c->relogin_us && now >= c->relogin_us)
        wire_login_again(c);
}
