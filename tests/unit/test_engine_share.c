/* What the plans of a model share: made once, alive as long as the last plan, never taken for something else. */
#include "tests/unit/engine_models.h"

#include "common/base/log.h"
#include "engine/cpu/isa.h"
#include "engine/plan.h"
#include "engine/share.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static pst_model *loaded(const pst_buf *file)
{
    pst_err err = {0};
    pst_model *m = NULL;
    if (pst_model_load(file->data, file->len, NULL, NULL, &m, &err) < 0)
        fail_msg("%s", err.text);
    return m;
}

static pst_plan *planned(pst_model *m, const char *isa, bool no_fusion)
{
    pst_err err = {0};
    pst_plan *p = NULL;
    if (pst_plan_new(m, &(pst_plan_opts){.isa = isa, .no_fusion = no_fusion}, &p, &err) < 0)
        fail_msg("%s", err.text);
    return p;
}

static void scored(pst_plan *p, const kit_model *k, pst_buf *ret)
{
    pst_tensor in = kit_input(k, 5), out;
    pst_err err = {0};
    if (pst_plan_run(p, &in, 1, &out, 1, &err) < 0)
        fail_msg("%s: %s", k->name, err.text);
    kit_result(&out, ret);
    free(in.data);
}

static void same(pst_plan *p, const kit_model *k, const pst_buf *want)
{
    pst_buf got = {0};
    scored(p, k, &got);
    assert_int_equal(got.len, want->len);
    assert_memory_equal(got.data, want->data, want->len);
    pst_buf_done(&got);
}

static void test_a_second_plan_makes_nothing_again(void **state)
{
    size_t any = 0;
    for (size_t i = 0; i < KIT_MODELS; i++) {
        const kit_model *k = &kit_models[i];
        pst_buf file = {0}, want = {0};
        k->build(&file);
        pst_model *m = loaded(&file);
        pst_plan *one = planned(m, NULL, false);
        size_t bytes = eng_share_bytes(m);
        pst_plan *two = planned(m, NULL, false);
        assert_int_equal(eng_share_bytes(m), bytes);
        assert_int_equal(one->shared_bytes, two->shared_bytes);
        any += bytes > 0;
        scored(one, k, &want);
        pst_plan_free(one); /* who made it goes first */
        same(two, k, &want);
        pst_model_unref(m); /* then the model's own reference */
        same(two, k, &want);
        pst_plan_free(two);
        pst_buf_done(&file);
        pst_buf_done(&want);
    }
    assert_true(any >= 5); /* else nothing was tried */
}

/* Kernels of each instruction set want another order: each has its own, side by side. */
static void test_instruction_sets_share_nothing(void **state)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    for (size_t i = 0; i < KIT_MODELS; i++) {
        const kit_model *k = &kit_models[i];
        pst_buf file = {0};
        k->build(&file);
        pst_model *all = loaded(&file);
        size_t bytes = 0;
        for (size_t s = 0; s < 3; s++) {
            pst_buf want = {0};
            if (!eng_isa_pick(isas[s]))
                continue;
            pst_model *alone = loaded(&file);
            pst_plan *a = planned(alone, isas[s], false), *b = planned(all, isas[s], false);
            bytes += eng_share_bytes(alone);
            assert_int_equal(eng_share_bytes(all), bytes);
            scored(a, k, &want);
            same(b, k, &want);
            pst_plan_free(a);
            pst_plan_free(b);
            pst_model_unref(alone);
            pst_buf_done(&want);
        }
        pst_model_unref(all);
        pst_buf_done(&file);
    }
}

/* y = x · w' of a constant w that the plan makes its own shape, or its own values, of. */
static pst_model *product(const char *op, int64_t rows, int64_t cols)
{
    pst_onnx_builder *o = pst_onnx_new("product", 17, 8);
    pst_buf file = {0};
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, rows}, "N");
    float *w = pst_alloc((size_t)(rows * cols) * sizeof *w);
    for (int64_t i = 0; i < rows * cols; i++)
        w[i] = (float)(i * 37 % 41 - 20) / 23.0f;
    pst_onnx_floats(o, "w", 2, (int64_t[]){cols, rows}, w);
    free(w);
    if (!strcmp(op, "Reshape"))
        pst_onnx_ints(o, "to", 1, (int64_t[]){2}, (int64_t[]){rows, cols});
    pst_onnx_node(o, op, (const char *[]){"w", "to"}, strcmp(op, "Reshape") ? 1 : 2, (const char *[]){"v"}, 1);
    pst_onnx_node(o, "MatMul", (const char *[]){"x", "v"}, 2, (const char *[]){"h"}, 1);
    pst_onnx_node(o, "Softmax", (const char *[]){"h"}, 1, (const char *[]){"s"}, 1); /* no chain of layers: the product stays one */
    pst_onnx_node(o, "MatMul", (const char *[]){"s", "w"}, 2, (const char *[]){"y"}, 1);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, rows}, "N");
    pst_onnx_write(o, &file);
    pst_onnx_free(o);
    pst_model *m = loaded(&file);
    pst_buf_done(&file);
    return m;
}

static void test_what_a_plan_folded_is_its_own(void **state)
{
    enum { ROWS = 96, COLS = 160 };
    static const char *const ops[] = {"Transpose", "Reshape"};
    for (size_t i = 0; i < 2; i++)
        for (int round = 0; round < 3; round++) {
            static float x[2 * ROWS];
            pst_model *m = product(ops[i], ROWS, COLS);
            pst_plan *plain = planned(m, NULL, true), *first = planned(m, NULL, false), *second;
            pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {2, ROWS}, .data = x}, got, want;
            for (int k = 0; k < 2 * ROWS; k++)
                x[k] = (float)((k * 37 + round) % 19) / 19 - 0.5f;
            pst_plan_free(first); /* where it had folded w another plan's memory may lie now */
            second = planned(m, NULL, false);
            size_t bytes = eng_share_bytes(m), one = ROWS * COLS * sizeof(float);
            assert_true(i ? bytes > 2 * one : bytes > one && bytes < 2 * one); /* another shape of w is still the model's */
            pst_err err = {0};
            assert_int_equal(pst_plan_run(plain, &in, 1, &want, 1, &err), 0);
            assert_int_equal(pst_plan_run(second, &in, 1, &got, 1, &err), 0);
            for (int k = 0; k < 2 * ROWS; k++)
                assert_true(fabsf(((float *)got.data)[k] - ((float *)want.data)[k]) < 1e-3f);
            pst_plan_free(plain);
            pst_plan_free(second);
            pst_model_unref(m);
        }
}

int main(void)
{
    pst_log_set_level(PST_LOG_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_second_plan_makes_nothing_again),
        cmocka_unit_test(test_instruction_sets_share_nothing),
        cmocka_unit_test(test_what_a_plan_folded_is_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
