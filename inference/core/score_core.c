/* score_core.c - see the header for the picture. Two passes over a batch: first every record finds its lane and its row, then each lane's
 * rows run through their model at once. Memory for rows, missing flags and pass-through slices is allocated when a model comes, so the
 * steady state uses no heap. */
#include "inference/core/score_core.h"

#include "common/base/hash.h"
#include "inference/core/model_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS_MAX = 1000, INFER_FAILURES_MAX = 20, REFUSED_US = 30000000, SAMPLE_BYTES_MAX = 16 << 10 };

/* Records of one schema, for one lane. */
typedef struct kind {
    int32_t id;
    pst_decoder *decoder; /* NULL: refused, why */
    pst_output *output;
    int32_t output_id; /* -1 = not registered yet */
    char *why;
    pst_buf sample;  /* the first record that this model took, for the models that are to follow */
    pst_err refused; /* what the registry said against the output schema */
    int64_t refused_us;
} kind;

struct pst_lane {
    pst_variant variant;
    pst_binding *binding;
    const pst_feature *features;
    size_t n_features;
    pst_buf model; /* bytes of the field `model` */
    bool has_threshold;
    double threshold;
    kind **kinds;
    size_t n_kinds;
    kind *last;
    size_t n_rows;
    kind **row_kind;      /* (rows_max) */
    uint32_t *row_record; /* index into the batch */
    uint8_t *missing;     /* (rows_max, n_features) */
    uint8_t *beyond;      /* (rows_max) 1: a finite number of the record is beyond what the model's input holds */
    pst_slice *pass;      /* (rows_max, n_pass) */
    pst_effective *from;
    bool *passed;
    size_t n_from;
};

typedef struct role {
    pst_lane *now, *next;
} role;

struct pst_score_core {
    const pst_pipeline *p;
    pst_score_core_host host;
    size_t rows_max, n_pass;
    role roles[3];
    pst_buf arena, messages;
    int infer_failures;
};

/* ---- lanes ----------------------------------------------------------------------------------------------------------------- */

static void kind_free(kind *k)
{
    pst_decoder_free(k->decoder);
    pst_output_free(k->output);
    pst_buf_done(&k->sample);
    free(k->why);
    free(k);
}

static void lane_free(pst_lane *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n_kinds; i++)
        kind_free(l->kinds[i]);
    for (size_t i = 0; i < l->n_from; i++)
        free(l->from[i].topic);
    free(l->kinds);
    free(l->row_kind);
    free(l->row_record);
    free(l->missing);
    free(l->beyond);
    free(l->pass);
    free(l->from);
    free(l->passed);
    pst_buf_done(&l->model);
    pst_binding_free(l->binding);
    free(l);
}

static pst_lane *lane_new(const pst_score_core *c, pst_variant variant, pst_binding *take, const pst_effective *from, size_t n)
{
    pst_lane *l = pst_alloc(sizeof(*l));
    l->variant = variant;
    l->binding = take;
    l->features = pst_binding_features(take, &l->n_features);
    l->has_threshold = pst_binding_threshold(take, &l->threshold);
    pst_output_model(take, &l->model);
    l->row_kind = pst_alloc(c->rows_max * sizeof(*l->row_kind));
    l->row_record = pst_alloc(c->rows_max * sizeof(*l->row_record));
    l->missing = pst_alloc(c->rows_max * l->n_features + 1);
    l->beyond = pst_alloc(c->rows_max + 1);
    l->pass = pst_alloc((c->rows_max * c->n_pass + 1) * sizeof(*l->pass));
    l->from = pst_alloc((n + 1) * sizeof(*l->from));
    l->passed = pst_alloc(n + 1);
    for (; l->n_from < n; l->n_from++)
        l->from[l->n_from] = (pst_effective){pst_strdup(from[l->n_from].topic), from[l->n_from].partition, from[l->n_from].offset};
    return l;
}

