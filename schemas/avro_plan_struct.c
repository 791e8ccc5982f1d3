/* avro_plan_struct.c - compiles (writer schema, event struct) into a decode plan. The reader's schema is the event's own; it and the
 * descriptor were made from the same file, so fields pair by place. */
#include "common/base/array.h"
#include "schemas/avro_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pst_decode_plan {
    av_program program;
    const pst_type *target;
};

typedef struct { /* what a value goes to */
    const av_node *reader;
    const pst_field_type *field;
} goal;

static void value(av_builder *b, const av_node *w, const av_node *r, const pst_field_type *f);

static void value_branch(av_builder *b, const av_node *branch, void *arg)
{
    const goal *g = arg;
    if (av_node_may_read(g->reader, branch))
        value(b, branch, g->reader, g->field);
    else
        av_build_stop(b, "the writer's %s cannot be read as %s", av_node_name(branch), av_node_name(g->reader));
}

static void scalar(av_builder *b, av_kind w, const pst_field_type *f)
{
    av_op_code code = PST_OP_BOOL;
    switch (f->kind) {
    case PST_KIND_INT: code = PST_OP_INT; break;
    case PST_KIND_LONG: code = w == PST_AVRO_INT ? PST_OP_INT_LONG : PST_OP_LONG; break;
    case PST_KIND_FLOAT:
        code = PST_OP_FLOAT;
        if (w == PST_AVRO_INT)
            code = PST_OP_INT_FLOAT;
        else if (w == PST_AVRO_LONG)
            code = PST_OP_LONG_FLOAT;
        break;
    case PST_KIND_DOUBLE:
        code = w == PST_AVRO_INT     ? PST_OP_INT_DOUBLE
               : w == PST_AVRO_LONG  ? PST_OP_LONG_DOUBLE
               : w == PST_AVRO_FLOAT ? PST_OP_FLOAT_DOUBLE
                                     : PST_OP_DOUBLE;
        break;
    case PST_KIND_STRING: code = PST_OP_STRING; break;
    case PST_KIND_BYTES: code = PST_OP_BYTES; break;
    default: break;
    }
    av_build_op(b, code, f->offset, 0);
}

static void enumeration(av_builder *b, const av_node *w, const av_node *r, const pst_field_type *f)
{
    int32_t *values = av_build_own(b, pst_alloc(w->n_symbols * sizeof *values));
    for (size_t i = 0; i < w->n_symbols; i++) {
        int v = pst_enum_parse(f->enumeration, w->symbols[i]);
        values[i] = v >= 0 ? v : r->def;
    }
    av_build_op(b, PST_OP_ENUM, f->offset, (uint32_t)w->n_symbols)->ptr = values;
}

static void items(av_builder *b, const av_node *w, const av_node *r, const pst_field_type *f)
{
    bool map = f->shape == PST_SHAPE_MAP;
    pst_field_type item = *f;
    size_t at = b->p->n;
    item.shape = PST_SHAPE_ONE;
    item.offset = map ? (uint32_t)offsetof(pst_str_pair, value) : 0;
    _Static_assert(offsetof(pst_str_pair, value) == offsetof(pst_dbl_pair, value), "one offset for both pairs");
    av_build_op(b, map ? PST_OP_MAP : PST_OP_ARRAY, f->offset, f->aux)->n = pst_field_item_size(f);
    av_build_label(b);
    value(b, w->item, r->item, &item);
    av_build_op(b, PST_OP_END, 0, 0);
    av_build_label(b);
    if (!b->rc)
        b->p->ops[at].c = (uint32_t)b->p->n;
}

/* w and r fit each other and are no unions. */
static void plain(av_builder *b, const av_node *w, const av_node *r, const pst_field_type *f, bool nullable)
{
    if (nullable && pst_kind_flagged(f->kind))
        av_build_op(b, PST_OP_FLAG, f->aux, 0);
    if (r->kind == PST_AVRO_ARRAY || r->kind == PST_AVRO_MAP) {
        items(b, w, r, f);
    } else if (f->kind == PST_KIND_ENUM) {
        enumeration(b, w, r, f);
    } else if (f->kind == PST_KIND_RECORD) {
        uint32_t sub = av_build_sub(b, w, r, f->record);
        av_build_op(b, nullable ? PST_OP_CALL_NEW : PST_OP_CALL, f->offset, sub)->n = f->record->size;
    } else {
        scalar(b, w->kind, f);
    }
}

