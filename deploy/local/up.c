/* up.c - `penstock up`: the whole platform on one computer, as child processes of one.
 *
 *     broker (asked for with --kafka or --embedded, else yours) → topics → registry → schemas → trainer, lcm, gateway → profile
 *     then: one scorer for each pipeline on penstock.pipelines, restarts with back-off, until SIGTERM
 *
 * With --detach the first process waits at a pipe for "ready" or the reason why not, so that it can exit with the right status.
 * Ending: scorers and gateway, then the LCM (SIGUSR2: with its learners; SIGTERM with --keep-jobs: without), trainer, registry, broker. */
#include "deploy/local/up.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/lock.h"
#include "common/base/log.h"
#include "common/base/log_file.h"
#include "common/base/opt.h"
#include "common/base/proc.h"
#include "common/base/secret.h"
#include "common/base/stop.h"
#include "common/base/term.h"
#include "common/platform/client.h"
#include "deploy/local/local.h"
#include "deploy/local/pipelines_watch.h"
#include "deploy/local/services.h"
#include "deploy/local/targets.h"
#include "deploy/local/with.h"
#include "common/bus/bus.h"
#include "common/registry/registry.h"

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

enum { GRACE_MS = 15000, LCM_GRACE_MS = 60000 };

typedef struct up {
    const local_up_opts *o;
    pst_settings *settings;
    local_services services;
    pst_client *client;
    local_pipelines_watch *pipelines;
    bool own_registry, started_kafka;
    int lock_fd;
    int report_fd; /* progress for the process in the foreground; -1 = stderr */
} up;

static volatile sig_atomic_t keep_jobs;

static void on_keep_jobs(int sig)
{
    keep_jobs = 1;
    pst_stop_request();
}

static void say(const up *u, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const up *u, const char *fmt, ...)
{
    char line[600];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, ap);
    va_end(ap);
    if (n < 0 || u->settings->quiet)
        return;
    size_t len = (size_t)n < sizeof line - 2 ? (size_t)n : sizeof line - 2;
    line[len++] = '\n';
    pst_fs_write_all(u->report_fd >= 0 ? u->report_fd : 2, line, len);
}

static bool left_out(const up *u, const char *name)
{
    const char *p = u->o->without;
    size_t n = strlen(name);
    while (p && *p) {
        size_t m = strcspn(p, ",");
        if (m == n && !strncmp(p, name, n))
            return true;
        p += m + (p[m] == ',');
    }
    return false;
}

/* Takes value over. */
static void setting_put(pst_setting *s, char *value, const char *origin)
{
    pst_setting_put(s, value, origin);
    free(value);
}

char *local_kafka_script(void)
{
    const char *env = getenv("PENSTOCK_KAFKA_SCRIPT");
    if (env && *env)
        return pst_strdup(env);
    char *self = pst_proc_self();
    for (int up_levels = 0; up_levels < 4; up_levels++) {
        char *slash = strrchr(self, '/');
        if (!slash)
            break;
        *slash = 0;
        char *path = pst_sprintf("%s/deploy/kafka/kafka", self);
        if (!access(path, X_OK)) {
            free(self);
            return path;
        }
        free(path);
    }
    free(self);
    static const char *const places[] = {PST_SOURCE_DIR "/deploy/kafka/kafka", PST_SHARE_DIR "/kafka/kafka"};
    for (size_t i = 0; i < 2; i++)
        if (!access(places[i], X_OK))
            return pst_strdup(places[i]);
    return NULL;
}

