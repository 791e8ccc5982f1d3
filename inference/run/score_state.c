/* score_state.c - the state of a pipeline with windows, on Kafka: its compacted topic, which has the input's partitions, is written in each round's own
 * transaction and read before the first record of a partition is used.
 *
 *     partition comes ─ end of its changelog asked for ─ read, read committed, to there ─ its records are used
 *     round           ─ … ─ one record a key that changed ─ commit ─ settled        (or: taken back, as the round is)
 *
 * The end is asked for without regard to open transactions: one that a predecessor committed may still be waiting for its marker in this topic when that of the
 * offsets is there already, and a reader of committed records would stop before it. Partitions that are taken away are forgotten and read anew when they come
 * back; whoever had them meanwhile has written. */
#include "inference/run/score_priv.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdlib.h>
#include <string.h>

enum { ASK_MS = 15000, POLL_MS = 100, TELL_US = 2000000, TOO_LARGE_MAX = 4096 };

/* ---- the topic ------------------------------------------------------------------------------------------------------------- */

static int look_at_topic(scorer *s, const char *topic)
{
    pst_topic_info info = {0};
    char *policy = NULL;
    int rc = pst_admin_topic(s->client->bus, topic, &info, ASK_MS, &s->err);
    s->state_partitions = info.partitions;
    pst_topic_info_done(&info);
    if (rc == PST_ENOTFOUND) /* it was just made */
        s->err.cls = PST_CLASS_RETRY;
    if (rc < 0)
        return rc;
    if (s->state_partitions != s->inputs[0].partitions)
        return pst_err_set(
            &s->err, PST_EINVAL, PST_CLASS_FATAL, "state", 0,
            "topic %s has %d partitions and the input %s has %d: windows are kept by the input's partitions, and keys have moved; "
            "give state.topic another name, where windows begin anew",
            topic, s->state_partitions, s->inputs[0].name, s->inputs[0].partitions);
    bool known = pst_admin_topic_config(s->client->bus, topic, "cleanup.policy", &policy, ASK_MS, NULL) == 0;
    if (known && strcmp(policy, "compact") != 0)
        rc = pst_err_set(
            &s->err, PST_EINVAL, PST_CLASS_FATAL, "state", 0,
            "topic %s has cleanup.policy=%.40s, which deletes the state of keys that are silent; set it to compact, or give state.topic "
            "another name",
            topic, policy);
    free(policy);
    return rc;
}

int scorer_state_topic(scorer *s)
{
    static const char *const configs[] = {"cleanup.policy", "compact", NULL};
    const char *topic = s->p->state.topic;
    pst_err e = {0};
    if (!s->p->state.there)
        return 0;
    pst_topic_spec spec = {.name = topic, .partitions = s->inputs[0].partitions, .replication = -1, .configs = configs};
    int rc = pst_admin_create_topics(s->client->bus, &spec, 1, ASK_MS, &e);
    if (rc < 0 && e.cls == PST_CLASS_RETRY) {
        s->err = e;
        return rc;
    }
    if (rc < 0) /* no right to create: it may well exist */
        pst_log(PST_LOG_WARN, "score", "event=topic_not_created topic=%s error=\"%s\"", topic, e.text);
    return look_at_topic(s, topic);
}

/* ---- restore --------------------------------------------------------------------------------------------------------------- */

typedef struct restore {
    scorer *s;
    int32_t partition;
    pst_keyed *into;
    int64_t end, at, records, begun_us, told_us;
} restore;

/* The group is served meanwhile. False: partitions were taken away, or we are told to stop, and what is in hand is void. */
static int serve(restore *r, pst_err *err)
{
    scorer *s = r->s;
    char why[200];
    int rc = pst_consumer_serve(s->consumer, 0, &s->state_lost, err);
    if (rc == 0 && pst_stop_requested())
        rc = pst_err_set(err, PST_ESTOPPED, PST_CLASS_RETRY, "state", 0, "told to stop");
    snprintf(why, sizeof(why), "the windows of partition %d are read from topic %s: offset %lld of %lld", r->partition, s->p->state.topic,
             (long long)r->at, (long long)r->end);
    score_stats_wait(s->stats, PST_WAIT_STATE, "state", why);
    if (pst_mono_us() - r->told_us > TELL_US) {
        r->told_us = pst_mono_us();
        pst_log(PST_LOG_INFO, "score", "event=state_restoring pipeline=%s partition=%d offset=%lld end=%lld records=%lld", s->p->name,
                r->partition, (long long)r->at, (long long)r->end, (long long)r->records);
    }
    return rc;
}

static int64_t position(pst_consumer *c)
{
    pst_range at;
    return pst_consumer_assignment(c, &at, 1) == 1 ? at.from : -1;
}

