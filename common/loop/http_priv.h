/* http_priv.h - the inside of the HTTP server, shared by http_server.c, http_conn.c, http_route.c (request views), http_reply.c and
 * http_stream.c. A connection handles one request at a time; pipelined bytes wait in its input buffer. */
#ifndef PST_LOOP_HTTP_PRIV_H
#define PST_LOOP_HTTP_PRIV_H

#include "common/loop/http.h"
#include "common/loop/http_parse.h"
#include "common/loop/http_tls.h"
#include "common/loop/loop_priv.h"
#include "common/loop/ws_frame.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>

typedef struct conn conn;

typedef struct route_entry {
    const pst_http_route *route;
    void *arg;
} route_entry;

struct pst_http {
    pst_loop *loop;
    pst_http_conf conf; /* defaults filled in */
    char *name, *listen_text, *url, *place;
    char **hosts;
    int fd, port;
    bool loopback, draining;
    struct event *accept_ev, *accept_retry;
    http_tls *tls; /* NULL: none */
    route_entry *routes;
    size_t n_routes;
    bool (*filter)(void *arg, pst_http_req *req);
    void *filter_arg;
    bool (*check)(void *arg, pst_http_req *req);
    void *check_arg;
    void (*fallback)(void *arg, pst_http_req *req, int status);
    void *fallback_arg;
    bool (*problem)(void *arg, pst_http_req *req, int status, const char *detail);
    void *problem_arg;
    void (*replied)(void *arg, const pst_http_req *req, int status);
    void *replied_arg;
    void (*drained)(void *arg);
    void *drained_arg;
    conn *conns;
    int n_conns;
    size_t bodies_bytes;
    pst_http_req *reqs; /* all that live, also those whose client has gone */
    uint64_t requests, refused, streams_open, streams_dropped;
};

typedef enum {
    CONN_HEAD, /* waiting for, or in the middle of, a head */
    CONN_BODY,
    CONN_BUSY,   /* a handler has the request */
    CONN_FLUSH,  /* the reply is being sent */
    CONN_STREAM, /* an open stream */
    CONN_LINGER  /* reply sent, we half-closed; what still comes is thrown away so that the reply is not lost to a reset */
} conn_state;

struct conn {
    pst_http *server;
    struct bufferevent *bev; /* NULL: its first byte is awaited, which says whether it speaks TLS; until then */
    struct event *hello;     /* waits for that, and */
    int fd;                  /* is ours */
    struct event *deadline;
    conn *prev, *next;
    conn_state state;
    char remote[72], peer[64];
    bool peer_loopback, close_after, eof, head_begun;
    bool tls, plain; /* plain: it speaks none where it is asked for */
    size_t scanned, lingered;
    http_chunks chunks;
    pst_http_req *req;
    pst_http_stream *stream;
};

typedef struct out_header {
    char *name, *value;
} out_header;

struct pst_http_req {
    conn *conn;       /* NULL once the client has gone */
    pst_http *server; /* NULL once the server has gone */
    pst_http_req *prev, *next;
    char *raw;    /* bytes of the head */
    char *target; /* copy, as sent */
    char *room;   /* decoded path and query */
    char *path_text;
    http_head head;
    http_parts path;
    const pst_http_route *route;
    void *route_arg;
    http_field params[8];
    size_t n_params;
    char *rest; /* value of {rest*} */
    pst_buf body;
    size_t body_max, counted;
    char remote[72];
    out_header *headers;
    size_t n_headers;
    bool head_only, keep;
    bool wants_keep; /* of a request that the filter keeps: what keep is again when it goes on */
    int found;       /* likewise: what http_route_find said */
    char allow[128];
    const char *place;
    void *data;
    void (*free_data)(void *data);
};

typedef struct http_ws {
    http_ws_reader in;
    int code;         /* that our close frame carries */
    int64_t heard_us; /* the client's last byte */
} http_ws;

struct pst_http_stream {
    conn *conn;
    http_ws *ws; /* NULL: no websocket */
    bool chunked, sse, head_only, ended, whole;
    pst_timer *heartbeat;
    void (*on_close)(void *arg);
    void (*on_drained)(void *arg);
    void *arg;
    void *data; /* its request's */
    void (*free_data)(void *data);
    int64_t last_us;
};

/* http_route.c */
enum { ROUTE_FOUND = 0 };
pst_http_req *http_req_new(conn *c);
/* ROUTE_FOUND (req->route, params set), or 404, 405, 400 (why set). Allowed methods go to allow (≥ 128 bytes). */
int http_route_find(pst_http *s, pst_http_req *r, char allow[128], const char **ret_why);
void http_req_free(pst_http_req *r);

/* http_conn.c */
void http_conn_start(pst_http *s, conn *c, int fd); /* c: zeroed but for the peer's address */
void http_conn_replied(conn *c, bool keep);         /* the reply is in the output buffer; ownership of c->req is gone */
void http_conn_close(conn *c);                      /* now; ends its stream */
void http_conn_deadline(conn *c, int64_t ms);

/* http_reply.c */
void http_told(const pst_http_req *r, int status); /* the answer begins: who wants to know is told */
void http_reply_head(pst_http_req *r, struct evbuffer *out, int status, const char *type,
                     int64_t length); /* length -1 = unknown: close, -2 = chunked */

/* http_stream.c */
void http_stream_conn_gone(pst_http_stream *st); /* the connection died under it: frees it after on_close */
void http_stream_flushed(pst_http_stream *st);
void http_stream_drain(pst_http_stream *st); /* the server wants to end it */
/* The stream takes the request's place on its connection; the head is written. NULL: the client has gone. Consumes r. */
pst_http_stream *http_stream_begin(pst_http_req *r, int status, const char *type, bool ws, void (*on_close)(void *arg), void *arg);
/* Ended by us, not by its user: what is last, then the connection has a few seconds to take what is there. */
void http_stream_fail(pst_http_stream *st); /* not a websocket: breaks it off */
void http_stream_drop(pst_http_stream *st, const char *why);
void http_stream_beat(pst_http_stream *st, void (*fn)(void *arg)); /* fn(st), every heartbeat */

/* http_ws.c */
void http_ws_put(pst_http_stream *st, int opcode, const void *data, size_t len);
void http_ws_put_close(pst_http_stream *st);
void http_ws_read(conn *c); /* what the client says on a websocket */

#endif
