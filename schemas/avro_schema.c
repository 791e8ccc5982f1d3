/* avro_schema.c - schema text → graph of nodes. Every name, size, symbol and default is checked here, once, so that nothing later has to.
 * Source: Avro 1.11 specification, "Schema Declaration", "Names", "Aliases". Where Java's parser is more lenient than the text and data in
 * the wild relies on it ({"type": {"type": "string"}}, a union's default that fits another branch than the first), so are we. */
#include "common/base/array.h"
#include "schemas/avro_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_LEN = 200, FIXED_MAX = PST_AVRO_BYTES_MAX };

typedef struct {
    pst_schema *s;
    pst_map names; /* full name → node */
    char path[PATH_LEN];
    size_t n_path;
    bool strict;
    pst_err *err;
} parser;

static const char *const words[] = {"null",   "boolean", "int",  "long",   "float", "double", "bytes",
                                    "string", "fixed",   "enum", "record", "array", "map",    "union"};

const char *av_word(av_kind kind)
{
    return words[kind];
}

const char *av_node_name(const av_node *n)
{
    return n->name ? n->name : words[n->kind];
}

static int parse_type(parser *p, const json_t *j, const char *ns, int depth, av_node **ret);

__attribute__((format(printf, 3, 4))) static int fail(parser *p, int code, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_err_set(p->err, code, PST_CLASS_DATA, "avro", 0, "schema%s%s: %s", p->n_path ? " at " : "", p->path, text);
}

static size_t push(parser *p, const char *name)
{
    size_t old = p->n_path;
    int n = snprintf(p->path + old, sizeof p->path - old, "%s%s", old ? "." : "", name);
    p->n_path = old + (size_t)n < sizeof p->path ? old + (size_t)n : sizeof p->path - 1;
    return old;
}

static void pop(parser *p, size_t old)
{
    p->n_path = old;
    p->path[old] = 0;
}

static int new_node(parser *p, av_kind kind, const json_t *j, av_node **ret)
{
    pst_schema *s = p->s;
    if (s->n_nodes == PST_AVRO_NODES_MAX)
        return fail(p, PST_ELIMIT, "more than %d types", PST_AVRO_NODES_MAX);
    s->nodes = pst_array_room(s->nodes, s->n_nodes, &s->cap_nodes, sizeof *s->nodes);
    av_node *n = pst_alloc(sizeof *n);
    n->kind = kind;
    n->id = (uint32_t)s->n_nodes;
    n->json = json_is_object(j) ? j : NULL;
    n->def = -1;
    s->nodes[s->n_nodes++] = n;
    *ret = n;
    return 0;
}

/* ---- names ------------------------------------------------------------------------------------------------------------------ */

/* [A-Za-z_][A-Za-z0-9_]*, with dots between several of them where allowed. */
static bool name_ok(const char *s, size_t len, bool dots)
{
    bool start = true;
    if (!len || strlen(s) != len)
        return false;
    for (; *s; s++) {
        bool letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_', digit = *s >= '0' && *s <= '9';
        if (*s == '.' && dots && !start) {
            start = true;
            continue;
        }
        if (!letter && (!digit || start))
            return false;
        start = false;
    }
    return !start;
}

static int get_name(parser *p, const json_t *obj, const char *key, bool dots, const char **ret)
{
    const json_t *v = json_object_get(obj, key);
    if (!json_is_string(v))
        return fail(p, PST_EPARSE, v ? "\"%s\" must be text" : "\"%s\" is missing", key);
    if (!name_ok(json_string_value(v), json_string_length(v), dots))
        return fail(p, PST_EPARSE, "\"%.80s\" is not a name: letters, digits and _, beginning with a letter or _", json_string_value(v));
    *ret = json_string_value(v);
    return 0;
}

static char *full_name(const char *name, const char *ns)
{
    return strchr(name, '.') || !ns || !*ns ? pst_strdup(name) : pst_sprintf("%s.%s", ns, name);
}

