/* kernels.c - the engine's kernels against what this core can do and against OpenBLAS; figures for RESULTS.md.
 *
 *     bench_kernels peak                    GFLOP/s of multiply-adds, per instruction set
 *     bench_kernels mlp [isa]               the autoencoder 30-64-32-64-30 and Crayfish's FFNN through a plan: ns a row, share of the peak
 *     bench_kernels gemm [LIBRARY] [m]      matrix products beside OpenBLAS (a shared library, loaded at run time; one thread)
 *     bench_kernels conv                    convolutions with Relu, and which kernel served; build with PST_WITH_DNNL=ON and OFF to compare
 *     bench_kernels rnn                     LSTM and GRU beside their plain twins
 *
 * CPU time of the process, so that a peer's own threads count; best of many, interleaved. Useful operations are counted: padding is not. Outputs are compared
 * before anything is timed. */
#include "engine/cpu/gemm.h"
#include "engine/cpu/isa.h"
#include "engine/onnx_export.h"
#include "engine/penstock_engine.h"
#include "tests/bench/peak.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *rnds(size_t n, float scale)
{
    static uint32_t seed = 12345;
    float *p = aligned_alloc(64, (n * sizeof *p + 127) / 64 * 64);
    for (size_t i = 0; p && i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (float)(int32_t)seed / 2147483648.0f * scale;
    }
    if (!p)
        abort();
    return p;
}

/* ---- fused networks ---- */

static pst_plan *make_mlp(const int *widths, int n, const char *isa, pst_model **ret_model)
{
    pst_onnx_builder *b = pst_onnx_new("mlp", 17, 8);
    char x[16] = "x", y[16], w[16], c[16];
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, widths[0]}, "N");
    for (int i = 1; i < n; i++) {
        float *wd = rnds((size_t)(widths[i] * widths[i - 1]), sqrtf(3.0f / (float)widths[i - 1])), *bias = rnds((size_t)widths[i], 1);
        snprintf(w, sizeof w, "w%d", i);
        snprintf(c, sizeof c, "b%d", i);
        snprintf(y, sizeof y, i == n - 1 ? "out" : "h%d", i);
        pst_onnx_floats(b, c, 1, (int64_t[]){widths[i]}, bias);
        pst_onnx_floats(b, w, 2, (int64_t[]){widths[i], widths[i - 1]}, wd);
        pst_onnx_node(b, "Gemm", (const char *[]){x, w, c}, 3, (const char *[]){y}, 1);
        pst_onnx_attr_int(b, "transB", 1);
        if (i < n - 1) {
            snprintf(x, sizeof x, "r%d", i);
            pst_onnx_node(b, "Relu", (const char *[]){y}, 1, (const char *[]){x}, 1);
        }
        free(wd);
        free(bias);
    }
    pst_onnx_output(b, "out", PST_F32, 2, (int64_t[]){-1, widths[n - 1]}, "N");
    pst_buf buf = {0};
    pst_err err = {0};
    pst_plan *p = NULL;
    pst_plan_opts opts = {.isa = isa};
    pst_onnx_write(b, &buf);
    pst_onnx_free(b);
    if (pst_model_load(buf.data, buf.len, NULL, NULL, ret_model, &err) < 0 || pst_plan_new(*ret_model, &opts, &p, &err) < 0) {
        fprintf(stderr, "bench_kernels: %s\n", err.text);
        exit(1);
    }
    pst_buf_done(&buf);
    return p;
}

/* Best time of a row; *ret_peak: the best the core did in between. */
static double time_plan(pst_plan *p, const float *x, int cols, int batch, int distinct, const char *isa, double *ret_peak)
{
    double best = 1e18, peak;
    *ret_peak = 0;
    pst_tensor out;
    int calls = 200000 / (batch * cols) + 1;
    calls = calls < 4 ? 4 : calls;
    for (int rep = 0, at = 0; rep < 60; rep++) {
        double t = pst_cpu_ns();
        for (int i = 0; i<calls; i++, at = at + 2 * batch> distinct ? 0 : at + batch) {
            pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {batch, cols}, .data = (void *)(x + (size_t)at * (size_t)cols)};
            if (pst_plan_run(p, &in, 1, &out, 1, NULL) < 0)
                exit(1);
        }
        t = (pst_cpu_ns() - t) / calls / batch;
        best = t < best ? t : best;
        peak = pst_peak_sample(isa);
        *ret_peak = peak > *ret_peak ? peak : *ret_peak;
    }
    return best;
}

