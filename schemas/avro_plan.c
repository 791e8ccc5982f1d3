/* avro_plan.c - the parts of compiling that struct plans and column plans share: emitting, skipping, unions; and plans as text. */
#include "schemas/avro_plan.h"

#include "common/base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void av_program_done(av_program *p)
{
    for (size_t i = 0; i < p->n_owned; i++)
        free(p->owned[i]);
    free(p->owned);
    free(p->ops);
    free(p->places);
    free(p->starts);
    memset(p, 0, sizeof *p);
}

void *av_build_own(av_builder *b, void *memory)
{
    av_program *p = b->p;
    p->owned = pst_array_room(p->owned, p->n_owned, &p->cap_owned, sizeof *p->owned);
    p->owned[p->n_owned++] = memory;
    return memory;
}

int av_build_fail(av_builder *b, int code, const char *fmt, ...)
{
    char text[360];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!b->rc)
        b->rc = pst_err_set(b->err, code, PST_CLASS_DATA, "avro", 0, "%s: %s", b->place, text);
    return b->rc;
}

av_op *av_build_op(av_builder *b, av_op_code code, uint32_t a, uint32_t bb)
{
    static _Thread_local av_op nowhere;
    av_program *p = b->p;
    if (p->n == PST_AVRO_OPS_MAX)
        av_build_fail(b, PST_ELIMIT, "the schema needs a plan of more than %u steps", PST_AVRO_OPS_MAX);
    if (b->rc)
        return &nowhere;
    p->ops = pst_array_room(p->ops, p->n, &p->cap_ops, sizeof *p->ops);
    p->places = pst_array_room(p->places, p->n, &p->cap_places, sizeof *p->places);
    /* Neighbours mostly share their place; comparing with the last keeps one copy. */
    const char *last = p->n ? p->places[p->n - 1] : NULL;
    p->places[p->n] = last && !strcmp(last, b->place) ? last : av_build_own(b, pst_strdup(b->place));
    p->ops[p->n] = (av_op){.code = code, .a = a, .b = bb};
    return &p->ops[p->n++];
}

void av_build_label(av_builder *b)
{
    b->barrier = b->p->n;
}

size_t av_build_push(av_builder *b, const char *name)
{
    size_t old = b->n_place;
    int n = snprintf(b->place + old, sizeof b->place - old, "%s%s", old ? "." : "", name);
    b->n_place = old + (size_t)n < sizeof b->place ? old + (size_t)n : sizeof b->place - 1;
    return old;
}

void av_build_pop(av_builder *b, size_t old)
{
    PST_ASSERT(old < sizeof b->place);
    b->n_place = old;
    b->place[old] = 0;
}

void av_build_stop(av_builder *b, const char *fmt, ...)
{
    pst_buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    pst_buf_vprintf(&text, fmt, ap);
    va_end(ap);
    av_build_op(b, PST_OP_FAIL, 0, 0)->ptr = av_build_own(b, pst_buf_steal(&text));
}

uint32_t av_build_mark(av_builder *b)
{
    if (b->marks == PST_AVRO_DEPTH_MAX) {
        av_build_fail(b, PST_ELIMIT, "nested deeper than %d", PST_AVRO_DEPTH_MAX);
        return 0;
    }
    av_build_op(b, PST_OP_MARK, b->marks, 0);
    av_build_label(b); /* code before and after a mark stays apart */
    return b->marks++;
}

uint32_t av_build_sub(av_builder *b, const av_node *writer, const av_node *reader, const pst_type *target)
{
    for (size_t i = 0; i < b->n_subs; i++)
        if (b->subs[i].writer == writer && b->subs[i].reader == reader && b->subs[i].target == target)
            return (uint32_t)i;
    b->subs = pst_array_room(b->subs, b->n_subs, &b->cap_subs, sizeof *b->subs);
    b->subs[b->n_subs] = (av_sub){writer, reader, target};
    return (uint32_t)b->n_subs++;
}

void av_build_union(av_builder *b, const av_node *writer, void (*branch)(av_builder *b, const av_node *branch, void *arg), void *arg)
{
    size_t n = writer->n_branches, at = b->p->n;
    uint32_t *targets = av_build_own(b, pst_alloc(n * sizeof *targets));
    size_t *jumps = pst_alloc(n * sizeof *jumps), n_jumps = 0;
    av_build_op(b, PST_OP_UNION, 0, (uint32_t)n)->ptr = targets;
    for (size_t i = 0; i < n && !b->rc; i++) {
        size_t start = b->p->n;
        av_build_label(b);
        targets[i] = (uint32_t)start;
        branch(b, writer->branches[i], arg);
        if (b->p->n == start) { /* nothing to do: straight to the end */
            targets[i] = UINT32_MAX;
        } else if (i + 1 < n && !b->rc) {
            jumps[n_jumps++] = b->p->n;
            av_build_op(b, PST_OP_JUMP, 0, 0);
        }
    }
    if (!b->rc) {
        for (size_t k = 0; k < n_jumps; k++) {
            PST_ASSERT(b->p->ops[jumps[k]].code == PST_OP_JUMP);
            b->p->ops[jumps[k]].c = (uint32_t)b->p->n;
        }
        for (size_t i = 0; i < n; i++)
            if (targets[i] == UINT32_MAX)
                targets[i] = (uint32_t)b->p->n;
        PST_ASSERT(b->p->ops[at].code == PST_OP_UNION);
    }
    av_build_label(b);
    free(jumps);
}

