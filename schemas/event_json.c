/* event_json.c - event structs ↔ plain JSON, as JSON text on the topics has it: unions unwrapped, enums as text, bytes as base64,
 * times as microseconds (or RFC 3339 text when read), NaN and infinities as text. */
#include "schemas/type.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_LEN = 192, ITEMS_MAX = PST_AVRO_ITEMS_MAX };

/* ---- to JSON ---------------------------------------------------------------------------------------------------------------- */

/* Text that is not UTF-8 (a log line, say) keeps what can be shown: bad bytes become U+FFFD. */
static json_t *text_json(const char *s)
{
    json_t *j = json_string(s ? s : "");
    if (j)
        return j;
    pst_buf b = {0};
    pst_json_quote(&b, s, strlen(s));
    j = json_loadb(b.data, b.len, JSON_DECODE_ANY, NULL);
    pst_buf_done(&b);
    return j ? j : json_string("");
}

static json_t *value_json(const pst_field_type *f, const void *at)
{
    switch (f->kind) {
    case PST_KIND_BOOL: return json_boolean(*(const bool *)at);
    case PST_KIND_INT: return json_integer(*(const int32_t *)at);
    case PST_KIND_LONG: return json_integer(*(const int64_t *)at);
    case PST_KIND_FLOAT: return pst_json_real((double)*(const float *)at);
    case PST_KIND_DOUBLE: return pst_json_real(*(const double *)at);
    case PST_KIND_STRING: return text_json(*(char *const *)at);
    case PST_KIND_BYTES: {
        const pst_bytes *b = at;
        char *text = pst_base64(b->data ? b->data : "", b->len);
        json_t *j = json_string(text);
        free(text);
        return j;
    }
    case PST_KIND_ENUM: return json_string(pst_enum_text(f->enumeration, *(const int *)at));
    case PST_KIND_RECORD: return pst_event_to_json(f->record, at);
    }
    return json_null();
}

static json_t *field_json(const pst_field_type *f, const void *event)
{
    const char *at = (const char *)event + f->offset;
    if (f->shape == PST_SHAPE_ONE)
        return value_json(f, at);
    if (f->shape == PST_SHAPE_NULLABLE) {
        bool there = pst_kind_flagged(f->kind) ? *((const bool *)event + f->aux) : *(void *const *)at != NULL;
        return !there ? json_null() : value_json(f, f->kind == PST_KIND_RECORD ? *(void *const *)at : at);
    }
    const char *items = *(const char *const *)at;
    size_t n = *(const size_t *)((const char *)event + f->aux), size = pst_field_item_size(f);
    json_t *j = f->shape == PST_SHAPE_ARRAY ? json_array() : json_object();
    for (size_t k = 0; k < n; k++) {
        const char *item = items + k * size;
        if (f->shape == PST_SHAPE_ARRAY) {
            json_array_append_new(j, value_json(f, item));
            continue;
        }
        json_t *key = text_json(*(char *const *)item);
        json_object_set_new(j, json_string_value(key),
                            f->kind == PST_KIND_STRING ? text_json(((const pst_str_pair *)(const void *)item)->value)
                                                       : pst_json_real(((const pst_dbl_pair *)(const void *)item)->value));
        json_decref(key);
    }
    return j;
}

json_t *pst_event_to_json(const pst_type *t, const void *event)
{
    json_t *j = json_object();
    for (size_t i = 0; i < t->n_fields; i++)
        json_object_set_new(j, t->fields[i].name, field_json(&t->fields[i], event));
    return j;
}

/* ---- from JSON -------------------------------------------------------------------------------------------------------------- */

typedef struct {
    char path[PATH_MAX_LEN]; /* "code.content", "inputs[2].shape[0]" */
    size_t n;
    const pst_type *root;
    pst_err *err;
} reader;

static int read_record(reader *r, const pst_type *t, const json_t *j, void *event);

static const char *type_word(const json_t *j)
{
    switch (json_typeof(j)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "text";
    case JSON_INTEGER: return "a whole number";
    case JSON_REAL: return "a number with a fraction";
    case JSON_NULL: return "null";
    default: return "true or false";
    }
}

/* Appends to the path; returns the old length for pop. */
static size_t push(reader *r, const char *name, size_t index)
{
    size_t old = r->n;
    int n = name ? snprintf(r->path + r->n, sizeof r->path - r->n, "%s%s", r->n ? "." : "", name)
                 : snprintf(r->path + r->n, sizeof r->path - r->n, "[%zu]", index);
    r->n += (size_t)n;
    if (r->n >= sizeof r->path)
        r->n = sizeof r->path - 1;
    return old;
}

static void pop(reader *r, size_t old)
{
    r->n = old;
    r->path[old] = 0;
}

