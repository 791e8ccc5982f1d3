/* What a plan takes: nothing from the heap once it has seen its shapes, and never more than its limits, on every path that a hostile
 * model has: values, scratch, loops, scans, sequences, texts. */
#include "tests/unit/engine_kit.h"

#include <time.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define COUNTS_HEAP 0
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_HEAP 0
#endif
#endif
#if !defined COUNTS_HEAP && defined __GLIBC__
#define COUNTS_HEAP 1
#elif !defined COUNTS_HEAP
#define COUNTS_HEAP 0
#endif

static unsigned long heap_calls;

#if COUNTS_HEAP
/* In the place of the C library's own, which they call: every request of this program passes here. */
extern void *__libc_malloc(size_t n), *__libc_calloc(size_t n, size_t size), *__libc_realloc(void *p, size_t n),
    *__libc_memalign(size_t a, size_t n);
void *malloc(size_t n)
{
    heap_calls++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
    heap_calls++;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
    heap_calls++;
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t a, size_t n)
{
    heap_calls++;
    return __libc_memalign(a, n);
}
#endif

/* ---- models ---- */

static pst_model *mlp(void)
{
    pst_onnx_builder *b = pst_onnx_new("mlp", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    KIT_WEIGHTS(b, "mean", 1, 12);
    KIT_WEIGHTS(b, "w1", 0.2f, 12, 40);
    KIT_WEIGHTS(b, "b1", 1, 40);
    KIT_WEIGHTS(b, "w2", 0.2f, 40, 3);
    kit_node(b, "Sub x mean > c");
    kit_node(b, "Gemm c w1 b1 > h");
    kit_node(b, "Relu h > r");
    kit_node(b, "MatMul r w2 > o");
    kit_node(b, "Softmax o > y");
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 3}, "N");
    return kit_load(b, NULL);
}

/* 40 stumps. */
static pst_model *trees(void)
{
    enum { N = 40 };
    int64_t tree[3 * N], node[3 * N], feature[3 * N], yes[3 * N], no[3 * N], leaf_tree[2 * N], leaf_node[2 * N], target[2 * N];
    const char *modes[3 * N];
    float value[3 * N], weight[2 * N];
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 3; k++) {
            int at = 3 * i + k;
            tree[at] = i;
            node[at] = k;
            feature[at] = kit_next() % 12;
            modes[at] = k ? "LEAF" : "BRANCH_LEQ";
            value[at] = kit_float();
            yes[at] = k ? 0 : 1;
            no[at] = k ? 0 : 2;
            if (k) {
                leaf_tree[2 * i + k - 1] = i;
                leaf_node[2 * i + k - 1] = k;
                target[2 * i + k - 1] = 0;
                weight[2 * i + k - 1] = kit_float();
            }
        }
    pst_onnx_builder *b = pst_onnx_new("trees", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    kit_node(b, "TreeEnsembleRegressor x > y");
    pst_onnx_attr_ints(b, "nodes_treeids", tree, 3 * N);
    pst_onnx_attr_ints(b, "nodes_nodeids", node, 3 * N);
    pst_onnx_attr_ints(b, "nodes_featureids", feature, 3 * N);
    pst_onnx_attr_strs(b, "nodes_modes", modes, 3 * N);
    pst_onnx_attr_floats(b, "nodes_values", value, 3 * N);
    pst_onnx_attr_ints(b, "nodes_truenodeids", yes, 3 * N);
    pst_onnx_attr_ints(b, "nodes_falsenodeids", no, 3 * N);
    pst_onnx_attr_ints(b, "target_treeids", leaf_tree, 2 * N);
    pst_onnx_attr_ints(b, "target_nodeids", leaf_node, 2 * N);
    pst_onnx_attr_ints(b, "target_ids", target, 2 * N);
    pst_onnx_attr_floats(b, "target_weights", weight, 2 * N);
    pst_onnx_attr_int(b, "n_targets", 1);
    pst_onnx_domain(b, "ai.onnx.ml", 3);
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 1}, "N");
    return kit_load(b, NULL);
}

