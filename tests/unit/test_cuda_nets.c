/* test_cuda_nets.c - networks of dense layers on a device, without one: whole plans over the simulated driver (cuda_sim.h) with the emulated kernels behind
 * it. Results are within a tolerance of the CPU's and a row's have the same bits alone and among others; what a run before has left is never seen;
 * memory is accounted for and given back, and whichever call of the driver fails ends in an error that says so, or in the CPU's results. */
#include "engine/backend.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/device_of.h"
#include "tests/unit/cuda_kit.h"

/* Of results against the CPU, relative to 1 and the number: float32 sums in another order through a few layers. */
#define TOLERANCE 2e-5f
enum { ROWS_FEW = 40, ROWS_ALL = 8192 + 7, OUT_MAX = 3 };
enum { ROWS_MEASURED = 256 }; /* by "auto" where a life is lived hundreds of times: as many calls of the driver as for more rows */

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

static void nodes(pst_onnx_builder *o, const char *const *lines)
{
    for (; *lines; lines++)
        kit_node(o, *lines);
}
#define NODES(O, ...) nodes(O, (const char *const[]){__VA_ARGS__, NULL})

static pst_model *end_model(pst_onnx_builder *o, int64_t width)
{
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, width}, "N");
    return kit_load(o, NULL);
}

/* in → hidden → hidden → out: one kernel. */
static pst_model *mlp(int64_t in, int64_t hidden, int64_t out)
{
    pst_onnx_builder *o = begin_model(in);
    layer(o, 0, in, hidden);
    layer(o, 1, hidden, hidden);
    layer(o, 2, hidden, out);
    NODES(o, "Gemm x w0 b0 > g0", "Relu g0 > r0", "Gemm r0 w1 b1 > g1", "Tanh g1 > r1", "Gemm r1 w2 b2 > y");
    return end_model(o, out);
}

/* Wider than a block's shared memory: a kernel a layer. */
static pst_model *wide(int64_t out)
{
    pst_onnx_builder *o = begin_model(17);
    layer(o, 0, 17, 1600);
    layer(o, 1, 1600, out);
    NODES(o, "Gemm x w0 b0 > g0", "Relu g0 > r0", "Gemm r0 w1 b1 > y");
    return end_model(o, out);
}

/* The same for less: nothing is multiplied by what is so wide. */
static pst_model *wide_mean(void)
{
    pst_onnx_builder *o = begin_model(17);
    layer(o, 0, 17, 1600);
    pst_onnx_ints(o, "axis", 1, (int64_t[]){1}, (int64_t[]){1});
    NODES(o, "Gemm x w0 b0 > g0", "Relu g0 > r0", "ReduceMean r0 axis > y");
    return end_model(o, 1);
}

/* As scikit-learn's are exported: probabilities, and a label that the host finds. */
static pst_model *classifier(void)
{
    pst_onnx_builder *o = begin_model(20);
    layer(o, 0, 20, 33);
    layer(o, 1, 33, 3);
    NODES(o, "MatMul x w0 > m0", "Add m0 b0 > a0", "Relu a0 > r0", "MatMul r0 w1 > m1", "Add m1 b1 > a1", "Softmax a1 > y",
          "ArgMax y > label");
    pst_onnx_attr_int(o, "axis", 1);
    pst_onnx_output(o, "label", PST_I64, 2, (int64_t[]){-1, 1}, "N");
    return end_model(o, 3);
}

/* Of a table whose columns lie far from 0: scaling in front, and the error of the reconstruction, which the model gives beside it. */
static pst_model *autoencoder(void)
{
    static float mean[30], by[30];
    pst_onnx_builder *o = begin_model(30);
    for (int i = 0; i < 30; i++) {
        mean[i] = 1000 * (float)(i + 1);
        by[i] = 0.01f * (float)(i + 1);
    }
    pst_onnx_floats(o, "mean", 1, (int64_t[]){30}, mean);
    pst_onnx_floats(o, "by", 1, (int64_t[]){30}, by);
    layer(o, 0, 30, 8);
    layer(o, 1, 8, 30);
    pst_onnx_ints(o, "axis", 1, (int64_t[]){1}, (int64_t[]){1});
    NODES(o, "Sub x mean > c", "Mul c by > s", "Gemm s w0 b0 > g0", "Tanh g0 > r0", "Gemm r0 w1 b1 > z", "Sub z s > d", "Mul d d > q",
          "ReduceMean q axis > y");
    pst_onnx_output(o, "z", PST_F32, 2, (int64_t[]){-1, 30}, "N");
    return end_model(o, 1);
}

