/* The vector kernels against their readable twins, on every instruction set of this machine. */
#include "common/base/err.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/isa.h"
#include "tests/unit/engine_kit.h"

#include <malloc.h>

static const char *const isas[] = {"portable", "avx2", "avx512", "lowered"};
#if defined(__x86_64__)
extern const eng_cpu_kernels pst_kernels_lowered; /* the 512-bit text on narrower vectors */
#endif

static uint32_t seed = 12345;

/* NULL, with a word about it once, where this CPU lacks it. The numbers drawn after it are the same for each. */
static const eng_cpu_kernels *kernels_of(size_t i)
{
    seed = 12345;
    static bool said[4];
    const eng_cpu_kernels *k = eng_kernels_pick(isas[i]);
#if defined(__x86_64__)
    if (!strcmp(isas[i], "lowered") && pst_kernels_lowered.supported())
        k = &pst_kernels_lowered;
#endif
    if (!k && !said[i])
        printf("skipped: this CPU has no %s. Cure: run on one that has\n", isas[i]);
    said[i] = true;
    return k;
}

static float rnd(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)seed / 2147483648.0f;
}

static float *rnds(size_t n)
{
    float *p = malloc((n + 1) * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = rnd();
    return p;
}

static void close_to(float got, float want, float tol)
{
    if (!(fabsf(got - want) <= tol * (1 + fabsf(want))) && !(isnan(got) && isnan(want)))
        fail_msg("%.9g, expected %.9g", (double)got, (double)want);
}

/* One product in all its forms: as it lies or turned, packed before or on the way. c has a margin that must stay. */
static void check_product(const eng_cpu_kernels *kn, int m, int n, int d, int mode)
{
    bool ta = mode & 1, tb = mode & 2, packed = mode & 8;
    float alpha = mode & 4 ? 0.5f : 1, beta = mode & 4 ? 2.0f : 0;
    int ldc = n + 3, lda = (ta ? m : d) + 2, ldb = (tb ? d : n) + 1;
    float *a = rnds((size_t)(ta ? d : m) * (size_t)lda), *b = rnds((size_t)(tb ? n : d) * (size_t)ldb), *c = rnds((size_t)(m * ldc)),
          *want = malloc((size_t)(m * ldc) * sizeof *want), *room = aligned_alloc(64, (eng_packed_floats(kn, n, d) * 4 + 127) / 64 * 64);
    if (beta == 0) /* what was there is not read */
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++)
                c[i * ldc + j] = NAN;
    memcpy(want, c, (size_t)(m * ldc) * sizeof *want);
    eng_sgemm_ref(ta, tb, m, n, d, alpha, a, lda, b, ldb, beta, want, ldc);
    if (packed) {
        eng_packed p;
        eng_sgemm_pack(kn, tb, n, d, b, ldb, room, &p);
        eng_sgemm_packed(&p, m, alpha, a, lda, beta, c, ldc);
    } else {
        eng_sgemm_isa(kn, ta, tb, m, n, d, alpha, a, lda, b, ldb, beta, c, ldc);
    }
    for (int i = 0; i < m * ldc; i++)
        close_to(c[i], want[i], i % ldc < n ? 2e-5f : 0);
    free(a);
    free(b);
    free(c);
    free(want);
    free(room);
}

static void test_gemm_every_isa_equals_the_reference(void **state)
{
    static const int sizes[][3] = {{1, 1, 1},  {1, 64, 30},   {1, 200, 5},    {2, 97, 41},   {3, 17, 5},     {4, 33, 100},  {5, 31, 7},
                                   {6, 16, 8}, {7, 129, 300}, {64, 64, 64},   {8, 30, 64},   {150, 70, 260}, {13, 1100, 9}, {2, 3, 0},
                                   {25, 1, 9}, {300, 5, 700}, {29, 130, 530}, {1, 40, 1500}, {700, 33, 17}};
    for (size_t k = 0; k < sizeof isas / sizeof *isas; k++) {
        const eng_cpu_kernels *kn = kernels_of(k);
        for (size_t s = 0; kn && s < sizeof sizes / sizeof *sizes; s++)
            for (int mode = 0; mode < 16; mode++)
                if (!(mode & 8) || !(mode & 1))
                    check_product(kn, sizes[s][0], sizes[s][1], sizes[s][2], mode);
    }
}

