/* objects.c - the object store, and the one in a folder; see objects.h. Of a bucket (objects_s3.c) what differs is where the bytes lie: keys, addresses,
 * digests and limits are checked here for both.
 *
 * A blob is written under <root>/.tmp, fsynced and renamed to <root>/<key>, so that a reader sees nothing or all of it. Every path is
 * resolved beneath the root by openat2: a key or an uri that comes from an event can never name a file outside the store. */
#include "common/objects/objects.h"

#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/objects/objects_s3.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_MAX  512
#define CHUNK    (256 * 1024)
#define TMP_NAME ".tmp"

struct pst_objects {
    char *root;         /* absolute, no symbolic links, no trailing slash; of a bucket "s3://bucket/prefix" */
    int fd;             /* of root; -1 */
    objects_s3 *bucket; /* NULL = a folder */
};

static int open_bucket(const char *url, pst_objects **ret_objects, pst_err *err)
{
    objects_s3 *bucket = NULL;
    int rc = objects_s3_open(url, &bucket, err);
    if (rc < 0)
        return rc;
    pst_objects *o = pst_alloc(sizeof *o);
    o->root = pst_strdup(objects_s3_root(bucket));
    o->fd = -1;
    o->bucket = bucket;
    *ret_objects = o;
    return 0;
}

int pst_objects_open(const char *url, pst_objects **ret_objects, pst_err *err)
{
    if (!strncmp(url, "s3:", 3))
        return open_bucket(url, ret_objects, err);
    if (strncmp(url, "file:", 5) || !url[5])
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "object store '%s' is not of the form file:DIR or s3://BUCKET/PREFIX", url);
    const char *path = url + 5;
    if (!strncmp(path, "///", 3)) /* file:///dir is file:/dir */
        path += 2;
    int rc = pst_fs_mkdirs(path, 0700, err);
    if (rc < 0)
        return rc;
    char *root = realpath(path, NULL);
    int fd = root ? open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0 || (mkdirat(fd, TMP_NAME, 0700) < 0 && errno != EEXIST)) {
        rc = pst_err_sys(err, errno, "cannot use the object store %s", path);
        if (fd >= 0)
            close(fd);
        free(root);
        return rc;
    }
    pst_objects *o = pst_alloc(sizeof *o);
    o->root = root;
    o->fd = fd;
    *ret_objects = o;
    return 0;
}

void pst_objects_close(pst_objects *o)
{
    if (!o)
        return;
    if (o->fd >= 0)
        close(o->fd);
    objects_s3_close(o->bucket);
    free(o->root);
    free(o);
}

void pst_objects_patience(pst_objects *o, int ms)
{
    if (o->bucket)
        objects_s3_patience(o->bucket, ms);
}

int pst_objects_check(pst_objects *o, pst_err *err)
{
    if (o->bucket)
        return objects_s3_check(o->bucket, err);
    return faccessat(o->fd, ".", R_OK | W_OK | X_OK, AT_EACCESS) < 0 ? pst_err_sys(err, errno, "cannot use the object store %s", o->root)
                                                                     : 0;
}

int pst_objects_probe(const char *url, pst_err *err)
{
    pst_objects *o = NULL;
    int rc = strncmp(url, "s3:", 3) ? 0 : pst_objects_open(url, &o, err);
    if (rc < 0 || !o)
        return rc;
    pst_objects_patience(o, 0);
    rc = pst_objects_check(o, err);
    pst_objects_close(o);
    return rc;
}

static bool key_ok(const char *key)
{
    size_t len = strlen(key), part = 0;
    if (!len || len > KEY_MAX || key[0] == '/')
        return false;
    for (const char *p = key;; p++) {
        if (*p == '/' || !*p) {
            const char *start = p - part;
            if (!part || *start == '.') /* empty, ".", ".." and hidden names (.tmp) */
                return false;
            part = 0;
            if (!*p)
                return true;
        } else if (!isalnum((unsigned char)*p) && !strchr("._-+@=", *p)) {
            return false;
        } else {
            part++;
        }
    }
}

static int check_key(const char *key, pst_err *err)
{
    if (key_ok(key))
        return 0;
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "objects", 0,
                       "'%.200s' is no object key: letters, digits and . _ - + @ = in parts between slashes, at most %d bytes", key,
                       KEY_MAX);
}

