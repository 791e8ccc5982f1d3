/* Operators of ONNX Runtime's own (com.microsoft): what they give, what they refuse, and memory that runs out. tests/live/oracle/contrib.py compares
 * with ONNX Runtime, on more. */
#include "tests/unit/engine_kit.h"

static pst_model *distances(const char *metric, pst_dtype t)
{
    pst_onnx_builder *b = pst_onnx_new("distances", 17, 8);
    pst_onnx_input(b, "a", t, 2, (int64_t[]){-1, -1}, NULL);
    pst_onnx_input(b, "b", t, 2, (int64_t[]){-1, -1}, NULL);
    kit_node(b, "CDist a b > y");
    pst_onnx_domain(b, "com.microsoft", 1);
    pst_onnx_attr_str(b, "metric", metric);
    pst_onnx_output(b, "y", t, 2, (int64_t[]){-1, -1}, NULL);
    return kit_load(b, NULL);
}

/* By doubles, one after the other; and rows that nearly meet, where a² + b² - 2ab would have no digit right. */
static void test_distances(void **state)
{
    for (int k = 1; k < 30; k++) {
        float *a = kit_floats((size_t)(3 * k)), *b = kit_floats((size_t)(4 * k));
        for (int i = 0; i < 3 * k; i++)
            a[i] += 1000;
        for (int i = 0; i < 4 * k; i++)
            b[i] = i < 3 * k ? a[i] + 0.001f * b[i] : b[i];
        pst_model *m = distances(k % 2 ? "euclidean" : "sqeuclidean", PST_F32);
        pst_plan *p = kit_plan(m, NULL, false);
        pst_tensor in[2] = {{.dtype = PST_F32, .rank = 2, .dims = {3, k}, .data = a},
                            {.dtype = PST_F32, .rank = 2, .dims = {4, k}, .data = b}},
                   out;
        assert_int_equal(pst_plan_run(p, in, 2, &out, 1, NULL), 0);
        for (int i = 0; i < 12; i++) {
            double want = 0;
            for (int q = 0; q < k; q++)
                want += pow((double)a[i / 4 * k + q] - (double)b[i % 4 * k + q], 2);
            want = k % 2 ? sqrt(want) : want;
            if (fabs((double)((float *)out.data)[i] - want) > 1e-5 * want)
                fail_msg("%d wide: %.9g, wanted %.9g", k, (double)((float *)out.data)[i], want);
        }
        pst_plan_free(p);
        pst_model_unref(m);
        free(a);
        free(b);
    }
}

static int run_distances(const char *metric, int64_t ka, int64_t kb)
{
    double a[6] = {0};
    pst_model *m = distances(metric, PST_F64);
    pst_plan *p = NULL;
    pst_err err = {0};
    pst_tensor in[2] = {{.dtype = PST_F64, .rank = 2, .dims = {1, ka}, .data = a},
                        {.dtype = PST_F64, .rank = 2, .dims = {1, kb}, .data = a}},
               out;
    int rc = pst_plan_new(m, &(pst_plan_opts){.backend = "engine"}, &p, &err);
    rc = rc == 0 ? pst_plan_run(p, in, 2, &out, 1, &err) : rc;
    pst_plan_free(p);
    pst_model_unref(m);
    return rc;
}

static void test_distances_that_are_none(void **state)
{
    assert_int_equal(run_distances("euclidean", 3, 3), 0);
    assert_int_equal(run_distances("cityblock", 3, 3), PST_EUNSUPPORTED);
    assert_int_equal(run_distances("euclidean", 3, 4), PST_EINVAL);
    assert_int_equal(run_distances("euclidean", 0, 0), PST_EINVAL);
}

/* ---- operators that are made of others ---- */

static pst_onnx_builder *skip_norm(void)
{
    pst_onnx_builder *b = pst_onnx_new("skip", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 5}, NULL);
    KIT_WEIGHTS(b, "g", 1, 5);
    KIT_WEIGHTS(b, "e", 1, 5);
    kit_node(b, "SkipLayerNormalization x x g - e > y m d s");
    pst_onnx_domain(b, "com.microsoft", 1);
    pst_onnx_attr_float(b, "epsilon", 1e-5f);
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 5}, NULL);
    pst_onnx_output(b, "s", PST_F32, 2, (int64_t[]){-1, 5}, NULL);
    return b;
}

