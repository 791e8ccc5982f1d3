/* bus_hand.c - calls of a library on a thread of their own, since some never come back. The thread and its owner share one lock; whoever is the last
 * to need the struct frees it. */
#include "common/bus/bus_hand.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/clock.h"
#include "common/base/stop.h"
#include "common/base/thread.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define FORCED_US 1000000
#define WATCH_US  200000 /* how often a wait looks whether the stop was forced */

struct bus_hand {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void (*fn)(void *arg); /* @locks lock; NULL = idle */
    void *arg;
    int64_t begun_us;
    bool over; /* nobody waits any more: the thread ends, and frees this if it was at work */
};

static void dispose(bus_hand *h)
{
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->changed);
    free(h);
}

static void *hand_run(void *arg)
{
    bus_hand *h = arg;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (!h->fn && !h->over)
            pthread_cond_wait(&h->changed, &h->lock);
        if (!h->fn)
            break; /* it is joined */
        void (*fn)(void *arg) = h->fn;
        void *of = h->arg;
        pthread_mutex_unlock(&h->lock);
        fn(of);
        pthread_mutex_lock(&h->lock);
        h->fn = NULL;
        if (h->over) {
            pthread_mutex_unlock(&h->lock);
            dispose(h);
            return NULL;
        }
        pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

bus_hand *bus_hand_new(void)
{
    bus_hand *h = pst_alloc(sizeof *h);
    pthread_mutex_init(&h->lock, NULL);
    pst_cond_init(&h->changed);
    if (!pst_thread_start(&h->thread, "bus-hand", hand_run, h))
        return h;
    dispose(h);
    return NULL;
}

bool bus_hand_need(bus_hand **h)
{
    if (!*h)
        *h = bus_hand_new();
    return *h != NULL;
}

void bus_hand_start(bus_hand *h, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&h->lock);
    PST_ASSERT(!h->fn);
    h->fn = fn;
    h->arg = arg;
    h->begun_us = pst_mono_us();
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

static bool is_late(const bus_hand *h, int timeout_ms)
{
    int64_t waited = pst_mono_us() - h->begun_us;
    return waited >= timeout_ms * 1000LL || (pst_stop_forced() && waited >= FORCED_US);
}

bool bus_hand_wait_doing(bus_hand *h, int timeout_ms, void (*meanwhile)(void *arg), void *arg)
{
    int64_t end = pst_mono_us() + timeout_ms * 1000LL;
    pthread_mutex_lock(&h->lock);
    while (h->fn) {
        int64_t left = end - pst_mono_us();
        if (left <= 0 || (pst_stop_forced() && is_late(h, timeout_ms)))
            break;
        struct timespec until = pst_mono_at(pst_mono_us() + (left < WATCH_US ? left : WATCH_US));
        if (pthread_cond_timedwait(&h->changed, &h->lock, &until) == 0 || !meanwhile)
            continue;
        pthread_mutex_unlock(&h->lock);
        meanwhile(arg);
        pthread_mutex_lock(&h->lock);
    }
    bool back = !h->fn;
    pthread_mutex_unlock(&h->lock);
    return back;
}

bool bus_hand_wait(bus_hand *h, int timeout_ms)
{
    return bus_hand_wait_doing(h, timeout_ms, NULL, NULL);
}

void bus_hand_free(bus_hand *h)
{
    if (!h)
        return;
    pthread_t thread = h->thread;
    pthread_mutex_lock(&h->lock);
    h->over = true;
    bool busy = h->fn != NULL;
    if (busy)
        pthread_detach(thread);
    else
        pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    if (busy)
        return;
    pthread_join(thread, NULL);
    dispose(h);
}
