/* stores.c - object stores: their bucket's keys as files below $DATA_DIR before the command starts; results, logs and checkpoints in the results
 * bucket once it has ended, whatever its end was. FfDL mounted one of its two kinds; a copy before and after serves both, and no request of a learner
 * waits for a server. What is put is known again by its digest, so that a supervisor which was killed in between is followed by one that only
 * puts the rest. Until that is over the end is not published: who sees it finds the results. */
#include "lcm/supervisor/stores.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/lock.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/base/term.h"
#include "common/objects/s3.h"
#include "lcm/supervisor/lines.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define CHECKPOINTS "_wml_checkpoints" /* FfDL's name */
enum {
    FETCH_PATIENCE_MS = 60000,
    PUT_PATIENCE_MS = 600000,
    PROGRESS_US = 10000000,
    FILES_MAX = PST_S3_KEYS_MAX,
    DEPTH_MAX = 40,
    NAMED_MAX = 5,
    CHANGED_TRIES = 3
};

/* The folder is the learner's: it may have put a link or a FIFO there, in the file's place or a folder's. None is followed or waited for. */
static int open_step_log(const sup_run *r, const char *step)
{
    char *name = pst_sprintf("%s/%s.log", r->own_log_dir, step);
    int fd = sup_run_open_shared(r, name, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY, 0600);
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        fd = -1;
    }
    free(name);
    return fd;
}

/* Where the two steps of FfDL's helpers write: load-data.log and load-model.log, beside the learner's own. */
void sup_run_step_log(sup_run *r, const char *step, const char *fmt, ...)
{
    char when[32];
    int fd = open_step_log(r, step);
    time_t now = (time_t)(pst_now_us() / 1000000);
    struct tm tm;
    pst_buf line = {0};
    va_list ap;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    pst_buf_printf(&line, "%s ", when);
    va_start(ap, fmt);
    pst_buf_vprintf(&line, fmt, ap);
    va_end(ap);
    pst_buf_addc(&line, '\n');
    if (fd >= 0) {
        pst_fs_write_all(fd, line.data, line.len); /* a log that cannot be written is no reason to run nothing */
        close(fd);
    }
    pst_buf_done(&line);
}

/* ---- a transfer ---------------------------------------------------------------------------------------------------------------------- */

typedef struct transfer {
    sup_run *r;
    const pst_data_store *store;
    const char *bucket;
    pst_s3 *s3;
    const char *doing; /* "fetching", "storing" */
    int64_t bytes, bytes_all, said_us;
    size_t files, files_all, same, left_out, missed;
    struct timespec since;  /* what is put was changed after this; zero: whenever */
    char first_missed[400]; /* which, and why */
} transfer;

static bool asked_to_stop(void *arg)
{
    return pst_stop_requested();
}

static void moved(void *arg, int64_t bytes)
{
    transfer *t = arg;
    t->bytes += bytes;
    if (pst_mono_us() - t->said_us < PROGRESS_US)
        return;
    t->said_us = pst_mono_us();
    sup_run_say(t->r, "%s: %zu of %zu files, %.1f of %.1f MiB, bucket %s", t->doing, t->files, t->files_all, (double)t->bytes / (1 << 20),
                (double)t->bytes_all / (1 << 20), t->bucket);
}

static int begin(sup_run *r, const pst_data_store *s, const char *bucket, const char *doing, int patience_ms, transfer *ret, pst_err *err)
{
    const json_t *c = s->connection;
    *ret = (transfer){.r = r, .store = s, .bucket = bucket, .doing = doing, .said_us = pst_mono_us()};
    int rc = 0;
    if (!pst_s3_allowed(r->spec.stores, json_string_value(json_object_get(c, "auth_url"))))
        rc = pst_err_set(err, PST_EAUTH, PST_CLASS_DATA, "s3", 0,
                         "the operator of this node does not allow the server of connection.auth_url (lcm --stores)");
    else
        rc = pst_s3_open(&(pst_s3_conf){.url = json_string_value(json_object_get(c, "auth_url")),
                                        .user = json_string_value(json_object_get(c, "user_name")),
                                        .password = json_string_value(json_object_get(c, "password")),
                                        .region = json_string_value(json_object_get(c, "region")),
                                        .bucket = bucket,
                                        .patience_ms = r->store_patience_ms ? r->store_patience_ms : patience_ms,
                                        .stopped = asked_to_stop,
                                        .moved = moved,
                                        .arg = ret},
                         &ret->s3, err);
    if (rc < 0)
        pst_err_prefix(err, "data store %s", s->id ? s->id : "");
    return rc;
}