static int get_aliases(parser *p, const json_t *obj, const char *ns, bool qualify, char ***ret, size_t *ret_n)
{
    const json_t *list = json_object_get(obj, "aliases");
    size_t n = json_array_size(list);
    if (!list)
        return 0;
    if (!json_is_array(list))
        return fail(p, PST_EPARSE, "\"aliases\" must be an array");
    *ret = pst_alloc(n * sizeof **ret);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_string(v) || !name_ok(json_string_value(v), json_string_length(v), qualify))
            return fail(p, PST_EPARSE, "alias %zu is not a name", i);
        (*ret)[(*ret_n)++] = qualify ? full_name(json_string_value(v), ns) : pst_strdup(json_string_value(v));
    }
    return 0;
}

static int kind_of_word(const char *word)
{
    for (int i = 0; i <= PST_AVRO_MAP; i++)
        if (!strcmp(words[i], word))
            return i;
    return !strcmp(word, "error") ? PST_AVRO_RECORD : -1;
}

/* A type word: primitive, or the name of a type that was defined before. */
static int parse_word(parser *p, const json_t *j, const char *ns, av_node **ret)
{
    const char *word = json_string_value(j);
    int kind = kind_of_word(word);
    if (kind >= 0 && kind <= PST_AVRO_STRING)
        return new_node(p, (av_kind)kind, NULL, ret);
    char *full = full_name(word, ns);
    av_node *n = pst_map_get(&p->names, full);
    if (!n)
        n = pst_map_get(&p->names, word); /* a type of the null namespace, from inside another */
    free(full);
    if (!n)
        return fail(p, PST_EPARSE, "type \"%.80s\" is not known; named types are defined before they are used", word);
    *ret = n;
    return 0;
}

/* ---- types ------------------------------------------------------------------------------------------------------------------ */

static int parse_enum(parser *p, av_node *n, const json_t *j)
{
    const json_t *list = json_object_get(j, "symbols"), *def = json_object_get(j, "default");
    size_t count = json_array_size(list);
    int rc = 0;
    if (!json_is_array(list))
        return fail(p, PST_EPARSE, "enum %s needs \"symbols\", an array", n->name);
    n->symbols = pst_alloc(count * sizeof *n->symbols);
    for (size_t i = 0; i < count && !rc; i++) {
        const json_t *v = json_array_get(list, i);
        const char *symbol = json_string_value(v);
        if (!symbol || !name_ok(symbol, json_string_length(v), false))
            rc = fail(p, PST_EPARSE, "symbol %zu of enum %s is not a name", i, n->name);
        else if (pst_map_put(&n->index, symbol, (void *)(uintptr_t)(i + 1)))
            rc = fail(p, PST_EPARSE, "enum %s has the symbol %s twice", n->name, symbol);
        else
            n->symbols[n->n_symbols++] = pst_strdup(symbol);
        if (!rc && json_is_string(def) && !strcmp(json_string_value(def), symbol))
            n->def = (int)i;
    }
    if (!rc && def && n->def < 0 && p->strict)
        rc = fail(p, PST_EPARSE, "the default of enum %s is not one of its symbols", n->name);
    return rc;
}

static int parse_fixed(parser *p, av_node *n, const json_t *j)
{
    const json_t *size = json_object_get(j, "size");
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return fail(p, PST_EPARSE, "fixed %s needs \"size\", a whole number from 0", n->name);
    if (json_integer_value(size) > FIXED_MAX)
        return fail(p, PST_ELIMIT, "fixed %s has more than %d bytes", n->name, FIXED_MAX);
    n->size = (size_t)json_integer_value(size);
    return 0;
}

/* n->n_fields counts this field already, so that freeing the node frees it whatever fails here. Defaults are checked later, when all names are
 * known. */
