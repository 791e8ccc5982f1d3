/* explain.c - gathers what there is to say about a plan: its steps as compiled, and, from observed runs (shape_observe.c), shapes,
 * cost, memory and time. */
#include "engine/explain.h"

#include "engine/abi.h"
#include "engine/heap.h"
#include "engine/backend.h"
#include "engine/made_up.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUN_MS = 5000 };

const char *eng_explain_kernel(const pst_plan *p, const eng_step *s)
{
    if (s->kernel)
        return s->kernel;
    const char *known = p->opts.no_fusion ? s->node->op->plain : s->node->op->kernel;
    return known ? known : "plain C";
}

int64_t eng_explain_dim(const eng_explained *e, const eng_step *s, int k, char *ret, size_t size)
{
    const eng_seen *n = s->seen;
    int64_t d = n->out.dims[k];
    *ret = 0;
    if (!e->has_batch || n->probes < 2)
        return d;
    if (n->probe[0].rank != n->out.rank || n->probe[1].rank != n->out.rank) {
        snprintf(ret, size, "?");
        return -1;
    }
    int64_t two = n->probe[0].dims[k], three = n->probe[1].dims[k], by = three - two, rest = two - 2 * by;
    if (by == 0 && d == two)
        return d;
    if (by == 0 || d != by * e->batch + rest) /* it follows the data, or the square of the batch */
        snprintf(ret, size, "?");
    else if (rest)
        snprintf(ret, size, "%.0lldN%+lld", by == 1 ? 0LL : (long long)by, (long long)rest);
    else
        snprintf(ret, size, "%.0lldN", by == 1 ? 0LL : (long long)by);
    return -1;
}

void eng_explain_shape(const eng_explained *e, const eng_step *s, char *ret, size_t size)
{
    size_t n = 0;
    *ret = 0;
    if (!s->seen || !s->seen->runs) {
        snprintf(ret, size, e->observed ? "(not reached)" : "");
        return;
    }
    if (!s->seen->has_out) {
        snprintf(ret, size, s->seen->is_seq ? "sequence" : "");
        return;
    }
    n += (size_t)snprintf(ret, size, "%s (", pst_dtype_name(s->seen->out.dtype));
    for (int k = 0; k < s->seen->out.rank && n < size; k++) {
        char dim[40];
        int64_t d = eng_explain_dim(e, s, k, dim, sizeof dim);
        if (*dim)
            n += (size_t)snprintf(ret + n, size - n, "%s%s", k ? ", " : "", dim);
        else
            n += (size_t)snprintf(ret + n, size - n, "%s%lld", k ? ", " : "", (long long)d);
    }
    if (n < size)
        snprintf(ret + n, size - n, ")");
}

/* ---- gathering ---- */

typedef struct gathering {
    eng_explained e;
    const pst_explain_opts *o;
    eng_heap_text text;
} gathering;

static void look_at_inputs(eng_explained *e, bool *ret_other)
{
    const pst_model_info *info = &e->p->m->info;
    for (size_t i = 0; i < info->n_inputs; i++)
        for (int k = 0, n_free = 0; k < info->inputs[i].rank; k++)
            if (info->inputs[i].dims[k] < 0) {
                e->has_batch = true;
                *ret_other |= n_free++ > 0;
            }
}

/* What the caller asked for, or else what serves most. */
static int64_t asked_or(size_t asked, int64_t usual)
{
    return asked ? (int64_t)asked : usual;
}

