/* contrib_quant.c - ONNX Runtime's operators of 8-bit values that stand for one of ONNX's between DequantizeLinear and QuantizeLinear: exactly those three are put
 * in its place. Results are those of ONNX Runtime but for ties where it has tables or integer sums instead: one step of the result's scale. */
#include "engine/ops/kernels.h"

enum { NEW = ENG_EXPAND_NEW };
#define IN    EXPAND_IN
#define ATTRS EXPAND_ATTRS
#define PLAIN EXPAND_PLAIN

/* Inputs i, i + 1 and i + 2: a value, its scale and its zero point. */
static int wide(eng_expand *x, int i)
{
    return eng_expand_node(x, "DequantizeLinear", NEW, IN(eng_expand_in(x, i), eng_expand_in(x, i + 1), eng_expand_in(x, i + 2)), PLAIN);
}

/* The result, with the scale and the zero point of inputs i and i + 1; the zero point says the type. */
static const char *narrow(eng_expand *x, int value, int i)
{
    if (eng_expand_in(x, i + 1) < 0)
        return "without the result's zero point";
    eng_expand_node(x, "QuantizeLinear", eng_expand_out(x, 0), IN(value, eng_expand_in(x, i), eng_expand_in(x, i + 1)), PLAIN);
    return NULL;
}

/* (A, A's scale, zero, B, B's scale, zero, the result's scale, [zero]) */
static const char *binary(eng_expand *x, const char *op)
{
    int a = wide(x, 0), b = wide(x, 3);
    return narrow(x, eng_expand_node(x, op, NEW, IN(a, b), PLAIN), 6);
}

const char *eng_made_of_qlinear_add(eng_expand *x)
{
    return binary(x, "Add");
}

const char *eng_made_of_qlinear_mul(eng_expand *x)
{
    return binary(x, "Mul");
}

/* (X, X's scale, zero, the result's scale, zero); attributes of op. */
static const char *unary(eng_expand *x, const char *op, int n_attrs, const eng_attr *attrs)
{
    int in = wide(x, 0);
    return narrow(x, eng_expand_node(x, op, NEW, IN(in), n_attrs, attrs), 3);
}

const char *eng_made_of_qlinear_sigmoid(eng_expand *x)
{
    return unary(x, "Sigmoid", PLAIN);
}

const char *eng_made_of_qlinear_leaky_relu(eng_expand *x)
{
    return unary(x, "LeakyRelu", ATTRS(EXPAND_FLOAT("alpha", eng_attr_float(x->of, "alpha", 0.01f))));
}

/* Over one axis from opset 13 of the softmax that it was, else over all from the axis on: the same for the last one. */
const char *eng_made_of_qlinear_softmax(eng_expand *x)
{
    int64_t axis = eng_attr_int(x->of, "axis", -1);
    if (eng_attr_int(x->of, "opset", 0) < 13 && axis != -1)
        return "an axis other than -1 of an opset below 13";
    return unary(x, "Softmax", ATTRS(EXPAND_INT("axis", axis)));
}

const char *eng_made_of_qlinear_average_pool(eng_expand *x)
{
    if (eng_attr_int(x->of, "channels_last", 0))
        return "channels_last";
    return unary(x, "AveragePool", x->of->n_attrs, x->of->attrs);
}

const char *eng_made_of_qlinear_global_average_pool(eng_expand *x)
{
    if (eng_attr_int(x->of, "channels_last", 0))
        return "channels_last";
    return unary(x, "GlobalAveragePool", PLAIN);
}

/* (the result's scale, zero, then of each part: value, scale, zero) */
const char *eng_made_of_qlinear_concat(eng_expand *x)
{
    int n = (x->of->n_in - 2) / 3, *parts = eng_zone_alloc(&x->m->zone, (size_t)(x->of->n_in + 1) * sizeof *parts);
    if (x->of->n_in < 5 || (x->of->n_in - 2) % 3)
        return "inputs that are not (value, scale, zero point)";
    for (int i = 0; i < n; i++)
        parts[i] = wide(x, 2 + 3 * i);
    return narrow(x, eng_expand_node(x, "Concat", NEW, n, parts, ATTRS(EXPAND_INT("axis", eng_attr_int(x->of, "axis", 0)))), 0);
}
