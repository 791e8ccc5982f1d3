/* demo.c - `penstock demo`: the main job in a minute, on this computer's own telemetry.
 *
 *     up → source telemetry → (quiet records) → job request → live loss → model → pipeline → scores → load spike → summary
 *
 * It uses the public verbs and topics only: what it does, any user can do. Ctrl-C at any moment ends what it started. */
#include "deploy/local/demo.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/proc.h"
#include "common/base/stop.h"
#include "common/platform/verb.h"
#include "deploy/local/local.h"
#include "deploy/local/services.h"
#include "deploy/local/up.h"
#include "schemas/training_id.h"
#include "common/bus/bus.h"
#include "common/registry/registry.h"
#include "schemas/events.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUIET_RECORDS = 400, LOAD_THREADS_PER_CPU = 8 };
static const char topic_in[] = "telemetry", topic_out[] = "telemetry.scores", topic_dead[] = "telemetry.dlq";

typedef struct demo_opts {
    bool keep, embedded;
} demo_opts;

typedef struct demo {
    demo_opts o;
    pst_settings *s;
    pst_client *c;
    pid_t source;
    bool started_up;
    char id[64];
    local_job_outcome job;
    local_score_stats quiet, busy, total;
    int64_t began;
} demo;

static int run_self(const char *const *args, bool show, pst_err *err)
{
    const char *argv[16] = {0};
    char *self = pst_proc_self();
    argv[0] = self;
    for (size_t i = 0; args[i] && i < 14; i++)
        argv[i + 1] = args[i];
    pid_t pid;
    int status = 0;
    pst_spawn how = {.argv = argv, .stdin_fd = -1, .stdout_fd = show ? 1 : -1, .stderr_fd = 2, .new_group = true};
    int rc = pst_proc_spawn(&how, &pid, err);
    for (bool signalled = false; !rc && waitpid(pid, &status, WNOHANG) == 0; pst_sleep_ms(20))
        if (pst_stop_requested() && !signalled) {
            signalled = true;
            kill(pid, SIGTERM);
        }
    if (!rc && pst_stop_requested())
        rc = pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "demo", 0, "stopped");
    else if (!rc && (!WIFEXITED(status) || WEXITSTATUS(status)))
        rc = pst_err_set(err, PST_EIO, PST_CLASS_FATAL, "demo", 0, "penstock %s %s failed; its reason stands above", args[0],
                         args[1] ? args[1] : "");
    free(self);
    return rc;
}

static int reload_settings(demo *d, pst_err *err)
{
    pst_setting_flags f = {.state_dir = d->s->state_dir.value, .quiet = d->s->quiet, .json = d->s->json, .verbose = d->s->verbose};
    pst_settings fresh;
    int rc = pst_settings_load(&f, &fresh, err);
    if (!rc) {
        bool color = d->s->color;
        pst_settings_done(d->s);
        *d->s = fresh;
        d->s->color = color;
    }
    return rc;
}

/* "Apache Kafka 4.3.1, one node; data in DIR", asked of the script. */
static char *broker_text(const demo *d)
{
    if (d->s->embedded)
        return pst_strdup("embedded, in memory; nothing is kept");
    char *script = local_kafka_script(), *text = NULL, *dir = pst_fs_join(d->s->state_dir.value, "kafka");
    if (script && d->started_up) {
        char *cmd = pst_sprintf("'%s' status --json --dir '%s' 2>/dev/null", script, dir);
        char line[2000] = "";
        FILE *p = popen(cmd, "r");
        size_t n = p ? fread(line, 1, sizeof line - 1, p) : 0;
        if (p)
            pclose(p);
        json_t *j = NULL;
        if (n && pst_json_parse(line, n, "status", &j, NULL) == 0)
            text = pst_sprintf("Apache Kafka %s, one node; data in %s", pst_json_str(j, "version", "?"), pst_json_str(j, "dir", "?"));
        json_decref(j);
        free(cmd);
    }
    free(script);
    free(dir);
    return text ? text : pst_strdup("your Kafka");
}