/* Runs at batch 2, 3 and 1, then at the batch asked for; other free dimensions at the first size of a list that the model takes. */
static int observe(eng_explained *e, const pst_explain_opts *o, pst_err *err)
{
    static const int64_t sizes[] = {8, 32, 224, 64, 1, 5};
    bool other = false;
    int rc = PST_EINVAL;
    look_at_inputs(e, &other);
    e->batch = e->has_batch ? asked_or(o ? o->batch : 0, 64) : 1;
    size_t n = other && !(o && o->free_dim) ? sizeof sizes / sizeof *sizes : 1;
    for (size_t i = 0; i < n && rc < 0 && rc != PST_ETIMEDOUT && rc != PST_ESTOPPED; i++) {
        size_t peak;
        int64_t size = other ? asked_or(o ? o->free_dim : 0, sizes[i]) : 1;
        pst_err why = {0};
        rc = eng_observe_run(e->p, e->has_batch ? 2 : 1, size, &peak, &why);
        if (rc < 0 && !err->code)
            *err = why;
        e->other = other ? size : 0;
    }
    if (rc < 0)
        return rc;
    *err = (pst_err){0};
    eng_observe_probe(e->p);
    if (e->has_batch) {
        size_t peak, at_one;
        if ((rc = eng_observe_run(e->p, 3, e->other, &peak, err)) < 0)
            return rc;
        eng_observe_probe(e->p);
        pst_err one = {0};
        e->peak_one = eng_observe_run(e->p, 1, e->other, &at_one, &one) < 0 ? 0 : at_one; /* some models take no single row */
    }
    eng_pool_drop(&e->p->pool);
    rc = eng_observe_run(e->p, e->batch, e->other, &e->peak, err);
    e->peak_one = e->has_batch ? e->peak_one : e->peak;
    e->reserved = e->p->pool.bytes;
    return rc;
}

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* other programs on the machine do not count */
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The best of eight spells of at least 40 ms and one run each. */
static int measure(eng_explained *e, pst_err *err)
{
    const pst_model_info *info = &e->p->m->info;
    pst_tensor *in = eng_heap_array(info->n_inputs + 1, sizeof *in);
    eng_val *vals = eng_heap_array(info->n_inputs + 1, sizeof *vals);
    const eng_val **out = eng_heap_array(info->n_outputs + 1, sizeof *out);
    int rc = eng_made_up_inputs(e->p->m, e->batch, e->other ? e->other : 1, in, err);
    for (size_t i = 0; i < info->n_inputs && rc == 0; i++)
        vals[i] = (eng_val){.kind = ENG_VAL_TENSOR, .t = in[i]};
    e->ns_row = INFINITY;
    for (int spell = 0; spell < 8 && rc == 0; spell++) {
        double from = cpu_ns(), now = from;
        uint64_t runs = 0, few = e->batch < 64 ? 16 : 1;
        for (; now - from < 40e6 && rc == 0; now = cpu_ns())
            for (uint64_t k = 0; k < few && rc == 0; k++, runs++)
                rc = eng_plan_run_vals(e->p, vals, info->n_inputs, out, info->n_outputs, err);
        if (runs) {
            double ns = (now - from) / (double)runs / (double)e->batch;
            e->ns_row = ns < e->ns_row ? ns : e->ns_row;
        }
    }
    for (int i = 0; i < 5 && rc == 0 && e->observed; i++) { /* step by step, the clock's own 40 ns included */
        size_t peak;
        if ((rc = eng_observe_run(e->p, e->batch, e->other ? e->other : 1, &peak, err)) == 0)
            eng_observe_time(e->p);
    }
    e->measured = rc == 0;
    return rc;
}

static double constants_of(const pst_model *m)
{
    double bytes = 0;
    for (int i = 0; i < m->n_values; i++)
        if (m->values[i].konst)
            bytes += (double)eng_count(m->values[i].konst) * (double)pst_dtype_size(m->values[i].konst->dtype);
    for (size_t i = 0; i < m->graph.n_nodes; i++) /* trees and linear models keep theirs in attributes */
        for (int k = 0; k < m->graph.nodes[i].n_attrs; k++) {
            const eng_attr *a = &m->graph.nodes[i].attrs[k];
            bytes += a->type == ENG_ATTR_FLOATS ? 4 * (double)a->n : a->type == ENG_ATTR_INTS ? 8 * (double)a->n : 0;
        }
    return bytes;
}