pst_score_core *pst_score_core_new(const pst_pipeline *p, const pst_score_core_host *host)
{
    pst_score_core *c = pst_alloc(sizeof(*c));
    c->p = p;
    c->host = *host;
    c->rows_max = p->batch_count;
    c->n_pass = p->n_passthrough;
    return c;
}

void pst_score_core_free(pst_score_core *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < 3; i++) {
        lane_free(c->roles[i].now);
        lane_free(c->roles[i].next);
    }
    pst_buf_done(&c->arena);
    pst_buf_done(&c->messages);
    free(c);
}

int pst_score_core_offer(pst_score_core *c, pst_variant variant, pst_binding *take, const pst_effective *from, size_t n)
{
    role *r = &c->roles[variant];
    if (r->next)
        return PST_EAGAIN;
    pst_lane *l = lane_new(c, variant, take, from, n);
    c->infer_failures = 0;
    if (r->now && n) {
        r->next = l;
        return 0;
    }
    lane_free(r->now);
    r->now = l;
    return 0;
}

void pst_score_core_hurry(pst_score_core *c, pst_variant variant)
{
    role *r = &c->roles[variant];
    if (!r->next)
        return;
    lane_free(r->now);
    r->now = r->next;
    r->next = NULL;
}

void pst_score_core_drop(pst_score_core *c, pst_variant variant)
{
    pst_score_core_hurry(c, variant);
    lane_free(c->roles[variant].now);
    c->roles[variant].now = NULL;
}

const pst_binding *pst_score_core_binding(const pst_score_core *c, pst_variant variant)
{
    const role *r = &c->roles[variant];
    const pst_lane *l = r->next ? r->next : r->now;
    return l ? l->binding : NULL;
}

static bool covers(const pst_lane *l, const pst_record *r)
{
    for (size_t i = 0; i < l->n_from; i++)
        if (l->from[i].partition == r->partition && !strcmp(l->from[i].topic, r->topic))
            return r->offset >= l->from[i].offset;
    return true;
}

static pst_lane *choose(role *r, const pst_record *rec)
{
    return r->next && covers(r->next, rec) ? r->next : r->now;
}

void pst_score_core_committed(pst_score_core *c, const char *topic, int32_t partition, int64_t offset)
{
    for (size_t v = 0; v < 3; v++) {
        role *r = &c->roles[v];
        if (!r->next)
            continue;
        bool all = true;
        for (size_t i = 0; i < r->next->n_from; i++) {
            const pst_effective *e = &r->next->from[i];
            if (e->partition == partition && offset >= e->offset && !strcmp(e->topic, topic))
                r->next->passed[i] = true;
            all &= r->next->passed[i];
        }
        if (all)
            pst_score_core_hurry(c, (pst_variant)v);
    }
}

void pst_score_core_assigned(pst_score_core *c, pst_variant variant, const pst_range *assignment, size_t n)
{
    pst_lane *l = c->roles[variant].next;
    bool all = l != NULL;
    for (size_t i = 0; l && i < l->n_from; i++) {
        bool ours = false;
        for (size_t k = 0; k < n && !ours; k++)
            ours = assignment[k].partition == l->from[i].partition && !strcmp(assignment[k].topic, l->from[i].topic);
        all &= l->passed[i] || !ours;
    }
    if (all)
        pst_score_core_hurry(c, variant);
}

/* ---- kinds of records ------------------------------------------------------------------------------------------------------ */

static int make_output(pst_score_core *c, kind *k, pst_err *err)
{
    const char **schemas = pst_alloc((c->n_pass + 1) * sizeof(*schemas));
    for (size_t i = 0; i < c->n_pass; i++)
        schemas[i] = pst_decoder_is_json(k->decoder) ? PST_JSON_PASS_SCHEMA : pst_decoder_pass_schema(k->decoder, i);
    int rc = pst_output_new(c->p, schemas, &k->output, err);
    free(schemas);
    return rc;
}

