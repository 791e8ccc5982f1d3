/* launcher_local.c - processes on this computer: `penstock supervise` in a run directory, in a session of its own, watched by pidfd.
 *
 * Whether one lives is seen by its lock (held as long as it lives, seen before it has written anything) and by supervisor.json (pid and
 * start time). What a vanished supervisor left is found and ended by sweep.c, before anything else is started. Here an answer is known as soon
 * as it is asked for; it waits in a queue for the next poll() all the same, as one from afar would. */
#include "lcm/launcher.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/fs.h"
#include "common/base/handover.h"
#include "common/base/log_file.h"
#include "common/base/proc.h"
#include "common/base/program.h"
#include "lcm/local/inventory.h"
#include "lcm/local/sweep.h"

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
    pst_process_id id;
    char *dir;
    pid_t started; /* our child, the keeper; 0 = started by an earlier LCM */
    pid_t pid;     /* the supervisor; 0 = not known yet */
    int pidfd;     /* of the supervisor, before it is known of what we started; -1 = by the lock */
} watched;

typedef struct local {
    char *state_dir, *supervisor; /* the program */
    const char *const *settings;
    pst_inventory inventory;
    watched *at;
    size_t n, cap;
    pst_launcher_news *news; /* answers that wait for a poll */
    size_t n_news, cap_news;
} local;

static int local_open(const pst_launcher_conf *conf, void **ret_launcher, pst_err *err)
{
    char *supervisor = NULL;
    int rc = pst_program_find("penstock-supervise", &supervisor, err);
    if (rc < 0)
        return rc;
    local *l = pst_alloc(sizeof *l);
    l->state_dir = pst_strdup(conf->state_dir);
    l->supervisor = supervisor;
    l->settings = conf->environ;
    host_inventory_read(&l->inventory);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what loses its supervisor and its keeper comes to us, where host_sweep_orphans finds it */
    *ret_launcher = l;
    return 0;
}

static void watched_done(watched *w)
{
    if (w->pidfd >= 0)
        close(w->pidfd);
    free(w->dir);
}

static void local_close(void *launcher)
{
    local *l = launcher;
    if (!l)
        return;
    for (size_t i = 0; i < l->n; i++)
        watched_done(&l->at[i]);
    free(l->at);
    free(l->news);
    free(l->inventory.devices);
    free(l->state_dir);
    free(l->supervisor);
    free(l);
}

static const pst_inventory *local_inventory(void *launcher)
{
    local *l = launcher;
    return &l->inventory;
}

