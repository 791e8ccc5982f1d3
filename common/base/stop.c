/* stop.c - a signal handler that counts, and a descriptor that wakes loops.
 *
 * The flags are written by a signal handler and read by every thread, so they are atomics, and lock-free ones: those alone may be used in a
 * handler (C17 7.14.1.1 point 5). */
#include "common/base/stop.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <unistd.h>

_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler needs atomics without locks");

static atomic_int count, signo, fd = -1, deferred;

static void on_signal(int sig)
{
    int saved = errno, wake = atomic_load(&fd);
    atomic_store(&signo, sig);
    if (atomic_load(&count) < 100) /* far from overflow, however often a supervisor signals */
        atomic_fetch_add(&count, 1);
    if (wake >= 0) {
        uint64_t one = 1;
        ssize_t ignored = write(wake, &one, sizeof one);
        (void)ignored;
    }
    errno = saved;
}

void pst_stop_install(void)
{
    if (atomic_load(&fd) < 0)
        atomic_store(&fd, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    struct sigaction sa = {.sa_handler = on_signal};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGINT, &sa, NULL);
    sa.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &sa, NULL);
    sigset_t ours; /* a parent that blocks them leaves no other way to end us than SIGKILL */
    sigemptyset(&ours);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
}

bool pst_stop_requested(void)
{
    return atomic_load(&count) > atomic_load(&deferred);
}

void pst_stop_defer(bool on)
{
    atomic_store(&deferred, on);
}

bool pst_stop_forced(void)
{
    return atomic_load(&count) > 1;
}

int pst_stop_signal(void)
{
    return atomic_load(&signo);
}

void pst_stop_request(void)
{
    on_signal(0);
}

int pst_stop_fd(void)
{
    return atomic_load(&fd);
}

void pst_stop_reset(void)
{
    int wake = atomic_load(&fd);
    atomic_store(&count, 0);
    atomic_store(&signo, 0);
    if (wake >= 0) {
        uint64_t n;
        ssize_t ignored = read(wake, &n, sizeof n);
        (void)ignored;
    }
}
