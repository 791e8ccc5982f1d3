/* net_step.c - a network as a step. The plan stays the CPU's: what was compiled for it stands behind the step and runs when no device is asked, so that
 * the CPU takes over between two runs, or in one, as it does from trees. */
#include "engine/cuda/net_step.h"

#include <math.h>
#include <string.h>

/* Row r of the device's results is n_out numbers; each value has some columns of it. */
static int hand_out(eng_op_ctx *c, const eng_cuda_net_step *n, const float *all, int64_t rows)
{
    for (uint32_t i = 0; i < n->n_results; i++) {
        const eng_cuda_net_result *v = &n->results[i];
        const int64_t dims[2] = {rows, v->width};
        float *to = eng_out(c, (int)i, PST_F32, v->rank, dims);
        if (!to)
            return PST_ELIMIT;
        for (int64_t r = 0; r < rows; r++)
            memcpy(to + r * v->width, all + r * n->n_out + v->at, v->width * sizeof *to);
    }
    return 0;
}

static int run(eng_op_ctx *c)
{
    const eng_cuda_net_step *n = *c->state;
    pst_plan *p = c->plan;
    const pst_tensor *x = eng_in(c, 0);
    if (p->device.of != n)
        return eng_prog_run_part(p, &n->inside, 0, n->inside.n_steps, c->err);
    float *all = eng_op_scratch(c, (size_t)x->dims[0] * n->n_out * sizeof *all);
    int rc = all ? p->device.results(p, x, all, c->err) : PST_ELIMIT;
    return rc == 0 ? hand_out(c, n, all, x->dims[0]) : rc;
}

static const eng_op net_op = {.domain = "+", .name = "Network", .min_opset = 1, .cost = ENG_COST_LAYERS, .run = run};

bool eng_cuda_net_step_is(const eng_step *s)
{
    return s->node->op == &net_op;
}

bool eng_cuda_net_step_takes(const eng_cuda_net_step *n, const pst_tensor *x)
{
    return x->dtype == PST_F32 && x->rank == 2 && x->dims[0] > 0 && x->dims[1] == n->n_in;
}

/* The file's own nodes, of which n is one or is made. NULL: only counted. */
static int add_parts(const eng_node *n, const eng_node **to)
{
    int count = 0;
    for (int i = 0; i < n->n_parts; i++)
        count += add_parts(n->parts[i], to ? to + count : NULL);
    if (!n->n_parts && to)
        *to = n;
    return n->n_parts ? count : 1;
}

static eng_node *make_node(pst_plan *p, const eng_cuda_net_part *n, const eng_cuda_net_step *state)
{
    eng_node *node = eng_zone_alloc(&p->zone, sizeof *node);
    int n_parts = 0;
    for (size_t i = 0; i < state->inside.n_steps; i++)
        n_parts += add_parts(state->inside.steps[i].node, NULL);
    const eng_node **parts = eng_zone_alloc(&p->zone, (size_t)n_parts * sizeof *parts), **at = parts;
    for (size_t i = 0; i < state->inside.n_steps; i++)
        at += add_parts(state->inside.steps[i].node, at);
    *node = (eng_node){.domain = "+",
                       .op_type = net_op.name,
                       .name = "",
                       .op = &net_op,
                       .n_in = 1,
                       .n_out = (int)n->n_results,
                       .parts = parts,
                       .n_parts = n_parts};
    node->in = eng_zone_alloc(&p->zone, (1 + ENG_CUDA_NET_RESULTS) * sizeof *node->in);
    node->out = node->in + 1;
    node->in[0] = n->in;
    for (uint32_t i = 0; i < n->n_results; i++)
        node->out[i] = n->results[i].id;
    return node;
}

/* What dies in the steps dies in the one, too: in a run on the device nothing of it is there but, perhaps, what the network reads. */
static void add_kills(pst_plan *p, eng_step *s, const eng_prog *inside)
{
    int n = 0;
    for (size_t i = 0; i < inside->n_steps; i++)
        n += inside->steps[i].n_kill;
    s->kill = eng_zone_alloc(&p->zone, ((size_t)n + 1) * sizeof *s->kill);
    for (size_t i = 0; i < inside->n_steps; i++)
        for (int k = 0; k < inside->steps[i].n_kill; k++)
            s->kill[s->n_kill++] = inside->steps[i].kill[k];
}

