/* exec.c - running a plan: the step loop, half types, nested graphs, the public run; see plan.h. */
#include "engine/plan.h"
#include "engine/seen.h"

#include "engine/ort/ort_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NESTING_MAX 64

/* ---- running ---- */

void eng_scratch_free(pst_plan *p, eng_blk *until)
{
    while (p->scratch != until) {
        eng_blk *b = p->scratch;
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

int eng_prog_run(pst_plan *p, const eng_prog *g, pst_err *err)
{
    if (p->depth >= NESTING_MAX)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "graphs run nested deeper than %d", NESTING_MAX);
    p->depth++;
    int rc = 0;
    for (size_t i = 0; i < g->n_steps && rc == 0; i++) {
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

/* ---- the public run ---- */

static int check_input(const pst_model *m, size_t i, const eng_val *v, pst_err *err)
{
    const pst_value_info *w = &m->info.inputs[i];
    if (m->in_kinds[i] != ENG_KIND_TENSOR)
        return 0;
    if (v->kind != ENG_VAL_TENSOR)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "onnx", 0, "input %s must be a tensor", w->name);
    if (w->dtype && v->t.dtype != w->dtype)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "onnx", 0, "input %s is %s, the model wants %s", w->name,
                           pst_dtype_name(v->t.dtype), pst_dtype_name(w->dtype));
    bool ok =
        v->t.rank >= 0 && v->t.rank <= PST_MAX_RANK && eng_dims_count(v->t.dims, v->t.rank) >= 0 && (w->rank < 0 || v->t.rank == w->rank);
    for (int k = 0; ok && k < w->rank; k++)
        ok = w->dims[k] < 0 || w->dims[k] == v->t.dims[k];
    if (ok)
        return 0;
    char given[128] = "", want[128] = "";
    for (int k = 0, n = 0; k < v->t.rank && k < PST_MAX_RANK && n < 100; k++)
        n += snprintf(given + n, sizeof given - (size_t)n, "%s%" PRId64, k ? ", " : "", v->t.dims[k]);
    for (int k = 0, n = 0; k < w->rank && n < 100; k++)
        n += snprintf(want + n, sizeof want - (size_t)n, w->dims[k] < 0 ? "%sN" : "%s%" PRId64, k ? ", " : "", w->dims[k]);
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "onnx", 0, "input %s has shape (%s), the model wants (%s)", w->name, given, want);
}

/* Results must not alias what the caller passed in. */
static int own_result(pst_plan *p, eng_val *v, pst_err *err)
{
    if (v->kind != ENG_VAL_TENSOR || v->blk)
        return 0;
    size_t bytes = (size_t)eng_count(&v->t) * pst_dtype_size(v->t.dtype);
    eng_blk *b = eng_blk_new(p, bytes + 64, err);
    if (!b)
        return PST_ELIMIT;
    if (bytes)
        memcpy(b->data, v->t.data, bytes);
    v->blk = b;
    v->t.data = b->data;
    return 0;
}

typedef struct running {
    pst_plan *p;
    const eng_val *in;
    const eng_val **out;
    size_t n_out;
} running;

static int run_body(void *arg, pst_err *err)
{
    running *r = arg;
    pst_plan *p = r->p;
    const pst_model *m = p->m;
    const eng_prog *g = &p->progs[0];
    eng_prog_clear(p, g);
    eng_scratch_free(p, NULL);
    eng_plan_texts_reset(p);
    p->steps_left = eng_plan_steps_max(p);
    eng_watch_begin(&p->watch);
    p->pool.peak = p->pool.live;
    p->depth = 0;
    for (size_t i = 0; i < m->info.n_inputs; i++)
        eng_val_set(p, &p->vals[m->graph.in[i]], &r->in[i]);
    int rc = eng_prog_run(p, g, err);
    for (size_t i = 0; i < r->n_out && rc == 0; i++) {
        eng_val *v = &p->vals[m->graph.out[i]];
        rc = own_result(p, v, err);
        r->out[i] = v;
    }
    return rc;
}

int eng_plan_run_vals(pst_plan *p, const eng_val *in, size_t n_in, const eng_val **ret_out, size_t n_out, pst_err *err)
{
    pst_err own = {0};
    const pst_model *m = p->m;
    err = err ? err : &own;
    if (n_in != m->info.n_inputs || n_out > m->info.n_outputs)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "onnx", 0, "the model has %zu inputs and %zu outputs; %zu and %zu were given",
                           m->info.n_inputs, m->info.n_outputs, n_in, n_out);
    for (size_t i = 0; i < n_in; i++) {
        int rc = check_input(m, i, &in[i], err);
        if (rc < 0)
            return rc;
    }
    if (p->ort)
        return eng_ort_run_vals(p->ort, &p->watch, in, n_in, ret_out, n_out, err);
    running r = {.p = p, .in = in, .out = ret_out, .n_out = n_out};
    int before = err->code, rc = eng_heap_run(&p->heap, run_body, &r, err);
    if (rc < 0 && before == 0 && err->code < 0)
        rc = err->code; /* kernels say PST_ELIMIT for whatever kept them from a buffer */
    if (rc == PST_ENOMEM)
        eng_plan_reset(p);
    if (rc == PST_EUNSUPPORTED && before == 0 && (rc = eng_ort_take_over(p, true, err)) == 0)
        return eng_ort_run_vals(p->ort, &p->watch, in, n_in, ret_out, n_out, err);
    return rc;
}

int pst_plan_run(pst_plan *p, const pst_tensor *in, size_t n_in, pst_tensor *ret_out, size_t n_out, pst_err *err)
{
    if (p->direct.run && n_in == 1 && n_out == 1 && p->direct.run(p, in, ret_out))
        return 0;
    const eng_val **vout = p->io_out;
    for (size_t i = 0; i < n_in && i < p->m->info.n_inputs; i++)
        p->io_in[i] = (eng_val){.kind = ENG_VAL_TENSOR, .t = in[i]};
    int rc = eng_plan_run_vals(p, p->io_in, n_in, vout, n_out, err);
    for (size_t i = 0; i < n_out && rc == 0; i++)
        if (vout[i]->kind != ENG_VAL_TENSOR)
            rc = pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "output %s is a sequence or empty, not a tensor",
                             p->m->info.outputs[i].name);
    for (size_t i = 0; i < n_out && rc == 0; i++)
        ret_out[i] = vout[i]->t;
    return rc;
}
