/* outbox.c - the actions of a round, encoded: events, states, commands, tombstones, each with CloudEvents headers and the trace it belongs
 * to. Encoding comes before the transaction, so that a registry that is away never holds a transaction open. */
#include "trainer/shell.h"
#include "common/base/array.h"
#include "common/base/settings.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "schemas/manifest_secrets.h"
#include "schemas/metric_list.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/topics.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADERS = 8, SEALED_MAX = 512 };

typedef struct letter {
    pst_topic topic;
    char *key;
    pst_buf value;   /* data NULL = tombstone */
    char *id, *said; /* said: of an event, for the log */
    pst_trace trace;
    const char *type;
    int64_t time_us;
    bool expired, refused;
    enum pst_job_event_type happened; /* of an event, with its code */
    char code[24];
} letter;

struct trainer_outbox {
    pst_client *client;
    pst_seal_key key;
    pst_map sealed; /* digest of (training id, manifest) → the manifest with its secrets sealed */
    char *source;
    letter *at;
    size_t n, cap;
};

trainer_outbox *trainer_outbox_new(pst_client *client, const pst_seal_key *key)
{
    trainer_outbox *o = pst_alloc(sizeof *o);
    o->key = *key;
    o->client = client;
    o->source = pst_sprintf("/%strainer", client->settings->prefix.value);
    return o;
}

void trainer_outbox_clear(trainer_outbox *o)
{
    for (size_t i = 0; i < o->n; i++) {
        free(o->at[i].key);
        free(o->at[i].id);
        free(o->at[i].said);
        pst_buf_done(&o->at[i].value);
    }
    o->n = 0;
}

void trainer_outbox_free(trainer_outbox *o)
{
    if (!o)
        return;
    trainer_outbox_clear(o);
    pst_map_done(&o->sealed, free);
    explicit_bzero(&o->key, sizeof o->key);
    free(o->at);
    free(o->source);
    free(o);
}

size_t trainer_outbox_size(const trainer_outbox *o)
{
    return o->n;
}

/* ce_id: unique per source, and the same when the same thing is published again. */
static char *event_id(const pst_job_event *e)
{
    char id[37];
    if (e->seq > 0)
        return pst_sprintf("%s/%lld", e->training_id, (long long)e->seq);
    pst_uuid7(id); /* an answer that belongs to no job */
    return pst_strdup(id);
}

/* A state is published at every step of a job, its manifest never changes: sealed once, as long as it is remembered. Borrowed. */
static const char *sealed_manifest(trainer_outbox *o, const char *training_id, const char *manifest)
{
    if (!pst_manifest_may_have_secrets(manifest)) /* most have none, and are spared a second reading: it was admitted, so it is YAML */
        return manifest;
    char hex[65], *both = pst_sprintf("%s %s", training_id, manifest);
    pst_sha256_hex(both, strlen(both), hex);
    free(both);
    const char *known = pst_map_get(&o->sealed, hex);
    if (known)
        return known;
    if (o->sealed.live >= SEALED_MAX)
        pst_map_done(&o->sealed, free);
    char *sealed = pst_manifest_seal(manifest, &o->key, training_id);
    pst_map_put(&o->sealed, hex, sealed);
    return sealed;
}

/* Which job the action is about; NULL = none. */
static const char *job_of(const trainer_action *a)
{
    switch (a->kind) {
    case PST_DO_EVENT: return a->event.training_id;
    case PST_DO_COMMAND: return a->command.training_id;
    case PST_DO_STATE:
    case PST_DO_TOMBSTONE: return a->key;
    default: return NULL;
    }
}

static char *said_of(const pst_job_event *e)
{
    return pst_sprintf("event=job training_id=%s generation=%d seq=%lld type=%s state=%s%s%s%s%s%s", e->training_id, e->generation,
                       (long long)e->seq, pst_job_event_type_text(e->type), pst_job_public_state_text(e->state),
                       e->process ? " process=" : "", e->process ? e->process : "", e->reason ? " reason=\"" : "",
                       e->reason ? e->reason : "", e->reason ? "\"" : "");
}

/* Whose reasons are counted apart: few words, all of them ours. */
static bool counts_code(enum pst_job_event_type type)
{
    return type == PST_JOB_EVENT_TYPE_FAILED || type == PST_JOB_EVENT_TYPE_RETRYING || type == PST_JOB_EVENT_TYPE_REJECTED;
}

