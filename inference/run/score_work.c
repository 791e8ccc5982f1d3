/* score_work.c - one worker thread, one task at a time, handed over by a condition variable; and how long a batch may take.
 *
 * A thread rather than slices of a batch: a model may need seconds for a single record, and only the thread that owns the consumer may poll it. */
#include "inference/run/score_work.h"

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "inference/run/score_note.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { FIRST_RECORDS = 32, FEW_RECORDS = 8, LONG_US = 200000 };

struct score_work {
    pst_score_core *core;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool runs, todo, done, quit; /* @locks lock */
    pst_err err;
    int rc;
};

static void work_off(score_work *w)
{
    pst_err_clear(&w->err);
    score_note_computes(true);
    w->rc = pst_score_core_run(w->core, &w->err);
    score_note_computes(false);
}

static void *work_thread(void *arg)
{
    score_work *w = arg;
    score_note_thread();
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->todo && !w->quit)
            pthread_cond_wait(&w->changed, &w->lock);
        if (w->quit)
            break;
        w->todo = false;
        pthread_mutex_unlock(&w->lock);
        work_off(w);
        pthread_mutex_lock(&w->lock);
        w->done = true;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    score_note_thread_ends();
    return NULL;
}

score_work *score_work_new(pst_score_core *core)
{
    score_work *w = pst_alloc(sizeof(*w));
    w->core = core;
    w->done = true;
    pthread_mutex_init(&w->lock, NULL);
    pst_cond_init(&w->changed);
    w->runs =
        pst_thread_start(&w->thread, "score-work", work_thread, w) == 0; /* else the owner does it itself: late is better than never */
    return w;
}

void score_work_free(score_work *w)
{
    if (!w)
        return;
    while (!score_work_wait(w, 1000))
        ;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (w->runs)
        pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void score_work_start(score_work *w)
{
    pthread_mutex_lock(&w->lock);
    PST_ASSERT(w->done);
    w->done = !w->runs;
    w->todo = w->runs;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (!w->runs)
        work_off(w);
}

bool score_work_wait(score_work *w, int timeout_ms)
{
    struct timespec until = pst_mono_at(pst_mono_us() + timeout_ms * 1000LL);
    pthread_mutex_lock(&w->lock);
    while (!w->done && pthread_cond_timedwait(&w->changed, &w->lock, &until) != ETIMEDOUT)
        ;
    bool done = w->done;
    pthread_mutex_unlock(&w->lock);
    return done;
}

int score_work_result(score_work *w, pst_err *err)
{
    if (w->err.code && err && !err->code)
        *err = w->err;
    return w->rc;
}

/* ---- pace ------------------------------------------------------------------------------------------------------------------ */

/* That a few records took long says more of the computer's other business than of the model. That they were quick counts a little: batches that the
 * pace itself has cut to a few records would else keep it for good; and after a record that took very long those that follow it are not trusted at once. */
void score_pace_learn(score_pace *p, size_t records, int64_t us)
{
    if (!records)
        return;
    double now = (double)us / (double)records;
    bool few = p->us > 0 && records < FEW_RECORDS && us < LONG_US;
    if (now < 0.01)
        now = 0.01; /* known, however quick */
    if (now <= p->us)
        p->us += (few ? 0.05 : 0.25) * (now - p->us);
    else if (!few)
        p->us = now;
}

int64_t score_pace_expect_us(const score_pace *p, size_t records)
{
    return p->us > 0 ? (int64_t)(p->us * (double)records) : -1;
}

size_t score_pace_batch(const score_pace *p, size_t most, int64_t target_us)
{
    if (p->us <= 0)
        return most < FIRST_RECORDS ? most : FIRST_RECORDS;
    double fit = (double)target_us / p->us;
    if (fit >= (double)most)
        return most;
    return fit < 1 ? 1 : (size_t)fit;
}