static int mismatch(reader *r, const char *want, const json_t *j)
{
    return pst_err_set(r->err, PST_EINVAL, PST_CLASS_DATA, "json", 0, "%s: field %s must be %s, not %s", r->root->name, r->path, want,
                       type_word(j));
}

static int read_whole(reader *r, const json_t *j, bool time, int64_t min, int64_t max, int64_t *ret)
{
    const char *want = time               ? "a time: microseconds since 1970 or RFC 3339 text"
                       : max == INT32_MAX ? "a whole number of 32 bits"
                                          : "a whole number";
    if (json_is_integer(j) && json_integer_value(j) >= min && json_integer_value(j) <= max) {
        *ret = json_integer_value(j);
        return 0;
    }
    if (json_is_real(j)) {
        double v = json_real_value(j);
        if (v == floor(v) && v >= (double)min && v <= (double)max && fabs(v) < 9e15) {
            *ret = (int64_t)v;
            return 0;
        }
    }
    if (time && json_is_string(j) && strpbrk(json_string_value(j), "-:") && !pst_time_parse(json_string_value(j), ret))
        return 0;
    return mismatch(r, want, j);
}

static int read_number(reader *r, const json_t *j, double *ret)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    static const double values[] = {NAN, INFINITY, -INFINITY};
    if (json_is_number(j)) {
        *ret = json_number_value(j);
        return 0;
    }
    for (size_t i = 0; json_is_string(j) && i < 3; i++)
        if (!strcmp(json_string_value(j), words[i])) {
            *ret = values[i];
            return 0;
        }
    return mismatch(r, "a number", j);
}

static int read_enum(reader *r, const pst_enum_type *e, const json_t *j, int *ret)
{
    if (!json_is_string(j))
        return mismatch(r, "text, one of the symbols", j);
    int v = pst_enum_parse(e, json_string_value(j));
    if (v < 0) {
        const char *near = pst_nearest(json_string_value(j), e->symbols, (size_t)e->n);
        return pst_err_set(r->err, PST_EINVAL, PST_CLASS_DATA, "json", 0, "%s: field %s: \"%.60s\" is not a %s; %s \"%s\"", r->root->name,
                           r->path, json_string_value(j), e->name, near ? "did you mean" : "an example is", near ? near : e->symbols[0]);
    }
    *ret = v;
    return 0;
}

/* Writes at only on success, and memory that it then owns is the event's: pst_event_clear is right after any failure. */
static int read_value(reader *r, const pst_field_type *f, const json_t *j, void *at)
{
    int64_t whole;
    double number = 0;
    int rc;
    switch (f->kind) {
    case PST_KIND_BOOL:
        if (!json_is_boolean(j))
            return mismatch(r, "true or false", j);
        *(bool *)at = json_is_true(j);
        return 0;
    case PST_KIND_INT:
        rc = read_whole(r, j, false, INT32_MIN, INT32_MAX, &whole);
        if (rc == 0)
            *(int32_t *)at = (int32_t)whole;
        return rc;
    case PST_KIND_LONG:
        rc = read_whole(r, j, f->time, INT64_MIN, INT64_MAX, &whole);
        if (rc == 0)
            *(int64_t *)at = whole;
        return rc;
    case PST_KIND_FLOAT:
        rc = read_number(r, j, &number);
        if (rc == 0)
            *(float *)at = (float)number;
        return rc;
    case PST_KIND_DOUBLE: return read_number(r, j, at);
    case PST_KIND_STRING:
        if (!json_is_string(j))
            return mismatch(r, "text", j);
        *(char **)at = pst_strndup(json_string_value(j), json_string_length(j));
        return 0;
    case PST_KIND_BYTES: {
        pst_bytes *b = at;
        if (json_is_string(j))
            b->data = pst_base64_decode(json_string_value(j), &b->len);
        if (!b->data)
            return mismatch(r, "base64 text", j);
        return 0;
    }
    case PST_KIND_ENUM: return read_enum(r, f->enumeration, j, at);
    case PST_KIND_RECORD: return read_record(r, f->record, j, at);
    }
    return 0;
}