/* Columns side by side: the host puts them together, the network begins behind that, and the host's last word is another shape. */
static pst_model *joined(void)
{
    pst_onnx_builder *o = begin_model(7);
    pst_onnx_input(o, "x2", PST_F32, 2, (int64_t[]){-1, 4}, "N");
    layer(o, 0, 11, 16);
    layer(o, 1, 16, 1);
    pst_onnx_ints(o, "shape", 1, (int64_t[]){1}, (int64_t[]){-1});
    NODES(o, "Concat x x2 > all");
    pst_onnx_attr_int(o, "axis", 1);
    NODES(o, "Gemm all w0 b0 > g0", "Sigmoid g0 > r0", "Gemm r0 w1 b1 > one", "Reshape one shape > y");
    pst_onnx_output(o, "y", PST_F32, 1, (int64_t[]){-1}, "N");
    return kit_load(o, NULL);
}

/* ---- rows and results ---- */

typedef struct batch {
    pst_tensor in[2];
    size_t n;
} batch;

/* Like the table that the model is of: see autoencoder. One row in a while has a value that is missing. */
static batch rows_for(const pst_model *m, int rows)
{
    const pst_model_info *info = pst_model_info_get(m);
    batch b = {.n = info->n_inputs};
    for (size_t i = 0; i < b.n; i++) {
        int64_t cols = info->inputs[i].dims[1] < 0 ? 20 : info->inputs[i].dims[1], n = rows * cols;
        float *x = malloc((size_t)(n + 1) * sizeof *x);
        for (int64_t k = 0; k < n; k++) {
            float column = (float)(k % cols + 1);
            x[k] = kit_next() % 997 == 0 ? NAN : cols == 30 ? 1000 * column + kit_float() * 100 / column : kit_float() * 2;
        }
        b.in[i] = (pst_tensor){.dtype = PST_F32, .rank = 2, .dims = {rows, cols}, .data = x};
    }
    return b;
}

static void drop(batch *b)
{
    for (size_t i = 0; i < b->n; i++)
        free(b->in[i].data);
}

