/* cover.c - models whose graph, constants folded, is one tree ensemble or one network of dense layers (net_lower.c), and nodes that the host computes in
 * passing. One step of a plan goes to a device: rows over and back cost more than what a second one could gain. */
#include "engine/cuda/cover.h"

#include "engine/native/native.h"

#include <stdio.h>
#include <string.h>

static bool is_trees(const eng_node *n)
{
    return n->op->cost == ENG_COST_TREES || (n->op->cost == ENG_COST_NATIVE && !((const eng_native *)n->fused)->weights);
}

/* Element by element, or moving data: what the host does in less time than a copy takes. */
static bool is_cheap(const eng_op *op)
{
    switch (op->cost) {
    case ENG_COST_RESULT:
    case ENG_COST_INPUT:
    case ENG_COST_MOVE:
    case ENG_COST_VIEW:
    case ENG_COST_SOFTMAX:
    case ENG_COST_PARTS: return true;
    default: return false;
    }
}

/* Of nodes that were fused the first is named. */
static const eng_node *first_part(const eng_node *n)
{
    return n->n_parts ? first_part(n->parts[0]) : n;
}

static const char *name_of(const eng_node *n)
{
    return *n->name ? n->name : "without a name";
}

static int not_covered(pst_err *err, const eng_node *n, const char *why)
{
    n = first_part(n);
    return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "cuda", 0, "no device computes this model: node %.80s (%.40s): %s",
                       name_of(n), n->op_type, why);
}

static bool has_graph(const eng_node *n)
{
    for (int k = 0; k < n->n_attrs; k++)
        if (n->attrs[k].graph)
            return true;
    return false;
}

/* ---- the file ---- */

static const char what_runs[] = "models of one tree ensemble, or of dense layers, run on a device";

/* What may stand in a model of dense layers. Whether these are such as a kernel has shows when it is lowered. */
static bool may_be_of_net(const eng_node *n)
{
    return is_cheap(n->op) || n->op->cost == ENG_COST_GEMM || n->op->cost == ENG_COST_NORM;
}

static int look_for_layers(const eng_graph *g, pst_err *err)
{
    size_t products = 0;
    char why[120];
    snprintf(why, sizeof why, "%s, and this is neither", what_runs);
    for (size_t i = 0; i < g->n_nodes; i++) {
        products += g->nodes[i].op->cost == ENG_COST_GEMM;
        if (!may_be_of_net(&g->nodes[i]))
            return not_covered(err, &g->nodes[i], why);
    }
    return products ? 0
                    : pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "cuda", 0,
                                  "no device computes this model: %s, and this one has neither", what_runs);
}

int eng_cuda_covers_file(const pst_model *m, pst_err *err)
{
    const eng_graph *g = &m->graph;
    size_t trees = 0;
    if (m->foreign)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "cuda", 0,
                           "no device computes this model: the engine does not cover it");
    for (size_t i = 0; i < g->n_nodes; i++)
        if (is_trees(&g->nodes[i]) && ++trees == 2)
            return not_covered(err, &g->nodes[i], "a second tree ensemble; models of one run on a device");
    return trees ? 0 : look_for_layers(g, err);
}

/* ---- trees of a compiled plan ---- */

/* What the trees are given: float, or what a native file wants. */
static int judge_trees(const eng_forest *f, const eng_step *s, pst_dtype given, pst_err *err)
{
    if (given == (f->wide ? PST_F64 : PST_F32))
        return 0;
    return not_covered(err, s->node, "on a device trees take float32 values, and these get others");
}

/* The model's own input, where it is one. */
static int judge_input(const pst_plan *p, const eng_step *s, pst_err *err)
{
    const pst_model *m = p->m;
    for (size_t i = 0; i < m->info.n_inputs; i++)
        if (m->graph.in[i] == s->node->in[0] && m->info.inputs[i].dtype)
            return judge_trees(s->state, s, m->info.inputs[i].dtype, err);
    return 0;
}

/* Two classes: the CPU asks of each row whether the second got a weight. The device does not tell; it must be so for all leaves, or for none. */
static int judge_classes(const eng_step *s, pst_err *err)
{
    const eng_forest *f = s->state;
    int32_t with = 0;
    if (strcmp(s->node->op_type, "TreeEnsembleClassifier") != 0 || f->n_targets != 2)
        return 0;
    for (int32_t i = 0; i < f->n_leaves; i++) {
        bool has = false;
        for (int32_t k = 0; k < f->leaves[i].n; k++)
            has |= f->weights[f->leaves[i].at + k].target == 1;
        with += has;
    }
    return with == 0 || with == f->n_leaves ? 0 : not_covered(err, s->node, "some of its leaves weigh the second class and some do not");
}