/* A schema that does not fit is remembered as such: its records are told apart by one comparison. */
static kind *add_kind(pst_score_core *c, pst_lane *l, int32_t id, const pst_schema *schema)
{
    if (l->n_kinds == KINDS_MAX) { /* somebody makes a schema per record: the oldest goes */
        bool used = false;
        for (size_t i = 0; i < l->n_rows; i++)
            used |= l->row_kind[i] == l->kinds[0];
        if (!used) {
            kind_free(l->kinds[0]);
            l->last = NULL;
            memmove(l->kinds, l->kinds + 1, --l->n_kinds * sizeof(*l->kinds));
        }
    }
    pst_err err = {0};
    kind *k = pst_alloc(sizeof(*k));
    k->id = id;
    k->output_id = -1;
    int rc = pst_decoder_new(c->p, l->binding, schema, &k->decoder, &err);
    if (rc == 0)
        rc = make_output(c, k, &err);
    if (rc < 0) {
        pst_decoder_free(k->decoder);
        k->decoder = NULL;
        k->why = pst_strdup(err.text);
    }
    l->kinds = pst_realloc(l->kinds, (l->n_kinds + 1) * sizeof(*l->kinds));
    l->kinds[l->n_kinds++] = k;
    return k;
}

static kind *known_kind(pst_lane *l, int32_t id)
{
    if (l->last && l->last->id == id)
        return l->last;
    for (size_t i = 0; i < l->n_kinds; i++)
        if (l->kinds[i]->id == id)
            return l->kinds[i];
    return NULL;
}

static int find_kind(pst_score_core *c, pst_lane *l, int32_t id, kind **ret, pst_err *err)
{
    kind *k = known_kind(l, id);
    if (!k) {
        const pst_schema *schema = NULL;
        int rc = c->p->format == PST_INPUT_JSON ? 0 : c->host.schema(c->host.arg, id, &schema, err);
        if (rc < 0)
            return rc;
        k = add_kind(c, l, id, schema);
    }
    l->last = k;
    *ret = k;
    return 0;
}

/* One record that the old model took, through the new one: its layout must come out even, its fields be of the kind and its arrays of the length
 * that the new one wants, and the model must run. What the record lacks for new features (MAP) is the record's affair. */
static int try_sample(pst_score_core *c, pst_decoder *d, pst_binding *b, const pst_buf *sample, pst_err *err)
{
    size_t n;
    pst_binding_features(b, &n);
    uint8_t *missing = pst_alloc(n + 1);
    pst_slice *pass = pst_alloc((c->n_pass + 1) * sizeof(*pass));
    pst_buf arena = {0};
    pst_decode_fault fault = {0};
    pst_err e = {0};
    int rc = pst_decoder_run(d, sample->data, sample->len, 0, missing, pass, &arena, &fault, &e);
    bool even = pst_decoder_is_laid_out(d);
    if (rc == 0)
        rc = pst_binding_run(b, 0, 1, &e);
    else if (even && fault.stage && !strcmp(fault.stage, "MAP"))
        rc = 0;
    if (rc < 0)
        pst_err_set(err, rc, PST_CLASS_DATA, e.origin, e.native, "%s", e.text);
    free(missing);
    free(pass);
    pst_buf_done(&arena);
    return rc;
}

static int try_kind(pst_score_core *c, const kind *k, pst_binding *b, pst_err *err)
{
    const pst_schema *schema = NULL;
    pst_decoder *d = NULL;
    bool json = c->p->format == PST_INPUT_JSON;
    if (!json && c->host.schema(c->host.arg, k->id, &schema, NULL) < 0)
        return 0; /* an outage says nothing against a model */
    int rc = pst_decoder_new(c->p, b, schema, &d, err);
    if (rc == 0 && k->sample.len)
        rc = try_sample(c, d, b, &k->sample, err);
    pst_decoder_free(d);
    if (rc < 0 && !json)
        pst_err_prefix(err, "records of schema id %d", k->id);
    return rc;
}

