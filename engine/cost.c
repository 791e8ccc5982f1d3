/* cost.c - the operations that a node's result needs, by the class of cost in its row of the table (ops/op_table.def): not those that a kernel
 * spends. Shapes are given: those that a run showed (seen.c) or those that were guessed before one (estimate.c). */
#include "engine/cost.h"

#include "engine/last.h"

#include "engine/native/native.h"

#include <math.h>
#include <string.h>

static double count_of(const pst_tensor *t)
{
    return t ? (double)eng_count(t) : 0;
}

static double window_of(const eng_node *n)
{
    size_t k;
    const int64_t *v = eng_attr_ints(n, "kernel_shape", &k);
    double w = 1;
    for (size_t i = 0; i < k; i++)
        w *= (double)v[i];
    return w;
}

/* Results of a convolution for each one of the pool that was taken into it: windows that do not overlap. */
static double pooled_by(const eng_node *n)
{
    double by = 1;
    for (int i = 0; i < n->n_parts; i++) {
        size_t k = 0;
        const int64_t *stride = !strcmp(n->parts[i]->op_type, "MaxPool") ? eng_attr_ints(n->parts[i], "strides", &k) : NULL;
        for (size_t d = 0; stride && d < k; d++)
            by *= (double)stride[d];
    }
    return by;
}

/* Comparisons on the way down, from the sizes in the file: trees times the depth of trees as full as these. */
static double tree_steps(const eng_node *n)
{
    size_t n_ids, n_roots, n_splits;
    const int64_t *ids = eng_attr_ints(n, "nodes_treeids", &n_ids);
    double trees = 0;
    for (size_t i = 0; i < n_ids; i++)
        trees += !i || ids[i] != ids[i - 1];
    if (!ids) {
        eng_attr_ints(n, "tree_roots", &n_roots);
        eng_attr_ints(n, "nodes_featureids", &n_splits);
        trees = (double)n_roots;
        n_ids = 2 * n_splits;
    }
    return trees > 0 ? trees * log2((double)n_ids / trees / 2 + 1) : 0;
}

static double rows_of(const pst_tensor *x)
{
    return x && x->rank > 0 && x->dims[x->rank - 1] ? count_of(x) / (double)x->dims[x->rank - 1] : 1;
}

/* A chain of layers: every layer's products, one operation per number for the rest. */
static double mlp_flops(const pst_plan *p, const eng_node *n, const pst_tensor *x)
{
    double rows = rows_of(x), width = x && x->rank ? (double)x->dims[x->rank - 1] : 1, sum = 0;
    for (int i = 0; i < n->n_parts; i++) {
        const eng_node *q = n->parts[i];
        bool dense = !strcmp(q->op_type, "Gemm") || !strcmp(q->op_type, "MatMul");
        if (dense && p->vals[q->in[1]].kind == ENG_VAL_TENSOR) {
            const pst_tensor *w = &p->vals[q->in[1]].t;
            sum += rows * 2 * count_of(w);
            width = width > 0 ? count_of(w) / width : 0;
        }
        if (!dense || q->n_in > 2)
            sum += rows * width;
    }
    return sum;
}

static double native_flops(const eng_native *m, const pst_tensor *x)
{
    double trees = (double)m->forest.n_trees;
    return rows_of(x) * (m->weights  ? 2.0 * m->n_features * m->n_groups
                         : trees > 0 ? trees * log2((double)m->forest.n_nodes / trees + 1)
                                     : 0);
}

static double linear_flops(const eng_node *n, const pst_tensor *x)
{
    size_t coefs;
    eng_attr_floats(n, "coefficients", &coefs);
    return 2 * rows_of(x) * (double)coefs;
}

/* A third input of MatMul's kin is no bias. */
static double gemm_flops(const eng_node *n, const pst_tensor *x, const pst_tensor *bias, const pst_tensor *y)
{
    int summed = !x || eng_attr_int(n, "transA", 0) ? 0 : x->rank - 1; /* the dimension that both sides share */
    double k = x && x->rank > 0 ? (double)x->dims[summed] : 0;
    return count_of(y) * (2 * k + (!strcmp(n->op_type, "Gemm") && bias && bias->rank >= 0));
}

double eng_flops(const pst_plan *p, const eng_node *n, const pst_tensor *in, int n_in, const pst_tensor *y)
{
    const pst_tensor *x = n_in > 0 ? &in[0] : NULL, *w = n_in > 1 ? &in[1] : NULL, *r = n_in > 2 ? &in[2] : NULL;
    bool filters = w && w->rank > 1 && w->dims[0];
    switch (n->op->cost) {
    case ENG_COST_RESULT: return count_of(y);
    case ENG_COST_INPUT: return count_of(x);
    case ENG_COST_MOVE:
    case ENG_COST_VIEW: return 0;
    case ENG_COST_GEMM: return gemm_flops(n, x, r, y);
    case ENG_COST_CONV: return filters ? 2 * count_of(y) * pooled_by(n) * count_of(w) / (double)w->dims[0] : 0;
    case ENG_COST_CONV_TURNED: return filters ? 2 * count_of(x) * count_of(w) / (double)w->dims[0] : 0;
    case ENG_COST_RNN: return x && x->rank == 3 ? 2 * (double)(x->dims[0] * x->dims[1]) * (count_of(w) + count_of(r)) : 0;
    case ENG_COST_ATTENTION: return w && w->rank > 1 ? 4 * count_of(x) * (double)w->dims[w->rank - 2] : 0;
    case ENG_COST_TREES: return rows_of(x) * tree_steps(n);
    case ENG_COST_NATIVE: return native_flops(n->fused, x);
    case ENG_COST_LINEAR: return linear_flops(n, x);
    case ENG_COST_WINDOW: return count_of(y) * window_of(n);
    case ENG_COST_NORM: return 8 * count_of(y);
    case ENG_COST_SOFTMAX: return 5 * count_of(y);
    case ENG_COST_LAYERS: return mlp_flops(p, n, x);
    case ENG_COST_LAST: return x && x->rank > 0 ? (double)x->dims[0] * *((const eng_last_part *)n->fused)->flops : 0;
    case ENG_COST_PARTS: return count_of(y) * n->n_parts;
    }
    return 0;
}
