/* csv_columns.c - columns of a CSV file → fields of a record. The header stands once for all rows, so what does not fit in it is said once, with all the
 * names that are concerned, instead of once for each row. What the schema wants decides how a text is read: "007" of a text field stays text, and a date
 * becomes the number of its logical type. Nothing is guessed that could be read in two ways: a decimal comma is one where the user says so. */
#include "producers/sources/csv_columns.h"

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "schemas/avro.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef enum column_kind { COLUMN_ANY, COLUMN_TEXT, COLUMN_TRUTH, COLUMN_MILLIS, COLUMN_MICROS, COLUMN_DAYS } column_kind;

typedef struct column {
    char *name;
    column_kind kind;
    bool decimal_comma;
} column;

struct source_columns {
    column *at;
    size_t n;
};

/* ---- names --------------------------------------------------------------------------------------------------------------------- */

/* Lower case, _ for each run of what is neither a letter nor a digit of ASCII: a name that Avro takes and that no dotted path splits. */
static char *plain_name(const char *name)
{
    pst_buf b = {0};
    for (const char *p = name; *p; p++) {
        if (isalnum((unsigned char)*p))
            pst_buf_addc(&b, (char)tolower((unsigned char)*p));
        else if (b.len && b.data[b.len - 1] != '_')
            pst_buf_addc(&b, '_');
    }
    while (b.len && b.data[b.len - 1] == '_')
        b.data[--b.len] = '\0';
    char *plain = pst_sprintf("%s%s", b.len && !isdigit((unsigned char)b.data[0]) ? "" : "_", b.len ? b.data : "");
    pst_buf_done(&b);
    return plain;
}

static column *find(const source_columns *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->at[i].name, name))
            return &c->at[i];
    return NULL;
}

static int refuse(pst_err *err, const char *file, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int refuse(pst_err *err, const char *file, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s:1: %s", file, text);
}

static int take_names(source_columns *c, const pst_csv *csv, const char *file, bool plain, pst_err *err)
{
    for (size_t i = 0; i < pst_csv_columns(csv); i++) {
        char *name = plain ? plain_name(pst_csv_name(csv, i)) : pst_strdup(pst_csv_name(csv, i));
        const column *twin = find(c, name);
        c->at[c->n++] = (column){.name = name};
        if (twin && plain)
            return refuse(err, file, "--plain-names makes %s of two columns; rename one in the file", name);
    }
    return 0;
}

/* No column of this name: the message names the nearest one. */
static int no_column(const source_columns *c, const char *file, const char *option, const char *name, pst_err *err)
{
    const char **names = pst_alloc((c->n + 1) * sizeof *names);
    for (size_t i = 0; i < c->n; i++)
        names[i] = c->at[i].name;
    const char *near = pst_nearest(name, names, c->n);
    free(names);
    return refuse(err, file, "there is no column %.100s, which %s names%s%.100s%s", name, option, near ? "; did you mean " : "",
                  near ? near : "", near ? "?" : "");
}

/* ---- the schema ---------------------------------------------------------------------------------------------------------------- */

/* Does a field of this Avro type take text alone? Then "007" of a CSV stays text; a union counts when all of its branches but null do. */
static bool wants_text(const json_t *type)
{
    if (json_is_string(type))
        return !strcmp(json_string_value(type), "string") || !strcmp(json_string_value(type), "bytes");
    if (json_is_object(type)) {
        const char *inner = pst_json_str(type, "type", "");
        return !strcmp(inner, "enum") || !strcmp(inner, "fixed") || wants_text(json_object_get(type, "type"));
    }
    bool any = false;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const json_t *branch = json_array_get(type, i);
        if (pst_avro_is_null(branch))
            continue;
        if (!wants_text(branch))
            return false;
        any = true;
    }
    return any;
}

static column_kind kind_of(const json_t *type)
{
    static const struct {
        const char *logical;
        column_kind kind;
    } times[] = {{"timestamp-millis", COLUMN_MILLIS}, {"timestamp-micros", COLUMN_MICROS}, {"date", COLUMN_DAYS}};
    if (wants_text(type))
        return COLUMN_TEXT;
    const json_t *inner = pst_avro_but_null(type);
    const char *logical = json_is_object(inner) ? pst_json_str(inner, "logicalType", "") : "";
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (!strcmp(logical, times[i].logical))
            return times[i].kind;
    const char *word = json_is_object(inner) ? pst_json_str(inner, "type", "") : json_string_value(inner);
    return word && !strcmp(word, "boolean") ? COLUMN_TRUTH : COLUMN_ANY;
}

static void add_to(pst_buf *list, const char *name)
{
    enum { NAMES_BYTES_MAX = 110 };
    if (list->len < NAMES_BYTES_MAX)
        pst_buf_printf(list, "%s`%.40s`", list->len ? ", " : "", name);
    else if (list->len && strcmp(list->data + list->len - 3, "…"))
        pst_buf_adds(list, ", …");
}

