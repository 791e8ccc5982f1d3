/* avro_json.c - any Avro data ↔ plain JSON, by walking the schema; for people (cat, the page), for defaults, for dry runs: not the fast path.
 * Data is untrusted: depth, items and lengths are bounded as in the decode plan. */
#include "schemas/avro_node.h"
#include "schemas/avro_read.h"

#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BASE64_MARK "base64:"
enum { BASE64_MARK_LEN = sizeof BASE64_MARK - 1, STEPS_MAX = 4 * PST_AVRO_ITEMS_MAX };

/* ---- Avro → JSON ------------------------------------------------------------------------------------------------------------ */

bool av_utf8_valid(const void *data, size_t len)
{
    const uint8_t *p = data, *end = p + len;
    while (p < end) {
        uint64_t eight;
        if (end - p >= 8 && (memcpy(&eight, p, 8), !(eight & 0x8080808080808080u))) { /* ASCII */
            p += 8;
            continue;
        }
        size_t n = *p < 0x80 ? 1 : *p >= 0xc2 && *p <= 0xdf ? 2 : (*p & 0xf0) == 0xe0 ? 3 : *p >= 0xf0 && *p <= 0xf4 ? 4 : 0;
        if (!n || n > (size_t)(end - p))
            return false;
        for (size_t i = 1; i < n; i++)
            if ((p[i] & 0xc0) != 0x80)
                return false;
        if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f))
            return false;
        p += n;
    }
    return true;
}

/* What Jansson takes for a value, rounded up: its struct, its slot in an array or its pair in an object, malloc's part. */
enum { VALUE_COST = 56, LIST_COST = 160, OBJECT_COST = 320, PAIR_COST = 88, ROOM_MIN = 4 << 20, ROOM_PER_BYTE = 640 };

static int charge(av_in *in, size_t bytes)
{
    if (in->room < bytes)
        return av_in_fail(in, PST_ELIMIT, "as JSON this value would take more memory than is given to one record");
    in->room -= bytes;
    return 0;
}

static json_t *text_json(const uint8_t *p, size_t len)
{
    if (av_utf8_valid(p, len))
        return json_stringn_nocheck((const char *)p, len);
    pst_buf b = {0};
    pst_json_quote(&b, (const char *)p, len);
    json_t *j = json_loadb(b.data, b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    pst_buf_done(&b);
    return j ? j : json_string("");
}

static json_t *bytes_json(const uint8_t *p, size_t len)
{
    bool plain = av_utf8_valid(p, len) && !(len >= BASE64_MARK_LEN && !memcmp(p, BASE64_MARK, BASE64_MARK_LEN));
    for (size_t i = 0; i < len && plain; i++)
        plain = (p[i] >= 0x20 && p[i] != 0x7f) || p[i] == '\n' || p[i] == '\t' || p[i] == '\r';
    if (plain)
        return json_stringn_nocheck((const char *)p, len);
    char *text = pst_base64(p, len), *marked = pst_sprintf(BASE64_MARK "%s", text);
    json_t *j = json_string(marked);
    free(text);
    free(marked);
    return j;
}

/* The double that prints shortest and is this float again: 0.1f shows as 0.1. */
static double float_as_shown(float v)
{
    char text[40];
    if (isfinite(v))
        for (int digits = 6; digits <= 9; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, (double)v);
            if (strtof(text, NULL) == v)
                return strtod(text, NULL);
        }
    return (double)v;
}

static int read_json(av_in *in, const av_node *n, int depth, json_t **ret);

/* j owns what was read so far, so one decref ends a failure. A key that comes twice counts as it came last. */
static int read_items(av_in *in, const av_node *n, int depth, json_t **ret)
{
    bool map = n->kind == PST_AVRO_MAP;
    int64_t count;
    pst_slice key = {0};
    int rc = charge(in, map ? OBJECT_COST : LIST_COST);
    if (rc < 0)
        return rc;
    json_t *j = map ? json_object() : json_array(), *v;
    while (!(rc = av_in_block(in, &count)) && count > 0)
        for (; count > 0; count--) {
            if (map)
                rc = av_in_bytes(in, &key);
            if (map && !rc)
                rc = charge(in, PAIR_COST + key.len);
            if (!rc)
                rc = read_json(in, n->item, depth + 1, &v);
            if (rc < 0)
                goto out;
            if (!map) {
                json_array_append_new(j, v);
                continue;
            }
            json_t *k = text_json(key.data, key.len);
            json_object_setn_new_nocheck(j, json_string_value(k), json_string_length(k), v);
            json_decref(k);
        }
out:
    if (rc < 0)
        json_decref(j);
    else
        *ret = j;
    return rc;
}

