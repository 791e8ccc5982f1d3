/* cpu_backend.c - the engine's own kernels as a backend: it takes every model whose operators it has, fuses after lowering (compile.c), and
 * has computed everything when submit returns. */
#include "engine/backend.h"
#include "engine/cpu/isa.h"
#include "engine/estimate.h"
#include "engine/ort/ort.h"

#include <stdio.h>
#include <string.h>

static int supports(const pst_plan *p, pst_err *err)
{
    if (!p->m->foreign)
        return 0;
    return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "the engine does not cover this model: %s",
                       eng_ort_describe(p->m));
}

/* Of the multiply-adds that the vectors can do two thirds are reached, trees take half a nanosecond for a node where rows go down side by
 * side and four where there are few (tests/bench/RESULTS.md); what is no product is bound by memory, caches among it. */
static int cost(const pst_plan *p, int64_t rows, double *ret_ns, pst_err *err)
{
    enum { FEW_ROWS = 20 };
    const double dense_ns = 1.0 / (2 * 6 * 0.66 * eng_kernels_pick(p->isa)->lanes), byte_ns = 1.0 / 20, other_ns = 0.2, step_ns = 60;
    eng_work w;
    int rc = eng_estimate(p, rows, &w, err);
    if (rc < 0)
        return rc;
    double node_ns = rows < FEW_ROWS ? 2 : 0.5;
    *ret_ns = w.dense * dense_ns + w.visits * node_ns + w.other * other_ns + w.moved * byte_ns + (double)w.nodes * step_ns;
    return 0;
}

static int prepare(pst_plan *p, pst_err *err)
{
    return eng_heap_run(&p->heap, eng_compile, p, err);
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
    size_t n_out;
} running;

void eng_cpu_begin(pst_plan *p, const eng_val *in)
{
    const pst_model *m = p->m;
    PST_ASSERT(p->n_progs > 0 && p->progs[0].graph == &m->graph);
    const eng_prog *g = &p->progs[0];
    eng_prog_clear(p, g);
    eng_scratch_free(p, NULL);
    eng_plan_texts_reset(p);
    p->steps_left = eng_plan_steps_max(p);
    eng_watch_begin(&p->watch);
    p->pool.peak = p->pool.live;
    p->depth = 0;
    p->runs++;
    for (size_t i = 0; i < m->info.n_inputs; i++)
        eng_val_set(p, &p->vals[m->graph.in[i]], &in[i]);
}

int eng_cpu_own_results(pst_plan *p, size_t n_out, pst_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n_out && rc == 0; i++)
        rc = own_result(p, &p->vals[p->m->graph.out[i]], err);
    return rc;
}

static int run_body(void *arg, pst_err *err)
{
    const running *r = arg;
    eng_cpu_begin(r->p, r->in);
    int rc = eng_prog_run(r->p, &r->p->progs[0], err);
    return rc == 0 ? eng_cpu_own_results(r->p, r->n_out, err) : rc;
}

int eng_cpu_within(pst_plan *p, int (*body)(void *arg, pst_err *err), void *arg, pst_err *err)
{
    int before = err->code, rc = eng_heap_run(&p->heap, body, arg, err);
    if (rc < 0 && before == 0 && err->code < 0)
        rc = err->code; /* kernels say PST_ELIMIT for whatever kept them from a buffer */
    if (rc == PST_ENOMEM)
        eng_plan_reset(p);
    return rc;
}

static int submit(pst_plan *p, const eng_val *in, size_t n_in, size_t n_out, pst_err *err)
{
    running r = {.p = p, .in = in, .n_out = n_out};
    return eng_cpu_within(p, run_body, &r, err);
}

/* From a device that failed, or that is not quicker: in a run by not asking it any more, since its plan is ours but for the trees' sums. */
static int take_over(pst_plan *p, bool in_run, pst_err *err)
{
    if (strcmp(err->origin, "cuda") != 0)
        return PST_EUNSUPPORTED;
    snprintf(p->computes, sizeof p->computes, "cpu");
    snprintf(p->computes_why, sizeof p->computes_why, "%.*s", (int)sizeof p->computes_why - 1, err->text);
    pst_err_clear(err);
    if (in_run) {
        p->device.of = NULL;
        return 0;
    }
    eng_plan_empty(p);
    return prepare(p, err);
}

static int wait(pst_plan *p, const eng_val **ret_out, size_t n_out, pst_err *err)
{
    for (size_t i = 0; i < n_out; i++)
        ret_out[i] = &p->vals[p->m->graph.out[i]];
    return 0;
}

const eng_backend eng_cpu_backend = {
    .name = "engine", .supports = supports, .cost = cost, .prepare = prepare, .take_over = take_over, .submit = submit, .wait = wait};
