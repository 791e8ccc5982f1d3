/* registry_server.h - the registry as a running thing on a loop: HTTP → core → log. Inside the registry server only (and its tests). */
#ifndef PST_DEPLOY_REGISTRY_REGISTRY_SERVER_H
#define PST_DEPLOY_REGISTRY_REGISTRY_SERVER_H

#include "common/bus/bus.h"
#include "common/loop/http.h"

typedef struct rserver_conf {
    const pst_bus_conf *bus;
    const char *topic; /* NULL = "_schemas" */
    bool embedded, force;
    const char *listen;
    int port;
    const char *const *hosts;    /* names accepted in Host beside loopback's; NULL-terminated; NULL = none */
    const char *user, *password; /* basic auth asked of every client; user "" = any; NULL = none */
    const char *token_path;      /* whose token /state asks for where no password is asked for; NULL = /state is not there */
    int write_timeout_ms;        /* a client waits so long for its write; 0 = 5000 */
} rserver_conf;

typedef struct rserver rserver;

/* Listens at once and answers 503 until the topic has been read. fatal(arg) is called when it cannot go on; rserver_failure says why. */
int rserver_new(pst_loop *l, const rserver_conf *conf, void (*fatal)(void *arg), void *arg, rserver **ret_server, pst_err *err);
const char *rserver_url(const rserver *s);
bool rserver_ready(const rserver *s);
const pst_err *rserver_failure(const rserver *s);
void rserver_dump(void *arg, json_t *to);                           /* dump.h; arg is the rserver. @thread loop */
void rserver_set_dump(rserver *s, pst_dump *d);                     /* for SIGUSR1 and GET /state; outlives the loop */
void rserver_drain(rserver *s, void (*done)(void *arg), void *arg); /* ends what is under way */
void rserver_free(rserver *s);                                      /* after the loop has ended */

#endif
