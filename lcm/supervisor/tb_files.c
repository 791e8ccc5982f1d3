/* tb_files.c - looks through the folder every two seconds and reads on in each file that grew. The group is the name of the file's folder, as FfDL has it
 * (train, test, …). The tree is a learner's: no link is followed, and its depth, entries and files have an end. */
#include "lcm/supervisor/tb_files.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "lcm/supervisor/follow.h"
#include "lcm/supervisor/lines.h"
#include "lcm/supervisor/tb_events.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCAN_EVERY_US 2000000
#define SCAN_ENTRIES  20000
#define SCAN_DEPTH    8
#define POLL_BYTES    (4 << 20)
#define END_BYTES     (256 << 20)

typedef struct tb_file {
    sup_tb_files *t;
    sup_follow *follow;
    sup_tb reader;
    char *name, *group;
} tb_file;

struct sup_tb_files {
    sup_tb_files_conf conf;
    tb_file **files;
    size_t n, next; /* next: where a look that met its bound goes on */
    int64_t next_scan_us, bytes;
    bool running; /* the first look is over: files that appear now are read from their start */
    bool said_lost, said_damaged, said_large, said_many, said_inside;
};

__attribute__((format(printf, 3, 4))) static void say_once(const sup_tb_files *t, bool *said, const char *fmt, ...)
{
    char text[500];
    va_list ap;
    if (*said)
        return;
    *said = true;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    t->conf.say(t->conf.arg, text);
}

static void on_scalar(void *arg, int64_t time_us, int64_t step, const char *tag, size_t tag_len, double value)
{
    const tb_file *f = arg;
    pst_buf name = {0};
    sup_utf8_add(&name, tag, tag_len);
    pst_metric_point p = {.time = time_us ? time_us : pst_now_us(), .group = f->group, .has_step = true, .step = step};
    pst_dbl_map_set(&p.values, &p.n_values, name.data, value);
    f->t->conf.point(f->t->conf.arg, &p);
    p.group = NULL; /* borrowed */
    pst_event_clear(&pst_metric_point_type, &p);
    pst_buf_done(&name);
}

/* What is wrong is said once for a run, not for each of a thousand files. */
static void judge(const tb_file *f)
{
    sup_tb_files *t = f->t;
    if (f->reader.lost)
        say_once(t, &t->said_lost,
                 "evaluation_metrics: %.200s is damaged (a record's length has a wrong checksum): nothing behind that is read", f->name);
    if (f->reader.damaged)
        say_once(t, &t->said_damaged, "evaluation_metrics: a record of %.200s has a wrong checksum and is left out", f->name);
    if (f->reader.large)
        say_once(t, &t->said_large,
                 "evaluation_metrics: records over %d bytes are passed over (%.200s has one); scalars are never so large",
                 PST_TB_RECORD_MAX, f->name);
}

static void on_data(void *arg, const char *data, size_t len)
{
    tb_file *f = arg;
    f->t->bytes += (int64_t)len;
    sup_tb_feed(&f->reader, data, len);
}

static void on_anew(void *arg)
{
    tb_file *f = arg;
    judge(f);
    sup_tb_reset(&f->reader);
}

/* "tb/run/train/events.out.tfevents.1" → "train"; what stands in the folder itself, or in a learner's, is train. */
static char *group_of(const sup_tb_files *t, const char *below)
{
    const char *end = strrchr(below, '/'), *begin = end;
    while (begin && begin > below && begin[-1] != '/')
        begin--;
    size_t len = end ? (size_t)(end - begin) : 0;
    if (!len || (begin == below && strlen(t->conf.process) == len && !memcmp(begin, t->conf.process, len)))
        return pst_strdup("train");
    pst_buf b = {0};
    sup_utf8_add(&b, begin, len);
    return pst_buf_steal(&b);
}

