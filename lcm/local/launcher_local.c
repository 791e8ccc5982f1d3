/* launcher_local.c - processes on this computer: `penstock supervise` in a run directory, in a session of its own, watched by pidfd.
 *
 * Whether one lives is told by its lock (held as long as it lives, seen before it has written anything) and by supervisor.json (pid and
 * start time). What a vanished supervisor left is found and ended by sweep.c, before anything else is started. */
#include "lcm/launcher.h"

#include "common/base/fs.h"
#include "common/base/handover.h"
#include "common/base/log.h"
#include "common/base/log_file.h"
#include "common/base/proc.h"
#include "common/base/program.h"
#include "lcm/local/inventory.h"
#include "lcm/local/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef struct watched {
    char *training_id, *process, *dir;
    int generation;
    pid_t started; /* our child, the keeper; 0 = started by an earlier LCM */
    pid_t pid;     /* the supervisor; 0 = not known yet */
    int pidfd;     /* of the supervisor, before it is known of what we started; -1 = by the lock */
} watched;

typedef struct local {
    char *state_dir, *site, *supervisor; /* the program */
    const char *const *settings;
    watched *at;
    size_t n;
} local;

static int local_open(const pst_launcher_conf *conf, void **ret_launcher, pst_err *err)
{
    char *jobs = pst_fs_join(conf->state_dir, "jobs"), *supervisor = NULL;
    int rc = pst_fs_mkdirs(jobs, 0700, err);
    free(jobs);
    if (!rc)
        rc = pst_program_find("penstock-supervise", &supervisor, err);
    if (rc < 0)
        return rc;
    local *l = pst_alloc(sizeof *l);
    l->state_dir = pst_strdup(conf->state_dir);
    l->site = pst_strdup(conf->site);
    l->supervisor = supervisor;
    l->settings = conf->environ;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what loses its supervisor and its keeper comes to us, where host_sweep_orphans finds it */
    *ret_launcher = l;
    return 0;
}

static void drop_watch(local *l, size_t i)
{
    watched *w = &l->at[i];
    if (w->pidfd >= 0)
        close(w->pidfd);
    free(w->training_id);
    free(w->process);
    free(w->dir);
    l->at[i] = l->at[--l->n];
}

static void local_close(void *launcher)
{
    local *l = launcher;
    while (l && l->n)
        drop_watch(l, l->n - 1);
    if (!l)
        return;
    free(l->at);
    free(l->state_dir);
    free(l->site);
    free(l->supervisor);
    free(l);
}

static void local_inventory(void *launcher, pst_inventory *ret)
{
    host_inventory_read(ret);
}

/* ---- looking ---------------------------------------------------------------------------------------------------------------- */

static bool supervisor_lives(const char *dir, pid_t *ret_pid)
{
    pst_rundir_owner o;
    *ret_pid = 0;
    bool known = pst_rundir_owner_read(dir, &o, NULL) == 0 && pst_rundir_owner_same_boot(&o) && pst_proc_alive(o.pid, o.start_time);
    if (known)
        *ret_pid = o.pid;
    return known || pst_rundir_locked(dir);
}

static void observe(const char *dir, pst_launcher_news *news)
{
    pid_t pid;
    bool lives = supervisor_lives(dir, &pid), over = pst_rundir_exit_read(dir, &news->exit, NULL) == 0;
    pst_rundir_owner o;
    news->wish = pst_rundir_wish_read(dir);
    news->told = over && pst_rundir_published(dir) && !pst_rundir_has_spool(dir);
    if (over)
        news->seen = lives ? PST_LCM_SEEN_FLUSHING : PST_LCM_SEEN_ENDED;
    else if (lives)
        news->seen = PST_LCM_SEEN_ALIVE;
    else
        news->seen = pst_rundir_owner_read(dir, &o, NULL) == PST_ENOTFOUND ? PST_LCM_SEEN_ABSENT : PST_LCM_SEEN_VANISHED;
}

static void watch(local *l, const char *training_id, int generation, const char *process, const char *dir, pid_t started, pid_t pid)
{
    pid_t first = pid ? pid : started;
    l->at = pst_realloc(l->at, (l->n + 1) * sizeof *l->at);
    l->at[l->n++] = (watched){.training_id = pst_strdup(training_id),
                              .process = pst_strdup(process),
                              .dir = pst_strdup(dir),
                              .generation = generation,
                              .started = started,
                              .pid = pid,
                              .pidfd = first > 0 ? pidfd_open(first, 0) : -1};
}

