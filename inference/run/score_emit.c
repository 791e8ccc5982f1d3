/* score_emit.c - records out: scores, tombstones, dead letters, shadow scores. A record either leaves whole or not at all: every part of it was
 * encoded, by the core, before the first is sent. */
#include "inference/run/score_priv.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/platform/codec.h"
#include "schemas/events.h"

#include <string.h>

enum { SILENT_US = 60000000 };

/* ---- records out ----------------------------------------------------------------------------------------------------------- */

static score_input_topic *input_of(const scorer *s, const pst_record *r)
{
    PST_ASSERT(r->topic_index < s->p->n_topics); /* the consumer was told the pipeline's topics, in their order */
    return &s->inputs[r->topic_index];
}

static char *put_number(char *to, int64_t v)
{
    char digits[24];
    size_t n = 0;
    do
        digits[n++] = (char)('0' + v % 10);
    while ((v /= 10) > 0);
    while (n)
        *to++ = digits[--n];
    return to;
}

/* The input's headers, all of them. Where the value does not say where the record comes from (slim, tombstones) and a record may come twice
 * (at least once), its identity goes into x-src; only there, since a header costs librdkafka more than all of the scoring. */
static void out_headers(scorer *s, const pst_record *r, bool value_tells, char *src, pst_out *out)
{
    size_t n = 0, have = pst_record_headers_all(r, &s->headers, 1);
    pst_header *h = s->headers.at;
    for (size_t i = 0; i < have; i++)
        if (strcmp(h[i].name, "x-src") != 0)
            h[n++] = h[i];
    out->headers = h;
    out->n_headers = n;
    if (value_tells || s->p->exactly_once)
        return;
    size_t topic = strlen(r->topic);
    memcpy(src, r->topic, topic);
    char *end = src + topic;
    *end++ = '/';
    end = put_number(end, r->partition);
    *end++ = '/';
    end = put_number(end, r->offset);
    h[out->n_headers++] = (pst_header){"x-src", src, (size_t)(end - src)};
}

/* A letter that its topic does not take as it is waits until the topic takes it: cut, it would be lost. The setting is read again each time,
 * since raising it is the cure. */
static int too_large_for_letters(scorer *s, const pst_record *r, const char *topic, const pst_err *why)
{
    pst_txn_forget_limit(s->txn, topic);
    return pst_err_set(
        &s->err, PST_ELIMIT, PST_CLASS_RETRY, "kafka", why->native,
        "%s[%d]@%lld cannot be scored, and its %zu bytes do not fit into the dead-letter topic %s; raise max.message.bytes of "
        "that topic: %.200s",
        r->topic, r->partition, (long long)r->offset, r->value_len, topic, why->text);
}

static int send_dead_letter(scorer *s, const pst_record *r, const char *stage, const char *reason, const char *message)
{
    pst_out out;
    score_input_topic *in = input_of(s, r);
    const char *topic = in->dlq;
    bool own_time = false;
    int rc = scorer_letter_own_time(s, r, in, &own_time);
    if (rc < 0)
        return rc;
    pst_dead_letter d = {.record = r, .component = s->p->name, .stage = stage, .reason = reason, .message = message, .own_time = own_time};
    pst_dead_letter_out(&d, topic, &s->headers, &s->texts, &out);
    pst_err e = {0};
    rc = pst_txn_send(s->txn, &out, &e);
    if (rc == PST_ELIMIT && e.cls == PST_CLASS_DATA)
        return too_large_for_letters(s, r, topic, &e);
    if (rc < 0) {
        s->err = e;
        return rc;
    }
    score_round_dead(&s->round, stage, reason);
    pst_log(PST_LOG_DEBUG, "score", "event=dead_letter pipeline=%s topic=%s partition=%d offset=%lld stage=%s reason=%s why=\"%s\"",
            s->p->name, r->topic, r->partition, (long long)r->offset, stage, reason, message);
    return 0;
}

/* Nearly everything is bad: something is wrong with the pipeline, not with the records. It keeps its place here until it is told otherwise: by
 * a model of another version, a new spec or a new start. A run that nobody watches ends. */
