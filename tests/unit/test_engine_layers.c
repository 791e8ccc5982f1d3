/* Convolutions, pools, recurrent cells, products and attention by vector kernels beside the same nodes run plainly (no_fusion), on every
 * instruction set of this machine and over sizes that fit no tile. */
#include "tests/unit/engine_kit.h"

#include "engine/cpu/isa.h"

#include <dirent.h>

enum { PORTABLE, AVX2, AVX512, ISAS };
static const char *const isas[ISAS] = {"portable", "avx2", "avx512"};

static int pick(int lo, int hi)
{
    return lo + (int)(kit_next() % (uint32_t)(hi - lo + 1));
}

/* The same model and inputs by the plain nodes and by every instruction set. */
static void every_isa_of(pst_model *m, const pst_tensor *in, size_t n_in, size_t n_out, float tol, const char *what)
{
    pst_plan *plain = kit_plan(m, NULL, true);
    for (int i = 0; i < ISAS; i++) {
        if (!eng_kernels_pick(isas[i]))
            continue;
        char text[300];
        snprintf(text, sizeof text, "%s, %s", what, isas[i]);
        pst_plan *p = kit_plan(m, isas[i], false);
        kit_same(p, plain, in, n_in, n_out, tol, text);
        kit_same(p, plain, in, n_in, n_out, tol, text); /* and with what the first run left behind */
        pst_plan_free(p);
    }
    pst_plan_free(plain);
}

static void every_isa(pst_onnx_builder *b, const pst_tensor *in, size_t n_in, size_t n_out, float tol, const char *what)
{
    pst_model *m = kit_load(b, NULL);
    every_isa_of(m, in, n_in, n_out, tol, what);
    pst_model_unref(m);
}

static void test_convolutions(void **state)
{
    for (int round = 0; round < 400; round++) {
        int n = pick(1, 3), dims = round % 3 == 2 ? 1 : 2, groups = round % 5 == 0 ? pick(1, 9) : pick(1, 2),
            mg = pick(1, round % 7 ? 14 : 40), cg = round % 5 == 0 ? 1 : pick(1, round % 11 ? 6 : 70), k[2], s[2], d[2], pad[4], h[2],
            c = cg * groups, m = mg * groups;
        if (round % 5 == 0 && round % 2)
            mg = 1, m = groups;
        for (int i = 0; i < 2; i++) {
            k[i] = pick(1, 5);
            s[i] = pick(1, 3);
            d[i] = pick(1, 2);
            pad[i] = pick(0, 2);
            pad[i + dims] = pick(0, 3);
            h[i] = pick((k[i] - 1) * d[i] + 1, (k[i] - 1) * d[i] + 20);
        }
        pst_onnx_builder *b = pst_onnx_new("conv", 17, 8);
        int64_t shape[4] = {-1, c, h[0], h[1]}, out[4] = {-1, m, -1, -1};
        pst_onnx_input(b, "x", PST_F32, 2 + dims, shape, NULL);
        float scale = 1.0f / sqrtf((float)(cg * k[0] * k[1]));
        if (dims == 2)
            KIT_WEIGHTS(b, "w", scale, m, cg, k[0], k[1]);
        else
            KIT_WEIGHTS(b, "w", scale, m, cg, k[0]);
        KIT_WEIGHTS(b, "bias", 1, m);
        kit_node(b, round % 2 ? "Conv x w bias > y" : "Conv x w > y");
        pst_onnx_attr_ints(b, "strides", (int64_t[]){s[0], s[1]}, (size_t)dims);
        pst_onnx_attr_ints(b, "dilations", (int64_t[]){d[0], d[1]}, (size_t)dims);
        pst_onnx_attr_ints(b, "pads", (int64_t[]){pad[0], pad[1], pad[2], pad[3]}, (size_t)(2 * dims));
        pst_onnx_attr_int(b, "group", groups);
        static const char *const acts[] = {"Relu", "Tanh", "LeakyRelu"};
        const char *name = "y";
        if (round % 4 == 1) { /* a residual of the same shape, made from the same convolution's input */
            kit_node(b, round % 2 ? "Conv x w bias > r" : "Conv x w > r");
            pst_onnx_attr_ints(b, "strides", (int64_t[]){s[0], s[1]}, (size_t)dims);
            pst_onnx_attr_ints(b, "dilations", (int64_t[]){d[0], d[1]}, (size_t)dims);
            pst_onnx_attr_ints(b, "pads", (int64_t[]){pad[0], pad[1], pad[2], pad[3]}, (size_t)(2 * dims));
            pst_onnx_attr_int(b, "group", groups);
            kit_node(b, "Add y r > z");
            name = "z";
        }
        if (round % 3) {
            char line[60];
            snprintf(line, sizeof line, "%s %s > o", acts[round % 3 == 1 ? 0 : round % 2 + 1], name);
            kit_node(b, line);
            name = "o";
        }
        pst_onnx_output(b, name, PST_F32, 2 + dims, out, NULL);
        float *x = kit_floats((size_t)(n * c * h[0] * h[1]));
        if (round % 20 == 3)
            x[pick(0, n * c * h[0] - 1)] = round % 40 == 3 ? NAN : INFINITY;
        pst_tensor in = {.dtype = PST_F32, .rank = 2 + dims, .dims = {n, c, h[0], h[1]}, .data = x};
        char what[200];
        snprintf(what, sizeof what, "round %d: (%d, %d, %d, %d), %d x %d kernels, m %d, groups %d, stride %d %d, dilation %d %d", round, n,
                 c, h[0], dims == 2 ? h[1] : 0, k[0], k[1], m, groups, s[0], s[1], d[0], d[1]);
        every_isa(b, &in, 1, 1, 2e-5f, what);
        free(x);
    }
}