/* What we started is the keeper of a supervisor; once that has said who it is, its own end is what counts: a keeper may be held up. */
static void look_for_supervisor(watched *w)
{
    pid_t pid;
    if (w->pid || !supervisor_lives(w->dir, &pid) || !pid)
        return;
    int fd = pidfd_open(pid, 0);
    if (fd < 0)
        return;
    if (w->pidfd >= 0)
        close(w->pidfd);
    w->pid = pid;
    w->pidfd = fd;
}

static bool is_over(const watched *w)
{
    pid_t pid;
    struct pollfd p = {.fd = w->pidfd, .events = POLLIN};
    return w->pidfd >= 0 ? poll(&p, 1, 0) > 0 : !supervisor_lives(w->dir, &pid);
}

static void local_poll(void *launcher, pst_launcher_fn fn, void *arg)
{
    local *l = launcher;
    while (waitpid(-1, NULL, WNOHANG) > 0) /* keepers that we started, and what came to us from dead ones */
        ;
    for (size_t i = 0; i < l->n;) {
        watched *w = &l->at[i];
        look_for_supervisor(w);
        if (!is_over(w)) {
            i++;
            continue;
        }
        host_sweep_keeper(w->dir);
        pst_launcher_news news = {.training_id = w->training_id, .generation = w->generation, .process = w->process};
        observe(w->dir, &news);
        watched over = *w;
        l->at[i] = l->at[--l->n];
        fn(arg, &news); /* may start another one and so move the list */
        if (over.pidfd >= 0)
            close(over.pidfd);
        free(over.training_id);
        free(over.process);
        free(over.dir);
    }
}

/* ---- finding after a restart -------------------------------------------------------------------------------------------------- */

static uint64_t mask_of(const char *ids)
{
    uint64_t mask = 0;
    for (const char *p = ids; p && *p;) {
        char *end;
        unsigned long id = strtoul(p, &end, 10);
        if (end == p)
            break;
        if (id < PST_LCM_GPUS_MAX)
            mask |= 1ull << id;
        p = *end == ',' ? end + 1 : end;
    }
    return mask;
}

static void found_process(local *l, const pst_rundir_spec *intent, const char *process, pst_launcher_fn fn, void *arg)
{
    char *dir = pst_rundir_dir(l->state_dir, intent->training_id, intent->generation, process);
    pst_launcher_news news = {.training_id = intent->training_id, .generation = intent->generation, .process = process};
    pst_rundir_spec spec;
    pid_t pid;
    observe(dir, &news);
    if (pst_rundir_spec_read(dir, &spec, NULL) == 0) {
        news.gpu_mask = mask_of(spec.gpu_ids);
        pst_rundir_spec_done(&spec);
    }
    if ((news.seen == PST_LCM_SEEN_ALIVE || news.seen == PST_LCM_SEEN_FLUSHING) && supervisor_lives(dir, &pid))
        watch(l, intent->training_id, intent->generation, process, dir, 0, pid);
    fn(arg, &news);
    free(dir);
}

static void found_gang(local *l, const char *gen_dir, const char *training_id, int generation, pst_launcher_fn fn, void *arg)
{
    pst_rundir_spec intent;
    pst_err err = {0};
    int rc = pst_rundir_intent_read(gen_dir, &intent, &err);
    if (rc == PST_ENOTFOUND)
        return;
    if (rc < 0) {
        pst_log_err("lcm", &err);
        return;
    }
    if (!strcmp(intent.training_id, training_id) && intent.generation == generation && (!intent.site || !strcmp(intent.site, l->site))) {
        char nonce[PST_RUNDIR_NONCE_MAX];
        pst_rundir_nonce_read(l->state_dir, training_id, generation, nonce);
        fn(arg, &(pst_launcher_news){.training_id = training_id, .generation = generation, .spec = &intent, .nonce = nonce});
        for (int i = 1; i <= intent.learners + intent.parameter_servers && i <= 2 * PST_LCM_LEARNERS_MAX; i++) {
            char name[32];
            snprintf(name, sizeof name, i <= intent.learners ? "learner-%d" : "ps-%d", i <= intent.learners ? i : i - intent.learners);
            found_process(l, &intent, name, fn, arg);
        }
    }
    pst_rundir_spec_done(&intent);
}

static void found_job(local *l, const char *training_id, pst_launcher_fn fn, void *arg)
{
    char *job_dir = pst_rundir_job_dir(l->state_dir, training_id);
    DIR *d = opendir(job_dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char *end;
        long generation = strncmp(e->d_name, "gen-", 4) ? 0 : strtol(e->d_name + 4, &end, 10);
        if (generation < 1 || generation > INT32_MAX || *end)
            continue;
        char *gen_dir = pst_fs_join(job_dir, e->d_name);
        found_gang(l, gen_dir, training_id, (int)generation, fn, arg);
        free(gen_dir);
    }
    if (d)
        closedir(d);
    free(job_dir);
}