static int bench_mlp(const char *isa)
{
    static const int ae[] = {30, 64, 32, 64, 30}, ffnn[] = {784, 32, 32, 32, 32, 10}, batches[] = {1, 2, 4, 8, 16, 64, 512, 4096};
    isa = isa ? isa : pst_engine_isa();
    for (int net = 0; net < 2; net++) {
        const int *w = net ? ffnn : ae, n = net ? 6 : 5, distinct = 50000;
        pst_model *m = NULL;
        pst_plan *p = make_mlp(w, n, isa, &m);
        float *x = rnds((size_t)distinct * (size_t)w[0], 1);
        double flops = 0;
        for (int i = 1; i < n; i++)
            flops += 2.0 * w[i] * w[i - 1];
        pst_peak top = pst_peak_measure(isa);
        printf("%s, %.0f operations a row, %s, peak %.1f GFLOP/s (L1 %.1f)\n", net ? "FFNN 784-32-32-32-32-10" : "AE 30-64-32-64-30", flops,
               isa, top.registers, top.l1);
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            double peak, ns = time_plan(p, x, w[0], batches[b], distinct, isa, &peak);
            printf("  batch %5d  %8.1f ns a row  %6.1f GFLOP/s of %6.1f  %5.1f %%\n", batches[b], ns, flops / ns, peak,
                   100 * flops / ns / peak);
        }
        free(x);
        pst_plan_free(p);
        pst_model_unref(m);
    }
    return 0;
}

/* ---- matrix products ---- */

typedef void (*blas32)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
typedef void (*blas64)(int, int, int, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float, float *,
                       int64_t);
typedef struct peer {
    blas32 f32;
    blas64 f64;
    const char *config;
} peer;

static peer load_peer(const char *path)
{
    peer p = {0};
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (path && !lib) {
        fprintf(stderr, "bench_kernels: %s\n", dlerror());
        exit(1);
    }
    if (!lib)
        return p;
    p.f64 = (blas64)dlsym(lib, "scipy_cblas_sgemm64_"); /* as in NumPy's packages: 64-bit integers, names of its own */
    p.f32 = p.f64 ? NULL : (blas32)dlsym(lib, "cblas_sgemm");
    void (*threads)(int) = (void (*)(int))dlsym(lib, p.f64 ? "scipy_openblas_set_num_threads64_" : "openblas_set_num_threads");
    char *(*config)(void) = (char *(*)(void))dlsym(lib, p.f64 ? "scipy_openblas_get_config64_" : "openblas_get_config");
    if ((!p.f32 && !p.f64) || !threads) {
        fprintf(stderr, "bench_kernels: %s is no OpenBLAS\n", path);
        exit(1);
    }
    threads(1);
    p.config = config ? config() : "";
    return p;
}

enum { ROW_MAJOR = 101, NO_TRANS = 111 };

static void peer_run(const peer *p, int m, int n, int k, const float *a, const float *b, float *c)
{
    if (p->f64)
        p->f64(ROW_MAJOR, NO_TRANS, NO_TRANS, m, n, k, 1, a, k, b, n, 0, c, n);
    else
        p->f32(ROW_MAJOR, NO_TRANS, NO_TRANS, m, n, k, 1, a, k, b, n, 0, c, n);
}

static double time_gemm(const peer *p, const eng_packed *packed, int m, int n, int k, const float *a, const float *b, float *c, int calls)
{
    double t = pst_cpu_ns();
    for (int i = 0; i < calls; i++)
        if (p)
            peer_run(p, m, n, k, a, b, c);
        else if (packed)
            eng_sgemm_packed(packed, m, 1, a, k, 0, c, n);
        else
            pst_sgemm(false, false, m, n, k, 1, a, k, b, n, 0, c, n);
    return (pst_cpu_ns() - t) / calls;
}

