/* contrib_attention.c - ONNX Runtime's Attention, QAttention and EmbedLayerNormalization, put together from ONNX's operators; and the mask of the former as numbers that are added. */
#include "engine/ops/kernels.h"

enum { NEW = ENG_EXPAND_NEW };
#define IN    EXPAND_IN
#define ATTRS EXPAND_ATTRS
#define PLAIN EXPAND_PLAIN

/* ---- the mask ---- */

/* Whether query s of item b sees key t: by lengths (batch), by ends and starts (2 · batch), or by numbers above 0. */
static bool sees(const pst_tensor *m, int64_t batch, int64_t b, int64_t s, int64_t t)
{
    const int32_t *v = m->data;
    if (m->rank == 1)
        return t < v[b] && (m->dims[0] == batch || t >= v[batch + b]);
    int64_t keys = m->dims[m->rank - 1];
    return v[m->rank == 2 ? b * keys + t : (b * m->dims[1] + s) * keys + t] > 0;
}

/* (mask, x (batch, length, …), [past (2, batch, heads, before, …)]) → (batch, 1, 1 or length, before + length): 0, or the filter's value where a key is not
 * seen. */
int eng_op_attention_mask(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    if (rc < 0)
        return rc;
    const pst_tensor *m = eng_in(c, 0), *x = eng_in(c, 1), *past = eng_in(c, 2);
    int64_t batch = x->rank == 3 ? x->dims[0] : -1, length = x->rank == 3 ? x->dims[1] : -1;
    if (past && past->rank != 5)
        return eng_op_fail(c, PST_EINVAL, "past must be (2, batch, heads, length, size), and has %d dimensions", past->rank);
    int64_t keys = past ? length + past->dims[3] : length;
    bool fits = batch >= 0 && m->dtype == PST_I32 &&
                ((m->rank == 1 && (m->dims[0] == batch || m->dims[0] == 2 * batch)) ||
                 (m->rank == 2 && m->dims[0] == batch && m->dims[1] == keys) ||
                 (m->rank == 3 && m->dims[0] == batch && m->dims[1] == length && m->dims[2] == keys));
    if (!fits)
        return eng_op_fail(
            c, PST_EINVAL,
            "an int32 mask of (batch), (2*batch), (batch, keys) or (batch, length, keys) is needed; keys: those of past too");
    int64_t rows = m->rank == 3 ? length : 1, dims[4] = {batch, 1, rows, keys};
    pst_tensor mask = *m;
    float filter = eng_attr_float(c->node, "mask_filter_value", -10000), *y = eng_out(c, 0, PST_F32, 4, dims);
    if (!y)
        return PST_ELIMIT;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t s = 0; s < rows; s++)
            for (int64_t t = 0; t < keys; t++)
                *y++ = sees(&mask, batch, b, s, t) ? 0 : filter;
    return 0;
}

/* ---- what they are made of ---- */

/* Queries, keys and values of one product, side by side. */
static void split(eng_expand *x, int qkv, int *ret)
{
    size_t n;
    const int64_t *sizes = eng_attr_ints(x->of, "qkv_hidden_sizes", &n);
    ret[0] = ret[1] = ret[2] = NEW;
    if (sizes && n == 3)
        eng_expand_nodes(x, "Split", 3, ret, IN(qkv, eng_expand_ints(x, 3, sizes)), ATTRS(EXPAND_INT("axis", -1)));
    else
        eng_expand_nodes(x, "Split", 3, ret, IN(qkv), ATTRS(EXPAND_INT("axis", -1), EXPAND_INT("num_outputs", 3)));
}

/* The inputs of an attention behind the product that makes queries, keys and values; -1 = not given. */
typedef struct parts {
    int in, qkv, mask, past, bias; /* bias: added to the scores */
} parts;

/* What is added to the scores: the mask as numbers, the bias, or their sum; -1 = nothing. */
static int added(eng_expand *x, const parts *p)
{
    if (p->mask < 0)
        return p->bias;
    int mask = eng_expand_node(x, "AttentionMask", NEW, IN(p->mask, p->in, p->past),
                               ATTRS(EXPAND_FLOAT("mask_filter_value", eng_attr_float(x->of, "mask_filter_value", -10000))));
    return p->bias < 0 ? mask : eng_expand_node(x, "Add", NEW, IN(mask, p->bias), PLAIN);
}

/* past (2, batch, heads, before, size): keys and values one behind the other. */
static void split_past(eng_expand *x, int past, int *ret)
{
    int axis = eng_expand_ints(x, 1, (const int64_t[]){0}), half[2] = {NEW, NEW};
    eng_expand_nodes(x, "Split", 2, half, IN(past), ATTRS(EXPAND_INT("axis", 0), EXPAND_INT("num_outputs", 2)));
    for (int i = 0; i < 2; i++)
        ret[i] = eng_expand_node(x, "Squeeze", NEW, IN(half[i], axis), PLAIN);
}

static void join_present(eng_expand *x, const int *now)
{
    int axis = eng_expand_ints(x, 1, (const int64_t[]){0});
    int keys = eng_expand_node(x, "Unsqueeze", NEW, IN(now[0], axis), PLAIN),
        values = eng_expand_node(x, "Unsqueeze", NEW, IN(now[1], axis), PLAIN);
    eng_expand_node(x, "Concat", eng_expand_out(x, 1), IN(keys, values), ATTRS(EXPAND_INT("axis", 0)));
}

/* What of it is not covered; NULL = all is. */
static const char *uncovered(const eng_expand *x)
{
    if (eng_attr_int(x->of, "do_rotary", 0))
        return "do_rotary";
    if (eng_attr_int(x->of, "past_present_share_buffer", 0))
        return "past_present_share_buffer";
    return eng_attr_int(x->of, "num_heads", 0) < 1 ? "without num_heads" : NULL;
}