static int64_t count_of(const pst_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

static void close(const pst_tensor *got, const pst_tensor *want, const char *what)
{
    assert_int_equal(got->rank, want->rank);
    assert_int_equal(got->dtype, want->dtype);
    for (int i = 0; i < want->rank; i++)
        assert_int_equal(got->dims[i], want->dims[i]);
    for (int64_t i = 0; i < count_of(want); i++)
        if (want->dtype != PST_F32) {
            assert_int_equal(((int64_t *)got->data)[i], ((int64_t *)want->data)[i]);
        } else if (!kit_close(((float *)got->data)[i], ((float *)want->data)[i], TOLERANCE)) {
            fail_msg("%s: number %lld is %.9g for %.9g", what, (long long)i, (double)((float *)got->data)[i],
                     (double)((float *)want->data)[i]);
        }
}

/* One run of p beside one of `cpu`. */
static void same(pst_plan *p, pst_plan *cpu, const pst_model *m, int rows, const char *what)
{
    size_t n_out = pst_model_info_get(m)->n_outputs;
    batch b = rows_for(m, rows);
    pst_tensor got[OUT_MAX], want[OUT_MAX];
    pst_err err = {0};
    assert_int_equal(pst_plan_run(cpu, b.in, b.n, want, n_out, &err), 0);
    if (pst_plan_run(p, b.in, b.n, got, n_out, &err) < 0)
        fail_msg("%s, %d rows: %s", what, rows, err.text);
    for (size_t i = 0; i < n_out; i++)
        close(&got[i], &want[i], what);
    drop(&b);
}

/* At sizes that fill no tile, as far as `most`; takes m. says: what explain calls it. */
static void compare(pst_model *m, int most, const char *says, const char *what)
{
    static const int sizes[] = {1, 2, 33, 257, 600};
    pst_plan *p = cuda_kit_plan(m, "cuda"), *cpu = cuda_kit_plan(m, "engine");
    char *text = pst_plan_explain(p);
    assert_string_equal(p->computes, "cuda:0");
    if (!strstr(text, says))
        fail_msg("%s: \"%s\" is not in: %s", what, says, text);
    const eng_prog *g = &p->progs[0]; /* what explain counts adds up */
    assert_int_equal(g->n_nodes - g->n_folded - g->n_dropped - g->n_fused, g->n_steps);
    free(text);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= most; i++) {
        int before = cuda_sim_state.launches;
        same(p, cpu, m, sizes[i], what);
        assert_int_equal(cuda_sim_state.launches, before + 1); /* the device computed it, in one pass */
    }
    pst_plan_free(p);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

static void test_results_are_near_the_cpus(void **state)
{
    compare(mlp(17, 40, 1), 600, "3 dense layers on cuda:0 (NVIDIA H200), one kernel, 32 rows a block", "a regressor");
    compare(wide(5), 33, "2 dense layers on cuda:0 (NVIDIA H200), 2 kernels", "a wide one");
    compare(wide_mean(), 257, "1 dense layer on cuda:0 (NVIDIA H200), 2 kernels", "a wide one and its mean");
    compare(classifier(), 257, "2 dense layers", "a classifier");
    compare(autoencoder(), 257, "2 dense layers", "an autoencoder");
    compare(joined(), 257, "2 dense layers", "columns side by side");
    assert_int_equal(cuda_sim_state.images, 6);
}

/* What a plan gives is what the device has computed, not what the steps would that it stands for. */
static int one_more(const eng_cuda_net *n, const void *image, const float *x, int64_t rows, float *between, float *out, void *stream)
{
    int rc = eng_cuda_net_run(n, image, x, rows, between, out, stream);
    for (int64_t i = 0; i < rows * n->n_out; i++)
        out[i] += 1;
    return rc;
}

static void test_results_are_the_devices(void **state)
{
    pst_model *m = mlp(9, 20, 2);
    pst_plan *p = cuda_kit_plan(m, "cuda"), *cpu = cuda_kit_plan(m, "engine");
    batch b = rows_for(m, 40);
    pst_tensor got, want;
    cuda_sim_state.net = one_more;
    assert_int_equal(pst_plan_run(p, b.in, 1, &got, 1, NULL), 0);
    assert_int_equal(pst_plan_run(cpu, b.in, 1, &want, 1, NULL), 0);
    for (int i = 0; i < 80; i++)
        assert_true(kit_close(((float *)got.data)[i], ((float *)want.data)[i] + 1, TOLERANCE));
    drop(&b);
    pst_plan_free(p);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

/* Bit for bit: neither the rows beside it nor those of a batch before are in a row's result. */
static void test_a_row_is_the_same_alone(void **state)
{
    enum { ALL = 67, STEP = 7 };
    for (int far = 0; far < 2; far++) {
        pst_model *m = far ? wide_mean() : mlp(17, 40, 1);
        pst_plan *p = cuda_kit_plan(m, "cuda");
        batch b = rows_for(m, ALL);
        float among[ALL];
        pst_tensor got;
        assert_int_equal(pst_plan_run(p, b.in, 1, &got, 1, NULL), 0);
        memcpy(among, got.data, sizeof among);
        for (int from = 0, n = 1; from + n <= ALL;
             from += far ? 2 * STEP : STEP, n = n % 4 + 1) { /* one to four rows, behind larger and smaller batches */
            pst_tensor few = b.in[0];
            few.data = (float *)few.data + (size_t)from * 17;
            few.dims[0] = n;
            assert_int_equal(pst_plan_run(p, &few, 1, &got, 1, NULL), 0);
            assert_int_equal(got.dims[0], n);
            assert_memory_equal(got.data, among + from, (size_t)n * sizeof(float));
        }
        drop(&b);
        pst_plan_free(p);
        pst_model_unref(m);
    }
}

/* More rows than the buffers hold go in passes. */
static void test_more_rows_than_a_pass(void **state)
{
    pst_model *m = mlp(3, 6, 2);
    pst_plan *p = cuda_kit_plan(m, "cuda"), *cpu = cuda_kit_plan(m, "engine");
    int before = cuda_sim_state.launches;
    same(p, cpu, m, ROWS_ALL, "three passes");
    assert_int_equal(cuda_sim_state.launches, before + 3);
    assert_int_equal(cuda_sim_state.overlaps, 2);
    same(p, cpu, m, 5, "a small run behind a large one");
    pst_plan_free(p);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

/* Weights that go over in pieces. */
static void test_weights_larger_than_a_piece(void **state)
{
    pst_onnx_builder *o = begin_model(530);
    layer(o, 0, 530, 520);
    NODES(o, "Gemm x w0 b0 > y");
    pst_model *m = end_model(o, 520);
    pst_plan *p = cuda_kit_plan(m, "cuda"), *cpu = cuda_kit_plan(m, "engine");
    assert_int_equal(cuda_sim_state.copies_in, 3); /* two pieces, and the rows of the proof */
    same(p, cpu, m, 9, "a megabyte of weights");
    pst_plan_free(p);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

/* ---- plans side by side ---- */

/* The second run begins before the first one's end is waited for. The weights are there once. */
static void test_two_plans_in_rotation(void **state)
{
    pst_model *m = wide_mean();
    pst_plan *p[2] = {cuda_kit_plan(m, "cuda"), cuda_kit_plan(m, "cuda")}, *cpu = cuda_kit_plan(m, "engine");
    pst_err err = {0};
    assert_int_equal(cuda_sim_state.images, 1);
    for (int round = 0; round < 3; round++) {
        batch b[2] = {rows_for(m, 40 + round), rows_for(m, 20 - round)};
        for (int k = 0; k < 2; k++)
            assert_int_equal(eng_cuda_backend.submit(p[k], &(eng_val){.kind = ENG_VAL_TENSOR, .t = b[k].in[0]}, 1, 1, &err), 0);
        for (int k = 0; k < 2; k++) {
            int at = (k + round) % 2;
            const eng_val *got;
            pst_tensor want;
            assert_int_equal(eng_cuda_backend.wait(p[at], &got, 1, &err), 0);
            assert_int_equal(pst_plan_run(cpu, b[at].in, 1, &want, 1, &err), 0);
            close(&got->t, &want, "in rotation");
        }
        drop(&b[0]);
        drop(&b[1]);
    }
    pst_plan_free(p[0]);
    assert_int_equal(cuda_sim_state.pieces, 2); /* the image, and the other's buffers */
    same(p[1], cpu, m, 40, "the first is gone");
    pst_plan_free(p[1]);
    pst_plan_free(cpu);
    assert_int_equal(cuda_sim_state.pieces, 0); /* though the model lives */
    pst_plan_free(cuda_kit_plan(m, "cuda"));
    assert_int_equal(cuda_sim_state.images, 2);
    pst_model_unref(m);
}

/* Plans that were compiled in different ways have different images, and a kernel never reads another one's. */
static void test_plans_with_and_without_fusion(void **state)
{
    pst_model *m = autoencoder();
    pst_plan *p[3] = {0}, *cpu = cuda_kit_plan(m, "engine");
    for (int i = 0; i < 3; i++)
        assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.backend = "cuda", .no_fusion = i == 1}, &p[i], NULL), 0);
    assert_int_equal(cuda_sim_state.images, 2);
    for (int i = 0; i < 3; i++)
        same(p[i], cpu, m, 50, i == 1 ? "without fusion" : "with fusion");
    for (int i = 0; i < 3; i++)
        pst_plan_free(p[i]);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

/* A run that is given up leaves work behind: the next run waits for that, and so does the end of the plan. */
static void test_a_run_that_is_given_up(void **state)
{
    pst_model *m = mlp(9, 20, 2);
    pst_plan *p = cuda_kit_plan(m, "cuda"), *cpu = cuda_kit_plan(m, "engine");
    batch b = rows_for(m, 64);
    const eng_val v = {.kind = ENG_VAL_TENSOR, .t = b.in[0]};
    pst_err err = {0};
    assert_int_equal(eng_cuda_backend.submit(p, &v, 1, 1, &err), 0);
    same(p, cpu, m, 90, "behind one that was given up");
    assert_int_equal(eng_cuda_backend.submit(p, &v, 1, 1, &err), 0);
    pst_plan_free(p);
    pst_plan_free(cpu);
    pst_model_unref(m);
    drop(&b);
}

/* ---- batches of other shapes ---- */

/* No rows at all, and rows of another width: both are the operator's to answer, the device is not asked, and the next batch is as ever. */
static void test_batches_that_change(void **state)
{
    pst_onnx_builder *o = pst_onnx_new("net", 20, 9);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, -1}, "N");
    layer(o, 0, 20, 33);
    NODES(o, "Gemm x w0 b0 > g", "Relu g > y");
    pst_model *m = end_model(o, 33);
    pst_plan *p = cuda_kit_plan(m, "cuda"), *cpu = cuda_kit_plan(m, "engine");
    float x[64] = {0};
    pst_tensor none = {.dtype = PST_F32, .rank = 2, .dims = {0, 20}, .data = x},
               narrow = {.dtype = PST_F32, .rank = 2, .dims = {2, 7}, .data = x}, got, want;
    for (int round = 0; round < 2; round++) {
        pst_err err = {0}, plain = {0};
        same(p, cpu, m, 37 - 20 * round, "between others");
        int before = cuda_sim_state.launches;
        assert_int_equal(pst_plan_run(p, &none, 1, &got, 1, &err), 0);
        assert_int_equal(pst_plan_run(cpu, &none, 1, &want, 1, &err), 0);
        close(&got, &want, "no rows");
        assert_int_equal(pst_plan_run(p, &narrow, 1, &got, 1, &err), pst_plan_run(cpu, &narrow, 1, &want, 1, &plain));
        assert_int_equal(err.cls, PST_CLASS_DATA);
        assert_string_equal(err.text, plain.text);
        assert_int_equal(cuda_sim_state.launches, before);
    }
    pst_plan_free(p);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

/* A rank that the file does not tell: the first batch does. Nobody is given the CPU's in the place of the device's without a word. */
static void test_a_shape_that_only_a_batch_shows(void **state)
{
    float x[24] = {1, 2, 3};
    int64_t flat[2] = {6, 4}, deep[3] = {2, 3, 4};
    for (int any = 0; any < 2; any++) {
        pst_onnx_builder *o = begin_model(24);
        pst_onnx_input(o, "shape", PST_I64, 1, (int64_t[]){-1}, "R");
        layer(o, 0, 4, 600);
        NODES(o, "Reshape x shape > rows", "MatMul rows w0 > y");
        pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 600}, "N");
        pst_model *m = kit_load(o, NULL);
        pst_plan *p = cuda_kit_plan(m, any ? "auto" : "cuda");
        pst_tensor in[2] = {{.dtype = PST_F32, .rank = 2, .dims = {1, 24}, .data = x},
                            {.dtype = PST_I64, .rank = 1, .dims = {2}, .data = flat}},
                   got;
        pst_err err = {0};
        assert_int_equal(pst_plan_run(p, in, 2, &got, 1, &err), 0);
        in[1] = (pst_tensor){.dtype = PST_I64, .rank = 1, .dims = {3}, .data = deep};
        assert_int_equal(pst_plan_run(p, in, 2, &got, 1, &err), any ? 0 : PST_EUNSUPPORTED);
        if (!any) {
            assert_int_equal(err.cls, PST_CLASS_RETRY);
            assert_non_null(strstr(err.text, "(MatMul): on a device a network takes a float32 matrix of rows"));
        }
        in[1] = (pst_tensor){.dtype = PST_I64, .rank = 1, .dims = {2}, .data = flat};
        err = (pst_err){0};
        assert_int_equal(pst_plan_run(p, in, 2, &got, 1, &err), 0);
        assert_int_equal(got.dims[0], 6);
        pst_plan_free(p);
        pst_model_unref(m);
    }
}

