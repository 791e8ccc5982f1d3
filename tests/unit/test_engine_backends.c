/* Who computes what: estimates of a run's work against what a run shows, costs of backends, and the choice among those of a node. */
#include "tests/unit/engine_models.h"

#include "common/base/log.h"
#include "engine/backend.h"
#include "engine/estimate.h"
#include "engine/ort/ort_plan.h"
#include "engine/seen.h"
#include "engine/shape_observe.h"

static pst_plan *planned(const pst_buf *file, bool no_fusion)
{
    pst_model *m = kit_load_bytes(file, NULL, NULL);
    pst_plan *p = kit_plan(m, NULL, no_fusion);
    pst_model_unref(m);
    return p;
}

typedef struct observed {
    pst_plan *p;
    int64_t rows;
    double flops;
} observed;

/* Operations of the main graph's nodes as a run of the plain plan shows them. */
static int observe(void *arg, pst_err *err)
{
    observed *o = arg;
    size_t peak;
    int rc = eng_observe_run(o->p, o->rows, 1, &peak, err);
    for (size_t i = 0; i < o->p->progs[0].n_steps && rc == 0; i++)
        o->flops += o->p->progs[0].steps[i].seen->flops;
    return rc;
}

static void test_an_estimate_is_what_a_run_shows(void **state)
{
    static const char *const counted[] = {"mlp", "trees", "cnn", "lstm", "xgboost", "lightgbm"};
    size_t tried = 0;
    for (size_t i = 0; i < KIT_MODELS; i++)
        for (size_t c = 0; c < sizeof counted / sizeof *counted; c++) {
            if (strcmp(kit_models[i].name, counted[c]) != 0)
                continue;
            for (int64_t rows = 1; rows <= 64; rows *= 8) {
                pst_buf file = {0};
                pst_err err = {0};
                eng_work w;
                kit_models[i].build(&file);
                observed o = {.p = planned(&file, true), .rows = rows};
                if (eng_heap_run(&o.p->heap, observe, &o, &err) < 0)
                    fail_msg("%s: %s", counted[c], err.text);
                assert_int_equal(eng_estimate(o.p, rows, &w, &err), 0);
                double guess = w.dense + w.visits + w.other;
                if (!(guess > 0.8 * o.flops && guess < 1.25 * o.flops))
                    fail_msg("%s, %lld rows: %g operations were guessed, a run shows %g", counted[c], (long long)rows, guess, o.flops);
                pst_plan_free(o.p);
                pst_buf_done(&file);
                tried++;
            }
        }
    assert_int_equal(tried, 18);
}

static void test_costs_grow_with_rows_and_the_engine_is_the_cheaper(void **state)
{
    for (size_t i = 0; i < KIT_MODELS; i++) {
        pst_buf file = {0};
        pst_err err = {0};
        kit_models[i].build(&file);
        pst_plan *p = planned(&file, false);
        double before = 0;
        for (int64_t rows = 1; rows <= 4096; rows *= 16) {
            double own = 0, theirs = 0;
            assert_int_equal(eng_cpu_backend.cost(p, rows, &own, &err), 0);
            assert_int_equal(eng_ort_backend.cost(p, rows, &theirs, &err), 0);
            assert_true(own > 0 && own >= before && own < theirs);
            before = own;
        }
        assert_ptr_equal(p->backend, &eng_cpu_backend);
        pst_plan_free(p);
        pst_buf_done(&file);
    }
}

/* One Conv of c × side² by m filters of k²; which kernel served. */
static void served_by(int64_t c, int64_t m, int64_t k, int64_t side, bool no_fusion, const char *want)
{
    pst_onnx_builder *o = pst_onnx_new("conv", 17, 8);
    pst_buf file = {0};
    pst_err err = {0};
    float *w = pst_alloc((size_t)(m * c * k * k) * sizeof *w), *x = pst_alloc((size_t)(c * side * side) * sizeof *x);
    pst_onnx_input(o, "x", PST_F32, 4, (int64_t[]){-1, c, side, side}, "N");
    pst_onnx_floats(o, "w", 4, (int64_t[]){m, c, k, k}, w);
    pst_onnx_node(o, "Conv", (const char *[]){"x", "w"}, 2, (const char *[]){"y"}, 1);
    pst_onnx_output(o, "y", PST_F32, 4, (int64_t[]){-1, m, side - k + 1, side - k + 1}, "N");
    pst_onnx_write(o, &file);
    pst_onnx_free(o);
    pst_plan *p = planned(&file, no_fusion);
    pst_tensor in = {.dtype = PST_F32, .rank = 4, .dims = {1, c, side, side}, .data = x}, out;
    if (pst_plan_run(p, &in, 1, &out, 1, &err) < 0)
        fail_msg("%s", err.text);
    char *text = pst_plan_explain(p);
    if (!strstr(text, want))
        fail_msg("%lld of %lld filters of %lld on %lld: wanted %s, but\n%s", (long long)c, (long long)m, (long long)k, (long long)side,
                 want, text);
    free(text);
    pst_plan_free(p);
    pst_buf_done(&file);
    free(w);
    free(x);
}

static void test_a_node_is_computed_by_the_cheapest(void **state)
{
    served_by(3, 32, 3, 16, false, "filters in the lanes"); /* few channels: a tile's weights stay in L1 */
    served_by(64, 48, 3, 8, false, "convolution tiles");    /* a sum too deep for the lanes */
    served_by(16, 32, 1, 8, false, "convolution tiles");    /* one position: nothing between the rows, nothing to turn */
    served_by(3, 32, 3, 16, true, "columns and gemm");      /* the reference */
}

int main(void)
{
    pst_log_set_level(PST_LOG_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_estimate_is_what_a_run_shows),
        cmocka_unit_test(test_costs_grow_with_rows_and_the_engine_is_the_cheaper),
        cmocka_unit_test(test_a_node_is_computed_by_the_cheapest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