static int local_scan(void *launcher, pst_launcher_fn fn, void *arg, pst_err *err)
{
    local *l = launcher;
    char *jobs = pst_fs_join(l->state_dir, "jobs");
    DIR *d = opendir(jobs);
    int rc = d ? 0 : pst_err_sys(err, errno, "cannot read %s", jobs);
    for (struct dirent *e; d && (e = readdir(d));)
        if (pst_rundir_name_ok(e->d_name))
            found_job(l, e->d_name, fn, arg);
    if (d)
        closedir(d);
    free(jobs);
    return rc;
}

/* ---- acting ------------------------------------------------------------------------------------------------------------------ */

static int local_intend(void *launcher, const pst_rundir_spec *spec, const char *nonce, pst_err *err)
{
    local *l = launcher;
    char *dir = pst_rundir_gen_dir(l->state_dir, spec->training_id, spec->generation);
    int rc = *nonce ? pst_rundir_nonce_write(l->state_dir, spec->training_id, spec->generation, nonce, err) : 0;
    if (!rc)
        rc = pst_fs_mkdirs(dir, 0700, err);
    if (!rc)
        rc = pst_rundir_intent_write(dir, spec, err);
    free(dir);
    return rc;
}

static int write_spec(local *l, const char *dir, const char *training_id, int generation, const char *process, uint64_t gpu_mask,
                      pst_err *err)
{
    char *gen_dir = pst_rundir_gen_dir(l->state_dir, training_id, generation);
    pst_rundir_spec spec;
    pst_buf gpus = {0};
    int rc = pst_rundir_intent_read(gen_dir, &spec, err);
    free(gen_dir);
    if (rc < 0)
        return rc;
    for (int i = 0; i < PST_LCM_GPUS_MAX; i++)
        if (gpu_mask >> i & 1)
            pst_buf_printf(&gpus, "%s%d", gpus.len ? "," : "", i);
    free(spec.process);
    free(spec.gpu_ids);
    spec.process = pst_strdup(process);
    spec.gpu_ids = pst_buf_steal(&gpus);
    spec.gpus = __builtin_popcountll(gpu_mask);
    spec.learner_id = !strncmp(process, "learner-", 8) ? atoi(process + 8) : 0;
    rc = pst_rundir_spec_write(dir, &spec, err);
    pst_rundir_spec_done(&spec);
    return rc;
}

/* What a supervisor is started with: the settings as they were resolved here go by a descriptor, credentials among them; what stays to be
 * read by everybody is what a program needs before it can read anything. */
