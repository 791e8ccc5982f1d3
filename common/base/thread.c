/* thread.c - the new thread names itself: its maker cannot, because a thread that is detached, or short, may be gone before the maker's next line. */
#include "common/base/thread.h"

#include "common/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct start {
    void *(*run)(void *arg);
    void *arg;
    char name[PST_THREAD_NAME_MAX + 1];
} start;

static void *named(void *arg)
{
    start s = *(start *)arg;
    free(arg);
    pthread_setname_np(pthread_self(), s.name);
    return s.run(s.arg);
}

/* malloc, not pst_alloc: the engine, too, starts threads, and without memory it has to fail, not to end the program. */
static int make(pthread_t *ret_thread, const pthread_attr_t *attr, const char *name, void *(*run)(void *arg), void *arg)
{
    PST_ASSERT(*name && strlen(name) <= PST_THREAD_NAME_MAX);
    start *s = malloc(sizeof *s);
    if (!s)
        return ENOMEM;
    *s = (start){.run = run, .arg = arg};
    snprintf(s->name, sizeof s->name, "%s", name);
    int failed = pthread_create(ret_thread, attr, named, s);
    if (failed)
        free(s);
    return failed;
}

int pst_thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *arg), void *arg)
{
    return make(ret_thread, NULL, name, run, arg);
}

int pst_thread_detached(const char *name, void *(*run)(void *arg), void *arg)
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int failed = make(&thread, &attr, name, run, arg);
    pthread_attr_destroy(&attr);
    return failed;
}

void pst_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int failed = pthread_cond_init(c, &attr);
    PST_ASSERT(!failed);
    pthread_condattr_destroy(&attr);
}
