/* pipelines_watch.c - scorers follow the topic of published pipelines.
 *
 * What was published is text of anybody who may write the topic, so it is written to <state-dir>/pipelines/next/<name>.yml and judged by a
 * child, `penstock score check --published NAME`: a model that takes for ever or kills its reader harms nothing here. Only what passed becomes
 * <state-dir>/pipelines/<name>.yml and takes the place of what runs; the scorer reads that file, under the same rules.
 *
 *     record ─► next/<name>.yml ─► score check ─┬─ fits ──────────────► <name>.yml, a scorer for it
 *                    ▲                          ├─ refused ───────────► status and log say why; what ran goes on
 *                    └── again after a while ───┴─ cannot be known now ► the same; but a new pipeline's scorer starts: it can wait itself
 */
#include "deploy/local/pipelines_watch.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/proc.h"
#include "common/base/stop.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NAME_MAX_LEN = 120,
    CHECKS_MAX = 2,        /* at a time */
    CHECK_US = 60000000,   /* then it is killed */
    AGAIN_FIRST_MS = 5000, /* a model, an alias, a schema may come that cures it */
    AGAIN_MAX_MS = 120000,
    REASON_BYTES_MAX = 2000
};

typedef struct candidate {                 /* a published pipeline that is not what runs under its name: to be judged, or refused */
    char *name, *next, *accepted, *report; /* files: its text, the one that runs, what the check said */
    char *service;
    char *reason;                       /* NULL = not refused (yet) */
    pid_t pid;                          /* of the check; 0 = none under way */
    int64_t begun_us, due_us, since_us; /* monotonic; wall clock */
    int again_ms;
} candidate;

struct local_pipelines_watch {
    pst_client *client;
    pst_consumer *consumer;
    char *dir, *next_dir;
    candidate *at;
    size_t n;
};

int local_pipelines_watch_new(pst_client *client, local_pipelines_watch **ret_watch, pst_err *err)
{
    local_pipelines_watch *w = pst_alloc(sizeof *w);
    w->client = client;
    w->dir = pst_fs_join(client->settings->state_dir.value, "pipelines");
    w->next_dir = pst_fs_join(w->dir, "next");
    const char *topics[] = {pst_client_topic(client, PST_TOPIC_PIPELINES)};
    pst_consumer_opts opts = {.topics = topics, .n_topics = 1, .start = PST_START_EARLIEST};
    int rc = pst_fs_mkdirs(w->next_dir, 0700, err);
    if (!rc)
        rc = pst_consumer_new(client->bus, &opts, &w->consumer, err);
    if (rc < 0)
        local_pipelines_watch_free(w);
    else
        *ret_watch = w;
    return rc;
}

static void end_check(candidate *c)
{
    if (!c->pid)
        return;
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    c->pid = 0;
}

static void drop(local_pipelines_watch *w, size_t i)
{
    PST_ASSERT(i < w->n);
    candidate *c = &w->at[i];
    end_check(c);
    unlink(c->next);
    unlink(c->report);
    char *texts[] = {c->name, c->next, c->accepted, c->report, c->service, c->reason};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        free(texts[k]);
    w->at[i] = w->at[--w->n];
}

void local_pipelines_watch_free(local_pipelines_watch *w)
{
    if (!w)
        return;
    pst_consumer_free(w->consumer);
    while (w->n)
        drop(w, w->n - 1);
    free(w->at);
    free(w->dir);
    free(w->next_dir);
    free(w);
}

/* A name becomes a file and a service name: letters, digits, dot, dash, underscore. */
static bool fit_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n && n <= NAME_MAX_LEN && !name[n] && name[0] != '.';
}

/* ---- status ----------------------------------------------------------------------------------------------------------------- */

/* up.json: "pipelines_refused": [{name, reason, since, runs}]; runs: an earlier version goes on. */
static void show(const local_pipelines_watch *w, local_services *services)
{
    json_t *list = json_array();
    for (size_t i = 0; i < w->n; i++)
        if (w->at[i].reason)
            json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:b}", "name", w->at[i].name, "reason", w->at[i].reason, "since",
                                                  (json_int_t)w->at[i].since_us, "runs",
                                                  local_services_find(services, w->at[i].service) != NULL));
    if (json_array_size(list) || json_object_get(services->facts, "pipelines_refused")) {
        json_object_set_new(services->facts, "pipelines_refused", list);
        services->dirty = true;
    } else {
        json_decref(list);
    }
}

/* ---- what runs --------------------------------------------------------------------------------------------------------------- */

static void start_scorer(local_services *services, const candidate *c, pst_err *err)
{
    const char *args[] = {"score", "run", "-c", c->accepted, "--published", c->name, "--metrics-listen", LOCAL_PORT, NULL};
    local_services_stop(services, c->service, SIGTERM, LOCAL_SCORER_GRACE_MS);
    if (local_services_add(services, c->service, args, err) < 0)
        pst_log_err("up", err);
    else
        pst_log(PST_LOG_INFO, "up", "event=scorer_started pipeline=%s", c->name);
}

