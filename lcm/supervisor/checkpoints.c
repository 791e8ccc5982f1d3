/* checkpoints.c - a learner that was killed while it wrote leaves half a file; a disk that lost power, a whole one of zeros. So a checkpoint counts once its
 * manifest is there, and that is written last: every file fsynced and digested, the manifest as a temporary file, fsynced, renamed, the folder fsynced.
 * On resume the manifests are read, the newest first, and the first whose digests are right is the one to go on from.
 *
 * The processes of a gang on one node share the folder, so each has its manifests apart: no rule counts, and no temporary name meets, another's. The newest is
 * told by a number, for clocks go back. Only what is proven to differ is set aside: a disk or a table of files that fails for a while says nothing about it.
 *
 * The folder is the learner's: names are opened beneath it, no link is followed, so nothing outside is read, written or removed whatever is planted there. What
 * is removed loses its manifest first: a kill in between leaves an entry that is no checkpoint, never a checkpoint without its files. */
#include "lcm/supervisor/checkpoints.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/thread.h"
#include "schemas/avro.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER ".penstock"
enum {
    FILES_MAX = 10000,
    DEPTH_MAX = 16,
    NAME_MAX_BYTES = 200,
    MANIFEST_BYTES_MAX = 8 << 20,
    MANIFESTS_BYTES_MAX = 256 << 20, /* of one process */
    READ_BYTES = 1 << 20,
    WAITING_MAX = 16,
    LISTED_MAX = 10000
};
#define NUMBER_MAX (INT64_C(1) << 53)

/* ---- the folder ------------------------------------------------------------------------------------------------------------------ */

/* One entry of the folder: no path, nothing hidden. */
static bool is_name(const char *name)
{
    size_t len = strlen(name);
    return len && len <= NAME_MAX_BYTES && *name != '.' && !strchr(name, '/');
}

static int open_folder(const char *dir, pst_err *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        pst_err_sys(err, errno, "cannot open %s", dir);
    return fd;
}

