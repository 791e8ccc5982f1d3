/* ring_join.c - how a ring closes: every rank listens for the one before it and dials the one after it, both at once, since no order among them
 * would end. Whoever else calls is held to the hello, gets a few seconds for it and one of few places, and is closed without a word that matters;
 * the newest caller takes the place of the oldest, so that idle strangers keep nobody out. As soon as the rank before has proved itself nobody
 * listens any more. */
#include "trainer/learner/ring_inside.h"

#include "common/base/clock.h"
#include "common/base/hash.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CALLERS = 16, HELLO_US = 5000000, DIAL_US = 30000, JOIN_LEAST_US = 120000000, TICK_MS = 30 };

typedef struct caller { /* somebody at our port */
    int fd;             /* -1 = free */
    int64_t since_us;
    bool welcomed; /* the proof is due */
    size_t have;
    uint8_t hello[LEARN_HELLO_BYTES], nonce[16], proof[LEARN_PROOF_BYTES];
} caller;

typedef struct joining {
    learn_ring *r;
    int listener;
    caller callers[CALLERS];
    int dial; /* the connection being made; -1 = none */
    bool connected, said;
    int64_t dial_us, began_us;
    size_t have;
    uint8_t hello[LEARN_HELLO_BYTES], welcome[LEARN_WELCOME_BYTES];
    char last[160]; /* why the last dial failed */
} joining;

/* ---- sockets ------------------------------------------------------------------------------------------------------------------- */

static socklen_t address_of(const learn_place *p, struct sockaddr_storage *ret)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
    memset(ret, 0, sizeof *ret);
    if (inet_pton(AF_INET, p->address, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)p->port);
        return sizeof *v4;
    }
    if (inet_pton(AF_INET6, p->address, &v6->sin6_addr) != 1)
        return 0;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)p->port);
    return sizeof *v6;
}

static void hurry(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* the last part of a sum waits for nothing */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

static int listen_at(joining *j, pst_err *err)
{
    const learn_place *p = &j->r->places[j->r->o.rank];
    struct sockaddr_storage at;
    socklen_t len = address_of(p, &at);
    int on = 1;
    if (!len)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "ring", 0, "%s is no numeric address to listen at", p->address);
    j->listener = socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (j->listener < 0)
        return pst_err_sys(err, errno, "cannot make a socket");
    setsockopt(j->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(j->listener, (struct sockaddr *)&at, len) < 0 || listen(j->listener, CALLERS) < 0) {
        pst_err_sys(err, errno, "cannot listen at %s port %d, the address of rank %d", p->address, p->port, j->r->o.rank);
        if (err)
            err->cls = PST_CLASS_RETRY; /* a port that somebody took meanwhile: another generation has another */
        return PST_EIO;
    }
    return 0;
}

/* ---- the rank before ----------------------------------------------------------------------------------------------------------- */

static void dismiss(caller *c)
{
    if (c->fd >= 0)
        close(c->fd);
    *c = (caller){.fd = -1};
}

