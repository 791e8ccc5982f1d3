/* handover.h - settings and credentials for a child program of ours, handed over by a descriptor: what stands in an environment or in
 * arguments can be read by others for as long as the process lives.
 *
 *     int fd;
 *     pst_handover_new(env, &fd, err);
 *     … spawn with stdin_fd = fd and PST_HANDOVER_MARK in its environment; close(fd)
 *
 * @thread main, before any other. */
#ifndef PST_BASE_HANDOVER_H
#define PST_BASE_HANDOVER_H

#include "common/base/err.h"

#define PST_HANDOVER_MARK "PENSTOCK_HANDOVER=stdin"
/* The same from a file, whose path follows: where no parent is there to pass a descriptor (a container). It is removed before it is read. */
#define PST_HANDOVER_FILE "PENSTOCK_HANDOVER=file:"

/* A file in memory, without a name, that holds "NAME=value" strings; close() it after the start. */
int pst_handover_new(const char *const *env, int *ret_fd, pst_err *err);
/* In the child: when the mark is in the environment, takes the strings from stdin (which is /dev/null from then on) into what getenv()
 * gives. PENSTOCK_ names replace what is there, others do not. */
void pst_handover_take(void);

#endif