/* ---- skipping --------------------------------------------------------------------------------------------------------------- */

static void skip_constant(av_builder *b, size_t n)
{
    av_program *p = b->p;
    if (!n)
        return;
    if (p->n > b->barrier && p->ops[p->n - 1].code == PST_OP_SKIP && n < SIZE_MAX / 2 - p->ops[p->n - 1].n)
        p->ops[p->n - 1].n += n;
    else
        av_build_op(b, PST_OP_SKIP, 0, 0)->n = n;
}

static void skip_branch(av_builder *b, const av_node *branch, void *arg)
{
    av_build_skip(b, branch);
}

void av_build_skip(av_builder *b, const av_node *w)
{
    if (w->constant) {
        skip_constant(b, w->min_size);
        return;
    }
    switch (w->kind) {
    case PST_AVRO_INT:
    case PST_AVRO_LONG:
    case PST_AVRO_ENUM: av_build_op(b, PST_OP_SKIP_VARINT, 0, 0); return;
    case PST_AVRO_BYTES:
    case PST_AVRO_STRING: av_build_op(b, w->kind == PST_AVRO_STRING && b->looks ? PST_OP_SKIP_TEXT : PST_OP_SKIP_BYTES, 0, 0); return;
    case PST_AVRO_UNION: av_build_union(b, w, skip_branch, NULL); return;
    case PST_AVRO_ARRAY:
    case PST_AVRO_MAP: {
        size_t at = b->p->n;
        av_build_op(b, w->kind == PST_AVRO_ARRAY ? PST_OP_SKIP_ARRAY : PST_OP_SKIP_MAP, 0, 0)->n =
            w->item->constant ? w->item->min_size : SIZE_MAX;
        if (!w->item->constant) {
            av_build_label(b);
            av_build_skip(b, w->item);
            av_build_op(b, PST_OP_END, 0, 0);
        }
        av_build_label(b);
        if (!b->rc)
            b->p->ops[at].c = (uint32_t)b->p->n;
        return;
    }
    default: /* a record of varying size: a program of its own, since it may be recursive */ {
        uint32_t sub = av_build_sub(b, w, NULL, NULL);
        av_build_op(b, PST_OP_CALL, 0, sub);
    }
    }
}

void av_build_skip_sub(av_builder *b, const av_node *w)
{
    for (size_t i = 0; i < w->n_fields && !b->rc; i++) {
        size_t old = av_build_push(b, w->fields[i].name);
        av_build_skip(b, w->fields[i].type);
        av_build_pop(b, old);
    }
    av_build_op(b, PST_OP_END, 0, 0);
}

/* ---- text ------------------------------------------------------------------------------------------------------------------- */

/* For tests and `explain`: names as in PST_OPS, and only the operands that an op uses, since the others are not initialised by meaning. */
char *av_program_text(const av_program *p)
{
    static const char *const names[] = {
#define X(name, doc) #name,
        PST_OPS(X)
#undef X
    };
    pst_buf out = {0};
    for (size_t i = 0; i < p->n; i++) {
        const av_op *o = &p->ops[i];
        for (size_t k = 0; k < p->n_starts; k++)
            if (p->starts[k] == i)
                pst_buf_printf(&out, "program %zu:\n", k);
        pst_buf_printf(&out, "%5zu %-12s a=%u b=%u c=%u", i, names[o->code], o->a, o->b, o->c);
        if (o->code == PST_OP_UNION) {
            const uint32_t *targets = o->ptr;
            for (uint32_t k = 0; k < o->b; k++)
                pst_buf_printf(&out, "%s%u", k ? "," : " to ", targets[k]);
        } else if (o->code == PST_OP_COL_KEYS) {
            const av_map_key *keys = o->ptr;
            for (uint32_t k = 0; k <= o->b; k++)
                pst_buf_printf(&out, "%s%s at %u", k ? ", " : " ", k < o->b ? keys[k].key : "others", keys[k].start);
        } else if (o->code == PST_OP_FAIL) {
            pst_buf_printf(&out, " \"%s\"", (const char *)o->ptr);
        } else if (o->code != PST_OP_DEFAULT && o->code != PST_OP_ENUM && o->code != PST_OP_COL_SYMBOL) {
            pst_buf_printf(&out, " n=%zu", o->n);
        }
        pst_buf_printf(&out, "  %s\n", p->places[i]);
    }
    return pst_buf_steal(&out);
}
