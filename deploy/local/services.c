/* services.c - what `penstock up` watches. Starts back off from 0.2 to 10 s and begin again after half a minute of steady running. up.json
 * is written when something changed and not otherwise: `status` and `down` of another process read it at any moment. */
#include "deploy/local/services.h"
#include "deploy/local/targets.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/log_file.h"
#include "common/base/proc.h"
#include "common/base/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BACKOFF_FIRST_MS = 200, BACKOFF_MAX_MS = 10000, STEADY_US = 30 * 1000000, PORT_FIRST = 10000, PORT_RANGE = 8900 };

int local_services_init(local_services *s, const pst_settings *settings, pst_err *err)
{
    *s = (local_services){.settings = settings, .facts = json_object()};
    s->env = pst_settings_environ(settings);
    s->log_dir = pst_fs_join(settings->state_dir.value, "log");
    s->file = pst_fs_join(settings->state_dir.value, "up.json");
    return pst_fs_mkdirs(s->log_dir, 0700, err);
}

static void service_free(local_service *v)
{
    for (size_t i = 0; v->argv[i]; i++)
        free(v->argv[i]);
    free(v->argv);
    free(v->name);
    free(v->log_path);
    free(v->last_exit);
    free(v);
}

void local_services_done(local_services *s)
{
    for (size_t i = 0; i < s->n; i++)
        service_free(s->at[i]);
    free(s->at);
    for (size_t i = 0; s->env && s->env[i]; i++)
        free(s->env[i]);
    free(s->env);
    free(s->log_dir);
    free(s->file);
    json_decref(s->facts);
    memset(s, 0, sizeof *s);
}

/* What the services share, the name of this one's log, which it rotates itself, and the variable that is for it alone. The strings stay whose they are but the
 * last two, ret_own. */
static const char **environ_of(const local_services *s, const local_service *v, char *ret_own[2])
{
    size_t n = 0;
    while (s->env[n])
        n++;
    const char **env = pst_alloc((n + 3) * sizeof *env);
    memcpy(env, s->env, n * sizeof *env);
    env[n] = ret_own[0] = pst_log_file_variable(v->log_path, s->log_bytes_max ? s->log_bytes_max : PST_LOG_FILE_BYTES);
    const char *value = v->variable ? getenv(v->variable) : NULL;
    if (value)
        env[n + 1] = ret_own[1] = pst_sprintf("%s=%s", v->variable, value);
    return env;
}

/* Beyond what the kernel gives to outgoing connections, and where few services listen by custom: a port that another takes between here and the service's own
 * bind costs it a restart, at which it gets another. */
static void choose_port(local_service *v)
{
    unsigned short dice = 0;
    int port = atoi(v->argv[v->port_at]);
    pst_random(&dice, sizeof dice);
    if (!port || pst_proc_free_port(port) != port)
        port = pst_proc_free_port(PORT_FIRST + dice % PORT_RANGE);
    free(v->argv[v->port_at]);
    v->argv[v->port_at] = pst_sprintf("%d", port);
}

static int start(local_services *s, local_service *v, pst_err *err)
{
    PST_ASSERT(!v->pid); /* one process a service: a second would be nobody's */
    if (v->port_at)
        choose_port(v);
    int log = open(v->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0)
        return pst_err_sys(err, errno, "cannot write %s", v->log_path);
    /* A service ends by itself when the up process is killed outright; a learner does not, its supervisor has a session of its own. */
    char *own[2] = {0};
    const char **env = environ_of(s, v, own);
    pst_spawn how = {.argv = (const char *const *)v->argv,
                     .env = env,
                     .stdin_fd = -1,
                     .stdout_fd = log,
                     .stderr_fd = log,
                     .new_group = true,
                     .parent_death_signal = SIGTERM};
    int rc = pst_proc_spawn(&how, &v->pid, err);
    free(env);
    free(own[0]);
    free(own[1]);
    close(log);
    if (rc < 0) {
        v->pid = 0;
        return rc;
    }
    v->pid_start = pst_proc_start_time(v->pid);
    v->since_us = pst_now_us();
    v->started_mono_us = pst_mono_us();
    s->dirty = true;
    return 0;
}