/* A score must not depend on where a column stands: columns that are equal give results that are equal to the bit. */
static void test_equal_columns_give_equal_results(void **state)
{
    enum { K = 203, N_MAX = 150, M_MAX = 8 };
    static float a[M_MAX * K], b[K * N_MAX], c[M_MAX * N_MAX], packed[(N_MAX + 64) * K];
    for (int i = 0; i < M_MAX * K; i++)
        a[i] = sinf((float)i) * 100;
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        const eng_cpu_kernels *kn = kernels_of(isa);
        for (int m = 1; kn && m <= M_MAX; m++)
            for (int n = 1; n <= N_MAX; n++)
                for (int way = 0; way < 2; way++) {
                    eng_packed p;
                    for (int i = 0; i < K * n; i++)
                        b[i] = cosf((float)(i / n));
                    eng_sgemm_pack(kn, false, n, K, b, n, packed, &p);
                    if (way)
                        eng_sgemm_packed(&p, m, 1, a, K, 0, c, n);
                    else
                        eng_sgemm_isa(kn, false, false, m, n, K, 1, a, K, b, n, 0, c, n);
                    for (int i = 0; i < m * n; i++)
                        assert_true(c[i] == c[i / n * n]);
                }
    }
}

/* To [0, 1]; NaN stays. */
static float clipped(float v)
{
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

static void test_activations_every_isa_equal_libm(void **state)
{
    float x[203], y[203];
    for (int i = 0; i < 200; i++)
        x[i] = (float)(i - 100) * (i % 3 ? 0.013f : 1.1f);
    x[200] = NAN;
    x[201] = 1000;
    x[202] = -1000;
    for (size_t k = 0; k < sizeof isas / sizeof *isas; k++) {
        const eng_cpu_kernels *kn = kernels_of(k);
        if (!kn)
            continue;
        for (int act = ENG_ACT_NONE; act <= ENG_ACT_LAST; act++) {
            kn->act((eng_act)act, 0.3f, 0.6f, x, y, 203);
            for (int i = 0; i < 203; i++) {
                float v = x[i], want = v;
                switch (act) {
                case ENG_ACT_RELU: want = v < 0 ? 0 : v; break;
                case ENG_ACT_LEAKY: want = v < 0 ? 0.3f * v : v; break;
                case ENG_ACT_ELU: want = v < 0 ? 0.3f * expm1f(v) : v; break;
                case ENG_ACT_SIGMOID: want = 1 / (1 + expf(-v)); break;
                case ENG_ACT_TANH: want = tanhf(v); break;
                case ENG_ACT_CLIP: want = v < 0.3f ? 0.3f : v > 0.6f ? 0.6f : v; break;
                case ENG_ACT_HARDSIGMOID: want = clipped(0.3f * v + 0.6f); break;
                case ENG_ACT_HARDSWISH: want = v * clipped(v / 6 + 0.5f); break;
                case ENG_ACT_SWISH: want = v / (1 + expf(-0.3f * v)); break;
                default: break;
                }
                close_to(y[i], want, 3e-7f);
            }
        }
    }
}

/* Sigmoid and tanh keep small results good to their own size, not only to 1. */
static void test_small_results_of_activations_are_good_to_their_size(void **state)
{
    enum { N = 4000 };
    static float x[N], y[N];
    for (int i = 0; i < N; i++)
        x[i] = (i % 2 ? 1.0f : -1.0f) * expf(-20 + 24.3f * (float)i / N); /* to ±73 */
    for (size_t k = 0; k < sizeof isas / sizeof *isas; k++) {
        const eng_cpu_kernels *kn = kernels_of(k);
        for (int act = ENG_ACT_SIGMOID; kn && act <= ENG_ACT_TANH; act++) {
            kn->act((eng_act)act, 0, 0, x, y, N);
            for (int i = 0; i < N; i++) {
                double v = (double)x[i], want = act == ENG_ACT_TANH ? tanh(v) : 1 / (1 + exp(-v)),
                       tol = act == ENG_ACT_SIGMOID && v < -10 ? 5e-6 : 1e-6; /* e^-v: its argument is rounded */
                if (!(fabs((double)y[i] - want) <= tol * fabs(want)))
                    fail_msg("%s, activation %d of %.9g: %.9g, expected %.9g", kn->isa, act, v, (double)y[i], want);
            }
        }
    }
}

/* A step of LSTM cells in both forms, gates made on the way and before, beside the formula. */
static void check_lstm(const eng_cpu_kernels *kn, int rows, int hidden, int in)
{
    int lanes = kn->lanes, units = (hidden + lanes - 1) / lanes * lanes, k = in + hidden, g = 4 * units;
    float *x = rnds((size_t)(rows * k)), *c = rnds((size_t)(rows * units)), *c2 = malloc((size_t)(rows * units) * 4),
          *bias = rnds((size_t)g), *h = rnds((size_t)(rows * units)), *h2 = rnds((size_t)(rows * units)), *w = rnds((size_t)(g * k)),
          *gates = malloc((size_t)(rows * g) * 4), *room = aligned_alloc(64, (eng_packed_floats(kn, g, k) * 4 + 127) / 64 * 64);
    float *was = malloc((size_t)(rows * units) * 4);
    for (int i = 0; i < g; i++)
        bias[i] *= i % 5 ? 1.0f : 30.0f; /* some gates shut, some wide open */
    memcpy(was, c, (size_t)(rows * units) * 4);
    memcpy(c2, c, (size_t)(rows * units) * 4);
    eng_packed packed;
    eng_sgemm_pack(kn, false, g, k, w, g, room, &packed);
    kn->lstm_step(&(eng_lstm_step){
        .rows = rows, .units = units, .k = k, .x = x, .w = room, .bias = bias, .ldx = k, .ldc = units, .ldh = units, .c = c, .h = h});
    for (int r = 0; r < rows; r++)
        memcpy(gates + r * g, bias, (size_t)g * 4);
    eng_sgemm_ref(false, false, rows, g, k, 1, x, k, w, g, 1, gates, g);
    for (int r = 0; r < rows; r++)
        for (int u = 0; u < units; u++) {
            const float *at = gates + r * g + u / lanes * 4 * lanes + u % lanes;
            double in_gate = 1 / (1 + exp((double)at[0])), out = 1 / (1 + exp((double)at[lanes])),
                   keep = 1 / (1 + exp((double)at[2 * lanes])),
                   cell = keep * (double)was[r * units + u] + in_gate * tanh((double)at[3 * lanes] / 2);
            close_to(c[r * units + u], (float)cell, 3e-6f);
            close_to(h[r * units + u], (float)(out * tanh(cell)), 3e-6f);
        }
    kn->lstm(rows, units, gates, g, c2, units, h2, units);
    for (int i = 0; i < rows * units; i++) {
        close_to(c2[i], c[i], 3e-6f);
        close_to(h2[i], h[i], 3e-6f);
    }
    void *all[] = {x, c, c2, bias, h, h2, w, gates, room, was};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void test_lstm_cells_every_isa_equal_the_formula(void **state)
{
    static const int sizes[][3] = {{1, 1, 1}, {2, 5, 3}, {3, 8, 7}, {5, 17, 1}, {7, 16, 20}, {13, 40, 9}, {31, 64, 16}, {50, 3, 2}};
    for (size_t k = 0; k < sizeof isas / sizeof *isas; k++) {
        const eng_cpu_kernels *kn = kernels_of(k);
        for (size_t s = 0; kn && s < sizeof sizes / sizeof *sizes; s++)
            check_lstm(kn, sizes[s][0], sizes[s][1], sizes[s][2]);
    }
}

/* scaler → dense → act → … with every fusable step somewhere */
static void build(pst_buf *buf, const int *widths, int n, const char *act, bool scaler, bool matmul)
{
    pst_onnx_builder *b = pst_onnx_new("mlp", 17, 8);
    char x[32] = "x", y[32], w[32], c[32];
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, widths[0]}, "N");
    if (scaler) {
        float *mean = rnds((size_t)widths[0]), *std = rnds((size_t)widths[0]);
        for (int i = 0; i < widths[0]; i++)
            std[i] = fabsf(std[i]) + 0.1f;
        pst_onnx_floats(b, "mean", 1, (int64_t[]){widths[0]}, mean);
        pst_onnx_floats(b, "std", 2, (int64_t[]){1, widths[0]}, std);
        pst_onnx_node(b, "Sub", (const char *[]){"x", "mean"}, 2, (const char *[]){"x1"}, 1);
        pst_onnx_node(b, "Div", (const char *[]){"x1", "std"}, 2, (const char *[]){"x2"}, 1);
        strcpy(x, "x2");
        free(mean);
        free(std);
    }
    for (int i = 1; i < n; i++) {
        float *wd = rnds((size_t)(widths[i] * widths[i - 1])), *bias = rnds((size_t)widths[i]);
        for (int k = 0; k < widths[i] * widths[i - 1];
             k++) /* activations stay near 1: sums that cancel would test the order of summation */
            wd[k] *= sqrtf(3.0f / (float)widths[i - 1]);
        snprintf(w, sizeof w, "w%d", i);
        snprintf(c, sizeof c, "b%d", i);
        snprintf(y, sizeof y, "h%d", i);
        pst_onnx_floats(b, c, 1, (int64_t[]){widths[i]}, bias);
        if (matmul) {
            pst_onnx_floats(b, w, 2, (int64_t[]){widths[i - 1], widths[i]}, wd);
            pst_onnx_node(b, "MatMul", (const char *[]){x, w}, 2, (const char *[]){y}, 1);
            snprintf(x, sizeof x, "a%d", i);
            pst_onnx_node(b, "Add", (const char *[]){c, y}, 2, (const char *[]){x}, 1);
            strcpy(y, x);
        } else {
            pst_onnx_floats(b, w, 2, (int64_t[]){widths[i], widths[i - 1]}, wd);
            pst_onnx_node(b, "Gemm", (const char *[]){x, w, c}, 3, (const char *[]){y}, 1);
            pst_onnx_attr_int(b, "transB", 1);
            pst_onnx_attr_float(b, "alpha", 0.75f);
        }
        snprintf(x, sizeof x, "%s%d", i == n - 1 ? "out" : "r", i);
        pst_onnx_node(b, act, (const char *[]){y}, 1, (const char *[]){x}, 1);
        free(wd);
        free(bias);
    }
    pst_onnx_output(b, x, PST_F32, 2, (int64_t[]){-1, widths[n - 1]}, "N");
    pst_onnx_meta(b, "made_by", "test");
    pst_onnx_write(b, buf);
    pst_onnx_free(b);
}

