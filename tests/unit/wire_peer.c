/* wire_peer.c - a broker that is played in the test's own thread, so that what comes when is the test's choice and no run differs from another. */
#include "wire_peer.h"

#include "common/base/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { METADATA = 3, FIND_COORDINATOR = 10, HEARTBEAT = 12, HANDSHAKE = 17, VERSIONS = 18, AUTHENTICATE = 36 };

void peer_open(peer *p)
{
    memset(p, 0, sizeof *p);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    PST_ASSERT(p->fd >= 0 && !bind(p->fd, (struct sockaddr *)&at, sizeof at) && !listen(p->fd, 64));
    PST_ASSERT(!getsockname(p->fd, (struct sockaddr *)&at, &len));
    p->port = ntohs(at.sin_port);
    p->versions_max = 4;
    p->cut_after = SIZE_MAX;
    p->hold_key = p->wrong_id_key = p->lie_key = -1;
    p->leader = 1;
    p->epoch = 5;
    p->topic_id = 7;
}

static void drop(peer_conn *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    pst_buf_done(&c->in);
    pst_buf_done(&c->out);
}

void peer_cut(peer *p)
{
    for (int i = 0; i < p->n_conns; i++)
        drop(&p->conns[i]);
}

void peer_close(peer *p)
{
    peer_cut(p);
    for (int i = 0; i < p->n_log; i++)
        pst_buf_done(&p->log[i].body);
    close(p->fd);
}

int peer_count(const peer *p, int key)
{
    int n = 0;
    for (int i = 0; i < p->n_log; i++)
        n += p->log[i].key == key;
    return n;
}

/* ---- answers --------------------------------------------------------------------------------------------------------------------------- */

static void put_versions(peer *p, int version, wire_out *o)
{
    static const int16_t apis[][3] = {{METADATA, 0, 12},    {FIND_COORDINATOR, 0, 4}, {HEARTBEAT, 0, 4}, {HANDSHAKE, 0, 1},
                                      {AUTHENTICATE, 0, 2}, {VERSIONS, 0, 0},         {300, 0, 1}};
    bool known = version <= p->versions_max;
    size_t first = known ? 0 : 5, n = known ? 7 : 6;
    o->flexible = known && version >= 3;
    wire_put_i16(o, known ? 0 : BUS_ERR_UNSUPPORTED_VERSION);
    wire_put_count(o, n - first);
    for (size_t i = first; i < n; i++) {
        wire_put_i16(o, apis[i][0]);
        wire_put_i16(o, apis[i][1]);
        wire_put_i16(o, apis[i][0] == VERSIONS ? (int16_t)p->versions_max : apis[i][2]);
        wire_put_tags(o);
    }
    if (known && version >= 1)
        wire_put_i32(o, 0);
    if (!o->flexible || p->lose_feature) {
        wire_put_tags(o);
        return;
    }
    pst_buf f = {0};
    wire_out fo = {&f, true};
    wire_put_count(&fo, 1);
    wire_put_str(&fo, "transaction.version");
    wire_put_i16(&fo, 2);
    wire_put_i16(&fo, 1);
    wire_put_tags(&fo);
    wire_put_uvarint(o, 3); /* three tags; the last is one that nobody knows yet */
    wire_put_uvarint(o, 1);
    wire_put_uvarint(o, 8);
    wire_put_i64(o, 42);
    wire_put_uvarint(o, 2);
    wire_put_uvarint(o, (uint32_t)f.len);
    wire_put_bytes(o, f.data, f.len);
    wire_put_uvarint(o, 77);
    wire_put_uvarint(o, 3);
    wire_put_bytes(o, "abc", 3);
    pst_buf_done(&f);
}

static void put_metadata(peer *p, int version, wire_in *in, wire_out *o)
{
    wire_put_i32(o, 0);
    wire_put_count(o, 1);
    wire_put_i32(o, 1);
    wire_put_str(o, "127.0.0.1");
    wire_put_i32(o, p->metadata_port ? p->metadata_port : p->port);
    wire_put_str(o, "rack-a");
    wire_put_tags(o);
    wire_put_str(o, "cluster");
    wire_put_i32(o, 1);
    size_t n = wire_get_count(in, 1, NULL);
    wire_put_count(o, n);
    for (size_t i = 0; i < n; i++) {
        uint8_t id[16] = {p->topic_id, (uint8_t)i};
        if (version >= 10)
            wire_get_bytes(in, 16);
        char *name = wire_str_dup(wire_get_str(in));
        wire_get_tags(in);
        wire_put_i16(o, (int16_t)p->topic_code);
        wire_put_str(o, name);
        free(name);
        if (version >= 10)
            wire_put_uuid(o, id);
        wire_put_bool(o, false);
        wire_put_count(o, p->topic_code ? 0 : 3);
        for (int32_t k = 3; !p->topic_code && k-- > 0;) {
            wire_put_i16(o, p->leader < 0 ? BUS_ERR_LEADER_NOT_AVAILABLE : 0);
            wire_put_i32(o, k);
            wire_put_i32(o, p->leader);
            wire_put_i32(o, p->epoch);
            for (int l = 0; l < 3; l++) {
                wire_put_count(o, 1);
                wire_put_i32(o, 1);
            }
            wire_put_tags(o);
        }
        if (version >= 8)
            wire_put_i32(o, INT32_MIN);
        wire_put_tags(o);
    }
    if (version >= 8 && version <= 10)
        wire_put_i32(o, INT32_MIN);
    wire_put_tags(o);
}

