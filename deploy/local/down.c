/* down.c - the verbs `up`, `down` and `status`: options, answers, and ending what an up process that was killed outright has left. */
#include "common/base/clock.h"
#include "common/base/confine.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/proc.h"
#include "common/base/stop.h"
#include "common/platform/verb.h"
#include "deploy/local/local.h"
#include "deploy/local/services.h"
#include "deploy/local/with.h"
#include "deploy/local/up.h"

#include <dirent.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DOWN_MS = 120000, LEFTOVER_GRACE_MS = 15000 };

/* ---- up ---- */

static const pst_opt up_opts[] = {
    {"detach", 'd', PST_OPT_BOOL, offsetof(local_up_opts, detach), NULL, NULL, "go to the background once it is ready"},
    {"kafka", 0, PST_OPT_BOOL, offsetof(local_up_opts, kafka), NULL, NULL,
     "start Apache Kafka too (deploy/kafka), data in the state folder"},
    {"embedded", 0, PST_OPT_BOOL, offsetof(local_up_opts, embedded), NULL, NULL,
     "use librdkafka's in-memory cluster: no Java, nothing kept"},
    {"without", 0, PST_OPT_STR, offsetof(local_up_opts, without), "LIST", NULL, "leave out: trainer, lcm, gateway, registry, scorers"},
    {"with", 0, PST_OPT_LIST, offsetof(local_up_opts, with), "SINKS", NULL,
     "sinks as services: opensearch=URL,files=DIR,tensorboard=DIR,prometheus=ADDRESS:PORT; their options behind a ;"},
    {"registry-port", 0, PST_OPT_INT, offsetof(local_up_opts, registry_port), "P 0..65535", NULL,
     "of the built-in registry; the last time's, 8081, or one near it"},
    {"gateway-port", 0, PST_OPT_INT, offsetof(local_up_opts, gateway_port), "P 0..65535", NULL,
     "of the page and the API; the last time's, 8080, or one near it"},
    {"timeout", 0, PST_OPT_SPAN, offsetof(local_up_opts, max_wait_us), "T", "60s", "how long to wait for the broker"},
    {"isolation", 0, PST_OPT_STR, offsetof(local_up_opts, isolation), "LEVEL", NULL,
     "the weakest isolation that jobs may have on this computer: none, user or sandbox (`penstock lcm --isolation`) [none]"},
    {"tls-cert", 0, PST_OPT_STR, offsetof(local_up_opts, tls_cert), "FILE", NULL,
     "the gateway serves https with this certificate (`penstock gateway --tls-cert`)"},
    {"tls-key", 0, PST_OPT_STR, offsetof(local_up_opts, tls_key), "FILE", NULL, "and its key (`penstock gateway --tls-key`)"},
    {"users", 0, PST_OPT_STR, offsetof(local_up_opts, users), "FILE", NULL,
     "the gateway's users, in place of its token (`penstock gateway --users`)"},
    {"jwks", 0, PST_OPT_STR, offsetof(local_up_opts, jwks), "FILE|URL", NULL,
     "keys of an identity provider whose tokens let in at the gateway, in place of its token (`penstock gateway --jwks`)"},
    {"jwks-ca", 0, PST_OPT_STR, offsetof(local_up_opts, jwks_ca), "FILE", NULL,
     "who vouches for that address, in PEM (`penstock gateway --jwks-ca`) [the system's]"},
    {"user-rate", 0, PST_OPT_INT, offsetof(local_up_opts, user_rate), "N 0..1000000", "200",
     "requests a second that one user may send at the gateway (`penstock gateway --user-rate`)"},
    {"user-burst", 0, PST_OPT_INT, offsetof(local_up_opts, user_burst), "N 1..1000000", "1000", "how many of them at once"},
    {"jwt-issuer", 0, PST_OPT_STR, offsetof(local_up_opts, jwt_issuer), "ISS", NULL, "of such tokens (`penstock gateway`)"},
    {"jwt-audience", 0, PST_OPT_STR, offsetof(local_up_opts, jwt_audience), "AUD", NULL, "of such tokens (`penstock gateway`)"},
    {"jwt-role", 0, PST_OPT_STR, offsetof(local_up_opts, jwt_role), "ROLE", NULL, "of those that have none (`penstock gateway`) [user]"},
    {"log-mib", 0, PST_OPT_INT, offsetof(local_up_opts, log_mib), "N 1..4096", "16",
     "size at which a service puts its log aside (NAME.log.1 to .4 are kept) and begins a new one"},
};
static const pst_usage up_usage = {
    "up",
    "",
    "Run the whole platform on this computer: topics, registry, trainer, LCM, gateway, and a scorer for each pipeline.",
    "The services are child processes, started again with back-off when they end. Their addresses are printed and written to\n"
    "<state-dir>/profile.json, so that later commands need no flags; their logs lie in <state-dir>/log.\n"
    "--with runs sinks (`penstock sink --help`) as services sink:NAME; what stands behind a ; is an option of the sink, as in "
    "files=DIR;format=avro. Of the environment the sink "
    "opensearch gets PENSTOCK_OPENSEARCH_CREDENTIALS.",
    "penstock up --kafka                        # with an Apache Kafka of its own, until Ctrl-C\npenstock up --detach -b localhost:9092    "
    " # beside your Kafka, in the background\n"
    "penstock up -F client.properties --registry http://registry:8081\npenstock up --embedded --without lcm\n"
    "penstock up --detach --with prometheus,tensorboard=runs,'opensearch=https://search:9200;ca-file=ca.pem'",
    up_opts,
    sizeof up_opts / sizeof *up_opts,
    false};

