/* proc.c - processes by /proc, because a pid alone is no identity: numbers are used again. A child is made ready between fork and exec
 * (descriptors, signals, death with its parent) and says through a pipe why it could not start: the caller gets the error. */
#include "common/base/proc.h"

#include "common/base/buf.h"
#include "common/base/fs.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct stat_line {
    char state;
    int parent, group;
    long long start;
} stat_line;

const char *pst_proc_stat(pid_t pid, char text[PST_PROC_STAT_BYTES])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    ssize_t n = read(fd, text, PST_PROC_STAT_BYTES - 1);
    close(fd);
    if (n <= 0)
        return NULL;
    text[n] = 0;
    return strrchr(text, ')');
}

/* Reads state, parent, pgrp and start time of /proc/<pid>/stat; the command name in parentheses may hold anything. */
static int read_stat(pid_t pid, stat_line *ret)
{
    char text[PST_PROC_STAT_BYTES];
    const char *p = pst_proc_stat(pid, text);
    stat_line l;
    if (!p || sscanf(p + 1, " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lld", &l.state, &l.parent, &l.group,
                     &l.start) != 4)
        return -1;
    *ret = l;
    return 0;
}

static bool is_dead(const stat_line *l)
{
    return l->state == 'Z' || l->state == 'X';
}

int64_t pst_proc_start_time(pid_t pid)
{
    stat_line l;
    return pid > 0 && read_stat(pid, &l) == 0 && !is_dead(&l) ? l.start : 0;
}

pid_t pst_proc_parent(pid_t pid)
{
    stat_line l;
    return pid > 0 && read_stat(pid, &l) == 0 ? l.parent : 0;
}

bool pst_proc_alive(pid_t pid, int64_t start_time)
{
    return start_time && pst_proc_start_time(pid) == start_time;
}

int pst_proc_count(uid_t user)
{
    DIR *d = opendir("/proc");
    int count = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        char path[64];
        snprintf(path, sizeof path, "%.20s/task", e->d_name);
        if (isdigit((unsigned char)e->d_name[0]) && !fstatat(dirfd(d), path, &st, 0) && st.st_uid == user)
            count += (int)st.st_nlink - 2; /* a folder a thread */
    }
    if (d)
        closedir(d);
    return count;
}

int pst_proc_group_count(pid_t pgid)
{
    DIR *d = opendir("/proc");
    int count = 0;
    if (!d)
        return 0;
    for (struct dirent *e; (e = readdir(d));) {
        stat_line l;
        if (isdigit((unsigned char)e->d_name[0]) && !read_stat(atoi(e->d_name), &l) && l.group == pgid && !is_dead(&l))
            count++;
    }
    closedir(d);
    return count;
}

static bool environ_has(pid_t pid, const char *name_value)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    pst_buf b = {0};
    bool found = false;
    if (pst_fs_read(path, 4 << 20, &b, NULL) == 0)
        for (size_t at = 0; at < b.len && !found; at += strlen(b.data + at) + 1)
            found = !strcmp(b.data + at, name_value);
    pst_buf_done(&b);
    return found;
}

/* An environment is what a process says of itself: it counts only for processes that we could have started, and never for those above us. */
static bool may_be_ours(pid_t pid, int64_t not_before)
{
    char path[64];
    struct stat st;
    int64_t born = pst_proc_start_time(pid);
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    if (!born || born < not_before || stat(path, &st) < 0 || (geteuid() != 0 && st.st_uid != geteuid()))
        return false;
    for (pid_t up = getpid(); up > 1; up = pst_proc_parent(up))
        if (up == pid)
            return false;
    return true;
}

int pst_proc_kill_marked(const char *name_value, int64_t not_before, int sig)
{
    DIR *d = opendir("/proc");
    int count = 0;
    if (!d)
        return 0;
    for (struct dirent *e; (e = readdir(d));) {
        pid_t pid = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : 0;
        if (pid <= 1 || !may_be_ours(pid, not_before) || !environ_has(pid, name_value))
            continue;
        count++;
        kill(pid, sig);
    }
    closedir(d);
    return count;
}

