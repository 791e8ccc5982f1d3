/* step.c - a node made ready to run: where its values lie, and what its operator prepares once per plan. */
#include "engine/plan.h"

/* Without the operator's prepare. */
static void make_step(pst_plan *p, const eng_node *n, eng_step *s)
{
    eng_zone *z = &p->zone;
    *s = (eng_step){.node = n, .run = n->op->run, .n_in = n->n_in, .n_out = n->n_out, .half = n->op->flags & ENG_OP_HALF};
    s->in = eng_zone_alloc(z, ((size_t)n->n_in + 1) * sizeof *s->in);
    s->out = eng_zone_alloc(z, ((size_t)n->n_out + 1) * sizeof *s->out);
    s->dummy = eng_zone_alloc(z, ((size_t)n->n_out + 1) * sizeof *s->dummy);
    s->wanted = eng_zone_alloc(z, (size_t)n->n_out + 1);
    s->dies = eng_zone_alloc(z, (size_t)n->n_in + 1);
    PST_ASSERT(n->op && n->op->run);
    for (int k = 0; k < n->n_in; k++)
        PST_ASSERT(n->in[k] < p->m->n_values);
    for (int k = 0; k < n->n_out; k++)
        PST_ASSERT(n->out[k] < p->m->n_values);
    for (int k = 0; k < n->n_in; k++)
        s->in[k] = n->in[k] >= 0 ? &p->vals[n->in[k]] : NULL;
    for (int k = 0; k < n->n_out; k++) {
        s->wanted[k] = n->out[k] >= 0;
        s->out[k] = n->out[k] >= 0 ? &p->vals[n->out[k]] : &s->dummy[k];
    }
}

static int prepare_step(pst_plan *p, eng_step *s, pst_err *err)
{
    if (!s->node->op->prepare)
        return 0;
    eng_blk *mark = p->scratch;
    eng_op_ctx c = {.node = s->node,
                    .plan = p,
                    .in = s->in,
                    .n_in = s->n_in,
                    .out = s->out,
                    .wanted = s->wanted,
                    .n_out = s->n_out,
                    .state = &s->state,
                    .err = err};
    int rc = s->node->op->prepare(&c);
    eng_scratch_free(p, mark);
    s->kernel = c.kernel;
    s->note = c.note;
    return rc;
}

int eng_step_make(pst_plan *p, const eng_node *n, eng_step *s, pst_err *err)
{
    make_step(p, n, s);
    return prepare_step(p, s, err);
}