/* Where manifests of a process are (NULL: the folder of all processes' folders); made when make. -1 and errno. */
static int open_manifests(int dir_fd, const char *process, bool make)
{
    char *path = process ? pst_fs_join(FOLDER, process) : pst_strdup(FOLDER);
    int fd = pst_fs_open_beneath(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0 && errno == ENOENT && make) {
        int all = -1;
        if ((!mkdirat(dir_fd, FOLDER, 0755) || errno == EEXIST) &&
            (all = pst_fs_open_beneath(dir_fd, FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)) >= 0 &&
            (!mkdirat(all, process, 0755) || errno == EEXIST) && !fsync(all) && !fsync(dir_fd))
            fd = pst_fs_open_beneath(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        int failed = errno;
        if (all >= 0)
            close(all);
        errno = failed;
    }
    int failed = errno;
    free(path);
    errno = failed;
    return fd;
}

/* It is not there, or something else is in its place: more than that the computer cannot tell at the moment. */
static bool is_absence(int errnum)
{
    return errnum == ENOENT || errnum == ELOOP || errnum == ENOTDIR || errnum == ENXIO;
}

/* Proven: not what was committed. What the system refused for now (no descriptors, a disk that fails) proves nothing. */
static bool is_proof(const pst_err *err)
{
    return err->cls == PST_CLASS_DATA || (!strcmp(err->origin, "sys") && is_absence(err->native));
}

/* ---- digests --------------------------------------------------------------------------------------------------------------------- */

typedef struct digesting {
    json_t *files;
    int64_t bytes, entries;
    bool sync;
    void *room; /* READ_BYTES */
} digesting;

/* size: as it was when it was opened; who appends meanwhile does not keep it busy for ever */
static int digest_file(digesting *d, int fd, int64_t size, const char *path, pst_err *err)
{
    uint8_t sum[32];
    char hex[65];
    int64_t bytes = 0;
    ssize_t n = 0;
    pst_sha256 *h = pst_sha256_new();
    while (bytes <= size && ((n = read(fd, d->room, READ_BYTES)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0) {
            pst_sha256_add(h, d->room, (size_t)n);
            bytes += n;
        }
    int failed = n < 0 ? errno : 0;
    pst_sha256_end(h, sum);
    if (!failed && d->sync && fsync(fd) < 0)
        failed = errno;
    if (failed)
        return pst_err_sys(err, failed, "%s", path);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    d->bytes += bytes;
    json_array_append_new(d->files, json_pack("{s:s, s:I, s:s}", "path", path, "bytes", (json_int_t)bytes, "sha256", hex));
    return 0;
}

static int too_many(pst_err *err)
{
    return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "checkpoint", 0, "has more than %d files and folders, or folders deeper than %d",
                       FILES_MAX, DEPTH_MAX);
}

static int digest_folder(digesting *d, int fd, const char *path, int depth, pst_err *err);

/* path: as the manifest has it, below the checkpoint folder. */
static int digest(digesting *d, int parent_fd, const char *entry, const char *path, int depth, pst_err *err)
{
    struct stat st;
    int fd = pst_fs_open_beneath(parent_fd, entry, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0), rc = 0;
    if (fd < 0)
        return pst_err_sys(err, errno, "%s", path);
    if (fstat(fd, &st) < 0)
        rc = pst_err_sys(err, errno, "%s", path);
    else if (d->entries++ > FILES_MAX || depth > DEPTH_MAX) /* folders count: empty ones take time, too */
        rc = too_many(err);
    else if (S_ISDIR(st.st_mode))
        rc = digest_folder(d, fd, path, depth, err);
    else if (S_ISREG(st.st_mode))
        rc = digest_file(d, fd, (int64_t)st.st_size, path, err);
    else
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "checkpoint", 0, "%s is neither a file nor a folder", path);
    close(fd);
    return rc;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* In the order of names, so that a manifest of the same files is the same. */
static int digest_folder(digesting *d, int fd, const char *path, int depth, pst_err *err)
{
    char **names = NULL;
    size_t n = 0, cap = 0;
    int again = dup(fd), rc = 0;
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    if (!dir)
        rc = pst_err_sys(err, errno, "%s", path);
    for (struct dirent *e; dir && n <= FILES_MAX && (errno = 0, e = readdir(dir));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) {
            names = pst_array_room(names, n, &cap, sizeof *names);
            names[n++] = pst_strdup(e->d_name);
        }
    if (n > FILES_MAX)
        rc = too_many(err);
    else if (dir && errno)
        rc = pst_err_sys(err, errno, "%s", path);
    if (dir)
        closedir(dir);
    else if (again >= 0)
        close(again);
    if (n)
        qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n; i++) {
        char *below = pst_fs_join(path, names[i]);
        if (!rc)
            rc = digest(d, fd, names[i], below, depth + 1, err);
        free(below);
        free(names[i]);
    }
    free(names);
    if (!rc && d->sync && fsync(fd) < 0)
        rc = pst_err_sys(err, errno, "%s", path);
    return rc;
}

static int digest_entry(int dir_fd, const char *name, bool sync, json_t **ret_files, int64_t *ret_bytes, pst_err *err)
{
    digesting d = {.files = json_array(), .sync = sync, .room = pst_alloc(READ_BYTES)};
    int rc = digest(&d, dir_fd, name, name, 0, err);
    free(d.room);
    if (rc < 0) {
        json_decref(d.files);
        return rc;
    }
    *ret_files = d.files;
    *ret_bytes = d.bytes;
    return 0;
}

/* ---- manifests ------------------------------------------------------------------------------------------------------------------- */

static int write_manifest(int manifests, const char *name, const char *text, pst_err *err)
{
    char *temp = pst_sprintf(".%s.tmp", name), *final = pst_sprintf("%s.json", name);
    unlinkat(manifests, temp, 0); /* of one that was killed; or planted: whatever it is, it is not followed */
    int fd = pst_fs_open_beneath(manifests, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    int failed = fd < 0 ? errno : 0;
    if (!failed && (pst_fs_write_all(fd, text, strlen(text)) < 0 || fsync(fd) < 0))
        failed = errno;
    if (fd >= 0)
        close(fd);
    if (!failed && (renameat(manifests, temp, manifests, final) < 0 || fsync(manifests) < 0))
        failed = errno;
    int rc = failed ? pst_err_sys(err, failed, "the manifest of checkpoint %s", name) : 0;
    free(temp);
    free(final);
    return rc;
}

typedef struct committed {
    char *name;
    int64_t number; /* in the order of commits, from 1; 0 = its manifest cannot be read as one, or is of an older version */
    int64_t time_us;
    double value; /* of the metric that ranks; NaN = it has none */
    bool keep;
} committed;

typedef struct listed {
    committed *at;
    size_t n, cap;
} listed;

/* NULL and no err: it is none. left: bytes that may be read yet; what was read is taken off. */
static json_t *read_manifest(int manifests, const char *file, int64_t *left, pst_err *err)
{
    struct stat st;
    json_t *j = NULL;
    int fd = pst_fs_open_beneath(manifests, file, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0 || fstat(fd, &st) < 0) {
        if (!is_absence(errno))
            pst_err_sys(err, errno, "the manifest %s", file);
    } else if (S_ISREG(st.st_mode) && st.st_size <= MANIFEST_BYTES_MAX && (*left -= st.st_size) < 0) {
        pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "checkpoint", 0,
                    "the manifests of one process have more than %d MiB; give penstock.checkpoint.keep_last", MANIFESTS_BYTES_MAX >> 20);
    } else if (S_ISREG(st.st_mode) && st.st_size <= MANIFEST_BYTES_MAX) {
        char *room = pst_alloc((size_t)st.st_size + 1);
        ssize_t n = 0, got = 0;
        while (got < st.st_size && ((n = read(fd, room + got, (size_t)(st.st_size - got))) > 0 || (n < 0 && errno == EINTR)))
            got += n > 0 ? n : 0;
        if (n < 0)
            pst_err_sys(err, errno, "the manifest %s", file);
        else
            j = json_loadb(room, (size_t)got, JSON_REJECT_DUPLICATES, NULL);
        free(room);
    }
    if (fd >= 0)
        close(fd);
    return j;
}

static int newest_first(const void *a, const void *b)
{
    const committed *x = a, *y = b;
    if (x->number != y->number)
        return x->number < y->number ? 1 : -1;
    if (x->time_us != y->time_us) /* of a version that gave no numbers */
        return x->time_us < y->time_us ? 1 : -1;
    return strcmp(y->name, x->name);
}

static void list_done(listed *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->at[i].name);
    free(l->at);
}

