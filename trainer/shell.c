/* shell.c - the Trainer around its core: state from the topics, rounds, transactions. */
#include "trainer/shell.h"

#include "common/base/retry.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "schemas/manifest_secrets.h"
#include "schemas/metric_list.h"
#include "trainer/asker.h"
#include "trainer/code_sweep.h"
#include "trainer/job_fsm.h"
#include "common/base/settings.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POLL_MS = 25, TICK_US = 200000, PAUSE_MS = 300, QUEUE_METRICS_MAX = 50 };

/* Of a round. A transaction costs the same for one record as for thousands, and a pass over the queues as well; what is read while the one before commits
 * waits for its turn, so under light load a round has one record. Bytes: code that comes with its request is held by the round. */
enum { RECORDS_MAX = 4096, RECORDS_BYTES_MAX = 4 << 20 };

static void make_metrics(trainer_shell_metrics *m)
{
    m->set = pst_metrics_new();
    m->rounds = pst_metric_of(m->set, PST_METRIC_TRAINER_ROUNDS, NULL);
    m->again = pst_metric_of(m->set, PST_METRIC_TRAINER_AGAIN, NULL);
    m->rebuilds = pst_metric_of(m->set, PST_METRIC_TRAINER_REBUILDS, NULL);
    m->decode_errors = pst_metric_of(m->set, PST_METRIC_TRAINER_DECODE_ERRORS, NULL);
    m->step_seconds = pst_metric_of(m->set, PST_METRIC_TRAINER_STEP, NULL);
    m->requests = pst_metric_of(m->set, PST_METRIC_TRAINER_REQUESTS, NULL);
    m->rejected = pst_metric_of(m->set, PST_METRIC_TRAINER_REJECTED, NULL);
    m->duplicates = pst_metric_of(m->set, PST_METRIC_TRAINER_DUPLICATES, NULL);
    m->reports_ignored = pst_metric_of(m->set, PST_METRIC_TRAINER_IGNORED, NULL);
    for (int i = 1; i <= PST_JOB_PUBLIC_STATE_REJECTED; i++)
        m->jobs[i] = pst_metric_of(m->set, PST_METRIC_TRAINER_JOBS, pst_job_public_state_text((pst_job_public_state)i), NULL);
}

/* A queue's metrics are made when it is first seen, for so many: names that come and go must not fill the set. */
static void show_queue(void *arg, const trainer_queue_facts *f)
{
    trainer_shell *s = arg;
    const struct {
        int id;
        double value;
    } rows[] = {
        {PST_METRIC_QUEUE_RUNNING, (double)f->running}, {PST_METRIC_QUEUE_WAITING, (double)f->waiting}, {PST_METRIC_QUEUE_CPUS, f->cpus},
        {PST_METRIC_QUEUE_MEMORY, (double)f->memory},   {PST_METRIC_QUEUE_GPUS, (double)f->gpus},       {PST_METRIC_QUEUE_USE, f->use}};
    if (!f->known || s->metrics.n_queues++ >= QUEUE_METRICS_MAX)
        return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        pst_metric_set(pst_metric_of(s->metrics.set, rows[i].id, f->name, NULL), rows[i].value);
}

static void show_metrics(trainer_shell *s)
{
    s->metrics.n_queues = 0;
    tcore_each_queue(s->core, show_queue, s);
    const trainer_counts *c = tcore_counts(s->core);
    pst_metric_set(s->metrics.requests, (double)c->requests);
    pst_metric_set(s->metrics.rejected, (double)c->rejected);
    pst_metric_set(s->metrics.duplicates, (double)c->duplicates);
    pst_metric_set(s->metrics.reports_ignored,
                   (double)(c->reports_stale + c->reports_repeated + c->reports_unknown + c->reports_untrusted));
    for (int i = 1; i <= PST_JOB_PUBLIC_STATE_REJECTED; i++)
        pst_metric_set(s->metrics.jobs[i], (double)tcore_jobs(s->core, (pst_job_public_state)i));
}

int trainer_shell_open(trainer_shell *s, pst_client *client, const trainer_policy *policy, int64_t keep_code_us, const char *stores,
                       pst_err *err)
{
    *s = (trainer_shell){.client = client, .stale = true};
    trainer_times_start(&s->times, pst_now_us(), pst_mono_us());
    make_metrics(&s->metrics);
    int rc = pst_fs_mkdirs(client->settings->state_dir.value, 0700, err);
    if (!rc)
        rc = pst_seal_key_make(client->settings->state_dir.value, &s->key, err);
    if (rc < 0)
        return rc;
    pst_seal_key_id(&s->key, s->seal_id);
    trainer_policy with = *policy;
    with.seal_id = s->seal_id;
    s->core = tcore_new(&with);
    s->outbox = trainer_outbox_new(client, &s->key);
    s->codes = trainer_code_sweep_new(keep_code_us);
    s->asker = trainer_asker_new(stores);
    rc = pst_objects_open(client->settings->objects.value, &s->objects, err);
    if (rc < 0)
        return rc;
    pst_err e = {0};
    pst_objects_patience(s->objects, 0); /* one attempt a round: requests wait on their topic meanwhile, and nothing else does */
    if (pst_objects_check(s->objects, &e) < 0)
        pst_log_err("trainer", &e);
    return 0;
}