static pst_model *cnn(void)
{
    pst_onnx_builder *b = pst_onnx_new("cnn", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    pst_onnx_ints(b, "image", 1, (int64_t[]){4}, (int64_t[]){-1, 1, 3, 4});
    KIT_WEIGHTS(b, "w", 0.3f, 5, 1, 3, 3);
    KIT_WEIGHTS(b, "w2", 0.3f, 5, 5, 1, 1);
    KIT_WEIGHTS(b, "w3", 0.3f, 8, 5, 3, 3);
    kit_node(b, "Reshape x image > i");
    kit_node(b, "Conv i w > c");
    pst_onnx_attr_ints(b, "pads", (int64_t[]){1, 1, 1, 1}, 4);
    kit_node(b, "Relu c > r");
    kit_node(b, "Conv r w2 > c2");
    kit_node(b, "Add c2 r > s");
    kit_node(b, "MaxPool s > p");
    pst_onnx_attr_ints(b, "kernel_shape", (int64_t[]){2, 2}, 2);
    kit_node(b, "Conv p w3 > c3");
    pst_onnx_attr_ints(b, "pads", (int64_t[]){1, 1, 1, 1}, 4);
    kit_node(b, "Relu c3 > r3");
    kit_node(b, "MaxPool r3 > p3");
    pst_onnx_attr_ints(b, "kernel_shape", (int64_t[]){2, 2}, 2);
    kit_node(b, "GlobalAveragePool p3 > g");
    kit_node(b, "Flatten g > y");
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 8}, "N");
    return kit_load(b, NULL);
}

static pst_model *recurrent(const char *op, int gates)
{
    char line[60];
    pst_onnx_builder *b = pst_onnx_new("recurrent", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    pst_onnx_ints(b, "steps", 1, (int64_t[]){3}, (int64_t[]){-1, 4, 3});
    KIT_WEIGHTS(b, "w", 0.3f, 1, gates * 8, 3);
    KIT_WEIGHTS(b, "r", 0.3f, 1, gates * 8, 8);
    kit_node(b, "Reshape x steps > s");
    kit_node(b, "Transpose s > t");
    pst_onnx_attr_ints(b, "perm", (int64_t[]){1, 0, 2}, 3);
    snprintf(line, sizeof line, "%s t w r > all last", op);
    kit_node(b, line);
    pst_onnx_attr_int(b, "hidden_size", 8);
    kit_node(b, "Flatten last > y");
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, -1}, "N");
    return kit_load(b, NULL);
}

/* One head of attention, normalisation in pieces, GELU. */
static pst_model *encoder(void)
{
    static const char *const lines[] = {
        "Reshape x tokens > t", "MatMul t wq > q", "MatMul t wk > k", "MatMul t wv > v",      "Transpose k > kt",
        "MatMul q kt > s",      "Div s two > s2",  "Softmax s2 > p",  "MatMul p v > c",       "Add c t > r",
        "ReduceMean r > m",     "Sub r m > d",     "Pow d two > sq",  "ReduceMean sq > var",  "Add var eps > ve",
        "Sqrt ve > sd",         "Div d sd > n",    "Mul n g > n2",    "MatMul n2 wu > u",     "Div u two > e1",
        "Erf e1 > e2",          "Add e2 one > e3", "Mul u e3 > e4",   "ReduceMean e4 > pool", "Squeeze pool ax > y"};
    pst_onnx_builder *b = pst_onnx_new("encoder", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    pst_onnx_ints(b, "tokens", 1, (int64_t[]){3}, (int64_t[]){-1, 3, 4});
    pst_onnx_ints(b, "ax", 1, (int64_t[]){1}, (int64_t[]){1});
    kit_scalar(b, "two", 2);
    kit_scalar(b, "one", 1);
    kit_scalar(b, "eps", 1e-5f);
    KIT_WEIGHTS(b, "wq", 0.5f, 4, 4);
    KIT_WEIGHTS(b, "wk", 0.5f, 4, 4);
    KIT_WEIGHTS(b, "wv", 0.5f, 4, 4);
    KIT_WEIGHTS(b, "g", 1, 4);
    KIT_WEIGHTS(b, "wu", 0.5f, 4, 9);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        kit_node(b, lines[i]);
        if (!strncmp(lines[i], "Transpose", 9))
            pst_onnx_attr_ints(b, "perm", (int64_t[]){0, 2, 1}, 3);
        if (!strncmp(lines[i], "ReduceMean", 10))
            pst_onnx_attr_ints(b, "axes", (int64_t[]){strstr(lines[i], "pool") ? 1 : -1}, 1);
    }
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 9}, "N");
    return kit_load(b, NULL);
}