/* Through the first operation, backwards: what each of its stages must be given. Stages that cannot be turned are passed over. */
static void find_scale(pst_plan *p, const eng_cuda_net_draft *d, eng_cuda_net_step *n)
{
    const eng_cuda_net_op *first = &d->ops[0];
    n->centre = eng_zone_alloc(&p->zone, n->n_in * sizeof *n->centre);
    n->spread = eng_zone_alloc(&p->zone, n->n_in * sizeof *n->spread);
    for (uint32_t c = 0; c < n->n_in; c++) {
        float centre = 0, spread = 1;
        for (uint32_t k = first->n_stages; k-- > 0 && first->n_out == n->n_in;) {
            const eng_cuda_net_stage *s = &d->stages[first->stage + k];
            float b = s->operand == ENG_CUDA_NET_NUMBER ? d->numbers[s->at + s->step * c] : 0, by = b;
            if (s->operand != ENG_CUDA_NET_NUMBER || !isfinite(b))
                continue;
            if (s->code == ENG_TILE_SUB || s->code == ENG_TILE_ADD)
                centre += s->code == ENG_TILE_SUB ? b : -b;
            by = s->code == ENG_TILE_MUL && b != 0 ? 1 / b : s->code == ENG_TILE_DIV && b != 0 ? b : 1;
            centre *= by;
            spread *= by;
        }
        n->centre[c] = centre;
        n->spread[c] = spread;
    }
}

void eng_cuda_net_step_put(pst_plan *p, const eng_cuda_net_part *n, const eng_cuda_net_step **ret)
{
    eng_prog *g = &p->progs[0];
    size_t count = n->to - n->from;
    eng_cuda_net_step *state = eng_zone_alloc(&p->zone, sizeof *state);
    *state = (eng_cuda_net_step){.inside = {.graph = g->graph, .n_steps = count},
                                 .in = n->in,
                                 .n_in = n->draft.n_in,
                                 .n_out = n->draft.n_out,
                                 .n_layers = n->n_layers,
                                 .n_results = n->n_results};
    memcpy(state->results, n->results, sizeof state->results);
    find_scale(p, &n->draft, state);
    state->inside.steps = eng_zone_alloc(&p->zone, (count + 1) * sizeof *state->inside.steps);
    memcpy(state->inside.steps, g->steps + n->from, count * sizeof *g->steps);
    eng_step one;
    pst_err none = {0};
    int rc = eng_step_make(p, make_node(p, n, state), &one, &none);
    PST_ASSERT(rc == 0); /* it prepares nothing */
    one.state = state;
    add_kills(p, &one, &state->inside);
    g->steps[n->from] = one;
    memmove(g->steps + n->from + 1, g->steps + n->to, (g->n_steps - n->to) * sizeof *g->steps);
    g->n_steps -= count - 1;
    g->n_fused += count - 1;
    p->direct.run = NULL; /* it goes past all steps */
    *ret = state;
}

int eng_cuda_net_step_lower(const pst_plan *p, const eng_cuda_net_step *n, eng_cuda_net_part *ret, pst_err *err)
{
    const eng_prog *g = &p->progs[0];
    size_t at = 0, count = n->inside.n_steps;
    const eng_node *in_the_way;
    while (at < g->n_steps && g->steps[at].state != n)
        at++;
    PST_ASSERT(at < g->n_steps);
    eng_prog all = {.graph = g->graph, .n_steps = g->n_steps - 1 + count};
    all.steps = eng_heap_array(all.n_steps + 1, sizeof *all.steps);
    memcpy(all.steps, g->steps, at * sizeof *all.steps);
    memcpy(all.steps + at, n->inside.steps, count * sizeof *all.steps);
    memcpy(all.steps + at + count, g->steps + at + 1, (g->n_steps - at - 1) * sizeof *all.steps);
    int rc = eng_cuda_net_lower(p, &all, ret, &in_the_way, err);
    eng_heap_free(all.steps);
    return rc;
}
