/* fuse_norm.c - row normalisations on the last axis with vector loops: LayerNormalization and Softmax nodes, and layer normalisation
 * as exporters before opset 17 wrote it:
 *
 *     d = x - ReduceMean(x); y = d / Sqrt(ReduceMean(d²) + eps) [· scale] [+ bias]
 *
 * A residual that is added to make x, and a number that a softmax's input is divided by or multiplied with, are taken in when nothing
 * else reads the value in between: x then never exists as a whole.
 *
 * Statistics in double like the plain kernels, so the results differ in the last place only. What does not fit at run time (other
 * types, other axes, wider scales) goes to the nodes themselves. */
#include "engine/plan.h"

#include "engine/fuse_tile.h"

#include <stdio.h>
#include <string.h>

typedef struct row_norm {
    bool softmax;
    int64_t axis;
    double eps;
    eng_tile_code before; /* ENG_TILE_CODES = nothing; ADD of input 3; MUL or DIV by `by` */
    float by;
} row_norm;

typedef struct norm_state {
    eng_step *parts;
    const eng_tile_kernels *kernels;
} norm_state;

static int prepare_norm(eng_op_ctx *c)
{
    norm_state *s = eng_op_keep(c, sizeof *s);
    *c->state = s;
    s->kernels = eng_tile_pick(c->plan->isa);
    c->kernel = "vector rows";
    return 0;
}

/* A scale or bias: one number per column, which adds no dimension. */
static bool per_column(const pst_tensor *t, const pst_tensor *x, int64_t n)
{
    return t->dtype == PST_F32 && t->rank >= 1 && t->rank <= x->rank && t->dims[t->rank - 1] == n && eng_count(t) == n;
}

static bool same_shape(const pst_tensor *a, const pst_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims);
}

static int run_norm(eng_op_ctx *c)
{
    const row_norm *g = c->node->fused;
    norm_state *s = *c->state;
    const pst_tensor *in = eng_in(c, 0), *scale = eng_in(c, 1), *bias = eng_in(c, 2), *add = eng_in(c, 3);
    int64_t n = in && in->rank ? in->dims[in->rank - 1] : 0;
    bool fits = n > 0 && in->dtype == PST_F32 && (g->axis == -1 || g->axis == in->rank - 1) && (!scale || per_column(scale, in, n)) &&
                (!bias || per_column(bias, in, n)) && (g->before != ENG_TILE_ADD || (add && same_shape(add, in)));
    if (!fits) {
        c->note = "not float32 on the last axis: node by node";
        return eng_parts_run(c, &s->parts);
    }
    const pst_tensor x = *in;
    const float *ps = scale ? scale->data : NULL, *pb = bias ? bias->data : NULL, *pa = add ? add->data : &g->by;
    float *o = eng_out_over(c, 0, 0);
    if (!o)
        return PST_ELIMIT;
    const float *rows = x.data;
    int64_t count = eng_count(&x), step = g->softmax && n < ENG_TILE ? ENG_TILE / n * n : n; /* short rows of a softmax go together */
    for (int64_t i = 0; i < count; i += step) {
        int64_t len = count - i < step ? count - i : step;
        const float *row = rows + i;
        if (g->before != ENG_TILE_CODES) {
            for (int64_t k = 0; k < len; k += ENG_TILE)
                s->kernels->op(g->before, row + k, 1, add ? pa + i + k : pa, add != NULL, o + i + k,
                               len - k < ENG_TILE ? (int)(len - k) : ENG_TILE, 0, 0);
            row = o + i;
        }
        if (g->softmax)
            s->kernels->softmax_rows(row, o + i, len / n, n);
        else
            s->kernels->layer_norm(row, ps, pb, g->eps, o + i, n);
    }
    return 0;
}

static const eng_op layer_op = {
    .domain = "+", .name = "LayerNorm", .min_opset = 1, .cost = ENG_COST_NORM, .run = run_norm, .prepare = prepare_norm};
static const eng_op softmax_op = {
    .domain = "+", .name = "RowSoftmax", .min_opset = 1, .cost = ENG_COST_SOFTMAX, .run = run_norm, .prepare = prepare_norm};