/* Rows without a mean, of deviation 1 before the scale: the scale is left when they are divided by it. */
static void test_made_of_others(void **state)
{
    pst_model *m = kit_load(skip_norm(), NULL);
    pst_plan *p = kit_plan(m, NULL, false), *plain = kit_plan(m, NULL, true);
    float *x = kit_floats(15);
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {3, 5}, .data = x}, out[2];
    kit_same(p, plain, &in, 1, 2, 1e-5f, "skip");
    assert_int_equal(pst_plan_run(p, &in, 1, out, 2, NULL), 0);
    const float *sum = out[1].data;
    for (int i = 5; i < 15; i++) /* the bias is the same in every row */
        assert_true(fabsf((sum[i] - 2 * x[i]) - (sum[i % 5] - 2 * x[i % 5])) < 1e-5f);
    free(x);
    pst_plan_free(p);
    pst_plan_free(plain);
    pst_model_unref(m);
}

/* The part that is not covered stands in the refusal, and so it does for nodes of too few inputs. */
static void test_parts_that_are_not_covered(void **state)
{
    static const struct {
        const char *node, *attr, *text, *want;
    } cases[] = {{"FusedMatMul x x > y", "transBatchA", NULL, "com.microsoft.FusedMatMul-1 (transBatchA"},
                 {"FusedGemm x x > y", "activation", "Mish", "com.microsoft.FusedGemm-1 (an activation"},
                 {"Attention x x x - x x > y", "num_heads", NULL, "com.microsoft.Attention-1 (past and attention_bias together)"},
                 {"Attention x x > y", "do_rotary", NULL, "com.microsoft.Attention-1 (do_rotary)"},
                 {"QAttention x x x x x > y", NULL, NULL, "com.microsoft.QAttention-1 (without num_heads)"},
                 {"SkipLayerNormalization x > y", NULL, NULL, "com.microsoft.SkipLayerNormalization-1 (without a skip)"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_onnx_builder *b = pst_onnx_new("refused", 17, 8);
        pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 5}, NULL);
        kit_node(b, cases[i].node);
        pst_onnx_domain(b, "com.microsoft", 1);
        if (cases[i].text)
            pst_onnx_attr_str(b, cases[i].attr, cases[i].text);
        else if (cases[i].attr)
            pst_onnx_attr_int(b, cases[i].attr, 1);
        pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, -1}, NULL);
        pst_buf file = {0};
        pst_model *m = NULL;
        pst_err err = {0};
        pst_onnx_write(b, &file);
        pst_onnx_free(b);
        assert_int_equal(pst_model_load(file.data, file.len, NULL, &(pst_model_limits){.backends = PST_BACKENDS_OWN}, &m, &err),
                         PST_EUNSUPPORTED);
        if (!strstr(err.text, cases[i].want))
            fail_msg("%s", err.text);
        pst_buf_done(&file);
    }
}

/* What a composed node becomes counts as nodes of the file do. */
static void test_nodes_of_others_count(void **state)
{
    pst_buf file = {0};
    pst_model *m = NULL;
    pst_err err = {0};
    pst_onnx_builder *b = skip_norm();
    pst_onnx_write(b, &file);
    pst_onnx_free(b);
    assert_int_equal(pst_model_load(file.data, file.len, NULL, &(pst_model_limits){.nodes_max = 3}, &m, &err), PST_ELIMIT);
    assert_int_equal(pst_model_load(file.data, file.len, NULL, &(pst_model_limits){.nodes_max = 4}, &m, NULL), 0);
    pst_model_unref(m);
    pst_buf_done(&file);
}

/* ---- bytes ---- */

/* What dynamic quantisation makes of a layer; seen: the sums are a result as well. */
static pst_model *dynamic_layer(bool seen)
{
    pst_onnx_builder *b = pst_onnx_new("dynamic", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 11}, NULL);
    KIT_WEIGHTS(b, "w", 50, 11, 37);
    KIT_WEIGHTS(b, "ws", 0.01f, 37);
    KIT_WEIGHTS(b, "bias", 1, 37);
    kit_node(b, "Cast w > w8");
    pst_onnx_attr_int(b, "to", PST_I8);
    kit_node(b, "DynamicQuantizeLinear x > q s z");
    kit_node(b, "MatMulInteger q w8 z > sums");
    kit_node(b, "Cast sums > wide");
    pst_onnx_attr_int(b, "to", PST_F32);
    kit_node(b, "Mul s ws > by");
    kit_node(b, "Mul wide by > y0");
    kit_node(b, "Add bias y0 > y");
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 37}, NULL);
    if (seen)
        pst_onnx_output(b, "wide", PST_F32, 2, (int64_t[]){-1, 37}, NULL);
    return kit_load(b, NULL);
}

