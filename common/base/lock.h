/* lock.h - a file that one process at a time has, by the kernel's locks: they end with the process, however it ends.
 *
 *     int rc = pst_lock_try(fd, PST_LOCK_PLAIN);     0 = ours until fd is closed, PST_EEXIST = somebody has it
 *
 * Two kinds that do not see each other, so a file keeps its kind for ever: an older penstock may hold it while a newer one starts. @thread any. */
#ifndef PST_BASE_LOCK_H
#define PST_BASE_LOCK_H

#include "common/base/err.h"

#include <stdbool.h>

typedef enum {
    PST_LOCK_PLAIN,   /* flock(2) */
    PST_LOCK_VISIBLE, /* of an open file description: can be looked at without being taken */
} pst_lock_kind;

/* Does not wait. PST_EIO: errno says why. fd: open for writing. */
int pst_lock_try(int fd, pst_lock_kind kind);
/* The file at path, made where there is none, locked for the life of this process as soon as nobody else has it. Who waits says so once, as a standby that
 * may wait for days: "event=standby " and `words` in the log of component. PST_ESTOPPED: asked to stop meanwhile, nothing is locked. */
int pst_lock_wait(const char *path, pst_lock_kind kind, const char *component, const char *words, pst_err *err);
/* Of a VISIBLE one: a look never keeps anybody from taking it. */
bool pst_lock_is_taken(int fd);

#endif
