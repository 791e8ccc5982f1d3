/* fuse_qdq.c - nodes of floats between DequantizeLinear and QuantizeLinear, as quantisation in the QDQ format writes them, computed on bytes:
 *
 *     Q(Relu(Gemm(DQ(a), DQ(w), DQ(bias))))  →  one product of bytes with exact sums, rounded once
 *     Gemm(DQ(a), DQ(w)) without Q           →  the same, its sums scaled to float32
 *     Q(Transpose(DQ(a)))                    →  Transpose of bytes, where both have the same scale and zero point
 *
 * The reference is what ONNX Runtime makes of such nodes (its QLinear operators): sums of integers times one float32 factor, to the nearest
 * even. It differs from the nodes' own floats by a step of the result's scale at most, where these fall on the other side of a tie.
 * Relu and Clip in front of Q are limits of the bytes, since rounding keeps the order. All scales and zero points are constants and are looked at
 * here, so that nothing of the nodes is needed at run time. Elementwise nodes are left to fuse_elt.c. */
#include "engine/plan.h"

#include "engine/cpu/int8.h"
#include "engine/ops/quant_matmul.h"

#include <math.h>
#include <string.h>

/* ---- bytes and what they stand for ---- */

static bool is_byte(pst_dtype t)
{
    return t == PST_U8 || t == PST_I8;
}

/* Factors that do not leave float32 when they are multiplied and divided. */
static bool sound_scales(const pst_tensor *t)
{
    for (int64_t i = 0, n = eng_count(t); i < n; i++) {
        float s = ((const float *)t->data)[i];
        if (!(s > 1e-18f && s < 1e18f))
            return false;
    }
    return eng_count(t) > 0;
}

/* Scale and zero point at inputs 1 and 2. */
static bool constants_of(const eng_fuser *f, const eng_node *n, eng_bytes *ret)
{
    *ret = (eng_bytes){.node = n, .id = -1, .zero_id = -1};
    if (*n->domain || n->n_in < 2 || n->n_out != 1 || n->in[0] < 0 || n->out[0] < 0 || eng_attr_int(n, "block_size", 0) ||
        eng_attr_int(n, "precision", 0))
        return false;
    ret->scale = eng_fuse_konst(f, n->in[1]);
    if (!ret->scale || ret->scale->rank > 1 || !sound_scales(ret->scale))
        return false;
    ret->scale_id = n->in[1];
    if (n->n_in < 3 || n->in[2] < 0)
        return true;
    ret->zero_id = n->in[2];
    ret->zero = eng_fuse_folded(f, n->in[2]);
    if (!ret->zero || !is_byte(ret->zero->dtype) || eng_count(ret->zero) != eng_count(ret->scale))
        return false;
    ret->type = ret->zero->dtype;
    return true;
}

bool eng_fuse_wide(const eng_fuser *f, int id, eng_bytes *ret)
{
    if (id < 0 || f->origin[id] < 0)
        return false;
    const eng_node *n = f->nodes[f->origin[id]].node;
    int64_t to = eng_attr_int(n, "output_dtype", 0);
    if (strcmp(n->op_type, "DequantizeLinear") != 0 || !constants_of(f, n, ret) || (to && to != PST_F32))
        return false;
    ret->at = (size_t)f->origin[id];
    ret->id = n->in[0];
    const pst_tensor *konst = eng_fuse_folded(f, ret->id);
    if (!ret->zero)
        ret->type = konst ? konst->dtype : (pst_dtype)f->types[ret->id];
    return is_byte(ret->type) && (!konst || konst->dtype == ret->type);
}

bool eng_fuse_narrow(const eng_fuser *f, size_t at, eng_bytes *ret)
{
    const eng_node *n = f->nodes[at].node;
    if (f->nodes[at].dead || strcmp(n->op_type, "QuantizeLinear") != 0 || !constants_of(f, n, ret) || !ret->zero ||
        eng_count(ret->scale) != 1)
        return false;
    ret->at = at;
    ret->id = n->out[0];
    return true;
}

static float scale_of(const eng_bytes *b, int64_t i)
{
    return ((const float *)b->scale->data)[eng_count(b->scale) == 1 ? 0 : i];
}

static int zero_of(const eng_bytes *b)
{
    return !b->zero ? 0 : b->type == PST_U8 ? *(const uint8_t *)b->zero->data : *(const int8_t *)b->zero->data;
}

static int lowest(const eng_bytes *b)
{
    return b->type == PST_U8 ? 0 : -128;
}

/* The byte that a number becomes. */
static int byte_of(const eng_bytes *b, float v)
{
    uint8_t y;
    eng_int8_portable.quantise(1, &v, scale_of(b, 0), zero_of(b), lowest(b), &y);
    return b->type == PST_U8 ? y : (int8_t)y;
}

