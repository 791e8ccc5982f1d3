/* score_round.c - sums beside the statistics, added to them by the commit alone. Reasons of dead letters are few and short-lived pointers, so
 * they are searched in a small list; times of a long round are sampled. */
#include "inference/run/score_round.h"

#include "common/base/array.h"
#include "schemas/metric_list.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void score_round_done(score_round *r)
{
    for (size_t i = 0; i < r->n_ends; i++)
        free(r->ends[i].topic);
    free(r->ends);
    free(r->times);
    pst_map_done(&r->features, free);
    memset(r, 0, sizeof(*r));
}

typedef struct score_round_missing {
    uint64_t n;
    pst_metric *metric; /* made by its first commit */
} score_round_missing;

static void clear(score_round *r)
{
    score_round keep = {
        .times = r->times, .ends = r->ends, .n_ends = r->n_ends, .row_kept = r->row_kept, .reports = r->reports, .features = r->features};
    for (size_t i = 0; r->missing && i < keep.features.n; i++)
        ((score_round_missing *)keep.features.at[i].value)->n = 0;
    for (size_t i = 0; i < keep.n_ends; i++)
        keep.ends[i].next = -1;
    *r = keep;
}

void score_round_clear(score_round *r)
{
    if (r->reports)
        score_reports_forget(r->reports);
    clear(r);
}

static struct score_round_end *find_end(score_round *r, const char *topic, int32_t partition)
{
    if (r->last_end < r->n_ends) { /* records come in runs of one partition */
        struct score_round_end *e = &r->ends[r->last_end];
        if (e->partition == partition && !strcmp(e->topic, topic))
            return e;
    }
    for (r->last_end = 0; r->last_end < r->n_ends; r->last_end++) {
        struct score_round_end *e = &r->ends[r->last_end];
        if (e->partition == partition && !strcmp(e->topic, topic))
            return e;
    }
    r->ends = pst_array_one_more(r->ends, r->n_ends, sizeof(*r->ends));
    r->ends[r->n_ends] = (struct score_round_end){pst_strdup(topic), partition, -1};
    return &r->ends[r->n_ends++];
}

void score_round_record(score_round *r, const pst_record *rec)
{
    if (!r->times)
        r->times = pst_alloc(PST_ROUND_TIMES_MAX * sizeof(*r->times));
    if (rec->timestamp_ms > 0 && r->n_times < PST_ROUND_TIMES_MAX)
        r->times[r->n_times++] = rec->timestamp_ms;
    if (rec->timestamp_ms > r->newest_ms)
        r->newest_ms = rec->timestamp_ms;
    r->records++;
    struct score_round_end *end = find_end(r, rec->topic, rec->partition);
    PST_ASSERT(rec->offset >= end->next); /* a record is in a round once, and behind those before it */
    end->next = rec->offset + 1;
}

void score_round_dead(score_round *r, const char *stage, const char *reason)
{
    r->dead++;
    r->row++;
    for (size_t i = 0; i < r->n_reasons; i++) {
        if (!strcmp(r->reasons[i].stage, stage) && !strcmp(r->reasons[i].reason, reason)) {
            r->reasons[i].n++;
            return;
        }
    }
    if (r->n_reasons < PST_ROUND_REASONS_MAX) {
        r->reasons[r->n_reasons].stage = stage;
        r->reasons[r->n_reasons].reason = reason;
        r->reasons[r->n_reasons++].n = 1;
    }
}

void score_round_scored(score_round *r)
{
    r->scored++;
    r->row = 0;
    r->row_is_new = true;
}

/* Which fields they are can change with the model, so they are known by their names. */
static void count_missing(score_round *r, const char *field)
{
    score_round_missing *m = pst_map_get(&r->features, field);
    if (!m && r->features.live >= PST_ROUND_FEATURES_MAX)
        m = pst_map_get(&r->features, field = "(others)");
    if (!m) {
        m = pst_alloc(sizeof *m);
        pst_map_put(&r->features, field, m);
    }
    m->n++;
}

void score_round_seen(score_round *r, const pst_fate *f)
{
    const double *scores;
    const char *label;
    const uint8_t *missing;
    size_t n;
    if (pst_score_core_lane_variant(f->by) == PST_VARIANT_PRIMARY && pst_score_core_score(f, false, &scores, &label))
        pst_metric_spread_add(&r->scores, scores[0]);
    if (!f->missing)
        return;
    r->missing++;
    const pst_feature *features = pst_score_core_missing(f, &missing, &n);
    for (size_t i = 0; i < n; i++)
        if (missing[i])
            count_missing(r, features[i].field);
}

/* The canary's fault: its model failed, or would not have the record's schema. What the record itself lacks is nobody's. */
static bool canary_failed(const pst_fate *f)
{
    return f->non_finite || (f->kind == PST_FATE_BAD && (!strcmp(f->stage, "INFER") || !strcmp(f->reason, "schema-mismatch")));
}