/* ---- what is refused ---- */

static void test_what_no_device_computes(void **state)
{
    pst_onnx_builder *o = begin_model(4);
    NODES(o, "Relu x > y");
    cuda_kit_refused(end_model(o, 4), "cuda", PST_EUNSUPPORTED, "and this one has neither");
    o = begin_model(4);
    NODES(o, "Transpose x > t", "MatMul x t > y");
    cuda_kit_refused(end_model(o, 4), "cuda", PST_EUNSUPPORTED, "(MatMul): it is no product of rows with a float32 matrix of constants");
    o = begin_model(6);
    layer(o, 0, 6, 6);
    layer(o, 1, 6, 3);
    NODES(o, "Gemm x w0 b0 > g", "CumSum g axis > c", "Gemm c w1 b1 > y");
    pst_onnx_ints(o, "axis", 0, NULL, (int64_t[]){1});
    cuda_kit_refused(end_model(o, 3), "cuda:0", PST_EUNSUPPORTED,
                     "(Gemm): a device computes one network, and this model's ends before node without a name (CumSum): no kernel has this "
                     "operator");
    o = begin_model(6);
    layer(o, 0, 6, 3);
    NODES(o, "Gemm x w0 b0 > g", "LpPool g > y");
    pst_onnx_attr_ints(o, "kernel_shape", (int64_t[]){1}, 1);
    cuda_kit_refused(end_model(o, 3), "cuda", PST_EUNSUPPORTED,
                     "(LpPool): models of one tree ensemble, or of dense layers, run on a device");
    o = begin_model(6); /* three dimensions, which a run of one row shows */
    layer(o, 0, 3, 3);
    pst_onnx_ints(o, "shape", 1, (int64_t[]){3}, (int64_t[]){-1, 2, 3});
    NODES(o, "Reshape x shape > deep", "MatMul deep w0 > y");
    pst_onnx_output(o, "y", PST_F32, 3, (int64_t[]){-1, 2, 3}, "N");
    cuda_kit_refused(kit_load(o, NULL), "cuda", PST_EUNSUPPORTED, "(MatMul): on a device a network takes a float32 matrix of rows");
    assert_int_equal(cuda_sim_state.launches, 0);
}

