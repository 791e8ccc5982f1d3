/* contrib.c - what operators of ONNX Runtime's own (com.microsoft) are made of, as its optimiser writes them: fused activations, normalisations, products and
 * convolutions. Meaning, inputs and attributes are those of ONNX Runtime's document of contributed operators. */
#include "engine/ops/kernels.h"

#include <string.h>

enum { NEW = ENG_EXPAND_NEW };
#define IN    EXPAND_IN
#define ATTRS EXPAND_ATTRS
#define PLAIN EXPAND_PLAIN

static bool given(const eng_expand *x, int i)
{
    return eng_expand_in(x, i) >= 0;
}

/* Input 0, and input 1 added to it where there is one. */
static int with_bias(eng_expand *x)
{
    int in = eng_expand_in(x, 0);
    return given(x, 1) ? eng_expand_node(x, "Add", NEW, IN(in, eng_expand_in(x, 1)), PLAIN) : in;
}

const char *eng_made_of_gelu(eng_expand *x)
{
    eng_expand_node(x, "Gelu", eng_expand_out(x, 0), IN(with_bias(x)), PLAIN);
    return NULL;
}

const char *eng_made_of_fast_gelu(eng_expand *x)
{
    eng_expand_node(x, "Gelu", eng_expand_out(x, 0), IN(with_bias(x)), ATTRS(EXPAND_STR("approximate", "tanh")));
    return NULL;
}

const char *eng_made_of_quick_gelu(eng_expand *x)
{
    eng_expand_node(x, "Swish", eng_expand_out(x, 0), IN(eng_expand_in(x, 0)),
                    ATTRS(EXPAND_FLOAT("alpha", eng_attr_float(x->of, "alpha", 1.702f))));
    return NULL;
}

/* Softmax over all dimensions from `axis` on, as it was before opset 13; the bias is broadcast as Add does it. */
const char *eng_made_of_bias_softmax(eng_expand *x)
{
    int64_t axis = eng_attr_int(x->of, "axis", 1);
    if (!given(x, 1))
        return "without a bias";
    if (axis != -1)
        return "an axis other than -1";
    eng_expand_node(x, "Softmax", eng_expand_out(x, 0), IN(with_bias(x)), ATTRS(EXPAND_INT("axis", -1)));
    return NULL;
}

/* (input, skip, gamma, [beta], [bias]) → normalised, mean, deviation's inverse, the sum. */
static const char *skip_norm(eng_expand *x, const char *op, int at_bias)
{
    int sum = with_bias(x), more = eng_expand_in(x, at_bias), beta = at_bias == 4 ? eng_expand_in(x, 3) : -1;
    float eps = eng_attr_float(x->of, "epsilon", 1e-12f);
    if (!given(x, 1))
        return "without a skip";
    if (more >= 0)
        sum = eng_expand_node(x, "Add", NEW, IN(sum, more), PLAIN);
    if (eng_expand_out(x, 3) >= 0)
        eng_expand_node(x, "Identity", eng_expand_out(x, 3), IN(sum), PLAIN);
    int out[3] = {eng_expand_out(x, 0), eng_expand_out(x, 1), eng_expand_out(x, 2)}, n = out[1] >= 0 || out[2] >= 0 ? 3 : 1;
    eng_expand_nodes(x, op, n, out, IN(sum, eng_expand_in(x, 2), beta), ATTRS(EXPAND_FLOAT("epsilon", eps)));
    return NULL;
}

const char *eng_made_of_skip_layer_norm(eng_expand *x)
{
    return skip_norm(x, "LayerNormalization", 4);
}

const char *eng_made_of_skip_rms_norm(eng_expand *x)
{
    if (eng_expand_out(x, 1) >= 0 || eng_expand_out(x, 2) >= 0)
        return "its statistics as results";
    return skip_norm(x, "RMSNormalization", 3);
}

const char *eng_made_of_rms_norm(eng_expand *x)
{
    if (eng_expand_out(x, 1) >= 0)
        return "its statistics as results";
    eng_expand_node(
        x, "RMSNormalization", eng_expand_out(x, 0), IN(eng_expand_in(x, 0), eng_expand_in(x, 1)),
        ATTRS(EXPAND_INT("axis", eng_attr_int(x->of, "axis", -1)), EXPAND_FLOAT("epsilon", eng_attr_float(x->of, "epsilon", 1e-5f))));
    return NULL;
}

