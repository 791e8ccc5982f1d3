/* test_cuda_backend.c - models on a device, without one: the simulated driver (cuda_sim.h) with the emulated kernel behind it. Results equal the CPU's bit
 * for bit, memory is accounted for and given back, and whichever call of the driver fails ends in an error that says so, or, where the CPU may take over,
 * in the CPU's results. */
#include "engine/backend.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/device_of.h"
#include "tests/unit/cuda_kit.h"

#include <dirent.h>

#define GOLDEN "tests/golden/native"
enum { FEATURES = 11, NODES_MAX = 60000, ROWS_FEW = 70, ROWS_ALL = 8192 + 77 };

/* ---- models ---- */

typedef struct forest {
    int64_t tree[NODES_MAX], node[NODES_MAX], feature[NODES_MAX], yes[NODES_MAX], no[NODES_MAX], track[NODES_MAX];
    float value[NODES_MAX], weight[NODES_MAX];
    const char *mode[NODES_MAX];
    int64_t w_tree[NODES_MAX], w_node[NODES_MAX], w_id[NODES_MAX];
    size_t n, n_w;
} forest;

/* targets: which a tree's leaves weigh, in turn, tree by tree; -1: two of them, leaf by leaf. */
static int64_t grow(forest *f, int64_t tree, int64_t *next, int depth, int targets)
{
    size_t at = f->n++;
    assert_true(at < NODES_MAX);
    int64_t id = (*next)++;
    f->tree[at] = tree;
    f->node[at] = id;
    f->track[at] = kit_next() % 2;
    if (!depth || (depth < 4 && kit_next() % 6 == 0)) {
        f->mode[at] = "LEAF";
        f->w_tree[f->n_w] = tree;
        f->w_node[f->n_w] = id;
        f->w_id[f->n_w] = targets < 0 ? id % 2 : tree % targets;
        f->weight[f->n_w++] = kit_float();
        return id;
    }
    f->mode[at] = kit_next() % 2 ? "BRANCH_LEQ" : "BRANCH_LT";
    f->feature[at] = kit_next() % FEATURES;
    f->value[at] = (float)(kit_next() % 100) / 16 - 3;
    f->yes[at] = grow(f, tree, next, depth - 1, targets);
    f->no[at] = grow(f, tree, next, depth - 1, targets);
    return id;
}

static void put_nodes(pst_onnx_builder *o, const forest *f, const char *prefix)
{
    const struct {
        const char *name;
        const int64_t *list;
    } lists[] = {{"treeids", f->w_tree}, {"nodeids", f->w_node}, {"ids", f->w_id}};
    char name[40];
    pst_onnx_domain(o, "ai.onnx.ml", 3);
    pst_onnx_attr_ints(o, "nodes_treeids", f->tree, f->n);
    pst_onnx_attr_ints(o, "nodes_nodeids", f->node, f->n);
    pst_onnx_attr_ints(o, "nodes_featureids", f->feature, f->n);
    pst_onnx_attr_ints(o, "nodes_truenodeids", f->yes, f->n);
    pst_onnx_attr_ints(o, "nodes_falsenodeids", f->no, f->n);
    pst_onnx_attr_ints(o, "nodes_missing_value_tracks_true", f->track, f->n);
    pst_onnx_attr_floats(o, "nodes_values", f->value, f->n);
    pst_onnx_attr_strs(o, "nodes_modes", f->mode, f->n);
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s_%s", prefix, lists[i].name);
        pst_onnx_attr_ints(o, name, lists[i].list, f->n_w);
    }
    snprintf(name, sizeof name, "%s_weights", prefix);
    pst_onnx_attr_floats(o, name, f->weight, f->n_w);
}

static forest *grown(int trees, int depth, int targets)
{
    forest *f = calloc(1, sizeof *f);
    for (int t = 0; t < trees; t++) {
        int64_t next = 0;
        grow(f, t, &next, t == 3 ? 0 : depth, targets);
    }
    return f;
}

typedef struct shape {
    int trees, depth, targets;
    bool cast;                /* the trees are given doubles, which their input does not tell */
    bool head, tail, average; /* a scaler before the trees, elementwise nodes behind them */
    pst_dtype input;          /* 0 = float32 */
} shape;