/* A loop of `trips` rounds (-1: without an end) with a carried x and what `line` makes of it as y; scanned too if asked. */
static pst_model *looping(int64_t trips, const char *const *lines, bool scan, const char *scanned, pst_dtype type,
                          const pst_model_limits *limits)
{
    pst_onnx_builder *body = pst_onnx_new("body", 17, 8), *b = pst_onnx_new("loop", 17, 8);
    pst_onnx_input(body, "i", PST_I64, 0, NULL, NULL);
    pst_onnx_input(body, "go", PST_BOOL, 0, NULL, NULL);
    pst_onnx_input(body, "s", type, 2, (int64_t[]){-1, -1}, "N");
    kit_node(body, "Identity go > go2");
    for (; *lines; lines++)
        kit_node(body, *lines);
    pst_onnx_output(body, "go2", PST_BOOL, 0, NULL, NULL);
    pst_onnx_output(body, "s2", type, 2, (int64_t[]){-1, -1}, "N");
    if (scan)
        pst_onnx_output(body, scanned, type, 2, (int64_t[]){-1, -1}, "N");
    pst_onnx_input(b, "x", type, 2, (int64_t[]){-1, 12}, "N");
    pst_onnx_ints(b, "trips", 0, NULL, &trips);
    kit_node(b, scan ? "Loop trips - x > y all" : "Loop trips - x > y");
    if (trips < 0) {
        pst_onnx_free(b);
        b = pst_onnx_new("endless", 17, 8);
        pst_onnx_input(b, "x", type, 2, (int64_t[]){-1, 12}, "N");
        kit_node(b, scan ? "Loop - - x > y all" : "Loop - - x > y");
    }
    pst_onnx_attr_graph(b, "body", body);
    pst_onnx_free(body);
    pst_onnx_output(b, "y", type, 2, (int64_t[]){-1, -1}, "N");
    if (scan)
        pst_onnx_output(b, "all", type, 3, (int64_t[]){-1, -1, -1}, "N");
    return kit_load(b, limits);
}

/* ---- nothing from the heap ---- */

static void run_quietly(pst_model *m, const char *what, bool no_fusion)
{
    enum { ROWS = 130 };
    static const int batches[] = {1, 64, 7, ROWS, 1, 65};
    static float x[ROWS * 12];
    pst_plan *p = kit_plan(m, NULL, no_fusion);
    pst_tensor out[2];
    pst_err err = {0};
    size_t n_out = pst_model_info_get(m)->n_outputs;
    for (int i = 0; i < ROWS * 12; i++)
        x[i] = kit_float();
    unsigned long from = 0;
    for (int run = 0; run < 120; run++) {
        pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {batches[run % 6], 12}, .data = x};
        if (run == 12) /* every shape has been seen, twice */
            from = heap_calls;
        if (pst_plan_run(p, &in, 1, out, n_out, &err) < 0)
            fail_msg("%s: %s", what, err.text);
    }
    if (heap_calls != from)
        fail_msg("%s%s: %lu requests to the heap in 108 runs", what, no_fusion ? " without fusion" : "", heap_calls - from);
    pst_plan_free(p);
}

