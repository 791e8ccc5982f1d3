/* shape_observe.c - shapes, cost and memory of a plan, observed while it runs on made-up inputs.
 *
 * Why observed and not inferred by rules: a rule per operator (some 170, a dozen with rules as long as their kernels, and those whose
 * result depends on data) would be a second description of what kernels do, wrong wherever the two part. A run is right by
 * construction, costs milliseconds, serves every backend, and runs at batch 2 and 3 show which dimensions follow the batch. What it
 * cannot show is said: shapes that depend on the data are those of this data. Only `models explain` uses it; fusion decides by
 * sure types alone and checks shapes at run time. */
#include "engine/shape_observe.h"

#include "engine/heap.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- made-up inputs ---- */

/* Like rows of a standardised table for floats; 0 for the rest, which is a valid index wherever one is wanted. */
static void fill(pst_tensor *t, int64_t n)
{
    uint64_t s = 88172645463325252u;
    for (int64_t i = 0; i < n && (t->dtype == PST_F32 || t->dtype == PST_F64); i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++) {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            sum += (double)(s >> 40) / 16777216.0 - 0.5;
        }
        if (t->dtype == PST_F32)
            ((float *)t->data)[i] = (float)(sum * 1.7320508);
        else
            ((double *)t->data)[i] = sum * 1.7320508;
    }
    for (int64_t i = 0; i < n && t->dtype == PST_STR; i++)
        ((const char **)t->data)[i] = "";
}

int eng_observe_inputs(const pst_model *m, int64_t batch, int64_t other, pst_tensor *ret, pst_err *err)
{
    for (size_t i = 0; i < m->info.n_inputs; i++) {
        const pst_value_info *v = &m->info.inputs[i];
        pst_tensor t = {.dtype = v->dtype, .rank = v->rank};
        size_t size = pst_dtype_size(v->dtype);
        bool first = true;
        if (m->in_kinds[i] != ENG_KIND_TENSOR || v->rank < 0 || !size)
            return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0,
                               "input %s is no tensor of a declared type and rank: its shape cannot be made up", v->name);
        for (int k = 0; k < v->rank; k++) {
            t.dims[k] = v->dims[k] >= 0 ? v->dims[k] : first ? batch : other;
            first = first && v->dims[k] >= 0;
        }
        int64_t n = eng_dims_count(t.dims, t.rank);
        if (n < 0 || (uint64_t)n > m->limits.tensor_bytes_max / size)
            return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "input %s would be larger than %zu bytes (tensor_bytes_max)",
                               v->name, m->limits.tensor_bytes_max);
        t.data = eng_heap_alloc64((size_t)n * size + 64);
        memset(t.data, 0, (size_t)n * size + 64);
        fill(&t, n);
        ret[i] = t;
    }
    return 0;
}

void eng_observe_clear(pst_plan *p)
{
    for (size_t g = 0; g < p->n_progs; g++)
        for (size_t i = 0; i < p->progs[g].n_steps; i++) {
            eng_step *s = &p->progs[g].steps[i];
            if (!s->seen)
                s->seen = eng_zone_alloc(&p->zone, sizeof *s->seen);
            eng_seen fresh = {.probes = s->seen->probes, .best_ns = s->seen->best_ns};
            memcpy(fresh.probe, s->seen->probe, sizeof fresh.probe);
            *s->seen = fresh;
        }
}

int eng_observe_run(pst_plan *p, int64_t batch, int64_t other, size_t *ret_peak, pst_err *err)
{
    const pst_model *m = p->m;
    pst_tensor *in = eng_heap_array(m->info.n_inputs + 1, sizeof *in), *out = eng_heap_array(m->info.n_outputs + 1, sizeof *out);
    int rc = eng_observe_inputs(m, batch, other, in, err);
    if (rc == 0) {
        eng_observe_clear(p);
        p->observing = true;
        const eng_val **got = eng_heap_array(m->info.n_outputs + 1, sizeof *got);
        eng_val *vals = eng_heap_array(m->info.n_inputs + 1, sizeof *vals);
        for (size_t i = 0; i < m->info.n_inputs; i++)
            vals[i] = (eng_val){.kind = ENG_VAL_TENSOR, .t = in[i]};
        rc = eng_plan_run_vals(p, vals, m->info.n_inputs, got, m->info.n_outputs, err);
        p->observing = false;
        *ret_peak = p->pool.peak;
        eng_prog_clear(p, &p->progs[0]); /* the made-up inputs go away */
        eng_heap_free(vals);
        eng_heap_free(got);
    }
    for (size_t i = 0; i < m->info.n_inputs; i++)
        eng_heap_free(in[i].data);
    eng_heap_free(in);
    eng_heap_free(out);
    return rc;
}

void eng_observe_probe(pst_plan *p)
{
    for (size_t g = 0; g < p->n_progs; g++)
        for (size_t i = 0; i < p->progs[g].n_steps; i++) {
            eng_seen *e = p->progs[g].steps[i].seen;
            if (e && e->has_out && e->probes < 2)
                e->probe[e->probes++] = e->out;
        }
}

void eng_observe_time(pst_plan *p)
{
    for (size_t g = 0; g < p->n_progs; g++)
        for (size_t i = 0; i < p->progs[g].n_steps; i++) {
            eng_seen *e = p->progs[g].steps[i].seen;
            if (e && e->runs && (!e->best_ns || e->ns < e->best_ns))
                e->best_ns = e->ns ? e->ns : 1;
        }
}