static int read_record(av_in *in, const av_node *n, int depth, json_t **ret)
{
    int rc = charge(in, OBJECT_COST + n->n_fields * PAIR_COST);
    if (rc < 0)
        return rc;
    json_t *j = json_object(), *v;
    for (size_t i = 0; i < n->n_fields; i++) {
        rc = read_json(in, n->fields[i].type, depth + 1, &v);
        if (rc < 0) {
            json_decref(j);
            pst_err_prefix(in->err, "%s", n->fields[i].name);
            return rc;
        }
        json_object_set_new_nocheck(j, n->fields[i].name, v);
    }
    *ret = j;
    return 0;
}

/* What a value will take is charged before it is made: a few bytes of Avro can stand for megabytes of JSON (arrays of null, deep records). */
static int read_json(av_in *in, const av_node *n, int depth, json_t **ret)
{
    int64_t v;
    pst_slice text;
    int rc = 0;
    if (depth > PST_AVRO_DEPTH_MAX)
        return av_in_fail(in, PST_ELIMIT, "nested deeper than %d", PST_AVRO_DEPTH_MAX);
    if (!in->steps)
        return av_in_fail(in, PST_ELIMIT, "more than %d values", STEPS_MAX);
    in->steps--;
    rc = charge(in, VALUE_COST);
    if (rc < 0)
        return rc;
    switch (n->kind) {
    case PST_AVRO_NULL: *ret = json_null(); return 0;
    case PST_AVRO_BOOLEAN: {
        bool b;
        rc = av_in_bool(in, &b);
        if (rc == 0)
            *ret = json_boolean(b);
        return rc;
    }
    case PST_AVRO_INT:
    case PST_AVRO_LONG:
        rc = n->kind == PST_AVRO_INT ? av_in_int(in, &v) : av_in_long(in, &v);
        if (rc == 0)
            *ret = json_integer(v);
        return rc;
    case PST_AVRO_FLOAT: {
        float f;
        rc = av_in_raw(in, &f, sizeof f);
        if (rc == 0)
            *ret = pst_json_real(float_as_shown(f));
        return rc;
    }
    case PST_AVRO_DOUBLE: {
        double d;
        rc = av_in_raw(in, &d, sizeof d);
        if (rc == 0)
            *ret = pst_json_real(d);
        return rc;
    }
    case PST_AVRO_STRING:
    case PST_AVRO_BYTES:
        rc = av_in_bytes(in, &text);
        if (rc == 0)
            rc = charge(in, text.len + text.len / 2);
        if (rc == 0)
            *ret = n->kind == PST_AVRO_STRING ? text_json(text.data, text.len) : bytes_json(text.data, text.len);
        return rc;
    case PST_AVRO_FIXED:
        rc = av_in_skip(in, n->size);
        if (rc == 0)
            *ret = bytes_json(in->p - n->size, n->size);
        return rc;
    case PST_AVRO_ENUM:
        rc = av_in_index(in, n->n_symbols, "symbol", &v);
        if (rc == 0)
            *ret = json_string_nocheck(n->symbols[v]);
        return rc;
    case PST_AVRO_UNION:
        rc = av_in_index(in, n->n_branches, "branch", &v);
        return rc < 0 ? rc : read_json(in, n->branches[v], depth + 1, ret);
    case PST_AVRO_ARRAY:
    case PST_AVRO_MAP: return read_items(in, n, depth, ret);
    case PST_AVRO_RECORD: return read_record(in, n, depth, ret);
    }
    return 0;
}

int pst_avro_to_json(const pst_schema *s, const void *bytes, size_t len, json_t **ret_json, pst_err *err)
{
    return pst_avro_to_json_within(s, bytes, len, ROOM_MIN + len * ROOM_PER_BYTE, ret_json, err);
}

