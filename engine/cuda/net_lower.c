/* net_lower.c - from a compiled plan to a network's program (net.h): the file's own nodes, constants folded, nothing fused. Of a step that stands for
 * several nodes its parts are taken, so that what the CPU fuses in its own way is seen here as it was.
 *
 * A value of the graph is a slot. Nodes are taken in order. One that acts on single numbers becomes a stage of the operation whose result it reads, if
 * that is the last one so far and nobody else reads its result; else an operation of its own. The run of steps begins at a value of float32
 * rows, and ends before the first step with a node that is not covered; that one and all behind it are the host's, if they are cheap. */
#include "engine/cuda/net_lower.h"

#include <math.h>
#include <string.h>

typedef struct known {
    int id;
    uint32_t slot;
    int rank;
} known;

enum { KNOWN_MAX = 2 * ENG_CUDA_NET_SLOTS, WIDTH_MAX = 65536 };

typedef struct lowering {
    const pst_plan *p;
    const eng_prog *g;
    eng_cuda_net_part *net;
    int *readers; /* by value: how often it is read by nodes; results of the graph count twice */
    known values[KNOWN_MAX];
    int n_values;
    const char *why; /* of the node that is not covered */
} lowering;

/* ---- constants and values ---- */

static bool refuse(lowering *l, const char *why)
{
    l->why = why;
    return false;
}

static const pst_tensor *konst(const lowering *l, int id)
{
    const eng_val *v = id >= 0 && l->p->folded[id] ? &l->p->vals[id] : NULL;
    return v && v->kind == ENG_VAL_TENSOR && v->t.dtype == PST_F32 ? &v->t : NULL;
}

static const known *value_of(const lowering *l, int id)
{
    for (int i = l->n_values; i-- > 0;)
        if (l->values[i].id == id)
            return &l->values[i];
    return NULL;
}

static uint32_t width_of(const lowering *l, const known *v)
{
    return l->net->draft.slots[v->slot].width;
}

static bool make_known(lowering *l, int id, uint32_t slot, int rank)
{
    if (l->n_values == KNOWN_MAX)
        return refuse(l, "the network has too many values");
    l->values[l->n_values++] = (known){id, slot, rank};
    return true;
}

/* ---- operations and stages ---- */

/* The operation that is being made whole; stages go to it. NULL: there is no room for one. */
static eng_cuda_net_op *add_op(lowering *l, eng_cuda_net_kind kind, uint32_t from, uint32_t width)
{
    eng_cuda_net_draft *d = &l->net->draft;
    if (d->n_ops == ENG_CUDA_NET_OPS || d->n_slots == ENG_CUDA_NET_SLOTS || width > WIDTH_MAX) {
        refuse(l, "the network has too many layers, or one that is too wide");
        return NULL;
    }
    eng_cuda_net_op *o = &d->ops[d->n_ops++];
    *o = (eng_cuda_net_op){.kind = kind,
                           .from = from,
                           .to = d->n_slots++,
                           .n_in = d->slots[from].width,
                           .n_out = width,
                           .stage = d->n_stages,
                           .map = ENG_CUDA_NET_CODES};
    d->slots[o->to] = (eng_cuda_net_slot){.place = ENG_CUDA_NET_BETWEEN, .width = width};
    return o;
}

static bool add_stage(lowering *l, eng_cuda_net_stage s)
{
    eng_cuda_net_draft *d = &l->net->draft;
    if (d->n_stages == ENG_CUDA_NET_STAGES)
        return refuse(l, "the network has too many nodes");
    d->stages[d->n_stages++] = s;
    d->ops[d->n_ops - 1].n_stages++;
    return true;
}

static bool add_code(lowering *l, uint32_t code, float alpha, float beta)
{
    return add_stage(l, (eng_cuda_net_stage){.code = code, .alpha = alpha, .beta = beta});
}

