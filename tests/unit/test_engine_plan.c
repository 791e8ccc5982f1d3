/* The plan compiler: every fusion beside its unfused twin on every instruction set, with broadcast corner cases, NaN and
 * infinities; what is folded and dropped. */
#include "engine/cpu/isa.h"
#include "tests/unit/engine_kit.h"

static const char *const isas[] = {"portable", "avx2", "avx512"};

static void spoil(float *x, size_t n)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f, 3e38f, -3e38f, 88.8f, -104.0f, 1.0f, -1.0f};
    for (size_t i = 0; i < n; i++)
        if (kit_next() % 5 == 0)
            x[i] = odd[kit_next() % (sizeof odd / sizeof *odd)];
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        n++;
    return n;
}

/* How many steps of this kind the plan has. */
static int steps_of(pst_plan *p, const char *word)
{
    char *text = pst_plan_explain(p);
    int n = count(text, word);
    free(text);
    return n;
}

/* ---- elementwise groups ---- */

enum { N_SHAPES = 9, RANK = 3 };
static const int64_t shapes[N_SHAPES][RANK] = {{5, 7, 33}, {1, 7, 33}, {5, 1, 33}, {5, 7, 1}, {1, 1, 33},
                                               {5, 1, 1},  {1, 7, 1},  {1, 1, 1},  {5, 7, 33}};

static size_t shape_count(const int64_t *d)
{
    return (size_t)(d[0] * d[1] * d[2]);
}

/* A random expression over inputs and constants of every shape that broadcasts: exact operators, or smooth ones. */
static pst_model *random_expression(bool exact, int nodes)
{
    static const char *const exact_ops[] = {"Add",  "Sub",   "Mul",        "Div",   "Min",    "Max",   "PRelu",  "Sum",         "-Neg",
                                            "-Abs", "-Relu", "-LeakyRelu", "-Sqrt", "-Floor", "-Ceil", "-Round", "-Reciprocal", "-Clip"};
    static const char *const smooth_ops[] = {
        "Add",  "Sub",       "Min",          "Max",        "-Erf",      "-Sigmoid", "-Tanh",
        "-Elu", "-Softplus", "-HardSigmoid", "-HardSwish", "-Softsign", "-Gelu"}; /* none of them magnifies an error much */
    enum { EXACT = sizeof exact_ops / sizeof *exact_ops, SMOOTH = sizeof smooth_ops / sizeof *smooth_ops };
    pst_onnx_builder *b = pst_onnx_new("expression", 20, 9);
    char line[120], name[24];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "x%d", i);
        pst_onnx_input(b, name, PST_F32, RANK, (int64_t[]){-1, -1, -1}, "N");
        snprintf(name, sizeof name, "c%d", i);
        const int64_t *d = shapes[kit_next() % N_SHAPES];
        kit_weights(b, name, 1, (int64_t[]){d[0], d[1], d[2], -1});
    }
    kit_scalar(b, "lo", -1.5f);
    kit_scalar(b, "hi", 1.25f);
    for (int i = 0; i < nodes; i++) {
        const char *op = exact ? exact_ops[kit_next() % EXACT] : smooth_ops[kit_next() % SMOOTH];
        char a[24], c[24];
        for (int k = 0; k < 2; k++) {
            uint32_t what = kit_next() % 8;
            char *to = k ? c : a;
            if (i && (what < 5 || (!k && i > 1)))
                snprintf(to, sizeof a, "v%d", what < 3 || kit_next() % 2 ? i - 1 : (int)(kit_next() % (uint32_t)i));
            else
                snprintf(to, sizeof a, "%c%u", what < 7 ? 'x' : 'c', kit_next() % 4);
        }
        if (!strcmp(op, "-Clip"))
            snprintf(line, sizeof line, "Clip %s lo hi > v%d", a, i);
        else if (*op == '-')
            snprintf(line, sizeof line, "%s %s > v%d", op + 1, a, i);
        else
            snprintf(line, sizeof line, "%s %s %s > v%d", op, a, c, i);
        kit_node(b, line);
    }
    snprintf(name, sizeof name, "v%d", nodes - 1);
    pst_onnx_output(b, name, PST_F32, RANK, (int64_t[]){-1, -1, -1}, "N");
    return kit_load(b, NULL);
}

