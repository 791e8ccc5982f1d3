/* avrogen.c - writes events.h and events.c from the event schemas, at build time: avrogen OUT_DIR A.avsc B.avsc …
 *
 * Runs on the build machine and needs Jansson alone, so that building penstock needs no Python. For each named type, once however many
 * files define it (definitions of one name must be equal but for their docs): a C enum with text and parse functions, or a struct with a
 * descriptor (schemas/type.h). Shapes that the table in avro.h does not know are refused with the field's path: an event that C code
 * cannot hold comfortably is an event to redesign. */
#include <ctype.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TYPES_MAX = 256, NAME_MAX_LEN = 128 };

typedef struct {
    const char *kind; /* enumerator of pst_kind without prefix */
    const char *c;    /* C type of the value; NULL = by named */
    const json_t *named;
    const char *shape; /* enumerator of pst_shape without prefix */
    int null_branch;
    bool time;
} shape_info;

static json_t *defs[TYPES_MAX]; /* first definition of each name, in dependency order */
static int n_defs;
static const char *path_file, *path_record, *path_field; /* where we are, for messages */

static __attribute__((noreturn, format(printf, 1, 2))) void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "avrogen: %s", path_file ? path_file : "");
    if (path_record)
        fprintf(stderr, ": %s%s%s", path_record, path_field ? "." : "", path_field ? path_field : "");
    fprintf(stderr, "%s", path_file ? ": " : "");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    exit(1);
}

static const char *text_of(const json_t *obj, const char *key)
{
    return json_string_value(json_object_get(obj, key));
}

/* JobRequest → job_request, CpuTelemetry → cpu_telemetry; upper: JOB_REQUEST. */
static void snake(const char *name, char *out, bool upper)
{
    size_t n = 0;
    for (const char *p = name; *p; p++) {
        if (n + 3 > NAME_MAX_LEN)
            die("name %s is too long", name);
        if (isupper((unsigned char)*p) && p > name && (!isupper((unsigned char)p[-1]) || (p[1] && islower((unsigned char)p[1]))))
            out[n++] = '_';
        out[n++] = (char)(upper ? toupper((unsigned char)*p) : tolower((unsigned char)*p));
    }
    out[n] = 0;
}

static json_t *find_def(const char *name)
{
    for (int i = 0; i < n_defs; i++)
        if (!strcmp(text_of(defs[i], "name"), name))
            return defs[i];
    return NULL;
}

static bool is_primitive(const char *word)
{
    static const char *const words[] = {"null", "boolean", "int", "long", "float", "double", "string", "bytes"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i], word))
            return true;
    return false;
}

/* Equal definitions differ at most in their docs. */
static bool same(const json_t *a, const json_t *b)
{
    json_t *x = json_deep_copy(a), *y = json_deep_copy(b);
    json_t *both[] = {x, y};
    for (int i = 0; i < 2; i++) {
        json_object_del(both[i], "doc");
        json_object_del(both[i], "namespace");
        size_t at;
        json_t *f;
        json_array_foreach(json_object_get(both[i], "fields"), at, f) json_object_del(f, "doc");
    }
    bool equal = json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return equal;
}

/* Puts the named types inside t into defs, inner ones first; open names on the way down detect recursion. */
static void collect(json_t *t, const char *const *open, int n_open)
{
    size_t at;
    json_t *v;
    if (json_is_string(t)) {
        const char *word = json_string_value(t);
        for (int i = 0; i < n_open; i++)
            if (!strcmp(open[i], word))
                die("%s contains itself; events are not recursive", word);
        if (!is_primitive(word) && !find_def(word))
            die("type %s is not known here", word);
        return;
    }
    if (json_is_array(t)) {
        json_array_foreach(t, at, v) collect(v, open, n_open);
        return;
    }
    const char *kind = text_of(t, "type"), *name = text_of(t, "name");
    if (!kind) {
        if (!json_object_get(t, "type"))
            die("a type needs \"type\"");
        collect(json_object_get(t, "type"), open, n_open);
        return;
    }
    if (!strcmp(kind, "array") || !strcmp(kind, "map")) {
        collect(json_object_get(t, kind[0] == 'a' ? "items" : "values"), open, n_open);
        return;
    }
    if (is_primitive(kind))
        return;
    if (strcmp(kind, "record") && strcmp(kind, "enum"))
        die("type \"%s\" is not supported in events", kind);
    if (!name)
        die("a %s needs a name", kind);
    const char *was_record = path_record, *was_field = path_field;
    path_record = name;
    path_field = NULL;
    if (!strcmp(kind, "record")) {
        const char *inner[64];
        if (n_open >= 63)
            die("nested too deeply");
        memcpy(inner, open, (size_t)n_open * sizeof *inner);
        inner[n_open] = name;
        json_array_foreach(json_object_get(t, "fields"), at, v)
        {
            path_field = text_of(v, "name");
            if (!path_field || !json_object_get(v, "type"))
                die("a field needs \"name\" and \"type\"");
            collect(json_object_get(v, "type"), inner, n_open + 1);
        }
        path_field = NULL;
    }
    json_t *old = find_def(name);
    if (old && !same(old, t))
        die("defined differently in another file; definitions of one name must be equal");
    if (!old) {
        if (n_defs == TYPES_MAX)
            die("more than %d types", TYPES_MAX);
        defs[n_defs++] = t;
    }
    path_record = was_record;
    path_field = was_field;
}

