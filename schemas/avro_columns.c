/* avro_columns.c - compiles (writer schema, wanted fields) into a plan that fills numbers, texts and raw spans of user records. One pass
 * over the record in the writer's order; a field wanted more than once is read again from a mark. Everything not wanted is skipped, but
 * read to the end: a truncated record is a bad record. */
#include "common/base/array.h"
#include "schemas/avro_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const pst_want *want;
    uint32_t index, slot; /* of the want; its first number */
    const char *rest;     /* the part of the path from the record being compiled on */
} wanted;

struct pst_columns {
    av_program program;
    size_t n_wants, n_slots;
    bool any_text;
    bool *absent;
    char **schemas; /* RAW: schema text of the field's type */
};

typedef struct {
    pst_columns *c;
    const pst_schema *writer;
    wanted *list; /* of the record being compiled */
    size_t n;
    const wanted *one;   /* of the field being compiled */
    const av_node **raw; /* RAW: node found, by want */
    bool fits;
} columns_arg;

static void record(av_builder *b, const av_node *w, columns_arg *arg);
static void inside(av_builder *b, const av_node *w, void *arg);

static const char *kind_word(pst_want_kind k)
{
    static const char *const words[] = {[PST_WANT_NUMBER] = "a number",
                                        [PST_WANT_TEXT] = "text",
                                        [PST_WANT_WORD] = "text, a number or a boolean",
                                        [PST_WANT_RAW] = "bytes"};
    return words[k];
}

static bool is_number(av_kind k)
{
    return k == PST_AVRO_BOOLEAN || k == PST_AVRO_INT || k == PST_AVRO_LONG || k == PST_AVRO_FLOAT || k == PST_AVRO_DOUBLE;
}

/* bytes or fixed with the logical type decimal: its scale; -1 = another type. Scales that the specification forbids make it plain bytes. */
static int decimal_scale(const av_node *w)
{
    const char *logical = json_string_value(json_object_get(w->json, "logicalType"));
    if ((w->kind != PST_AVRO_BYTES && w->kind != PST_AVRO_FIXED) || !logical || strcmp(logical, "decimal") != 0)
        return -1;
    json_int_t scale = json_integer_value(json_object_get(w->json, "scale")),
               precision = json_integer_value(json_object_get(w->json, "precision"));
    return scale >= 0 && scale <= precision && precision <= 1000 ? (int)scale : -1;
}

static void misfit(av_builder *b, const av_node *w, const columns_arg *arg)
{
    av_build_stop(b, "%s is wanted here, this record has %s", kind_word(arg->one->want->kind), av_node_name(w));
}

/* A number to the double at byte `a` of the object; neighbours of one kind melt into one operation. */
static void number(av_builder *b, av_kind kind, uint32_t a, uint32_t want)
{
    av_program *p = b->p;
    av_op *last = p->n > b->barrier ? &p->ops[p->n - 1] : NULL;
    if (kind == PST_AVRO_DOUBLE && last && last->code == PST_OP_COL_DOUBLES && last->a + 8 * last->n == a && last->b + last->n == want) {
        last->n++;
        return;
    }
    av_op *o = av_build_op(b,
                           kind == PST_AVRO_BOOLEAN ? PST_OP_COL_BOOL
                           : kind == PST_AVRO_INT   ? PST_OP_COL_INT
                           : kind == PST_AVRO_LONG  ? PST_OP_COL_LONG
                           : kind == PST_AVRO_FLOAT ? PST_OP_COL_FLOATS
                                                    : PST_OP_COL_DOUBLES,
                           a, want);
    o->n = 1;
}

static void decimal(av_builder *b, const av_node *w, uint32_t a, uint32_t want)
{
    av_op *o = av_build_op(b, PST_OP_COL_DECIMAL, a, want);
    o->c = (uint32_t)decimal_scale(w);
    o->n = w->kind == PST_AVRO_FIXED ? w->size : SIZE_MAX;
}