/* Runs the script; its stdout goes to ret_out, its progress to our log or terminal. */
static int run_script(const up *u, const char *script, const char *verb, const char *dir, pst_buf *ret_out, pst_err *err)
{
    int out[2];
    if (pipe2(out, O_CLOEXEC) < 0)
        return pst_err_sys(err, errno, "pipe");
    const char *argv[] = {script, verb, "--dir", dir, NULL};
    pst_spawn how = {
        .argv = argv, .stdin_fd = -1, .stdout_fd = out[1], .stderr_fd = u->report_fd >= 0 ? u->report_fd : 2, .new_group = true};
    pid_t pid;
    int rc = pst_proc_spawn(&how, &pid, err);
    close(out[1]);
    if (!rc) {
        char chunk[512];
        int status = 0, signalled = 0;
        fcntl(out[0], F_SETFL, O_NONBLOCK);
        while (waitpid(pid, &status, WNOHANG) == 0) {
            ssize_t n = read(out[0], chunk, sizeof chunk);
            if (n > 0)
                pst_buf_add(ret_out, chunk, (size_t)n);
            else
                pst_sleep_ms(20);
            if (pst_stop_requested() && !signalled++)
                kill(-pid, SIGTERM);
        }
        for (ssize_t n; (n = read(out[0], chunk, sizeof chunk)) > 0;)
            pst_buf_add(ret_out, chunk, (size_t)n);
        if (pst_stop_requested())
            rc = pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "up", 0, "stopped");
        else if (!WIFEXITED(status) || WEXITSTATUS(status))
            rc = pst_err_set(err, PST_EUNREACH, PST_CLASS_FATAL, "up", 0,
                             "%s %s failed (see its lines above); `penstock up --embedded` needs no Java", script, verb);
    }
    close(out[0]);
    return rc;
}

static int start_kafka(up *u, pst_err *err)
{
    char *script = local_kafka_script(), *dir = pst_fs_join(u->settings->state_dir.value, "kafka");
    pst_buf out = {0};
    int rc = script ? 0
                    : pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "up", 0,
                                  "the broker script deploy/kafka/kafka was not found beside this program; set PENSTOCK_KAFKA_SCRIPT");
    if (!rc) {
        say(u, "starting Apache Kafka …");
        rc = run_script(u, script, "start", dir, &out, err);
    }
    if (!rc) {
        u->started_kafka = true;
        char *word = out.data ? out.data : NULL;
        if (word)
            word[strcspn(word, "\r\n \t")] = 0;
        if (word && *word)
            setting_put(&u->settings->bootstrap, pst_strdup(word), "started by up");
        u->settings->embedded = false;
    }
    pst_buf_done(&out);
    free(script);
    free(dir);
    return rc;
}

static int start_embedded(up *u, pst_err *err)
{
    int port = pst_proc_free_port(19092);
    char port_text[16];
    snprintf(port_text, sizeof port_text, "%d", port);
    setting_put(&u->settings->bootstrap, pst_sprintf("127.0.0.1:%d", port), "started by up");
    u->settings->embedded = true;
    say(u, "broker: librdkafka's in-memory cluster; nothing is kept, and it proves no guarantee");
    const char *args[] = {"broker", "--port", port_text, NULL};
    return local_services_add(&u->services, "broker", args, err);
}

static int wait_for_broker(up *u, pst_err *err)
{
    int64_t start = pst_mono_us(), said = start;
    for (;;) {
        pst_err e = {0};
        int rc = pst_admin_ping(u->client->bus, 2000, NULL, NULL, &e);
        if (!rc)
            return 0;
        if (e.cls == PST_CLASS_FATAL) {
            *err = e;
            return rc;
        }
        if (pst_stop_requested())
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "up", 0, "stopped");
        if (pst_mono_us() - start > u->o->max_wait_us)
            return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "kafka", 0,
                               "no broker answers at %s (%s). Start one with `penstock up --kafka`, or name yours with -b HOST:PORT",
                               u->settings->bootstrap.value, u->settings->bootstrap.origin);
        if (pst_mono_us() - said > 2000000) {
            said = pst_mono_us();
            say(u, "waiting for the broker at %s …", u->settings->bootstrap.value);
        }
        local_services_tick(&u->services);
        pst_sleep_ms(100);
    }
}

/* The port asked for; else the one of the last time (supervisors that live on know its address); else the usual one, or one near it. */
static int choose_port(int64_t asked, const pst_setting *last, int usual)
{
    bool ours = !strncmp(last->value, "http://127.0.0.1:", 17) || !strncmp(last->value, "https://127.0.0.1:", 18);
    const char *colon = !strncmp(last->origin, "profile", 7) && ours ? strrchr(last->value, ':') : NULL;
    int port = colon ? atoi(colon + 1) : 0;
    if (asked > 0)
        port = (int)asked;
    return pst_proc_free_port(port > 0 && port < 65536 ? port : usual);
}

