/* learner.c - the learner's process: started in a session and group of its own, watched until nothing that it started lives any more.
 *
 *     runs ─asked to stop──▶ SIGTERM to the group, grace ──▶ SIGKILL to the group and to every descendant, until none is left
 *       └──exited, others of it live──▶ grace ──▶ the same
 *
 * This process is a subreaper: whatever a learner starts and leaves behind becomes our child, so waitpid() saying ECHILD is the proof that
 * all is gone. Output is read without ever waiting for the broker; a learner is held up by nothing but its own pipe. */
#include "lcm/supervisor/run.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/handover.h"
#include "common/base/log.h"
#include "common/base/proc.h"
#include "common/base/program.h"
#include "common/base/proc_tree.h"
#include "common/base/stop.h"
#include "lcm/supervisor/box.h"
#include "lcm/supervisor/checkpoints.h"
#include "lcm/supervisor/collectors.h"
#include "lcm/supervisor/limiter.h"
#include "lcm/supervisor/lines.h"
#include "lcm/supervisor/metric_line.h"
#include "lcm/supervisor/mpi.h"
#include "schemas/frameworks.h"
#include "schemas/avro.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES_PER_S    10000.
#define BYTES_PER_S    (8. * 1048576)
#define POINTS_PER_S   50000.     /* metric points: over it the learner waits at its pipe, nothing is left out */
#define TEE_BYTES_MAX  (64 << 20) /* training-log.txt */
#define READ_BYTES     65536
#define STOP_LOOK_US   500000
#define FILES_EVERY_US 500000
#define KILL_EVERY_US  100000
#define CHECKPOINT_US  1000000 /* between reports: of more the last one counts */

typedef struct stream {
    int fd; /* -1 = at its end */
    pst_log_stream kind;
    sup_lines lines;
    struct learner *l;
} stream;

typedef struct learner {
    sup_run *run;
    sup_learner_end *end;
    pid_t pid;
    sup_box box;
    stream out, err;
    sup_limiter limiter;
    sup_pace points;
    sup_collectors *collectors;
    int tee;
    int64_t tee_bytes;
    int child_fd; /* signalfd: SIGCHLD */
    bool leader_gone, empty;
    int64_t deadline_us; /* monotonic; 0 = none: then force */
    int64_t next_stop_us, next_files_us, next_system_us, next_kill_us;
    double reaped_cpu, sampled_cpu; /* sampled: at the last point of the group system */
    int64_t sampled_us;
    pst_process_report checkpoint; /* the last that the learner announced and that is not reported yet */
    bool checkpoint_waits;
    sup_checkpoints *checkpoints; /* NULL: they are not committed, only told of */
    int64_t next_checkpoint_us;
    int64_t checkpoint_us; /* time of the last that was reported: the Trainer takes an older one for a repetition */
    sup_learner_view view;
} learner;

/* ---- output ----------------------------------------------------------------------------------------------------------------- */

static void publish_kept(void *arg, int kind, int64_t time_us, const char *text, size_t len)
{
    learner *l = arg;
    sup_outlet_log(l->run->outlet, (pst_log_stream)kind, time_us, text, len);
}

/* At the end the last of the lines that had no room are published all the same: how it ended is what people look for. */
static void report_gap(learner *l, bool at_end)
{
    int64_t lines, bytes;
    char why[128];
    if (!sup_limiter_gap(&l->limiter, pst_mono_us(), at_end, &lines, &bytes))
        return;
    if (lines) {
        l->view.left_out += lines;
        snprintf(why, sizeof why, "more than %.0f lines or %.0f bytes a second", l->limiter.lines_per_s, l->limiter.bytes_per_s);
        sup_outlet_gap(l->run->outlet, pst_now_us(), lines, bytes, why);
    }
    if (at_end)
        sup_limiter_tail(&l->limiter, publish_kept, l);
}

