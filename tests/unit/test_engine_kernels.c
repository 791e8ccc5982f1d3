/* The vector kernels against their readable twins, on every instruction set of this machine. */
#include "common/base/err.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/isa.h"
#include "engine/onnx_export.h"
#include "engine/penstock_engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const isas[] = {"portable", "avx2", "avx512"};
static uint32_t seed = 12345;

static float rnd(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)seed / 2147483648.0f;
}

static float *rnds(size_t n)
{
    float *p = malloc((n + 1) * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = rnd();
    return p;
}

static void close_to(float got, float want, float tol)
{
    if (!(fabsf(got - want) <= tol * (1 + fabsf(want))) && !(isnan(got) && isnan(want)))
        fail_msg("%.9g, expected %.9g", (double)got, (double)want);
}

static void test_gemm_every_isa_equals_the_reference(void **state)
{
    static const int sizes[][3] = {{1, 1, 1},     {1, 64, 30},  {3, 17, 5},     {4, 33, 100},  {5, 31, 7}, {6, 16, 8},
                                   {7, 129, 300}, {64, 64, 64}, {150, 70, 260}, {13, 1100, 9}, {2, 3, 0}};
    for (size_t k = 0; k < sizeof isas / sizeof *isas; k++) {
        const pst_cpu_kernels *kn = pst_kernels_pick(isas[k]);
        if (!kn) {
            printf("skipped: this CPU has no %s. Cure: run on one that has\n", isas[k]);
            continue;
        }
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int mode = 0; mode < 8; mode++) {
                int m = sizes[s][0], n = sizes[s][1], d = sizes[s][2];
                bool ta = mode & 1, tb = mode & 2;
                float alpha = mode & 4 ? 0.5f : 1, beta = mode & 4 ? 2.0f : 0;
                float *a = rnds((size_t)(m * d)), *b = rnds((size_t)(n * d)), *c = rnds((size_t)(m * n)),
                      *want = malloc((size_t)(m * n) * sizeof *want);
                memcpy(want, c, (size_t)(m * n) * sizeof *want);
                int lda = ta ? m : d ? d : 1, ldb = tb ? d ? d : 1 : n;
                pst_sgemm_ref(ta, tb, m, n, d, alpha, a, lda, b, ldb, beta, want, n);
                pst_sgemm_isa(kn, ta, tb, m, n, d, alpha, a, lda, b, ldb, beta, c, n);
                for (int i = 0; i < m * n; i++)
                    close_to(c[i], want[i], 2e-5f);
                free(a);
                free(b);
                free(c);
                free(want);
            }
    }
}

static void test_activations_every_isa_equal_libm(void **state)
{
    float x[203], y[203];
    for (int i = 0; i < 200; i++)
        x[i] = (float)(i - 100) * (i % 3 ? 0.013f : 1.1f);
    x[200] = NAN;
    x[201] = 1000;
    x[202] = -1000;
    for (size_t k = 0; k < sizeof isas / sizeof *isas; k++) {
        const pst_cpu_kernels *kn = pst_kernels_pick(isas[k]);
        if (!kn)
            continue;
        for (int act = PST_ACT_NONE; act <= PST_ACT_TANH; act++) {
            kn->act((pst_act)act, 0.3f, x, y, 203);
            for (int i = 0; i < 203; i++) {
                float v = x[i], want = v;
                switch (act) {
                case PST_ACT_RELU: want = v < 0 ? 0 : v; break;
                case PST_ACT_LEAKY: want = v < 0 ? 0.3f * v : v; break;
                case PST_ACT_ELU: want = v < 0 ? 0.3f * expm1f(v) : v; break;
                case PST_ACT_SIGMOID: want = 1 / (1 + expf(-v)); break;
                case PST_ACT_TANH: want = tanhf(v); break;
                default: break;
                }
                close_to(y[i], want, 3e-7f);
            }
        }
    }
}