static const char **child_environ(const char *log_file)
{
    static const char *const names[] = {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PENSTOCK_STATE_DIR"};
    size_t n = 0, at = 0;
    while (environ[n])
        n++;
    const char **env = pst_alloc((n + 3) * sizeof *env);
    for (size_t i = 0; i < n; i++) {
        bool wanted = !strncmp(environ[i], "LC_", 3);
        for (size_t k = 0; k < sizeof names / sizeof *names && !wanted; k++) {
            size_t len = strlen(names[k]);
            wanted = !strncmp(environ[i], names[k], len) && environ[i][len] == '=';
        }
        if (wanted)
            env[at++] = environ[i];
    }
    env[at++] = PST_HANDOVER_MARK;
    env[at++] = log_file;
    return env;
}

static int spawn(local *l, const char *dir, pid_t *ret_pid, pst_err *err)
{
    char *self = pst_proc_self(), *log = pst_fs_join(dir, "supervisor.log"); /* shown as `penstock supervise`, whatever the file */
    char *log_file = pst_log_file_variable(log, PST_LOG_FILE_BYTES);
    const char **env = child_environ(log_file), *argv[] = {self, "supervise", "--run-dir", dir, NULL};
    int in = -1, fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int rc = fd < 0 ? pst_err_sys(err, errno, "cannot write %s", log) : pst_handover_new(l->settings, &in, err);
    if (!rc)
        rc = pst_proc_spawn(&(pst_spawn){.argv = argv,
                                         .file = l->supervisor,
                                         .env = env,
                                         .dir = "/",
                                         .stdin_fd = in,
                                         .stdout_fd = fd,
                                         .stderr_fd = fd,
                                         .new_session = true},
                            ret_pid, err);
    if (in >= 0)
        close(in);
    if (fd >= 0)
        close(fd);
    free(env);
    free(log_file);
    free(log);
    free(self);
    return rc;
}

static int local_start(void *launcher, const char *training_id, int generation, const char *process, uint64_t gpu_mask, pst_err *err)
{
    local *l = launcher;
    char *dir = pst_rundir_dir(l->state_dir, training_id, generation, process), *spec = pst_fs_join(dir, "spec.json");
    pid_t pid;
    int rc = pst_fs_mkdirs(dir, 0700, err);
    if (!rc && !pst_fs_exists(spec))
        rc = write_spec(l, dir, training_id, generation, process, gpu_mask, err);
    if (!rc && supervisor_lives(dir, &pid)) /* adopted: it runs already */
        watch(l, training_id, generation, process, dir, 0, pid);
    else if (!rc && (rc = spawn(l, dir, &pid, err)) == 0)
        watch(l, training_id, generation, process, dir, pid, 0);
    free(spec);
    free(dir);
    return rc;
}

static int local_wish(void *launcher, const char *training_id, int generation, const char *process, pst_rundir_wish wish, bool *ret_first,
                      pst_err *err)
{
    local *l = launcher;
    char *dir = pst_rundir_dir(l->state_dir, training_id, generation, process);
    bool first = pst_rundir_wish_read(dir) == PST_WISH_NONE;
    int rc = pst_fs_mkdirs(dir, 0700, err);
    if (!rc)
        rc = pst_rundir_wish_write(dir, wish, err);
    if (!rc)
        *ret_first = first;
    free(dir);
    return rc;
}

/* A supervisor that is not ready for signals yet finds the wish on disk by itself. */
static void local_signal(void *launcher, const char *training_id, int generation, const char *process)
{
    local *l = launcher;
    char *dir = pst_rundir_dir(l->state_dir, training_id, generation, process);
    pst_rundir_owner o;
    if (pst_rundir_owner_read(dir, &o, NULL) == 0 && pst_rundir_owner_same_boot(&o) && pst_proc_alive(o.pid, o.start_time))
        kill(o.pid, SIGTERM);
    free(dir);
}

static bool is_watched(void *arg, pid_t pid)
{
    local *l = arg;
    for (size_t i = 0; i < l->n; i++)
        if (l->at[i].started == pid || l->at[i].pid == pid)
            return true;
    return false;
}

static int local_end(void *launcher, const char *training_id, int generation, const char *process, bool force)
{
    local *l = launcher;
    char *dir = pst_rundir_dir(l->state_dir, training_id, generation, process);
    char *mark = pst_rundir_mark(l->state_dir, training_id, generation, process);
    pst_rundir_exit x;
    pid_t pid;
    int rc;
    if (!force && supervisor_lives(dir, &pid) && pst_rundir_exit_read(dir, &x, NULL) == 0)
        rc = PST_ESTATE;
    else
        rc = host_sweep(dir, mark) + host_sweep_orphans(is_watched, l) ? PST_EAGAIN : 0;
    for (size_t i = 0; i < l->n; i++) /* one that never wrote who it is */
        if (rc == PST_EAGAIN && l->at[i].started > 0 && l->at[i].generation == generation && !strcmp(l->at[i].dir, dir))
            kill(l->at[i].started, SIGKILL);
    free(mark);
    free(dir);
    return rc;
}

static int local_mark_ended(void *launcher, const char *training_id, int generation, const char *process, const pst_rundir_exit *x,
                            pst_err *err)
{
    local *l = launcher;
    char *dir = pst_rundir_dir(l->state_dir, training_id, generation, process);
    int rc = pst_fs_mkdirs(dir, 0700, err);
    if (!rc)
        rc = pst_rundir_exit_write(dir, x, err);
    if (!rc)
        rc = pst_rundir_published_mark(dir, err);
    free(dir);
    return rc;
}

static bool local_told(void *launcher, const char *training_id, int generation, const char *process)
{
    local *l = launcher;
    char *dir = pst_rundir_dir(l->state_dir, training_id, generation, process);
    bool yes = !pst_rundir_has_spool(dir);
    free(dir);
    return yes;
}

static int local_remove(void *launcher, const char *training_id, pst_err *err)
{
    local *l = launcher;
    char *dir = pst_rundir_job_dir(l->state_dir, training_id);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, "gen-", 4))
            pst_rundir_nonce_remove(l->state_dir, training_id, atoi(e->d_name + 4));
    if (d)
        closedir(d);
    int rc = pst_fs_remove_tree(dir, err);
    free(dir);
    return rc;
}

const pst_launcher_ops pst_launcher_local = {.name = "local",
                                             .open = local_open,
                                             .close = local_close,
                                             .inventory = local_inventory,
                                             .scan = local_scan,
                                             .intend = local_intend,
                                             .start = local_start,
                                             .wish = local_wish,
                                             .signal = local_signal,
                                             .end = local_end,
                                             .mark_ended = local_mark_ended,
                                             .told = local_told,
                                             .remove = local_remove,
                                             .poll = local_poll};