static void list_one(listed *l, const char *name, size_t len, const json_t *j, const char *metric)
{
    int64_t number = pst_json_int(j, "number", 0);
    const json_t *value = metric ? json_object_get(json_object_get(j, "values"), metric) : NULL;
    l->at = pst_array_room(l->at, l->n, &l->cap, sizeof *l->at);
    l->at[l->n++] = (committed){.name = pst_strndup(name, len),
                                .number = number > 0 && number < NUMBER_MAX ? number : 0,
                                .time_us = pst_json_int(j, "time", 0),
                                .value = json_is_number(value) ? json_number_value(value) : (double)NAN};
}

/* All that has a manifest, the newest first. metric: whose values are wanted; NULL = none. */
static int list(int manifests, const char *metric, listed *ret, pst_err *err)
{
    listed l = {0};
    pst_err e = {0};
    int64_t left = MANIFESTS_BYTES_MAX;
    int again = openat(manifests, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    if (!dir)
        pst_err_sys(&e, errno, "the manifests of checkpoints");
    if (!dir && again >= 0)
        close(again);
    for (struct dirent *entry; !e.code && (errno = 0, entry = readdir(dir));) {
        size_t len = strlen(entry->d_name);
        if (*entry->d_name == '.' || len < 6 || strcmp(entry->d_name + len - 5, ".json"))
            continue;
        json_t *j = read_manifest(manifests, entry->d_name, &left, &e);
        if (l.n == LISTED_MAX)
            pst_err_set(&e, PST_ELIMIT, PST_CLASS_DATA, "checkpoint", 0,
                        "more than %d checkpoints of one process are kept; give penstock.checkpoint.keep_last", LISTED_MAX);
        else if (!e.code)
            list_one(&l, entry->d_name, len - 5, j, metric);
        json_decref(j);
    }
    if (dir && !e.code && errno)
        pst_err_sys(&e, errno, "the manifests of checkpoints");
    if (dir)
        closedir(dir);
    if (e.code) {
        list_done(&l);
        return pst_err_set(err, e.code, e.cls, e.origin, e.native, "%s", e.text);
    }
    if (l.n)
        qsort(l.at, l.n, sizeof *l.at, newest_first);
    *ret = l;
    return 0;
}

static void forget(int manifests, const char *name)
{
    char *file = pst_sprintf("%s.json", name);
    unlinkat(manifests, file, 0);
    fsync(manifests);
    free(file);
}

/* One more than the newest has. */
static int next_number(int manifests, int64_t *ret, pst_err *err)
{
    listed l = {0};
    int rc = list(manifests, NULL, &l, err);
    *ret = l.n ? l.at[0].number + 1 : 1;
    list_done(&l);
    return rc;
}

/* Digests first, then the manifest under another name, fsync, rename, fsync of the folder: a manifest that can be read names files that were whole, and a
 * crash at any step leaves the last one in force. */
int sup_checkpoint_commit(const char *dir, const char *process, const char *name, const pst_dbl_pair *values, size_t n_values,
                          int64_t time_us, int64_t *ret_bytes, pst_err *err)
{
    if (!is_name(name))
        return pst_err_set(
            err, PST_EINVAL, PST_CLASS_DATA, "checkpoint", 0,
            "\"%.100s\" cannot be committed: `file` names one file or folder directly in $CHECKPOINT_DIR, with no dot in front", name);
    int dir_fd = open_folder(dir, err), manifests = -1;
    if (dir_fd < 0)
        return err ? err->code : PST_EIO;
    int64_t number = 0;
    json_t *files = NULL, *numbers = json_object();
    int rc = digest_entry(dir_fd, name, true, &files, ret_bytes, err);
    if (!rc && fsync(dir_fd) < 0)
        rc = pst_err_sys(err, errno, "%s", dir);
    for (size_t i = 0; i < n_values; i++)
        if (isfinite(values[i].value))
            json_object_set_new(numbers, values[i].key, json_real(values[i].value));
    if (!rc && (manifests = open_manifests(dir_fd, process, true)) < 0)
        rc = pst_err_sys(err, errno, "%s/" FOLDER, dir);
    if (!rc)
        rc = next_number(manifests, &number, err);
    if (!rc) {
        json_t *j = json_pack("{s:s, s:s, s:I, s:I, s:O, s:O}", "name", name, "process", process, "number", (json_int_t)number, "time",
                              (json_int_t)time_us, "values", numbers, "files", files);
        char *text = j ? pst_json_text(j) : NULL;
        if (text && strlen(text) > MANIFEST_BYTES_MAX)
            rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "checkpoint", 0,
                             "checkpoint %.100s has more names of files than a manifest holds (%d MiB)", name, MANIFEST_BYTES_MAX >> 20);
        else
            rc = text ? write_manifest(manifests, name, text, err)
                      : pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "checkpoint", 0, "the name of checkpoint %.100s is no UTF-8", name);
        free(text);
        json_decref(j);
    }
    json_decref(files);
    json_decref(numbers);
    if (manifests >= 0)
        close(manifests);
    close(dir_fd);
    return rc;
}

