/* registry_canon.c - one spelling for each schema, made by rewriting its JSON tree and sorting its keys. Confluent's registry compares parsed schemas;
 * a text that can be kept as a key of a map does the same with one look-up, however many schemas there are. Only what Avro's specification calls
 * equal is rewritten; anything that is not understood stays as it stands, so that at worst one schema gets a second id. */
#include "deploy/registry/registry_canon.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64

static bool is_primitive(const char *name)
{
    static const char *const names[] = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

static json_t *full_name(const char *name, const char *space)
{
    if (!space || !*space || strchr(name, '.') || is_primitive(name))
        return json_string(name);
    char *text = pst_sprintf("%s.%s", space, name);
    json_t *j = json_string(text);
    free(text);
    return j;
}

static json_t *canon(const json_t *s, const char *space, int depth);

static json_t *canon_list(const json_t *list, const char *space, int depth)
{
    json_t *out = json_array(), *item;
    size_t i;
    json_array_foreach(list, i, item)
    {
        json_t *c = canon(item, space, depth + 1);
        if (!c) {
            json_decref(out);
            return NULL;
        }
        json_array_append_new(out, c);
    }
    return out;
}

/* Fields: their "type" is a schema; everything else of theirs is kept as it stands. */
static json_t *canon_fields(const json_t *fields, const char *space, int depth)
{
    json_t *out = json_array(), *field;
    size_t i;
    json_array_foreach(fields, i, field)
    {
        json_t *copy = json_copy(field), *type = json_object_get(field, "type");
        json_t *c = type ? canon(type, space, depth + 1) : NULL;
        json_array_append_new(out, copy);
        if (type && !c) {
            json_decref(out);
            return NULL;
        }
        if (c)
            json_object_set_new(copy, "type", c);
    }
    return out;
}

/* The namespace that names inside this type are in; buf gets the part before the last dot of a dotted name. */
static const char *inner_space(const char *name, const char *given, const char *space, char **buf)
{
    const char *dot = name ? strrchr(name, '.') : NULL;
    if (dot)
        return *buf = pst_strndup(name, (size_t)(dot - name));
    return given ? given : space;
}

/* A type given as an object. One with nothing but its type is that type; a named type takes its namespace into its name, in which the names inside
 * of it are looked up; its own parts are rewritten in place. NULL when it is nested too deeply. */
static json_t *canon_object(const json_t *s, const char *space, int depth)
{
    const json_t *type = json_object_get(s, "type");
    const char *word = json_string_value(type), *name = pst_json_str(s, "name", NULL);
    if (word && json_object_size(s) == 1)
        return full_name(word, space);
    if (type && !word)
        return json_object_size(s) == 1 ? canon(type, space, depth + 1) : json_deep_copy(s);
    json_t *out = json_copy((json_t *)(uintptr_t)s), *part = NULL;
    char *buf = NULL;
    bool named = word && name && (!strcmp(word, "record") || !strcmp(word, "error") || !strcmp(word, "enum") || !strcmp(word, "fixed"));
    const char *inner = named ? inner_space(name, pst_json_str(s, "namespace", NULL), space, &buf) : space;
    bool ok = true;
    if (named) {
        json_object_set_new(out, "name", full_name(name, inner));
        json_object_del(out, "namespace");
    }
    static const char *const nested[] = {"items", "values", "fields"};
    for (size_t i = 0; i < 3 && ok; i++) {
        const json_t *sub = json_object_get(s, nested[i]);
        if (!sub || (i == 2 && !json_is_array(sub)))
            continue;
        part = i == 2 ? canon_fields(sub, inner, depth) : canon(sub, inner, depth + 1);
        ok = part != NULL;
        if (ok)
            json_object_set_new(out, nested[i], part);
    }
    free(buf);
    if (!ok) {
        json_decref(out);
        return NULL;
    }
    return out;
}

static json_t *canon(const json_t *s, const char *space, int depth)
{
    if (depth > DEPTH_MAX)
        return NULL;
    if (json_is_string(s))
        return full_name(json_string_value(s), space);
    if (json_is_array(s))
        return canon_list(s, space, depth);
    if (json_is_object(s))
        return canon_object(s, space, depth);
    return json_deep_copy(s);
}

char *registry_canon(const char *text, size_t len)
{
    json_t *j = NULL;
    if (pst_json_parse(text, len, "schema", &j, NULL) < 0)
        return NULL;
    json_t *c = canon(j, NULL, 0);
    char *out = c ? json_dumps(c, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) : NULL;
    json_decref(c);
    json_decref(j);
    return out;
}
