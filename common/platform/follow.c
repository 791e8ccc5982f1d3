/* follow.c - a consumer over ranges, without a group: whoever follows a job commits nothing and disturbs nobody. The job's partition is
 * computed as its producers do, the offset to begin with is asked for by time; a read to the present end has ranges with an end. */
#include "common/platform/follow.h"
#include "common/base/settings.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <stdlib.h>
#include <string.h>

enum { RANGES_MAX = 512, LAST_RECORDS_US = 700000 };

typedef struct run {
    const pst_follow *f;
    pst_range ranges[RANGES_MAX];
    size_t n;
    bool ended;
    int64_t ended_mono_us;
} run;

int pst_partition_of(const pst_client *c, const char *key, int partitions)
{
    return c->settings->embedded || partitions < 1 ? -1 : (int)((pst_murmur2(key, strlen(key)) & 0x7fffffff) % (uint32_t)partitions);
}

static int add_topic(run *r, pst_topic t, bool bounded, pst_err *err)
{
    pst_client *c = r->f->client;
    pst_topic_info info = {0};
    const char *name = pst_client_topic(c, t);
    int rc = pst_admin_topic(c->bus, name, &info, 10000, err);
    int only = rc ? -1 : pst_partition_of(c, r->f->training_id, info.partitions);
    for (int p = 0; !rc && p < info.partitions && r->n < RANGES_MAX; p++) {
        if (only >= 0 && p != only)
            continue;
        int64_t from = PST_OFFSET_BEGINNING, at;
        /* The in-memory cluster knows no offsets by time. */
        if (r->f->since_us > 0 && !c->settings->embedded && pst_admin_offset_at(c->bus, name, p, r->f->since_us / 1000, &at, NULL) == 0) {
            if (at >= 0)
                from = at;
            else if (bounded) /* no record is as recent: an empty range */
                from = info.high[p];
        }
        if (!bounded || info.high[p] > info.low[p])
            r->ranges[r->n++] = (pst_range){name, p, from, bounded ? info.high[p] : -1};
    }
    pst_topic_info_done(&info);
    return rc;
}

static bool is_end(pst_job_public_state s)
{
    return s == PST_JOB_PUBLIC_STATE_COMPLETED || s == PST_JOB_PUBLIC_STATE_FAILED || s == PST_JOB_PUBLIC_STATE_HALTED ||
           s == PST_JOB_PUBLIC_STATE_TERMINATED || s == PST_JOB_PUBLIC_STATE_REJECTED;
}

static void watch_end(run *r, const pst_record *rec)
{
    pst_job_event e;
    if (pst_codec_decode(r->f->client->codec, &pst_job_event_type, rec->value, rec->value_len, rec->timestamp_ms, &e, NULL) < 0)
        return;
    r->ended = is_end(e.state) || e.type == PST_JOB_EVENT_TYPE_DELETED;
    r->ended_mono_us = pst_mono_us();
    pst_event_clear(&pst_job_event_type, &e);
}

static int hand_out(run *r, const pst_batch *b, pst_err *err)
{
    const char *id = r->f->training_id, *wanted = pst_client_topic(r->f->client, r->f->topic);
    const char *events = pst_client_topic(r->f->client, PST_TOPIC_JOBS_EVENTS);
    pst_err e = {0};
    int rc = 0;
    for (size_t i = 0; i < b->n && !rc; i++) {
        const pst_record *rec = &b->records[i];
        if (!rec->value || rec->key_len != strlen(id) || memcmp(rec->key, id, rec->key_len))
            continue;
        if (r->f->follow && !strcmp(rec->topic, events))
            watch_end(r, rec);
        if (!strcmp(rec->topic, wanted))
            rc = r->f->fn(r->f->arg, rec, &e);
        if (rc < 0 && e.cls == PST_CLASS_DATA) { /* whoever may write there cannot end what others read */
            pst_log_limited(PST_LOG_WARN, "client", "record_ignored",
                            "event=record_ignored topic=%s partition=%d offset=%lld reason=\"%s\"", rec->topic, rec->partition,
                            (long long)rec->offset, e.text);
            pst_err_clear(&e);
            rc = 0;
        }
    }
    if (rc < 0 && err)
        *err = e;
    return rc;
}

int pst_follow_run(const pst_follow *f, pst_err *err)
{
    run *r = pst_alloc(sizeof *r);
    pst_consumer *c = NULL;
    r->f = f;
    int rc = add_topic(r, f->topic, !f->follow, err);
    if (!rc && f->follow && f->topic != PST_TOPIC_JOBS_EVENTS)
        rc = add_topic(r, PST_TOPIC_JOBS_EVENTS, false, err);
    if (!rc && r->n)
        rc = pst_consumer_new(f->client->bus, &(pst_consumer_opts){.ranges = r->ranges, .n_ranges = r->n, .report_eof = true}, &c, err);
    int64_t begin = pst_mono_us();
    PST_ASSERT(rc || !r->n || c);
    while (!rc && r->n) {
        pst_batch b;
        rc = pst_consumer_poll(c, &(pst_poll){.records_max = 2000, .bytes_max = 4 << 20, .timeout_ms = 100}, &b, err);
        if (!rc)
            rc = hand_out(r, &b, err);
        if (rc || (!f->follow && b.eof) || (f->stop && *f->stop))
            break;
        if (f->follow && f->to_the_end_of_job && r->ended && b.eof && pst_mono_us() - r->ended_mono_us > LAST_RECORDS_US)
            break;
        if (pst_stop_requested())
            rc = pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "kafka", 0, "stopped");
        else if (f->timeout_us && pst_mono_us() - begin > f->timeout_us)
            rc = pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_RETRY, "kafka", 0, "nothing within the time limit");
    }
    pst_consumer_free(c);
    free(r);
    return rc > 0 ? 0 : rc;
}
