/* door.c - the handshake's two ends. Whoever calls is held to the hello, gets a few seconds for it and one of few places, and is closed without a word
 * that matters; the newest caller takes the place of the oldest, so that idle strangers keep nobody out. Who dials tries again until it is told to give
 * up: the other may not be there yet, or one of an earlier generation may still have the port. */
#include "trainer/learner/door.h"

#include "common/base/buf.h"
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

enum { CALLERS = 16, HELLO_US = 5000000, DIAL_US = 30000 };

typedef struct caller { /* somebody at our port */
    int fd;             /* -1 = free */
    int64_t since_us;
    bool welcomed; /* the proof is due */
    uint32_t from;
    size_t have;
    uint8_t hello[LEARN_HELLO_BYTES], nonce[16], proof[LEARN_PROOF_BYTES];
} caller;

struct learn_door {
    const learn_run *run;
    uint32_t me;
    int listener;
    caller callers[CALLERS];
};

struct learn_dial {
    const learn_place *at;
    const learn_run *run;
    uint32_t me, whom;
    int fd; /* the connection being made; -1 = none */
    bool connected, said;
    int64_t next_us;
    size_t have;
    uint8_t hello[LEARN_HELLO_BYTES], welcome[LEARN_WELCOME_BYTES];
    char last[160]; /* why the last dial failed */
};

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

/* At the address that the others know, or, where that is translated on the way and no interface here has it, at any. */
static int bind_to(int fd, struct sockaddr_storage *at, socklen_t len)
{
    int rc = bind(fd, (struct sockaddr *)at, len);
    if (rc == 0 || errno != EADDRNOTAVAIL)
        return rc;
    if (at->ss_family == AF_INET)
        ((struct sockaddr_in *)at)->sin_addr.s_addr = htonl(INADDR_ANY);
    else
        ((struct sockaddr_in6 *)at)->sin6_addr = in6addr_any;
    return bind(fd, (struct sockaddr *)at, len);
}

static int listen_at(learn_door *d, const learn_place *p, pst_err *err)
{
    struct sockaddr_storage at;
    socklen_t len = address_of(p, &at);
    int on = 1;
    if (!len)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "ring", 0, "%s is no numeric address to listen at", p->address);
    d->listener = socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (d->listener < 0)
        return pst_err_sys(err, errno, "cannot make a socket");
    setsockopt(d->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind_to(d->listener, &at, len) < 0 || listen(d->listener, CALLERS) < 0) /* another generation has another port */
        return pst_err_set(err, PST_EIO, PST_CLASS_RETRY, "ring", errno, "cannot listen at %s port %d, which this process was given: %s",
                           p->address, p->port, strerror(errno));
    return 0;
}

/* ---- the door ----------------------------------------------------------------------------------------------------------------------- */

static void dismiss(caller *c)
{
    if (c->fd >= 0)
        close(c->fd);
    *c = (caller){.fd = -1};
}