static int start_registry(up *u, pst_err *err)
{
    if (!u->own_registry || left_out(u, "registry"))
        return 0;
    char port[16];
    snprintf(port, sizeof port, "%d", choose_port(u->o->registry_port, &u->settings->registry, 8081));
    setting_put(&u->settings->registry, pst_sprintf("http://127.0.0.1:%s", port), "started by up");
    const char *args[] = {"registry", "--port", port, NULL};
    return local_services_add(&u->services, "registry", args, err);
}

/* The environment of children names the addresses that were found meanwhile. */
static void refresh_environment(up *u)
{
    for (size_t i = 0; u->services.env[i]; i++)
        free(u->services.env[i]);
    free(u->services.env);
    u->services.env = pst_settings_environ(u->settings);
}

static int wait_for_registry(up *u, pst_err *err)
{
    int64_t end = pst_mono_us() + 60 * 1000000LL;
    for (;;) {
        pst_err e = {0};
        int rc = pst_client_register_schemas(u->client, &e);
        if (!rc)
            return 0;
        if (e.cls != PST_CLASS_RETRY || pst_mono_us() > end) {
            *err = e;
            return rc;
        }
        if (pst_stop_requested())
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "up", 0, "stopped");
        local_services_tick(&u->services);
        pst_sleep_ms(50);
    }
}

static int wait_for_gateway(up *u, pst_err *err)
{
    pst_registry *probe; /* any HTTP server on that address will do: the client says whether it answers */
    pst_registry_conf conf = {.url = u->settings->gateway.value, .ca_file = u->o->tls_cert, .timeout_ms = 1000};
    int64_t end = pst_mono_us() + 30 * 1000000LL;
    int rc = pst_registry_new(&conf, &probe, err);
    if (rc < 0)
        return rc;
    for (;;) {
        pst_err e = {0};
        if (pst_registry_ping(probe, &e) == 0 || e.cls != PST_CLASS_RETRY)
            break;
        if (pst_stop_requested() || pst_mono_us() > end) {
            rc = pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "up", 0, "the gateway does not answer at %s; see %s/gateway.log",
                             u->settings->gateway.value, u->services.log_dir);
            break;
        }
        local_services_tick(&u->services);
        pst_sleep_ms(50);
    }
    pst_registry_free(probe);
    return rc;
}

/* Services may be started again from another folder. A link stays one: what renews certificates makes it point elsewhere. Not for an address. free() */
static char *from_root(const char *path)
{
    char *here = path && *path != '/' && !strstr(path, "://") ? getcwd(NULL, 0) : NULL;
    char *whole = here ? pst_fs_join(here, path) : path ? pst_strdup(path) : NULL;
    free(here);
    return whole;
}

static int start_gateway(up *u, const char *port, pst_err *err)
{
    const local_up_opts *o = u->o;
    char *users = from_root(o->users), *jwks = from_root(o->jwks), *cert = from_root(o->tls_cert), *key = from_root(o->tls_key),
         *ca = from_root(o->jwks_ca);
    char rate[24], burst[24];
    snprintf(rate, sizeof rate, "%lld", (long long)o->user_rate);
    snprintf(burst, sizeof burst, "%lld", (long long)o->user_burst);
    const char *const more[][2] = {{"--tls-cert", cert},
                                   {"--tls-key", key},
                                   {"--users", users},
                                   {"--jwks", jwks},
                                   {"--jwks-ca", ca},
                                   {"--user-rate", rate},
                                   {"--user-burst", burst},
                                   {"--jwt-issuer", o->jwt_issuer},
                                   {"--jwt-audience", o->jwt_audience},
                                   {"--jwt-role", o->jwt_role}};
    const char *args[26] = {"gateway", "--port", port};
    size_t n = 3;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (more[i][1]) {
            args[n++] = more[i][0];
            args[n++] = more[i][1];
        }
    int rc = local_services_add(&u->services, "gateway", args, err);
    free(users);
    free(jwks);
    free(ca);
    free(cert);
    free(key);
    return rc;
}