/* Kind of a value type: primitive, enum or record. */
static void value_info(const json_t *t, shape_info *s)
{
    static const struct {
        const char *word, *kind, *c;
    } kinds[] = {{"boolean", "BOOL", "bool"},    {"int", "INT", "int32_t"},      {"long", "LONG", "int64_t"},
                 {"float", "FLOAT", "float"},    {"double", "DOUBLE", "double"}, {"string", "STRING", "char *"},
                 {"bytes", "BYTES", "pst_bytes"}};
    const char *word = json_is_string(t) ? json_string_value(t) : text_of(t, "type");
    if (!word)
        die("this combination of types has no C form; avro.h lists those that do");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].word, word)) {
            const char *logical = json_is_object(t) ? text_of(t, "logicalType") : NULL;
            s->kind = kinds[i].kind;
            s->c = kinds[i].c;
            s->time = logical && !strcmp(logical, "timestamp-micros");
            return;
        }
    const char *name = json_is_string(t) ? word : text_of(t, "name");
    const json_t *def = find_def(name ? name : "");
    if (!def)
        die("type \"%s\" has no C form here; avro.h lists those that do", word);
    s->named = def;
    s->kind = !strcmp(text_of(def, "type"), "enum") ? "ENUM" : "RECORD";
}

static shape_info field_info(const json_t *t)
{
    shape_info s = {.shape = "ONE"};
    const char *word = json_is_object(t) ? text_of(t, "type") : NULL;
    if (json_is_array(t)) {
        bool first = json_is_string(json_array_get(t, 0)) && !strcmp(json_string_value(json_array_get(t, 0)), "null");
        bool second = json_is_string(json_array_get(t, 1)) && !strcmp(json_string_value(json_array_get(t, 1)), "null");
        if (json_array_size(t) != 2 || first == second)
            die("a union here is null and one other type");
        s.shape = "NULLABLE";
        s.null_branch = first ? 0 : 1;
        value_info(json_array_get(t, first ? 1 : 0), &s);
    } else if (word && !strcmp(word, "array")) {
        s.shape = "ARRAY";
        value_info(json_object_get(t, "items"), &s);
    } else if (word && !strcmp(word, "map")) {
        s.shape = "MAP";
        value_info(json_object_get(t, "values"), &s);
        if (strcmp(s.kind, "STRING") && strcmp(s.kind, "DOUBLE"))
            die("a map here holds string or double");
    } else {
        value_info(t, &s);
    }
    return s;
}

static bool flagged(const shape_info *s)
{
    return strcmp(s->kind, "STRING") && strcmp(s->kind, "BYTES") && strcmp(s->kind, "RECORD");
}

/* C identifiers may not be keywords; fields called so get an underscore. */
static const char *member(const char *name)
{
    static const char *const words[] = {"auto",     "break",    "case",   "char",     "const",  "continue", "default", "do",      "double",
                                        "else",     "enum",     "extern", "float",    "for",    "goto",     "if",      "int",     "long",
                                        "register", "return",   "short",  "signed",   "sizeof", "static",   "struct",  "switch",  "typedef",
                                        "union",    "unsigned", "void",   "volatile", "while",  "bool",     "inline",  "restrict"};
    static char out[NAME_MAX_LEN];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i], name)) {
            snprintf(out, sizeof out, "%s_", name);
            return out;
        }
    return name;
}

