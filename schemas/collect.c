/* collect.c - reads `evaluation_metrics`. All of a pattern is tried when the manifest is read, at submit: a learner that trained for a day and left no
 * curve because of a parenthesis is the alternative. FfDL's macros are ours in wording: what they take is FfDL's, and numbers also take nan and inf. */
#include "schemas/collect.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/fs.h"
#include "common/base/regex.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *pattern;
} macros[] = {{"GLOG_STAMP", "[EFIW][0-9]{4}\\s+[0-9]{1,2}:[0-9]{2}:[0-9]{2}\\.[0-9]+"},
              {"TIMESTAMP", "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:Z|[-+][0-9]{2}:?[0-9]{2})?"},
              {"FLOAT", "(?:[-+]?(?:(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][-+]?[0-9]+)?|(?i:nan|inf(?:inity)?)))"},
              {"INT", "(?:[-+]?[0-9]+)"},
              {"INT_ANY", "(?:[-+]?(?:0[xX][0-9a-fA-F]+|[0-9]+))"},
              {"HEX", "(?:(?:0[xX])?[0-9a-fA-F]+)"}};
enum { MACROS = sizeof macros / sizeof *macros };

typedef struct reader {
    pst_collect *c;
    pst_collect_complain complain;
    void *arg;
} reader;

typedef struct place {
    const json_t *holder;
    char path[140];
} place;

__attribute__((format(printf, 5, 6))) static void tell(const reader *r, bool is_error, const place *at, const char *key, const char *fmt,
                                                       ...)
{
    if (!r->complain)
        return;
    pst_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    pst_buf_vprintf(&b, fmt, ap);
    va_end(ap);
    char path[200];
    snprintf(path, sizeof path, "%s%s%s", at->path, *at->path ? "." : "", key);
    r->complain(r->arg, is_error, path, at->holder, key, b.data);
    pst_buf_done(&b);
}

static place below(const place *at, const char *key)
{
    place p = {json_object_get(at->holder, key), ""};
    snprintf(p.path, sizeof p.path, "%.60s%s%.60s", at->path, *at->path ? "." : "", key);
    return p;
}

static const char *macro_of(const char *name, size_t len)
{
    for (size_t i = 0; i < MACROS; i++)
        if (strlen(macros[i].name) == len && !memcmp(macros[i].name, name, len))
            return macros[i].pattern;
    return NULL;
}

