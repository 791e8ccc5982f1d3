/* manifest_read.c - how a manifest's values are read, so that each kind of complaint has one wording; and the list of complaints of manifest.h. */
#include "schemas/manifest_read.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/fs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define ERRORS_MAX 100  /* one line each in a rejection's details */
enum { KEYS_MAX = 32 }; /* of one section */

/* ---- complaints ------------------------------------------------------------------------------------------------------------ */

void mf_complain(pst_complaints *c, const char *field, int line, const char *fmt, va_list ap)
{
    if (c->n >= ERRORS_MAX)
        return;
    pst_buf b = {0};
    pst_buf_vprintf(&b, fmt, ap);
    c->at = pst_array_one_more(c->at, c->n, sizeof *c->at);
    c->at[c->n++] = (pst_complaint){.field = pst_strdup(field), .text = pst_buf_steal(&b), .line = line};
}

void pst_complain(pst_complaints *c, const char *field, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    mf_complain(c, field, line, fmt, ap);
    va_end(ap);
}

void pst_complaints_done(pst_complaints *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++) {
        free(c->at[i].field);
        free(c->at[i].text);
    }
    free(c->at);
    *c = (pst_complaints){0};
}

char *pst_complaints_text(const pst_complaints *c)
{
    pst_buf b = {0};
    for (size_t i = 0; i < c->n; i++)
        pst_buf_printf(&b, "%s%s: %s", i ? "; " : "", c->at[i].field, c->at[i].text);
    return pst_buf_steal(&b);
}

/* ---- reading one key --------------------------------------------------------------------------------------------------------- */

/* `{KEY=secret}` and `{KEY:secret}` are keys as well, and complaints are read by everybody: what stands behind is left out. */
void mf_field(const mf_place *p, const char *key, char ret[160])
{
    size_t n = strcspn(key, "=: \t");
    snprintf(ret, 160, "%s%s%.*s%s", p->path, *p->path ? "." : "", (int)n, key, key[n] ? "…" : "");
}

void mf_wrong(mf_reader *r, const mf_place *p, const char *key, const char *fmt, ...)
{
    char field[160];
    va_list ap;
    mf_field(p, key, field);
    va_start(ap, fmt);
    mf_complain(r->errors, field, pst_yaml_key_line(r->y, p->obj, key), fmt, ap);
    va_end(ap);
}

void mf_warn(mf_reader *r, const mf_place *p, const char *key, const char *fmt, ...)
{
    char field[160];
    va_list ap;
    mf_field(p, key, field);
    va_start(ap, fmt);
    mf_complain(r->warnings, field, pst_yaml_key_line(r->y, p->obj, key), fmt, ap);
    va_end(ap);
}

/* NULL where the key is absent or has no value: `gpus:` says nothing, as in FfDL. */
const json_t *mf_value(const mf_place *p, const char *key)
{
    const json_t *v = json_object_get(p->obj, key);
    return json_is_null(v) ? NULL : v;
}

/* What was found, for a person: "many", a list, … cut at 40 bytes. */
const char *mf_found(const json_t *v, char buf[64])
{
    switch (json_typeof(v)) {
    case JSON_STRING: snprintf(buf, 64, "\"%.40s\"", json_string_value(v)); break;
    case JSON_INTEGER: snprintf(buf, 64, "%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL: snprintf(buf, 64, "%g", json_real_value(v)); break;
    case JSON_TRUE: snprintf(buf, 64, "true"); break;
    case JSON_FALSE: snprintf(buf, 64, "false"); break;
    case JSON_ARRAY: snprintf(buf, 64, "a list"); break;
    case JSON_OBJECT: snprintf(buf, 64, "a mapping"); break;
    default: snprintf(buf, 64, "nothing"); break;
    }
    return buf;
}

const char *mf_kind(const json_t *v, char buf[64])
{
    return json_is_object(v) || json_is_array(v) ? mf_found(v, buf) : "plain text";
}

/* A scalar as text: `version: 1` and `version: "1"` are the same version. NULL for lists and mappings. */
char *mf_scalar(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING: return pst_strdup(json_string_value(v));
    case JSON_INTEGER: return pst_sprintf("%lld", (long long)json_integer_value(v));
    case JSON_REAL: {
        char *t = pst_sprintf("%.15g", json_real_value(v));
        if (strtod(t, NULL) != json_real_value(v)) {
            free(t);
            t = pst_sprintf("%.17g", json_real_value(v));
        }
        if (!strpbrk(t, ".einf")) { /* 1.0 stays 1.0 */
            char *with_point = pst_sprintf("%s.0", t);
            free(t);
            t = with_point;
        }
        return t;
    }
    case JSON_TRUE: return pst_strdup("true");
    case JSON_FALSE: return pst_strdup("false");
    default: return NULL;
    }
}

