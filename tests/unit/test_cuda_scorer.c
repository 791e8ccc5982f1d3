/* test_cuda_scorer.c - `device:` of a pipeline over the simulated driver: what a model is computed by, what is refused, and that a lost device harms
 * no record: the stream waits under cuda, and goes on under auto. */
#include "engine/cuda/context.h"
#include "tests/unit/core_kit.h"
#include "tests/unit/cuda_sim.h"

enum { RECORDS = 7 };

static int begin(void **state)
{
    eng_cuda_pretend(&cuda_sim_driver, &cuda_sim_plugin);
    cuda_sim_state = (cuda_sim){.cuda = 13000,
                                .version = "580.65.06",
                                .n = 1,
                                .device = {{"NVIDIA H200", 9, 0, (size_t)141 << 30, (size_t)140 << 30}},
                                .kernel = eng_cuda_trees_run,
                                .net = eng_cuda_net_run};
    return 0;
}

static int end(void **state)
{
    assert_int_equal(cuda_sim_state.pieces + cuda_sim_state.pinned + cuda_sim_state.streams, 0);
    eng_cuda_pretend(NULL, NULL);
    return 0;
}

static pst_pipeline *pipeline_on(const char *device)
{
    char text[400];
    snprintf(text, sizeof text,
             "name: p\ninput: {topics: [in]}\nmodel: {name: line}\noutput: {topic: out}\nbatching: {count: 16}\ndevice: %s\n"
             "features: [cpu.user, {field: cpu.sys, missing: nan}, n, on]\n",
             device);
    return kit_pipeline(text);
}

static pst_model *trees(void)
{
    pst_model *m = NULL;
    pst_err err = {0};
    if (pst_model_load_file("tests/golden/native/xgb-3.2.0-binary.json", NULL, &m, &err) < 0)
        fail_msg("%s", err.text);
    return m;
}

/* The first score as it is written says in its field `model` what computed it. */
static void says_backend(pst_score_core *c, world *w, const pst_fate *f, const char *backend)
{
    json_t *j = encoded(c, w, f, false);
    assert_string_equal(json_string_value(json_object_get(json_object_get(j, "model"), "backend")), backend);
    json_decref(j);
}

/* Scores of RECORDS records; how: what the run said. backend: that they are to name; NULL = whichever. */
static int scores_by(pst_score_core *c, world *w, const char *backend, double *ret, pst_err *err)
{
    pst_buf v[RECORDS] = {0};
    pst_record r[RECORDS];
    pst_fate f[RECORDS];
    size_t usable = 0;
    for (int i = 0; i < RECORDS; i++) {
        char text[100];
        snprintf(text, sizeof text, "{\"host\":\"a\",\"cpu\":{\"user\":%d,\"sys\":0.%d},\"n\":%d,\"on\":true}", i - 3, i, 3 * i);
        kit_value(w->schema, 1, text, &v[i]);
        r[i] = rec(i, &v[i]);
    }
    int rc = score(c, w, r, RECORDS, f, &usable, err);
    for (size_t i = 0; rc == 0 && i < RECORDS; i++) {
        const double *s;
        const char *label;
        assert_int_equal(f[i].kind, PST_FATE_SCORED);
        pst_score_core_score(&f[i], false, &s, &label);
        ret[i] = s[0];
        if (backend)
            says_backend(c, w, &f[i], backend);
    }
    for (int i = 0; i < RECORDS; i++)
        pst_buf_done(&v[i]);
    return rc;
}

static int scores_of(pst_score_core *c, world *w, double *ret, pst_err *err)
{
    return scores_by(c, w, NULL, ret, err);
}

static void test_a_device_scores_as_the_cpu_does(void **state)
{
    static const char *const devices[] = {"cpu", "cuda", "cuda:0", "auto"};
    double want[RECORDS], got[RECORDS];
    for (int i = 0; i < 4; i++) {
        world w = {0};
        pst_err err = {0};
        const char *why;
        pst_pipeline *p = pipeline_on(devices[i]);
        pst_binding *b = kit_bind(p, trees(), 1);
        assert_string_equal(pst_binding_device(b, &why), i == 1 || i == 2 ? "cuda:0" : "cpu");
        assert_true(!*why || i == 3); /* auto says why */
        pst_score_core *c = make_core(&w, p, b);
        int before = cuda_sim_state.launches;
        assert_int_equal(scores_by(c, &w, i == 1 || i == 2 ? "cuda:0" : "cpu", i ? got : want, &err), 0);
        assert_int_equal(cuda_sim_state.launches > before, i == 1 || i == 2);
        if (i)
            assert_memory_equal(got, want, sizeof want);
        end_world(&w, c, p);
    }
    assert_true(want[0] < want[RECORDS - 1] || want[0] > want[RECORDS - 1]);
}

/* So does a network of dense layers, but for the order of its sums. */
static void test_a_device_scores_a_network(void **state)
{
    double score[2][RECORDS];
    for (int i = 0; i < 2; i++) {
        world w = {0};
        pst_err err = {0};
        const char *why;
        pst_pipeline *p = pipeline_on(i ? "cuda" : "cpu");
        pst_binding *b = kit_bind(p, kit_linear(4, 1, digits, NULL), 1);
        assert_string_equal(pst_binding_device(b, &why), i ? "cuda:0" : "cpu");
        pst_score_core *c = make_core(&w, p, b);
        int before = cuda_sim_state.launches;
        assert_int_equal(scores_of(c, &w, score[i], &err), 0);
        assert_int_equal(cuda_sim_state.launches > before, i);
        end_world(&w, c, p);
    }
    for (int k = 0; k < RECORDS; k++)
        assert_true(fabs(score[0][k] - score[1][k]) <= 1e-5 * (1 + fabs(score[0][k])));
}