int pst_score_core_fits(pst_score_core *c, pst_variant variant, pst_binding *b, pst_err *err)
{
    const role *r = &c->roles[c->roles[variant].now ? variant : PST_VARIANT_PRIMARY];
    const pst_lane *l = r->now;
    int rc = 0;
    for (size_t i = 0; l && rc == 0 && i < l->n_kinds; i++)
        if (l->kinds[i]->decoder)
            rc = try_kind(c, l->kinds[i], b, err);
    return rc;
}

/* ---- pass 1: records → rows ------------------------------------------------------------------------------------------------ */

static void bad(pst_score_core *c, pst_fate *f, const char *stage, const char *reason, const char *text)
{
    f->kind = PST_FATE_BAD;
    f->lane = NULL;
    f->stage = stage;
    f->reason = reason;
    f->message = c->messages.len;
    pst_buf_add(&c->messages, text, strlen(text) + 1);
}

/* Splits the value. 0 with id and body, or the record is bad. */
static bool open_value(pst_score_core *c, const pst_record *r, int32_t *ret_id, pst_slice *ret_body, pst_fate *f)
{
    *ret_id = 0;
    *ret_body = (pst_slice){r->value, r->value_len};
    if (c->host.unframed || c->p->format == PST_INPUT_JSON)
        return true;
    pst_err err = {0};
    if (pst_frame_get(r->value, r->value_len, ret_id, ret_body, &err) == 0)
        return true;
    bad(c, f, "DECODE", "bad-envelope", err.text);
    return false;
}

/* One record into a lane. 1 = it has a row, 0 = it is bad (fate written if f), < 0 = wait or stop. */
static int enter(pst_score_core *c, pst_lane *l, const pst_record *r, size_t index, int32_t id, pst_slice body, pst_fate *f, pst_err *err)
{
    kind *k = NULL;
    pst_err e = {0};
    int rc = find_kind(c, l, id, &k, &e);
    if (rc < 0 && e.cls != PST_CLASS_DATA) {
        if (err && !err->code)
            *err = e;
        return rc;
    }
    if (rc < 0 || !k->decoder) {
        if (f)
            bad(c, f, "DECODE", rc < 0 ? "unknown-schema" : "schema-mismatch", rc < 0 ? e.text : k->why);
        return 0;
    }
    size_t row = l->n_rows;
    pst_decode_fault why = {0};
    rc = pst_decoder_run(k->decoder, body.data, body.len, row, l->missing + row * l->n_features, l->pass + row * c->n_pass, &c->arena, &why,
                         &e);
    l->beyond[row] = rc == 0 && why.reason;
    if (rc < 0 || (l->beyond[row] && c->p->non_finite_dead)) {
        if (f)
            bad(c, f, why.stage ? why.stage : "DECODE", why.reason ? why.reason : "bad-input", e.text);
        return 0;
    }
    if (!k->sample.len && body.len <= SAMPLE_BYTES_MAX)
        pst_buf_add(&k->sample, body.data, body.len);
    l->row_kind[row] = k;
    l->row_record[row] = (uint32_t)index;
    l->n_rows++;
    return 1;
}

static bool is_canary(const pst_score_core *c, const pst_record *r)
{
    if (!c->p->has_canary || !c->roles[PST_VARIANT_CANARY].now)
        return false;
    int64_t spread = r->offset * 31 + r->partition;
    uint32_t h = r->key ? pst_murmur2(r->key, r->key_len) : pst_murmur2(&spread, sizeof(spread));
    return (double)((h & 0x7fffffff) % 10000) < c->p->canary_percent * 100;
}