static void compare_expression(pst_model *m, bool exact, const char *what)
{
    pst_plan *plain = kit_plan(m, NULL, true);
    uint64_t drawn = kit_seed; /* each instruction set gets the same numbers */
    for (size_t k = 0; k < sizeof isas / sizeof *isas; k++) {
        if (!eng_kernels_pick(isas[k]))
            continue;
        kit_seed = drawn;
        pst_plan *p = kit_plan(m, isas[k], false);
        for (int round = 0; round < 4; round++) {
            pst_tensor in[4];
            for (int i = 0; i < 4; i++) {
                const int64_t *d = shapes[round == 3 ? 0 : kit_next() % N_SHAPES]; /* the last round: all of one shape */
                in[i] = (pst_tensor){.dtype = PST_F32, .rank = RANK, .dims = {d[0], d[1], d[2]}, .data = kit_floats(shape_count(d))};
                if (exact)
                    spoil(in[i].data, shape_count(d));
            }
            kit_same(p, plain, in, 4, 1, exact ? 0 : 1e-4f, what);
            kit_same(p, plain, in, 4, 1, exact ? 0 : 1e-4f, what); /* again: shapes are known now */
            for (int i = 0; i < 4; i++)
                free(in[i].data);
        }
        pst_plan_free(p);
    }
    pst_plan_free(plain);
}

static void test_plan_elementwise_groups_give_the_bits_of_their_nodes(void **state)
{
    for (int round = 0; round < 60; round++) {
        uint64_t seed = kit_seed;
        char what[64];
        snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
        pst_model *m = random_expression(true, 2 + round % 14);
        compare_expression(m, true, what);
        pst_model_unref(m);
    }
}

static void test_plan_elementwise_groups_with_functions_are_close(void **state)
{
    static const char *const ops[] = {"Exp",       "Erf",      "Sigmoid", "Tanh", "Elu",       "Softplus", "HardSigmoid",
                                      "HardSwish", "Softsign", "Log",     "Gelu", "LeakyRelu", "Relu"};
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) { /* one function between exact nodes, on all magnitudes */
        char line[40];
        pst_onnx_builder *b = pst_onnx_new("function", 20, 9);
        pst_onnx_input(b, "x", PST_F32, 1, (int64_t[]){-1}, "N");
        kit_node(b, "Neg x > a");
        snprintf(line, sizeof line, "%s a > b", ops[k]);
        kit_node(b, line);
        kit_node(b, "Neg b > y");
        pst_onnx_output(b, "y", PST_F32, 1, (int64_t[]){-1}, "N");
        pst_model *m = kit_load(b, NULL);
        pst_plan *plain = kit_plan(m, NULL, true);
        enum { N = 4000 };
        static float x[N];
        for (int i = 0; i < N; i++)
            x[i] = i % 4 == 0 ? kit_float() * 60 : i % 4 == 1 ? kit_float() * 1e-3f : kit_float() * 3;
        spoil(x, 400);
        uint64_t drawn = kit_seed; /* each instruction set gets the same numbers */
        for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
            if (!eng_kernels_pick(isas[i]))
                continue;
            kit_seed = drawn;
            pst_plan *p = kit_plan(m, isas[i], false);
            assert_int_equal(steps_of(p, "Elementwise"), 1);
            kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 1, .dims = {N}, .data = x}, 1, 1, 4e-7f, ops[k]);
            pst_plan_free(p);
        }
        pst_plan_free(plain);
        pst_model_unref(m);
    }
}

static void test_plan_random_smooth_expressions_are_close(void **state)
{
    for (int round = 0; round < 40; round++) {
        char what[64];
        snprintf(what, sizeof what, "seed %llu", (unsigned long long)kit_seed);
        pst_model *m = random_expression(false, 2 + round % 12);
        compare_expression(m, false, what);
        pst_model_unref(m);
    }
}

/* y = 0.5·x·(1 + erf(x/√2)), as exporters write it. */
static void add_gelu(pst_onnx_builder *b, const char *x, const char *y)
{
    char line[80];
    snprintf(line, sizeof line, "Div %s root2 > %s_1", x, y);
    kit_node(b, line);
    snprintf(line, sizeof line, "Erf %s_1 > %s_2", y, y);
    kit_node(b, line);
    snprintf(line, sizeof line, "Add %s_2 one > %s_3", y, y);
    kit_node(b, line);
    snprintf(line, sizeof line, "Mul %s %s_3 > %s_4", x, y, y);
    kit_node(b, line);
    snprintf(line, sizeof line, "Mul %s_4 half > %s", y, y);
    kit_node(b, line);
}

static void test_plan_gelu_of_exporters_is_one_step(void **state)
{
    pst_onnx_builder *b = pst_onnx_new("gelu", 13, 7);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 50}, "N");
    kit_scalar(b, "root2", 1.41421354f);
    kit_scalar(b, "one", 1);
    kit_scalar(b, "half", 0.5f);
    add_gelu(b, "x", "y");
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 50}, "N");
    pst_model *m = kit_load(b, NULL);
    pst_plan *plain = kit_plan(m, NULL, true), *p = kit_plan(m, NULL, false);
    assert_int_equal(steps_of(p, "1 step left"), 1);
    float *x = kit_floats(50 * 40);
    spoil(x, 300);
    kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 2, .dims = {40, 50}, .data = x}, 1, 1, 1e-6f, "gelu");
    free(x);
    pst_plan_free(p);
    pst_plan_free(plain);
    pst_model_unref(m);
}

