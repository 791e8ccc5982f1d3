/* tree.c - see tree.h. */
#include "producers/supervisor/tree.h"

#include "common/base/buf.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct entry {
    pid_t pid, parent;
    bool ours;
    char state;
    double cpu_ticks;
    int64_t rss_pages;
} entry;

/* Fields 3, 4, 14–17 and 24 of /proc/<pid>/stat (proc(5)); the name in parentheses may hold anything. */
static bool read_entry(pid_t pid, entry *ret)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = 0;
    char *p = strrchr(text, ')');
    int parent;
    unsigned long long ut, st;
    long long cut, cst, rss;
    char state;
    if (!p || sscanf(p + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %lld %lld %*d %*d %*d %*d %*u %*u %lld", &state, &parent,
                     &ut, &st, &cut, &cst, &rss) != 7)
        return false;
    *ret = (entry){
        .pid = pid, .parent = parent, .state = state, .cpu_ticks = (double)ut + (double)st + (double)cut + (double)cst, .rss_pages = rss};
    return true;
}

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
        if (n == cap)
            at = pst_realloc(at, (cap = 2 * cap + 256) * sizeof *at);
        at[n++] = x;
    }
    if (d)
        closedir(d);
    /* /proc lists by pid, parents mostly before children: a few rounds settle it. */
    for (bool grown = true; grown;) {
        grown = false;
        for (size_t i = 0; i < n; i++) {
            bool child = at[i].parent == pid;
            for (size_t k = 0; !child && !at[i].ours && k < n; k++)
                child = at[k].ours && at[k].pid == at[i].parent;
            if (child && !at[i].ours)
                at[i].ours = grown = true;
        }
    }
    double tick = (double)sysconf(_SC_CLK_TCK), page = (double)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < n; i++) {
        if (!at[i].ours || at[i].state == 'Z' || at[i].state == 'X')
            continue;
        sum.processes++;
        sum.cpu_seconds += at[i].cpu_ticks / tick;
        sum.rss_bytes += (int64_t)((double)at[i].rss_pages * page);
        if (sig)
            kill(at[i].pid, sig);
    }
    free(at);
    if (ret_sum)
        *ret_sum = sum;
}