static void item_branch(av_builder *b, const av_node *w, void *arg)
{
    columns_arg *c = arg;
    if (is_number(w->kind)) {
        c->fits = true;
        number(b, w->kind, 0, c->one->index);
    } else if (decimal_scale(w) >= 0) {
        c->fits = true;
        decimal(b, w, 0, c->one->index);
    } else if (w->kind == PST_AVRO_NULL) {
        av_build_op(b, PST_OP_COL_NULL, 0, 0);
    } else {
        misfit(b, w, c);
    }
}

static void array_of_numbers(av_builder *b, const av_node *w, columns_arg *c)
{
    size_t at = b->p->n;
    av_build_op(b, PST_OP_COL_ITEMS, c->one->slot, c->one->index)->n = c->one->want->slots;
    av_build_label(b);
    if (w->item->kind == PST_AVRO_UNION)
        av_build_union(b, w->item, item_branch, c);
    else
        item_branch(b, w->item, c);
    av_build_op(b, PST_OP_END, 0, 0);
    av_build_label(b);
    if (!b->rc)
        b->p->ops[at].c = (uint32_t)b->p->n;
}

static void text(av_builder *b, const av_node *w, columns_arg *c)
{
    if (w->kind == PST_AVRO_STRING || w->kind == PST_AVRO_BYTES) {
        av_build_op(b, PST_OP_COL_TEXT, w->kind == PST_AVRO_STRING, c->one->index);
    } else if (w->kind == PST_AVRO_FIXED) {
        av_build_op(b, PST_OP_COL_FIXED, 0, c->one->index)->n = w->size;
    } else if (w->kind == PST_AVRO_ENUM) {
        pst_slice *symbols = av_build_own(b, pst_alloc(w->n_symbols * sizeof *symbols));
        for (size_t i = 0; i < w->n_symbols; i++) /* a copy: the plan may outlive the schema */
            symbols[i] = (pst_slice){av_build_own(b, pst_strdup(w->symbols[i])), strlen(w->symbols[i])};
        av_op *o = av_build_op(b, PST_OP_COL_SYMBOL, 0, c->one->index);
        o->c = (uint32_t)w->n_symbols;
        o->ptr = symbols;
    } else if (w->kind == PST_AVRO_BOOLEAN && c->one->want->kind == PST_WANT_WORD) {
        av_build_op(b, PST_OP_COL_TRUTH, 0, c->one->index);
    } else {
        misfit(b, w, c);
        return;
    }
    c->fits = true;
}

/* Words are texts, but for numbers: these are looked up as such. */
static bool is_text_want(const pst_want *want, const av_node *w)
{
    bool number = decimal_scale(w) >= 0 || (is_number(w->kind) && w->kind != PST_AVRO_BOOLEAN);
    return want->kind == PST_WANT_TEXT || (want->kind == PST_WANT_WORD && !number);
}

/* A float or double that may be null, in either order: the branch with the number; -1 = something else. */
static int maybe_number(const av_node *w)
{
    if (w->kind != PST_AVRO_UNION || w->n_branches != 2)
        return -1;
    for (int i = 0; i < 2; i++) {
        av_kind number = w->branches[i]->kind;
        if (w->branches[1 - i]->kind == PST_AVRO_NULL && (number == PST_AVRO_FLOAT || number == PST_AVRO_DOUBLE))
            return i;
    }
    return -1;
}

static void maybe(av_builder *b, const av_node *w, columns_arg *c, int branch)
{
    av_op *o = av_build_op(b, w->branches[branch]->kind == PST_AVRO_FLOAT ? PST_OP_COL_MAYBE_FLOATS : PST_OP_COL_MAYBE_DOUBLES,
                           c->one->slot * (uint32_t)sizeof(double), c->one->index);
    o->c = (uint32_t)branch;
    o->n = 1;
    c->fits = true;
}