static int enough_letters(scorer *s, const char *stage, const char *reason, const char *message)
{
    bool ends = s->opts->exit_on_eof || s->opts->records_max;
    return pst_err_set(
        &s->err, PST_ESTATE, ends ? PST_CLASS_DATA : PST_CLASS_RETRY, "score", 0,
        "paused by dead letters: %lld records in a row could not be scored, the last one: %s (%s): %.200s; mend the pipeline or "
        "its input and apply it again, or set errors.pause_after",
        (long long)s->p->pause_after, reason, stage, message);
}

static int bad_record(scorer *s, const pst_record *r, const char *stage, const char *reason, const char *message)
{
    if (!s->p->tolerance_none && s->p->pause_after && score_round_dead_row(&s->round) >= (uint64_t)s->p->pause_after)
        return enough_letters(s, stage, reason, message);
    if (!s->p->tolerance_none)
        return send_dead_letter(s, r, stage, reason, message);
    return pst_err_set(&s->err, PST_EPARSE, PST_CLASS_DATA, "score", 0,
                       "%s[%d]@%lld: %s (%s): %s; errors.tolerance is none, so the pipeline stops here", r->topic, r->partition,
                       (long long)r->offset, reason, stage, message);
}

static int send_value(scorer *s, const pst_fate *f, bool shadow)
{
    char src[320];
    const pst_record *r = f->record;
    const pst_slice value = pst_score_core_value(s->core, f, shadow);
    const score_input_topic *in = input_of(s, r);
    pst_out out = {.topic = shadow ? s->p->shadow_topic : s->p->output_topic,
                   .partition = in->partitions == s->output_partitions && !shadow ? r->partition : -1,
                   .key = r->key,
                   .key_len = r->key_len,
                   .value = value.data,
                   .value_len = value.len,
                   .timestamp_ms = r->timestamp_ms > 0 ? r->timestamp_ms : 0};
    out_headers(s, r, !s->p->slim, src, &out);
    int rc = value.len > s->score_bytes_max
                 ? pst_err_set(&s->err, PST_ELIMIT, PST_CLASS_DATA, "score", 0, "topic %s: a score of %zu bytes is larger than %zu",
                               out.topic, value.len, s->score_bytes_max)
                 : pst_txn_send(s->txn, &out, &s->err);
    s->round.bytes += value.len;
    return rc;
}

static int send_tombstone(scorer *s, const pst_record *r)
{
    char src[320];
    const score_input_topic *in = input_of(s, r);
    pst_out out = {.topic = s->p->output_topic,
                   .partition = in->partitions == s->output_partitions ? r->partition : -1,
                   .key = r->key,
                   .key_len = r->key_len,
                   .timestamp_ms = r->timestamp_ms > 0 ? r->timestamp_ms : 0};
    out_headers(s, r, false, src, &out);
    return pst_txn_send(s->txn, &out, &s->err);
}

/* A shadow's score that is too large is nobody's loss, and what has nowhere to go is left out, said once, and counted. */
static int send_shadow(scorer *s, const pst_fate *f)
{
    const char *device_why = pst_score_core_shadow_why(s->core);
    s->round.shadow_skipped += f->shadow_skipped;
    if (f->shadow_skipped && !s->shadow_skipped++)
        pst_log_limited(PST_LOG_WARN, "score", "shadow_skipped", "event=shadow_skipped pipeline=%s topic=%s why=\"%s\"", s->p->name,
                        s->p->shadow_topic, *device_why ? device_why : s->shadow_why.text);
    if (!f->shadowed)
        return 0;
    if (scorer_shadow_is_refused(s, f->record)) {
        pst_log_limited(PST_LOG_WARN, "score", "shadow_refused", "event=shadow_refused pipeline=%s topic=%s", s->p->name,
                        s->p->shadow_topic);
        s->round.shadow_skipped++;
        return 0;
    }
    s->shadow_skipped = 0;
    s->round.shadowed++;
    s->round.disagreed += f->disagrees;
    int rc = send_value(s, f, true);
    if (rc == PST_ELIMIT && s->err.cls == PST_CLASS_DATA) {
        pst_err_clear(&s->err);
        s->round.shadow_skipped++;
        rc = 0;
    }
    return rc;
}