static void test_plan_steady_state_takes_nothing_from_the_heap(void **state)
{
    if (!COUNTS_HEAP) {
        printf("skipped: the heap cannot be counted here. Cure: build without sanitizers, with glibc\n");
        skip();
    }
    unsigned long before = heap_calls;
    free(malloc(1));
    assert_true(heap_calls > before); /* the counter counts */
    static const char *const body[] = {"Tanh s > s1", "Neg s1 > s2", NULL};
    struct {
        const char *what;
        pst_model *m;
    } all[] = {{"mlp", mlp()},
               {"trees", trees()},
               {"cnn", cnn()},
               {"LSTM", recurrent("LSTM", 4)},
               {"GRU", recurrent("GRU", 3)},
               {"RNN", recurrent("RNN", 1)},
               {"encoder", encoder()},
               {"loop", looping(9, body, true, "s1", PST_F32, NULL)}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        run_quietly(all[i].m, all[i].what, false);
        run_quietly(all[i].m, all[i].what, true);
        pst_model_unref(all[i].m);
    }
}

/* Results must not depend on what a plan ran before, whatever buffers are used again. */
static void test_plan_results_do_not_depend_on_earlier_runs(void **state)
{
    pst_model *all[] = {mlp(), cnn(), recurrent("LSTM", 4), encoder()};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pst_plan *used = kit_plan(all[i], NULL, false);
        for (int run = 0; run < 40; run++) {
            int rows = 1 + (int)(kit_next() % 90);
            float *x = kit_floats((size_t)rows * 12);
            pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {rows, 12}, .data = x};
            pst_plan *fresh = kit_plan(all[i], NULL, false);
            kit_same(used, fresh, &in, 1, 1, 0, "a plan used before");
            pst_plan_free(fresh);
            free(x);
        }
        pst_plan_free(used);
        pst_model_unref(all[i]);
    }
}

/* ---- limits ---- */

/* One run on a few rows must be refused with ELIMIT and this word; a second time too: the plan is still good. */
static void refused(pst_model *m, const char *word)
{
    static float x[24];
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {2, 12}, .data = x}, out[2];
    pst_plan *p = kit_plan(m, NULL, false);
    for (int i = 0; i < 3; i++) {
        pst_err err = {0};
        assert_int_equal(pst_plan_run(p, &in, 1, out, pst_model_info_get(m)->n_outputs, &err), PST_ELIMIT);
        if (!strstr(err.text, word))
            fail_msg("no %s in: %s", word, err.text);
    }
    pst_plan_free(p);
    pst_model_unref(m);
}

static void test_plan_endless_loops_end_at_their_steps(void **state)
{
    static const char *const work[] = {"Neg s > s2", NULL}, *const none[] = {"Identity s > s2", NULL};
    const pst_model_limits few = {.steps_max = 1000};
    refused(looping(-1, work, false, NULL, PST_F32, &few), "steps_max");
    refused(looping(-1, none, false, NULL, PST_F32, &few), "steps_max");
    refused(looping(INT64_MAX, work, false, NULL, PST_F32, &few), "steps_max");
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Of this process: what "too long" is measured by, as others may keep it from the processor for any time. */
static int64_t worked_ms(void)
{
    return (int64_t)((double)clock() * 1000 / CLOCKS_PER_SEC);
}

static _Atomic int64_t stop_at_ms;
static bool told_to_stop(void *arg)
{
    ++*(int *)arg;
    return stop_at_ms && now_ms() >= stop_at_ms;
}

/* The model as its maker would have it: steps without number, so that only time and a request to stop end it. */
static void ends_in_time(pst_model *m, const char *what, const char *backend)
{
    static float x[24];
    int asked = 0;
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {2, 12}, .data = x}, out[2];
    pst_run_limits run = {.ms_max = 300, .stop = told_to_stop, .stop_arg = &asked};
    pst_plan_opts opts = {.run = &run, .backend = backend};
    pst_plan *p = NULL;
    pst_err err = {0};
    stop_at_ms = 0;
    if (pst_plan_new(m, &opts, &p, &err) < 0)
        fail_msg("%s: %s", what, err.text);
    for (int round = 0; round < 3; round++) { /* the plan stays good */
        int64_t from = now_ms(), worked = worked_ms();
        err = (pst_err){0};
        stop_at_ms = round == 1 ? from + 100 : 0;
        run.ms_max = round == 1 ? 0 : 300;
        assert_int_equal(pst_plan_limit(p, &run, &err), 0);
        int rc = pst_plan_run(p, &in, 1, out, pst_model_info_get(m)->n_outputs, &err);
        if (rc != (round == 1 ? PST_ESTOPPED : PST_ETIMEDOUT) || err.cls != (round == 1 ? PST_CLASS_RETRY : PST_CLASS_DATA))
            fail_msg("%s, round %d: %d %s", what, round, rc, err.text);
        if (worked_ms() - worked > 5000 || now_ms() - from < (round == 1 ? 95 : 295))
            fail_msg("%s, round %d: ended after %d ms, %d of work", what, round, (int)(now_ms() - from), (int)(worked_ms() - worked));
    }
    assert_true(asked > 3);
    run = (pst_run_limits){.steps_max = 1000};
    if (!backend) {
        err = (pst_err){0};
        assert_int_equal(pst_plan_limit(p, &run, &err), 0);
        assert_int_equal(pst_plan_run(p, &in, 1, out, pst_model_info_get(m)->n_outputs, &err), PST_ELIMIT);
        assert_non_null(strstr(err.text, "1000 steps"));
    }
    run.reserved[1] = 7;
    err = (pst_err){0};
    assert_int_equal(pst_plan_limit(p, &run, &err), PST_EINVAL);
    pst_plan_free(p);
    pst_model_unref(m);
}