int local_services_add_with(local_services *s, const char *name, const char *const *args, const char *variable, pst_err *err)
{
    size_t n = 0;
    while (args[n])
        n++;
    local_service *v = pst_alloc(sizeof *v);
    v->name = pst_strdup(name);
    v->argv = pst_alloc((n + 2) * sizeof *v->argv);
    v->argv[0] = pst_proc_self();
    for (size_t i = 0; i < n; i++) {
        v->argv[i + 1] = pst_strdup(args[i]);
        v->port_at = strcmp(args[i], LOCAL_PORT) ? v->port_at : i + 1;
    }
    char *file = pst_sprintf("%s.log", name);
    for (char *p = file; *p; p++)
        if (*p == ':' || *p == '/')
            *p = '-';
    v->log_path = pst_fs_join(s->log_dir, file);
    free(file);
    v->backoff_ms = BACKOFF_FIRST_MS;
    v->variable = variable;
    int rc = start(s, v, err);
    if (rc < 0) {
        service_free(v);
        return rc;
    }
    s->at = pst_array_one_more(s->at, s->n, sizeof(local_service *));
    s->at[s->n++] = v;
    return 0;
}

int local_services_add(local_services *s, const char *name, const char *const *args, pst_err *err)
{
    return local_services_add_with(s, name, args, NULL, err);
}

local_service *local_services_find(local_services *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->at[i]->name, name))
            return s->at[i];
    return NULL;
}

static void write_file(local_services *s)
{
    json_t *root = json_deep_copy(s->facts), *list = json_array();
    for (size_t i = 0; i < s->n; i++) {
        local_service *v = s->at[i];
        json_t *o =
            json_pack("{s:s, s:o, s:s, s:i, s:I, s:I, s:s}", "name", v->name, "pid", v->pid ? json_integer(v->pid) : json_null(), "state",
                      v->stopping ? "stopping"
                      : v->pid    ? "running"
                                  : "restarting",
                      "restarts", v->restarts, "since", (json_int_t)v->since_us, "pid_start", (json_int_t)v->pid_start, "log", v->log_path);
        if (v->last_exit)
            json_object_set_new(o, "last_exit", json_string(v->last_exit));
        json_array_append_new(list, o);
    }
    json_object_set_new(root, "services", list);
    char *text = pst_json_text(root);
    pst_err err = {0};
    if (pst_fs_write_atomic(s->file, text, strlen(text), 0600, &err) < 0)
        pst_log_err("up", &err);
    else
        s->dirty = false;
    local_targets_write(s);
    free(text);
    json_decref(root);
}

static void ended(local_services *s, local_service *v, int status)
{
    int64_t now = pst_mono_us();
    PST_ASSERT(v->pid && v->backoff_ms > 0);
    if (now - v->started_mono_us > STEADY_US)
        v->backoff_ms = BACKOFF_FIRST_MS;
    free(v->last_exit);
    v->last_exit = WIFSIGNALED(status) ? pst_sprintf("signal %d", WTERMSIG(status)) : pst_sprintf("exit status %d", WEXITSTATUS(status));
    v->pid = 0;
    v->pid_start = 0;
    v->since_us = pst_now_us();
    v->retry_mono_us = now + v->backoff_ms * 1000LL;
    if (!v->stopping)
        pst_log(PST_LOG_WARN, "up", "event=service_ended service=%s how=\"%s\" restart_in_ms=%d log=%s", v->name, v->last_exit,
                v->backoff_ms, v->log_path);
    v->backoff_ms = v->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : v->backoff_ms * 2;
    s->dirty = true;
}

static void reap(local_services *s)
{
    int status;
    for (size_t i = 0; i < s->n; i++)
        if (s->at[i]->pid && waitpid(s->at[i]->pid, &status, WNOHANG) == s->at[i]->pid)
            ended(s, s->at[i], status);
}

void local_services_tick(local_services *s)
{
    reap(s);
    for (size_t i = 0; i < s->n; i++) {
        local_service *v = s->at[i];
        if (v->pid || v->stopping || pst_mono_us() < v->retry_mono_us)
            continue;
        pst_err err = {0};
        v->restarts++;
        if (start(s, v, &err) < 0) {
            pst_log_err("up", &err);
            v->retry_mono_us = pst_mono_us() + BACKOFF_MAX_MS * 1000LL;
        }
    }
    if (s->dirty)
        write_file(s);
}