static void bench_product(const peer *p, int m, int n, int k, double top)
{
    float *a = rnds((size_t)m * (size_t)k, 1), *b = rnds((size_t)k * (size_t)n, 1), *c = rnds((size_t)m * (size_t)n, 1),
          *want = rnds((size_t)m * (size_t)n, 1);
    const eng_cpu_kernels *kn = eng_kernels_pick(NULL);
    eng_packed packed = {0};
    float *room = rnds(eng_packed_floats(kn, n, k), 0);
    eng_sgemm_pack(kn, false, n, k, b, n, room, &packed);
    double best[3] = {1e18, 1e18, 1e18}, flops = 2.0 * m * n * k;
    int calls = (int)(2e6 / flops) + 1, reps = flops > 1e9 ? 5 : flops > 1e8 ? 15 : 60;
    for (int form = 0; form < 2; form++) {
        time_gemm(NULL, form ? &packed : NULL, m, n, k, a, b, c, 1);
        if (p)
            peer_run(p, m, n, k, a, b, want);
        for (int i = 0; i < m * n && p; i++)
            if (!(fabsf(c[i] - want[i]) <= 2e-4f * (1 + fabsf(want[i])) * sqrtf((float)k))) {
                fprintf(stderr, "bench_kernels: %d %d %d differs: %g, expected %g\n", m, n, k, (double)c[i], (double)want[i]);
                exit(1);
            }
    }
    for (int r = 0; r < reps; r++)
        for (int form = 0; form < 3; form++) {
            if (form == 2 && !p)
                continue;
            double t = time_gemm(form == 2 ? p : NULL, form == 1 ? &packed : NULL, m, n, k, a, b, c, calls);
            best[form] = t < best[form] ? t : best[form];
        }
    printf("  %5d x %4d x %4d   %7.1f  %7.1f  %7.1f GFLOP/s   ratio %5.2f  %5.2f   packed reaches %3.0f %%\n", m, k, n, flops / best[0],
           flops / best[1], p ? flops / best[2] : 0, p ? best[2] / best[0] : 0, p ? best[2] / best[1] : 0, 100 * flops / best[1] / top);
    fflush(stdout);
    free(a);
    free(b);
    free(c);
    free(want);
    free(room);
}

static int bench_gemm(const char *path, const char *only)
{
    static const int ms[] = {1, 8, 64, 512, 4096}, kn[][2] = {{30, 64},   {64, 32},    {32, 64},    {64, 30},   {784, 32},  {128, 128},
                                                              {256, 256}, {256, 1024}, {1024, 256}, {768, 768}, {768, 3072}};
    peer p = load_peer(path);
    pst_peak top = pst_peak_measure(pst_engine_isa());
    printf("%s, peak %.1f GFLOP/s; peer: %s\n      m x    k x    n        ours   packed   peer           ours/peer packed/peer\n",
           pst_engine_isa(), top.registers, path ? p.config : "none");
    for (size_t s = 0; s < sizeof kn / sizeof *kn; s++)
        for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
            if (!only || atoi(only) == ms[i])
                bench_product(path ? &p : NULL, ms[i], kn[s][1], kn[s][0], top.registers);
    return 0;
}

/* ---- layers ---- */

typedef struct two_plans {
    pst_model *m;
    pst_plan *fast, *plain;
} two_plans;

static two_plans load_both(pst_onnx_builder *b)
{
    two_plans t = {0};
    pst_buf buf = {0};
    pst_err err = {0};
    pst_plan_opts plain = {.no_fusion = true};
    pst_onnx_write(b, &buf);
    pst_onnx_free(b);
    if (pst_model_load(buf.data, buf.len, NULL, NULL, &t.m, &err) < 0 || pst_plan_new(t.m, NULL, &t.fast, &err) < 0 ||
        pst_plan_new(t.m, &plain, &t.plain, &err) < 0) {
        fprintf(stderr, "bench_kernels: %s\n", err.text);
        exit(1);
    }
    pst_buf_done(&buf);
    return t;
}

