/* follow.c - by polling: inotify sees nothing of what another host writes to a shared file system. A file that was cut and grew beyond the old place
 * between two looks is told by the bytes before that place, which are others now. */
#include "lcm/supervisor/follow.h"

#include "common/base/fs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define POLL_BYTES_MAX (1 << 20)
enum { MARK_BYTES = 48 };

struct sup_follow {
    int dir_fd, fd; /* fd: -1 = none is held */
    char *name;
    bool rotates, known; /* known: dev and inode are those of the file read so far */
    dev_t dev;
    ino_t inode;
    off_t at;
    char mark[MARK_BYTES]; /* the bytes before at */
    size_t mark_len;
    sup_follow_to to;
};

/* -1: not there, or nothing that is read. */
static int open_file(const sup_follow *f, struct stat *ret_st)
{
    int fd = pst_fs_open_beneath(f->dir_fd, f->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (fd >= 0 && (fstat(fd, ret_st) < 0 || !S_ISREG(ret_st->st_mode))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* The last bytes of what was read, over reads of any size. */
static void remember(sup_follow *f, const char *data, size_t len)
{
    size_t add = len < MARK_BYTES ? len : MARK_BYTES, keep = MARK_BYTES - add < f->mark_len ? MARK_BYTES - add : f->mark_len;
    memmove(f->mark, f->mark + f->mark_len - keep, keep);
    memcpy(f->mark + keep, data + len - add, add);
    f->mark_len = keep + add;
}

static void begin_anew(sup_follow *f)
{
    f->at = 0;
    f->mark_len = 0;
    f->to.anew(f->to.arg);
}

static bool was_rewritten(const sup_follow *f, int fd)
{
    char now[MARK_BYTES];
    return f->mark_len &&
           (pread(fd, now, f->mark_len, f->at - (off_t)f->mark_len) != (ssize_t)f->mark_len || memcmp(now, f->mark, f->mark_len));
}

/* Reads on; false: to its end. */
static bool read_on(sup_follow *f, int fd)
{
    char data[65536];
    for (size_t total = 0; total < POLL_BYTES_MAX;) {
        ssize_t n = pread(fd, data, sizeof data, f->at);
        if (n <= 0)
            return false;
        f->at += n;
        total += (size_t)n;
        remember(f, data, (size_t)n);
        f->to.data(f->to.arg, data, (size_t)n);
    }
    return true;
}

static void hold(sup_follow *f, int fd)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = fd;
}

sup_follow *sup_follow_new(int dir_fd, const char *name, bool from_now, bool rotates, const sup_follow_to *to)
{
    sup_follow *f = pst_alloc(sizeof *f);
    *f = (sup_follow){.dir_fd = dir_fd, .fd = -1, .name = pst_strdup(name), .rotates = rotates, .to = *to};
    struct stat st;
    int fd = from_now ? open_file(f, &st) : -1;
    if (fd < 0)
        return f;
    f->known = true;
    f->dev = st.st_dev;
    f->inode = st.st_ino;
    f->at = st.st_size;
    f->mark_len = st.st_size < MARK_BYTES ? (size_t)st.st_size : MARK_BYTES;
    if (pread(fd, f->mark, f->mark_len, f->at - (off_t)f->mark_len) != (ssize_t)f->mark_len)
        f->mark_len = 0;
    if (rotates)
        hold(f, fd);
    else
        close(fd);
    return f;
}

/* Another file stands under the name: the rest of the old one first. */
static bool exchange(sup_follow *f, int fd, const struct stat *st)
{
    if (f->fd >= 0 && read_on(f, f->fd)) {
        close(fd);
        return true;
    }
    if (f->known)
        begin_anew(f);
    f->known = true;
    f->dev = st->st_dev;
    f->inode = st->st_ino;
    if (f->rotates)
        hold(f, fd);
    bool more = read_on(f, fd);
    if (!f->rotates)
        close(fd);
    return more;
}

/* A file that did not grow is not opened: of a thousand event files one grows. */
static bool has_news(const sup_follow *f)
{
    struct stat st;
    return fstatat(f->dir_fd, f->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_ino != f->inode || st.st_dev != f->dev || st.st_size != f->at;
}

bool sup_follow_poll(sup_follow *f)
{
    struct stat st;
    if (!f || (f->known && !has_news(f)))
        return false;
    int fd = open_file(f, &st);
    if (fd < 0)
        return f->fd >= 0 && read_on(f, f->fd); /* renamed, and no new one yet */
    if (!f->known || st.st_ino != f->inode || st.st_dev != f->dev)
        return exchange(f, fd, &st);
    if (st.st_size < f->at || was_rewritten(f, fd))
        begin_anew(f);
    bool more = read_on(f, fd);
    close(fd);
    return more;
}

const char *sup_follow_name(const sup_follow *f)
{
    return f->name;
}

void sup_follow_free(sup_follow *f)
{
    if (!f)
        return;
    hold(f, -1);
    free(f->name);
    free(f);
}
