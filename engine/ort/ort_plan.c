/* ort_plan.c - see ort_plan.h. */
#include "engine/ort/ort_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int eng_ort_wanted(const pst_plan *p, bool *ret_ort, pst_err *err)
{
    const char *backend = p->opts.backend;
    bool own = backend && !strcmp(backend, "engine"), ort = backend && !strcmp(backend, "onnxruntime");
    if (backend && !own && !ort)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "onnx", 0, "backend %s: not one of engine, onnxruntime", backend);
    if (own && p->m->foreign)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "the engine does not cover this model: %s",
                           eng_ort_describe(p->m));
    *ret_ort = ort || p->m->foreign;
    return 0;
}

static int make_io(void *arg, pst_err *err)
{
    pst_plan *p = arg;
    p->io_in = eng_heap_array(p->m->info.n_inputs + 1, sizeof *p->io_in);
    p->io_out = eng_heap_array(p->m->info.n_outputs + 1, sizeof *p->io_out);
    return 0;
}

int eng_ort_take_plan(pst_plan *p, pst_err *err)
{
    int rc = eng_ort_serve(p->m, "asked for by the caller", err);
    if (rc == 0 && !p->io_in)
        rc = eng_heap_run(&p->heap, make_io, p, err);
    return rc == 0 ? eng_ort_run_new(p->m, &p->ort, err) : rc;
}

int eng_ort_take_over(pst_plan *p, bool in_run, pst_err *err)
{
    pst_err why = *err, not = {0};
    if (p->opts.backend || p->m->limits.backends == PST_BACKENDS_OWN || __atomic_load_n(&p->m->ort_refused, __ATOMIC_RELAXED))
        return PST_EUNSUPPORTED;
    if (!in_run) { /* its making stopped half way: nothing of it is used */
        eng_heap_release(&p->heap);
        *p = (pst_plan){.m = p->m,
                        .opts = p->opts,
                        .isa = p->isa,
                        .pool.bytes_max = p->pool.bytes_max,
                        .watch = p->watch,
                        .out_bytes_max = p->out_bytes_max};
    }
    int rc = eng_ort_serve(p->m, why.text, &not );
    if (rc == 0)
        rc = eng_ort_take_plan(p, &not );
    if (rc == 0) {
        pst_err_clear(err);
        return 0;
    }
    __atomic_store_n(&p->m->ort_refused, true, __ATOMIC_RELAXED);
    snprintf(err->text, sizeof err->text, "%.230s. %.240s", why.text, not .text);
    return PST_EUNSUPPORTED;
}

char *eng_ort_explain(const pst_plan *p)
{
    char *text = NULL;
    const pst_model_info *info = &p->m->info;
    if (asprintf(&text, "%zu nodes, %zu inputs, %zu outputs; every node is served by %s\n", info->n_nodes, info->n_inputs, info->n_outputs,
                 eng_ort_describe(p->m)) < 0)
        return NULL;
    return text;
}

char *eng_ort_explain_json(const pst_plan *p)
{
    char *text = NULL, quoted[1000];
    size_t n = 0;
    for (const char *s = eng_ort_describe(p->m); *s && n < sizeof quoted - 8; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            quoted[n++] = '\\';
        if (c >= ' ')
            quoted[n++] = (char)c;
        else
            n += (size_t)snprintf(quoted + n, 8, "\\u%04x", c);
    }
    quoted[n] = 0;
    if (asprintf(&text, "{\"nodes\":%zu,\"backend\":\"onnxruntime\",\"served_by\":\"%s\"}\n", p->m->info.n_nodes, quoted) < 0)
        return NULL;
    return text;
}