/* ---- which are kept -------------------------------------------------------------------------------------------------------------- */

/* The best one that is not kept yet by its rank; of equal ones the newer. NULL: none has the metric. */
static committed *best(listed *l, const bool *ranked, bool max)
{
    committed *found = NULL;
    for (size_t i = 0; i < l->n; i++) {
        committed *x = &l->at[i];
        if (!ranked[i] && !isnan(x->value) && (!found || (max ? x->value > found->value : x->value < found->value)))
            found = x;
    }
    return found;
}

/* Whether a process has a manifest of the entry. Where that cannot be seen: yes. */
static bool is_anybodys(int dir_fd, const char *name)
{
    int all = open_manifests(dir_fd, NULL, false);
    DIR *dir = all < 0 ? NULL : fdopendir(all);
    if (!dir) {
        if (all >= 0)
            close(all);
        return true;
    }
    bool found = false;
    for (struct dirent *e; !found && (errno = 0, e = readdir(dir));) {
        struct stat st;
        char *path = pst_sprintf("%s/%s.json", e->d_name, name);
        found = *e->d_name != '.' && (!fstatat(dirfd(dir), path, &st, AT_SYMLINK_NOFOLLOW) || !is_absence(errno));
        free(path);
    }
    found = found || errno;
    closedir(dir);
    return found;
}

/* A manifest goes before its files: what a crash leaves between the two is a folder that no manifest names, never a manifest
 * whose files are gone. Files that another member has a manifest of stay. */
