/* http.h - an HTTP/1.1 server on a pst_loop: routes, replies, event streams. For the gateway, the registry and /metrics.
 *
 *     static const pst_http_route routes[] = {
 *         {"GET", "/v1/jobs/{id}", show_job, 0, 0, "one job"},
 *         {"POST", "/v1/jobs", submit, 64 << 20, 0, "submit a job"},
 *         {"GET", "/events/stream", follow, 0, 0, "events as they come"}};
 *     pst_http_new(loop, &(pst_http_conf){.port = 8080}, &server, &err);
 *     pst_http_add_routes(server, routes, 3, gateway);
 *     static void show_job(void *arg, pst_http_req *req) { pst_http_reply_json(req, 200, job_json(arg, pst_http_param(req, "id"))); }
 *
 * Input is untrusted: the parser is our own (http_parse.h) because libevent's lets request smuggling, slow senders and unbounded
 * headers through. Refused before any handler runs: ambiguous lengths (400), foreign Host (421), foreign pages (403), other body types (415), bad
 * paths (400), large heads (431, 414), large bodies (413), slow heads and bodies (408), too many connections (503); http_guard.h has the rules.
 * With TLS (tls_cert) a client that speaks plain HTTP gets a sentence (400), and names beyond loopback get Strict-Transport-Security.
 * HEAD runs the GET handler and sends no body; OPTIONS, 404 and 405 with Allow are answered here. Sources: RFC 9110, 9112, 9457, WHATWG SSE.
 * Threads: everything belongs to the loop's thread; hand over from others with pst_loop_post. pst_http_thread_* wraps a thread of its own. */
#ifndef PST_LOOP_HTTP_H
#define PST_LOOP_HTTP_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/json.h"
#include "common/base/metrics.h"
#include "common/loop/loop.h"

typedef struct pst_http pst_http;
typedef struct pst_http_req pst_http_req;
typedef struct pst_http_stream pst_http_stream;

typedef struct pst_http_conf {
    const char *listen;       /* NULL = "127.0.0.1"; an IPv4 or IPv6 address, or "*" for all */
    int port;                 /* 0 = any free one: see pst_http_port */
    const char *name;         /* for logs; NULL = "http" */
    const char *const *hosts; /* names accepted in Host beside literal loopback addresses and localhost; NULL-terminated; NULL = none */
    const char *tls_cert, *tls_key; /* PEM files: the certificate with its chain, and its key; read again when they change. NULL = no TLS */
    const char *const *types;       /* types accepted of bodies, lower case; NULL-terminated, borrowed; NULL = any */
    size_t header_bytes_max;        /* 0 = 16 KiB, whole head; at most 64 fields, 8 KiB of target */
    size_t body_bytes_max;          /* 0 = 1 MiB; a route may say otherwise */
    size_t bodies_bytes_max;        /* all bodies held at once; 0 = 256 MiB; beyond: 503 */
    size_t stream_backlog_max;      /* bytes a stream's client may lag behind before it is dropped; 0 = 1 MiB */
    int connections_max;            /* 0 = 1024 */
    int connections_per_peer_max;   /* one remote address; 0 = 32; loopback peers are not counted */
    int header_timeout_ms;          /* first byte to end of head; 0 = 10 s */
    int body_timeout_ms;            /* plus one second for each 16 KiB of body; 0 = 10 s */
    int idle_timeout_ms;            /* kept-alive connection without a request; 0 = 60 s */
    int write_timeout_ms;           /* no byte taken by the client for so long; 0 = 30 s */
    int heartbeat_ms;               /* comment on quiet SSE streams; 0 = 15 s */
} pst_http_conf;

/* Must end in exactly one of: pst_http_reply…, pst_http_problem, pst_http_stream_open, pst_http_sse_open — at once or later. Until then req
 * stays valid, also when the client has gone (the reply is dropped then). */
typedef void (*pst_http_handler)(void *arg, pst_http_req *req);

enum {
    PST_HTTP_SLASH = 1,         /* {params} may hold an encoded slash (%2F); otherwise such a path is refused */
    PST_HTTP_MULTIPART = 2,     /* the body is multipart/form-data (multipart.h) and nothing else, whatever conf's types are */
    PST_HTTP_BYTES = 4,         /* the body is JSON, or bytes: application/octet-stream, or of no type at all */
    PST_HTTP_UPLOAD = 8,        /* the body may be multipart/form-data as well as one of conf's types */
    PST_HTTP_FORM = 16,         /* the body is what a page's own <form> sends: application/x-www-form-urlencoded, and nothing else */
    PST_HTTP_ANY_TYPE = 32,     /* the body is bytes, whatever is said of their type; forms are refused as everywhere */
    PST_HTTP_USER_FLAG = 1 << 8 /* this one and higher ones mean what the filter wants them to mean */
};

