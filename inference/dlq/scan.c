/* scan.c - ranges of partitions through one consumer without a group. A broker that says nothing for a while is an outage, and told; slow progress is
 * none. Ctrl-C ends it between two batches. */
#include "inference/dlq/scan.h"

#include "common/base/clock.h"
#include "common/base/settings.h"
#include "common/base/stop.h"

#include <stdlib.h>

enum { IDLE_MS = 30000, BATCH_RECORDS = 500, BATCH_BYTES = 4 << 20 };

static size_t ranges_of(const char *topic, const pst_topic_info *info, const dlq_filter *f, pst_range *ret)
{
    size_t n = 0;
    for (int p = 0; p < info->partitions; p++) {
        if (f->partition >= 0 && f->partition != p)
            continue;
        int64_t from = f->from > info->low[p] ? f->from : info->low[p], to = f->to < info->high[p] ? f->to + 1 : info->high[p];
        if (from < to)
            ret[n++] = (pst_range){topic, p, from, to};
    }
    return n;
}

static int read_all(const pst_client *c, const char *topic, pst_consumer *consumer, dlq_batch_fn fn, void *arg, pst_err *err)
{
    int64_t last = pst_mono_us();
    for (int rc = 0;;) {
        pst_batch b;
        pst_err e = {0};
        rc = pst_consumer_poll(consumer, &(pst_poll){.records_max = BATCH_RECORDS, .bytes_max = BATCH_BYTES, .timeout_ms = 200}, &b, &e);
        if (rc < 0) {
            *err = e;
            return rc;
        }
        if (b.n) {
            rc = fn(arg, b.records, b.n, err);
            last = pst_mono_us();
        }
        if (rc || b.eof)
            return rc < 0 ? rc : 0;
        if (pst_stop_requested())
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "kafka", 0, "stopped");
        if (pst_mono_us() - last > IDLE_MS * 1000LL)
            return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "kafka", 0,
                               "%s: no answer from the brokers at %s for %d s%s%s; an open transaction of its writer looks the same", topic,
                               c->settings->bootstrap.value, IDLE_MS / 1000, e.code ? ": " : "", e.text);
    }
}

int dlq_scan(const pst_client *c, const char *topic, const pst_topic_info *info, const dlq_filter *f, dlq_batch_fn fn, void *arg,
             pst_err *err)
{
    if (f->partition >= info->partitions)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_FATAL, "kafka", 0, "%s has partitions 0 to %d, not %d", topic,
                           info->partitions - 1, f->partition);
    pst_range *ranges = pst_alloc(((size_t)info->partitions + 1) * sizeof *ranges);
    pst_consumer *consumer = NULL;
    pst_consumer_opts o = {.ranges = ranges, .n_ranges = ranges_of(topic, info, f, ranges), .report_eof = true};
    int rc = o.n_ranges ? pst_consumer_new(c->bus, &o, &consumer, err) : 0;
    if (!rc && consumer)
        rc = read_all(c, topic, consumer, fn, arg, err);
    pst_consumer_free(consumer);
    free(ranges);
    return rc;
}