/* A name that comes from a bucket or a learner, as a person may see it. */
static char *shown(const char *name)
{
    pst_buf b = {0};
    pst_term_quote(&b, name, strlen(name), 200);
    return pst_buf_steal(&b);
}

static void leave_out(transfer *t, const char *step, const char *name, const char *why)
{
    char *text = shown(name);
    if (t->left_out++ < NAMED_MAX)
        sup_run_say(t->r, "left out: %s: %s", text, why);
    sup_run_step_log(t->r, step, "left out: %s: %s", text, why);
    free(text);
}

/* What should be in the bucket and cannot be read here: the rest is put all the same, and the whole is no success. */
static void miss(transfer *t, const char *name, const char *why)
{
    char *text = shown(*name ? name : "the folder itself");
    sup_run_say(t->r, "not stored: %s: %s", text, why);
    if (!t->missed++)
        snprintf(t->first_missed, sizeof t->first_missed, "%.200s: %.150s", text, why);
    free(text);
}

/* Gone meanwhile, or a link, a socket or a file now where a folder was: nothing of that name is a result. */
static bool is_gone(int code)
{
    return code == ENOENT || code == ENOTDIR || code == ELOOP || code == EXDEV || code == ENXIO;
}

/* ---- in ---------------------------------------------------------------------------------------------------------------------------------- */

/* The folder of a key below dirfd, made as far as it is missing; no link is followed. *ret_name: the last part. -1 and errno. */
static int make_folders(int dirfd, const char *key, const char **ret_name)
{
    int at = dup(dirfd);
    for (const char *slash; at >= 0 && (slash = strchr(key, '/')) && slash[1]; key = slash + 1) {
        char *part = pst_strndup(key, (size_t)(slash - key));
        int next = -1;
        if (mkdirat(at, part, 0755) == 0 || errno == EEXIST)
            next = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int why = errno;
        close(at);
        errno = why;
        free(part);
        at = next;
    }
    *ret_name = key;
    return at;
}

static int fetch_one(transfer *t, int dirfd, const char *key, const char *rel, int64_t bytes, pst_err *err)
{
    const char *name;
    int64_t got = 0;
    int at = make_folders(dirfd, rel, &name), fd = -1, rc = 0;
    size_t n = strlen(name);
    if (at >= 0 && n && name[n - 1] == '/') { /* what some programs put to show an empty folder */
        char *folder = pst_strndup(name, n - 1);
        rc = mkdirat(at, folder, 0755) < 0 && errno != EEXIST ? pst_err_sys(err, errno, "cannot make a folder") : 0;
        free(folder);
    } else {
        fd = at < 0 ? -1 : openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
        rc = fd < 0 ? pst_err_sys(err, errno, "cannot write %.200s", rel) : pst_s3_get(t->s3, key, fd, bytes, &got, err);
    }
    if (fd >= 0 && close(fd) < 0 && !rc)
        rc = pst_err_sys(err, errno, "cannot write %.200s", rel);
    if (at >= 0)
        close(at);
    return rc;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const pst_s3_object *)a)->key, ((const pst_s3_object *)b)->key);
}

/* Keys that can be no file are left out, and named: a bucket may have what a folder cannot, as both "a" and "a/b". Of these the folder stays.
 * A sorted list may have other keys between the two ("a", "a!", "a/b"), so the folder is looked for. */