typedef struct pst_http_route {
    const char *method; /* "GET", … ; "*" = any */
    const char
        *pattern; /* "/subjects/{subject}/versions/{version}"; a last "{rest*}" takes what remains, slashes included (may be empty) */
    pst_http_handler handler;
    size_t body_bytes_max; /* 0 = conf's */
    unsigned flags;
    const char *doc; /* what it does, for docs/reference/http.md; NULL = not listed there */
} pst_http_route;
typedef struct pst_http_routes {
    const pst_http_route *at;
    size_t n;
} pst_http_routes;

/* Binds and listens. PST_EEXIST when the port is taken, PST_EINVAL for an address that does not parse. conf's texts are copied. */
int pst_http_new(pst_loop *l, const pst_http_conf *conf, pst_http **ret_server, pst_err *err);
/* routes is borrowed for the server's life; the first that matches wins, in order of adding. */
void pst_http_add_routes(pst_http *s, const pst_http_route *routes, size_t n, void *arg);
/* Runs before every handler and before bodies are read; a filter that replied (authentication, rate limits) returns false. One that needs time to decide
 * returns false, too, and later replies, or lets the request go on with pst_http_resume. */
void pst_http_set_filter(pst_http *s, bool (*fn)(void *arg, pst_http_req *req), void *arg);
/* Runs behind the filter, for requests whose route was found, before their body is read: are they as the route wants them? As a filter. */
void pst_http_set_check(pst_http *s, bool (*fn)(void *arg, pst_http_req *req), void *arg);
/* A request that the filter kept goes on as if it had returned true: its body is read, its handler called. Consumes r, also where its client has gone. */
void pst_http_resume(pst_http_req *r);
/* A first segment that paths may begin with, and that is taken off before anything looks at them: /SEGMENT/v1/jobs is /v1/jobs. For cookies that
 * are to be shown below one place alone. One that ends with "*" stands for every segment that begins so: pst_http_place tells which it was. */
void pst_http_set_place(pst_http *s, const char *segment);
/* What is answered when no route matches; default: a 404 problem. Same duties as a handler. status 404 or 405 (Allow is set already). */
void pst_http_set_fallback(pst_http *s, void (*fn)(void *arg, pst_http_req *req, int status), void *arg);
/* How problems are said, where a path has a form of its own for them: fn answers r and returns true, or leaves it to pst_http_problem. Called for
 * refusals before any route is found, too: pst_http_path is NULL until the head is read. detail may be NULL. */
void pst_http_set_problem(pst_http *s, bool (*fn)(void *arg, pst_http_req *req, int status, const char *detail), void *arg);
int pst_http_port(const pst_http *s);
const char *pst_http_url(const pst_http *s); /* "http://127.0.0.1:8080" */
bool pst_http_is_loopback(const pst_http *s);
bool pst_http_is_tls(const pst_http *s);
/* fn is told of every answer when it begins, also where its client has gone; data is still there. One at a time; NULL = none any more. */
void pst_http_set_replied(pst_http *s, void (*fn)(void *arg, const pst_http_req *req, int status), void *arg);
/* Ends the open streams for whose data (pst_http_set_data; may be NULL) stays says false: event streams with the comment why, websockets with 1008, files broken off. */
void pst_http_end_streams(pst_http *s, bool (*stays)(void *arg, const void *data), void *arg, const char *why);
/* No new connections; idle ones closed; streams end with a comment; the others end with their reply. done(arg) once none is left. */
void pst_http_drain(pst_http *s, void (*done)(void *arg), void *arg);
/* Closes everything now, streams with on_close. Requests not answered yet stay valid until answered. Not from within a handler or on_close. */
void pst_http_free(pst_http *s);
/* {requests, refused, open connections, open streams, streams dropped}. */
void pst_http_counts(const pst_http *s, uint64_t ret_counts[5]);
/* The same for dumps, as member `http`. */
void pst_http_dump(const pst_http *s, json_t *to);
/* The answer to GET /metrics, in Prometheus' text format. */
void pst_http_reply_metrics(pst_http_req *r, pst_metrics *set);
/* The answer to GET /state: the dump, or 503 for NULL. */
void pst_http_reply_dump(pst_http_req *r, json_t *take);

/* ---- the request; all texts are NUL-terminated, decoded once, valid until the reply ---------------------------------------- */

