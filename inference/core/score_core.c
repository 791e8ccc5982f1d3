/* score_core.c - a batch's way, in three steps: the door, where a record finds its kind and its lane; the run, which makes rows of records and runs each
 * lane's rows through their model at once; the finish, which makes bytes of scores. The steps are apart since they have different owners: at the door
 * the registry may have to be asked, a run may be long and on another thread, and the finish needs the time at which the scores were there. */
#include "inference/core/score_core_priv.h"

#include "common/base/hash.h"
#include "inference/core/model_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHADOW_RESTS_US = 10000000 };
enum { TURNS_MAX = 16, INFER_FAILURES_MAX = 20, SAMPLE_BYTES_MAX = 16 << 10, JSON_ID = 0 };

pst_score_core *pst_score_core_new(const pst_pipeline *p, const pst_score_core_opts *opts)
{
    pst_score_core *c = pst_alloc(sizeof(*c));
    c->p = p;
    c->opts = opts ? *opts : (pst_score_core_opts){0};
    c->rows_max = p->batch_count;
    c->n_pass = p->n_passthrough;
    c->canary_percent = p->has_canary ? p->canary_percent : 0;
    c->fates = pst_alloc(c->rows_max * sizeof(*c->fates));
    c->windowed = c->opts.windowed ? c->opts.windowed : pst_windowed_new(p);
    c->windows = c->windowed ? pst_alloc(sizeof(*c->windows)) : NULL;
    if (p->format == PST_INPUT_JSON)
        score_kind_add(c, JSON_ID, NULL);
    return c;
}

void pst_score_core_free(pst_score_core *c)
{
    if (!c)
        return;
    score_lanes_free(c);
    score_kinds_free(c);
    pst_buf_done(&c->arena);
    pst_buf_done(&c->messages);
    pst_buf_done(&c->values);
    if (!c->opts.windowed)
        pst_windowed_free(c->windowed);
    free(c->windows);
    free(c->fates);
    free(c);
}

static void bad(pst_score_core *c, pst_fate *f, const char *stage, const char *reason, const char *text)
{
    f->kind = PST_FATE_BAD;
    f->shadow = NULL;
    f->stage = stage;
    f->reason = reason;
    f->non_finite = !strcmp(reason, PST_REASON_NON_FINITE);
    f->at = c->messages.len;
    pst_buf_add(&c->messages, text, strlen(text) + 1);
}

/* ---- the door -------------------------------------------------------------------------------------------------------------- */

static void empty_lanes(pst_score_core *c)
{
    for (size_t v = 0; v < SCORE_VARIANTS; v++) {
        if (c->models[v].now)
            c->models[v].now->n_rows = 0;
        if (c->models[v].next)
            c->models[v].next->n_rows = 0;
    }
}

void pst_score_core_begin(pst_score_core *c, int64_t now_us)
{
    pst_buf_clear(&c->arena);
    pst_buf_clear(&c->messages);
    pst_buf_clear(&c->values);
    empty_lanes(c);
    if (c->opts.scores_only)
        pst_windowed_settle(c->windowed);
    c->n = 0;
    c->batch++;
    c->now_us = now_us;
}

static pst_fate *new_fate(pst_score_core *c, const pst_record *r)
{
    PST_ASSERT(c->n < c->rows_max);
    pst_fate *f = &c->fates[c->n];
    *f = (pst_fate){.record = r};
    return f;
}

void pst_score_core_refuse(pst_score_core *c, const pst_record *r, const char *stage, const char *reason, const char *text)
{
    bad(c, new_fate(c, r), stage, reason, text);
    c->n++;
}

static void take_null(pst_score_core *c, pst_fate *f)
{
    f->kind = c->p->on_null == PST_NULL_PASS ? PST_FATE_TOMBSTONE : PST_FATE_SKIP;
    if (c->p->on_null == PST_NULL_DEAD_LETTER)
        bad(c, f, "DECODE", "null-value", "the value is null and errors.null is dead_letter");
    c->n++;
}

static bool is_canary(const pst_score_core *c, const pst_record *r)
{
    int64_t spread = r->offset * 31 + r->partition;
    uint32_t h = r->key ? pst_murmur2(r->key, r->key_len) : pst_murmur2(&spread, sizeof(spread));
    return (double)((h & 0x7fffffff) % 10000) < c->canary_percent * 100;
}