static void test_plan_groups_of_other_types_run_node_by_node(void **state)
{
    static const pst_dtype types[] = {PST_I64, PST_F64, PST_I32};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        for (int declared = 0; declared < 2; declared++) { /* a type the compiler knows, and one it meets at run time */
            pst_onnx_builder *b = pst_onnx_new("types", 17, 8);
            pst_onnx_input(b, "x", declared ? types[k] : (pst_dtype)0, 1, (int64_t[]){-1}, "N");
            kit_node(b, "Add x x > a");
            kit_node(b, "Mul a x > b");
            kit_node(b, "Sub b a > y");
            pst_onnx_output(b, "y", types[k], 1, (int64_t[]){-1}, "N");
            pst_model *m = kit_load(b, NULL);
            pst_plan *plain = kit_plan(m, NULL, true), *p = kit_plan(m, NULL, false);
            assert_int_equal(steps_of(p, "Elementwise"), declared ? 0 : 1);
            uint64_t x[16];
            for (int i = 0; i < 16; i++) {
                double d = (double)kit_float();
                x[i] = types[k] == PST_F64 ? 0 : kit_next();
                if (types[k] == PST_F64)
                    memcpy(&x[i], &d, 8);
            }
            kit_same(p, plain, &(pst_tensor){.dtype = types[k], .rank = 1, .dims = {16}, .data = x}, 1, 1, 0, "types");
            pst_plan_free(p);
            pst_plan_free(plain);
            pst_model_unref(m);
        }
}

static void test_plan_shapes_that_do_not_broadcast_are_refused_as_without_fusion(void **state)
{
    pst_onnx_builder *b = pst_onnx_new("bad", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 1, (int64_t[]){-1}, "N");
    pst_onnx_input(b, "z", PST_F32, 1, (int64_t[]){-1}, "M");
    kit_node(b, "Add x z > a");
    kit_node(b, "Mul a x > y");
    pst_onnx_output(b, "y", PST_F32, 1, (int64_t[]){-1}, "N");
    pst_model *m = kit_load(b, NULL);
    pst_plan *p = kit_plan(m, NULL, false);
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    pst_tensor in[2] = {{.dtype = PST_F32, .rank = 1, .dims = {8}, .data = x}, {.dtype = PST_F32, .rank = 1, .dims = {3}, .data = x}},
               out[1];
    pst_err err = {0};
    assert_int_equal(pst_plan_run(p, in, 2, out, 1, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "Add"));
    in[1].dims[0] = 8; /* the plan is as good as before */
    assert_int_equal(pst_plan_run(p, in, 2, out, 1, &err), 0);
    assert_true(((float *)out[0].data)[7] == 128);
    in[1].dims[0] = in[0].dims[0] = 0;
    assert_int_equal(pst_plan_run(p, in, 2, out, 1, &err), 0);
    assert_int_equal(out[0].dims[0], 0);
    pst_plan_free(p);
    pst_model_unref(m);
}

/* ---- layer normalisation, softmax ---- */

static pst_model *layer_norm_model(int64_t width, bool pow, bool affine, int64_t axis, int opset, bool residual)
{
    pst_onnx_builder *b = pst_onnx_new("ln", opset, 8);
    pst_onnx_input(b, residual ? "in" : "x", PST_F32, 3, (int64_t[]){-1, 6, width}, "N");
    kit_scalar(b, "eps", 1e-5f);
    kit_scalar(b, "two", 2);
    kit_weights(b, "gamma", 1, (int64_t[]){width, -1});
    kit_weights(b, "beta", 1, (int64_t[]){width, -1});
    pst_onnx_ints(b, "axes", 1, (int64_t[]){1}, &axis);
    if (residual) {
        kit_node(b, "Neg in > other");
        kit_node(b, "Tanh other > other2");
        kit_node(b, "Add in other2 > x");
    }
    for (int k = 0; k < 2; k++) {
        kit_node(b, opset < 18 ? (k ? "ReduceMean sq > var" : "ReduceMean x > mean")
                               : (k ? "ReduceMean sq axes > var" : "ReduceMean x axes > mean"));
        if (opset < 18)
            pst_onnx_attr_ints(b, "axes", &axis, 1);
        if (k)
            break;
        kit_node(b, "Sub x mean > d");
        kit_node(b, pow ? "Pow d two > sq" : "Mul d d > sq");
    }
    kit_node(b, "Add var eps > ve");
    kit_node(b, "Sqrt ve > sd");
    kit_node(b, affine ? "Div d sd > n" : "Div d sd > y");
    if (affine) {
        kit_node(b, "Mul n gamma > g");
        kit_node(b, "Add g beta > y");
    }
    pst_onnx_output(b, "y", PST_F32, 3, (int64_t[]){-1, 6, width}, "N");
    return kit_load(b, NULL);
}

