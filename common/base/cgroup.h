/* cgroup.h - control groups of one process's descendants: limits that the kernel keeps, and an end that nothing escapes.
 *
 * Version 2, and the hierarchies of version 1 where they are what a host has; always below the group that we are in ourselves, so that
 * nobody is taken out of limits set from outside. What is not writable for us is left out: an empty set is no error, `have` tells.
 *
 *     pst_cgroup g;
 *     pst_cgroup_make("penstock-4f1c…", &g);        // folders
 *     pst_cgroup_limit(&g, &(pst_cgroup_limits){…});  // g.enforced: which of them hold
 *     fork → pst_cgroup_join(&g) in the child, before it runs anything
 *     while (pst_cgroup_kill(&g) > 0) …             // ends everything in it, however it hides
 *     pst_cgroup_remove(&g)
 *
 * @thread any. */
#ifndef PST_BASE_CGROUP_H
#define PST_BASE_CGROUP_H

#include "common/base/err.h"

#define PST_CGROUP_MAX  4   /* folders: one of version 2; memory, pids, cpu of version 1 */
#define PST_CGROUP_PATH 600 /* bytes of a folder's path */

enum { PST_CGROUP_MEMORY = 1, PST_CGROUP_PROCESSES = 2, PST_CGROUP_CPUS = 4, PST_CGROUP_KILL = 8 };

typedef struct pst_cgroup_limits { /* 0 = none */
    int64_t memory_bytes;
    int64_t processes;
    double cpus;
} pst_cgroup_limits;

typedef struct pst_cgroup {
    char path[PST_CGROUP_MAX][PST_CGROUP_PATH];
    int fd[PST_CGROUP_MAX]; /* of cgroup.procs, for the join; -1 */
    int n;
    unsigned have;     /* what this host lets us do: PST_CGROUP_… */
    unsigned enforced; /* by pst_cgroup_limit */
} pst_cgroup;

/* Makes the folders, or takes up those of that name. name: [A-Za-z0-9.-], at most 100 bytes. */
void pst_cgroup_make(const char *name, pst_cgroup *ret);
void pst_cgroup_limit(pst_cgroup *g, const pst_cgroup_limits *limits);
/* The calling process goes in. Async-signal-safe. 0, or the errno of the first refusal. */
int pst_cgroup_join(const pst_cgroup *g);
void pst_cgroup_close(pst_cgroup *g); /* the descriptors; the folders stay */
/* Which limits were hit since it was made: PST_CGROUP_MEMORY (something was killed for want of memory), PST_CGROUP_PROCESSES. */
unsigned pst_cgroup_hits(const pst_cgroup *g);
/* How often a process more was refused since it was made. */
int64_t pst_cgroup_refused(const pst_cgroup *g);
/* SIGKILL to everything in it, now and while it forks. Returns how many processes still are in it. */
int pst_cgroup_kill(const pst_cgroup *g);
void pst_cgroup_remove(const pst_cgroup *g);
/* Removes groups whose name begins so, in which nothing is and which were made that long ago: those of folders that were wiped. How many. */
int pst_cgroup_remove_stale(const char *prefix, int64_t older_than_s);
/* One path a line, for whoever must end it after a crash; paths that are no folders of that name below a control-group mount are refused. */
char *pst_cgroup_text(const pst_cgroup *g); /* free() */
void pst_cgroup_from_text(const char *text, const char *name, pst_cgroup *ret);

#endif
