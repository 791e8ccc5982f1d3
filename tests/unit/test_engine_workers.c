/* Threads of one plan: results are the same bits whatever their number, on every instruction set and at sizes that divide by nothing; no more are taken than there are CPUs; a run
 * that is to end ends. Under ThreadSanitizer this is the proof of what engine/workers.h says. */
#include "tests/unit/engine_models.h"

#include "engine/device_of.h"
#include "engine/heap.h"
#include "engine/workers.h"

#include <sched.h>

static const char *const isas[] = {"portable", "avx2", "avx512"};

/* Layers too large to be fused: products by columns. */
static void wide_layers(pst_buf *ret)
{
    pst_onnx_builder *b = pst_onnx_new("wide", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 203}, NULL);
    KIT_WEIGHTS(b, "w0", 0.1f, 203, 1101);
    KIT_WEIGHTS(b, "b0", 0.1f, 1101);
    KIT_WEIGHTS(b, "w1", 0.1f, 1101, 1101);
    KIT_WEIGHTS(b, "w2", 0.1f, 1101, 7);
    kit_node(b, "Gemm x w0 b0 > a");
    kit_node(b, "Relu a > r");
    kit_node(b, "MatMul r w1 > c");
    kit_node(b, "Tanh c > t");
    kit_node(b, "MatMul t w2 > y");
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 7}, NULL);
    kit_finish(b, ret);
}

static void conv(pst_onnx_builder *b, const char *line, int64_t stride, int64_t pad, int64_t group)
{
    kit_node(b, line);
    pst_onnx_attr_ints(b, "strides", (int64_t[]){stride, stride}, 2);
    pst_onnx_attr_ints(b, "pads", (int64_t[]){pad, pad, pad, pad}, 4);
    pst_onnx_attr_int(b, "group", group);
}

/* Several convolutions in a row: the channels last; dense, by channel, of one pixel; a sum, a pool. */
static void images(pst_buf *ret)
{
    pst_onnx_builder *b = pst_onnx_new("images", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 4, (int64_t[]){-1, 3, 31, 29}, NULL);
    KIT_WEIGHTS(b, "w0", 0.2f, 20, 3, 3, 3);
    KIT_WEIGHTS(b, "w1", 0.2f, 20, 20, 3, 3);
    KIT_WEIGHTS(b, "w2", 0.2f, 20, 1, 3, 3);
    KIT_WEIGHTS(b, "w3", 0.2f, 37, 20, 1, 1);
    conv(b, "Conv x w0 > a", 2, 1, 1);
    kit_node(b, "Relu a > r");
    conv(b, "Conv r w1 > c", 1, 1, 1);
    kit_node(b, "Add c r > s");
    kit_node(b, "HardSwish s > h");
    conv(b, "Conv h w2 > d", 1, 1, 20);
    kit_node(b, "Sigmoid d > e");
    conv(b, "Conv e w3 > f", 1, 0, 1);
    kit_node(b, "MaxPool f > y");
    pst_onnx_attr_ints(b, "kernel_shape", (int64_t[]){3, 3}, 2);
    pst_onnx_output(b, "y", PST_F32, 4, (int64_t[]){-1, 37, 14, 13}, NULL);
    kit_finish(b, ret);
}

/* One convolution: tiles. */
static void image(pst_buf *ret)
{
    pst_onnx_builder *b = pst_onnx_new("image", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 4, (int64_t[]){-1, 6, 23, 41}, NULL);
    KIT_WEIGHTS(b, "w", 0.2f, 14, 3, 3, 3);
    KIT_WEIGHTS(b, "b", 0.2f, 14);
    conv(b, "Conv x w b > y", 1, 1, 2);
    pst_onnx_output(b, "y", PST_F32, 4, (int64_t[]){-1, 14, 23, 41}, NULL);
    kit_finish(b, ret);
}