/* The candidate becomes what runs. */
static void install(local_pipelines_watch *w, local_services *services, size_t i)
{
    candidate *c = &w->at[i];
    pst_err err = {0};
    if (rename(c->next, c->accepted) < 0)
        pst_err_sys(&err, errno, "cannot put %s in place", c->accepted), pst_log_err("up", &err);
    else
        start_scorer(services, c, &err);
    drop(w, i);
    show(w, services);
}

/* ---- judging ----------------------------------------------------------------------------------------------------------------- */

static void begin_check(const local_services *services, candidate *c)
{
    PST_ASSERT(!c->pid); /* one verdict at a time */
    char *self = pst_proc_self();
    const char *argv[] = {self, "score", "check", "-c", c->next, "--published", c->name, "-q", "--color", "never", NULL};
    int report = open(c->report, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    pst_err err = {0};
    pst_spawn how = {.argv = argv,
                     .env = (const char *const *)services->env,
                     .stdin_fd = -1,
                     .stdout_fd = -1,
                     .stderr_fd = report,
                     .new_group = true,
                     .parent_death_signal = SIGKILL};
    c->begun_us = pst_mono_us();
    if (pst_proc_spawn(&how, &c->pid, &err) < 0) {
        c->pid = 0;
        c->due_us = c->begun_us + AGAIN_MAX_MS * 1000LL;
        pst_log_err("up", &err);
    }
    if (report >= 0)
        close(report);
    free(self);
}

/* What the check said last, on one line. */
static char *read_reason(const candidate *c, int status)
{
    pst_buf b = {0};
    if (pst_fs_read(c->report, 1 << 20, &b, NULL) < 0 || !b.len) {
        pst_buf_done(&b);
        return WIFSIGNALED(status) ? pst_sprintf("its check ended by signal %d", WTERMSIG(status))
                                   : pst_sprintf("its check ended with exit status %d and said nothing", WEXITSTATUS(status));
    }
    char *text = b.data + (b.len > REASON_BYTES_MAX ? b.len - REASON_BYTES_MAX : 0);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = p[1] ? ' ' : 0;
    char *reason = pst_strdup(text);
    pst_buf_done(&b);
    return reason;
}

static void refuse(local_pipelines_watch *w, local_services *services, candidate *c, char *reason)
{
    pst_err err = {0};
    bool known = c->reason && !strcmp(c->reason, reason);
    bool runs = local_services_find(services, c->service) != NULL;
    if (!runs && pst_fs_exists(c->accepted)) { /* a restart of ours: what ran before runs again */
        start_scorer(services, c, &err);
        runs = local_services_find(services, c->service) != NULL;
    }
    free(c->reason);
    c->reason = reason;
    c->again_ms = c->again_ms ? c->again_ms * 2 : AGAIN_FIRST_MS;
    if (c->again_ms > AGAIN_MAX_MS)
        c->again_ms = AGAIN_MAX_MS;
    c->due_us = pst_mono_us() + c->again_ms * 1000LL;
    if (known)
        return;
    c->since_us = pst_now_us();
    pst_log_limited(PST_LOG_WARN, "up", "pipeline_refused", "event=pipeline_refused pipeline=%s then=\"%s\" reason=\"%s\"", c->name,
                    runs ? "the version before goes on" : "it does not run", reason);
    show(w, services);
}

/* Exit statuses of `score check` (pst_exits): 0 fits; 4 no such model; 5, 124, a signal: not to be known now. A new pipeline may wait for those by
 * itself, as its scorer does; one that would replace another must fit. */
static void judge(local_pipelines_watch *w, local_services *services, size_t i, int status)
{
    candidate *c = &w->at[i];
    int exit = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    bool runs = local_services_find(services, c->service) || pst_fs_exists(c->accepted);
    if (exit == 0 || (!runs && (exit == 4 || exit == 5)))
        install(w, services, i);
    else
        refuse(w, services, c, read_reason(c, status));
}

static void tick(local_pipelines_watch *w, local_services *services)
{
    size_t busy = 0;
    for (size_t i = w->n; i-- > 0;) { /* from the end: a candidate that is through is replaced by the last one */
        candidate *c = &w->at[i];
        int status;
        if (c->pid && pst_mono_us() - c->begun_us > CHECK_US)
            kill(c->pid, SIGKILL);
        if (c->pid && waitpid(c->pid, &status, WNOHANG) == c->pid) {
            c->pid = 0;
            judge(w, services, i, status);
        }
    }
    for (size_t i = 0; i < w->n; i++)
        busy += w->at[i].pid != 0;
    for (size_t i = 0; i < w->n && busy < CHECKS_MAX; i++) {
        if (w->at[i].pid || pst_mono_us() < w->at[i].due_us)
            continue;
        begin_check(services, &w->at[i]);
        busy++;
    }
}

/* ---- records ----------------------------------------------------------------------------------------------------------------- */

static bool holds(const char *path, const char *text)
{
    pst_buf b = {0};
    bool same = pst_fs_read(path, 1 << 20, &b, NULL) == 0 && !strcmp(b.data ? b.data : "", text);
    pst_buf_done(&b);
    return same;
}

/* spec NULL: deleted. */
static void apply(local_pipelines_watch *w, local_services *services, const char *name, const char *spec)
{
    pst_err err = {0};
    for (size_t i = 0; i < w->n; i++) {
        if (!strcmp(w->at[i].name, name)) { /* a newer text, or none: the verdict on the older one is of no use */
            drop(w, i);
            break;
        }
    }
    candidate c = {.name = pst_strdup(name),
                   .next = pst_sprintf("%s/%s.yml", w->next_dir, name),
                   .report = pst_sprintf("%s/%s.report", w->next_dir, name),
                   .accepted = pst_sprintf("%s/%s.yml", w->dir, name),
                   .service = pst_sprintf("score:%s", name)};
    w->at = pst_array_one_more(w->at, w->n, sizeof *w->at);
    w->at[w->n++] = c;
    if (!spec) {
        local_services_stop(services, c.service, SIGTERM, LOCAL_SCORER_GRACE_MS);
        unlink(c.accepted);
    } else if (holds(c.accepted, spec)) { /* judged before, by us or by the up before us */
        const local_service *there = local_services_find(services, c.service);
        if (there && local_services_paused(w->client->settings->state_dir.value, there))
            local_services_stop(services, c.service, SIGTERM, LOCAL_SCORER_GRACE_MS);
        if (!local_services_find(services, c.service))
            start_scorer(services, &c, &err);
    } else if (pst_fs_write_atomic(c.next, spec, strlen(spec), 0600, &err) < 0) {
        pst_log_err("up", &err);
    } else {
        show(w, services);
        return;
    }
    drop(w, w->n - 1);
    show(w, services);
}

static void one(local_pipelines_watch *w, local_services *services, const pst_record *r)
{
    char *key = pst_strndup(r->key ? r->key : "", r->key ? r->key_len : 0);
    pst_pipeline_spec spec = {0};
    pst_err err = {0};
    if (!r->value) {
        if (fit_name(key))
            apply(w, services, key, NULL);
        free(key);
        return;
    }
    int rc;
    while ((rc = pst_codec_decode(w->client->codec, &pst_pipeline_spec_type, r->value, r->value_len, r->timestamp_ms, &spec, &err)) < 0 &&
           err.cls == PST_CLASS_RETRY && !pst_stop_requested()) { /* the registry is away: keep the record, keep the services */
        pst_err_clear(&err);
        local_services_tick(services);
        pst_sleep_ms(200);
    }
    if (rc < 0)
        pst_log_limited(PST_LOG_WARN, "up", "pipeline_ignored", "event=pipeline_ignored offset=%lld reason=\"%s\"", (long long)r->offset,
                        err.text);
    else if (!fit_name(spec.name))
        pst_log_limited(PST_LOG_WARN, "up", "pipeline_ignored",
                        "event=pipeline_ignored offset=%lld reason=\"a pipeline's name has letters, digits, . _ - only\"",
                        (long long)r->offset);
    else if (strcmp(spec.name, key)) /* its tombstone would not find it */
        pst_log_limited(PST_LOG_WARN, "up", "pipeline_ignored",
                        "event=pipeline_ignored pipeline=%s offset=%lld reason=\"the record's key is not its name\"", spec.name,
                        (long long)r->offset);
    else
        apply(w, services, spec.name, spec.spec);
    pst_event_clear(&pst_pipeline_spec_type, &spec);
    free(key);
}

void local_pipelines_watch_step(local_pipelines_watch *w, local_services *services, int timeout_ms)
{
    pst_batch b;
    pst_err err = {0};
    tick(w, services);
    if (pst_consumer_poll(w->consumer, &(pst_poll){.records_max = 100, .timeout_ms = timeout_ms}, &b, &err) < 0) {
        pst_log_err("up", &err);
        pst_sleep_ms(100);
        return;
    }
    /* Of several records of one key in a batch only the last counts: a replay at start must not start what was deleted since. */
    for (size_t i = 0; i < b.n; i++) {
        bool last = true;
        for (size_t j = i + 1; j < b.n && last; j++)
            last = b.records[j].key_len != b.records[i].key_len ||
                   (b.records[i].key_len && memcmp(b.records[j].key, b.records[i].key, b.records[i].key_len));
        if (last)
            one(w, services, &b.records[i]);
    }
}
