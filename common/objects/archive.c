/* archive.c - users' archives: unpacked as if they were hostile, packed so that the same folder gives the same bytes; see objects.h.
 *
 * Only zip, tar and gzipped tar are enabled in libarchive: every further format is code that an attacker can reach. Limits count the bytes
 * written, not the bytes declared. Links, devices and special files are refused by name instead of left out: a learner that misses a file
 * would fail later and further away. */
#include "common/base/array.h"
#include "common/objects/objects.h"

#include "common/base/array.h"
#include "common/base/fs.h"
#include "common/objects/archive_lib.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES_MAX 20000
#define BYTES_MAX   (4ll << 30)
#define DEPTH_MAX   32
#define PATH_BYTES  1024
#define RATIO_MAX   200 /* unpacked to packed, once RATIO_FLOOR bytes are out */
#define RATIO_FLOOR (64ll << 20)
#define CHUNK       (128 * 1024)

static int refuse(pst_err *err, const char *name, const char *why)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "archive", 0, "archive entry '%.120s' is refused: %s", name, why);
}

/* Leaves the cleaned relative path in ret (no ".", no empty parts; "" for the root itself). */
static int clean_name(const char *name, char ret[PATH_BYTES], pst_err *err)
{
    size_t out = 0, depth = 0;
    if (!*name)
        return refuse(err, name, "it has no name");
    if (*name == '/')
        return refuse(err, name, "its path is absolute");
    if (strlen(name) >= PATH_BYTES)
        return refuse(err, name, "its path is longer than 1,023 bytes");
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '\\')
            return refuse(err, "(unprintable)", "its path has control characters or backslashes");
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.')
            return refuse(err, name, "its path leaves the archive by ..");
        if (n > 255)
            return refuse(err, name, "a part of its path is longer than 255 bytes");
        if (n && !(n == 1 && *p == '.')) {
            if (++depth > DEPTH_MAX)
                return refuse(err, name, "it lies deeper than 32 folders");
            if (out)
                ret[out++] = '/';
            memcpy(ret + out, p, n);
            out += n;
        }
        p += n + (p[n] == '/');
    }
    PST_ASSERT(out < PATH_BYTES); /* cleaning only takes away */
    ret[out] = 0;
    return 0;
}

