/* sink_dir.c - the note is written twice a round, atomically: before the files grow (their lengths, the old places), and after (the new places). Between
 * the two, and only then, a file may be longer than what its places say. */
#include "consumers/sink/sink_dir.h"

#include "common/base/buf.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/lock.h"
#include "common/base/map.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOTE     ".penstock-sink.json"
#define LOCK     ".penstock-sink.lock"
#define NOTE_MAX ((size_t)64 << 20)

typedef struct growth { /* of one file, in this round */
    pst_buf data;
    char *head;
    size_t head_len;
    int64_t before; /* its length */
} growth;

struct sink_dir {
    char *path;
    int lock_fd;
    char *what;
    json_t *places;  /* {topic: {partition: next offset}} */
    json_t *settled; /* as they were at the last settle */
    int64_t number;
    pst_map files; /* path in the folder → growth */
    size_t pending;
    json_t *renames; /* [[temporary, file]] */
    bool moved;      /* a place, since the last settle */
    bool broken;     /* a settle failed half way: only the next open knows how to go on */
};

static void growth_free(void *p)
{
    growth *g = p;
    pst_buf_done(&g->data);
    free(g->head);
    free(g);
}

char *sink_dir_path(const sink_dir *d, const char *file)
{
    return pst_fs_join(d->path, file);
}

static int io(pst_err *err, const char *what, const char *path)
{
    return pst_err_set(err, PST_EIO, PST_CLASS_FATAL, "sink", errno, "cannot %s %s: %s", what, path, strerror(errno));
}

/* The folders above a file. */
static int make_folders(const char *path, pst_err *err)
{
    char *dir = pst_strndup(path, (size_t)(strrchr(path, '/') - path));
    int rc = pst_fs_mkdirs(dir, 0700, err);
    free(dir);
    return rc;
}

static int sync_folder_of(const char *path, pst_err *err)
{
    char *dir = pst_strndup(path, (size_t)(strrchr(path, '/') - path));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 || fsync(fd) ? io(err, "sync", dir) : 0;
    if (fd >= 0)
        close(fd);
    free(dir);
    return rc;
}

/* ---- the note ---- */

static int write_note(const sink_dir *d, bool before, pst_err *err)
{
    json_t *cut = json_object();
    for (size_t i = 0; before && i < d->files.n; i++)
        if (d->files.at[i].key)
            json_object_set_new(cut, d->files.at[i].key, json_integer(((growth *)d->files.at[i].value)->before));
    json_t *note = json_pack("{s:s, s:O, s:I, s:o, s:O}", "sink", d->what, "places", before ? d->settled : d->places, "number",
                             (json_int_t)d->number, "growing", cut, "put", d->renames);
    if (before) /* what these files are part of is not settled yet */
        json_object_set_new(note, "put", json_array());
    char *text = pst_json_text(note), *path = sink_dir_path(d, NOTE);
    int rc = pst_fs_write_atomic(path, text, strlen(text), 0600, err);
    json_decref(note);
    free(text);
    free(path);
    return rc;
}

/* A name from the note: below the folder, and nothing else. */
static bool is_below(const char *name)
{
    if (!name || !*name || *name == '/')
        return false;
    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/';
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && *p == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
    }
    return true;
}

static int put_in_place(const sink_dir *d, const char *from, const char *to, pst_err *err)
{
    char *a = sink_dir_path(d, from), *b = sink_dir_path(d, to);
    int rc = 0;
    if (pst_fs_exists(a)) {
        rc = make_folders(b, err);
        if (!rc && rename(a, b))
            rc = io(err, "rename to", b);
        if (!rc)
            rc = sync_folder_of(b, err);
    }
    free(a);
    free(b);
    return rc;
}