/* One step where nobody sees what lies between, and the same numbers as node by node. */
static void test_a_dynamic_layer_is_one_product(void **state)
{
    for (int seen = 0; seen < 2; seen++) {
        pst_model *m = dynamic_layer(seen);
        pst_plan *plain = kit_plan(m, NULL, true);
        for (int isa = 0; isa < 3; isa++) {
            static const char *const isas[] = {"portable", "avx2", "avx512"};
            pst_plan *p = NULL;
            if (pst_plan_new(m, &(pst_plan_opts){.isa = isas[isa]}, &p, NULL) < 0)
                continue; /* not of this CPU */
            for (int n = 1; n < 30; n++) {
                float *x = kit_floats((size_t)n * 11);
                kit_same(p, plain, &(pst_tensor){.dtype = PST_F32, .rank = 2, .dims = {n, 11}, .data = x}, 1, seen ? 2 : 1, 1e-6f, "layer");
                free(x);
            }
            char *text = pst_plan_explain(p);
            assert_int_equal(strstr(text, "MatMulIntegerToFloat") != NULL, !seen);
            free(text);
            pst_plan_free(p);
        }
        pst_plan_free(plain);
        pst_model_unref(m);
    }
}

/* ---- between DequantizeLinear and QuantizeLinear ---- */

/* A constant of bytes; every number is whole. */
static void byte_konst(pst_onnx_builder *b, const char *name, pst_dtype t, int rank, const int64_t *dims, const float *v)
{
    char from[40], line[100];
    snprintf(from, sizeof from, "%s_f", name);
    snprintf(line, sizeof line, "Cast %s > %s", from, name);
    pst_onnx_floats(b, from, rank, dims, v);
    kit_node(b, line);
    pst_onnx_attr_int(b, "to", t);
}

static void byte_weights(pst_onnx_builder *b, const char *name, pst_dtype t, const int64_t *dims, int rank, int least, int most)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    float *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)(least + (int)(kit_next() % (uint32_t)(most - least + 1)));
    byte_konst(b, name, t, rank, dims, v);
    free(v);
}

/* Bytes → (v, its float32 form), by one scale. */
static void pair(pst_onnx_builder *b, const char *name, pst_dtype t, float scale, float zero)
{
    char s[40], z[40], line[200];
    snprintf(s, sizeof s, "%s_s", name);
    snprintf(z, sizeof z, "%s_z", name);
    kit_scalar(b, s, scale);
    byte_konst(b, z, t, 0, NULL, &zero);
    snprintf(line, sizeof line, "QuantizeLinear %s %s %s > %s_q", name, s, z, name);
    kit_node(b, line);
    snprintf(line, sizeof line, "DequantizeLinear %s_q %s %s > %s_d", name, s, z, name);
    kit_node(b, line);
}

typedef struct qdq_case {
    const char *what, *node; /* reads x_d, w_d, c_d, makes y */
    const char *then;        /* y → y2, or NULL */
    int rank;
    int64_t x[5], w[5]; /* x without its batch */
    bool columns, u8, transposed, bias;
    const char *fused;
} qdq_case;

static const qdq_case qdq_cases[] = {
    {"gemm", "Gemm x_d w_d c_d > y", NULL, 2, {11}, {11, 37}, true, true, false, true, "QuantizedMatMul"},
    {"gemm, turned", "Gemm x_d w_d c_d > y", "Relu y > y2", 2, {70}, {5, 70}, false, false, true, true, "QuantizedMatMul"},
    {"matmul", "MatMul x_d w_d > y", "Clip y low high > y2", 3, {3, 33}, {33, 65}, true, false, false, false, "QuantizedMatMul"},
    {"one column", "MatMul x_d w_d > y", NULL, 2, {1}, {1, 1}, false, true, false, false, "QuantizedMatMul"},
    {"conv", "Conv x_d w_d c_d > y", "Relu y > y2", 4, {3, 9, 7}, {18, 3, 3, 3}, true, true, false, true, "QuantizedConv"},
    {"conv of one place", "Conv x_d w_d > y", NULL, 4, {20, 5, 3}, {7, 20, 1, 1}, false, false, false, false, "QuantizedConv"},
    {"conv of a line", "Conv x_d w_d c_d > y", NULL, 3, {17, 19}, {33, 17, 4}, false, true, false, true, "QuantizedConv"},
    {"add", "Add x_d x2_d > y", "Relu y > y2", 4, {3, 9, 7}, {1}, false, true, false, false, "Elementwise"},
    {"sigmoid", "Sigmoid x_d > y", NULL, 2, {700}, {1}, false, false, false, false, "Elementwise"},
    {"spread", "Mul x_d w_d > y", NULL, 3, {5, 33}, {33}, false, true, false, false, "Elementwise"},
    {"moved", "Transpose x_d > y", NULL, 3, {5, 33}, {1}, false, true, false, false, NULL},
};

