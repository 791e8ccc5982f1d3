/* plan.c - the public side of plans: options, the backend that takes one, its runs and its end. */
#include "engine/plan.h"

#include "engine/abi.h"
#include "engine/cpu/isa.h"
#include "engine/backend.h"
#include "engine/device_of.h"
#include "engine/workers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No more than this process has CPUs: more would wait for each other. */
static int workers_of(uint64_t threads, eng_workers **ret, pst_err *err)
{
    if (threads > ENG_WORKERS_MAX)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "onnx", 0, "threads: %" PRIu64 ", at most %d", threads, ENG_WORKERS_MAX);
    int allowed = threads > 1 ? eng_workers_allowed() : 1, n = (int)threads < allowed ? (int)threads : allowed;
    return n > 1 ? eng_workers_new(n, ret, err) : 0;
}

/* Options are checked before anything is taken; from the first backend on, pst_plan_free gives all of it back. */
int pst_plan_new(pst_model *m, const pst_plan_opts *opts, pst_plan **ret_plan, pst_err *err)
{
    pst_err own = {0};
    err = err ? err : &own;
    int rc = opts ? eng_reserved_check(opts->reserved, sizeof opts->reserved / sizeof *opts->reserved, "pst_plan_opts", err) : 0;
    if (rc < 0)
        return rc;
    const char *want = opts ? opts->isa : NULL, *isa = eng_isa_pick(want);
    if (!isa)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "onnx", 0, "%s %s: %s", want ? "isa" : "PENSTOCK_ISA",
                           want ? want : eng_isa_asked(), eng_isa_why_not(want ? want : eng_isa_asked()));
    const pst_run_limits *run = opts ? opts->run : NULL;
    if (run)
        rc = eng_reserved_check(run->reserved, sizeof run->reserved / sizeof *run->reserved, "pst_run_limits", err);
    if (rc < 0)
        return rc;
    eng_workers *workers = NULL;
    if (opts && (rc = workers_of(opts->threads, &workers, err)) < 0)
        return rc;
    pst_plan *p = eng_heap_raw(sizeof *p);
    if (!p) {
        eng_workers_free(workers);
        return eng_heap_none(sizeof *p, err);
    }
    p->workers = workers;
    p->m = pst_model_ref(m);
    if (opts)
        p->opts = *opts;
    p->device_may = p->opts.backend && !strcmp(p->opts.backend, "auto");
    if (p->device_may)
        p->opts.backend = NULL; /* whoever is cheapest, and who may take over from whom */
    if (run)
        p->watch.limits = *run;
    p->out_bytes_max = m->limits.tensor_bytes_max;
    eng_watch_begin(&p->watch);
    p->isa = isa;
    p->pool.bytes_max = m->limits.arena_bytes_max;
    rc = eng_backend_choose(p, err);
    if (rc < 0) {
        pst_plan_free(p);
        return rc;
    }
    *ret_plan = p;
    return 0;
}

void pst_plan_free(pst_plan *p)
{
    if (!p)
        return;
    eng_plan_disown(p);
    if (p->backend && p->backend->free)
        p->backend->free(p);
    eng_workers_free(p->workers);
    eng_heap_release(&p->heap);
    pst_model_unref(p->m);
    free(p);
}

const char *pst_plan_backend_of(const char *device)
{
    return !device || !strcmp(device, "cpu") ? NULL : device;
}

const char *pst_plan_device(const pst_plan *p, const char **ret_why)
{
    *ret_why = p->computes_why;
    return p->computes;
}

int pst_plan_threads(const pst_plan *p)
{
    return eng_workers_count(p->workers);
}

int pst_plan_ran_on(const pst_plan *p)
{
    return p->device.of ? atoi(p->computes + strlen("cuda:")) : -1;
}

int pst_plan_device_left(const pst_plan *p)
{
    return p->device_left;
}

/* ---- runs ---- */

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

static int run_once(pst_plan *p, const eng_val *in, size_t n_in, const eng_val **ret_out, size_t n_out, pst_err *err)
{
    PST_ASSERT(p->backend); /* a plan without one was never handed out */
    int rc = p->backend->submit(p, in, n_in, n_out, err);
    return rc == 0 ? p->backend->wait(p, ret_out, n_out, err) : rc;
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
    int before = err->code, rc = run_once(p, in, n_in, ret_out, n_out, err);
    if (rc != PST_EUNSUPPORTED || before != 0)
        return rc;
    rc = eng_backend_next(p, err); /* what this backend cannot do after all, the next may */
    return rc < 0 ? rc : run_once(p, in, n_in, ret_out, n_out, err);
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
