/* client_read.c - verbs that answer from the topics themselves: scan to the present end, the latest state of a job. */
#include "common/base/seal.h"
#include "common/base/settings.h"
#include "common/platform/client.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/stop.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/events.h"
#include "schemas/topics.h"

#include <stdlib.h>
#include <string.h>

enum { SCAN_IDLE_MS = 15000 };

/* Hands the records of one batch to fn; keys get their NUL in key_text. Returns fn's answer. */
static int hand_out(const pst_batch *b, const char *key, pst_buf *key_text, pst_record_fn fn, void *arg, pst_err *err)
{
    for (size_t i = 0; i < b->n; i++) {
        const pst_record *r = &b->records[i];
        pst_buf_clear(key_text);
        pst_buf_add(key_text, r->key ? r->key : "", r->key ? r->key_len : 0);
        if (key && strcmp(key, key_text->data))
            continue;
        int rc = fn(arg, key_text->data, r, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Reads each range to its end, once. A broker that answers nothing for SCAN_IDLE_MS is an outage; slow progress is none. */
static int scan_ranges(pst_client *c, const pst_range *ranges, size_t n, const char *key, pst_record_fn fn, void *arg, pst_err *err)
{
    pst_consumer *consumer = NULL;
    pst_buf key_text = {0};
    pst_consumer_opts opts = {.ranges = ranges, .n_ranges = n, .report_eof = true};
    int rc = pst_consumer_new(c->bus, &opts, &consumer, err);
    int64_t last = pst_mono_us();
    while (!rc) {
        pst_batch b;
        pst_err e = {0};
        rc = pst_consumer_poll(consumer, &(pst_poll){.records_max = 2000, .bytes_max = 4 << 20, .timeout_ms = 200}, &b, &e);
        if (rc < 0) {
            if (err && !err->code)
                *err = e;
            break;
        }
        if (b.n)
            last = pst_mono_us();
        rc = hand_out(&b, key, &key_text, fn, arg, err);
        if (rc || b.eof)
            break;
        if (pst_stop_requested())
            rc = pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "kafka", 0, "stopped");
        else if (pst_mono_us() - last > SCAN_IDLE_MS * 1000LL)
            rc = pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "kafka", 0, "%s: no answer from the brokers at %s for %d s%s%s",
                             ranges[0].topic, c->settings->bootstrap.value, SCAN_IDLE_MS / 1000, e.code ? ": " : "", e.text);
    }
    pst_consumer_free(consumer);
    pst_buf_done(&key_text);
    return rc > 0 ? 0 : rc;
}

int pst_client_scan(pst_client *c, pst_topic t, const char *key, pst_record_fn fn, void *arg, pst_err *err)
{
    return pst_client_scan_since(c, t, key, 0, fn, arg, err);
}

int pst_client_scan_since(pst_client *c, pst_topic t, const char *key, int64_t since_ms, pst_record_fn fn, void *arg, pst_err *err)
{
    pst_topic_info info = {0};
    int rc = pst_admin_topic(c->bus, c->topics[t], &info, 10000, err);
    if (rc < 0)
        return rc;
    size_t n = 0;
    pst_range *ranges = pst_alloc((size_t)(info.partitions + 1) * sizeof *ranges);
    /* The partition our producers and Java's choose; on the embedded cluster and for foreign producers it may be another: read all then. */
    int only = key && !c->settings->embedded ? (int)((pst_murmur2(key, strlen(key)) & 0x7fffffff) % (uint32_t)info.partitions) : -1;
    /* The first offset as a number: asking for "the beginning" costs librdkafka another half second while no leader is known. */
    for (int p = 0; p < info.partitions && !rc; p++) {
        int64_t from = info.low[p];
        if ((only >= 0 && p != only) || info.high[p] <= from)
            continue;
        if (since_ms > 0 && !c->settings->embedded) /* the in-memory cluster has no offsets by time */
            rc = pst_admin_offset_at(c->bus, c->topics[t], p, since_ms, &from, err);
        if (!rc && from < info.high[p])
            ranges[n++] = (pst_range){c->topics[t], p, from, info.high[p]};
    }
    if (n && !rc)
        rc = scan_ranges(c, ranges, n, key, fn, arg, err);
    free(ranges);
    pst_topic_info_done(&info);
    return rc;
}

int pst_client_state(pst_client *c, const char *key, const pst_record *r, pst_job_state *ret_state, pst_err *err)
{
    pst_err e = {0};
    int rc = pst_codec_decode(c->codec, &pst_job_state_type, r->value, r->value_len, r->timestamp_ms, ret_state, &e);
    bool foreign = rc == 0 && strcmp(ret_state->training_id, key) != 0;
    if (foreign)
        pst_event_clear(&pst_job_state_type, ret_state);
    if (foreign || (rc < 0 && e.cls == PST_CLASS_DATA)) {
        pst_log_limited(PST_LOG_WARN, "client", "state_ignored", "event=state_ignored topic=%s partition=%d offset=%lld reason=\"%s\"",
                        r->topic, r->partition, (long long)r->offset, foreign ? "its key is not its training_id" : e.text);
        return 1;
    }
    if (rc < 0 && err)
        *err = e;
    return rc;
}

static void job_free(void *p)
{
    if (p)
        pst_event_clear(&pst_job_state_type, p);
    free(p);
}

typedef struct gathering {
    pst_client *client;
    pst_map *jobs;
} gathering;

static int gather_job(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    gathering *g = arg;
    pst_job_state *s = r->value ? pst_alloc(sizeof *s) : NULL;
    int rc = s ? pst_client_state(g->client, key, r, s, err) : 0;
    if (rc) {
        free(s);
        return rc < 0 ? rc : 0;
    }
    if (s && s->state == PST_JOB_PUBLIC_STATE_UNKNOWN) { /* requests that wait for their submission */
        job_free(s);
        s = NULL;
    }
    if (s)
        pst_sealed_mask(s->manifest);
    job_free(s ? pst_map_put(g->jobs, key, s) : pst_map_take(g->jobs, key));
    return 0;
}

int pst_client_jobs(pst_client *c, pst_map *ret_jobs, pst_err *err)
{
    gathering g = {c, ret_jobs};
    int rc = pst_client_scan(c, PST_TOPIC_JOBS_STATE, NULL, gather_job, &g, err);
    if (rc < 0)
        pst_client_jobs_done(ret_jobs);
    return rc;
}

void pst_client_jobs_done(pst_map *jobs)
{
    pst_map_done(jobs, job_free);
    *jobs = (pst_map){0};
}

typedef struct latest {
    pst_client *client;
    pst_job_state *state;
    bool found;
} latest;

static int keep_latest(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    latest *l = arg;
    pst_job_state s = {0};
    int rc = r->value ? pst_client_state(l->client, key, r, &s, err) : 0;
    if (rc)
        return rc < 0 ? rc : 0;
    pst_event_clear(&pst_job_state_type, l->state);
    *l->state = s;
    l->found = r->value && s.state != PST_JOB_PUBLIC_STATE_UNKNOWN; /* requests that wait for their submission are no job */
    return 0;
}

int pst_client_job(pst_client *c, const char *training_id, pst_job_state *ret_state, pst_err *err)
{
    pst_job_state state = {0};
    latest l = {c, &state, false};
    int rc = pst_client_scan(c, PST_TOPIC_JOBS_STATE, training_id, keep_latest, &l, err);
    if (!rc && !l.found)
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "jobs", 0, "there is no job %s; `penstock list` shows what there is",
                         training_id);
    if (rc < 0)
        pst_event_clear(&pst_job_state_type, &state);
    else {
        pst_sealed_mask(state.manifest);
        *ret_state = state;
    }
    return rc;
}