/* Carries on where the last writer was stopped. */
static int recover(const sink_dir *d, json_t *note, pst_err *err)
{
    const char *name;
    json_t *v;
    size_t i;
    int rc = 0;
    json_object_foreach(json_object_get(note, "growing"), name, v)
    {
        char *path = is_below(name) && json_is_integer(v) ? sink_dir_path(d, name) : NULL;
        struct stat st;
        if (!rc && path && !stat(path, &st) && st.st_size > json_integer_value(v) && truncate(path, json_integer_value(v)))
            rc = io(err, "cut back", path);
        free(path);
    }
    json_array_foreach(json_object_get(note, "put"), i, v)
    {
        const char *from = json_string_value(json_array_get(v, 0)), *to = json_string_value(json_array_get(v, 1));
        if (!rc && is_below(from) && !strncmp(from, ".tmp-", 5) && is_below(to))
            rc = put_in_place(d, from, to, err);
    }
    DIR *dir = rc ? NULL : opendir(d->path);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (!strncmp(e->d_name, ".tmp-", 5))
            unlinkat(dirfd(dir), e->d_name, 0);
    if (dir)
        closedir(dir);
    return rc;
}

static int read_note(sink_dir *d, pst_err *err)
{
    pst_buf text = {0};
    json_t *note = NULL;
    char *path = sink_dir_path(d, NOTE);
    int rc = pst_fs_exists(path) ? pst_fs_read(path, NOTE_MAX, &text, err) : 0;
    if (!rc && text.len)
        rc = pst_json_parse(text.data, text.len, path, &note, err);
    if (!rc && note && strcmp(pst_json_str(note, "sink", ""), d->what))
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "sink", 0, "%s was begun as `%s` and cannot go on as `%s`: take another folder",
                         d->path, pst_json_str(note, "sink", ""), d->what);
    if (!rc && note) {
        json_t *places = json_object_get(note, "places");
        if (json_is_object(places)) {
            json_decref(d->places);
            d->places = json_incref(places);
        }
        d->number = pst_json_int(note, "number", 0);
        rc = recover(d, note, err);
    } else if (!rc) {
        json_t *none = json_object();
        rc = recover(d, none, err);
        json_decref(none);
    }
    json_decref(note);
    pst_buf_done(&text);
    free(path);
    return rc;
}

int sink_dir_open(const char *path, const char *what, sink_dir **ret_dir, pst_err *err)
{
    int rc = pst_fs_mkdirs(path, 0700, err);
    if (rc < 0)
        return rc;
    char *real = realpath(path, NULL);
    if (!real)
        return io(err, "open", path);
    sink_dir *d = pst_alloc(sizeof *d);
    d->path = pst_strdup(real);
    free(real);
    d->what = pst_strdup(what);
    d->places = json_object();
    d->renames = json_array();
    char *lock = sink_dir_path(d, LOCK);
    d->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->lock_fd < 0)
        rc = io(err, "open", lock);
    else if ((rc = pst_lock_try(d->lock_fd, PST_LOCK_PLAIN)) < 0)
        rc = pst_err_set(err, rc, PST_CLASS_FATAL, "sink", 0, "another sink writes into %s: one at a time; end it, or take another folder",
                         d->path);
    free(lock);
    if (!rc)
        rc = read_note(d, err);
    d->settled = json_deep_copy(d->places);
    if (rc < 0) {
        sink_dir_close(d);
        return rc;
    }
    *ret_dir = d;
    return 0;
}

void sink_dir_close(sink_dir *d)
{
    if (!d)
        return;
    if (d->lock_fd >= 0)
        close(d->lock_fd);
    pst_map_done(&d->files, growth_free);
    json_decref(d->places);
    json_decref(d->settled);
    json_decref(d->renames);
    free(d->what);
    free(d->path);
    free(d);
}

/* ---- a round ---- */

int64_t sink_dir_place(const sink_dir *d, const char *topic, int32_t partition)
{
    char p[16];
    snprintf(p, sizeof p, "%d", partition);
    return pst_json_int(json_object_get(d->places, topic), p, -1);
}

void sink_dir_set_place(sink_dir *d, const char *topic, int32_t partition, int64_t next)
{
    char p[16];
    snprintf(p, sizeof p, "%d", partition);
    json_t *of = json_object_get(d->places, topic);
    if (!of)
        json_object_set_new(d->places, topic, of = json_object());
    PST_ASSERT(next >= pst_json_int(of, p, -1)); /* back only by sink_dir_forget_place: what is behind a place is in the files */
    json_object_set_new(of, p, json_integer(next));
    d->moved = true;
}