static int parse_field(parser *p, av_node *n, size_t at, const json_t *j, const char *ns, int depth)
{
    static const char *const orders[] = {"ascending", "descending", "ignore"};
    av_field *f = &n->fields[at];
    const char *name;
    int rc;
    if (!json_is_object(j))
        return fail(p, PST_EPARSE, "a field must be an object");
    rc = get_name(p, j, "name", false, &name);
    if (rc < 0)
        return rc;
    if (pst_map_put(&n->index, name, (void *)(uintptr_t)(at + 1)))
        return fail(p, PST_EPARSE, "there are two fields %s", name);
    f->name = pst_strdup(name);
    f->json = j;
    size_t old = push(p, name);
    const json_t *order = json_object_get(j, "order");
    bool order_ok = !order;
    for (size_t i = 0; json_is_string(order) && i < 3; i++)
        order_ok |= !strcmp(json_string_value(order), orders[i]);
    if (!order_ok && p->strict)
        return fail(p, PST_EPARSE, "\"order\" must be ascending, descending or ignore");
    rc = get_aliases(p, j, NULL, false, &f->aliases, &f->n_aliases);
    if (rc < 0)
        return rc;
    if (!json_object_get(j, "type"))
        return fail(p, PST_EPARSE, "\"type\" is missing");
    rc = parse_type(p, json_object_get(j, "type"), ns, depth, &f->type);
    if (rc < 0)
        return rc;
    f->def = json_object_get(j, "default");
    pop(p, old);
    return 0;
}

static int parse_record(parser *p, av_node *n, const json_t *j, const char *ns, int depth)
{
    const json_t *list = json_object_get(j, "fields");
    size_t count = json_array_size(list);
    int rc = 0;
    if (!json_is_array(list))
        return fail(p, PST_EPARSE, "record %s needs \"fields\", an array", n->name);
    size_t old = p->n_path;
    if (!p->n_path)
        push(p, n->base);
    n->fields = pst_alloc(count * sizeof *n->fields);
    for (size_t i = 0; i < count && !rc; i++) {
        n->n_fields++;
        rc = parse_field(p, n, i, json_array_get(list, i), ns, depth + 1);
    }
    if (!rc)
        pop(p, old);
    return rc;
}

static int parse_named(parser *p, av_kind kind, const json_t *j, const char *ns, int depth, av_node **ret)
{
    const char *name, *own_ns = ns;
    const json_t *given = json_object_get(j, "namespace");
    int rc;
    rc = get_name(p, j, "name", true, &name);
    if (!rc)
        rc = new_node(p, kind, j, ret);
    if (rc < 0)
        return rc;
    if (given && !json_is_null(given)) {
        if (!json_is_string(given) || (json_string_length(given) && !name_ok(json_string_value(given), json_string_length(given), true)))
            return fail(p, PST_EPARSE, "the namespace of %s is not a dotted name", name);
        own_ns = json_string_value(given);
    }
    av_node *n = *ret;
    n->name = full_name(name, own_ns);
    const char *dot = strrchr(n->name, '.');
    n->base = dot ? dot + 1 : n->name;
    int clash = kind_of_word(n->name);
    if (clash >= 0 && clash <= PST_AVRO_STRING)
        return fail(p, PST_EPARSE, "%s is the name of a primitive type", n->name);
    if (pst_map_get(&p->names, n->name))
        return fail(p, PST_EPARSE, "%s is defined twice", n->name);
    pst_map_put(&p->names, n->name, n);
    char *inner = pst_strndup(n->name, dot ? (size_t)(dot - n->name) : 0); /* what names inside mean */
    rc = get_aliases(p, j, inner, true, &n->aliases, &n->n_aliases);
    if (!rc)
        rc = kind == PST_AVRO_ENUM    ? parse_enum(p, n, j)
             : kind == PST_AVRO_FIXED ? parse_fixed(p, n, j)
                                      : parse_record(p, n, j, inner, depth);
    free(inner);
    return rc;
}