static void bad_envelope(pst_score_core *c, const pst_record *r, pst_fate *f)
{
    pst_err err = {0};
    pst_slice body;
    int32_t id;
    PST_ASSERT(pst_frame_get(r->value, r->value_len, &id, &body, &err) < 0);
    bad(c, f, "DECODE", "bad-envelope", err.text);
}

/* The record's value without framing, and its kind; NULL: it has none yet (needs a schema), or the record is bad. Why a frame is bad is asked only
 * then: room for the sentence would have to be cleared for every record. */
static pst_score_kind *kind_of(pst_score_core *c, const pst_record *r, int32_t *ret_id, pst_fate *f)
{
    pst_slice body;
    *ret_id = JSON_ID;
    bool framed = !c->opts.unframed && c->p->format != PST_INPUT_JSON;
    if (!framed || pst_frame_get(r->value, r->value_len, ret_id, &body, NULL) == 0)
        return score_kind_find(c, *ret_id);
    bad_envelope(c, r, f);
    return NULL;
}

/* May this lane's scores of that kind go nowhere? A refusal counts as an answer for as long as it is believed. */
static bool lacks_sink(const pst_score_core *c, pst_score_kind *k, const pst_lane *l, bool shadow)
{
    const score_sink *to = &k->sinks[shadow];
    if (to->id >= 0 || c->opts.scores_only || (to->refused && c->now_us < to->until_us))
        return false;
    return score_kind_reader(c, k, l)->decoder != NULL;
}

pst_score_need pst_score_core_take(pst_score_core *c, const pst_record *r, int32_t *ret_id)
{
    PST_ASSERT(c->models[PST_VARIANT_PRIMARY].now);
    pst_fate *f = new_fate(c, r);
    if (!r->value) {
        take_null(c, f);
        return PST_NEEDS_NOTHING;
    }
    pst_score_kind *k = kind_of(c, r, ret_id, f);
    if (!k && f->kind != PST_FATE_BAD)
        return PST_NEEDS_SCHEMA;
    if (k) {
        f->of = k;
        f->canary = c->canary_percent > 0 ? score_lane_of(&c->models[PST_VARIANT_CANARY], r) : NULL;
        f->by = f->canary && is_canary(c, r) ? f->canary : score_lane_of(&c->models[PST_VARIANT_PRIMARY], r);
        f->shadow = score_lane_of(&c->models[PST_VARIANT_SHADOW], r);
        if (lacks_sink(c, k, f->by, false))
            return PST_NEEDS_OUTPUT;
        if (f->shadow && lacks_sink(c, k, f->shadow, true))
            return PST_NEEDS_SHADOW;
        k->batch = c->batch;
        if (c->windowed && !c->opts.scores_only && k->sinks[0].id < 0 && score_kind_reader(c, k, f->by)->decoder)
            bad(c, f, "ENCODE", "output-schema", k->sinks[0].refused); /* now, so that no window has it */
    }
    c->n++;
    return PST_NEEDS_NOTHING;
}

/* ---- the run: records → rows ----------------------------------------------------------------------------------------------- */

static pst_slice body_of(const pst_score_core *c, const pst_record *r)
{
    size_t frame = c->opts.unframed || c->p->format == PST_INPUT_JSON ? 0 : PST_FRAME_BYTES;
    return (pst_slice){(const char *)r->value + frame, r->value_len - frame};
}

/* Whose windows a record reads; NULL = the pipeline has none. */
static pst_decode_windows *windows_of(const pst_score_core *c, const pst_record *r)
{
    if (!c->windowed)
        return NULL;
    c->windows->record = r;
    c->windows->keyed = pst_windowed_at(c->windowed, r->partition);
    if (!c->windows->keyed && c->opts.scores_only)
        c->windows->keyed = pst_windowed_add(c->windowed, r->partition);
    PST_ASSERT(c->windows->keyed);
    return c->windows;
}

