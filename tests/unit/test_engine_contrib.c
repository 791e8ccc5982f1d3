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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distances),
        cmocka_unit_test(test_distances_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
