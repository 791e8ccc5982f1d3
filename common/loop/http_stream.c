/* http_stream.c - replies of unknown length: chunked pieces, server-sent events, heartbeats, the bound on a slow client's backlog. A websocket is such a
 * stream, too, whose pieces are frames (http_ws.c). */
#include "common/loop/http_priv.h"

#include "common/base/clock.h"

#include <stdlib.h>
#include <string.h>

#define FINAL_FLUSH_MS 5000 /* what a dropped or drained client gets to take the rest */

static void put(pst_http_stream *st, const void *data, size_t len)
{
    struct evbuffer *out = bufferevent_get_output(st->conn->bev);
    if (st->head_only || len == 0)
        return;
    if (st->ws) {
        http_ws_put(st, WS_TEXT, data, len);
        return;
    }
    if (st->chunked)
        evbuffer_add_printf(out, "%zx\r\n", len);
    evbuffer_add(out, data, len);
    if (st->chunked)
        evbuffer_add(out, "\r\n", 2);
    st->last_us = pst_mono_us();
}

/* Ends the reply; the stream object stays until the connection or its user lets go of it. */
static void finish(pst_http_stream *st)
{
    conn *c = st->conn;
    if (st->ended)
        return;
    PST_ASSERT(c->stream == st && c->state == CONN_STREAM);
    st->ended = true;
    if (st->ws)
        http_ws_put_close(st);
    else if (st->chunked && !st->head_only)
        evbuffer_add(bufferevent_get_output(c->bev), "0\r\n\r\n", 5);
    pst_timer_free(st->heartbeat);
    st->heartbeat = NULL;
}

static void stream_free(pst_http_stream *st)
{
    pst_timer_free(st->heartbeat);
    if (st->data && st->free_data)
        st->free_data(st->data);
    free(st->ws);
    free(st);
}

static void on_heartbeat(void *arg)
{
    pst_http_stream *st = arg;
    if (pst_mono_us() - st->last_us >= (int64_t)st->conn->server->conf.heartbeat_ms * 500)
        put(st, ": still here\n\n", 14);
}

pst_http_stream *http_stream_begin(pst_http_req *r, int status, const char *type, bool ws, void (*on_close)(void *arg), void *arg)
{
    pst_http_stream *st = pst_alloc(sizeof *st);
    if (ws) {
        st->ws = pst_alloc(sizeof *st->ws);
        st->ws->code = WS_NORMAL;
        st->ws->heard_us = pst_mono_us();
    }
    st->on_close = on_close;
    st->arg = arg;
    st->head_only = r->head_only;
    st->last_us = pst_mono_us();
    http_told(r, status);
    st->data = r->data;
    st->free_data = r->free_data;
    r->data = NULL;
    conn *c = r->conn;
    if (c) {
        PST_ASSERT(c->req == r && !c->stream && c->state == CONN_BUSY);
        st->chunked = r->head.minor == 1 && !ws;
        r->keep = ws || (r->keep && st->chunked && !c->server->draining); /* a websocket's head says nothing of closing */
        http_reply_head(r, bufferevent_get_output(c->bev), status, type, st->chunked ? -2 : -1);
        st->conn = c;
        c->stream = st;
        c->req = NULL;
        c->state = CONN_STREAM;
        c->close_after = ws || !r->keep;
        c->server->streams_open++;
        http_conn_deadline(c, c->eof ? 1 : -1); /* a client that has left: its stream ends at the next turn of the loop */
        if (st->head_only)
            finish(st);
    }
    http_req_free(r);
    if (!c) {
        stream_free(st);
        return NULL;
    }
    return st;
}

pst_http_stream *pst_http_stream_open(pst_http_req *r, int status, const char *content_type, void (*on_close)(void *arg), void *arg)
{
    return http_stream_begin(r, status, content_type, false, on_close, arg);
}

void http_stream_beat(pst_http_stream *st, void (*fn)(void *arg))
{
    int64_t us = (int64_t)st->conn->server->conf.heartbeat_ms * 1000;
    PST_ASSERT(!st->heartbeat);
    st->heartbeat = pst_timer_new(st->conn->server->loop, us, us, fn, st);
}

size_t pst_http_stream_backlog(const pst_http_stream *st)
{
    return evbuffer_get_length(bufferevent_get_output(st->conn->bev));
}

