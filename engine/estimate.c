/* estimate.c - what a model costs, from its file alone. A guess is a tensor without data for each value; a rule takes the guesses of a node's inputs and gives that of its
 * results. Rules are short because they may be wrong: what a kernel checks and refuses is not looked at here, only kept from doing harm. */
#include "engine/estimate.h"

#include "engine/cost.h"

#include <string.h>

enum { INPUTS_MAX = 8, DIM_MAX = 1 << 30 };

typedef struct guess {
    const pst_plan *p;
    const eng_node *node;
    pst_tensor in[INPUTS_MAX]; /* rank -1 = not given */
    int n_in;
} guess;

static double numbers_of(const pst_tensor *t)
{
    double n = t->rank >= 0;
    for (int i = 0; i < t->rank; i++)
        n *= (double)t->dims[i];
    return n;
}

static bool has(const guess *g, int i)
{
    return i < g->n_in && g->in[i].rank >= 0;
}

/* A constant of integers as they stand in the file, or in an attribute. */
static const int64_t *ints_of(const guess *g, int input, const char *attr, size_t *ret_n)
{
    int id = input >= 0 && input < g->node->n_in ? g->node->in[input] : -1;
    const pst_tensor *t = id >= 0 ? g->p->m->values[id].konst : NULL;
    *ret_n = t && t->dtype == PST_I64 ? (size_t)eng_count(t) : 0;
    return *ret_n ? t->data : eng_attr_ints(g->node, attr, ret_n);
}

static pst_tensor widest(const guess *g)
{
    pst_tensor best = {.rank = 0};
    for (int i = 0; i < g->n_in; i++)
        if (has(g, i) && numbers_of(&g->in[i]) >= numbers_of(&best))
            best = g->in[i];
    return best;
}

/* The last dimension becomes n, rows stay. */
static pst_tensor with_last(pst_tensor x, int64_t n)
{
    if (x.rank > 0)
        x.dims[x.rank - 1] = n;
    return x;
}

static pst_tensor product(const guess *g)
{
    pst_tensor x = g->in[0];
    const pst_tensor *w = &g->in[1];
    if (!has(g, 1) || x.rank < 1 || w->rank < 1)
        return widest(g);
    bool gemm = !strcmp(g->node->op_type, "Gemm");
    if (gemm && x.rank == 2 && eng_attr_int(g->node, "transA", 0)) {
        int64_t rows = x.dims[1];
        x.dims[1] = x.dims[0];
        x.dims[0] = rows;
    }
    int last = w->rank - 1, before = last > 0 ? last - 1 : 0;
    return with_last(x, w->dims[gemm && eng_attr_int(g->node, "transB", 0) ? before : last]);
}

/* Attributes of a hostile file are multiplied like all others. */
static int64_t within(int64_t v, int64_t least)
{
    return v < least ? least : v < DIM_MAX ? v : DIM_MAX;
}

/* Spatial dimensions of x under windows k; channels stay. */
static pst_tensor windowed(const guess *g, const int64_t *k, size_t n_k)
{
    size_t n_stride, n_dil, n_pads;
    pst_tensor y = g->in[0];
    const int64_t *stride = eng_attr_ints(g->node, "strides", &n_stride), *dil = eng_attr_ints(g->node, "dilations", &n_dil),
                  *pads = eng_attr_ints(g->node, "pads", &n_pads);
    size_t n = y.rank > 2 ? (size_t)y.rank - 2 : 0;
    bool same = !strncmp(eng_attr_str(g->node, "auto_pad", ""), "SAME", 4);
    for (size_t i = 0; i < n && i < n_k; i++) {
        int64_t *d = &y.dims[i + 2], step = i < n_stride ? within(stride[i], 1) : 1,
                reach = (within(k[i], 1) - 1) * (i < n_dil ? within(dil[i], 1) : 1) + 1, room = *d - reach;
        if (n_pads >= 2 * n)
            room += within(pads[i], 0) + within(pads[i + n], 0);
        if (same)
            *d = (*d + step - 1) / step;
        else
            *d = room < 0 ? 0 : room / step + 1;
    }
    return y;
}

