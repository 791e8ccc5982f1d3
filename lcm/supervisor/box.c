/* box.c - what a learner is kept in: its limits and its isolation. Limits are the kernel's where it keeps them for us (control groups); else the supervisor looks twice a second, which a
 * fast process can outrun but nothing can for long. Storage is always looked at: a quota is the file system's, not ours to set. */
#include "lcm/supervisor/box.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/proc.h"
#include "common/base/proc_tree.h"
#include "common/base/program.h"
#include "lcm/supervisor/mpi.h"
#include "schemas/job_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEPTH_MAX    40
#define REFUSALS_MAX 3  /* looks that found refused processes */
#define REFUSED_MANY 20 /* in one look */
#define WATCHED_MORE 64 /* processes: so that the limit can be seen to be passed */

static int refuse(pst_err *err, pst_isolation wanted, const char *why)
{
    return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "isolation", 0,
                       "penstock.isolation: %s is asked for, and this host does not give it: %s; `penstock doctor` tells what it gives",
                       pst_isolation_name(wanted), why);
}

static int choose_level(const sup_run *r, unsigned can, pst_isolation *ret, pst_err *err)
{
    pst_isolation wanted = r->manifest.isolation, floor = r->spec.floor;
    if (floor == PST_ISOLATION_SANDBOX && r->manifest.native)
        floor = PST_ISOLATION_USER; /* whose program it is, the operator's word is not about */
    if (wanted != PST_ISOLATION_DEFAULT && wanted < floor)
        return pst_err_set(
            err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "isolation", 0,
            "penstock.isolation (line %d of the manifest): %s is weaker than the operator of this node allows, which is %s; leave "
            "it out or ask for that",
            r->manifest.isolation_line, pst_isolation_name(wanted), pst_isolation_name(floor));
    if (wanted == PST_ISOLATION_DEFAULT && floor > PST_ISOLATION_USER)
        wanted = floor;
    *ret = wanted == PST_ISOLATION_DEFAULT ? PST_ISOLATION_USER : wanted;
    if (wanted == PST_ISOLATION_SANDBOX && r->manifest.native)
        return refuse(err, wanted, "a native job runs the platform's own program, with the platform's credentials");
    if (wanted == PST_ISOLATION_SANDBOX && !(can & PST_CAN_SANDBOX))
        return refuse(err, wanted, "namespaces of mounts, processes and users are refused");
    if (wanted == PST_ISOLATION_USER && !(can & PST_CAN_NO_NEW_PRIVS))
        return refuse(err, wanted, "no_new_privs is refused");
    if (!(can & PST_CAN_NO_NEW_PRIVS) && floor > PST_ISOLATION_NONE)
        return refuse(err, floor, "no_new_privs is refused, and its operator asks for more than nothing");
    if (!(can & PST_CAN_NO_NEW_PRIVS))
        *ret = PST_ISOLATION_NONE;
    return 0;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && strcmp(path, "/") != 0;
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The first folder on the way to path that another user may not pass: covering it opens the way to what is put back below. Else path. */
static char *first_closed(const char *path)
{
    char *part = pst_strdup(path);
    for (char *p = part + 1; (p = strchr(p, '/')); p++) {
        struct stat st;
        *p = 0;
        if (lstat(part, &st) == 0 && !(st.st_mode & S_IXOTH))
            return part;
        *p = '/';
    }
    return part;
}

/* A sandbox's user owns the job's folders; no link is followed, and nothing but what is there is touched. */
static void give_to(int at, const char *name, uid_t user, int depth)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return;
    }
    if (fchown(fd, user, (gid_t)user) < 0)
        pst_log(PST_LOG_WARN, "supervisor", "event=chown_refused folder=%s error=\"%s\"", name, strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX)
            give_to(fd, e->d_name, user, depth + 1);
        else if (!S_ISDIR(st.st_mode) && st.st_nlink == 1 && st.st_uid != user &&
                 fchownat(fd, e->d_name, user, (gid_t)user, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT)
            pst_log(PST_LOG_WARN, "supervisor", "event=chown_refused file=%s error=\"%s\"", e->d_name, strerror(errno));
    }
    closedir(d);
}