static int parse_union(parser *p, const json_t *j, const char *ns, int depth, av_node **ret)
{
    size_t count = json_array_size(j);
    unsigned unnamed = 0;
    pst_map seen = {0};
    int rc = new_node(p, PST_AVRO_UNION, NULL, ret);
    if (rc < 0)
        return rc;
    av_node *n = *ret;
    if (!count && p->strict)
        return fail(p, PST_EPARSE, "a union has at least one branch");
    n->branches = pst_alloc(count * sizeof *n->branches);
    for (size_t i = 0; i < count && !rc; i++) {
        av_node *b = NULL;
        rc = parse_type(p, json_array_get(j, i), ns, depth + 1, &b);
        if (rc < 0)
            break;
        n->branches[n->n_branches++] = b;
        if (b->kind == PST_AVRO_UNION)
            rc = fail(p, PST_EPARSE, "a union holds no other union directly");
        else if (b->name ? pst_map_put(&seen, b->name, b) != NULL : (unnamed >> b->kind & 1) != 0)
            rc = fail(p, PST_EPARSE, "a union has %s twice", av_node_name(b));
        else if (!b->name)
            unnamed |= 1u << b->kind;
    }
    pst_map_done(&seen, NULL);
    return rc;
}

/* A type is a word, a list (a union) or an object; {"type": X} may nest, and an object may name a type defined before. ns: the namespace around it,
 * which gives names without dots their meaning. */
static int parse_type(parser *p, const json_t *j, const char *ns, int depth, av_node **ret)
{
    if (depth > PST_AVRO_DEPTH_MAX)
        return fail(p, PST_ELIMIT, "nested deeper than %d", PST_AVRO_DEPTH_MAX);
    if (json_is_string(j))
        return parse_word(p, j, ns, ret);
    if (json_is_array(j))
        return parse_union(p, j, ns, depth, ret);
    if (!json_is_object(j))
        return fail(p, PST_EPARSE, "a type is a word, an object or an array");
    const json_t *type = json_object_get(j, "type");
    if (!type)
        return fail(p, PST_EPARSE, "\"type\" is missing");
    if (!json_is_string(type))
        return parse_type(p, type, ns, depth + 1, ret);
    int kind = kind_of_word(json_string_value(type)), rc;
    if (kind < 0)
        return parse_word(p, type, ns, ret);
    if (kind <= PST_AVRO_STRING)
        return new_node(p, (av_kind)kind, j, ret);
    if (kind == PST_AVRO_FIXED || kind == PST_AVRO_ENUM || kind == PST_AVRO_RECORD)
        return parse_named(p, (av_kind)kind, j, ns, depth, ret);
    const char *key = kind == PST_AVRO_ARRAY ? "items" : "values";
    if (!json_object_get(j, key))
        return fail(p, PST_EPARSE, "%s needs \"%s\"", words[kind], key);
    rc = new_node(p, (av_kind)kind, j, ret);
    if (rc < 0)
        return rc;
    av_node *n = *ret;
    size_t old = push(p, kind == PST_AVRO_ARRAY ? "[]" : "{}");
    rc = parse_type(p, json_object_get(j, key), ns, depth + 1, &n->item);
    if (!rc)
        pop(p, old);
    return rc;
}

/* ---- after parsing ---------------------------------------------------------------------------------------------------------- */

/* Shortest encodings, from the leaves up: nodes are created outside in, so going backwards sees inner ones first. A name that is used
 * inside its own definition is not known yet and counts as 0 bytes and varying: a lower bound still. */
static void measure(pst_schema *s)
{
    static const size_t sizes[] = {0, 1, 1, 1, 4, 8, 1, 1};
    for (size_t k = s->n_nodes; k-- > 0;) {
        av_node *n = s->nodes[k];
        switch (n->kind) {
        case PST_AVRO_FIXED:
            n->min_size = n->size;
            n->constant = true;
            break;
        case PST_AVRO_RECORD: {
            bool constant = true;
            size_t sum = 0;
            for (size_t i = 0; i < n->n_fields; i++) {
                const av_node *t = n->fields[i].type;
                bool known = t->id > n->id;
                constant &= known && t->constant;
                sum += known ? t->min_size : 0;
                if (sum > PST_AVRO_BYTES_MAX)
                    sum = PST_AVRO_BYTES_MAX + 1; /* such a record can never be read; no overflow either */
            }
            n->min_size = sum;
            n->constant = constant && sum <= PST_AVRO_BYTES_MAX;
            break;
        }
        case PST_AVRO_ENUM:
        case PST_AVRO_ARRAY:
        case PST_AVRO_MAP:
        case PST_AVRO_UNION: n->min_size = 1; break;
        default:
            n->min_size = sizes[n->kind];
            n->constant =
                n->kind == PST_AVRO_NULL || n->kind == PST_AVRO_BOOLEAN || n->kind == PST_AVRO_FLOAT || n->kind == PST_AVRO_DOUBLE;
        }
    }
}

