/* A whole training from a manifest and a CSV file: model, metadata, stop and resume, and what goes wrong. With PENSTOCK_KEEP=DIR the results
 * stay there, for a look with other programs. */
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/stop.h"
#include "inference/core/drift.h"
#include "trainer/learner/learner.h"
#include "tests/unit/engine_kit.h"
#include "trainer/learner/bins.h"
#include "trainer/learner/random.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

static char root[200];

static int make_root(void **state)
{
    const char *keep = getenv("PENSTOCK_KEEP");
    snprintf(root, sizeof root, "%s/learner-job-XXXXXX", keep ? keep : "/tmp");
    return mkdtemp(root) ? 0 : -1;
}

static int drop_root(void **state)
{
    return getenv("PENSTOCK_KEEP") ? 0 : pst_fs_remove_tree(root, NULL);
}

static char *at(const char *name)
{
    return pst_fs_join(root, name);
}

/* Two correlated measurements far from 0 and of very different size, a label, a constant. */
static void write_csv(int rows)
{
    pst_buf b = {0};
    learn_rng r;
    learn_rng_seed(&r, 8, 8);
    pst_buf_adds(&b, "time,load,pressure,ratio,fixed,state,power\n");
    for (int i = 0; i < rows; i++) {
        double x = learn_rng_normal(&r), y = learn_rng_normal(&r);
        pst_buf_printf(&b, "%d,%.6f,%.3f,%.9f,42,%s,%.6f\n", i, 50 + 10 * x, 101325 + 30 * y, 0.001 * (x + y), x > y ? "high" : "low",
                       3 * x - 2 * y + 1000);
    }
    char *dir = at("data"), *path = pst_sprintf("%s/data.csv", dir);
    assert_int_equal(pst_fs_mkdirs(dir, 0755, NULL), 0);
    assert_int_equal(pst_fs_write_atomic(path, b.data, b.len, 0644, NULL), 0);
    free(dir);
    free(path);
    pst_buf_done(&b);
}

static int learn(const char *learner, const char *result, pst_err *err)
{
    char *text = pst_sprintf("name: job\ndata_stores: [{id: d, type: mount, connection: {path: /data}}]\n"
                             "framework: {name: native}\npenstock:\n  model: {name: m}\n  learner: %s\n",
                             learner);
    char *data = at("data"), *to = at(result), *checkpoints = pst_sprintf("%s/ckpt", to);
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    bool valid = pst_manifest_parse(text, strlen(text), &m, &errors, &warnings) == 0; /* wrong settings are found by it already */
    learn_job job = {
        .manifest = &m, .training_id = "training-t", .generation = 1, .data_dir = data, .result_dir = to, .checkpoint_dir = checkpoints};
    int rc = valid ? learn_train(&job, err)
                   : pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "manifest", 0, "%s: %s", errors.at[0].field, errors.at[0].text);
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    free(text);
    free(data);
    free(to);
    free(checkpoints);
    return rc;
}

static void must_learn(const char *learner, const char *result)
{
    pst_err err = {0};
    if (learn(learner, result, &err) < 0)
        fail_msg("%s", err.text);
}

static pst_buf read_result(const char *result, const char *file)
{
    pst_buf b = {0};
    char *dir = at(result), *path = pst_sprintf("%s/model/%s", dir, file);
    pst_err err = {0};
    if (pst_fs_read(path, 64 << 20, &b, &err) < 0)
        fail_msg("%s", err.text);
    free(dir);
    free(path);
    return b;
}

static pst_model *load(const char *result)
{
    pst_buf b = read_result(result, "model.onnx");
    pst_model *m = kit_load_bytes(&b, NULL, NULL);
    pst_buf_done(&b);
    return m;
}