const char *pst_http_method(const pst_http_req *r);                  /* as sent: HEAD stays HEAD */
const char *pst_http_path(const pst_http_req *r);                    /* decoded; for logs: route on params; NULL: not read yet */
const char *pst_http_target(const pst_http_req *r);                  /* as sent, with query */
const char *pst_http_pattern(const pst_http_req *r);                 /* of the route that matched, for metrics; "" if none */
const pst_http_route *pst_http_route_of(const pst_http_req *r);      /* the route that matched, as it was added; NULL if none */
const char *pst_http_param(const pst_http_req *r, const char *name); /* {name}; NULL if the pattern has none */
const char *pst_http_query(const pst_http_req *r, const char *name); /* first value; "" for "?name"; NULL if absent */
bool pst_http_query_bool(const pst_http_req *r, const char *name);   /* true for true, 1, yes and "?name" */
int64_t pst_http_query_int(const pst_http_req *r, const char *name, int64_t def); /* def when absent or no number */
size_t pst_http_query_count(const pst_http_req *r);
const char *pst_http_query_at(const pst_http_req *r, size_t i, const char **ret_name);
const char *pst_http_header(const pst_http_req *r, const char *name); /* any case; first one; NULL */
void pst_http_take_body(pst_http_req *r, pst_buf *ret_body);          /* no longer one of the bodies held at once: the caller bounds it */
pst_slice pst_http_body(const pst_http_req *r);                       /* followed by a NUL */
const char *pst_http_remote(const pst_http_req *r);                   /* "127.0.0.1:50312" */
const char *pst_http_peer(const pst_http_req *r);                     /* its address alone; "" once the client has gone */
bool pst_http_gone(const pst_http_req *r);                            /* the client has left */
bool pst_http_is_local(const pst_http_req *r);                        /* it came from a loopback address */
/* The cookie of that name; free(), or NULL. */
char *pst_http_cookie(const pst_http_req *r, const char *name);
/* Basic authorization: user and password (free() both), or PST_ENOTFOUND without, PST_EPARSE when malformed. */
int pst_http_basic(const pst_http_req *r, char **ret_user, char **ret_password);
/* Does the request show this token, as a bearer or as basic auth's password? Compared in constant time. */
bool pst_http_shows_token(const pst_http_req *r, const char *token);
/* The same for the token of a file (secret.h); a request that does not show it is answered here: 401, or 403 where there is no such file. */
bool pst_http_asks_token(pst_http_req *r, const char *token_path);
const char *pst_http_place(const pst_http_req *r); /* the segment that was taken off its path (pst_http_set_place), or NULL */
/* One pointer for filter and handler; free_data (may be NULL) ends it with the request, or the stream that it became, or with the next one that is set. */
void pst_http_set_data(pst_http_req *r, void *data, void (*free_data)(void *data));
void *pst_http_data(const pst_http_req *r);

/* ---- the reply ------------------------------------------------------------------------------------------------------------- */