static void report_checkpoint(learner *l, int64_t now, bool force)
{
    if (!l->checkpoint_waits || (now < l->next_checkpoint_us && !force))
        return;
    l->next_checkpoint_us = now + CHECKPOINT_US;
    l->checkpoint_waits = false;
    if (l->checkpoint.time <= l->checkpoint_us) /* a clock went back, or the learner gave the time: it is a later one all the same */
        l->checkpoint.time = l->checkpoint_us + 1;
    l->checkpoint_us = l->checkpoint.time;
    sup_outlet_report(l->run->outlet, &l->checkpoint);
    pst_event_clear(&pst_process_report_type, &l->checkpoint);
}

static void keep_checkpoint(learner *l, const pst_process_report *take)
{
    if (l->checkpoint_waits)
        pst_event_clear(&pst_process_report_type, &l->checkpoint);
    l->checkpoint = *take;
    l->checkpoint_waits = true;
    report_checkpoint(l, pst_mono_us(), false);
}

/* Those that are committed by now are told; wait: until all are. */
static void fetch_checkpoints(learner *l, bool wait)
{
    pst_process_report report;
    pst_err err = {0};
    int rc;
    while (l->checkpoints && (rc = sup_checkpoints_done(l->checkpoints, wait, &report, &err)) != 0) {
        if (rc > 0)
            keep_checkpoint(l, &report);
        else
            sup_run_say(l->run, "a checkpoint was not committed: %s", err.text);
        pst_err_clear(&err);
    }
}

/* Told at once, or when it has been committed. */
static void on_checkpoint(learner *l, pst_process_report *take)
{
    pst_err err = {0};
    if (!l->checkpoints) {
        keep_checkpoint(l, take);
    } else if (!sup_checkpoints_take(l->checkpoints, take, &err)) {
        sup_run_say(l->run, "%s", err.text);
        pst_event_clear(&pst_process_report_type, take);
    }
}

/* Lines that speak to the platform (points, checkpoints) are looked for first: only plain lines are ever left out. */
static void on_line(void *arg, const char *text, size_t len)
{
    stream *s = arg;
    learner *l = s->l;
    pst_metric_point point;
    int64_t now = pst_mono_us();
    l->view.lines++;
    if (s->kind == PST_LOG_STREAM_STDERR && len)
        snprintf(l->end->last_error, sizeof l->end->last_error, "%s", text);
    if (s->kind == PST_LOG_STREAM_STDOUT && sup_metric_line(text, len, pst_now_us(), &point)) {
        l->view.points++;
        sup_pace_take(&l->points, now);
        if (l->checkpoints)
            sup_checkpoints_point(l->checkpoints, &point);
        sup_outlet_metric(l->run->outlet, &point);
        pst_event_clear(&pst_metric_point_type, &point);
        return;
    }
    pst_process_report checkpoint;
    if (s->kind == PST_LOG_STREAM_STDOUT && sup_checkpoint_line(text, len, pst_now_us(), &checkpoint)) {
        on_checkpoint(l, &checkpoint);
        return;
    }
    sup_collectors_line(l->collectors, s->kind, text, len);
    report_gap(l, false);
    if (sup_limiter_take(&l->limiter, len, now))
        sup_outlet_log(l->run->outlet, s->kind, pst_now_us(), text, len);
    else
        sup_limiter_keep(&l->limiter, (int)s->kind, pst_now_us(), text, len);
}

static void on_collected(void *arg, const pst_metric_point *point)
{
    learner *l = arg;
    l->view.points++;
    sup_pace_take(&l->points, pst_mono_us());
    sup_outlet_metric(l->run->outlet, point);
}

static void keep_copy(learner *l, const char *data, size_t len)
{
    if (l->tee < 0 || l->tee_bytes >= TEE_BYTES_MAX)
        return;
    l->tee_bytes += (int64_t)len;
    if (l->tee_bytes >= TEE_BYTES_MAX)
        sup_run_say(l->run, "training-log.txt ends here: it has %d MiB; the log topic goes on", TEE_BYTES_MAX >> 20);
    if (pst_fs_write_all(l->tee, data, len) < 0) {
        sup_run_say(l->run, "training-log.txt ends here: %s", strerror(errno));
        close(l->tee);
        l->tee = -1;
    }
}

/* Should the learner wait at its pipe? Points come faster than is good for anybody, or faster than the broker, which answers, takes them:
 * then the disk would fill and the oldest be lost. A broker that is away holds nobody up: that is what the spool is for. */
