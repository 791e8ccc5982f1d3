/* registry_state.c - the fold of the topic. It takes what is there rather than what should be: another registry may have written it, in another
 * order, with record types and levels that we do not know. Schemas are counted by the versions that use them and go with the last one; a deleted
 * subject keeps its highest version number, since a version is never given twice. */
#include "deploy/registry/registry_state.h"

#include "common/base/array.h"

#include "deploy/registry/registry_canon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool one_of(const char *word, const char *const *words, size_t n)
{
    for (size_t i = 0; word && i < n; i++)
        if (!strcmp(words[i], word))
            return true;
    return false;
}

bool registry_level_ok(const char *level)
{
    static const char *const levels[] = {"NONE", "BACKWARD",       "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE",
                                         "FULL", "FULL_TRANSITIVE"};
    return one_of(level, levels, sizeof levels / sizeof *levels);
}

bool registry_mode_ok(const char *mode)
{
    static const char *const modes[] = {"READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD"};
    return one_of(mode, modes, sizeof modes / sizeof *modes);
}

const char *registry_subject_plain(const char *name)
{
    return !strncmp(name, ":.:", 3) ? name + 3 : name;
}

/* ---- schemas and contexts -------------------------------------------------------------------------------------------------- */

static void rschema_free(void *p)
{
    rschema *s = p;
    free(s->text);
    free(s->type);
    free(s->canon);
    json_decref(s->references);
    pst_schema_free(s->avro);
    free(s);
}

const pst_schema *rschema_avro(rschema *s)
{
    if (!s->avro_tried && !strcmp(s->type, "AVRO") && !s->references) {
        pst_err ignored = {0};
        pst_schema_parse(s->text, strlen(s->text), &s->avro, &ignored);
    }
    s->avro_tried = true;
    return s->avro;
}

static char *context_name(const char *subject)
{
    const char *colon = !strncmp(subject, ":.", 2) ? strchr(subject + 1, ':') : NULL;
    return colon ? pst_strndup(subject + 1, (size_t)(colon - subject - 1)) : pst_strdup(".");
}

rcontext *rstate_context(const rstate *s, const char *subject)
{
    char *name = context_name(subject);
    rcontext *c = pst_map_get(&s->contexts, name);
    free(name);
    return c;
}

static rcontext *context_made(rstate *s, const char *subject)
{
    rcontext *c = rstate_context(s, subject);
    if (!c) {
        c = pst_alloc(sizeof *c);
        c->name = context_name(subject);
        pst_map_put(&s->contexts, c->name, c);
    }
    return c;
}

rschema *rcontext_by_id(const rcontext *c, int32_t id)
{
    char key[16];
    snprintf(key, sizeof key, "%d", id);
    return pst_map_get(&c->by_id, key);
}

/* A version less uses the schema; with the last one it goes. */
static void release(rcontext *c, rschema *s)
{
    char key[16];
    PST_ASSERT(s->uses > 0);
    if (--s->uses)
        return;
    snprintf(key, sizeof key, "%d", s->id);
    pst_map_take(&c->by_id, key);
    if (pst_map_get(&c->by_canon, s->canon) == s)
        pst_map_take(&c->by_canon, s->canon);
    rschema_free(s);
}

/* The schema of this id, made from the record's value when new. NULL: the id means another schema already. */
static rschema *hold(rcontext *c, int32_t id, const json_t *value, const char *text)
{
    const char *type = pst_json_str(value, "schemaType", "AVRO");
    char *canon = strcmp(type, "AVRO") ? NULL : registry_canon(text, strlen(text));
    if (!canon)
        canon = pst_strdup(text);
    rschema *s = rcontext_by_id(c, id);
    if (s && strcmp(s->canon, canon)) {
        free(canon);
        return NULL;
    }
    if (!s) {
        char key[16];
        s = pst_alloc(sizeof *s);
        *s = (rschema){.id = id, .text = pst_strdup(text), .type = pst_strdup(type), .canon = canon};
        json_t *refs = json_object_get(value, "references");
        if (json_array_size(refs))
            s->references = json_incref(refs);
        snprintf(key, sizeof key, "%d", id);
        pst_map_put(&c->by_id, key, s);
        if (!pst_map_get(&c->by_canon, canon))
            pst_map_put(&c->by_canon, canon, s);
    } else {
        free(canon);
    }
    if (id > c->id_max)
        c->id_max = id;
    PST_ASSERT(s->id == id);
    s->uses++;
    return s;
}

/* ---- subjects -------------------------------------------------------------------------------------------------------------- */

rsubject *rstate_subject(const rstate *s, const char *name)
{
    return pst_map_get(&s->subjects, registry_subject_plain(name));
}

static rsubject *subject_made(rstate *s, const char *name)
{
    name = registry_subject_plain(name);
    rsubject *found = pst_map_get(&s->subjects, name);
    if (!found) {
        found = pst_alloc(sizeof *found);
        found->name = pst_strdup(name);
        found->context = context_made(s, name);
        pst_map_put(&s->subjects, name, found);
    }
    return found;
}

rversion *rsubject_version(const rsubject *s, int version)
{
    for (size_t i = 0; s && i < s->n; i++)
        if (s->versions[i].version == version)
            return &s->versions[i];
    return NULL;
}

rversion *rsubject_latest(const rsubject *s, bool deleted)
{
    for (size_t i = s ? s->n : 0; i > 0; i--)
        if (deleted || !s->versions[i - 1].deleted)
            return &s->versions[i - 1];
    return NULL;
}