/* Which of the two kernels with the filters in the lanes served, if one did. */
static void count_lanes(pst_model *m, const char *isa, const pst_tensor *in, int *pooled, int *alone)
{
    pst_tensor out;
    if (!eng_kernels_pick(isa))
        return;
    pst_plan *p = kit_plan(m, isa, false);
    assert_int_equal(pst_plan_run(p, in, 1, &out, 1, NULL), 0);
    char *text = pst_plan_explain(p);
    *pooled += strstr(text, "in the lanes, pooled") != NULL;
    *alone += strstr(text, "in the lanes") && !strstr(text, "pooled");
    free(text);
    pst_plan_free(p);
}

/* With the filters in the lanes, alone and with a pool behind: sizes that fill no tile and no chunk. */
static void test_convolutions_with_pools(void **state)
{
    static const int filters[] = {8, 16, 16, 24, 30, 32, 40, 6, 12, 64}, channels[] = {1, 1, 2, 3, 5};
    static const char *const acts[] = {"Relu y > z", "Tanh y > z", "Relu p > z", "LeakyRelu p > z"};
    int pooled[ISAS] = {0}, alone[ISAS] = {0};
    for (int round = 0; round < 300; round++) {
        int n = pick(1, 3), c = channels[pick(0, 4)], m = filters[round % 10], act = pick(0, 5), k[2], s[2], d[2], pad[4], h[2], pk[2],
            ps[2], pp[4];
        bool pool = round % 3, before = act < 2;
        for (int i = 0; i < 2; i++) {
            k[i] = pick(1, 4);
            s[i] = pick(1, round % 4 ? 1 : 3);
            d[i] = pick(1, round % 5 ? 1 : 2);
            pad[i] = pick(0, 2);
            pad[i + 2] = pick(0, 2);
            pk[i] = pick(1, round % 7 ? 3 : 6);
            ps[i] = pick(1, 3);
            pp[i] = round % 2 ? 0 : pick(0, pk[i] - 1);
            pp[i + 2] = round % 2 ? 0 : pick(0, pk[i] - 1);
            h[i] = (k[i] - 1) * d[i] + pk[i] * s[i] + pick(0, round % 6 ? 20 : 70);
        }
        pst_onnx_builder *b = pst_onnx_new("pooled", 17, 8);
        pst_onnx_input(b, "x", PST_F32, 4, (int64_t[]){-1, c, h[0], h[1]}, NULL);
        KIT_WEIGHTS(b, "w", 1.0f / sqrtf((float)(c * k[0] * k[1])), m, c, k[0], k[1]);
        KIT_WEIGHTS(b, "bias", 1, m);
        kit_node(b, round % 2 ? "Conv x w bias > y" : "Conv x w > y");
        pst_onnx_attr_ints(b, "strides", (int64_t[]){s[0], s[1]}, 2);
        pst_onnx_attr_ints(b, "dilations", (int64_t[]){d[0], d[1]}, 2);
        pst_onnx_attr_ints(b, "pads", (int64_t[]){pad[0], pad[1], pad[2], pad[3]}, 4);
        const char *name = "y";
        if (before) {
            kit_node(b, acts[act]);
            name = "z";
        }
        if (pool) {
            kit_node(b, before ? "MaxPool z > p" : "MaxPool y > p");
            pst_onnx_attr_ints(b, "kernel_shape", (int64_t[]){pk[0], pk[1]}, 2);
            pst_onnx_attr_ints(b, "strides", (int64_t[]){ps[0], ps[1]}, 2);
            if (round % 11 == 1)
                pst_onnx_attr_str(b, "auto_pad", "SAME_UPPER");
            else
                pst_onnx_attr_ints(b, "pads", (int64_t[]){pp[0], pp[1], pp[2], pp[3]}, 4);
            if (round % 4 == 1)
                pst_onnx_attr_int(b, "ceil_mode", 1);
            name = "p";
            if (!before && act < 4) {
                kit_node(b, acts[act]);
                name = "z";
            }
        }
        pst_onnx_output(b, name, PST_F32, 4, (int64_t[]){-1, m, -1, -1}, NULL);
        float *x = kit_floats((size_t)(n * c * h[0] * h[1]));
        if (round % 20 == 3)
            x[pick(0, n * c * h[0] - 1)] = round % 40 == 3 ? NAN : -INFINITY;
        pst_tensor in = {.dtype = PST_F32, .rank = 4, .dims = {n, c, h[0], h[1]}, .data = x};
        char what[240];
        snprintf(what, sizeof what,
                 "round %d: (%d, %d, %d, %d), %d x %d kernels, m %d, stride %d %d, dilation %d %d, pool %d %d, stride %d %d", round, n, c,
                 h[0], h[1], k[0], k[1], m, s[0], s[1], d[0], d[1], pool ? pk[0] : 0, pk[1], ps[0], ps[1]);
        pst_model *model = kit_load(b, NULL);
        every_isa_of(model, &in, 1, 1, 2e-5f, what);
        for (int i = 0; i < ISAS; i++)
            count_lanes(model, isas[i], &in, &pooled[i], &alone[i]);
        pst_model_unref(model);
        free(x);
    }
    for (int k = 0; k < ISAS; k++) /* what was compared is what it is about */
        if (eng_kernels_pick(isas[k]) && (pooled[k] < 100 || alone[k] < 30))
            fail_msg("%s: %d pooled and %d alone had the filters in the lanes", isas[k], pooled[k], alone[k]);
    if (eng_kernels_pick("avx512")) { /* by the same rule as AVX2 */
        assert_int_equal(pooled[AVX512], pooled[AVX2]);
        assert_int_equal(alone[AVX512], alone[AVX2]);
    }
}