static int emit_score(scorer *s, const pst_fate *f)
{
    int rc = send_value(s, f, false);
    if (rc == PST_ELIMIT && s->err.cls == PST_CLASS_DATA) {
        pst_err e = s->err;
        pst_err_clear(&s->err);
        if (f->entered) {
            scorer_state_note_too_large(s, f->record);
            return pst_err_set(&s->err, PST_EAGAIN, PST_CLASS_RETRY, "score", 0, "%.200s, so its record is to enter no window", e.text);
        }
        return bad_record(s, f->record, "PRODUCE", "too-large", e.text);
    }
    if (rc < 0)
        return rc;
    score_round_scored(&s->round);
    s->round.anomalies += f->above;
    score_round_seen(&s->round, f);
    return send_shadow(s, f);
}

static int emit(scorer *s, const pst_fate *f)
{
    bool sends = f->kind == PST_FATE_SCORED || f->kind == PST_FATE_TOMBSTONE;
    char why[512];
    if (sends && scorer_is_refused(s, f->record, why, sizeof(why)))
        return bad_record(s, f->record, "PRODUCE", "refused", why);
    switch (f->kind) {
    case PST_FATE_SCORED: return emit_score(s, f);
    case PST_FATE_TOMBSTONE: {
        int rc = send_tombstone(s, f->record);
        s->round.tombstones += rc == 0;
        return rc;
    }
    case PST_FATE_SKIP: s->round.skipped++; return 0;
    case PST_FATE_BAD: return bad_record(s, f->record, f->stage, f->reason, pst_score_core_message(s->core, f));
    case PST_FATE_OPEN: break;
    }
    PST_ASSERT(!"a record without a fate");
    return 0;
}

int scorer_emit(scorer *s, const pst_fate *f)
{
    int rc = emit(s, f);
    uint64_t assignment = pst_consumer_epoch(s->consumer);
    if (assignment != s->assignment) { /* the last word on these partitions may be somebody else's */
        score_reports_forget(s->reports);
        s->assignment = assignment;
    }
    if (rc == 0) {
        s->round.non_finite += f->non_finite; /* whatever policy made of it */
        scorer_canary_had(s, f);
        scorer_drift_had(s, f);
        score_reports_record(s->reports, f, f->by ? NULL : pst_score_core_primary_of(s->core, f->record));
    }
    return rc;
}

int scorer_may_report(scorer *s)
{
    if (!score_reports_wanted(s->reports))
        return 0;
    pst_model_event e = {.name = (char *)"", .digest = (char *)"", .uri = (char *)"", .format = (char *)"", .actor = (char *)""};
    pst_buf value = {0};
    pst_err err = {0};
    int rc = pst_codec_encode(s->client->codec, &pst_model_event_type, pst_client_topic(s->client, PST_TOPIC_MODELS), &e, &value, &err);
    pst_buf_done(&value);
    if (rc == 0 || err.cls == PST_CLASS_RETRY) {
        if (rc < 0 && !s->err.code)
            s->err = err;
        return rc;
    }
    pst_log_limited(PST_LOG_WARN, "score", "model_not_recorded", "event=model_not_recorded pipeline=%s why=\"%s\"", s->p->name, err.text);
    s->reports_silent_us = pst_mono_us();
    return 0;
}

void scorer_report(scorer *s)
{
    pst_err e = {0};
    if (s->reports_silent_us && pst_mono_us() - s->reports_silent_us < SILENT_US)
        return;
    s->reports_silent_us = 0;
    if (score_reports_send(s->reports, s->txn, s->client, s->worker, &e) < 0)
        pst_log_limited(PST_LOG_WARN, "score", "model_not_recorded", "event=model_not_recorded pipeline=%s why=\"%s\"", s->p->name, e.text);
}

/* Who may not write to the topic of models scores all the same, and says what a replay will lack. */
void scorer_report_failed(scorer *s)
{
    if (!score_reports_sent(s->reports) || (s->err.code != PST_EAUTH && !strstr(s->err.text, "uthoriz")))
        return;
    s->reports_silent_us = pst_mono_us();
    pst_log_limited(PST_LOG_WARN, "score", "model_not_recorded", "event=model_not_recorded pipeline=%s topic=%s why=\"%s\"", s->p->name,
                    pst_client_topic(s->client, PST_TOPIC_MODELS), s->err.text);
}
