/* plan.c - from a model's graph to steps: constants folded, dead nodes dropped, chains fused, lifetimes known. */
#include "engine/plan.h"

#include "engine/abi.h"
#include "engine/cpu/isa.h"
#include "engine/ort/ort_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FOLD_BYTES_MAX ((size_t)64 << 20) /* of one result */
#define FOLD_ALL_MAX   ((size_t)1 << 30)  /* read and written for the whole plan: seconds, whatever the file says */
#define FOLD_STEPS_MAX 100000             /* of one node */
#define FOLD_TEXT_MAX  ((size_t)16 << 20) /* of the whole plan */

static void mark_bool(void *arg, int id)
{
    ((bool *)arg)[id] = true;
}

static bool has_graph(const eng_node *n)
{
    for (int k = 0; k < n->n_attrs; k++)
        if (n->attrs[k].graph)
            return true;
    return false;
}

static size_t val_bytes(const eng_val *v)
{
    return v->kind == ENG_VAL_TENSOR ? (size_t)eng_count(&v->t) * pst_dtype_size(v->t.dtype) : 0;
}

/* Runs a node now if everything it reads is known. Failure leaves it for the run, where it may never be reached. */
static bool try_fold(pst_plan *p, const eng_node *n)
{
    if (n->op->flags & ENG_OP_IMPURE || has_graph(n) || p->fold_bytes > FOLD_ALL_MAX)
        return false;
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= 0 && !p->folded[n->in[k]])
            return false;
    for (int k = 0; k < n->n_in; k++)
        p->fold_bytes += n->in[k] >= 0 ? val_bytes(&p->vals[n->in[k]]) : 0;
    eng_step s;
    pst_err err = {0};
    p->steps_left = FOLD_STEPS_MAX;
    p->out_bytes_max = FOLD_BYTES_MAX < p->out_bytes_max ? FOLD_BYTES_MAX : p->out_bytes_max;
    int rc = eng_step_make(p, n, &s, &err);
    if (rc == 0)
        rc = eng_step_run(p, &s, &err);
    p->out_bytes_max = p->m->limits.tensor_bytes_max;
    bool ok = rc == 0 && (p->fold_text_bytes += p->text_bytes) < FOLD_TEXT_MAX;
    for (int k = 0; k < n->n_out; k++) {
        eng_val_clear(p, &s.dummy[k]);
        p->fold_bytes += val_bytes(s.out[k]);
        if (val_bytes(s.out[k]) > FOLD_BYTES_MAX) /* what shares an input's data is made without asking for room */
            ok = false;
    }
    for (int k = 0; k < n->n_out; k++) {
        if (n->out[k] < 0)
            continue;
        if (!ok) {
            eng_val_clear(p, &p->vals[n->out[k]]);
        } else {
            eng_val *v = &p->vals[n->out[k]];
            if (v->kind == ENG_VAL_TENSOR && v->t.dtype == PST_STR && v->blk) { /* texts made by a kernel live for one run only */
                const char **texts = v->t.data;
                for (int64_t i = 0, cnt = eng_count(&v->t); i < cnt; i++)
                    texts[i] = eng_zone_strdup(&p->zone, texts[i], strlen(texts[i]));
            }
            p->folded[n->out[k]] = true;
        }
    }
    eng_plan_texts_reset(p);
    return ok;
}

/* An Identity or an inference-time Dropout between two values of this graph is only a second name: readers take the first. */
static bool is_alias(const eng_node *n)
{
    if (*n->domain || n->n_in < 1 || n->in[0] < 0 || n->n_out < 1 || n->out[0] < 0)
        return false;
    bool dropout = !strcmp(n->op_type, "Dropout") && n->opset >= 7 && (n->n_in < 3 || n->in[2] < 0) && (n->n_out < 2 || n->out[1] < 0);
    return dropout || !strcmp(n->op_type, "Identity");
}

static const eng_node *with_inputs(pst_plan *p, const eng_node *n, const int *alias)
{
    bool change = false;
    for (int k = 0; k < n->n_in; k++)
        change |= n->in[k] >= 0 && alias[n->in[k]] != n->in[k];
    if (!change)
        return n;
    eng_node *copy = eng_zone_alloc(&p->zone, sizeof *copy);
    *copy = *n;
    copy->in = eng_zone_alloc(&p->zone, (size_t)n->n_in * sizeof(int));
    for (int k = 0; k < n->n_in; k++)
        copy->in[k] = n->in[k] >= 0 ? alias[n->in[k]] : -1;
    return copy;
}

static int compile(pst_plan *p, const eng_graph *g, pst_err *err);

static int compile_nested(pst_plan *p, const eng_node *n, pst_err *err)
{
    for (int k = 0; k < n->n_attrs; k++)
        if (n->attrs[k].graph) {
            int rc = compile(p, n->attrs[k].graph, err);
            if (rc < 0)
                return rc;
        }
    return 0;
}