/* One user a job, the same in every generation: what an earlier one wrote stays its own. */
static uid_t user_of(const char *training_id)
{
    uint8_t digest[32];
    uint32_t n;
    pst_sha256_sum(training_id, strlen(training_id), digest);
    memcpy(&n, digest, sizeof n);
    return PST_CONFINE_USERS + n % 100000;
}

static void mask_path(pst_confine_spec *w, const char *path)
{
    if (path && *path == '/' && w->n_mask < PST_CONFINE_MASKED)
        w->mask[w->n_mask++] = path;
}

/* Doors to what runs with more rights than a job: they let in by user id, which is ours. */
static void mask_services(pst_confine_spec *w)
{
    static const char *const doors[] = {"/run/user",
                                        "/run/systemd/private",
                                        "/run/dbus/system_bus_socket",
                                        "/run/docker.sock",
                                        "/run/containerd",
                                        "/run/crio",
                                        "/run/podman",
                                        "/run/libvirt",
                                        "/run/snapd.socket",
                                        "/var/lib/lxd/unix.socket",
                                        "/var/lib/incus/unix.socket",
                                        "/var/snap/lxd/common/lxd/unix.socket"};
    for (size_t i = 0; i < sizeof doors / sizeof *doors; i++)
        mask_path(w, doors[i]);
}

/* What of the platform's own may stand outside its state folder. */
static void mask_platform(const sup_run *r, pst_confine_spec *w, char *store[3])
{
    const pst_settings *s = r->settings;
    if (!s)
        return;
    const char *objects = s->objects.value, *db = s->store.value;
    const char *folder = "";
    if (objects && !strncmp(objects, "file:", 5))
        folder = objects + (strncmp(objects, "file:///", 8) ? 5 : 7);
    if (is_folder(folder) && *folder == '/')
        w->hide[w->n_hide++] = folder;
    static const char *const parts[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3 && db && !strncmp(db, "sqlite:", 7); i++)
        mask_path(w, store[i] = pst_sprintf("%s%s", db + 7, parts[i]));
    for (size_t i = 0; i < s->n_kafka; i++) /* keys, certificates, keytabs */
        if (*s->kafka[i].value == '/' && is_file(s->kafka[i].value))
            mask_path(w, s->kafka[i].value);
}

/* As root's, a command could write what everybody runs, and be more than a job at the next start of anything: it writes its own folders, the
 * temporary ones, and nothing else. As another user's it writes what that user may. */
static void fix_system(pst_confine_spec *w, const char *self, const char *main_program)
{
    const char *open[] = {"/tmp", "/var/tmp", "/dev", "/proc", getenv("TMPDIR")};
    for (size_t i = 0; i < sizeof open / sizeof *open && geteuid() == 0; i++)
        if (open[i] && *open[i] == '/' && is_folder(open[i]))
            w->open[w->n_open++] = open[i];
    w->fix[w->n_fix++] = self;
    if (main_program)
        w->fix[w->n_fix++] = main_program;
}