void trainer_shell_close(trainer_shell *s)
{
    trainer_shell_deactivate(s);
    trainer_asker_free(s->asker);
    trainer_outbox_free(s->outbox);
    trainer_code_sweep_free(s->codes);
    trainer_traces_done(&s->traces);
    trainer_actions_done(&s->actions);
    tcore_free(s->core);
    pst_objects_close(s->objects);
    pst_metrics_free(s->metrics.set);
}

char *trainer_shell_instance(const pst_client *client)
{
    char host[64] = "host";
    const char *dir = client->settings->state_dir.value;
    gethostname(host, sizeof host - 1);
    return pst_sprintf("%s-%08x", host, (unsigned)pst_fnv1a(dir, strlen(dir)));
}

int trainer_shell_activate(trainer_shell *s, pst_err *err)
{
    bool embedded = s->client->settings->embedded;
    char *id = pst_settings_topic(s->client->settings, "trainer"), *instance = trainer_shell_instance(s->client);
    const char *topics[] = {pst_client_topic(s->client, PST_TOPIC_JOBS_REQUESTS), pst_client_topic(s->client, PST_TOPIC_JOBS_REPORTS)};
    pst_consumer_opts opts = {.group = id, .topics = topics, .n_topics = 2, .instance_id = embedded ? NULL : instance};
    int rc = pst_consumer_new(s->client->bus, &opts, &s->inputs, err);
    if (!rc)
        rc = pst_txn_new(s->client->bus, id, embedded ? PST_TXN_AT_LEAST_ONCE : PST_TXN_EXACTLY_ONCE, s->inputs, &s->txn, err);
    if (!rc) {
        pst_txn_expect(s->txn, pst_client_topic(s->client, PST_TOPIC_JOBS_EVENTS));
        pst_txn_expect(s->txn, pst_client_topic(s->client, PST_TOPIC_JOBS_STATE));
        pst_txn_expect(s->txn, pst_client_topic(s->client, PST_TOPIC_JOBS_COMMANDS));
    }
    s->stale = true;
    free(instance);
    free(id);
    return rc;
}

void trainer_shell_deactivate(trainer_shell *s)
{
    pst_consumer_free(s->queues);
    s->queues = NULL;
    pst_txn_free(s->txn);
    pst_consumer_free(s->inputs);
    s->txn = NULL;
    s->inputs = NULL;
}

/* ---- state from the topic ---------------------------------------------------------------------------------------------------- */

/* When the job was deleted; 0 = the tombstone only removes what is forgotten. */
static int64_t deletion_time(const pst_record *r)
{
    pst_header headers[16];
    size_t n = pst_record_headers(r, headers, 16);
    for (size_t i = 0; i < n && i < 16; i++)
        if (!strcmp(headers[i].name, PST_EXPIRED_HEADER))
            return 0;
    return r->timestamp_ms > 0 ? r->timestamp_ms * 1000 : pst_now_us();
}

/* The core works with the manifest as it was submitted; what it hands to an LCM must run. */
static void open_manifest(trainer_shell *s, pst_job_state *state)
{
    char *plain = pst_manifest_unseal(state->manifest, &s->key, state->training_id);
    if (plain) {
        free(state->manifest);
        state->manifest = plain;
    } else if (!pst_job_state_is_ended(state->state))
        pst_log(
            PST_LOG_ERROR, "trainer",
            "event=sealed training_id=%s reason=\"the secrets of its manifest were sealed with another key: bring seal.key from the state "
            "folder of the Trainer before this one; the job fails when it is deployed\"",
            state->training_id);
}