static bool held_up(learner *l)
{
    return sup_pace_wait_us(&l->points, pst_mono_us()) > 0 || sup_outlet_crowded(l->run->outlet);
}

/* Reads what is there, up to a bound, so that neither stream starves the other nor the timers. */
static void read_stream(learner *l, stream *s, bool hold)
{
    char data[READ_BYTES];
    for (int rounds = 0; s->fd >= 0 && rounds < 16 && !(hold && held_up(l)); rounds++) {
        ssize_t n = read(s->fd, data, sizeof data);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            close(s->fd);
            s->fd = -1;
            return;
        }
        l->view.bytes += n;
        keep_copy(l, data, (size_t)n);
        sup_lines_feed(&s->lines, data, (size_t)n);
    }
}

/* ---- the process ------------------------------------------------------------------------------------------------------------ */

/* Its supervisor fetches and stores for it. */
static bool is_of_object_store(const char *variable)
{
    return !strncmp(variable, "AWS_", 4) || !strncmp(variable, "PENSTOCK_OBJECTS_", strlen("PENSTOCK_OBJECTS_"));
}

/* The built-in learner is our own program and gets the platform's settings; everybody else reads nothing. */
static int open_stdin(const sup_run *r, int *ret_fd, pst_err *err)
{
    *ret_fd = -1;
    if (!r->manifest.native || !r->settings)
        return 0;
    char **env = pst_settings_environ(r->settings);
    size_t n = 0;
    for (char **v = env; *v; v++)
        if (is_of_object_store(*v))
            free(*v);
        else
            env[n++] = *v;
    env[n] = NULL;
    int rc = pst_handover_new((const char *const *)env, ret_fd, err);
    sup_run_environ_free(env);
    return rc;
}

static const char *path_of(char **env)
{
    for (; *env; env++)
        if (!strncmp(*env, "PATH=", 5))
            return *env + 5;
    return "";
}

/* In a session of its own, so that one kill() reaches what stays in it; dying with the supervisor's main thread, should that be killed; with the
 * boundaries of its box set up in the child before its exec. Who it is goes on record at once: that is how it is found if we are not there. */
static int start(learner *l, pst_err *err)
{
    sup_run *r = l->run;
    int out[2] = {-1, -1}, errs[2] = {-1, -1};
    if (pipe2(out, O_CLOEXEC) < 0)
        return pst_err_sys(err, errno, "cannot make a pipe for the learner's output");
    if (pipe2(errs, O_CLOEXEC) < 0) {
        int why = errno;
        close(out[0]);
        close(out[1]);
        return pst_err_sys(err, why, "cannot make a pipe for the learner's errors");
    }
    l->out.fd = out[0];
    l->err.fd = errs[0];
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(errs[0], F_SETFL, O_NONBLOCK);
    if (l->box.level == PST_ISOLATION_SANDBOX && geteuid() == 0) /* /dev/stdout is opened anew by name, as that user */
        for (int i = 0; i < 2; i++)
            if (fchown(i ? errs[1] : out[1], l->box.user, (gid_t)l->box.user) < 0)
                pst_log(PST_LOG_WARN, "supervisor", "event=chown_refused file=%s error=\"%s\"", i ? "stderr" : "stdout", strerror(errno));
    fcntl(out[0], F_SETPIPE_SZ, 1 << 20); /* refused for unprivileged users beyond a limit: then the usual size */
    char *self = NULL, *command = sup_run_command_text(r->role->command ? r->role->command : "");
    sup_mpi_command mpi = {0};
    char **env = sup_run_environ(r);
    int in = -1, rc = r->manifest.native ? pst_program_find("penstock", &self, err) : 0;
    if (!rc)
        rc = open_stdin(r, &in, err);
    const char *sh = pst_program_shell("");
    if (!rc && !r->manifest.native && !strstr(sh, "bash"))
        sup_run_say(r, "this host has no bash: the command runs by %s", sh);
    if (!rc && sup_mpi_launches(r))
        rc = sup_mpi_command_make(r, path_of(env), sh, command, &mpi, err);
    const char *shell[] = {sh, "-c", command, NULL}, *own[] = {self, r->manifest.runs->verb, "--run-dir", r->dir, NULL};
    pst_spawn how = {.argv = r->manifest.native ? own
                             : mpi.mpirun       ? mpi.args
                                                : shell,
                     .env = (const char *const *)env,
                     .dir = r->code_dir,
                     .stdin_fd = in,
                     .stdout_fd = out[1],
                     .stderr_fd = errs[1],
                     .new_session = true,
                     .parent_death_signal = SIGKILL,
                     .enter = sup_box_enter,
                     .enter_forks = l->box.level == PST_ISOLATION_SANDBOX,
                     .enter_arg = &l->box};
    sup_gang_ready(r);
    if (!rc)
        rc = pst_proc_spawn(&how, &l->pid, err);
    if (in >= 0)
        close(in);
    sup_run_environ_free(env);
    sup_mpi_command_done(&mpi);
    free(command);
    free(self);
    close(out[1]);
    close(errs[1]);
    if (rc < 0)
        return rc;
    pst_rundir_owner owner = {0};
    pst_rundir_owner_read(r->dir, &owner, NULL); /* ours: the keeper is in it */
    owner.pid = getpid();
    owner.start_time = pst_proc_start_time(getpid());
    owner.learner_pid = l->pid;
    owner.learner_start_time = pst_proc_start_time(l->pid);
    pst_err ignored = {0};
    if (pst_rundir_owner_write(r->dir, &owner, &ignored) < 0)
        sup_run_say(r, "%s", ignored.text);
    return 0;
}

