/* avro_compat.c - may a reader's schema read a writer's data? Avro 1.11 specification, "Schema Resolution"; the rules for one pair of types
 * are shared with the decode plan. Types may be recursive, so pairs under way count as readable; when such an assumption falls, what was
 * concluded from it is forgotten. Breadth is bounded too: two hostile schemas can ask for 10^8 pairs. */
#include "schemas/avro_node.h"

#include "common/base/array.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 2000000, PATH_LEN = 256, REASONS_MAX = 50 };

/* ---- rules for one pair ----------------------------------------------------------------------------------------------------- */

bool av_node_names_match(const av_node *reader, const av_node *writer)
{
    if (!strcmp(reader->base, writer->base))
        return true;
    for (size_t i = 0; i < reader->n_aliases; i++) {
        const char *dot = strrchr(reader->aliases[i], '.');
        if (!strcmp(reader->aliases[i], writer->name) || (dot && !strcmp(dot + 1, writer->base)))
            return true;
    }
    return false;
}

int av_node_find(const av_node *n, const char *name)
{
    return (int)(uintptr_t)pst_map_get(&n->index, name) - 1;
}

int av_node_find_source(const av_node *writer, const av_field *f)
{
    int at = av_node_find(writer, f->name);
    for (size_t a = 0; a < f->n_aliases && at < 0; a++)
        at = av_node_find(writer, f->aliases[a]);
    return at;
}

bool av_promotes(av_kind r, av_kind w)
{
    switch (w) {
    case PST_AVRO_INT: return r == PST_AVRO_INT || r == PST_AVRO_LONG || r == PST_AVRO_FLOAT || r == PST_AVRO_DOUBLE;
    case PST_AVRO_LONG: return r == PST_AVRO_LONG || r == PST_AVRO_FLOAT || r == PST_AVRO_DOUBLE;
    case PST_AVRO_FLOAT: return r == PST_AVRO_FLOAT || r == PST_AVRO_DOUBLE;
    case PST_AVRO_STRING:
    case PST_AVRO_BYTES: return r == PST_AVRO_STRING || r == PST_AVRO_BYTES;
    default: return r == w;
    }
}

/* ---- all pairs -------------------------------------------------------------------------------------------------------------- */

enum { UNKNOWN = 0, YES, NO };

typedef struct {
    uint64_t key; /* reader id, writer id; +1 so that 0 is free */
    uint8_t state;
} pair;

typedef struct {
    pair *table;
    size_t cap, n;
    uint64_t *log; /* keys in the order of their YES, for taking back */
    size_t n_log, cap_log;
    size_t steps;
    char path[PATH_LEN];
    size_t n_path;
    pst_buf *why; /* NULL while trying branches of a union */
    int reasons;
    bool lax; /* see av_node_may_read */
    bool too_much;
} compare;

static pair *slot(compare *c, uint64_t key)
{
    size_t i = (size_t)((key * 0x9e3779b97f4a7c15ull) >> 20) & (c->cap - 1);
    while (c->table[i].key && c->table[i].key != key)
        i = (i + 1) & (c->cap - 1);
    return &c->table[i];
}

/* At most half of the table is used, so slot() always ends. Every YES is logged: one that was found under an assumption that turned out wrong is
 * taken back in order. */
static void set_state(compare *c, uint64_t key, uint8_t state)
{
    PST_ASSERT(key); /* 0 marks a free slot */
    if (c->n * 2 >= c->cap) {
        pair *old = c->table;
        size_t old_cap = c->cap;
        c->cap = c->cap ? c->cap * 2 : 64;
        c->table = pst_alloc(c->cap * sizeof *c->table);
        for (size_t i = 0; i < old_cap; i++)
            if (old[i].key)
                *slot(c, old[i].key) = old[i];
        free(old);
    }
    pair *p = slot(c, key);
    c->n += !p->key;
    *p = (pair){key, state};
    if (state != YES)
        return;
    c->log = pst_array_room(c->log, c->n_log, &c->cap_log, sizeof *c->log);
    c->log[c->n_log++] = key;
}

__attribute__((format(printf, 2, 3))) static bool no(compare *c, const char *fmt, ...)
{
    if (!c->why || c->reasons++ >= REASONS_MAX)
        return false;
    va_list ap;
    va_start(ap, fmt);
    if (c->why->len)
        pst_buf_addc(c->why, '\n');
    if (c->n_path)
        pst_buf_printf(c->why, "%s: ", c->path);
    pst_buf_vprintf(c->why, fmt, ap);
    va_end(ap);
    return false;
}

static size_t push(compare *c, const char *name)
{
    size_t old = c->n_path;
    int n = snprintf(c->path + old, sizeof c->path - old, "%s%s", old && *name != '[' && *name != '{' ? "." : "", name);
    c->n_path = old + (size_t)n < sizeof c->path ? old + (size_t)n : sizeof c->path - 1;
    return old;
}