static pst_model *qdq_model(const qdq_case *k, pst_dtype t)
{
    pst_onnx_builder *b = pst_onnx_new("qdq", 17, 8);
    int64_t dims[5] = {-1};
    memcpy(dims + 1, k->x, (size_t)(k->rank - 1) * sizeof *dims);
    pst_onnx_input(b, "x", PST_F32, k->rank, dims, NULL);
    pair(b, "x", t, 0.02f, t == PST_U8 ? 117 : -3);
    kit_scalar(b, "two", 2.5f);
    kit_node(b, "Mul x two > x2");
    pair(b, "x2", t, 0.05f, t == PST_U8 ? 130 : 9);
    kit_scalar(b, "low", -1);
    kit_scalar(b, "high", 0.7f);
    int w_rank = 0;
    while (w_rank < 5 && k->w[w_rank])
        w_rank++;
    bool matrix = k->node[0] == 'G' || k->node[0] == 'M';
    int axis = matrix && !k->transposed ? 1 : 0;
    int64_t columns = w_rank > axis ? k->w[axis] : 1, one = 1;
    float scales[80], zeros[80], bias[80], bias_scales[80];
    for (int i = 0; i < 80; i++) {
        scales[i] = 0.01f + (k->columns ? 0.0003f * (float)i : 0);
        zeros[i] = k->u8 ? 100 + (k->columns ? (float)(i % 50) : 0) : 0;
        bias[i] = (float)((i * 37) % 3000 - 1500);
        bias_scales[i] = scales[i] * 0.02f;
    }
    byte_weights(b, "w", k->u8 ? PST_U8 : PST_I8, k->w, w_rank, k->u8 ? 0 : -127, k->u8 ? 255 : 127);
    pst_onnx_floats(b, "w_s", k->columns ? 1 : 0, &columns, scales);
    byte_konst(b, "w_z", k->u8 ? PST_U8 : PST_I8, k->columns ? 1 : 0, &columns, zeros);
    kit_node(b, "DequantizeLinear w w_s w_z > w_d");
    pst_onnx_attr_int(b, "axis", axis);
    byte_konst(b, "c", PST_I32, 1, k->bias ? &columns : &one, bias);
    pst_onnx_floats(b, "c_s", k->columns ? 1 : 0, k->bias ? &columns : &one, bias_scales);
    kit_node(b, "DequantizeLinear c c_s > c_d");
    pst_onnx_attr_int(b, "axis", 0);
    kit_node(b, k->node);
    if (k->transposed)
        pst_onnx_attr_int(b, "transB", 1);
    if (!strncmp(k->node, "Conv", 4) && k->w[2] > 1)
        pst_onnx_attr_ints(b, "pads", (int64_t[]){1, 1, 2, 1}, k->rank == 4 ? 4 : 2);
    if (!strncmp(k->node, "Transpose", 9))
        pst_onnx_attr_ints(b, "perm", (int64_t[]){0, 2, 1}, 3);
    if (k->then)
        kit_node(b, k->then);
    const char *last = k->then ? "y2" : "y";
    char line[100];
    bool moved = !k->fused;
    kit_scalar(b, "r_s", moved ? 0.02f : 0.031f);
    float zero = moved ? (t == PST_U8 ? 117 : -3) : t == PST_U8 ? 90 : -20;
    byte_konst(b, "r_z", t, 0, NULL, &zero);
    snprintf(line, sizeof line, "QuantizeLinear %s r_s r_z > r", last);
    kit_node(b, line);
    pst_onnx_output(b, "r", t, k->rank, (int64_t[]){-1, -1, -1, -1, -1}, NULL);
    return kit_load(b, NULL);
}

static int byte_of(const pst_tensor *t, int64_t i)
{
    return t->dtype == PST_U8 ? ((const uint8_t *)t->data)[i] : ((const int8_t *)t->data)[i];
}

