/* score_lanes.c - the models of the variants: who is in use, who follows whom from which offsets on, and whether a model would take what the one before took.
 * Memory for rows, missing flags and pass-through slices is allocated when a model comes, so that the steady state uses no heap. */
#include "inference/core/score_core_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void lane_free(pst_score_core *c, pst_lane *l)
{
    if (!l)
        return;
    score_kinds_forget(c, l->slot);
    free(l->row_fate);
    free(l->missing);
    free(l->beyond);
    free(l->pass);
    pst_epoch_free(l->epoch);
    pst_buf_done(&l->model);
    pst_output_head_done(&l->head);
    pst_binding_free(l->binding);
    free(l);
}

void score_lanes_free(pst_score_core *c)
{
    for (size_t i = 0; i < SCORE_VARIANTS; i++) {
        lane_free(c, c->models[i].now);
        lane_free(c, c->models[i].next);
    }
}

static bool device_changed(pst_lane *l)
{
    const char *why, *device = pst_binding_device(l->binding, &why);
    bool changed = strcmp(l->device, device) != 0;
    snprintf(l->device, sizeof l->device, "%s", device);
    return changed;
}

static pst_lane *lane_new(const pst_score_core *c, pst_variant variant, size_t slot, pst_binding *take, pst_epoch *epoch)
{
    pst_lane *l = pst_alloc(sizeof(*l));
    l->variant = variant;
    l->slot = slot;
    l->binding = take;
    l->features = pst_binding_features(take, &l->n_features);
    l->has_threshold = pst_binding_threshold(take, &l->threshold);
    pst_output_model(take, &l->model);
    l->row_fate = pst_alloc(c->rows_max * sizeof(*l->row_fate));
    l->missing = pst_alloc(c->rows_max * l->n_features + 1);
    l->beyond = pst_alloc(c->rows_max + 1);
    l->pass = pst_alloc((c->rows_max * c->n_pass + 1) * sizeof(*l->pass));
    l->epoch = epoch;
    device_changed(l);
    return l;
}

/* ---- changes --------------------------------------------------------------------------------------------------------------- */

/* Its successor counts everywhere from now on. */
static void conclude(pst_score_core *c, score_models *r)
{
    PST_ASSERT(r->next);
    lane_free(c, r->now);
    r->now = r->next;
    r->next = NULL;
}

int pst_score_core_offer(pst_score_core *c, pst_variant variant, pst_binding *take, const pst_effective *from, size_t n)
{
    score_models *r = &c->models[variant];
    if (r->next && n)
        return PST_EAGAIN;
    if (r->next) /* nothing is to be scored by the one before it, nor by it */
        conclude(c, r);
    size_t slot = (size_t)variant * 2 + (r->now && r->now->slot % 2 == 0);
    PST_ASSERT(slot / 2 == (size_t)variant && (!r->now || r->now->slot != slot)); /* the two of a variant read apart */
    r->next = lane_new(c, variant, slot, take, pst_epoch_new(from, n));
    if (variant == PST_VARIANT_SHADOW)
        pst_err_clear(&c->shadow_why);
    if (!r->now || !n)
        conclude(c, r);
    return 0;
}

const pst_binding *pst_score_core_binding(const pst_score_core *c, pst_variant variant)
{
    const score_models *r = &c->models[variant];
    const pst_lane *l = r->next ? r->next : r->now;
    return l ? l->binding : NULL;
}

pst_lane *score_lane_of(const score_models *m, const pst_record *r)
{
    return m->next && pst_epoch_covers(m->next->epoch, r) ? m->next : m->now;
}

const pst_lane *pst_score_core_primary_of(const pst_score_core *c, const pst_record *r)
{
    return score_lane_of(&c->models[PST_VARIANT_PRIMARY], r);
}

void pst_score_core_committed(pst_score_core *c, const char *topic, int32_t partition, int64_t offset)
{
    for (size_t v = 0; v < SCORE_VARIANTS; v++) {
        score_models *r = &c->models[v];
        if (r->next && pst_epoch_committed(r->next->epoch, topic, partition, offset))
            conclude(c, r);
    }
}

void pst_score_core_assigned(pst_score_core *c, pst_variant variant, const pst_range *assignment, size_t n)
{
    score_models *r = &c->models[variant];
    if (r->next && pst_epoch_assigned(r->next->epoch, assignment, n))
        conclude(c, r);
}

const pst_lane *pst_score_core_device_changed(pst_score_core *c)
{
    for (size_t v = 0; v < SCORE_VARIANTS; v++) {
        pst_lane *const lanes[] = {c->models[v].now, c->models[v].next};
        for (size_t i = 0; i < 2; i++)
            if (lanes[i] && device_changed(lanes[i]))
                return lanes[i];
    }
    return NULL;
}

pst_variant pst_score_core_lane_variant(const pst_lane *l)
{
    return l->variant;
}

const pst_binding *pst_score_core_lane_binding(const pst_lane *l)
{
    return l->binding;
}

/* ---- would it fit? --------------------------------------------------------------------------------------------------------- */

/* One record that the old model took, through the new one: its layout must come out even, its fields be of the kind and its arrays of the length
 * that the new one wants, and the model must run. What the record lacks for new features (MAP) is the record's affair. */
static int try_sample(const pst_score_core *c, pst_decoder *d, pst_binding *b, const pst_buf *sample, pst_err *err)
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

static int try_kind(const pst_score_core *c, const pst_score_kind *k, const pst_buf *sample, pst_binding *b, pst_err *err)
{
    pst_decoder *d = NULL;
    int rc = pst_decoder_new(c->p, b, k->schema, &d, err);
    size_t n;
    if (rc == 0 && k->schema && pst_decoder_has_no_field(d))
        rc = pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "features", 0,
                         "%s has none of the model's fields (%s …): every record would get one score; is it a model of other records?",
                         pst_schema_name(k->schema), pst_binding_features(b, &n)->field);
    if (rc == 0 && sample->len)
        rc = try_sample(c, d, b, sample, err);
    pst_decoder_free(d);
    if (rc < 0 && k->schema)
        pst_err_prefix(err, "records of schema id %d", k->id);
    return rc;
}

int pst_score_core_fits(pst_score_core *c, pst_variant variant, pst_binding *b, pst_err *err)
{
    const pst_lane *l = c->models[c->models[variant].now ? variant : PST_VARIANT_PRIMARY].now;
    int rc = 0;
    for (size_t i = 0; l && rc == 0 && i < c->n_kinds; i++) {
        const score_reader *d = &c->kinds[i]->readers[l->slot];
        if (d->decoder)
            rc = try_kind(c, c->kinds[i], &d->sample, b, err);
    }
    return rc;
}
