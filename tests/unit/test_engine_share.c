/* What the plans of a model share: made once, alive as long as the last plan, never taken for something else. */
#include "tests/unit/engine_models.h"

#include "common/base/log.h"
#include "engine/cpu/isa.h"
#include "engine/plan.h"
#include "engine/share.h"

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
        pst_model *m = kit_load_bytes(&file, NULL, NULL);
        pst_plan *one = kit_plan(m, NULL, false);
        size_t bytes = eng_share_bytes(m);
        pst_plan *two = kit_plan(m, NULL, false);
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
        pst_model *all = kit_load_bytes(&file, NULL, NULL);
        size_t bytes = 0;
        for (size_t s = 0; s < 3; s++) {
            pst_buf want = {0};
            if (!eng_isa_pick(isas[s]))
                continue;
            pst_model *alone = kit_load_bytes(&file, NULL, NULL);
            pst_plan *a = kit_plan(alone, isas[s], false), *b = kit_plan(all, isas[s], false);
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

enum { FILTERS = 96, CHANNELS = 64, SIDE = 6 };

/* y = x convolved with a constant that the plan makes its own shape, or its own values, of. */
static pst_model *convolution(bool own)
{
    static float w[FILTERS * CHANNELS * 9];
    pst_onnx_builder *o = pst_onnx_new("convolution", 17, 8);
    for (int i = 0; i < FILTERS * CHANNELS * 9; i++)
        w[i] = (float)(i * 37 % 41 - 20) / 230.0f;
    pst_onnx_input(o, "x", PST_F32, 4, (int64_t[]){-1, CHANNELS, SIDE, SIDE}, "N");
    pst_onnx_floats(o, "w", 4, own ? (int64_t[]){CHANNELS, FILTERS, 3, 3} : (int64_t[]){FILTERS, CHANNELS, 9, 1}, w);
    pst_onnx_ints(o, "to", 1, (int64_t[]){4}, (int64_t[]){FILTERS, CHANNELS, 3, 3});
    pst_onnx_node(o, own ? "Transpose" : "Reshape", (const char *[]){"w", "to"}, own ? 1 : 2, (const char *[]){"v"}, 1);
    if (own)
        pst_onnx_attr_ints(o, "perm", (int64_t[]){1, 0, 2, 3}, 4);
    pst_onnx_node(o, "Conv", (const char *[]){"x", "v"}, 2, (const char *[]){"y"}, 1);
    pst_onnx_output(o, "y", PST_F32, 4, (int64_t[]){-1, FILTERS, SIDE - 2, SIDE - 2}, "N");
    return kit_load(o, NULL);
}

/* What a plan has computed lies in its memory: after its end something else may lie there. */
static void test_what_a_plan_folded_is_its_own(void **state)
{
    static float x[CHANNELS * SIDE * SIDE];
    for (int k = 0; k < CHANNELS * SIDE * SIDE; k++)
        x[k] = (float)(k * 37 % 19) / 19 - 0.5f;
    for (int own = 0; own < 2; own++) {
        pst_model *m = convolution(own);
        pst_plan *plain = kit_plan(m, NULL, true), *first = kit_plan(m, NULL, false);
        pst_tensor in = {.dtype = PST_F32, .rank = 4, .dims = {1, CHANNELS, SIDE, SIDE}, .data = x}, got, want;
        pst_err err = {0};
        if (own)
            assert_int_equal(eng_share_bytes(m), 0);
        else
            assert_true(eng_share_bytes(m) > sizeof(float) * FILTERS * CHANNELS * 9);
        pst_plan_free(first);
        pst_plan *second = kit_plan(m, NULL, false);
        assert_int_equal(pst_plan_run(plain, &in, 1, &want, 1, &err), 0);
        assert_int_equal(pst_plan_run(second, &in, 1, &got, 1, &err), 0);
        for (int k = 0; k < FILTERS * (SIDE - 2) * (SIDE - 2); k++)
            assert_true(fabsf(((float *)got.data)[k] - ((float *)want.data)[k]) < 1e-4f);
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