/* Where the rows of a place stand: a role is called as its user likes. */
static const char *section_of(const mf_place *p)
{
    static const char roles[] = "penstock.roles.";
    bool role = !strncmp(p->path, roles, sizeof roles - 1) && !strchr(p->path + sizeof roles - 1, '.');
    return role ? "penstock.roles.NAME" : p->path;
}

/* The row of a key that the code reads: there is one, or the code and the table are not about the same file. */
static const pst_key *row_of(const mf_place *p, const char *key)
{
    const pst_key *k = pst_keys_find(&pst_manifest_keys, section_of(p), key);
    PST_ASSERT(k);
    return k;
}

size_t mf_most(const mf_place *p, const char *key)
{
    return (size_t)row_of(p, key)->hi;
}

static char *default_of(const mf_place *p, const char *key)
{
    const pst_key *k = row_of(p, key);
    return k->def ? pst_strdup(k->def) : NULL;
}

static bool has_control(const char *t)
{
    for (; *t; t++)
        if ((unsigned char)*t < 0x20 || *t == 0x7f)
            return true;
    return false;
}

/* The text, or NULL when the key is absent or was complained of. */
static char *text_given(mf_reader *r, const mf_place *p, const char *key)
{
    char what[64];
    const pst_key *k = row_of(p, key);
    const size_t bytes_max = mf_most(p, key);
    const json_t *v = mf_value(p, key);
    if (!v)
        return NULL;
    char *t = mf_scalar(v);
    if (!t) {
        mf_wrong(r, p, key, "must be text, found %s", mf_found(v, what));
        return NULL;
    }
    if (strlen(t) > bytes_max)
        mf_wrong(r, p, key, "is %zu bytes long, at most %zu are allowed", strlen(t), bytes_max);
    else if (k->kind != PST_KEY_BLOCK && has_control(t))
        mf_wrong(r, p, key, "must be one line of text without control characters");
    else
        return t;
    free(t);
    return NULL;
}

char *mf_text(mf_reader *r, const mf_place *p, const char *key)
{
    char *t = text_given(r, p, key);
    return t ? t : default_of(p, key);
}

char *mf_word(mf_reader *r, const mf_place *p, const char *key)
{
    char *t = text_given(r, p, key);
    bool good = t && isalnum((unsigned char)*t);
    for (const char *s = t; good && *s; s++)
        good = isalnum((unsigned char)*s) || strchr("._-", *s);
    if (good)
        return t;
    if (t)
        mf_wrong(r, p, key, "\"%.40s\" must be letters, digits, '.', '_' and '-', beginning with a letter or digit", t);
    free(t);
    return default_of(p, key);
}

int64_t mf_int(mf_reader *r, const mf_place *p, const char *key)
{
    char what[64];
    const pst_key *k = row_of(p, key);
    const int64_t min = (int64_t)k->lo, max = pst_key_hi(k), def = k->def ? strtoll(k->def, NULL, 10) : 0;
    const json_t *v = mf_value(p, key);
    if (!v)
        return def;
    if (json_is_integer(v) && json_integer_value(v) >= min && json_integer_value(v) <= max)
        return json_integer_value(v);
    mf_wrong(r, p, key, "must be a whole number from %lld to %lld, found %s", (long long)min, (long long)max, mf_found(v, what));
    return def;
}

double mf_number(mf_reader *r, const mf_place *p, const char *key, const char *wanted, const char *hint)
{
    char what[64];
    const pst_key *k = row_of(p, key);
    const double def = k->def ? strtod(k->def, NULL) : 0;
    const json_t *v = mf_value(p, key);
    if (!v)
        return def;
    if (json_is_number(v) && json_number_value(v) >= k->lo && json_number_value(v) <= k->hi)
        return json_number_value(v);
    mf_wrong(r, p, key, "must be %s from %g to %g%s, found %s", wanted, k->lo, k->hi, hint, mf_found(v, what));
    return def;
}