static void test_fused_networks_equal_the_reference_on_every_isa(void **state)
{
    static const int nets[][5] = {{30, 64, 32, 64, 30}, {784, 32, 32, 32, 10}, {1, 1, 1, 1, 1},
                                  {7, 100, 3, 17, 2},   {16, 16, 16, 16, 16},  {5, 200, 33, 65, 129}};
    static const char *const acts[] = {"Relu", "LeakyRelu", "Elu", "Sigmoid", "Tanh", "Identity"};
    for (size_t k = 0; k < sizeof nets / sizeof *nets; k++)
        for (size_t a = 0; a < sizeof acts / sizeof *acts; a++) {
            pst_buf b = {0};
            pst_err err = {0};
            build(&b, nets[k], 5, acts[a], (k + a) % 2, a % 3 == 1);
            pst_model *m = kit_load_bytes(&b, NULL, NULL);
            pst_plan *ref = kit_plan(m, NULL, true);
            for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
                if (!eng_kernels_pick(isas[i]))
                    continue;
                seed = 12345;
                pst_plan *p = kit_plan(m, isas[i], false);
                char *text = pst_plan_explain(p);
                assert_non_null(strstr(text, "FusedMLP"));
                assert_non_null(strstr(text, "1 step left"));
                free(text);
                for (int rows = 1; rows < 140; rows += rows < 27 ? 1 : 37) { /* up to 64 rows go straight to the kernel */
                    float *x = rnds((size_t)(rows * nets[k][0]));
                    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {rows, nets[k][0]}, .data = x}, want, got;
                    assert_int_equal(pst_plan_run(ref, &in, 1, &want, 1, &err), 0);
                    assert_int_equal(pst_plan_run(p, &in, 1, &got, 1, &err), 0);
                    assert_int_equal(got.dims[0], rows);
                    assert_int_equal(got.dims[1], nets[k][4]);
                    for (int q = 0; q < rows * nets[k][4]; q++)
                        close_to(((float *)got.data)[q], ((float *)want.data)[q], 2e-4f);
                    free(x);
                }
                pst_plan_free(p);
            }
            pst_plan_free(ref);
            pst_model_unref(m);
            pst_buf_done(&b);
        }
}