/* The key inside this store that an uri or a plain key names. */
static int key_of(const pst_objects *o, const char *uri, const char **ret_key, pst_err *err)
{
    const char *key = uri;
    if (strstr(uri, "://") || !strncmp(uri, "file:", 5)) {
        bool file = !strncmp(uri, "file:", 5);
        const char *path = file ? uri + 5 : uri;
        if (file && !strncmp(path, "///", 3))
            path += 2;
        size_t n = strlen(o->root);
        if (file == !!o->bucket || strncmp(path, o->root, n) || path[n] != '/')
            return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "objects", 0,
                               "%.200s is not in the object store %s%s: whoever stored it has another --objects than this process", uri,
                               o->bucket ? "" : "file:", o->root);
        key = path + n + 1;
    }
    int rc = check_key(key, err);
    if (!rc)
        *ret_key = key;
    return rc;
}

typedef struct draft {
    char name[64]; /* below TMP_NAME */
    int fd;
} draft;

static int draft_open(pst_objects *o, draft *d, pst_err *err)
{
    uint8_t salt[8];
    pst_random(salt, sizeof salt);
    char hex[17];
    pst_hex(salt, sizeof salt, hex);
    snprintf(d->name, sizeof d->name, TMP_NAME "/%d-%s", (int)getpid(), hex);
    d->fd = openat(o->fd, d->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return d->fd < 0 ? pst_err_sys(err, errno, "cannot write into the object store %s", o->root) : 0;
}

static void draft_drop(pst_objects *o, draft *d)
{
    if (d->fd >= 0)
        close(d->fd);
    unlinkat(o->fd, d->name, 0);
}

/* Folders of the key, made one by one beneath the root; returns a descriptor of the last. */
static int open_folder(pst_objects *o, const char *key)
{
    char prefix[KEY_MAX + 1];
    int at = dup(o->fd);
    for (const char *slash = strchr(key, '/'); at >= 0 && slash; slash = strchr(slash + 1, '/')) {
        PST_ASSERT((size_t)(slash - key) <= KEY_MAX);
        memcpy(prefix, key, (size_t)(slash - key));
        prefix[slash - key] = 0;
        const char *last = strrchr(prefix, '/');
        if (mkdirat(at, last ? last + 1 : prefix, 0700) == 0)
            fsync(at);
        else if (errno != EEXIST) {
            int e = errno;
            close(at);
            errno = e;
            return -1;
        }
        close(at);
        at = pst_fs_open_beneath(o->fd, prefix, O_RDONLY | O_DIRECTORY, 0);
    }
    return at;
}

/* The store's lock, for as long as an age counts: of a descriptor of its own, since threads share that of the root. Closing it unlocks. A
 * file system without such locks has none: there the age that is asked for must be far above what a submission takes. */
static int lock_store(const pst_objects *o, int how)
{
    int fd = openat(o->fd, TMP_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && flock(fd, how) < 0 && errno == EINTR)
        ;
    return fd;
}

static void unlock_store(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* fsync, rename under the key, fsync the folder: only then is it there. */
static int draft_commit(pst_objects *o, draft *d, const char *key, char **ret_uri, pst_err *err)
{
    PST_ASSERT(d->fd >= 0 && key_ok(key));
    int rc = 0, folder = open_folder(o, key);
    const char *base = strrchr(key, '/');
    base = base ? base + 1 : key;
    bool ready = folder >= 0 && fsync(d->fd) == 0;
    int lock = ready ? lock_store(o, LOCK_SH) : -1;
    /* Its age begins when it can be found: a large one takes long to be written. */
    if (!ready || futimens(d->fd, NULL) < 0 || renameat(o->fd, d->name, folder, base) < 0 || fsync(folder) < 0)
        rc = pst_err_sys(err, errno, "cannot store the object %s in %s", key, o->root);
    unlock_store(lock);
    if (folder >= 0)
        close(folder);
    if (rc) {
        draft_drop(o, d);
        return rc;
    }
    close(d->fd);
    if (ret_uri)
        *ret_uri = pst_sprintf("file:%s/%s", o->root, key);
    return 0;
}

static int put_fd(pst_objects *o, const char *key, int fd, char **ret_uri, pst_err *err)
{
    int rc = objects_s3_put(o->bucket, key, fd, err);
    if (!rc && ret_uri)
        *ret_uri = pst_sprintf("%s/%s", o->root, key);
    return rc;
}

/* A file without a name, in memory: what a bucket is given is read more than once. */
static int put_bytes(pst_objects *o, const char *key, const void *data, size_t len, char **ret_uri, pst_err *err)
{
    int fd = memfd_create("object", MFD_CLOEXEC), rc = 0;
    if (fd < 0 || pst_fs_write_all(fd, data, len) < 0)
        rc = pst_err_sys(err, errno, "cannot hold %zu bytes for the object store %s", len, o->root);
    else
        rc = put_fd(o, key, fd, ret_uri, err);
    if (fd >= 0)
        close(fd);
    return rc;
}

int pst_objects_put(pst_objects *o, const char *key, const void *data, size_t len, char **ret_uri, pst_err *err)
{
    draft d;
    int rc = check_key(key, err);
    if (!rc && o->bucket)
        return put_bytes(o, key, data, len, ret_uri, err);
    if (!rc)
        rc = draft_open(o, &d, err);
    if (rc < 0)
        return rc;
    if (pst_fs_write_all(d.fd, data, len) < 0) {
        rc = pst_err_sys(err, errno, "cannot write %zu bytes into the object store %s", len, o->root);
        draft_drop(o, &d);
        return rc;
    }
    return draft_commit(o, &d, key, ret_uri, err);
}

/* Copies in to out and digests on the way. */
static int copy_fd(int in, int out, char ret_sha256[65], int64_t *ret_bytes)
{
    uint8_t digest[32];
    char *chunk = pst_alloc(CHUNK);
    pst_sha256 *h = pst_sha256_new();
    int64_t total = 0;
    int rc = 0;
    for (;;) {
        ssize_t n = read(in, chunk, CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || (n > 0 && pst_fs_write_all(out, chunk, (size_t)n) < 0))
            rc = -1;
        if (rc || n == 0)
            break;
        pst_sha256_add(h, chunk, (size_t)n);
        total += n;
    }
    int e = errno;
    pst_sha256_end(h, digest);
    free(chunk);
    pst_hex(digest, sizeof digest, ret_sha256);
    *ret_bytes = total;
    errno = e;
    return rc;
}

/* The digest that is told is that of what is stored, whatever becomes of the file meanwhile. */
static int put_copy(pst_objects *o, const char *key, const char *path, int in, char ret_sha256[65], int64_t *ret_bytes, char **ret_uri,
                    pst_err *err)
{
    FILE *copy = tmpfile();
    int rc = 0;
    if (!copy || copy_fd(in, fileno(copy), ret_sha256, ret_bytes) < 0)
        rc = pst_err_sys(err, errno, "cannot copy %s for the object store %s", path, o->root);
    else
        rc = put_fd(o, key, fileno(copy), ret_uri, err);
    if (copy)
        fclose(copy);
    return rc;
}

static int put_draft(pst_objects *o, const char *key, const char *path, int in, char ret_sha256[65], int64_t *ret_bytes, char **ret_uri,
                     pst_err *err)
{
    draft d;
    int rc = draft_open(o, &d, err);
    if (rc < 0)
        return rc;
    if (copy_fd(in, d.fd, ret_sha256, ret_bytes) == 0)
        return draft_commit(o, &d, key, ret_uri, err);
    rc = pst_err_sys(err, errno, "cannot copy %s into the object store %s", path, o->root);
    draft_drop(o, &d);
    return rc;
}

int pst_objects_put_file(pst_objects *o, const char *key, const char *path, char ret_sha256[65], int64_t *ret_bytes, char **ret_uri,
                         pst_err *err)
{
    int rc = check_key(key, err);
    if (rc < 0)
        return rc;
    int in = pst_fs_open_regular(path, 0, err);
    if (in < 0)
        return in;
    char hex[65];
    int64_t bytes;
    rc = o->bucket ? put_copy(o, key, path, in, hex, &bytes, ret_uri, err) : put_draft(o, key, path, in, hex, &bytes, ret_uri, err);
    close(in);
    if (rc)
        return rc;
    if (ret_sha256)
        memcpy(ret_sha256, hex, sizeof hex);
    if (ret_bytes)
        *ret_bytes = bytes;
    return 0;
}

/* All of an object of a bucket, in memory without a name. */
static int fetch_object(pst_objects *o, const char *key, int64_t bytes_max, int *ret_fd, pst_err *err)
{
    int fd = memfd_create("object", MFD_CLOEXEC);
    if (fd < 0)
        return pst_err_sys(err, errno, "cannot hold the object %s", key);
    int rc = objects_s3_get(o->bucket, key, fd, bytes_max, err);
    if (rc < 0)
        close(fd);
    else
        *ret_fd = fd;
    return rc;
}

static int open_object(pst_objects *o, const char *uri, int64_t bytes_max, int *ret_fd, pst_err *err)
{
    const char *key;
    int rc = key_of(o, uri, &key, err);
    if (rc < 0)
        return rc;
    if (o->bucket)
        return fetch_object(o, key, bytes_max, ret_fd, err);
    struct stat st;
    int fd = pst_fs_open_beneath(o->fd, key, O_RDONLY, 0);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        fd = -1;
        errno = ENOENT;
    }
    if (fd < 0 && errno == ENOENT)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "objects", 0, "there is no object %s in the store %s", key, o->root);
    if (fd < 0)
        return pst_err_sys(err, errno, "cannot read the object %s in %s", key, o->root);
    *ret_fd = fd;
    return 0;
}