static pst_model *regressor(const shape *s)
{
    forest *f = grown(s->trees, s->depth, s->targets);
    pst_onnx_builder *o = pst_onnx_new("trees", 17, 8);
    pst_onnx_input(o, "x", s->input ? s->input : PST_F32, 2, (int64_t[]){-1, FEATURES}, "N");
    kit_scalar(o, "half", 0.5f);
    if (s->head)
        kit_node(o, "Mul x half > scaled");
    if (s->cast) {
        kit_node(o, "Cast x > turned");
        pst_onnx_attr_int(o, "to", PST_F64);
    }
    kit_node(o, s->cast   ? "TreeEnsembleRegressor turned > y"
                : s->head ? "TreeEnsembleRegressor scaled > sums"
                : s->tail ? "TreeEnsembleRegressor x > sums"
                          : "TreeEnsembleRegressor x > y");
    put_nodes(o, f, "target");
    pst_onnx_attr_int(o, "n_targets", s->targets);
    pst_onnx_attr_str(o, "aggregate_function", s->average ? "AVERAGE" : "SUM");
    pst_onnx_attr_floats(o, "base_values", (float[]){0.5f}, 1);
    if (s->head || s->tail) {
        kit_node(o, "Mul sums half > halves");
        kit_node(o, "Sigmoid halves > y");
    }
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, s->targets}, "N");
    free(f);
    return kit_load(o, NULL);
}

/* Names as labels. weigh: how leaves weigh classes, as `targets` of grow. */
static pst_model *classifier(int classes, int weigh, const char *post)
{
    static const char *const names[] = {"calm", "windy", "storm"};
    forest *f = grown(24, 5, weigh);
    pst_onnx_builder *o = pst_onnx_new("classes", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, FEATURES}, "N");
    kit_node(o, "TreeEnsembleClassifier x > label scores");
    put_nodes(o, f, "class");
    pst_onnx_attr_strs(o, "classlabels_strings", names, (size_t)classes);
    pst_onnx_attr_str(o, "post_transform", post);
    pst_onnx_output(o, "label", PST_STR, 1, (int64_t[]){-1}, "N");
    pst_onnx_output(o, "scores", PST_F32, 2, (int64_t[]){-1, classes}, "N");
    free(f);
    return kit_load(o, NULL);
}

/* ---- plans and runs ---- */

/* As the model's first input wants them; often on a threshold, sometimes missing. free() data. */
static pst_tensor rows_for(const pst_model *m, int rows)
{
    const pst_value_info *v = pst_model_info_get(m)->inputs;
    size_t n = (size_t)rows * (size_t)v->dims[1];
    pst_tensor t = {.dtype = v->dtype, .rank = 2, .dims = {rows, v->dims[1]}, .data = malloc(n * sizeof(double) + 1)};
    for (size_t i = 0; i < n; i++) {
        uint32_t c = kit_next() % 30;
        double x = c == 0   ? (double)NAN
                   : c == 1 ? (double)INFINITY
                   : c < 20 ? (double)(kit_next() % 100) / 16 - 3
                            : (double)kit_float() * 4;
        if (t.dtype == PST_F64)
            ((double *)t.data)[i] = x;
        else
            ((float *)t.data)[i] = (float)x;
    }
    return t;
}

static void equal(const pst_tensor *got, const pst_tensor *want, const char *what)
{
    int64_t n = 1;
    assert_int_equal(got->dtype, want->dtype);
    assert_int_equal(got->rank, want->rank);
    for (int i = 0; i < want->rank; i++) {
        assert_int_equal(got->dims[i], want->dims[i]);
        n *= want->dims[i];
    }
    for (int64_t i = 0; i < n && want->dtype == PST_STR; i++)
        assert_string_equal(((const char **)got->data)[i], ((const char **)want->data)[i]);
    size_t size = pst_dtype_size(want->dtype);
    for (int64_t i = 0; i < n && want->dtype != PST_STR; i++)
        if (memcmp((char *)got->data + (size_t)i * size, (char *)want->data + (size_t)i * size, size) != 0)
            fail_msg("%s: number %lld differs", what, (long long)i);
}

/* One run of p beside one of `cpu`. */
static void same(pst_plan *p, pst_plan *cpu, const pst_model *m, int rows, const char *what)
{
    pst_tensor in = rows_for(m, rows), got[2], want[2];
    size_t n_out = pst_model_info_get(m)->n_outputs;
    pst_err err = {0};
    assert_int_equal(pst_plan_run(cpu, &in, 1, want, n_out, &err), 0);
    if (pst_plan_run(p, &in, 1, got, n_out, &err) < 0)
        fail_msg("%s, %d rows: %s", what, rows, err.text);
    for (size_t i = 0; i < n_out; i++)
        equal(&got[i], &want[i], what);
    free(in.data);
}