static int threads_now(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

/* Shapes for which oneDNN is taken where it is there, at sizes that change. */
static void test_large_convolutions(void **state)
{
    static const int shapes[][7] = {/* c, m, size, kernel, stride, dilation, pad */
                                    {64, 64, 20, 3, 1, 1, 1},
                                    {70, 130, 17, 3, 2, 1, 1},
                                    {256, 256, 9, 1, 1, 1, 0},
                                    {64, 80, 21, 3, 1, 2, 0}};
    int threads = threads_now();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int form = 0; form < 3; form++) {
            const int *s = shapes[i];
            pst_onnx_builder *b = pst_onnx_new("conv", 17, 8);
            pst_onnx_input(b, "x", PST_F32, 4, (int64_t[]){-1, s[0], -1, -1}, NULL);
            KIT_WEIGHTS(b, "w", 1 / sqrtf((float)(s[0] * s[3] * s[3])), s[1], s[0], s[3], s[3]);
            KIT_WEIGHTS(b, "bias", 1, s[1]);
            kit_node(b, form ? "Conv x w bias > y" : "Conv x w > y");
            pst_onnx_attr_ints(b, "strides", (int64_t[]){s[4], s[4]}, 2);
            pst_onnx_attr_ints(b, "dilations", (int64_t[]){s[5], s[5]}, 2);
            pst_onnx_attr_ints(b, "pads", (int64_t[]){s[6], s[6], s[6] + 1, s[6]}, 4);
            kit_node(b, form == 2 ? "Tanh y > z" : "Relu y > z");
            pst_onnx_output(b, "z", PST_F32, 4, (int64_t[]){-1, s[1], -1, -1}, NULL);
            pst_model *m = kit_load(b, NULL);
            pst_plan *plain = kit_plan(m, NULL, true), *fast = kit_plan(m, NULL, false);
            for (int run = 0; run < 7; run++) { /* more sizes than oneDNN is let try */
                int n = 1 + run % 2, h = s[2] + run / 2, w = s[2] + run % 3;
                float *x = kit_floats((size_t)(n * s[0] * h * w));
                pst_tensor in = {.dtype = PST_F32, .rank = 4, .dims = {n, s[0], h, w}, .data = x};
                char what[80];
                snprintf(what, sizeof what, "shape %zu, form %d, run %d", i, form, run);
                kit_same(fast, plain, &in, 1, 1, 1e-4f, what);
                free(x);
            }
            pst_plan_free(fast);
            pst_plan_free(plain);
            pst_model_unref(m);
        }
    assert_int_equal(threads_now(), threads); /* the engine computes on its caller's thread, whatever a library would like */
}