static int start_services(up *u, pst_err *err)
{
    char port[16];
    int rc = 0;
    if (!left_out(u, "gateway")) {
        snprintf(port, sizeof port, "%d", choose_port(u->o->gateway_port, &u->settings->gateway, 8080));
        setting_put(&u->settings->gateway, pst_sprintf(u->o->tls_cert ? "https://127.0.0.1:%s" : "http://127.0.0.1:%s", port),
                    "started by up");
        refresh_environment(u);
        rc = start_gateway(u, port, err);
    }
    const char *trainer[] = {"trainer", "--port", LOCAL_PORT, u->o->users ? "--trust-gateway-roles" : NULL, NULL},
               *lcm[] = {"lcm", "--port", LOCAL_PORT, NULL, NULL, NULL};
    if (u->o->isolation) {
        lcm[3] = "--isolation";
        lcm[4] = u->o->isolation;
    }
    if (!rc && !left_out(u, "trainer"))
        rc = local_services_add(&u->services, "trainer", trainer, err);
    if (!rc && !left_out(u, "lcm"))
        rc = local_services_add(&u->services, "lcm", lcm, err);
    return rc;
}

static int write_profile(up *u, pst_err *err)
{
    const pst_settings *s = u->settings;
    json_t *f = u->services.facts;
    json_object_set_new(f, "bootstrap", json_string(s->bootstrap.value));
    json_object_set_new(f, "registry", json_string(s->registry.value));
    json_object_set_new(f, "gateway", left_out(u, "gateway") ? json_null() : json_string(s->gateway.value));
    json_object_set_new(f, "gateway_users", json_boolean(u->o->users || u->o->jwks));
    json_object_set_new(f, "embedded", json_boolean(s->embedded));
    json_object_set_new(f, "state_dir", json_string(s->state_dir.value));
    json_object_set_new(f, "pid", json_integer(getpid()));
    json_object_set_new(f, "pid_start", json_integer(pst_proc_start_time(getpid())));
    json_object_set_new(f, "kafka", json_boolean(u->started_kafka));
    u->services.dirty = true;
    local_services_tick(&u->services);
    return pst_profile_write(s, err);
}

/* The state folder is this user's alone, and so is what lies in it, also what an earlier version or a wider umask left there. A folder that is
 * shared on purpose (/tmp), or that holds other people's work, is not closed behind their backs. */
static int close_folder(const char *dir, pst_err *err)
{
    static const char *const ours[] = {"token", "profile.json", "up.lock", "up.json", "store.db", "jobs", "objects", "kafka", "log"};
    struct stat st;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        int rc = pst_err_sys(err, errno, "cannot open %s", dir);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    int rc = 0;
    size_t known = 0, others = 0;
    DIR *d = fdopendir(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        others++;
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            known += !strcmp(e->d_name, ours[i]);
        struct stat f;
        if (!fstatat(fd, e->d_name, &f, AT_SYMLINK_NOFOLLOW) && S_ISREG(f.st_mode) && f.st_uid == geteuid() && (f.st_mode & 077) &&
            !(st.st_mode & S_ISVTX))
            if (fchmodat(fd, e->d_name, f.st_mode & 0700, 0) < 0)
                rc = pst_err_sys(err, errno, "cannot close %s/%s to other users", dir, e->d_name);
    }
    if (rc == 0 && st.st_mode & 077) {
        bool mine = st.st_uid == geteuid() && !(st.st_mode & S_ISVTX) && (known || !others);
        if (!mine || fchmod(fd, 0700) < 0)
            rc = pst_err_set(
                err, PST_EINVAL, PST_CLASS_FATAL, "up", 0,
                "the state folder %s is open to others and holds more than penstock's files; give it one of its own (--state-dir "
                "DIR), or chmod 700 it",
                dir);
    }
    if (d)
        closedir(d);
    else
        close(fd);
    return rc;
}

static int bring_up(up *u, pst_err *err)
{
    int rc = local_services_init(&u->services, u->settings, err);
    u->services.log_bytes_max = u->o->log_mib << 20;
    const char *wanted = getenv("PENSTOCK_TOKEN");
    free(u->settings->token);
    u->settings->token = NULL;
    if (!rc)
        rc = pst_token_make(u->settings->state_dir.value, wanted && *wanted ? wanted : NULL, &u->settings->token, err);
    if (!rc && u->o->embedded)
        rc = start_embedded(u, err);
    else if (!rc && u->o->kafka)
        rc = start_kafka(u, err);
    if (rc < 0)
        return rc;
    refresh_environment(u);
    rc = pst_client_open(u->settings, "penstock-up", &u->client, err);
    if (rc >= 0)
        rc = wait_for_broker(u, err);
    if (rc >= 0)
        rc = pst_client_create_topics(u->client, err);
    if (rc >= 0)
        rc = start_registry(u, err);
    if (rc < 0)
        return rc;
    refresh_environment(u);
    pst_client_close(u->client); /* the registry's address may be another now */
    u->client = NULL;
    rc = pst_client_open(u->settings, "penstock-up", &u->client, err);
    if (rc >= 0)
        rc = wait_for_registry(u, err);
    if (rc >= 0)
        rc = start_services(u, err);
    if (rc >= 0 && !left_out(u, "gateway"))
        rc = wait_for_gateway(u, err);
    if (rc < 0)
        return rc;
    rc = local_with_start(&u->services, u->o->with.items, u->o->with.n, err);
    if (rc >= 0 && !left_out(u, "scorers"))
        rc = local_pipelines_watch_new(u->client, &u->pipelines, err);
    return rc < 0 ? rc : write_profile(u, err);
}