void sink_dir_forget_place(sink_dir *d, const char *topic, int32_t partition)
{
    char p[16];
    snprintf(p, sizeof p, "%d", partition);
    json_object_del(json_object_get(d->places, topic), p);
    d->moved = true;
}

void sink_dir_break(sink_dir *d)
{
    d->broken = true;
}

size_t sink_dir_files(const sink_dir *d)
{
    return d->files.live;
}

void sink_dir_append(sink_dir *d, const char *file, const char *head, size_t head_len, const void *data, size_t len)
{
    growth *g = pst_map_get(&d->files, file);
    PST_ASSERT(is_below(file));
    if (!g) {
        g = pst_alloc(sizeof *g);
        g->head = head ? memcpy(pst_alloc(head_len + 1), head, head_len) : NULL;
        g->head_len = head_len;
        pst_map_put(&d->files, file, g);
    }
    pst_buf_add(&g->data, data, len);
    d->pending += len;
}

size_t sink_dir_pending(const sink_dir *d)
{
    return d->pending;
}

int64_t sink_dir_number(sink_dir *d)
{
    return ++d->number;
}

int sink_dir_place_file(sink_dir *d, const char *temporary, const char *file, pst_err *err)
{
    PST_ASSERT(!strncmp(temporary, ".tmp-", 5) && is_below(temporary) && is_below(file));
    char *path = sink_dir_path(d, temporary);
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = fd < 0 || fsync(fd) ? io(err, "sync", path) : 0;
    if (fd >= 0)
        close(fd);
    free(path);
    json_array_append_new(d->renames, json_pack("[s,s]", temporary, file));
    return rc;
}

static int grow(const sink_dir *d, const char *file, growth *g, pst_err *err)
{
    char *path = sink_dir_path(d, file);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), rc = 0;
    if (fd < 0 || (!g->before && g->head && pst_fs_write_all(fd, g->head, g->head_len)) ||
        pst_fs_write_all(fd, g->data.data, g->data.len) || fdatasync(fd))
        rc = io(err, "write", path);
    if (fd >= 0)
        close(fd);
    if (!rc && !g->before)
        rc = sync_folder_of(path, err);
    free(path);
    return rc;
}

/* How long each of them is now; the folders that they need. */
static int measure(sink_dir *d, pst_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < d->files.n; i++) {
        if (!d->files.at[i].key)
            continue;
        char *path = sink_dir_path(d, d->files.at[i].key);
        struct stat st;
        rc = make_folders(path, err);
        if (!rc && !lstat(path, &st)) {
            ((growth *)d->files.at[i].value)->before = st.st_size;
            if (!S_ISREG(st.st_mode))
                rc = pst_err_set(err, PST_EIO, PST_CLASS_FATAL, "sink", 0, "%s is no regular file", path);
        }
        free(path);
    }
    return rc;
}

int sink_dir_settle(sink_dir *d, pst_err *err)
{
    if (d->broken)
        return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "sink", 0, "%s could not be written to", d->path);
    if (!d->moved && !d->files.live && !json_array_size(d->renames))
        return 0;
    d->broken = true;
    int rc = measure(d, err);
    json_t *v;
    size_t i;
    if (!rc && d->files.live)
        rc = write_note(d, true, err);
    for (i = 0; !rc && i < d->files.n; i++)
        if (d->files.at[i].key)
            rc = grow(d, d->files.at[i].key, d->files.at[i].value, err);
    if (!rc)
        rc = write_note(d, false, err);
    json_array_foreach(d->renames, i, v) if (!rc) rc =
        put_in_place(d, json_string_value(json_array_get(v, 0)), json_string_value(json_array_get(v, 1)), err);
    if (!rc) {
        pst_map_done(&d->files, growth_free);
        d->files = (pst_map){0};
        d->pending = 0;
        d->moved = false;
        d->broken = false;
        json_array_clear(d->renames);
        json_decref(d->settled);
        d->settled = json_deep_copy(d->places);
    }
    return rc;
}
