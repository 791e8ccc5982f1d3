/* http_ws.c - websockets on the server's streams: the handshake, frames out, what the client says, pings. A stream's user writes text and knows no more:
 * whether it goes out in chunks or in frames is decided when the stream is opened. Extensions are not taken (none may be used then), and what clients
 * send is thrown away frame by frame (ws_frame.h), because nothing that we serve listens. Source: RFC 6455. */
#include "common/loop/http_priv.h"

#include "common/base/clock.h"

#include <string.h>
#include <strings.h>

enum { SILENT_BEATS = 4 }; /* no byte for so many heartbeats, a pong at least: the client is gone */

/* Lists may come in several fields of one name. */
static bool says(const pst_http_req *r, const char *name, const char *word)
{
    for (size_t i = 0; i < r->head.n_fields; i++)
        if (!strcasecmp(r->head.fields[i].name, name) && http_list_has(r->head.fields[i].value, word))
            return true;
    return false;
}

void http_ws_put(pst_http_stream *st, int opcode, const void *data, size_t len)
{
    unsigned char head[WS_HEAD_MAX];
    struct evbuffer *out = bufferevent_get_output(st->conn->bev);
    evbuffer_add(out, head, http_ws_head(head, opcode, len));
    evbuffer_add(out, data, len);
    st->last_us = pst_mono_us();
}

void http_ws_put_close(pst_http_stream *st)
{
    int code = st->ws->code;
    unsigned char payload[2] = {(unsigned char)(code >> 8), (unsigned char)code};
    http_ws_put(st, WS_CLOSE, payload, code == WS_NO_CODE ? 0 : 2);
}

static bool on_control(void *arg, int opcode, const unsigned char *payload, size_t len)
{
    pst_http_stream *st = arg;
    if (opcode == WS_PING)
        http_ws_put(st, WS_PONG, payload, len);
    if (opcode != WS_CLOSE)
        return true;
    st->ws->code = http_ws_close_code(payload, len);
    http_stream_drop(st, "");
    return false;
}

/* Pings are answered into the output buffer, so a client that sends them and reads nothing meets the stream's limit as any slow one does. */
void http_ws_read(conn *c)
{
    pst_http_stream *st = c->stream;
    struct evbuffer *in = bufferevent_get_input(c->bev);
    st->ws->heard_us = pst_mono_us();
    while (evbuffer_get_length(in) && !st->ended) {
        size_t n = evbuffer_get_contiguous_space(in);
        int rc = http_ws_feed(&st->ws->in, evbuffer_pullup(in, (ev_ssize_t)n), n, on_control, st);
        evbuffer_drain(in, n);
        if (!rc && !st->ended && pst_http_stream_backlog(st) > c->server->conf.stream_backlog_max)
            rc = -WS_POLICY;
        if (rc < 0) {
            st->ws->code = -rc;
            http_stream_drop(st, "");
        }
    }
    evbuffer_drain(in, evbuffer_get_length(in)); /* behind its end nothing is read */
}

static void beat(void *arg)
{
    pst_http_stream *st = arg;
    int64_t beat_us = (int64_t)st->conn->server->conf.heartbeat_ms * 1000;
    if (pst_mono_us() - st->ws->heard_us > SILENT_BEATS * beat_us)
        pst_http_stream_abort(st);
    else
        http_ws_put(st, WS_PING, "", 0);
}

bool pst_http_ws_wanted(const pst_http_req *r)
{
    return pst_http_header(r, "Sec-WebSocket-Key") != NULL;
}

/* True: accept is set. */
static bool shake_hands(pst_http_req *r, char accept[WS_ACCEPT_ROOM])
{
    const char *key = pst_http_header(r, "Sec-WebSocket-Key"), *version = pst_http_header(r, "Sec-WebSocket-Version");
    if (strcmp(r->head.method, "GET") || r->head.minor != 1 || !says(r, "Upgrade", "websocket") || !says(r, "Connection", "upgrade"))
        pst_http_problem(r, 400, "no-handshake", NULL,
                         "a websocket is asked for by GET with HTTP/1.1, Upgrade: websocket and Connection: Upgrade");
    else if (!version || strcmp(version, "13")) {
        pst_http_add_header(r, "Sec-WebSocket-Version", "13");
        pst_http_add_header(r, "Upgrade", "websocket");
        pst_http_problem(r, 426, "websocket-version", NULL, "the version of websockets that is spoken here is 13");
    } else if (!key || !http_ws_accept(key, accept))
        pst_http_problem(r, 400, "no-handshake", NULL, "Sec-WebSocket-Key must be 16 bytes in base64");
    else
        return true;
    return false;
}

pst_http_stream *pst_http_ws_open(pst_http_req *r, const char *protocol, void (*on_close)(void *arg), void *arg)
{
    char accept[WS_ACCEPT_ROOM];
    if (!shake_hands(r, accept))
        return NULL;
    pst_http_add_header(r, "Upgrade", "websocket");
    pst_http_add_header(r, "Connection", "Upgrade");
    pst_http_add_header(r, "Sec-WebSocket-Accept", accept);
    if (protocol && says(r, "Sec-WebSocket-Protocol", protocol))
        pst_http_add_header(r, "Sec-WebSocket-Protocol", protocol);
    pst_http_stream *st = http_stream_begin(r, 101, NULL, true, on_close, arg);
    if (st) {
        http_stream_beat(st, beat);
        bufferevent_trigger(st->conn->bev, EV_READ,
                            BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS); /* what came with the handshake */
    }
    return st;
}

void pst_http_stream_fail(pst_http_stream *st)
{
    if (!st->ws) {
        http_stream_fail(st);
        return;
    }
    st->ws->code = WS_INTERNAL;
    pst_http_stream_close(st);
}