static int digest_differs(const char *uri, const char *wanted, const char *found, pst_err *err)
{
    if (!wanted || !strcasecmp(wanted, found))
        return 0;
    return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "objects", 0,
                       "%.200s has the sha256 %s, not the expected %.64s: damaged or replaced", uri, found, wanted);
}

/* *ret_data is set only when all of it was read and has the digest: nothing of a damaged object is ever handed out. */
int pst_objects_get(pst_objects *o, const char *uri, const char *sha256, size_t bytes_max, pst_buf *ret_data, pst_err *err)
{
    int fd, rc = open_object(o, uri, bytes_max < INT64_MAX ? (int64_t)bytes_max : INT64_MAX, &fd, err);
    if (rc < 0)
        return rc;
    pst_buf b = {0};
    for (;;) {
        pst_buf_reserve(&b, CHUNK);
        ssize_t n = read(fd, b.data + b.len, CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = pst_err_sys(err, errno, "cannot read the object %s", uri);
        if (n <= 0)
            break;
        b.len += (size_t)n;
        b.data[b.len] = 0;
        if (b.len > bytes_max) {
            rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "objects", 0, "the object %.200s is larger than the limit of %zu bytes", uri,
                             bytes_max);
            break;
        }
    }
    close(fd);
    if (!rc) {
        char hex[65];
        pst_sha256_hex(b.data ? b.data : "", b.len, hex);
        rc = digest_differs(uri, sha256, hex, err);
    }
    if (rc)
        pst_buf_done(&b);
    else
        *ret_data = b;
    return rc;
}