static void reap(learner *l)
{
    struct signalfd_siginfo info[8];
    while (read(l->child_fd, info, sizeof info) > 0)
        ;
    for (;;) {
        int status;
        struct rusage used;
        pid_t pid = wait4(-1, &status, WNOHANG, &used);
        if (pid < 0 && errno == ECHILD)
            l->empty = true;
        if (pid <= 0)
            return;
        l->reaped_cpu += (double)used.ru_utime.tv_sec + (double)used.ru_utime.tv_usec / 1e6 + (double)used.ru_stime.tv_sec +
                         (double)used.ru_stime.tv_usec / 1e6;
        if (pid == l->pid) {
            l->leader_gone = true;
            l->end->status = status;
        }
    }
}

static void begin_stop(learner *l, pst_rundir_stop_reason stop_reason, int64_t now)
{
    static const char *const why[] = {[PST_STOP_REASON_NONE] = "asked to stop",
                                      [PST_STOP_REASON_HALT] = "halted",
                                      [PST_STOP_REASON_KILL] = "ended on request",
                                      [PST_STOP_REASON_PLATFORM_DOWN] = "the platform is being stopped"};
    PST_ASSERT(!l->end->stopped && l->pid > 0); /* the grace time begins once */
    l->end->stopped = true;
    l->end->stop_reason = stop_reason;
    l->deadline_us = now + (int64_t)l->run->spec.grace_ms * 1000 + 1;
    sup_run_say(l->run, "%s: SIGTERM to the process group, %.1f s to finish", why[stop_reason], l->run->spec.grace_ms / 1000.);
    kill(-l->pid, SIGTERM);
}

/* The reason is on disk before the signal comes; without one the signal came from elsewhere. It may also come without a signal (the LCM
 * was restarted in between). */
static void check_stop(learner *l, int64_t now)
{
    bool asked = pst_stop_requested();
    if (l->end->stopped && asked && pst_stop_forced())
        l->deadline_us = l->deadline_us > now ? now : l->deadline_us;
    if (l->end->stopped || (!asked && now < l->next_stop_us))
        return;
    l->next_stop_us = now + STOP_LOOK_US;
    pst_rundir_stop_reason stop_reason = pst_rundir_stop_reason_read(l->run->dir);
    if (asked || stop_reason != PST_STOP_REASON_NONE)
        begin_stop(l, stop_reason, now);
}