/* Strict: a default that does not fit is an error. Else it is forgotten: the data can be read all the same. */
static int check_defaults(parser *p)
{
    size_t steps = 2 * PST_AVRO_SCHEMA_MAX;
    for (size_t k = 0; k < p->s->n_nodes; k++) {
        av_node *n = p->s->nodes[k];
        for (size_t i = 0; i < n->n_fields; i++) {
            av_field *f = &n->fields[i];
            if (!f->def || av_node_default_fits(f->type, f->def, &steps))
                continue;
            if (p->strict) {
                pop(p, 0);
                push(p, n->base);
                push(p, f->name);
                return fail(p, PST_EPARSE, "the default does not fit type %s", av_node_name(f->type));
            }
            f->def = NULL;
        }
    }
    return 0;
}

static int parse_with(const char *text, size_t len, bool strict, pst_schema **ret_schema, pst_err *err)
{
    parser p = {.strict = strict, .err = err};
    json_error_t e;
    if (len > PST_AVRO_SCHEMA_MAX)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "avro", 0, "schema: %zu bytes are more than %d", len, PST_AVRO_SCHEMA_MAX);
    json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (!j)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "avro", 0, "schema is not JSON: %s at line %d column %d", e.text, e.line,
                           e.column);
    pst_schema *s = p.s = pst_alloc(sizeof *s);
    s->json = j;
    s->text = pst_strndup(text, len);
    int rc = parse_type(&p, j, NULL, 0, &s->root);
    if (!rc)
        measure(s);
    if (!rc)
        rc = check_defaults(&p);
    pst_map_done(&p.names, NULL);
    if (rc < 0) {
        pst_schema_free(s);
        return rc;
    }
    *ret_schema = s;
    return 0;
}

int pst_schema_parse(const char *text, size_t len, pst_schema **ret_schema, pst_err *err)
{
    return parse_with(text, len, true, ret_schema, err);
}

int pst_schema_parse_writer(const char *text, size_t len, pst_schema **ret_schema, pst_err *err)
{
    return parse_with(text, len, false, ret_schema, err);
}

static void free_list(char **list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

void pst_schema_free(pst_schema *s)
{
    if (!s)
        return;
    for (size_t k = 0; k < s->n_nodes; k++) {
        av_node *n = s->nodes[k];
        for (size_t i = 0; i < n->n_fields; i++) {
            free(n->fields[i].name);
            free_list(n->fields[i].aliases, n->fields[i].n_aliases);
        }
        free(n->fields);
        pst_map_done(&n->index, NULL);
        free_list(n->symbols, n->n_symbols);
        free_list(n->aliases, n->n_aliases);
        free(n->branches);
        free(n->name);
        free(n);
    }
    free(s->nodes);
    json_decref(s->json);
    free(s->text);
    free(s);
}

const char *pst_schema_text(const pst_schema *s)
{
    return s->text;
}

const char *pst_schema_name(const pst_schema *s)
{
    return av_node_name(s->root);
}

bool pst_avro_is_null(const json_t *type)
{
    const char *word = json_string_value(json_is_object(type) ? json_object_get(type, "type") : type);
    return word && !strcmp(word, "null");
}

const json_t *pst_avro_but_null(const json_t *type)
{
    const json_t *only = NULL;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const json_t *branch = json_array_get(type, i);
        if (pst_avro_is_null(branch))
            continue;
        if (only)
            return type;
        only = branch;
    }
    return only ? only : type;
}