/* name: from dir_fd; below: the same from the folder that is looked through. */
static void add_file(sup_tb_files *t, const char *name, const char *below)
{
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->files[i]->name, name))
            return;
    if (t->n == PST_TB_FILES_MAX) {
        say_once(t, &t->said_many, "evaluation_metrics: there are more than %d event files; %.200s and what comes later are not read",
                 PST_TB_FILES_MAX, name);
        return;
    }
    tb_file *f = pst_alloc(sizeof *f);
    *f = (tb_file){.t = t, .name = pst_strdup(name), .group = group_of(t, below), .reader = {.scalar = on_scalar, .arg = f}};
    f->follow = sup_follow_new(t->conf.dir_fd, name, !t->running, false, &(sup_follow_to){on_data, on_anew, f});
    t->files = pst_array_one_more(t->files, t->n, sizeof *t->files);
    t->files[t->n++] = f;
}

/* Of what learners share, whose is this entry of the top? */
static bool is_ours(const sup_tb_files *t, const char *entry)
{
    if (!t->conf.shared || !strcmp(entry, t->conf.process))
        return true;
    return t->conf.first && !t->conf.anothers(t->conf.arg, entry);
}

static void scan(sup_tb_files *t, const char *name, size_t top, int depth, int *entries)
{
    int fd = pst_fs_open_beneath(t->conf.dir_fd, *name ? name : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && !d)
        close(fd);
    for (struct dirent *e; d && (e = readdir(d)) && *entries > 0; --*entries) {
        if (*e->d_name == '.' || (!depth && !is_ours(t, e->d_name)))
            continue;
        char *path = *name ? pst_fs_join(name, e->d_name) : pst_strdup(e->d_name);
        if (strstr(e->d_name, "tfevents") && e->d_type != DT_DIR)
            add_file(t, path, path + top);
        else if ((e->d_type == DT_DIR || e->d_type == DT_UNKNOWN) && depth < SCAN_DEPTH)
            scan(t, path, top, depth + 1, entries);
        free(path);
    }
    if (d)
        closedir(d);
}

static void look_for_files(sup_tb_files *t)
{
    int entries = SCAN_ENTRIES;
    scan(t, t->conf.name, *t->conf.name ? strlen(t->conf.name) + 1 : 0, 0, &entries);
}

/* Each file in turn, until bytes_max are read. Returns whether there may be more. */
static bool read_files(sup_tb_files *t, int64_t bytes_max)
{
    bool more = false;
    t->bytes = 0;
    for (size_t i = 0; i < t->n; i++) {
        tb_file *f = t->files[t->next++ % t->n];
        more = sup_follow_poll(f->follow) || more;
        judge(f);
        if (t->bytes >= bytes_max)
            return true;
    }
    return more;
}

sup_tb_files *sup_tb_files_new(const sup_tb_files_conf *conf)
{
    sup_tb_files *t = pst_alloc(sizeof *t);
    *t = (sup_tb_files){.conf = *conf};
    t->conf.name = pst_strdup(conf->name);
    t->conf.process = pst_strdup(conf->process);
    look_for_files(t);
    t->running = true;
    return t;
}

void sup_tb_files_poll(sup_tb_files *t)
{
    int64_t now = pst_mono_us();
    if (now >= t->next_scan_us) {
        look_for_files(t);
        t->next_scan_us = now + SCAN_EVERY_US;
    }
    read_files(t, POLL_BYTES);
}

void sup_tb_files_end(sup_tb_files *t)
{
    if (!t)
        return;
    look_for_files(t);
    for (int64_t read = 0; read < END_BYTES && read_files(t, POLL_BYTES) && t->bytes;)
        read += t->bytes;
    for (size_t i = 0; i < t->n; i++) {
        tb_file *f = t->files[i];
        if (sup_tb_inside(&f->reader))
            say_once(t, &t->said_inside, "evaluation_metrics: %.200s ends in the middle of a record", f->name);
        sup_tb_reset(&f->reader);
        sup_follow_free(f->follow);
        free(f->name);
        free(f->group);
        free(f);
    }
    free(t->files);
    free((char *)t->conf.name);
    free((char *)t->conf.process);
    free(t);
}