int pst_avro_to_json_within(const pst_schema *s, const void *bytes, size_t len, size_t room, json_t **ret_json, pst_err *err)
{
    av_in in;
    json_t *j = NULL;
    int rc = av_in_init(&in, bytes, len, err);
    in.room = room;
    if (!rc)
        rc = read_json(&in, s->root, 0, &j);
    if (!rc && in.p != in.end) {
        rc = av_in_fail(&in, PST_EPARSE, "%zu bytes too many after the data", (size_t)(in.end - in.p));
        json_decref(j);
    }
    if (rc < 0) {
        pst_err_prefix(err, "%s", av_node_name(s->root));
        return rc;
    }
    *ret_json = j;
    return 0;
}

/* ---- JSON → Avro ------------------------------------------------------------------------------------------------------------ */

static size_t push(av_json_writer *w, const char *name, size_t index)
{
    size_t old = w->n_path;
    int n = name ? snprintf(w->path + old, sizeof w->path - old, "%s%s", old ? "." : "", name)
                 : snprintf(w->path + old, sizeof w->path - old, "[%zu]", index);
    w->n_path = old + (size_t)n < sizeof w->path ? old + (size_t)n : sizeof w->path - 1;
    return old;
}

static void pop(av_json_writer *w, size_t old)
{
    w->n_path = old;
    w->path[old] = 0;
}

__attribute__((format(printf, 3, 4))) static int bad(av_json_writer *w, int code, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    if (!w->err)
        return code;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_err_set(w->err, code, PST_CLASS_DATA, "avro", 0, "%s%s%s", w->path, w->n_path ? ": " : "", text);
}

static const char *json_word(const json_t *j)
{
    static const char *const names[] = {"an object", "an array", "text", "a whole number", "a number with a fraction",
                                        "true",      "false",    "null"};
    return names[json_typeof(j)];
}

static int mismatch(av_json_writer *w, const av_node *n, const json_t *j)
{
    return bad(w, PST_EINVAL, "%s is wanted, this is %s", av_node_name(n), json_word(j));
}

static int write_whole(av_json_writer *w, const av_node *n, const json_t *j)
{
    int64_t v;
    if (json_is_integer(j))
        v = json_integer_value(j);
    else if (json_is_real(j) && json_real_value(j) == floor(json_real_value(j)) && fabs(json_real_value(j)) < 9e15)
        v = (int64_t)json_real_value(j);
    else
        return mismatch(w, n, j);
    if (n->kind == PST_AVRO_INT && (v < INT32_MIN || v > INT32_MAX))
        return bad(w, PST_EINVAL, "%lld does not fit int (32 bits)", (long long)v);
    pst_avro_put_long(w->out, v);
    return 0;
}

static int write_real(av_json_writer *w, const av_node *n, const json_t *j)
{
    const char *s = json_string_value(j);
    double v;
    if (json_is_number(j))
        v = json_number_value(j);
    else if (s && !strcmp(s, "NaN"))
        v = NAN;
    else if (s && (!strcmp(s, "Infinity") || !strcmp(s, "-Infinity")))
        v = *s == '-' ? -INFINITY : INFINITY;
    else
        return mismatch(w, n, j);
    if (n->kind == PST_AVRO_FLOAT)
        pst_avro_put_float(w->out, (float)v);
    else
        pst_avro_put_double(w->out, v);
    return 0;
}

/* Code points 0-255 → bytes, as defaults are written in schemas. */
static void narrow(const json_t *j, pst_buf *b)
{
    const uint8_t *s = (const uint8_t *)json_string_value(j);
    for (size_t i = 0, len = json_string_length(j); i < len; i++) {
        if (s[i] >= 0xc0 && i + 1 < len) {
            pst_buf_addc(b, (char)((s[i] & 0x03) << 6 | (s[i + 1] & 0x3f)));
            i++;
        } else {
            pst_buf_addc(b, (char)s[i]);
        }
    }
}

static int write_bytes(av_json_writer *w, const av_node *n, const json_t *j)
{
    pst_buf b = {0};
    const char *s = json_string_value(j);
    void *data = NULL;
    int rc = 0;
    if (!s)
        return mismatch(w, n, j);
    size_t len = json_string_length(j);
    if (w->defaults) {
        narrow(j, &b);
        s = b.data ? b.data : "";
        len = b.len;
    } else if (len >= BASE64_MARK_LEN && !memcmp(s, BASE64_MARK, BASE64_MARK_LEN)) {
        data = pst_base64_decode(s + BASE64_MARK_LEN, &len);
        s = data;
        if (!data)
            return bad(w, PST_EINVAL, "what follows " BASE64_MARK " is not base64");
    }
    if (n->kind == PST_AVRO_BYTES)
        pst_avro_put_bytes(w->out, s, len);
    else if (len == n->size)
        pst_buf_add(w->out, s, len);
    else
        rc = bad(w, PST_EINVAL, "%s has %zu bytes, these are %zu", n->name, n->size, len);
    pst_buf_done(&b);
    free(data);
    return rc;
}

