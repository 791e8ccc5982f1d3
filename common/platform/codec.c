/* codec.c - from a record's bytes to an event and back. Everything learnt about a schema id is kept for ever: ids never change their meaning. The lock guards the tables
 * only; the registry is asked and plans are compiled outside it, so a slow registry stops nobody whose ids are known. Two threads may then
 * compile the same plan: the second one's is dropped. */
#include "common/platform/codec.h"

#include "schemas/type.h"

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/map.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct known { /* one (id, target): target "" = the schema alone */
    pst_schema *schema;
    pst_decode_plan *plan;
    pst_err *bad; /* why it can never be used: remembered too, so that a bad id costs little */
} known;

struct pst_codec {
    pst_registry *registry;
    pthread_mutex_t lock;
    pst_map known; /* "17" or "17 JobRequest" → known */
    pst_map ids;   /* "topic JobRequest" → id + 1 as a pointer */
};

pst_codec *pst_codec_new(pst_registry *registry)
{
    pst_codec *c = pst_alloc(sizeof *c);
    c->registry = registry;
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

static void free_known(void *p)
{
    known *k = p;
    pst_schema_free(k->schema);
    pst_decode_plan_free(k->plan);
    free(k->bad);
    free(k);
}

void pst_codec_free(pst_codec *c)
{
    if (!c)
        return;
    pst_map_done(&c->known, free_known);
    pst_map_done(&c->ids, NULL);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static known *look(pst_codec *c, const char *key)
{
    pthread_mutex_lock(&c->lock);
    known *k = pst_map_get(&c->known, key);
    pthread_mutex_unlock(&c->lock);
    return k;
}

/* Puts k under key unless another thread was faster; returns what is there now. */
static known *keep(pst_codec *c, const char *key, known *k)
{
    PST_ASSERT(!k->schema + !k->plan + !k->bad == 2); /* one of the three: readers use what is there unasked */
    pthread_mutex_lock(&c->lock);
    known *there = pst_map_get(&c->known, key);
    if (!there)
        pst_map_put(&c->known, key, k);
    pthread_mutex_unlock(&c->lock);
    if (there)
        free_known(k);
    return there ? there : k;
}

static int answer(const known *k, pst_err *err)
{
    return k->bad ? pst_err_set(err, k->bad->code, k->bad->cls, k->bad->origin, k->bad->native, "%s", k->bad->text) : 0;
}

static pst_err *keep_err(const pst_err *e)
{
    pst_err *copy = pst_alloc(sizeof *copy);
    *copy = *e;
    return copy;
}

int pst_codec_schema(pst_codec *c, int32_t id, const pst_schema **ret_schema, pst_err *err)
{
    char key[16];
    const char *text;
    snprintf(key, sizeof key, "%d", id);
    known *k = look(c, key);
    if (!k) {
        pst_err why = {0};
        int rc = pst_registry_schema(c->registry, id, &text, err);
        if (rc < 0) {
            pst_err_prefix(err, "schema id %d", id);
            return rc;
        }
        k = pst_alloc(sizeof *k);
        if (pst_schema_parse_writer(text, strlen(text), &k->schema, &why) < 0) {
            pst_err_prefix(&why, "schema id %d", id);
            k->bad = keep_err(&why);
        }
        k = keep(c, key, k);
    }
    int rc = answer(k, err);
    if (!rc)
        *ret_schema = k->schema;
    return rc;
}

static int plan_for(pst_codec *c, int32_t id, const pst_type *type, const pst_decode_plan **ret_plan, pst_err *err)
{
    char key[96];
    const pst_schema *schema;
    snprintf(key, sizeof key, "%d %s", id, pst_type_name(type));
    known *k = look(c, key);
    if (!k) {
        pst_err why = {0};
        int rc = pst_codec_schema(c, id, &schema, err);
        if (rc < 0)
            return rc;
        k = pst_alloc(sizeof *k);
        if (pst_decode_plan_new(schema, type, &k->plan, &why) < 0) {
            pst_err_prefix(&why, "schema id %d", id);
            k->bad = keep_err(&why);
        }
        k = keep(c, key, k);
    }
    int rc = answer(k, err);
    if (!rc)
        *ret_plan = k->plan;
    return rc;
}

int pst_codec_encode(pst_codec *c, const pst_type *type, const char *topic, const void *event, pst_buf *out, pst_err *err)
{
    char *key = pst_sprintf("%s %s", topic, pst_type_name(type));
    int32_t id;
    pthread_mutex_lock(&c->lock);
    uintptr_t have = (uintptr_t)pst_map_get(&c->ids, key);
    pthread_mutex_unlock(&c->lock);
    int rc = 0;
    if (have) {
        id = (int32_t)(uint32_t)(have - 1);
    } else {
        char *subject = pst_sprintf("%s-value", topic);
        rc = pst_registry_register(c->registry, subject, pst_type_schema(type), &id, err);
        if (!rc) {
            PST_ASSERT(id >= 0);
            pthread_mutex_lock(&c->lock);
            pst_map_put(&c->ids, key, (void *)((uintptr_t)(uint32_t)id + 1));
            pthread_mutex_unlock(&c->lock);
        } else {
            pst_err_prefix(err, "registering the schema of %s", subject);
        }
        free(subject);
    }
    free(key);
    if (rc < 0)
        return rc;
    pst_frame_put(out, id);
    pst_event_encode(type, event, out);
    return 0;
}

/* JSON text is accepted for what people publish by hand; in these a time of 0 means the record's timestamp. */
static bool by_hand(const pst_type *type)
{
    return type == &pst_job_request_type || type == &pst_model_event_type || type == &pst_pipeline_spec_type ||
           type == &pst_queue_spec_type;
}

static void stamp(const pst_type *type, void *event, int64_t timestamp_ms)
{
    for (size_t i = 0; timestamp_ms > 0 && i < type->n_fields; i++)
        if (type->fields[i].time && type->fields[i].shape == PST_SHAPE_ONE && !strcmp(type->fields[i].name, "time")) {
            int64_t *time = (int64_t *)(void *)((char *)event + type->fields[i].offset);
            if (!*time)
                *time = timestamp_ms * 1000;
        }
}

int pst_codec_decode(pst_codec *c, const pst_type *type, const void *value, size_t len, int64_t timestamp_ms, void *ret_event, pst_err *err)
{
    const pst_decode_plan *plan;
    pst_slice body;
    json_t *j;
    int32_t id;
    int rc;
    memset(ret_event, 0, pst_type_size(type));
    if (!value)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "avro", 0, "the record has no value; a %s is wanted", pst_type_name(type));
    if (len && *(const char *)value == '{' && by_hand(type)) {
        rc = pst_json_parse(value, len, "the record's value", &j, err);
        if (rc < 0)
            return rc;
        rc = pst_event_from_json(type, j, ret_event, err);
        json_decref(j);
    } else {
        rc = pst_frame_get(value, len, &id, &body, err);
        if (!rc)
            rc = plan_for(c, id, type, &plan, err);
        if (rc < 0)
            return rc;
        rc = pst_decode_run(plan, body.data, body.len, ret_event, err);
    }
    if (!rc && by_hand(type))
        stamp(type, ret_event, timestamp_ms);
    return rc;
}

/* JSON text of `[[],[],…]` takes some fifty times its length once parsed. */
#define TEXT_GROWTH 50

int pst_codec_to_json(pst_codec *c, const void *value, size_t len, json_t **ret_json, int32_t *ret_id, pst_err *err)
{
    return pst_codec_to_json_within(c, value, len, 0, ret_json, ret_id, err);
}

int pst_codec_to_json_within(pst_codec *c, const void *value, size_t len, size_t room, json_t **ret_json, int32_t *ret_id, pst_err *err)
{
    const pst_schema *schema;
    pst_slice body;
    int32_t id;
    int rc;
    if (!value)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "avro", 0, "the record has no value");
    if (len && *(const uint8_t *)value) { /* not framed: JSON text or nothing of ours */
        if (room && len > room / TEXT_GROWTH)
            return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "json", 0, "%zu bytes of JSON text are more than is taken apart here", len);
        rc = pst_json_parse(value, len, "the value", ret_json, err);
        if (!rc)
            *ret_id = -1;
        return rc;
    }
    rc = pst_frame_get(value, len, &id, &body, err);
    if (!rc)
        rc = pst_codec_schema(c, id, &schema, err);
    if (rc < 0)
        return rc;
    rc = room ? pst_avro_to_json_within(schema, body.data, body.len, room, ret_json, err)
              : pst_avro_to_json(schema, body.data, body.len, ret_json, err);
    if (rc == 0)
        *ret_id = id;
    return rc;
}

enum { UNKNOWN_TRIES = 3, UNKNOWN_BELIEVED_US = 60 * 1000000 };

bool pst_codec_unusable(int64_t *unknown_us, const pst_err *why, int tries)
{
    if (why->cls != PST_CLASS_DATA || why->code != PST_ENOTFOUND)
        return why->cls == PST_CLASS_DATA;
    int64_t now = pst_mono_us();
    if (tries < UNKNOWN_TRIES && (!*unknown_us || now - *unknown_us > UNKNOWN_BELIEVED_US))
        return false;
    if (tries >= UNKNOWN_TRIES)
        *unknown_us = now;
    return true;
}
