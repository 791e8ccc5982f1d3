/* topic_newest.c - the newest records of a topic. Offsets are not records: compaction, control records and deleted ends leave gaps, so a share may hold fewer
 * records than offsets, or none; the end of each partition ends the look all the same. */
#include "inference/run/topic_newest.h"
#include "common/base/settings.h"

#include "common/base/clock.h"
#include "common/base/stop.h"

#include <stdlib.h>

static size_t shares(const pst_topic_info *info, int most, pst_range *ranges)
{
    enum { LEAST = 4 }; /* the last offset of a partition may be a marker of a transaction */
    int64_t each = most / info->partitions > LEAST ? most / info->partitions : LEAST;
    size_t n = 0;
    for (int p = 0; p < info->partitions; p++) {
        int64_t from = info->high[p] - each > info->low[p] ? info->high[p] - each : info->low[p];
        if (from < info->high[p])
            ranges[n++] = (pst_range){info->name, p, from, info->high[p]};
    }
    return n;
}

static int read_shares(pst_client *c, const pst_range *ranges, size_t n, int timeout_ms, score_newest_fn fn, void *arg, pst_err *err)
{
    pst_consumer *consumer = NULL;
    pst_consumer_opts opts = {.ranges = ranges, .n_ranges = n, .report_eof = true, .read_uncommitted = true};
    int rc = pst_consumer_new(c->bus, &opts, &consumer, err);
    int64_t until = pst_mono_us() + timeout_ms * 1000LL;
    bool over = false;
    while (rc == 0 && !over) {
        pst_batch b;
        pst_err e = {0};
        rc = pst_consumer_poll(consumer, &(pst_poll){.records_max = 100, .bytes_max = 1 << 20, .timeout_ms = 200}, &b, &e);
        if (rc < 0 && err)
            *err = e;
        for (size_t i = 0; rc == 0 && i < b.n; i++)
            rc = fn(arg, &b.records[i], err);
        over = rc == 0 && b.eof;
        if (rc == 0 && !over && pst_stop_requested())
            rc = pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "kafka", 0, "stopped");
        if (rc == 0 && !over && pst_mono_us() > until)
            rc = pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "kafka", 0, "%s: no answer from the brokers at %s for %d s%s%s",
                             ranges[0].topic, c->settings->bootstrap.value, timeout_ms / 1000, e.code ? ": " : "", e.text);
    }
    pst_consumer_free(consumer);
    return rc > 0 ? 0 : rc;
}

int score_topic_newest(pst_client *c, const char *topic, int most, int timeout_ms, score_newest_fn fn, void *arg, pst_err *err)
{
    pst_topic_info info = {0};
    int rc = pst_admin_topic(c->bus, topic, &info, timeout_ms, err);
    if (rc < 0)
        return rc;
    pst_range *ranges = pst_alloc((size_t)(info.partitions + 1) * sizeof *ranges);
    size_t n = shares(&info, most, ranges);
    if (n)
        rc = read_shares(c, ranges, n, timeout_ms, fn, arg, err);
    free(ranges);
    pst_topic_info_done(&info);
    return rc;
}
