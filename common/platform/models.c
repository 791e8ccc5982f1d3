/* models.c - the view of penstock.models: names → versions and aliases. Pure: events in, answers out.
 *
 * Everything is kept as copies of the events themselves, so that whoever asks gets the whole story (who moved an alias, why, from which
 * offsets on). A deleted version stays as a tombstone entry: its number is never given out again, and a late duplicate of its
 * registration does not bring it back. */
#include "common/platform/models.h"

#include "common/base/array.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { ALIAS_HISTORY = 8 };

typedef struct version {
    pst_model_event registered;
    bool deleted;
} version;

typedef struct alias_moves {
    pst_model_event moves[ALIAS_HISTORY]; /* [0] is the last ALIAS_SET */
    size_t n;
    bool deleted;
} alias_moves;

typedef struct family {
    version **versions; /* ascending */
    size_t n_versions;
    pst_map aliases; /* text → alias_moves */
} family;

struct pst_models {
    pst_map families;
};

static void alias_free(void *p)
{
    alias_moves *a = p;
    for (size_t i = 0; i < a->n; i++)
        pst_event_clear(&pst_model_event_type, &a->moves[i]);
    free(a);
}

static void family_free(void *p)
{
    family *f = p;
    for (size_t i = 0; i < f->n_versions; i++) {
        pst_event_clear(&pst_model_event_type, &f->versions[i]->registered);
        free(f->versions[i]);
    }
    free(f->versions);
    pst_map_done(&f->aliases, alias_free);
    free(f);
}

pst_models *pst_models_new(void)
{
    return pst_alloc(sizeof(pst_models));
}

void pst_models_free(pst_models *m)
{
    if (!m)
        return;
    pst_map_done(&m->families, family_free);
    free(m);
}

static version *find_version(const family *f, int number)
{
    for (size_t i = f ? f->n_versions : 0; i-- > 0;)
        if (f->versions[i]->registered.version == number)
            return f->versions[i];
    return NULL;
}

static int highest(const family *f)
{
    return f && f->n_versions ? f->versions[f->n_versions - 1]->registered.version : 0;
}

bool pst_model_digest_ok(const char *digest)
{
    return digest && strlen(digest) == 64 && strspn(digest, "0123456789abcdefABCDEF") == 64;
}

const char *pst_models_refuses(const pst_models *m, const pst_model_event *e)
{
    const family *f = pst_map_get(&m->families, e->name);
    if (e->type != PST_MODEL_EVENT_TYPE_VERSION_REGISTERED)
        return NULL;
    if (!pst_model_digest_ok(e->digest))
        return "its digest is no SHA-256, so that its artefact could not be checked";
    if (e->version < 1)
        return "versions are numbered from 1";
    if (e->version > highest(f) && e->version - 1 != highest(f))
        return "its number is not the next one of this model";
    return NULL;
}

static int add_version(family *f, const pst_model_event *e)
{
    if (find_version(f, e->version))
        return 0;
    version *v = pst_alloc(sizeof(*v));
    pst_event_copy(&pst_model_event_type, e, &v->registered);
    f->versions = pst_array_one_more(f->versions, f->n_versions, sizeof(*f->versions));
    size_t at = f->n_versions++;
    for (; at > 0 && f->versions[at - 1]->registered.version > e->version; at--)
        f->versions[at] = f->versions[at - 1];
    f->versions[at] = v;
    PST_ASSERT(!at || f->versions[at - 1]->registered.version < e->version);
    return 1;
}

static bool same_move(const pst_model_event *a, const pst_model_event *b)
{
    return a->version == b->version && a->time == b->time && !strcmp(a->actor, b->actor);
}

static int move_alias(family *f, const pst_model_event *e)
{
    if (!e->alias || !*e->alias || e->version < 1 || e->pipeline) /* a scorer's report moves nothing */
        return 0;
    alias_moves *a = pst_map_get(&f->aliases, e->alias);
    if (!a) {
        a = pst_alloc(sizeof(*a));
        pst_map_put(&f->aliases, e->alias, a);
    }
    if (a->n && !a->deleted && same_move(&a->moves[0], e))
        return 0;
    if (a->n == ALIAS_HISTORY)
        pst_event_clear(&pst_model_event_type, &a->moves[--a->n]);
    PST_ASSERT(a->n < ALIAS_HISTORY);
    memmove(&a->moves[1], &a->moves[0], a->n * sizeof(a->moves[0]));
    a->n++;
    pst_event_copy(&pst_model_event_type, e, &a->moves[0]);
    a->deleted = false;
    return 1;
}

/* A pure function of the topic's order: every reader of the topic comes to the same versions and aliases, and the same event twice changes
 * nothing. Deletions leave a mark, so that a number is never given again. */
int pst_models_apply(pst_models *m, const pst_model_event *e)
{
    family *f = pst_map_get(&m->families, e->name);
    if (pst_models_refuses(m, e))
        return 0;
    bool adds = e->type == PST_MODEL_EVENT_TYPE_VERSION_REGISTERED || e->type == PST_MODEL_EVENT_TYPE_ALIAS_SET;
    if (!*e->name || (!f && !adds))
        return 0;
    if (!f) {
        f = pst_alloc(sizeof(*f));
        pst_map_put(&m->families, e->name, f);
    }
    switch (e->type) {
    case PST_MODEL_EVENT_TYPE_VERSION_REGISTERED: return add_version(f, e);
    case PST_MODEL_EVENT_TYPE_ALIAS_SET: return move_alias(f, e);
    case PST_MODEL_EVENT_TYPE_ALIAS_DELETED: {
        alias_moves *a = e->alias ? pst_map_get(&f->aliases, e->alias) : NULL;
        if (!a || a->deleted)
            return 0;
        a->deleted = true;
        return 1;
    }
    case PST_MODEL_EVENT_TYPE_VERSION_DELETED: {
        version *v = find_version(f, e->version);
        if (!v || v->deleted)
            return 0;
        v->deleted = true;
        return 1;
    }
    default: return 0;
    }
}