/* A platform that runs already is used and left running; started_up remembers which it was. */
static int bring_up(demo *d, pst_err *err)
{
    json_t *running = local_services_read(d->s->state_dir.value, NULL);
    int rc = 0;
    if (!running) {
        const char *args[] = {"up", "--detach", d->o.embedded ? "--embedded" : "--kafka", "--state-dir", d->s->state_dir.value, NULL};
        d->started_up = true;
        rc = run_self(args, false, err);
    }
    json_decref(running);
    if (!rc)
        rc = reload_settings(d, err);
    if (!rc)
        rc = pst_client_open(d->s, "penstock-demo", &d->c, err);
    if (rc < 0)
        return rc;
    char **subjects = NULL;
    size_t n = 0;
    pst_registry_subjects(d->c->registry, &subjects, &n, NULL);
    char *broker = broker_text(d), *page = local_page_address(d->s->gateway.value, d->s->state_dir.value);
    printf("\n  penstock %s — demonstration                    (Ctrl-C stops everything)\n", PST_VERSION);
    printf("  broker      %-22s %s\n  registry    %-22s %zu schemas registered\n  page        %s\n", d->s->bootstrap.value, broker,
           d->s->registry.value, n, page);
    free(page);
    printf("  gpu         %s\n\n", pst_fs_exists("/dev/nvidia0") ? "an NVIDIA device is there           (penstock devices shows it)"
                                                                 : "none found; using the CPU   (penstock doctor explains)");
    fflush(stdout);
    for (size_t i = 0; i < n; i++)
        free(subjects[i]);
    free(subjects);
    free(broker);
    return 0;
}

static int start_source(demo *d, pst_err *err)
{
    pst_topic_spec topics[] = {{topic_in, 1, -1, NULL}, {topic_out, 1, -1, NULL}, {topic_dead, 1, -1, NULL}};
    int rc = pst_admin_create_topics(d->c->bus, topics, 3, 30000, err);
    if (rc < 0)
        return rc;
    char *self = pst_proc_self(), **env = pst_settings_environ(d->s);
    const char *argv[] = {self, "source", "telemetry", "--topic", topic_in, "--interval", "20ms", "--with-platform", "-q", NULL};
    pst_spawn how = {.argv = argv,
                     .env = (const char *const *)env,
                     .stdin_fd = -1,
                     .stdout_fd = -1,
                     .stderr_fd = 2,
                     .new_group = true,
                     .parent_death_signal = d->o.keep ? 0 : SIGTERM};
    rc = pst_proc_spawn(&how, &d->source, err);
    for (size_t i = 0; env[i]; i++)
        free(env[i]);
    free(env);
    free(self);
    return rc;
}

static int64_t end_of(demo *d, const char *topic, pst_err *err)
{
    pst_topic_info info = {0};
    int rc = pst_admin_topic(d->c->bus, topic, &info, 10000, err);
    int64_t sum = rc;
    for (int p = 0; !rc && p < info.partitions; p++)
        sum += info.high[p];
    pst_topic_info_done(&info);
    return sum;
}

/* Waits until the quiet phase has enough records; returns the offset it began at. */
static int64_t collect(demo *d, int64_t from, pst_err *err)
{
    printf("  1/5 streaming this computer's telemetry into `%s` ", topic_in);
    fflush(stdout);
    for (int64_t end = pst_mono_us() + 120 * 1000000LL, dots = 0;; pst_sleep_ms(250)) {
        int64_t now = end_of(d, topic_in, err);
        if (now < 0)
            return now;
        if (now - from >= QUIET_RECORDS) {
            printf(" %lld records\n", (long long)(now - from));
            return from;
        }
        if (dots < (now - from) * 20 / QUIET_RECORDS) {
            dots++;
            putchar('.');
            fflush(stdout);
        }
        if (pst_stop_requested())
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "demo", 0, "stopped");
        if (pst_mono_us() > end || waitpid(d->source, NULL, WNOHANG) > 0)
            return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_FATAL, "demo", 0, "the telemetry source does not deliver (%lld records)",
                               (long long)(now - from));
    }
}

/* An example file beside the program's source tree or in the installed share. */
static int read_example(const char *name, pst_buf *ret_text, pst_err *err)
{
    const char *dirs[] = {PST_SOURCE_DIR "/examples", PST_SHARE_DIR "/examples"};
    for (size_t i = 0; i < 2; i++) {
        char *path = pst_fs_join(dirs[i], name);
        int rc = pst_fs_exists(path) ? pst_fs_read(path, 1 << 20, ret_text, err) : 1;
        free(path);
        if (rc <= 0)
            return rc;
    }
    return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_FATAL, "demo", 0, "examples/%s is neither in %s nor in %s", name, dirs[0], dirs[1]);
}

/* The example's manifest, with an offset in place of "beginning": the model learns from this run's records alone, not from those that an earlier
 * run left in the topic. */