/* An update of two positions over a cache of four: where it would leave the cache it goes round, or is refused. */
static void test_cache_updates_stay_inside(void **state)
{
    static const struct {
        const char *mode;
        int64_t at;
        int rc;
        float want[4];
    } cases[] = {{"linear", 2, 0, {0, 1, 8, 9}},          {"linear", 3, PST_EINVAL, {0}},   {"linear", -1, PST_EINVAL, {0}},
                 {"linear", INT64_MAX, PST_EINVAL, {0}},  {"circular", 3, 0, {9, 1, 2, 8}}, {"circular", 4, PST_EINVAL, {0}},
                 {"circular", INT64_MIN, PST_EINVAL, {0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_onnx_builder *b = pst_onnx_new("cache", 24, 10);
        pst_onnx_input(b, "cache", PST_F32, 3, (int64_t[]){1, 4, 1}, NULL);
        pst_onnx_input(b, "update", PST_F32, 3, (int64_t[]){1, 2, 1}, NULL);
        pst_onnx_input(b, "at", PST_I64, 1, (int64_t[]){1}, NULL);
        kit_node(b, "TensorScatter cache update at > y");
        pst_onnx_attr_str(b, "mode", cases[i].mode);
        pst_onnx_output(b, "y", PST_F32, 3, (int64_t[]){1, 4, 1}, NULL);
        pst_model *m = kit_load(b, NULL);
        pst_plan *p = kit_plan(m, NULL, false);
        float cache[] = {0, 1, 2, 3}, update[] = {8, 9};
        int64_t at = cases[i].at;
        pst_tensor y, in[] = {{.dtype = PST_F32, .rank = 3, .dims = {1, 4, 1}, .data = cache},
                              {.dtype = PST_F32, .rank = 3, .dims = {1, 2, 1}, .data = update},
                              {.dtype = PST_I64, .rank = 1, .dims = {1}, .data = &at}};
        pst_err err = {0};
        assert_int_equal(pst_plan_run(p, in, 3, &y, 1, &err), cases[i].rc);
        if (!cases[i].rc)
            assert_memory_equal(y.data, cases[i].want, sizeof cases[i].want);
        pst_plan_free(p);
        pst_model_unref(m);
    }
}

/* 64-bit integers differ in digits that doubles have not. */
static void test_top_of_large_integers(void **state)
{
    static const int64_t big = (int64_t)1 << 60;
    int64_t x[5] = {big + 1, big + 3, -big - 1, big + 2, -big - 2}, k = 5;
    for (int largest = 0; largest < 2; largest++) {
        pst_onnx_builder *b = pst_onnx_new("top", 17, 8);
        pst_onnx_input(b, "x", PST_I64, 1, (int64_t[]){5}, NULL);
        pst_onnx_ints(b, "k", 1, (int64_t[]){1}, &k);
        kit_node(b, "TopK x k > y at");
        pst_onnx_attr_int(b, "largest", largest);
        pst_onnx_output(b, "at", PST_I64, 1, (int64_t[]){5}, NULL);
        pst_model *m = kit_load(b, NULL);
        pst_plan *p = kit_plan(m, NULL, false);
        pst_tensor in = {.dtype = PST_I64, .rank = 1, .dims = {5}, .data = x}, out;
        assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, NULL), 0);
        for (int i = 0; i < 5; i++) {
            static const int64_t ascending[] = {4, 2, 0, 3, 1};
            assert_int_equal(((int64_t *)out.data)[i], ascending[largest ? 4 - i : i]);
        }
        pst_plan_free(p);
        pst_model_unref(m);
    }
}