/* A device that computes otherwise is not believed: by a little, by NaN in the place of a number, and by not writing at all. */
enum { A_LITTLE, NOT_A_NUMBER, NOTHING, HARDLY };
static int how;

static int wrong_net(const eng_cuda_net *n, const void *image, const float *x, int64_t rows, float *between, float *out, void *stream)
{
    int rc = how == NOTHING ? 0 : eng_cuda_net_run(n, image, x, rows, between, out, stream);
    float *at = &out[(rows - 1) * n->n_out + n->n_out - 1]; /* the last number of the last row */
    if (how == A_LITTLE)
        *at += 1e-3f;
    if (how == HARDLY)
        *at += 1e-6f;
    if (how == NOT_A_NUMBER)
        *at = NAN;
    return rc;
}

static void test_a_device_that_computes_otherwise(void **state)
{
    cuda_sim_state.net = wrong_net;
    for (how = A_LITTLE; how <= NOTHING; how++)
        for (int far = 0; far < 2; far++)
            cuda_kit_refused(far ? wide_mean() : autoencoder(), "cuda", PST_EUNSUPPORTED,
                             "cuda:0 (NVIDIA H200) is not used for this model: of some rows it computes");
    how = HARDLY;
    pst_model *m = mlp(17, 40, 2);
    pst_plan_free(cuda_kit_plan(m, "cuda"));
    pst_model_unref(m);
}