static void leave_out_impossible(transfer *t, const char *step, pst_s3_list *list, size_t skip)
{
    size_t kept = 0;
    if (list->n)
        qsort(list->at, list->n, sizeof *list->at, by_key);
    for (size_t i = 0; i < list->n; i++) {
        char *key = list->at[i].key, *folder = pst_sprintf("%s/", key);
        const char *why = pst_s3_key_problem(key + skip);
        size_t from = i + 1, to = list->n;
        while (from < to) { /* the first key from "a/" on */
            size_t middle = from + (to - from) / 2;
            if (strcmp(list->at[middle].key, folder) < 0)
                from = middle + 1;
            else
                to = middle;
        }
        if (!why && from < list->n && !strncmp(list->at[from].key, folder, strlen(folder)))
            why = "there are keys below it, and a file cannot be a folder too";
        if (!why && kept && !strcmp(list->at[kept - 1].key, key))
            why = "it is in the list twice";
        free(folder);
        if (why) {
            leave_out(t, step, key, why);
            free(key);
        } else {
            list->at[kept++] = list->at[i];
        }
    }
    list->n = kept;
}

static int check_room(transfer *t, const char *dir, pst_err *err)
{
    struct statvfs fs;
    int64_t most = t->r->manifest.storage_bytes;
    if (most > 0 && t->bytes_all > most)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "data", 0,
                           "the data of bucket %s take %.1f MiB, more than the manifest's storage of %.1f MiB", t->bucket,
                           (double)t->bytes_all / (1 << 20), (double)most / (1 << 20));
    if (statvfs(dir, &fs) == 0 && (uint64_t)t->bytes_all > (uint64_t)fs.f_bavail * fs.f_frsize)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_RETRY, "data", 0, "the data of bucket %s take %.1f MiB, and %s has room for %.1f MiB",
                           t->bucket, (double)t->bytes_all / (1 << 20), dir, (double)fs.f_bavail * (double)fs.f_frsize / (1 << 20));
    return 0;
}

/* All keys below a prefix as files of dir, without the prefix. */
static int fetch_all(transfer *t, const char *step, const char *prefix, const char *dir, pst_err *err)
{
    pst_s3_list list = {0};
    size_t skip = strlen(prefix);
    int64_t begun = pst_mono_us();
    int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    int rc = dirfd < 0 ? pst_err_sys(err, errno, "cannot open %s", dir) : pst_s3_list_keys(t->s3, prefix, 0, &list, err);
    if (!rc)
        leave_out_impossible(t, step, &list, skip);
    t->files_all = list.n;
    for (size_t i = 0; i < list.n; i++) /* sizes come from a stranger: their sum must not run over */
        t->bytes_all = list.at[i].bytes > (1ll << 60) - t->bytes_all ? 1ll << 60 : t->bytes_all + list.at[i].bytes;
    if (!rc)
        rc = check_room(t, dir, err);
    for (size_t i = 0; i < list.n && !rc; i++) {
        const pst_s3_object *o = &list.at[i];
        rc = fetch_one(t, dirfd, o->key, o->key + skip, o->bytes, err);
        t->files += !rc;
    }
    if (!rc && (t->files || !skip)) {
        double s = (double)(pst_mono_us() - begun) / 1e6;
        sup_run_say(t->r, "%zu files of bucket %s (%.1f MiB) are in %s after %.1f s", t->files, t->bucket, (double)t->bytes / (1 << 20),
                    skip ? "$CHECKPOINT_DIR" : "$DATA_DIR", s);
        sup_run_step_log(t->r, step, "%zu files, %lld bytes, of bucket %s in %.1f s; left out: %zu", t->files, (long long)t->bytes,
                         t->bucket, s, t->left_out);
    }
    if (dirfd >= 0)
        close(dirfd);
    pst_s3_list_done(&list);
    return rc;
}

/* FfDL's codes: what the user has to mend, or what the platform could not do. */
static const char *code_of(const pst_err *err)
{
    return err->cls == PST_CLASS_DATA ? "C103" : "S302";
}

/* A learner may be another user; the folders above are closed. What stands there may be a link that another data store of the same id has made. */
static int open_to_learner(const char *dir, pst_err *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc = 0;
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        rc = pst_err_set(err, PST_EEXIST, PST_CLASS_DATA, "stores", 0, "another data store has its data at %s: give each an id of its own",
                         strrchr(dir, '/') + 1);
    else if (fd < 0 || fchmod(fd, 0755) < 0)
        rc = pst_err_sys(err, errno, "cannot open %s for the learner", dir);
    if (fd >= 0)
        close(fd);
    return rc;
}