/* One record becomes a row of a lane. False: it cannot, and f (unless it is the shadow that cannot) says why. */
static bool enter(pst_score_core *c, pst_lane *l, pst_fate *f, bool shadow)
{
    pst_decode_fault why = {0};
    pst_slice body = body_of(c, f->record);
    score_reader *d = score_kind_reader(c, f->of, l);
    if (!d->decoder) {
        if (!shadow)
            bad(c, f, "DECODE", "schema-mismatch", d->why);
        return false;
    }
    size_t row = l->n_rows;
    PST_ASSERT(row < c->rows_max); /* a lane has a row a record at most */
    if (c->why.code)
        pst_err_clear(&c->why);
    pst_decoder_windows(d->decoder, windows_of(c, f->record));
    int rc = pst_decoder_run(d->decoder, body.data, body.len, row, l->missing + row * l->n_features, l->pass + row * c->n_pass, &c->arena,
                             &why, &c->why);
    l->beyond[row] = rc == 0 && why.reason;
    if (rc < 0 || (l->beyond[row] && c->p->non_finite_dead)) {
        if (!shadow)
            bad(c, f, why.stage ? why.stage : "DECODE", why.reason ? why.reason : "bad-input", c->why.text);
        return false;
    }
    if (!d->sample.len && body.len <= SAMPLE_BYTES_MAX)
        pst_buf_add(&d->sample, body.data, body.len);
    l->row_fate[row] = (uint32_t)(f - c->fates);
    l->n_rows++;
    return true;
}

static void decode(pst_score_core *c, pst_fate *f)
{
    f->opened = f->kind == PST_FATE_OPEN;
    if (!f->opened || !enter(c, f->by, f, false))
        return;
    f->kind = PST_FATE_SCORED;
    f->row = (uint32_t)f->by->n_rows - 1;
    if (f->shadow && enter(c, f->shadow, f, true))
        f->shadow_row = (uint32_t)f->shadow->n_rows - 1;
    else /* a shadow that cannot say anything is no reason to hold the stream */
        f->shadow = NULL;
    if (!c->windowed || f->doubted)
        return;
    const pst_decode_windows *w = c->windows;
    pst_keyed_enter(w->keyed, w->key, w->time_ms, f->record->offset, w->x);
    f->entered = true;
}

/* ---- the run: rows → scores ------------------------------------------------------------------------------------------------ */

/* How the runs of one lane's rows went. */
typedef struct inferring {
    size_t done, endless; /* rows with a score; runs that did not end by themselves */
    pst_err err;          /* why nothing more is tried; code 0 = it is */
} inferring;

/* A run that fails is tried again by halves, which get their share of the time. A model that has not ended on many rows, and never on one, is not
 * tried on all the others; neither is anything once we are told to stop. */
static bool gives_up(const pst_lane *l, const pst_err *why, inferring *r)
{
    bool endless = why->code == PST_ETIMEDOUT || why->code == PST_ELIMIT;
    r->endless += endless;
    if (why->code == PST_ESTOPPED || !strcmp(why->origin, "cuda")) /* a device is at fault, no record */
        r->err = *why;
    else if (endless && !r->done && r->endless > INFER_FAILURES_MAX)
        pst_err_set(&r->err, PST_ESTATE, PST_CLASS_RETRY, "model", 0,
                    "model %s version %d came to no end on any of %zu tries, so no record is dead-lettered; the last said: %.200s",
                    pst_binding_name(l->binding), pst_binding_version(l->binding), r->endless, why->text);
    return r->err.code != 0;
}

/* Of a batch the whole time that a run may take, of a part its share. */
static int run_rows(pst_lane *l, size_t from, size_t to, pst_err *err)
{
    if (to - from == l->n_rows)
        return pst_binding_run(l->binding, from, to, err);
    size_t ms = PST_MODEL_RUN_MS / 2 * (to - from) / l->n_rows;
    pst_binding_limit(l->binding, ms < 2000 ? 2000 : (int)ms);
    int rc = pst_binding_run(l->binding, from, to, err);
    pst_binding_limit(l->binding, PST_MODEL_RUN_MS);
    return rc;
}

/* Runs rows [from, to); halves on failure, until the culprit is alone. */
static void infer(pst_score_core *c, pst_lane *l, size_t from, size_t to, inferring *r)
{
    pst_err err = {0};
    PST_ASSERT(from <= to && to <= l->n_rows);
    if (from == to || r->err.code)
        return;
    if (run_rows(l, from, to, &err) == 0) {
        r->done += to - from;
        return;
    }
    if (gives_up(l, &err, r))
        return;
    if (to - from > 1) {
        size_t mid = from + (to - from) / 2;
        infer(c, l, from, mid, r);
        infer(c, l, mid, to, r);
        return;
    }
    PST_ASSERT(l->row_fate[from] < c->n); /* a row is a record of this batch */
    pst_fate *f = &c->fates[l->row_fate[from]];
    if (l->variant == PST_VARIANT_SHADOW)
        f->shadow = NULL;
    else
        bad(c, f, "INFER", "bad-input", err.text);
}