/* Best times of both; the first output is compared first. */
static void time_both(const two_plans *t, const pst_tensor *in, double flops, double *ret_fast, double *ret_plain)
{
    pst_tensor got, want;
    size_t n = 1;
    if (pst_plan_run(t->fast, in, 1, &got, 1, NULL) < 0 || pst_plan_run(t->plain, in, 1, &want, 1, NULL) < 0)
        exit(1);
    for (int i = 0; i < got.rank; i++)
        n *= (size_t)got.dims[i];
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(((float *)got.data)[i] - ((float *)want.data)[i]) <= 1e-3f)) {
            fprintf(stderr, "bench_kernels: results differ\n");
            exit(1);
        }
    *ret_fast = *ret_plain = 1e18;
    int calls = (int)(3e6 / flops) + 1;
    for (int r = 0; r < 40; r++)
        for (int plain = 0; plain < (r < 4 ? 2 : 1); plain++) {
            double at = pst_cpu_ns();
            for (int i = 0; i < calls; i++)
                pst_plan_run(plain ? t->plain : t->fast, in, 1, &got, 1, NULL);
            at = (pst_cpu_ns() - at) / calls;
            if (plain)
                *ret_plain = at < *ret_plain ? at : *ret_plain;
            else
                *ret_fast = at < *ret_fast ? at : *ret_fast;
        }
}

static void free_both(two_plans *t)
{
    pst_plan_free(t->fast);
    pst_plan_free(t->plain);
    pst_model_unref(t->m);
}