/* The rows of a proof are such as the model was made for: with others every activation here is at its end, and what the weights do is hidden. */
static int forgets_weights(const eng_cuda_net *n, const void *image, const float *x, int64_t rows, float *between, float *out, void *stream)
{
    static unsigned char other[1 << 16];
    const eng_cuda_net_op *ops = (const void *)((const unsigned char *)image + n->ops.at);
    assert_true(n->bytes <= sizeof other);
    memcpy(other, image, n->bytes);
    for (uint32_t i = 0; i < n->n_ops; i++)
        if (ops[i].kind == ENG_CUDA_NET_DENSE) {
            float *w = (float *)(void *)(other + n->numbers.at) + ops[i].weights;
            w[5] *= 1.5f; /* one weight of the first layer */
            break;
        }
    return eng_cuda_net_run(n, other, x, rows, between, out, stream);
}

static void test_a_proof_sees_each_weight(void **state)
{
    cuda_sim_state.net = forgets_weights;
    cuda_kit_refused(autoencoder(), "cuda", PST_EUNSUPPORTED, "is not used for this model: of some rows it computes");
}

/* ---- auto ---- */

/* In no time where only time counts: in runs that are measured, whose rows are powers of two. */
static int quick_net(const eng_cuda_net *n, const void *image, const float *x, int64_t rows, float *between, float *out, void *stream)
{
    if (rows < 64 || (rows & (rows - 1)))
        return eng_cuda_net_run(n, image, x, rows, between, out, stream);
    memset(out, 0, (size_t)rows * n->n_out * sizeof *out);
    return 0;
}

static void test_auto_measures(void **state)
{
    pst_model *m = mlp(17, 60, 2), *small = mlp(3, 6, 2);
    pst_plan *p = NULL, *cpu = cuda_kit_plan(m, "engine");
    assert_int_equal(pst_plan_new(small, &(pst_plan_opts){.backend = "auto", .rows_most = 16}, &p, NULL), 0);
    assert_string_equal(p->computes, "cpu");
    assert_string_equal(p->computes_why, "by estimate the CPU is quicker");
    assert_int_equal(cuda_sim_state.calls, 0); /* nobody opens a driver for it */
    pst_plan_free(p);
    pst_model_unref(small);
    assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.backend = "auto", .rows_most = 128}, &p, NULL), 0);
    assert_string_equal(p->computes, "cpu"); /* the emulated kernel is the slower one */
    assert_non_null(strstr(p->computes_why, "measured on 128 rows"));
    assert_int_equal(pst_plan_device_left(p), 0);
    assert_int_equal(cuda_sim_state.pieces + cuda_sim_state.pinned + cuda_sim_state.streams, 0); /* the device has nothing of it */
    same(p, cpu, m, 100, "auto, on the CPU");
    pst_plan_free(p);
    cuda_sim_state.net = quick_net;
    p = cuda_kit_plan(m, "auto");
    assert_string_equal(p->computes, "cuda:0");
    assert_non_null(strstr(p->computes_why, "are quicker on the CPU, and go there"));
    int before = cuda_sim_state.launches;
    same(p, cpu, m, 1, "auto, so few that the CPU has them");
    assert_int_equal(cuda_sim_state.launches, before);
    same(p, cpu, m, 99, "auto, on the device");
    same(p, cpu, m, 1, "auto, and few again");
    assert_int_equal(cuda_sim_state.launches, before + 1);
    cuda_sim_state.fail_at = cuda_sim_state.calls + 2;
    cuda_sim_state.fail_on = true;
    same(p, cpu, m, 99, "auto, the device lost in this run");
    assert_string_equal(p->computes, "cpu");
    assert_non_null(strstr(p->computes_why, "is lost to this process"));
    assert_int_equal(pst_plan_device_left(p), PST_EIO);
    same(p, cpu, m, 99, "auto, afterwards");
    pst_plan_free(p);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