/* At sizes that fill no block and no buffer; takes m. */
static void compare(pst_model *m, const char *what)
{
    static const int sizes[] = {1, 31, 33, 257, 600};
    pst_plan *p = cuda_kit_plan(m, "cuda"), *cpu = cuda_kit_plan(m, "engine");
    assert_string_equal(p->computes, "cuda:0");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int before = cuda_sim_state.launches;
        same(p, cpu, m, sizes[i], what);
        assert_int_equal(cuda_sim_state.launches, before + 1); /* the device computed it, in one pass */
    }
    pst_plan_free(p);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

static void test_results_equal_the_cpus(void **state)
{
    compare(regressor(&(shape){.trees = 40, .depth = 6, .targets = 1}), "one target");
    compare(regressor(&(shape){.trees = 21, .depth = 5, .targets = 3, .average = true}), "averages");
    compare(regressor(&(shape){.trees = 30, .depth = 6, .targets = 2, .tail = true}), "nodes behind the trees");
    compare(regressor(&(shape){.trees = 30, .depth = 4, .targets = 1, .head = true}), "nodes before the trees");
    compare(classifier(3, 3, "SOFTMAX"), "three classes");
    compare(classifier(2, 1, "LOGISTIC"), "two classes, one score");
    assert_int_equal(cuda_sim_state.images, 6);
}

/* Files of XGBoost and LightGBM, whose trees have sets, missing values and sums of their own. */
static void test_native_files(void **state)
{
    struct dirent **list;
    int n = scandir(GOLDEN, &list, NULL, alphasort), on_device = 0, refused = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name, *dot = strrchr(name, '.');
        pst_model *m = NULL;
        pst_plan *p = NULL;
        pst_err err = {0};
        char path[400];
        snprintf(path, sizeof path, GOLDEN "/%s", name);
        if (dot && (!strcmp(dot, ".json") || !strcmp(dot, ".ubj") || !strcmp(dot, ".txt"))) {
            assert_int_equal(pst_model_load_file(path, NULL, &m, &err), 0);
            int rc = cuda_kit_try(m, "cuda", &p, &err);
            pst_plan_free(p);
            if (rc == 0) {
                compare(m, name);
                on_device++;
            } else { /* linear models, and trees with linear leaves */
                assert_int_equal(rc, PST_EUNSUPPORTED);
                assert_non_null(strstr(name, "linear"));
                assert_true(strstr(err.text, "linear") || strstr(err.text, "and this is neither"));
                pst_model_unref(m);
                refused++;
            }
        }
        free(list[i]);
    }
    free(list);
    assert_true(on_device >= 18);
    assert_int_equal(refused, 2);
}