/* n numbers times `by`, one a column or one for all. */
static bool add_numbers(lowering *l, uint32_t code, const float *v, size_t n, float by, float alpha)
{
    uint64_t at;
    float *to = eng_cuda_net_numbers(&l->net->draft, n, &at);
    for (size_t i = 0; i < n; i++)
        to[i] = by == 1 ? v[i] : by * v[i];
    return add_stage(l, (eng_cuda_net_stage){.code = code, .operand = ENG_CUDA_NET_NUMBER, .at = at, .step = n > 1, .alpha = alpha});
}

/* v's stages go on where it is made, if that is the last operation and n alone reads it. */
static bool can_go_on(const lowering *l, const known *v)
{
    const eng_cuda_net_draft *d = &l->net->draft;
    return l->readers[v->id] == 1 && d->n_ops && d->ops[d->n_ops - 1].to == v->slot;
}

/* The operation whose stages act on v, its result being `width` wide, and that result's slot. */
static bool go_on(lowering *l, const known *v, uint32_t width, uint32_t *ret_slot)
{
    if (can_go_on(l, v) && width_of(l, v) == width) {
        *ret_slot = v->slot;
        return true;
    }
    const eng_cuda_net_op *o = add_op(l, ENG_CUDA_NET_EACH, v->slot, width);
    if (o)
        *ret_slot = o->to;
    return o;
}

/* ---- nodes of single numbers ---- */

static bool one(lowering *l, const eng_node *n, uint32_t code, float alpha, float beta)
{
    const known v = *value_of(l, n->in[0]);
    uint32_t slot;
    return go_on(l, &v, width_of(l, &v), &slot) && add_code(l, code, alpha, beta) && make_known(l, n->out[0], slot, v.rank);
}

/* x op b as b op' x; false: there is no such. */
static bool turned(uint32_t code, uint32_t *ret)
{
    *ret = code == ENG_TILE_SUB ? ENG_CUDA_NET_FROM : code == ENG_TILE_DIV ? ENG_CUDA_NET_UNDER : code;
    return code != ENG_TILE_POW && code != ENG_TILE_PRELU;
}

/* Numbers of a constant that acts per column of v: one, or one a column; 0 = it broadcasts otherwise. */
static size_t per_column(const lowering *l, const pst_tensor *t, const known *v)
{
    int64_t n = eng_count(t), width = width_of(l, v);
    bool row = t->rank <= v->rank && (t->rank < 2 || t->dims[0] == 1);
    return row && (n == 1 || (v->rank == 2 && n > 0 && (n == width || width == 1))) ? (size_t)n : 0;
}

static bool with_constant(lowering *l, const eng_node *n, uint32_t code, int var, const pst_tensor *t)
{
    const known v = *value_of(l, n->in[var]);
    size_t count = per_column(l, t, &v);
    const float *f = t->data;
    uint32_t slot;
    if (!count)
        return refuse(l, "its constant is not one number, nor one a column");
    if (var == 1 && !turned(code, &code))
        return refuse(l, "a constant is its first input");
    if (code == ENG_TILE_POW && count == 1 && (*f == 2 || *f == 3))
        return one(l, n, *f == 2 ? ENG_TILE_SQUARE : ENG_TILE_CUBE, 0, 0);
    return go_on(l, &v, count > 1 ? (uint32_t)count : width_of(l, &v), &slot) && add_numbers(l, code, f, count, 1, 0) &&
           make_known(l, n->out[0], slot, v.rank);
}

/* Two vectors of a row. The one that stages can be added to is x; a vector of one is the operand. */
static bool with_vector(lowering *l, const eng_node *n, uint32_t code)
{
    known a = *value_of(l, n->in[0]), b = *value_of(l, n->in[1]);
    uint32_t wa = width_of(l, &a), wb = width_of(l, &b), slot;
    if (a.rank != b.rank || (wa != wb && wa != 1 && wb != 1))
        return refuse(l, "its inputs' shapes differ");
    if (wb > wa || (wa == wb && !can_go_on(l, &a) && can_go_on(l, &b))) {
        uint32_t other;
        if (turned(code, &other)) {
            known t = a;
            a = b;
            b = t;
            code = other;
        } else if (wb > wa) {
            return refuse(l, "its inputs' shapes differ");
        }
    }
    eng_cuda_net_stage s = {.code = code, .operand = ENG_CUDA_NET_VECTOR, .at = b.slot, .step = width_of(l, &b) > 1};
    return go_on(l, &a, width_of(l, &a), &slot) && add_stage(l, s) && make_known(l, n->out[0], slot, a.rank);
}