size_t rsubject_count(const rsubject *s, bool deleted)
{
    size_t n = 0;
    for (size_t i = 0; s && i < s->n; i++)
        n += deleted || !s->versions[i].deleted;
    return n;
}

static void subject_free(void *p)
{
    rsubject *s = p;
    for (size_t i = 0; i < s->n; i++)
        release(s->context, s->versions[i].schema);
    free(s->versions);
    free(s->name);
    free(s->level);
    free(s->mode);
    free(s);
}

static void context_free(void *p)
{
    rcontext *c = p;
    pst_map_done(&c->by_id, NULL);
    pst_map_done(&c->by_canon, NULL);
    free(c->name);
    free(c);
}

void rstate_clear(rstate *s)
{
    pst_map_done(&s->subjects, subject_free); /* before the contexts: they hold the schemas */
    pst_map_done(&s->contexts, context_free);
    free(s->level);
    free(s->mode);
    *s = (rstate){0};
}

const char *rstate_level(const rstate *s, const rsubject *subject)
{
    if (subject && subject->level)
        return subject->level;
    return s->level ? s->level : "BACKWARD";
}

const char *rstate_mode(const rstate *s, const rsubject *subject)
{
    if (s->mode && !strcmp(s->mode, "READONLY_OVERRIDE"))
        return s->mode;
    if (subject && subject->mode)
        return subject->mode;
    return s->mode ? s->mode : "READWRITE";
}

/* ---- records --------------------------------------------------------------------------------------------------------------- */

static void drop_version(rsubject *s, int version)
{
    rversion *v = rsubject_version(s, version);
    if (!v)
        return;
    release(s->context, v->schema);
    size_t at = (size_t)(v - s->versions);
    memmove(v, v + 1, (s->n - at - 1) * sizeof *v);
    s->n--;
}

/* Keeps versions ascending; nearly always the new one is the last. */
static void put_version(rsubject *s, rversion v)
{
    PST_ASSERT(v.version > 0 && v.schema->uses > 0);
    drop_version(s, v.version);
    s->versions = pst_array_one_more(s->versions, s->n, sizeof *s->versions);
    size_t at = s->n++;
    for (; at > 0 && s->versions[at - 1].version > v.version; at--)
        s->versions[at] = s->versions[at - 1];
    s->versions[at] = v;
    if (v.version > s->version_max)
        s->version_max = v.version;
}

static int apply_schema(rstate *st, const char *subject, int64_t version, const json_t *value, pst_err *err)
{
    if (version < 1 || version > INT32_MAX)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "registry", 0, "a SCHEMA record of subject %s has version %lld", subject,
                           (long long)version);
    if (!value) {
        rsubject *s = rstate_subject(st, subject);
        if (s)
            drop_version(s, (int)version);
        return PST_OK;
    }
    int64_t id = pst_json_int(value, "id", -1);
    const char *text = pst_json_str(value, "schema", NULL);
    if (id < 0 || id > INT32_MAX || !text)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "registry", 0,
                           "the SCHEMA record of subject %s version %lld lacks id or schema", subject, (long long)version);
    rsubject *s = subject_made(st, subject);
    rschema *schema = hold(s->context, (int32_t)id, value, text);
    if (!schema)
        return pst_err_set(
            err, PST_EPARSE, PST_CLASS_DATA, "registry", 0,
            "subject %s version %lld says id %lld, which means another schema already; the first one is kept (two registries writing?)",
            subject, (long long)version, (long long)id);
    put_version(s, (rversion){(int)version, schema, pst_json_bool(value, "deleted", false)});
    return PST_OK;
}

static void set_word(char **slot, const json_t *value, const char *field, bool (*ok)(const char *))
{
    const char *word = pst_json_str(value, field, NULL);
    free(*slot);
    *slot = ok(word) ? pst_strdup(word) : NULL;
}

/* DELETE_SUBJECT: every version up to the one in the record is deleted softly; tombstones of single versions follow when it is for good. */
static void apply_delete(rstate *st, const char *subject, const json_t *value)
{
    rsubject *s = rstate_subject(st, subject);
    int64_t upto = pst_json_int(value, "version", 0);
    for (size_t i = 0; s && value && i < s->n; i++)
        if (s->versions[i].version <= upto)
            s->versions[i].deleted = true;
}

int rstate_apply(rstate *s, const void *key, size_t key_len, const void *value, size_t value_len, pst_err *err)
{
    json_t *k = NULL, *v = NULL;
    int rc = pst_json_parse(key ? key : "", key_len, "a key of the schemas topic", &k, err);
    if (rc == PST_OK && value)
        rc = pst_json_parse(value, value_len, "a value of the schemas topic", &v, err);
    if (rc < 0)
        goto out;
    const char *type = pst_json_str(k, "keytype", "");
    const char *subject = pst_json_str(k, "subject", pst_json_str(v, "subject", NULL));
    if (!strcmp(type, "CONFIG") || !strcmp(type, "MODE")) {
        bool config = *type == 'C';
        rsubject *of = subject ? subject_made(s, subject) : NULL;
        if (config)
            set_word(of ? &of->level : &s->level, v, "compatibilityLevel", registry_level_ok);
        else
            set_word(of ? &of->mode : &s->mode, v, "mode", registry_mode_ok);
    } else if (!strcmp(type, "SCHEMA") || !strcmp(type, "DELETE_SUBJECT")) {
        if (!subject || !*subject)
            rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "registry", 0, "a %s record names no subject", type);
        else if (*type == 'S')
            rc = apply_schema(s, subject, pst_json_int(k, "version", 0), v, err);
        else
            apply_delete(s, subject, v);
    }
out:
    json_decref(k);
    json_decref(v);
    return rc;
}