/* The kernel alone, on steps made here: every instruction set, also the one no plan can name; nothing beyond the results is written. */
static void test_fused_steps_equal_plain_loops(void **state)
{
    enum { IN = 19, MID = 45, OUT = 30, ROWS = 131 };
    for (size_t k = 0; k < sizeof isas / sizeof *isas; k++) {
        const eng_cpu_kernels *kn = kernels_of(k);
        for (int rows = 1; kn && rows <= ROWS; rows += rows < 30 ? 1 : 20) {
            float *w1 = rnds(IN * MID), *w2 = rnds(MID * OUT), *x = rnds((size_t)(rows * IN)), *shift = rnds(64), *v1 = rnds(128),
                  *v2 = rnds(128), *room = aligned_alloc(64, 65536),
                  *work = aligned_alloc(64, (eng_mlp_work_floats(kn, MID) * 4 + 63) / 64 * 64);
            float *y = rnds((size_t)(rows * OUT + 8)), *keep = malloc(8 * sizeof(float));
            memcpy(keep, y + rows * OUT, 8 * sizeof *keep);
            eng_packed p1, p2;
            eng_sgemm_pack(kn, false, MID, IN, w1, MID, room, &p1);
            eng_sgemm_pack(kn, false, OUT, MID, w2, OUT, room + 4096, &p2);
            eng_fused_step steps[] = {{.kind = ENG_FUSED_SUB, .in = IN, .out = IN, .v = shift},
                                      {.kind = ENG_FUSED_DENSE, .act = ENG_ACT_RELU, .in = IN, .out = MID, .w = p1.data, .v = v1},
                                      {.kind = ENG_FUSED_DENSE, .act = ENG_ACT_TANH, .in = MID, .out = OUT, .w = p2.data, .v = v2}};
            kn->mlp(steps, 3, MID, x, (size_t)rows, y, work);
            for (int r = 0; r < rows; r++) {
                double mid[MID];
                for (int j = 0; j < MID; j++) {
                    mid[j] = (double)v1[j];
                    for (int i = 0; i < IN; i++)
                        mid[j] += (double)(x[r * IN + i] - shift[i]) * (double)w1[i * MID + j];
                    mid[j] = mid[j] < 0 ? 0 : mid[j];
                }
                for (int j = 0; j < OUT; j++) {
                    double s = (double)v2[j];
                    for (int i = 0; i < MID; i++)
                        s += mid[i] * (double)w2[i * OUT + j];
                    close_to(y[r * OUT + j], (float)tanh(s), 2e-5f);
                }
            }
            assert_memory_equal(keep, y + rows * OUT, 8 * sizeof *keep);
            float *all[] = {w1, w2, x, shift, v1, v2, room, work, y, keep};
            for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                free(all[i]);
        }
    }
}

