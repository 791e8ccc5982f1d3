/* loop.c - libevent behind our own face. Posting goes through our own queue and an eventfd, so libevent needs no locks and stays single-threaded. */
#include "common/loop/loop.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/stop.h"
#include "common/loop/loop_priv.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define POSTED_MAX 65536

typedef struct posted {
    void (*fn)(void *arg);
    void *arg;
} posted;

struct pst_loop {
    struct event_base *base;
    int wake_fd;
    struct event *wake, *stop, *forced, *dumps;
    void (*on_stop)(void *arg);
    void *on_stop_arg;
    bool ignore_stop, stopping_seen;
    atomic_bool stopped;
    _Atomic(pthread_t) thread;
    pthread_mutex_t lock; /* of the three below */
    posted *queue;
    size_t n, cap;
};

struct pst_timer {
    pst_loop *loop;
    struct event *ev;
    int64_t every_us;
    void (*fn)(void *arg);
    void *arg;
};

struct pst_watch {
    pst_loop *loop;
    struct event *ev;
    int fd;
    void (*fn)(void *arg, int fd, int events);
    void *arg;
};

static struct timeval span(int64_t us)
{
    if (us < 0)
        us = 0;
    return (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
}

struct event_base *loop_base(pst_loop *l)
{
    return l->base;
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    pst_loop *l = arg;
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got;
    pthread_mutex_lock(&l->lock);
    posted *batch = l->queue;
    size_t n = l->n;
    l->queue = NULL;
    l->n = l->cap = 0;
    pthread_mutex_unlock(&l->lock);
    for (size_t i = 0; i < n; i++)
        batch[i].fn(batch[i].arg);
    free(batch);
    if (atomic_load(&l->stopped))
        event_base_loopbreak(l->base);
}

/* A second signal: what is under way is given up. */
static void on_second_stop(evutil_socket_t fd, short what, void *arg)
{
    pst_loop *l = arg;
    if (pst_stop_forced())
        pst_loop_stop(l);
}

/* The stop descriptor stays readable for ever, so it is watched once; from then on a slow timer looks for the second signal. */
static void on_stop(evutil_socket_t fd, short what, void *arg)
{
    pst_loop *l = arg;
    PST_ASSERT(!l->stopping_seen);
    l->stopping_seen = true;
    struct timeval every = span(100000);
    event_add(l->forced, &every);
    if (l->on_stop)
        l->on_stop(l->on_stop_arg);
    else
        pst_loop_stop(l);
}

int pst_loop_new(pst_loop **ret_loop, pst_err *err)
{
    pst_loop *l = pst_alloc(sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
    atomic_store(&l->thread, pthread_self());
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = PST_OK;
    if (l->wake_fd < 0) {
        rc = pst_err_sys(err, errno, "eventfd for an event loop");
        goto out;
    }
    struct event_config *cfg = event_config_new();
    if (cfg) {
        event_config_set_flag(cfg, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_PRECISE_TIMER);
        l->base = event_base_new_with_config(cfg);
        event_config_free(cfg);
    }
    if (!l->base) {
        rc = pst_err_set(err, PST_EIO, PST_CLASS_FATAL, "sys", errno, "libevent could not set up an event loop (out of file descriptors?)");
        goto out;
    }
    l->wake = event_new(l->base, l->wake_fd, EV_READ | EV_PERSIST, on_wake, l);
    l->forced = event_new(l->base, -1, EV_PERSIST, on_second_stop, l);
    event_add(l->wake, NULL);
    *ret_loop = l;
    l = NULL;
out:
    pst_loop_free(l);
    return rc;
}

void pst_loop_free(pst_loop *l)
{
    if (!l)
        return;
    struct event *events[] = {l->wake, l->stop, l->forced, l->dumps};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i])
            event_free(events[i]);
    if (l->base)
        event_base_free(l->base);
    if (l->wake_fd >= 0)
        close(l->wake_fd);
    pthread_mutex_destroy(&l->lock);
    free(l->queue);
    free(l);
}

static void prepare(pst_loop *l)
{
    atomic_store(&l->thread, pthread_self());
    if (!l->ignore_stop && !l->stop && pst_stop_fd() >= 0) {
        l->stop = event_new(l->base, pst_stop_fd(), EV_READ, on_stop, l);
        event_add(l->stop, NULL);
    }
}

void pst_loop_run(pst_loop *l)
{
    prepare(l);
    while (!atomic_load(&l->stopped))
        if (event_base_loop(l->base, EVLOOP_NO_EXIT_ON_EMPTY) < 0)
            break;
    atomic_store(&l->stopped, false);
}

