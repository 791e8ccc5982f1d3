/* test_cuda_lower.c - networks of real graphs, lowered (engine/cuda/net_lower.h) and run by the emulated kernels, beside the CPU's plan of the same model, fused
 * and plain; and what no kernel covers is told by node and reason. */
#include "engine/backend.h"
#include "engine/cuda/net_step.h"
#include "tests/unit/cuda_emu_kit.h"
#include "tests/unit/engine_kit.h"

/* Of results against the CPU, relative to 1 and the number: float32 sums in another order through a few layers. */
#define TOLERANCE 2e-5f

typedef struct lowered {
    pst_plan *p;
    eng_cuda_net_part part;
    eng_cuda_net head;
    unsigned char *image;
    const eng_node *node;
    eng_cuda_net_way way;
    const float *x;
    int order;
} lowered;

static int lower_body(void *arg, pst_err *err)
{
    lowered *l = arg;
    int rc = eng_cuda_net_lower(l->p, &l->p->progs[0], &l->part, &l->node, err);
    if (rc == 0)
        rc = eng_cuda_net_pack(&l->part.draft, l->way, &l->head, &l->image, err);
    return rc;
}

/* The device's results of this plan: the emulated kernels on the rows that the step reads. */
static const lowered *computing;

static int results(pst_plan *p, const pst_tensor *x, float *ret, pst_err *err)
{
    const lowered *l = computing;
    size_t rows = (size_t)x->dims[0];
    float *between = l->head.rows ? NULL : malloc(rows * l->head.n_between * sizeof *between + 1);
    emu_kit_order(l->order);
    if (eng_cuda_net_run(&l->head, l->image, x->data, x->dims[0], between, ret, NULL) != 0)
        fail_msg("%s", emu_kit_fault());
    free(between);
    return 0;
}

static pst_tensor rows_for(const pst_model *m, int rows, bool gaps)
{
    int64_t cols = pst_model_info_get(m)->inputs[0].dims[1];
    pst_tensor t = {.dtype = PST_F32, .rank = 2, .dims = {rows, cols}, .data = malloc((size_t)(rows * cols + 1) * sizeof(float))};
    for (int64_t i = 0; i < rows * cols; i++)
        ((float *)t.data)[i] = gaps && kit_next() % 11 == 0 ? NAN : kit_float() * 2;
    return t;
}

static void close(const pst_tensor *got, const pst_tensor *want, const char *what)
{
    assert_int_equal(got->rank, want->rank);
    assert_int_equal(got->dtype, want->dtype);
    for (int i = 0; i < want->rank; i++)
        assert_int_equal(got->dims[i], want->dims[i]);
    int64_t n = eng_dims_count(want->dims, want->rank);
    for (int64_t i = 0; i < n; i++)
        if (want->dtype == PST_F32 ? !kit_close(((float *)got->data)[i], ((float *)want->data)[i], TOLERANCE)
                                   : memcmp((char *)got->data + (size_t)i * 8, (char *)want->data + (size_t)i * 8, 8) != 0)
            fail_msg("%s: number %lld is %.9g for %.9g", what, (long long)i, want->dtype == PST_F32 ? (double)((float *)got->data)[i] : -1,
                     want->dtype == PST_F32 ? (double)((float *)want->data)[i] : -1);
}

static void run_beside(lowered *l, pst_plan *cpu, const pst_model *m, int rows, bool gaps, const eng_cuda_net_step *step, const char *what)
{
    size_t n_out = pst_model_info_get(m)->n_outputs;
    pst_tensor in = rows_for(m, rows, gaps), got[4], want[4];
    pst_err err = {0};
    assert_int_equal(pst_plan_run(cpu, &in, 1, want, n_out, &err), 0);
    for (int here = 0; here < 2; here++) { /* on the device; and by the steps that it stands for */
        l->p->device.of = here ? NULL : (const void *)step;
        l->p->device.results = results;
        computing = l;
        if (pst_plan_run(l->p, &in, 1, got, n_out, &err) < 0)
            fail_msg("%s: %s", what, err.text);
        for (size_t i = 0; i < n_out; i++)
            close(&got[i], &want[i], what);
    }
    free(in.data);
}