static void pop(compare *c, size_t old)
{
    c->n_path = old;
    c->path[old] = 0;
}

static bool can_read(compare *c, const av_node *r, const av_node *w, int depth);

static bool quietly(compare *c, const av_node *r, const av_node *w, int depth)
{
    pst_buf *why = c->why;
    c->why = NULL;
    bool yes = can_read(c, r, w, depth);
    c->why = why;
    return yes;
}

static bool enums(compare *c, const av_node *r, const av_node *w)
{
    if (r->def >= 0 || c->lax)
        return true;
    c->steps += w->n_symbols;
    for (size_t i = 0; i < w->n_symbols; i++)
        if (av_node_find(r, w->symbols[i]) < 0)
            return no(c, "enum %s: the writer's symbol %s is missing in the reader, which has no default symbol", r->name, w->symbols[i]);
    return true;
}

static bool records(compare *c, const av_node *r, const av_node *w, int depth)
{
    bool yes = true;
    for (size_t i = 0; i < r->n_fields; i++) {
        const av_field *f = &r->fields[i];
        c->steps += f->n_aliases;
        if (c->steps > STEPS_MAX)
            return (c->too_much = true, false);
        size_t old = push(c, f->name);
        int at = av_node_find_source(w, f);
        if (at >= 0)
            yes &= can_read(c, f->type, w->fields[at].type, depth + 1);
        else if (!f->def)
            yes = no(c, "the reader's field has no default and the writer does not have it");
        pop(c, old);
        if (!yes && !c->why)
            return false;
    }
    return yes;
}

static bool same_kind(compare *c, const av_node *r, const av_node *w, int depth)
{
    bool yes;
    size_t old;
    switch (r->kind) {
    case PST_AVRO_FIXED:
    case PST_AVRO_ENUM:
    case PST_AVRO_RECORD:
        if (!av_node_names_match(r, w))
            return no(c, "the reader's %s is named %s, the writer's %s", av_word(r->kind), r->name, w->name);
        if (r->kind == PST_AVRO_FIXED)
            return r->size == w->size ? true
                                      : no(c, "fixed %s has %zu bytes for the reader, %zu for the writer", r->name, r->size, w->size);
        return r->kind == PST_AVRO_ENUM ? enums(c, r, w) : records(c, r, w, depth);
    case PST_AVRO_ARRAY:
    case PST_AVRO_MAP:
        old = push(c, r->kind == PST_AVRO_ARRAY ? "[]" : "{}");
        yes = can_read(c, r->item, w->item, depth + 1);
        pop(c, old);
        return yes;
    default: return true;
    }
}

static bool compare_pair(compare *c, const av_node *r, const av_node *w, int depth)
{
    if (w->kind == PST_AVRO_UNION && c->lax) {
        for (size_t i = 0; i < w->n_branches; i++)
            if (can_read(c, r, w->branches[i], depth + 1))
                return true;
        return false;
    }
    if (w->kind == PST_AVRO_UNION) {
        bool yes = true;
        for (size_t i = 0; i < w->n_branches && (yes || c->why); i++)
            yes &= can_read(c, r, w->branches[i], depth + 1);
        return yes;
    }
    if (r->kind == PST_AVRO_UNION) {
        for (size_t i = 0; i < r->n_branches; i++)
            if (quietly(c, r->branches[i], w, depth + 1))
                return true;
        /* The reason inside helps most when one branch was plainly meant. */
        for (size_t i = 0; i < r->n_branches && c->why; i++)
            if (r->branches[i]->kind == w->kind && w->name && av_node_names_match(r->branches[i], w))
                return can_read(c, r->branches[i], w, depth + 1);
        return no(c, "no branch of the reader's union takes the writer's %s", av_node_name(w));
    }
    if (r->kind == w->kind)
        return same_kind(c, r, w, depth);
    return av_promotes(r->kind, w->kind) ? true : no(c, "the reader wants %s, the writer has %s", av_node_name(r), av_node_name(w));
}

static bool can_read(compare *c, const av_node *r, const av_node *w, int depth)
{
    uint64_t key = ((uint64_t)r->id << 32 | w->id) + 1;
    uint8_t state = c->cap ? slot(c, key)->state : UNKNOWN;
    if (state == YES)
        return true;
    if (state == NO && !c->why)
        return false;
    /* Depth: pairs may alternate through recursive types far longer than either schema is deep; that many levels are no honest schema. */
    if (++c->steps > STEPS_MAX || depth > 8 * PST_AVRO_DEPTH_MAX) {
        c->too_much = true;
        return false;
    }
    size_t mark = c->n_log;
    set_state(c, key, YES);
    bool yes = compare_pair(c, r, w, depth);
    if (!yes) {
        while (c->n_log > mark)
            slot(c, c->log[--c->n_log])->state = UNKNOWN;
        set_state(c, key, NO);
    }
    return yes;
}