void eng_fuse_drop_wide(eng_fuser *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (!f->nodes[i].dead && eng_fuse_is(f->nodes[i].node, "DequantizeLinear") && !f->readers[f->nodes[i].node->out[0]])
            f->nodes[i].dead = true;
}

/* ---- products ---- */

typedef struct unit {
    size_t parts[8];
    int n, out;
    const eng_node *product;
    eng_bytes a, b, y; /* y.node NULL: the result stays float32 */
    int64_t columns;   /* of b: 0 = not known */
    int lo, hi;
    int bias; /* value; -1 = none */
} unit;

static bool add_part(unit *u, size_t at)
{
    if (u->n == (int)(sizeof u->parts / sizeof *u->parts))
        return false;
    u->parts[u->n++] = at;
    return true;
}

/* The axis of w that has a scale for each place. */
static bool is_axis(const eng_bytes *w, int rank, int axis)
{
    int64_t at = eng_attr_int(w->node, "axis", 1);
    return (at < 0 ? at + rank : at) == axis;
}

/* Where columns or filters are counted in w; -1 = it is no matrix, or no filters. */
static int column_axis(const eng_node *n, const pst_tensor *w)
{
    if (!strcmp(n->op_type, "Conv"))
        return w->rank >= 3 ? 0 : -1;
    return w->rank != 2 ? -1 : !eng_attr_int(n, "transB", 0);
}

static bool is_product(const eng_node *n)
{
    if (eng_fuse_is(n, "MatMul"))
        return n->n_in == 2;
    if (eng_fuse_is(n, "Gemm"))
        return (n->n_in == 2 || n->n_in == 3) && eng_attr_float(n, "alpha", 1) == 1 && eng_attr_float(n, "beta", 1) == 1;
    return eng_fuse_is(n, "Conv") && (n->n_in == 2 || n->n_in == 3);
}

/* Both sides bytes: the left one by one scale, a constant right one by one or one for each column. */
static bool take_product(const eng_fuser *f, size_t at, unit *u)
{
    const eng_node *n = f->nodes[at].node;
    if (!is_product(n) || !eng_fuse_wide(f, n->in[0], &u->a) || !eng_fuse_wide(f, n->in[1], &u->b) || eng_count(u->a.scale) != 1)
        return false;
    const pst_tensor *w = eng_fuse_folded(f, u->b.id);
    bool gemm = !strcmp(n->op_type, "Gemm"), conv = !strcmp(n->op_type, "Conv");
    int axis = w ? column_axis(n, w) : -1;
    u->product = n;
    u->columns = axis < 0 ? 0 : w->dims[axis];
    if (u->bias < 0)
        u->bias = n->n_in > 2 ? n->in[2] : -1;
    else if (n->n_in > 2 && n->in[2] >= 0)
        return false; /* two biases */
    if (((gemm || conv || u->bias >= 0) && !u->columns) ||
        (eng_count(u->b.scale) != 1 && (eng_count(u->b.scale) != u->columns || !is_axis(&u->b, w->rank, axis))))
        return false;
    return add_part(u, at);
}

/* A bound of Clip. */
static bool bound(const eng_fuser *f, const eng_node *n, int i, const char *attr, double def, double *ret)
{
    *ret = n->opset < 11 ? (double)eng_attr_float(n, attr, (float)def) : def;
    return n->opset < 11 || i >= n->n_in || n->in[i] < 0 || eng_fuse_scalar(f, n->in[i], ret);
}

/* Relu or Clip in front of what is rounded: limits of the bytes, inside those there are. */
static bool take_limit(const eng_fuser *f, const eng_node *n, unit *u)
{
    double min = 0, max = (double)INFINITY;
    if (!eng_fuse_is(n, "Relu") && (!eng_fuse_is(n, "Clip") || n->opset < 6 || !bound(f, n, 1, "min", -(double)INFINITY, &min) ||
                                    !bound(f, n, 2, "max", (double)INFINITY, &max)))
        return false;
    if (!(min <= max))
        return false;
    int lo = byte_of(&u->y, (float)min), hi = byte_of(&u->y, (float)max), was = u->lo;
    u->lo = lo < u->lo ? u->lo : lo > u->hi ? u->hi : lo;
    u->hi = hi < was ? was : hi > u->hi ? u->hi : hi;
    return true;
}

/* A constant that stands for a number of each column: (n), (1, n), or one number. */
static const pst_tensor *columns_konst(const eng_fuser *f, int id, int64_t n)
{
    const pst_tensor *t = eng_fuse_konst(f, id);
    bool fits = t && (eng_count(t) == 1 || (t->rank && t->dims[t->rank - 1] == n && eng_count(t) == n));
    return fits && t->rank <= 2 ? t : NULL;
}