/* More rows than the buffers hold go in passes. */
static void test_more_rows_than_a_pass(void **state)
{
    pst_model *m = regressor(&(shape){.trees = 3, .depth = 3, .targets = 1});
    pst_plan *p = cuda_kit_plan(m, "cuda"), *cpu = cuda_kit_plan(m, "engine");
    int before = cuda_sim_state.launches;
    same(p, cpu, m, 4096, "one pass");
    assert_int_equal(cuda_sim_state.launches, before + 1);
    assert_int_equal(cuda_sim_state.overlaps, 0);
    same(p, cpu, m, ROWS_ALL, "three passes");
    assert_int_equal(cuda_sim_state.launches, before + 4);
    assert_int_equal(cuda_sim_state.overlaps, 2); /* each goes over while the one before it is computed */
    same(p, cpu, m, 5, "a small run behind a large one");
    assert_int_equal(cuda_sim_state.overlaps, 2);
    pst_plan_free(p);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

/* Two plans of a model in rotation: the second run begins before the first one's end is waited for. The forest is there once. */
static void test_two_plans_in_rotation(void **state)
{
    pst_model *m = regressor(&(shape){.trees = 20, .depth = 5, .targets = 1});
    pst_plan *p[2] = {cuda_kit_plan(m, "cuda"), cuda_kit_plan(m, "cuda")}, *cpu = cuda_kit_plan(m, "engine");
    pst_err err = {0};
    assert_int_equal(cuda_sim_state.images, 1);
    for (int round = 0; round < 5; round++) {
        pst_tensor in[2] = {rows_for(m, 40 + round), rows_for(m, 300 - round)};
        for (int k = 0; k < 2; k++)
            assert_int_equal(eng_cuda_backend.submit(p[k], &(eng_val){.kind = ENG_VAL_TENSOR, .t = in[k]}, 1, 1, &err), 0);
        for (int k = 0; k < 2; k++) {
            const eng_val *got;
            pst_tensor want;
            assert_int_equal(eng_cuda_backend.wait(p[(k + round) % 2], &got, 1, &err), 0);
            assert_int_equal(pst_plan_run(cpu, &in[(k + round) % 2], 1, &want, 1, &err), 0);
            equal(&got->t, &want, "in rotation");
        }
        free(in[0].data);
        free(in[1].data);
    }
    pst_plan_free(p[0]);
    assert_int_equal(cuda_sim_state.pieces, 2); /* the image, and the other's buffers */
    pst_plan_free(p[1]);
    pst_plan_free(cpu);
    assert_int_equal(cuda_sim_state.pieces, 0); /* though the model lives */
    pst_plan_free(cuda_kit_plan(m, "cuda"));
    assert_int_equal(cuda_sim_state.images, 2);
    pst_model_unref(m);
}

/* A run that is given up leaves work behind: the next run waits for that, and so does the end of the plan. */
static void test_a_run_that_is_given_up(void **state)
{
    pst_model *m = regressor(&(shape){.trees = 20, .depth = 5, .targets = 1});
    pst_plan *p = cuda_kit_plan(m, "cuda"), *cpu = cuda_kit_plan(m, "engine");
    pst_err err = {0};
    pst_tensor in = rows_for(m, 64);
    const eng_val v = {.kind = ENG_VAL_TENSOR, .t = in};
    assert_int_equal(eng_cuda_backend.submit(p, &v, 1, 1, &err), 0);
    same(p, cpu, m, 90, "behind one that was given up");
    assert_int_equal(eng_cuda_backend.submit(p, &v, 1, 1, &err), 0);
    pst_plan_free(p);
    pst_plan_free(cpu);
    pst_model_unref(m);
    free(in.data);
}

/* ---- what is refused ---- */

/* A product in front of trees. */
static pst_model *mixed(void)
{
    forest *f = grown(5, 3, 1);
    pst_onnx_builder *o = pst_onnx_new("mixed", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, FEATURES}, "N");
    KIT_WEIGHTS(o, "w", 0.3f, FEATURES, FEATURES);
    kit_node(o, "MatMul x w > turned");
    kit_node(o, "TreeEnsembleRegressor turned > y");
    put_nodes(o, f, "target");
    pst_onnx_attr_int(o, "n_targets", 1);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 1}, "N");
    free(f);
    return kit_load(o, NULL);
}

static void test_what_no_device_computes(void **state)
{
    cuda_kit_refused(mixed(), "cuda:0", PST_EUNSUPPORTED, "(MatMul): besides one tree ensemble only cheap nodes");
    cuda_kit_refused(classifier(2, -1, "NONE"), "cuda", PST_EUNSUPPORTED, "some of its leaves weigh the second class and some do not");
    cuda_kit_refused(regressor(&(shape){.trees = 4, .depth = 3, .targets = 1, .input = PST_F64}), "cuda", PST_EUNSUPPORTED,
                     "trees take float32 values");
    cuda_kit_refused(regressor(&(shape){.trees = 4, .depth = 3, .targets = 1, .cast = true}), "cuda", PST_EUNSUPPORTED,
                     "trees take float32 values");
    assert_int_equal(cuda_sim_state.launches, 0);
}

static void test_where_there_is_no_device(void **state)
{
    shape s = {.trees = 4, .depth = 3, .targets = 1};
    pst_err err = {0};
    pst_plan *p = NULL;
    cuda_kit_refused(regressor(&s), "cuda", 0, ""); /* there is one: by estimate the CPU is quicker at so few trees */
    eng_cuda_pretend(&cuda_sim_driver, NULL);
    cuda_kit_refused(regressor(&s), "cuda", PST_EUNSUPPORTED, "driver and device are there, but");
    cuda_sim_state.n = 0;
    cuda_kit_refused(regressor(&s), "cuda:1", PST_EUNSUPPORTED, "is there, but no device");
    cuda_kit_begin(NULL);
    cuda_kit_refused(regressor(&s), "cuda:7", PST_EUNSUPPORTED, "");
    pst_model *m = regressor(&s);
    assert_int_equal(cuda_kit_try(m, "cudax", &p, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "not one of engine, onnxruntime, cuda, cuda:N, auto"));
    int calls = cuda_sim_state.calls;
    pst_plan_free(cuda_kit_plan(m, NULL)); /* nobody gets a device unasked */
    assert_int_equal(cuda_sim_state.calls, calls);
    pst_model_unref(m);
}