/* The last output of one row. */
static void run(pst_model *m, const float *x, int k, float *ret, int n)
{
    pst_plan *p = NULL;
    pst_err err = {0};
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {1, k}, .data = (void *)x}, out[2];
    size_t n_out = pst_model_info_get(m)->n_outputs;
    assert_int_equal(pst_plan_new(m, NULL, &p, &err), 0);
    if (pst_plan_run(p, &in, 1, out, n_out, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(out[n_out - 1].dims[1] == n);
    memcpy(ret, out[n_out - 1].data, (size_t)n * sizeof *ret);
    pst_plan_free(p);
}

static json_t *meta(pst_model *m, const char *key)
{
    const char *text = pst_model_meta(m, key);
    json_t *j = NULL;
    assert_non_null(text);
    assert_int_equal(pst_json_parse(text, strlen(text), key, &j, NULL), 0);
    return j;
}

static void test_autoencoder_tells_usual_from_unusual(void **state)
{
    write_csv(600);
    must_learn(
        "{features: [load, {field: pressure, scale: 0.01, offset: -1000}, ratio, fixed], hidden: [12, 2, 12], epochs: 80, batch: 16, "
        "learning_rate: 0.005}",
        "ae");
    pst_model *m = load("ae");
    const pst_model_info *info = pst_model_info_get(m);
    assert_int_equal(info->n_outputs, 2);
    assert_string_equal(info->outputs[1].name, "error");
    assert_string_equal(pst_model_meta(m, "penstock.score"), "reconstruction_error");
    assert_string_equal(pst_model_meta(m, "penstock.error_output"), "error");
    double threshold = atof(pst_model_meta(m, "penstock.threshold"));
    float usual, unusual;
    run(m, (float[]){55, 13.5f, 0.0013f, 42}, 4, &usual, 1);    /* x = .5, y = .83: the ratio follows from both */
    run(m, (float[]){55, 13.5f, -0.0030f, 42}, 4, &unusual, 1); /* the same with a ratio that cannot be */
    assert_true((double)usual < threshold);
    assert_true((double)unusual > threshold && unusual > 3 * usual);
    json_t *features = meta(m, "penstock.features"), *pressure = json_array_get(features, 1);
    assert_int_equal(json_array_size(features), 4);
    assert_string_equal(pst_json_str(pressure, "field", ""), "pressure");
    assert_true(pst_json_num(pressure, "scale", 0) == 0.01 && pst_json_num(pressure, "offset", 0) == -1000);
    assert_true(fabs(pst_json_num(pressure, "mean", 0) - 101325) < 5); /* in the field's own unit */
    json_decref(features);
    pst_model_unref(m);
}

static void test_model_json_has_the_fields_of_a_model_event(void **state)
{
    write_csv(100);
    must_learn("{epochs: 2}", "out");
    pst_buf b = read_result("out", "model.json");
    json_t *j = NULL;
    assert_int_equal(pst_json_parse(b.data, b.len, "model.json", &j, NULL), 0);
    pst_model_event e;
    pst_err err = {0};
    if (pst_event_from_json(&pst_model_event_type, j, &e, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(e.name, "m");
    assert_int_equal(e.n_features, 5); /* not time, not state */
    assert_string_equal(e.features[0], "load");
    bool loss = false, validation = false;
    for (size_t i = 0; i < e.n_metrics; i++) {
        loss |= !strcmp(e.metrics[i].key, "loss");
        validation |= !strcmp(e.metrics[i].key, "validation_loss");
    }
    assert_true(loss && validation);
    pst_event_clear(&pst_model_event_type, &e);
    json_decref(j);
    pst_buf_done(&b);
}

static void test_classifier_and_regression(void **state)
{
    write_csv(800);
    must_learn("{features: [load, pressure], target: state, classes: [low, high], hidden: [16], epochs: 60, learning_rate: 0.01}", "class");
    pst_model *m = load("class");
    float p[2];
    run(m, (float[]){65, 101325 - 30}, 2, p, 2); /* x = 1.5, y = −1: high */
    assert_true(p[1] > 0.9f && fabsf(p[0] + p[1] - 1) < 1e-5f);
    run(m, (float[]){40, 101325 + 30}, 2, p, 2);
    assert_true(p[0] > 0.9f);
    assert_string_equal(pst_model_meta(m, "penstock.score"), "class");
    assert_string_equal(pst_model_meta(m, "penstock.labels"), "[\"low\",\"high\"]");
    pst_model_unref(m);
    must_learn("{features: [load, pressure], target: power, hidden: [16], epochs: 80, learning_rate: 0.01}", "number");
    m = load("number");
    run(m, (float[]){60, 101325 - 30}, 2, p, 1); /* 3·1 − 2·(−1) + 1000 */
    if (fabsf(p[0] - 1005) > 0.5f)
        fail_msg("predicted %g, not 1005", (double)p[0]);
    pst_model_unref(m);
}

/* The scorer's view of the same model. */
static double score(pst_model *m, const char *type, const double *x, char ret_label[64])
{
    char *text = pst_sprintf("name: p\ninput: {topics: [t]}\nmodel: {file: m.onnx}\noutput: {topic: o}\nscore: {type: %s}\n", type);
    pst_pipeline *p = NULL;
    pst_binding *b = NULL;
    pst_err err = {0};
    const double *scores;
    const char *label;
    if (pst_pipeline_parse(text, strlen(text), "test", &p, &err) < 0 || pst_binding_new(p, m, "m", 1, 4, &b, &err) < 0)
        fail_msg("%s", err.text);
    pst_binding_put(b, 0, x);
    if (pst_binding_run(b, 0, 1, &err) < 0)
        fail_msg("%s", err.text);
    size_t n = pst_binding_score(b, 0, &scores, &label);
    double out = scores[n - 1];
    assert_true(n == (*type == 'c' ? 2 : 1));
    snprintf(ret_label, 64, "%s", label ? label : "");
    pst_binding_free(b);
    pst_pipeline_free(p);
    free(text);
    return out;
}

static void test_scorer_takes_error_and_labels_from_the_model(void **state)
{
    char label[64];
    float direct;
    write_csv(300);
    must_learn("{features: [load, pressure], hidden: [4], epochs: 20}", "ae");
    pst_model *m = load("ae");
    run(m, (float[]){90, 101325}, 2, &direct, 1);
    double error = score(m, "reconstruction_error", (double[]){90, 101325}, label);
    assert_true(fabs(error - (double)direct) < 1e-6); /* standardised: not the mean of squares of Pa and per cent */
    pst_model_unref(m);
    must_learn("{features: [load, pressure], target: state, classes: [low, high], hidden: [16], epochs: 60, learning_rate: 0.01}", "class");
    m = load("class");
    assert_true(score(m, "class", (double[]){65, 101295}, label) > 0.9);
    assert_string_equal(label, "high");
    score(m, "class", (double[]){40, 101355}, label);
    assert_string_equal(label, "low");
    pst_model_unref(m);
}

/* The words go into the model's own mapping, which a pipeline without features takes. */
static void test_words_are_learnt_and_told_to_the_scorer(void **state)
{
    char label[64];
    float p[1];
    write_csv(600);
    must_learn("{features: [load, {field: state, one_hot: learn, unknown: other}], target: power, hidden: [16], epochs: 60, "
               "learning_rate: 0.01}",
               "words");
    pst_model *m = load("words");
    assert_non_null(strstr(pst_model_meta(m, "penstock.features"),
                           "{\"field\":\"state\",\"one_hot\":[\"high\",\"low\"],\"unknown\":\"other\",\"missing\":\"zeros\"}"));
    run(m, (float[]){50, 1, 0, 0}, 4, p, 1); /* high: load beats pressure */
    double high = (double)p[0], same = score(m, "raw", (double[]){50, 1, 0, 0}, label);
    run(m, (float[]){50, 0, 1, 0}, 4, p, 1);
    assert_true(fabs(high - same) < 1e-6);
    assert_true(high > (double)p[0] + 0.5); /* the word is what tells them apart */
    pst_model_unref(m);
}

/* A window of records made as the training data were, but for a shift of the load. */
static void watch(pst_drift *d, pst_binding *b, double shift)
{
    learn_rng r;
    pst_err err = {0};
    learn_rng_seed(&r, 99, 99);
    pst_drift_clear(d);
    for (int i = 0; i < 4000; i++) {
        double x = learn_rng_normal(&r), y = learn_rng_normal(&r);
        pst_binding_put(b, 0, (double[]){50 + 10 * x + shift, 101325 + 30 * y, 42});
        assert_int_equal(pst_binding_run(b, 0, 1, &err), 0);
        pst_drift_row(d, b, 0);
    }
    assert_int_equal(pst_drift_records(d), 4000);
}

static void test_scorer_sees_drift_from_the_training_data(void **state)
{
    write_csv(3000);
    must_learn("{features: [load, pressure, fixed], target: power, hidden: [8], epochs: 20}", "drift");
    pst_model *m = load("drift");
    static const char text[] = "name: p\ninput: {topics: [t]}\nmodel: {file: m.onnx}\noutput: {topic: o}\n";
    pst_pipeline *p = NULL;
    pst_binding *b = NULL;
    pst_err err = {0};
    if (pst_pipeline_parse(text, strlen(text), "test", &p, &err) < 0 || pst_binding_new(p, m, "m", 1, 4, &b, &err) < 0)
        fail_msg("%s", err.text);
    pst_drift *d = pst_drift_new(b);
    assert_non_null(d);
    static const char *const names[] = {"load", "pressure", "fixed", "(score)"};
    assert_int_equal(pst_drift_columns(d), 4);
    watch(d, b, 0);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(pst_drift_name(d, i), names[i]);
        if (!(pst_drift_psi(d, i) < 0.05)) /* sampling: some (bins - 1)(1/3000 + 1/4000) = 0.005 */
            fail_msg("%s without a shift: %g", names[i], pst_drift_psi(d, i));
    }
    watch(d, b, 10); /* by one deviation */
    assert_true(pst_drift_psi(d, 0) > 0.5 && pst_drift_psi(d, 3) > 0.25);
    assert_true(pst_drift_psi(d, 1) < 0.05 && pst_drift_psi(d, 2) == 0);
    pst_drift_clear(d);
    assert_true(pst_drift_records(d) == 0 && pst_drift_psi(d, 0) == 0);
    pst_drift_free(d);
    pst_binding_free(b);
    pst_pipeline_free(p);
    pst_model_unref(m);
}

/* Edges lie between values, so that equal numbers share a bin whatever a later bit says; a value that takes more than a tenth takes fewer bins. */
static void test_bins_lie_between_values(void **state)
{
    float even[1000], few[] = {3, 1, 1, 1, 1, 1, 1, 2, 2, 3}, same[] = {7, 7, 7};
    learn_bins b;
    for (int i = 0; i < 1000; i++)
        even[i] = (float)((i * 7) % 1000);
    learn_bins_of(even, 1000, &b);
    assert_int_equal(b.n_edges, 9);
    for (size_t i = 0; i < 10; i++)
        assert_true(fabs(b.shares[i] - 0.1) < 1e-12 && (i == 9 || b.edges[i] == 99.5 + 100.0 * (double)i));
    learn_bins_of(few, 10, &b);
    assert_true(b.n_edges == 2 && b.edges[0] == 1.5 && b.edges[1] == 2.5);
    assert_true(fabs(b.shares[0] - 0.6) < 1e-12 && fabs(b.shares[1] - 0.2) < 1e-12 && fabs(b.shares[2] - 0.2) < 1e-12);
    learn_bins_of(same, 3, &b);
    assert_true(b.n_edges == 0 && b.shares[0] == 1);
}

static void on_alarm(int sig)
{
    pst_stop_request();
}

static void test_stopped_and_resumed_gives_the_same_model(void **state)
{
    static const char settings[] = "{features: [load, pressure, ratio, fixed, power, {field: state, one_hot: learn}], "
                                   "hidden: [32, 32, 32], epochs: 40, batch: 4, activation: elu}";
    write_csv(1500);
    must_learn(settings, "whole");
    struct sigaction act = {.sa_handler = on_alarm};
    sigaction(SIGPROF, &act, NULL); /* by time of work: on a busy computer no real time would be enough to come further each time */
    int stops = 0, rc = PST_ESTOPPED;
    for (int i = 0; i < 200 && rc == PST_ESTOPPED; i++) {
        pst_err err = {0};
        struct itimerval in = {.it_value = {0, 60000 + 20000 * (i % 5)}};
        pst_stop_reset();
        setitimer(ITIMER_PROF, &in, NULL);
        rc = learn(settings, "parts", &err);
        setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL);
        stops += rc == PST_ESTOPPED;
        if (rc < 0 && rc != PST_ESTOPPED)
            fail_msg("%s", err.text);
    }
    pst_stop_reset();
    assert_int_equal(rc, 0);
    assert_true(stops > 0);
    pst_buf a = read_result("whole", "model.onnx"), b = read_result("parts", "model.onnx");
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    pst_buf_done(&a);
    pst_buf_done(&b);
}

static void test_what_goes_wrong_is_said(void **state)
{
    write_csv(50);
    pst_err err = {0};
    assert_int_equal(learn("{epohcs: 3}", "x", &err), PST_EINVAL);
    assert_int_equal(err.cls, PST_CLASS_FATAL);
    pst_err_clear(&err);
    assert_true(learn("{data: none.csv}", "x", &err) < 0);
    assert_non_null(strstr(err.text, "none.csv"));
    pst_err_clear(&err);
    assert_true(learn("{features: [power], target: state, classes: [a, b]}", "x", &err) < 0); /* all records dropped */
    assert_int_equal(err.cls, PST_CLASS_DATA);
    assert_non_null(strstr(err.text, "none of the 2 classes"));
}

int main(void)
{
    pst_stop_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_autoencoder_tells_usual_from_unusual, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_model_json_has_the_fields_of_a_model_event, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_classifier_and_regression, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_scorer_takes_error_and_labels_from_the_model, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_words_are_learnt_and_told_to_the_scorer, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_scorer_sees_drift_from_the_training_data, make_root, drop_root),
        cmocka_unit_test(test_bins_lie_between_values),
        cmocka_unit_test_setup_teardown(test_stopped_and_resumed_gives_the_same_model, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_what_goes_wrong_is_said, make_root, drop_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
