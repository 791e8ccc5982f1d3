/* registry_server.h - the registry as a running thing on a loop: HTTP → core → log. Inside the registry server only (and its tests). */
#ifndef PST_DEPLOY_REGISTRY_REGISTRY_SERVER_H
#define PST_DEPLOY_REGISTRY_REGISTRY_SERVER_H

#include "common/bus/bus.h"
#include "common/loop/http.h"

typedef struct pst_rserver_conf {
    const pst_bus_conf *bus;
    const char *topic; /* NULL = "_schemas" */
    bool embedded, force;
    const char *listen;
    int port;
    const char *const *hosts;    /* names accepted in Host beside loopback's; NULL-terminated; NULL = none */
    const char *user, *password; /* basic auth asked of every client; user "" = any; NULL = none */
    int write_timeout_ms;        /* a client waits so long for its write; 0 = 5000 */
} pst_rserver_conf;

typedef struct pst_rserver pst_rserver;

/* Listens at once and answers 503 until the topic has been read. fatal(arg) is called when it cannot go on; pst_rserver_failure says why. */
int pst_rserver_new(pst_loop *l, const pst_rserver_conf *conf, void (*fatal)(void *arg), void *arg, pst_rserver **ret_server, pst_err *err);
const char *pst_rserver_url(const pst_rserver *s);
bool pst_rserver_ready(const pst_rserver *s);
const pst_err *pst_rserver_failure(const pst_rserver *s);
void pst_rserver_drain(pst_rserver *s, void (*done)(void *arg), void *arg); /* ends what is under way */
void pst_rserver_free(pst_rserver *s);                                      /* after the loop has ended */

#endif