static void accept_all(joining *j)
{
    for (int fd; (fd = accept4(j->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        caller *oldest = &j->callers[0];
        for (caller *c = j->callers; c < j->callers + CALLERS; c++)
            if (c->fd < 0 || (oldest->fd >= 0 && c->since_us < oldest->since_us))
                oldest = c;
        dismiss(oldest);
        *oldest = (caller){.fd = fd, .since_us = pst_mono_us()};
    }
}

static void answer(joining *j, caller *c, const learn_hello *h)
{
    const learn_ring *r = j->r;
    uint8_t bytes[LEARN_WELCOME_BYTES];
    learn_welcome w = {.answer = learn_hello_judge(&r->run, h, (uint32_t)r->in.peer, (uint32_t)r->o.rank), .generation = r->run.generation};
    pst_random(w.nonce, sizeof w.nonce);
    memcpy(c->nonce, w.nonce, sizeof c->nonce);
    if (w.answer == LEARN_WELCOME)
        learn_ring_mac(&r->run, "welcome", c->hello, c->nonce, w.mac);
    learn_welcome_put(&w, bytes);
    bool sent = send(c->fd, bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes; /* a fresh connection has room for 68 bytes */
    c->welcomed = sent && w.answer == LEARN_WELCOME;
    c->have = 0;
    if (!c->welcomed)
        dismiss(c);
}

/* true: it is the rank before; its connection is the ring's now. */
static bool hear_caller(joining *j, caller *c)
{
    learn_ring *r = j->r;
    uint8_t *to = c->welcomed ? c->proof : c->hello;
    size_t wanted = c->welcomed ? LEARN_PROOF_BYTES : LEARN_HELLO_BYTES;
    ssize_t n = recv(c->fd, to + c->have, wanted - c->have, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        dismiss(c);
        return false;
    }
    c->have += n > 0 ? (size_t)n : 0;
    if (c->have < wanted)
        return false;
    learn_hello h;
    uint8_t mac[32];
    if (!c->welcomed) {
        if (learn_hello_get(c->hello, &h))
            answer(j, c, &h);
        else
            dismiss(c);
        return false;
    }
    learn_ring_mac(&r->run, "proof", c->hello, c->nonce, mac);
    if (!learn_ring_mac_same(mac, c->proof)) {
        dismiss(c);
        return false;
    }
    r->in.session = learn_ring_session(&r->run, c->hello, c->nonce);
    r->in.fd = c->fd;
    hurry(c->fd);
    c->fd = -1;
    return true;
}

static void stop_listening(joining *j)
{
    for (caller *c = j->callers; c < j->callers + CALLERS; c++)
        dismiss(c);
    if (j->listener >= 0)
        close(j->listener);
    j->listener = -1;
}

/* ---- the rank after ------------------------------------------------------------------------------------------------------------ */

static void hang_up(joining *j, const char *why)
{
    snprintf(j->last, sizeof j->last, "%s", why);
    if (j->dial >= 0)
        close(j->dial);
    j->dial = -1;
    j->connected = j->said = false;
    j->have = 0;
    j->dial_us = pst_mono_us() + DIAL_US;
}

static void dial(joining *j)
{
    struct sockaddr_storage at;
    socklen_t len = address_of(&j->r->places[j->r->out.peer], &at);
    j->dial = len ? socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
    if (j->dial < 0) {
        hang_up(j, len ? strerror(errno) : "its address is not numeric");
        return;
    }
    hurry(j->dial);
    if (connect(j->dial, (struct sockaddr *)&at, len) == 0)
        j->connected = true;
    else if (errno != EINPROGRESS)
        hang_up(j, strerror(errno));
}

static void say_hello(joining *j)
{
    const learn_ring *r = j->r;
    learn_hello h = {r->run.generation, r->run.world, (uint32_t)r->o.rank, (uint32_t)r->out.peer, {0}, {0}};
    memcpy(h.job, r->run.job, sizeof h.job);
    pst_random(h.nonce, sizeof h.nonce);
    learn_hello_put(&h, j->hello);
    j->said = send(j->dial, j->hello, sizeof j->hello, MSG_NOSIGNAL) == (ssize_t)sizeof j->hello;
    if (!j->said)
        hang_up(j, strerror(errno));
}

static int refused(joining *j, const learn_welcome *w, pst_err *err)
{
    const learn_ring *r = j->r;
    switch (w->answer) {
    case LEARN_REFUSED_STALE:
        return pst_err_set(err, PST_EFENCED, PST_CLASS_FATAL, "ring", 0,
                           "rank %d is of generation %u already, and this is generation %u: it is over", r->out.peer, w->generation,
                           r->run.generation);
    case LEARN_REFUSED_NEWER: hang_up(j, "one of an earlier generation is still there"); return 0;
    case LEARN_REFUSED_JOB: hang_up(j, "one of another job is there"); return 0;
    case LEARN_REFUSED_PLACE: hang_up(j, "it is not the rank after this one"); return 0;
    case LEARN_WELCOME: break;
    }
    return 1;
}

/* 1: connected for good. */
static int hear_welcome(joining *j, pst_err *err)
{
    learn_ring *r = j->r;
    ssize_t n = recv(j->dial, j->welcome + j->have, sizeof j->welcome - j->have, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        hang_up(j, n == 0 ? "it closed the connection" : strerror(errno));
        return 0;
    }
    j->have += n > 0 ? (size_t)n : 0;
    if (j->have < sizeof j->welcome)
        return 0;
    learn_welcome w;
    uint8_t mac[32], proof[LEARN_PROOF_BYTES];
    if (!learn_welcome_get(j->welcome, &w)) {
        hang_up(j, "something else answers there");
        return 0;
    }
    int rc = refused(j, &w, err);
    if (rc <= 0)
        return rc;
    learn_ring_mac(&r->run, "welcome", j->hello, w.nonce, mac);
    if (!learn_ring_mac_same(mac, w.mac)) {
        hang_up(j, "what answers there does not know the generation's secret");
        return 0;
    }
    learn_ring_mac(&r->run, "proof", j->hello, w.nonce, proof);
    if (send(j->dial, proof, sizeof proof, MSG_NOSIGNAL) != (ssize_t)sizeof proof) {
        hang_up(j, strerror(errno));
        return 0;
    }
    r->out.session = learn_ring_session(&r->run, j->hello, w.nonce);
    r->out.fd = j->dial;
    j->dial = -1;
    return 1;
}

static int dialled(joining *j, short events, pst_err *err)
{
    int why = 0;
    socklen_t len = sizeof why;
    if (!j->connected) {
        if (getsockopt(j->dial, SOL_SOCKET, SO_ERROR, &why, &len) < 0 || why) {
            hang_up(j, strerror(why ? why : errno));
            return 0;
        }
        j->connected = true;
    }
    if (!j->said)
        say_hello(j);
    return j->said && events & (POLLIN | POLLHUP | POLLERR) ? hear_welcome(j, err) : 0;
}

/* ---- both ---------------------------------------------------------------------------------------------------------------------- */

static int one_look(joining *j, pst_err *err)
{
    learn_ring *r = j->r;
    int64_t now = pst_mono_us();
    struct pollfd at[CALLERS + 2];
    if (r->out.fd < 0 && j->dial < 0 && now >= j->dial_us)
        dial(j);
    for (int i = 0; i < CALLERS; i++) {
        if (j->callers[i].fd >= 0 && now - j->callers[i].since_us > HELLO_US)
            dismiss(&j->callers[i]);
        at[i] = (struct pollfd){.fd = j->callers[i].fd, .events = POLLIN};
    }
    at[CALLERS] = (struct pollfd){.fd = j->listener, .events = POLLIN};
    at[CALLERS + 1] = (struct pollfd){.fd = j->dial, .events = (short)(j->said ? POLLIN : POLLOUT)};
    if (poll(at, CALLERS + 2, TICK_MS) < 0 && errno != EINTR)
        return pst_err_sys(err, errno, "cannot wait for the other ranks");
    for (int i = 0; i < CALLERS && j->listener >= 0; i++)
        if (at[i].fd >= 0 && at[i].revents && hear_caller(j, &j->callers[i]))
            stop_listening(j);
    if (j->listener >= 0 && at[CALLERS].revents)
        accept_all(j);
    return j->dial >= 0 && at[CALLERS + 1].revents ? dialled(j, at[CALLERS + 1].revents, err) : 0;
}

static int nobody_came(const joining *j, pst_err *err)
{
    const learn_ring *r = j->r;
    char span[32];
    pst_span_text(pst_mono_us() - j->began_us, span);
    if (r->out.fd < 0) {
        const learn_place *p = &r->places[r->out.peer];
        return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "ring", 0, "rank %d does not answer at %s port %d after %s: %s", r->out.peer,
                           p->address, p->port, span, *j->last ? j->last : "nothing came");
    }
    return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_RETRY, "ring", 0, "rank %d has not called after %s", r->in.peer, span);
}

int learn_ring_connect_all(learn_ring *r, pst_err *err)
{
    joining *j = pst_alloc(sizeof *j);
    int64_t wait_us = 2 * r->o.timeout_us > JOIN_LEAST_US ? 2 * r->o.timeout_us : JOIN_LEAST_US;
    *j = (joining){.r = r, .listener = -1, .dial = -1, .began_us = pst_mono_us()};
    for (int i = 0; i < CALLERS; i++)
        j->callers[i].fd = -1;
    int rc = listen_at(j, err);
    while (rc >= 0 && (r->in.fd < 0 || r->out.fd < 0)) {
        rc = one_look(j, err);
        if (rc >= 0 && r->o.stopped && r->o.stopped(r->o.arg))
            rc = PST_ESTOPPED;
        else if (rc >= 0 && (r->in.fd < 0 || r->out.fd < 0) && pst_mono_us() - j->began_us > wait_us)
            rc = nobody_came(j, err);
    }
    stop_listening(j);
    if (j->dial >= 0)
        close(j->dial);
    free(j);
    return rc < 0 ? rc : 0;
}