static bool two(lowering *l, const eng_node *n, uint32_t code)
{
    if (n->n_in != 2 || n->opset < 7)
        return refuse(l, "it has not two inputs, or is of an opset before 7");
    for (int i = 0; i < 2; i++)
        if (!value_of(l, n->in[i])) {
            const pst_tensor *t = konst(l, n->in[i]);
            return t ? with_constant(l, n, code, !i, t) : refuse(l, "an input is neither of this network nor a float32 constant");
        }
    if (n->in[0] == n->in[1] && code == ENG_TILE_MUL)
        return one(l, n, ENG_TILE_SQUARE, 0, 0);
    return with_vector(l, n, code);
}

static bool clip(lowering *l, const eng_node *n)
{
    float least, most;
    if (!eng_clip_bounds(n, n->n_in > 1 ? konst(l, n->in[1]) : NULL, n->n_in > 2 ? konst(l, n->in[2]) : NULL, &least, &most))
        return refuse(l, "its bounds are no constants");
    return one(l, n, ENG_TILE_CLIP, least, most);
}

static bool gelu(lowering *l, const eng_node *n)
{
    bool t = !strcmp(eng_attr_str(n, "approximate", "none"), "tanh");
    return one(l, n, t ? ENG_TILE_GELU_TANH : ENG_TILE_GELU, 0, 0);
}

static bool sum_or_other(lowering *l, const eng_node *n)
{
    const eng_op_as_tile *t = n->op->tile;
    if (t->code < ENG_TILE_BINARY_CODES)
        return two(l, n, t->code);
    return one(l, n, t->code, t->attrs > 0 ? eng_attr_float(n, "alpha", t->alpha) : 0,
               t->attrs > 1 ? eng_attr_float(n, "beta", t->beta) : 0);
}

static bool selu(lowering *l, const eng_node *n)
{
    return one(l, n, ENG_CUDA_NET_SELU, eng_attr_float(n, "alpha", 1.67326319217681884765625f),
               eng_attr_float(n, "gamma", 1.05070102214813232421875f));
}

static bool celu(lowering *l, const eng_node *n)
{
    return one(l, n, ENG_CUDA_NET_CELU, eng_attr_float(n, "alpha", 1), 0);
}

static bool mish(lowering *l, const eng_node *n)
{
    return one(l, n, ENG_CUDA_NET_MISH, 0, 0);
}

static bool threshold(lowering *l, const eng_node *n)
{
    return one(l, n, ENG_CUDA_NET_THRESHOLD, eng_attr_float(n, "alpha", 1), 0);
}

static bool sign(lowering *l, const eng_node *n)
{
    return one(l, n, ENG_CUDA_NET_SIGN, 0, 0);
}

/* ---- features ---- */

static bool scaler(lowering *l, const eng_node *n)
{
    const known v = *value_of(l, n->in[0]);
    uint32_t width = width_of(l, &v), slot;
    size_t n_off, n_scale;
    const float *off = eng_attr_floats(n, "offset", &n_off), *scale = eng_attr_floats(n, "scale", &n_scale);
    if ((n_off > 1 && n_off != width) || (n_scale > 1 && n_scale != width))
        return refuse(l, "it has another number of offsets or scales than there are features");
    return go_on(l, &v, width, &slot) && (!n_off || add_numbers(l, ENG_TILE_SUB, off, n_off, 1, 0)) &&
           (!n_scale || add_numbers(l, ENG_TILE_MUL, scale, n_scale, 1, 0)) && make_known(l, n->out[0], slot, v.rank);
}