static bool check_without(const char *list, pst_err *err)
{
    static const char *const known[] = {"trainer", "lcm", "gateway", "registry", "scorers"};
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, ",");
        char *word = pst_strndup(p, n);
        bool ok = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            ok |= !strcmp(word, known[i]);
        if (!ok)
            pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "up", 0, "--without %s: there is trainer, lcm, gateway, registry, scorers", word);
        free(word);
        if (!ok)
            return false;
        p += n + (p[n] == ',');
    }
    return true;
}

/* As pst_verb_end; but that somebody interrupted this is said as well: what it leaves running is not plain. */
static int end(pst_verb_run *v, int rc)
{
    int status = rc < 0 ? pst_err_exit(&v->err) : 0;
    if (rc < 0)
        pst_say_err(v->usage->verb, &v->err);
    pst_verb_end(v, 0);
    return status;
}

static int up_run(int argc, char **argv)
{
    local_up_opts o = {0};
    pst_verb_run v;
    int rc = 0, status = pst_verb_parse(&v, &up_usage, argc, argv, &o, 0, 0);
    if (status >= 0)
        return status;
    const pst_settings *s = &v.settings;
    if (o.kafka && o.embedded)
        rc = pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "up", 0, "--kafka and --embedded exclude each other");
    else if (!o.tls_cert != !o.tls_key)
        rc = pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "up", 0, "--tls-cert and --tls-key go together: one of them is missing");
    if (!rc && !check_without(o.without, &v.err))
        rc = PST_EINVAL;
    if (!rc)
        rc = local_with_check(o.with.items, o.with.n, &v.err);
    pst_isolation weakest;
    if (!rc && o.isolation)
        rc = pst_confine_floor(o.isolation, &weakest, &v.err);
    pid_t pid;
    json_t *running = rc ? NULL : local_services_read(s->state_dir.value, &pid);
    if (running) {
        fprintf(stderr, "penstock runs already (pid %d)\n", (int)pid);
        local_print_addresses(stderr, running, false);
        json_decref(running);
        rc = o.detach ? 0 : pst_err_set(&v.err, PST_EEXIST, PST_CLASS_FATAL, "up", 0, "`penstock down` ends it");
    } else if (!rc) {
        /* A registry named by the user is used; one left in an old profile, or the default, is replaced by the built-in. */
        bool own = !strncmp(s->registry.origin, "profile", 7) || !strcmp(s->registry.origin, "default");
        rc = local_up(&o, &v.settings, own, &v.err);
        running = rc || !o.detach ? NULL : local_services_read(s->state_dir.value, NULL);
        if (running && s->json) {
            pst_json_print(stdout, running);
        } else if (running && !s->quiet) {
            printf("penstock %s is up in the background; `penstock down` ends it\n", PST_VERSION);
            local_print_addresses(stdout, running, s->color);
        }
        json_decref(running);
    }
    free(o.with.items);
    return end(&v, rc);
}

