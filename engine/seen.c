/* seen.c - what a run shows of its steps when it is asked to: shapes, bytes, time, and the operations that the shapes mean. Called by
 * exec.c around a step; shape_observe.c makes such runs. Operations are those that the result needs, not those that a kernel spends. */
#include "engine/seen.h"

#include "engine/native/native.h"

#include <math.h>
#include <string.h>
#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- cost ---- */

static double count_of(const pst_tensor *t)
{
    return t ? (double)eng_count(t) : 0;
}

static double bytes_of(const pst_tensor *t)
{
    return t ? count_of(t) * (double)pst_dtype_size(t->dtype) : 0;
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
    double k = x && x->rank ? (double)x->dims[eng_attr_int(n, "transA", 0) ? 0 : x->rank - 1] : 0;
    return count_of(y) * (2 * k + (!strcmp(n->op_type, "Gemm") && bias && bias->rank >= 0));
}

static double flops_of(const pst_plan *p, const eng_node *n, const eng_seen *s, const pst_tensor *y)
{
    const pst_tensor *x = s->n_in > 0 ? &s->in[0] : NULL, *w = s->n_in > 1 ? &s->in[1] : NULL, *r = s->n_in > 2 ? &s->in[2] : NULL;
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
    case ENG_COST_PARTS: return count_of(y) * n->n_parts;
    }
    return 0;
}

/* ---- around a step ---- */

void eng_seen_before(eng_step *s)
{
    eng_seen *e = s->seen;
    if (!e)
        return;
    e->n_in = 0;
    for (int i = 0; i < s->n_in && i < ENG_SEEN_INPUTS; i++) {
        bool tensor = s->in[i] && s->in[i]->kind == ENG_VAL_TENSOR;
        e->in[e->n_in++] = tensor ? s->in[i]->t : (pst_tensor){.rank = -1};
        if (!tensor)
            e->in[i].dims[0] = 0;
    }
    e->started_ns = now_ns();
}

void eng_seen_after(const pst_plan *p, eng_step *s)
{
    eng_seen *e = s->seen;
    if (!e)
        return;
    e->ns += now_ns() - e->started_ns;
    e->runs++;
    const pst_tensor *y = NULL;
    bool views = true;
    for (int i = 0; i < s->n_out; i++) {
        const eng_val *v = s->out[i];
        if (v->kind != ENG_VAL_TENSOR)
            continue;
        y = y ? y : &v->t;
        bool view = false; /* the same bytes under another shape, or another name; not written over an input that dies */
        for (int q = 0; q < e->n_in; q++)
            view |= e->in[q].rank >= 0 && e->in[q].data == v->t.data && s->node->op->cost == ENG_COST_VIEW;
        views &= view;
        e->bytes += view ? 0 : bytes_of(&v->t);
        e->out_bytes += view ? 0 : bytes_of(&v->t);
    }
    for (int i = 0; i < e->n_in && !views; i++)
        e->bytes += e->in[i].rank >= 0 ? bytes_of(&e->in[i]) : 0;
    e->flops += flops_of(p, s->node, e, y);
    e->has_out = y != NULL;
    if (y)
        e->out = *y;
    e->is_seq = s->n_out && s->out[0]->kind == ENG_VAL_SEQ;
}