/* A batch that a device failed on is no dead letter: nobody's records are at fault, and the stream waits. */
static void test_a_lost_device_harms_no_record(void **state)
{
    world w = {0};
    pst_err err = {0};
    double got[RECORDS];
    pst_pipeline *p = pipeline_on("cuda");
    pst_score_core *c = make_core(&w, p, kit_bind(p, trees(), 1));
    cuda_sim_state.fail_at = cuda_sim_state.calls + 2;
    cuda_sim_state.fail_on = true;
    for (int i = 0; i < 2; i++) { /* and tried again it says the same */
        err = (pst_err){0};
        assert_int_equal(scores_of(c, &w, got, &err), PST_EIO);
        assert_int_equal(err.cls, PST_CLASS_RETRY);
        assert_non_null(strstr(err.text, "the device cuda:0 (NVIDIA H200) is lost to this process"));
    }
    end_world(&w, c, p);
}

/* A shadow that a device fails says so, and the stream goes on; the device is left alone for a while. */
static void test_a_shadow_that_a_device_fails_is_not_silent(void **state)
{
    world w = {0};
    pst_err err = {0};
    double got[RECORDS];
    pst_pipeline *p = pipeline_on("cuda"), *on_cpu = pipeline_on("cpu");
    pst_score_core *c = make_core(&w, p, kit_bind(on_cpu, trees(), 1));
    assert_int_equal(pst_score_core_offer(c, PST_VARIANT_SHADOW, kit_bind(p, trees(), 2), NULL, 0), 0);
    assert_int_equal(scores_of(c, &w, got, &err), 0);
    assert_string_equal(pst_score_core_shadow_why(c), "");
    cuda_sim_state.gone = 1;
    for (int i = 0; i < 2; i++) {
        size_t n;
        assert_int_equal(scores_of(c, &w, got, &err), 0);
        const pst_fate *f = pst_score_core_fates(c, &n);
        assert_int_equal(n, RECORDS);
        for (size_t k = 0; k < n; k++) {
            assert_null(f[k].shadow);
            assert_true(f[k].shadow_skipped);
        }
        assert_non_null(strstr(pst_score_core_shadow_why(c), "cuda:0 (NVIDIA H200) is lost to this process"));
    }
    assert_int_equal(pst_score_core_offer(c, PST_VARIANT_SHADOW, kit_bind(on_cpu, trees(), 3), NULL, 0), 0); /* another model is tried */
    assert_int_equal(scores_of(c, &w, got, &err), 0);
    assert_string_equal(pst_score_core_shadow_why(c), "");
    end_world(&w, c, p);
    pst_pipeline_free(on_cpu);
}

/* Of two models of a variant each is looked at by itself: that the CPU has one of them is no loss of the other's device. */
static void test_a_device_is_not_said_to_be_lost_too_early(void **state)
{
    world w = {0};
    pst_err err = {0};
    double got[RECORDS];
    pst_pipeline *p = pipeline_on("cuda"), *on_cpu = pipeline_on("cpu");
    pst_score_core *c = make_core(&w, p, kit_bind(on_cpu, trees(), 1));
    assert_int_equal(scores_of(c, &w, got, &err), 0);
    assert_null(pst_score_core_device_changed(c));
    assert_int_equal(
        pst_score_core_offer(c, PST_VARIANT_PRIMARY, kit_bind(p, trees(), 2), &(pst_effective){(char *)(uintptr_t) "in", 0, 1000}, 1), 0);
    assert_int_equal(scores_of(c, &w, got, &err), 0); /* still by the first */
    assert_null(pst_score_core_device_changed(c));
    end_world(&w, c, p);
    pst_pipeline_free(on_cpu);
}

static pst_model *linear_of_ml(void)
{
    pst_onnx_builder *o = pst_onnx_new("linear", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, 4}, "N");
    pst_onnx_node(o, "LinearRegressor", (const char *[]){"x"}, 1, (const char *[]){"y"}, 1);
    pst_onnx_domain(o, "ai.onnx.ml", 1);
    pst_onnx_attr_floats(o, "coefficients", digits, 4);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 1}, "N");
    return kit_load(o, NULL);
}

static void test_what_no_device_computes_is_a_configuration_error(void **state)
{
    pst_err err = {0};
    pst_binding *b = NULL;
    pst_pipeline *p = pipeline_on("cuda");
    pst_model *m = linear_of_ml();
    assert_int_equal(pst_binding_new(p, m, "line", 1, 8, &b, &err), PST_EINVAL);
    assert_int_equal(pst_err_exit(&err), 2);
    if (!strstr(err.text, "device: cuda cannot be had for model line: no device computes this model: node") ||
        !strstr(err.text, "use device: cpu or device: auto"))
        fail_msg("%s", err.text);
    pst_pipeline_free(p);
    p = pipeline_on("auto");
    b = kit_bind(p, m, 1);
    const char *why;
    assert_string_equal(pst_binding_device(b, &why), "cpu");
    assert_non_null(strstr(why, "no device computes this model: node"));
    pst_binding_free(b);
    pst_pipeline_free(p);
}

int main(void)
{
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_a_device_scores_as_the_cpu_does),
        TEST(test_a_device_scores_a_network),
        TEST(test_a_lost_device_harms_no_record),
        TEST(test_a_shadow_that_a_device_fails_is_not_silent),
        TEST(test_a_device_is_not_said_to_be_lost_too_early),
        TEST(test_what_no_device_computes_is_a_configuration_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
