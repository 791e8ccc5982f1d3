/* mlflow_filter.c - a reader by hand rather than a grammar: the language is one comparison after the other, and its errors must name the place for people
 * who write filters in strings. Text that is asked for comes from whoever may ask: length, clauses and values have limits, and LIKE is matched without
 * backtracking over more than one % (linear in pattern times text). */
#include "producers/gateway/mlflow_filter.h"

#include "common/base/array.h"
#include "common/base/buf.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef enum { EQ, NE, LT, LE, GT, GE, LIKE, ILIKE, IN, NOT_IN, IS_NULL, IS_NOT_NULL } op;

typedef struct clause {
    gw_filter_of of;
    char *key;
    op op;
    bool number; /* compares numbers */
    double n;
    char **texts; /* one, or those of IN */
    size_t n_texts, cap_texts;
} clause;

struct gw_filter {
    clause *at;
    size_t n, cap;
};

typedef struct reader {
    const char *text, *p;
    const gw_attribute *attributes;
    pst_err *err;
} reader;

static int bad(reader *r, const char *what)
{
    return pst_err_set(r->err, PST_EPARSE, PST_CLASS_DATA, "filter", 0, "%s, at byte %zu: \"%.60s\"", what, (size_t)(r->p - r->text), r->p);
}

static void blanks(reader *r)
{
    r->p += strspn(r->p, " \t\r\n");
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("_-./:@", c)) || (unsigned char)c >= 0x80;
}

/* The word, in any case, and nothing that would go on with it. */
static bool word(reader *r, const char *w)
{
    size_t n = strlen(w);
    blanks(r);
    if (strncasecmp(r->p, w, n) != 0 || is_word(r->p[n]))
        return false;
    r->p += n;
    return true;
}

/* Between quotes; two of them are one. */
static int quoted(reader *r, char **ret)
{
    pst_buf b = {0};
    char q = *r->p++;
    while (*r->p && (*r->p != q || r->p[1] == q)) {
        r->p += *r->p == q;
        pst_buf_addc(&b, *r->p++);
    }
    if (*r->p != q) {
        pst_buf_done(&b);
        return bad(r, "a quote is not closed");
    }
    r->p++;
    *ret = pst_buf_steal(&b);
    return 0;
}

static bool entity(const char *name, size_t n, gw_filter_of *ret)
{
    static const struct {
        const char *name;
        gw_filter_of of;
    } all[] = {{"metrics", GW_METRIC},       {"metric", GW_METRIC},       {"params", GW_PARAM},   {"param", GW_PARAM},
               {"parameters", GW_PARAM},     {"parameter", GW_PARAM},     {"tags", GW_TAG},       {"tag", GW_TAG},
               {"attributes", GW_ATTRIBUTE}, {"attribute", GW_ATTRIBUTE}, {"attr", GW_ATTRIBUTE}, {"run", GW_ATTRIBUTE}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strlen(all[i].name) == n && !strncasecmp(all[i].name, name, n)) {
            *ret = all[i].of;
            return true;
        }
    return false;
}

static const gw_attribute *attribute(const reader *r, const char *key)
{
    for (const gw_attribute *a = r->attributes; a->name; a++)
        if (!strcasecmp(a->name, key))
            return a;
    return NULL;
}

/* metrics.loss, tags."a b", `start_time`; an attribute's name becomes the table's. */
static int identifier(reader *r, gw_filter_of *ret_of, char **ret_key, bool *ret_number)
{
    char *key = NULL;
    gw_filter_of of = GW_ATTRIBUTE;
    blanks(r);
    const char *dot = r->p + strcspn(r->p, ". \t\r\n=<>!'\"`");
    if (*dot == '.' && entity(r->p, (size_t)(dot - r->p), &of))
        r->p = dot + 1;
    if (*r->p == '"' || *r->p == '`') {
        if (quoted(r, &key) < 0)
            return PST_EPARSE;
    } else {
        size_t n = 0;
        while (is_word(r->p[n]))
            n++;
        key = pst_strndup(r->p, n);
        r->p += n;
    }
    const gw_attribute *a = of == GW_ATTRIBUTE ? attribute(r, key) : NULL;
    if (!*key || (of == GW_ATTRIBUTE && !a)) {
        pst_buf b = {0};
        pst_buf_adds(&b, !*key ? "a name is missing: metrics.NAME, params.NAME, tags.NAME, or one of" : "no such attribute; there are");
        for (const gw_attribute *i = r->attributes; i->name; i++)
            pst_buf_printf(&b, " %s", i->name);
        free(key);
        int rc = bad(r, b.data);
        pst_buf_done(&b);
        return rc;
    }
    if (a) {
        free(key);
        key = pst_strdup(a->name);
    }
    *ret_of = of;
    *ret_key = key;
    *ret_number = of == GW_METRIC || (a && a->number);
    return 0;
}