static void take_down(up *u)
{
    if (!u->services.settings)
        return;
    pst_log(PST_LOG_INFO, "up", "event=stopping keep_jobs=%d", (int)keep_jobs);
    local_services *s = &u->services;
    for (size_t i = s->n; i-- > 0;)
        if (!strncmp(s->at[i]->name, "score:", 6))
            local_services_stop(s, s->at[i]->name, SIGTERM, LOCAL_SCORER_GRACE_MS);
    local_services_stop(s, "lcm", keep_jobs ? SIGTERM : SIGUSR2, LCM_GRACE_MS);
    local_services_stop(s, "gateway", SIGTERM, GRACE_MS);
    local_services_stop(s, "trainer", SIGTERM, GRACE_MS);
    local_services_stop_all(s, GRACE_MS);
    if (u->started_kafka) {
        char *script = local_kafka_script(), *dir = pst_fs_join(u->settings->state_dir.value, "kafka");
        pst_buf out = {0};
        pst_err err = {0};
        pst_stop_reset(); /* the script shall run to its end */
        if (script && run_script(u, script, "stop", dir, &out, &err) < 0)
            pst_log_err("up", &err);
        pst_buf_done(&out);
        free(script);
        free(dir);
    }
    unlink(s->file);
    local_targets_remove(s);
}

static void run(up *u)
{
    while (!pst_stop_requested()) {
        local_services_tick(&u->services);
        if (u->pipelines)
            local_pipelines_watch_step(u->pipelines, &u->services, 100);
        else
            pst_sleep_ms(100);
    }
}

static int lock(up *u, pst_err *err)
{
    char *path = pst_fs_join(u->settings->state_dir.value, "up.lock");
    int rc = pst_fs_mkdirs(u->settings->state_dir.value, 0700, err);
    if (!rc)
        rc = close_folder(u->settings->state_dir.value, err);
    if (!rc)
        u->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (!rc && u->lock_fd < 0)
        rc = pst_err_sys(err, errno, "cannot open %s", path);
    if (!rc && pst_lock_try(u->lock_fd, PST_LOCK_PLAIN) < 0)
        rc =
            pst_err_set(err, PST_EEXIST, PST_CLASS_FATAL, "up", 0,
                        "penstock runs already with %s; `penstock status` shows it, `penstock down` ends it", u->settings->state_dir.value);
    free(path);
    return rc;
}

/* Everything from the lock to the end. ready: called once the platform is there. */
static int whole_life(up *u, void (*ready)(up *u), pst_err *err)
{
    signal(SIGUSR1, on_keep_jobs);
    int rc = lock(u, err);
    bool locked = !rc;
    if (!rc)
        rc = bring_up(u, err);
    if (!rc) {
        ready(u);
        run(u);
    }
    if (locked)
        take_down(u);
    local_pipelines_watch_free(u->pipelines);
    pst_client_close(u->client);
    if (u->services.settings)
        local_services_done(&u->services);
    if (u->lock_fd >= 0)
        close(u->lock_fd);
    return rc;
}

char *local_page_address(const char *gateway, const char *state_dir)
{
    char *path = pst_token_path(state_dir), *token = NULL, *page = NULL;
    if (gateway)
        page = pst_token_read(path, &token, NULL) ? pst_strdup(gateway) : pst_sprintf("%s/?token=%s", gateway, token);
    free(token);
    free(path);
    return page;
}