/* From the value that is rounded, or that stays as it is, backwards: limits, a bias that is added, the product. */
static bool walk_back(const eng_fuser *f, int value, unit *u)
{
    size_t at;
    const eng_node *n;
    for (;; value = n->in[0]) {
        n = f->readers[value] == 1 ? eng_fuse_maker(f, value, &at) : NULL;
        if (!n || n->n_in < 1 || n->in[0] < 0)
            return false;
        if (!u->y.node || !take_limit(f, n, u))
            break;
        if (!add_part(u, at))
            return false;
    }
    if (!eng_fuse_is(n, "Add") || n->n_in != 2 || n->opset < 7)
        return take_product(f, at, u);
    int side = eng_fuse_konst(f, n->in[0]) ? 1 : 0;
    size_t product_at;
    const eng_node *product = eng_fuse_maker(f, n->in[side], &product_at);
    u->bias = n->in[!side];
    if (!product || !eng_fuse_is(product, "MatMul") || f->readers[n->in[side]] != 1 || !add_part(u, at) || !take_product(f, product_at, u))
        return false;
    const pst_tensor *t = eng_fuse_konst(f, u->bias);
    return t && t->rank <= 1; /* it widens no result */
}

/* Integers that were the bias in the file, of the scale that the sums have: exact. */
static const int32_t *whole_bias(const eng_fuser *f, const unit *u)
{
    const eng_node *n = f->origin[u->bias] < 0 ? NULL : f->nodes[f->origin[u->bias]].node;
    if (!n || !eng_fuse_is(n, "DequantizeLinear") || n->n_in < 2)
        return NULL;
    const pst_tensor *q = eng_fuse_folded(f, n->in[0]), *s = eng_fuse_konst(f, n->in[1]);
    if (!q || q->dtype != PST_I32 || eng_count(q) != u->columns || !s || (eng_count(s) != 1 && eng_count(s) != u->columns) || s->rank > 1)
        return NULL;
    for (int64_t z = 0; n->n_in > 2 && n->in[2] >= 0 && z < 1; z++) {
        const pst_tensor *zero = eng_fuse_folded(f, n->in[2]);
        for (int64_t i = 0; !zero || i < eng_count(zero); i++)
            if (!zero || zero->dtype != PST_I32 || ((const int32_t *)zero->data)[i])
                return NULL;
    }
    for (int64_t j = 0; j < u->columns; j++) {
        float want = scale_of(&u->a, 0) * scale_of(&u->b, j), is = ((const float *)s->data)[eng_count(s) == 1 ? 0 : j];
        if (!(fabsf(is - want) <= 1e-5f * want))
            return NULL;
    }
    return q->data;
}

/* The bias as the kernels want it. false = it cannot be one. */
static bool set_bias(const eng_fuser *f, const unit *u, eng_int8_fused *s)
{
    if (u->bias < 0)
        return true;
    const pst_tensor *t = columns_konst(f, u->bias, u->columns);
    if (!t || (!strcmp(u->product->op_type, "Conv") && eng_count(t) != u->columns))
        return false;
    s->sums_bias = whole_bias(f, u);
    if (s->sums_bias)
        return true;
    const float *from = t->data;
    float *floats = eng_zone_alloc(&f->p->zone, (size_t)u->columns * sizeof *floats);
    int32_t *ints = eng_zone_alloc(&f->p->zone, (size_t)u->columns * sizeof *ints);
    for (int64_t j = 0; j < u->columns; j++) {
        floats[j] = from[eng_count(t) == 1 ? 0 : j];
        double v = rint((double)floats[j] / ((double)scale_of(&u->a, 0) * (double)scale_of(&u->b, j)));
        if (u->y.node && !(fabs(v) < 1 << 30))
            return false;
        ints[j] = u->y.node ? (int32_t)v : 0;
    }
    s->bias = u->y.node ? NULL : floats;
    s->sums_bias = u->y.node ? ints : NULL;
    return true;
}

static const eng_op matmul_op = {.domain = "+",
                                 .name = "QuantizedMatMul",
                                 .min_opset = 1,
                                 .cost = ENG_COST_GEMM,
                                 .run = eng_op_quantised_matmul,
                                 .prepare = eng_prepare_quantised_matmul},
                    conv_op = {.domain = "+",
                               .name = "QuantizedConv",
                               .min_opset = 1,
                               .cost = ENG_COST_CONV,
                               .run = eng_op_quantised_conv,
                               .prepare = eng_prepare_quantised_conv};