static void done(compare *c)
{
    free(c->table);
    free(c->log);
}

int pst_schema_can_read(const pst_schema *reader, const pst_schema *writer, pst_buf *why)
{
    compare c = {.why = why};
    bool yes = can_read(&c, reader->root, writer->root, 0);
    if (c.too_much) {
        c.reasons = 0;
        yes = no(&c, "the schemas are too large or too deep to be compared");
    } else if (!yes && c.reasons > REASONS_MAX && why) {
        pst_buf_printf(why, "\nand %d more", c.reasons - REASONS_MAX);
    }
    done(&c);
    return yes;
}

bool av_node_may_read(const av_node *reader, const av_node *writer)
{
    compare c = {.lax = true};
    bool yes = can_read(&c, reader, writer, 0);
    done(&c);
    return yes;
}

/* Exact kind and full name first, then names by the lesser rules if the whole type can be read, then promotions in the reader's order. */
int av_node_match_branch(const av_node *reader_union, const av_node *writer)
{
    const av_node *u = reader_union;
    for (size_t i = 0; i < u->n_branches; i++)
        if (u->branches[i]->kind == writer->kind && (!writer->name || !strcmp(u->branches[i]->name, writer->name)))
            return (int)i;
    for (size_t i = 0; i < u->n_branches && writer->name; i++)
        if (u->branches[i]->kind == writer->kind && av_node_names_match(u->branches[i], writer) && av_node_may_read(u->branches[i], writer))
            return (int)i;
    for (size_t i = 0; i < u->n_branches && !writer->name; i++)
        if (av_promotes(u->branches[i]->kind, writer->kind))
            return (int)i;
    return -1;
}

/* ---- defaults --------------------------------------------------------------------------------------------------------------- */

/* Text whose code points are all below 256 stands for bytes; returns how many, or -1. */
static long byte_text_len(const json_t *j)
{
    const uint8_t *s = (const uint8_t *)json_string_value(j);
    size_t len = json_string_length(j);
    long n = 0;
    for (size_t i = 0; i < len; i++, n++)
        if (s[i] >= 0x80) {
            if (s[i] > 0xc3)
                return -1;
            i++; /* jansson gives valid UTF-8 only */
        }
    return n;
}

static bool fits_number(const json_t *j)
{
    const char *s = json_string_value(j);
    return json_is_number(j) || (s && (!strcmp(s, "NaN") || !strcmp(s, "Infinity") || !strcmp(s, "-Infinity")));
}

static bool fits(const av_node *n, const json_t *j, int depth, size_t *steps);

static bool fits_record(const av_node *n, const json_t *j, int depth, size_t *steps)
{
    for (size_t i = 0; i < n->n_fields; i++) {
        const json_t *v = json_object_get(j, n->fields[i].name);
        if (v ? !fits(n->fields[i].type, v, depth + 1, steps) : !n->fields[i].def)
            return false;
    }
    return json_is_object(j);
}

/* Bounded in depth and in steps: a schema that refers to itself and a default made for it would otherwise never end. */
static bool fits(const av_node *n, const json_t *j, int depth, size_t *steps)
{
    const char *key;
    json_t *v;
    size_t at;
    if (depth > PST_AVRO_DEPTH_MAX || !*steps)
        return false;
    --*steps;
    switch (n->kind) {
    case PST_AVRO_NULL: return json_is_null(j);
    case PST_AVRO_BOOLEAN: return json_is_boolean(j);
    case PST_AVRO_INT: return json_is_integer(j) && json_integer_value(j) >= INT32_MIN && json_integer_value(j) <= INT32_MAX;
    case PST_AVRO_LONG: return json_is_integer(j);
    case PST_AVRO_FLOAT:
    case PST_AVRO_DOUBLE: return fits_number(j);
    case PST_AVRO_STRING: return json_is_string(j);
    case PST_AVRO_BYTES: return json_is_string(j) && byte_text_len(j) >= 0;
    case PST_AVRO_FIXED: return json_is_string(j) && byte_text_len(j) == (long)n->size;
    case PST_AVRO_ENUM: return json_is_string(j) && av_node_find(n, json_string_value(j)) >= 0;
    case PST_AVRO_ARRAY: json_array_foreach(j, at, v) if (!fits(n->item, v, depth + 1, steps)) return false; return json_is_array(j);
    case PST_AVRO_MAP:
        json_object_foreach((json_t *)(uintptr_t)j, key, v) if (!fits(n->item, v, depth + 1, steps)) return false;
        return json_is_object(j);
    case PST_AVRO_RECORD: return fits_record(n, j, depth, steps);
    case PST_AVRO_UNION:
        for (size_t i = 0; i < n->n_branches; i++)
            if (fits(n->branches[i], j, depth + 1, steps))
                return true;
        return false;
    }
    return false;
}

bool av_node_default_fits(const av_node *n, const json_t *json, size_t *steps)
{
    return fits(n, json, 0, steps);
}