/* A loop in a loop, each of 2^62 rounds. */
static pst_model *nested(const pst_model_limits *limits)
{
    pst_onnx_builder *in = pst_onnx_new("inner", 17, 8), *body = pst_onnx_new("body", 17, 8), *b = pst_onnx_new("nested", 17, 8);
    const int64_t trips = (int64_t)1 << 62;
    pst_onnx_builder *both[] = {in, body};
    for (int i = 0; i < 2; i++) {
        const char *s = i ? "s" : "t";
        pst_onnx_input(both[i], i ? "i" : "j", PST_I64, 0, NULL, NULL);
        pst_onnx_input(both[i], i ? "go" : "on", PST_BOOL, 0, NULL, NULL);
        pst_onnx_input(both[i], s, PST_F32, 2, (int64_t[]){-1, -1}, "N");
    }
    kit_node(in, "Identity on > on2");
    kit_node(in, "Neg t > t2");
    pst_onnx_output(in, "on2", PST_BOOL, 0, NULL, NULL);
    pst_onnx_output(in, "t2", PST_F32, 2, (int64_t[]){-1, -1}, "N");
    kit_node(body, "Identity go > go2");
    kit_node(body, "Loop trips - s > s2");
    pst_onnx_attr_graph(body, "body", in);
    pst_onnx_output(body, "go2", PST_BOOL, 0, NULL, NULL);
    pst_onnx_output(body, "s2", PST_F32, 2, (int64_t[]){-1, -1}, "N");
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    pst_onnx_ints(b, "trips", 0, NULL, &trips);
    kit_node(b, "Loop trips - x > y");
    pst_onnx_attr_graph(b, "body", body);
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, -1}, "N");
    pst_onnx_free(in);
    pst_onnx_free(body);
    return kit_load(b, limits);
}

/* No loop at all: products that take their time, of numbers that the file says in a few bytes. */
static pst_model *heavy(void)
{
    enum { N = 3000 };
    int64_t shape[] = {N, N};
    pst_onnx_builder *b = pst_onnx_new("heavy", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    pst_onnx_ints(b, "shape", 1, (int64_t[]){2}, shape);
    kit_node(b, "ReduceMax x > top");
    pst_onnx_attr_int(b, "keepdims", 0);
    kit_node(b, "Expand top shape > a0");
    for (int i = 0; i < 60; i++) {
        char line[60];
        snprintf(line, sizeof line, "MatMul a%d a0 > a%d", i, i + 1);
        kit_node(b, line);
    }
    kit_node(b, "ReduceMax a60 > y");
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, -1}, "N");
    return kit_load(b, NULL);
}

static void test_plan_endless_runs_end_in_time_or_when_told(void **state)
{
    static const char *const work[] = {"Neg s > s2", NULL}, *const none[] = {"Identity s > s2", NULL};
    const pst_model_limits no_end = {.steps_max = UINT64_MAX};
    ends_in_time(looping(-1, work, false, NULL, PST_F32, &no_end), "endless", NULL);
    ends_in_time(looping((int64_t)1 << 62, none, false, NULL, PST_F32, &no_end), "2^62 rounds", NULL);
    ends_in_time(nested(&no_end), "nested", NULL);
}