static pst_tensor convolved(const guess *g)
{
    if (!has(g, 1) || g->in[0].rank < 3 || g->in[1].rank != g->in[0].rank)
        return widest(g);
    pst_tensor y = windowed(g, g->in[1].dims + 2, (size_t)g->in[1].rank - 2);
    y.dims[1] = g->in[1].dims[0];
    return y;
}

static pst_tensor pooled(const guess *g)
{
    size_t n;
    const int64_t *k = eng_attr_ints(g->node, "kernel_shape", &n);
    return windowed(g, k, k ? n : 0);
}

static pst_tensor pooled_whole(const guess *g)
{
    pst_tensor y = g->in[0];
    for (int i = 2; i < y.rank; i++)
        y.dims[i] = 1;
    return y;
}

static pst_tensor turned(const guess *g)
{
    size_t n;
    const int64_t *perm = eng_attr_ints(g->node, "perm", &n);
    pst_tensor x = g->in[0], y = x;
    for (int i = 0; i < x.rank; i++) {
        int64_t from = perm && n == (size_t)x.rank ? perm[i] : x.rank - 1 - i;
        y.dims[i] = from >= 0 && from < x.rank ? x.dims[from] : 1;
    }
    return y;
}

/* A target that is no constant follows the data: the numbers stay, as they lie. */
static pst_tensor reshaped(const guess *g)
{
    size_t n;
    const int64_t *to = ints_of(g, 1, "shape", &n);
    pst_tensor x = g->in[0], y = {.dtype = x.dtype, .rank = (int)n};
    double known = 1;
    if (!to || n > PST_MAX_RANK)
        return x;
    for (size_t i = 0; i < n; i++) {
        y.dims[i] = to[i] == 0 && (int)i < x.rank ? x.dims[i] : to[i];
        known *= y.dims[i] > 0 ? (double)y.dims[i] : 1;
    }
    for (size_t i = 0; i < n; i++)
        if (y.dims[i] < 0)
            y.dims[i] = known > 0 ? (int64_t)(numbers_of(&x) / known) : 0;
    return y;
}

static bool named(const int64_t *axes, size_t n, int axis, int rank)
{
    for (size_t k = 0; k < n; k++)
        if (axes[k] == axis || axes[k] == axis - rank)
            return true;
    return false;
}

static pst_tensor squeezed(const guess *g)
{
    size_t n;
    const int64_t *axes = ints_of(g, 1, "axes", &n);
    pst_tensor x = g->in[0], y = {.dtype = x.dtype};
    for (int i = 0; i < x.rank; i++)
        if (axes ? !named(axes, n, i, x.rank) : x.dims[i] != 1)
            y.dims[y.rank++] = x.dims[i];
    return y;
}

static pst_tensor unsqueezed(const guess *g)
{
    size_t n;
    const int64_t *axes = ints_of(g, 1, "axes", &n);
    pst_tensor x = g->in[0], y = {.dtype = x.dtype};
    int from = 0, rank = x.rank + (int)(n < PST_MAX_RANK ? n : PST_MAX_RANK);
    if (!axes || rank > PST_MAX_RANK)
        return x;
    for (; y.rank < rank; y.rank++) {
        bool fresh = named(axes, n, y.rank, rank) || from == x.rank;
        y.dims[y.rank] = fresh ? 1 : x.dims[from];
        from += !fresh;
    }
    return y;
}

static pst_tensor flattened(const guess *g)
{
    pst_tensor x = g->in[0], y = {.dtype = x.dtype, .rank = 2};
    int64_t axis = eng_attr_int(g->node, "axis", 1);
    y.dims[0] = 1;
    for (int i = 0; i < x.rank && i < (axis < 0 ? axis + x.rank : axis); i++)
        y.dims[0] *= x.dims[i];
    y.dims[1] = y.dims[0] > 0 ? (int64_t)(numbers_of(&x) / (double)y.dims[0]) : 0;
    return y;
}

