/* spool.c - one append-only file after another, so that the oldest can be dropped whole when the disk space ends and nothing is ever rewritten.
 * A file cut short by a crash ends at its last whole item. */
#include "lcm/supervisor/spool.h"

#include "common/base/array.h"
#include "common/base/fs.h"
#include "lcm/supervisor/outlet.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_NUMBER 1000000 /* room in front for prepend */
#define HEAD         8

typedef struct segment {
    uint64_t number;
    int64_t bytes, lines, line_bytes, metrics;
    sup_spool_lost lost; /* dropped just before it */
    bool taken;
} segment;

struct sup_spool {
    char *dir;
    int64_t bytes_max, bytes;
    segment *at; /* oldest first */
    size_t n, cap;
    int fd; /* of the last segment; -1 = none open */
};

static char *path_of(const sup_spool *s, uint64_t number)
{
    return pst_sprintf("%s/spool-%010" PRIu64, s->dir, number);
}

static segment *add_segment(sup_spool *s, uint64_t number, size_t at)
{
    PST_ASSERT(at <= s->n);
    s->at = pst_array_room(s->at, s->n, &s->cap, sizeof *s->at);
    memmove(&s->at[at + 1], &s->at[at], (s->n - at) * sizeof *s->at);
    s->n++;
    memset(&s->at[at], 0, sizeof *s->at);
    s->at[at].number = number;
    return &s->at[at];
}

static void remove_segment(sup_spool *s, size_t at)
{
    PST_ASSERT(at < s->n && s->bytes >= s->at[at].bytes); /* the sum is that of the segments */
    char *path = path_of(s, s->at[at].number);
    unlink(path);
    free(path);
    s->bytes -= s->at[at].bytes;
    memmove(&s->at[at], &s->at[at + 1], (--s->n - at) * sizeof *s->at);
}

/* Walks the items of a segment's bytes; returns how many bytes were whole. */
static size_t walk(const char *data, size_t len, void (*fn)(void *arg, int kind, const void *data, size_t len), void *arg)
{
    size_t at = 0;
    while (len - at >= HEAD) {
        uint32_t n;
        memcpy(&n, data + at, 4);
        if (n > len - at - HEAD)
            break;
        fn(arg, (unsigned char)data[at + 4], data + at + HEAD, n);
        at += HEAD + n;
    }
    return at;
}

static void count_item(void *arg, int kind, const void *data, size_t len)
{
    segment *g = arg;
    if (kind == PST_OUTLET_LOG) {
        g->lines++;
        g->line_bytes += (int64_t)len;
    } else {
        g->metrics++;
    }
}

