/* topic_data.c - a range of a Kafka topic as a file of JSON lines, for commands that know nothing of Kafka. Bounded: PST_TOPIC_DATA_MAX
 * bytes; what was left out is said in the job's log. */
#include "lcm/supervisor/run.h"

#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/retry.h"
#include "common/base/stop.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PST_TOPIC_DATA_MAX (2ll << 30)
#define METADATA_MS        30000
#define REGISTRY_WAIT_MS   500

typedef struct copy {
    sup_run *run;
    const pst_data_store *store;
    FILE *file;
    int64_t written, records, unreadable, nulls;
    bool full;
    char first_reason[200];
} copy;

/* A record that cannot be read is counted and left out: it is the user's topic, and one bad record is no reason to run nothing. */
static int copy_record(copy *c, const pst_record *rec, pst_err *err)
{
    json_t *j = NULL;
    int32_t id;
    pst_err why = {0};
    if (!rec->value) {
        c->nulls++;
        return 0;
    }
    int rc = pst_codec_to_json(c->run->client->codec, rec->value, rec->value_len, &j, &id, &why);
    if (rc < 0 && why.cls == PST_CLASS_RETRY) {
        if (err)
            *err = why;
        return rc;
    }
    if (rc < 0) {
        if (!c->unreadable++)
            snprintf(c->first_reason, sizeof c->first_reason, "%s[%d] offset %lld: %.120s", rec->topic, rec->partition,
                     (long long)rec->offset, why.text);
        return 0;
    }
    char *text = pst_json_text(j);
    size_t len = strlen(text);
    if (c->written + (int64_t)len + 1 > PST_TOPIC_DATA_MAX || (c->store->records_max && c->records >= c->store->records_max)) {
        c->full = true;
    } else if (fwrite(text, 1, len, c->file) != len || fputc('\n', c->file) == EOF) {
        rc = pst_err_sys(err, errno, "cannot write the records of %s", c->store->topic);
    } else {
        c->written += (int64_t)len + 1;
        c->records++;
    }
    free(text);
    json_decref(j);
    return rc < 0 ? rc : 0;
}

/* The partitions' ranges with the ends of now: a topic that is written to meanwhile does not make the job wait for ever. */
static int find_ranges(copy *c, pst_range **ret_ranges, size_t *ret_n, pst_err *err)
{
    pst_topic_info info;
    int rc = pst_admin_topic(c->run->client->bus, c->store->topic, &info, METADATA_MS, err);
    if (rc < 0)
        return rc;
    pst_range *ranges = pst_alloc(((size_t)info.partitions + 1) * sizeof *ranges);
    size_t n = 0;
    for (int p = 0; p < info.partitions; p++) {
        int64_t from = c->store->from < info.low[p] ? info.low[p] : c->store->from;
        int64_t to = c->store->to < 0 || c->store->to > info.high[p] ? info.high[p] : c->store->to;
        if (from < to)
            ranges[n++] = (pst_range){.topic = c->store->topic, .partition = p, .from = from, .to = to};
    }
    pst_topic_info_done(&info);
    *ret_ranges = ranges;
    *ret_n = n;
    return 0;
}

/* Up to the ends that the topic had when it began: a topic that goes on growing would never be done. */
static int copy_ranges(copy *c, const pst_range *ranges, size_t n, pst_err *err)
{
    pst_consumer *consumer;
    int rc =
        pst_consumer_new(c->run->client->bus, &(pst_consumer_opts){.ranges = ranges, .n_ranges = n, .report_eof = true}, &consumer, err);
    if (rc < 0)
        return rc;
    for (bool end = false; !rc && !end && !c->full;) {
        pst_batch b;
        pst_err outage = {0};
        if (pst_stop_requested()) {
            rc = PST_ESTOPPED;
            break;
        }
        rc = pst_consumer_poll(consumer, &(pst_poll){.records_max = 1000, .age_max_us = 20000, .timeout_ms = 200}, &b, &outage);
        if (rc < 0 && err)
            *err = outage;
        end = !rc && b.eof;
        for (size_t i = 0; !rc && i < b.n && !c->full;) {
            rc = copy_record(c, &b.records[i], err);
            bool away = rc < 0 && err->cls == PST_CLASS_RETRY;
            if (away)
                sup_status_trouble(c->run->status, err);
            if (away && pst_retry(NULL, err, REGISTRY_WAIT_MS)) /* the record waits */
                rc = 0;
            else
                i++;
        }
    }
    pst_consumer_free(consumer);
    return rc;
}

int sup_run_topic_data(sup_run *r, const pst_data_store *s, const char *dir, pst_err *err)
{
    if (!r->client)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "data", 0, "topic data need a broker");
    char *name = pst_sprintf("%s.jsonl", s->topic), *path = pst_fs_join(dir, name), *tmp = pst_sprintf("%s.new", path);
    copy c = {.run = r, .store = s, .file = fopen(tmp, "we")};
    pst_range *ranges = NULL;
    size_t n = 0;
    int rc = c.file ? find_ranges(&c, &ranges, &n, err) : pst_err_sys(err, errno, "cannot write %s", tmp);
    if (!rc && n)
        rc = copy_ranges(&c, ranges, n, err);
    if (c.file && fclose(c.file) != 0 && !rc)
        rc = pst_err_sys(err, errno, "cannot write %s", tmp);
    if (!rc && rename(tmp, path) < 0)
        rc = pst_err_sys(err, errno, "cannot put %s in place", path);
    if (!rc)
        sup_run_say(r, "%lld records of topic %s are in $DATA_DIR/%s%s", (long long)c.records, s->topic, name,
                    c.full && !s->records_max ? "; it ended there because 2 GiB were reached" : "");
    if (!rc && (c.unreadable || c.nulls))
        sup_run_say(r, "left out: %lld records that could not be read (first: %s), %lld without a value", (long long)c.unreadable,
                    c.unreadable ? c.first_reason : "none", (long long)c.nulls);
    free(ranges);
    free(tmp);
    free(path);
    free(name);
    return rc;
}
