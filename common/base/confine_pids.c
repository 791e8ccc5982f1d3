/* confine_pids.c - processes of its own for a job's command. In the caller's place goes on what becomes the command; two of us stay behind:
 *
 *     supervisor ─▶ outside (in the group, tells the end as if it were the command's) ─▶ init (pid 1 of the namespace) ─▶ the command
 *
 * The kernel ends everything in the namespace with its init, and init goes with outside, which goes with the supervisor. Calls that are safe
 * after a fork only. */
#include "common/base/confine_pids.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void ignore_signals(void)
{
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP && sig != SIGCHLD)
            signal(sig, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
}

/* Nothing of what the command writes to may be held open here. */
static void keep_only(int fd)
{
    if (fd != 0)
        dup2(fd, 0);
    syscall(SYS_close_range, 1, ~0U, 0);
}

__attribute__((noreturn)) static void stay_outside(pid_t init, int status_fd)
{
    int status = 0;
    ignore_signals();
    keep_only(status_fd);
    while (waitpid(init, NULL, 0) < 0 && errno == EINTR)
        ;
    if (read(0, &status, sizeof status) != sizeof status)
        status = SIGKILL; /* init was killed, and the command with it */
    if (WIFEXITED(status))
        _exit(WEXITSTATUS(status));
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(WTERMSIG(status), SIG_DFL);
    kill(getpid(), WTERMSIG(status));
    _exit(128 + WTERMSIG(status));
}

/* Waits until nothing is left; what outlives the command has the grace time. */
__attribute__((noreturn)) static void be_init(pid_t command, int status_fd, int grace_ms)
{
    int left_ms = grace_ms, end = 0;
    ignore_signals();
    keep_only(status_fd);
    for (bool over = false;;) {
        int status;
        pid_t pid = waitpid(-1, &status, over ? WNOHANG : 0);
        if (pid == command) {
            end = status;
            over = true;
        } else if (pid < 0 && errno == ECHILD) {
            break;
        } else if (pid == 0) {
            if ((left_ms -= 10) < 0)
                kill(-1, SIGKILL);
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        }
    }
    ssize_t ignored = write(0, &end, sizeof end);
    (void)ignored;
    _exit(0);
}

int pst_confine_pids(int (*prepare)(void *arg), void *arg, int grace_ms)
{
    int report[2]; /* from init to outside: how the command ended */
    if (unshare(CLONE_NEWPID | CLONE_NEWIPC) < 0 || pipe(report) < 0)
        return errno;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pid_t init = fork();
    if (init < 0)
        return errno;
    if (init) {
        close(report[1]);
        stay_outside(init, report[0]);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(report[0]);
    int e = prepare(arg);
    if (e)
        return e; /* reported as the failure of the start; the one outside sees us end */
    pid_t command = fork();
    if (command < 0)
        return errno;
    if (command)
        be_init(command, report[1], grace_ms);
    close(report[1]);
    return 0;
}