size_t sup_checkpoints_retain(const char *dir, const char *process, const pst_checkpoint_rule *rule)
{
    int dir_fd = open_folder(dir, NULL), manifests = dir_fd < 0 ? -1 : open_manifests(dir_fd, process, false);
    listed l = {0};
    size_t removed = 0;
    if (manifests >= 0)
        list(manifests, rule->metric, &l, NULL);
    bool *ranked = pst_alloc(l.n + 1);
    for (size_t i = 0; i < l.n; i++)
        l.at[i].keep = !rule->keep_last || i < (size_t)rule->keep_last;
    for (int k = 0; k < rule->keep_best; k++) {
        committed *x = best(&l, ranked, rule->max);
        if (!x)
            break;
        x->keep = ranked[x - l.at] = true;
    }
    for (size_t i = 0; i < l.n; i++) {
        if (l.at[i].keep)
            continue;
        char *path = pst_fs_join(dir, l.at[i].name);
        forget(manifests, l.at[i].name);
        if (is_name(l.at[i].name) && !is_anybodys(dir_fd, l.at[i].name))
            pst_fs_remove_tree(path, NULL);
        free(path);
        removed++;
    }
    free(ranked);
    list_done(&l);
    if (manifests >= 0)
        close(manifests);
    if (dir_fd >= 0)
        close(dir_fd);
    return removed;
}

/* ---- which is the one to go on from ---------------------------------------------------------------------------------------------- */

static int compare(const json_t *files, const json_t *wanted, pst_err *err)
{
    if (json_array_size(files) != json_array_size(wanted))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "checkpoint", 0, "it has %zu files, its manifest %zu", json_array_size(files),
                           json_array_size(wanted));
    for (size_t i = 0; i < json_array_size(files); i++)
        if (!json_equal(json_array_get(files, i), json_array_get(wanted, i)))
            return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "checkpoint", 0,
                               "%.200s is not what was committed: its name, size or SHA-256 differs",
                               json_string_value(json_object_get(json_array_get(files, i), "path")));
    return 0;
}

static int verify(int dir_fd, int manifests, const char *name, pst_err *err)
{
    char *file = pst_sprintf("%s.json", name);
    int64_t bytes, left = MANIFEST_BYTES_MAX;
    json_t *manifest = read_manifest(manifests, file, &left, err), *files = NULL;
    const json_t *wanted = json_object_get(manifest, "files");
    int rc = err->code;
    if (!rc && (!is_name(name) || !json_is_array(wanted)))
        rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "checkpoint", 0, "its manifest cannot be read");
    if (!rc)
        rc = digest_entry(dir_fd, name, false, &files, &bytes, err);
    if (!rc)
        rc = compare(files, wanted, err);
    json_decref(files);
    json_decref(manifest);
    free(file);
    return rc;
}

typedef struct search {
    const char *dir;
    sup_checkpoint_broken *broken;
    void *arg;
    bool own; /* else it belongs to another process, which sets it aside itself */
} search;

static int newest_of(const search *s, int dir_fd, int manifests, char **ret, pst_err *err)
{
    listed l = {0};
    int rc = list(manifests, NULL, &l, err);
    for (size_t i = 0; i < l.n && !rc && !*ret; i++) {
        const char *name = l.at[i].name;
        pst_err e = {0};
        if (verify(dir_fd, manifests, name, &e) == 0) {
            *ret = pst_fs_join(s->dir, name);
        } else if (!is_proof(&e)) {
            rc = pst_err_set(err, e.code, e.cls, e.origin, e.native, "checkpoint %.200s cannot be verified now: %s", name, e.text);
        } else {
            char *aside = pst_sprintf("%s.broken", name);
            if (s->own) {
                forget(manifests, name);
                if (is_name(name))
                    renameat(dir_fd, name, dir_fd, aside);
            }
            s->broken(s->arg, name, e.text);
            free(aside);
        }
    }
    list_done(&l);
    return rc;
}