/* scaler → dense → act → … with every fusable step somewhere */
static void build(pst_buf *buf, const int *widths, int n, const char *act, bool scaler, bool matmul)
{
    pst_onnx_builder *b = pst_onnx_new("mlp", 17, 8);
    char x[32] = "x", y[32], w[32], c[32];
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, widths[0]}, "N");
    if (scaler) {
        float *mean = rnds((size_t)widths[0]), *std = rnds((size_t)widths[0]);
        for (int i = 0; i < widths[0]; i++)
            std[i] = fabsf(std[i]) + 0.1f;
        pst_onnx_floats(b, "mean", 1, (int64_t[]){widths[0]}, mean);
        pst_onnx_floats(b, "std", 2, (int64_t[]){1, widths[0]}, std);
        pst_onnx_node(b, "Sub", (const char *[]){"x", "mean"}, 2, (const char *[]){"x1"}, 1);
        pst_onnx_node(b, "Div", (const char *[]){"x1", "std"}, 2, (const char *[]){"x2"}, 1);
        strcpy(x, "x2");
        free(mean);
        free(std);
    }
    for (int i = 1; i < n; i++) {
        float *wd = rnds((size_t)(widths[i] * widths[i - 1])), *bias = rnds((size_t)widths[i]);
        for (int k = 0; k < widths[i] * widths[i - 1];
             k++) /* activations stay near 1: sums that cancel would test the order of summation */
            wd[k] *= sqrtf(3.0f / (float)widths[i - 1]);
        snprintf(w, sizeof w, "w%d", i);
        snprintf(c, sizeof c, "b%d", i);
        snprintf(y, sizeof y, "h%d", i);
        pst_onnx_floats(b, c, 1, (int64_t[]){widths[i]}, bias);
        if (matmul) {
            pst_onnx_floats(b, w, 2, (int64_t[]){widths[i - 1], widths[i]}, wd);
            pst_onnx_node(b, "MatMul", (const char *[]){x, w}, 2, (const char *[]){y}, 1);
            snprintf(x, sizeof x, "a%d", i);
            pst_onnx_node(b, "Add", (const char *[]){c, y}, 2, (const char *[]){x}, 1);
            strcpy(y, x);
        } else {
            pst_onnx_floats(b, w, 2, (int64_t[]){widths[i], widths[i - 1]}, wd);
            pst_onnx_node(b, "Gemm", (const char *[]){x, w, c}, 3, (const char *[]){y}, 1);
            pst_onnx_attr_int(b, "transB", 1);
            pst_onnx_attr_float(b, "alpha", 0.75f);
        }
        snprintf(x, sizeof x, "%s%d", i == n - 1 ? "out" : "r", i);
        pst_onnx_node(b, act, (const char *[]){y}, 1, (const char *[]){x}, 1);
        free(wd);
        free(bias);
    }
    pst_onnx_output(b, x, PST_F32, 2, (int64_t[]){-1, widths[n - 1]}, "N");
    pst_onnx_meta(b, "made_by", "test");
    pst_onnx_write(b, buf);
    pst_onnx_free(b);
}

static pst_model *load(const pst_buf *b)
{
    pst_model *m = NULL;
    pst_err err = {0};
    if (pst_model_load(b->data, b->len, NULL, NULL, &m, &err) < 0)
        fail_msg("%s", err.text);
    return m;
}

static pst_plan *plan(pst_model *m, const char *isa, bool no_fusion)
{
    pst_plan *p = NULL;
    pst_err err = {0};
    pst_plan_opts opts = {.isa = isa, .no_fusion = no_fusion};
    if (pst_plan_new(m, &opts, &p, &err) < 0)
        fail_msg("%s", err.text);
    return p;
}

static void test_fused_networks_equal_the_reference_on_every_isa(void **state)
{
    static const int nets[][5] = {{30, 64, 32, 64, 30}, {784, 32, 32, 32, 10}, {1, 1, 1, 1, 1},
                                  {7, 100, 3, 17, 2},   {16, 16, 16, 16, 16},  {5, 200, 33, 65, 129}};
    static const char *const acts[] = {"Relu", "LeakyRelu", "Elu", "Sigmoid", "Tanh", "Identity"};
    for (size_t k = 0; k < sizeof nets / sizeof *nets; k++)
        for (size_t a = 0; a < sizeof acts / sizeof *acts; a++) {
            pst_buf b = {0};
            pst_err err = {0};
            build(&b, nets[k], 5, acts[a], (k + a) % 2, a % 3 == 1);
            pst_model *m = load(&b);
            pst_plan *ref = plan(m, NULL, true);
            for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
                if (!pst_kernels_pick(isas[i]))
                    continue;
                pst_plan *p = plan(m, isas[i], false);
                char *text = pst_plan_explain(p);
                assert_non_null(strstr(text, "FusedMLP"));
                assert_non_null(strstr(text, "1 steps left"));
                free(text);
                for (int rows = 1; rows < 60; rows += rows < 27 ? 1 : 13) {
                    float *x = rnds((size_t)(rows * nets[k][0]));
                    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {rows, nets[k][0]}, .data = x}, want, got;
                    assert_int_equal(pst_plan_run(ref, &in, 1, &want, 1, &err), 0);
                    assert_int_equal(pst_plan_run(p, &in, 1, &got, 1, &err), 0);
                    assert_int_equal(got.dims[0], rows);
                    assert_int_equal(got.dims[1], nets[k][4]);
                    for (int q = 0; q < rows * nets[k][4]; q++)
                        close_to(((float *)got.data)[q], ((float *)want.data)[q], 2e-4f);
                    free(x);
                }
                pst_plan_free(p);
            }
            pst_plan_free(ref);
            pst_model_unref(m);
            pst_buf_done(&b);
        }
}