int64_t mf_span(mf_reader *r, const mf_place *p, const char *key)
{
    char what[64];
    const pst_key *k = row_of(p, key);
    const int64_t min_us = (int64_t)k->lo, max_us = pst_key_hi(k);
    int64_t def = 0;
    int bad = k->def ? pst_span_parse(k->def, &def) : 0;
    PST_ASSERT(!bad);
    const json_t *v = mf_value(p, key);
    if (!v)
        return def;
    int64_t us = -1;
    char *t = mf_scalar(v);
    bool good = t && pst_span_parse(t, &us) == 0 && us >= min_us && us <= max_us;
    free(t);
    if (good)
        return us;
    mf_wrong(r, p, key, "must be a span such as 30s, 5m or 2h (%lld s at most), found %s", (long long)(max_us / 1000000),
             mf_found(v, what));
    return def;
}

/* FfDL's grammar with decimals: a number, optional spaces, and a unit in any case. MB is 10^6 and MiB 2^20 bytes. */
int64_t mf_memory(mf_reader *r, const mf_place *p, const char *key)
{
    char what[64];
    const pst_key *k = row_of(p, key);
    int64_t def = 0;
    int bad = k->def ? pst_bytes_parse(k->def, &def) : 0;
    PST_ASSERT(!bad);
    const json_t *v = mf_value(p, key);
    if (!v)
        return def;
    int64_t bytes = 0;
    const char *t = json_string_value(v);
    if (t && isdigit((unsigned char)*t) && t[1] != 'x' && t[1] != 'X') {
        size_t n = strlen(t);
        const char *unit = t + n;
        while (unit > t && isalpha((unsigned char)unit[-1]))
            unit--;
        size_t len = strlen(unit);
        bool known = (len == 2 || (len == 3 && tolower((unsigned char)unit[1]) == 'i')) && strchr("kmgt", tolower((unsigned char)*unit)) &&
                     tolower((unsigned char)unit[len - 1]) == 'b';
        if (known && pst_bytes_parse(t, &bytes) == 0 && bytes > 0 && bytes <= pst_key_hi(k))
            return bytes;
    }
    mf_wrong(r, p, key, "must be a number and a unit, such as \"512 MiB\" or \"2GB\" (MB, MiB, GB, GiB, TB, TiB), found %s",
             mf_found(v, what));
    return def;
}

/* A mapping under key; NULL when absent or wrong. */
const json_t *mf_mapping(mf_reader *r, const mf_place *p, const char *key)
{
    char what[64];
    const json_t *v = mf_value(p, key);
    if (!v || json_is_object(v))
        return v;
    mf_wrong(r, p, key, "must be a mapping (key: value lines), found %s", mf_kind(v, what));
    return NULL;
}

void mf_check_keys(mf_reader *r, const mf_place *p, bool ours)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)p->obj, key, v)
    {
        if (pst_keys_find(&pst_manifest_keys, section_of(p), key))
            continue;
        const char *known[KEYS_MAX];
        size_t n = pst_keys_names(&pst_manifest_keys, section_of(p), known, KEYS_MAX);
        char near[200] = "";
        const char *best = pst_nearest(key, known, n);
        if (best) {
            snprintf(near, sizeof near, "; did you mean \"%s\"?", best);
        } else if (ours) {
            size_t at = (size_t)snprintf(near, sizeof near, "; known:");
            for (size_t i = 0; i < n && at + 1 < sizeof near; i++)
                at += (size_t)snprintf(near + at, sizeof near - at, " %s", known[i]);
        }
        if (ours)
            mf_wrong(r, p, key, "is not a known key%s", near);
        else
            mf_warn(r, p, key, "is not a known key and is ignored%s", near);
    }
}

/* "penstock.learner.features[2].scale" → the line of the deepest part that is there. */
static int line_of(const pst_yaml *y, const json_t *at, const char *field)
{
    int line = 0;
    while (at && *field) {
        size_t n = strcspn(field, ".[");
        if (n) {
            char *key = pst_strndup(field, n);
            int there = json_object_get(at, key) ? pst_yaml_key_line(y, at, key) : 0;
            line = there ? there : line;
            at = json_object_get(at, key);
            free(key);
        } else if (*field == '[') {
            at = json_array_get(at, strtoul(field + 1, NULL, 10));
            int there = at ? pst_yaml_line(y, at) : 0;
            line = there ? there : line;
            n = strcspn(field, "]");
        }
        field += n;
        field += *field == ']';
        field += *field == '.';
    }
    return line;
}

void mf_find_lines(const mf_reader *r, const json_t *root, size_t from)
{
    for (size_t i = from; i < r->errors->n; i++)
        if (!r->errors->at[i].line)
            r->errors->at[i].line = line_of(r->y, root, r->errors->at[i].field);
}
