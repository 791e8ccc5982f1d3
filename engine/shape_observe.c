/* shape_observe.c - shapes, cost and memory of a plan, observed while it runs on made-up inputs.
 *
 * Why observed and not inferred by rules: a rule per operator (some 170, a dozen with rules as long as their kernels, and those whose
 * result depends on data) would be a second description of what kernels do, wrong wherever the two part. A run is right by
 * construction, costs milliseconds, serves every backend, and runs at batch 2 and 3 show which dimensions follow the batch. What it
 * cannot show is said: shapes that depend on the data are those of this data. Only `models explain` uses it; fusion decides by
 * sure types alone and checks shapes at run time. */
#include "engine/shape_observe.h"

#include "engine/heap.h"
#include "engine/made_up.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

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
    int rc = eng_made_up_inputs(m, batch, other, in, err);
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