static void enforce(learner *l, int64_t now)
{
    if (sup_box_over(&l->box, now)) {
        sup_run_say(l->run, "%s: SIGKILL", l->box.hit);
        l->end->forced = true;
        l->deadline_us = now;
    }
    if (l->leader_gone && !l->deadline_us)
        l->deadline_us = now + (int64_t)l->run->spec.grace_ms * 1000 + 1;
    if (!l->deadline_us || now < l->deadline_us || now < l->next_kill_us)
        return;
    if (!l->end->forced) {
        l->end->forced = true;
        sup_run_say(l->run,
                    l->end->stopped ? "the grace time is over: SIGKILL" : "the command ended, but processes of it live on: SIGKILL");
    }
    l->next_kill_us = now + KILL_EVERY_US;
    kill(-l->pid, SIGKILL);
    sup_box_kill(&l->box);
    pst_tree_kill(getpid());
}

/* cpu_share: CPUs in use on the average since the last point. What ended between two points is in cpu_seconds, as we reap it. */
static void sample(learner *l, int64_t now)
{
    pst_tree t;
    pst_tree_walk(getpid(), 0, &t);
    if (t.rss_bytes > l->end->rss_max_bytes)
        l->end->rss_max_bytes = t.rss_bytes;
    pst_metric_point p = {.time = pst_now_us(), .group = (char *)"system"};
    double cpu = l->reaped_cpu + t.cpu_seconds, seconds = (double)(now - l->sampled_us) / 1e6;
    pst_dbl_map_set(&p.values, &p.n_values, "cpu_seconds", cpu);
    if (seconds > 0)
        pst_dbl_map_set(&p.values, &p.n_values, "cpu_share", cpu > l->sampled_cpu ? (cpu - l->sampled_cpu) / seconds : 0);
    l->sampled_cpu = cpu;
    l->sampled_us = now;
    pst_dbl_map_set(&p.values, &p.n_values, "threads", t.threads);
    pst_dbl_map_set(&p.values, &p.n_values, "read_bytes", (double)t.read_bytes);
    pst_dbl_map_set(&p.values, &p.n_values, "write_bytes", (double)t.write_bytes);
    pst_dbl_map_set(&p.values, &p.n_values, "rss_bytes", (double)t.rss_bytes);
    pst_dbl_map_set(&p.values, &p.n_values, "processes", t.processes);
    sup_outlet_metric(l->run->outlet, &p);
    p.group = NULL; /* borrowed */
    pst_event_clear(&pst_metric_point_type, &p);
}

static void timers(learner *l, int64_t now)
{
    check_stop(l, now);
    enforce(l, now);
    report_gap(l, false);
    fetch_checkpoints(l, false);
    report_checkpoint(l, now, false);
    if (now >= l->next_files_us) {
        l->next_files_us = now + FILES_EVERY_US;
        sup_collectors_poll(l->collectors);
    }
    if (l->run->manifest.system_us && now >= l->next_system_us) {
        l->next_system_us = now + l->run->manifest.system_us;
        sample(l, now);
    }
}

static void tell_status(learner *l, bool held)
{
    l->view.pid = l->pid;
    l->view.held = held;
    l->view.stopping = l->end->stopped;
    l->view.leader_gone = l->leader_gone;
    l->view.deadline_us = l->deadline_us;
    sup_status_learner(l->run->status, &l->view);
}

static void watch(learner *l)
{
    while (!l->empty) {
        bool stopped = l->end->stopped;
        bool held = held_up(l);
        tell_status(l, held);
        struct pollfd fds[4] = {{.fd = held ? -1 : l->out.fd, .events = POLLIN},
                                {.fd = held ? -1 : l->err.fd, .events = POLLIN},
                                {.fd = l->child_fd, .events = POLLIN},
                                {.fd = stopped ? -1 : pst_stop_fd(), .events = POLLIN}};
        poll(fds, 4, held ? 5 : 100);
        read_stream(l, &l->out, true);
        read_stream(l, &l->err, true);
        reap(l);
        timers(l, pst_mono_us());
    }
    while (l->out.fd >= 0 || l->err.fd >= 0) { /* what is left in the pipes; nobody writes any more */
        stream *both[] = {&l->out, &l->err};
        for (int i = 0; i < 2; i++) {
            struct pollfd p = {.fd = both[i]->fd, .events = POLLIN};
            if (both[i]->fd >= 0 && poll(&p, 1, 0) == 0) {
                close(both[i]->fd);
                both[i]->fd = -1;
            }
            read_stream(l, both[i], false);
        }
    }
    tell_status(l, false);
}