static int apply_record(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    void **both = arg;
    pst_model_event e;
    pst_err bad = {0};
    if (!r->value)
        return 0;
    int rc = pst_codec_decode(((pst_client *)both[1])->codec, &pst_model_event_type, r->value, r->value_len, r->timestamp_ms, &e, &bad);
    if (rc < 0 && bad.cls == PST_CLASS_DATA) { /* somebody's rubbish on the topic must not hide the models that are there */
        pst_log(PST_LOG_DEBUG, "models", "event=skipped topic=%s partition=%d offset=%lld error=\"%s\"", r->topic, r->partition,
                (long long)r->offset, bad.text);
        return 0;
    }
    if (rc < 0) {
        if (err && !err->code)
            *err = bad;
        return rc;
    }
    const char *refused = pst_models_refuses(both[0], &e);
    if (refused)
        pst_log(PST_LOG_WARN, "models", "event=version_ignored model=%s version=%d topic=%s partition=%d offset=%lld reason=\"%s\"", e.name,
                e.version, r->topic, r->partition, (long long)r->offset, refused);
    pst_models_apply(both[0], &e);
    pst_event_clear(&pst_model_event_type, &e);
    return 0;
}

int pst_models_load(pst_models *m, pst_client *c, pst_err *err)
{
    void *both[2] = {m, c};
    pst_err e = {0};
    int rc = pst_client_scan(c, PST_TOPIC_MODELS, NULL, apply_record, both, &e);
    if (rc == PST_ENOTFOUND) /* no topic yet: no models yet */
        return 0;
    if (rc < 0 && err && !err->code)
        *err = e;
    return rc;
}

static const alias_moves *find_alias(const pst_models *m, const char *name, const char *alias)
{
    const family *f = pst_map_get(&m->families, name);
    const alias_moves *a = f && alias ? pst_map_get(&f->aliases, alias) : NULL;
    return a && !a->deleted ? a : NULL;
}

const pst_model_event *pst_models_resolve(const pst_models *m, const char *name, const char *alias, int number)
{
    const family *f = pst_map_get(&m->families, name);
    if (!f)
        return NULL;
    const alias_moves *a = find_alias(m, name, alias);
    if (number <= 0 && alias && !a && strcmp(alias, "latest") != 0)
        return NULL;
    if (number <= 0 && a)
        number = a->moves[0].version;
    if (number > 0) {
        const version *v = find_version(f, number);
        return v && !v->deleted ? &v->registered : NULL;
    }
    for (size_t i = f->n_versions; i-- > 0;)
        if (!f->versions[i]->deleted)
            return &f->versions[i]->registered;
    return NULL;
}

const pst_model_event *pst_models_alias(const pst_models *m, const char *name, const char *alias)
{
    return pst_models_alias_back(m, name, alias, 0);
}

const pst_model_event *pst_models_alias_back(const pst_models *m, const char *name, const char *alias, size_t back)
{
    const alias_moves *a = find_alias(m, name, alias);
    return a && back < a->n ? &a->moves[back] : NULL;
}

static void each_of(const family *f, void (*fn)(void *arg, const pst_model_event *v, const char *aliases), void *arg)
{
    pst_buf names = {0};
    for (size_t i = 0; i < f->n_versions; i++) {
        const version *v = f->versions[i];
        if (v->deleted)
            continue;
        pst_buf_clear(&names);
        for (size_t k = 0; k < f->aliases.n; k++) {
            const alias_moves *a = f->aliases.at[k].value;
            if (f->aliases.at[k].key && !a->deleted && a->moves[0].version == v->registered.version)
                pst_buf_printf(&names, "%s%s", names.len ? "," : "", f->aliases.at[k].key);
        }
        fn(arg, &v->registered, names.data ? names.data : "");
    }
    pst_buf_done(&names);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const pst_map_entry *const *)a)->key, (*(const pst_map_entry *const *)b)->key);
}

void pst_models_each(const pst_models *m, const char *name, void (*fn)(void *arg, const pst_model_event *v, const char *aliases), void *arg)
{
    if (name) {
        const family *f = pst_map_get(&m->families, name);
        if (f)
            each_of(f, fn, arg);
        return;
    }
    const pst_map_entry **sorted = pst_alloc((m->families.n + 1) * sizeof(*sorted));
    size_t n = 0;
    for (size_t i = 0; i < m->families.n; i++)
        if (m->families.at[i].key)
            sorted[n++] = &m->families.at[i];
    qsort(sorted, n, sizeof(*sorted), by_name);
    for (size_t i = 0; i < n; i++)
        each_of(sorted[i]->value, fn, arg);
    free(sorted);
}

int pst_models_next_version(const pst_models *m, const char *name)
{
    const family *f = pst_map_get(&m->families, name);
    int last = highest(f);
    return last < INT_MAX ? last + 1 : INT_MAX;
}

bool pst_model_name_ok(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n <= 200 && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n &&
           strcmp(name, ".") && strcmp(name, "..");
}