static void test_plan_long_products_end_in_time(void **state)
{
    static float x[24];
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {2, 12}, .data = x}, out;
    pst_run_limits run = {.ms_max = 200};
    pst_plan_opts opts = {.run = &run};
    pst_plan *p = NULL;
    pst_err err = {0};
    pst_model *m = heavy();
    assert_int_equal(pst_plan_new(m, &opts, &p, &err), 0);
    int64_t worked = worked_ms();
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), PST_ETIMEDOUT);
    assert_true(worked_ms() - worked < 4000);
    pst_plan_free(p);
    pst_model_unref(m);
}

/* Constants that take long to compute are left to the run; the making of a plan is bounded as runs are. */
static void test_plan_making_takes_seconds_at_most(void **state)
{
    enum { NODES = 3000 };
    pst_onnx_builder *b = pst_onnx_new("constants", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    pst_onnx_ints(b, "shape", 1, (int64_t[]){1}, (int64_t[]){16 << 20}); /* 64 MiB each */
    kit_scalar(b, "one", 1);
    for (int i = 0; i < NODES; i++) {
        char line[80];
        snprintf(line, sizeof line, "Expand one shape > e%d", i);
        kit_node(b, line);
        snprintf(line, sizeof line, "ReduceMax e%d > m%d", i, i);
        kit_node(b, line);
        snprintf(line, sizeof line, "Add %s%d m%d > y%d", i ? "y" : "m", i ? i - 1 : i, i, i);
        kit_node(b, line);
    }
    char last[20];
    snprintf(last, sizeof last, "y%d", NODES - 1);
    pst_onnx_output(b, last, PST_F32, 1, (int64_t[]){-1}, NULL);
    pst_model *m = kit_load(b, NULL);
    int64_t worked = worked_ms();
    pst_plan *p = NULL;
    pst_err err = {0};
    int rc = pst_plan_new(m, NULL, &p, &err);
    if (worked_ms() - worked > 20000)
        fail_msg("%d after %d ms of work: %s", rc, (int)(worked_ms() - worked), err.text);
    pst_plan_free(p);
    pst_run_limits run = {.ms_max = 1};
    pst_plan_opts opts = {.run = &run};
    p = NULL;
    err = (pst_err){0};
    assert_int_equal(pst_plan_new(m, &opts, &p, &err), PST_ETIMEDOUT);
    assert_null(p);
    pst_model_unref(m);
}

static void test_plan_steps_are_counted_exactly_and_anew_in_every_run(void **state)
{
    static const char *const work[] = {"Neg s > s2", NULL};
    float x[12] = {1};
    for (int over = 0; over < 2; over++) { /* 10 rounds of Identity and Neg, the rounds themselves, and the loop: 31 steps */
        const pst_model_limits limits = {.steps_max = (uint64_t)(31 - over)};
        pst_model *m = looping(10, work, false, NULL, PST_F32, &limits);
        pst_plan *p = kit_plan(m, NULL, true);
        for (int i = 0; i < 3; i++) {
            pst_err err = {0};
            pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {1, 12}, .data = x}, out;
            assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), over ? PST_ELIMIT : 0);
        }
        pst_plan_free(p);
        pst_model_unref(m);
    }
}

static void test_plan_collected_steps_count_as_memory(void **state)
{
    static const char *const work[] = {"Neg s > s2", NULL};
    const pst_model_limits small = {.arena_bytes_max = 1 << 20};
    refused(looping(-1, work, true, "s2", PST_F32, &small), "arena_bytes_max");
}