static bool imputer(lowering *l, const eng_node *n)
{
    const known v = *value_of(l, n->in[0]);
    uint32_t width = width_of(l, &v), slot;
    size_t n_by;
    const float *by = eng_attr_floats(n, "imputed_value_floats", &n_by);
    if (!n_by || (n_by > 1 && n_by != width))
        return refuse(l, "it has another number of values than there are features");
    return go_on(l, &v, width, &slot) && add_numbers(l, ENG_CUDA_NET_IMPUTE, by, n_by, 1, eng_attr_float(n, "replaced_value_float", 0)) &&
           make_known(l, n->out[0], slot, v.rank);
}

/* By mean, then by factor, then by bias, so that large means cost no digits. */
static bool batch_norm(lowering *l, const eng_node *n)
{
    const known v = *value_of(l, n->in[0]);
    uint32_t width = width_of(l, &v), slot;
    const pst_tensor *t[5] = {0};
    for (int i = 1; i < 5; i++)
        if (n->n_in != 5 || n->opset < 9 || eng_attr_int(n, "training_mode", 0) || v.rank != 2 || !(t[i] = konst(l, n->in[i])) ||
            eng_count(t[i]) != width)
            return refuse(l, "its numbers are not one float32 constant a column");
    double eps = (double)eng_attr_float(n, "epsilon", 1e-5f);
    if (!go_on(l, &v, width, &slot) || !add_numbers(l, ENG_TILE_SUB, t[3]->data, width, 1, 0) ||
        !add_numbers(l, ENG_TILE_MUL, t[1]->data, width, 1, 0))
        return false;
    eng_cuda_net_draft *d = &l->net->draft;
    float *factor = d->numbers + d->stages[d->n_stages - 1].at;
    for (uint32_t i = 0; i < width; i++)
        factor[i] = (float)((double)factor[i] / sqrt((double)((const float *)t[4]->data)[i] + eps));
    return add_numbers(l, ENG_TILE_ADD, t[2]->data, width, 1, 0) && make_known(l, n->out[0], slot, v.rank);
}

/* ---- products ---- */

static const char no_product[] = "it is no product of rows with a float32 matrix of constants";

static bool put_weights(lowering *l, eng_cuda_net_op *o, const pst_tensor *b, bool turn, float alpha)
{
    const float *w = b->data;
    size_t n_in = o->n_in, n_out = o->n_out;
    float *to = eng_cuda_net_numbers(&l->net->draft, n_in * n_out, &o->weights);
    for (size_t k = 0; k < n_in; k++)
        for (size_t j = 0; j < n_out; j++) {
            float v = turn ? w[j * n_in + k] : w[k * n_out + j];
            to[k * n_out + j] = alpha == 1 ? v : alpha * v;
        }
    return true;
}

static bool dense(lowering *l, const eng_node *n)
{
    bool gemm = n->op_type[0] == 'G', turn = gemm && eng_attr_int(n, "transB", 0);
    const known *v = n->n_in > 1 ? value_of(l, n->in[0]) : NULL;
    const pst_tensor *b = v ? konst(l, n->in[1]) : NULL, *c = gemm && n->n_in > 2 ? konst(l, n->in[2]) : NULL;
    if (!b || b->rank != 2 || v->rank != 2 || (gemm && eng_attr_int(n, "transA", 0)))
        return refuse(l, no_product);
    if (b->dims[turn] != width_of(l, v) || b->dims[!turn] < 1 || b->dims[!turn] > WIDTH_MAX)
        return refuse(l, "its matrix does not fit its rows, or is too wide");
    uint32_t width = (uint32_t)b->dims[!turn];
    if (gemm && n->n_in > 2 && n->in[2] >= 0 && (!c || (eng_count(c) != 1 && (eng_count(c) != width || c->dims[c->rank - 1] != width))))
        return refuse(l, "its bias is not one float32 constant a column");
    eng_cuda_net_op *o = add_op(l, ENG_CUDA_NET_DENSE, v->slot, width);
    if (!o)
        return false;
    l->net->n_layers++;
    return put_weights(l, o, b, turn, gemm ? eng_attr_float(n, "alpha", 1) : 1) &&
           (!c || add_numbers(l, ENG_TILE_ADD, c->data, (size_t)eng_count(c), eng_attr_float(n, "beta", 1), 0)) &&
           make_known(l, n->out[0], o->to, 2);
}