static score_round_agreement *agreement_of(score_round *r, int version)
{
    for (size_t i = 0; i < r->n_agreements; i++)
        if (r->agreements[i].version == version)
            return &r->agreements[i];
    if (r->n_agreements == PST_ROUND_VERSIONS_MAX) /* a round of 100 ms has one or two */
        return NULL;
    r->agreements[r->n_agreements] = (score_round_agreement){.version = version};
    return &r->agreements[r->n_agreements++];
}

void score_round_compared(score_round *r, const pst_fate *f, int canary)
{
    if (f->by && f->by == f->canary) {
        bool failed = canary_failed(f), counts = pst_binding_version(pst_score_core_lane_binding(f->by)) == canary;
        r->canary_failed += failed;
        r->canary.records += counts;
        r->canary.failed += counts && failed;
    }
    if (!f->agreement)
        return;
    int version = pst_binding_version(pst_score_core_lane_binding(f->shadow));
    score_round_agreement *a = agreement_of(r, version);
    if (version == canary) {
        r->canary.compared++;
        r->canary.differed += f->agreement == PST_AGREE_DIFFERENT;
    }
    if (!a)
        return;
    a->canary = version == canary;
    a->equal += f->agreement == PST_AGREE_EQUAL;
    a->different += f->agreement == PST_AGREE_DIFFERENT;
    a->unjudged += f->agreement == PST_AGREE_UNJUDGED;
    a->difference += isfinite(f->difference) ? f->difference : 0;
}

const struct score_round_end *score_round_last(const score_round *r)
{
    return r->last_end < r->n_ends && r->ends[r->last_end].next >= 0 ? &r->ends[r->last_end] : NULL;
}

uint64_t score_round_dead_row(const score_round *r)
{
    return r->row + (r->row_is_new ? 0 : r->row_kept);
}

/* What was counted while sending is true now. Each record had one fate, so that their sum is that of the records. */
void score_round_commit(score_round *r, pst_score_core *core, score_stats *s, int64_t now_us)
{
    PST_ASSERT(r->records == r->scored + r->tombstones + r->skipped + r->dead);
    r->row_kept = score_round_dead_row(r);
    s->records += r->records;
    s->scored += r->scored;
    s->tombstones += r->tombstones;
    s->skipped += r->skipped;
    s->missing_records += r->missing;
    s->anomalies += r->anomalies;
    s->commits++;
    pst_metric_add(s->consumed, (double)r->records);
    if (s->scored_total)
        pst_metric_add(s->scored_total, (double)r->scored);
    pst_metric_add(s->tombstones_total, (double)r->tombstones);
    pst_metric_add(s->missing_total, (double)r->missing);
    pst_metric_merge(s->score, &r->scores);
    score_stats_scores(s, &r->scores);
    for (size_t i = 0; r->missing && i < r->features.n; i++) {
        score_round_missing *m = r->features.at[i].value;
        if (!m->metric)
            m->metric = pst_metric_of(s->set, PST_METRIC_SCORER_FEATURE_MISSING, s->pipeline, r->features.at[i].key, NULL);
        pst_metric_add(m->metric, (double)m->n);
    }
    if (r->newest_ms)
        s->newest_ms = r->newest_ms;
    pst_metric_add(s->anomalies_total, (double)r->anomalies);
    pst_metric_add(s->shadow_scored, (double)r->shadowed);
    pst_metric_add(s->shadow_disagree, (double)r->disagreed);
    pst_metric_add(s->shadow_skipped, (double)r->shadow_skipped);
    pst_metric_add(s->non_finite, (double)r->non_finite);
    pst_metric_add(s->canary_failed, (double)r->canary_failed);
    for (size_t i = 0; i < r->n_agreements; i++) {
        const score_round_agreement *a = &r->agreements[i];
        score_stats_agreement(s, "SHADOW", a->version, a->equal, a->different, a->unjudged, a->difference);
        if (a->canary)
            score_stats_agreement(s, "CANARY", a->version, a->equal, a->different, a->unjudged, a->difference);
    }
    pst_metric_add(s->commits_ok, 1);
    for (size_t i = 0; i < r->n_reasons; i++)
        for (uint64_t k = 0; k < r->reasons[i].n; k++)
            score_stats_dead_letter(s, r->reasons[i].stage, r->reasons[i].reason);
    size_t step = r->n_times > 4096 ? 16 : 1; /* a long round is told by a sample */
    for (size_t i = 0; i < r->n_times; i += step) {
        int64_t us = now_us - r->times[i] * 1000;
        score_stats_latency(s, us, step);
        pst_metric_observe(s->e2e, us > 0 ? (double)us / 1e6 : 0);
    }
    for (size_t i = 0; core && i < r->n_ends; i++)
        if (r->ends[i].next >= 0)
            pst_score_core_committed(core, r->ends[i].topic, r->ends[i].partition, r->ends[i].next);
    if (r->reports)
        score_reports_committed(r->reports);
    clear(r);
}
