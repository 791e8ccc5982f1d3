/* fs.c - a file is written beside its place, synced, renamed and its folder synced: a reader finds the old or the new one, also after
 * a loss of power. What others may have put in a place is looked at before it is read: no waiting for a FIFO, no device. */
#include "common/base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int pst_fs_mkdirs(const char *path, mode_t mode, pst_err *err)
{
    char *p = pst_strdup(path);
    int rc = 0;
    for (char *s = p + 1; !rc; s++) {
        if (*s && *s != '/')
            continue;
        char was = *s;
        *s = 0;
        struct stat st;
        if (mkdir(p, mode) < 0 && errno != EEXIST)
            rc = pst_err_sys(err, errno, "cannot make folder %s", p);
        else if (!was && (stat(p, &st) < 0 || !S_ISDIR(st.st_mode)))
            rc = pst_err_sys(err, ENOTDIR, "cannot make folder %s", p);
        *s = was;
        if (!was)
            break;
    }
    free(p);
    return rc;
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a named pipe"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISLNK(mode)  ? "a link"
                            : "a device";
}

int pst_fs_open_regular(const char *path, int flags, pst_err *err)
{
    struct stat st;
    /* Nobody's FIFO holds us up, and no device is rewound or set. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
    if (fd < 0 && errno == ELOOP && (flags & O_NOFOLLOW))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "sys", ELOOP, "%s is a link, not a regular file", path);
    if (fd < 0 && (errno == ENXIO || errno == ENODEV))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "sys", errno, "%s is a socket or a device, not a regular file", path);
    if (fd < 0 || fstat(fd, &st) < 0) {
        int code = errno;
        if (fd >= 0)
            close(fd);
        return pst_err_sys(err, code, "cannot read %s", path);
    }
    if (S_ISREG(st.st_mode))
        return fd;
    close(fd);
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "sys", 0, "%s is %s, not a regular file", path, kind_of(st.st_mode));
}

/* Descriptors that we were given by whoever started us may be pipes: "-", and a shell's <(…). */
int pst_fs_open_input(const char *path, pst_err *err)
{
    static const char *const given[] = {"/dev/fd/", "/proc/self/fd/", "/dev/stdin"};
    int fd = -1;
    if (!strcmp(path, "-"))
        fd = dup(0);
    for (size_t i = 0; i < sizeof given / sizeof *given && fd < 0; i++)
        if (!strncmp(path, given[i], strlen(given[i])))
            fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    return fd >= 0 ? fd : pst_fs_open_regular(path, 0, err);
}

int pst_fs_read(const char *path, size_t bytes_max, pst_buf *ret_buf, pst_err *err)
{
    int fd = pst_fs_open_input(path, err);
    if (fd < 0)
        return fd;
    pst_buf b = {0};
    int rc = 0;
    for (;;) {
        pst_buf_reserve(&b, 65536);
        ssize_t n = read(fd, b.data + b.len, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = pst_err_sys(err, errno, "cannot read %s", path);
        if (n <= 0)
            break;
        b.len += (size_t)n;
        b.data[b.len] = 0;
        if (b.len > bytes_max) {
            rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "sys", 0, "%s is larger than the limit of %zu bytes", path, bytes_max);
            break;
        }
    }
    close(fd);
    if (rc < 0)
        pst_buf_done(&b);
    else
        *ret_buf = b;
    return rc;
}

int pst_fs_write_all(int fd, const void *data, size_t len)
{
    const char *p = data;
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return PST_EIO;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static int sync_folder(const char *path)
{
    char *copy = pst_strdup(path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    if (fd < 0)
        return -1;
    int rc = fsync(fd);
    close(fd);
    return rc;
}

static int replace(const char *path, const void *data, size_t len, mode_t mode, bool durable, pst_err *err)
{
    char *tmp = pst_sprintf("%s.tmp-%d", path, (int)getpid());
    int rc = 0, fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0)
        rc = pst_err_sys(err, errno, "cannot write %s", tmp);
    else if (pst_fs_write_all(fd, data, len) < 0 || (durable && fsync(fd) < 0))
        rc = pst_err_sys(err, errno, "cannot write %s", tmp);
    if (fd >= 0)
        close(fd);
    if (!rc && (rename(tmp, path) < 0 || (durable && sync_folder(path) < 0)))
        rc = pst_err_sys(err, errno, "cannot put %s in place", path);
    if (rc)
        unlink(tmp);
    free(tmp);
    return rc;
}

int pst_fs_write_atomic(const char *path, const void *data, size_t len, mode_t mode, pst_err *err)
{
    return replace(path, data, len, mode, true, err);
}

int pst_fs_replace(const char *path, const void *data, size_t len, mode_t mode, pst_err *err)
{
    return replace(path, data, len, mode, false, err);
}

static int remove_at(int dirfd, const char *name)
{
    if (!unlinkat(dirfd, name, 0) || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM && errno != ENOTEMPTY)
        return -1;
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return -1;
    int rc = 0;
    for (struct dirent *e; !rc && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            rc = remove_at(fd, e->d_name);
    closedir(d);
    return rc ? rc : unlinkat(dirfd, name, AT_REMOVEDIR);
}

int pst_fs_remove_tree(const char *path, pst_err *err)
{
    return remove_at(AT_FDCWD, path) < 0 ? pst_err_sys(err, errno, "cannot remove %s", path) : 0;
}

bool pst_fs_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

char *pst_fs_join(const char *dir, const char *name)
{
    size_t n = strlen(dir);
    return pst_sprintf("%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
}

int pst_fs_open_beneath(int dirfd, const char *name, int flags, mode_t mode)
{
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                           .mode = flags & (O_CREAT | O_TMPFILE) ? mode : 0,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS};
    return (int)syscall(SYS_openat2, dirfd, name, &how, sizeof how);
}

typedef struct unit {
    const char *name;
    double factor;
} unit;

/* "<number> <unit>" by a table of units; the empty name is a bare number. 0, or PST_EPARSE with ret_value untouched. */
static int parse_with_unit(const char *text, const unit *units, size_t n, int (*compare)(const char *, const char *), int64_t *ret_value)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || !(v >= 0))
        return PST_EPARSE;
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < n; i++)
        if (!compare(end, units[i].name)) {
            if (v * units[i].factor > 9e18)
                return PST_EPARSE;
            *ret_value = (int64_t)(v * units[i].factor);
            return 0;
        }
    return PST_EPARSE;
}