/* The activation of a fused convolution or product; n of the parameters a and b are given. */
static const char *activate(eng_expand *x, const char *act, int in, size_t n, float a, float b)
{
    int out = eng_expand_out(x, 0);
    if (n < 1 && (!strcmp(act, "LeakyRelu") || !strcmp(act, "Elu")))
        return "an activation without its parameter";
    if (n < 2 && (!strcmp(act, "HardSigmoid") || !strcmp(act, "Clip")))
        return "an activation without its two parameters";
    if (!strcmp(act, "Relu") || !strcmp(act, "Sigmoid") || !strcmp(act, "Tanh") || !strcmp(act, "Softplus") || !strcmp(act, "Softsign") ||
        !strcmp(act, "HardSwish"))
        eng_expand_node(x, act, out, IN(in), PLAIN);
    else if (!strcmp(act, "LeakyRelu") || !strcmp(act, "Elu"))
        eng_expand_node(x, act, out, IN(in), ATTRS(EXPAND_FLOAT("alpha", a)));
    else if (!strcmp(act, "HardSigmoid"))
        eng_expand_node(x, act, out, IN(in), ATTRS(EXPAND_FLOAT("alpha", a), EXPAND_FLOAT("beta", b)));
    else if (!strcmp(act, "Clip"))
        eng_expand_node(x, act, out, IN(in, eng_expand_float(x, a), eng_expand_float(x, b)), PLAIN);
    else
        return "an activation other than Relu, LeakyRelu, Elu, Sigmoid, Tanh, HardSigmoid, HardSwish, Softplus, Softsign, Clip";
    return NULL;
}

/* The attributes that the plain operator has as well. */
static int attrs_but(const eng_expand *x, const char *prefix, eng_attr *ret)
{
    int n = 0;
    for (int i = 0; i < x->of->n_attrs; i++)
        if (strncmp(x->of->attrs[i].name, prefix, strlen(prefix)) != 0)
            ret[n++] = x->of->attrs[i];
    return n;
}

/* (X, W, [B], [Z]): Z is added before the activation. */
const char *eng_made_of_fused_conv(eng_expand *x)
{
    const char *act = eng_attr_str(x->of, "activation", "");
    size_t n_params;
    const float *params = eng_attr_floats(x->of, "activation_params", &n_params);
    int z = eng_expand_in(x, 3), last = *act ? NEW : eng_expand_out(x, 0);
    eng_attr *attrs = eng_zone_alloc(&x->m->zone, (size_t)(x->of->n_attrs + 1) * sizeof *attrs);
    int n = attrs_but(x, "activation", attrs);
    int y = eng_expand_node(x, "Conv", z >= 0 ? NEW : last, IN(eng_expand_in(x, 0), eng_expand_in(x, 1), eng_expand_in(x, 2)), n, attrs);
    if (z >= 0)
        y = eng_expand_node(x, "Add", last, IN(y, z), PLAIN);
    return *act ? activate(x, act, y, n_params, n_params > 0 ? params[0] : 0, n_params > 1 ? params[1] : 0) : NULL;
}

const char *eng_made_of_fused_gemm(eng_expand *x)
{
    const char *act = eng_attr_str(x->of, "activation", "");
    eng_attr *attrs = eng_zone_alloc(&x->m->zone, (size_t)(x->of->n_attrs + 1) * sizeof *attrs);
    int n = attrs_but(x, "activation", attrs);
    int y = eng_expand_node(x, "Gemm", *act ? NEW : eng_expand_out(x, 0), IN(eng_expand_in(x, 0), eng_expand_in(x, 1), eng_expand_in(x, 2)),
                            n, attrs);
    size_t n_params = 0; /* a beta without an alpha is none */
    if (eng_attr_find(x->of, "activation_alpha"))
        n_params = eng_attr_find(x->of, "activation_beta") ? 2 : 1;
    float a = eng_attr_float(x->of, "activation_alpha", 0), b = eng_attr_float(x->of, "activation_beta", 0);
    return *act ? activate(x, act, y, n_params, a, b) : NULL;
}

const char *eng_made_of_fused_matmul(eng_expand *x)
{
    int64_t ta = eng_attr_int(x->of, "transA", 0), tb = eng_attr_int(x->of, "transB", 0);
    float alpha = eng_attr_float(x->of, "alpha", 1);
    if (eng_attr_int(x->of, "transBatchA", 0) || eng_attr_int(x->of, "transBatchB", 0))
        return "transBatchA, transBatchB";
    int a = eng_expand_in(x, 0), b = eng_expand_in(x, 1);
    if (!ta && !tb && alpha == 1)
        eng_expand_node(x, "MatMul", eng_expand_out(x, 0), IN(a, b), PLAIN);
    else
        eng_expand_node(x, "FusedMatMul", eng_expand_out(x, 0), IN(a, b),
                        ATTRS(EXPAND_INT("transA", ta), EXPAND_INT("transB", tb), EXPAND_FLOAT("alpha", alpha)));
    return NULL;
}

/* (A, B, B's scale, [B's zero point], [bias]): A is quantised as a whole, then it is a product of bytes. */
const char *eng_made_of_dynamic_quantize_matmul(eng_expand *x)
{
    int q[3] = {NEW, NEW, NEW};
    eng_expand_nodes(x, "DynamicQuantizeLinear", 3, q, IN(eng_expand_in(x, 0)), PLAIN);
    eng_expand_node(x, "MatMulIntegerToFloat", eng_expand_out(x, 0),
                    IN(q[0], eng_expand_in(x, 1), q[1], eng_expand_in(x, 2), q[2], eng_expand_in(x, 3), eng_expand_in(x, 4)), PLAIN);
    return NULL;
}
