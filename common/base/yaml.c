/* yaml.c - YAML with line numbers and limits. Walks libyaml's event stream, so that nothing is built before its size was checked. */
#include "common/base/yaml.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/fs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { DEPTH_MAX = 32, NODES_MAX = 100000 };

typedef struct walker {
    yaml_parser_t parser;
    pst_yaml *y;
    size_t marks_cap;
    pst_err *err;
} walker;

static int fail(walker *w, size_t line, const char *text)
{
    return pst_err_set(w->err, PST_EPARSE, PST_CLASS_DATA, "yaml", 0, "%s:%zu: %s", w->y->file, line + 1, text);
}

static int next(walker *w, yaml_event_t *ev)
{
    if (yaml_parser_parse(&w->parser, ev))
        return 0;
    const char *problem = w->parser.problem ? w->parser.problem : "cannot be read";
    return fail(w, w->parser.problem_mark.line, problem);
}

static int mark(walker *w, const json_t *node, size_t line)
{
    if (w->y->n_marks >= NODES_MAX)
        return pst_err_set(w->err, PST_ELIMIT, PST_CLASS_DATA, "yaml", 0, "%s has more than %d values", w->y->file, NODES_MAX);
    w->y->marks = pst_array_room(w->y->marks, w->y->n_marks, &w->marks_cap, sizeof *w->y->marks);
    w->y->marks[w->y->n_marks++] = (pst_yaml_mark){node, (int)line + 1};
    return 0;
}

static bool one_of(const char *s, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(s, *words))
            return true;
    return false;
}

/* Core schema of YAML 1.2 for plain scalars. */
static json_t *plain(const char *s, size_t len)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};
    if (one_of(s, nulls))
        return json_null();
    /* json_boolean values are shared singletons and so have no line of their own; yaml_key_line falls back to the parent's. */
    if (one_of(s, trues))
        return json_true();
    if (one_of(s, falses))
        return json_false();
    if (strspn(s, "+-0123456789.eExXoabcdefABCDEF") == len) {
        char *end;
        errno = 0;
        bool hex = !strncmp(s, "0x", 2), oct = !strncmp(s, "0o", 2);
        if (strspn(s, "+-0123456789") == len || hex || oct) {
            long long v = strtoll(oct ? s + 2 : s, &end, hex ? 16 : oct ? 8 : 10);
            if (!*end && !errno && end != s)
                return json_integer(v);
        }
        if (strspn(s, "+-0123456789.eE") == len && strpbrk(s, "0123456789")) {
            double d = strtod(s, &end);
            if (!*end && end != s && isfinite(d))
                return json_real(d);
        }
    }
    return json_stringn(s, len);
}

static json_t *scalar(const yaml_event_t *ev)
{
    const char *s = (const char *)ev->data.scalar.value;
    if (ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return plain(s, ev->data.scalar.length);
    return json_stringn(s, ev->data.scalar.length);
}

static int value(walker *w, yaml_event_t *ev, int depth, json_t **ret_json);

static int sequence(walker *w, int depth, json_t *into)
{
    for (;;) {
        yaml_event_t ev;
        if (next(w, &ev) < 0)
            return PST_EPARSE;
        if (ev.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&ev);
            return 0;
        }
        json_t *v;
        int rc = value(w, &ev, depth + 1, &v);
        if (rc < 0)
            return rc;
        json_array_append_new(into, v);
    }
}

static int mapping(walker *w, int depth, json_t *into)
{
    for (;;) {
        yaml_event_t ev;
        if (next(w, &ev) < 0)
            return PST_EPARSE;
        if (ev.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&ev);
            return 0;
        }
        size_t line = ev.start_mark.line;
        if (ev.type != YAML_SCALAR_EVENT) {
            yaml_event_delete(&ev);
            return fail(w, line, "a key must be plain text");
        }
        char *key = pst_strdup((const char *)ev.data.scalar.value);
        yaml_event_delete(&ev);
        json_t *v = NULL;
        int rc = json_object_get(into, key) ? fail(w, line, "this key stands here twice") : next(w, &ev);
        if (!rc)
            rc = value(w, &ev, depth + 1, &v);
        if (!rc && json_object_set_new(into, key, v) < 0)
            rc = fail(w, line, "a key must be UTF-8");
        free(key);
        if (rc < 0)
            return rc;
    }
}