static void attending(pst_buf *ret)
{
    pst_onnx_builder *b = pst_onnx_new("attention", 24, 11);
    pst_onnx_input(b, "x", PST_F32, 3, (int64_t[]){-1, 131, 33}, NULL);
    kit_node(b, "Attention x x x > y");
    pst_onnx_attr_int(b, "q_num_heads", 3);
    pst_onnx_attr_int(b, "kv_num_heads", 3);
    pst_onnx_attr_int(b, "is_causal", 1);
    pst_onnx_output(b, "y", PST_F32, 3, (int64_t[]){-1, 131, 33}, NULL);
    kit_finish(b, ret);
}

static const kit_model kinds[] = {
    {"wide", wide_layers, 2, {0, 203}, PST_F32},    {"mlp", kit_mlp, 2, {0, 8}, PST_F32},
    {"trees", kit_trees, 2, {0, 8}, PST_F32},       {"images", images, 4, {0, 3, 31, 29}, PST_F32},
    {"image", image, 4, {0, 6, 23, 41}, PST_F32},   {"attention", attending, 3, {0, 131, 33}, PST_F32},
    {"lightgbm", kit_lightgbm, 2, {0, 8}, PST_F64},
};
enum { KINDS = sizeof kinds / sizeof *kinds, THREADS_MOST = 5 };

static const int rows_of_matrix[] = {1, 2, 7, 63, 713}, rows_of_images[] = {1, 3};

static void result_of(pst_plan *p, const kit_model *k, int64_t rows, pst_buf *ret)
{
    pst_tensor in = kit_input(k, rows), out;
    pst_err err = {0};
    if (pst_plan_run(p, &in, 1, &out, 1, &err) < 0)
        fail_msg("%s, %ld rows: %s", k->name, (long)rows, err.text);
    kit_result(&out, ret);
    free(in.data);
}

static void same_bits(pst_model *m, const kit_model *k, const char *isa)
{
    const int *rows = k->rank == 2 ? rows_of_matrix : rows_of_images;
    int n_rows = k->rank == 2 ? sizeof rows_of_matrix / sizeof *rows_of_matrix : sizeof rows_of_images / sizeof *rows_of_images;
    pst_plan *alone = NULL;
    if (pst_plan_new(m, &(pst_plan_opts){.isa = isa}, &alone, NULL) < 0)
        return; /* not of this CPU */
    for (int threads = 1; threads <= THREADS_MOST; threads++) {
        pst_plan *p = NULL;
        pst_err err = {0};
        if (pst_plan_new(m, &(pst_plan_opts){.isa = isa, .threads = (uint64_t)threads}, &p, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(pst_plan_threads(p), threads);
        for (int i = 0; i < n_rows + 1; i++) {
            pst_buf want = {0}, got = {0};
            result_of(alone, k, rows[i % n_rows], &want);
            result_of(p, k, rows[i % n_rows], &got);
            if (want.len != got.len || memcmp(want.data, got.data, want.len) != 0)
                fail_msg("%s, %s, %d threads, %d rows: other bits", k->name, isa, threads, rows[i % n_rows]);
            pst_buf_done(&want);
            pst_buf_done(&got);
        }
        pst_plan_free(p);
    }
    pst_plan_free(alone);
}

static void test_the_same_bits_whatever_their_number(void **state)
{
    eng_workers_test_allow(THREADS_MOST);
    for (int i = 0; i < KINDS; i++) {
        pst_buf file = {0};
        kinds[i].build(&file);
        pst_model *m = kit_load_bytes(&file, NULL, NULL);
        for (int isa = 0; isa < 3; isa++)
            same_bits(m, &kinds[i], isas[isa]);
        pst_model_unref(m);
        pst_buf_done(&file);
    }
    eng_workers_test_allow(0);
}

/* Every part once, each worker alone with its number, whatever is left from the round before. */
typedef struct seen {
    int times[1000], inside[THREADS_MOST];
    bool wrong;
} seen;

static void look(void *arg, int64_t part, int worker)
{
    seen *s = arg;
    if (__atomic_add_fetch(&s->inside[worker], 1, __ATOMIC_RELAXED) != 1)
        __atomic_store_n(&s->wrong, true, __ATOMIC_RELAXED);
    s->times[part]++;
    sched_yield();
    __atomic_sub_fetch(&s->inside[worker], 1, __ATOMIC_RELAXED);
}

static void test_every_part_once(void **state)
{
    for (int n = 2; n <= THREADS_MOST; n++) {
        eng_workers *w = NULL;
        assert_int_equal(eng_workers_new(n, &w, NULL), 0);
        for (int parts = 0; parts < 1000; parts += parts < 12 ? 1 : 97) {
            seen s = {0};
            eng_workers_run(w, parts, look, &s);
            for (int i = 0; i < 1000; i++)
                assert_int_equal(s.times[i], i < parts);
            assert_false(s.wrong);
        }
        eng_workers_free(w);
    }
    seen s = {0};
    eng_workers_run(NULL, 3, look, &s);
    assert_int_equal(s.times[2], 1);
}

static void test_no_more_than_there_are_cpus(void **state)
{
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    pst_buf file = {0};
    kit_mlp(&file);
    pst_model *m = kit_load_bytes(&file, NULL, NULL);
    pst_buf_done(&file);
    pst_plan *p = NULL;
    pst_err err = {0};
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(eng_workers_allowed(), 1);
    assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.threads = 8}, &p, NULL), 0);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(pst_plan_threads(p), 1);
    pst_plan_free(p);
    eng_workers_test_allow(3);
    char *text = NULL;
    assert_int_equal(pst_model_explain(m, &(pst_plan_opts){.threads = 8}, NULL, &text, NULL), 0);
    assert_non_null(strstr(text, "3 threads of 8 asked for"));
    free(text);
    eng_workers_test_allow(0);
    assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.threads = 65}, &p, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "threads: 65, at most 64"));
    pst_model_unref(m);
}

