/* Operators that draw random numbers: the same numbers in every run and plan, others by another seed or place, and distributed as they say. */
#include "tests/unit/engine_kit.h"

#include "engine/cpu/isa.h"
#include "engine/heap.h"

#define FLOAT_IN 2, (int64_t[]){-1, -1}, NULL

static pst_onnx_builder *begun(const char *line, float seed, bool seeded)
{
    pst_onnx_builder *b = pst_onnx_new("random", 22, 10);
    pst_onnx_input(b, "x", PST_F32, FLOAT_IN);
    kit_node(b, line);
    if (seeded)
        pst_onnx_attr_float(b, "seed", seed);
    return b;
}

static pst_model *like(const char *op, float seed, bool seeded)
{
    char line[80];
    snprintf(line, sizeof line, "%s x > y", op);
    pst_onnx_builder *b = begun(line, seed, seeded);
    pst_onnx_output(b, "y", PST_F32, FLOAT_IN);
    return kit_load(b, NULL);
}

/* Runs p on rows of 0.5 and copies what comes out. */
static float *run(pst_plan *p, int64_t rows, int64_t cols)
{
    float *x = malloc((size_t)(rows * cols) * sizeof *x), *y = malloc((size_t)(rows * cols) * sizeof *y);
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] = 0.5f;
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {rows, cols}, .data = x}, out;
    pst_err err = {0};
    if (pst_plan_run(p, &in, 1, &out, 1, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(out.dtype, PST_F32);
    assert_int_equal(out.dims[0] * out.dims[1], rows * cols);
    memcpy(y, out.data, (size_t)(rows * cols) * sizeof *y);
    free(x);
    return y;
}

static const char *const ops[] = {"RandomNormalLike", "RandomUniformLike", "Bernoulli"};
enum { OPS = sizeof ops / sizeof *ops, ROWS = 50, COLS = 90, N = ROWS * COLS };

static void test_every_run_and_plan_draws_the_same(void **state)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    for (int i = 0; i < 2 * OPS; i++) {
        pst_model *m = like(ops[i % OPS], 3, i < OPS);
        assert_true(pst_model_info_get(m)->draws);
        pst_plan *p = kit_plan(m, NULL, false);
        float *want = run(p, ROWS, COLS), *again = run(p, ROWS, COLS), *fewer = run(p, 3, COLS);
        assert_memory_equal(want, again, N * sizeof *want);
        assert_memory_equal(want, fewer, 3 * COLS * sizeof *want);
        for (int k = 0; k < 3; k++) {
            if (!eng_kernels_pick(isas[k]))
                continue;
            pst_plan *other = kit_plan(m, isas[k], k == 1);
            float *got = run(other, ROWS, COLS);
            assert_memory_equal(want, got, N * sizeof *want);
            free(got);
            pst_plan_free(other);
        }
        free(want);
        free(again);
        free(fewer);
        pst_plan_free(p);
        pst_model_unref(m);
    }
}

/* 0 and -0 are two seeds as well: a seed is its bits. */
static void test_seeds_differ(void **state)
{
    static const float seeds[] = {0, -0.0f, 1, 2, 1e-40f, 1e30f};
    float *got[7];
    for (int i = 0; i < 7; i++) {
        pst_model *m = like("RandomUniformLike", i < 6 ? seeds[i] : 0, i < 6);
        pst_plan *p = kit_plan(m, NULL, false);
        got[i] = run(p, ROWS, COLS);
        pst_plan_free(p);
        pst_model_unref(m);
    }
    for (int i = 0; i < 7; i++) {
        for (int k = 0; k < i; k++) {
            int same = 0;
            for (int j = 0; j < N; j++)
                same += got[i][j] == got[k][j];
            assert_in_range(same, 0, 2);
        }
    }
    for (int i = 0; i < 7; i++)
        free(got[i]);
}