static void test_plan_layer_normalisation_in_pieces_is_one_step(void **state)
{
    static const int64_t widths[] = {1, 2, 16, 17, 100, 768};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (int mode = 0; mode < 16; mode++) {
            bool last = !(mode & 4);
            pst_model *m = layer_norm_model(widths[w], mode & 1, mode & 2, last ? (mode & 1 ? -1 : 2) : 1, mode & 2 ? 17 : 18, mode & 8);
            pst_plan *plain = kit_plan(m, NULL, true);
            uint64_t drawn = kit_seed; /* each instruction set gets the same numbers */
            for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
                if (!eng_kernels_pick(isas[i]))
                    continue;
                kit_seed = drawn;
                pst_plan *p = kit_plan(m, isas[i], false);
                assert_int_equal(steps_of(p, "LayerNorm"), 1); /* on axis 1 it is found too and runs node by node */
                float *x = kit_floats((size_t)(4 * 6 * widths[w]));
                for (int64_t k = 0; k < 6 * widths[w] && widths[w] >= 16; k++)
                    x[k] += 10; /* a mean away from 0; the nodes one by one round it to float, which shows */
                kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 3, .dims = {4, 6, widths[w]}, .data = x}, 1, 1, 1e-4f,
                         "layer norm");
                if (widths[w] > 2) {
                    x[3] = NAN;
                    x[6 * widths[w] + 1] = INFINITY;
                    kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 3, .dims = {4, 6, widths[w]}, .data = x}, 1, 1, 1e-4f,
                             "with NaN");
                }
                free(x);
                pst_plan_free(p);
            }
            pst_plan_free(plain);
            pst_model_unref(m);
        }
}

static void test_plan_softmax_and_layer_norm_nodes_equal_their_plain_kernels(void **state)
{
    for (int mode = 0; mode < 9; mode++) {
        pst_onnx_builder *b = pst_onnx_new("rows", mode == 4 ? 11 : 17, 8);
        pst_onnx_input(b, "x", PST_F32, 3, (int64_t[]){-1, 5, 37}, "N");
        KIT_WEIGHTS(b, "g", 1, 37);
        KIT_WEIGHTS(b, "b", 1, 37);
        KIT_WEIGHTS(b, "wide", 1, 5, 37);
        static const char *const before[] = {"Div x eight > z", "Mul x third > z", "Mul x cube > z"};
        kit_scalar(b, "eight", 8.5f);
        KIT_WEIGHTS(b, "third", 1, 1);
        KIT_WEIGHTS(b, "cube", 1, 1, 1, 1); /* its rank could shape the result: left alone */
        if (mode >= 6)
            kit_node(b, before[mode - 6]);
        kit_node(b, mode == 0   ? "LayerNormalization x g b > y"
                    : mode == 1 ? "LayerNormalization x g > y"
                    : mode == 2 ? "LayerNormalization x wide > y"
                    : mode >= 6 ? "Softmax z > y"
                                : "Softmax x > y");
        if (mode >= 3)
            pst_onnx_attr_int(b, "axis", mode == 5 ? 1 : 2);
        pst_onnx_output(b, "y", PST_F32, 3, (int64_t[]){-1, 5, 37}, "N");
        pst_model *m = kit_load(b, NULL);
        pst_plan *plain = kit_plan(m, NULL, true);
        uint64_t drawn = kit_seed; /* each instruction set gets the same numbers */
        for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
            if (!eng_kernels_pick(isas[i]))
                continue;
            kit_seed = drawn;
            pst_plan *p = kit_plan(m, isas[i], false);
            assert_int_equal(steps_of(p, "1 step left"), mode != 8);
            float *x = kit_floats(3 * 5 * 37);
            x[40] = 500;
            x[77] = -INFINITY;
            kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 3, .dims = {3, 5, 37}, .data = x}, 1, 1, 2e-6f, "rows");
            x[0] = NAN;
            kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 3, .dims = {3, 5, 37}, .data = x}, 1, 1, 2e-6f, "rows with NaN");
            free(x);
            pst_plan_free(p);
        }
        pst_plan_free(plain);
        pst_model_unref(m);
    }
}

/* ---- convolutions ---- */

enum { BN = 1, SCALE = 2, RESIDUAL = 4, ACT = 8, BIAS = 16, SMALL_ADD = 32, CONV_MODES = 64 };

