/* stop.c - see stop.h. */
#include "common/base/stop.h"

#include <signal.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <unistd.h>

static volatile sig_atomic_t count, signo;
static int fd = -1;

static void on_signal(int sig)
{
    signo = sig;
    if (count < 100)
        count++;
    if (fd >= 0) {
        uint64_t one = 1;
        ssize_t ignored = write(fd, &one, sizeof one);
        (void)ignored;
    }
}

void pst_stop_install(void)
{
    if (fd < 0)
        fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct sigaction sa = {.sa_handler = on_signal};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGINT, &sa, NULL);
    sa.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &sa, NULL);
}

bool pst_stop_requested(void)
{
    return count > 0;
}

bool pst_stop_hurry(void)
{
    return count > 1;
}

int pst_stop_signal(void)
{
    return signo;
}

void pst_stop_request(void)
{
    on_signal(0);
}

int pst_stop_fd(void)
{
    return fd;
}

void pst_stop_reset(void)
{
    count = 0;
    signo = 0;
    if (fd >= 0) {
        uint64_t n;
        ssize_t ignored = read(fd, &n, sizeof n);
        (void)ignored;
    }
}