/* A device that adds up otherwise is not believed. */
static int wrong_kernel(const eng_cuda_forest *f, const void *image, const void *x, int64_t rows, int64_t cols, double *out, void *stream)
{
    int rc = eng_cuda_trees_run(f, image, x, rows, cols, out, stream);
    out[rows / 2] += 1e-9;
    return rc;
}

static void test_a_device_that_computes_otherwise(void **state)
{
    shape s = {.trees = 400, .depth = 5, .targets = 1};
    cuda_sim_state.kernel = wrong_kernel;
    cuda_kit_refused(regressor(&s), "cuda", PST_EUNSUPPORTED, "cuda:0 (NVIDIA H200) is not used for this model: of some rows it adds up");
}

/* ---- auto ---- */

/* In no time where only time counts: in runs that are measured, whose rows are powers of two. */
static int quick_kernel(const eng_cuda_forest *f, const void *image, const void *x, int64_t rows, int64_t cols, double *out, void *stream)
{
    if (rows < 64 || (rows & (rows - 1)))
        return eng_cuda_trees_run(f, image, x, rows, cols, out, stream);
    memset(out, 0, (size_t)rows * sizeof *out);
    return 0;
}

static void test_auto_measures(void **state)
{
    pst_model *m = regressor(&(shape){.trees = 900, .depth = 4, .targets = 1});
    pst_plan *p = cuda_kit_plan(m, "auto"), *cpu = cuda_kit_plan(m, "engine");
    assert_string_equal(p->computes, "cpu"); /* the emulated kernel is the slower one */
    assert_non_null(strstr(p->computes_why, "measured on 4096 rows"));
    assert_true(cuda_sim_state.launches > 2);
    assert_int_equal(pst_plan_device_left(p), 0);                                                /* nothing was lost by that */
    assert_int_equal(cuda_sim_state.pieces + cuda_sim_state.pinned + cuda_sim_state.streams, 0); /* and the device has nothing of it */
    same(p, cpu, m, 100, "auto, on the CPU");
    pst_plan_free(p);
    cuda_sim_state.kernel = quick_kernel;
    p = cuda_kit_plan(m, "auto");
    assert_string_equal(p->computes, "cuda:0");
    assert_non_null(strstr(p->computes_why, "measured on 4096 rows"));
    assert_non_null(strstr(p->computes_why, "are quicker on the CPU, and go there"));
    int before = cuda_sim_state.launches;
    same(p, cpu, m, 3, "auto, so few that the CPU has them");
    assert_int_equal(cuda_sim_state.launches, before);
    assert_int_equal(pst_plan_ran_on(p), -1);
    same(p, cpu, m, 1000, "auto, on the device");
    assert_int_equal(cuda_sim_state.launches, before + 1);
    assert_int_equal(pst_plan_ran_on(p), 0);
    cuda_sim_state.fail_at = cuda_sim_state.calls + 2;
    cuda_sim_state.fail_on = true;
    same(p, cpu, m, 1000, "auto, the device lost in this run");
    assert_int_equal(pst_plan_ran_on(p), -1);
    assert_string_equal(p->computes, "cpu");
    assert_non_null(strstr(p->computes_why, "is lost to this process"));
    assert_int_equal(pst_plan_device_left(p), PST_EIO);
    same(p, cpu, m, 1000, "auto, afterwards");
    pst_plan_free(p);
    p = cuda_kit_plan(m, "auto");
    assert_string_equal(p->computes, "cpu");
    assert_non_null(strstr(p->computes_why, "is lost to this process"));
    pst_plan_free(p);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

/* Nobody opens a driver for a model that the CPU is quicker with, and what is looked at is the largest batch that there can be. */
static void test_auto_looks_at_the_estimate_first(void **state)
{
    pst_model *small = regressor(&(shape){.trees = 9, .depth = 3, .targets = 1}),
              *m = regressor(&(shape){.trees = 900, .depth = 4, .targets = 1});
    pst_plan *p = NULL;
    pst_err err = {0};
    assert_int_equal(pst_plan_new(small, &(pst_plan_opts){.backend = "auto", .rows_most = 256}, &p, &err), 0);
    assert_string_equal(p->computes_why, "by estimate the CPU is quicker");
    assert_int_equal(cuda_sim_state.calls, 0);
    pst_plan_free(p);
    assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.backend = "auto", .rows_most = 2}, &p, &err), 0);
    assert_string_equal(p->computes_why, "by estimate the CPU is quicker");
    assert_int_equal(cuda_sim_state.calls, 0);
    pst_plan_free(p);
    assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.backend = "auto", .rows_most = 512}, &p, &err), 0);
    assert_non_null(strstr(p->computes_why, "measured on 512 rows"));
    pst_plan_free(p);
    pst_model_unref(small);
    pst_model_unref(m);
}