static pst_tensor reduced(const guess *g)
{
    size_t n;
    const int64_t *axes = ints_of(g, 1, "axes", &n);
    pst_tensor y = g->in[0];
    for (int i = 0; i < y.rank; i++)
        if (!axes || named(axes, n, i, y.rank))
            y.dims[i] = 1;
    return y; /* without keepdims the numbers are the same */
}

/* Input 0 with the indices in the place of one axis. */
static pst_tensor gathered(const guess *g)
{
    pst_tensor x = g->in[0], y = {.dtype = x.dtype};
    int64_t axis = eng_attr_int(g->node, "axis", 0);
    axis += axis < 0 ? x.rank : 0;
    if (!has(g, 1) || axis < 0 || axis >= x.rank || x.rank - 1 + g->in[1].rank > PST_MAX_RANK)
        return widest(g);
    for (int i = 0; i < axis; i++)
        y.dims[y.rank++] = x.dims[i];
    for (int i = 0; i < g->in[1].rank; i++)
        y.dims[y.rank++] = g->in[1].dims[i];
    for (int i = (int)axis + 1; i < x.rank; i++)
        y.dims[y.rank++] = x.dims[i];
    return y;
}

static pst_tensor joined(const guess *g)
{
    pst_tensor y = g->in[0];
    int64_t axis = eng_attr_int(g->node, "axis", 1);
    axis += axis < 0 ? y.rank : 0;
    for (int i = 1; i < g->n_in && axis >= 0 && axis < y.rank; i++)
        if (g->in[i].rank == y.rank)
            y.dims[axis] += g->in[i].dims[axis];
    return y;
}

/* (T, B, I) of weights (directions, gates, I) and states (directions, gates, hidden): (T, directions, B, hidden). */
static pst_tensor recurrent(const guess *g)
{
    const pst_tensor *x = &g->in[0], *r = &g->in[2];
    if (!has(g, 2) || x->rank != 3 || r->rank != 3)
        return widest(g);
    int64_t hidden = pst_dtype_size(r->dtype) == 1 ? r->dims[1] : r->dims[2]; /* weights of bytes stand the other way round */
    return (pst_tensor){.dtype = x->dtype, .rank = 4, .dims = {x->dims[0], r->dims[0], x->dims[1], hidden}};
}

/* Of (T, …): what the cells hold at the end, their further results. */
static pst_tensor last_state(pst_tensor y)
{
    for (int i = 1; i < y.rank; i++)
        y.dims[i - 1] = y.dims[i];
    y.rank -= y.rank > 0;
    return y;
}

/* One number, or a few, for each row. */
static pst_tensor per_row(const guess *g)
{
    pst_tensor x = g->in[0];
    return (pst_tensor){.dtype = PST_F32, .rank = 2, .dims = {x.rank > 0 ? x.dims[0] : 1, 1}};
}

static pst_tensor result_of(const guess *g)
{
    if (!has(g, 0))
        return widest(g);
    switch (g->node->op->shape) {
    case ENG_SHAPE_WIDEST: return widest(g);
    case ENG_SHAPE_PRODUCT: return product(g);
    case ENG_SHAPE_CONV: return convolved(g);
    case ENG_SHAPE_POOL: return pooled(g);
    case ENG_SHAPE_POOL_WHOLE: return pooled_whole(g);
    case ENG_SHAPE_TURNED: return turned(g);
    case ENG_SHAPE_RESHAPED: return reshaped(g);
    case ENG_SHAPE_SQUEEZED: return squeezed(g);
    case ENG_SHAPE_UNSQUEEZED: return unsqueezed(g);
    case ENG_SHAPE_FLAT: return flattened(g);
    case ENG_SHAPE_REDUCED: return reduced(g);
    case ENG_SHAPE_GATHERED: return gathered(g);
    case ENG_SHAPE_JOINED: return joined(g);
    case ENG_SHAPE_RECURRENT: return recurrent(g);
    case ENG_SHAPE_ROWS: return per_row(g);
    }
    return widest(g);
}

/* ---- the walk ---- */

typedef struct walk {
    const pst_plan *p;
    int64_t rows;
    eng_work work;
} walk;