static int load_state(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    trainer_shell *s = arg;
    pst_job_state state = {0};
    pst_err e = {0};
    if (!r->value) {
        tcore_drop(s->core, key, deletion_time(r));
        trainer_traces_drop(&s->traces, key);
        return 0;
    }
    int rc = pst_codec_decode(s->client->codec, &pst_job_state_type, r->value, r->value_len, r->timestamp_ms, &state, &e);
    if (rc == 0 && !strcmp(state.training_id, key)) {
        pst_trace trace;
        const char *before = pst_log_job(state.training_id);
        open_manifest(s, &state);
        tcore_load(s->core, &state);
        pst_trace_of_record(r, &trace);
        trainer_traces_drop(&s->traces, key);
        trainer_traces_keep(&s->traces, key, &trace);
        pst_log_job(before);
    } else if (rc == 0 || e.cls == PST_CLASS_DATA) { /* nobody but the Trainer writes here; a foreign record is no job */
        pst_log_limited(PST_LOG_WARN, "trainer", "state_ignored", "event=state_ignored topic=%s partition=%d offset=%lld reason=\"%s\"",
                        r->topic, r->partition, (long long)r->offset, rc == 0 ? "its key is not its training_id" : e.text);
        rc = 0;
    } else if (err && !err->code) {
        *err = e;
    }
    pst_event_clear(&pst_job_state_type, &state);
    return rc;
}

/* Waits until a predecessor is fenced (begin does), then reads what is committed: nothing can change it behind our back. */
static int resync(trainer_shell *s, pst_err *err)
{
    int64_t begun = pst_mono_us();
    trainer_outbox_clear(s->outbox);
    int rc = pst_txn_begin(s->txn, err);
    if (rc < 0)
        return rc;
    tcore_reset(s->core);
    trainer_traces_done(&s->traces);
    rc = pst_client_scan(s->client, PST_TOPIC_JOBS_STATE, NULL, load_state, s, err);
    if (!rc)
        rc = trainer_queues_begin(s, err);
    if (rc < 0) {
        pst_err unused = {0};
        pst_txn_abort(s->txn, &unused);
        return rc;
    }
    tcore_loaded(s->core);
    rc = pst_txn_commit(s->txn, err); /* nothing in it */
    if (rc == 0)
        rc = pst_consumer_rewind(s->inputs, err);
    if (rc < 0)
        return rc;
    s->stale = false;
    pst_metric_add(s->metrics.rebuilds, 1);
    size_t jobs = 0;
    for (int i = 0; i <= PST_JOB_PUBLIC_STATE_REJECTED; i++)
        jobs += tcore_jobs(s->core, (pst_job_public_state)i);
    pst_log(PST_LOG_INFO, "trainer", "event=state_read jobs=%zu ms=%lld", jobs, (long long)((pst_mono_us() - begun) / 1000));
    return 0;
}

/* ---- a round ----------------------------------------------------------------------------------------------------------------- */

static int take(trainer_shell *s, const pst_record *r, pst_err *err)
{
    bool request = !strcmp(r->topic, pst_client_topic(s->client, PST_TOPIC_JOBS_REQUESTS));
    return request ? trainer_input_request(s, r, err) : trainer_input_report(s, r, err);
}

/* Steps the core with all of the batch that can be read now. *ret_done: how many of order. PST_EAGAIN: the rest waits for an outage to end. */
static int step_batch(trainer_shell *s, const pst_batch *b, const size_t *order, size_t *ret_done, pst_err *err)
{
    int rc = 0;
    for (*ret_done = 0; *ret_done < b->n && !rc; *ret_done += rc == 0)
        rc = take(s, &b->records[order[*ret_done]], err);
    return rc;
}

static int step_rest(trainer_shell *s, const pst_batch *heartbeats, bool live, bool took, pst_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < heartbeats->n && !rc; i++)
        rc = trainer_input_worker(s, &heartbeats->records[i], live, err);
    if (!rc)
        rc = trainer_input_stores(s, &s->answers, err);
    if (!rc && pst_mono_us() >= s->tick_us) {
        s->tick_us = pst_mono_us() + TICK_US;
        trainer_actions_clear(&s->actions);
        tcore_step(s->core,
                   &(trainer_in){.kind = PST_TRAINER_TICK,
                                 .caught_up = s->caught_up,
                                 .unsettled = trainer_times_unsettled(&s->times, pst_mono_us()),
                                 .nodes_unread = s->nodes_unread},
                   trainer_shell_now(s), &s->actions);
        rc = trainer_outbox_add(s->outbox, &s->actions, &s->traces, NULL, err);
        show_metrics(s);
        return rc;
    }
    if (!rc && (took || heartbeats->n || s->answers || s->queues_changed)) { /* the end of the round: who runs now, and every state once */
        trainer_actions_clear(&s->actions);
        tcore_step(s->core,
                   &(trainer_in){.kind = PST_TRAINER_PASS,
                                 .unsettled = trainer_times_unsettled(&s->times, pst_mono_us()),
                                 .nodes_unread = s->nodes_unread},
                   trainer_shell_now(s), &s->actions);
        rc = trainer_outbox_add(s->outbox, &s->actions, &s->traces, NULL, err);
    }
    s->queues_changed = false;
    return rc;
}