static int write_enum(av_json_writer *w, const av_node *n, const json_t *j)
{
    const char *s = json_string_value(j);
    if (!s)
        return mismatch(w, n, j);
    int at = av_node_find(n, s);
    if (at >= 0) {
        pst_avro_put_long(w->out, at);
        return 0;
    }
    const char *near = w->err ? pst_nearest(s, (const char *const *)n->symbols, n->n_symbols) : NULL;
    return bad(w, PST_EINVAL, "\"%.60s\" is not a symbol of %s%s%s%s", s, n->name, near ? "; did you mean \"" : "", near ? near : "",
               near ? "\"?" : "");
}

/* One block holds all: the count is known. After a failure the path is left where it was, for the error's text; write_union puts it back. */
static int write_items(av_json_writer *w, const av_node *n, const json_t *j, int depth)
{
    bool map = n->kind == PST_AVRO_MAP;
    size_t count = map ? json_object_size(j) : json_array_size(j), at;
    const char *key;
    json_t *v;
    int rc = 0;
    if (map ? !json_is_object(j) : !json_is_array(j))
        return mismatch(w, n, j);
    if (count)
        pst_avro_put_long(w->out, (int64_t)count);
    if (!map) {
        json_array_foreach(j, at, v)
        {
            size_t old = push(w, NULL, at);
            rc = av_node_write_json(w, n->item, v, depth + 1);
            if (rc < 0)
                return rc;
            pop(w, old);
        }
    } else {
        size_t key_len;
        json_object_keylen_foreach((json_t *)(uintptr_t)j, key, key_len, v)
        {
            size_t old = push(w, key, 0);
            pst_avro_put_bytes(w->out, key, key_len);
            rc = av_node_write_json(w, n->item, v, depth + 1);
            if (rc < 0)
                return rc;
            pop(w, old);
        }
    }
    pst_avro_put_long(w->out, 0);
    return 0;
}

static int unknown_key(av_json_writer *w, const av_node *n, const json_t *j)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)j, key, v)
    {
        if (av_node_find(n, key) >= 0)
            continue;
        const char **names = pst_alloc((n->n_fields + 1) * sizeof *names);
        for (size_t i = 0; i < n->n_fields; i++)
            names[i] = n->fields[i].name;
        const char *near = w->err ? pst_nearest(key, names, n->n_fields) : NULL;
        free(names);
        return bad(w, PST_EINVAL, "%s has no field %.80s%s%s%s", n->name, key, near ? "; did you mean \"" : "", near ? near : "",
                   near ? "\"?" : "");
    }
    return 0;
}

static int write_record(av_json_writer *w, const av_node *n, const json_t *j, int depth)
{
    size_t used = 0;
    if (!json_is_object(j))
        return mismatch(w, n, j);
    for (size_t i = 0; i < n->n_fields; i++) {
        const av_field *f = &n->fields[i];
        const json_t *v = json_object_get(j, f->name);
        size_t old = push(w, f->name, 0);
        int rc;
        used += v != NULL;
        if (v) {
            rc = av_node_write_json(w, f->type, v, depth + 1);
        } else if (f->def) {
            bool was = w->defaults;
            w->defaults = true;
            rc = av_node_write_json(w, f->type, f->def, depth + 1);
            w->defaults = was;
        } else {
            rc = bad(w, PST_EINVAL, "is missing and has no default");
        }
        if (rc < 0)
            return rc;
        pop(w, old);
    }
    return used < json_object_size(j) && !w->defaults ? unknown_key(w, n, j) : 0;
}