/* To be filled in; valid until the next one. */
static pst_launcher_news *add_news(local *l, pst_launcher_news_type type, const pst_process_id *id)
{
    l->news = pst_array_room(l->news, l->n_news, &l->cap_news, sizeof *l->news);
    pst_launcher_news *news = &l->news[l->n_news++];
    *news = (pst_launcher_news){.type = type, .process = *id};
    return news;
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

/* Its learner is gone, and what is left can be taken up again: how it ended is on record, or its model is being registered. */
static bool is_past_work(const char *dir, pst_rundir_exit *ret_exit)
{
    return pst_rundir_exit_read(dir, ret_exit, NULL) == 0 || pst_rundir_registering(dir);
}

/* Whether it lives is asked before how it ended: the other way round, one that ends in between would be taken for vanished. */
static void observe(const char *dir, pst_launcher_news *news)
{
    pid_t pid;
    bool lives = supervisor_lives(dir, &pid), over = is_past_work(dir, &news->exit);
    pst_rundir_owner o;
    PST_ASSERT(news->type == PST_LAUNCHER_FOUND || news->type == PST_LAUNCHER_CHANGED); /* the others say all there is */
    news->stop_reason = pst_rundir_stop_reason_read(dir);
    news->published = over && pst_rundir_published(dir) && !pst_rundir_has_spool(dir);
    if (over)
        news->seen = lives ? PST_LCM_SEEN_FLUSHING : PST_LCM_SEEN_ENDED;
    else if (lives)
        news->seen = PST_LCM_SEEN_ALIVE;
    else
        news->seen = pst_rundir_owner_read(dir, &o, NULL) == PST_ENOTFOUND ? PST_LCM_SEEN_ABSENT : PST_LCM_SEEN_VANISHED;
}

static void watch(local *l, const pst_process_id *id, const char *dir, pid_t started, pid_t pid)
{
    pid_t first = pid ? pid : started;
    l->at = pst_array_room(l->at, l->n, &l->cap, sizeof *l->at);
    l->at[l->n++] =
        (watched){.id = *id, .dir = pst_strdup(dir), .started = started, .pid = pid, .pidfd = first > 0 ? pidfd_open(first, 0) : -1};
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

/* Those that wait now; what fn asks for is answered by the next poll. */
static void give_answers(local *l, pst_launcher_fn fn, void *arg)
{
    pst_launcher_news *news = l->news;
    size_t n = l->n_news;
    l->news = NULL;
    l->n_news = l->cap_news = 0;
    for (size_t i = 0; i < n; i++)
        fn(arg, &news[i]);
    free(news);
}

static void local_poll(void *launcher, pst_launcher_fn fn, void *arg)
{
    local *l = launcher;
    while (waitpid(-1, NULL, WNOHANG) > 0) /* keepers that we started, and what came to us from dead ones */
        ;
    give_answers(l, fn, arg);
    for (size_t i = 0; i < l->n;) {
        watched *w = &l->at[i];
        look_for_supervisor(w);
        if (!is_over(w)) {
            i++;
            continue;
        }
        host_sweep_keeper(w->dir);
        pst_launcher_news news = {.type = PST_LAUNCHER_CHANGED, .process = w->id};
        observe(w->dir, &news);
        watched over = *w;
        l->at[i] = l->at[--l->n];
        fn(arg, &news); /* may have another one created and so move the list */
        watched_done(&over);
    }
}

/* ---- devices: "0,1" in spec.json, places in the inventory here ---------------------------------------------------------------- */

static void devices_of(const local *l, const char *ids, pst_lcm_devices *ret)
{
    for (const char *p = ids; p && *p; p += *p == ',') {
        size_t len = strcspn(p, ",");
        for (int i = 0; i < l->inventory.n_devices && ret->n < PST_LCM_DEVICES_MAX; i++)
            if (strlen(l->inventory.devices[i].id) == len && !strncmp(l->inventory.devices[i].id, p, len))
                ret->at[ret->n++] = i;
        p += len;
    }
}

static char *ids_of(const local *l, const pst_lcm_devices *devices)
{
    pst_buf ids = {0};
    for (int i = 0; i < devices->n; i++) {
        PST_ASSERT(devices->at[i] >= 0 && devices->at[i] < l->inventory.n_devices);
        pst_buf_printf(&ids, "%s%s", i ? "," : "", l->inventory.devices[devices->at[i]].id);
    }
    return pst_buf_steal(&ids);
}

/* ---- acting ------------------------------------------------------------------------------------------------------------------ */

static bool runs(const local *l, const pst_process_id *id)
{
    for (size_t i = 0; i < l->n; i++)
        if (pst_process_id_same(&l->at[i].id, id) && !is_over(&l->at[i]))
            return true;
    return false;
}

static void local_adopt(void *launcher, const pst_process_id *id)
{
    local *l = launcher;
    char *dir = pst_rundir_dir(l->state_dir, id);
    pst_launcher_news *news = add_news(l, PST_LAUNCHER_FOUND, id);
    pst_rundir_spec spec;
    pid_t pid;
    observe(dir, news);
    if (pst_rundir_spec_read(dir, &spec, NULL) == 0) {
        devices_of(l, spec.gpu_ids, &news->devices);
        pst_rundir_spec_done(&spec);
    }
    bool lives = news->seen == PST_LCM_SEEN_ALIVE || news->seen == PST_LCM_SEEN_FLUSHING;
    if (lives && !runs(l, id) && supervisor_lives(dir, &pid)) /* one watch each, however often it is asked for */
        watch(l, id, dir, 0, pid);
    free(dir);
}

static int write_spec(const local *l, const char *dir, const pst_process_id *id, const pst_lcm_devices *devices, pst_err *err)
{
    char *gen_dir = pst_rundir_gen_dir(l->state_dir, id->training_id, id->generation);
    pst_rundir_spec spec;
    int rc = pst_rundir_intent_read(gen_dir, &spec, err);
    free(gen_dir);
    if (rc < 0)
        return rc;
    free(spec.process);
    free(spec.gpu_ids);
    spec.process = pst_strdup(id->process);
    spec.gpu_ids = ids_of(l, devices);
    spec.gpus = devices->n;
    int at = 0;
    const pst_process_set *set = pst_process_sets_find(spec.sets, spec.n_sets, id->process, &at);
    spec.learner_id = set && set->rank >= 0 ? set->rank + at + 1 : 0;
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
    PST_ASSERT(at <= n); /* room for two more and the end */
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

/* spec.json is written once: a supervisor that is started again, to publish, is the same process on the same devices. */
static void local_create(void *launcher, const pst_process_id *id, const pst_lcm_devices *devices)
{
    local *l = launcher;
    if (runs(l, id)) /* asked twice, perhaps before it has its lock */
        return;
    char *dir = pst_rundir_dir(l->state_dir, id), *spec = pst_fs_join(dir, "spec.json");
    pst_err err = {0};
    pid_t pid;
    int rc = pst_fs_mkdirs(dir, 0700, &err);
    if (!rc && !pst_fs_exists(spec))
        rc = write_spec(l, dir, id, devices, &err);
    if (!rc && supervisor_lives(dir, &pid)) /* adopted: it runs already */
        watch(l, id, dir, 0, pid);
    else if (!rc) {
        rc = spawn(l, dir, &pid, &err);
        if (!rc)
            watch(l, id, dir, pid, 0);
    }
    if (rc < 0)
        snprintf(add_news(l, PST_LAUNCHER_NOT_CREATED, id)->why, sizeof err.text, "%s", err.text);
    free(spec);
    free(dir);
}

/* A supervisor that is not ready for signals yet finds stop.json by itself. */
static void local_stop(void *launcher, const pst_process_id *id)
{
    local *l = launcher;
    char *dir = pst_rundir_dir(l->state_dir, id);
    pst_rundir_owner o;
    if (pst_rundir_owner_read(dir, &o, NULL) == 0 && pst_rundir_owner_same_boot(&o) && pst_proc_alive(o.pid, o.start_time)) {
        PST_ASSERT(o.pid > 1);
        kill(o.pid, SIGTERM);
    }
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

/* Certain is what was looked for and not found: the sweep that saw nothing alive, never the one that killed the last. What ended by itself before
 * it could be ended is told as that: its end is on record, and says more than that it is gone. */
static void local_delete(void *launcher, const pst_process_id *id, bool force)
{
    local *l = launcher;
    char *dir = pst_rundir_dir(l->state_dir, id), *mark = pst_rundir_mark(l->state_dir, id);
    pst_rundir_exit x;
    pid_t pid;
    if (!force && supervisor_lives(dir, &pid) && is_past_work(dir, &x)) {
        add_news(l, PST_LAUNCHER_CHANGED, id)->seen = PST_LCM_SEEN_FLUSHING;
    } else if (host_sweep(dir, mark) + host_sweep_orphans(is_watched, l) == 0) {
        bool over = is_past_work(dir, &x);
        pst_launcher_news *news = add_news(l, over ? PST_LAUNCHER_CHANGED : PST_LAUNCHER_GONE, id);
        news->published = !pst_rundir_has_spool(dir);
        if (over)
            observe(dir, news);
    } else {
        for (size_t i = 0; i < l->n; i++) /* one that never wrote who it is */
            if (l->at[i].started > 0 && pst_process_id_same(&l->at[i].id, id))
                kill(l->at[i].started, SIGKILL);
    }
    free(mark);
    free(dir);
}

const pst_launcher_ops pst_launcher_local = {.name = "local",
                                             .open = local_open,
                                             .close = local_close,
                                             .inventory = local_inventory,
                                             .adopt = local_adopt,
                                             .create = local_create,
                                             .stop = local_stop,
                                             .delete = local_delete,
                                             .poll = local_poll};