/* A further header of the reply to come; line breaks and controls in value are dropped. */
void pst_http_add_header(pst_http_req *r, const char *name, const char *value);
void pst_http_set_header(pst_http_req *r, const char *name, const char *value); /* instead of one of that name, where there is one */
void pst_http_reply(pst_http_req *r, int status, const char *content_type, const void *body, size_t len); /* copies; consumes r */
void pst_http_reply_text(pst_http_req *r, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void pst_http_reply_json(pst_http_req *r, int status, json_t *take); /* takes the reference */
/* RFC 9457: {"type":"about:blank","title","status","detail","code"} as application/problem+json. code: a stable word ("unknown-job");
 * title NULL = the status's words; detail NULL = none. */
void pst_http_problem(pst_http_req *r, int status, const char *code, const char *title, const char *detail);
/* The same from an error: NOTFOUND 404, EXIST/STATE 409, INCOMPAT 409, LIMIT 413, AUTH 403, INVAL/PARSE 400, UNREACH 503, TIMEDOUT 504, else 500. */
void pst_http_problem_err(pst_http_req *r, const pst_err *err);
const char *pst_http_status_text(int status);

/* ---- streams --------------------------------------------------------------------------------------------------------------- */

/* A reply of unknown length (chunked). on_close is called once, from the loop, when the stream ended by anything but pst_http_stream_close: client
 * gone, too slow, server draining; the stream is gone when it returns. May be NULL. Consumes r. Returns NULL, without on_close, when the client
 * has gone already. */
pst_http_stream *pst_http_stream_open(pst_http_req *r, int status, const char *content_type, void (*on_close)(void *arg), void *arg);
/* 0, or PST_ELIMIT: the backlog is full, the client is being dropped, on_close follows; write nothing more. */
int pst_http_stream_write(pst_http_stream *st, const void *data, size_t len);
size_t pst_http_stream_backlog(const pst_http_stream *st);
/* fn is called whenever the backlog has emptied: producers that can wait (files, replays) write the next piece then. */
void pst_http_stream_on_drained(pst_http_stream *st, void (*fn)(void *arg));
/* A file: if it ends by anything but pst_http_stream_close it is broken off, so that nobody takes a part for all of it. */
void pst_http_stream_whole(pst_http_stream *st);
void pst_http_stream_close(pst_http_stream *st); /* ends it properly; no on_close */

void pst_http_stream_abort(pst_http_stream *st); /* the connection is closed now, unsent bytes are thrown away; on_close is called */

/* A websocket (RFC 6455) that only the server speaks on: each write is one text frame, UTF-8; what the client says is weighed and thrown away, pings are
 * answered, a client that answers none of ours is dropped. Ended as any stream; on_close, backlog and on_drained are the same.
 * A request wants one where it sends Sec-WebSocket-Key. A handshake that is none is answered here: 400, or 426. protocol: is echoed where the
 * client offers it; may be NULL. Consumes req. NULL, without on_close: refused, or the client has gone. */
bool pst_http_ws_wanted(const pst_http_req *r);
pst_http_stream *pst_http_ws_open(pst_http_req *r, const char *protocol, void (*on_close)(void *arg), void *arg);
/* As pst_http_stream_close, for what could not go on: a close frame with 1011; any other stream is broken off, so that nobody takes it for whole. */
void pst_http_stream_fail(pst_http_stream *st);

/* Server-sent events: headers, heartbeats and the retry hint are set. Last-Event-ID: pst_http_last_event_id(req) before opening. */
pst_http_stream *pst_http_sse_open(pst_http_req *r, void (*on_close)(void *arg), void *arg);
/* id, event may be NULL; line breaks in data become several data lines. Returns as pst_http_stream_write. */
int pst_http_sse_send(pst_http_stream *st, const char *id, const char *event, const char *data, size_t len);
int pst_http_sse_comment(pst_http_stream *st, const char *text);
/* An event that many streams send: its bytes are there once, however many clients have not taken them yet. Counted by the loop's thread. */
typedef struct pst_http_piece pst_http_piece;
/* As pst_http_sse_send. live (may be NULL) is raised by the size while the piece is in memory, and must outlive it. */
pst_http_piece *pst_http_piece_new(const char *id, const char *event, const char *data, size_t len, size_t *live);
/* The same event, which must have an id, with another one. */
pst_http_piece *pst_http_piece_as(const pst_http_piece *p, const char *id, size_t *live);
void pst_http_piece_unref(pst_http_piece *p); /* NULL-safe */
size_t pst_http_piece_size(const pst_http_piece *p);
int pst_http_stream_send(pst_http_stream *st, pst_http_piece *p); /* borrows p; returns as pst_http_stream_write */
/* Header Last-Event-ID, or ?last_event_id= (EventSource cannot set headers on its first request); NULL if neither. */
const char *pst_http_last_event_id(const pst_http_req *r);

/* ---- a server in a thread of its own --------------------------------------------------------------------------------------- */

typedef struct pst_http_thread pst_http_thread;
#define PST_HTTP_HOST_MAX 128
/* What an option says of where to listen: PORT (on loopback) or ADDRESS:PORT; PST_EINVAL names the option. */
int pst_http_listen_parse(const char *option, const char *text, char ret_host[PST_HTTP_HOST_MAX], int *ret_port, pst_err *err);
/* Handlers run on that thread. It ignores SIGTERM's flag and ends by pst_http_thread_stop. */
int pst_http_thread_start(const pst_http_conf *conf, const pst_http_route *routes, size_t n, void *arg, pst_http_thread **ret_thread,
                          pst_err *err);
/* GET /metrics (text 0.0.4) from set, and /health: 200 when health(arg, why) is 0, else 503 with why; health NULL = always 200. */
int pst_http_thread_metrics(const pst_http_conf *conf, pst_metrics *set, int (*health)(void *arg, pst_buf *why), void *arg,
                            pst_http_thread **ret_thread, pst_err *err);
extern const pst_http_routes pst_http_thread_routes; /* those of pst_http_thread_metrics */
/* From now on GET /state asks d (dump.h) and answers who shows the token of that file; before it is 404. d outlives the thread. */
void pst_http_thread_set_dump(pst_http_thread *t, pst_dump *d, const char *token_path);
int pst_http_thread_port(const pst_http_thread *t);
void pst_http_thread_stop(pst_http_thread *t); /* joins; NULL-safe */

#endif
