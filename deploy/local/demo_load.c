/* demo_load.c - a real load spike, bounded: threads that compute in short bursts and yield, so that every part of the telemetry moves. */
#include "common/base/buf.h"
#include "common/base/thread.h"
#include "deploy/local/demo.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS_MAX = 64 };

struct local_load {
    _Atomic bool stop;
    int n;
    pthread_t threads[THREADS_MAX];
};

static void *burn(void *arg)
{
    local_load *l = arg;
    volatile double x = 1;
    while (!l->stop) {
        for (int i = 0; i < 200000; i++)
            x = x * 1.0000001 + 1e-9;
        sched_yield();
    }
    return NULL;
}

local_load *local_load_start(int threads)
{
    local_load *l = pst_alloc(sizeof *l);
    while (l->n < threads && l->n < THREADS_MAX && !pst_thread_start(&l->threads[l->n], "demo-load", burn, l))
        l->n++;
    return l;
}

void local_load_stop(local_load *l)
{
    if (!l)
        return;
    l->stop = true;
    for (int i = 0; i < l->n; i++)
        pthread_join(l->threads[i], NULL);
    free(l);
}
