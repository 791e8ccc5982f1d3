/* compile.c - a lowered graph to the CPU's steps: chains fused, kernels prepared, lifetimes known. */
#include "engine/plan.h"

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
                PST_ASSERT(at >= i && prog->steps[at].n_kill <= count[at]); /* nothing dies before it is made */
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
    PST_ASSERT(prog->n_locals <= g->n_in + g->n_out);
    set_dies(prog);
    eng_heap_free(count);
    eng_heap_free(keep);
    eng_heap_free(u.step);
}

/* One graph: its place among the programs is taken before the graphs nested in it take theirs, so that [0] is the main one. */
static int compile(pst_plan *p, const eng_graph *g, pst_err *err)
{
    p->progs = eng_heap_room(p->progs, p->n_progs, 1, &p->progs_cap, sizeof *p->progs);
    size_t n = g->n_nodes, at = p->n_progs++;
    p->progs[at] = (eng_prog){.graph = g};
    eng_lowered low;
    size_t live = 0;
    int rc = eng_lower(p, g, &low, err);
    if (!p->opts.no_fusion)
        eng_fuse_all(p, g, low.nodes, n);
    for (size_t i = 0; i < n; i++)
        live += !low.nodes[i].dead;
    eng_step *steps = eng_zone_alloc(&p->zone, (live + 1) * sizeof *steps);
    size_t k = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (low.nodes[i].dead)
            continue;
        eng_step *s = &steps[k++];
        rc = eng_watch_check(&p->watch, err);
        if (rc == 0)
            rc = eng_step_make(p, low.nodes[i].node, s, err);
        if (rc == 0)
            rc = compile_nested(p, s->node, err);
    }
    PST_ASSERT(rc < 0 || k == live);
    p->progs[at] = (eng_prog){.graph = g,
                              .steps = steps,
                              .n_steps = live,
                              .n_nodes = n,
                              .n_folded = low.n_folded,
                              .n_dropped = n - low.n_folded - low.n_left,
                              .n_fused = low.n_left - live};
    if (rc == 0)
        set_lifetimes(p, g, &p->progs[at]);
    eng_heap_free(low.nodes);
    return rc;
}

int eng_compile(void *plan, pst_err *err)
{
    pst_plan *p = plan;
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
