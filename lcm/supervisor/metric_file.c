/* metric_file.c - follows a file as `tail -F` does, by polling: inotify sees nothing of what another host writes to a shared file system. */
#include "lcm/supervisor/metric_file.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "lcm/supervisor/lines.h"
#include "lcm/supervisor/metric_line.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define POLL_BYTES_MAX (1 << 20)
#define DRAIN_ROUNDS   256 /* at the end: so many times the above */

struct sup_metric_file {
    char *path;
    off_t at;
    ino_t inode; /* a file that was replaced is read from its start */
    sup_lines lines;
    void (*point)(void *arg, const pst_metric_point *point);
    void *arg;
};

static void on_line(void *arg, const char *text, size_t len)
{
    sup_metric_file *f = arg;
    pst_metric_point p;
    const char *why;
    if (!len)
        return;
    if (sup_emetrics_line(text, len, pst_now_us(), &p, &why)) {
        f->point(f->arg, &p);
        pst_event_clear(&pst_metric_point_type, &p);
    } else {
        pst_log(PST_LOG_DEBUG, "supervisor", "event=metric_line_skipped file=%s reason=\"%s\"", f->path, why);
    }
}

sup_metric_file *sup_metric_file_new(const char *path, void (*point)(void *arg, const pst_metric_point *point), void *arg)
{
    sup_metric_file *f = pst_alloc(sizeof *f);
    struct stat st;
    f->path = pst_strdup(path);
    f->point = point;
    f->arg = arg;
    f->lines = (sup_lines){.line = on_line, .arg = f};
    if (stat(path, &st) == 0) {
        f->at = st.st_size;
        f->inode = st.st_ino;
    }
    return f;
}

/* Returns whether there may be more. */
static bool read_some(sup_metric_file *f)
{
    struct stat st;
    bool more = false;
    int fd = f ? open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW) : -1;
    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        if (st.st_ino != f->inode || st.st_size < f->at) {
            f->at = 0;
            f->inode = st.st_ino;
            pst_buf_clear(&f->lines.part);
        }
        char data[65536];
        more = true;
        for (size_t total = 0; total < POLL_BYTES_MAX;) {
            ssize_t n = pread(fd, data, sizeof data, f->at);
            if (n <= 0) {
                more = false;
                break;
            }
            sup_lines_feed(&f->lines, data, (size_t)n);
            f->at += n;
            total += (size_t)n;
        }
    }
    close(fd);
    return more;
}

void sup_metric_file_poll(sup_metric_file *f)
{
    read_some(f);
}

void sup_metric_file_drain(sup_metric_file *f)
{
    for (int i = 0; i < DRAIN_ROUNDS && read_some(f); i++)
        ;
}

void sup_metric_file_free(sup_metric_file *f)
{
    if (!f)
        return;
    sup_lines_end(&f->lines);
    free(f->path);
    free(f);
}