/* Of w something can be read as r (av_node_may_read). */
static void value(av_builder *b, const av_node *w, const av_node *r, const pst_field_type *f)
{
    if (b->rc)
        return;
    if (w->kind == PST_AVRO_UNION) {
        goal g = {r, f};
        av_build_union(b, w, value_branch, &g);
        return;
    }
    if (r->kind != PST_AVRO_UNION) {
        plain(b, w, r, f, false);
        return;
    }
    int at = av_node_match_branch(r, w);
    if (at < 0 || !av_node_may_read(r->branches[at], w))
        av_build_stop(b, "the writer's %s fits no branch of the union", av_node_name(w));
    else if (r->branches[at]->kind != PST_AVRO_NULL)
        plain(b, w, r->branches[at], f, true);
}

typedef struct {
    const void *data;
    size_t len;
} constant; /* as run_default() reads it */

/* The reader's default becomes a few constant bytes that are decoded like data. What zeroed memory says already costs nothing. */
static void fill_default(av_builder *b, const av_field *rf, const pst_field_type *f)
{
    pst_buf bytes = {0};
    if (!rf->def) {
        av_build_fail(b, PST_EINCOMPAT, "the field has no default and the writer does not have it");
        return;
    }
    if (f->shape == PST_SHAPE_NULLABLE ? json_is_null(rf->def)
        : f->shape != PST_SHAPE_ONE    ? !json_array_size(rf->def) && !json_object_size(rf->def)
                                       : json_is_number(rf->def) && json_number_value(rf->def) == 0)
        return;
    int rc = av_node_write_default(rf, &bytes, b->rc ? NULL : b->err);
    if (rc < 0) {
        b->rc = rc;
    } else {
        constant *c = av_build_own(b, pst_alloc(sizeof *c));
        c->len = bytes.len;
        c->data = av_build_own(b, pst_buf_steal(&bytes));
        size_t at = b->p->n;
        av_build_op(b, PST_OP_DEFAULT, 0, 0)->ptr = c;
        av_build_label(b);
        value(b, rf->type, rf->type, f);
        av_build_op(b, PST_OP_END, 0, 0);
        av_build_label(b);
        if (!b->rc)
            b->p->ops[at].c = (uint32_t)b->p->n;
    }
    pst_buf_done(&bytes);
}

/* One writer field into the reader's fields it fills: one, or none (skip), or several where an alias repeats a living name. */
static void feed(av_builder *b, const av_node *w, size_t i, const av_node *r, const int *sources, const pst_type *t)
{
    const av_node *from = w->fields[i].type;
    size_t left = 0;
    for (size_t k = 0; k < r->n_fields; k++)
        left += sources[k] == (int)i;
    if (!left) {
        av_build_skip(b, from);
        return;
    }
    uint32_t mark = left > 1 ? av_build_mark(b) : 0; /* never given back: programs call each other */
    for (size_t k = 0; k < r->n_fields && !b->rc; k++) {
        if (sources[k] != (int)i)
            continue;
        size_t old = av_build_push(b, t->fields[k].name);
        if (av_node_may_read(r->fields[k].type, from))
            value(b, from, r->fields[k].type, &t->fields[k]);
        else
            av_build_fail(b, PST_EINCOMPAT, "%s is wanted, the writer has %s", av_node_name(r->fields[k].type), av_node_name(from));
        if (--left)
            av_build_op(b, PST_OP_REWIND, mark, 0);
        av_build_pop(b, old);
    }
}