void local_print_addresses(void *file, const json_t *status, bool color)
{
    FILE *f = file;
    const char *b = color ? pst_tint(1) : "", *e = color ? pst_tint(0) : "", *gateway = pst_json_str(status, "gateway", NULL);
    fprintf(f, "  %sbroker%s      %s%s\n", b, e, pst_json_str(status, "bootstrap", "?"),
            pst_json_bool(status, "embedded", false) ? "   in-memory cluster of librdkafka; nothing is kept" : "");
    fprintf(f, "  %sregistry%s    %s\n", b, e, pst_json_str(status, "registry", "?"));
    char *page = pst_json_bool(status, "gateway_users", false) ? pst_strdup(gateway ? gateway : "")
                                                               : local_page_address(gateway, pst_json_str(status, "state_dir", ""));
    if (page && *page)
        fprintf(f, "  %spage%s        %s\n", b, e, page);
    free(page);
    fprintf(f, "  %sstate%s       %s\n", b, e, pst_json_str(status, "state_dir", "?"));
}

static void ready_foreground(up *u)
{
    if (u->settings->json) {
        pst_json_print(stdout, u->services.facts);
    } else if (!u->settings->quiet) {
        printf("penstock %s is up (Ctrl-C ends it, learners with it)\n", PST_VERSION);
        local_print_addresses(stdout, u->services.facts, u->settings->color);
    }
    fflush(stdout);
}

static void ready_detached(up *u)
{
    pst_fs_write_all(u->report_fd, "\001ready\n", 7);
    close(u->report_fd);
    u->report_fd = -1;
}

/* The daemon: stdout and stderr to up.log, its own session, reports by the pipe. Does not return. */
static void be_daemon(up *u, int report_fd)
{
    setsid();
    u->report_fd = report_fd;
    pst_err err = {0};
    char *log_dir = pst_fs_join(u->settings->state_dir.value, "log"), *path = pst_fs_join(log_dir, "up.log");
    int rc = pst_fs_mkdirs(log_dir, 0700, &err), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int log = rc ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (null >= 0)
        dup2(null, 0);
    if (log >= 0) {
        dup2(log, 1);
        dup2(log, 2);
        pst_log_file_watch(path, u->o->log_mib > 0 ? u->o->log_mib << 20 : PST_LOG_FILE_BYTES);
    }
    if (!rc)
        rc = whole_life(u, ready_detached, &err);
    if (rc < 0 && u->report_fd >= 0) {
        pst_fs_write_all(u->report_fd, "\002", 1);
        pst_fs_write_all(u->report_fd, &err, sizeof err);
    }
    if (rc < 0)
        pst_log_err("up", &err);
    _exit(rc < 0 ? pst_err_exit(&err) : 0);
}

/* Copies the daemon's progress to stderr until it says ready (1) or sends its error (2). */
static int attend(int fd, pst_err *err)
{
    FILE *in = fdopen(fd, "r");
    int rc = PST_EIO;
    for (int c; (c = getc(in)) != EOF;) {
        if (c == 1)
            rc = 0;
        else if (c == 2) {
            pst_err e;
            if (fread(&e, sizeof e, 1, in) == 1) {
                *err = e;
                rc = e.code;
            }
        } else if (rc)
            putc(c, stderr);
        if (!rc || c == 2)
            break;
    }
    fclose(in);
    if (rc && !err->code)
        pst_err_set(err, PST_EIO, PST_CLASS_FATAL, "up", 0, "penstock ended while it was starting; see its log/up.log in the state folder");
    return rc;
}

int local_up(const local_up_opts *o, pst_settings *settings, bool own_registry, pst_err *err)
{
    up u = {.o = o, .settings = settings, .own_registry = own_registry, .lock_fd = -1, .report_fd = -1};
    if (!o->detach)
        return whole_life(&u, ready_foreground, err);
    int p[2];
    if (pipe2(p, O_CLOEXEC) < 0)
        return pst_err_sys(err, errno, "pipe");
    fflush(stdout);
    fflush(stderr);
    pid_t pid = fork();
    if (pid < 0)
        return pst_err_sys(err, errno, "fork");
    if (pid == 0) {
        close(p[0]);
        be_daemon(&u, p[1]);
    }
    close(p[1]);
    int rc = attend(p[0], err);
    if (rc == PST_ESTOPPED || pst_stop_requested())
        kill(pid, SIGTERM);
    return rc;
}