/* Takes ev. */
static int value(walker *w, yaml_event_t *ev, int depth, json_t **ret_json)
{
    size_t line = ev->start_mark.line;
    json_t *j = NULL;
    int rc = 0;
    if (depth > DEPTH_MAX)
        rc = fail(w, line, "nested too deeply (limit 32)");
    else if (ev->type == YAML_ALIAS_EVENT)
        rc = fail(w, line, "aliases (*name) are not supported; write the value out");
    else if (ev->type == YAML_SCALAR_EVENT)
        j = scalar(ev);
    else if (ev->type == YAML_SEQUENCE_START_EVENT)
        j = json_array();
    else if (ev->type == YAML_MAPPING_START_EVENT)
        j = json_object();
    else
        rc = fail(w, line, "a value was expected here");
    yaml_event_type_t type = ev->type;
    yaml_event_delete(ev);
    if (!rc && !j)
        rc = fail(w, line, "the text is not UTF-8");
    if (!rc)
        rc = mark(w, j, line);
    if (!rc && type == YAML_SEQUENCE_START_EVENT)
        rc = sequence(w, depth, j);
    if (!rc && type == YAML_MAPPING_START_EVENT)
        rc = mapping(w, depth, j);
    if (rc < 0)
        json_decref(j);
    else
        *ret_json = j;
    return rc;
}

/* One value between the document's start and the stream's end; an empty stream is null. What follows the value is read to the end, so that a
 * second document is an error, not text that is silently left out. */
static int document(walker *w, json_t **ret_root)
{
    yaml_event_t ev;
    do {
        if (next(w, &ev) < 0)
            return PST_EPARSE;
        if (ev.type == YAML_STREAM_END_EVENT) {
            yaml_event_delete(&ev);
            *ret_root = json_null();
            return 0;
        }
        if (ev.type != YAML_STREAM_START_EVENT && ev.type != YAML_DOCUMENT_START_EVENT)
            break;
        yaml_event_delete(&ev);
    } while (1);
    json_t *root;
    int rc = value(w, &ev, 0, &root);
    if (rc < 0)
        return rc;
    for (;;) {
        if (next(w, &ev) < 0) {
            rc = PST_EPARSE;
            break;
        }
        yaml_event_type_t type = ev.type;
        size_t line = ev.start_mark.line;
        yaml_event_delete(&ev);
        if (type == YAML_STREAM_END_EVENT)
            break;
        if (type == YAML_DOCUMENT_START_EVENT) {
            rc = fail(w, line, "more than one document");
            break;
        }
    }
    if (rc < 0)
        json_decref(root);
    else
        *ret_root = root;
    return rc;
}

int pst_yaml_parse(const char *text, size_t len, const char *file, pst_yaml *ret_yaml, pst_err *err)
{
    pst_yaml y = {.file = pst_strdup(file ? file : "yaml")};
    walker w = {.y = &y, .err = err};
    if (!yaml_parser_initialize(&w.parser)) {
        free(y.file);
        return pst_err_set(err, PST_ENOMEM, PST_CLASS_FATAL, "yaml", 0, "out of memory");
    }
    yaml_parser_set_input_string(&w.parser, (const unsigned char *)text, len);
    int rc = document(&w, &y.root);
    yaml_parser_delete(&w.parser);
    if (rc < 0)
        pst_yaml_done(&y);
    else
        *ret_yaml = y;
    return rc;
}

void pst_yaml_done(pst_yaml *y)
{
    if (!y)
        return;
    json_decref(y->root);
    free(y->file);
    free(y->marks);
    memset(y, 0, sizeof *y);
}

int pst_yaml_line(const pst_yaml *y, const json_t *node)
{
    if (!node || json_is_null(node) || json_is_boolean(node))
        return 0;
    for (size_t i = 0; i < y->n_marks; i++)
        if (y->marks[i].node == node)
            return y->marks[i].line;
    return 0;
}

int pst_yaml_key_line(const pst_yaml *y, const json_t *obj, const char *key)
{
    int line = pst_yaml_line(y, json_object_get(obj, key));
    return line ? line : pst_yaml_line(y, obj);
}

int pst_yaml_check_keys(const pst_yaml *y, const json_t *obj, const char *where, const char *const *known, size_t n, pst_err *err)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)obj, key, v)
    {
        bool found = false;
        for (size_t i = 0; i < n && !found; i++)
            found = !strcmp(key, known[i]);
        if (found)
            continue;
        const char *near = pst_nearest(key, known, n);
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "config", 0, "%s:%d: unknown key `%s`%s%s%s%s%s", y->file,
                           pst_yaml_key_line(y, obj, key), key, where && *where ? " in `" : "", where && *where ? where : "",
                           where && *where ? "`" : "", near ? "; did you mean " : "", near ? near : "");
    }
    return 0;
}

/* ---- replacing scalars in the text ---- */

typedef struct replacer {
    yaml_parser_t parser;
    const char *text, *end;
    const char *at; /* where character number `chars` begins: libyaml counts characters, not bytes */
    size_t chars;
    const char *copied; /* the text up to here is in out */
    pst_buf out, path;
    pst_yaml_fn fn;
    void *arg;
    size_t nodes;
    pst_err *err;
} replacer;

static const char *place(replacer *r, size_t index)
{
    while (r->chars < index && r->at < r->end) {
        r->at++;
        while (r->at < r->end && ((unsigned char)*r->at & 0xc0) == 0x80)
            r->at++;
        r->chars++;
    }
    return r->at;
}