static int hash_fd(int fd, char ret_sha256[65], pst_err *err)
{
    uint8_t digest[32];
    char *chunk = pst_alloc(CHUNK);
    pst_sha256 *h = pst_sha256_new();
    ssize_t n;
    for (int64_t at = 0; (n = pread(fd, chunk, CHUNK, at)) > 0 || (n < 0 && errno == EINTR); at += n > 0 ? n : 0)
        if (n > 0)
            pst_sha256_add(h, chunk, (size_t)n);
    int rc = n < 0 ? pst_err_sys(err, errno, "cannot read what was fetched") : 0;
    pst_sha256_end(h, digest);
    pst_hex(digest, sizeof digest, ret_sha256);
    free(chunk);
    return rc;
}

int pst_objects_get_file(pst_objects *o, const char *uri, const char *sha256, const char *to_path, pst_err *err)
{
    const char *key;
    int fd = -1, rc = key_of(o, uri, &key, err);
    if (!rc && !o->bucket)
        rc = open_object(o, uri, 0, &fd, err);
    if (rc < 0)
        return rc;
    char *tmp = pst_sprintf("%s.tmp-%d", to_path, (int)getpid());
    char hex[65];
    int64_t bytes;
    int out = open(tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out >= 0 && o->bucket && !(rc = objects_s3_get(o->bucket, key, out, INT64_MAX, err)))
        rc = hash_fd(out, hex, err);
    if (!rc && (out < 0 || (!o->bucket && copy_fd(fd, out, hex, &bytes) < 0) || fsync(out) < 0))
        rc = pst_err_sys(err, errno, "cannot copy the object %s to %s", uri, to_path);
    if (!rc)
        rc = digest_differs(uri, sha256, hex, err);
    if (!rc && rename(tmp, to_path) < 0)
        rc = pst_err_sys(err, errno, "cannot put %s in place", to_path);
    if (out >= 0)
        close(out);
    if (rc)
        unlink(tmp);
    if (fd >= 0)
        close(fd);
    free(tmp);
    return rc;
}

