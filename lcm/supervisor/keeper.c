/* keeper.c - a process between the LCM and a supervisor, which does nothing but outlive the latter: as a subreaper it inherits whatever the
 * learner started and the supervisor, killed, could not end. It is forked before there is a thread, and execs nothing: what is so small does
 * not fail. */
#include "lcm/supervisor/keeper.h"

#include "common/base/clock.h"
#include "common/base/proc_tree.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Until waitpid() says that there are no children: that is the proof. A process that forks while it is being looked for is found in the
 * next round, because its child stays below us. */
static void sweep(void)
{
    for (;;) {
        pst_tree_kill(getpid());
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0 && errno == ECHILD)
            return;
        pst_sleep_ms(10);
    }
}

static volatile sig_atomic_t below; /* the supervisor's pid */

/* Who looks for a supervisor by name or by owner finds us as well; we hold nothing that could be told (status.h), it does. */
static void pass_on(int sig)
{
    if (below)
        kill((pid_t)below, sig);
}

__attribute__((noreturn)) static void keep(pid_t child)
{
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, 0)) != child;)
        if (pid < 0 && errno != EINTR)
            break;
    below = 0;
    sweep();
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int sup_keeper_start(int lock_fd, pid_t *ret_keeper, pst_err *err)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return pst_err_sys(err, errno, "cannot watch over child processes");
    sigset_t asks, before; /* SIGUSR1 waits meanwhile: the handler of dumps must not run in both, for they share its descriptor */
    sigemptyset(&asks);
    sigaddset(&asks, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &asks, &before);
    pid_t keeper = getpid(), pid = fork();
    if (pid > 0) {
        below = pid;
        signal(SIGUSR1, pass_on);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return pst_err_sys(err, errno, "cannot start the supervisor below its keeper");
    if (pid) {
        /* Whoever stops us stops the supervisor, which ends in its own time, and us with it; but in a pod we are the only process that is told. */
        signal(SIGTERM, getenv("PENSTOCK_POD_IP") ? pass_on : SIG_IGN);
        signal(SIGINT, SIG_IGN);
        if (lock_fd >= 0)
            close(lock_fd);
        keep(pid);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper) /* it was gone before that held */
        _exit(1);
    *ret_keeper = keeper;
    return 0;
}
