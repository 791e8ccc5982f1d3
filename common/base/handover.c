/* handover.c - settings go to a child through a memfd: it has no name that another process could open, and is gone with its last descriptor.
 * Both sides overwrite their copies before they free them. */
#include "common/base/handover.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES_MAX (4u << 20)

int pst_handover_new(const char *const *env, int *ret_fd, pst_err *err)
{
    pst_buf b = {0};
    for (; env && *env; env++)
        pst_buf_add(&b, *env, strlen(*env) + 1);
    PST_ASSERT(b.len < BYTES_MAX); /* the child reads no further: the rest would be missing there without a word */
    int fd = memfd_create("settings", MFD_CLOEXEC), rc = 0;
    if (fd < 0 || (b.len && pst_fs_write_all(fd, b.data, b.len) < 0) || lseek(fd, 0, SEEK_SET) < 0)
        rc = pst_err_sys(err, errno, "cannot hand settings to a child program");
    if (rc && fd >= 0)
        close(fd);
    if (!rc)
        *ret_fd = fd;
    if (b.data)
        explicit_bzero(b.data, b.len);
    pst_buf_done(&b);
    return rc;
}

/* PENSTOCK_ names are ours and replace what is there; for the others the child's own environment wins. */
static void put(char *pair)
{
    char *eq = strchr(pair, '=');
    if (!eq || eq == pair)
        return;
    *eq = 0;
    setenv(pair, eq + 1, !strncmp(pair, "PENSTOCK_", 9));
    *eq = '=';
}

/* What the mark names, to be read; -1: there is none. A file goes first: whatever is started from here finds nothing. */
static int source(void)
{
    const char *mark = getenv("PENSTOCK_HANDOVER");
    int in = mark && !strcmp(mark, "stdin") ? 0 : -1;
    if (mark && !strncmp(mark, "file:", 5)) {
        in = open(mark + 5, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        unlink(mark + 5);
    }
    if (mark)
        unsetenv("PENSTOCK_HANDOVER");
    return in;
}

void pst_handover_take(void)
{
    int in = source();
    if (in < 0)
        return;
    pst_buf b = {0};
    char part[16384];
    for (ssize_t n; b.len < BYTES_MAX && ((n = read(in, part, sizeof part)) > 0 || (n < 0 && errno == EINTR));)
        if (n > 0)
            pst_buf_add(&b, part, (size_t)n);
    explicit_bzero(part, sizeof part);
    pst_buf_addc(&b, 0);
    for (size_t at = 0; at + 1 < b.len; at += strlen(b.data + at) + 1)
        put(b.data + at);
    explicit_bzero(b.data, b.len);
    pst_buf_done(&b);
    if (in > 0)
        close(in);
    if (in)
        return;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null > 0) {
        dup2(null, 0);
        close(null);
    }
}
