/* fields.c - which numbers there are in a record: for manifests that do not list their features. See sources.h. */
#include "common/base/array.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "schemas/avro.h"
#include "trainer/learner/sources.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { DEPTH_MAX = 32, PATH_MAX_BYTES = 1000 };

typedef struct fields {
    char **at;
    size_t n;
    json_t *named;                 /* full and short name → type */
    const json_t *open[DEPTH_MAX]; /* records being walked: a type inside itself ends there */
} fields;

bool learn_field_is_time(const char *name)
{
    static const char *const names[] = {"time", "timestamp", "ts", "date", "datetime", "epoch"};
    static const char *const ends[] = {"_time", "_timestamp", "_ts", "_date", "_at"};
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    size_t len = strlen(last);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcasecmp(last, names[i]))
            return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (len > strlen(ends[i]) && !strcasecmp(last + len - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

static void add(fields *f, const char *path)
{
    if (f->n >= PST_LEARN_COLUMNS_MAX || learn_field_is_time(path))
        return;
    f->at = pst_array_one_more(f->at, f->n, sizeof *f->at);
    f->at[f->n++] = pst_strdup(path);
}

static char *below(const char *path, const char *name)
{
    return *path ? pst_sprintf("%s.%s", path, name) : pst_strdup(name);
}

static void walk(fields *f, const json_t *type, const char *path, int depth);

static void walk_record(fields *f, const json_t *record, const char *path, int depth)
{
    for (int i = 0; i < depth; i++)
        if (f->open[i] == record)
            return;
    f->open[depth] = record;
    size_t i;
    json_t *field;
    json_array_foreach(json_object_get(record, "fields"), i, field)
    {
        const char *name = pst_json_str(field, "name", NULL);
        char *at = name ? below(path, name) : NULL;
        if (at && strlen(at) <= PATH_MAX_BYTES)
            walk(f, json_object_get(field, "type"), at, depth + 1);
        free(at);
    }
    f->open[depth] = NULL;
}

static void walk(fields *f, const json_t *type, const char *path, int depth)
{
    static const char *const numbers[] = {"int", "long", "float", "double", "boolean"};
    if (depth >= DEPTH_MAX || f->n >= PST_LEARN_COLUMNS_MAX)
        return;
    if (json_is_array(type)) { /* null|T is T that may be missing; wider unions are not numbers */
        const json_t *only = pst_avro_but_null(type);
        if (!json_is_array(only))
            walk(f, only, path, depth);
        return;
    }
    if (json_is_object(type)) {
        const json_t *inner = json_object_get(type, "type");
        if (json_is_string(inner) && (!strcmp(json_string_value(inner), "record") || !strcmp(json_string_value(inner), "error")))
            walk_record(f, type, path, depth);
        else if (!json_object_get(type, "logicalType")) /* dates, times, decimals */
            walk(f,
                 json_is_string(inner) && strcmp(json_string_value(inner), "array") && strcmp(json_string_value(inner), "map") ? inner
                                                                                                                               : NULL,
                 path, depth);
        return;
    }
    const char *word = json_string_value(type);
    for (size_t i = 0; word && i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(word, numbers[i])) {
            if (*path)
                add(f, path);
            return;
        }
    const json_t *named = word ? json_object_get(f->named, word) : NULL;
    if (named)
        walk(f, named, path, depth);
}

/* Types are defined where they are used first; collect them by both their names. A name without a dot is in the namespace around it. */
static void collect(fields *f, json_t *type, const char *space, int depth)
{
    size_t i;
    json_t *v;
    if (depth >= DEPTH_MAX)
        return;
    if (json_is_array(type))
        json_array_foreach(type, i, v) collect(f, v, space, depth + 1);
    if (!json_is_object(type))
        return;
    const char *name = pst_json_str(type, "name", NULL), *dot = name ? strrchr(name, '.') : NULL;
    char *own = dot ? pst_strndup(name, (size_t)(dot - name)) : pst_strdup(pst_json_str(type, "namespace", space));
    if (name && (json_object_get(type, "fields") || json_object_get(type, "symbols") || json_object_get(type, "size"))) {
        char *full = *own ? pst_sprintf("%s.%s", own, dot ? dot + 1 : name) : pst_strdup(name);
        json_object_set(f->named, full, type);
        json_object_set(f->named, dot ? dot + 1 : name, type);
        free(full);
    }
    json_array_foreach(json_object_get(type, "fields"), i, v) collect(f, json_object_get(v, "type"), own, depth + 1);
    collect(f, json_object_get(type, "items"), own, depth + 1);
    collect(f, json_object_get(type, "values"), own, depth + 1);
    free(own);
}

size_t learn_fields_of_schema(const char *schema_text, char ***ret_fields)
{
    fields f = {.named = json_object()};
    json_t *schema = NULL;
    if (pst_json_parse(schema_text, strlen(schema_text), "schema", &schema, NULL) == 0) {
        collect(&f, schema, "", 0);
        walk(&f, schema, "", 0);
    }
    json_decref(f.named);
    json_decref(schema);
    *ret_fields = f.at;
    return f.n;
}

static void walk_json(fields *f, const json_t *v, const char *path, int depth)
{
    const char *key;
    json_t *inner;
    if (depth >= DEPTH_MAX)
        return;
    if (json_is_number(v) || json_is_boolean(v))
        add(f, path);
    if (!json_is_object(v))
        return;
    json_object_foreach((json_t *)v, key, inner)
    {
        char *at = below(path, key);
        if (strlen(at) <= PATH_MAX_BYTES)
            walk_json(f, inner, at, depth + 1);
        free(at);
    }
}

size_t learn_fields_of_json(const json_t *record, char ***ret_fields)
{
    fields f = {0};
    if (json_is_object(record))
        walk_json(&f, record, "", 0);
    *ret_fields = f.at;
    return f.n;
}

int learn_fields_take(pst_learn_settings *s, char **list, size_t n, const char *where, pst_err *err)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!s->target || strcmp(list[i], s->target)) {
            char *t = list[kept];
            list[kept++] = list[i];
            list[i] = t;
        }
    if (!kept)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "learner", 0,
                           "%s has no numbers to learn from; list the fields under penstock.learner.features", where);
    pst_learn_settings_take_fields(s, (const char *const *)list, (int)kept);
    return 0;
}

const json_t *learn_json_at(const json_t *record, const char *path)
{
    const json_t *v = json_object_get(record, path);
    if (v || !strchr(path, '.'))
        return v;
    char key[256];
    for (v = record; v && path;) {
        const char *dot = strchr(path, '.');
        size_t len = dot ? (size_t)(dot - path) : strlen(path);
        if (len >= sizeof key)
            return NULL;
        memcpy(key, path, len);
        key[len] = '\0';
        v = json_object_get(v, key);
        path = dot ? dot + 1 : NULL;
    }
    return v;
}