/* An index outside is named as it was given. */
static void test_an_index_outside_is_named(void **state)
{
    for (int scatter = 0; scatter < 2; scatter++) {
        pst_onnx_builder *b = pst_onnx_new("outside", 17, 8);
        pst_onnx_input(b, "x", PST_F32, 1, (int64_t[]){3}, NULL);
        pst_onnx_ints(b, "at", 2, (int64_t[]){1, 1}, (int64_t[]){-7});
        KIT_WEIGHTS(b, "u", 1, 1);
        kit_node(b, scatter ? "ScatterND x at u > y" : "GatherND x at > y");
        pst_onnx_output(b, "y", PST_F32, 1, (int64_t[]){-1}, NULL);
        pst_model *m = kit_load(b, NULL);
        pst_plan *p = kit_plan(m, NULL, false);
        float v[3] = {0};
        pst_err err = {0};
        pst_tensor in = {.dtype = PST_F32, .rank = 1, .dims = {3}, .data = v}, out;
        assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), PST_EINVAL);
        if (!strstr(err.text, "index -7 is outside 3"))
            fail_msg("%s", err.text);
        pst_plan_free(p);
        pst_model_unref(m);
    }
}

static void test_pools(void **state)
{
    static const char *const ops[] = {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"};
    for (int round = 0; round < 300; round++) {
        const char *op = ops[round % 5];
        int n = pick(1, 2), c = pick(1, 5), dims = round % 4 == 3 ? 1 : 2, k[2], s[2], h[2], pad[4];
        for (int i = 0; i < 2; i++) {
            k[i] = pick(1, 4);
            s[i] = pick(1, 3);
            h[i] = pick(k[i], k[i] + 40);
            pad[i] = pick(0, k[i] - 1);
            pad[i + dims] = pick(0, k[i] - 1);
        }
        pst_onnx_builder *b = pst_onnx_new("pool", 17, 8);
        int64_t shape[4] = {-1, c, h[0], h[1]}, out[4] = {-1, c, -1, -1};
        pst_onnx_input(b, "x", PST_F32, 2 + dims, shape, NULL);
        char line[60];
        snprintf(line, sizeof line, "%s x > y", op);
        kit_node(b, line);
        if (*op != 'G') {
            pst_onnx_attr_ints(b, "kernel_shape", (int64_t[]){k[0], k[1]}, (size_t)dims);
            pst_onnx_attr_ints(b, "strides", (int64_t[]){s[0], s[1]}, (size_t)dims);
            pst_onnx_attr_ints(b, "pads", (int64_t[]){pad[0], pad[1], pad[2], pad[3]}, (size_t)(2 * dims));
            if (round % 3 == 0 && *op != 'L')
                pst_onnx_attr_int(b, "ceil_mode", 1);
            if (round % 2 && *op == 'A')
                pst_onnx_attr_int(b, "count_include_pad", 1);
        }
        pst_onnx_output(b, "y", PST_F32, 2 + dims, out, NULL);
        float *x = kit_floats((size_t)(n * c * h[0] * h[1]));
        if (round % 7 == 3)
            x[pick(0, n * c * h[0] - 1)] = NAN;
        if (round % 7 == 4)
            x[pick(0, n * c * h[0] - 1)] = -INFINITY;
        pst_tensor in = {.dtype = PST_F32, .rank = 2 + dims, .dims = {n, c, h[0], h[1]}, .data = x};
        char what[200];
        snprintf(what, sizeof what, "round %d: %s (%d, %d, %d, %d), kernel %d %d, stride %d %d", round, op, n, c, h[0],
                 dims == 2 ? h[1] : 0, k[0], k[1], s[0], s[1]);
        every_isa(b, &in, 1, 1, 2e-6f, what);
        free(x);
    }
}

static void test_recurrent_cells(void **state)
{
    static const char *const ops[] = {"RNN", "GRU", "LSTM"}, *const dirs[] = {"forward", "reverse", "bidirectional"};
    for (int round = 0; round < 240; round++) {
        int kind = round % 3,
            gates = kind == 0   ? 1
                    : kind == 1 ? 3
                                : 4,
            two = round / 3 % 3 == 2 ? 2 : 1, seq = pick(1, 9), batch = pick(1, round % 5 == 1 ? 130 : 5), in_n = pick(1, 20),
            hidden = pick(1, round % 5 ? 20 : 70), layout = round % 4 == 1, g = gates * hidden;
        bool lengths = round % 6 > 2 && !layout, states = round % 7 == 2 && !layout, bias = round % 2;
        pst_onnx_builder *b = pst_onnx_new("cells", 17, 8);
        float scale = 1.0f / sqrtf((float)hidden);
        pst_onnx_input(b, "x", PST_F32, 3, (int64_t[]){-1, -1, in_n}, NULL);
        KIT_WEIGHTS(b, "w", scale, two, g, in_n);
        KIT_WEIGHTS(b, "r", scale, two, g, hidden);
        KIT_WEIGHTS(b, "b", 0.3f, two, 2 * g);
        KIT_WEIGHTS(b, "h0", 0.5f, two, batch, hidden);
        KIT_WEIGHTS(b, "c0", 0.5f, two, batch, hidden);
        if (lengths)
            pst_onnx_input(b, "len", PST_I32, 1, (int64_t[]){-1}, NULL);
        char line[100];
        snprintf(line, sizeof line, "%s x w r %s %s %s%s > y yh%s", ops[kind], bias ? "b" : "-", lengths ? "len" : "-", states ? "h0" : "-",
                 states && kind == 2 ? " c0" : "", kind == 2 ? " yc" : "");
        kit_node(b, line);
        pst_onnx_attr_int(b, "hidden_size", hidden);
        pst_onnx_attr_str(b, "direction", dirs[round / 3 % 3]);
        if (layout)
            pst_onnx_attr_int(b, "layout", 1);
        if (kind == 1 && round % 2)
            pst_onnx_attr_int(b, "linear_before_reset", 1);
        if (kind == 0 && round % 2)
            pst_onnx_attr_strs(b, "activations", (const char *[]){"Relu", "Sigmoid"}, (size_t)two);
        pst_onnx_output(b, "y", PST_F32, 4, (int64_t[]){-1, -1, -1, -1}, NULL);
        pst_onnx_output(b, "yh", PST_F32, 3, (int64_t[]){-1, -1, -1}, NULL);
        if (kind == 2)
            pst_onnx_output(b, "yc", PST_F32, 3, (int64_t[]){-1, -1, -1}, NULL);
        float *x = kit_floats((size_t)(seq * batch * in_n));
        int32_t len[130];
        for (int i = 0; i < batch; i++)
            len[i] = pick(0, seq);
        pst_tensor in[2] = {{.dtype = PST_F32, .rank = 3, .dims = {layout ? batch : seq, layout ? seq : batch, in_n}, .data = x},
                            {.dtype = PST_I32, .rank = 1, .dims = {batch}, .data = len}};
        char what[200];
        snprintf(what, sizeof what, "round %d: %s %s, seq %d, batch %d, in %d, hidden %d%s%s%s", round, ops[kind], dirs[round / 3 % 3], seq,
                 batch, in_n, hidden, lengths ? ", lengths" : "", states ? ", states" : "", layout ? ", batch first" : "");
        every_isa(b, in, lengths ? 2 : 1, kind == 2 ? 3 : 2, 1e-5f, what);
        free(x);
    }
}

static void test_products(void **state)
{
    for (int round = 0; round < 120; round++) {
        int m = pick(1, 70), k = pick(1, 90), n = pick(1, 100), batch = pick(1, 4), form = round % 4;
        if (round < 4) { /* weights too large for a fused network */
            m = 5 + 13 * round;
            k = 1030;
            n = 1100;
        }
        pst_onnx_builder *b = pst_onnx_new("product", 17, 8);
        float *x = kit_floats((size_t)(batch * m * k)), *z = kit_floats((size_t)(batch * k * n));
        pst_tensor in[2] = {{.dtype = PST_F32, .rank = 3, .dims = {batch, m, k}, .data = x},
                            {.dtype = PST_F32, .rank = 3, .dims = {batch, k, n}, .data = z}};
        KIT_WEIGHTS(b, "w", 1, k, n);
        KIT_WEIGHTS(b, "wt", 1, n, k);
        KIT_WEIGHTS(b, "c", 1, n);
        if (form == 3) {
            in[0].rank = 2;
            in[0].dims[0] = m;
            in[0].dims[1] = k;
            pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, k}, NULL);
            pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, n}, NULL);
            kit_node(b, "Gemm x wt c > y");
            pst_onnx_attr_int(b, "transB", 1);
            pst_onnx_attr_float(b, "beta", 0.5f);
        } else {
            pst_onnx_input(b, "x", PST_F32, 3, (int64_t[]){-1, -1, k}, NULL);
            if (form == 0)
                pst_onnx_input(b, "z", PST_F32, 3, (int64_t[]){-1, k, n}, NULL);
            pst_onnx_output(b, "y", PST_F32, 3, (int64_t[]){-1, -1, n}, NULL);
            kit_node(b, form == 0 ? "MatMul x z > y" : "MatMul x w > y");
            if (form == 1) { /* two readers keep the product out of a chain */
                pst_onnx_output(b, "y2", PST_F32, 3, (int64_t[]){-1, -1, n}, NULL);
                kit_node(b, "Relu y > y2");
            }
        }
        char what[120];
        snprintf(what, sizeof what, "round %d: form %d, %d x (%d, %d) x %d", round, form, batch, m, k, n);
        every_isa(b, in, form == 0 ? 2 : 1, form == 1 ? 2 : 1, round < 4 ? 2e-4f : 2e-5f, what);
        free(x);
        free(z);
    }
}