/* ---- down ---- */

/* Supervisors that live on without an up process: each left supervisor.json in its run directory. */
static int signal_leftovers(const char *state_dir, int sig)
{
    glob_t g;
    int live = 0;
    char *pattern = pst_sprintf("%s/jobs/*/gen-*/*/supervisor.json", state_dir);
    if (glob(pattern, GLOB_NOSORT, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++) {
            pst_buf b = {0};
            json_t *j = NULL;
            if (pst_fs_read(g.gl_pathv[i], 65536, &b, NULL) == 0 && pst_json_parse(b.data, b.len, "supervisor.json", &j, NULL) == 0) {
                pid_t pid = (pid_t)pst_json_int(j, "pid", 0);
                if (pst_proc_alive(pid, pst_json_int(j, "start_time", 0))) {
                    live++;
                    if (sig)
                        kill(pid, sig);
                }
                json_decref(j);
            }
            pst_buf_done(&b);
        }
        globfree(&g);
    }
    free(pattern);
    return live;
}

/* `up` is asked first and ends its services itself; only what outlived it is signalled here. pid and start time together name it: a pid may have
 * been given to another program. */
int local_down(const pst_settings *settings, bool keep_jobs, bool quiet, pst_err *err)
{
    pid_t up = 0;
    json_t *running = local_services_read(settings->state_dir.value, &up);
    int64_t start = pst_proc_start_time(up), begin = pst_mono_us(), said = begin;
    json_decref(running);
    if (up)
        kill(up, keep_jobs ? SIGUSR1 : SIGTERM);
    while (up && pst_proc_alive(up, start)) {
        if (pst_stop_requested())
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "down", 0, "stopped waiting; the platform is still ending");
        if (pst_mono_us() - begin > DOWN_MS * 1000LL) {
            kill(up, SIGKILL);
            return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_FATAL, "down", 0, "pid %d did not end within %d s and was killed", (int)up,
                               DOWN_MS / 1000);
        }
        if (!quiet && pst_mono_us() - said > 1500000) {
            said = pst_mono_us();
            fprintf(stderr, "waiting for learners and services to end …\n");
        }
        pst_sleep_ms(30);
    }
    if (keep_jobs)
        return 0;
    for (int64_t until = pst_mono_us() + LEFTOVER_GRACE_MS * 1000LL; signal_leftovers(settings->state_dir.value, SIGTERM);) {
        if (pst_mono_us() > until) {
            signal_leftovers(settings->state_dir.value, SIGKILL);
            break;
        }
        pst_sleep_ms(300);
    }
    return 0;
}

typedef struct down_opts {
    bool keep_jobs;
} down_opts;
static const pst_opt down_table[] = {
    {"keep-jobs", 0, PST_OPT_BOOL, offsetof(down_opts, keep_jobs), NULL, NULL, "leave learners running; the next `up` adopts them"},
};
static const pst_usage down_usage = {
    "down",
    "",
    "End the platform that `penstock up` started on this computer.",
    "Running jobs are halted first (SIGTERM, their grace time, SIGKILL) and can be resumed after the next `up`.",
    "penstock down\npenstock down --keep-jobs      # an upgrade: learners go on",
    down_table,
    1,
    false};