/* All of m's dense layers are lowered; ops: how many operations that makes, 0 = not said. Takes m. */
static void compare(pst_model *m, uint32_t ops, bool gaps, const char *what)
{
    static const int sizes[] = {1, 2, 31, 33, 100, 600};
    for (int way = ENG_CUDA_NET_NEAR; way <= ENG_CUDA_NET_FAR; way++)
        for (int plain = 0; plain < 2; plain++) {
            lowered l = {.p = kit_plan(m, NULL, plain), .way = (eng_cuda_net_way)way};
            pst_plan *cpu = kit_plan(m, NULL, !plain);
            const eng_cuda_net_step *step;
            pst_err err = {0};
            if (eng_cpu_within(l.p, lower_body, &l, &err) < 0)
                fail_msg("%s: %s: %s", what, l.node ? l.node->op_type : "", err.text);
            if (ops && l.head.n_ops != ops && way == ENG_CUDA_NET_NEAR)
                fail_msg("%s: %u operations for %u", what, l.head.n_ops, ops);
            eng_cuda_net_step_put(l.p, &l.part, &step);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                l.order = (int)i % EMU_KIT_ORDERS;
                run_beside(&l, cpu, m, sizes[i], gaps, step, what);
            }
            eng_cuda_net_part_done(&l.part);
            eng_heap_free(l.image);
            pst_plan_free(l.p);
            pst_plan_free(cpu);
        }
    pst_model_unref(m);
}

/* ---- models ---- */

static pst_onnx_builder *begin_model(int64_t cols)
{
    pst_onnx_builder *o = pst_onnx_new("net", 20, 9);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, cols}, "N");
    return o;
}

static void layer(pst_onnx_builder *o, int at, int64_t in, int64_t out)
{
    char w[20], b[20];
    snprintf(w, sizeof w, "w%d", at);
    snprintf(b, sizeof b, "b%d", at);
    KIT_WEIGHTS(o, w, 1 / sqrtf((float)in), in, out);
    KIT_WEIGHTS(o, b, 0.1f, out);
}

static pst_model *end_model(pst_onnx_builder *o, int64_t width)
{
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, width}, "N");
    return kit_load(o, NULL);
}

static void nodes(pst_onnx_builder *o, const char *const *lines)
{
    for (; *lines; lines++)
        kit_node(o, *lines);
}
#define NODES(O, ...) nodes(O, (const char *const[]){__VA_ARGS__, NULL})

/* As scikit-learn's MLPClassifier is exported: MatMul, Add, Relu; Softmax; and the label by ArgMax, which the host does. */
static void test_a_classifier(void **state)
{
    pst_onnx_builder *o = begin_model(20);
    layer(o, 0, 20, 33);
    layer(o, 1, 33, 17);
    layer(o, 2, 17, 3);
    NODES(o, "Cast x > c");
    pst_onnx_attr_int(o, "to", PST_F32);
    NODES(o, "MatMul c w0 > m0", "Add m0 b0 > a0", "Relu a0 > r0", "MatMul r0 w1 > m1", "Add m1 b1 > a1", "Relu a1 > r1",
          "MatMul r1 w2 > m2", "Add b2 m2 > a2", "Softmax a2 > y", "ArgMax y > label");
    pst_onnx_attr_int(o, "axis", 1);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 3}, "N");
    pst_onnx_output(o, "label", PST_I64, 2, (int64_t[]){-1, 1}, "N");
    compare(kit_load(o, NULL), 5, false, "a classifier");
}