/* Rows of convolutions, windows over them and planes of them, alone: every instruction set; nothing beyond the results is written. */
static void test_filters_in_the_lanes_equal_plain_loops(void **state)
{
    enum { ROWS = 3, K = 11, WIDE = 64, KEPT = 8 };
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        const eng_cpu_kernels *kn = kernels_of(i);
        for (int round = 0; kn && round < 400; round++) {
            int m = 1 + round * 7 % 67, n = 1 + round % 29, k = round % 5 ? K : 1 + round % 3, step = 1 + round % 3,
                pixel = (m + kn->lanes - 1) / kn->lanes * kn->lanes, panels = (m + kn->nr - 1) / kn->nr, ldx = n * step + WIDE,
                ldy = n * pixel + 5;
            bool relu = round % 2;
            int32_t off[K];
            for (int q = 0; q < K; q++)
                off[q] = q * 13 % WIDE;
            float *w = rnds((size_t)(m * k)), *x = rnds((size_t)(ROWS * ldx)), *y = rnds((size_t)(ROWS * ldy + 8 * pixel)),
                  *bias = rnds((size_t)(panels * kn->nr)), *room = aligned_alloc(64, (eng_packed_floats(kn, m, k) * 4 + 63) / 64 * 64),
                  *kept = malloc(KEPT * sizeof *kept);
            eng_packed packed;
            eng_sgemm_pack(kn, true, m, k, w, k, room, &packed);
            memcpy(kept, y + ROWS * ldy - 5, 5 * sizeof *kept);
            kn->conv_rows(&(eng_conv_rows){.rows = ROWS,
                                           .n = n,
                                           .m = m,
                                           .k = k,
                                           .x = x,
                                           .ldx = ldx,
                                           .step = step,
                                           .off = off,
                                           .w = packed.data,
                                           .bias = bias,
                                           .relu = relu,
                                           .y = y,
                                           .ldy = ldy});
            assert_memory_equal(kept, y + ROWS * ldy - 5, 5 * sizeof *kept);
            for (int r = 0; r < ROWS; r++)
                for (int p = 0; p < n; p++)
                    for (int f = 0; f < m; f++) {
                        double sum = (double)bias[f];
                        for (int q = 0; q < k; q++)
                            sum += (double)w[f * k + q] * (double)x[r * ldx + p * step + off[q]];
                        close_to(y[r * ldy + p * pixel + f], relu && sum < 0 ? 0 : (float)sum, 1e-5f);
                    }
            if (round % 9 == 1)
                y[round % n * pixel] = NAN;
            int kw = n < 3 ? 1 : 1 + round % 3, windows = (n - kw) / step + 1;
            float *top = rnds((size_t)(windows * pixel + KEPT));
            memcpy(kept, top + windows * pixel, KEPT * sizeof *kept);
            kn->pool_rows(windows, pixel, y, ldy, 1 + round % ROWS, kw, step, top);
            assert_memory_equal(kept, top + windows * pixel, KEPT * sizeof *kept);
            for (int p = 0; p < windows; p++)
                for (int f = 0; f < m; f++) {
                    float want = -INFINITY;
                    for (int q = 0; q < (1 + round % ROWS) * kw; q++) {
                        float v = y[q / kw * ldy + (p * step + q % kw) * pixel + f];
                        want = v > want || v != v ? v : want;
                    }
                    close_to(top[p * pixel + f], want, 0);
                }
            float *planes = rnds((size_t)(m * (n + 1))), *add = rnds((size_t)(m * (n + 1))), *with = round % 3 ? add : NULL;
            memcpy(kept, planes + n, sizeof *kept);
            kn->turn(n, m, y, pixel, with, relu, planes, n + 1);
            assert_memory_equal(kept, planes + n, sizeof *kept);
            for (int f = 0; f < m; f++)
                for (int p = 0; p < n; p++) {
                    float want = y[p * pixel + f] + (with ? add[f * (n + 1) + p] : 0);
                    close_to(planes[f * (n + 1) + p], relu && want < 0 ? 0 : want, 0);
                }
            float *all[] = {w, x, y, bias, room, kept, top, planes, add};
            for (size_t q = 0; q < sizeof all / sizeof *all; q++)
                free(all[q]);
        }
    }
}