/* A custom learner sees of the platform's folders its own. The built-in one is the platform's own program and reads the run dir. */
static void plan(const sup_run *r, unsigned can, sup_box *b)
{
    pst_confine_spec w = {.file_bytes_max = b->storage_bytes,
                          .processes_max = b->watch_processes ? pst_proc_count(geteuid()) + PST_BOX_PROCESSES_MAX + WATCHED_MORE : 0};
    const char *keep[] = {r->code_dir, r->data_dir, r->job_state_dir, r->log_dir, r->checkpoint_dir, r->result_dir, r->result_bucket_dir};
    /* The bucket of a job without a store of its own is the job's whole folder, with what other processes of it are given. */
    size_t n = strcmp(r->result_bucket_dir, r->checkpoint_dir) != 0 &&
                       strncmp(r->checkpoint_dir, r->result_bucket_dir, strlen(r->result_bucket_dir)) != 0
                   ? 7
                   : 6;
    for (size_t i = 0; i < n; i++)
        w.keep[w.n_keep++] = keep[i];
    w.keep[w.n_keep++] = r->gang.dir;
    w.hosts = r->gang.hosts;
    char *closed = NULL, *store[3] = {NULL}, *self = pst_proc_self(), *main_program = NULL;
    pst_program_find("penstock", &main_program, NULL);
    w.job = r->job_state_dir; /* which scripts of FfDL call so */
    mask_services(&w);
    mask_path(&w, "/run/nscd"); /* it would answer by the host's own list of names */
    mask_platform(r, &w, store);
    fix_system(&w, self, main_program);
    if (b->level == PST_ISOLATION_SANDBOX) {
        const char *home = getenv("HOME");
        closed = first_closed(r->spec.state_dir);
        const char *hide[] = {"/tmp", "/var/tmp", "/dev/shm", closed, home && is_folder(home) ? home : closed};
        for (size_t i = 0; i < sizeof hide / sizeof *hide; i++)
            if (is_folder(hide[i]))
                w.hide[w.n_hide++] = hide[i];
        w.user = geteuid() == 0 ? b->user : 0;
        w.grace_ms = r->spec.grace_ms;
    } else {
        can &= ~(unsigned)(r->manifest.native ? PST_CAN_MOUNTS | PST_CAN_SANDBOX : PST_CAN_SANDBOX);
        w.hide[w.n_hide++] = r->spec.state_dir;
    }
    pst_confine_plan(can, &w, &b->confine);
    for (int i = 0; i < 3; i++)
        free(store[i]);
    free(main_program);
    free(self);
    free(closed);
}

/* Nothing is taken from it, but the other learners' names are seen: mounts of its own do that without any other difference, as root. Anybody else
 * would need a user namespace, in which sudo and the like end. */
static void plan_names(const sup_run *r, sup_box *b)
{
    unsigned can = geteuid() == 0 && !r->manifest.native ? pst_confine_probe() : 0;
    if (can & PST_CAN_HOSTS)
        pst_confine_plan(PST_CAN_MOUNTS | PST_CAN_HOSTS, &(pst_confine_spec){.hosts = r->gang.hosts}, &b->confine);
}

int sup_box_open(const sup_run *r, sup_box *ret_box, pst_err *err)
{
    sup_box b = {.level = PST_ISOLATION_NONE};
    unsigned can = r->manifest.isolation == PST_ISOLATION_NONE ? 0 : pst_confine_probe();
    int rc = choose_level(r, can, &b.level, err);
    if (rc < 0)
        return rc;
    if (b.level == PST_ISOLATION_NONE)
        plan_names(r, &b);
    pst_rundir_cgroup_make(r->dir, &b.group);
    if (b.level != PST_ISOLATION_NONE) {
        double cpus;
        sup_mpi_sizes(r, &cpus, &b.memory_bytes);
        b.storage_bytes = r->manifest.storage_bytes;
        pst_cgroup_limit(&b.group, &(pst_cgroup_limits){.memory_bytes = b.memory_bytes, .processes = PST_BOX_PROCESSES_MAX, .cpus = cpus});
        b.watch_memory = !(b.group.enforced & PST_CGROUP_MEMORY);
        b.watch_processes = !(b.group.enforced & PST_CGROUP_PROCESSES);
        const char *dirs[] = {r->code_dir, r->job_state_dir, r->checkpoint_dir, r->result_dir};
        memcpy(b.storage_dirs, dirs, sizeof dirs);
        b.user = user_of(r->spec.training_id);
        for (size_t i = 0; i < sizeof dirs / sizeof *dirs && b.level == PST_ISOLATION_SANDBOX && geteuid() == 0; i++)
            give_to(AT_FDCWD, dirs[i], b.user, 0);
        plan(r, can, &b);
    }
    *ret_box = b;
    return 0;
}