/* Missing values, scaling, and one number, of which the host makes another shape. */
static void test_a_regressor(void **state)
{
    static const float offset[] = {1, 2, 3, 4, 5, 6}, scale[] = {0.5f, 1, 2, 0.1f, 3, 1}, fill[] = {0, 1, 2, 3, 4, 5};
    pst_onnx_builder *o = begin_model(6);
    layer(o, 0, 6, 50);
    layer(o, 1, 50, 1);
    pst_onnx_ints(o, "shape", 1, (int64_t[]){1}, (int64_t[]){-1});
    NODES(o, "Imputer x > full");
    pst_onnx_domain(o, "ai.onnx.ml", 3);
    pst_onnx_attr_floats(o, "imputed_value_floats", fill, 6);
    pst_onnx_attr_float(o, "replaced_value_float", NAN);
    NODES(o, "Scaler full > s");
    pst_onnx_domain(o, "ai.onnx.ml", 3);
    pst_onnx_attr_floats(o, "offset", offset, 6);
    pst_onnx_attr_floats(o, "scale", scale, 6);
    NODES(o, "Gemm s w0 b0 > g", "Tanh g > t", "Gemm t w1 b1 > one", "Reshape one shape > y");
    pst_onnx_output(o, "y", PST_F32, 1, (int64_t[]){-1}, "N");
    compare(kit_load(o, NULL), 3, true, "a regressor");
}

static void test_an_autoencoder(void **state)
{
    static const char *const errors[][4] = {{"Sub x z > d", "Pow d two > q", "ReduceMean q axis > y"},
                                            {"Sub z s > d", "Mul d d > q", "ReduceSum q axis > y"},
                                            {"Sub s z > d", "Abs d > q", "ReduceMean q axis > y"},
                                            {"Sub s z > d", "ReduceL1 d axis > y"},
                                            {"Sub s z > d", "ReduceL2 d axis > y"},
                                            {"Sub s z > d", "ReduceMax d axis > y"}};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        for (int keep = 0; keep < 2; keep++) {
            pst_onnx_builder *o = begin_model(30);
            layer(o, 0, 30, 16);
            layer(o, 1, 16, 8);
            layer(o, 2, 8, 16);
            layer(o, 3, 16, 30);
            KIT_WEIGHTS(o, "mean", 1, 30);
            KIT_WEIGHTS(o, "by", 0.2f, 1, 30);
            kit_scalar(o, "one", 1);
            kit_scalar(o, "two", 2);
            pst_onnx_ints(o, "axis", 1, (int64_t[]){1}, (int64_t[]){i % 2 ? 1 : -1});
            NODES(o, "Add by one > by1", "Sub x mean > c", "Div c by1 > s", "Gemm s w0 b0 > g0", "Relu g0 > r0", "Gemm r0 w1 b1 > g1",
                  "Sigmoid g1 > r1", "Gemm r1 w2 b2 > g2", "Elu g2 > r2", "Gemm r2 w3 b3 > z");
            nodes(o, errors[i]);
            pst_onnx_attr_int(o, "keepdims", keep);
            pst_onnx_output(o, "y", PST_F32, keep ? 2 : 1, (int64_t[]){-1, 1}, "N");
            if (i == 1)
                pst_onnx_output(o, "z", PST_F32, 2, (int64_t[]){-1, 30}, "N");
            compare(kit_load(o, NULL), 0, false, errors[i][0]);
        }
}

/* Residuals around layer normalisation, and each activation. */
static void test_activations(void **state)
{
    static const char *const acts[] = {"Relu",     "LeakyRelu", "Elu",         "Selu",      "Celu", "Sigmoid", "Tanh", "Softplus",
                                       "Softsign", "Gelu",      "HardSigmoid", "HardSwish", "Mish", "Abs",     "Neg",  "Erf"};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        char line[60];
        pst_onnx_builder *o = begin_model(9);
        layer(o, 0, 9, 12);
        layer(o, 1, 12, 5);
        snprintf(line, sizeof line, "%s g > t", acts[i]);
        NODES(o, "Gemm x w0 b0 > g", line, "Clip t lo hi > c", "Gemm c w1 b1 > y");
        kit_scalar(o, "lo", -50);
        kit_scalar(o, "hi", 50);
        compare(end_model(o, 5), 3, false, acts[i]);
    }
}