/* ---- over a row ---- */

static bool is_last_axis(int64_t axis)
{
    return axis == 1 || axis == -1;
}

static bool softmax(lowering *l, const eng_node *n)
{
    const known v = *value_of(l, n->in[0]);
    bool log = n->op_type[0] == 'L';
    if (v.rank != 2 || !is_last_axis(eng_attr_int(n, "axis", -1)))
        return refuse(l, "it does not run over a row");
    const eng_cuda_net_op *o = add_op(l, log ? ENG_CUDA_NET_LOGSOFTMAX : ENG_CUDA_NET_SOFTMAX, v.slot, width_of(l, &v));
    return o && make_known(l, n->out[0], o->to, 2);
}

/* The one axis that is reduced, as an attribute or a constant; false: there are others, or it is not known. */
static bool over_row(const lowering *l, const eng_node *n)
{
    size_t n_axes;
    const int64_t *axes = eng_attr_ints(n, "axes", &n_axes);
    int id = n->n_in > 1 ? n->in[1] : -1;
    const eng_val *v = id >= 0 && l->p->folded[id] ? &l->p->vals[id] : NULL;
    if (v && v->kind == ENG_VAL_TENSOR && v->t.dtype == PST_I64) {
        axes = v->t.data;
        n_axes = (size_t)eng_count(&v->t);
    }
    return (id < 0 || v) && axes && n_axes == 1 && is_last_axis(axes[0]);
}

static bool reduce(lowering *l, const eng_node *n)
{
    static const struct {
        const char *name;
        eng_cuda_net_kind kind;
        uint32_t map, then;
    } forms[] = {{"ReduceSum", ENG_CUDA_NET_SUM, ENG_CUDA_NET_CODES, 0},   {"ReduceMean", ENG_CUDA_NET_MEAN, ENG_CUDA_NET_CODES, 0},
                 {"ReduceMax", ENG_CUDA_NET_MAX, ENG_CUDA_NET_CODES, 0},   {"ReduceMin", ENG_CUDA_NET_MIN, ENG_CUDA_NET_CODES, 0},
                 {"ReduceL1", ENG_CUDA_NET_SUM, ENG_TILE_ABS, 0},          {"ReduceL2", ENG_CUDA_NET_SUM, ENG_TILE_SQUARE, ENG_TILE_SQRT},
                 {"ReduceSumSquare", ENG_CUDA_NET_SUM, ENG_TILE_SQUARE, 0}};
    const known v = *value_of(l, n->in[0]);
    if (v.rank != 2 || !over_row(l, n))
        return refuse(l, "it does not run over a row");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(n->op_type, forms[i].name) != 0)
            continue;
        eng_cuda_net_op *o = add_op(l, forms[i].kind, v.slot, 1);
        if (!o)
            return false;
        o->map = forms[i].map;
        return (!forms[i].then || add_code(l, forms[i].then, 0, 0)) &&
               make_known(l, n->out[0], o->to, eng_attr_int(n, "keepdims", 1) ? 2 : 1);
    }
    return refuse(l, "no kernel has this operator");
}

static bool norm(lowering *l, const eng_node *n)
{
    const known v = *value_of(l, n->in[0]);
    bool rms = n->op_type[0] == 'R';
    const pst_tensor *scale = n->n_in > 1 ? konst(l, n->in[1]) : NULL, *bias = n->n_in > 2 ? konst(l, n->in[2]) : NULL;
    bool has_bias = n->n_in > 2 && n->in[2] >= 0;
    if (v.rank != 2 || !is_last_axis(eng_attr_int(n, "axis", -1)))
        return refuse(l, "it does not run over a row");
    uint32_t width = width_of(l, &v);
    if (!scale || (has_bias && !bias) || (eng_count(scale) != 1 && eng_count(scale) != width) ||
        (bias && eng_count(bias) != 1 && eng_count(bias) != width))
        return refuse(l, "its scale or bias is not one float32 constant a column");
    eng_cuda_net_op *o = add_op(l, rms ? ENG_CUDA_NET_RMS : ENG_CUDA_NET_NORM, v.slot, width);
    if (!o)
        return false;
    o->epsilon = (double)eng_attr_float(n, "epsilon", 1e-5f);
    return add_numbers(l, ENG_TILE_MUL, scale->data, (size_t)eng_count(scale), 1, 0) &&
           (!bias || add_numbers(l, ENG_TILE_ADD, bias->data, (size_t)eng_count(bias), 1, 0)) && make_known(l, n->out[0], o->to, 2);
}