static pst_model *conv_model(int mode, const char *act)
{
    pst_onnx_builder *b = pst_onnx_new("conv", 17, 8);
    char at[8] = "x", next[8], line[80];
    int n = 0;
    float var[8];
    pst_onnx_input(b, "x", PST_F32, 4, (int64_t[]){-1, 4, -1, -1}, "N");
    pst_onnx_input(b, "r", PST_F32, 4, (int64_t[]){-1, -1, -1, -1}, "M");
    KIT_WEIGHTS(b, "w", 0.2f, 8, 2, 3, 3);
    KIT_WEIGHTS(b, "bias", 1, 8);
    KIT_WEIGHTS(b, "s", 1, 8);
    KIT_WEIGHTS(b, "o", 1, 8);
    KIT_WEIGHTS(b, "mean", 1, 8);
    for (int i = 0; i < 8; i++)
        var[i] = fabsf(kit_float()) + 0.1f;
    pst_onnx_floats(b, "var", 1, (int64_t[]){8}, var);
    KIT_WEIGHTS(b, "cs", 1, 8, 1, 1);
    KIT_WEIGHTS(b, "ca", 1, 1, 8, 1, 1);
#define NEXT(...)                                                                 \
    do {                                                                          \
        snprintf(next, sizeof next, "v%d", n++);                                  \
        snprintf(line, sizeof line, __VA_ARGS__);                                 \
        snprintf(line + strlen(line), sizeof line - strlen(line), " > %s", next); \
        kit_node(b, line);                                                        \
        strcpy(at, next);                                                         \
    } while (0)
    NEXT(mode & BIAS ? "Conv %s w bias" : "Conv %s w", at);
    pst_onnx_attr_int(b, "group", 2);
    pst_onnx_attr_ints(b, "pads", (int64_t[]){1, 1, 1, 1}, 4);
    if (mode & BN)
        NEXT("BatchNormalization %s s o mean var", at);
    if (mode & SCALE) {
        NEXT("Mul %s cs", at);
        NEXT("Add ca %s", at);
    }
    if (mode & RESIDUAL)
        NEXT("Add r %s", at);
    if (mode & ACT)
        NEXT("%s %s", act, at);
    if (mode & SMALL_ADD)
        NEXT("Mul %s cs", at);
#undef NEXT
    pst_onnx_output(b, at, PST_F32, 4, (int64_t[]){-1, 8, -1, -1}, "N");
    return kit_load(b, NULL);
}

static void test_plan_convolutions_take_what_follows(void **state)
{
    static const char *const acts[] = {"Relu", "LeakyRelu", "Elu", "Sigmoid", "Tanh"};
    for (int mode = 0; mode < CONV_MODES; mode++) {
        pst_model *m = conv_model(mode, acts[mode % 5]);
        pst_plan *plain = kit_plan(m, NULL, true);
        uint64_t drawn = kit_seed; /* each instruction set gets the same numbers */
        for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
            if (!eng_kernels_pick(isas[i]))
                continue;
            kit_seed = drawn;
            pst_plan *p = kit_plan(m, isas[i], false);
            assert_int_equal(steps_of(p, "FusedConv"), mode & ~BIAS ? 1 : 0);
            float *x = kit_floats(3 * 4 * 9 * 6), *r = kit_floats(3 * 8 * 9 * 6);
            pst_tensor in[2] = {{.dtype = PST_F32, .rank = 4, .dims = {3, 4, 9, 6}, .data = x},
                                {.dtype = PST_F32, .rank = 4, .dims = {3, 8, 9, 6}, .data = r}};
            kit_same(p, plain, in, 2, 1, 2e-5f, "conv");
            in[1].dims[2] = in[1].dims[3] = 1; /* a residual that broadcasts */
            kit_same(p, plain, in, 2, 1, 2e-5f, "conv, broadcast residual");
            in[1].dims[1] = 5;
            kit_same(p, plain, in, 2, 1, 2e-5f, "conv, residual that does not fit");
            in[1].dims[1] = 8;
            in[1].dims[2] = 9, in[1].dims[3] = 6;
            x[5] = NAN;
            x[100] = INFINITY;
            kit_same(p, plain, in, 2, 1, 2e-5f, "conv with NaN");
            free(x);
            free(r);
            pst_plan_free(p);
        }
        pst_plan_free(plain);
        pst_model_unref(m);
    }
}

/* ---- dense layers ---- */