static void c_string(FILE *f, const char *text)
{
    size_t column = 0;
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(f, "\\%c", *p);
        else if (*p == '\n')
            fprintf(f, "\\n");
        else if (*p < 0x20 || *p > 0x7e)
            fprintf(f, "\\%03o", *p);
        else
            fputc(*p, f);
        if (++column % 120 == 0 && p[1])
            fprintf(f, "\"\n    \"");
    }
    fputc('"', f);
}

static void doc_comment(FILE *f, const char *doc)
{
    if (!doc)
        return;
    fprintf(f, " /* ");
    for (const char *p = doc; *p; p++)
        fputc(*p == '*' && p[1] == '/' ? '+' : *p, f);
    fprintf(f, " */");
}

/* The pst_job_event_type of an enum JobEventType and of the record JobEvent's descriptor would be one name: the enum has no typedef then. */
static bool has_typedef(const json_t *e)
{
    char name[NAME_MAX_LEN];
    size_t n = strlen(text_of(e, "name"));
    snprintf(name, sizeof name, "%s", text_of(e, "name"));
    if (n <= 4 || strcmp(name + n - 4, "Type"))
        return true;
    name[n - 4] = 0;
    const json_t *record = find_def(name);
    return !record || strcmp(text_of(record, "type"), "record");
}

static void enum_header(FILE *f, const json_t *e)
{
    char low[NAME_MAX_LEN], up[NAME_MAX_LEN];
    const char *name = text_of(e, "name");
    bool td = has_typedef(e);
    size_t at;
    json_t *v;
    snake(name, low, false);
    snake(name, up, true);
    fprintf(f, "\n%senum pst_%s {\n", td ? "typedef " : "", low);
    json_array_foreach(json_object_get(e, "symbols"), at, v) fprintf(f, "    PST_%s_%s = %zu,\n", up, json_string_value(v), at);
    fprintf(f, "}%s%s;\n#define PST_%s_N %zu\n", td ? " pst_" : "", td ? low : "", up, json_array_size(json_object_get(e, "symbols")));
    fprintf(f,
            "extern const pst_enum_type pst_%s_enum;\nconst char *pst_%s_text(%spst_%s v);\nint pst_%s_parse(const char *text); /* -1 if "
            "unknown */\n",
            low, low, td ? "" : "enum ", low, low);
}

static void enum_source(FILE *f, const json_t *e)
{
    char low[NAME_MAX_LEN];
    const char *name = text_of(e, "name"), *def = text_of(e, "default");
    size_t at, n = json_array_size(json_object_get(e, "symbols"));
    json_t *v;
    int def_at = -1;
    snake(name, low, false);
    fprintf(f, "\nstatic const char *const %s_symbols[] = {", low);
    json_array_foreach(json_object_get(e, "symbols"), at, v)
    {
        fprintf(f, "%s\"%s\"", at ? ", " : "", json_string_value(v));
        if (def && !strcmp(def, json_string_value(v)))
            def_at = (int)at;
    }
    if (def && def_at < 0) {
        path_record = name;
        die("default \"%s\" is not a symbol", def);
    }
    fprintf(f, "};\nconst pst_enum_type pst_%s_enum = {\"%s\", %s_symbols, %zu, %d};\n", low, name, low, n, def_at);
    fprintf(f, "const char *pst_%s_text(%spst_%s v)\n{\n    return pst_enum_text(&pst_%s_enum, (int)v);\n}\n", low,
            has_typedef(e) ? "" : "enum ", low, low);
    fprintf(f, "int pst_%s_parse(const char *text)\n{\n    return pst_enum_parse(&pst_%s_enum, text);\n}\n", low, low);
}

static void c_type(const shape_info *s, char *out)
{
    char low[NAME_MAX_LEN] = "";
    if (s->named)
        snake(text_of(s->named, "name"), low, false);
    if (s->c)
        snprintf(out, NAME_MAX_LEN, "%s", s->c);
    else
        snprintf(out, NAME_MAX_LEN, "%spst_%.100s", !strcmp(s->kind, "ENUM") && !has_typedef(s->named) ? "enum " : "", low);
}