static void accept_all(learn_door *d)
{
    for (int fd; (fd = accept4(d->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        caller *oldest = &d->callers[0];
        for (caller *c = d->callers; c < d->callers + CALLERS; c++)
            if (c->fd < 0 || (oldest->fd >= 0 && c->since_us < oldest->since_us))
                oldest = c;
        dismiss(oldest);
        *oldest = (caller){.fd = fd, .since_us = pst_mono_us()};
    }
}

static void answer(learn_door *d, caller *c, const learn_hello *h, bool wanted)
{
    uint8_t bytes[LEARN_WELCOME_BYTES];
    uint32_t from = wanted ? h->from : h->from + 1; /* one that is not awaited is in no place */
    learn_welcome w = {.answer = learn_hello_judge(d->run, h, from, d->me), .generation = d->run->generation};
    pst_random(w.nonce, sizeof w.nonce);
    memcpy(c->nonce, w.nonce, sizeof c->nonce);
    if (w.answer == LEARN_WELCOME)
        learn_ring_mac(d->run, "welcome", c->hello, c->nonce, w.mac);
    learn_welcome_put(&w, bytes);
    bool sent = send(c->fd, bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes; /* a fresh connection has room for 68 bytes */
    c->welcomed = sent && w.answer == LEARN_WELCOME;
    c->from = h->from;
    c->have = 0;
    if (!c->welcomed)
        dismiss(c);
}

/* true: it has proved itself. */
static bool hear_caller(learn_door *d, caller *c, bool (*wants)(void *arg, uint32_t from), void *arg, learn_met *ret)
{
    uint8_t *to = c->welcomed ? c->proof : c->hello;
    size_t due = c->welcomed ? LEARN_PROOF_BYTES : LEARN_HELLO_BYTES;
    ssize_t n = recv(c->fd, to + c->have, due - c->have, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        dismiss(c);
        return false;
    }
    c->have += n > 0 ? (size_t)n : 0;
    if (c->have < due)
        return false;
    learn_hello h;
    uint8_t mac[32];
    if (!c->welcomed) {
        if (learn_hello_get(c->hello, &h))
            answer(d, c, &h, wants(arg, h.from));
        else
            dismiss(c);
        return false;
    }
    learn_ring_mac(d->run, "proof", c->hello, c->nonce, mac);
    if (!learn_ring_mac_same(mac, c->proof) || !wants(arg, c->from)) { /* another may have come as the same meanwhile */
        dismiss(c);
        return false;
    }
    *ret = (learn_met){c->fd, c->from, learn_ring_session(d->run, c->hello, c->nonce)};
    hurry(c->fd);
    c->fd = -1;
    return true;
}

int learn_door_open(const learn_place *at, const learn_run *run, uint32_t me, learn_door **ret, pst_err *err)
{
    learn_door *d = pst_alloc(sizeof *d);
    *d = (learn_door){.run = run, .me = me, .listener = -1};
    for (int i = 0; i < CALLERS; i++)
        d->callers[i].fd = -1;
    int rc = listen_at(d, at, err);
    if (rc < 0) {
        learn_door_close(d);
        return rc;
    }
    *ret = d;
    return 0;
}

int learn_door_look(learn_door *d, int wait_ms, bool (*wants)(void *arg, uint32_t from), void *arg, learn_met *ret, pst_err *err)
{
    struct pollfd at[CALLERS + 1];
    int64_t now = pst_mono_us();
    for (int i = 0; i < CALLERS; i++) {
        if (d->callers[i].fd >= 0 && now - d->callers[i].since_us > HELLO_US)
            dismiss(&d->callers[i]);
        at[i] = (struct pollfd){.fd = d->callers[i].fd, .events = POLLIN};
    }
    at[CALLERS] = (struct pollfd){.fd = d->listener, .events = POLLIN};
    if (poll(at, CALLERS + 1, wait_ms) < 0 && errno != EINTR)
        return pst_err_sys(err, errno, "cannot wait for callers");
    for (int i = 0; i < CALLERS; i++)
        if (at[i].fd >= 0 && at[i].revents && hear_caller(d, &d->callers[i], wants, arg, ret))
            return 1;
    if (at[CALLERS].revents)
        accept_all(d);
    return 0;
}

void learn_door_close(learn_door *d)
{
    if (!d)
        return;
    for (caller *c = d->callers; c < d->callers + CALLERS; c++)
        dismiss(c);
    if (d->listener >= 0)
        close(d->listener);
    free(d);
}

/* ---- the dial ----------------------------------------------------------------------------------------------------------------------- */

static void hang_up(learn_dial *d, const char *why)
{
    snprintf(d->last, sizeof d->last, "%s", why);
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
    d->connected = d->said = false;
    d->have = 0;
    d->next_us = pst_mono_us() + DIAL_US;
}

static void dial(learn_dial *d)
{
    struct sockaddr_storage at;
    socklen_t len = address_of(d->at, &at);
    d->fd = len ? socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
    if (d->fd < 0) {
        hang_up(d, len ? strerror(errno) : "its address is not numeric");
        return;
    }
    hurry(d->fd);
    if (connect(d->fd, (struct sockaddr *)&at, len) == 0)
        d->connected = true;
    else if (errno != EINPROGRESS)
        hang_up(d, strerror(errno));
}

static void say_hello(learn_dial *d)
{
    learn_hello h = {d->run->generation, d->run->world, d->me, d->whom, {0}, {0}};
    memcpy(h.job, d->run->job, sizeof h.job);
    pst_random(h.nonce, sizeof h.nonce);
    learn_hello_put(&h, d->hello);
    d->said = send(d->fd, d->hello, sizeof d->hello, MSG_NOSIGNAL) == (ssize_t)sizeof d->hello;
    if (!d->said)
        hang_up(d, strerror(errno));
}

/* A refusal proves nothing: whoever holds the port can say it. So none ends a training; who is told of a later generation is not let in, and gives up as
 * one does whom nobody answers. */
static bool refused(learn_dial *d, const learn_welcome *w)
{
    switch (w->answer) {
    case LEARN_REFUSED_STALE: hang_up(d, "it says that it is of a later generation, so that this one is over"); return true;
    case LEARN_REFUSED_NEWER: hang_up(d, "one of an earlier generation is still there"); return true;
    case LEARN_REFUSED_JOB: hang_up(d, "one of another job is there"); return true;
    case LEARN_REFUSED_PLACE: hang_up(d, "it awaits another than this one, or is another itself"); return true;
    case LEARN_WELCOME: break;
    }
    return false;
}

/* 1: connected for good. */
static int hear_welcome(learn_dial *d, learn_met *ret, pst_err *err)
{
    ssize_t n = recv(d->fd, d->welcome + d->have, sizeof d->welcome - d->have, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        hang_up(d, n == 0 ? "it closed the connection" : strerror(errno));
        return 0;
    }
    d->have += n > 0 ? (size_t)n : 0;
    if (d->have < sizeof d->welcome)
        return 0;
    learn_welcome w;
    uint8_t mac[32], proof[LEARN_PROOF_BYTES];
    if (!learn_welcome_get(d->welcome, &w)) {
        hang_up(d, "something else answers there");
        return 0;
    }
    if (refused(d, &w))
        return 0;
    learn_ring_mac(d->run, "welcome", d->hello, w.nonce, mac);
    if (!learn_ring_mac_same(mac, w.mac)) {
        hang_up(d, "what answers there does not know the generation's secret");
        return 0;
    }
    learn_ring_mac(d->run, "proof", d->hello, w.nonce, proof);
    if (send(d->fd, proof, sizeof proof, MSG_NOSIGNAL) != (ssize_t)sizeof proof) {
        hang_up(d, strerror(errno));
        return 0;
    }
    *ret = (learn_met){d->fd, d->whom, learn_ring_session(d->run, d->hello, w.nonce)};
    d->fd = -1;
    return 1;
}

static int dialled(learn_dial *d, short events, learn_met *ret, pst_err *err)
{
    int why = 0;
    socklen_t len = sizeof why;
    if (!d->connected) {
        if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &why, &len) < 0 || why) {
            hang_up(d, strerror(why ? why : errno));
            return 0;
        }
        d->connected = true;
    }
    if (!d->said)
        say_hello(d);
    return d->said && events & (POLLIN | POLLHUP | POLLERR) ? hear_welcome(d, ret, err) : 0;
}

learn_dial *learn_dial_new(const learn_place *at, const learn_run *run, uint32_t me, uint32_t whom)
{
    learn_dial *d = pst_alloc(sizeof *d);
    *d = (learn_dial){.at = at, .run = run, .me = me, .whom = whom, .fd = -1};
    return d;
}

int learn_dial_look(learn_dial *d, int wait_ms, learn_met *ret, pst_err *err)
{
    if (d->fd < 0 && pst_mono_us() >= d->next_us)
        dial(d);
    struct pollfd at = {.fd = d->fd, .events = (short)(d->said ? POLLIN : POLLOUT)};
    if (poll(&at, 1, wait_ms) < 0 && errno != EINTR)
        return pst_err_sys(err, errno, "cannot wait for a connection");
    return d->fd >= 0 && at.revents ? dialled(d, at.revents, ret, err) : 0;
}

const char *learn_dial_why(const learn_dial *d)
{
    return *d->last ? d->last : "nothing came";
}

void learn_dial_free(learn_dial *d)
{
    if (!d)
        return;
    if (d->fd >= 0)
        close(d->fd);
    free(d);
}
