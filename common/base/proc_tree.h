/* proc_tree.h - the processes below one, however they were started: below a subreaper nothing can leave the tree. Read from /proc.
 * @thread any. */
#ifndef PST_BASE_PROC_TREE_H
#define PST_BASE_PROC_TREE_H

#include <stdint.h>
#include <sys/types.h>

typedef struct pst_tree {
    int processes;      /* zombies not counted */
    double cpu_seconds; /* of those that live, and of their reaped children */
    int64_t rss_bytes;
    int threads;
    int64_t read_bytes, write_bytes; /* of files and devices, page cache not counted; of those that we may look at */
    int64_t own_bytes;               /* of it, what no other process shares: the sum is what they take together, about */
} pst_tree;

/* Looks at every living descendant of pid; with sig != 0 signals each. */
void pst_tree_walk(pid_t pid, int sig, pst_tree *ret_sum);
/* SIGKILL to every descendant of pid. They are stopped first, all of them: what forks faster than it is killed could go on for ever. Returns
 * how many there were; ask again until it says 0. */
int pst_tree_kill(pid_t pid);

#endif