static int bench_conv(void)
{
    static const int shapes[][8] = {/* n, channels, size, filters, kernel, stride, pad, groups */
                                    {1, 1, 28, 8, 3, 1, 1, 1},     {1, 8, 14, 16, 3, 1, 1, 1},    {64, 8, 14, 16, 3, 1, 1, 1},
                                    {1, 3, 32, 32, 3, 1, 1, 1},    {1, 32, 32, 32, 3, 1, 1, 1},   {1, 64, 16, 64, 3, 1, 1, 1},
                                    {1, 64, 56, 64, 3, 1, 1, 1},   {1, 64, 56, 128, 3, 2, 1, 1},  {1, 64, 32, 64, 1, 1, 0, 1},
                                    {1, 256, 14, 256, 1, 1, 0, 1}, {1, 64, 32, 64, 3, 1, 1, 64},  {1, 64, 32, 64, 3, 2, 1, 64},
                                    {1, 3, 224, 32, 7, 2, 3, 1},   {1, 256, 14, 256, 3, 1, 1, 1}, {1, 512, 7, 512, 3, 1, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int *s = shapes[i];
        int n = s[0], c = s[1], h = s[2], m = s[3], k = s[4], g = s[7], oh = (h + 2 * s[6] - k) / s[5] + 1;
        float *x = rnds((size_t)(n * c * h * h), 1), *w = rnds((size_t)(m * c / g * k * k), 0.2f), *bias = rnds((size_t)m, 1);
        pst_onnx_builder *b = pst_onnx_new("conv", 17, 8);
        pst_onnx_input(b, "x", PST_F32, 4, (int64_t[]){-1, c, h, h}, "N");
        pst_onnx_floats(b, "w", 4, (int64_t[]){m, c / g, k, k}, w);
        pst_onnx_floats(b, "b", 1, (int64_t[]){m}, bias);
        pst_onnx_node(b, "Conv", (const char *[]){"x", "w", "b"}, 3, (const char *[]){"y"}, 1);
        pst_onnx_attr_ints(b, "pads", (int64_t[]){s[6], s[6], s[6], s[6]}, 4);
        pst_onnx_attr_ints(b, "strides", (int64_t[]){s[5], s[5]}, 2);
        pst_onnx_attr_int(b, "group", g);
        pst_onnx_node(b, "Relu", (const char *[]){"y"}, 1, (const char *[]){"z"}, 1);
        pst_onnx_output(b, "z", PST_F32, 4, (int64_t[]){-1, m, oh, oh}, "N");
        two_plans t = load_both(b);
        pst_tensor in = {.dtype = PST_F32, .rank = 4, .dims = {n, c, h, h}, .data = x};
        double flops = 2.0 * n * m * (c / g) * k * k * oh * oh, fast, plain;
        time_both(&t, &in, flops, &fast, &plain);
        char *text = pst_plan_explain(t.fast);
        const char *by = text && strstr(text, "oneDNN") ? "oneDNN" : "own";
        printf("  n%-3d %4d x %3d x %-3d -> %4d, kernel %d, stride %d, groups %-3d %9.1f us  %6.1f GFLOP/s  plain %9.1f us  %s\n", n, c, h,
               h, m, k, s[5], g, fast / 1e3, flops / fast, plain / 1e3, by);
        free(text);
        free_both(&t);
        free(x);
        free(w);
        free(bias);
    }
    return 0;
}

static int bench_rnn(void)
{
    static const int shapes[][4] = {{32, 1, 16, 64}, {32, 8, 16, 64}, {32, 64, 16, 64}, {100, 1, 32, 128}, {100, 32, 32, 128}};
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const int *s = shapes[i];
            int g = (kind ? 3 : 4) * s[3];
            float *x = rnds((size_t)(s[0] * s[1] * s[2]), 1), *w = rnds((size_t)(g * s[2]), 0.1f), *r = rnds((size_t)(g * s[3]), 0.1f);
            pst_onnx_builder *b = pst_onnx_new("cells", 17, 8);
            pst_onnx_input(b, "x", PST_F32, 3, (int64_t[]){-1, -1, s[2]}, "N");
            pst_onnx_floats(b, "w", 3, (int64_t[]){1, g, s[2]}, w);
            pst_onnx_floats(b, "r", 3, (int64_t[]){1, g, s[3]}, r);
            pst_onnx_node(b, kind ? "GRU" : "LSTM", (const char *[]){"x", "w", "r"}, 3, (const char *[]){"y", "h"}, 2);
            pst_onnx_attr_int(b, "hidden_size", s[3]);
            pst_onnx_attr_int(b, "linear_before_reset", kind);
            pst_onnx_output(b, "h", PST_F32, 3, (int64_t[]){1, -1, s[3]}, "N");
            two_plans t = load_both(b);
            pst_tensor in = {.dtype = PST_F32, .rank = 3, .dims = {s[0], s[1], s[2]}, .data = x};
            double flops = 2.0 * s[0] * s[1] * g * (s[2] + s[3]), fast, plain;
            time_both(&t, &in, flops, &fast, &plain);
            printf("  %-4s %3d steps, batch %2d, %2d -> %3d %9.1f us  %5.1f GFLOP/s  plain %9.1f us\n", kind ? "GRU" : "LSTM", s[0], s[1],
                   s[2], s[3], fast / 1e3, flops / fast, plain / 1e3);
            free_both(&t);
            free(x);
            free(w);
            free(r);
        }
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "peak")) {
        for (int i = 0; i < 3; i++) {
            pst_peak p = pst_peak_measure(isas[i]);
            printf("%-9s registers %6.1f GFLOP/s, tile from L1 %6.1f GFLOP/s\n", isas[i], p.registers, p.l1);
        }
        return 0;
    }
    if (!strcmp(what, "mlp"))
        return bench_mlp(argc > 2 ? argv[2] : NULL);
    if (!strcmp(what, "gemm"))
        return bench_gemm(argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL);
    if (!strcmp(what, "conv"))
        return bench_conv();
    if (!strcmp(what, "rnn"))
        return bench_rnn();
    fprintf(stderr, "usage: bench_kernels peak | mlp [isa] | gemm [OpenBLAS library] [m] | conv | rnn\n");
    return 2;
}