static void test_residuals_and_norms(void **state)
{
    pst_onnx_builder *o = begin_model(24);
    layer(o, 0, 24, 40);
    layer(o, 1, 40, 40);
    layer(o, 2, 40, 40);
    layer(o, 3, 40, 2);
    KIT_WEIGHTS(o, "slope", 0.3f, 40);
    kit_scalar(o, "half", 0.5f);
    kit_scalar(o, "one", 1);
    kit_scalar(o, "root", 1.41421356f);
    NODES(o, "Gemm x w0 b0 > h", "LayerNormalization h b1 b2 > n");
    NODES(o, "MatMul n w1 > m1", "Add m1 b1 > a1", "Div a1 root > e0", "Erf e0 > e1", "Add e1 one > e2", "Mul a1 e2 > e3",
          "Mul e3 half > ge", "Add h ge > r", "MatMul r w2 > m2", "PRelu m2 slope > p", "Sub one p > q", "Add q r > s", "Gemm s w3 b3 > y");
    compare(end_model(o, 2), 0, false, "residuals and norms");
}

/* A bias that broadcasts from the other side, batch normalisation, transposed weights with factors, vectors of one. */
static void test_forms(void **state)
{
    pst_onnx_builder *o = begin_model(10);
    KIT_WEIGHTS(o, "wt", 0.3f, 14, 10);
    KIT_WEIGHTS(o, "c", 1, 1, 14);
    KIT_WEIGHTS(o, "scale", 1, 14);
    KIT_WEIGHTS(o, "bias", 1, 14);
    KIT_WEIGHTS(o, "mean", 1, 14);
    KIT_WEIGHTS(o, "w2", 0.3f, 14, 1);
    KIT_WEIGHTS(o, "row", 1, 1, 5);
    KIT_WEIGHTS(o, "v0", 0.4f, 14);
    kit_node(o, "Gemm x wt c > g");
    pst_onnx_attr_int(o, "transB", 1);
    pst_onnx_attr_float(o, "alpha", 0.7f);
    pst_onnx_attr_float(o, "beta", 1.5f);
    NODES(o, "Mul v0 v0 > var", "BatchNormalization g scale bias mean var > n", "Identity n > i", "Flatten i > f", "Min f bias > least",
          "Max scale least > l", "MatMul l w2 > one", "Sigmoid one > p", "Mul p row > y");
    compare(end_model(o, 5), 0, false, "forms");
}

static void refused(pst_model *m, const char *op_type, const char *says)
{
    lowered l = {.p = kit_plan(m, NULL, false), .way = ENG_CUDA_NET_EITHER};
    pst_err err = {0};
    assert_int_equal(eng_cpu_within(l.p, lower_body, &l, &err), PST_EUNSUPPORTED);
    assert_non_null(l.node);
    if (strcmp(l.node->op_type, op_type) != 0 || !strstr(err.text, says))
        fail_msg("%s: %s, and %s: %s was expected", l.node->op_type, err.text, op_type, says);
    pst_plan_free(l.p);
    pst_model_unref(m);
}

static void test_what_is_not_covered(void **state)
{
    pst_onnx_builder *o = begin_model(4);
    NODES(o, "Transpose x > t", "MatMul x t > y");
    refused(end_model(o, 4), "MatMul", "float32 matrix of constants");
    o = begin_model(4);
    NODES(o, "Relu x > y");
    refused(end_model(o, 4), "Relu", "no dense layer");
    o = pst_onnx_new("wide", 20, 9);
    pst_onnx_input(o, "x", PST_F64, 2, (int64_t[]){-1, 4}, "N");
    pst_onnx_node(o, "Relu", (const char *[]){"x"}, 1, (const char *[]){"y"}, 1);
    pst_onnx_output(o, "y", PST_F64, 2, (int64_t[]){-1, 4}, "N");
    refused(kit_load(o, NULL), "Relu", "no float32 matrix");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_classifier),        cmocka_unit_test(test_a_regressor),         cmocka_unit_test(test_an_autoencoder),
        cmocka_unit_test(test_activations),         cmocka_unit_test(test_residuals_and_norms), cmocka_unit_test(test_forms),
        cmocka_unit_test(test_what_is_not_covered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