static pst_model *dense_model(int mode)
{
    pst_onnx_builder *b = pst_onnx_new("dense", 17, 8);
    float off[12], scale[12], bn[12];
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    for (int i = 0; i < 12; i++) {
        off[i] = 1000 + kit_float();
        scale[i] = fabsf(kit_float()) + 0.1f;
        bn[i] = fabsf(kit_float()) + 0.1f;
    }
    const char *at = "x";
    if (mode & 1) {
        kit_node(b, "Cast x > xc");
        pst_onnx_attr_int(b, "to", PST_F32);
        at = "xc";
    }
    if (mode & 2) {
        kit_node(b, mode & 1 ? "Scaler xc > xs" : "Scaler x > xs");
        pst_onnx_attr_floats(b, "offset", off, mode & 8 ? 1 : 12);
        pst_onnx_attr_floats(b, "scale", scale, 12);
        pst_onnx_domain(b, "ai.onnx.ml", 3);
        at = "xs";
    }
    KIT_WEIGHTS(b, "w", 0.3f, 12, 12);
    KIT_WEIGHTS(b, "c", 1, 12);
    KIT_WEIGHTS(b, "s", 1, 12);
    KIT_WEIGHTS(b, "o", 1, 12);
    pst_onnx_floats(b, "var", 1, (int64_t[]){12}, bn);
    char line[60];
    snprintf(line, sizeof line, "MatMul %s w > m", at);
    kit_node(b, line);
    kit_node(b, "Add m c > a");
    kit_node(b, "Dropout a > d");
    if (mode & 4)
        kit_node(b, "BatchNormalization d s o c var > n");
    kit_node(b, mode & 4 ? "Tanh n > y" : "Tanh d > y");
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    return kit_load(b, NULL);
}

static void test_plan_scaler_and_normalisation_join_the_layers(void **state)
{
    for (int mode = 0; mode < 16; mode++) {
        pst_model *m = dense_model(mode);
        pst_plan *plain = kit_plan(m, NULL, true), *p = kit_plan(m, NULL, false);
        assert_int_equal(steps_of(p, "1 step left"), 1);
        float *x = kit_floats(12 * 33);
        for (int i = 0; i < 12 * 33 && mode & 2; i++)
            x[i] += 1000;
        kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 2, .dims = {33, 12}, .data = x}, 1, 1, 2e-5f, "dense");
        free(x);
        pst_plan_free(p);
        pst_plan_free(plain);
        pst_model_unref(m);
    }
}

static void test_plan_layers_on_vectors_keep_their_rank(void **state)
{
    pst_onnx_builder *b = pst_onnx_new("vector", 17, 8);
    pst_onnx_input(b, "x", PST_F32, -1, NULL, NULL);
    KIT_WEIGHTS(b, "w", 1, 6, 4);
    KIT_WEIGHTS(b, "c", 1, 1, 4);
    kit_node(b, "MatMul x w > m");
    kit_node(b, "Add m c > y");
    pst_onnx_output(b, "y", PST_F32, -1, NULL, NULL);
    pst_model *m = kit_load(b, NULL);
    pst_plan *plain = kit_plan(m, NULL, true), *p = kit_plan(m, NULL, false);
    float x[24];
    for (int i = 0; i < 24; i++)
        x[i] = kit_float();
    kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 1, .dims = {6}, .data = x}, 1, 1, 1e-5f,
             "(6): the result has two dimensions");
    kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 2, .dims = {4, 6}, .data = x}, 1, 1, 1e-5f, "(4, 6)");
    kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 3, .dims = {2, 2, 6}, .data = x}, 1, 1, 1e-5f, "(2, 2, 6)");
    kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 2, .dims = {0, 6}, .data = x}, 1, 1, 1e-5f, "(0, 6)");
    kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 2, .dims = {6, 4}, .data = x}, 1, 1, 1e-5f, "(6, 4) is refused");
    pst_plan_free(p);
    pst_plan_free(plain);
    pst_model_unref(m);
}

/* ---- folding, dead nodes, nested graphs ---- */

static void test_plan_constants_are_folded_and_dead_nodes_dropped(void **state)
{
    pst_onnx_builder *b = pst_onnx_new("fold", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 4}, "N");
    pst_onnx_ints(b, "four", 1, (int64_t[]){1}, (int64_t[]){4});
    pst_onnx_ints(b, "minus", 1, (int64_t[]){1}, (int64_t[]){-1});
    kit_node(b, "Concat minus four > shape"); /* folded */
    pst_onnx_attr_int(b, "axis", 0);
    kit_node(b, "Identity shape > shape2"); /* folded */
    kit_node(b, "Sqrt x > unused");         /* dead, and the next with it */
    kit_node(b, "Exp unused > unused2");
    kit_node(b, "Identity x > x2"); /* a second name */
    kit_node(b, "Reshape x2 shape2 > y");
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 4}, "N");
    pst_model *m = kit_load(b, NULL);
    pst_plan *p = kit_plan(m, NULL, false), *plain = kit_plan(m, NULL, true);
    assert_int_equal(steps_of(p, "1 step left"), 1);
    assert_int_equal(steps_of(p, "2 folded"), 1);
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 2, .dims = {2, 4}, .data = x}, 1, 1, 0, "fold");
    pst_plan_free(p);
    pst_plan_free(plain);
    pst_model_unref(m);
}