/* Every byte within a step of the one that the nodes give one by one, and hardly any is not the same. */
static void near_bytes(pst_plan *p, pst_plan *plain, const qdq_case *k, int batch)
{
    int64_t n = batch, differ = 0;
    pst_tensor x = {.dtype = PST_F32, .rank = k->rank, .dims = {batch}}, got, want;
    for (int i = 1; i < k->rank; i++)
        n *= x.dims[i] = k->x[i - 1];
    float *v = kit_floats((size_t)n);
    x.data = v;
    pst_err err = {0};
    if (pst_plan_run(p, &x, 1, &got, 1, &err) < 0 || pst_plan_run(plain, &x, 1, &want, 1, &err) < 0)
        fail_msg("%s, %d rows: %s", k->what, batch, err.text);
    assert_int_equal(got.dtype, want.dtype);
    assert_int_equal(got.rank, want.rank);
    n = 1;
    for (int i = 0; i < got.rank; i++) {
        assert_int_equal(got.dims[i], want.dims[i]);
        n *= got.dims[i];
    }
    for (int64_t i = 0; i < n; i++) {
        int by = abs(byte_of(&got, i) - byte_of(&want, i));
        differ += by > 0;
        if (by > 1)
            fail_msg("%s, %d rows: byte %ld is %d, wanted %d", k->what, batch, (long)i, byte_of(&got, i), byte_of(&want, i));
    }
    if (differ > 2 + n / 50)
        fail_msg("%s, %d rows: %ld of %ld bytes differ", k->what, batch, (long)differ, (long)n);
    free(v);
}

static void test_between_the_pairs_are_bytes(void **state)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    for (size_t i = 0; i < 2 * sizeof qdq_cases / sizeof *qdq_cases; i++) {
        const qdq_case *k = &qdq_cases[i / 2];
        pst_model *m = qdq_model(k, i % 2 ? PST_I8 : PST_U8);
        pst_plan *plain = kit_plan(m, NULL, true);
        for (int isa = 0; isa < 3; isa++) {
            pst_plan *p = NULL;
            if (pst_plan_new(m, &(pst_plan_opts){.isa = isas[isa]}, &p, NULL) < 0)
                continue; /* not of this CPU */
            for (int n = 1; n < 40; n += n < 4 ? 1 : 11)
                near_bytes(p, plain, k, n);
            char *text = pst_plan_explain(p);
            if ((k->fused && !strstr(text, k->fused)) || strstr(text, "Dequantize"))
                fail_msg("%s: %s", k->what, text);
            free(text);
            pst_plan_free(p);
        }
        pst_plan_free(plain);
        pst_model_unref(m);
    }
}

/* Scales, zero points and biases that fit nothing, and sides that do not fit each other: said before anything is read. */
static void test_bytes_that_do_not_fit(void **state)
{
    static const int64_t bad[][5] = {/* rows of b, scales, zero points, biases; wanted */
                                     {3, 1, 1, 5, 0},          {4, 1, 1, 5, PST_EINVAL}, {3, 4, 1, 5, PST_EINVAL},
                                     {3, 5, 2, 5, PST_EINVAL}, {3, 5, 5, 4, PST_EINVAL}, {3, 0, 1, 5, PST_EINVAL}};
    static uint8_t bytes[64];
    static float floats[64];
    static int32_t ints[64];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pst_onnx_builder *b = pst_onnx_new("fit", 17, 8);
        static const struct {
            const char *name;
            pst_dtype t;
        } in[] = {{"a", PST_U8}, {"sa", PST_F32}, {"za", PST_U8}, {"b", PST_U8}, {"sb", PST_F32}, {"zb", PST_U8}, {"c", PST_I32}};
        for (int k = 0; k < 7; k++)
            pst_onnx_input(b, in[k].name, in[k].t, k % 3 ? 1 : 2, (int64_t[]){-1, -1}, NULL);
        kit_node(b, "QGemm a sa za b sb zb c > y");
        pst_onnx_domain(b, "com.microsoft", 1);
        pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, -1}, NULL);
        pst_model *m = kit_load(b, NULL);
        pst_plan *p = kit_plan(m, NULL, false);
        pst_tensor x[7] = {{.dtype = PST_U8, .rank = 2, .dims = {2, 3}, .data = bytes},
                           {.dtype = PST_F32, .rank = 1, .dims = {1}, .data = floats},
                           {.dtype = PST_U8, .rank = 1, .dims = {1}, .data = bytes},
                           {.dtype = PST_U8, .rank = 2, .dims = {bad[i][0], 5}, .data = bytes},
                           {.dtype = PST_F32, .rank = 1, .dims = {bad[i][1]}, .data = floats},
                           {.dtype = PST_U8, .rank = 1, .dims = {bad[i][2]}, .data = bytes},
                           {.dtype = PST_I32, .rank = 2, .dims = {1, bad[i][3]}, .data = ints}};
        pst_tensor out;
        pst_err err = {0};
        if (pst_plan_run(p, x, 7, &out, 1, &err) != bad[i][4])
            fail_msg("%zu: %s", i, err.text);
        pst_plan_free(p);
        pst_model_unref(m);
    }
}