static int down_run(int argc, char **argv)
{
    down_opts o = {0};
    pst_verb_run v;
    int status = pst_verb_parse(&v, &down_usage, argc, argv, &o, 0, 0);
    if (status >= 0)
        return status;
    return end(&v, local_down(&v.settings, o.keep_jobs, v.settings.quiet, &v.err));
}

/* ---- status ---- */

static const pst_usage status_usage = {
    "status", "", "Show the services of `penstock up` on this computer.", NULL, "penstock status\npenstock status --json", NULL, 0, false};

static void print_services(const json_t *root, bool color)
{
    local_print_addresses(stdout, root, color);
    printf("\n  %-28s %-12s %8s %9s  %s\n", "SERVICE", "STATE", "PID", "RESTARTS", "SINCE");
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(root, "services"), i, v)
    {
        char pid[16] = "-", span[32];
        if (json_is_integer(json_object_get(v, "pid")))
            snprintf(pid, sizeof pid, "%d", (int)pst_json_int(v, "pid", 0));
        const char *waits = pst_json_str(v, "waits_for", NULL), *why = pst_json_str(v, "why", "");
        const char *state = pst_json_str(v, "state", "?");
        if (waits)
            state = !strcmp(waits, "paused") ? "paused" : "waiting";
        printf("  %-28s %-12s %8s %9d  %s%s%s%s%s\n", pst_json_str(v, "name", "?"), state, pid, (int)pst_json_int(v, "restarts", 0),
               pst_span_text(pst_now_us() - pst_json_int(v, "since", 0), span), json_object_get(v, "last_exit") ? "   last: " : "",
               pst_json_str(v, "last_exit", ""), waits ? "   " : "", waits ? why : "");
        if (json_object_get(v, "model_refused"))
            printf("  %-28s model %s\n", "", pst_json_str(v, "model_refused", ""));
        if (json_object_get(v, "canary_stopped"))
            printf("  %-28s canary stopped: %s\n", "", pst_json_str(v, "canary_stopped", ""));
    }
    json_array_foreach(json_object_get(root, "pipelines_refused"), i, v)
    {
        printf("  pipeline %s as it was published is refused%s: %s\n", pst_json_str(v, "name", "?"),
               pst_json_bool(v, "runs", false) ? "; the version before goes on" : " and does not run", pst_json_str(v, "reason", ""));
    }
}

static int status_run(int argc, char **argv)
{
    pst_verb_run v;
    int none = 0, rc = 0, status = pst_verb_parse(&v, &status_usage, argc, argv, &none, 0, 0);
    if (status >= 0)
        return status;
    const pst_settings *s = &v.settings;
    json_t *root = local_services_read(s->state_dir.value, NULL);
    if (!root && s->json)
        root = json_pack("{s:[], s:s, s:s, s:n, s:b}", "services", "bootstrap", s->bootstrap.value, "registry", s->registry.value,
                         "gateway", "running", 0);
    else if (!root)
        rc = pst_err_set(&v.err, PST_ENOTFOUND, PST_CLASS_DATA, "status", 0, "nothing runs here (state folder %s); `penstock up` starts it",
                         s->state_dir.value);
    if (root && s->json)
        pst_json_print(stdout, root);
    else if (root)
        print_services(root, s->color);
    json_decref(root);
    return pst_verb_end(&v, rc);
}

const pst_verb pst_up_verb = {"up", "run the whole platform on this computer", "this computer", up_run, PST_USAGES(&up_usage)};
const pst_verb pst_down_verb = {"down", "end it", "this computer", down_run, PST_USAGES(&down_usage)};
const pst_verb pst_status_verb = {"status", "its services and addresses", "this computer", status_run, PST_USAGES(&status_usage)};