/* A loop whose body is a group reading values of the outer graph: fused inside, never across the border. */
static void test_plan_groups_inside_a_loop_read_outer_values(void **state)
{
    pst_onnx_builder *body = pst_onnx_new("body", 17, 8), *b = pst_onnx_new("loop", 17, 8);
    pst_onnx_input(body, "i", PST_I64, 0, NULL, NULL);
    pst_onnx_input(body, "go", PST_BOOL, 0, NULL, NULL);
    pst_onnx_input(body, "s", PST_F32, 1, (int64_t[]){-1}, "N");
    kit_node(body, "Identity go > go2");
    kit_node(body, "Mul s outer > p");
    kit_node(body, "Add p outer > q");
    kit_node(body, "Tanh q > s2");
    kit_node(body, "Neg s2 > scan");
    pst_onnx_output(body, "go2", PST_BOOL, 0, NULL, NULL);
    pst_onnx_output(body, "s2", PST_F32, 1, (int64_t[]){-1}, "N");
    pst_onnx_output(body, "scan", PST_F32, 1, (int64_t[]){-1}, "N");
    pst_onnx_input(b, "x", PST_F32, 1, (int64_t[]){-1}, "N");
    pst_onnx_ints(b, "trips", 0, NULL, (int64_t[]){7});
    kit_node(b, "Abs x > a0");
    kit_node(b, "Neg a0 > outer");
    kit_node(b, "Loop trips - x > last all");
    pst_onnx_attr_graph(b, "body", body);
    pst_onnx_output(b, "last", PST_F32, 1, (int64_t[]){-1}, "N");
    pst_onnx_output(b, "all", PST_F32, 2, (int64_t[]){-1, -1}, "N");
    pst_onnx_free(body);
    pst_model *m = kit_load(b, NULL);
    pst_plan *p = kit_plan(m, NULL, false), *plain = kit_plan(m, NULL, true);
    assert_int_equal(steps_of(p, "Elementwise"), 2);
    float *x = kit_floats(30);
    for (int round = 0; round < 3; round++)
        kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 1, .dims = {30}, .data = x}, 1, 2, 1e-5f, "loop");
    free(x);
    pst_plan_free(p);
    pst_plan_free(plain);
    pst_model_unref(m);
}

/* A pool goes into the convolution in front of it unless something else reads what is between, wants its indices, or the kernel that
 * would serve the convolution takes none. lines: nodes; steps: what is left of them. */
