/* tree.h - the processes below this one, however they were started: the supervisor is a subreaper, so nothing that a learner starts can
 * leave its tree. Read from /proc. @thread any. */
#ifndef PST_SUPERVISOR_TREE_H
#define PST_SUPERVISOR_TREE_H

#include <stdint.h>
#include <sys/types.h>

typedef struct pst_tree {
    int processes;
    double cpu_seconds; /* of those that live, and of their reaped children */
    int64_t rss_bytes;
} pst_tree;

/* Looks at every living descendant of pid; with sig != 0 signals each. */
void pst_tree_walk(pid_t pid, int sig, pst_tree *ret_sum);

#endif