/* ---- a lost device, and memory ---- */

/* The network is lowered anew for the next one, and proven there. */
static void test_a_lost_device_is_passed_over(void **state)
{
    pst_model *m = autoencoder();
    cuda_sim_state.n = 2;
    cuda_sim_state.device[1] = cuda_kit_h200;
    pst_plan *p = cuda_kit_plan(m, "cuda"), *cpu = cuda_kit_plan(m, "engine");
    batch b = rows_for(m, 40);
    pst_tensor got[2];
    pst_err err = {0};
    same(p, cpu, m, 40, "on the first one");
    cuda_sim_state.gone = 1;
    assert_int_equal(pst_plan_run(p, b.in, 1, got, 2, &err), PST_EIO); /* in this run; nothing of it is taken for a result */
    same(p, cpu, m, 40, "on the other one");
    assert_string_equal(p->computes, "cuda:1");
    assert_int_equal(cuda_sim_state.images, 2);
    same(p, cpu, m, 41, "and again");
    drop(&b);
    pst_plan_free(p);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

/* The next device computes otherwise: the plan has none, and says so each time. */
static void test_a_lost_device_and_one_that_computes_otherwise(void **state)
{
    pst_model *m = mlp(9, 20, 2);
    cuda_sim_state.n = 2;
    cuda_sim_state.device[1] = cuda_kit_h200;
    pst_plan *p = cuda_kit_plan(m, "cuda"), *cpu = cuda_kit_plan(m, "engine");
    batch b = rows_for(m, 40);
    pst_tensor got;
    cuda_sim_state.gone = 1;
    assert_int_equal(pst_plan_run(p, b.in, 1, &got, 1, NULL), PST_EIO);
    cuda_sim_state.net = wrong_net;
    how = A_LITTLE;
    for (int i = 0; i < 3; i++) {
        pst_err err = {0};
        assert_int_equal(pst_plan_run(p, b.in, 1, &got, 1, &err), PST_EUNSUPPORTED);
        assert_non_null(strstr(err.text, "cuda:1 (NVIDIA H200) is not used for this model"));
    }
    cuda_sim_state.net = eng_cuda_net_run;
    same(p, cpu, m, 40, "which thought better of it");
    drop(&b);
    pst_plan_free(p);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

/* Two versions side by side while swapping, not three; and what does not fit is told before anything is copied. */
static void test_the_budget(void **state)
{
    pst_model *m[3];
    pst_plan *p[3] = {0};
    pst_err err = {0};
    eng_cuda_context *on;
    for (int i = 0; i < 3; i++)
        m[i] = wide_mean();
    p[0] = cuda_kit_plan(m[0], "cuda");
    assert_int_equal(eng_cuda_context_open(0, &on, &err), 0);
    on->budget = 2 * on->used + on->used / 2;
    p[1] = cuda_kit_plan(m[1], "cuda");
    int copies = cuda_sim_state.copies_in;
    size_t used = on->used;
    assert_int_equal(cuda_kit_try(m[2], "cuda", &p[2], &err), PST_ENOMEM);
    assert_int_equal(err.cls, PST_CLASS_RETRY);
    assert_non_null(strstr(err.text, "more bytes are needed"));
    assert_int_equal(on->used, used);
    assert_true(cuda_sim_state.copies_in <= copies + 1); /* the weights at most, and no rows */
    pst_plan *cpu = cuda_kit_plan(m[0], "engine");
    same(p[0], cpu, m[0], 20, "the old version");
    pst_plan_free(cpu);
    cpu = cuda_kit_plan(m[1], "engine");
    same(p[1], cpu, m[1], 20, "the new version");
    pst_plan_free(cpu);
    pst_plan_free(p[0]);
    pst_model_unref(m[0]);
    p[2] = cuda_kit_plan(m[2], "cuda"); /* the old one is gone */
    for (int i = 1; i < 3; i++) {
        pst_plan_free(p[i]);
        pst_model_unref(m[i]);
    }
    assert_int_equal(on->used, 0);
}

/* ---- faults ---- */

typedef struct faulty {
    pst_model *(*model)(void);
    const char *backend;
    cuda_sim_net_kernel net; /* what measures as the device's */
} faulty;

/* All of a plan's life. */
static int life(const void *arg, const cuda_kit_fault *fault)
{
    const faulty *f = arg;
    pst_model *m = f->model();
    size_t n_out = pst_model_info_get(m)->n_outputs;
    pst_plan *cpu = cuda_kit_plan(m, "engine"), *p = NULL;
    batch b = rows_for(m, ROWS_FEW);
    pst_tensor want[OUT_MAX], got[OUT_MAX];
    pst_err err = {0};
    assert_int_equal(pst_plan_run(cpu, b.in, b.n, want, n_out, NULL), 0);
    cuda_sim_state.net = f->net;
    cuda_kit_arm(fault);
    int rc = pst_plan_new(m, &(pst_plan_opts){.backend = f->backend, .rows_most = ROWS_MEASURED}, &p, &err);
    if (rc == 0)
        rc = pst_plan_run(p, b.in, b.n, got, n_out, &err);
    for (size_t i = 0; i < n_out && rc == 0; i++)
        close(&got[i], &want[i], "with a fault");
    if (!fault->at)
        assert_string_equal(p->computes, "cuda:0");
    cuda_kit_says_why(rc, &err);
    pst_plan_free(p);
    drop(&b);
    pst_plan_free(cpu);
    pst_model_unref(m);
    return rc;
}

static pst_model *dense(void)
{
    return mlp(17, 60, 2);
}

static void test_every_call_fails(void **state)
{
    for (int on = 0; on < 2; on++)
        cuda_kit_faults(on, false, life, &(faulty){autoencoder, "cuda", eng_cuda_net_run});
}

static void test_every_call_fails_and_the_cpu_takes_over(void **state)
{
    for (int on = 0; on < 2; on++)
        cuda_kit_faults(on, true, life, &(faulty){dense, "auto", quick_net});
}

/* The engine's own allocations, one after another, while a plan for the device is made and run. */
static void test_out_of_memory(void **state)
{
    pst_model *m = classifier();
    pst_plan *cpu = cuda_kit_plan(m, "engine");
    batch b = rows_for(m, 40);
    pst_tensor want[2], got[2];
    assert_int_equal(pst_plan_run(cpu, b.in, 1, want, 2, NULL), 0);
    uint64_t at = 1;
    for (bool hit = true; hit; at++) {
        pst_plan *p = NULL;
        pst_err err = {0};
        eng_heap_test_fail(at, false);
        int rc = cuda_kit_try(m, "cuda", &p, &err);
        if (rc == 0)
            rc = pst_plan_run(p, b.in, 1, got, 2, &err);
        hit = eng_heap_test_fail(0, false) >= at;
        assert_int_equal(rc, hit ? PST_ENOMEM : 0);
        if (p) {
            err = (pst_err){0};
            assert_int_equal(pst_plan_run(p, b.in, 1, got, 2, &err), 0);
            close(&got[0], &want[0], "after running out of memory");
        }
        pst_plan_free(p);
    }
    assert_true(at > 20);
    drop(&b);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

int main(void)
{
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, cuda_kit_begin, cuda_kit_end)
    const struct CMUnitTest tests[] = {
        TEST(test_results_are_near_the_cpus),
        TEST(test_results_are_the_devices),
        TEST(test_a_row_is_the_same_alone),
        TEST(test_more_rows_than_a_pass),
        TEST(test_weights_larger_than_a_piece),
        TEST(test_two_plans_in_rotation),
        TEST(test_plans_with_and_without_fusion),
        TEST(test_a_run_that_is_given_up),
        TEST(test_batches_that_change),
        TEST(test_a_shape_that_only_a_batch_shows),
        TEST(test_what_no_device_computes),
        TEST(test_a_device_that_computes_otherwise),
        TEST(test_a_proof_sees_each_weight),
        TEST(test_auto_measures),
        TEST(test_a_lost_device_is_passed_over),
        TEST(test_a_lost_device_and_one_that_computes_otherwise),
        TEST(test_the_budget),
        TEST(test_every_call_fails),
        TEST(test_every_call_fails_and_the_cpu_takes_over),
        TEST(test_out_of_memory),
    };
    cmocka_set_test_filter(getenv("PENSTOCK_TEST")); /* the name of one */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
