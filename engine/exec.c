/* exec.c - running a plan: the step loop, half types, nested graphs. */
#include "engine/plan.h"
#include "engine/seen.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NESTING_MAX 64

/* ---- running ---- */

void eng_scratch_free(pst_plan *p, eng_blk *until)
{
    while (p->scratch != until) {
        eng_blk *b = p->scratch;
        PST_ASSERT(b); /* until was asked for before what goes now */
        p->scratch = b->next;
        eng_blk_unref(p, b);
    }
}

/* Half types compute in float32: inputs are widened into values that live for the step, float32 results rounded to the half type. */
static int run_half(pst_plan *p, const eng_step *s, eng_op_ctx *c)
{
    pst_dtype half = (pst_dtype)0;
    for (int i = 0; i < s->n_in && !half; i++)
        if (s->in[i] && s->in[i]->kind == ENG_VAL_TENSOR && (s->in[i]->t.dtype == PST_F16 || s->in[i]->t.dtype == PST_BF16))
            half = s->in[i]->t.dtype;
    if (!half)
        return s->run(c);
    eng_val *wide = eng_op_scratch(c, (size_t)s->n_in * (sizeof *wide + sizeof(eng_val *)));
    if (!wide)
        return PST_ELIMIT;
    eng_val **in = (eng_val **)(wide + s->n_in);
    for (int i = 0; i < s->n_in; i++) {
        in[i] = s->in[i];
        if (!in[i] || in[i]->kind != ENG_VAL_TENSOR || (in[i]->t.dtype != PST_F16 && in[i]->t.dtype != PST_BF16))
            continue;
        int64_t n = eng_count(&in[i]->t);
        wide[i] = (eng_val){.kind = ENG_VAL_TENSOR, .t = in[i]->t};
        wide[i].t.dtype = PST_F32;
        wide[i].t.data = eng_op_scratch(c, (size_t)n * 4);
        if (!wide[i].t.data)
            return PST_ELIMIT;
        eng_convert(PST_F32, wide[i].t.data, in[i]->t.dtype, in[i]->t.data, n, true);
        in[i] = &wide[i];
    }
    c->in = in;
    int rc = s->run(c);
    for (int i = 0; i < s->n_out && rc == 0; i++) {
        eng_val *o = s->out[i];
        if (o->kind != ENG_VAL_TENSOR || o->t.dtype != PST_F32)
            continue;
        int64_t n = eng_count(&o->t);
        PST_ASSERT(n >= 0);
        eng_blk *b = eng_blk_new(p, (size_t)n * 2 + 64, c->err);
        if (!b)
            return PST_ELIMIT;
        eng_convert(half, b->data, PST_F32, o->t.data, n, true);
        eng_blk_unref(p, o->blk);
        o->blk = b;
        o->t.data = b->data;
        o->t.dtype = half;
    }
    return rc;
}

int eng_step_run(pst_plan *p, const eng_step *s, pst_err *err)
{
    if (!p->steps_left)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0,
                           "the model ran %" PRIu64 " steps in one evaluation without an end (steps_max)", eng_plan_steps_max(p));
    p->steps_left--;
    int rc = eng_watch_check(&p->watch, err);
    if (rc < 0)
        return rc;
    eng_step *at = (eng_step *)s; /* only its state and what is said of it change */
    eng_op_ctx c = {.node = s->node,
                    .plan = p,
                    .in = s->in,
                    .n_in = s->n_in,
                    .out = s->out,
                    .wanted = s->wanted,
                    .n_out = s->n_out,
                    .state = &at->state,
                    .dies = s->dies,
                    .err = err};
    eng_blk *mark = p->scratch;
    if (p->observing)
        eng_seen_before(at);
    rc = s->half ? run_half(p, s, &c) : s->run(&c);
    eng_scratch_free(p, mark);
    if (c.kernel)
        at->kernel = c.kernel;
    if (c.note)
        at->note = c.note;
    if (p->observing)
        eng_seen_after(p, at);
    if (rc == 0 && p->text_over)
        rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0,
                         "the model's values and texts need more than %zu bytes (arena_bytes_max)", p->pool.bytes_max);
    return rc;
}

int eng_prog_run_part(pst_plan *p, const eng_prog *g, size_t from, size_t to, pst_err *err)
{
    if (p->depth >= NESTING_MAX)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "graphs run nested deeper than %d", NESTING_MAX);
    p->depth++;
    int rc = 0;
    for (size_t i = from; i < to && rc == 0; i++) {
        const eng_step *s = &g->steps[i];
        rc = eng_step_run(p, s, err);
        for (int k = 0; k < s->n_kill; k++)
            eng_val_clear(p, &p->vals[s->kill[k]]);
        for (int k = 0; k < s->n_out; k++)
            eng_val_clear(p, &s->dummy[k]);
    }
    p->depth--;
    return rc;
}

int eng_prog_run(pst_plan *p, const eng_prog *g, pst_err *err)
{
    return eng_prog_run_part(p, g, 0, g->n_steps, err);
}

void eng_prog_clear(pst_plan *p, const eng_prog *g)
{
    for (int i = 0; i < g->n_locals; i++)
        if (!p->folded[g->locals[i]])
            eng_val_clear(p, &p->vals[g->locals[i]]);
}

int eng_run_graph(eng_op_ctx *c, const eng_graph *g, eng_val *in, int n_in, eng_val *out, int n_out)
{
    pst_plan *p = c->plan;
    const eng_prog *prog = NULL;
    for (size_t i = 0; i < p->n_progs; i++)
        if (p->progs[i].graph == g)
            prog = &p->progs[i];
    if (!prog || n_in > g->n_in || n_out > g->n_out)
        return eng_op_fail(c, PST_EINVAL, "its graph has %d inputs and %d outputs; %d and %d are needed", g ? g->n_in : 0, g ? g->n_out : 0,
                           n_in, n_out);
    for (int i = 0; i < n_in; i++)
        eng_val_set(p, &p->vals[g->in[i]], &in[i]);
    int rc = eng_prog_run(p, prog, c->err);
    for (int i = 0; i < n_out && rc == 0; i++)
        eng_val_set(p, &out[i], &p->vals[g->out[i]]);
    eng_prog_clear(p, prog);
    return rc;
}