int pst_bytes_parse(const char *text, int64_t *ret_bytes)
{
    static const unit units[] = {{"", 1},
                                 {"b", 1},
                                 {"k", 1024},
                                 {"kb", 1e3},
                                 {"kib", 1024},
                                 {"m", 1048576},
                                 {"mb", 1e6},
                                 {"mib", 1048576},
                                 {"g", 1073741824},
                                 {"gb", 1e9},
                                 {"gib", 1073741824},
                                 {"t", 1099511627776.},
                                 {"tb", 1e12},
                                 {"tib", 1099511627776.}};
    return parse_with_unit(text, units, sizeof units / sizeof *units, strcasecmp, ret_bytes);
}

int pst_span_parse(const char *text, int64_t *ret_us)
{
    static const unit units[] = {{"", 1e6}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"m", 6e7}, {"min", 6e7}, {"h", 3.6e9}, {"d", 8.64e10}};
    return parse_with_unit(text, units, sizeof units / sizeof *units, strcmp, ret_us);
}

static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(b);
    if (strlen(a) > 63 || n > 63)
        return 64;
    size_t row[64];
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t up = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            if (up + 1 < best)
                best = up + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = up;
            row[j] = best;
        }
    }
    return row[n];
}

const char *pst_nearest(const char *word, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    size_t least = strlen(word) / 2 + 1;
    for (size_t i = 0; i < n; i++) {
        size_t d = candidates[i] ? distance(word, candidates[i]) : 64;
        if (d < least) {
            least = d;
            best = candidates[i];
        }
    }
    return best;
}

int pst_fs_put_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int rc = write(fd, text, strlen(text)) < 0 ? errno : 0;
    close(fd);
    return rc;
}