static void put_coordinator(peer *p, wire_in *in, wire_out *o)
{
    wire_get_i8(in);
    wire_get_count(in, 1, NULL);
    char *key = wire_str_dup(wire_get_str(in));
    wire_put_i32(o, 0);
    wire_put_count(o, 1);
    wire_put_str(o, key);
    wire_put_i32(o, 1);
    wire_put_str(o, "127.0.0.1");
    wire_put_i32(o, p->port);
    wire_put_i16(o, 0);
    wire_put_str(o, NULL);
    wire_put_tags(o);
    wire_put_tags(o);
    free(key);
}

static void put_handshake(peer *p, wire_out *o)
{
    p->sasl_step = 0;
    wire_put_i16(o, 0);
    wire_put_count(o, 1);
    wire_put_str(o, "PLAIN");
}

static void put_authenticate(peer *p, wire_out *o)
{
    const char *text = p->sasl_step < 4 ? p->sasl_answers[p->sasl_step] : NULL;
    p->sasl_step++;
    p->logins++;
    int code = text ? 0 : p->sasl_code;
    wire_put_i16(o, (int16_t)code);
    wire_put_str(o, code ? "Authentication failed: no such user" : NULL);
    wire_put_blob(o, text ? text : "", text ? strlen(text) : 0);
    wire_put_i64(o, p->lifetime_ms);
    wire_put_tags(o);
}

static bool is_flexible(int key, int version)
{
    switch (key) {
    case METADATA: return version >= 9;
    case FIND_COORDINATOR: return version >= 3;
    case HEARTBEAT: return version >= 4;
    case AUTHENTICATE: return version >= 2;
    case VERSIONS: return version >= 3;
    default: return false;
    }
}

static void answer(peer *p, peer_conn *c, int conn, wire_in *in)
{
    PST_ASSERT(p->n_log < PEER_LOG);
    peer_seen *s = &p->log[p->n_log++];
    s->conn = conn;
    s->key = wire_get_i16(in);
    s->version = wire_get_i16(in);
    int32_t id = wire_get_i32(in);
    wire_str client = wire_get_str(in);
    snprintf(s->client, sizeof s->client, "%.*s", (int)client.len, client.at ? client.at : "");
    in->flexible = is_flexible(s->key, s->version);
    wire_get_tags(in);
    pst_buf_add(&s->body, in->at, wire_in_left(in));
    c->held |= s->key == p->hold_key;
    if (c->held)
        return;
    pst_buf b = {0};
    wire_out o = {&b, false};
    wire_put_i32(&o, s->key == p->wrong_id_key ? id + 1 : id);
    o.flexible = in->flexible && s->key != VERSIONS;
    wire_put_tags(&o);
    switch (s->key) {
    case VERSIONS: put_versions(p, s->version, &o); break;
    case METADATA: put_metadata(p, s->version, in, &o); break;
    case FIND_COORDINATOR: put_coordinator(p, in, &o); break;
    case HANDSHAKE: put_handshake(p, &o); break;
    case AUTHENTICATE: put_authenticate(p, &o); break;
    default: wire_put_bytes(&o, s->body.data, s->body.len); break; /* an echo */
    }
    wire_out raw = {&c->out, false};
    wire_put_i32(&raw, s->key == p->lie_key ? (int32_t)p->lie_len : (int32_t)b.len);
    pst_buf_add(&c->out, b.data, b.len);
    pst_buf_done(&b);
}

/* ---- sockets ----------------------------------------------------------------------------------------------------------------------------- */

static void receive(peer *p, int i)
{
    peer_conn *c = &p->conns[i];
    char bytes[65536];
    ssize_t n;
    while ((n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        pst_buf_add(&c->in, bytes, (size_t)n);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) {
        drop(c);
        return;
    }
    size_t at = 0;
    while (c->in.len - at >= 4) {
        wire_in head = wire_in_of(c->in.data + at, 4, false);
        size_t len = (size_t)wire_get_i32(&head);
        if (c->in.len - at - 4 < len)
            break;
        wire_in in = wire_in_of(c->in.data + at + 4, len, false);
        answer(p, c, i, &in);
        at += 4 + len;
    }
    if (at) {
        memmove(c->in.data, c->in.data + at, c->in.len - at);
        c->in.len -= at;
    }
}

static void give(peer *p, int i)
{
    peer_conn *c = &p->conns[i];
    size_t n = p->drip && p->drip < c->out.len ? p->drip : c->out.len;
    bool cut = p->cut_after != SIZE_MAX && c->answered + n >= p->cut_after;
    if (cut)
        n = p->cut_after - c->answered;
    ssize_t done = n ? send(c->fd, c->out.data, n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (done > 0) {
        memmove(c->out.data, c->out.data + done, c->out.len - (size_t)done);
        c->out.len -= (size_t)done;
        c->answered += (size_t)done;
    }
    if (cut) {
        p->cut_after = SIZE_MAX;
        drop(c);
    }
}

void peer_serve(peer *p)
{
    int fd, on = 1;
    while ((fd = accept4(p->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        int i = 0;
        while (i < p->n_conns && p->conns[i].fd >= 0)
            i++;
        PST_ASSERT(i < PEER_CONNS);
        if (i == p->n_conns)
            p->n_conns++;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        p->conns[i] = (peer_conn){.fd = fd};
    }
    for (int i = 0; i < p->n_conns; i++) {
        if (p->conns[i].fd >= 0)
            receive(p, i);
        if (p->conns[i].fd >= 0 && p->conns[i].out.len)
            give(p, i);
    }
}
