/* confine_mount.c - copies of folders mounted elsewhere, by the system calls themselves: Debian 12's C library has open_tree, move_mount and mount_setattr, older
 * headers lack their numbers. A tree is taken as a copy before anything is covered, so that it can be put where its own path is gone. */
#include "common/base/confine_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The headers of the oldest system that we build on are older than what we use. */
#define TREE_RECURSIVE  0x8000 /* AT_RECURSIVE */
#define TREE_CLONE      1      /* OPEN_TREE_CLONE */
#define MOVE_EMPTY_PATH 4      /* MOVE_MOUNT_F_EMPTY_PATH */
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

int pst_confine_take(const char *path)
{
    return (int)syscall(SYS_open_tree, AT_FDCWD, path, TREE_CLONE | TREE_RECURSIVE | O_CLOEXEC);
}

int pst_confine_put(int tree, const char *path, bool folder)
{
    int fd = folder ? -1 : open(path, O_CREAT | O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (fd >= 0)
        close(fd);
    if (folder)
        pst_confine_folder(path);
    return syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_EMPTY_PATH) < 0 ? errno : 0;
}

int pst_confine_set(int tree, const char *path, unsigned attributes)
{
    struct {
        uint64_t set, clear, propagation, userns;
    } attr = {.set = attributes};
    bool taken = tree >= 0;
    return syscall(SYS_mount_setattr, taken ? tree : AT_FDCWD, taken ? "" : path, TREE_RECURSIVE | (taken ? AT_EMPTY_PATH : 0), &attr,
                   sizeof attr) < 0
               ? errno
               : 0;
}

void pst_confine_folder(const char *path)
{
    if (mkdir(path, 0755) == 0)
        chmod(path, 0755);
}