static void test_plan_convolutions_take_a_pool(void **state)
{
    static const struct {
        const char *lines[5];
        int steps, m, kernel, dilation, pad;
    } cases[] = {
        {{"Conv x w > c", "MaxPool c > y"}, 1, 16, 2, 1, 0},
        {{"Conv x w bias > c", "Relu c > r", "MaxPool r > y"}, 1, 16, 3, 1, 1},
        {{"Conv x w bias > c", "MaxPool c > p", "Relu p > y"}, 1, 16, 2, 1, 0},
        {{"Conv x w > c", "BatchNormalization c s o o v > n", "Tanh n > t", "MaxPool t > y"}, 1, 16, 2, 1, 1},
        {{"Conv x w > c", "Mul c cs > n", "MaxPool n > p", "Sigmoid p > y"}, 1, 8, 3, 1, 2},
        {{"Conv x w > c", "LeakyRelu c > t", "MaxPool t > y"}, 1, 16, 16, 1, 0},
        {{"Conv x w > c", "MaxPool c > p", "Mul p cs > y"}, 2, 16, 2, 1, 0}, /* factors behind a pool stay there */
        {{"Conv x w > c", "MaxPool c > p", "Relu p > r", "Relu r > y"}, 2, 16, 2, 1, 0},
        {{"Conv x w > c", "Add c c > d", "MaxPool d > y"}, 3, 16, 2, 1, 0},  /* read twice */
        {{"Conv x w > c", "Relu c > r", "MaxPool r > y i"}, 2, 16, 2, 1, 0}, /* indices are wanted */
        {{"Conv x w > c", "Relu c > r", "MaxPool r > y"}, 2, 16, 2, 2, 0},   /* dilated */
        {{"Conv x w > c", "Relu c > r", "MaxPool r > y"}, 2, 16, 17, 1, 0},  /* large */
        {{"Conv x w > c", "Relu c > r", "AveragePool r > y"}, 2, 16, 2, 1, 0},
        {{"Conv x w > c", "Relu c > r", "MaxPool r > y"}, 2, 3, 2, 1, 0},  /* filters that would leave lanes empty */
        {{"Conv x w > c", "Relu c > r", "MaxPool r > y"}, 1, 16, 2, 1, 3}, /* windows of padding alone: node by node */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_onnx_builder *b = pst_onnx_new("pooled", 17, 8);
        int m = cases[i].m, k = cases[i].kernel, d = cases[i].dilation, pad = cases[i].pad;
        bool indices = false;
        float var[16];
        for (int f = 0; f < 16; f++)
            var[f] = fabsf(kit_float()) + 0.1f;
        pst_onnx_input(b, "x", PST_F32, 4, (int64_t[]){-1, 2, -1, -1}, "N");
        pst_onnx_floats(b, "v", 1, (int64_t[]){m}, var);
        KIT_WEIGHTS(b, "w", 0.2f, m, 2, 3, 3);
        KIT_WEIGHTS(b, "bias", 1, m);
        KIT_WEIGHTS(b, "s", 1, m);
        KIT_WEIGHTS(b, "o", 1, m);
        KIT_WEIGHTS(b, "cs", 1, m, 1, 1);
        for (int l = 0; l < 5 && cases[i].lines[l]; l++) {
            const char *line = cases[i].lines[l];
            kit_node(b, line);
            indices |= strstr(line, "> y i") != NULL;
            if (!strstr(line, "Pool"))
                continue;
            pst_onnx_attr_ints(b, "kernel_shape", (int64_t[]){k, k}, 2);
            pst_onnx_attr_ints(b, "strides", (int64_t[]){2, 2}, 2);
            pst_onnx_attr_ints(b, "pads", (int64_t[]){pad, pad, pad, pad}, 4);
            if (d > 1)
                pst_onnx_attr_ints(b, "dilations", (int64_t[]){d, d}, 2);
        }
        pst_onnx_output(b, "y", PST_F32, 4, (int64_t[]){-1, m, -1, -1}, "N");
        if (indices)
            pst_onnx_output(b, "i", PST_I64, 4, (int64_t[]){-1, m, -1, -1}, "N");
        pst_model *model = kit_load(b, NULL);
        pst_plan *plain = kit_plan(model, NULL, true);
        float *x = kit_floats(3 * 2 * 23 * 20);
        x[5] = NAN;
        pst_tensor in = {.dtype = PST_F32, .rank = 4, .dims = {3, 2, 23, 20}, .data = x};
        uint64_t drawn = kit_seed; /* each instruction set gets the same numbers */
        for (size_t q = 0; q < sizeof isas / sizeof *isas; q++) {
            if (!eng_kernels_pick(isas[q]))
                continue;
            kit_seed = drawn;
            char what[80], steps[40];
            pst_plan *p = kit_plan(model, isas[q], false);
            snprintf(what, sizeof what, "case %zu, %s", i, isas[q]);
            snprintf(steps, sizeof steps, "%d step%s left", cases[i].steps, cases[i].steps > 1 ? "s" : "");
            if (strcmp(isas[q], "portable") && !steps_of(p, steps)) /* AVX-512 by the rule of AVX2; narrower vectors suit more */
                fail_msg("%s: %s", what, pst_plan_explain(p));
            kit_same(p, plain, &in, 1, indices ? 2 : 1, 2e-5f, what);
            kit_same(p, plain, &in, 1, indices ? 2 : 1, 2e-5f, what);
            pst_plan_free(p);
        }
        free(x);
        pst_plan_free(plain);
        pst_model_unref(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_elementwise_groups_give_the_bits_of_their_nodes),
        cmocka_unit_test(test_plan_elementwise_groups_with_functions_are_close),
        cmocka_unit_test(test_plan_random_smooth_expressions_are_close),
        cmocka_unit_test(test_plan_gelu_of_exporters_is_one_step),
        cmocka_unit_test(test_plan_groups_of_other_types_run_node_by_node),
        cmocka_unit_test(test_plan_shapes_that_do_not_broadcast_are_refused_as_without_fusion),
        cmocka_unit_test(test_plan_layer_normalisation_in_pieces_is_one_step),
        cmocka_unit_test(test_plan_softmax_and_layer_norm_nodes_equal_their_plain_kernels),
        cmocka_unit_test(test_plan_convolutions_take_what_follows),
        cmocka_unit_test(test_plan_convolutions_take_a_pool),
        cmocka_unit_test(test_plan_scaler_and_normalisation_join_the_layers),
        cmocka_unit_test(test_plan_layers_on_vectors_keep_their_rank),
        cmocka_unit_test(test_plan_constants_are_folded_and_dead_nodes_dropped),
        cmocka_unit_test(test_plan_groups_inside_a_loop_read_outer_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