static void record_header(FILE *f, const json_t *r)
{
    char low[NAME_MAX_LEN], type[NAME_MAX_LEN];
    size_t at;
    json_t *v;
    snake(text_of(r, "name"), low, false);
    if (text_of(r, "doc"))
        fprintf(f, "\n/* %s */", text_of(r, "doc"));
    fprintf(f, "\ntypedef struct pst_%s {\n", low);
    json_array_foreach(json_object_get(r, "fields"), at, v)
    {
        path_record = text_of(r, "name");
        path_field = text_of(v, "name");
        shape_info s = field_info(json_object_get(v, "type"));
        const char *m = member(path_field);
        c_type(&s, type);
        const char *space = type[strlen(type) - 1] == '*' ? "" : " ";
        if (!strcmp(s.shape, "MAP"))
            fprintf(f, "    %s *%s;", !strcmp(s.kind, "STRING") ? "pst_str_pair" : "pst_dbl_pair", m);
        else if (!strcmp(s.shape, "ARRAY"))
            fprintf(f, "    %s%s*%s;", type, space, m);
        else if (!strcmp(s.shape, "NULLABLE") && !strcmp(s.kind, "RECORD"))
            fprintf(f, "    %s *%s;", type, m);
        else
            fprintf(f, "    %s%s%s;", type, space, m);
        doc_comment(f, text_of(v, "doc"));
        fprintf(f, "\n");
        if (!strcmp(s.shape, "MAP") || !strcmp(s.shape, "ARRAY"))
            fprintf(f, "    size_t n_%s;\n", path_field);
        else if (!strcmp(s.shape, "NULLABLE") && flagged(&s))
            fprintf(f, "    bool has_%s;\n", path_field);
    }
    fprintf(f, "} pst_%s;\nextern const pst_type pst_%s_type;\n", low, low);
    path_record = path_field = NULL;
}

/* A copy of t with every name written out at its first use, so that the text stands alone; seen: names already written. */
static json_t *self_contained(const json_t *t, json_t *seen)
{
    size_t at;
    json_t *v;
    if (json_is_string(t)) {
        const char *word = json_string_value(t);
        if (is_primitive(word) || json_object_get(seen, word))
            return json_string(word);
        return self_contained(find_def(word), seen);
    }
    if (json_is_array(t)) {
        json_t *out = json_array();
        json_array_foreach(t, at, v) json_array_append_new(out, self_contained(v, seen));
        return out;
    }
    const char *kind = text_of(t, "type"), *name = text_of(t, "name");
    if (name && kind && (!strcmp(kind, "record") || !strcmp(kind, "enum")))
        json_object_set_new(seen, name, json_true());
    json_t *out = json_copy((json_t *)(uintptr_t)t);
    if (kind && !strcmp(kind, "record")) {
        json_t *fields = json_array();
        json_array_foreach(json_object_get(t, "fields"), at, v)
        {
            json_t *f = json_copy(v);
            json_object_set_new(f, "type", self_contained(json_object_get(v, "type"), seen));
            json_array_append_new(fields, f);
        }
        json_object_set_new(out, "fields", fields);
    } else if (kind && (!strcmp(kind, "array") || !strcmp(kind, "map"))) {
        const char *key = kind[0] == 'a' ? "items" : "values";
        json_object_set_new(out, key, self_contained(json_object_get(t, key), seen));
    }
    return out;
}

/* One row of a pst_field_type table. offsetof does the work: the generator knows no sizes, so the C compiler's layout is always the right one. */
static void field_row(FILE *f, const char *low, const json_t *v)
{
    char inner[NAME_MAX_LEN] = "";
    const char *name = text_of(v, "name");
    shape_info s = field_info(json_object_get(v, "type"));
    json_t *def = json_object_get(v, "default");
    bool many = !strcmp(s.shape, "ARRAY") || !strcmp(s.shape, "MAP");
    if (s.named)
        snake(text_of(s.named, "name"), inner, false);
    fprintf(f, "    {\"%s\", PST_KIND_%s, PST_SHAPE_%s, %d, %s, offsetof(pst_%s, %s), ", name, s.kind, s.shape, s.null_branch,
            s.time ? "true" : "false", low, member(name));
    if (many)
        fprintf(f, "offsetof(pst_%s, n_%s), ", low, name);
    else if (!strcmp(s.shape, "NULLABLE") && flagged(&s))
        fprintf(f, "offsetof(pst_%s, has_%s), ", low, name);
    else
        fprintf(f, "0, ");
    if (!strcmp(s.kind, "ENUM"))
        fprintf(f, "&pst_%s_enum, NULL, ", inner);
    else if (!strcmp(s.kind, "RECORD"))
        fprintf(f, "NULL, &pst_%s_type, ", inner);
    else
        fprintf(f, "NULL, NULL, ");
    if (def) {
        if (!strcmp(s.kind, "BYTES") && json_is_string(def) && json_string_length(def))
            die("a default of bytes that is not empty is not supported in events");
        char *text = json_dumps(def, JSON_COMPACT | JSON_ENCODE_ANY);
        c_string(f, text);
        free(text);
    } else {
        fprintf(f, "NULL");
    }
    json_t *aliases = json_object_get(v, "aliases"), *alias;
    size_t at;
    fprintf(f, aliases ? ", (const char *const[]){" : ", NULL");
    json_array_foreach(aliases, at, alias)
    {
        c_string(f, json_string_value(alias));
        fprintf(f, ", ");
    }
    fprintf(f, aliases ? "NULL}},\n" : "},\n");
}