static int gather(void *arg, pst_err *err)
{
    gathering *g = arg;
    eng_explained *e = &g->e;
    pst_err why = {0};
    bool other = false;
    const eng_backend *b = e->p->backend;
    int rc = b->served_by ? 0 : observe(e, g->o, &why);
    b = e->p->backend;
    if (b->served_by) { /* from the start, or since a run met what the engine does not cover */
        look_at_inputs(e, &other);
        e->batch = e->has_batch ? asked_or(g->o ? g->o->batch : 0, 64) : 1;
        e->other = other ? asked_or(g->o ? g->o->free_dim : 0, 8) : 0;
        e->elsewhere = b->served_by(e->p);
        rc = 0;
    }
    if (rc == PST_ETIMEDOUT || rc == PST_ESTOPPED) { /* its shapes are the least of what is wrong with it */
        *err = why;
        return rc;
    }
    e->observed = rc == 0 && !e->elsewhere;
    if (rc < 0) /* a model that cannot be run on made-up inputs is explained without shapes */
        snprintf(e->why, sizeof e->why, "%s", why.text);
    for (size_t i = 0; i < e->p->n_progs; i++)
        for (size_t k = 0; k < e->p->progs[i].n_steps && e->observed; k++) {
            const eng_seen *s = e->p->progs[i].steps[k].seen;
            e->flops += s ? s->flops / (double)e->batch : 0;
            e->moved += s ? s->bytes / (double)e->batch : 0;
        }
    e->weights = (size_t)constants_of(e->p->m);
    e->plan_bytes = eng_zone_bytes(&e->p->zone) + e->p->shared_bytes;
    if ((e->observed || e->elsewhere) && g->o && g->o->measure && (rc = measure(e, err)) < 0)
        return rc;
    if (g->o && g->o->json)
        eng_explain_json(e, &g->text);
    else
        eng_explain_text(e, &g->text);
    return 0;
}

static char *copy_out(const eng_heap_text *t, pst_err *err)
{
    char *copy = eng_heap_raw(t->len + 1);
    if (copy && t->len)
        memcpy(copy, t->data, t->len);
    if (!copy)
        eng_heap_none(t->len + 1, err);
    return copy;
}

int pst_model_explain(pst_model *m, const pst_plan_opts *opts, const pst_explain_opts *what, char **ret_text, pst_err *err)
{
    pst_err own = {0};
    eng_heap heap = {0};
    gathering g = {.o = what, .e = {.file = what ? what->file : NULL}};
    err = err ? err : &own;
    int rc = what ? eng_reserved_check(what->reserved, sizeof what->reserved / sizeof *what->reserved, "pst_explain_opts", err) : 0;
    const pst_run_limits some = {.ms_max = RUN_MS};
    pst_plan_opts bounded = opts ? *opts : (pst_plan_opts){0};
    bounded.run = bounded.run ? bounded.run : &some;
    if (rc == 0)
        rc = pst_plan_new(m, &bounded, &g.e.p, err);
    if (rc == 0)
        rc = eng_heap_run(&heap, gather, &g, err);
    if (rc == 0) {
        *ret_text = copy_out(&g.text, err);
        rc = *ret_text ? 0 : PST_ENOMEM;
    }
    eng_heap_release(&heap);
    pst_plan_free(g.e.p);
    return rc;
}

static int explain_plain(void *arg, pst_err *err)
{
    gathering *g = arg;
    eng_explain_text(&g->e, &g->text);
    return 0;
}

char *pst_plan_explain(const pst_plan *p)
{
    pst_err err = {0};
    eng_heap heap = {0};
    gathering g = {.e = {.p = (pst_plan *)p}};
    if (p->backend->explain)
        return p->backend->explain(p);
    char *text = eng_heap_run(&heap, explain_plain, &g, &err) < 0 ? NULL : copy_out(&g.text, &err);
    eng_heap_release(&heap);
    return text;
}
