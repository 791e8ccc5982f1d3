/* rdk_tsan.c - only in builds with ThreadSanitizer: C11 threads on top of pthreads.
 *
 * librdkafka calls thrd_create, mtx_lock and the like. gcc 12's and clang 14's ThreadSanitizer knows the pthread functions alone: a thread made
 * by glibc's thrd_create has no state there and crashes in the first intercepted call, and a lock taken by mtx_lock is not seen. These
 * definitions take precedence over glibc's for the whole program. glibc's mtx_t, cnd_t and thrd_t are its pthread types by another name. */
#include "common/bus/rdkafka/rdk.h"
#include "common/base/buf.h"

#if defined(__SANITIZE_THREAD__)
#define RDK_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RDK_TSAN 1
#endif
#endif

#ifdef RDK_TSAN
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

_Static_assert(sizeof(mtx_t) >= sizeof(pthread_mutex_t) && sizeof(cnd_t) >= sizeof(pthread_cond_t), "same objects");

/* librdkafka itself is not instrumented: it frees a topic, and a fetched batch whose headers were parsed on our thread, when an atomic count reaches
 * zero, which the tool cannot see. */
__attribute__((weak)) const char *__tsan_default_suppressions(void);
__attribute__((weak)) const char *__tsan_default_suppressions(void)
{
    return "race:pthread_rwlock_destroy\nrace:rd_kafka_header_add\n";
}

typedef struct start {
    thrd_start_t fn;
    void *arg;
} start;

static void *run(void *arg)
{
    start s = *(start *)arg;
    free(arg);
    return (void *)(intptr_t)s.fn(s.arg);
}

int thrd_create(thrd_t *thread, thrd_start_t fn, void *arg)
{
    start *s = pst_alloc(sizeof *s);
    *s = (start){fn, arg};
    if (!pthread_create(thread, NULL, run, s))
        return thrd_success;
    free(s);
    return thrd_error;
}

int thrd_join(thrd_t thread, int *result)
{
    void *value;
    if (pthread_join(thread, &value))
        return thrd_error;
    if (result)
        *result = (int)(intptr_t)value;
    return thrd_success;
}

int thrd_detach(thrd_t thread)
{
    return pthread_detach(thread) ? thrd_error : thrd_success;
}

static int result_of(int e)
{
    return e == 0 ? thrd_success : e == EBUSY ? thrd_busy : e == ETIMEDOUT ? thrd_timedout : thrd_error;
}

int mtx_init(mtx_t *m, int type)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    if (type & mtx_recursive)
        pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    int e = pthread_mutex_init((pthread_mutex_t *)m, &attr);
    pthread_mutexattr_destroy(&attr);
    return result_of(e);
}

void mtx_destroy(mtx_t *m)
{
    pthread_mutex_destroy((pthread_mutex_t *)m);
}

int mtx_lock(mtx_t *m)
{
    return result_of(pthread_mutex_lock((pthread_mutex_t *)m));
}

int mtx_trylock(mtx_t *m)
{
    return result_of(pthread_mutex_trylock((pthread_mutex_t *)m));
}

int mtx_timedlock(mtx_t *m, const struct timespec *until)
{
    return result_of(pthread_mutex_timedlock((pthread_mutex_t *)m, until));
}

int mtx_unlock(mtx_t *m)
{
    return result_of(pthread_mutex_unlock((pthread_mutex_t *)m));
}

int cnd_init(cnd_t *c)
{
    return result_of(pthread_cond_init((pthread_cond_t *)c, NULL));
}

void cnd_destroy(cnd_t *c)
{
    pthread_cond_destroy((pthread_cond_t *)c);
}

int cnd_signal(cnd_t *c)
{
    return result_of(pthread_cond_signal((pthread_cond_t *)c));
}

int cnd_broadcast(cnd_t *c)
{
    return result_of(pthread_cond_broadcast((pthread_cond_t *)c));
}

int cnd_wait(cnd_t *c, mtx_t *m)
{
    return result_of(pthread_cond_wait((pthread_cond_t *)c, (pthread_mutex_t *)m));
}

int cnd_timedwait(cnd_t *c, mtx_t *m, const struct timespec *until)
{
    return result_of(pthread_cond_timedwait((pthread_cond_t *)c, (pthread_mutex_t *)m, until));
}
#endif

/* Called where a client is configured, so that the linker takes this file out of the library. */
void rdk_tsan(void)
{
}
