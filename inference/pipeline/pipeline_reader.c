/* pipeline_reader.c - getters over a YAML tree that know where they are, and ${ENV} in its texts. */
#include "inference/pipeline/pipeline_reader.h"

#include "common/base/buf.h"
#include "common/base/fs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 32 }; /* of one section */

int pipeline_reader_fail(pipeline_reader *r, int line, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return pst_err_set(r->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s:%d: %s", r->y.file, line, text);
}

int pipeline_reader_check_keys(pipeline_reader *r, const json_t *obj, const char *where)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)obj, key, v)
    {
        if (pst_keys_find(r->keys, where, key))
            continue;
        const char *known[KEYS_MAX];
        size_t n = pst_keys_names(r->keys, where, known, KEYS_MAX);
        bool top = !strcmp(where, "pipeline");
        char near[200] = "";
        const char *best = pst_nearest(key, known, n);
        if (best) {
            snprintf(near, sizeof(near), "; did you mean \"%s\"?", best);
        } else {
            size_t at = (size_t)snprintf(near, sizeof(near), "; known:");
            for (size_t i = 0; i < n && at + 2 < sizeof(near); i++)
                at += (size_t)snprintf(near + at, sizeof(near) - at, " %s", known[i]);
        }
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, obj, key), "unknown key \"%.80s\"%s%s%s", key, top ? "" : " in ",
                                    top ? "" : where, near);
    }
    return 0;
}

/* The row of a key that the code reads: there is one, or the code and the table are not about the same file. */
static const pst_key *row_of(const pipeline_reader *r, const char *where, const char *key)
{
    const pst_key *k = pst_keys_find(r->keys, where, key);
    PST_ASSERT(k);
    return k;
}

/* A section: missing is fine (ret NULL), anything but a mapping is not. */
int pipeline_reader_section(pipeline_reader *r, const json_t *root, const char *key, json_t **ret)
{
    json_t *v = json_object_get(root, key);
    *ret = NULL;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_object(v))
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, root, key), "%s: expected a mapping, such as {key: value}", key);
    *ret = v;
    return 0;
}

int pipeline_reader_str(pipeline_reader *r, const json_t *obj, const char *where, const char *key, char **ret)
{
    json_t *v = json_object_get(obj, key);
    char text[64];
    const char *s = text;
    if (!v || json_is_null(v)) {
        const pst_key *k = pst_keys_find(r->keys, where, key); /* a model's choice is read in sections that have no name or file */
        if (k && k->def && !*ret)
            *ret = pst_strdup(k->def);
        return 0;
    }
    if (json_is_string(v))
        s = json_string_value(v);
    else if (json_is_integer(v))
        snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(v));
    else
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, obj, key), "%s.%s: expected text", where, key);
    if (!*s)
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, obj, key), "%s.%s: is empty", where, key);
    free(*ret);
    *ret = pst_strdup(s);
    return 0;
}

/* A number, also as text (a value that came from the environment is text). */
bool pipeline_reader_number(const json_t *v, double *ret)
{
    if (json_is_number(v)) {
        *ret = json_number_value(v);
        return true;
    }
    if (!json_is_string(v))
        return false;
    const char *s = json_string_value(v);
    char *end;
    double x = strtod(s, &end);
    if (end == s || *end)
        return false;
    *ret = x;
    return true;
}

int pipeline_reader_num(pipeline_reader *r, const json_t *obj, const char *where, const char *key, double *ret)
{
    json_t *v = json_object_get(obj, key);
    const pst_key *k = row_of(r, where, key);
    if (!v || json_is_null(v)) {
        if (k->def)
            *ret = strtod(k->def, NULL);
        return 0;
    }
    double x;
    if (!pipeline_reader_number(v, &x) || !isfinite(x))
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, obj, key), "%s.%s: expected a number", where, key);
    if ((k->lo < k->hi) && (x < k->lo || x > k->hi))
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, obj, key), "%s.%s: %.12g is outside %.12g to %.12g", where, key, x, k->lo,
                                    k->hi);
    *ret = x;
    return 0;
}

int pipeline_reader_whole(pipeline_reader *r, const json_t *obj, const char *where, const char *key, int64_t *ret)
{
    double x = NAN;
    int rc = pipeline_reader_num(r, obj, where, key, &x);
    if (rc < 0 || isnan(x))
        return rc;
    if (x != floor(x))
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, obj, key), "%s.%s: expected a whole number", where, key);
    *ret = (int64_t)x;
    return 0;
}