static bool put_product(eng_fuser *f, unit *u)
{
    eng_int8_fused s = {.lo = u->lo, .hi = u->hi}, *kept;
    bool conv = !strcmp(u->product->op_type, "Conv"), bytes = u->y.node != NULL;
    if ((conv && !bytes) || !set_bias(f, u, &s))
        return false;
    kept = eng_zone_alloc(&f->p->zone, sizeof *kept);
    *kept = s;
    int in[8] = {
        u->a.id, u->a.scale_id, u->a.zero_id, u->b.id, u->b.scale_id, u->b.zero_id, bytes ? u->y.scale_id : -1, bytes ? u->y.zero_id : -1};
    for (int i = 1; i < u->n; i++) /* into the order of the graph */
        for (int k = i; k > 0 && u->parts[k - 1] > u->parts[k]; k--) {
            size_t t = u->parts[k];
            u->parts[k] = u->parts[k - 1];
            u->parts[k - 1] = t;
        }
    eng_node *n = eng_fuse_replace(f, u->parts, u->n, conv ? &conv_op : &matmul_op, kept, in, 8, u->out,
                                   bytes ? "one product of bytes, rounded" : "one product of bytes, scaled");
    n->attrs = u->product->attrs;
    n->n_attrs = u->product->n_attrs;
    return true;
}

static void round_products(eng_fuser *f)
{
    for (size_t i = 0; i < f->n; i++) {
        unit u = {.bias = -1};
        if (!eng_fuse_narrow(f, i, &u.y))
            continue;
        u.out = u.y.id;
        u.lo = lowest(&u.y);
        u.hi = u.lo + 255;
        if (add_part(&u, i) && walk_back(f, f->nodes[i].node->in[0], &u))
            put_product(f, &u);
    }
}

/* Products whose result stays as it is; with a bias that is added to it where nobody else reads it. */
static void scale_products(eng_fuser *f)
{
    for (size_t i = 0; i < f->n; i++) {
        unit u = {.bias = -1};
        const eng_node *n = f->nodes[i].node;
        if (f->nodes[i].dead || (!eng_fuse_is(n, "MatMul") && !eng_fuse_is(n, "Gemm")))
            continue;
        u.out = n->out[0];
        if (f->readers[u.out] == 1 && eng_fuse_is(n, "MatMul")) {
            size_t at = (size_t)f->reader[u.out];
            const eng_node *add = f->nodes[at].node;
            unit with = {.bias = -1};
            if (!f->nodes[at].dead && eng_fuse_is(add, "Add") && add->n_in == 2 && add->opset >= 7) {
                with.out = add->out[0];
                with.bias = add->in[add->in[0] == u.out];
                const pst_tensor *t = eng_fuse_konst(f, with.bias);
                if (t && t->rank <= 1 && add_part(&with, at) && take_product(f, i, &with) && put_product(f, &with))
                    continue;
            }
        }
        if (take_product(f, i, &u))
            put_product(f, &u);
    }
}

/* ---- nodes that only move numbers ---- */

/* How many of the inputs, from the first on, are the numbers; 0 = it is no such node. */
static int moved(const eng_node *n)
{
    static const char *const movers[] = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "Expand"};
    if (eng_fuse_is(n, "Concat"))
        return n->n_in;
    for (size_t i = 0; i < sizeof movers / sizeof *movers; i++)
        if (eng_fuse_is(n, movers[i]))
            return n->n_in > 0;
    return 0;
}

static bool same(const eng_bytes *a, const eng_bytes *b)
{
    return a->type == b->type && eng_count(a->scale) == 1 && eng_count(b->scale) == 1 && scale_of(a, 0) == scale_of(b, 0) &&
           zero_of(a) == zero_of(b);
}

static void move_bytes(eng_fuser *f)
{
    for (size_t i = 0; i < f->n; i++) {
        eng_bytes y, x;
        size_t at;
        if (!eng_fuse_narrow(f, i, &y))
            continue;
        int value = f->nodes[i].node->in[0];
        const eng_node *n = f->readers[value] == 1 ? eng_fuse_maker(f, value, &at) : NULL;
        int data = n ? moved(n) : 0;
        bool may = data > 0;
        for (int k = 0; k < data && may; k++)
            may = eng_fuse_wide(f, n->in[k], &x) && same(&x, &y);
        if (!may)
            continue;
        eng_node *copy = eng_zone_alloc(&f->p->zone, sizeof *copy);
        *copy = *n;
        copy->in = eng_zone_alloc(&f->p->zone, ((size_t)n->n_in + 1) * sizeof(int));
        copy->out = copy->in + n->n_in;
        copy->out[0] = y.id;
        copy->n_out = 1;
        for (int k = 0; k < n->n_in; k++)
            copy->in[k] = k < data && eng_fuse_wide(f, n->in[k], &x) ? x.id : n->in[k];
        f->nodes[at].dead = true;
        f->nodes[i].node = copy;
        f->maker[y.id] = (int)i;
    }
}

void eng_fuse_qdq(eng_fuser *f)
{
    round_products(f);
    scale_products(f);
    move_bytes(f);
}