/* Guesses are multiplied: a hostile file's do not overflow. */
static pst_tensor bounded(pst_tensor t)
{
    for (int i = 0; i < t.rank; i++)
        t.dims[i] = t.dims[i] < 0 ? 1 : within(t.dims[i], 0);
    if (numbers_of(&t) > 1e15)
        t = (pst_tensor){.dtype = t.dtype, .rank = 1, .dims = {DIM_MAX}};
    return t;
}

static double bytes_of(const pst_tensor *t)
{
    size_t size = pst_dtype_size(t->dtype);
    return numbers_of(t) * (double)(size ? size : sizeof(float));
}

static pst_tensor of_input(const pst_value_info *v, int64_t rows)
{
    pst_tensor t = {.dtype = v->dtype, .rank = v->rank > 0 ? v->rank : 0};
    for (int i = 0; i < t.rank; i++)
        if (v->dims[i] >= 0)
            t.dims[i] = v->dims[i];
        else /* free: the first is the batch's, the others are left at their least */
            t.dims[i] = i == 0 ? rows : 1;
    return bounded(t);
}

static void count_node(walk *w, const eng_node *n, pst_tensor *values)
{
    guess g = {.p = w->p, .node = n};
    for (; g.n_in < n->n_in && g.n_in < INPUTS_MAX; g.n_in++)
        g.in[g.n_in] = n->in[g.n_in] >= 0 ? values[n->in[g.n_in]] : (pst_tensor){.rank = -1};
    pst_tensor y = bounded(result_of(&g));
    double ops = eng_flops(w->p, n, g.in, g.n_in, &y);
    switch (n->op->cost) {
    case ENG_COST_TREES:
    case ENG_COST_NATIVE: w->work.visits += ops; break;
    case ENG_COST_GEMM:
    case ENG_COST_CONV:
    case ENG_COST_CONV_TURNED:
    case ENG_COST_RNN:
    case ENG_COST_ATTENTION:
    case ENG_COST_LINEAR:
    case ENG_COST_LAYERS: w->work.dense += ops; break;
    default: w->work.other += ops; break;
    }
    for (int i = 0; i < g.n_in; i++)
        w->work.moved += n->op->cost == ENG_COST_VIEW || !has(&g, i) ? 0 : bytes_of(&g.in[i]);
    w->work.moved += n->op->cost == ENG_COST_VIEW ? 0 : bytes_of(&y);
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0)
            values[n->out[k]] = k && n->op->shape == ENG_SHAPE_RECURRENT ? last_state(y) : y;
}

static int walk_body(void *arg, pst_err *err)
{
    walk *w = arg;
    const pst_model *m = w->p->m;
    pst_tensor *values = eng_heap_array((size_t)m->n_values + 1, sizeof *values);
    for (int i = 0; i < m->n_values; i++)
        if (m->values[i].konst) {
            values[i] = bounded(*m->values[i].konst);
            w->work.weights += bytes_of(&values[i]);
        }
    for (size_t i = 0; i < m->info.n_inputs; i++) {
        values[m->graph.in[i]] = of_input(&m->info.inputs[i], w->rows);
        w->work.in += bytes_of(&values[m->graph.in[i]]);
    }
    for (size_t i = 0; i < m->graph.n_nodes; i++)
        if (m->graph.nodes[i].op)
            count_node(w, &m->graph.nodes[i], values);
    for (int i = 0; i < m->graph.n_out; i++)
        w->work.out += bytes_of(&values[m->graph.out[i]]);
    w->work.nodes = m->graph.n_nodes;
    return 0;
}

int eng_estimate(const pst_plan *p, int64_t rows, eng_work *ret, pst_err *err)
{
    walk w = {.p = p, .rows = rows};
    eng_heap heap = {0};
    int rc = eng_heap_run(&heap, walk_body, &w, err);
    eng_heap_release(&heap);
    *ret = w.work;
    return rc;
}

/* What the model says, or what a scorer's batches usually have. */
int64_t eng_estimate_rows(const pst_model *m)
{
    enum { ROWS = 256 };
    const pst_value_info *in = m->info.inputs;
    return m->info.n_inputs && in->rank > 0 && in->dims[0] >= 0 ? in->dims[0] : ROWS;
}
