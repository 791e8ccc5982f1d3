/* follow.h - follows a file that a learner writes, as `tail -F` does: it may appear late, be cut and begin anew (copytruncate), or be renamed and replaced.
 * The file is a learner's: below a folder that was opened before it ran, nothing but a regular file is opened, and no link is followed.
 * @thread one owner. */
#ifndef PST_LCM_SUPERVISOR_FOLLOW_H
#define PST_LCM_SUPERVISOR_FOLLOW_H

#include "common/base/buf.h"

#include <stdbool.h>
#include <sys/types.h>

typedef struct sup_follow sup_follow;

typedef struct sup_follow_to {
    void (*data)(void *arg, const char *data, size_t len);
    void (*anew)(void *arg); /* what comes next is the beginning of a file; a last line without a newline ends here */
    void *arg;
} sup_follow_to;

/* name: relative to dir_fd (borrowed). from_now: what the file holds already is passed over, it was an earlier run's. rotates: an open descriptor is
 * kept, so that the end of a renamed file is read; without it what is not read before a rename is not read. */
sup_follow *sup_follow_new(int dir_fd, const char *name, bool from_now, bool rotates, const sup_follow_to *to);
bool sup_follow_poll(sup_follow *f); /* reads at most 1 MiB of what was added; is there more? NULL-safe */
const char *sup_follow_name(const sup_follow *f);
void sup_follow_free(sup_follow *f);

#endif