static void attend(eng_expand *x, const parts *p)
{
    int64_t heads = eng_attr_int(x->of, "num_heads", 0);
    int part[3], before[2] = {-1, -1}, out[3] = {eng_expand_out(x, 0), NEW, NEW};
    bool present = eng_expand_out(x, 1) >= 0;
    split(x, p->qkv, part);
    if (p->past >= 0)
        split_past(x, p->past, before);
    eng_attr attrs[] = {EXPAND_INT("q_num_heads", heads), EXPAND_INT("kv_num_heads", heads),
                        EXPAND_INT("is_causal", eng_attr_int(x->of, "unidirectional", 0)),
                        EXPAND_FLOAT("scale", eng_attr_float(x->of, "scale", 0))};
    eng_expand_nodes(x, "Attention", present ? 3 : 1, out, IN(part[0], part[1], part[2], added(x, p), before[0], before[1]),
                     attrs[3].f != 0 ? 4 : 3, attrs);
    if (present)
        join_present(x, out + 1);
}

/* (input, weights, [bias], [mask], [past], [attention bias], [length of the past]) → y, [present] */
const char *eng_made_of_attention(eng_expand *x)
{
    if (eng_expand_in(x, 6) >= 0)
        return "a past in a buffer of its own length";
    if (eng_expand_in(x, 4) >= 0 && eng_expand_in(x, 5) >= 0) /* ONNX Runtime takes none of both either */
        return "past and attention_bias together";
    int bias = eng_expand_in(x, 2);
    parts p = {eng_expand_in(x, 0), -1, eng_expand_in(x, 3), eng_expand_in(x, 4), eng_expand_in(x, 5)};
    p.qkv = eng_expand_node(x, "MatMul", NEW, IN(p.in, eng_expand_in(x, 1)), PLAIN);
    p.qkv = bias >= 0 ? eng_expand_node(x, "Add", NEW, IN(p.qkv, bias), PLAIN) : p.qkv;
    const char *lacks = uncovered(x);
    if (!lacks)
        attend(x, &p);
    return lacks;
}

/* (input, weights, bias, input's scale, weights' scale, [mask], [input's zero point], [weights' zero point], [past]) → y, [present] */
const char *eng_made_of_q_attention(eng_expand *x)
{
    parts p = {eng_expand_in(x, 0), -1, eng_expand_in(x, 5), eng_expand_in(x, 8), -1};
    p.qkv = eng_expand_node(x, "MatMulIntegerToFloat", NEW,
                            IN(p.in, eng_expand_in(x, 1), eng_expand_in(x, 3), eng_expand_in(x, 4), eng_expand_in(x, 6),
                               eng_expand_in(x, 7), eng_expand_in(x, 2)),
                            PLAIN);
    const char *lacks = uncovered(x);
    if (!lacks)
        attend(x, &p);
    return lacks;
}

/* Positions of the given ids: as given, or the first ones. */
static int positions(eng_expand *x, int ids)
{
    int table = eng_expand_in(x, 3), given = eng_expand_in(x, 8);
    if (given >= 0)
        return eng_expand_node(x, "Gather", NEW, IN(table, given), PLAIN);
    int length = eng_expand_node(x, "Shape", NEW, IN(ids), ATTRS(EXPAND_INT("start", 1), EXPAND_INT("end", 2)));
    int zero = eng_expand_ints(x, 1, (const int64_t[]){0});
    return eng_expand_node(x, "Slice", NEW, IN(table, zero, length, zero), PLAIN);
}

/* (ids, [segments], words, positions, [segments' table], gamma, beta, [mask], [position ids]) → normalised, ones of the mask, the sum. */
const char *eng_made_of_embed_layer_norm(eng_expand *x)
{
    int ids = eng_expand_in(x, 0), segments = eng_expand_in(x, 1), table = eng_expand_in(x, 4), mask = eng_expand_in(x, 7);
    if (ids < 0 || eng_expand_in(x, 2) < 0 || eng_expand_in(x, 3) < 0 || eng_expand_in(x, 5) < 0 || eng_expand_in(x, 6) < 0 ||
        (segments >= 0 && table < 0))
        return "a table, gamma or beta missing";
    int sum = eng_expand_node(x, "Add", NEW, IN(eng_expand_node(x, "Gather", NEW, IN(eng_expand_in(x, 2), ids), PLAIN), positions(x, ids)),
                              PLAIN);
    if (segments >= 0)
        sum = eng_expand_node(x, "Add", NEW, IN(sum, eng_expand_node(x, "Gather", NEW, IN(table, segments), PLAIN)), PLAIN);
    if (eng_expand_out(x, 2) >= 0)
        eng_expand_node(x, "Identity", eng_expand_out(x, 2), IN(sum), PLAIN);
    eng_expand_node(x, "LayerNormalization", eng_expand_out(x, 0), IN(sum, eng_expand_in(x, 5), eng_expand_in(x, 6)),
                    ATTRS(EXPAND_FLOAT("epsilon", eng_attr_float(x->of, "epsilon", 1e-12f))));
    if (eng_expand_out(x, 1) >= 0) {
        int axis = eng_expand_ints(x, 1, (const int64_t[]){1});
        mask = mask >= 0 ? mask : eng_expand_node(x, "Sub", NEW, IN(ids, ids), PLAIN);
        eng_expand_node(x, "ReduceSum", eng_expand_out(x, 1), IN(mask, axis), ATTRS(EXPAND_INT("keepdims", 0)));
    }
    return NULL;
}