static bool operator_of(reader *r, op *ret)
{
    static const struct {
        const char *sign;
        op op;
    } signs[] = {{"!=", NE}, {"<>", NE}, {"<=", LE}, {">=", GE}, {"==", EQ}, {"=", EQ}, {"<", LT}, {">", GT}};
    blanks(r);
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (!strncmp(r->p, signs[i].sign, strlen(signs[i].sign))) {
            r->p += strlen(signs[i].sign);
            *ret = signs[i].op;
            return true;
        }
    if (word(r, "LIKE"))
        *ret = LIKE;
    else if (word(r, "ILIKE"))
        *ret = ILIKE;
    else if (word(r, "IN"))
        *ret = IN;
    else if (word(r, "NOT") && word(r, "IN"))
        *ret = NOT_IN;
    else if (word(r, "IS"))
        *ret = word(r, "NOT") ? IS_NOT_NULL : IS_NULL;
    else
        return false;
    return (*ret != IS_NULL && *ret != IS_NOT_NULL) || word(r, "NULL");
}

static int text_value(reader *r, clause *c)
{
    blanks(r);
    if (*r->p != '\'' && *r->p != '"')
        return bad(r, "a text in quotes is wanted here");
    c->texts = pst_array_room(c->texts, c->n_texts, &c->cap_texts, sizeof *c->texts);
    c->texts[c->n_texts] = NULL;
    int rc = quoted(r, &c->texts[c->n_texts]);
    c->n_texts += !rc;
    return rc;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list(reader *r, clause *c)
{
    blanks(r);
    if (*r->p != '(')
        return bad(r, "IN wants a list: ('a', 'b')");
    do {
        r->p++;
        int rc = c->n_texts < GW_FILTER_VALUES_MAX ? text_value(r, c) : bad(r, "a list has 1,000 values at most");
        if (rc < 0)
            return rc;
        blanks(r);
    } while (*r->p == ',');
    if (*r->p++ != ')') {
        r->p--;
        return bad(r, "the list is not closed");
    }
    qsort(c->texts, c->n_texts, sizeof *c->texts, by_text); /* each run is looked up in it */
    return 0;
}

static int number_value(reader *r, clause *c)
{
    char *end = NULL, *inside = NULL;
    blanks(r);
    if (*r->p == '\'' || *r->p == '"') { /* MLflow takes none; but people write them of times, and nothing else can be meant */
        if (quoted(r, &inside) < 0)
            return PST_EPARSE;
        c->n = strtod(inside, &end);
        bool ok = end != inside && !*end;
        free(inside);
        return ok ? 0 : bad(r, "a number is wanted before this");
    }
    c->n = strtod(r->p, &end);
    if (end == r->p || is_word(*end))
        return bad(r, "a number is wanted here");
    r->p = end;
    return 0;
}

static int comparison(reader *r, clause *c)
{
    int rc = identifier(r, &c->of, &c->key, &c->number);
    if (rc < 0)
        return rc;
    if (!operator_of(r, &c->op))
        return bad(r, "a comparison is wanted here: = != < <= > >= LIKE ILIKE IN, NOT IN, IS NULL, IS NOT NULL");
    if (c->op == IS_NULL || c->op == IS_NOT_NULL)
        return 0;
    if (c->number)
        return c->op <= GE ? number_value(r, c) : bad(r, "a number is compared by = != < <= > >=");
    if (c->op == IN || c->op == NOT_IN)
        return list(r, c);
    rc = text_value(r, c);
    if (!rc && (c->op == LIKE || c->op == ILIKE) && strlen(c->texts[0]) > GW_FILTER_PATTERN_MAX)
        rc = bad(r, "a pattern of LIKE has 500 bytes at most; it ends before this");
    return rc;
}

int gw_filter_parse(const char *text, const gw_attribute *attributes, gw_filter **ret_filter, pst_err *err)
{
    reader r = {text ? text : "", text ? text : "", attributes, err};
    gw_filter *f = pst_alloc(sizeof *f);
    int rc = strlen(r.text) > GW_FILTER_TEXT_MAX ? bad(&r, "a filter has 32 KiB at most") : 0;
    blanks(&r);
    while (!rc && *r.p) {
        f->at = pst_array_room(f->at, f->n, &f->cap, sizeof *f->at);
        f->at[f->n] = (clause){0};
        rc = comparison(&r, &f->at[f->n++]);
        blanks(&r);
        bool more = !rc && *r.p;
        if (more && !word(&r, "AND"))
            rc = bad(&r, "AND is wanted here; there is no OR");
        else if (more && !r.p[strspn(r.p, " \t\r\n")])
            rc = bad(&r, "a comparison is wanted behind AND");
        else if (!rc && f->n == GW_FILTER_CLAUSES_MAX)
            rc = bad(&r, "a filter has 99 comparisons at most");
        blanks(&r);
    }
    if (rc < 0)
        gw_filter_free(f);
    else
        *ret_filter = f;
    return rc;
}

void gw_filter_free(gw_filter *f)
{
    for (size_t i = 0; f && i < f->n; i++) {
        for (size_t k = 0; k < f->at[i].n_texts; k++)
            free(f->at[i].texts[k]);
        free(f->at[i].texts);
        free(f->at[i].key);
    }
    free(f ? f->at : NULL);
    free(f);
}

static bool same(char a, char b, bool fold)
{
    return fold ? tolower((unsigned char)a) == tolower((unsigned char)b) : a == b;
}

/* SQL's: % any run, _ any one. The last % is all that is ever gone back to. */
static bool like(const char *text, const char *pattern, bool fold)
{
    const char *star = NULL, *from = NULL;
    while (*text) {
        if (*pattern == '%') {
            star = pattern++;
            from = text;
        } else if (*pattern && (*pattern == '_' || same(*pattern, *text, fold))) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++from;
        } else
            return false;
    }
    return !pattern[strspn(pattern, "%")];
}