/* ---- devices that are lost, or do not answer ---- */

/* The plan waits for its limit and no longer, its end hardly at all, and what the device still uses is given back when it has answered. */
static void test_a_device_that_does_not_answer(void **state)
{
    pst_model *m = regressor(&(shape){.trees = 20, .depth = 5, .targets = 1});
    pst_plan *p = NULL, *other = cuda_kit_plan(m, "cuda");
    pst_tensor in = rows_for(m, 64), got;
    pst_err err = {0};
    assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.backend = "cuda", .run = &(pst_run_limits){.ms_max = 100}}, &p, &err), 0);
    cuda_sim_state.hung = true;
    assert_int_equal(pst_plan_run(p, &in, 1, &got, 1, &err), PST_ETIMEDOUT);
    assert_int_equal(err.cls, PST_CLASS_RETRY);
    assert_non_null(strstr(err.text, "cuda:0 (NVIDIA H200) does not answer in time"));
    int before = cuda_sim_state.pieces;
    pst_plan_free(p);
    pst_plan_free(other); /* idle, but giving back would wait for the other's work */
    pst_model_unref(m);
    assert_int_equal(cuda_sim_state.pieces, before);
    assert_int_equal(cuda_sim_state.streams, 4); /* two a plan */
    cuda_sim_state.hung = false;
    m = regressor(&(shape){.trees = 5, .depth = 3, .targets = 1});
    for (int i = 0; i < 4; i++) /* the simulated device wants to be asked more than once */
        pst_plan_free(cuda_kit_plan(m, "cuda"));
    pst_model_unref(m);
    assert_int_equal(cuda_sim_state.pieces + cuda_sim_state.streams + cuda_sim_state.pinned, 0);
    free(in.data);
}

/* A model that is being copied over, likewise. */
static void test_a_device_that_hangs_while_a_model_is_loaded(void **state)
{
    pst_model *m = regressor(&(shape){.trees = 20, .depth = 5, .targets = 1});
    pst_plan *p = NULL;
    pst_err err = {0};
    cuda_sim_state.hung = true;
    assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.backend = "cuda", .run = &(pst_run_limits){.ms_max = 100}}, &p, &err),
                     PST_ETIMEDOUT);
    assert_non_null(strstr(err.text, "does not answer in time"));
    assert_int_equal(cuda_sim_state.pieces, 1);
    cuda_sim_state.hung = false;
    for (int i = 0; i < 4; i++)
        pst_plan_free(cuda_kit_plan(m, "cuda"));
    pst_model_unref(m);
}

