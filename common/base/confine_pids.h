/* confine_pids.h - the part of confine.c that makes a process namespace. @thread a child after fork. */
#ifndef PST_BASE_CONFINE_PIDS_H
#define PST_BASE_CONFINE_PIDS_H

/* Returns 0 in a new process, the command's, in a namespace of its own; else an errno. prepare runs as the namespace's first process, before
 * the command's is forked. grace_ms: how long what outlives the command may go on. */
int pst_confine_pids(int (*prepare)(void *arg), void *arg, int grace_ms);

#endif