void pst_proc_private(void)
{
    const char *open_ = getenv("PENSTOCK_DUMPABLE");
    if (!open_ || strcmp(open_, "1") != 0)
        prctl(PR_SET_DUMPABLE, 0);
}

char *pst_proc_self(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0)
        return pst_strdup("penstock");
    path[n] = 0;
    char *gone = strstr(path, " (deleted)");
    if (gone)
        *gone = 0;
    return pst_strdup(path);
}

static void child(const pst_spawn *how, int report_fd, pid_t parent)
{
    int in = how->stdin_fd, out = how->stdout_fd, errfd = how->stderr_fd;
    int null = open("/dev/null", O_RDWR);
    if (how->new_session)
        setsid();
    if (how->new_group)
        setpgid(0, 0);
    if (how->parent_death_signal)
        prctl(PR_SET_PDEATHSIG, how->parent_death_signal);
    int e = 0;
    if (how->parent_death_signal && getppid() != parent)
        e = ESRCH; /* it died before prctl: no signal will come */
    else if (how->enter)
        e = how->enter(how->enter_arg);
    /* The three may themselves be 0 to 2: lift them first. */
    in = fcntl(in < 0 ? null : in, F_DUPFD, 10);
    out = fcntl(out < 0 ? null : out, F_DUPFD, 10);
    errfd = fcntl(errfd < 0 ? null : errfd, F_DUPFD, 10);
    report_fd = fcntl(report_fd, F_DUPFD_CLOEXEC, 10);
    dup2(in, 0);
    dup2(out, 1);
    dup2(errfd, 2);
    for (int fd = 3; fd < 10; fd++)
        close(fd);
    if (report_fd > 10)
        syscall(SYS_close_range, 10, report_fd - 1, 0);
    syscall(SYS_close_range, report_fd + 1, ~0U, 0);
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            signal(sig, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (how->parent_death_signal && !(how->enter && how->enter_forks)) { /* again: a change of rights takes it away */
        prctl(PR_SET_PDEATHSIG, how->parent_death_signal);
        if (getppid() != parent)
            _exit(127);
    }
    if (!e && how->dir && chdir(how->dir) < 0)
        e = errno;
    if (!e) {
        const char *file = how->file ? how->file : how->argv[0];
        if (how->env)
            execve(file, (char *const *)how->argv, (char *const *)how->env);
        else
            execv(file, (char *const *)how->argv);
        e = errno;
    }
    ssize_t ignored = write(report_fd, &e, sizeof e);
    (void)ignored;
    _exit(127);
}

int pst_proc_spawn(const pst_spawn *how, pid_t *ret_pid, pst_err *err)
{
    int report[2];
    PST_ASSERT(how->argv && how->argv[0]);
    if (pipe2(report, O_CLOEXEC) < 0)
        return pst_err_sys(err, errno, "cannot start %s", how->argv[0]);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        close(report[0]);
        child(how, report[1], parent);
    }
    int fork_errno = errno;
    close(report[1]);
    if (pid < 0) {
        close(report[0]);
        return pst_err_sys(err, fork_errno, "cannot start %s", how->argv[0]);
    }
    int e = 0;
    ssize_t n;
    do
        n = read(report[0], &e, sizeof e);
    while (n < 0 && errno == EINTR);
    close(report[0]);
    if (n == sizeof e) {
        waitpid(pid, NULL, 0);
        return pst_err_sys(err, e, "cannot start %s%s%s", how->argv[0], how->dir ? " in " : "", how->dir ? how->dir : "");
    }
    *ret_pid = pid;
    return 0;
}

static int try_port(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), got = 0;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int on = 1; /* as servers do: a port whose last connections are still closing is free */
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !getsockname(fd, (struct sockaddr *)&a, &len))
        got = ntohs(a.sin_port);
    if (fd >= 0)
        close(fd);
    return got;
}

int pst_proc_free_port(int wanted)
{
    for (int port = wanted; wanted > 0 && port < wanted + 20 && port < 65536; port++)
        if (try_port(port))
            return port;
    return try_port(0);
}