static void test_a_lost_device_is_passed_over(void **state)
{
    pst_model *m = regressor(&(shape){.trees = 20, .depth = 5, .targets = 1});
    cuda_sim_state.n = 3;
    cuda_sim_state.device[1] = (cuda_sim_device){"Tesla T4", 7, 5, (size_t)16 << 30, (size_t)15 << 30};
    cuda_sim_state.device[2] = cuda_kit_h200;
    pst_plan *p = cuda_kit_plan(m, "cuda"), *named = cuda_kit_plan(m, "cuda:0"), *cpu = cuda_kit_plan(m, "engine"), *later;
    pst_tensor in = rows_for(m, 40), got;
    pst_err err = {0};
    assert_string_equal(p->computes, "cuda:0");
    cuda_sim_state.gone = 1;
    assert_int_equal(pst_plan_run(p, &in, 1, &got, 1, &err), PST_EIO); /* in this run; nothing of it is taken for a result */
    same(p, cpu, m, 40, "on the other one");
    assert_string_equal(p->computes, "cuda:2");
    later = cuda_kit_plan(m, "cuda");
    assert_string_equal(later->computes, "cuda:2");
    for (int i = 0; i < 2; i++) { /* who named it waits for it */
        err = (pst_err){0};
        assert_int_equal(pst_plan_run(named, &in, 1, &got, 1, &err), PST_EIO);
        assert_non_null(strstr(err.text, "cuda:0 (NVIDIA H200) is lost to this process"));
    }
    cuda_sim_state.gone = 5;
    for (int i = 0; i < 3; i++) {
        err = (pst_err){0};
        assert_int_equal(pst_plan_run(p, &in, 1, &got, 1, &err), PST_EIO);
        assert_int_equal(err.cls, PST_CLASS_RETRY);
    }
    assert_int_equal(cuda_kit_try(m, "cuda", &(pst_plan *){NULL}, &err), PST_EIO);
    pst_plan_free(p);
    pst_plan_free(named);
    pst_plan_free(later);
    pst_plan_free(cpu);
    pst_model_unref(m);
    free(in.data);
}

/* ---- memory ---- */

static void test_the_budget(void **state)
{
    shape s = {.trees = 60, .depth = 5, .targets = 1};
    pst_model *m[3] = {regressor(&s), regressor(&s), regressor(&s)};
    pst_plan *p[3] = {0};
    pst_err err = {0};
    eng_cuda_context *on;
    p[0] = cuda_kit_plan(m[0], "cuda");
    assert_int_equal(eng_cuda_context_open(0, &on, &err), 0);
    size_t one = on->used;
    assert_true(one > 0);
    pst_plan_free(p[0]);
    pst_model_unref(m[0]);
    assert_int_equal(on->used, 0);
    on->budget = 2 * one + one / 2; /* two versions side by side while swapping, not three */
    m[0] = regressor(&s);
    for (int i = 0; i < 2; i++)
        p[i] = cuda_kit_plan(m[i], "cuda");
    assert_int_equal(cuda_kit_try(m[2], "cuda", &p[2], &err), PST_ENOMEM);
    assert_int_equal(err.cls, PST_CLASS_RETRY);
    assert_non_null(strstr(err.text, "cuda:0 (NVIDIA H200): "));
    assert_non_null(strstr(err.text, "more bytes are needed"));
    pst_plan_free(p[0]);
    pst_model_unref(m[0]);
    p[2] = cuda_kit_plan(m[2], "cuda"); /* the old one is gone */
    for (int i = 1; i < 3; i++) {
        pst_plan_free(p[i]);
        pst_model_unref(m[i]);
    }
    assert_int_equal(on->used, 0);
}

/* The driver has no memory, whatever the budget says: the device is not lost by it. */
static void test_no_memory_is_left(void **state)
{
    pst_model *m = regressor(&(shape){.trees = 9, .depth = 3, .targets = 1});
    pst_plan *p = NULL;
    pst_err err = {0};
    cuda_sim_state.none_left = true;
    assert_int_equal(cuda_kit_try(m, "cuda", &p, &err), PST_ENOMEM);
    assert_non_null(strstr(err.text, "no memory is left"));
    cuda_sim_state.none_left = false;
    pst_plan_free(cuda_kit_plan(m, "cuda"));
    pst_model_unref(m);
}

/* ---- faults ---- */

typedef struct faulty {
    const char *backend;
    cuda_sim_kernel kernel; /* what measures as the device's */
} faulty;

/* All of a plan's life. */
static int life(const void *arg, const cuda_kit_fault *fault)
{
    const faulty *f = arg;
    pst_model *m = regressor(&(shape){.trees = 120, .depth = 3, .targets = 1});
    pst_plan *cpu = cuda_kit_plan(m, "engine"), *p = NULL;
    pst_tensor in = rows_for(m, ROWS_FEW), want, got;
    pst_err err = {0};
    assert_int_equal(pst_plan_run(cpu, &in, 1, &want, 1, NULL), 0);
    cuda_sim_state.kernel = f->kernel;
    cuda_kit_arm(fault);
    int rc = cuda_kit_try(m, f->backend, &p, &err);
    if (rc == 0)
        rc = pst_plan_run(p, &in, 1, &got, 1, &err);
    if (rc == 0)
        equal(&got, &want, "with a fault");
    if (!fault->at)
        assert_string_equal(p->computes, "cuda:0");
    cuda_kit_says_why(rc, &err);
    pst_plan_free(p);
    free(in.data);
    pst_plan_free(cpu);
    pst_model_unref(m);
    return rc;
}