/* Which nodes are worth running: from the outputs backwards. */
static void drop_dead(const pst_plan *p, const eng_graph *g, eng_node_ref *refs, size_t n, bool *needed)
{
    for (int i = 0; i < g->n_out; i++)
        needed[g->out[i]] = true;
    for (size_t i = n; i-- > 0;) {
        if (refs[i].dead)
            continue;
        bool live = false;
        for (int k = 0; k < refs[i].node->n_out; k++)
            live |= refs[i].node->out[k] >= 0 && needed[refs[i].node->out[k]] && !p->folded[refs[i].node->out[k]];
        refs[i].dead = !live;
        if (live)
            eng_visit_uses(refs[i].node, mark_bool, needed);
    }
}

typedef struct last_use {
    int *step; /* by value id */
    int at;
} last_use;

static void mark_use(void *arg, int id)
{
    last_use *u = arg;
    u->step[id] = u->at;
}

/* Inputs whose buffer a kernel may take over: they die in this step and it reads them once. */
static void set_dies(eng_prog *prog)
{
    for (size_t i = 0; i < prog->n_steps; i++) {
        eng_step *s = &prog->steps[i];
        for (int k = 0; k < s->n_in; k++) {
            int id = s->node->in[k], times = 0;
            for (int q = 0; q < s->n_in; q++)
                times += s->node->in[q] == id;
            for (int q = 0; q < s->n_kill && times == 1; q++)
                s->dies[k] |= s->kill[q] == id;
        }
    }
}

/* A value made in this graph dies after its last reader; outputs and inputs stay until the caller is done. */
static void set_lifetimes(pst_plan *p, const eng_graph *g, eng_prog *prog)
{
    int n_values = p->m->n_values;
    last_use u = {.step = eng_heap_array((size_t)n_values + 1, sizeof(int))};
    bool *keep = eng_heap_alloc((size_t)n_values + 1);
    for (int i = 0; i < n_values; i++)
        u.step[i] = -1;
    for (size_t i = 0; i < prog->n_steps; i++) {
        u.at = (int)i;
        eng_visit_uses(prog->steps[i].node, mark_use, &u);
    }
    for (int i = 0; i < g->n_out; i++)
        keep[g->out[i]] = true;
    prog->locals = eng_zone_alloc(&p->zone, (size_t)(g->n_in + g->n_out + 1) * sizeof(int));
    for (int i = 0; i < g->n_in; i++)
        prog->locals[prog->n_locals++] = g->in[i];
    int *count = eng_heap_array(prog->n_steps + 1, sizeof(int));
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < prog->n_steps; i++) {
            eng_step *s = &prog->steps[i];
            if (pass == 1)
                s->kill = eng_zone_alloc(&p->zone, (size_t)(count[i] + 1) * sizeof(int));
        }
        for (size_t i = 0; i < prog->n_steps; i++)
            for (int k = 0; k < prog->steps[i].n_out; k++) {
                int id = prog->steps[i].node->out[k];
                if (id < 0 || keep[id] || p->folded[id])
                    continue;
                size_t at = u.step[id] < 0 ? i : (size_t)u.step[id];
                if (pass == 0)
                    count[at]++;
                else
                    prog->steps[at].kill[prog->steps[at].n_kill++] = id;
            }
    }
    for (size_t i = 0; i < prog->n_steps; i++)
        for (int k = 0; k < prog->steps[i].n_out; k++) {
            int id = prog->steps[i].node->out[k];
            if (id >= 0 && keep[id] && !p->folded[id]) {
                keep[id] = false; /* once in the list */
                prog->locals[prog->n_locals++] = id;
            }
        }
    set_dies(prog);
    eng_heap_free(count);
    eng_heap_free(keep);
    eng_heap_free(u.step);
}

/* Aliases are resolved in the main graph only: a nested graph may read the outer value by its second name. */
static void resolve_aliases(pst_plan *p, const eng_graph *g, eng_node_ref *refs, size_t n)
{
    int n_values = p->m->n_values;
    int *alias = eng_heap_array((size_t)n_values + 1, sizeof(int));
    bool *fixed = eng_heap_alloc((size_t)n_values + 1); /* graph outputs and what nested graphs read keep their node */
    for (int i = 0; i < n_values; i++)
        alias[i] = i;
    for (int i = 0; i < g->n_out; i++)
        fixed[g->out[i]] = true;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < refs[i].node->n_attrs; k++)
            if (refs[i].node->attrs[k].graph)
                eng_visit_graph(refs[i].node->attrs[k].graph, mark_bool, fixed);
    for (size_t i = 0; i < n; i++) {
        if (refs[i].dead)
            continue;
        refs[i].node = with_inputs(p, refs[i].node, alias);
        if (is_alias(refs[i].node) && !fixed[refs[i].node->out[0]] && !fixed[refs[i].node->in[0]]) {
            alias[refs[i].node->out[0]] = refs[i].node->in[0];
            refs[i].dead = true;
        }
    }
    eng_heap_free(alias);
    eng_heap_free(fixed);
}

