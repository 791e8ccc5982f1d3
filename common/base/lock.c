/* lock.c - locks of files, in one place because "somebody has it" has three names: EWOULDBLOCK of flock(2), EAGAIN and EACCES of fcntl(2). */
#include "common/base/lock.h"

#include "common/base/log.h"
#include "common/base/retry.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

enum { WAIT_MS = 200 }; /* a look costs nothing, and a successor is there at once */

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

int pst_lock_wait(const char *path, pst_lock_kind kind, const char *component, const char *words, pst_err *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return pst_err_sys(err, errno, "cannot open %s", path);
    int rc = pst_lock_try(fd, kind);
    if (rc == PST_EEXIST)
        pst_log(PST_LOG_INFO, component, "event=standby %s", words);
    while (rc == PST_EEXIST && pst_retry_pause(WAIT_MS, NULL, NULL))
        rc = pst_lock_try(fd, kind);
    if (rc == PST_EEXIST)
        rc = pst_err_set(err, PST_ESTOPPED, PST_CLASS_NONE, "", 0, "asked to stop while another process had %s", path);
    else if (rc < 0)
        rc = pst_err_sys(err, errno, "cannot lock %s", path);
    if (rc < 0)
        close(fd);
    return rc; /* else the descriptor, and with it the lock, stays with the process */
}