/* Two nodes without a seed, and one that runs twice: four lists of which none is another. What has a seed draws what its like draws. */
static void test_nodes_differ_without_a_seed(void **state)
{
    pst_onnx_builder *b = begun("RandomUniformLike x > a", 0, false), *body = pst_onnx_new("body", 22, 10);
    kit_node(b, "RandomUniformLike x > c");
    const int64_t trips = 2;
    pst_onnx_ints(b, "trips", 0, NULL, &trips);
    pst_onnx_input(body, "i", PST_I64, 0, NULL, NULL);
    pst_onnx_input(body, "go", PST_BOOL, 0, NULL, NULL);
    kit_node(body, "Identity go > on");
    kit_node(body, "RandomUniformLike x > r");
    pst_onnx_output(body, "on", PST_BOOL, 0, NULL, NULL);
    pst_onnx_output(body, "r", PST_F32, FLOAT_IN);
    kit_node(b, "Loop trips - > l");
    pst_onnx_attr_graph(b, "body", body);
    kit_node(b, "Concat a c > ac");
    pst_onnx_attr_int(b, "axis", 0);
    pst_onnx_ints(b, "wide", 1, (int64_t[]){2}, (int64_t[]){-1, COLS});
    kit_node(b, "Reshape l wide > ll");
    kit_node(b, "Concat ac ll > y");
    pst_onnx_attr_int(b, "axis", 0);
    pst_onnx_output(b, "y", PST_F32, FLOAT_IN);
    pst_onnx_free(body);
    pst_model *m = kit_load(b, NULL);
    pst_plan *p = kit_plan(m, NULL, false);
    float x[COLS] = {0};
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {1, COLS}, .data = x}, out;
    pst_err err = {0};
    if (pst_plan_run(p, &in, 1, &out, 1, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(out.dims[0], 4);
    const float *y = out.data;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(y + i * COLS, y + k * COLS, COLS * sizeof *y);
    pst_plan_free(p);
    pst_model_unref(m);
}

/* Mean and spread within five standard errors; a uniform's tenths filled alike. */
static void test_numbers_are_distributed_as_they_say(void **state)
{
    static const double means[] = {0, 0.5, 0.5}, vars[] = {1, 1.0 / 12, 0.25}, fourths[] = {3, 1.0 / 80, 1.0 / 16};
    enum { MANY = 200000 };
    for (int i = 0; i < OPS; i++) {
        pst_model *m = like(ops[i], 7, i % 2);
        pst_plan *p = kit_plan(m, NULL, false);
        float *y = run(p, MANY / 100, 100);
        double sum = 0, squares = 0, lag = 0;
        int tenths[10] = {0};
        for (int k = 0; k < MANY; k++) {
            double d = (double)y[k] - means[i];
            sum += d;
            squares += d * d;
            lag += k ? d * ((double)y[k - 1] - means[i]) : 0;
            tenths[i == 1 ? (int)(y[k] * 10) : 0]++;
        }
        assert_true(fabs(sum / MANY) < 5 * sqrt(vars[i] / MANY));
        assert_true(fabs(squares / MANY - vars[i]) < 5 * sqrt((fourths[i] - vars[i] * vars[i]) / MANY) + 1e-9);
        assert_true(fabs(lag / MANY) < 5 * vars[i] / sqrt(MANY));
        for (int k = 0; i == 1 && k < 10; k++)
            assert_true(abs(tenths[k] - MANY / 10) < 5 * (int)sqrt(MANY * 0.09));
        free(y);
        pst_plan_free(p);
        pst_model_unref(m);
    }
}

static void test_parameters_and_types(void **state)
{
    static const pst_dtype types[] = {PST_F32, PST_F64, PST_F16};
    for (int i = 0; i < 6; i++) {
        pst_onnx_builder *b = pst_onnx_new("random", 22, 10);
        pst_onnx_input(b, "x", PST_F32, FLOAT_IN);
        kit_node(b, i < 3 ? "RandomUniform > r" : "RandomNormal > r");
        pst_onnx_attr_ints(b, "shape", (int64_t[]){20, 3}, 2);
        pst_onnx_attr_int(b, "dtype", types[i % 3]);
        pst_onnx_attr_float(b, i < 3 ? "low" : "mean", 100);
        pst_onnx_attr_float(b, i < 3 ? "high" : "scale", i < 3 ? 101 : 0);
        kit_node(b, "Identity r > y");
        pst_onnx_output(b, "y", types[i % 3], 2, (int64_t[]){20, 3}, NULL);
        pst_model *m = kit_load(b, NULL);
        pst_plan *p = kit_plan(m, NULL, false);
        float x = 0;
        pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {1, 1}, .data = &x}, out;
        assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, NULL), 0);
        assert_int_equal(out.dtype, types[i % 3]);
        assert_int_equal(out.dims[0] * out.dims[1], 60);
        for (int k = 0; k < 60 && i % 3 < 2; k++) {
            double v = i % 3 ? ((double *)out.data)[k] : (double)((float *)out.data)[k];
            assert_true(i < 3 ? v >= 100 && v <= 101 : v == 100);
        }
        pst_plan_free(p);
        pst_model_unref(m);
    }
}