int pst_objects_delete(pst_objects *o, const char *uri, pst_err *err)
{
    const char *key;
    int rc = key_of(o, uri, &key, err);
    if (rc < 0)
        return rc;
    if (o->bucket)
        return objects_s3_delete(o->bucket, key, err);
    char folder[KEY_MAX + 1];
    snprintf(folder, sizeof folder, "%s", key);
    char *slash = strrchr(folder, '/');
    const char *base = slash ? slash + 1 : folder;
    if (slash)
        *slash = 0;
    int fd = slash ? pst_fs_open_beneath(o->fd, folder, O_RDONLY | O_DIRECTORY, 0) : dup(o->fd);
    if (fd < 0 ? errno != ENOENT : (unlinkat(fd, base, 0) < 0 && errno != ENOENT))
        rc = pst_err_sys(err, errno, "cannot delete the object %s in %s", key, o->root);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* ---- age --------------------------------------------------------------------------------------------------------------------- */

static int64_t put_time(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000 + st->st_mtim.tv_nsec / 1000;
}

int pst_objects_touch(pst_objects *o, const char *uri, pst_err *err)
{
    const char *key;
    int fd, rc = o->bucket ? key_of(o, uri, &key, err) : 0;
    if (o->bucket)
        return rc < 0 ? rc : objects_s3_touch(o->bucket, key, err);
    int lock = lock_store(o, LOCK_SH);
    rc = open_object(o, uri, 0, &fd, err);
    if (!rc) {
        if (futimens(fd, NULL) < 0)
            rc = pst_err_sys(err, errno, "cannot refresh the object %.200s", uri);
        close(fd);
    }
    unlock_store(lock);
    return rc;
}

int pst_objects_each(pst_objects *o, const char *folder, void (*fn)(void *arg, const char *key, int64_t put_us), void *arg, pst_err *err)
{
    int rc = check_key(folder, err);
    if (!rc && o->bucket)
        return objects_s3_each(o->bucket, folder, fn, arg, err);
    if (rc < 0)
        return rc;
    int fd = pst_fs_open_beneath(o->fd, folder, O_RDONLY | O_DIRECTORY, 0);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        rc = errno == ENOENT ? 0 : pst_err_sys(err, errno, "cannot read the folder %s of the object store %s", folder, o->root);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        char key[KEY_MAX + 1];
        if (snprintf(key, sizeof key, "%s/%s", folder, e->d_name) < (int)sizeof key && key_ok(key) &&
            fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            fn(arg, key, put_time(&st));
    }
    closedir(d);
    return 0;
}

int pst_objects_expire(pst_objects *o, const char *key, int64_t before_us, bool *ret_removed, pst_err *err)
{
    int fd, rc = check_key(key, err);
    struct stat st;
    *ret_removed = false;
    if (!rc && o->bucket)
        return objects_s3_expire(o->bucket, key, before_us, ret_removed, err);
    if (rc < 0)
        return rc;
    int lock = lock_store(o, LOCK_EX);
    rc = open_object(o, key, 0, &fd, NULL);
    if (!rc) {
        bool old = fstat(fd, &st) == 0 && put_time(&st) < before_us;
        close(fd);
        rc = old ? pst_objects_delete(o, key, err) : 0;
        *ret_removed = old && !rc;
    }
    unlock_store(lock);
    return rc == PST_ENOTFOUND ? 0 : rc;
}

void pst_objects_expire_drafts(pst_objects *o, int64_t before_us)
{
    if (o->bucket) /* its uploads in parts that nobody ended are for a rule of the bucket's own: it alone knows whose they are */
        return;
    int fd = openat(o->fd, TMP_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0)
        close(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (*e->d_name != '.' && fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) && put_time(&st) < before_us)
            unlinkat(fd, e->d_name, 0);
    }
    if (d)
        closedir(d);
}
