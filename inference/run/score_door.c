/* score_door.c - what stands before the core: each record of a batch gets there with all that its scoring needs, known writer schema and registered output
 * schemas, or is refused, or its partition waits for it. Only here the registry is asked, on the scorer's own thread; behind the door nothing waits. */
#include "inference/run/score_priv.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/platform/codec.h"
#include "common/registry/registry.h"

#include <stdlib.h>
#include <string.h>

enum { REFUSED_US = 30000000, AWAY_US = 2000000, SHADOW_WAITS_US = 30000000 };

/* ---- partitions that stop -------------------------------------------------------------------------------------------------- */

bool scorer_retriable(int rc, const pst_err *e)
{
    return rc == PST_EAGAIN || e->cls == PST_CLASS_RETRY;
}

static score_stop *find_stop(const scorer *s, const pst_record *r)
{
    for (size_t i = 0; i < s->n_stops; i++) {
        const pst_record *at = s->stops[i].at;
        if (at->partition == r->partition && !strcmp(at->topic, r->topic))
            return &s->stops[i];
    }
    return NULL;
}

bool scorer_is_stopped(const scorer *s, const pst_record *r)
{
    const score_stop *x = s->n_stops ? find_stop(s, r) : NULL;
    return x && x->at->offset <= r->offset;
}

void scorer_stop_at(scorer *s, const pst_record *r, const pst_err *why)
{
    score_stop *x = find_stop(s, r);
    PST_ASSERT(!x || r->offset < x->at->offset); /* what is behind a stop is neither taken nor sent */
    if (!x) {
        s->stops = pst_array_room(s->stops, s->n_stops, &s->cap_stops, sizeof(*s->stops));
        x = &s->stops[s->n_stops++];
    }
    *x = (score_stop){.at = r, .why = *why};
}

/* ---- what the registry says ------------------------------------------------------------------------------------------------ */

/* Nobody leaves because of what a registry says while it is running: no right today may be a right tomorrow, and a proxy's 400 says nothing of a
 * schema. What remains as DATA is a verdict on the schema itself. */
static int wait_instead(pst_err *err, const pst_err *e)
{
    bool http = !strcmp(e->origin, "registry") && (e->code == PST_EAUTH || e->code == PST_EINVAL || e->code == PST_ELIMIT);
    return pst_err_set(err, e->code, http ? PST_CLASS_RETRY : e->cls, e->origin, e->native, "%s", e->text);
}

/* Class RETRY: ask again later (PST_EAGAIN: this id is not known yet; anything else: the registry is away). DATA: there is no such id. */
static int find_schema(scorer *s, int32_t id, const pst_schema **ret_schema, pst_err *err)
{
    pst_err e = {0};
    bool believed = pst_unknown_believed(s->unknown, id, pst_mono_us());
    int rc = believed ? PST_ENOTFOUND : pst_codec_schema(s->client->codec, id, ret_schema, &e);
    if (rc == 0) {
        pst_unknown_is_known(s->unknown, id);
        return 0;
    }
    if (rc != PST_ENOTFOUND)
        return wait_instead(err, &e);
    if (pst_unknown_said(s->unknown, id, pst_mono_us()))
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "registry", 404,
                           "schema id %d is unknown to the registry %s, asked %d times", id, pst_registry_url(s->client->registry),
                           PST_UNKNOWN_TRIES);
    return pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "registry", 404, "schema id %d is not known to the registry yet", id);
}

/* Registers an output schema. RETRY: ask again later; DATA: it is refused, and so are the records that need it. */
static int register_output(scorer *s, const char *schema_text, bool shadow, int32_t *ret_id, pst_err *err)
{
    char *subject = pst_sprintf("%s-value", shadow ? s->p->shadow_topic : s->p->output_topic);
    pst_err e = {0};
    int rc = pst_registry_register(s->client->registry, subject, schema_text, ret_id, &e);
    if (rc == PST_EINCOMPAT)
        pst_err_prefix(&e, "the scores' schema does not fit what %s holds already", subject);
    bool invalid = e.code == PST_EINVAL && (e.native == 422 || e.native / 100 == 422); /* 422, or 42201 … */
    if (rc == PST_ENOTFOUND)                                                           /* a POST that finds nothing found no registry */
        e.cls = PST_CLASS_RETRY;
    if (rc < 0 && invalid)
        rc = pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "registry", e.native, "%s", e.text);
    else if (rc < 0)
        rc = wait_instead(err, &e);
    free(subject);
    return rc;
}

/* ---- what the core lacks --------------------------------------------------------------------------------------------------- */

/* A failure of class DATA is the registry's verdict: the core goes on with it. Any other is the caller's, and goes into *err. */
static bool is_verdict(int rc, const pst_err *e, pst_err *err)
{
    if (rc == 0 || e->cls == PST_CLASS_DATA)
        return rc != 0;
    *err = *e;
    return false;
}

/* The core's output schema for this writer schema is registered, and its id given to the core. */
static int give_registered(scorer *s, int32_t id, bool shadow, pst_err *err)
{
    int32_t output = -1;
    int rc = register_output(s, pst_score_core_output_schema(s->core, id), shadow, &output, err);
    if (rc == 0)
        pst_score_core_output(s->core, id, shadow, output);
    return rc;
}

