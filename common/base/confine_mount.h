/* confine_mount.h - mounts as things that can be taken and put elsewhere (open_tree(2), move_mount(2), mount_setattr(2)), shared by confine*.c.
 * All of it is safe after a fork. @thread a child after fork. */
#ifndef PST_BASE_CONFINE_MOUNT_H
#define PST_BASE_CONFINE_MOUNT_H

#include <stdbool.h>

enum { PST_CONFINE_RDONLY = 1, PST_CONFINE_NODEV = 4 }; /* MOUNT_ATTR_… */

/* A descriptor of a copy of what is mounted at path, and below it; -1 and errno. */
int pst_confine_take(const char *path);
/* Mounts it at path, which is made if it is not there. 0 or an errno. */
int pst_confine_put(int tree, const char *path, bool folder);
/* Sets attributes of a mount and all below it: of path, or of a taken one (path ""). 0 or an errno. */
int pst_confine_set(int tree, const char *path, unsigned attributes);
/* mkdir for everybody to go through, whatever our umask: who goes there may be another user. */
void pst_confine_folder(const char *path);

#endif