/* A shadow that has no end says nothing; only a stop is everybody's. What a device fails it on is said and counted, and the device is left alone for a
 * while: it may take its time to fail, and the stream waits for it. */
static int infer_shadow(pst_score_core *c, pst_lane *l, pst_err *err)
{
    inferring r = {0};
    if (c->shadow_why.code && c->now_us < c->shadow_until_us)
        r.err = c->shadow_why;
    else
        infer(c, l, 0, l->n_rows, &r);
    if (r.err.code == PST_ESTOPPED) {
        *err = r.err;
        return r.err.code;
    }
    bool device = r.err.code && !strcmp(r.err.origin, "cuda");
    for (size_t k = 0; k < l->n_rows && r.err.code; k++) {
        pst_fate *f = &c->fates[l->row_fate[k]];
        f->shadow = NULL;
        f->shadow_skipped = device;
    }
    if (!device)
        pst_err_clear(&c->shadow_why);
    else if (c->now_us >= c->shadow_until_us) {
        c->shadow_why = r.err;
        c->shadow_until_us = c->now_us + SHADOW_RESTS_US;
    }
    return 0;
}

static int infer_lane(pst_score_core *c, pst_lane *l, pst_err *err)
{
    inferring r = {0};
    infer(c, l, 0, l->n_rows, &r);
    if (r.err.code) {
        *err = r.err;
        return r.err.code;
    }
    l->failures = r.done ? 0 : c->again ? l->failures : l->failures + (int)l->n_rows;
    if (l->failures < INFER_FAILURES_MAX)
        return 0;
    const pst_fate *f = &c->fates[l->row_fate[l->n_rows - 1]];
    l->failures = INFER_FAILURES_MAX; /* until one of its records is scored: what waits comes again, perhaps one by one */
    return pst_err_set(err, PST_ESTATE, PST_CLASS_RETRY, "model", 0,
                       "model %s version %d fails on every record, so none is dead-lettered; the last said: %.200s",
                       pst_binding_name(l->binding), pst_binding_version(l->binding), pst_score_core_message(c, f));
}

static int infer_canary(pst_score_core *c, pst_lane *l, pst_err *err)
{
    int64_t start = c->opts.clock_us ? c->opts.clock_us() : 0;
    int rc = infer_lane(c, l, err);
    c->canary_us += c->opts.clock_us ? c->opts.clock_us() - start : 0;
    return rc;
}

static int infer_all(pst_score_core *c, pst_err *err)
{
    int rc = 0;
    c->canary_us = 0;
    for (size_t v = 0; v < SCORE_VARIANTS && rc == 0; v++) {
        pst_lane *const lanes[] = {c->models[v].now, c->models[v].next};
        for (size_t i = 0; i < 2 && rc == 0; i++)
            if (lanes[i] && lanes[i]->n_rows)
                rc = v == PST_VARIANT_SHADOW   ? infer_shadow(c, lanes[i], err)
                     : v == PST_VARIANT_CANARY ? infer_canary(c, lanes[i], err)
                                               : infer_lane(c, lanes[i], err);
        if (rc < 0)
            c->failed = (pst_variant)v;
    }
    return rc;
}

/* What is told of a score. */
static void judge(pst_score_core *c, pst_fate *f)
{
    const double *scores;
    const char *label;
    const pst_lane *l = f->by;
    if (f->kind != PST_FATE_SCORED)
        return;
    size_t n = pst_binding_score(l->binding, f->row, &scores, &label);
    f->missing = memchr(l->missing + f->row * l->n_features, 1, l->n_features) != NULL;
    f->above = l->has_threshold && n && scores[0] > l->threshold;
    f->non_finite = l->beyond[f->row];
    for (size_t i = 0; i < n; i++)
        f->non_finite |= !isfinite(scores[i]);
    if (f->non_finite && c->p->non_finite_dead)
        bad(c, f, "INFER", PST_REASON_NON_FINITE, "the score is NaN or infinite and score.non_finite is dead_letter");
}

void pst_score_core_decode(pst_score_core *c)
{
    pst_windowed_mark(c->windowed);
    for (size_t i = 0; i < c->n; i++)
        decode(c, &c->fates[i]);
}

/* The first record of the batch that is in the windows and bad, or left out of them and scored; c->n = there is none. Those behind it have read what has not
 * happened. */
static size_t first_wrong(const pst_score_core *c)
{
    size_t i = 0;
    while (i < c->n && (!c->windowed || !(c->fates[i].entered   ? c->fates[i].kind == PST_FATE_BAD
                                          : c->fates[i].doubted ? c->fates[i].kind == PST_FATE_SCORED
                                                                : false)))
        i++;
    return i;
}