static int give_schema(scorer *s, const pst_record *r, int32_t id, bool *ret_refused, pst_err *err)
{
    const pst_schema *schema = NULL;
    pst_err e = {0};
    int rc = find_schema(s, id, &schema, &e);
    if (rc == 0)
        pst_score_core_schema(s->core, id, schema);
    if (!is_verdict(rc, &e, err))
        return rc;
    pst_score_core_refuse(s->core, r, "DECODE", "unknown-schema", e.text);
    *ret_refused = true;
    return 0;
}

/* A refusal is remembered for a while: it is said of each record and asked for once. */
static int give_output(scorer *s, int32_t id, int64_t now, pst_err *err)
{
    pst_err e = {0};
    int rc = give_registered(s, id, false, &e);
    if (!is_verdict(rc, &e, err))
        return rc;
    pst_score_core_no_output(s->core, id, false, e.text, now + REFUSED_US);
    return 0;
}

/* A shadow is a trial and holds the stream for half a minute at most: what has nowhere to go then is left out, said once, and counted. */
static int give_shadow(scorer *s, int32_t id, int64_t now, pst_err *err)
{
    pst_err e = {0};
    if (give_registered(s, id, true, &e) == 0) {
        s->shadow_waits_us = 0;
        return 0;
    }
    bool away = e.cls == PST_CLASS_RETRY;
    if (away && !s->shadow_waits_us)
        s->shadow_waits_us = now;
    if (away && now - s->shadow_waits_us < SHADOW_WAITS_US) {
        *err = e;
        return e.code;
    }
    pst_score_core_no_output(s->core, id, true, e.text, now + (away ? AWAY_US : REFUSED_US));
    s->shadow_why = e;
    return 0;
}

/* ---- one batch ------------------------------------------------------------------------------------------------------------- */

static bool refuse_early(scorer *s, const pst_record *r, char *why, size_t size)
{
    bool large = scorer_state_too_large(s, r);
    if (large)
        pst_score_core_refuse(s->core, r, "PRODUCE", "too-large", "the score is larger than its topic takes");
    else if (r->value && scorer_is_refused(s, r, why, size))
        pst_score_core_refuse(s->core, r, "PRODUCE", "refused", why);
    else
        return false;
    return true;
}

/* One record in. RETRY: it has to wait. */
static int take(scorer *s, const pst_record *r, int64_t now, pst_err *err)
{
    int32_t id = 0;
    int rc = 0;
    const char *crash = score_note_culprit(s->note, r);
    char why[512];
    if ((rc = scorer_state_ready(s, r, err)) < 0 || s->state_lost)
        return rc;
    bool refused = crash != NULL;
    pst_score_need need;
    if (crash)
        pst_score_core_refuse(s->core, r, "INFER", "crash", crash);
    else if (s->p->state.there) /* what would be bad only when it is sent is bad here: no window is to have it */
        refused = refuse_early(s, r, why, sizeof(why));
    while (rc == 0 && !refused && (need = pst_score_core_take(s->core, r, &id)) != PST_NEEDS_NOTHING) {
        switch (need) {
        case PST_NEEDS_SCHEMA: rc = give_schema(s, r, id, &refused, err); break;
        case PST_NEEDS_OUTPUT: rc = give_output(s, id, now, err); break;
        case PST_NEEDS_SHADOW: rc = give_shadow(s, id, now, err); break;
        case PST_NEEDS_NOTHING: break;
        }
    }
    return rc;
}

/* A record behind one that waits: its schema is asked for now, so that several unknown ids wait at the same time. False: the registry is away. */
static bool ask_ahead(scorer *s, const pst_record *r)
{
    int32_t id;
    pst_slice body;
    pst_err e = {0};
    const pst_schema *schema;
    if (s->p->format == PST_INPUT_JSON || !r->value || pst_frame_get(r->value, r->value_len, &id, &body, NULL) < 0 ||
        pst_score_core_knows(s->core, id) || find_schema(s, id, &schema, &e) == 0)
        return true;
    return e.cls != PST_CLASS_RETRY || e.code == PST_EAGAIN;
}

int scorer_take(scorer *s, const pst_record *records, size_t n)
{
    int64_t now = pst_mono_us();
    bool there = true;
    pst_score_core_begin(s->core, now);
    s->n_stops = 0;
    for (size_t i = 0; i < n; i++) {
        const pst_record *r = &records[i];
        pst_err why = {0};
        bool held = pst_consumer_holds(s->consumer) && pst_consumer_held(s->consumer, r->topic, r->partition);
        if (held || scorer_is_stopped(s, r)) {
            there = there && ask_ahead(s, r);
            continue;
        }
        int rc = take(s, r, now, &why);
        if (s->state_lost)
            return 0;
        if (rc == 0)
            continue;
        if (!scorer_retriable(rc, &why)) {
            s->err = why;
            return rc;
        }
        there = there && rc == PST_EAGAIN;
        scorer_stop_at(s, r, &why);
    }
    return 0;
}