/* Ends it without the last chunk, at once or when what is on its way is sent. The connection closes. */
static void break_off(pst_http_stream *st, int64_t ms)
{
    st->ended = true;
    pst_timer_free(st->heartbeat);
    st->heartbeat = NULL;
    st->conn->close_after = true;
    http_conn_deadline(st->conn, ms);
}

void pst_http_stream_whole(pst_http_stream *st)
{
    PST_ASSERT(!st->ws && !st->sse);
    st->whole = true;
}

void http_stream_fail(pst_http_stream *st)
{
    st->on_close = NULL;
    if (!st->ended)
        break_off(st, 1); /* at the next turn of the loop: a handler may be in the midst of this connection */
}

void http_stream_drop(pst_http_stream *st, const char *why)
{
    if (st->ended)
        return;
    if (st->whole) {
        break_off(st, FINAL_FLUSH_MS);
        return;
    }
    if (st->sse)
        put(st, why, strlen(why));
    finish(st);
    st->conn->close_after = true;
    http_conn_deadline(st->conn, FINAL_FLUSH_MS);
}

/* Room for len more bytes; a client that has none left is on its way out. */
static bool fits(pst_http_stream *st, size_t len)
{
    if (st->ended)
        return false;
    pst_http *s = st->conn->server;
    if (pst_http_stream_backlog(st) + len <= s->conf.stream_backlog_max)
        return true;
    s->streams_dropped++;
    if (st->ws)
        st->ws->code = WS_POLICY;
    http_stream_drop(st, ": dropped: this client reads too slowly; reconnect with Last-Event-ID\n\n");
    return false;
}

int pst_http_stream_write(pst_http_stream *st, const void *data, size_t len)
{
    if (!fits(st, len))
        return PST_ELIMIT;
    put(st, data, len);
    return PST_OK;
}

void pst_http_stream_on_drained(pst_http_stream *st, void (*fn)(void *arg))
{
    st->on_drained = fn;
}

void pst_http_stream_close(pst_http_stream *st)
{
    conn *c = st->conn;
    PST_ASSERT(c->stream == st && c->server->streams_open);
    st->on_close = NULL;
    finish(st);
    c->stream = NULL;
    c->server->streams_open--;
    stream_free(st);
    http_conn_replied(c, !c->close_after);
}

void pst_http_stream_abort(pst_http_stream *st)
{
    http_conn_close(st->conn);
}

void http_stream_conn_gone(pst_http_stream *st)
{
    PST_ASSERT(st->conn->stream == st && st->conn->server->streams_open);
    st->conn->server->streams_open--;
    st->conn->stream = NULL;
    st->ended = true;
    if (st->on_close)
        st->on_close(st->arg);
    stream_free(st);
}

void http_stream_flushed(pst_http_stream *st)
{
    if (st->ended) {
        conn *c = st->conn;
        http_stream_conn_gone(st);
        http_conn_replied(c, false);
    } else if (st->on_drained) {
        st->on_drained(st->arg);
    }
}

/* None is closed here: each has what is on its way to take still, and its on_close follows. */
void pst_http_end_streams(pst_http *s, bool (*stays)(void *arg, const void *data), void *arg, const char *why)
{
    pst_buf text = {0};
    pst_buf_printf(&text, ": %s\n\n", why);
    for (const conn *c = s->conns; c; c = c->next) {
        pst_http_stream *st = c->stream;
        if (!st || st->ended || stays(arg, st->data))
            continue;
        if (st->ws)
            st->ws->code = WS_POLICY;
        http_stream_drop(st, text.data);
    }
    pst_buf_done(&text);
}

void http_stream_drain(pst_http_stream *st)
{
    if (st->ws)
        st->ws->code = WS_AWAY;
    http_stream_drop(st, ": the server is shutting down\n\n");
}

/* ---- server-sent events ---------------------------------------------------------------------------------------------------- */

pst_http_stream *pst_http_sse_open(pst_http_req *r, void (*on_close)(void *arg), void *arg)
{
    pst_http_add_header(r, "Cache-Control", "no-cache, no-transform");
    pst_http_add_header(r, "X-Accel-Buffering", "no");
    pst_http_stream *st = pst_http_stream_open(r, 200, "text/event-stream; charset=utf-8", on_close, arg);
    if (!st)
        return NULL;
    st->sse = true;
    put(st, "retry: 2000\n\n", 13);
    http_stream_beat(st, on_heartbeat);
    return st;
}