static void stream_init(learner *l, stream *s, pst_log_stream kind)
{
    s->fd = -1;
    s->kind = kind;
    s->l = l;
    s->lines = (sup_lines){.line = on_line, .arg = s};
}

static void open_files(learner *l)
{
    sup_run *r = l->run;
    char *path = pst_fs_join(r->own_log_dir, "training-log.txt");
    l->collectors = sup_collectors_new(r, on_collected, l);
    l->tee = sup_run_open_shared(r, path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0600);
    free(path);
}

/* All that could fail is tried before RUNNING is reported. From then on the way out is one: until nothing that it started lives. */
int sup_learner_run(sup_run *r, const sup_output_limits *limits, sup_learner_end *ret_end, pst_err *err)
{
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    memset(ret_end, 0, sizeof *ret_end);
    learner l = {.run = r, .end = ret_end, .tee = -1, .child_fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK)};
    if (l.child_fd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        int rc = pst_err_sys(err, errno, "cannot watch over child processes");
        if (l.child_fd >= 0)
            close(l.child_fd);
        return rc;
    }
    pthread_sigmask(SIG_BLOCK, &children, NULL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    stream_init(&l, &l.out, PST_LOG_STREAM_STDOUT);
    stream_init(&l, &l.err, PST_LOG_STREAM_STDERR);
    sup_limiter_init(&l.limiter, limits && limits->lines_per_s > 0 ? limits->lines_per_s : LINES_PER_S,
                     limits && limits->bytes_per_s > 0 ? limits->bytes_per_s : BYTES_PER_S, pst_mono_us());
    int rc = sup_box_open(r, &l.box, err);
    if (rc < 0) {
        close(l.child_fd);
        return rc;
    }
    if (r->gang.members.n > 1 && !r->manifest.native && !(l.box.confine.can & PST_CAN_HOSTS))
        sup_run_say(r,
                    "the names %s-0 … do not resolve here: isolation %s gives no /etc/hosts of its own on this host; the file "
                    "PENSTOCK_HOSTS has them",
                    r->name_prefix, pst_isolation_name(l.box.level));
    char words[300];
    pst_confine_words(l.box.level == PST_ISOLATION_NONE ? 0 : l.box.confine.can, words, sizeof words);
    pst_log(PST_LOG_INFO, "supervisor", "event=isolation level=%s host=\"%s\" limits_by_kernel=%s%s%s", pst_isolation_name(l.box.level),
            words, l.box.group.enforced & PST_CGROUP_MEMORY ? "memory," : "",
            l.box.group.enforced & PST_CGROUP_PROCESSES ? "processes," : "", l.box.group.enforced & PST_CGROUP_CPUS ? "cpus" : "");
    sup_pace_init(&l.points, POINTS_PER_S, pst_mono_us());
    open_files(&l);
    if (r->manifest.checkpoint.asked)
        l.checkpoints = sup_checkpoints_new(r->checkpoint_dir, r->spec.process, &r->manifest.checkpoint);
    rc = start(&l, err);
    if (!rc) {
        ret_end->started = true;
        l.sampled_us = pst_mono_us();
        l.next_system_us = l.sampled_us + r->manifest.system_us;
        sup_run_report(r, PST_REPORT_TYPE_RUNNING, NULL);
        sup_outlet_begin(r->outlet);
        watch(&l);
    }
    sup_lines_end(&l.out.lines);
    sup_lines_end(&l.err.lines);
    report_gap(&l, true);
    fetch_checkpoints(&l, true);
    sup_checkpoints_free(l.checkpoints);
    report_checkpoint(&l, pst_mono_us(), true);
    sup_collectors_end(l.collectors);
    sup_limiter_done(&l.limiter);
    if (!rc) {
        sup_box_judge(&l.box, ret_end->status);
        memcpy(ret_end->limit, l.box.hit, sizeof ret_end->limit);
    }
    sup_box_close(&l.box);
    ret_end->cpu_seconds = l.reaped_cpu;
    int fds[] = {l.out.fd, l.err.fd, l.tee, l.child_fd};
    for (int i = 0; i < 4; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return rc;
}