/* The batch again. Up to the first that was wrong all is decided: what is bad stays bad. Behind it a bad record may have been so for what it read, so it is
 * tried again, outside of the windows, as it will stay there nearly always. */
static void decode_again(pst_score_core *c, size_t decided)
{
    pst_windowed_back(c->windowed);
    empty_lanes(c);
    for (size_t i = 0; i < c->n; i++) {
        pst_fate *f = &c->fates[i];
        bool judged_bad = f->kind == PST_FATE_BAD && (f->entered || f->doubted), stays = !f->opened || (judged_bad && i <= decided);
        f->opened = f->entered = false;
        if (stays)
            continue;
        *f = (pst_fate){.record = f->record,
                        .of = f->of,
                        .by = f->by,
                        .canary = f->canary,
                        .shadow = score_lane_of(&c->models[PST_VARIANT_SHADOW], f->record),
                        .doubted = judged_bad};
        decode(c, f);
    }
}

static int infer_batch(pst_score_core *c, pst_err *err)
{
    int rc = infer_all(c, err);
    for (size_t i = 0; rc == 0 && i < c->n; i++) {
        judge(c, &c->fates[i]);
        PST_ASSERT(c->fates[i].kind != PST_FATE_OPEN);
    }
    return rc;
}

/* Each turn decides at least one record more; nearly always the second is the last. After some it is the caller's patience that counts: what is bad then
 * stays bad, and each turn leaves at least one out, or takes it in for good. */
int pst_score_core_infer(pst_score_core *c, pst_err *err)
{
    int rc = infer_batch(c, err);
    for (size_t turn = 1, wrong; rc == 0 && (wrong = first_wrong(c)) < c->n; turn++) {
        decode_again(c, turn < TURNS_MAX ? wrong : c->n);
        c->again = true;
        rc = infer_batch(c, err);
        c->again = false;
    }
    if (rc < 0)
        pst_windowed_back(c->windowed);
    return rc;
}

int pst_score_core_run(pst_score_core *c, pst_err *err)
{
    pst_score_core_decode(c);
    return pst_score_core_infer(c, err);
}

/* ---- the finish: scores → bytes -------------------------------------------------------------------------------------------- */

static pst_slice *pass_of(pst_score_core *c, const pst_score_kind *k, pst_lane *l, size_t row)
{
    pst_slice *pass = l->pass + row * c->n_pass;
    if (pst_decoder_is_json(k->readers[l->slot].decoder)) /* offsets into the arena, which grows no more, become addresses */
        for (size_t i = 0; i < c->n_pass; i++)
            if (pass[i].data)
                pass[i].data = c->arena.data + (uintptr_t)pass[i].data - 1;
    return pass;
}

/* Returns the length. */
static uint32_t encode(pst_score_core *c, const pst_fate *f, bool shadow, int64_t now_us)
{
    pst_lane *l = shadow ? f->shadow : f->by;
    size_t row = shadow ? f->shadow_row : f->row, from = c->values.len;
    const pst_record *r = f->record;
    const pst_score_kind *k = f->of;
    PST_ASSERT(k->sinks[shadow].id >= 0 && row < l->n_rows);
    char backend[PST_BACKEND_BYTES];
    pst_binding_backend(l->binding, row, backend);
    pst_score_parts s = {.model = {l->model.data, l->model.len},
                         .backend = backend,
                         .head = &l->head,
                         .topic = r->topic,
                         .partition = r->partition,
                         .offset = r->offset,
                         .timestamp_ms = r->timestamp_ms > 0 ? r->timestamp_ms : 0,
                         .variant = l->variant,
                         .scored_at_us = now_us,
                         .features = l->features,
                         .missing = shadow || f->missing ? l->missing + row * l->n_features : NULL,
                         .n_features = l->n_features,
                         .pass = pass_of(c, k, l, row),
                         .threshold = l->has_threshold ? &l->threshold : NULL};
    s.n_scores = pst_binding_score(l->binding, row, &s.scores, &s.label);
    pst_frame_put(&c->values, k->sinks[shadow].id);
    pst_output_put(k->output, &s, &c->values);
    return (uint32_t)(c->values.len - from);
}

