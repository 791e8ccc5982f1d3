/* What `penstock models explain` says: shapes that follow the batch, cost by hand, memory, JSON that a program can read, and models that
 * cannot be run on made-up rows. */
#include "tests/unit/engine_kit.h"

#include <jansson.h>

static json_t *explained(pst_model *m, const pst_explain_opts *o, bool no_fusion)
{
    char *text = NULL;
    pst_err err = {0};
    pst_explain_opts what = o ? *o : (pst_explain_opts){0};
    what.json = true;
    if (pst_model_explain(m, &(pst_plan_opts){.no_fusion = no_fusion}, &what, &text, &err) < 0)
        fail_msg("%s", err.text);
    json_error_t bad;
    json_t *j = json_loads(text, 0, &bad);
    if (!j)
        fail_msg("%s in %s", bad.text, text);
    free(text);
    return j;
}

static char *told(pst_model *m, const pst_explain_opts *o)
{
    char *text = NULL;
    pst_err err = {0};
    if (pst_model_explain(m, NULL, o, &text, &err) < 0)
        fail_msg("%s", err.text);
    return text;
}

static double number(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static const char *text_of(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));
    assert_non_null(s);
    return s;
}

static pst_model *net(void)
{
    pst_onnx_builder *b = pst_onnx_new("net", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 3, (int64_t[]){-1, -1, 10}, "N");
    KIT_WEIGHTS(b, "w", 0.2f, 10, 20);
    KIT_WEIGHTS(b, "c", 1, 20);
    pst_onnx_ints(b, "flat", 1, (int64_t[]){2}, (int64_t[]){-1, 20});
    kit_node(b, "MatMul x w > m");
    kit_node(b, "Add m c > a");
    kit_node(b, "Relu a > r");
    kit_node(b, "Identity r > i");
    kit_node(b, "Reshape i flat > f");
    kit_node(b, "Sin f > y");
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 20}, "N");
    return kit_load(b, NULL);
}

static void test_explain_shapes_follow_the_batch(void **state)
{
    pst_model *m = net();
    json_t *j = explained(m, &(pst_explain_opts){.batch = 7, .file = "dir/\"net\".onnx"}, false), *steps = json_object_get(j, "steps");
    assert_string_equal(text_of(j, "file"), "dir/\"net\".onnx");
    assert_int_equal(json_array_size(steps), 3);
    json_t *mlp = json_array_get(steps, 0), *flat = json_array_get(steps, 1);
    assert_string_equal(text_of(mlp, "operator"), "FusedMLP");
    assert_int_equal(json_array_size(json_object_get(mlp, "of")), 3);
    assert_string_equal(json_string_value(json_array_get(json_object_get(mlp, "shape"), 0)), "N");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(mlp, "shape"), 1)), 8); /* the first size tried */
    assert_int_equal(json_integer_value(json_array_get(json_object_get(mlp, "shape"), 2)), 20);
    assert_string_equal(json_string_value(json_array_get(json_object_get(flat, "shape"), 0)), "8N");
    assert_true(number(j, "batch") == 7 && number(j, "free_dim") == 8);
    assert_true(number(mlp, "flops_per_row") == 8 * (2 * 10 * 20 + 20 + 20)); /* products, bias, Relu */
    assert_true(number(flat, "moved_bytes_per_row") == 0);                    /* only another shape */
    assert_true(number(mlp, "output_bytes_per_row") == 8 * 20 * 4);
    assert_true(number(j, "peak_bytes") >= 7 * 8 * 20 * 4 && number(j, "reserved_bytes") >= number(j, "peak_bytes"));
    assert_true(number(j, "nodes") == 6 && number(j, "merged") == 2 && number(j, "dropped") == 1 && number(j, "folded") == 0);
    assert_true(number(j, "weights_bytes") == (10 * 20 + 20) * 4 + 16);
    json_decref(j);
    j = explained(m, NULL, true);
    assert_true(number(j, "batch") == 64);
    assert_int_equal(json_array_size(json_object_get(j, "steps")), 6);
    assert_true(json_is_false(json_object_get(j, "fusion")));
    json_decref(j);
    pst_model_unref(m);
}

static void test_explain_table_is_narrow_and_names_everything(void **state)
{
    static const char *const words[] = {"net.onnx",        "sha256",           "float32 (N, *, 10)", "FusedMLP",
                                        "MatMul Add Relu", "float32 (8N, 20)", "FLOP/ROW",           "3 steps left",
                                        "at batch 64",     "were set to 8",    "measured",           "GFLOP/s"};
    pst_model *m = net();
    char *text = told(m, &(pst_explain_opts){.file = "net.onnx", .measure = true});
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(text, words[i]))
            fail_msg("no %s in\n%s", words[i], text);
    for (const char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        int columns = 0;
        for (const char *c = line; c < end; c++)
            columns += (*c & 0xc0) != 0x80;
        assert_in_range(columns, 0, 140);
    }
    free(text);
    pst_model_unref(m);
}

