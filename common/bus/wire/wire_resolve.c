/* wire_resolve.c - one thread a question: there are few, a connect each, and a name server that does not answer holds up nobody else. The struct is counted, for its owner
 * may go while the resolver still waits. Addresses come in the order of getaddrinfo() (RFC 6724), the families taking turns: where one of
 * them leads nowhere, the second address tried is of the other. */
#include "common/bus/wire/wire_resolve.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/thread.h"

#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct wire_resolve {
    pthread_mutex_t lock;
    char *host;
    int port, family, fd;
    int uses;  /* @locks lock */
    bool done; /* @locks lock */
    wire_address found[WIRE_ADDRESSES];
    int n;
    char why[160];
};

void wire_resolve_drop(wire_resolve *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    bool last = --r->uses == 0;
    pthread_mutex_unlock(&r->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&r->lock);
    if (r->fd >= 0)
        close(r->fd);
    free(r->host);
    free(r);
}

static void keep(wire_resolve *r, const struct addrinfo *list)
{
    const struct addrinfo *next[2] = {list, list}; /* of the family that came first, and of the other */
    int first = list->ai_family;
    for (int turn = 0; r->n < WIRE_ADDRESSES && (next[0] || next[1]); turn = !turn) {
        const struct addrinfo **a = &next[turn];
        while (*a && ((*a)->ai_family == first) == (turn == 1))
            *a = (*a)->ai_next;
        if (!*a)
            continue;
        if ((*a)->ai_addrlen <= sizeof r->found->at) {
            memcpy(&r->found[r->n].at, (*a)->ai_addr, (*a)->ai_addrlen);
            r->found[r->n++].len = (*a)->ai_addrlen;
        }
        *a = (*a)->ai_next;
    }
}

static int ask(wire_resolve *r, int flags)
{
    struct addrinfo how = {.ai_family = r->family, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV}, *list = NULL;
    char port[8];
    snprintf(port, sizeof port, "%d", r->port);
    int rc = getaddrinfo(r->host, port, &how, &list);
    if (rc == 0 && list)
        keep(r, list);
    else
        snprintf(r->why, sizeof r->why, "%s", rc ? gai_strerror(rc) : "no address");
    if (list)
        freeaddrinfo(list);
    return rc;
}

static void *run(void *arg)
{
    wire_resolve *r = arg;
    ask(r, 0); /* not AI_ADDRCONFIG, to which a computer without a network has no localhost */
    pthread_mutex_lock(&r->lock);
    r->done = true;
    pthread_mutex_unlock(&r->lock);
    eventfd_write(r->fd, 1);
    wire_resolve_drop(r);
    return NULL;
}

wire_resolve *wire_resolve_start(const char *host, int port, int family)
{
    wire_resolve *r = pst_alloc(sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    r->host = pst_strdup(host);
    r->port = port;
    r->family = family;
    r->uses = 1;
    r->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->fd < 0 || ask(r, AI_NUMERICHOST) == 0) {
        r->done = true;
        if (r->fd >= 0)
            eventfd_write(r->fd, 1);
        else
            snprintf(r->why, sizeof r->why, "no descriptor is left");
        return r;
    }
    r->uses = 2;
    if (pst_thread_detached("wire-resolve", run, r)) {
        r->uses = 1;
        r->done = true;
        snprintf(r->why, sizeof r->why, "no thread is to be had");
        eventfd_write(r->fd, 1);
    }
    return r;
}

int wire_resolve_fd(const wire_resolve *r)
{
    return r->fd;
}

int wire_resolve_take(wire_resolve *r, wire_address ret[WIRE_ADDRESSES], char *why, size_t size)
{
    pthread_mutex_lock(&r->lock);
    int n = r->done ? r->n : -1;
    pthread_mutex_unlock(&r->lock);
    if (n > 0)
        memcpy(ret, r->found, (size_t)n * sizeof *ret);
    if (n == 0)
        snprintf(why, size, "%s", r->why);
    return n;
}