static int by_number(const void *a, const void *b)
{
    const segment *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* What an earlier supervisor of this process left goes on: its segments are counted anew from their bytes, by the order of their numbers. */
int sup_spool_open(const char *dir, int64_t bytes_max, sup_spool **ret_spool, pst_err *err)
{
    DIR *d = opendir(dir);
    if (!d)
        return pst_err_sys(err, errno, "cannot read the run directory %s", dir);
    sup_spool *s = pst_alloc(sizeof *s);
    s->dir = pst_strdup(dir);
    s->bytes_max = bytes_max;
    s->fd = -1;
    for (struct dirent *e; (e = readdir(d));) {
        char *end;
        uint64_t number = strncmp(e->d_name, "spool-", 6) ? 0 : strtoull(e->d_name + 6, &end, 10);
        if (!number || *end)
            continue;
        char *path = path_of(s, number);
        pst_buf b = {0};
        if (pst_fs_read(path, 4 * PST_OUTLET_SEGMENT_MAX, &b, NULL) == 0) {
            segment *g = add_segment(s, number, s->n);
            walk(b.data ? b.data : "", b.len, count_item, g);
            g->bytes = (int64_t)b.len;
            s->bytes += g->bytes;
        }
        pst_buf_done(&b);
        free(path);
    }
    closedir(d);
    if (s->n)
        qsort(s->at, s->n, sizeof *s->at, by_number);
    *ret_spool = s;
    return 0;
}

void sup_spool_close(sup_spool *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    free(s->at);
    free(s->dir);
    free(s);
}

static int next_segment(sup_spool *s, pst_err *err)
{
    if (s->fd >= 0)
        close(s->fd);
    uint64_t number = s->n ? s->at[s->n - 1].number + 1 : FIRST_NUMBER;
    char *path = path_of(s, number);
    s->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    int rc = s->fd < 0 ? pst_err_sys(err, errno, "cannot spool to %s", path) : 0;
    free(path);
    if (!rc)
        add_segment(s, number, s->n);
    return rc;
}

/* The oldest segment that nobody reads goes; its successor remembers what it held. */
static bool drop_oldest(sup_spool *s)
{
    size_t at = s->n && s->at[0].taken ? 1 : 0;
    if (at + 1 >= s->n) /* never the one that is being written */
        return false;
    const segment *g = &s->at[at];
    sup_spool_lost *to = &s->at[at + 1].lost;
    to->lines += g->lost.lines + g->lines;
    to->bytes += g->lost.bytes + g->line_bytes;
    to->metrics += g->lost.metrics + g->metrics;
    remove_segment(s, at);
    return true;
}

void sup_spool_item(pst_buf *out, int kind, const void *data, size_t len)
{
    uint32_t n = (uint32_t)len;
    char head[HEAD] = {0};
    memcpy(head, &n, 4);
    head[4] = (char)kind;
    pst_buf_add(out, head, HEAD);
    pst_buf_add(out, data, len);
}

int sup_spool_append(sup_spool *s, int kind, bool is_line, const void *data, size_t len, pst_err *err)
{
    int64_t size = (int64_t)(HEAD + len);
    if (s->fd < 0 || s->at[s->n - 1].bytes + size > PST_OUTLET_SEGMENT_MAX) {
        int rc = next_segment(s, err);
        if (rc < 0)
            return rc;
    }
    while (s->bytes + size > s->bytes_max && drop_oldest(s))
        ;
    PST_ASSERT(s->fd >= 0 && s->n); /* what is written is the last one, which is never dropped */
    pst_buf b = {0};
    sup_spool_item(&b, kind, data, len);
    segment *g = &s->at[s->n - 1];
    int rc = 0;
    if (pst_fs_write_all(s->fd, b.data, b.len) < 0) {
        rc = pst_err_sys(err, errno, "cannot spool to the run directory %s", s->dir);
        if (ftruncate(s->fd, g->bytes) < 0) { /* a torn item may stay: start another file behind it */
            close(s->fd);
            s->fd = -1;
        }
    } else {
        g->bytes += size;
        s->bytes += size;
        if (is_line)
            count_item(g, PST_OUTLET_LOG, NULL, len);
        else
            g->metrics++;
    }
    pst_buf_done(&b);
    return rc;
}

int sup_spool_prepend(sup_spool *s, const void *items, size_t len, pst_err *err)
{
    uint64_t number = (s->n ? s->at[0].number : FIRST_NUMBER) - 1;
    PST_ASSERT(number > 0); /* 0 is no segment; each supervisor of a run prepends one at most */
    char *path = path_of(s, number);
    int rc = len ? pst_fs_write_atomic(path, items, len, 0600, err) : 0;
    free(path);
    if (!rc && len) {
        segment *g = add_segment(s, number, 0);
        walk(items, len, count_item, g);
        g->bytes = (int64_t)len;
        s->bytes += g->bytes;
    }
    return rc;
}

bool sup_spool_empty(const sup_spool *s)
{
    return !s->n || (s->n == 1 && s->at[0].taken);
}

int64_t sup_spool_bytes(const sup_spool *s)
{
    return s->bytes;
}

uint64_t sup_spool_first(const sup_spool *s)
{
    return s->n ? s->at[0].number : 0;
}

typedef struct skipper {
    size_t skip;
    void (*fn)(void *arg, int kind, const void *data, size_t len);
    void *arg;
} skipper;

static void after_skip(void *arg, int kind, const void *data, size_t len)
{
    skipper *k = arg;
    if (k->skip)
        k->skip--;
    else
        k->fn(k->arg, kind, data, len);
}

int sup_spool_take(sup_spool *s, size_t skip, void (*fn)(void *arg, int kind, const void *data, size_t len), void *arg,
                   uint64_t *ret_number, sup_spool_lost *ret_lost, pst_err *err)
{
    PST_ASSERT(s->n && !s->at[0].taken);
    segment *g = &s->at[0];
    if (s->n == 1 && s->fd >= 0) { /* further items go behind it */
        close(s->fd);
        s->fd = -1;
    }
    char *path = path_of(s, g->number);
    pst_buf b = {0};
    int rc = pst_fs_read(path, 4 * PST_OUTLET_SEGMENT_MAX, &b, err);
    if (!rc) {
        *ret_lost = g->lost;
        *ret_number = g->number;
        g->taken = true;
        skipper k = {.skip = skip, .fn = fn, .arg = arg};
        walk(b.data ? b.data : "", b.len, after_skip, &k);
    }
    pst_buf_done(&b);
    free(path);
    return rc;
}

void sup_spool_release(sup_spool *s, uint64_t number)
{
    for (size_t i = 0; i < s->n && i < 2; i++) /* a prepended one may lie before it */
        if (s->at[i].number == number && s->at[i].taken) {
            remove_segment(s, i);
            return;
        }
}
