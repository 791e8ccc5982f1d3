/* retention.c - looks at the folders themselves, not at a list: what an earlier LCM, or a crash, left there is found as well. How old one is the
 * newest time stamp in it says, since no file is written for that. */
#include "lcm/retention.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/objects/rundir.h"
#include "lcm/rundirs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JOBS_A_STEP = 100, DEPTH_MAX = 64 };

typedef struct ended {
    char *training_id;
    int generation;
    int64_t since_us, bytes;
} ended;

struct lcm_retention {
    lcm_retention_conf conf;
    char *jobs;
    DIR *at;         /* of the pass that is under way */
    int64_t next_us; /* monotonic, of the next pass */
    ended *kept;     /* found in this pass */
    size_t n, cap;
    int64_t bytes;
    int64_t swept; /* in this pass */
};

lcm_retention *lcm_retention_new(const lcm_retention_conf *conf)
{
    lcm_retention *r = pst_alloc(sizeof *r);
    r->conf = *conf;
    r->jobs = pst_fs_join(conf->state_dir, "jobs");
    return r;
}

static void forget_kept(lcm_retention *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->kept[i].training_id);
    r->n = 0;
    r->bytes = 0;
}

void lcm_retention_free(lcm_retention *r)
{
    if (!r)
        return;
    if (r->at)
        closedir(r->at);
    forget_kept(r);
    free(r->kept);
    free(r->jobs);
    free(r);
}

/* Disk space of a tree. What learners made may be anything: no link is followed, depth is bounded. */
static int64_t bytes_below(int dirfd, const char *name, int depth)
{
    int fd = depth < DEPTH_MAX ? openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    int64_t sum = 0;
    struct stat st;
    if (!d && fd >= 0)
        close(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        sum += (int64_t)st.st_blocks * 512;
        if (S_ISDIR(st.st_mode))
            sum += bytes_below(fd, e->d_name, depth + 1);
    }
    if (d)
        closedir(d);
    return sum;
}

static int64_t changed_us(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000 + st->st_mtim.tv_nsec / 1000;
}

/* When anything of it last changed: its own folder, or a process's (whose last file says that all was published). */
static int64_t since(const char *gen_dir)
{
    struct stat st;
    DIR *d = opendir(gen_dir);
    int64_t last = stat(gen_dir, &st) == 0 ? changed_us(&st) : INT64_MAX;
    for (struct dirent *e; d && (e = readdir(d));)
        if (*e->d_name != '.' && fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && changed_us(&st) > last)
            last = changed_us(&st);
    if (d)
        closedir(d);
    return last;
}

static void sweep(lcm_retention *r, const char *training_id, int generation)
{
    pst_err err = {0};
    char *dir = pst_rundir_gen_dir(r->conf.state_dir, training_id, generation), *job = pst_rundir_job_dir(r->conf.state_dir, training_id);
    if (pst_fs_remove_tree(dir, &err) < 0) {
        const char *before = pst_log_job(training_id);
        pst_log_err("lcm", &err);
        pst_log_job(before);
    } else {
        char *results = pst_fs_join(job, "results"), *checkpoints = pst_fs_join(job, "checkpoints");
        pst_rundir_nonce_remove(r->conf.state_dir, training_id, generation);
        rmdir(results); /* these go when they are empty, and only then */
        rmdir(checkpoints);
        rmdir(job);
        free(checkpoints);
        free(results);
        r->conf.swept(r->conf.arg, training_id, generation);
        r->swept++;
    }
    free(job);
    free(dir);
}

static void keep(lcm_retention *r, const char *training_id, int generation, int64_t since_us, int64_t bytes)
{
    r->kept = pst_array_room(r->kept, r->n, &r->cap, sizeof *r->kept);
    r->kept[r->n++] = (ended){pst_strdup(training_id), generation, since_us, bytes};
    r->bytes += bytes;
}

/* The LCM of another site may use the same state folder. */
static bool is_ours(const lcm_retention *r, const char *gen_dir)
{
    pst_rundir_spec intent;
    if (pst_rundir_intent_read(gen_dir, &intent, NULL) < 0)
        return false;
    bool ours = !intent.site || !strcmp(intent.site, r->conf.site);
    pst_rundir_spec_done(&intent);
    return ours;
}

static void look_at_job(lcm_retention *r, const char *training_id, int64_t wall_us)
{
    char *job = pst_fs_join(r->jobs, training_id);
    DIR *d = opendir(job);
    for (struct dirent *e; d && (e = readdir(d));) {
        int generation = lcm_rundirs_generation(e->d_name);
        if (!generation || r->conf.needed(r->conf.arg, training_id, generation))
            continue;
        char *gen_dir = pst_fs_join(job, e->d_name);
        int64_t since_us = since(gen_dir);
        bool old = r->conf.keep_us && since_us < wall_us - r->conf.keep_us;
        bool ours = (old || r->conf.bytes_max) && is_ours(r, gen_dir);
        int64_t bytes = ours && !old ? bytes_below(AT_FDCWD, gen_dir, 0) : 0;
        if (ours && old)
            sweep(r, training_id, generation);
        else if (ours)
            keep(r, training_id, generation, since_us, bytes);
        free(gen_dir);
    }
    if (d)
        closedir(d);
    free(job);
}

static int oldest_first(const void *a, const void *b)
{
    const ended *x = a, *y = b;
    return x->since_us < y->since_us ? -1 : x->since_us > y->since_us;
}

static void end_pass(lcm_retention *r)
{
    closedir(r->at);
    r->at = NULL;
    if (r->bytes > r->conf.bytes_max && r->n)
        qsort(r->kept, r->n, sizeof *r->kept, oldest_first);
    for (size_t i = 0; i < r->n && r->bytes > r->conf.bytes_max; i++) {
        r->bytes -= r->kept[i].bytes;
        if (!r->conf.needed(r->conf.arg, r->kept[i].training_id, r->kept[i].generation)) /* looked at a while ago */
            sweep(r, r->kept[i].training_id, r->kept[i].generation);
    }
    if (r->swept)
        pst_log(PST_LOG_INFO, "lcm", "event=swept generations=%lld", (long long)r->swept);
    forget_kept(r);
    r->swept = 0;
}

void lcm_retention_step(lcm_retention *r, int64_t mono_us, int64_t wall_us)
{
    if (!r->conf.keep_us && !r->conf.bytes_max)
        return;
    if (!r->at) {
        if (mono_us < r->next_us)
            return;
        r->next_us = mono_us + r->conf.every_us;
        if (!(r->at = opendir(r->jobs)))
            return;
    }
    for (int i = 0; i < JOBS_A_STEP; i++) {
        struct dirent *e = readdir(r->at);
        if (!e) {
            end_pass(r);
            return;
        }
        if (pst_rundir_name_ok(e->d_name))
            look_at_job(r, e->d_name, wall_us);
    }
}