static void test_a_fused_run_takes_nothing_from_the_heap(void **state)
{
    pst_buf b = {0};
    static const int net[] = {30, 64, 32, 64, 30};
    static float x[30 * 512];
    pst_err err = {0};
    build(&b, net, 5, "Relu", true, false);
    pst_model *m = load(&b);
    pst_plan *p = plan(m, NULL, false);
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {512, 30}, .data = x}, out;
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), 0);
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), 0);
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < 100; i++)
        assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), 0);
    struct mallinfo2 after = mallinfo2();
    assert_int_equal(before.uordblks, after.uordblks);
    pst_plan_free(p);
    pst_model_unref(m);
    pst_buf_done(&b);
}

static void test_errors_say_what_was_given_and_wanted(void **state)
{
    pst_buf b = {0};
    static const int net[] = {3, 4, 4, 4, 2};
    float x[12] = {0};
    pst_err err = {0};
    build(&b, net, 5, "Relu", false, false);
    pst_model *m = load(&b);
    pst_plan *p = plan(m, NULL, false);
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {3, 4}, .data = x}, out;
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "(3, 4)"));
    assert_non_null(strstr(err.text, "(N, 3)"));
    pst_err_clear(&err);
    in = (pst_tensor){.dtype = PST_F64, .rank = 2, .dims = {4, 3}, .data = x};
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "float64"));
    const pst_model_info *info = pst_model_info_get(m);
    assert_int_equal(info->n_inputs, 1);
    assert_int_equal(info->inputs[0].dims[0], -1);
    assert_int_equal(info->opset, 17);
    assert_int_equal(info->n_parameters, 3 * 4 + 4 + 4 * 4 + 4 + 4 * 4 + 4 + 4 * 2 + 2);
    assert_string_equal(info->producer, "penstock");
    assert_string_equal(pst_model_meta(m, "made_by"), "test");
    assert_null(pst_model_meta(m, "nothing"));
    pst_plan_free(p);
    pst_model_unref(m);
    pst_buf_done(&b);
}

static void test_cut_and_changed_files_are_refused_or_run(void **state)
{
    pst_buf b = {0};
    static const int net[] = {3, 4, 4, 4, 2};
    build(&b, net, 5, "Relu", true, false);
    for (size_t cut = 0; cut < b.len; cut++) {
        pst_model *m = NULL;
        pst_err err = {0};
        if (pst_model_load(b.data, cut, NULL, NULL, &m, &err) == 0)
            pst_model_unref(m);
        else
            assert_true(err.cls == PST_CLASS_DATA && err.text[0]);
    }
    for (size_t at = 0; at < b.len; at++) {
        char old = b.data[at];
        pst_model *m = NULL;
        pst_plan *p = NULL;
        pst_err err = {0};
        b.data[at] = (char)(old ^ (1 << (at % 8)));
        if (pst_model_load(b.data, b.len, NULL, NULL, &m, &err) == 0 && pst_plan_new(m, NULL, &p, &err) == 0) {
            float x[12] = {0};
            pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {4, 3}, .data = x}, out;
            pst_plan_run(p, &in, 1, &out, 1, &err);
        }
        pst_plan_free(p);
        pst_model_unref(m);
        b.data[at] = old;
    }
    pst_model_limits few = {.nodes_max = 3}, small = {.file_bytes_max = 100}, tensor = {.tensor_bytes_max = 8};
    pst_model *m = NULL;
    pst_err err = {0};
    assert_int_equal(pst_model_load(b.data, b.len, NULL, &few, &m, &err), PST_ELIMIT);
    assert_int_equal(pst_model_load(b.data, b.len, NULL, &small, &m, &err), PST_ELIMIT);
    assert_int_equal(pst_model_load(b.data, b.len, NULL, &tensor, &m, &err), PST_ELIMIT);
    pst_buf_done(&b);
}

int main(int argc, char **argv)
{
    if (argc > 1) { /* writes the test network, for checks with other tools */
        static const int net[] = {30, 64, 32, 64, 30};
        pst_buf b = {0};
        build(&b, net, 5, argc > 2 ? argv[2] : "Relu", true, argc > 3);
        FILE *f = fopen(argv[1], "wb");
        return !f || fwrite(b.data, 1, b.len, f) != b.len || fclose(f);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm_every_isa_equals_the_reference),
        cmocka_unit_test(test_activations_every_isa_equal_libm),
        cmocka_unit_test(test_fused_networks_equal_the_reference_on_every_isa),
        cmocka_unit_test(test_a_fused_run_takes_nothing_from_the_heap),
        cmocka_unit_test(test_errors_say_what_was_given_and_wanted),
        cmocka_unit_test(test_cut_and_changed_files_are_refused_or_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
