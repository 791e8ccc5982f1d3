/* pour.h - a thread that reads, and a client that takes what it reads at its own pace: chunks or a websocket, whichever the request wants.
 *
 *     thread:  source.run ── gw_pour_put ──► a queue of 256 KiB ── loop ──► the stream's buffer of 64 KiB ──► client
 *
 * A client that takes nothing stops its thread, which waits; one that goes away ends it. So memory is bounded, whatever is read and whoever reads.
 * At most POURS_MAX at once; beyond: 503. */
#ifndef PST_PRODUCERS_GATEWAY_POUR_H
#define PST_PRODUCERS_GATEWAY_POUR_H

#include "producers/gateway/gateway.h"

typedef struct gw_pour gw_pour;

typedef struct gw_source {
    const char *name; /* of its thread */
    const char *type; /* Content-Type, where it is no websocket */
    bool whole;       /* a file: no part of it may look like all of it */
    bool at_once;     /* the client is answered before there is anything; else an error that comes first is a refusal */
    int (*run)(void *arg, gw_pour *p, pst_err *err); /* on the thread; what it put is the answer. < 0: the answer breaks off (1011) */
    void (*done)(void *arg);                         /* frees arg, in every case. @thread any */
    void *arg;
} gw_source;

enum { GW_POURS_MAX = 32 };

/* Takes req and source.arg. @thread loop */
void gw_pour_start(gw_state *g, pst_http_req *req, const gw_source *source);
/* One frame of a websocket, UTF-8; else any bytes. Waits while the queue is full. False: nobody takes it any more, or the gateway ends. @thread the source's */
bool gw_pour_put(gw_pour *p, const char *data, size_t len);
/* All that is left of a file; closes it. @thread the source's */
int gw_pour_file(gw_pour *p, int fd, pst_err *err);
/* True once nobody takes it any more: for what waits elsewhere. Lives as long as run. */
const _Atomic bool *gw_pour_gone(const gw_pour *p);
/* Waits so long, or until it is over: false. @thread the source's */
bool gw_pour_pause(gw_pour *p, int ms);
/* Is it a websocket? */
bool gw_pour_is_ws(const gw_pour *p);

#endif