/* Mean of the absolute differences; the largest one too. Of scores of different length the numbers that both have. */
static double difference(const double *a, const double *b, size_t n, double *ret_most)
{
    double sum = 0;
    *ret_most = 0;
    for (size_t i = 0; i < n; i++) {
        double d = a[i] == b[i] ? 0 : fabs(a[i] - b[i]);
        sum += d;
        *ret_most = d > *ret_most || isnan(d) ? d : *ret_most;
    }
    return n ? sum / (double)n : 0;
}

/* The canary's own records say nothing of the primary. Numbers are judged by the file's tolerance, without one by the threshold's side, without both
 * not at all: no two models give the same bits. */
static void compare_shadow(const pst_score_core *c, pst_fate *f)
{
    const double *a, *b;
    const char *la, *lb;
    double most;
    if (f->by->variant != PST_VARIANT_PRIMARY)
        return;
    size_t na = pst_score_core_score(f, false, &a, &la), nb = pst_score_core_score(f, true, &b, &lb);
    f->difference = difference(a, b, na < nb ? na : nb, &most);
    f->agreement = PST_AGREE_UNJUDGED;
    if (la && lb)
        f->disagrees = strcmp(la, lb) != 0;
    else if (c->p->has_tolerance)
        f->disagrees = na != nb || !(most <= c->p->tolerance);
    else if (na && nb && f->by->has_threshold)
        f->disagrees = (a[0] > f->by->threshold) != (b[0] > f->by->threshold);
    else
        return;
    f->agreement = f->disagrees ? PST_AGREE_DIFFERENT : PST_AGREE_EQUAL;
}

static void finish(pst_score_core *c, pst_fate *f, int64_t now_us)
{
    PST_ASSERT(f->kind == PST_FATE_SCORED && f->by && !f->value_len); /* once */
    const score_sink *sinks = f->of->sinks;
    if (sinks[0].id < 0) {
        bad(c, f, "ENCODE", "output-schema", sinks[0].refused);
        return;
    }
    f->at = c->values.len;
    f->value_len = encode(c, f, false, now_us);
    if (!f->shadow)
        return;
    f->shadowed = sinks[1].id >= 0;
    f->shadow_skipped = !f->shadowed;
    if (!f->shadowed)
        return;
    f->shadow_len = encode(c, f, true, now_us);
    compare_shadow(c, f);
}

void pst_score_core_finish(pst_score_core *c, int64_t now_us)
{
    PST_ASSERT(!c->opts.scores_only);
    for (size_t i = 0; i < c->n; i++)
        if (c->fates[i].kind == PST_FATE_SCORED)
            finish(c, &c->fates[i], now_us);
}

/* ---- what came of it ------------------------------------------------------------------------------------------------------- */

const pst_fate *pst_score_core_fates(const pst_score_core *c, size_t *ret_n)
{
    *ret_n = c->n;
    return c->fates;
}

pst_windowed *pst_score_core_windowed(const pst_score_core *c)
{
    return c->windowed;
}

pst_slice pst_score_core_value(const pst_score_core *c, const pst_fate *f, bool shadow)
{
    PST_ASSERT(f->kind == PST_FATE_SCORED && f->at + f->value_len + f->shadow_len <= c->values.len);
    return shadow ? (pst_slice){c->values.data + f->at + f->value_len, f->shadow_len} : (pst_slice){c->values.data + f->at, f->value_len};
}

void pst_score_core_canary(pst_score_core *c, double percent)
{
    c->canary_percent = percent;
}

int64_t pst_score_core_canary_us(const pst_score_core *c)
{
    return c->canary_us;
}

pst_variant pst_score_core_failed(const pst_score_core *c)
{
    return c->failed;
}

const char *pst_score_core_shadow_why(const pst_score_core *c)
{
    return c->shadow_why.code ? c->shadow_why.text : "";
}

const char *pst_score_core_message(const pst_score_core *c, const pst_fate *f)
{
    return f->kind == PST_FATE_BAD && f->at < c->messages.len ? c->messages.data + f->at : "";
}

size_t pst_score_core_score(const pst_fate *f, bool shadow, const double **ret_scores, const char **ret_label)
{
    return pst_binding_score(shadow ? f->shadow->binding : f->by->binding, shadow ? f->shadow_row : f->row, ret_scores, ret_label);
}

const pst_feature *pst_score_core_missing(const pst_fate *f, const uint8_t **ret_missing, size_t *ret_n)
{
    *ret_missing = f->by->missing + f->row * f->by->n_features;
    *ret_n = f->by->n_features;
    return f->by->features;
}