static int read_items(reader *r, const pst_field_type *f, const json_t *j, void *event)
{
    bool map = f->shape == PST_SHAPE_MAP;
    if (map ? !json_is_object(j) : !json_is_array(j))
        return mismatch(r, map ? "an object" : "an array", j);
    size_t n = map ? json_object_size(j) : json_array_size(j), size = pst_field_item_size(f), old, k = 0;
    if (n > ITEMS_MAX)
        return pst_err_set(r->err, PST_ELIMIT, PST_CLASS_DATA, "json", 0, "%s: field %s has %zu entries, more than %d", r->root->name,
                           r->path, n, ITEMS_MAX);
    char *items = n ? pst_alloc(n * size) : NULL;
    *(char **)((char *)event + f->offset) = items;
    *(size_t *)((char *)event + f->aux) = n; /* items are zeroed: clear works from here on whatever fails */
    if (!map) {
        size_t at;
        json_t *v;
        json_array_foreach(j, at, v)
        {
            old = push(r, NULL, at);
            int rc = read_value(r, f, v, items + at * size);
            pop(r, old);
            if (rc)
                return rc;
        }
        return 0;
    }
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)j, key, v)
    {
        PST_ASSERT(k < n);
        char *item = items + k++ * size;
        *(char **)item = pst_strdup(key);
        old = push(r, key, 0);
        int rc = read_value(r, f, v,
                            f->kind == PST_KIND_STRING ? (void *)&((pst_str_pair *)(void *)item)->value
                                                       : (void *)&((pst_dbl_pair *)(void *)item)->value);
        pop(r, old);
        if (rc)
            return rc;
    }
    return 0;
}

static int read_field(reader *r, const pst_field_type *f, const json_t *j, void *event)
{
    char *at = (char *)event + f->offset;
    if (f->shape == PST_SHAPE_ARRAY || f->shape == PST_SHAPE_MAP)
        return read_items(r, f, j, event);
    if (f->shape == PST_SHAPE_ONE)
        return read_value(r, f, j, at);
    if (json_is_null(j))
        return 0;
    if (f->kind == PST_KIND_RECORD)
        *(void **)at = pst_alloc(f->record->size);
    int rc = read_value(r, f, j, f->kind == PST_KIND_RECORD ? *(void **)at : at);
    if (!rc && pst_kind_flagged(f->kind))
        *((bool *)event + f->aux) = true;
    return rc;
}

/* A key that the record does not have: say which one was probably meant. */
static int unknown_key(reader *r, const pst_type *t, const char *key)
{
    const char **names = pst_alloc((t->n_fields + 1) * sizeof *names);
    for (size_t i = 0; i < t->n_fields; i++)
        names[i] = t->fields[i].name;
    const char *near = pst_nearest(key, names, t->n_fields);
    free(names);
    return pst_err_set(r->err, PST_EINVAL, PST_CLASS_DATA, "json", 0, "%s: there is no field %s%s%.80s%s%s%s", r->root->name, r->path,
                       r->n ? "." : "", key, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* The key of j that fills f: its name, else one that it had before; NULL = none is there. */
static const char *key_of(const pst_field_type *f, const json_t *j)
{
    if (json_object_get(j, f->name))
        return f->name;
    for (const char *const *alias = f->aliases; alias && *alias; alias++)
        if (json_object_get(j, *alias))
            return *alias;
    return NULL;
}

static int read_record(reader *r, const pst_type *t, const json_t *j, void *event)
{
    if (!json_is_object(j))
        return mismatch(r, "an object", j);
    size_t seen = 0;
    for (size_t i = 0; i < t->n_fields; i++) {
        const pst_field_type *f = &t->fields[i];
        const char *found = key_of(f, j);
        json_t *v = found ? json_object_get(j, found) : NULL, *def = NULL;
        size_t old = push(r, found ? found : f->name, 0);
        int rc;
        seen += v != NULL;
        if (!v && f->def)
            v = def = json_loads(f->def, JSON_DECODE_ANY, NULL);
        if (v)
            rc = read_field(r, f, v, event);
        else if (f->shape == PST_SHAPE_NULLABLE)
            rc = 0; /* may be left out, default or not: whoever writes by hand need not know the schema's order */
        else
            rc = pst_err_set(r->err, PST_EINVAL, PST_CLASS_DATA, "json", 0, "%s: field %s is missing", r->root->name, r->path);
        json_decref(def);
        pop(r, old);
        if (rc)
            return rc;
    }
    const char *key;
    json_t *v;
    if (seen < json_object_size(j))
        json_object_foreach((json_t *)(uintptr_t)j, key, v)
        {
            bool known = false;
            for (size_t i = 0; i < t->n_fields && !known; i++) {
                const char *taken = key_of(&t->fields[i], j);
                known = taken && !strcmp(taken, key);
            }
            if (!known)
                return unknown_key(r, t, key);
        }
    return 0;
}

int pst_event_from_json(const pst_type *t, const json_t *json, void *ret_event, pst_err *err)
{
    reader r = {.root = t, .err = err};
    memset(ret_event, 0, t->size);
    if (!json_is_object(json))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "json", 0, "%s: the JSON text must be an object, not %s", t->name,
                           json ? type_word(json) : "nothing");
    int rc = read_record(&r, t, json, ret_event);
    if (rc)
        pst_event_clear(t, ret_event);
    return rc;
}
