/* ort_watch.c - ends an evaluation in ONNX Runtime that takes too long: the library looks at a flag of the run between its nodes, and
 * somebody must set it while the calling thread is inside. So a run that has bounds (pst_run_limits) gets a thread that sleeps beside it. */
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "engine/ort/ort_watch.h"

#include <pthread.h>
#include <time.h>

enum { LOOK_MS = 50 };

typedef struct watcher {
    const ort_lib *lib;
    void *options;
    eng_watch watch; /* its own copy: the clock is read at every look */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool done;
    int rc;
    pst_err err;
} watcher;

static void *look(void *arg)
{
    watcher *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->done) {
        struct timespec t = pst_mono_at(pst_mono_us() + LOOK_MS * 1000LL);
        pthread_cond_timedwait(&w->wake, &w->lock, &t);
        w->watch.to_clock = 1;
        if (!w->done && (w->rc = eng_watch_look(&w->watch, &w->err)) < 0) {
            ort_status *s = w->lib->api.run_terminate(w->options);
            if (s)
                w->lib->api.status_free(s);
            break;
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int ort_run_watched(const ort_lib *lib, const eng_watch *watch, ort_run_fn run, void *arg, pst_err *err)
{
    watcher w = {.lib = lib, .watch = *watch, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    if (!watch->limits.ms_max && !watch->limits.stop)
        return run(arg, NULL, err);
    eng_watch_begin(&w.watch);
    int rc = ort_check(lib, lib->api.run_options_new(&w.options), PST_EINVAL, "options of a run", err);
    if (rc < 0)
        return rc;
    pst_cond_init(&w.wake);
    if (pst_thread_start(&thread, "ort-watch", look, &w)) {
        pthread_cond_destroy(&w.wake);
        lib->api.run_options_free(w.options);
        return eng_heap_none(1 << 20, err);
    }
    pst_err why = {0};
    rc = run(arg, w.options, &why);
    pthread_mutex_lock(&w.lock);
    w.done = true;
    pthread_cond_signal(&w.wake);
    pthread_mutex_unlock(&w.lock);
    pthread_join(thread, NULL);
    lib->api.run_options_free(w.options);
    pthread_mutex_destroy(&w.lock);
    pthread_cond_destroy(&w.wake);
    if (rc < 0 && w.rc < 0) { /* it failed because it was ended */
        rc = w.rc;
        why = w.err;
    }
    if (rc < 0 && !err->code)
        *err = why;
    return rc;
}