static int add(trainer_outbox *o, const trainer_action *a, const pst_trace *trace, pst_err *err)
{
    letter l = {.key = pst_strdup(a->key), .trace = *trace};
    const pst_type *type = NULL;
    const void *event = NULL;
    pst_job_state state;
    pst_job_command command;
    pst_deploy_spec spec;
    switch (a->kind) {
    case PST_DO_EVENT:
        l.topic = PST_TOPIC_JOBS_EVENTS;
        type = &pst_job_event_type;
        event = &a->event;
        l.id = event_id(&a->event);
        l.said = said_of(&a->event);
        l.refused = a->event.type == PST_JOB_EVENT_TYPE_REJECTED;
        l.happened = a->event.type;
        snprintf(l.code, sizeof l.code, "%s", counts_code(l.happened) && a->event.reason_code ? a->event.reason_code : "");
        l.type = "penstock.JobEvent";
        l.time_us = a->event.time;
        break;
    case PST_DO_STATE:
        l.topic = PST_TOPIC_JOBS_STATE;
        type = &pst_job_state_type;
        state = *a->state;
        state.manifest = (char *)(uintptr_t)sealed_manifest(o, a->state->training_id, a->state->manifest); /* read only */
        event = &state;
        l.id = pst_sprintf("%s/%lld/state", a->key, (long long)a->state->seq);
        l.type = "penstock.JobState";
        l.time_us = a->state->updated_at;
        break;
    case PST_DO_COMMAND:
        l.topic = PST_TOPIC_JOBS_COMMANDS;
        type = &pst_job_command_type;
        command = a->command;
        if (a->seal && command.spec) {
            spec = *command.spec;
            spec.manifest = (char *)(uintptr_t)sealed_manifest(o, command.training_id, spec.manifest); /* read only */
            command.spec = &spec;
        }
        event = &command;
        l.id = pst_sprintf("%s/%d/%s%s%s", a->key ? a->key : "", a->command.generation, pst_job_command_type_text(a->command.command),
                           *a->command.node ? "/" : "", a->command.node); /* to each node of a gang one */
        l.type = "penstock.JobCommand";
        l.time_us = a->command.time;
        break;
    case PST_DO_WORKER:
        l.topic = PST_TOPIC_WORKERS;
        type = &pst_worker_state_type;
        event = &a->worker;
        l.id = pst_sprintf("%s/%lld/%s", a->key, (long long)a->worker.epoch, a->worker.state);
        l.type = "penstock.WorkerState";
        l.time_us = a->worker.time;
        break;
    case PST_DO_TOMBSTONE:
        l.topic = PST_TOPIC_JOBS_STATE;
        l.expired = a->expired;
        break;
    }
    int rc = type ? pst_codec_encode(o->client->codec, type, pst_client_topic(o->client, l.topic), event, &l.value, err) : 0;
    o->at = pst_array_room(o->at, o->n, &o->cap, sizeof *o->at);
    o->at[o->n++] = l;
    return rc;
}

int trainer_outbox_add(trainer_outbox *o, const trainer_actions *actions, trainer_traces *traces, const trainer_cause *cause, pst_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < actions->n && !rc; i++) {
        const trainer_action *a = &actions->at[i];
        pst_trace trace;
        trainer_traces_next(traces, job_of(a), a->kind == PST_DO_STATE, cause, &trace);
        rc = add(o, a, &trace, err);
        if (a->kind == PST_DO_TOMBSTONE)
            trainer_traces_drop(traces, a->key);
    }
    return rc;
}

void trainer_outbox_log(const trainer_outbox *o, pst_metrics *counted)
{
    for (size_t i = 0; i < o->n; i++) {
        if (o->at[i].said)
            pst_metric_add(
                pst_metric_of(counted, PST_METRIC_TRAINER_EVENTS, pst_job_event_type_text(o->at[i].happened), o->at[i].code, NULL), 1);
        if (o->at[i].said && o->at[i].refused)
            pst_log_limited(PST_LOG_INFO, "trainer", "job_rejected", "%s", o->at[i].said);
        else if (o->at[i].said)
            pst_log(PST_LOG_INFO, "trainer", "%s", o->at[i].said);
    }
}

int trainer_outbox_send(const trainer_outbox *o, pst_txn *txn, pst_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < o->n && !rc; i++) {
        const letter *l = &o->at[i];
        char time[32];
        pst_header headers[HEADERS];
        size_t n = 0;
#define HEADER(name_, text_)        \
    headers[n++] = (pst_header)     \
    {                               \
        name_, text_, strlen(text_) \
    }
        if (l->type) { /* CloudEvents 1.0, Kafka binding, binary mode */
            HEADER("ce_specversion", "1.0");
            HEADER("ce_id", l->id);
            HEADER("ce_source", o->source);
            HEADER("ce_type", l->type);
            HEADER("ce_time", pst_time_text(l->time_us, time));
        }
        if (l->expired)
            HEADER(PST_EXPIRED_HEADER, "1");
#undef HEADER
        n += pst_trace_header(&l->trace, &headers[n]);
        pst_out out = {.topic = pst_client_topic(o->client, l->topic),
                       .partition = -1,
                       .key = l->key,
                       .key_len = l->key ? strlen(l->key) : 0,
                       .value = l->value.data,
                       .value_len = l->value.len,
                       .headers = headers,
                       .n_headers = n};
        rc = pst_txn_send(txn, &out, err);
    }
    return rc;
}
