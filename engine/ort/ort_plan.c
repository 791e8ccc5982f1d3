/* ort_plan.c - ONNX Runtime as a backend: it takes whole models, from the start or when the engine says what it does not cover. */
#include "engine/ort/ort_plan.h"

#include "engine/estimate.h"
#include "engine/ort/ort.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int make_io(void *arg, pst_err *err)
{
    pst_plan *p = arg;
    p->io_in = eng_heap_array(p->m->info.n_inputs + 1, sizeof *p->io_in);
    p->io_out = eng_heap_array(p->m->info.n_outputs + 1, sizeof *p->io_out);
    return 0;
}

/* Whatever else there is to say against it, the session says when it is made. */
static int supports(const pst_plan *p, pst_err *err)
{
    return 0;
}

/* Beside the engine in one process (tests/bench/RESULTS.md): 1.2 times its time for networks, 10 times for trees, and 3 µs a call. So it is
 * asked where the engine does not cover a model. */
static int cost(const pst_plan *p, int64_t rows, double *ret_ns, pst_err *err)
{
    const double times = 1.2, times_trees = 10, call_ns = 3000;
    double own;
    eng_work w;
    int rc = eng_cpu_backend.cost(p, rows, &own, err);
    if (rc == 0)
        rc = eng_estimate(p, rows, &w, err);
    if (rc == 0)
        *ret_ns = own * (w.visits > w.dense ? times_trees : times) + call_ns;
    return rc;
}

static int prepare(pst_plan *p, pst_err *err)
{
    int rc = eng_ort_serve(p->m, "asked for by the caller", err);
    if (rc == 0 && !p->io_in)
        rc = eng_heap_run(&p->heap, make_io, p, err);
    return rc == 0 ? eng_ort_run_new(p->m, (eng_ort_run **)&p->of_backend, err) : rc;
}

static int take_over(pst_plan *p, bool in_run, pst_err *err)
{
    pst_err why = *err, not = {0};
    if (p->opts.backend || p->m->limits.backends == PST_BACKENDS_OWN || __atomic_load_n(&p->m->ort_refused, __ATOMIC_RELAXED))
        return PST_EUNSUPPORTED;
    if (p->m->info.draws) {
        const char *draws =
            "It draws random numbers, so that ONNX Runtime cannot run it in the engine's place: no replay would give its scores again";
        snprintf(err->text, sizeof err->text, "%.300s. %s", why.text, draws);
        return PST_EUNSUPPORTED;
    }
    if (!in_run)
        eng_plan_empty(p); /* its making stopped half way: nothing of it is used */
    int rc = eng_ort_serve(p->m, why.text, &not );
    if (rc == 0)
        rc = prepare(p, &not );
    if (rc == 0) {
        pst_err_clear(err);
        return 0;
    }
    __atomic_store_n(&p->m->ort_refused, true, __ATOMIC_RELAXED);
    snprintf(err->text, sizeof err->text, "%.230s. %.240s", why.text, not .text);
    return PST_EUNSUPPORTED;
}

static char *explain(const pst_plan *p)
{
    char *text = NULL;
    const pst_model_info *info = &p->m->info;
    if (asprintf(&text, "%zu nodes, %zu inputs, %zu outputs; every node is served by %s\n", info->n_nodes, info->n_inputs, info->n_outputs,
                 eng_ort_describe(p->m)) < 0)
        return NULL;
    return text;
}

static int submit(pst_plan *p, const eng_val *in, size_t n_in, size_t n_out, pst_err *err)
{
    return eng_ort_run_begin(p->of_backend, &p->watch, in, n_in, n_out, err);
}

static int wait(pst_plan *p, const eng_val **ret_out, size_t n_out, pst_err *err)
{
    eng_ort_run_results(p->of_backend, ret_out, n_out);
    return 0;
}

static const char *served_by(const pst_plan *p)
{
    return eng_ort_describe(p->m);
}

static void free_run(pst_plan *p)
{
    eng_ort_run_free(p->of_backend);
}

const eng_backend eng_ort_backend = {.name = "onnxruntime",
                                     .supports = supports,
                                     .cost = cost,
                                     .prepare = prepare,
                                     .take_over = take_over,
                                     .submit = submit,
                                     .wait = wait,
                                     .served_by = served_by,
                                     .explain = explain,
                                     .free = free_run};