static bool is_name(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!(s[i] == '_' || (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') || (i && s[i] >= '0' && s[i] <= '9')))
            return false;
    return len > 0;
}

static void unknown_macro(const reader *r, const place *at, const char *name, size_t len)
{
    const char *names[MACROS];
    for (size_t i = 0; i < MACROS; i++)
        names[i] = macros[i].name;
    char *word = pst_strndup(name, len < 60 ? len : 60);
    const char *near = pst_nearest(word, names, MACROS);
    tell(r, true, at, "regex", "there is no macro %%{%s}%s%s; there are GLOG_STAMP, TIMESTAMP, FLOAT, INT, INT_ANY, HEX", word,
         near ? ", did you mean " : "", near ? near : "");
    free(word);
}

/* %{TYPE:name} and %{TYPE}; NULL: told. */
static char *expand(const reader *r, const place *at, const char *pattern)
{
    pst_buf out = {0};
    bool good = true;
    for (const char *p = pattern; *p;) {
        const char *end = p[0] == '%' && p[1] == '{' ? strchr(p, '}') : NULL;
        if (!end) {
            pst_buf_addc(&out, *p++);
            continue;
        }
        const char *name = p + 2, *colon = memchr(name, ':', (size_t)(end - name));
        size_t len = (size_t)((colon ? colon : end) - name), capture = colon ? (size_t)(end - colon - 1) : 0;
        const char *macro = macro_of(name, len);
        if (!macro) {
            unknown_macro(r, at, name, len);
            good = false;
        } else if (colon && !is_name(colon + 1, capture)) {
            tell(r, true, at, "regex", "\"%.*s\" cannot name a group: letters, digits and _", (int)(capture < 60 ? capture : 60),
                 colon + 1);
            good = false;
        } else if (colon) {
            pst_buf_printf(&out, "(?P<%.*s>%s)", (int)capture, colon + 1, macro);
        } else {
            pst_buf_adds(&out, macro);
        }
        p = end + 1;
    }
    if (!good)
        pst_buf_done(&out);
    return good ? pst_buf_steal(&out) : NULL;
}

static char *scalar_text(const json_t *v)
{
    if (json_is_string(v))
        return pst_strdup(json_string_value(v));
    if (json_is_integer(v))
        return pst_sprintf("%lld", (long long)json_integer_value(v));
    return json_is_real(v) ? pst_sprintf("%.17g", json_real_value(v)) : NULL;
}

static bool is_type(const json_t *v)
{
    static const char *const types[] = {"INT", "FLOAT", "STRING", "JSONSTRING"};
    const char *t = json_string_value(v);
    for (size_t i = 0; t && i < sizeof types / sizeof *types; i++)
        if (!strcasecmp(t, types[i]))
            return true;
    return !v;
}

/* "$name" or "${name}" is a capture. A capture that the pattern has not is an error. */
static void read_value(const reader *r, const place *values, const char *name, const pst_regex *x, bool is_time, pst_collect_group *g)
{
    place at = below(values, name);
    const json_t *value = json_is_object(at.holder) ? json_object_get(at.holder, "value") : at.holder;
    char *text = scalar_text(value);
    if (!text) {
        tell(r, true, values, name, "needs `value`: a number, or $NAME of a group (?P<NAME>…) of the regex");
        return;
    }
    if (json_is_object(at.holder) && !is_type(json_object_get(at.holder, "type")))
        tell(r, true, &at, "type", "must be INT, FLOAT, STRING or JSONSTRING");
    pst_collect_value v = {.name = pst_strdup(name), .is_capture = *text == '$', .is_time = is_time};
    size_t len = strlen(text);
    bool braces = len > 3 && text[1] == '{' && text[len - 1] == '}';
    v.text = !v.is_capture ? pst_strdup(text) : braces ? pst_strndup(text + 2, len - 3) : pst_strdup(text + 1);
    if (v.is_capture && x && !pst_regex_has(x, v.text))
        tell(r, true, json_is_object(at.holder) ? &at : values, json_is_object(at.holder) ? "value" : name,
             "names a group $%.60s that the regex has not: write (?P<%.60s>…) or %%{FLOAT:%.60s} in it", v.text, v.text, v.text);
    free(text);
    g->values = pst_array_one_more(g->values, g->n_values, sizeof *g->values);
    g->values[g->n_values++] = v;
}

static void read_values(const reader *r, const place *group, const char *key, const pst_regex *x, bool is_time, pst_collect_group *g)
{
    place at = below(group, key);
    const char *name;
    json_t *v;
    if (!at.holder || json_is_null(at.holder))
        return;
    if (!json_is_object(at.holder)) {
        tell(r, true, group, key, "must be a mapping NAME: {type, value}");
        return;
    }
    if (json_object_size(at.holder) > PST_COLLECT_VALUES_MAX) {
        tell(r, true, group, key, "has %zu entries, at most %d are allowed", json_object_size(at.holder), PST_COLLECT_VALUES_MAX);
        return;
    }
    json_object_foreach((json_t *)at.holder, name, v) read_value(r, &at, name, x, is_time, g);
}

static void read_meta(const reader *r, const place *group, const pst_regex *x, pst_collect_group *g)
{
    place at = below(group, "meta");
    if (!json_is_object(at.holder))
        return;
    const char *time = json_string_value(json_object_get(at.holder, "time"));
    if (!time || *time != '$')
        return;
    if (x && !pst_regex_has(x, time + 1))
        tell(r, true, &at, "time", "names a group %.60s that the regex has not: write %%{TIMESTAMP:%.60s} in it", time, time + 1);
    g->stamp = pst_strdup(time + 1);
}

/* The regex is compiled at submission only (r->complain): a supervisor compiles it where it is used, and values can then be held against its groups here. */
static void read_group(const reader *r, const place *groups, const char *label)
{
    static const char *const known[] = {"regex", "meta", "scalars", "values", "etimes"};
    place at = below(groups, label);
    const char *pattern = json_string_value(json_object_get(at.holder, "regex")), *key;
    json_t *v;
    if (!json_is_object(at.holder) || !pattern || !*pattern) {
        tell(r, true, groups, label, "needs `regex`, a regular expression, and `scalars`, what it finds");
        return;
    }
    json_object_foreach((json_t *)at.holder, key, v)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found = found || !strcmp(key, known[i]);
        const char *near = found ? NULL : pst_nearest(key, known, sizeof known / sizeof *known);
        if (!found)
            tell(r, false, &at, key, "is not known and ignored%s%s", near ? "; did you mean " : "", near ? near : "");
    }
    PST_ASSERT(r->c->n_groups < PST_COLLECT_GROUPS_MAX);
    pst_collect_group *g = &r->c->groups[r->c->n_groups++];
    *g = (pst_collect_group){.label = pst_strdup(label), .pattern = expand(r, &at, pattern)};
    pst_regex *x = NULL;
    pst_err err = {0};
    if (g->pattern && r->complain && pst_regex_new(g->pattern, &x, &err) < 0)
        tell(r, true, &at, "regex", "%s", err.text);
    const char *scalars = json_object_get(at.holder, "scalars") ? "scalars" : "values";
    read_values(r, &at, "etimes", x, true, g);
    size_t times = g->n_values;
    read_values(r, &at, scalars, x, false, g);
    if (g->n_values == times)
        tell(r, true, &at, "scalars", "is missing or empty: NAME: {type: FLOAT, value: $GROUP}");
    read_meta(r, &at, x, g);
    pst_regex_free(x);
}

static void read_groups(const reader *r, const place *top)
{
    place at = below(top, "groups");
    const char *label;
    json_t *v;
    if (!json_is_object(at.holder) || !json_object_size(at.holder)) {
        tell(r, true, top, "groups", "is missing: regex_extractor needs NAME: {regex, scalars, etimes}");
        return;
    }
    if (json_object_size(at.holder) > PST_COLLECT_GROUPS_MAX) {
        tell(r, true, top, "groups", "has %zu entries, at most %d are allowed", json_object_size(at.holder), PST_COLLECT_GROUPS_MAX);
        return;
    }
    r->c->groups = pst_alloc(json_object_size(at.holder) * sizeof *r->c->groups);
    json_object_foreach((json_t *)at.holder, label, v) read_group(r, &at, label);
}

static void read_lookahead(const reader *r, const place *top)
{
    const char *key = json_object_get(top->holder, "linelookahead") ? "linelookahead" : "line_lookahead";
    const json_t *v = json_object_get(top->holder, key);
    char *text = scalar_text(v), *end = NULL;
    long n = text ? strtol(text, &end, 10) : 0;
    r->c->lookahead = PST_COLLECT_LOOKAHEAD;
    if (v && !json_is_null(v) && (!text || end == text || *end || n < 1 || n > PST_COLLECT_LOOKAHEAD_MAX))
        tell(r, true, top, key, "must be a whole number from 1 to %d: lines that one match may span", PST_COLLECT_LOOKAHEAD_MAX);
    else if (text)
        r->c->lookahead = (int)n;
    free(text);
}

pst_collect_root pst_collect_root_of(const char *path, const char **ret_rest)
{
    static const char *const names[] = {"LOG_DIR", "JOB_STATE_DIR", "RESULT_DIR", "CHECKPOINT_DIR", "MODEL_DIR"};
    bool braces = !strncmp(path, "${", 2);
    const char *name = path + (braces ? 2 : 1);
    *ret_rest = path;
    if (!strncmp(path, "/job", 4) && (!path[4] || path[4] == '/')) {
        *ret_rest = path + 4 + strspn(path + 4, "/");
        return PST_COLLECT_ROOT_JOB_STATE;
    }
    if (*path != '$')
        return *path == '/' ? PST_COLLECT_ROOT_UNKNOWN : PST_COLLECT_ROOT_MODEL;
    for (int i = 0; i < PST_COLLECT_ROOT_UNKNOWN; i++) {
        size_t len = strlen(names[i]);
        const char *end = name + len;
        if (strncmp(name, names[i], len) || (braces && *end++ != '}') || (*end && *end != '/'))
            continue;
        *ret_rest = end + strspn(end, "/");
        return (pst_collect_root)i;
    }
    return PST_COLLECT_ROOT_UNKNOWN;
}

static void read_path(const reader *r, const place *top, const json_t *v)
{
    const char *path = json_string_value(v);
    if (!path || !*path || strlen(path) > 4096)
        tell(r, true, top, "in", "must be a path such as $LOG_DIR/tb, or a list of them");
    else if (strstr(path, ".."))
        tell(r, true, top, "in", "must not contain \"..\"");
    else if (pst_collect_root_of(path, &path) == PST_COLLECT_ROOT_UNKNOWN)
        tell(r, true, top, "in",
             "%.100s is no place that is read: begin with $LOG_DIR, $JOB_STATE_DIR, $RESULT_DIR, $CHECKPOINT_DIR or $MODEL_DIR", path);
    else if (r->c->n_paths == PST_COLLECT_PATHS_MAX)
        tell(r, true, top, "in", "at most %d paths are allowed", PST_COLLECT_PATHS_MAX);
    else
        r->c->paths[r->c->n_paths++] = pst_strdup(json_string_value(v));
}

static void read_paths(const reader *r, const place *top)
{
    const json_t *v = json_object_get(top->holder, "in"), *one;
    size_t i;
    if (!v || json_is_null(v))
        return;
    if (!json_is_array(v))
        read_path(r, top, v);
    json_array_foreach(v, i, one) read_path(r, top, one);
}

static pst_collect_kind kind_of(const char *type)
{
    if (!strncmp(type, "tensorboard", 11))
        return PST_COLLECT_TENSORBOARD;
    if (!strcmp(type, "regex_extractor"))
        return PST_COLLECT_REGEX;
    return !strcmp(type, "emetrics_file") || !strcmp(type, "file") || !strcmp(type, "optivist") ? PST_COLLECT_EMETRICS : PST_COLLECT_LINES;
}

void pst_collect_read(const json_t *v, pst_collect *ret, pst_collect_complain complain, void *arg)
{
    *ret = (pst_collect){.lookahead = PST_COLLECT_LOOKAHEAD};
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type)
        return;
    reader r = {ret, complain, arg};
    place top = {v, ""};
    ret->kind = kind_of(type);
    read_paths(&r, &top);
    read_lookahead(&r, &top);
    if (ret->kind == PST_COLLECT_REGEX)
        read_groups(&r, &top);
}

void pst_collect_done(pst_collect *c)
{
    for (size_t i = 0; i < c->n_groups; i++) {
        pst_collect_group *g = &c->groups[i];
        for (size_t k = 0; k < g->n_values; k++) {
            free(g->values[k].name);
            free(g->values[k].text);
        }
        free(g->values);
        free(g->label);
        free(g->pattern);
        free(g->stamp);
    }
    free(c->groups);
    for (size_t i = 0; i < c->n_paths; i++)
        free(c->paths[i]);
    *c = (pst_collect){0};
}