static int place(pst_score_core *c, const pst_record *r, size_t index, pst_fate *f, pst_err *err)
{
    memset(f, 0, sizeof(*f));
    if (!r->value) {
        f->kind = c->p->on_null == PST_NULL_PASS ? PST_FATE_TOMBSTONE : PST_FATE_SKIP;
        if (c->p->on_null == PST_NULL_DEAD_LETTER)
            bad(c, f, "DECODE", "null-value", "the value is null and errors.null is dead_letter");
        return 0;
    }
    int32_t id;
    pst_slice body;
    if (!open_value(c, r, &id, &body, f))
        return 0;
    pst_lane *l = choose(&c->roles[is_canary(c, r) ? PST_VARIANT_CANARY : PST_VARIANT_PRIMARY], r);
    f->by = l;
    int rc = enter(c, l, r, index, id, body, f, err);
    if (rc <= 0)
        return rc;
    f->kind = PST_FATE_SCORED;
    f->lane = l;
    f->row = (uint32_t)l->n_rows - 1;
    pst_lane *s = choose(&c->roles[PST_VARIANT_SHADOW], r);
    if (s && enter(c, s, r, index, id, body, NULL, NULL) > 0) { /* a shadow that cannot say anything is no reason to hold the stream */
        f->shadow = s;
        f->shadow_row = (uint32_t)s->n_rows - 1;
    }
    return 0;
}

/* Asks for the schemas of the records that follow a waiting one, so that several unknown ids wait at the same time. */
static void ask_ahead(pst_score_core *c, const pst_record *records, size_t n)
{
    pst_lane *l = c->roles[PST_VARIANT_PRIMARY].now;
    for (size_t i = 0; i < n && l; i++) {
        int32_t id;
        pst_slice body;
        pst_err err = {0};
        const pst_schema *schema;
        if (!records[i].value || pst_frame_get(records[i].value, records[i].value_len, &id, &body, NULL) < 0 || known_kind(l, id))
            continue;
        if (c->host.schema(c->host.arg, id, &schema, &err) < 0 && err.cls == PST_CLASS_RETRY && err.code != PST_EAGAIN)
            return;
    }
}

/* ---- pass 2: rows → scores ------------------------------------------------------------------------------------------------- */

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
    if (why->code == PST_ESTOPPED)
        r->err = *why;
    else if (endless && !r->done && r->endless > INFER_FAILURES_MAX)
        pst_err_set(&r->err, PST_ESTATE, PST_CLASS_RETRY, "model", 0,
                    "model %s version %d came to no end on any of %zu tries, so no record is dead-lettered; the last said: %.200s",
                    pst_binding_name(l->binding), pst_binding_version(l->binding), r->endless, why->text);
    return r->err.code != 0;
}

/* Runs rows [from, to); halves on failure. */
static void infer(pst_score_core *c, pst_lane *l, size_t from, size_t to, pst_fate *fates, inferring *r)
{
    pst_err err = {0};
    if (from == to || r->err.code)
        return;
    bool part = to - from < l->n_rows;
    if (part) {
        size_t ms = PST_MODEL_RUN_MS / 2 * (to - from) / l->n_rows;
        pst_binding_limit(l->binding, ms < 2000 ? 2000 : (int)ms);
    }
    int rc = pst_binding_run(l->binding, from, to, &err);
    if (part)
        pst_binding_limit(l->binding, PST_MODEL_RUN_MS);
    if (rc == 0) {
        r->done += to - from;
        return;
    }
    if (gives_up(l, &err, r))
        return;
    if (to - from > 1) {
        size_t mid = from + (to - from) / 2;
        infer(c, l, from, mid, fates, r);
        infer(c, l, mid, to, fates, r);
        return;
    }
    pst_fate *f = &fates[l->row_record[from]];
    if (l->variant == PST_VARIANT_SHADOW)
        f->shadow = NULL;
    else
        bad(c, f, "INFER", "bad-input", err.text);
}

