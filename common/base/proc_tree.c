/* proc_tree.c - the processes below one. One look at all of /proc, then parents are followed upwards with the answers kept: the cost grows with the
 * number of processes, not with its square. */
#include "common/base/proc_tree.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAY_MAX     512 /* ancestors */
#define STOP_ROUNDS 50

typedef enum { UNKNOWN = 0, OUTSIDE, BELOW } verdict;

typedef struct entry {
    pid_t pid, parent;
    verdict known;
    char state;
    double cpu_ticks;
    int64_t rss_pages;
    int threads;
} entry;

/* Fields 3, 4, 14–17, 20 and 24 of /proc/<pid>/stat (proc(5)); the name in parentheses may hold anything. */
static bool read_entry(pid_t pid, entry *ret)
{
    char text[PST_PROC_STAT_BYTES];
    const char *p = pst_proc_stat(pid, text);
    int parent, threads;
    unsigned long long ut, st;
    long long cut, cst, rss;
    char state;
    if (!p || sscanf(p + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %lld %lld %*d %*d %d %*d %*u %*u %lld", &state, &parent,
                     &ut, &st, &cut, &cst, &threads, &rss) != 8)
        return false;
    *ret = (entry){.pid = pid,
                   .parent = parent,
                   .state = state,
                   .cpu_ticks = (double)ut + (double)st + (double)cut + (double)cst,
                   .rss_pages = rss,
                   .threads = threads};
    return true;
}

static int by_pid(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static entry *find(entry *at, size_t n, pid_t pid)
{
    return n ? bsearch(&(entry){.pid = pid}, at, n, sizeof *at, by_pid) : NULL;
}

/* Is the root above it? What the way up finds out is kept for all on it, so that each process is asked once. The list is no snapshot: a
 * pid may have been used again between two reads and close a circle, so the way has an end. */
static bool is_below(entry *at, size_t n, entry *e, pid_t root)
{
    entry *way[WAY_MAX];
    size_t steps = 0;
    verdict v = OUTSIDE;
    for (entry *x = e; x && steps < WAY_MAX; x = find(at, n, x->parent)) {
        if (x->known != UNKNOWN) {
            v = x->known;
            break;
        }
        way[steps++] = x;
        if (x->parent == root) {
            v = BELOW;
            break;
        }
    }
    while (steps)
        way[--steps]->known = v;
    return v == BELOW;
}

/* Pages that a process alone has: resident less shared ones (proc(5), statm). */
static int64_t own_pages(pid_t pid)
{
    char path[64], text[200];
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    long long resident = 0, shared = 0;
    text[n > 0 ? n : 0] = 0;
    return sscanf(text, "%*d %lld %lld", &resident, &shared) == 2 && resident > shared ? resident - shared : 0;
}

/* What a process and its reaped children had of disks (proc(5), io); nothing where the kernel does not let us look. */
static void add_io(pid_t pid, pst_tree *sum)
{
    char path[64], text[400];
    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *in = strstr(text, "\nread_bytes: "), *out = strstr(text, "\nwrite_bytes: ");
    sum->read_bytes += in ? strtoll(in + 13, NULL, 10) : 0;
    sum->write_bytes += out ? strtoll(out + 14, NULL, 10) : 0;
}

/* Sums and signals in the same pass, so that what was counted is what was signalled. Zombies are neither: they hold nothing and hear nothing. */
void pst_tree_walk(pid_t pid, int sig, pst_tree *ret_sum)
{
    pst_tree sum = {0};
    entry *at = NULL;
    size_t n = 0, cap = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        entry x;
        if (!isdigit((unsigned char)e->d_name[0]) || !read_entry(atoi(e->d_name), &x))
            continue;
        at = pst_array_room(at, n, &cap, sizeof *at);
        at[n++] = x;
    }
    if (d)
        closedir(d);
    if (n)
        qsort(at, n, sizeof *at, by_pid);
    double tick = (double)sysconf(_SC_CLK_TCK), page = (double)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < n; i++) {
        if (at[i].state == 'Z' || at[i].state == 'X' || !is_below(at, n, &at[i], pid))
            continue;
        sum.processes++;
        sum.cpu_seconds += at[i].cpu_ticks / tick;
        sum.rss_bytes += (int64_t)((double)at[i].rss_pages * page);
        sum.threads += at[i].threads;
        if (ret_sum) {
            add_io(at[i].pid, &sum);
            sum.own_bytes += (int64_t)((double)own_pages(at[i].pid) * page);
        }
        if (sig)
            kill(at[i].pid, sig);
    }
    free(at);
    if (ret_sum)
        *ret_sum = sum;
}

int pst_tree_kill(pid_t pid)
{
    pst_tree t;
    pst_tree_walk(pid, SIGSTOP, &t);
    for (int before = -1, rounds = 0; t.processes > before && rounds < STOP_ROUNDS; rounds++) {
        before = t.processes;
        pst_tree_walk(pid, SIGSTOP, &t);
    }
    pst_tree_walk(pid, SIGKILL, &t);
    return t.processes;
}