static int publish(trainer_shell *s, const pst_batch *b, const size_t *order, size_t done, pst_err *err)
{
    int rc = pst_txn_begin(s->txn, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < done; i++) {
        const pst_record *r = &b->records[order[i]];
        pst_txn_owes(s->txn, r); /* what the core says now rests on it */
        pst_consumer_mark(s->inputs, r->topic, r->partition, r->offset + 1);
    }
    rc = trainer_outbox_send(s->outbox, s->txn, err);
    if (rc < 0) {
        pst_err unused = {0};
        pst_txn_abort(s->txn, &unused);
        return rc == PST_ELIMIT ? rc : PST_EAGAIN;
    }
    return pst_txn_commit(s->txn, err);
}

/* Which archives are needed is known when all requests have been read, and how old they are when the clock is. */
static void sweep_codes(trainer_shell *s)
{
    int64_t now = pst_mono_us(), ours = pst_now_us(), theirs = trainer_shell_now(s);
    if (s->caught_up && !s->nodes_unread && !trainer_times_unsettled(&s->times, now))
        trainer_code_sweep_step(s->codes, s->objects, s->core, now, ours < theirs ? ours : theirs);
}

static void ask_one(void *arg, const pst_job_state *job)
{
    trainer_shell *s = arg;
    trainer_asker_ask(s->asker, job->training_id, job->manifest);
}

/* After a round that is committed: what it led to is acted on, so what is waited for is in jobs.state, and is waited for after any restart. */
static void ask_stores(trainer_shell *s)
{
    trainer_asker_drop(s->asker, s->answers);
    s->answers = 0;
    tcore_stores_awaited(s->core, ask_one, s);
}

/* Outages are nothing to end for: say it (rarely), wait a little, go on. Anything but RETRY ends the service. */
static int wait_out(trainer_shell *s, int rc, pst_err *err)
{
    if (rc == PST_EFENCED || rc == PST_ESTOPPED || (rc != PST_EAGAIN && err->cls != PST_CLASS_RETRY))
        return rc;
    pst_log_err("trainer", err);
    pst_err_clear(err);
    pst_retry_pause(PAUSE_MS, NULL, NULL);
    return 0;
}

int trainer_shell_round(trainer_shell *s, const pst_batch *heartbeats, bool live, bool *ret_took, pst_err *err)
{
    pst_batch b = {0};
    pst_err outage = {0};
    size_t order[RECORDS_MAX], done = 0;
    int rc = pst_consumer_poll(s->inputs, &(pst_poll){.records_max = RECORDS_MAX, .bytes_max = RECORDS_BYTES_MAX, .timeout_ms = POLL_MS},
                               &b, &outage);
    if (rc < 0) {
        *err = outage;
        return rc;
    }
    if (outage.code)
        pst_log_err("trainer", &outage);
    if (b.lost || s->stale) {
        s->stale = true;
        rc = resync(s, err);
        return rc < 0 ? wait_out(s, rc, err) : 0; /* the batch comes again */
    }
    s->live = s->caught_up; /* it was read to its end before these came */
    s->caught_up = !outage.code && pst_consumer_at_end(s->inputs);
    s->nodes_unread = !live;
    trainer_input_order(&b, order);
    trainer_queues_follow(s);
    int stuck = step_batch(s, &b, order, &done, err);
    if (stuck < 0 && stuck != PST_EAGAIN && err->cls != PST_CLASS_RETRY)
        return stuck;
    /* A record that could not be read has left the core as it was; one whose answer could not be encoded has not. */
    if (stuck < 0 && stuck != PST_EAGAIN) {
        s->stale = true;
        return wait_out(s, stuck, err);
    }
    rc = step_rest(s, heartbeats, live, done > 0, err);
    if (!rc && (done || trainer_outbox_size(s->outbox))) {
        rc = publish(s, &b, order, done, err);
        pst_metric_add(rc == 0 ? s->metrics.rounds : s->metrics.again, 1);
        if (rc == 0)
            trainer_outbox_log(s->outbox, s->metrics.set);
    }
    trainer_outbox_clear(s->outbox);
    *ret_took = rc == 0;
    if (rc < 0) {
        s->stale = true; /* the core is ahead of the topics */
        return wait_out(s, rc, err);
    }
    if (stuck < 0) {
        pst_consumer_rewind(s->inputs, &(pst_err){0});
        return wait_out(s, stuck, err);
    }
    ask_stores(s);
    sweep_codes(s);
    return 0;
}