/* The one process that has committed here. NULL: there is none, there are several, or err. */
static char *only_process(int dir_fd, pst_err *err)
{
    char *only = NULL;
    int n = 0, all = open_manifests(dir_fd, NULL, false);
    DIR *dir = all < 0 ? NULL : fdopendir(all);
    if (!dir && !is_absence(errno))
        pst_err_sys(err, errno, FOLDER);
    if (!dir && all >= 0)
        close(all);
    for (struct dirent *e; dir && n < 2 && (errno = 0, e = readdir(dir));) {
        struct stat st;
        if (*e->d_name == '.' || fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
            continue;
        free(only);
        only = n++ ? NULL : pst_strdup(e->d_name);
    }
    if (dir && n < 2 && errno)
        pst_err_sys(err, errno, FOLDER);
    if (dir)
        closedir(dir);
    return only;
}

/* Manifests directly in the folder. An older version wrote them there, and a bucket may hold them still; none is added, and none removed unless it is broken. */
static void newest_of_old(search *s, int dir_fd, char **ret, pst_err *err)
{
    int manifests = open_manifests(dir_fd, NULL, false);
    if (manifests < 0 && !is_absence(errno))
        pst_err_sys(err, errno, "%s/" FOLDER, s->dir);
    s->own = true;
    if (manifests >= 0)
        newest_of(s, dir_fd, manifests, ret, err);
    if (manifests >= 0)
        close(manifests);
}

int sup_checkpoint_newest(const char *dir, const char *process, sup_checkpoint_broken *broken, void *arg, char **ret_path, pst_err *err)
{
    search s = {.dir = dir, .broken = broken, .arg = arg, .own = true};
    pst_err e = {0};
    int dir_fd = open_folder(dir, &e), manifests = dir_fd < 0 ? -1 : open_manifests(dir_fd, process, false);
    char *found = NULL, *other = NULL;
    if (dir_fd >= 0 && manifests < 0 && !is_absence(errno))
        pst_err_sys(&e, errno, "%s/" FOLDER "/%s", dir, process);
    if (dir_fd >= 0 && manifests < 0 && !e.code && (other = only_process(dir_fd, &e))) { /* it commits for all */
        s.own = false;
        if ((manifests = open_manifests(dir_fd, other, false)) < 0)
            pst_err_sys(&e, errno, "%s/" FOLDER "/%s", dir, other);
    }
    if (!e.code && manifests >= 0)
        newest_of(&s, dir_fd, manifests, &found, &e);
    free(other);
    if (manifests >= 0)
        close(manifests);
    if (dir_fd >= 0 && !e.code && !found &&
        manifests < 0) /* of a version that kept them beside each other: whose they are they do not say */
        newest_of_old(&s, dir_fd, &found, &e);
    if (dir_fd >= 0)
        close(dir_fd);
    if (e.code)
        return pst_err_set(err, e.code, e.cls, e.origin, e.native, "%s", e.text);
    *ret_path = found;
    return 0;
}

/* ---- beside a learner ------------------------------------------------------------------------------------------------------------ */

typedef struct commission {
    pst_process_report report;
    double metric; /* as it stood when the checkpoint was announced; NaN = not known */
    pst_err err;
} commission;

struct sup_checkpoints {
    char *dir, *process;
    pst_checkpoint_rule rule; /* metric: a copy */
    double metric;            /* the last that was seen */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    commission waiting[WAITING_MAX], done[WAITING_MAX]; /* @locks lock, like those below */
    size_t n_waiting, n_done;
    bool busy, stop;
};

static void commit(const sup_checkpoints *c, commission *x)
{
    const char *name = pst_str_map_get(x->report.details, x->report.n_details, "file");
    pst_dbl_pair value = {c->rule.metric, x->metric};
    int64_t bytes = 0;
    char text[32];
    if (sup_checkpoint_commit(c->dir, c->process, name, &value, c->rule.metric != NULL, x->report.time, &bytes, &x->err) < 0)
        return;
    snprintf(text, sizeof text, "%lld", (long long)bytes);
    pst_str_map_set(&x->report.details, &x->report.n_details, "bytes", text);
    size_t removed = sup_checkpoints_retain(c->dir, c->process, &c->rule);
    if (removed) {
        snprintf(text, sizeof text, "%zu", removed);
        pst_str_map_set(&x->report.details, &x->report.n_details, "removed", text);
    }
}

static void *work(void *arg)
{
    sup_checkpoints *c = arg;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->n_waiting && !c->stop)
            pthread_cond_wait(&c->changed, &c->lock);
        if (!c->n_waiting)
            break;
        while (c->n_done == WAITING_MAX && !c->stop) /* until somebody fetches */
            pthread_cond_wait(&c->changed, &c->lock);
        if (c->n_done == WAITING_MAX)
            break;
        commission x = c->waiting[0];
        memmove(c->waiting, c->waiting + 1, --c->n_waiting * sizeof *c->waiting);
        c->busy = true;
        pthread_mutex_unlock(&c->lock);
        commit(c, &x);
        pthread_mutex_lock(&c->lock);
        c->busy = false;
        c->done[c->n_done++] = x;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

sup_checkpoints *sup_checkpoints_new(const char *dir, const char *process, const pst_checkpoint_rule *rule)
{
    sup_checkpoints *c = pst_alloc(sizeof *c);
    c->dir = pst_strdup(dir);
    c->process = pst_strdup(process);
    c->rule = *rule;
    c->rule.metric = pst_strdup(rule->metric);
    c->metric = (double)NAN;
    pthread_mutex_init(&c->lock, NULL);
    pst_cond_init(&c->changed);
    return c;
}

/* By the number in the line itself, else by the last point that had it. */
static double metric_of(const sup_checkpoints *c, const pst_process_report *r)
{
    const char *text = c->rule.metric ? pst_str_map_get(r->details, r->n_details, c->rule.metric) : NULL;
    char *end = NULL;
    double v = text ? strtod(text, &end) : 0;
    return text && end != text && !*end ? v : c->metric;
}

bool sup_checkpoints_take(sup_checkpoints *c, pst_process_report *take, pst_err *err)
{
    const char *name = pst_str_map_get(take->details, take->n_details, "file");
    size_t len = strlen(c->dir);
    if (name && !strncmp(name, c->dir, len) && name[len] == '/') { /* as $CHECKPOINT_DIR/step-100, which is what programs have at hand */
        char *below = pst_strdup(name + len + 1);
        pst_str_map_set(&take->details, &take->n_details, "file", below);
        free(below);
        name = pst_str_map_get(take->details, take->n_details, "file");
    }
    if (!name || !is_name(name))
        pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "checkpoint", 0,
                    "a checkpoint line %s%.100s%s: it is not committed (penstock.checkpoint); `file` names one file or folder directly in "
                    "$CHECKPOINT_DIR",
                    name ? "names \"" : "without `file`", name ? name : "", name ? "\"" : "");
    else if (!c->started && pst_thread_start(&c->thread, "checkpoints", work, c))
        pst_err_set(err, PST_ENOMEM, PST_CLASS_RETRY, "sys", 0, "a checkpoint is not committed: no thread to be had");
    else
        c->started = true;
    pthread_mutex_lock(&c->lock);
    if (!err->code && c->n_waiting == WAITING_MAX)
        pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "checkpoint", 0, "checkpoint %.100s is not committed: %d wait for the disk already",
                    name, WAITING_MAX);
    if (!err->code) {
        c->waiting[c->n_waiting++] = (commission){.report = *take, .metric = metric_of(c, take)};
        *take = (pst_process_report){0};
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return !err->code;
}