/* ---- second names ---- */

static bool same(lowering *l, const eng_node *n)
{
    const known v = *value_of(l, n->in[0]);
    bool flat = !strcmp(n->op_type, "Flatten"), cast = !strcmp(n->op_type, "Cast");
    if ((flat && (v.rank != 2 || !is_last_axis(eng_attr_int(n, "axis", 1)))) || (cast && eng_attr_int(n, "to", 0) != PST_F32) ||
        (n->n_in > 1 && (flat || cast || n->in[n->n_in - 1] >= 0)))
        return refuse(l, "it is more than a second name");
    return make_known(l, n->out[0], v.slot, v.rank);
}

/* ---- a node ---- */

typedef bool (*lower_fn)(lowering *l, const eng_node *n);
static const struct {
    const char *domain, *op_type;
    lower_fn lower;
} forms[] = {
    {"", "MatMul", dense},
    {"", "Gemm", dense},
    {"", "Softmax", softmax},
    {"", "LogSoftmax", softmax},
    {"", "ReduceSum", reduce},
    {"", "ReduceMean", reduce},
    {"", "ReduceMax", reduce},
    {"", "ReduceMin", reduce},
    {"", "ReduceL1", reduce},
    {"", "ReduceL2", reduce},
    {"", "ReduceSumSquare", reduce},
    {"", "LayerNormalization", norm},
    {"", "RMSNormalization", norm},
    {"", "BatchNormalization", batch_norm},
    {"", "Clip", clip},
    {"", "Gelu", gelu},
    {"", "Selu", selu},
    {"", "Celu", celu},
    {"", "Mish", mish},
    {"", "ThresholdedRelu", threshold},
    {"", "Sign", sign},
    {"", "Identity", same},
    {"", "Dropout", same},
    {"", "Flatten", same},
    {"", "Cast", same},
    {"ai.onnx.ml", "Scaler", scaler},
    {"ai.onnx.ml", "Imputer", imputer},
};

static lower_fn form_of(const eng_node *n)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(n->op_type, forms[i].op_type) && !strcmp(n->domain, forms[i].domain))
            return forms[i].lower;
    return !*n->domain && n->op->tile ? sum_or_other : NULL;
}

static bool lower_node(lowering *l, const eng_node *n)
{
    lower_fn form = form_of(n);
    bool reads = false;
    for (int i = 0; i < n->n_in; i++)
        reads |= n->in[i] >= 0 && value_of(l, n->in[i]);
    for (int i = 1; i < n->n_out; i++)
        if (n->out[i] >= 0)
            return refuse(l, "its second result is wanted");
    if (!form || n->n_out < 1 || n->out[0] < 0)
        return refuse(l, "no kernel has this operator");
    if (!reads || n->in[0] < 0 || (form != sum_or_other && !value_of(l, n->in[0])))
        return refuse(l, "it reads what the network does not compute");
    return form(l, n);
}

/* ---- a run of steps ---- */

/* A node, or the parts of one that stands for several, in order; ends at the first that is not covered. */
static const eng_node *lower_parts(lowering *l, const eng_node *n)
{
    for (int i = 0; i < n->n_parts; i++) {
        const eng_node *fails = lower_parts(l, n->parts[i]);
        if (fails)
            return fails;
    }
    return n->n_parts || lower_node(l, n) ? NULL : n;
}