/* One line of a field; what would end the line early becomes a space. */
static void field(pst_buf *b, const char *name, const char *value)
{
    pst_buf_adds(b, name);
    for (; *value; value++)
        pst_buf_addc(b, *value == '\n' || *value == '\r' ? ' ' : *value);
    pst_buf_addc(b, '\n');
}

/* The event as it travels. */
static void encode(pst_buf *b, const char *id, const char *event, const char *data, size_t len)
{
    if (id)
        field(b, "id: ", id);
    if (event)
        field(b, "event: ", event);
    const char *p = data, *end = data + len;
    do {
        const char *stop = p;
        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        pst_buf_adds(b, "data: ");
        pst_buf_add(b, p, (size_t)(stop - p));
        pst_buf_addc(b, '\n');
        p = stop + (stop + 1 < end && stop[0] == '\r' && stop[1] == '\n' ? 2 : 1);
    } while (p < end);
    pst_buf_addc(b, '\n');
}

int pst_http_sse_send(pst_http_stream *st, const char *id, const char *event, const char *data, size_t len)
{
    pst_buf b = {0};
    encode(&b, id, event, data, len);
    int rc = pst_http_stream_write(st, b.data, b.len);
    pst_buf_done(&b);
    return rc;
}

/* ---- one event for many streams ---- */

struct pst_http_piece {
    char *bytes; /* the event with the framing of a chunk before and behind it */
    size_t len, before, *live;
    size_t refs; /* the owner's and one for each output buffer that has not sent it yet */
};

static pst_http_piece *piece_of(pst_buf *b, size_t *live)
{
    pst_http_piece *p = pst_alloc(sizeof *p);
    pst_buf framed = {0};
    pst_buf_printf(&framed, "%zx\r\n", b->len);
    size_t before = framed.len;
    pst_buf_add(&framed, b->data, b->len);
    pst_buf_adds(&framed, "\r\n");
    pst_buf_done(b);
    /* Thousands of them are kept: not a byte more than needed. */
    *p = (pst_http_piece){.bytes = pst_realloc(framed.data, framed.len), .len = framed.len, .before = before, .live = live, .refs = 1};
    if (live)
        *live += p->len;
    return p;
}

pst_http_piece *pst_http_piece_new(const char *id, const char *event, const char *data, size_t len, size_t *live)
{
    pst_buf b = {0};
    encode(&b, id, event, data, len);
    return piece_of(&b, live);
}

pst_http_piece *pst_http_piece_as(const pst_http_piece *p, const char *id, size_t *live)
{
    pst_buf b = {0};
    const char *event = p->bytes + p->before, *end = p->bytes + p->len - 2;
    PST_ASSERT(!strncmp(event, "id: ", 4));
    const char *rest = (const char *)memchr(event, '\n', (size_t)(end - event)) + 1;
    field(&b, "id: ", id);
    pst_buf_add(&b, rest, (size_t)(end - rest));
    return piece_of(&b, live);
}

void pst_http_piece_unref(pst_http_piece *p)
{
    if (!p)
        return;
    PST_ASSERT(p->refs);
    if (--p->refs)
        return;
    PST_ASSERT(!p->live || *p->live >= p->len);
    if (p->live)
        *p->live -= p->len;
    free(p->bytes);
    free(p);
}

size_t pst_http_piece_size(const pst_http_piece *p)
{
    return p->len;
}

static void sent(const void *data, size_t len, void *piece)
{
    pst_http_piece_unref(piece);
}

int pst_http_stream_send(pst_http_stream *st, pst_http_piece *p)
{
    PST_ASSERT(!st->ws); /* a piece is framed as an event */
    if (!fits(st, p->len))
        return PST_ELIMIT;
    if (st->head_only)
        return PST_OK;
    struct evbuffer *out = bufferevent_get_output(st->conn->bev);
    /* One reference and nothing beside it: what libevent adds behind a reference gets a buffer as large as that. */
    const char *from = st->chunked ? p->bytes : p->bytes + p->before;
    size_t len = st->chunked ? p->len : p->len - p->before - 2;
    PST_ASSERT(p->refs);
    p->refs++;
    if (evbuffer_add_reference(out, from, len, sent, p) < 0)
        PST_ASSERT(!"no memory");
    st->last_us = pst_mono_us();
    return PST_OK;
}

int pst_http_sse_comment(pst_http_stream *st, const char *text)
{
    pst_buf b = {0};
    field(&b, ": ", text);
    pst_buf_addc(&b, '\n');
    int rc = pst_http_stream_write(st, b.data, b.len);
    pst_buf_done(&b);
    return rc;
}