static void test_attention(void **state)
{
    for (int round = 0; round < 120; round++) {
        int batch = pick(1, 2), kv = pick(1, 3), heads = kv * pick(1, 2), sq = pick(1, round % 5 ? 12 : 90), sk = pick(sq, sq + 20),
            d = pick(1, 20), dv = pick(1, 20), masked = round % 3;
        pst_onnx_builder *b = pst_onnx_new("attention", 23, 11);
        pst_onnx_input(b, "q", PST_F32, 3, (int64_t[]){-1, -1, heads * d}, NULL);
        pst_onnx_input(b, "k", PST_F32, 3, (int64_t[]){-1, -1, kv * d}, NULL);
        pst_onnx_input(b, "v", PST_F32, 3, (int64_t[]){-1, -1, kv * dv}, NULL);
        if (masked == 1)
            pst_onnx_input(b, "mask", PST_F32, 2, (int64_t[]){-1, -1}, NULL);
        if (masked == 2)
            pst_onnx_input(b, "mask", PST_BOOL, 4, (int64_t[]){-1, 1, -1, -1}, NULL);
        kit_node(b, masked ? "Attention q k v mask > y" : "Attention q k v > y");
        pst_onnx_attr_int(b, "q_num_heads", heads);
        pst_onnx_attr_int(b, "kv_num_heads", kv);
        if (round % 4 == 1)
            pst_onnx_attr_int(b, "is_causal", 1);
        if (round % 7 == 2)
            pst_onnx_attr_float(b, "softcap", 2.0f);
        pst_onnx_output(b, "y", PST_F32, 3, (int64_t[]){-1, -1, heads * dv}, NULL);
        float *q = kit_floats((size_t)(batch * sq * heads * d)), *k = kit_floats((size_t)(batch * sk * kv * d)),
              *v = kit_floats((size_t)(batch * sk * kv * dv)), *mask = kit_floats((size_t)(batch * sq * sk));
        uint8_t *seen = malloc((size_t)(batch * sq * sk));
        for (int i = 0; i < batch * sq * sk; i++)
            seen[i] = i / sk % 5 != 1 && kit_next() % 4; /* some rows see nothing */
        pst_tensor in[4] = {{.dtype = PST_F32, .rank = 3, .dims = {batch, sq, heads * d}, .data = q},
                            {.dtype = PST_F32, .rank = 3, .dims = {batch, sk, kv * d}, .data = k},
                            {.dtype = PST_F32, .rank = 3, .dims = {batch, sk, kv * dv}, .data = v},
                            {.dtype = PST_F32, .rank = 2, .dims = {sq, sk}, .data = mask}};
        if (masked == 2)
            in[3] = (pst_tensor){.dtype = PST_BOOL, .rank = 4, .dims = {batch, 1, sq, sk}, .data = seen};
        char what[160];
        snprintf(what, sizeof what, "round %d: batch %d, %d of %d heads, %d queries, %d keys, %d and %d wide, mask %d", round, batch, heads,
                 kv, sq, sk, d, dv, masked);
        every_isa(b, in, masked ? 4 : 3, 1, 1e-5f, what);
        free(q);
        free(k);
        free(v);
        free(mask);
        free(seen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_convolutions_with_pools),
        cmocka_unit_test(test_large_convolutions),
        cmocka_unit_test(test_cache_updates_stay_inside),
        cmocka_unit_test(test_top_of_large_integers),
        cmocka_unit_test(test_an_index_outside_is_named),
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_recurrent_cells),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