static int replacer_next(replacer *r, yaml_event_t *ev)
{
    if (!yaml_parser_parse(&r->parser, ev))
        return pst_err_set(r->err, PST_EPARSE, PST_CLASS_DATA, "yaml", 0, "line %zu: %s", r->parser.problem_mark.line + 1,
                           r->parser.problem ? r->parser.problem : "cannot be read");
    if (++r->nodes > NODES_MAX * 4) {
        yaml_event_delete(ev);
        return pst_err_set(r->err, PST_ELIMIT, PST_CLASS_DATA, "yaml", 0, "more than %d values", NODES_MAX);
    }
    return 0;
}

static void replace_scalar(replacer *r, const yaml_event_t *ev, const char *key)
{
    const char *from = place(r, ev->start_mark.index), *to = place(r, ev->end_mark.index);
    while (to > from && (to[-1] == '\n' || to[-1] == '\r')) /* of a block scalar */
        to--;
    char *instead = r->fn(r->arg, r->path.data ? r->path.data : "", key, (const char *)ev->data.scalar.value, from, (size_t)(to - from));
    if (!instead)
        return;
    pst_buf_add(&r->out, r->copied, (size_t)(from - r->copied));
    pst_buf_adds(&r->out, instead);
    r->copied = to;
    free(instead);
}

static int replace_in(replacer *r, yaml_event_t *ev, const char *key, int depth);

static void path_cut(replacer *r, size_t len)
{
    r->path.len = len;
    if (r->path.data)
        r->path.data[len] = 0;
}

/* Of a mapping or a sequence, up to its end. r->path is as long afterwards as before; each event is deleted by whoever read it or took it. */
static int replace_members(replacer *r, bool map, int depth)
{
    size_t base = r->path.len;
    int rc = 0;
    for (size_t i = 0; !rc; i++) {
        yaml_event_t ev;
        char *key = NULL;
        if ((rc = replacer_next(r, &ev)) < 0)
            return rc;
        if (ev.type == YAML_MAPPING_END_EVENT || ev.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&ev);
            return 0;
        }
        if (map) {
            if (ev.type != YAML_SCALAR_EVENT) {
                yaml_event_delete(&ev);
                return pst_err_set(r->err, PST_EPARSE, PST_CLASS_DATA, "yaml", 0, "a key must be text");
            }
            key = pst_strdup((const char *)ev.data.scalar.value);
            pst_buf_printf(&r->path, "%s%s", base ? "." : "", key);
            yaml_event_delete(&ev);
            rc = replacer_next(r, &ev);
        } else
            pst_buf_printf(&r->path, "[%zu]", i);
        if (!rc)
            rc = replace_in(r, &ev, key ? key : "", depth + 1);
        path_cut(r, base);
        free(key);
    }
    return rc;
}

/* Consumes ev. */
static int replace_in(replacer *r, yaml_event_t *ev, const char *key, int depth)
{
    yaml_event_type_t type = ev->type;
    if (type == YAML_SCALAR_EVENT)
        replace_scalar(r, ev, key);
    yaml_event_delete(ev);
    if (type == YAML_SCALAR_EVENT)
        return 0;
    if (depth > DEPTH_MAX || (type != YAML_MAPPING_START_EVENT && type != YAML_SEQUENCE_START_EVENT))
        return pst_err_set(r->err, PST_EPARSE, PST_CLASS_DATA, "yaml", 0, "nested too deeply, or an alias");
    return replace_members(r, type == YAML_MAPPING_START_EVENT, depth);
}

static int replace_document(replacer *r)
{
    yaml_event_t ev;
    int rc;
    for (;;) {
        if ((rc = replacer_next(r, &ev)) < 0)
            return rc;
        switch (ev.type) {
        case YAML_STREAM_END_EVENT: yaml_event_delete(&ev); return 0;
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_START_EVENT:
        case YAML_DOCUMENT_END_EVENT: yaml_event_delete(&ev); break;
        default:
            if ((rc = replace_in(r, &ev, "", 0)) < 0)
                return rc;
        }
    }
}

int pst_yaml_replace(const char *text, size_t len, pst_yaml_fn fn, void *arg, char **ret_text, pst_err *err)
{
    replacer r = {.text = text, .end = text + len, .at = text, .copied = text, .fn = fn, .arg = arg, .err = err};
    if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) /* a byte order mark counts for nothing */
        r.at += 3;
    if (!yaml_parser_initialize(&r.parser))
        return pst_err_set(err, PST_ENOMEM, PST_CLASS_FATAL, "yaml", 0, "out of memory");
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    int rc = replace_document(&r);
    yaml_parser_delete(&r.parser);
    pst_buf_add(&r.out, r.copied, (size_t)(r.end - r.copied));
    if (rc == 0)
        *ret_text = r.out.len ? pst_buf_steal(&r.out) : pst_strdup("");
    pst_buf_done(&r.out);
    pst_buf_done(&r.path);
    return rc;
}