/* "1MiB", "5ms": texts with a unit, or plain numbers (bytes; seconds). */
int pipeline_reader_unit(pipeline_reader *r, const json_t *obj, const char *where, const char *key, int64_t *ret)
{
    json_t *v = json_object_get(obj, key);
    const pst_key *k = row_of(r, where, key);
    bool span = k->kind == PST_KEY_SPAN;
    int (*parse)(const char *text, int64_t *ret) = span ? pst_span_parse : pst_bytes_parse;
    char text[64];
    if (!v || json_is_null(v)) {
        PST_ASSERT(!k->def || parse(k->def, ret) == 0);
        return 0;
    }
    if (json_is_string(v))
        snprintf(text, sizeof(text), "%s", json_string_value(v));
    else if (json_is_number(v))
        snprintf(text, sizeof(text), "%.17g", json_number_value(v));
    else
        text[0] = 0;
    int64_t x;
    int rc = text[0] ? parse(text, &x) : PST_EPARSE;
    if (rc < 0)
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, obj, key), "%s.%s: expected %s", where, key,
                                    span ? "a time such as 5ms or 2s" : "a size such as 1MiB");
    if ((double)x < k->lo || (double)x > k->hi)
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, obj, key), "%s.%s: \"%s\" is outside %lld to %lld %s", where, key, text,
                                    (long long)k->lo, (long long)k->hi, span ? "microseconds" : "bytes");
    *ret = x;
    return 0;
}

/* One of the words; ret = its index. */
int pipeline_reader_word(pipeline_reader *r, const json_t *obj, const char *where, const char *key, int *ret)
{
    json_t *v = json_object_get(obj, key);
    const pst_key *k = row_of(r, where, key);
    bool absent = !v || json_is_null(v);
    if (absent && !k->def)
        return 0;
    const char *s = absent ? k->def : json_string_value(v);
    int at = s ? pst_key_word(k, s) : -1;
    PST_ASSERT(at >= 0 || !absent);
    if (at >= 0) {
        *ret = at;
        return 0;
    }
    char list[160] = "";
    for (size_t i = 0, n = 0; k->words[i] && n + 1 < sizeof(list); i++)
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", i ? " | " : "", k->words[i]);
    return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, obj, key), "%s.%s: %s%.60s%s is none of %s", where, key, s ? "\"" : "",
                                s ? s : "the value", s ? "\"" : "", list);
}

int pipeline_reader_texts(pipeline_reader *r, const json_t *obj, const char *where, const char *key, char ***ret, size_t *ret_n)
{
    json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v))
        return 0;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (json_is_object(v) || n > 10000)
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, obj, key), "%s.%s: expected a list of names", where, key);
    char **out = pst_alloc((n + 1) * sizeof(*out));
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        if (!s || !*s) {
            for (size_t k = 0; k < i; k++)
                free(out[k]);
            free(out);
            return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, obj, key), "%s.%s: element %zu is no name", where, key, i + 1);
        }
        out[i] = pst_strdup(s);
    }
    *ret = out;
    *ret_n = n;
    return 0;
}

/* ---- ${ENV} ---------------------------------------------------------------------------------------------------------------- */

/* One text: each ${NAME} or ${NAME:-default} becomes its value, $${ a literal ${. What a published pipeline may not see is refused by name, whether it
 * is set or not, so that nobody learns of it. */
static int expand_text(pipeline_reader *r, json_t *node)
{
    const char *s = json_string_value(node);
    if (!strstr(s, "${"))
        return 0;
    pst_buf out = {0};
    int rc = 0;
    while (*s && rc == 0) {
        if (!strncmp(s, "$${", 3)) {
            pst_buf_adds(&out, "${");
            s += 3;
            continue;
        }
        if (strncmp(s, "${", 2) != 0) {
            pst_buf_addc(&out, *s++);
            continue;
        }
        const char *end = strchr(s, '}');
        if (!end || end - s > 4000) {
            rc = pipeline_reader_fail(r, pst_yaml_line(&r->y, node),
                                      "\"%.40s\": the closing brace of ${…} is missing (write $${ for a literal ${)", s);
            break;
        }
        char *name = pst_strndup(s + 2, (size_t)(end - s - 2));
        char *def = strstr(name, ":-");
        if (def) {
            *def = 0;
            def += 2;
        }
        bool hidden = r->may_see && !r->may_see(name, strlen(name));
        const char *value = hidden ? NULL : getenv(name);
        if (!value || !*value)
            value = def;
        if (hidden)
            rc = pipeline_reader_fail(r, pst_yaml_line(&r->y, node),
                                      "${%.80s}: a published pipeline reads no such variable of the scorer's environment", name);
        else if (!value)
            rc = pipeline_reader_fail(r, pst_yaml_line(&r->y, node),
                                      "the environment variable %.80s is not set; set it or give a default: ${%.80s:-…}", name, name);
        else
            pst_buf_adds(&out, value);
        free(name);
        s = end + 1;
    }
    if (rc == 0 && json_string_setn(node, out.data ? out.data : "", out.len) < 0)
        rc = pipeline_reader_fail(r, pst_yaml_line(&r->y, node), "the environment's value is not UTF-8 text");
    pst_buf_done(&out);
    return rc;
}

int pipeline_reader_expand(pipeline_reader *r, json_t *node)
{
    int rc = 0;
    if (json_is_string(node))
        return expand_text(r, node);
    if (json_is_array(node)) {
        size_t i;
        json_t *v;
        json_array_foreach(node, i, v)
        {
            if ((rc = pipeline_reader_expand(r, v)) < 0)
                return rc;
        }
    } else if (json_is_object(node)) {
        const char *key;
        json_t *v;
        json_object_foreach(node, key, v)
        {
            if ((rc = pipeline_reader_expand(r, v)) < 0)
                return rc;
        }
    }
    return 0;
}
