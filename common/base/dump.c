/* dump.c - a question that is put down and answered by the thread that owns the state. Neither a signal handler nor another thread can read that
 * state by itself: the one may interrupt it anywhere, the other would need locks that the services do without. So both only leave a mark and wake
 * the owner. Asking threads share one answer and take copies of it. */
#include "common/base/dump.h"

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1400 };

struct pst_dump {
    const char *component;
    void (*fill)(void *arg, json_t *to);
    void *arg;
    int64_t since_us;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t answered;
    size_t waiting;     /* threads in pst_dump_ask */
    uint64_t asked;     /* questions so far; the last one that is answered: */
    uint64_t served;    /* ≤ asked */
    json_t *answer;     /* of it */
    bool closing;       /* nobody will serve any more */
    atomic_bool wanted; /* asked > served, to be looked at without the lock */
};

/* The descriptor stays open for the life of the process: a handler that runs late must not write to what has its number by then. */
static atomic_int signalled, wake_fd = -1;
static atomic_bool taken; /* there is a dump */

static void wake(int fd)
{
    uint64_t one = 1;
    ssize_t ignored = write(fd, &one, sizeof one);
    (void)ignored; /* full counter = readable already */
}

static void on_signal(int sig)
{
    int saved = errno, fd = atomic_load(&wake_fd);
    atomic_store(&signalled, 1);
    if (fd >= 0)
        wake(fd);
    errno = saved;
}

void pst_dump_install(void)
{
    if (atomic_load(&wake_fd) < 0)
        atomic_store(&wake_fd, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    struct sigaction sa = {.sa_handler = on_signal,
                           .sa_flags = SA_RESTART}; /* a handler, unlike SIG_IGN, is not inherited by what we start */
    sigemptyset(&sa.sa_mask);
    sigaction(SIGUSR1, &sa, NULL);
    sigset_t ours; /* a parent may have blocked it */
    sigemptyset(&ours);
    sigaddset(&ours, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
}

int pst_dump_new(const char *component, void (*fill)(void *arg, json_t *to), void *arg, pst_dump **ret_dump, pst_err *err)
{
    pst_dump_install();
    if (atomic_load(&wake_fd) < 0)
        return pst_err_sys(err, errno, "eventfd for dumps");
    bool other = atomic_exchange(&taken, true);
    PST_ASSERT(!other);
    pst_dump *d = pst_alloc(sizeof *d);
    *d = (pst_dump){.component = component, .fill = fill, .arg = arg, .since_us = pst_mono_us()};
    pst_cond_init(&d->answered);
    pthread_mutex_init(&d->lock, NULL);
    *ret_dump = d;
    return PST_OK;
}

void pst_dump_free(pst_dump *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    pthread_cond_broadcast(&d->answered);
    while (d->waiting)
        pthread_cond_wait(&d->answered, &d->lock);
    pthread_mutex_unlock(&d->lock);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->answered);
    json_decref(d->answer);
    free(d);
    bool was = atomic_exchange(&taken, false);
    PST_ASSERT(was);
}

int pst_dump_fd(void)
{
    return atomic_load(&wake_fd);
}

json_t *pst_dump_now(pst_dump *d)
{
    json_t *j = json_pack("{s:s, s:s, s:i, s:I, s:f}", "component", d->component, "version", PST_VERSION, "pid", (int)getpid(), "time",
                          (json_int_t)pst_now_us(), "seconds", (double)(pst_mono_us() - d->since_us) / 1e6);
    PST_ASSERT(j);
    d->fill(d->arg, j);
    return j;
}

/* A log line has bounds: what does not fit into one is logged member by member, each with its path. */
static void log_part(const char *component, const char *path, const json_t *j)
{
    char *text = pst_json_text(j), *below;
    const char *key;
    json_t *v;
    size_t i;
    if (strlen(text) <= LINE_MAX_BYTES || !json_is_array(j) == !json_is_object(j)) /* a scalar is cut off */
        pst_log(PST_LOG_INFO, component, "event=state at=%s json=%s", path, text);
    else if (json_is_object(j))
        json_object_foreach((json_t *)(uintptr_t)j, key, v)
        {
            below = pst_sprintf("%s/%s", strcmp(path, "/") ? path : "", key);
            log_part(component, below, v);
            free(below);
        }
    else
        json_array_foreach(j, i, v)
        {
            below = pst_sprintf("%s/%zu", strcmp(path, "/") ? path : "", i);
            log_part(component, below, v);
            free(below);
        }
    free(text);
}

static void answer_signal(pst_dump *d)
{
    json_t *j = pst_dump_now(d);
    log_part(d->component, "/", j);
    json_decref(j);
}

static void answer_threads(pst_dump *d)
{
    json_t *j = pst_dump_now(d); /* without the lock: the state is this thread's */
    pthread_mutex_lock(&d->lock);
    json_decref(d->answer);
    d->answer = j;
    PST_ASSERT(d->served <= d->asked);
    d->served = d->asked;
    atomic_store(&d->wanted, false);
    pthread_cond_broadcast(&d->answered);
    pthread_mutex_unlock(&d->lock);
}

void pst_dump_serve(pst_dump *d)
{
    if (!d || (!atomic_load(&signalled) && !atomic_load(&d->wanted)))
        return;
    uint64_t n;
    ssize_t ignored = read(atomic_load(&wake_fd), &n, sizeof n); /* first: what is asked from here on wakes again */
    (void)ignored;
    if (atomic_exchange(&signalled, 0))
        answer_signal(d);
    if (atomic_load(&d->wanted))
        answer_threads(d);
}

json_t *pst_dump_ask(pst_dump *d, int timeout_ms)
{
    struct timespec until = pst_mono_at(pst_mono_us() + timeout_ms * 1000LL);
    json_t *j = NULL;
    pthread_mutex_lock(&d->lock);
    uint64_t mine = ++d->asked;
    d->waiting++;
    atomic_store(&d->wanted, true);
    wake(atomic_load(&wake_fd));
    int rc = 0;
    while (d->served < mine && !d->closing && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&d->answered, &d->lock, &until);
    if (d->served >= mine)
        j = json_deep_copy(d->answer);
    PST_ASSERT(d->waiting);
    d->waiting--;
    pthread_cond_broadcast(&d->answered); /* the owner may wait in pst_dump_free */
    pthread_mutex_unlock(&d->lock);
    return j;
}