/* Reads until a partition's end, or, with r->into, until r->end. */
static int read_on(restore *r, pst_consumer *c, pst_err *err)
{
    for (;;) {
        pst_batch b = {0};
        pst_err e = {0};
        int rc = pst_consumer_poll(c, &(pst_poll){.records_max = 1000, .bytes_max = 4 << 20, .timeout_ms = POLL_MS}, &b, &e);
        if (rc < 0) {
            *err = e;
            return rc;
        }
        for (size_t i = 0; r->into && i < b.n; i++) {
            const pst_record *x = &b.records[i];
            rc = pst_keyed_restore(r->into, (pst_slice){x->key ? x->key : "", x->key_len}, (pst_slice){x->value, x->value_len}, err);
            if (rc < 0) {
                pst_err_prefix(err, "%s[%d]@%lld", x->topic, x->partition, (long long)x->offset);
                return rc;
            }
            r->records++;
        }
        int64_t at = position(c);
        r->at = at >= 0 ? at : r->at;
        if (r->into ? at >= r->end : b.eof && at >= 0)
            return 0;
        if ((rc = serve(r, err)) < 0 || r->s->state_lost)
            return rc;
    }
}

static int read_partition(restore *r, bool whole, pst_err *err)
{
    scorer *s = r->s;
    pst_consumer *c = NULL;
    pst_range range = {s->p->state.topic, r->partition, whole ? PST_OFFSET_BEGINNING : PST_OFFSET_END, -1};
    pst_consumer_opts o = {.ranges = &range, .n_ranges = 1, .report_eof = true, .read_uncommitted = !whole};
    int rc = pst_consumer_new(s->conf, &o, &c, err);
    if (rc == 0)
        rc = read_on(r, c, err);
    pst_consumer_free(c);
    return rc;
}

/* What cannot be read is no reason to begin anew in silence: the partition waits for somebody who decides. */
static int blame(const scorer *s, int rc, pst_err *err)
{
    if (err->cls != PST_CLASS_DATA)
        return rc;
    err->cls = s->opts->exit_on_eof || s->opts->records_max ? PST_CLASS_DATA : PST_CLASS_RETRY;
    pst_err e = *err;
    pst_err_clear(err);
    return pst_err_set(err, PST_ESTATE, e.cls, "state", 0,
                       "%.300s; give state.topic another name, where windows begin anew, or undo the change", e.text);
}

static int restore_partition(scorer *s, int32_t partition, pst_err *err)
{
    pst_windowed *w = pst_score_core_windowed(s->core);
    restore r = {.s = s, .partition = partition, .begun_us = pst_mono_us(), .told_us = pst_mono_us()};
    int rc = pst_consumer_pause(s->consumer, true);
    if (rc == 0 && (rc = read_partition(&r, false, err)) == 0 && !s->state_lost) {
        r.end = r.at;
        r.at = 0;
        r.into = pst_windowed_add(w, partition);
        rc = r.end ? read_partition(&r, true, err) : 0;
    }
    int back = pst_consumer_pause(s->consumer, false);
    score_stats_wait(s->stats, PST_WAIT_STATE, NULL, NULL);
    if (rc == 0 && back < 0)
        rc = pst_err_set(err, back, PST_CLASS_FATAL, "kafka", 0, "cannot resume the consumer");
    if (rc < 0 || s->state_lost) {
        pst_windowed_drop(w, partition);
        return rc < 0 ? blame(s, rc, err) : rc;
    }
    pst_log(PST_LOG_INFO, "score", "event=state_restored pipeline=%s partition=%d keys=%zu records=%lld end=%lld ms=%lld", s->p->name,
            partition, pst_keyed_count(r.into).keys, (long long)r.records, (long long)r.end,
            (long long)(pst_mono_us() - r.begun_us) / 1000);
    return 0;
}

/* ---- records --------------------------------------------------------------------------------------------------------------- */

bool scorer_state_is_old(scorer *s)
{
    uint64_t epoch = pst_consumer_epoch(s->consumer);
    if (!s->p->state.there || (epoch == s->state_epoch && !s->state_lost))
        return false;
    if (!s->round.open) {
        pst_windowed_drop_all(pst_score_core_windowed(s->core));
        s->state_epoch = epoch;
        s->state_lost = false;
    }
    return s->round.open;
}

bool scorer_state_lacks(const scorer *s, const pst_record *records, size_t n)
{
    const pst_windowed *w = pst_score_core_windowed(s->core);
    for (size_t i = 0; w && i < n; i++)
        if (!pst_windowed_at(w, records[i].partition))
            return true;
    return false;
}