static void count_reader(void *arg, int id)
{
    ((int *)arg)[id]++;
}

static void count_readers(const eng_node *n, int *readers)
{
    for (int i = 0; i < n->n_parts; i++)
        count_readers(n->parts[i], readers);
    if (!n->n_parts)
        eng_visit_uses(n, count_reader, readers);
}

static const eng_node *first_part(const eng_node *n)
{
    return n->n_parts ? first_part(n->parts[0]) : n;
}

/* The one input that is no constant; -1: there are several, or none. */
static int variable_input(const pst_plan *p, const eng_node *n)
{
    int in = -1;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] >= 0 && !p->folded[n->in[i]]) {
            if (in >= 0 && in != n->in[i])
                return -1;
            in = n->in[i];
        }
    return in;
}

/* How wide the first product makes the rows that n begins with, following single numbers; 0: not found. */
static void follow_width(const lowering *l, const eng_node *n, int *value, uint32_t *ret)
{
    for (int i = 0; i < n->n_parts; i++)
        follow_width(l, n->parts[i], value, ret);
    bool reads = false;
    for (int i = 0; i < n->n_in; i++)
        reads |= n->in[i] == *value;
    if (n->n_parts || *ret || !reads || n->n_out < 1 || !form_of(n))
        return;
    if (form_of(n) != dense) {
        *value = n->out[0];
        return;
    }
    const pst_tensor *b = n->n_in > 1 ? konst(l, n->in[1]) : NULL;
    int64_t k = b && b->rank == 2 ? b->dims[n->op_type[0] == 'G' && eng_attr_int(n, "transB", 0)] : 0;
    *ret = k > 0 && k <= WIDTH_MAX ? (uint32_t)k : 0;
}

/* Of the value that step `at` begins with: float32 rows of a known width; 0: it cannot be. */
static uint32_t rows_width(const lowering *l, size_t at, int id)
{
    const pst_model *m = l->p->m;
    const eng_prog *g = l->g;
    const eng_node *first = first_part(g->steps[at].node);
    uint32_t width = 0;
    bool is_input = false;
    for (size_t i = 0; i < m->info.n_inputs; i++)
        if (m->graph.in[i] == id) {
            const pst_value_info *v = &m->info.inputs[i];
            is_input = true;
            if (v->dtype != PST_F32 || (v->rank >= 0 && v->rank != 2))
                return 0;
            width = v->rank == 2 && v->dims[1] > 0 && v->dims[1] <= WIDTH_MAX ? (uint32_t)v->dims[1] : 0;
        }
    if (!is_input && (!strcmp(first->op_type, "Cast") || *first->domain)) /* they take other types, too */
        return 0;
    for (size_t i = at; i < g->n_steps && !width; i++)
        follow_width(l, g->steps[i].node, &id, &width);
    return width;
}

/* Takes steps from `at` on as long as they are covered. Returns the node that ended it; NULL: it is the last step's end, or nothing began. */
static const eng_node *lower_from(lowering *l, size_t at)
{
    const eng_prog *g = l->g;
    eng_cuda_net_draft *d = &l->net->draft, *before = eng_heap_alloc(sizeof *before);
    const eng_node *fails = NULL, *first = first_part(g->steps[at].node);
    int in = variable_input(l->p, first);
    uint32_t width = in >= 0 ? rows_width(l, at, in) : 0;
    *d = (eng_cuda_net_draft){.n_in = width,
                              .n_slots = 1,
                              .slots = {{.place = ENG_CUDA_NET_IN, .width = width}},
                              .numbers = d->numbers,
                              .numbers_cap = d->numbers_cap};
    l->n_values = 0;
    l->net->from = l->net->to = at;
    l->net->in = in;
    l->net->n_layers = 0;
    if (!width || !add_op(l, ENG_CUDA_NET_EACH, 0, width) || !make_known(l, in, 1, 2)) {
        l->why = form_of(first) == dense && in < 0 ? no_product : "its rows are no float32 matrix of a known width";
        fails = first;
    }
    while (!fails && l->net->to < g->n_steps) {
        int n_values = l->n_values;
        uint32_t n_layers = l->net->n_layers;
        *before = *d;
        fails = lower_parts(l, g->steps[l->net->to].node);
        l->net->to += !fails;
        if (fails) { /* numbers are kept: there are more of them than there were, perhaps elsewhere */
            before->numbers = d->numbers;
            before->numbers_cap = d->numbers_cap;
            *d = *before;
            l->n_values = n_values;
            l->net->n_layers = n_layers;
        }
    }
    eng_heap_free(before);
    return fails;
}