static void test_a_fused_run_takes_nothing_from_the_heap(void **state)
{
    pst_buf b = {0};
    static const int net[] = {30, 64, 32, 64, 30};
    static float x[30 * 512];
    pst_err err = {0};
    build(&b, net, 5, "Relu", true, false);
    pst_model *m = kit_load_bytes(&b, NULL, NULL);
    pst_plan *p = kit_plan(m, NULL, false);
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {512, 30}, .data = x}, out;
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), 0);
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), 0);
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < 100; i++)
        assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), 0);
    struct mallinfo2 after = mallinfo2();
    assert_int_equal(before.uordblks, after.uordblks);
    pst_plan_free(p);
    pst_model_unref(m);
    pst_buf_done(&b);
}

static void test_errors_say_what_was_given_and_wanted(void **state)
{
    pst_buf b = {0};
    static const int net[] = {3, 4, 4, 4, 2};
    float x[12] = {0};
    pst_err err = {0};
    build(&b, net, 5, "Relu", false, false);
    pst_model *m = kit_load_bytes(&b, NULL, NULL);
    pst_plan *p = kit_plan(m, NULL, false);
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {3, 4}, .data = x}, out;
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "(3, 4)"));
    assert_non_null(strstr(err.text, "(N, 3)"));
    pst_err_clear(&err);
    in = (pst_tensor){.dtype = PST_F64, .rank = 2, .dims = {4, 3}, .data = x};
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "float64"));
    const pst_model_info *info = pst_model_info_get(m);
    assert_int_equal(info->n_inputs, 1);
    assert_int_equal(info->inputs[0].dims[0], -1);
    assert_int_equal(info->opset, 17);
    assert_int_equal(info->n_parameters, 3 * 4 + 4 + 4 * 4 + 4 + 4 * 4 + 4 + 4 * 2 + 2);
    assert_string_equal(info->producer, "penstock");
    assert_string_equal(pst_model_meta(m, "made_by"), "test");
    assert_null(pst_model_meta(m, "nothing"));
    pst_plan_free(p);
    pst_model_unref(m);
    pst_buf_done(&b);
}