static void test_plan_growing_values_stop_at_the_arena(void **state)
{
    const pst_model_limits small = {.arena_bytes_max = 1 << 20};
    pst_onnx_builder *body = pst_onnx_new("body", 17, 8), *b = pst_onnx_new("grow", 17, 8);
    pst_onnx_input(body, "i", PST_I64, 0, NULL, NULL);
    pst_onnx_input(body, "go", PST_BOOL, 0, NULL, NULL);
    pst_onnx_input(body, "s", PST_F32, 2, (int64_t[]){-1, -1}, "N");
    kit_node(body, "Identity go > go2");
    kit_node(body, "Concat s s > s2");
    pst_onnx_attr_int(body, "axis", 0);
    pst_onnx_output(body, "go2", PST_BOOL, 0, NULL, NULL);
    pst_onnx_output(body, "s2", PST_F32, 2, (int64_t[]){-1, -1}, "N");
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    kit_node(b, "Loop - - x > y");
    pst_onnx_attr_graph(b, "body", body);
    pst_onnx_free(body);
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, -1}, "N");
    refused(kit_load(b, &small), "arena_bytes_max");
}

/* 256 KiB in, 256 KiB out, 1 MiB of scratch in between. */
static pst_model *scratchy(size_t arena)
{
    const pst_model_limits limits = {.arena_bytes_max = arena};
    pst_onnx_builder *b = pst_onnx_new("scratch", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    pst_onnx_ints(b, "to", 1, (int64_t[]){4}, (int64_t[]){1, 1, 256, 256});
    kit_node(b, "ReduceMean x > m");
    pst_onnx_attr_int(b, "keepdims", 0);
    kit_node(b, "Expand m to > e");
    kit_node(b, "LRN e > y");
    pst_onnx_attr_int(b, "size", 1);
    pst_onnx_output(b, "y", PST_F32, 4, (int64_t[]){-1, 1, 256, 256}, "N");
    return kit_load(b, &limits);
}

static void test_plan_scratch_counts_as_memory(void **state)
{
    static float x[12];
    pst_err err = {0};
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {1, 12}, .data = x}, out;
    pst_model *m = scratchy(3 << 20);
    pst_plan *p = kit_plan(m, NULL, false);
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), 0);
    pst_plan_free(p);
    pst_model_unref(m);
    refused(scratchy(1 << 20), "arena_bytes_max");
}

static void test_plan_sequences_count_as_memory(void **state)
{
    const pst_model_limits small = {.arena_bytes_max = 1 << 20};
    pst_onnx_builder *body = pst_onnx_new("body", 17, 8), *b = pst_onnx_new("sequences", 17, 8);
    pst_onnx_input(body, "i", PST_I64, 0, NULL, NULL);
    pst_onnx_input(body, "go", PST_BOOL, 0, NULL, NULL);
    pst_onnx_input(body, "s", PST_F32, -1, NULL, NULL);
    kit_node(body, "Identity go > go2");
    kit_node(body, "SequenceInsert s outer > s2");
    pst_onnx_output(body, "go2", PST_BOOL, 0, NULL, NULL);
    pst_onnx_output(body, "s2", PST_F32, -1, NULL, NULL);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    kit_node(b, "Neg x > outer");
    kit_node(b, "SequenceConstruct x > empty");
    kit_node(b, "Loop - - empty > all");
    pst_onnx_attr_graph(b, "body", body);
    pst_onnx_free(body);
    kit_node(b, "SequenceLength all > y");
    pst_onnx_output(b, "y", PST_I64, 0, NULL, NULL);
    refused(kit_load(b, &small), "arena_bytes_max");
}

static void test_plan_texts_count_as_memory(void **state)
{
    const pst_model_limits small = {.arena_bytes_max = 1 << 20};
    pst_onnx_builder *body = pst_onnx_new("body", 20, 9), *b = pst_onnx_new("texts", 20, 9);
    pst_onnx_input(body, "i", PST_I64, 0, NULL, NULL);
    pst_onnx_input(body, "go", PST_BOOL, 0, NULL, NULL);
    pst_onnx_input(body, "s", PST_STR, -1, NULL, NULL);
    kit_node(body, "Identity go > go2");
    kit_node(body, "StringConcat s s > s2");
    pst_onnx_output(body, "go2", PST_BOOL, 0, NULL, NULL);
    pst_onnx_output(body, "s2", PST_STR, -1, NULL, NULL);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    kit_node(b, "Cast x > t");
    pst_onnx_attr_int(b, "to", PST_STR);
    kit_node(b, "Loop - - t > y");
    pst_onnx_attr_graph(b, "body", body);
    pst_onnx_free(body);
    pst_onnx_output(b, "y", PST_STR, 2, (int64_t[]){-1, -1}, "N");
    refused(kit_load(b, &small), "arena_bytes_max");
}