int scorer_state_ready(scorer *s, const pst_record *r, pst_err *err)
{
    pst_windowed *w = pst_score_core_windowed(s->core);
    bool ends = s->opts->exit_on_eof || s->opts->records_max;
    if (!w)
        return 0;
    if (s->inputs[0].partitions != s->state_partitions)
        return pst_err_set(
            err, PST_ESTATE, ends ? PST_CLASS_DATA : PST_CLASS_RETRY, "state", 0,
            "the input %s has grown to %d partitions, its state topic %s has %d: keys have moved to other partitions, without their "
            "windows; give state.topic another name, where windows begin anew",
            r->topic, s->inputs[0].partitions, s->p->state.topic, s->state_partitions);
    const pst_keyed *k = pst_windowed_at(w, r->partition);
    int rc = k ? 0 : restore_partition(s, r->partition, err);
    if (rc < 0 || s->state_lost)
        return rc;
    k = pst_windowed_at(w, r->partition);
    return r->offset > pst_keyed_offset(k)
               ? 0
               : pst_err_set(err, PST_ESTATE, ends ? PST_CLASS_DATA : PST_CLASS_RETRY, "state", 0,
                             "%s[%d]@%lld is in the windows already, which have the records up to offset %lld: the group was set back, or "
                             "the topic "
                             "made anew; give state.topic another name, where windows begin anew, or set the group forward",
                             r->topic, r->partition, (long long)r->offset, (long long)pst_keyed_offset(k));
}

void scorer_state_undo_from(scorer *s, const pst_record *r)
{
    pst_keyed *k = pst_windowed_at(pst_score_core_windowed(s->core), r->partition);
    if (k)
        pst_keyed_undo(k, r->offset);
}

bool scorer_state_too_large(const scorer *s, const pst_record *r)
{
    for (size_t i = 0; i < s->n_too_large; i++)
        if (s->too_large[i].partition == r->partition && s->too_large[i].offset == r->offset)
            return true;
    return false;
}

void scorer_state_note_too_large(scorer *s, const pst_record *r)
{
    if (!s->too_large)
        s->too_large = pst_alloc(TOO_LARGE_MAX * sizeof(*s->too_large));
    if (s->n_too_large == TOO_LARGE_MAX) {
        s->n_too_large--;
        memmove(s->too_large, s->too_large + 1, s->n_too_large * sizeof(*s->too_large));
    }
    s->too_large[s->n_too_large].partition = r->partition;
    s->too_large[s->n_too_large++].offset = r->offset;
}

/* ---- rounds ---------------------------------------------------------------------------------------------------------------- */

static int send_partition(scorer *s, int32_t partition, pst_keyed *k)
{
    pst_slice key, value;
    for (size_t i = 0; pst_keyed_change(k, i, &key, &value); i++) {
        pst_out out = {.topic = s->p->state.topic,
                       .partition = partition,
                       .key = key.data,
                       .key_len = key.len,
                       .value = value.data,
                       .value_len = value.len};
        int rc = pst_txn_send(s->txn, &out, &s->err);
        if (rc == PST_ELIMIT && s->err.cls == PST_CLASS_DATA) {
            pst_txn_forget_limit(s->txn, out.topic);
            pst_err_clear(&s->err);
            return pst_err_set(&s->err, PST_ELIMIT, PST_CLASS_FATAL, "state", 0,
                               "the windows of a key have %zu bytes, which topic %s does not take; raise its max.message.bytes to 1000000",
                               value.len, out.topic);
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

int scorer_state_send(scorer *s)
{
    const pst_windowed *w = pst_score_core_windowed(s->core);
    int32_t partition;
    pst_keyed *k;
    int rc = 0;
    for (size_t i = 0; rc == 0 && (k = pst_windowed_each(w, i, &partition)); i++)
        rc = send_partition(s, partition, k);
    return rc;
}

void scorer_state_committed(scorer *s)
{
    pst_windowed *w = pst_score_core_windowed(s->core);
    if (!w)
        return;
    pst_windowed_settle(w);
    pst_keyed_counts now = pst_windowed_count(w), *was = &s->state_counts;
    pst_metric_set(s->stats->state_keys, (double)now.keys);
    pst_metric_set(s->stats->state_bytes, (double)now.bytes);
    pst_metric_add(s->stats->state_forgotten, (double)(now.forgotten - was->forgotten));
    pst_metric_add(s->stats->window_cut, (double)(now.cut - was->cut));
    if (now.forgotten > was->forgotten)
        pst_log_limited(
            PST_LOG_WARN, "score", "state_full",
            "event=state_full pipeline=%s forgotten=%llu keys=%zu bytes=%zu why=\"a partition has more keys than state.keys_max, or "
            "more bytes than state.bytes_max: the keys that were used longest ago begin anew\"",
            s->p->name, (unsigned long long)now.forgotten, now.keys, now.bytes);
    if (now.cut > was->cut)
        pst_log_limited(
            PST_LOG_WARN, "score", "window_cut",
            "event=window_cut pipeline=%s values=%llu why=\"a key has more values in a window of seconds than state.values_max: the "
            "window has the newest\"",
            s->p->name, (unsigned long long)now.cut);
    *was = now;
}

void scorer_state_undo(scorer *s)
{
    pst_windowed_undo(pst_score_core_windowed(s->core));
}

void scorer_state_forget(scorer *s)
{
    scorer_state_undo(s);
    pst_windowed_drop_all(pst_score_core_windowed(s->core));
    s->state_epoch = UINT64_MAX;
    s->state_lost = false;
}