static void test_cut_and_changed_files_are_refused_or_run(void **state)
{
    pst_buf b = {0};
    static const int net[] = {3, 4, 4, 4, 2};
    build(&b, net, 5, "Relu", true, false);
    for (size_t cut = 0; cut < b.len; cut++) {
        pst_model *m = NULL;
        pst_err err = {0};
        if (pst_model_load(b.data, cut, NULL, NULL, &m, &err) == 0)
            pst_model_unref(m);
        else
            assert_true(err.cls == PST_CLASS_DATA && err.text[0]);
    }
    for (size_t at = 0; at < b.len; at++) {
        char old = b.data[at];
        pst_model *m = NULL;
        pst_plan *p = NULL;
        pst_err err = {0};
        b.data[at] = (char)(old ^ (1 << (at % 8)));
        if (pst_model_load(b.data, b.len, NULL, NULL, &m, &err) == 0 && pst_plan_new(m, NULL, &p, &err) == 0) {
            float x[12] = {0};
            pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {4, 3}, .data = x}, out;
            pst_plan_run(p, &in, 1, &out, 1, &err);
        }
        pst_plan_free(p);
        pst_model_unref(m);
        b.data[at] = old;
    }
    pst_model_limits few = {.nodes_max = 3}, small = {.file_bytes_max = 100}, tensor = {.tensor_bytes_max = 8};
    pst_model *m = NULL;
    pst_err err = {0};
    assert_int_equal(pst_model_load(b.data, b.len, NULL, &few, &m, &err), PST_ELIMIT);
    assert_int_equal(pst_model_load(b.data, b.len, NULL, &small, &m, &err), PST_ELIMIT);
    assert_int_equal(pst_model_load(b.data, b.len, NULL, &tensor, &m, &err), PST_ELIMIT);
    pst_buf_done(&b);
}

int main(int argc, char **argv)
{
    if (argc > 1) { /* writes the test network, for checks with other tools */
        static const int net[] = {30, 64, 32, 64, 30};
        pst_buf b = {0};
        build(&b, net, 5, argc > 2 ? argv[2] : "Relu", true, argc > 3);
        FILE *f = fopen(argv[1], "wb");
        return !f || fwrite(b.data, 1, b.len, f) != b.len || fclose(f);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm_every_isa_equals_the_reference),
        cmocka_unit_test(test_equal_columns_give_equal_results),
        cmocka_unit_test(test_activations_every_isa_equal_libm),
        cmocka_unit_test(test_small_results_of_activations_are_good_to_their_size),
        cmocka_unit_test(test_lstm_cells_every_isa_equal_the_formula),
        cmocka_unit_test(test_fused_networks_equal_the_reference_on_every_isa),
        cmocka_unit_test(test_fused_steps_equal_plain_loops),
        cmocka_unit_test(test_filters_in_the_lanes_equal_plain_loops),
        cmocka_unit_test(test_a_fused_run_takes_nothing_from_the_heap),
        cmocka_unit_test(test_errors_say_what_was_given_and_wanted),
        cmocka_unit_test(test_cut_and_changed_files_are_refused_or_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