static void record_source(FILE *f, const json_t *r, const char *namespace)
{
    char low[NAME_MAX_LEN];
    const char *name = text_of(r, "name");
    size_t at;
    json_t *v;
    snake(name, low, false);
    path_record = name;
    fprintf(f, "\nstatic const pst_field_type %s_fields[] = {\n", low);
    json_array_foreach(json_object_get(r, "fields"), at, v)
    {
        path_field = text_of(v, "name");
        field_row(f, low, v);
    }
    json_t *seen = json_object(), *alone = self_contained(r, seen);
    if (!json_object_get(alone, "namespace"))
        json_object_set_new(alone, "namespace", json_string(namespace));
    char *text = json_dumps(alone, JSON_COMPACT);
    fprintf(f, "};\nconst pst_type pst_%s_type = {\"%s\", \"%s.%s\",\n    ", low, name, namespace, name);
    c_string(f, text);
    fprintf(f, ",\n    sizeof(pst_%s), %s_fields, %zu};\n", low, low, json_array_size(json_object_get(r, "fields")));
    free(text);
    json_decref(alone);
    json_decref(seen);
    path_record = path_field = NULL;
}

static FILE *open_out(const char *dir, const char *name, char *path)
{
    snprintf(path, 4096, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    if (!f) {
        path_file = NULL;
        fprintf(stderr, "avrogen: cannot write %s\n", path);
        exit(1);
    }
    return f;
}

int main(int argc, char **argv)
{
    static json_t *files[TYPES_MAX];
    char path[4096], low[NAME_MAX_LEN];
    const char *namespace = NULL;
    if (argc < 3 || argc - 2 > TYPES_MAX) {
        fprintf(stderr, "usage: avrogen OUT_DIR SCHEMA.avsc…\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        json_error_t e;
        path_file = argv[i];
        files[i - 2] = json_load_file(argv[i], JSON_REJECT_DUPLICATES, &e);
        if (!files[i - 2])
            die("line %d: %s", e.line, e.text);
        const char *ns = text_of(files[i - 2], "namespace");
        if (!ns || (namespace && strcmp(ns, namespace)))
            die("all events live in one namespace");
        namespace = ns;
        collect(files[i - 2], NULL, 0);
    }
    path_file = NULL;
    FILE *h = open_out(argv[1], "events.h", path);
    fprintf(h, "/* events.h - generated from schemas/ *.avsc by schemas/avrogen.c; do not edit. Use: schemas/avro.h. */\n"
               "#ifndef PST_SCHEMAS_EVENTS_H\n#define PST_SCHEMAS_EVENTS_H\n\n#include \"schemas/avro.h\"\n");
    for (int i = 0; i < n_defs; i++)
        (!strcmp(text_of(defs[i], "type"), "enum") ? enum_header : record_header)(h, defs[i]);
    fprintf(h, "\n#endif\n");
    FILE *c = open_out(argv[1], "events.c", path);
    fprintf(c, "/* events.c - generated from schemas/ *.avsc by schemas/avrogen.c; do not edit. */\n#include \"events.h\"\n\n"
               "#include \"schemas/type.h\"\n\n#include <stddef.h>\n");
    for (int i = 0; i < n_defs; i++) {
        if (!strcmp(text_of(defs[i], "type"), "enum"))
            enum_source(c, defs[i]);
        else
            record_source(c, defs[i], namespace);
    }
    fprintf(c, "\nconst pst_type *const pst_types[] = {\n");
    for (int i = 0; i < n_defs; i++)
        if (!strcmp(text_of(defs[i], "type"), "record")) {
            snake(text_of(defs[i], "name"), low, false);
            fprintf(c, "    &pst_%s_type,\n", low);
        }
    fprintf(c, "};\nconst size_t pst_types_n = sizeof pst_types / sizeof *pst_types;\n");
    if (fclose(h) || fclose(c))
        die("cannot write the result: disk full?");
    for (int i = 0; i < argc - 2; i++)
        json_decref(files[i]);
    return 0;
}