/* What makes the rows, if it can be taken in: reads = how often the nodes of this group read the value. */
static void take_before(eng_fuser *f, row_norm *norm, size_t *parts, int *n, int *in, int reads)
{
    size_t at;
    double by;
    const eng_node *maker = eng_fuse_maker(f, in[0], &at);
    if (!maker || maker->n_in != 2 || maker->opset < 7 || f->readers[in[0]] != reads)
        return;
    int other = maker->in[1];
    bool add = eng_fuse_is(maker, "Add"), div = eng_fuse_is(maker, "Div"), mul = eng_fuse_is(maker, "Mul");
    if (!norm->softmax && add && !f->p->folded[maker->in[0]] && !f->p->folded[other] && maker->in[0] != other) {
        norm->before = ENG_TILE_ADD;
        in[3] = other;
    } else if (norm->softmax && (div || mul) && eng_fuse_konst(f, other) && f->p->vals[other].t.rank <= 1 &&
               eng_fuse_scalar(f, other, &by)) {
        norm->before = div ? ENG_TILE_DIV : ENG_TILE_MUL;
        norm->by = (float)by;
    } else {
        return;
    }
    in[0] = maker->in[0];
    parts[(*n)++] = at;
}

static void replace(eng_fuser *f, size_t *parts, int n, const eng_op *op, row_norm norm, int *in, int reads, int out, const char *what)
{
    row_norm *kept = eng_zone_alloc(&f->p->zone, sizeof *kept);
    char text[64];
    norm.before = ENG_TILE_CODES;
    take_before(f, &norm, parts, &n, in, reads);
    for (int i = 1; i < n; i++) /* into the order of the graph */
        for (int k = i; k > 0 && parts[k - 1] > parts[k]; k--) {
            size_t t = parts[k];
            parts[k] = parts[k - 1];
            parts[k - 1] = t;
        }
    *kept = norm;
    snprintf(text, sizeof text, "%d node%s, %s", n, n > 1 ? "s" : "", what);
    eng_fuse_replace(f, parts, n, op, kept, in, 4, out, text);
}

/* ---- layer normalisation in pieces ---- */

/* A mean over one axis that keeps it. */
static bool is_mean(const eng_fuser *f, const eng_node *n, int64_t *ret_axis)
{
    size_t n_axes;
    const int64_t *axes = n && eng_fuse_is(n, "ReduceMean") ? eng_attr_ints(n, "axes", &n_axes) : NULL;
    double from_input;
    if (!n || !eng_fuse_is(n, "ReduceMean") || !eng_attr_int(n, "keepdims", 1))
        return false;
    if (axes && n_axes == 1)
        *ret_axis = axes[0];
    else if (!axes && n->n_in == 2 && eng_fuse_scalar(f, n->in[1], &from_input))
        *ret_axis = (int64_t)from_input;
    else
        return false;
    return true;
}

/* The other operand of a commutative node; -1 when id is not one of its two. */
static int other_of(const eng_node *n, int id)
{
    if (n->n_in != 2 || n->in[0] == n->in[1])
        return -1;
    if (n->in[0] == id)
        return n->in[1];
    return n->in[1] == id ? n->in[0] : -1;
}

/* The only reader of a value, if it is a node of this operator. */
static const eng_node *sole_reader(const eng_fuser *f, int id, const char *op, size_t *ret_at)
{
    if (f->readers[id] != 1)
        return NULL;
    *ret_at = (size_t)f->reader[id];
    const eng_node *n = f->nodes[*ret_at].node;
    return !f->nodes[*ret_at].dead && eng_fuse_is(n, op) ? n : NULL;
}

/* scale and bias behind the division: constants that may be one number per column. */
static int take_affine(const eng_fuser *f, int out, int *in, size_t *parts, int *n)
{
    static const char *const ops[] = {"Mul", "Add"};
    for (int i = 0; i < 2; i++) {
        size_t at;
        const eng_node *next = sole_reader(f, out, ops[i], &at);
        int id = next ? other_of(next, out) : -1;
        const pst_tensor *t = eng_fuse_konst(f, id);
        if (!t || t->rank < 1 || eng_count(t) != t->dims[t->rank - 1] || next->opset < 7)
            continue;
        in[1 + i] = id;
        parts[(*n)++] = at;
        out = next->out[0];
    }
    return out;
}