/* Tries branches without an error text; what a failed one has written is taken back. */
static int write_union(av_json_writer *w, const av_node *n, const json_t *j, int depth)
{
    size_t mark = w->out->len, path = w->n_path;
    pst_err *err = w->err;
    bool defaults = w->defaults;
    int rc = PST_EINVAL;
    w->err = NULL;
    for (size_t i = 0; i < n->n_branches && rc < 0 && rc != PST_ELIMIT; i++) {
        pst_avro_put_long(w->out, (int64_t)i);
        rc = av_node_write_json(w, n->branches[i], j, depth + 1);
        w->defaults = defaults;
        pop(w, path);
        if (rc < 0)
            w->out->len = mark;
    }
    w->err = err;
    if (rc != PST_EINVAL)
        return rc == PST_ELIMIT ? bad(w, rc, "nested too deeply or too much work") : rc;
    /* Avro's JSON encoding: {"string": "x"}. Also the way to a story that names the field when one record branch was meant. */
    const char *tag = json_is_object(j) && json_object_size(j) == 1 ? json_object_iter_key(json_object_iter((json_t *)(uintptr_t)j)) : NULL;
    const av_node *only = NULL;
    size_t only_at = 0, records = 0;
    for (size_t i = 0; i < n->n_branches; i++) {
        const av_node *b = n->branches[i];
        if (tag && !w->defaults && (!strcmp(av_node_name(b), tag) || (b->name && !strcmp(b->base, tag)))) {
            pst_avro_put_long(w->out, (int64_t)i);
            return av_node_write_json(w, b, json_object_get(j, tag), depth + 1);
        }
        if (b->kind == PST_AVRO_RECORD && json_is_object(j)) {
            only = b;
            only_at = i;
            records++;
        }
    }
    if (records == 1) {
        pst_avro_put_long(w->out, (int64_t)only_at);
        return av_node_write_json(w, only, j, depth + 1);
    }
    return bad(w, PST_EINVAL, "%s fits no branch of the union", json_word(j));
}

/* Depth, steps and bytes are all bounded: unions try their branches one after the other, so work is not limited by the size of the JSON text. */
int av_node_write_json(av_json_writer *w, const av_node *n, const json_t *j, int depth)
{
    if (depth > PST_AVRO_DEPTH_MAX)
        return bad(w, PST_ELIMIT, "nested deeper than %d", PST_AVRO_DEPTH_MAX);
    if (!w->steps || w->out->len > PST_AVRO_BYTES_MAX)
        return bad(w, PST_ELIMIT, "the data is too large");
    w->steps--;
    switch (n->kind) {
    case PST_AVRO_NULL: return json_is_null(j) ? 0 : mismatch(w, n, j);
    case PST_AVRO_BOOLEAN:
        if (!json_is_boolean(j))
            return mismatch(w, n, j);
        pst_buf_addc(w->out, json_is_true(j) ? 1 : 0);
        return 0;
    case PST_AVRO_INT:
    case PST_AVRO_LONG: return write_whole(w, n, j);
    case PST_AVRO_FLOAT:
    case PST_AVRO_DOUBLE: return write_real(w, n, j);
    case PST_AVRO_STRING:
        if (!json_is_string(j))
            return mismatch(w, n, j);
        pst_avro_put_bytes(w->out, json_string_value(j), json_string_length(j));
        return 0;
    case PST_AVRO_BYTES:
    case PST_AVRO_FIXED: return write_bytes(w, n, j);
    case PST_AVRO_ENUM: return write_enum(w, n, j);
    case PST_AVRO_ARRAY:
    case PST_AVRO_MAP: return write_items(w, n, j, depth);
    case PST_AVRO_RECORD: return write_record(w, n, j, depth);
    case PST_AVRO_UNION: return write_union(w, n, j, depth);
    }
    return 0;
}

int av_node_write_default(const av_field *f, pst_buf *out, pst_err *err)
{
    av_json_writer w = {.out = out, .err = err, .steps = 100000, .defaults = true};
    push(&w, f->name, 0);
    int rc = av_node_write_json(&w, f->type, f->def, 0);
    if (rc < 0)
        pst_err_prefix(err, "default");
    return rc;
}

int pst_avro_from_json(const pst_schema *s, const json_t *json, pst_buf *out, pst_err *err)
{
    pst_buf b = {0};
    av_json_writer w = {.out = &b, .err = err, .steps = STEPS_MAX};
    if (!json)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "avro", 0, "no JSON value was given");
    int rc = av_node_write_json(&w, s->root, json, 0);
    if (rc < 0)
        pst_err_prefix(err, "%s", av_node_name(s->root));
    else
        pst_buf_add(out, b.data, b.len);
    pst_buf_done(&b);
    return rc;
}