/* The value of one want; null leaves it missing. */
static void leaf(av_builder *b, const av_node *w, void *arg)
{
    columns_arg *c = arg;
    int number_at = maybe_number(w);
    if (number_at >= 0 && c->one->want->kind == PST_WANT_NUMBER && c->one->want->slots == 1) {
        maybe(b, w, c, number_at);
    } else if (w->kind == PST_AVRO_UNION) {
        av_build_union(b, w, leaf, c);
    } else if (w->kind == PST_AVRO_NULL) {
        return;
    } else if (is_text_want(c->one->want, w)) {
        text(b, w, c);
    } else if (w->kind == PST_AVRO_ARRAY) {
        array_of_numbers(b, w, c);
    } else if (is_number(w->kind) && c->one->want->slots == 1) {
        c->fits = true;
        number(b, w->kind, c->one->slot * (uint32_t)sizeof(double), c->one->index);
    } else if (decimal_scale(w) >= 0 && c->one->want->slots == 1) {
        c->fits = true;
        decimal(b, w, c->one->slot * (uint32_t)sizeof(double), c->one->index);
    } else {
        misfit(b, w, c);
    }
}

static void raw(av_builder *b, const av_node *w, columns_arg *c)
{
    const wanted *one = c->one;
    uint32_t mark = av_build_mark(b);
    b->looks = true;
    av_build_skip(b, w);
    b->looks = false;
    av_build_op(b, PST_OP_COL_RAW, mark, one->index);
    b->marks--;
    if (c->raw[one->index] && c->raw[one->index] != w)
        av_build_fail(b, PST_EINCOMPAT, "the field has different types in the branches of a union; it cannot be passed through");
    c->raw[one->index] = w;
}

static void want_one(av_builder *b, const av_node *w, columns_arg *c, const wanted *one)
{
    c->one = one;
    c->c->absent[one->index] = false;
    if (one->want->kind == PST_WANT_RAW) {
        raw(b, w, c);
        return;
    }
    c->fits = false;
    leaf(b, w, c);
    if (!c->fits && w->kind != PST_AVRO_NULL) {
        pst_buf type = {0};
        av_node_text(c->writer, w, &type);
        av_build_fail(b, PST_EINCOMPAT, "field %s: %s is wanted%s, but its type is %.150s", one->want->path, kind_word(one->want->kind),
                      one->want->slots > 1 ? " in several slots" : "", type.data);
        pst_buf_done(&type);
    }
}

static bool holds_records(const av_node *w)
{
    bool yes = w->kind == PST_AVRO_RECORD || w->kind == PST_AVRO_MAP;
    for (size_t i = 0; w->kind == PST_AVRO_UNION && i < w->n_branches; i++)
        yes |= w->branches[i]->kind == PST_AVRO_RECORD || w->branches[i]->kind == PST_AVRO_MAP;
    return yes;
}

/* The wants of one key of a map, leaves first: the value itself, and what is inside it. */
static void map_value(av_builder *b, const av_node *item, columns_arg *c, size_t leaves)
{
    size_t left = leaves + (c->n > leaves);
    bool marked = left > 1;
    uint32_t mark = marked ? av_build_mark(b) : 0;
    for (size_t k = 0; k < leaves && !b->rc; k++) {
        want_one(b, item, c, &c->list[k]);
        if (--left)
            av_build_op(b, PST_OP_REWIND, mark, 0);
    }
    if (c->n > leaves && !b->rc) {
        columns_arg below = *c;
        below.list += leaves;
        below.n -= leaves;
        inside(b, item, &below);
    }
    if (marked)
        b->marks--;
}