static bool by_order(op o, int order)
{
    switch (o) {
    case EQ: return order == 0;
    case NE: return order != 0;
    case LT: return order < 0;
    case LE: return order <= 0;
    case GT: return order > 0;
    default: return order >= 0;
    }
}

static bool holds_number(const clause *c, double v)
{
    if (isnan(v) || isnan(c->n)) /* as SQL: NaN is nothing that could be compared, but it is different */
        return c->op == NE;
    return by_order(c->op, (v > c->n) - (v < c->n));
}

static bool holds(const clause *c, gw_value v)
{
    if (c->op == IS_NULL || c->op == IS_NOT_NULL)
        return v.there == (c->op == IS_NOT_NULL);
    if (!v.there)
        return false;
    if (c->number)
        return holds_number(c, v.number);
    switch (c->op) {
    case LIKE:
    case ILIKE: return like(v.text, c->texts[0], c->op == ILIKE);
    case IN:
    case NOT_IN: return (bsearch(&v.text, c->texts, c->n_texts, sizeof *c->texts, by_text) != NULL) == (c->op == IN);
    default: return by_order(c->op, strcmp(v.text, c->texts[0]));
    }
}

bool gw_filter_matches(const gw_filter *f, gw_value_of value_of, const void *thing)
{
    for (size_t i = 0; i < f->n; i++)
        if (!holds(&f->at[i], value_of(thing, f->at[i].of, f->at[i].key)))
            return false;
    return true;
}

int gw_order_parse(const char *text, const gw_attribute *attributes, gw_order *ret_order, pst_err *err)
{
    reader r = {text, text, attributes, err};
    gw_order o = {0};
    bool number;
    if (strlen(text) > 1000)
        return bad(&r, "an order has 1,000 bytes at most");
    int rc = identifier(&r, &o.of, &o.key, &number);
    if (rc < 0)
        return rc;
    if (word(&r, "DESC"))
        o.descending = true;
    else
        word(&r, "ASC");
    blanks(&r);
    if (*r.p) {
        gw_order_done(&o);
        return bad(&r, "ASC or DESC is wanted here, and nothing behind it");
    }
    *ret_order = o;
    return 0;
}

void gw_order_done(gw_order *o)
{
    free(o->key);
    o->key = NULL;
}

int gw_order_compare(const gw_order *o, gw_value_of value_of, const void *a, const void *b)
{
    gw_value x = value_of(a, o->of, o->key), y = value_of(b, o->of, o->key);
    bool no_x = !x.there || (x.is_number && isnan(x.number)), no_y = !y.there || (y.is_number && isnan(y.number));
    if (no_x || no_y)
        return no_x - no_y;
    int order = x.is_number ? (x.number > y.number) - (x.number < y.number) : strcmp(x.text, y.text);
    return o->descending ? -order : order;
}