static void record(av_builder *b, const av_node *w, const av_node *r, const pst_type *t)
{
    int *sources = pst_alloc(r->n_fields * sizeof *sources);
    PST_ASSERT(r->n_fields == t->n_fields);
    for (size_t k = 0; k < r->n_fields; k++)
        sources[k] = av_node_find_source(w, &r->fields[k]);
    for (size_t i = 0; i < w->n_fields && !b->rc; i++)
        feed(b, w, i, r, sources, t);
    for (size_t k = 0; k < r->n_fields && !b->rc; k++) {
        size_t old = av_build_push(b, t->fields[k].name);
        if (sources[k] < 0)
            fill_default(b, &r->fields[k], &t->fields[k]);
        if (!b->rc)
            av_build_pop(b, old);
    }
    av_build_op(b, PST_OP_END, 0, 0);
    free(sources);
}

/* Compiles program 0 by root(), then every program that is called, until none is open. */
static void compile(av_builder *b, const av_node *w, const av_node *r, const pst_type *t)
{
    pst_field_type self = {.name = t->name, .kind = PST_KIND_RECORD, .shape = PST_SHAPE_ONE, .record = t};
    size_t cap = 0;
    av_build_sub(b, NULL, NULL, NULL); /* 0: the entry */
    for (size_t i = 0; i < b->n_subs && !b->rc; i++) {
        av_sub s = b->subs[i];
        b->p->starts = pst_array_room(b->p->starts, i, &cap, sizeof *b->p->starts);
        b->p->starts[i] = (uint32_t)b->p->n;
        b->p->n_starts = i + 1;
        av_build_label(b);
        av_build_pop(b, 0);
        av_build_push(b, i == 0 ? t->name : s.target ? s.target->name : s.writer->base);
        if (i == 0) {
            value(b, w, r, &self);
            av_build_op(b, PST_OP_END, 0, 0);
        } else if (s.target) {
            record(b, s.writer, s.reader, s.target);
        } else {
            av_build_skip_sub(b, s.writer);
        }
    }
}

/* Whether the schemas fit is decided once, as a whole, and the error then names every difference; after that compiling fails by limits only. */
int pst_decode_plan_new(const pst_schema *writer, const pst_type *target, pst_decode_plan **ret_plan, pst_err *err)
{
    pst_schema *reader = NULL;
    pst_buf why = {0};
    int rc = pst_schema_parse(target->schema, strlen(target->schema), &reader, err);
    if (rc < 0)
        return rc;
    pst_decode_plan *p = pst_alloc(sizeof *p);
    av_builder b = {.p = &p->program, .err = err};
    p->target = target;
    if (!av_node_may_read(reader->root, writer->root)) {
        pst_schema_can_read(reader, writer, &why);
        for (char *s = why.data; s && *s; s++)
            if (*s == '\n')
                *s = ';';
        rc = pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "avro", 0, "%s cannot be read from schema %s: %s", target->name,
                         pst_schema_name(writer), why.data ? why.data : "the types differ");
        pst_buf_done(&why);
    } else {
        compile(&b, writer->root, reader->root, target);
        rc = b.rc;
    }
    free(b.subs);
    pst_schema_free(reader);
    if (rc < 0) {
        pst_decode_plan_free(p);
        return rc;
    }
    *ret_plan = p;
    return 0;
}

void pst_decode_plan_free(pst_decode_plan *p)
{
    if (!p)
        return;
    av_program_done(&p->program);
    free(p);
}

int pst_decode_run(const pst_decode_plan *p, const void *bytes, size_t len, void *ret_event, pst_err *err)
{
    av_vm vm; /* not zeroed whole: the marks are written before they are read */
    vm.p = &p->program;
    vm.heap = PST_AVRO_HEAP_MAX;
    vm.placed = false;
    memset(ret_event, 0, p->target->size);
    int rc = av_in_init(&vm.in, bytes, len, err);
    if (!rc)
        rc = av_vm_run(&vm, ret_event);
    if (rc < 0)
        pst_event_clear(p->target, ret_event);
    return rc;
}

char *pst_decode_plan_explain(const pst_decode_plan *p)
{
    return av_program_text(&p->program);
}