/* "tags.rack": the key is the whole rest of the path, dots and all, unless the values have fields themselves. */
static void map_keys(av_builder *b, const av_node *w, columns_arg *c)
{
    bool nested = holds_records(w->item);
    av_map_key *keys = av_build_own(b, pst_alloc((c->n + 1) * sizeof *keys));
    bool *done = pst_alloc(c->n + 1);
    wanted *list = pst_alloc((c->n + 1) * sizeof *list);
    size_t at = b->p->n, n = 0;
    av_build_op(b, PST_OP_COL_KEYS, 0, 0)->ptr = keys;
    for (size_t i = 0; i < c->n && !b->rc; i++) {
        const char *rest = c->list[i].rest, *dot = nested ? strchr(rest, '.') : NULL;
        size_t len = dot ? (size_t)(dot - rest) : strlen(rest);
        columns_arg below = *c;
        if (done[i])
            continue;
        below.list = list;
        below.n = 0;
        size_t leaves = 0;
        for (int pass = 0; pass < 2; pass++)
            for (size_t k = i; k < c->n; k++) {
                const char *r = c->list[k].rest;
                if (strncmp(r, rest, len) != 0 || r[len] != (pass ? '.' : 0) || (pass && !nested))
                    continue;
                done[k] = true;
                list[below.n] = c->list[k];
                if (pass)
                    list[below.n].rest += len + 1; /* the path goes on behind the key */
                else
                    leaves++;
                below.n++;
            }
        keys[n] = (av_map_key){av_build_own(b, pst_strndup(rest, len)), len, (uint32_t)b->p->n};
        size_t old = av_build_push(b, keys[n].key);
        n++;
        av_build_label(b);
        map_value(b, w->item, &below, leaves);
        av_build_op(b, PST_OP_END, 0, 0);
        if (!b->rc)
            av_build_pop(b, old);
    }
    keys[n].start = (uint32_t)b->p->n;
    av_build_label(b);
    av_build_skip(b, w->item);
    av_build_op(b, PST_OP_END, 0, 0);
    av_build_label(b);
    if (!b->rc) {
        b->p->ops[at].b = (uint32_t)n;
        b->p->ops[at].c = (uint32_t)b->p->n;
    }
    free(done);
    free(list);
}

/* The wants below a field: through a record, a map, or the record branches of a union; null leaves them missing. */
static void inside(av_builder *b, const av_node *w, void *arg)
{
    columns_arg *c = arg;
    if (w->kind == PST_AVRO_UNION) {
        av_build_union(b, w, inside, c);
    } else if (w->kind == PST_AVRO_RECORD) {
        c->fits = true;
        record(b, w, c);
    } else if (w->kind == PST_AVRO_MAP) {
        c->fits = true;
        map_keys(b, w, c);
    } else if (w->kind != PST_AVRO_NULL) {
        av_build_stop(b, "a record is wanted here for field %s, this is %s", c->list[0].want->path, av_node_name(w));
    }
}

static int field_by_name(const av_node *w, const char *name, size_t len)
{
    char *exact = pst_strndup(name, len);
    int at = av_node_find(w, exact);
    free(exact);
    if (at >= 0)
        return at;
    for (size_t i = 0; i < w->n_fields; i++) /* the name it had before the writer renamed it */
        for (size_t a = 0; a < w->fields[i].n_aliases; a++)
            if (strlen(w->fields[i].aliases[a]) == len && !memcmp(w->fields[i].aliases[a], name, len))
                return (int)i;
    return -1;
}

/* Where the wants of a record go: field index (-1 = absent here), and whether the path ends there. */
typedef struct {
    int *field;
    bool *whole;
    wanted *scratch; /* the wants of one field */
} routes;

/* The wants of field i: leaves at the front of scratch, then those with more path behind them. */
static void wants_of(const columns_arg *c, const routes *r, int i, size_t *ret_leaves, size_t *ret_inner)
{
    *ret_leaves = *ret_inner = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t k = 0; k < c->n; k++) {
            if (r->field[k] != i || r->whole[k] != (pass == 0))
                continue;
            wanted *to = &r->scratch[*ret_leaves + *ret_inner];
            *to = c->list[k];
            if (!r->whole[k])
                to->rest = strchr(to->rest, '.') + 1;
            ++*(r->whole[k] ? ret_leaves : ret_inner);
        }
}