/* Every column is a field, and every field without a default a column. */
static int fit_schema(source_columns *c, const char *file, const source_columns_want *want, const json_t *schema, pst_err *err)
{
    const json_t *fields = json_object_get(schema, "fields"), *field;
    pst_buf unknown = {0}, lacking = {0};
    bool plain_helps = false;
    size_t i;
    int rc = 0;
    for (size_t k = 0; k < c->n; k++) {
        bool known = false;
        char *plain = plain_name(c->at[k].name);
        json_array_foreach(fields, i, field)
        {
            const char *name = pst_json_str(field, "name", "");
            known = known || !strcmp(name, c->at[k].name);
            plain_helps = plain_helps || (!want->plain_names && strcmp(plain, c->at[k].name) && !strcmp(name, plain));
        }
        if (!known)
            add_to(&unknown, c->at[k].name);
        free(plain);
    }
    json_array_foreach(fields, i, field)
    {
        column *of = find(c, pst_json_str(field, "name", ""));
        if (of)
            of->kind = kind_of(json_object_get(field, "type"));
        else if (!json_object_get(field, "default"))
            add_to(&lacking, pst_json_str(field, "name", ""));
    }
    if (unknown.len || lacking.len)
        rc = refuse(err, file, "the columns do not fit the schema %.60s: %s%s%s%s%s; %s", want->schema_name,
                    unknown.len ? "it has no field " : "", unknown.len ? unknown.data : "", unknown.len && lacking.len ? "; " : "",
                    lacking.len ? "there is no column " : "", lacking.len ? lacking.data : "",
                    plain_helps ? "--plain-names turns `Some Name` into some_name"
                                : "rename or remove them in the file, or add them to the schema");
    pst_buf_done(&unknown);
    pst_buf_done(&lacking);
    return rc;
}

int source_columns_new(const pst_csv *csv, const char *file, const source_columns_want *want, source_columns **ret_columns, pst_err *err)
{
    source_columns *c = pst_alloc(sizeof *c);
    json_t *schema = NULL;
    c->at = pst_alloc((pst_csv_columns(csv) + 1) * sizeof *c->at);
    int rc = take_names(c, csv, file, want->plain_names, err);
    for (size_t i = 0; !rc && i < want->n_decimal_commas; i++) {
        column *of = find(c, want->decimal_commas[i]);
        if (of)
            of->decimal_comma = true;
        else
            rc = no_column(c, file, "--decimal-comma", want->decimal_commas[i], err);
    }
    if (!rc && want->schema)
        rc = pst_json_parse(want->schema, strlen(want->schema), "schema", &schema, err);
    if (!rc && schema)
        rc = fit_schema(c, file, want, schema, err);
    if (!rc && want->key && !find(c, want->key))
        rc = no_column(c, file, "--key", want->key, err);
    json_decref(schema);
    if (rc < 0)
        source_columns_free(c);
    else
        *ret_columns = c;
    return rc;
}

void source_columns_free(source_columns *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++)
        free(c->at[i].name);
    free(c->at);
    free(c);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------------- */

/* "1.234,5" as "1234.5" into to; false: is not written so. A dot groups three digits or is none of this notation. */
static bool with_point(const char *text, char *to, size_t size)
{
    size_t n = 0, group = 0, len = strlen(text);
    bool dots = false, comma = false;
    if (len + 1 > size)
        return false;
    for (const char *p = text; *p; p++) {
        if (isdigit((unsigned char)*p)) {
            group++;
            to[n++] = *p;
        } else if ((*p == '.' || *p == ',') && !comma && (dots ? group == 3 : group > 0)) {
            if (*p == '.' && group > 3)
                return false;
            dots = dots || *p == '.';
            comma = *p == ',';
            group = 0;
            if (comma)
                to[n++] = '.';
        } else if ((*p == '-' || *p == '+') && p == text)
            to[n++] = *p;
        else
            return false;
    }
    to[n] = '\0';
    return comma || !dots || group == 3;
}

static json_t *number_value(double v, bool whole)
{
    return whole && v >= -9007199254740992.0 && v <= 9007199254740992.0 ? json_integer((json_int_t)v) : json_real(v);
}

/* A time of the schema's logical type; a text that is no time stays one, and the schema refuses it by its name. Without a zone it is UTC. */
static json_t *time_value(column_kind kind, const char *text)
{
    static const int64_t units[] = {[COLUMN_MILLIS] = 1000, [COLUMN_MICROS] = 1, [COLUMN_DAYS] = 86400000000};
    int64_t us;
    double v;
    if (pst_csv_number(text, &v) == 0 && v == floor(v)) /* the number that the type is made of */
        return number_value(v, true);
    if (pst_time_parse(text, &us) < 0)
        return json_string(text);
    int64_t unit = units[kind];
    return json_integer(us >= 0 ? us / unit : -((-us + unit - 1) / unit));
}

static json_t *value_of(const column *c, const char *text)
{
    char point[64];
    double v;
    if (!*text)
        return json_null();
    if (c->kind == COLUMN_TEXT)
        return json_string(text);
    if (c->kind >= COLUMN_MILLIS)
        return time_value(c->kind, text);
    if (c->kind == COLUMN_TRUTH && (!strcasecmp(text, "yes") || !strcasecmp(text, "no")))
        return json_boolean(!strcasecmp(text, "yes"));
    if (c->decimal_comma) {
        if (!with_point(text, point, sizeof point))
            return json_string(text);
        text = point;
    }
    if (pst_csv_number(text, &v) != 0)
        return json_string(text); /* NULL when it is not UTF-8 */
    if (!strcasecmp(text, "true") || !strcasecmp(text, "false"))
        return json_boolean(v != 0);
    return number_value(v, !strpbrk(text, ".eE"));
}

json_t *source_columns_record(const source_columns *c, const pst_csv *csv)
{
    PST_ASSERT(pst_csv_fields(csv) == c->n);
    json_t *o = json_object();
    for (size_t i = 0; i < c->n; i++) {
        json_t *value = value_of(&c->at[i], pst_csv_field(csv, i));
        if (!value || json_object_set_new(o, c->at[i].name, value) < 0) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}