/* A layer normalisation that an exporter wrote in pieces, found from its division:
 *
 *     (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)  [* scale] [+ bias]
 *
 * Every value between must have no reader outside of the pattern, or taking the pieces away would take it from somebody: the deviation d
 * has the division and the square (twice, where it is d * d), all others have one. */
static void try_pieces(eng_fuser *f, size_t at)
{
    const eng_node *div = f->nodes[at].node, *sqrt, *add, *var, *square, *sub, *mean;
    size_t parts[10] = {at}, i_sqrt, i_add, i_var, i_square, i_sub, i_mean;
    int n = 1;
    double eps = 0;
    int64_t axis, var_axis;
    if (!eng_fuse_is(div, "Div") || div->n_in != 2)
        return;
    sub = eng_fuse_maker(f, div->in[0], &i_sub);
    sqrt = eng_fuse_maker(f, div->in[1], &i_sqrt);
    if (!sub || !eng_fuse_is(sub, "Sub") || !sqrt || !eng_fuse_is(sqrt, "Sqrt") || f->readers[div->in[1]] != 1)
        return;
    add = eng_fuse_maker(f, sqrt->in[0], &i_add);
    if (!add || !eng_fuse_is(add, "Add") || add->n_in != 2 || f->readers[sqrt->in[0]] != 1)
        return;
    int d = div->in[0], v = -1; /* the variance: the sum's operand that is not eps */
    if (eng_fuse_scalar(f, add->in[1], &eps))
        v = add->in[0];
    else if (eng_fuse_scalar(f, add->in[0], &eps))
        v = add->in[1];
    var = eng_fuse_maker(f, v, &i_var);
    if (!is_mean(f, var, &var_axis) || f->readers[v] != 1)
        return;
    int sq = var->in[0];
    square = eng_fuse_maker(f, sq, &i_square);
    if (!square || f->readers[sq] != 1 || square->n_in != 2)
        return;
    double two;
    bool pow = eng_fuse_is(square, "Pow") && square->in[0] == d && eng_fuse_scalar(f, square->in[1], &two) && two == 2,
         mul = eng_fuse_is(square, "Mul") && square->in[0] == d && square->in[1] == d;
    if ((!pow && !mul) || f->readers[d] != (pow ? 2 : 3))
        return;
    mean = eng_fuse_maker(f, sub->in[1], &i_mean);
    if (!is_mean(f, mean, &axis) || axis != var_axis || mean->in[0] != sub->in[0] || f->readers[sub->in[1]] != 1)
        return;
    size_t rest[] = {i_sqrt, i_add, i_var, i_square, i_sub, i_mean};
    memcpy(parts + n, rest, sizeof rest);
    n += (int)(sizeof rest / sizeof *rest);
    int in[4] = {sub->in[0], -1, -1, -1};
    int out = take_affine(f, div->out[0], in, parts, &n);
    replace(f, parts, n, &layer_op, (row_norm){.axis = axis, .eps = eps}, in, 2, out, "one normalisation");
}

void eng_fuse_norm(eng_fuser *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const eng_node *n = f->nodes[i].node;
        size_t parts[2] = {i};
        if (f->nodes[i].dead || *n->domain)
            continue;
        int64_t axis = eng_attr_int(n, "axis", !strcmp(n->op_type, "Softmax") && n->opset < 13 ? 1 : -1);
        if (eng_fuse_is(n, "Softmax") && n->n_in == 1)
            replace(f, parts, 1, &softmax_op, (row_norm){.softmax = true, .axis = axis}, (int[]){n->in[0], -1, -1, -1}, 1, n->out[0],
                    "vector softmax");
        else if (eng_fuse_is(n, "LayerNormalization") && n->n_in >= 2)
            replace(f, parts, 1, &layer_op, (row_norm){.axis = axis, .eps = (double)eng_attr_float(n, "epsilon", 1e-5f)},
                    (int[]){n->in[0], n->in[1], n->n_in > 2 ? n->in[2] : -1, -1}, 1, n->out[0], "vector layer normalisation");
        else
            try_pieces(f, i);
    }
}