static void test_every_call_fails(void **state)
{
    for (int on = 0; on < 2; on++)
        cuda_kit_faults(on, false, life, &(faulty){"cuda", eng_cuda_trees_run});
}

static void test_every_call_fails_and_the_cpu_takes_over(void **state)
{
    for (int on = 0; on < 2; on++)
        cuda_kit_faults(on, true, life, &(faulty){"auto", quick_kernel});
}

/* And in a run of two passes. */
static void test_every_call_of_a_long_run_fails(void **state)
{
    uint64_t seed = kit_seed;
    int calls = 0, failed = 0;
    for (int at = 0; at <= calls; at++) {
        cuda_kit_begin(NULL);
        kit_seed = seed;
        pst_model *m = regressor(&(shape){.trees = 3, .depth = 3, .targets = 1});
        pst_tensor in = rows_for(m, ROWS_ALL), want, got;
        pst_plan *p = cuda_kit_plan(m, "cuda"), *cpu = cuda_kit_plan(m, "engine");
        pst_err err = {0};
        int before = cuda_sim_state.calls;
        assert_int_equal(pst_plan_run(cpu, &in, 1, &want, 1, NULL), 0);
        cuda_sim_state.fail_at = at ? before + at : 0;
        int rc = pst_plan_run(p, &in, 1, &got, 1, &err);
        calls = at == 0 ? cuda_sim_state.calls - before : calls;
        assert_int_equal(rc, at ? PST_EIO : 0);
        failed += rc < 0;
        if (rc == 0)
            equal(&got, &want, "a long run");
        pst_plan_free(p);
        pst_plan_free(cpu);
        pst_model_unref(m);
        free(in.data);
    }
    assert_true(failed > 10);
}

/* The engine's own allocations, one after another, while a plan for the device is made and run. */
static void test_out_of_memory(void **state)
{
    pst_model *m = regressor(&(shape){.trees = 12, .depth = 4, .targets = 1, .tail = true});
    pst_plan *cpu = cuda_kit_plan(m, "engine");
    pst_tensor in = rows_for(m, 70), want, got;
    assert_int_equal(pst_plan_run(cpu, &in, 1, &want, 1, NULL), 0);
    uint64_t at = 1;
    for (bool hit = true; hit; at++) {
        pst_plan *p = NULL;
        pst_err err = {0};
        eng_heap_test_fail(at, false);
        int rc = cuda_kit_try(m, "cuda", &p, &err);
        if (rc == 0)
            rc = pst_plan_run(p, &in, 1, &got, 1, &err);
        hit = eng_heap_test_fail(0, false) >= at;
        assert_int_equal(rc, hit ? PST_ENOMEM : 0);
        if (p) {
            err = (pst_err){0};
            assert_int_equal(pst_plan_run(p, &in, 1, &got, 1, &err), 0);
            equal(&got, &want, "after running out of memory");
        }
        pst_plan_free(p);
    }
    assert_true(at > 20);
    free(in.data);
    pst_plan_free(cpu);
    pst_model_unref(m);
}

int main(void)
{
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, cuda_kit_begin, cuda_kit_end)
    const struct CMUnitTest tests[] = {
        TEST(test_results_equal_the_cpus),
        TEST(test_native_files),
        TEST(test_more_rows_than_a_pass),
        TEST(test_two_plans_in_rotation),
        TEST(test_a_run_that_is_given_up),
        TEST(test_what_no_device_computes),
        TEST(test_where_there_is_no_device),
        TEST(test_a_device_that_computes_otherwise),
        TEST(test_auto_measures),
        TEST(test_auto_looks_at_the_estimate_first),
        TEST(test_a_device_that_does_not_answer),
        TEST(test_a_device_that_hangs_while_a_model_is_loaded),
        TEST(test_a_lost_device_is_passed_over),
        TEST(test_the_budget),
        TEST(test_no_memory_is_left),
        TEST(test_every_call_fails),
        TEST(test_every_call_fails_and_the_cpu_takes_over),
        TEST(test_every_call_of_a_long_run_fails),
        TEST(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