/* Makes the folders of path below root; with whole, path itself too. */
static int make_folders(int root, const char *path, bool whole, pst_err *err)
{
    char part[PATH_BYTES];
    PST_ASSERT(root >= 0 && *path != '/' && strlen(path) < PATH_BYTES);
    int rc = 0;
    for (const char *p = path; !rc && *p;) {
        const char *slash = strchr(p, '/');
        if (!slash && !whole)
            break;
        size_t n = slash ? (size_t)(slash - path) : strlen(path);
        memcpy(part, path, n);
        part[n] = 0;
        int fd = pst_fs_open_beneath(root, part, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
        if (fd < 0 && errno == ENOENT) {
            char *last = strrchr(part, '/');
            int parent = root;
            if (last) {
                *last = 0;
                parent = pst_fs_open_beneath(root, part, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
            }
            if (parent < 0 || mkdirat(parent, last ? last + 1 : part, 0700) < 0)
                rc = pst_err_sys(err, errno, "cannot make the folder of archive entry %s", path);
            if (last && parent >= 0)
                close(parent);
        } else if (fd < 0) {
            rc = refuse(err, path, "an earlier entry of that name is no folder");
        }
        if (fd >= 0)
            close(fd);
        p = slash ? slash + 1 : p + strlen(p);
    }
    return rc;
}

static int broken(struct archive *a, pst_err *err)
{
    const char *text = archive_error_string(a);
    return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "archive", archive_errno(a),
                       "the archive is damaged or of another kind than zip, tar, tar.gz: %s", text ? text : "unknown fault");
}

typedef struct budget {
    int64_t written, packed;
    size_t entries;
} budget;

/* path is a clean one (clean_name). Opened beneath root and only if nothing has its name: whatever an archive says, no file that is there is
 * written, and no link is followed. Limits are checked before a chunk is written, so at most one chunk is read beyond them. */
static int write_file(struct archive *a, struct archive_entry *entry, int root, const char *path, budget *b, pst_err *err)
{
    PST_ASSERT(root >= 0 && *path && *path != '/');
    /* Whatever the archive says its owner may read, write and run each file: FfDL makes code so (chmod -R 777), and commands like
     * ./launcher.py rest on it. */
    int fd = pst_fs_open_beneath(root, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0700);
    if (fd < 0)
        return errno == EEXIST ? refuse(err, path, "it is there twice") : pst_err_sys(err, errno, "cannot write archive entry %s", path);
    char *chunk = pst_alloc(CHUNK);
    int rc = 0;
    for (;;) {
        la_ssize_t n = archive_read_data(a, chunk, CHUNK);
        if (n == ARCHIVE_RETRY)
            continue;
        if (n < 0)
            rc = broken(a, err);
        if (n <= 0)
            break;
        b->written += n;
        if (b->written > BYTES_MAX)
            rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "archive", 0, "the archive unpacks to more than %lld bytes", BYTES_MAX);
        else if (b->written > RATIO_FLOOR && b->written / RATIO_MAX > b->packed)
            rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "archive", 0,
                             "the archive unpacks to more than %d times its size (at entry '%.100s')", RATIO_MAX, path);
        else if (pst_fs_write_all(fd, chunk, (size_t)n) < 0)
            rc = pst_err_sys(err, errno, "cannot write archive entry %s", path);
        if (rc)
            break;
    }
    free(chunk);
    if (close(fd) < 0 && !rc)
        rc = pst_err_sys(err, errno, "cannot write archive entry %s", path);
    return rc;
}

/* What an archive may hold at all. path: the entry's clean one; "" only for a folder. */
static int weigh_entry(struct archive_entry *entry, budget *b, char path[PATH_BYTES], bool *ret_folder, pst_err *err)
{
    const char *name = archive_entry_pathname(entry);
    if (!name)
        name = archive_entry_pathname_utf8(entry);
    if (!name)
        return refuse(err, "(unreadable)", "its name is in no known character set");
    int rc = clean_name(name, path, err);
    if (rc < 0)
        return rc;
    if (++b->entries > ENTRIES_MAX)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "archive", 0, "the archive has more than %d entries", ENTRIES_MAX);
    if (archive_entry_hardlink(entry))
        return refuse(err, path, "hard links are not taken; put the file itself");
    if (archive_entry_is_encrypted(entry))
        return refuse(err, path, "it is encrypted");
    *ret_folder = archive_entry_filetype(entry) == AE_IFDIR;
    switch (archive_entry_filetype(entry)) {
    case AE_IFDIR: return 0;
    case AE_IFREG: break;
    case AE_IFLNK: return refuse(err, path, "symbolic links are not taken; put the file itself");
    default: return refuse(err, path, "it is neither a file nor a folder");
    }
    return *path ? 0 : refuse(err, name, "a file cannot be the folder itself");
}

static int unpack_entry(struct archive *a, struct archive_entry *entry, int root, budget *b, pst_err *err)
{
    char path[PATH_BYTES];
    bool folder;
    int rc = weigh_entry(entry, b, path, &folder, err);
    if (!rc && *path)
        rc = make_folders(root, path, folder, err);
    return rc < 0 || folder ? rc : write_file(a, entry, root, path, b, err);
}