bool pst_loop_run_for(pst_loop *l, int timeout_ms)
{
    prepare(l);
    struct timeval limit = span((int64_t)timeout_ms * 1000);
    event_base_loopexit(l->base, &limit);
    if (!atomic_load(&l->stopped))
        event_base_loop(l->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return !atomic_exchange(&l->stopped, false);
}

static void wake(pst_loop *l)
{
    uint64_t one = 1;
    ssize_t wrote = write(l->wake_fd, &one, sizeof one);
    (void)wrote; /* full counter = already awake */
}

void pst_loop_stop(pst_loop *l)
{
    atomic_store(&l->stopped, true);
    wake(l);
}

void pst_loop_on_stop(pst_loop *l, void (*fn)(void *arg), void *arg)
{
    l->on_stop = fn;
    l->on_stop_arg = arg;
}

static void on_dump(evutil_socket_t fd, short what, void *arg)
{
    pst_dump_serve(arg);
}

void pst_loop_set_dump(pst_loop *l, pst_dump *d)
{
    if (l->dumps)
        event_free(l->dumps);
    l->dumps = d ? event_new(l->base, pst_dump_fd(), EV_READ | EV_PERSIST, on_dump, d) : NULL;
    if (l->dumps)
        event_add(l->dumps, NULL);
}

void pst_loop_ignore_stop(pst_loop *l)
{
    l->ignore_stop = true;
}

int pst_loop_post(pst_loop *l, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&l->lock);
    if (l->n == POSTED_MAX) {
        pthread_mutex_unlock(&l->lock);
        return PST_ELIMIT;
    }
    l->queue = pst_array_room(l->queue, l->n, &l->cap, sizeof *l->queue);
    l->queue[l->n++] = (posted){fn, arg};
    pthread_mutex_unlock(&l->lock);
    wake(l);
    return PST_OK;
}

bool pst_loop_is_current(const pst_loop *l)
{
    return pthread_equal(atomic_load(&((pst_loop *)(uintptr_t)l)->thread), pthread_self());
}

/* ---- timers -------------------------------------------------------------------------------------------------------------- */

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    pst_timer *t = arg;
    PST_ASSERT(pst_loop_is_current(t->loop));
    if (t->every_us > 0) {
        struct timeval tv = span(t->every_us);
        event_add(t->ev, &tv);
    }
    t->fn(t->arg); /* last: it may free t */
}

pst_timer *pst_timer_new(pst_loop *l, int64_t first_us, int64_t every_us, void (*fn)(void *arg), void *arg)
{
    PST_ASSERT(fn);
    pst_timer *t = pst_alloc(sizeof *t);
    *t = (pst_timer){.loop = l, .every_us = every_us, .fn = fn, .arg = arg};
    t->ev = event_new(l->base, -1, 0, on_timer, t);
    PST_ASSERT(t->ev);
    pst_timer_again(t, first_us);
    return t;
}

void pst_timer_again(pst_timer *t, int64_t first_us)
{
    struct timeval tv = span(first_us);
    event_add(t->ev, &tv);
}

void pst_timer_stop(pst_timer *t)
{
    event_del(t->ev);
}

void pst_timer_free(pst_timer *t)
{
    if (!t)
        return;
    event_free(t->ev);
    free(t);
}

/* ---- watches ------------------------------------------------------------------------------------------------------------- */

static void on_fd(evutil_socket_t fd, short what, void *arg)
{
    pst_watch *w = arg;
    int events = what & EV_READ ? PST_WATCH_READ : 0;
    if (what & EV_WRITE)
        events |= PST_WATCH_WRITE;
    w->fn(w->arg, fd, events); /* last: it may free w */
}

pst_watch *pst_watch_new(pst_loop *l, int fd, int events, void (*fn)(void *arg, int fd, int events), void *arg)
{
    PST_ASSERT(fn && fd >= 0);
    pst_watch *w = pst_alloc(sizeof *w);
    *w = (pst_watch){.loop = l, .fd = fd, .fn = fn, .arg = arg};
    pst_watch_events(w, events);
    return w;
}

void pst_watch_events(pst_watch *w, int events)
{
    if (w->ev)
        event_free(w->ev);
    w->ev = NULL;
    if (!events)
        return;
    short what = EV_PERSIST;
    if (events & PST_WATCH_READ)
        what |= EV_READ;
    if (events & PST_WATCH_WRITE)
        what |= EV_WRITE;
    w->ev = event_new(w->loop->base, w->fd, what, on_fd, w);
    PST_ASSERT(w->ev);
    event_add(w->ev, NULL);
}

void pst_watch_free(pst_watch *w)
{
    if (!w)
        return;
    if (w->ev)
        event_free(w->ev);
    free(w);
}