static void test_multinomial(void **state)
{
    enum { EACH = 30000 };
    static const double want[3][3] = {{0.2, 0.3, 0.5}, {0, 1, 0}, {0.5, 0, 0.5}};
    pst_onnx_builder *b = begun("Multinomial x > y", 11, true);
    pst_onnx_attr_int(b, "sample_size", EACH);
    pst_onnx_attr_int(b, "dtype", PST_I64);
    pst_onnx_output(b, "y", PST_I64, 2, (int64_t[]){-1, -1}, NULL);
    pst_model *m = kit_load(b, NULL);
    pst_plan *p = kit_plan(m, NULL, false);
    float x[3][3];
    for (int r = 0; r < 3; r++)
        for (int k = 0; k < 3; k++)
            x[r][k] = want[r][k] > 0 ? (float)(log(want[r][k]) + 5 * r) : r == 1 ? -INFINITY : NAN;
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {3, 3}, .data = x}, out;
    pst_err err = {0};
    if (pst_plan_run(p, &in, 1, &out, 1, &err) < 0)
        fail_msg("%s", err.text);
    for (int r = 0; r < 3; r++) {
        int got[3] = {0};
        for (int i = 0; i < EACH; i++) {
            int64_t v = ((const int64_t *)out.data)[r * EACH + i];
            assert_in_range(v, 0, 2);
            got[v]++;
        }
        for (int k = 0; k < 3; k++)
            assert_true(fabs((double)got[k] / EACH - want[r][k]) <= 5 * sqrt(want[r][k] * (1 - want[r][k]) / EACH));
    }
    x[1][1] = -INFINITY;
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), PST_EINVAL);
    pst_plan_free(p);
    pst_model_unref(m);
}

static void refused(pst_onnx_builder *b, float v, int code)
{
    pst_onnx_output(b, "y", PST_F32, FLOAT_IN);
    pst_model *m = kit_load(b, NULL);
    pst_plan *p = NULL;
    pst_err err = {0};
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {1, 1}, .data = &v}, out;
    assert_int_equal(pst_plan_new(m, NULL, &p, &err), 0);
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), code);
    pst_plan_free(p);
    pst_model_unref(m);
}

static void test_what_is_refused(void **state)
{
    static const struct {
        int64_t shape[10];
        size_t rank;
        int code;
    } shapes[] = {{{-1}, 1, PST_EINVAL},
                  {{(int64_t)1 << 40, (int64_t)1 << 40}, 2, PST_EINVAL},
                  {{(int64_t)1 << 33}, 1, PST_ELIMIT},
                  {{1, 1, 1, 1, 1, 1, 1, 1, 1}, 9, PST_EINVAL}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        pst_onnx_builder *b = begun("RandomUniform > y", 0, true);
        pst_onnx_attr_ints(b, "shape", shapes[i].shape, shapes[i].rank);
        refused(b, 0, shapes[i].code);
    }
    refused(begun("RandomNormal > y", 0, true), 0, PST_EINVAL);
    static const int64_t types[] = {PST_STR, 0, -1, 77, PST_I64, 14};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        pst_onnx_builder *b = begun(i == 4 ? "RandomNormalLike x > y" : "Bernoulli x > y", 0, true);
        pst_onnx_attr_int(b, "dtype", types[i]);
        refused(b, 0.5f, PST_EUNSUPPORTED);
    }
    refused(begun("Bernoulli x > y", 0, true), 1.5f, PST_EINVAL);
    refused(begun("Bernoulli x > y", 0, true), NAN, PST_EINVAL);
    pst_onnx_builder *b = begun("Multinomial x > y", 0, true);
    pst_onnx_attr_int(b, "sample_size", INT64_MAX);
    refused(b, 0, PST_ELIMIT);
}

static void test_memory_that_runs_out(void **state)
{
    for (uint64_t n = 1, hit = 1; hit; n++) {
        pst_model *m = like("RandomNormalLike", 3, true);
        pst_plan *p = NULL;
        pst_err err = {0};
        float x[4000] = {0};
        pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {40, 100}, .data = x}, out;
        eng_heap_test_fail(n, true);
        int rc = pst_plan_new(m, NULL, &p, &err);
        rc = rc == 0 ? pst_plan_run(p, &in, 1, &out, 1, &err) : rc;
        hit = eng_heap_test_fail(0, false) >= n;
        assert_int_equal(rc, hit ? PST_ENOMEM : 0);
        assert_int_equal(p ? pst_plan_run(p, &in, 1, &out, 1, NULL) : 0, 0);
        pst_plan_free(p);
        pst_model_unref(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_run_and_plan_draws_the_same),
        cmocka_unit_test(test_seeds_differ),
        cmocka_unit_test(test_nodes_differ_without_a_seed),
        cmocka_unit_test(test_numbers_are_distributed_as_they_say),
        cmocka_unit_test(test_parameters_and_types),
        cmocka_unit_test(test_multinomial),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
