/* pipelines_watch.c - see pipelines_watch.h. The pipeline's text is written to <state-dir>/pipelines/<name>.yml; the scorer reads that file. */
#include "deploy/local/pipelines_watch.h"

#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/base/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STOP_MS = 15000, NAME_MAX_LEN = 120 };

struct pst_pipelines_watch {
    pst_client *client;
    pst_consumer *consumer;
    char *dir;
};

int pst_pipelines_watch_new(pst_client *client, pst_pipelines_watch **ret_watch, pst_err *err)
{
    pst_pipelines_watch *w = pst_alloc(sizeof *w);
    w->client = client;
    w->dir = pst_fs_join(client->settings->state_dir.value, "pipelines");
    const char *topics[] = {pst_client_topic(client, PST_TOPIC_PIPELINES)};
    pst_consumer_opts opts = {.topics = topics, .n_topics = 1, .start = PST_START_EARLIEST};
    int rc = pst_fs_mkdirs(w->dir, 0755, err);
    if (!rc)
        rc = pst_consumer_new(client->bus, &opts, &w->consumer, err);
    if (rc < 0)
        pst_pipelines_watch_free(w);
    else
        *ret_watch = w;
    return rc;
}

void pst_pipelines_watch_free(pst_pipelines_watch *w)
{
    if (!w)
        return;
    pst_consumer_free(w->consumer);
    free(w->dir);
    free(w);
}

/* A name becomes a file and a service name: letters, digits, dot, dash, underscore. */
static bool fit_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n && n <= NAME_MAX_LEN && !name[n] && name[0] != '.';
}

static void apply(pst_pipelines_watch *w, pst_services *services, const char *name, const char *spec)
{
    char *path = pst_sprintf("%s/%s.yml", w->dir, name), *service = pst_sprintf("score:%s", name);
    pst_err err = {0};
    pst_buf old = {0};
    bool same = spec && pst_services_find(services, service) && pst_fs_read(path, 1 << 20, &old, NULL) == 0 &&
                !strcmp(old.data ? old.data : "", spec);
    pst_buf_done(&old);
    if (!same) {
        pst_services_stop(services, service, SIGTERM, STOP_MS);
        const char *args[] = {"score", "run", "-c", path, NULL};
        if (!spec)
            unlink(path);
        else if (pst_fs_write_atomic(path, spec, strlen(spec), 0644, &err) < 0 || pst_services_add(services, service, args, &err) < 0)
            pst_log_err("up", &err);
        else
            pst_log(PST_LOG_INFO, "up", "event=scorer_started pipeline=%s", name);
    }
    free(path);
    free(service);
}

static void one(pst_pipelines_watch *w, pst_services *services, const pst_record *r)
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
        pst_services_tick(services);
        pst_sleep_ms(200);
    }
    if (rc < 0)
        pst_log(PST_LOG_WARN, "up", "event=pipeline_ignored offset=%lld reason=\"%s\"", (long long)r->offset, err.text);
    else if (!fit_name(spec.name))
        pst_log(PST_LOG_WARN, "up", "event=pipeline_ignored offset=%lld reason=\"a pipeline's name has letters, digits, . _ - only\"",
                (long long)r->offset);
    else
        apply(w, services, spec.name, spec.spec);
    pst_event_clear(&pst_pipeline_spec_type, &spec);
    free(key);
}

void pst_pipelines_watch_step(pst_pipelines_watch *w, pst_services *services, int timeout_ms)
{
    pst_batch b;
    pst_err err = {0};
    if (pst_consumer_poll(w->consumer, &(pst_poll){.records_max = 100, .timeout_ms = timeout_ms}, &b, &err) < 0) {
        pst_log_err("up", &err);
        usleep(100000);
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
