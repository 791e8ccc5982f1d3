/* lock.c - locks of files, in one place because "somebody has it" has three names: EWOULDBLOCK of flock(2), EAGAIN and EACCES of fcntl(2). */
#include "common/base/lock.h"

#include "common/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

int pst_lock_try(int fd, pst_lock_kind kind)
{
    PST_ASSERT(fd >= 0);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int rc;
    do
        rc = kind == PST_LOCK_PLAIN ? flock(fd, LOCK_EX | LOCK_NB) : fcntl(fd, F_OFD_SETLK, &whole);
    while (rc < 0 && errno == EINTR);
    if (rc == 0)
        return 0;
    return errno == EWOULDBLOCK || errno == EAGAIN || errno == EACCES ? PST_EEXIST : PST_EIO;
}

bool pst_lock_is_taken(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}