int sup_box_enter(void *box)
{
    sup_box *b = box;
    int e = pst_cgroup_join(&b->group);
    return e || !b->confine.can ? e : pst_confine_enter(&b->confine);
}

/* Bytes on disk below a folder, no link followed, until more than most are found. */
static int64_t usage(int at, const char *name, int64_t most, int depth)
{
    struct stat st;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int64_t sum = 0;
    if (!d && fd >= 0)
        close(fd);
    for (struct dirent *e; d && sum <= most && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        sum += (int64_t)st.st_blocks * 512;
        if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX)
            sum += usage(dirfd(d), e->d_name, most - sum, depth + 1);
    }
    if (d)
        closedir(d);
    return sum;
}

static void say_storage(sup_box *b)
{
    snprintf(b->hit, sizeof b->hit, "its files take more than the %.1f MiB of the manifest's storage",
             (double)b->storage_bytes / (1 << 20));
}

static bool storage_over(sup_box *b)
{
    int64_t sum = 0;
    for (size_t i = 0; i < sizeof b->storage_dirs / sizeof *b->storage_dirs && b->storage_dirs[i]; i++)
        sum += usage(AT_FDCWD, b->storage_dirs[i], b->storage_bytes, 0);
    if (sum > b->storage_bytes)
        say_storage(b);
    return *b->hit;
}

static void say_memory(sup_box *b)
{
    snprintf(b->hit, sizeof b->hit, "out of memory: it wanted more than the memory limit of %.1f MiB that the manifest sets",
             (double)b->memory_bytes / (1 << 20));
}

static void say_processes(sup_box *b)
{
    snprintf(b->hit, sizeof b->hit, "it reached the limit of %d processes and threads", PST_BOX_PROCESSES_MAX);
}

/* A program that met the limit once may cope; one that runs into it again and again is a bomb, and keeps the computer busy with nothing else. */
static bool processes_over(sup_box *b, const pst_tree *t)
{
    if (b->watch_processes)
        return t->processes > PST_BOX_PROCESSES_MAX;
    int64_t refused = pst_cgroup_refused(&b->group), more = refused - b->refused;
    b->refused = refused;
    b->refusals += more > 0;
    return b->refusals >= REFUSALS_MAX || more >= REFUSED_MANY;
}

bool sup_box_over(sup_box *b, int64_t now_us)
{
    if (b->level == PST_ISOLATION_NONE || *b->hit || now_us < b->next_look_us)
        return false;
    b->next_look_us = now_us + 500000;
    pst_tree t = {0};
    if (b->watch_memory || b->watch_processes)
        pst_tree_walk(getpid(), 0, &t);
    if (b->watch_memory && b->memory_bytes > 0 && t.own_bytes > b->memory_bytes)
        say_memory(b);
    else if (processes_over(b, &t))
        say_processes(b);
    else if (b->storage_bytes > 0 && now_us >= b->next_storage_us) {
        int64_t begin = pst_mono_us();
        storage_over(b);
        b->next_storage_us = now_us + 2000000 + 20 * (pst_mono_us() - begin); /* many files: looked at less often */
    }
    return *b->hit != 0;
}

void sup_box_kill(sup_box *b)
{
    pst_cgroup_kill(&b->group);
}

void sup_box_judge(sup_box *b, int status)
{
    unsigned hits = pst_cgroup_hits(&b->group);
    int code =
        WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); /* a shell passes on the end of what it ran in this form */
    if (*b->hit || !code || b->level == PST_ISOLATION_NONE)
        return;
    if (hits & PST_CGROUP_MEMORY)
        say_memory(b);
    else if (hits & PST_CGROUP_PROCESSES)
        say_processes(b);
    else if (b->storage_bytes > 0 && code == 128 + SIGXFSZ)
        say_storage(b);
}

void sup_box_close(sup_box *b)
{
    pst_cgroup_close(&b->group);
    pst_cgroup_remove(&b->group);
    pst_confine_done(&b->confine);
}