static void field(av_builder *b, const av_node *w, size_t i, columns_arg *c, const routes *r)
{
    size_t leaves, inner;
    const av_node *type = w->fields[i].type;
    wants_of(c, r, (int)i, &leaves, &inner);
    size_t left = leaves + (inner > 0);
    if (!left) {
        av_build_skip(b, type);
        return;
    }
    uint32_t mark = left > 1 ? av_build_mark(b) : 0;
    bool marked = left > 1;
    for (size_t k = 0; k < leaves && !b->rc; k++) {
        want_one(b, type, c, &r->scratch[k]);
        if (--left)
            av_build_op(b, PST_OP_REWIND, mark, 0);
    }
    if (inner && !b->rc) {
        columns_arg below = *c;
        below.list = r->scratch + leaves;
        below.n = inner;
        below.fits = false;
        inside(b, type, &below);
        if (!below.fits)
            av_build_fail(b, PST_EINCOMPAT, "field %s: %s is %s, which has no fields", below.list[0].want->path, w->fields[i].name,
                          av_node_name(type));
    }
    if (marked)
        b->marks--;
}

static void record(av_builder *b, const av_node *w, columns_arg *c)
{
    routes r = {pst_alloc(c->n * sizeof *r.field), pst_alloc(c->n * sizeof *r.whole), pst_alloc(c->n * sizeof *r.scratch)};
    for (size_t k = 0; k < c->n; k++) {
        const char *rest = c->list[k].rest, *dot = strchr(rest, '.');
        r.field[k] = field_by_name(w, rest, strlen(rest));
        r.whole[k] = !dot || r.field[k] >= 0;
        if (!r.whole[k])
            r.field[k] = field_by_name(w, rest, (size_t)(dot - rest));
    }
    for (size_t i = 0; i < w->n_fields && !b->rc; i++) {
        size_t old = av_build_push(b, w->fields[i].name);
        field(b, w, i, c, &r);
        if (!b->rc)
            av_build_pop(b, old);
    }
    free(r.field);
    free(r.whole);
    free(r.scratch);
}

/* Ops of one kind for neighbours, in the data and in the target: each is told how many follow, so that the first of them does the work of all. Whoever
 * jumps between them finds what is left from there on. */
static void count_rows(av_program *p)
{
    for (size_t i = p->n; i-- > 1;) {
        const av_op *next = &p->ops[i];
        av_op *o = &p->ops[i - 1];
        bool counts = o->code == PST_OP_COL_FLOATS || o->code == PST_OP_COL_MAYBE_FLOATS || o->code == PST_OP_COL_MAYBE_DOUBLES;
        if (counts && next->code == o->code && next->c == o->c && next->a == o->a + sizeof(double) && next->b == o->b + 1)
            o->n = next->n + 1;
    }
}

static void compile(av_builder *b, columns_arg *c)
{
    size_t cap = 0;
    av_build_sub(b, NULL, NULL, NULL); /* 0: the record; the others skip */
    for (size_t i = 0; i < b->n_subs && !b->rc; i++) {
        av_sub s = b->subs[i];
        b->p->starts = pst_array_room(b->p->starts, i, &cap, sizeof *b->p->starts);
        b->p->starts[i] = (uint32_t)b->p->n;
        b->p->n_starts = i + 1;
        av_build_label(b);
        av_build_pop(b, 0);
        av_build_push(b, i ? s.writer->base : pst_schema_name(c->writer));
        if (i) {
            av_build_skip_sub(b, s.writer);
            continue;
        }
        c->fits = false;
        if (c->n)
            inside(b, c->writer->root, c);
        else
            av_build_skip(b, c->writer->root);
        if (c->n && !c->fits)
            av_build_fail(b, PST_EINCOMPAT, "the data is %s, which has no fields", pst_schema_name(c->writer));
        av_build_op(b, PST_OP_END, 0, 0);
    }
}