static int find_trees(const pst_plan *p, size_t at, eng_cuda_task *ret, pst_err *err)
{
    const eng_prog *g = &p->progs[0];
    const eng_step *trees = &g->steps[at];
    for (size_t i = 0; i < g->n_steps; i++) {
        const eng_node *n = g->steps[i].node;
        PST_ASSERT(i == at || !is_trees(n)); /* the file was looked at */
        if (i != at && !is_cheap(n->op))
            return not_covered(err, n, "besides one tree ensemble only cheap nodes may be there, which the host computes");
        if (has_graph(n))
            return not_covered(err, n, "it has a graph of its own");
    }
    *ret = eng_cuda_task_of_trees(trees->state);
    int rc = judge_input(p, trees, err);
    return rc == 0 ? judge_classes(trees, err) : rc;
}

/* ---- a network of a compiled plan ---- */

/* A node that is dear and not of the network: either the one that ended it, or one behind that. */
static int beside_net(const eng_cuda_net_part *n, size_t at, const eng_node *node, pst_err *err)
{
    char why[300];
    if (n->end && at == n->to)
        return not_covered(err, n->end, n->why);
    if (!n->end || at < n->from)
        return not_covered(err, node, "besides one network of dense layers only cheap nodes may be there, which the host computes");
    snprintf(why, sizeof why, "a device computes one network, and this model's ends before node %.60s (%.40s): %.90s", name_of(n->end),
             n->end->op_type, n->why);
    return not_covered(err, node, why);
}

static int judge_rest(const pst_plan *p, const eng_cuda_net_part *n, pst_err *err)
{
    const eng_prog *g = &p->progs[0];
    for (size_t i = 0; i < g->n_steps; i++) {
        const eng_node *node = g->steps[i].node;
        bool of_net = i >= n->from && i < n->to;
        if (!of_net && !is_cheap(node->op))
            return beside_net(n, i, node, err);
        if (has_graph(node))
            return not_covered(err, node, "it has a graph of its own");
    }
    return 0;
}

static int find_net(pst_plan *p, eng_cuda_task *ret, size_t *ret_at, pst_err *err)
{
    eng_cuda_net_part *n = eng_heap_alloc(sizeof *n);
    const eng_node *in_the_way;
    const eng_cuda_net_step *step;
    pst_err why = {0};
    int rc = eng_cuda_net_lower(p, &p->progs[0], n, &in_the_way, &why);
    if (rc < 0)
        rc = not_covered(err, in_the_way, why.text);
    else if ((rc = judge_rest(p, n, err)) == 0) {
        eng_cuda_net_step_put(p, n, &step);
        *ret_at = n->from;
        *ret = eng_cuda_task_of_net(p, step, n->from);
    }
    eng_cuda_net_part_done(n);
    eng_heap_free(n);
    return rc;
}

int eng_cuda_find_task(pst_plan *p, eng_cuda_task *ret, size_t *ret_at, pst_err *err)
{
    const eng_prog *g = &p->progs[0];
    if (!g->n_steps)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "cuda", 0, "no device computes this model: its result is a constant");
    for (size_t i = 0; i < g->n_steps; i++)
        if (is_trees(g->steps[i].node)) {
            *ret_at = i;
            return find_trees(p, i, ret, err);
        }
    return find_net(p, ret, ret_at, err);
}

/* ---- the rows of a run ---- */

int eng_cuda_judge_type(const eng_cuda_task *t, const eng_step *s, const pst_tensor *x, pst_err *err)
{
    if (!eng_cuda_task_is_net(t))
        return judge_trees(t->of, s, x->dtype, err);
    if (x->dtype == PST_F32 && x->rank == 2)
        return 0;
    return not_covered(err, s->node, "on a device a network takes a float32 matrix of rows, and this one gets other values");
}

bool eng_cuda_rows_fit(const eng_cuda_task *t, const pst_tensor *x)
{
    if (eng_cuda_task_is_net(t))
        return eng_cuda_net_step_takes(t->of, x);
    return (x->rank == 1 || x->rank == 2) && eng_cuda_rows_in(x) > 0 && eng_cuda_cols_in(x) >= t->cols;
}