/* The sizes that a zip's directory tells: what unpacks to more is found out when it is unpacked. */
static int check_entry(struct archive_entry *entry, budget *b, pst_err *err)
{
    char path[PATH_BYTES];
    bool folder;
    int rc = weigh_entry(entry, b, path, &folder, err);
    int64_t size = rc || folder ? 0 : archive_entry_size(entry);
    if (rc)
        return rc;
    if (size < 0 || size > BYTES_MAX - b->written)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "archive", 0, "the archive unpacks to more than %lld bytes", BYTES_MAX);
    b->written += size;
    if (b->written > RATIO_FLOOR && b->written / RATIO_MAX > b->packed)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "archive", 0,
                           "the archive unpacks to more than %d times its size (at entry '%.100s')", RATIO_MAX, path);
    return 0;
}

/* libarchive converts names to the thread's character set: UTF-8, whatever the caller's is. */
static locale_t utf8_begin(locale_t *ret_was)
{
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    *ret_was = utf8 ? uselocale(utf8) : (locale_t)0;
    return utf8;
}

static void utf8_end(locale_t utf8, locale_t was)
{
    if (!utf8)
        return;
    uselocale(was);
    freelocale(utf8);
}

/* Unpacks beneath root; -1: only looks. */
static int walk(const void *data, size_t len, int root, pst_err *err)
{
    int rc = 0;
    locale_t was, utf8 = utf8_begin(&was);
    budget b = {.packed = (int64_t)len};
    struct archive *a = archive_read_new();
    PST_ASSERT(a);
    if (root < 0) { /* by its directory, which stands at its end: a zip that was cut off has none */
        archive_read_support_format_zip_seekable(a);
    } else {
        archive_read_support_format_zip(a);
        archive_read_support_format_tar(a);
        archive_read_support_filter_gzip(a);
    }
    if (!len || archive_read_open_memory(a, data, len) != ARCHIVE_OK)
        rc = len ? broken(a, err) : pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "archive", 0, "the archive is empty (0 bytes)");
    while (!rc) {
        struct archive_entry *entry;
        int r = archive_read_next_header(a, &entry);
        if (r == ARCHIVE_EOF)
            break;
        if (r == ARCHIVE_RETRY)
            continue;
        if (r < ARCHIVE_WARN)
            rc = broken(a, err);
        else
            rc = root >= 0 ? unpack_entry(a, entry, root, &b, err) : check_entry(entry, &b, err);
    }
    archive_read_free(a);
    utf8_end(utf8, was);
    return rc;
}

/* The folder may be half full after a failure: its caller made it for this archive and removes it as a whole. */
int pst_archive_unpack(const void *data, size_t len, const char *dir, pst_err *err)
{
    int rc = archive_lib_open(err);
    if (!rc)
        rc = pst_fs_mkdirs(dir, 0700, err);
    if (rc < 0)
        return rc;
    int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return pst_err_sys(err, errno, "cannot open folder %s", dir);
    rc = walk(data, len, root, err);
    close(root);
    return rc;
}

/* ---- packing ---------------------------------------------------------------------------------------------------------------- */

typedef struct packer {
    struct archive *a;
    pst_buf out;
    int to; /* -1: the archive goes to out, else to this descriptor */
    size_t written, bytes_max;
    int64_t read, read_max; /* read_max: of the files as they are; a hole of terabytes packs to nothing and takes hours */
    size_t entries;
    bool full;
    bool (*stops)(void *arg); /* NULL = nobody stops it */
    void *arg;
} packer;

static la_ssize_t take(struct archive *a, void *arg, const void *data, size_t len)
{
    packer *p = arg;
    PST_ASSERT(p->written <= p->bytes_max);
    if (len > p->bytes_max - p->written) {
        p->full = true;
        archive_set_error(a, ENOSPC, "larger than the limit");
        return -1;
    }
    if (p->to < 0)
        pst_buf_add(&p->out, data, len);
    else if (pst_fs_write_all(p->to, data, len) < 0) {
        archive_set_error(a, errno, "%s", strerror(errno));
        return -1;
    }
    p->written += len;
    return (la_ssize_t)len;
}