static int infer_all(pst_score_core *c, pst_fate *fates, pst_err *err)
{
    for (size_t v = 0; v < 3; v++) {
        pst_lane *const lanes[] = {c->roles[v].now, c->roles[v].next};
        for (size_t i = 0; i < 2; i++) {
            pst_lane *l = lanes[i];
            if (!l || !l->n_rows)
                continue;
            inferring r = {0};
            infer(c, l, 0, l->n_rows, fates, &r);
            if (r.err.code && (v != PST_VARIANT_SHADOW || r.err.code == PST_ESTOPPED)) {
                *err = r.err;
                return r.err.code;
            }
            for (size_t k = 0; k < l->n_rows && r.err.code; k++) /* a shadow that has no end says nothing */
                fates[l->row_record[k]].shadow = NULL;
            if (v == PST_VARIANT_SHADOW)
                continue;
            c->infer_failures = r.done ? 0 : c->infer_failures + (int)l->n_rows;
            if (c->infer_failures < INFER_FAILURES_MAX)
                continue;
            const pst_fate *f = &fates[l->row_record[l->n_rows - 1]];
            c->infer_failures = 0;
            return pst_err_set(err, PST_ESTATE, PST_CLASS_RETRY, "model", 0,
                               "model %s version %d fails on every record, so none is dead-lettered; the last said: %.200s",
                               pst_binding_name(l->binding), pst_binding_version(l->binding), pst_score_core_message(c, f));
        }
    }
    return 0;
}

bool pst_score_core_finite(const pst_score_core *c, const pst_fate *f)
{
    const double *scores;
    const char *label;
    size_t n = pst_score_core_score(c, f, false, &scores, &label);
    bool finite = !f->lane || !f->lane->beyond[f->row];
    for (size_t i = 0; i < n; i++)
        finite &= isfinite(scores[i]) != 0;
    return finite;
}

static void refuse_non_finite(pst_score_core *c, pst_fate *f)
{
    if (f->kind != PST_FATE_SCORED || pst_score_core_finite(c, f))
        return;
    bad(c, f, "INFER", "non-finite", "the score is NaN or infinite and score.non_finite is dead_letter");
    f->shadow = NULL;
}

pst_variant pst_score_core_lane_variant(const pst_lane *l)
{
    return l->variant;
}

const pst_binding *pst_score_core_lane_binding(const pst_lane *l)
{
    return l->binding;
}

int64_t pst_score_core_lane_from(const pst_lane *l, const char *topic, int32_t partition)
{
    for (size_t i = 0; i < l->n_from; i++)
        if (l->from[i].partition == partition && !strcmp(l->from[i].topic, topic))
            return l->from[i].offset;
    return -1;
}

int pst_score_core_run(pst_score_core *c, const pst_record *records, size_t n, pst_fate *ret_fates, size_t *ret_usable, pst_err *err)
{
    PST_ASSERT(n <= c->rows_max && c->roles[PST_VARIANT_PRIMARY].now);
    pst_buf_clear(&c->arena);
    pst_buf_clear(&c->messages);
    for (size_t v = 0; v < 3; v++) {
        if (c->roles[v].now)
            c->roles[v].now->n_rows = 0;
        if (c->roles[v].next)
            c->roles[v].next->n_rows = 0;
    }
    size_t usable = 0;
    for (; usable < n; usable++) {
        int rc = place(c, &records[usable], usable, &ret_fates[usable], err);
        if (rc >= 0)
            continue;
        if (rc == PST_EAGAIN)
            ask_ahead(c, records + usable + 1, n - usable - 1);
        break;
    }
    int rc = infer_all(c, ret_fates, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; c->p->non_finite_dead && i < usable; i++)
        refuse_non_finite(c, &ret_fates[i]);
    *ret_usable = usable;
    return 0;
}

/* ---- what came of it ------------------------------------------------------------------------------------------------------- */

