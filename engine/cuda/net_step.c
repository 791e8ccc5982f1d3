/* net_step.c - a network as a step. The plan stays the CPU's: what was compiled for it stands behind the step and runs when no device is asked, so that
 * the CPU takes over between two runs, or in one, as it does from trees. */
#include "engine/cuda/net_step.h"

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

static eng_node *make_node(pst_plan *p, const eng_cuda_net_part *n, const eng_cuda_net_step *state)
{
    eng_node *node = eng_zone_alloc(&p->zone, sizeof *node);
    const eng_node **parts = eng_zone_alloc(&p->zone, (state->inside.n_steps + 1) * sizeof *parts);
    for (size_t i = 0; i < state->inside.n_steps; i++)
        parts[i] = state->inside.steps[i].node;
    *node = (eng_node){.domain = "+",
                       .op_type = net_op.name,
                       .name = "",
                       .op = &net_op,
                       .n_in = 1,
                       .n_out = (int)n->n_results,
                       .parts = parts,
                       .n_parts = (int)state->inside.n_steps};
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

void eng_cuda_net_step_put(pst_plan *p, const eng_cuda_net_part *n, const eng_cuda_net_step **ret)
{
    eng_prog *g = &p->progs[0];
    size_t count = n->to - n->from;
    eng_cuda_net_step *state = eng_zone_alloc(&p->zone, sizeof *state);
    *state = (eng_cuda_net_step){
        .inside = {.graph = g->graph, .n_steps = count}, .n_in = n->draft.n_in, .n_out = n->draft.n_out, .n_results = n->n_results};
    memcpy(state->results, n->results, sizeof state->results);
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
    p->direct.run = NULL; /* it goes past all steps */
    *ret = state;
}