static int pack_failed(packer *p, const char *path, pst_err *err)
{
    if (p->full)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "archive", 0,
                           "%s packs to more than the limit of %zu bytes; leave data out of the code folder", path, p->bytes_max);
    return pst_err_set(err, PST_EIO, PST_CLASS_FATAL, "archive", archive_errno(p->a), "cannot pack %s: %s", path,
                       archive_error_string(p->a));
}

static int pack_file(packer *p, int fd, const char *name, const struct stat *st, pst_err *err)
{
    if (p->read_max && st->st_size > p->read_max - p->read)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "archive", 0, "%s: the files are more than the limit of %lld bytes", name,
                           (long long)p->read_max);
    p->read += st->st_size;
    struct archive_entry *e = archive_entry_new();
    archive_entry_set_pathname(e, name);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_perm(e, st->st_mode & 0111 ? 0755 : 0644);
    archive_entry_set_size(e, st->st_size);
    archive_entry_set_mtime(e, 315532800, 0); /* 1980-01-01: the same folder gives the same archive */
    int rc = archive_write_header(p->a, e) < ARCHIVE_WARN ? pack_failed(p, name, err) : 0;
    archive_entry_free(e);
    char *chunk = pst_alloc(CHUNK);
    int64_t left = st->st_size;
    while (!rc && left > 0) {
        ssize_t n = read(fd, chunk, left < CHUNK ? (size_t)left : CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = pst_err_sys(err, errno, "cannot read %s", name);
        else if (n == 0)
            rc = pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "archive", 0, "%s became shorter while it was packed", name);
        else if (p->stops && p->stops(p->arg))
            rc = pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "archive", 0, "told to stop in the midst of %s", name);
        else if (archive_write_data(p->a, chunk, (size_t)n) < 0)
            rc = pack_failed(p, name, err);
        else
            left -= n;
    }
    free(chunk);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int too_many(pst_err *err)
{
    return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "archive", 0,
                       "the folder has more than %d files; leave data out of the code folder", ENTRIES_MAX);
}

/* Whoever writes to the folder may do so now: what was a folder a moment ago may be a file, a link or nothing, and is left out. */
static int open_entry(int dirfd, const char *name, struct stat *ret_st)
{
    if (fstatat(dirfd, name, ret_st, AT_SYMLINK_NOFOLLOW) < 0 || !(S_ISREG(ret_st->st_mode) || S_ISDIR(ret_st->st_mode)))
        return -2; /* links, sockets and devices are left out */
    int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (S_ISDIR(ret_st->st_mode) ? O_DIRECTORY : 0));
    return fd < 0 && (errno == ENOENT || errno == ELOOP || errno == ENOTDIR) ? -2 : fd;
}

static int pack_folder(packer *p, int dirfd, const char *prefix, size_t depth, pst_err *err)
{
    DIR *d = fdopendir(dirfd); /* owns dirfd */
    char **names = NULL;
    size_t n = 0, cap = 0;
    int rc = 0;
    if (!d) {
        rc = pst_err_sys(err, errno, "cannot read the folder %s", prefix);
        close(dirfd);
        return rc;
    }
    for (struct dirent *e; !rc && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || !strcmp(e->d_name, ".git"))
            continue;
        if (p->entries + n >= ENTRIES_MAX) /* before they are all in memory */
            rc = too_many(err);
        names = pst_array_room(names, n, &cap, sizeof *names);
        names[n++] = pst_strdup(e->d_name);
    }
    if (n)
        qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n && !rc; i++) {
        char *name = *prefix ? pst_sprintf("%s/%s", prefix, names[i]) : pst_strdup(names[i]);
        struct stat st;
        int fd = open_entry(dirfd, names[i], &st);
        if (fd == -1)
            rc = pst_err_sys(err, errno, "cannot read %s", name);
        else if (fd >= 0 && ++p->entries > ENTRIES_MAX)
            rc = too_many(err);
        else if (fd >= 0 && depth >= DEPTH_MAX)
            rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "archive", 0, "%s lies deeper than %d folders", name, DEPTH_MAX);
        else if (fd >= 0 && S_ISDIR(st.st_mode)) {
            rc = pack_folder(p, fd, name, depth + 1, err);
            fd = -1;
        } else if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
            rc = pack_file(p, fd, name, &st, err);
        }
        if (fd >= 0)
            close(fd);
        free(name);
    }
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    closedir(d);
    return rc;
}

