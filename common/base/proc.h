/* proc.h - processes by (pid, start time), so that a reused pid is never taken for the old one; detached starts. @thread any. */
#ifndef PST_BASE_PROC_H
#define PST_BASE_PROC_H

#include "common/base/err.h"

#include <sys/types.h>

#define PST_PROC_STAT_BYTES 1024
/* Reads /proc/<pid>/stat (proc(5)) into text; what is returned stands at the ')' behind the command's name, which may hold anything itself.
 * NULL = no such process. */
const char *pst_proc_stat(pid_t pid, char text[PST_PROC_STAT_BYTES]);
int64_t pst_proc_start_time(pid_t pid); /* clock ticks since boot (/proc/<pid>/stat field 22); 0 = no such process, or a zombie */
bool pst_proc_alive(pid_t pid, int64_t start_time); /* that very process, not a zombie */
/* Processes of a process group that live (zombies not counted). */
int pst_proc_group_count(pid_t pgid);
int pst_proc_count(uid_t user);   /* threads that this user runs now: what RLIMIT_NPROC counts */
pid_t pst_proc_parent(pid_t pid); /* 0 = no such process */
/* Sends sig to every process whose environment holds the string "name=value", that was started at not_before (as pst_proc_start_time) or
 * later and is our user's; never to ourselves and what is above us. Returns how many there were. */
int pst_proc_kill_marked(const char *name_value, int64_t not_before, int sig);
/* Nobody of our user may look into this process (memory, environment, descriptors), and it leaves no core: for whoever holds credentials.
 * PENSTOCK_DUMPABLE=1 leaves it open to debuggers. A program that is started from here is open again. */
void pst_proc_private(void);
/* This binary (/proc/self/exe, also when it was replaced meanwhile); free(). */
char *pst_proc_self(void);

typedef struct pst_spawn {
    const char *const *argv;            /* NULL-terminated; argv[0] is the path unless file is given */
    const char *file;                   /* NULL = argv[0] */
    const char *const *env;             /* NULL = inherit */
    const char *dir;                    /* NULL = same */
    int stdin_fd, stdout_fd, stderr_fd; /* -1 = /dev/null */
    bool new_session;                   /* setsid */
    bool new_group;                     /* setpgid(0, 0) */
    int parent_death_signal;            /* 0 = none */
    int (*enter)(void *arg);            /* in the child, first of all, with every descriptor still open; returns 0 or an errno, and then */
    bool enter_forks;                   /* what comes back from it may be another process, whose parent ends with us */
    void *enter_arg;                    /* nothing is started. Async-signal-safe calls only: others may hold locks in this copy */
} pst_spawn;
/* All other descriptors are closed in the child; signals reset. */
int pst_proc_spawn(const pst_spawn *how, pid_t *ret_pid, pst_err *err);
/* A TCP port of 127.0.0.1 that nobody listens on: the wanted one, else one of the next twenty, else any. */
int pst_proc_free_port(int wanted);

#endif
