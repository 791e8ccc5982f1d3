/* score_emit.c - records out: scores, tombstones, dead letters, shadow scores. */
#include "inference/score_priv.h"

#include "common/base/log.h"

#include <string.h>

enum { HEADERS_MAX = 64 };

/* ---- records out ----------------------------------------------------------------------------------------------------------- */

static const pst_input_topic *input_of(const pst_scorer *s, const char *topic)
{
    for (size_t i = 0; i < s->p->n_topics; i++)
        if (!strcmp(s->inputs[i].name, topic))
            return &s->inputs[i];
    return &s->inputs[0];
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

/* The input's headers. Where the value does not say where the record comes from (slim, tombstones) and a record may come twice (at least once),
 * its identity goes into x-src; only there, since a header costs librdkafka more than all of the scoring. */
static size_t out_headers(pst_scorer *s, const pst_record *r, bool value_tells, char *src, pst_header *ret)
{
    pst_header in[HEADERS_MAX];
    size_t n = 0, have = pst_record_headers(r, in, HEADERS_MAX);
    if (have > HEADERS_MAX - 1)
        have = HEADERS_MAX - 1;
    for (size_t i = 0; i < have; i++)
        if (strcmp(in[i].name, "x-src") != 0)
            ret[n++] = in[i];
    if (value_tells || s->p->exactly_once)
        return n;
    size_t topic = strlen(r->topic);
    memcpy(src, r->topic, topic);
    char *end = src + topic;
    *end++ = '/';
    end = put_number(end, r->partition);
    *end++ = '/';
    end = put_number(end, r->offset);
    ret[n++] = (pst_header){"x-src", src, (size_t)(end - src)};
    return n;
}

static int send_dead_letter(pst_scorer *s, const pst_record *r, const char *stage, const char *reason, const char *message)
{
    pst_header headers[PST_DLQ_HEADERS_MAX + 1];
    pst_out out;
    pst_dead_letter d = {.record = r, .component = s->p->name, .stage = stage, .reason = reason, .message = message};
    pst_dead_letter_out(&d, input_of(s, r->topic)->dlq, headers, &s->texts, &out);
    pst_err e = {0};
    int rc = pst_txn_send(s->txn, &out, &e);
    if (rc == PST_ELIMIT && e.cls == PST_CLASS_DATA) { /* even the letter is too large: its place and size are kept */
        char size[48];
        snprintf(size, sizeof(size), "%zu", r->value_len);
        headers[out.n_headers++] = (pst_header){"x-dlq-value-bytes", size, strlen(size)};
        out.value = NULL;
        out.value_len = 0;
        pst_err_clear(&e);
        rc = pst_txn_send(s->txn, &out, &e);
    }
    if (rc < 0) {
        s->err = e;
        return rc;
    }
    pst_round_dead(&s->round, stage, reason);
    pst_log(PST_LOG_DEBUG, "score", "event=dead_letter pipeline=%s topic=%s partition=%d offset=%lld stage=%s reason=%s why=\"%s\"",
            s->p->name, r->topic, r->partition, (long long)r->offset, stage, reason, message);
    return 0;
}

static int bad_record(pst_scorer *s, const pst_record *r, const char *stage, const char *reason, const char *message)
{
    if (!s->p->tolerance_none)
        return send_dead_letter(s, r, stage, reason, message);
    return pst_err_set(&s->err, PST_EPARSE, PST_CLASS_DATA, "score", 0,
                       "%s[%d]@%lld: %s (%s): %s; errors.tolerance is none, so the pipeline stops here", r->topic, r->partition,
                       (long long)r->offset, reason, stage, message);
}

static void compare_shadow(pst_scorer *s, const pst_fate *f)
{
    const double *a, *b;
    const char *la, *lb;
    double threshold;
    size_t na = pst_core_score(s->core, f, false, &a, &la), nb = pst_core_score(s->core, f, true, &b, &lb);
    s->round.shadowed++;
    if (la && lb)
        s->round.disagreed += strcmp(la, lb) != 0;
    else if (na && nb && pst_binding_threshold(pst_core_fate_binding(f, false), &threshold))
        s->round.disagreed += (a[0] > threshold) != (b[0] > threshold);
}

static int send_score(pst_scorer *s, const pst_record *r, const pst_fate *f, bool shadow, int64_t now_us)
{
    pst_header headers[HEADERS_MAX + 2];
    char src[320];
    pst_buf_clear(&s->value);
    int rc = pst_core_encode(s->core, r, f, shadow, now_us, &s->value, &s->err);
    if (rc < 0)
        return rc;
    const pst_input_topic *in = input_of(s, r->topic);
    pst_out out = {.topic = shadow ? s->p->shadow_topic : s->p->output_topic,
                   .partition = in->partitions == s->output_partitions && !shadow ? r->partition : -1,
                   .key = r->key,
                   .key_len = r->key_len,
                   .value = s->value.data,
                   .value_len = s->value.len,
                   .timestamp_ms = r->timestamp_ms > 0 ? r->timestamp_ms : 0,
                   .headers = headers};
    out.n_headers = out_headers(s, r, !s->p->slim, src, headers);
    rc = pst_txn_send(s->txn, &out, &s->err);
    s->round.bytes += s->value.len;
    return rc;
}

static int send_tombstone(pst_scorer *s, const pst_record *r)
{
    pst_header headers[HEADERS_MAX + 2];
    char src[320];
    const pst_input_topic *in = input_of(s, r->topic);
    pst_out out = {.topic = s->p->output_topic,
                   .partition = in->partitions == s->output_partitions ? r->partition : -1,
                   .key = r->key,
                   .key_len = r->key_len,
                   .timestamp_ms = r->timestamp_ms > 0 ? r->timestamp_ms : 0,
                   .headers = headers};
    out.n_headers = out_headers(s, r, false, src, headers);
    return pst_txn_send(s->txn, &out, &s->err);
}

static int emit_score(pst_scorer *s, const pst_record *r, const pst_fate *f, int64_t now_us)
{
    int rc = send_score(s, r, f, false, now_us);
    if (rc == PST_ELIMIT && s->err.cls == PST_CLASS_DATA) {
        pst_err why = s->err;
        pst_err_clear(&s->err);
        return bad_record(s, r, "PRODUCE", "too-large", why.text);
    }
    if (rc < 0)
        return rc;
    const double *scores;
    const char *label;
    const uint8_t *missing;
    size_t n;
    double threshold;
    s->round.scored++;
    if (pst_core_score(s->core, f, false, &scores, &label) && pst_binding_threshold(pst_core_fate_binding(f, false), &threshold))
        s->round.anomalies += scores[0] > threshold;
    pst_core_missing(s->core, f, &missing, &n);
    s->round.missing += memchr(missing, 1, n) != NULL;
    if (!f->shadow)
        return 0;
    compare_shadow(s, f);
    pst_err keep = {0};
    rc = send_score(s, r, f, true, now_us);
    if (rc == PST_ELIMIT && s->err.cls == PST_CLASS_DATA) { /* a shadow's score that is too large is nobody's loss */
        s->err = keep;
        rc = 0;
    }
    return rc;
}

int pst_scorer_emit(pst_scorer *s, const pst_record *r, const pst_fate *f, int64_t now_us)
{
    switch (f->kind) {
    case PST_FATE_SCORED: return emit_score(s, r, f, now_us);
    case PST_FATE_TOMBSTONE: s->round.tombstones++; return send_tombstone(s, r);
    case PST_FATE_SKIP: s->round.skipped++; return 0;
    case PST_FATE_BAD: return bad_record(s, r, f->stage, f->reason, pst_core_message(s->core, f));
    }
    return 0;
}