void sup_checkpoints_point(sup_checkpoints *c, const pst_metric_point *p)
{
    for (size_t i = 0; c->rule.metric && i < p->n_values; i++)
        if (!strcmp(p->values[i].key, c->rule.metric))
            c->metric = p->values[i].value;
}

int sup_checkpoints_done(sup_checkpoints *c, bool wait, pst_process_report *ret_report, pst_err *err)
{
    pthread_mutex_lock(&c->lock);
    while (wait && !c->n_done && (c->n_waiting || c->busy))
        pthread_cond_wait(&c->changed, &c->lock);
    commission x = {0};
    bool any = c->n_done > 0;
    if (any) {
        x = c->done[0];
        memmove(c->done, c->done + 1, --c->n_done * sizeof *c->done);
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    if (any && x.err.code) {
        *err = x.err;
        pst_event_clear(&pst_process_report_type, &x.report);
        return -1;
    }
    if (any)
        *ret_report = x.report;
    return any;
}

void sup_checkpoints_free(sup_checkpoints *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (c->started)
        pthread_join(c->thread, NULL);
    for (size_t i = 0; i < c->n_done; i++)
        pst_event_clear(&pst_process_report_type, &c->done[i].report);
    for (size_t i = 0; i < c->n_waiting; i++)
        pst_event_clear(&pst_process_report_type, &c->waiting[i].report);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->rule.metric);
    free(c->process);
    free(c->dir);
    free(c);
}