static int train(demo *d, int64_t from, pst_err *err)
{
    pst_buf text = {0};
    int rc = read_example("telemetry/manifest.yml", &text, err);
    char *at = rc ? NULL : strstr(text.data, "from: beginning");
    if (!rc && !at)
        rc =
            pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "demo", 0, "examples/telemetry/manifest.yml has lost its line `from: beginning`");
    if (rc < 0) {
        pst_buf_done(&text);
        return rc;
    }
    char uuid[37];
    pst_uuid7(uuid);
    char *manifest = pst_sprintf("%.*sfrom: %lld%s", (int)(at - text.data), text.data, (long long)from, at + strlen("from: beginning"));
    pst_job_request r = {.request_id = uuid,
                         .action = PST_JOB_ACTION_SUBMIT,
                         .user = (char *)pst_account_name(NULL),
                         .time = pst_now_us(),
                         .manifest = manifest};
    pst_training_id(r.user, uuid, d->id);
    printf("  2/5 published %s  key=%s\n", pst_client_topic(d->c, PST_TOPIC_JOBS_REQUESTS), d->id);
    fflush(stdout);
    int64_t published = pst_now_us();
    rc = pst_client_publish(d->c, PST_TOPIC_JOBS_REQUESTS, &pst_job_request_type, d->id, &r, 30000, NULL, NULL, err);
    if (!rc)
        rc = local_demo_follow(d->c, d->id, published, 120 * 1000000LL, d->s->color, &d->job, err);
    if (!rc && strcmp(d->job.state, "COMPLETED"))
        rc = pst_err_set(err, PST_EIO, PST_CLASS_FATAL, "demo", 0, "the job ended %s: %s (penstock logs %s)", d->job.state, d->job.reason,
                         d->id);
    if (!rc)
        printf("  3/5 model %s:%d registered (sha256:%.12s…), alias champion\n", d->job.model_name, d->job.model_version, d->job.digest);
    free(manifest);
    pst_buf_done(&text);
    return rc;
}

static int score(demo *d, pst_err *err)
{
    pst_buf text = {0};
    local_score_watch *w = NULL;
    int rc = read_example("telemetry/pipeline.yml", &text, err);
    pst_pipeline_spec spec = {.name = (char *)"telemetry-anomalies", .spec = text.data, .actor = (char *)"demo", .time = pst_now_us()};
    if (!rc && d->s->embedded) { /* its transactions protect nothing, so do not pretend */
        char *at = strstr(text.data, "exactly_once");
        char *plain = at ? pst_sprintf("%.*sat_least_once%s", (int)(at - text.data), text.data, at + strlen("exactly_once")) : NULL;
        if (plain) {
            pst_buf_clear(&text);
            pst_buf_adds(&text, plain);
            free(plain);
        }
        spec.spec = text.data;
    }
    if (!rc)
        rc = local_score_watch_new(d->c, topic_out, &w, err);
    if (!rc)
        rc = pst_client_publish(d->c, PST_TOPIC_PIPELINES, &pst_pipeline_spec_type, spec.name, &spec, 30000, NULL, NULL, err);
    if (!rc) {
        printf("  4/5 scoring the live stream into `%s` …\n", topic_out);
        fflush(stdout);
        local_score_stats first;
        rc = local_score_watch_for(w, 60 * 1000000LL, 1, &first, err);
        if (!rc && !first.records)
            rc = pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_FATAL, "demo", 0,
                             "no score came within 60 s; see log/score-telemetry-anomalies.log in %s", d->s->state_dir.value);
    }
    if (!rc)
        rc = local_score_watch_for(w, 1500000, 0, &d->quiet, err); /* the scorer's own start is over */
    if (!rc)
        rc = local_score_watch_for(w, 4000000, 0, &d->quiet, err);
    if (!rc) {
        printf("      quiet   %4lld records   anomaly score %.4f\n  5/5 a real load spike on all CPUs …\n", (long long)d->quiet.records,
               d->quiet.mean);
        fflush(stdout);
        local_load *load = local_load_start((int)sysconf(_SC_NPROCESSORS_ONLN) * LOAD_THREADS_PER_CPU);
        local_score_stats rising;
        rc = local_score_watch_for(w, 1000000, 0, &rising, err);
        if (!rc)
            rc = local_score_watch_for(w, 3000000, 0, &d->busy, err);
        local_load_stop(load);
    }
    if (!rc)
        printf("      spiked  %4lld records   anomaly score %.4f   (%.0f times the quiet one)\n", (long long)d->busy.records, d->busy.mean,
               d->quiet.mean > 0 ? d->busy.mean / d->quiet.mean : 0);
    if (w)
        local_score_watch_total(w, &d->total);
    local_score_watch_free(w);
    pst_buf_done(&text);
    return rc;
}