/* Slots are laid out in the order of the wants, text after text by want number. Everything the program points to is owned by it (own, paths), so
 * the caller's wants may end. */
int pst_columns_new(const pst_schema *writer, const pst_want *wants, size_t n_wants, pst_columns **ret_columns, pst_err *err)
{
    pst_columns *c = pst_alloc(sizeof *c);
    av_builder b = {.p = &c->program, .err = err};
    columns_arg arg = {.c = c, .writer = writer, .n = n_wants};
    pst_want *own = av_build_own(&b, pst_alloc(n_wants * sizeof *own));
    arg.list = pst_alloc(n_wants * sizeof *arg.list);
    arg.raw = pst_alloc(n_wants * sizeof *arg.raw);
    c->n_wants = n_wants;
    c->absent = pst_alloc(n_wants * sizeof *c->absent);
    c->schemas = pst_alloc(n_wants * sizeof *c->schemas);
    int rc = 0;
    for (size_t i = 0; i < n_wants && !rc; i++) {
        own[i] = wants[i];
        own[i].path = av_build_own(&b, pst_strdup(wants[i].path));
        if (wants[i].kind == PST_WANT_NUMBER && (!wants[i].slots || wants[i].slots > PST_AVRO_ITEMS_MAX))
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "avro", 0, "field %s: %u slots; 1 to %d are possible", wants[i].path,
                             wants[i].slots, PST_AVRO_ITEMS_MAX);
        if (wants[i].kind != PST_WANT_NUMBER)
            own[i].slots = wants[i].kind == PST_WANT_WORD;
        arg.list[i] = (wanted){&own[i], (uint32_t)i, (uint32_t)c->n_slots, own[i].path};
        c->n_slots += own[i].slots;
        if (c->n_slots > UINT32_MAX / sizeof(double))
            rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_FATAL, "avro", 0, "more than %zu numbers of one record",
                             (size_t)UINT32_MAX / sizeof(double));
        c->any_text |= wants[i].kind != PST_WANT_NUMBER;
        c->absent[i] = true;
    }
    if (!rc) {
        compile(&b, &arg);
        count_rows(&c->program);
        rc = b.rc;
    }
    for (size_t i = 0; i < n_wants && !rc; i++)
        if (arg.raw[i]) {
            pst_buf text_of_type = {0};
            av_node_text(writer, arg.raw[i], &text_of_type);
            c->schemas[i] = pst_buf_steal(&text_of_type);
        }
    free(b.subs);
    free(arg.list);
    free(arg.raw);
    if (rc < 0) {
        pst_columns_free(c);
        return rc;
    }
    *ret_columns = c;
    return 0;
}

void pst_columns_free(pst_columns *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_wants; i++)
        free(c->schemas[i]);
    free(c->schemas);
    free(c->absent);
    av_program_done(&c->program);
    free(c);
}

bool pst_columns_absent(const pst_columns *c, size_t want)
{
    return c->absent[want];
}

const char *pst_columns_schema(const pst_columns *c, size_t want)
{
    return c->schemas[want];
}

int pst_columns_run(const pst_columns *c, const void *bytes, size_t len, double *ret_numbers, uint8_t *ret_missing, pst_slice *ret_texts,
                    pst_err *err)
{
    av_vm vm; /* not zeroed whole: the marks are written before they are read */
    vm.p = &c->program;
    vm.heap = 0;
    vm.numbers = ret_numbers;
    vm.missing = ret_missing;
    vm.texts = ret_texts;
    vm.placed = false;
    int rc = av_in_init(&vm.in, bytes, len, err);
    if (rc < 0)
        return rc;
    memset(ret_missing, 1, c->n_wants);
    if (c->any_text)
        memset(ret_texts, 0, c->n_wants * sizeof *ret_texts);
    return av_vm_run(&vm, ret_numbers);
}

char *pst_columns_explain(const pst_columns *c)
{
    return av_program_text(&c->program);
}