static const char *media_type_of(const char *data, size_t len)
{
    if (len >= 4 && !memcmp(data, "PK", 2) && (!memcmp(data + 2, "\3\4", 2) || !memcmp(data + 2, "\5\6", 2)))
        return "application/zip";
    if (len >= 2 && !memcmp(data, "\x1f\x8b", 2))
        return "application/gzip";
    if (len >= 262 && !memcmp(data + 257, "ustar", 5))
        return "application/x-tar";
    return NULL;
}

/* dirfd is closed. */
static int pack_all(packer *p, int dirfd, const char *path, pst_err *err)
{
    locale_t was, utf8 = utf8_begin(&was);
    int rc = 0;
    p->a = archive_write_new();
    PST_ASSERT(p->a);
    archive_write_set_format_zip(p->a);
    archive_write_set_bytes_in_last_block(p->a, 1);
    if (archive_write_open2(p->a, p, NULL, take, NULL, NULL) < ARCHIVE_WARN) {
        rc = pack_failed(p, path, err);
        close(dirfd);
    } else {
        rc = pack_folder(p, dirfd, "", 0, err);
    }
    if (archive_write_close(p->a) < ARCHIVE_WARN && !rc)
        rc = pack_failed(p, path, err);
    archive_write_free(p->a);
    utf8_end(utf8, was);
    return rc;
}

/* A file that is an archive already goes as it is, checked by its first bytes only: unpacking will look at the rest. A folder becomes a zip in
 * memory, bounded while it is written, not afterwards. */
int pst_archive_pack(const char *path, size_t bytes_max, pst_buf *ret_zip, char ret_media_type[32], pst_err *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return pst_err_sys(err, errno, "cannot read %s", path);
    if (!S_ISDIR(st.st_mode)) {
        pst_buf b = {0};
        int rc = pst_fs_read(path, bytes_max, &b, err);
        const char *type = rc ? NULL : media_type_of(b.data, b.len);
        if (!rc && !type)
            rc =
                pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "archive", 0, "%s is neither a folder nor a zip, tar or tar.gz archive", path);
        if (rc) {
            pst_buf_done(&b);
            return rc;
        }
        snprintf(ret_media_type, 32, "%s", type);
        *ret_zip = b;
        return 0;
    }
    int rc = archive_lib_open(err);
    if (rc < 0)
        return rc;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return pst_err_sys(err, errno, "cannot read folder %s", path);
    packer p = {.to = -1, .bytes_max = bytes_max};
    rc = pack_all(&p, fd, path, err);
    if (rc) {
        pst_buf_done(&p.out);
        return rc;
    }
    snprintf(ret_media_type, 32, "application/zip");
    *ret_zip = p.out;
    return 0;
}

int pst_archive_pack_folder(int dirfd, int to, size_t bytes_max, bool (*stops)(void *arg), void *arg, pst_err *err)
{
    packer p = {.to = to, .bytes_max = bytes_max, .read_max = (int64_t)bytes_max * 4, .stops = stops, .arg = arg};
    int rc = archive_lib_open(err);
    if (!rc)
        return pack_all(&p, dirfd, "the folder", err);
    close(dirfd);
    return rc;
}

int pst_archive_check(const void *data, size_t len, pst_err *err)
{
    const char *type = len ? media_type_of(data, len) : NULL;
    if (!type || strcmp(type, "application/zip"))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "archive", 0, "%s",
                           len ? "it is no zip archive" : "the archive is empty (0 bytes)");
    int rc = archive_lib_open(err);
    return rc ? rc : walk(data, len, -1, err);
}