static void summary(const demo *d)
{
    char took[32], span[32];
    printf("\n  job         %s   %s, running %s after it was published\n", d->id, d->job.state, pst_span_text(d->job.running_us, span));
    printf("  training    %d epochs, loss %.5f → %.5f, validation %.5f\n", d->job.epochs, d->job.first_loss, d->job.last_loss,
           d->job.last_validation);
    printf("  model       %s:%d   sha256:%s\n", d->total.model_name, d->total.model_version, d->total.digest);
    printf("  scored      %lld records, latency p50 %.0f ms, p99 %.0f ms (from the record's time until a consumer had the score)\n",
           (long long)d->total.records, d->total.p50_ms, d->total.p99_ms);
    printf("  anomaly     quiet %.4f, spiked %.4f\n", d->quiet.mean, d->busy.mean);
    printf("  took        %s\n\n", pst_span_text(pst_mono_us() - d->began, took));
    if (d->o.keep) {
        char *page = local_page_address(d->s->gateway.value, d->s->state_dir.value);
        printf("  It goes on running. The page: %s\n", page);
        free(page);
        printf("      build/penstock logs %s\n      build/penstock cat -t telemetry.scores -o -3 -e\n      build/penstock down\n", d->id);
    } else
        printf("  Next:  ./quickstart --keep            leave it running and open the page\n"
               "         build/penstock up --detach -b HOST:9092      the same beside your own Kafka\n         build/penstock --help\n");
    fflush(stdout);
}

static void end_source(demo *d)
{
    if (d->source <= 0)
        return;
    kill(d->source, SIGTERM);
    for (int i = 0; i < 250 && waitpid(d->source, NULL, WNOHANG) == 0; i++)
        pst_sleep_ms(20);
    kill(d->source, SIGKILL);
    waitpid(d->source, NULL, 0);
}

static const pst_opt demo_table[] = {
    {"keep", 0, PST_OPT_BOOL, offsetof(demo_opts, keep), NULL, NULL, "leave the platform and the telemetry running"},
    {"embedded", 0, PST_OPT_BOOL, offsetof(demo_opts, embedded), NULL, NULL, "librdkafka's in-memory cluster in place of Apache Kafka"},
};
static const pst_usage demo_usage = {
    "demo",
    "",
    "Show the whole in a minute: train a model from a job-request event and score a live stream with it.",
    "Uses a platform that runs already, or starts one with an Apache Kafka of its own and ends it afterwards.\n"
    "Ends with a summary; exit status 0 only if the job completed and records were scored.",
    "penstock demo\npenstock demo --keep\npenstock demo --embedded",
    demo_table,
    2,
    false};

static int play(demo *d, pst_err *err)
{
    int rc = bring_up(d, err);
    if (!rc)
        rc = start_source(d, err);
    int64_t from = rc ? rc : end_of(d, topic_in, err);
    if (from >= 0)
        from = collect(d, from, err);
    if (from < 0)
        return (int)from;
    rc = train(d, from, err);
    if (!rc)
        rc = score(d, err);
    if (!rc && d->busy.mean <= d->quiet.mean) /* other programs were at work all the while: nothing of ours has failed */
        printf("      The spike (%.4f) did not rise above the quiet score (%.4f): this computer was busy before it, too.\n", d->busy.mean,
               d->quiet.mean);
    return rc;
}

/* Whatever failed, what was started is ended, in the opposite order; only --keep after a success leaves it. */
static int demo_run(int argc, char **argv)
{
    pst_verb_run v;
    demo d = {.s = &v.settings, .began = pst_mono_us()};
    int status = pst_verb_parse(&v, &demo_usage, argc, argv, &d.o, 0, 0);
    if (status >= 0)
        return status;
    int rc = play(&d, &v.err);
    if (!rc)
        summary(&d);
    else {
        printf("\n");
        fflush(stdout);
        pst_say_err("demo", &v.err);
    }
    bool stay = d.o.keep && !rc;
    if (!stay)
        end_source(&d);
    pst_client_close(d.c);
    if (d.started_up && !stay) {
        pst_err e = {0};
        pst_stop_reset();
        if (local_down(&v.settings, false, true, &e) < 0)
            pst_say_err("demo", &e);
    }
    status = rc < 0 ? pst_err_exit(&v.err) : 0;
    pst_verb_end(&v, 0); /* the error was said above, before what it had started was ended */
    return status;
}

const pst_verb pst_demo_verb = {"demo", "the whole in a minute, on this computer's telemetry", "this computer", demo_run,
                                PST_USAGES(&demo_usage)};