/* ---- results ---- */

static void mark_read(void *arg, int id)
{
    ((bool *)arg)[id] = true;
}

static bool add_result(eng_cuda_net_part *n, const known *v)
{
    eng_cuda_net_slot *s = &n->draft.slots[v->slot];
    if (n->n_results == ENG_CUDA_NET_RESULTS)
        return false;
    if (s->place != ENG_CUDA_NET_OUT) {
        s->place = ENG_CUDA_NET_OUT;
        s->at = n->draft.n_out;
        n->draft.n_out += s->width;
    }
    n->results[n->n_results++] = (eng_cuda_net_result){.id = v->id, .at = s->at, .width = s->width, .rank = v->rank};
    return true;
}

/* Values that the host's steps or the graph's results read. */
static bool find_results(lowering *l)
{
    const eng_prog *g = l->g;
    bool *read = eng_heap_alloc((size_t)l->p->m->n_values + 1), ok = true;
    for (int i = 0; i < g->graph->n_out; i++)
        read[g->graph->out[i]] = true;
    for (size_t i = l->net->to; i < g->n_steps; i++)
        eng_visit_uses(g->steps[i].node, mark_read, read);
    for (int i = 0; i < l->n_values; i++)
        if (read[l->values[i].id] && l->values[i].id != l->net->in)
            ok = ok && add_result(l->net, &l->values[i]);
    eng_heap_free(read);
    return ok && l->net->n_results;
}

/* ---- all of it ---- */

static int lower(lowering *l, const eng_node **ret_node, pst_err *err)
{
    const eng_prog *g = l->g;
    const char *why = "there is no dense layer";
    *ret_node = g->n_steps ? first_part(g->steps[0].node) : NULL;
    for (size_t at = 0; at < g->n_steps; at++) {
        const eng_node *fails = lower_from(l, at);
        if (l->net->n_layers && find_results(l)) {
            l->net->end = fails;
            l->net->why = fails ? l->why : NULL;
            return 0;
        }
        const eng_node *n = fails ? fails : g->steps[at].node;
        bool is_product = n->op->cost == ENG_COST_GEMM;
        if (is_product || at == 0) { /* of all that is in the way, a product tells most */
            *ret_node = n;
            why = fails ? l->why : why;
        }
        if (is_product && fails)
            break;
    }
    return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "cuda", 0, "%s", why);
}

int eng_cuda_net_lower(const pst_plan *p, const eng_prog *g, eng_cuda_net_part *ret, const eng_node **ret_node, pst_err *err)
{
    *ret = (eng_cuda_net_part){0};
    lowering *l = eng_heap_alloc(sizeof *l);
    l->p = p;
    l->g = g;
    l->net = ret;
    l->readers = eng_heap_array((size_t)p->m->n_values + 1, sizeof *l->readers);
    for (size_t i = 0; i < g->n_steps; i++)
        count_readers(g->steps[i].node, l->readers);
    for (int i = 0; i < g->graph->n_out; i++)
        l->readers[g->graph->out[i]] += 2;
    int rc = lower(l, ret_node, err);
    eng_heap_free(l->readers);
    eng_heap_free(l);
    if (rc < 0)
        eng_cuda_net_part_done(ret);
    return rc;
}

void eng_cuda_net_part_done(eng_cuda_net_part *n)
{
    eng_heap_free(n->draft.numbers);
    n->draft.numbers = NULL;
    n->draft.n_numbers = n->draft.numbers_cap = 0;
}