/* A pool that was taken in hides three quarters of the convolution's results; their cost is told all the same. */
static void test_explain_counts_what_a_pool_hides(void **state)
{
    pst_onnx_builder *b = pst_onnx_new("net", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 4, (int64_t[]){-1, 1, 12, 8}, "N");
    KIT_WEIGHTS(b, "w", 0.2f, 16, 1, 3, 3);
    kit_node(b, "Conv x w > c");
    pst_onnx_attr_ints(b, "pads", (int64_t[]){1, 1, 1, 1}, 4);
    kit_node(b, "Relu c > r");
    kit_node(b, "MaxPool r > y");
    pst_onnx_attr_ints(b, "kernel_shape", (int64_t[]){2, 2}, 2);
    pst_onnx_attr_ints(b, "strides", (int64_t[]){2, 2}, 2);
    pst_onnx_output(b, "y", PST_F32, 4, (int64_t[]){-1, 16, 6, 4}, "N");
    pst_model *m = kit_load(b, NULL);
    json_t *j = explained(m, NULL, false), *steps = json_object_get(j, "steps"), *conv = json_array_get(steps, 0);
    assert_int_equal(json_array_size(steps), 1);
    assert_string_equal(text_of(conv, "operator"), "FusedConv");
    assert_int_equal(json_array_size(json_object_get(conv, "of")), 3);
    assert_true(number(conv, "flops_per_row") == 2 * 9 * 16 * 12 * 8);
    assert_string_equal(text_of(conv, "kernel"), "filters in the lanes, pooled");
    json_decref(j);
    pst_model_unref(m);
}

static void test_explain_needs_no_batch(void **state)
{
    pst_onnx_builder *b = pst_onnx_new("fixed", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 1, (int64_t[]){6}, NULL);
    kit_node(b, "Sin x > y");
    pst_onnx_output(b, "y", PST_F32, 1, (int64_t[]){6}, NULL);
    pst_model *m = kit_load(b, NULL);
    json_t *j = explained(m, NULL, false);
    assert_true(number(j, "batch") == 1 && number(j, "flops_per_row") == 6);
    json_decref(j);
    pst_model_unref(m);
}

static void test_explain_tells_a_model_that_does_not_run(void **state)
{
    pst_onnx_builder *b = pst_onnx_new("picky", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 6}, "N");
    KIT_WEIGHTS(b, "five", 1, 5, 6); /* runs for batch 1 and 5 only */
    kit_node(b, "Add x five > y");
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 6}, "N");
    pst_model *m = kit_load(b, NULL);
    json_t *j = explained(m, NULL, false);
    assert_true(json_is_false(json_object_get(j, "observed")));
    assert_non_null(strstr(text_of(j, "why_not_observed"), "broadcast"));
    json_decref(j);
    char *text = told(m, NULL);
    assert_non_null(strstr(text, "does not run on made-up inputs"));
    assert_non_null(strstr(text, "Add"));
    free(text);
    pst_model_unref(m);
}

/* A step's note: a kernel that could not be used says so. */
static void test_explain_says_why_not(void **state)
{
    pst_onnx_builder *b = pst_onnx_new("ints", 17, 8);
    pst_onnx_input(b, "x", (pst_dtype)0, 1, (int64_t[]){-1}, "N");
    pst_onnx_input(b, "z", PST_I64, 1, (int64_t[]){-1}, "N");
    kit_node(b, "Neg x > a");
    kit_node(b, "Abs a > y");
    pst_onnx_output(b, "y", PST_F32, 1, (int64_t[]){-1}, "N");
    pst_model *m = kit_load(b, NULL);
    json_t *j = explained(m, NULL, false); /* x has no type: nothing can be made up */
    assert_true(json_is_false(json_object_get(j, "observed")));
    json_decref(j);
    pst_model_unref(m);
    b = pst_onnx_new("double", 17, 8);
    pst_onnx_input(b, "x", PST_F64, 2, (int64_t[]){-1, 4}, "N");
    kit_node(b, "Softmax x > y");
    pst_onnx_output(b, "y", PST_F64, 2, (int64_t[]){-1, 4}, "N");
    m = kit_load(b, NULL);
    j = explained(m, NULL, false);
    assert_non_null(strstr(text_of(json_array_get(json_object_get(j, "steps"), 0), "note"), "node by node"));
    json_decref(j);
    pst_model_unref(m);
}

static void test_explain_refuses_what_it_does_not_know(void **state)
{
    pst_model *m = net();
    char *text = NULL;
    pst_err err = {0};
    pst_explain_opts o = {.reserved = {1}};
    assert_int_equal(pst_model_explain(m, NULL, &o, &text, &err), PST_EINVAL);
    assert_null(text);
    o = (pst_explain_opts){.batch = (size_t)1 << 40}; /* more than one tensor may hold: told without shapes */
    text = told(m, &o);
    assert_non_null(strstr(text, "tensor_bytes_max"));
    free(text);
    pst_model_unref(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_explain_shapes_follow_the_batch),         cmocka_unit_test(test_explain_table_is_narrow_and_names_everything),
        cmocka_unit_test(test_explain_counts_what_a_pool_hides),        cmocka_unit_test(test_explain_needs_no_batch),
        cmocka_unit_test(test_explain_tells_a_model_that_does_not_run), cmocka_unit_test(test_explain_says_why_not),
        cmocka_unit_test(test_explain_refuses_what_it_does_not_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