/* Memory that runs out while threads are made or a run shares work out: said, nothing leaked. */
static void test_memory_runs_out(void **state)
{
    eng_workers_test_allow(3);
    pst_buf file = {0};
    images(&file);
    pst_model *m = kit_load_bytes(&file, NULL, NULL);
    pst_buf_done(&file);
    for (uint64_t n = 1, met = 1; met; n++) {
        pst_plan *p = NULL;
        pst_tensor in = kit_input(&kinds[3], 2), out;
        eng_heap_test_fail(n, false);
        int rc = pst_plan_new(m, &(pst_plan_opts){.threads = 3}, &p, NULL);
        rc = rc == 0 ? pst_plan_run(p, &in, 1, &out, 1, NULL) : rc;
        met = eng_heap_test_fail(0, false) >= n;
        assert_int_equal(rc, met ? PST_ENOMEM : 0);
        pst_plan_free(p);
        free(in.data);
    }
    pst_model_unref(m);
    eng_workers_test_allow(0);
}

static int asked;

static bool stop_soon(void *arg)
{
    return ++asked > 3;
}

/* Asked by the caller's thread only, between parts; the plan is as good as before. */
static void test_a_run_that_is_to_end_ends(void **state)
{
    eng_workers_test_allow(4);
    pst_buf file = {0}, got = {0};
    images(&file);
    pst_model *m = kit_load_bytes(&file, NULL, NULL);
    pst_buf_done(&file);
    pst_plan *p = NULL;
    assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.threads = 4}, &p, NULL), 0);
    const kit_model *k = &kinds[3];
    pst_tensor in = kit_input(k, 3), out;
    asked = 0;
    assert_int_equal(pst_plan_limit(p, &(pst_run_limits){.stop = stop_soon}, NULL), 0);
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, NULL), PST_ESTOPPED);
    assert_int_equal(pst_plan_limit(p, NULL, NULL), 0);
    result_of(p, k, 3, &got);
    pst_buf_done(&got);
    free(in.data);
    pst_plan_free(p);
    pst_model_unref(m);
    eng_workers_test_allow(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_part_once),
        cmocka_unit_test(test_no_more_than_there_are_cpus),
        cmocka_unit_test(test_the_same_bits_whatever_their_number),
        cmocka_unit_test(test_a_run_that_is_to_end_ends),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