/* An initializer of int64 (8, 2, 3, 3) is one of bytes (64, 2, 3, 3) from now on: the same bytes. */
static void make_bytes(pst_buf *file)
{
    static const uint8_t was[] = {8, 8, 8, 2, 8, 3, 8, 3, 16, PST_I64};
    uint8_t *at = memmem(file->data, file->len, was, sizeof was);
    assert_non_null(at);
    at[1] = 64;
    at[9] = PST_U8;
}

/* The same filters by two shapes: what is packed for one is not the other's. */
static void filters_twice(bool wide_first, bool no_fusion, int64_t *ret)
{
    enum { M = 64, C = 2 };
    pst_buf file = {0};
    pst_onnx_builder *b = pst_onnx_new("views", 17, 8);
    pst_onnx_input(b, "x", PST_U8, 4, (int64_t[]){1, C, 5, 5}, NULL);
    pst_onnx_input(b, "z", PST_U8, 4, (int64_t[]){1, M, 5, 5}, NULL);
    int64_t values[M * C * 9 / 8];
    for (int i = 0; i < M * C * 9 / 8; i++)
        values[i] = (int64_t)((uint64_t)i * 0x9e3779b97f4a7c15u);
    pst_onnx_ints(b, "w", 4, (int64_t[]){M / 8, C, 3, 3}, values);
    pst_onnx_ints(b, "turned", 1, (int64_t[]){4}, (int64_t[]){C, M, 3, 3});
    kit_node(b, "Reshape w turned > v");
    for (int i = 0; i < 2; i++)
        kit_node(b, (i == 0) == wide_first ? "ConvInteger x w > p" : "ConvInteger z v > q");
    pst_onnx_output(b, "p", PST_I32, 4, (int64_t[]){1, M, 3, 3}, NULL);
    pst_onnx_output(b, "q", PST_I32, 4, (int64_t[]){1, C, 3, 3}, NULL);
    pst_onnx_write(b, &file);
    pst_onnx_free(b);
    make_bytes(&file);
    pst_model *m = kit_load_bytes(&file, NULL, NULL);
    pst_buf_done(&file);
    pst_plan *p = kit_plan(m, NULL, no_fusion);
    uint8_t bytes[M * 25];
    for (int i = 0; i < M * 25; i++)
        bytes[i] = (uint8_t)(i * 91);
    pst_tensor in[2] = {{.dtype = PST_U8, .rank = 4, .dims = {1, C, 5, 5}, .data = bytes},
                        {.dtype = PST_U8, .rank = 4, .dims = {1, M, 5, 5}, .data = bytes}},
               out[2];
    pst_err err = {0};
    if (pst_plan_run(p, in, 2, out, 2, &err) < 0)
        fail_msg("%s", err.text);
    for (int i = 0; i < (M + C) * 9; i++)
        ret[i] = i < M * 9 ? ((int32_t *)out[0].data)[i] : ((int32_t *)out[1].data)[i - M * 9];
    pst_plan_free(p);
    pst_model_unref(m);
}

static void test_filters_by_two_shapes(void **state)
{
    int64_t want[66 * 9], got[66 * 9];
    filters_twice(true, true, want);
    for (int i = 0; i < 2; i++) {
        filters_twice(i, false, got);
        assert_memory_equal(got, want, sizeof got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distances),
        cmocka_unit_test(test_distances_that_are_none),
        cmocka_unit_test(test_made_of_others),
        cmocka_unit_test(test_parts_that_are_not_covered),
        cmocka_unit_test(test_nodes_of_others_count),
        cmocka_unit_test(test_a_dynamic_layer_is_one_product),
        cmocka_unit_test(test_between_the_pairs_are_bytes),
        cmocka_unit_test(test_bytes_that_do_not_fit),
        cmocka_unit_test(test_filters_by_two_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