int sup_run_fetch_store(sup_run *r, const pst_data_store *s, const char **ret_code, pst_err *err)
{
    transfer t = {0};
    if (!s->input || !*s->input)
        return 0;
    bool alone = r->manifest.n_stores == 1;
    char *dir = alone ? pst_strdup(r->data_dir) : pst_fs_join(r->data_dir, pst_rundir_name_ok(s->id) ? s->id : "data");
    int rc = pst_fs_mkdirs(dir, 0755, err);
    if (!rc)
        rc = open_to_learner(r->data_dir, err);
    if (!rc)
        rc = open_to_learner(dir, err);
    if (!rc)
        rc = begin(r, s, s->input, "fetching", FETCH_PATIENCE_MS, &t, err);
    if (!rc)
        rc = fetch_all(&t, "load-data", "", dir, err);
    if (rc < 0 && rc != PST_ESTOPPED) {
        *ret_code = code_of(err);
        pst_err_prefix(err, "cannot load the data of store %s", s->id ? s->id : s->input);
        sup_run_step_log(r, "load-data", "%s", err->text);
    }
    pst_s3_close(t.s3);
    free(dir);
    return rc;
}

static bool is_empty(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && n < 3 && (e = readdir(d));)
        n++;
    if (d)
        closedir(d);
    return n < 3;
}

/* In the folder of checkpoints as long as they are fetched: what is there then is a part, to be thrown away by whoever fetches next, and never to be put
 * in the place of the whole. A learner that writes this name keeps its own checkpoints out of the bucket. */
#define FETCHING ".penstock-fetching"

static bool is_partial(const sup_run *r)
{
    struct stat st;
    char *mark = pst_fs_join(r->checkpoint_dir, FETCHING);
    bool there = lstat(mark, &st) == 0;
    free(mark);
    return there;
}

static int empty(const char *dir, pst_err *err)
{
    int rc = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && !rc && (e = readdir(d));) {
        char *path = pst_fs_join(dir, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = pst_fs_remove_tree(path, err);
        free(path);
    }
    if (d)
        closedir(d);
    return rc;
}

static int fetch_from(sup_run *r, const pst_data_store *s, const char **ret_code, pst_err *err)
{
    transfer t = {0};
    char *prefix = pst_sprintf("%s/" CHECKPOINTS "/", r->spec.training_id), *mark = pst_fs_join(r->checkpoint_dir, FETCHING);
    int rc = empty(r->checkpoint_dir, err);
    if (!rc)
        rc = pst_fs_write_atomic(mark, "", 0, 0600, err);
    if (!rc)
        rc = begin(r, s, s->output, "fetching checkpoints", FETCH_PATIENCE_MS, &t, err);
    if (!rc)
        rc = fetch_all(&t, "load-model", prefix, r->checkpoint_dir, err);
    if (!rc && unlink(mark) < 0)
        rc = pst_err_sys(err, errno, "cannot remove %s", mark);
    if (rc < 0 && rc != PST_ESTOPPED) {
        *ret_code = code_of(err);
        pst_err_prefix(err, "cannot load the checkpoints of an earlier generation");
    }
    pst_s3_close(t.s3);
    free(prefix);
    free(mark);
    return rc;
}

/* The processes of a gang on one node share the folder: one fetches, the others wait for it. */
int sup_run_fetch_checkpoints(sup_run *r, const char **ret_code, pst_err *err)
{
    char *path = pst_sprintf("%s.checkpoints.lock", r->job_state_dir); /* beside it, in the generation's folder */
    int fd = r->spec.generation > 1 ? open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600) : -1, rc = 0;
    if (r->spec.generation > 1 && fd < 0)
        rc = pst_err_sys(err, errno, "cannot open %s", path);
    while (!rc && fd >= 0 && pst_lock_try(fd, PST_LOCK_PLAIN) == PST_EEXIST) {
        if (pst_stop_requested())
            rc = pst_err_set(err, PST_ESTOPPED, PST_CLASS_RETRY, "s3", 0, "told to stop");
        else
            pst_sleep_ms(50);
    }
    for (size_t i = 0; fd >= 0 && !rc && i < r->manifest.n_stores; i++) {
        const pst_data_store *s = &r->manifest.stores[i];
        if (s->s3 && s->output && *s->output && (is_partial(r) || is_empty(r->checkpoint_dir)))
            rc = fetch_from(r, s, ret_code, err);
    }
    if (fd >= 0)
        close(fd);
    free(path);
    return rc;
}

