/* score_kinds.c - what records are written in: one kind a writer schema, with a decoder for each model in use and the way out for its scores. All of it is
 * made from what the caller gave, so nothing here can wait. */
#include "inference/core/score_core_priv.h"

#include "common/base/array.h"

#include <stdlib.h>
#include <string.h>

enum { KINDS_MAX = 1000 };

static void reader_done(score_reader *d)
{
    pst_decoder_free(d->decoder);
    pst_buf_done(&d->sample);
    free(d->why);
    *d = (score_reader){0};
}

static void kind_free(pst_score_kind *k)
{
    for (size_t i = 0; i < SCORE_LANES; i++)
        reader_done(&k->readers[i]);
    pst_output_free(k->output);
    free(k->sinks[0].refused);
    free(k->sinks[1].refused);
    free(k);
}

void score_kinds_free(pst_score_core *c)
{
    for (size_t i = 0; i < c->n_kinds; i++)
        kind_free(c->kinds[i]);
    free(c->kinds);
}

void score_kinds_forget(pst_score_core *c, size_t slot)
{
    for (size_t i = 0; i < c->n_kinds; i++)
        reader_done(&c->kinds[i]->readers[slot]);
}

pst_score_kind *score_kind_find(pst_score_core *c, int32_t id)
{
    if (c->last && c->last->id == id)
        return c->last;
    for (size_t i = 0; i < c->n_kinds; i++)
        if (c->kinds[i]->id == id) {
            c->last = c->kinds[i];
            return c->last;
        }
    return NULL;
}

/* Somebody makes a schema per record: the oldest goes, unless the batch in hand has records of it. */
static void make_room(pst_score_core *c)
{
    if (c->n_kinds < KINDS_MAX || c->kinds[0]->batch == c->batch)
        return;
    kind_free(c->kinds[0]);
    c->last = NULL;
    memmove(c->kinds, c->kinds + 1, --c->n_kinds * sizeof(*c->kinds));
}

pst_score_kind *score_kind_add(pst_score_core *c, int32_t id, const pst_schema *schema)
{
    make_room(c);
    pst_score_kind *k = pst_alloc(sizeof(*k));
    k->id = id;
    k->schema = schema;
    k->sinks[0].id = k->sinks[1].id = -1;
    c->kinds = pst_array_room(c->kinds, c->n_kinds, &c->cap_kinds, sizeof(pst_score_kind *));
    c->kinds[c->n_kinds++] = k;
    return k;
}

/* Of the writer's pass-through fields, which every decoder of the kind sees alike. */
static int make_output(const pst_score_core *c, pst_score_kind *k, const pst_decoder *d, pst_err *err)
{
    const char **schemas = pst_alloc((c->n_pass + 1) * sizeof(*schemas));
    for (size_t i = 0; i < c->n_pass; i++)
        schemas[i] = pst_decoder_is_json(d) ? PST_JSON_PASS_SCHEMA : pst_decoder_pass_schema(d, i);
    int rc = pst_output_new(c->p, schemas, &k->output, err);
    free(schemas);
    return rc;
}

/* A schema that does not fit is remembered as such: its records are told apart by one comparison. */
static void make_reader(const pst_score_core *c, pst_score_kind *k, const pst_lane *l, score_reader *d)
{
    pst_err err = {0};
    int rc = pst_decoder_new(c->p, l->binding, k->schema, &d->decoder, &err);
    if (rc == 0 && !k->output)
        rc = make_output(c, k, d->decoder, &err);
    if (rc < 0) {
        pst_decoder_free(d->decoder);
        d->decoder = NULL;
        d->why = pst_strdup(err.text);
    }
    d->made = true;
}

score_reader *score_kind_reader(const pst_score_core *c, pst_score_kind *k, const pst_lane *l)
{
    score_reader *d = &k->readers[l->slot];
    if (!d->made)
        make_reader(c, k, l, d);
    return d;
}

/* ---- what the caller gives ------------------------------------------------------------------------------------------------- */

void pst_score_core_schema(pst_score_core *c, int32_t id, const pst_schema *schema)
{
    PST_ASSERT(schema && !score_kind_find(c, id));
    score_kind_add(c, id, schema);
}

static const pst_score_kind *look(const pst_score_core *c, int32_t id)
{
    for (size_t i = 0; i < c->n_kinds; i++)
        if (c->kinds[i]->id == id)
            return c->kinds[i];
    return NULL;
}

bool pst_score_core_knows(const pst_score_core *c, int32_t id)
{
    return (c->last && c->last->id == id) || look(c, id);
}

const char *pst_score_core_output_schema(const pst_score_core *c, int32_t id)
{
    const pst_score_kind *k = look(c, id);
    return k && k->output ? pst_output_schema(k->output) : NULL;
}

static void set_sink(pst_score_core *c, int32_t id, bool shadow, score_sink to)
{
    pst_score_kind *k = score_kind_find(c, id);
    PST_ASSERT(k && k->output && (to.id >= 0) != (to.refused != NULL));
    free(k->sinks[shadow].refused);
    k->sinks[shadow] = to;
}

void pst_score_core_output(pst_score_core *c, int32_t id, bool shadow, int32_t output_id)
{
    set_sink(c, id, shadow, (score_sink){.id = output_id});
}

void pst_score_core_no_output(pst_score_core *c, int32_t id, bool shadow, const char *why, int64_t until_us)
{
    set_sink(c, id, shadow, (score_sink){.id = -1, .refused = pst_strdup(why), .until_us = until_us});
}