/* Zero elements, but a length that no machine could walk. */
static void test_plan_scans_over_nothing_end_too(void **state)
{
    const pst_model_limits few = {.steps_max = 1000};
    pst_onnx_builder *body = pst_onnx_new("body", 17, 8), *b = pst_onnx_new("scan", 17, 8);
    pst_onnx_input(body, "e", PST_F32, 1, (int64_t[]){0}, NULL);
    kit_node(body, "Identity e > e2");
    pst_onnx_output(body, "e2", PST_F32, 1, (int64_t[]){0}, NULL);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 12}, "N");
    pst_onnx_ints(b, "shape", 1, (int64_t[]){2}, (int64_t[]){INT64_C(1) << 60, 0});
    kit_node(b, "ConstantOfShape shape > long");
    kit_node(b, "Scan long > all");
    pst_onnx_attr_graph(b, "body", body);
    pst_onnx_attr_int(b, "num_scan_inputs", 1);
    pst_onnx_free(body);
    kit_node(b, "ReduceMean x > m");
    pst_onnx_attr_int(b, "keepdims", 0);
    pst_onnx_output(b, "all", PST_F32, 2, (int64_t[]){-1, -1}, "N");
    refused(kit_load(b, &few), "steps_max");
}

/* 300 layers that share one matrix: a packed copy each would be 1.2 GB. */
static void test_plan_copies_of_shared_weights_are_bounded(void **state)
{
    enum { W = 1000, LAYERS = 300 };
    pst_onnx_builder *b = pst_onnx_new("shared", 17, 8);
    char line[60];
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, W}, "N");
    KIT_WEIGHTS(b, "w", 0.05f, W, W);
    for (int i = 0; i < LAYERS; i++) { /* Sin keeps the layers from being one chain */
        if (i)
            snprintf(line, sizeof line, "MatMul s%d w > m%d", i - 1, i);
        else
            snprintf(line, sizeof line, "MatMul x w > m0");
        kit_node(b, line);
        snprintf(line, sizeof line, "Sin m%d > s%d", i, i);
        kit_node(b, line);
    }
    snprintf(line, sizeof line, "s%d", LAYERS - 1);
    pst_onnx_output(b, line, PST_F32, 2, (int64_t[]){-1, W}, "N");
    const pst_model_limits small = {.arena_bytes_max = 64 << 20};
    pst_model *m = kit_load(b, &small);
    pst_plan *p = kit_plan(m, NULL, false);
    char *text = pst_plan_explain(p);
    assert_non_null(strstr(text, "FusedMLP"));
    assert_non_null(strstr(text, " MatMul ")); /* from some layer on the matrix is used where it lies */
    free(text);
    pst_plan_free(p);
    pst_model_unref(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_steady_state_takes_nothing_from_the_heap),
        cmocka_unit_test(test_plan_results_do_not_depend_on_earlier_runs),
        cmocka_unit_test(test_plan_endless_loops_end_at_their_steps),
        cmocka_unit_test(test_plan_endless_runs_end_in_time_or_when_told),
        cmocka_unit_test(test_plan_long_products_end_in_time),
        cmocka_unit_test(test_plan_making_takes_seconds_at_most),
        cmocka_unit_test(test_plan_steps_are_counted_exactly_and_anew_in_every_run),
        cmocka_unit_test(test_plan_collected_steps_count_as_memory),
        cmocka_unit_test(test_plan_growing_values_stop_at_the_arena),
        cmocka_unit_test(test_plan_scratch_counts_as_memory),
        cmocka_unit_test(test_plan_sequences_count_as_memory),
        cmocka_unit_test(test_plan_texts_count_as_memory),
        cmocka_unit_test(test_plan_scans_over_nothing_end_too),
        cmocka_unit_test(test_plan_copies_of_shared_weights_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