/* ---- out ------------------------------------------------------------------------------------------------------------------------------- */

typedef struct names {
    char **at;
    size_t n, cap;
    int64_t bytes;
    bool full;
} names;

static bool is_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

static void walk(transfer *t, int at, const char *path, int depth, names *all);

static void walk_entry(transfer *t, int at, const char *entry, char *name, int depth, names *all)
{
    struct stat st;
    int below;
    if (fstatat(at, entry, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (!is_gone(errno))
            miss(t, name, strerror(errno));
    } else if (S_ISDIR(st.st_mode) && depth == DEPTH_MAX) {
        miss(t, name, "it lies below 40 folders, and what is deeper is not stored");
    } else if (S_ISDIR(st.st_mode)) {
        below = openat(at, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0)
            walk(t, below, name, depth + 1, all);
        else if (!is_gone(errno))
            miss(t, name, strerror(errno));
    } else if (S_ISREG(st.st_mode) && is_before(&st.st_mtim, &t->since)) {
        /* another node's to put */
    } else if (S_ISREG(st.st_mode) && all->n == FILES_MAX) {
        all->full = true;
        miss(t, name, "there are more files than are stored for one job");
    } else if (S_ISREG(st.st_mode)) {
        all->at = pst_array_room(all->at, all->n, &all->cap, sizeof *all->at);
        all->at[all->n++] = pst_strdup(name);
        all->bytes += st.st_size;
    }
}

/* Regular files below a folder, as paths from it. The learner may write there, and have put links: none is followed. Takes `at`. */
static void walk(transfer *t, int at, const char *path, int depth, names *all)
{
    DIR *d = fdopendir(at);
    if (!d) {
        miss(t, path, strerror(errno));
        close(at);
        return;
    }
    for (struct dirent *e; !all->full && (errno = 0, e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        char *name = pst_sprintf("%s%s%s", path, *path ? "/" : "", e->d_name);
        walk_entry(t, dirfd(d), e->d_name, name, depth, all);
        free(name);
    }
    if (!all->full && errno)
        miss(t, path, strerror(errno));
    closedir(d);
}

static void names_done(names *all)
{
    for (size_t i = 0; i < all->n; i++)
        free(all->at[i]);
    free(all->at);
}

/* One file. Another process of the job may write to it still: then that one's supervisor puts it, later. */
static int put_one(transfer *t, int dirfd, const char *rel, const char *key, pst_err *err)
{
    bool sent = false;
    int rc = PST_EAGAIN;
    const char *problem = pst_s3_key_problem(key);
    pst_buf utf8 = {0};
    sup_utf8_add(&utf8, key, strlen(key));
    if (!problem && strcmp(utf8.data ? utf8.data : "", key) != 0)
        problem = "its name is not UTF-8, as a key must be";
    pst_buf_done(&utf8);
    if (problem) {
        leave_out(t, "store-results", rel, problem);
        return 0;
    }
    pst_err e = {0};
    for (int i = 0; i < CHANGED_TRIES && rc == PST_EAGAIN; i++) {
        pst_err_clear(&e);
        int fd = pst_fs_open_beneath(dirfd, rel, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
        struct stat st;
        if (fd < 0 && !is_gone(errno))
            miss(t, rel, strerror(errno));
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) { /* gone meanwhile, or something else now */
            if (fd >= 0)
                close(fd);
            return 0;
        }
        rc = pst_s3_put(t->s3, key, fd, &sent, &e);
        close(fd);
    }
    t->files += !rc && sent;
    t->same += !rc && !sent;
    if (rc == PST_EAGAIN) {
        leave_out(t, "store-results", rel, "it changes while it is stored; the process that writes it stores it in the end");
        return 0;
    }
    if (rc < 0)
        *err = e;
    return rc;
}

/* All files of a folder under a prefix. The first error ends it: a store that refuses one file, or is away, does so for the next. */
static int put_folder(transfer *t, const char *dir, const char *prefix, pst_err *err)
{
    names all = {0};
    int rc = 0, dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    int walked = dirfd < 0 ? -1 : fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
    if (walked >= 0)
        walk(t, walked, "", 0, &all);
    else if (errno != ENOENT) /* also a link in its place: what it names is not the job's */
        miss(t, dir, strerror(errno));
    t->files_all += all.n;
    t->bytes_all += all.bytes;
    for (size_t i = 0; i < all.n && !rc; i++) {
        char *key = pst_sprintf("%s/%s", prefix, all.at[i]);
        rc = put_one(t, dirfd, all.at[i], key, err);
        free(key);
    }
    if (dirfd >= 0)
        close(dirfd);
    names_done(&all);
    return rc;
}

/* FfDL keeps what was submitted beside the results. Once for the job, by its first process. */
static int put_code(transfer *t, pst_err *err)
{
    sup_run *r = t->r;
    bool sent = false;
    if (r->spec.learner_id != 1 || !r->spec.code_uri || !*r->spec.code_uri)
        return 0;
    char *path = pst_fs_join(r->dir, "model.zip"), *key = pst_sprintf("%s/_submitted_code/model.zip", r->spec.training_id);
    pst_err why = {0};
    int rc = 0;
    int got = pst_objects_get_file(r->objects, r->spec.code_uri, r->spec.code_sha256 && *r->spec.code_sha256 ? r->spec.code_sha256 : NULL,
                                   path, &why);
    int fd = got < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0)
        rc = pst_s3_put(t->s3, key, fd, &sent, err);
    else
        sup_run_say(r, "the submitted code is not stored with the results: %s", got < 0 ? why.text : strerror(errno));
    if (fd >= 0)
        close(fd);
    unlink(path);
    free(key);
    free(path);
    return rc;
}

/* Of a gang over several nodes each has folders of its own, and copies in them of what another one writes: fetched at the start, or left by a generation whose
 * first process was there. Put last they would stand in the place of the new. So all is put from the node of the first process, and from another
 * what its processes have changed since they met: what was fetched is older than that. */
static void put_changes_only(transfer *t)
{
    const sup_run *r = t->r;
    bool first = !r->spec.address;
    for (size_t i = 0; i < r->spec.n_sets; i++)
        first |= r->spec.sets[i].rank == 0;
    struct stat st;
    char *met = pst_sprintf("%s/gang/hostfile", r->dir); /* written when they had */
    if (!first && stat(met, &st) == 0)
        t->since = st.st_mtim;
    else if (!first) /* its command never started */
        t->since.tv_sec = (time_t)(pst_now_us() / 1000000);
    free(met);
}

static int put_store(sup_run *r, const pst_data_store *s, pst_err *err)
{
    transfer t = {0};
    int64_t begun = pst_mono_us();
    char *checkpoints = pst_sprintf("%s/" CHECKPOINTS, r->spec.training_id);
    int rc = begin(r, s, s->output, "storing", PUT_PATIENCE_MS, &t, err);
    put_changes_only(&t);
    if (!rc)
        rc = put_folder(&t, r->result_dir, r->spec.training_id, err);
    if (!rc && is_partial(r))
        sup_run_say(r, "checkpoints are not stored: those of an earlier generation were not fetched whole");
    else if (!rc)
        rc = put_folder(&t, r->checkpoint_dir, checkpoints, err);
    if (!rc)
        rc = put_code(&t, err);
    if (!rc && t.missed)
        rc = pst_err_set(err, PST_EIO, PST_CLASS_DATA, "s3", 0, "%zu files or folders could not be stored, the first is %s", t.missed,
                         t.first_missed);
    if (!rc)
        sup_run_say(r, "results, logs and checkpoints are in bucket %s below %s: %zu files stored, %zu there already, after %.1f s",
                    s->output, r->spec.training_id, t.files, t.same, (double)(pst_mono_us() - begun) / 1e6);
    pst_s3_close(t.s3);
    free(checkpoints);
    return rc;
}

static bool is_success(const pst_rundir_exit *x)
{
    return !*x->reason_code && x->stop_reason == PST_STOP_REASON_NONE && !x->lost && x->has_exit_code && !x->exit_code;
}

/* The end stays what it was, but a success without its results is none. */
static void describe(const sup_run *r, const pst_data_store *s, const pst_err *err, pst_rundir_exit *x)
{
    char before[sizeof x->reason];
    bool good = is_success(x);
    snprintf(before, sizeof before, "%s", *x->reason ? x->reason : "the command exited with status 0");
    char *text = pst_sprintf("%.120s; its results are not in bucket %.63s but on node %.60s in %s: %s", before, s->output,
                             r->spec.node && *r->spec.node ? r->spec.node : "(this)", r->result_dir, err->text);
    snprintf(x->reason, sizeof x->reason, "%s", text); /* cut at its end, so the place of the files stands before the cause */
    free(text);
    if (good) {
        snprintf(x->reason_code, sizeof x->reason_code, "S303");
        x->has_exit_code = false;
    }
}

/* Data may be large, and are in their bucket: the copy does not wait for the folder's own time. Links of other stores go, not what they name. */
static void drop_copies(const sup_run *r)
{
    char *copies = pst_fs_join(r->dir, "data");
    bool any = false;
    pst_err err = {0};
    for (size_t i = 0; i < r->manifest.n_stores; i++)
        any = any || (r->manifest.stores[i].s3 && r->manifest.stores[i].input);
    if (any && pst_fs_remove_tree(copies, &err) < 0)
        pst_log_err("supervisor", &err);
    free(copies);
}

int sup_run_put_results(sup_run *r, pst_rundir_exit *x, bool *ret_changed, pst_err *err)
{
    int rc = 0;
    bool any = false;
    *ret_changed = false;
    drop_copies(r);
    for (size_t i = 0; i < r->manifest.n_stores; i++)
        any = any || (r->manifest.stores[i].s3 && r->manifest.stores[i].output && *r->manifest.stores[i].output);
    if (!any)
        return 0;
    sup_run_keep_logs(r);
    for (size_t i = 0; i < r->manifest.n_stores && !rc; i++) {
        const pst_data_store *s = &r->manifest.stores[i];
        pst_err e = {0};
        if (!s->s3 || !s->output || !*s->output)
            continue;
        rc = put_store(r, s, &e);
        if (rc < 0 && rc != PST_ESTOPPED) {
            describe(r, s, &e, x);
            *ret_changed = true;
            sup_run_say(r, "the results are not in bucket %s: %s; they stay in %s", s->output, e.text, r->result_dir);
            rc = 0;
        } else if (rc < 0 && err) {
            *err = e;
        }
    }
    return rc;
}

static bool has_results_store(const char *manifest)
{
    pst_manifest m = {0};
    pst_complaints errors = {0}, warnings = {0};
    bool any = manifest && pst_manifest_parse(manifest, strlen(manifest), &m, &errors, &warnings) < 0; /* to be known by nobody */
    for (size_t i = 0; i < m.n_stores; i++)
        any = any || (m.stores[i].s3 && m.stores[i].output && *m.stores[i].output);
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    return any;
}

int sup_results_missed(const char *run_dir, const pst_rundir_spec *spec, const pst_err *why, pst_err *err)
{
    pst_rundir_exit x;
    int rc = pst_rundir_exit_read(run_dir, &x, err);
    if (rc < 0 || pst_rundir_published(run_dir) || !is_success(&x) || !has_results_store(spec->manifest))
        return rc;
    snprintf(x.reason_code, sizeof x.reason_code, "S303");
    snprintf(
        x.reason, sizeof x.reason,
        "the command exited with status 0; its results are not in their bucket but on node %.60s, as its supervisor ended and the next "
        "could not go on: %.300s",
        spec->node && *spec->node ? spec->node : "(this)", why->text);
    x.has_exit_code = false;
    return pst_rundir_exit_write(run_dir, &x, err);
}