const char *pst_score_core_message(const pst_score_core *c, const pst_fate *f)
{
    return f->kind == PST_FATE_BAD && f->message < c->messages.len ? c->messages.data + f->message : "";
}

size_t pst_score_core_score(const pst_score_core *c, const pst_fate *f, bool shadow, const double **ret_scores, const char **ret_label)
{
    return pst_binding_score(shadow ? f->shadow->binding : f->lane->binding, shadow ? f->shadow_row : f->row, ret_scores, ret_label);
}

const pst_feature *pst_score_core_missing(const pst_score_core *c, const pst_fate *f, const uint8_t **ret_missing, size_t *ret_n)
{
    *ret_missing = f->lane->missing + f->row * f->lane->n_features;
    *ret_n = f->lane->n_features;
    return f->lane->features;
}

const pst_binding *pst_score_core_fate_binding(const pst_fate *f, bool shadow)
{
    return shadow ? f->shadow->binding : f->lane->binding;
}

/* The id under which scores of this kind are written. A refusal is remembered for a while: it is said of each record and asked for once. */
static int output_id(pst_score_core *c, kind *k, bool shadow, int64_t now_us, pst_err *err)
{
    if (k->output_id >= 0)
        return 0;
    if (!k->refused.code || now_us - k->refused_us > REFUSED_US) {
        pst_err_clear(&k->refused);
        int rc = c->host.output_id(c->host.arg, pst_output_schema(k->output), shadow, &k->output_id, &k->refused);
        if (rc == 0)
            return 0;
        k->output_id = -1;
        k->refused_us = now_us;
    }
    pst_err said = k->refused;
    if (said.cls != PST_CLASS_DATA)
        pst_err_clear(&k->refused);
    return pst_err_set(err, said.code, said.cls, said.origin, said.native, "%s", said.text);
}

int pst_score_core_encode(pst_score_core *c, const pst_record *r, const pst_fate *f, bool shadow, int64_t now_us, pst_buf *out,
                          pst_err *err)
{
    pst_lane *l = shadow ? f->shadow : f->lane;
    size_t row = shadow ? f->shadow_row : f->row;
    kind *k = l->row_kind[row];
    int rc = output_id(c, k, l->variant == PST_VARIANT_SHADOW, now_us, err);
    if (rc < 0)
        return rc;
    pst_score_parts s = {.model = {l->model.data, l->model.len},
                         .topic = r->topic,
                         .partition = r->partition,
                         .offset = r->offset,
                         .timestamp_ms = r->timestamp_ms > 0 ? r->timestamp_ms : 0,
                         .variant = l->variant,
                         .scored_at_us = now_us,
                         .features = l->features,
                         .missing = l->missing + row * l->n_features,
                         .n_features = l->n_features,
                         .pass = l->pass + row * c->n_pass,
                         .threshold = l->has_threshold ? &l->threshold : NULL};
    s.n_scores = pst_binding_score(l->binding, row, &s.scores, &s.label);
    pst_slice *pass = l->pass + row * c->n_pass;
    if (pst_decoder_is_json(k->decoder)) /* offsets into the arena become addresses, once: a second encode of the row sees addresses */
        for (size_t i = 0; i < c->n_pass; i++)
            if (pass[i].data && (uintptr_t)pass[i].data <= c->arena.len)
                pass[i].data = c->arena.data + (uintptr_t)pass[i].data - 1;
    pst_frame_put(out, k->output_id);
    pst_output_put(k->output, &s, out);
    return 0;
}

int pst_score_core_explain(pst_score_core *c, const pst_schema *schema, char **ret_text, pst_err *err)
{
    pst_lane *l = c->roles[PST_VARIANT_PRIMARY].now;
    pst_decoder *d = NULL;
    int rc = pst_decoder_new(c->p, l->binding, schema, &d, err);
    if (rc < 0)
        return rc;
    *ret_text = pst_decoder_explain(d);
    pst_decoder_free(d);
    return 0;
}
