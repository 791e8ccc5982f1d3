/* seen.c - what a run shows of its steps when it is asked to: shapes, bytes, time, and the operations that the shapes mean (cost.c). Called
 * by exec.c around a step; shape_observe.c makes such runs. */
#include "engine/seen.h"

#include "common/base/clock.h"
#include "engine/cost.h"

#include <string.h>

static double bytes_of(const pst_tensor *t)
{
    return t ? (double)eng_count(t) * (double)pst_dtype_size(t->dtype) : 0;
}

void eng_seen_before(eng_step *s)
{
    eng_seen *e = s->seen;
    if (!e)
        return;
    e->n_in = 0;
    for (int i = 0; i < s->n_in && i < ENG_SEEN_INPUTS; i++) {
        bool tensor = s->in[i] && s->in[i]->kind == ENG_VAL_TENSOR;
        e->in[e->n_in++] = tensor ? s->in[i]->t : (pst_tensor){.rank = -1};
        if (!tensor)
            e->in[i].dims[0] = 0;
    }
    e->started_ns = (uint64_t)pst_mono_ns();
}

void eng_seen_after(const pst_plan *p, eng_step *s)
{
    eng_seen *e = s->seen;
    if (!e)
        return;
    e->ns += (uint64_t)pst_mono_ns() - e->started_ns;
    e->runs++;
    const pst_tensor *y = NULL;
    bool views = true;
    for (int i = 0; i < s->n_out; i++) {
        const eng_val *v = s->out[i];
        if (v->kind != ENG_VAL_TENSOR)
            continue;
        y = y ? y : &v->t;
        bool view = false; /* the same bytes under another shape, or another name; not written over an input that dies */
        for (int q = 0; q < e->n_in; q++)
            view |= e->in[q].rank >= 0 && e->in[q].data == v->t.data && s->node->op->cost == ENG_COST_VIEW;
        views &= view;
        e->bytes += view ? 0 : bytes_of(&v->t);
        e->out_bytes += view ? 0 : bytes_of(&v->t);
    }
    for (int i = 0; i < e->n_in && !views; i++)
        e->bytes += e->in[i].rank >= 0 ? bytes_of(&e->in[i]) : 0;
    e->flops += eng_flops(p, s->node, e->in, e->n_in, y);
    e->has_out = y != NULL;
    if (y)
        e->out = *y;
    e->is_seq = s->n_out && s->out[0]->kind == ENG_VAL_SEQ;
}