static void wait_gone(local_services *s, local_service *one, int timeout_ms)
{
    int64_t end = pst_mono_us() + timeout_ms * 1000LL;
    for (bool killed = false;;) {
        reap(s);
        bool left = false;
        for (size_t i = 0; i < s->n; i++)
            if (s->at[i]->pid && s->at[i]->stopping && (!one || s->at[i] == one))
                left = true;
        if (!left)
            return;
        if (!killed && (pst_mono_us() > end || pst_stop_forced())) {
            killed = true;
            for (size_t i = 0; i < s->n; i++)
                if (s->at[i]->pid && s->at[i]->stopping && (!one || s->at[i] == one)) {
                    pst_log(PST_LOG_WARN, "up", "event=service_killed service=%s reason=\"did not stop within %d ms\"", s->at[i]->name,
                            timeout_ms);
                    kill(-s->at[i]->pid, SIGKILL);
                }
        }
        pst_sleep_ms(20);
    }
}

static void drop(local_services *s, size_t i)
{
    PST_ASSERT(i < s->n && !s->at[i]->pid); /* what is forgotten has ended */
    service_free(s->at[i]);
    memmove(s->at + i, s->at + i + 1, (s->n - i - 1) * sizeof(local_service *));
    s->n--;
    s->dirty = true;
}

void local_services_stop(local_services *s, const char *name, int sig, int timeout_ms)
{
    for (size_t i = 0; i < s->n; i++) {
        local_service *v = s->at[i];
        if (strcmp(v->name, name))
            continue;
        v->stopping = true;
        if (v->pid)
            kill(v->pid, sig);
        write_file(s);
        wait_gone(s, v, timeout_ms);
        drop(s, i);
        write_file(s);
        return;
    }
}

void local_services_stop_all(local_services *s, int timeout_ms)
{
    for (size_t i = 0; i < s->n; i++) {
        s->at[i]->stopping = true;
        if (s->at[i]->pid)
            kill(s->at[i]->pid, SIGTERM);
    }
    wait_gone(s, NULL, timeout_ms);
    while (s->n)
        drop(s, s->n - 1);
}

/* A scorer that waits, or that was to take a model which does not fit, says so in a file of its own, named after its pipeline and its process. */
static void add_wait(const char *state_dir, json_t *v)
{
    const char *name = pst_json_str(v, "name", "");
    pid_t pid = (pid_t)pst_json_int(v, "pid", 0);
    if (strncmp(name, "score:", 6) != 0 || !pid)
        return;
    char *path = pst_sprintf("%s/waits/%s.%d", state_dir, name + 6, (int)pid);
    pst_buf b = {0};
    json_t *wait = NULL;
    if (pst_fs_read(path, 64 << 10, &b, NULL) == 0 && pst_json_parse(b.data, b.len, path, &wait, NULL) == 0) {
        const char *names[][2] = {
            {"for", "waits_for"}, {"why", "why"}, {"model_refused", "model_refused"}, {"canary_stopped", "canary_stopped"}};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (json_object_get(wait, names[i][0]))
                json_object_set(v, names[i][1], json_object_get(wait, names[i][0]));
    }
    json_decref(wait);
    pst_buf_done(&b);
    free(path);
}

bool local_services_paused(const char *state_dir, const local_service *v)
{
    json_t *o = json_pack("{s:s, s:i}", "name", v->name, "pid", (int)v->pid);
    add_wait(state_dir, o);
    bool yes = !strcmp(pst_json_str(o, "waits_for", ""), "paused");
    json_decref(o);
    return yes;
}

json_t *local_services_read(const char *state_dir, pid_t *ret_up_pid)
{
    char *path = pst_fs_join(state_dir, "up.json");
    pst_buf b = {0};
    json_t *root = NULL;
    if (pst_fs_read(path, 4 << 20, &b, NULL) == 0)
        pst_json_parse(b.data, b.len, path, &root, NULL);
    pst_buf_done(&b);
    free(path);
    if (!root)
        return NULL;
    pid_t up = (pid_t)pst_json_int(root, "pid", 0);
    if (!pst_proc_alive(up, pst_json_int(root, "pid_start", 0))) {
        json_decref(root);
        return NULL;
    }
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(root, "services"), i, v)
    {
        pid_t pid = (pid_t)pst_json_int(v, "pid", 0);
        if (pid && !pst_proc_alive(pid, pst_json_int(v, "pid_start", 0))) { /* up has not noticed yet */
            json_object_set_new(v, "pid", json_null());
            json_object_set_new(v, "state", json_string("restarting"));
        }
        json_object_del(v, "pid_start");
        add_wait(state_dir, v);
    }
    if (ret_up_pid)
        *ret_up_pid = up;
    return root;
}