static int compile(pst_plan *p, const eng_graph *g, pst_err *err)
{
    size_t n = g->n_nodes, at = p->n_progs++;
    if (p->n_progs > p->progs_cap) {
        p->progs_cap = p->progs_cap ? 2 * p->progs_cap : 8;
        p->progs = eng_heap_realloc(p->progs, p->progs_cap * sizeof *p->progs);
    }
    p->progs[at] = (eng_prog){.graph = g};
    eng_node_ref *refs = eng_heap_array(n + 1, sizeof *refs);
    bool *needed = eng_heap_alloc((size_t)p->m->n_values + 1);
    size_t folded = 0, left = 0, live = 0;
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        refs[i].node = &g->nodes[i];
        if (rc == 0 && (rc = eng_watch_check(&p->watch, err)) == 0 && try_fold(p, refs[i].node)) {
            refs[i].dead = true;
            folded++;
        }
    }
    if (!p->opts.no_fusion)
        resolve_aliases(p, g, refs, n);
    drop_dead(p, g, refs, n, needed);
    for (size_t i = 0; i < n; i++)
        left += !refs[i].dead;
    if (!p->opts.no_fusion)
        eng_fuse_all(p, g, refs, n);
    for (size_t i = 0; i < n; i++)
        live += !refs[i].dead;
    eng_step *steps = eng_zone_alloc(&p->zone, (live + 1) * sizeof *steps);
    size_t k = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (refs[i].dead)
            continue;
        eng_step *s = &steps[k++];
        rc = eng_watch_check(&p->watch, err);
        if (rc == 0)
            rc = eng_step_make(p, refs[i].node, s, err);
        if (rc == 0)
            rc = compile_nested(p, s->node, err);
    }
    p->progs[at] = (eng_prog){.graph = g,
                              .steps = steps,
                              .n_steps = live,
                              .n_nodes = n,
                              .n_folded = folded,
                              .n_dropped = n - folded - left,
                              .n_fused = left - live};
    if (rc == 0)
        set_lifetimes(p, g, &p->progs[at]);
    eng_heap_free(refs);
    eng_heap_free(needed);
    return rc;
}

static int build(void *arg, pst_err *err)
{
    pst_plan *p = arg;
    const pst_model *m = p->m;
    p->vals = eng_heap_array((size_t)m->n_values + 1, sizeof *p->vals);
    p->folded = eng_heap_alloc((size_t)m->n_values + 1);
    for (int i = 0; i < m->n_values; i++)
        if (m->values[i].konst) {
            p->vals[i] = (eng_val){.kind = ENG_VAL_TENSOR, .t = *m->values[i].konst};
            p->folded[i] = true;
        }
    p->io_in = eng_zone_alloc(&p->zone, (m->info.n_inputs + 1) * sizeof *p->io_in);
    p->io_out = eng_zone_alloc(&p->zone, (m->info.n_outputs + 1) * sizeof *p->io_out);
    int rc = compile(p, &m->graph, err);
    for (int i = 0; i < m->n_values && rc == 0; i++)
        if (p->folded[i] && p->vals[i].blk)
            p->vals[i].blk->pinned = true;
    if (rc == 0)
        eng_fuse_direct(p);
    return rc;
}

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
                           want ? want : eng_isa_wish(), eng_isa_why_not(want ? want : eng_isa_wish()));
    const pst_run_limits *run = opts ? opts->run : NULL;
    if (run && (rc = eng_reserved_check(run->reserved, sizeof run->reserved / sizeof *run->reserved, "pst_run_limits", err)) < 0)
        return rc;
    pst_plan *p = eng_heap_raw(sizeof *p);
    if (!p)
        return eng_heap_none(sizeof *p, err);
    p->m = pst_model_ref(m);
    if (opts)
        p->opts = *opts;
    if (run)
        p->watch.limits = *run;
    p->out_bytes_max = m->limits.tensor_bytes_max;
    eng_watch_begin(&p->watch);
    p->isa = isa;
    p->pool.bytes_max = m->limits.arena_bytes_max;
    bool elsewhere = false;
    int before = err->code;
    rc = eng_ort_wanted(p, &elsewhere, err);
    if (rc == 0)
        rc = elsewhere ? eng_ort_take_plan(p, err) : eng_heap_run(&p->heap, build, p, err);
    if (rc < 0 && before == 0 && err->code < 0)
        rc = err->code;
    if (rc == PST_EUNSUPPORTED && !elsewhere)
        rc = eng_ort_take_over(p, false, err);
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
    eng_ort_run_free(p->ort);
    eng_heap_release(&p->heap);
    pst_model_unref(p->m);
    free(p);
}
